"""Readers of one source of text."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

from counterpoise.torch.source_readers import shuffled_without_table


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 5000), seed=st.integers(0, 2**32))
def test_a_shuffle_without_a_table_holds_each_sample_once(size, seed):
    order = shuffled_without_table(np.arange(size), size, [seed])
    assert sorted(order.tolist()) == list(range(size))
    # Any places can be asked for, in any order.
    places = np.arange(size)[::-3]
    assert shuffled_without_table(places, size, [seed]).tolist() == order[places].tolist()


@pytest.mark.parametrize("size", [4096, 100_003])
def test_a_shuffle_without_a_table_leaves_no_trace_of_the_order(size):
    order = shuffled_without_table(np.arange(size), size, [7])
    other = shuffled_without_table(np.arange(size), size, [8])
    # Five standard errors of what a random order has.
    bound = 5.0 / np.sqrt(size)
    assert abs(np.corrcoef(np.arange(size), order)[0, 1]) < bound
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < bound
    assert abs(np.corrcoef(order, other)[0, 1]) < bound
    # In a random order one sample is followed by the next one in the file about once, and one stays in place.
    assert (np.diff(order) == 1).sum() < 8
    assert (order == np.arange(size)).sum() < 8
