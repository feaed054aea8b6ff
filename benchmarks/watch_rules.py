"""What a watch is held against: rules that are in use, and the best tests of a fixed sample that know the day.

Counts of a year are arrays of shape (streams, days, contexts).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats
from watch_streams import Array, Sized, seeded

LEVEL = 0.05

# --- rules that look at every day ------------------------------------------------------------------------------


def since(counts: Array, days: int | None) -> Array:
    """Return the counts of the last so many days, or of all so far, on every day."""
    total = counts.cumsum(axis=1, dtype=np.float64)
    if days is not None:
        total[:, days:] -= total[:, :-days].copy()
    return total


def chi_squared(counts: Array, p_hat: Array) -> Array:
    """Return Pearson's statistic of counts against shares."""
    expected = counts.sum(axis=-1, keepdims=True) * p_hat
    return np.asarray((np.square(counts - expected) / np.maximum(expected, 1e-300)).sum(axis=-1))


def stability_index(counts: Array, p_hat: Array) -> Array:
    """Return the population stability index, with empty contexts taken for a share of one in ten thousand."""
    now = np.maximum(counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1.0), 1e-4)
    return np.asarray(((now - p_hat) * np.log(now / p_hat)).sum(axis=-1))


Statistic = Callable[[Array, Array], Array]

RULES: dict[str, tuple[Statistic, int | None]] = {
    "chi-squared, the day": (chi_squared, 1),
    "chi-squared, 30 days": (chi_squared, 30),
    "chi-squared, all so far": (chi_squared, None),
    "PSI, the day": (stability_index, 1),
    "PSI, 30 days": (stability_index, 30),
}


def paths(rule: str, counts: Array, p_hat: Array) -> Array:
    """Return the statistic of a rule on every day of every stream."""
    statistic, days = RULES[rule]
    found = statistic(since(counts, days), p_hat)
    if statistic is stability_index and days is not None:
        # The index of a few rows is large by chance: it is looked at once all of its days are there.
        found[:, : min(days, found.shape[1]) - 1] = 0.0
    return found


def usual_threshold(rule: str, n_contexts: int) -> float:
    """Return the threshold that is in use: the 5% quantile of chi-squared, and 0.2."""
    return float(stats.chi2.isf(LEVEL, n_contexts - 1)) if rule.startswith("chi") else 0.2


def first_day(above: NDArray[np.bool_]) -> Array:
    """Return the first day on which each stream is above, inf where none is."""
    return np.where(above.any(axis=1), above.argmax(axis=1), np.inf)


def years(mix: Array, rows: int, n_days: int, n_streams: int, rng: np.random.Generator) -> Array:
    """Return counts of years without any change."""
    return rng.multinomial(rows, mix, size=(n_streams, n_days)).astype(np.float64)


def calibrated(rule: str, mixes: list[Array], p_hat: Array, rows: int, n_days: int, n_streams: int) -> float:
    """Return the threshold that 5% of years without change pass, at the hardest of some mixes."""
    found = []
    for mix in mixes:
        rng = seeded("years", mix.round(12).tolist(), rows)
        found.append(np.quantile(paths(rule, years(mix, rows, n_days, n_streams, rng), p_hat).max(axis=1), 1 - LEVEL))
    return float(max(found))


# --- tests of a fixed sample that know the day -----------------------------------------------------------------


def log_likelihood(counts: Array, p: Array) -> Array:
    """Return ``sum x log p`` in nats, where 0 log 0 is 0."""
    return np.asarray(special.xlogy(counts, p).sum(axis=-1))


