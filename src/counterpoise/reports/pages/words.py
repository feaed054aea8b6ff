"""Words from outside, made fit to be shown: cleaned, shortened, escaped, measured."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from html import escape
from itertools import takewhile
from typing import Any

from counterpoise.contexts import shown


class Html(str):
    """Markup that is safe to put into a page as it is.

    Every block is one, and whatever takes content escapes all that is not. Joining or formatting one gives a plain
    ``str``, which is escaped again: what is forgotten shows, and never runs.
    """

    __slots__ = ()

    def __html__(self) -> Html:
        """Return itself: what templates ask of markup."""
        return self


ELLIPSIS = "…"

# Control characters but for white space, what is no character at all, and marks that reorder what follows: a name must
# not do so, and might close the isolation it is put into.
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069\ufdd0-\ufdef"
    + "".join(chr(plane + last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF))
    + "]"
)

# Half of a pair of UTF-16 stands for no character and cannot be written to a file.
_HALVES = re.compile("[\ud800-\udfff]")

# Not those within a number, which hold it together.
_SPACES = re.compile(r"[^\S\u00a0\u202f]+")


# Parts of a name, as of a path.
_PARTS = re.compile(r"(?<=[/ _.:-])")


def clean(value: Any, most: int = 200) -> str:
    """Return a value in words, on one line of at most ``most`` characters, without what XML forbids."""
    whole = _FORBIDDEN.sub("", _HALVES.sub("\ufffd", shown(value)))
    words = _SPACES.sub(" ", whole).strip()
    return words if len(words) <= most else _cut(words, max(most - 1, 0)) + ELLIPSIS


def _cut(words: str, length: int) -> str:
    # What joins or marks its neighbour would otherwise act on the ellipsis.
    while length and (_is_invisible(words[length - 1]) or words[length - 1].isspace()):
        length -= 1
    return words[:length]


def escaped(words: str) -> Html:
    """Return clean words as markup, fit for content and for attributes in double quotes."""
    return Html(escape(words))


def isolated(words: str) -> str:
    """Return words that leave the order of their neighbours alone, for where there is no ``<bdi>``."""
    turns = any(unicodedata.bidirectional(character) in {"R", "AL", "AN"} for character in words)
    return f"\u2068{words}\u2069" if turns else words


_NARROW = frozenset("iljtfrI.,:;'|!()[]{}/-\u202f ")
_BROAD = frozenset("mwMW@%&—…")


def width_of(words: str, size: float) -> float:
    """Return about how wide words are at a font size; fonts differ, so a little more than most need."""
    return size * sum(map(_em, words))


def _em(character: str) -> float:
    if _is_invisible(character):
        return 0.0
    if character in _NARROW:
        return 0.39
    if character in _BROAD:
        return 0.97
    if character in "<>=+~#":
        return 0.86
    if unicodedata.east_asian_width(character) in "WF":
        return 1.3
    return 0.72 if character.isupper() else 0.62


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) in {"Mn", "Me", "Cf"}


def fitted(words: str, width: float, size: float) -> str:
    """Return words shortened with an ellipsis to a width."""
    if width_of(words, size) <= width:
        return words
    left, length = width - width_of(ELLIPSIS, size), 0
    while length < len(words) and (left := left - size * _em(words[length])) >= 0.0:
        length += 1
    return _cut(words, length) + ELLIPSIS


def fitted_apart(names: Sequence[str], width: float, size: float) -> list[str]:
    """Return names shortened to a width: those that would look the same, without the beginning that they share."""
    short = [fitted(name, width, size) for name in names]
    alike: dict[str, list[list[str]]] = {}
    for name, words in zip(names, short, strict=True):
        alike.setdefault(words, []).append(_PARTS.split(name))
    found = []
    for name, words in zip(names, short, strict=True):
        shared = list(takewhile(lambda parts: len(set(parts)) == 1, zip(*alike[words], strict=False)))
        rest = _PARTS.split(name)[len(shared) :]
        stays = len(alike[words]) == 1 or not (shared and rest)
        found.append(words if stays else fitted(ELLIPSIS + "".join(rest), width, size))
    return found


def wrapped(words: str, width: float, size: float, most: int = 2) -> list[str]:
    """Return words in lines of a width, the last of ``most`` shortened."""
    lines: list[str] = []
    line = ""
    parts = words.split(" ")
    for k, part in enumerate(parts):
        longer = f"{line} {part}" if line else part
        if line and width_of(longer, size) > width:
            if len(lines) == most - 1:
                return [*lines, fitted(" ".join([line, *parts[k:]]), width, size)]
            lines.append(fitted(line, width, size))
            longer = part
        line = longer
    return [*lines, fitted(line, width, size)] if line else lines
