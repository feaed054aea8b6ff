"""What every solver shares: one loop, one result, one meaning of done."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from counterpoise.core.objective import Certificate, RobustObjective
from counterpoise.core.oracle._base import FACTS, Oracle, Point
from counterpoise.exceptions import InvalidInputError
from counterpoise.linalg import positive_solver

Array = NDArray[np.float64]

_PROMISING = 10.0
"""Tolerances within which a lower bound is worth its price."""

_ROUNDING = 4.0 * np.finfo(np.float64).eps
"""Share of the scale below which two values are the same."""


class Status(Enum):
    """How a solver ended, as a sentence with the next action in it."""

    CERTIFIED = "The gap is within the tolerance; what that proves, the certificate's scope says."
    UNPROVED = (
        "convex=True alone bounds nothing from below where theta may go anywhere, so the lower bound is an estimate "
        "(scope 'local'). Pass hess=, or bounds= that are finite for every parameter, to have it proved."
    )
    ITERATION_LIMIT = "The iterations ran out before the gap reached the tolerance. Raise max_iter, or tol."
    STALLED = "No step makes progress, and the gap is above the tolerance. Rescale the parameters, or raise tol."
    FINISHED = "The method ran its fixed number of steps; the gap says how good the result is."


@dataclass(frozen=True, eq=False)
class Solution:
    """The outcome of a solver.

    Attributes
    ----------
    theta : ndarray of shape (n_parameters,)
    p_worst : ndarray of shape (n_contexts,)
        The least favourable distribution: together with theta it is the saddle point, so among several least
        favourable distributions (on a kink) it is the one under which theta is optimal.
    value : float
        The worst-case score of theta over the set.
    certificate : Certificate
    status : Status
    n_iter : int
    risks, scores : ndarray of shape (n_contexts,)
        Risks at theta, and risks less references.
    gradients : ndarray of shape (n_contexts, n_parameters), optional
        Gradients of the risks at theta, where the solver knows them.
    """

    theta: Array
    p_worst: Array
    value: float
    certificate: Certificate
    status: Status
    n_iter: int
    risks: Array
    scores: Array
    gradients: Array | None = None

    @classmethod
    def of(
        cls, objective: RobustObjective, point: Point, p: Array, certificate: Certificate, status: Status, n_iter: int
    ) -> Solution:
        """Return a point as the solution of an objective."""
        value, scores = objective.value(point), objective.scores(point)
        # Two values that an iterative method found for nearly the same scores may be in either order.
        certificate = replace(certificate, upper=max(certificate.upper, value))
        return cls(point.theta, p, value, certificate, status, n_iter, point.risks, scores)

    @property
    def success(self) -> bool:
        """Whether the gap reached the tolerance, with all the proof that was asked for."""
        return self.status is Status.CERTIFIED


@dataclass(frozen=True, eq=False)
class State:
    """Where a solver is: a point, and the distribution that goes with it.

    ``curvature`` is the Hessian at the point for ``p`` and ``multipliers`` the prices of the bounds on theta, where the
    solver has them; ``stalled`` says that no step is left; ``extra`` is the solver's own.
    """

    point: Point
    p: Array
    curvature: Array | None = None
    multipliers: tuple[Array, Array] | None = None
    stalled: bool = False
    extra: Any = None


@dataclass(frozen=True)
class Progress:
    """What a callback is told after each check."""

    n_iter: int
    certificate: Certificate


@dataclass(eq=False)
class _Incumbent:
    """The best upper and the best lower bound so far; they may come from different iterates.

    ``latest`` keeps the last iterate instead of the best: a plain method of the literature is what it ends with.
    """

    objective: RobustObjective
    latest: bool = False
    point: Point | None = None
    p: Array | None = None
    upper: float = math.inf
    lower: float = -math.inf
    scale: float = math.inf
    least: float = math.inf

    def __post_init__(self) -> None:
        """Begin with what holds everywhere: no risk is below its lowest."""
        floor = self.objective.oracle.lowest_risks - self.objective.references.upper
        if np.isfinite(floor).all():
            worst = self.objective.mixes.worst_case(floor)
            self.lower, self.p = float(worst.value), worst.distribution

    def update(self, state: State, useful: float = math.inf) -> None:
        """Judge a state; leave out the bound where it would be foreseeably further than ``useful`` scales away."""
        upper = self.objective.upper_bound(state.point)
        scale = self.objective.scale(state.point) if math.isfinite(upper) else math.inf
        # Where rounding hides which is better, the newer one is: each step comes nearer.
        if self.point is None or upper < self.upper or upper - self.least <= _ROUNDING * self.scale or self.latest:
            self.least = min(upper, self.least)
            self.point, self.upper, self.scale = state.point, upper, scale
        if self.lower > self.upper + 1e-9 * self.scale:
            # A value below it disproves the bound (an estimate, or arithmetic that failed): begin anew.
            self.lower, self.p = -math.inf, None
        if not math.isfinite(upper):
            return
        p, curvature = state.p, state.curvature
        member = self.objective.mixes.project(p)
        if curvature is not None:
            # The Hessian is linear in p: at the member it is at least this share of the one at p.
            share = float(np.min(np.divide(member, p, out=np.ones_like(p), where=p > 0)))
            curvature = min(share, 1.0) * curvature
        if self.p is not None and self.upper - self._foreseen(state.point, member, curvature) > useful * self.scale:
            return
        try:
            lower = self.objective.lower_bound(state.point, member, curvature, state.multipliers)
        except ArithmeticError:
            return
        # Above the value at this very point, or not a number, it is no bound but a failure of arithmetic.
        if not lower <= upper + 1e-9 * scale:
            return
        if self.p is None or lower > self.lower:
            self.p, self.lower = member, max(lower, self.lower)

    def _foreseen(self, point: Point, p: Array, curvature: Array | None) -> float:
        """Return about where a bound will be: no higher than the score under ``p``, less half the Newton decrement."""
        if self.objective.oracle.bounds is not None:
            # Their prices take a part of the gradient.
            return math.inf
        score = float(p @ self.objective.scores(point))
        if curvature is None:
            return score - point.shortfall(p @ point.jacobian)
        gradient = p @ point.jacobian
        try:
            return score - 0.5 * float(gradient @ positive_solver(curvature)(gradient))
        except FloatingPointError:
            return score

    def certificate(self) -> Certificate:
        assert self.point is not None
        scope: Literal["global", "local"] = "global" if self.objective.oracle.is_rigorous else "local"
        scale = max(self.scale, np.finfo(np.float64).tiny)
        return Certificate(min(self.lower, self.upper), self.upper, scope, scale)


@dataclass(frozen=True)
class Solver(ABC):
    """A method for the robust problem.

    Parameters
    ----------
    tol : float
        Stop when the gap is at most this share of the objective's scale.
    max_iter : int
    callback : callable, optional
        Called with a :class:`Progress` at every check.
    """

    tol: float = 1e-6
    max_iter: int = 200
    callback: Callable[[Progress], None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.tol >= 0.0:
            raise InvalidInputError(f"tol = {self.tol}; pass a number, 0 or more, such as 1e-6.")
        if not self.max_iter >= 0:
            raise InvalidInputError(f"max_iter = {self.max_iter}; pass a whole number, 0 or more.")

    check_every: ClassVar[int] = 1
    """Iterations between two evaluations of the certificate."""

    needs: ClassVar[tuple[str, ...]] = ()
    """What an oracle has to offer beyond risks and gradients; see :data:`counterpoise.core.oracle._base.FACTS`."""

    certifies: ClassVar[bool] = True
    """Whether not reaching the tolerance is worth a warning; the plain methods of the literature often do not."""

    @abstractmethod
    def start(self, objective: RobustObjective, theta: Array) -> State:
        """Return the first state."""

    @abstractmethod
    def step(self, objective: RobustObjective, state: State) -> State:
        """Return the next state."""

    def check(self, objective: RobustObjective) -> None:
        """Refuse a problem of a shape the method is not made for, before it runs."""
        self.require(objective.oracle, *self.needs)

    def require(self, oracle: Oracle, *facts: str) -> None:
        """Refuse an oracle that does not offer all of these."""
        for fact in facts:
            if fact not in oracle.offers:
                raise InvalidInputError(
                    f"{type(self).__name__} is for {FACTS[fact]}: it needs {fact!r}, which {type(oracle).__name__} "
                    "does not offer."
                )

    def result(self, objective: RobustObjective, state: State) -> State:
        """Return the state that is judged, where it is not the iterate itself."""
        return state

    def solve(self, objective: RobustObjective, theta: Array | None = None) -> Solution:
        """Iterate until the certificate is good enough, or nothing more can be done."""
        self.check(objective)
        incumbent = _Incumbent(objective, latest=not self.certifies)
        state = self.start(objective, objective.oracle.start() if theta is None else np.asarray(theta, np.float64))
        n_iter = 0
        while True:
            if n_iter % self.check_every == 0 or n_iter == self.max_iter or state.stalled:
                last = state.stalled or n_iter >= self.max_iter
                incumbent.update(self.result(objective, state), math.inf if last else _PROMISING * self.tol)
                certificate = incumbent.certificate()
                if self.callback is not None:
                    self.callback(Progress(n_iter, certificate))
                if certificate.gap <= self.tol * certificate.scale:
                    status = Status.CERTIFIED
                    break
                if state.stalled:
                    status = Status.STALLED
                    break
                if n_iter >= self.max_iter:
                    status = Status.ITERATION_LIMIT if self.certifies else Status.FINISHED
                    break
            try:
                state = self.step(objective, state)
            except ArithmeticError:
                state = replace(state, stalled=True)
            n_iter += 1
        assert incumbent.point is not None
        p = objective.mixes.p_hat if incumbent.p is None else incumbent.p
        return Solution.of(objective, incumbent.point, p, certificate, status, n_iter)


def solution_at(objective: RobustObjective, theta: Array) -> Solution:
    """Return what is known of parameters that no solver found: nothing bounds the optimum from below."""
    point = objective.oracle.at(theta)
    certificate = Certificate(-math.inf, objective.upper_bound(point), scale=objective.scale(point))
    return Solution.of(objective, point, objective.worst_case(point).distribution, certificate, Status.FINISHED, 0)


def judged_again(objective: RobustObjective, solution: Solution) -> Solution:
    """Return a solution with the risks at its parameters computed anew; what bounds the optimum from below stays."""
    point, old = objective.oracle.at(solution.theta), solution.certificate
    upper = objective.upper_bound(point)
    certificate = Certificate(min(old.lower, upper), upper, old.scope, max(objective.scale(point), 1e-300))
    value, scores = float(objective.worst_case(point).value), objective.scores(point)
    return replace(solution, value=value, certificate=certificate, risks=point.risks, scores=scores)


def not_certified(status: Status, certificate: Certificate, tol: float) -> str:
    """Return the words of a warning: how the solver ended, the gap, and what was asked for."""
    return (
        f"{status.value} Gap {certificate.gap:.3g}, {certificate.relative_gap:.1g} of the objective's scale; "
        f"asked for {tol:g}."
    )


def foresee(point: Point, p: Array) -> Point:
    """Return a point that knows which mixture's Hessian it will be asked for."""
    point.foresee(p)
    return point


def projected(objective: RobustObjective, theta: Array) -> Array:
    """Return theta clipped to its bounds."""
    bounds = objective.oracle.bounds
    return theta if bounds is None else np.clip(theta, *bounds)
