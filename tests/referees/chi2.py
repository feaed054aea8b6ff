"""Convex-program referees for the chi-square ball ``{p in simplex : sum (p - p_hat)^2 / p_hat <= radius}``."""

import math

import cvxpy as cp
import numpy as np

from .robust import minimise, penalty, prepared, reference_risk, scores_of, variable


def worst_case(p_hat, radius, scores):
    """Return the largest mean of the scores over the ball and a distribution that attains it, by Clarabel."""
    p_hat, scores = np.asarray(p_hat, dtype=float), np.asarray(scores, dtype=float)
    seen = p_hat > 0
    offset, size = scores[seen].max(), max(np.ptp(scores[seen]), 1e-300)
    p = cp.Variable(int(seen.sum()), nonneg=True)
    root = np.sqrt(p_hat[seen])
    constraints = [cp.sum(p) == 1]
    if math.isfinite(radius):
        constraints.append(cp.norm(cp.multiply(1.0 / root, p) - root) <= math.sqrt(radius))
    gap = minimise(((offset - scores[seen]) / size) @ p, constraints)
    q = np.zeros_like(p_hat)
    q[seen] = p.value
    return float(offset - size * gap), q


def solve(loss, X, y, codes, radius, criterion, alpha, fit_intercept, **loss_params):
    """Minimise over theta the maximum over the ball of ``sum_c p_c (R_c(theta) - ref_c)``; return the value.

    The dual is the minimum over ``lam >= 0`` and ``nu`` of
    ``nu + lam (radius - 1) + sum_c p_hat_c max(s_c - nu + 2 lam, 0)^2 / (4 lam)``.
    """
    problem = prepared(loss, X, y, codes, alpha, fit_intercept, None, loss_params)
    n = len(problem.groups)
    reference = np.zeros(n)
    if criterion == "excess":
        reference = np.array([reference_risk(problem, c) for c in range(n)])
    theta = variable(problem)
    scores = scores_of(problem, theta, reference)
    if math.isinf(radius):
        return minimise(cp.max(cp.hstack(scores)) + penalty(problem, theta))
    # lam grows like 1 / sqrt(radius); nu is counted from 2 lam, so that no variable is large.
    scale = max(1.0, 0.5 / math.sqrt(radius))
    lam, nu, above = scale * cp.Variable(nonneg=True), cp.Variable(), cp.Variable(n)
    constraints = [above[c] >= s - nu for c, s in enumerate(scores)]
    # With v = max(s - nu, -2 lam): (v + 2 lam)^2 / (4 lam) = v^2 / (4 lam) + v + lam.
    constraints += [above >= -2 * lam]
    spread = cp.quad_over_lin(cp.multiply(np.sqrt(problem.p_hat), above), 4 * lam) + problem.p_hat @ above
    return minimise(nu + lam * radius + spread + penalty(problem, theta), constraints)
