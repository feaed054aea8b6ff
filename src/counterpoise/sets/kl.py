"""The Kullback-Leibler ball: every distribution that the counts make plausible."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoise.sets._base import SMALLEST, Ball, WorstCase, positive
from counterpoise.sets._geometry import Array, Constraints
from counterpoise.sets._likeliest_in_kl import within_kl
from counterpoise.sets._one_row import LARGEST_SCORE, SMALLEST_SHARE, log1p_minus, tilt_of_one
from counterpoise.sets.sensitivity import Sensitivity

_NATS = math.log(2.0)
"""Nats in a bit."""

_ALL_BUT = 60.0
"""Bits from which what a ball leaves out of the simplex is below rounding."""

_TIE = 1e-250
"""Relative gaps below this count as ties, so that the offset of the root never underflows next to one."""


@dataclass(frozen=True, eq=False)
class KLBall(Ball):
    r"""Distributions whose divergence from the empirical one is at most ``radius``.

    .. math:: \{ p : D(\hat p \,\|\, p) = \sum_c \hat p_c \log_2 (\hat p_c / p_c) \le \text{radius} \}

    Parameters
    ----------
    p_hat : array-like of shape (n_contexts,)
        The empirical distribution. A context with probability 0 (declared, never seen) may take up to
        ``1 - 2**-radius`` of the mass.
    radius : float
        In bits. 0 is the empirical distribution alone, ``inf`` the whole simplex.
    """

    unit: ClassVar[str] = "a number of bits"
    measure: ClassVar[str] = " bits"

    def sensitivity(self, worst: WorstCase, scores: Array) -> Sensitivity | None:
        """Return the derivative of the least favourable distribution in the scores; None where scores agree."""
        p, nu, multiplier = worst.distribution, worst.nu, worst.multiplier
        if self.is_point:
            return Sensitivity.none(p.size)
        distance = nu - scores
        if not (multiplier > 0.0 and math.isfinite(multiplier) and (distance > 0.0).all()) or (self.p_hat == 0).any():
            return None
        # From p = multiplier p_hat / (nu - s), with sum p = 1 and the divergence held.
        rate = p / distance
        total = float(rate.sum())
        # By Jensen's inequality at least 0, and 0 only where scores agree.
        excess = multiplier * total - 1.0
        if not excess > 1e-12:
            return None
        shift = (multiplier * rate - p) / excess
        return Sensitivity(rate, np.stack([-p, total * p - rate], axis=1), np.stack([rate, shift], axis=1))

    def divergence(self, p: ArrayLike) -> float:
        """Return ``D(p_hat || p)`` in bits."""
        p = np.asarray(p, dtype=np.float64)
        p = p if self._seen is None else p[self._seen]
        with np.errstate(divide="ignore"):
            return float(self._seen_shares @ (self._log_shares - np.log2(p)))

    def constraints(self, x: Array) -> Constraints:
        """Return ``D(p_hat || p) - radius`` in nats, whose gradient ``-p_hat / p`` is nothing but a pole.

        From some radius on it leaves out of the simplex nothing but mixes with a probability below rounding, and
        solvers go by the simplex, whose conditions are better scaled.
        """
        if self.is_point or self.radius >= _ALL_BUT:
            return Constraints.none(x)
        seen = x if self._seen is None else x[..., self._seen]
        with np.errstate(divide="ignore", invalid="ignore"):
            away = (self._log_shares - np.log2(seen)) @ self._seen_shares
        zero = np.zeros((*x.shape[:-1], 1, x.shape[-1]))
        return Constraints(x, _NATS * (away - self.radius)[..., None], zero, zero, zero + self.p_hat)

    def conditional(self, free: NDArray[np.bool_], p: Array, mass: float) -> KLBall | None:
        """Return the ball of the free contexts' conditional distributions, where all others have the shares ``p``."""
        share = float(self.p_hat[free].sum())
        held = ~free & (self.p_hat > 0.0)
        with np.errstate(divide="ignore"):
            spent = float(self.p_hat[held] @ np.log2(self.p_hat[held] / p[held]))
        if not (share > 0.0 and math.isfinite(spent)):
            return None
        radius = (self.radius - spent) / share - math.log2(share / mass)
        return KLBall(self.p_hat[free] / share, radius) if radius > 0.0 else None

    def response(self, shares: Array, scores: Array, nu: Array, multiplier: Array) -> Array:
        """Return ``multiplier shares / (nu - scores)``, infinite where a score is not below ``nu``."""
        below = nu - scores
        return np.divide(multiplier * shares, below, out=np.full(below.shape, math.inf), where=below > 0.0)

    def interior(self, scores: Array) -> WorstCase:
        """Return the least favourable member of a smaller ball, which meets every condition of optimality but one.

        A very large ball would start at its rim, with probabilities near zero.
        """
        return KLBall(positive(self.p_hat), min(0.25 * self.radius, 0.5 / _NATS)).worst_case(scores)

    def supported(self, p: Array) -> Array:
        """Return ``p`` with at least the smallest positive number on every seen context."""
        return np.maximum(p, SMALLEST if self._seen is None else np.where(self._seen, SMALLEST, 0.0))

    @cached_property
    def _seen(self) -> np.ndarray | None:
        """Which contexts were seen; None where all were."""
        seen = self.p_hat > 0
        return None if seen.all() else seen

    @cached_property
    def _seen_shares(self) -> Array:
        return self.p_hat if self._seen is None else self.p_hat[self._seen]

    @cached_property
    def _log_shares(self) -> Array:
        return np.log2(self._seen_shares)

    @cached_property
    def _is_tame(self) -> bool:
        """Whether the lean way for one score vector may be tried."""
        return 1e-20 < self.radius < math.inf and self._seen_shares.min() > SMALLEST_SHARE

    def likeliest_rows(self, shares: Array) -> tuple[Array, Array, Array]:
        """Return mixtures of the shares of counts and ``p_hat``: the nearest to the shares that are members."""
        p, found, upper = within_kl(self.p_hat, _NATS * self.radius, shares)
        return self.supported(p), found, upper

    def worst_row(self, scores: Array) -> tuple[Array, float, float, float] | None:
        """Return distribution, value, nu and multiplier for one score vector; None where that needs more care."""
        if self.is_simplex and self._seen is None:
            return _vertex(self.p_hat, scores)
        if not self._is_tame:
            return None
        seen, eps = self._seen, _NATS * self.radius
        if seen is None:
            return tilt_of_one(self.p_hat, eps, scores)
        if not np.abs(scores).max() < LARGEST_SCORE:
            return None
        found = tilt_of_one(self._seen_shares, eps, scores[seen])
        if found is None:
            return None
        duals = np.array(found[2:])[:, None]
        p, nu, multiplier = _share_with_unseen(self.p_hat, seen, eps, scores[None], found[0][None], *duals)
        return p[0], float(p[0] @ scores), float(nu[0]), float(multiplier[0])

    def worst_rows(self, scores: Array) -> tuple[Array, Array, Array]:
        """Return distributions, nu and multipliers for a batch of finite score vectors."""
        p_hat, eps = self.p_hat, _NATS * self.radius
        # Powers of two scale exactly: the largest score becomes about 1, and no difference can overflow.
        exponent = np.frexp(np.abs(scores).max(axis=1, keepdims=True))[1]
        scaled = np.ldexp(scores, -exponent)
        seen = self._seen
        inner = scaled if seen is None else scaled[:, seen]

        top = inner.max(axis=1)
        gaps = top[:, None] - inner
        spread = gaps.max(axis=1)
        p, above, multiplier = _tilt(self._seen_shares, eps, gaps, spread)
        nu = top + above
        if seen is not None:
            p, nu, multiplier = _share_with_unseen(p_hat, seen, eps, scaled, p, nu, multiplier)
        # Around the largest floats and a tiny radius the dual variables are too large for one: infinity, then.
        with np.errstate(over="ignore"):
            return p, np.ldexp(nu, exponent[:, 0]), np.ldexp(multiplier, exponent[:, 0])


