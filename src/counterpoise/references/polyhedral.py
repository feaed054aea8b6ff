"""Hinged losses: Mehrotra's method for every context's program at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from counterpoise.linalg import solve_stack
from counterpoise.losses import Hinged
from counterpoise.oracle._base import Array
from counterpoise.oracle.batch import Batch
from counterpoise.oracle.linear_bounds import dual_bounds, lowest

_MAX_ITER = 100

_HAIR = 1e-150
"""What a slope keeps from its ends where rounding puts it on one, as a share of the interval."""


class Affine(Protocol):
    """The step towards the optimality conditions themselves, from which the next target is foreseen."""

    @property
    def longest(self) -> Array:
        """The largest step up to 1 that keeps every variable positive, for each program."""

    @property
    def response(self) -> Array:
        """What the step's own second order adds to the residual in theta."""

    def mu_after(self, length: Array) -> Array:
        """Return the mean product of a variable and its price after a step of each program."""


class Programs(Protocol):
    """B programs at a point, the dual variables of their rows eliminated: a step has the size of theta."""

    @property
    def theta(self) -> Array:
        """Parameters, of shape (B, P)."""

    @property
    def value(self) -> Array:
        """Risks."""

    @property
    def above(self) -> Array:
        """How far the risks are above the least their rows allow; their size where that is nothing."""

    @property
    def mu(self) -> Array:
        """The mean product of a variable and its price."""

    @property
    def hessian(self) -> Array:
        """What the rows leave behind, with the ridge: (B, P, P)."""

    @property
    def residual(self) -> Array:
        """The residual in theta of the affine step."""

    @property
    def lift(self) -> Array:
        """What a target of 1 adds to it."""

    def affine(self, theta: Array) -> Affine:
        """Return the rows' part of the affine step."""

    def longest(self, theta: Array, target: Array, affine: Affine) -> Array:
        """Return the longest step of the corrected direction for a target."""

    def moved(self, theta: Array, target: Array, affine: Affine, length: Array) -> Self:
        """Return the programs a step of the corrected direction away."""

    def bounds(self, ready: NDArray[np.bool_]) -> Array:
        """Bound the minima of some programs from below."""

    def subset(self, keep: NDArray[np.bool_]) -> Self:
        """Return some of the programs."""


def solve(batch: Batch, tol: float, scale: float) -> tuple[Array, Array, Array]:
    """Return the least risk reached in each context, a lower bound and where it was reached, for a hinged loss."""
    return solve_programs(RowPrograms.start(batch), lowest(batch), tol, scale)


def solve_programs(programs: Any, floor: Array, tol: float, scale: float) -> tuple[Array, Array, Array]:
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
        accuracy = tol * np.clip(programs.above, 1e-2 * scale, scale)
        ready = programs.mu <= 10.0 * accuracy
        if ready.any():
            lower[active[ready]] = np.maximum(lower[active[ready]], programs.bounds(ready))
        keep = (upper[active] - lower[active] > accuracy) & (programs.mu > 1e-6 * accuracy)
        active = active[keep]
        if active.size == 0:
            break
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            programs = step(programs if keep.all() else programs.subset(keep))
    return upper, lower, theta


def step(programs: Any) -> Any:
    """Take one predictor-corrector step in every program."""
    hessian, residual = programs.hessian, programs.residual
    affine = programs.affine(-solve_stack(hessian, residual))
    ratio = affine.mu_after(affine.longest) / programs.mu
    target = np.clip(ratio, 0.0, 1.0) ** 3 * programs.mu
    theta = -solve_stack(hessian, residual + target[:, None] * programs.lift + affine.response)
    length = np.minimum(1.0, 0.995 * programs.longest(theta, target, affine))
    return programs.moved(theta, target, affine, length)


