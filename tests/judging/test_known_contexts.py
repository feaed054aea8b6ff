"""Contexts that are known in advance."""

import numpy as np
import pytest

from counterpoise.judging.known_contexts import in_calendar_order, why_known

UNEVEN = [50, 70, 90, 20, 130, 45, 61]


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        (["MON", "TUE", "SUN"], ""),
        (["Monday", "friday", "Saturday"], "day"),
        (["Jan", "FEB", "may"], "when"),
        (["Q1", "Q2", "Q4"], "part"),
        (["spring", "Winter"], "season"),
        (["weekday", "weekend"], "kind"),
        ([0, 1, 6], "weekday"),
        ([1, 7, 3], "day_of_week"),
        (["1", "7", "3"], "DayOfWeek"),
        ([1.0, 12.0], "month"),
        ([0, 23, 5], "start hour"),
        ([("Mon", 3), ("Tue", 3), ("Mon", 5)], "weekday x hour"),
    ],
)
def test_calendars_are_known(labels, name):
    words = why_known(labels, UNEVEN[: len(labels)], name)
    assert words == f"{name or 'the context'} is a calendar: it is known when predicting"


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ([0, 1, 6], "store"),
        ([0, 1, 6], ""),
        ([0, 1, 24], "hour"),
        ([1, 2, 13], "month"),
        (["sun", "rain"], "weather"),
        (["sun"], "weather"),
        (["north", "south"], "weekday"),
        ([("Mon", "north"), ("Tue", "south")], "weekday x region"),
        ([1, 2, 3], "hours_worked"),
        ([1, 2, 3], "headquarters"),
    ],
)
def test_other_contexts_are_not(labels, name):
    assert why_known(labels, UNEVEN[: len(labels)], name) is None


def test_columns_known_in_advance_are_said():
    assert why_known(["a", "b"], [30, 90], "store", ["store"], when="ordering") == (
        "store is among the columns that are known when ordering"
    )
    crossed = [("a", 1), ("b", 2)]
    assert why_known(crossed, [30, 90], "store x rain", ["store"]) is None
    assert "are among" in why_known(crossed, [30, 90], "store x rain", ["rain", "store"])


def test_a_balanced_design_looks_chosen():
    assert "looks chosen" in why_known(list("abcd"), [100, 100, 101, 100])
    assert why_known(list("abcd"), [10, 10, 10, 10]) is None
    assert why_known(["a", "b"], [100, 100]) is None


def test_drawn_mixes_are_hardly_ever_taken_for_chosen():
    rng = np.random.default_rng(0)
    labels = np.array(list("abcdefgh"))
    taken = [why_known(labels, rng.multinomial(800, np.full(8, 0.125))) is not None for _ in range(2000)]
    assert np.mean(taken) < 0.004


@pytest.mark.parametrize(
    ("labels", "ordered"),
    [
        (["Fri", "Mon", "Thurs"], ["Mon", "Thurs", "Fri"]),
        (["april", "AUG", "Feb"], ["Feb", "april", "AUG"]),
        (["winter", "autumn", "spring"], ["spring", "autumn", "winter"]),
        (["wet", "dry"], ["wet", "dry"]),
        ([3, 1], [3, 1]),
    ],
)
def test_calendars_are_put_in_order(labels, ordered):
    assert in_calendar_order(labels) == ordered
