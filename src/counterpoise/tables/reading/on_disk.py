"""Tables on disk: read at once, or piece by piece as often as is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from counterpoise.exceptions import InvalidInputError, NoRowsError
from counterpoise.tables.reading.cells import TypeSearch, Written, plain_types
from counterpoise.tables.reading.data_file import DataFile, Part, choose_columns, fingerprint, no_rows, told
from counterpoise.tables.reading.folders import Member, as_type, check_like, common_schema, key_types, plain_schema
from counterpoise.tables.reading.memory import check_fits, gather
from counterpoise.tables.reading.text import TextFile, opened, text_size
from counterpoise.tables.reading.typed import TypedFile

T = TypeVar("T")

TEXT = ("csv", "gzip")
"""Kinds of files whose cells are text."""


def with_file(path: Path, kind: str, action: Callable[[TextFile | TypedFile], T]) -> T:
    """Do something with a file; what may go wrong becomes one sentence about it."""
    with told(path):
        return opened(path, kind, action) if kind in TEXT else action(TypedFile.open(path, kind))


@dataclass(frozen=True, eq=False)
class TableOnDisk:
    """A file, or the files of a folder.

    Attributes
    ----------
    path : Path
    names : tuple of str
        All columns.
    columns : mapping from column to option, or None
        The columns that are read, as in :func:`counterpoise.tables.reading.read_table`.
    members : tuple of Member
    kinds : tuple of str
        Of each file: csv, gzip, parquet, arrow or stream.
    delimiter : str or None
        Of text.
    typed : tuple of str or None
        The columns of text whose types chunks know; by default all that are read. Others remain text.
    """

    path: Path
    names: tuple[str, ...]
    columns: Mapping[str, str] | None
    members: tuple[Member, ...]
    kinds: tuple[str, ...]
    delimiter: str | None
    typed: tuple[str, ...] | None = None

    @property
    def is_text(self) -> bool:
        """Whether cells are text."""
        return self.kinds[0] in TEXT

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
        own, size = self._own(self.wanted), 0
        for k, (member, kind) in enumerate(zip(self.members, self.kinds, strict=True)):
            with told(member.path):
                if self.delimiter is not None:
                    size += text_size(member.path, kind, self.delimiter)
                else:
                    size += self._files[k].size(own)
        return size

    def only(self, names: Sequence[str]) -> TableOnDisk:
        """Return the table with fewer columns to be read."""
        return replace(self, columns=dict.fromkeys(names, ""))

    @cached_property
    def fingerprint(self) -> str:
        """The beginning of the SHA-256 of the file, or of those of all files."""
        return fingerprint([member.path for member in self.members])

    def read(self) -> DataFile:
        """Read all of it into memory."""
        import pyarrow as pa

        # Of text the size of some columns is not known before they are read, when it is counted as it grows.
        if not self.is_text or self.columns is None:
            check_fits(self.path, self.size, "all columns" if self.is_text else f"{len(self.wanted)} columns")
        tables, parts = zip(*self._each(self._gathered), strict=True)
        raw = pa.concat_tables(tables)
        if raw.num_rows == 0:
            raise NoRowsError(no_rows(self.path))
        if self.is_folder:
            return DataFile(self.path, self.names, raw, delimiter=self.delimiter, parts=parts)
        return DataFile(self.path, self.names, raw, parts[0].first_row, parts[0].rows, self.delimiter)

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
        import pyarrow as pa

        wanted = [name for name in self.wanted if columns is None or name in columns]
        own, found = self._own(wanted), False
        files, written = self._scanned if self.is_text else (self._files, None)
        for member, file in zip(self.members, files, strict=True):
            with told(member.path):
                for batch, places in file.pieces(self._places(own), most):
                    raw = self._completed(pa.Table.from_batches([batch]), own, wanted, member)
                    # A dictionary would count in every piece; those of typed files have their size already.
                    fit = int(raw.num_rows * min(1.0, most / max(raw.nbytes, 1))) if self.is_text else raw.num_rows
                    n = max(1, fit if rows is None else min(fit, rows))
                    for k in range(0, raw.num_rows, n):
                        found = True
                        kept = (file.first_row, places[k : k + n], self.delimiter, written)
                        yield DataFile(member.path, self.names, raw.slice(k, n), *kept, is_piece=True)
        if not found:
            raise NoRowsError(no_rows(self.path))

    def _each(self, action: Callable[[Member, Any], T]) -> list[T]:
        """Do something with each file; those of a folder have to be alike."""
        done: list[T] = []
        for member, kind in zip(self.members, self.kinds, strict=True):

            def checked(file: TextFile | TypedFile, member: Member = member) -> T:
                if self.is_folder:
                    own = [name for name in self.names if name not in member.keys]
                    check_like(self.members[0].path, own, self.delimiter, member.path, file.names, file.delimiter)
                return action(member, file)

            done.append(with_file(member.path, kind, checked))
        return done

    @cached_property
    def _keys(self) -> dict[str, Any]:
        return key_types(self.members)

    def _own(self, wanted: Sequence[str]) -> list[str]:
        """Return the columns that are in the files themselves; one at least, which knows how many rows there are."""
        if not self.names:
            raise InvalidInputError(f"{self.path} holds no columns.")
        return [name for name in wanted if name not in self._keys] or [self.names[0]]

    def _places(self, own: Sequence[str]) -> list[int]:
        return [self.names.index(name) for name in own]

    @cached_property
    def _files(self) -> list[Any]:
        return self._each(lambda member, file: file)

    @cached_property
    def _schema(self) -> Any:
        """The types that suit all files of a folder."""
        first, *others = self._files
        schema = plain_schema(first.schema)
        for file in others:
            schema = common_schema(first.path, schema, file.path, file.schema)
        return schema

    @cached_property
    def _scanned(self) -> tuple[list[Any], dict[str, Written]]:
        """Text files in encodings that suit them, and how columns are written: all rows are looked at once."""
        sought = [name for name in self.wanted if self.typed is None or name in self.typed]
        searches = {name: TypeSearch(self.delimiter != ",") for name in sought}
        files = self._each(partial(self._scan, searches))
        return files, {name: search.found for name, search in searches.items()}

    def _scan(self, searches: Mapping[str, TypeSearch], member: Member, file: Any) -> Any:
        own = self._own(self.wanted)
        for name in self._keys:
            if name in searches:
                searches[name].look(_constant(member.keys[name], 1))
        for batch, _ in file.pieces(self._places(own), 0.0):
            for name, column in zip(own, batch.columns, strict=True):
                if name in searches:
                    searches[name].look(plain_types(_chunked(column)))
        return file

    def _gathered(self, member: Member, file: Any) -> tuple[Any, Part]:
        """Return all rows of a file, and where they come from."""
        import pyarrow as pa

        own = self._own(self.wanted)
        positions = self._places(own)
        found = [np.empty(0, dtype=np.intp)]

        def batches() -> Iterator[Any]:
            for batch, places in file.pieces(positions, math.inf):
                found.append(places)
                yield batch

        fields = list(file.schema)
        schema = pa.schema([fields[k] for k in positions])
        raw = self._completed(gather(member.path, batches(), schema), own, self.wanted, member)
        rows = np.concatenate(found)
        is_complete = len(rows) == 0 or rows[-1] == len(rows) - 1
        return raw, Part(member.path, len(rows), file.first_row, None if is_complete else rows)

    def _completed(self, rows: Any, own: Sequence[str], wanted: Sequence[str], member: Member) -> Any:
        """Return columns in their order, with those that folders tell, and of the types that suit all files."""
        import pyarrow as pa

        columns = dict(zip(own, rows.columns, strict=True))
        if self.is_folder and not self.is_text:
            columns = {name: as_type(column, self._schema.field(name).type) for name, column in columns.items()}
        for name, kind in self._keys.items():
            value = _constant(member.keys[name], rows.num_rows)
            columns[name] = value if self.is_text else value.cast(kind)
        return pa.table({name: columns[name] for name in wanted})


def _chunked(column: Any) -> Any:
    import pyarrow as pa

    return pa.chunked_array([column])


def _constant(value: str | None, n: int) -> Any:
    import pyarrow as pa

    return _chunked(pa.array([value], pa.large_string()).take(pa.array(np.zeros(n, dtype=np.int8))))
