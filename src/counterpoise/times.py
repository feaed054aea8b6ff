"""Labels that are dates or times, as such: how text sorts is often not how time passes."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WRITTEN = re.compile(r"\s*(\d{1,4})[-/.](\d{1,2})[-/.](\d{1,4})(?:[T ]\s*(\d{1,2}):(\d{2})(?::(\d{2}))?)?\s*")

Times = NDArray[np.datetime64]


def as_times(labels: NDArray[Any]) -> Times | None:
    """Return labels as times where every one of them is a date or a time, else None.

    Text counts where it is written as ``2024-03-31`` or with the year last, ``31/3/2024`` or ``3/31/2024``, and a
    time of day may follow. With the year last, some label must tell the day from the month by being above 12.
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
    found = [_WRITTEN.fullmatch(value) for value in values]
    parts = [[int(part or 0) for part in one.groups()] for one in found if one is not None]
    if len(parts) < len(values):
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
    return np.array(times, dtype="M8[us]")
