"""References of hinged losses: Mehrotra's method for every context's program at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from counterpoise.core.oracle._base import Array
from counterpoise.core.oracle.bounds import balanced_bounds
from counterpoise.core.oracle.linear import LinearOracle, Ridge, RidgedAt
from counterpoise.linalg import as_stack
from counterpoise.rows import BlockSlopes, Mask
from counterpoise.rows.hinged import Begin, Direction, Distance, DualSlopes, LeastSquares, ModelAnswer, Move, StepAnswer

_MAX_ITER = 100


def solve_programs(programs: Programs, floor: Array, tol: float, scale: float) -> tuple[Array, Array, Array]:
    """Return the least value reached in each program, a lower bound and where it was reached."""
    n = len(programs.theta)
    upper, lower, theta = np.full(n, np.inf), floor.copy(), programs.theta.copy()
    active = np.arange(n)
    for _ in range(_MAX_ITER):
        # A program without a minimum runs away until its numbers overflow; its bound then stays where it was.
        with np.errstate(over="ignore", invalid="ignore"):
            sane = np.isfinite(programs.value) & np.isfinite(programs.mu)
        if not sane.all():
            active = active[sane]
            if active.size == 0:
                break
            programs = programs.subset(sane)
        better = programs.value < upper[active]
        upper[active[better]], theta[active[better]] = programs.value[better], programs.theta[better]
        accuracy = tol * np.clip(programs.above(floor[active]), 1e-2 * scale, scale)
        ready = programs.mu <= 10.0 * accuracy
        if ready.any():
            bounds = np.maximum(programs.bounds(ready), floor[active[ready]])
            lower[active[ready]] = np.maximum(lower[active[ready]], bounds)
        keep = (upper[active] - lower[active] > accuracy) & (programs.mu > 1e-6 * accuracy)
        active = active[keep]
        if active.size == 0:
            break
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            programs = (programs if keep.all() else programs.subset(keep)).stepped()
    return upper, lower, theta


@dataclass(frozen=True, eq=False)
class Programs:
    """The programs of contexts, the dual variables of their rows eliminated: a step has the size of theta.

    What is asked for, such as ``theta`` and ``value``, is of the active ones; the others rest.

    Attributes
    ----------
    blocks : Blocks
        The rows.
    ridge : Ridge
    reach : ndarray of shape (P,)
    all_theta : ndarray of shape (n_contexts, P)
    active : ndarray of bool of shape (n_contexts,)
    states : the rows' own
    answer : ModelAnswer
        Their first-order model.
    first : ndarray of shape (n_contexts,)
        Risks of a constant prediction.
    """

    blocks: Any
    ridge: Ridge
    reach: Array
    all_theta: Array
    active: Mask
    states: Any
    answer: ModelAnswer
    first: Array

    @classmethod
    def start(cls, blocks: Any, oracle: LinearOracle, n_contexts: int) -> Programs:
        """Begin at the least-squares fits to the hinges, or at a constant where that is better."""
        ridge, constant = oracle.ridge, np.tile(oracle.start(), (n_contexts, 1))
        active, ones = np.ones(n_contexts, dtype=bool), np.ones(n_contexts)

        def place(theta: Array) -> dict[str, Any]:
            return {"theta": theta, "p": ones, "each": True, "active": active}

        normal = blocks.ask(LeastSquares(**place(constant)))
        fit = ridge.added_to_each(as_stack(normal.gram)).solve(normal.right)
        fitted, flat = (blocks.ask(Distance(**place(theta))) for theta in (fit, constant))
        first = flat.values + ridge.value(constant)
        better = fitted.values + ridge.value(fit) <= first
        theta, margin = np.where(better[:, None], fit, constant), np.where(better, fitted.distance, flat.distance)
        begin = Begin(**place(theta), margin=np.where(margin > 0.0, margin, 1.0))
        states, answer = blocks.advance(begin)
        return cls(blocks, ridge, oracle.reach, theta, active, states, answer, first)

    @property
    def _place(self) -> dict[str, Any]:
        ones = np.ones(len(self.active))
        return {"theta": self.all_theta, "p": ones, "each": True, "active": self.active}

    def _all(self, values: Array) -> Array:
        """Return values of the active programs among zeros."""
        out = np.zeros((len(self.active), *values.shape[1:]))
        out[self.active] = values
        return out

    @property
    def theta(self) -> Array:
        """Parameters."""
        return self.all_theta[self.active]

    @cached_property
    def value(self) -> Array:
        """Risks."""
        return self.answer.values[self.active] + self.ridge.value(self.theta)

    def above(self, floor: Array) -> Array:
        """Return how far the mean losses are above the least their rows allow; their size where that is nothing."""
        values, known = self.answer.values[self.active], np.isfinite(floor)
        return np.where(known, values - np.where(known, floor, 0.0), np.abs(values))

    @property
    def mu(self) -> Array:
        """The mean product of a variable and its price."""
        return self.answer.complementarity[self.active]

    def stepped(self) -> Programs:
        """Take one predictor-corrector step in every program."""
        answer, active = self.answer, self.active
        hessian = self.ridge.added_to_each(as_stack(answer.curvature)[active])
        residual = (answer.gradient + answer.theta_shift)[active] + self.ridge.gradient(self.theta)
        affine = -hessian.solve(residual)
        direction: dict[str, Any] = {
            "d_theta": self._all(affine),
            "d_p": np.zeros(len(active)),
            "mu": np.zeros(len(active)),
        }
        found: StepAnswer = self.blocks.ask(Direction(**self._place, **direction), self.states)
        far = np.minimum(1.0, found.longest[active])
        first, second = found.products[active].T
        ratio = (self.mu + far * (first + far * second)) / self.mu
        target = np.clip(ratio, 0.0, 1.0) ** 3 * self.mu
        lifted = residual + target[:, None] * answer.theta_lift[active] + found.theta[active]
        theta = self._all(-hessian.solve(lifted))
        corrected: dict[str, Any] = {
            "d_theta": theta,
            "d_p": direction["d_p"],
            "mu": self._all(target),
            "affine_theta": direction["d_theta"],
            "affine_p": direction["d_p"],
        }
        room = self.blocks.ask(Direction(**self._place, **corrected), self.states).longest
        length = np.where(active, np.minimum(1.0, 0.995 * np.minimum(1.0, room)), 0.0)
        there = self.all_theta + length[:, None] * theta
        move = Move(**self._place, **corrected, length=length, new_theta=there, new_p=np.ones(len(active)))
        states, model = self.blocks.advance(move, self.states)
        return Programs(self.blocks, self.ridge, self.reach, there, active, states, model, self.first)

    def bounds(self, ready: Mask) -> Array:
        """Bound the minima of some programs from below, by balancing the slopes that the dual variables are."""
        chosen = self.active.copy()
        chosen[self.active] = ready
        slopes = BlockSlopes(self.blocks, DualSlopes(**(self._place | {"active": chosen})), self.states)
        return balanced_bounds(slopes, RidgedAt(self.ridge, self.reach, self.all_theta))[chosen]

    def subset(self, keep: Mask) -> Programs:
        """Return some of the programs."""
        active = self.active.copy()
        active[self.active] = keep
        return replace(self, active=active)
