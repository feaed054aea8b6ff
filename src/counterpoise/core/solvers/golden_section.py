"""One parameter and risks of any kind: golden-section search, which asks for values alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from counterpoise.core.objective import RobustObjective
from counterpoise.core.oracle._base import Point
from counterpoise.core.solvers._base import Array, Solver, State, projected
from counterpoise.exceptions import InvalidInputError

_RATIO = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True)
class GoldenSection(Solver):
    """For one parameter, kinks or not, derivatives or not."""

    def check(self, objective: RobustObjective) -> None:
        """Refuse more than one parameter."""
        super().check(objective)
        if objective.oracle.n_parameters != 1:
            raise InvalidInputError(f"GoldenSection is for one parameter, got {objective.oracle.n_parameters}.")

    def start(self, objective: RobustObjective, theta: Array) -> State:
        """Begin at ``theta``."""
        point = objective.oracle.at(projected(objective, theta))
        return State(point, objective.worst_case(point).distribution)

    def step(self, objective: RobustObjective, state: State) -> State:
        """Find the minimiser; a second step has nothing left to do."""
        if state.extra is not None:
            return replace(state, stalled=True)
        low, high = _bracket(objective, float(state.point.theta[0]))
        best = _narrow(objective, low, high)
        return _balanced(objective, best, low, high)


def _at(objective: RobustObjective, x: float) -> Point:
    return objective.oracle.at(np.array([x]))


def _bracket(objective: RobustObjective, x: float) -> tuple[float, float]:
    """Return an interval that holds a minimiser: the bounds, or what a doubling walk downhill ends in."""
    floor, ceiling = -math.inf, math.inf
    if objective.oracle.bounds is not None:
        floor, ceiling = (float(b[0]) for b in objective.oracle.bounds)
    ends = []
    for direction, limit in ((-1.0, floor), (1.0, ceiling)):
        if math.isfinite(limit):
            ends.append(limit)
            continue
        step, here, value = 0.1 * max(1.0, abs(x)), x, objective.value(_at(objective, x))
        for _ in range(200):
            there = here + direction * step
            after = objective.value(_at(objective, there))
            if not after < value:
                break
            here, value, step = there, after, 2.0 * step
        ends.append(there)
    return ends[0], ends[1]


def _narrow(objective: RobustObjective, low: float, high: float) -> float:
    """Shrink the interval until its ends are neighbours to rounding."""
    inner = [high - _RATIO * (high - low), low + _RATIO * (high - low)]
    values = [objective.value(_at(objective, x)) for x in inner]
    best = min((objective.value(_at(objective, x)), x) for x in (low, high, *inner))
    for _ in range(200):
        if high - low <= 4e-16 * max(abs(low), abs(high)):
            break
        if values[0] <= values[1]:
            high, inner[1], values[1] = inner[1], inner[0], values[0]
            inner[0] = high - _RATIO * (high - low)
            values[0] = objective.value(_at(objective, inner[0]))
            best = min(best, (values[0], inner[0]))
        else:
            low, inner[0], values[0] = inner[0], inner[1], values[1]
            inner[1] = low + _RATIO * (high - low)
            values[1] = objective.value(_at(objective, inner[1]))
            best = min(best, (values[1], inner[1]))
    return best[1]


def _balanced(objective: RobustObjective, x: float, low: float, high: float) -> State:
    """Return the solution with the mixture of nearby least favourable distributions under which it is stationary."""
    point = _at(objective, x)
    best, bound = State(point, objective.worst_case(point).distribution, extra="found"), -math.inf
    scale = max(abs(x), 1e-6 * (high - low), 1e-12)
    for width in (1e-10, 1e-8, 1e-6, 1e-4):
        near = [_at(objective, t) for t in (max(x - width * scale, low), min(x + width * scale, high))]
        p_low, p_high = (objective.worst_case(at).distribution for at in near)
        rise = objective.scores(near[1]) - objective.scores(near[0])
        falls, rises = float(p_low @ rise), float(p_high @ rise)
        share = min(max(rises / (rises - falls), 0.0), 1.0) if rises != falls else 0.5
        for p in (share * p_low + (1.0 - share) * p_high, p_low, p_high):
            member = objective.mixes.project(p)
            lower = objective.lower_bound(point, member)
            if lower > bound:
                best, bound = State(point, member, extra="found"), lower
    return best
