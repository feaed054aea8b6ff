r"""Rows near their hinges as they are, and the mean of all others on either side: a problem that lies below.

Where a loss is a convex function of the residual :math:`r_i = x_i^\top\theta - y_i` alone, the mean of some rows has no
more loss than they have on average (Jensen's inequality),

.. math:: \ell\Bigl(\sum_i w_i r_i\Bigr) \le \sum_i w_i\, \ell(r_i), \qquad \sum_i w_i = 1,

and just as much where the loss is linear over all of them, as a piecewise linear one is on one side of its hinges. So
the rows beyond a band around the hinges are replaced by two means for each context, and the risks of what is left are
nowhere above those of all rows. Its minimum is a bound; and where no row beyond the band changes sides, the minimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse

from counterpoise.contexts import Contexts
from counterpoise.losses import Loss
from counterpoise.rows._base import Array, Codes, Mask
from counterpoise.rows.block_rows import SumsAnswer
from counterpoise.rows.blocks import SHARED, Block, of_contexts, of_rows
from counterpoise.rows.memory import MemoryRows

_SEED = 0


@dataclass(frozen=True, eq=False)
class BandAnswer(SumsAnswer):
    """Sums at a theta, rows near their hinges there, and what the others add up to below and above them."""

    n_near: Array = of_contexts()
    near: Array = of_contexts()
    beyond: Array = of_contexts()
    features: Array = of_contexts()
    targets: Array = of_contexts()
    X: Array = of_rows()
    target: Array = of_rows()
    weight: Array = of_rows()
    codes: Codes = of_rows()

    def rows(self, loss: Loss, fit_intercept: bool, chosen: Codes) -> MemoryRows:
        """Return the rows of some contexts with the means of those that are not here, as rows in memory."""
        place = np.full(int(self.contexts.max()) + 1, -1)
        place[chosen] = np.arange(len(chosen))
        codes = place[self.codes]
        kept = codes >= 0
        codes = codes[kept]
        drawn = np.bincount(codes, self.weight[kept], len(chosen))
        # Rows that were drawn stand for all that are near.
        factor = np.divide(self.near[chosen], drawn, out=np.zeros(len(chosen)), where=drawn > 0.0)
        owner, side = np.nonzero(self.beyond[chosen] > 0.0)
        mass = self.beyond[chosen][owner, side]
        X = np.concatenate([self.X[kept], self.features[chosen][owner, side] / mass[:, None]])
        target = np.concatenate([self.target[kept], self.targets[chosen][owner, side] / mass])
        weight = np.concatenate([self.weight[kept] * factor[codes], mass])
        contexts = Contexts(np.arange(len(chosen)), np.concatenate([codes, owner]).astype(np.intp))
        return MemoryRows.of(X, target, contexts, loss, weight, fit_intercept)


@dataclass(frozen=True)
class Band:
    """Which rows are near their hinges.

    Attributes
    ----------
    theta : ndarray of shape (P,), or (n_contexts, P)
        One for all contexts, or one for each.
    width : ndarray of shape (n_contexts,)
        How far from its hinge a prediction is near it; below zero nowhere.
    share : ndarray of shape (n_contexts,)
        How many of the rows near their hinges are drawn.
    """

    theta: Array
    width: Array
    share: Array

    answers: ClassVar[Any] = BandAnswer

    def about(self, contexts: Codes) -> Self:
        """Return the question to a block with these contexts."""
        theta = self.theta[contexts] if self.theta.ndim == 2 else self.theta
        return replace(self, theta=theta, width=self.width[contexts], share=self.share[contexts])

    def __call__(self, block: Block, state: Any) -> BandAnswer:
        rows, part = block.rows, block.rows.whole
        sums, each = part.at(self.theta), part.layout.each
        beyond = sums.predictions - rows.target
        near = np.abs(beyond) <= each(self.width)
        drawn = near & self._lot(rows, each(self.share))
        sides = [
            np.where(~near & (beyond < 0.0), part.weight, 0.0),
            np.where(~near & (beyond >= 0.0), part.weight, 0.0),
        ]
        d = part.coefficients.n_features
        X = rows.X[drawn]
        return BandAnswer(
            block.contexts,
            SHARED,
            values=sums.values,
            gradients=sums.gradients,
            sizes=sums.sizes,
            n_near=part.layout.total(near.astype(np.float64)),
            near=part.layout.total(np.where(near, part.weight, 0.0)),
            beyond=np.stack([part.layout.total(weight) for weight in sides], axis=1),
            features=np.stack([part.layout.gather(weight[:, None])[:, :d] for weight in sides], axis=1),
            targets=np.stack([part.layout.total(weight * rows.target) for weight in sides], axis=1),
            X=X.toarray() if sparse.issparse(X) else X,
            target=rows.target[drawn],
            weight=part.weight[drawn],
            codes=block.contexts[rows.owner[drawn]],
        )

    @staticmethod
    def _lot(rows: MemoryRows, share: Array) -> Mask:
        """Draw rows, always the same ones."""
        if (share >= 1.0).all():
            return np.ones(rows.n_rows, dtype=bool)
        return np.asarray(np.random.default_rng(_SEED).random(rows.n_rows) < share)
