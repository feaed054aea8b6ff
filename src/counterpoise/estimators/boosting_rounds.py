"""The game inside one run of boosting: trees answer the weights of contexts, and the weights answer the trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import one_each
from counterpoise.core.references import folds_within
from counterpoise.core.solvers.best_response import with_least_shares
from counterpoise.estimators.boosters import Array, Grows, Recipe, Run
from counterpoise.estimators.boosting_losses import BoostedLoss, NumberLoss
from counterpoise.estimators.learners import Indices, least_probability, mean_by_context, tilted
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import ContextSet

_LONGEST_STEP = 0.5
_MASS_MOVED = 0.1
"""Of the contexts' mass, what may change hands in one round, per unit of the learning rate."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Some of the data; a class is a number from 0."""

    X: Array
    y: Array
    weight: Array
    codes: Indices

    def plain_weight(self, loss: BoostedLoss) -> Array | None:
        """Return the weights of a plain booster: none, where every row counts as one and that makes a difference."""
        return None if loss.is_quantile and (self.weight == 1.0).all() else self.weight

    def where(self, chosen: NDArray[np.bool_] | Indices) -> Rows:
        """Return the rows that are chosen."""
        return Rows(self.X[chosen], self.y[chosen], self.weight[chosen], self.codes[chosen])

    def tilted(self, tilt: Array) -> Array:
        """Return weights that favour contexts, with an unchanged sum: XGBoost's regularisation depends on it."""
        return tilted(self.weight, tilt[self.codes])


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to train on, rows to judge by, and the loss they are judged by.

    Attributes
    ----------
    train, held : Rows
        All rows, where every row is held out in turn.
    n_contexts : int
    loss : BoostedLoss
    folds : ndarray of shape (n_samples,), optional
        Where each row is held out in turn: by which boosters it was not seen.
    is_held : ndarray of shape (n_samples,), optional
        Where one part is held out: which of all rows are in it.
    """

    train: Rows
    held: Rows
    n_contexts: int
    loss: BoostedLoss
    folds: Indices | None = None
    is_held: NDArray[np.bool_] | None = None

    @classmethod
    def in_turn(cls, rows: Rows, folds: Indices, loss: BoostedLoss) -> Split:
        """Hold out every row once: from the booster of its fold."""
        if len(np.unique(folds)) < 2:
            _refuse_single_rows(len(folds))
        return cls(rows, rows, int(rows.codes.max()) + 1, loss, folds)

    @classmethod
    def of(cls, rows: Rows, fraction: float, together: Indices | None = None, loss: BoostedLoss | None = None) -> Split:
        """Hold out one fold of every context, dealt along the targets.

        Parameters
        ----------
        together : ndarray of shape (n_samples,), optional
            Numbers that are the same for repetitions of one row, which counts in several contexts.
        loss : BoostedLoss, optional
            Half the squared error by default.
        """
        sizes = np.bincount(rows.codes)
        if together is None:
            held = _held_out(rows, fraction)
        else:
            firsts, unit = one_each(together, sizes[rows.codes])
            held = _held_out(rows.where(firsts), fraction)[unit]
            # Where all rows of a context were dealt in smaller ones, none of them need be held out.
            for c in np.flatnonzero(np.bincount(rows.codes, held, len(sizes)) == 0):
                own = unit[rows.codes == c]
                held |= unit == own[len(own) // 2]
        if held.all():
            _refuse_single_rows(len(held))
        loss = NumberLoss.named("squared_error") if loss is None else loss
        return cls(rows.where(~held), rows.where(held), len(sizes), loss, is_held=held)

    def losses(self, predictions: NDArray[np.generic]) -> Array:
        """Return the loss of each row held out, from its prediction."""
        floor = least_probability(len(self.held.y) + (len(self.train.y) if self.folds is None else 0))
        return self.loss.rows(self.held.y, predictions, floor)

    def of_held(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return those of the rows held out, of values that all rows have."""
        return values if self.is_held is None else values[self.is_held]

    def means(self, losses: Array) -> Array:
        """Return the mean loss of each context's rows held out."""
        return mean_by_context(losses, self.held.weight, self.held.codes, self.n_contexts)

    def means_without(self, losses: Array) -> Array:
        """Return the mean loss of each context's rows held out, fold by fold that of the rows of all other folds.

        It has one row for all rows where one part is held out.
        """
        if self.folds is None:
            return self.means(losses)[None]
        present, fold = np.unique(self.folds, return_inverse=True)
        cell = fold * self.n_contexts + self.held.codes
        weight = self.held.weight / self.held.weight.max(initial=0.0)
        sums, totals = (
            np.bincount(cell, values, len(present) * self.n_contexts).reshape(len(present), -1)
            for values in (weight * losses, weight)
        )
        others, of_others = sums.sum(axis=0) - sums, totals.sum(axis=0) - totals
        # A context with rows in one fold only has no others.
        alone = of_others <= 1e-12 * totals.sum(axis=0)
        with np.errstate(invalid="ignore"):
            return np.where(alone, sums, others) / np.where(alone, totals, of_others)

    def of_context(self, context: int) -> Split:
        """Return the same for one context alone."""
        train, held = (rows.where(rows.codes == context) for rows in (self.train, self.held))
        folds = None if self.folds is None else self.folds[self.held.codes == context]
        return Split(train, held, self.n_contexts, self.loss, folds)

    def start(self, library: type[Run], recipe: Recipe, plain: bool = False) -> Grows:
        """Return a booster without trees, on the rows to train on; or one for each fold.

        A plain one is as the library would start it, under weights that never change.
        """
        weight = self.train.plain_weight(self.loss) if plain else self.train.weight
        if self.folds is not None:
            return FoldedRun(library, recipe, self.train, weight, self.folds)
        return library(recipe, self.train.X, self.train.y, weight, self.held.X)

    @property
    def can_learn(self) -> bool:
        """Whether there are rows to train on wherever rows are held out, and of two classes if of any."""
        parts = [self.train.y]
        if self.folds is not None:
            parts = [self.train.y[self.folds != k] for k in np.unique(self.folds)]
        return all(len(np.unique(y)) > (1 if self.loss.n_classes else 0) for y in parts)


