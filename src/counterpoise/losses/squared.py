"""Squared loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from counterpoise.losses._base import Array, Loss


@dataclass(frozen=True)
class Squared(Loss):
    r"""Half the squared residual.

    .. math:: \ell(y, z) = \tfrac12 (z - y)^2, \qquad y \in \mathbb{R}
    """

    name: ClassVar[str] = "squared"
    domain: ClassVar[str] = "real numbers"
    is_of_residual: ClassVar[bool] = True

    @property
    def third_order(self) -> float:
        """Quadratic: the curvature never changes."""
        return 0.0

    def outside(self, target: Array) -> NDArray[np.bool_]:
        """Mark nothing: every number will do."""
        return np.zeros(len(target), dtype=bool)

    def value(self, target: Array, prediction: Array) -> Array:
        """Return the loss of each row."""
        return 0.5 * (prediction - target) ** 2

    def gradient(self, target: Array, prediction: Array) -> Array:
        """Return the residual."""
        return prediction - target

    def curvature(self, target: Array, prediction: Array) -> Array:
        """Return ones."""
        return np.ones(len(target))

    def majorant(self, target: Array, prediction: Array) -> Array:
        """Return ones: the loss is its own parabola."""
        return np.ones(len(target))

    def typical(self, target: Array, weight: Array) -> float:
        """Return the mean."""
        return float(np.average(target, weights=weight))
