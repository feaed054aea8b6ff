"""Cross-fitting where rows stay elsewhere: a fold is left out by taking the weight from its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.core.oracle._base import Array
from counterpoise.core.references.cross_fit import CrossFit
from counterpoise.core.references.left_out import CLOSER
from counterpoise.core.references.specialists import fit_specialists
from counterpoise.rows import MemoryRows


@dataclass(frozen=True, eq=False)
class ReweightedCrossFit(CrossFit):
    """Models that have not seen a part of the rows, which remain where they are; means of their losses come back.

    Losses row by row are brought to memory where something else is asked of them.
    """

    @property
    def _rows(self) -> MemoryRows:
        """What is known of rows beside their features."""
        return self.oracle.rows.ledger

    @cached_property
    def _folded(self) -> Any:
        rows = self.oracle.rows
        return rows.folded(self.n_folds, None if rows.together is None else super().folds)

    @cached_property
    def folds(self) -> NDArray[np.intp]:
        """The fold in which each row is held out."""
        found: NDArray[np.intp] = self._folded.folds_in_memory()
        return found

    @property
    def _accuracy(self) -> float:
        if self.oracle.loss.is_hinged:
            return max(CLOSER * self.tol, 1e-12)
        # Smooth fits end where they are proven, and not a step further; rounding leaves nothing closer to prove.
        return max(CLOSER**2 * self.tol, 1e-3 * self.oracle.rows.rounding)

    @cached_property
    def _own(self) -> Any:
        """The losses of rows held out under a model of their context, where they are."""
        thetas = [
            fit_specialists(replace(self.oracle, rows=self._folded.without(k)), self._accuracy, self._beginnings).theta
            for k in range(self.n_folds)
        ]
        return self._folded.losses(thetas, [self.oracle.ridge.value(theta) for theta in thetas])

    @cached_property
    def _pooled(self) -> Any:
        """The same under one model for all contexts."""
        begin = None if self.sketch is None else self.sketch.theta[None]
        thetas = []
        for k in range(self.n_folds):
            # Contexts weigh as in the data, and not by how many rows the fold has left them.
            shares = np.where(self._folded.left[:, k] > 0, self.counts, 0.0)
            one = replace(self.oracle, rows=self._folded.without(k).as_one(shares))
            thetas.append(fit_specialists(one, self._accuracy, begin).theta)
        ridges = [np.repeat(self.oracle.ridge.value(theta), self.oracle.n_contexts) for theta in thetas]
        return self._folded.losses(thetas, ridges)

    @property
    def _emptied(self) -> NDArray[np.bool_]:
        """Which folds have all rows of a context, of shape (n_contexts, n_folds)."""
        return np.asarray(self._folded.left == 0)

    @property
    def own_means(self) -> Array:
        """The mean loss of each context's rows held out, infinite where no rows remain for a model."""
        return np.where(self._emptied.any(axis=1), np.inf, self._folded.means(self._own))

    @property
    def pooled_means(self) -> Array:
        """The same under one model for all contexts."""
        found: Array = self._folded.means(self._pooled)
        return found

    @cached_property
    def own_losses(self) -> Array:
        """The loss of each row held out under a model of its context, infinite where no rows remain for one."""
        losses = self._folded.in_memory(self._own)
        return self._merged(np.where(self._emptied[self._rows.owner, self.folds], np.inf, losses))

    @cached_property
    def pooled_losses(self) -> Array:
        """The loss of each row held out under one model for all contexts."""
        return self._merged(self._folded.in_memory(self._pooled))

    @cached_property
    def in_sample_losses(self) -> Array:
        """The loss of each row under the model of its context that has seen it."""
        theta = self.specialists.theta
        same = [theta] * self.n_folds
        losses = self._folded.losses(same, [self.oracle.ridge.value(theta)] * self.n_folds)
        return self._merged(self._folded.in_memory(losses))
