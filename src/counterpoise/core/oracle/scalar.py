"""One parameter and a piecewise linear loss: risks whose every kink is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from counterpoise.core.oracle._base import Array, Bounds, OnlyKinks
from counterpoise.core.oracle.linear import LinearOracle
from counterpoise.rows import MemoryRows

UNBOUNDED: Bounds = (np.array([-np.inf]), np.array([np.inf]))


@dataclass(frozen=True, eq=False)
class ScalarOracle:
    r"""Risks of a scalar, with a loss of one kink a row.

    .. math:: R_c(\theta) = \sum_{i \in c} w_i\,\ell(y_i, x_i \theta)

    In theta, row ``i`` is ``height + slope (theta - kink)`` with one slope below its kink and a larger one above.
    Rows are sorted by kink, so that every risk and slope is a difference of cumulative sums.
    """

    kinks: Array
    below: Array
    jump: Array
    constant: Array
    codes: NDArray[np.intp]
    n_contexts: int
    bounds: Bounds
    lowest_risks: Array
    typical_risk: float = 0.0
    n_parameters: int = 1
    is_rigorous: bool = True
    forms_hessian: bool = True
    offers = frozenset({"kinks"})

    @classmethod
    def of(cls, oracle: LinearOracle) -> ScalarOracle:
        """Sort the rows of a linear oracle that suits."""
        return cls.of_rows(oracle.rows, oracle.bounds or UNBOUNDED, oracle.typical_risk)

    @classmethod
    def of_rows(cls, rows: MemoryRows, bounds: Bounds, typical_risk: float) -> ScalarOracle:
        """Sort rows in memory."""
        x = np.ones(len(rows.target)) if rows.fit_intercept else np.asarray(rows.X[:, [0]].sum(axis=1)).ravel()
        kink, height, left, right = rows.loss.pieces(rows.target)
        weight, codes, n_contexts = rows.weight, rows.owner, rows.n_contexts
        moves = x != 0
        position = np.where(moves, kink / np.where(moves, x, 1.0), 0.0)
        # A negative x swaps the sides.
        low, high = np.where(x > 0, left * x, right * x), np.where(x > 0, right * x, left * x)
        at_zero = rows.loss.value(rows.target, np.zeros(len(x)))
        order = np.argsort(position, kind="stable")
        return cls(
            kinks=position[order],
            below=_sums(codes, weight * low, n_contexts),
            jump=(weight * (high - low))[order],
            # Each row as its line below the kink, plus the jump beyond it.
            constant=_sums(codes, weight * np.where(moves, height - low * position, at_zero), n_contexts),
            codes=codes[order],
            n_contexts=n_contexts,
            bounds=bounds,
            lowest_risks=rows.lowest,
            typical_risk=typical_risk,
        )

    @cached_property
    def candidates(self) -> Array:
        """The kinks inside the bounds, and the finite bounds, in order: some minimiser is at or between these."""
        low, high = self.bounds[0][0], self.bounds[1][0]
        inside = np.unique(np.concatenate([self.kinks, [low, high]]))
        return inside[(inside >= low) & (inside <= high) & np.isfinite(inside)]

    def start(self) -> Array:
        """Return zero, or the bound nearest to it."""
        return np.clip(np.zeros(1), *self.bounds)

    def at(self, theta: Array) -> ScalarPoint:
        """Return what is known at ``theta``."""
        return ScalarPoint(self, np.asarray(theta, dtype=np.float64))

    def context_minima(self) -> tuple[Array, Array]:
        """Return each context's least risk and the theta that attains it; infinite where there is none."""
        order = np.argsort(self.codes, kind="stable")
        codes, kinks, jump = self.codes[order], self.kinks[order], self.jump[order]
        counts = np.bincount(codes, minlength=self.n_contexts)
        ends = np.cumsum(counts)
        total = np.cumsum(jump)
        before = np.where(ends > counts, total[ends - counts - 1], 0.0)
        slopes = self.below[codes] + total - before[codes]
        # Rounding in the sums must not turn a flat stretch into a descent.
        noise = 1e-15 * (np.abs(self.below) + _sums(codes, jump, self.n_contexts) + float(total[-1]))
        rising = slopes >= -noise[codes]
        first = np.full(self.n_contexts, len(kinks))
        np.minimum.at(first, codes[rising], np.flatnonzero(rising))
        theta = np.where(first < len(kinks), kinks[np.minimum(first, len(kinks) - 1)], np.inf)
        # Rising from the start: as low as it may go. Flat at the start: the first kink is as good as any before it.
        flat = np.abs(self.below) <= noise
        theta = np.where(flat, kinks[np.minimum(ends - counts, len(kinks) - 1)], theta)
        theta = np.where(self.below > noise, -np.inf, theta)
        theta = np.clip(theta, self.bounds[0][0], self.bounds[1][0])
        finite = np.isfinite(theta)
        return np.where(finite, self.own_risks(np.where(finite, theta, 0.0)), -np.inf), theta

    def own_risks(self, theta: Array) -> Array:
        """Return the risk of each context at a theta of its own."""
        beyond = np.maximum(theta[self.codes] - self.kinks, 0.0)
        return self.constant + self.below * theta + _sums(self.codes, self.jump * beyond, self.n_contexts)


