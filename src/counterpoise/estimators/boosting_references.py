"""Plain boosters beside the robust one: one for all contexts and one for each, and what they reach on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from counterpoise.contexts import Contexts
from counterpoise.core.problem import given_references
from counterpoise.estimators.boosters import Array, Grows, Recipe, Run
from counterpoise.estimators.boosting_rounds import Split

BoostingReference = Literal["cross-fit", "pooled", "null"]


@dataclass(frozen=True, eq=False)
class PlainRun:
    """A booster under the weights of the data, on rows held out.

    Attributes
    ----------
    run : Grows
    split : Split
    risks : ndarray of shape (n_rounds, n_contexts)
        After each round.
    kept : int
        The number of rounds that count: all, or with patience those after which the mean loss was least.
    losses : ndarray of shape (n_held,)
        Of the rows held out, after these rounds.
    risks_without : ndarray of shape (n_rounds, n_folds, n_contexts)
        After each round, those of all rows but a fold's; see :meth:`Split.means_without`.
    """

    run: Grows
    split: Split
    risks: Array
    kept: int
    losses: Array
    risks_without: Array

    @classmethod
    def of(cls, library: type[Run], recipe: Recipe, split: Split, n_rounds: int, patience: int | None) -> PlainRun:
        """Boost, and look at the rows held out after every round."""
        run = split.start(library, recipe, plain=True)
        risks, without, means, best = [], [], [], 0
        kept = np.zeros(0)
        for n in range(n_rounds):
            run.advance()
            losses = split.losses(run.held_predictions())
            risks.append(split.means(losses))
            without.append(split.means_without(losses))
            means.append(float(np.average(losses, weights=split.held.weight)))
            if patience is None or n == 0 or means[n] < means[best]:
                best, kept = n, losses
            elif n - best >= patience:
                break
        return cls(run, split, np.array(risks), best + 1, kept, np.array(without))

    @property
    def reached(self) -> Array:
        """The risk of each context after the rounds that count."""
        return self.risks[self.kept - 1]

    @property
    def outlook(self) -> Array:
        """By how much the risks change from each round that counts to the last one."""
        return np.asarray(self.reached - self.risks[: self.kept])


@dataclass(frozen=True, eq=False)
class References:
    """What risks are measured against.

    Attributes
    ----------
    risks : ndarray of shape (n_contexts,)
    competitors : mapping from name to ndarray of shape (n_held,)
        Losses of rows held out, of whose means the risks are the least, ``"plain"`` those of the plain booster of all
        contexts; or the risks themselves, where they are known.
    own : ndarray of shape (n_held,) or None
        Losses of each context's own booster, inf where it has none; None where there are no such boosters.
    """

    risks: Array
    competitors: Mapping[str, Array]
    own: Array | None = None


def references_of(
    reference: Any,
    contexts: Contexts,
    library: type[Run],
    recipe: Recipe,
    pooled: PlainRun,
    n_rounds: int,
    patience: int | None,
) -> References:
    """Return what risks are measured against.

    Parameters
    ----------
    reference : {"cross-fit", "pooled", "null"} or mapping from context to risk
        The lower of the plain booster of all contexts and one for each; the first of these; one constant prediction; or
        risks that are known.
    pooled : PlainRun
        Of all contexts.
    """
    split = pooled.split
    if not isinstance(reference, str):
        risks = given_references(reference, contexts)
        return References(risks, {"reference": risks[split.held.codes]})
    if reference == "pooled":
        return References(pooled.reached, {"plain": pooled.losses})
    if reference == "null":
        constant = split.loss.constant(split.train.y, split.train.weight)
        losses = split.losses(np.broadcast_to(constant, (len(split.held.y), *constant.shape)))
        return References(split.means(losses), {"null": losses})
    if split.n_contexts == 1:
        return References(pooled.reached, {"plain": pooled.losses})
    own = np.full(len(split.held.y), np.inf)
    for c in range(split.n_contexts):
        part = split.of_context(c)
        # From no rows, or from one class, there is nothing to learn.
        if not part.can_learn:
            continue
        # All rows were taken before, so what is refused here is a context too small, e.g. to draw some of its rows.
        with suppress(library.refusal()):
            own[split.held.codes == c] = _own_losses(library, recipe, part, n_rounds, patience)
    # Where a context has no model of its own, the pooled one remains.
    risks = np.minimum(split.means(own), pooled.reached)
    return References(risks, {"own": own, "plain": pooled.losses}, own)


def _own_losses(library: type[Run], recipe: Recipe, split: Split, n_rounds: int, patience: int | None) -> Array:
    """Return the losses of a plain booster after the rounds that count, without a look at every round before."""
    if patience is not None:
        return PlainRun.of(library, recipe, split, n_rounds, patience).losses
    run = split.start(library, recipe, plain=True)
    for _ in range(n_rounds):
        run.advance()
    return split.losses(run.held_predictions())
