"""Windows that expand with time: learn from everything before a cut, judge on the block of rows after it."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.times import as_times
from counterpoise.validation import unwrapped

Rows = NDArray[np.intp]


def expanding_windows(times: Any, cuts: int = 4, gap: Any = None) -> list[tuple[Rows, Rows]]:
    """Split rows by time into expanding training windows, each with the block of rows that follows it.

    Rows of one time are never split. Blocks hold about equal numbers of rows, and the first training window at least
    as many as an average block.

    Parameters
    ----------
    times : array of shape (n_samples,)
        Numbers, dates (``datetime64`` or ``datetime``), or text that is written as dates.
    cuts : int
        How many blocks are judged.
    gap : number or timedelta, optional
        Rows this close before a block, and closer, are not trained on. In the units of ``times``; a number counts days
        where times are dates.

    Returns
    -------
    list of (train, test)
        Indices of rows, in ascending order; the earliest cut comes first.
    """
    if isinstance(cuts, bool) or not isinstance(cuts, (int, np.integer)) or cuts < 1:
        raise InvalidInputError(f"cuts is {cuts!r:.60}; pass how many times to cut, a whole number of 1 or more.")
    moments = moments_of(times)
    distinct, place, counts = np.unique(moments, return_inverse=True, return_counts=True)
    if len(distinct) < cuts + 1:
        raise InvalidInputError(
            f"the rows have {_several(len(distinct), 'different time')}, too few for {_several(int(cuts), 'cut')}: "
            f"every block, and the window before the first, needs a time of its own. Pass cuts={len(distinct) - 1} or "
            "fewer, or a finer time."
            if len(distinct) > 1
            else f"all rows have the same time ({distinct[0]}), so none is later than another. Pass a finer time."
        )
    starts = _starts(np.cumsum(counts), int(cuts))
    distance = _distance(gap, moments)
    windows = []
    for start, end in zip(starts, [*starts[1:], len(distinct)], strict=True):
        before = moments < distinct[start] - distance
        if not before.any():
            raise InvalidInputError(
                f"a gap of {gap} leaves no rows to train on before {distinct[start]}: the first row is of "
                f"{distinct[0]}. Pass a smaller gap, or fewer cuts (now {cuts})."
            )
        windows.append((np.flatnonzero(before), np.flatnonzero((place >= start) & (place < end))))
    return windows


def moments_of(times: Any) -> NDArray[Any]:
    """Return times as numbers or ``datetime64``, or say why they are not."""
    given = np.asarray(unwrapped(times))
    if given.dtype == object and all(isinstance(one, (int, float)) for one in given.ravel().tolist()):
        given = given.astype(np.float64)
    if given.ndim != 1 or len(given) == 0:
        raise InvalidInputError(f"times have shape {given.shape}; pass one time for each row.")
    if given.dtype.kind == "M":
        moments: NDArray[Any] = given
    elif given.dtype.kind in "iuf":
        moments = given.astype(np.float64)
    else:
        labels, codes = _distinct(given)
        found = as_times(labels)
        if found is None:
            raise InvalidInputError(
                f"times must be numbers or dates, but the first is {given[0]!r:.60}. Write dates as 2024-03-31."
            )
        moments = found[codes]
    missing = ~np.isfinite(moments)
    if missing.any():
        raise InvalidInputError(
            f"row {int(np.flatnonzero(missing)[0])} has no time ({int(missing.sum())} such rows). Drop them, or fill "
            "their times."
        )
    return moments


def _distinct(given: NDArray[Any]) -> tuple[NDArray[Any], Rows]:
    """Return distinct labels and the place of each row among them; they need not be comparable."""
    place: dict[Any, int] = {}
    codes = np.array([place.setdefault(value, len(place)) for value in given.tolist()], dtype=np.intp)
    labels = np.empty(len(place), dtype=object)
    labels[:] = list(place)
    return labels, codes


def _starts(ends: NDArray[np.intp], cuts: int) -> list[int]:
    """Return the place, among distinct times, at which each block starts.

    Parameters
    ----------
    ends : ndarray
        Rows up to and with each distinct time.
    """
    n_times, n_rows = len(ends), int(ends[-1])
    # Enough times are left for the blocks.
    first = min(int(np.searchsorted(ends, n_rows / (cuts + 1) - 1e-9)) + 1, n_times - cuts)
    starts = [first]
    for k in range(1, cuts):
        done = int(ends[starts[-1] - 1])
        wanted = done + (n_rows - done) / (cuts - k + 1)
        after = int(np.searchsorted(ends, wanted))
        # The end of a time that comes closest.
        nearer = after + 1 if abs(ends[after] - wanted) <= abs(ends[after - 1] - wanted) else after
        starts.append(min(max(nearer, starts[-1] + 1), n_times - (cuts - k)))
    return starts


def _distance(gap: Any, moments: NDArray[Any]) -> Any:
    """Return the gap as what can be taken from a time."""
    dates = moments.dtype.kind == "M"
    duration = isinstance(gap, (datetime.timedelta, np.timedelta64))
    if gap is None:
        return np.timedelta64(0, "us") if dates else 0.0
    if duration and not dates:
        raise InvalidInputError(f"gap is a duration ({gap}), but times are numbers. Pass a number in their units.")
    try:
        amount = gap / np.timedelta64(1, "us") if duration else float(gap) * (8.64e10 if dates else 1.0)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"gap is {gap!r:.60}; pass a number, or a timedelta where times are dates.") from error
    if isinstance(gap, bool) or not 0 <= amount < 2**63:
        raise InvalidInputError(f"gap is {gap!r:.60}; pass 0 or more, and less than the times span.")
    return np.timedelta64(round(amount), "us") if dates else amount


def _several(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
