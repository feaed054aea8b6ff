"""The preprocessing of a linear model, as it is kept: it scores rows with numpy alone, each row by itself.

What a row is given does not depend on the rows beside it, down to the last bit. A product of matrices would not have
that: the order of its sums follows from their sizes, and so from how a file was cut into pieces.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.tables.tabular.card import CardError, Part

if TYPE_CHECKING:
    from counterpoise.tables.tabular.columns import Columns

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

UNKNOWN = -1
"""The code of a category that fit has not seen."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class Scale:
    """How a feature is centred and scaled.

    Attributes
    ----------
    mean, scale : float
    """

    mean: float
    scale: float

    def of(self, values: Array) -> Array:
        """Return values in this scale."""
        return np.asarray((values - self.mean) / self.scale)

    @classmethod
    def read(cls, part: Part) -> Scale:
        """Read it from a card."""
        mean, scale = part["mean"].finite, part["scale"].finite
        if scale <= 0.0:
            part["scale"].refuse("positive")
        return cls(mean, scale)


@dataclass(frozen=True)
class Number:
    """A column of numbers.

    Attributes
    ----------
    name : str
    median : float
        Takes the place of missing numbers.
    scale : Scale
    missing : Scale or None
        Of the mark of missing numbers, where fit saw any.
    """

    name: str
    median: float
    scale: Scale
    missing: Scale | None


@dataclass(frozen=True)
class Category:
    """A column of categories.

    Attributes
    ----------
    name : str
    words : tuple of str or None
        Categories that are told apart, in the order of their features; None is a missing one.
    rare : tuple of str or None
        Categories that share one feature, which comes after the others.
    """

    name: str
    words: tuple[str | None, ...]
    rare: tuple[str | None, ...]

    @property
    def n_features(self) -> int:
        """One for each word, and one for the rare ones together."""
        return len(self.words) + bool(self.rare)

    @property
    def features(self) -> tuple[str, ...]:
        """A name for every feature."""
        words = [f"{self.name} (missing)" if word is None else f"{self.name}={word}" for word in self.words]
        return (*words, f"{self.name} (rare)") if self.rare else tuple(words)

    @cached_property
    def _places(self) -> dict[str | None, int]:
        return {word: k for k, word in enumerate(self.words)} | dict.fromkeys(self.rare, len(self.words))

    def codes(self, column: Any) -> Codes:
        """Return for each text of a column the place of its feature; ``UNKNOWN`` where fit has not seen it."""
        encoded = column.combine_chunks().dictionary_encode()
        words = [*encoded.dictionary.to_pylist(), None]
        places = np.fromiter(map(self._place, words), dtype=np.intp, count=len(words))
        return places[encoded.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)]

    def _place(self, word: str | None) -> int:
        found = self._places.get(word)
        if found is None and word is not None:
            found = self._places.get(_as_typed(word))
        return UNKNOWN if found is None else found


