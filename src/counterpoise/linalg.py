"""Solving with matrices that are positive definite on paper and nearly singular in floating point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Array = NDArray[np.float64]


def jacobi_scale(matrix: Array) -> Array:
    """Return the factors that bring the diagonal of a positive semi-definite matrix to one."""
    diagonal = np.diagonal(matrix)
    floor = np.finfo(np.float64).tiny
    return np.where(diagonal > floor, 1.0 / np.sqrt(np.maximum(diagonal, floor)), 1.0)


def positive_solver(matrix: Array, shift: float = 1e-15) -> Callable[[Array], Array]:
    """Factor a positive semi-definite matrix once; return the map that solves with it.

    The matrix is scaled to a unit diagonal and shifted by as little as its factorisation needs, so a singular one
    gives a short step along its null space instead of a failure.
    """
    scale = jacobi_scale(matrix)
    scaled = matrix * scale[:, None] * scale
    diagonal = np.arange(len(scaled))
    while True:
        shifted = scaled.copy()
        shifted[diagonal, diagonal] += shift
        try:
            factor = linalg.cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
            break
        except linalg.LinAlgError:
            shift = max(shift * 100.0, 1e-14)
            if not np.isfinite(shifted).all() or shift > 1e6:
                raise

    def solve(rhs: Array) -> Array:
        side = scale if rhs.ndim == 1 else scale[:, None]
        return side * linalg.cho_solve(factor, side * rhs, check_finite=False)

    return solve


def pseudo_inverse(matrix: Array, cutoff: float = 1e-13) -> Array:
    """Invert a positive semi-definite matrix on the space where it is not zero to rounding."""
    scale = jacobi_scale(matrix)
    values, vectors = linalg.eigh(matrix * scale[:, None] * scale, check_finite=False)
    kept = values > cutoff * max(values[-1], np.finfo(np.float64).tiny) * len(values)
    basis = vectors[:, kept] * scale[:, None]
    return np.asarray((basis / values[kept]) @ basis.T)
