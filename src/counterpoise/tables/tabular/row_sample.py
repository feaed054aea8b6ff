"""A uniform sample of the rows of a table that passes by piece by piece."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_SEED = 0


class RowSample:
    """So many rows, drawn without replacement; always the same ones.

    Every row draws a number, and those with the least numbers are kept.

    Parameters
    ----------
    most : int
        Rows that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rng = np.random.default_rng(_SEED)
        self._limit = 1.0
        self._keys: list[NDArray[np.float64]] = []
        self._pieces: list[Any] = []

    def look(self, rows: Any) -> None:
        """See some rows, a ``pyarrow.Table``; every piece has the same columns of the same types."""
        keys = self._rng.random(rows.num_rows)
        if rows.num_rows > self._most:
            self._limit = min(self._limit, float(np.partition(keys, self._most)[self._most]))
        low = np.flatnonzero(keys < self._limit)
        self._keys.append(keys[low])
        self._pieces.append(rows if len(low) == rows.num_rows else rows.take(low))
        if sum(map(len, self._keys)) > 2 * self._most:
            self._thin()

    def _thin(self) -> None:
        import pyarrow as pa

        keys, rows = np.concatenate(self._keys), pa.concat_tables(self._pieces)
        if len(keys) > self._most:
            self._limit = float(np.partition(keys, self._most)[self._most])
            low = np.flatnonzero(keys < self._limit)
            keys, rows = keys[low], rows.take(low)
        self._keys, self._pieces = [keys], [rows]

    @property
    def rows(self) -> Any:
        """The sample, in the order of the table; None where no row was seen."""
        if not self._pieces:
            return None
        self._thin()
        return self._pieces[0].combine_chunks()
