"""Rigorous lower bounds of linear models' risks, from points near their minima.

Everything here is about a stack of B problems: one weighted mixture of all contexts, or many contexts side by side.
"""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np

from counterpoise.core.oracle._base import Array
from counterpoise.linalg import Stack, as_stack
from counterpoise.losses import Loss
from counterpoise.rows import Mask, Slopes

_ROUNDING = 1e-13
"""Share of the terms that were summed into a gradient below which what is left of them is rounding."""

_BALANCED = 1e-11
"""Share of the summed slopes that may be left over in a dual point before it is not feasible but unfinished."""

_CUTS = (1e-3, 1e-5, 1e-7, 1e-9, 1e-11)
"""What is left of a loss is taken as lost below these."""


class Ridged(Protocol):
    """B problems with a ridge, at given parameters."""

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


class Problems(Ridged, Protocol):
    """B linear problems ``sum_i weight_i loss(target_i, x_i'theta_b) + alpha/2 |coef_b|^2`` at given theta."""

    @property
    def loss(self) -> Loss:
        """The loss."""

    @property
    def at_hand(self) -> bool:
        """Whether a look at the rows is cheap."""

    @property
    def lowest(self) -> Array:
        """The least that rows allow, of shape (B,); minus infinity where there is none."""

    @property
    def value(self) -> Array:
        """Values, of shape (B,)."""

    @property
    def gradient(self) -> Array:
        """Gradients, of shape (B, P)."""

    @property
    def hessian(self) -> Stack:
        """Hessians."""

    @property
    def sizes(self) -> Array:
        """Mean absolute slopes, of shape (B,)."""

    def truncated(self, cut: float) -> Problems:
        """Return problems whose loss lies below; see :meth:`counterpoise.losses.Loss.truncated`."""

    def centred(self) -> Problems:
        """Return the problems with the intercepts brought to their own minimum, where rows are at hand."""

    def slopes(self) -> Slopes:
        """Return the slopes of a hinged loss."""

    def subset(self, keep: Mask) -> Self:
        """Return some of the problems."""


def lower_bounds(problems: Any, gradient: Array, curvature: Stack | None) -> Array:
    """Bound the minimum of each problem from below.

    Parameters
    ----------
    problems : Problems
    gradient : ndarray of shape (B, P)
        What remains of the gradient once the multipliers of active bounds are taken off.
    curvature : Stack or None
        Not above the Hessians; None where they are too large to form.
    """
    loss, value, floor = problems.loss, problems.value, problems.lowest
    if loss.is_hinged:
        if curvature is None:
            return np.maximum(floor, _by_ridge(problems)) if problems.alpha > 0.0 else floor
        if not _is_worth_a_pass(problems, gradient, curvature, 0.1):
            return floor
        return np.maximum(floor, balanced_bounds(problems.slopes(), problems))
    remaining = np.full(len(value), np.inf)
    if curvature is not None and loss.third_order is not None:
        remaining = promised_at_most(problems, gradient, curvature)
    bound = np.maximum(floor, value - remaining)
    unproven = ~np.isfinite(remaining)
    if not unproven.any():
        return bound
    if not unproven.all() and curvature is not None:
        # What follows costs more, and is for those alone.
        bound[unproven] = lower_bounds(problems.subset(unproven), gradient[unproven], curvature[unproven])
        return bound
    if problems.at_hand and problems.alpha > 0.0 and _ridge_may_help(problems, gradient, value - floor):
        bound = np.maximum(bound, _by_ridge(problems))
    if curvature is not None and loss.third_order and _is_worth_a_pass(problems, gradient, curvature, 1e-4):
        bound = np.maximum(bound, _truncated(problems, loss.third_order))
    return bound


def promised_at_most(problems: Any, gradient: Array, curvature: Stack) -> Array:
    """Return how far below its value the minimum of each problem may be, by curvature alone; inf where it is unknown.

    The problems have a smooth loss that is generalised self-concordant; see :func:`self_concordant`.
    """
    loss = problems.loss
    return self_concordant(gradient, _size(problems), curvature, problems.reach, loss.third_order, loss.n_outputs)


