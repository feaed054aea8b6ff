"""Labels of rows from one or several columns of a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from counterpoise.reading import DataFile


def read_labels(data: DataFile, names: Sequence[str], role: str) -> NDArray[Any]:
    """Return the label of every row; those of several columns are crossed into tuples.

    A number says little by itself in a report, so it is written with the name of its column: store 4.
    """
    columns = [_named(name, data.labels(name, role)) for name in names]
    if len(columns) == 1:
        return columns[0]
    crossed = np.empty(data.n_rows, dtype=object)
    crossed[:] = list(zip(*columns, strict=True))
    return crossed


def _named(column: str, values: NDArray[Any]) -> NDArray[Any]:
    distinct = set(values.tolist())
    if not all(_is_number(value) for value in distinct):
        return values
    names = {value: f"{column} {value}" for value in distinct}
    return np.array([names[value] for value in values.tolist()], dtype=object)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)