def dealt(rows: Rows, n_folds: int, together: Indices | None = None) -> Indices:
    """Deal the rows of every context to folds, along their targets.

    Parameters
    ----------
    together : ndarray of shape (n_samples,), optional
        Numbers that are the same for repetitions of one row, which counts in several contexts.
    """
    sizes = np.bincount(rows.codes)
    if together is not None:
        firsts, unit = one_each(together, sizes[rows.codes])
        return folds_within(rows.codes[firsts], rows.y[firsts], n_folds)[unit]
    if sizes.max() < 2:
        _refuse_single_rows(len(rows.codes))
    return folds_within(rows.codes, rows.y, n_folds)


def _held_out(rows: Rows, fraction: float) -> NDArray[np.bool_]:
    """Return which rows are in the fold of every context that is held out."""
    n_folds = max(2, round(1.0 / fraction))
    folds = folds_within(rows.codes, rows.y, n_folds)
    order = np.lexsort((rows.y, rows.codes))
    sizes = np.bincount(rows.codes)
    # The fold with the middle of every few rows: a context of two has one held out, and a long tail stays in both.
    middle = order[np.cumsum(sizes) - sizes + np.minimum(n_folds // 2, sizes - 1)]
    return np.asarray(folds == folds[middle][rows.codes])


def _refuse_single_rows(n_rows: int) -> None:
    count = f"there are {n_rows} samples in as many contexts" if n_rows > 1 else "there is 1 sample"
    raise InvalidInputError(f"{count}; to hold rows out, some context needs two. Merge contexts, or add rows.")


class FoldedRun:
    """A booster for each fold, trained on the other folds, all of which advance together."""

    def __init__(self, library: type[Run], recipe: Recipe, rows: Rows, weight: Array | None, folds: Indices) -> None:
        self.held = [folds == k for k in np.unique(folds)]
        self.runs = [
            library(recipe, rows.X[~held], rows.y[~held], None if weight is None else weight[~held], rows.X[held])
            for held in self.held
        ]

    def advance(self, weight: Array | None = None) -> None:
        for run, held in zip(self.runs, self.held, strict=True):
            run.advance(None if weight is None else weight[~held])

    def held_predictions(self) -> NDArray[Any]:
        return self._gathered([run.held_predictions() for run in self.runs])

    def held_predictions_of(self, rounds: Sequence[int]) -> NDArray[Any]:
        return self._gathered([run.held_predictions_of([n]) for run, n in zip(self.runs, rounds, strict=True)])

    def _gathered(self, parts: list[NDArray[Any]]) -> NDArray[Any]:
        """Return the predictions of all rows, each by the booster that has not seen it."""
        found = np.empty((len(self.held[0]), *parts[0].shape[1:]), dtype=parts[0].dtype)
        for held, part in zip(self.held, parts, strict=True):
            found[held] = part
        return found


@dataclass(frozen=True, eq=False)
class Played:
    """How a run went, round by round.

    Attributes
    ----------
    weights : ndarray of shape (n_rounds, n_contexts)
        Of the contexts, under which each round was fitted.
    risks : ndarray of shape (n_rounds, n_contexts)
        On held-out rows, after each round.
    values : ndarray of shape (n_rounds,)
        The worst case of these.
    losses : ndarray of shape (n_held,)
        Of the rows held out, after the best round.
    risks_without : ndarray of shape (n_rounds, n_folds, n_contexts)
        After each round, those of all rows but a fold's; see :meth:`Split.means_without`.
    """

    weights: Array
    risks: Array
    values: Array
    losses: Array = field(default_factory=lambda: np.zeros(0))
    risks_without: Array = field(default_factory=lambda: np.zeros((0, 0, 0)))

    @property
    def best(self) -> int:
        """The number of rounds after which the worst case was least."""
        return int(self.values.argmin()) + 1


def play(
    run: Grows,
    split: Split,
    mixes: ContextSet,
    references: Array,
    shares: Array,
    *,
    learning_rate: float,
    n_rounds: int,
    outlook: Array | None = None,
    unseen: Array | None = None,
    patience: int | None = None,
    callback: Callable[[int, float], None] | None = None,
) -> Played:
    """Boost, and after every round move the weights towards what is least favourable on the rows held out.

    Parameters
    ----------
    run : Grows
        On the training rows of the split, with the others held out.
    references : ndarray of shape (n_contexts,)
    shares : ndarray of shape (n_contexts,)
        Of the contexts in the data, which the set need not be centred on.
    outlook : ndarray of shape (n_rounds, n_contexts), optional
        By how much the risks are expected to change from each round to the last one. Without it, weights would chase
        contexts that merely take more rounds to learn.
    unseen : ndarray of shape (n_unseen,), optional
        Scores of contexts without rows, which follow the others in the set.
    patience : int, optional
        Stop after this many rounds without a lower worst case.
    callback : callable, optional
        Called with the round and the worst case.
    """
    constant = np.zeros(0) if unseen is None else unseen
    everywhere = np.append(shares, np.zeros_like(constant))
    p, best = with_least_shares(mixes.p_hat, everywhere, mixes), 0
    losses_of_best = np.zeros(0)
    weights, risks, values, without = [], [], [], []
    for n in range(n_rounds):
        run.advance(split.train.tilted(p[: len(shares)] / shares))
        weights.append(p)
        losses = split.losses(run.held_predictions())
        risks.append(split.means(losses))
        without.append(split.means_without(losses))
        scores = np.append(risks[n] - references, constant)
        worst = mixes.worst_case(scores)
        values.append(float(worst.value))
        if callback is not None:
            callback(n, values[n])
        if n == 0 or values[n] < values[best]:
            best, losses_of_best = n, losses
        if patience is not None and n - best >= patience:
            break
        if outlook is not None:
            ahead = outlook[min(n, len(outlook) - 1)]
            worst = mixes.worst_case(scores + np.append(ahead, np.zeros_like(constant)))
        p = with_least_shares(next_weights(p, worst.distribution, learning_rate), everywhere, mixes)
    return Played(np.array(weights), np.array(risks), np.array(values), losses_of_best, np.array(without))


def next_weights(p: Array, worst: Array, learning_rate: float) -> Array:
    """Go part of the way to the least favourable weights.

    In a large set these jump from context to context, while trees move the model by their learning rate. The mass that
    changes hands is bounded by the same measure, so that the weights stay close to an equilibrium instead of chasing.
    """
    distance = 0.5 * float(np.abs(worst - p).sum())
    most = _MASS_MOVED * learning_rate
    step = _LONGEST_STEP if distance * _LONGEST_STEP <= most else most / distance
    return p + step * (worst - p)
