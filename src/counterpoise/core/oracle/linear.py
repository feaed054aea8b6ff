"""Risks of linear models, from sums over rows wherever these are: the ridge is added here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from counterpoise.contexts import Contexts
from counterpoise.core.oracle._base import Array, BasePoint, Bounds
from counterpoise.core.oracle.bounds import lower_bounds, promised_at_most
from counterpoise.linalg import ArrayStack, Stack, as_stack
from counterpoise.losses import Loss
from counterpoise.rows import Codes, Coefficients, Mask, MemoryRows, Part, Slopes, Sums


@dataclass(frozen=True, eq=False)
class Ridge:
    r"""The term :math:`\tfrac\alpha2 \|\text{coef}\|^2` of linear models; the intercept is not penalised."""

    alpha: float
    penalised: Array
    n_outputs: int = 1

    def value(self, theta: Array) -> Any:
        """Return the ridge at one theta, or at several."""
        return 0.5 * self.alpha * np.sum((theta * self.penalised) ** 2, axis=-1)

    def gradient(self, theta: Array) -> Array:
        """Return its gradient."""
        return self.alpha * theta * self.penalised

    def added(self, matrices: Array, weight: float = 1.0) -> Array:
        """Return Hessians with that of the ridge added to them, in place."""
        diagonal = np.arange(matrices.shape[-1])
        matrices[..., diagonal, diagonal] += weight * self.alpha * self.penalised
        return matrices

    def added_to_each(self, stack: Stack) -> Stack:
        """Return a stack of Hessians with that of the ridge added to each."""
        stack = stack.plus_diagonal(self.alpha * self.penalised)
        return replace(stack, null=self.null) if isinstance(stack, ArrayStack) else stack

    @cached_property
    def null(self) -> Array | None:
        """Shifts common to all outputs, which change no loss of several of them, where no ridge holds them."""
        if self.n_outputs == 1:
            return None
        width = len(self.penalised) // self.n_outputs
        free = np.flatnonzero(self.alpha * self.penalised[:width] == 0.0)
        return np.tile(np.eye(width)[free], self.n_outputs) if free.size else None


@dataclass(frozen=True, eq=False)
class RidgedAt:
    """Problems with a ridge at parameters, by their slopes alone; see ``bounds.Ridged``."""

    ridge: Ridge
    reach: Array
    theta: Array

    @property
    def alpha(self) -> float:
        return self.ridge.alpha

    @property
    def penalised(self) -> Array:
        return self.ridge.penalised


@dataclass(frozen=True, eq=False)
class LinearOracle:
    r"""Risks of a linear model.

    .. math:: R_c(\theta) = \sum_{i \in c} w_i\,\ell(y_i, x_i^\top\theta) + \tfrac\alpha2 \|\text{coef}\|^2

    Theta is the raveled (n_outputs, n_features + intercept) matrix, the intercept last; it is not penalised.
    """

    rows: Any
    alpha: float = 0.0
    bounds: Bounds | None = None

    is_rigorous = True

    @classmethod
    def from_rows(
        cls,
        X: Any,
        target: Array,
        contexts: Contexts,
        loss: Loss,
        *,
        sample_weight: Array | None = None,
        alpha: float = 0.0,
        fit_intercept: bool = True,
        bounds: Bounds | None = None,
    ) -> LinearOracle:
        """Group rows in memory by context; arguments have been checked by the caller."""
        return cls(MemoryRows.of(X, target, contexts, loss, sample_weight, fit_intercept), alpha, bounds)

    @property
    def loss(self) -> Loss:
        """The loss."""
        return self.rows.loss

    @property
    def n_contexts(self) -> int:
        """Contexts, that is risks."""
        return self.rows.n_contexts

    @property
    def coefficients(self) -> Coefficients:
        """The shape of theta."""
        return self.rows.coefficients

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return self.coefficients.n_features

    @property
    def fit_intercept(self) -> bool:
        """Whether there is an intercept."""
        return self.coefficients.fit_intercept

    @property
    def n_parameters(self) -> int:
        """Length of theta."""
        return self.coefficients.n_parameters

    @property
    def offers(self) -> frozenset[str]:
        """What is known beyond risks and gradients; more where rows are at hand."""
        known = frozenset({"hessian", "curvature_share"} if self.rows.knows_predictions else {"hessian"})
        return known | {"hessian_product", "rows"} if self.rows.at_hand else known

    @property
    def is_scalar(self) -> bool:
        """Whether there is one parameter, no ridge and a loss of one kink a row: then every kink can be known."""
        kinks = self.loss.is_hinged and self.loss.softness == 0.0 and self.rows.computes_here
        return kinks and self.n_parameters == 1 and self.alpha == 0.0

    @property
    def forms_hessian(self) -> bool:
        """Whether a square matrix of the size of theta is affordable, and worth its price."""
        return self.rows.forms_hessian(self.alpha)

    @cached_property
    def ridge(self) -> Ridge:
        """The ridge of every risk."""
        return Ridge(self.alpha, self.coefficients.penalised, self.coefficients.n_outputs)

    @cached_property
    def reach(self) -> Array:
        """The largest absolute feature behind each parameter."""
        return self.coefficients.for_each_output(self.rows.reach)

    @cached_property
    def _constant(self) -> float:
        """A constant prediction that makes sense."""
        return self.rows.typical if self.fit_intercept else 0.0

    @property
    def lowest_risks(self) -> Array:
        """A lower bound of each context's risk, whatever the parameters."""
        return self.rows.lowest

    @cached_property
    def typical_risk(self) -> float:
        """How far the risk of one constant prediction, or of zero, is above the lowest."""
        return self.rows.above_lowest(self._constant)

    def start(self) -> Array:
        """Return the constant prediction that learns nothing."""
        return self.coefficients.predicting(self._constant)

    def at(self, theta: Array) -> LinearPoint:
        """Return what is known at ``theta``."""
        return LinearPoint(self, np.asarray(theta, dtype=np.float64))

    def context(self, c: int) -> LinearOracle:
        """Return the problem of one context alone, of rows in memory."""
        return self.subset(np.array([c]))

    def subset(self, contexts: Codes) -> LinearOracle:
        """Return the problem of some contexts alone, of rows in memory."""
        return replace(self, rows=self.rows.subset(contexts))

    def drift(self, direction: Array) -> Array:
        """Return how fast each risk of a hinged loss, without a ridge, changes in the end along a direction."""
        return self.rows.drift(direction)

    def random_row(self, context: int, theta: Array, rng: np.random.Generator) -> tuple[float, Array]:
        """Return the loss of one row drawn from a context, with the ridge, and its gradient; of rows in memory."""
        row = replace(self, rows=self.rows.one_row(context, rng)).at(theta)
        return float(row.risks[0]), row.jacobian[0]


