"""Rare contexts: which are pooled, what the pool is called, and that all other rows keep their context."""

import datetime
from collections import Counter

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.pooling import find_pool

PROPERTY = settings(max_examples=150, deadline=None, derandomize=True)

WEATHER = ["clear"] * 90 + ["mist"] * 40 + ["storm"] * 3 + ["hail"] * 35


def referee(labels, below, groups=None):
    """Return the contexts that end up in the pool, step by step; None where there is nothing but a pool."""
    units = [(k,) for k in range(len(labels))] if groups is None else groups
    have = {label: set() for label in sorted(set(labels))}
    for label, unit in zip(labels, units, strict=True):
        have[label].add(unit)
    pool = [label for label in have if len(have[label]) < below]
    others = [label for label in have if label not in pool]
    if not others:
        return None
    while pool and len(set().union(*(have[label] for label in pool))) < below and len(others) > 1:
        smallest = sorted(others, key=lambda label: len(have[label]))[0]
        pool.append(smallest)
        others.remove(smallest)
    return set(pool) if len(pool) > 1 else set()


rows = st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(0, 6)), min_size=1, max_size=60)


@PROPERTY
@given(rows, st.integers(1, 14), st.booleans())
def test_the_pool_is_that_of_the_referee(rows, below, grouped):
    labels, days = (list(column) for column in zip(*rows, strict=True))
    groups = days if grouped else None
    expected = referee(labels, below, groups)
    if expected is None:
        with pytest.raises(InvalidInputError, match="would leave a single context"):
            cpo.pool_rare(labels, below, groups=groups)
        return
    pool = find_pool(labels, below, groups=groups)
    assert set(pool.members) == expected
    pooled = cpo.pool_rare(labels, below, groups=groups).tolist()
    assert [new == pool.label for new in pooled] == [old in expected for old in labels]
    assert [new for new in pooled if new != pool.label] == [old for old in labels if old not in expected]


@PROPERTY
@given(rows, st.integers(1, 14), st.booleans())
def test_pooling_twice_changes_nothing_and_counts_are_kept(rows, below, grouped):
    labels, days = (list(column) for column in zip(*rows, strict=True))
    groups = days if grouped else None
    assume(referee(labels, below, groups) is not None)
    once = cpo.pool_rare(labels, below, groups=groups)
    assert once.shape == (len(labels),)
    assert cpo.pool_rare(once, below, groups=groups).tolist() == once.tolist()
    assert len(set(once.tolist())) > 1 or len(set(labels)) == 1
    pool = find_pool(labels, below, groups=groups)
    before, after = Counter(labels), Counter(once.tolist())
    assert after[pool.label] == sum(before[label] for label in pool.members)
    assert all(after[label] == before[label] for label in before.keys() - pool.members.keys())
    counted = list(pool.members.values())
    assert counted == sorted(counted, reverse=True)
    assert pool.size == sum(counted) if not grouped else max(counted, default=0) <= pool.size <= sum(counted)


# --- labels ----------------------------------------------------------------------------------------------------------

LARGE = {
    "words": ["a", "b"] * 30,
    "integers": [7, 2] * 30,
    "both": ["a", 1] * 30,
    "booleans": [True, False] * 30,
    "dates": [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)] * 30,
    "short integers": np.array([3, 4] * 30, dtype=np.int8),
    "days": np.array(["2020-01-01", "2020-01-02"] * 30, dtype="M8[D]"),
    "pandas": pd.Series(["a", "b"] * 30, dtype="category"),
    "polars": pl.Series([2.5, 3.5] * 30),
}


@pytest.mark.parametrize("kind", LARGE)
def test_labels_are_unchanged_where_nothing_is_rare(kind):
    labels = LARGE[kind]
    pooled = cpo.pool_rare(labels)
    given = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    assert pooled.tolist() == given
    assert [type(label) for label in pooled.tolist()] == [type(label) for label in given]
    if isinstance(labels, np.ndarray):
        assert pooled.dtype == labels.dtype
    assert find_pool(labels).members == {}
    assert find_pool(labels).note == "no context has fewer than 30 rows, so none is pooled"


