"""The least risk possible in each context: one fit per context, all of them side by side."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from counterpoise.exceptions import NotCertifiedWarning
from counterpoise.linalg import solve_stack
from counterpoise.losses import Loss, PiecewiseLinear
from counterpoise.objective import ReferenceRisks, RobustObjective
from counterpoise.oracle import LinearOracle
from counterpoise.oracle.linear_bounds import dual_bounds, lower_bounds
from counterpoise.oracle.scalar import ScalarOracle
from counterpoise.sets import KLBall
from counterpoise.solvers import NewtonCG

Array = NDArray[np.float64]

_BATCH_ENTRIES = 1 << 21
"""Padded entries of X handled at once (16 MB)."""

_MAX_ITER = 100


def reference_risks(oracle: LinearOracle, tol: float, theta: Array | None = None) -> ReferenceRisks:
    """Minimise every context's risk on its own.

    Contexts of similar size are padded to one block and solved together by damped Newton steps.

    Parameters
    ----------
    tol : float
        Accuracy asked of each reference, relative to its risk or to the average one if that is larger.
    theta : ndarray of shape (n_parameters,), optional
        Where to start.
    """
    if isinstance(oracle.loss, PiecewiseLinear) and oracle.n_parameters == 1 and oracle.alpha == 0.0:
        return ReferenceRisks.exactly(ScalarOracle.of(oracle).context_minima()[0])
    if not oracle.forms_hessian:
        return _one_by_one(oracle, tol, theta)
    theta = oracle.start() if theta is None else theta
    scale = float(np.mean(np.abs(oracle.at(theta).risks)))
    solve = _solve_polyhedral if isinstance(oracle.loss, PiecewiseLinear) else _solve
    upper, lower = np.empty(oracle.n_contexts), np.empty(oracle.n_contexts)
    for contexts in _batches(oracle):
        upper[contexts], lower[contexts] = solve(_Batch.of(oracle, contexts, theta), tol, scale)
    return ReferenceRisks(upper, np.minimum(lower, upper))


def _one_by_one(oracle: LinearOracle, tol: float, theta: Array | None) -> ReferenceRisks:
    """Minimise each context's risk by the method for many features, where a batch of Hessians has no room."""
    alone, nothing = KLBall(np.ones(1), 0.0), ReferenceRisks.exactly(np.zeros(1))
    bounds = []
    for c in range(oracle.n_contexts):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotCertifiedWarning)
            solution = NewtonCG(tol=tol).solve(RobustObjective(oracle.context(c), alone, nothing), theta)
        bounds.append((solution.certificate.upper, solution.certificate.lower))
    upper, lower = np.array(bounds).T
    return ReferenceRisks(upper, lower)


