"""Whole fits: what they say of themselves, and the methods they reduce to."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, PoissonRegressor, QuantileRegressor, Ridge

from counterpoise.core.fit import METHODS, Robustness, fit_linear
from counterpoise.core.solvers import Status
from counterpoise.losses import Logistic, Multinomial, Pinball, Poisson, Squared
from counterpoise.sets import confidence_radius
from tests.core.fits import (
    PROPERTY,
    SEEDS,
    every_loss,
    every_method,
    identified,
    referee,
    theta_of,
)
from tests.problems import SMOOTH, make, minimise

# --- a fit is what it says ----------------------------------------------------------------------------------


@every_method
@every_loss
@PROPERTY
@given(SEEDS, st.integers(1, 5), st.integers(1, 3), st.sampled_from([1e-4, 1e-1]))
def test_parts_of_a_fit_agree(loss, method, seed, n_contexts, n_features, alpha):
    X, y, codes = make(loss, n_contexts, n_features, seed, (8, 20))
    fit = fit_linear(X, y, codes, loss, robustness=method, alpha=alpha)
    solution, certificate = fit.solution, fit.solution.certificate
    assert solution.status is Status.CERTIFIED
    assert certificate.scope == "global"
    assert certificate.lower <= certificate.upper
    assert certificate.gap <= 1e-6 * certificate.scale
    assert certificate.lower - 1e-12 <= solution.value <= certificate.upper + 1e-12
    np.testing.assert_array_equal(theta_of(fit), solution.theta)
    np.testing.assert_array_equal(fit.counts, np.bincount(codes))
    np.testing.assert_allclose(solution.scores, solution.risks - fit.references.upper, rtol=1e-13, atol=1e-13)
    assert fit.mixes.worst_case(solution.scores).value == pytest.approx(solution.value, rel=1e-9, abs=1e-12)
    assert fit.mixes.contains(solution.p_worst)


@every_loss
@PROPERTY
@given(SEEDS, st.sampled_from([0.0, 1e-3, 0.3, math.inf]), st.sampled_from(["excess", "risk"]))
def test_no_other_theta_is_better_than_the_certificate_allows(loss, seed, radius, criterion):
    X, y, codes = make(loss, 3, 2, seed, (8, 20))
    fit = fit_linear(X, y, codes, loss, robustness=Robustness(radius=radius, criterion=criterion))
    rng = np.random.default_rng(seed)
    for size in (1e-4, 1e-2, 1.0):
        theta = theta_of(fit) + size * rng.normal(size=fit.solution.theta.size)
        scores = risks_at(loss, X, y, codes, theta, 1e-4) - fit.references.upper
        assert fit.mixes.worst_case(scores).value >= fit.solution.certificate.lower - 1e-12


def risks_at(loss, X, y, codes, theta, alpha):
    """Return the risk of each context, written out."""
    matrix = theta.reshape(loss.n_outputs, -1)
    z = X @ matrix[:, :-1].T + matrix[:, -1]
    rows = loss.value(y, z[:, 0] if loss.n_outputs == 1 else z)
    return np.bincount(codes, rows) / np.bincount(codes) + 0.5 * alpha * np.sum(matrix[:, :-1] ** 2)


# --- the optimum of another solver --------------------------------------------------------------------------


@every_loss
@pytest.mark.parametrize("criterion", ["excess", "risk"])
@pytest.mark.parametrize("radius", [1e-3, 0.3, 2.0, math.inf])
def test_certificate_brackets_the_optimum_of_a_convex_program(loss, criterion, radius):
    data = make(loss, 3, 2, 17, (10, 25))
    fit = fit_linear(*data, loss, robustness=Robustness(radius=radius, criterion=criterion), alpha=1e-2)
    answer = referee(loss, data, fit, criterion, alpha=1e-2)
    room = 1e-7 * (1.0 + abs(answer.value))
    assert fit.solution.certificate.lower <= answer.value + room
    assert fit.solution.certificate.upper >= answer.value - room
    assert fit.solution.certificate.gap <= 1e-6 * fit.solution.certificate.scale


@every_loss
def test_likelihood_robust_is_the_worst_risk_over_the_confidence_set(loss):
    data = make(loss, 4, 2, 3, (10, 25))
    fit = fit_linear(*data, loss, robustness="likelihood-robust", alpha=1e-2, tol=1e-8)
    assert fit.mixes.radius == confidence_radius(np.bincount(data[2]), 0.99)
    answer = referee(loss, data, fit, "risk", alpha=1e-2)
    assert fit.solution.value == pytest.approx(answer.value, rel=1e-6)
    np.testing.assert_array_equal(fit.references.upper, 0.0)


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Pinball(0.3)], ids=lambda loss: loss.name)
def test_weights_mean_the_same_to_a_convex_program(loss):
    data = make(loss, 3, 2, 5, (10, 25))
    weight = np.random.default_rng(0).random(len(data[2])) + 0.2
    fit = fit_linear(*data, loss, robustness=Robustness(radius=0.3), alpha=1e-2, sample_weight=weight, tol=1e-9)
    answer = referee(loss, data, fit, "excess", alpha=1e-2, sample_weight=weight)
    assert fit.solution.value == pytest.approx(answer.value, rel=1e-6)


# --- reductions to known methods ----------------------------------------------------------------------------


def scikit_learn(loss, n, alpha):
    """Return the estimator with the same optimum; its penalty is relative to the sum of losses, or to their mean."""
    if loss.name in ("logistic", "multinomial"):
        return LogisticRegression(C=1.0 / (n * alpha), solver="newton-cg", tol=1e-12, max_iter=10_000)
    if loss.name == "squared":
        return Ridge(alpha=n * alpha, tol=1e-14)
    return PoissonRegressor(alpha=alpha, solver="newton-cholesky", tol=1e-12)


@pytest.mark.parametrize("robustness", ["erm", Robustness(radius=0.0)], ids=["by name", "radius 0"])
@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3), Squared(), Poisson()], ids=lambda loss: loss.name)
@PROPERTY
@given(SEEDS, st.sampled_from([1e-3, 1e-1]))
def test_zero_radius_is_the_estimator_of_scikit_learn(loss, robustness, seed, alpha):
    X, y, codes = make(loss, 3, 3, seed)
    fit = fit_linear(X, y, codes, loss, robustness=robustness, alpha=alpha, tol=1e-11)
    model = scikit_learn(loss, len(y), alpha).fit(X, y)
    expected = np.column_stack([np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)])
    np.testing.assert_allclose(identified(fit), expected.ravel(), atol=5e-6)


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Poisson()], ids=lambda loss: loss.name)
def test_zero_radius_without_an_intercept_is_the_estimator_of_scikit_learn(loss):
    X, y, codes = make(loss, 3, 3, 12)
    fit = fit_linear(X, y, codes, loss, robustness="erm", alpha=0.05, fit_intercept=False, tol=1e-13)
    model = scikit_learn(loss, len(y), 0.05).set_params(fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(fit.coef, np.atleast_2d(model.coef_), atol=1e-6)
    np.testing.assert_array_equal(fit.intercept, 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_zero_radius_is_quantile_regression(seed):
    X, y, codes = make(Pinball(0.3), 3, 3, seed)
    fit = fit_linear(X, y, codes, Pinball(0.3), robustness="erm", alpha=0.0, tol=1e-9)
    model = QuantileRegressor(quantile=0.3, alpha=0.0).fit(X, y)
    np.testing.assert_allclose(np.append(fit.coef, fit.intercept), np.append(model.coef_, model.intercept_), atol=1e-5)
    least, _ = minimise(Pinball(0.3), X, y, np.full(len(y), 1.0 / len(y)))
    assert fit.solution.value == pytest.approx(least, rel=1e-8)


def test_inverse_frequency_is_scikit_learn_with_inverse_counts_as_weights():
    X, y, codes = make(Logistic(), 4, 3, 2)
    fit = fit_linear(X, y, codes, Logistic(), robustness="inverse-frequency", alpha=0.02, tol=1e-13)
    weight = 1.0 / np.bincount(codes)[codes] / 4.0
    model = LogisticRegression(C=1.0 / 0.02, solver="newton-cg", tol=1e-12, max_iter=10_000).fit(X, y, weight)
    np.testing.assert_allclose(fit.coef, model.coef_, atol=1e-6)
    np.testing.assert_allclose(fit.intercept, model.intercept_, atol=1e-6)


@every_loss
def test_inverse_frequency_is_erm_with_inverse_counts_as_weights(loss):
    X, y, codes = make(loss, 4, 2, 2)
    fit = fit_linear(X, y, codes, loss, robustness="inverse-frequency", alpha=0.02, tol=1e-10)
    weighted = fit_linear(
        X, y, codes, loss, robustness="erm", alpha=0.02, sample_weight=1.0 / np.bincount(codes)[codes], tol=1e-10
    )
    assert fit.solution.value == pytest.approx(weighted.solution.value, rel=1e-8)
    np.testing.assert_allclose(identified(fit), identified(weighted), atol=1e-4)
    np.testing.assert_allclose(fit.mixes.p_hat, 0.25)


@every_loss
def test_minimax_values_are_the_largest_risk_and_the_largest_excess(loss):
    X, y, codes = make(loss, 4, 2, 2)
    risk = fit_linear(X, y, codes, loss, robustness="minimax-risk", alpha=1e-2)
    assert risk.solution.value == pytest.approx(risk.solution.risks.max(), rel=1e-12)
    regret = fit_linear(X, y, codes, loss, robustness="minimax-regret", alpha=1e-2)
    excess = regret.solution.risks - regret.references.upper
    assert regret.solution.value == pytest.approx(excess.max(), rel=1e-12)
    assert regret.solution.value <= (risk.solution.risks - regret.references.upper).max() * (1.0 + 1e-6)
    assert risk.solution.value <= regret.solution.risks.max() + 1e-6 * abs(risk.solution.value)


@every_loss
def test_full_confidence_is_an_infinite_radius(loss):
    X, y, codes = make(loss, 3, 2, 7)
    for criterion in ("excess", "risk"):
        one = fit_linear(X, y, codes, loss, robustness=Robustness(confidence=1.0, criterion=criterion))
        other = fit_linear(X, y, codes, loss, robustness=Robustness(radius=math.inf, criterion=criterion))
        np.testing.assert_array_equal(theta_of(one), theta_of(other))


@every_method
@every_loss
def test_one_context_is_erm(loss, method):
    X, y, codes = make(loss, 1, 2, 7)
    one = fit_linear(X, y, codes, loss, robustness=method, alpha=0.01, tol=1e-9)
    erm = fit_linear(X, y, codes, loss, robustness="erm", alpha=0.01, tol=1e-9)
    assert one.solution.risks == pytest.approx(erm.solution.risks, rel=1e-7)
    np.testing.assert_allclose(identified(one), identified(erm), atol=1e-3)
    np.testing.assert_array_equal(one.solution.p_worst, [1.0])
    if METHODS[method].criterion == "excess":
        assert one.solution.value == pytest.approx(0.0, abs=1e-6 * abs(erm.solution.value))


@every_loss
def test_value_grows_with_the_radius(loss):
    data = make(loss, 4, 2, 9)
    radii = [0.0, 1e-6, 1e-3, 0.1, 1.0, 20.0, math.inf]
    fits = [fit_linear(*data, loss, robustness=Robustness(radius=radius), tol=1e-8) for radius in radii]
    for smaller, larger in itertools.pairwise(fits):
        assert smaller.solution.certificate.lower <= larger.solution.certificate.upper


def test_radius_follows_from_confidence_draws_and_method():
    X, y, codes = make(Logistic(), 3, 2, 0)
    counts = np.bincount(codes)
    for method in ("types", "agrawal", "calibrated", "chi2", "anytime"):
        fit = fit_linear(X, y, codes, Logistic(), robustness=Robustness(confidence=0.9, radius=method))
        assert fit.mixes.radius == confidence_radius(counts, 0.9, method)
    fit = fit_linear(X, y, codes, Logistic(), robustness=Robustness(draws=40))
    assert fit.mixes.radius == confidence_radius(counts, 0.99, draws=40)


# --- weights ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["robust", "erm", "minimax-regret"])
@every_loss
@PROPERTY
@given(SEEDS)
def test_whole_weight_is_a_repeated_row(loss, method, seed):
    X, y, codes = make(loss, 3, 2, seed, (8, 20))
    times = np.random.default_rng(seed).integers(1, 4, len(codes))
    options = {"robustness": method, "alpha": 0.05, "tol": 1e-11}
    weighted = fit_linear(X, y, codes, loss, sample_weight=times, **options)
    repeated = fit_linear(*(np.repeat(rows, times, axis=0) for rows in (X, y, codes)), loss, **options)
    assert weighted.mixes.radius == repeated.mixes.radius
    np.testing.assert_array_equal(weighted.counts, repeated.counts)
    np.testing.assert_allclose(weighted.mixes.p_hat, repeated.mixes.p_hat, rtol=1e-15)
    assert weighted.solution.value == pytest.approx(repeated.solution.value, rel=1e-7, abs=1e-10)
    np.testing.assert_allclose(identified(weighted), identified(repeated), atol=1e-6 if loss in SMOOTH else 1e-4)


@every_loss
def test_row_of_no_weight_is_a_row_less(loss):
    X, y, codes = make(loss, 3, 2, 21)
    keep = np.random.default_rng(0).random(len(codes)) < 0.7
    # What has no weight has no say, whatever it is.
    wild = np.where(keep[:, None], X, 1e6)
    fit = fit_linear(wild, y, codes, loss, sample_weight=keep.astype(int))
    less = fit_linear(X[keep], y[keep], codes[keep], loss)
    np.testing.assert_allclose(identified(fit), identified(less), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(fit.counts, less.counts)
    assert fit.mixes.radius == less.mixes.radius


def test_equal_weights_change_only_the_counts():
    X, y, codes = make(Logistic(), 3, 2, 0)
    plain = fit_linear(X, y, codes, Logistic(), robustness=Robustness(radius=0.1), tol=1e-10)
    tripled = fit_linear(
        X, y, codes, Logistic(), robustness=Robustness(radius=0.1), sample_weight=np.full(len(y), 3.0), tol=1e-10
    )
    np.testing.assert_allclose(identified(tripled), identified(plain), atol=1e-9)
    np.testing.assert_allclose(tripled.counts, 3.0 * plain.counts)


# --- order and names ----------------------------------------------------------------------------------------


@every_loss
@PROPERTY
@given(SEEDS)
def test_order_of_rows_does_not_matter(loss, seed):
    X, y, codes = make(loss, 3, 2, seed, (8, 20))
    order = np.random.default_rng(seed).permutation(len(codes))
    options = {"robustness": Robustness(radius=0.2), "alpha": 0.05, "tol": 1e-11}
    one = fit_linear(X, y, codes, loss, **options)
    other = fit_linear(X[order], y[order], codes[order], loss, **options)
    assert one.solution.value == pytest.approx(other.solution.value, rel=1e-8, abs=1e-10)
    np.testing.assert_allclose(identified(one), identified(other), atol=1e-6 if loss in SMOOTH else 1e-4)


@every_loss
def test_new_names_of_contexts_permute_what_belongs_to_them(loss):
    X, y, codes = make(loss, 4, 2, 3)
    names = np.array(["d", "b", "c", "a"])
    options = {"robustness": Robustness(radius=0.2), "alpha": 0.05, "tol": 1e-10}
    one = fit_linear(X, y, codes, loss, **options)
    other = fit_linear(X, y, names[codes], loss, **options)
    where = [other.contexts.labels.tolist().index(name) for name in names]
    assert other.solution.value == pytest.approx(one.solution.value, rel=1e-8)
    np.testing.assert_array_equal(other.counts[where], one.counts)
    np.testing.assert_allclose(other.references.upper[where], one.references.upper, rtol=1e-9)
    np.testing.assert_allclose(other.solution.risks[where], one.solution.risks, rtol=1e-4)
    np.testing.assert_allclose(other.solution.p_worst[where], one.solution.p_worst, atol=1e-3)
    np.testing.assert_allclose(identified(other), identified(one), atol=1e-3)


def test_declared_order_is_the_order_of_the_results():
    X, y, codes = make(Logistic(), 3, 2, 3)
    fit = fit_linear(X, y, codes, Logistic(), declared=[2, 0, 1])
    assert fit.contexts.labels.tolist() == [2, 0, 1]
    np.testing.assert_array_equal(fit.counts, np.bincount(codes)[[2, 0, 1]])


# --- references ---------------------------------------------------------------------------------------------


@every_loss
def test_references_of_the_caller_are_used_as_they_are(loss):
    data = make(loss, 3, 2, 4)
    own = fit_linear(*data, loss, robustness=Robustness(radius=math.inf))
    given_ = own.references.upper - np.array([0.0, 0.3, 0.1])
    fit = fit_linear(*data, loss, robustness=Robustness(radius=math.inf), reference=given_)
    np.testing.assert_array_equal(fit.references.upper, given_)
    np.testing.assert_array_equal(fit.references.lower, given_)
    np.testing.assert_array_equal(fit.solution.scores, fit.solution.risks - given_)
    assert fit.solution.value == pytest.approx((fit.solution.risks - given_).max(), rel=1e-12)


@every_loss
def test_own_references_given_back_change_nothing(loss):
    data = make(loss, 3, 2, 4)
    one = fit_linear(*data, loss, robustness=Robustness(radius=0.2))
    other = fit_linear(*data, loss, robustness=Robustness(radius=0.2), reference=one.references.upper)
    np.testing.assert_allclose(identified(other), identified(one), rtol=1e-9, atol=1e-9)


def test_zero_references_score_the_risk_itself():
    data = make(Logistic(), 3, 2, 4)
    zero = fit_linear(*data, Logistic(), robustness="robust", reference=np.zeros(3))
    risk = fit_linear(*data, Logistic(), robustness="likelihood-robust")
    np.testing.assert_array_equal(theta_of(zero), theta_of(risk))