@pytest.mark.parametrize(
    "of", [list, np.array, pd.Series, pl.Series, lambda labels: pd.Series(labels, dtype="category")]
)
def test_whatever_contexts_may_be(of):
    assert sorted(set(cpo.pool_rare(of(WEATHER)).tolist())) == ["clear", "hail + storm", "mist"]


def test_beside_a_pooled_context_labels_are_text():
    pooled = cpo.pool_rare([12] * 40 + [3] * 50 + [5] * 20 + [4] * 25)
    assert sorted(set(pooled.tolist())) == ["12", "3", "4 + 5"]
    day = np.repeat(np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="M8[D]"), [50, 40, 2])
    assert set(cpo.pool_rare(day).tolist()) == {"2020-01-01", "2020-01-02 + 2020-01-03"}


def crossed():
    site = ["north"] * 60 + ["south"] * 47 + ["west"] * 4
    ward = [1] * 60 + [2] * 40 + [1] * 7 + [2] * 4
    return site, ward


@pytest.mark.parametrize("of", [pd.DataFrame, pl.DataFrame])
def test_columns_are_crossed_into_tuples(of):
    site, ward = crossed()
    pooled = cpo.pool_rare(of({"site": site, "ward": ward}), 10)
    assert set(pooled.tolist()) == {("north", "1"), ("south", "2"), ("south x 1 + west x 2",)}
    assert find_pool(of({"site": site, "ward": ward}), 10).members == {("south", 1): 7, ("west", 2): 4}
    assert cpo.pool_rare(pooled, 10).tolist() == pooled.tolist()
    whole = cpo.pool_rare(of({"site": site, "ward": ward}), 2)
    assert whole.tolist() == list(zip(site, ward, strict=True))


def test_an_array_of_two_columns_is_crossed():
    pooled = cpo.pool_rare(np.column_stack(crossed()), 10, name="rare")
    assert set(pooled.tolist()) == {("north", "1"), ("south", "2"), ("rare",)}


def test_up_to_three_names_are_joined_largest_first():
    def label(*sizes):
        labels = [f"c{k}" for k, size in enumerate(sizes) for _ in range(size)]
        return find_pool([*labels, *["big"] * 40, *["huge"] * 50]).label

    assert label(10, 29) == "c1 + c0"
    assert label(10, 12, 11) == "c1 + c2 + c0"
    assert label(10, 10, 10) == "c0 + c1 + c2"
    assert label(10, 10, 10, 1) == "other (4 contexts)"
    assert label(*[1] * 17) == "other (18 contexts)"


def test_a_name_is_the_label_unless_it_is_taken():
    assert set(cpo.pool_rare(WEATHER, name="bad").tolist()) == {"clear", "mist", "bad"}
    # The name of a context that is pooled is free.
    assert set(cpo.pool_rare(WEATHER, name="hail").tolist()) == {"clear", "mist", "hail"}
    with pytest.raises(InvalidInputError, match="name is 'mist', but a context that is not pooled is called that"):
        cpo.pool_rare(WEATHER, name="mist")
    with pytest.raises(InvalidInputError, match="name is '3', but"):
        cpo.pool_rare([1] * 2 + [2] * 40 + [3] * 50, name="3")


def test_a_label_of_our_own_gives_way():
    labels = [*WEATHER, *["hail + storm"] * 60]
    assert "hail + storm (pooled)" in cpo.pool_rare(labels).tolist()
    assert Counter(cpo.pool_rare(labels).tolist())["hail + storm"] == 60


# --- what is said ----------------------------------------------------------------------------------------------------


