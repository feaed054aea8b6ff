"""Folders of files that are one table together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.reading.cells import plain_types

_ENDINGS = (".parquet", ".pq", ".arrow", ".feather", ".ipc", ".csv", ".tsv", ".txt", ".gz")
_NOTHING = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Member:
    """A file of a folder.

    Attributes
    ----------
    path : Path
    keys : mapping from column to value
        What the folders on the way to it say of all its rows, as ``year=2024`` does.
    """

    path: Path
    keys: Mapping[str, str | None]


def files_in(folder: Path) -> list[Member]:
    """Return the tables in a folder and in those below it, in the order of their names; hidden ones do not count."""
    found = []
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder).parts
        hidden = any(part.startswith((".", "_")) for part in below)
        if path.suffix.lower() in _ENDINGS and not hidden and path.is_file():
            found.append(Member(path, dict(_key(part) for part in below[:-1] if "=" in part)))
    if not found:
        raise InvalidInputError(
            f"{folder} is a folder without tables. Name a file, or a folder with csv, parquet or arrow files in it."
        )
    for one in found[1:]:
        if list(one.keys) != list(found[0].keys):
            raise InvalidInputError(
                f"{one.path} lies in other folders of the form column=value than {found[0].path}. Name a folder in "
                "which all files lie alike."
            )
    return found


def _key(part: str) -> tuple[str, str | None]:
    name, _, value = part.partition("=")
    return unquote(name), None if value == _NOTHING else unquote(value)


def key_types(members: Sequence[Member]) -> dict[str, Any]:
    """Return the types of the columns that folders tell: whole numbers if all are, else text."""
    import pyarrow as pa

    types = {}
    for name in members[0].keys:
        values = {member.keys[name] for member in members} - {None}
        whole = all(value is not None and value.lstrip("-").isdecimal() and len(value) < 19 for value in values)
        types[name] = pa.int64() if whole and values else pa.string()
    return types


def check_like(
    first: Path, names: Sequence[str], delimiter: str | None, other: Path, others: Sequence[str], parted: str | None
) -> None:
    """Refuse a file whose columns, or what parts its cells, are not those of the first."""
    lacks = [name for name in names if name not in others]
    adds = [name for name in others if name not in names]
    if list(names) != list(others):
        if lacks:
            differs = f"has no column {lacks[0]!r}, but {first.name} has"
        elif adds:
            differs = f"has a column {adds[0]!r}, but {first.name} has not"
        else:
            differs = f"has its columns in another order than {first.name}"
        raise InvalidInputError(
            f"{other} {differs}. All files of a folder must have the same columns: correct it, or move it elsewhere."
        )
    if delimiter != parted:
        raise InvalidInputError(
            f"the cells of {other} are parted by {parted!r}, but those of {first.name} by {delimiter!r}. Save all "
            "files of a folder alike."
        )


def common_schema(first: Path, schema: Any, other: Path, others: Any) -> Any:
    """Return types that suit two files, or name the column for which there is none."""
    import pyarrow as pa

    fields = []
    for one, two in zip(plain_schema(schema), plain_schema(others), strict=True):
        try:
            fields.append(pa.unify_schemas([pa.schema([one]), pa.schema([two])], promote_options="permissive").field(0))
        except MemoryError:
            # One of Arrow's errors too, but nothing that the file can help.
            raise
        except pa.ArrowException:
            raise InvalidInputError(
                f"column {one.name!r} is {two.type} in {other}, but {one.type} in {first.name}. Save it alike in all "
                "files."
            ) from None
    return pa.schema(fields)


def plain_schema(schema: Any) -> Any:
    """Return a schema without dictionaries and views, which differ between files that hold the same."""
    import pyarrow as pa

    return pa.schema([(field.name, plain_types(pa.chunked_array([pa.nulls(0, field.type)])).type) for field in schema])


def as_type(column: Any, kind: Any) -> Any:
    """Return a column with a type of a plain schema."""
    column = plain_types(column)
    # Not exact where whole numbers beyond 2^53 meet fractions in another file.
    return column if column.type == kind else column.cast(kind, safe=False)
