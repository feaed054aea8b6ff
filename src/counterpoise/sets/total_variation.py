"""The total-variation ball: a share of the mix may move anywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from counterpoise.sets._base import Ball
from counterpoise.sets._geometry import Array, Constraints, Geometry, Indices
from counterpoise.sets.likeliest import within_total_variation


@dataclass(frozen=True, eq=False)
class TotalVariationBall(Ball):
    r"""Distributions that differ from the empirical one by moving at most a share ``radius`` of the mass.

    .. math:: \Bigl\{ p : \tfrac12 \sum_c |p_c - \hat p_c| \le \text{radius} \Bigr\}

    The least favourable member takes that share from the contexts with the lowest scores and gives it to the context
    with the highest.

    Parameters
    ----------
    p_hat : array-like of shape (n_contexts,)
        The empirical distribution.
    radius : float
        0 is the empirical distribution alone; 1 is the whole simplex, and so is ``1 - min(p_hat)``.
    """

    unit: ClassVar[str] = "a share of the mix that may move"
    measure: ClassVar[str] = " (total variation)"

    @property
    def is_simplex(self) -> bool:
        """Whether every distribution is a member: the smallest share is the farthest from being all there is."""
        return self.radius >= 1.0 - float(self.p_hat.min())

    def divergence(self, p: ArrayLike) -> float:
        """Return half the sum of the absolute differences."""
        return 0.5 * float(np.abs(np.asarray(p, dtype=np.float64) - self.p_hat).sum())

    @cached_property
    def geometry(self) -> Geometry:
        """The probabilities, and an upper bound of how far each is above its share."""
        if self.is_point or self.is_simplex:
            return Geometry.simplex(len(self.p_hat))
        n = len(self.p_hat)
        ones = np.concatenate([np.ones(n), np.zeros(n)])[None]
        return Geometry(n, ones, np.ones(1), owners=np.arange(n), helpers=n + np.arange(n), offsets=self.p_hat)

    def lift(self, p: Array) -> Array:
        """Return the distribution with bounds of its differences, a little above them."""
        if self.geometry.is_plain:
            return p
        above = np.maximum(p - self.p_hat, 0.0)
        left = max(self.radius - float(above.sum()), 0.1 * self.radius)
        return np.concatenate([p, above + 0.1 * left / len(p)])

    def constraints(self, x: Array) -> Constraints:
        """Return the sum of the differences' upper bounds, less the radius."""
        if self.geometry.is_plain:
            return Constraints.none(x)
        n = len(self.p_hat)
        zero = np.zeros((*x.shape[:-1], 1, 2 * n))
        regular = zero + np.concatenate([np.zeros(n), np.ones(n)])
        return Constraints(x, x[..., n:].sum(axis=-1, keepdims=True) - self.radius, regular, zero, zero)

    def supported(self, p: Array) -> Array:
        """Return ``p`` with nothing negative."""
        return np.maximum(p, 0.0)

    def likeliest_rows(self, shares: Array) -> tuple[Array, Array, Array]:
        """Return likeliest members for a batch of shares of counts, log-likelihoods per draw, and upper bounds."""
        return within_total_variation(self, self.radius, shares)

    def worst_row(self, scores: Array) -> tuple[Array, float, float, float] | None:
        """Return distribution, value, nu and multiplier for one score vector; the dual variables are not sought."""
        with np.errstate(over="ignore", invalid="ignore"):
            p = self.worst_rows(scores[None])[0][0]
            value = float(p @ scores)
        return (p, value, math.inf, math.inf) if math.isfinite(value) else None

    def worst_rows(self, scores: Array) -> tuple[Array, Array, Array]:
        """Return distributions for a batch of score vectors; their dual variables are not sought."""
        zero, one = np.zeros_like(self.p_hat), np.ones_like(self.p_hat)
        unknown = np.full(len(scores), math.inf)
        return moved_mass(self, zero, one, scores), unknown, unknown


def filled(amounts: Array, rooms: Array, order: Indices) -> Array:
    """Return how much of each amount goes where, if each place is filled before the next.

    Parameters
    ----------
    amounts : ndarray of shape (batch,)
    rooms : ndarray of shape (n_contexts,)
    order : ndarray of shape (batch, n_contexts)
        Places, the first to be filled first.
    """
    ordered = rooms[order]
    before = np.cumsum(ordered, axis=1) - ordered
    out = np.empty(order.shape)
    np.put_along_axis(out, order, np.clip(amounts[:, None] - before, 0.0, ordered), axis=1)
    return out


def greedy(low: Array, high: Array, scores: Array) -> Array:
    """Return the least favourable distributions within bounds: the largest scores are filled up first."""
    order = np.argsort(-scores, axis=1, kind="stable")
    p = low + filled(np.full(len(scores), 1.0 - low.sum()), high - low, order)
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def moved_mass(ball: TotalVariationBall, low: Array, high: Array, scores: Array) -> Array:
    """Return the least favourable distributions of a total-variation ball within bounds, which have to meet.

    Shares are first moved into their bounds. As long as the bounds alone would move more mass, and the radius allows,
    more goes from the lowest scores to the highest.
    """
    base = np.clip(ball.p_hat, low, high)
    descending = np.argsort(-scores, axis=1, kind="stable")
    # What moving into the bounds has added, and by how much it adds more than it takes away.
    added, surplus = float(np.maximum(low - ball.p_hat, 0.0).sum()), float(base.sum()) - 1.0
    whole = np.maximum(greedy(low, high, scores) - base, 0.0).sum(axis=1)
    up = np.clip(np.minimum(ball.radius - added, whole), max(0.0, -surplus), None)
    raised = filled(up, high - base, descending)
    lowered = filled(up + surplus, base - low, descending[:, ::-1])
    p = base + raised - lowered
    return p / p.sum(axis=1, keepdims=True)
