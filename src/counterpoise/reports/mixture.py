"""A run of a mixture controller as a page: how far each source is behind, and which mix follows from that."""

from __future__ import annotations

import math
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoise.exceptions import InvalidInputError
from counterpoise.reports.mixture_pictures import loss_charts, moved_chart, share_charts, worst_chart
from counterpoise.reports.mixture_run import MixtureRun
from counterpoise.reports.mixture_tables import EXPONENTS, loss_table, mix_table, share_table
from counterpoise.reports.mixture_words import headline, held_out, limits, listed, notes
from counterpoise.reports.pages import document
from counterpoise.reports.pages.document import page, versions
from counterpoise.reports.pages.scales import number
from counterpoise.sets import ContextSet

if TYPE_CHECKING:
    from counterpoise.torch.mixture import MixtureController


def save(
    controller: MixtureController,
    path: str | PathLike[str],
    *,
    title: str = "",
    settings: Mapping[str, Any] | None = None,
    unit: str = "nats per token",
    force: bool = False,
) -> Path:
    """Write the page of a run, and return where it is.

    Parameters
    ----------
    controller : MixtureController
        After one update at least.
    title, settings, unit
        See :func:`written`.
    force : bool
        Whether a file that exists may be replaced.
    """
    return document.save(path, lambda: written(controller, title, settings, unit=unit), force)


def written(
    controller: MixtureController,
    title: str = "",
    settings: Mapping[str, Any] | None = None,
    *,
    unit: str = "nats per token",
) -> str:
    """Return what a controller has seen and done as one page of HTML that needs nothing else.

    Parameters
    ----------
    controller : MixtureController
    settings : mapping, optional
        What else the run was made from and with, listed at the end.
    unit : str
        Of losses.
    """
    if not controller.n_updates:
        raise InvalidInputError("there is nothing to report: the controller has had no update. Call update first.")
    run = MixtureRun(controller, unit)
    several = len(run.names) > 1
    return page(
        "reports/mixture.html",
        title or "The mix of sources in a training run",
        {**_facts(run), **(settings or {}), **versions("numpy", "torch")},
        run=run,
        headline=headline(run),
        notes=notes(run),
        several=several,
        worst_chart=worst_chart(run) if several and run.n_updates > 1 else "",
        share_charts=share_charts(run) if several else [],
        loss_charts=loss_charts(run),
        shares=share_table(run),
        losses=loss_table(run),
        held_out=held_out(run),
        moved=moved_chart(run) if several and run.n_updates > 1 else "",
        mixes=mix_table(run) if several else "",
        worst_mix=listed(run, run.worst.distribution),
        limits=limits(run),
        exponents=" and ".join(f"{power:g} (temperature {1.0 / power:.3g})" for power in EXPONENTS),
    )


def _facts(run: MixtureRun) -> dict[str, Any]:
    control = run.controller
    times = {} if run.is_numbered else {"first and last update at": f"{number(run.at[0])} and {number(run.at[-1])}"}
    spent = {} if control.budget is None else {"budget": f"{number(control.budget)} tokens"}
    if control.budget is not None:
        spent |= {"epochs at most": f"{control.max_epochs:g}", "mixes allowed in training": _where(control.allowed)}
    return {
        "updates": f"{run.n_updates:,}",
        **times,
        "sources": f"{len(run.names):,} with {number(float(control.tokens.sum()))} tokens",
        "plausible mixes": _where(control.mixes),
        **spent,
        "step size": f"{control.step_size:g}",
        "sharpness": "∞" if math.isinf(control.sharpness) else f"{control.sharpness:g}",
    }


def _where(mixes: ContextSet) -> str:
    return "every mix" if mixes.is_simplex else f"every mix {mixes.where}"
