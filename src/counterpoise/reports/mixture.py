"""A run of a mixture controller as a page: how far each source is behind, and which mix follows from that."""

from __future__ import annotations

import math
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import objects
from counterpoise.exceptions import InvalidInputError
from counterpoise.reports.methods import COLOURS
from counterpoise.reports.mixture_run import MixtureRun
from counterpoise.reports.pages import document
from counterpoise.reports.pages.document import page, table, versions
from counterpoise.reports.pages.lines import Line, line_chart
from counterpoise.reports.pages.panels import Panel, panel_chart
from counterpoise.reports.pages.rows import DotRow, dot_chart
from counterpoise.reports.pages.scales import extent, fixed, labelled, number, ticks
from counterpoise.reports.pages.words import Html
from counterpoise.sets import ContextSet
from counterpoise.table import Table

if TYPE_CHECKING:
    from counterpoise.torch.mixture import MixtureController

Array = NDArray[np.float64]

EXPONENTS = (0.7, 0.3)
"""Powers of tokens by which multilingual models are often sampled: 1 is proportional, 0 uniform."""

_PANELS = 12
"""Sources in one picture."""

_FAR = 3.0
"""A range that reaches so many times higher than all else in a panel is not drawn: the share would be flat."""

_NOTHING = 1e-5
"""A least share below this is as good as none."""

_AHEAD = 0.01
"""How far a source is ahead of its reference, per mean loss, before that is said."""

_NAMED = 5
"""Sources that a sentence names."""

_SHARE, _FIRST = "#00539b", "#767676"


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
        headline=_headline(run),
        notes=_notes(run),
        several=several,
        worst_chart=_worst_chart(run) if several and run.n_updates > 1 else "",
        share_charts=_share_charts(run) if several else [],
        loss_charts=_loss_charts(run),
        shares=_shares(run),
        losses=_losses(run),
        held_out=_held_out(run),
        moved=_moved_chart(run) if several and run.n_updates > 1 else "",
        mixes=_mixes(run) if several else "",
        worst_mix=_listed(run, run.worst.distribution),
        limits=_limits(run),
        exponents=" and ".join(f"{power:g} (temperature {1.0 / power:.3g})" for power in EXPONENTS),
    )


def _headline(run: MixtureRun) -> str:
    """Return where the run is, where it was, and who is furthest behind."""
    n, unit = run.n_updates, run.unit
    after = f"After {n:,} update{'s' * (n != 1)}"
    now, then = float(run.worst.value), run.worst_at(0)
    before = n > 1 and math.isfinite(then)
    single = len(run.names) == 1
    reached = "the references" if now < 0.0 else "what can be reached"
    place = f"the reference of {_name(run, 0)}, the only source" if single else reached
    where = "" if single else f" in {_worst_words(run.controller.mixes)}"
    if not run.has_references:
        of = f" of {_name(run, 0)}, the only source," if single else ""
        was = f"; it was {run.loss_text(then)} at the first update" if before else ""
        first = f"{after} the held-out loss{of} is {run.loss_text(now)} {unit}{where}{was}."
    else:
        side = "ahead of" if now < 0.0 else "behind"
        was = f"{run.loss_text(abs(then))} {'ahead' if then < 0.0 else 'behind'}" if before else ""
        was = f"; at the first update it was {was}" if before else ""
        first = f"{after} the model is {run.loss_text(abs(now))} {unit} {side} {place}{where}{was}."
    return " ".join(part for part in (first, _ends(run)) if part)


def _worst_words(mixes: ContextSet) -> str:
    if mixes.is_point:
        return "the only plausible mix of sources"
    return "the worst mix of sources" if mixes.is_simplex else "the worst plausible mix of sources"


