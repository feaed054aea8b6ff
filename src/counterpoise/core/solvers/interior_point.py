r"""The certified default: a primal-dual interior-point method on the saddle point.

It follows the central path of

.. math:: \min_{l \le \theta \le u} \ \max_p \ \sum_c p_c \Delta_c(\theta),
    \qquad g_k(p) \le 0,\ p \ge 0,\ \sum p = 1,

where the :math:`g_k` are the inequalities of the set, of gradients :math:`q_k - \kappa_k / p`, by Newton steps with
Mehrotra's predictor and corrector on its optimality conditions

.. math::
    J^\top p - z_l + z_u = 0, \quad \Delta - \nu + s - \sum_k \lambda_k q_k = 0, \quad \sum p = 1, \quad g_k + t_k = 0,

    s_c p_c = \sum_k \lambda_k \kappa_{kc} + \mu \omega_c, \quad \lambda_k t_k = \mu, \quad
    z_l (\theta - l) = z_u (u - \theta) = \mu.

In a KL ball :math:`q = 0` and :math:`\kappa = \hat p`: the least favourable distribution's own form,
:math:`p_c = \lambda \hat p_c / (\nu - \Delta_c)`, is kept as a product of variables. Written as a quotient it bends so
much at a large radius that Newton steps stay short. A kink of the objective, where several distributions are least
favourable, is an ordinary point of these equations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from counterpoise.core.objective import RobustObjective
from counterpoise.core.oracle._base import Point
from counterpoise.core.solvers._base import Array, Solver, State, foresee
from counterpoise.core.solvers._kkt import (
    Duals,
    KKTSystem,
    Linearisation,
    Smooth,
    room_to_bounds,
    state_of,
    unpacked,
)
from counterpoise.core.solvers.newton import Newton
from counterpoise.linalg import positive_solver
from counterpoise.sets import Constraints, ContextSet
from counterpoise.sets._base import positive

_ROUGH = 1e-2
"""Share of the risk that a Newton step may still promise where the empirical risk minimiser is near enough."""

_KNOWN_FLOOR, _UNKNOWN_FLOOR = 1e-3, 1e-1
"""Least prices of a set's inequalities to begin with, as a share of the scale of the scores."""

_TO_BOUNDARY = 0.995
"""Share of the way to the boundary that a step may go."""


@dataclass(frozen=True)
class InteriorPoint(Solver):
    """Second-order primal-dual solver for any risks with derivatives.

    Parameters
    ----------
    warm : bool
        Begin at the given theta instead of at the empirical risk minimiser near it.
    """

    max_iter: int = 100
    warm: bool = False

    needs: ClassVar[tuple[str, ...]] = ("hessian",)

    def start(self, objective: RobustObjective, theta: Array) -> State:
        """Begin near the empirical risk minimiser, at the centre of the set."""
        bounds = objective.oracle.bounds
        if bounds is not None:
            theta = _well_inside(theta, *bounds)
        return self.centred(objective, self.first_point(objective, theta))

    def centred(self, objective: RobustObjective, point: Point) -> State:
        """Return a state at a point whose other variables are well inside their bounds."""
        mixes, scores = objective.mixes, objective.scores(point)
        inside = mixes.interior(scores)
        p, x = inside.distribution, mixes.lift(inside.distribution)
        constraints, depths = mixes.constraints(x), -mixes.constraints(mixes.lift(mixes.p_hat)).values
        # Scores that happen to agree here will not stay so: the prices start as if they differed a little.
        thinnest = float(depths.min(initial=math.inf))
        known = math.isfinite(inside.nu)
        # Prices that are not known begin high: where they are low, a first step leaves the set at no cost, and its
        # boundary is in the way of those that lead back.
        least = (_KNOWN_FLOOR if known else _UNKNOWN_FLOOR) * max(objective.scale(point), 1e-300)
        floor = least * max(1.0, 1.0 / math.sqrt(2.0 * max(thinnest, 1e-300)))
        multiplier = np.maximum(inside.multiplier if known else 0.0, floor)
        prices, slacks = np.zeros_like(depths) + multiplier, np.maximum(-constraints.values, 0.1 * depths)
        reduced = scores - (prices @ constraints.regular)[: len(p)]
        # Most of s belongs to the poles; without any, all products start alike.
        total = float(constraints.poles.sum())
        lift = floor * total if total else float(np.mean(prices * slacks)) if len(prices) else floor
        nu = max(inside.nu if known else -math.inf, float(reduced[p > 0.0].max()) + lift)
        low, high = bound_prices(objective, point.theta, float(np.max(multiplier)))
        duals = first_duals(mixes, constraints, nu - reduced, nu, prices, slacks, lift, (low, high))
        return self.finished(state_of(point, duals, self.linearise(objective, point, p), constraints))

    def first_point(self, objective: RobustObjective, theta: Array) -> Point:
        """Return a point near the empirical risk minimiser, from where full steps mostly work."""
        if self.warm or objective.oracle.bounds is not None:
            return objective.oracle.at(theta)
        return rough_erm(objective, theta)

    def linearise(self, objective: RobustObjective, point: Point, p: Array) -> Linearisation:
        """Return the first-order model of the risks at a point."""
        return Smooth(objective, foresee(point, p), p)

    def system(self, objective: RobustObjective, state: State) -> KKTSystem:
        """Return the Newton system at a state."""
        return KKTSystem(objective, state, self.linearise)

    def finished(self, state: State) -> State:
        """Return an accepted state with its Hessian, for the certificate as for the next step."""
        return replace(state, curvature=unpacked(state)[1].curvature)

    def step(self, objective: RobustObjective, state: State) -> State:
        """Take one predictor-corrector step, or a plain centring step where that one fails."""
        system = self.system(objective, state)
        affine = system.direction(0.0, None)
        after = system.complementarity_after(affine, system.longest(affine))
        corrected = min(max(after, 0.0) / system.mu, 1.0) ** 3 * system.mu if system.mu > 0 else 0.0
        for mu, predictor, shortest in (
            (corrected, affine, 0.05),
            (0.5 * system.mu, None, 0.05),
            (system.mu, None, 1e-8),
        ):
            direction = system.direction(mu, predictor)
            length = min(1.0, _TO_BOUNDARY * system.longest(direction))
            merit = system.merit(state, mu)
            while length > shortest:
                trial = system.move(direction, length)
                if system.is_centred(trial) and system.merit(trial, mu) <= (1.0 - 0.01 * length) * merit:
                    return self.finished(trial)
                length *= 0.5
        return self.escape(objective, state)

    def escape(self, objective: RobustObjective, state: State) -> State:
        """Where no step of the system helps, descend under the present distribution and start again from there.

        That is the way out where the minimum is at infinity (separable data), and the end where rounding rules.
        """
        if state.curvature is None or objective.oracle.bounds is not None:
            return replace(state, stalled=True)
        value, p = objective.value(state.point), objective.mixes.project(state.p)
        direction = -positive_solver(state.curvature)(p @ state.point.jacobian)
        for length in (1.0, 0.25, 0.05):
            point = objective.oracle.at(state.point.theta + length * direction)
            if objective.value(point) < value - 1e-3 * self.tol * objective.scale(state.point):
                return self.centred(objective, point)
        return replace(state, stalled=True)


