"""Which of several models to keep: the simplest, unless another is better on rows held out by more than its error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from counterpoise.inference.excess import HeldOut
from counterpoise.inference.intervals import Interval
from counterpoise.table import Table

Array = NDArray[np.float64]

ONE_ERROR = 0.6827
"""Level of an interval of one standard error to either side."""


@dataclass(frozen=True, eq=False)
class Choice:
    """What was kept, and on what grounds.

    Attributes
    ----------
    chosen : str
        The candidate's name.
    candidates : Table
        A row per candidate, the simplest first: ``candidate``; ``worst_case``, its score in the worst plausible mix of
        the rows held out; ``against``, the candidate that would have been kept without it; ``change``, the difference
        to that one's worst case, corrected for both being the largest of noisy numbers; ``change_low`` and
        ``change_high``, one standard error to either side.
    """

    chosen: str
    candidates: Table

    @property
    def words(self) -> str:
        """The choice in a sentence."""
        rows = {row["candidate"]: row for row in self.candidates.rows()}
        simplest, *others = rows
        if not others:
            return f"{simplest} is the only candidate."
        if self.chosen != simplest:
            row = rows[self.chosen]
            return (
                f"{self.chosen} is kept: on held-out rows its worst case is {row['worst_case']:.4g}, "
                f"{row['change']:+.2g} [{row['change_low']:+.2g}, {row['change_high']:+.2g}] from that of "
                f"{row['against']}."
            )
        last = rows[others[-1]]
        return (
            f"{simplest} is kept: {others[-1]} changes the worst case on held-out rows by {last['change']:+.2g} "
            f"[{last['change_low']:+.2g}, {last['change_high']:+.2g}], which is no gain beyond its error."
        )


def choose(
    held_out: HeldOut, losses: Mapping[str, Array], competitors: Array, same: Mapping[str, int] | None = None
) -> Choice:
    """Keep the simplest candidate, unless another is better in the worst plausible mix by more than its error.

    Parameters
    ----------
    held_out : HeldOut
        With the plausible mixes.
    losses : mapping from name to ndarray of shape (n_samples,)
        Of the candidates on rows held out, the simplest first.
    competitors : ndarray of shape (n_samples, n_competitors)
        What the score of a context is measured against: losses on the same rows, or a risk that is known, or zeros.
    same : mapping from name to column, optional
        The competitor that is the candidate itself.
    """
    same = same or {}
    judge = replace(held_out, confidence=ONE_ERROR)
    names = list(losses)
    kept, against, changes = names[0], [""], [Interval(0.0, 0.0, 0.0)]
    for name in names[1:]:
        change = judge.excess_difference(losses[name], losses[kept], competitors, same.get(kept)).mix
        against.append(kept)
        changes.append(change)
        # NaN where nothing can be judged.
        if change.upper < 0.0:
            kept = name
    estimate, low, high = np.array(changes).T
    return Choice(
        kept,
        Table.of(
            "",
            candidate=np.array(names),
            worst_case=np.array(
                [judge.worst_case(values, competitors, same.get(name)) for name, values in losses.items()]
            ),
            against=np.array(against),
            change=estimate,
            change_low=low,
            change_high=high,
        ),
    )
