"""Fits that are stopped early, or have no optimum to call their own."""

import math
import warnings

import numpy as np
import pytest
from scipy import sparse

from counterpoise.core.fit import Robustness, fit_linear
from counterpoise.core.solvers import InteriorPoint, Status
from counterpoise.exceptions import NotCertifiedWarning
from counterpoise.losses import Huber, Logistic, Poisson, Squared
from counterpoise.rows import memory
from tests.core.fits import (
    every_loss,
    every_smooth_loss,
)
from tests.problems import make

# --- stopped early ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0.0, 0.3, math.inf])
@every_loss
def test_fit_stopped_early_says_so_and_still_brackets_the_optimum(loss, radius):
    X, y, codes = make(loss, 4, 3, 5)
    options = {"robustness": Robustness(radius=radius), "alpha": 1e-3}
    optimum = fit_linear(X, y, codes, loss, tol=1e-9, **options).solution.certificate
    # One Newton step solves least squares.
    max_iter = 0 if loss.name == "squared" and radius == 0.0 else 1
    with pytest.warns(NotCertifiedWarning, match=r"Gap [0-9.e+-]+, [0-9.e+-]+ of the objective's scale") as caught:
        fit = fit_linear(X, y, codes, loss, max_iter=max_iter, tol=1e-11, **options)
    stopped = fit.solution.certificate
    assert f"Gap {stopped.gap:.3g}," in str(caught[0].message)
    assert "max_iter" in str(caught[0].message)
    assert fit.solution.status is Status.ITERATION_LIMIT
    assert not fit.solution.success
    assert fit.solution.n_iter == max_iter
    assert stopped.lower <= optimum.upper + 1e-12 * stopped.scale
    assert stopped.upper >= optimum.lower - 1e-12 * stopped.scale
    assert stopped.gap > 1e-11 * stopped.scale


def test_callback_sees_the_certificate_close():
    seen = []
    X, y, codes = make(Logistic(), 4, 3, 5)
    fit = fit_linear(X, y, codes, Logistic(), callback=seen.append)
    assert [progress.n_iter for progress in seen] == list(range(fit.solution.n_iter + 1))
    gaps = [progress.certificate.gap for progress in seen]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] == fit.solution.certificate.gap


def test_solver_of_the_caller_is_used_as_it_is():
    X, y, codes = make(Logistic(), 4, 3, 5)
    rough = fit_linear(X, y, codes, Logistic(), solver=InteriorPoint(tol=1e-2), tol=1e-12)
    assert rough.solution.certificate.relative_gap > 1e-12
    assert rough.solution.success


@every_smooth_loss
@pytest.mark.parametrize("method", ["robust", "erm", "minimax-regret"])
def test_method_for_many_features_finds_the_same_optimum(loss, method, monkeypatch):
    X, y, codes = make(loss, 3, 3, 1)
    dense = fit_linear(X, y, codes, loss, robustness=method, alpha=1e-2)
    monkeypatch.setattr(memory, "_LARGEST_HESSIAN", 0)
    conjugate = fit_linear(sparse.csr_array(X), y, codes, loss, robustness=method, alpha=1e-2)
    assert conjugate.solution.certificate.lower <= dense.solution.certificate.upper + 1e-12
    assert dense.solution.certificate.lower <= conjugate.solution.certificate.upper + 1e-12


# --- what a certificate must not call optimal ---------------------------------------------------------------


@pytest.mark.parametrize("method", ["erm", "robust", "minimax-risk"])
def test_huber_fit_leaves_a_start_where_every_row_is_beyond_the_kink(method):
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(40, 2)), np.repeat([0, 1], 20)
    y = 100.0 + X @ [1.0, 2.0] + rng.normal(size=40)
    fit = fit_linear(X, y, codes, Huber(1.35), robustness=method, alpha=0.0)
    assert fit.intercept[0] == pytest.approx(100.0, abs=1.0)
    np.testing.assert_allclose(fit.coef[0], [1.0, 2.0], atol=1.0)


@pytest.mark.parametrize("method", ["erm", "robust"])
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
def test_column_far_from_zero_is_not_certified_at_the_wrong_optimum(loss, method):
    rng = np.random.default_rng(0)
    seconds, codes = 100.0 * rng.random(200), np.repeat([0, 1], 100)
    trend = 0.05 * (seconds - 50.0) + rng.normal(size=200)
    y = (trend > 0).astype(np.float64) if loss.name == "logistic" else trend
    options = {"robustness": method, "alpha": 0.0}
    centred = fit_linear(seconds[:, None] - 50.0, y, codes, loss, **options).solution.certificate
    # Without a ridge the origin of a column is the intercept's business: the optimum is the same.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotCertifiedWarning)
        fit = fit_linear(1.7e9 + seconds[:, None], y, codes, loss, **options).solution.certificate
    assert fit.lower <= centred.upper + 1e-6
    assert fit.upper >= centred.lower - 1e-6


def test_nearly_equal_columns_are_not_certified_at_the_wrong_optimum():
    rng = np.random.default_rng(0)
    x, difference, codes = rng.normal(size=100), rng.normal(size=100), np.repeat([0, 1], 50)
    y = x + 3.0 * difference + rng.normal(size=100)
    options = {"robustness": "erm", "alpha": 0.0}
    easy = fit_linear(np.column_stack([x, difference]), y, codes, Squared(), **options).solution.certificate
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotCertifiedWarning)
        columns = np.column_stack([x, x + 1e-7 * difference])
        hard = fit_linear(columns, y, codes, Squared(), **options).solution.certificate
    assert hard.lower <= easy.upper + 1e-6


def test_counts_in_the_tens_of_thousands_are_fitted():
    X, y, codes = make(Poisson(), 3, 2, 1)
    fit = fit_linear(X, y + 2e4, codes, Poisson(), alpha=1e-4)
    assert fit.solution.status is Status.CERTIFIED
    assert fit.references.upper == pytest.approx(fit.references.lower, rel=1e-6)


def test_separable_classes_without_a_ridge_end_near_zero():
    X, _, codes = make(Logistic(), 3, 2, 0)
    y = (X @ [1.0, -2.0] > 0).astype(np.float64)
    for method in ("erm", "robust", "minimax-regret"):
        fit = fit_linear(X, y, codes, Logistic(), robustness=method, alpha=0.0)
        assert fit.solution.certificate.upper <= 1e-6
        assert fit.solution.certificate.lower <= 1e-12
