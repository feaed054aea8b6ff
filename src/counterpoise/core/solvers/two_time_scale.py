"""Two-time-scale gradient descent-ascent: the paper's method for losses that are not convex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from counterpoise.core.objective import RobustObjective
from counterpoise.core.solvers._base import Array, Solver, State, projected


@dataclass(frozen=True)
class TwoTimeScale(Solver):
    r"""Theta descends and the distribution ascends inside the set, each with a step size of its own.

    The ascent multiplies by :math:`e^{\eta s_c}` and, where that leaves the set, moves straight back towards
    :math:`\hat p`. A distribution that this leaves in place has
    :math:`p_c (s_c - \bar s) \propto p_c - \hat p_c`, which is the form
    :math:`\lambda \hat p_c / (\nu - s_c)` of the least favourable one. In a set that bounds or links have a part in
    it moves towards the least favourable member instead, which needs no way back.

    Parameters
    ----------
    step_size : float
        Of theta.
    p_step_size : float
        Of the distribution; relative to the spread of the scores.
    """

    step_size: float = 0.05
    p_step_size: float = 0.2
    max_iter: int = 20_000

    check_every: ClassVar[int] = 200
    certifies: ClassVar[bool] = False

    def start(self, objective: RobustObjective, theta: Array) -> State:
        """Begin at ``theta`` and the centre of the set."""
        return State(objective.oracle.at(projected(objective, theta)), objective.mixes.p_hat)

    def step(self, objective: RobustObjective, state: State) -> State:
        """Descend in theta and ascend in the distribution, both from the same point."""
        scores = objective.scores(state.point)
        theta = state.point.theta - self.step_size * (state.p @ state.point.jacobian)
        point = objective.oracle.at(projected(objective, theta))
        if not np.isfinite(point.risks).all():
            return State(state.point, state.p, stalled=True)
        if not objective.mixes.geometry.is_plain:
            share = min(0.05 * self.p_step_size, 1.0)
            return State(point, state.p + share * (objective.mixes.worst_case(scores).distribution - state.p))
        spread = max(float(scores.max() - scores.min()), 1e-300)
        p = state.p * np.exp(self.p_step_size * (scores - scores.max()) / max(spread, 1.0))
        return State(point, objective.mixes.project(p))
