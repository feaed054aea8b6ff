"""Hinged losses: Mehrotra's method for every context's program at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from counterpoise.linalg import solve_stack
from counterpoise.losses import Hinged
from counterpoise.oracle._base import Array
from counterpoise.oracle.batch import Batch
from counterpoise.oracle.linear_bounds import dual_bounds, lowest, own_scale

_MAX_ITER = 100

_HAIR = 1e-150
"""What a slope keeps from its ends where rounding puts it on one, as a share of the interval."""


def solve(batch: Batch, tol: float, scale: float) -> tuple[Array, Array, Array]:
    """Return the least risk reached in each context, a lower bound and where it was reached, for a hinged loss.

    The rows of each program are eliminated, so a step has the size of theta.
    """
    assert isinstance(batch.loss, Hinged)
    rows = _Rows.start(batch)
    n = len(batch.theta)
    upper, lower, theta = np.full(n, np.inf), lowest(batch), batch.theta.copy()
    active = np.arange(n)
    for _ in range(_MAX_ITER):
        # A program without a minimum runs away until its numbers overflow; its bound then stays where it was.
        sane = np.isfinite(rows.batch.value) & np.isfinite(rows.mu)
        if not sane.all():
            active = active[sane]
            if active.size == 0:
                break
            rows = rows.subset(sane)
        better = rows.batch.value < upper[active]
        upper[active[better]], theta[active[better]] = rows.batch.value[better], rows.batch.theta[better]
        accuracy = tol * own_scale(rows.batch, scale)
        ready = rows.mu <= 10.0 * accuracy
        if ready.any():
            at = rows.subset(ready)
            bounds = dual_bounds(at.batch, at.v, at.bend, np.ones_like(at.v))
            lower[active[ready]] = np.maximum(lower[active[ready]], bounds)
        keep = (upper[active] - lower[active] > accuracy) & (rows.mu > 1e-6 * accuracy)
        active = active[keep]
        if active.size == 0:
            break
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            rows = (rows if keep.all() else rows.subset(keep)).step()
    return upper, lower, theta


@dataclass(frozen=True, eq=False)
class _Rows:
    """The dual variables of every row in a batch: ``v`` between two slopes, ``above`` and ``below`` their prices."""

    batch: Batch
    v: Array
    above: Array
    below: Array

    @classmethod
    def start(cls, batch: Batch) -> _Rows:
        """Begin at the least-squares fit to the hinges, every variable well inside."""
        assert isinstance(batch.loss, Hinged)
        hinge, _, left, right = batch.loss.pieces(batch.target)
        fit = solve_stack(
            batch.regularised(np.ones_like(batch.weight)),
            batch.transpose_product((batch.weight * hinge)[:, None]),
        )
        fit = np.where((batch.at(fit).value <= batch.value)[:, None], fit, batch.theta)
        batch = batch.at(fit)
        beyond = batch.predictions - hinge
        mean = batch.total(batch.weight * np.abs(beyond))
        margin = np.repeat(np.where(mean > 0, mean, 1.0), batch.X.shape[1])
        return cls(batch, 0.5 * (left + right), np.maximum(beyond, 0.0) + margin, np.maximum(-beyond, 0.0) + margin)

    def subset(self, keep: NDArray[np.bool_]) -> _Rows:
        """Return some of the contexts."""
        rows = np.repeat(keep, self.batch.X.shape[1])
        return _Rows(self.batch.subset(keep), self.v[rows], self.above[rows], self.below[rows])

    @cached_property
    def _ends(self) -> tuple[Array, Array]:
        """Distance of v to its lower and to its upper end."""
        assert isinstance(self.batch.loss, Hinged)
        _, _, left, right = self.batch.loss.pieces(self.batch.target)
        # Rounding may put v on an end; a hair's breadth keeps the springs finite.
        hair = _HAIR * (right - left)
        return np.maximum(self.v - left, hair), np.maximum(right - self.v, hair)

    @cached_property
    def bend(self) -> Array:
        """How readily each row's slope moves."""
        low, high = self._ends
        return 1.0 / (self.above / high + self.below / low + self._softness)

    @property
    def _softness(self) -> float:
        assert isinstance(self.batch.loss, Hinged)
        return self.batch.loss.softness

    @cached_property
    def mu(self) -> Array:
        """The mean product of a variable and its price, for each context."""
        low, high = self._ends
        return 0.5 * self.batch.total(self.batch.weight * (high * self.above + low * self.below))

    def step(self) -> _Rows:
        """Take one predictor-corrector step in every context."""
        low, high = self._ends
        hessian = self.batch.regularised(self.bend)
        affine = self._direction(hessian, -high * self.above, -low * self.below)
        length = np.repeat(self._longest(affine), self.batch.X.shape[1])
        after = (high - length * affine[1]) * (self.above + length * affine[2])
        after = after + (low + length * affine[1]) * (self.below + length * affine[3])
        ratio = 0.5 * self.batch.total(self.batch.weight * after) / self.mu
        target = np.repeat(np.clip(ratio, 0.0, 1.0) ** 3 * self.mu, self.batch.X.shape[1])
        up = target - high * self.above + affine[1] * affine[2]
        down = target - low * self.below - affine[1] * affine[3]
        theta, v, above, below = self._direction(hessian, up, down)
        shortest = np.minimum(1.0, 0.995 * self._longest((theta, v, above, below)))
        length = np.repeat(shortest, self.batch.X.shape[1])
        return _Rows(
            self.batch.at(self.batch.theta + shortest[:, None] * theta),
            self.v + length * v,
            self.above + length * above,
            self.below + length * below,
        )

    def _direction(self, hessian: Array, up: Array, down: Array) -> tuple[Array, Array, Array, Array]:
        """Solve the linearised conditions; ``up`` and ``down`` are what the two products of each row lack."""
        batch, (low, high) = self.batch, self._ends
        assert isinstance(batch.loss, Hinged)
        hinge = batch.loss.pieces(batch.target)[0]
        off = batch.predictions - hinge - self._softness * self.v - self.above + self.below - up / high + down / low
        residual = batch.transpose_product((batch.weight * (self.v + self.bend * off))[:, None])
        theta = -solve_stack(hessian, residual + batch.alpha * batch.coefficients)
        v = self.bend * (batch.product(theta) + off)
        return theta, v, (up + self.above * v) / high, (down - self.below * v) / low

    def _longest(self, direction: tuple[Array, Array, Array, Array]) -> Array:
        """Return, for each context, the largest step up to 1 that keeps every variable positive."""
        (low, high), (_, v, above, below) = self._ends, direction
        longest = np.ones(len(self.batch.theta))
        for value, change in ((self.above, above), (self.below, below), (low, v), (high, -v)):
            # Padded rows have no weight and no say.
            shrinks = (change < 0) & (self.batch.weight > 0)
            ratio = np.where(shrinks, -value / np.where(shrinks, change, -1.0), np.inf)
            longest = np.minimum(longest, ratio.reshape(len(longest), -1).min(axis=1))
        return longest
