"""Features from dates: the month, the weekday, the hour, and a trend."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.reading import cells

if TYPE_CHECKING:
    from counterpoise.tables.reading import DataFile

Times = NDArray[np.datetime64]

PARTS = ("month", "weekday", "hour", "trend")
"""What a date can become; all are categories but the trend, which is a number."""
LEAST_HOURS = 3
"""Different hours from which on the hour is a feature by itself: summer time makes two of one."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_HOURS = tuple(f"{hour:02}" for hour in range(24))
_YEAR = 365.25
"""Days of a year, on average."""
_EXAMPLE = "write dates as 2024-03-31, or 2024-03-31 14:30"

_WRITTEN = re.compile(
    r"(?P<first>\d{1,4})(?P<by>[-/.])(?P<middle>\d{1,2})(?P=by)(?P<last>\d{1,4})"
    r"(?:[T ]\s*(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d+)?)?"
    r"\s*(?P<half>[AaPp][Mm])?\s*(?:Z|UTC|[+-]\d{2}(?::?\d{2})?)?)?"
)


@dataclass(frozen=True)
class DateColumn:
    """A column of dates, and what becomes of it.

    Attributes
    ----------
    column : str
    parts : tuple of str
        Some of :data:`PARTS`.
    day_first : bool or None
        Whether text with the year last has the day before the month; None where no such text was seen.
    zone : str or None
        The time zone whose clock counts, where the column has one.
    """

    column: str
    parts: tuple[str, ...] = PARTS
    day_first: bool | None = None
    zone: str | None = None

    @classmethod
    def of(cls, words: str) -> DateColumn:
        """Return what ``--date`` asks for: ``when``, or some parts of it, ``when=month,trend``."""
        column, _, parts = words.rpartition("=")
        chosen = [part.strip() for part in parts.split(",")]
        if not column or not set(chosen) <= set(PARTS):
            return cls(words)
        return cls(column, tuple(part for part in PARTS if part in chosen))

    @property
    def names(self) -> dict[str, str]:
        """The features by their parts."""
        return {part: f"{self.column}: {part}" for part in self.parts}

    def settled(self, data: DataFile) -> DateColumn:
        """Return the same with the order of day and month, and the time zone, that some rows show."""
        column = self._column(data)
        zone = getattr(column.type, "tz", None)
        if zone is not None and self.zone is None:
            return replace(self, zone=zone)
        if cells.kind(column) != "text" or self.day_first is not None:
            return self
        words = [str(word) for word in cells.coded_labels(column, strip=True)[0][:-1]]
        found = [match for match in map(_WRITTEN.fullmatch, words) if match and len(match["last"]) > 2]
        return replace(self, day_first=self._day_first(data, found)) if found else self

    def _day_first(self, data: DataFile, found: Sequence[re.Match[str]]) -> bool:
        days, months = (any(int(match[part]) > 12 for match in found) for part in ("first", "middle"))
        if days != months:
            return days
        if not days and all(match["by"] == "." for match in found):
            # Nobody writes the month first with points.
            return True
        why = "some cells have the day first and some the month" if days else "the day cannot be told from the month"
        raise InvalidInputError(f"{self._said(data)} holds {found[0][0]!r:.60}, and {why}: {_EXAMPLE}.")

    def _said(self, data: DataFile) -> str:
        return f"column {self.column!r} of {data.path.name} (--date)"

    def _column(self, data: DataFile) -> Any:
        column = cells.plain_types(data.column(self.column))
        kind = cells.kind(column)
        if kind not in ("text", "dates") and column.null_count < len(column):
            raise InvalidInputError(f"{self._said(data)} holds {kind}, not dates; {_EXAMPLE}.")
        return column

    def moments(self, data: DataFile) -> Times:
        """Return what the clock showed in every row, NaT where there is no date."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._column(data)
        if cells.kind(column) == "text":
            return self._parsed(data, column)
        if cells.kind(column) != "dates":
            return np.full(len(column), np.datetime64("NaT", "us"))
        if getattr(column.type, "tz", None) is not None:
            own = column if self.zone is None else column.cast(pa.timestamp(column.type.unit, self.zone))
            column = pc.local_timestamp(own)
        return np.asarray(column.cast(pa.timestamp("us"), safe=False).to_numpy()).astype("M8[us]")

    def _parsed(self, data: DataFile, column: Any) -> Times:
        # Through the distinct values: many rows share a date.
        words, codes, _ = cells.coded_labels(column, strip=True)
        times = np.full(len(words), np.datetime64("NaT", "us"))
        for k, word in enumerate(words[:-1]):
            try:
                times[k] = self._moment(str(word))
            except ValueError:
                row = data.row_name(int(np.flatnonzero(codes == k)[0]))
                raise InvalidInputError(
                    f"{self._said(data)} holds {word!r:.60} in {row}, which cannot be read as a date; {_EXAMPLE}, or "
                    "leave the cell empty."
                ) from None
        return times[codes]

    def _moment(self, word: str) -> np.datetime64:
        """Return a date as it is written; the clock is that of whoever wrote it, whatever its offset."""
        found = _WRITTEN.fullmatch(word)
        if found is None:
            raise ValueError
        year, month, day = found["first"], found["middle"], found["last"]
        if len(year) < 4:
            # Two digits are no year: 01.02.03 may be anything.
            if len(day) < 4 or self.day_first is None:
                raise ValueError
            year, month, day = (day, month, year) if self.day_first else (day, year, month)
        hour, half = int(found["hour"] or 0), (found["half"] or "").lower()
        hour = hour % 12 + 12 * (half == "pm") if half else hour
        clock = f"{hour:02}:{found['minute'] or '00'}:{found['second'] or '00'}"
        return np.datetime64(f"{int(year):04}-{int(month):02}-{int(day):02}T{clock}", "us")

    def features(self, data: DataFile, only: Collection[str] | None = None) -> dict[str, Any]:
        """Return the features that are made of the dates of some rows, by name; all of them, or only some."""
        wanted = {part: name for part, name in self.names.items() if only is None or name in only}
        if not wanted:
            return {}
        # A file of new rows may write dates another way than that of the fit.
        times = self.settled(data).moments(data)
        return {name: _part(times, part) for part, name in wanted.items()}


def _part(times: Times, part: str) -> Any:
    import pyarrow as pa

    missing = np.isnat(times)
    times = np.where(missing, np.datetime64(0, "us"), times)
    days = times.astype("M8[D]")
    if part == "trend":
        # The year as a number: no first row to remember, and a slope that is per year.
        passed = (times - np.datetime64("2000-01-01", "us")) / np.timedelta64(1, "D")
        return pa.chunked_array([pa.array(np.where(missing, np.nan, 2000.0 + passed / _YEAR))])
    codes = {
        "month": times.astype("M8[M]").astype(np.int64) % 12,
        # The first of January 1970 was a Thursday.
        "weekday": (days.astype(np.int64) + 3) % 7,
        "hour": ((times - days) // np.timedelta64(1, "h")).astype(np.int64),
    }[part]
    words = pa.array({"month": _MONTHS, "weekday": _WEEKDAYS, "hour": _HOURS}[part], pa.large_string())
    return pa.chunked_array([words.take(pa.array(codes, mask=missing))])
