"""What a file is, and what may go wrong with it."""

from __future__ import annotations

import difflib
import stat
from collections.abc import Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path

from counterpoise.exceptions import InvalidInputError
from counterpoise.files import check_name
from counterpoise.tables.reading.data_file import DataFile
from counterpoise.tables.reading.folders import Member, files_in
from counterpoise.tables.reading.on_disk import TEXT, TableOnDisk, with_file


def read_table(path: str | PathLike[str], columns: Mapping[str, str] | None = None) -> DataFile:
    """Read a csv, parquet or Arrow file, whatever it is called, or a folder of such files with the same columns.

    Parameters
    ----------
    columns : mapping from a column to the option that names it, optional
        The only columns to read, such as ``{"units": "--demand"}``; else all. A missing one is refused before the file
        is read.
    """
    return open_table(path, columns).read()


def open_table(path: str | PathLike[str], columns: Mapping[str, str] | None = None) -> TableOnDisk:
    """Look at a file or a folder without reading it; see :func:`read_table`."""
    path = Path(path)
    path = path if path.name else path.resolve()
    try:
        members = files_in(path) if _is_folder(path) else [Member(path, {})]
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}. Name another folder.") from error
    kinds = tuple(_kind(member.path) for member in members)
    is_text = [kind in TEXT for kind in kinds]
    if any(is_text) and not all(is_text):
        raise InvalidInputError(
            f"{path} holds both text and typed files ({members[is_text.index(True)].path.name}, "
            f"{members[is_text.index(False)].path.name}). Name a folder with files of one kind."
        )
    first = with_file(members[0].path, kinds[0], lambda file: file)
    twice = [name for name in members[0].keys if name in first.names]
    if twice:
        raise InvalidInputError(f"column {twice[0]!r} is both in {members[0].path} and in the name of its folder.")
    table = TableOnDisk(path, (*first.names, *members[0].keys), columns, tuple(members), kinds, first.delimiter)
    # A column that is not there is refused before anything is read.
    assert table.wanted is not None
    return table


_MAGIC = {
    b"PAR1": "parquet",
    b"ARRO": "arrow",
    b"\xff\xff\xff\xff": "stream",
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "an Excel workbook or a zip file",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"FEA1": "a feather file of the first version",
    b"PARE": "an encrypted parquet file",
    b"SQLi": "a database",
}
_TYPED = {".parquet": "parquet", ".pq": "parquet", ".arrow": "Arrow", ".feather": "feather", ".ipc": "Arrow"}


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        # A name that is too long, for one; that is told where the file is looked at.
        return False


def _kind(path: Path) -> str:
    """Return what a file is, by its first bytes; the name may say anything."""
    check_name(path)
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise InvalidInputError(f"{path} is not a file on disk. Save the table first, and name that file.")
        with path.open("rb") as file:
            start = file.read(8)
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidInputError(_not_found(path)) from None
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}. Name another file.") from error
    if not start:
        raise InvalidInputError(f"{path.name} is empty: it has neither a header nor rows.")
    kind = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "csv")
    if " " in kind:
        raise InvalidInputError(f"{path.name} is {kind}. Save the table as csv or parquet, and name that file.")
    if kind == "csv" and path.suffix.lower() in _TYPED:
        raise InvalidInputError(
            f"{path.name} is not a {_TYPED[path.suffix.lower()]} file. If it is text, call it .csv."
        )
    return kind


def _not_found(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no file {path}: {path.parent} is not a folder."
    beside: list[str] = []
    with suppress(PermissionError):
        beside += (one.name for one in path.parent.iterdir())
    near = difflib.get_close_matches(path.name, beside, n=1)
    return f"there is no file {path}.{f' Did you mean {near[0]}?' if near else ''}"
