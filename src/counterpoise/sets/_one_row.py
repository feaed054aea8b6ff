"""The least favourable member for one score vector: lean where numbers are tame, in pieces where contexts are many."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from counterpoise.sets._base import Array

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

Block = tuple[Array, Array, Array]


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
        blocks = _Blocks(p_hat, scores, top, spread, mean)
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
    """Pieces of ``p_hat``, of the relative gaps to the largest score, and of these less their mean."""

    p_hat: Array
    scores: Array
    top: float
    spread: float
    mean: float

    def __iter__(self) -> Iterator[Block]:
        for k in range(0, self.p_hat.size, BLOCK):
            gaps = self.top - self.scores[k : k + BLOCK]
            gaps *= 1.0 / self.spread
            yield self.p_hat[k : k + BLOCK], gaps, gaps - self.mean


def _whole(p_hat: Array, gaps: Array) -> tuple[list[Block], float]:
    mean = float(gaps.dot(p_hat))
    return [(p_hat, gaps, gaps - mean)], mean


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
    p_hat, _, from_mean = block
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

    Halley steps on the logarithm of the divergence in log(offset). The formulas are those of a tilted distribution:
    with ``u = (gap - mean) / (offset + mean)`` and ``v = u / (1 + u)`` the first-order terms cancel on paper.
    """
    # No divergence exceeds 1 / (4 offset^2), which is 1/4 at offset 1.
    low, high = math.log(_LEAST_OFFSET), 1e-6 - 0.5 * math.log(4.0 * eps)
    if eps > 0.25:
        high = min(high, (0.25 - eps) / steepest)
    x = min(math.log(max(offset, _LEAST_OFFSET)), high)
    residual, exact = 0.0, eps < _SMALL
    for k in range(20):
        if high < low:
            return None
        offset = math.exp(x)
        scale = 1.0 / (offset + mean)
        share = offset * scale
        exact = exact or share < 1e-12
        logs = product = second = third = 0.0
        for p_hat, gaps, from_mean in blocks:
            above = gaps + offset
            v = from_mean / above
            weighted = p_hat * v
            product += float(weighted.dot(from_mean))
            second += float(weighted.dot(v))
            v *= v
            third += float(weighted.dot(v))
            if k == 0:
                residual += float(from_mean.dot(p_hat))
            if eps > _LARGE:
                logs += float(np.log(above, out=above).dot(p_hat))
            elif exact:
                logs += float(log1p_minus(from_mean * scale, above * scale).dot(p_hat))
            else:
                logs += float(np.log1p(from_mean * scale).dot(p_hat))
        # The mean of v, and its central moments.
        centre = scale * (residual - product)
        mass = 1.0 - centre
        if not (exact or eps > _LARGE or mass - 1.0 < 100.0 * eps):
            # Much of the mass has u near -1, where it is 1 + u that has all its digits.
            exact = True
            continue
        variance = second - centre * centre
        skew = 3.0 * centre * second - third - 2.0 * centre**3
        if eps > _LARGE:
            logs += math.log(scale)
        elif exact:
            logs += scale * residual
        divergence = logs + math.log1p(-centre)
        slope = -share * variance / mass
        if not (divergence > 0.0 and slope < 0.0):
            return None
        bound = x + (divergence - eps) / steepest
        low, high = (bound, high) if divergence > eps else (low, bound)
        bend = slope + share * share * (3.0 * variance + 2.0 * skew / mass - (variance / mass) ** 2)
        newton = divergence / slope * math.log(eps / divergence)
        halley = 0.5 * newton * (slope / divergence - bend / slope)
        step = newton / (1.0 - min(max(halley, -1.0), 0.5))
        if abs(step) <= _LAST_STEP:
            # The sum moves along by its derivatives, which the moments give.
            move = share * math.expm1(step)
            cube = skew + 3.0 * mass * variance + mass**3
            total = mass - move * (variance + mass * mass) + move * move * cube
            return offset + offset * math.expm1(step), total * scale
        x += step
        if not low <= x <= high:
            x = 0.5 * (low + high)
    return None


def log1p_minus(u: Array, one_plus_u: Array) -> Array:
    """Return ``log1p(u) - u`` without cancellation near 0."""
    # log1p(u) = 2 atanh(r), r = u / (2 + u), and 2 r - u = -u r exactly.
    r = u / (2.0 + u)
    r2 = r * r
    series = r * (2.0 * r2 * (1 / 3 + r2 * (1 / 5 + r2 * (1 / 7 + r2 * (1 / 9 + r2 / 11)))) - u)
    return np.where(np.abs(u) < 0.1, series, np.log(one_plus_u) - u)
