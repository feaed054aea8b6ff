"""Linear models whose rows are elsewhere (on a GPU, in chunks, on workers): all that comes back are sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from counterpoise.linalg import solve_stack
from counterpoise.losses import Hinged, Loss
from counterpoise.oracle import decrease
from counterpoise.oracle._base import BasePoint
from counterpoise.oracle.coefficients import Coefficients
from counterpoise.oracle.linear_bounds import CUTS, Ridge, Slopes, balanced_bounds

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sums:
    """What one pass over the rows says about each context, without the ridge.

    Attributes
    ----------
    values : ndarray of shape (n_contexts,)
        Mean losses.
    gradients : ndarray of shape (n_contexts, n_parameters)
    pulls : ndarray of shape (n_contexts,)
        Mean absolute slopes: the size of the terms that gradients are summed from.
    """

    values: Array
    gradients: Array
    pulls: Array


class Rows(Protocol):
    """Rows with weights that add up to one in each context. Theta is laid out as in ``LinearOracle``."""

    @property
    def loss(self) -> Loss:
        """The loss, with a third-order constant."""

    @property
    def n_contexts(self) -> int:
        """Contexts."""

    @property
    def n_features(self) -> int:
        """Columns of X."""

    @property
    def fit_intercept(self) -> bool:
        """Whether there is an intercept."""

    @property
    def reach(self) -> Array:
        """The largest absolute value of each column, of shape (n_features,)."""

    @property
    def typical(self) -> float:
        """A constant prediction that makes sense, every context with the same weight."""

    def floors(self, constant: float) -> tuple[Array, float]:
        """Return each context's mean lowest loss, and how far the loss of a constant prediction is above it."""

    def sums(self, theta: Array, cut: float = 0.0, expecting: Array | None = None) -> Sums:
        """Return sums at one theta (n_parameters,), or at one for each context (n_contexts, n_parameters).

        With a cut they are of :meth:`counterpoise.losses.Loss.truncated`, a loss that lies below. ``expecting`` are the
        weights of the Hessian that will be asked for next, where they are known: one pass can serve both.
        """

    def hessian(self, theta: Array, weights: Array, cut: float = 0.0) -> Array:
        """Return the Hessian of ``sum_c weights_c risk_c`` at one theta."""

    def hessians(self, theta: Array, cut: float = 0.0) -> Array:
        """Return the Hessian of every context's risk at a theta of its own: (n_contexts, P, P)."""

    def majorant(self, theta: Array, weights: Array) -> Array | None:
        """Return a matrix that lies above the Hessian of ``sum_c weights_c risk_c`` wherever theta is, if any."""

    def solve(self, matrices: Array, rhs: Array) -> Array:
        """Solve many small systems, as :func:`counterpoise.linalg.solve_stack` does, wherever that is fast."""


class HingedRows(Rows, Protocol):
    """Rows that can also be asked what bounds a hinged loss."""

    def slopes(self, theta: Array, weights: Array) -> tuple[Slopes, Array]:
        """Return the slopes of a mixture at one theta, and the Gram matrix of how readily they move."""

    def drift(self, direction: Array) -> Array:
        """Return how fast each risk changes in the end along a direction."""


@dataclass(frozen=True, eq=False)
class SummedOracle(Coefficients):
    """Risks of a linear model, from sums over rows."""

    rows: Rows
    alpha: float = 0.0

    bounds = None
    forms_hessian = True
    offers = frozenset({"hessian", "hessian_product"})
    is_rigorous = True

    @property
    def loss(self) -> Loss:
        """The loss."""
        return self.rows.loss

    @property
    def fit_intercept(self) -> bool:
        """Whether there is an intercept."""
        return self.rows.fit_intercept

    @property
    def n_contexts(self) -> int:
        """Contexts, that is risks."""
        return self.rows.n_contexts

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return self.rows.n_features

    @cached_property
    def reach(self) -> Array:
        """The largest absolute feature behind each parameter."""
        return self.for_each_output(self.rows.reach)

    @cached_property
    def _constant(self) -> float:
        """A constant prediction that makes sense."""
        return self.rows.typical if self.fit_intercept else 0.0

    @cached_property
    def _floors(self) -> tuple[Array, float]:
        return self.rows.floors(self._constant)

    @property
    def lowest_risks(self) -> Array:
        """A lower bound of each context's risk."""
        return self._floors[0]

    @property
    def typical_risk(self) -> float:
        """How far the risk of one constant prediction is above the lowest."""
        return self._floors[1]

    def start(self) -> Array:
        """Return the constant prediction that learns nothing."""
        return self.predicting(self._constant)

    def drift(self, direction: Array) -> Array:
        """Return how fast each risk of a hinged loss, without a ridge, changes in the end along a direction."""
        return cast("HingedRows", self.rows).drift(direction)

    def at(self, theta: Array) -> SummedPoint:
        """Return what is known at ``theta``."""
        return SummedPoint(self, np.asarray(theta, dtype=np.float64))

    def each(self, theta: Array) -> EachPoint:
        """Return what is known with a theta of its own for every context."""
        return EachPoint(self, theta)


