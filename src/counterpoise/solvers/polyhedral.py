"""Hinged losses in several dimensions: the interior-point method with the rows' duals kept apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from counterpoise.exceptions import InvalidInputError
from counterpoise.objective import RobustObjective
from counterpoise.oracle._base import Point
from counterpoise.sets import KLBall
from counterpoise.solvers._base import Array, State
from counterpoise.solvers._kkt import Duals, Linearisation, excess, positive, state_of
from counterpoise.solvers.interior_point import InteriorPoint, bound_prices, kl_ball


@dataclass(frozen=True)
class PolyhedralInteriorPoint(InteriorPoint):
    """For oracles whose points carry row-wise dual variables and eliminate them (``linearise``)."""

    def check(self, objective: RobustObjective) -> None:
        """Refuse an oracle whose points have no row-wise dual variables."""
        if not getattr(objective.oracle, "eliminates_rows", False):
            raise InvalidInputError(
                "PolyhedralInteriorPoint is for linear models with a hinged loss (Huber, Pinball, ...)."
            )

    def first_point(self, objective: RobustObjective, theta: Array) -> Point:
        """Return the point itself: the rows' own variables start well inside their bounds."""
        return objective.oracle.at(theta)

    def linearise(self, objective: RobustObjective, point: Any, p: Array) -> Linearisation:
        """Return the model in which the rows are eliminated."""
        model: Linearisation = point.linearise(p, positive(objective.mixes.p_hat))
        return model

    def start(self, objective: RobustObjective, theta: Array) -> State:
        """Begin at the centre of the set, with every product of a variable and its price about as large."""
        point: Any = objective.oracle.at(theta)
        ball = kl_ball(objective)
        p = KLBall(ball.p_hat, 0.5 * ball.radius).pull_inside(positive(ball.p_hat))
        point = point.balanced(p)
        model: Any = self.linearise(objective, point, p)
        scores = model.risks - objective.references.upper
        mu = model.complementarity()
        slack = max(-excess(ball, p), 0.1 * ball.radius) if 0.0 < ball.radius < math.inf else 0.0
        price = mu / slack if slack else 0.0
        nu = float(scores.max()) + mu + price
        low, high = bound_prices(objective, theta, mu)
        duals = Duals(nu, nu - scores, price, slack, low, high)
        return state_of(point, p, duals, model)

    def finished(self, state: State) -> State:
        """Return the state as it is: its certificate comes from the rows, not from a Hessian."""
        return state
