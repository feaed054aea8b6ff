"""Templates of pages and pictures, and how values get into them: cleaned, escaped, and never markup by chance."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from counterpoise.reports.pages.scales import EN_DASH, THIN_SPACE, number
from counterpoise.reports.pages.words import Html, clean, escaped

_LONG = 5000


@cache
def environment() -> Environment:
    """Return where templates come from, by their place in this package, and what they may call.

    Whatever a template shows is markup or becomes text by :func:`prose`; the filters ``name``, ``cell`` and ``short``
    are for names from outside, for values as tables write them, and for attributes.
    """
    made = Environment(
        loader=PackageLoader("counterpoise", ""),
        autoescape=True,
        finalize=prose,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"name": text, "cell": cell, "short": lambda words: escaped(clean(words))}
    made.globals["number"] = number
    return made


def rendered(template: str | Template, **values: Any) -> Html:
    """Return a template, named by its place in this package, with its values made safe."""
    return Html(environment().get_template(template).render(**values))


def text(value: Any, most: int = 200) -> Html:
    """Return a value as markup: the one way in for whatever comes from outside.

    In words, on one line, shortened to ``most`` characters, escaped, and isolated, so that a name written from right
    to left leaves its neighbours where they are. What is markup already stays as it is.
    """
    return value if isinstance(value, Html) else Html(f"<bdi>{escaped(clean(value, most))}</bdi>")


def prose(words: Any) -> Any:
    """Return words of ours as markup: whatever name is within, a sentence runs from left to right."""
    return words if hasattr(words, "__html__") else escaped(clean(words, _LONG))


def cell(value: Any, written: Callable[[Any], str] | None = None) -> Html:
    """Return a value as tables show it; what is missing (None, NaN, NaT) is a dash."""
    missing = value is None or (isinstance(value, float) and value != value) or str(value) == "NaT"
    return text(EN_DASH if missing else (written or _plain)(value))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace(",", THIN_SPACE).replace("-", "−") if abs(value) >= 10_000 else str(value)
    return number(value, 4) if isinstance(value, float) else value
