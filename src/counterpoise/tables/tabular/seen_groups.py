"""How many groups of rows each context has, in a table that passes by piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.intp]

_FEW = 1 << 16
"""Pairs that may wait before they are sorted in."""


class SeenGroups:
    """The groups of each context so far, a hash of 64 bits for each.

    Parameters
    ----------
    enough : int
        Groups of which a context needs no more.
    most : float
        Pairs of a context and a group that are kept. Where there are more, those of the contexts with the most groups
        are forgotten, provided that they have enough: of these it is known only how many they have at least.
    """

    def __init__(self, enough: int, most: float) -> None:
        self._enough, self._most = enough, most
        # Rows of contexts and of hashes, sorted and without repetition; and those that wait to be sorted in.
        self._pairs = np.empty((2, 0), dtype=np.int64)
        self._waiting: list[NDArray[np.int64]] = []
        self._forgotten: dict[int, int] = {}

    def look(self, contexts: Codes, values: Sequence[Any], groups: Codes) -> None:
        """See some rows.

        Parameters
        ----------
        contexts, groups : ndarray of shape (n_rows,)
            The code of each row's context, and the place of its group among ``values``.
        values : sequence
            Labels of groups.
        """
        # Of the text: -1 and -2 have the same hash.
        hashes = np.fromiter((hash(str(value)) for value in values), dtype=np.int64, count=len(values))
        own, groups = np.divmod(np.unique(contexts * len(values) + groups), max(len(values), 1))
        self._waiting.append(self._remembered(np.stack([own, hashes[groups]])))
        if sum(pairs.shape[1] for pairs in self._waiting) > max(_FEW, self._pairs.shape[1]):
            self._sort_in()

    def _remembered(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        return pairs[:, ~np.isin(pairs[0], list(self._forgotten))]

    def _sort_in(self) -> None:
        pairs = np.concatenate([self._pairs, *self._waiting], axis=1)
        pairs = pairs[:, np.lexsort(pairs[::-1])]
        new = np.append(True, (pairs[:, 1:] != pairs[:, :-1]).any(axis=0))[: pairs.shape[1]]
        self._pairs, self._waiting = pairs[:, new], []
        if self._pairs.shape[1] > self._most:
            self._forget()

    def _forget(self) -> None:
        counts = np.bincount(self._pairs[0])
        left = self._pairs.shape[1]
        for c in np.argsort(-counts, kind="stable").tolist():
            if left <= self._most // 2 or counts[c] < self._enough:
                break
            self._forgotten[c] = int(counts[c])
            left -= int(counts[c])
        self._pairs = self._remembered(self._pairs)

    def counts(self, n_contexts: int) -> NDArray[np.int64]:
        """Return the number of groups of each context, or the least that it may be."""
        self._sort_in()
        counts = np.bincount(self._pairs[0], minlength=n_contexts).astype(np.int64)
        for c, least in self._forgotten.items():
            counts[c] = least
        return counts

    def together(self, contexts: NDArray[np.bool_]) -> int:
        """Return the number of groups of some contexts together, or the least that it may be."""
        self._sort_in()
        known = len(np.unique(self._pairs[1, contexts[self._pairs[0]]]))
        return max([known, *(least for c, least in self._forgotten.items() if contexts[c])])

    @property
    def n_forgotten(self) -> int:
        """Contexts whose groups are not all counted."""
        return len(self._forgotten)
