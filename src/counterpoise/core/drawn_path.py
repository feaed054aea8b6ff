"""The path of losses with kinks: some levels are solved, and the others drawn between them, each with its gap.

Parameters on the line between those of two levels are about as good as those of a level between: they attain an upper
bound. For a lower one there are two. The minimum under a distribution is concave in it, so a mixture of two levels'
distributions proves the mixture of their lower bounds. And where rows are many, those near their hinges on the way
from one level to the other stand for all (:mod:`counterpoise.core.banded`): their slopes, balanced under the mixture,
bound its minimum, as closely as parameters are near it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from counterpoise.core.banded import Bands, serves
from counterpoise.core.fit import fit_problem, solve_in_bands
from counterpoise.core.objective import Certificate, ReferenceRisks
from counterpoise.core.oracle._base import Array
from counterpoise.core.oracle.sloped import SlopedOracle
from counterpoise.core.problem import LinearProblem, refusing_overflow
from counterpoise.core.solvers import Solution, Status
from counterpoise.sets import Ball, Intersection

_DRAWN_GAP = 1e-3
"""Largest relative gap of a level that is drawn between two others instead of solved."""

_VISIBLE = 0.01
"""Share of a whole path's change below which an error is not seen in a plot of it."""

_MANY_ROWS = 20_000
"""Rows from which a level on one side is tried as a guess: it may be far off, and then the try was for nothing."""

_STRETCH = 0.1
"""Share of a band over which slopes turn, in a bound of what is drawn."""


