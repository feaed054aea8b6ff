r"""The certified default for smooth risks: the robust problem solved exactly on a model of the risks, again and again.

Around a point the risks are taken as linear, but for a curvature that all contexts share: the Hessian of their mixture
under the present distribution,

.. math:: \Delta_c(\theta + u) \approx \Delta_c(\theta) + g_c^\top u + \tfrac12 u^\top H(p)\, u .

The minimum of the worst case on the model, and the distribution that goes with it, are found without a look at data;
then the model is made anew there. Kinks are part of the model, so nothing is lost at them, and near the solution the
error is squared by every look.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle._base import Point
from counterpoise.core.oracle.quadratic import QuadraticOracle
from counterpoise.core.solvers._base import Array, Solver, State, foresee
from counterpoise.core.solvers._many_contexts import minimise_for_many
from counterpoise.core.solvers.interior_point import InteriorPoint, rough_erm
from counterpoise.exceptions import InvalidInputError
from counterpoise.linalg import positive_solver

MANY_CONTEXTS = 10
"""Contexts per parameter from which all their scores do not meet on a kink."""

_SHARE = 0.05
"""What has to be left of a Hessian for it to serve once more."""

_CLOSE = 1e-2
"""Share of the tolerance to which the model is solved, where time between looks counts."""

_SHORTEST = 1e-3
"""Length of a step below which the model says nothing of the risks."""


@dataclass(frozen=True)
class ModelNewton(Solver):
    """Second-order solver for smooth risks.

    Parameters
    ----------
    thrifty : bool
        Keep a Hessian as long as it serves, where rows are so many that it costs several looks at the risks and their
        gradients. The points have to know how much of a Hessian is left elsewhere.
    """

    max_iter: int = 100
    thrifty: bool = False

    needs: ClassVar[tuple[str, ...]] = ("hessian",)

    def check(self, objective: RobustObjective) -> None:
        """Refuse bounds, and a set that is one point."""
        super().check(objective)
        if self.thrifty:
            self.require(objective.oracle, "curvature_share")
        if objective.oracle.bounds is not None or objective.mixes.is_point:
            raise InvalidInputError(
                "ModelNewton knows no bounds on theta and needs a radius. Use InteriorPoint, or Newton."
            )

    def start(self, objective: RobustObjective, theta: Array) -> State:
        """Begin at ``theta`` with the centre of the set; with many contexts near the empirical risk minimiser."""
        many = _are_many(objective)
        point = rough_erm(objective, theta) if many else objective.oracle.at(theta)
        p = objective.mixes.p_hat
        if many or (self.thrifty and not objective.mixes.is_simplex):
            p = objective.worst_case(point).distribution
        return _state(point, p)

    def step(self, objective: RobustObjective, state: State) -> State:
        """Go to the minimum of the model, or as far towards it as the objective falls enough."""
        point = state.point
        found = self._on_model(objective, state)
        if found is None:
            return replace(state, stalled=True)
        move, p, promised = found
        value = objective.value(point)
        slack = 1e-14 * abs(value)
        length = 1.0
        while length > _SHORTEST:
            trial = foresee(objective.oracle.at(point.theta + length * move), p)
            fall = value - objective.value(trial)
            if fall >= 1e-4 * length * promised - slack:
                if length == 1.0 and self.thrifty and abs(fall - promised) <= 0.5 * promised:
                    return _with_what_is_left(state, trial, p)
                return _state(trial, p if length == 1.0 else state.p + length * (p - state.p))
            length *= 0.5
        return replace(state, stalled=True)

    def _on_model(self, objective: RobustObjective, state: State) -> tuple[Array, Array, float] | None:
        """Return the move to the model's minimum, the distribution there, and the decrease it promises."""
        point, mixes = state.point, objective.mixes
        curvature = _matrix(state)
        if _are_many(objective):
            return minimise_for_many(mixes, objective.scores(point), point.jacobian, curvature, state.p)
        model = QuadraticOracle(
            point.theta, point.risks, point.jacobian, curvature[None], objective.oracle.typical_risk
        )
        exact = ReferenceRisks.exactly(objective.references.upper)
        inner = RobustObjective(model, mixes, exact)
        # To rounding: it costs no look at the rows, and the way then does not depend on how they are summed. Where
        # looks are few and fast, it costs more than they do.
        close = _CLOSE * self.tol if self.thrifty else 0.0
        solution = InteriorPoint(tol=max(close, 1e-14), max_iter=60, warm=True).solve(inner, point.theta)
        if not np.isfinite(solution.theta).all():
            return None
        p = objective.mixes.project(solution.p_worst)
        # The distribution is known better than the move: a small change of the latter hardly shows in the value.
        settled = model.at(point.theta - positive_solver(curvature)(p @ point.jacobian))
        move = solution.theta - point.theta
        off = float(np.linalg.norm(settled.theta - solution.theta))
        no_worse = inner.value(settled) <= solution.value + 1e-13 * inner.scale(settled)
        if no_worse and off <= 1e-5 * float(np.linalg.norm(move)):
            move = settled.theta - point.theta
        return move, p, objective.value(point) - solution.value


def _are_many(objective: RobustObjective) -> bool:
    """Tell whether contexts outnumber the parameters by far and no probability may vanish, so that there is no kink."""
    mixes, oracle = objective.mixes, objective.oracle
    if oracle.n_contexts < MANY_CONTEXTS * oracle.n_parameters or not mixes.geometry.is_plain:
        return False
    poles = mixes.constraints(mixes.p_hat).poles
    return len(poles) == 1 and bool((poles > 0).all())


def _with_what_is_left(state: State, point: Point, p: Array) -> State:
    """Return the next state with the Hessian that was used last, as far as it holds; with one of its own if not."""
    home = state if state.extra is None else state.extra
    # A Hessian is linear in the distribution, and falls no faster than predictions move.
    ratio = np.divide(p, home.p, out=np.ones_like(p), where=home.p > 0.0)
    share = min(float(ratio.min()), 1.0) * point.curvature_share(home.point)  # type: ignore[attr-defined]
    return _state(point, p) if share < _SHARE else State(point, p, share * home.curvature, extra=home)


def _matrix(state: State) -> Array:
    """Return the curvature of the model: a Hessian, not what is left of it."""
    home = state if state.extra is None else state.extra
    return np.asarray(home.curvature)


def _state(point: Point, p: Array) -> State:
    return State(point, p, foresee(point, p).hessian(p))