def _batches(oracle: LinearOracle) -> Iterator[NDArray[np.intp]]:
    """Group contexts whose sizes round up to the same power of two, in blocks of bounded memory."""
    sizes = np.diff(oracle.starts)
    order = np.argsort(sizes, kind="stable")
    padded = 1 << np.ceil(np.log2(sizes[order])).astype(np.intp)
    for length in np.unique(padded):
        alike = order[padded == length]
        step = max(1, _BATCH_ENTRIES // int(length * oracle.width * oracle.loss.n_outputs))
        for first in range(0, len(alike), step):
            yield np.sort(alike[first : first + step])


@dataclass(frozen=True, eq=False)
class _Batch:
    """Contexts padded to equal length with rows of no weight, and one theta each."""

    oracle: LinearOracle
    X: Array
    target: Array
    weight: Array
    theta: Array

    @classmethod
    def of(cls, oracle: LinearOracle, contexts: NDArray[np.intp], theta: Array) -> _Batch:
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
            oracle, X.reshape(*inside.shape, -1), oracle.target[rows], weight, np.tile(theta, (len(contexts), 1))
        )

    def at(self, theta: Array) -> _Batch:
        """Return the same contexts at other parameters."""
        return replace(self, theta=theta)

    def subset(self, keep: NDArray[np.bool_]) -> _Batch:
        """Return some of the contexts."""
        rows = np.repeat(keep, self.X.shape[1])
        return _Batch(self.oracle, self.X[keep], self.target[rows], self.weight[rows], self.theta[keep])

    @property
    def loss(self) -> Loss:
        """The loss."""
        return self.oracle.loss

    @property
    def alpha(self) -> float:
        """The ridge."""
        return self.oracle.alpha

    @property
    def penalised(self) -> Array:
        """1 for coefficients, 0 for intercepts."""
        return self.oracle.penalised

    @cached_property
    def reach(self) -> Array:
        """The largest absolute feature behind each parameter."""
        return self.oracle.reach

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
        matrix = theta.reshape(len(theta), outputs, self.oracle.width)
        z = self.X @ matrix[:, :, :d].transpose(0, 2, 1)
        if self.oracle.fit_intercept:
            z = z + matrix[:, None, :, -1]
        return np.asarray(z.reshape(-1) if outputs == 1 else z.reshape(-1, outputs))

    @cached_property
    def value(self) -> Array:
        """The risk of each context."""
        ridge = 0.5 * self.alpha * np.sum(self.coefficients**2, axis=1)
        return self.total(self.weight * self.loss.value(self.target, self.predictions)) + ridge

    @cached_property
    def gradient(self) -> Array:
        """The gradient of each context's risk."""
        slopes = self.loss.gradient(self.target, self.predictions).reshape(len(self.weight), -1)
        return self.transpose_product(self.weight[:, None] * slopes) + self.alpha * self.coefficients

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

    def total(self, rows: Array) -> Array:
        """Sum rows within each context."""
        return np.asarray(rows.reshape(len(self.theta), -1).sum(axis=1))

    def transpose_product(self, rows: Array) -> Array:
        """Return each context's ``sum_i rows_i (x) x_i``."""
        batch, length, d = self.X.shape
        blocks = rows.reshape(batch, length, -1).transpose(0, 2, 1)
        out = np.empty((batch, self.loss.n_outputs, self.oracle.width))
        out[:, :, :d] = blocks @ self.X
        if self.oracle.fit_intercept:
            out[:, :, -1] = blocks.sum(axis=2)
        return out.reshape(batch, -1)

    def gram(self, curvature: Array) -> Array:
        """Return each context's ``sum_i curvature_i (x) x_i x_i'``."""
        batch, length, d = self.X.shape
        outputs, width = self.loss.n_outputs, self.oracle.width
        bend = curvature.reshape(batch, length, outputs, outputs)
        blocks = np.empty((batch, outputs, width, outputs, width))
        for k in range(outputs):
            for m in range(k + 1):
                weight = bend[:, :, k, m]
                block = np.empty((batch, width, width))
                block[:, :d, :d] = self.X.transpose(0, 2, 1) @ (self.X * weight[:, :, None])
                if self.oracle.fit_intercept:
                    block[:, :d, d] = block[:, d, :d] = np.einsum("bl,bld->bd", weight, self.X)
                    block[:, d, d] = weight.sum(axis=1)
                blocks[:, k, :, m, :] = block
                blocks[:, m, :, k, :] = block
        return blocks.reshape(batch, outputs * width, outputs * width)


def _solve(batch: _Batch, tol: float, scale: float) -> tuple[Array, Array]:
    """Return the least risk reached in each context of a batch, and a lower bound of it."""
    n = len(batch.theta)
    upper, lower = np.full(n, np.inf), np.full(n, -np.inf)
    active = np.arange(n)
    for n_iter in range(_MAX_ITER):
        direction = -solve_stack(batch.hessian, batch.gradient)
        slope = np.einsum("bd,bd->b", batch.gradient, direction)
        upper[active] = np.minimum(upper[active], batch.value)
        accuracy = tol * np.maximum(np.abs(batch.value), scale)
        # Half the squared Newton decrement foretells the bound, which costs more: prove only what looks finished.
        ready = -0.5 * slope <= accuracy
        if n_iter == _MAX_ITER - 1:
            ready[:] = True
        if ready.any():
            at = batch.subset(ready)
            lower[active[ready]] = np.maximum(
                lower[active[ready]], lower_bounds(at, at.value, at.gradient, at.hessian)
            )
        done = upper[active] - lower[active] <= accuracy
        batch, moved = _line_search(batch, direction, slope)
        keep = ~done & (moved | ~ready)
        active = active[keep]
        if active.size == 0:
            break
        if not keep.all():
            batch = batch.subset(keep)
    return upper, lower


