"""Charts with a row for each thing: bars, and dots side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterpoise.reports.pages.scales import Scale, extent, labelled, number, ticks
from counterpoise.reports.pages.svg import CYCLE, LINE, SIZE, Picture, heading_height, legible, picture, spaced
from counterpoise.reports.pages.words import Html, clean, fitted, width_of

MOST_ROWS = 60
_ROW = 24.0
_NAMES = 240.0
_MOST_NAMES = 0.4
"""The part of the width that the names of rows may take at most."""
_KEYS = 220.0


@dataclass(frozen=True)
class Bar:
    """One bar, with the interval around its value where there is one."""

    name: Any
    value: float
    low: float | None = None
    high: float | None = None
    colour: str | None = None

    @property
    def has_interval(self) -> bool:
        """Whether both ends are numbers, or infinite."""
        return not any(end is None or math.isnan(end) for end in (self.low, self.high))


@dataclass(frozen=True)
class DotRow:
    """One row, with a value of each series; those it lacks, or without a place (NaN, infinite), are left out."""

    name: Any
    values: Mapping[str, float]


@dataclass(frozen=True)
class Box:
    """How numbers are spread: quantiles in increasing order around the middle half, and the mean with its interval.

    Attributes
    ----------
    name : str
    quantiles : tuple of five floats
        End of the lower whisker, lower quartile, median, upper quartile, end of the upper whisker.
    mean, low, high : float
        NaN ends where there is no interval.
    """

    name: Any
    quantiles: tuple[float, float, float, float, float]
    mean: float
    low: float
    high: float


def bar_chart(rows: Sequence[Bar], *, title: str, x_label: str, alt: str, id: str | None = None) -> Picture:
    """Draw a horizontal bar for each row, from zero.

    Parameters
    ----------
    rows : sequence of Bar
        Sixty are drawn; how many more there are is said.
    title, x_label : str
    alt : str
        What the picture shows, for those who cannot see it.
    id : str, optional
        Unique in the page; None derives it from the content.
    """
    shown = rows[:MOST_ROWS]
    room = max((width_of(number(row.value), SIZE) for row in shown), default=0.0)
    values = [0.0, *(value for row in shown for value in (row.value, row.low, row.high))]
    words: dict[str, Any] = {"title": title, "alt": alt, "id": id, "x_label": x_label}

    def drawn(width: int, end: str) -> Html:
        place = {"stop": width - room - 18, "top": heading_height(title, width) + 4}
        return _picture("reports/pages/bars.svg", rows, values, width, **place, **words, end=end, room=room)

    return Picture.at_both_widths(drawn)


def dot_chart(
    rows: Sequence[DotRow],
    *,
    colours: Mapping[str, str] | None = None,
    title: str,
    x_label: str,
    alt: str,
    reaches: Sequence[float] = (),
    id: str | None = None,
) -> Picture:
    """Draw, for each row, a dot of each series on one horizontal line, with the series named on top.

    Parameters
    ----------
    rows : sequence of DotRow
        Sixty are drawn; how many more there are is said.
    colours : mapping from series to ``#rrggbb``, optional
        Also their order. Series without one follow, in colours of the cycle.
    title, x_label : str
    alt : str
        What the picture shows, for those who cannot see it.
    reaches : sequence of float
        Numbers that have a place on the axis whether or not a dot is there.
    id : str, optional
        Unique in the page; None derives it from the content.
    """
    present = dict.fromkeys(name for row in rows[:MOST_ROWS] for name in row.values)
    colours = colours or {}
    names = [name for name in colours if name in present] + [name for name in present if name not in colours]
    coloured = {name: colours.get(name, CYCLE[k % len(CYCLE)]) for k, name in enumerate(names)}
    values = [*reaches, *(value for row in rows[:MOST_ROWS] for value in row.values.values())]
    words: dict[str, Any] = {"title": title, "alt": alt, "id": id, "x_label": x_label}

    def drawn(width: int, end: str) -> Html:
        series, top = _legend(coloured, title, width)
        place = {"stop": width - 14.0, "top": top}
        own: dict[str, Any] = {"end": end, "series": series, "keys": _KEYS}
        return _picture("reports/pages/dots.svg", rows, values, width, **place, **words, **own)

    return Picture.at_both_widths(drawn)


def box_chart(
    rows: Sequence[Box], *, colour: str, title: str, x_label: str, alt: str, id: str | None = None
) -> Picture:
    """Draw a box over the middle half of each row's numbers, whiskers, and a dot for the mean with its interval.

    An interval that reaches beyond boxes and whiskers is drawn to the edge.

    Parameters
    ----------
    rows : sequence of Box
        Sixty are drawn; how many more there are is said.
    colour : str
        Of means, ``#rrggbb``.
    title, x_label : str
    alt : str
        What the picture shows, for those who cannot see it.
    id : str, optional
        Unique in the page; None derives it from the content.
    """
    values = [0.0, *(value for row in rows[:MOST_ROWS] for value in (*row.quantiles, row.mean))]
    words: dict[str, Any] = {"title": title, "alt": alt, "id": id, "x_label": x_label}

    def drawn(width: int, end: str) -> Html:
        place = {"stop": width - 14.0, "top": heading_height(title, width) + 4}
        own: dict[str, Any] = {"end": end, "colour": legible(colour)}
        return _picture("reports/pages/boxes.svg", rows, values, width, **place, **words, **own)

    return Picture.at_both_widths(drawn)


_SHAPES = (
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "M-6-6h12v12h-12z",
    "M0-6L6 0L0 6L-6 0z",
    "M0-8L8 6H-8z",
    "M0 8L-7-5H7z",
)


@dataclass(frozen=True)
class _Series:
    """A kind of dot: its form as well as its colour tells it apart. And where it stands in the legend."""

    name: str
    colour: str
    shape: str
    hollow: bool
    x: float
    y: float


def _legend(colours: Mapping[str, str], title: str, width: int) -> tuple[list[_Series], float]:
    """Return the series in lines below the title, and where the rows begin."""
    series: list[_Series] = []
    top = heading_height(title, width)
    x, y = 10.0, top + 8
    for k, (name, colour) in enumerate(colours.items()):
        taken = width_of(fitted(clean(name), _KEYS, SIZE), SIZE)
        if x > 10.0 and x + 14 + taken > width:
            x, y = 10.0, y + LINE + 2
        series.append(_Series(name, legible(colour), _SHAPES[k % len(_SHAPES)], k % 2 == 1, x, y))
        x += 14 + taken + 24
    return series, y + LINE if series else top


def _picture(
    template: str,
    rows: Sequence[Bar | DotRow | Box],
    values: list[Any],
    width: int,
    *,
    stop: float,
    top: float,
    **given: Any,
) -> Html:
    """Return a picture of the first rows, with their names to the left of an axis that ends at round numbers.

    ``stop`` is where the axis ends, and ``top`` where the rows begin.
    """
    shown, names = rows[:MOST_ROWS], min(_NAMES, _MOST_NAMES * width)
    round_ones = ticks(*extent(values), most=5)
    start = 2 + max((width_of(fitted(clean(row.name), names, SIZE), SIZE) for row in shown), default=0.0)
    x = Scale(round_ones[0], round_ones[-1], max(start + 8, 24.0), stop)
    bottom = top + _ROW * len(shown)
    return picture(
        template,
        width=width,
        height=bottom + 2 * LINE + 8,
        rows=[(row, top + _ROW * (k + 0.5)) for k, row in enumerate(shown)],
        more=len(rows) - len(shown),
        x=x,
        ticks=spaced(labelled(round_ones), x, width),
        top=top,
        bottom=bottom,
        names=names,
        **given,
    )
