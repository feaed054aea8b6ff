"""Mixes by which no source is read too often within a budget of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import EmptySetError, InvalidInputError
from counterpoise.sets import ContextSet, ShareBounds


def within_budget(
    mixes: ContextSet, tokens: NDArray[np.float64], budget: float, max_epochs: float, names: Sequence[str]
) -> ContextSet:
    """Return the members of a set by which no source is read more than ``max_epochs`` times.

    Parameters
    ----------
    mixes : ContextSet
    tokens : ndarray of shape (n_sources,)
        What each source has.
    budget : float
        Tokens that are read in all.
    max_epochs : float
    names : sequence of str
        Of the sources, for errors.
    """
    highest = max_epochs * tokens / budget
    # Rounding must not refuse a budget that uses every epoch of every source.
    if highest.sum() < 1.0 - 1e-9:
        raise InvalidInputError(
            f"a budget of {budget:.4g} tokens is more than {max_epochs:g} epochs of all sources, which have "
            f"{tokens.sum():.4g}. Lower the budget, or raise max_epochs."
        )
    if (highest >= 1.0).all():
        return mixes
    highest = highest / min(highest.sum(), 1.0)
    bounds = ShareBounds(np.zeros_like(highest), highest, labels=tuple(names))
    if mixes.is_simplex:
        return bounds
    try:
        both = mixes & bounds
        both.p_hat  # noqa: B018 - whether there is any
    except EmptySetError as error:
        raise EmptySetError(
            f"no mix that is plausible reads every source at most {max_epochs:g} times within the budget of "
            f"{budget:.4g} tokens: {error} Raise max_epochs, or widen mix."
        ) from error
    return both
