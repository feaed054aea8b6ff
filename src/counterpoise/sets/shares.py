"""What is known about shares themselves: bounds of each, and limits of weighted sums of them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.sets._base import MEMBERSHIP_TOLERANCE, ContextSet, WorstCase, checked_member
from counterpoise.sets._geometry import Array, Constraints, Geometry
from counterpoise.sets.likeliest import log_likelihoods

if TYPE_CHECKING:
    from counterpoise.sets.intersection import Intersection


class Stated(ContextSet):
    """A set that states some conditions, alone or beside others; as a set of its own it is their intersection."""

    @cached_property
    def whole(self) -> Intersection:
        """The set of every distribution that meets the conditions."""
        from counterpoise.sets.intersection import Intersection

        return Intersection((self,))

    @property
    @abstractmethod
    def n_contexts(self) -> int:
        """How many contexts the conditions are about."""

    @property
    def p_hat(self) -> Array:  # type: ignore[override]
        """A member well inside the set."""
        return self.whole.p_hat

    @property
    def is_point(self) -> bool:
        """Whether ``p_hat`` is the only member."""
        return self.whole.is_point

    @property
    def is_simplex(self) -> bool:
        """Whether every distribution is a member."""
        return self.whole.is_simplex

    @property
    def centre(self) -> ContextSet:
        """The set whose only member is ``p_hat``."""
        return self.whole.centre

    def worst_case(self, scores: ArrayLike) -> WorstCase:
        """Return the member with the largest expected score."""
        return self.whole.worst_case(scores)

    def likeliest_rows(self, shares: Array) -> tuple[Array, Array, Array]:
        """Return likeliest members for a batch of shares of counts, log-likelihoods per draw, and upper bounds."""
        return self.whole.likeliest_rows(shares)

    def interval(self, context: int) -> tuple[float, float]:
        """Return the smallest and the largest probability any member gives to the context at this index."""
        return self.whole.interval(context)

    @cached_property
    def geometry(self) -> Geometry:
        """The coordinates of the set and what is linear about it."""
        return self.whole.geometry

    def constraints(self, x: Array) -> Constraints:
        """Return the smooth inequalities that bound the set beyond its geometry."""
        return self.whole.constraints(x)

    def lift(self, p: Array) -> Array:
        """Return the coordinates of a distribution."""
        return self.whole.lift(p)

    def project(self, p: Array) -> Array:
        """Return a member close to ``p``."""
        return self.whole.project(p)


@dataclass(frozen=True, eq=False)
class ShareBounds(Stated):
    r"""Distributions whose shares lie within bounds, :math:`l_c \le p_c \le u_c`.

    The cap ``ShareBounds(0 * p_hat, p_hat / a)`` makes the worst case the conditional value at risk of the contexts at
    level ``a``: the mean of the worst share ``a`` of them.

    Parameters
    ----------
    low, high : array-like of shape (n_contexts,)
        Between 0 and 1 (a higher upper bound says nothing). The lower ones sum to at most 1, the upper ones to at
        least 1.
    """

    low: Array
    high: Array
    labels: tuple[str, ...] | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        low, high = _numbers(self.low, "low", 1), _numbers(self.high, "high", 1)
        if len(low) != len(high):
            raise InvalidInputError(f"low has {len(low)} contexts and high {len(high)}; pass one of each per context.")
        for name, values in (("low", low), ("high", high)):
            if (bad := np.flatnonzero(values < 0.0)).size:
                raise InvalidInputError(
                    f"{name} is {values[bad[0]]:g} for {named(bad[0], self.labels)}; a share is not negative."
                )
        if (bad := np.flatnonzero(low > high)).size:
            c = bad[0]
            raise InvalidInputError(
                f"the bounds of {named(c, self.labels)} are {low[c]:g} and {high[c]:g}: the lower one is above the "
                "upper one. Swap them."
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", np.minimum(high, 1.0))
        _ = self.whole

    @property
    def n_contexts(self) -> int:
        """How many contexts there are."""
        return len(self.low)

    def contains(self, p: ArrayLike) -> bool:
        """Tell whether the distribution ``p`` is a member, up to rounding."""
        p = checked_member(p, self.n_contexts)
        slack = MEMBERSHIP_TOLERANCE
        return bool((p >= self.low - slack).all() and (p <= self.high + slack).all())

    @property
    def where(self) -> str:
        """Where its members lie, in words that go on "every mix ..."."""
        stated = np.flatnonzero((self.low > 0.0) | (self.high < 1.0))
        if not stated.size:
            return "without any bound on its shares"
        words = [f"{named(c, self.labels)} {_span(self.low[c], self.high[c])}" for c in stated[:3]]
        more = f" and {stated.size - 3} more" if stated.size > 3 else ""
        return f"with a share of {', '.join(words)}{more}"


@dataclass(frozen=True, eq=False)
class ShareLimits(Stated):
    r"""Distributions whose weighted sums of shares stay within limits, :math:`A p \le b`.

    Parameters
    ----------
    A : array-like of shape (n_limits, n_contexts)
    b : array-like of shape (n_limits,)

    Examples
    --------
    Contexts 0 and 1 together are at most half of the mix:

    >>> import numpy as np, counterpoise as cpo
    >>> mix = cpo.KLBall(np.array([0.3, 0.3, 0.4]), 0.2) & cpo.ShareLimits([[1, 1, 0]], [0.5])
    >>> mix.worst_case([1.0, 1.0, 0.0]).value
    0.5
    """

    A: Array
    b: Array
    labels: tuple[str, ...] | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        A, b = _numbers(self.A, "A", 2), _numbers(self.b, "b", 1)
        if len(A) != len(b):
            raise InvalidInputError(f"A has {len(A)} rows and b {len(b)} numbers; pass one limit for each row.")
        object.__setattr__(self, "A", A)
        object.__setattr__(self, "b", b)
        _ = self.whole

    @property
    def n_contexts(self) -> int:
        """How many contexts there are."""
        return self.A.shape[1]

    def contains(self, p: ArrayLike) -> bool:
        """Tell whether the distribution ``p`` is a member, up to rounding."""
        p = checked_member(p, self.n_contexts)
        slack = MEMBERSHIP_TOLERANCE * np.maximum(1.0, np.abs(self.A).max(axis=1, initial=0.0))
        return bool((self.A @ p <= self.b + slack).all())

    @property
    def where(self) -> str:
        """Where its members lie, in words that go on "every mix ..."."""
        return f"within {len(self.b)} limit{'s' if len(self.b) != 1 else ''} on sums of shares"


@dataclass(frozen=True, eq=False)
class Marginal(Stated):
    """Distributions whose shares, summed by parent, lie in a set: regions of stores, say.

    Parameters
    ----------
    mixes : ContextSet
        Over the parents.
    parents : array-like of int, of shape (n_contexts,)
        The index of each context's parent.

    Notes
    -----
    By the chain rule the divergence of nested contexts is that of the parents plus the average divergence within them.
    ``KLBall(p_hat, between + within) & Marginal(KLBall(parent_shares, between), parents)`` therefore holds every mix
    whose parents' shares are within ``between`` bits and whose shares within parents are, on average, within
    ``within`` bits.
    """

    mixes: ContextSet
    parents: Array
    labels: tuple[str, ...] | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.mixes, ContextSet):
            raise InvalidInputError(f"mixes is {self.mixes!r:.60}; pass a set of mixes of the parents.")
        parents, n = np.asarray(self.parents), len(self.mixes.p_hat)
        if parents.ndim != 1 or parents.size == 0 or parents.dtype.kind not in "iu":
            raise InvalidInputError(
                "parents must be one-dimensional whole numbers, the index of each context's parent."
            )
        if parents.min() < 0 or parents.max() >= n:
            raise InvalidInputError(f"parents go from {parents.min()} to {parents.max()}; the set has {n} of them.")
        object.__setattr__(self, "parents", parents.astype(np.intp))
        _ = self.whole

    @property
    def n_contexts(self) -> int:
        """How many contexts there are."""
        return len(self.parents)

    @cached_property
    def sums(self) -> Array:
        """The matrix that sums shares by parent, of shape (n_parents, n_contexts)."""
        return np.asarray(np.arange(len(self.mixes.p_hat))[:, None] == self.parents, dtype=np.float64)

    @property
    def is_linear(self) -> bool:
        """Whether limits say all there is to say: the parents have bounds or limits, or one mix alone."""
        return isinstance(self.mixes, (ShareBounds, ShareLimits)) or self.mixes.is_point

    def limits(self) -> tuple[Array, Array]:
        """Return what bounds the parents as limits of their contexts' sums."""
        inner = self.mixes
        if isinstance(inner, ShareLimits):
            return inner.A @ self.sums, inner.b
        if not isinstance(inner, ShareBounds):
            return np.vstack([self.sums, -self.sums]), np.concatenate([inner.p_hat, -inner.p_hat])
        below, above = inner.high < 1.0, inner.low > 0.0
        A = np.vstack([self.sums[below], -self.sums[above]])
        return A, np.concatenate([inner.high[below], -inner.low[above]])

    def likeliest_rows(self, shares: Array) -> tuple[Array, Array, Array]:
        """Return the parents' likeliest mixes, divided within each parent as the counts are."""
        size = self.sums.sum(axis=1)
        if (size == 0.0).any():
            # A parent without contexts has no share, which its own set does not know.
            return super().likeliest_rows(shares)
        parents = shares @ self.sums.T
        found = self.mixes.likeliest(parents)
        of_parent = parents[:, self.parents]
        within = np.where(of_parent > 0.0, shares / np.where(of_parent > 0.0, of_parent, 1.0), 1.0 / size[self.parents])
        given = log_likelihoods(shares, within)
        return found.distribution[:, self.parents] * within, found.log_likelihood + given, found.upper + given

    def contains(self, p: ArrayLike) -> bool:
        """Tell whether the distribution ``p`` is a member, up to rounding."""
        return self.mixes.contains(self.sums @ checked_member(p, self.n_contexts))

    @property
    def where(self) -> str:
        """Where its members lie, in words that go on "every mix ..."."""
        return f"whose sums by parent lie {self.mixes.where}"


