"""Charts of lines over a common axis."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from counterpoise.exceptions import InvalidInputError
from counterpoise.pages.scales import Flag, Scale, drawable, extent, labels, spread, stagger, ticks
from counterpoise.pages.svg import (
    AXIS,
    CYCLE,
    DASHES,
    FAINT,
    GRID,
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

_HEIGHT = 230.0
_LABELLED = 10
_DASHED = "5 4"
_NAMES = 130.0

NAMED = 8
"""Lines that stand out where there are too many to name them all."""


@dataclass(frozen=True, eq=False)
class Line:
    """Points joined in order; those without a place (NaN, infinite) break it.

    Parameters
    ----------
    name : str
    x, y : sequence of float
    colour : str, optional
        ``#rrggbb``; None takes the next one of the cycle, or grey for a faint line.
    faint : bool
        Thin, and without a name where there are many.
    dashed : bool
    """

    name: Any
    x: Sequence[float]
    y: Sequence[float]
    colour: str | None = None
    faint: bool = False
    dashed: bool = False


def lines_of(names: Sequence[Any], x: Sequence[float], columns: Any, prominent: Collection[int]) -> list[Line]:
    """Return a line for each column; where there are too many to name them all, only the prominent ones stand out."""
    many = len(names) > _LABELLED
    return [Line(name, x, columns[:, k], faint=many and k not in prominent) for k, name in enumerate(names)]


@dataclass(frozen=True)
class Mark:
    """A vertical line across the plot, with its label above."""

    at: float
    label: Any
    colour: str
    dashed: bool = False


@dataclass(frozen=True)
class _Curve:
    """A line, and how it is drawn."""

    line: Line
    colour: str
    dash: str | None

    def runs(self) -> Iterator[list[tuple[float, float]]]:
        """Yield the points between breaks."""
        run: list[tuple[float, float]] = []
        for x, y in zip(self.line.x, self.line.y, strict=True):
            if drawable(x) and drawable(y):
                run.append((float(x), float(y)))
            elif run:
                yield run
                run = []
        if run:
            yield run

    @property
    def stroke(self) -> dict[str, str | float | None]:
        """How it is drawn, as attributes."""
        width = 1.0 if self.line.faint else 2.2
        return {"fill": "none", "stroke": self.colour, "stroke_width": width, "stroke_dasharray": self.dash}


@dataclass(frozen=True)
class _Plot:
    """The rectangle between the axes."""

    x: Scale
    y: Scale

    @property
    def right(self) -> float:
        return self.x.end

    @property
    def top(self) -> float:
        return self.y.end

    @property
    def bottom(self) -> float:
        return self.y.start


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    x_label: str,
    y_label: str,
    marks: Sequence[Mark] = (),
    x_ticks: Sequence[tuple[float, Any]] | None = None,
    alt: str,
    id: str | None = None,
) -> Html:
    """Draw lines, named at their right ends, over a common axis.

    Parameters
    ----------
    lines : sequence of Line
        Up to ten are all named; of more, those that are not faint, and how many others there are is said.
    title, x_label, y_label : str
    marks : sequence of Mark
    x_ticks : sequence of (position, label), optional
        Instead of round numbers.
    alt : str
        What the picture shows, for those who cannot see it.
    id : str, optional
        Unique in the page; None derives it from the content.
    """
    curves = _curves(lines)
    marks = [mark for mark in marks if drawable(mark.at)]
    points = [point for curve in curves for run in curve.runs() for point in run]
    y_ticks = ticks(*extent(y for _, y in points))
    named, others = _named(curves)
    names = [fitted(clean(curve.line.name), _NAMES, SIZE) for curve in named] + ([others] if others else [])
    left = max(width_of(words, SIZE) for words in labels(y_ticks)) + 8
    right = WIDTH - (max(width_of(words, SIZE) for words in names) + 26 if names else 12)
    x_low, x_high = extent([*(x for x, _ in points), *(mark.at for mark in marks), *(at for at, _ in x_ticks or ())])
    x = Scale(x_low, x_high, left, right)

    drawn, top = heading(title, below=LINE if y_label else 0)
    drawn.append(label(y_label, 2, top - 4, fill=MUTED, prose=True))
    flags = [_flag(mark, x(mark.at)) for mark in marks]
    rows = stagger(flags)
    top += (max(rows) + 1) * LINE + 2 if rows else 10
    plot = _Plot(x, Scale(y_ticks[0], y_ticks[-1], top + _HEIGHT, top))
    drawn += [*_axes(plot, y_ticks, x_ticks, x_label)]
    drawn += [_mark(mark, flag, row, plot) for mark, flag, row in zip(marks, flags, rows, strict=True)]
    # Faint lines first: what is asked for lies above what surrounds it.
    drawn += [part for curve in sorted(curves, key=lambda c: not c.line.faint) for part in _drawn(curve, plot)]
    drawn += [*_ends(named, others, plot)]
    if not points:
        drawn.append(label("no data", (left + right) / 2, top + _HEIGHT / 2, anchor="middle", fill=MUTED))
    return picture(title, alt, drawn, plot.bottom + LINE + (LINE if x_label else 0) + 8, id)


def _curves(lines: Sequence[Line]) -> list[_Curve]:
    curves, taken = [], 0
    for line in lines:
        if len(line.x) != len(line.y):
            raise InvalidInputError(
                f"line {clean(line.name, 60)!r} has {len(line.x)} x and {len(line.y)} y. Pass as many of both."
            )
        colour, dash = line.colour, None
        if colour is None and line.faint:
            colour = FAINT
        elif colour is None:
            colour, dash = CYCLE[taken % len(CYCLE)], DASHES[taken // len(CYCLE) % len(DASHES)]
            taken += 1
        curves.append(_Curve(line, legible(colour), _DASHED if line.dashed else dash))
    return curves


def _named(curves: list[_Curve]) -> tuple[list[_Curve], str]:
    """Return the lines to name, and words about the others."""
    if len(curves) <= _LABELLED:
        return curves, ""
    named = [curve for curve in curves if not curve.line.faint][:_LABELLED]
    left = len(curves) - len(named)
    return named, "" if not left else f"and {left} more" if named else f"{left} lines"


def _axes(
    plot: _Plot, y_ticks: list[float], x_ticks: Sequence[tuple[float, Any]] | None, x_label: str
) -> Iterator[Html]:
    left, right, bottom = plot.x.start, plot.right, plot.bottom
    for value, words in zip(y_ticks, labels(y_ticks), strict=True):
        y = plot.y(value)
        yield element("path", d=f"M{coordinate(left)} {coordinate(y)}H{coordinate(right)}", stroke=GRID)
        yield label(words, left - 6, y + 5, anchor="end")
    yield element("path", d=f"M{coordinate(left)} {coordinate(bottom)}H{coordinate(right)}", stroke=AXIS)
    if x_ticks is None:
        round_ones = ticks(plot.x.low, plot.x.high)
        x_ticks = list(zip(round_ones, labels(round_ones), strict=True))
    free = -math.inf
    for value, words in sorted(x_ticks, key=lambda tick: tick[0]):
        x = plot.x(value)
        if not left - 0.5 <= x <= right + 0.5:
            continue
        yield element("path", d=f"M{coordinate(x)} {coordinate(bottom)}v4", stroke=AXIS)
        written = fitted(clean(words), 110, SIZE)
        half = width_of(written, SIZE) / 2
        middle = min(max(x, half), WIDTH - half)
        # A label that would run into the one before it is left out; its tick stays.
        if middle - half >= free:
            yield label(words, middle, bottom + LINE, width=110, anchor="middle")
            free = middle + half + 8
    yield label(x_label, right, bottom + 2 * LINE, width=right, anchor="end", fill=MUTED, prose=True)


def _drawn(curve: _Curve, plot: _Plot) -> Iterator[Html]:
    runs = [[(coordinate(plot.x(x)), coordinate(plot.y(y))) for x, y in run] for run in curve.runs()]
    told = element("title", clean(curve.line.name, 300))
    path = "".join("M" + "L".join(f"{x} {y}" for x, y in run) for run in runs if len(run) > 1)
    if path:
        yield element("path", told, class_="line", d=path, stroke_linejoin="round", **curve.stroke)
    for run in runs:
        # A point with no neighbour has no line to be seen by.
        if len(run) == 1:
            cx, cy = run[0]
            yield element("circle", told, class_="point", cx=cx, cy=cy, r=3.5, fill=curve.colour)


def _ends(named: list[_Curve], others: str, plot: _Plot) -> Iterator[Html]:
    lasts = [points[-1] if (points := [p for run in curve.runs() for p in run]) else None for curve in named]
    wanted = [plot.y(last[1]) if last else plot.bottom for last in lasts] + ([plot.bottom] if others else [])
    places = spread(wanted, LINE - 2, plot.top + 2, plot.bottom)
    near, far = plot.right + 3, plot.right + 20
    for curve, last, place in zip(named, lasts, places, strict=False):
        # A line that stops early is not led to its name: that would look like more of it.
        reaches = last is not None and plot.x(last[0]) > plot.right - 6
        start = plot.y(last[1]) if last and reaches else place
        path = f"M{coordinate(near)} {coordinate(start)}L{coordinate(near + 8)} {coordinate(place)}H{coordinate(far)}"
        yield element("path", d=path, **curve.stroke)
        yield label(curve.line.name, far + 4, place + 5, width=_NAMES)
    if others:
        yield label(others, far + 4, places[-1] + 5, fill=MUTED)


def _flag(mark: Mark, x: float) -> Flag:
    """Return where the label of a mark goes: to the right of it where it fits there, else to the left."""
    words = clean(mark.label, 300)
    right, left = WIDTH - x - 6, x - 6
    width = min(width_of(words, SIZE), max(right, left))
    return Flag(x, x + 4, x + 4 + width) if width <= right else Flag(x, x - 4 - width, x - 4)


def _mark(mark: Mark, flag: Flag, row: int, plot: _Plot) -> Html:
    top = plot.top - 2 - row * LINE
    dash = _DASHED if mark.dashed else None
    line = element(
        "path",
        class_="mark",
        d=f"M{coordinate(flag.at)} {coordinate(plot.bottom)}V{coordinate(top - SIZE)}",
        stroke=legible(mark.colour),
        stroke_width=1.5,
        stroke_dasharray=dash,
    )
    leftward = flag.start < flag.at
    words = label(
        mark.label,
        flag.end if leftward else flag.start,
        top - 2,
        width=flag.end - flag.start + 0.1,
        anchor="end" if leftward else None,
        fill=legible(mark.colour, 4.5),
    )
    return Html(line + words)
