"""Tables that know their types: parquet and Arrow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.reading.memory import in_words

_PAGES = 1 << 16
"""Bytes of a column that are read at a time where rows are read piece by piece."""
_ROWS, _FEW_ROWS = 1 << 16, 64
"""Rows of a batch at most, and where texts may be much longer than they are in the file."""
_LOOK, _MOST = 8e6, 1 << 30
"""Bytes of the batches by which a size is found out, and of a piece at most: places in text have 31 bits."""
_LONGEST = 1 << 22
"""Bytes of a text in a cell, at most; a row of a csv file may not be longer either."""
_OFFSET = 8
"""Bytes that a text takes beside its letters."""


@dataclass(frozen=True, eq=False)
class TypedFile:
    """A table whose columns are known.

    Attributes
    ----------
    path : Path
    kind : {"parquet", "arrow", "stream"}
    schema : pyarrow.Schema
    """

    path: Path
    kind: str
    schema: Any

    first_row: ClassVar[int] = 1
    delimiter: ClassVar[str | None] = None

    @classmethod
    def open(cls, path: Path, kind: str) -> TypedFile:
        """Look at what columns there are."""
        import pyarrow as pa

        try:
            if kind == "parquet":
                with _parquet(path) as file:
                    coded, plain = file.schema_arrow, file.metadata.schema.to_arrow_schema()
                texts = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
                schema = pa.schema([two if two.type in texts else one for one, two in zip(coded, plain, strict=True)])
            else:
                with pa.OSFile(str(path)) as source:
                    schema = _reader(source, kind).schema
            # Arrow decodes names only when they are asked for.
            assert schema.names is not None
        except UnicodeDecodeError as error:
            raise InvalidInputError(
                f"{path.name} has a column whose name is not UTF-8: {error.object!r:.60}. Rename the column, and write "
                "the file again."
            ) from None
        return cls(path, kind, schema)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns."""
        return tuple(self.schema.names)

    def size(self, wanted: Sequence[str]) -> int:
        """Return about how many bytes of memory some columns take; text, and Arrow files, are looked through."""
        names, fixed, rows = list(wanted), 0, _ROWS
        if self.kind == "parquet":
            with _parquet(self.path) as file:
                texts = {
                    name if name in names else name.split(".")[0]: coded
                    for name, coded in _texts(file.metadata).items()
                }
                names = [name for name in wanted if name in texts]
                fixed = _parquet_size(file.metadata, {*wanted} - {*texts})
                # There a text may be little but the length of what it shares with the one before.
                rows = _ROWS if all(texts.values()) else _FEW_ROWS
        return fixed + sum(int(sizes.sum()) for _, sizes in self._sized(names, _LOOK, rows)) if names else fixed

    def pieces(self, positions: Sequence[int], most: float) -> Iterator[tuple[Any, NDArray[np.intp]]]:
        """Yield some columns piece by piece: a record batch of at most so many bytes, and the places of its rows.

        No more is in memory than that needs, unless it may be everything.
        """
        import pyarrow as pa

        names, n = [self.names[k] for k in positions], 0
        schema = pa.schema([self.schema.field(k) for k in positions])
        for batch, sizes in self._sized(names, most, _ROWS):
            ends, k = np.cumsum(sizes), 0
            while k < batch.num_rows:
                end = max(k + 1, int(np.searchsorted(ends, ends[k] - sizes[k] + min(most, _MOST), side="right")))
                columns = zip(batch.slice(k, end - k).columns, schema.types, strict=True)
                plain = [column.cast(kind) for column, kind in columns]
                yield pa.RecordBatch.from_arrays(plain, schema=schema), np.arange(n + k, n + end)
                k = end
            n += batch.num_rows

    def _sized(self, wanted: list[str], most: float, rows: int) -> Iterator[tuple[Any, NDArray[np.int64]]]:
        """Yield batches that may hold a repeated word once, and how many bytes each row takes by itself."""
        n = 0
        for batch in self._batches(wanted, most, rows):
            yield batch, _row_sizes(self.path, batch, n)
            n += batch.num_rows

    def _batches(self, wanted: list[str], most: float, rows: int) -> Iterator[Any]:
        import pyarrow as pa

        whole = most == math.inf
        if self.kind == "parquet":
            # Pages as they are needed, and by one thread: row groups may be larger than what fits.
            sparing = {} if whole else {"pre_buffer": False, "buffer_size": _PAGES}
            with _parquet(self.path, **sparing) as file:
                row = _parquet_size(file.metadata, set(wanted)) / max(file.metadata.num_rows, 1)
                # Half of what fits: pages are decoded beside the batch, and what goes beyond a piece is one of its own.
                n = int(min(max(0.5 * most / max(row, 1.0), 1), rows))
                for batch in file.iter_batches(n, columns=wanted, use_threads=whole):
                    yield batch.select(wanted)
            return
        # Mapped: a batch may be the whole table, of which only what is looked at comes into memory.
        with (pa.OSFile if whole else pa.memory_map)(str(self.path)) as source:
            for batch in _sound(_reader(source, self.kind, self._places(wanted)), self.kind):
                yield batch.select(wanted)

    def _places(self, wanted: Sequence[str]) -> list[int] | None:
        """Return the places of some columns; None for all, of which Arrow then makes no copies."""
        return None if set(wanted) == set(self.names) else sorted(self.names.index(name) for name in wanted)


