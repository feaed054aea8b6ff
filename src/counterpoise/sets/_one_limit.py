"""The worst case where one limit binds: the limit gets a price, and the set without it has the rest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from counterpoise.sets._geometry import Array

_MOST_STEPS = 100


class _NotFoundError(Exception):
    """The worst case of some scores is not known."""


def at_one_limit(worst: Callable[[Array], Array | None], row: Array, side: float, scores: Array) -> Array | None:
    """Return the distribution with the largest expected score among those with ``row @ p <= side``.

    It is the worst case of ``scores - price * row``, for the price at which the limit holds with equality. Where the
    worst case jumps over the limit, a mixture of those on both sides is as good. None where no price is found.

    Parameters
    ----------
    worst : callable
        Returns the worst case without the limit, None where it is not known.
    """
    try:
        return _at_one_limit(worst, row, side, scores)
    except _NotFoundError:
        return None


def _at_one_limit(worst: Callable[[Array], Array | None], row: Array, side: float, scores: Array) -> Array | None:
    def at(price: float) -> tuple[Array, float]:
        p = worst(scores - price * row)
        if p is None:
            raise _NotFoundError
        return p, float(row @ p) - side

    low, (p_low, over) = 0.0, at(0.0)
    if over <= 0.0:
        return p_low
    if not np.ptp(row) > 0.0:
        return None
    high = float(np.ptp(scores)) / float(np.ptp(row))
    for _ in range(60):
        p_high, under = at(high)
        if under <= 0.0:
            break
        low, p_low, over, high = high, p_high, under, 4.0 * high
    else:
        return None
    shrink, halve = 1.0, False
    for step in range(_MOST_STEPS):
        if under == 0.0 or high - low <= 1e-15 * high or over - under <= 1e-15:
            break
        # False position, with the end that stays pulled in; halving now and then, for where it jumps.
        slope = over * (shrink if halve else 1.0)
        price = (low + high) / 2.0 if step % 3 == 2 else (low * -under + high * slope) / (slope - under)
        p, value = at(min(max(price, low), high))
        if value > 0.0:
            low, p_low, over, halve = price, p, value, False
        else:
            halve, shrink = True, 0.5 * shrink if halve else 0.5
            high, p_high, under = price, p, value
    share = over / (over - under) if over > under else 1.0
    return np.asarray((1.0 - share) * p_low + share * p_high)
