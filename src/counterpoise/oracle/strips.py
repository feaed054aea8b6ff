"""Contexts of many rows side by side, each with parameters of its own and at its own length: nothing is copied."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.oracle._base import Array
from counterpoise.oracle.batch import Batch
from counterpoise.oracle.linear import LinearOracle
from counterpoise.oracle.row_products import weighted_gram


@dataclass(frozen=True, eq=False)
class Strips(Batch):
    """What a :class:`Batch` is, without padding: features are one view of the rows for each context."""

    X: Any

    @classmethod
    def of(cls, oracle: LinearOracle, contexts: NDArray[np.intp], theta: Array) -> Strips:
        """Look at the rows of some contexts."""
        views = tuple(oracle.X[oracle.starts[c] : oracle.starts[c + 1]] for c in contexts)
        every = len(contexts) == oracle.n_contexts
        rows: Any = slice(None) if every else np.isin(oracle.owner, contexts)
        return cls(oracle, views, oracle.target[rows], oracle.row_weight[rows], np.tile(theta, (len(contexts), 1)))

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """Rows of each context."""
        return np.array([len(view) for view in self.X])

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        ends = np.cumsum(self.sizes)
        return list(zip((ends - self.sizes).tolist(), ends.tolist(), strict=True))

    @property
    def n_columns(self) -> int:
        return int(self.X[0].shape[1])

    def subset(self, keep: NDArray[np.bool_]) -> Strips:
        """Return some of the contexts."""
        views = tuple(view for view, kept in zip(self.X, keep, strict=True) if kept)
        return self._part(views, keep, np.repeat(keep, self.sizes))

    def product(self, theta: Array) -> Array:
        outputs, d = self.loss.n_outputs, self.n_columns
        matrix = theta.reshape(len(theta), outputs, self.width)
        z = np.empty((len(self.target), outputs))
        for view, own, (first, last) in zip(self.X, matrix, self._spans, strict=True):
            np.matmul(view, own[:, :d].T, out=z[first:last])
        if self.oracle.fit_intercept:
            z += self.each(matrix[:, :, -1])
        return z[:, 0] if outputs == 1 else z

    def each(self, values: Array) -> Array:
        return np.repeat(values, self.sizes, axis=0)

    def total(self, rows: Array) -> Array:
        return np.add.reduceat(rows, [first for first, _ in self._spans])

    def transpose_product(self, rows: Array) -> Array:
        out = np.empty((len(self.X), self.loss.n_outputs, self.width))
        for view, own, (first, last) in zip(self.X, out, self._spans, strict=True):
            np.matmul(rows[first:last].T, view, out=own[:, : self.n_columns])
            if self.oracle.fit_intercept:
                np.add.reduce(rows[first:last], axis=0, out=own[:, -1])
        return out.reshape(len(self.X), -1)

    def gram(self, curvature: Array) -> Array:
        outputs, width = self.loss.n_outputs, self.width
        bend = curvature.reshape(-1, outputs, outputs)
        blocks = np.empty((len(self.X), outputs, width, outputs, width))
        for view, own, (first, last) in zip(self.X, blocks, self._spans, strict=True):
            for k in range(outputs):
                for m in range(k + 1):
                    weight = np.ascontiguousarray(bend[first:last, k, m])
                    own[k, :, m, :] = own[m, :, k, :] = weighted_gram(view, weight, self.oracle.fit_intercept)
        return blocks.reshape(len(self.X), outputs * width, -1)