def _is_worth_a_pass(problems: Problems, gradient: Array, curvature: Stack, share: float) -> bool:
    """Tell whether Newton steps promise little beside what is left above the floor, where passes are not cheap."""
    if problems.at_hand:
        return True
    promised = 0.5 * np.einsum("bd,bd->b", gradient, curvature.solve(gradient))
    return bool((promised <= share * np.abs(problems.value - problems.lowest)).any())


def _ridge_may_help(problems: Problems, gradient: Array, above: Array) -> bool:
    """Tell whether :func:`_by_ridge` can say more of any problem than that its risk is ``above`` its lowest.

    Bringing an intercept to its minimum shifts the slopes of all rows to the same side, by what its gradient is in sum;
    so no other entry of the gradient changes by more than that times the reach of its feature.
    """
    held, limit = gradient * problems.penalised, 2.0 * problems.alpha * above
    if problems.loss.n_outputs > 1 or (np.sum(held**2, axis=1) < limit).any():
        return True
    shift = np.abs(gradient * (1.0 - problems.penalised)).sum(axis=1)[:, None] * problems.reach
    kept = np.maximum(np.abs(held) - shift, 0.0)
    return bool((np.sum(kept**2, axis=1) < limit).any())


def _by_ridge(problems: Problems) -> Array:
    """Bound by strong convexity in the coefficients: the minimum is at most ``|gradient|^2 / (2 alpha)`` below.

    The intercepts are not penalised, so they are brought to their own minimum first; what rounding leaves of their
    gradient is charged at the size of the predictions, the cost of making the dual point exactly feasible.
    """
    return bounds_of_balanced(problems.centred() if (problems.penalised == 0.0).any() else problems)


def bounds_of_balanced(problems: Any) -> Array:
    """Return the bounds by the ridge alone of problems whose intercepts are at their own minimum."""
    squares = np.sum((problems.gradient * problems.penalised) ** 2, axis=1)
    unbalanced = np.abs(problems.gradient * (1.0 - problems.penalised)).sum(axis=1)
    value = np.where(unbalanced <= 1e-9 * problems.sizes, problems.value, -np.inf)
    return value - squares / (2.0 * problems.alpha) - unbalanced * problems.largest_prediction


def _size(problems: Problems) -> Array:
    """Return, for each problem and parameter, a bound of the terms that are summed into the gradient."""
    return problems.sizes[:, None] * problems.reach + problems.alpha * np.abs(problems.theta * problems.penalised)


def _truncated(problems: Problems, third_order: float) -> Array:
    """Bound the minimum where part of the loss vanishes only at infinity (separable data, a class never seen).

    That part is replaced by its infimum, and self-concordance is asked of the rest, which does have a minimum. What
    vanishes shows only near the infimum, so several cuts are tried.
    """
    best, whole = np.full(len(problems.value), -np.inf), problems.gradient
    before: Array | None = None
    for cut in _CUTS:
        rest = problems.truncated(cut)
        if np.array_equal(rest.gradient, whole):
            # Nothing is lost, nor below smaller cuts.
            break
        if before is not None and np.array_equal(rest.gradient, before):
            continue
        before = rest.gradient
        outputs = problems.loss.n_outputs
        left = self_concordant(rest.gradient, _size(rest), rest.hessian, problems.reach, third_order, outputs)
        best = np.maximum(best, rest.value - left)
    return best


def balanced_bounds(slopes: Slopes, problems: Ridged) -> Array:
    """Move slopes until they balance against the ridge, and return the bounds that they then are."""
    alpha, penalised, shrunk = problems.alpha, problems.penalised, problems.theta * problems.penalised
    gram = as_stack(slopes.gram).plus_diagonal(alpha * penalised)
    for _ in range(12):
        # Rows are moved, each as far as its curvature allows, until they balance against the ridge.
        residual = slopes.pull + alpha * shrunk
        off = np.any(np.abs(residual) > 1e-16 * slopes.size[:, None] * problems.reach, axis=1, keepdims=True)
        if not off.any():
            break
        # What is balanced stays so: where rows move readily, a move by rounding alone would throw them about.
        move = np.where(off, gram.solve(residual), 0.0)
        shrunk = shrunk - move * penalised
        slopes = slopes.moved(move)
    pull, size = slopes.pull, slopes.size[:, None] * problems.reach
    free = np.abs(pull if alpha == 0.0 else pull * (1.0 - penalised))
    for _ in range(2):
        if alpha == 0.0 or (free <= _BALANCED * size).all():
            break
        # With a ridge only the intercept has to balance; moved alone, it is out of reach of the others' rounding.
        stiff = gram.diagonals()
        slopes = slopes.moved(np.where(stiff > 0.0, pull * (1.0 - penalised) / np.where(stiff > 0.0, stiff, 1.0), 0.0))
        pull, size = slopes.pull, slopes.size[:, None] * problems.reach
        free = np.abs(pull * (1.0 - penalised))
    # What rounding leaves unbalanced is charged over a range of the size of theta itself.
    value = slopes.value - np.sum(free * np.abs(problems.theta), axis=1)
    if alpha > 0.0:
        held = pull * penalised
        value = value - np.sum(held * problems.theta, axis=1) - np.sum(held**2, axis=1) / (2.0 * alpha)
    return np.where((free <= _BALANCED * size).all(axis=1), value, -np.inf)


