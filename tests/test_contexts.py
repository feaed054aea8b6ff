import datetime
import decimal
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.contexts import Agreement, encode, objects, places_among
from counterpoise.exceptions import EmptyContextError, InvalidInputError

PROPERTY = settings(max_examples=80, deadline=None, derandomize=True)

DAYS = ["2020-01-02", "2020-01-01", "2020-01-02"]

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3)

LABELS = (
    st.lists(TEXT, min_size=1, max_size=30)
    | st.lists(st.integers(-3, 3), min_size=1, max_size=30)
    | st.lists(st.booleans(), min_size=1, max_size=30)
    | st.lists(st.sampled_from(["1", 1, 2, "b", 2.5, ("a", 1)]), min_size=1, max_size=30)
)
"""Labels of one kind, and of several that cannot be compared."""


# --- properties ---------------------------------------------------------------------------------------------


@PROPERTY
@given(LABELS)
def test_codes_point_at_the_label_of_their_row(labels):
    contexts = encode(labels)
    assert [contexts.labels[code] for code in contexts.codes] == labels
    assert len(set(contexts.labels.tolist())) == len(contexts.labels)


@PROPERTY
@given(LABELS)
def test_counts_add_up_and_starts_frame_them(labels):
    contexts = encode(labels)
    assert contexts.counts.sum() == len(labels)
    assert (contexts.counts > 0).all()
    assert contexts.starts[0] == 0
    np.testing.assert_array_equal(np.diff(contexts.starts), contexts.counts)


@PROPERTY
@given(LABELS)
def test_grouping_order_groups_and_keeps_the_order_within_a_context(labels):
    contexts = encode(labels)
    order = contexts.grouping_order()
    if order is None:
        order = np.arange(len(labels))
        assert (np.diff(contexts.codes) >= 0).all()
    for c in range(len(contexts.labels)):
        rows = order[contexts.starts[c] : contexts.starts[c + 1]]
        np.testing.assert_array_equal(rows, np.flatnonzero(contexts.codes == c))


@PROPERTY
@given(st.lists(TEXT, min_size=1) | st.lists(st.integers(-(2**62), 2**62), min_size=1))
def test_comparable_labels_are_sorted(labels):
    assert encode(labels).labels.tolist() == sorted(set(labels))


@PROPERTY
@given(st.lists(st.sampled_from(["b", 2, "a", 1]), min_size=1))
def test_labels_that_cannot_be_compared_keep_the_order_of_appearance(labels):
    contexts = encode([*labels, "b", 2])
    assert contexts.labels.tolist() == list(dict.fromkeys([*labels, "b", 2]))


@PROPERTY
@given(LABELS, st.randoms(use_true_random=False))
def test_declared_order_is_kept(labels, random):
    declared = list(dict.fromkeys(labels))
    random.shuffle(declared)
    contexts = encode(labels, declared=declared)
    assert contexts.labels.tolist() == declared
    assert [contexts.labels[code] for code in contexts.codes] == labels


@PROPERTY
@given(st.lists(st.text("ab", max_size=2), min_size=1))
def test_containers_do_not_matter(labels):
    expected = encode(labels)
    for container in (tuple, np.array, pd.Series, pl.Series, pd.Index, pd.Categorical, iter):
        contexts = encode(container(labels))
        assert contexts.labels.tolist() == expected.labels.tolist()
        np.testing.assert_array_equal(contexts.codes, expected.codes)


