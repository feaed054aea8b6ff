"""Poisson loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from counterpoise.losses._base import Array, Loss


@dataclass(frozen=True)
class Poisson(Loss):
    r"""Minus the log-likelihood of a count under the log link, without the term in the target alone.

    .. math:: \ell(y, z) = e^z - y z, \qquad y \ge 0
    """

    name: ClassVar[str] = "poisson"
    domain: ClassVar[str] = "numbers that are not negative"

    @property
    def third_order(self) -> float:
        """Every derivative from the second on is ``e^z``."""
        return 1.0

    def outside(self, target: Array) -> NDArray[np.bool_]:
        """Mark negative targets."""
        return target < 0

    def value(self, target: Array, prediction: Array) -> Array:
        """Return the loss of each row; infinite where it overflows."""
        with np.errstate(over="ignore"):
            return np.exp(prediction) - target * prediction

    def gradient(self, target: Array, prediction: Array) -> Array:
        """Return ``e^z - y``."""
        with np.errstate(over="ignore"):
            return np.exp(prediction) - target

    def curvature(self, target: Array, prediction: Array) -> Array:
        """Return ``e^z``."""
        with np.errstate(over="ignore"):
            return np.exp(prediction)

    def lowest(self, target: Array) -> Array:
        """Return ``y - y log y``, the loss of a perfect prediction."""
        return target - special.xlogy(target, target)

    def typical(self, target: Array, weight: Array) -> float:
        """Return the logarithm of the mean, or 0 where there is none."""
        mean = float(np.average(target, weights=weight))
        return float(np.log(mean)) if mean > 0 else 0.0
