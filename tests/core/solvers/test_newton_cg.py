"""Thousands of features: certified without ever forming a square matrix."""

import numpy as np
import pytest

from counterpoise.core.fit import Robustness, fit_linear
from counterpoise.core.solvers import InteriorPoint, NewtonCG
from counterpoise.losses import Logistic, Multinomial, Poisson, Squared
from tests.problems import make, scattered


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Poisson(), Multinomial(3)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("radius", [0.0, 1e-6, 0.1, 2.0, 30.0, np.inf])
def test_it_agrees_with_the_dense_method(loss, radius):
    X, y, codes = make(loss, 4, 6, seed=2)
    robustness = Robustness(radius=radius, criterion="excess")
    dense = fit_linear(X, y, codes, loss, robustness=robustness, alpha=1e-2, solver=InteriorPoint(tol=1e-10))
    product = fit_linear(X, y, codes, loss, robustness=robustness, alpha=1e-2, solver=NewtonCG(tol=1e-7))
    assert product.solution.success
    scale = dense.solution.certificate.scale
    assert product.solution.value == pytest.approx(dense.solution.value, abs=1e-7 * scale)


@pytest.mark.parametrize("seed", [7, 8, 12, 16])
def test_a_shift_common_to_all_classes_does_not_multiply_rounding(seed):
    loss = Multinomial(3)
    X, y, codes = make(loss, 4, 6, seed=seed)
    fit = fit_linear(X, y, codes, loss, robustness=Robustness(radius=30.0), alpha=1e-2, solver=NewtonCG(tol=1e-7))
    assert fit.solution.success


@pytest.mark.parametrize("radius", [0.0, 0.05, np.inf])
def test_thousands_of_sparse_features_are_certified(radius):
    rng = np.random.default_rng(0)
    n, d, contexts = 4000, 3000, 5
    X = scattered(rng, n, d, 0.01)
    codes = np.sort(rng.integers(0, contexts, n))
    z = X @ rng.standard_normal(d) * 3.0 + rng.standard_normal(contexts)[codes]
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-z))).astype(float)
    fit = fit_linear(X, y, codes, Logistic(), robustness=Robustness(radius=radius), alpha=1e-3)
    assert fit.solution.success
    assert fit.solution.certificate.scope == "global"
    assert np.max(fit.references.upper - fit.references.lower) < 1e-6
    assert fit.coef.shape == (1, d)
