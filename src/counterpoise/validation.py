"""What comes in from outside: turned into plain arrays, or refused with the culprit named."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from counterpoise.contexts import Contexts
from counterpoise.exceptions import EmptyContextError, InvalidInputError
from counterpoise.threads import parts, spread

Array = NDArray[np.float64]

LARGEST_LOSS = 1e100
"""Losses from here on are refused: their squares, and sums of these, need not be floats."""


def checked_features(X: Any, known_finite: bool = False) -> Any:
    """Return X as a finite float array or CSR matrix, or name the column and row that are in the way."""
    if sparse.issparse(X):
        if X.ndim != 2:
            raise InvalidInputError(f"X must have two dimensions, got shape {X.shape}.")
        if X.dtype.kind not in "biuf":
            raise InvalidInputError(_not_numbers(X.dtype))
        matrix = sparse.csr_array(X)
        matrix = matrix if matrix.dtype.kind == "f" else matrix.astype(np.float64)
        values = matrix.data
        if not known_finite and not np.isfinite(values).all():
            where = int(np.flatnonzero(~np.isfinite(values))[0])
            row = int(np.searchsorted(matrix.indptr, where, "right")) - 1
            raise InvalidInputError(_not_finite(row, int(matrix.indices[where]), values[where]))
        array: Any = matrix
    else:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        try:
            raw = frame.to_numpy() if isinstance(frame, nw.DataFrame) else np.asarray(X)
        except ValueError as error:
            raise InvalidInputError(f"X is not a table: its rows differ in length ({error}).") from error
        array = _floats(raw, list(frame.columns) if isinstance(frame, nw.DataFrame) else None)
        if array.ndim != 2:
            raise InvalidInputError(
                f"X must have two dimensions, got shape {array.shape}. Use X.reshape(-1, 1) for one feature."
            )
        # A sum is finite only where all of it is; one that overflows says nothing.
        sums = [] if known_finite else spread(lambda part: array[part].sum(), parts(len(array), array.size))
        if not np.isfinite(sums).all() and not np.isfinite(array).all():
            row, column = (int(k) for k in np.argwhere(~np.isfinite(array))[0])
            raise InvalidInputError(_not_finite(row, column, array[row, column]))
    if array.shape[0] == 0:
        raise InvalidInputError("X has no rows: there is nothing to learn from.")
    return array


def _floats(raw: NDArray[Any], columns: list[str] | None) -> Array:
    if raw.dtype.kind in "cmM":
        raise InvalidInputError(_not_numbers(raw.dtype))
    try:
        return np.ascontiguousarray(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        culprit = ""
        if raw.ndim == 2:
            for k in range(raw.shape[1]):
                try:
                    raw[:, k].astype(np.float64)
                except (TypeError, ValueError, OverflowError):
                    culprit = f" (column {columns[k] if columns else k}: {error})"
                    break
        raise InvalidInputError(
            f"X must be numbers{culprit}. Encode categories, e.g. with OneHotEncoder; drop the column from X if it "
            "holds the contexts."
        ) from error


def _not_numbers(dtype: np.dtype[Any]) -> str:
    kinds = {"c": "complex numbers; pass real ones", "M": "dates", "m": "durations"}
    return f"X must be numbers, but it holds {kinds.get(dtype.kind, str(dtype))}."


def _not_finite(row: int, column: int, value: float) -> str:
    return f"X is {value} in row {row}, column {column}. Impute or drop values that are not finite."


def refuse_masked(**arrays: Any) -> None:
    """Refuse arrays in which cells are masked: what lies under a mask is no value, and must not be taken for one."""
    for name, values in arrays.items():
        if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
            raise InvalidInputError(
                f"{name} is a masked array with {int(np.ma.getmaskarray(values).sum())} masked cells. Fill them, e.g. "
                "with values.filled(np.nan) and an imputer, or drop their rows."
            )


def check_aligned(X: Any, contexts: Any) -> None:
    """Refuse contexts whose index holds the rows of X in another order: one of the two has been sorted or shuffled."""
    index, other = getattr(X, "index", None), getattr(contexts, "index", None)
    if index is None or other is None or callable(index) or callable(other) or len(index) != len(other):
        return
    if not index.equals(other) and index.is_unique and index.sort_values().equals(other.sort_values()):
        raise InvalidInputError(
            "contexts has the same index as X in another order. Rows are matched by position: use "
            "contexts.loc[X.index], or .to_numpy() if the order is right as it is."
        )


def unwrapped(y: Any) -> Any:
    """Return the array inside a series or a data frame, and anything else as it is."""
    if isinstance(y, np.ndarray):
        return y
    series = nw.from_native(y, eager_only=True, allow_series=True, pass_through=True)
    return series.to_numpy() if isinstance(series, (nw.Series, nw.DataFrame)) else y


def checked_weights(
    sample_weight: Any, X: Any, target: Array, contexts: Contexts
) -> tuple[Array, tuple[Any, Array, Contexts]]:
    """Check the weights, drop rows that have none, and refuse contexts that are left with nothing.

    Where contexts overlap, rows are repeated once for each of theirs.
    """
    weight = checked_row_weights(sample_weight, contexts)
    kept = weight > 0
    if kept.all() and not contexts.overlap:
        return weight, (X, target, contexts)
    rows = np.flatnonzero(kept) if contexts.rows is None else contexts.rows[kept]
    return weight[kept], (X[rows], target[rows], contexts.where(kept))


def checked_row_weights(sample_weight: Any, contexts: Contexts, may_be_empty: bool = False) -> Array:
    """Return one weight per row, or name the row or the context whose weight cannot be used.

    Where contexts overlap, the weight of a row is repeated once for each of its contexts.
    ``may_be_empty`` says that a context may have no weight here, as where there are rows of it elsewhere.
    """
    n = contexts.n_rows
    if sample_weight is None:
        return np.ones(len(contexts.codes))
    try:
        weight = np.asarray(unwrapped(sample_weight), dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"sample_weight must be numbers, got {sample_weight!r:.60}.") from error
    if weight.shape != (n,):
        raise InvalidInputError(f"sample_weight has shape {weight.shape} for {n} rows. Pass one weight per row.")
    bad = np.flatnonzero(~np.isfinite(weight) | (weight < 0))
    if bad.size:
        raise InvalidInputError(f"sample_weight in row {bad[0]} is {weight[bad[0]]}; weights are finite and 0 or more.")
    weight = contexts.repeated(weight)
    if not may_be_empty:
        refuse_weightless(contexts, np.bincount(contexts.codes, weight, len(contexts.labels)))
    return weight


def refuse_weightless(contexts: Contexts, totals: NDArray[Any]) -> None:
    """Name a context whose rows have no weight at all."""
    if (totals <= 0).any():
        empty = int(np.flatnonzero(totals <= 0)[0])
        raise EmptyContextError(
            f"all sample weights of {contexts.describe(empty)} are zero, so its risk is unknown. Drop the context, or "
            "give it weight."
        )


def on_host(values: Any) -> Any:
    """Return a tensor, wherever it is, as an array; anything else as it is."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") and hasattr(values, "is_cuda") else values
