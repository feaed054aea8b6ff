"""Text tables: how a file is laid out, and its cells as they are written."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.reading.data_file import DataFile, choose_columns, no_rows
from counterpoise.reading.memory import check_fits, gather, memory_budget

_SAMPLE = 1 << 20
_ROWS = 20
"""The beginning from which the layout of a file is told: so many bytes, and of these so many rows."""
_BLOCK = 1 << 22
"""Bytes read at a time; a row that is longer is taken for a quote that was never closed."""


@dataclass(frozen=True)
class _Layout:
    """How a text table is written.

    Attributes
    ----------
    names : tuple of str
        As in the header.
    header_rows : int
        Rows up to and including the header; empty ones may come before it.
    short : bool
        Whether all of the file was seen when this was found out.
    """

    names: tuple[str, ...]
    delimiter: str
    encoding: str
    header_rows: int
    short: bool


def read_text(path: Path, columns: Mapping[str, str] | None, kind: str) -> DataFile:
    """Read a file of the kind ``csv`` or ``gzip``."""
    import pyarrow as pa

    compression = "gzip" if kind == "gzip" else None
    if columns is None:
        # What a compressed table takes is only a guess; it is counted as it grows in any case.
        check_fits(path, path.stat().st_size * (5 if compression else 1), "all columns", memory_budget())
    with pa.input_stream(str(path), compression=compression) as file:
        start = file.read(_SAMPLE)
    encodings = _encodings(path, start)
    for encoding in encodings:
        try:
            layout = _sniff(path, start, encoding)
            names = tuple(name if name.strip() else f"column {k + 1}" for k, name in enumerate(layout.names))
            positions = choose_columns(path, names, columns)
            raw, rows = _read_cells(path, compression, layout, positions)
        except ValueError as error:
            # A byte that is not of this encoding: pyarrow's complaint has no class of its own.
            if encoding != encodings[-1] and (isinstance(error, UnicodeError) or "invalid UTF8" in str(error)):
                continue
            raise
        raw = raw.rename_columns([names[k] for k in positions])
        return DataFile(path, names, raw, layout.header_rows + 1, rows, layout.delimiter)
    raise AssertionError("the last encoding reads everything or raises")


def _encodings(path: Path, start: bytes) -> tuple[str, ...]:
    """Return the encodings to try, in this order; the last one reads anything."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return ("utf-16",)
    if b"\0" in start:
        raise InvalidInputError(f"{path.name} is not a table: it holds binary data. Name a csv or parquet file.")
    return ("utf-8", "cp1252", "latin-1")


def _sniff(path: Path, start: bytes, encoding: str) -> _Layout:
    """Find the header in the beginning of a file, and what parts its cells."""
    complete = len(start) < _SAMPLE
    decoder = codecs.getincrementaldecoder("utf-8-sig" if encoding == "utf-8" else encoding)()
    text = decoder.decode(start, final=complete)
    if not text.strip():
        raise InvalidInputError(f"{path.name} is empty: it has neither a header nor rows.")
    delimiter = _delimiter(text, complete)
    rows = _first_rows(text, delimiter)
    before = next((k for k, row in enumerate(rows) if any(cell.strip() for cell in row)), None)
    if before is None:
        raise InvalidInputError(f"{path.name} is not a table: it does not begin with the names of columns.")
    return _Layout(tuple(rows[before]), delimiter, encoding, before + 1, complete)


def _first_rows(text: str, delimiter: str, strict: bool = False) -> list[list[str]]:
    """Return rows up to the first that cannot be cut into cells."""
    rows: list[list[str]] = []
    # A cell that is too long for this reader, or with ``strict`` one that goes on after its closing quote.
    with suppress(csv.Error):
        rows.extend(islice(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=strict), _ROWS))
    return rows


def _delimiter(text: str, complete: bool) -> str:
    """Return the first delimiter that cuts all of the first rows alike, else the one that cuts the header most."""
    widths: dict[str, list[int]] = {}
    for delimiter in ",;\t|":
        rows = _first_rows(text, delimiter, strict=True)
        # The sample may end within a row.
        rows = rows if complete or len(rows) == _ROWS else rows[:-1] or rows
        widths[delimiter] = [len(row) for row in rows if row] or [0]
        if widths[delimiter][0] > 1 and len(set(widths[delimiter])) == 1:
            return delimiter
    return "," if widths[","][0] > 1 else max(widths, key=lambda one: widths[one][0])


