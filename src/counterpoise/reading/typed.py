"""Tables that know their types: parquet and Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from counterpoise.reading.data_file import DataFile, choose_columns
from counterpoise.reading.memory import check_fits, gather, memory_budget


def read_typed(path: Path, columns: Mapping[str, str] | None, kind: str) -> DataFile:
    """Read a file of the kind ``parquet``, ``arrow`` or ``stream``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if kind == "parquet":
        with pq.ParquetFile(path) as file:
            names = tuple(file.schema_arrow.names)
            wanted = [names[k] for k in choose_columns(path, names, columns)]
            check_fits(path, _parquet_size(file.metadata, set(wanted)), f"{len(wanted)} columns", memory_budget())
            batches = file.iter_batches(columns=wanted)
            schema = pa.schema([file.schema_arrow.field(name) for name in wanted])
            return DataFile(path, names, gather(path, (batch.select(wanted) for batch in batches), schema))
    opened = pa.ipc.open_file if kind == "arrow" else pa.ipc.open_stream
    with pa.OSFile(str(path)) as source:
        names = tuple(opened(source).schema.names)
        positions = choose_columns(path, names, columns)
        source.seek(0)
        reader = opened(source, options=pa.ipc.IpcReadOptions(included_fields=positions))
        batches = (reader.get_batch(k) for k in range(reader.num_record_batches)) if kind == "arrow" else reader
        return DataFile(path, names, gather(path, batches, reader.schema))


def _parquet_size(metadata: Any, wanted: set[str]) -> int:
    size = 0
    for group in (metadata.row_group(k) for k in range(metadata.num_row_groups)):
        for chunk in (group.column(k) for k in range(group.num_columns)):
            if chunk.path_in_schema in wanted or chunk.path_in_schema.split(".")[0] in wanted:
                # Repeated values take no room in the file, but they do in memory.
                size += max(chunk.total_uncompressed_size, 8 * chunk.num_values)
    return size
