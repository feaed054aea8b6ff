"""The loss of a stock level: what was bought, less what was sold."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.losses._base import Array, Hinged


@dataclass(frozen=True)
class Newsvendor(Hinged):
    r"""Stock ``z`` bought at unit cost ``x``, of which demand ``y`` is sold at a price.

    .. math:: \ell((x, y), z) = z x - r \min(z, y) - v\,(z - y)_+ + s\,(y - z)_+

    Parameters
    ----------
    price : float
        :math:`r`, per unit.
    salvage : float
        :math:`v`, what a unit left over brings.
    shortage : float
        :math:`s`, what a unit of demand not met costs on top of the sale it loses.
    """

    price: float
    salvage: float = 0.0
    shortage: float = 0.0

    name: ClassVar[str] = "newsvendor"
    domain: ClassVar[str] = "rows of (unit cost, demand) with a demand that is not negative"

    def __post_init__(self) -> None:
        for name in ("price", "salvage", "shortage"):
            value = getattr(self, name)
            number = isinstance(value, Real)
            if not (number and -1e300 < value < 1e300):
                raise InvalidInputError(f"{name} = {value!r}; pass a finite number per unit.")
        if not self.price > 0:
            raise InvalidInputError(f"price = {self.price}; pass a positive selling price per unit.")
        if not self.shortage >= 0:
            raise InvalidInputError(f"shortage = {self.shortage}; pass what a unit of unmet demand costs, 0 or more.")
        if not self.salvage < self.price + self.shortage:
            raise InvalidInputError(
                f"salvage = {self.salvage} is not below price + shortage = {self.price + self.shortage}; a unit left "
                "over would be worth more than one sold. Check the prices."
            )

    @property
    def target_columns(self) -> int:
        """Unit cost and demand."""
        return 2

    def outside(self, target: Array) -> NDArray[np.bool_]:
        """Mark negative demand."""
        return target[:, 1] < 0

    def pieces(self, target: Array) -> tuple[Array, Array, Array, Array]:
        """Return each row's hinge, height, left slope and right slope."""
        cost, demand = target[:, 0], target[:, 1]
        return demand, (cost - self.price) * demand, cost - self.price - self.shortage, cost - self.salvage
