"""How many draws of a context the rows of a table are worth, found while it passes by piece by piece."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Agreement, Contexts, encode, objects
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import Draws, count_draws, draws_in_groups
from counterpoise.times import as_times

Codes = NDArray[np.intp]

_WAITING = 1 << 16
"""Pairs that may wait before they are counted together."""
_BLOCKS = 1 << 12
"""Blocks of neighbouring rows that are counted apart, at least half as many where there are enough rows."""
_SURPRISE = 6.0
"""Standard deviations by which runs of equal contexts must be fewer than chance would have it."""


class SeenGroupCounts:
    """Rows of every group in every context so far.

    Parameters
    ----------
    most : float
        Groups in contexts that are counted; where there are more, nothing is known in the end.
    """

    def __init__(self, most: float = math.inf) -> None:
        self._most = most
        self._labels = Agreement()
        self._first: dict[int, Any] = {}
        # Groups, contexts and counts; and those that wait to be counted together.
        self._counted = np.empty((3, 0), dtype=np.int64)
        self._waiting: list[NDArray[np.int64]] = []
        self.are_all = True

    def look(
        self,
        contexts: Codes,
        values: Sequence[Any],
        groups: Codes,
        times: tuple[Sequence[Any], Codes] | None = None,
    ) -> None:
        """See some rows.

        Parameters
        ----------
        contexts, groups : ndarray of shape (n_rows,)
            The code of each row's context, and the place of its group among ``values``.
        values : sequence
            Labels of groups.
        times : values and codes, optional
            When each row was; a group is taken to be when the first of its rows in the table was.
        """
        if not self.are_all or not len(groups):
            return
        present, first, places = np.unique(groups, return_index=True, return_inverse=True)
        own = self._labels.codes(objects([values[k] for k in present.tolist()]))
        codes = own[places]
        if times is not None:
            for code, row in zip(own.tolist(), first.tolist(), strict=True):
                self._first.setdefault(code, times[0][times[1][row]])
        self._waiting.append(np.stack([codes, contexts, np.ones(len(codes), dtype=np.int64)]))
        if sum(pairs.shape[1] for pairs in self._waiting) > max(_WAITING, self._counted.shape[1]):
            self._count()

    def _count(self) -> None:
        groups, contexts, counts = np.concatenate([self._counted, *self._waiting], axis=1)
        n_contexts = int(contexts.max(initial=0)) + 1
        keys, places = np.unique(groups * n_contexts + contexts, return_inverse=True)
        self._waiting = []
        self._counted = np.stack([*np.divmod(keys, n_contexts), np.bincount(places, counts).astype(np.int64)])
        if self._counted.shape[1] > self._most:
            self.are_all, self._counted, self._first = False, self._counted[:, :0], {}

    def draws(self, places: Codes, ordered: bool | None = None) -> Draws | None:
        """Return what the rows are worth; None where the groups were too many to count.

        Parameters
        ----------
        places : ndarray of int
            The context that every code stands for.
        ordered : bool or None
            Whether groups are in the order of time; None where their labels are to say.
        """
        self._count()
        if not self.are_all or not self._counted.size:
            return None
        groups, contexts, counts = self._counted
        if not self._first:
            found = encode(natural(self._labels.labels))
            own = Contexts(found.labels, found.codes[groups])
            return draws_in_groups(places[contexts], own, counts, ordered=ordered)
        moments = natural(self.moments)
        rank = np.empty(len(moments), dtype=np.intp)
        rank[np.argsort(moments, kind="stable")] = np.arange(len(moments))
        return count_draws(rank[groups], places[contexts], counts, ordered=True)

    @property
    def moments(self) -> NDArray[Any]:
        """When groups were: by their times where they have any, else by their labels."""
        labels = self._labels.labels
        return objects([self._first[code] for code in range(len(labels))]) if self._first else labels


def natural(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels as times, or as numbers, where all of them are written so; a text file holds nothing but text."""
    times = as_times(labels)
    if times is not None:
        return times
    try:
        numbers = np.array([float(label) for label in labels.tolist()])
    except (TypeError, ValueError):
        return labels
    return numbers if np.isfinite(numbers).all() else labels


def are_moments(labels: NDArray[Any]) -> bool:
    """Whether labels are times or numbers."""
    return natural(labels).dtype.kind in "Mfiu"


def check_moments(labels: NDArray[Any], said: str) -> None:
    """Refuse labels that are neither times nor numbers, and name one of them."""
    if are_moments(labels):
        return
    strange = next((one for one in labels.tolist() if not re.match(r"\s*[-+]?\d", str(one))), None)
    holds = "mixes ways of writing a time" if strange is None else f"holds {strange!r:.60}"
    raise InvalidInputError(
        f"{said} {holds}. It must hold dates or numbers throughout, written as 2024-03-31, or with days above 12 that "
        "tell 31/3/2024 from 3/31/2024."
    )


class RowOrder:
    """Whether neighbouring rows share their context more often than chance would have it, and by how much.

    Rows are counted in blocks of neighbours, which are joined two by two when they become too many.
    """

    def __init__(self) -> None:
        self._n_rows = self._n_runs = self._n_descents = 0
        self._last = -1
        self._size = 1
        self._counted = np.empty((3, 0), dtype=np.int64)

    def look(self, contexts: Codes) -> None:
        """See the contexts of the next rows, as codes."""
        if not len(contexts):
            return
        before = np.append(self._last, contexts[:-1])
        self._n_runs += int(np.count_nonzero(before != contexts))
        self._n_descents += int(np.count_nonzero(before > contexts))
        self._last = int(contexts[-1])
        n_rows = self._n_rows + len(contexts)
        size = self._size
        while n_rows > _BLOCKS * size:
            size *= 2
        self._counted[0] //= size // self._size
        own = (np.arange(self._n_rows, n_rows) // size, contexts, np.ones(len(contexts), dtype=np.int64))
        blocks, codes, counts = np.concatenate([self._counted, np.stack(own)], axis=1)
        n_contexts = int(codes.max()) + 1
        keys, places = np.unique(blocks * n_contexts + codes, return_inverse=True)
        self._counted = np.stack([*np.divmod(keys, n_contexts), np.bincount(places, counts).astype(np.int64)])
        self._n_rows, self._size = n_rows, size

    def draws(self, places: Codes) -> tuple[float, Draws] | None:
        """Return how many times as long as by chance runs of equal contexts are, and what the rows are then worth.

        None where the runs are no longer than that, and where the table is sorted by context, all of it or part by
        part: that says nothing of how rows came about.
        """
        blocks, contexts, counts = self._counted
        rows = np.bincount(contexts, counts)
        shares = rows[rows > 0] / self._n_rows
        # The number of runs in a random order, and its variance (Wald and Wolfowitz; Mood, 1940).
        square, cube = float((shares**2).sum()), float((shares**3).sum())
        expected = self._n_rows * (1.0 - square)
        deviation = math.sqrt(max(self._n_rows * (square + square**2 - 2.0 * cube), 0.0))
        turns = self._n_runs - 1
        if expected - turns <= _SURPRISE * deviation or self._n_runs <= 2 * len(shares):
            return None
        # In a random order half of the turns lead to labels that appeared later, with a variance of turns / 12.
        if len(shares) > 2 and abs(turns - 2 * self._n_descents) > 3.0 * math.sqrt(turns / 3.0):
            return None
        return expected / turns, count_draws(blocks, places[contexts], counts, ordered=True)
