"""Which columns of a table are features, and of what kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import encode
from counterpoise.exceptions import InvalidInputError
from counterpoise.reading.cells import plain_types

if TYPE_CHECKING:
    from counterpoise.reading import DataFile

MOST_CATEGORIES = 50
"""Categories of a column that are told apart; rarer ones share one."""


LARGEST = 1e50

LOOKED_AT = 200
"""Cells of a column by which dates are known."""

_DATE = "a date or time; make features of it first, such as the month"


@dataclass(frozen=True)
class Columns:
    """The features of a table.

    Attributes
    ----------
    numbers, categories : tuple of str
    left_out : mapping from column to reason
    """

    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def features(self) -> tuple[str, ...]:
        """All that is used."""
        return (*self.numbers, *self.categories)

    def of(self, data: DataFile, only: Collection[str] | None = None) -> Any:
        """Return the features of a file as a ``pyarrow.Table``: floats and text, with what is missing left missing.

        Parameters
        ----------
        only : collection of str, optional
            Fewer of them.
        """
        import pyarrow as pa

        own = self.features if only is None else [name for name in self.features if name in only]
        return pa.table(
            {
                name: pa.array(sane(data, name, data.numbers(name, allow_missing=True)))
                if name in self.numbers
                else data.texts(name)
                for name in own
            }
        )


def sane(data: DataFile, name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return numbers whose squares and sums are numbers too, or name the one that is too large."""
    large = np.flatnonzero(np.abs(values) > LARGEST)
    if large.size:
        raise InvalidInputError(
            f"column {name!r} of {data.path.name} holds {values[large[0]]:g} in {data.row_name(int(large[0]))}, which "
            "is beyond what can be computed with. Rescale the column, or drop it."
        )
    return values


def sort_columns(
    data: DataFile,
    kept: NDArray[np.bool_],
    contexts: Sequence[NDArray[Any]],
    without: Collection[str],
    only: Collection[str] = (),
) -> Columns:
    """Sort the columns of a file by what they hold.

    Parameters
    ----------
    kept : ndarray of bool of shape (n_rows,)
        The rows that are used.
    contexts : sequence of ndarray of shape (n_kept,)
        The contexts, and their parts where they are crossed. A column that says the same as one of these in other words
        is no feature.
    without : collection of str
        Columns that are no features: the target, the contexts, what the user drops.
    only : collection of str
        The features, where the user names them; else all that can be used.
    """
    codes = [encode(labels).codes for labels in contexts]
    kinds = {
        name: kind_of(_WholeColumn(plain_types(data.table[name]), kept, codes))
        for name in data.names
        if name not in without and (not only or name in only)
    }
    return chosen(data.path, kinds, only)


def chosen(path: Path, kinds: Mapping[str, tuple[str, str]], only: Collection[str]) -> Columns:
    """Return the features of a file, or say why there are none."""
    unusable = {name: reason for name, (kind, reason) in kinds.items() if not kind}
    for name in only:
        if name in unusable:
            raise InvalidInputError(f"column {name!r} cannot be a feature: it is {unusable[name]}.")
    columns = Columns(tuple(_of_kind(kinds, "number")), tuple(_of_kind(kinds, "category")), unusable)
    if not columns.features:
        said = "; ".join(f"{name}: {reason}" for name, reason in list(unusable.items())[:10])
        raise InvalidInputError(f"{path.name} has no column that can be a feature{f' ({said})' if said else ''}.")
    return columns


def _of_kind(kinds: Mapping[str, tuple[str, str]], kind: str) -> Iterator[str]:
    return (name for name, (one, _) in kinds.items() if one == kind)


