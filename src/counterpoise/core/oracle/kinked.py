"""Linear models with a hinged loss for an interior-point method: the rows' dual variables stay with the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from counterpoise.core.oracle._base import Array, OnlyKinks
from counterpoise.core.oracle.bounds import balanced_bounds
from counterpoise.core.oracle.linear import LinearOracle, Ridge, RidgedAt
from counterpoise.linalg import positive_solver
from counterpoise.rows import BlockSlopes
from counterpoise.rows.hinged import (
    Begin,
    Direction,
    Distance,
    DualSlopes,
    Here,
    LeastSquares,
    ModelAnswer,
    Move,
    StepAnswer,
)

_NEAR = 1e-5
"""Share of the risk that products of variables and prices may still be, for a bound to be worth its passes."""


@dataclass(frozen=True, eq=False)
class KinkedOracle(LinearOracle):
    """Risks of a linear model with a hinged loss; points carry the dual variables of their rows."""

    offers = frozenset({"row_duals"})
    forms_hessian = True

    @classmethod
    def of(cls, oracle: LinearOracle) -> KinkedOracle:
        """Return the same risks in this form."""
        return cls(oracle.rows, oracle.alpha, oracle.bounds)

    @property
    def blocks(self) -> Any:
        """The rows."""
        return self.rows.blocks

    @cached_property
    def uniform(self) -> Array:
        """Equal probabilities."""
        return np.full(self.n_contexts, 1.0 / self.n_contexts)

    def start(self) -> Array:
        """Return the least-squares fit to the hinges, or one constant prediction if that is better."""
        answer = self.blocks.ask(LeastSquares(np.zeros((1, self.n_parameters)), self.uniform))
        gram = self.ridge.added(answer.gram[0] / self.n_contexts)
        candidates = (positive_solver(gram)(answer.right[0] / self.n_contexts), super().start())
        return min(candidates, key=lambda theta: float(super(KinkedOracle, self).at(theta).risks.mean()))

    def at(self, theta: Array) -> Any:
        """Return a point whose dual variables are well inside their bounds."""
        return KinkedPoint(self, theta, _Start())


@dataclass(frozen=True)
class _Start:
    """Where a point comes from: nowhere."""


@dataclass(frozen=True, eq=False)
class RowsStep:
    """The rows' part of a direction, with what it was made of; asked about once, when its length is looked for."""

    model: KinkedLinearisation
    theta: Array
    p: Array
    mu: float
    affine: RowsStep | None

    @property
    def question(self) -> dict[str, Any]:
        """What questions about the direction have in common."""
        return {
            "theta": self.model.point.theta[None],
            "p": self.model.p,
            "d_theta": self.theta[None],
            "d_p": self.p,
            "mu": np.array([self.mu]),
            "affine_theta": None if self.affine is None else self.affine.theta[None],
            "affine_p": None if self.affine is None else self.affine.p,
        }

    @cached_property
    def answer(self) -> StepAnswer:
        """What the direction does."""
        point = self.model.point
        return point.oracle.blocks.ask(Direction(**self.question), point.states)

    def complementarity(self, length: float) -> float:
        """Return the mean product of a variable and its price a step away."""
        first, second = (self.answer.products[0] / self.model.p.sum()).tolist()
        return self.model.complementarity() + length * (first + length * second)


