"""Tables on their way to other processes: joblib shares arrays among them, and would copy an Arrow table to each."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class ColumnArrays:
    """An Arrow table as arrays, which are views of it.

    Attributes
    ----------
    columns : dict from name to ndarray of shape (n_rows,)
    """

    columns: dict[str, NDArray[Any]]

    def table(self) -> Any:
        """Return the table, whose columns are views of the arrays."""
        import pyarrow as pa

        return pa.table({name: pa.array(np.asarray(values)) for name, values in self.columns.items()})


def departing(X: Any) -> Any:
    """Return an Arrow table of numbers without gaps as arrays, and anything else as it is."""
    # Where nobody has imported it, there is no table of its kind.
    pa = sys.modules.get("pyarrow")
    if pa is None or not isinstance(X, pa.Table):
        return X
    one = X.combine_chunks()
    plain = (pa.types.is_integer(field.type) or pa.types.is_floating(field.type) for field in one.schema)
    if not one.num_rows or len(set(one.column_names)) < one.num_columns or not all(plain):
        return X
    if any(column.null_count or column.num_chunks != 1 for column in one.columns):
        return X
    return ColumnArrays({name: one[name].chunk(0).to_numpy() for name in one.column_names})


def arrived(X: Any) -> Any:
    """Return what has departed."""
    return X.table() if isinstance(X, ColumnArrays) else X
