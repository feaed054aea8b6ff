"""Tables that travel to other processes."""

import pickle

import numpy as np
import pyarrow as pa
import pytest

from counterpoise.judging.shared_tables import ColumnArrays, arrived, departing

NUMBERS = pa.table({"a": np.array([0.5, np.nan, 2.0]), "b": np.array([3, 1, 2])})


def test_a_table_of_numbers_travels_as_views_of_its_columns():
    sent = departing(NUMBERS)
    assert isinstance(sent, ColumnArrays)
    for name, column in sent.columns.items():
        assert np.shares_memory(column, NUMBERS[name].chunk(0).to_numpy())
    there = arrived(sent)
    assert there.schema == NUMBERS.schema
    for name in NUMBERS.column_names:
        assert np.shares_memory(there[name].chunk(0).to_numpy(), sent.columns[name])
        np.testing.assert_array_equal(there[name].to_numpy(), NUMBERS[name].to_numpy())


@pytest.mark.parametrize(
    "X",
    [
        np.eye(3),
        pa.table({"a": ["x", "y"]}),
        pa.table({"a": pa.array([1, None])}),
        pa.table({"a": np.zeros(0)}),
        pa.table([np.zeros(2), np.ones(2)], names=["a", "a"]),
    ],
    ids=["array", "words", "gaps", "no rows", "twice a name"],
)
def test_what_is_no_table_of_numbers_travels_as_it_is(X):
    assert departing(X) is X
    assert arrived(X) is X


def test_a_table_in_several_pieces_is_whole_again():
    pieces = pa.concat_tables([NUMBERS, NUMBERS])
    there = arrived(pickle.loads(pickle.dumps(departing(pieces))))
    np.testing.assert_array_equal(there["b"].to_numpy(), pieces["b"].to_numpy())
