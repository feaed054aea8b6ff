"""The whole path from empirical risk minimisation to minimax regret, at little more than the price of one fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from counterpoise.core.drawn_path import draw_path
from counterpoise.core.fit import fit_problem
from counterpoise.core.objective import ReferenceRisks
from counterpoise.core.oracle._base import Array
from counterpoise.core.parabolas import Follower, has_parabolas
from counterpoise.core.problem import LinearProblem
from counterpoise.core.solvers import Solution
from counterpoise.sets import Ball, ContextSet, Intersection

Growing = Ball | Intersection
"""A set whose radius makes a path; of an intersection, the radius of its only ball."""

_MOST_FAILURES = 2


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
        yield from draw_path(problem, references, [ball.resized(radius) for radius in radii], radii, tol)
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
