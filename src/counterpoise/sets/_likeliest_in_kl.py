"""The likeliest member of a KL ball, alone or within bounds, in closed form but for one root."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from counterpoise.sets._geometry import Array, Indices
from counterpoise.sets._one_row import log1p_minus
from counterpoise.sets.likeliest import Rows, log_likelihoods, scaled_between

_FARTHEST = 700.0
"""Largest absolute log-odds of the two ends of a mixture: beyond it one of them is below the smallest float."""

_ODDS = 40.0
"""The same where shares are cut to bounds: what lies beyond differs by rounding."""

_MOST_STEPS = 120


def within_kl(p_hat: Array, eps: float, shares: Array) -> Rows:
    """Return the likeliest distributions within ``eps`` nats of ``p_hat``, finite and positive."""
    seen = p_hat > 0.0
    mixture = _Mixture(p_hat[seen], shares[:, seen] / p_hat[seen], shares[:, ~seen].sum(axis=1))
    with np.errstate(all="ignore"):
        outside = mixture.divergence_of_shares() > eps
    p, slack = shares.copy(), np.zeros(len(shares))
    rows = np.flatnonzero(outside)
    if rows.size:
        some = mixture.at(rows)
        log_odds = _boundary(some, eps)
        with np.errstate(all="ignore"):
            to_centre, to_shares = special.expit(log_odds), special.expit(-log_odds)
            p[rows] = to_shares[:, None] * shares[rows] + to_centre[:, None] * p_hat
            slack[rows] = np.exp(log_odds) * (eps - some.divergence(log_odds)[0])
    found = log_likelihoods(shares, p)
    return p, found, found + slack


@dataclass(frozen=True, eq=False)
class _Mixture:
    """Mixtures of the shares of counts and a centre, which is positive; only the shares have unseen contexts."""

    centre: Array
    ratios: Array
    unseen: Array

    def at(self, rows: Indices) -> _Mixture:
        return _Mixture(self.centre, self.ratios[rows], self.unseen[rows])

    def divergence_of_shares(self) -> Array:
        return np.asarray(self.unseen - log1p_minus(self.ratios - 1.0, self.ratios) @ self.centre)

    def divergence(self, log_odds: Array) -> tuple[Array, Array]:
        """Return the divergence of the centre from the mixture, and its derivative in the log-odds of the centre.

        A mixture is ``1 + u`` times the centre, and the mean of ``u`` is what the unseen contexts take: written with
        it, first-order terms cancel on paper instead of in floating point.
        """
        to_centre, to_shares = special.expit(log_odds), special.expit(-log_odds)
        away = self.ratios - 1.0
        u = to_shares[:, None] * away
        one_plus_u = to_centre[:, None] + to_shares[:, None] * self.ratios
        value = to_shares * self.unseen - log1p_minus(u, one_plus_u) @ self.centre
        slope = (u * away / one_plus_u) @ self.centre + self.unseen
        return value, -to_centre * to_shares * slope


def _boundary(mixture: _Mixture, eps: float) -> Array:
    """Return the log-odds at which mixtures have divergence ``eps``, row by row, by safeguarded Newton steps.

    The divergence falls in the log-odds: almost linearly where it is large, and its logarithm so where it is small.
    Newton works on whichever is the straighter.
    """
    away = mixture.ratios - 1.0
    # Near the centre the divergence is unseen u + variance u^2 / 2.
    variance = (away * away) @ mixture.centre
    u = 2.0 * eps / (mixture.unseen + np.sqrt(mixture.unseen**2 + 2.0 * eps * variance))
    x = np.clip(special.logit(1.0 - np.minimum(u, 0.5)) if eps > 1e-3 else -np.log(u), -_FARTHEST, _FARTHEST)
    low, high = np.full(len(x), -_FARTHEST), np.full(len(x), _FARTHEST)
    log_odds, active = x.copy(), np.arange(len(x))
    with np.errstate(all="ignore"):
        for _ in range(200):
            divergence, slope = mixture.divergence(x)
            too_large = divergence > eps
            low, high = np.where(too_large, x, low), np.where(too_large, high, x)
            step = (eps - divergence) / slope if eps > 1.0 else divergence * np.log(eps / divergence) / slope
            new = x + step
            new = np.where(np.isfinite(new) & (new >= low) & (new <= high), new, 0.5 * (low + high))
            log_odds[active] = new
            # Quadratic convergence: after a step this small the next would be below rounding.
            unfinished = np.abs(new - x) > 1e-9 * np.maximum(1.0, np.abs(x))
            if not unfinished.any():
                break
            x = new
            if not unfinished.all():
                x, low, high, active = (one[unfinished] for one in (x, low, high, active))
                mixture = mixture.at(np.flatnonzero(unfinished))
    return log_odds


def within_kl_and_bounds(p_hat: Array, eps: float, low: Array, high: Array, shares: Array) -> Rows:
    """Return the likeliest distributions within ``eps`` nats of ``p_hat`` and within bounds, where both bind.

    At the price ``t / (1 - t)`` of the divergence the likeliest within bounds is the mixture, scaled and cut; its
    divergence falls in ``t``, whose log-odds are found by false position.
    """
    seen = p_hat > 0.0

    def at(log_odds: Array, rows: Indices) -> tuple[Array, Array]:
        to_centre, to_shares = special.expit(log_odds)[:, None], special.expit(-log_odds)[:, None]
        p = scaled_between(to_shares * shares[rows] + to_centre * p_hat, low, high, 1.0)
        with np.errstate(divide="ignore"):
            ratios = p[:, seen] / p_hat[seen]
            unseen = p[:, ~seen].sum(axis=1)
            return p, np.asarray(unseen - log1p_minus(ratios - 1.0, ratios) @ p_hat[seen] - eps)

    rows = np.arange(len(shares))
    near, far = np.full(len(shares), -_ODDS), np.full(len(shares), _ODDS)
    over, (p, under) = at(near, rows)[1], at(far, rows)
    slack = -np.exp(far) * np.minimum(under, 0.0)
    for step in range(_MOST_STEPS):
        some = np.flatnonzero((far - near > 1e-15 * np.abs(far)) & (slack > 1e-14))
        if some.size == 0:
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            guess = (near[some] * -under[some] + far[some] * over[some]) / (over[some] - under[some])
        halves = 0.5 * (near[some] + far[some])
        guess = np.where((guess > near[some]) & (guess < far[some]) & (step % 4 < 3), guess, halves)
        found, excess = at(guess, some)
        inside = excess <= 0.0
        # The end that stays counts half, or false position would approach from one side only.
        far[some[inside]], under[some[inside]], p[some[inside]] = guess[inside], excess[inside], found[inside]
        slack[some[inside]] = -np.exp(guess[inside]) * excess[inside]
        over[some[inside]] *= 0.5
        near[some[~inside]], over[some[~inside]] = guess[~inside], excess[~inside]
        under[some[~inside]] *= 0.5
    values = log_likelihoods(shares, p)
    return p, values, values + slack