def self_concordant(
    gradient: Array, size: Array, curvature: Stack | Array, reach: Array, third_order: float, n_outputs: int = 1
) -> Array:
    r"""Bound for a generalised self-concordant function.

    It is :math:`F(\theta) = \sum_i w_i \ell_i(x_i^\top \theta)` plus a quadratic, with
    :math:`|\ell'''| \le m\,\ell''`.

    Along any step of length :math:`r` in the norm of the Hessian the function curves at least like
    :math:`(e^{-Sr} + Sr - 1)/S^2`, where :math:`S = m \max_i \|x_i\|_{H^{-1}}`; minimising over :math:`r` against the
    slope :math:`-\delta r`, :math:`\delta` the Newton decrement, leaves
    :math:`(q + (1 - q) \log(1 - q)) / S^2` with :math:`q = \delta S < 1`. As :math:`S \to 0` it is
    :math:`\delta^2 / 2`.

    Parameters
    ----------
    gradient, size : ndarray of shape (B, d)
        The gradients, and the size of the terms that were summed into them.
    curvature : Stack, or ndarray of shape (B, d, d)
        The Hessians, or anything below them.
    reach : ndarray of shape (d,)
        :math:`\max_i |x_{ij}|`; it gives :math:`\max_i \|x_i\|^2_{H^{-1}} \le` ``reach @ abs(inverse) @ reach``.
    third_order : float
        :math:`m`.
    n_outputs : int
        Predictions per row. Of several, what counts is how far a step moves any two of them apart: what they have in
        common changes no loss.
    """
    # Next to a vanishing curvature the numbers overflow, and infinity is what they mean.
    with np.errstate(over="ignore", invalid="ignore"):
        decrement, stretch = _decrement_and_stretch(gradient, size, as_stack(curvature), reach, n_outputs)
        slope = third_order * stretch
        q = decrement * slope
        # q + (1-q) log(1-q) = q^2/2 + q^3/6 + ... cancels for small q; there the remainder is below q^4/6.
        series = decrement**2 * (0.5 + q / 6.0 + q**2 / 6.0)
        inside = np.clip(q, 1e-3, 1.0 - 1e-16)
        exact = (inside + (1.0 - inside) * np.log1p(-inside)) / np.where(slope > 0, slope, 1.0) ** 2
    return np.where(np.isnan(q), np.inf, np.where(q < 1e-3, series, np.where(q < 1.0, exact, np.inf)))


def _decrement_and_stretch(
    gradient: Array, size: Array, curvature: Stack, reach: Array, n_outputs: int
) -> tuple[Array, Array]:
    """Return the Newton decrement, and how far a unit step can move a prediction; NaN where neither means anything.

    A gradient that points where there is no curvature at all promises a decrease without end. Up to rounding it does
    not, where the function has a minimum.
    """
    inverse = curvature.inverse()
    step = inverse.product(gradient)
    step = step + inverse.product(gradient - curvature.product(step))
    left = np.abs(gradient - curvature.product(step))
    known = (left <= _ROUNDING * size).all(axis=1) & np.isfinite(step).all(axis=1)
    decrement2 = np.einsum("bi,bi->b", gradient, step)
    stretch2 = inverse.absolute_forms(reach, n_outputs)
    decrement, stretch = (np.sqrt(np.maximum(x, 0.0)) for x in (decrement2, stretch2))
    return np.where(known, decrement, np.nan), np.where(known, stretch, np.nan)
