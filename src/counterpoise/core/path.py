"""The whole path from empirical risk minimisation to minimax regret, at little more than the price of one fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from counterpoise.core.fit import fit_problem
from counterpoise.core.objective import Certificate, ReferenceRisks
from counterpoise.core.oracle._base import Array
from counterpoise.core.parabolas import Follower, has_parabolas
from counterpoise.core.problem import LinearProblem, refusing_overflow
from counterpoise.core.solvers import Solution, Status
from counterpoise.sets import Ball, ContextSet, Intersection

Growing = Ball | Intersection
"""A set whose radius makes a path; of an intersection, the radius of its only ball."""

_MOST_FAILURES = 2

_DRAWN_GAP = 1e-3
"""Largest relative gap of a level that is drawn between two others instead of solved."""

_VISIBLE = 0.01
"""Share of a whole path's change below which an error is not seen in a plot of it."""


def solve_path(
    problem: LinearProblem, references: ReferenceRisks, ball: Growing, radii: Array, tol: float
) -> Iterator[Solution]:
    """Solve a problem for sets of growing radius around one distribution.

    Smooth risks are replaced by parabolas around the last solution, with Hessians kept from an earlier point: the
    robust problem of parabolas needs no data. A pass over the data then tells the true risks and their gradients at its
    solution. They certify it, with the kept Hessians bounding the curvature there; or they are the next parabolas.
    Hessians are computed anew where they are too far from the truth.

    Losses with kinks have no parabolas; there some levels are solved and the others drawn between them, where that
    would not be seen in a plot, with a gap that says how good it is.

    Parameters
    ----------
    ball : Ball or Intersection
        Around that distribution, of any radius; of an intersection the only ball grows.
    radii : ndarray
        Ascending and distinct.
    """
    if not has_parabolas(problem):
        yield from _bisect(problem, references, ball, radii, tol)
        return
    for solutions in solve_chains(problem, references, [[ball.resized(radius) for radius in radii]], tol):
        yield from solutions


def solve_chains(
    problem: LinearProblem, references: ReferenceRisks, chains: Iterable[Sequence[ContextSet]], tol: float
) -> Iterator[list[Solution]]:
    """Solve a problem for chains of sets, in which each contains the one before, as :func:`solve_path` does.

    Parameters
    ----------
    chains : iterable of sequences of ContextSet
        The solutions of one are where the next begins.
    """
    follower, failures = Follower.of(problem, references, tol), 0
    follows = has_parabolas(problem)
    for chain in chains:
        # What is proven of a chain is proven of larger sets, and of no other chain.
        follower.lower, solutions = -math.inf, []
        for mixes in chain:
            # Where parabolas lead nowhere time after time, they are not tried again.
            solution = follower.tried(mixes) if follows and failures < _MOST_FAILURES else None
            failures = failures + 1 if solution is None else 0
            if solution is None:
                solution = fit_problem(problem, mixes, references, tol=tol).solution
                if follows:
                    follower.restart(solution)
            solutions.append(solution)
        yield solutions


@refusing_overflow()
def _bisect(
    problem: LinearProblem, references: ReferenceRisks, ball: Growing, radii: Array, tol: float
) -> list[Solution]:
    """Solve some levels, and fill in those between where that is good enough to look at.

    The minimum under a distribution is concave in it, so a mixture of two levels' distributions proves the mixture of
    their lower bounds; parameters on the line between theirs attain an upper bound.
    """
    balls = [ball.resized(radius) for radius in radii]
    solutions: dict[int, Solution] = {}

    def solve(k: int) -> None:
        solutions[k] = fit_problem(problem, balls[k], references, tol=tol).solution

    def between(k: int, i: int, j: int) -> Solution:
        one, other = solutions[i], solutions[j]
        share = _largest_share(balls[k], one.p_worst, other.p_worst)
        near = (_reach(radii[k]) - _reach(radii[i])) / (_reach(radii[j]) - _reach(radii[i]))
        objective = problem.objective(balls[k], references)
        point = objective.oracle.at((1.0 - near) * one.theta + near * other.theta)
        upper, scale = objective.upper_bound(point), max(objective.scale(point), np.finfo(np.float64).tiny)
        lower = (1.0 - share) * one.certificate.lower + share * other.certificate.lower
        certificate = Certificate(min(lower, upper), upper, "global", scale)
        p = (1.0 - share) * one.p_worst + share * other.p_worst
        status = Status.CERTIFIED if certificate.relative_gap <= tol else Status.FINISHED
        return Solution.of(objective, point, p, certificate, status, 0)

    def fill(i: int, j: int) -> None:
        if j - i < 2:
            return
        drawn, middle = {k: between(k, i, j) for k in range(i + 1, j)}, (i + j) // 2
        if not good(drawn):
            solve(middle)
            # Where the middle, once solved, is where it was drawn, so are the others.
            if np.abs(solutions[middle].scores - drawn[middle].scores).max() > _VISIBLE * moves:
                fill(i, middle)
                fill(middle, j)
                return
            parts = {k: between(k, *((i, middle) if k < middle else (middle, j))) for k in drawn if k != middle}
            if not good(parts):
                fill(i, middle)
                fill(middle, j)
                return
            drawn = parts
        solutions.update(drawn)

    def good(drawn: dict[int, Solution]) -> bool:
        # The whole path may change little beside the risks, on which the tolerance is measured.
        return all(
            one.certificate.gap
            <= max(tol * one.certificate.scale, min(_VISIBLE * rises, _DRAWN_GAP * one.certificate.scale))
            for one in drawn.values()
        )

    last = len(radii) - 1
    for k in {0, last, last // 2}:
        solve(k)
    rises = max(solutions[last].value - solutions[0].value, 0.0)
    moves = float(np.abs(solutions[last].scores - solutions[0].scores).max())
    fill(0, last // 2)
    fill(last // 2, last)
    return [solutions[k] for k in range(len(radii))]


def _largest_share(ball: Growing, inside: Array, beyond: Array) -> float:
    """Return how much of ``beyond`` a mixture with ``inside`` may hold and still be a member."""
    low, high = 0.0, 1.0
    if ball.is_simplex or ball.excess(beyond) <= 0.0:
        return 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        fits = ball.excess((1.0 - middle) * inside + middle * beyond) <= 0.0
        low, high = (middle, high) if fits else (low, middle)
    return low


def _reach(radius: float) -> float:
    """Return how far a set reaches, on a scale along which solutions move evenly: a point 0, the simplex 1."""
    return math.sqrt(-math.expm1(-radius * math.log(2.0)))