def _vertex(p_hat: Array, scores: Array) -> tuple[Array, float, float, float] | None:
    """Return the same where every distribution is a member: all mass on the largest score, shared by those that tie."""
    top, bottom = float(scores.max()), float(scores.min())
    if not top - bottom < math.inf:
        return None
    p = np.where(top - scores <= _TIE * (top - bottom), p_hat, 0.0)
    p /= p.sum()
    return p, float(p @ scores), top, 0.0


def _tilt(p_hat: Array, eps: float, gaps: Array, spread: Array) -> tuple[Array, Array, Array]:
    """Return ``p = multiplier p_hat / (above + gaps)`` of divergence ``eps``, with ``above`` and ``multiplier``.

    ``gaps`` are the distances to the largest score, ``spread`` the largest gap of each row; ``nu`` is the largest score
    plus ``above``.
    """
    p = np.tile(p_hat, (len(gaps), 1))
    above = np.zeros(len(gaps))
    multiplier = np.zeros(len(gaps))
    # Equal scores: no root exists, every member is least favourable, and the set does not bind.
    rows = np.flatnonzero(spread > 0)
    if rows.size == 0:
        return p, above, multiplier
    gaps, spread = gaps[rows] / spread[rows, None], spread[rows]
    gaps[gaps < _TIE] = 0.0
    if math.isinf(eps):
        ties = np.where(gaps == 0, p_hat, 0.0)
        p[rows] = ties / ties.sum(axis=1, keepdims=True)
        return p, above, multiplier

    # At the smallest and the largest radii guesses are infinite, and offsets vanish; the search then halves instead.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        log_above, vanishing = _asymptote(p_hat, eps, gaps)
        solved = np.flatnonzero(~vanishing)
        if solved.size:
            log_above[solved] = _root(p_hat, eps, gaps[solved], log_above[solved])
    with np.errstate(all="ignore"):
        offset = np.exp(log_above)[:, None]
        # offset / (offset + gap), in logarithms where the offset itself is too small a number.
        near = offset / np.where(gaps == 0, 1.0, offset + gaps)
        tilted = p_hat * np.where(gaps == 0, 1.0, near)
        total = tilted.sum(axis=1)
        unit = total
        if vanishing.any():
            # There shares are relative to the ties, which may be as small as the offset themselves.
            tied = np.where(gaps == 0, p_hat, 0.0).sum(axis=1, keepdims=True)
            far = np.exp(log_above[:, None] - np.log(gaps) + np.log(p_hat / tied))
            tilted = np.where(vanishing[:, None], np.where(gaps == 0, p_hat / tied, far), tilted)
            total = tilted.sum(axis=1)
            unit = np.where(vanishing, tied[:, 0], total)
        # A seen context never reaches 0: its divergence would be infinite, and the distribution outside the set.
        p[rows] = np.maximum(tilted / total[:, None], SMALLEST)
        above[rows] = spread * offset[:, 0]
        multiplier[rows] = above[rows] / unit
    return p, above, multiplier


