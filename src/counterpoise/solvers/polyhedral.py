"""Piecewise linear losses in several dimensions: the interior-point method with the rows' duals kept apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from counterpoise.objective import RobustObjective
from counterpoise.oracle import Point
from counterpoise.solvers._base import Array, State
from counterpoise.solvers.interior_point import InteriorPoint, Linearisation


@dataclass(frozen=True)
class PolyhedralInteriorPoint(InteriorPoint):
    """For oracles whose points carry row-wise dual variables and eliminate them (``linearise``)."""

    def first_point(self, objective: RobustObjective, theta: Array) -> Point:
        """Return the point itself: the rows' own variables start well inside their bounds."""
        return objective.oracle.at(theta)

    def linearise(self, objective: RobustObjective, state: State) -> Linearisation:
        """Return the model in which the rows are eliminated."""
        point: Any = state.point
        model: Linearisation = point.linearise(state.p, objective.contexts.p_hat)
        return model

    def start(self, objective: RobustObjective, theta: Array) -> State:
        """Begin with every row's dual variable in the middle of its interval."""
        state = super().start(objective, theta)
        point: Any = state.point
        balanced = point.balanced(state.p)
        model: Any = balanced.linearise(state.p, objective.contexts.p_hat)
        nu = max(state.extra.nu, float(np.max(model.risks - objective.references.upper)) + state.extra.s.min())
        duals = replace(state.extra, nu=nu, s=nu - (model.risks - objective.references.upper))
        return self.finished(objective, replace(state, point=balanced, extra=duals))

    def finished(self, objective: RobustObjective, state: State) -> State:
        """Return the state with its model; the certificate comes from the rows, not from a Hessian."""
        return replace(state, extra=replace(state.extra, model=self.linearise(objective, state)))
