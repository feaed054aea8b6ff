"""References of rows that are elsewhere: damped Newton steps in all contexts at once, one pass for each."""

from __future__ import annotations

import numpy as np

from counterpoise.objective import ReferenceRisks
from counterpoise.oracle._base import Array
from counterpoise.oracle.summed import EachPoint, SummedOracle
from counterpoise.references.specialists import Specialists

_MAX_ITER = 60


def summed_specialists(oracle: SummedOracle, tol: float, start: Array | None = None) -> Specialists:
    """Minimise every context's risk on its own.

    Parameters
    ----------
    tol : float
        Accuracy asked of each reference, relative to how far the risks are above their lower bounds on average.
    start : ndarray of shape (n_parameters,), optional
        Where all contexts begin, such as the empirical risk minimiser.
    """
    first = oracle.start() if start is None else start
    point = oracle.each(np.tile(first, (oracle.n_contexts, 1)))
    upper, lower = point.value.copy(), oracle.lowest_risks.copy()
    best = point.theta.copy()
    scale = max(float(np.mean(np.abs(upper - _finite(lower)))), 1e-3 * oracle.typical_risk)
    last, left = best.copy(), np.full(oracle.n_contexts, np.inf)
    done = np.zeros(oracle.n_contexts, dtype=bool)
    for _ in range(_MAX_ITER):
        direction = -oracle.rows.solve(point.hessian, point.gradient)
        slope = np.einsum("cd,cd->c", point.gradient, direction)
        better = point.value <= upper
        upper, best = np.where(better, point.value, upper), np.where(better[:, None], point.theta, best)
        accuracy = tol * np.clip(upper - _finite(oracle.lowest_risks), 1e-2 * scale, scale)
        # Half the squared Newton decrement foretells the bound, which costs more: prove only what looks finished.
        ready = np.flatnonzero((-0.5 * slope <= accuracy) & (upper - lower > accuracy))
        if ready.size:
            lower[ready] = np.maximum(lower[ready], np.minimum(point.lower_bounds(ready), upper[ready]))
        open_ = upper - lower > accuracy
        # The bound is as good as a step further on; so is the value there, up to rounding.
        last, left = np.where(done[:, None], last, point.theta + direction), np.where(done, left, -slope)
        done |= ~open_
        if not open_.any():
            break
        # Those that are done stay where they are.
        point, moved = _stepped(oracle, point, direction * open_[:, None], slope * open_)
        if not moved:
            break
    if (done & (left > 1e-14 * np.abs(upper))).any():
        value = oracle.each(last).value
        better = done & (value < upper)
        upper, best = np.where(better, value, upper), np.where(better[:, None], last, best)
    return Specialists(ReferenceRisks(upper, np.minimum(lower, upper)), best)


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, 0.0)


def _stepped(oracle: SummedOracle, point: EachPoint, direction: Array, slope: Array) -> tuple[EachPoint, bool]:
    """Move every context by a step that is shortened until its risk falls; a pass for each attempt."""
    length = np.ones(len(slope))
    # Sums that are added up in another order every time differ by this much.
    slack = 1e-13 * np.abs(point.value)
    for _ in range(40):
        trial = oracle.each(point.theta + length[:, None] * direction)
        with np.errstate(invalid="ignore"):
            fell = trial.value <= point.value + 1e-4 * length * slope + slack
        if fell.all():
            return trial, True
        length = np.where(fell, length, 0.25 * length)
    length = np.where(fell, length, 0.0)
    return oracle.each(point.theta + length[:, None] * direction), bool((length > 0).any())
