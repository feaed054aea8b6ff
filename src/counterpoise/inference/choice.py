"""Which of several models to keep: the simplest, unless another is better on rows held out by more than its error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.inference.differences import change_and_error
from counterpoise.inference.excess import HeldOut
from counterpoise.inference.intervals import Excess, worst_estimate
from counterpoise.table import Table, written

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Choice:
    """What was kept, and on what grounds.

    Attributes
    ----------
    chosen : str
        The candidate's name.
    candidates : Table
        A row per candidate, the simplest first: ``candidate``; ``worst_case``, an estimate of its score in the worst
        plausible mix; ``against``, the candidate that was kept until then; ``change``, by how much the worst case is
        higher than that one's; ``error``, the standard error of the change.
    """

    chosen: str
    candidates: Table

    @property
    def reason(self) -> str:
        """Why, as a clause."""
        return self.because({})

    def because(self, names: Mapping[str, str], where: str = "on held-out rows") -> str:
        """Return the reason, with other names for candidates and for the rows that judged them."""
        simplest, *others = self.candidates.rows()
        if not others:
            return "there is no other candidate"
        row = next((row for row in others if row["candidate"] == self.chosen), others[-1])
        one, other = (names.get(row[name], row[name]) for name in ("candidate", "against"))
        if np.isnan(row["change"]):
            return f"{where} no other can be judged"
        if row["change"] == row["error"] == 0.0:
            return f"{one} is no other model {where}"
        found = (
            f"{where} the worst case of {one} is {written(abs(row['change']), digits=2)} "
            f"{'below' if row['change'] < 0 else 'above'} that of {other}, with a standard error of "
            f"{written(row['error'], digits=2)}"
        )
        return found if self.chosen != simplest["candidate"] else f"{found}, which is no gain beyond its error"

    @property
    def words(self) -> str:
        """The choice in a sentence."""
        return f"{self.chosen} is kept: {self.reason}."


def choose(held_out: HeldOut, losses: Mapping[str, Array], competitors: Mapping[str, Array]) -> Choice:
    """Keep the simplest candidate, unless another is better in the worst plausible mix by more than its error.

    A change has to stand out by its standard error whether or not worst cases are corrected for being the largest of
    noisy numbers: uncorrected, a candidate with one peak looks better than one whose contexts tie; corrected, one whose
    peak may be chance looks better than it is.

    Parameters
    ----------
    held_out : HeldOut
        With the plausible mixes.
    losses : mapping from name to ndarray of shape (n_samples,)
        Of the candidates on rows held out, the simplest first.
    competitors : mapping from name to ndarray of shape (n_samples,)
        What the score of a context is measured against: losses of other models on the same rows, a risk that is known,
        or zeros. For excess risk the candidates should be among them, under their names: what one of them reaches in a
        context is possible there.
    """
    # Where a search ends where it began, two candidates are one model, which is judged once.
    models = {name: _first_alike(name, losses) for name in losses}
    competitors = {name: one for name, one in competitors.items() if models.get(name, name) == name}
    columns, position = np.column_stack(list(competitors.values())), {name: k for k, name in enumerate(competitors)}
    distinct = [name for name in losses if models[name] == name]
    same = [position.get(name) for name in distinct]
    drawn = dict(zip(distinct, held_out.drawn([losses[name] for name in distinct], columns, same), strict=True))
    return choice_of(held_out, {name: drawn[models[name]] for name in losses})


def choice_of(held_out: HeldOut, excess: Mapping[str, Excess]) -> Choice:
    """Choose by scores of candidates that were drawn together, the simplest first; see :func:`choose`.

    Candidates that are one model have one score between them.
    """
    kept = next(iter(excess))
    judged = bool(excess[kept].judged.any())
    worst = held_out.worst_mix(excess[kept])
    models = {name: next(other for other in excess if excess[other] is excess[name]) for name in excess}
    values = {name: worst_estimate(excess[name], worst) if judged else math.nan for name in set(models.values())}
    estimate = {name: values[models[name]] for name in excess}
    rows: list[dict[str, Any]] = []
    for name in excess:
        change = error = 0.0 if judged else math.nan
        if judged and models[name] != kept:
            change, error = change_and_error(excess[name], excess[kept], worst)
        # Zero without a sign.
        change = max(change, estimate[name] - estimate[kept]) + 0.0 if judged else change
        rows.append({"against": kept if rows else "", "change": change, "error": error})
        if change + error < 0.0:
            kept = models[name]
    return Choice(
        kept,
        Table.of(
            "",
            candidate=np.array(list(excess)),
            worst_case=np.array(list(estimate.values())),
            **{name: np.array([row[name] for row in rows]) for name in rows[0]},
        ),
    )


def _first_alike(name: str, losses: Mapping[str, Array]) -> str:
    """Return the first candidate that has the same losses."""
    return next(other for other, values in losses.items() if np.array_equal(values, losses[name]))
