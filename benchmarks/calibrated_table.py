"""Make the table behind the calibrated radius: the worst quantile of the divergence over all mixes.

Usage: python benchmarks/calibrated_table.py [--jobs N] [--samples FILE] [--out FILE]

With n draws of C contexts the statistic ``n D(p_hat || p)`` (nats) has its largest quantiles at mixes in which all
contexts but one expect the same few draws. This computes its distribution along that family, numerically exactly, for
every number of contexts and draws in the table, and keeps the largest quantile. Two ways lead there:

- Few contexts. By the chain rule the divergence is that of "rare or not" plus that among the rare ones, whose mix is
  uniform: a binomial mixture of distributions that do not depend on how rare they are.
- Many contexts. Counts are independent Poisson variables given their sum; the characteristic function of the statistic
  is an integral over one angle, and its inversion another.

Between the numbers computed, values are raised until interpolation lies above every number computed.
"""

from __future__ import annotations

import argparse
import math
import time
from itertools import combinations, product
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy import special, stats

from counterpoise.sets.calibration import SMALLEST_QUANTILE

Array = NDArray[np.float64]

FEW = 60
"""Contexts up to which the chain rule is used for any number of draws."""

FEW_DRAWS = 40
"""Draws up to which it is used for any number of contexts."""

DEEPEST = 1e-6
"""The smallest probability of not covering that is tabulated."""

LOW = [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.875, 0.9, 0.925, 0.95]

HIGH = [0.965, 0.975, 0.985, 0.99, 0.994, 0.9975, 0.999, 0.9996, 0.9999, 0.99997, 0.99999, 1.0 - DEEPEST]

CONFIDENCES = np.array(LOW + HIGH)

MISSES = np.sort(np.r_[1.0 - CONFIDENCES, 1.0 - 0.5 * (CONFIDENCES[1:] + CONFIDENCES[:-1])])[::-1]
"""The probabilities of not covering at which quantiles are computed."""


def bound(k: int, surprise: float) -> float:
    """Return Agrawal's bound on the quantile for ``k + 1`` contexts and ``-log(1 - confidence)``."""
    level = surprise / k
    z = level + math.sqrt(2.0 * level)
    for _ in range(60):
        z -= (z - math.log1p(z) - level) * (1.0 + z) / z
    return k * (1.0 + z)


def power(base: NDArray[np.complex128], k: int) -> NDArray[np.complex128]:
    """Return ``base**k`` by repeated squaring."""
    result = None
    while True:
        if k & 1:
            result = base if result is None else result * base
        k >>= 1
        if not k:
            return result
        base = base * base


def poisson_weights(mean: float, hop: int = 1) -> tuple[Array, Array]:
    """Return counts, or every so many, and their probabilities, without tails that do not matter."""
    reach = 11.0 * math.sqrt(mean) + 25.0
    x = np.arange(max(0, math.floor(mean - reach)), math.ceil(mean + reach), hop).astype(float)
    weights = stats.poisson.pmf(x, mean)
    return x[weights > 1e-18], weights[weights > 1e-18]


# --- few contexts ---------------------------------------------------------------------------------------------