def first_duals(
    mixes: ContextSet,
    constraints: Constraints,
    s: Array,
    nu: float,
    prices: Array,
    slacks: Array,
    mu: float,
    of_theta: tuple[Array, Array],
) -> Duals:
    """Return dual variables to begin with: ``s`` is known for contexts, and products of all else are about ``mu``."""
    geometry, x = mixes.geometry, constraints.x
    weights, room_weights = geometry.weights(positive(mixes.p_hat))
    known = np.arange(len(x)) < len(s)
    own = (prices @ constraints.poles + mu * weights) / np.where(x > 0.0, x, 1.0)
    own[known] = s
    levels = np.zeros(len(geometry.totals))
    levels[0] = nu
    distances = mu * room_weights / geometry.rooms(x)
    return Duals(levels, np.where(x > 0.0, own, 1.0), prices, slacks, distances, *of_theta)


def rough_erm(objective: RobustObjective, theta: Array) -> Point:
    """Return a point near the empirical risk minimiser, as far as Newton steps still promise much."""
    centre, solver = replace(objective, mixes=objective.mixes.centre), Newton()
    state = solver.start(centre, theta)
    for _ in range(30):
        assert state.curvature is not None
        gradient = state.p @ state.point.jacobian
        promised = 0.5 * float(gradient @ positive_solver(state.curvature)(gradient))
        if promised <= _ROUGH * centre.scale(state.point):
            break
        following = solver.step(centre, state)
        if following.stalled:
            break
        state = following
    return state.point


def _well_inside(theta: Array, low: Array, high: Array) -> Array:
    """Return theta moved off its bounds by a tenth of the room there is."""
    with np.errstate(invalid="ignore"):
        margin = np.where(np.isfinite(high - low), 0.1 * (high - low), 0.1 * np.maximum(1.0, np.abs(theta)))
    return np.clip(theta, low + margin, high - margin)


def bound_prices(objective: RobustObjective, theta: Array, size: float) -> tuple[Array, Array]:
    """Return first prices of the bounds on theta, whose products with the distances share ``size``."""
    low, high = room_to_bounds(objective, theta)
    n = max(int(np.isfinite(low).sum() + np.isfinite(high).sum()), 1)
    return tuple(np.where(np.isfinite(room), size / (n * room), 0.0) for room in (low, high))  # type: ignore[return-value]
