"""The least risk possible in each context: one fit per context, all of them side by side."""

from __future__ import annotations

import warnings

import numpy as np

from counterpoise.exceptions import NotCertifiedWarning
from counterpoise.losses import Hinged
from counterpoise.objective import ReferenceRisks, RobustObjective
from counterpoise.oracle.batch import Batch, batches
from counterpoise.oracle.linear import LinearOracle
from counterpoise.oracle.scalar import ScalarOracle
from counterpoise.references import newton, polyhedral
from counterpoise.sets import KLBall
from counterpoise.solvers import NewtonCG


def reference_risks(oracle: LinearOracle, tol: float) -> ReferenceRisks:
    """Minimise every context's risk on its own.

    Contexts of similar size are padded to one block and solved together.

    Parameters
    ----------
    tol : float
        Accuracy asked of each reference, relative to how far the risks are above their lower bounds on average.
    """
    if ScalarOracle.suits(oracle):
        return ReferenceRisks.exactly(ScalarOracle.of(oracle).context_minima()[0])
    if not oracle.forms_hessian:
        return _one_by_one(oracle, tol)
    theta = oracle.start()
    solve = polyhedral.solve if isinstance(oracle.loss, Hinged) else newton.solve
    upper, lower = np.empty(oracle.n_contexts), np.empty(oracle.n_contexts)
    floor = np.where(np.isfinite(oracle.lowest_risks), oracle.lowest_risks, 0.0)
    scale = max(float(np.mean(np.abs(oracle.at(theta).risks - floor))), 1e-3 * oracle.typical_risk)
    # A second pass is for data that every context fits (nearly) perfectly: then the references set the scale.
    for _ in range(2):
        for contexts in batches(oracle):
            upper[contexts], lower[contexts] = solve(Batch.of(oracle, contexts, theta), tol, scale)
        reached = max(float(np.mean(np.abs(upper - floor))), 1e-3 * oracle.typical_risk)
        if not reached < 1e-2 * scale:
            break
        scale = reached
    return ReferenceRisks(upper, np.minimum(lower, upper))


def _one_by_one(oracle: LinearOracle, tol: float) -> ReferenceRisks:
    """Minimise each context's risk by the method for many features, where a batch of Hessians has no room."""
    alone, nothing = KLBall(np.ones(1), 0.0), ReferenceRisks.exactly(np.zeros(1))
    bounds = []
    for c in range(oracle.n_contexts):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotCertifiedWarning)
            solution = NewtonCG(tol=tol).solve(RobustObjective(oracle.context(c), alone, nothing))
        bounds.append((solution.certificate.upper, solution.certificate.lower))
    upper, lower = np.array(bounds).T
    return ReferenceRisks(upper, lower)
