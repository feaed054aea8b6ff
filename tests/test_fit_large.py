"""Ways that are taken where rows are many: the same answer, with the same proof."""

import numpy as np
import pytest

from counterpoise import fit as fitting
from counterpoise.fit import Robustness, fit_problem
from counterpoise.losses import Logistic, Poisson, Squared
from counterpoise.problem import LinearProblem
from counterpoise.references import specialists


def fitted(loss, y, X, contexts, robustness):
    problem = LinearProblem.from_data(X, y, contexts, loss, alpha=1e-3)
    references = problem.references("in-sample", 1e-8)
    return fit_problem(problem, robustness.ball(problem.counts), robustness.scored(references), tol=1e-8), references


@pytest.mark.parametrize(
    "robustness", [Robustness(), Robustness(confidence=1.0), Robustness(radius=0.01, score="risk")]
)
@pytest.mark.parametrize("loss", [Logistic(), Squared(), Poisson()], ids=lambda loss: loss.name)
def test_a_model_of_the_risks_and_a_tenth_of_the_rows_lead_to_the_same_optimum(loss, robustness, monkeypatch):
    rng = np.random.default_rng(3)
    X, contexts = rng.standard_normal((6000, 3)), rng.integers(0, 4, 6000)
    z = 0.5 * np.einsum("nd,nd->n", X, rng.standard_normal((4, 3))[contexts])
    y = {
        "logistic": (rng.random(6000) < 1 / (1 + np.exp(-z))).astype(float),
        "squared": z + rng.standard_normal(6000),
        "poisson": rng.poisson(np.exp(z)).astype(float),
    }[loss.name]
    plain, least = fitted(loss, y, X, contexts, robustness)
    thinned = []
    real = specialists.LinearOracle.thinned
    monkeypatch.setattr(specialists.LinearOracle, "thinned", lambda *args: thinned.append(1) or real(*args))
    monkeypatch.setattr(fitting, "_LARGE", 0.0)
    monkeypatch.setattr(specialists, "MANY_ROWS", 100)
    large, same = fitted(loss, y, X, contexts, robustness)
    # The references began with some of the rows, and so did the fit.
    assert len(thinned) == 1
    assert large.solution.success
    np.testing.assert_allclose(same.upper, least.upper, atol=1e-10)
    certificates = plain.solution.certificate, large.solution.certificate
    assert max(c.lower for c in certificates) <= min(c.upper for c in certificates) + 1e-12
    np.testing.assert_allclose(large.coef, plain.coef, atol=1e-3)
