"""Rows of several groups side by side, each group with parameters of its own: three layouts, the same five maps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from counterpoise.losses import Logistic, Loss
from counterpoise.rows import compiled
from counterpoise.rows.products import FEW_COLUMNS, LARGEST_BLOCK, short_grams, some_rows, weighted_gram
from counterpoise.threads import WORTHWHILE, parts, spread

Array = NDArray[np.float64]
Codes = NDArray[np.intp]
Mask = NDArray[np.bool_]

COMPILED = (Logistic,)
"""Losses whose looks are compiled."""

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

_PIECE_ENTRIES = 1 << 13
"""Predictions from which losses and slopes are worked out at once: temporaries of 64 KB are in the nearest cache, and
never memory that is new to the process."""

_FEW_OUTPUTS = 5
"""Outputs up to which a product for each pair of them beats one for all."""

_SQUARED_ENTRIES, _SQUARED_ROWS = 1 << 17, 128
"""Entries of rows times outputs that are multiplied at once (1 MB), and rows of them at the least."""


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


class Looked(NamedTuple):
    """What one pass over the rows tells.

    Attributes
    ----------
    predictions : ndarray of shape (n,), or (n, n_outputs)
    gradients : ndarray of shape (B, P)
        Of mean losses.
    values, sizes : ndarray of shape (B,)
        Mean losses, and mean absolute slopes: the largest of a row's outputs.
    """

    predictions: Array
    gradients: Array
    values: Array
    sizes: Array


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

    @property
    @abstractmethod
    def pieces(self) -> compiled.Pieces:
        """Rows that follow each other, each piece in one group."""

    @property
    def _longest_strip(self) -> int:
        """Rows of a strip, at most."""
        return max(_SHORTEST_STRIP, _STRIP_ENTRIES // max(self.coefficients.n_features, 1))

    def look(self, theta: Array, loss: Loss, target: Array, weight: Array) -> Looked | None:
        """Return what one pass over the rows tells of each group's mean loss; None where it takes several.

        Parameters
        ----------
        theta : ndarray of shape (B, P), or (1, P) for all groups
        target, weight : ndarray of shape (n,)
        """
        # A subclass may be another loss.
        look = compiled.look_of(loss.name) if type(loss) in COMPILED else None
        pieces = self._readable_pieces
        if look is None or pieces is None:
            return self._look(theta, loss, target, weight)
        intercept = self.coefficients.fit_intercept
        predictions, sums, others = compiled.look(look, self.X, theta, intercept, pieces, target, weight)
        sums, others = self._by_group(pieces, sums), self._by_group(pieces, others)
        return Looked(predictions, sums, others[:, 0], others[:, 1])

    def minimiser(self, loss: Loss) -> Callable[..., Array] | None:
        """Return what minimises each group's mean loss with a ridge by compiled code; None where there is none.

        It takes targets and weights of rows, parameters to begin at and the ridge; see :func:`compiled.minimised`. It
        is meant for groups of few rows, all of which are copied to where they are worked on.
        """
        found = compiled.minimiser_of(loss.name) if type(loss) in COMPILED else None
        pieces, few = self._readable_pieces, compiled.grams_of(self.coefficients.width) is not None
        if found is None or pieces is None or not few or len(pieces[0]) != self.n_groups:
            return None
        return partial(compiled.minimised, found, self.X, self.coefficients.fit_intercept, pieces)

    @property
    def _readable_pieces(self) -> compiled.Pieces | None:
        """The pieces, if compiled code can read them."""
        return self.pieces if compiled.can_read(self.X) else None

    def _by_group(self, pieces: compiled.Pieces, sums: Array) -> Array:
        """Add up the sums of pieces within each group."""
        if len(sums) == self.n_groups:
            return sums
        return np.asarray(np.add.reduceat(sums, np.searchsorted(pieces[0], np.arange(self.n_groups)), axis=0))

    def _look(self, theta: Array, loss: Loss, target: Array, weight: Array) -> Looked | None:
        """Do the same with numpy."""
        return None

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
    def graded_gram(self, weight: Array) -> Array:
        """Return every group's ``[X 1]' diag(weight) [X 1]`` by the BLAS: (n,) -> (B, width, width).

        Its sums are the most accurate, which counts where weights span many orders of magnitude, as near a kink.
        """

    def _weighted_gram(self, weight: Array) -> Array:
        """Return the same by compiled code, where that is there and can read the rows."""
        pieces, grams = self._readable_pieces, compiled.grams_of(self.coefficients.width)
        if grams is None or pieces is None:
            return self.graded_gram(np.ascontiguousarray(weight))
        by_piece = compiled.grams(grams, self.X, self.coefficients.fit_intercept, pieces, weight)
        return self._by_group(pieces, by_piece)

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
            return self._weighted_gram(curvature.reshape(-1))
        blocks = np.empty((n, shape.n_outputs, shape.width, shape.n_outputs, shape.width))
        for k in range(shape.n_outputs):
            for m in range(k + 1):
                blocks[:, k, :, m, :] = blocks[:, m, :, k, :] = self._weighted_gram(curvature[:, k, m])
        return blocks.reshape(n, shape.n_parameters, shape.n_parameters)

    def gram_of_classes(self, q: Array, variances: Array, weight: Array) -> Array:
        """Return :meth:`gram` of curvatures ``-q q'`` with the variances as their diagonal: (n, K), (n, K), (n,)."""
        shape, n = self.coefficients, self.n_groups
        matrices = self._squares(q * np.sqrt(weight)[:, None])
        np.negative(matrices, out=matrices)
        blocks = matrices.reshape(n, shape.n_outputs, shape.width, shape.n_outputs, shape.width)
        for k, own in enumerate(self.grams(variances * weight[:, None]).swapaxes(0, 1)):
            blocks[:, k, :, k, :] = own
        return matrices

    def grams(self, rows: Array) -> Array:
        """Return every group's ``[X 1]' diag(rows_k) [X 1]`` for each output ``k``: (n, K) -> (B, K, width, width)."""
        if self.coefficients.n_features == 0:
            return self.total(rows)[:, :, None, None]
        return np.stack([self._weighted_gram(own) for own in rows.T], axis=1)

    def _squares(self, rows: Array) -> Array:
        """Return every group's ``sum_i z_i z_i'`` with ``z_i = rows_i (x) [x_i 1]``, but for blocks on the diagonal.

        (n, K) -> (B, P, P)
        """
        shape, n = self.coefficients, self.n_groups
        blocks = np.empty((n, shape.n_outputs, shape.width, shape.n_outputs, shape.width))
        for k in range(shape.n_outputs):
            for m in range(k):
                blocks[:, k, :, m, :] = blocks[:, m, :, k, :] = self._weighted_gram(rows[:, k] * rows[:, m])
        return blocks.reshape(n, shape.n_parameters, shape.n_parameters)


