"""Columns found together, in pieces, against each of them found alone and against loops."""

import numpy as np
import pytest

from counterpoise.inference import units as module
from counterpoise.inference.paired import PairedMeans
from counterpoise.inference.units import Units

N = 400
RNG = np.random.default_rng(0)
CODES = RNG.permutation(np.repeat(np.arange(5), [200, 120, 60, 18, 2]))
LOSSES = [RNG.exponential(size=N), RNG.normal(3.0, 2.0, N), (RNG.random(N) < 0.02).astype(float), RNG.random(N) * 1e-9]
PAIRS = [(0, None), (0, 1), (1, 0), (2, None), (2, 2), (3, None), (3, 0)]
WEIGHT = RNG.uniform(0.5, 2.0, N)
GROUPS = {"rows": None, "groups": CODES * 100 + np.arange(N) % 7, "groups across contexts": np.arange(N) % 60}


def column(losses, pair):
    one, other = pair
    return losses[one] - (0.0 if other is None else losses[other])


@pytest.fixture(params=[1 << 16, 64, 7], ids=lambda size: f"pieces of {size}")
def pieces(request, monkeypatch):
    monkeypatch.setattr(module, "_PIECE", request.param)


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_columns_found_together_are_those_found_alone(pieces, groups):
    events = np.arange(len(PAIRS)) / 10.0
    losses = [*LOSSES[:3], np.where(CODES == 1, np.inf, LOSSES[3])]
    whole = PairedMeans.between(losses, PAIRS, CODES, 5, WEIGHT, groups, events)
    for k, pair in enumerate(PAIRS):
        alone = PairedMeans.of(column(losses, pair)[:, None], CODES, 5, WEIGHT, groups, events[k : k + 1])
        some = whole.columns([k])
        for name in ("mean", "error", "skewness", "degrees", "n_units"):
            one, other = getattr(some, name), getattr(alone, name)
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-14 * np.abs(np.nan_to_num(other)).max())
    both = whole.columns([1, 0, 1])
    together = np.stack([column(losses, PAIRS[k]) for k in (1, 0, 1)], axis=1)
    alone = PairedMeans.of(together, CODES, 5, WEIGHT, groups, events[[1, 0, 1]])
    one, other = ((pairs.factor.T @ pairs.factor).toarray() for pairs in (both, alone))
    np.testing.assert_allclose(one, other, atol=1e-12)


def test_moments_are_sums_over_the_rows_of_each_context(pieces):
    units = Units.of(LOSSES, PAIRS, CODES, 5, WEIGHT, None)
    products, cubes = units.moments()
    for c in range(5):
        own = c == CODES
        share = WEIGHT[own] / WEIGHT[own].sum()
        values = np.stack([column(LOSSES, pair)[own] for pair in PAIRS]) / units.size[:, None]
        influence = share * (values - (values @ share)[:, None]) / np.sqrt(1.0 - share)
        np.testing.assert_allclose(products[c], influence @ influence.T, rtol=1e-9, atol=1e-18)
        np.testing.assert_allclose(cubes[c], (influence**3).sum(axis=1), rtol=1e-9, atol=1e-18)


def test_a_context_without_rows_has_no_mean():
    pairs = PairedMeans.of(np.ones((4, 1)), np.array([0, 0, 2, 2]), 3, np.ones(4))
    assert pairs.n_units.tolist() == [2, 0, 2]
    np.testing.assert_allclose(pairs.mean[[0, 2], 0], 1.0)
