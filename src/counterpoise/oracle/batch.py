"""Many contexts side by side, each with parameters of its own: padded to equal length and handled as one array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from counterpoise.losses import Loss
from counterpoise.oracle._base import Array
from counterpoise.oracle.linear import LinearOracle
from counterpoise.oracle.row_products import weighted_gram

BATCH_ENTRIES = 1 << 21
"""Entries of padded features, or of Hessians, handled at once (16 MB)."""

LONG = 512
"""Rows of a context from which its products are taken alone."""


def batches(oracle: LinearOracle, among: NDArray[np.bool_] | None = None) -> Iterator[NDArray[np.intp]]:
    """Group contexts, or some of them, whose sizes round up to the same multiple of about a quarter.

    The blocks are of bounded memory.
    """
    sizes = np.diff(oracle.starts)
    order = np.argsort(sizes, kind="stable")
    order = order if among is None else order[among[order]]
    # A quarter of the power of two below the size: at most a fifth of a block is padding.
    unit = 1 << np.maximum(np.frexp(sizes[order])[1].astype(np.intp) - 3, 0)
    padded = -(-sizes[order] // unit) * unit
    for length in np.unique(padded):
        alike = order[padded == length]
        # The features of a context, or its Hessian where that is larger.
        entries = oracle.n_parameters * max(int(length), oracle.n_parameters)
        step = max(1, BATCH_ENTRIES // entries)
        for first in range(0, len(alike), step):
            yield np.sort(alike[first : first + step])


@dataclass(frozen=True, eq=False)
class Batch:
    """Contexts padded to equal length with rows of no weight, and one theta each."""

    oracle: LinearOracle
    X: Array
    target: Array
    weight: Array
    theta: Array

    @classmethod
    def of(cls, oracle: LinearOracle, contexts: NDArray[np.intp], theta: Array) -> Batch:
        """Gather the rows of some contexts."""
        first, sizes = oracle.starts[contexts], np.diff(oracle.starts)[contexts]
        if len(contexts) == 1:
            rows: slice | NDArray[np.intp] = slice(first[0], first[0] + sizes[0])
            inside = np.ones((1, sizes[0]), dtype=bool)
        else:
            inside = np.arange(sizes.max()) < sizes[:, None]
            rows = np.where(inside, first[:, None] + np.arange(sizes.max()), first[:, None]).ravel()
        X = oracle.X[rows]
        X = X.toarray() if sparse.issparse(X) else X
        weight = np.where(inside.ravel(), oracle.row_weight[rows], 0.0)
        return cls(
            oracle,
            X.reshape(*inside.shape, -1),
            oracle.target[rows],
            weight,
            np.tile(theta, (len(contexts), 1)),
        )

    def at(self, theta: Array) -> Self:
        """Return the same contexts at other parameters."""
        return replace(self, theta=theta)

    def condensed(self) -> tuple[Batch, Array | None]:
        """Return the same contexts in as many features as they have rows, where these are fewer; and the old features.

        With a ridge the best coefficients are a combination of the rows: directions at right angles to all of them cost
        and gain nothing. The new features are coordinates in an orthonormal basis of the rows, so that the ridge stays
        the same. The basis, of shape (B, n_features, length), leads back; None where nothing changes.
        """
        if self.alpha == 0.0 or self.X.shape[1] >= self.X.shape[2]:
            return self, None
        basis, coordinates = np.linalg.qr(self.X.transpose(0, 2, 1))
        matrix = self.theta.reshape(len(self.theta), self.loss.n_outputs, -1)
        d = self.X.shape[2]
        theta = np.concatenate([matrix[:, :, :d] @ basis, matrix[:, :, d:]], axis=2)
        X = np.ascontiguousarray(coordinates.transpose(0, 2, 1))
        return replace(self, X=X, theta=theta.reshape(len(theta), -1)), basis

    def expanded(self, theta: Array, basis: Array | None) -> Array:
        """Return parameters of this condensed batch as those of the batch it came from."""
        if basis is None:
            return theta
        matrix = theta.reshape(len(theta), self.loss.n_outputs, -1)
        d = self.X.shape[2]
        whole = np.concatenate([matrix[:, :, :d] @ basis.transpose(0, 2, 1), matrix[:, :, d:]], axis=2)
        return np.asarray(whole.reshape(len(theta), -1))

    def subset(self, keep: NDArray[np.bool_]) -> Self:
        """Return some of the contexts."""
        return self._part(self.X[keep], keep, np.repeat(keep, self.X.shape[1]))

    def _part(self, X: Any, keep: NDArray[np.bool_], rows: NDArray[np.bool_]) -> Self:
        part = type(self)(self.oracle, X, self.target[rows], self.weight[rows], self.theta[keep])
        # What is known already is not worked out again.
        known = vars(self)
        for name, of_each in (
            ("predictions", rows),
            ("losses", rows),
            ("slopes", rows),
            ("value", keep),
            ("gradient", keep),
        ):
            if name in known:
                vars(part)[name] = known[name][of_each]
        return part

    @property
    def loss(self) -> Loss:
        """The loss."""
        return self.oracle.loss

    @property
    def alpha(self) -> float:
        """The ridge."""
        return self.oracle.alpha

    @property
    def width(self) -> int:
        """Columns of a coefficient matrix, the intercept counted."""
        return self.n_columns + self.oracle.fit_intercept

    @property
    def n_columns(self) -> int:
        """Features."""
        return int(self.X.shape[2])

    @cached_property
    def penalised(self) -> Array:
        """1 for coefficients, 0 for intercepts."""
        mask = np.ones((self.loss.n_outputs, self.width))
        mask[:, self.n_columns :] = 0.0
        return mask.ravel()

    @cached_property
    def reach(self) -> Array:
        """The largest absolute feature behind each parameter."""
        if self.n_columns == self.oracle.n_features:
            return self.oracle.reach
        columns = np.abs(self.X).max(axis=(0, 1))
        return np.tile(np.append(columns, np.ones(self.width - len(columns))), self.loss.n_outputs)

    @cached_property
    def coefficients(self) -> Array:
        """Theta with zeros in place of the intercepts."""
        return self.theta * self.penalised

    @cached_property
    def predictions(self) -> Array:
        """Predictions of all rows."""
        return self.product(self.theta)

    def product(self, theta: Array) -> Array:
        """Return each row's ``x_i'theta_b``."""
        outputs, d = self.loss.n_outputs, self.X.shape[2]
        matrix = theta.reshape(len(theta), outputs, self.width)
        z = self.X @ matrix[:, :, :d].transpose(0, 2, 1)
        if self.oracle.fit_intercept:
            z = z + matrix[:, None, :, -1]
        return np.asarray(z.reshape(-1) if outputs == 1 else z.reshape(-1, outputs))

    @cached_property
    def value(self) -> Array:
        """The risk of each context."""
        ridge = 0.5 * self.alpha * np.sum(self.coefficients**2, axis=1)
        return self.total(self.weight * self.losses) + ridge

    @cached_property
    def losses(self) -> Array:
        """The loss of every row."""
        return self.loss.value(self.target, self.predictions)

    @cached_property
    def above(self) -> Array:
        """How far the risks are above the least their rows allow; their size where that is nothing."""
        floor = self.loss.lowest(self.target)
        return self.total(self.weight * np.where(np.isfinite(floor), self.losses - floor, np.abs(self.losses)))

    @cached_property
    def gradient(self) -> Array:
        """The gradient of each context's risk."""
        rows = self.weight[:, None] * self.slopes.reshape(len(self.weight), -1)
        return self.transpose_product(rows) + self.alpha * self.coefficients

    @cached_property
    def slopes(self) -> Array:
        """Slopes of all rows' losses."""
        return self.loss.gradient(self.target, self.predictions)

    @cached_property
    def hessian(self) -> Array:
        """The Hessian of each context's risk."""
        return self.regularised(self.loss.curvature(self.target, self.predictions))

    def regularised(self, bend: Array) -> Array:
        """Return the weighted Gram matrices of each row's curvature, with the ridge."""
        hessian = self.gram(bend * self.weight.reshape((-1,) + (1,) * (bend.ndim - 1)))
        diagonal = np.arange(hessian.shape[1])
        hessian[:, diagonal, diagonal] += self.alpha * self.penalised
        return hessian

    def each(self, values: Array) -> Array:
        """Repeat what there is one of per context for each of its rows."""
        return np.repeat(values, self.X.shape[1], axis=0)

    def total(self, rows: Array) -> Array:
        """Sum rows within each context."""
        return np.asarray(rows.reshape(len(self.theta), -1).sum(axis=1))

    def transpose_product(self, rows: Array) -> Array:
        """Return each context's ``sum_i rows_i (x) x_i``."""
        batch, length, d = self.X.shape
        blocks = rows.reshape(batch, length, -1).transpose(0, 2, 1)
        out = np.empty((batch, self.loss.n_outputs, self.width))
        out[:, :, :d] = blocks @ self.X
        if self.oracle.fit_intercept:
            out[:, :, -1] = blocks.sum(axis=2)
        return out.reshape(batch, -1)

    def gram(self, curvature: Array) -> Array:
        """Return each context's ``sum_i curvature_i (x) x_i x_i'``."""
        batch, length, d = self.X.shape
        outputs, width = self.loss.n_outputs, self.width
        bend = curvature.reshape(batch, length, outputs, outputs)
        blocks = np.empty((batch, outputs, width, outputs, width))
        for k in range(outputs):
            for m in range(k + 1):
                weight = bend[:, :, k, m]
                block = np.empty((batch, width, width))
                if length >= LONG:
                    # A product for each, in pieces that stay in the cache, beats one for all.
                    for b in range(batch):
                        block[b] = weighted_gram(self.X[b], np.ascontiguousarray(weight[b]), self.oracle.fit_intercept)
                    blocks[:, k, :, m, :] = blocks[:, m, :, k, :] = block
                    continue
                block[:, :d, :d] = self.X.transpose(0, 2, 1) @ (self.X * weight[:, :, None])
                if self.oracle.fit_intercept:
                    block[:, :d, d] = block[:, d, :d] = np.einsum("bl,bld->bd", weight, self.X)
                    block[:, d, d] = weight.sum(axis=1)
                blocks[:, k, :, m, :] = blocks[:, m, :, k, :] = block
        return blocks.reshape(batch, outputs * width, outputs * width)
