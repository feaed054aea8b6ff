"""Convex-program referee: minimise over theta the worst-case expected criterion, as one CVXPY problem."""

import math
import warnings
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

from .worst_case import worst_case

_TOLERANCES = (1e-11, 1e-10, 1e-9, 1e-8, 1e-7)
# The solver's optimum and an evaluation from scratch at its theta must agree this well.
_CONSISTENCY = 1e-8
# The exchange method aims at the first gap and refuses to answer beyond the second.
_GAP_TARGET, _GAP_LIMIT = 1e-11, 1e-8
_MAX_CUTS = 60


@dataclass(frozen=True)
class RobustSolution:
    """Optimal value (evaluated afresh at theta), a minimiser and the reference risk of each context."""

    value: float
    theta: np.ndarray
    reference_risks: np.ndarray


@dataclass(frozen=True)
class _Problem:
    loss: str
    design: np.ndarray
    y: np.ndarray
    groups: list
    weights: list
    p_hat: np.ndarray
    alpha: float
    fit_intercept: bool
    params: dict


def _convex_loss(problem, z, rows):
    """Return the vector of losses of ``rows`` as a DCP expression."""
    loss, params, y = problem.loss, problem.params, problem.y[rows]
    if loss == "logistic":
        return cp.logistic(z) - cp.multiply(y, z)
    if loss == "multinomial":
        onehot = np.eye(params["n_classes"])[y.astype(int)]
        return cp.log_sum_exp(z, axis=1) - cp.sum(cp.multiply(onehot, z), axis=1)
    if loss == "squared":
        return 0.5 * cp.square(z - y)
    if loss == "huber":
        # cp.huber is r^2 in the middle, twice the usual convention.
        return 0.5 * cp.huber(z - y, params["delta"])
    if loss == "poisson":
        return cp.exp(z) - cp.multiply(y, z)
    if loss == "pinball":
        q = params["quantile"]
        return q * cp.pos(y - z) + (1 - q) * cp.pos(z - y)
    if loss == "newsvendor":
        return cp.multiply(y[:, 0], z) - params["price"] * cp.minimum(z, y[:, 1])
    raise ValueError(f"unknown loss {loss!r}")


def _numeric_loss(problem, z, rows):
    """Return the vector of losses of ``rows`` in floating point, written apart from the CVXPY form."""
    loss, params, y = problem.loss, problem.params, problem.y[rows]
    if loss == "logistic":
        return (1 - y) * np.logaddexp(0, z) + y * np.logaddexp(0, -z)
    if loss == "multinomial":
        return np.logaddexp.reduce(z - z[np.arange(len(z)), y.astype(int)][:, None], axis=1)
    if loss == "squared":
        return 0.5 * (z - y) ** 2
    if loss == "huber":
        r, delta = np.abs(z - y), params["delta"]
        return np.where(r <= delta, 0.5 * r * r, delta * r - 0.5 * delta * delta)
    if loss == "poisson":
        return np.exp(z) - y * z
    if loss == "pinball":
        q = params["quantile"]
        return np.where(z >= y, (1 - q) * (z - y), q * (y - z))
    if loss == "newsvendor":
        return z * y[:, 0] - params["price"] * np.minimum(z, y[:, 1])
    raise ValueError(f"unknown loss {loss!r}")


def variable(problem):
    width = problem.design.shape[1]
    return cp.Variable((problem.params["n_classes"], width) if problem.loss == "multinomial" else width)


def penalty(problem, theta):
    width = problem.design.shape[1] - int(problem.fit_intercept)
    if problem.alpha == 0 or width == 0:
        return 0.0
    coef = theta[..., :width]
    if isinstance(theta, cp.Expression):
        return 0.5 * problem.alpha * cp.sum_squares(coef)
    return 0.5 * problem.alpha * float(np.sum(coef * coef))


def _data_risk(problem, theta, c, pointwise):
    """Return the weighted mean loss in context ``c``; ``pointwise`` picks the symbolic or numeric loss."""
    rows = problem.groups[c]
    design = problem.design[rows]
    z = design @ (theta.T if problem.loss == "multinomial" else theta)
    return problem.weights[c] @ pointwise(problem, z, rows)


