"""Hinged losses of rows in blocks: the rows' dual variables stay with the rows, and only sums come back.

It is :class:`counterpoise.oracle.polyhedral.PolyhedralOracle` block by block. What a step of the interior-point method
asks of the rows is linear or quadratic in what is chosen afterwards (a target, a length), so three passes serve a step:
one to move and to linearise, one for the affine direction, one for the corrected one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from counterpoise.linalg import positive_solver
from counterpoise.oracle._base import Array, OnlyKinks
from counterpoise.oracle.blocks._base import Answer, Block, Codes
from counterpoise.oracle.blocks.rows import BlockRows
from counterpoise.oracle.blocks.slopes import BlockSlopes, mixture_answer
from counterpoise.oracle.linear import Mixture
from counterpoise.oracle.linear_bounds import Ridge, RowSlopes, balanced_bounds
from counterpoise.oracle.polyhedral import PolyhedralLinearisation, PolyhedralOracle, PolyhedralPoint, RowStep
from counterpoise.oracle.summed import SummedOracle

_NEAR = 1e-5
"""Share of the risk that products of variables and prices may still be, for a bound to be worth its passes."""

RowState = tuple[Array, Array, Array]
"""The dual variables of a block's rows: slopes, and the prices of their two ends."""


@dataclass(frozen=True)
class _LeastSquares:
    """The normal equations of a fit to the hinges, every context with the same weight."""

    weight: float

    def about(self, contexts: Codes) -> _LeastSquares:
        return self

    def __call__(self, block: Block, state: Any) -> Answer:
        oracle = block.oracle
        hinge = PolyhedralOracle(oracle).pieces[0]
        weight = self.weight * oracle.row_weight
        gram = oracle.at(np.zeros(oracle.n_parameters)).gram(weight)
        return Answer(block.contexts, (gram, oracle.transpose_product((weight * hinge)[:, None])))


@dataclass(frozen=True)
class _Distance:
    """How far predictions are from their hinges, and how many there are."""

    theta: Array

    def about(self, contexts: Codes) -> _Distance:
        return self

    def __call__(self, block: Block, state: Any) -> Answer:
        beyond = block.oracle.product(self.theta)[:, 0] - PolyhedralOracle(block.oracle).pieces[0]
        return Answer(block.contexts, (np.array([np.abs(beyond).sum(), len(beyond)]),))


@dataclass(frozen=True)
class _Begin:
    """Every dual variable well inside its bounds; then the first-order model."""

    theta: Array
    p: Array
    p_hat: Array
    margin: float

    def about(self, contexts: Codes) -> _Begin:
        return replace(self, p=self.p[contexts], p_hat=self.p_hat[contexts])

    def __call__(self, block: Block, state: Any) -> tuple[RowState, Answer]:
        oracle = PolyhedralOracle(block.oracle)
        point = oracle.with_margin(self.theta, self.margin).balanced(self.p)
        return (point.v, point.above, point.below), _model_answer(block, point.linearise(self.p, self.p_hat))


@dataclass(frozen=True)
class _Here:
    """The first-order model where the rows are."""

    theta: Array
    p: Array
    p_hat: Array

    def about(self, contexts: Codes) -> _Here:
        return replace(self, p=self.p[contexts], p_hat=self.p_hat[contexts])

    def __call__(self, block: Block, state: RowState) -> Answer:
        point = PolyhedralPoint(PolyhedralOracle(block.oracle), self.theta, *state)
        return _model_answer(block, point.linearise(self.p, self.p_hat))


@dataclass(frozen=True)
class _Direction:
    """Where the rows are, and where a direction of the step takes them.

    Attributes
    ----------
    theta, p, p_hat : ndarray
        Where they are.
    d_theta, d_p, mu : ndarray, ndarray and float
        The direction and its target.
    affine : pair of ndarray, optional
        The changes of theta and p in the affine direction, by whose second order this one is corrected.
    """

    theta: Array
    p: Array
    p_hat: Array
    d_theta: Array
    d_p: Array
    mu: float
    affine: tuple[Array, Array] | None

    def about(self, contexts: Codes) -> Any:
        affine = None if self.affine is None else (self.affine[0], self.affine[1][contexts])
        return replace(self, p=self.p[contexts], p_hat=self.p_hat[contexts], d_p=self.d_p[contexts], affine=affine)

    def expanded(self, block: Block, state: RowState) -> tuple[PolyhedralLinearisation, RowStep]:
        """Return the model of a block where it is, and the rows' part of the direction."""
        model = PolyhedralPoint(PolyhedralOracle(block.oracle), self.theta, *state).linearise(self.p, self.p_hat)
        affine = None if self.affine is None else model.expand(*self.affine, 0.0, None)
        return model, model.expand(self.d_theta, self.d_p, self.mu, affine)

    def __call__(self, block: Block, state: RowState) -> Any:
        model, step = self.expanded(block, state)
        theta, p = model.correction(step)
        return Answer(
            block.contexts,
            (np.array(model.products(step)), theta),
            (p,),
            (np.array(model.longest(step)),),
        )


