"""Products over many rows, dense or sparse, a block at a time and on every thread."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from counterpoise.threads import WORTHWHILE, parts, spread

Array = NDArray[np.float64]

_BLOCK_ENTRIES = 1 << 15
"""Entries of X weighted at once in a Gram product, so that its temporary stays in the cache (256 KB)."""

LARGEST_BLOCK = 1 << 20
"""The same where a block has as many rows as columns."""

_LONG_ROW = 1 << 10
"""Entries of a row along which maxima are quick."""

FEW_COLUMNS = 24
"""Columns up to which a general product beats the one of a matrix by itself."""


def some_rows(X: Any, first: int, last: int) -> Any:
    """Return some rows, one after the other, without a copy of them."""
    if not sparse.issparse(X):
        return X[first:last]
    pointers = X.indptr[first : last + 1]
    entries = slice(pointers[0], pointers[-1])
    kept = X.data[entries], X.indices[entries], pointers - pointers[0]
    return sparse.csr_array(kept, shape=(last - first, X.shape[1]))


def summed(X: Any) -> Any:
    """Return a sparse matrix that holds no entry in parts."""
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def squares_product(X: Any, rows: Array) -> Array:
    """Return ``(X * X)' rows`` of a sparse matrix, some rows at a time."""
    X, total = summed(X), np.zeros((X.shape[1], rows.shape[1]))
    step = max(1, LARGEST_BLOCK * X.shape[0] // max(X.nnz, 1))
    for first in range(0, X.shape[0], step):
        block = some_rows(X, first, min(first + step, X.shape[0]))
        block.data = np.square(block.data)
        total += block.T @ rows[first : first + step]
    return total


def weighted_gram(X: Any, weight: Array, with_intercept: bool) -> Array:
    """Return ``X' diag(weight) X``, bordered by the column sums where there is an intercept."""
    n, d = X.shape
    gram = np.zeros((d + with_intercept, d + with_intercept))
    if sparse.issparse(X):
        scaled = X.multiply(weight[:, None]).tocsr()
        gram[:d, :d] = (X.T @ scaled).toarray()
        border = np.asarray(scaled.sum(axis=0)).ravel()
    else:
        # Rows without curvature (a saturated or far-off row) cost nothing.
        if np.count_nonzero(weight) < 0.5 * n:
            rows = np.flatnonzero(weight)
            X, weight, n = X[rows], weight[rows], rows.size
        if n * d < WORTHWHILE:
            gram[:d, :d] = _dense_gram(X, weight)
        else:
            gram[:d, :d] = sum(spread(lambda part: _dense_gram(X[part], weight[part]), parts(n, n * d)))
        border = weight @ X
    if with_intercept:
        gram[:d, d] = gram[d, :d] = border
        gram[d, d] = weight.sum()
    return gram


def short_grams(
    X: Array, weight: Array, groups: NDArray[np.intp], begin: NDArray[np.intp], with_intercept: bool, out: Array
) -> None:
    """Write ``X' diag(weight) X`` of groups that follow each other, as :func:`weighted_gram` returns it.

    Parameters
    ----------
    groups, begin : ndarray of int
        The place of each in ``out``, and where it begins in X.
    out : ndarray of shape (n, width, width)
    """
    n, d = X.shape
    scaled = X * weight[:, None]
    for group, (first, last) in zip(groups.tolist(), pairwise([*begin.tolist(), n]), strict=True):
        np.matmul(X[first:last].T, scaled[first:last], out=out[group, :d, :d])
    if with_intercept:
        out[groups, d, :d] = out[groups, :d, d] = np.add.reduceat(scaled, begin, axis=0)
        out[groups, d, d] = np.add.reduceat(weight, begin)


def _dense_gram(X: Array, weight: Array) -> Array:
    """Return ``X' diag(weight) X``, block by block."""
    n, d = X.shape
    # Fewer rows than columns would cost more in sums of products than they save.
    step = max(1, min(max(_BLOCK_ENTRIES // max(d, 1), d), LARGEST_BLOCK // max(d, 1)))
    # A matrix by itself, transposed, is half the work, if not where columns are few.
    root = np.sqrt(weight) if d > FEW_COLUMNS and n and weight.min() >= 0.0 else None
    if n <= step:
        part = X * (weight if root is None else root)[:, None]
        return np.asarray((X if root is None else part).T @ part)
    # Memory that is there already is the fastest.
    scaled, gram = np.empty((step, d)), np.zeros((d, d))
    for first in range(0, n, step):
        block = X[first : first + step]
        part = scaled[: len(block)]
        np.multiply(block, (weight if root is None else root)[first : first + step, None], out=part)
        gram += (block if root is None else part).T @ part
    return gram


def largest_entries(X: Array) -> Array:
    """Return the largest absolute value of each column, block by block."""
    n, d = X.shape
    if d == 0:
        return np.zeros(0)
    # Several rows side by side are one long row, along which maxima are taken many at a time.
    side_by_side = max(1, _LONG_ROW // d) if X.flags.c_contiguous else 1
    largest = np.zeros(side_by_side * d)
    whole = n - n % side_by_side
    wide = X[:whole].reshape(-1, side_by_side * d)
    step = max(1, _BLOCK_ENTRIES // wide.shape[1])
    for first in range(0, len(wide), step):
        np.maximum(largest, np.abs(wide[first : first + step]).max(axis=0), out=largest)
    largest = largest.reshape(side_by_side, d).max(axis=0)
    return np.maximum(largest, np.abs(X[whole:]).max(axis=0, initial=0.0))


def gathered(X: Any, order: NDArray[np.intp]) -> Any:
    """Return rows in another order."""
    if sparse.issparse(X):
        return X[order]
    out = np.empty_like(X)
    spread(lambda part: np.take(X, order[part], axis=0, out=out[part], mode="clip"), parts(len(order), X.size))
    return out
