"""Contexts whose risk is a known constant, after those whose risk depends on theta: they have no rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoise.core.oracle._base import Array, Bounds, Oracle
from counterpoise.linalg import Stack


def with_constants(oracle: Oracle, constants: Array) -> Oracle:
    """Return the oracle with further contexts of constant risk; itself where there are none."""
    found: Any = oracle
    return OracleWithConstants(found, constants) if len(constants) else found


@dataclass(frozen=True, eq=False)
class OracleWithConstants:
    """The risks of an oracle, followed by constants.

    The ridge is no part of a constant: under a mix with some mass on constants the others have the rest of it, and
    so has their ridge. Every question goes to the oracle with the probabilities of its own contexts, which then sum to
    less than one.

    Attributes
    ----------
    oracle : Oracle
    constants : ndarray of shape (n_constants,)
    """

    oracle: Any
    constants: Array

    @property
    def offers(self) -> frozenset[str]:
        """What is known beyond risks and gradients; constants have no rows to draw."""
        return frozenset(self.oracle.offers - {"rows"})

    @property
    def n_contexts(self) -> int:
        """Contexts, that is risks."""
        return int(self.oracle.n_contexts) + len(self.constants)

    @property
    def n_parameters(self) -> int:
        """Length of theta."""
        return int(self.oracle.n_parameters)

    @property
    def bounds(self) -> Bounds | None:
        """On theta."""
        found: Bounds | None = self.oracle.bounds
        return found

    @property
    def lowest_risks(self) -> Array:
        """A lower bound of each risk; of a constant, itself."""
        return np.append(self.oracle.lowest_risks, self.constants)

    @property
    def typical_risk(self) -> float:
        """That of the oracle."""
        return float(self.oracle.typical_risk)

    @property
    def is_rigorous(self) -> bool:
        """Whether bounds are theorems."""
        return bool(self.oracle.is_rigorous)

    @property
    def forms_hessian(self) -> bool:
        """Whether a square matrix of the size of theta is affordable."""
        return bool(self.oracle.forms_hessian)

    @property
    def candidates(self) -> Array:
        """The kinks of risks of one parameter."""
        return np.asarray(self.oracle.candidates)

    def start(self) -> Array:
        """Return a reasonable first theta."""
        return np.asarray(self.oracle.start())

    def at(self, theta: Array) -> PointWithConstants:
        """Return what is known at ``theta``."""
        return PointWithConstants(self, self.oracle.at(theta))

    def around(self, falls: Callable[[Array, Array, Array], int]) -> OracleWithConstants:
        """Return the problem between two kinks; see :func:`counterpoise.core.solvers.scalar.narrowed`."""

        def of_all(risks: Array, left: Array, right: Array) -> int:
            return falls(np.append(risks, self.constants), self.flat(left), self.flat(right))

        return OracleWithConstants(self.oracle.around(of_all), self.constants)

    def own(self, p: Array) -> Array:
        """Return the entries of the oracle's contexts."""
        return p[: self.oracle.n_contexts]

    def flat(self, values: Array) -> Array:
        """Return what there is one of per context, with zeros for the constants."""
        return np.concatenate([values, np.zeros((len(self.constants), *values.shape[1:]))])


