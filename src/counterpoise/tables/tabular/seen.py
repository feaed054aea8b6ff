"""What is learnt about columns while a table passes by, piece by piece; a table in memory is one piece.

Where memory is limited, what is kept does not grow with the table.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.tables.reading import cells
from counterpoise.tables.tabular.columns import MOST_CATEGORIES

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

_HASHES = 1 << 16
_LOOKED_AT = 200
"""Cells of a column by which dates are known."""
_TOLD_BY = 1000
"""Rows by which most columns are known not to rename the contexts."""
_DENSE = 1.5
"""How many times as many numbers as rows a running number may span, for the rows that are gone."""
_LONGEST = 1000
"""Bytes of a category at most; what is longer is a document."""
_NAN = "not a number"
"""Stands for NaN, which equals nothing, not even itself."""
_DATE = "a date or time; make features of it first, such as the month"


@dataclass(eq=False)
class WordCounts:
    """How often words, or true and false, occur.

    Parameters
    ----------
    most : float
        How many are counted. Where there are more, those that occurred least are forgotten, and how many different ones
        there are is estimated.
    """

    most: float
    counts: dict[Any, int] = field(default_factory=dict)
    are_all: bool = True
    _hashes: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, dtype=np.uint32))

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
            often = sorted(self.counts, key=self.counts.__getitem__, reverse=True)[: max(int(self.most) // 2, 1)]
            self.counts = {value: self.counts[value] for value in often}

    def _hash(self, values: Iterable[Any]) -> None:
        """Remember the smallest hashes: the more values there are, the smaller these are."""
        codes = [zlib.crc32(str(value).encode("utf-8", "surrogatepass")) for value in values]
        self._hashes = np.union1d(self._hashes, np.array(codes, dtype=np.uint32))[:_HASHES]

    @property
    def distinct(self) -> int:
        """How many different ones there are."""
        if len(self._hashes) < _HASHES:
            return max(len(self.counts), len(self._hashes))
        return int((_HASHES - 1) * 2.0**32 / float(self._hashes[-1]))

    def texts(self, kind: Any, n_missing: int) -> dict[str | None, int]:
        """Return how often each category occurs, as it is written; None is a missing one."""
        import pyarrow as pa

        column = pa.chunked_array([pa.array(list(self.counts), kind)])
        counts: dict[str | None, int] = {}
        for text, count in zip(cells.texts(column, column).to_pylist(), self.counts.values(), strict=True):
            counts[text] = counts.get(text, 0) + count
        if n_missing:
            counts[None] = counts.get(None, 0) + n_missing
        return counts


class SeenColumn:
    """What is known of a column so far; rows without a target do not count unless it is said.

    Parameters
    ----------
    most : float
        Different words that are counted.
    n_codings : int
        How many codings of the contexts there are: of all, and of each part where several columns are crossed.
    coded : bool
        Whether it is a category by choice, whatever its text looks like.

    Attributes
    ----------
    pooled : ndarray of int or None
        Of every context of the first coding, the place among those that are left after rare ones were pooled.
    """

    def __init__(self, most: float, n_codings: int, coded: bool = False) -> None:
        self.type: Any = None
        self.coded = coded
        self.is_empty, self.is_long = True, False
        self.n_rows = self.n_missing = 0
        self.words = WordCounts(most)
        self.pooled: Codes | None = None
        self._few: set[Any] = set()
        self._first: list[str] = []
        # Of each context the only value that goes with it; None as soon as there is a context with two.
        self._pairs: list[dict[int, Any] | None] = [{} for _ in range(n_codings)]
        self.running = Running()

    @property
    def is_number(self) -> bool:
        """Whether it is of a type of numbers."""
        import pyarrow.types as is_

        return any(test(self.type) for test in (is_.is_integer, is_.is_floating, is_.is_decimal))

    @property
    def is_usable(self) -> bool:
        """Whether it is of a type that a feature may have."""
        return self.is_number or self._is_word

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
            self.running.look(column)
        own = column if kept.all() else column.filter(kept)
        self.n_rows += len(own)
        self.n_missing += int(own.null_count)
        if self._is_word:
            known = own.drop_null()
            self.is_long = self.is_long or _is_long(known)
            self.words.look(known)
            self._first += known[: _LOOKED_AT - len(self._first)].to_pylist()
        elif self.is_number:
            if len(self._few) < 2:
                self._few.update(_equal_to_itself(own.drop_null().unique()[:2].to_pylist()))
        else:
            return
        for k, codes in enumerate(contexts):
            for rows in (slice(0, _TOLD_BY), slice(None)):
                pairs = self._pairs[k]
                self._pairs[k] = None if pairs is None else _paired(pairs, own[rows], codes[rows])

    @property
    def distinct(self) -> int:
        """Different values; of numbers the lesser of them and two."""
        return self.words.distinct if self._is_word else min(len(self._few), 2)

    @property
    def renames_context(self) -> bool:
        """Whether the column, where it says anything, and the contexts determine each other."""
        return any(map(_renames, self._pairs)) or (self.pooled is not None and _renames(self._pairs[0], self.pooled))

    @property
    def are_dates(self) -> bool:
        """Whether text is dates as people write them."""
        return all(re.fullmatch(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?", str(one)) for one in self._first)

    @property
    def holds_dates(self) -> bool:
        """Whether it is of a type of dates or times of day on dates, or text that is."""
        import pyarrow.types as is_

        if self.is_empty or self.type is None:
            return False
        text = is_.is_large_string(self.type) and len(self._first) > 0 and self.are_dates
        return bool(is_.is_date(self.type) or is_.is_timestamp(self.type) or text)

    @property
    def kind(self) -> tuple[str, str]:
        """What it is as a feature: ``number`` or ``category``; or nothing, and why it is of no use."""
        import pyarrow.types as is_

        if self.is_empty:
            return "", "empty"
        if is_.is_temporal(self.type):
            return "", _DATE
        if not self.is_usable:
            return "", f"of type {self.type}"
        if self.running.holds:
            return "", "a running number"
        if self.is_long:
            return "", f"text of more than {_LONGEST:,} bytes"
        if self.distinct == 0:
            return "", "empty"
        if self.distinct == 1 and self.n_missing == 0:
            return "", "the same in every row"
        if self.renames_context:
            return "", "another name of the context"
        if not is_.is_large_string(self.type):
            return ("number" if self.is_number else "category"), ""
        if self.are_dates and not self.coded:
            return "", _DATE
        if self.distinct > MOST_CATEGORIES and self.distinct > self.n_rows // 2:
            return "", "different in most rows, like a name"
        return "category", ""


def short(column: Any) -> Any:
    """Return a column with long texts cut where they are long enough to be told from categories."""
    import pyarrow.compute as pc

    return pc.utf8_slice_codeunits(column, 0, _LONGEST + 1) if _is_long(column) else column


def _is_long(column: Any) -> bool:
    import pyarrow.compute as pc
    import pyarrow.types as is_

    return bool(is_.is_large_string(column.type)) and (pc.max(pc.binary_length(column)).as_py() or 0) > _LONGEST


def _equal_to_itself(values: list[Any]) -> list[Any]:
    return [_NAN if value != value else value for value in values]


def _paired(known: dict[int, Any], column: Any, contexts: Codes) -> dict[int, Any] | None:
    """Return the value of each context, with what some rows add; None where a context has two values."""
    import pyarrow as pa

    rows = pa.table({"value": column, "context": contexts})
    pairs = rows.group_by(["value", "context"], use_threads=False).aggregate([]).drop_null()
    if pairs.num_rows > len(pairs["context"].unique()):
        return None
    values = _equal_to_itself(pairs["value"].to_pylist())
    for context, value in zip(pairs["context"].to_pylist(), values, strict=True):
        if known.setdefault(context, value) != value:
            return None
    return known


def _renames(pairs: dict[int, Any] | None, places: Codes | None = None) -> bool:
    """Tell whether each context has a value of its own; ``places`` says which contexts are one after all."""
    values: dict[int, Any] = {}
    for context, value in (pairs or {}).items():
        if values.setdefault(context if places is None else int(places[context]), value) != value:
            return False
    return len(values) > 1 and len(set(values.values())) == len(values)


class Running:
    """Whether whole numbers count the rows, all of them, up or down.

    Attributes
    ----------
    least, largest : float
        Of the numbers; NaN where one is missing.
    """

    def __init__(self) -> None:
        self._n_rows = 0
        self.least, self.largest = np.inf, -np.inf
        self._last: Array = np.empty(0)
        self._least_step, self._largest_step = np.inf, -np.inf

    def look(self, column: Any) -> None:
        values = np.append(self._last, column.to_numpy().astype(np.float64))
        self._n_rows += len(column)
        self._last = values[-1:]
        self.least = float(values.min(initial=self.least))
        self.largest = float(values.max(initial=self.largest))
        # A gap makes the steps around it, and so their range, NaN.
        steps = np.diff(values)
        self._least_step = float(steps.min(initial=self._least_step))
        self._largest_step = float(steps.max(initial=self._largest_step))

    @property
    def holds(self) -> bool:
        """Whether every step is the same."""
        return self._n_rows >= 3 and self._least_step == self._largest_step != 0.0

    @property
    def is_monotone(self) -> bool:
        """Whether every number is above the one before, or every one below it."""
        return self._n_rows >= 3 and (self._least_step > 0.0 or self._largest_step < 0.0)

    @property
    def is_dense(self) -> bool:
        """Whether there are hardly more whole numbers from the least to the largest than there are rows."""
        return self._n_rows >= 3 and self.largest - self.least < _DENSE * self._n_rows


class Moments:
    """Means and spreads of columns of numbers.

    scikit-learn's ``StandardScaler.partial_fit`` would be this, but a piece in which a column is empty makes its
    variance NaN for good.

    Attributes
    ----------
    n, mean, spread : ndarray of shape (n_columns,)
        Numbers that are not missing, their mean, and the sum of their squared distances from it.
    n_rows : int
    """

    def __init__(self, n_columns: int) -> None:
        self.n_rows = 0
        self.n, self.mean, self.spread = np.zeros((3, n_columns))

    def look(self, values: Array) -> None:
        """See some rows, of shape (n, n_columns); NaN is missing."""
        self.n_rows += len(values)
        known = ~np.isnan(values)
        n = known.sum(axis=0)
        mean = np.where(known, values, 0.0).sum(axis=0) / np.maximum(n, 1)
        off = np.where(known, values - mean, 0.0)
        # Twice: what the first mean is off by is known from the residuals.
        shift = off.sum(axis=0) / np.maximum(n, 1)
        spread = np.maximum(np.einsum("ij,ij->j", off, off) - n * shift**2, 0.0)
        # Chan, Golub and LeVeque (1983).
        total = np.maximum(self.n + n, 1)
        away = mean + shift - self.mean
        self.spread = self.spread + spread + away**2 * (self.n * n / total)
        self.mean = self.mean + away * (n / total)
        self.n = self.n + n
