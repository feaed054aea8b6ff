"""Rigorous lower bounds of a linear model's weighted risk, from one point near its minimum."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from counterpoise.linalg import positive_solver
from counterpoise.losses import Softened
from counterpoise.oracle import decrease
from counterpoise.oracle._base import Array

if TYPE_CHECKING:
    from counterpoise.oracle.linear import LinearPoint


def lower_bound(point: LinearPoint, p: Array, gradient: Array, curvature: Array | None) -> float:
    """Bound the minimum over theta of ``sum_c p_c risk_c`` from below; ``p`` sums to one."""
    oracle, loss = point.oracle, point.oracle.loss
    # Row by row the loss is bounded below; where data are separable this is the bound that works.
    floor = float(p @ oracle.lowest_risks)
    if isinstance(loss, Softened):
        return max(floor, _sharp(point, p, loss))
    value = float(p @ point.risks)
    best = math.inf
    if oracle.forms_hessian:
        if curvature is None:
            curvature = point.hessian(p)
        if loss.third_order is not None:
            best = decrease.self_concordant(gradient, curvature, oracle.reach, loss.third_order)
        elif loss.quadratic_reach is not None:
            best = _piecewise_quadratic(point, p, gradient, curvature, loss.quadratic_reach)
    if not math.isfinite(best):
        if oracle.alpha > 0.0:
            best = _ridge(point, p, value)
        elif oracle.forms_hessian and loss.third_order is not None:
            best = _nearly_separable(point, p, value)
    return max(floor, value - best)


def _ridge(point: LinearPoint, p: Array, value: float) -> float:
    """Bound the decrease by strong convexity in the coefficients: ``|gradient|^2 / (2 alpha)``.

    The intercepts are not penalised, so they are brought to their own minimum first; what rounding leaves of their
    gradient is charged at the size of the predictions, the cost of making the dual point exactly feasible.
    """
    oracle, loss = point.oracle, point.oracle.loss
    weight = oracle.weights(p)[:, None]
    z = point.predictions.reshape(len(weight), -1).copy()
    slopes = point.slopes

    def shaped(predictions: Array) -> Array:
        return predictions[:, 0] if loss.n_outputs == 1 else predictions

    if oracle.fit_intercept:
        for _ in range(50):
            slopes = loss.gradient(oracle.target, shaped(z)).reshape(z.shape)
            total = (weight * slopes).sum(axis=0)
            bend = loss.curvature(oracle.target, shaped(z)).reshape(len(z), z.shape[1], -1)
            bend = (weight[:, :, None] * bend).sum(axis=0)
            step = np.linalg.lstsq(bend + 1e-15 * np.trace(bend) * np.eye(len(bend)), -total, rcond=None)[0]
            # A step of one changes the curvature of every loss here by at most e, so Newton cannot run away.
            step *= min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-300)) if loss.third_order else 1.0
            if float(np.abs(step).max()) <= 1e-14 * (1.0 + float(np.abs(z).max())):
                break
            z += step
        slopes = loss.gradient(oracle.target, shaped(z)).reshape(z.shape)
    gradient = oracle.transpose_product(weight * slopes) + oracle.alpha * point.coefficients
    coefficients = gradient * oracle.penalised
    intercepts = float(np.abs(gradient * (1.0 - oracle.penalised)).sum())
    centred = float(weight[:, 0] @ loss.value(oracle.target, shaped(z)))
    centred += 0.5 * oracle.alpha * float(point.coefficients @ point.coefficients)
    remaining = float(coefficients @ coefficients) / (2.0 * oracle.alpha) + intercepts * float(np.abs(z).max())
    return value - centred + remaining


def _piecewise_quadratic(point: LinearPoint, p: Array, gradient: Array, curvature: Array, reach: float) -> float:
    """Bound the decrease of a Huber-like loss by the rows that stay in their quadratic piece."""
    oracle = point.oracle
    best = decrease.piecewise_quadratic(gradient, curvature, oracle.reach, math.inf)
    inner = reach - np.abs(point.slopes[:, 0])
    # Rows that may leave their piece are left out; how far predictions may move depends on who is left in.
    for margin in (1e-3, 1e-6, 1e-9):
        weight = np.where(inner >= margin * reach, oracle.weights(p), 0.0)
        fixed = point.gram(weight)
        fixed[np.diag_indices_from(fixed)] += oracle.alpha * oracle.penalised
        bound = decrease.piecewise_quadratic(gradient, fixed, oracle.reach, margin * reach)
        if math.isfinite(bound):
            return max(bound, best)
    return math.inf


def _nearly_separable(point: LinearPoint, p: Array, value: float) -> float:
    """Bound the decrease where some rows' loss vanishes at infinity.

    Their loss is replaced by its lower bound, and self-concordance is asked of the other rows alone, which do have a
    minimum. Which rows these are shows only near the infimum, so several cuts are tried.
    """
    oracle, loss = point.oracle, point.oracle.loss
    assert loss.third_order is not None
    weight = oracle.weights(p)
    above = loss.value(oracle.target, point.predictions) - loss.lowest(oracle.target)
    slopes = point.slopes
    curvature = loss.curvature(oracle.target, point.predictions)
    best = math.inf
    for cut in (1e-3, 1e-5, 1e-7, 1e-9, 1e-11):
        kept = np.where(above > cut, weight, 0.0)
        if not kept.any():
            return float(weight @ above)
        dropped = float((weight - kept) @ above)
        if dropped >= best:
            continue
        gradient = oracle.transpose_product(kept[:, None] * slopes)
        bent = curvature * kept.reshape((-1,) + (1,) * (curvature.ndim - 1))
        rest = decrease.self_concordant(gradient, point.gram(bent), oracle.reach, loss.third_order)
        best = min(best, dropped + rest)
    return best


def _sharp(point: LinearPoint, p: Array, loss: Softened) -> float:
    """Bound the minimum of the sharp piecewise linear problem through the slopes of the softened one.

    The slopes are between the sharp loss's two, so after one Newton correction, which makes them balance, they are a
    feasible point of the dual linear program.
    """
    oracle = point.oracle
    weight = oracle.weights(p)
    kink, height, left, right = loss.sharp.pieces(oracle.target)
    slopes = point.slopes[:, 0]
    bend = loss.curvature(oracle.target, point.predictions)
    gradient = oracle.transpose_product((weight * slopes)[:, None]) + oracle.alpha * point.coefficients
    for _ in range(3):
        hessian = point.gram(weight * bend)
        hessian[np.diag_indices_from(hessian)] += oracle.alpha * oracle.penalised
        move = positive_solver(hessian)(gradient)
        corrected = slopes - bend * oracle.product(move)[:, 0]
        if not ((corrected < left) | (corrected > right)).any():
            break
        # Rows that would leave the interval are pinned to its end, and the others balance without them.
        slopes = np.clip(corrected, left, right)
        bend = np.where((slopes > left) & (slopes < right), bend, 0.0)
        gradient = oracle.transpose_product((weight * slopes)[:, None]) + oracle.alpha * (point.coefficients - move)
        return -math.inf if not math.isfinite(float(gradient @ gradient)) else _dual_value(
            point, weight, kink, height, slopes
        )
    return _dual_value(point, weight, kink, height, corrected)


def _dual_value(point: LinearPoint, weight: Array, kink: Array, height: Array, slopes: Array) -> float:
    """Minimise ``sum weight (height + slope (x'theta - kink)) + ridge`` over theta; minus infinity if unbounded."""
    oracle = point.oracle
    residual = oracle.transpose_product((weight * slopes)[:, None])
    value = float(weight @ (height + slopes * (point.predictions - kink)))
    free = residual if oracle.alpha == 0.0 else residual * (1.0 - oracle.penalised)
    # Balanced up to rounding in the sums, or not at all.
    size = oracle.transpose_product(np.abs(weight * slopes)[:, None]) if not hasattr(oracle.X, "tocsr") else None
    tolerance = 1e-9 * oracle.reach * float(np.abs(weight * slopes).sum()) if size is None else 1e-9 * np.abs(size)
    if (np.abs(free) > np.maximum(tolerance, 1e-300)).any():
        return -math.inf
    if oracle.alpha > 0.0:
        penalised = residual * oracle.penalised
        value -= float(penalised @ point.theta) + float(penalised @ penalised) / (2.0 * oracle.alpha)
    return value
