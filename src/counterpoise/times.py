"""Labels that are dates or times, as such: how text sorts is often not how time passes."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WRITTEN = re.compile(
    r"\s*(\d{1,4})[-/.](\d{1,2})[-/.](\d{1,4})"
    r"(?:[T ]\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)?\s*(Z|[+-]\d{2}:?\d{2})?)?\s*"
)
_MONTH = re.compile(r"\s*(\d{4})[-/](\d{2})\s*")

Times = NDArray[np.datetime64]


def as_times(labels: NDArray[Any]) -> Times | None:
    """Return labels as times where every one of them is a date or a time, else None.

    Text counts where it is written as ``2024-03-31`` or with the year last, ``31/3/2024`` or ``3/31/2024``, and a
    time of day may follow, with its zone or without; or as a month, ``2024-03``. With the year last, some label must
    tell the day from the month by being above 12. Times with a zone are compared in universal time; among them, none
    may lack one.
    """
    if labels.dtype.kind == "M":
        return labels.astype("M8[us]")
    values = labels.tolist()
    if not values:
        return None
    if all(isinstance(value, datetime.date) for value in values):
        return _instants(values)
    return _written(values) if all(isinstance(value, str) for value in values) else None


def _instants(values: list[datetime.date]) -> Times | None:
    aware = {getattr(value, "tzinfo", None) is not None for value in values}
    if aware == {True}:
        utc = datetime.UTC
        return np.array([value.astimezone(utc).replace(tzinfo=None) for value in values], dtype="M8[us]")  # type: ignore[attr-defined]
    # A clock with a zone and one without cannot be compared.
    return np.array(values, dtype="M8[us]") if aware == {False} else None


def _written(values: list[str]) -> Times | None:
    months = [_MONTH.fullmatch(value) for value in values]
    if all(months):
        values = [f"{one[1]}-{one[2]}-01" for one in months if one is not None]
    found = [_WRITTEN.fullmatch(value) for value in values]
    parts = [[int(part or 0) for part in one.groups()[:6]] for one in found if one is not None]
    zones = [_offset(one[7]) for one in found if one is not None]
    if len(parts) < len(values) or len({zone is None for zone in zones}) > 1:
        return None
    first, middle, last = (np.array([part[k] for part in parts]) for k in range(3))
    if (first > 31).all():
        dates = zip(first, middle, last, strict=True)
    elif (last > 31).all() and (first > 12).any() != (middle > 12).any():
        day_first = bool((first > 12).any())
        dates = zip(last, *((middle, first) if day_first else (first, middle)), strict=True)
    else:
        return None
    try:
        times = [
            datetime.datetime(int(year), int(month), int(day), part[3], part[4], part[5])
            for (year, month, day), part in zip(dates, parts, strict=True)
        ]
    except ValueError:
        return None
    offsets = np.array([zone or 0 for zone in zones], dtype="m8[m]")
    return np.array(times, dtype="M8[us]") - offsets


def _offset(zone: str | None) -> int | None:
    """Return by how many minutes a zone is ahead of universal time; None where there is none."""
    if zone is None or zone == "Z":
        return None if zone is None else 0
    minutes = 60 * int(zone[1:3]) + int(zone[-2:])
    return minutes if zone[0] == "+" else -minutes
