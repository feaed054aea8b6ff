"""What came later beside what shuffled rows promised: whether gains carry over, and what changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.estimators.learners import Split
from counterpoise.inference.excess import HeldOut
from counterpoise.inference.intervals import Interval, interval_in
from counterpoise.inference.windows import moments_of
from counterpoise.judging.decomposition import Drift, Means, decomposed
from counterpoise.table import Table, written

Array = NDArray[np.float64]

_PERIODS = (("years", 730.0), ("months", 60.0), ("weeks", 14.0), ("days", 2.0))
"""How a block of rows is called that spans so many days or more."""


def later_rows(times: Any, cuts: int) -> str:
    """Return what later rows are called, by how long a block of them lasts."""
    moments = moments_of(times)
    if moments.dtype.kind != "M":
        return "later rows"
    days = float((moments.max() - moments.min()) / np.timedelta64(1, "D")) / (cuts + 1)
    return f"later {next((name for name, least in _PERIODS if days >= least), 'hours')}"


def agreement(
    shuffled: Table, forward: Table, later: str, level: str, small: float = 0.0, unjudged: bool = False
) -> str:
    """Say whether the gain that shuffled rows show in the worst plausible mix carries over to later rows.

    Parameters
    ----------
    shuffled, forward : Table
        Summaries of comparisons.
    later : str
        What the later rows are called.
    level : str
        Of the intervals.
    small : float
        An excess risk that does not matter.
    unjudged : bool
        Whether some context cannot be judged by later rows; the gain may have been there.
    """
    before, after = (
        interval_in(next(row for row in one.rows() if row["method"] == "robust"), "mix_excess_change")
        for one in (shuffled, forward)
    )
    found = (
        f"the excess risk in the worst plausible mix changes by {in_words(before)} in shuffled rows and by "
        f"{in_words(after)} in {later} ({level} intervals)"
    )
    if math.isnan(after.lower):
        return f"Too little of the {later} can be judged to tell whether anything carries over."
    if before.upper < 0.0:
        if after.upper < 0.0:
            return f"The gain seen in shuffled rows carries over to {later}: {found}."
        if after.lower > 0.0:
            return f"The gain seen in shuffled rows turns into a loss in {later}: {found}."
        # Later rows that cannot tell do not contradict; those must that are called to disagree.
        apart = math.hypot(before.upper - before.lower, after.upper - after.lower) / 2.0
        if after.estimate - before.estimate > apart and not unjudged:
            return f"The gain seen in shuffled rows did not carry over to {later}: {found}."
        return f"In {later} it cannot be told whether the gain seen in shuffled rows carries over: {found}."
    if after.upper < 0.0:
        return f"A gain shows in {later} that shuffled rows do not show: {found}."
    if after.lower > 0.0 and after.upper <= small:
        return f"In {later} robustness costs a little, less than matters in practice: {found}."
    if after.lower > 0.0:
        hidden = "" if before.lower > 0.0 else ", which shuffled rows do not show"
        return f"In {later} robustness does harm{hidden}: {found}."
    return f"Neither shuffled rows nor {later} prove a gain: {found}."


def in_words(change: Interval) -> str:
    """Return a change with its ends, where there are any."""
    value, low, high = (written(one, "+", digits=3) for one in change)
    return f"{value} [{low}, {high}]" if not math.isnan(change.lower) else value


def drift_of(
    losses: Mapping[str, tuple[Array, Array]],
    rows: tuple[NDArray[np.intp], NDArray[np.intp]],
    windows: Sequence[Split],
    held_out: HeldOut,
    later: str,
) -> Drift | None:
    """Split the change of risk from past rows to later rows into the mix, risks within contexts, and new contexts.

    Parameters
    ----------
    losses : mapping from method to a pair of arrays
        On shuffled rows held out, and on later rows.
    rows : pair of arrays
        Which rows these losses are of.
    windows : sequence of pairs of index arrays
        The past and the later rows of every cut. A row of the past counts as often as later rows are compared with it.
    held_out : HeldOut
        All rows.

    Returns
    -------
    Drift or None
        None where no row of the past was held out.
    """
    # What a row weighs in the past that the later rows are compared with, all cuts together.
    past = np.zeros(len(held_out.weight))
    for seen, judged in windows:
        share = held_out.weight[judged].sum() / held_out.weight[seen].sum()
        past[seen] += share * held_out.weight[seen]
    known = np.zeros_like(past)
    known[rows[0]] = past[rows[0]]
    if not known.any():
        return None
    before = _among(held_out, np.flatnonzero(known > 0.0), known)
    after = _among(held_out, rows[1], held_out.weight)
    table: list[dict[str, Any]] = []
    new_share = 0.0
    for method, (shuffled, forward) in losses.items():
        every = np.full(len(past), np.nan)
        every[rows[0]] = shuffled
        parts, new_share = decomposed(before.means(every), after.means(_spread(forward, rows[1], len(past))))
        table.append({"method": method, **parts})
    columns = {name: np.array([row[name] for row in table]) for name in table[0]}
    return Drift(Table(columns), new_share, later, within="drift, and that models of the past saw fewer rows")


def _spread(values: Array, at: NDArray[np.intp], size: int) -> Array:
    spread = np.full(size, np.nan)
    spread[at] = values
    return spread


@dataclass(frozen=True, eq=False)
class _Among:
    """Some rows of a table."""

    held_out: HeldOut
    rows: NDArray[np.intp]
    present: NDArray[np.intp]
    n_contexts: int

    def means(self, losses: Array) -> Means:
        pairs = self.held_out.pairs(losses[self.rows][:, None])
        share, risk, error = (np.zeros(self.n_contexts) for _ in range(3))
        totals = self.held_out.totals
        share[self.present] = totals / totals.sum()
        # One unit does not show how much it might vary; at least as much as any other context's mean, say.
        known = pairs.n_units > 1
        largest = pairs.error[known, 0].max() if known.any() else np.nan
        risk[self.present], error[self.present] = pairs.mean[:, 0], np.where(known, pairs.error[:, 0], largest)
        return Means(share, risk, error)


def _among(held_out: HeldOut, rows: NDArray[np.intp], weight: Array) -> _Among:
    contexts = held_out.contexts
    present, codes = np.unique(contexts.codes[rows], return_inverse=True)
    own = replace(contexts.where(rows), labels=contexts.labels[present], codes=codes)
    groups = None if held_out.groups is None else held_out.groups[rows]
    return _Among(HeldOut(own, groups, weight[rows]), rows, present, len(contexts.labels))
