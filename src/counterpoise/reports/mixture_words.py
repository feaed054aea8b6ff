"""What the page of a mixture controller says of its run, in words."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from counterpoise.reports.mixture_run import MixtureRun
from counterpoise.reports.pages.scales import number
from counterpoise.sets import ContextSet

Array = NDArray[np.float64]

NOTHING = 1e-5
"""A share below this is as good as none."""

_AHEAD = 0.01
"""How far a source is ahead of its reference, per mean loss, before that is said."""

_NAMED = 5
"""Sources that a sentence names."""


def headline(run: MixtureRun) -> str:
    """Return where the run is, where it was, and who is furthest behind."""
    n, unit = run.n_updates, run.unit
    after = f"After {n:,} update{'s' * (n != 1)}"
    now, then = float(run.worst.value), run.worst_at(0)
    before = n > 1 and math.isfinite(then)
    single = len(run.names) == 1
    reached = "the references" if now < 0.0 else "what can be reached"
    place = f"the reference of {_name(run, 0)}, the only source" if single else reached
    where = "" if single else f" in {worst_words(run.controller.mixes)}"
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


def worst_words(mixes: ContextSet) -> str:
    """Return what the worst case is over."""
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


def notes(run: MixtureRun) -> list[str]:
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
            f"{_several(run, ahead)} {are} ahead of {it}: more can be reached than was thought. Estimate references "
            "again, with a longer training or a larger model."
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
    epochs = f"the budget allows: {run.controller.max_epochs:g} epoch{'s' * (run.controller.max_epochs != 1.0)}"
    of_budget = run.caps <= run.allowed[:, 1] * (1.0 + 1e-6)
    for limit, capped in ((epochs, of_budget), ("the set of plausible mixes allows", ~of_budget)):
        low, high = run.allowed.T
        held = [k for k in run.order if capped[k] and low[k] < high[k] < 1.0 and _is_at(run.shares[-1][k], high[k])]
        if held:
            are = "is held at the largest share" if len(held) == 1 else "are held at the largest shares"
            notes.append(f"{_several(run, held)} {are} that {limit}.")
    return notes


def _is_at(share: float, limit: float) -> bool:
    return share >= limit * (1.0 - 1e-6)


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


def listed(run: MixtureRun, mix: Array) -> str:
    """Return a mix in words, the largest shares first."""
    order = [int(k) for k in np.argsort(-mix, kind="stable") if mix[k] > 0.0]
    named = [f"{share_text(float(mix[k]))} {_name(run, k)}" for k in order[:_NAMED]]
    rest = float(mix[order[_NAMED:]].sum())
    others = [f"{share_text(rest)} of {len(order) - _NAMED} others"] if rest > 0.0 else []
    return _comma(named).join([*named, *others])


def limits(run: MixtureRun) -> str:
    """Return what keeps shares within their ranges, as the beginning of a clause; empty where nothing does."""
    limits = ["the set of plausible mixes"] * (not run.controller.mixes.is_simplex)
    limits += ["the budget"] * bool((run.caps < 1.0).any())
    return f"{' and '.join(limits)} allow{'s' * (len(limits) == 1)}" if limits else ""


def held_out(run: MixtureRun) -> str:
    """Return how much held-out text there was, where anybody said so."""
    tokens = run.controller.held_out_tokens
    seen = tokens[tokens > 0.0]
    if seen.max() <= 1.0:
        return ""
    each = [number(float(one)) for one in (seen.min(), seen.max())]
    span = each[0] if each[0] == each[1] else f"{each[0]} to {each[1]}"
    return f", {span} tokens of each source" if len(run.names) > 1 else f", {span} tokens"


def number_text(run: MixtureRun, value: float) -> str:
    """Return a loss, or that there is none."""
    return "not known" if math.isnan(value) else run.loss_text(value)


def share_text(share: float) -> str:
    """Return a share of which something is left to read where it is small."""
    if share < NOTHING:
        return "< 0.001%" if share > 0.0 else "0%"
    return f"{share:.1%}" if share >= 0.01 else f"{share:.2%}" if share >= 0.001 else f"{number(100.0 * share, 2)}%"
