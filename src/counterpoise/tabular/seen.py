"""What is learnt about columns while a table passes by, piece by piece, in memory that does not grow with it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.tabular.columns import LOOKED_AT, are_dates, numeric

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

_HASHES = 1 << 16
_NAN = "not a number"
"""Stands for NaN, which equals nothing, not even itself."""


@dataclass(eq=False)
class WordCounts:
    """How often words, or true and false, occur.

    Parameters
    ----------
    most : int
        How many are counted. Where there are more, those that occurred least are forgotten, and how many different ones
        there are is estimated.
    """

    most: int
    counts: dict[Any, int] = field(default_factory=dict)
    are_all: bool = True
    _hashes: set[int] = field(default_factory=set)
    _level: int = 0

    def look(self, column: Any) -> None:
        """Count the values of a column that holds nothing missing."""
        counted = column.value_counts()
        values, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
        for value, count in zip(values, counts, strict=True):
            self.counts[value] = self.counts.get(value, 0) + count
        if self.are_all and len(self.counts) > self.most:
            self.are_all = False
            self._hash(self.counts)
        elif not self.are_all:
            self._hash(values)
        if len(self.counts) > self.most:
            often = sorted(self.counts, key=self.counts.__getitem__, reverse=True)[: max(self.most // 2, 1)]
            self.counts = {value: self.counts[value] for value in often}

    def _hash(self, values: Any) -> None:
        """Remember one hash in so many, more of them as there are more: their number tells how many there are."""
        for value in values:
            code = zlib.crc32(str(value).encode("utf-8", "surrogatepass"))
            if code & ((1 << self._level) - 1) == 0:
                self._hashes.add(code)
        while len(self._hashes) > _HASHES:
            self._level += 1
            self._hashes = {code for code in self._hashes if code & ((1 << self._level) - 1) == 0}

    @property
    def distinct(self) -> int:
        """How many different ones there are."""
        return len(self.counts) if self.are_all else max(len(self._hashes) << self._level, len(self.counts))

    def texts(self, kind: Any, n_missing: int) -> dict[str | None, int]:
        """Return how often each category occurs, as it is written; None is a missing one."""
        import pyarrow as pa

        from counterpoise.reading import cells

        column = pa.chunked_array([pa.array(list(self.counts), kind)])
        counts: dict[str | None, int] = {}
        for text, count in zip(cells.texts(column, column).to_pylist(), self.counts.values(), strict=True):
            counts[text] = counts.get(text, 0) + count
        if n_missing:
            counts[None] = counts.get(None, 0) + n_missing
        return counts


@dataclass(eq=False)
class _Pairing:
    """Whether values and contexts determine each other.

    Parameters
    ----------
    may_pool : bool
        Whether contexts may be pooled in the end, so that several of them may share a value until then.
    """

    may_pool: bool = False
    is_open: bool = True
    _contexts: dict[Any, int] = field(default_factory=dict)
    _values: dict[int, Any] = field(default_factory=dict)

    def look(self, values: Sequence[Any], codes: Codes, contexts: Codes) -> None:
        """See pairs: a value each, by its place among those given, and a context."""
        if not self.is_open or len(codes) == 0:
            return
        n = int(contexts.max()) + 1
        # Most columns are told by a few rows.
        for some in (slice(0, 1000), slice(None)):
            pairs = np.unique(codes[some] * n + contexts[some])
            own, others = np.divmod(pairs, n)
            if len(pairs) > len(np.unique(others)) or (not self.may_pool and len(pairs) > len(np.unique(own))):
                self.end()
                return
        for value, context in zip((values[k] for k in own.tolist()), others.tolist(), strict=True):
            shared = not self.may_pool and self._contexts.setdefault(value, context) != context
            if shared or self._values.setdefault(context, value) != value:
                self.end()
                return

    def end(self) -> None:
        """Look no further."""
        self.is_open = False
        self._contexts, self._values = {}, {}

    def renames(self, places: Codes | None = None) -> bool:
        """Tell whether they do; ``places`` says which contexts are one after all."""
        values: dict[int, Any] = {}
        for context, value in self._values.items():
            if values.setdefault(context if places is None else int(places[context]), value) != value:
                return False
        return len(values) > 1 and len(set(values.values())) == len(values)


class SeenColumn:
    """What is known of a column so far; see :class:`counterpoise.tabular.columns.Facts`.

    Parameters
    ----------
    most : int
        Different words that are counted.
    n_contexts : int
        How many codings of the contexts there are.
    may_pool : bool
        Whether contexts of the first coding may be pooled in the end; :attr:`pooled` then says how.

    Attributes
    ----------
    pooled : ndarray of int or None
        Of every context, the place among those that are left.
    """

    def __init__(self, most: int, n_contexts: int, may_pool: bool = False) -> None:
        self.type: Any = None
        self.is_empty = True
        self.n_rows = self.n_missing = 0
        self.words = WordCounts(most)
        self._few: set[Any] = set()
        self._pairings = [_Pairing(may_pool and k == 0) for k in range(n_contexts)]
        self.pooled: Codes | None = None
        self._first: list[str] = []
        self._running = _Running()

    @property
    def is_number(self) -> bool:
        """Whether it is of a type of numbers."""
        return any(test(self.type) for test in numeric())

    @property
    def _is_word(self) -> bool:
        import pyarrow.types as is_

        return bool(is_.is_large_string(self.type) or is_.is_boolean(self.type))

    def look(self, column: Any, kept: NDArray[np.bool_], contexts: Sequence[Codes]) -> None:
        """See some rows.

        Parameters
        ----------
        column : pyarrow.ChunkedArray
            Of a plain type, all rows.
        kept : ndarray of bool
            Rows that have a target.
        contexts : sequence of ndarray
            The contexts of these, and their parts, as codes.
        """
        import pyarrow.types as is_

        self.type = column.type
        self.is_empty = self.is_empty and column.null_count == len(column)
        if is_.is_integer(column.type):
            self._running.look(column)
        own = column if kept.all() else column.filter(kept)
        self.n_rows += len(own)
        self.n_missing += int(own.null_count)
        if not (self.is_number or self._is_word):
            return
        known = own.drop_null()
        if self._is_word:
            self.words.look(known)
            self._first += known[: LOOKED_AT - len(self._first)].to_pylist()
        elif len(self._few) < 2:
            self._few.update(_plain(known.unique()[:2].to_pylist()))
        if any(pairing.is_open for pairing in self._pairings) and len(known):
            self._pair(known, own, contexts)

    def _pair(self, known: Any, own: Any, contexts: Sequence[Codes]) -> None:
        encoded = known.combine_chunks().dictionary_encode()
        values, codes = encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False).astype(np.intp)
        valid = np.asarray(own.is_valid().to_numpy())
        words: list[Any] | None = None
        for pairing, context in zip(self._pairings, contexts, strict=True):
            if pairing.is_open:
                # As many values as contexts, or they cannot determine each other; contexts to be pooled may share one.
                n_contexts = len(np.unique(context[valid]))
                if len(values) > n_contexts or (not pairing.may_pool and len(values) < n_contexts):
                    pairing.end()
                    continue
                words = _plain(values.to_pylist()) if words is None else words
                pairing.look(words, codes, context[valid])

    @property
    def is_running(self) -> bool:
        """Whether whole numbers count the rows."""
        return self._running.holds

    @property
    def distinct(self) -> int:
        """Different values; of numbers the lesser of them and two."""
        return self.words.distinct if self._is_word else min(len(self._few), 2)

    @property
    def renames_context(self) -> bool:
        """Whether the column and the contexts determine each other."""
        return any(pairing.renames() for pairing in self._pairings) or (
            self.pooled is not None and self._pairings[0].renames(self.pooled)
        )

    @property
    def are_dates(self) -> bool:
        """Whether text is dates as people write them."""
        return are_dates(self._first)


def _plain(values: list[Any]) -> list[Any]:
    return [_NAN if value != value else value for value in values]


class _Running:
    """Whether whole numbers count the rows, up or down."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._step: float | None = None
        self._last: float | None = None
        self._broken = False

    def look(self, column: Any) -> None:
        if self._broken or column.null_count:
            self._broken = True
            return
        values = column.to_numpy().astype(np.float64)
        self.n_rows += len(values)
        values = values if self._last is None else np.append(self._last, values)
        steps = np.diff(values)
        if len(steps) and self._step is None:
            self._step = float(steps[0])
        self._broken = bool(len(steps)) and (self._step == 0.0 or not bool(np.all(steps == self._step)))
        self._last = float(values[-1]) if len(values) else self._last

    @property
    def holds(self) -> bool:
        return not self._broken and self.n_rows >= 3