# --- kinds of labels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["b", "a", "b"], ["a", "b"]),
        ([3, 1, 3], [1, 3]),
        ([True, False, True], [False, True]),
        ([2.5, -1.0, 2.5], [-1.0, 2.5]),
        ([b"b", b"a", b"b"], [b"a", b"b"]),
        ([("b", 2), ("a", 1), ("b", 2)], [("a", 1), ("b", 2)]),
        ([(3, 4), (1, 2), (3, 4)], [(1, 2), (3, 4)]),
        ([datetime.date(2020, 1, 2), datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)], None),
        ([2**70, 1, 2**70], [1, 2**70]),
        ([2**63 + 1, 2**63, 2**63 + 1], [2**63, 2**63 + 1]),
        (np.array(["b", "a", "b"], dtype=object), ["a", "b"]),
        (np.array(["b", "a", "b"], dtype=np.dtypes.StringDType()), ["a", "b"]),
        (np.array([3, 1, 3], dtype=np.uint8), [1, 3]),
        (np.array(DAYS, dtype="M8[D]"), None),
        (np.array(DAYS, dtype="M8[ns]"), None),
        (pd.Series(["b", "a", "b"], index=[7, 7, 9]), ["a", "b"]),
        (pd.Series(["b", "a", "b"], dtype=object), ["a", "b"]),
        (pd.Series(["b", "a", "b"], dtype="string"), ["a", "b"]),
        (pd.Series(["b", "a", "b"], dtype="category"), ["a", "b"]),
        (pd.Series([3, 1, 3], dtype="category"), [1, 3]),
        (pd.Series([3, 1, 3], dtype="Int64"), [1, 3]),
        (pd.Series([True, False, True], dtype="boolean"), [False, True]),
        (pd.to_datetime(pd.Series(DAYS)), None),
        (pd.to_datetime(pd.Series(DAYS), utc=True), None),
        (pl.Series(["b", "a", "b"]), ["a", "b"]),
        (pl.Series([3, 1, 3]), [1, 3]),
        (pl.Series(["b", "a", "b"], dtype=pl.Categorical), ["a", "b"]),
        (pl.Series(["b", "a", "b"], dtype=pl.Enum(["b", "a"])), ["a", "b"]),
        (pl.Series(DAYS).str.to_date(), None),
    ],
    ids=lambda x: f"{type(x).__module__}.{getattr(x, 'dtype', '')}" if hasattr(x, "dtype") else None,
)
def test_labels_of_every_kind_are_encoded(labels, expected):
    contexts = encode(labels, n_rows=3)
    np.testing.assert_array_equal(contexts.codes, [1, 0, 1])
    np.testing.assert_array_equal(contexts.counts, [1, 2])
    assert expected is None or contexts.labels.tolist() == expected


def test_category_without_rows_is_no_context():
    labels = pd.Series(["b", "a"], dtype="category").cat.add_categories("never")
    assert encode(labels).labels.tolist() == ["a", "b"]


def test_number_and_its_digits_are_different_contexts():
    assert encode([1, "1", 1]).counts.tolist() == [2, 1]


@pytest.mark.parametrize("labels", [[2**63, 2**63 + 1, -1], [2**53, 2**53 + 1, 0.5]])
def test_different_numbers_are_never_merged(labels):
    assert len(encode(labels).labels) == 3


def test_one_context_is_enough():
    contexts = encode(["only"] * 4)
    assert contexts.counts.tolist() == [4]
    assert contexts.grouping_order() is None


def test_codes_are_indices():
    for labels in (["a", "b"], [1, "b"], pd.Series(["a", "b"]), np.array([1, 2])):
        assert encode(labels).codes.dtype == np.intp


def test_grouped_rows_need_no_order_and_others_get_a_stable_one():
    assert encode([1, 1, 2, 3]).grouping_order() is None
    np.testing.assert_array_equal(encode([2, 1, 2, 1]).grouping_order(), [1, 3, 0, 2])


def test_long_labels_are_cut_in_messages():
    assert encode(["x" * 500, "y"]).describe(0) == "context " + "x" * 60


