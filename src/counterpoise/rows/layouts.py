"""Rows of several groups side by side, each group with parameters of its own: three layouts, the same five maps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from counterpoise.rows.products import FEW_COLUMNS, LARGEST_BLOCK, short_grams, some_rows, weighted_gram
from counterpoise.threads import WORTHWHILE, parts, spread

Array = NDArray[np.float64]
Codes = NDArray[np.intp]
Mask = NDArray[np.bool_]

_MANY_ROWS = 64
"""Rows per group from which a BLAS call each beats one product for all."""

_LONG = 512
"""Rows of a padded group from which its Gram product is taken alone, in pieces that stay in the cache."""

_SHORT = 2048
"""Rows of a group up to which its Gram product is so short that groups next to each other share what surrounds it."""

_STRIP_ENTRIES = 1 << 18
"""Entries of X that are read twice in a row, the second time from the cache (2 MB)."""

_SHORTEST_STRIP = 512
"""Rows of a strip, however wide: fewer are dearer to call for than to read."""


@dataclass(frozen=True)
class Strip:
    """Rows that follow each other, cut where groups begin.

    Attributes
    ----------
    first, last : int
        Where the rows begin and end in the flat sequence.
    place : int
        Where they begin in X.
    pieces : slice
        Which pieces of groups they are, among those of all strips.
    """

    first: int
    last: int
    place: int
    pieces: slice


@dataclass(frozen=True)
class Coefficients:
    """The shape of a linear model.

    Attributes
    ----------
    n_outputs : int
        Predictions per row.
    n_features : int
    fit_intercept : bool
        Whether every output has an intercept; it is not penalised.
    """

    n_outputs: int
    n_features: int
    fit_intercept: bool

    @property
    def width(self) -> int:
        """Columns of the coefficient matrix, the intercept counted."""
        return self.n_features + self.fit_intercept

    @property
    def n_parameters(self) -> int:
        """Length of theta."""
        return self.n_outputs * self.width

    @cached_property
    def penalised(self) -> Array:
        """1 for the coefficients, 0 for the intercepts, in the order of theta."""
        return self.for_each_output(np.ones(self.n_features), 0.0)

    def for_each_output(self, columns: Array, intercept: float = 1.0) -> Array:
        """Return what is known of each column of X, and of the intercept, in the order of theta."""
        return np.tile(np.append(columns, intercept) if self.fit_intercept else columns, self.n_outputs)

    def predicting(self, value: float) -> Array:
        """Return the theta that predicts a constant, or 0 without an intercept."""
        return self.for_each_output(np.zeros(self.n_features), value)


@dataclass(frozen=True, eq=False)
class Layout(ABC):
    """Rows of B groups in one flat sequence of length n, and a theta of shape (P,) for each group.

    Attributes
    ----------
    X : features
    coefficients : Coefficients
    """

    X: Any
    coefficients: Coefficients

    @property
    @abstractmethod
    def n_groups(self) -> int:
        """Groups of rows."""

    @abstractmethod
    def total(self, rows: Array) -> Array:
        """Sum rows within each group: (n, ...) -> (B, ...)."""

    @abstractmethod
    def least(self, rows: Array) -> Array:
        """Return the smallest entry of each group: (n,) -> (B,)."""

    @abstractmethod
    def each(self, values: NDArray[Any]) -> NDArray[Any]:
        """Repeat each group's values for its rows: (B, ...) -> (n, ...)."""

    @abstractmethod
    def subset(self, keep: Mask) -> Self:
        """Return some of the groups."""

    @abstractmethod
    def _product(self, matrix: Array) -> Array:
        """Return ``X matrix_b'`` of every group's rows: (B, K, d) -> (n, K)."""

    @abstractmethod
    def _gather(self, rows: Array) -> Array:
        """Return every group's ``rows' X``: (n, K) -> (B, K, d)."""

    @abstractmethod
    def _gram(self, weight: Array) -> Array:
        """Return every group's ``[X 1]' diag(weight) [X 1]``: (n,) -> (B, width, width)."""

    def product(self, theta: Array) -> Array:
        """Return every row's ``[x 1] theta_b``: (B, P) -> (n, K)."""
        shape = self.coefficients
        matrix = theta.reshape(len(theta), shape.n_outputs, shape.width)
        z = self._product(matrix[:, :, : shape.n_features])
        return z + self.each(matrix[:, :, -1]) if shape.fit_intercept else z

    def gather(self, rows: Array) -> Array:
        """Return every group's ``sum_i rows_i (x) [x_i 1]``: (n, K) -> (B, P)."""
        shape = self.coefficients
        out = np.empty((self.n_groups, shape.n_outputs, shape.width))
        out[:, :, : shape.n_features] = self._gather(rows)
        if shape.fit_intercept:
            out[:, :, -1] = self.total(rows)
        return out.reshape(self.n_groups, -1)

    def gram(self, curvature: Array) -> Array:
        """Return every group's ``sum_i curvature_i (x) [x_i 1] [x_i 1]'``: (n,) or (n, K, K) -> (B, P, P)."""
        shape, n = self.coefficients, self.n_groups
        if shape.n_outputs == 1:
            return self._gram(curvature.reshape(-1))
        blocks = np.empty((n, shape.n_outputs, shape.width, shape.n_outputs, shape.width))
        for k in range(shape.n_outputs):
            for m in range(k + 1):
                blocks[:, k, :, m, :] = blocks[:, m, :, k, :] = self._gram(np.ascontiguousarray(curvature[:, k, m]))
        return blocks.reshape(n, shape.n_parameters, shape.n_parameters)


