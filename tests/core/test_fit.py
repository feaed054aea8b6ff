"""From data to a certified model: reductions to known methods, invariances, certificates, and refusals."""

import itertools
import math
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression, PoissonRegressor, QuantileRegressor, Ridge

from counterpoise.core.fit import METHODS, Robustness, fit_linear
from counterpoise.core.solvers import InteriorPoint, Status
from counterpoise.exceptions import EmptyContextError, InvalidInputError, NotCertifiedWarning
from counterpoise.losses import Huber, Logistic, Multinomial, Newsvendor, Pinball, Poisson, Squared
from counterpoise.rows import memory
from counterpoise.sets import confidence_radius
from tests.problems import LOSSES, SMOOTH, make, minimise, referee_arguments
from tests.referees import robust

PROPERTY = settings(max_examples=3, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
SEEDS = st.integers(0, 2**32 - 1)

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
every_smooth_loss = pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
every_method = pytest.mark.parametrize("method", METHODS)


def theta_of(fit):
    """Return coefficients and intercepts in one vector."""
    return np.column_stack([fit.coef, fit.intercept]).ravel()


def identified(fit):
    """Return what data determine of theta: a common shift of several intercepts changes no prediction."""
    intercept = fit.intercept if len(fit.intercept) == 1 else fit.intercept - fit.intercept.mean()
    return np.column_stack([fit.coef, intercept]).ravel()


def referee(loss, data, fit, criterion, alpha, **options):
    """Return the answer of a convex program to the problem a fit has solved."""
    X, y, codes = data
    return robust.solve(
        **referee_arguments(loss),
        X=X,
        y=y,
        codes=codes,
        radius_bits=fit.mixes.radius,
        criterion=criterion,
        alpha=alpha,
        fit_intercept=True,
        **options,
    )


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
    for method in ("types", "agrawal", "chi2"):
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


# --- stock levels: one parameter and its bounds -------------------------------------------------------------


def test_stock_level_is_exact_and_matches_a_convex_program():
    _, y, codes = make(Newsvendor(10.0), 3, 1, 6)
    ones = np.ones((len(codes), 1))
    for radius in (0.0, 0.2, math.inf):
        fit = fit_linear(
            ones, y, codes, Newsvendor(10.0), robustness=Robustness(radius=radius), alpha=0.0, fit_intercept=False
        )
        answer = robust.solve(
            "newsvendor", ones, y, codes, radius, "excess", alpha=0.0, fit_intercept=False, price=10.0
        )
        assert fit.solution.value == pytest.approx(answer.value, rel=1e-7, abs=1e-9)
        assert fit.solution.certificate.gap <= 1e-9 * fit.solution.certificate.scale


@pytest.mark.parametrize("method", ["erm", "robust", "minimax-risk"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 100.0), (0.0, 2.0), (50.0, 200.0)])
def test_stock_level_stays_within_its_bounds(method, low, high):
    _, y, codes = make(Newsvendor(10.0), 3, 1, 6)
    fit = fit_linear(
        np.ones((len(codes), 1)),
        y,
        codes,
        Newsvendor(10.0),
        robustness=method,
        alpha=0.0,
        fit_intercept=False,
        bounds=(np.array([low]), np.array([high])),
    )
    assert low <= fit.coef[0, 0] <= high
    assert fit.solution.success


@pytest.mark.parametrize(
    ("loss", "n_features", "alpha"),
    [(Newsvendor(10.0), 1, 1e-4), (Newsvendor(10.0), 2, 0.0), (Huber(1.0), 1, 0.0), (Logistic(), 2, 0.0)],
    ids=["a ridge", "two parameters", "a soft hinge", "a smooth loss"],
)
def test_bounds_that_cannot_be_kept_are_refused(loss, n_features, alpha):
    features, y, codes = make(loss, 3, n_features, 6)
    bounds = (np.zeros(n_features), np.full(n_features, 1e-3))
    with pytest.raises(InvalidInputError, match=r"bounds .*counterpoise\.minimize"):
        fit_linear(features, y, codes, loss, alpha=alpha, fit_intercept=False, bounds=bounds)


