"""The search for the weights of every round: references, headroom, the game, and which of its candidates to keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from counterpoise.contexts import Contexts
from counterpoise.estimators.boosters import Array, Grows, Recipe, Run
from counterpoise.estimators.boosting_references import PlainRun, References, references_of
from counterpoise.estimators.boosting_rounds import Played, Split, play
from counterpoise.estimators.learners import Indices
from counterpoise.inference.choice import Choice, choose
from counterpoise.inference.excess import HeldOut
from counterpoise.inference.headroom import Headroom, StopRule, headroom_of
from counterpoise.sets import ContextSet
from counterpoise.table import Table


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
    units : ndarray of shape (n_samples,) or None
        Numbers that are the same for rows that belong together.
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
    units: Indices | None
    mixes: ContextSet
    shares: Array
    unseen: Array
    reference: Any
    criterion: str
    guard: bool
    headroom: StopRule
    n_rounds: int
    patience: int | None
    report: Callable[[str], None]
    callback: Callable[[int, float], None] | None = None

    def run(self) -> Found:
        """Return the candidate to keep, with what speaks for it."""
        pooled = PlainRun.of(self.library, self.recipe, self.split, self.n_rounds, self.patience)
        references = references_of(
            self.reference, self.contexts, self.library, self.recipe, pooled, self.n_rounds, self.patience
        )
        if self.mixes.is_point:
            return self._at_point(pooled, references)
        headroom = self._headroom(pooled, references)
        if headroom is not None and headroom.stops(self.headroom):
            self.report(f"{headroom.verdict} No weights are looked for.")
            found = self._plain(pooled, references, self._simplest, pooled.kept)
            robust = {}
        else:
            run = self.split.start(self.library, self.recipe)
            played = self._played(run, references, pooled.outlook)
            found = self._robust(played, references)
            robust = (
                {"robust": self._honest(run, played.risks_without, references, played.losses)} if self.guard else {}
            )
        if self.guard:
            stopped = self._best_round(pooled, references)
            choice = self._choice(pooled, stopped, references, robust)
            self.report(choice.words)
            if choice.chosen != "robust":
                n_rounds = pooled.kept if choice.chosen == self._simplest else stopped
                found = self._plain(pooled, references, choice.chosen, n_rounds, found.history)
            found = replace(found, candidates=choice.candidates)
        return replace(found, headroom=headroom)

    @property
    def _simplest(self) -> str:
        """The plain booster: of all rounds, or with patience of those that count."""
        return "erm" if self.patience is None else "erm-stopped"

    def _at_point(self, pooled: PlainRun, references: References) -> Found:
        """Return the booster of a set of one distribution, which may stop early."""
        if point_name(self.mixes, self.shares) == "erm":
            return self._plain(pooled, references, "erm-stopped", self._best_round(pooled, references))
        return self._robust(self._played(self.split.start(self.library, self.recipe), references), references)

    def _played(self, run: Grows, references: References, outlook: Array | None = None) -> Played:
        return play(
            run,
            self.split,
            self.mixes,
            references.risks if self.criterion == "excess" else np.zeros_like(references.risks),
            self.shares,
            outlook=outlook,
            unseen=self.unseen,
            learning_rate=self.recipe.learning_rate,
            n_rounds=self.n_rounds,
            patience=self.patience,
            callback=self.callback,
        )

    def _headroom(self, pooled: PlainRun, references: References) -> Headroom | None:
        if self.criterion != "excess" or references.own is None:
            return None
        # Every context counts, whatever the plausible mixes.
        held_out = replace(self._held_out, mix=None)
        return headroom_of(held_out, pooled.losses, references.own, self.split.loss.lowest(self.split.held.y))

    @property
    def _held_out(self) -> HeldOut:
        held = self.split.held
        contexts = Contexts(self.contexts.labels, held.codes)
        units = None if self.units is None else self.split.of_held(self.units)
        return HeldOut(contexts, units, held.weight, mix=self.mixes, n_unseen=len(self.unseen))

    def _choice(self, pooled: PlainRun, stopped: int, references: References, robust: Mapping[str, Array]) -> Choice:
        """Compare the plain booster, the same stopped earlier, and the best round of the game where it was played."""
        losses = {self._simplest: pooled.losses}
        if self.patience is None and stopped < pooled.kept and not self.recipe.drops_trees:
            losses["erm-stopped"] = self._honest(pooled.run, pooled.risks_without, references, pooled.losses)
        losses |= robust
        if self.criterion == "risk":
            return choose(self._held_out, losses, {"risk": np.zeros(len(pooled.losses))})
        against = {self._simplest if name == "plain" else name: one for name, one in references.competitors.items()}
        if references.own is not None:
            # What a candidate reaches in a context is possible there.
            against |= losses
        return choose(self._held_out, losses, against)

    def _honest(self, run: Grows, risks_without: Array, references: References, losses: Array) -> Array:
        """Return the losses of rows held out after the round that is best for the rows of all other folds.

        After the round that is best for the very rows that judge it, any booster looks better than it is. Where one
        part is held out, there are no others.

        Parameters
        ----------
        losses : ndarray of shape (n_held,)
            After the round that is best for all rows, where no other can be told.
        """
        if self.recipe.drops_trees:
            return losses
        best = [self._values(part, references).argmin() for part in risks_without.swapaxes(0, 1)]
        return self.split.losses(run.held_predictions_of([int(n) + 1 for n in best]))

    def _best_round(self, pooled: PlainRun, references: References) -> int:
        return int(self._values(pooled.risks, references).argmin()) + 1

    def _values(self, risks: Array, references: References) -> Array:
        """Return the worst case of the risks of every round."""
        scores = risks - references.risks if self.criterion == "excess" else risks
        return np.array([self.mixes.worst_case(np.append(one, self.unseen)).value for one in scores])

    def _plain(
        self, pooled: PlainRun, references: References, name: str, n_rounds: int, history: Array | None = None
    ) -> Found:
        """Return the first rounds of the plain booster, or all."""
        path = np.tile(np.append(self.shares, np.zeros_like(self.unseen)), (n_rounds, 1))
        history = self._values(pooled.risks, references) if history is None else history
        return Found(name, path, pooled.risks[n_rounds - 1], references.risks, history, len(history))

    def _robust(self, played: Played, references: References) -> Found:
        """Return the best round of the game."""
        n, values = played.best, played.values
        return Found("robust", played.weights[:n], played.risks[n - 1], references.risks, values, len(values))


def point_name(mixes: ContextSet, shares: Array) -> str:
    """Return what the booster of a set of one distribution is: the plain one, unless the data have other shares."""
    alike = mixes.p_hat.size == shares.size and np.allclose(mixes.p_hat, shares, rtol=1e-9, atol=0.0)
    return "erm" if alike else "robust"