@dataclass(frozen=True)
class _Move(_Direction):
    """A step in a direction, and the first-order model there."""

    length: float = 0.0
    new_theta: Array = field(default_factory=lambda: np.zeros(0))
    new_p: Array = field(default_factory=lambda: np.zeros(0))

    def about(self, contexts: Codes) -> Any:
        return replace(super().about(contexts), new_p=self.new_p[contexts])

    def __call__(self, block: Block, state: RowState) -> Any:
        model, step = self.expanded(block, state)
        point = model.moved(self.new_theta, self.length, step)
        return (point.v, point.above, point.below), _model_answer(block, point.linearise(self.new_p, self.p_hat))


@dataclass(frozen=True)
class _DualSlopes:
    """The slopes that the dual variables are, for a bound."""

    theta: Array
    p: Array
    moves: tuple[Array, ...] = ()

    def about(self, contexts: Codes) -> _DualSlopes:
        return replace(self, p=self.p[contexts])

    def __call__(self, block: Block, state: RowState) -> Answer:
        point = PolyhedralPoint(PolyhedralOracle(block.oracle), self.theta, *state)
        everywhere = Mixture(point.sharp, np.ones(block.oracle.n_contexts))
        slopes = RowSlopes.inside(everywhere, point.v, *point.readiness(self.p))
        return mixture_answer(block, slopes, self.moves)


def _model_answer(block: Block, model: PolyhedralLinearisation) -> Answer:
    """Return all that is asked of a first-order model before a direction is chosen."""
    theta_0, p_0, theta_mu, p_mu = model.own_shifts
    numbers = np.array([model.complementarity(), *model.residuals])
    return Answer(
        block.contexts,
        (model.gradient, model.curvature, theta_0, theta_mu, numbers),
        (model.point.risks, model.risks, model.jacobian, model.stiffness, p_0, p_mu),
        (np.array(model.lagging()),),
    )


@dataclass(frozen=True, eq=False)
class BlockHingesOracle:
    """Risks with a hinged loss of rows in blocks; points carry the dual variables of the rows.

    Attributes
    ----------
    summed : SummedOracle
        Over :class:`counterpoise.oracle.blocks.rows.BlockRows`.
    """

    summed: SummedOracle

    bounds = None
    is_rigorous = True
    forms_hessian = True
    offers = frozenset({"row_duals"})

    @property
    def rows(self) -> BlockRows:
        """The rows."""
        assert isinstance(self.summed.rows, BlockRows)
        return self.summed.rows

    @property
    def n_contexts(self) -> int:
        """Contexts, that is risks."""
        return self.summed.n_contexts

    @property
    def n_parameters(self) -> int:
        """Length of theta."""
        return self.summed.n_parameters

    @property
    def lowest_risks(self) -> Array:
        """As of the smooth oracle."""
        return self.summed.lowest_risks

    @property
    def typical_risk(self) -> float:
        """As of the smooth oracle."""
        return self.summed.typical_risk

    def start(self) -> Array:
        """Return the least-squares fit to the hinges, or one constant prediction if that is better."""
        summed = self.summed
        gram, right = self.rows.blocks.ask(_LeastSquares(1.0 / self.n_contexts)).sums
        gram = gram + np.diag(summed.alpha * summed.penalised)
        candidates = (positive_solver(gram)(right), summed.start())
        return min(candidates, key=lambda theta: float(summed.at(theta).risks.mean()))

    def at(self, theta: Array) -> BlockHingesPoint:
        """Return a point whose dual variables are well inside their bounds."""
        return BlockHingesPoint(self, theta, _Start(np.full(self.n_contexts, 1.0 / self.n_contexts)))


@dataclass(frozen=True, eq=False)
class _Start:
    """Where a point comes from: nowhere."""

    p: Array


@dataclass(frozen=True, eq=False)
class _Step:
    """A direction with what it was made of; asked about once, when its length is looked for."""

    model: BlockLinearisation
    theta: Array
    p: Array
    mu: float
    affine: _Step | None

    @property
    def question(self) -> dict[str, Any]:
        point = self.model.point
        return {
            "theta": point.theta,
            "p": self.model.p,
            "p_hat": self.model.p_hat,
            "d_theta": self.theta,
            "d_p": self.p,
            "mu": self.mu,
            "affine": None if self.affine is None else (self.affine.theta, self.affine.p),
        }

    @cached_property
    def answer(self) -> Answer:
        point = self.model.point
        return point.oracle.rows.blocks.ask(_Direction(**self.question), point.states)


