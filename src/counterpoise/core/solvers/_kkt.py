"""The optimality conditions of the robust problem, linearised: what an interior-point step solves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np

from counterpoise.core.objective import RobustObjective
from counterpoise.core.oracle._base import Point
from counterpoise.core.solvers._base import Array, State
from counterpoise.linalg import longest_step, positive_solver
from counterpoise.sets import Constraints
from counterpoise.sets._base import positive


@dataclass(frozen=True, eq=False)
class Duals:
    """The dual variables, positive but for ``nu``, which belongs to the set's equalities.

    ``prices`` and ``slacks`` belong to its inequalities, ``s`` to its coordinates, ``distances`` to its bounds and
    links; ``low`` and ``high`` to the bounds on theta.
    """

    nu: Array
    s: Array
    prices: Array
    slacks: Array
    distances: Array
    low: Array
    high: Array

    def moved(self, change: Duals, length: float) -> Duals:
        """Return the variables a step away."""
        mine, theirs = vars(self), vars(change)
        return Duals(**{name: value + length * theirs[name] for name, value in mine.items()})


@dataclass(frozen=True, eq=False)
class Direction:
    """A step in all variables; ``x`` are the set's coordinates, ``rows`` the part that belongs to the risks' own."""

    theta: Array
    x: Array
    duals: Duals
    rows: Any


class Linearisation(Protocol):
    """What a step needs to know of the risks at a state: their first-order model, variables of their own included.

    What is not overridden is the answer of risks that have none.
    """

    @property
    def risks(self) -> Array:
        """The risks."""

    @property
    def gradient(self) -> Array:
        """``sum_c p_c grad R_c``."""

    @property
    def jacobian(self) -> Array:
        """How the risks respond to theta."""

    @property
    def curvature(self) -> Array:
        """The Hessian in theta."""

    @property
    def stiffness(self) -> Array:
        """What the risks' own variables add to the resistance of p."""
        return np.zeros_like(self.risks)

    def shifts(self, mu: float, affine: Any) -> tuple[Array, Array]:
        """Return what their own residuals add to stationarity in theta and in p."""
        return np.zeros_like(self.gradient), np.zeros_like(self.risks)

    def expand(self, theta: Array, p: Array, mu: float, affine: Any) -> Any:
        """Return their part of a direction."""
        return None

    def longest(self, step: Any) -> float:
        """Return the longest step that keeps their variables positive."""
        return math.inf

    def moved(self, theta: Array, length: float, step: Any) -> Point:
        """Return the point a step away."""

    def complementarity(self, length: float = 0.0, step: Any = None) -> float | None:
        """Return the mean of their products of variable and price; None if there are none."""
        return None

    def residual(self, mu: float) -> float:
        """Return the squared residual of their own conditions."""
        return 0.0

    def lagging(self) -> float:
        """Return their smallest product over its target at ``mu = 1``."""
        return math.inf


@dataclass(frozen=True, eq=False)
class Smooth(Linearisation):
    """Risks with a gradient and a Hessian have no variables of their own."""

    objective: RobustObjective
    point: Point
    p: Array

    @property
    def risks(self) -> Array:
        return self.point.risks

    @cached_property
    def gradient(self) -> Array:
        return self.p @ self.point.jacobian

    @property
    def jacobian(self) -> Array:
        return self.point.jacobian

    @cached_property
    def curvature(self) -> Array:
        return self.point.hessian(self.p)

    def moved(self, theta: Array, length: float, step: Any) -> Point:
        return self.objective.oracle.at(theta)


