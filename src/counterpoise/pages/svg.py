"""The parts of a picture: elements, text that cannot break out of them, colours that can be told apart."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from counterpoise.exceptions import InvalidInputError
from counterpoise.pages.words import Html, clean, escaped, fitted, isolated, wrapped

# A picture is as wide as the page allows. On a phone of 360 px 14 of 480 become 10 px, which can be read; on a screen
# the page stops it at 36 rem, where they become 17 px, about the size of the text around it.
WIDTH = 480
SIZE = 14
LINE = 18

INK, MUTED, FAINT, AXIS, GRID = "#1a1a1a", "#555555", "#8f8f8f", "#767676", "#e4e4e4"

CYCLE = ("#0072b2", "#d55e00", "#009e73", "#332288", "#b5548c", "#5b3a1e", "#882255", "#000000")
"""Apart by 17 in CIELAB for every kind of colour vision, and 3 to 1 or more against white."""

DASHES = (None, "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
"""One for each time round the colours; the first is an unbroken line."""


def coordinate(value: float) -> str:
    """Return a number to a tenth of a pixel, as short as can be."""
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written


def element(name: str, /, *content: str, **attributes: str | float | None) -> Html:
    """Return an element; content that is not markup is escaped, attributes that are None are left out.

    An underscore in an attribute's name becomes a hyphen; one at its end (``class_``) goes.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value) if isinstance(value, str) else coordinate(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(part if isinstance(part, Html) else escaped(part) for part in content)
    return Html(f"<{name}{written}>{inside}</{name}>" if inside else f"<{name}{written}/>")


def label(
    words: object,
    x: float,
    y: float,
    *,
    width: float = WIDTH,
    anchor: str | None = None,
    fill: str | None = None,
    bold: bool = False,
    prose: bool = False,
) -> Html:
    """Return words at a place, shortened to a width; what was longer is told when pointed at.

    A name runs in the direction of its own script, prose from left to right.
    """
    whole = clean(words, 300)
    short = fitted(whole, width, SIZE)
    told = [element("title", whole)] if short != whole else []
    return element(
        "text",
        *told,
        short if prose else isolated(short),
        x=x,
        y=y,
        text_anchor=anchor,
        fill=fill,
        font_weight="600" if bold else None,
    )


def heading(title: str, *, below: float = 0.0) -> tuple[list[Html], float]:
    """Return a title in at most two lines, and where the picture goes on."""
    lines = wrapped(clean(title), WIDTH - 12, SIZE * 1.05)
    drawn = [label(line, 2, SIZE + 2 + k * LINE, bold=True, prose=True) for k, line in enumerate(lines)]
    return drawn, len(lines) * LINE + 4 + below


def picture(title: str, alt: str, parts: Sequence[str], height: float, id: str | None) -> Html:
    """Return a picture that says what it shows to those who cannot see it."""
    body = "".join(parts)
    # From the content: the same picture has the same name in every run, and another picture another one.
    digest = hashlib.sha256(f"{title}\0{alt}\0{body}".encode("utf-8", "replace")).hexdigest()
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", id) if id else f"chart-{digest[:12]}"
    return element(
        "svg",
        element("title", clean(title), id=f"{name}-title"),
        element("desc", clean(alt, 2000), id=f"{name}-desc"),
        Html(body),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {coordinate(height)}",
        width="100%",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        font_family="system-ui, sans-serif",
        font_size=SIZE,
        fill=INK,
    )


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
