"""The page itself: controls, pictures and tables, which the script fills with the level that is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from counterpoise.reports.explorer.bounds import why_none
from counterpoise.reports.explorer.data import MOST_DRAWN, as_script, embedded
from counterpoise.reports.explorer.decision import StockDecision
from counterpoise.reports.explorer.levels import METHODS, STOPS
from counterpoise.reports.explorer.sweep import Scored, Sweep
from counterpoise.reports.pages.document import page, table, versions
from counterpoise.reports.pages.scales import number
from counterpoise.reports.pages.svg import INK, SIZE
from counterpoise.reports.pages.words import Html, clean
from counterpoise.table import Table

_TITLE = "How much robustness?"


def written(sweep: Sweep, title: str = "", settings: Mapping[str, Any] | None = None) -> str:
    """Return a sweep as one page of HTML that needs nothing else.

    Parameters
    ----------
    title : str
    settings : mapping, optional
        What the sweep was made from and with, listed at the end.
    """
    program = files("counterpoise.reports.explorer").joinpath("explorer.js").read_text(encoding="utf-8")
    return page(
        "reports/explorer/explorer.html",
        clean(title) or _TITLE,
        {**(settings or {}), **versions("numpy")},
        script=as_script(embedded(sweep)) + program,
        subtitle=f"From the mix of {sweep.words.context}s in the data to {sweep.levels.largest}",
        no_bounds="" if sweep.grids else why_none(len(sweep.contexts), sweep.words.context),
        sweep=sweep,
        words=sweep.words,
        stops=STOPS,
        methods=METHODS,
        most_drawn=MOST_DRAWN,
        size=SIZE,
        ink=INK,
        tables=[
            _level_table(sweep, one)
            for one in sorted(sweep.by_criterion.values(), key=lambda one: one.criterion != sweep.criterion)
        ],
    )


def _level_table(sweep: Sweep, one: Scored) -> Html:
    """Return all levels under one criterion as a table."""
    levels, words = sweep.levels, sweep.words
    n, columns = len(levels.radii), dict[str, Any](radius=levels.radii)
    for method in METHODS:
        columns[f"by {method}"] = [said.removesuffix(f" by {method}") for said in levels.words(method)]
    if isinstance(sweep.decision, StockDecision):
        columns["order"] = sweep.decision.orders[one.criterion][:n]
    worst_in = f"worst {words.context}"
    columns |= {"price on average": one.prices[:n], "worst": one.worst[:n]}
    columns[worst_in] = [clean(sweep.contexts[c], 80) for c in one.worst_contexts[:n]]
    made = "excess" if one.criterion == "excess" else words.risk
    unit = f", in {words.unit}" if words.unit else ""
    return table(
        Table.of(**columns),
        caption=f"What making the worst-case {made} small costs and brings{unit}",
        headings={"radius": f"radius,{levels.measure}" if levels.measure == " bits" else "radius"},
        formats={"radius": number},
        left=[worst_in],
    )