def _as_typed(word: str) -> str:
    """Return a word as it would be written in a column of numbers, or of true and false; itself where it is neither."""
    if word.lower() in ("true", "false"):
        return word.lower().capitalize()
    if not _NUMBER.fullmatch(word) or not math.isfinite(float(word)):
        return word
    number = float(word)
    return str(int(number)) if number.is_integer() else repr(number)


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Rows as the preprocessing reads them.

    Attributes
    ----------
    n_rows : int
    numbers : tuple of ndarray of shape (n_rows,)
        NaN where a number is missing.
    codes : tuple of ndarray of int of shape (n_rows,)
        Places of categories; see :meth:`Category.codes`.
    """

    n_rows: int
    numbers: tuple[Array, ...]
    codes: tuple[Codes, ...]


@dataclass(frozen=True)
class Preprocessing:
    """All columns; features are the numbers, the marks of missing ones, and the categories.

    Attributes
    ----------
    numbers : tuple of Number
    categories : tuple of Category
    """

    numbers: tuple[Number, ...]
    categories: tuple[Category, ...]

    @classmethod
    def of(cls, encode: Any, columns: Columns) -> Preprocessing:
        """Return what a fitted ``ColumnTransformer`` of :func:`counterpoise.tables.tabular.task.pipeline` does."""
        numbers: list[Number] = []
        if columns.numbers:
            imputer, scaler = (encode.named_transformers_["numbers"].named_steps[name] for name in ("impute", "scale"))
            scales = [Scale(*one) for one in zip(scaler.mean_.tolist(), scaler.scale_.tolist(), strict=True)]
            medians, marked = imputer.statistics_.tolist(), imputer.indicator_.features_.tolist()
            marks = dict(zip(marked, scales[len(medians) :], strict=True))
            for k, (name, median) in enumerate(zip(columns.numbers, medians, strict=True)):
                numbers.append(Number(name, median, scales[k], marks.get(k)))
        categories: list[Category] = []
        if columns.categories:
            one_hot = encode.named_transformers_["categories"]
            shared = getattr(one_hot, "infrequent_categories_", None) or [None] * len(columns.categories)
            for name, known, rare in zip(columns.categories, one_hot.categories_, shared, strict=True):
                seldom = () if rare is None else tuple(map(_word, rare.tolist()))
                words = tuple(word for word in map(_word, known.tolist()) if word not in seldom)
                categories.append(Category(name, words, seldom))
        return cls(tuple(numbers), tuple(categories))

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns of numbers, and those of categories."""
        return tuple(one.name for one in self.numbers), tuple(one.name for one in self.categories)

    @property
    def features(self) -> tuple[str, ...]:
        """A name for every coefficient."""
        marks = [f"{one.name} (missing)" for one in self.numbers if one.missing is not None]
        return (
            *(one.name for one in self.numbers),
            *marks,
            *(name for one in self.categories for name in one.features),
        )

    @property
    def n_features(self) -> int:
        """Features of a row."""
        marks = sum(one.missing is not None for one in self.numbers)
        return len(self.numbers) + marks + sum(one.n_features for one in self.categories)

    def scores(self, rows: EncodedRows, coef: Array, intercept: Array) -> Array:
        """Return the linear scores of rows.

        Parameters
        ----------
        coef : ndarray of shape (n_scores, n_features)
        intercept : ndarray of shape (n_scores,)

        Returns
        -------
        ndarray of shape (n_scores, n_rows)
        """
        total = np.zeros((len(intercept), rows.n_rows))
        at = len(self.numbers)
        with np.errstate(over="ignore", invalid="ignore"):
            for k, (one, values) in enumerate(zip(self.numbers, rows.numbers, strict=True)):
                gaps = np.isnan(values)
                total += coef[:, k, np.newaxis] * one.scale.of(np.where(gaps, one.median, values))
                if one.missing is not None:
                    total += coef[:, at, np.newaxis] * one.missing.of(gaps.astype(np.float64))
                    at += 1
            for own, codes in zip(self.categories, rows.codes, strict=True):
                # The last entry, which -1 stands for, is what an unknown category is given: that of the rare ones.
                unknown = coef[:, at + own.n_features - 1] if own.rare else np.zeros(len(coef))
                known = coef[:, at : at + own.n_features]
                total += np.column_stack([known, unknown])[:, codes]
                at += own.n_features
            return np.asarray(total + intercept[:, np.newaxis])

    def as_json(self) -> dict[str, Any]:
        """Return it as a card holds it."""

        def scale(one: Scale | None) -> dict[str, float] | None:
            return None if one is None else {"mean": one.mean, "scale": one.scale}

        return {
            "numbers": [
                {"name": one.name, "median": one.median, **(scale(one.scale) or {}), "missing": scale(one.missing)}
                for one in self.numbers
            ],
            "categories": [
                {"name": one.name, "words": list(one.words), "rare": list(one.rare)} for one in self.categories
            ],
        }

    @classmethod
    def read(cls, part: Part, columns: Columns) -> Preprocessing:
        """Read it from a card."""
        numbers = tuple(
            Number(
                one["name"].text,
                one["median"].finite,
                Scale.read(one),
                None if one["missing"].is_null else Scale.read(one["missing"]),
            )
            for one in part["numbers"].list
        )
        categories = tuple(
            Category(one["name"].text, one["words"].words, one["rare"].words) for one in part["categories"].list
        )
        for own in categories:
            if set(own.words) & set(own.rare):
                raise CardError(f"categories of {own.name!r} are both rare and not")
        found = cls(numbers, categories)
        if found.names != (columns.numbers, columns.categories):
            raise CardError(f"{part.where} is of other columns than those of the model")
        return found


def _word(word: Any) -> str | None:
    # Missing words are None, or NaN where scikit-learn made them so.
    return None if word is None or word != word else str(word)
