"""The certified solvers against a modelling layer and a conic solver, to the latter's accuracy."""

import itertools

import numpy as np
import pytest

from counterpoise.contexts import encode
from counterpoise.core.fit import Robustness, fit_linear
from counterpoise.core.objective import RobustObjective
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.references import reference_risks
from counterpoise.core.solvers import InteriorPoint, ModelNewton
from counterpoise.losses import Huber, Logistic, Multinomial, Newsvendor, Pinball, Poisson, Squared
from counterpoise.sets import Chi2Ball
from tests.problems import make
from tests.referees import chi2, robust

CASES = [
    (Logistic(), "logistic", {}),
    (Multinomial(3), "multinomial", {"n_classes": 3}),
    (Squared(), "squared", {}),
    (Huber(1.0), "huber", {"delta": 1.0}),
    (Poisson(), "poisson", {}),
    (Pinball(0.3), "pinball", {"quantile": 0.3}),
    (Newsvendor(10.0), "newsvendor", {"price": 10.0}),
]


@pytest.mark.parametrize(("loss", "name", "parameters"), CASES, ids=lambda case: case if isinstance(case, str) else "")
@pytest.mark.parametrize("radius", [0.0, 0.05, 1.0, np.inf])
def test_the_value_agrees(loss, name, parameters, radius):
    X, y, codes = make(loss, 3, 2, seed=11, rows=(10, 20))
    rng = np.random.default_rng(5)
    weight = rng.uniform(0.5, 2.0, len(codes))
    for criterion, alpha in itertools.product(("risk", "excess"), (1e-2,)):
        fit = fit_linear(
            X,
            y,
            codes,
            loss,
            robustness=Robustness(radius=radius, criterion=criterion),
            alpha=alpha,
            sample_weight=weight,
            tol=1e-9,
        )
        referee = robust.solve(name, X, y, codes, radius, criterion, alpha, True, sample_weight=weight, **parameters)
        scale = fit.solution.certificate.scale
        assert fit.solution.success
        assert fit.solution.value == pytest.approx(referee.value, abs=2e-7 * scale)
        assert fit.solution.certificate.lower <= referee.value + 2e-8 * scale


RADII = (1e-3, 1e-2, 0.1, 0.5, 2.0, 10.0, np.inf)


@pytest.mark.parametrize("seed", range(21))
def test_the_value_over_a_chi_square_ball_agrees(seed):
    loss, name = ((Logistic(), "logistic"), (Squared(), "squared"))[seed % 2]
    n_contexts, radius = (2, 3, 5, 8)[seed % 4], RADII[seed % 7]
    X, y, codes = make(loss, n_contexts, 2, seed=seed, rows=(10, 20))
    oracle = LinearOracle.from_rows(X, y, encode(codes), loss, alpha=1e-2, fit_intercept=True)
    ball = Chi2Ball(np.bincount(codes) / len(codes), radius)
    objective = RobustObjective(oracle, ball, reference_risks(oracle, 1e-10))
    referee = chi2.solve(name, X, y, codes, radius, "excess", 1e-2, True)
    for solver in (InteriorPoint(tol=1e-8), ModelNewton(tol=1e-8)):
        solution = solver.solve(objective)
        scale = solution.certificate.scale
        assert solution.success
        assert solution.value == pytest.approx(referee, abs=1e-6 * scale)
        assert solution.certificate.lower <= referee + 1e-6 * scale
        assert ball.contains(solution.p_worst)
