"""Bounds and limits of shares: a mix well inside them, what they fix, and what contradicts what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import EmptySetError
from counterpoise.sets._geometry import Array

TOLERANCE = 1e-10
"""Room below which two bounds are taken for one."""

_MOST = 1e8
"""Multiple of a mix up to which rooms are looked for."""


@dataclass(frozen=True, eq=False)
class Inside:
    """A mix in the relative interior of a polyhedron, and the conditions that hold with equality in all of it."""

    p: Array
    fixed: NDArray[np.bool_]
    tight: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Polyhedron:
    """Distributions with ``low <= p <= high`` and ``A p <= b``."""

    low: Array
    high: Array
    A: Array
    b: Array
    labels: tuple[str, ...] | None = None

    @cached_property
    def inside(self) -> Inside:
        """A mix as far from every condition as may be; raises where there is none."""
        lowest, highest = float(self.low.sum()), float(self.high.sum())
        if (crossed := np.flatnonzero(self.low > self.high + TOLERANCE)).size:
            c = crossed[0]
            raise EmptySetError(
                f"no mix meets all bounds: {self.name(c)} would have to be at least {self.low[c]:g} and at most "
                f"{self.high[c]:g}. Widen one of them."
            )
        if lowest > 1.0 + TOLERANCE:
            raise EmptySetError(
                f"no mix meets the lower bounds: they sum to {lowest:.6g}, more than 1 ({self._largest(self.low)}). "
                "Lower some of them."
            )
        if highest < 1.0 - TOLERANCE:
            raise EmptySetError(
                f"no mix meets the upper bounds: they sum to {highest:.6g}, less than 1 ({self._largest(self.high)}). "
                "Raise some of them."
            )
        return self._between(lowest, highest) if len(self.b) == 0 else self._within_limits()

    def name(self, context: int) -> str:
        """Return how a context is called in messages."""
        return f"context {int(context)}" if self.labels is None else repr(self.labels[int(context)])

    def _largest(self, bounds: Array) -> str:
        order = np.argsort(-bounds, kind="stable")
        shown = [f"{self.name(c)} {bounds[c]:g}" for c in order[:3] if bounds[c] > 0.0]
        return ", ".join(shown) + (", ..." if np.count_nonzero(bounds) > 3 else "")

    def _between(self, lowest: float, highest: float) -> Inside:
        width = np.maximum(self.high - self.low, 0.0)
        total = highest - lowest
        along = 0.0 if total <= 0.0 else min(max((1.0 - lowest) / total, 0.0), 1.0)
        p = self.low + along * width
        room = min(1.0 - lowest, highest - 1.0)
        fixed = (width <= TOLERANCE) | (room <= TOLERANCE)
        return Inside(p / p.sum(), fixed, np.zeros(0, dtype=bool))

    def _within_limits(self) -> Inside:
        """Find by linear programming which conditions can hold with room to spare, and a mix where they do."""
        n, k = len(self.low), len(self.b)
        size = np.maximum(np.abs(self.A).max(axis=1), 1e-300)
        rows = np.vstack([-np.eye(n), np.eye(n), self.A / size[:, None]])
        sides = np.concatenate([-self.low, self.high, self.b / size])
        self._refuse_empty(rows, sides)
        # Which conditions have room: maximise the sum of rooms, each counted up to 1, over all multiples of mixes.
        m = len(rows)
        columns = np.block([[rows, np.eye(m), -sides[:, None]]])
        ones = np.concatenate([np.ones(n), np.zeros(m), [-1.0]])[None]
        bounds = [(0.0, None)] * n + [(0.0, 1.0)] * m + [(1.0, _MOST)]
        found = _linear_program(
            -np.concatenate([np.zeros(n), np.ones(m), [0.0]]), columns, np.zeros(m), ones, 0.0, bounds
        )
        if found is None:
            raise EmptySetError(self._contradiction(np.arange(k), np.zeros(0, dtype=np.intp)))
        rooms = found[n : n + m] / found[-1]
        loose = rooms > TOLERANCE
        # Among those, the mix whose smallest room is largest.
        columns = np.column_stack([rows, loose.astype(np.float64)])
        ones = np.append(np.ones(n), 0.0)[None]
        best = _linear_program(
            -np.append(np.zeros(n), 1.0), columns, sides, ones, 1.0, [(0.0, None)] * n + [(0.0, 1.0)]
        )
        deepest = found[:n] / found[-1] if best is None else best[:n]
        # Each has something the other may lack: the first is strictly inside, the second as deep as can be.
        p = np.clip(0.1 * found[:n] / found[-1] + 0.9 * deepest, self.low, self.high)
        fixed, tight = ~(loose[:n] & loose[n : 2 * n]), ~loose[2 * n :]
        return Inside(self._settled(p, fixed, tight), fixed, tight)

    def _settled(self, p: Array, fixed: NDArray[np.bool_], tight: NDArray[np.bool_]) -> Array:
        """Return a mix with the tolerance of linear programming taken off what holds with equality."""
        nearer_low = np.abs(p - self.low) <= np.abs(self.high - p)
        p = np.where(fixed, np.where(nearer_low, self.low, self.high), p)
        rows = np.vstack([np.ones(len(p)), self.A[tight]])
        lacking = np.append(1.0, self.b[tight]) - rows @ p
        p[~fixed] += np.linalg.lstsq(rows[:, ~fixed], lacking, rcond=None)[0]
        return p

    def _refuse_empty(self, rows: Array, sides: Array) -> None:
        """Raise where no mix meets bounds and limits, naming those of which each is needed for the contradiction."""
        from scipy.optimize import linprog

        n, m = len(self.low), len(rows)
        columns = np.column_stack([rows, -np.eye(m)])
        answer = linprog(
            np.concatenate([np.zeros(n), np.ones(m)]),
            A_ub=columns,
            b_ub=sides,
            A_eq=np.concatenate([np.ones(n), np.zeros(m)])[None],
            b_eq=[1.0],
        )
        if answer.status == 0 and answer.fun <= TOLERANCE * m:
            return
        involved = np.abs(answer.ineqlin.marginals) > 1e-9 if answer.status == 0 else np.ones(m, dtype=bool)
        # The simplex itself bounds shares by 0 and 1.
        own = np.flatnonzero((involved[:n] & (self.low > 0.0)) | (involved[n : 2 * n] & (self.high < 1.0)))
        raise EmptySetError(self._contradiction(np.flatnonzero(involved[2 * n :]), own))

    def _contradiction(self, limits: NDArray[np.intp], contexts: NDArray[np.intp]) -> str:
        stated = [self._limit(k) for k in limits[:3]]
        stated += [f"{self.name(c)} from {self.low[c]:g} to {self.high[c]:g}" for c in contexts[:3]]
        return f"no mix meets these together: {'; '.join(stated)}. Widen one of them."

    def _limit(self, k: int) -> str:
        terms = [f"{self.A[k, c]:g} x {self.name(c)}" for c in np.flatnonzero(self.A[k])[:4]]
        more = " + ..." if np.count_nonzero(self.A[k]) > 4 else ""
        return f"limit {k} ({' + '.join(terms)}{more} <= {self.b[k]:g})"


def _linear_program(
    cost: Array, rows: Array, sides: Array, ones: Array, total: float, bounds: Sequence[tuple[float, float | None]]
) -> Array | None:
    """Return the minimiser over ``rows x <= sides`` and ``ones x = total``; None where none is found."""
    from scipy.optimize import linprog

    # Strict first; where scales differ too much for that, as the solver itself would have it.
    for tolerance in (1e-10, 1e-7):
        options = {"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance}
        answer = linprog(cost, A_ub=rows, b_ub=sides, A_eq=ones, b_eq=[total], bounds=bounds, options=options)
        if answer.status == 0:
            return np.asarray(answer.x)
    return None
