"""Pages of one file that ask nothing of anywhere, and the tables on them."""

from __future__ import annotations

import base64
import hashlib
import platform
import re
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

from jinja2 import Template

from counterpoise.files import check_output, whole
from counterpoise.reports.pages.templates import cell, rendered
from counterpoise.reports.pages.words import Html
from counterpoise.table import Table


def table(
    table: Table,
    *,
    formats: Mapping[str, Callable[[Any], str]] | None = None,
    headings: Mapping[str, str] | None = None,
    caption: str = "",
    left: Collection[str] | None = None,
    most: int = 500,
) -> Html:
    """Return a table; where the page is too narrow for its columns, each row becomes a list of labelled cells.

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
    cells = [[cell(value, formats.get(name)) for value in _values(column[:most])] for name, column in table.items()]
    more = f"and {table.n_rows - most} more rows" if table.n_rows > most else ""
    return rendered(
        "reports/pages/table.html",
        caption=caption,
        size=next((name for columns, name in _SIZES if len(table) <= columns), "many"),
        head=[(headings.get(name, name), Html(' class="left"' if name in left else "")) for name in table],
        rows=zip(*cells, strict=True),
        notes=[note for note in (more, table.note) if note],
    )


_SIZES = ((4, "few"), (7, "some"))
"""What a table is called with up to so many columns: how wide a page has to be for it."""


def _values(column: Any) -> list[Any]:
    # Times of a fine resolution would become integers.
    return column.astype(str).tolist() if column.dtype.kind in "mM" else column.tolist()


def page(
    template: str | Template,
    title: str,
    facts: Mapping[str, Any],
    *,
    script: str = "",
    images: str = "data:",
    **values: Any,
) -> str:
    """Return a whole page, of one file.

    Parameters
    ----------
    template : str
        Extends ``pages/page.html``.
    title : str
    facts : mapping from name to value
        What the page was made from and with, listed at its end.
    script : str
        Run at the end of the page. The page allows this script by its hash and no other, so handlers are to be
        added by it and not written as attributes.
    images : str
        Where pictures may come from.
    **values
        What the template shows.
    """
    # Browsers read a line's end as one character before they hash, and "<" as markup even within a string.
    program = re.sub(r"<(?=/script|script|!--)", r"\\x3c", re.sub(r"\r\n?", "\n", script), flags=re.IGNORECASE)
    allowed = f"default-src 'none'; style-src 'unsafe-inline'; img-src {images}; base-uri 'none'; form-action 'none'"
    if program:
        digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
        allowed += f"; script-src 'sha256-{digest}'"
    safe = {"policy": Html(allowed), "program": Html(program), "subtitle": ""}
    return rendered(template, title=title, facts=facts, **safe | values)


def versions(*packages: str) -> dict[str, str]:
    """Return what a page was made with: the versions of Python, of this package, and of those others that are there."""
    found = {"Python": platform.python_version()}
    for name in ("counterpoise", *packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def save(path: str | PathLike[str], html: Callable[[], str], force: bool = False) -> Path:
    """Write a page, which is made only once it is clear that it can be written, and return where it is.

    Parameters
    ----------
    force : bool
        Whether a file that exists may be replaced.
    """
    place = Path(path)
    check_output(place, force)
    made = html()
    whole(place, lambda part: part.write_text(made, encoding="utf-8"))
    return place
