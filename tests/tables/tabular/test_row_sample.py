"""A sample of a table that passes by is uniform, and of the size that was asked for."""

import numpy as np
import pyarrow as pa

from counterpoise.tables.tabular.row_sample import RowSample


def drawn(pieces, most):
    sample = RowSample(most)
    for piece in pieces:
        sample.look(pa.table({"k": piece}))
    return sample.rows["k"].to_numpy()


def test_all_rows_are_kept_in_order_where_they_are_few():
    np.testing.assert_array_equal(drawn([range(5), range(5, 9)], 20), np.arange(9))


def test_the_sample_is_the_same_however_the_table_is_cut():
    whole = drawn([range(5000)], 300)
    assert len(whole) == 300
    assert (np.diff(whole) > 0).all()
    for n in (7, 299, 301, 4999):
        np.testing.assert_array_equal(drawn([range(k, min(k + n, 5000)) for k in range(0, 5000, n)], 300), whole)


def test_rows_are_drawn_alike_wherever_they_are():
    sample = drawn([range(k, k + 1000) for k in range(0, 100_000, 1000)], 10_000)
    tenths = np.bincount(sample // 10_000, minlength=10)
    # Hypergeometric counts of 1000 have a standard deviation of about 28.
    assert np.abs(tenths - 1000).max() < 130
