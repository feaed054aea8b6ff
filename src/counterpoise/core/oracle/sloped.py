"""Linear models with a piecewise linear loss whose points bound a minimum without a solver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoise.core.oracle._base import Array
from counterpoise.core.oracle.bounds import balanced_bounds
from counterpoise.core.oracle.linear import LinearOracle, LinearPoint, Ridge, RidgedAt
from counterpoise.linalg import positive_solver
from counterpoise.rows.slopes import RowSlopes

_STEPS = 8
"""Newton steps after which slopes are balanced as they are."""

_LITTLE = 1e-9
"""What a step may still promise, as a share of the risk, where slopes are about to balance."""


@dataclass(frozen=True, eq=False)
class SlopedOracle(LinearOracle):
    """Risks of rows in memory; slopes near a hinge turn gradually in bounds, as if the loss were soft there.

    Any slope between the left and the right one is a point of the dual. Those that turn over a stretch can be moved
    until they balance, and cost no more than the square of the stretch, in how densely rows lie.

    Attributes
    ----------
    stretch : float
        How far from a hinge slopes have turned; with 0 nothing is said beyond the least that rows allow.
    """

    stretch: float = 0.0

    def at(self, theta: Array) -> SlopedPoint:
        """Return what is known at ``theta``."""
        return SlopedPoint(self, np.asarray(theta, dtype=np.float64))


@dataclass(eq=False)
class SlopedPoint(LinearPoint):
    """Risks and their derivatives at one theta, of rows in memory."""

    oracle: SlopedOracle

    def lower_bound(self, p: Array, gradient: Array, curvature: Array | None) -> float:
        """Bound the minimum of ``sum_c p_c risk_c`` from below by slopes that turn gradually."""
        oracle, seen = self.oracle, p > 0.0
        floor = float(p[seen] @ oracle.lowest_risks[seen])
        if not oracle.stretch > 0.0:
            return floor
        ridge = Ridge(oracle.alpha * float(p.sum()), oracle.ridge.penalised)
        at, slopes = self.theta, self._slopes(self.theta, p)
        for _ in range(_STEPS):
            # Nearer to the minimum of such a loss there is less to balance, and any place will do for a bound.
            residual = slopes.pull[0] + ridge.gradient(at)
            move = positive_solver(ridge.added(slopes.gram[0].copy()))(residual)
            if not np.isfinite(move).all() or float(residual @ move) <= _LITTLE * oracle.typical_risk:
                break
            at = at - move
            slopes = self._slopes(at, p)
        return max(floor, float(balanced_bounds(slopes, RidgedAt(ridge, oracle.reach, at[None]))[0]))

    def _slopes(self, theta: Array, p: Array) -> RowSlopes:
        part, stretch = self.oracle.rows.whole, self.oracle.stretch
        hinge, _, left, right = part.loss.pieces(part.target)
        predictions, turn = part.pooled.product(theta[None])[:, 0], 0.5 * (right - left) / stretch
        beyond = predictions - hinge
        slope, bend = 0.5 * (left + right) + turn * beyond, np.where(np.abs(beyond) <= stretch, turn, 0.0)
        weight = part.weight * part.layout.each(p)
        return RowSlopes.inside(part, part.pooled, weight, predictions, slope, bend, np.ones(len(hinge)))