@dataclass(eq=False)
class LinearPoint(BasePoint):
    """Risks of a linear model and their derivatives at one theta."""

    oracle: LinearOracle
    theta: Array
    _expecting: Array | None = field(default=None, repr=False)
    _hessians: Stack | None = field(default=None, repr=False)
    _last_stack: ArrayStack | None = field(default=None, repr=False)

    def foresee(self, p: Array) -> None:
        """Let the look that brings the risks bring this mixture's Hessian too, where that saves a pass."""
        self._expecting = p

    @cached_property
    def sums(self) -> Sums:
        """What the rows add up to."""
        return self.oracle.rows.at(self.theta, expecting=self._expecting)

    @cached_property
    def risks(self) -> Array:
        """The risk of each context."""
        return self.sums.values + self.oracle.ridge.value(self.theta)

    @cached_property
    def jacobian(self) -> Array:
        """The gradients of the risks."""
        return self.sums.gradients + self.oracle.ridge.gradient(self.theta)

    def hessian(self, p: Array) -> Array:
        """Return the Hessian of ``sum_c p_c risk_c``."""
        return self.oracle.ridge.added(self.sums.hessian(p), float(p.sum()))

    def majorant(self, p: Array) -> Array | None:
        """Return a matrix with which a parabola here lies above ``sum_c p_c risk_c`` everywhere; None if unknown."""
        matrix = self.sums.majorant(p)
        return None if matrix is None else self.oracle.ridge.added(matrix, float(p.sum()))

    @classmethod
    def known(cls, oracle: LinearOracle, sums: Any, hessians: Stack | None) -> LinearPoint:
        """Return a point at which the rows have been looked at; the Hessian of every context's risk may be there."""
        point = cls(oracle, sums.theta, _hessians=hessians)
        vars(point)["sums"] = sums
        return point

    @property
    def knows_hessians(self) -> bool:
        """Whether the Hessian of every context's risk is there already."""
        return self._hessians is not None

    def context_hessians(self) -> Stack:
        """Return the Hessian of every context's risk, or an estimate that knows how much of it is certain."""
        if self._hessians is None:
            sums: Any = self.sums
            rough = sums.rough_hessians if self.oracle.rows.at_hand else None
            self._hessians = self.oracle.ridge.added_to_each(as_stack(sums.hessians) if rough is None else rough)
        return self._hessians

    def curvature_share(self, other: LinearPoint) -> float:
        """Return how much of any Hessian at the other point is certainly left at this one.

        Along a change ``t`` of a row's prediction, ``|loss'''| <= m loss''`` keeps at least ``exp(-m |t|)`` of its
        curvature; with several outputs ``t`` is the range of the changes.
        """
        steepness = self.oracle.loss.third_order
        sums: Any = self.sums
        return 0.0 if steepness is None else float(np.exp(-steepness * sums.moved(other.sums)))

    def hessian_product(self, p: Array) -> Callable[[Array], Array]:
        """Return the map ``v -> hessian(p) @ v``."""
        sums: Any = self.sums
        product, ridge = sums.hessian_product(p), self.oracle.ridge
        return lambda v: product(v) + p.sum() * ridge.gradient(v)

    def hessian_diagonal(self, p: Array) -> Array:
        """Return the diagonal of ``hessian(p)``."""
        sums: Any = self.sums
        return sums.hessian_diagonal(p) + self.oracle.alpha * p.sum() * self.oracle.coefficients.penalised

    def shortfall(self, gradient: Array) -> float:
        """Return about how far below its value a lower bound will be, where only the ridge proves anything."""
        if self.oracle.forms_hessian or self.oracle.alpha == 0.0:
            return 0.0
        return float(np.sum(np.square(gradient * self.oracle.coefficients.penalised)) / (2.0 * self.oracle.alpha))

    def left_by_ridge(self, p: Array) -> float:
        """Return about how far below its value in a mixture the ridge alone proves the minimum to be at most."""
        gradient = (p @ self.jacobian) * self.oracle.coefficients.penalised
        return float(gradient @ gradient) / (2.0 * self.oracle.alpha * float(p.sum()))

    def bound_by_ridge(self, p: Array) -> float:
        """Bound the minimum of ``sum_c p_c risk_c`` from below, by the ridge alone."""
        mixture = Mixture(self.oracle, self.sums, p)
        return float(lower_bounds(mixture, mixture.gradient, None)[0])

    def is_proven_by(self, p: Array, curvature: Array) -> bool:
        """Tell whether a matrix below the Hessian of ``sum_c p_c risk_c`` bounds its minimum without another look."""
        mixture = Mixture(self.oracle, self.sums, p)
        return bool(np.isfinite(promised_at_most(mixture, mixture.gradient, self._stack(curvature)))[0])

    def _stack(self, curvature: Array) -> Stack:
        """Return a matrix as a stack of one; the same as before for the same matrix, since it knows its inverse."""
        if self._last_stack is None or self._last_stack.matrices.base is not curvature:
            self._last_stack = ArrayStack(curvature[None], null=self.oracle.ridge.null)
        return self._last_stack

    def lower_bound(self, p: Array, gradient: Array, curvature: Array | None) -> float:
        """Bound the minimum of ``sum_c p_c risk_c`` from below, by what is known here."""
        if curvature is None and self.oracle.forms_hessian:
            curvature = self.hessian(p)
        stack = None if curvature is None else self._stack(curvature)
        return float(lower_bounds(Mixture(self.oracle, self.sums, p), gradient[None], stack)[0])


