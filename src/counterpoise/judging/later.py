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
from counterpoise.table import Table, written

Array = NDArray[np.float64]

_PERIODS = (("years", 730.0), ("months", 60.0), ("weeks", 14.0), ("days", 2.0))
"""How a block of rows is called that spans so many days or more."""

PARTS = ("mix", "risks within contexts", "new contexts")
"""What a change of risk is made of."""


def later_rows(times: Any, cuts: int) -> str:
    """Return what later rows are called, by how long a block of them lasts."""
    moments = moments_of(times)
    if moments.dtype.kind != "M":
        return "later rows"
    days = float((moments.max() - moments.min()) / np.timedelta64(1, "D")) / (cuts + 1)
    return f"later {next((name for name, least in _PERIODS if days >= least), 'hours')}"


def agreement(shuffled: Table, forward: Table, later: str) -> str:
    """Say whether the gain that shuffled rows show in the worst plausible mix carries over to later rows.

    Parameters
    ----------
    shuffled, forward : Table
        Summaries of comparisons.
    later : str
        What the later rows are called.
    """
    before, after = (
        interval_in(next(row for row in one.rows() if row["method"] == "robust"), "mix_excess_change")
        for one in (shuffled, forward)
    )
    found = (
        f"the excess risk in the worst plausible mix changes by {in_words(before)} in shuffled rows and by "
        f"{in_words(after)} in {later}"
    )
    if math.isnan(after.lower):
        return f"There are too few {later} to tell whether anything carries over."
    if before.upper < 0.0:
        if after.upper < 0.0:
            return f"The gain seen in shuffled rows carries over to {later}: {found}."
        if after.lower > 0.0:
            return f"The gain seen in shuffled rows turns into a loss in {later}: {found}."
        return f"The gain seen in shuffled rows did not carry over to {later}: {found}."
    if after.upper < 0.0:
        return f"A gain shows in {later} that shuffled rows do not show: {found}."
    if after.lower > 0.0:
        hidden = "" if before.lower > 0.0 else ", which shuffled rows do not show"
        return f"In {later} robustness does harm{hidden}: {found}."
    return f"Neither shuffled rows nor {later} show a gain beyond chance: {found}."


def in_words(change: Interval) -> str:
    """Return a change with its ends, where there are any."""
    value, low, high = (written(one, "+", digits=3) for one in change)
    return f"{value} [{low}, {high}]" if not math.isnan(change.lower) else value


@dataclass(frozen=True, eq=False, repr=False)
class Drift:
    """Why later rows are lost on more, or less, than the rows before them.

    The change of the mean risk, from what held-out rows of the past showed to what later rows took, is split by the
    averages of shares and of risks (Kitagawa's decomposition), so that the parts add up and no order matters.

    Attributes
    ----------
    table : Table
        A row per method: ``before`` and ``after``, the mean risk of past and of later rows; ``change``; and what it is
        made of: ``mix``, other shares of contexts; ``within``, other risks in the same contexts, which is drift, with
        its standard error ``within_error``; ``new``, contexts that the past did not have.
    new_share : float
        Of contexts that the past did not have, among later rows.
    later : str
        What the later rows are called.
    """

    table: Table
    new_share: float
    later: str

    @property
    def words(self) -> str:
        """What changed, in a sentence about the plain model."""
        row = next(row for row in self.table.rows() if row["method"] == "erm")
        parts = [
            f"the mix of contexts accounts for {written(row['mix'], '+', digits=2)}",
            f"risks within contexts (drift) for {written(row['within'], '+', digits=2)} (standard error "
            f"{written(row['within_error'], digits=2)})",
        ]
        if self.new_share > 0.0:
            parts.append(
                f"contexts not seen before ({100.0 * self.new_share:.1f}% of these rows) for "
                f"{written(row['new'], '+', digits=2)}"
            )
        return (
            f"In {self.later} the mean risk of the plain model is {written(row['after'])}, where held-out rows of the "
            f"past showed {written(row['before'])}: {', '.join(parts)}."
        )

    def __repr__(self) -> str:
        return f"{self.words}\n\n{self.table}"