class KKTSystem:
    """The Newton system at one state, factored once for predictor and corrector.

    The conditions are those of :mod:`counterpoise.core.solvers.interior_point`.
    """

    ahead: ClassVar[float] = 1.0
    """What the products of the set are on the central path, in those of the risks' own variables."""

    def __init__(
        self,
        objective: RobustObjective,
        state: State,
        linearise: Callable[[RobustObjective, Point, Array], Linearisation],
    ) -> None:
        self.objective, self.state, self.linearise = objective, state, linearise
        self.duals, self.model, self.constraints = unpacked(state)
        self.fixed = objective.mixes.is_point
        self.geometry = objective.mixes.geometry
        point, x, duals = state.point, self.constraints.x, self.duals
        # A coordinate that starts at 0 stays there, out of every condition.
        self.free = x > 0.0
        self.weights, self.room_weights = self.geometry.weights(positive(objective.mixes.p_hat))
        self.weights = np.where(self.free, self.weights, 0.0)
        self.rooms_of_x = self.geometry.rooms(x)
        self.n_bounds = 0
        if objective.oracle.bounds is not None:
            rooms = room_to_bounds(objective, point.theta)
            self.bounded = tuple(np.isfinite(room) for room in rooms)
            # Where there is no bound its price is 0, and any distance will do.
            self.rooms = tuple(np.where(on, room, 1.0) for on, room in zip(self.bounded, rooms, strict=True))
            self.n_bounds = sum(int(on.sum()) for on in self.bounded)
        self.mu = self._complementarity(x, duals, point.theta, self.model.complementarity())
        self.residuals = self._residuals(state)
        # The unit in which scores are compared; any will do where p does not move.
        below = duals.s - duals.prices @ self.constraints.regular + self.geometry.forces(duals.distances)
        p, below = state.p, below[: len(state.p)]
        spread = math.sqrt(max(float(p @ (below - p @ below) ** 2), 0.0))
        self.width = 1.0 if self.fixed else spread + self.mu

        shift = duals.low / self.rooms[0] + duals.high / self.rooms[1] if self.n_bounds else np.zeros_like(point.theta)
        corner = np.ones(1)
        if not self.fixed:
            # In s_c x_c = price kappa_c + ..., kappa / s is (kappa / x) (x / s): a part of the inequality's own
            # gradient, so that the matrix is symmetric.
            border = np.vstack([self.geometry.equalities, self.constraints.gradients])
            self.rows = np.column_stack([self._padded(self.model.jacobian), -border.T])
            self.rows[~self.free] = 0.0
            self.divisor = np.where(self.free, x, 1.0)
            # Negative at most outside the set, on the way there.
            self.bend = np.maximum(duals.prices @ self.constraints.curvature, 0.0)
            resistance = duals.s / self.divisor + self.bend + self._padded(self.model.stiffness)
            self.stiffness = self.geometry.stiffness(
                np.where(self.free, resistance, 1.0), duals.distances / self.rooms_of_x
            )
            corner = np.concatenate([np.zeros(len(duals.nu)), duals.slacks / duals.prices])
        self.assemble(shift, corner)

    def _padded(self, of_contexts: Array) -> Array:
        """Return what contexts have with zeros for auxiliary coordinates."""
        extra = self.geometry.size - len(of_contexts)
        return np.concatenate([of_contexts, np.zeros((extra, *of_contexts.shape[1:]))]) if extra else of_contexts

    def assemble(self, curvature_shift: Array, corner: Array) -> None:
        """Prepare products with the matrix (``apply``) and its inverse (``solve``), and its diagonal in theta.

        The unknowns are theta, nu and the prices of the set; its coordinates are eliminated through their stiffness.
        """
        n, size = len(curvature_shift), len(curvature_shift) + len(corner)
        matrix = np.zeros((size, size))
        matrix[:n, :n] = self.model.curvature
        matrix[np.arange(size), np.arange(size)] += np.concatenate([curvature_shift, corner])
        if not self.fixed:
            scaled = self.stiffness.whitened(self.rows)
            matrix += scaled.T @ scaled
        self.diagonal = np.diagonal(matrix)[:n]
        self.apply: Callable[[Array], Array] = matrix.__matmul__
        self.solve = positive_solver(matrix)

    def direction(self, mu: float, affine: Direction | None) -> Direction:
        """Solve the linearised conditions for the target ``mu``, corrected by the affine direction's second order."""
        duals, x, geometry = self.duals, self.constraints.x, self.geometry
        r_theta, r_x, r_equal, r_set = self.residuals
        to_s = self._products(duals, self.constraints, mu) - duals.s * x
        to_prices = self.ahead * mu - duals.prices * duals.slacks
        to_rooms = self.ahead * mu * self.room_weights - duals.distances * self.rooms_of_x
        if affine is not None:
            to_s = to_s - affine.duals.s * affine.x
            to_prices = to_prices - affine.duals.prices * affine.duals.slacks
            to_rooms = to_rooms - affine.duals.distances * geometry.rates(affine.x)
            r_x = r_x - (affine.duals.prices @ self.constraints.curvature) * affine.x
            r_set = r_set + 0.5 * self.constraints.curvature @ affine.x**2
        rows = None if affine is None else affine.rows
        theta_shift, score_shift = self.model.shifts(mu, rows)
        b_theta = r_theta + theta_shift
        if self.n_bounds:
            to_low, to_high = self._to_bounds(mu, affine)
            b_theta = b_theta - to_low / self.rooms[0] + to_high / self.rooms[1]
        n, n_equal = len(b_theta), len(duals.nu)
        b_x, border = np.zeros_like(x), np.zeros(1)
        if not self.fixed:
            b_x = r_x + self._padded(score_shift) + to_s / self.divisor + geometry.forces(to_rooms / self.rooms_of_x)
            b_x = np.where(self.free, b_x, 0.0)
            border = np.concatenate([r_equal, r_set + to_prices / duals.prices])
        found, d_x = self.found(np.concatenate([-b_theta, border]), b_x)
        d_theta, d_nu, d_prices = found[:n], found[n : n + n_equal], found[n + n_equal :]
        d_low = d_high = np.zeros_like(d_theta)
        if self.n_bounds:
            d_low = (to_low - duals.low * d_theta) / self.rooms[0]
            d_high = (to_high + duals.high * d_theta) / self.rooms[1]
        own = self.model.expand(d_theta, d_x[: geometry.n_contexts], mu, rows)
        if self.fixed:
            nothing = np.zeros_like(duals.distances)
            return Direction(d_theta, d_x, Duals(d_nu, d_x, d_prices, d_prices, nothing, d_low, d_high), own)
        d_slacks = (to_prices - duals.slacks * d_prices) / duals.prices
        d_distances = (to_rooms - duals.distances * geometry.rates(d_x)) / self.rooms_of_x
        d_score = self._padded(self.model.jacobian @ d_theta + score_shift) - self._padded(self.model.stiffness) * d_x
        d_s = d_nu @ geometry.equalities - r_x - d_score + d_prices @ self.constraints.regular + self.bend * d_x
        d_s = np.where(self.free, d_s - geometry.forces(d_distances), 0.0)
        return Direction(d_theta, d_x, Duals(d_nu, d_s, d_prices, d_slacks, d_distances, d_low, d_high), own)

    def _products(self, duals: Duals, constraints: Constraints, mu: float) -> Array:
        """Return what ``s p`` is on the central path."""
        return duals.prices @ constraints.poles + self.ahead * mu * self.weights

    def _to_bounds(self, mu: float, affine: Direction | None) -> tuple[Array, Array]:
        """Return what the products of prices and distances to the bounds lack."""
        duals, share = self.duals, mu / self.n_bounds
        to_low = np.where(self.bounded[0], share - duals.low * self.rooms[0], 0.0)
        to_high = np.where(self.bounded[1], share - duals.high * self.rooms[1], 0.0)
        if affine is not None:
            to_low = to_low - affine.duals.low * affine.theta
            to_high = to_high + affine.duals.high * affine.theta
        return to_low, to_high

    def found(self, rhs: Array, b_x: Array) -> tuple[Array, Array]:
        """Return the step in theta, nu and the prices of the set, and the one in its coordinates."""
        if not self.fixed:
            rhs = rhs - self.rows.T @ self.stiffness.solve(b_x)
        x = self.solve(rhs)
        # One step of refinement: near a kink the matrix is as ill-conditioned as the central path is close to its end.
        lacking = rhs - self.apply(x)
        refined = x + self.solve(lacking)
        # In a direction that changes no risk (a shift common to all classes) it would only multiply rounding.
        if np.linalg.norm(rhs - self.apply(refined)) < np.linalg.norm(lacking):
            x = refined
        return x, b_x if self.fixed else self.stiffness.solve(self.rows @ x + b_x)

    def longest(self, direction: Direction) -> float:
        """Return the largest step in [0, 1] that keeps every positive variable from turning negative."""
        duals, change = self.duals, direction.duals
        pairs = []
        if self.n_bounds:
            pairs = [(self.rooms[0][self.bounded[0]], direction.theta[self.bounded[0]])]
            pairs += [(self.rooms[1][self.bounded[1]], -direction.theta[self.bounded[1]])]
            pairs += [(duals.low, change.low), (duals.high, change.high)]
        if not self.fixed:
            pairs += [(self.constraints.x, direction.x), (duals.s, change.s)]
            pairs += [(duals.prices, change.prices), (duals.slacks, change.slacks)]
        if len(self.rooms_of_x) and not self.fixed:
            pairs += [(self.rooms_of_x, self.geometry.rates(direction.x)), (duals.distances, change.distances)]
        return min(1.0, self.model.longest(direction.rows), *(longest_step(value, step) for value, step in pairs))

    def move(self, direction: Direction, length: float) -> State:
        """Return the state a step away."""
        point = self.model.moved(self.state.point.theta + length * direction.theta, length, direction.rows)
        x = self.constraints.x + length * direction.x
        duals = self.duals.moved(direction.duals, length)
        constraints = self.objective.mixes.constraints(x)
        # An inequality bends: take the slack there really is, unless there is none or it is all but used up.
        true = -constraints.values
        duals = replace(duals, slacks=np.where(true > 0, np.maximum(true, 0.1 * duals.slacks), duals.slacks))
        model = self.linearise(self.objective, point, x[: self.geometry.n_contexts])
        return state_of(point, duals, model, constraints)

    def complementarity_after(self, direction: Direction, length: float) -> float:
        """Return mu after an affine step, with the risks taken as linear."""
        return self._complementarity(
            self.constraints.x + length * direction.x,
            self.duals.moved(direction.duals, length),
            self.state.point.theta + length * direction.theta,
            self.model.complementarity(length, direction.rows),
        )

    def merit(self, state: State, mu: float) -> float:
        """Return the size of the optimality conditions' residuals for a target ``mu``, in units of the score."""
        duals, model, constraints = unpacked(state)
        if not np.isfinite(model.risks).all() or not np.isfinite(model.gradient).all():
            return math.inf
        r_theta, r_x, r_equal, r_set = self._residuals(state)
        diagonal = np.maximum(self.diagonal, 1e-300)
        total = self.width * float(np.sum(r_theta**2 / diagonal)) + model.residual(mu)
        if not self.fixed:
            # What a wrong p does to the score is its relative error times the spread of the scores.
            off = (
                (duals.s * constraints.x - self._products(duals, constraints, mu))
                / np.maximum(self.weights, 1e-300)
                * np.minimum(1.0, self.width / np.maximum(self.duals.s, 1e-300))
            )
            total += float(self.weights @ (r_x**2 + off**2)) + self.width**2 * float(r_equal @ r_equal)
            off = duals.prices * duals.slacks - self.ahead * mu
            total += float(np.sum((self.duals.prices * r_set) ** 2 + off**2))
            off = duals.distances * self.geometry.rooms(constraints.x) - self.ahead * mu * self.room_weights
            total += float(np.sum(off**2 / self.room_weights))
        if self.n_bounds:
            share = mu / self.n_bounds
            for price, room in zip(
                (duals.low, duals.high), room_to_bounds(self.objective, state.point.theta), strict=True
            ):
                finite = np.isfinite(room)
                total += self.n_bounds * float(np.sum((price[finite] * room[finite] - share) ** 2))
        return math.sqrt(total)

    def is_centred(self, state: State) -> bool:
        """Tell whether no product lags far behind the others, from where a step would soon hit a boundary."""
        duals, model, constraints = unpacked(state)
        mu = self._complementarity(constraints.x, duals, state.point.theta, model.complementarity())
        if mu > 0 and model.lagging() < min(1e-3, 0.5 * self.model.lagging() / self.mu) * mu:
            return False
        if self.fixed:
            return True
        targets = self._products(self.duals, self.constraints, self.mu), self._products(duals, constraints, mu)
        products = self.duals.s * self.constraints.x, duals.s * constraints.x
        before, now = (np.min(a[self.free] / b[self.free]) for a, b in zip(products, targets, strict=True))
        if not now >= min(1e-2, 0.5 * before):
            return False
        lagged, lags = (
            float(np.min(prices * rooms / self.room_weights, initial=math.inf)) / level
            for prices, rooms, level in (
                (self.duals.distances, self.rooms_of_x, max(self.ahead * self.mu, 1e-300)),
                (duals.distances, self.geometry.rooms(constraints.x), max(self.ahead * mu, 1e-300)),
            )
        )
        return bool(lags >= min(1e-2, 0.5 * lagged))

    def _complementarity(self, x: Array, duals: Duals, theta: Array, own: float | None) -> float:
        """Return mu: the average of the products that vanish at the solution."""
        products = [] if own is None else [own]
        products += (duals.prices * duals.slacks / self.ahead).tolist()
        # Beside poles what is left of s p is the small difference of large numbers.
        if not (self.fixed or self.constraints.poles.any()):
            products.append(float(duals.s @ x) / (self.ahead * float(self.weights.sum())))
        if len(self.room_weights) and not self.fixed:
            total = float(duals.distances @ self.geometry.rooms(x))
            products.append(total / (self.ahead * float(self.room_weights.sum())))
        if self.n_bounds:
            rooms = room_to_bounds(self.objective, theta)
            finite = [np.where(np.isfinite(room), room, 0.0) for room in rooms]
            products.append(float(duals.low @ finite[0] + duals.high @ finite[1]))
        return sum(products) / max(len(products), 1)

    def _residuals(self, state: State) -> tuple[Array, Array, Array, Array]:
        duals, model, constraints = unpacked(state)
        r_theta = model.gradient - duals.low + duals.high
        x, geometry = constraints.x, self.geometry
        if self.fixed:
            return r_theta, np.zeros_like(x), np.zeros_like(geometry.totals), constraints.values
        scores = self._padded(model.risks - self.objective.references.upper)
        r_x = scores - duals.nu @ geometry.equalities + duals.s - duals.prices @ constraints.regular
        r_x = np.where(self.free, r_x + geometry.forces(duals.distances), 0.0)
        return r_theta, r_x, geometry.equalities @ x - geometry.totals, constraints.values + duals.slacks


def state_of(point: Point, duals: Duals, model: Linearisation, constraints: Constraints) -> State:
    """Return the state of the loop for these variables."""
    p = constraints.x[: len(model.risks)]
    return State(point, p, None, (duals.low, duals.high), extra=(duals, model, constraints))


def unpacked(state: State) -> tuple[Duals, Linearisation, Constraints]:
    """Return the dual variables of a state, and what is known there of the risks and of the set's inequalities."""
    duals, model, constraints = state.extra
    return duals, model, constraints


def room_to_bounds(objective: RobustObjective, theta: Array) -> tuple[Array, Array]:
    """Return the distances to the lower and the upper bounds, infinite where there are none."""
    bounds = objective.oracle.bounds
    if bounds is None:
        infinite = np.full(len(theta), np.inf)
        return infinite, infinite
    return theta - bounds[0], bounds[1] - theta
