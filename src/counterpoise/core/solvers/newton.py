"""Damped Newton for one fixed distribution: empirical risk minimisation, weighted or not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from counterpoise.core.objective import RobustObjective
from counterpoise.core.oracle._base import Point
from counterpoise.core.solvers._base import Array, Solver, State, foresee
from counterpoise.exceptions import InvalidInputError
from counterpoise.linalg import positive_solver


@dataclass(frozen=True)
class Newton(Solver):
    """Minimise the risk under the centre of the set, whatever the set.

    It needs a Hessian and no bounds. With a set that is a point it solves the robust problem; otherwise it is the
    empirical risk minimiser, whose gap says what ignoring the set costs.
    """

    needs: ClassVar[tuple[str, ...]] = ("hessian",)

    def check(self, objective: RobustObjective) -> None:
        """Refuse bounds."""
        super().check(objective)
        if objective.oracle.bounds is not None:
            raise InvalidInputError("Newton knows no bounds on theta. Use InteriorPoint.")

    def start(self, objective: RobustObjective, theta: Array) -> State:
        """Begin at ``theta``."""
        return _state(objective, foresee(objective.oracle.at(theta), objective.mixes.p_hat))

    def step(self, objective: RobustObjective, state: State) -> State:
        """Take a Newton step, shortened until the risk falls enough."""
        point, p = state.point, state.p
        assert state.curvature is not None
        gradient = p @ point.jacobian
        value = float(p @ point.risks)
        # A step against the Hessian first; where that fails, one against a matrix that bounds it from above.
        for shortest in (0.05, 1e-12):
            matrix = state.curvature if shortest == 0.05 else point.majorant(p)
            direction = -positive_solver(state.curvature if matrix is None else matrix)(gradient)
            slope = float(gradient @ direction)
            # Near the minimum the change drowns in the rounding of the value; there a full step is right.
            slack = 1e-14 * (abs(value) + abs(slope))
            length = 1.0
            while length > shortest:
                trial = foresee(objective.oracle.at(point.theta + length * direction), p)
                if float(p @ trial.risks) <= value + 1e-4 * length * slope + slack:
                    return _state(objective, trial)
                length *= 0.5
        return replace(state, stalled=True)


def _state(objective: RobustObjective, point: Point) -> State:
    p = objective.mixes.p_hat
    return State(point, p, point.hessian(p))
