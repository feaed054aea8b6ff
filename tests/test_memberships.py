import doctest

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.utils import _safe_indexing

import counterpoise as cpo
import counterpoise.memberships
from counterpoise.contexts import encode
from counterpoise.exceptions import EmptyContextError, InvalidInputError

MATRIX = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1], [1, 0, 0]])
NAMES = ["everyone", "over 80", "diabetic"]
FORMS = {
    "integers": lambda m: m,
    "floats": lambda m: m.astype(float),
    "truth values": lambda m: m.astype(bool),
    "lists": lambda m: m.tolist(),
    "objects": lambda m: m.astype(bool).astype(object),
    "csr": sparse.csr_matrix,
    "csc": sparse.csc_array,
    "coo with zeros": lambda m: sparse.coo_array((m.ravel(), np.indices(m.shape).reshape(2, -1)), shape=m.shape),
    "pandas": lambda m: pd.DataFrame(m, columns=NAMES),
    "polars": lambda m: pl.DataFrame(m.astype(bool), schema=NAMES),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_matrix_says_the_same(form):
    found = cpo.Memberships(FORMS[form](MATRIX), NAMES)
    np.testing.assert_array_equal(found.matrix.toarray(), MATRIX.astype(bool))
    assert found.labels == tuple(NAMES)
    assert found.shape == (5, 3)


def test_labels_are_column_names_or_numbers():
    assert cpo.Memberships(FORMS["pandas"](MATRIX)).labels == tuple(NAMES)
    assert cpo.Memberships(FORMS["polars"](MATRIX)).labels == tuple(NAMES)
    assert cpo.Memberships(MATRIX).labels == (0, 1, 2)
    assert "over 80 2" in repr(cpo.Memberships(MATRIX, NAMES))


def test_contexts_keep_the_order_of_columns_and_count_members():
    encoded = encode(cpo.Memberships(MATRIX, NAMES), 5, may_overlap=True)
    assert encoded.labels.tolist() == NAMES
    assert encoded.counts.tolist() == [5, 2, 2]
    assert encoded.n_rows == 5
    rows, codes = np.nonzero(MATRIX)
    assert sorted(zip(encoded.rows, encoded.codes, strict=True)) == sorted(zip(rows, codes, strict=True))


def test_one_entry_of_each_row_is_that_of_its_smallest_context():
    encoded = encode(cpo.Memberships(MATRIX, NAMES), may_overlap=True)
    assert encoded.rows[encoded.firsts].tolist() == [0, 1, 2, 3, 4]
    assert encoded.labels[encoded.codes[encoded.firsts]].tolist() == [
        "over 80",
        "everyone",
        "diabetic",
        "over 80",
        "everyone",
    ]


def test_memberships_that_do_not_overlap_are_labels():
    labels = np.array(["b", "a", "b", "c"])
    dummies = pd.get_dummies(pd.Series(labels))
    found, usual = encode(cpo.Memberships(dummies), 4), encode(labels, 4)
    assert not found.overlap
    np.testing.assert_array_equal(found.labels, usual.labels)
    np.testing.assert_array_equal(found.codes, usual.codes)


def test_some_rows_are_taken_as_from_an_array():
    some = _safe_indexing(cpo.Memberships(MATRIX, NAMES), np.array([0, 1, 4]))
    assert some.labels == ("everyone", "over 80")
    np.testing.assert_array_equal(some.matrix.toarray(), MATRIX[[0, 1, 4], :2].astype(bool))


def test_what_a_user_would_pass_leads_back_to_the_same_contexts():
    encoded = encode(cpo.Memberships(MATRIX, NAMES), may_overlap=True)
    entries, given = encoded.given(np.flatnonzero(encoded.rows != 2))
    assert encoded.rows[entries].tolist() == [0, 1, 3, 4]
    np.testing.assert_array_equal(given.matrix.toarray(), MATRIX[[0, 1, 3, 4]].astype(bool))
    assert given.labels == tuple(NAMES)


@pytest.mark.parametrize(
    ("matrix", "labels", "words"),
    [
        ([[1, 0], [0, 1], [0, 0], [0, 0]], None, "2 of 4 rows belong to no context .*row 2.*'everyone'.*'others'"),
        ([[2, 0], [0, 1]], None, "is .*2.* in row 0, column 0; each is 0 or 1"),
        ([[1.0, np.nan], [0, 1]], None, "nan.* in row 0, column 1"),
        ([["yes", "no"], ["no", "yes"]], None, "yes.*each is 0 or 1"),
        (np.array([[1, None], [0, 1]], dtype=object), None, "None in row 0, column 1"),
        (pd.DataFrame({"old": [1, 3]}), None, "3.* in row 1, column old"),
        (pl.DataFrame({"old": [1, None]}), None, "row 1, column old"),
        (sparse.csr_array(np.array([[0.5, 1.0]])), None, "0.5.*each is 0 or 1"),
        ([1, 0, 1], None, "shape .3,.*a column of 0 and 1 for each context"),
        (np.zeros((0, 2)), None, "shape .0, 2"),
        ([[1, 1]], ["a"], "1 labels for 2 columns"),
        ([[1, 1]], ["a", "a"], "two columns .* labelled a"),
        ([[1, 1]], [["a"], ["b"]], "cannot be hashed"),
        (np.ma.MaskedArray([[1, 0]], mask=[[False, True]]), None, "masked"),
    ],
)
def test_what_is_no_membership_matrix_is_refused(matrix, labels, words):
    with pytest.raises(InvalidInputError, match=words):
        cpo.Memberships(matrix, labels)


def test_a_context_without_members_is_refused():
    with pytest.raises(EmptyContextError, match=r"no row belongs to context diabetic .1 of 3 .*Drop the column"):
        cpo.Memberships(MATRIX * [1, 1, 0], NAMES)


def test_other_rows_are_refused():
    with pytest.raises(InvalidInputError, match="memberships of 5 rows for 7 rows"):
        encode(cpo.Memberships(MATRIX), 7, may_overlap=True)


@pytest.mark.parametrize("takes_labels", [lambda m: cpo.pool_rare(m, 2), lambda m: cpo.effective_draws(m, [0] * 5)])
def test_where_contexts_cannot_overlap_that_is_said(takes_labels):
    with pytest.raises(InvalidInputError, match=r"contexts overlap .*every row needs one label"):
        takes_labels(cpo.Memberships(MATRIX))


def test_the_example_is_right():
    assert doctest.testmod(counterpoise.memberships).failed == 0
