"""Stock levels from dask collections are those of the same rows in memory."""

import numpy as np
import pytest

pytest.importorskip("dask")
pytest.importorskip("dask.dataframe")

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise import RobustNewsvendor
from counterpoise.exceptions import InvalidInputError, OneContextWarning
from tests.dask_.parts import assert_same_fit, chunked, framed, sizes_of

PROPERTY = settings(max_examples=15, deadline=None, derandomize=True)


def sales(seed, n=60, n_contexts=3, tied=False):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_contexts, n)
    demand = rng.gamma(2.0 + codes, 4.0)
    return rng.uniform(1.0, 8.0, n), np.round(demand) if tied else demand, codes


@PROPERTY
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from(
        [{}, {"radius": 0.0}, {"confidence": 1.0}, {"criterion": "risk"}, {"max_stock": 14.5}, {"integer": True}]
    ),
)
def test_levels_are_those_in_memory(seed, n_parts, tied, options):
    costs, demand, codes = sales(seed, tied=tied)
    labels = np.array(["n", "s", "e"])[codes]
    sizes = sizes_of(len(demand), n_parts, seed)
    like = RobustNewsvendor(price=10.0, **options).fit(costs, demand, contexts=labels)
    found = RobustNewsvendor(price=10.0, **options).fit(
        chunked(costs, sizes), chunked(demand, sizes), contexts=chunked(labels, sizes)
    )
    assert_same_fit(found, like)
    assert found.stock_level_ == pytest.approx(like.stock_level_, rel=1e-12)
    np.testing.assert_allclose(found.context_levels_, like.context_levels_, rtol=1e-12)


@pytest.mark.parametrize("costs_are", ["one number", "in memory", "a series"])
def test_costs_may_be_given_in_any_way(costs_are):
    costs, demand, codes = sales(1)
    sizes = [0, 1, 20, 39]
    weight = np.arange(60) % 4 * 0.5
    costs = 4.0 if costs_are == "one number" else costs
    passed = framed(costs, sizes) if costs_are == "a series" else costs
    like = RobustNewsvendor(price=10.0).fit(costs, demand, contexts=codes, sample_weight=weight)
    found = RobustNewsvendor(price=10.0).fit(
        passed, framed(demand, sizes), contexts=framed(codes, sizes), sample_weight=framed(weight, sizes)
    )
    assert_same_fit(found, like)


def test_one_row_per_partition_and_no_contexts():
    _, demand, _ = sales(2, n=12)
    with pytest.warns(OneContextWarning) as caught:
        found = RobustNewsvendor(price=10.0).fit(4.0, chunked(demand, [1] * 12))
    assert caught[0].filename == __file__
    with pytest.warns(OneContextWarning):
        like = RobustNewsvendor(price=10.0).fit(4.0, demand)
    assert_same_fit(found, like)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("demand", np.nan, "partition 2: demand: nan"),
        ("demand", -1.0, "partition 2: "),
        ("costs", np.inf, "partition 2"),
    ],
)
def test_what_is_wrong_is_named_with_its_partition(column, value, said):
    costs, demand, codes = sales(3)
    columns = {"costs": costs, "demand": demand}
    columns[column][45] = value
    sizes = [20, 20, 20]
    with pytest.raises(InvalidInputError, match=said):
        RobustNewsvendor(price=10.0).fit(chunked(costs, sizes), chunked(demand, sizes), contexts=chunked(codes, sizes))


def test_a_cost_without_a_minimum_names_its_context():
    costs, demand, codes = sales(4)
    costs[codes == 1] = 0.5
    labels = pd.Series(np.array(["n", "s", "e"])[codes])
    with pytest.raises(InvalidInputError, match="in context s a unit left over"):
        RobustNewsvendor(price=10.0, salvage=0.7).fit(
            chunked(costs, [30, 30]), chunked(demand, [30, 30]), contexts=framed(labels, [30, 30])
        )


def test_cross_fit_references_are_refused():
    costs, demand, codes = sales(5)
    with pytest.raises(InvalidInputError, match="cross-fit"):
        RobustNewsvendor(price=10.0, reference="cross-fit").fit(
            chunked(costs, [60]), chunked(demand, [60]), contexts=chunked(codes, [60])
        )
