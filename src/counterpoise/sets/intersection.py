"""What several sets have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.sets._base import (
    Ball,
    ContextSet,
    WorstCase,
    check_index,
    checked_member,
    positive,
    refuse_infinite,
    shaped_scores,
)
from counterpoise.sets._central_path import maximise
from counterpoise.sets._geometry import Array, Constraints, Geometry, Mask
from counterpoise.sets._joint import Joint
from counterpoise.sets._likeliest_in_kl import within_kl_and_bounds
from counterpoise.sets._one_limit import at_one_limit
from counterpoise.sets._polyhedron import Polyhedron
from counterpoise.sets._within_bounds import worst_within_bounds
from counterpoise.sets.kl import KLBall
from counterpoise.sets.likeliest import along_central_path, certified, scaled_between
from counterpoise.sets.shares import Marginal, MarginalBall, ShareBounds, ShareLimits, Stated
from counterpoise.sets.total_variation import TotalVariationBall, greedy, moved_mass

_FEW = 4
"""Limits up to which each is tried alone."""

_WIDE = 1e-11
"""Gap, per draw, that is left to the central path."""

_BATCH_ENTRIES = 1 << 20
"""Entries of the largest array of a batch that is solved at once."""


@dataclass(frozen=True, eq=False)
class Intersection(ContextSet):
    """Distributions that are members of every part.

    Parameters
    ----------
    parts : tuple of ContextSet
        Over the same contexts. Usually written ``a & b``.
    """

    parts: tuple[ContextSet, ...]
    labels: tuple[str, ...] | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(_flattened(self.parts)))
        sizes = {_size(part) for part in self.parts}
        if len(sizes) != 1:
            raise InvalidInputError(
                f"the sets are over {' and '.join(map(str, sorted(sizes)))} contexts; all need the same contexts."
            )
        if self.labels is None:
            object.__setattr__(self, "labels", next((p.labels for p in self.parts if p.labels is not None), None))
        _ = self.p_hat

    @cached_property
    def joint(self) -> Joint:
        """The bounds and limits of all parts together, and the parts with smooth inequalities."""
        n = _size(self.parts[0])
        low, high = np.zeros(n), np.ones(n)
        rows, sides = [np.zeros((0, n))], [np.zeros(0)]
        smooth: list[ContextSet] = []
        for part in self.parts:
            if isinstance(part, ShareBounds):
                low, high = np.maximum(low, part.low), np.minimum(high, part.high)
            elif isinstance(part, ShareLimits):
                rows.append(part.A)
                sides.append(part.b)
            elif isinstance(part, Marginal) and part.is_linear:
                A, b = part.limits()
                rows.append(A)
                sides.append(b)
            else:
                own = MarginalBall(part) if isinstance(part, Marginal) else part
                low, high = _bounded_by(own.geometry, low, np.where(own.support, high, 0.0))
                if not (own.is_simplex or _is_box(own)):
                    smooth.append(own)
        A, b = np.concatenate(rows), np.concatenate(sides)
        # A limit of nothing says nothing, unless it cannot be kept.
        stated = A.any(axis=1) | (b < 0.0)
        linear = Polyhedron(low, high, A[stated], b[stated], self.labels)
        return Joint(linear, tuple(smooth))

    @cached_property
    def _member(self) -> tuple[Array, bool]:
        p, alone = self.joint.member()
        p = np.array(p)
        p.flags.writeable = False
        return p, alone

    @property
    def p_hat(self) -> Array:  # type: ignore[override]
        """A member well inside every part; the centre of a ball that has room there."""
        return self._member[0]

    @property
    def is_point(self) -> bool:
        """Whether ``p_hat`` is the only member."""
        return self._member[1]

    @cached_property
    def is_simplex(self) -> bool:
        """Whether every distribution is a member: each corner of the simplex is."""
        linear = self.joint.linear
        beyond = (linear.A.max(axis=1, initial=0.0) > linear.b).any()
        return not (self.joint.smooth or (linear.low > 0.0).any() or (linear.high < 1.0).any() or beyond)

    @property
    def centre(self) -> ContextSet:
        """The set whose only member is ``p_hat``."""
        return KLBall(self.p_hat, 0.0, labels=self.labels)

    @property
    def where(self) -> str:
        """Where its members lie, in words that go on "every mix ..."."""
        # What holds for every mix is not worth a word.
        said = [part.where for part in self.parts if not part.is_simplex]
        return " and ".join(said or [self.parts[0].where])

    @property
    def ball(self) -> Ball | None:
        """The only ball among the parts; None where there is none, or more than one."""
        balls = [part for part in self.parts if isinstance(part, Ball)]
        return balls[0] if len(balls) == 1 else None

    def resized(self, radius: float) -> Intersection:
        """Return the intersection with its only ball at another radius."""
        if self.ball is None:
            raise InvalidInputError("only a set with exactly one ball can be given another radius.")
        parts = tuple(part.resized(radius) if isinstance(part, Ball) else part for part in self.parts)
        return replace(self, parts=parts)

    def excess(self, p: Array) -> float:
        """Return how far outside a distribution is: convex, and not positive for members."""
        return self.joint.excess(p)

    def contains(self, p: ArrayLike) -> bool:
        """Tell whether the distribution ``p`` is a member, up to rounding."""
        p = checked_member(p, len(self.p_hat))
        return all(part.contains(p) for part in self.parts)

    def interval(self, context: int) -> tuple[float, float]:
        """Return the smallest and the largest probability any member gives to the context at this index."""
        n = len(self.p_hat)
        check_index(context, n)
        clipped = self._clipped_interval(context) if self.is_bounded[context] and not self.is_point else None
        if clipped is not None:
            return clipped
        unit = np.eye(n)[context]
        low, high = self.worst_case(np.stack([-unit, unit])).distribution[:, context]
        return max(float(low), 0.0), min(float(high), 1.0)

    @property
    def is_bounded(self) -> NDArray[np.bool_]:
        """Which contexts have bounds of their own."""
        bounds = [(part.low > 0.0) | (part.high < 1.0) for part in self.parts if isinstance(part, ShareBounds)]
        return np.asarray(np.any([np.zeros(len(self.p_hat), dtype=bool), *bounds], axis=0))

    def _clipped_interval(self, context: int) -> tuple[float, float] | None:
        """Return the interval of a context from that without its own bounds; None where that is not quick.

        The set without them is convex, and ``p_hat`` is a member of both: whatever lies between two of its shares is
        the share of a member, so its bounds do nothing but clip. With them, all other scores would be ties.
        """
        linear, smooth = self.joint.linear, self.joint.smooth
        if len(linear.b) or len(smooth) != 1 or not isinstance(smooth[0], Ball) or not smooth[0].support[context]:
            return None
        low, high = linear.low.copy(), linear.high.copy()
        low[context], high[context] = 0.0, 1.0
        unit = np.eye(len(low))[context]
        worst, found = self._unlimited(np.stack([-unit, unit]), low, high)
        if not found.all():
            return None
        clipped = np.clip(worst[:, context], linear.low[context], linear.high[context])
        return float(clipped[0]), float(clipped[1])

    @cached_property
    def geometry(self) -> Geometry:
        """The probabilities and the auxiliary coordinates of the parts, with all that is linear about them."""
        return Geometry.simplex(len(self.p_hat)) if self.is_point else self.joint.geometry

    def lift(self, p: Array) -> Array:
        """Return the coordinates of a distribution."""
        return p if self.is_point else self.joint.lift(p)

    def constraints(self, x: Array) -> Constraints:
        """Return the limits that are not always tight, and the inequalities of the parts."""
        return Constraints.none(x) if self.is_point else self.joint.constraints(x)

    @property
    def support(self) -> NDArray[np.bool_]:
        """Which contexts any member gives a probability."""
        return self.joint.linear.high > 0.0

    def project(self, p: Array) -> Array:
        """Return a member close to ``p``: moved to what is fixed, then towards ``p_hat`` as far as needed."""
        return self.p_hat.copy() if self.is_point else self.joint.project(p, self.p_hat)

    def worst_case(self, scores: ArrayLike) -> WorstCase:
        """Return the member with the largest expected score.

        Parameters
        ----------
        scores : array-like of shape (n_contexts,) or (batch, n_contexts)
        """
        values = shaped_scores(scores, len(self.p_hat))
        refuse_infinite(values)
        batch = np.atleast_2d(values)
        if self.is_point:
            p, missed = np.tile(self.p_hat, (len(batch), 1)), np.zeros(len(batch))
        else:
            p, missed = self._worst_rows(batch)
        # What an iterative method may have missed belongs to the value, which bounds the objective from above.
        largest = np.einsum("bc,bc->b", p, batch) + missed
        unknown = np.full(len(batch), math.inf)
        if values.ndim == 1:
            return WorstCase(p[0], float(largest[0]), math.inf, math.inf, self.p_hat)
        return WorstCase(p, largest, unknown, unknown, self.p_hat)

    def likeliest_rows(self, shares: Array) -> tuple[Array, Array, Array]:
        """Return likeliest members for a batch of shares of counts, log-likelihoods per draw, and upper bounds."""
        linear, smooth = self.joint.linear, self.joint.smooth
        if len(linear.b) == 0 and not smooth:
            p = scaled_between(shares, linear.low, linear.high, 1.0)
            return certified(self, shares, p / p.sum(axis=1, keepdims=True))
        p, found, upper = np.empty(shares.shape), np.empty(len(shares)), np.empty(len(shares))
        todo = np.ones(len(shares), dtype=bool)
        for part in self.parts if len(self.parts) > 1 else ():
            if isinstance(part, ShareLimits):
                # Alone they take as long as all together.
                continue
            # The likeliest of one part is the likeliest of all where it meets everything else.
            rows = np.flatnonzero(todo)
            alone = part.likeliest(shares[rows])
            p[rows], found[rows], upper[rows] = alone.distribution, alone.log_likelihood, alone.upper
            todo[rows] = [self.excess(one) > 0.0 for one in alone.distribution]
        rows = np.flatnonzero(todo)
        if rows.size and len(linear.b) == 0 and len(smooth) == 1 and isinstance(smooth[0], KLBall):
            ball = smooth[0]
            p[rows], found[rows], upper[rows] = within_kl_and_bounds(
                ball.p_hat, math.log(2.0) * ball.radius, linear.low, linear.high, shares[rows]
            )
            # At a radius that hardly reaches into the bounds another method knows better.
            rows = rows[upper[rows] - found[rows] > _WIDE]
        if rows.size:
            p[rows], found[rows], upper[rows] = along_central_path(self, shares[rows])
        return p, found, upper

    def _worst_rows(self, scores: Array) -> tuple[Array, Array]:
        """Return least favourable members, and by how much their expected scores may miss the largest."""
        # Powers of two scale exactly: no difference of scores can overflow.
        exponent = np.frexp(np.abs(scores).max(axis=1, keepdims=True))[1]
        scores, missed = np.ldexp(scores, -exponent), np.zeros(len(scores))
        linear, smooth = self.joint.linear, self.joint.smooth
        only = smooth[0] if len(smooth) == 1 else None
        if len(linear.b) == 0 and not smooth:
            return greedy(linear.low, linear.high, scores), missed
        if len(linear.b) == 0 and isinstance(only, TotalVariationBall):
            return moved_mass(only, linear.low, linear.high, scores), missed
        p, todo = np.empty(scores.shape), np.ones(len(scores), dtype=bool)
        if only is not None and isinstance(only, Ball) and len(linear.b) == 0:
            p, found = self._unlimited(scores)
            todo = ~found
        elif only is not None:
            # The worst of one part alone is the worst of all where it meets everything else.
            p[:] = only.worst_case(scores).distribution
            todo = ~self.joint.meet(p)
        for k in np.flatnonzero(todo) if len(linear.b) else ():
            one = self._limited(scores[k])
            if one is not None:
                p[k], todo[k] = one, False
        rows = np.flatnonzero(todo)
        entries = self.geometry.size * (self.geometry.equalities.shape[0] + len(linear.b) + len(smooth))
        at_once = max(1, _BATCH_ENTRIES // entries)
        for begin in range(0, len(rows), at_once):
            some = rows[begin : begin + at_once]
            p[some], missed[some] = self._along_central_path(scores[some])
        return p, np.ldexp(missed, exponent[:, 0])

    def _unlimited(self, scores: Array, low: Array | None = None, high: Array | None = None) -> tuple[Array, Mask]:
        """Return worst cases without the limits of a set that has one ball at most, and for which they were found.

        Parameters
        ----------
        scores : ndarray of shape (batch, n_contexts)
        low, high : ndarray of shape (n_contexts,), optional
            Other bounds than its own.
        """
        linear, smooth = self.joint.linear, self.joint.smooth
        low, high = linear.low if low is None else low, linear.high if high is None else high
        everywhere = np.ones(len(scores), dtype=bool)
        if not smooth:
            return greedy(low, high, scores), everywhere
        ball = smooth[0]
        assert isinstance(ball, Ball)
        if isinstance(ball, TotalVariationBall):
            return moved_mass(ball, low, high, scores), everywhere
        # The worst of the ball alone, or within the bounds alone, is the worst of all where it meets everything else.
        p = np.atleast_2d(ball.worst_case(scores[0] if len(scores) == 1 else scores).distribution)
        found = np.asarray((p >= low).all(axis=1) & (p <= high).all(axis=1))
        rows = np.flatnonzero(~found)
        if rows.size:
            corners = greedy(low, high, scores[rows])
            inside = np.array([ball.excess(corner) <= 0.0 for corner in corners])
            p[rows[inside]], found[rows[inside]] = corners[inside], True
            rows = rows[~inside]
        if rows.size:
            p[rows], found[rows] = worst_within_bounds(ball, low, high, scores[rows], p[rows])
        return p, found

    def _limited(self, scores: Array) -> Array | None:
        """Return the worst case where one limit binds at most, else by linear programming or not at all."""
        joint = self.joint
        linear = all(isinstance(part, TotalVariationBall) for part in joint.smooth)
        if len(joint.smooth) <= 1 and all(isinstance(part, Ball) for part in joint.smooth):

            def unlimited(tilted: Array) -> Array | None:
                found, known = self._unlimited(tilted[None])
                return found[0] if known[0] else None

            p = unlimited(scores)
            if p is None or joint.meet(p[None])[0]:
                return p
            beyond = np.flatnonzero(joint.linear.A @ p > joint.linear.b)
            for k in beyond if len(beyond) <= _FEW else ():
                p = at_one_limit(unlimited, joint.linear.A[k], float(joint.linear.b[k]), scores)
                if p is not None and joint.meet(p[None])[0]:
                    return p
        return joint.project(joint.corner(scores), self.p_hat) if linear else None

    @cached_property
    def _recent(self) -> dict[bytes, tuple[Array, Array]]:
        """The last answer of the central path: a solver asks several questions about the same scores."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what defines the set, without what was found on the way."""
        return {"parts": self.parts, "labels": self.labels}

    def _along_central_path(self, scores: Array) -> tuple[Array, Array]:
        key = scores.tobytes()
        if key not in self._recent:
            found = self._found_along_central_path(scores)
            self._recent.clear()
            self._recent[key] = found
        p, missed = self._recent[key]
        return p.copy(), missed

    def _found_along_central_path(self, scores: Array) -> tuple[Array, Array]:
        spread = np.ptp(scores, axis=1)
        spread = np.where(spread > 0.0, spread, 1.0)
        scaled = (scores - scores.max(axis=1, keepdims=True)) / spread[:, None]
        padded = np.concatenate([scaled, np.zeros((len(scores), self.geometry.size - scores.shape[1]))], axis=1)
        found, error = maximise(self.geometry, self.constraints, padded, self.lift(self.p_hat), positive(self.p_hat))
        members = np.array([self.project(p) for p in found.x[:, : scores.shape[1]]])
        lost = np.einsum("bc,bc->b", found.x[:, : scores.shape[1]] - members, scaled)
        return members, spread * (error + np.maximum(lost, 0.0))