def _line_search(batch: _Batch, direction: Array, slope: Array) -> tuple[_Batch, NDArray[np.bool_]]:
    """Move every context, by a step shortened until its risk falls; also tell which ones moved."""
    slack = 1e-15 * np.abs(batch.value)
    length = np.ones(len(slope))
    for attempt in range(12):
        trial = batch.at(batch.theta + length[:, None] * direction)
        with np.errstate(invalid="ignore"):
            fell = trial.value <= batch.value + 1e-4 * length * slope + slack
        if fell.all():
            return trial, fell
        length = np.where(fell, length, 0.5 * length)
        if attempt == 3:
            # Curvature that is there only in part (Huber): a matrix that bounds it from above gives a sure step.
            direction, slope = _majorant_step(batch, ~fell, direction, slope)
            length = np.where(fell, length, 1.0)
    return batch.at(batch.theta + np.where(fell, length, 0.0)[:, None] * direction), fell


def _majorant_step(
    batch: _Batch, stuck: NDArray[np.bool_], direction: Array, slope: Array
) -> tuple[Array, Array]:
    """Replace the directions of stuck contexts by the minimiser of a quadratic upper bound, where there is one."""
    at = batch.subset(stuck)
    bend = at.loss.majorant(at.target, at.predictions)
    if bend is None:
        return direction, slope
    direction, slope = direction.copy(), slope.copy()
    direction[stuck] = -solve_stack(at.regularised(bend), at.gradient)
    slope[stuck] = np.einsum("bd,bd->b", at.gradient, direction[stuck])
    return direction, slope


def _solve_polyhedral(batch: _Batch, tol: float, scale: float) -> tuple[Array, Array]:
    """Return the least risk reached in each context, and a lower bound, for a piecewise linear loss.

    Mehrotra's method on each context's linear program, with the rows eliminated; many contexts move together.
    """
    assert isinstance(batch.loss, PiecewiseLinear)
    rows = _Rows.start(batch)
    n = len(batch.theta)
    upper, lower = np.full(n, np.inf), np.full(n, -np.inf)
    active = np.arange(n)
    for _ in range(_MAX_ITER):
        upper[active] = np.minimum(upper[active], rows.batch.value)
        accuracy = tol * np.maximum(np.abs(upper[active]), scale)
        ready = rows.mu <= 10.0 * accuracy
        if ready.any():
            at = rows.subset(ready)
            bounds = dual_bounds(at.batch, at.v, at.bend, np.ones_like(at.v))
            lower[active[ready]] = np.maximum(lower[active[ready]], bounds)
        keep = (upper[active] - lower[active] > accuracy) & (rows.mu > 1e-6 * accuracy)
        active = active[keep]
        if active.size == 0:
            break
        rows = (rows if keep.all() else rows.subset(keep)).step()
    return upper, lower


