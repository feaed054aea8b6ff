"""Small charts side by side: one number over time for each of several things, each within its own band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.reports.pages.scales import Scale, drawable, extent, labels, ticks
from counterpoise.reports.pages.svg import (
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
from counterpoise.reports.pages.words import Html, clean, fitted_apart, width_of

Numbers = Sequence[float] | NDArray[Any]

_HEIGHT, _GAP = 84.0, 26.0
"""Of the plot of a panel, and between two columns."""


@dataclass(frozen=True, eq=False)
class Panel:
    """One thing over time.

    Parameters
    ----------
    name : object
    x, y : sequence of float
        Points joined in order; those without a place (NaN, infinite) break the line.
    low, high : float
        Ends of the band; NaN where there is none.
    level : float
        A line across, dashed; NaN for none.
    colour : str
        ``#rrggbb``.
    """

    name: Any
    x: Numbers
    y: Numbers
    low: float
    high: float
    level: float
    colour: str


@dataclass(frozen=True, eq=False)
class _Placed:
    """A panel, where it is, and what is drawn of it."""

    panel: Panel
    x: Scale
    y: Scale
    top: float
    left: float
    y_ticks: list[tuple[float, str]]
    x_ticks: list[Any]
    path: Html
    alone: list[tuple[float, float]]
    title: str

    @property
    def colour(self) -> str:
        return legible(self.panel.colour)

    @property
    def has_band(self) -> bool:
        return drawable(self.panel.low) and drawable(self.panel.high)

    def height(self, value: float) -> float:
        """Return where a value is, or the end of the axis that is nearest to it."""
        return self.y(self.y.within(value))


def panel_chart(
    panels: Sequence[Panel],
    *,
    title: str,
    x_ticks: Sequence[tuple[float, Any]],
    alt: str,
    id: str | None = None,
) -> Picture:
    """Draw panels in rows of three, on phones of two, all over the same stretch of the horizontal axis.

    Each has its own vertical axis, for rare things would be flat on that of common ones.

    Parameters
    ----------
    panels : sequence of Panel
    x_ticks : sequence of (position, label)
        As many of them as there is room for are labelled.
    alt : str
        What the picture shows, for those who cannot see it.
    id : str, optional
        Unique in the page; None derives it from the content.
    """
    for one in panels:
        if len(one.x) != len(one.y):
            raise InvalidInputError(
                f"panel {clean(one.name, 60)!r} has {len(one.x)} x and {len(one.y)} y. Pass as many of both."
            )
    ends = extent([value for one in panels for value in one.x])

    def drawn(width: int, end: str) -> Html:
        columns = min(3 if width == WIDTH else 2, max(len(panels), 1))
        room = (width - (columns - 1) * _GAP) / columns
        top = heading_height(title, width)
        row = LINE + 8 + _HEIGHT + LINE + 12
        titles = fitted_apart([clean(one.name, 300) for one in panels], room - 4, SIZE)
        placed = [
            _placed(one, titles[k], ends, x_ticks, k % columns * (room + _GAP), room, top + k // columns * row)
            for k, one in enumerate(panels)
        ]
        rows = -(-len(panels) // columns)
        height = top + max(rows, 1) * row
        return picture(
            "reports/pages/panels.svg", title=title, alt=alt, width=width, height=height, id=id, end=end, panels=placed
        )

    return Picture.at_both_widths(drawn)


def _placed(
    panel: Panel,
    title: str,
    ends: tuple[float, float],
    x_ticks: Sequence[tuple[float, Any]],
    left: float,
    room: float,
    top: float,
) -> _Placed:
    marks = ticks(*extent([*panel.y, panel.low, panel.high, panel.level]), most=4)
    heights = list(zip(marks, labels(marks), strict=True))
    start = left + max(width_of(words, SIZE) for _, words in heights) + 8
    x = Scale(*ends, start, left + room - 4)
    y = Scale(marks[0], marks[-1], top + LINE + 8 + _HEIGHT, top + LINE + 8)
    points = [(float(a), float(b)) for a, b in zip(panel.x, panel.y, strict=True)]
    runs = [list(run) for whole, run in groupby(points, lambda at: drawable(at[0]) and drawable(at[1])) if whole]
    placed = [[f"{coordinate(x(a))} {coordinate(y(b))}" for a, b in run] for run in runs if len(run) > 1]
    return _Placed(
        panel,
        x,
        y,
        top,
        left,
        heights,
        spaced(x_ticks, x, int(left + room)),
        Html("".join(f"M{'L'.join(run)}" for run in placed)),
        [run[0] for run in runs if len(run) == 1],
        title,
    )
