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


def _by_parts(
    sums: Sums,
    X: Array,
    with_intercept: bool,
    n: int,
    of_pieces: tuple[Codes, ...],
    every: tuple[Array, ...],
    written: tuple[Array, ...],
) -> None:
    """Call compiled code for pieces of rows in as many threads as are worth it."""
    d, (place, first, last) = X.shape[-1], of_pieces[:3]
    # Compiled code does not see where an array ends.
    if len(place) and (last.max() > n or (d and (place + last - first).max() > X.size // d)):
        raise IndexError(f"pieces reach beyond {n} rows")

    def call(part: slice) -> None:
        arrays = (*(one[part] for one in of_pieces), *every, *(one[part] for one in written))
        addresses = (one.ctypes.data for one in arrays)
        if sums(X.ctypes.data, d, int(with_intercept), part.stop - part.start, *addresses):
            raise MemoryError

    spread(call, parts(len(of_pieces[0]), n * d))