def drift_of(
    losses: Mapping[str, tuple[Array, Array]],
    rows: tuple[NDArray[np.intp], NDArray[np.intp]],
    windows: Sequence[Split],
    held_out: HeldOut,
    later: str,
) -> Drift:
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
    """
    # What a row weighs in the past that the later rows are compared with, all cuts together.
    past = np.zeros(len(held_out.weight))
    for seen, judged in windows:
        share = held_out.weight[judged].sum() / held_out.weight[seen].sum()
        past[seen] += share * held_out.weight[seen]
    known = np.zeros_like(past)
    known[rows[0]] = past[rows[0]]
    before = _among(held_out, np.flatnonzero(known > 0.0), known)
    after = _among(held_out, rows[1], held_out.weight)
    table: list[dict[str, Any]] = []
    new_share = 0.0
    for method, (shuffled, forward) in losses.items():
        every = np.full(len(past), np.nan)
        every[rows[0]] = shuffled
        parts, new_share = _decomposed(before.means(every), after.means(_spread(forward, rows[1], len(past))))
        table.append({"method": method, **parts})
    columns = {name: np.array([row[name] for row in table]) for name in table[0]}
    return Drift(Table(columns), new_share, later)


def _spread(values: Array, at: NDArray[np.intp], size: int) -> Array:
    spread = np.full(size, np.nan)
    spread[at] = values
    return spread


@dataclass(frozen=True, eq=False)
class _Means:
    """The share of every context among some rows, the mean loss there, and its standard error."""

    share: Array
    risk: Array
    error: Array

    @property
    def mean(self) -> float:
        return float(np.sum(self.share * np.where(self.share > 0.0, self.risk, 0.0)))


@dataclass(frozen=True, eq=False)
class _Among:
    """Some rows of a table."""

    held_out: HeldOut
    rows: NDArray[np.intp]
    present: NDArray[np.intp]
    n_contexts: int

    def means(self, losses: Array) -> _Means:
        pairs = self.held_out.pairs(losses[self.rows][:, None])
        share, risk, error = (np.zeros(self.n_contexts) for _ in range(3))
        totals = self.held_out.totals
        share[self.present] = totals / totals.sum()
        risk[self.present], error[self.present] = pairs.mean[:, 0], pairs.error[:, 0]
        return _Means(share, risk, error)


def _among(held_out: HeldOut, rows: NDArray[np.intp], weight: Array) -> _Among:
    contexts = held_out.contexts
    present, codes = np.unique(contexts.codes[rows], return_inverse=True)
    own = replace(contexts.where(rows), labels=contexts.labels[present], codes=codes)
    groups = None if held_out.groups is None else held_out.groups[rows]
    return _Among(HeldOut(own, groups, weight[rows]), rows, present, len(contexts.labels))


def _decomposed(before: _Means, after: _Means) -> tuple[dict[str, float], float]:
    """Return the parts of a change of risk, and the share of contexts that were not there before."""
    new = (after.share > 0.0) & (before.share == 0.0)
    new_share = float(after.share[new].sum())
    known = np.where(new, 0.0, after.share)
    if known.sum() == 0.0:
        known = before.share
        risk = before.risk
    else:
        known, risk = known / known.sum(), after.risk
    # A context that has gone is taken to be as it was.
    risk = np.where(known > 0.0, risk, before.risk)
    there = before.share > 0.0
    mix = float(np.sum(((known - before.share) * 0.5 * (risk + before.risk))[there]))
    both = 0.5 * (known + before.share)
    within = float(np.sum((both * (risk - before.risk))[there]))
    stays = there & (known > 0.0)
    error = math.sqrt(float(np.sum((both**2 * (before.error**2 + after.error**2))[stays])))
    of_known = before.mean + mix + within
    parts = {
        "before": before.mean,
        "after": after.mean,
        "change": after.mean - before.mean,
        "mix": mix,
        "within": within,
        "within_error": error,
        "new": after.mean - of_known,
    }
    return parts, new_share
