"""Any loss of one kink a row, with the kink as the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from counterpoise.losses._base import Array, Hinged


@dataclass(frozen=True)
class Hinges(Hinged):
    r"""Every row brings its own slopes, height and hinge.

    .. math:: \ell((l, r, h, k), z) = h + l\,\min(z - k, 0) + r\,\max(z - k, 0), \qquad l \le r
    """

    name: ClassVar[str] = "hinges"
    domain: ClassVar[str] = "rows of (left slope, right slope, height, hinge) with a left slope not above the right one"

    @property
    def target_columns(self) -> int:
        """Two slopes, a height and a hinge."""
        return 4

    def outside(self, target: Array) -> NDArray[np.bool_]:
        """Mark rows that are not convex."""
        return target[:, 0] > target[:, 1]

    def pieces(self, target: Array) -> tuple[Array, Array, Array, Array]:
        """Return each row's hinge, height, left slope and right slope."""
        return target[:, 3], target[:, 2], target[:, 0], target[:, 1]
