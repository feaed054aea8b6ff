"""Many features: the interior-point method with its linear systems solved by conjugate gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy import linalg

from counterpoise.core.objective import RobustObjective
from counterpoise.core.oracle._base import Point
from counterpoise.core.solvers._base import Array, State
from counterpoise.core.solvers._kkt import KKTSystem, Linearisation, Smooth
from counterpoise.core.solvers.interior_point import InteriorPoint

_PRODUCTS = 500
"""The most products with the Hessian for one direction."""


@dataclass(frozen=True)
class NewtonCG(InteriorPoint):
    """Needs products with the Hessian, never the Hessian: thousands of features, dense or sparse."""

    needs: ClassVar[tuple[str, ...]] = ("hessian_product",)

    left: ClassVar[float] = 1e-11
    """Share of the optimality conditions' residual that a step may leave."""

    left_alone: ClassVar[float] = 1e-11
    """The same for one distribution, where there is no path to keep to."""

    def first_point(self, objective: RobustObjective, theta: Array) -> Point:
        """Return a point near the empirical risk minimiser."""
        if self.warm or objective.mixes.is_point:
            return objective.oracle.at(theta)
        centre = replace(objective, mixes=objective.mixes.centre)
        solution = replace(self, tol=1e-2, max_iter=30, callback=None).solve(centre, theta)
        return objective.oracle.at(solution.theta)

    def finished(self, state: State) -> State:
        """Return the state as it is: its Hessian is never formed."""
        return state

    def system(self, objective: RobustObjective, state: State) -> KKTSystem:
        """Return the Newton system, to be solved by conjugate gradients."""
        return _ConjugateSystem(objective, state, self.linearise, self.left, self.left_alone)


class _ConjugateSystem(KKTSystem):
    """The system with p still in it: only stationarity in theta is left unfinished, all else holds exactly.

    Conjugate gradients are preconditioned by the same system with the Hessian's diagonal in place of the Hessian.
    Near a kink the resistance of p vanishes, which is no harm here: nothing is divided by it.
    """

    def __init__(
        self,
        objective: RobustObjective,
        state: State,
        linearise: Callable[[RobustObjective, Point, Array], Linearisation],
        left: float,
        left_alone: float,
    ) -> None:
        self.left, self.left_alone = left, left_alone
        super().__init__(objective, state, linearise)

    def assemble(self, curvature_shift: Array, corner: Array) -> None:
        """Prepare products with the Hessian, and the small system that the diagonal leaves."""
        model = self.model
        assert isinstance(model, Smooth)
        n = len(curvature_shift)
        self.product = model.point.hessian_product(model.p)
        self.shift = curvature_shift
        self.diagonal = np.maximum(model.point.hessian_diagonal(model.p) + curvature_shift, 1e-300)
        k = len(corner)
        rows = np.empty((0, n + k)) if self.fixed else self.rows
        self.jacobian, border = rows[:, :n], rows[:, n:]
        stiffness = np.empty((0, 0)) if self.fixed else self.stiffness.matrix()
        outer = (self.jacobian / self.diagonal) @ self.jacobian.T + stiffness
        small = np.block([[-outer, border], [border.T, np.diag(corner)]])
        if not np.isfinite(small).all():
            raise FloatingPointError("the system overflowed")
        self.small = linalg.lu_factor(small)
        left = self.left_alone if self.fixed else self.left
        self.enough = (left * self.merit(self.state, 0.0)) ** 2 / self.width
        self.theta, self.others, self.residual = np.zeros(n), np.zeros(len(rows) + k), np.zeros(n)
        self.sides: tuple[Array, Array] = (np.zeros(n), np.zeros(len(rows) + k))

    def found(self, rhs: Array, b_x: Array) -> tuple[Array, Array]:
        """Go on from what was found for the last right side until little enough is left."""
        n, n_p = len(self.theta), len(self.jacobian)
        sides = rhs[:n], np.concatenate([-b_x[:n_p], rhs[n:]])
        change, still = sides[1] - self.sides[1], np.zeros_like(sides[1])
        self.residual, self.sides = self.residual + (sides[0] - self.sides[0]), sides
        if change.any():
            first = self._precondition(self.residual / self.diagonal, change)
            self._go(first, self._image(first), 1.0)
        direction, before = (np.zeros(n), still), math.inf
        for _ in range(_PRODUCTS):
            scaled = self.residual / self.diagonal
            if float(self.residual @ scaled) <= self.enough:
                break
            z = self._precondition(scaled, still)
            energy = float(self.residual @ z[0])
            direction = z[0] + (energy / before) * direction[0], z[1] + (energy / before) * direction[1]
            image, before = self._image(direction), energy
            curvature = float(direction[0] @ image)
            if not (energy > 0.0 and curvature > 0.0 and math.isfinite(curvature)):
                break
            self._go(direction, image, energy / curvature)
        x = np.concatenate([self.theta, self.others[n_p:]])
        return x, self.others[:n_p] if n_p else np.zeros_like(b_x)

    def _precondition(self, theta: Array, others: Array) -> tuple[Array, Array]:
        """Solve with the diagonal in place of the Hessian; ``theta`` comes divided by it."""
        n_p = len(self.jacobian)
        if not n_p:
            return theta, others
        side = others.copy()
        side[:n_p] -= self.jacobian @ theta
        solved = linalg.lu_solve(self.small, side)
        return theta - (self.jacobian.T @ solved[:n_p]) / self.diagonal, solved

    def _image(self, step: tuple[Array, Array]) -> Array:
        """Return what a step adds to stationarity in theta."""
        theta, p = step[0], step[1][: len(self.jacobian)]
        return np.asarray(self.product(theta) + self.shift * theta + self.jacobian.T @ p)

    def _go(self, step: tuple[Array, Array], image: Array, length: float) -> None:
        self.theta, self.others = self.theta + length * step[0], self.others + length * step[1]
        self.residual = self.residual - length * image