def _risks(problem, theta):
    """Return every penalised context risk at a numeric theta."""
    data = [_data_risk(problem, theta, c, _numeric_loss) for c in range(len(problem.groups))]
    return np.array(data) + penalty(problem, theta)


def minimise(objective, constraints=()):
    """Solve with Clarabel, relaxing the tolerance only when a tighter one is not met."""
    program = cp.Problem(cp.Minimize(objective), list(constraints))
    if not program.is_dcp():
        raise ValueError("the program is not DCP")
    failure = None
    for tol in _TOLERANCES:
        options = {f"tol_{kind}": tol for kind in ("gap_abs", "gap_rel", "feas")}
        options |= {"tol_ktratio": tol, "max_iter": 500}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program.solve(solver=cp.CLARABEL, **options)
        except cp.SolverError as error:
            failure = error
            continue
        if program.status == cp.OPTIMAL:
            return float(program.value)
        failure = program.status
        if program.status in (cp.UNBOUNDED, cp.INFEASIBLE):
            break
    if program.status == cp.OPTIMAL_INACCURATE:
        # The callers compare this with an evaluation of their own.
        return float(program.value)
    raise ArithmeticError(f"Clarabel did not solve the program: {failure}")


def _agree(claimed, evaluated, tolerance=_CONSISTENCY):
    return abs(claimed - evaluated) <= tolerance * (1 + abs(evaluated))


def reference_risk(problem, c):
    """Return the least penalised risk in context ``c`` on its own."""
    theta = variable(problem)
    claimed = minimise(_data_risk(problem, theta, c, _convex_loss) + penalty(problem, theta))
    value = _data_risk(problem, theta.value, c, _numeric_loss) + penalty(problem, theta.value)
    if not _agree(claimed, value):
        raise ArithmeticError(f"context {c}: the solver claims {claimed!r} but its theta gives {value!r}")
    return float(value)


def _supremum(p_hat, eps, scores):
    """Return ``(expression, constraints)`` for the largest mean of the convex ``scores`` over the ball.

    The dual is the minimum over ``lam >= 0`` and ``nu`` of
    ``nu + lam * eps - lam + sum_c p_hat_c * lam * log(lam / (nu - s_c))``.
    """
    if eps == 0 or len(scores) == 1:
        return sum(m * s for m, s in zip(p_hat, scores, strict=True)), []
    if math.isinf(eps):
        return cp.max(cp.hstack(scores)), []
    # lam and nu grow like 1 / sqrt(eps) for a small ball; scaling and shifting keep the variables moderate.
    scale = max(1.0, 1.0 / math.sqrt(2.0 * eps))
    lam = scale * cp.Variable(nonneg=True)
    shift = cp.Variable()
    slack = cp.Variable(len(scores))
    # nu = shift + lam and nu - s_c >= slack_c + lam: exact, since rel_entr decreases in its second slot.
    constraints = [slack[c] <= shift - s for c, s in enumerate(scores)]
    spread = p_hat @ cp.rel_entr(lam * np.ones(len(scores)), slack + lam)
    return shift + lam * eps + spread, constraints


def _evaluate(problem, theta, radius_bits, reference):
    """Return the objective at a numeric theta and a worst-case p, by the high-precision referee."""
    value, p = worst_case(problem.p_hat, radius_bits, _risks(problem, theta) - reference)
    return float(value), np.array([float(x) for x in p])


def scores_of(problem, theta, reference):
    return [_data_risk(problem, theta, c, _convex_loss) - ref for c, ref in enumerate(reference)]


