"""Columns of a file, and how they are spoken of."""

from __future__ import annotations

import difflib
import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import CounterpoiseError, InvalidInputError, StrayCellWarning
from counterpoise.tables.reading import cells


@dataclass(frozen=True, eq=False)
class Part:
    """Where some rows of a table come from.

    Attributes
    ----------
    path : Path
    n_rows : int
    first_row : int
        The number of the first row, as a spreadsheet shows it.
    rows : ndarray of int or None
        The places in the file of the rows, from 0, where empty ones were left out.
    """

    path: Path
    n_rows: int
    first_row: int
    rows: NDArray[np.intp] | None = None

    def row_name(self, k: int) -> str:
        """Return where a row, counted from 0, is found in the file."""
        return f"row {(k if self.rows is None else int(self.rows[k])) + self.first_row}"

    def where(self, keep: NDArray[np.bool_]) -> Part:
        """Return some of the rows, which keep their numbers."""
        places = np.arange(self.n_rows) if self.rows is None else self.rows
        return replace(self, n_rows=int(np.count_nonzero(keep)), rows=places[keep])


@dataclass(frozen=True, eq=False)
class DataFile:
    """Columns that were read from a file, or from the files in a folder.

    Attributes
    ----------
    path : Path
    names : tuple of str
        All columns of the file; one without a name has its place for one.
    raw : pyarrow.Table
        The columns that were read: text where the file is text, else of the types in the file.
    first_row : int
        The number of the first row, as a spreadsheet shows it.
    rows : ndarray of int or None
        The places in the file of the rows, from 0, where empty ones were left out.
    delimiter : str or None
        Of a text file.
    written : mapping from column to Written, or None
        How the columns of a text file are written, where that is not to be told from these rows alone.
    parts : tuple of Part
        The files of a folder, in the order of the rows.
    is_piece : bool
        Whether these are some of the rows of a larger table.
    """

    path: Path
    names: tuple[str, ...]
    raw: Any
    first_row: int = 1
    rows: NDArray[np.intp] | None = None
    delimiter: str | None = None
    written: Mapping[str, cells.Written] | None = None
    parts: tuple[Part, ...] = ()
    is_piece: bool = False

    def where(self, keep: NDArray[np.bool_]) -> DataFile:
        """Return some of the rows, which keep their numbers, and columns that are of the same types."""
        ends = np.cumsum([part.n_rows for part in self.parts])
        parts = [part.where(keep[end - part.n_rows : end]) for part, end in zip(self.parts, ends, strict=True)]
        places = np.arange(self.n_rows) if self.rows is None else self.rows
        texts = [] if self.delimiter is None else self.raw.column_names
        spelt = {name: self._spelt(name) for name in texts if cells.kind(self._text(name)) == "text"}
        written = None if self.delimiter is None else spelt
        return replace(self, raw=self.raw.filter(keep), rows=places[keep], written=written, parts=tuple(parts))

    @property
    def n_rows(self) -> int:
        """Rows that hold something."""
        return int(self.raw.num_rows)

    @cached_property
    def table(self) -> Any:
        """The columns that were read as a ``pyarrow.Table``; text has the type that fits all of a column."""
        if self.delimiter is None:
            return self.raw
        import pyarrow as pa

        return pa.table({name: self._typed(name) for name in self.raw.column_names})

    @cached_property
    def _known(self) -> dict[str, Any]:
        """The columns of text that were typed already."""
        return {}

    def _typed(self, name: str) -> Any:
        """Return a column with the type that fits all of it."""
        if self.delimiter is None:
            return self.raw[name]
        if name not in self._known:
            text = self._text(name)
            # A table that never was a file may have columns of other types beside those of text.
            self._known[name] = self._spelt(name).read(text) if cells.kind(text) == "text" else text
        return self._known[name]

    def feature(self, name: str) -> Any:
        """Return a column with the type that it has as a feature: text that is nearly all numbers is numbers."""
        text = self._text(name)
        if self.delimiter is None or cells.kind(text) != "text":
            return text
        return self._spelt(name).read_feature(text)

    @cached_property
    def _spellings(self) -> dict[str, cells.Written]:
        return dict(self.written or {})

    def _spelt(self, name: str) -> cells.Written:
        """Return how a column of text is written."""
        if name not in self._spellings:
            self._spellings[name] = cells.spelling(self._text(name), self._comma)
        return self._spellings[name]

    def _text(self, name: str) -> Any:
        return cells.plain_types(self.raw[name])

    @cached_property
    def fingerprint(self) -> str:
        """The beginning of the SHA-256 of the file, or of those of all files of a folder."""
        return fingerprint([part.path for part in self.parts] or [self.path])

    @property
    def _comma(self) -> bool:
        return self.delimiter not in (None, ",")

    def row_name(self, k: int) -> str:
        """Return where a row, counted from 0, is found in the file."""
        for part in self.parts:
            if k < part.n_rows:
                return f"{part.row_name(k)} of {part.path.name}"
            k -= part.n_rows
        return Part(self.path, self.n_rows, self.first_row, self.rows).row_name(k)

    def column(self, name: str, role: str = "") -> Any:
        """Return a column as a ``pyarrow.ChunkedArray`` of the type of its values."""
        return self._typed(find_column(self.path, self.names, name, role))

    def numbers(
        self,
        name: str,
        role: str = "",
        *,
        least: float | None = None,
        allow_missing: bool = False,
        allow_strays: bool = False,
    ) -> NDArray[np.float64]:
        """Return a column as finite floats, or name the cells that are in the way.

        Parameters
        ----------
        role : str
            The option that names the column, for messages.
        least : float, optional
            What a number must not be below.
        allow_missing : bool
            Whether empty cells become NaN.
        allow_strays : bool
            Whether a few cells that are no finite numbers do, with a warning.
        """
        import pyarrow as pa

        found, column, said = self._plain(name, role)
        kind = cells.kind(column)
        if kind not in ("text", "numbers"):
            raise InvalidInputError(f"{said} must be numbers, but it holds {kind}. Name another column.")
        try:
            may_be_grouped = allow_strays and kind == "text" and self.delimiter is not None
            spelt = self._spelt(found) if self._comma or may_be_grouped else cells.Written(None)
            values, missing = cells.numbers(column, spelt.comma, may_be_grouped and spelt.grouped)
        except MemoryError:
            # One of Arrow's errors too, but nothing that the file can help.
            raise
        except pa.ArrowException as error:
            raise InvalidInputError(f"{said} must be numbers, but it cannot be read as such: {error}.") from error
        wrong = np.flatnonzero(~np.isfinite(values) & ~missing)
        if may_be_grouped and spelt.grouped and not wrong.size:
            self._warn_of_groups(found, column, values)
        if allow_strays and wrong.size:
            known = int((~missing).sum())
            if kind == "text" and self.delimiter is not None:
                # All cells of the file decide, of which these may be some.
                are_strays = self._spelt(found).has_strays
            else:
                words = [str(self.raw[found][int(k)].as_py()) for k in wrong[: max(known // 10, 1)]]
                are_strays = cells.are_strays(wrong.size, words, known)
            if are_strays:
                self._warn_of_strays(found, wrong, known)
                return np.where(np.isfinite(values), values, np.nan)
        if wrong.size:
            cell = self.raw[found][int(wrong[0])].as_py()
            # A word has become NaN only now; infinity was written as such, or is 1e999.
            infinite = bool(np.isinf(values[wrong[0]])) or str(cell).strip().lower().lstrip("+-") in ("inf", "infinity")
            raise InvalidInputError(
                f"{said} must be {'finite ' if infinite else ''}numbers; {self.row_name(wrong[0])} holds "
                f"{cell!r:.60}{self._and_more(wrong.size)}. {cells.advice(cell)}"
            )
        if not allow_missing and missing.any():
            raise InvalidInputError(self._absent(found, said, missing, ""))
        if least is not None and (values < least).any():
            low = np.flatnonzero(values < least)
            bound = "cannot be negative" if least == 0 else f"must be {least:g} or more"
            raise InvalidInputError(
                f"{said} has {values[low[0]]:.12g} in {self.row_name(low[0])}"
                f"{self._and_more(low.size)}; {_thing(role, found)} {bound}."
            )
        return values

    def _warn_of_strays(self, found: str, wrong: NDArray[np.intp], known: int) -> None:
        cell = str(self.raw[found][int(wrong[0])].as_py())
        others = f" ({known - wrong.size:,} of {known:,} cells are numbers)"
        warnings.warn(
            f"column {found!r} of {self.path.name} has {cell!r:.40} in {self.row_name(int(wrong[0]))}"
            f"{self._and_more(wrong.size)}, which counts as missing{'' if self.is_piece else others}",
            StrayCellWarning,
            stacklevel=4,
        )

    def _warn_of_groups(self, found: str, column: Any, values: NDArray[np.float64]) -> None:
        k = cells.first_grouped(column)
        if k >= 0:
            warnings.warn(
                f"column {found!r} of {self.path.name} has {column[k].as_py()!r:.40} in {self.row_name(k)}, which is "
                f"read as {values[k]:.12g}, and so are cells like it",
                StrayCellWarning,
                stacklevel=4,
            )

    def labels(self, name: str, role: str = "") -> NDArray[Any]:
        """Return a column as plain Python values: the text in a text file, such as '007', else what the type says."""
        distinct, codes = self.coded_labels(name, role)
        values = np.empty(len(distinct), dtype=object)
        values[:] = distinct
        return values[codes]

    def coded_labels(self, name: str, role: str = "") -> tuple[list[Any], NDArray[np.intp]]:
        """Return the different values of a column, as in :meth:`labels`, and for every row which of them it holds."""
        import pyarrow as pa

        found, column, said = self._plain(name, role)
        try:
            distinct, codes, missing = cells.coded_labels(column, strip=self.delimiter is not None)
        except MemoryError:
            # One of Arrow's errors too, but nothing that the file can help.
            raise
        except pa.ArrowException:
            raise InvalidInputError(f"{said} must hold words or numbers, but it holds {column.type}.") from None
        if missing.any():
            raise InvalidInputError(self._absent(found, said, missing, "for example with 'unknown', "))
        return distinct, codes

    def name(self, name: str, role: str = "") -> str:
        """Return a column's name as the file has it, or suggest the one that was meant."""
        return find_column(self.path, self.names, name, role)

    def texts(self, name: str, role: str = "") -> Any:
        """Return a column as a ``pyarrow.ChunkedArray`` of text, null where there is nothing.

        Numbers, and true and false, are written alike whatever the file: 1, 2.5, True.
        """
        import pyarrow as pa

        found, column, said = self._plain(name, role)
        try:
            return cells.texts(column, cells.plain_types(self._typed(found)))
        except MemoryError:
            # One of Arrow's errors too, but nothing that the file can help.
            raise
        except pa.ArrowException:
            raise InvalidInputError(f"{said} must hold words or numbers, but it holds {column.type}.") from None

    def written_texts(self, name: str) -> Any:
        """Return the trimmed text of a column as it is written; None where there is no such column of text."""
        if name not in self.raw.column_names:
            return None
        column = self._text(name)
        return cells.trimmed(column) if cells.kind(column) == "text" else None

    def _plain(self, name: str, role: str) -> tuple[str, Any, str]:
        import pyarrow as pa

        found = find_column(self.path, self.names, name, role)
        said = f"column {found!r} of {self.path.name}{_in_role(role)}"
        try:
            return found, cells.plain_types(self.raw[found]), said
        except MemoryError:
            # One of Arrow's errors too, but nothing that the file can help.
            raise
        except pa.ArrowException:
            raise InvalidInputError(f"{said} is of the type {self.raw[found].type}, which cannot be used.") from None

    def _absent(self, found: str, said: str, missing: NDArray[np.bool_], example: str) -> str:
        rows = np.flatnonzero(missing)
        if rows.size == len(missing) and not self.is_piece:
            return f"{said} is empty in every row. Name another column."
        cell = self.raw[found][int(rows[0])].as_py()
        state = "is empty" if cell is None or not str(cell).strip() else f"holds {cell!r}, which stands for nothing,"
        more = f" (and in {self._at_least}{rows.size - 1} more)" if rows.size > 1 else ""
        return f"{said} {state} in {self.row_name(rows[0])}{more}. Fill these cells, {example}or remove the rows."

    @property
    def _at_least(self) -> str:
        return "at least " if self.is_piece else ""

    def _and_more(self, n: int) -> str:
        return f" (and {self._at_least}{n - 1} more such cell{'s' if n > 2 else ''})" if n > 1 else ""


def fingerprint(paths: Sequence[Path]) -> str:
    """Return the beginning of the SHA-256 of a file, or of those of several files."""
    digests = []
    for path in paths:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    whole = digests[0] if len(digests) == 1 else hashlib.sha256(" ".join(digests).encode()).hexdigest()
    return whole[:16]


def find_column(path: Path, names: Sequence[str], name: str, role: str = "") -> str:
    """Return a column's name as the file has it, or suggest the one that was meant."""
    found = [one for one in names if one == name] or [one for one in names if one.strip() == name.strip()]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidInputError(
            f"{path.name} has {len(found)} columns {name!r}{_in_role(role)}. Rename all but one of them."
        )

    def bare(text: str) -> str:
        return text.lower().replace(" ", "").replace("_", "")

    near = difflib.get_close_matches(bare(name), [bare(one) for one in names], n=1)
    meant = next((one for one in names if near and bare(one) == near[0]), None)
    hint = "" if meant is None else f" Did you mean {meant!r}?"
    if role and "," in name and all(part.strip() in names for part in name.split(",")):
        hint = f" Give {role} once for each column."
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    listed = ", ".join(f"{one:.60}" for one in names[:20])
    raise InvalidInputError(
        f"{path.name} has no column {name!r}{_in_role(role)}.{hint} Its columns are: {listed}{more}."
    )


def choose_columns(path: Path, names: Sequence[str], columns: Mapping[str, str] | None) -> list[int]:
    """Return the places of the columns that are asked for."""
    if columns is None:
        for name in () if len(set(names)) == len(names) else names:
            find_column(path, names, name)
        return list(range(len(names)))
    return sorted({names.index(find_column(path, names, name, role)) for name, role in columns.items()})


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn what reading a file may raise into one sentence about it."""
    import pyarrow as pa

    try:
        yield
    except CounterpoiseError:
        raise
    except MemoryError:
        raise CounterpoiseError(f"there is not enough memory to read {path.name}. Name fewer columns.") from None
    except OSError as error:
        if error.errno is not None:
            raise CounterpoiseError(f"{path} could not be read: {error.strerror}.") from error
        # Without a number it is not the system that complains, but a decoder.
        raise InvalidInputError(_damaged(path, error)) from error
    except (pa.ArrowException, UnicodeError) as error:
        raise InvalidInputError(_damaged(path, error)) from error


def _damaged(path: Path, error: Exception) -> str:
    reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    return f"{path.name} is damaged, cut short or no table ({reason:.120}). Write or fetch it again."


def no_rows(path: Path) -> str:
    """Return what is wrong with a table of names only."""
    return f"{path.name} has a header but no rows."


def _in_role(role: str) -> str:
    return f" ({role})" if role else ""


def _thing(role: str, name: str) -> str:
    return role.lstrip("-").replace("-", " ") or name