def _flattened(parts: tuple[ContextSet, ...]) -> Iterator[ContextSet]:
    """Yield the parts, with intersections, also those of parents, taken apart."""
    for part in parts:
        if not isinstance(part, ContextSet):
            raise InvalidInputError(f"{part!r:.60} is no set of mixes.")
        if isinstance(part, Intersection):
            yield from part.parts
        elif isinstance(part, Marginal) and isinstance(part.mixes, Intersection):
            for one in part.mixes.parts:
                yield from _flattened((replace(part, mixes=one),))
        elif isinstance(part, Marginal) and isinstance(part.mixes, Marginal):
            yield from _flattened((Marginal(part.mixes.mixes, part.mixes.parents[part.parents], labels=part.labels),))
        else:
            yield part


def _size(part: ContextSet) -> int:
    return part.n_contexts if isinstance(part, Stated) else len(part.p_hat)


def _bounded_by(geometry: Geometry, low: Array, high: Array) -> tuple[Array, Array]:
    """Return bounds of the shares with those that a geometry states."""
    low, high = low.copy(), high.copy()
    below, above = geometry.floors < geometry.n_contexts, geometry.ceilings < geometry.n_contexts
    np.maximum.at(low, geometry.floors[below], geometry.low[below])
    np.minimum.at(high, geometry.ceilings[above], geometry.high[above])
    return low, high


def _is_box(part: ContextSet) -> bool:
    """Tell a set that bounds of its shares describe."""
    geometry = part.geometry
    plain = geometry.equalities.shape == (1, geometry.n_contexts) and not len(geometry.owners)
    return plain and not part.is_point and part.constraints(part.lift(part.p_hat)).values.size == 0