@dataclass(frozen=True, eq=False)
class SummedPoint(BasePoint):
    """Risks and their derivatives at one theta."""

    oracle: SummedOracle
    theta: Array

    @cached_property
    def coefficients(self) -> Array:
        """Theta with zeros in place of the intercepts."""
        return self.theta * self.oracle.penalised

    def foresee(self, p: Array) -> None:
        """Let the pass that brings the risks bring this mixture's Hessian too."""
        vars(self)["_foreseen"] = p

    @cached_property
    def _sums(self) -> Sums:
        return self.oracle.rows.sums(self.theta, expecting=vars(self).get("_foreseen"))

    @cached_property
    def risks(self) -> Array:
        """The risk of each context."""
        return self._sums.values + 0.5 * self.oracle.alpha * float(self.coefficients @ self.coefficients)

    @cached_property
    def jacobian(self) -> Array:
        """The gradients of the risks."""
        return self._sums.gradients + self.oracle.alpha * self.coefficients

    def hessian(self, p: Array) -> Array:
        """Return the Hessian of ``sum_c p_c risk_c``."""
        return self._with_ridge(self.oracle.rows.hessian(self.theta, p), p)

    def majorant(self, p: Array) -> Array | None:
        """Return a matrix with which a parabola here lies above ``sum_c p_c risk_c`` everywhere; None if unknown."""
        matrix = self.oracle.rows.majorant(self.theta, p)
        return None if matrix is None else self._with_ridge(matrix, p)

    def _with_ridge(self, matrix: Array, p: Array) -> Array:
        matrix[np.diag_indices_from(matrix)] += self.oracle.alpha * p.sum() * self.oracle.penalised
        return matrix

    def hessian_product(self, p: Array) -> Callable[[Array], Array]:
        """Return the map ``v -> hessian(p) @ v``."""
        return self.hessian(p).__matmul__

    def hessian_diagonal(self, p: Array) -> Array:
        """Return the diagonal of ``hessian(p)``."""
        return np.diagonal(self.hessian(p))

    def lower_bound(self, p: Array, gradient: Array, curvature: Array | None) -> float:
        """Bound the minimum of ``sum_c p_c risk_c`` from below: by self-concordance, or by balanced slopes."""
        oracle = self.oracle
        matrix = self.hessian(p) if curvature is None else curvature
        if isinstance(oracle.loss, Hinged):
            return self._balanced(p, gradient, matrix)
        size = float(p @ self._sums.pulls) * oracle.reach + oracle.alpha * np.abs(self.coefficients)
        third = oracle.loss.third_order
        assert third is not None
        left = decrease.self_concordant(gradient[None], size[None], matrix[None], oracle.reach, third)
        bound = max(float(p @ oracle.lowest_risks), float(p @ self.risks) - float(left[0]))
        if (
            np.isfinite(left[0])
            or not third
            or not _is_near(gradient[None], matrix[None], float(p @ self.risks) - bound)
        ):
            return bound
        return max(bound, self._truncated(p, third))

    def _balanced(self, p: Array, gradient: Array, curvature: Array) -> float:
        """Bound the minimum of a soft hinged loss."""
        oracle, rows = self.oracle, cast("HingedRows", self.oracle.rows)
        floor = float(p @ oracle.lowest_risks)
        if not _is_near(gradient[None], curvature[None], float(p @ self.risks) - floor, 0.1):
            return floor
        slopes, gram = rows.slopes(self.theta, p)
        return max(floor, float(balanced_bounds(slopes, gram, Ridge.of(oracle, self.theta[None]))[0]))

    def _truncated(self, p: Array, third: float) -> float:
        """Bound the minimum where part of the loss vanishes only at infinity; as ``LinearOracle`` does, by passes."""
        oracle = self.oracle
        ridge = 0.5 * oracle.alpha * float(self.coefficients @ self.coefficients)
        best = -np.inf
        for cut in CUTS:
            sums, matrix = oracle.rows.sums(self.theta, cut), oracle.rows.hessian(self.theta, p, cut)
            matrix[np.diag_indices_from(matrix)] += oracle.alpha * p.sum() * oracle.penalised
            gradient = p @ sums.gradients + oracle.alpha * p.sum() * self.coefficients
            size = float(p @ sums.pulls) * oracle.reach + oracle.alpha * np.abs(self.coefficients)
            left = decrease.self_concordant(gradient[None], size[None], matrix[None], oracle.reach, third)
            best = max(best, float(p @ sums.values) + ridge - float(left[0]))
        return best


