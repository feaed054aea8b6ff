"""A model of its own for every context, and the risk it reaches there."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from counterpoise.exceptions import NotCertifiedWarning
from counterpoise.linalg import solve_stack
from counterpoise.losses import Hinged
from counterpoise.objective import ReferenceRisks, RobustObjective
from counterpoise.oracle import Oracle
from counterpoise.oracle._base import Array
from counterpoise.oracle.batch import BATCH_ENTRIES, LONG, Batch, batches
from counterpoise.oracle.linear import LinearOracle
from counterpoise.oracle.polyhedral import PolyhedralOracle
from counterpoise.oracle.scalar import ScalarOracle
from counterpoise.oracle.strips import Strips
from counterpoise.references import newton, polyhedral
from counterpoise.sets import KLBall
from counterpoise.solvers import Newton, NewtonCG, PolyhedralInteriorPoint, Solver
from counterpoise.solvers.interior_point import rough_erm
from counterpoise.threads import spread

MANY_ROWS = 400_000
"""Rows from which a first answer is sought with a part of them."""

STRIP = 128
"""Rows of a context from which it is not padded."""

_FEW = 16
"""Contexts for which padding does not pay, however short."""

THINNED = 10
"""One row in so many, then."""


@dataclass(frozen=True, eq=False)
class Specialists:
    """The model that is best for each context alone.

    Attributes
    ----------
    risks : ReferenceRisks
        What each reaches in its own context.
    theta : ndarray of shape (n_contexts, n_parameters)
    """

    risks: ReferenceRisks
    theta: Array


def reference_risks(oracle: LinearOracle, tol: float) -> ReferenceRisks:
    """Minimise every context's risk on its own; see :func:`fit_specialists`."""
    return fit_specialists(oracle, tol).risks


def fit_specialists(oracle: LinearOracle, tol: float) -> Specialists:
    """Minimise every context's risk on its own.

    Contexts of similar size are padded to one block and solved together.

    Parameters
    ----------
    tol : float
        Accuracy asked of each reference, relative to how far the risks are above their lower bounds on average.
    """
    if ScalarOracle.suits(oracle):
        least, theta = ScalarOracle.of(oracle).context_minima()
        return Specialists(ReferenceRisks.exactly(least), theta[:, None])
    first = oracle.start()
    upper, lower = np.empty(oracle.n_contexts), np.empty(oracle.n_contexts)
    theta = np.empty((oracle.n_contexts, oracle.n_parameters))
    alone = _too_large_to_pad(oracle)
    for k in np.flatnonzero(alone):
        upper[k], lower[k], theta[k] = _solve_alone(oracle.context(int(k)), tol)
    if alone.all():
        return Specialists(ReferenceRisks(upper, lower), theta)
    together = np.flatnonzero(~alone)
    padded = oracle if not alone.any() else oracle.subset(together)
    solve = polyhedral.solve if isinstance(oracle.loss, Hinged) else newton.solve
    floor = np.where(np.isfinite(padded.lowest_risks), padded.lowest_risks, 0.0)
    scale = max(float(np.mean(np.abs(padded.at(first).risks - floor))), 1e-3 * oracle.typical_risk)
    long = np.zeros(padded.n_contexts, dtype=bool)
    if solve is newton.solve and len(padded.target) >= MANY_ROWS:
        first = rough_pooled(padded)
        if oracle.loss.third_order is not None and not sparse.issparse(padded.X):
            long = np.diff(padded.starts) >= max(LONG, 4 * padded.n_parameters)
    if long.any():
        found = spread(
            lambda k: newton.settle(Batch.of(padded, np.array([k]), first), tol, scale), np.flatnonzero(long)
        )
        c = together[long]
        upper[c], lower[c], theta[c] = (np.concatenate(part) for part in zip(*found, strict=True))
    strips = np.zeros_like(long)
    if solve is newton.solve and not sparse.issparse(padded.X):
        strips = ~long & (np.diff(padded.starts) >= STRIP)
        short = ~long & ~strips
        if short.sum() < _FEW:
            strips |= short & (np.diff(padded.starts) >= padded.n_parameters)
    if strips.any():
        c = together[strips]
        upper[c], lower[c], theta[c] = newton.solve(Strips.of(padded, np.flatnonzero(strips), first), tol, scale)
    blocks = list(batches(padded, ~long & ~strips))
    each = spread(lambda block: _solve_together(solve, Batch.of(padded, block, first), tol, scale), blocks)
    for block, found_there in zip(blocks, each, strict=True):
        c = together[block]
        upper[c], lower[c], theta[c] = found_there
    reached = max(float(np.mean(np.abs(upper[together] - floor))), 1e-3 * oracle.typical_risk)
    if reached < 1e-2 * scale:
        # Data that every context fits (nearly) perfectly: then the references set the scale.
        for block in batches(padded):
            # No accuracy is finer than that of a hundredth of the scale.
            block = block[upper[together[block]] - lower[together[block]] > 1e-2 * tol * reached]
            if block.size == 0:
                continue
            c = together[block]
            batch = Batch.of(padded, block, first)
            if solve is newton.solve:
                batch = batch.at(theta[c])
            least, proven, where = _solve_together(solve, batch, tol, reached)
            better = least < upper[c]
            upper[c[better]], theta[c[better]] = least[better], where[better]
            # What was proven stays so, where closer to the minimum rounding leaves no proof.
            lower[c] = np.maximum(lower[c], proven)
    return Specialists(ReferenceRisks(upper, np.minimum(lower, upper)), theta)


