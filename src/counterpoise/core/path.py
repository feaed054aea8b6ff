"""The whole path from empirical risk minimisation to minimax regret, at little more than the price of one fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoise.core.fit import fit_problem
from counterpoise.core.objective import Certificate, ReferenceRisks, RobustObjective
from counterpoise.core.oracle._base import Array
from counterpoise.core.oracle.constant import with_constants
from counterpoise.core.oracle.linear import LinearPoint
from counterpoise.core.oracle.quadratic import QuadraticOracle
from counterpoise.core.problem import LinearProblem, refusing_overflow
from counterpoise.core.solvers import InteriorPoint, Newton, Solution, Status
from counterpoise.linalg import Stack, positive_solver
from counterpoise.sets import Ball, ContextSet, Intersection

Growing = Ball | Intersection
"""A set whose radius makes a path; of an intersection, the radius of its only ball."""

_MOST_ENTRIES = 1 << 25
"""Entries of all contexts' Hessians together, up to which they are kept (256 MB)."""

_TRIES = 6
_MOST_FAILURES = 2

_DRAWN_GAP = 1e-3
"""Largest relative gap of a level that is drawn between two others instead of solved."""

_VISIBLE = 0.01
"""Share of a whole path's change below which an error is not seen in a plot of it."""

_CLOSE, _CLOSER = 1e-2, 1e-2
"""Share of the tolerance to which parabolas are solved, and what is left of it where that proves too little."""

_FIRST_STEPS = 10
"""Newton steps towards the first solution."""

_MOST_STEPS = 6
"""Newton steps after which the worst-case value is taken to have a kink nearby."""


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
    if not _has_parabolas(problem):
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
    follower, failures = _Follower(problem, references, tol), 0
    follows = _has_parabolas(problem)
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


def _has_parabolas(problem: LinearProblem) -> bool:
    """Tell whether risks are smooth, and the Hessians of all contexts small enough to be kept."""
    oracle = problem.oracle
    smooth = oracle.loss.third_order is not None and oracle.forms_hessian
    return bool(smooth and oracle.n_contexts * oracle.n_parameters**2 <= _MOST_ENTRIES)


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


@dataclass(eq=False)
class _Follower:
    """Where the path is: the last point, the point whose Hessians are kept, and what is proven."""

    problem: LinearProblem
    references: ReferenceRisks
    tol: float
    point: LinearPoint | None = None
    anchor: LinearPoint | None = None
    hessians: Stack | None = None
    lower: float = -math.inf
    last: Solution | None = None
    kinked: bool = False
    scale: float | None = None

    def tried(self, ball: ContextSet) -> Solution | None:
        """Return the solution for a set that contains those before; None also where numbers grow too large."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            try:
                return self.solve(ball)
            except ArithmeticError:
                return None

    def solve(self, ball: ContextSet) -> Solution | None:
        """Return the solution for a set that contains those before; None where parabolas do not lead to it."""
        objective = self.problem.objective(ball, self.references)
        oracle: Any = objective.oracle
        if self.point is None:
            # A place to begin is enough; where bounds bind, the worst-case value has kinks at which Newton steps go on.
            near = None if self.problem.sketch is None else self.problem.sketch.theta
            self._look(oracle.at(Newton(tol=1e-3, max_iter=_FIRST_STEPS).solve(objective, near).theta))
        elif self.last is not None:
            solution = self._certified(objective, self.point, self.last.p_worst, 0)
            if solution is not None:
                # A larger set changes nothing once the regrets it could play off are equal.
                return solution
        for attempt in range(_TRIES):
            assert self.point is not None
            assert self.anchor is not None
            assert self.hessians is not None
            model = QuadraticOracle(
                self.point.theta, self.point.risks, self.point.jacobian, self.hessians, oracle.typical_risk
            )
            parabolas = RobustObjective(model, ball, objective.references)
            # A gradient too small to promise a better value may still be too large to prove that there is none.
            theta, p = self._solve(parabolas, ball, max(_CLOSE * self.tol * _CLOSER**attempt, 1e-14))
            point = oracle.at(theta)
            if not np.isfinite(point.risks).all():
                return None
            share = point.curvature_share(self.anchor)
            p = ball.project(p)
            curvature = share * self.hessians.mixed(p)
            bound = objective.lower_bound(point, p, curvature)
            self.point = point
            solution = self._certified(objective, point, p, attempt + 1, bound)
            if solution is not None:
                return solution
            if attempt > 0 or share < 0.5:
                self._look(self.point)
        return None

    def restart(self, solution: Solution) -> None:
        """Go on from a solution that was found in another way."""
        oracle: Any = with_constants(self.problem.oracle, self.problem.unseen)
        self.point, self.last = oracle.at(solution.theta), solution
        self.lower = max(self.lower, solution.certificate.lower)

    def _certified(
        self, objective: RobustObjective, point: LinearPoint, p: Array, n_iter: int, bound: float = -math.inf
    ) -> Solution | None:
        """Return a point as the solution, if a bound found there or earlier proves it."""
        upper = objective.upper_bound(point)
        # Above the value at this very point it is no bound but a failure of arithmetic. Otherwise it is kept: sets are
        # nested, so what bounds the optimum of a smaller one bounds those after it.
        if bound <= upper + 1e-9 * (self.scale or 0.0):
            self.lower = max(self.lower, bound)
        # The scale changes little from level to level; far from done, the last one will do.
        if self.scale is not None and upper - self.lower > 3.0 * self.tol * self.scale:
            return None
        self.scale = max(objective.scale(point), np.finfo(np.float64).tiny)
        certificate = Certificate(min(self.lower, upper), upper, "global", self.scale)
        if certificate.gap > self.tol * self.scale:
            return None
        self.last = Solution.of(objective, point, p, certificate, Status.CERTIFIED, n_iter)
        return self.last

    def _solve(self, parabolas: RobustObjective, ball: ContextSet, close: float) -> tuple[Array, Array]:
        """Return the solution of a problem whose risks are parabolas, and the distribution that goes with it.

        Parameters
        ----------
        close : float
            Share of the scale within which its value is to be.
        """
        if self.scale is None:
            self.scale = parabolas.scale(parabolas.oracle.at(parabolas.oracle.start()))
        answer = None if self.kinked else _newton(parabolas, ball, close * self.scale)
        if answer is not None:
            return answer
        self.kinked = True
        solution = InteriorPoint(tol=close, warm=True).solve(parabolas)
        return solution.theta, solution.p_worst

    def _look(self, point: LinearPoint) -> None:
        """Compute the Hessians at a point."""
        self.point = self.anchor = point
        self.hessians = point.context_hessians()


def _newton(objective: RobustObjective, ball: ContextSet, accuracy: float) -> tuple[Array, Array] | None:
    """Solve a problem whose risks are parabolas by Newton steps on the worst-case value; None near a kink of it."""
    point = objective.oracle.at(objective.oracle.start())
    for _ in range(_MOST_STEPS):
        worst = objective.worst_case(point)
        p, jacobian = worst.distribution, point.jacobian
        gradient, hessian = p @ jacobian, point.hessian(p)
        # The minimum under p, which no step from here can undercut, is this far below.
        if 0.5 * float(gradient @ positive_solver(hessian)(gradient)) <= accuracy:
            return point.theta, p
        bend = ball.sensitivity(worst, objective.scores(point))
        if bend is None:
            return None
        step = positive_solver(hessian + jacobian.T @ bend @ jacobian)(gradient)
        point = objective.oracle.at(point.theta - step)
    return None
