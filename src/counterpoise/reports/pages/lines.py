"""Charts of lines over a common axis."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.reports.pages.scales import Flag, Scale, drawable, extent, labelled, spread, stagger, ticks
from counterpoise.reports.pages.svg import (
    CYCLE,
    DASHED,
    DASHES,
    FAINT,
    LINE,
    SIZE,
    WIDTH,
    Picture,
    coordinate,
    heading_height,
    legible,
    picture,
    spaced,
)
from counterpoise.reports.pages.words import Html, clean, fitted, width_of

Numbers = Sequence[float] | NDArray[Any]

_LABELLED = 10
_NAMES = 0.27
"""The part of the width that names at the ends of lines may take."""

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
    x: Numbers
    y: Numbers
    colour: str | None = None
    faint: bool = False
    dashed: bool = False


def lines_of(names: Sequence[Any], x: Numbers, columns: NDArray[Any], prominent: Collection[int]) -> list[Line]:
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


@dataclass(frozen=True, eq=False)
class _Curve:
    """A line, how it is drawn, and its points between breaks."""

    line: Line
    colour: str
    dash: str
    runs: list[list[tuple[float, float]]]

    def path(self, x: Scale, y: Scale) -> Html:
        """Return the way along its points, as SVG has it."""
        placed = [[f"{coordinate(x(a))} {coordinate(y(b))}" for a, b in run] for run in self.runs if len(run) > 1]
        return Html("".join(f"M{'L'.join(run)}" for run in placed))

    @property
    def alone(self) -> list[tuple[float, float]]:
        return [run[0] for run in self.runs if len(run) == 1]

    @property
    def last(self) -> tuple[float, float] | None:
        return self.runs[-1][-1] if self.runs else None


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    x_label: str,
    y_label: str,
    marks: Sequence[Mark] = (),
    x_ticks: Sequence[tuple[float, Any]] | None = None,
    y_ticks: Sequence[tuple[float, str]] | None = None,
    alt: str,
    id: str | None = None,
) -> Picture:
    """Draw lines, named at their right ends, over a common axis.

    Parameters
    ----------
    lines : sequence of Line
        Up to ten are all named; of more, those that are not faint, and how many others there are is said.
    title, x_label, y_label : str
    marks : sequence of Mark
    x_ticks : sequence of (position, label), optional
        Instead of round numbers.
    y_ticks : sequence of (position, label), optional
        The same from the lowest to the highest, between which the axis reaches.
    alt : str
        What the picture shows, for those who cannot see it.
    id : str, optional
        Unique in the page; None derives it from the content.
    """
    words: dict[str, Any] = {
        "title": title,
        "x_label": x_label,
        "y_label": y_label,
        "x_ticks": x_ticks,
        "y_ticks": y_ticks,
        "alt": alt,
        "id": id,
    }
    curves = _curves(lines)
    drawn = [mark for mark in marks if drawable(mark.at)]
    return Picture.at_both_widths(lambda width, end: _drawn(curves, drawn, width, end=end, **words))


def _drawn(
    curves: list[_Curve],
    marks: Sequence[Mark],
    width: int,
    *,
    title: str,
    x_label: str,
    y_label: str,
    x_ticks: Sequence[tuple[float, Any]] | None,
    y_ticks: Sequence[tuple[float, str]] | None,
    **told: Any,
) -> Html:
    """Return the chart in a width."""
    points = [point for curve in curves for run in curve.runs for point in run]
    named, others = _named(curves)
    room = _NAMES * width
    names = [fitted(clean(curve.line.name), room, SIZE) for curve in named] + ([others] if others else [])
    right = width - (max(width_of(words, SIZE) for words in names) + 26 if names else 12)
    heights = labelled(ticks(*extent(y for _, y in points))) if y_ticks is None else list(y_ticks)
    left = max(width_of(words, SIZE) for _, words in heights) + 8
    x_ends = extent([*(x for x, _ in points), *(mark.at for mark in marks), *(at for at, _ in x_ticks or ())])
    x = Scale(*x_ends, left, right)

    flags = [_flag(mark, x(mark.at), width) for mark in marks]
    rows = stagger(flags)
    head = heading_height(title, width) + (LINE if y_label else 0)
    top = head + ((max(rows) + 1) * LINE + 2 if rows else 10)
    y = Scale(heights[0][0], heights[-1][0], top + (260.0 if width == WIDTH else 220.0), top)
    wanted = [y(curve.last[1]) if curve.last else y.start for curve in named] + ([y.start] if others else [])
    places = spread(wanted, LINE - 2, y.end + 2, y.start)
    return picture(
        "reports/pages/lines.svg",
        title=title,
        width=width,
        height=y.start + LINE + (LINE if x_label else 0) + 8,
        **told,
        x=x,
        y=y,
        x_label=x_label,
        y_label=y_label,
        y_label_at=head - 4,
        x_ticks=spaced(labelled(ticks(*x_ends)) if x_ticks is None else x_ticks, x, width),
        y_ticks=heights,
        marks=list(zip(marks, flags, rows, strict=True)),
        # Faint lines first: what is asked for lies above what surrounds it.
        curves=sorted(curves, key=lambda curve: not curve.line.faint),
        is_empty=not points,
        ends=list(zip(named, places, strict=False)),
        names=room,
        others=others,
        others_at=places[-1] if others else 0.0,
    )


def _curves(lines: Sequence[Line]) -> list[_Curve]:
    curves, taken = [], 0
    for line in lines:
        if len(line.x) != len(line.y):
            raise InvalidInputError(
                f"line {clean(line.name, 60)!r} has {len(line.x)} x and {len(line.y)} y. Pass as many of both."
            )
        colour, dash = line.colour, ""
        if colour is None and line.faint:
            colour = FAINT
        elif colour is None:
            colour, dash = CYCLE[taken % len(CYCLE)], DASHES[taken // len(CYCLE) % len(DASHES)]
            taken += 1
        points = [(float(x), float(y)) for x, y in zip(line.x, line.y, strict=True)]
        runs = [list(run) for whole, run in groupby(points, lambda at: drawable(at[0]) and drawable(at[1])) if whole]
        curves.append(_Curve(line, legible(colour), DASHED if line.dashed else dash, runs))
    return curves


def _named(curves: list[_Curve]) -> tuple[list[_Curve], str]:
    """Return the lines to name, and words about the others."""
    if len(curves) <= _LABELLED:
        return curves, ""
    named = [curve for curve in curves if not curve.line.faint][:_LABELLED]
    left = len(curves) - len(named)
    return named, "" if not left else f"and {left} more" if named else f"{left} lines"


def _flag(mark: Mark, x: float, width: int) -> Flag:
    """Return where the label of a mark goes: to the right of it where it fits there, else to the left."""
    words = clean(mark.label, 300)
    right, left = width - x - 6, x - 6
    taken = min(width_of(words, SIZE), max(right, left))
    return Flag(x, x + 4, x + 4 + taken) if taken <= right else Flag(x, x - 4 - taken, x - 4)
