"""The least favourable member of a ball whose shares are bounded, from that of the ball on shares that are not."""

from __future__ import annotations

import math

import numpy as np

from counterpoise.sets._base import Ball
from counterpoise.sets._geometry import Array

_MOST_ROUNDS = 30


def worst_within_bounds(ball: Ball, low: Array, high: Array, scores: Array, first: Array) -> Array | None:
    """Return the distribution, or None where the contexts at their bounds are not soon found.

    With some contexts held at a bound, the others form a ball of their own. What leaves its bounds is held there, and
    what would leave the bound it is held at inwards is let go, until neither happens: then the conditions of
    optimality hold.

    Parameters
    ----------
    first : ndarray of shape (n_contexts,)
        The least favourable member without bounds.
    """
    at_low, at_high = first < low, first > high
    for _ in range(_MOST_ROUNDS):
        held = at_low | at_high
        p = np.where(at_low, low, np.where(at_high, high, 0.0))
        mass = 1.0 - float(p.sum())
        if held.all() or mass <= 1e-12:
            return None
        rest = ball.conditional(~held, p, mass)
        if rest is None:
            return None
        worst = rest.worst_case(scores[~held])
        if not (worst.multiplier > 0.0 and math.isfinite(worst.multiplier) and math.isfinite(worst.nu)):
            return None
        p[~held] = mass * worst.distribution
        wanted = mass * rest.response(ball.p_hat / float(ball.p_hat[~held].sum()), scores, worst.nu, worst.multiplier)
        slack = 1e-14
        below, above = ~held & (p < low - slack), ~held & (p > high + slack)
        free = (at_low & (wanted > low + slack)) | (at_high & (wanted < high - slack))
        if not (below | above | free).any():
            return np.clip(p, low, high)
        # What lies on both sides pulls in opposite directions: only the side that is further out is certain.
        if below.any() and above.any():
            if float((low - p)[below].sum()) > float((p - high)[above].sum()):
                above[:] = False
            else:
                below[:] = False
        at_low, at_high = (at_low | below) & ~free, (at_high | above) & ~free
    return None
