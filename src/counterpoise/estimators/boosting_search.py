"""The search for the weights of every round: references, headroom, the game, and which of its candidates to keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from counterpoise.contexts import Contexts
from counterpoise.estimators.boosters import Array, Recipe, Run
from counterpoise.estimators.boosting_references import PlainRun, References, references_of
from counterpoise.estimators.boosting_rounds import Split, play
from counterpoise.inference.choice import Choice, choose
from counterpoise.inference.excess import HeldOut
from counterpoise.inference.headroom import Headroom, headroom_of
from counterpoise.sets import ContextSet
from counterpoise.table import Table

HeadroomRule = Literal["bound", "test"]


@dataclass(frozen=True, eq=False)
class Found:
    """What a search ended with.

    Attributes
    ----------
    chosen : {"erm", "erm-stopped", "robust"}
        The candidate that is kept.
    path : ndarray of shape (n_rounds, n_contexts)
        The weights of contexts in each of its rounds.
    risks, references : ndarray of shape (n_contexts,)
        On held-out rows; NaN where none were held out.
    history : ndarray
        The worst case on held-out rows after every round of the game; of the plain booster where none was played.
    n_iter : int
        Rounds tried.
    candidates : Table or None
        What the choice was made by, where there was one.
    headroom : Headroom or None
        Where it was looked at.
    """

    chosen: str
    path: Array
    risks: Array
    references: Array
    history: Array
    n_iter: int
    candidates: Table | None = None
    headroom: Headroom | None = None


@dataclass(frozen=True, eq=False)
class Search:
    """A search, posed.

    Attributes
    ----------
    library : type of Run
    recipe : Recipe
    split : Split
    contexts : Contexts
        Of all rows.
    mixes : ContextSet
    shares : ndarray of shape (n_contexts,)
        Of the contexts in the data.
    unseen : ndarray of shape (n_unseen,)
        Scores of contexts without rows.
    reference, criterion, guard, headroom, n_rounds, patience
        Parameters of the estimator.
    report : callable
        Called with what there is to say, a sentence at a time.
    callback : callable, optional
        Called with the round and the worst case.
    """

    library: type[Run]
    recipe: Recipe
    split: Split
    contexts: Contexts
    mixes: ContextSet
    shares: Array
    unseen: Array
    reference: Any
    criterion: str
    guard: bool
    headroom: HeadroomRule | None
    n_rounds: int
    patience: int | None
    report: Callable[[str], None]
    callback: Callable[[int, float], None] | None = None

    def run(self) -> Found:
        """Return the candidate to keep, with what speaks for it."""
        if self.mixes.is_point:
            return self._stopped()
        pooled = PlainRun.of(self.library, self.recipe, self.split, self.n_rounds, self.patience)
        references = references_of(
            self.reference, self.contexts, self.library, self.recipe, pooled, self.n_rounds, self.patience
        )
        headroom = self._headroom(pooled, references)
        if headroom is not None and headroom.stops(self.headroom):
            self.report(f"{headroom.verdict} The plain booster is kept.")
            return self._plain(pooled, references, "erm" if self.patience is None else "erm-stopped", None, headroom)
        played = play(
            self.library(self.recipe, *self._training, self.split.held.X),
            self.split,
            self.mixes,
            references.risks if self.criterion == "excess" else np.zeros_like(references.risks),
            self.shares,
            outlook=pooled.outlook,
            unseen=self.unseen,
            learning_rate=self.recipe.learning_rate,
            n_rounds=self.n_rounds,
            patience=self.patience,
            callback=self.callback,
        )
        candidates = None
        if self.guard:
            choice = self._choice(pooled, references, played.losses)
            self.report(choice.words)
            if choice.chosen != "robust":
                return self._plain(pooled, references, choice.chosen, choice.candidates, headroom, played.values)
            candidates = choice.candidates
        return Found(
            "robust",
            played.weights[: played.best],
            played.risks[played.best - 1],
            references.risks,
            played.values,
            len(played.values),
            candidates,
            headroom,
        )

    @property
    def _training(self) -> tuple[Array, Array, Array]:
        return self.split.train.X, self.split.train.y, self.split.train.weight

    def _stopped(self) -> Found:
        """Return the plain booster of a set of one distribution, stopped where it was best."""
        played = play(
            self.library(self.recipe, *self._training, self.split.held.X),
            self.split,
            self.mixes,
            np.zeros_like(self.shares),
            self.shares,
            unseen=self.unseen,
            learning_rate=self.recipe.learning_rate,
            n_rounds=self.n_rounds,
            patience=self.patience,
            callback=self.callback,
        )
        risks = played.risks[played.best - 1]
        name = point_name(self.mixes, self.shares, stopped=True)
        return Found(
            name, played.weights[: played.best], risks, np.full_like(risks, np.nan), played.values, len(played.values)
        )

    def _headroom(self, pooled: PlainRun, references: References) -> Headroom | None:
        if self.criterion != "excess" or references.own is None:
            return None
        return headroom_of(self._held_out, pooled.losses, references.own, self.split.loss.lowest(self.split.held.y))

    @property
    def _held_out(self) -> HeldOut:
        held = self.split.held
        contexts = Contexts(self.contexts.labels, held.codes)
        return HeldOut(contexts, None, held.weight, mix=self.mixes, n_unseen=len(self.unseen))

    def _choice(self, pooled: PlainRun, references: References, robust: Array) -> Choice:
        """Compare the plain booster, the same stopped earlier, and the best round of the game."""
        losses = {"erm" if self.patience is None else "erm-stopped": pooled.losses}
        stopped = self._best_round(pooled, references)
        if self.patience is None and stopped < pooled.kept and not self.recipe.drops_trees:
            losses["erm-stopped"] = pooled.losses_after(stopped)
        losses["robust"] = robust
        same = None if references.same is None else {next(iter(losses)): references.same}
        competitors = references.competitors
        if self.criterion == "risk":
            competitors, same = np.zeros((len(robust), 1)), None
        return choose(self._held_out, losses, competitors, same)

    def _values(self, risks: Array, references: References) -> Array:
        """Return the worst case of the risks of every round."""
        scores = risks - references.risks if self.criterion == "excess" else risks
        beyond = np.broadcast_to(self.unseen, (len(scores), len(self.unseen)))
        return np.asarray(self.mixes.worst_case(np.hstack([scores, beyond])).value)

    def _best_round(self, pooled: PlainRun, references: References) -> int:
        return int(self._values(pooled.risks, references).argmin()) + 1

    def _plain(
        self,
        pooled: PlainRun,
        references: References,
        name: str,
        candidates: Table | None,
        headroom: Headroom | None,
        history: Array | None = None,
    ) -> Found:
        """Return the plain booster: of all its rounds, or stopped earlier."""
        if history is None:
            history = self._values(pooled.risks, references)
        n_rounds = pooled.kept
        if name == "erm-stopped" and self.patience is None:
            n_rounds = self._best_round(pooled, references)
        return Found(
            name,
            plain_path(self.shares, len(self.unseen), n_rounds),
            pooled.risks[n_rounds - 1],
            references.risks,
            history,
            len(history),
            candidates,
            headroom,
        )


def plain_path(shares: Array, n_unseen: int, n_rounds: int) -> Array:
    """Return the weights of a plain booster: the shares in the data, in every round."""
    return np.tile(np.append(shares, np.zeros(n_unseen)), (n_rounds, 1))


def point_name(mixes: ContextSet, shares: Array, stopped: bool = False) -> str:
    """Return what the booster of a set of one distribution is: the plain one, unless the data have other shares."""
    alike = mixes.p_hat.size == shares.size and np.allclose(mixes.p_hat, shares, rtol=1e-9, atol=0.0)
    return "robust" if not alike else "erm-stopped" if stopped else "erm"
