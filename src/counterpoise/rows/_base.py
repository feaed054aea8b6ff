"""The one interface between rows and the mathematics: facts, and sums at parameters, wherever the rows are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from counterpoise.linalg import Stack
from counterpoise.losses import Loss
from counterpoise.rows.layouts import Coefficients

Array = NDArray[np.float64]
Codes = NDArray[np.intp]
Mask = NDArray[np.bool_]


class Sums(Protocol):
    """What rows add up to at one theta for all contexts, (P,), or at one for each of them, (C, P); without a ridge."""

    @property
    def theta(self) -> Array:
        """The parameters."""

    @property
    def values(self) -> Array:
        """Mean losses of contexts, of shape (C,)."""

    @property
    def gradients(self) -> Array:
        """Their gradients, of shape (C, P)."""

    @property
    def sizes(self) -> Array:
        """Mean absolute slopes, of shape (C,): the size of the terms that gradients are summed from."""

    def hessian(self, weights: Array) -> Array:
        """Return the Hessian of ``sum_c weights_c value_c`` at one theta, of shape (P, P)."""

    @property
    def hessians(self) -> Array | Stack:
        """The Hessian of every context's mean loss, of shape (C, P, P); a stack where they are not in memory."""

    @property
    def moments(self) -> Array | Stack:
        """The mean of ``g_i g_i'`` in every context, ``g_i`` the gradient of a row's loss; the same."""

    def majorant(self, weights: Array) -> Array | None:
        """Return a matrix above the Hessian of ``sum_c weights_c value_c`` wherever theta is; None if there is none."""

    def truncated(self, cut: float) -> Sums:
        """Return the sums of :meth:`counterpoise.losses.Loss.truncated`, a loss that lies below."""

    def slopes(self, weights: Array | None) -> Slopes:
        """Return the slopes of a hinged loss, of a mixture of contexts or of every context (None)."""


class Slopes(Protocol):
    """A slope for every row of B problems with a hinged loss, which may be moved; what they add up to.

    A feasible choice of slopes that balances bounds the minimum of a problem from below.
    """

    @property
    def pull(self) -> Array:
        """Each problem's ``sum_i weight_i slope_i x_i``, of shape (B, P)."""

    @property
    def size(self) -> Array:
        """Each problem's ``sum_i weight_i |slope_i|``."""

    @property
    def value(self) -> Array:
        """The dual value of each problem at its theta, without the ridge."""

    @property
    def gram(self) -> Array | Stack:
        """Each problem's weighted Gram matrix of how readily slopes move, of shape (B, P, P)."""

    def moved(self, move: Array) -> Slopes:
        """Return slopes moved against ``x_i'move_b``, each as readily as its row bends, and kept inside."""


class Part(Protocol):
    """Rows of B contexts at which references are sought together, each context with parameters of its own."""

    @property
    def loss(self) -> Loss:
        """The loss."""

    @property
    def at_hand(self) -> bool:
        """Whether a look at the rows is cheap."""

    @property
    def knows_predictions(self) -> bool:
        """Whether predictions stay known where rows have been looked at, so that two places can be compared."""

    @property
    def rounding(self) -> float:
        """Share of a sum by which two looks at the same place may differ."""

    @property
    def coefficients(self) -> Coefficients:
        """The shape of theta."""

    @property
    def reach(self) -> Array:
        """The largest absolute feature behind each parameter, of shape (P,)."""

    @property
    def lowest(self) -> Array:
        """Each context's mean lowest loss, of shape (B,)."""

    def at(self, theta: Array) -> Any:
        """Return sums at one theta for each context, (B, P)."""

    def subset(self, keep: Mask) -> Self:
        """Return some of the contexts."""


class Rows(Protocol):
    """Rows with weights that add up to one in each context."""

    @property
    def loss(self) -> Loss:
        """The loss."""

    @property
    def n_contexts(self) -> int:
        """Contexts."""

    @property
    def coefficients(self) -> Coefficients:
        """The shape of theta."""

    @property
    def at_hand(self) -> bool:
        """Whether a look at the rows is cheap; else every look is a pass that is thought about twice."""

    @property
    def knows_predictions(self) -> bool:
        """Whether predictions stay known where rows have been looked at, so that two places can be compared."""

    @property
    def computes_here(self) -> bool:
        """Whether products with rows may be taken by the threads of this process."""

    def forms_hessian(self, alpha: float) -> bool:
        """Tell whether a square matrix of the size of theta is affordable, and worth its price, beside a ridge."""

    @property
    def reach(self) -> Array:
        """The largest absolute value of each column, of shape (n_features,)."""

    @property
    def typical(self) -> float:
        """A constant prediction that makes sense, every context with the same weight."""

    @property
    def lowest(self) -> Array:
        """Each context's mean lowest loss, of shape (C,)."""

    def above_lowest(self, constant: float) -> float:
        """Return how far the mean loss of a constant prediction is above the lowest, on average over contexts."""

    def at(self, theta: Array, expecting: Array | None = None) -> Sums:
        """Return sums at one theta (P,), or at one for each context (C, P).

        ``expecting`` are the weights of the Hessian that will be asked for next, where they are known: one pass can
        serve both.
        """

    def parts(self) -> list[tuple[Codes, Callable[[], Part]]]:
        """Return which contexts' references are sought together, each with what makes the part that they are."""

    @property
    def blocks(self) -> Any:
        """The rows as :class:`counterpoise.rows.Blocks`: hinged losses keep a state of every row."""

    def drift(self, direction: Array) -> Array:
        """Return how fast each mean loss, of a hinged loss, changes in the end along a direction."""

    def finish(self) -> None:
        """Forget what was kept in case the work is cut short: it is done."""
