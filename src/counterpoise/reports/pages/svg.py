"""What pictures have in common: their size, their frame, ticks, and colours that can be told apart."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment

from counterpoise.exceptions import InvalidInputError
from counterpoise.reports.pages.scales import Scale, drawable
from counterpoise.reports.pages.templates import environment, prose
from counterpoise.reports.pages.words import Html, clean, escaped, fitted, isolated, width_of, wrapped

# A picture is as wide as the page allows. On a phone of 360 px 14 of 480 become 10 px, which can be read; on a screen
# the page stops it at 36 rem, where they become 17 px, about the size of the text around it.
WIDTH = 480
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
def _drawing() -> Environment:
    """Return how pictures are made: as pages are, with numbers that are places, to a tenth of a pixel."""
    made = environment().overlay(finalize=lambda value: coordinate(value) if isinstance(value, float) else prose(value))
    made.globals |= {name: value for name, value in globals().items() if name.isupper()} | {"drawable": drawable}
    made.filters |= {
        "whole": lambda words: clean(words, 300),
        "fitted": lambda words, width: fitted(words, width, SIZE),
        "isolated": lambda words: escaped(isolated(words)),
        "legible": legible,
        "placed": lambda value, x: x(value),
    }
    made.tests["drawable"] = drawable
    return made


def heading_height(title: str) -> float:
    """Return where a picture goes on below its title."""
    return len(_heading(title)) * LINE + 4.0


def _heading(title: str) -> list[str]:
    return wrapped(clean(title), WIDTH - 12, SIZE * 1.05)


def picture(template: str, *, title: str, alt: str, height: float, id: str | None, **values: Any) -> Html:
    """Return a picture, below its title, that says what it shows to those who cannot see it.

    Parameters
    ----------
    template : str
        What is drawn, with these values.
    id : str, optional
        Unique in the page; None derives it from the content.
    """
    drawing = Html(_drawing().get_template(template).render(**values))
    # From the content: the same picture has the same name in every run, and another picture another one.
    digest = hashlib.sha256(f"{title}\0{alt}\0{drawing}".encode("utf-8", "replace")).hexdigest()
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", id) if id else f"chart-{digest[:12]}"
    told = {"title": clean(title), "alt": clean(alt, 2000), "lines": _heading(title)}
    return Html(
        _drawing().get_template("reports/pages/picture.svg").render(name=name, height=height, drawing=drawing, **told)
    )


@dataclass(frozen=True)
class Tick:
    """A place on a horizontal axis, with its label centred nearby, which may have no room."""

    at: float
    words: Any
    middle: float
    has_room: bool


def spaced(ticks: Iterable[tuple[float, Any]], x: Scale) -> list[Tick]:
    """Return the ticks that are on a scale; a label that would run into the one before it is left out."""
    placed: list[Tick] = []
    free = -math.inf
    for value, words in sorted(ticks, key=lambda tick: tick[0]):
        at = x(value)
        if not x.start - 0.5 <= at <= x.end + 0.5:
            continue
        half = width_of(fitted(clean(words), TICK, SIZE), SIZE) / 2
        middle = min(max(at, half), WIDTH - half)
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