@dataclass(frozen=True, eq=False)
class _Rows:
    """The dual variables of every row in a batch: ``v`` between two slopes, ``above`` and ``below`` their prices."""

    batch: _Batch
    v: Array
    above: Array
    below: Array

    @classmethod
    def start(cls, batch: _Batch) -> _Rows:
        """Begin at the least-squares fit to the kinks, every variable well inside."""
        assert isinstance(batch.loss, PiecewiseLinear)
        kink, _, left, right = batch.loss.pieces(batch.target)
        fit = solve_stack(
            batch.regularised(np.ones_like(batch.weight)),
            batch.transpose_product((batch.weight * kink)[:, None]),
        )
        batch = batch.at(fit)
        beyond = batch.predictions - kink
        margin = np.repeat(batch.total(batch.weight * np.abs(beyond)), batch.X.shape[1]) + 1e-300
        return cls(batch, 0.5 * (left + right), np.maximum(beyond, 0.0) + margin, np.maximum(-beyond, 0.0) + margin)

    def subset(self, keep: NDArray[np.bool_]) -> _Rows:
        """Return some of the contexts."""
        rows = np.repeat(keep, self.batch.X.shape[1])
        return _Rows(self.batch.subset(keep), self.v[rows], self.above[rows], self.below[rows])

    @cached_property
    def _ends(self) -> tuple[Array, Array]:
        """Distance of v to its lower and to its upper end."""
        assert isinstance(self.batch.loss, PiecewiseLinear)
        _, _, left, right = self.batch.loss.pieces(self.batch.target)
        return self.v - left, right - self.v

    @cached_property
    def bend(self) -> Array:
        """How readily each row's slope moves."""
        low, high = self._ends
        return 1.0 / (self.above / high + self.below / low)

    @cached_property
    def mu(self) -> Array:
        """The mean product of a variable and its price, for each context."""
        low, high = self._ends
        return 0.5 * self.batch.total(self.batch.weight * (high * self.above + low * self.below))

    def step(self) -> _Rows:
        """Take one predictor-corrector step in every context."""
        low, high = self._ends
        hessian = self.batch.regularised(self.bend)
        affine = self._direction(hessian, -high * self.above, -low * self.below)
        length = np.repeat(self._longest(affine), self.batch.X.shape[1])
        after = (high - length * affine[1]) * (self.above + length * affine[2])
        after = after + (low + length * affine[1]) * (self.below + length * affine[3])
        ratio = 0.5 * self.batch.total(self.batch.weight * after) / self.mu
        target = np.repeat(np.clip(ratio, 0.0, 1.0) ** 3 * self.mu, self.batch.X.shape[1])
        up = target - high * self.above + affine[1] * affine[2]
        down = target - low * self.below - affine[1] * affine[3]
        theta, v, above, below = self._direction(hessian, up, down)
        shortest = np.minimum(1.0, 0.995 * self._longest((theta, v, above, below)))
        length = np.repeat(shortest, self.batch.X.shape[1])
        return _Rows(
            self.batch.at(self.batch.theta + shortest[:, None] * theta),
            self.v + length * v,
            self.above + length * above,
            self.below + length * below,
        )

    def _direction(self, hessian: Array, up: Array, down: Array) -> tuple[Array, Array, Array, Array]:
        """Solve the linearised conditions; ``up`` and ``down`` are what the two products of each row lack."""
        assert isinstance(self.batch.loss, PiecewiseLinear)
        batch, (low, high) = self.batch, self._ends
        kink = batch.loss.pieces(batch.target)[0]
        off = batch.predictions - kink - self.above + self.below - up / high + down / low
        residual = batch.transpose_product((batch.weight * (self.v + self.bend * off))[:, None])
        theta = -solve_stack(hessian, residual + batch.alpha * batch.coefficients)
        v = self.bend * (batch.product(theta) + off)
        return theta, v, (up + self.above * v) / high, (down - self.below * v) / low

    def _longest(self, direction: tuple[Array, Array, Array, Array]) -> Array:
        """Return, for each context, the largest step up to 1 that keeps every variable positive."""
        (low, high), (_, v, above, below) = self._ends, direction
        longest = np.ones(len(self.batch.theta))
        for value, change in ((self.above, above), (self.below, below), (low, v), (high, -v)):
            # Padded rows have no weight and no say.
            shrinks = (change < 0) & (self.batch.weight > 0)
            ratio = np.where(shrinks, -value / np.where(shrinks, change, -1.0), np.inf)
            longest = np.minimum(longest, ratio.reshape(len(longest), -1).min(axis=1))
        return longest
