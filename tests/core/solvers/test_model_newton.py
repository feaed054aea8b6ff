"""The robust problem on a model of the risks, made anew at each solution."""

import numpy as np
import pytest

from counterpoise.contexts import encode
from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.oracle.quadratic import QuadraticOracle
from counterpoise.core.solvers import InteriorPoint, ModelNewton
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Logistic, Squared
from counterpoise.sets import Chi2Ball, KLBall
from tests.problems import make


def posed(loss, n_contexts, n_features, ball, radius):
    X, y, codes = make(loss, n_contexts, n_features, seed=n_contexts)
    oracle = LinearOracle.from_rows(X, y, encode(codes), loss, alpha=1e-2, fit_intercept=True)
    zero = ReferenceRisks.exactly(np.zeros(n_contexts))
    return RobustObjective(oracle, ball(np.bincount(codes) / len(codes), radius), zero)


def test_risks_that_are_the_model_take_one_step():
    rng = np.random.default_rng(0)
    oracle = QuadraticOracle(np.zeros(3), rng.random(4), rng.normal(size=(4, 3)), np.eye(3)[None], 1.0)
    objective = RobustObjective(oracle, KLBall(np.full(4, 0.25), 0.3), ReferenceRisks.exactly(np.zeros(4)))
    solution = ModelNewton(tol=1e-9).solve(objective)
    assert solution.success
    assert solution.n_iter == 1


@pytest.mark.parametrize("ball", [KLBall, Chi2Ball])
@pytest.mark.parametrize("radius", [1e-4, 0.05, 0.5])
@pytest.mark.parametrize(("n_contexts", "n_features"), [(3, 4), (60, 1), (60, 3)])
def test_few_and_many_contexts_end_where_the_interior_point_does(n_contexts, n_features, radius, ball):
    objective = posed(Logistic(), n_contexts, n_features, ball, radius)
    solution, exact = ModelNewton(tol=1e-8).solve(objective), InteriorPoint(tol=1e-9).solve(objective)
    assert solution.success
    assert solution.value == pytest.approx(exact.value, abs=2e-8 * exact.certificate.scale)


def test_contexts_that_a_large_ball_may_leave_out_are_not_taken_for_smooth():
    objective = posed(Squared(), 60, 1, Chi2Ball, 5.0)
    solution = ModelNewton(tol=1e-7).solve(objective)
    assert solution.success
    assert (solution.p_worst == 0.0).any() or solution.p_worst.min() < 1e-6


def test_a_point_is_refused():
    with pytest.raises(InvalidInputError, match="needs a radius"):
        ModelNewton().solve(posed(Logistic(), 3, 2, KLBall, 0.0))
