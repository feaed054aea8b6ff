"""Many features: the interior-point method with its linear systems solved by conjugate gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from counterpoise.linalg import positive_solver
from counterpoise.objective import RobustObjective
from counterpoise.oracle._base import Point
from counterpoise.solvers._base import Array, State
from counterpoise.solvers._kkt import KKTSystem, Smooth
from counterpoise.solvers.interior_point import InteriorPoint


@dataclass(frozen=True)
class NewtonCG(InteriorPoint):
    """Needs products with the Hessian, never the Hessian: thousands of features, dense or sparse.

    The system of a step is preconditioned by its diagonal plus, exactly, the part of rank ``n_contexts`` that grows
    without bound near a kink.
    """

    needs: ClassVar[tuple[str, ...]] = ("hessian_product",)

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
        return _ConjugateSystem(objective, state, self.linearise)


class _ConjugateSystem(KKTSystem):
    """The same symmetric positive system, as a product."""

    def assemble(self, curvature_shift: Array, corner: Array) -> None:
        """Prepare products with the matrix and its preconditioner."""
        model = self.model
        assert isinstance(model, Smooth)
        point, p = model.point, model.p
        n = len(curvature_shift)
        product = point.hessian_product(p)
        rows = None if self.fixed else self.rows / np.sqrt(self.stiffness)[:, None]

        def apply(x: Array) -> Array:
            out = np.empty_like(x)
            out[:n] = product(x[:n]) + curvature_shift * x[:n]
            out[n:] = corner * x[n:]
            return out if rows is None else out + rows.T @ (rows @ x)

        self.diagonal = point.hessian_diagonal(p) + curvature_shift
        scale = np.concatenate([self.diagonal, corner])
        precondition = _woodbury(scale, rows)
        self.apply = apply
        self.solve = lambda rhs: _conjugate_gradients(apply, precondition, rhs)


def _woodbury(diagonal: Array, rows: Array | None) -> Callable[[Array], Array]:
    """Return the inverse of ``diag(diagonal) + rows' rows`` as a map."""
    if rows is None:
        return lambda x: x / np.maximum(diagonal, 1e-300)
    # The border of the probabilities' sum has no diagonal of its own; a share of what the rows add keeps the formula
    # well conditioned, and costs one more iteration.
    safe = np.where(diagonal > 0, diagonal, 1e-4 * np.einsum("cj,cj->j", rows, rows) + 1e-300)
    small = np.eye(len(rows)) + (rows / safe) @ rows.T
    inner = positive_solver(small)

    def apply(x: Array) -> Array:
        y = x / safe
        return np.asarray(y - (rows.T @ inner(rows @ y)) / safe)

    return apply


def _conjugate_gradients(
    apply: Callable[[Array], Array], precondition: Callable[[Array], Array], rhs: Array, tol: float = 1e-11
) -> Array:
    """Solve by preconditioned conjugate gradients, to a fixed relative residual or to rounding."""
    x = np.zeros_like(rhs)
    r = rhs.copy()
    z = precondition(r)
    direction = z
    energy = float(r @ z)
    stop = tol * tol * energy
    best, least = x, energy
    for _ in range(500):
        if not energy > stop:
            break
        image = apply(direction)
        curvature = float(direction @ image)
        if not curvature > 0 or not math.isfinite(curvature):
            break
        length = energy / curvature
        x = x + length * direction
        r = r - length * image
        z = precondition(r)
        energy, previous = float(r @ z), energy
        direction = z + (energy / previous) * direction
        # Where the matrix is singular, rounding grows again once the rest is solved.
        if energy < least:
            best, least = x, energy
        elif energy > 1e8 * least:
            break
    return best
