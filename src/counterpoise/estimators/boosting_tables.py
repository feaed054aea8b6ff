"""Tables with categories for trees: codes that the libraries split by, and refusals that name the column."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from counterpoise.exceptions import InvalidInputError, UnseenCategoryWarning

FLOATS = (np.float64, np.float32)

Categories = Mapping[str, Sequence[Any]]
"""The labels of each column that holds categories, in the order of their codes."""


def frame_of(X: Any) -> nw.DataFrame[Any] | None:
    """Return a data frame of any library; None for anything else, and for names that are not unique."""
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        return frame if isinstance(frame, nw.DataFrame) and len(set(frame.columns)) == frame.shape[1] else None
    except (nw.exceptions.NarwhalsError, ValueError):
        return None


def categories_of(X: Any) -> dict[str, list[Any]]:
    """Return the columns of a table that hold categories, with their labels."""
    found = {
        name: column.cat.get_categories().to_list()
        for name, column in _columns(X).items()
        if isinstance(column.dtype, (nw.Categorical, nw.Enum))
    }
    unnamed = [name for name in _columns(X) if not isinstance(name, str)]
    if found and unnamed:
        raise InvalidInputError(
            f"X holds categories, and a column whose name is no text: {unnamed[0]!r}. Name columns by text, e.g. "
            "X.columns = X.columns.astype(str) in pandas."
        )
    return found


def _columns(X: Any) -> dict[Any, Any]:
    """Return the columns of a data frame by name; none of anything else."""
    frame = frame_of(X)
    # Not by name, since pandas has names that are numbers.
    return {} if frame is None else dict(zip(frame.columns, frame.iter_columns(), strict=True))


def refuse_text(X: Any, known: Categories) -> None:
    """Name the first column that holds text or dates, and is not one of known categories."""
    if frame_of(X) is None:
        values = X if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUST" else np.empty((0, 0))
        kinds: dict[Any, str] = {k: "text" if _has_text(column) else "" for k, column in enumerate(values.T)}
    else:
        kinds = {name: _unusable(column) for name, column in _columns(X).items() if name not in known}
    for column, kind in kinds.items():
        if kind:
            remedy = {
                "text": f"Make it a category of a data frame, e.g. X.astype({{{column!r}: 'category'}}) in pandas or a "
                "cast to polars.Categorical, or encode it",
                "categories": "Pass it as numbers, as in the fit",
            }.get(kind, "Turn it into numbers")
            raise InvalidInputError(
                f"column {column!r} of X holds {kind}, not numbers. {remedy}; drop it if it holds the contexts."
            )


def _has_text(cells: Iterable[Any]) -> bool:
    return any(isinstance(cell, str) for cell in cells)


def _unusable(column: nw.Series[Any]) -> str:
    """Return what a column holds where it is neither numbers nor truth values."""
    kind = column.dtype
    if isinstance(kind, (nw.Categorical, nw.Enum)):
        return "categories"
    if isinstance(kind, nw.String):
        return "text"
    if isinstance(kind, (nw.Date, nw.Datetime, nw.Duration, nw.Time)):
        return "dates"
    return "text" if isinstance(kind, nw.Object) and _has_text(column.to_list()) else ""


def coded(X: Any, known: Categories, estimator: str) -> NDArray[Any]:
    """Return a table as numbers, with the code of each category; missing where it is missing or has no code.

    Parameters
    ----------
    known : mapping from column to labels
    estimator : str
        Its name, for messages.
    """
    columns = _columns(X)
    if not columns:
        raise InvalidInputError(
            f"X is no data frame, but the fit saw categories in column {next(iter(known))!r}. Pass the same columns."
        )
    others = [name for name in columns if name not in known]
    matrix = np.empty((len(next(iter(columns.values()))), len(columns)))
    if others:
        rest = nw.from_native(X, eager_only=True).select(others).to_native()
        is_other = [name not in known for name in columns]
        matrix[:, is_other] = check_array(rest, dtype=FLOATS, ensure_all_finite="allow-nan", estimator=estimator)
    for k, (name, column) in enumerate(columns.items()):
        if name in known:
            matrix[:, k] = _codes(column, known[name], estimator)
    return matrix


def _codes(column: nw.Series[Any], labels: Sequence[Any], estimator: str) -> NDArray[np.float64]:
    code = {label: float(k) for k, label in enumerate(labels)}
    cells = column.to_list()
    codes = np.fromiter((code.get(cell, np.nan) for cell in cells), np.float64, len(cells))
    unseen = [cells[k] for k in np.flatnonzero(np.isnan(codes)) if not (cells[k] is None or cells[k] != cells[k])]
    if unseen:
        warnings.warn(
            f"{estimator}: column {column.name!r} holds {unseen[0]!r:.40}, which is none of the {len(labels)} "
            f"categories of the fit; {len(unseen)} such rows count as missing there.",
            UnseenCategoryWarning,
            stacklevel=6,
        )
    return codes
