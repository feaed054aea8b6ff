"""The least favourable member of a ball whose shares are bounded, from that of the ball on shares that are not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from counterpoise.sets._base import Ball
from counterpoise.sets._geometry import Array, Indices, Mask

_MOST_ROUNDS = 30

_SLACK = 1e-14


def worst_within_bounds(ball: Ball, low: Array, high: Array, scores: Array, first: Array) -> tuple[Array, Mask]:
    """Return distributions for a batch of scores, and for which the contexts at their bounds were found.

    With some contexts held at a bound, the others form a ball of their own. What leaves its bounds is held there, and
    what would leave the bound it is held at inwards is let go, until neither happens: then the conditions of
    optimality hold. Rows with the same contexts at their bounds are solved together.

    Parameters
    ----------
    scores, first : ndarray of shape (batch, n_contexts)
        ``first`` are the least favourable members without bounds.
    """
    at_low, at_high = first < low, first > high
    p, done, open_ = first.copy(), np.zeros(len(scores), dtype=bool), np.arange(len(scores))
    for _ in range(_MOST_ROUNDS):
        kept = []
        for rows in _alike(at_low, at_high, open_):
            below, above = at_low[rows[0]], at_high[rows[0]]
            found = _with_some_held(ball, np.where(below, low, np.where(above, high, 0.0)), below | above, scores[rows])
            if found is None:
                continue
            p[rows], wanted = found
            free = (below & (wanted > low + _SLACK)) | (above & (wanted < high - _SLACK))
            under, over = ~(below | above) & (p[rows] < low - _SLACK), ~(below | above) & (p[rows] > high + _SLACK)
            # What lies on both sides pulls in opposite directions: only the side that is further out is certain.
            lacks, exceeds = (
                np.where(one, np.abs(p[rows] - side), 0.0).sum(axis=1) for one, side in ((under, low), (over, high))
            )
            under, over = under & ((lacks > exceeds) | (exceeds == 0.0))[:, None], over & (lacks <= exceeds)[:, None]
            done[rows] = ~(under | over | free).any(axis=1)
            at_low[rows], at_high[rows] = (below | under) & ~free, (above | over) & ~free
            kept.append(rows[~done[rows]])
        open_ = np.concatenate(kept) if kept else open_[:0]
        if open_.size == 0:
            break
    return np.clip(p, low, high), done


def _alike(at_low: Mask, at_high: Mask, rows: Indices) -> Iterator[Indices]:
    """Yield the rows that have the same contexts at their bounds."""
    if len(rows) == 1:
        yield rows
        return
    packed = np.packbits(np.concatenate([at_low[rows], at_high[rows]], axis=1), axis=1)
    _, group = np.unique(packed, axis=0, return_inverse=True)
    order = np.argsort(group.ravel(), kind="stable")
    yield from np.split(rows[order], np.flatnonzero(np.diff(group.ravel()[order])) + 1)


def _with_some_held(ball: Ball, held_at: Array, held: Mask, scores: Array) -> tuple[Array, Array] | None:
    """Return least favourable distributions with some shares held, and the shares that these would have by themselves.

    None where they leave the others no mass, or no ball.
    """
    mass = 1.0 - float(held_at.sum())
    rest = ball.conditional(~held, held_at, mass) if mass > 1e-12 and not held.all() else None
    if rest is None:
        return None
    free = scores[:, ~held]
    worst = rest.worst_case(free[0] if len(free) == 1 else free)
    nu, multiplier = (np.atleast_1d(one)[:, None] for one in (worst.nu, worst.multiplier))
    if not (np.isfinite(nu).all() and np.isfinite(multiplier).all() and (multiplier > 0.0).all()):
        return None
    p = np.tile(held_at, (len(scores), 1))
    p[:, ~held] = mass * np.atleast_2d(worst.distribution)
    shares = ball.p_hat / float(ball.p_hat[~held].sum())
    return p, mass * rest.response(shares, scores, nu, multiplier)
