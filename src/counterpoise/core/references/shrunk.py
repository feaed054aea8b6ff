"""References of many small contexts: what a model of its own gains a context, shrunk to what contexts gain in common.

The gain is that of the context's own model over the pooled one on the same rows, so that noise common to both
cancels; its standard error is that of held-out rows. Contexts are then taken for draws of a population, with gains of
mean ``g0`` and variance ``tau^2``, and each estimate is moved towards ``g0`` the more, the less its own rows say
(empirical Bayes).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from counterpoise.core.oracle._base import Array
from counterpoise.core.references.rows import ContextRows

Z = 1.959963984540054
"""Standard errors to either side of a 95% interval."""

_NO_SPREAD = 1e-8
"""Share of the least standard error below which a spread between contexts is none."""

_TINY, _HUGE = 1e-300, 1e100
"""Below the first a spread is none; beyond the second squares need not be floats."""


def shrunk_references(rows: ContextRows, own_losses: Array, pooled_losses: Array, own_risks: Array) -> Array:
    """Return the pooled model's risk in each context, less the shrunken gain where that is positive.

    Parameters
    ----------
    own_losses, pooled_losses : ndarray of shape (n_samples,)
        Of rows held out; infinite where the context has no model of its own.
    own_risks : ndarray of shape (n_contexts,)
        The estimate of what the context's own model reaches, infinite where there is none.
    """
    pooled = rows.means(pooled_losses)
    with np.errstate(invalid="ignore"):
        # By chance a few rows may all differ by the same; taken at its word, such a context would decide for all.
        errors = rows.standard_errors(pooled_losses - own_losses, prior=1.0)
        gains = np.where(np.isfinite(own_risks) & np.isfinite(errors), pooled - own_risks, np.nan)
        return pooled - np.maximum(shrunken(gains, errors), 0.0)


def shrunken(gains: Array, errors: Array) -> Array:
    """Return estimates moved towards their common mean by empirical Bayes; that mean for those that are NaN.

    Parameters
    ----------
    gains : ndarray of shape (n_contexts,)
    errors : ndarray of shape (n_contexts,)
        Their standard errors; 0 where an estimate is exact.
    """
    known = np.isfinite(gains)
    if not known.any():
        return np.zeros(len(gains))
    tau, common = between(gains[known], errors[known])
    kept = np.zeros(len(gains))
    if tau > 0.0:
        kept[known] = np.square(tau / np.hypot(tau, errors[known]))
    return common + kept * np.where(known, gains - common, 0.0)


def between(gains: Array, errors: Array) -> tuple[float, float]:
    """Return the standard deviation of true gains between contexts, and their precision-weighted mean.

    By Paule and Mandel: the variance at which the weighted squares add up to what is expected of them,
    ``sum_c (g_c - g0)^2 / (s_c^2 + tau^2) = n_contexts - 1``; 0 where they are less even without it. The weights in it
    are those of the answer itself. DerSimonian and Laird's are those of ``tau = 0``, by which a single large context
    decides where standard errors are very unequal.
    """
    spread = float(np.abs(gains - gains.mean()).max())
    positive = errors[errors > 0.0]
    least = max(_NO_SPREAD * (float(positive.min()) if positive.size else spread), _TINY)
    if len(gains) == 1 or spread <= least or _surplus(least, gains, errors) <= 0.0:
        return 0.0, _common(least, gains, errors)
    # At the standard deviation of the gains the squares are at most what is expected, whatever the standard errors. A
    # factor of two to either side leaves room for rounding.
    most = spread * math.sqrt(float(np.sum(np.square((gains - gains.mean()) / spread))) / (len(gains) - 1))
    low, high = math.log(0.5 * least), math.log(max(2.0 * most, least))
    # In the logarithm, since the answer may be smaller than the spread by orders of magnitude.
    tau = math.exp(brentq(lambda log: _surplus(math.exp(log), gains, errors), low, high, xtol=1e-13, rtol=1e-14))
    return tau, _common(tau, gains, errors)


def _common(tau: float, gains: Array, errors: Array) -> float:
    """Return the mean of the gains, weighted by one over their variance."""
    deviation = np.hypot(errors, tau)
    weight = np.square(deviation.min() / deviation)
    return float(weight @ gains / weight.sum())


def _surplus(tau: float, gains: Array, errors: Array) -> float:
    """Return by how much the weighted squares exceed what is expected of them."""
    with np.errstate(over="ignore"):
        residual = (gains - _common(tau, gains, errors)) / np.hypot(errors, tau)
    return float(np.sum(np.square(np.clip(residual, -_HUGE, _HUGE)))) - (len(gains) - 1)


def reference_bracket(rows: ContextRows, in_sample: Array, own_losses: Array, pooled_losses: Array) -> Array:
    """Return an interval of the least possible risk of each context, of shape (n_contexts, 2).

    A model that has seen its rows is better on them than the best possible, one that has not is worse than it, both in
    expectation; each end is moved outwards by what noise may add (95%, two-sided).

    Parameters
    ----------
    in_sample : ndarray of shape (n_samples,)
        The loss of each row under the model of its context; infinite where there is none, and then so is the low end.
    own_losses, pooled_losses : ndarray of shape (n_samples,)
        The same for rows held out, and that of the pooled model.
    """
    low = rows.means(in_sample) - Z * rows.standard_errors(in_sample)
    own, pooled = rows.means(own_losses), rows.means(pooled_losses)
    by_own, by_pooled = rows.standard_errors(own_losses), rows.standard_errors(pooled_losses)
    high = np.where(own < pooled, own + Z * by_own, pooled + Z * by_pooled)
    return np.column_stack([np.where(np.isnan(low), -np.inf, low), high])
