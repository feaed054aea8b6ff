"""Predictions for tables of any size, some rows at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    from counterpoise.tables.reading import DataFile, TableOnDisk
    from counterpoise.tables.tabular.saved import SavedModel

AT_ONCE = 8e6
"""Bytes of a table that is read at once, so that what is said about it counts all of its rows."""

CHUNK = 4e6
"""Bytes of the pieces of a larger one."""


@dataclass(frozen=True, eq=False)
class PredictedRows:
    """Some rows of a table, and their predictions.

    Attributes
    ----------
    data : DataFile
    predictions : mapping from method to the columns that it adds
        See :meth:`counterpoise.tables.tabular.saved.SavedModel.predictions`.
    unknown : mapping from column to int
        In how many of these rows it has a category that fit has not seen.
    """

    data: DataFile
    predictions: Mapping[str, Mapping[str, NDArray[Any]]]
    unknown: Mapping[str, int]


def pieces(table: TableOnDisk, typed: Sequence[str] | None = None) -> Iterator[DataFile]:
    """Yield the rows of a table in their order: at once where they are few, else piece by piece.

    Parameters
    ----------
    typed : sequence of str, optional
        The columns whose types are needed; by default all. Others of a large file of text remain text.
    """
    if table.size <= AT_ONCE:
        yield table.read()
        return
    own = None if typed is None else tuple(name for name in table.names if name.strip() in {n.strip() for n in typed})
    yield from replace(table, typed=own).chunks(CHUNK)


def predicted(
    saved: SavedModel, table: TableOnDisk, methods: Sequence[str] | None = None, typed: Sequence[str] | None = None
) -> Iterator[PredictedRows]:
    """Yield the rows of a table with their predictions, in bounded memory.

    Parameters
    ----------
    methods : sequence of str, optional
        Whose predictions; by default those of the method that was kept.
    typed : sequence of str, optional
        See :func:`pieces`.
    """
    for data in pieces(table, typed):
        rows = saved.encoded(data)
        own = {name: saved.predictions_of(rows, data, name) for name in methods or (saved.method,)}
        yield PredictedRows(data, own, saved.unknown_of(rows))


class PredictedTable:
    """A table of new rows with the predictions of a model, as it is written; the first rows are looked at right away.

    Parameters
    ----------
    saved : SavedModel
    table : TableOnDisk
    typed : bool
        Whether all columns have their types; else those of a file of text are as the file writes them.

    Attributes
    ----------
    n_rows : int
        Rows so far.
    unknown : mapping from column to int
        In how many of them it has a category that fit has not seen.
    renamed : tuple of str
        Predictions that give way to columns of the same name.
    """

    def __init__(self, saved: SavedModel, table: TableOnDisk, *, typed: bool) -> None:
        self._saved, self._table, self._typed = saved, table, typed
        self.n_rows, self.unknown = 0, Counter[str]()
        begun = self._predicted()
        first = next(begun)
        self._begun: Iterator[PredictedRows] | None = chain([first], begun)
        self.renamed = tuple(name for name in first.predictions[saved.method] if name in first.data.raw.column_names)

    def _predicted(self) -> Iterator[PredictedRows]:
        return predicted(self._saved, self._table, typed=None if self._typed else self._saved.columns.sources)

    def pieces(self) -> Iterator[tuple[Any, Mapping[str, NDArray[Any]]]]:
        """Yield rows, and the columns that are added to them; another call begins again."""
        rows, self._begun = self._begun or self._predicted(), None
        self.n_rows, self.unknown = 0, Counter[str]()
        for one in rows:
            self.n_rows += one.data.n_rows
            self.unknown.update(one.unknown)
            yield one.data.table if self._typed else one.data.raw, one.predictions[self._saved.method]