class Facts(Protocol):
    """What must be known about a column to tell what it is; rows without a target do not count unless it is said."""

    @property
    def type(self) -> Any:
        """Of its values."""

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing, in any row at all."""

    @property
    def is_running(self) -> bool:
        """Whether whole numbers count the rows, all of them, up or down."""

    @property
    def n_rows(self) -> int:
        """Rows."""

    @property
    def n_missing(self) -> int:
        """Those without a value."""

    @property
    def distinct(self) -> int:
        """Different values; of numbers it may be the lesser of them and two."""

    @property
    def renames_context(self) -> bool:
        """Whether the column and the contexts determine each other."""

    @property
    def are_dates(self) -> bool:
        """Whether text is dates as people write them."""


def kind_of(facts: Facts) -> tuple[str, str]:
    """Return ``number`` or ``category``, or nothing and why a column is of no use."""
    import pyarrow as pa

    kind = facts.type
    if facts.is_empty:
        return "", "empty"
    if pa.types.is_temporal(kind):
        return "", _DATE
    if not any(test(kind) for test in (pa.types.is_boolean, pa.types.is_large_string, *numeric())):
        return "", f"of type {kind}"
    if pa.types.is_integer(kind) and facts.is_running:
        return "", "a running number"
    if facts.distinct == 0:
        return "", "empty"
    if facts.distinct == 1 and facts.n_missing == 0:
        return "", "the same in every row"
    if facts.renames_context:
        return "", "another name of the context"
    if not pa.types.is_large_string(kind):
        return ("category" if pa.types.is_boolean(kind) else "number"), ""
    if facts.are_dates:
        return "", _DATE
    if facts.distinct > MOST_CATEGORIES and facts.distinct > facts.n_rows // 2:
        return "", "different in most rows, like a name"
    return "category", ""


def numeric() -> tuple[Callable[[Any], bool], ...]:
    """Return tests of which one is met by a type of numbers."""
    import pyarrow.types as is_

    return is_.is_integer, is_.is_floating, is_.is_decimal


@dataclass(frozen=True, eq=False)
class _WholeColumn:
    """What a column in memory says about itself when it is asked.

    Attributes
    ----------
    column : pyarrow.ChunkedArray
        All rows.
    kept : ndarray of bool
        Rows with a target.
    contexts : sequence of ndarray
        Codes of the contexts, and of their parts, of these.
    """

    column: Any
    kept: NDArray[np.bool_]
    contexts: Sequence[NDArray[np.intp]]

    @property
    def type(self) -> Any:
        return self.column.type

    @property
    def is_empty(self) -> bool:
        return bool(self.column.null_count == len(self.column))

    @property
    def is_running(self) -> bool:
        return _is_running(self.column)

    @cached_property
    def _own(self) -> Any:
        return self.column.filter(self.kept)

    @property
    def n_rows(self) -> int:
        return len(self._own)

    @property
    def n_missing(self) -> int:
        return int(self._own.null_count)

    @cached_property
    def distinct(self) -> int:
        import pyarrow.compute as pc

        return len(pc.unique(self._own.drop_null()))

    @property
    def renames_context(self) -> bool:
        return any(_renames(self._own, codes) for codes in self.contexts if self.distinct <= int(codes.max()) + 1)

    @property
    def are_dates(self) -> bool:
        return are_dates(self._own.drop_null()[:LOOKED_AT].to_pylist())


def _renames(column: Any, contexts: NDArray[np.intp]) -> bool:
    """Tell whether a column, where it says anything, and the contexts determine each other."""
    known = np.asarray(column.is_valid().to_numpy())
    values = column.filter(known).combine_chunks().dictionary_encode()
    codes, own = values.indices.to_numpy(zero_copy_only=False), contexts[known]
    pairs = np.unique(np.column_stack([codes, own]), axis=0)
    return len(pairs) == len(np.unique(codes)) == len(np.unique(own)) > 1


def are_dates(some: Sequence[Any]) -> bool:
    """Tell whether text is dates as people write them."""
    return all(re.fullmatch(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?", str(one)) for one in some)


def _is_running(column: Any) -> bool:
    """Tell whether whole numbers count the rows, up or down."""
    if column.null_count or len(column) < 3:
        return False
    steps = np.diff(column.to_numpy().astype(np.float64))
    return bool(steps[0] != 0 and np.all(steps == steps[0]))