@dataclass(frozen=True, eq=False)
class RowPrograms:
    """The dual variables of every row in a batch: ``v`` between two slopes, ``over`` and ``under`` their prices."""

    batch: Batch
    v: Array
    over: Array
    under: Array

    @classmethod
    def start(cls, batch: Batch) -> RowPrograms:
        """Begin at the least-squares fit to the hinges, every variable well inside."""
        assert isinstance(batch.loss, Hinged)
        hinge = batch.loss.pieces(batch.target)[0]
        fit = solve_stack(
            batch.regularised(np.ones_like(batch.weight)),
            batch.transpose_product((batch.weight * hinge)[:, None]),
        )
        fit = np.where((batch.at(fit).value <= batch.value)[:, None], fit, batch.theta)
        batch = batch.at(fit)
        return cls.inside(batch, batch.total(batch.weight * np.abs(batch.predictions - hinge)))

    @classmethod
    def inside(cls, batch: Batch, mean: Array) -> RowPrograms:
        """Put every variable well inside, with a margin of the mean distance to the hinges."""
        assert isinstance(batch.loss, Hinged)
        hinge, _, left, right = batch.loss.pieces(batch.target)
        beyond = batch.predictions - hinge
        margin = np.repeat(np.where(mean > 0, mean, 1.0), batch.X.shape[1])
        return cls(batch, 0.5 * (left + right), np.maximum(beyond, 0.0) + margin, np.maximum(-beyond, 0.0) + margin)

    @property
    def theta(self) -> Array:
        return self.batch.theta

    @property
    def value(self) -> Array:
        return self.batch.value

    @property
    def above(self) -> Array:
        return self.batch.above

    def subset(self, keep: NDArray[np.bool_]) -> RowPrograms:
        rows = np.repeat(keep, self.batch.X.shape[1])
        return RowPrograms(self.batch.subset(keep), self.v[rows], self.over[rows], self.under[rows])

    @cached_property
    def ends(self) -> tuple[Array, Array]:
        """Distance of v to its lower and to its upper end."""
        assert isinstance(self.batch.loss, Hinged)
        _, _, left, right = self.batch.loss.pieces(self.batch.target)
        # Rounding may put v on an end; a hair's breadth keeps the springs finite.
        hair = _HAIR * (right - left)
        return np.maximum(self.v - left, hair), np.maximum(right - self.v, hair)

    @cached_property
    def bend(self) -> Array:
        """How readily each row's slope moves."""
        low, high = self.ends
        return 1.0 / (self.over / high + self.under / low + self._softness)

    @property
    def _softness(self) -> float:
        assert isinstance(self.batch.loss, Hinged)
        return self.batch.loss.softness

    @cached_property
    def _beyond(self) -> Array:
        """How far each prediction is from where the slope puts it."""
        assert isinstance(self.batch.loss, Hinged)
        return self.batch.predictions - self.batch.loss.pieces(self.batch.target)[0] - self._softness * self.v

    @cached_property
    def mu(self) -> Array:
        low, high = self.ends
        return 0.5 * self.batch.total(self.batch.weight * (high * self.over + low * self.under))

    @property
    def hessian(self) -> Array:
        return self.batch.regularised(self.bend)

    @property
    def residual(self) -> Array:
        batch = self.batch
        rows = batch.transpose_product((batch.weight * (self.v + self.bend * self._beyond))[:, None])
        return rows + batch.alpha * batch.coefficients

    @property
    def lift(self) -> Array:
        ones = np.ones_like(self.v)
        return self.response(ones, ones)

    def response(self, up: Array, down: Array) -> Array:
        """Return what more is asked of the two products of each row, as a residual in theta."""
        low, high = self.ends
        return self.batch.transpose_product((self.batch.weight * self.bend * (down / low - up / high))[:, None])

    def affine(self, theta: Array) -> RowAffine:
        return RowAffine(self, self.direction(theta, np.zeros(len(theta)), None))

    def direction(self, theta: Array, target: Array, affine: Step | None) -> Step:
        """Return the rows' part of a direction, for a target of each program, corrected by the affine step."""
        low, high = self.ends
        aim = np.repeat(target, self.batch.X.shape[1])
        up, down = (aim, aim) if affine is None else (aim + affine.v * affine.over, aim - affine.v * affine.under)
        v = self.bend * (self.batch.product(theta) + self._beyond + down / low - up / high)
        over = up / high - self.over + self.over * v / high
        under = down / low - self.under - self.under * v / low
        return Step(v, over, under)

    def longest(self, theta: Array, target: Array, affine: RowAffine) -> Array:
        return self.room(self.direction(theta, target, affine.step))

    def room(self, step: Step) -> Array:
        """Return, for each program, the largest step up to 1 that keeps every variable positive."""
        low, high = self.ends
        longest = np.ones(len(self.batch.theta))
        for value, change in ((self.over, step.over), (self.under, step.under), (low, step.v), (high, -step.v)):
            # Padded rows have no weight and no say.
            shrinks = (change < 0) & (self.batch.weight > 0)
            ratio = np.where(shrinks, -value / np.where(shrinks, change, -1.0), np.inf)
            longest = np.minimum(longest, ratio.reshape(len(longest), -1).min(axis=1))
        return longest

    def moved(self, theta: Array, target: Array, affine: RowAffine, length: Array) -> RowPrograms:
        step = self.direction(theta, target, affine.step)
        far = np.repeat(length, self.batch.X.shape[1])
        return RowPrograms(
            self.batch.at(self.batch.theta + length[:, None] * theta),
            self.v + far * step.v,
            self.over + far * step.over,
            self.under + far * step.under,
        )

    def bounds(self, ready: NDArray[np.bool_]) -> Array:
        at = self.subset(ready)
        return dual_bounds(at.batch, at.v, at.bend, np.ones_like(at.v))


@dataclass(frozen=True, eq=False)
class Step:
    """A direction in the rows' variables."""

    v: Array
    over: Array
    under: Array


@dataclass(frozen=True, eq=False)
class RowAffine:
    """The affine step of rows at hand."""

    programs: RowPrograms
    step: Step

    @property
    def longest(self) -> Array:
        return self.programs.room(self.step)

    @property
    def response(self) -> Array:
        return self.programs.response(self.step.v * self.step.over, -self.step.v * self.step.under)

    @cached_property
    def products(self) -> tuple[Array, Array]:
        """What a step adds to mu: times its length, and times the length squared."""
        rows, step, (low, high) = self.programs, self.step, self.programs.ends
        first = high * step.over - step.v * rows.over + low * step.under + step.v * rows.under
        second = step.v * (step.under - step.over)
        return tuple(0.5 * rows.batch.total(rows.batch.weight * part) for part in (first, second))  # type: ignore[return-value]

    def mu_after(self, length: Array) -> Array:
        first, second = self.products
        return self.programs.mu + length * (first + length * second)
