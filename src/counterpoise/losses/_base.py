"""What every loss declares, and the two shapes losses come in: smooth, and hinged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoise.exceptions import InvalidInputError

Array = NDArray[np.float64]


def weighted_median(values: Array, weight: Array) -> float:
    """Return the smallest value that half the weight does not exceed, so that a weight counts like repeated rows."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(total, (0.5 - 1e-12) * total[-1])]])


class Loss(ABC):
    """A convex loss of a target and a prediction, row by row.

    Predictions have shape (n,), or (n, n_outputs) where there are several outputs. A loss states facts about itself;
    whoever uses it asks for them instead of for its name.
    """

    name: ClassVar[str]
    domain: ClassVar[str]
    """The admissible targets, in words, for error messages and documentation."""

    @property
    def n_outputs(self) -> int:
        """Predictions per row."""
        return 1

    @property
    def third_order(self) -> float | None:
        """The constant ``m`` in ``|loss'''| <= m loss''`` (generalised self-concordance); None where there is none.

        It turns a Newton decrement into a rigorous bound on how far the minimum can be.
        """
        return None

    @abstractmethod
    def outside(self, target: Array) -> NDArray[np.bool_]:
        """Mark the rows whose (finite) target the loss does not accept."""

    @abstractmethod
    def value(self, target: Array, prediction: Array) -> Array:
        """Return the loss of each row."""

    @abstractmethod
    def gradient(self, target: Array, prediction: Array) -> Array:
        """Return the derivative in the prediction; a subgradient where there is a kink."""

    def value_and_gradient(self, target: Array, prediction: Array) -> tuple[Array, Array]:
        """Return both, where they share work at less than the price of both."""
        return self.value(target, prediction), self.gradient(target, prediction)

    @abstractmethod
    def curvature(self, target: Array, prediction: Array) -> Array:
        """Return the second derivative in the prediction: (n,), or (n, n_outputs, n_outputs)."""

    def lowest(self, target: Array) -> Array:
        """Return a lower bound of the loss of each row, whatever the prediction."""
        return np.zeros(len(target))

    def typical(self, target: Array, weight: Array) -> float:
        """Return a constant prediction that makes sense for these targets, to measure others against."""
        return 0.0

    def beyond(self, target: Array) -> Array | None:
        """Return predictions that, made larger and larger, leave no loss in any row; None where there are none."""
        return None

    def majorant(self, target: Array, prediction: Array) -> Array | None:
        """Return a curvature for each row with which a parabola at its prediction lies above the loss everywhere.

        None where there is no such parabola. A step against it never goes uphill.
        """
        return None

    def truncated(self, target: Array, prediction: Array, cut: float) -> tuple[Array, Array, Array]:
        """Return value, gradient and curvature of a loss that lies below, by up to about ``cut``, and is convex too.

        What a row still has to lose, where that is less than ``cut``, is taken as lost: such a row is replaced by its
        lower bound and no longer pulls.
        """
        value, lowest = self.value(target, prediction), self.lowest(target)
        kept = value - lowest > cut
        gradient, curvature = self.gradient(target, prediction), self.curvature(target, prediction)
        return np.where(kept, value, lowest), np.where(kept, gradient, 0.0), np.where(kept, curvature, 0.0)

    is_of_residual: ClassVar[bool] = False
    """Whether the loss is a convex function of the prediction less the target, so that a mean of rows has no more."""

    is_hinged: ClassVar[bool] = False
    """Whether the slope turns around a hinge in each row, as :class:`Hinged` says, so that there are ``pieces``."""

    @property
    def softness(self) -> float:
        """Of a hinged loss: how far from the hinge the slope gains one unit; 0 is a kink."""
        return 0.0

    def pieces(self, target: Array) -> tuple[Array, Array, Array, Array]:
        """Return each row's hinge, height, left slope and right slope, of a hinged loss."""
        raise TypeError(f"the {self.name} loss has no hinges")

    @property
    def target_columns(self) -> int:
        """Columns of the target: 1, or more where a row's loss has parameters of its own."""
        return 1

    def checked_target(self, target: ArrayLike) -> Array:
        """Return the target as floats, or name the first row that is outside the domain."""
        try:
            values = np.asarray(target, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"the {self.name} loss needs numbers as targets ({self.domain}), got {target!r:.60}."
            ) from error
        columns = self.target_columns
        if values.ndim != (1 if columns == 1 else 2) or (columns > 1 and values.shape[1] != columns):
            wanted = "(n,)" if columns == 1 else f"(n, {columns})"
            raise InvalidInputError(
                f"targets of the {self.name} loss have shape {wanted} ({self.domain}), got {values.shape}."
            )
        finite = np.isfinite(values) if columns == 1 else np.isfinite(values).all(axis=1)
        if not finite.all():
            row = int(np.flatnonzero(~finite)[0])
            raise InvalidInputError(f"target in row {row} is {values[row]}; drop or impute rows that are not finite.")
        outside = self.outside(values)
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            raise InvalidInputError(
                f"target in row {row} is {values[row]}; the {self.name} loss needs {self.domain}. "
                "Recode the targets, or choose another loss."
            )
        return values


@dataclass(frozen=True)
class Hinged(Loss):
    r"""A loss whose slope turns from ``left`` to ``right`` around a hinge: at once, or linearly over a stretch.

    .. math:: \ell(z) = h + \max_{l \le u \le r} \; u\,(z - k) - \tfrac{s}{2} u^2

    with hinge :math:`k`, height :math:`h` and softness :math:`s`. Softness 0 is a kink.
    """

    is_hinged: ClassVar[bool] = True

    @abstractmethod
    def pieces(self, target: Array) -> tuple[Array, Array, Array, Array]:
        """Return each row's hinge, height, left slope and right slope."""

    def gradient(self, target: Array, prediction: Array) -> Array:
        """Return the slope; at a kink the right one."""
        hinge, _, left, right = self.pieces(target)
        beyond = prediction - hinge
        if self.softness == 0.0:
            return np.where(beyond >= 0, right, left)
        return np.clip(beyond / self.softness, left, right)

    def value(self, target: Array, prediction: Array) -> Array:
        """Return the loss of each row."""
        hinge, height, _, _ = self.pieces(target)
        slope = self.gradient(target, prediction)
        return height + slope * (prediction - hinge - 0.5 * self.softness * slope)

    def curvature(self, target: Array, prediction: Array) -> Array:
        """Return the second derivative: on the stretch where the slope turns, and zero elsewhere."""
        if self.softness == 0.0:
            return np.zeros(len(target))
        hinge, _, left, right = self.pieces(target)
        turn = (prediction - hinge) / self.softness
        return np.where((turn >= left) & (turn <= right), 1.0 / self.softness, 0.0)

    def typical(self, target: Array, weight: Array) -> float:
        """Return the median hinge."""
        return weighted_median(self.pieces(target)[0], weight)

    def lowest(self, target: Array) -> Array:
        """Return the height of the hinge where it is the minimum, else minus infinity."""
        _, height, left, right = self.pieces(target)
        return np.where((left <= 0) & (right >= 0), height, -np.inf)
