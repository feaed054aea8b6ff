"""Tables that are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.files import check_name

Write = Callable[[Path, Any, Mapping[str, NDArray[Any]]], None]


def writer(path: Path) -> Write:
    """Return how a table with added columns is written to a file of this name."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InvalidInputError(f"{path} ends in {path.suffix or 'nothing'}; name a file ending in .csv or .parquet.")
    check_name(path)
    return _csv if path.suffix.lower() == ".csv" else _parquet


def _csv(path: Path, table: Any, added: Mapping[str, NDArray[Any]]) -> None:
    import pyarrow as pa
    from pyarrow import csv

    nested = [field.name for field in table.schema if pa.types.is_nested(field.type) or "binary" in str(field.type)]
    if nested:
        raise InvalidInputError(f"column {nested[0]!r} cannot be written as csv. Name a file ending in .parquet.")
    whole = _with(table, added)
    # Arrow would quote every word; most files need no quotes at all.
    style = "needed" if any(map(_needs_quotes, whole.columns)) else "none"
    csv.write_csv(whole, path, csv.WriteOptions(quoting_style=style))


def _needs_quotes(column: Any) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    return bool(pc.any(pc.match_substring_regex(column, r'[",\r\n]|^\s|\s$|^$')).as_py())


def _parquet(path: Path, table: Any, added: Mapping[str, NDArray[Any]]) -> None:
    from pyarrow import parquet

    parquet.write_table(_with(table, added), path)


def _with(table: Any, added: Mapping[str, NDArray[Any]]) -> Any:
    import pyarrow as pa

    for name, values in added.items():
        # A column of that name in the file keeps it.
        while name in table.column_names:
            name = f"{name}_"
        table = table.append_column(name, pa.array(values))
    return table
