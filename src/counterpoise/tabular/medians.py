"""Medians of columns that do not fit into memory: exact, by narrowing the range in which they lie."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from counterpoise.tabular.seen import SeenNumbers

Array = NDArray[np.float64]

_BINS = 4096
_SPREADS = 4.0
"""So many standard errors of a sample's median are looked at to either side."""


class Medians:
    """The medians of columns, known after rows were seen once or twice more.

    Parameters
    ----------
    seen : SeenNumbers
        What a first look at all rows found.
    names : sequence of str
        The columns.
    most : float
        Bytes that may be used.
    """

    def __init__(self, seen: SeenNumbers, names: Sequence[str], most: float) -> None:
        self._most = most
        self._columns = [_Median(seen, seen.names.index(name)) for name in names]
        self._plan()

    @property
    def are_known(self) -> bool:
        """Whether nothing is left to be looked at."""
        return all(column.is_known for column in self._columns)

    @property
    def values(self) -> Array:
        """The medians; NaN where there are no numbers."""
        return np.array([column.value for column in self._columns], dtype=np.float64)

    def look(self, values: Array) -> None:
        """See some rows, of shape (n, n_columns); in one round all rows must be seen."""
        for k, column in enumerate(self._columns):
            if not column.is_known:
                column.look(values[:, k])

    def end_round(self) -> None:
        """Draw conclusions once all rows were seen."""
        for column in self._columns:
            if not column.is_known:
                column.settle()
        self._plan()

    def _plan(self) -> None:
        """Keep the values that are left where there is room for them, else count them."""
        room = self._most / 8.0
        for column in self._columns:
            if not column.is_known:
                fits = column.expected <= room
                room -= column.expected if fits else 0.0
                column.begin(keep=fits)


class _Median:
    """The search for one median, between two numbers that are in the column."""

    def __init__(self, seen: SeenNumbers, k: int) -> None:
        n = int(seen.n[k])
        self._ranks = ((n - 1) // 2, n // 2)
        self._range = float(seen.low[k]), float(seen.high[k])
        self.value, self.is_known = math.nan, n == 0
        self.low, self.high = self._range
        self.expected: float = n
        if not self.is_known:
            self._bracket(seen.sample(k), n, seen.is_whole)

    def _bracket(self, sample: Array, n: int, is_whole: bool) -> None:
        """Begin where a sample says that the median must be."""
        m = len(sample)
        if is_whole:
            self._know(sample[self._ranks[0]], sample[self._ranks[1]])
        elif m:
            half = 0.5 * _SPREADS * math.sqrt(m) + 1.0
            first, last = math.floor(0.5 * m - half), math.ceil(0.5 * m + half)
            if first >= 0 and last < m:
                self.low, self.high = float(sample[first]), float(sample[last])
                within = np.searchsorted(sample, self.high, "right") - np.searchsorted(sample, self.low, "left")
                self.expected = 1.2 * n * float(within) / m

    def begin(self, keep: bool) -> None:
        self._keep = keep
        self._below = self._within = 0
        self._values: list[Array] = []
        self._counts = np.zeros(_BINS, dtype=np.int64)
        self._least, self._most = np.full(_BINS, np.inf), np.full(_BINS, -np.inf)

    def look(self, values: Array) -> None:
        self._below += int(np.count_nonzero(values < self.low))
        inside = values[(values >= self.low) & (values <= self.high)]
        self._within += len(inside)
        if self.low == self.high or not len(inside):
            return
        if self._keep:
            self._values.append(inside)
            return
        place = (inside - self.low) * (_BINS / (self.high - self.low))
        bins = np.minimum(place.astype(np.intp), _BINS - 1)
        self._counts += np.bincount(bins, minlength=_BINS)
        np.minimum.at(self._least, bins, inside)
        np.maximum.at(self._most, bins, inside)

    def settle(self) -> None:
        first, last = (rank - self._below for rank in self._ranks)
        if first < 0 or last >= self._within:
            # The sample was misleading, which is as good as impossible.
            self.low, self.high = self._range
            self.expected = float(sum(self._ranks))
        elif self.low == self.high:
            self._know(self.low, self.high)
        elif self._keep:
            inside = np.partition(np.concatenate(self._values), (first, last))
            self._know(inside[first], inside[last])
        else:
            total = np.cumsum(self._counts)
            one, two = (int(np.searchsorted(total, place, "right")) for place in (first, last))
            self.low, self.high = float(self._least[one]), float(self._most[two])
            self.expected = float(self._counts[one])
            if one != two:
                # Neighbours: the last of one part, and the first of the next.
                self._know(self._most[one], self._least[two])
        self._values = []

    def _know(self, first: float, last: float) -> None:
        self.value, self.is_known = 0.5 * (float(first) + float(last)), True
