"""Dask collections taken apart into partitions that belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from counterpoise.exceptions import InvalidInputError


def is_collection(value: Any) -> bool:
    """Tell whether a value is a dask array, dataframe or series."""
    return hasattr(value, "__dask_graph__")


@dataclass(frozen=True, eq=False)
class Partitions:
    """What every partition holds, as tasks.

    Attributes
    ----------
    columns : mapping from a name (X, y, contexts, ...) to one task, or one constant, for each partition
    n : int
        Partitions.
    checked : list
        The rows of each partition, once they were read: futures where there is a client, else tasks.
    """

    columns: Mapping[str, list[Any]]
    n: int
    checked: list[Any] = field(default_factory=list)

    def part(self, k: int) -> dict[str, Any]:
        """Return what one partition holds."""
        return {name: parts[k] for name, parts in self.columns.items()}


def take_apart(main: str, values: Mapping[str, Any]) -> Partitions:
    """Split columns alike.

    Parameters
    ----------
    main : str
        The column that says where partitions begin; it must be a dask collection.
    values : mapping from name to column
        Dask collections with the same partitions, arrays in memory that are as long, numbers (for all rows), names of
        columns of ``main`` or lists of them (which it loses), or None.
    """
    leader = values[main]
    if not is_collection(leader):
        raise InvalidInputError(
            f"{main} is a {type(leader).__name__} while other arguments are dask collections. Pass {main} as a dask "
            "array or dataframe too."
        )
    named = {name: value for name, value in values.items() if names_columns(value, leader)}
    if named:
        _check_names(leader, main, named)
        values = {name: leader[value] if name in named else value for name, value in values.items()}
        leader = leader.drop(columns=taken(named, leader))
        values = {**values, main: leader}
    leader = _by_rows(leader)
    parts = _delayed(leader)
    lengths: list[int] | None = None
    out: dict[str, list[Any]] = {}
    for name, value in values.items():
        if name == main:
            out[name] = parts
        elif is_collection(value):
            out[name] = _like(name, value, main, leader, len(parts))
        elif not holds_rows(value):
            out[name] = [value] * len(parts)
        else:
            lengths = lengths if lengths is not None else _lengths(leader, parts)
            out[name] = _cut(name, value, lengths)
    return Partitions(out, len(parts))


def names_columns(value: Any, leader: Any) -> bool:
    """Tell whether a value is the name of a column, or a list of such; other lists of text are a label per row."""
    if isinstance(value, str):
        return True
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return False
    return 0 < len(value) == len(set(value)) and set(value) <= set(getattr(leader, "columns", ()))


def taken(values: Mapping[str, Any], leader: Any) -> list[str]:
    """Return the columns of a collection that are named."""
    found = [[value] if isinstance(value, str) else value for value in values.values() if names_columns(value, leader)]
    return list(dict.fromkeys(name for names in found for name in names))


def _check_names(leader: Any, main: str, named: Mapping[str, Any]) -> None:
    columns = list(getattr(leader, "columns", []))
    for name, value in named.items():
        if isinstance(value, str) and value not in columns:
            known = f"Its columns are: {', '.join(map(str, columns[:20]))}." if columns else f"{main} has no names."
            raise InvalidInputError(f"{name} is {value!r}, but {main} has no such column. {known}")


def _by_rows(value: Any) -> Any:
    """Return an array whose chunks hold whole rows; a dataframe is such anyway."""
    if not hasattr(value, "rechunk") or value.ndim < 2:
        return value
    return value.rechunk(dict.fromkeys(range(1, value.ndim), -1))


def _delayed(value: Any) -> list[Any]:
    """Return a task for each partition."""
    # A dataframe's own optimiser merges partitions where few columns are read, and so would pull columns apart.
    parts = value.to_delayed(optimize_graph=not hasattr(value, "divisions"))
    return list(np.asarray(parts, dtype=object).ravel()) if not isinstance(parts, list) else parts


def _chunks(value: Any) -> tuple[float, ...] | None:
    """Return the rows of each partition, where they are known."""
    chunks = getattr(value, "chunks", None)
    if chunks is None or any(np.isnan(size) for size in chunks[0]):
        return None
    return tuple(chunks[0])


def _like(name: str, value: Any, main: str, leader: Any, n: int) -> list[Any]:
    """Return the partitions of a collection, cut like those of the leader."""
    value = _by_rows(value)
    own, theirs = _chunks(value), _chunks(leader)
    if own is not None and theirs is not None and own != theirs:
        if sum(own) != sum(theirs):
            raise InvalidInputError(
                f"{main} has {sum(theirs):.0f} rows and {name} has {sum(own):.0f}. Pass one entry per row."
            )
        value = value.rechunk({0: theirs})
    parts = _delayed(value)
    if len(parts) != n:
        raise InvalidInputError(
            f"{main} has {n} partitions and {name} has {len(parts)}. Take both from one collection, or repartition "
            "them alike."
        )
    return parts


def _lengths(leader: Any, parts: list[Any]) -> list[int]:
    """Return the rows of each partition, counted where they are not known."""
    from dask import compute, delayed

    known = _chunks(leader)
    if known is not None:
        return [int(size) for size in known]
    return list(compute(*(delayed(n_rows)(part) for part in parts)))


def _cut(name: str, value: Any, lengths: list[int]) -> list[Any]:
    """Cut what is in memory into pieces."""
    n = n_rows(value)
    if n != sum(lengths):
        raise InvalidInputError(f"there are {sum(lengths)} rows and {name} has {n}. Pass one entry per row.")
    ends = np.cumsum([0, *lengths])
    rows = value.iloc if hasattr(value, "iloc") else value
    return [rows[int(first) : int(last)] for first, last in pairwise(ends)]


def holds_rows(value: Any) -> bool:
    """Tell an entry per row from None and from one number for all; not by numpy, which looks into ragged labels."""
    shape = getattr(value, "shape", None)
    return hasattr(value, "__len__") if shape is None else len(shape) > 0


def n_rows(value: Any) -> int:
    """Return how many rows there are; sparse ones have a shape, but no length."""
    return int(value.shape[0]) if hasattr(value, "shape") else len(value)
