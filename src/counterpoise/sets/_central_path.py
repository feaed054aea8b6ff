r"""The largest expected score, or likelihood, in a set described by its geometry: a primal-dual interior-point method.

The conditions are those of :mod:`counterpoise.core.solvers.interior_point` with nothing to minimise over. From a member
well inside, steps raise the barrier function

.. math:: s^\top x + \mu \Bigl( \sum_k \log(-g_k(x)) + \sum_c \omega_c \log x_c + \sum_j \omega_j \log \rho_j(x) \Bigr),

which is concave, so every iterate is a member. A batch of score vectors is solved at once. An objective may have
logarithms of its own, :math:`s^\top x + \sum_c y_c \log x_c`: to the method they are one more pole, of price 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from counterpoise.linalg import solve_stack
from counterpoise.sets._geometry import Array, Constraints, Geometry, Indices, Mask, Stiffness

_MOST_STEPS = 150

_TO_BOUNDARY = 0.99
"""Share of the way to the boundary that a step may go."""

_ENOUGH = 1e-14
"""Gap, relative to the spread of the scores, that is left."""

_START = 0.1
"""Products of variables and their prices to begin with, relative to the spread of the scores."""

_NEAR = 0.3
"""Rise of the barrier function, in units of mu, that a step to the path may still promise near it."""

_REFINEMENTS = 2

_APART = 30.0
"""Factor by which a product may differ from its place on the path."""


@dataclass(frozen=True, eq=False)
class Variables:
    """Coordinates ``x`` and the prices of everything; one row for each score vector."""

    x: Array
    nu: Array
    s: Array
    prices: Array
    distances: Array
    """Prices of the distances to bounds and links."""
    mu: Array

    def at(self, rows: Indices | Mask) -> Self:
        """Return some of the rows."""
        return type(self)(*(getattr(self, one.name)[rows] for one in fields(self)))

    def put(self, rows: Indices, other: Variables) -> None:
        """Replace some of the rows."""
        for one in fields(self):
            getattr(self, one.name)[rows] = getattr(other, one.name)


@dataclass(frozen=True, eq=False)
class Objective:
    """What is maximised, ``scores @ x + logs @ log(x)``; one row for each problem."""

    scores: Array
    logs: Array

    def __len__(self) -> int:
        return len(self.scores)

    def at(self, rows: Indices | Mask) -> Objective:
        """Return some of the rows."""
        return Objective(self.scores[rows], self.logs[rows])

    def poles(self, prices: Array, here: Constraints) -> Array:
        """Return all poles, those of the constraints at their prices."""
        return np.asarray(np.einsum("bk,bkn->bn", prices, here.poles) + self.logs)


def maximise(
    geometry: Geometry,
    constraints: Callable[[Array], Constraints],
    scores: Array,
    start: Array,
    masses: Array,
    logs: Array | None = None,
    enough: float = _ENOUGH,
) -> tuple[Variables, Array]:
    """Return the coordinates of the largest scores with their prices, and by how much at most they miss.

    Parameters
    ----------
    constraints : callable
        The inequalities at a batch of coordinates.
    scores : ndarray of shape (batch, n_coordinates)
        Of a spread about 1.
    start : ndarray of shape (n_coordinates,)
        Inside all inequalities, bounds and links; coordinates that are 0 stay 0.
    masses : ndarray of shape (n_contexts,)
        Weights of the central path, positive.
    logs : ndarray of shape (batch, n_coordinates), optional
        Weights of the logarithms of the coordinates in the objective, not negative and of a sum about 1; none by
        default.
    enough : float
        Gap at which to stop.
    """
    objective = Objective(scores, np.zeros_like(scores) if logs is None else logs)
    path = _CentralPath(geometry, constraints, start > 0.0, *geometry.weights(masses))
    now = path.begin(objective, start)
    with np.errstate(all="ignore"):
        best, error = now.at(np.arange(len(scores))), path.error(now, objective)
        active, idle = np.arange(len(scores)), np.zeros(len(scores), dtype=int)
        for _ in range(_MOST_STEPS):
            now = path.step(now, objective.at(active))
            after = path.error(now, objective.at(active))
            better = after < error[active]
            best.put(active[better], now.at(better))
            idle[active] = np.where(after < 0.9 * error[active], 0, idle[active] + 1)
            error[active[better]] = after[better]
            going = (error[active] > enough) & (idle[active] < 40)
            active, now = active[going], now.at(going)
            if active.size == 0:
                break
    return best, error


@dataclass(frozen=True, eq=False)
class _CentralPath:
    geometry: Geometry
    constraints: Callable[[Array], Constraints]
    free: Mask
    weights: Array
    room_weights: Array

    def begin(self, objective: Objective, start: Array) -> Variables:
        """Return variables with every product at the same value."""
        x = np.tile(start, (len(objective), 1))
        here = self.constraints(x)
        prices = -_START / here.values
        nu = np.zeros((len(objective), len(self.geometry.totals)))
        nu[:, 0] = objective.scores.max(axis=1) + objective.logs.sum(axis=1)
        return self.priced(objective, x, nu, prices, here, np.full(len(objective), _START))

    def priced(
        self, objective: Objective, x: Array, nu: Array, prices: Array, here: Constraints, mu: Array
    ) -> Variables:
        """Return variables whose products of coordinates and distances with their prices are on the central path."""
        poles = objective.poles(prices, here)
        s = np.where(self.free, (poles + mu[:, None] * self.weights) / np.where(self.free, x, 1.0), 0.0)
        return Variables(x, nu, s, prices, mu[:, None] * self.room_weights / self.geometry.rooms(x), mu)

    def products(self, v: Variables, here: Constraints, objective: Objective) -> tuple[Array, Array, Array]:
        """Return the products that are all mu, times a weight, on the central path."""
        poles = objective.poles(v.prices, here)
        return -v.prices * here.values, v.s * v.x - poles, v.distances * self.geometry.rooms(v.x)

    def stationarity(self, v: Variables, here: Constraints, objective: Objective) -> Array:
        r_x = objective.scores - v.nu @ self.geometry.equalities + v.s - np.einsum("bk,bkn->bn", v.prices, here.regular)
        return np.where(self.free, r_x + self.geometry.forces(v.distances), 0.0)

    def error(self, v: Variables, objective: Objective) -> Array:
        """Return a bound of how far the objective of a member is from the largest, up to what bounds x."""
        here = self.constraints(v.x)
        total = sum(np.abs(one).sum(axis=1) for one in self.products(v, here, objective))
        lacking = v.x @ self.geometry.equalities.T - self.geometry.totals
        residual = np.abs(self.stationarity(v, here, objective)).max(axis=1) + np.abs(lacking).sum(axis=1)
        return np.nan_to_num(np.asarray(total + residual), nan=np.inf)

    def step(self, v: Variables, objective: Objective) -> Variables:
        """Take one step: to the path where it is not near, else along it, as far as a step straight ahead may go."""
        system = _System(self, v, objective)
        centring = system.direction(v.mu)
        near = system.rise(centring, v.mu) <= _NEAR * v.mu
        reach = np.minimum(1.0, _TO_BOUNDARY * system.longest(system.direction(np.zeros(len(objective)))))
        target = np.where(near, np.clip(1.0 - reach, 0.02, 0.5), 1.0) * v.mu
        return system.moved(system.direction(target), target)


class _System:
    """The conditions of optimality at a batch of members, linearised."""

    def __init__(self, path: _CentralPath, v: Variables, objective: Objective) -> None:
        self.path, self.v, self.objective = path, v, objective
        geometry, free = path.geometry, path.free
        self.here = path.constraints(v.x)
        self.rooms, self.slacks = geometry.rooms(v.x), -self.here.values
        self.poles = objective.poles(v.prices, self.here)
        self.divisor = np.where(free, v.x, 1.0)
        bend = np.einsum("bk,bkn->bn", v.prices, self.here.curvature)
        diagonal = np.where(free, v.s / self.divisor + bend, 1.0)
        self.stiffness: Stiffness = geometry.stiffness(diagonal, v.distances / self.rooms)
        border = np.broadcast_to(geometry.equalities, (len(objective), *geometry.equalities.shape))
        rows = -np.swapaxes(np.concatenate([border, self.here.gradients], axis=1), 1, 2)
        self.rows = np.where(free[:, None], rows, 0.0)
        white = self.stiffness.whitened(self.rows)
        self.matrix = np.swapaxes(white, 1, 2) @ white
        self.n_equal = len(geometry.totals)
        none = np.zeros((len(objective), self.n_equal))
        self.corner = np.concatenate([none, self.slacks / v.prices], axis=1)
        diagonal_of = np.arange(self.matrix.shape[1])
        self.matrix[:, diagonal_of, diagonal_of] += self.corner
        self.lacking = v.x @ geometry.equalities.T - geometry.totals
        self.off = path.stationarity(v, self.here, objective)

    def _solved(self, side: Array, border: Array) -> tuple[Array, Array]:
        """Return the change of the coordinates, and of the prices of equalities and inequalities."""
        rhs = border - np.einsum("bni,bn->bi", self.rows, self.stiffness.solve(side))
        found = solve_stack(self.matrix, rhs)
        d_x = self.stiffness.solve(np.einsum("bni,bi->bn", self.rows, found) + side)
        return np.where(self.path.free, d_x, 0.0), found

    def direction(self, mu: Array) -> Variables:
        """Solve the linearised conditions for the target ``mu``."""
        path, v, geometry = self.path, self.v, self.path.geometry
        to_s = self.poles + mu[:, None] * path.weights - v.s * v.x
        to_prices = mu[:, None] - v.prices * self.slacks
        to_rooms = mu[:, None] * path.room_weights - v.distances * self.rooms
        side = np.where(path.free, self.off + to_s / self.divisor + geometry.forces(to_rooms / self.rooms), 0.0)
        border = np.concatenate([self.lacking, to_prices / v.prices], axis=1)
        d_x, found = self._solved(side, border)
        for _ in range(_REFINEMENTS):
            # Near the end the eliminated system is far worse conditioned than the whole one.
            left = side - self.stiffness.apply(d_x) + np.einsum("bni,bi->bn", self.rows, found)
            short = border - np.einsum("bni,bn->bi", self.rows, d_x) - self.corner * found
            more_x, more = self._solved(left, short)
            d_x, found = d_x + more_x, found + more
        d_nu, d_prices = found[:, : self.n_equal], found[:, self.n_equal :]
        poles = np.einsum("bk,bkn->bn", d_prices, self.here.poles)
        d_s = np.where(path.free, (to_s + poles - v.s * d_x) / self.divisor, 0.0)
        return Variables(d_x, d_nu, d_s, d_prices, (to_rooms - v.distances * geometry.rates(d_x)) / self.rooms, mu)

    def rise(self, step: Variables, mu: Array) -> Array:
        """Return the slope of the barrier function along a step."""
        return np.einsum("bn,bn->b", self._gradient(mu), step.x)

    def longest(self, step: Variables) -> Array:
        """Return the longest steps that keep coordinates, distances and linearised slacks positive."""
        falls = -np.einsum("bkn,bn->bk", self.here.gradients, step.x)
        free = self.path.free
        pairs = [(self.v.x[:, free], step.x[:, free]), (self.rooms, self.path.geometry.rates(step.x))]
        return _longest([*pairs, (self.slacks, falls)])

    def moved(self, step: Variables, mu: Array) -> Variables:
        """Return the variables a step away: coordinates as far as the barrier function rises, prices as they may."""
        path, v, free = self.path, self.v, self.path.free
        # Slacks are concave, so that no step may go further than their slopes allow.
        length = np.minimum(1.0, _TO_BOUNDARY * self.longest(step))
        height, slack = self.barrier(v.x, mu), 1e-15 * (1.0 + np.abs(mu))
        slope = self.rise(step, mu)
        for _ in range(40):
            risen = self.barrier(v.x + length[:, None] * step.x, mu) - height
            short = ~(risen >= 1e-4 * length * slope - slack)
            if not short.any():
                break
            length = np.where(short, 0.5 * length, length)
        length = np.where(short, 0.0, length)
        x = v.x + length[:, None] * step.x
        here = path.constraints(x)
        keep = np.minimum(1.0, _TO_BOUNDARY * _longest([(v.prices, step.prices), (v.distances, step.distances)]))
        prices = v.prices + keep[:, None] * step.prices
        distances = v.distances + keep[:, None] * step.distances
        # No product strays far from the path; after a short step they are all put back on it.
        apart = np.where(length >= 0.5, _APART, 1.0)[:, None]
        on_path = path.priced(self.objective, x, v.nu, -mu[:, None] / here.values, here, mu)
        prices = np.clip(prices, on_path.prices / apart, on_path.prices * apart)
        distances = np.clip(distances, on_path.distances / apart, on_path.distances * apart)
        poles = np.where(free, self.objective.poles(prices, here) / np.where(free, x, 1.0), 0.0)
        middle = np.where(free, mu[:, None] * path.weights / np.where(free, x, 1.0), 0.0)
        s = poles + np.clip(v.s + keep[:, None] * step.s - poles, middle / apart, middle * apart)
        return Variables(x, v.nu + keep[:, None] * step.nu, s, prices, distances, mu)

    def barrier(self, x: Array, mu: Array) -> Array:
        """Return the barrier function, minus infinity or NaN outside."""
        path, objective, free = self.path, self.objective, self.path.free
        slacks, rooms, log_x = -path.constraints(x).values, path.geometry.rooms(x), np.log(x[:, free])
        logs = np.log(slacks).sum(axis=1) + log_x @ path.weights[free] + np.log(rooms) @ path.room_weights
        own = np.einsum("bn,bn->b", objective.scores, x) + np.einsum("bn,bn->b", objective.logs[:, free], log_x)
        return np.asarray(own + mu * logs)

    def _gradient(self, mu: Array) -> Array:
        path, far = self.path, mu[:, None]
        smooth = np.einsum("bk,bkn->bn", far / self.slacks, self.here.gradients)
        rooms = path.geometry.forces(far * path.room_weights / self.rooms)
        inwards = far * path.weights + self.objective.logs
        return np.where(path.free, self.objective.scores - smooth + inwards / self.divisor + rooms, 0.0)


def _longest(pairs: list[tuple[Array, Array]]) -> Array:
    """Return the longest steps that keep positive variables from turning negative, at most just beyond 1."""
    length = np.full(len(pairs[0][0]), 1.0 / _TO_BOUNDARY)
    for value, change in pairs:
        falls = change < 0.0
        ratio = np.where(falls, -value / np.where(falls, change, 1.0), np.inf)
        length = np.minimum(length, ratio.min(axis=1, initial=np.inf))
    return length
