"""What every set of context distributions offers, and what its least favourable member looks like."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.sets._geometry import Array, Constraints, Geometry
from counterpoise.sets.likeliest import Likeliest, along_central_path, likeliest
from counterpoise.sets.sensitivity import Sensitivity

if TYPE_CHECKING:
    from counterpoise.sets.intersection import Intersection

NORMALISATION_TOLERANCE = 1e-8
"""How far from 1 a distribution may sum before it is taken for a mistake instead of rounding."""

MEMBERSHIP_TOLERANCE = 1e-9
"""By how much ``contains`` forgives rounding in a divergence."""

SMALLEST = float(np.finfo(np.float64).tiny)
"""The smallest probability a seen context keeps."""

_LEAST_SHARE = 1e-30
"""The smallest share a seen context counts with: far below rounding, and far from where products underflow."""

_BATCH_ENTRIES = 1 << 14
"""Scores solved for at once: what is computed of them then stays in the cache."""


_INTERVALS = 256
"""Contexts whose intervals are found at once."""


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
        The dual variables, of ``sum p = 1`` and of the set's own inequality (one each, where there are several):
        :math:`s - \nu = \lambda \nabla g(p^*)` wherever :math:`p^*_c > 0`. For a KL ball that is
        :math:`p^*_c = \lambda\,\hat p_c / (\nu - s_c)`. Both are infinite at radius 0; the multiplier is 0 where the
        set does not bind.
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


class ContextSet(ABC):
    """A convex set of context distributions around one of its members.

    ``p_hat``, an attribute or a property, is that member, inside every inequality: the centre of a ball, or a mix well
    inside a set that has none. ``labels``, one word for each context, name contexts in messages.
    """

    p_hat: Array
    labels: tuple[str, ...] | None = None

    def __and__(self, other: ContextSet) -> Intersection:
        """Return the set of the distributions that both sets contain."""
        from counterpoise.sets.intersection import Intersection

        return Intersection((self, other)) if isinstance(other, ContextSet) else NotImplemented

    @property
    @abstractmethod
    def is_point(self) -> bool:
        """Whether ``p_hat`` is the only member."""

    @property
    @abstractmethod
    def is_simplex(self) -> bool:
        """Whether every distribution is a member."""

    @property
    @abstractmethod
    def centre(self) -> ContextSet:
        """The set whose only member is ``p_hat``."""

    @abstractmethod
    def worst_case(self, scores: ArrayLike) -> WorstCase:
        """Return the member with the largest expected score.

        Parameters
        ----------
        scores : array-like of shape (n_contexts,) or (batch, n_contexts)
        """

    def likeliest(self, counts: ArrayLike) -> Likeliest:
        r"""Return the member under which counts are likeliest: the largest :math:`\sum_c x_c \log p_c`.

        Parameters
        ----------
        counts : array-like of shape (n_contexts,) or (batch, n_contexts)
            Not negative; fractions are allowed. Where all are 0 the member is ``p_hat``.
        """
        return likeliest(self, counts)

    def likeliest_rows(self, shares: Array) -> tuple[Array, Array, Array]:
        """Return likeliest members for a batch of shares of counts, their log-likelihoods per draw, and upper bounds.

        The set is neither a point nor the simplex. By default they are found along a central path.
        """
        return along_central_path(self, shares)

    @abstractmethod
    def contains(self, p: ArrayLike) -> bool:
        """Tell whether the distribution ``p`` is a member, up to rounding."""

    @abstractmethod
    def interval(self, context: int) -> tuple[float, float]:
        """Return the smallest and the largest probability any member gives to the context at this index."""

    @abstractmethod
    def constraints(self, x: Array) -> Constraints:
        """Return the smooth inequalities that bound the set beyond its geometry; none for a point.

        Parameters
        ----------
        x : ndarray of shape (..., n_coordinates)
            The coordinates of the geometry: probabilities, unless the set says otherwise.
        """

    @cached_property
    def geometry(self) -> Geometry:
        """The coordinates of the set and what is linear about it; the simplex by default."""
        return Geometry.simplex(len(self.p_hat))

    def lift(self, p: Array) -> Array:
        """Return the coordinates of a distribution, well inside the set's links if it is well inside the set."""
        return p

    def excess(self, p: Array) -> float:
        """Return how far outside its smooth inequalities a distribution is: convex, and not positive for members."""
        return float(np.max(self.constraints(self.lift(p)).values, initial=-math.inf))

    @property
    def support(self) -> NDArray[np.bool_]:
        """Which contexts any member gives a probability."""
        return np.ones(len(self.p_hat), dtype=bool)

    @abstractmethod
    def project(self, p: Array) -> Array:
        """Return a member close to ``p``, for a distribution that left the set by a little."""

    @property
    def where(self) -> str:
        """Where its members lie, in words that go on "every mix ..."."""
        return f"in the {type(self).__name__} that was given"

    def interior(self, scores: Array) -> WorstCase:
        """Return a member well inside the set that leans to large scores: where an interior-point solver starts.

        A probability that is 0 there stays 0. The dual variables are those of its own least favourable distribution;
        infinite where they are not known.
        """
        p = 0.75 * self.p_hat + 0.25 * self.worst_case(scores).distribution
        return WorstCase(p, float(p @ scores), math.inf, math.inf, self.p_hat)

    def sensitivity(self, worst: WorstCase, scores: Array) -> Sensitivity | None:
        r"""Return the derivative of the least favourable distribution in the scores, :math:`\partial p^* / \partial s`.

        It is the Hessian of the worst-case value. None where there is none, or none is known.

        Parameters
        ----------
        worst : WorstCase
            For these scores.
        scores : ndarray of shape (n_contexts,)
        """
        return None


