"""From the best real number to the best whole one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from counterpoise.objective import Certificate, RobustObjective
from counterpoise.solvers._base import Solution, Status


def best_whole(objective: RobustObjective, solution: Solution) -> Solution:
    """Return the best whole number of an objective of one parameter, next to its solution among all numbers.

    The objective is convex, so a whole number that is no worse than its two neighbours is the best of all: its value is
    a bound from above and from below. The distribution is the least favourable one at that number.
    """
    oracle = objective.oracle
    low, high = (-math.inf, math.inf) if oracle.bounds is None else (float(bound[0]) for bound in oracle.bounds)
    low, high = math.ceil(low) if math.isfinite(low) else low, math.floor(high) if math.isfinite(high) else high
    values: dict[float, float] = {}

    def value(level: float) -> float:
        if not low <= level <= high:
            return math.inf
        if level not in values:
            values[level] = objective.value(oracle.at(np.array([level])))
        return values[level]

    best = float(np.clip(math.floor(float(solution.theta[0])), low, high))
    # One step or none, unless rounding put the solution beyond a whole number.
    while (nearby := min((best, best - 1.0, best + 1.0), key=value)) != best:
        best = nearby
    point = oracle.at(np.array([best]))
    upper = objective.upper_bound(point)
    return replace(
        solution,
        theta=point.theta,
        p_worst=objective.worst_case(point).distribution,
        value=value(best),
        certificate=Certificate(min(value(best), upper), upper, scale=objective.scale(point)),
        status=Status.CERTIFIED,
        risks=point.risks,
        scores=objective.scores(point),
    )
