"""From the best real number to the best whole one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from counterpoise.core.objective import RobustObjective
from counterpoise.core.solvers._base import Solution, Status, solution_at


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
    found = solution_at(objective, np.array([best]))
    return replace(
        found,
        certificate=replace(found.certificate, lower=min(found.value, found.certificate.upper)),
        status=Status.CERTIFIED,
        n_iter=solution.n_iter,
    )
