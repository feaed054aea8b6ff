"""Predictions for tables of any size, some rows at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.tables.tabular.glance import Glance

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


def target_of(saved: SavedModel, data: DataFile, name: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the target of every row, and which rows have one.

    Classes are codes, -1 for those that the model does not know.

    Parameters
    ----------
    name : str
        The column.
    """
    if saved.classes is None:
        values = data.numbers(name, "--target", least=0.0 if saved.task == "count" else None, allow_missing=True)
        return values, ~np.isnan(values)
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = data.texts(name, "--target")
    codes = pc.index_in(texts, value_set=pa.array(saved.classes, pa.large_string()))
    if codes.null_count:
        # In a file of text 007 alone is a number; a model that was fitted to words knows it as it is written.
        written = data.written_texts(name)
        if written is not None:
            own = pc.index_in(written, value_set=pa.array(saved.classes, pa.large_string()))
            codes = pc.coalesce(codes, own)
    there = np.asarray(texts.is_valid().to_numpy())
    return pc.fill_null(codes, -1).to_numpy().astype(np.int16), there


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
    glance : Glance
        How well the model does on rows so far, where the table has the target and the contexts.
    """

    def __init__(self, saved: SavedModel, table: TableOnDisk, *, typed: bool) -> None:
        self._saved, self._table, self._typed = saved, table, typed
        self.n_rows, self.unknown = 0, Counter[str]()
        self.glance = Glance(saved, table.names)
        begun = self._predicted()
        first = next(begun)
        self._begun: Iterator[PredictedRows] | None = chain([first], begun)
        self.renamed = tuple(name for name in first.predictions[saved.method] if name in first.data.raw.column_names)

    def _predicted(self) -> Iterator[PredictedRows]:
        needed = (*self._saved.columns.sources, *self.glance.columns)
        return predicted(self._saved, self._table, typed=None if self._typed else needed)

    def pieces(self) -> Iterator[tuple[Any, Mapping[str, NDArray[Any]]]]:
        """Yield rows, and the columns that are added to them; another call begins again."""
        rows, self._begun = self._begun or self._predicted(), None
        self.n_rows, self.unknown = 0, Counter[str]()
        self.glance = Glance(self._saved, self._table.names)
        for one in rows:
            self.glance.look(one)
            self.n_rows += one.data.n_rows
            self.unknown.update(one.unknown)
            yield one.data.table if self._typed else one.data.raw, one.predictions[self._saved.method]
