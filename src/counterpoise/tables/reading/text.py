"""Text tables: how a file is laid out, and its cells as they are written."""

from __future__ import annotations

import codecs
import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError, NoRowsError
from counterpoise.tables.reading.data_file import no_rows

T = TypeVar("T")

_SAMPLE = 1 << 20
_ROWS = 20
"""The beginning from which the layout of a file is told: so many bytes, and of these so many rows."""
_BLOCK = 1 << 22
"""Bytes read at a time; a row that is longer is taken for a quote that was never closed."""
_SMALL_BLOCK = 1 << 20
"""The same where memory is short: the reader holds some twenty times as much."""
_NUMBER = 8
"""Bytes of a number."""


@dataclass(frozen=True)
class TextFile:
    """A text table whose layout is known.

    Attributes
    ----------
    path : Path
    compression : str or None
    names : tuple of str
        All columns; one without a name has its place for one.
    delimiter : str
        What parts the cells.
    encoding : str
    header_rows : int
        Rows up to and including the header; empty ones may come before it.
    is_short : bool
        Whether all of the file was seen when this was found out.
    """

    path: Path
    compression: str | None
    names: tuple[str, ...]
    delimiter: str
    encoding: str
    header_rows: int
    is_short: bool

    @property
    def first_row(self) -> int:
        """The number of the first row below the header."""
        return self.header_rows + 1

    @property
    def schema(self) -> Any:
        """All is text here: a type that the first rows suggest may be wrong in the last, and 007 is not 7."""
        import pyarrow as pa

        return pa.schema([(name, pa.string()) for name in self.names])

    def pieces(self, positions: Sequence[int], most: float) -> Iterator[tuple[Any, NDArray[np.intp]]]:
        """Yield some columns, piece by piece, without rows that are empty: a record batch, and the places of its rows.

        Parameters
        ----------
        most : float
            Bytes that a piece should have; here it matters only whether memory is short.
        """
        import pyarrow as pa

        uneven: list[Any] = []
        watched = _Watched(len(self.names) - 1, self.delimiter)

        def judge(row: Any) -> str:
            # A line of nothing but spaces is an empty line.
            if row.actual_columns == 1 and not row.text.strip():
                watched.spaces.append(row.number - 1 - self.header_rows)
                return "skip"
            uneven.append(row)
            return "error"

        # The first column and the last are looked at in any case: a row is empty if these are as well, and a quote that
        # is never closed may swallow the rest of the file in the last.
        looked_at = [*positions, 0, watched.last]
        names = [self.names[k] for k in positions]
        try:
            with pa.input_stream(str(self.path), compression=self.compression) as source:
                reader = self._reader(source, looked_at, judge, _BLOCK if most == math.inf else _SMALL_BLOCK)
                for batch, rows in map(watched.without_empty, reader):
                    yield pa.RecordBatch.from_arrays(batch.columns, names=names), rows
        except pa.ArrowInvalid as error:
            if uneven:
                raise InvalidInputError(self._uneven(uneven[0])) from None
            if "straddl" in str(error):
                # No row of a short file is longer than a block; there is none, and the header has no end of line.
                raise (
                    NoRowsError(no_rows(self.path)) if self.is_short else InvalidInputError(self._unclosed)
                ) from None
            raise
        if watched.is_unclosed:
            raise InvalidInputError(self._unclosed)

    def _reader(self, source: Any, positions: Sequence[int], judge: Callable[[Any], str], block: int) -> Any:
        import pyarrow as pa
        from pyarrow import csv as pa_csv

        # Columns are named by their places: two of the same name, or of none, are no trouble then.
        names = [str(k) for k in range(len(self.names))]
        return pa_csv.open_csv(
            source,
            read_options=pa_csv.ReadOptions(
                column_names=names,
                skip_rows_after_names=self.header_rows,
                block_size=block,
                use_threads=False,
                encoding="utf8" if self.encoding == "utf-8" else self.encoding,
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=self.delimiter,
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

    def _uneven(self, row: Any) -> str:
        parted = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}[self.delimiter]
        remedy = f"Correct the row; cells that contain {parted} need quotes around them."
        if row.expected_columns == 1:
            remedy = "The first row must name the columns."
        return (
            f"row {row.number} of {self.path.name} has {row.actual_columns} cells, but the header has "
            f"{row.expected_columns}: {row.text!r:.80}. {remedy}"
        )

    @property
    def _unclosed(self) -> str:
        return (
            f"{self.path.name} has a quotation mark that is opened and never closed, or a row of more than a megabyte. "
            "Close the mark, or shorten the row."
        )


def opened(path: Path, kind: str, action: Callable[[TextFile], T]) -> T:
    """Do something with a file of the kind ``csv`` or ``gzip`` in the first encoding in which it can be done."""
    import pyarrow as pa

    compression = "gzip" if kind == "gzip" else None
    with pa.input_stream(str(path), compression=compression) as file:
        start = file.read(_SAMPLE)
    encodings = _encodings(path, start)
    for encoding in encodings:
        try:
            return action(_sniff(path, compression, start, encoding))
        except ValueError as error:
            # A byte that is not of this encoding: pyarrow's complaint has no class of its own.
            if encoding != encodings[-1] and (isinstance(error, UnicodeError) or "invalid UTF8" in str(error)):
                continue
            raise
    raise AssertionError("the last encoding reads everything or raises")


def text_size(path: Path, kind: str, delimiter: str) -> int:
    """Return about how many bytes a text table takes: all that it unpacks to, and a number for every cell."""
    import pyarrow as pa

    size, ends = 0, (delimiter.encode(), b"\n")
    with pa.input_stream(str(path), compression="gzip" if kind == "gzip" else None) as file:
        while block := file.read(_SAMPLE):
            size += len(block) + _NUMBER * sum(map(block.count, ends))
    return size


def _encodings(path: Path, start: bytes) -> tuple[str, ...]:
    """Return the encodings to try, in this order; the last one reads anything."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return ("utf-16",)
    if b"\0" in start:
        raise InvalidInputError(f"{path.name} is not a table: it holds binary data. Name a csv or parquet file.")
    return ("utf-8", "cp1252", "latin-1")


def _sniff(path: Path, compression: str | None, start: bytes, encoding: str) -> TextFile:
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
    names = tuple(name if name.strip() else f"column {k + 1}" for k, name in enumerate(rows[before]))
    return TextFile(path, compression, names, delimiter, encoding, before + 1, complete)


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


class _Watched:
    """What is seen of rows, while they pass by.

    Parameters
    ----------
    last : int
        The place of the last column.
    """

    def __init__(self, last: int, delimiter: str) -> None:
        self.last, self.delimiter = last, delimiter
        self.spaces: list[int] = []
        self._next = 0
        self._cell = ""

    def without_empty(self, batch: Any) -> tuple[Any, NDArray[np.intp]]:
        """Return a batch without empty rows and without its last two columns, and the places of its rows."""
        filled = np.logical_or.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in batch.columns])
        if batch.num_rows:
            self._cell = batch.column(batch.num_columns - 1)[-1].as_py() or ""
        rows = self._places(batch.num_rows)
        batch = batch.select(range(batch.num_columns - 2))
        return (batch, rows) if filled.all() else (batch.filter(filled), rows[filled])

    def _places(self, n_rows: int) -> NDArray[np.intp]:
        """Return the places of the next rows; lines of spaces, which are not among them, have places too."""
        skipped = [place for place in self.spaces if place >= self._next]
        rows = np.arange(self._next, self._next + n_rows + len(skipped))
        rows = rows[~np.isin(rows, skipped)][:n_rows]
        self._next = int(rows[-1]) + 1 if n_rows else self._next
        return rows

    @property
    def is_unclosed(self) -> bool:
        """Whether the last cell has swallowed rows."""
        return any(line.count(self.delimiter) >= self.last > 0 for line in self._cell.splitlines()[1:])
