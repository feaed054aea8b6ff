"""Solving with matrices that are positive definite on paper and nearly singular in floating point."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from counterpoise.threads import one_thread

Array = NDArray[np.float64]

_TINY = float(np.finfo(np.float64).tiny)

_DEFINITE = 1e-8
"""Least eigenvalue, of a matrix scaled to a unit diagonal, from which it is safely positive definite."""

_SMALL, _FEW = 32, 200
"""Rows of a matrix between which the BLAS inverts it faster with one thread."""

_DOUBTFUL = 1e9
"""Entry of an inverse, at a unit diagonal, that is rounding: the spectrum is taken apart instead."""


def jacobi_scale(matrix: Array) -> Array:
    """Return the factors that scale positive semi-definite matrices to a unit diagonal."""
    diagonal = np.diagonal(matrix, axis1=-2, axis2=-1)
    return np.where(diagonal > _TINY, 1.0 / np.sqrt(np.maximum(diagonal, _TINY)), 1.0)


def to_unit_diagonal(matrices: Array) -> tuple[Array, Array]:
    """Return positive semi-definite matrices scaled to a unit diagonal, and the factors that do it."""
    scale = jacobi_scale(matrices)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = matrices * scale[..., :, None]
        scaled *= scale[..., None, :]
    return scaled, scale


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
    along = np.arange(rhs.shape[1])
    diagonal = scaled[:, along, along]
    solution = np.zeros_like(rhs)
    todo = np.arange(len(rhs))
    side = scale * rhs
    for shift in (1e-15, 1e-13, 1e-11, 1e-9, 1e-6):
        scaled[:, along, along] = diagonal + shift
        with np.errstate(all="ignore"), one_thread():
            try:
                x = np.linalg.solve(scaled, side[:, :, None])[:, :, 0]
            except np.linalg.LinAlgError:
                # A pivot of exactly zero in one matrix ends the whole stack; a larger shift removes it.
                continue
        # A direction of descent, not blown up along the null space.
        good = np.isfinite(x).all(axis=1) & (np.einsum("bd,bd->b", x, side) >= 0)
        if good.all():
            solution[todo] = scale * x
            break
        solution[todo[good]] = scale[good] * x[good]
        todo, scaled, scale, side, diagonal = (one[~good] for one in (todo, scaled, scale, side, diagonal))
    return solution


def longest_step(value: Array, change: Array) -> float:
    """Return the longest step that leaves no positive value negative; infinite where none shrinks."""
    shrinking = change < 0
    return float(np.min(-value[shrinking] / change[shrinking])) if shrinking.any() else np.inf


def pseudo_inverse(matrices: Array, cutoff: float = 1e-13, null: Array | None = None) -> Array:
    """Invert positive semi-definite matrices (B, d, d), each on the space where it is not zero to rounding.

    Parameters
    ----------
    null : ndarray of shape (m, d), optional
        Directions in which all of them are known to be zero; no two of them share an entry. With these a matrix is
        inverted without its spectrum.
    """
    size = matrices.shape[1]
    if len(matrices) > 1 and size <= _SMALL:
        return _inverses(matrices, cutoff, null, lambda one: np.linalg.inv(one + 1e-15 * np.eye(size)))
    inverses = np.empty_like(matrices)
    with one_thread() if _SMALL < size <= _FEW else nullcontext():
        # One after the other, each of them stays in the cache.
        for k in range(len(matrices)):
            inverses[k] = _inverses(matrices[k : k + 1], cutoff, null, lambda one: _cholesky_inverse(one[0])[None])[0]
    return inverses


def _inverses(matrices: Array, cutoff: float, null: Array | None, invert: Callable[[Array], Any]) -> Array:
    """Return pseudo-inverses by a method for regular matrices, or by the spectrum where that does not do."""
    scaled, scale = to_unit_diagonal(matrices)
    outer: Any = 0.0
    if null is not None:
        held = null / scale[:, None, :]
        held /= np.sqrt(np.einsum("bmd,bmd->bm", held, held))[:, :, None]
        outer = held.swapaxes(1, 2) @ held
    try:
        with one_thread() if len(matrices) > 1 else nullcontext():
            inverse = invert(scaled + outer)
    except np.linalg.LinAlgError:
        inverse = np.full_like(scaled, np.nan)
    doubtful = ~(np.abs(inverse).max(axis=(1, 2)) < _DOUBTFUL)
    inverse -= outer
    if doubtful.any():
        inverse[doubtful] = _spectral_inverse(scaled[doubtful], cutoff)
    inverse *= scale[:, :, None] * scale[:, None, :]
    return np.asarray(inverse, dtype=np.float64)


def _spectral_inverse(matrices: Array, cutoff: float) -> Array:
    """Return pseudo-inverses by eigenvalues that are not zero to rounding."""
    values, vectors = spectrum(matrices)
    floor = cutoff * matrices.shape[1] * np.maximum(values[:, -1:], _TINY)
    reciprocal = np.where(values > floor, 1.0 / np.where(values > floor, values, 1.0), 0.0)
    return np.asarray((vectors * reciprocal[:, None, :]) @ vectors.swapaxes(1, 2))


def is_definite(matrix: Array) -> bool:
    """Tell whether a symmetric matrix is positive definite, and far enough from singular to be inverted as it is."""
    scaled, _ = to_unit_diagonal(matrix)
    if not np.isfinite(scaled).all():
        return False
    return not lapack.dpotrf(scaled - _DEFINITE * np.eye(len(scaled)), lower=1)[1]


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


class Stack(Protocol):
    """B positive semi-definite matrices of one size, wherever they are; vectors come from memory and return to it."""

    def __len__(self) -> int:
        """Return how many there are."""

    def __getitem__(self, keep: NDArray[np.bool_]) -> Stack:
        """Return some of them."""

    def plus_diagonal(self, diagonal: Array) -> Stack:
        """Return each with the same diagonal added: (d,)."""

    def scaled(self, factors: Array) -> Stack:
        """Return each times its own factor: (B,)."""

    def below(self) -> Stack:
        """Return matrices not above what these are meant to be, however the products in them were rounded.

        One that is lowered may cease to be positive definite, and then its inverse is NaN: nothing is known.
        """

    def are_accurate(self) -> bool:
        """Tell whether at least half of each matrix is certain, however the products in it were rounded."""

    def product(self, vectors: Array) -> Array:
        """Return each times its own vector, or times one for all: (B, d) or (d,) -> (B, d)."""

    def solve(self, rhs: Array) -> Array:
        """Solve a system with each, as :func:`solve_stack` does: (B, d) -> (B, d)."""

    def inverse(self) -> Stack:
        """Return the pseudo-inverses, as :func:`pseudo_inverse` does."""

    def mixed(self, weights: Array) -> Array:
        """Return ``sum_b weights_b matrix_b``, in memory: (B,) -> (d, d)."""

    def diagonals(self) -> Array:
        """Return the diagonals: (B, d)."""

    def absolute_forms(self, vector: Array, n_outputs: int = 1) -> Array:
        """Return ``vector' |matrix_b| vector``, absolute values taken entry by entry: (d,) -> (B,).

        With several outputs, each of which has a block of the vector: the largest for a difference of two outputs.
        """

    def followed_by_zeros(self, n: int) -> Stack:
        """Return the stack with so many matrices of zeros after it."""

    def traces(self, other: Stack) -> Array:
        """Return the trace of each times the one in the same place of another stack of its kind: (B,)."""


@dataclass(frozen=True, eq=False)
class ArrayStack:
    """Matrices in memory.

    Attributes
    ----------
    matrices : ndarray of shape (B, d, d)
    share : ndarray of shape (B,), optional
        How much of each is certain, where they are estimates.
    null : ndarray of shape (m, d), optional
        Directions in which all of them are zero; no two of them share an entry.
    """

    matrices: Array
    share: Array | None = None
    null: Array | None = None

    def __len__(self) -> int:
        return len(self.matrices)

    def __getitem__(self, keep: NDArray[np.bool_]) -> ArrayStack:
        share = None if self.share is None else self.share[keep]
        return ArrayStack(self.matrices[keep], share, self.null)._inverted(self, lambda inverse: inverse[keep])

    def _inverted(self, other: ArrayStack, change: Callable[[Array], Array]) -> ArrayStack:
        """Return this stack with the inverse that follows from another's, if that is known."""
        if "_inverse" in vars(other):
            vars(self)["_inverse"] = change(other._inverse)
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.matrices, dtype) if copy else np.asarray(self.matrices, dtype)

    @property
    def certain(self) -> Array:
        """How much of each is certain: all of it, unless they are estimates."""
        return np.ones(len(self.matrices)) if self.share is None else self.share

    def replaced(self, which: NDArray[np.bool_], others: ArrayStack) -> ArrayStack:
        """Return the stack with others in some places."""
        matrices, share = self.matrices.copy(), self.certain.copy()
        matrices[which], share[which] = np.asarray(others), others.certain
        return ArrayStack(matrices, share, self.null)

    def knowing(self, inverse: ArrayStack) -> ArrayStack:
        """Return the stack with its pseudo-inverses, which are known."""
        vars(some := replace(self))["_inverse"] = inverse.matrices
        return some

    def plus_diagonal(self, diagonal: Array) -> ArrayStack:
        matrices, along = self.matrices.copy(), np.arange(len(diagonal))
        matrices[:, along, along] += diagonal
        return ArrayStack(matrices, self.share)

    def scaled(self, factors: Array) -> ArrayStack:
        scaled = ArrayStack(self.matrices * factors[:, None, None], self.share, self.null)
        return scaled._inverted(self, lambda inverse: inverse / factors[:, None, None]) if factors.all() else scaled

    def below(self) -> ArrayStack:
        return self if self.share is None else replace(self, share=None).scaled(self.share)

    def are_accurate(self) -> bool:
        return True

    def product(self, vectors: Array) -> Array:
        if vectors.ndim == 1:
            return np.asarray(self.matrices @ vectors)
        return np.asarray(np.matmul(self.matrices, vectors[:, :, None])[:, :, 0])

    def solve(self, rhs: Array) -> Array:
        return solve_stack(self.matrices, rhs)

    def inverse(self) -> ArrayStack:
        return ArrayStack(self._inverse)

    @cached_property
    def _inverse(self) -> Array:
        return pseudo_inverse(self.matrices, null=self.null)

    def mixed(self, weights: Array) -> Array:
        if len(weights) == 1:
            return np.asarray(weights[0] * self.matrices[0])
        return np.asarray((weights @ self.matrices.reshape(len(weights), -1)).reshape(self.matrices.shape[1:]))

    def diagonals(self) -> Array:
        return np.diagonal(self.matrices, axis1=1, axis2=2).copy()

    def absolute_forms(self, vector: Array, n_outputs: int = 1) -> Array:
        if n_outputs == 1:
            return np.asarray(np.abs(self.matrices) @ vector @ vector)
        width = len(vector) // n_outputs
        one, blocks = vector[:width], self.matrices.reshape(-1, n_outputs, width, n_outputs, width)
        largest = np.zeros(len(self.matrices))
        for k, m in combinations(range(n_outputs), 2):
            apart = blocks[:, k, :, k] + blocks[:, m, :, m] - blocks[:, k, :, m] - blocks[:, m, :, k]
            np.maximum(largest, np.abs(apart) @ one @ one, out=largest)
        return largest

    def followed_by_zeros(self, n: int) -> ArrayStack:
        zeros = np.zeros((n, *self.matrices.shape[1:]))
        share = None if self.share is None else np.append(self.share, np.ones(n))
        return ArrayStack(np.concatenate([self.matrices, zeros]), share, self.null)

    def traces(self, other: Stack) -> Array:
        return np.asarray(np.einsum("bij,bji->b", self.matrices, np.asarray(other)))


def as_stack(matrices: Any) -> Stack:
    """Return matrices of shape (B, d, d) as a stack; one that is elsewhere as it is."""
    return ArrayStack(matrices) if isinstance(matrices, np.ndarray) else matrices
