"""One parameter and piecewise linear risks: exact to rounding, whatever the set."""

import numpy as np
import pytest

from counterpoise.contexts import encode
from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.oracle.scalar import ScalarOracle
from counterpoise.core.solvers import GoldenSection, ScalarSearch
from counterpoise.losses import Pinball
from counterpoise.sets import Chi2Ball, KLBall
from tests.problems import make


def posed(ball, radius, n_contexts=4, seed=2):
    X, y, codes = make(Pinball(0.3), n_contexts, 1, seed=seed)
    oracle = LinearOracle.from_rows(X, y, encode(codes), Pinball(0.3), alpha=0.0, fit_intercept=False)
    zero = ReferenceRisks.exactly(np.zeros(n_contexts))
    return RobustObjective(ScalarOracle.of(oracle), ball(np.bincount(codes) / len(codes), radius), zero)


@pytest.mark.parametrize("ball", [KLBall, Chi2Ball])
@pytest.mark.parametrize("radius", [0.0, 1e-3, 0.1, 1.0, 20.0, np.inf])
@pytest.mark.parametrize("seed", [2, 9])
def test_no_theta_nearby_or_far_is_better(ball, radius, seed):
    objective = posed(ball, radius, seed=seed)
    solution = ScalarSearch(tol=1e-11).solve(objective)
    assert solution.success
    best = float(solution.theta[0])
    thetas = best + np.concatenate([np.linspace(-5.0, 5.0, 101), np.linspace(-1e-6, 1e-6, 11)])
    values = [objective.value(objective.oracle.at(np.array([theta]))) for theta in thetas]
    assert min(values) >= solution.value - 1e-12
    assert min(values) >= solution.certificate.lower - 1e-12


def test_it_is_golden_section_without_the_search():
    objective = posed(Chi2Ball, 0.4)
    exact, searched = ScalarSearch(tol=1e-11).solve(objective), GoldenSection(tol=1e-6).solve(objective)
    assert exact.value == pytest.approx(searched.value, rel=1e-7)
    assert exact.value <= searched.value + 1e-12
