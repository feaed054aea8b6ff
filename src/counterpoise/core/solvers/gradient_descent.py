"""The paper's Algorithm 1: gradient descent with a fixed step on the worst-case score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from counterpoise.core.objective import RobustObjective
from counterpoise.core.solvers._base import Array, Solver, State, projected


@dataclass(frozen=True)
class GradientDescent(Solver):
    """Step against the gradient that Danskin's theorem gives at the least favourable distribution.

    Where the objective has a kink a fixed step oscillates for ever. The paper starts it at the empirical risk
    minimiser.

    Parameters
    ----------
    step_size : float
    """

    step_size: float = 0.05
    max_iter: int = 10_000

    check_every: ClassVar[int] = 100
    certifies: ClassVar[bool] = False

    def start(self, objective: RobustObjective, theta: Array) -> State:
        """Begin at ``theta``."""
        point = objective.oracle.at(projected(objective, theta))
        return State(point, objective.worst_case(point).distribution)

    def step(self, objective: RobustObjective, state: State) -> State:
        """Move theta by the step size times the gradient, then find its least favourable distribution."""
        theta = state.point.theta - self.step_size * (state.p @ state.point.jacobian)
        point = objective.oracle.at(projected(objective, theta))
        if not np.isfinite(point.risks).all():
            return State(state.point, state.p, stalled=True)
        return State(point, objective.worst_case(point).distribution)
