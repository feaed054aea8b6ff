"""The chi-square ball: distributions whose shares lie within a few standard errors of the empirical ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoise.sets._base import Ball, WorstCase
from counterpoise.sets._geometry import Array, Constraints
from counterpoise.sets.kl import KLBall
from counterpoise.sets.sensitivity import Sensitivity

_SMALLEST_VARIANCE = 1e-290
"""A smaller variance of scores may be rounding, or have lost digits to underflow."""

_TIE = 1e-120
"""Relative gaps below this count as ties, so that their squares, times a share, do not underflow."""


@dataclass(frozen=True, eq=False)
class Chi2Ball(Ball):
    r"""Distributions whose chi-square distance from the empirical one is at most ``radius``.

    .. math:: \Bigl\{ p : \sum_c \frac{(p_c - \hat p_c)^2}{\hat p_c} \le \text{radius} \Bigr\}

    As long as no probability vanishes, the largest expected score is the mean plus ``sqrt(radius)`` standard deviations
    of the scores, both under the empirical distribution.

    Parameters
    ----------
    p_hat : array-like of shape (n_contexts,)
        The empirical distribution. A context with probability 0 (declared, never seen) has none in any member, unless
        the radius is infinite: its distance would be infinite.
    radius : float
        A plain number, not bits: at a small radius this is about the KL ball of ``radius / (2 log 2)`` bits. 0 is the
        empirical distribution alone, ``inf`` the whole simplex, and so is ``1 / min(p_hat) - 1``.
    """

    measure: ClassVar[str] = " in chi-square distance"

    @property
    def is_point(self) -> bool:
        """Whether the empirical distribution is the only member."""
        return super().is_point or (math.isfinite(self.radius) and float(self.p_hat.max()) == 1.0)

    @property
    def is_simplex(self) -> bool:
        """Whether every distribution is a member: the furthest is all on the context of the smallest share."""
        return (1.0 + self.radius) * float(self.p_hat.min()) >= 1.0 or math.isinf(self.radius)

    def divergence(self, p: ArrayLike) -> float:
        """Return ``sum (p - p_hat)^2 / p_hat``, infinite where ``p`` is positive and ``p_hat`` is not."""
        away = np.asarray(p, dtype=np.float64) - self.p_hat
        seen = self.p_hat > 0.0
        return float(away[seen] @ (away[seen] / self.p_hat[seen])) if not away[~seen].any() else math.inf

    def constraints(self, x: Array) -> Constraints:
        r"""Return the distance less the radius; none where every distribution is a member.

        It is written as :math:`\sum (p - \hat p)^2 / \hat p - 2 \sum (p - \hat p)`, which is the same on the simplex.
        Of its gradient, :math:`2 p / \hat p - 4`, as much is put into poles as leaves a growing rest in the ball: in a
        small one nearly all, as in a KL ball, and nothing where a probability may vanish.
        """
        if self.is_point or self.is_simplex:
            return Constraints.none(x)
        away, inverse = x - self.p_hat, np.divide(1.0, self.p_hat, out=np.zeros_like(self.p_hat), where=self.support)
        relative, poles = away * inverse, self._poles
        over = np.divide(poles, x, out=np.zeros_like(x), where=poles > 0.0)
        regular = 2.0 * relative - 2.0 + over
        curvature = 2.0 * inverse - np.divide(over, x, out=np.zeros_like(x), where=poles > 0.0)
        value = (away * relative).sum(axis=-1) - 2.0 * away.sum(axis=-1) - self.radius
        stacked = (one[..., None, :] for one in (regular, curvature, np.broadcast_to(poles, x.shape)))
        return Constraints(x, value[..., None], *stacked)

    @property
    def support(self) -> NDArray[np.bool_]:
        """Which contexts any member gives a probability: those that were seen, unless the radius is infinite."""
        return (self.p_hat > 0.0) | math.isinf(self.radius)

    @cached_property
    def _poles(self) -> Array:
        """``2 p^2 / p_hat`` for ``p = p_hat - sqrt(radius p_hat)``, or 0: no member gives a context less."""
        return 2.0 * np.maximum(np.sqrt(self.p_hat) - math.sqrt(self.radius), 0.0) ** 2

    def conditional(self, free: NDArray[np.bool_], p: Array, mass: float) -> Chi2Ball | None:
        """Return the ball of the free contexts' conditional distributions, where all others have the shares ``p``."""
        share, held = float(self.p_hat[free].sum()), ~free & self.support
        if not share > 0.0:
            return None
        spent = float(((p - self.p_hat)[held] ** 2 / self.p_hat[held]).sum()) + (mass - share) ** 2 / share
        radius = (self.radius - spent) * share / mass**2
        return Chi2Ball(self.p_hat[free] / share, radius) if radius > 0.0 else None

    def response(self, shares: Array, scores: Array, nu: Array, multiplier: Array) -> Array:
        """Return ``shares (2 + (scores - nu) / (2 multiplier))``, or 0 where that is negative."""
        return np.asarray(shares * np.maximum(2.0 + (scores - nu) / (2.0 * multiplier), 0.0))

    def interior(self, scores: Array) -> WorstCase:
        """Return the least favourable member of a smaller ball, in which every share keeps at least half its size."""
        if self.is_simplex:
            return KLBall(self.p_hat, math.inf).interior(scores)
        least = float(self.p_hat[self.p_hat > 0.0].min())
        return self.resized(0.25 * min(self.radius, least)).worst_case(scores)

    def supported(self, p: Array) -> Array:
        """Return ``p`` with nothing negative, and nothing where nothing was seen unless the radius is infinite."""
        return np.where(self.support, np.maximum(p, 0.0), 0.0)

    def sensitivity(self, worst: WorstCase, scores: Array) -> Sensitivity | None:
        """Return the derivative of the least favourable distribution in the scores; None where scores agree."""
        if self.is_point:
            return Sensitivity.none(len(scores))
        shares = np.where(worst.distribution > 0.0, self.p_hat, 0.0)
        mass = float(shares.sum())
        from_mean = shares * (scores - float(shares @ scores) / mass)
        variance = float(from_mean @ (scores - scores.max()))
        if not (worst.multiplier > 0.0 and math.isfinite(worst.multiplier) and variance > 0.0):
            return None
        # From p = p_hat (s - low) / (2 multiplier) where that is positive, with sum p = 1 and the distance held.
        over = 2.0 * worst.multiplier
        fixed = np.stack([shares, from_mean], axis=1)
        return Sensitivity(shares / over, fixed, -fixed / (over * np.array([mass, variance])))

    def worst_row(self, scores: Array) -> tuple[Array, float, float, float] | None:
        """Return distribution, value, nu and multiplier for one score vector; None where a probability vanishes."""
        with np.errstate(over="ignore", invalid="ignore"):
            # From the largest first: what scores have in common must not drown their differences.
            top = float(scores.max())
            from_top = scores - top
            mean = float(self.p_hat @ from_top)
            from_mean = from_top - mean
            variance = float(self.p_hat @ (from_mean * from_mean))
        if not (_SMALLEST_VARIANCE < variance < math.inf and self.radius < math.inf):
            return None
        deviations = math.sqrt(self.radius / variance)
        if deviations * float(from_mean.min()) < -1.0:
            return None
        p = self.p_hat * (1.0 + deviations * from_mean)
        multiplier = 0.5 * math.sqrt(variance / self.radius)
        return p, float(p @ scores), top + mean + 2.0 * multiplier, multiplier

    def worst_rows(self, scores: Array) -> tuple[Array, Array, Array]:
        r"""Return distributions, nu and multipliers for a batch of finite score vectors.

        With :math:`g` the distances to the largest score the least favourable distribution is
        :math:`p_c \propto \hat p_c (t - g_c)_+`, where the mean of :math:`(t - g)_+^2` is ``1 + radius`` times the
        square of the mean of :math:`(t - g)_+`. Their ratio falls as :math:`t` grows: its values at the distances
        themselves tell which contexts have a probability, and then :math:`t` is a square root.
        """
        if math.isinf(self.radius):
            return KLBall(self.p_hat, math.inf).worst_rows(scores)
        seen = np.flatnonzero(self.p_hat > 0.0)
        # Powers of two scale exactly: the largest score becomes about 1, and no difference can overflow.
        exponent = np.frexp(np.abs(scores[:, seen]).max(axis=1))[1]
        scaled = np.ldexp(scores[:, seen], -exponent[:, None])
        top = scaled.max(axis=1)
        gaps = top[:, None] - scaled
        gaps[gaps <= _TIE * gaps.max(axis=1, keepdims=True)] = 0.0
        order = np.argsort(gaps, axis=1, kind="stable")
        included = np.empty(order.shape, dtype=bool)
        included_in_order = self._have_probability(np.take_along_axis(gaps, order, axis=1), self.p_hat[seen][order])
        np.put_along_axis(included, order, included_in_order, axis=1)

        shares = np.where(included, self.p_hat[seen], 0.0)
        mass, left = shares.sum(axis=1), np.where(included, 0.0, self.p_hat[seen]).sum(axis=1)
        mean = np.einsum("bc,bc->b", shares, gaps) / mass
        from_mean = mean[:, None] - gaps
        variance = np.einsum("bc,bc,bc->b", shares, from_mean, from_mean) / mass
        # mass (1 + radius) - 1, without the rounding of a mass near 1.
        excess = self.radius - (1.0 + self.radius) * left
        binds = (variance > 0.0) & (excess > 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            reach = np.where(binds, np.sqrt(variance / excess), math.inf)
            tilted = shares * np.maximum(1.0 + from_mean / reach[:, None], 0.0)
            p = np.zeros(scores.shape)
            p[:, seen] = tilted / tilted.sum(axis=1, keepdims=True)
            multiplier = np.where(binds, 0.5 * mass * reach, 0.0)
            nu = np.where(binds, top - mean - left * reach, top) + 2.0 * multiplier
            return p, np.ldexp(nu, exponent), np.ldexp(multiplier, exponent)

    def _have_probability(self, gaps: Array, shares: Array) -> NDArray[np.bool_]:
        """Tell which contexts the least favourable distribution keeps; distances ascend."""
        steps, mass = np.diff(gaps, axis=1), np.cumsum(shares, axis=1)[:, :-1]
        # The means of (t - g)_+ and of its square at the next distance t, as sums of what each step adds.
        first = np.cumsum(steps * mass, axis=1)
        before = first - steps * mass
        second = np.cumsum(steps * (2.0 * before + steps * mass), axis=1)
        kept = second > (1.0 + self.radius) * first * first
        ties = gaps[:, 1:] == 0.0
        return np.column_stack([np.ones(len(gaps), dtype=bool), kept | ties])