@dataclass(frozen=True, eq=False)
class Grouped(Layout):
    """Groups as they lie in X, dense or sparse: nothing is copied.

    Attributes
    ----------
    first, sizes : ndarray of shape (B,)
        Where each group begins in X, and how many rows it has.
    """

    first: Codes
    sizes: Codes

    @classmethod
    def pooled(cls, X: Any, coefficients: Coefficients) -> Grouped:
        """Return all rows as one group."""
        return cls(X, coefficients, np.zeros(1, dtype=np.intp), np.array([X.shape[0]]))

    @property
    def n_groups(self) -> int:
        """Groups of rows."""
        return len(self.first)

    @cached_property
    def _starts(self) -> Codes:
        """Where each group begins in the flat sequence."""
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def _spans(self) -> list[tuple[int, int, int]]:
        """For each group where it begins in X, and its place in the flat sequence."""
        return list(zip(self.first.tolist(), self._starts.tolist(), (self._starts + self.sizes).tolist(), strict=True))

    @cached_property
    def _is_everything(self) -> bool:
        return int(self.sizes.sum()) == self.X.shape[0]

    @cached_property
    def _goes_one_by_one(self) -> bool:
        """Whether groups are multiplied one after the other; else all at once."""
        return not self._is_everything or int(self.sizes.sum()) >= _MANY_ROWS * self.n_groups

    @property
    def is_read_in_strips(self) -> bool:
        """Whether groups are dense and long enough to be read strip by strip."""
        return self._goes_one_by_one and not sparse.issparse(self.X)

    @property
    def _longest_strip(self) -> int:
        """Rows of a strip, at most."""
        return max(_SHORTEST_STRIP, _STRIP_ENTRIES // max(self.coefficients.n_features, 1))

    @cached_property
    def _pieces(self) -> tuple[Codes, Codes, Codes]:
        """The group of each piece that strips cut groups into, and where it begins and ends in the flat sequence."""
        longest = self._longest_strip
        n_pieces = -(-self.sizes // longest)
        group = np.repeat(np.arange(self.n_groups), n_pieces)
        place = np.arange(len(group)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)
        first = self._starts[group] + place * longest
        return group, first, np.minimum(first + longest, (self._starts + self.sizes)[group])

    @cached_property
    def strips(self) -> list[Strip]:
        """All rows, in strips that stay in the cache: a piece of a long group, or several short ones."""
        longest = self._longest_strip
        # Groups of a subset need not follow each other in X.
        shifts = (self.first - self._starts)[self._pieces[0]]
        first, last, shift = (one.tolist() for one in (*self._pieces[1:], shifts))
        strips: list[Strip] = []
        begin = 0
        for k in range(1, len(first) + 1):
            if k < len(first) and last[k] - first[begin] <= longest and shift[k] == shift[begin]:
                continue
            strips.append(Strip(first[begin], last[k - 1], first[begin] + shift[begin], slice(begin, k)))
            begin = k
        return strips

    def look(self, theta: Array, rows: Callable[[slice, Array], tuple[Array, Array]]) -> tuple[Array, Array]:
        """Return every group's ``sum_i r_i (x) [x_i 1]``, (B, P), where ``r_i`` follows from the row's prediction.

        Beside it, sums of whatever else follows from the predictions: (B, m).

        Each strip is read once from memory: predictions, what follows from them, and its sums.

        Parameters
        ----------
        theta : ndarray of shape (B, P), or (1, P) for all groups
        rows : callable
            Called with a slice of the flat sequence and the predictions there, (n, K); returns ``r``, of the same
            shape, and the rest, (m, n). Threads may call it for different strips at once.
        """
        shape, (group, first, last) = self.coefficients, self._pieces
        d, matrix = shape.n_features, theta.reshape(len(theta), shape.n_outputs, shape.width)
        sums, places = np.empty((len(group), shape.n_outputs, shape.width)), group.tolist()
        begins, ends = first.tolist(), last.tolist()
        totals: list[Array] = [np.empty(0)] * len(self.strips)

        def read(strips: slice) -> None:
            for number in range(strips.start, strips.stop):
                strip = self.strips[number]
                X = self.X[strip.place : strip.place + strip.last - strip.first]
                cuts = [
                    (k, slice(begins[k] - strip.first, ends[k] - strip.first))
                    for k in range(strip.pieces.start, strip.pieces.stop)
                ]
                if len(matrix) == 1:
                    z = X @ matrix[0, :, :d].T
                    z = z + matrix[0, :, -1] if shape.fit_intercept else z
                else:
                    z = np.empty((len(X), shape.n_outputs))
                    for k, own in cuts:
                        np.matmul(X[own], matrix[places[k], :, :d].T, out=z[own])
                    if shape.fit_intercept:
                        z += np.repeat(matrix[group[strip.pieces], :, -1], (last - first)[strip.pieces], axis=0)
                r, rest = rows(slice(strip.first, strip.last), z)
                across, cut_at = r.T, first[strip.pieces] - strip.first
                totals[number] = np.add.reduceat(rest, cut_at, axis=1)
                for k, own in cuts:
                    np.matmul(across[:, own], X[own], out=sums[k, :, :d])
                if shape.fit_intercept:
                    sums[strip.pieces, :, -1] = np.add.reduceat(r, cut_at, axis=0)

        entries = int(self.sizes.sum()) * d
        spread(read, parts(len(self.strips), entries))
        begin = np.searchsorted(group, np.arange(self.n_groups))
        others = np.add.reduceat(np.concatenate(totals, axis=1), begin, axis=1).T
        return np.add.reduceat(sums, begin, axis=0).reshape(self.n_groups, -1), others

    def total(self, rows: Array) -> Array:
        if self.n_groups == 1:
            return np.asarray(rows.sum(axis=0, keepdims=True))
        return np.asarray(np.add.reduceat(rows, self._starts, axis=0))

    def least(self, rows: Array) -> Array:
        return np.asarray(np.minimum.reduceat(rows, self._starts))

    def each(self, values: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(values, self.sizes, axis=0)

    def subset(self, keep: Mask) -> Grouped:
        return replace(self, first=self.first[keep], sizes=self.sizes[keep])

    def _view(self, group: tuple[int, int, int]) -> Any:
        first, start, end = group
        # A view of all sparse rows would be a matrix of its own, to be checked anew.
        return self.X if end - start == self.X.shape[0] else some_rows(self.X, first, first + end - start)

    def _product(self, matrix: Array) -> Array:
        if self.n_groups == 1:
            return np.asarray(self._view(self._spans[0]) @ matrix[0].T, dtype=np.float64)
        _, outputs, d = matrix.shape
        z = np.empty((int(self.sizes.sum()), outputs))
        if self._goes_one_by_one or sparse.issparse(self.X):
            for group, own in zip(self._spans, matrix, strict=True):
                z[group[1] : group[2]] = self._view(group) @ own.T
            return z
        owner, step = np.repeat(np.arange(self.n_groups), self.sizes), max(1, LARGEST_BLOCK // max(outputs * d, 1))
        for first in range(0, len(z), step):
            block = slice(first, first + step)
            z[block] = np.einsum("nd,nkd->nk", self.X[block], matrix[owner[block]])
        return z

    def _gather(self, rows: Array) -> Array:
        if self.n_groups == 1:
            return np.asarray((self._view(self._spans[0]).T @ rows).T)[None]
        out = np.empty((self.n_groups, rows.shape[1], self.coefficients.n_features))
        if self._goes_one_by_one:
            across, spans = rows.T, self._spans

            def multiply(groups: slice) -> None:
                for b in range(groups.start, groups.stop):
                    out[b] = across[:, spans[b][1] : spans[b][2]] @ self._view(spans[b])

            entries = len(rows) * out.shape[2]
            if entries < WORTHWHILE:
                multiply(slice(0, self.n_groups))
            else:
                spread(multiply, parts(self.n_groups, entries))
            return out
        ends, columns = np.append(self._starts, len(rows)), np.arange(len(rows))
        for k in range(rows.shape[1]):
            sums = sparse.csr_array((rows[:, k], columns, ends), shape=(self.n_groups, len(rows)))
            product = sums @ self.X
            out[:, k] = product.toarray() if sparse.issparse(product) else product
        return out

    def _gram(self, weight: Array) -> Array:
        width, with_intercept = self.coefficients.width, self.coefficients.fit_intercept
        out = np.empty((self.n_groups, width, width))
        short = np.zeros(self.n_groups, dtype=bool)
        if self.is_read_in_strips and self.coefficients.n_features <= FEW_COLUMNS:
            short = self.sizes <= min(_SHORT, self._longest_strip)
        for strip in self.strips if short.any() else ():
            groups, begin = self._pieces[0][strip.pieces], self._pieces[1][strip.pieces] - strip.first
            if short[groups].all():
                X = self.X[strip.place : strip.place + strip.last - strip.first]
                short_grams(X, weight[strip.first : strip.last], groups, begin, with_intercept, out)
            else:
                short[groups] = False
        for b in np.flatnonzero(~short):
            group = self._spans[b]
            out[b] = weighted_gram(self._view(group), weight[group[1] : group[2]], with_intercept)
        return out


@dataclass(frozen=True, eq=False)
class Padded(Layout):
    """Groups filled up to one length with rows of no weight: X has shape (B, length, n_features)."""

    @property
    def n_groups(self) -> int:
        """Groups of rows."""
        return len(self.X)

    def total(self, rows: Array) -> Array:
        return np.asarray(rows.reshape(*self.X.shape[:2], *rows.shape[1:]).sum(axis=1))

    def least(self, rows: Array) -> Array:
        return np.asarray(rows.reshape(*self.X.shape[:2]).min(axis=1))

    def each(self, values: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(values, self.X.shape[1], axis=0)

    def subset(self, keep: Mask) -> Padded:
        return replace(self, X=self.X[keep])

    def _product(self, matrix: Array) -> Array:
        return np.asarray((self.X @ matrix.transpose(0, 2, 1)).reshape(-1, matrix.shape[1]))

    def _gather(self, rows: Array) -> Array:
        return np.asarray(rows.reshape(*self.X.shape[:2], -1).transpose(0, 2, 1) @ self.X)

    def _gram(self, weight: Array) -> Array:
        n, length, d = self.X.shape
        width, with_intercept = self.coefficients.width, self.coefficients.fit_intercept
        weight, out = weight.reshape(n, length), np.empty((n, width, width))
        if length >= _LONG:
            for b in range(n):
                out[b] = weighted_gram(self.X[b], weight[b], with_intercept)
            return out
        out[:, :d, :d] = self.X.transpose(0, 2, 1) @ (self.X * weight[:, :, None])
        if with_intercept:
            out[:, :d, d] = out[:, d, :d] = np.einsum("bl,bld->bd", weight, self.X)
            out[:, d, d] = weight.sum(axis=1)
        return out


@dataclass(frozen=True, eq=False)
class Shared(Layout):
    """Blocks of rows as they lie in X, each with several groups that all have its rows: X is read once for them.

    What a group leaves out has no weight in it. In the flat sequence a row comes once for every group of its block,
    and then the next row.

    Attributes
    ----------
    first, sizes : ndarray of shape (n_blocks,)
        Where each block begins in X, and how many rows it has.
    copies : ndarray of shape (n_blocks,)
        The groups of each block, at least one.
    """

    first: Codes
    sizes: Codes
    copies: Codes

    @property
    def n_groups(self) -> int:
        """Groups of rows."""
        return int(self.copies.sum())

    @cached_property
    def _spans(self) -> list[tuple[slice, slice, slice, tuple[int, int]]]:
        """For each block its rows in X, its groups, its place in the flat sequence, and its rows and groups."""
        groups, flat = np.cumsum(self.copies), np.cumsum(self.sizes * self.copies)
        ends = zip(self.first, self.sizes, self.copies, groups, flat, strict=True)
        return [
            (slice(first, first + n), slice(group - m, group), slice(end - n * m, end), (int(n), int(m)))
            for first, n, m, group, end in ends
        ]

    def _view(self, rows: slice) -> Any:
        return some_rows(self.X, rows.start, rows.stop)

    def total(self, rows: Array) -> Array:
        out = np.empty((self.n_groups, *rows.shape[1:]))
        for _, groups, flat, (n, m) in self._spans:
            # A product adds up short rows faster than a sum.
            out[groups] = (np.ones(n) @ rows[flat].reshape(n, -1)).reshape(m, *rows.shape[1:])
        return out

    def least(self, rows: Array) -> Array:
        return np.concatenate([rows[flat].reshape(shape).min(axis=0) for _, _, flat, shape in self._spans])

    def each(self, values: NDArray[Any]) -> NDArray[Any]:
        out = np.empty((int(self.sizes @ self.copies), *values.shape[1:]), dtype=values.dtype)
        for _, groups, flat, shape in self._spans:
            out[flat].reshape(*shape, *values.shape[1:])[:] = values[groups]
        return out

    def subset(self, keep: Mask) -> Shared:
        copies = np.add.reduceat(keep, np.cumsum(self.copies) - self.copies, dtype=np.intp)
        some = copies > 0
        return replace(self, first=self.first[some], sizes=self.sizes[some], copies=copies[some])

    def _product(self, matrix: Array) -> Array:
        _, outputs, d = matrix.shape
        z = np.empty((int(self.sizes @ self.copies), outputs))
        for rows, groups, flat, _ in self._spans:
            z[flat] = (self._view(rows) @ matrix[groups].reshape(-1, d).T).reshape(-1, outputs)
        return z

    def _gather(self, rows: Array) -> Array:
        outputs = rows.shape[1]
        out = np.empty((self.n_groups, outputs, self.coefficients.n_features))
        for own, groups, flat, (n, m) in self._spans:
            out[groups] = (rows[flat].reshape(n, m * outputs).T @ self._view(own)).reshape(m, outputs, -1)
        return out

    def _gram(self, weight: Array) -> Array:
        width = self.coefficients.width
        out = np.empty((self.n_groups, width, width))
        for own, groups, flat, shape in self._spans:
            X, each = self._view(own), weight[flat].reshape(shape).T
            for group, one in zip(range(groups.start, groups.stop), each, strict=True):
                out[group] = weighted_gram(X, np.ascontiguousarray(one), self.coefficients.fit_intercept)
        return out
