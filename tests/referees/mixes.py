"""A referee for sets of mixes: the largest expected score by CVXPY and Clarabel, from the sets' definitions alone."""

import cvxpy as cp
import numpy as np

from counterpoise import sets


def conditions(mixes, p):
    """Return what membership means, as CVXPY constraints on the variable ``p``."""
    if isinstance(mixes, sets.Intersection):
        return [one for part in mixes.parts for one in conditions(part, p)]
    if isinstance(mixes, sets.ShareBounds):
        return [p >= mixes.low, p <= mixes.high]
    if isinstance(mixes, sets.ShareLimits):
        return [mixes.A @ p <= mixes.b]
    if isinstance(mixes, sets.Marginal):
        sums = np.arange(mixes.parents.max() + 1)[:, None] == mixes.parents
        return conditions(mixes.mixes, sums.astype(float) @ p)
    if np.isinf(mixes.radius):
        return []
    if isinstance(mixes, sets.TotalVariationBall):
        return [cp.norm1(p - mixes.p_hat) <= 2.0 * mixes.radius]
    seen = mixes.p_hat > 0.0
    if isinstance(mixes, sets.Chi2Ball):
        scaled = cp.multiply(1.0 / np.sqrt(mixes.p_hat[seen]), p[seen] - mixes.p_hat[seen])
        return [cp.sum_squares(scaled) <= mixes.radius, *([] if seen.all() else [p[~seen] == 0.0])]
    centre = mixes.p_hat[seen]
    return [centre @ (np.log(centre) - cp.log(p[seen])) <= np.log(2.0) * mixes.radius]


def largest_expected_score(mixes, scores, n_contexts):
    """Return the value, or None where the solver gives up."""
    p = cp.Variable(n_contexts)
    problem = cp.Problem(cp.Maximize(scores @ p), [cp.sum(p) == 1.0, p >= 0.0, *conditions(mixes, p)])
    for tol in (1e-11, 1e-9):
        try:
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol, max_iter=300)
        except cp.error.SolverError:
            continue
        if problem.status == cp.OPTIMAL:
            return float(problem.value)
    return None


def largest_with_entropy(mixes, scores):
    """Return the distribution that maximises the expected score plus its entropy."""
    p = cp.Variable(len(scores))
    value = scores @ p + cp.sum(cp.entr(p))
    cp.Problem(cp.Maximize(value), [cp.sum(p) == 1.0, p >= 0.0, *conditions(mixes, p)]).solve(solver=cp.CLARABEL)
    return p.value


def largest_log_likelihood(mixes, shares):
    """Return the distribution that maximises ``shares @ log(p)``, or None where the solver gives up."""
    p, counted = cp.Variable(len(shares)), np.flatnonzero(shares)
    value = shares[counted] @ cp.log(p[counted])
    problem = cp.Problem(cp.Maximize(value), [cp.sum(p) == 1.0, p >= 0.0, *conditions(mixes, p)])
    for tol in (1e-12, 1e-10, 1e-9):
        try:
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol, max_iter=300)
        except cp.error.SolverError:
            continue
        if problem.status == cp.OPTIMAL:
            return np.maximum(p.value, 0.0) / np.maximum(p.value, 0.0).sum()
    return None