@dataclass(frozen=True, eq=False)
class ScalarPoint(OnlyKinks):
    """Risks of a scalar and their one-sided slopes."""

    oracle: ScalarOracle
    theta: Array

    @cached_property
    def _passed(self) -> tuple[int, int]:
        """How many kinks lie strictly below theta, and at or below it."""
        kinks, theta = self.oracle.kinks, self.theta[0]
        return int(np.searchsorted(kinks, theta, "left")), int(np.searchsorted(kinks, theta, "right"))

    @cached_property
    def risks(self) -> Array:
        """The risk of each context."""
        oracle, k = self.oracle, self._passed[0]
        beyond = np.bincount(oracle.codes[:k], oracle.jump[:k] * (self.theta[0] - oracle.kinks[:k]), oracle.n_contexts)
        return np.asarray(oracle.constant + oracle.below * self.theta[0] + beyond)

    def slopes(self, side: int) -> Array:
        """Return the derivative of each risk to the left (0) or to the right (1)."""
        oracle, k = self.oracle, self._passed[side]
        return np.asarray(oracle.below + _sums(oracle.codes[:k], oracle.jump[:k], oracle.n_contexts))

    @property
    def jacobian(self) -> Array:
        """The derivatives to the right."""
        return self.slopes(1)[:, None]

    def lower_bound(self, p: Array, gradient: Array, curvature: Array | None) -> float:
        """Minimise ``sum_c p_c risk_c`` exactly, by walking its kinks; whatever the point."""
        oracle = self.oracle
        low, high = oracle.bounds[0][0], oracle.bounds[1][0]
        steps = oracle.jump * p[oracle.codes]
        slopes = float(p @ oracle.below) + np.concatenate([[0.0], np.cumsum(steps)])
        # Rounding in the sums must not turn a flat stretch into a descent.
        rising = np.flatnonzero(slopes >= -1e-14 * float(steps.sum() + np.abs(oracle.below) @ p))
        if rising.size == 0:
            best = high
        elif rising[0] == 0:
            best = low if np.isfinite(low) or slopes[0] > 0 else oracle.kinks[0]
        else:
            best = oracle.kinks[rising[0] - 1]
        best = float(np.clip(best, low, high))
        return float(p @ oracle.at(np.array([best])).risks) if np.isfinite(best) else -np.inf


def _sums(codes: NDArray[np.intp], values: Array, n_contexts: int) -> Array:
    """Add up values per context."""
    return np.bincount(codes, values, n_contexts).astype(np.float64, copy=False)
