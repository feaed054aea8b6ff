"""Huber loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.losses._base import Array, Hinged


@dataclass(frozen=True)
class Huber(Hinged):
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
    is_of_residual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (isinstance(self.delta, Real) and math.isfinite(self.delta) and self.delta > 0):
            raise InvalidInputError(f"delta = {self.delta!r}; pass a positive number in the units of the target.")

    @property
    def softness(self) -> float:
        """The slope is the residual itself, up to ``delta``."""
        return 1.0

    def outside(self, target: Array) -> NDArray[np.bool_]:
        """Mark nothing: every number will do."""
        return np.zeros(len(target), dtype=bool)

    def pieces(self, target: Array) -> tuple[Array, Array, Array, Array]:
        """Return each row's hinge, height, left slope and right slope."""
        # Plain arithmetic, which tensors understand as well.
        ends = 0.0 * target + self.delta
        return target, ends - ends, -ends, ends

    def majorant(self, target: Array, prediction: Array) -> Array:
        """Return ``min(1, delta / |r|)``, the weight of iteratively reweighted least squares."""
        return self.delta / np.maximum(np.abs(prediction - target), self.delta)
