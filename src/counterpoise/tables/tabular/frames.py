"""Tables of pandas, polars and Arrow, read as the command would read them from a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.reading import DataFile
from counterpoise.tables.reading.data_file import choose_columns

_NAME = Path("X")
"""What messages call the table."""


def frame_data(X: Any, wanted: Collection[str]) -> DataFile:
    """Return some columns of a table.

    Text is read as in a csv file: a column in which all of it is numbers, or true and false, holds these.

    Parameters
    ----------
    X : DataFrame of pandas or polars, pyarrow.Table, or mapping from column to values
    wanted : collection of str
        The columns that are needed; where there are others, or there are not these, is of no matter here.
    """
    import pyarrow as pa

    names, column = _opened(X)
    choose_columns(_NAME, names, None)
    kept = {name.strip() for name in wanted}
    own = {name: column(k) for k, name in enumerate(names) if name.strip() in kept}
    lengths = {len(one) for one in own.values()}
    if len(lengths) > 1:
        raise InvalidInputError(f"the columns of X differ in length ({', '.join(map(str, sorted(lengths)))} rows).")
    # Rows are counted from 0, as everywhere in Python; the comma says that text is that of a file.
    return DataFile(_NAME, names, pa.table(own), first_row=0, delimiter=",")


def _opened(X: Any) -> tuple[tuple[str, ...], Any]:
    """Return the names of the columns of a table, and what gives a column by its place where no name is there twice."""
    import pyarrow as pa

    if isinstance(X, (pa.Table, pa.RecordBatch)):
        return tuple(X.schema.names), lambda k: _chunked(X.column(k))
    if isinstance(X, Mapping):
        keys = list(X)
        return tuple(map(str, keys)), lambda k: _listed(X[keys[k]])
    import narwhals.stable.v2 as nw

    try:
        native = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError:
        return tuple(map(str, X.columns)), None
    if isinstance(native, nw.LazyFrame):
        raise InvalidInputError("X is lazy; collect it first, for example X.collect().")
    if not isinstance(native, nw.DataFrame):
        raise InvalidInputError(
            f"X is a {type(X).__name__}; pass a table with named columns: a DataFrame of pandas or polars, a "
            "pyarrow.Table, or a mapping from name to column."
        )
    return tuple(map(str, native.columns)), lambda k: _series(native[:, k])


def _series(series: Any) -> Any:
    """Return a column of a data frame; what Arrow has no type for, such as words beside numbers, as text."""
    import pyarrow as pa

    try:
        return _chunked(series.to_arrow())
    except MemoryError:
        # One of Arrow's errors too, but nothing that the file can help.
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return _as_text(series.to_list())


def _listed(values: Any) -> Any:
    import pyarrow as pa

    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return _chunked(values)
    if hasattr(values, "to_arrow"):
        return _chunked(values.to_arrow())
    try:
        return _chunked(pa.array(values, from_pandas=True))
    except MemoryError:
        # One of Arrow's errors too, but nothing that the file can help.
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return _as_text(np.asarray(values, dtype=object).tolist())


def _as_text(values: list[Any]) -> Any:
    import pyarrow as pa

    return _chunked(pa.array([None if _is_missing(one) else str(one) for one in values], pa.large_string()))


def _is_missing(value: Any) -> bool:
    # NaN and NaT differ from themselves, and pandas' NA refuses to say.
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def _chunked(column: Any) -> Any:
    import pyarrow as pa

    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
