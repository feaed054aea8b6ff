"""Why a model loses more, or less, than it did: another mix of contexts, other risks within them, or new contexts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterpoise.table import Table, written

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Means:
    """The share of every context among some rows, the mean loss there, and its standard error."""

    share: Array
    risk: Array
    error: Array

    @property
    def mean(self) -> float:
        """The mean loss of all of these rows."""
        return float(np.sum(self.share * np.where(self.share > 0.0, self.risk, 0.0)))


def decomposed(before: Means, after: Means) -> tuple[dict[str, float], float]:
    """Return the parts of a change of risk, and the share of contexts that were not there before.

    They are split by the averages of shares and of risks (Kitagawa's decomposition), so that the parts add up and no
    order matters.
    """
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
    past : str
        What the rows before them are called.
    method, model : str
        The method that words are about, and what its model is called.
    within : str
        What may have changed risks within contexts.
    """

    table: Table
    new_share: float
    later: str
    past: str = "held-out rows of the past"
    method: str = "erm"
    model: str = "the plain model"
    within: str = "drift"

    @property
    def words(self) -> str:
        """What changed, in a sentence."""
        row = next(row for row in self.table.rows() if row["method"] == self.method)
        whole = (
            f"In {self.later} the mean risk of {self.model} is {written(row['after'])}, where {self.past} showed "
            f"{written(row['before'])}"
        )
        if self.new_share == 1.0:
            return f"{whole}. None of these contexts is among those, so that nothing tells drift from being new."
        error = "unknown" if math.isnan(row["within_error"]) else written(row["within_error"], digits=2)
        parts = [
            f"the mix of contexts accounts for {written(row['mix'], '+', digits=2)}",
            f"risks within contexts ({self.within}) for {written(row['within'], '+', digits=2)} (standard error "
            f"{error})",
        ]
        if self.new_share > 0.0:
            parts.append(
                f"contexts not seen before ({100.0 * self.new_share:.1f}% of these rows) for "
                f"{written(row['new'], '+', digits=2)}"
            )
        return f"{whole}: {', '.join(parts)}."

    def __repr__(self) -> str:
        return f"{self.words}\n\n{self.table}"
