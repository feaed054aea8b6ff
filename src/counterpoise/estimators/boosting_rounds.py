"""The game inside one run of boosting: trees answer the weights of contexts, and the weights answer the trees."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import one_each
from counterpoise.core.references import folds_within
from counterpoise.core.solvers.best_response import with_least_shares
from counterpoise.estimators.boosters import Array, Recipe, Run
from counterpoise.estimators.learners import Indices, least_probability, mean_by_context, tilted
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import ContextSet

_LONGEST_STEP = 0.5
_MASS_MOVED = 0.3
"""Of the contexts' mass, what may change hands in one round, per unit of the learning rate."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Some of the data; a class is a number from 0."""

    X: Array
    y: Array
    weight: Array
    codes: Indices

    def where(self, chosen: NDArray[np.bool_] | Indices) -> Rows:
        """Return the rows that are chosen."""
        return Rows(self.X[chosen], self.y[chosen], self.weight[chosen], self.codes[chosen])

    def tilted(self, tilt: Array) -> Array:
        """Return weights that favour contexts, with an unchanged sum: XGBoost's regularisation depends on it."""
        return tilted(self.weight, tilt[self.codes])


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to train on, and rows to judge by."""

    train: Rows
    held: Rows
    n_contexts: int

    @classmethod
    def of(cls, rows: Rows, fraction: float, together: Indices | None = None) -> Split:
        """Hold out one fold of every context, dealt along the targets.

        Parameters
        ----------
        together : ndarray of shape (n_samples,), optional
            Numbers that are the same for repetitions of one row, which counts in several contexts.
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
            count = f"there are {len(held)} samples in as many contexts" if len(held) > 1 else "there is 1 sample"
            raise InvalidInputError(f"{count}; to hold rows out, some context needs two. Merge contexts, or add rows.")
        return cls(rows.where(~held), rows.where(held), len(sizes))

    def risks(self, predictions: NDArray[np.generic]) -> Array:
        """Return the mean loss of each context's rows held out, from their predictions."""
        y, given = self.held.y, predictions.astype(np.float64)
        if given.ndim == 1:
            losses = 0.5 * np.square(given - y)
        else:
            floor = least_probability(len(self.train.y) + len(y))
            losses = -np.log(np.clip(given[np.arange(len(y)), y.astype(np.intp)], floor, 1.0))
        return mean_by_context(losses, self.held.weight, self.held.codes, self.n_contexts)

    def of_context(self, context: int) -> Split:
        """Return the same for one context alone."""
        train, held = (rows.where(rows.codes == context) for rows in (self.train, self.held))
        return Split(train, held, self.n_contexts)


def _held_out(rows: Rows, fraction: float) -> NDArray[np.bool_]:
    """Return which rows are in the fold of every context that is held out."""
    n_folds = max(2, round(1.0 / fraction))
    folds = folds_within(rows.codes, rows.y, n_folds)
    order = np.lexsort((rows.y, rows.codes))
    sizes = np.bincount(rows.codes)
    # The fold with the middle of every few rows: a context of two has one held out, and a long tail stays in both.
    middle = order[np.cumsum(sizes) - sizes + np.minimum(n_folds // 2, sizes - 1)]
    return np.asarray(folds == folds[middle][rows.codes])


def least_risks(library: type[Run], recipe: Recipe, split: Split, n_rounds: int) -> Array:
    """Return what plain boosters reach on rows held out: the lower of one for all contexts and one for each."""

    def risks(part: Split) -> Array:
        run = library(recipe, part.train.X, part.train.y, part.train.weight, part.held.X)
        for _ in range(n_rounds):
            run.advance()
        return part.risks(run.held_predictions())

    least = risks(split)
    for c in range(split.n_contexts if split.n_contexts > 1 else 0):
        own = split.of_context(c)
        # From no rows, or from one class, there is nothing to learn.
        if len(own.train.y) > 0 and (recipe.n_classes == 0 or len(np.unique(own.train.y)) > 1):
            # All rows were taken above, so what is refused here is a context too small, e.g. to draw some of its rows.
            with suppress(library.refusal()):
                least[c] = min(least[c], risks(own)[c])
    return least


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
    """

    weights: Array
    risks: Array
    values: Array


def play(
    run: Run,
    split: Split,
    mixes: ContextSet,
    references: Array,
    shares: Array,
    *,
    learning_rate: float,
    n_rounds: int,
    unseen: Array | None = None,
    patience: int | None = None,
    callback: Callable[[int, float], None] | None = None,
) -> Played:
    """Boost, and after every round move the weights towards what is least favourable on the rows held out.

    Parameters
    ----------
    run : Run
        On the training rows of the split, with the others held out.
    references : ndarray of shape (n_contexts,)
    shares : ndarray of shape (n_contexts,)
        Of the contexts in the data, which the set need not be centred on.
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
    weights, risks, values = [], [], []
    for n in range(n_rounds):
        run.advance(split.train.tilted(p[: len(shares)] / shares))
        weights.append(p)
        risks.append(split.risks(run.held_predictions()))
        worst = mixes.worst_case(np.append(risks[n] - references, constant))
        values.append(float(worst.value))
        if callback is not None:
            callback(n, values[n])
        if values[n] < values[best]:
            best = n
        if patience is not None and n - best >= patience:
            break
        p = with_least_shares(next_weights(p, worst.distribution, learning_rate), everywhere, mixes)
    return Played(np.array(weights), np.array(risks), np.array(values))


def next_weights(p: Array, worst: Array, learning_rate: float) -> Array:
    """Go part of the way to the least favourable weights.

    In a large set these jump from context to context, while trees move the model by their learning rate. The mass that
    changes hands is bounded by the same measure, so that the weights stay close to an equilibrium instead of chasing.
    """
    distance = 0.5 * float(np.abs(worst - p).sum())
    most = _MASS_MOVED * learning_rate
    step = _LONGEST_STEP if distance * _LONGEST_STEP <= most else most / distance
    return p + step * (worst - p)
