"""Sums over rows by compiled code, where the package was installed with a C compiler at hand; see ``sums.c``."""

from __future__ import annotations

import ctypes
import os
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.threads import parts, spread

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

Pieces = tuple[Codes, Codes, Codes, Codes]
"""The group of each piece of rows, where it begins and ends in the vectors, and where it begins in X."""

Sums = Callable[..., int | None]
"""What writes sums into arrays whose addresses it is given; it returns other than zero where memory is lacking."""

_SIDE_BY_SIDE = 1024
"""Pieces that one call minimises, a multiple of those it works on at once."""

_MOST_INVERTED = 64
"""Rows of a matrix from which LAPACK inverts it about as fast."""

_NUMBER, _ARRAY = ctypes.c_ssize_t, ctypes.c_void_p


@cache
def library() -> ctypes.CDLL | None:
    """Return the library; None for none, one of another source, or if ``COUNTERPOISE_PURE_PYTHON`` is set."""
    if os.environ.get("COUNTERPOISE_PURE_PYTHON"):
        return None
    try:
        found = ctypes.CDLL(str(Path(__file__).with_name("_sums.library")))
        found.version.restype = ctypes.c_uint32
        return found if found.version() == zlib.crc32(Path(__file__).with_name("sums.c").read_bytes()) else None
    except (OSError, AttributeError):
        return None


def can_read(X: Any) -> bool:
    """Tell whether features are laid out as compiled code takes them: rows of double precision, one after the other."""
    return isinstance(X, np.ndarray) and X.dtype == np.float64 and X.flags.c_contiguous and X.flags.aligned


@cache
def look_of(loss: str) -> Sums | None:
    """Return what looks at rows with a loss of this name; None where numpy has to."""
    look = getattr(library(), f"look_{loss}", None)
    if look is not None:
        look.argtypes, look.restype = [_ARRAY, _NUMBER, ctypes.c_int, _NUMBER, *[_ARRAY] * 10], None
    return look


@cache
def grams_of(width: int) -> Sums | None:
    """Return what forms Gram matrices of so many columns, the intercept counted; None where the BLAS has to."""
    known = library()
    if known is None or width > known.most_columns():
        return None
    grams = known.weighted_grams
    grams.argtypes = [_ARRAY, _NUMBER, ctypes.c_int, _NUMBER, *[_ARRAY] * 5]
    return grams


@cache
def minimiser_of(loss: str) -> Sums | None:
    """Return what minimises the risks of contexts of few rows with a loss of this name; None where numpy has to."""
    minimise = getattr(library(), f"minimise_{loss}", None)
    if minimise is not None:
        minimise.argtypes = [_ARRAY, _NUMBER, ctypes.c_int, _NUMBER, *[_ARRAY] * 7]
    return minimise


def look(
    sums: Sums, X: Array, theta: Array, with_intercept: bool, pieces: Pieces, target: Array, weight: Array
) -> tuple[Array, Array, Array]:
    """Return predictions of all rows, and for every piece the sums of slopes times features, and of losses and slopes.

    Parameters
    ----------
    X : ndarray of shape (..., d)
    theta : ndarray of shape (B, P), or (1, P) for all pieces
    target, weight : ndarray of shape (n,)

    Returns
    -------
    ndarrays of shape (n,), (n_pieces, P) and (n_pieces, 2)
    """
    owner, first, last, place = pieces
    owner = owner if len(theta) > 1 else np.zeros_like(owner)
    if len(target) != len(weight) or owner.max(initial=0) >= len(theta):
        raise IndexError(f"{len(target)} targets, {len(weight)} weights and {len(theta)} thetas do not go together")
    theta, target, weight = (np.require(one, np.float64, ["C", "A"]) for one in (theta, target, weight))
    predictions, slopes, others = (
        np.empty(len(target)),
        np.empty((len(owner), theta.shape[1])),
        np.empty((len(owner), 2)),
    )
    every = (theta, target, weight, predictions)
    _by_parts(sums, X, with_intercept, len(target), (place, first, last, owner), every, (slopes, others))
    return predictions, slopes, others


def grams(sums: Sums, X: Array, with_intercept: bool, pieces: Pieces, weight: Array) -> Array:
    """Return ``[X 1]' diag(weight) [X 1]`` of every piece, of shape (n_pieces, width, width)."""
    _, first, last, place = pieces
    width = X.shape[-1] + with_intercept
    out = np.empty((len(place), width, width))
    weight = np.require(weight, np.float64, ["C", "A"])
    _by_parts(sums, X, with_intercept, len(weight), (place, first, last), (weight,), (out,))
    return out


def minimised(
    sums: Sums, X: Array, with_intercept: bool, pieces: Pieces, target: Array, weight: Array, theta: Array, alpha: float
) -> Array:
    """Return about the parameters that minimise the mean loss of each piece of rows with a ridge; NaN for no end to it.

    Parameters
    ----------
    theta : ndarray of shape (n_pieces, P)
        Where to begin.
    """
    _, first, last, place = pieces
    # Eight pieces of about one length are worked on at once.
    order = np.argsort(last - first, kind="stable")
    found = np.ascontiguousarray(theta[order])
    every = (np.array([alpha]), *(np.require(one, np.float64, ["C", "A"]) for one in (target, weight)))
    of_pieces = tuple(one[order] for one in (place, first, last))
    _by_parts(sums, X, with_intercept, len(target), of_pieces, every, (found,), _SIDE_BY_SIDE)
    theta = np.empty_like(found)
    theta[order] = found
    return theta


def inverses(matrices: Array) -> Array | None:
    """Return the inverses of small symmetric positive definite matrices, (B, d, d); None where numpy has to find them.

    That of one which is nearly singular is not accurate, or not finite.
    """
    known, size = library(), matrices.shape[1]
    if known is None or size > _MOST_INVERTED:
        return None
    known.invert.argtypes = [_NUMBER, _NUMBER, _ARRAY]
    found = np.array(matrices, dtype=np.float64, order="C")
    if known.invert(size, len(found), found.ctypes.data):
        raise MemoryError
    return found


def _by_parts(
    sums: Sums,
    X: Array,
    with_intercept: bool,
    n: int,
    of_pieces: tuple[Codes, ...],
    every: tuple[Array, ...],
    written: tuple[Array, ...],
    at_once: int | None = None,
) -> None:
    """Call compiled code for pieces of rows in as many threads as are worth it, or for so many pieces at a time."""
    d, (place, first, last) = X.shape[-1], of_pieces[:3]
    # Compiled code does not see where an array ends.
    if len(place) and (last.max() > n or (d and (place + last - first).max() > X.size // d)):
        raise IndexError(f"pieces reach beyond {n} rows")

    def call(part: slice) -> None:
        arrays = (*(one[part] for one in of_pieces), *every, *(one[part] for one in written))
        addresses = (one.ctypes.data for one in arrays)
        if sums(X.ctypes.data, d, int(with_intercept), part.stop - part.start, *addresses):
            raise MemoryError

    if at_once is None:
        spread(call, parts(len(place), n * d))
    else:
        spread(call, [slice(k, min(k + at_once, len(place))) for k in range(0, len(place), at_once)])
