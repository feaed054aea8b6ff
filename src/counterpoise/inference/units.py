"""Units of sampling in the order of their contexts, and sums over them, in pieces that stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

_PIECE = 1 << 16
"""Entries of a piece, which is half a megabyte."""

_FIRST = 10
"""Units of each context that are looked at to find what most of them share."""


@dataclass(frozen=True, eq=False)
class Units:
    """Rows, or groups of rows, and what each of them has in several columns, which are differences of losses.

    Attributes
    ----------
    losses : ndarray of shape (n_losses + 1, n_rows)
        With rows in the order of contexts; the last are zeros.
    pairs : ndarray of shape (n_columns, 2)
        Each column: which of the losses, and which are taken off.
    codes : ndarray of shape (n_rows,)
        The context of each row, ascending.
    home, share : ndarray of shape (n_units,)
        The context of each unit, ascending, and its share of the weight there.
    counts : ndarray of shape (n_contexts,)
        Units of each context.
    size, largest : ndarray of shape (n_columns,)
        A power of two in which squares and cubes of a column are floats, and its largest value in that unit.
    mean : ndarray of shape (n_columns, n_contexts)
        In units of ``size``; 0 where it is not known.
    known : ndarray of shape (n_columns, n_contexts)
        Whether a column is finite in all rows of a context.
    group : ndarray of shape (n_units,), optional
        The group of each unit, where some group has rows in several contexts.
    summed : ndarray of shape (n_columns, n_units), optional
        By how much each group moves the mean of its context; of rows this follows from their losses.
    """

    losses: Array
    pairs: Indices
    codes: Indices
    home: Indices
    share: Array
    counts: Indices
    size: Array
    largest: Array
    mean: Array
    known: NDArray[np.bool_]
    group: Indices | None = None
    summed: Array | None = None

    @classmethod
    def of(
        cls,
        losses: Sequence[Array] | Array,
        pairs: Sequence[tuple[int, int | None]],
        codes: Indices,
        n_contexts: int,
        weight: Array,
        groups: Indices | None,
    ) -> Units:
        """Put rows in order, and find the mean of each column in each context."""
        at: Indices | slice = slice(None)
        if (codes[1:] < codes[:-1]).any():
            # Short integers are sorted by counting.
            at = np.argsort(codes.astype(np.uint16) if n_contexts <= 1 << 16 else codes, kind="stable")
        codes, weight = codes[at], weight[at]
        ordered = np.zeros((len(losses) + 1, len(codes)))
        for k, one in enumerate(losses):
            ordered[k] = one[at]
        columns = np.array([(i, len(losses) if j is None else j) for i, j in pairs], dtype=np.intp).reshape(-1, 2)
        # Weights count relative to each other, and as they stand their products may overflow.
        weight = weight / weight.max()
        total = np.bincount(codes, weight, n_contexts).astype(np.float64)
        size, largest, mean, known = _means(ordered, columns, codes, weight, total)
        counts = np.bincount(codes, minlength=n_contexts)
        rows = cls(ordered, columns, codes, codes, weight / total[codes], counts, size, largest, mean, known)
        return rows if groups is None else rows._grouped(groups[at])

    def _grouped(self, groups: Indices) -> Units:
        """Return groups of these rows as units, each one in each of its contexts."""
        label, group = np.unique(groups, return_inverse=True)
        key, first, unit = np.unique(self.codes * len(label) + group, return_index=True, return_inverse=True)
        home, n_units = self.codes[first], len(key)
        moved = (self._moved(0, len(unit), [k])[0] for k in range(len(self.pairs)))
        summed = np.stack([np.bincount(unit, one, n_units).astype(np.float64) for one in moved])
        return Units(
            self.losses,
            self.pairs,
            self.codes,
            home,
            np.bincount(unit, self.share).astype(np.float64),
            np.bincount(home, minlength=len(self.counts)),
            self.size,
            self.largest,
            self.mean,
            self.known,
            None if n_units == len(label) else group[first],
            summed,
        )

    @cached_property
    def first(self) -> tuple[Indices, NDArray[np.bool_]]:
        """The first units of each context, of shape (n_contexts, n_looked_at), and which of these places are taken."""
        place = np.arange(_FIRST)
        starts = np.cumsum(self.counts) - self.counts
        return np.minimum(starts[:, None] + place, len(self.home) - 1), place < self.counts[:, None]

    @cached_property
    def _lift(self) -> Array:
        """What the pull of a unit on its own mean hides of its influence; nothing is known from a single unit."""
        # The share of a unit next to which the others weigh nothing is rounded to 1, or above: it hides nothing.
        left = np.where(self.counts[self.home] == 1, 0.0, np.maximum(1.0 - self.share, 0.0))
        return np.divide(1.0, np.sqrt(left), out=np.zeros(len(left)), where=left > 0.0)

    def values(self, k: int, at: Indices | slice = slice(None)) -> Array:
        """Return a column of some units; of groups their means."""
        home = self.home[at]
        if self.summed is not None:
            return self.summed[k, at] / self.share[at] + self.mean[k, home]
        i, j = self.pairs[k]
        with np.errstate(invalid="ignore"):
            return np.where(self.known[k, home], (self.losses[i, at] - self.losses[j, at]) / self.size[k], 0.0)

    def _moved(self, start: int, end: int, columns: Sequence[int] | slice = slice(None)) -> Array:
        """Return by how much units move the mean of their context, of shape (n_columns, n_units)."""
        if self.summed is not None:
            return self.summed[columns, start:end]
        found = _differences(self.losses, self.pairs[columns], start, end)
        home, known, mean = self.home[start:end], self.known[columns], self.mean[columns]
        if not known.all():
            found = np.where(known[:, home], found, 0.0)
        found /= self.size[columns, None]
        # Most pieces are of one context.
        found -= mean[:, home[:1]] if home[0] == home[-1] else mean[:, home]
        found *= self.share[start:end]
        return found

    def influence(self, start: int, end: int) -> Array:
        """Return the influence of units on the mean of their context (HC2), of shape (n_columns, n_units)."""
        return self._moved(start, end) * self._lift[start:end]

    def moments(self) -> tuple[Array, Array]:
        """Return products of influences, and their cubes, summed over each context.

        Returns
        -------
        ndarray of shape (n_contexts, n_columns, n_columns)
        ndarray of shape (n_contexts, n_columns)
        """
        n_columns, n_contexts = self.mean.shape
        products, cubes = np.zeros((n_contexts, n_columns, n_columns)), np.zeros((n_columns, n_contexts))
        for start, end, here, starts in _pieces(self.home, n_columns):
            influence = self.influence(start, end)
            cubes[:, here] += np.add.reduceat(influence * influence * influence, starts, axis=1)
            for c, low, high in zip(here.tolist(), starts, [*starts[1:], end - start], strict=True):
                own = influence[:, low:high]
                products[c] += own @ own.T
        return products, cubes.T


def _differences(losses: Array, pairs: Indices, start: int, end: int) -> Array:
    with np.errstate(invalid="ignore"):
        return losses[pairs[:, 0], start:end] - losses[pairs[:, 1], start:end]


def _pieces(home: Indices, n_columns: int) -> Iterator[tuple[int, int, Indices, list[int]]]:
    """Yield the ends of each piece, the contexts in it, and where they start there."""
    step = max(1, _PIECE // max(n_columns, 1))
    new = np.flatnonzero(np.diff(home, prepend=-1))
    for start in range(0, len(home), step):
        end = min(start + step, len(home))
        inside = new[np.searchsorted(new, start, "right") : np.searchsorted(new, end)] - start
        starts = [0, *inside.tolist()]
        yield start, end, home[start + np.array(starts)], starts


def _means(
    losses: Array, pairs: Indices, codes: Indices, weight: Array, total: Array
) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """Return the size, the largest value, the means and what is known of every column; see :class:`Units`."""
    n_columns, n_contexts = len(pairs), len(total)
    mean, known = np.zeros((n_columns, n_contexts)), np.ones((n_columns, n_contexts), dtype=bool)
    largest = np.zeros(n_columns)
    for start, end, here, starts in _pieces(codes, n_columns):
        values = _differences(losses, pairs, start, end)
        finite = np.isfinite(values)
        if not finite.all():
            known[:, here] &= np.logical_and.reduceat(finite, starts, axis=1)
            values = np.where(finite, values, 0.0)
        np.maximum(largest, np.maximum(values.max(axis=1), -values.min(axis=1)), out=largest)
        mean[:, here] += np.add.reduceat(values * weight[start:end], starts, axis=1)
    size = 2.0 ** np.maximum(np.frexp(largest)[1], -900)
    with np.errstate(invalid="ignore"):
        mean /= total * size[:, None]
    return size, largest / size, np.where(known, mean, 0.0), known