def rough_pooled(oracle: LinearOracle) -> Array:
    """Return about the parameters that are best for all rows, by a part of them."""
    some, sizes = oracle.thinned(THINNED), np.diff(oracle.starts)
    objective = RobustObjective(some, KLBall(sizes / sizes.sum(), 0.0), ReferenceRisks.exactly(np.zeros(len(sizes))))
    return rough_erm(objective, some.start()).theta


def _solve_together(
    solve: Callable[[Batch, float, float], tuple[Array, Array, Array]], batch: Batch, tol: float, scale: float
) -> tuple[Array, Array, Array]:
    """Minimise the risks of a batch, in as few parameters as its rows allow."""
    small, basis = batch.condensed()
    upper, lower, theta = solve(small if basis is None else _past_all_rows(small), tol, scale)
    return upper, lower, small.expanded(theta, basis)


def _past_all_rows(batch: Batch) -> Batch:
    """Return contexts of few rows at parameters that serve every row of them, where that is better.

    As many features as rows can be led to any predictions; step by step it is a long way there.
    """
    wish = batch.loss.beyond(batch.target)
    if wish is None:
        return batch
    n, length, d = batch.X.shape
    rows = solve_stack(batch.X @ batch.X.transpose(0, 2, 1), wish.reshape(n, length))
    theta = np.zeros_like(batch.theta)
    theta[:, :d] = np.einsum("bl,bld->bd", rows, batch.X)
    z, ridge = batch.product(theta), 0.5 * batch.alpha * np.sum(theta**2, axis=1)
    far = np.array([2.0, 4.0, 8.0, 16.0])
    values = [batch.total(batch.weight * batch.loss.value(batch.target, k * z)) + k * k * ridge for k in far]
    best = np.argmin(values, axis=0)
    better = np.min(values, axis=0) < batch.value
    return batch.at(np.where(better[:, None], far[best][:, None] * theta, batch.theta))


def _too_large_to_pad(oracle: LinearOracle) -> NDArray[np.bool_]:
    """Mark contexts to be solved one by one: a batch has no room for their Hessian, or would fill in their zeros."""
    if not oracle.forms_hessian:
        return np.ones(oracle.n_contexts, dtype=bool)
    if not sparse.issparse(oracle.X):
        return np.zeros(oracle.n_contexts, dtype=bool)
    return np.diff(oracle.starts) * oracle.X.shape[1] > BATCH_ENTRIES


def _solve_alone(oracle: LinearOracle, tol: float) -> tuple[float, float, Array]:
    """Minimise the risk of the only context there is."""
    form: Oracle = oracle
    solver: Solver = Newton(tol=tol) if oracle.forms_hessian else NewtonCG(tol=tol)
    if oracle.forms_hessian and isinstance(oracle.loss, Hinged):
        form, solver = PolyhedralOracle(oracle), PolyhedralInteriorPoint(tol=tol)
    point, nothing = KLBall(np.ones(1), 0.0), ReferenceRisks.exactly(np.zeros(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotCertifiedWarning)
        solution = solver.solve(RobustObjective(form, point, nothing))
    return solution.certificate.upper, solution.certificate.lower, solution.theta
