"""What supplies risks and their derivatives: the only code that touches data."""

from counterpoise.core.oracle._base import Bounds, Oracle, Point
from counterpoise.core.oracle.linear import LinearOracle

__all__ = ["Bounds", "LinearOracle", "Oracle", "Point"]
