"""Charts with a row for each thing: bars, and dots side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterpoise.pages.scales import Scale, drawable, extent, labels, number, ticks
from counterpoise.pages.svg import (
    AXIS,
    CYCLE,
    GRID,
    INK,
    LINE,
    MUTED,
    SIZE,
    WIDTH,
    coordinate,
    element,
    heading,
    label,
    legible,
    picture,
)
from counterpoise.pages.words import Html, clean, fitted, width_of

MOST_ROWS = 60
_ROW = 24.0
_NAMES = 150.0
_NOTES = 90.0


@dataclass(frozen=True)
class Bar:
    """One bar, with the interval around its value where there is one, and a word beside its number."""

    name: Any
    value: float
    low: float | None = None
    high: float | None = None
    colour: str | None = None
    note: str = ""


@dataclass(frozen=True)
class DotRow:
    """One row, with a value of each series; those it lacks, or without a place (NaN, infinite), are left out."""

    name: Any
    values: Mapping[str, float]


def bar_chart(rows: Sequence[Bar], *, title: str, x_label: str, alt: str, id: str | None = None) -> Html:
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
    drawn, top = heading(title, below=4)
    numbers = [number(row.value) for row in shown]
    room = max((width_of(words, SIZE) for words in numbers), default=0.0)
    beside = max((width_of(fitted(clean(row.note), _NOTES, SIZE), SIZE) for row in shown), default=0.0)
    values = [value for row in shown for value in (row.value, row.low, row.high) if drawable(value)]
    x, axis = _axis([0.0, *values], [row.name for row in shown], WIDTH - room - beside - 18, top, len(shown))
    drawn += [*axis, *_names([row.name for row in shown], x, top)]
    for k, (row, words) in enumerate(zip(shown, numbers, strict=True)):
        middle = top + _ROW * (k + 0.5)
        drawn += [*_bar(row, x, middle), label(words, x.end + 10 + room, middle + 5, anchor="end")]
        if row.note:
            drawn.append(label(row.note, x.end + 16 + room, middle + 5, width=_NOTES, fill=MUTED))
    zero = coordinate(x(0.0))
    drawn.append(element("path", d=f"M{zero} {coordinate(top)}v{coordinate(_ROW * len(shown))}", stroke=INK))
    return _finished(title, alt, drawn, x, top, len(rows), x_label, id)


def dot_chart(
    rows: Sequence[DotRow],
    *,
    colours: Mapping[str, str] | None = None,
    title: str,
    x_label: str,
    alt: str,
    id: str | None = None,
) -> Html:
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
    id : str, optional
        Unique in the page; None derives it from the content.
    """
    shown = rows[:MOST_ROWS]
    present = dict.fromkeys(name for row in shown for name in row.values)
    colours = colours or {}
    series = [name for name in colours if name in present] + [name for name in present if name not in colours]
    looks = {name: legible(colours.get(name, CYCLE[k % len(CYCLE)])) for k, name in enumerate(series)}
    drawn, top = heading(title)
    legend, top = _legend(looks, top)
    values = [value for row in shown for value in row.values.values() if drawable(value)]
    x, axis = _axis(values, [row.name for row in shown], WIDTH - 14.0, top, len(shown))
    drawn += [*legend, *axis, *_names([row.name for row in shown], x, top)]
    for k, row in enumerate(shown):
        drawn += [*_dots(row, looks, x, top + _ROW * (k + 0.5))]
    return _finished(title, alt, drawn, x, top, len(rows), x_label, id)


def _axis(values: list[Any], names: list[Any], end: float, top: float, n_rows: int) -> tuple[Scale, list[Html]]:
    """Return the scale to the right of the names, and its grid with numbers below."""
    round_ones = ticks(*extent(values), most=5)
    start = 2 + max((width_of(fitted(clean(name), _NAMES, SIZE), SIZE) for name in names), default=0.0)
    x = Scale(round_ones[0], round_ones[-1], max(start + 8, 24.0), end)
    bottom = top + _ROW * n_rows
    drawn, free = [], 0.0
    for value, words in zip(round_ones, labels(round_ones), strict=True):
        at, half = x(value), width_of(words, SIZE) / 2
        middle = min(max(at, half), WIDTH - half)
        drawn.append(element("path", d=f"M{coordinate(at)} {coordinate(top)}V{coordinate(bottom)}", stroke=GRID))
        if middle - half >= free:
            drawn.append(label(words, middle, bottom + LINE, anchor="middle"))
            free = middle + half + 8
    return x, drawn


