"""Rows of contexts and their weights: means, and how uncertain these are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from counterpoise.core.oracle._base import Array


@dataclass(frozen=True, eq=False)
class ContextRows:
    """Which context each row belongs to, and how often it counts.

    Attributes
    ----------
    codes : ndarray of shape (n_samples,)
        The context of each row.
    weight : ndarray of shape (n_samples,)
        A whole number is the same as repeating the row.
    n_contexts : int
    """

    codes: NDArray[np.intp]
    weight: Array
    n_contexts: int

    @cached_property
    def counts(self) -> Array:
        """The weight of each context."""
        return self._sums(self.weight)

    def _sums(self, values: Array) -> Array:
        return np.bincount(self.codes, values, self.n_contexts).astype(np.float64)

    def means(self, values: Array) -> Array:
        """Return the mean of each context's values, infinite where one of them is not finite."""
        finite = np.isfinite(values)
        # Shares, so that neither large weights nor large values overflow in the sum.
        share = self.weight / self.counts[self.codes]
        means = self._sums(share * np.where(finite, values, 0.0))
        return np.where(self._sums(~finite) > 0, np.inf, means)

    def standard_errors(self, values: Array, prior: float = 0.0) -> Array:
        """Return the standard error of each context's mean, NaN where a value is not finite.

        A context with one row has no spread of its own. It gets the pooled standard deviation, that within contexts,
        over the root of its weight; where every context has one row, the deviation is that from the mean of all.

        Parameters
        ----------
        prior : float
            How many rows the pooled variance counts as beside the context's own. From few rows a variance may be
            nearly zero by chance, which matters where contexts are weighed by it.
        """
        means = self.means(values)
        known = np.isfinite(means)
        several = known & (np.bincount(self.codes, minlength=self.n_contexts) > 1)
        # Weights that sum to less than two rows say no more of a variance than two rows do.
        freedom = np.where(several, np.maximum(self.counts - 1.0, 0.5 * self.counts), 0.0)
        centre, spread = np.where(known, means, 0.0), several
        if not several.any():
            total = float(self.counts[known].sum())
            centre = np.full(self.n_contexts, self.counts @ centre / max(total, np.finfo(np.float64).tiny))
            spread, all_freedom = known, max(total - 1.0, 0.5 * total)
        else:
            all_freedom = float(freedom.sum())
        deviation = np.where(spread[self.codes], values, centre[self.codes]) - centre[self.codes]
        # Squares of the deviations themselves may overflow.
        size = float(np.abs(deviation).max(initial=0.0)) or 1.0
        squares = self._sums(self.weight * np.square(deviation / size))
        pooled = float(squares.sum()) / all_freedom if all_freedom > 0.0 else 0.0
        variance = np.full(self.n_contexts, pooled)
        variance[several] = (squares[several] + prior * pooled) / (freedom[several] + prior)
        return np.where(known, size * np.sqrt(variance / self.counts), np.nan)