class SeenNumbers:
    """Means, spreads and ranges of columns of numbers, and a sample of their rows.

    Parameters
    ----------
    names : sequence of str
    n_sampled : int
        Rows of the sample.
    seed : int
    """

    def __init__(self, names: Sequence[str], n_sampled: int, seed: int = 0) -> None:
        d = len(names)
        self.names = tuple(names)
        self.n_rows = 0
        self.n = np.zeros(d)
        self.mean, self.spread = np.zeros(d), np.zeros(d)
        self.low, self.high = np.full(d, np.inf), np.full(d, -np.inf)
        self._n_sampled = n_sampled
        self._rng = np.random.default_rng(seed)
        self._priority = np.empty(0)
        self._sample: Array = np.empty((0, d))

    def look(self, values: Array) -> None:
        """See some rows, of shape (n, n_columns); NaN is missing."""
        if len(values) == 0:
            return
        self.n_rows += len(values)
        known = ~np.isnan(values)
        n = known.sum(axis=0)
        filled = np.where(known, values, 0.0)
        mean = filled.sum(axis=0) / np.maximum(n, 1)
        np.subtract(values, mean, out=filled)
        filled[~known] = 0.0
        # Twice: what the first mean is off by is known from the residuals.
        shift = filled.sum(axis=0) / np.maximum(n, 1)
        spread = np.einsum("ij,ij->j", filled, filled) - n * shift**2
        self._merge(n, mean + shift, np.maximum(spread, 0.0))
        np.copyto(filled, values)
        filled[~known] = np.inf
        np.minimum(self.low, filled.min(axis=0), out=self.low)
        filled[~known] = -np.inf
        np.maximum(self.high, filled.max(axis=0), out=self.high)
        self._draw(values)

    def _merge(self, n: Array, mean: Array, spread: Array) -> None:
        """Add what is known of further rows (Chan, Golub and LeVeque, 1983)."""
        total = np.maximum(self.n + n, 1)
        away = mean - self.mean
        self.spread = self.spread + spread + away**2 * (self.n * n / total)
        self.mean = self.mean + away * (n / total)
        self.n = self.n + n

    def _draw(self, values: Array) -> None:
        """Keep the rows with the smallest of random numbers, which is a uniform sample at any time."""
        priority = self._rng.random(len(values))
        if len(self._priority) >= self._n_sampled:
            chosen = priority < self._priority.max()
            priority, values = priority[chosen], values[chosen]
        if not len(priority):
            return
        self._priority = np.append(self._priority, priority)
        self._sample = np.concatenate([self._sample, values])
        if len(self._priority) > self._n_sampled:
            order = np.argpartition(self._priority, self._n_sampled - 1)[: self._n_sampled]
            self._priority, self._sample = self._priority[order], self._sample[order]

    @property
    def is_whole(self) -> bool:
        """Whether the sample is all rows."""
        return len(self._sample) == self.n_rows

    def sample(self, k: int) -> Array:
        """Return sampled values of a column, sorted, without those that are missing."""
        values = self._sample[:, k]
        return np.sort(values[~np.isnan(values)])

    def forget_sample(self) -> None:
        """Free the memory of the sample."""
        self._sample = np.empty((0, len(self.names)))
