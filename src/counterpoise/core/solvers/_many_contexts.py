r"""The robust problem on a model of the risks, for more contexts than a kink can hold.

On the model the least favourable distribution :math:`p^*` of every point is found exactly, and with it the value and
the gradient. Only the curvature is not the objective's own: next to a context about to become the worst it changes so
fast that it tells nothing of the next point. A second distribution, which follows :math:`p^*` by the steps of a
primal-dual method, carries it instead,

.. math::
    \begin{pmatrix} H + J^\top W J & \cdot \\ \cdot & \cdot \end{pmatrix},
    \qquad W^{-1} = \operatorname{diag}(s / p + \lambda q'), \qquad s_c = \lambda \kappa_c / p^*_c,

bordered by the conditions :math:`\sum p = 1` and :math:`g(p) = 0`, where the set is :math:`g \le 0` with
:math:`\nabla g = q - \kappa / p` (in a KL ball :math:`q = 0` and :math:`\kappa = \hat p`). The matrix is positive
semi-definite, so every step goes downhill; and at the solution, where both distributions agree, it is Newton's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterpoise.core.solvers._base import Array
from counterpoise.linalg import positive_solver
from counterpoise.sets import ContextSet, WorstCase

_APART = 1e3
"""Factor by which a probability of one distribution may differ from the other's."""

_INNER = 30
"""Steps on a model of the risks before it is made anew."""

_SHORTEST = 1e-4
"""Length of a step below which there is a kink, or rounding."""


def minimise_for_many(
    mixes: ContextSet, scores: Array, jacobian: Array, curvature: Array, p: Array
) -> tuple[Array, Array, float]:
    """Return the move that minimises the worst case on the model, the distribution there, and the decrease."""
    model, worst = _Model(mixes, scores, jacobian, curvature), mixes.worst_case(scores)
    return model.minimise(worst, _near(p, worst.distribution))


@dataclass(frozen=True, eq=False)
class _Model:
    """Scores that are linear in a move, but for a curvature which all contexts share."""

    mixes: ContextSet
    scores: Array
    jacobian: Array
    curvature: Array

    @cached_property
    def _rows(self) -> tuple[Array, Array]:
        """The gradients of scores, of the total and of the set, which change from step to step, and as much memory."""
        ones = np.ones((len(self.scores), 1))
        rows = np.hstack([self.jacobian, -ones, ones])
        return rows, np.empty_like(rows)

    def minimise(self, worst: WorstCase, p: Array) -> tuple[Array, Array, float]:
        """Return the move that minimises the worst case, the second distribution there, and the decrease."""
        move, value = np.zeros(len(self.curvature)), float(worst.value)
        first = value
        for _ in range(_INNER):
            if not (worst.multiplier > 0.0 and math.isfinite(worst.multiplier)):
                break
            direction, change, slope = self._direction(worst, p, move)
            length, slack = 1.0, 1e-15 * abs(value)
            while length > _SHORTEST:
                trial = move + length * direction
                trial_worst = self.mixes.worst_case(self.scores + self.jacobian @ trial)
                trial_value = float(trial_worst.value) + 0.5 * float(trial @ self.curvature @ trial)
                if trial_value <= value + 1e-4 * length * slope + slack:
                    break
                length *= 0.5
            else:
                break
            move, value, worst = trial, trial_value, trial_worst
            p = _near(np.maximum(p + length * change, 0.1 * p), worst.distribution)
            if -slope <= 0.1 * (first - value):
                break
        return move, p, first - value

    def _direction(self, worst: WorstCase, p: Array, move: Array) -> tuple[Array, Array, float]:
        """Return a step, how the second distribution changes along it, and the slope of the worst case."""
        exact, n = worst.distribution, len(move)
        constraints = self.mixes.constraints(p)
        prices = np.atleast_1d(worst.multiplier)
        weight = exact * p / (prices @ (constraints.poles + constraints.curvature * p**2))
        rows, weighted = self._rows
        np.negative(constraints.gradients.T, out=rows[:, n + 1 :])
        matrix = rows.T @ np.multiply(weight[:, None], rows, out=weighted)
        matrix[:n, :n] += self.curvature
        gradient = exact @ self.jacobian + self.curvature @ move
        rhs = np.concatenate([-gradient, [0.0], constraints.values + constraints.gradients @ (exact - p)])
        solve = positive_solver(matrix)
        x = solve(rhs)
        x = x + solve(rhs - matrix @ x)
        change = weight * (rows @ x) + exact - p
        return x[:n], change, float(gradient @ x[:n])


def _near(p: Array, exact: Array) -> Array:
    """Return the second distribution kept within a factor of the first."""
    p = np.clip(p, exact / _APART, exact * _APART)
    return p / p.sum()
