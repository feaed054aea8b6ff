"""The page around charts and tables: one file that asks nothing of anywhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from html import unescape
from typing import Any, Literal

from counterpoise.pages.scales import EN_DASH, THIN_SPACE, number
from counterpoise.pages.style import STYLE
from counterpoise.pages.words import Html, clean, escaped
from counterpoise.tables import Table

__all__ = [
    "Html",
    "details",
    "document",
    "facts",
    "figure",
    "notice",
    "policy",
    "section",
    "sentence",
    "table",
    "text",
    "verdict",
]

_LONG = 5000


def text(value: Any, most: int = 200) -> Html:
    """Return a value as markup: the one way in for whatever comes from outside.

    In words, on one line, shortened to ``most`` characters, escaped, and isolated, so that a name written from right
    to left leaves its neighbours where they are. What is markup already stays as it is.
    """
    return value if isinstance(value, Html) else Html(f"<bdi>{escaped(clean(value, most))}</bdi>")


def _prose(words: str) -> Html:
    """Return words of ours as markup: whatever name is within, a sentence runs from left to right."""
    return words if isinstance(words, Html) else escaped(clean(words, _LONG))


def sentence(template: str, *values: Any, **named: Any) -> Html:
    """Return ``template.format(...)`` as markup, with each value made safe by :func:`text`.

    >>> sentence("Order {} units in {place}.", 40, place="<north>")
    'Order <bdi>40</bdi> units in <bdi>&lt;north&gt;</bdi>.'
    """
    return Html(escaped(template).format(*map(text, values), **{name: text(value) for name, value in named.items()}))


def table(
    table: Table,
    *,
    formats: Mapping[str, Callable[[Any], str]] | None = None,
    headings: Mapping[str, str] | None = None,
    caption: str = "",
    left: Collection[str] | None = None,
    most: int = 500,
) -> Html:
    """Return a table in a box of its own, which scrolls where it is wider than the page.

    Parameters
    ----------
    table : Table
        Its first column names the rows.
    formats : mapping from column to function, optional
        How a value is written. What is missing (None, NaN) is a dash without being asked about.
    headings : mapping from column to str, optional
        Instead of the names of columns.
    caption : str
    left : collection of columns, optional
        Aligned left; None takes those that do not hold numbers.
    most : int
        Rows shown; how many more there are is said.
    """
    formats, headings = formats or {}, headings or {}
    if left is None:
        left = [name for name, column in table.items() if column.dtype.kind not in "iufc"]
    sides = [' class="left"' if name in left else "" for name in table]
    columns = [_column(column[:most], formats.get(name, _plain)) for name, column in table.items()]
    head = "".join(
        f'<th scope="col"{side}>{text(headings.get(name, name))}</th>' for name, side in zip(table, sides, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(map(_cell, range(len(row)), sides, row)) + "</tr>" for row in zip(*columns, strict=True)
    )
    notes = [f"and {table.n_rows - most} more rows"] if table.n_rows > most else []
    below = "".join(f'<p class="below">{_prose(note)}</p>' for note in [*notes, table.note] if note)
    above = f"<caption>{_prose(caption)}</caption>" if caption else ""
    name = _plain_words(caption) or "Table"
    return Html(
        f'<div class="wide" tabindex="0" role="region" aria-label="{name}"><table>{above}<thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{below}"
    )


def _column(column: Any, written: Callable[[Any], str]) -> list[Html]:
    # Times of a fine resolution would become integers.
    values = column.astype(str).tolist() if column.dtype.kind in "mM" else column.tolist()
    return [_written(value, written) for value in values]


def _written(value: Any, written: Callable[[Any], str]) -> Html:
    return text(EN_DASH if _is_missing(value) else written(value))


def _cell(k: int, side: str, content: Html) -> str:
    return f'<th scope="row"{side}>{content}</th>' if k == 0 else f"<td{side}>{content}</td>"


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value) or (isinstance(value, str) and value == "NaT")


def _plain(value: Any) -> str:
    if isinstance(value, Html):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace(",", THIN_SPACE).replace("-", "−") if abs(value) >= 10_000 else str(value)
    return number(value, 4) if isinstance(value, float) else clean(value)


def _plain_words(words: str) -> Html:
    """Return prose as the value of an attribute, which holds no elements."""
    return escaped(clean(unescape(re.sub(r"<[^>]*>", "", words)) if isinstance(words, Html) else words))


def facts(facts: Mapping[str, Any]) -> Html:
    """Return names and values, one pair to a line."""
    rows = "".join(
        f'<tr><th scope="row">{text(name)}</th><td>{_written(value, _plain)}</td></tr>' for name, value in facts.items()
    )
    return Html(f'<table class="facts"><tbody>{rows}</tbody></table>')


def figure(svg: str, caption: str) -> Html:
    """Return a picture with words below it."""
    return Html(f"<figure>{_block(svg)}<figcaption>{_prose(caption)}</figcaption></figure>")


def section(heading: str, *blocks: str, id: str | None = None) -> Html:
    """Return blocks below a heading; a block that is not markup becomes a paragraph."""
    name = f' id="{_identifier(id)}"' if id else ""
    return Html(f"<section{name}><h2>{_prose(heading)}</h2>{''.join(map(_block, blocks))}</section>")


def notice(words: str, kind: Literal["note", "warning"] = "note") -> Html:
    """Return something to be noticed before reading on."""
    lead = "<strong>Warning.</strong> " if kind == "warning" else ""
    return Html(f'<p class="notice {"warning" if kind == "warning" else "note"}" role="note">{lead}{_prose(words)}</p>')


def verdict(words: str) -> Html:
    """Return the one sentence the page is about."""
    return Html(f'<p class="verdict">{_prose(words)}</p>')


def details(summary: str, *blocks: str) -> Html:
    """Return blocks that are folded away until asked for, and printed open."""
    return Html(f"<details><summary>{_prose(summary)}</summary>{''.join(map(_block, blocks))}</details>")


def document(title: str, *blocks: str, subtitle: str = "", script: str = "") -> str:
    """Return a whole page, of one file.

    Parameters
    ----------
    title : str
    *blocks : Html
        A block that is not markup becomes a paragraph.
    subtitle : str
    script : str
        Run at the end of the page. The page allows this script by its hash and no other, so handlers are to be
        added by it and not written as attributes.
    """
    # Browsers read a line's end as one character before they hash, and "<" as markup even within a string.
    program = re.sub(r"<(?=/script|script|!--)", r"\\x3c", re.sub(r"\r\n?", "\n", script), flags=re.IGNORECASE)
    below = f'<p class="subtitle">{_prose(subtitle)}</p>' if subtitle else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"{policy(program)}"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_plain_words(title)}</title><style>{STYLE}</style></head><body>"
        '<a class="skip" href="#content">Skip to the content</a>'
        f'<header><h1>{_prose(title)}</h1>{below}</header><main id="content">{"".join(map(_block, blocks))}</main>'
        f"{f'<script>{program}</script>' if program else ''}</body></html>\n"
    )


def policy(program: str = "", *, images: str = "data:") -> Html:
    """Return what tells a browser to run no program but this one, and to fetch nothing.

    Parameters
    ----------
    program : str
        What stands between the tags of the page's only script.
    images : str
        Where pictures may come from.
    """
    allowed = f"default-src 'none'; style-src 'unsafe-inline'; img-src {images}; base-uri 'none'; form-action 'none'"
    if program:
        digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
        allowed += f"; script-src 'sha256-{digest}'"
    return Html(f'<meta http-equiv="Content-Security-Policy" content="{allowed}">')


def _block(block: str) -> Html:
    return block if isinstance(block, Html) else Html(f"<p>{_prose(block)}</p>")


def _identifier(id: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", id)
