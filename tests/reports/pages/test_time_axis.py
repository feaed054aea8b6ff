"""Times on an axis: at their distances, with ticks that are round and few."""

import datetime

import numpy as np
import pytest

from counterpoise.reports.pages.time_axis import time_axis


def days(first, n, step=1):
    return [first + datetime.timedelta(k * step) for k in range(n)]


@pytest.mark.parametrize("n", [1, 2, 3, 10, 20, 60, 100, 400, 1500, 9000])
def test_ticks_of_dates_are_few_and_within(n):
    places, ticks = time_axis(days(datetime.date(2012, 1, 3), n))
    assert 1 <= len(ticks) <= 6
    at = [place for place, _ in ticks]
    assert at == sorted(at)
    assert places.min() <= at[0]
    assert at[-1] <= places.max()
    assert len({words for _, words in ticks}) == len(ticks)


def test_dates_are_as_far_apart_as_they_are():
    given = [datetime.date(2012, 1, 1), datetime.date(2012, 1, 3), datetime.date(2012, 3, 1)]
    places, _ = time_axis(given)
    np.testing.assert_array_equal(np.diff(places), [2.0, 58.0])
    written, _ = time_axis([one.isoformat() for one in given])
    np.testing.assert_array_equal(written, places)


def test_hours_of_a_day_are_named():
    _, ticks = time_axis([datetime.datetime(2012, 1, 1, hour) for hour in range(24)])
    assert [words for _, words in ticks] == ["2012-01-01", "06:00", "12:00", "18:00"]


def test_months_and_years_are_named():
    assert [words for _, words in time_axis(days(datetime.date(2012, 1, 1), 366))[1]][:2] == ["2012-01", "2012-03"]
    assert time_axis(days(datetime.date(2002, 1, 1), 4000))[1][0][1] == "2002-01"


def test_numbers_are_where_they_are():
    places, ticks = time_axis([1, 2, 9])
    np.testing.assert_array_equal(places, [1.0, 2.0, 9.0])
    assert all(1.0 <= place <= 9.0 for place, _ in ticks)


def test_words_are_in_their_order():
    places, ticks = time_axis(["first week", "second week", "third week"])
    np.testing.assert_array_equal(places, [0.0, 1.0, 2.0])
    assert ticks == [(0.0, "first week"), (2.0, "third week")]


def test_nothing_has_no_ticks():
    places, ticks = time_axis([])
    assert len(places) == len(ticks) == 0
