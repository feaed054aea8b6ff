"""Intervals of a worst case that hold where contexts tie, and of the difference of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from counterpoise.inference.paired import PairedMeans, lengthened
from counterpoise.inference.worst_mix import WorstMix, in_cache

Array = NDArray[np.float64]

N_DRAWS = 4000
"""Of the errors of all means; the level of an interval is then known to a quarter of a percentage point."""

MIX_DRAWS = 1000
"""Of these, how many a worst mix is sought for, which takes longer than a largest mean."""

_SEED = 0
"""The same rows get the same intervals."""

_DRAWN_ENTRIES = 20_000_000
"""Errors drawn at most, for memory; with more contexts there are fewer draws."""

STARTS = 40
"""Scenarios from which the worst one is sought."""

_ASCENTS = 3
"""Steps uphill from each of them."""

_ENDLESS = 1e10
"""Degrees of freedom of a variance that is known."""


class Interval(NamedTuple):
    """An estimate with both ends."""

    estimate: float
    lower: float
    upper: float


ENDS = ("", "_low", "_high")
"""How the names of columns end that hold an estimate, and the ends of its interval."""


def interval_in(row: Mapping[str, Any], name: str) -> Interval:
    """Return the interval that a row of a table holds."""
    return Interval(*(row[f"{name}{end}"] for end in ENDS))


UNKNOWN = Interval(math.nan, math.nan, math.nan)
NO_CHANGE = Interval(0.0, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Excess:
    """The excess of one method over its competitors, by context, and how it errs.

    Attributes
    ----------
    pairs : PairedMeans
    columns : slice
        Which of its columns are this method's.
    drawn : ndarray of shape (n_draws, n_contexts, n_own_columns)
        Errors drawn of them.
    """

    pairs: PairedMeans
    columns: slice
    drawn: Array

    @property
    def mean(self) -> Array:
        """The means; NaN where there is none."""
        return self.pairs.mean[:, self.columns]

    @property
    def error(self) -> Array:
        """Their standard errors."""
        return self.pairs.error[:, self.columns]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which means can be judged: of two units or more."""
        return np.isfinite(self.mean) & (self.pairs.n_units > 1)[:, None]

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Which contexts have a mean that can be judged."""
        return np.asarray(self.known.any(axis=1))

    @property
    def moves(self) -> NDArray[np.bool_]:
        """Which means can be judged and err."""
        return self.known & (self.error > 0)

    @property
    def filled(self) -> Array:
        """The means, 0 where they cannot be judged."""
        return np.where(self.known, self.mean, 0.0)

    @cached_property
    def largest(self) -> Array:
        """The largest size of an error in each draw, in units of its scale."""
        unit = np.divide(1.0, self.scale, out=np.zeros(self.scale.shape), where=self.moves)
        return np.concatenate([np.abs(self.drawn[some] * unit).max(axis=(1, 2)) for some in in_cache(self.drawn)])

    def highest(self, chosen: NDArray[np.bool_]) -> Array:
        """Return the highest error of chosen means, which have to err, in each draw, in units of its scale."""
        found, scale = np.empty(len(self.drawn)), self.scale[chosen]
        for some in in_cache(self.drawn):
            found[some] = (self.drawn[some][:, chosen] / scale).max(axis=1)
        return found

    @cached_property
    def tails(self) -> Array:
        """How much longer few units make the tails of the errors of each context, against the normal ones.

        At the level at which one of all means is the largest, so that none decides by its tails alone.
        """
        level = 1.0 - 0.025 / max(int(np.count_nonzero(self.known)), 1)
        return np.asarray(stdtrit(self.pairs.degrees, level) / ndtri(level))[:, None]

    @cached_property
    def scale(self) -> Array:
        """By what an error of each mean is judged: its standard error, longer where its tails are."""
        return self.tails * self.error

    def draws_for(self, worst: WorstMix) -> Array:
        """Return as many draws as there is time for."""
        return self.drawn if worst.everything else self.drawn[:MIX_DRAWS]

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
        if not self.moves.any():
            return self.mean
        reach = np.quantile(self.largest, self.first_level if generous else 0.5) * self.scale
        top = (self.mean - reach)[self.known].max()
        if generous:
            return np.minimum(self.mean + reach, top)
        with np.errstate(invalid="ignore", divide="ignore"):
            tied = np.clip(np.nan_to_num((self.mean - top) / reach + 1.5), 0.0, 1.0)
        return np.where(self.mean >= top, top, tied * top + (1.0 - tied) * self.mean)

    def multiplier(self, scenario: Array, level: float) -> Array:
        """Return how many standard errors a combination of means may lie too low, at a level."""
        # As shares of the whole, whose powers are floats.
        with np.errstate(divide="ignore", invalid="ignore"):
            part = scenario * self.error / self.spread(scenario)[:, None, None]
            share = np.square(part).sum(axis=2)
            degrees = np.square(share.sum(axis=1)) / (np.square(share) / self.pairs.degrees).sum(axis=1)
            skewness = (part**3 * self.skewness).sum(axis=(1, 2))
        shared = self.pairs.equivalent_degrees(scenario.sum(axis=2))
        degrees = degrees if shared is None else np.minimum(degrees, shared)
        degrees = np.where(np.isfinite(degrees), degrees, _ENDLESS)
        return (
            _upper_tail(level, np.where(np.isfinite(skewness), skewness, 0.0)) * stdtrit(degrees, level) / ndtri(level)
        )

    @property
    def skewness(self) -> Array:
        """The skewness of each mean."""
        return self.pairs.skewness[:, self.columns]

    def upper_ends(self, level: float) -> Array:
        """Return the upper end of every mean by itself; minus infinity where there is none."""
        multiple = _upper_tail(level, self.skewness) * (stdtrit(self.pairs.degrees, level) / ndtri(level))[:, None]
        return np.where(self.known, self.mean + multiple * self.error, -np.inf)

    def spread(self, scenario: Array) -> Array:
        """Return the standard errors of combinations of means."""
        return np.linalg.norm(self.pairs.covered(self.embedded(scenario)), axis=1)


def _upper_tail(level: float, skewness: Array) -> Array:
    """Return how many standard errors a mean may lie too low: the normal quantile, further out with skewness."""
    return -lengthened(np.array(-ndtri(level)), skewness)


def drawn_excess(pairs: PairedMeans, n_methods: int = 1) -> list[Excess]:
    """Draw errors of means whose columns are those of one method after the other."""
    n_draws = int(np.clip(_DRAWN_ENTRIES // pairs.mean.size, 400, N_DRAWS))
    errors = pairs.drawn(n_draws, np.random.default_rng(_SEED))
    width = pairs.mean.shape[1] // n_methods
    own = [slice(k * width, (k + 1) * width) for k in range(n_methods)]
    return [Excess(pairs, columns, np.ascontiguousarray(errors[:, :, columns])) for columns in own]


def simultaneous(excess: Excess, confidence: float) -> tuple[Array, Array]:
    """Return both ends of the excess of every context, which hold together; NaN where nothing is known."""
    multiple = quantile(excess.largest, confidence) if excess.moves.any() else 0.0
    reach = multiple * excess.scale
    ends = [np.where(excess.known, end, -np.inf).max(axis=1) for end in (excess.mean - reach, excess.mean + reach)]
    low, high = (np.where(excess.judged, end, np.nan) for end in ends)
    return low, high


def enough(excess: Excess) -> float:
    """Return the p-value of the hypothesis that no mean is above zero.

    Means that lie clearly below zero are not counted among those that might exceed it by chance.
    """
    moves = excess.moves
    if ((excess.mean > 0) & excess.known & ~moves).any():
        return 1.0 / (1.0 + len(excess.drawn))
    if not moves.any():
        return 1.0
    score = np.divide(excess.mean, excess.scale, out=np.full(moves.shape, -np.inf), where=moves)
    near = score >= -np.quantile(excess.largest, excess.first_level)
    if not near.any():
        return 1.0
    above = np.count_nonzero(excess.highest(near) >= score.max())
    return (1.0 + above) / (1.0 + len(excess.drawn))


def mean_interval(pairs: PairedMeans, shares: Array, confidence: float) -> Interval:
    """Return the mean of one column in one mix, with ends unless there is but one unit."""
    excess, scenario = Excess(pairs, slice(0, 1), np.empty(0)), shares[None, :, None]
    value = float(shares @ excess.mean[:, 0])
    if not excess.known.any():
        return Interval(value, math.nan, math.nan)
    level = 0.5 + 0.5 * confidence
    spread = float(excess.spread(scenario)[0])
    up, down = (float(excess.multiplier(sign * scenario, level)[0]) for sign in (1.0, -1.0))
    return Interval(value, value - down * spread, value + up * spread)


def worst_interval(excess: Excess, worst: WorstMix, confidence: float) -> Interval:
    r"""Bound :math:`V(\mu)`, the worst case of the means.

    The lower end is :math:`V(m - \kappa s)`, :math:`\kappa` the least multiple that keeps errors from raising the
    worst case in all but half of the error rate; for all mixes these are intersection bounds. The estimate has the
    median in place of that quantile. The upper end is the largest of the upper ends of single scenarios: only the
    true worst one has to be covered, whichever it is.
    """
    tail = 0.5 * (1.0 - confidence)
    multiple = quantile(worst.excesses(excess.centre(), excess.draws_for(worst), excess.scale), 1.0 - tail)
    lower = float(worst.value((excess.mean - multiple * excess.scale)[None])[0])
    estimate = worst_estimate(excess, worst)
    return Interval(estimate, min(lower, estimate), max(upper_end(excess, worst, 1.0 - tail), estimate))


def worst_estimate(excess: Excess, worst: WorstMix) -> float:
    """Return the worst case, corrected by the median of what errors add to it."""
    multiple = np.median(worst.excesses(excess.centre(generous=False), excess.draws_for(worst), excess.scale))
    return float(worst.value((excess.mean - multiple * excess.scale)[None])[0])


def upper_end(excess: Excess, worst: WorstMix, level: float) -> float:
    """Return the largest upper end of any scenario."""
    if worst.everything:
        return float(excess.upper_ends(level).max())
    found = scenarios(excess, worst, level)
    value = np.einsum("bck,ck->b", found, excess.filled)
    return float((value + excess.multiplier(found, level) * excess.spread(found)).max())


def scenarios(excess: Excess, worst: WorstMix, level: float) -> Array:
    """Return scenarios among which is, nearly, the one with the largest upper end."""
    mean, high = excess.filled, excess.upper_ends(level)
    # Toward each context, and from the means as they are, raised, and all alike.
    order = np.argsort(-high.max(axis=1))[: min(STARTS, int(worst.judged.sum()))]
    toward = np.zeros((len(order), *mean.shape))
    toward[np.arange(len(order)), order] = 1.0
    starts = np.concatenate([np.stack([mean, np.where(excess.known, high, 0.0), np.zeros_like(mean)]), toward])
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


def single(high: Array, most: int) -> Array:
    """Return the scenarios of one context and competitor each, those with the highest values."""
    order = np.argsort(-high, axis=None)[: min(most, int(np.isfinite(high).sum()))]
    found = np.zeros((len(order), high.size))
    found[np.arange(len(order)), order] = 1.0
    return found.reshape(len(order), *high.shape)


def quantile(values: Array, level: float) -> float:
    """Return a quantile of draws, at a level raised by its Monte Carlo error; the median is an estimate as it is."""
    if level > 0.5:
        level += math.sqrt(level * (1.0 - level) / len(values))
    # As np.quantile has it, without what that asks beforehand of values that may be anything.
    at = min(level, 1.0) * (len(values) - 1)
    low, high = math.floor(at), math.ceil(at)
    ordered = np.partition(values, (low, high))
    return float(ordered[low] + (at - low) * (ordered[high] - ordered[low]))
