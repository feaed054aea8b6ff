"""How large a set is, where it has a size."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

from counterpoise.sets._base import ContextSet


@runtime_checkable
class Sized(Protocol):
    """A set that is all distributions within a distance of its centre."""

    @property
    def radius(self) -> float:
        """That distance."""


def radius_of(mixes: ContextSet) -> float:
    """Return the radius of a set, NaN where it has none."""
    return float(mixes.radius) if isinstance(mixes, Sized) else math.nan
