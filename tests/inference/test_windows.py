"""Windows that expand with time."""

import datetime

import numpy as np
import pytest

from counterpoise.exceptions import InvalidInputError
from counterpoise.inference.windows import expanding_windows

DAYS = np.arange("2024-01-01", "2024-04-10", dtype="M8[D]")


@pytest.mark.parametrize("seed", range(5))
def test_windows_expand_and_blocks_follow_them(seed):
    rng = np.random.default_rng(seed)
    times = rng.integers(0, 60, 500)
    windows = expanding_windows(times, cuts=4)
    assert len(windows) == 4
    for k, (train, test) in enumerate(windows):
        assert times[train].max() < times[test].min()
        assert len(train) + len(test) + sum(len(later) for _, later in windows[k + 1 :]) == 500
    tested = np.concatenate([test for _, test in windows])
    assert len(np.unique(tested)) == len(tested)


@pytest.mark.parametrize("seed", range(5))
def test_blocks_are_about_equal_and_the_first_window_holds_as_many_rows(seed):
    rng = np.random.default_rng(seed)
    times = rng.integers(0, 100, 1000)
    windows = expanding_windows(times, cuts=4)
    sizes = [len(test) for _, test in windows]
    assert max(sizes) - min(sizes) <= 2 * np.bincount(times).max()
    assert len(windows[0][0]) >= np.mean(sizes)


def test_rows_of_one_time_stay_together_even_if_one_time_has_most_rows():
    times = np.repeat([1, 2, 3, 4], [5, 900, 5, 5])
    windows = expanding_windows(times, cuts=3)
    assert [np.unique(times[test]).tolist() for _, test in windows] == [[2], [3], [4]]


def test_the_order_of_rows_does_not_matter():
    order = np.random.default_rng(0).permutation(len(DAYS))
    for (train, test), (shuffled, later) in zip(expanding_windows(DAYS), expanding_windows(DAYS[order]), strict=True):
        assert np.array_equal(np.sort(order[shuffled]), train)
        assert np.array_equal(np.sort(order[later]), test)


@pytest.mark.parametrize("times", [DAYS, DAYS.astype(str), DAYS.astype(object), DAYS.astype("M8[ns]")])
@pytest.mark.parametrize("gap", [7, 7.0, np.timedelta64(7, "D"), datetime.timedelta(days=7)])
def test_a_gap_leaves_out_the_days_before_a_block(times, gap):
    for (train, test), (whole, same) in zip(expanding_windows(times, gap=gap), expanding_windows(times), strict=True):
        assert np.array_equal(test, same)
        assert len(whole) - len(train) == 7
        assert DAYS[test].min() - DAYS[train].max() == np.timedelta64(8, "D")


def test_numbers_may_be_objects():
    train, test = expanding_windows(np.arange(9).astype(object), cuts=1)[0]
    assert (len(train), len(test)) == (5, 4)


def test_a_gap_between_numbers_is_in_their_units():
    (train, test), *_ = expanding_windows(np.arange(100) / 10.0, gap=0.5)
    assert test[0] - train[-1] == 6


@pytest.mark.parametrize(
    ("times", "given", "words"),
    [
        ([1, 1, 1], {}, "all rows have the same time"),
        ([1, 2, 3], {}, "3 different times, too few for 4 cuts.*cuts=2"),
        (range(10), {"cuts": 0}, "cuts is 0"),
        (range(10), {"cuts": True}, "cuts is True"),
        (range(10), {"gap": 5}, "leaves no rows to train on"),
        (range(10), {"gap": -1}, "gap is -1"),
        (range(10), {"gap": "soon"}, "gap is 'soon'"),
        (range(10), {"gap": np.timedelta64(1, "D")}, "times are numbers"),
        ([1.0, np.nan, 2.0], {"cuts": 1}, "row 1 has no time"),
        (np.array(["2024-01-01", "NaT"], dtype="M8[D]"), {"cuts": 1}, "row 1 has no time"),
        (["now", "then"], {"cuts": 1}, "numbers or dates.*'now'"),
        ([[1, 2], [3, 4]], {"cuts": 1}, "shape"),
        ([], {}, "shape"),
    ],
)
def test_what_cannot_be_cut_is_named(times, given, words):
    with pytest.raises(InvalidInputError, match=words):
        expanding_windows(list(times) if isinstance(times, range) else times, **given)
