"""Rigorous lower bounds of linear models' risks, from points near their minima.

Everything here is about a stack of B problems: one weighted mixture of all contexts, or many contexts side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from counterpoise.linalg import solve_stack
from counterpoise.losses import Hinged, Loss
from counterpoise.oracle import decrease
from counterpoise.oracle._base import Array

_BALANCED = 1e-11
"""Share of the summed slopes that may be left over in a dual point before it is not feasible but unfinished."""

CUTS = (1e-3, 1e-5, 1e-7, 1e-9, 1e-11)
"""What is left of a loss is taken as lost below these."""


class Ridged(Protocol):
    """What B problems are at their parameters, beside their rows."""

    @property
    def alpha(self) -> float:
        """The ridge."""

    @property
    def penalised(self) -> Array:
        """1 for coefficients, 0 for intercepts, of shape (P,)."""

    @property
    def reach(self) -> Array:
        """The largest absolute feature behind each parameter, of shape (P,)."""

    @property
    def theta(self) -> Array:
        """The parameters, of shape (B, P)."""

    @property
    def coefficients(self) -> Array:
        """Theta with zeros in place of the intercepts, of shape (B, P)."""


class RowProblems(Ridged, Protocol):
    """B linear problems ``sum_i weight_i loss(target_i, x_i'theta_b) + alpha/2 |coef_b|^2`` at given theta.

    Rows of all problems are in one flat sequence of length n.
    """

    @property
    def loss(self) -> Loss:
        """The loss."""

    @property
    def target(self) -> Array:
        """Targets of all rows."""

    @property
    def predictions(self) -> Array:
        """Predictions of all rows."""

    @property
    def slopes(self) -> Array:
        """Slopes of all rows' losses at their predictions, of the same shape."""

    @property
    def weight(self) -> Array:
        """Weights of all rows, of shape (n,)."""

    def total(self, rows: Array) -> Array:
        """Sum rows within each problem: (n,) -> (B,)."""

    def each(self, values: Array) -> Array:
        """Repeat each problem's values for its rows: (B, k) -> (n, k)."""

    def product(self, theta: Array) -> Array:
        """Return each row's ``x_i'theta_b``: (B, P) -> (n,), or (n, n_outputs)."""

    def transpose_product(self, rows: Array) -> Array:
        """Return each problem's ``sum_i rows_i (x) x_i``: (n, n_outputs) -> (B, P)."""

    def gram(self, curvature: Array) -> Array:
        """Return each problem's ``sum_i curvature_i (x) x_i x_i'``: (n, ...) -> (B, P, P)."""


def lower_bounds(problems: RowProblems, value: Array, gradient: Array, curvature: Array | None) -> Array:
    """Bound the minimum of each problem from below.

    Parameters
    ----------
    value, gradient : ndarray of shape (B,) and (B, P)
        At the current theta.
    curvature : ndarray of shape (B, P, P) or None
        Not above the Hessians; None where they are too large to form.
    """
    loss = problems.loss
    floor = lowest(problems)
    remaining = np.full(len(value), np.inf)
    slopes = problems.slopes
    if curvature is not None and loss.third_order is not None:
        size = _size(problems, slopes)
        remaining = decrease.self_concordant(gradient, size, curvature, problems.reach, loss.third_order)
    bound = np.maximum(floor, value - remaining)
    if isinstance(loss, Hinged):
        if curvature is None:
            return np.maximum(bound, _ridge(problems)) if problems.alpha > 0.0 else bound
        bend = loss.curvature(problems.target, problems.predictions)
        return np.maximum(bound, dual_bounds(problems, slopes, bend, np.ones(len(slopes))))
    unproven = ~np.isfinite(remaining)
    if not unproven.any():
        return bound
    if not unproven.all() and curvature is not None and hasattr(problems, "subset"):
        # What follows costs more, and is for those alone.
        some = problems.subset(unproven)
        bound[unproven] = lower_bounds(some, value[unproven], gradient[unproven], curvature[unproven])
        return bound
    if problems.alpha > 0.0 and _ridge_may_help(problems, gradient, value - floor):
        bound = np.maximum(bound, _ridge(problems))
    if curvature is not None and loss.third_order:
        bound = np.maximum(bound, _truncated(problems, loss.third_order))
    return bound


def lowest(problems: RowProblems) -> Array:
    """Bound each problem by the lower bounds of its rows; where data are separable this is the bound that works."""
    return _floor(problems, problems.weight)


def _floor(problems: RowProblems, weight: Array) -> Array:
    """Return the sums of the rows' lower bounds."""
    # A row that has none, and no weight, is not there.
    floor = np.where(weight > 0.0, problems.loss.lowest(problems.target), 0.0)
    return problems.total(weight * floor)


def _ridge_may_help(problems: RowProblems, gradient: Array, above: Array) -> bool:
    """Tell whether :func:`_ridge` can say more of any problem than that its risk is ``above`` its lowest.

    Bringing an intercept to its minimum shifts the slopes of all rows to the same side, by what its gradient is in sum;
    so no other entry of the gradient changes by more than that times the reach of its feature.
    """
    held, limit = gradient * problems.penalised, 2.0 * problems.alpha * above
    if problems.loss.n_outputs > 1 or (np.sum(held**2, axis=1) < limit).any():
        return True
    shift = np.abs(gradient * (1.0 - problems.penalised)).sum(axis=1)[:, None] * problems.reach
    kept = np.maximum(np.abs(held) - shift, 0.0)
    return bool((np.sum(kept**2, axis=1) < limit).any())


def _ridge(problems: RowProblems) -> Array:
    """Bound by strong convexity in the coefficients: the minimum is at most ``|gradient|^2 / (2 alpha)`` below.

    The intercepts are not penalised, so they are brought to their own minimum first; what rounding leaves of their
    gradient is charged at the size of the predictions, the cost of making the dual point exactly feasible.
    """
    loss, weight = problems.loss, problems.weight[:, None]
    intercept = 1.0 - problems.penalised
    z = problems.predictions.copy()
    shape = (len(z), loss.n_outputs)
    if intercept.any():
        z = _centre_intercepts(problems, z)
    slopes = loss.gradient(problems.target, z).reshape(shape)
    gradient = problems.transpose_product(weight * slopes) + problems.alpha * problems.coefficients
    squares = np.sum((gradient * problems.penalised) ** 2, axis=1)
    unbalanced = np.abs(gradient * intercept).sum(axis=1)
    value = problems.total(problems.weight * loss.value(problems.target, z))
    value = value + 0.5 * problems.alpha * np.sum(problems.coefficients**2, axis=1)
    value = np.where(unbalanced <= 1e-9 * problems.total(problems.weight * np.abs(slopes).max(axis=1)), value, -np.inf)
    return value - squares / (2.0 * problems.alpha) - unbalanced * float(np.abs(z).max())


def _centre_intercepts(problems: RowProblems, z: Array) -> Array:
    """Return predictions shifted, problem by problem, to where the intercepts' gradient vanishes."""
    loss, outputs = problems.loss, problems.loss.n_outputs
    for _ in range(60):
        slopes = loss.gradient(problems.target, z).reshape(len(z), outputs)
        bend = loss.curvature(problems.target, z).reshape(len(z), outputs, -1)
        pull = np.stack([problems.total(problems.weight * slopes[:, k]) for k in range(outputs)], axis=1)
        stiff = np.stack([problems.total(problems.weight * bend[:, k, k]) for k in range(outputs)], axis=1)
        # Coordinate-wise steps, at most one unit long: no loss here bends by more than e within that.
        step = -pull / np.maximum(stiff, 1e-12 * np.abs(pull) + 1e-300)
        if outputs > 1:
            step = 0.5 * step
        step = np.clip(step, -1.0, 1.0)
        if float(np.abs(step).max()) <= 1e-15 * (1.0 + float(np.abs(z).max())):
            break
        move = problems.each(step)
        z = z + (move[:, 0] if z.ndim == 1 else move)
    return z


def _size(problems: RowProblems, slopes: Array) -> Array:
    """Return, for each problem and parameter, a bound of the terms that are summed into the gradient."""
    rows = np.abs(slopes) if slopes.ndim == 1 else np.abs(slopes).max(axis=1)
    pull = problems.total(problems.weight * rows)[:, None]
    return pull * problems.reach + problems.alpha * np.abs(problems.coefficients)


def _truncated(problems: RowProblems, third_order: float) -> Array:
    """Bound the minimum where part of the loss vanishes only at infinity (separable data, a class never seen).

    That part is replaced by its infimum, and self-concordance is asked of the rest, which does have a minimum. What
    vanishes shows only near the infimum, so several cuts are tried.
    """
    loss, weight = problems.loss, problems.weight
    best = np.full(len(problems.coefficients), -np.inf)
    diagonal = np.arange(problems.coefficients.shape[1])
    ridge = 0.5 * problems.alpha * np.sum(problems.coefficients**2, axis=1)
    whole = loss.gradient(problems.target, problems.predictions)
    before: Array | None = None
    for cut in CUTS:
        value, slopes, bend = loss.truncated(problems.target, problems.predictions, cut)
        if np.array_equal(slopes, whole):
            # Nothing is lost, nor below smaller cuts.
            break
        if before is not None and np.array_equal(slopes, before):
            continue
        before = slopes
        gradient = problems.transpose_product(weight[:, None] * slopes.reshape(len(weight), -1))
        gradient = gradient + problems.alpha * problems.coefficients
        curvature = problems.gram(bend * weight.reshape((-1,) + (1,) * (bend.ndim - 1)))
        curvature[:, diagonal, diagonal] += problems.alpha * problems.penalised
        size = _size(problems, slopes)
        remaining = decrease.self_concordant(gradient, size, curvature, problems.reach, third_order)
        best = np.maximum(best, problems.total(weight * value) + ridge - remaining)
    return best


def dual_bounds(problems: RowProblems, v: Array, bend: Array, share: Array) -> Array:
    """Bound the minimum of problems with a hinged loss from below by a feasible point of their dual.

    Parameters
    ----------
    v : ndarray of shape (n,)
        A slope for each row, times ``share``; it need not be feasible yet.
    bend : ndarray of shape (n,)
        How readily each row's slope moves.
    share : ndarray of shape (n,)
        Factor of the loss's slopes and height: the probability of the row's context.
    """
    slopes = RowSlopes.inside(problems, v, bend, share)
    bound = balanced_bounds(slopes, slopes.gram, problems)
    # Row by row the loss is bounded below, which is all there is to know where every row can be met.
    return np.maximum(bound, _floor(problems, problems.weight * share))


class Slopes(Protocol):
    """A slope for every row of B problems, which may be moved; what they add up to."""

    @property
    def pull(self) -> Array:
        """Each problem's ``sum_i weight_i v_i x_i``, of shape (B, P)."""

    @property
    def size(self) -> Array:
        """Each problem's ``sum_i weight_i |v_i|``."""

    @property
    def value(self) -> Array:
        """The dual value of each problem at its theta, without the ridge."""

    def moved(self, move: Array) -> Slopes:
        """Return slopes moved against ``x_i'move_b``, each as readily as its row bends, and kept inside."""


@dataclass(frozen=True, eq=False)
class Ridge:
    """The ridge of problems at given parameters."""

    alpha: float
    penalised: Array
    reach: Array
    theta: Array

    @classmethod
    def of(cls, oracle: Any, theta: Array) -> Ridge:
        """Return the ridge of a linear oracle."""
        return cls(oracle.alpha, oracle.penalised, oracle.reach, theta)

    @property
    def coefficients(self) -> Array:
        return self.theta * self.penalised


def balanced_bounds(slopes: Slopes, gram: Array, problems: Ridged) -> Array:
    """Move slopes until they balance against the ridge, and return the bounds that they then are.

    Parameters
    ----------
    gram : ndarray of shape (B, P, P)
        The weighted Gram matrices of how readily rows move. The ridge is added to it in place.
    """
    alpha, penalised, shrunk = problems.alpha, problems.penalised, problems.coefficients
    diagonal = np.arange(gram.shape[1])
    gram[:, diagonal, diagonal] += alpha * penalised
    for _ in range(12):
        # Rows are moved, each as far as its curvature allows, until they balance against the ridge.
        residual = slopes.pull + alpha * shrunk
        off = np.any(np.abs(residual) > 1e-16 * slopes.size[:, None] * problems.reach, axis=1, keepdims=True)
        if not off.any():
            break
        # What is balanced stays so: where rows move readily, a move by rounding alone would throw them about.
        move = np.where(off, solve_stack(gram, residual), 0.0)
        shrunk = shrunk - move * penalised
        slopes = slopes.moved(move)
    pull, size = slopes.pull, slopes.size[:, None] * problems.reach
    free = np.abs(pull if alpha == 0.0 else pull * (1.0 - penalised))
    for _ in range(2):
        if alpha == 0.0 or (free <= _BALANCED * size).all():
            break
        # With a ridge only the intercept has to balance; moved alone, it is out of reach of the others' rounding.
        stiff = gram[:, diagonal, diagonal]
        slopes = slopes.moved(np.where(stiff > 0.0, pull * (1.0 - penalised) / np.where(stiff > 0.0, stiff, 1.0), 0.0))
        pull, size = slopes.pull, slopes.size[:, None] * problems.reach
        free = np.abs(pull * (1.0 - penalised))
    # What rounding leaves unbalanced is charged over a range of the size of theta itself.
    value = slopes.value - np.sum(free * np.abs(problems.theta), axis=1)
    if alpha > 0.0:
        held = pull * penalised
        value = value - np.sum(held * problems.theta, axis=1) - np.sum(held**2, axis=1) / (2.0 * alpha)
    return np.where((free <= _BALANCED * size).all(axis=1), value, -np.inf)


@dataclass(frozen=True, eq=False)
class RowSlopes:
    """The slopes of rows at hand; see :func:`dual_bounds`."""

    problems: RowProblems
    v: Array
    bend: Array
    share: Array

    @classmethod
    def inside(cls, problems: RowProblems, v: Array, bend: Array, share: Array) -> RowSlopes:
        """Return slopes cut off where they leave their interval."""
        left, right = cls(problems, v, bend, share)._ends
        return cls(problems, np.clip(v, left, right), bend, share)

    @cached_property
    def _ends(self) -> tuple[Array, Array]:
        assert isinstance(self.problems.loss, Hinged)
        _, _, left, right = self.problems.loss.pieces(self.problems.target)
        return left * self.share, right * self.share

    @property
    def gram(self) -> Array:
        """How readily each problem's rows move."""
        return self.problems.gram(self.problems.weight * self.bend)

    @cached_property
    def pull(self) -> Array:
        return self.problems.transpose_product((self.problems.weight * self.v)[:, None])

    @cached_property
    def size(self) -> Array:
        return self.problems.total(np.abs(self.problems.weight * self.v))

    @property
    def value(self) -> Array:
        problems = self.problems
        assert isinstance(problems.loss, Hinged)
        hinge, height, _, _ = problems.loss.pieces(problems.target)
        # A context of no probability has no slope either; 0 / 0 is 0.
        bowl = 0.5 * problems.loss.softness * self.v**2 / np.maximum(self.share, np.finfo(np.float64).tiny)
        return problems.total(problems.weight * (self.share * height + self.v * (problems.predictions - hinge) - bowl))

    def moved(self, move: Array) -> RowSlopes:
        v = np.clip(self.v - self.bend * self.problems.product(move), *self._ends)
        return RowSlopes(self.problems, v, self.bend, self.share)
