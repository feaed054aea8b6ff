"""What every loss declares, and the two shapes losses come in: smooth, and piecewise linear."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from counterpoise.exceptions import InvalidInputError

Array = NDArray[np.float64]


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

    @property
    def quadratic_reach(self) -> float | None:
        """For a piecewise quadratic loss: residuals up to this size have curvature 1, larger ones 0."""
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

    @abstractmethod
    def curvature(self, target: Array, prediction: Array) -> Array:
        """Return the second derivative in the prediction: (n,), or (n, n_outputs, n_outputs)."""

    def lowest(self, target: Array) -> Array:
        """Return a lower bound of the loss of each row, whatever the prediction."""
        return np.zeros(len(target))

    def typical(self, target: Array) -> float:
        """Return a constant prediction that makes sense for these targets, to measure others against."""
        return 0.0

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
                f"the {self.name} loss needs numbers as targets ({self.domain}), got {np.asarray(target).dtype} values."
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
class PiecewiseLinear(Loss):
    r"""A loss of one kink: ``height + left (z - kink)`` below it, ``height + right (z - kink)`` above."""

    @abstractmethod
    def pieces(self, target: Array) -> tuple[Array, Array, Array, Array]:
        """Return each row's kink, height, left slope and right slope."""

    def value(self, target: Array, prediction: Array) -> Array:
        """Return the loss of each row."""
        kink, height, left, right = self.pieces(target)
        beyond = prediction - kink
        return height + np.where(beyond > 0, right, left) * beyond

    def gradient(self, target: Array, prediction: Array) -> Array:
        """Return the slope; at the kink the right one."""
        kink, _, left, right = self.pieces(target)
        return np.where(prediction >= kink, right, left)

    def curvature(self, target: Array, prediction: Array) -> Array:
        """Return zeros: all bending is at the kink."""
        return np.zeros(len(target))

    def lowest(self, target: Array) -> Array:
        """Return the height of the kink where it is the minimum, else minus infinity."""
        _, height, left, right = self.pieces(target)
        return np.where((left <= 0) & (right >= 0), height, -np.inf)


@dataclass(frozen=True)
class Softened(Loss):
    r"""A piecewise linear loss whose kink is rounded over a width.

    .. math:: \ell_\tau(z) = h + l\,(z - k) + (r - l)\,\tau \log(1 + e^{(z-k)/\tau})

    It lies above the sharp loss, by at most ``width (right - left) log 2``, and its slopes stay between the two, so
    they are feasible in the dual of the sharp problem.
    """

    sharp: PiecewiseLinear
    width: float

    name: ClassVar[str] = "softened"
    domain: ClassVar[str] = "the targets of the loss it softens"

    @property
    def third_order(self) -> float:
        """The curvature changes by at most a factor e over a width."""
        return 1.0 / self.width

    @property
    def target_columns(self) -> int:
        """As the loss it softens."""
        return self.sharp.target_columns

    def outside(self, target: Array) -> NDArray[np.bool_]:
        """As the loss it softens."""
        return self.sharp.outside(target)

    def value(self, target: Array, prediction: Array) -> Array:
        """Return the loss of each row."""
        kink, height, left, right = self.sharp.pieces(target)
        beyond = prediction - kink
        return height + left * beyond + (right - left) * self.width * np.logaddexp(0.0, beyond / self.width)

    def gradient(self, target: Array, prediction: Array) -> Array:
        """Return a slope between left and right."""
        kink, _, left, right = self.sharp.pieces(target)
        return left + (right - left) * special.expit((prediction - kink) / self.width)

    def curvature(self, target: Array, prediction: Array) -> Array:
        """Return the second derivative, concentrated within a few widths of the kink."""
        kink, _, left, right = self.sharp.pieces(target)
        x = (prediction - kink) / self.width
        return (right - left) / self.width * special.expit(x) * special.expit(-x)

    def lowest(self, target: Array) -> Array:
        """As the loss it softens, which lies below."""
        return self.sharp.lowest(target)