def _ends(run: MixtureRun) -> str:
    """Return which sources are furthest behind and nearest."""
    known = [k for k in run.order if not math.isnan(run.controller.excess[k])]
    if len(known) < 2:
        return ""
    worst, best = known[0], known[-1]
    a, b = (float(run.controller.excess[k]) for k in (worst, best))
    if not run.has_references:
        return (
            f"{_name(run, worst)} has the highest loss ({run.loss_text(a)}), {_name(run, best)} the lowest "
            f"({run.loss_text(b)})."
        )
    if a < 0.0:
        return (
            f"{_name(run, worst)} is the least ahead (by {run.loss_text(-a)}), {_name(run, best)} the most (by "
            f"{run.loss_text(-b)})."
        )
    nearest = f"is nearest ({run.loss_text(b)})" if b >= 0.0 else f"is ahead of its reference (by {run.loss_text(-b)})"
    return f"{_name(run, worst)} is furthest behind ({run.loss_text(a)}), {_name(run, best)} {nearest}."


def _name(run: MixtureRun, source: int) -> str:
    return f"{run.names[source]:.60}"


def _notes(run: MixtureRun) -> list[str]:
    """Return what a reader has to know before anything else is believed."""
    notes = []
    if not run.has_references:
        notes.append(
            "No reference losses were given, so that losses are compared, and not excess: what is hard to predict for "
            "every model looks furthest behind, and gets larger shares. Pass reference_losses to count from what can "
            "be reached in each source."
        )
    ahead = [k for k in run.order if run.controller.excess[k] < -_AHEAD * np.nanmean(run.controller.losses)]
    if run.has_references and ahead:
        are, it = ("is", "its reference") if len(ahead) == 1 else ("are", "their references")
        notes.append(
            f"{_several(run, ahead)} {are} ahead of {it}: more can be reached than was thought. Find references anew, "
            "with a longer training or a larger model."
        )
    missing = [k for k in run.order if math.isnan(run.controller.losses[k])]
    if missing:
        are = "counts" if len(missing) == 1 else "count"
        have = "has" if len(missing) == 1 else "have"
        notes.append(
            f"{_several(run, missing)} {have} no held-out loss in the last update, and {are} as the others on average."
        )
    if run.references_changed:
        notes.append(
            "References, or the plausible mixes, were changed during the run. All excess on this page counts from what "
            "holds now; the shares followed what held then."
        )
    held = [k for k in run.order if run.caps[k] < 1.0 and run.shares[-1][k] >= run.caps[k] * (1.0 - 1e-6)]
    if held:
        are = "is at the largest share" if len(held) == 1 else "are at the largest shares"
        notes.append(
            f"{_several(run, held)} {are} that the budget allows: {run.controller.max_epochs:g} "
            f"epoch{'s' * (run.controller.max_epochs != 1.0)}."
        )
    return notes


def _several(run: MixtureRun, sources: list[int]) -> str:
    """Return sources in a sentence, the first few by name."""
    named = [_name(run, k) for k in sources[:_NAMED]]
    more = len(sources) - len(named)
    rest = [f"{more} more"] if more else []
    *before, last = [*named, *rest]
    return f"{_comma(named).join(before)} and {last}" if before else last


def _comma(names: list[str]) -> str:
    """Return what is put between names, some of which may have commas within."""
    return "; " if any("," in name for name in names) else ", "


def _worst_chart(run: MixtureRun) -> Html:
    """Return the excess in the worst plausible mix over time."""
    values = [run.worst_at(k) for k in run.drawn]
    # How far it is from 0 matters of an excess; no loss is near it.
    reach = extent([*values, 0.0] if run.has_references else values)
    return line_chart(
        [Line("worst mix", run.at[run.drawn], values, colour=COLOURS["robust"])],
        title=f"{run.what.capitalize()} in {_worst_words(run.controller.mixes)}",
        x_label=_when(run),
        y_label=run.unit,
        x_ticks=run.x_ticks,
        y_ticks=labelled(ticks(*reach)),
        alt=f"{_number(run, values[0])} at the first update, {_number(run, values[-1])} at the last.",
    )


def _when(run: MixtureRun) -> str:
    return "update" if run.is_numbered else "training time, as the run counts it"


def _number(run: MixtureRun, value: float) -> str:
    return "not known" if math.isnan(value) else run.loss_text(value)


def _share_charts(run: MixtureRun) -> list[Html]:
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
        f"{run.names[k]}: {_share(run.shares[0][k])} at first, {_share(run.shares[-1][k])} at last, "
        f"{_share(run.proportional[k])} of the tokens"
        for k in run.order
    ]
    return _pictures(run, panels, told, "Share of each source over time, %")


