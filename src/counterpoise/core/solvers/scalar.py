"""One parameter and piecewise linear risks: exact, by bisection over the kinks and then between two of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from counterpoise.core.objective import RobustObjective
from counterpoise.core.solvers._base import Array, Solver, State
from counterpoise.sets import ContextSet


@dataclass(frozen=True)
class ScalarSearch(Solver):
    """Exact to rounding. It needs an oracle of one parameter that knows its kinks (``candidates``, ``slopes``)."""

    needs: ClassVar[tuple[str, ...]] = ("kinks",)

    def start(self, objective: RobustObjective, theta: Array) -> State:
        """Begin at ``theta``."""
        bounds = objective.oracle.bounds
        point = objective.oracle.at(theta if bounds is None else np.clip(theta, *bounds))
        return State(point, objective.worst_case(point).distribution)

    def step(self, objective: RobustObjective, state: State) -> State:
        """Find the minimiser; a second step has nothing left to do."""
        if state.extra is not None:
            return replace(state, stalled=True)
        oracle: Any = objective.oracle
        candidates = oracle.candidates
        low, high = -1, len(candidates)
        while high - low > 1:
            middle = (low + high) // 2
            point = oracle.at(candidates[middle : middle + 1])
            scores = objective.scores(point)
            left = -steepest(objective.mixes, scores, -point.slopes(0))[0]
            right, p = steepest(objective.mixes, scores, point.slopes(1))
            if left <= 0 <= right:
                return State(point, self._balanced(objective, point, p), extra="found")
            low, high = (middle, high) if right < 0 else (low, middle)
        if low < 0 or high >= len(candidates):
            # Beyond the last kink the objective still falls: it has no minimum, or the end is a bound.
            end = candidates[:1] if low < 0 else candidates[-1:]
            point = oracle.at(end)
            return State(point, objective.worst_case(point).distribution, extra="found")
        return _between(objective, float(candidates[low]), float(candidates[high]))

    @staticmethod
    def _balanced(objective: RobustObjective, point: Any, right: Array) -> Array:
        """Mix the least favourable distributions to the left and to the right so that neither direction falls."""
        scores = objective.scores(point)
        left = steepest(objective.mixes, scores, -point.slopes(0))[1]
        falls, rises = float(left @ point.slopes(1)), float(right @ point.slopes(0))
        if falls >= 0:
            return left
        if rises <= 0:
            return right
        upward = float(right @ point.slopes(1))
        share = upward / (upward - falls)
        return share * left + (1.0 - share) * right


def narrowed(objective: RobustObjective) -> RobustObjective:
    """Return the problem on the range between two kinks that holds the minimum, found by an oracle of its own kind.

    ``oracle.around`` is asked, which is told on which side of a theta the worst case is lower.
    """
    mixes, references, oracle = objective.mixes, objective.references, objective.oracle

    def falls(risks: Array, left: Array, right: Array) -> int:
        scores = risks - references.upper
        if steepest(mixes, scores, right)[0] < 0:
            return 1
        return -1 if -steepest(mixes, scores, -left)[0] > 0 else 0

    known: Any = oracle
    return replace(objective, oracle=known.around(falls))


def steepest(mixes: ContextSet, scores: Array, slopes: Array) -> tuple[float, Array]:
    """Return the derivative of the worst-case score along ``slopes``, and the distribution that attains it."""
    spread = float(scores.max() - scores.min())
    noise = 1e-13 * float(np.abs(scores).max())
    if mixes.is_simplex or spread <= noise:
        # Several distributions are least favourable: among those, the steepest one rules.
        tied = scores >= scores.max() - noise
        lowered = np.where(tied, slopes, slopes.min() - 1.0) if mixes.is_simplex else slopes
        p = mixes.worst_case(lowered).distribution
    else:
        p = mixes.worst_case(scores).distribution
    return float(p @ slopes), p


def _between(objective: RobustObjective, low: float, high: float) -> State:
    """Minimise between two neighbouring kinks, where every risk is linear, without touching data."""
    oracle: Any = objective.oracle
    first, last = oracle.at(np.array([low])), oracle.at(np.array([high]))
    start, slopes = objective.scores(first), first.slopes(1)
    p_low = objective.mixes.worst_case(start).distribution
    p_high = objective.mixes.worst_case(objective.scores(last)).distribution
    a, b = low, high
    for _ in range(200):
        middle = a + 0.5 * (b - a)
        if not a < middle < b:
            break
        p = objective.mixes.worst_case(start + slopes * (middle - low)).distribution
        if float(p @ slopes) < 0:
            a, p_low = middle, p
        else:
            b, p_high = middle, p
    falls, rises = float(p_low @ slopes), float(p_high @ slopes)
    share = rises / (rises - falls) if rises > falls else 0.5
    points = [oracle.at(np.array([x])) for x in (a, b)]
    best = min(points, key=objective.value)
    return State(best, share * p_low + (1.0 - share) * p_high, extra="found")