def test_bounds_that_cross_are_refused():
    _, y, codes = make(Newsvendor(10.0), 2, 1, 6)
    bounds = (np.array([5.0]), np.array([1.0]))
    with pytest.raises(InvalidInputError, match="bounds"):
        fit_linear(np.ones((len(codes), 1)), y, codes, Newsvendor(10.0), alpha=0.0, fit_intercept=False, bounds=bounds)


def test_stock_that_costs_its_price_is_fitted():
    y = np.array([[10.0, 3.0], [4.0, 5.0], [6.0, 2.0]])
    fit = fit_linear(np.ones((3, 1)), y, [0, 1, 1], Newsvendor(10.0), alpha=0.0, fit_intercept=False)
    assert fit.references.upper[0] == pytest.approx(0.0)
    assert fit.solution.success


@pytest.mark.parametrize("method", ["robust", "minimax-regret"])
@pytest.mark.parametrize("n_features", [1, 2])
def test_profit_without_bound_is_refused_with_a_remedy(method, n_features):
    # Stock that is paid for being bought: the more the better.
    y = np.array([[-1.0, 3.0], [5.0, 3.0], [5.0, 1.0], [-1.0, 2.0]])
    X = np.column_stack([np.ones(4), [1.0, 2.0, 0.5, 1.0]])[:, :n_features]
    arguments = {"robustness": method, "alpha": 0.0, "fit_intercept": False}
    with pytest.raises(InvalidInputError, match=r"context north has no minimum.*(Bound theta|Check costs)"):
        fit_linear(X, y, ["north", "south", "south", "north"], Newsvendor(10.0), **arguments)


@pytest.mark.parametrize("method", ["erm", "minimax-risk", "likelihood-robust"])
@pytest.mark.parametrize("n_features", [1, 2])
def test_profit_without_bound_in_every_context_is_refused_whatever_is_scored(method, n_features):
    y = np.array([[-1.0, 3.0], [-2.0, 3.0], [-5.0, 1.0], [-1.0, 2.0]])
    X = np.column_stack([np.ones(4), [1.0, 2.0, 0.5, 1.0]])[:, :n_features]
    arguments = {"robustness": method, "alpha": 0.0, "fit_intercept": False}
    with pytest.raises(InvalidInputError, match=r"no minimum.*(Bound theta|Check costs)"):
        fit_linear(X, y, ["north", "south", "south", "north"], Newsvendor(10.0), **arguments)


# --- inputs of every kind -----------------------------------------------------------------------------------


def containers(X, y, labels):
    """Return the same data in other containers."""
    frame = {f"x{k}": column for k, column in enumerate(X.T)}
    frozen = [np.array(part) for part in (X, y, labels)]
    for part in frozen:
        part.flags.writeable = False
    return {
        "lists": (X.tolist(), y.tolist(), labels.tolist()),
        "tuples": (tuple(map(tuple, X)), tuple(y), tuple(labels)),
        "pandas": (pd.DataFrame(frame), pd.Series(y), pd.Series(labels)),
        "pandas with another index": (
            pd.DataFrame(frame, index=np.arange(len(y))[::-1]),
            pd.Series(y, index=np.arange(len(y)) + 5),
            pd.Series(labels),
        ),
        "categorical labels": (X, y, pd.Series(labels, dtype="category")),
        "nullable": (pd.DataFrame(frame).convert_dtypes(), pd.Series(y, dtype="Float64"), labels),
        "polars": (pl.DataFrame(frame), pl.Series(y), pl.Series(labels)),
        "Fortran order": (np.asfortranarray(X), y, labels),
        "strided": (np.repeat(X, 2, axis=0)[::2], np.repeat(y, 2)[::2], np.repeat(labels, 2)[::2]),
        "read-only": tuple(frozen),
        "sparse": (sparse.csr_array(X), y, labels),
        "sparse columns": (sparse.csc_matrix(X), y, labels),
        "sparse triplets": (sparse.coo_array(X), y, labels),
        "long floats": (X.astype(np.longdouble), y.astype(np.longdouble), labels),
        "objects": (X.astype(object), y.astype(object), labels.astype(object)),
    }