def _reader(source: Any, kind: str, places: list[int] | None = None) -> Any:
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
    opened = pa.ipc.open_file if kind == "arrow" else pa.ipc.open_stream
    return opened(source, options=options)


def _sound(reader: Any, kind: str) -> Iterator[Any]:
    """Yield batches that are sound: Arrow takes the places in a file at their word, and reads beyond its end."""
    for batch in (reader.get_batch(k) for k in range(reader.num_record_batches)) if kind == "arrow" else reader:
        batch.validate(full=True)
        yield batch


def _parquet(path: Path, **options: Any) -> Any:
    """Open a file so that a word which is repeated is in memory once, if Arrow can."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    coded = [name for name, can_be in _texts(metadata).items() if can_be]
    return pq.ParquetFile(path, metadata=metadata, read_dictionary=coded, **options)


def _texts(metadata: Any) -> dict[str, bool]:
    """Return the columns of text, and whether Arrow can read them as dictionaries."""
    groups = range(metadata.num_row_groups)
    return {
        column.path: not any("DELTA" in one for j in groups for one in metadata.row_group(j).column(k).encodings)
        for k, column in enumerate(map(metadata.schema.column, range(metadata.num_columns)))
        if column.physical_type == "BYTE_ARRAY"
    }


def _row_sizes(path: Path, batch: Any, n: int) -> NDArray[np.int64]:
    """Return how many bytes each row takes where a word counts as often as it occurs; refuse a word that is too long.

    Parameters
    ----------
    n : int
        Rows before these.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as is_

    texts = (is_.is_string, is_.is_large_string, is_.is_binary, is_.is_large_binary)
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for name, column in zip(batch.schema.names, batch.columns, strict=True) if batch.num_rows else ():
        values = column.dictionary if is_.is_dictionary(column.type) else column
        if is_.is_string_view(values.type) and len(values):
            # Each view begins with the length of its text; several may be of the same bytes.
            views = np.frombuffer(values.buffers()[1], dtype=np.int32).reshape(-1, 4)[values.offset :]
            lengths = pa.array(views[: len(values), 0].astype(np.int64))
        elif any(test(values.type) for test in texts):
            lengths = pc.add(pc.binary_length(values).cast(pa.int64()), _OFFSET)
        else:
            lengths = pa.repeat(values.nbytes // max(len(values), 1), len(values))
        own = (lengths if values is column else lengths.take(column.indices)).fill_null(_OFFSET).to_numpy()
        if own.max() > _LONGEST and not is_.is_nested(values.type):
            k = int(own.argmax())
            raise InvalidInputError(
                f"column {name!r} of {path.name} holds a text of {in_words(int(own[k]))} in row {n + k + 1}; "
                f"{in_words(_LONGEST)} is the most that a cell may hold. Leave the column out, or shorten the text."
            )
        sizes += own
    return sizes


def _parquet_size(metadata: Any, wanted: set[str]) -> int:
    size = 0
    for group in (metadata.row_group(k) for k in range(metadata.num_row_groups)):
        for k, chunk in enumerate(group.column(k) for k in range(group.num_columns)):
            if chunk.path_in_schema in wanted or chunk.path_in_schema.split(".")[0] in wanted:
                # Repeated values take no room in the file, but they do in memory.
                size += max(chunk.total_uncompressed_size, max(8, metadata.schema.column(k).length) * chunk.num_values)
    return size
