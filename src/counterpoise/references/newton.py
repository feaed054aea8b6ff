"""Smooth losses: damped Newton steps in every context at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from counterpoise.linalg import pseudo_inverse, solve_stack
from counterpoise.oracle._base import Array
from counterpoise.oracle.batch import Batch
from counterpoise.oracle.linear_bounds import lower_bounds, lowest

_MAX_ITER = 100

_POOR = 0.3
"""Share of the squared Newton decrement that may be left by a step with a Hessian that serves."""


def solve(batch: Batch, tol: float, scale: float) -> tuple[Array, Array, Array]:
    """Return the least risk reached in each context of a batch, a lower bound of it, and where it was reached."""
    n = len(batch.theta)
    upper, lower, theta = np.full(n, np.inf), lowest(batch), batch.theta.copy()
    active = np.arange(n)
    for n_iter in range(_MAX_ITER):
        direction = -solve_stack(batch.hessian, batch.gradient)
        slope = np.einsum("bd,bd->b", batch.gradient, direction)
        better = batch.value < upper[active]
        upper[active[better]], theta[active[better]] = batch.value[better], batch.theta[better]
        accuracy = tol * np.clip(batch.above, 1e-2 * scale, scale)
        # Half the squared Newton decrement foretells the bound, which costs more: prove only what looks finished.
        ready = -0.5 * slope <= accuracy
        if n_iter == _MAX_ITER - 1:
            ready[:] = True
        if ready.any():
            at = batch.subset(ready)
            bounds = lower_bounds(at, at.value, at.gradient, batch.hessian[ready])
            lower[active[ready]] = np.maximum(lower[active[ready]], bounds)
        keep = upper[active] - lower[active] > accuracy
        # The bound is as good as a step further on; so is the value there, up to rounding.
        last = ~keep & (-slope > 1e-14 * np.abs(batch.value))
        if last.any():
            there = batch.subset(last)
            there = there.at(there.theta + direction[last])
            better, c = there.value < upper[active[last]], active[last]
            upper[c[better]], theta[c[better]] = there.value[better], there.theta[better]
        if not keep.all():
            active, batch, direction, slope, ready = (
                active[keep],
                batch.subset(keep),
                direction[keep],
                slope[keep],
                ready[keep],
            )
        if active.size == 0:
            break
        batch, moved = _line_search(batch, direction, slope)
        keep = moved | ~ready
        if not keep.all():
            active, batch = active[keep], batch.subset(keep)
        if active.size == 0:
            break
    return upper, lower, theta


def settle(batch: Batch, tol: float, scale: float, alike: Array | None = None) -> tuple[Array, Array, Array]:
    """Do the same for one context of many rows, whose Hessian costs several gradients: it is kept while it serves.

    Steps correct it by what gradients have shown since; and a share of it, known from how far predictions have moved,
    is below the Hessian wherever the proof is given. The first step is taken with the inverse of one that may be
    ``alike``, so that its own is that of a better point.
    """
    third_order = batch.loss.third_order
    assert third_order is not None
    if alike is not None:
        there = batch.at(batch.theta - batch.gradient @ alike)
        batch = there if there.value[0] < batch.value[0] else batch
    inverse, before = None, np.inf
    for _ in range(_MAX_ITER):
        if inverse is None:
            hessian, base = batch.hessian, batch.predictions
            inverse = pseudo_inverse(hessian)[0]
        direction = -batch.gradient @ inverse
        slope = np.einsum("bd,bd->b", batch.gradient, direction)
        promised = -0.5 * float(slope[0])
        if promised <= tol * scale:
            share = _kept(batch.predictions - base, third_order)
            accuracy = float(tol * np.clip(batch.above, 1e-2 * scale, scale)[0])
            if promised <= share * accuracy:
                bound = lower_bounds(batch, batch.value, batch.gradient, share * hessian)
                if batch.value[0] - bound[0] <= accuracy:
                    return batch.value, bound, batch.theta
        elif promised > _POOR * before:
            # It serves no longer.
            inverse, before = None, np.inf
            continue
        there = batch.at(batch.theta + direction)
        # A slope along the step that has all but vanished tells as much as the values, which cost more.
        with np.errstate(invalid="ignore"):
            ahead = abs(float(there.gradient[0] @ direction[0]))
        if not ahead <= promised:
            there, moved = _line_search(batch, direction, slope)
            if not moved.all():
                break
        change, bend = there.theta[0] - batch.theta[0], there.gradient[0] - batch.gradient[0]
        inverse = _corrected(inverse, change, bend)
        batch, before = there, promised
    return solve(batch, tol, scale)


def _kept(moves: Array, third_order: float) -> float:
    """Return the share of a row's curvature that is certainly left after such moves of predictions."""
    moved = np.abs(moves) if moves.ndim == 1 else np.ptp(moves, axis=1)
    return float(np.exp(-third_order * moved.max()))


def _corrected(inverse: Array, change: Array, bend: Array) -> Array:
    """Return the inverse Hessian corrected to map a change of the gradient to the move behind it (BFGS)."""
    along = float(change @ bend)
    # A move as short as rounding shows nothing.
    if not along > 1e-100:
        return inverse
    image = inverse @ bend
    cross = np.outer(image, change / along)
    return inverse + (1.0 + float(bend @ image) / along) * np.outer(change, change / along) - cross - cross.T


def _line_search(batch: Batch, direction: Array, slope: Array) -> tuple[Batch, NDArray[np.bool_]]:
    """Move every context, by a step shortened until its risk falls; also tell which ones moved."""
    slack = 1e-15 * np.abs(batch.value)
    length = np.ones(len(slope))
    for attempt in range(50):
        trial = batch.at(batch.theta + length[:, None] * direction)
        with np.errstate(invalid="ignore"):
            fell = trial.value <= batch.value + 1e-4 * length * slope + slack
        if fell.all():
            return trial, fell
        length = np.where(fell, length, 0.5 * length)
        if attempt == 3:
            # Far from the minimum the curvature can mislead; a matrix that bounds it from above gives a sure step.
            direction, slope = _majorant_step(batch, ~fell, direction, slope)
            length = np.where(fell, length, 1.0)
    return batch.at(batch.theta + np.where(fell, length, 0.0)[:, None] * direction), fell


def _majorant_step(batch: Batch, stuck: NDArray[np.bool_], direction: Array, slope: Array) -> tuple[Array, Array]:
    """Replace the directions of stuck contexts by the minimiser of a quadratic upper bound, where there is one."""
    at = batch.subset(stuck)
    bend = at.loss.majorant(at.target, at.predictions)
    if bend is None:
        return direction, slope
    direction, slope = direction.copy(), slope.copy()
    direction[stuck] = -solve_stack(at.regularised(bend), at.gradient)
    slope[stuck] = np.einsum("bd,bd->b", at.gradient, direction[stuck])
    return direction, slope