def _names(names: list[Any], x: Scale, top: float) -> Iterator[Html]:
    for k, name in enumerate(names):
        yield label(name, x.start - 8, top + _ROW * (k + 0.5) + 5, width=_NAMES, anchor="end")


def _bar(row: Bar, x: Scale, middle: float) -> Iterator[Html]:
    if drawable(row.value):
        start, end = sorted((x(0.0), x(row.value)))
        # A bar of nothing is still there to be seen.
        width = max(end - start, 0.5)
        colour = legible(row.colour or CYCLE[0])
        yield element("rect", class_="bar", x=start, y=middle - 7, width=width, height=14.0, fill=colour)
    if row.low is None or row.high is None or row.low != row.low or row.high != row.high:
        return
    # An end beyond the axis is drawn to its edge, and open.
    low, high = (min(max(end, x.low), x.high) for end in (row.low, row.high))
    line = f"M{coordinate(x(low))} {coordinate(middle)}H{coordinate(x(high))}"
    caps = "".join(
        f"M{coordinate(x(end))} {coordinate(middle - 4)}v8" for end in (row.low, row.high) if x.low <= end <= x.high
    )
    # On white first: the part of it that lies on the bar has to be seen as well.
    yield element("path", d=line + caps, stroke="#ffffff", stroke_width=4.0, fill="none")
    yield element("path", class_="interval", d=line + caps, stroke=INK, stroke_width=1.5, fill="none")


def _dots(row: DotRow, looks: Mapping[str, str], x: Scale, middle: float) -> Iterator[Html]:
    placed = {name: x(row.values[name]) for name in looks if drawable(row.values.get(name))}
    if not placed:
        return
    ends = f"M{coordinate(min(placed.values()))} {coordinate(middle)}H{coordinate(max(placed.values()))}"
    yield element("path", d=ends, stroke=AXIS)
    order = list(looks)
    # The hollow ones last: where two coincide, the full one is seen within.
    for name in sorted(placed, key=lambda name: order.index(name) % 2):
        told = f"{clean(name, 100)}: {number(row.values[name])}"
        yield _dot(order.index(name), looks[name], placed[name], middle, element("title", told))


_SHAPES = ("M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z", "M-6-6h12v12h-12z", "M0-6L6 0L0 6L-6 0z", "M0-8L8 6H-8z")


def _dot(k: int, colour: str, x: float, y: float, *inside: Html, class_: str = "dot") -> Html:
    """Return the k-th kind of dot: its form as well as its colour tells it apart."""
    place = f"translate({coordinate(x)} {coordinate(y)})"
    hollow = {"fill": "none", "stroke": colour, "stroke_width": 2.0} if k % 2 else {"fill": colour}
    return element("path", *inside, class_=class_, d=_SHAPES[k % len(_SHAPES)], transform=place, **hollow)


def _legend(looks: Mapping[str, str], top: float) -> tuple[list[Html], float]:
    drawn: list[Html] = []
    x, y = 10.0, top + 8
    for k, (name, colour) in enumerate(looks.items()):
        width = width_of(fitted(clean(name), 220, SIZE), SIZE)
        if x > 10.0 and x + 14 + width > WIDTH:
            x, y = 10.0, y + LINE + 2
        drawn += [_dot(k, colour, x, y, class_="key"), label(name, x + 14, y + 5, width=220)]
        x += 14 + width + 24
    return drawn, y + LINE if looks else top


def _finished(
    title: str, alt: str, drawn: list[Html], x: Scale, top: float, n_rows: int, x_label: str, id: str | None
) -> Html:
    """Return the picture, with what is written below its axis."""
    shown = min(n_rows, MOST_ROWS)
    bottom = top + _ROW * shown + 2 * LINE
    if not n_rows:
        drawn.append(label("no data", (x.start + x.end) / 2, top - 2, anchor="middle", fill=MUTED))
    if n_rows > shown:
        drawn.append(label(f"and {n_rows - shown} more", 2, bottom, fill=MUTED))
    room = x.end - 130 if n_rows > shown else x.end
    drawn.append(label(x_label, x.end, bottom, width=room, anchor="end", fill=MUTED, prose=True))
    return picture(title, alt, drawn, bottom + 8, id)
