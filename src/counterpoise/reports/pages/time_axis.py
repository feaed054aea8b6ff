"""Labels of times on an axis: dates and numbers at their distances, anything else in its order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import objects
from counterpoise.reports.pages.scales import labelled, ticks
from counterpoise.times import as_times

Array = NDArray[np.float64]
Unit = Literal["m", "D", "M"]

_MOST = 6
"""Ticks of an axis of dates."""

_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200)
_DAYS = (1, 2, 7, 14)
_MINUTES = (1, 5, 15, 30, 60, 180, 360, 720)


def time_axis(labels: Sequence[Any]) -> tuple[Array, list[tuple[float, str]]]:
    """Return where labels of times are on an axis, and its ticks.

    Parameters
    ----------
    labels : sequence of dates, times, numbers or text
        Where they are not all dates, or all numbers, they are placed one by one in their order, and the first and the
        last are named.
    """
    times = as_times(objects(list(labels))) if len(labels) else None
    if times is not None:
        days = (times - np.datetime64("1970-01-01", "us")) / np.timedelta64(1, "D")
        are_days = bool((times.astype("M8[D]") == times).all())
        return days.astype(np.float64), _dated(times.min(), times.max(), are_days)
    if len(labels) and all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in labels):
        values = np.asarray(labels, dtype=np.float64)
        marks = labelled(ticks(float(values.min()), float(values.max())))
        return values, [(at, words) for at, words in marks if values.min() <= at <= values.max()]
    named = {0: str(labels[0]), len(labels) - 1: str(labels[-1])} if len(labels) else {}
    return np.arange(len(labels), dtype=np.float64), [(float(k), words) for k, words in named.items()]


def _dated(first: np.datetime64, last: np.datetime64, are_days: bool) -> list[tuple[float, str]]:
    """Return round dates, or times of a day, between two."""
    units: tuple[tuple[Unit, tuple[int, ...]], ...] = (
        ("m", () if are_days else _MINUTES),
        ("D", _DAYS),
        ("M", _MONTHS),
    )
    for unit, steps in units:
        start, stop = first.astype(f"M8[{unit}]"), last.astype(f"M8[{unit}]")
        span = int((stop - start).astype(np.int64))
        # Counted from a round one: midnight, the first day, or January.
        base = {"m": start.astype("M8[D]"), "D": start, "M": np.datetime64("1900-01")}[unit].astype(f"M8[{unit}]")
        for step in (step for step in steps if span < 2 * _MOST * step):
            offset = int((start - base).astype(np.int64)) // step * step
            begin, end = base + np.timedelta64(offset, unit), stop + np.timedelta64(1, unit)
            marks: NDArray[Any] = np.arange(begin, end, np.timedelta64(step, unit))
            marks = marks[(marks.astype("M8[us]") >= first) & (marks.astype("M8[us]") <= last)]
            if len(marks) <= _MOST and (len(marks) > 1 or first == last):
                return [(_place(one), _written(one, unit)) for one in marks]
    return [(_place(one), str(one.astype("M8[D]"))) for one in (first, last)]


def _place(time: np.datetime64) -> float:
    return float((time.astype("M8[us]") - np.datetime64("1970-01-01", "us")) / np.timedelta64(1, "D"))


def _written(time: np.datetime64, unit: Unit) -> str:
    if unit == "m":
        # At midnight the day says more.
        is_midnight = time.astype("M8[D]").astype("M8[m]") == time
        return str(time.astype("M8[D]")) if is_midnight else str(time)[11:16]
    return str(time.astype(f"M8[{unit}]"))
