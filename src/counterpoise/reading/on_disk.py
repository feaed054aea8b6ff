"""Tables that stay on disk and are read piece by piece, as often as is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from counterpoise.exceptions import InvalidInputError
from counterpoise.reading.cells import TypeSearch, Written, plain_types
from counterpoise.reading.data_file import DataFile, Part, choose_columns, fingerprint, no_rows
from counterpoise.reading.folders import Member, as_schema, check_names, common_schema, key_types, plain_schema
from counterpoise.reading.text import TextFile, opened, read_text, text_size
from counterpoise.reading.typed import TypedFile

Told = Callable[[Path], AbstractContextManager[None]]
"""Turns what reading a file may raise into one sentence about it."""


@dataclass(frozen=True, eq=False)
class TableOnDisk:
    """A file, or the files of a folder, of which no more is in memory than a piece.

    Attributes
    ----------
    path : Path
    names : tuple of str
        All columns.
    columns : mapping from column to option, or None
        The columns that are read, as in :func:`counterpoise.reading.read_table`.
    members : tuple of Member
    kinds : tuple of str
        Of each file: csv, gzip, parquet, arrow or stream.
    """

    path: Path
    names: tuple[str, ...]
    columns: Mapping[str, str] | None
    members: tuple[Member, ...]
    kinds: tuple[str, ...]
    told: Told = field(repr=False)

    @property
    def is_text(self) -> bool:
        """Whether cells are text."""
        return self.kinds[0] in ("csv", "gzip")

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.path != self.members[0].path

    @cached_property
    def wanted(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(self.names[k] for k in choose_columns(self.path, self.names, self.columns))

    @cached_property
    def size(self) -> int:
        """About how many bytes of memory it would take."""
        if self.is_text:
            return sum(text_size(one.path, kind) for one, kind in zip(self.members, self.kinds, strict=True))
        own = self._own(self.wanted)
        return sum(file.size(own) for file in self._typed)

    def only(self, names: Sequence[str]) -> TableOnDisk:
        """Return the table with fewer columns to be read."""
        return replace(self, columns=dict.fromkeys(names, ""))

    @cached_property
    def fingerprint(self) -> str:
        """The beginning of the SHA-256 of the file, or of those of all files."""
        return fingerprint([member.path for member in self.members])

    def read(self) -> DataFile:
        """Read all of it into memory."""
        files = [self._file(member, kind) for member, kind in zip(self.members, self.kinds, strict=True)]
        data = self._joined(files) if self.is_folder else files[0]
        if data.n_rows == 0:
            raise InvalidInputError(no_rows(self.path))
        return data

    def chunks(self, most: float, columns: Sequence[str] | None = None, rows: int | None = None) -> Iterator[DataFile]:
        """Yield pieces of one file after the other, all with the same columns of the same types.

        Parameters
        ----------
        most : float
            Bytes of a piece, about.
        columns : sequence of str, optional
            Fewer columns.
        rows : int, optional
            Rows of a piece, at most.
        """
        wanted = [name for name in self.wanted if columns is None or name in columns]
        found = False
        for k, member in enumerate(self.members):
            with self.told(member.path):
                for data in self._text_chunks(k, wanted, most) if self.is_text else self._typed_chunks(k, wanted, most):
                    n = data.n_rows if rows is None else rows
                    for start in range(0, data.n_rows, max(n, 1)):
                        found = True
                        yield _cut(data, start, n)
        if not found:
            raise InvalidInputError(no_rows(self.path))

    @cached_property
    def _keys(self) -> dict[str, Any]:
        return key_types(self.members)

    def _own(self, wanted: Sequence[str]) -> list[str]:
        """Return the columns that are in the files themselves; one at least, which knows how many rows there are."""
        return [name for name in wanted if name not in self._keys] or [self.names[0]]

    # --- text --------------------------------------------------------------------------------------------------------

    @cached_property
    def _spelt(self) -> tuple[tuple[TextFile, ...], dict[str, Written]]:
        """The files in encodings that suit them, and how columns are written: all rows are looked at once."""
        files: list[TextFile] = []
        searches: dict[str, TypeSearch] = {}
        for member, kind in zip(self.members, self.kinds, strict=True):

            def scanned(file: TextFile, member: Member = member) -> TextFile:
                first = files[0] if files else file
                check_names(first.path, first.names, member.path, file.names)
                _check_delimiter(first.path, first.delimiter, member.path, file.delimiter)
                self._scan(file, member, searches)
                return file

            with self.told(member.path):
                files.append(opened(member.path, kind, scanned))
        return tuple(files), {name: search.found for name, search in searches.items()}

    def _scan(self, file: TextFile, member: Member, searches: dict[str, TypeSearch]) -> None:
        own = self._own(self.wanted)
        for name in self.wanted:
            search = searches.setdefault(name, TypeSearch(file.delimiter != ","))
            if name in self._keys:
                search.look(_constant(member.keys[name], 1))
        for batch, _ in file.pieces([file.names.index(name) for name in own]):
            for k, name in enumerate(own):
                if name in searches:
                    searches[name].look(plain_types(_column(batch, k)))

    def _text_chunks(self, k: int, wanted: Sequence[str], most: float) -> Iterator[DataFile]:
        files, written = self._spelt
        file, member = files[k], self.members[k]
        own = self._own(wanted)
        for batch, rows in file.pieces([file.names.index(name) for name in own]):
            if not batch.num_rows:
                continue
            raw = self._with_keys(batch, own, wanted, member)
            data = DataFile(member.path, self.names, raw, file.first_row, rows, file.delimiter, written, is_piece=True)
            n = max(1, int(data.n_rows * min(1.0, most / max(raw.nbytes, 1))))
            yield from (_cut(data, start, n) for start in range(0, data.n_rows, n))

    # --- typed -------------------------------------------------------------------------------------------------------

    @cached_property
    def _typed(self) -> tuple[TypedFile, ...]:
        files = []
        for member, kind in zip(self.members, self.kinds, strict=True):
            with self.told(member.path):
                files.append(TypedFile.open(member.path, kind))
                check_names(self.members[0].path, files[0].names, member.path, files[-1].names)
        return tuple(files)

    @cached_property
    def _schema(self) -> Any:
        """The types that suit all files of a folder."""
        first, *others = self._typed
        schema = plain_schema(first.schema)
        for file in others:
            schema = common_schema(first.path, schema, file.path, file.schema)
        return schema

    def _typed_chunks(self, k: int, wanted: Sequence[str], most: float) -> Iterator[DataFile]:
        import pyarrow as pa

        member, file = self.members[k], self._typed[k]
        own = self._own(wanted)
        schema = pa.schema([self._schema.field(name) for name in own]) if self.is_folder else None
        first = 1
        for batch in file.pieces(own, most):
            if not batch.num_rows:
                continue
            table = pa.Table.from_batches([batch])
            raw = self._with_keys(table if schema is None else as_schema(table, schema), own, wanted, member)
            yield DataFile(member.path, self.names, raw, first, is_piece=True)
            first += raw.num_rows

    # --- both --------------------------------------------------------------------------------------------------------

    def _with_keys(self, batch: Any, own: Sequence[str], wanted: Sequence[str], member: Member) -> Any:
        """Return columns in their order, with those that folders tell."""
        import pyarrow as pa

        columns = {name: batch.column(own.index(name)) for name in own}
        for name, kind in self._keys.items():
            value = _constant(member.keys[name], batch.num_rows)
            columns[name] = value if self.is_text else value.cast(kind)
        return pa.table({name: columns[name] for name in wanted})

    def _file(self, member: Member, kind: str) -> DataFile:
        """Return one file, without what folders tell."""
        own = self.columns
        if own is not None and self.is_folder:
            own = dict.fromkeys(self._own(self.wanted), "")
        with self.told(member.path):
            return read_text(member.path, own, kind) if self.is_text else TypedFile.open(member.path, kind).read(own)

    def _joined(self, files: Sequence[DataFile]) -> DataFile:
        """Return the files of a folder as one."""
        import pyarrow as pa

        first, tables = files[0], []
        own = self._own(self.wanted)
        for member, file in zip(self.members, files, strict=True):
            check_names(self.members[0].path, first.names, member.path, file.names)
            _check_delimiter(first.path, first.delimiter, file.path, file.delimiter)
            raw = file.raw
            if not self.is_text:
                raw = as_schema(raw, pa.schema([self._schema.field(name) for name in own]))
            tables.append(self._with_keys(raw.select(own), own, self.wanted, member))
        parts = tuple(Part(file.path, file.n_rows, file.first_row, file.rows) for file in files)
        return DataFile(self.path, self.names, pa.concat_tables(tables), delimiter=first.delimiter, parts=parts)


def _cut(data: DataFile, start: int, n_rows: int) -> DataFile:
    """Return some rows, which know where they are from."""
    if start == 0 and n_rows >= data.n_rows:
        return data
    rows = None if data.rows is None else data.rows[start : start + n_rows]
    first = data.first_row + (start if data.rows is None else 0)
    return replace(data, raw=data.raw.slice(start, n_rows), rows=rows, first_row=first)


def _check_delimiter(first: Path, delimiter: str | None, other: Path, others: str | None) -> None:
    if delimiter != others:
        raise InvalidInputError(
            f"the cells of {other} are parted by {others!r}, but those of {first.name} by {delimiter!r}. Save all "
            "files of a folder alike."
        )


def _column(batch: Any, k: int) -> Any:
    import pyarrow as pa

    return pa.chunked_array([batch.column(k)])


def _constant(value: str | None, n: int) -> Any:
    import pyarrow as pa

    repeated = pa.array(np.zeros(n, dtype=np.int8))
    return pa.chunked_array([pa.array([value], pa.large_string()).take(repeated)])
