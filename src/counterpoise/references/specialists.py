"""A model of its own for every context, and the risk it reaches there."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from counterpoise.exceptions import NotCertifiedWarning
from counterpoise.linalg import pseudo_inverse, solve_stack
from counterpoise.losses import Hinged
from counterpoise.objective import ReferenceRisks, RobustObjective
from counterpoise.oracle import Oracle
from counterpoise.oracle._base import Array
from counterpoise.oracle.batch import BATCH_ENTRIES, LONG, Batch, batches
from counterpoise.oracle.linear import LinearOracle, LinearPoint
from counterpoise.oracle.polyhedral import PolyhedralOracle
from counterpoise.oracle.scalar import ScalarOracle
from counterpoise.oracle.strips import Strips
from counterpoise.references import newton, polyhedral
from counterpoise.sets import KLBall
from counterpoise.solvers import Newton, NewtonCG, PolyhedralInteriorPoint, Solver, TruncatedNewton
from counterpoise.solvers.interior_point import rough_erm
from counterpoise.threads import one_thread, spread

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


def reference_risks(oracle: LinearOracle, tol: float, sketch: LinearPoint | None = None) -> ReferenceRisks:
    """Minimise every context's risk on its own; see :func:`fit_specialists`."""
    return fit_specialists(oracle, tol, sketch).risks


def fit_specialists(oracle: LinearOracle, tol: float, sketch: LinearPoint | None = None) -> Specialists:
    """Minimise every context's risk on its own.

    Contexts of similar size are padded to one block and solved together.

    Parameters
    ----------
    tol : float
        Accuracy asked of each reference, relative to how far the risks are above their lower bounds on average.
    sketch : LinearPoint, optional
        What :func:`sketched` says of these rows.
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
    flat = padded.at(first)
    scale = max(float(np.mean(np.abs(flat.risks - floor))), 1e-3 * oracle.typical_risk)
    if solve is newton.solve:
        upper[together], lower[together], theta[together] = _solve_smooth(flat, tol, scale, sketch)
    else:
        for block in batches(padded):
            c = together[block]
            upper[c], lower[c], theta[c] = solve(Batch.of(padded, block, first), tol, scale)
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


def sketched(oracle: LinearOracle, counts: Array) -> LinearPoint | None:
    """Return about the best parameters for all rows, as a part of them has it where rows are many.

    None where that is not known at once: without a Hessian, or with kinks.
    """
    if not oracle.forms_hessian or isinstance(oracle.loss, Hinged) or ScalarOracle.suits(oracle):
        return None
    some = oracle.thinned(THINNED) if len(oracle.target) >= MANY_ROWS else oracle
    nothing = ReferenceRisks.exactly(np.zeros(len(counts)))
    point = rough_erm(RobustObjective(some, KLBall(counts / counts.sum(), 0.0), nothing), some.start())
    assert isinstance(point, LinearPoint)
    return point


def _solve_smooth(
    flat: LinearPoint, tol: float, scale: float, sketch: LinearPoint | None
) -> tuple[Array, Array, Array]:
    """Minimise every risk by Newton steps: the longest contexts one by one, long ones as they lie, others padded.

    They begin at the sketch, or at a constant prediction (``flat``) where that is better.
    """
    oracle = flat.oracle

    def begun(kind: type[Batch], contexts: NDArray[np.intp]) -> Batch:
        if sketch is None:
            return kind.of(oracle, contexts, flat.theta)
        batch = kind.of(oracle, contexts, sketch.theta)
        better = batch.value < flat.risks[contexts]
        return batch if better.all() else batch.at(np.where(better[:, None], sketch.theta, flat.theta))

    sizes, dense = np.diff(oracle.starts), not sparse.issparse(oracle.X)
    longest = np.zeros(len(sizes), dtype=bool)
    if sketch is not None and len(oracle.target) >= MANY_ROWS and dense and oracle.loss.third_order is not None:
        longest = sizes >= max(LONG, 4 * oracle.n_parameters)
    strips = ~longest & (sizes >= STRIP) & dense
    short = ~longest & ~strips
    if dense and short.sum() < _FEW:
        strips |= short & (sizes >= oracle.n_parameters)
    blocks: list[NDArray[np.intp]] = []
    found: list[tuple[Array, Array, Array]] = []
    if longest.any():
        assert sketch is not None
        alike = pseudo_inverse(sketch.hessian(sizes / sizes.sum())[None])[0]
        blocks += [np.array([k]) for k in np.flatnonzero(longest)]
        # Each step is too short for threads. A twentieth of what is asked of the fit will do, where more is a look at
        # many rows.
        with one_thread():
            found += [newton.settle(begun(Batch, k), 5.0 * tol, scale, alike) for k in blocks]
    if strips.any():
        blocks.append(np.flatnonzero(strips))
        found.append(newton.solve(begun(Strips, blocks[-1]), tol, scale))
    padded = list(batches(oracle, ~longest & ~strips))
    found += spread(lambda block: _solve_together(newton.solve, begun(Batch, block), tol, scale), padded)
    back = np.argsort(np.concatenate(blocks + padded))
    upper, lower, theta = (np.concatenate(part)[back] for part in zip(*found, strict=True))
    return upper, lower, theta


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
    solvers: list[type[Solver]] = [Newton]
    if not oracle.forms_hessian:
        solvers = by_products(oracle)
    elif isinstance(oracle.loss, Hinged):
        form, solvers = PolyhedralOracle(oracle), [PolyhedralInteriorPoint]
    point, nothing = KLBall(np.ones(1), 0.0), ReferenceRisks.exactly(np.zeros(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotCertifiedWarning)
        solutions = []
        for solver in solvers:
            solutions.append(solver(tol=tol).solve(RobustObjective(form, point, nothing)))
            if solutions[-1].success:
                break
    best = min(solutions, key=lambda solution: solution.certificate.relative_gap)
    return best.certificate.upper, best.certificate.lower, best.theta


def by_products(oracle: LinearOracle) -> list[type[Solver]]:
    """Return the solvers for more parameters than a square matrix can have, the fastest first."""
    # Without a ridge nothing is proven there, and without curvature there is nothing to take products with.
    flat = isinstance(oracle.loss, Hinged) and oracle.loss.softness == 0.0
    return [NewtonCG] if flat or oracle.alpha == 0.0 else [TruncatedNewton, NewtonCG]