@dataclass(frozen=True, eq=False)
class Mixture:
    """All contexts as one problem, weighted by a distribution; see ``bounds.Problems``."""

    oracle: LinearOracle
    sums: Any
    p: Array

    @property
    def loss(self) -> Loss:
        return self.oracle.loss

    @property
    def at_hand(self) -> bool:
        return self.oracle.rows.at_hand

    @property
    def alpha(self) -> float:
        return self.oracle.alpha * float(self.p.sum())

    @property
    def penalised(self) -> Array:
        return self.oracle.coefficients.penalised

    @property
    def reach(self) -> Array:
        return self.oracle.reach

    @property
    def theta(self) -> Array:
        return np.asarray(self.sums.theta)[None]

    @property
    def lowest(self) -> Array:
        # A context without probability may have no lowest risk.
        seen = self.p > 0.0
        return np.array([self.p[seen] @ self.oracle.lowest_risks[seen]])

    @property
    def value(self) -> Array:
        return np.array([self.p @ (self.sums.values + self.oracle.ridge.value(self.sums.theta))])

    @cached_property
    def gradient(self) -> Array:
        return (self.p @ (self.sums.gradients + self.oracle.ridge.gradient(self.sums.theta)))[None]

    @property
    def hessian(self) -> Stack:
        ridge = self.oracle.ridge
        return ArrayStack(ridge.added(self.sums.hessian(self.p), float(self.p.sum()))[None], null=ridge.null)

    @property
    def sizes(self) -> Array:
        return np.array([self.p @ self.sums.sizes])

    @property
    def largest_prediction(self) -> float:
        return float(np.abs(self.sums.predictions).max())

    def truncated(self, cut: float) -> Mixture:
        return replace(self, sums=self.sums.truncated(cut))

    def centred(self) -> Mixture:
        return replace(self, sums=self.sums.centred(self.p))

    def slopes(self) -> Slopes:
        return self.sums.slopes(self.p)

    def subset(self, keep: Mask) -> Mixture:
        return self


