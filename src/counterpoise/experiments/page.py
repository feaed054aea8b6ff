"""One page about a reproduction: figures, numbers, and what they were made with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from counterpoise.experiments.figures import Panel
from counterpoise.reports.pages.document import page, table, versions
from counterpoise.reports.pages.words import Html
from counterpoise.table import Table

# A page that is opened from a disk has no origin, so browsers need not take its neighbours for its own.
_BESIDE = "'self' file:"


def written(
    panels: Sequence[Panel], numbers: Table, claims: Table, studies: Mapping[str, str], notes: Sequence[str]
) -> str:
    """Return the page as HTML; it needs nothing but the pictures beside it."""
    return page(
        "experiments/page.html",
        "Robust learning in heterogeneous contexts, regenerated",
        {**studies, **versions("numpy", "scipy", "scikit-learn", "matplotlib")},
        images=_BESIDE,
        panels=panels,
        notes=notes,
        numbers=_listed(numbers),
        claims=_listed(claims),
    )


def _listed(rows: Table) -> Html:
    return table(rows, formats={name: "{:.4g}".format for name, column in rows.items() if column.dtype.kind == "f"})