def _asymptote(p_hat: Array, eps: float, gaps: Array) -> tuple[Array, np.ndarray]:
    """Return a lower bound of the root in log(offset), and where it is the root to rounding.

    As the offset vanishes the divergence approaches a line in log(offset), and it is never below that line.
    """
    tied = np.where(gaps == 0, p_hat, 0.0).sum(axis=1)
    rest = np.where(gaps == 0, 0.0, p_hat).sum(axis=1)
    positive = np.where(gaps == 0, 1.0, gaps)
    log_offset = (np.log(positive) @ p_hat + np.log(tied) - eps) / rest
    # Beside the mass of the ties the rest of the sum, at most offset / smallest gap, must drown.
    return log_offset, log_offset < np.log(positive.min(axis=1)) + np.log(tied) - 38.0


def _root(p_hat: Array, eps: float, gaps: Array, lower: Array) -> Array:
    """Solve ``divergence(offset) = eps`` for log(offset), row by row, by safeguarded Newton steps.

    The divergence falls from infinity to 0 as the offset grows: almost linearly in log(offset) where it is large, and
    its logarithm so where it is small. Newton works on whichever is the straighter, between ``lower`` and the root of
    ``1 / (4 offset^2)``, which no divergence exceeds when gaps lie in [0, 1].
    """
    mean = gaps @ p_hat
    if eps > 1.0:
        log_offset = lower.copy()
    else:
        centred = gaps - mean[:, None]
        variance = np.einsum("bc,bc,c->b", centred, centred, p_hat)
        # Near the centre the divergence is variance / (2 (offset + mean)^2).
        guess = np.sqrt(variance / (2.0 * eps)) - mean
        log_offset = np.maximum(np.log(np.maximum(guess, 1e-3 * mean)), lower)
    low, high = lower, np.full(len(gaps), -0.5 * math.log(4.0 * eps) + 1e-6)
    log_offset = np.clip(log_offset, low, high)
    x, active = log_offset.copy(), np.arange(len(gaps))
    for _ in range(200):
        divergence, slope = _divergence(p_hat, gaps, mean, np.exp(x))
        too_large = divergence > eps
        low, high = np.where(too_large, x, low), np.where(too_large, high, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = (eps - divergence) / slope if eps > 1.0 else divergence * np.log(eps / divergence) / slope
        new = x + step
        inside = np.isfinite(new) & (new >= low) & (new <= high)
        new = np.where(inside, new, 0.5 * (low + high))
        log_offset[active] = new
        # Quadratic convergence: after a step this small the next would be below rounding.
        unfinished = np.abs(new - x) > 1e-9
        if not unfinished.any():
            break
        x = new
        if not unfinished.all():
            x, low, high, gaps, mean = (one[unfinished] for one in (x, low, high, gaps, mean))
            active = active[unfinished]
    return log_offset


def _divergence(p_hat: Array, gaps: Array, mean: Array, offset: Array) -> tuple[Array, Array]:
    """Return the divergence of the tilted distribution in nats and its derivative in log(offset).

    With ``u = (gap - mean) / (offset + mean)``, whose mean is 0, the first-order terms cancel on paper instead of in
    floating point: ``D = E[log1p(u) - u] + log1p(E[u^2 / (1 + u)])``.
    """
    centre = (offset + mean)[:, None]
    u = (gaps - mean[:, None]) / centre
    one_plus_u = (offset[:, None] + gaps) / centre
    inflation = (u * u / one_plus_u) @ p_hat
    divergence = log1p_minus(u, one_plus_u) @ p_hat + np.log1p(inflation)
    ratio_minus_one = (-u / one_plus_u - inflation[:, None]) / (1.0 + inflation[:, None])
    share = offset / (offset + mean) * (1.0 + inflation)
    slope = -share * ((ratio_minus_one * ratio_minus_one) @ p_hat)
    return divergence, slope


def _share_with_unseen(
    p_hat: Array, seen: np.ndarray, eps: float, scores: Array, p_seen: Array, nu: Array, multiplier: Array
) -> tuple[Array, Array, Array]:
    """Extend the solution over seen contexts to those with ``p_hat = 0``.

    An unseen context enters only when its score exceeds ``nu``; then ``nu`` is that score.
    """
    p = np.zeros_like(scores)
    p[:, seen] = p_seen
    unseen_top = scores[:, ~seen].max(axis=1)
    rows = np.flatnonzero(unseen_top > nu)
    if rows.size == 0:
        return p, nu, multiplier
    nu, multiplier = nu.copy(), multiplier.copy()
    top = unseen_top[rows, None]
    below = top - scores[rows][:, seen]
    nu[rows] = unseen_top[rows]
    if math.isinf(eps):
        lost = np.ones(len(rows))
        kept = np.zeros_like(below)
        multiplier[rows] = 0.0
    else:
        multiplier[rows] = np.exp(np.log(below) @ p_hat[seen] - eps)
        # The seen contexts, tilted by nu, have a divergence below eps; what they give up is 1 - exp(D - eps).
        nearest = below.min(axis=1)
        gaps = below - nearest[:, None]
        divergence = _divergence(p_hat[seen], gaps, gaps @ p_hat[seen], nearest)[0]
        spent = np.minimum(divergence - eps, 0.0)
        lost = -np.expm1(spent)
        tilted = p_hat[seen] / (below / nearest[:, None])
        kept = np.exp(spent)[:, None] * tilted / tilted.sum(axis=1, keepdims=True)
        kept = np.maximum(kept, SMALLEST)
    tied = (scores[rows] == top) & ~seen
    p[rows] = np.where(tied, lost[:, None] / tied.sum(axis=1, keepdims=True), 0.0)
    p[np.ix_(rows, seen)] = kept
    return p, nu, multiplier
