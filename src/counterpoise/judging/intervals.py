"""Intervals of a worst case that hold where contexts tie, and of the difference of two."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit
from scipy.stats import rankdata

from counterpoise.judging.paired import PairedMeans, lengthened
from counterpoise.judging.worst_mix import WorstMix

Array = NDArray[np.float64]

N_DRAWS = 1000
"""Of the errors of all means; the level of an interval is then known to half a percentage point, which is added."""

_SEED = 0
"""The same rows get the same intervals."""

_DRAWN_ENTRIES = 40_000_000
"""Errors drawn at most, for memory; with more contexts there are fewer draws."""

_STARTS = 40
"""Scenarios from which the worst one is sought."""

_ASCENTS = 3
"""Steps uphill from each of them."""

_BLENDS = 7
"""Blends of two bounds for which the worst scenario is sought."""

_ROUNDING = 1e-7

_ENDLESS = 1e10
"""Degrees of freedom of a variance that is known."""

_NEARLY_SAME = 0.01
"""Total variation between scenarios of which one will do."""

_FINALISTS = 4
"""Scenarios for which both bounds of a difference are calibrated."""


class Interval(NamedTuple):
    """An estimate with both ends."""

    estimate: float
    lower: float
    upper: float


UNKNOWN = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True, eq=False)
class Excess:
    """The excess of one method over its competitors, by context, and how it errs.

    Attributes
    ----------
    pairs : PairedMeans
    columns : slice
        Which of its columns are this method's.
    errors : ndarray of shape (n_draws, n_contexts, n_columns)
        Drawn of all columns.
    """

    pairs: PairedMeans
    columns: slice
    errors: Array

    @property
    def mean(self) -> Array:
        return self.pairs.mean[:, self.columns]

    @property
    def error(self) -> Array:
        return self.pairs.error[:, self.columns]

    @property
    def known(self) -> NDArray[np.bool_]:
        return np.isfinite(self.mean) & (self.pairs.n_units > 1)[:, None]

    @property
    def drawn(self) -> Array:
        return self.errors[:, :, self.columns]

    @property
    def first_level(self) -> float:
        """The level of a band that leaves out only means which clearly do not matter; it tends to 1 with the units."""
        return 1.0 - 0.1 / math.log(max(int(self.pairs.n_units.sum()), 3))

    def embedded(self, scenario: Array) -> Array:
        """Return scenarios of these columns among all columns of the pairs."""
        whole = np.zeros((len(scenario), *self.pairs.mean.shape))
        whole[:, :, self.columns] = scenario
        return whole

    def centre(self, generous: bool = True) -> Array:
        """Return the means, as nearly tied at the top as the data allow.

        Ties are where errors raise a worst case most. All means that a band lets reach the largest lower end are put
        there. The others are put at their upper ends with a generous band, for an interval that holds; with a narrow
        one, for an estimate, they stay where they are unless they are close.
        """
        known = self.known
        moves = known & (self.error > 0)
        if not moves.any():
            return self.mean
        largest = np.abs(self.drawn[:, moves] / self.error[moves]).max(axis=1)
        reach = np.quantile(largest, self.first_level if generous else 0.5) * self.error
        top = (self.mean - reach)[known].max()
        if generous:
            return np.minimum(self.mean + reach, top)
        with np.errstate(invalid="ignore", divide="ignore"):
            tied = np.clip(np.nan_to_num((self.mean - top) / reach + 1.5), 0.0, 1.0)
        return np.where(self.mean >= top, top, tied * top + (1.0 - tied) * self.mean)

    def multiplier(self, scenario: Array, level: float) -> Array:
        """Return how many standard errors a combination of means may lie too low, at a level."""
        share = np.square(scenario * self.error).sum(axis=2)
        total = np.square(self.spread(scenario))
        with np.errstate(divide="ignore", invalid="ignore"):
            degrees = np.square(share.sum(axis=1)) / (np.square(share) / self.pairs.degrees).sum(axis=1)
            skewness = (scenario**3 * self.skewness * self.error**3).sum(axis=(1, 2)) / total**1.5
        degrees = np.where(np.isfinite(degrees), degrees, _ENDLESS)
        tail = -lengthened(np.array(-ndtri(level)), np.where(np.isfinite(skewness), skewness, 0.0))
        return tail * stdtrit(degrees, level) / ndtri(level)

    @property
    def skewness(self) -> Array:
        return self.pairs.skewness[:, self.columns]

    def spread(self, scenario: Array) -> Array:
        """Return the standard errors of combinations of means."""
        return np.linalg.norm(self.pairs.covered(self.embedded(scenario)), axis=1)


def drawn_excess(pairs: PairedMeans, n_methods: int = 1) -> list[Excess]:
    """Draw errors of means whose columns are those of one method after the other."""
    n_draws = int(np.clip(_DRAWN_ENTRIES // pairs.mean.size, 200, N_DRAWS))
    errors = pairs.drawn(n_draws, np.random.default_rng(_SEED))
    width = pairs.mean.shape[1] // n_methods
    return [Excess(pairs, slice(k * width, (k + 1) * width), errors) for k in range(n_methods)]


def simultaneous(excess: Excess, confidence: float) -> tuple[Array, Array]:
    """Return both ends of the excess of every context, which hold together; NaN where nothing is known."""
    known, moves = excess.known, excess.known & (excess.error > 0)
    multiple = 0.0
    if moves.any():
        multiple = _quantile(np.abs(excess.drawn[:, moves] / excess.error[moves]).max(axis=1), confidence)
    ends = [np.where(known, excess.mean + sign * multiple * excess.error, -np.inf).max(axis=1) for sign in (-1.0, 1.0)]
    low, high = (np.where(known.any(axis=1), end, np.nan) for end in ends)
    return low, high


def enough(excess: Excess) -> float:
    """Return the p-value of the hypothesis that no mean is above zero.

    Means that lie clearly below zero are not counted among those that might exceed it by chance.
    """
    moves = excess.known & (excess.error > 0)
    if ((excess.mean > 0) & excess.known & ~moves).any():
        return 1.0 / (1.0 + len(excess.errors))
    if not moves.any():
        return 1.0
    score = excess.mean[moves] / excess.error[moves]
    errors = excess.drawn[:, moves] / excess.error[moves]
    near = score >= -np.quantile(np.abs(errors).max(axis=1), excess.first_level)
    if not near.any():
        return 1.0
    above = np.count_nonzero(errors[:, near].max(axis=1) >= score.max())
    return (1.0 + above) / (1.0 + len(errors))


def mean_interval(excess: Excess, shares: Array, confidence: float) -> Interval:
    """Return the mean in one mix, with ends unless there is but one unit."""
    scenario = shares[None, :, None]
    value = float(shares @ excess.mean[:, 0])
    if not excess.known.any():
        return Interval(value, math.nan, math.nan)
    level = 0.5 + 0.5 * confidence
    spread = float(excess.spread(scenario)[0])
    up, down = (float(excess.multiplier(sign * scenario, level)[0]) for sign in (1.0, -1.0))
    return Interval(value, value - down * spread, value + up * spread)


def difference_interval(one: Excess, other: Excess, worst: WorstMix, confidence: float) -> Interval:
    """Bound the worst case of one method minus that of another."""
    levels = (0.5 + 0.5 * confidence, 0.5)
    upper, above = difference_upper(one, other, worst, levels).tolist()
    lower, below = (-difference_upper(other, one, worst, levels)).tolist()
    # Zero without a sign.
    estimate = 0.5 * (above + below) + 0.0
    return Interval(estimate, min(lower, estimate) + 0.0, max(upper, estimate) + 0.0)


def worst_interval(excess: Excess, worst: WorstMix, confidence: float) -> Interval:
    r"""Bound :math:`V(\mu)`, the worst case of the means.

    The lower end is :math:`V(m - \kappa s)`, :math:`\kappa` the least multiple that keeps errors from raising the
    worst case in all but half of the error rate; for all mixes these are intersection bounds. The estimate has the
    median in place of that quantile. The upper end is the largest of the upper ends of single scenarios: only the
    true worst one has to be covered, whichever it is.
    """
    tail = 0.5 * (1.0 - confidence)
    multiple = _quantile(worst.excesses(excess.centre(), excess.drawn, excess.error), 1.0 - tail)
    lower = float(worst.value((excess.mean - multiple * excess.error)[None])[0])
    estimate = worst_estimate(excess, worst)
    return Interval(estimate, min(lower, estimate), max(upper_end(excess, worst, 1.0 - tail), estimate))


def worst_estimate(excess: Excess, worst: WorstMix) -> float:
    """Return the worst case, corrected by the median of what errors add to it."""
    multiple = np.median(worst.excesses(excess.centre(generous=False), excess.drawn, excess.error))
    return float(worst.value((excess.mean - multiple * excess.error)[None])[0])


def upper_end(excess: Excess, worst: WorstMix, level: float) -> float:
    """Return the largest upper end of any scenario."""
    found = scenarios(excess, worst, level)
    value = np.einsum("bck,ck->b", found, np.where(excess.known, excess.mean, 0.0))
    return float((value + excess.multiplier(found, level) * excess.spread(found)).max())


def scenarios(excess: Excess, worst: WorstMix, level: float) -> Array:
    """Return scenarios among which is, nearly, the one with the largest upper end."""
    known, n_contexts = excess.known, len(excess.mean)
    mean = np.where(known, excess.mean, 0.0)
    high = np.where(known, mean + ndtri(level) * excess.error, -np.inf)
    if worst.everything:
        return _single(high, _STARTS)
    # Toward each context, and from the means as they are, raised, and all alike.
    order = np.argsort(-high.max(axis=1))[: min(_STARTS, int(worst.judged.sum()))]
    toward = np.zeros((len(order), n_contexts, mean.shape[1]))
    toward[np.arange(len(order)), order] = 1.0
    starts = np.concatenate([np.stack([mean, np.where(known, high, 0.0), np.zeros_like(mean)]), toward])
    return ascended(worst.solve(starts)[1], mean, excess.embedded, excess, worst, level)


def ascended(
    found: Array, mean: Array, embed: Callable[[Array], Array], excess: Excess, worst: WorstMix, level: float
) -> Array:
    """Return scenarios and what they lead to, uphill in the upper end of a combination of means.

    An upper end is convex in the scenario: its linear part at one is largest at a better one.
    """
    current, all_ = found, [found]
    for _ in range(_ASCENTS):
        covered = excess.pairs.covered(embed(current))
        length = np.maximum(np.linalg.norm(covered, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        slope = (excess.pairs.factor.T @ (covered / length).T).T.reshape(len(current), *excess.pairs.mean.shape)
        current = worst.solve(mean + ndtri(level) * slope[:, :, excess.columns])[1]
        all_.append(current)
    return np.concatenate(all_)


def difference_upper(one: Excess, other: Excess, worst: WorstMix, levels: tuple[float, ...]) -> Array:
    r"""Return upper ends of :math:`V(\mu_1) - V(\mu_2)` for two methods, at several levels, the highest first.

    For the scenario q that is worst for the first, :math:`V(\mu_2)` is at least its value in q and in any other
    scenario, so the difference is at most :math:`q \mu_1 - V(\mu_2)`, and at most :math:`q (\mu_1 - \mu_2)`, in which
    what is common to both methods cancels. Both are bounded together, for every q that may be the one.
    """
    ours, theirs = (np.where(each.known, each.mean, 0.0) for each in (one, other))
    centre = other.centre()

    def scales(q: Array) -> tuple[Array, Array]:
        """Return the standard errors of q against every score of the other method, and against its own in q."""
        joint = one.pairs.covered(one.embedded(q))
        covariance = (one.pairs.factor.T @ joint.T).T.reshape(len(q), *one.pairs.mean.shape)[:, :, other.columns]
        squares = np.square(other.error) + np.square(joint).sum(axis=1)[:, None, None] - 2.0 * covariance
        paired = np.linalg.norm(joint - one.pairs.covered(other.embedded(q)), axis=1)
        # Of methods that agree nothing is left but rounding.
        least = _ROUNDING * (np.linalg.norm(joint, axis=1) + other.spread(q))
        apart = np.sqrt(np.maximum(squares, 0.0))
        return np.where(apart > least[:, None, None], apart, 0.0), np.where(paired > least, paired, 0.0)

    def limits(q: Array, scale: Array, spread: float) -> list[tuple[float, float]]:
        """Return how many standard errors both bounds need to hold together, at each level."""
        error = np.einsum("bck,ck->b", one.drawn, q)
        kappa = worst.excesses(centre, other.drawn - error[:, None, None], scale)
        if spread == 0.0:
            return [(_quantile(kappa, level), 0.0) for level in levels]
        paired = np.einsum("bck,ck->b", other.drawn, q) - error
        return [_balanced(kappa, paired / spread, level) for level in levels]

    def upper(q: Array, scale: Array, spread: Array, kappa: float, multiple: float) -> Array:
        own = np.einsum("bck,ck->b", q, ours)
        apart = own - worst.value(theirs - kappa * scale)
        return np.minimum(apart, own - np.einsum("bck,ck->b", q, theirs) + multiple * spread)

    candidates = _candidates(one, other, worst, levels[0])
    first = int(np.einsum("bck,ck->b", candidates, ours).argmax())
    some = slice(first, first + 1)
    kappa, multiple = limits(candidates[first], scales(candidates[some])[0][0], float(scales(candidates[some])[1][0]))[
        0
    ]

    def rough(q: Array) -> Array:
        return upper(q, *scales(q), kappa, multiple)

    if not worst.everything:
        # The smaller of two bounds may be largest between scenarios at which either is.
        best = candidates[_apart(candidates, np.argsort(-rough(candidates)), 2 * _FINALISTS)]
        one_of, another = np.triu_indices(len(best))
        candidates = 0.5 * (best[one_of] + best[another])
    finalists = _apart(candidates, np.argsort(-rough(candidates)), _STARTS if worst.everything else _FINALISTS)
    ends = np.full(len(levels), -np.inf)
    for k in finalists:
        q = candidates[k : k + 1]
        scale, spread = scales(q)
        found = limits(q[0], scale[0], float(spread[0]))
        ends = np.maximum(ends, [float(upper(q, scale, spread, *pair)[0]) for pair in found])
    return ends


def _candidates(one: Excess, other: Excess, worst: WorstMix, level: float) -> Array:
    """Return scenarios among which is the one that makes both bounds of a difference largest."""
    ours, theirs = (np.where(each.known, each.mean, 0.0) for each in (one, other))
    if worst.everything:
        return _single(np.where(one.known, ours + ndtri(level) * one.error, -np.inf), 4 * _STARTS)
    # The smaller of two bounds is largest where some blend of them is.
    # Never the paired one alone, of which competitors cancel.
    blends = np.linspace(0.01, 1.0, _BLENDS)[:, None, None]
    goals = blends * ours + (1.0 - blends) * (ours - theirs)
    starts = worst.solve(goals)[1]
    return np.concatenate(
        [
            ascended(starts, goals, one.embedded, one, worst, level),
            ascended(starts, goals, lambda q: one.embedded(q) - other.embedded(q), one, worst, level),
        ]
    )


def _single(high: Array, most: int) -> Array:
    """Return the scenarios of one context and competitor each, those with the highest values."""
    order = np.argsort(-high, axis=None)[: min(most, int(np.isfinite(high).sum()))]
    found = np.zeros((len(order), high.size))
    found[np.arange(len(order)), order] = 1.0
    return found.reshape(len(order), *high.shape)


def _quantile(values: Array, level: float) -> float:
    """Return a quantile of draws, at a level raised by its Monte Carlo error; the median is an estimate as it is."""
    if level > 0.5:
        level += math.sqrt(level * (1.0 - level) / len(values))
    return float(np.quantile(values, min(level, 1.0)))


def _apart(scenarios: Array, order: NDArray[np.intp], most: int) -> list[int]:
    """Return the first scenarios in an order that are not nearly the same as an earlier one."""
    chosen: list[int] = []
    for k in order.tolist():
        distance = 0.5 * np.abs(scenarios[chosen] - scenarios[k]).sum(axis=(1, 2))
        if (distance > _NEARLY_SAME).all():
            chosen.append(k)
        if len(chosen) == most:
            break
    return chosen


def _balanced(first: Array, second: Array, level: float) -> tuple[float, float]:
    """Return limits of two statistics that hold together at a level, each as often exceeded as the other."""
    # Values that rounding alone keeps apart have one rank.
    ranks = [rankdata(np.round(values, 9), method="min") - 1.0 for values in (first, second)]
    place = min(math.ceil(_quantile(np.maximum(*ranks), level)), len(first) - 1)
    return float(np.sort(first)[place]), float(np.sort(second)[place])
