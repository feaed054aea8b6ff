"""How many standard errors keep a worst case in a KL ball at a goal: found together with the worst mix itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterpoise.sets import KLBall

Array = NDArray[np.float64]

_CHUNK = 1 << 15
"""Scores of one competitor taken at once: their temporaries stay in the cache."""

_FIRST = 32
"""Draws of the first chunk, whose roots tell the others where to begin."""

_STEPS = 20
"""After which a draw is left to the nested search."""

_SMALLEST, _LARGEST = 1e-4, 20.0
"""Nats between which a divergence is the sum of two logarithms without losing its digits."""

_NEAR = 1e-3
"""Steps of the multiple, relative to one more than itself, after which the next would be below their squares."""

_NEAR_OFFSET = 3e-2
"""The same of the offset, relative to itself, which the multiple depends on in second order only."""


@dataclass(frozen=True, eq=False)
class JointRoots:
    r"""The least multiples :math:`\kappa` of a scale that keep the worst case in a KL ball at a goal.

    With :math:`x = \max_k (b_k - \kappa s_k)` and :math:`d = \nu - x`, the worst case equals the goal where

    .. math:: \sum_c \hat p_c \log d_c + \log \sum_c \hat p_c / d_c = \epsilon, \qquad
        (\nu - \text{goal}) \sum_c \hat p_c / d_c = 1,

    two equations in :math:`\kappa` and :math:`\nu`, which Newton's method solves together: a step costs one logarithm
    and one division of each score, where a worst mix for every :math:`\kappa` takes many. Unjudged contexts have the
    worst case itself as their score, which at the root is the goal.

    Attributes
    ----------
    shares : ndarray of shape (n_judged,)
        :math:`\hat p` of the judged contexts.
    rest : float
        That of all others.
    eps : float
        The radius in nats.
    """

    shares: Array
    rest: float
    eps: float

    @classmethod
    def of(cls, mixes: object, judged: NDArray[np.bool_]) -> JointRoots | None:
        """Return the search in a set of mixes; None where numbers are extreme, or the set is no KL ball."""
        if not isinstance(mixes, KLBall) or mixes.is_point:
            return None
        eps, shares = math.log(2.0) * mixes.radius, mixes.p_hat[: len(judged)][judged]
        if not (_SMALLEST < eps < _LARGEST and shares.min(initial=1.0) > 0.0):
            return None
        rest = float(mixes.p_hat[: len(judged)][~judged].sum() + mixes.p_hat[len(judged) :].sum())
        return cls(shares, rest, eps)

    def solve(self, centre: Array, errors: Array, scale: Array, goals: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Return a multiple for each draw, and which of them were found.

        Parameters
        ----------
        centre : ndarray of shape (n_judged, n_competitors)
            Minus infinity where there is no score.
        errors, scale : ndarray of shape (n_draws, n_judged, n_competitors)
        goals : ndarray of shape (n_draws,)
        """
        n_draws = len(goals)
        kappa, found = np.zeros(n_draws), np.zeros(n_draws, dtype=bool)
        start, width = (
            (0.0, self._first_offset((centre + errors[0]).max(axis=1))),
            max(1, _CHUNK // max(len(self.shares), 1)),
        )
        begin, end = 0, min(_FIRST, width, n_draws)
        while begin < n_draws:
            some = slice(begin, end)
            bases = [np.ascontiguousarray(centre[:, k] + errors[some, :, k]) for k in range(centre.shape[1])]
            scales = [np.ascontiguousarray(scale[some, :, k]) for k in range(centre.shape[1])]
            for base in bases:
                base -= goals[some, None]
            kappa[some], offset, found[some] = self._roots(bases, scales, start)
            if (there := found[some]).any():
                start = float(np.median(kappa[some][there])), float(np.median(offset[there]))
            begin, end = end, min(end + width, n_draws)
        return kappa, found

    def _first_offset(self, scores: Array) -> float:
        """Return how far above the largest score nu is, for scores of one draw."""
        ball = KLBall(self.shares / self.shares.sum(), self.eps / math.log(2.0))
        offset = ball.worst_case(scores).nu - scores.max()
        return float(offset) if 0.0 < offset < math.inf else 1.0

    def _roots(
        self, bases: list[Array], scales: list[Array], start: tuple[float, float]
    ) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Return multiples, offsets of nu above the largest score, and where both were found."""
        n = len(bases[0])
        with np.errstate(all="ignore"):
            # No worst case is above the largest score, so no root is above the one for that.
            limit = np.max(
                [np.where(s > 0, b / s, -np.inf).max(axis=1) for b, s in zip(bases, scales, strict=True)], axis=0
            )
            kappa = np.minimum(start[0], limit - 0.1 * (1.0 + np.abs(limit)))
            offset, found = np.full(n, start[1]), np.zeros(n, dtype=bool)
            open_ = np.arange(n)
            for _ in range(_STEPS):
                at = kappa[open_]
                move, factor, slack = self._step(bases, scales, at, offset[open_])
                move, factor = np.minimum(move, 0.95 * (limit[open_] - at)), np.clip(factor, -2.0, 2.0)
                sane = np.isfinite(move) & np.isfinite(factor)
                kappa[open_[sane]] += move[sane]
                offset[open_[sane]] *= np.exp(factor[sane])
                tolerance = _NEAR * (1.0 + np.abs(at))
                near = (np.abs(move) <= tolerance) & ((np.abs(factor) <= _NEAR_OFFSET) | (slack <= tolerance))
                found[open_[near & sane]] = True
                left = np.flatnonzero(~near & sane)
                if not left.size:
                    break
                if left.size < len(open_):
                    open_ = open_[left]
                    bases, scales = [base[left] for base in bases], [scale[left] for scale in scales]
        return kappa, offset, found

    def _step(self, bases: list[Array], scales: list[Array], kappa: Array, offset: Array) -> tuple[Array, Array, Array]:
        """Return Newton's steps of the multiples and of the logarithms of the offsets.

        Beside them, by how much a multiple may be off that takes the dual bound for the worst case.
        """
        shares, scale = self.shares, scales[0]
        scores = bases[0] - kappa[:, None] * scale
        for base, own in zip(bases[1:], scales[1:], strict=True):
            other = base - kappa[:, None] * own
            # Rather than a choice, whose branches nothing foretells.
            scale = scale + (own - scale) * (other > scores)
            np.maximum(scores, other, out=scores)
        highest = (np.arange(len(scores)), scores.argmax(axis=1))
        # Relative to the goal: nu is the multiplier of the ball where the worst case is at the goal.
        nu = scores[highest] + offset
        below = np.subtract(nu[:, None], scores, out=scores)
        inverse = 1.0 / below
        weighted = inverse * scale
        logs = np.log(below, out=below) @ shares + self.rest * np.log(nu)
        mass, slope = inverse @ shares + self.rest / nu, weighted @ shares
        weighted *= inverse
        square_slope = weighted @ shares
        inverse *= inverse
        square = inverse @ shares + self.rest / nu**2
        # The divergence's equation, and that of the dual bound of the worst case, which nu does not move at the root.
        by_nu, by_kappa, above = mass - square / mass, slope - square_slope / mass, self.eps - logs - np.log(mass)
        multiplier = np.exp(logs - self.eps)
        bound, bound_by_nu = nu - multiplier, 1.0 - multiplier * mass
        move = (bound * by_nu + bound_by_nu * above) / (multiplier * slope * by_nu + bound_by_nu * by_kappa)
        step = (above - by_kappa * move) / by_nu
        slack = (np.abs(above) + np.abs(np.expm1(-above))) / slope
        return move, (step + scale[highest] * move) / offset, slack
