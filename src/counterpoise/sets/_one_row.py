"""The least favourable member for one score vector: lean where numbers are tame, in pieces where contexts are many."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from counterpoise.sets._geometry import Array

BLOCK = 1 << 14
"""Contexts taken at once: their temporaries stay in the cache, and memory is never asked for more."""

SMALLEST_SHARE = 1e-200
"""No smaller probability is tame: its products with the tilt could underflow."""

_SAMPLE = 1 << 15
"""More contexts than these are solved on a sample first."""

_SMALLEST_SPREAD, LARGEST_SCORE = 1e-150, 1e150
"""Scores within these need no scaling."""

_LEAST_OFFSET = 1e-17
"""Relative to the largest gap; below it logarithms are safer, which the way for a batch takes."""

_SMALL, _LARGE = 1e-5, 0.03
"""Nats below which first-order terms must cancel context by context, and above which they may be left in."""

_LAST_STEP = 3e-6
"""Steps are of third order: after one this small the next would be below rounding."""

Block = tuple[Array, Array]


def tilt_of_one(p_hat: Array, eps: float, scores: Array) -> tuple[Array, float, float, float] | None:
    """Return ``p = multiplier p_hat / (nu - scores)`` of divergence ``eps``, its value, ``nu`` and ``multiplier``.

    Every ``p_hat`` must be positive. None where numbers are extreme or the search does not settle at once.
    """
    highest = scores.argmax()
    top, bottom = scores.item(highest), scores.item(scores.argmin())
    spread = top - bottom
    if not (spread > _SMALLEST_SPREAD and max(abs(top), abs(bottom)) < LARGEST_SCORE):
        return None
    # What the divergence gains per unit of log(offset) is at most the mass off the largest score.
    steepest = 1.01 * max(1.0 - p_hat.item(highest), 1e-15)
    blocks: _Blocks | list[Block]
    if p_hat.size <= _SAMPLE:
        blocks, mean = _whole(p_hat, (top - scores) * (1.0 / spread))
        offset = _first_offset(blocks[0], eps, mean)
    else:
        mean = (top - float(scores.dot(p_hat))) / spread
        blocks = _Blocks(p_hat, scores, top, spread)
        few, few_mean = _whole(*_sample(p_hat, scores, top, spread))
        guess = _root(few, eps, few_mean, _first_offset(few[0], eps, few_mean), steepest)
        offset = guess[0] if guess else mean
    root = _root(blocks, eps, mean, offset, steepest)
    if root is None:
        return None
    offset, total = root
    p = np.empty_like(p_hat)
    value = 0.0
    for k in range(0, p.size, BLOCK):
        part, own = p[k : k + BLOCK], scores[k : k + BLOCK]
        np.subtract(top, own, out=part)
        part *= total / spread
        part += total * offset
        np.divide(p_hat[k : k + BLOCK], part, out=part)
        value += float(part.dot(own))
    return p, value, top + spread * offset, spread / total


@dataclass(frozen=True)
class _Blocks:
    """Pieces of ``p_hat``, and of the relative gaps to the largest score."""

    p_hat: Array
    scores: Array
    top: float
    spread: float

    def __iter__(self) -> Iterator[Block]:
        for k in range(0, self.p_hat.size, BLOCK):
            gaps = self.top - self.scores[k : k + BLOCK]
            gaps *= 1.0 / self.spread
            yield self.p_hat[k : k + BLOCK], gaps


def _whole(p_hat: Array, gaps: Array) -> tuple[list[Block], float]:
    mean = float(gaps.dot(p_hat))
    return [(p_hat, gaps)], mean


def _sample(p_hat: Array, scores: Array, top: float, spread: float) -> tuple[Array, Array]:
    """Return a distribution on a few thousand gaps whose divergence is nearly that of all."""
    thin = slice(None, None, p_hat.size * 2 // _SAMPLE)
    share, thinned = p_hat[thin], scores[thin]
    # The largest scores alone decide where the radius is large: those are all taken, and only the rest is thinned.
    n_taken = max(1, thinned.size >> 8)
    level = np.partition(thinned, -n_taken)[-n_taken]
    upper = np.flatnonzero(scores > level)
    lower = thinned <= level
    rest = share[lower]
    rest *= max(1.0 - float(np.add.reduce(p_hat[upper])), 0.0) / float(np.add.reduce(rest))
    gaps = np.concatenate((top - scores[upper], top - thinned[lower]))
    return np.concatenate((p_hat[upper], rest)), gaps / spread


def _first_offset(block: Block, eps: float, mean: float) -> float:
    """Return where the divergence is ``eps`` to third order in the gaps, ``M2 / 2 c^2 - 2 M3 / 3 c^3``."""
    p_hat, from_mean = block[0], block[1] - mean
    weighted = p_hat * from_mean
    variance, third = float(weighted.dot(from_mean)), float(weighted.dot(from_mean * from_mean))
    if variance == 0.0:
        return mean
    guess = math.sqrt(variance / (2.0 * eps)) - third / (1.5 * variance) - mean
    # Where that fails the radius is large, and the divergence nearly a line in log(offset).
    floor = 0.4 * math.exp(-0.65 * eps) * mean
    length = math.hypot(guess, floor)
    return 0.5 * (guess + length) if guess >= 0.0 else 0.5 * floor * floor / (length - guess)


def _root(
    blocks: Iterable[Block], eps: float, mean: float, offset: float, steepest: float
) -> tuple[float, float] | None:
    """Return the offset at which the divergence is ``eps``, and the sum of ``p_hat / (offset + gaps)`` there.

    Halley steps on the logarithm of the divergence in log(offset).
    """
    # No divergence exceeds 1 / (4 offset^2), which is 1/4 at offset 1.
    low, high = math.log(_LEAST_OFFSET), 1e-6 - 0.5 * math.log(4.0 * eps)
    if eps > 0.25:
        high = min(high, (0.25 - eps) / steepest)
    x = min(math.log(max(offset, _LEAST_OFFSET)), high)
    tilted = _Direct(blocks) if eps > _LARGE else _Centred(blocks, mean, eps)
    for _ in range(20):
        if high < low:
            return None
        offset = math.exp(x)
        divergence, slope, bend, moments = tilted.at(offset)
        if not (divergence > 0.0 and slope < 0.0):
            return None
        bound = x + (divergence - eps) / steepest
        low, high = (bound, high) if divergence > eps else (low, bound)
        newton = divergence / slope * math.log(eps / divergence)
        halley = 0.5 * newton * (slope / divergence - bend / slope)
        step = newton / (1.0 - min(max(halley, -1.0), 0.5))
        if abs(step) <= _LAST_STEP:
            # The sum moves along by its derivatives, which the moments are.
            move = offset * math.expm1(step)
            first, second, third = moments
            return offset + move, first - move * second + move * move * third
        x += step
        if not low <= x <= high:
            x = 0.5 * (low + high)
    return None


Tilted = tuple[float, float, float, tuple[float, float, float]]
"""A divergence, its two derivatives in log(offset), and the means of the first three powers of 1 / (offset + gap)."""


@dataclass
class _Direct:
    """Divergences that are not small: ``log`` of the mean of ``1 / above``, plus the mean of ``log above``."""

    blocks: Iterable[Block]

    def at(self, offset: float) -> Tilted:
        logs = first = second = third = 0.0
        for p_hat, gaps in self.blocks:
            above = gaps + offset
            inverse = 1.0 / above
            first += float(p_hat.dot(inverse))
            weighted = p_hat * inverse
            second += float(weighted.dot(inverse))
            weighted *= inverse
            third += float(weighted.dot(inverse))
            logs += float(np.log(above, out=above).dot(p_hat))
        slope = offset * (first - second / first)
        bend = slope + offset * offset * ((2.0 * third - second * second / first) / first - second)
        return logs + math.log(first), slope, bend, (first, second, third)


@dataclass
class _Centred:
    """Small divergences: with ``u = (gap - mean) / (offset + mean)`` the first-order terms cancel on paper."""

    blocks: Iterable[Block]
    mean: float
    eps: float
    residual: float | None = None

    def __post_init__(self) -> None:
        self.exact = self.eps < _SMALL

    def at(self, offset: float) -> Tilted:
        scale = 1.0 / (offset + self.mean)
        share = offset * scale
        self.exact = self.exact or share < 1e-12
        logs = product = second = third = residual = 0.0
        for p_hat, gaps in self.blocks:
            from_mean, above = gaps - self.mean, gaps + offset
            v = from_mean / above
            weighted = p_hat * v
            product += float(weighted.dot(from_mean))
            second += float(weighted.dot(v))
            v *= v
            third += float(weighted.dot(v))
            if self.residual is None:
                residual += float(from_mean.dot(p_hat))
            if self.exact:
                logs += float(log1p_minus(from_mean * scale, above * scale).dot(p_hat))
            else:
                logs += float(np.log1p(from_mean * scale).dot(p_hat))
        if self.residual is None:
            # What rounding leaves of the mean of gap - mean.
            self.residual = residual
        # The mean of v, and its central moments.
        centre = scale * (self.residual - product)
        mass = 1.0 - centre
        if not (self.exact or mass - 1.0 < 100.0 * self.eps):
            # Much of the mass has u near -1, where it is 1 + u that has all its digits.
            self.exact = True
            return self.at(offset)
        variance = second - centre * centre
        skew = 3.0 * centre * second - third - 2.0 * centre**3
        if self.exact:
            logs += scale * self.residual
        slope = -share * variance / mass
        bend = slope + share * share * (3.0 * variance + 2.0 * skew / mass - (variance / mass) ** 2)
        cube = skew + 3.0 * mass * variance + mass**3
        moments = (mass * scale, (variance + mass * mass) * scale**2, cube * scale**3)
        return logs + math.log1p(-centre), slope, bend, moments


def log1p_minus(u: Array, one_plus_u: Array) -> Array:
    """Return ``log1p(u) - u`` without cancellation near 0."""
    # log1p(u) = 2 atanh(r), r = u / (2 + u), and 2 r - u = -u r exactly.
    r = u / (2.0 + u)
    r2 = r * r
    series = r * (2.0 * r2 * (1 / 3 + r2 * (1 / 5 + r2 * (1 / 7 + r2 * (1 / 9 + r2 / 11)))) - u)
    near = np.abs(u) < 0.1
    return series if near.all() else np.where(near, series, np.log(one_plus_u) - u)
