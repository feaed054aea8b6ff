"""The page itself: controls, pictures and tables, which the script fills with the level that is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

Array = NDArray[np.float64]

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
        interpolated=_interpolated(sweep),
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
    held_out = None if sweep.held_out is None else sweep.held_out[one.criterion]
    if held_out is not None:
        scored = "excess risk" if one.criterion == "excess" else "risk"
        columns[f"held-out {scored}, worst plausible mix"] = _with_ends(held_out.mix)
        columns[f"held-out {scored}, worst {words.context}"] = _with_ends(held_out.worst)
        columns["held-out mean risk"] = _with_ends(held_out.mean)
    made = words.excess if one.criterion == "excess" else words.risk
    unit = f", in {words.unit}" if words.unit else ""
    return table(
        Table.of(**columns),
        caption=f"What making the worst-case {made} small costs and brings{unit}",
        headings={
            "radius": f"radius,{levels.measure}" if levels.measure == " bits" else "radius",
            "worst": f"largest {made}",
        },
        formats={"radius": number},
        left=[worst_in],
    )


def _interpolated(sweep: Sweep) -> int:
    """Return how many levels were judged on held-out rows, where not all were."""
    judged = {len(one.judged) for one in (sweep.held_out or {}).values()}
    return max(judged, default=0) if judged != {len(sweep.levels.radii)} else 0


def _with_ends(intervals: Array) -> NDArray[Any]:
    """Return estimates with the ends of their intervals, in words."""
    cells = [f"{number(value)} [{number(low)}, {number(high)}]" for value, low, high in intervals.tolist()]
    return np.array(cells, dtype=object)