class UniformTails:
    """P{U > u} for ``U = s D(uniform sample of s || uniform)`` among ``k`` contexts, on a grid of u, for every s."""

    def __init__(self, k: int, most: int) -> None:
        self.k = k
        self.smoothing = 0.0025 if k <= 6 else 0.005 * math.sqrt(k)
        wide = bound(max(k, 2), 28.0)
        if most < 4 * k:
            # s draws have no divergence above s log k.
            wide = min(wide, most * math.log(max(k, 2)) + 1.0)
        self.n_grid = 1 << math.ceil(math.log2(2.0 * wide / self.smoothing))
        self.step = (wide + 20.0 * self.smoothing) / self.n_grid
        self.offset = 8.0 * self.smoothing
        self.table = np.zeros((0 if k == 1 else most + 1, self.n_grid), dtype=np.float64)
        self.known = np.zeros(most + 1, dtype=bool)

    @property
    def error(self) -> float:
        """What smoothing may have hidden."""
        return 0.0 if self.k == 1 else self.smoothing * (3.0 if self.k <= 6 else 1.0)

    def solved(self, s: int) -> Array:
        """Invert the characteristic function for ``s`` draws."""
        angle = 2.0 * np.pi / (self.n_grid * self.step) * np.arange(self.n_grid // 2 + 1)
        if s <= 1:
            transform = np.exp(1j * angle * s * math.log(self.k))
        else:
            mean = s / self.k
            x, weights = poisson_weights(mean)
            length = math.ceil(12.0 * math.sqrt(s) + 30.0)
            theta = 2.0 * np.pi * np.arange(length) / length
            turn = np.exp(1j * np.outer(theta, x)) * weights
            value = special.xlogy(x, x / mean)
            transform = np.empty(len(angle), dtype=complex)
            for part in np.array_split(np.arange(len(angle)), max(1, len(angle) * length >> 20)):
                both = power(turn @ np.exp(1j * np.outer(value, angle[part])), self.k)
                transform[part] = np.exp(-1j * theta * s) @ both
            transform /= transform[0].real
        transform *= np.exp(1j * angle * self.offset - 0.5 * (angle * self.smoothing) ** 2)
        return np.clip(1.0 - np.cumsum(np.fft.irfft(transform.conj(), self.n_grid)), 0.0, 1.0)

    def tail(self, s: NDArray[np.intp], u: Array) -> Array:
        """Return P{U > u} for numbers of draws ``s`` and thresholds ``u`` of shape (len(s), anything)."""
        if self.k == 1:
            return (u < -1e-12).astype(float)
        for one in s[~self.known[s]]:
            self.table[one], self.known[one] = self.solved(int(one)), True
        at = (u + self.offset) / self.step
        low = np.clip(at.astype(np.intp), 0, self.n_grid - 2)
        part = np.clip(at - low, 0.0, 1.0)
        rows = s[:, None]
        found = (1.0 - part) * self.table[rows, low] + part * self.table[rows, low + 1]
        return np.where(at < 0.0, 1.0, found)


def largest_mean(k: int) -> float:
    """Return the largest expected number of draws of a rare context that is tried."""
    return 4.0 + 14.0 / math.sqrt(k)


def quantiles_of_few(n_contexts: int, numbers: list[float]) -> dict[float, Array]:
    """Return the worst quantiles, for each number of draws and each of ``MISSES``."""
    k = n_contexts - 1
    top = largest_mean(k)
    most = math.ceil(k * top + 10.0 * math.sqrt(k * top) + 20.0)
    most = min(most, int(max(n if n < math.inf else most for n in numbers)))
    tails = UniformTails(k, most)
    found = {}
    for n in numbers:
        best = np.zeros(len(MISSES))
        highest = min(top, n / k * (1.0 - 1e-9))
        # Down to where all draws are rare with the smallest probability that is tabulated: with one draw that is worst.
        lowest = min(0.002, highest / 50.0, 0.3 * n * DEEPEST ** (1.0 / n) / k)
        means = np.geomspace(lowest, highest, 384 if k <= 6 else 144)
        at = np.zeros(len(MISSES))
        # Far apart first: then few of the others are larger.
        for mean in means.reshape(16, -1).T.ravel():
            at[raise_to(best, tails, n, mean)] = mean
        near = np.unique(np.outer(np.unique(at), (means[1] / means[0]) ** np.linspace(-0.8, 0.8, 5)))
        for mean in near[(near > 0.0) & (near < highest)]:
            raise_to(best, tails, n, mean)
        found[n] = best + tails.error
    return found


def raise_to(best: Array, tails: UniformTails, n: float, mean: float) -> NDArray[np.intp]:
    """Raise quantiles to those of this mix where they are larger, and return where."""
    k = tails.k
    rare = k * mean
    low, high = (int(edge) for edge in (rare - 8.0 * math.sqrt(rare) - 5, rare + 8.0 * math.sqrt(rare) + 12))
    s = np.arange(max(low, 0), min(high, n) + 1).astype(np.intp)
    if n == math.inf:
        weights = stats.poisson.pmf(s, rare)
        between = special.xlogy(s, s / rare) - s + rare
    else:
        weights = stats.binom.pmf(s, n, rare / n)
        between = special.xlogy(s, s / rare) + special.xlogy(n - s, (n - s) / (n - rare))
    s, weights, between = (values[weights > 1e-13] for values in (s, weights, between))

    def missed(t: Array) -> Array:
        return weights @ tails.tail(s, t[None, :] - between[:, None])

    over = np.flatnonzero(missed(best) > MISSES * (1.0 + 1e-9))
    if not over.size:
        return over
    lower, upper = best[over], np.array([bound(k, -math.log(miss)) for miss in MISSES[over]])
    for _ in range(34):
        middle = 0.5 * (lower + upper)
        high_enough = missed(middle) <= MISSES[over] * (1.0 + 1e-9)
        lower, upper = np.where(high_enough, lower, middle), np.where(high_enough, middle, upper)
    best[over] = upper
    return over


# --- many contexts --------------------------------------------------------------------------------------------


def quantiles_of_many(n_contexts: int, n: float) -> Array:
    """Return the worst quantiles for each of ``MISSES``, where the statistic has many terms."""
    k = n_contexts - 1
    highest = min(6.0, n / k * (1.0 - 1e-9))
    means = np.geomspace(highest / 20.0, highest, 48)
    if n < math.inf:
        # Near the uniform mix, where the last context becomes as rare as the others.
        means = np.unique(np.r_[means, (n / n_contexts) * np.array([0.97, 1.0])])
        means = means[means <= highest]
    # Where draws are few the statistic takes few values: it is smoothed by less than the allowance.
    smoothing = 0.003 * k * float(poisson_terms(min(highest, 1.0)) @ poisson_weights(min(highest, 1.0))[1])
    table = np.array([one_mix(k, mean, n, 0.0 if n >= 0.5 * k else smoothing) for mean in means])
    return table.max(axis=0)


def poisson_terms(mean: float) -> Array:
    """Return what each count of a context adds to the statistic."""
    x, _ = poisson_weights(mean)
    return special.xlogy(x, x / mean) - x + mean


def one_mix(k: int, mean: float, n: float, smoothing: float) -> Array:
    """Return the quantiles where ``k`` contexts expect ``mean`` draws and one the rest."""
    x, weights = poisson_weights(mean)
    value = poisson_terms(mean)
    centre = k * float(weights @ value) + 0.5
    deviation = math.sqrt(k * float(weights @ (value - weights @ value) ** 2) + 0.5)
    fine = max(9.0 / deviation, 6.0 / smoothing if smoothing else 0.0)
    low, high = centre - 14.0 * deviation, centre + 16.0 * deviation
    width = high - low
    angle = 2.0 * np.pi / width * np.arange(math.ceil(fine * width / (2.0 * np.pi)) + 1)
    turn = np.exp(1j * np.outer(value - centre / k, angle))
    if n == math.inf:
        transform = power(weights @ turn, k)
    else:
        rest = n - k * mean
        length = math.ceil(13.0 * math.sqrt(n) + 30.0)
        reach = min(length // 2, math.ceil(10.0 * math.sqrt(1.0 + fine**2) / math.sqrt(n) * length / (2.0 * np.pi)))
        index = np.arange(-reach, reach + 1) if 2 * reach + 1 < length else np.arange(length) - length // 2
        theta = 2.0 * np.pi * index / length
        hop = max(1, math.floor(math.sqrt(rest) / (8.0 * math.sqrt(1.0 + fine**2))))
        y, rest_weights = poisson_weights(rest, hop)
        rest_value = special.xlogy(y, y / rest) - y + rest
        many = power((np.exp(1j * np.outer(theta, x - mean)) * weights) @ turn, k)
        other = (np.exp(1j * np.outer(theta, y - rest)) * rest_weights) @ np.exp(1j * np.outer(rest_value, angle))
        transform = (many * other).sum(axis=0)
        transform /= transform[0].real
    transform *= np.exp(-0.5 * (angle * smoothing) ** 2)
    rate = angle[1:]
    start = np.exp(-1j * rate * (low - centre))

    def missed(t: Array) -> Array:
        turned = np.exp(-1j * np.outer(t - centre, rate)) - start
        return 1.0 - (t - low) / width - 2.0 / width * np.real(turned @ (transform[1:] / (-1j * rate)))

    lower, upper = np.full(len(MISSES), centre - 6.0 * deviation), np.full(len(MISSES), centre + 9.0 * deviation)
    for _ in range(30):
        middle = 0.5 * (lower + upper)
        enough = missed(middle) <= MISSES
        lower, upper = np.where(enough, lower, middle), np.where(enough, middle, upper)
    return upper


# --- very few draws -------------------------------------------------------------------------------------------


def n_types(n_contexts: int, n: float) -> float:
    """Return in how many ways ``n`` draws can fall on the contexts."""
    return math.inf if n == math.inf else math.comb(int(n) + n_contexts - 1, n_contexts - 1)


def all_counts(n_contexts: int, n: int) -> Array:
    """Return every way in which ``n`` draws can fall on the contexts."""
    bars = np.array(list(combinations(range(n + n_contexts - 1), n_contexts - 1)))
    ends = np.full((len(bars), 1), n + n_contexts - 1)
    return np.diff(np.hstack([np.full_like(ends, -1), bars, ends]), axis=1) - 1.0


def quantiles_hunted(n_contexts: int, n: int, trials: int = 2500) -> Array:
    """Return the worst quantiles found among mixes of any kind, by enumeration, random search and local search."""
    rng = np.random.default_rng([n_contexts, n])
    x = all_counts(n_contexts, n)
    entropy = special.xlogy(x, x / n).sum(axis=1)
    ways = special.gammaln(n + 1.0) - special.gammaln(x + 1.0).sum(axis=1)
    best, arg = np.zeros(len(MISSES)), [np.full(n_contexts, 1.0 / n_contexts)] * len(MISSES)
    for _ in range(trials):
        kind = rng.integers(4)
        if kind == 0:
            p = rng.dirichlet(np.full(n_contexts, 10.0 ** rng.uniform(-1.0, 1.5))) + 1e-12
        elif kind == 1:
            p = (10.0 ** rng.uniform(-2.0, 0.6, 3))[np.sort(rng.integers(3, size=n_contexts))]
        else:
            size = 10.0 ** rng.uniform(-4.0, 0.0)
            moved = rng.standard_normal(n_contexts) if rng.random() < 0.5 else rng.random(n_contexts) < rng.random()
            p = arg[rng.integers(len(MISSES))] * np.exp(size * moved * rng.choice([-1.0, 1.0]))
        p = p / p.sum()
        likelihood = x @ np.log(p)
        order = np.argsort(entropy - likelihood)
        reached = np.cumsum(np.exp(ways + likelihood)[order])
        at = np.minimum(np.searchsorted(reached, (1.0 - MISSES) * (1.0 - 1e-12)), len(x) - 1)
        values = (entropy - likelihood)[order[at]]
        for i in np.flatnonzero(values > best):
            best[i], arg[i] = values[i], p
    return best


# --- the table ------------------------------------------------------------------------------------------------

CONTEXTS = [2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 45, 70, 100, 150, 250, 400, 650, 1000, 3000, 10**4, 10**5]

BETWEEN = [9, 11, 13, 17, 25, 37, 55, 85, 120, 190, 320, 500, 800, 1700, 5500, 30_000]
"""Numbers of contexts that are computed to raise the others by, and are not kept."""

SMALL = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 33, 40, 50, 65, 85, 110, 150, 200, 270, 370, 500, 700]

DRAWS = [float(n) for n in SMALL] + [float(round(1000 * 1.5**i)) for i in range(28)] + [math.inf]

ENUMERATED = 4000
"""Ways in which the draws can fall up to which any mix is tried."""

UNIT = 2.5e-4
"""What is kept are whole multiples of this, of the logarithm of a quantile over the smallest, rounded up."""


def allowance(n_contexts: int) -> float:
    """Return what is added for mixes outside the family, as a share of the quantile."""
    return 0.01 if n_contexts <= 50 else 0.004


def enough_draws(n_contexts: int) -> int:
    """Return from how many draws on their number does not matter."""
    return max(60 * n_contexts, 600)


def numbers_of_draws(n_contexts: int) -> list[float]:
    """Return the numbers of draws at which quantiles are computed."""
    last = enough_draws(n_contexts)
    dense = 60 if n_contexts == 2 else 30 if n_contexts <= 8 else 12
    ratio = 1.1 if n_contexts <= 4 else 1.2
    steps = np.geomspace(dense, last, math.ceil(math.log(last / dense) / math.log(ratio)))
    kept = [n for n in DRAWS if n <= last]
    return sorted({float(n) for n in [*range(1, dense + 1), *np.rint(steps), *kept, last, math.inf]})


def computed(n_contexts: int) -> tuple[int, dict[float, Array]]:
    """Return the worst quantiles for each number of draws, by whichever way is exact."""
    began = time.perf_counter()
    numbers = numbers_of_draws(n_contexts)
    few = [n for n in numbers if n_contexts <= FEW or n <= FEW_DRAWS]
    found = quantiles_of_few(n_contexts, few) if few else {}
    found |= {n: quantiles_of_many(n_contexts, n) for n in numbers if n not in found}
    for n in numbers:
        if n_contexts > 2 and n_types(n_contexts, n) <= ENUMERATED:
            found[n] = np.maximum(found[n], quantiles_hunted(n_contexts, int(n)))
        found[n] = np.maximum.accumulate(found[n] * (1.0 + allowance(n_contexts)))
    print(f"{n_contexts} contexts: {time.perf_counter() - began:.0f} s", flush=True)
    return n_contexts, found


def position(nodes: Array, at: Array) -> tuple[NDArray[np.intp], Array]:
    """Return the node to the left and how far along the way to the next, in the coordinates given."""
    low = np.clip(np.searchsorted(nodes, at, side="right") - 1, 0, len(nodes) - 2)
    return low, np.clip((at - nodes[low]) / (nodes[low + 1] - nodes[low]), 0.0, 1.0)


def majorant(samples: dict[int, dict[float, Array]]) -> NDArray[np.uint16]:
    """Return the smallest monotone table found whose interpolation lies above every sample."""
    finite = np.log([n for n in DRAWS if n < math.inf])
    axes = (np.log(np.array(CONTEXTS) - 1.0), np.r_[finite, finite[-1] + math.log(1.5)], special.ndtri(CONFIDENCES))
    points = [
        (math.log(c - 1.0), min(math.log(n), axes[1][-1]), z, math.log(value))
        for c, rows in samples.items()
        for n, row in extended(c, rows).items()
        for z, value in zip(-special.ndtri(MISSES), row, strict=True)
        if z <= axes[2][-1] + 1e-9
    ]
    *coordinates, target = np.array(points).T
    places = [position(axis, at) for axis, at in zip(axes, coordinates, strict=True)]
    corners = []
    for corner in product((0, 1), repeat=3):
        index = tuple(low + step for (low, _), step in zip(places, corner, strict=True))
        weight = np.prod([part if step else 1.0 - part for (_, part), step in zip(places, corner, strict=True)], axis=0)
        corners.append((index, weight))
    table = np.full([len(axis) for axis in axes], -np.inf)
    for index, weight in corners:
        exact = weight > 1.0 - 1e-6
        np.maximum.at(table, tuple(i[exact] for i in index), target[exact])
    table = monotone(table, axes[1])
    square = sum(weight**2 for _, weight in corners)
    for _ in range(400):
        short = target - sum(weight * table[index] for index, weight in corners)
        if short.max() <= 1e-6:
            break
        raised = table.copy()
        for index, weight in corners:
            # The least change, in squares, that lifts this point; a corner takes the largest it is asked for.
            np.maximum.at(raised, index, np.where(short > 0, table[index] + 1.02 * short * weight / square, -np.inf))
        table = monotone(raised, axes[1])
    above = np.quantile(-short, [0.5, 0.9, 0.99])
    print(f"{len(target)} samples; short by at most {short.max():.1e}; above by {above} (median, 90%, 99%)")
    codes = np.ceil((table - math.log(SMALLEST_QUANTILE)) / UNIT).astype(np.int64)
    # Rounded up, entries may grow by a unit more than the draws do.
    for j in range(len(axes[1]) - 2, -1, -1):
        codes[:, j] = np.maximum(codes[:, j], codes[:, j + 1] - math.floor((axes[1][j + 1] - axes[1][j]) / UNIT))
    return codes.astype(np.uint16)


def extended(n_contexts: int, rows: dict[float, Array]) -> dict[float, Array]:
    """Add the numbers of draws in the table beyond the one from which it does not matter."""
    last = float(enough_draws(n_contexts))
    level = np.maximum(rows[last], rows[math.inf])
    return {n: rows[n] if n < last else level for n in [*rows, *DRAWS] if n in rows or n >= last}


def monotone(table: Array, log_draws: Array) -> Array:
    """Raise entries until they grow with the confidence and contexts, and less than in proportion to the draws."""
    table = np.maximum.accumulate(np.maximum.accumulate(table, axis=2), axis=0)
    per_draw = table - log_draws[None, :, None]
    return np.maximum.accumulate(per_draw[:, ::-1], axis=1)[:, ::-1] + log_draws[None, :, None]


def main() -> None:
    """Compute, raise, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--samples", type=Path, help="keep what was computed here, or read it")
    parser.add_argument("--out", type=Path, default=Path("src/counterpoise/sets/calibration.npz"))
    options = parser.parse_args()
    if options.samples and options.samples.exists():
        kept = np.load(options.samples)
        samples = {int(c): dict(zip(kept[f"n{c}"].tolist(), kept[f"q{c}"], strict=True)) for c in kept["contexts"]}
    else:
        # The longest first.
        contexts = sorted(CONTEXTS + BETWEEN, key=lambda c: abs(math.log(c / 30)))
        samples = dict(Parallel(options.jobs)(delayed(computed)(c) for c in contexts))
        if options.samples:
            arrays = {f"n{c}": np.array(list(rows)) for c, rows in samples.items()}
            arrays |= {f"q{c}": np.array(list(rows.values())) for c, rows in samples.items()}
            np.savez_compressed(options.samples, contexts=np.array(list(samples)), **arrays)
    table = majorant(samples)
    draws = np.array(DRAWS[:-1])
    np.savez_compressed(
        options.out, contexts=np.array(CONTEXTS), draws=draws, confidences=CONFIDENCES, unit=UNIT, table=table
    )
    print(f"{options.out}: {options.out.stat().st_size:,} bytes, {table.shape}")


if __name__ == "__main__":
    main()