def _cut(starts: Codes, sizes: Codes, longest: int) -> tuple[Codes, Codes, Codes]:
    """Cut groups into pieces; return the group of each, and where it begins and ends."""
    n_pieces = -(-sizes // longest)
    group = np.repeat(np.arange(len(sizes)), n_pieces)
    place = np.arange(len(group)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)
    first = starts[group] + place * longest
    return group, first, np.minimum(first + longest, (starts + sizes)[group])


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

    def every(self, steps: Codes) -> tuple[Codes, Codes]:
        """Return one row in so many of each group, as places in the flat sequence, and where groups begin among them.

        The last of these is where the last group ends.
        """
        sizes = -(-self.sizes // steps)
        starts = np.append(0, np.cumsum(sizes))
        place = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        return place * np.repeat(steps, sizes) + np.repeat(self._starts, sizes), starts

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

    @cached_property
    def _pieces(self) -> tuple[Codes, Codes, Codes]:
        """The group of each piece that strips cut groups into, and where it begins and ends in the flat sequence."""
        return _cut(self._starts, self.sizes, self._longest_strip)

    @cached_property
    def pieces(self) -> compiled.Pieces:
        group, first, last = self._pieces
        return group, first, last, first + (self.first - self._starts)[group]

    @cached_property
    def strips(self) -> list[Strip]:
        """All rows, in strips that stay in the cache: a piece of a long group, or several short ones."""
        longest = self._longest_strip
        _, first, last, place = self.pieces
        # Groups of a subset need not follow each other in X.
        first, last, shift = (one.tolist() for one in (first, last, place - first))
        strips: list[Strip] = []
        begin = 0
        for k in range(1, len(first) + 1):
            if k < len(first) and last[k] - first[begin] <= longest and shift[k] == shift[begin]:
                continue
            strips.append(Strip(first[begin], last[k - 1], first[begin] + shift[begin], slice(begin, k)))
            begin = k
        return strips

    def _look(self, theta: Array, loss: Loss, target: Array, weight: Array) -> Looked | None:
        """Read each strip once from memory: predictions, what follows from them, and its sums."""
        if not self.is_read_in_strips:
            return None
        shape, (group, first, last, _) = self.coefficients, self.pieces
        d, outputs, matrix = shape.n_features, shape.n_outputs, theta.reshape(len(theta), -1, shape.width)
        sums, others = np.empty((len(group), outputs, shape.width)), np.empty((len(group), 2))
        places, begins, ends = group.tolist(), first.tolist(), last.tolist()
        # Those of one class side by side: there are more rows than classes.
        predictions = np.empty((outputs, int(self.sizes.sum()))).T
        at_once = max(1, _PIECE_ENTRIES // outputs)

        def follow(begin: int, z: Array, slopes: Array, rest: Array) -> None:
            """Work out weighted slopes, losses and sizes of slopes from predictions."""
            for some in (slice(k, min(k + at_once, len(z))) for k in range(0, len(z), at_once)):
                own = slice(begin + some.start, begin + some.stop)
                value, slope = loss.value_and_gradient(target[own], z[some, 0] if outputs == 1 else z[some])
                slope = slope.reshape(-1, outputs)
                size = np.abs(slope[:, 0]) if outputs == 1 else np.abs(slope).max(axis=1)
                np.multiply(weight[own, None], slope, out=slopes[some])
                np.multiply(weight[own], value, out=rest[0, some])
                np.multiply(weight[own], size, out=rest[1, some])

        def read(strips: slice) -> None:
            longest = max(strip.last - strip.first for strip in self.strips[strips])
            all_slopes, all_rest = np.empty((outputs, longest)).T, np.empty((2, longest))
            for strip in self.strips[strips]:
                X = self.X[strip.place : strip.place + strip.last - strip.first]
                cuts = [
                    (k, slice(begins[k] - strip.first, ends[k] - strip.first))
                    for k in range(strip.pieces.start, strip.pieces.stop)
                ]
                z, slopes, rest = predictions[strip.first : strip.last], all_slopes[: len(X)], all_rest[:, : len(X)]
                if len(matrix) == 1:
                    np.matmul(matrix[0, :, :d], X.T, out=z.T)
                    if shape.fit_intercept:
                        z += matrix[0, :, -1]
                else:
                    for k, own in cuts:
                        np.matmul(matrix[places[k], :, :d], X[own].T, out=z[own].T)
                    if shape.fit_intercept:
                        z += np.repeat(matrix[group[strip.pieces], :, -1], (last - first)[strip.pieces], axis=0)
                follow(strip.first, z, slopes, rest)
                across, cut_at = slopes.T, first[strip.pieces] - strip.first
                others[strip.pieces] = np.add.reduceat(rest, cut_at, axis=1).T
                for k, own in cuts:
                    np.matmul(across[:, own], X[own], out=sums[k, :, :d])
                if shape.fit_intercept:
                    sums[strip.pieces, :, -1] = np.add.reduceat(slopes, cut_at, axis=0)

        spread(read, parts(len(self.strips), len(predictions) * d))
        begin = np.searchsorted(group, np.arange(self.n_groups))
        sums, others = np.add.reduceat(sums, begin, axis=0), np.add.reduceat(others, begin, axis=0)
        gradients = sums.reshape(self.n_groups, -1)
        return Looked(predictions[:, 0] if outputs == 1 else predictions, gradients, others[:, 0], others[:, 1])

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

    def graded_gram(self, weight: Array) -> Array:
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

    def _squares(self, rows: Array) -> Array:
        if sparse.issparse(self.X) or rows.shape[1] <= _FEW_OUTPUTS:
            return super()._squares(rows)
        shape, d = self.coefficients, self.coefficients.n_features
        step = max(_SQUARED_ROWS, _SQUARED_ENTRIES // shape.n_parameters)
        out, z = (
            np.zeros((self.n_groups, shape.n_parameters, shape.n_parameters)),
            np.empty((step, rows.shape[1], shape.width)),
        )
        for total, (place, start, end) in zip(out, self._spans, strict=True):
            for first in range(start, end, step):
                own = rows[first : min(first + step, end)]
                begin = place + first - start
                some = z[: len(own)]
                np.multiply(own[:, :, None], self.X[begin : begin + len(own), None, :], out=some[:, :, :d])
                if shape.fit_intercept:
                    some[:, :, d] = own
                flat = some.reshape(len(own), -1)
                total += flat.T @ flat
        return out


@dataclass(frozen=True, eq=False)
class Padded(Layout):
    """Groups filled up to one length with rows of no weight: X has shape (B, length, n_features)."""

    @property
    def n_groups(self) -> int:
        """Groups of rows."""
        return len(self.X)

    @cached_property
    def pieces(self) -> compiled.Pieces:
        groups, length = np.arange(self.n_groups), self.X.shape[1]
        return groups, groups * length, (groups + 1) * length, groups * length

    def total(self, rows: Array) -> Array:
        n, length = self.X.shape[:2]
        if rows.ndim == 1:
            # A product adds up short rows faster than a sum.
            return np.asarray(rows.reshape(n, length) @ np.ones(length))
        return np.asarray(rows.reshape(n, length, *rows.shape[1:]).sum(axis=1))

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

    def graded_gram(self, weight: Array) -> Array:
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
    """Blocks of rows as they lie in X, each with several groups that all have its rows: X is not copied for them.

    What a group leaves out has no weight in it. In the flat sequence the rows of a block come once for every group of
    it, group after group.

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
    def _lengths(self) -> Codes:
        """Rows of each group."""
        return np.repeat(self.sizes, self.copies)

    @cached_property
    def _starts(self) -> Codes:
        """Where each group begins in the flat sequence."""
        return np.cumsum(self._lengths) - self._lengths

    @cached_property
    def pieces(self) -> compiled.Pieces:
        group, first, last = _cut(self._starts, self._lengths, self._longest_strip)
        return group, first, last, first + (np.repeat(self.first, self.copies) - self._starts)[group]

    @cached_property
    def _spans(self) -> list[tuple[slice, slice, slice, tuple[int, int]]]:
        """For each block its rows in X, its groups, its place in the flat sequence, and its groups and rows."""
        groups, flat = np.cumsum(self.copies), np.cumsum(self.sizes * self.copies)
        ends = zip(self.first, self.sizes, self.copies, groups, flat, strict=True)
        return [
            (slice(first, first + n), slice(group - m, group), slice(end - n * m, end), (int(m), int(n)))
            for first, n, m, group, end in ends
        ]

    def laid_out(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return what there is one of per row and group of its block, in the flat sequence: (n_rows, m, ...).

        All blocks have m groups, and their rows follow each other.
        """
        out = np.empty((values.shape[0] * values.shape[1], *values.shape[2:]), dtype=values.dtype)
        for (_, _, flat, shape), end in zip(self._spans, np.cumsum(self.sizes), strict=True):
            out[flat].reshape(*shape, *values.shape[2:])[:] = values[end - shape[1] : end].swapaxes(0, 1)
        return out

    def _view(self, rows: slice) -> Any:
        return some_rows(self.X, rows.start, rows.stop)

    def total(self, rows: Array) -> Array:
        return np.asarray(np.add.reduceat(rows, self._starts, axis=0))

    def least(self, rows: Array) -> Array:
        return np.asarray(np.minimum.reduceat(rows, self._starts))

    def each(self, values: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(values, self._lengths, axis=0)

    def subset(self, keep: Mask) -> Shared:
        copies = np.add.reduceat(keep, np.cumsum(self.copies) - self.copies, dtype=np.intp)
        some = copies > 0
        return replace(self, first=self.first[some], sizes=self.sizes[some], copies=copies[some])

    def _product(self, matrix: Array) -> Array:
        _, outputs, d = matrix.shape
        z = np.empty((int(self.sizes @ self.copies), outputs))
        for rows, groups, flat, (m, n) in self._spans:
            product = matrix[groups].reshape(-1, d) @ self._view(rows).T
            z[flat] = product.reshape(m, outputs, n).swapaxes(1, 2).reshape(-1, outputs)
        return z

    def _gather(self, rows: Array) -> Array:
        outputs = rows.shape[1]
        out = np.empty((self.n_groups, outputs, self.coefficients.n_features))
        for own, groups, flat, (m, n) in self._spans:
            across = rows[flat].reshape(m, n, outputs).swapaxes(1, 2).reshape(-1, n)
            out[groups] = (across @ self._view(own)).reshape(m, outputs, -1)
        return out

    def graded_gram(self, weight: Array) -> Array:
        width = self.coefficients.width
        out = np.empty((self.n_groups, width, width))
        for own, groups, flat, shape in self._spans:
            X = self._view(own)
            for group, one in zip(range(groups.start, groups.stop), weight[flat].reshape(shape), strict=True):
                out[group] = weighted_gram(X, one, self.coefficients.fit_intercept)
        return out
