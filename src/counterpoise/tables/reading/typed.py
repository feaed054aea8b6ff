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

_PAGES = 1 << 16
"""Bytes of a column that are read at a time where rows are read piece by piece."""


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
        import pyarrow.parquet as pq

        try:
            if kind == "parquet":
                schema = pq.read_schema(path)
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
        """Return about how many bytes of memory some columns take."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self.kind == "parquet":
            with pq.ParquetFile(self.path) as file:
                return _parquet_size(file.metadata, set(wanted))
        with pa.memory_map(str(self.path)) as source:
            reader = _reader(source, self.kind, self._places(wanted))
            if self.kind == "arrow":
                # Batches are about the same size; those of compressed files are larger than in the file.
                n = reader.num_record_batches
                return int(reader.get_batch(0).nbytes) * n if n else 0
        share = len(wanted) / max(len(self.names), 1)
        return int(self.path.stat().st_size * share)

    def pieces(self, positions: Sequence[int], most: float) -> Iterator[tuple[Any, NDArray[np.intp]]]:
        """Yield some columns piece by piece: a record batch of at most so many bytes, and the places of its rows.

        No more is in memory than that needs, unless it may be everything.
        """
        n = 0
        for batch in self._batches([self.names[k] for k in positions], most):
            yield batch, np.arange(n, n + batch.num_rows)
            n += batch.num_rows

    def _batches(self, wanted: list[str], most: float) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        whole = most == math.inf
        if self.kind == "parquet":
            # Pages as they are needed, and by one thread: row groups may be larger than what fits.
            sparing = {} if whole else {"pre_buffer": False, "buffer_size": _PAGES}
            with pq.ParquetFile(self.path, **sparing) as file:
                row = _parquet_size(file.metadata, set(wanted)) / max(file.metadata.num_rows, 1)
                n = int(min(max(most / max(row, 1.0), 1), 1 << 16))
                for batch in file.iter_batches(n, columns=wanted, use_threads=whole):
                    yield batch.select(wanted)
            return
        # Mapped: a batch may be the whole table, of which only what is looked at comes into memory.
        with (pa.OSFile if whole else pa.memory_map)(str(self.path)) as source:
            for batch in _sound(_reader(source, self.kind, self._places(wanted)), self.kind):
                n = max(1, int(batch.num_rows * min(1.0, most / max(batch.nbytes, 1))))
                yield from (batch.slice(k, n).select(wanted) for k in range(0, batch.num_rows, n))

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


def _parquet_size(metadata: Any, wanted: set[str]) -> int:
    size = 0
    for group in (metadata.row_group(k) for k in range(metadata.num_row_groups)):
        for chunk in (group.column(k) for k in range(group.num_columns)):
            if chunk.path_in_schema in wanted or chunk.path_in_schema.split(".")[0] in wanted:
                # Repeated values take no room in the file, but they do in memory.
                size += max(chunk.total_uncompressed_size, 8 * chunk.num_values)
    return size