def _solve_dual(problem, radius_bits, reference):
    """Solve the single convex program; return ``(value, theta)``, or None when it is not reliable."""
    theta = variable(problem)
    eps = radius_bits * math.log(2.0)
    supremum, constraints = _supremum(problem.p_hat, eps, scores_of(problem, theta, reference))
    try:
        # The penalty is common to the contexts and p sums to one, so it stays outside the supremum.
        claimed = minimise(supremum + penalty(problem, theta), constraints)
    except ArithmeticError:
        return None
    value = _evaluate(problem, theta.value, radius_bits, reference)[0]
    return (value, np.array(theta.value)) if _agree(claimed, value) else None


def _solve_by_exchange(problem, radius_bits, reference):
    """Replace the ball by finitely many of its points, adding the worst one until the gap closes.

    Slower than the dual program, but immune to the huge multipliers of tiny balls and to the degenerate ones
    of very large balls; the relaxed optimum bounds the value from below, so the answer carries its own proof.
    """
    cuts, best, gap = [problem.p_hat], (math.inf, None), math.inf
    for _ in range(_MAX_CUTS):
        theta = variable(problem)
        scores = cp.hstack(scores_of(problem, theta, reference))
        relaxed = cp.max(cp.hstack([p @ scores for p in cuts]))
        bound = minimise(relaxed + penalty(problem, theta))
        value, p = _evaluate(problem, theta.value, radius_bits, reference)
        if value < best[0]:
            best = value, np.array(theta.value)
        gap = abs(best[0] - bound) / (1 + abs(best[0]))
        if gap <= _GAP_TARGET:
            break
        cuts.append(p)
    if not gap <= _GAP_LIMIT:
        raise ArithmeticError(f"the exchange method stopped with a relative gap of {gap:.1e}")
    return best


def prepared(loss, X, y, codes, alpha, fit_intercept, sample_weight, params):
    X, y, codes = np.asarray(X, dtype=float), np.asarray(y), np.asarray(codes, dtype=int)
    weight = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    design = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
    member = codes.astype(bool) if codes.ndim == 2 else codes[:, None] == np.arange(codes.max() + 1)
    groups = [np.flatnonzero(column & (weight > 0)) for column in member.T]
    if any(len(g) == 0 for g in groups):
        raise ValueError("every context needs a row of positive weight")
    totals = np.array([math.fsum(weight[g]) for g in groups])
    weights = [weight[g] / total for g, total in zip(groups, totals, strict=True)]
    p_hat = totals / math.fsum(totals)
    return _Problem(loss, design, y, groups, weights, p_hat, float(alpha), bool(fit_intercept), params)


def solve(loss, X, y, codes, radius_bits, criterion, alpha, fit_intercept, sample_weight=None, **loss_params):
    """Minimise over theta the maximum over the KL ball of ``sum_c p_c (R_c(theta) - ref_c)``.

    Parameters
    ----------
    loss : {"logistic", "multinomial", "squared", "huber", "poisson", "pinball", "newsvendor"}
    X : array (n, d); y : array (n,), or (n, 2) with columns cost and demand for the newsvendor.
    codes : int array (n,), contexts 0..C-1, each with positive weight; or the membership matrix (n, C).
    radius_bits : float, may be 0 or inf.
    criterion : {"excess", "risk"}
    alpha : float, ridge penalty ``alpha / 2 * ||coef||^2``; the intercept is the last entry and is free.
    **loss_params : n_classes, delta, quantile or price, as the loss requires.

    Returns
    -------
    RobustSolution
        For the multinomial loss theta has shape (n_classes, d + intercept), intercepts centred.
    """
    if criterion not in ("excess", "risk"):
        raise ValueError(f"unknown criterion {criterion!r}")
    problem = prepared(loss, X, y, codes, alpha, fit_intercept, sample_weight, loss_params)
    size = len(problem.groups)
    reference = np.zeros(size)
    if criterion == "excess":
        reference = np.array([reference_risk(problem, c) for c in range(size)])

    answer = _solve_dual(problem, radius_bits, reference)
    value, theta = answer or _solve_by_exchange(problem, radius_bits, reference)
    if loss == "multinomial" and fit_intercept:
        # The loss ignores a common shift; fix the representative.
        theta[:, -1] -= theta[:, -1].mean()
    return RobustSolution(value, theta, reference)
