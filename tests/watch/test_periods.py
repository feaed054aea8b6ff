"""A history of any length: bounded, nothing lost, and as fine long ago as now."""

import numpy as np
import pytest

from counterpoise.watch.periods import Period, Periods


def period(k, n_contexts):
    rows = np.arange(n_contexts) + k % 3.0
    return Period(k, k, k, 1, rows, np.zeros(n_contexts), np.zeros(n_contexts), k % 2, np.array([1.0, 1.0, float(k)]))


@pytest.mark.parametrize("n_contexts", [2, 35, 400])
def test_periods_are_of_one_length(n_contexts):
    periods, n = Periods(), 2500
    for k in range(n):
        periods = periods.plus(period(k, n_contexts))
        *sizes, last = (one.updates for one in periods.all)
        assert len(set(sizes)) <= 1
        assert last <= max([*sizes, last])
    assert len(periods.all) <= min(400, max(30, 4000 // n_contexts))
    assert sum(one.updates for one in periods.all) == n
    np.testing.assert_array_equal(
        sum(one.rows for one in periods.all), sum(period(k, n_contexts).rows for k in range(n))
    )
    firsts = [one.first for one in periods.all]
    assert firsts == np.cumsum([0, *(one.updates for one in periods.all)])[:-1].tolist()
    assert [one.time for one in periods.all] == firsts
    assert periods.all[-1].until == n - 1
    assert periods.all[-1].e_values[2] == n - 1
