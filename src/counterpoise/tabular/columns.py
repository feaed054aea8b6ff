"""Which columns of a table are features, and of what kind."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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

    def of(self, data: DataFile) -> Any:
        """Return the features of a file as a ``pyarrow.Table``: floats and text, with what is missing left missing."""
        import pyarrow as pa

        columns = {name: pa.array(sane(data, name, data.numbers(name, allow_missing=True))) for name in self.numbers}
        columns |= {name: data.texts(name) for name in self.categories}
        return pa.table(columns)


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
        name: _kind(plain_types(data.table[name]), kept, codes)
        for name in data.names
        if name not in without and (not only or name in only)
    }
    unusable = {name: reason for name, (kind, reason) in kinds.items() if not kind}
    for name in only:
        if name in unusable:
            raise InvalidInputError(f"column {name!r} cannot be a feature: it is {unusable[name]}.")
    columns = Columns(tuple(_of_kind(kinds, "number")), tuple(_of_kind(kinds, "category")), unusable)
    if not columns.features:
        said = "; ".join(f"{name}: {reason}" for name, reason in list(unusable.items())[:10])
        raise InvalidInputError(f"{data.path.name} has no column that can be a feature{f' ({said})' if said else ''}.")
    return columns


def _of_kind(kinds: Mapping[str, tuple[str, str]], kind: str) -> Iterator[str]:
    return (name for name, (one, _) in kinds.items() if one == kind)


def _kind(column: Any, kept: NDArray[np.bool_], contexts: Sequence[NDArray[np.intp]]) -> tuple[str, str]:
    """Return ``number`` or ``category``, or nothing and why a column is of no use."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if column.null_count == len(column):
        return "", "empty"
    if pa.types.is_temporal(kind):
        return "", _DATE
    usable = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_large_string,
    )
    if not any(test(kind) for test in usable):
        return "", f"of type {kind}"
    if pa.types.is_integer(kind) and _is_running(column):
        return "", "a running number"
    column = column.filter(kept)
    distinct = len(pc.unique(column.drop_null()))
    if distinct == 0:
        return "", "empty"
    if distinct == 1 and column.null_count == 0:
        return "", "the same in every row"
    if any(_renames(column, codes) for codes in contexts if distinct <= int(codes.max()) + 1):
        return "", "another name of the context"
    if not pa.types.is_large_string(kind):
        return ("category" if pa.types.is_boolean(kind) else "number"), ""
    if _are_dates(column):
        return "", _DATE
    if distinct > MOST_CATEGORIES and distinct > len(column) // 2:
        return "", "different in most rows, like a name"
    return "category", ""


def _renames(column: Any, contexts: NDArray[np.intp]) -> bool:
    """Tell whether a column, where it says anything, and the contexts determine each other."""
    known = np.asarray(column.is_valid().to_numpy())
    values = column.filter(known).combine_chunks().dictionary_encode()
    codes, own = values.indices.to_numpy(zero_copy_only=False), contexts[known]
    pairs = np.unique(np.column_stack([codes, own]), axis=0)
    return len(pairs) == len(np.unique(codes)) == len(np.unique(own)) > 1


def _are_dates(text: Any) -> bool:
    """Tell whether text is dates as people write them."""
    some = text.drop_null()[:200].to_pylist()
    return all(re.fullmatch(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?", str(one)) for one in some)


def _is_running(column: Any) -> bool:
    """Tell whether whole numbers count the rows, up or down."""
    if column.null_count or len(column) < 3:
        return False
    steps = np.diff(column.to_numpy().astype(np.float64))
    return bool(steps[0] != 0 and np.all(steps == steps[0]))
