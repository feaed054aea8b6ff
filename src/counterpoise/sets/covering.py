"""How large a ball of each kind must be to cover the true mix, in the ball's own unit."""

from __future__ import annotations

import math
import warnings
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from counterpoise.exceptions import CoverageWarning, InvalidInputError
from counterpoise.sets._base import share_intervals
from counterpoise.sets.kl import KLBall
from counterpoise.sets.radius import RadiusMethod, checked_counts, confidence_radius

BallKind = Literal["kl", "chi2", "tv"]

CHI2_BALL_DRAWS: dict[RadiusMethod, int] = {"types": 15, "agrawal": 15, "calibrated": 50, "chi2": 50, "anytime": 0}
"""Below this many draws of the rarest context a chi-square ball, sized like a KL ball, may cover less often than asked.

Simulated with .90 and .99 asked, 10 contexts, and all but one expecting as many draws: with 20 draws each, the
calibrated size covers .88 and .97, Agrawal's .99 and 1.00; with 50, .92 and .99. With 3 draws each no size covers more
than .63: a context with no draws has no share in any member.
"""


def covering_radius(
    ball: BallKind,
    counts: ArrayLike,
    confidence: float = 0.99,
    method: RadiusMethod = "types",
    *,
    draws: float | None = None,
) -> float:
    r"""Radius of a ball around the empirical distribution that covers the true one, in the ball's own unit.

    Parameters
    ----------
    ball : {"kl", "chi2", "tv"}
        ``"kl"``: of :class:`KLBall`, in bits: :func:`confidence_radius`.
        ``"chi2"``: of :class:`Chi2Ball`, :math:`2 \ln 2` times the bits: the two balls agree to second order, so this
        covers where every context has draws enough. Where one is rare a warning says so; a context with no draws has no
        share in any member, whatever the size. With ``"anytime"`` it is the largest distance in the KL ball, so that it
        covers wherever that does: infinite as long as a context has no draws.
        ``"tv"``: of :class:`TotalVariationBall`, at most 1. With ``"types"``, ``"agrawal"`` and ``"chi2"`` it is
        :math:`\tfrac12 \sqrt{(C-1)/n} + \sqrt{\ln(1/(1-\beta)) / (2n)}`, a bound on the mean distance and McDiarmid's
        inequality: proven for every mix and every n. With ``"calibrated"`` it is the smaller of two numbers. One is the
        same with a mean smaller by the largest ratio of mean absolute to standard deviation that a binomial count can
        have, about .86, proven as well; the other follows from the calibrated divergence by Pinsker's inequality, and
        covers as that does. That is 20 to 30% less up to 20 contexts, and 10% less with many. With ``"anytime"`` it
        follows by Pinsker's inequality alone: McDiarmid's holds at one number of draws only.
    counts, confidence, method, draws
        As for :func:`confidence_radius`.

    Returns
    -------
    float
    """
    if ball not in get_args(BallKind):
        raise InvalidInputError(f"ball is {ball!r}; choose 'kl', 'chi2' or 'tv'.")
    bits = confidence_radius(counts, confidence, method, draws=draws)
    if ball == "kl":
        return bits
    n_contexts, n_draws = checked_counts(counts, draws)
    if ball == "chi2":
        if method == "anytime":
            return _farthest_in_chi2(np.asarray(counts, dtype=np.float64), bits)
        if n_contexts > 1 and bits < math.inf:
            _warn_of_rare(np.asarray(counts, dtype=np.float64), n_draws, method)
        return 2.0 * math.log(2.0) * bits
    if n_contexts == 1:
        return 0.0
    if bits == math.inf:
        return 1.0
    if method == "anytime":
        return min(math.sqrt(0.5 * math.log(2.0) * bits), 1.0)
    away = math.sqrt(-math.log1p(-confidence) / (2.0 * n_draws))
    mean = 0.5 * math.sqrt((n_contexts - 1) / n_draws)
    if method != "calibrated":
        return min(mean + away, 1.0)
    return min(_largest_deviation_ratio(n_draws) * mean + away, math.sqrt(0.5 * math.log(2.0) * bits), 1.0)


def _farthest_in_chi2(counts: np.ndarray, bits: float) -> float:
    r"""Return the largest chi-square distance from the centre in a KL ball around the shares of counts.

    With :math:`r = p / \hat p` it is the largest :math:`E (r-1)^2` where :math:`E\, r = 1` and :math:`-E \log r` is
    bounded, expectations under :math:`\hat p`. By the conditions of optimality :math:`r` takes two values at most, the
    roots of a quadratic; at the larger one the Lagrangian is convex, so that it belongs to one context alone, or mass
    moved between two would raise the distance. The others are scaled alike: the farthest member is where the share of
    some context is largest.
    """
    if len(counts) == 1:
        return 0.0
    if bits == math.inf or (counts == 0.0).any():
        return math.inf
    ball = KLBall(counts / counts.sum(), bits)
    share, largest = ball.p_hat, share_intervals(ball)[:, 1]
    return float(np.max((largest - share) ** 2 / (share * (1.0 - share))))


def _largest_deviation_ratio(n_draws: float) -> float:
    r"""Return the largest ratio of mean absolute to standard deviation of a binomial count, over all probabilities.

    Below one expected success the mean absolute deviation is :math:`2 n p (1-p)^n`; its ratio to
    :math:`\sqrt{n p (1-p)}` is largest at :math:`p = 1/(2n)`, and no mean above one comes near.
    """
    n = max(math.floor(n_draws), 1)
    return math.sqrt(2.0) * math.exp((n - 0.5) * math.log1p(-0.5 / n))


def _warn_of_rare(counts: np.ndarray, n_draws: float, method: RadiusMethod) -> None:
    least = float(counts.min() * (n_draws / counts.sum()))
    if least < CHI2_BALL_DRAWS[method]:
        warnings.warn(
            f"a chi-square ball under-covers where a context is rare: the rarest stands for {least:g} draws, and "
            f"method={method!r} needs {CHI2_BALL_DRAWS[method]} or more. Use a KL ball, or pool rare contexts.",
            CoverageWarning,
            stacklevel=3,
        )
