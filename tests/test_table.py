"""A table is a mapping of columns that any library of data frames can take over."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

from counterpoise.exceptions import InvalidInputError
from counterpoise.table import Table

CROSSED = np.empty(3, dtype=object)
CROSSED[:] = [("north", 1), ("north", 2), ("south", 1)]

TABLES = {
    "plain": Table.of(context=["a", "b", "a"], n=[3, 4, 5], risk=[0.5, 0.123456, np.nan], seen=[True, False, True]),
    "crossed": Table.of("two columns", context=CROSSED, n=[1, 2, 3]),
    "mixed": Table.of(context=np.array([1, "a", None], dtype=object), n=[1, 2, 3]),
    "no rows": Table.of(context=np.array([], dtype=str), n=np.array([], dtype=int)),
    "no columns": Table({}),
}

every_table = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())


@every_table
def test_it_is_a_mapping_from_names_to_arrays(table):
    assert list(table) == list(table.columns) == list(table.keys())
    assert len(table) == len(table.columns)
    for name, column in table.items():
        assert table[name] is column
        assert name in table
        assert column.shape == (table.n_rows,)
    assert "no such column" not in table


def test_a_missing_column_is_named_with_those_there_are():
    with pytest.raises(KeyError, match=r"'risks'.*context, n, risk, seen"):
        TABLES["plain"]["risks"]


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(InvalidInputError, match=r"length.*2, 3"):
        Table.of(a=[1, 2], b=[1, 2, 3])


@every_table
def test_rows_are_plain_values_in_order(table):
    rows = list(table.rows())
    assert len(rows) == table.n_rows
    for k, row in enumerate(rows):
        assert list(row) == list(table)
        for name, value in row.items():
            assert not isinstance(value, np.generic)
            np.testing.assert_equal(value, table[name][k])


def test_where_keeps_the_rows_with_all_of_the_values_and_the_note():
    table = TABLES["plain"]
    assert table.where(context="a")["n"].tolist() == [3, 5]
    assert table.where(context="a", seen=True, n=5)["n"].tolist() == [5]
    assert table.where(context="z").n_rows == 0
    assert table.where()["n"].tolist() == [3, 4, 5]
    assert TABLES["crossed"].where(context=("north", 2)).note == "two columns"
    assert TABLES["crossed"].where(context=("north", 2))["n"].tolist() == [2]
    assert TABLES["mixed"].where(context=None)["n"].tolist() == [3]
    with pytest.raises(KeyError, match="risks"):
        table.where(risks=1.0)


@every_table
def test_pandas_and_polars_frames_hold_the_same_values(table):
    pandas, polars = table.to_pandas(), table.to_polars()
    assert isinstance(pandas, pd.DataFrame)
    assert isinstance(polars, pl.DataFrame)
    assert list(pandas.columns) == list(polars.columns) == list(table)
    assert len(pandas) == polars.height == table.n_rows


def test_frames_keep_numbers_as_numbers():
    table = TABLES["plain"]
    assert table.to_pandas()["risk"].dtype == np.float64
    assert table.to_pandas()["n"].dtype.kind == "i"
    assert table.to_polars().schema["risk"] == pl.Float64
    assert table.to_polars().schema["seen"] == pl.Boolean
    assert table.to_pandas()["risk"].iloc[1] == table.to_polars()["risk"][1] == 0.123456


@every_table
def test_it_prints_a_line_per_row_under_a_line_of_names_and_the_note(table):
    lines = repr(table).split("\n")
    assert lines[0].split() == list(table)
    assert len(lines) == 1 + table.n_rows + bool(table.note)
    if table.note:
        assert lines[-1] == table.note


def test_it_prints_numbers_short_and_to_the_right():
    lines = repr(Table.of(name=["a", "long"], x=[0.123456789, 12.0])).split("\n")
    assert lines == ["name       x", "a     0.1235", "long      12"]


def test_html_is_escaped():
    page = Table.of("a < b & c", context=["<script>"], **{"excess[<i>]": [1.0]})._repr_html_()
    assert "<script>" not in page
    assert "<i>" not in page
    assert "&lt;script&gt;" in page
    assert "a &lt; b &amp; c" in page


def test_it_cannot_be_changed_and_can_be_kept():
    table = TABLES["plain"]
    with pytest.raises(AttributeError):
        table.note = "other"
    copy = pickle.loads(pickle.dumps(table))
    assert repr(copy) == repr(table)