@refusing_overflow()
def draw_path(
    problem: LinearProblem,
    references: ReferenceRisks,
    balls: Sequence[Ball | Intersection],
    radii: Array,
    tol: float,
) -> list[Solution]:
    """Solve some levels, and draw those between where that is good enough to look at."""
    path, last = _DrawnPath(problem, references, balls, radii, tol), len(radii) - 1
    for k in (0, last // 2, last):
        path.solve(k)
    path.fill(0, last // 2)
    path.fill(last // 2, last)
    return [path.levels[k] for k in range(len(radii))]


@dataclass(eq=False)
class _DrawnPath:
    """The levels that are known."""

    problem: LinearProblem
    references: ReferenceRisks
    balls: Sequence[Ball | Intersection]
    radii: Array
    tol: float
    levels: dict[int, Solution] = field(default_factory=dict)

    def solve(self, k: int) -> None:
        """Solve a level, by few of the rows where its solution is about known and that is enough."""
        if k in self.levels:
            return
        guess, ball = self._guess(k), self.balls[k]
        if guess is not None and serves(self.problem.oracle):
            solution = solve_in_bands(self.problem, ball, self.references, self.tol, begin=guess)
            if solution is not None and solution.success:
                self.levels[k] = solution
                return
        self.levels[k] = fit_problem(self.problem, ball, self.references, tol=self.tol).solution

    def _guess(self, k: int) -> Array | None:
        """Return about where a level's solution is, by the known ones on either side."""
        below, above = [i for i in self.levels if i < k], [i for i in self.levels if i > k]
        if below and above:
            i, j = max(below), min(above)
            return self._on_the_way(self._near(k, i, j), i, j)
        if not (below or above) or self.problem.counts.sum() < _MANY_ROWS:
            return None
        return self.levels[max(below) if below else min(above)].theta

    def _near(self, k: int, i: int, j: int) -> float:
        """Return how far on the way between two levels another one is."""
        here, first, last = (_reach(self.radii[level]) for level in (k, i, j))
        return (here - first) / (last - first)

    def _on_the_way(self, near: float, i: int, j: int) -> Array:
        """Return parameters between those of two levels."""
        return (1.0 - near) * self.levels[i].theta + near * self.levels[j].theta

    def fill(self, i: int, j: int) -> None:
        """Draw the levels between two, or solve as many of them as it takes."""
        if j - i < 2:
            return
        middle, below = (i + j) // 2, self._below(i, j)
        # The middle is furthest from both ends: where it is not good, others need not be looked at.
        drawn = {middle: self._between(middle, i, j, below)}
        if self._are_good(drawn):
            drawn |= {k: self._between(k, i, j, below) for k in range(i + 1, j) if k != middle}
        if self._are_good(drawn):
            self.levels.update(drawn)
            return
        self.solve(middle)
        # Where the middle, once solved, is not where it was drawn, neither are the others.
        moves = float(np.abs(self.levels[len(self.radii) - 1].scores - self.levels[0].scores).max())
        if np.abs(self.levels[middle].scores - drawn[middle].scores).max() <= _VISIBLE * moves:
            parts = {k: self._between(k, i, middle, below) for k in range(i + 1, middle)}
            parts |= {k: self._between(k, middle, j, below) for k in range(middle + 1, j)}
            if self._are_good(parts):
                self.levels.update(parts)
                return
        self.fill(i, middle)
        self.fill(middle, j)

    def _below(self, i: int, j: int) -> SlopedOracle | None:
        """Return risks that are nowhere above the true ones, of the rows near their hinges between two levels."""
        oracle = self.problem.oracle
        if not serves(oracle):
            return None
        bands, middle = Bands(oracle), 0.5 * (self.levels[i].theta + self.levels[j].theta)
        bands.around(middle)
        everyone = np.arange(oracle.n_contexts)
        bands.look(middle, everyone)
        some = bands.reduced(everyone)
        return SlopedOracle(some.oracle.rows, oracle.alpha, stretch=_STRETCH * float(some.width[0]))

    def _between(self, k: int, i: int, j: int, below: SlopedOracle | None) -> Solution:
        """Return a level drawn between two others."""
        one, other, ball = self.levels[i], self.levels[j], self.balls[k]
        share = _largest_share(ball, one.p_worst, other.p_worst)
        objective = self.problem.objective(ball, self.references)
        point = objective.oracle.at(self._on_the_way(self._near(k, i, j), i, j))
        upper, scale = objective.upper_bound(point), max(objective.scale(point), np.finfo(np.float64).tiny)
        p = (1.0 - share) * one.p_worst + share * other.p_worst
        lower = (1.0 - share) * one.certificate.lower + share * other.certificate.lower
        if below is not None and upper - lower > self._allowed(scale):
            smaller = self.problem.objective(ball, self.references, below)
            lower = max(lower, smaller.lower_bound(smaller.oracle.at(point.theta), ball.project(p)))
        if upper - lower > self._allowed(scale):
            # Next to the simplex parameters have arrived before the set has; then they keep up with p.
            other_point = objective.oracle.at(self._on_the_way(share, i, j))
            if (value := objective.upper_bound(other_point)) < upper:
                point, upper = other_point, value
        certificate = Certificate(min(lower, upper), upper, "global", scale)
        status = Status.CERTIFIED if certificate.relative_gap <= self.tol else Status.FINISHED
        return Solution.of(objective, point, p, certificate, status, 0)

    def _are_good(self, drawn: dict[int, Solution]) -> bool:
        return all(one.certificate.gap <= self._allowed(one.certificate.scale) for one in drawn.values())

    def _allowed(self, scale: float) -> float:
        """Return the largest gap of a level that is drawn."""
        # The whole path may change little beside the risks, on which the tolerance is measured.
        rises = max(self.levels[len(self.radii) - 1].value - self.levels[0].value, 0.0)
        return max(self.tol * scale, min(_VISIBLE * rises, _DRAWN_GAP * scale))


def _largest_share(ball: Ball | Intersection, inside: Array, beyond: Array) -> float:
    """Return how much of ``beyond`` a mixture with ``inside`` may hold and still be a member."""
    low, high = 0.0, 1.0
    if ball.is_simplex or ball.excess(beyond) <= 0.0:
        return 1.0
    for _ in range(20):
        middle = 0.5 * (low + high)
        fits = ball.excess((1.0 - middle) * inside + middle * beyond) <= 0.0
        low, high = (middle, high) if fits else (low, middle)
    return low


def _reach(radius: float) -> float:
    """Return how far a set reaches, on a scale along which solutions move evenly: a point 0, the simplex 1."""
    return math.sqrt(-math.expm1(-radius * math.log(2.0)))
