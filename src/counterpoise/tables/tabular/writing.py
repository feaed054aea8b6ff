"""Tables that are written, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.files import check_name

Pieces = Callable[[], Iterable[tuple[Any, Mapping[str, NDArray[Any]]]]]
"""Begins to yield the rows of a table, and columns that are added to them."""

Write = Callable[[Path, Pieces], None]

_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 32e6
"""What a row group of a parquet file holds at most: it has to be in memory."""


def writer(path: Path) -> Write:
    """Return how a table with added columns is written to a file of this name."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InvalidInputError(f"{path} ends in {path.suffix or 'nothing'}; name a file ending in .csv or .parquet.")
    check_name(path)
    return _csv if path.suffix.lower() == ".csv" else _parquet


def _csv(path: Path, pieces: Pieces) -> None:
    # Arrow would quote every word; most files need no quotes at all. Where one cell does, all is begun again.
    if not _is_written(path, pieces(), "none"):
        _is_written(path, pieces(), "needed")


def _is_written(path: Path, pieces: Iterable[tuple[Any, Mapping[str, NDArray[Any]]]], style: str) -> bool:
    """Write a csv file, unless a cell needs quotes and the style has none."""
    import pyarrow as pa
    from pyarrow import csv

    opened: Any = None
    try:
        for table, added in pieces:
            nested = [one.name for one in table.schema if pa.types.is_nested(one.type) or "binary" in str(one.type)]
            if nested:
                raise InvalidInputError(
                    f"column {nested[0]!r} cannot be written as csv. Name a file ending in .parquet."
                )
            whole = _with(table, added)
            if style == "none" and any(map(_needs_quotes, whole.columns)):
                return False
            if opened is None:
                opened = csv.CSVWriter(path, whole.schema, write_options=csv.WriteOptions(quoting_style=style))
            opened.write_table(whole)
    finally:
        if opened is not None:
            opened.close()
    return True


def _needs_quotes(column: Any) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return False
    return bool(pc.any(pc.match_substring_regex(column, r'[",\r\n]|^\s|\s$|^$')).as_py())


def _parquet(path: Path, pieces: Pieces) -> None:
    from pyarrow import parquet

    opened: Any = None
    try:
        for group in _groups(_with(table, added) for table, added in pieces()):
            if opened is None:
                opened = parquet.ParquetWriter(path, group.schema)
            opened.write_table(group, row_group_size=_GROUP_ROWS)
    finally:
        if opened is not None:
            opened.close()


def _groups(tables: Iterable[Any]) -> Iterator[Any]:
    """Join tables until they are a row group."""
    import pyarrow as pa

    waiting: list[Any] = []
    for table in tables:
        waiting.append(table)
        if sum(one.num_rows for one in waiting) >= _GROUP_ROWS or sum(one.nbytes for one in waiting) >= _GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _with(table: Any, added: Mapping[str, NDArray[Any]]) -> Any:
    import pyarrow as pa

    for name, values in added.items():
        # A column of that name in the file keeps it.
        while name in table.column_names:
            name = f"{name}_"
        table = table.append_column(name, pa.array(values))
    return table
