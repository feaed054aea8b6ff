"""Labels of rows from one or several columns of a file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    names = named(column, set(values.tolist()))
    return np.array([names[value] for value in values.tolist()], dtype=object) if names else values


def named(column: str, distinct: Collection[Any]) -> dict[Any, str]:
    """Return names for labels, with that of their column, where all of them are numbers; else none."""
    return {value: f"{column} {value}" for value in distinct} if all(map(_is_number, distinct)) else {}


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)
