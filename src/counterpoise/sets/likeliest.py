r"""The member of a set under which counts are likeliest: the maximum-likelihood estimate of a mix within the set.

With counts :math:`x`, their sum :math:`n` and shares :math:`y = x / n`, it maximises the concave function
:math:`f(p) = \sum_c y_c \log p_c` over the set :math:`P`. Every other mix :math:`q` is worse by :math:`D(y \| q)`, so
this is the member nearest to the shares of the counts: the shares themselves where they are a member.

Every answer comes with a proven upper bound of the maximum. For any place :math:`p` concavity gives

.. math:: \max_{q \in P} f(q) \le f(p) + \max_{q \in P} \sum_c \frac{y_c}{p_c} q_c - 1,

whose right-hand side holds a worst case of the set. Each method proves a bound of it: what is called ``upper`` is never
less, so that :math:`\sum_c y_c\, q_c / p_c` exceeds 1 by no more than ``upper`` exceeds :math:`f(p)`. That makes the
ratio of :math:`y` to :math:`p` evidence against the set: its mean under any member is 1 at most, up to that.

- **KL ball**, :math:`D(\hat p \| p) \le \varepsilon`: the conditions of optimality,
  :math:`y/p + \lambda \hat p/p = \nu`, make the member a mixture :math:`(1-t)\,y + t\,\hat p` with
  :math:`\lambda = t / (1-t)`, and :math:`t` the least for which it is a member: the root of a convex function of one
  variable. The bound is :math:`f(p) + \lambda (\varepsilon - D(\hat p \| p))`, by Jensen's inequality for
  :math:`\sum_c \hat p_c q_c / p_c`.
- **Bounds**: shares are scaled and cut, :math:`p_c = \min(\max(\tau y_c, l_c), u_c)`, with :math:`\tau` such that
  they sum to 1. Within both, the mixture is scaled and cut.
- **Total variation**: shares that rise and shares that fall have a scale each, such that either way the radius is
  moved.
- **Sums by parent**: the parents' likeliest mix, divided within each parent as the counts are.
- **All others**: the central path of :mod:`counterpoise.sets._central_path`, on which the logarithms are one more pole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from counterpoise.exceptions import InvalidInputError
from counterpoise.sets._central_path import maximise
from counterpoise.sets._geometry import Array, Indices, Mask

if TYPE_CHECKING:
    from counterpoise.sets._base import ContextSet

Rows = tuple[Array, Array, Array]
"""Distributions, log-likelihoods per draw, and their upper bounds."""

_AT_ONCE = 1 << 20
"""Entries of the largest array of a batch that is solved at once."""

_ENOUGH = 1e-12
"""Gap, per draw, at which a central path ends."""

_POOR = 1e-10
"""Gap, per draw, from which a second bound is asked for."""


@dataclass(frozen=True, eq=False)
class Likeliest:
    r"""The member of a set under which counts are likeliest.

    For a batch of counts every attribute has a leading axis of that length.

    Attributes
    ----------
    distribution : ndarray of shape (n_contexts,)
        :math:`p^*`.
    log_likelihood : float
        :math:`\sum_c x_c \log p^*_c`, in nats: of a sequence with these counts, in any given order. Minus infinity
        where a context with counts has no probability in any member.
    upper : float
        A proven upper bound of the largest log-likelihood in the set, not below ``log_likelihood``. No member :math:`q`
        has :math:`\sum_c x_c\, q_c / p^*_c` above the sum of the counts by more than the two are apart.
    """

    distribution: Array
    log_likelihood: Any
    upper: Any


def likeliest(mixes: ContextSet, counts: ArrayLike) -> Likeliest:
    """Return the likeliest member for counts of shape (n_contexts,), or for a batch of them."""
    values = shaped_counts(counts, len(mixes.p_hat))
    batch = np.atleast_2d(values)
    draws = batch.sum(axis=1)
    p, found, upper = np.tile(mixes.p_hat, (len(batch), 1)), np.zeros(len(batch)), np.zeros(len(batch))
    rows = np.flatnonzero(draws > 0.0)
    if rows.size:
        shares = batch[rows] / draws[rows, None]
        if mixes.is_point:
            found[rows] = upper[rows] = log_likelihoods(shares, p[rows])
        elif mixes.is_simplex:
            p[rows], found[rows] = shares, log_likelihoods(shares, shares)
            upper[rows] = found[rows]
        else:
            p[rows], found[rows], upper[rows] = mixes.likeliest_rows(shares)
        # Where a count is impossible, it is so for all.
        upper[rows] = np.where(np.isneginf(found[rows]), -math.inf, np.maximum(upper[rows], found[rows]))
    found, upper = _scaled(draws, found), _scaled(draws, upper)
    if values.ndim == 1:
        return Likeliest(p[0], float(found[0]), float(upper[0]))
    return Likeliest(p, found, upper)


def _scaled(draws: Array, per_draw: Array) -> Array:
    return np.where(draws > 0.0, draws, 1.0) * per_draw


def shaped_counts(counts: ArrayLike, n_contexts: int) -> Array:
    """Return counts of shape (n_contexts,) or (batch, n_contexts) as floats, or say what is wrong with them."""
    try:
        values = np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"counts must be numbers, got {counts!r:.60}.") from error
    if values.ndim not in (1, 2) or values.shape[-1] != n_contexts:
        raise InvalidInputError(
            f"counts have shape {values.shape}; the set has {n_contexts} contexts. "
            f"Pass ({n_contexts},), or (batch, {n_contexts}) for several at once."
        )
    if not (np.isfinite(values).all() and values.min(initial=0.0) >= 0.0):
        where = tuple(int(k) for k in np.argwhere(~(np.isfinite(values) & (values >= 0.0)))[0])
        raise InvalidInputError(
            f"the count of context {where[-1]} is {values[where]}; a count is finite and not negative."
        )
    with np.errstate(over="ignore"):
        if not np.isfinite(values.sum(axis=-1)).all():
            raise InvalidInputError("counts add up to more than a float can hold. Pass them in larger units.")
    return values


def log_likelihoods(shares: Array, p: Array) -> Array:
    """Return ``sum shares log p`` of each row; minus infinity where a share has no probability."""
    return np.asarray(special.xlogy(shares, p).sum(axis=1))


def certified(mixes: ContextSet, shares: Array, p: Array) -> Rows:
    """Return members with their log-likelihoods and the upper bounds that a worst case proves."""
    found = log_likelihoods(shares, p)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slopes = np.where(shares > 0.0, shares / p, 0.0)
    # A slope too large for a float, or for a sum of them, bounds nothing; the counts' own shares always do.
    upper = log_likelihoods(shares, shares)
    rows = np.flatnonzero((slopes < 1e300).all(axis=1))
    if rows.size:
        upper[rows] = found[rows] + (mixes.worst_case(slopes[rows]).value - 1.0)
    return p, found, upper


def within_total_variation(mixes: ContextSet, radius: float, shares: Array) -> Rows:
    """Return the likeliest distributions of a total-variation ball."""
    p_hat = mixes.p_hat
    raised = scaled_between(shares, p_hat, np.full_like(p_hat, math.inf), 1.0 + radius)
    lowered = scaled_between(shares, np.zeros_like(p_hat), p_hat, 1.0 - radius)
    inside = 0.5 * np.abs(shares - p_hat).sum(axis=1) <= radius
    # Where a share is raised it is not lowered, and the other way round.
    p = np.where(inside[:, None], shares, np.where(raised > p_hat, raised, lowered))
    return certified(mixes, shares, p / p.sum(axis=1, keepdims=True))


def scaled_between(shares: Array, low: Array, high: Array, total: float) -> Array:
    """Return multiples of shares, cut to bounds, that sum to a total; shares of 0 take what is left, by their room.

    The sum of the cut shares grows with the multiple and is piecewise linear, with a kink wherever a share enters or
    leaves its bounds. Halving finds the two kinks between which the total is reached; there the multiple is a ratio.
    """
    counted = shares > 0.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        places = np.concatenate([np.where(counted, bound / shares, math.inf) for bound in (low, high)], axis=1)
    places = np.pad(np.sort(places, axis=1), ((0, 0), (1, 1)), constant_values=((0.0, 0.0), (0.0, math.inf)))
    rows, below, beyond = (
        np.arange(len(shares)),
        np.zeros(len(shares), dtype=int),
        np.full(len(shares), places.shape[1]),
    )

    def multiplied(multiple: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(counted, multiple[:, None] * shares, 0.0)

    while (open_ := beyond - below > 1).any():
        middle = np.where(open_, (below + beyond) // 2, below)
        short = np.clip(multiplied(places[rows, middle]), low, high).sum(axis=1) < total
        below, beyond = np.where(open_ & short, middle, below), np.where(open_ & ~short, middle, beyond)
    begin, end = places[rows, below], places[rows, np.minimum(beyond, places.shape[1] - 1)]
    with np.errstate(invalid="ignore", over="ignore"):
        around = multiplied(np.where(np.isfinite(end), 0.5 * (begin + end), 2.0 * begin + 1.0))
    free = counted & (around > low) & (around < high)
    held = np.where(counted & (around >= high), high, low)
    loose = np.where(free, shares, 0.0).sum(axis=1)
    left = total - np.where(free, 0.0, held).sum(axis=1)
    multiple = left / np.where(loose > 0.0, loose, 1.0)
    p = np.where(free, np.clip(multiple[:, None] * shares, low, high), held)
    rooms = np.where(counted, 0.0, np.where(np.isfinite(high), high - low, 0.0))
    left = np.where(loose > 0.0, 0.0, np.maximum(total - p.sum(axis=1), 0.0))
    room = rooms.sum(axis=1)
    return np.asarray(p + rooms * (left / np.where(room > 0.0, room, 1.0))[:, None])


def along_central_path(mixes: ContextSet, shares: Array) -> Rows:
    """Return the likeliest members of any set, from its geometry and its inequalities."""
    inside = np.array([mixes.contains(one) and mixes.excess(one) <= 0.0 for one in shares])
    p, found = shares.copy(), log_likelihoods(shares, shares)
    upper, rows = found.copy(), np.flatnonzero(~inside)
    if rows.size == 0:
        return p, found, upper
    start = _start(mixes)
    possible, x = start > 0.0, mixes.lift(start)
    size = len(x) * (len(mixes.geometry.totals) + mixes.constraints(x).values.size)
    for begin in range(0, len(rows), at_once := max(1, _AT_ONCE // size)):
        some = rows[begin : begin + at_once]
        p[some], found[some], upper[some] = _on_central_path(mixes, np.where(possible, shares[some], 0.0), x)
    found[rows] = np.where((shares[rows] > 0.0) & ~possible, -math.inf, 0.0).min(axis=1) + found[rows]
    return p, found, upper


def _start(mixes: ContextSet) -> Array:
    """Return a member well inside that gives every context a probability that has one in any member."""
    p_hat = mixes.p_hat
    missing = np.flatnonzero(p_hat <= 0.0)
    if missing.size == 0:
        return p_hat
    extremes = np.atleast_2d(mixes.worst_case(np.eye(len(p_hat))[missing]).distribution)
    possible = _possible(p_hat, missing, extremes)
    start = 0.75 * p_hat + 0.25 * extremes.mean(axis=0)
    return np.where(possible, start, 0.0)


def _possible(p_hat: Array, missing: Indices, extremes: Array) -> Mask:
    possible = p_hat > 0.0
    # Less than rounding leaves is nothing.
    possible[missing] = np.diagonal(extremes[:, missing]) > 1e-15
    return possible


def _on_central_path(mixes: ContextSet, shares: Array, start: Array) -> Rows:
    geometry, n = mixes.geometry, shares.shape[1]
    extra = geometry.size - n
    logs = np.concatenate([shares, np.zeros((len(shares), extra))], axis=1)
    masses = np.maximum(start[:n], 0.1 / n)
    masses = masses / masses.sum()
    found, error = maximise(geometry, mixes.constraints, np.zeros_like(logs), start, masses, logs, _ENOUGH)
    own = found.x[:, :n]
    p = np.array([mixes.project(one) for one in own])
    values = log_likelihoods(shares, p)
    # The mean slope where the path ended is at most 1 plus its error; at a member each is steeper by what it has lost.
    reach = np.maximum(2.0 + extra, np.abs(found.nu).max(axis=1))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        lost = np.where(shares > 0.0, own / p, 0.0).max(axis=1)
        upper = values + np.maximum((1.0 + reach * error) * lost - 1.0, 0.0)
    second, poor = upper.copy(), np.flatnonzero(~(upper - values <= _POOR))
    if poor.size:
        second[poor] = certified(mixes, shares[poor], p[poor])[2]
    return p, values, np.fmin(upper, second)
