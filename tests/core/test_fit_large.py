"""Ways that are taken where rows are many: the same answer, with the same proof."""

import numpy as np
import pytest

from counterpoise.core import fit as fitting
from counterpoise.core.fit import Robustness, fit_problem
from counterpoise.core.problem import LinearProblem
from counterpoise.core.references import specialists
from counterpoise.losses import Logistic, Multinomial, Poisson, Squared
from counterpoise.rows import MemoryRows


def fitted(loss, y, X, contexts, robustness):
    problem = LinearProblem.from_data(X, y, contexts, loss, alpha=1e-3)
    references = problem.references("in-sample", 1e-8)
    return fit_problem(problem, robustness.mixes(problem.counts), robustness.scored(references), tol=1e-8), references


@pytest.mark.parametrize(
    "robustness", [Robustness(), Robustness(confidence=1.0), Robustness(radius=0.01, criterion="risk")]
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
    real = MemoryRows.thinned
    monkeypatch.setattr(MemoryRows, "thinned", lambda *args: thinned.append(1) or real(*args))
    monkeypatch.setattr(fitting, "_LARGE", 0.0)
    monkeypatch.setattr(specialists, "MANY_ENTRIES", 0.0)
    monkeypatch.setattr(specialists, "SKETCHED", 100)
    large, same = fitted(loss, y, X, contexts, robustness)
    # The references began with some of the rows, and the fit where they did.
    assert len(thinned) == 1
    assert large.solution.success
    np.testing.assert_allclose(same.upper, least.upper, atol=1e-10)
    certificates = plain.solution.certificate, large.solution.certificate
    assert max(c.lower for c in certificates) <= min(c.upper for c in certificates) + 1e-12
    np.testing.assert_allclose(large.coef, plain.coef, atol=1e-3)


def odd_problem(seed):
    """Return rows of any shape: few or many, of different scales, dependent, separable or not."""
    rng = np.random.default_rng(seed)
    n_contexts = int(rng.integers(2, 15))
    n, d = int(rng.integers(n_contexts * 3, 4000)), int(rng.integers(1, 12))
    shares = rng.dirichlet(np.full(n_contexts, 0.5))
    contexts = np.concatenate([np.arange(n_contexts), rng.choice(n_contexts, n - n_contexts, p=shares)])
    X = rng.standard_normal((n, d)) * np.exp(rng.standard_normal(d) * rng.choice([0, 1]))
    if rng.random() < 0.2:
        X[:, 0] = X[:, -1]
    if rng.random() < 0.2:
        X = X + rng.choice([0, 3.0])
    strength = rng.choice([0.2, 1, 5])
    own = rng.standard_normal((n_contexts, d)) * rng.choice([0.1, 1]) + rng.standard_normal(d)
    z = strength * np.einsum("nd,nd->n", X, own[contexts]) / np.sqrt(d)
    loss = [Logistic(), Squared(), Poisson(), Multinomial(3)][rng.integers(4)]
    y = {
        "logistic": lambda: (rng.random(n) < 1 / (1 + np.exp(-z))) * 1.0,
        "squared": lambda: z + rng.standard_normal(n),
        "poisson": lambda: rng.poisson(np.exp(np.clip(z, -4, 3))) * 1.0,
        "multinomial": lambda: np.argmax(rng.gumbel(size=(n, 3)) + np.outer(z, [0, 1, -1]), axis=1) * 1.0,
    }[loss.name]()
    return X, y, contexts, loss, float(rng.choice([1e-6, 1e-4, 1e-2]))


@pytest.mark.parametrize("seed", [*range(12), 65, 116, 195, 459, 465])
def test_references_that_begin_at_a_sketch_are_those_that_begin_at_a_constant(seed, monkeypatch):
    X, y, contexts, loss, alpha = odd_problem(seed)
    plain = LinearProblem.from_data(X, y, contexts, loss, alpha=alpha)
    least = specialists.reference_risks(plain.oracle, 1e-8)
    monkeypatch.setattr(specialists, "SKETCHED", 10)
    monkeypatch.setattr(specialists, "LONG", 20)
    monkeypatch.setattr(specialists, "MANY_ENTRIES", 0.0)
    found = LinearProblem.from_data(X, y, contexts, loss, alpha=alpha).references("in-sample", 1e-6)
    slack = 1e-10 * (1.0 + np.abs(least.upper))
    assert (found.lower <= least.upper + slack).all()
    assert (least.lower <= found.upper + slack).all()
    assert (found.upper - found.lower <= least.upper - least.lower + 1e-6 * (1.0 + np.abs(least.upper))).all()


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("far", [3.0, 40.0])
def test_a_place_to_begin_that_is_far_off_leads_to_the_same_optimum(loss, far, monkeypatch):
    rng = np.random.default_rng(5)
    X, contexts = rng.standard_normal((3000, 3)), rng.integers(0, 4, 3000)
    z = np.einsum("nd,nd->n", X, rng.standard_normal((4, 3))[contexts])
    y = (z + rng.logistic(size=3000) > 0) + (z > 1.5) * (loss.n_outputs > 1.0)
    robustness = Robustness(radius=0.1)
    plain, least = fitted(loss, y.astype(float), X, contexts, robustness)
    monkeypatch.setattr(specialists, "MANY_ENTRIES", 0.0)
    monkeypatch.setattr(
        "counterpoise.core.problem.sketched",
        lambda oracle, counts: oracle.at(far * np.random.default_rng(0).standard_normal(oracle.n_parameters)),
    )
    found, same = fitted(loss, y.astype(float), X, contexts, robustness)
    assert found.solution.success
    np.testing.assert_allclose(same.upper, least.upper, atol=1e-9)
    certificates = plain.solution.certificate, found.solution.certificate
    assert max(c.lower for c in certificates) <= min(c.upper for c in certificates) + 1e-12