@pytest.mark.parametrize("kind", containers(np.ones((1, 1)), np.ones(1), np.array(["a"])))
def test_containers_do_not_matter(kind):
    X, y, codes = make(Logistic(), 3, 2, 0)
    labels = np.array(["a", "b", "c"])[codes]
    expected = fit_linear(X, y, labels, Logistic())
    fit = fit_linear(*containers(X, y, labels)[kind], Logistic())
    np.testing.assert_allclose(identified(fit), identified(expected), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(fit.counts, expected.counts)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.uint8, bool])
def test_numbers_of_every_kind_are_taken_at_their_value(dtype):
    X, y, codes = make(Logistic(), 3, 2, 0)
    X = np.abs(np.round(2.0 * X)).astype(dtype)
    expected = fit_linear(X.astype(np.float64), y, codes, Logistic())
    fit = fit_linear(X, y.astype(dtype), codes, Logistic())
    np.testing.assert_array_equal(theta_of(fit), theta_of(expected))
    assert fit.coef.dtype == np.float64


def test_sparse_single_precision_is_taken_at_its_value():
    X, y, codes = make(Logistic(), 3, 2, 0)
    X = X.astype(np.float32)
    expected = fit_linear(X.astype(np.float64), y, codes, Logistic())
    fit = fit_linear(sparse.csr_array(X), y, codes, Logistic())
    np.testing.assert_allclose(identified(fit), identified(expected), atol=1e-9)


def test_targets_of_several_columns_may_be_a_frame():
    X, y, codes = make(Newsvendor(10.0), 3, 2, 0)
    expected = fit_linear(X, y, codes, Newsvendor(10.0))
    for frame in (pd.DataFrame, pl.DataFrame):
        fit = fit_linear(X, frame({"cost": y[:, 0], "demand": y[:, 1]}), codes, Newsvendor(10.0))
        np.testing.assert_array_equal(theta_of(fit), theta_of(expected))


def test_weights_may_be_a_series_or_a_list():
    X, y, codes = make(Logistic(), 3, 2, 0)
    weight = np.arange(1, len(y) + 1)
    expected = fit_linear(X, y, codes, Logistic(), sample_weight=weight)
    for container in (list, pd.Series, pl.Series):
        fit = fit_linear(X, y, codes, Logistic(), sample_weight=container(weight))
        np.testing.assert_array_equal(theta_of(fit), theta_of(expected))


def test_inputs_are_left_as_they_were():
    X, y, codes = make(Logistic(), 3, 2, 0)
    weight = np.ones(len(y))
    weight[0] = 0.0
    before = [part.copy() for part in (X, y, codes, weight)]
    fit_linear(X, y, codes, Logistic(), sample_weight=weight)
    for part, copy in zip((X, y, codes, weight), before, strict=True):
        np.testing.assert_array_equal(part, copy)


@pytest.mark.parametrize("alpha", [0.0, 1e-4])
@every_loss
def test_one_row_is_enough(loss, alpha):
    features, y, codes = make(loss, 1, 2, 0, (1, 1))
    fit = fit_linear(features[:1], y[:1], codes[:1], loss, alpha=alpha)
    assert fit.solution.certificate.upper <= 1e-6
    assert fit.solution.risks[0] == pytest.approx(loss.lowest(y[:1])[0], abs=1e-4)


@every_loss
def test_one_row_a_context_is_enough(loss):
    features, y, codes = make(loss, 4, 2, 0, (1, 1))
    first = [int(np.flatnonzero(codes == c)[0]) for c in range(4)]
    fit = fit_linear(features[first], y[first], codes[first], loss, alpha=1e-2)
    assert fit.solution.success
    np.testing.assert_array_equal(fit.counts, 1.0)


@every_loss
def test_intercept_alone_can_be_fitted(loss):
    _, y, codes = make(loss, 3, 1, 0)
    fit = fit_linear(np.empty((len(codes), 0)), y, codes, loss)
    assert fit.coef.shape == (loss.n_outputs, 0)
    assert fit.solution.success


# --- refusals -----------------------------------------------------------------------------------------------


X, Y, CODES = make(Logistic(), 3, 2, 0)
LABELS = np.array(["north", "south", "west"])[CODES]
N = len(Y)


def changed(array, where, value):
    """Return a copy with one entry replaced."""
    copy = np.array(array, dtype=object if isinstance(value, str) else None)
    copy[where] = value
    return copy


