"""Rows gathered into units: the same means, and errors that are as large."""

import numpy as np
import pytest

from counterpoise.inference.excess import HeldOut
from counterpoise.judging.measures import Judged, Predicted
from counterpoise.judging.units import Units

N = 6000
RNG = np.random.default_rng(2)
C = RNG.choice(["a", "b", "c"], N, p=[0.6, 0.3, 0.1])
VALUES = RNG.exponential(size=N) + (C == "b")
WEIGHT = RNG.uniform(0.5, 1.5, N)
ROWS = Judged(VALUES, Predicted(np.zeros(N)))


def values(rows):
    return rows.target


@pytest.mark.parametrize("groups", [None, np.arange(N) // 5, np.arange(N) // 50])
def test_means_are_those_of_rows_and_errors_are_close(groups):
    rows = HeldOut.of(N, C, groups, WEIGHT)
    units = Units.of(rows, most=100, batches=300)
    assert units.unit is not None
    gathered = units.held_out.pairs(units.of_rows(ROWS, values)[:, None])
    plain = rows.pairs(VALUES[:, None])
    np.testing.assert_allclose(gathered.mean, plain.mean)
    np.testing.assert_allclose(units.held_out.totals, rows.totals)
    # A group is one unit either way; batches know the error to a few percent.
    np.testing.assert_allclose(gathered.error, plain.error, rtol=1e-9 if groups is not None else 0.15)


def test_few_rows_are_units_themselves():
    rows = HeldOut.of(N, C)
    units = Units.of(rows)
    assert units.unit is None
    assert units.of_rows(ROWS, values) is VALUES


def test_very_many_contexts_are_dealt_too():
    many = np.arange(N) % 2000
    units = Units.of(HeldOut.of(N, many), most=100, batches=20_000)
    means = units.held_out.pairs(units.of_rows(ROWS, values)[:, None]).mean[:, 0]
    np.testing.assert_allclose(means, np.bincount(many, VALUES) / np.bincount(many))
