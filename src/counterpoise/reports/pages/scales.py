"""Where numbers go on an axis, and how they are written there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import isotonic_regression

MINUS, THIN_SPACE, EN_DASH = "−", "\u202f", "–"

_HUGE = 1e300
_ROOM = 3.0
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Scale:
    """The straight line that takes ``low`` to ``start`` and ``high`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def within(self, value: float) -> float:
        """Return the value, or the end of the scale that is nearest to it."""
        return min(max(value, self.low), self.high)


def drawable(value: float | None) -> bool:
    """Return whether a number has a place on an axis; spans of the largest would overflow."""
    return value is not None and abs(value) < _HUGE


def extent(values: Iterable[float | None]) -> tuple[float, float]:
    """Return the least and the greatest of the drawable values, with room around them where they are all but equal."""
    kept = [float(value) for value in values if value is not None and drawable(value)]
    low, high = (min(kept), max(kept)) if kept else (0.0, 1.0)
    size = max(abs(low), abs(high))
    # Below this ratio labels would need more digits than anyone reads: to the eye the values are equal.
    if high - low > 1e-7 * size and high - low > 1.0 / _HUGE:
        return low, high
    return (low - 0.1 * size, high + 0.1 * size) if size > 1.0 / _HUGE else (0.0, 1.0)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers, 1, 2 or 5 times a power of ten apart, that cover a range: at least 2, at most ``most``."""
    low, high = extent((low, high))
    exponent = math.floor(math.log10((high - low) / most))
    while True:
        for digit in (1, 2, 5):
            step = _times_ten(digit, exponent)
            # An end that is a tick but for rounding does not need the next one.
            first, last = math.floor(low / step + 1e-6), math.ceil(high / step - 1e-6)
            if 1 <= last - first < most:
                return [_times_ten(digit * k, exponent) for k in range(first, last + 1)]
        exponent += 1


def _times_ten(k: int, exponent: int) -> float:
    # Of integers, so that 3 tenths is the float nearest to it and not 3 times the one nearest to a tenth.
    return float(k * 10**exponent) if exponent >= 0 else k / 10**-exponent


def labels(values: Sequence[float]) -> list[str]:
    """Return ticks in words, all with the same unit and as many decimals as tell them apart."""
    unit, suffix = _unit(max(map(abs, values), default=0.0))
    step = min((abs(b - a) for a, b in pairwise(values) if a != b), default=unit)
    decimals = min(max(0, -math.floor(math.log10(step / unit) + 1e-6)), 9)
    return [f"{_spaced(value / unit, decimals)}{suffix}" if value else "0" for value in values]


def labelled(values: Sequence[float]) -> list[tuple[float, str]]:
    """Return ticks, each with its label."""
    return list(zip(values, labels(values), strict=True))


def number(value: float, digits: int = 3) -> str:
    """Return a number written short, with so many digits of it or all those before the point."""
    if math.isnan(value):
        return EN_DASH
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if abs(value) < 1.0 / _HUGE:
        return "0"
    unit, suffix = _unit(abs(value))
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value) / unit)))
    written = _spaced(value / unit, decimals)
    return (written.rstrip("0").rstrip(".") if "." in written else written) + suffix


def fixed(value: float, decimals: int) -> str:
    """Return a number with so many decimals, zero without a sign."""
    return _spaced(round(value, decimals) + 0.0, decimals)


def _unit(size: float) -> tuple[float, str]:
    if size >= 1e12 or 0.0 < size < 1e-3:
        exponent = math.floor(math.log10(size))
        return _times_ten(1, exponent), f"×10{str(exponent).translate(_RAISED)}"
    return (1e9, f"{THIN_SPACE}bn") if size >= 1e9 else (1e6, f"{THIN_SPACE}M") if size >= 1e6 else (1.0, "")


def _spaced(value: float, decimals: int) -> str:
    """Return a number with its thousands apart; four digits, as of a year, stay together."""
    plain = f"{value:.{decimals}f}" if abs(value) < 1e4 else f"{value:,.{decimals}f}".replace(",", THIN_SPACE)
    return plain.replace("-", MINUS)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places nearest to those wanted that are a gap apart and between two ends, in the same order."""
    if not len(wanted):
        return []
    gap = min(gap, (high - low) / max(len(wanted) - 1, 1))
    order = np.argsort(wanted, kind="stable")
    steps = gap * np.arange(len(wanted))
    # A gap apart is increasing once the gaps are taken away.
    placed = isotonic_regression(np.asarray(wanted, dtype=float)[order] - steps).x
    places = np.empty(len(wanted))
    places[order] = np.clip(placed, low, high - steps[-1]) + steps
    return [float(place) for place in places]


@dataclass(frozen=True)
class Flag:
    """A label beside the top of a vertical line at ``at``: the strip from ``start`` to ``end``."""

    at: float
    start: float
    end: float


def stagger(flags: Sequence[Flag]) -> list[int]:
    """Return a row for each flag, 0 lowest, so that no label meets another or, where that can be, another's line."""
    rows: dict[int, int] = {}
    waiting = set(range(len(flags)))
    while waiting:
        # A label goes above the lines it reaches over, so those are placed first.
        k = min(waiting, key=lambda k: (sum(_reaches_over(flags[k], flags[other]) for other in waiting - {k}), -k))
        free = (
            row
            for row in range(len(flags))
            if not any(_clash(flags[k], row, flags[other], rows[other]) for other in rows)
        )
        rows[k] = next(free, max(rows.values(), default=-1) + 1)
        waiting.remove(k)
    return [rows[k] for k in range(len(flags))]


def _reaches_over(flag: Flag, other: Flag) -> bool:
    return flag.start - _ROOM <= other.at <= flag.end + _ROOM


def _clash(a: Flag, row_a: int, b: Flag, row_b: int) -> bool:
    if row_a == row_b:
        first, second = sorted([a, b], key=lambda flag: min(flag.start, flag.at))
        return min(second.start, second.at) <= max(first.end, first.at) + _ROOM
    upper, lower = (a, b) if row_a > row_b else (b, a)
    return _reaches_over(lower, upper)
