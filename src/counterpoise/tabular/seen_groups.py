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
    most : int
        Pairs of a context and a group that are kept. Where there are more, those of the contexts with the most groups
        are forgotten, provided that they have enough: of these it is known only how many they have at least.
    """

    def __init__(self, enough: int, most: int) -> None:
        self._enough, self._most = enough, most
        self._contexts: Codes = np.empty(0, dtype=np.intp)
        self._hashes = np.empty(0, dtype=np.int64)
        self._waiting: list[tuple[Codes, NDArray[np.int64]]] = []
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
        known = ~np.isin(own, list(self._forgotten))
        self._waiting.append((own[known], hashes[groups[known]]))
        if sum(len(own) for own, _ in self._waiting) > max(_FEW, len(self._contexts)):
            self._sort_in()

    def _sort_in(self) -> None:
        contexts = np.concatenate([self._contexts, *(own for own, _ in self._waiting)])
        hashes = np.concatenate([self._hashes, *(own for _, own in self._waiting)])
        order = np.lexsort((hashes, contexts))
        contexts, hashes = contexts[order], hashes[order]
        new = np.append(True, (contexts[1:] != contexts[:-1]) | (hashes[1:] != hashes[:-1]))[: len(contexts)]
        self._contexts, self._hashes, self._waiting = contexts[new], hashes[new], []
        if len(self._contexts) > self._most:
            self._forget()

    def _forget(self) -> None:
        counts = np.bincount(self._contexts)
        left = len(self._contexts)
        for c in np.argsort(-counts, kind="stable").tolist():
            if left <= self._most // 2 or counts[c] < self._enough:
                break
            self._forgotten[c] = int(counts[c])
            left -= int(counts[c])
        kept = ~np.isin(self._contexts, list(self._forgotten))
        self._contexts, self._hashes = self._contexts[kept], self._hashes[kept]

    def counts(self, n_contexts: int) -> NDArray[np.int64]:
        """Return the number of groups of each context, or the least that it may be."""
        self._sort_in()
        counts = np.bincount(self._contexts, minlength=n_contexts).astype(np.int64)
        for c, least in self._forgotten.items():
            counts[c] = least
        return counts

    def together(self, contexts: NDArray[np.bool_]) -> int:
        """Return the number of groups of some contexts together, or the least that it may be."""
        self._sort_in()
        known = len(np.unique(self._hashes[contexts[self._contexts]]))
        return max([known, *(least for c, least in self._forgotten.items() if contexts[c])])

    @property
    def n_forgotten(self) -> int:
        """Contexts whose groups are not all counted."""
        return len(self._forgotten)
