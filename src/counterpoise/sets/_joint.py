"""Bounds, limits and smooth inequalities of several sets taken together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from counterpoise.exceptions import EmptySetError
from counterpoise.sets._base import MEMBERSHIP_TOLERANCE, Ball, ContextSet, positive
from counterpoise.sets._central_path import maximise
from counterpoise.sets._geometry import Array, Constraints, Geometry
from counterpoise.sets._polyhedron import Inside, Polyhedron

_THIN = 1e-9
"""Share of its depth that a set must leave; below it, parts only touch."""

_DEEP = 0.5
"""Share of its depth at which a mix counts as well inside a set."""


@dataclass(frozen=True, eq=False)
class Joint:
    """The polyhedron of all bounds and limits, and the sets that have smooth inequalities.

    Coordinates are the probabilities, followed by the auxiliary ones of each of those sets.
    """

    linear: Polyhedron
    smooth: tuple[ContextSet, ...]

    @property
    def inside(self) -> Inside:
        """A mix that meets bounds and limits, and what they fix."""
        return self.linear.inside

    @property
    def n_contexts(self) -> int:
        """How many contexts there are."""
        return len(self.linear.low)

    @cached_property
    def _spans(self) -> list[NDArray[np.intp]]:
        """Which coordinates each smooth set has."""
        spans, end = [], self.n_contexts
        for part in self.smooth:
            extra = part.geometry.size - self.n_contexts
            spans.append(np.concatenate([np.arange(self.n_contexts), end + np.arange(extra)]))
            end += extra
        return spans

    @cached_property
    def size(self) -> int:
        """How many coordinates there are."""
        return self.n_contexts + sum(part.geometry.size - self.n_contexts for part in self.smooth)

    def lift(self, p: Array) -> Array:
        """Return the coordinates of a distribution."""
        return np.concatenate([p, *(part.lift(p)[self.n_contexts :] for part in self.smooth)])

    @cached_property
    def geometry(self) -> Geometry:
        """What is linear: the equalities, bounds and links of all sets, and limits that always hold with equality."""
        n, linear, inside = self.n_contexts, self.linear, self.inside
        free = ~inside.fixed
        rows, totals = [np.concatenate([np.ones(n), np.zeros(self.size - n)])[None]], [np.ones(1)]
        for part, span in zip(self.smooth, self._spans, strict=True):
            own = part.geometry
            placed = np.zeros((len(own.totals) - 1, self.size))
            placed[:, span] = own.equalities[1:]
            rows.append(placed)
            totals.append(own.totals[1:])
        tight, held = linear.A[inside.tight], np.flatnonzero(inside.fixed & (inside.p > 0.0))
        rows += [np.pad(tight, ((0, 0), (0, self.size - n))), np.eye(self.size)[held]]
        totals += [linear.b[inside.tight], inside.p[held]]
        movable = np.concatenate([free | (inside.p > 0.0), np.ones(self.size - n, dtype=bool)])
        equalities, level = _independent(np.vstack(rows), np.concatenate(totals), movable)
        floors, ceilings = np.flatnonzero(free & (linear.low > 0.0)), np.flatnonzero(free & (linear.high < 1.0))
        parts = list(zip(self.smooth, self._spans, strict=True))
        return Geometry(
            n,
            equalities,
            level,
            np.concatenate([floors, *(span[part.geometry.floors] for part, span in parts)]),
            np.concatenate([linear.low[floors], *(part.geometry.low for part, _ in parts)]),
            np.concatenate([ceilings, *(span[part.geometry.ceilings] for part, span in parts)]),
            np.concatenate([linear.high[ceilings], *(part.geometry.high for part, _ in parts)]),
            np.concatenate([np.zeros(0, dtype=np.intp), *(span[part.geometry.owners] for part, span in parts)]),
            np.concatenate([np.zeros(0, dtype=np.intp), *(span[part.geometry.helpers] for part, span in parts)]),
            np.concatenate([np.zeros(0), *(part.geometry.offsets for part, _ in parts)]),
        )

    @cached_property
    def _limits(self) -> tuple[Array, Array]:
        """The limits that leave room, scaled to coefficients of at most 1."""
        A, b = self.linear.A[~self.inside.tight], self.linear.b[~self.inside.tight]
        size = np.maximum(np.abs(A).max(axis=1, initial=0.0), 1e-300)
        return A / size[:, None], b / size

    def constraints(self, x: Array) -> Constraints:
        """Return the limits that leave room, followed by the inequalities of the smooth sets."""
        A, b = self._limits
        parts = [part.constraints(x[..., span]) for part, span in zip(self.smooth, self._spans, strict=True)]
        count = len(b) + sum(part.values.shape[-1] for part in parts)
        regular, curvature, poles = (np.zeros((*x.shape[:-1], count, self.size)) for _ in range(3))
        values = np.empty((*x.shape[:-1], count))
        values[..., : len(b)] = x[..., : self.n_contexts] @ A.T - b
        regular[..., : len(b), : self.n_contexts] = A
        row = len(b)
        for part, span in zip(parts, self._spans, strict=True):
            rows = slice(row, row + part.values.shape[-1])
            values[..., rows] = part.values
            for whole, own in zip((regular, curvature, poles), (part.regular, part.curvature, part.poles), strict=True):
                whole[..., rows, span] = own
            row = rows.stop
        return Constraints(x, values, regular, curvature, poles)

    def corner(self, scores: Array) -> Array:
        """Return the worst case by linear programming, where total variation is the only smooth inequality."""
        from scipy.optimize import linprog

        n, linear, geometry = self.n_contexts, self.linear, self.geometry
        links = np.arange(len(geometry.owners))
        tied = sparse.csr_array(
            (np.tile([1.0, -1.0], len(links)), (np.repeat(links, 2), _pairs(geometry))), (len(links), self.size)
        )
        here = self.constraints(np.zeros(self.size))
        rows = sparse.vstack([sparse.csr_array(here.regular), tied]) if len(links) else here.regular
        answer = linprog(
            -np.pad(scores, (0, self.size - n)),
            A_ub=rows,
            b_ub=np.concatenate([-here.values, geometry.offsets]),
            A_eq=geometry.equalities,
            b_eq=geometry.totals,
            bounds=np.vstack([np.stack([linear.low, linear.high], axis=1), np.tile([0.0, 1.0], (self.size - n, 1))]),
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        return np.asarray(answer.x[:n]) if answer.status == 0 else self.inside.p

    def meet(self, p: Array) -> NDArray[np.bool_]:
        """Tell which distributions of a batch meet bounds and limits, up to rounding."""
        linear, slack = self.linear, MEMBERSHIP_TOLERANCE
        size = np.maximum(1.0, np.abs(linear.A).max(axis=1, initial=0.0))
        good = (p >= linear.low - slack).all(axis=1) & (p <= linear.high + slack).all(axis=1)
        return np.asarray(good & (p @ linear.A.T <= linear.b + slack * size).all(axis=1))

    def excess(self, p: Array) -> float:
        """Return how far outside a distribution is: convex, and not positive inside."""
        linear = self.linear
        beyond = np.concatenate([linear.low - p, p - linear.high, linear.A @ p - linear.b])
        return (
            max(float(beyond.max()), *(part.excess(p) for part in self.smooth)) if self.smooth else float(beyond.max())
        )

    def project(self, p: Array, centre: Array) -> Array:
        """Return a member close to ``p``: moved to what is fixed, then towards the centre as far as needed."""
        linear, inside = self.linear, self.inside
        p = np.where(linear.high > 0.0, np.maximum(p, 0.0), 0.0)
        p = np.where(inside.fixed, centre, p / p.sum())
        # What then lacks in equalities is spread over what is free.
        rows = np.vstack([np.ones(len(p)), linear.A[inside.tight]])
        lacking = np.append(1.0, linear.b[inside.tight]) - rows @ p
        free = ~inside.fixed
        p[free] += np.linalg.lstsq(rows[:, free], lacking, rcond=None)[0]
        away = p - centre
        rooms = np.concatenate([(centre - linear.low)[free], (linear.high - centre)[free]])
        steps = np.concatenate([-away[free], away[free]])
        loose = ~inside.tight
        rooms = np.append(rooms, (linear.b - linear.A @ centre)[loose])
        steps = np.append(steps, (linear.A @ away)[loose])
        beyond = steps > rooms
        p = centre + (max(float(np.min(rooms[beyond] / steps[beyond])), 0.0) if beyond.any() else 1.0) * away
        for part in self.smooth:
            if (excess := part.excess(p)) > 0.0:
                # The excess is convex, so on the way to the centre it falls at least this fast.
                depth = -part.excess(centre)
                p = centre + (depth / (depth + excess) if np.isfinite(excess) else 0.0) * (p - centre)
        return np.asarray(p / p.sum())

    def member(self) -> tuple[Array, bool]:
        """Return a mix well inside all sets, and whether it is the only one; raise where there is none."""
        for part in self.smooth:
            if part.is_point:
                return self._only(part.p_hat), True
        if self._is_determined:
            return self._only(self.inside.p), True
        p = self._near_centre() if len(self.smooth) <= 1 else None
        return (p, False) if p is not None else self._deepest()

    @property
    def _is_determined(self) -> bool:
        """Whether what holds with equality leaves one mix."""
        free, tight = ~self.inside.fixed, self.linear.A[self.inside.tight]
        if free.sum() <= 1 or not len(tight):
            return bool(free.sum() <= 1)
        return bool(np.linalg.matrix_rank(np.vstack([np.ones(len(free)), tight])[:, free]) == free.sum())

    def _only(self, p: Array) -> Array:
        """Return a mix that has to be the only one, if every set contains it."""
        if not self.meet(p[None])[0]:
            raise EmptySetError(self._excluded(p))
        for part in self.smooth:
            if not part.contains(p):
                raise EmptySetError(
                    f"no mix is in all sets: bounds and limits leave {_shown(p)} alone, which is not {part.where}."
                )
        return np.array(p)

    def _near_centre(self) -> Array | None:
        """Return the centre of the only smooth set, moved off bounds that it meets with too little room; or None."""
        if not self.smooth:
            return self.inside.p
        part = self.smooth[0]
        if not self.meet(part.p_hat[None])[0]:
            return None
        if self._has_room(part.p_hat):
            return part.p_hat
        share = 0.5
        while share > 1e-6:
            p = (1.0 - share) * part.p_hat + share * self.inside.p
            if (part.constraints(part.lift(p)).values <= -_DEEP * self._depths()[0]).all():
                return p
            share *= 0.5
        return None

    def _has_room(self, p: Array) -> bool:
        """Tell whether a mix keeps at least a hundredth of the room that the middle of the polyhedron has."""
        linear, middle = self.linear, self.inside.p

        def rooms(q: Array) -> Array:
            free = ~self.inside.fixed
            limits = (linear.b - linear.A @ q)[~self.inside.tight]
            return np.concatenate(
                [(q - linear.low)[free & (linear.low > 0)], (linear.high - q)[free & (linear.high < 1)], limits]
            )

        held = self.inside.fixed & (np.abs(p - middle) > 1e-14)
        return bool((rooms(p) >= 0.01 * rooms(middle)).all()) and not held.any() and not self.inside.tight.any()

    def _depths(self) -> list[Array]:
        """Return how far inside its own inequalities the centre of each smooth set is."""
        return [-part.constraints(part.lift(part.p_hat)).values for part in self.smooth]

    def _deepest(self) -> tuple[Array, bool]:
        """Return a mix that is as deep in every smooth set as another allows, moved off the bounds it touches.

        One more coordinate scales the depths of all smooth sets; its minimum is below 1 where they meet.
        """
        n_limits, geometry = int((~self.inside.tight).sum()), self.geometry
        depths = np.concatenate([np.zeros(n_limits), *self._depths()])
        wider = Geometry(
            self.n_contexts,
            np.pad(geometry.equalities, ((0, 0), (0, 1))),
            geometry.totals,
            *(getattr(geometry, name) for name in _LINEAR),
        )

        def relaxed(x: Array) -> Constraints:
            own = self.constraints(x[..., :-1])
            column = np.broadcast_to(-depths[:, None], (*own.regular.shape[:-1], 1))
            regular = np.concatenate([own.regular, column], axis=-1)
            bend, poles = (
                np.concatenate([part, np.zeros_like(column)], axis=-1) for part in (own.curvature, own.poles)
            )
            return Constraints(x, own.values + depths * (1.0 - x[..., -1:]), regular, bend, poles)

        start = self.lift(self.inside.p)
        values = self.constraints(start).values[n_limits:]
        if not np.isfinite(values).all():
            raise EmptySetError(self._apart(np.inf))
        scale = float(np.max(values / depths[n_limits:])) + 1.0
        cost = np.zeros((1, self.size + 1))
        cost[0, -1] = -1.0 / max(scale, 1.0)
        found, _ = maximise(
            wider, relaxed, cost, np.append(start, 1.5 * max(scale, 0.0) + 0.5), positive(self.inside.p)
        )
        p, level = np.clip(found.x[0, : self.n_contexts], self.linear.low, self.linear.high), float(found.x[0, -1])
        p = p / p.sum()
        if level > 1.0 + _THIN:
            raise EmptySetError(self._apart(level))
        if level > 1.0 - _THIN:
            return p, True
        share, enough = 0.5, -0.5 * (1.0 - level) * depths[n_limits:]
        while share > 1e-12:
            blended = (1.0 - share) * p + share * self.inside.p
            if (self.constraints(self.lift(blended)).values[n_limits:] <= enough).all():
                return blended, False
            share *= 0.5
        return p, True

    def _excluded(self, p: Array) -> str:
        linear = self.linear
        out = np.flatnonzero((p < linear.low - MEMBERSHIP_TOLERANCE) | (p > linear.high + MEMBERSHIP_TOLERANCE))
        if out.size:
            c = out[0]
            return (
                f"no mix is in all sets: one of them is a single mix, in which {linear.name(c)} has {p[c]:.4g}, and "
                f"its bounds are {linear.low[c]:g} and {linear.high[c]:g}. Give the set a radius, or widen the bounds."
            )
        return "no mix is in all sets: one of them is a single mix, which the limits exclude. Give it a radius."

    def _apart(self, level: float) -> str:
        """Say which conditions leave no mix, the simplest contradiction first."""
        linear = self.linear
        for part in self.smooth:
            for c in np.flatnonzero((linear.low > 0.0) | (linear.high < 1.0)).tolist():
                low, high = part.interval(c)
                if high < linear.low[c] - MEMBERSHIP_TOLERANCE or low > linear.high[c] + MEMBERSHIP_TOLERANCE:
                    return (
                        f"no mix is in all sets: {linear.name(c)} is bounded to {linear.low[c]:g} to "
                        f"{linear.high[c]:g}, but every mix {part.where} gives it {low:.4g} to {high:.4g}. "
                        "Widen the bounds, or enlarge the set."
                    )
        stated = [part.where for part in self.smooth]
        if (linear.low > 0.0).any() or (linear.high < 1.0).any():
            stated.append("within the bounds")
        if len(linear.b):
            stated.append("within the limits")
        only = self.smooth[0]
        near = ""
        if len(self.smooth) == 1 and isinstance(only, Ball) and np.isfinite(level):
            near = f" The nearest is {only.radius * level:.3g}{only.measure} away."
        return f"no mix lies {' and '.join(stated)}.{near} Widen the bounds, or enlarge the set."


_LINEAR = ("floors", "low", "ceilings", "high", "owners", "helpers", "offsets")


def _independent(rows: Array, totals: Array, movable: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return the first row and as many others as are linearly independent where coordinates can move."""
    if len(rows) == 1:
        return rows, totals
    scale = np.maximum(np.abs(rows).max(axis=1), 1e-300)
    # Weighed up, the first row is the first pivot.
    weights = np.concatenate([[1e3], np.ones(len(rows) - 1)]) / scale
    _, triangle, pivots = linalg.qr((weights[:, None] * rows * movable).T, mode="economic", pivoting=True)
    rank = int((np.abs(np.diagonal(triangle)) > 1e-10).sum())
    kept = np.sort(pivots[:rank])
    return rows[kept], totals[kept]


def _pairs(geometry: Geometry) -> NDArray[np.intp]:
    return np.stack([geometry.owners, geometry.helpers], axis=1).ravel()


def _shown(p: Array) -> str:
    return "(" + ", ".join(f"{share:.4g}" for share in p[:4]) + (", ...)" if len(p) > 4 else ")")
