"""What every set of context distributions offers, and what its least favourable member looks like."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoise.exceptions import InvalidInputError

Array = NDArray[np.float64]

NORMALISATION_TOLERANCE = 1e-8
"""How far from 1 a distribution may sum before it is taken for a mistake instead of rounding."""


@dataclass(frozen=True, eq=False)
class WorstCase:
    r"""The least favourable distribution of a set for given scores.

    For a batch of score vectors every attribute has a leading axis of that length.

    Attributes
    ----------
    distribution : ndarray of shape (n_contexts,)
        :math:`p^*`; it sums to one and is never negative.
    value : float
        :math:`\sum_c p^*_c s_c`, the largest expected score in the set.
    nu, multiplier : float
        The dual variables: :math:`p^*_c = \lambda\,\hat p_c / (\nu - s_c)` wherever :math:`\hat p_c > 0`.
        Both are infinite at radius 0; the multiplier is 0 where the set does not bind.
    p_hat : ndarray of shape (n_contexts,)
        The centre of the set.
    """

    distribution: Array
    value: Any
    nu: Any
    multiplier: Any
    p_hat: Array

    @property
    def weights(self) -> Array:
        r"""The paper's :math:`w_c = p^*_c / \hat p_c - 1`, in :math:`[-1,\ 1/\hat p_c - 1]`; infinite where unseen."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.distribution / self.p_hat
        return np.where(np.isnan(ratio), 1.0, ratio) - 1.0


@dataclass(frozen=True)
class Constraint:
    """A smooth convex inequality ``value(p) <= 0`` at one point.

    Together with ``p >= 0`` and ``sum p = 1`` it describes a set to an interior-point solver.
    """

    value: float
    gradient: Array


class ContextSet(Protocol):
    """A convex set of context distributions around an empirical one."""

    @property
    def p_hat(self) -> Array:
        """The empirical distribution the set surrounds."""

    @property
    def is_point(self) -> bool:
        """Whether the empirical distribution is the only member."""

    @property
    def is_simplex(self) -> bool:
        """Whether every distribution is a member."""

    def worst_case(self, scores: ArrayLike) -> WorstCase:
        """Return the member with the largest expected score."""

    def contains(self, p: ArrayLike) -> bool:
        """Tell whether ``p`` is a member."""

    def interval(self, context: int) -> tuple[float, float]:
        """Return the smallest and the largest probability any member gives to one context."""

    def constraint(self, p: Array) -> Constraint | None:
        """Return the inequality that bounds the set beyond the simplex, at ``p``; None if there is none."""

    def pull_inside(self, p: Array) -> Array:
        """Return a member close to ``p``, for a distribution that left the set by a little."""


def checked_distribution(p: ArrayLike, name: str) -> Array:
    """Return a read-only float copy of ``p`` that sums to one, or say what is wrong with it."""
    try:
        values = np.array(p, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} must be numbers, got {p!r:.60}. Pass one probability per context.") from error
    if values.ndim != 1 or values.size == 0:
        raise InvalidInputError(f"{name} must be one-dimensional with at least one context, got shape {values.shape}.")
    if bad := _first(~np.isfinite(values) | (values < 0)):
        k = bad[0]
        raise InvalidInputError(
            f"{name}[{k}] = {values[k]}; probabilities must be finite and not negative. Pass counts / counts.sum()."
        )
    with np.errstate(over="ignore"):
        total = values.sum()
    if abs(total - 1.0) > NORMALISATION_TOLERANCE:
        raise InvalidInputError(f"{name} sums to {total:.12g}, not 1. Pass counts / counts.sum().")
    values /= total
    values.flags.writeable = False
    return values


def shaped_scores(scores: ArrayLike, n_contexts: int) -> Array:
    """Return scores of shape (n_contexts,) or (batch, n_contexts) as floats."""
    try:
        values = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"scores must be numbers, got {scores!r:.60}.") from error
    if values.ndim not in (1, 2) or values.shape[-1] != n_contexts:
        raise InvalidInputError(
            f"scores have shape {values.shape}; the set has {n_contexts} contexts. "
            f"Pass ({n_contexts},), or (batch, {n_contexts}) for several at once."
        )
    return values


def refuse_infinite(values: Array) -> None:
    """Say which score is not finite, if one is not."""
    finite = np.isfinite(values)
    if not finite.all():
        where = tuple(int(k) for k in np.argwhere(~finite)[0])
        raise InvalidInputError(
            f"the score of context {where[-1]} is {values[where]}; scores must be finite. "
            "Drop the context, or supply its risk."
        )


def _first(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the first true index in a tuple, empty when there is none."""
    hits: Iterable[int] = np.flatnonzero(mask)[:1]
    return tuple(int(k) for k in hits)
