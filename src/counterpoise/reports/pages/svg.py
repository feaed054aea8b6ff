"""What pictures have in common: their size, their frame, ticks, and colours that can be told apart."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment

from counterpoise.exceptions import InvalidInputError
from counterpoise.reports.pages.scales import Scale, drawable
from counterpoise.reports.pages.templates import environment, prose
from counterpoise.reports.pages.words import Html, clean, escaped, fitted, isolated, width_of, wrapped

# A picture is drawn twice, and the page shows the one that suits its width, as wide as the text. On a screen 14 of 720
# are 15 px in a column of 768 px, a little less than the text around it; on a phone of 320 px 14 of 420 are 9.6 px.
WIDTH = 720
NARROW = 420
SIZE = 14
LINE = 18
TICK = 110

INK, MUTED, FAINT, AXIS, GRID = "#1a1a1a", "#555555", "#8f8f8f", "#767676", "#e4e4e4"

CYCLE = ("#0072b2", "#d55e00", "#009e73", "#332288", "#b5548c", "#5b3a1e", "#882255", "#000000")
"""Apart by 17 in CIELAB for every kind of colour vision, and 3 to 1 or more against white."""

DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
"""One for each time round the colours; the first is an unbroken line."""

DASHED = "5 4"
"""A line that is dashed because it was asked to be."""


def coordinate(value: float) -> Html:
    """Return a number to a tenth of a pixel, as short as can be."""
    written = f"{value:.1f}".removesuffix(".0")
    return Html("0" if written == "-0" else written)


@cache
def _drawing(width: int) -> Environment:
    """Return how pictures of a width are made: as pages are, with numbers that are places, to a tenth of a pixel."""
    made = environment().overlay(finalize=lambda value: coordinate(value) if isinstance(value, float) else prose(value))
    constants = {name: value for name, value in globals().items() if name.isupper()}
    # Of its own: an overlay has the globals of what it lies over, and so would the other width.
    made.globals = {**made.globals, **constants, "drawable": drawable, "WIDTH": width}
    made.filters |= {
        "whole": lambda words: clean(words, 300),
        "fitted": lambda words, width: fitted(words, width, SIZE),
        "measured": lambda words: width_of(clean(words, 300), SIZE) + 1.0,
        "isolated": lambda words: escaped(isolated(words)),
        "legible": legible,
        "placed": lambda value, x: x(value),
    }
    made.tests["drawable"] = drawable
    return made


class Picture(Html):
    """A picture: for a screen, as it is; in a page, with the same picture for phones beside it.

    The style of pages shows one of the two.
    """

    narrow: Html

    def __new__(cls, broad: str, narrow: str) -> Picture:
        made = super().__new__(cls, broad)
        made.narrow = Html(narrow)
        return made

    @classmethod
    def at_both_widths(cls, draw: Callable[[int, str], Html]) -> Picture:
        """Return what is drawn for a width, the second argument being what the names of elements end in."""
        return cls(draw(WIDTH, ""), draw(NARROW, "-narrow"))

    def __html__(self) -> Html:
        """Return both, which is what templates ask for."""
        return Html(f"{self}{self.narrow}")


def heading_height(title: str, width: int) -> float:
    """Return where a picture goes on below its title."""
    return len(_heading(title, width)) * LINE + 4.0


def _heading(title: str, width: int) -> list[str]:
    return wrapped(clean(title), width - 12, SIZE * 1.05, most=3)


def picture(
    template: str, *, title: str, alt: str, width: int, height: float, id: str | None, end: str, **values: Any
) -> Html:
    """Return a picture, below its title, that says what it shows to those who cannot see it.

    Parameters
    ----------
    template : str
        What is drawn, with these values.
    id : str, optional
        Unique in the page; None derives it from the content.
    end : str
        What names of elements end in.
    """
    drawing = Html(_drawing(width).get_template(template).render(**values))
    # From the content: the same picture has the same name in every run, and another picture another one.
    digest = hashlib.sha256(f"{title}\0{alt}\0{drawing}".encode("utf-8", "replace")).hexdigest()
    name = (re.sub(r"[^A-Za-z0-9_-]+", "-", id) if id else f"chart-{digest[:12]}") + end
    told = {"title": clean(title), "alt": clean(alt, 2000), "lines": _heading(title, width)}
    frame = _drawing(width).get_template("reports/pages/picture.svg")
    kind = "narrow" if width == NARROW else "broad"
    return Html(frame.render(name=name, kind=kind, height=height, drawing=drawing, **told))


@dataclass(frozen=True)
class Tick:
    """A place on a horizontal axis, with its label centred nearby, which may have no room."""

    at: float
    words: Any
    middle: float
    has_room: bool


def spaced(ticks: Iterable[tuple[float, Any]], x: Scale, width: int) -> list[Tick]:
    """Return the ticks that are on a scale, in a picture of a width.

    A label that would run into the one before it is left out.
    """
    placed: list[Tick] = []
    free = -math.inf
    for value, words in sorted(ticks, key=lambda tick: tick[0]):
        at = x(value)
        if not x.start - 0.5 <= at <= x.end + 0.5:
            continue
        half = width_of(fitted(clean(words), TICK, SIZE), SIZE) / 2
        middle = min(max(at, half), width - half)
        placed.append(Tick(at, words, middle, middle - half >= free))
        if placed[-1].has_room:
            free = middle + half + 8
    return placed


def legible(colour: str, least: float = 3.0) -> str:
    """Return a colour, darkened where its contrast with white is less than ``least`` to 1."""
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", colour):
        raise InvalidInputError(f"a colour is written '#rrggbb', got {colour!r:.40}.")
    while contrast(colour) < least:
        colour = "#" + "".join(f"{int(0.97 * channel):02x}" for channel in _channels(colour))
    return colour


def contrast(colour: str) -> float:
    """Return the contrast of a colour with white, as WCAG defines it: from 1 to 21."""
    channels = [channel / 255.0 for channel in _channels(colour)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)


def _channels(colour: str) -> list[int]:
    return [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
