"""Fits that leave a part of the rows out, begun at the fit of all rows: gradients alone, and hardly any Hessian.

Leaving a fold out moves a fit by little. At the minimum of all rows one pass tells every fold's Hessian, and what the
others have is the difference: :math:`H_{-k} = H - H_k`. Steps with these need only gradients, and one product of the
rows serves all folds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterpoise.core.oracle._base import Array
from counterpoise.core.oracle.linear import EachContext, LinearOracle
from counterpoise.core.references.newton import Near, minimise
from counterpoise.linalg import pseudo_inverse
from counterpoise.rows import Codes, Mask, MemoryRows
from counterpoise.rows.layouts import Shared
from counterpoise.rows.memory import MemoryPart

_LARGEST = 1 << 23
"""Rows times folds, or entries of their Hessians, handled at once (64 MB)."""

_PER_PARAMETER = 5
"""Rows per parameter from which leaving some out moves a fit so little that its Hessian serves."""

_FEWEST = 128
"""Rows of a context from which it is worth a product of its own."""

CLOSER = 1e-3
"""How much closer to its minimum a fit has to be for the risk of rows it has not seen to be about as accurate.

It is at a minimum of the risk of those it has seen, where its error enters squared, and at none of the others'.
"""


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Contexts, each fitted without every one of its folds in turn.

    Attributes
    ----------
    oracle : LinearOracle
        Of rows in memory, a smooth loss, and so few parameters that their Hessians are formed.
    folds : ndarray of shape (n_samples,)
        The fold of each row.
    weight : ndarray of shape (n_samples, n_folds)
        What each row counts in the fit without a fold: sums to one within each context, and is 0 in the fold itself.
    """

    oracle: LinearOracle
    folds: NDArray[np.intp]
    weight: Array

    @property
    def _rows(self) -> MemoryRows:
        return self.oracle.rows

    @staticmethod
    def serves(oracle: LinearOracle, left: NDArray[np.intp]) -> Mask:
        """Tell which contexts are fitted well in this way.

        Parameters
        ----------
        left : ndarray of shape (n_contexts, n_folds)
            The rows of each context that a fold leaves.
        """
        if oracle.loss.is_hinged or oracle.loss.third_order is None or not oracle.forms_hessian:
            return np.zeros(len(left), dtype=bool)
        sizes = oracle.rows.sizes
        enough = sizes >= max(_FEWEST, _PER_PARAMETER * oracle.n_parameters)
        return np.asarray(enough & (2 * left.min(axis=1) >= sizes))

    def losses(self, contexts: Codes, theta: Array, tol: float) -> Iterator[tuple[Codes, Array]]:
        """Yield rows of contexts, and their losses under the fit without their fold, the ridge included.

        Parameters
        ----------
        theta : ndarray of shape (n_contexts, P)
            Parameters to begin at, for each of these contexts: near the minimum of all its rows.
        tol : float
            Accuracy of the losses, relative to how far the risks are above their lowest.
        """
        cost = np.maximum(self._rows.sizes[contexts], self.oracle.n_parameters**2) * self.weight.shape[1]
        portion = np.cumsum(cost) // _LARGEST
        for k in np.unique(portion):
            some = portion == k
            yield from self._portion(contexts[some], theta[some], tol)

    def _portion(self, contexts: Codes, theta: Array, tol: float) -> Iterator[tuple[Codes, Array]]:
        own, sizes, n_folds = self._rows.grouped(contexts), self._rows.sizes[contexts], self.weight.shape[1]
        starts = np.cumsum(sizes) - sizes
        rows = np.arange(sizes.sum()) + np.repeat(self._rows.starts[contexts] - starts, sizes)
        folds, inverse = self.folds[rows], self._inverses(own, theta, self.folds[rows])
        step = max(1, _LARGEST // len(rows))
        for first in range(0, n_folds, step):
            of = slice(first, min(first + step, n_folds))
            m = of.stop - first
            layout = Shared(self._rows.X, own.coefficients, self._rows.starts[contexts], sizes, np.full(len(sizes), m))
            target = np.broadcast_to(own.target[:, None], (len(rows), m, *own.target.shape[1:]))
            weight = layout.laid_out(self.weight[rows, of])
            part = MemoryPart(layout, layout.laid_out(target), weight, own.loss, own.find_reach)
            at = EachContext(part, self.oracle.alpha, np.repeat(theta, m, axis=0))
            scale = max(float(np.mean(at.above)), 1e-3 * self.oracle.typical_risk)
            found = minimise(
                at, max(CLOSER**2 * tol, 1e-15), scale, Near(inverse[:, of].reshape(-1, *inverse.shape[2:]))
            )[2]
            held = (folds >= first) & (folds < of.stop)
            context, fold = np.repeat(np.arange(len(sizes)), sizes)[held], folds[held] - first
            # In the flat sequence, all rows of a context come once for every fold.
            flat = np.flatnonzero(held) + (m - 1) * starts[context] + fold * sizes[context]
            group, z = m * context + fold, layout.product(found)[flat]
            losses = own.loss.value(own.target[held], z[:, 0] if own.loss.n_outputs == 1 else z)
            yield rows[held], losses + self.oracle.ridge.value(found)[group]

    def _inverses(self, own: MemoryPart, theta: Array, folds: NDArray[np.intp]) -> Array:
        """Return the inverse Hessians without each fold, of shape (n_contexts, n_folds, P, P).

        Contexts that are pooled keep their shares without a fold, and here each row keeps its own: nearly the same.
        """
        curvature = own.at(theta).curvature
        curvature = curvature * own.weight.reshape(-1, *(1,) * (curvature.ndim - 1))
        inside = np.eye(self.weight.shape[1])[folds]
        by_fold = np.stack([own.layout.gram((curvature.T * one).T) for one in inside.T], axis=1)
        left = 1.0 - own.layout.total(own.weight[:, None] * inside)
        without = by_fold.sum(axis=1, keepdims=True) - by_fold
        hessians = self.oracle.ridge.added(without / left[:, :, None, None])
        return pseudo_inverse(hessians.reshape(-1, *hessians.shape[2:])).reshape(hessians.shape)
