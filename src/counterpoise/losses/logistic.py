"""Binary logistic loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from counterpoise.losses._base import Array, Loss


@dataclass(frozen=True)
class Logistic(Loss):
    r"""Minus the log-likelihood of a binary target under the logit link.

    .. math:: \ell(y, z) = \log(1 + e^z) - y z, \qquad y \in \{0, 1\}

    With the sign :math:`m = 1 - 2y` it is :math:`\log(1 + e^{m z})`, which neither overflows nor cancels.
    """

    name: ClassVar[str] = "logistic"
    domain: ClassVar[str] = "0 or 1"

    @property
    def third_order(self) -> float:
        """``loss''' = loss'' (1 - 2 sigma)``."""
        return 1.0

    def outside(self, target: Array) -> NDArray[np.bool_]:
        """Mark targets that are neither 0 nor 1."""
        return (target != 0) & (target != 1)

    def value(self, target: Array, prediction: Array) -> Array:
        """Return the loss of each row."""
        z = (1.0 - 2.0 * target) * prediction
        return np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z)))

    def gradient(self, target: Array, prediction: Array) -> Array:
        """Return ``sigma(z) - y``."""
        sign = 1.0 - 2.0 * target
        z = sign * prediction
        small = np.exp(-np.abs(z))
        return sign * _at_most_one(z, small) / (1.0 + small)

    def value_and_gradient(self, target: Array, prediction: Array) -> tuple[Array, Array]:
        """Return both with one exponential."""
        sign = 1.0 - 2.0 * target
        z = sign * prediction
        small = np.exp(-np.abs(z))
        value = np.log1p(small) + np.maximum(z, 0.0)
        return value, sign * _at_most_one(z, small) / (1.0 + small)

    def curvature(self, target: Array, prediction: Array) -> Array:
        """Return ``sigma(z) sigma(-z)``."""
        small = np.exp(-np.abs(prediction))
        return small / np.square(1.0 + small)

    def beyond(self, target: Array) -> Array:
        """Return the sign of the class."""
        return 2.0 * target - 1.0

    def majorant(self, target: Array, prediction: Array) -> Array:
        """Return 1/4, the largest curvature there is."""
        return np.full(len(target), 0.25)


def _at_most_one(z: Array, small: Array) -> Array:
    """Return ``exp(min(z, 0))`` by ``exp(-abs(z))``: a maximum, since a choice whose sign nothing foretells is slow."""
    return np.maximum(small, z >= 0.0)