@dataclass(frozen=True, eq=False)
class EachContext:
    """Contexts side by side, each a problem at parameters of its own; see ``bounds.Problems``.

    Attributes
    ----------
    part : Part
        Their rows.
    alpha : float
    theta : ndarray of shape (B, P)
    """

    part: Part
    alpha: float
    theta: Array
    known: Any = None

    @cached_property
    def sums(self) -> Any:
        """What the rows add up to."""
        return self.part.at(self.theta) if self.known is None else self.known

    @property
    def loss(self) -> Loss:
        return self.part.loss

    @property
    def at_hand(self) -> bool:
        return self.part.at_hand

    @property
    def penalised(self) -> Array:
        return self.part.coefficients.penalised

    @property
    def reach(self) -> Array:
        return self.part.reach

    @property
    def ridge(self) -> Ridge:
        """The ridge of every risk."""
        return Ridge(self.alpha, self.penalised, self.part.coefficients.n_outputs)

    @property
    def lowest(self) -> Array:
        return self.part.lowest

    @cached_property
    def value(self) -> Array:
        """The risk of each context."""
        return self.sums.values + self.ridge.value(self.theta)

    @cached_property
    def gradient(self) -> Array:
        """Its gradient."""
        return self.sums.gradients + self.ridge.gradient(self.theta)

    @cached_property
    def hessian(self) -> Stack:
        """Its Hessian."""
        return self.ridge.added_to_each(as_stack(self.sums.hessians))

    @cached_property
    def rough_hessian(self) -> Stack:
        """Its Hessian by some rows, or by quick products where rows are elsewhere; the stack knows what is certain."""
        return self._or_by_all_rows(self.sums.rough_hessians)

    @property
    def sampled_hessian(self) -> Stack:
        """Its Hessian by a sample of the rows in memory, however few parameters there are."""
        return self._or_by_all_rows(self.sums.sampled_hessians)

    def _or_by_all_rows(self, known: Stack | None) -> Stack:
        """Return Hessians of some rows with the ridge, if they are accurate enough, or those of all rows."""
        if known is None:
            return self.hessian
        rough = self.ridge.added_to_each(known)
        return rough if rough.are_accurate() else self.hessian

    @property
    def sizes(self) -> Array:
        return self.sums.sizes

    @property
    def rounding(self) -> float:
        """Share of a sum by which two looks at the same place may differ."""
        return self.part.rounding

    @property
    def above(self) -> Array:
        """How far mean losses are above the least their rows allow; their size where that is nothing."""
        lowest, values = self.lowest, self.sums.values
        return np.where(np.isfinite(lowest), values - np.where(np.isfinite(lowest), lowest, 0.0), np.abs(values))

    @property
    def largest_prediction(self) -> float:
        return float(np.abs(self.sums.predictions).max())

    def at(self, theta: Array) -> EachContext:
        """Return the same contexts at other parameters."""
        return EachContext(self.part, self.alpha, theta)

    def subset(self, keep: Mask) -> EachContext:
        """Return some of the contexts; what is known already is not worked out again."""
        sums = self.sums.subset(keep)
        some = EachContext(sums.part, self.alpha, self.theta[keep], sums)
        for name in ("value", "gradient", "hessian"):
            if name in vars(self):
                vars(some)[name] = vars(self)[name][keep]
        return some

    def truncated(self, cut: float) -> EachContext:
        return EachContext(self.part, self.alpha, self.theta, self.sums.truncated(cut))

    def centred(self) -> EachContext:
        return EachContext(self.part, self.alpha, self.theta, self.sums.centred(None))

    def slopes(self) -> Slopes:
        return self.sums.slopes(None)

    def bounds(self, curvature: Stack) -> Array:
        """Bound the minima from below, with matrices that are not above the Hessians."""
        return lower_bounds(self, self.gradient, curvature)

    def majorant(self) -> Array | None:
        """Return matrices that lie above the Hessians everywhere, where rows are at hand."""
        matrices = self.sums.majorants
        return None if matrices is None else self.ridge.added(matrices)