@dataclass(eq=False)
class KinkedPoint(OnlyKinks):
    """Theta with the dual variables of every row, wherever they are.

    ``origin`` is how the point came about: the rows go there once it is linearised, and it is then forgotten.
    """

    oracle: KinkedOracle
    theta: Array
    origin: _Start | tuple[RowsStep, float] | None
    states: Any = field(default=None, repr=False)
    answer: ModelAnswer | None = field(default=None, repr=False)

    @property
    def ridge(self) -> Ridge:
        """The ridge of every risk."""
        return self.oracle.ridge

    @property
    def _model(self) -> ModelAnswer:
        if self.answer is None:
            self.linearise(self.oracle.uniform)
        assert self.answer is not None
        return self.answer

    @property
    def risks(self) -> Array:
        """The risk of each context."""
        return self._model.values + self.ridge.value(self.theta)

    @property
    def jacobian(self) -> Array:
        """Gradients of the risks as the dual variables see them."""
        return self._model.jacobian + self.ridge.gradient(self.theta)

    def linearise(self, p: Array) -> KinkedLinearisation:
        """Return the first-order model an interior-point step is made of; the rows move there first."""
        blocks, around = self.oracle.blocks, 0.0
        if isinstance(self.origin, _Start):
            place = (self.theta[None], p)
            far = blocks.ask(Distance(*place))
            margin = far.distance / far.weight
            self.states, self.answer = blocks.advance(Begin(*place, margin=np.where(margin > 0.0, margin, 1.0)))
        elif self.origin is not None:
            step, length = self.origin
            around = step.complementarity(length)
            move = Move(**step.question, length=np.array([length]), new_theta=self.theta[None], new_p=p, around=around)
            self.states, self.answer = blocks.advance(move, step.model.point.states)
        else:
            self.states, self.answer = blocks.advance(Here(self.theta[None], p), self.states)
        self.origin = None
        return KinkedLinearisation(self, p, self.answer, around)

    def shortfall(self, gradient: Array) -> float:
        """Return about how far below its value a lower bound will be: half of what the rows' products add up to."""
        return float(self._model.complementarity[0])

    def lower_bound(self, p: Array, gradient: Array, curvature: Array | None) -> float:
        """Bound the minimum of ``sum_c p_c risk_c`` from below by a feasible point of the dual."""
        oracle, seen = self.oracle, p > 0.0
        # Row by row the loss is bounded below, which is all there is to know where every row can be met.
        floor = float(p[seen] @ oracle.lowest_risks[seen])
        height = float(np.abs(p @ self.risks - (floor if math.isfinite(floor) else 0.0)))
        finished = float(self._model.complementarity[0]) <= _NEAR * max(height, 1e-3 * oracle.typical_risk)
        if not (finished or oracle.rows.knows_predictions):
            return floor
        # Rows of a context without a probability have slopes of zero width, but not none.
        share = np.where(seen, p, np.finfo(np.float64).tiny)
        question = DualSlopes(self.theta[None], share)
        # Probabilities sum to less than one where other contexts, without rows, have the rest.
        ridge = Ridge(oracle.alpha * float(p.sum()), oracle.ridge.penalised)
        problem = RidgedAt(ridge, oracle.reach, self.theta[None])
        return max(floor, float(balanced_bounds(BlockSlopes(oracle.blocks, question, self.states), problem)[0]))


@dataclass(frozen=True, eq=False)
class KinkedLinearisation:
    """The rows eliminated at one point; see ``Linearisation`` of the interior-point method."""

    point: KinkedPoint
    p: Array
    answer: ModelAnswer
    around: float

    @cached_property
    def risks(self) -> Array:
        return self.answer.risks + self.point.ridge.value(self.point.theta)

    @cached_property
    def gradient(self) -> Array:
        return self.answer.gradient[0] + self.p.sum() * self.point.ridge.gradient(self.point.theta)

    @cached_property
    def jacobian(self) -> Array:
        return self.answer.jacobian + self.point.ridge.gradient(self.point.theta)

    @cached_property
    def curvature(self) -> Array:
        return self.point.ridge.added(self.answer.curvature[0].copy(), float(self.p.sum()))

    @property
    def stiffness(self) -> Array:
        return self.answer.stiffness

    def shifts(self, mu: float, affine: RowsStep | None) -> tuple[Array, Array]:
        answer = self.answer
        theta = answer.theta_shift[0] + mu * answer.theta_lift[0]
        p = answer.p_shift + mu * answer.p_lift
        return (theta, p) if affine is None else (theta + affine.answer.theta[0], p + affine.answer.p)

    def expand(self, theta: Array, p: Array, mu: float, affine: RowsStep | None) -> RowsStep:
        return RowsStep(self, theta, p, mu, affine)

    def longest(self, step: RowsStep) -> float:
        return float(step.answer.longest[0])

    def moved(self, theta: Array, length: float, step: RowsStep) -> KinkedPoint:
        return KinkedPoint(self.point.oracle, theta, (step, length))

    def complementarity(self, length: float = 0.0, step: RowsStep | None = None) -> float:
        # Products are weighted by probabilities, of which contexts without rows may have some.
        own = float(self.answer.complementarity[0] / self.p.sum())
        return own if step is None else step.complementarity(length)

    def residual(self, mu: float) -> float:
        constant, first, second = self.answer.residual[0].tolist()
        away = mu - self.around
        return max(float(constant + away * (first + away * second)), 0.0)

    def lagging(self) -> float:
        return float(self.answer.lagging[0])