def likeliest(counts: Array, p_hat: Array, radius: float) -> Array:
    """Return the members of a KL ball under which counts are likeliest.

    They lie between the shares now and the centre. Found by bisection, so that the study does not lean on the library
    that it judges.
    """
    now = counts / counts.sum(axis=-1, keepdims=True)
    low, high = np.zeros(now.shape[:-1]), np.ones(now.shape[:-1])
    for _ in range(60):
        t = 0.5 * (low + high)
        mix = now + t[..., None] * (p_hat - now)
        with np.errstate(divide="ignore"):
            inside = (p_hat * np.log2(p_hat / mix)).sum(axis=-1) <= radius
        low, high = np.where(inside, low, t), np.where(inside, t, high)
    with np.errstate(divide="ignore"):
        already = (p_hat * np.log2(np.where(now > 0.0, p_hat / now, np.inf))).sum(axis=-1) <= radius
    return np.asarray(np.where(already[..., None], now, now + high[..., None] * (p_hat - now)))


def ratio(counts: Array, p_hat: Array, radius: float) -> Array:
    """Return the log likelihood ratio of any mix against the set."""
    now = counts / counts.sum(axis=-1, keepdims=True)
    return log_likelihood(counts, now) - log_likelihood(counts, likeliest(counts, p_hat, radius))


def nearest(new: Array, sized: Sized) -> Array:
    """Return the member nearest to a mix: the least favourable one to tell from it."""
    return likeliest(1e9 * new, sized.ball.p_hat, sized.ball.radius)


def days_of_ratio_test(new: Array, sized: Sized, rows: int, n_days: int, n_draws: int = 2000) -> float:
    """Return after how many days the likelihood-ratio test of the set has power one half, the day of change known."""
    p_hat, radius = sized.ball.p_hat, sized.ball.radius
    hardest = [nearest(new, sized), *sized.corners.values()]

    def power(days: int) -> float:
        rng = seeded("ratio", new.round(12).tolist(), days)
        nulls = (ratio(rng.multinomial(rows * days, p, size=n_draws), p_hat, radius) for p in hardest)
        critical = max(np.quantile(null, 1.0 - LEVEL) for null in nulls)
        return float(np.mean(ratio(rng.multinomial(rows * days, new, size=n_draws), p_hat, radius) > critical))

    return first_powerful(power, n_days)


def days_of_oracle(new: Array, sized: Sized, rows: int, n_days: int, n_draws: int = 2000) -> float:
    """Return the median number of days of the best test that may look daily: it knows the day and the new mix.

    It bets the likelihood ratio of the new mix against the nearest member of the set, until it has won 20-fold. The
    hypothesis itself being what it is, no test that holds however often one looks is much sooner.
    """
    with np.errstate(divide="ignore"):
        score = np.log(new) - np.log(nearest(new, sized))
    draws = seeded("oracle", new.round(12).tolist()).multinomial(rows, new, size=(n_draws, n_days))
    return float(np.median(first_day((draws @ score).cumsum(axis=1) >= np.log(1.0 / LEVEL)) + 1.0))


def days_of_binomial_test(allowed: float, share: float, rows: int, n_days: int) -> float:
    """Return after how many days the exact test of a share has power one half."""

    def power(days: int) -> float:
        critical = stats.binom.isf(LEVEL, rows * days, allowed)
        return float(stats.binom.sf(critical, rows * days, share))

    return first_powerful(power, n_days)


def days_of_mean_test(
    own: float, factor: float, relative_sd: float, rows: float, n_contexts: int, n_days: int
) -> float:
    """Return after how many days a z-test of a risk has power one half, allowing for as many tests as contexts.

    ``own`` is the share of the context and ``relative_sd`` the standard deviation of losses in units of their mean.
    """

    def power(days: int) -> float:
        errors = (factor - 1.0) / (relative_sd / np.sqrt(rows * own * days))
        return float(stats.norm.sf(stats.norm.isf(LEVEL / n_contexts) - errors))

    return first_powerful(power, n_days)


def first_powerful(power: Callable[[int], float], n_days: int) -> float:
    """Return the first day with power one half, inf where there is none."""
    if power(n_days) < 0.5:
        return np.inf
    low, high = 0, n_days
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= 0.5 else (middle, high)
    return float(high)
