"""Risks that are parabolas: exactly so, or a model of others around a point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterpoise.core.oracle._base import Array, BasePoint
from counterpoise.linalg import Stack, as_stack, positive_solver


@dataclass(frozen=True, eq=False)
class QuadraticOracle:
    r"""Convex parabolas around a common point.

    .. math:: R_c(\theta) = r_c + g_c^\top u + \tfrac12 u^\top H_c u, \qquad u = \theta - \theta_0

    Attributes
    ----------
    centre : ndarray of shape (n_parameters,)
    values : ndarray of shape (n_contexts,)
    gradients : ndarray of shape (n_contexts, n_parameters)
    hessians : Stack, or ndarray of shape (n_contexts, n_parameters, n_parameters)
        A matrix for each context, or one for all.
    typical_risk : float
    """

    centre: Array
    values: Array
    gradients: Array
    hessians: Stack | Array
    typical_risk: float = 0.0

    bounds = None
    forms_hessian = True
    offers = frozenset({"hessian", "hessian_product"})
    is_rigorous = True

    @property
    def n_contexts(self) -> int:
        """Contexts, that is risks."""
        return len(self.values)

    @property
    def n_parameters(self) -> int:
        """Length of theta."""
        return len(self.centre)

    @cached_property
    def stack(self) -> Stack:
        """The Hessians."""
        return as_stack(self.hessians)

    @cached_property
    def lowest_risks(self) -> Array:
        """Minus infinity: a parabola may be flat in some direction."""
        return np.full(self.n_contexts, -np.inf)

    def start(self) -> Array:
        """Return the common point."""
        return self.centre

    def at(self, theta: Array) -> QuadraticPoint:
        """Return what is known at ``theta``."""
        return QuadraticPoint(self, theta)


@dataclass(frozen=True, eq=False)
class QuadraticPoint(BasePoint):
    """Values and derivatives of parabolas at one theta."""

    oracle: QuadraticOracle
    theta: Array

    @cached_property
    def _bent(self) -> Array:
        """``H_c (theta - theta_0)`` for every context."""
        return self.oracle.stack.product(self.theta - self.oracle.centre)

    @cached_property
    def risks(self) -> Array:
        """The risk of each context."""
        move = self.theta - self.oracle.centre
        return np.asarray(self.oracle.values + self.oracle.gradients @ move + 0.5 * self._bent @ move)

    @cached_property
    def jacobian(self) -> Array:
        """The gradients of the risks."""
        return np.asarray(self.oracle.gradients + self._bent)

    def hessian(self, p: Array) -> Array:
        """Return ``sum_c p_c H_c``."""
        stack = self.oracle.stack
        return stack.mixed(p.sum(keepdims=True) if len(stack) == 1 else p)

    def majorant(self, p: Array) -> Array:
        """Return the Hessian, which is the same everywhere."""
        return self.hessian(p)

    def hessian_product(self, p: Array) -> Callable[[Array], Array]:
        """Return the map ``v -> hessian(p) @ v``."""
        return self.hessian(p).__matmul__

    def hessian_diagonal(self, p: Array) -> Array:
        """Return the diagonal of ``hessian(p)``."""
        return np.diagonal(self.hessian(p))

    def lower_bound(self, p: Array, gradient: Array, curvature: Array | None) -> float:
        """Return the minimum of ``sum_c p_c risk_c``, which one Newton step reaches."""
        step = positive_solver(self.hessian(p) if curvature is None else curvature)(gradient)
        return float(p @ self.risks - 0.5 * gradient @ step)
