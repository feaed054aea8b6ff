"""Features that give the target away: each alone predicts it nearly perfectly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

NEARLY = 0.99
"""AUC, or R2, from which on a single feature is suspicious."""
_LEAST_ROWS = 50
"""Rows with a value below which nothing is said."""
_FEW_OF_CLASS, _LEAST_OF_CLASS = 30, 10
"""Rows of a class below which only perfect separation counts, and below which nothing is said."""
_PERFECT = 1.0 - 1e-9
_REPEATS = 5
"""Rows per value from which on numbers are looked at value by value."""
_SHARED = 0.8
"""Share of rows that other rows must share their category with; those that do are looked at."""
_BINS, _OF_BIN = 50, 20
"""The most bins of numbers that differ, and the least rows of one."""


@dataclass(frozen=True)
class Leak:
    """How well one feature predicts the target.

    Attributes
    ----------
    figure : {"AUC", "R2", "rank R2"}
    value : float
    n_rows : int
        On which it was measured: those where the feature has a value.
    """

    figure: str
    value: float
    n_rows: int

    def __str__(self) -> str:
        # A figure that is not 1 is not shown as 1.
        return f"{self.figure} {min(self.value, 0.9999) if self.value < _PERFECT else 1.0:.4g} on {self.n_rows:,} rows"


def find_leak(feature: Array | Codes, target: Array, n_classes: int = 0) -> Leak | None:
    r"""Return how well a feature predicts the target, if that is nearly perfectly.

    What is measured is at least :data:`NEARLY`:

    - of classes, the AUC of each against the others, averaged by their rows: by the order of a number where there are
      two classes, and by the share of the class among the *other* rows of the same category, value or bin;
    - of numbers, :math:`R^2` of a straight line, also without the outermost rows, which alone can make a line; of
      ranks, which any monotone transformation leaves alone; and of the mean of the other rows of the same category or
      value.

    Parameters
    ----------
    feature : ndarray of shape (n_rows,)
        Floats, NaN where there is none; or categories as integers, -1 where there is none.
    target : ndarray of shape (n_rows,)
        Classes as codes.
    n_classes : int
        0 where the target is a number.
    """
    is_number = feature.dtype.kind == "f"
    known = ~np.isnan(feature) if is_number else feature >= 0
    x, y = feature[known], target[known]
    if len(x) < _LEAST_ROWS:
        return None
    if not n_classes:
        return _of_numbers(x, y, is_number)
    auc, least = _mean_auc(x, y.astype(np.intp), n_classes, is_number)
    return Leak("AUC", auc, len(x)) if auc >= (NEARLY if least >= _FEW_OF_CLASS else _PERFECT) else None


def find_gap_leak(known: NDArray[np.bool_], target: Array, n_classes: int = 0) -> Leak | None:
    """Return how well it predicts the target whether a feature is there, if that is nearly perfectly."""
    if min(np.count_nonzero(known), np.count_nonzero(~known)) < _FEW_OF_CLASS:
        return None
    return find_leak(known.astype(np.intp), target, n_classes)


def _mean_auc(x: Array | Codes, y: Codes, n_classes: int, is_number: bool) -> tuple[float, int]:
    """Return the AUC of the classes that have rows enough, averaged by their rows; and the rows of the least of them.

    0 where there are fewer than two such classes.
    """
    counts = np.bincount(y, minlength=n_classes)
    told = np.flatnonzero(counts >= _LEAST_OF_CLASS)
    if len(told) < 2:
        return 0.0, 0
    cells = _values_or_bins(x) if is_number else _codes(x)
    areas = np.array([_auc(_mean_of_others(cells, (y == k).astype(np.float64)), y == k) for k in told])
    auc = float(areas @ counts[told] / counts[told].sum())
    if is_number and np.count_nonzero(counts) == 2:
        by_order = _auc(np.asarray(x, dtype=np.float64), y == told[0])
        auc = max(auc, by_order, 1.0 - by_order)
    return auc, int(counts[told].min())


def _of_numbers(x: Array | Codes, y: Array, is_number: bool) -> Leak | None:
    ranks = _ranks(y)
    found = {"R2": 0.0, "rank R2": 0.0}
    if is_number:
        values = np.asarray(x, dtype=np.float64)
        inner = _inner(values) & _inner(y)
        found = {
            "R2": min(_squared_correlation(values, y), _squared_correlation(values[inner], y[inner])),
            "rank R2": _squared_correlation(_ranks(values), ranks),
        }
    cells = _codes(x)
    shared = np.bincount(cells)[cells] > 1
    if _repeat(cells) if is_number else np.count_nonzero(shared) >= _SHARED * len(x):
        for name, own in (("R2", y), ("rank R2", ranks)):
            off = (own - _mean_of_others(cells, own))[shared]
            spread = float(np.sum((own[shared] - own.mean()) ** 2))
            found[name] = max(found[name], 1.0 - float(off @ off) / spread if spread > 0.0 else 0.0)
    figure = max(found, key=found.__getitem__)
    return Leak(figure, found[figure], len(x)) if found[figure] >= NEARLY else None


def _codes(x: Array | Codes) -> Codes:
    return np.unique(x, return_inverse=True)[1].reshape(-1)


def _repeat(cells: Codes) -> bool:
    """Tell whether most values occur several times."""
    return (int(cells.max()) + 1) * _REPEATS <= len(cells)


def _values_or_bins(x: Array | Codes) -> Codes:
    """Return the value of each row as a code where values repeat, else the bin that it falls into."""
    cells = _codes(x)
    if _repeat(cells):
        return cells
    n_bins = min(_BINS, max(len(x) // _OF_BIN, 1))
    return ((_ranks(x) - 0.5) * n_bins / len(x)).astype(np.intp)


def _mean_of_others(cells: Codes, y: Array) -> Array:
    """Return the mean of the other rows of the same cell; of all rows where there is no other."""
    n = np.bincount(cells)[cells]
    total = np.bincount(cells, y)[cells]
    return np.where(n > 1, (total - y) / np.maximum(n - 1, 1), y.mean())


def _ranks(x: Array | Codes) -> Array:
    """Return ranks from 1, equal values sharing their mean."""
    _, codes, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2.0)[codes.reshape(-1)]


def _auc(score: Array, positive: NDArray[np.bool_]) -> float:
    """Return the chance that a positive row has a higher score than another one."""
    n = int(np.count_nonzero(positive))
    return float((_ranks(score)[positive].sum() - n * (n + 1) / 2.0) / (n * (len(score) - n)))


def _squared_correlation(x: Array, y: Array) -> float:
    # Scaled first: squares of large numbers overflow.
    x, y = (one - one.mean() for one in (x, y))
    x, y = (one / max(float(np.abs(one).max(initial=0.0)), np.finfo(float).tiny) for one in (x, y))
    spread = float(x @ x) * float(y @ y)
    return float(x @ y) ** 2 / spread if spread > 0.0 else 0.0


def _inner(x: Array) -> NDArray[np.bool_]:
    """Return which numbers are not among the outermost percent."""
    low, high = np.quantile(x, [0.005, 0.995])
    return np.asarray((x >= low) & (x <= high))
