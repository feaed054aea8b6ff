"""Tables that know their types: parquet and Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoise.reading.data_file import DataFile, choose_columns
from counterpoise.reading.memory import check_fits, gather, memory_budget

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

    @classmethod
    def open(cls, path: Path, kind: str) -> TypedFile:
        """Look at what columns there are."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if kind == "parquet":
            with pq.ParquetFile(path) as file:
                return cls(path, kind, file.schema_arrow)
        with pa.OSFile(str(path)) as source:
            return cls(path, kind, _reader(source, kind).schema)

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

    def pieces(self, wanted: Sequence[str], most: float) -> Iterator[Any]:
        """Yield some columns as record batches of at most so many bytes, with no more in memory than that needs."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self.kind == "parquet":
            # Pages as they are needed, and by one thread: row groups may be larger than what fits.
            with pq.ParquetFile(self.path, pre_buffer=False, buffer_size=_PAGES) as file:
                row = _parquet_size(file.metadata, set(wanted)) / max(file.metadata.num_rows, 1)
                n = int(min(max(most // max(row, 1.0), 1), 1 << 16))
                yield from (
                    batch.select(wanted) for batch in file.iter_batches(n, columns=list(wanted), use_threads=False)
                )
            return
        # Mapped: a batch may be the whole table, of which only what is looked at comes into memory.
        with pa.memory_map(str(self.path)) as source:
            for batch in _batches(_reader(source, self.kind, self._places(wanted)), self.kind):
                n = max(1, int(batch.num_rows * min(1.0, most / max(batch.nbytes, 1))))
                yield from (batch.slice(k, n).select(wanted) for k in range(0, batch.num_rows, n))

    def read(self, columns: Mapping[str, str] | None) -> DataFile:
        """Read columns, or all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        wanted = [self.names[k] for k in choose_columns(self.path, self.names, columns)]
        schema = pa.schema([self.schema.field(name) for name in wanted])
        if self.kind == "parquet":
            check_fits(self.path, self.size(wanted), f"{len(wanted)} columns", memory_budget())
            with pq.ParquetFile(self.path) as file:
                batches = (batch.select(wanted) for batch in file.iter_batches(columns=wanted))
                return DataFile(self.path, self.names, gather(self.path, batches, schema))
        with pa.OSFile(str(self.path)) as source:
            reader = _reader(source, self.kind, self._places(wanted))
            return DataFile(self.path, self.names, gather(self.path, _batches(reader, self.kind), reader.schema))

    def _places(self, wanted: Sequence[str]) -> list[int]:
        return sorted(self.names.index(name) for name in wanted)


def read_typed(path: Path, columns: Mapping[str, str] | None, kind: str) -> DataFile:
    """Read a file of the kind ``parquet``, ``arrow`` or ``stream``."""
    return TypedFile.open(path, kind).read(columns)


def _reader(source: Any, kind: str, places: Sequence[int] | None = None) -> Any:
    import pyarrow as pa

    options = None if places is None else pa.ipc.IpcReadOptions(included_fields=list(places), use_threads=False)
    opened = pa.ipc.open_file if kind == "arrow" else pa.ipc.open_stream
    return opened(source, options=options)


def _batches(reader: Any, kind: str) -> Iterator[Any]:
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