def test_the_note_says_which_and_how_many():
    assert find_pool(WEATHER).note == (
        "1 context has fewer than 30 rows and is pooled with the smallest other one as hail + storm (38 rows): "
        "hail 35, storm 3"
    )
    days = [k // 10 for k in range(len(WEATHER))]
    assert find_pool(WEATHER, 5, groups=days).note == (
        "3 contexts have fewer than 5 groups and are pooled as hail + mist + storm (8 groups): hail 4, mist 4, storm 1"
    )
    assert find_pool(["a"] * 4 + ["b"] * 3 + ["c"] * 99).note.endswith(
        "pooled as a + b (7 rows): a 4, b 3. That is still few, but only one other context remains"
    )
    assert find_pool(["a"] * 4 + ["c"] * 99).note == (
        "a has 4 rows, fewer than 30, but is not pooled: that would leave a single context"
    )
    many = [f"c{k}" for k in range(40)]
    assert find_pool([*many, *["z"] * 50]).note.endswith(
        ": c0 1, c1 1, " + "".join(f"c{k} 1, " for k in range(10, 19)) + "c19 1 and 28 more"
    )


def test_a_pool_is_described_for_json():
    assert find_pool(WEATHER).described == {
        "label": "hail + storm",
        "rows": 38,
        "members": [{"context": "hail", "rows": 35}, {"context": "storm", "rows": 3}],
    }
    assert find_pool(WEATHER, 2).described == {"label": None, "rows": 0, "members": []}


def test_a_single_context_is_refused_with_the_counts():
    with pytest.raises(InvalidInputError) as caught:
        cpo.pool_rare(WEATHER, 100)
    assert str(caught.value) == (
        "pooling contexts with fewer than 100 rows would leave a single context (counts: clear 90, hail 35, mist 40, "
        "storm 3). Choose a limit of at most 90."
    )
    assert len(set(cpo.pool_rare(WEATHER, 90).tolist())) == 2


@pytest.mark.parametrize("below", [0, -1, "30", 2.5, None, True, np.nan, [3]])
def test_limits_that_are_refused(below):
    with pytest.raises(InvalidInputError, match=r"^below is .*; pass a whole number, 1 or more\.$"):
        cpo.pool_rare(WEATHER, below)


def test_a_limit_may_be_a_number_of_numpy():
    assert find_pool(WEATHER, np.int64(30)) == find_pool(WEATHER, 30)


@pytest.mark.parametrize(
    ("contexts", "options", "message"),
    [
        (WEATHER, {"name": 3}, "name is 3; pass the label of the pooled context as text"),
        (WEATHER, {"name": ""}, "name is ''; pass the label"),
        (WEATHER, {"groups": [1, 2]}, "got 2 group labels for 168 rows"),
        (WEATHER, {"groups": [None] * 168}, "the group of row 0 is None"),
        ([None, "a"], {}, "the context of row 0 is None"),
        ([], {}, "there are no rows"),
        ([1] * 40 + ["1"] * 40 + ["b"] * 31 + ["c"] * 3, {}, "two contexts would be called 1. Rename one"),
    ],
)
def test_what_is_refused(contexts, options, message):
    with pytest.raises(InvalidInputError, match=message):
        cpo.pool_rare(contexts, **options)


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
def test_an_estimator_takes_them():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(len(WEATHER), 2))
    y = X[:, 0] + rng.normal(size=len(WEATHER))
    model = cpo.RobustLinearRegression(radius=0.1).fit(X, y, contexts=cpo.pool_rare(WEATHER))
    assert model.contexts_.tolist() == ["clear", "hail + storm", "mist"]
    assert model.context_counts_.tolist() == [90, 38, 40]
    two = np.column_stack([WEATHER, np.where(np.arange(len(WEATHER)) % 2, "x", "y")])
    model.set_params(reference="cross-fit").fit(X, y, contexts=cpo.pool_rare(two, 20))
    parts = [(weather, half) for weather in ("clear", "mist") for half in ("x", "y")]
    assert model.contexts_.tolist() == [*parts, ("other (4 contexts)",)]