# --- missing labels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "b", None],
        [1, 2, None],
        ["a", "b", math.nan],
        [1.0, 2.0, math.nan],
        ["a", "b", pd.NA],
        ["a", "b", np.datetime64("NaT")],
        [1, 2, decimal.Decimal("NaN")],
        [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-02"), pd.NaT],
        np.array(["a", "b", None], dtype=object),
        np.array(["2020-01-01", "2020-01-02", "NaT"], dtype="M8[D]"),
        np.array([1, 2, "NaT"], dtype="m8[s]"),
        np.array(["a", "b", np.nan], dtype=np.dtypes.StringDType(na_object=np.nan)),
        np.array(["a", "b", None], dtype=np.dtypes.StringDType(na_object=None)),
        np.ma.array([1, 2, 3], mask=[False, False, True]),
        pd.Series(["a", "b", None]),
        pd.Series(["a", "b", pd.NA], dtype=object),
        pd.Series(["a", "b", None], dtype="string"),
        pd.Series(["a", "b", None], dtype="category"),
        pd.Series([1, 2, None], dtype="Int64"),
        pd.Series([True, False, None], dtype="boolean"),
        pd.to_datetime(pd.Series(["2020-01-01", "2020-01-02", None])),
        pd.to_datetime(pd.Series(["2020-01-01", "2020-01-02", None]), utc=True),
        pd.Categorical(["a", "b", None]),
        pl.Series(["a", "b", None]),
        pl.Series([1, 2, None]),
        pl.Series([1.0, 2.0, math.nan]),
        pl.Series([True, False, None]),
        pl.Series(["a", "b", None], dtype=pl.Categorical),
        pl.Series(["2020-01-01", "2020-01-02", None]).str.to_date(),
    ],
    ids=lambda x: f"{type(x).__module__}.{getattr(x, 'dtype', '')}" if hasattr(x, "dtype") else repr(x[-1]),
)
def test_missing_labels_are_refused_and_the_row_is_named(labels):
    with pytest.raises(InvalidInputError, match=r"context of row 2 .*\(1 of 3 are missing\).*'unknown'"):
        encode(labels)


# --- shapes and lengths -------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [np.zeros((3, 2)), np.zeros((2, 2, 2)), np.array(1), np.zeros((2, 0))], ids=str)
def test_labels_that_are_not_one_per_row_are_refused(labels):
    with pytest.raises(InvalidInputError, match="one label per row"):
        encode(labels, n_rows=2)


@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame, lambda d: np.array(list(d.values()), dtype=object).T])
def test_columns_of_a_table_are_crossed(table):
    hospital, device = ["north", "south", "north", "south", "north"], [2, 1, 1, 1, 2]
    contexts = encode(table({"hospital": hospital, "device": device}))
    assert contexts.labels.tolist() == [("north", 1), ("north", 2), ("south", 1)]
    assert [contexts.labels[k] for k in contexts.codes] == list(zip(hospital, device, strict=True))
    as_tuples = encode(list(zip(hospital, device, strict=True)))
    assert as_tuples.labels.tolist() == contexts.labels.tolist()
    np.testing.assert_array_equal(as_tuples.codes, contexts.codes)


def test_many_columns_cross_without_overflow():
    table = pd.DataFrame(np.random.default_rng(0).integers(0, 1000, size=(2000, 12)))
    contexts = encode(table)
    assert len(contexts.labels) == 2000
    assert [contexts.labels[k] for k in contexts.codes] == [tuple(row) for row in table.to_numpy().tolist()]


@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame])
def test_one_column_of_a_table_is_no_crossing(table):
    assert encode(table({"a": ["y", "x"]})).labels.tolist() == ["x", "y"]


def test_a_missing_part_of_a_crossing_is_refused():
    with pytest.raises(InvalidInputError, match="context of row 1"):
        encode(pd.DataFrame({"a": [1, 2], "b": ["x", None]}))


@pytest.mark.parametrize("labels", [None, 5, 2.5, [[1], [2, 3]], [[1, 2], [3, 4]]], ids=repr)
def test_what_is_no_list_of_labels_is_refused(labels):
    with pytest.raises(InvalidInputError):
        encode(labels)


@pytest.mark.parametrize("n_rows", [0, 2, 4])
def test_wrong_length_is_refused(n_rows):
    with pytest.raises(InvalidInputError, match=f"got 3 context labels for {n_rows} rows"):
        encode(["a", "b", "a"], n_rows=n_rows)


@pytest.mark.parametrize("labels", [[], (), np.array([]), pd.Series([], dtype=object), pl.Series([], dtype=pl.String)])
def test_no_rows_are_refused(labels):
    with pytest.raises(InvalidInputError, match="no rows"):
        encode(labels)


@pytest.mark.parametrize("labels", [pd.Series([[1], [2]]), np.array([{}, {}], dtype=object), pl.Series([["a"], ["b"]])])
def test_labels_that_cannot_be_hashed_are_refused(labels):
    with pytest.raises(InvalidInputError, match="cannot be hashed"):
        encode(labels)


