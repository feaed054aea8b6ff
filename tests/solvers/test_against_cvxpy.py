"""The certified solvers against a modelling layer and a conic solver, to the latter's accuracy."""

import itertools

import numpy as np
import pytest

from counterpoise.fit import Robustness, fit_linear
from counterpoise.losses import Huber, Logistic, Multinomial, Newsvendor, Pinball, Poisson, Squared
from tests.problems import make
from tests.referees import robust

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
