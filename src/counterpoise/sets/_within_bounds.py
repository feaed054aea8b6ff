"""The least favourable member of a ball whose shares are bounded, from that of the ball on shares that are not."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from counterpoise.sets._base import Ball
from counterpoise.sets._geometry import Array

_MOST_ROUNDS = 30

_SLACK = 1e-14


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
        below, above = ~held & (p < low - _SLACK), ~held & (p > high + _SLACK)
        free = (at_low & (wanted > low + _SLACK)) | (at_high & (wanted < high - _SLACK))
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


def worst_rows_within_bounds(
    ball: Ball, low: Array, high: Array, scores: Array, first: Array
) -> tuple[Array, NDArray[np.bool_]]:
    """Do the same for many score vectors, those with the same contexts at their bounds together.

    Parameters
    ----------
    scores, first : ndarray of shape (batch, n_contexts)

    Returns
    -------
    p : ndarray of shape (batch, n_contexts)
    found : ndarray of bool of shape (batch,)
        Where it is the worst case; elsewhere another way is needed.
    """
    p, found = np.array(first), np.zeros(len(scores), dtype=bool)
    at_low, at_high = first < low, first > high
    rows = np.arange(len(scores))
    for _ in range(_MOST_ROUNDS):
        if not len(rows):
            break
        patterns, which = np.unique(np.hstack([at_low[rows], at_high[rows]]), axis=0, return_inverse=True)
        left = [
            _held_round(ball, low, high, scores, rows[which.reshape(-1) == k], p, found, at_low, at_high)
            for k in range(len(patterns))
        ]
        rows = np.concatenate(left)
    return p, found


def _held_round(
    ball: Ball,
    low: Array,
    high: Array,
    scores: Array,
    rows: NDArray[np.intp],
    p: Array,
    found: NDArray[np.bool_],
    at_low: NDArray[np.bool_],
    at_high: NDArray[np.bool_],
) -> NDArray[np.intp]:
    """Take one round of rows that hold the same contexts; write what is found, and return the rows that go on."""
    none: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
    held = at_low[rows[0]] | at_high[rows[0]]
    base = np.where(at_low[rows[0]], low, np.where(at_high[rows[0]], high, 0.0))
    mass = 1.0 - float(base.sum())
    rest = None if held.all() or mass <= 1e-12 else ball.conditional(~held, base, mass)
    if rest is None:
        return none
    worst = rest.worst_case(scores[np.ix_(rows, np.flatnonzero(~held))])
    multiplier, nu = np.reshape(worst.multiplier, (-1, 1)), np.reshape(worst.nu, (-1, 1))
    sound = ((multiplier > 0.0) & np.isfinite(multiplier) & np.isfinite(nu))[:, 0]
    own = np.tile(base, (len(rows), 1))
    own[:, ~held] = mass * worst.distribution
    own, rows, multiplier, nu = own[sound], rows[sound], multiplier[sound], nu[sound]
    shares = ball.p_hat / float(ball.p_hat[~held].sum())
    wanted = mass * rest.response(shares, scores[rows], nu, multiplier)
    below, above = ~held & (own < low - _SLACK), ~held & (own > high + _SLACK)
    free = (at_low[rows] & (wanted > low + _SLACK)) | (at_high[rows] & (wanted < high - _SLACK))
    done = ~(below | above | free).any(axis=1)
    p[rows[done]], found[rows[done]] = np.clip(own[done], low, high), True
    # As above: of what lies on both sides, only the side that is further out is certain.
    both = below.any(axis=1) & above.any(axis=1)
    deeper = ((low - own) * below).sum(axis=1) > ((own - high) * above).sum(axis=1)
    above[both & deeper], below[both & ~deeper] = False, False
    at_low[rows], at_high[rows] = (at_low[rows] | below) & ~free, (at_high[rows] | above) & ~free
    return rows[~done]