class PointWithConstants:
    """Risks and their derivatives at one theta, followed by constants."""

    def __init__(self, oracle: OracleWithConstants, point: Any) -> None:
        self.oracle, self.point = oracle, point

    @property
    def theta(self) -> Array:
        """The parameters."""
        return np.asarray(self.point.theta)

    @property
    def risks(self) -> Array:
        """The risk of each context."""
        return np.append(self.point.risks, self.oracle.constants)

    @property
    def jacobian(self) -> Array:
        """The gradients of the risks."""
        return self.oracle.flat(self.point.jacobian)

    def slopes(self, side: int) -> Array:
        """Return the derivatives of risks of one parameter to the left (0) or to the right (1)."""
        return self.oracle.flat(self.point.slopes(side))

    def hessian(self, p: Array) -> Array:
        """Return the Hessian of ``sum_c p_c risk_c``."""
        return np.asarray(self.point.hessian(self.oracle.own(p)))

    def context_hessians(self) -> Stack:
        """Return the Hessian of every risk."""
        stack: Stack = self.point.context_hessians()
        return stack.followed_by_zeros(len(self.oracle.constants))

    def majorant(self, p: Array) -> Array | None:
        """Return a matrix with which a parabola here lies above ``sum_c p_c risk_c`` everywhere; None if unknown."""
        found: Array | None = self.point.majorant(self.oracle.own(p))
        return found

    def hessian_product(self, p: Array) -> Callable[[Array], Array]:
        """Return the map ``v -> hessian(p) @ v``."""
        found: Callable[[Array], Array] = self.point.hessian_product(self.oracle.own(p))
        return found

    def hessian_diagonal(self, p: Array) -> Array:
        """Return the diagonal of ``hessian(p)``."""
        return np.asarray(self.point.hessian_diagonal(self.oracle.own(p)))

    def curvature_share(self, other: PointWithConstants) -> float:
        """Return how much of any Hessian at the other point is certainly left at this one."""
        return float(self.point.curvature_share(other.point))

    def foresee(self, p: Array) -> None:
        """Learn which mixture's Hessian will be asked for."""
        self.point.foresee(self.oracle.own(p))

    def shortfall(self, gradient: Array) -> float:
        """Return about how far below its value a lower bound will be."""
        return float(self.point.shortfall(gradient))

    def left_by_ridge(self, p: Array) -> float:
        """Return about how far below its value in a mixture the ridge alone proves the minimum to be at most."""
        own = self.oracle.own(p)
        return float(self.point.left_by_ridge(own)) if own.any() else 0.0

    def bound_by_ridge(self, p: Array) -> float:
        """Bound the minimum of ``sum_c p_c risk_c`` from below, by the ridge alone."""
        own = self.oracle.own(p)
        constant = float(p[len(own) :] @ self.oracle.constants)
        return constant + (float(self.point.bound_by_ridge(own)) if own.any() else 0.0)

    def is_proven_by(self, p: Array, curvature: Array) -> bool:
        """Tell whether a matrix bounds the minimum of ``sum_c p_c risk_c`` without another look."""
        own = self.oracle.own(p)
        return bool(not own.any() or self.point.is_proven_by(own, curvature))

    def lower_bound(self, p: Array, gradient: Array, curvature: Array | None) -> float:
        """Bound the minimum of ``sum_c p_c risk_c`` from below."""
        own = self.oracle.own(p)
        constant = float(p[len(own) :] @ self.oracle.constants)
        # Without any mass on what depends on theta there is nothing to minimise.
        return constant + (float(self.point.lower_bound(own, gradient, curvature)) if own.any() else 0.0)

    def linearise(self, p: Array) -> LinearisationWithConstants:
        """Return the model in which rows are eliminated, where points carry their dual variables."""
        return LinearisationWithConstants(self.oracle, self.point.linearise(self.oracle.own(p)))


class LinearisationWithConstants:
    """The rows eliminated at one point, followed by constants; see ``Linearisation`` of the interior-point method."""

    def __init__(self, oracle: OracleWithConstants, model: Any) -> None:
        self._oracle, self._model = oracle, model

    @property
    def risks(self) -> Array:
        """The risks."""
        return np.append(self._model.risks, self._oracle.constants)

    @property
    def gradient(self) -> Array:
        """``sum_c p_c grad R_c``."""
        return np.asarray(self._model.gradient)

    @property
    def jacobian(self) -> Array:
        """How the risks respond to theta."""
        return self._oracle.flat(self._model.jacobian)

    @property
    def curvature(self) -> Array:
        """The Hessian in theta."""
        return np.asarray(self._model.curvature)

    @property
    def stiffness(self) -> Array:
        """What the rows' own variables add to the resistance of p."""
        return self._oracle.flat(self._model.stiffness)

    def shifts(self, mu: float, affine: Any) -> tuple[Array, Array]:
        """Return what residuals of the rows add to stationarity in theta and in p."""
        theta, p = self._model.shifts(mu, affine)
        return theta, self._oracle.flat(p)

    def expand(self, theta: Array, p: Array, mu: float, affine: Any) -> Any:
        """Return the rows' part of a direction."""
        return self._model.expand(theta, self._oracle.own(p), mu, affine)

    def longest(self, step: Any) -> float:
        """Return the longest step that keeps the rows' variables positive."""
        return float(self._model.longest(step))

    def moved(self, theta: Array, length: float, step: Any) -> PointWithConstants:
        """Return the point a step away."""
        return PointWithConstants(self._oracle, self._model.moved(theta, length, step))

    def complementarity(self, length: float = 0.0, step: Any = None) -> float | None:
        """Return the mean of the rows' products of variable and price."""
        found: float | None = self._model.complementarity(length, step)
        return found

    def residual(self, mu: float) -> float:
        """Return the squared residual of the rows' own conditions."""
        return float(self._model.residual(mu))

    def lagging(self) -> float:
        """Return the rows' smallest product over its target at ``mu = 1``."""
        return float(self._model.lagging())
