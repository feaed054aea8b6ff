"""Robust problems of several classes with many parameters: one curvature for all contexts, learnt from gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle._base import Array
from counterpoise.core.oracle.quadratic import QuadraticOracle
from counterpoise.core.parabolas import Follower
from counterpoise.core.references.by_class import ClassBlocks
from counterpoise.core.references.newton import two_loops
from counterpoise.core.solvers import Solution
from counterpoise.linalg import spectrum
from counterpoise.sets import ContextSet

_TRIES = 40

_CLOSE, _CLOSER, _CLOSEST = 1e-2, 0.3, 1e-12
"""Share of the tolerance to which a model is solved, what is left of it at every further try, and the least of it."""

_SHORTEST = 1e-3
"""Share of a step below which the model is given up."""

_SAME = 1e-13
"""Share of the largest below which a direction is rounding of the others."""


@dataclass(eq=False)
class CommonParabola(Follower):
    r"""Solve by models in which the risks of all contexts bend alike.

    .. math:: R_c(\theta + u) \approx R_c + g_c^\top u + \tfrac12 u^\top B u

    Around a point the minimum of any mix is then at :math:`u = -B^{-1} G^\top p`, so that the model has no more
    dimensions than there are contexts. As in sequential quadratic programming, :math:`B` need only come close to the
    Hessian of the least favourable mix: at first it is that of each class by itself, and then what the gradients of
    that mix have shown (BFGS). The ridge proves what is found.
    """

    blocks: ClassBlocks | None = None
    shown: list[tuple[Array, Array]] = field(default_factory=list)

    def _look(self, point: Any) -> None:
        """Begin at a point."""
        self.point = point

    def solve(self, ball: ContextSet) -> Solution | None:
        """Return the solution; None where models do not lead to it."""
        objective = self.problem.objective(ball, self.references)
        assert self.point is not None
        self.scale = objective.scale(self.point)
        p = objective.worst_case(self.point).distribution
        self._bend(p)
        for attempt in range(_TRIES):
            close = max(_CLOSE * self.tol * _CLOSER**attempt, _CLOSEST)
            before: Any = self.point
            step, p = self._step(objective, ball, p, close)
            point = self._downhill(objective, step)
            if point is None:
                return None
            p = ball.project(p)
            self.shown.append(((point.theta - before.theta)[None], (p @ (point.jacobian - before.jacobian))[None]))
            self.point, bound = point, -math.inf
            if point.left_by_ridge(p) <= self.tol * self.scale:
                bound = point.bound_by_ridge(p) - float(p @ objective.references.upper)
            solution = self._certified(objective, point, p, attempt + 1, bound)
            if solution is not None:
                return solution
        return None

    def _bend(self, p: Array) -> None:
        """Take what each class has to do with itself in a mix for the curvature, and forget what was shown."""
        begin: Any = self.problem.expansion
        oracle = self.problem.oracle
        own = p[: oracle.n_contexts]
        blocks = np.einsum("c,ckij->kij", own / own.sum(), begin.sums.class_blocks)[None]
        self.blocks = ClassBlocks.inverting(blocks, oracle.alpha * oracle.coefficients.penalised)
        self.shown = []

    def _step(self, objective: RobustObjective, ball: ContextSet, p: Array, close: float) -> tuple[Array, Array]:
        """Return the step to the solution of the model, and the distribution that goes with it."""
        assert self.point is not None
        assert self.blocks is not None
        gradients, mixed = self.point.jacobian, p @ self.point.jacobian
        # Near the solution the gradients cancel: what is left of them is a direction of its own.
        rows = np.vstack([gradients, mixed])
        rows = rows[np.any(rows != 0.0, axis=1)]
        rows = rows / np.sqrt(np.einsum("cd,cd->c", rows, rows))[:, None]
        bent = two_loops(self.blocks.solve, self.shown, rows)
        values, vectors = spectrum(0.5 * (rows @ bent.T + bent @ rows.T))
        kept = values > _SAME * values[-1]
        basis = (vectors[:, kept] / np.sqrt(values[kept])).T @ bent
        model = QuadraticOracle(
            np.zeros(len(basis)),
            self.point.risks,
            gradients @ basis.T,
            np.eye(len(basis))[None],
            objective.oracle.typical_risk,
        )
        # What is uncertain of the references would be left of every gap.
        exact = ReferenceRisks.exactly(objective.references.upper)
        move, p = self._solve(RobustObjective(model, ball, exact), ball, close, p)
        return move @ basis, p

    def _downhill(self, objective: RobustObjective, step: Array) -> Any:
        """Return the point a step away, or less far where that leads up; None where nothing leads down."""
        assert self.point is not None
        value, length = objective.value(self.point), 1.0
        slack = 1e-12 * (self.scale or 0.0)
        while length > _SHORTEST:
            point = objective.oracle.at(self.point.theta + length * step)
            if objective.value(point) <= value + slack:
                return point
            length *= 0.5
        return None
