"""Which columns of a table are features, and of what kind."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import encode
from counterpoise.exceptions import InvalidInputError

if TYPE_CHECKING:
    from counterpoise.reading import DataFile

MOST_CATEGORIES = 50
"""Categories of a column that are told apart; rarer ones share one."""


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

        columns = {name: pa.array(data.numbers(name, allow_missing=True)) for name in self.numbers}
        columns |= {name: data.texts(name) for name in self.categories}
        return pa.table(columns)


def sort_columns(
    data: DataFile, contexts: NDArray[Any], without: Collection[str], only: Collection[str] = ()
) -> Columns:
    """Sort the columns of a file by what they hold.

    Parameters
    ----------
    contexts : ndarray of shape (n_rows,)
        A column that says the same in other words is no feature.
    without : collection of str
        Columns that are no features: the target, the contexts, what the user drops.
    only : collection of str
        The features, where the user names them; else all that can be used.
    """
    codes = encode(contexts).codes
    kinds = {
        name: _kind(data.table[name], codes)
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


def _kind(column: Any, contexts: NDArray[np.intp]) -> tuple[str, str]:
    """Return ``number`` or ``category``, or nothing and why a column is of no use."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if column.null_count == len(column):
        return "", "empty"
    if pa.types.is_temporal(kind):
        return "", _DATE
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "", f"of type {kind}"
    distinct = len(pc.unique(column.drop_null()))
    if distinct == 1 and column.null_count == 0:
        return "", "the same in every row"
    if distinct <= int(contexts.max()) + 1 and _renames(column, contexts):
        return "", "another name of the context"
    if pa.types.is_boolean(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return ("category" if pa.types.is_boolean(kind) else "number"), ""
    if pa.types.is_integer(kind):
        return ("", "a running number") if _is_running(column, distinct) else ("number", "")
    if _are_dates(column):
        return "", _DATE
    if distinct > MOST_CATEGORIES and distinct > len(column) // 2:
        return "", "different in most rows, like a name"
    return "category", ""


def _renames(column: Any, contexts: NDArray[np.intp]) -> bool:
    """Tell whether a column and the contexts determine each other."""
    codes = column.combine_chunks().dictionary_encode("encode").indices.to_numpy(zero_copy_only=False)
    pairs = np.unique(np.column_stack([codes, contexts]), axis=0)
    return len(pairs) == len(np.unique(codes)) == len(np.unique(contexts))


def _are_dates(text: Any) -> bool:
    """Tell whether text is dates as people write them."""
    some = text.drop_null()[:200].to_pylist()
    return all(re.fullmatch(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?", str(one)) for one in some)


def _is_running(column: Any, distinct: int) -> bool:
    """Tell whether whole numbers count the rows, up or down."""
    if column.null_count or distinct < len(column) or len(column) < 3:
        return False
    steps = np.diff(column.to_numpy())
    return bool(np.all(steps == steps[0]))
