"""Sizes of sets from a point to the whole simplex, in steps along which solutions move about evenly."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def radius_ladder(levels: int) -> Array:
    """Return radii in bits, from 0 to infinity."""
    with np.errstate(divide="ignore"):
        return -np.log2(1.0 - np.square(np.linspace(0.0, 1.0, levels))) + 0.0


def along_radii(radius: ArrayLike) -> Array:
    """Return where radii lie on that scale, from 0 to 1: a place to draw them at."""
    return np.asarray(np.sqrt(1.0 - np.exp2(-np.asarray(radius, dtype=np.float64))))


_BITS = ((0.0, "0"), (0.02, ".02"), (0.1, ".1"), (0.3, ".3"), (1.0, "1"), (np.inf, "all"))

RADIUS_TICKS = tuple((float(along_radii(bits)), words) for bits, words in _BITS)
"""Places on that scale, and the radii there in words."""