@dataclass(frozen=True, eq=False)
class Ball(ContextSet):
    """Distributions whose divergence from the empirical one is at most ``radius``.

    The divergence is convex, 0 at the empirical distribution, and an f-divergence: it does not grow where contexts are
    lumped together. A subclass supplies it, with the least favourable member for given scores.
    """

    p_hat: Array
    radius: float
    labels: tuple[str, ...] | None = field(default=None, kw_only=True, repr=False)
    around: str = field(default="the data", kw_only=True, repr=False)
    """What ``p_hat`` are the shares in, in words."""

    unit: ClassVar[str] = "a number"
    """What a radius is, in words."""

    measure: ClassVar[str] = ""
    """What follows the number."""

    def __post_init__(self) -> None:
        try:
            radius = float(self.radius)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(f"radius must be {self.unit}, got {self.radius!r:.60}.") from error
        if not radius >= 0.0:
            raise InvalidInputError(f"radius = {self.radius}; it is {self.unit}, 0 or more (inf: the simplex).")
        p_hat = checked_distribution(self.p_hat, "p_hat")
        # A share below this is seen, and no more: nothing that follows from it could be told from rounding.
        object.__setattr__(self, "p_hat", _at_least(p_hat, _LEAST_SHARE) if (p_hat < _LEAST_SHARE).any() else p_hat)
        object.__setattr__(self, "radius", radius)

    @property
    def is_point(self) -> bool:
        """Whether the empirical distribution is the only member."""
        return self.radius == 0.0 or self.p_hat.size == 1

    @property
    def is_simplex(self) -> bool:
        """Whether every distribution is a member."""
        return math.isinf(self.radius)

    @property
    def where(self) -> str:
        """Where its members lie, in words that go on "every mix ..."."""
        return f"within {self.radius:.3g}{self.measure} of the shares in {self.around}"

    def resized(self, radius: float) -> Self:
        """Return the ball of another radius around the same distribution."""
        return replace(self, radius=radius)

    @property
    def centre(self) -> Self:
        """The ball of radius 0."""
        return self.resized(0.0)

    @abstractmethod
    def divergence(self, p: ArrayLike) -> float:
        """Return how far ``p`` is from the empirical distribution, in the unit of the radius."""

    def excess(self, p: Array) -> float:
        """Return by how much the divergence exceeds the radius."""
        return self.divergence(p) - self.radius

    def conditional(self, free: NDArray[np.bool_], p: Array, mass: float) -> Self | None:
        """Return the ball of the free contexts' conditional distributions, where all others have the shares ``p``.

        None where no such distribution is a member, or this is no ball of the same kind.
        """
        return None

    def response(self, shares: Array, scores: Array, nu: Array, multiplier: Array) -> Array:
        """Return the probabilities at which scores less ``nu`` equal the multiplier times the divergence's slope."""
        raise NotImplementedError

    @abstractmethod
    def worst_row(self, scores: Array) -> tuple[Array, float, float, float] | None:
        """Return distribution, value, nu and multiplier for one score vector; None where that needs more care.

        The ball is not a point.
        """

    @abstractmethod
    def worst_rows(self, scores: Array) -> tuple[Array, Array, Array]:
        """Return distributions, nu and multipliers for a batch of finite score vectors; the ball is not a point."""

    @abstractmethod
    def supported(self, p: Array) -> Array:
        """Return ``p`` with nothing negative, and only where members may have a probability."""

    def worst_case(self, scores: ArrayLike) -> WorstCase:
        """Return the member with the largest expected score.

        Parameters
        ----------
        scores : array-like of shape (n_contexts,) or (batch, n_contexts)
        """
        values = shaped_scores(scores, self.p_hat.size)
        if values.ndim == 1 and (found := self._mean(values) if self.is_point else self.worst_row(values)) is not None:
            return WorstCase(*found, self.p_hat)
        refuse_infinite(values)
        if values.ndim == 1:
            p, nu, multiplier = self._slice(values[None])
            return WorstCase(p[0], float(p[0] @ values), float(nu[0]), float(multiplier[0]), self.p_hat)
        if len(values) == 0:
            empty = np.empty(0)
            return WorstCase(np.empty(values.shape), empty, empty, empty, self.p_hat)
        per_slice = max(1, _BATCH_ENTRIES // self.p_hat.size)
        parts = [self._slice(values[k : k + per_slice]) for k in range(0, len(values), per_slice)]
        p, nu, multiplier = (np.concatenate(part) for part in zip(*parts, strict=True))
        return WorstCase(p, np.einsum("bc,bc->b", p, values), nu, multiplier, self.p_hat)

    def _mean(self, scores: Array) -> tuple[Array, float, float, float] | None:
        """Return the same as ``worst_row`` where the ball is a point."""
        with np.errstate(over="ignore", invalid="ignore"):
            value = float(self.p_hat @ scores)
        # Where the sum is not finite, a score may be the reason.
        return (self.p_hat.copy(), value, math.inf, math.inf) if math.isfinite(value) else None

    def _slice(self, scores: Array) -> tuple[Array, Array, Array]:
        """Return the same as ``worst_rows``, for every ball."""
        if not self.is_point:
            return self.worst_rows(scores)
        infinite = np.full(len(scores), np.inf)
        return np.tile(self.p_hat, (len(scores), 1)), infinite, infinite

    def contains(self, p: ArrayLike) -> bool:
        """Tell whether the distribution ``p`` is a member, up to rounding."""
        p = checked_member(p, self.p_hat.size)
        return self.is_simplex or self.divergence(p) <= self.radius + MEMBERSHIP_TOLERANCE

    def interval(self, context: int) -> tuple[float, float]:
        """Return the smallest and the largest probability any member gives to the context at this index."""
        n_contexts = self.p_hat.size
        check_index(context, n_contexts)
        if n_contexts == 1:
            return 1.0, 1.0
        # The extreme members rescale all other contexts alike, so one context against the rest is enough.
        share = float(self.p_hat[context])
        pair = replace(self, p_hat=np.array([share, float(np.delete(self.p_hat, context).sum())]), labels=None)
        lower, upper = pair.worst_case([[-1.0, 0.0], [1.0, 0.0]]).distribution[:, 0]
        # At an infinite or huge radius a seen context may be kept at the smallest positive number.
        return (0.0 if lower <= SMALLEST else float(lower)), float(upper)

    def project(self, p: Array) -> Array:
        """Return a member close to ``p``: scaled to sum one, then moved towards ``p_hat`` as far as needed."""
        p = self.supported(p)
        p = p / p.sum()
        if self.is_simplex:
            return p
        divergence = self.divergence(p)
        # The divergence is convex and 0 at p_hat, so this mixture is inside.
        if divergence > self.radius:
            share = self.radius / divergence
            p = share * p + (1.0 - share) * self.p_hat
        return p / p.sum()


def radius_of(mixes: ContextSet) -> float:
    """Return the radius of a ball, or of the only one that a set is part of; NaN where there is none, or several."""
    ball = ball_of(mixes)
    return math.nan if ball is None else ball.radius


def ball_of(mixes: ContextSet) -> Ball | None:
    """Return the ball that a set is, or the only one that it is part of; None where there is none, or several."""
    from counterpoise.sets.intersection import Intersection

    ball = mixes.ball if isinstance(mixes, Intersection) else mixes
    return ball if isinstance(ball, Ball) else None


def share_intervals(mixes: ContextSet) -> Array:
    """Return the least and the largest share that any member gives to each context: shape (n_contexts, 2)."""
    from counterpoise.sets.intersection import Intersection

    shares = mixes.p_hat
    if not isinstance(mixes, Ball):
        bounded = mixes.is_bounded if isinstance(mixes, Intersection) else np.ones(len(shares), dtype=bool)
        found = np.zeros((len(shares), 2))
        found[bounded] = np.reshape([mixes.interval(int(c)) for c in np.flatnonzero(bounded)], (-1, 2))
        free = np.flatnonzero(~bounded)
        for start in range(0, len(free), _INTERVALS):
            some = free[start : start + _INTERVALS]
            for side, sign in enumerate((-1.0, 1.0)):
                worst = mixes.worst_case(sign * np.eye(len(shares))[some]).distribution
                found[some, side] = np.clip(worst[np.arange(len(some)), some], 0.0, 1.0)
        return found
    # In a ball it depends on the context's own share alone, so contexts of equal share are solved once.
    _, first, again = np.unique(shares, return_index=True, return_inverse=True)
    return np.array([mixes.interval(int(c)) for c in first])[again]


def checked_member(p: ArrayLike, n_contexts: int) -> Array:
    """Return a distribution over this many contexts, or say what is wrong with it."""
    p = checked_distribution(p, "p")
    if p.size != n_contexts:
        raise InvalidInputError(f"p has {p.size} contexts; the set has {n_contexts}.")
    return p


def check_index(context: int, n_contexts: int) -> None:
    """Raise unless this is the index of a context."""
    whole = isinstance(context, (int, np.integer)) and not isinstance(context, bool)
    if not (whole and -n_contexts <= context < n_contexts):
        raise InvalidInputError(f"context = {context!r}; pass an index from 0 to {n_contexts - 1}.")


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
            f"{name}[{k}] = {values[k]}; probabilities must be finite and not negative. Pass shares that sum to 1."
        )
    with np.errstate(over="ignore"):
        total = values.sum()
    if abs(total - 1.0) > NORMALISATION_TOLERANCE:
        raise InvalidInputError(f"{name} sums to {total:.12g}, not 1. Divide each by the sum.")
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


def shares_of(counts: Array) -> Array:
    """Return the shares in the data, to the last digit the centre of a ball around them."""
    shares = checked_distribution(counts / counts.sum(), "shares")
    return _at_least(shares, _LEAST_SHARE) if (shares < _LEAST_SHARE).any() else shares


def positive(p_hat: Array) -> Array:
    """Return a centre with a little mass on contexts that have less, or none.

    The central path is weighted by it: where one product has to be far smaller than the others, steps stay short.
    """
    if (p_hat > 0.1 / len(p_hat)).all():
        return p_hat
    p = np.maximum(p_hat, 0.1 / len(p_hat))
    return p / p.sum()


def _at_least(p_hat: Array, least: float) -> Array:
    """Return shares of which none that is positive is below the least."""
    raised = np.where(p_hat > 0.0, np.maximum(p_hat, least), 0.0)
    raised.flags.writeable = False
    return raised


def _first(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the first true index in a tuple, empty when there is none."""
    hits: Iterable[int] = np.flatnonzero(mask)[:1]
    return tuple(int(k) for k in hits)