def _loss_charts(run: MixtureRun) -> list[Html]:
    # From where shares begin, so that both pictures have one axis.
    x, level = np.concatenate([[run.start], run.at[run.drawn]]), 0.0 if run.has_references else math.nan
    found = np.vstack([np.full(len(run.names), math.nan), run.excess[run.drawn]])
    panels = [
        Panel(run.names[k], x, found[:, k], math.nan, math.nan, level, _SHARE)
        for k in run.order
        if not np.isnan(run.first[k])
    ]
    told = [
        f"{run.names[k]}: {run.loss_text(run.first[k])} at first, {_number(run, run.controller.excess[k])} at last"
        for k in run.order
        if not np.isnan(run.first[k])
    ]
    return _pictures(run, panels, told, f"{run.what.capitalize()} of each source over time, {run.unit}")


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


def _limits(run: MixtureRun) -> str:
    """Return what keeps shares within their ranges, as the beginning of a clause; empty where nothing does."""
    limits = ["the set of plausible mixes"] * (not run.controller.mixes.is_simplex)
    limits += ["the budget"] * bool((run.caps < 1.0).any())
    return f"{' and '.join(limits)} allow{'s' * (len(limits) == 1)}" if limits else ""


def _shares(run: MixtureRun) -> Html:
    """Return every source's share in the mixes that one might train on."""
    order, budget = run.order, run.controller.budget
    cells: dict[str, NDArray[Any]] = {
        "source": objects([run.names[k] for k in order]),
        "tokens": run.controller.tokens[order],
    }
    if len(order) > 1:
        cells |= {name: mix[order] for name, mix in _choices(run).items()}
        cells["allowed"] = objects([_range(*run.allowed[k]) for k in order])
    if budget is not None:
        cells["epochs"] = (run.mean * budget / run.controller.tokens)[order]
    return table(
        Table(cells),
        left=["source"],
        formats={"tokens": number, "epochs": _epochs, **dict.fromkeys(_choices(run), _share)},
        headings={"mean of the run": "mean", "epochs": "epochs"},
        caption="Shares" if len(order) > 1 else "Tokens",
    )


def _choices(run: MixtureRun) -> dict[str, Array]:
    """Return the mixes that one might train on, by name."""
    return {
        "mean of the run": run.mean,
        "last": run.shares[-1],
        "proportional": run.proportional,
        **{f"tempered, {power:g}": run.tempered(power) for power in EXPONENTS},
        "uniform": np.full(len(run.names), 1.0 / len(run.names)),
    }


def _share(share: float) -> str:
    """Return a share of which something is left to read where it is small."""
    if share < _NOTHING:
        return "< 0.001%" if share > 0.0 else "0%"
    return f"{share:.1%}" if share >= 0.01 else f"{share:.2%}" if share >= 0.001 else f"{number(100.0 * share, 2)}%"


def _epochs(epochs: float) -> str:
    return fixed(epochs, 2) if 0.01 <= epochs < 100.0 else number(epochs)


