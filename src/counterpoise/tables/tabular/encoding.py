"""The preprocessing of a pipeline, fitted to what is known about columns instead of to their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.tables.tabular.columns import MOST_CATEGORIES
from counterpoise.tables.tabular.seen import Moments

Array = NDArray[np.float64]


def fit_numbers(numbers: Any, seen: Moments, at: Sequence[int], medians: Array) -> None:
    """Give imputer and scaler of some columns what they would have found.

    Parameters
    ----------
    numbers : Pipeline
        Imputer and scaler, fitted to a stand-in.
    at : sequence of int
        The places of these columns among those that were seen.
    medians : ndarray of shape (n_columns,)
        Of these columns; NaN where there is none, or where it is not known yet and fills no gap.
    """
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
    # Where rounding is all that a variance is, the scale is one, as scikit-learn has it.
    eps = np.finfo(np.float64).eps
    constant = scaler.var_ <= n * eps * scaler.var_ + (n * scaler.mean_ * eps) ** 2
    scaler.scale_ = np.where(constant, 1.0, np.sqrt(scaler.var_))
    scaler.n_samples_seen_ = np.int64(n)


def stand_in(has_gaps: Mapping[str, float], categories: Mapping[str, Mapping[str | None, int]]) -> Any:
    """Return a small table to which an encoder is fitted as to the whole one.

    Its numbers have gaps in the same columns, and its categories are as frequent in what decides which are told apart:
    more often than the last of those that are, as often, less often, or once.

    Parameters
    ----------
    has_gaps : mapping from column of numbers to float
        The share of rows without a number, of which it matters whether it is 0 or 1.
    categories : mapping from column to the count of each category
    """
    import pyarrow as pa

    words = {name: np.repeat(np.array(list(own), dtype=object), _ranks(own)) for name, own in categories.items()}
    n_rows = max([3, *map(len, words.values())])
    columns = {}
    for name, share in has_gaps.items():
        values = np.arange(n_rows) % 2.0
        values[: n_rows if share == 1.0 else int(share > 0.0)] = np.nan
        columns[name] = pa.array(values)
    for name, own in categories.items():
        # Of several that are as frequent, the encoder tells the last ones apart.
        often = max(own, key=lambda word: (own[word], _nothing_last(word)))
        filler = [often] * (n_rows - len(words[name]))
        columns[name] = pa.array([*words[name].tolist(), *filler], pa.large_string())
    return pa.table(columns)


def coded(X: Any, categories: Sequence[str]) -> Any:
    """Return a table with numbers in place of words: their places among all words of a column in order.

    What an encoder makes of them is the same, and it is found sooner. Missing words have the last place, as there.

    Parameters
    ----------
    X : pyarrow.Table
    categories : sequence of str
        The columns of words.
    """
    import pyarrow as pa

    columns = {name: X[name] for name in X.column_names}
    for name in categories:
        encoded = columns[name].combine_chunks().dictionary_encode()
        words = encoded.dictionary.to_pylist()
        places = np.full(len(words) + 1, len(words))
        places[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
        columns[name] = pa.array(places[encoded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)])
    return pa.table(columns)


def told_apart(counts: Mapping[str | None, int]) -> set[str | None] | None:
    """Return the categories that the encoder tells apart where they are more than the limit; None where they are not.

    Parameters
    ----------
    counts : mapping from category to rows
    """
    repeated = {word: count for word, count in counts.items() if count > 1}
    # As scikit-learn counts: one place is for those that share it.
    if len(repeated) + 1 <= MOST_CATEGORIES:
        return None
    often = sorted(repeated, key=lambda word: (repeated[word], _nothing_last(word)), reverse=True)
    return set(often[: MOST_CATEGORIES - 1])


def _nothing_last(word: str | None) -> tuple[bool, str]:
    return word is None, word or ""


def _ranks(counts: Mapping[str | None, int]) -> list[int]:
    """Return small counts by which the same categories are told apart."""
    last = sorted(counts.values(), reverse=True)[: MOST_CATEGORIES - 1][-1]
    return [1 if count < 2 else 2 + (count >= last) + (count > last) for count in counts.values()]
