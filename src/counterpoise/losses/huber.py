"""Huber loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.losses._base import Array, Loss


@dataclass(frozen=True)
class Huber(Loss):
    r"""Quadratic for residuals up to ``delta``, linear beyond.

    .. math:: \ell(y, z) = \tfrac12 r^2 \text{ if } |r| \le \delta, \quad \delta |r| - \tfrac12 \delta^2
        \text{ otherwise}, \qquad r = z - y

    Parameters
    ----------
    delta : float
        In the units of the target.
    """

    delta: float = 1.35

    name: ClassVar[str] = "huber"
    domain: ClassVar[str] = "real numbers"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.delta) and self.delta > 0):
            raise InvalidInputError(f"delta = {self.delta}; pass a positive number in the units of the target.")

    @property
    def quadratic_reach(self) -> float:
        """The curvature is 1 up to ``delta`` and 0 beyond."""
        return self.delta

    def outside(self, target: Array) -> NDArray[np.bool_]:
        """Mark nothing: every number will do."""
        return np.zeros(len(target), dtype=bool)

    def value(self, target: Array, prediction: Array) -> Array:
        """Return the loss of each row."""
        size = np.abs(prediction - target)
        inner = np.minimum(size, self.delta)
        return inner * (size - 0.5 * inner)

    def gradient(self, target: Array, prediction: Array) -> Array:
        """Return the residual, clipped to ``delta``."""
        return np.clip(prediction - target, -self.delta, self.delta)

    def curvature(self, target: Array, prediction: Array) -> Array:
        """Return 1 within ``delta``, 0 beyond."""
        return (np.abs(prediction - target) <= self.delta).astype(np.float64)

    def majorant(self, target: Array, prediction: Array) -> Array:
        """Return ``min(1, delta / |r|)``, the weight of iteratively reweighted least squares."""
        return self.delta / np.maximum(np.abs(prediction - target), self.delta)

    def typical(self, target: Array) -> float:
        """Return the median."""
        return float(np.median(target))
