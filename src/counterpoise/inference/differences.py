"""The difference between the worst cases of two methods."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from counterpoise.inference.intervals import (
    MIX_DRAWS,
    STARTS,
    Excess,
    Interval,
    ascended,
    quantile,
    single,
)
from counterpoise.inference.worst_mix import WorstMix

Array = NDArray[np.float64]

_BLENDS = 7
"""Blends of two bounds for which the worst scenario is sought."""

_FINALISTS = 4
"""Scenarios for which both bounds are calibrated."""

_NEARLY_SAME = 0.01
"""Total variation between scenarios of which one will do."""

_ENTRIES = 200_000
"""Of errors drawn of means, up to which draws of several scenarios are looked at together."""

_ROUNDING = 1e-7
"""Share of standard errors below which that of a difference is none."""


def difference_interval(one: Excess, other: Excess, worst: WorstMix, confidence: float) -> Interval:
    """Bound the worst case of one method minus that of another."""
    levels = (0.5 + 0.5 * confidence, 0.5)
    upper, above = difference_upper(one, other, worst, levels).tolist()
    lower, below = (-difference_upper(other, one, worst, levels)).tolist()
    if lower > upper:
        # Each end holds by itself; that they cross is chance.
        lower = upper = 0.5 * (lower + upper)
    # Zero without a sign.
    return Interval(min(max(0.5 * (above + below), lower), upper) + 0.0, lower + 0.0, upper + 0.0)


def change_and_error(one: Excess, other: Excess, worst: WorstMix) -> tuple[float, float]:
    """Return the worst case of one method minus that of another, uncorrected, and its standard error.

    The error is that of either method's own worst scenario, taken for the true one: no interval follows from it that
    would hold where contexts tie, but a judgement of whether a difference stands out does.
    """
    ours, theirs = (worst.solve(each.filled[None])[1] for each in (one, other))
    change = float((ours[0] * one.filled).sum() - (theirs[0] * other.filled).sum())
    apart = one.pairs.covered(one.embedded(ours) - other.embedded(theirs))
    return change, float(np.linalg.norm(apart))


def difference_upper(one: Excess, other: Excess, worst: WorstMix, levels: tuple[float, ...]) -> Array:
    r"""Return upper ends of :math:`V(\mu_1) - V(\mu_2)` for two methods, at several levels, the highest first.

    For the scenario q that is worst for the first, :math:`V(\mu_2)` is at least its value in q and in any other
    scenario, so the difference is at most :math:`q \mu_1 - V(\mu_2)`, and at most :math:`q (\mu_1 - \mu_2)`, in which
    what is common to both methods cancels. Both are bounded together, for every q that may be the one.
    """
    ours, theirs = one.filled, other.filled
    centre = other.centre()
    drawn, others = (np.ascontiguousarray(each.drawn[:MIX_DRAWS]) for each in (one, other))

    def scales(q: Array) -> tuple[Array, Array]:
        """Return the standard errors of q against every score of the other method, and against its own in q."""
        joint = one.pairs.covered(one.embedded(q))
        covariance = (one.pairs.factor.T @ joint.T).T.reshape(len(q), *one.pairs.mean.shape)[:, :, other.columns]
        squares = np.square(other.error) + np.square(joint).sum(axis=1)[:, None, None] - 2.0 * covariance
        paired = np.linalg.norm(joint - one.pairs.covered(other.embedded(q)), axis=1)
        # Of methods that agree nothing is left but rounding.
        least = _ROUNDING * (np.linalg.norm(joint, axis=1) + other.spread(q))
        apart = other.tails * np.sqrt(np.maximum(squares, 0.0))
        return np.where(apart > least[:, None, None], apart, 0.0), np.where(paired > least, paired, 0.0)

    def limits(q: Array, scale: Array, spread: Array) -> Array:
        """Return how many standard errors both bounds of each scenario need to hold together, at each level.

        Returns
        -------
        ndarray of shape (n_levels, n_scenarios, 2)
        """
        found, step = [], 1 if worst.everything else max(1, _ENTRIES // drawn.size)
        for k in range(0, len(q), step):
            some = slice(k, k + step)
            error = _combined(drawn, q[some])
            # One search for the draws of all scenarios. That of one takes no copies of them.
            errors = np.broadcast_to(others, (len(error), *others.shape)).reshape(-1, *centre.shape)
            reach = scale[k] if len(error) == 1 else np.repeat(scale[some], len(drawn), axis=0)
            kappa = worst.excesses(centre, errors, reach, error.ravel()).reshape(error.shape)
            paired = _combined(others, q[some]) - error
            for apart, against, own in zip(kappa, paired, spread[some].tolist(), strict=True):
                if own == 0.0:
                    found.append([(quantile(apart, level), 0.0) for level in levels])
                else:
                    found.append(_balanced(apart, against / own, levels))
        return np.swapaxes(found, 0, 1)

    def upper(q: Array, scale: Array, spread: Array, limit: Array) -> Array:
        """Return the bound of each scenario, by limits of its own or by those of one for all."""
        kappa, multiple = limit.T
        own = np.einsum("bck,ck->b", q, ours)
        apart = own - worst.value(theirs - kappa[:, None, None] * scale)
        return np.minimum(apart, own - np.einsum("bck,ck->b", q, theirs) + multiple * spread)

    candidates = _candidates(one, other, worst, levels[0])
    first = candidates[np.einsum("bck,ck->b", candidates, ours).argmax()][None]
    scale, spread = scales(first)
    at_first = limits(first, scale, spread)

    def best(q: Array, most: int) -> list[int]:
        """Return the scenarios whose bounds are largest at some level, by the limits of the first one."""
        scale, spread = scales(q)
        orders = [np.argsort(-upper(q, scale, spread, limit)) for limit in at_first]
        # Those of a single context each are apart.
        found = [order[:most].tolist() if worst.everything else _apart(q, order, most) for order in orders]
        return sorted(set().union(*found))

    if not worst.everything:
        # The smaller of two bounds may be largest between scenarios at which either is.
        some = candidates[best(candidates, 2 * _FINALISTS)]
        one_of, another = np.triu_indices(len(some))
        candidates = 0.5 * (some[one_of] + some[another])
    finalists = best(candidates, STARTS if worst.everything else _FINALISTS)
    q = candidates[finalists]
    scale, spread = scales(q)
    return np.array([upper(q, scale, spread, limit).max() for limit in limits(q, scale, spread)])


def _candidates(one: Excess, other: Excess, worst: WorstMix, level: float) -> Array:
    """Return scenarios among which is the one that makes both bounds of a difference largest."""
    if worst.everything:
        return single(one.upper_ends(level), 4 * STARTS)
    # The smaller of two bounds is largest where some blend of them is; never the paired one alone, of which
    # competitors cancel.
    blends = np.linspace(0.01, 1.0, _BLENDS)[:, None, None]
    goals = blends * one.filled + (1.0 - blends) * (one.filled - other.filled)
    starts = worst.solve(goals)[1]
    return np.concatenate(
        [
            ascended(starts, goals, one.embedded, one, worst, level),
            ascended(starts, goals, lambda q: one.embedded(q) - other.embedded(q), one, worst, level),
        ]
    )


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


def _balanced(first: Array, second: Array, levels: tuple[float, ...]) -> list[tuple[float, float]]:
    """Return limits of two statistics that hold together at each level, each as often exceeded as the other."""
    (first_ranks, first), (second_ranks, second) = _ranked(first), _ranked(second)
    larger = np.maximum(first_ranks, second_ranks)
    places = [min(math.ceil(quantile(larger, level)), len(first) - 1) for level in levels]
    return [(float(first[place]), float(second[place])) for place in places]


def _ranked(values: Array) -> tuple[NDArray[np.intp], Array]:
    """Return how many values are smaller than each, and the values in order; rounding alone keeps none apart."""
    order, ranks = np.argsort(values), np.empty(len(values), dtype=np.intp)
    ordered = values[order]
    apart = np.round(ordered, 9)
    first_of_many = np.where(apart[1:] > apart[:-1], np.arange(1, len(values)), 0)
    ranks[order] = np.maximum.accumulate(np.concatenate([[0], first_of_many]))
    return ranks, ordered


def _combined(drawn: Array, scenarios: Array) -> Array:
    """Return the errors drawn of combinations of means, of shape (n_scenarios, n_draws)."""
    return np.asarray(scenarios.reshape(len(scenarios), -1) @ drawn.reshape(len(drawn), -1).T)
