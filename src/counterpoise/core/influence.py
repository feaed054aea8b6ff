"""What the risk of one context gains where another gets more weight: a quadratic model of refits, without the rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

from counterpoise.core.oracle import LinearOracle
from counterpoise.core.problem import LinearProblem
from counterpoise.core.solvers import Solution
from counterpoise.linalg import to_unit_diagonal
from counterpoise.losses import Multinomial
from counterpoise.threads import suited

Array = NDArray[np.float64]

MOST_CONTEXTS = 200
"""Contexts up to which a square matrix of them is worth keeping."""

_MANY_ENTRIES = 2e5
"""Rows times parameters from which a Hessian over all rows is worth avoiding."""

_TELLING = 25
"""Rows per parameter that tell a quadratic form in the inverse of a Hessian to a few per cent."""

_FEW_ROWS = 2000
"""Rows that tell how unevenly curvature is spread over rows."""

_TINY = float(np.finfo(np.float64).tiny)

_LEAST_ROWS = 20
"""Rows of each context that are left among them."""

_DEFINITE = 1e-12
"""Reciprocal condition number, at a unit diagonal, below which rounding takes most digits of what is solved for."""


def context_influence(problem: LinearProblem, solution: Solution) -> Array | None:
    r"""Return by how much weight on one context lowers the risk of another, to first order.

    .. math:: K = G H^{-1} G^\top

    with the gradients :math:`G` of the contexts' risks at the solution, and the Hessian :math:`H` of the risk in its
    least favourable mix, both with the ridge. A weight of :math:`\epsilon` more on context :math:`e` moves the
    parameters by :math:`-\epsilon H^{-1} G_e` and the risk of :math:`c` by :math:`-\epsilon K_{ce}`. With a parabola in
    place of the risk under a mix :math:`q`, the best parameters for it lower that risk by :math:`q^\top K q / 2`.

    It takes one look at the rows, or less where the solution has the gradients. Where rows are many, the Hessian is
    that of a part of them.

    Returns
    -------
    ndarray of shape (n_contexts, n_contexts), or None
        Of contexts with rows; symmetric and positive semi-definite. None for more than :data:`MOST_CONTEXTS`, a loss
        that bends only at its kinks, more parameters than a square matrix is formed of, and where the Hessian is not
        positive definite to working precision. A shift common to all classes, which changes no probability, does not
        count.
    """
    oracle = problem.oracle
    n = oracle.n_contexts
    bends = not oracle.loss.is_hinged or oracle.loss.softness > 0.0
    weights = solution.p_worst[:n]
    if n > MOST_CONTEXTS or not bends or not oracle.forms_hessian or not weights.sum() > 0.0:
        return None
    # Contexts without rows may have a part in the mix; a refit is for the others.
    weights = weights / weights.sum()
    point = _thinned(oracle, solution.theta).at(solution.theta)
    point.foresee(weights)
    with suited(problem.size), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        try:
            known = solution.gradients
            # Those of all rows, where the Hessian may be that of a part of them.
            own = point if point.oracle is oracle else oracle.at(solution.theta)
            gradients = own.jacobian if known is None else known[:n]
            hessian = _without_common_shifts(point.hessian(weights), oracle)
            half = _whitened(gradients, hessian)
        except ArithmeticError:
            return None
        influence = None if half is None else half.T @ half
    return influence if influence is not None and np.isfinite(influence).all() else None


def _thinned(oracle: LinearOracle, theta: Array) -> LinearOracle:
    """Return the problem of as many rows as tell the Hessian of any mix, where there are more in memory."""
    if not oracle.rows.at_hand or oracle.rows.n_rows * oracle.n_parameters < _MANY_ENTRIES:
        return oracle
    most = int(oracle.rows.sizes.min()) // _LEAST_ROWS
    every = min(oracle.rows.n_rows // (_TELLING * _needed(oracle, theta, most)), most)
    return replace(oracle, rows=oracle.rows.thinned(every)) if every > 1 else oracle


def _needed(oracle: LinearOracle, theta: Array, most: int) -> int:
    """Return how many rows of equal curvature a Hessian is made of, at the least: its size, for one output.

    Of several outputs every row tells something of each. Where few rows have most of the curvature of an output, it
    takes as many more of them.
    """
    loss, shape = oracle.loss, oracle.coefficients
    if not isinstance(loss, Multinomial):
        return oracle.n_parameters
    every = min(oracle.rows.n_rows // _FEW_ROWS, most)
    some = replace(oracle, rows=oracle.rows.thinned(every)) if every > 1 else oracle
    sums: Any = some.at(theta).sums
    _, variances = loss.probabilities_and_variances(sums.predictions)
    uneven = np.square(variances).mean(axis=0) / np.maximum(variances.mean(axis=0) ** 2, _TINY)
    return min(math.ceil(shape.width * float(uneven.mean())), oracle.n_parameters)


def _without_common_shifts(hessian: Array, oracle: LinearOracle) -> Array:
    """Return the Hessian with curvature where all classes shift alike and no ridge holds them.

    Gradients vanish in these directions, and so does their Hessian: what it is there does not matter, unless it is
    zero.
    """
    outputs, width = oracle.coefficients.n_outputs, oracle.coefficients.width
    if outputs > 1:
        free = oracle.alpha * oracle.coefficients.penalised[:width] == 0.0
        blocks = hessian.reshape(outputs, width, outputs, width).copy()
        for column in np.flatnonzero(free):
            blocks[:, column, :, column] += blocks[:, column, :, column].diagonal().mean()
        return np.asarray(blocks.reshape(hessian.shape))
    return hessian


def _whitened(gradients: Array, hessian: Array) -> Array | None:
    """Return ``L^-1 G'`` for the Cholesky factor of the Hessian, of shape (n_parameters, n_contexts); None for none."""
    scaled, scale = to_unit_diagonal(hessian)
    if not (np.isfinite(scaled).all() and np.isfinite(gradients).all()):
        return None
    factor, failed = lapack.dpotrf(scaled, lower=1)
    if failed:
        return None
    reciprocal, _ = lapack.dpocon(factor, np.abs(scaled).sum(axis=0).max(), uplo="L")
    if not reciprocal > _DEFINITE:
        return None
    return np.asarray(solve_triangular(factor, scale[:, None] * gradients.T, lower=True))