# --- declared contexts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "declared"),
    [
        (["b", "a"], np.array(["a", "b"])),
        (["b", "a"], pd.Series(["a", "b"])),
        (np.array([2, 1]), [1, 2]),
        ([2, 1], np.array([1, 2])),
        (pd.Series(["b", "a"], dtype="category"), ["a", "b"]),
        (np.array(DAYS[:2], dtype="M8[D]"), [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]),
        (np.array(DAYS[:2], dtype="M8[ns]"), np.array(["2020-01-01", "2020-01-02"], dtype="M8[ns]")),
        (
            pd.Series(pd.to_datetime(DAYS[:2])).astype("M8[us]"),
            [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-02")],
        ),
        (
            pd.Series(pd.to_datetime(DAYS[:2])).astype("M8[ns]"),
            [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-02")],
        ),
    ],
)
def test_declared_labels_are_recognised_across_containers(labels, declared):
    np.testing.assert_array_equal(encode(labels, declared=declared).codes, [1, 0])


def test_declared_context_without_rows_is_refused_with_the_counts():
    with pytest.raises(EmptyContextError, match=r"context east has no training samples \(counts: north 2, east 0\)"):
        encode(["north", "north"], declared=["north", "east"])


def test_undeclared_context_is_refused_by_name():
    with pytest.raises(InvalidInputError, match="context west is in the data but was not declared"):
        encode(["north", "west"], declared=["north", "east"])


def test_number_does_not_stand_for_its_digits():
    with pytest.raises(InvalidInputError, match="was not declared"):
        encode([1, 2], declared=["1", "2"])


def test_context_declared_twice_is_not_said_to_be_empty():
    with pytest.raises(InvalidInputError, match="north") as caught:
        encode(["north", "east"], declared=["north", "east", "north"])
    assert not isinstance(caught.value, EmptyContextError)


def test_declared_label_that_cannot_be_hashed_is_refused():
    with pytest.raises(InvalidInputError, match="hashed"):
        encode(["a", "b"], declared=[["a"], "b"])


def test_refusals_are_value_errors():
    with pytest.raises(ValueError, match="no rows"):
        encode([])


# --- labels that are met in pieces -----------------------------------------------------------------------------------


@PROPERTY
@given(LABELS, st.integers(1, 5))
def test_pieces_agree_on_the_contexts_of_the_whole(labels, n_pieces):
    whole = encode(labels)
    agreement, codes = Agreement(), []
    for piece in np.array_split(np.arange(len(labels)), n_pieces):
        own = list(dict.fromkeys(labels[k] for k in piece))
        given_codes = agreement.codes(objects(own))
        codes += [given_codes[own.index(labels[k])] for k in piece]
    found = agreement.contexts()
    assert found.labels.tolist() == whole.labels.tolist()
    assert found.codes[codes].tolist() == whole.codes.tolist()
    # A code keeps its label, whatever comes later.
    assert [agreement.labels[code] for code in codes] == labels


def test_pieces_of_one_kind_keep_their_type():
    agreement = Agreement()
    assert agreement.codes(np.array([3, 1])).tolist() == [0, 1]
    assert agreement.codes(np.array([1.0, 2.5])).tolist() == [1, 2]
    assert agreement.labels.dtype == np.float64
    assert agreement.contexts().labels.tolist() == [1.0, 2.5, 3.0]


def test_crossed_labels_of_pieces_are_put_in_order_column_by_column():
    agreement = Agreement(n_columns=2)
    agreement.codes(objects([("b", 1), ("b", "x")]))
    agreement.codes(objects([("a", 1)]))
    table = pd.DataFrame({"u": ["b", "b", "a"], "v": [1, "x", 1]})
    assert agreement.contexts().labels.tolist() == encode(table).labels.tolist()


@pytest.mark.parametrize(
    ("labels", "values", "places"),
    [
        ([2, 7, 5], [5.0, 2.0, 6.0, np.nan], [2, 0, -1, -1]),
        ([False, True], [1, 0, 2], [1, 0, -1]),
        (["b", "a"], ["a", "c", "b"], [1, -1, 0]),
        ([1, 2], ["1", "2"], [-1, -1]),
        (np.array([1, "a"], dtype=object), np.array(["a", 1, None], dtype=object), [1, 0, -1]),
    ],
)
def test_places_among_labels_of_any_kind(labels, values, places):
    np.testing.assert_array_equal(places_among(np.asarray(labels), np.asarray(values)), places)