@dataclass(eq=False)
class BlockHingesPoint(OnlyKinks):
    """Theta with the dual variables of every row, wherever they are.

    ``origin`` is how the point came about: the rows go there once it is linearised, and it is then forgotten.
    """

    oracle: BlockHingesOracle
    theta: Array
    origin: _Start | tuple[_Step, float] | None
    states: Any = field(default=None, repr=False)
    answer: Answer | None = field(default=None, repr=False)

    @cached_property
    def coefficients(self) -> Array:
        """Theta with zeros in place of the intercepts."""
        return self.theta * self.oracle.summed.penalised

    @cached_property
    def ridge(self) -> Array:
        """The gradient of the ridge."""
        return self.oracle.summed.alpha * self.coefficients

    @property
    def height(self) -> float:
        """The ridge itself."""
        return 0.5 * float(self.ridge @ self.coefficients)

    @property
    def _model(self) -> Answer:
        if self.answer is None:
            p = np.full(self.oracle.n_contexts, 1.0 / self.oracle.n_contexts)
            self.linearise(p, p)
        assert self.answer is not None
        return self.answer

    @property
    def risks(self) -> Array:
        """The risk of each context."""
        return self._model.of_each[0] + self.height

    @property
    def jacobian(self) -> Array:
        """Gradients of the risks as the dual variables see them."""
        return self._model.of_each[2] + self.ridge

    def balanced(self, p: Array) -> BlockHingesPoint:
        """Return the point with every dual variable in the middle of its interval for ``p``."""
        return BlockHingesPoint(self.oracle, self.theta, _Start(p))

    def linearise(self, p: Array, p_hat: Array) -> BlockLinearisation:
        """Return the first-order model an interior-point step is made of; the rows move there first."""
        blocks = self.oracle.rows.blocks
        if isinstance(self.origin, _Start):
            distance, n_rows = blocks.ask(_Distance(self.theta)).sums[0]
            question = _Begin(self.theta, p, p_hat, float(distance / n_rows) or 1.0)
            self.states, self.answer = blocks.advance(question)
        elif self.origin is not None:
            step, length = self.origin
            move = _Move(**step.question, length=length, new_theta=self.theta, new_p=p)
            self.states, self.answer = blocks.advance(move, step.model.point.states)
        else:
            self.answer = blocks.ask(_Here(self.theta, p, p_hat), self.states)
        self.origin = None
        return BlockLinearisation(self, p, p_hat, self.answer)

    def lower_bound(self, p: Array, gradient: Array, curvature: Array | None) -> float:
        """Bound the minimum of ``sum_c p_c risk_c`` from below by a feasible point of the dual."""
        oracle = self.oracle
        floor = float(p @ oracle.lowest_risks)
        height = float(np.abs(p @ self.risks - (floor if math.isfinite(floor) else 0.0)))
        if float(self._model.sums[4][0]) > _NEAR * max(height, 1e-3 * oracle.typical_risk):
            return floor
        slopes = BlockSlopes(oracle.rows.blocks, _DualSlopes(self.theta, p), self.states)
        return max(floor, float(balanced_bounds(slopes, slopes.gram, Ridge.of(oracle.summed, self.theta[None]))[0]))


@dataclass(frozen=True, eq=False)
class BlockLinearisation:
    """The rows eliminated at one point; see :class:`counterpoise.oracle.polyhedral.PolyhedralLinearisation`."""

    point: BlockHingesPoint
    p: Array
    p_hat: Array
    answer: Answer

    @cached_property
    def risks(self) -> Array:
        return self.answer.of_each[1] + self.point.height

    @cached_property
    def gradient(self) -> Array:
        return self.answer.sums[0] + self.p.sum() * self.point.ridge

    @cached_property
    def jacobian(self) -> Array:
        return self.answer.of_each[2] + self.point.ridge

    @cached_property
    def curvature(self) -> Array:
        summed = self.point.oracle.summed
        return self.answer.sums[1] + np.diag(self.p.sum() * summed.alpha * summed.penalised)

    @property
    def stiffness(self) -> Array:
        return self.answer.of_each[3]

    def shifts(self, mu: float, affine: _Step | None) -> tuple[Array, Array]:
        _, _, theta_0, theta_mu, _ = self.answer.sums
        _, _, _, _, p_0, p_mu = self.answer.of_each
        theta, p = theta_0 + mu * theta_mu, p_0 + mu * p_mu
        if affine is None:
            return theta, p
        return theta + affine.answer.sums[1], p + affine.answer.of_each[0]

    def expand(self, theta: Array, p: Array, mu: float, affine: _Step | None) -> _Step:
        return _Step(self, theta, p, mu, affine)

    def longest(self, step: _Step) -> float:
        return float(step.answer.least[0])

    def moved(self, theta: Array, length: float, step: _Step) -> BlockHingesPoint:
        return BlockHingesPoint(self.point.oracle, theta, (step, length))

    def complementarity(self, length: float = 0.0, step: _Step | None = None) -> float:
        here = float(self.answer.sums[4][0])
        if step is None:
            return here
        first, second = step.answer.sums[0]
        return here + length * (float(first) + length * float(second))

    def residual(self, mu: float) -> float:
        constant, first, second = self.answer.sums[4][1:]
        return max(float(constant + mu * (first + mu * second)), 0.0)

    def lagging(self) -> float:
        return float(self.answer.least[0])
