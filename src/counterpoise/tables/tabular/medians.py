"""Medians of columns that do not fit into memory: exact, by narrowing the range in which they lie.

No library does this: scikit-learn, pyarrow and dask have exact medians of what is in memory, and sketches of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from copy import copy

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_SPREADS = 4.0
"""So many standard errors of a sample's median are looked at to either side."""


class Medians:
    """The medians of columns, by the selection of Floyd and Rivest (1975), for which all rows are seen a few times.

    Parameters
    ----------
    names : iterable of str
    room : float
        Bytes that may be used in the first round.
    """

    def __init__(self, names: Iterable[str], room: float, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self._columns = {name: _Median(rng) for name in names}
        self._begin(room)

    def of(self, names: Iterable[str]) -> Medians:
        """Return those of some columns; the search for them goes on by itself."""
        found = copy(self)
        found._columns = {name: copy(self._columns[name]) for name in names}
        return found

    @property
    def are_known(self) -> bool:
        """Whether nothing is left to be looked at."""
        return all(column.is_known for column in self._columns.values())

    @property
    def values(self) -> Array:
        """The medians; NaN where there are no numbers, or where they are not known yet."""
        return np.array([column.value for column in self._columns.values()], dtype=np.float64)

    def look(self, values: Array) -> None:
        """See some rows, of shape (n, n_columns); in one round all rows must be seen."""
        for k, column in enumerate(self._columns.values()):
            if not column.is_known:
                column.look(values[:, k])

    def end_round(self, room: float) -> None:
        """Draw conclusions once all rows were seen; ``room`` are the bytes that the next round may use."""
        for column in self._columns.values():
            if not column.is_known:
                column.settle()
        self._begin(room)

    def _begin(self, room: float) -> None:
        unknown = [column for column in self._columns.values() if not column.is_known]
        for column in unknown:
            column.begin(max(room / 8 / len(unknown), 1.0))


class _Median:
    """The search for one median: of the two numbers in the middle, it is the lower one that is looked for."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._n: int | None = None
        self.value, self.is_known = math.nan, False
        # It is certainly in the range that is known, and most likely in the one that is looked at.
        self._known = self._range = -math.inf, math.inf

    def begin(self, room: float) -> None:
        self._room, self._rate = room, 1.0
        self._below = self._within = self._n_drawn = 0
        self._above = math.inf
        self._drawn: list[Array] = []

    def look(self, values: Array) -> None:
        low, high = self._range
        self._below += int(np.count_nonzero(values < low))
        self._above = float(values[values > high].min(initial=self._above))
        inside = values[(values >= low) & (values <= high)]
        self._within += len(inside)
        if low < high:
            self._draw(inside)

    def _draw(self, values: Array) -> None:
        """Keep all values, or as soon as there are too many each with a probability that is halved."""
        self._drawn.append(values if self._rate == 1.0 else self._thinned(values, self._rate))
        self._n_drawn += len(self._drawn[-1])
        while self._n_drawn > self._room:
            self._rate /= 2.0
            self._drawn = [self._thinned(np.concatenate(self._drawn), 0.5)]
            self._n_drawn = len(self._drawn[0])

    def _thinned(self, values: Array, rate: float) -> Array:
        return values[self._rng.random(len(values)) < rate]

    def settle(self) -> None:
        if self._n is None:
            self._n = self._within
            self.is_known = self._n == 0
        first, last = (self._n - 1) // 2 - self._below, self._n // 2 - self._below
        (lowest, highest), (low, high) = self._known, self._range
        drawn = np.sort(np.concatenate([np.empty(0), *self._drawn]))
        if self.is_known:
            pass
        elif first < 0:
            self._known = self._range = lowest, math.nextafter(low, -math.inf)
        elif first >= self._within:
            self._known = self._range = math.nextafter(high, math.inf), highest
        elif low == high:
            self._know(low, low if last < self._within else self._above)
        elif len(drawn) == self._within:
            self._know(*np.append(drawn, self._above)[[first, last]])
        else:
            self._known = self._range
            self._narrow(drawn, first / self._within)
        self._drawn = []

    def _narrow(self, drawn: Array, share: float) -> None:
        """Look next where a sample says that the median must be; ``share`` is that of values below it."""
        m = len(drawn)
        if m == 0:
            return
        half = 0.5 * _SPREADS * math.sqrt(m) + 1.0
        places = np.clip([share * m - half, share * m + half], 0, m - 1).astype(np.intp)
        low, high = drawn[places].tolist()
        if (low, high) == self._known:
            # So small a sample tells nothing, but a number in the middle is in the way of half of the others.
            low = high = float(drawn[int(share * m)])
        self._range = low, high

    def _know(self, first: float, last: float) -> None:
        self.value, self.is_known = 0.5 * (float(first) + float(last)), True
