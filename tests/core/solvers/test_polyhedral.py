"""Hinged losses in several dimensions: rows with duals of their own."""

import numpy as np
import pytest
from scipy import optimize

from counterpoise.contexts import encode
from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.oracle.kinked import KinkedOracle
from counterpoise.core.solvers import PolyhedralInteriorPoint
from counterpoise.losses import Pinball
from counterpoise.sets import Chi2Ball, KLBall
from tests.problems import TIGHT, make

QUANTILE = 0.3


def posed(n_contexts, ball, radius, seed=5):
    X, y, codes = make(Pinball(QUANTILE), n_contexts, 2, seed=seed)
    oracle = LinearOracle.from_rows(X, y, encode(codes), Pinball(QUANTILE), alpha=0.0, fit_intercept=True)
    zero = ReferenceRisks.exactly(np.zeros(n_contexts))
    objective = RobustObjective(KinkedOracle.of(oracle), ball(np.bincount(codes) / len(codes), radius), zero)
    return objective, (X, y, codes)


def minimax(X, y, codes):
    """Return the least largest pinball risk over contexts, a linear program."""
    design = np.column_stack([X, np.ones(len(X))])
    n, width, n_contexts = len(X), design.shape[1], codes.max() + 1
    zero = np.zeros((n, 1))
    rows = [np.hstack([-QUANTILE * design, -np.eye(n), zero]), np.hstack([(1 - QUANTILE) * design, -np.eye(n), zero])]
    means = np.zeros((n_contexts, width + n + 1))
    for c in range(n_contexts):
        means[c, width : width + n] = (codes == c) / np.sum(codes == c)
    means[:, -1] = -1.0
    right = np.concatenate([-QUANTILE * y, (1 - QUANTILE) * y, np.zeros(n_contexts)])
    cost = np.zeros(width + n + 1)
    cost[-1] = 1.0
    answer = optimize.linprog(cost, np.vstack([*rows, means]), right, bounds=[(None, None)] * len(cost), options=TIGHT)
    assert answer.status == 0
    return answer.fun


@pytest.mark.parametrize("ball", [KLBall, Chi2Ball])
def test_the_simplex_is_a_linear_program(ball):
    objective, data = posed(4, ball, np.inf)
    solution = PolyhedralInteriorPoint(tol=1e-7).solve(objective)
    assert solution.success
    assert solution.value == pytest.approx(minimax(*data), abs=1e-6)


@pytest.mark.parametrize("radius", [0.01, 0.1, 1.0, np.inf])
@pytest.mark.parametrize("ball", [KLBall, Chi2Ball])
def test_many_rows_take_few_iterations_at_any_radius(ball, radius):
    # While the distribution moves, thousands of rows change sides.
    X, y, codes = make(Pinball(0.5), 3, 2, 4, (1500, 2500))
    oracle = KinkedOracle.of(LinearOracle.from_rows(X, y, encode(codes), Pinball(0.5), alpha=1e-3, fit_intercept=True))
    mixes, zero = ball(np.bincount(codes) / len(codes), radius), ReferenceRisks.exactly(np.zeros(3))
    solution = PolyhedralInteriorPoint(tol=1e-6).solve(RobustObjective(oracle, mixes, zero))
    assert solution.success
    assert solution.n_iter <= 30


@pytest.mark.parametrize("ball", [KLBall, Chi2Ball])
def test_values_rise_with_the_radius_from_erm_to_minimax(ball):
    values = [
        PolyhedralInteriorPoint(tol=1e-8).solve(posed(3, ball, r)[0]).value for r in (0.0, 1e-3, 0.1, 1.0, np.inf)
    ]
    assert values == sorted(values)


def test_a_context_that_no_member_holds_does_not_count():
    objective, (X, y, codes) = posed(3, lambda p_hat, radius: Chi2Ball([0.5, 0.0, 0.5], radius), 0.1)
    solution = PolyhedralInteriorPoint(tol=1e-8).solve(objective)
    kept = codes != 1
    oracle = LinearOracle.from_rows(
        X[kept], y[kept], encode(codes[kept]), Pinball(QUANTILE), alpha=0.0, fit_intercept=True
    )
    others = RobustObjective(KinkedOracle.of(oracle), Chi2Ball([0.5, 0.5], 0.1), ReferenceRisks.exactly(np.zeros(2)))
    assert solution.success
    assert solution.p_worst[1] == 0.0
    assert solution.value == pytest.approx(PolyhedralInteriorPoint(tol=1e-8).solve(others).value, abs=1e-7)