@dataclass(frozen=True, eq=False)
class EachPoint:
    """Every context's risk at parameters of its own, with derivatives; each is computed when first asked for."""

    oracle: SummedOracle
    theta: Array

    @cached_property
    def _sums(self) -> Sums:
        return self.oracle.rows.sums(self.theta)

    @cached_property
    def _coefficients(self) -> Array:
        return self.theta * self.oracle.penalised

    @cached_property
    def value(self) -> Array:
        """The risk of each context."""
        return self._sums.values + 0.5 * self.oracle.alpha * np.sum(self._coefficients**2, axis=1)

    @cached_property
    def gradient(self) -> Array:
        """Its gradient."""
        return self._sums.gradients + self.oracle.alpha * self._coefficients

    @cached_property
    def hessian(self) -> Array:
        """Its Hessian."""
        matrices = self.oracle.rows.hessians(self.theta)
        diagonal = np.arange(matrices.shape[1])
        matrices[:, diagonal, diagonal] += self.oracle.alpha * self.oracle.penalised
        return matrices

    def lower_bounds(self, contexts: NDArray[np.intp]) -> Array:
        """Bound the minima of some contexts from below."""
        oracle, c = self.oracle, contexts
        size = self._sums.pulls[c, None] * oracle.reach + oracle.alpha * np.abs(self._coefficients[c])
        third: Any = oracle.loss.third_order
        left = decrease.self_concordant(self.gradient[c], size, self.hessian[c], oracle.reach, third)
        bounds = np.maximum(oracle.lowest_risks[c], self.value[c] - left)
        if np.isfinite(left).all() or not third:
            return bounds
        return np.maximum(bounds, self._truncated(c, third))

    def _truncated(self, contexts: NDArray[np.intp], third: float) -> Array:
        """Bound minima where part of the loss vanishes only at infinity."""
        oracle, c = self.oracle, contexts
        best = np.full(len(c), -np.inf)
        ridge = 0.5 * oracle.alpha * np.sum(self._coefficients[c] ** 2, axis=1)
        diagonal = np.arange(self.theta.shape[1])
        for cut in CUTS:
            sums, matrices = oracle.rows.sums(self.theta, cut), oracle.rows.hessians(self.theta, cut)[c]
            matrices[:, diagonal, diagonal] += oracle.alpha * oracle.penalised
            gradient = sums.gradients[c] + oracle.alpha * self._coefficients[c]
            size = sums.pulls[c, None] * oracle.reach + oracle.alpha * np.abs(self._coefficients[c])
            left = decrease.self_concordant(gradient, size, matrices, oracle.reach, third)
            best = np.maximum(best, sums.values[c] + ridge - left)
        return best


def _is_near(gradient: Array, curvature: Array, height: float, share: float = 1e-4) -> bool:
    """Tell whether a Newton step promises little beside what is left above the floor: passes are not cheap."""
    step = solve_stack(curvature, gradient)
    return 0.5 * float(gradient[0] @ step[0]) <= share * abs(height)
