"""What supplies risks and their derivatives: the only code that touches data."""

from counterpoise.oracle._base import Bounds, Oracle, Point
from counterpoise.oracle.linear import LinearOracle

__all__ = ["Bounds", "LinearOracle", "Oracle", "Point"]