def _range(low: float, high: float) -> str:
    if low < _NOTHING:
        return "any" if high >= 1.0 else f"up to\u00a0{_share(high)}"
    ends = [_share(end) for end in (low, high)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to\u00a0{ends[1]}"


def _losses(run: MixtureRun) -> Html:
    """Return every source's losses, from what they count, and how they moved."""
    order, control = run.order, run.controller
    cells: dict[str, NDArray[Any]] = {"source": objects([run.names[k] for k in order]), "loss": control.losses[order]}
    if run.has_references:
        cells |= {"reference": control.references[order], "excess": control.excess[order]}
    if run.n_updates > 1:
        cells |= {"first": run.first[order], "change": (control.excess - run.first)[order]}
    numbers = [name for name in cells if name != "source"]
    if len(order) > 1:
        cells["worst"] = run.worst.distribution[order]
    headings = {
        "loss": "held-out loss",
        "reference": "can be reached",
        "first": f"first {run.what}",
        "worst": "share in the worst mix",
    }
    return table(
        Table(cells),
        left=["source"],
        formats={**dict.fromkeys(numbers, run.loss_text), "worst": _share},
        headings=headings,
        caption=f"Held-out losses, {run.unit}",
    )


def _moved_chart(run: MixtureRun) -> Html:
    """Return the first and the last excess of each source, side by side."""
    rows = [
        DotRow(run.names[k], {"first": float(run.first[k]), "last update": float(run.controller.excess[k])})
        for k in run.order
        if not np.isnan(run.first[k])
    ]
    told = [
        f"{row.name}: from {_number(run, row.values['first'])} to {_number(run, row.values['last update'])}"
        for row in rows
    ]
    return dot_chart(
        rows,
        colours={"last update": COLOURS["robust"], "first": _FIRST},
        title=f"{run.what.capitalize()} of each source, first and last",
        x_label=run.unit,
        alt="; ".join(told),
    )


def _mixes(run: MixtureRun) -> Html:
    """Return how the model does if the mix at use is one of these."""
    control = run.controller
    choices = {**_choices(run), "worst plausible": run.worst.distribution}
    mixes = list(choices.values())
    cells: dict[str, NDArray[Any]] = {
        "mix": objects(list(choices)),
        "now": np.array([float(mix @ run.scores) for mix in mixes]),
    }
    if run.n_updates > 1 and not np.isnan(run.excess[0]).any():
        then = [float(mix @ run.excess[0]) for mix in mixes[:-1]]
        # The worst mix was another one then.
        cells["first"] = np.array([*then, run.worst_at(0)])
    # A worst mix lies on the edge of the set, where rounding would decide.
    if not control.mixes.is_simplex:
        plausible = [control.mixes.contains(mix) for mix in mixes[:-1]]
        cells["plausible"] = objects([*("yes" if one else "no" for one in plausible), "yes"])
    if control.budget is not None:
        cells["epochs"] = objects([*(_most_epochs(run, mix) for mix in mixes[:-1]), None])
    return table(
        Table(cells),
        left=["mix"],
        formats=dict.fromkeys(("now", "first"), run.loss_text),
        headings={
            "now": f"mean {run.what}",
            "first": "at the first update",
            "plausible": "plausible at use",
            "epochs": "most epochs to train on it",
        },
        caption=f"The present model under other mixes at use, {run.unit}",
    )


def _most_epochs(run: MixtureRun, mix: Array) -> str:
    """Return how often the source would be read that is read most, if the budget were spent on a mix."""
    assert run.controller.budget is not None
    epochs = mix * run.controller.budget / run.controller.tokens
    most = int(epochs.argmax())
    return f"{_epochs(float(epochs[most]))} ({run.names[most]:.40})"


def _listed(run: MixtureRun, mix: Array) -> str:
    """Return a mix in words, the largest shares first."""
    order = [int(k) for k in np.argsort(-mix, kind="stable") if mix[k] > 0.0]
    named = [f"{_share(float(mix[k]))} {_name(run, k)}" for k in order[:_NAMED]]
    rest = float(mix[order[_NAMED:]].sum())
    return _comma(named).join([*named, *([f"{_share(rest)} of {len(order) - _NAMED} others"] if rest > 0.0 else [])])


def _held_out(run: MixtureRun) -> str:
    """Return how much held-out text there was, where anybody said so."""
    tokens = run.controller.held_out_tokens
    seen = tokens[tokens > 0.0]
    if seen.max() <= 1.0:
        return ""
    each = [number(float(one)) for one in (seen.min(), seen.max())]
    span = each[0] if each[0] == each[1] else f"{each[0]} to {each[1]}"
    return f", {span} tokens of each source" if len(run.names) > 1 else f", {span} tokens"


def _facts(run: MixtureRun) -> dict[str, Any]:
    control = run.controller
    times = {} if run.is_numbered else {"first and last update at": f"{number(run.at[0])} and {number(run.at[-1])}"}
    spent = {} if control.budget is None else {"budget": f"{number(control.budget)} tokens"}
    if control.budget is not None:
        spent |= {"epochs at most": f"{control.max_epochs:g}", "mixes to sample by": _where(control.allowed)}
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
