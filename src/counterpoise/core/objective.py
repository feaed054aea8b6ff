"""The robust objective: the worst-case score over a set, and what bounds its minimum."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from counterpoise.core.oracle._base import Oracle, Point
from counterpoise.core.oracle.constant import with_constants
from counterpoise.sets import ContextSet, WorstCase

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Certificate:
    """A proof of how good a solution is: the optimum lies between ``lower`` and ``upper``.

    Attributes
    ----------
    lower, upper : float
        ``upper`` is attained by the returned parameters.
    scope : {"global", "local"}
        ``"global"``: a theorem, up to rounding in the sums, for the losses of this library; for risks given as
        functions it takes the caller's word that they are convex, or the word of every Hessian that was seen.
        ``"local"``: an estimate from derivatives around the solution, which is all there is for risks that may not be
        convex or have no Hessian.
    scale : float
        The size of the objective, against which the gap is measured.
    """

    lower: float
    upper: float
    scope: Literal["global", "local"] = "global"
    scale: float = field(default=1.0, repr=False)

    @property
    def gap(self) -> float:
        """``upper - lower``, never negative."""
        return max(self.upper - self.lower, 0.0)

    @property
    def relative_gap(self) -> float:
        """The gap over the scale of the objective."""
        return self.gap / self.scale


@dataclass(frozen=True, eq=False)
class ReferenceRisks:
    """The least risk possible in each context, known to lie between two numbers.

    ``upper`` is attained and used as the reference; ``lower`` is proven. They agree where references are given.
    """

    upper: Array
    lower: Array

    @classmethod
    def exactly(cls, values: Array) -> ReferenceRisks:
        """Return references known without error."""
        return cls(values, values)

    def less(self, amounts: Array) -> ReferenceRisks:
        """Return references lowered by amounts known without error."""
        return ReferenceRisks(self.upper - amounts, self.lower - amounts)

    def followed_by_zeros(self, n: int) -> ReferenceRisks:
        """Return references for further contexts whose risk is scored as it is."""
        zeros = np.zeros(n)
        return ReferenceRisks(np.append(self.upper, zeros), np.append(self.lower, zeros)) if n else self


@dataclass(frozen=True, eq=False)
class RobustObjective:
    r"""The problem :math:`\min_\theta \max_{p \in P} \sum_c p_c (R_c(\theta) - r_c)`.

    With references :math:`r` at zero it is about risk, with the least risk per context about excess risk; with the
    set a point it is empirical risk minimisation, with the simplex it is minimax.
    """

    oracle: Oracle
    mixes: ContextSet
    references: ReferenceRisks

    @classmethod
    def of(cls, oracle: Oracle, mixes: ContextSet, references: ReferenceRisks, constants: Array) -> RobustObjective:
        """Return the problem with further contexts, without rows, whose score is a constant; the set is over all."""
        return cls(with_constants(oracle, constants), mixes, references.followed_by_zeros(len(constants)))

    def scores(self, point: Point) -> Array:
        """Return what is averaged: risk less reference."""
        return point.risks - self.references.upper

    def worst_case(self, point: Point) -> WorstCase:
        """Return the least favourable distribution at a point, and the objective's value."""
        return self.mixes.worst_case(self.scores(point))

    def value(self, point: Point) -> float:
        """Return the objective, infinite where a risk is not finite."""
        if not np.isfinite(point.risks).all():
            return math.inf
        return float(self.worst_case(point).value)

    def upper_bound(self, point: Point) -> float:
        """Return a bound of the objective at a point that holds wherever the references truly lie."""
        if not np.isfinite(point.risks).all():
            return math.inf
        return float(self.mixes.worst_case(point.risks - self.references.lower).value)

    def lower_bound(
        self,
        point: Point,
        p: Array,
        curvature: Array | None = None,
        multipliers: tuple[Array, Array] | None = None,
    ) -> float:
        """Return a lower bound of the optimum: weak duality at a member ``p`` of the set.

        Parameters
        ----------
        curvature : ndarray, optional
            A matrix not above the Hessian of ``sum_c p_c R_c`` at the point.
        multipliers : pair of ndarray, optional
            Non-negative prices of the lower and the upper bounds on theta, where the solver has them.
        """
        gradient = p @ point.jacobian
        charge = 0.0
        if multipliers is not None and self.oracle.bounds is not None:
            low, high = multipliers
            rooms = (point.theta - self.oracle.bounds[0], self.oracle.bounds[1] - point.theta)
            # Where there is no bound there is no price; 0 times infinity must not spoil the sum.
            charge = sum(
                float(price[price > 0] @ room[price > 0]) for price, room in zip(multipliers, rooms, strict=True)
            )
            gradient = gradient - low + high
        return point.lower_bound(p, gradient, curvature) - charge - float(p @ self.references.upper)

    def scale(self, point: Point) -> float:
        """Return the size against which a gap is measured: how far the risks are above what bounds them below.

        A constant in the loss (minus the log-likelihood of a large count, say) is not part of it. Where nothing bounds
        the risks, their own size is. Where it vanishes (separable data, a perfect fit), a thousandth of the size for a
        decision that learns nothing takes its place.
        """
        above = point.risks - self.oracle.lowest_risks
        if not np.isfinite(above).all():
            above = np.abs(point.risks)
        size = float(self.mixes.worst_case(above).value)
        return max(size, 1e-3 * self.oracle.typical_risk)
