"""Solving with matrices that are positive definite on paper and nearly singular in floating point."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from counterpoise.threads import one_thread

Array = NDArray[np.float64]

_TINY = float(np.finfo(np.float64).tiny)

_SMALL, _FEW = 32, 200
"""Rows of a matrix between which the BLAS inverts it faster with one thread."""


def jacobi_scale(matrix: Array) -> Array:
    """Return the factors that scale positive semi-definite matrices to a unit diagonal."""
    diagonal = np.diagonal(matrix, axis1=-2, axis2=-1)
    return np.where(diagonal > _TINY, 1.0 / np.sqrt(np.maximum(diagonal, _TINY)), 1.0)


def to_unit_diagonal(matrices: Array) -> tuple[Array, Array]:
    """Return positive semi-definite matrices scaled to a unit diagonal, and the factors that do it."""
    scale = jacobi_scale(matrices)
    with np.errstate(over="ignore", invalid="ignore"):
        return matrices * scale[..., :, None] * scale[..., None, :], scale


def positive_solver(matrix: Array, shift: float = 1e-15) -> Callable[[Array], Array]:
    """Factor a positive semi-definite matrix once; return the map that solves with it.

    The matrix is scaled to a unit diagonal and shifted by as little as its factorisation needs, so a singular one
    gives a short step along its null space instead of a failure.
    """
    scaled, scale = to_unit_diagonal(matrix)
    if not np.isfinite(scaled).all():
        raise FloatingPointError("the Hessian overflowed")
    while True:
        shifted = scaled.copy(order="F")
        shifted.ravel(order="K")[:: len(scaled) + 1] += shift
        factor, failed = lapack.dpotrf(shifted, lower=1, clean=0, overwrite_a=1)
        if not failed:
            break
        shift = max(shift * 100.0, 1e-14)

    def solve(rhs: Array) -> Array:
        side = scale if rhs.ndim == 1 else scale[:, None]
        return np.asarray(side * lapack.dpotrs(factor, side * rhs, lower=1)[0])

    return solve


def solve_stack(matrices: Array, rhs: Array) -> Array:
    """Solve many small positive semi-definite systems at once: (B, d, d) and (B, d).

    Each is shifted as in :func:`positive_solver`, by as little as a finite direction of descent needs.
    """
    scaled, scale = to_unit_diagonal(matrices)
    identity = np.eye(rhs.shape[1])
    solution = np.zeros_like(rhs)
    todo = np.arange(len(rhs))
    for shift in (1e-15, 1e-13, 1e-11, 1e-9, 1e-6):
        side = scale[todo] * rhs[todo]
        with np.errstate(all="ignore"), one_thread():
            try:
                x = np.linalg.solve(scaled[todo] + shift * identity, side[:, :, None])[:, :, 0]
            except np.linalg.LinAlgError:
                # A pivot of exactly zero in one matrix ends the whole stack; a larger shift removes it.
                continue
        # A direction of descent, not blown up along the null space.
        good = np.isfinite(x).all(axis=1) & (np.einsum("bd,bd->b", x, side) >= 0)
        solution[todo[good]] = scale[todo[good]] * x[good]
        todo = todo[~good]
        if todo.size == 0:
            break
    return solution


def longest_step(value: Array, change: Array) -> float:
    """Return the longest step that leaves no positive value negative; infinite where none shrinks."""
    shrinking = change < 0
    return float(np.min(-value[shrinking] / change[shrinking])) if shrinking.any() else np.inf


def pseudo_inverse(matrices: Array, cutoff: float = 1e-13) -> Array:
    """Invert positive semi-definite matrices (B, d, d), each on the space where it is not zero to rounding."""
    scaled, scale = to_unit_diagonal(matrices)
    size = scaled.shape[1]
    if len(scaled) == 1:
        with one_thread() if _SMALL < size <= _FEW else nullcontext():
            inverse = _cholesky_inverse(scaled[0])[None]
    else:
        try:
            with one_thread():
                inverse = np.asarray(np.linalg.inv(scaled + 1e-15 * np.eye(size)))
        except np.linalg.LinAlgError:
            inverse = np.full_like(scaled, np.nan)
    # Past this size an entry of the inverse is rounding: take the spectrum apart instead.
    doubtful = np.flatnonzero(~(np.abs(inverse).max(axis=(1, 2)) < 1e9))
    if doubtful.size:
        values, vectors = spectrum(scaled[doubtful])
        floor = cutoff * size * np.maximum(values[:, -1:], _TINY)
        reciprocal = np.where(values > floor, 1.0 / np.where(values > floor, values, 1.0), 0.0)
        inverse[doubtful] = (vectors * reciprocal[:, None, :]) @ vectors.swapaxes(1, 2)
    return np.asarray(inverse * scale[:, :, None] * scale[:, None, :])


def spectrum(matrix: Array) -> tuple[Array, Array]:
    """Return eigenvalues and eigenvectors of a symmetric matrix, or of several."""
    try:
        values, vectors = np.linalg.eigh(matrix)
    except np.linalg.LinAlgError as error:
        raise FloatingPointError("numbers are too large for eigenvalues") from error
    return values, vectors


def _cholesky_inverse(matrix: Array) -> Array:
    factor, failed = lapack.dpotrf(matrix, lower=1)
    if failed:
        return np.full_like(matrix, np.nan)
    half = lapack.dpotri(factor, lower=1)[0]
    return np.asarray(half + np.tril(half, -1).T)
