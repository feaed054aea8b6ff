"""Hinged losses in several dimensions: the interior-point method with the rows' duals kept apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from counterpoise.core.objective import RobustObjective
from counterpoise.core.oracle._base import Point
from counterpoise.core.solvers._base import Array, State
from counterpoise.core.solvers._kkt import KKTSystem, Linearisation, state_of
from counterpoise.core.solvers.interior_point import InteriorPoint, bound_prices, first_duals
from counterpoise.sets._base import positive

_NOTHING = 1e-12


class _RowsSystem(KKTSystem):
    """The set runs ahead of the rows.

    While p still moves, rows change sides. They do that easily as long as many of them are near their hinges, in terms
    of the central path; once these are few, one after the other.
    """

    ahead: ClassVar[float] = 1e-2


@dataclass(frozen=True)
class PolyhedralInteriorPoint(InteriorPoint):
    """For oracles whose points carry row-wise dual variables and eliminate them (``linearise``)."""

    needs: ClassVar[tuple[str, ...]] = ("row_duals",)

    def first_point(self, objective: RobustObjective, theta: Array) -> Point:
        """Return the point itself: the rows' own variables start well inside their bounds."""
        return objective.oracle.at(theta)

    def system(self, objective: RobustObjective, state: State) -> KKTSystem:
        """Return the Newton system at a state."""
        return _RowsSystem(objective, state, self.linearise)

    def linearise(self, objective: RobustObjective, point: Any, p: Array) -> Linearisation:
        """Return the model in which the rows are eliminated."""
        # Rows of a context that has no probability in any member count next to nothing, but their duals need room.
        model: Linearisation = point.linearise(np.where(p > 0.0, p, _NOTHING))
        return model

    def start(self, objective: RobustObjective, theta: Array) -> State:
        """Begin at the centre of the set, with every product of a variable and its price about as large."""
        point: Any = objective.oracle.at(theta)
        mixes = objective.mixes
        # Half the way from the centre, so inside every inequality, with some mass on every context.
        p = 0.5 * (mixes.p_hat + mixes.project(positive(mixes.p_hat)))
        model: Any = self.linearise(objective, point, p)
        scores = model.risks - objective.references.upper
        mu = _RowsSystem.ahead * model.complementarity()
        x = mixes.lift(p)
        constraints, depths = mixes.constraints(x), -mixes.constraints(mixes.lift(mixes.p_hat)).values
        slacks = np.maximum(-constraints.values, 0.1 * depths)
        prices = mu / slacks
        reduced = scores - (prices @ constraints.regular)[: len(p)]
        nu = float(reduced.max()) + mu + float(prices.sum())
        bounds = bound_prices(objective, theta, mu)
        duals = first_duals(mixes, constraints, nu - reduced, nu, prices, slacks, mu, bounds)
        return state_of(point, duals, model, constraints)

    def finished(self, state: State) -> State:
        """Return the state as it is: its certificate comes from the rows, not from a Hessian."""
        return state