def _read_cells(
    path: Path, compression: str | None, layout: _Layout, positions: Sequence[int]
) -> tuple[Any, NDArray[np.intp] | None]:
    """Return some columns of a file as text, and the places of the rows where empty ones were left out.

    All is text here: a type that the first rows suggest may be wrong in the last, and 007 is not 7.
    """
    import pyarrow as pa

    spaces: list[int] = []
    uneven: list[Any] = []

    def judge(row: Any) -> str:
        # A line of nothing but spaces is an empty line.
        if row.actual_columns == 1 and not row.text.strip():
            spaces.append(row.number - 1 - layout.header_rows)
            return "skip"
        uneven.append(row)
        return "error"

    # The first column and the last are looked at in any case: a row is empty if these are as well, and a quote that is
    # never closed may swallow the rest of the file in the last.
    last = len(layout.names) - 1
    ends = _Ends()
    try:
        with pa.input_stream(str(path), compression=compression) as source:
            reader = _open(source, layout, [*positions, 0, last], judge)
            schema = pa.schema([reader.schema.field(k) for k in range(len(positions))])
            table = gather(path, map(ends.watched, reader), schema)
    except pa.ArrowInvalid as error:
        if uneven:
            raise InvalidInputError(_uneven(path, layout, uneven[0])) from None
        if "straddl" in str(error):
            # No row of a short file is longer than a block; there is none, and the header has no end of line.
            raise InvalidInputError(no_rows(path) if layout.short else _unclosed(path)) from None
        raise
    if any(line.count(layout.delimiter) >= last > 0 for line in ends.cell.splitlines()[1:]):
        raise InvalidInputError(_unclosed(path))
    empty = np.concatenate([np.empty(0, dtype=bool), *ends.empty])
    if not (spaces or empty.any()):
        return table, None
    rows = np.delete(np.arange(len(empty) + len(spaces)), spaces)[~empty]
    return table.filter(pa.array(~empty)), rows


class _Ends:
    """What is seen of the first and the last column, while they pass by."""

    def __init__(self) -> None:
        self.empty: list[NDArray[np.bool_]] = []
        self.cell = ""

    def watched(self, batch: Any) -> Any:
        """Return a batch without its last two columns."""
        filled = np.logical_or.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in batch.columns])
        self.empty.append(~filled)
        if batch.num_rows:
            self.cell = batch.column(batch.num_columns - 1)[-1].as_py() or ""
        return batch.select(range(batch.num_columns - 2))


def _open(source: Any, layout: _Layout, positions: Sequence[int], judge: Callable[[Any], str]) -> Any:
    import pyarrow as pa
    from pyarrow import csv as pa_csv

    # Columns are named by their places: two of the same name, or of none, are no trouble then.
    names = [str(k) for k in range(len(layout.names))]
    return pa_csv.open_csv(
        source,
        read_options=pa_csv.ReadOptions(
            column_names=names,
            skip_rows_after_names=layout.header_rows,
            block_size=_BLOCK,
            encoding="utf8" if layout.encoding == "utf-8" else layout.encoding,
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=layout.delimiter,
            newlines_in_values=True,
            ignore_empty_lines=False,
            invalid_row_handler=judge,
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=[names[k] for k in positions],
            null_values=[""],
            strings_can_be_null=True,
        ),
    )


def _uneven(path: Path, layout: _Layout, row: Any) -> str:
    parted = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}[layout.delimiter]
    remedy = f"Correct the row; cells that contain {parted} need quotes around them."
    if row.expected_columns == 1:
        remedy = "The first row must name the columns."
    return (
        f"row {row.number} of {path.name} has {row.actual_columns} cells, but the header has {row.expected_columns}: "
        f"{row.text!r:.80}. {remedy}"
    )


def _unclosed(path: Path) -> str:
    return f"{path.name} has a quotation mark that is opened and never closed. Close it, or remove it."