@dataclass(frozen=True, eq=False)
class MarginalBall(ContextSet):
    """A set of the parents' shares with inequalities of its own, in coordinates that hold those shares.

    It serves intersections, which know the rest of what a set is asked.
    """

    stated: Marginal

    @cached_property
    def p_hat(self) -> Array:  # type: ignore[override]
        """The parents' centre, shared equally among the contexts of each."""
        sums = self.stated.sums
        per_context = self.stated.mixes.p_hat / np.maximum(sums.sum(axis=1), 1.0)
        p = per_context[self.stated.parents]
        return np.asarray(p / p.sum())

    @property
    def is_point(self) -> bool:
        """False: contexts of one parent may share what it has in any way."""
        return False

    @property
    def is_simplex(self) -> bool:
        """Whether every distribution is a member."""
        return self.stated.mixes.is_simplex

    @property
    def centre(self) -> ContextSet:
        """The set whose only member is ``p_hat``."""
        raise NotImplementedError

    @property
    def support(self) -> NDArray[np.bool_]:
        """Which contexts any member gives a probability."""
        return self.stated.mixes.support[self.stated.parents]

    @property
    def where(self) -> str:
        """Where its members lie."""
        return self.stated.where

    @cached_property
    def geometry(self) -> Geometry:
        """The probabilities, followed by the coordinates of the parents' set, which are tied to their sums."""
        n, inner = self.stated.n_contexts, self.stated.mixes.geometry
        sums = self.stated.sums
        ties = np.hstack([sums, -np.eye(len(sums), inner.size)])
        rest = np.pad(inner.equalities[1:], ((0, 0), (n, 0)))
        first = np.concatenate([np.ones(n), np.zeros(inner.size)])[None]
        return Geometry(
            n,
            np.vstack([first, ties, rest]),
            np.concatenate([[1.0], np.zeros(len(sums)), inner.totals[1:]]),
            n + inner.floors,
            inner.low,
            n + inner.ceilings,
            inner.high,
            n + inner.owners,
            n + inner.helpers,
            inner.offsets,
        )

    def lift(self, p: Array) -> Array:
        """Return the distribution with the coordinates of its parents' shares."""
        return np.concatenate([p, self.stated.mixes.lift(self.stated.sums @ p)])

    def constraints(self, x: Array) -> Constraints:
        """Return the inequalities of the parents' set."""
        n = self.stated.n_contexts
        inner = self.stated.mixes.constraints(x[..., n:])
        none = np.zeros((*inner.regular.shape[:-1], n))
        wide = (np.concatenate([none, one], axis=-1) for one in (inner.regular, inner.curvature, inner.poles))
        return Constraints(x, inner.values, *wide)

    def excess(self, p: Array) -> float:
        """Return how far outside the parents' set the sums of a distribution are."""
        return self.stated.mixes.excess(self.stated.sums @ p)

    def contains(self, p: ArrayLike) -> bool:
        """Tell whether the distribution ``p`` is a member, up to rounding."""
        return self.stated.contains(p)

    def interval(self, context: int) -> tuple[float, float]:
        """Return bounds of a context's probability: none below, its parent's above."""
        return 0.0, self.stated.mixes.interval(int(self.stated.parents[context]))[1]

    def worst_case(self, scores: ArrayLike) -> WorstCase:
        """Return the worst case of the parents, each with the largest score among its contexts."""
        values = np.atleast_2d(np.asarray(scores, dtype=np.float64))
        member = self.stated.sums > 0.0
        best = np.where(member, values[:, None, :], -np.inf).argmax(axis=2)
        found = self.stated.mixes.worst_case(np.take_along_axis(values, best, axis=1)).distribution
        p = np.zeros(values.shape)
        np.put_along_axis(p, best, found, axis=1)
        unknown = np.full(len(values), np.inf)
        return WorstCase(p, np.einsum("bc,bc->b", p, values), unknown, unknown, self.p_hat)

    def project(self, p: Array) -> Array:
        """Return a member close to ``p``."""
        raise NotImplementedError


def named(context: int, labels: tuple[str, ...] | None) -> str:
    """Return how a context is called in messages."""
    return f"context {int(context)}" if labels is None else repr(labels[int(context)])


def _numbers(values: ArrayLike, name: str, ndim: int) -> Array:
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} must be numbers, got {values!r:.60}.") from error
    if numbers.ndim != ndim or numbers.size == 0:
        wanted = "one number per context" if ndim == 1 else "one row of coefficients per limit"
        raise InvalidInputError(f"{name} must hold {wanted}, got shape {numbers.shape}.")
    if not np.isfinite(numbers).all():
        raise InvalidInputError(f"{name} holds {numbers[~np.isfinite(numbers)][0]}; pass finite numbers.")
    numbers.flags.writeable = False
    return numbers


def _span(low: float, high: float) -> str:
    """Return an interval in words."""
    if low == high:
        return f"of {low:.3g}"
    return (
        f"up to {high:.3g}"
        if low == 0.0
        else f"of {low:.3g} or more"
        if high == 1.0
        else f"from {low:.3g} to {high:.3g}"
    )
