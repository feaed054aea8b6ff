"""The preprocessing of a pipeline, fitted to what is known about columns instead of to their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.tabular.columns import MOST_CATEGORIES
from counterpoise.tabular.seen import SeenNumbers

Array = NDArray[np.float64]

_FEW = 10_000
"""Rows up to which a stand-in has as many rows as the table."""


def fit_numbers(numbers: Any, seen: SeenNumbers, names: Sequence[str], medians: Array) -> None:
    """Give imputer and scaler of some columns what they would have found.

    Parameters
    ----------
    numbers : Pipeline
        Imputer and scaler, fitted to a stand-in.
    medians : ndarray of shape (n_columns,)
        Of these columns; NaN where there is none, or where it is not known yet and fills no gap.
    """
    if not names:
        return
    at = [seen.names.index(name) for name in names]
    n, known, mean, spread = seen.n_rows, seen.n[at], seen.mean[at], seen.spread[at]
    imputer, scaler = numbers.named_steps["impute"], numbers.named_steps["scale"]
    # Where there are no numbers the imputer has a rule of its own.
    imputer.statistics_ = np.where(np.isnan(medians), imputer.statistics_, medians)
    # As many medians as there are gaps join the numbers.
    share = (n - known) / n
    away = np.where(np.isnan(medians), 0.0, medians) - mean
    marked = imputer.indicator_.features_
    scaler.mean_ = np.append(mean + away * share, share[marked])
    scaler.var_ = np.append(spread / n + away**2 * share * (known / n), (share * (1.0 - share))[marked])
    scaler.scale_ = _scales(scaler.var_, scaler.mean_, n)
    scaler.n_samples_seen_ = np.int64(n)


def _scales(variance: Array, mean: Array, n: int) -> Array:
    """Return standard deviations, and one where rounding is all that they are, as scikit-learn does."""
    eps = np.finfo(np.float64).eps
    constant = variance <= n * eps * variance + (n * mean * eps) ** 2
    return np.where(constant, 1.0, np.sqrt(variance))


def stand_in(
    seen: SeenNumbers, numbers: Sequence[str], categories: Mapping[str, Mapping[str | None, int]], n_rows: int
) -> Any:
    """Return a small table whose numbers have gaps in the same columns, and whose categories are as frequent.

    As frequent is what decides which are told apart: more often than the last of those that are, as often, less often,
    or once.
    """
    import pyarrow as pa

    counts = {name: dict(sorted(own.items(), key=_nothing_last)) for name, own in categories.items()}
    if n_rows > _FEW:
        counts = {name: _ranked(own) for name, own in counts.items()}
        n_rows = max([3, *(sum(own.values()) for own in counts.values())])
    columns = {}
    for name in numbers:
        k = seen.names.index(name)
        values = np.arange(n_rows) % 2.0
        values[: n_rows if seen.n[k] == 0 else int(seen.n[k] < seen.n_rows)] = np.nan
        columns[name] = pa.array(values)
    for name, own in counts.items():
        values = np.repeat(np.array(list(own), dtype=object), list(own.values()))
        # Of several that are as frequent, the encoder tells the last ones apart.
        often = max(reversed(own), key=own.__getitem__)
        filler = np.full(n_rows - len(values), often, dtype=object)
        columns[name] = pa.array([*values.tolist(), *filler.tolist()], pa.large_string())
    return pa.table(columns)


def _nothing_last(item: tuple[str | None, int]) -> tuple[bool, str]:
    return item[0] is None, item[0] or ""


def _ranked(counts: Mapping[str | None, int]) -> dict[str | None, int]:
    """Return small counts by which the same categories are told apart."""
    told_apart = sorted(counts.values(), reverse=True)[: MOST_CATEGORIES - 1]
    last = told_apart[-1]

    def rank(count: int) -> int:
        if count < 2:
            return 1
        return 4 if count > last else 3 if count == last else 2

    return {text: rank(count) for text, count in counts.items()}
