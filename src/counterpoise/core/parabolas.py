"""Robust problems of smooth risks, by parabolas around a point whose Hessians are kept."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from counterpoise.core.largest_parabola import minimise_largest
from counterpoise.core.objective import Certificate, ReferenceRisks, RobustObjective
from counterpoise.core.oracle._base import Array
from counterpoise.core.oracle.constant import PointWithConstants, with_constants
from counterpoise.core.oracle.linear import LinearPoint
from counterpoise.core.oracle.quadratic import QuadraticOracle
from counterpoise.core.problem import LinearProblem
from counterpoise.core.references.specialists import MOST_ENTRIES
from counterpoise.core.solvers import InteriorPoint, Newton, Solution, Status
from counterpoise.linalg import Stack, positive_solver
from counterpoise.sets import ContextSet
from counterpoise.threads import one_thread

_TRIES = 10

_LITTLE = 1e-2
"""Share of kept Hessians that is too little for a proof: the tries that it asks for cost more than other Hessians."""

_POOR = 0.2
"""Share of the way to the optimum that a try with kept Hessians may leave."""

_CLOSE, _CLOSER = 1e-2, 0.1
"""Share of the tolerance to which parabolas are solved, and what is left of it at every further try."""

_CLOSEST = 1e-14
"""Accuracy, relative to the scale, beyond which a model is not solved."""

_TINY = float(np.finfo(np.float64).tiny)

_FAR_UP = 0.1
"""Share of the scale by which a try may be worse than the point before it."""

_SMALL_SYSTEM = 300
"""Parameters up to which systems are solved faster with one thread."""

_FIRST_STEPS = 10
"""Newton steps towards the first solution."""

_MOST_STEPS = 6
"""Newton steps after which the worst-case value is taken to have a kink nearby."""


def has_parabolas(problem: LinearProblem) -> bool:
    """Tell whether risks are smooth, and the Hessians of all contexts small enough to be kept."""
    oracle = problem.oracle
    smooth = oracle.loss.third_order is not None and oracle.forms_hessian
    return bool(smooth and oracle.n_contexts * oracle.n_parameters**2 <= MOST_ENTRIES)


@dataclass(eq=False)
class Follower:
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
    share: float = 1.0

    @classmethod
    def of(cls, problem: LinearProblem, references: ReferenceRisks, tol: float) -> Follower:
        """Begin where the references did, if Hessians are known there."""
        follower = cls(problem, references, tol)
        begin = problem.expansion
        if begin is not None:
            oracle: Any = with_constants(problem.oracle, problem.unseen)
            point: Any = begin if oracle is problem.oracle else PointWithConstants(oracle, begin)
            follower._look(point)
        return follower

    def begin_near(self, ball: ContextSet) -> None:
        """Begin where the worst case over a set is least, of the points that solved other problems of the rows."""
        if self.point is not None and not self.problem.unseen.size:
            objective = self.problem.objective(ball, self.references)
            self.point = min([self.point, *self.problem.answers], key=objective.value)

    @property
    def is_thrifty(self) -> bool:
        """Whether rows in memory are so many that a Hessian costs several looks at them."""
        return self.problem.expansion is not None

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
        assert self.point is not None
        p = objective.worst_case(self.point).distribution if self.last is None else self.last.p_worst
        before = math.inf
        for attempt in range(_TRIES):
            assert self.point is not None
            assert self.anchor is not None
            assert self.hessians is not None
            model = QuadraticOracle(
                self.point.theta, self.point.risks, self.point.jacobian, self.hessians, oracle.typical_risk
            )
            parabolas = RobustObjective(model, ball, objective.references)
            # A gradient too small to promise a better value may still be too large to prove that there is none; and a
            # proof has no more of the Hessians than is certain of them.
            close = max(_CLOSE * self.share * self.tol * _CLOSER**attempt, _CLOSEST)
            theta, p = self._solve(parabolas, ball, close, p)
            point, value = oracle.at(theta), objective.value(self.point)
            # Parabolas that led so far up have nothing to do with the risks; solvers that search a line go on.
            if not objective.value(point) <= value + _FAR_UP * abs(self.scale or 0.0):
                return None
            share, p = point.curvature_share(self.anchor), ball.project(p)
            below = self.hessians.below().mixed(p)
            curvature = share * below
            self.share = share * float(np.trace(below)) / max(float(np.trace(self.hessians.mixed(p))), _TINY)
            # What else bounds a minimum takes more looks than another try.
            bound = objective.lower_bound(point, p, curvature) if point.is_proven_by(p, curvature) else -math.inf
            self.point = point
            solution = self._certified(objective, point, p, attempt + 1, bound)
            if solution is not None:
                return solution
            left = self._left(objective, point, p)
            # Where looks are what a fit costs, Hessians are kept as long as they serve.
            serve = share >= _LITTLE and left <= _POOR * before if self.is_thrifty else share >= 0.5 and attempt == 0
            if not serve:
                self._look(self.point)
                left = math.inf
            before = left
        return None

    def _left(self, objective: RobustObjective, point: LinearPoint, p: Array) -> float:
        """Return about how far a point is from the optimum, as Hessians that are kept have it."""
        assert self.hessians is not None
        gradient, worst = p @ point.jacobian, float(objective.worst_case(point).value)
        promised = 0.5 * float(gradient @ positive_solver(self.hessians.mixed(p))(gradient))
        return worst - float(p @ objective.scores(point)) + promised

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
        solution = Solution.of(objective, point, p, certificate, Status.CERTIFIED, n_iter)
        self.last = replace(solution, gradients=point.jacobian)
        return self.last

    def _solve(self, parabolas: RobustObjective, ball: ContextSet, close: float, p: Array) -> tuple[Array, Array]:
        """Return the solution of a problem whose risks are parabolas, and the distribution that goes with it.

        Parameters
        ----------
        close : float
            Share of the scale within which its value is to be.
        p : ndarray of shape (n_contexts,)
            About that distribution.
        """
        if self.scale is None:
            self.scale = parabolas.scale(parabolas.oracle.at(parabolas.oracle.start()))
        # Threads would wait for each other at every one of many small systems.
        with one_thread() if parabolas.oracle.n_parameters <= _SMALL_SYSTEM else nullcontext():
            if ball.is_simplex:
                answer = minimise_largest(parabolas, p, close * self.scale)
            else:
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
        step = positive_solver(hessian + bend.form(jacobian))(gradient)
        point = objective.oracle.at(point.theta - step)
    return None
