"""What a refit for another mix would gain, estimated from what a fit left behind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.sets._base import checked_distribution

Array = NDArray[np.float64]


def refit_gain(influence: ArrayLike | None, excess: ArrayLike | None, mix: ArrayLike) -> float:
    r"""Estimate by how much a model refitted for a mix lowers the risk in that mix.

    With parabolas in place of the risks it is :math:`q^\top K q / 2`, for the ``context_influence_`` :math:`K`. Near
    the mix that the model is optimal for, where it is 0, that is right to second order; further away it is an estimate.
    It is about the risk on the rows of the fit: part of it is noise that a refit would follow, the more, the fewer rows
    the contexts of the mix have.

    Parameters
    ----------
    influence : ndarray of shape (n_contexts, n_contexts), or None
        ``context_influence_`` of a fitted model.
    excess : ndarray of shape (n_contexts,), or None
        By how much the risk of the model is above the least possible in each context, NaN where that is not known. The
        estimate is never above :func:`most_gain`, where that is known.
    mix : ndarray of shape (n_contexts,)
        Shares, which sum to one.

    Returns
    -------
    float
        Not negative; NaN without ``influence``.

    Examples
    --------
    Two contexts that pull a parameter in opposite directions, and a model for equal shares:

    >>> refit_gain([[1.0, -1.0], [-1.0, 1.0]], [0.5, 0.5], [0.5, 0.5])
    0.0
    >>> refit_gain([[1.0, -1.0], [-1.0, 1.0]], [0.5, 0.5], [0.75, 0.25])
    0.125
    """
    mix = checked_distribution(mix, "mix")
    most = most_gain(excess, mix)
    if influence is None:
        return math.nan
    matrix = _numbers(influence, (mix.size, mix.size), "influence", "context_influence_ of the model")
    if not np.isfinite(matrix).all():
        raise InvalidInputError("influence holds numbers that are not finite. Pass context_influence_ of the model.")
    # Rounding may leave a square a little below zero.
    gain = max(0.5 * float(mix @ matrix @ mix), 0.0)
    return gain if math.isnan(most) else min(gain, most)


def most_gain(excess: ArrayLike | None, mix: ArrayLike) -> float:
    r"""Return what no refit for a mix can exceed: the excess that the model has in that mix.

    No model is better in a mix than the best model of each context is in its own, so a refit gains at most
    :math:`\sum_c q_c \max(\Delta_c, 0)`.

    Parameters
    ----------
    excess : ndarray of shape (n_contexts,), or None
        By how much the risk of the model is above the least possible in each context, NaN where that is not known. An
        estimate below 0 counts as 0.
    mix : ndarray of shape (n_contexts,)
        Shares, which sum to one.

    Returns
    -------
    float
        NaN where the excess of a context in the mix is not known.

    Examples
    --------
    >>> most_gain([0.4, -0.1], [0.25, 0.75])
    0.1
    """
    mix = checked_distribution(mix, "mix")
    if excess is None:
        return math.nan
    values = _numbers(excess, mix.shape, "excess", "excess_risks_ of the model")
    present = mix > 0.0
    return float(mix[present] @ np.maximum(values[present], 0.0))


def _numbers(values: Any, shape: tuple[int, ...], name: str, meant: str) -> Array:
    """Return numbers of a shape, or say what is wrong with them."""
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} must be numbers, got {values!r:.60}. Pass {meant}.") from error
    if found.shape != shape:
        raise InvalidInputError(f"{name} has shape {found.shape}, but the mix has {shape[0]} contexts. Pass {meant}.")
    return found
