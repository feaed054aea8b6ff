"""The one interface between a problem and its solvers: what is known at a point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Bounds = tuple[Array, Array]

FACTS = {
    "hessian": "risks with second derivatives",
    "hessian_product": "risks with second derivatives",
    "curvature_share": "risks that know how much of a Hessian is left elsewhere",
    "kinks": "one parameter, a piecewise linear loss and alpha=0",
    "row_duals": "linear models with a hinged loss (Huber, Pinball, ...)",
    "rows": "risks with rows to draw from",
}
"""What an oracle may know beyond risks and gradients, each with the problems that have it."""


class Point(Protocol):
    """The risks and their derivatives at one parameter vector; each is computed when first asked for."""

    @property
    def theta(self) -> Array:
        """The parameters, of shape (n_parameters,)."""

    @property
    def risks(self) -> Array:
        """The risk of each context, of shape (n_contexts,)."""

    @property
    def jacobian(self) -> Array:
        """The gradients of the risks, of shape (n_contexts, n_parameters)."""

    def hessian(self, p: Array) -> Array:
        """Return the Hessian of ``sum_c p_c risk_c``, of shape (n_parameters, n_parameters)."""

    def majorant(self, p: Array) -> Array | None:
        """Return a matrix with which a parabola here lies above ``sum_c p_c risk_c`` everywhere; None if unknown."""

    def hessian_product(self, p: Array) -> Callable[[Array], Array]:
        """Return the map ``v -> hessian(p) @ v``, which needs no square matrix."""

    def hessian_diagonal(self, p: Array) -> Array:
        """Return the diagonal of ``hessian(p)``."""

    def foresee(self, p: Array) -> None:
        """Learn which mixture's Hessian will be asked for, to fetch it along with the risks where that pays."""

    def shortfall(self, gradient: Array) -> float:
        """Return about how far the minimum under a mixture of this gradient is below its risk; 0 where unknown."""

    def lower_bound(self, p: Array, gradient: Array, curvature: Array | None) -> float:
        """Bound the minimum over theta of ``sum_c p_c risk_c`` from below, by what is known here.

        Parameters
        ----------
        p : ndarray of shape (n_contexts,)
        gradient : ndarray of shape (n_parameters,)
            The gradient that remains once the multipliers of active bounds are taken off.
        curvature : ndarray or None
            A positive semi-definite matrix not above ``hessian(p)``, where the caller has one at hand.
        """


class BasePoint:
    """What a point answers that has no better answer."""

    def foresee(self, p: Array) -> None:
        """Forget it: nothing is fetched along with the risks."""

    def shortfall(self, gradient: Array) -> float:
        """Return nothing."""
        return 0.0


class OnlyKinks(BasePoint):
    """What is known of the curvature at a point whose risks bend only at their kinks: there is none."""

    theta: Array

    def hessian(self, p: Array) -> Array:
        """Return zero."""
        return np.zeros((len(self.theta), len(self.theta)))

    def majorant(self, p: Array) -> None:
        """Nothing lies above a kink and touches it."""

    def hessian_product(self, p: Array) -> Callable[[Array], Array]:
        """Return the map to zero."""
        return np.zeros_like

    def hessian_diagonal(self, p: Array) -> Array:
        """Return zero."""
        return np.zeros(len(self.theta))


class Oracle(Protocol):
    """The only thing that touches data."""

    @property
    def offers(self) -> frozenset[str]:
        """What it knows beyond risks and gradients; see :data:`FACTS`."""

    @property
    def n_contexts(self) -> int:
        """Contexts, that is risks."""

    @property
    def n_parameters(self) -> int:
        """Length of theta."""

    @property
    def bounds(self) -> Bounds | None:
        """Lowest and highest admissible theta, possibly infinite; None if theta is free."""

    @property
    def lowest_risks(self) -> Array:
        """A lower bound of each context's risk, whatever theta; minus infinity where none is known."""

    @property
    def typical_risk(self) -> float:
        """How far a decision that learns nothing is above the lowest risks: what nearly nothing is small against."""

    @property
    def is_rigorous(self) -> bool:
        """Whether ``lower_bound`` is a theorem about this problem, not an estimate at the point."""

    @property
    def forms_hessian(self) -> bool:
        """Whether a square matrix of the size of theta is affordable."""

    def start(self) -> Array:
        """Return a reasonable first theta."""

    def at(self, theta: Array) -> Point:
        """Return what is known at ``theta``."""