def frame_with(column):
    return pd.DataFrame({"age": X[:, 0], "town": column})


REFUSED = {
    "NaN in X": ({"X": changed(X, (3, 1), np.nan)}, r"X is nan in row 3, column 1\. Impute or drop"),
    "infinity in X": ({"X": changed(X, (5, 0), -np.inf)}, r"X is -inf in row 5, column 0\. Impute or drop"),
    "NaN in sparse X": ({"X": sparse.csr_array(changed(X, (3, 1), np.nan))}, r"X is nan in row 3, column 1\. Impute"),
    "NaN in a frame": ({"X": pd.DataFrame(changed(X, (3, 1), np.nan))}, r"X is nan in row 3, column 1\. Impute"),
    "missing in a nullable frame": (
        {"X": frame_with(pd.array([None, *[1] * (N - 1)], dtype="Int64"))},
        r"X is nan in row 0, column 1\. Impute",
    ),
    "X of one dimension": ({"X": X[:, 0]}, r"two dimensions, got shape \(\d+,\)\. Use X\.reshape\(-1, 1\)"),
    "X of three dimensions": ({"X": X[:, :, None]}, "two dimensions"),
    "sparse X of one dimension": ({"X": sparse.coo_array(X[:, 0])}, "two dimensions"),
    "ragged X": ({"X": [[1.0, 2.0], *[[3.0]] * (N - 1)]}, "X"),
    "no X": ({"X": None}, "X"),
    "complex X": ({"X": X + 1j}, "complex numbers; pass real"),
    "sparse complex X": ({"X": sparse.csr_array(X + 1j)}, "complex numbers; pass real"),
    "text in an array": ({"X": changed(X, (0, 1), "red")}, r"X must be numbers \(column 1.*red.*OneHotEncoder"),
    "text in a pandas frame": (
        {"X": frame_with(["rome"] * N)},
        r"X must be numbers \(column town.*rome.*OneHotEncoder",
    ),
    "text in a polars frame": (
        {"X": pl.DataFrame({"age": X[:, 0], "town": ["rome"] * N})},
        r"X must be numbers \(column town.*rome.*OneHotEncoder",
    ),
    "categories in a pandas frame": ({"X": frame_with(pd.Categorical(["rome"] * N))}, r"numbers \(column town.*rome"),
    "no rows": ({"X": X[:0], "y": Y[:0], "contexts": LABELS[:0]}, "X has no rows"),
    "nothing to fit": ({"X": X[:, :0], "fit_intercept": False}, "nothing to fit"),
    "NaN in y": ({"y": changed(Y, 4, np.nan)}, "target in row 4 is nan; drop or impute"),
    "infinity in y": ({"y": changed(Y, 4, np.inf)}, "target in row 4 is inf; drop or impute"),
    "text in y": ({"y": ["yes"] * N}, "logistic loss needs numbers as targets"),
    "short y": ({"y": Y[:-1]}, rf"X has {N} rows and y has {N - 1}\. Pass one target per row"),
    "y of two columns": ({"y": np.column_stack([Y, Y])}, rf"shape \(n,\) .*got \({N}, 2\)"),
    "y outside the domain": ({"y": changed(Y, 2, 7.0)}, r"target in row 2 is 7\.0; the logistic loss needs 0 or 1"),
    "short contexts": ({"contexts": LABELS[:-1]}, rf"got {N - 1} context labels for {N} rows\. Pass one label per row"),
    "None among the contexts": ({"contexts": [None, *LABELS[1:]]}, "context of row 0 is None.*'unknown'"),
    "NaN among the contexts": ({"contexts": changed(CODES.astype(float), 1, np.nan)}, "context of row 1.*'unknown'"),
    "undeclared context": ({"declared": ["north", "south"]}, "context west is in the data but was not declared"),
    "short weights": ({"sample_weight": np.ones(3)}, rf"sample_weight has shape \(3,\) for {N} rows\. Pass one weight"),
    "weights of two columns": ({"sample_weight": np.ones((N, 1))}, "sample_weight has shape"),
    "negative weight": ({"sample_weight": changed(np.ones(N), 6, -1.0)}, r"sample_weight in row 6 is -1\.0"),
    "NaN weight": ({"sample_weight": changed(np.ones(N), 6, np.nan)}, "sample_weight in row 6 is nan"),
    "text as weights": ({"sample_weight": ["a"] * N}, "sample_weight must be numbers"),
    "negative alpha": ({"alpha": -0.1}, r"alpha = -0\.1; the ridge is a finite number, 0 or more"),
    "NaN alpha": ({"alpha": math.nan}, "alpha = nan; the ridge is"),
    "infinite alpha": ({"alpha": math.inf}, "alpha = inf; the ridge is"),
    "text as alpha": ({"alpha": "strong"}, "alpha"),
    "unknown method": ({"robustness": "brave"}, "no method 'brave'; choose one of robust, erm"),
    "unknown criterion": (
        {"robustness": Robustness(criterion="pain")},
        "criterion is 'pain'; choose 'excess' or 'risk'",
    ),
    "unknown radius": ({"robustness": Robustness(radius="wide")}, "'wide'; choose 'types', 'agrawal' or 'chi2'"),
    "negative radius": ({"robustness": Robustness(radius=-1.0)}, r"radius = -1\.0"),
    "NaN radius": ({"robustness": Robustness(radius=math.nan)}, "radius = nan"),
    "confidence above 1": ({"robustness": Robustness(confidence=1.5)}, r"confidence = 1\.5; it must lie in \[0, 1\]"),
    "too few references": (
        {"reference": np.zeros(2)},
        r"reference is .*of shape \(2,\).* map each of 3 contexts",
    ),
    "NaN reference": ({"reference": [0.0, math.nan, 0.0]}, "reference of context south .*finite"),
    "text as references": ({"reference": ["low"] * 3}, "reference .*numbers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_by_name_and_with_a_remedy(case):
    arguments, message = REFUSED[case]
    arguments = {"X": X, "y": Y, "contexts": LABELS, "loss": Logistic()} | arguments
    with pytest.raises(InvalidInputError, match=message):
        fit_linear(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"declared": ["north", "south", "west", "east"]},
            r"context east has no training samples \(counts: .*east 0\)",
        ),
        (
            {"sample_weight": (CODES != 1).astype(float)},
            "all sample weights of context south are zero.*Drop the context",
        ),
    ],
    ids=["declared and never seen", "without weight"],
)
def test_context_without_data_is_refused_as_empty(arguments, message):
    with pytest.raises(EmptyContextError, match=message):
        fit_linear(X, Y, LABELS, Logistic(), **arguments)


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (Logistic(), 0.5),
        (Logistic(), -1.0),
        (Multinomial(3), 3.0),
        (Multinomial(3), 0.5),
        (Multinomial(3), -1.0),
        (Poisson(), -0.1),
        (Newsvendor(10.0), [2.0, -1.0]),
    ],
)
def test_target_outside_the_domain_is_refused_with_its_row(loss, target):
    features, y, codes = make(loss, 2, 2, 0)
    y[5] = target
    with pytest.raises(InvalidInputError, match=rf"target in row 5 is .*the {loss.name} loss needs .*Recode"):
        fit_linear(features, y, codes, loss)


def test_dates_are_no_features():
    days = np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]")[np.arange(N) % 2]
    with pytest.raises(InvalidInputError, match="X must be numbers"):
        fit_linear(days[:, None], Y, LABELS, Logistic())


@every_loss
@pytest.mark.parametrize("far", [2e3, 1e5, 1e8])
def test_features_far_from_zero_are_as_those_around_it(loss, far):
    X, y, codes = make(loss, 3, 3, seed=5)
    # What the shift would round off is rounded off before.
    X = (X + far) - far
    offsets = np.array([far, 0.0, -far])
    near, away = (fit_linear(rows, y, codes, loss, alpha=1e-3) for rows in (X, X + offsets))
    assert away.solution.success
    assert away.solution.value == pytest.approx(near.solution.value, abs=1e-6 * near.solution.certificate.scale)
    there = (X + offsets) @ away.coef.T + away.intercept
    np.testing.assert_allclose(there, X @ near.coef.T + near.intercept, atol=1e-3 * (1.0 + np.abs(there).max()))
