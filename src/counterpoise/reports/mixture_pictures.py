"""Pictures of a run of a mixture controller: shares and losses over time."""

from __future__ import annotations

import math

import numpy as np

from counterpoise.reports.methods import COLOURS
from counterpoise.reports.mixture_run import MixtureRun
from counterpoise.reports.mixture_words import number_text, share_text, worst_words
from counterpoise.reports.pages.lines import Line, line_chart
from counterpoise.reports.pages.panels import Panel, panel_chart
from counterpoise.reports.pages.rows import DotRow, dot_chart
from counterpoise.reports.pages.scales import extent, labelled, ticks
from counterpoise.reports.pages.words import Html

_PANELS = 12
"""Sources in one picture."""

_FAR = 3.0
"""A range that reaches so many times higher than all else in a panel is not drawn: the share would be flat."""

_SHARE, _FIRST = "#00539b", "#767676"


def worst_chart(run: MixtureRun) -> Html:
    """Return the excess in the worst plausible mix over time."""
    values = [run.worst_at(k) for k in run.drawn]
    # How far it is from 0 matters of an excess; no loss is near it.
    reach = extent([*values, 0.0] if run.has_references else values)
    return line_chart(
        [Line("worst mix", run.at[run.drawn], values, colour=COLOURS["robust"])],
        title=f"{run.what.capitalize()} in {worst_words(run.controller.mixes)}",
        x_label=_when(run),
        y_label=run.unit,
        x_ticks=run.x_ticks,
        y_ticks=labelled(ticks(*reach)),
        alt=f"{number_text(run, values[0])} at the first update, {number_text(run, values[-1])} at the last.",
    )


def share_charts(run: MixtureRun) -> list[Html]:
    """Return the share of each source over time, a panel each."""
    rows = [0, *(k + 1 for k in run.drawn)]
    # The first point has no place, and is not drawn: by it the axis reaches down to 0.
    x = np.concatenate([[math.nan, run.start], run.at[run.drawn]])
    found, panels = 100.0 * np.vstack([np.zeros(len(run.names)), run.shares[rows]]), []
    for k in run.order:
        low, high = 100.0 * run.allowed[k]
        level = 100.0 * float(run.proportional[k])
        near = high <= _FAR * max(float(found[:, k].max()), level) and high - low < 100.0
        if not near:
            low = high = math.nan
        panels.append(Panel(run.names[k], x, found[:, k], low, high, level, _SHARE))
    told = [
        f"{run.names[k]}: {share_text(run.shares[0][k])} at first, {share_text(run.shares[-1][k])} at last, "
        f"{share_text(run.proportional[k])} of the tokens"
        for k in run.order
    ]
    return _pictures(run, panels, told, "Share of each source over time, %")


def loss_charts(run: MixtureRun) -> list[Html]:
    """Return the excess, or loss, of each source over time, a panel each."""
    # From where shares begin, so that both pictures have one axis.
    x, level = np.concatenate([[run.start], run.at[run.drawn]]), 0.0 if run.has_references else math.nan
    found = np.vstack([np.full(len(run.names), math.nan), run.excess[run.drawn]])
    panels = [
        Panel(run.names[k], x, found[:, k], math.nan, math.nan, level, _SHARE)
        for k in run.order
        if not np.isnan(run.first[k])
    ]
    told = [
        f"{run.names[k]}: {run.loss_text(run.first[k])} at first, {number_text(run, run.controller.excess[k])} at last"
        for k in run.order
        if not np.isnan(run.first[k])
    ]
    return _pictures(run, panels, told, f"{run.what.capitalize()} of each source over time, {run.unit}")


def moved_chart(run: MixtureRun) -> Html:
    """Return the first and the last excess of each source, side by side."""
    rows = [
        DotRow(run.names[k], {"first": float(run.first[k]), "last update": float(run.controller.excess[k])})
        for k in run.order
        if not np.isnan(run.first[k])
    ]
    told = [
        f"{row.name}: from {number_text(run, row.values['first'])} to {number_text(run, row.values['last update'])}"
        for row in rows
    ]
    return dot_chart(
        rows,
        colours={"last update": COLOURS["robust"], "first": _FIRST},
        title=f"{run.what.capitalize()} of each source, first and last",
        x_label=run.unit,
        alt="; ".join(told),
        # How far it is from 0 matters of an excess.
        reaches=[0.0] if run.has_references else [],
    )


def _pictures(run: MixtureRun, panels: list[Panel], told: list[str], title: str) -> list[Html]:
    """Return panels, a dozen to a picture, so that none is too high for a page."""
    starts = range(0, len(panels), _PANELS)
    return [
        panel_chart(
            panels[k : k + _PANELS],
            title=title if len(starts) == 1 else f"{title} ({k // _PANELS + 1} of {len(starts)})",
            x_ticks=run.x_ticks,
            alt="; ".join(told[k : k + _PANELS]),
        )
        for k in starts
    ]


def _when(run: MixtureRun) -> str:
    return "update" if run.is_numbered else "training time, as the run counts it"
