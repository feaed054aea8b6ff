"""What a learner answers to weights of contexts: its losses on rows that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing

from counterpoise.contexts import Contexts
from counterpoise.core.references import ContextRows
from counterpoise.estimators.learners import Array, Indices, fit_weighted, out_of_fold_losses, tilted

_SKETCHED, _OF_EACH, _SKETCHED_SHARE = 20_000, 300, 0.1
"""Rows of a sketch: this many, so many for each context, or this share of all rows; the largest of these."""

_WORTH_SKETCHING = 3
"""Times the rows of a sketch from which on it saves anything."""


@dataclass(frozen=True, eq=False)
class Responses:
    """A learner, the rows that it is fitted to under weights of contexts, and how it is judged when they are held out.

    Attributes
    ----------
    learner : estimator
    X, y
    contexts : Contexts
    weight : ndarray of shape (n_samples,)
    folds : ndarray of shape (n_samples,)
        In which each row is held out.
    shares : ndarray of shape (n_contexts,)
        Of the contexts in the data. Weights of contexts are relative to them.
    judge : dict
        As in :func:`counterpoise.estimators.learners.out_of_fold_losses`.
    """

    learner: Any
    X: Any
    y: NDArray[Any]
    contexts: Contexts
    weight: Array
    folds: Indices
    shares: Array
    judge: dict[str, Any]

    @cached_property
    def rows(self) -> ContextRows:
        """The rows in each of their contexts."""
        return ContextRows(self.contexts.codes, self.contexts.repeated(self.weight), len(self.contexts.labels))

    def tilt(self, p: Array) -> Array:
        """Return by what the weight of each row is multiplied; contexts without rows have no part in it."""
        # Relative to the data, which a set of mixes need not be centred on.
        return self.contexts.summed((p[: len(self.shares)] / self.shares)[self.contexts.codes])

    def fitted(self, p: Array) -> Any:
        """Return the learner fitted to all rows under weights of contexts."""
        return fit_weighted(self.learner, self.X, self.y, self.weight, self.tilt(p))

    def losses(self, p: Array) -> Array:
        """Return the losses of rows in each of their contexts, under learners that have not seen them."""
        found = out_of_fold_losses(self.learner, self.X, self.y, self.weight, self.tilt(p), self.folds, **self.judge)
        return self.contexts.repeated(found)

    @property
    def _sketched(self) -> int:
        """How many rows a sketch has."""
        return max(_SKETCHED, _OF_EACH * len(self.shares), round(_SKETCHED_SHARE * len(self.y)))

    @property
    def worth_sketching(self) -> bool:
        """Whether a sketch has so few of the rows that it saves anything."""
        return len(self.y) >= _WORTH_SKETCHING * self._sketched

    def sketch(self) -> Responses:
        """Return a part of the rows that answers nearly alike.

        Large contexts are thinned evenly along the targets, as many rows in every fold, and small ones are kept whole.
        So are classes that are rare in a context: no class is lost.
        """
        codes, target = self.contexts.codes[self.contexts.firsts], np.unique(self.y, return_inverse=True)[1]
        cells = codes * (self.folds.max() + 1) + self.folds
        if is_classifier(self.learner):
            cells = cells * (target.max() + 1) + target
        cells = np.unique(cells, return_inverse=True)[1]
        sizes = np.bincount(cells)
        kept = _evenly(cells, target, np.minimum(sizes, _quota(sizes, self._sketched)))
        at = np.flatnonzero(kept)
        # What is left of a context counts as much as all of it did.
        scale = np.bincount(cells, self.weight) / np.bincount(cells[at], self.weight[at])
        return replace(
            self,
            X=_safe_indexing(self.X, at),
            y=self.y[at],
            contexts=self.contexts.of_rows(kept),
            weight=tilted(self.weight[at], scale[cells[at]]),
            folds=self.folds[at],
        )


class Sketch:
    """Risks under weights of contexts, of which only the change against the plain learner's comes from a sketch.

    Parameters
    ----------
    asked : Responses
    plain : ndarray of shape (n_contexts,)
        The plain learner's risks on all rows.
    """

    def __init__(self, asked: Responses, plain: Array) -> None:
        self.asked, self.plain = asked, plain

    @cached_property
    def part(self) -> Responses:
        """The sketch."""
        return self.asked.sketch()

    @cached_property
    def first(self) -> Array:
        """The plain learner's risks in it."""
        return self._risks(self.asked.shares)

    def _risks(self, p: Array) -> Array:
        return self.part.rows.means(self.part.losses(p))

    def __call__(self, p: Array) -> Array:
        """Return the risks of contexts with rows."""
        if np.allclose(p[: len(self.plain)], self.asked.shares, rtol=1e-12, atol=0.0):
            return self.plain
        return self.plain + self._risks(p) - self.first


def _quota(sizes: Indices, most: int) -> int:
    """Return the size to which cells are cut so that they have at most so many rows together, and one at least."""
    ordered = np.sort(sizes)
    smaller = np.concatenate([[0], np.cumsum(ordered)[:-1]])
    cut = (most - smaller) / np.arange(len(sizes), 0, -1)
    return max(int(cut[ordered >= cut][0]) if (ordered >= cut).any() else int(ordered[-1]), 1)


def _evenly(cells: Indices, order_by: NDArray[Any], counts: Indices) -> NDArray[np.bool_]:
    """Return which rows are kept where each cell keeps so many, evenly spaced in an order."""
    order = np.lexsort((order_by, cells))
    sizes = np.bincount(cells)
    rank = np.arange(len(cells)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    size, count = sizes[cells[order]], counts[cells[order]]
    kept = np.empty(len(cells), dtype=bool)
    # From the middle of each stretch: the first of each would be the lowest.
    kept[order] = (rank * count + size // 2) % size < count
    return kept
