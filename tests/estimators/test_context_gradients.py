"""The gradients of contexts' risks: derivatives of what the model reports, which cancel under its worst mix."""

import copy

import numpy as np
import pytest
from scipy import sparse

from counterpoise.exceptions import InvalidInputError
from tests.estimators.linear_models import CASES, every_estimator, rows_of

SMOOTH = [case for case in CASES if case != "quantile"]


def fitted(case, **options):
    X, y, c = rows_of(case)
    return CASES[case][0](alpha=0.01, **options).fit(X, y, contexts=c), (X, y, c)


def risks(model, X, y, c):
    losses = model.row_losses(X, y)
    return np.array([losses[c == k].mean() for k in range(3)]) + 0.5 * model.alpha * np.sum(model.coef_**2)


@pytest.mark.parametrize("case", SMOOTH)
def test_gradient_is_the_derivative_of_the_risk_of_each_context(case):
    model, data = fitted(case)
    found = model.context_gradients(*data)
    assert found.coef.shape == (3, *model.coef_.shape)
    rng, step = np.random.default_rng(0), 1e-6
    for _ in range(3):
        direction = rng.normal(size=model.coef_.shape)
        lift = rng.normal(size=np.shape(np.atleast_1d(model.intercept_)))
        ends = []
        for sign in (1.0, -1.0):
            moved = copy.deepcopy(model)
            moved.coef_ = model.coef_ + sign * step * direction
            moved.intercept_ = model.intercept_ + sign * step * (lift if np.ndim(model.intercept_) else lift[0])
            ends.append(risks(moved, *data))
        along = np.sum((found.coef * direction).reshape(3, -1), axis=1) + found.intercept @ lift
        np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), along, atol=1e-6)


@pytest.mark.parametrize("case", SMOOTH)
def test_pulls_cancel_under_the_least_favourable_mix(case):
    model, data = fitted(case, tol=1e-10)
    found = model.context_gradients(*data)
    assert np.abs(np.tensordot(model.context_weights_, found.coef, 1)).max() < 1e-4
    assert np.abs(model.context_weights_ @ found.intercept).max() < 1e-4
    # None of them is content by itself: that is what the model is a compromise of.
    assert np.abs(found.coef).max() > 0.01


@every_estimator
def test_sparse_rows_have_the_same_gradients(case):
    model, (X, y, c) = fitted(case)
    dense, thin = model.context_gradients(X, y, c), model.context_gradients(sparse.csr_matrix(X), y, c)
    for name in ("coef", "coef_error", "intercept", "intercept_error"):
        np.testing.assert_allclose(getattr(dense, name), getattr(thin, name), atol=1e-12)


def test_error_is_that_of_a_mean_over_rows():
    model, (X, y, c) = fitted("linear")
    found = model.context_gradients(X, y, c)
    rows = (model.predict(X) - y)[:, None] * X
    for k in range(3):
        own = rows[c == k]
        np.testing.assert_allclose(found.coef_error[k], own.std(axis=0, ddof=1) / np.sqrt(len(own)), rtol=1e-6)


def test_a_context_of_one_row_has_no_error():
    model, (X, y, _) = fitted("linear")
    found = model.context_gradients(X[:4], y[:4], ["a", "a", "b", "a"])
    assert np.isnan(found.coef_error[1]).all()
    assert np.isfinite(found.coef_error[0]).all()


def test_a_class_the_fit_has_not_seen_is_named():
    model, (X, y, c) = fitted("binary")
    with pytest.raises(InvalidInputError, match="row 1 is 7"):
        model.context_gradients(X[:2], [y[0], 7], c[:2])
