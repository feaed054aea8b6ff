"""Pinball loss, whose minimiser is a quantile."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.losses._base import Array, Hinged


@dataclass(frozen=True)
class Pinball(Hinged):
    r"""Under-prediction costs ``quantile`` per unit, over-prediction ``1 - quantile``.

    .. math:: \ell(y, z) = q\,(y - z)_+ + (1 - q)\,(z - y)_+, \qquad y \in \mathbb{R}

    Parameters
    ----------
    quantile : float in (0, 1)
    """

    quantile: float = 0.5

    name: ClassVar[str] = "pinball"
    domain: ClassVar[str] = "real numbers"
    is_of_residual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (isinstance(self.quantile, Real) and 0.0 < self.quantile < 1.0):
            raise InvalidInputError(f"quantile = {self.quantile!r}; it must lie strictly between 0 and 1.")

    def outside(self, target: Array) -> NDArray[np.bool_]:
        """Mark nothing: every number will do."""
        return np.zeros(len(target), dtype=bool)

    def pieces(self, target: Array) -> tuple[Array, Array, Array, Array]:
        """Return each row's hinge, height, left slope and right slope."""
        # Plain arithmetic, which tensors understand as well.
        ones = 0.0 * target + 1.0
        return target, 0.0 * ones, -self.quantile * ones, (1.0 - self.quantile) * ones
