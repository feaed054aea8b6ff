"""Linear models on data in memory, dense or sparse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from counterpoise.contexts import Contexts
from counterpoise.losses import Hinged, Loss
from counterpoise.oracle import linear_bounds
from counterpoise.oracle._base import Array, BasePoint, Bounds
from counterpoise.oracle.coefficients import Coefficients
from counterpoise.oracle.row_products import (
    LARGEST_BLOCK,
    gathered,
    largest_entries,
    some_rows,
    squares_product,
    summed,
    weighted_gram,
)
from counterpoise.threads import WORTHWHILE, parts, spread

_LARGEST_HESSIAN = 2500
"""Parameters up to which a square matrix is formed (50 MB, a second to factor)."""

_LARGEST_SPARSE_HESSIAN = 300
"""The same for sparse rows, whose products are cheap."""

_MANY_ROWS = 64
"""Rows per context from which a BLAS call each beats one sparse product."""


@dataclass(frozen=True, eq=False)
class LinearOracle(Coefficients):
    r"""Risks of a linear model.

    .. math:: R_c(\theta) = \sum_{i \in c} w_i\,\ell(y_i, x_i^\top\theta) + \tfrac\alpha2 \|\text{coef}\|^2

    Rows are grouped by context once, by :meth:`from_rows`. Theta is the raveled (n_outputs, n_features + intercept)
    matrix, the intercept last; it is not penalised.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Grouped by context.
    target : ndarray of shape (n_samples,) or (n_samples, target_columns)
    row_weight : ndarray of shape (n_samples,)
        Sums to one within each context.
    starts : ndarray of shape (n_contexts + 1,)
        Context ``c`` holds the rows ``starts[c]:starts[c + 1]``.
    together : ndarray of shape (n_samples,), optional
        Numbers, ascending, that are the same for rows which are held out together.
    """

    X: Any
    target: Array
    row_weight: Array
    starts: NDArray[np.intp]
    loss: Loss
    alpha: float = 0.0
    fit_intercept: bool = True
    bounds: Bounds | None = None
    together: NDArray[np.intp] | None = None

    @classmethod
    def from_rows(
        cls,
        X: Any,
        target: Array,
        contexts: Contexts,
        loss: Loss,
        *,
        sample_weight: Array | None = None,
        alpha: float = 0.0,
        fit_intercept: bool = True,
        bounds: Bounds | None = None,
    ) -> LinearOracle:
        """Group rows by context; arguments have been checked by the caller."""
        order = contexts.grouping_order()
        weight = np.ones(len(target)) if sample_weight is None else sample_weight
        if order is not None:
            X, target, weight = gathered(X, order), target[order], weight[order]
        totals = np.add.reduceat(weight, contexts.starts[:-1])
        row_weight = weight / np.repeat(totals, np.diff(contexts.starts))
        return cls(X, target, row_weight, contexts.starts, loss, alpha, fit_intercept, bounds)

    @property
    def n_contexts(self) -> int:
        """Contexts, that is risks."""
        return len(self.starts) - 1

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return int(self.X.shape[1])

    offers = frozenset({"hessian", "hessian_product", "curvature_share", "rows"})

    @property
    def forms_hessian(self) -> bool:
        """Whether a square matrix of the size of theta is affordable, and worth its price."""
        # Products with sparse rows cost so little that a dense matrix soon costs more; without a ridge it is needed, to
        # prove anything.
        cheap_products = sparse.issparse(self.X) and self.alpha > 0.0
        return self.n_parameters <= (_LARGEST_SPARSE_HESSIAN if cheap_products else _LARGEST_HESSIAN)

    @property
    def is_rigorous(self) -> bool:
        """The bounds are theorems about the losses."""
        return True

    @cached_property
    def reach(self) -> Array:
        """The largest absolute value of each column, repeated for every output, in the order of theta."""
        if sparse.issparse(self.X):
            X, columns = summed(self.X), np.zeros(self.n_features)
            np.maximum.at(columns, X.indices, np.abs(X.data))
        else:
            extremes = spread(lambda part: largest_entries(self.X[part]), parts(len(self.X), self.X.size))
            columns = np.max(extremes, axis=0)
        return self.for_each_output(columns)

    @cached_property
    def typical_risk(self) -> float:
        """How far the risk of one constant prediction, or of zero, is above the lowest."""
        return self.above_lowest(self._constant) / self.n_contexts

    @cached_property
    def _constant(self) -> float:
        """A constant prediction that makes sense."""
        return self.loss.typical(self.target, self.row_weight) if self.fit_intercept else 0.0

    def above_lowest(self, constant: float) -> float:
        """Return how far the loss of a constant prediction is above the lowest, summed over contexts."""
        shape = (len(self.target), self.loss.n_outputs) if self.loss.n_outputs > 1 else len(self.target)
        rows, lowest = self.loss.value(self.target, np.full(shape, constant)), self.loss.lowest(self.target)
        above = np.where(np.isfinite(lowest), rows - lowest, np.abs(rows))
        # A perfect constant leaves nothing above the floor; rounding is then relative to the floor itself.
        size = np.maximum(np.abs(rows), np.where(np.isfinite(lowest), np.abs(lowest), 0.0))
        return float(self.row_weight @ (above + 1e-3 * size))

    @cached_property
    def lowest_risks(self) -> Array:
        """A lower bound of each context's risk, whatever the parameters."""
        return np.add.reduceat(self.row_weight * self.loss.lowest(self.target), self.starts[:-1])

    @property
    def owner(self) -> NDArray[np.intp]:
        """The context of each row."""
        return np.repeat(np.arange(self.n_contexts), np.diff(self.starts))

    def weights(self, p: Array) -> Array:
        """Return each row's weight in ``sum_c p_c risk_c``."""
        return self.row_weight * np.repeat(p, np.diff(self.starts))

    def transpose_product(self, rows: Array) -> Array:
        """Return ``[X 1]' rows`` raveled like theta, for rows of shape (n, n_outputs)."""
        out = np.empty((self.loss.n_outputs, self.width))
        out[:, : self.X.shape[1]] = (self.X.T @ rows).T
        if self.fit_intercept:
            out[:, -1] = rows.sum(axis=0)
        return out.ravel()

    def product(self, theta: Array) -> Array:
        """Return ``[X 1] theta``, of shape (n, n_outputs)."""
        matrix = theta.reshape(self.loss.n_outputs, self.width)
        z = self.X @ (matrix[:, :-1] if self.fit_intercept else matrix).T
        return np.asarray(z + matrix[:, -1] if self.fit_intercept else z, dtype=np.float64)

    def context_products(self, rows: Array) -> Array:
        """Return each context's ``sum_i rows_i (x) [x_i 1]``, of shape (n_contexts, n_parameters)."""
        blocks = np.empty((self.n_contexts, self.loss.n_outputs, self.width))
        features = blocks[:, :, : self.X.shape[1]]
        if len(rows) >= _MANY_ROWS * self.n_contexts:
            ends, across = self.starts.tolist(), rows.T

            def multiply(contexts: slice) -> None:
                for c in range(contexts.start, contexts.stop):
                    features[c] = across[:, ends[c] : ends[c + 1]] @ some_rows(self.X, ends[c], ends[c + 1])

            if self.X.size < WORTHWHILE:
                multiply(slice(0, self.n_contexts))
            else:
                spread(multiply, parts(self.n_contexts, self.X.size))
        else:
            columns = np.arange(len(rows))
            for k in range(self.loss.n_outputs):
                sums = sparse.csr_array((rows[:, k], columns, self.starts), shape=(self.n_contexts, len(rows)))
                product = sums @ self.X
                features[:, k] = product.toarray() if sparse.issparse(product) else product
        if self.fit_intercept:
            blocks[:, :, -1] = np.add.reduceat(rows, self.starts[:-1], axis=0)
        return blocks.reshape(self.n_contexts, -1)

    def drift(self, direction: Array) -> Array:
        """Return how fast each risk of a hinged loss, without a ridge, changes in the end along a direction."""
        assert isinstance(self.loss, Hinged)
        _, _, left, right = self.loss.pieces(self.target)
        move = self.product(direction)[:, 0]
        return np.add.reduceat(self.row_weight * np.where(move > 0, right, left) * move, self.starts[:-1])

    def random_row(self, context: int, theta: Array, rng: np.random.Generator) -> tuple[float, Array]:
        """Return the loss of one row drawn from a context, with the ridge, and its gradient."""
        first, last = self.starts[context], self.starts[context + 1]
        i = int(rng.choice(np.arange(first, last), p=self.row_weight[first:last]))
        x = self.X[[i]].toarray()[0] if sparse.issparse(self.X) else self.X[i]
        x = np.append(x, 1.0) if self.fit_intercept else x
        matrix = theta.reshape(self.loss.n_outputs, self.width)
        z = matrix @ x if self.loss.n_outputs == 1 else (matrix @ x)[None]
        target = self.target[i : i + 1]
        coefficients = theta * self.penalised
        value = float(self.loss.value(target, z)[0]) + 0.5 * self.alpha * float(coefficients @ coefficients)
        slope = self.loss.gradient(target, z).reshape(-1)
        return value, np.outer(slope, x).ravel() + self.alpha * coefficients

    def start(self) -> Array:
        """Return the constant prediction that learns nothing."""
        return self.predicting(self._constant)

    def at(self, theta: Array) -> LinearPoint:
        """Return what is known at ``theta``."""
        return LinearPoint(self, theta)

    def context(self, c: int) -> LinearOracle:
        """Return the problem of one context alone."""
        return self.subset(np.array([c]))

    def subset(self, contexts: NDArray[np.intp]) -> LinearOracle:
        """Return the problem of some contexts alone."""
        sizes = np.diff(self.starts)[contexts]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        first = self.starts[:-1][contexts]
        rows: slice | NDArray[np.intp] = slice(first[0], first[0] + sizes[0])
        if len(sizes) == 1:
            X = some_rows(self.X, first[0], first[0] + sizes[0])
        else:
            rows = np.arange(starts[-1]) + np.repeat(first - starts[:-1], sizes)
            X = self.X[rows]
        return replace(self, X=X, target=self.target[rows], row_weight=self.row_weight[rows], starts=starts)

    def thinned(self, every: int) -> LinearOracle:
        """Return the problem of one row in so many of each context."""
        sizes = np.diff(self.starts)
        if not sparse.issparse(self.X) and sizes.min() >= 2 * every:
            # Rows at equal distances need no copy.
            starts = -(-self.starts // every)
            weight = self.row_weight[::every]
            weight = weight / np.repeat(np.add.reduceat(weight, starts[:-1]), np.diff(starts))
            together = None if self.together is None else self.together[::every]
            part = replace(self, X=self.X[::every], target=self.target[::every], row_weight=weight, starts=starts)
            return replace(part, together=together)
        kept = (np.arange(len(self.target)) - np.repeat(self.starts[:-1], sizes)) % every == 0
        return self.rows(kept)[0]

    def rows(self, mask: NDArray[np.bool_]) -> tuple[LinearOracle, NDArray[np.intp]]:
        """Return the problem of some rows alone, and the contexts that still have any."""
        sizes = np.add.reduceat(mask, self.starts[:-1], dtype=np.intp)
        present = np.flatnonzero(sizes)
        starts = np.concatenate([[0], np.cumsum(sizes[present])])
        weight = self.row_weight[mask]
        weight = weight / np.repeat(np.add.reduceat(weight, starts[:-1]), sizes[present])
        together = None if self.together is None else self.together[mask]
        part = replace(
            self, X=self.X[mask], target=self.target[mask], row_weight=weight, starts=starts, together=together
        )
        return part, present

    def risks_of_each(self, theta: Array) -> Array:
        """Return the risk of each context under parameters of its own, given as (n_contexts, n_parameters)."""
        rows = self.row_weight * self.losses_of_each(theta)
        return np.asarray(np.add.reduceat(rows, self.starts[:-1]) + self.ridges_of_each(theta))

    def ridges_of_each(self, theta: Array) -> Array:
        """Return what the ridge adds to the risk of each context under parameters of its own."""
        return 0.5 * self.alpha * np.sum(np.square(theta * self.penalised), axis=1)

    def losses_of_each(self, theta: Array) -> Array:
        """Return the loss of each row under the parameters of its context, without the ridge."""
        outputs = self.loss.n_outputs
        matrix = theta.reshape(self.n_contexts, outputs, self.width)
        d = self.X.shape[1]
        z = np.empty((len(self.target), outputs))
        if len(z) >= _MANY_ROWS * self.n_contexts or sparse.issparse(self.X):
            for c, (first, last) in enumerate(zip(self.starts[:-1], self.starts[1:], strict=True)):
                z[first:last] = self.X[first:last] @ matrix[c, :, :d].T
        else:
            owner = self.owner
            step = max(1, LARGEST_BLOCK // max(outputs * d, 1))
            for first in range(0, len(z), step):
                block = slice(first, first + step)
                z[block] = np.einsum("nd,nkd->nk", self.X[block], matrix[owner[block], :, :d])
        if self.fit_intercept:
            z += np.repeat(matrix[:, :, -1], np.diff(self.starts), axis=0)
        return self.loss.value(self.target, z[:, 0] if outputs == 1 else z)


@dataclass(frozen=True, eq=False)
class LinearPoint(BasePoint):
    """Risks of a linear model and their derivatives at one theta."""

    oracle: LinearOracle
    theta: Array

    @cached_property
    def predictions(self) -> Array:
        """Linear predictions: (n,), or (n, n_outputs)."""
        z = self.oracle.product(self.theta)
        return z[:, 0] if self.oracle.loss.n_outputs == 1 else z

    @cached_property
    def coefficients(self) -> Array:
        """Theta with zeros in place of the intercepts."""
        return self.theta * self.oracle.penalised

    @cached_property
    def slopes(self) -> Array:
        """Slope of each row's loss, always (n, n_outputs)."""
        return self.oracle.loss.gradient(self.oracle.target, self.predictions).reshape(len(self.predictions), -1)

    @cached_property
    def risks(self) -> Array:
        """The risk of each context."""
        oracle = self.oracle
        rows = oracle.row_weight * oracle.loss.value(oracle.target, self.predictions)
        ridge = 0.5 * oracle.alpha * float(self.coefficients @ self.coefficients)
        return np.add.reduceat(rows, oracle.starts[:-1]) + ridge

    @cached_property
    def jacobian(self) -> Array:
        """The gradients of the risks."""
        rows = self.oracle.row_weight[:, None] * self.slopes
        return self.oracle.context_products(rows) + self.oracle.alpha * self.coefficients

    def row_curvature(self, p: Array) -> Array:
        """Return each row's curvature times its weight in ``sum_c p_c risk_c``."""
        curvature = self.oracle.loss.curvature(self.oracle.target, self.predictions)
        return curvature * self.oracle.weights(p).reshape((-1,) + (1,) * (curvature.ndim - 1))

    def hessian(self, p: Array) -> Array:
        """Return the Hessian of ``sum_c p_c risk_c``."""
        return self._with_ridge(self.row_curvature(p), p)

    def majorant(self, p: Array) -> Array | None:
        """Return a matrix with which a parabola here lies above ``sum_c p_c risk_c`` everywhere; None if unknown."""
        bend = self.oracle.loss.majorant(self.oracle.target, self.predictions)
        if bend is None:
            return None
        return self._with_ridge(bend * self.oracle.weights(p).reshape((-1,) + (1,) * (bend.ndim - 1)), p)

    def _with_ridge(self, curvature: Array, p: Array) -> Array:
        matrix = self.gram(curvature)
        matrix[np.diag_indices_from(matrix)] += self.oracle.alpha * p.sum() * self.oracle.penalised
        return matrix

    def gram(self, curvature: Array) -> Array:
        """Return ``sum_i curvature_i (x) x_i x_i'``."""
        oracle = self.oracle
        outputs, width = oracle.loss.n_outputs, oracle.width
        if outputs == 1:
            return weighted_gram(oracle.X, curvature, oracle.fit_intercept)
        blocks = np.empty((outputs, width, outputs, width))
        for k in range(outputs):
            for m in range(k + 1):
                block = weighted_gram(oracle.X, curvature[:, k, m], oracle.fit_intercept)
                blocks[k, :, m, :] = block
                blocks[m, :, k, :] = block
        return blocks.reshape(outputs * width, outputs * width)

    def context_hessians(self) -> Array:
        """Return the Hessian of every context's risk, in one pass over the data."""
        contexts = (self.oracle.context(c) for c in range(self.oracle.n_contexts))
        return np.stack([alone.at(self.theta).hessian(np.ones(1)) for alone in contexts])

    def curvature_share(self, other: LinearPoint) -> float:
        """Return how much of any Hessian at the other point is certainly left at this one.

        Along a change ``t`` of a row's prediction, ``|loss'''| <= m loss''`` keeps at least ``exp(-m |t|)`` of its
        curvature; with several outputs ``t`` is the range of the changes.
        """
        steepness = self.oracle.loss.third_order
        if steepness is None:
            return 0.0
        change = self.predictions - other.predictions
        moved = np.abs(change) if change.ndim == 1 else np.ptp(change, axis=1)
        return float(np.exp(-steepness * moved.max()))

    def hessian_product(self, p: Array) -> Callable[[Array], Array]:
        """Return the map ``v -> hessian(p) @ v``."""
        oracle = self.oracle
        curvature = self.row_curvature(p)
        ridge = oracle.alpha * p.sum() * oracle.penalised

        def product(v: Array) -> Array:
            move = oracle.product(v)
            bent = curvature[:, None] * move if curvature.ndim == 1 else np.einsum("nkm,nm->nk", curvature, move)
            return oracle.transpose_product(bent) + ridge * v

        return product

    def hessian_diagonal(self, p: Array) -> Array:
        """Return the diagonal of ``hessian(p)``."""
        oracle = self.oracle
        curvature = self.row_curvature(p)
        own = curvature[:, None] if curvature.ndim == 1 else np.einsum("nkk->nk", curvature)
        out = np.empty((oracle.loss.n_outputs, oracle.width))
        products = squares_product(oracle.X, own) if sparse.issparse(oracle.X) else np.square(oracle.X).T @ own
        out[:, : oracle.X.shape[1]] = products.T
        if oracle.fit_intercept:
            out[:, -1] = own.sum(axis=0)
        return out.ravel() + oracle.alpha * p.sum() * oracle.penalised

    def shortfall(self, gradient: Array) -> float:
        """Return about how far below its value a lower bound will be, where only the ridge proves anything."""
        if self.oracle.forms_hessian or self.oracle.alpha == 0.0:
            return 0.0
        return float(np.sum(np.square(gradient * self.oracle.penalised)) / (2.0 * self.oracle.alpha))

    def lower_bound(self, p: Array, gradient: Array, curvature: Array | None) -> float:
        """Bound the minimum of ``sum_c p_c risk_c`` from below, by what is known here."""
        if curvature is None and self.oracle.forms_hessian:
            curvature = self.hessian(p)
        stack = None if curvature is None else curvature[None]
        bound = linear_bounds.lower_bounds(Mixture(self, p), np.array([p @ self.risks]), gradient[None], stack)
        return float(bound[0])


@dataclass(frozen=True, eq=False)
class Mixture:
    """All contexts as one problem, weighted by a distribution."""

    point: LinearPoint
    p: Array

    @property
    def loss(self) -> Loss:
        return self.point.oracle.loss

    @property
    def alpha(self) -> float:
        return self.point.oracle.alpha

    @property
    def penalised(self) -> Array:
        return self.point.oracle.penalised

    @property
    def reach(self) -> Array:
        return self.point.oracle.reach

    @property
    def target(self) -> Array:
        return self.point.oracle.target

    @property
    def predictions(self) -> Array:
        return self.point.predictions

    @property
    def slopes(self) -> Array:
        return self.point.slopes.reshape(self.point.predictions.shape)

    @cached_property
    def weight(self) -> Array:
        return self.point.oracle.weights(self.p)

    @property
    def coefficients(self) -> Array:
        return self.point.coefficients[None]

    @property
    def theta(self) -> Array:
        return self.point.theta[None]

    def product(self, theta: Array) -> Array:
        z = self.point.oracle.product(theta[0])
        return z[:, 0] if self.loss.n_outputs == 1 else z

    def each(self, values: Array) -> Array:
        return np.broadcast_to(values, (len(self.target), values.shape[1]))

    def total(self, rows: Array) -> Array:
        return np.array([rows.sum()])

    def transpose_product(self, rows: Array) -> Array:
        return self.point.oracle.transpose_product(rows)[None]

    def gram(self, curvature: Array) -> Array:
        return self.point.gram(curvature)[None]
