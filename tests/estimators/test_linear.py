"""The linear estimators: reductions to scikit-learn, and what a fit says of itself."""

import datetime
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import (
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
)
from sklearn.metrics import mean_pinball_loss

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Huber
from tests.estimators.linear_models import (
    CLASSIFIERS,
    DAYS,
    KINDS,
    NAMES,
    PER_CONTEXT,
    assert_same_model,
    ball_of,
    estimator,
    every_estimator,
    fitted,
    risks_of,
    rows_of,
    small_contexts,
    theta_of,
)
from tests.problems import minimise

# --- no robustness is scikit-learn --------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["excess", "risk"])
@pytest.mark.parametrize("alpha", [1e-3, 0.1])
@pytest.mark.parametrize("case", ["binary", "multinomial", "linear", "poisson"])
def test_zero_radius_is_scikit_learns_fit(case, alpha, criterion):
    X, y, codes = rows_of(case)
    n = len(y)
    theirs = {
        "linear": Ridge(alpha=n * alpha, tol=1e-14),
        "poisson": PoissonRegressor(alpha=alpha, solver="newton-cholesky", tol=1e-12),
    }.get(case, LogisticRegression(C=1.0 / (n * alpha), solver="newton-cg", tol=1e-12, max_iter=10_000))
    ours = estimator(case, radius=0, alpha=alpha, criterion=criterion, tol=1e-11).fit(X, y, codes)
    assert_same_model(ours, theirs.fit(X, y), atol=5e-6)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ours.context_weights_, np.bincount(codes) / n)


@pytest.mark.parametrize("case", ["binary", "linear", "poisson"])
def test_zero_radius_without_an_intercept_is_scikit_learns_fit(case):
    X, y, codes = rows_of(case)
    theirs = {
        "linear": Ridge(alpha=len(y) * 0.05, fit_intercept=False, tol=1e-14),
        "poisson": PoissonRegressor(alpha=0.05, fit_intercept=False, solver="newton-cholesky", tol=1e-12),
    }.get(case, LogisticRegression(C=1.0 / (len(y) * 0.05), fit_intercept=False, solver="newton-cg", tol=1e-12))
    ours = estimator(case, radius=0, alpha=0.05, fit_intercept=False, tol=1e-12).fit(X, y, codes)
    np.testing.assert_allclose(ours.coef_, theirs.fit(X, y).coef_, atol=5e-6)
    np.testing.assert_array_equal(ours.intercept_, 0.0)


@pytest.mark.parametrize("quantile", [0.2, 0.5])
def test_zero_radius_reaches_the_objective_of_scikit_learns_quantile_fit(quantile):
    X, y, codes = rows_of("quantile")
    ours = cpo.RobustQuantileRegressor(quantile=quantile, radius=0, alpha=0.0, tol=1e-9).fit(X, y, codes)
    theirs = QuantileRegressor(quantile=quantile, alpha=0.0).fit(X, y)
    losses = [mean_pinball_loss(y, model.predict(X), alpha=quantile) for model in (ours, theirs)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-7)


def test_zero_radius_is_the_least_mean_huber_loss():
    X, y, codes = rows_of("huber")
    least, theta = minimise(Huber(0.7), X, y, np.full(len(y), 1.0 / len(y)), 0.01)
    ours = cpo.RobustHuberRegressor(delta=0.7, radius=0, alpha=0.01, tol=1e-10, criterion="risk").fit(X, y, codes)
    assert ours.certificate_.upper == pytest.approx(least, rel=1e-8)
    np.testing.assert_allclose(theta_of(ours), theta, atol=1e-4)


def test_wide_huber_loss_is_least_squares():
    X, y, codes = rows_of("huber")
    wide = cpo.RobustHuberRegressor(delta=1e3, tol=1e-10).fit(X, y, codes)
    assert_same_model(wide, cpo.RobustLinearRegression(tol=1e-10).fit(X, y, codes), atol=1e-5)


# --- a fit is what it says ----------------------------------------------------------------------------------


@every_estimator
def test_fitted_attributes_have_their_shapes(case):
    X, y, codes = rows_of(case)
    model = fitted(case)
    outputs = {"binary": (1,), "multinomial": (3,)}.get(case, ())
    assert np.shape(model.coef_) == (*outputs, 2)
    assert np.shape(model.intercept_) == outputs
    assert model.contexts_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(model.context_counts_, np.bincount(codes))
    assert model.context_counts_.dtype.kind == "i"
    for name in PER_CONTEXT:
        assert getattr(model, name).shape == (3,), name
    assert model.n_features_in_ == 2
    assert model.n_iter_ >= 1
    assert not hasattr(model, "feature_names_in_")
    if case in CLASSIFIERS:
        np.testing.assert_array_equal(model.classes_, np.unique(y))
    assert model.predict(X).shape == y.shape


@pytest.mark.parametrize("reference", ["in-sample", "cross-fit"])
@pytest.mark.parametrize("options", [{}, {"radius": 0.0}, {"radius": 0.3}, {"confidence": 1.0}], ids=str)
@every_estimator
def test_attributes_agree_with_one_another(case, options, reference):
    alpha = 1e-2
    model = fitted(case, alpha=alpha, reference=reference, **options)
    certificate, ball = model.certificate_, ball_of(model)
    np.testing.assert_allclose(model.context_risks_, risks_of(case, theta_of(model), alpha), rtol=1e-10)
    np.testing.assert_array_equal(model.excess_risks_, model.context_risks_ - model.reference_risks_)
    assert certificate.lower <= certificate.upper
    assert certificate.gap <= 1e-6 * certificate.scale
    worst = ball.worst_case(model.excess_risks_)
    assert worst.value == pytest.approx(certificate.upper, abs=1e-6 * certificate.scale)
    assert ball.contains(model.context_weights_)
    attained = model.context_weights_ @ model.excess_risks_
    assert attained == pytest.approx(certificate.upper, abs=1e-3 * certificate.scale)
    if reference == "in-sample":
        assert (model.excess_risks_ >= -1e-9).all()


@every_estimator
def test_model_is_optimal_under_its_worst_mix(case):
    X, y, codes = rows_of(case)
    model = fitted(case, alpha=1e-2, tol=1e-9)
    weight = model.context_weights_[codes] / model.context_counts_[codes]
    plain = estimator(case, radius=0, alpha=1e-2, tol=1e-9).fit(X, y, codes, sample_weight=weight)
    np.testing.assert_allclose(plain.predict(X), model.predict(X), atol=1e-3 if case != "quantile" else 1e-2)


@every_estimator
def test_radius_follows_from_confidence_method_and_draws(case):
    X, y, codes = rows_of(case)
    counts = np.bincount(codes)
    assert fitted(case).radius_ == cpo.confidence_radius(counts, 0.99)
    model = estimator(case, confidence=0.9, radius="agrawal", draws=50).fit(X, y, codes)
    assert model.radius_ == cpo.confidence_radius(counts, 0.9, "agrawal", draws=50)
    assert fitted(case, radius=0.3).radius_ == 0.3


@every_estimator
def test_full_confidence_is_an_infinite_radius(case):
    full, infinite = fitted(case, confidence=1.0), fitted(case, radius=math.inf)
    assert full.radius_ == math.inf
    np.testing.assert_array_equal(theta_of(full), theta_of(infinite))
    assert full.certificate_.upper == pytest.approx(full.excess_risks_.max(), abs=1e-6 * full.certificate_.scale)


@pytest.mark.parametrize("criterion", ["risk", "excess"])
@every_estimator
def test_criterion_names_what_is_least_at_worst(case, criterion):
    alpha = 1e-2
    models = {name: fitted(case, confidence=1.0, alpha=alpha, criterion=name) for name in ("risk", "excess")}
    model, reference = models[criterion], models["excess"].reference_risks_

    def worst(risks):
        return np.max(risks if criterion == "risk" else risks - reference)

    room = 1e-5 * model.certificate_.scale
    assert worst(model.context_risks_) == pytest.approx(model.certificate_.upper, abs=room)
    assert worst(model.context_risks_) <= min(worst(other.context_risks_) for other in models.values()) + room
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-1, 1.0):
        theta = theta_of(model) + size * rng.normal(size=theta_of(model).size)
        assert worst(risks_of(case, theta, alpha)) >= model.certificate_.lower - 1e-12


@every_estimator
def test_risk_score_still_reports_references(case):
    risk, excess = fitted(case, criterion="risk"), fitted(case)
    np.testing.assert_allclose(risk.reference_risks_, excess.reference_risks_)
    np.testing.assert_allclose(risk.excess_risks_, risk.context_risks_ - risk.reference_risks_)


@every_estimator
def test_worst_case_excess_falls_from_erm_to_minimax(case):
    largest = [fitted(case, radius=radius).excess_risks_.max() for radius in (0.0, 0.1, math.inf)]
    assert largest[0] + 1e-6 >= largest[1] >= largest[2] - 1e-6


# --- weights ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0.0, "types", math.inf])
@every_estimator
def test_whole_weight_is_a_repeated_row(case, radius):
    X, y, codes = rows_of(case)
    times = np.random.default_rng(0).integers(1, 4, len(y))
    model = estimator(case, radius=radius, alpha=0.05, tol=1e-11)
    weighted = clone(model).fit(X, y, codes, sample_weight=times)
    repeated = clone(model).fit(*(np.repeat(part, times, axis=0) for part in (X, y, codes)))
    assert_same_model(weighted, repeated, atol=1e-6 if case != "quantile" else 1e-4)
    np.testing.assert_allclose(weighted.context_counts_, repeated.context_counts_)
    np.testing.assert_allclose(weighted.context_risks_, repeated.context_risks_, rtol=1e-5)
    assert weighted.radius_ == pytest.approx(repeated.radius_)


@every_estimator
def test_row_of_no_weight_is_a_row_less(case):
    X, y, codes = rows_of(case)
    keep = np.random.default_rng(1).random(len(y)) < 0.9
    wild = np.where(keep[:, None], X, 1e3)
    weighted = estimator(case).fit(wild, y, codes, sample_weight=keep.astype(float))
    dropped = estimator(case).fit(X[keep], y[keep], codes[keep])
    assert_same_model(weighted, dropped)


@every_estimator
def test_container_of_the_weights_does_not_matter(case):
    X, y, codes = rows_of(case)
    weight = np.random.default_rng(2).random(len(y)) + 0.5
    expected = estimator(case).fit(X, y, codes, sample_weight=weight)
    for other in (weight.tolist(), pd.Series(weight), pl.Series(weight)):
        np.testing.assert_array_equal(
            theta_of(estimator(case).fit(X, y, codes, sample_weight=other)), theta_of(expected)
        )


# --- references ---------------------------------------------------------------------------------------------


@every_estimator
def test_references_of_the_caller_are_used_as_they_are(case):
    X, y, codes = rows_of(case)
    known = {"east": -1.0, "north": 0.1, "west": 0.2, "nowhere": 9.0}
    model = estimator(case, reference=known).fit(X, y, NAMES[codes])
    np.testing.assert_array_equal(model.reference_risks_, [-1.0, 0.1, 0.2])
    np.testing.assert_array_equal(model.excess_risks_, model.context_risks_ - [-1.0, 0.1, 0.2])


@pytest.mark.parametrize("kind", KINDS)
def test_references_that_were_found_can_be_given_back(kind):
    X, y, codes = rows_of("linear")
    labels = KINDS[kind](codes)
    model = estimator("linear").fit(X, y, labels)
    found = dict(zip(model.contexts_, model.reference_risks_, strict=True))
    assert_same_model(estimator("linear", reference=found).fit(X, y, labels), model)


@pytest.mark.parametrize("day", [datetime.datetime, pd.Timestamp])
def test_references_of_dates_may_be_given_by_date(day):
    X, y, codes = rows_of("linear")
    known = {day(2024, month, 1): 0.1 * month for month in (1, 2, 3)}
    model = estimator("linear", reference=known).fit(X, y, pd.Series(DAYS.astype("M8[ns]")[codes]))
    np.testing.assert_allclose(model.reference_risks_, [0.1, 0.2, 0.3])


def test_references_in_a_series_go_by_its_labels_or_are_refused():
    X, y, codes = rows_of("linear")
    known = pd.Series({"west": 0.3, "north": 0.2, "east": 0.1})
    model = estimator("linear", reference=known)
    try:
        model.fit(X, y, NAMES[codes])
    except InvalidInputError:
        return
    np.testing.assert_array_equal(model.reference_risks_, [0.1, 0.2, 0.3])


def test_context_without_a_reference_is_named():
    X, y, codes = rows_of("linear")
    with pytest.raises(InvalidInputError, match=r"RobustLinearRegression: reference .* context north .*1 of 3.*Map"):
        estimator("linear", reference={"east": 0.0, "west": 0.0}).fit(X, y, NAMES[codes])


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
@pytest.mark.parametrize("seed", range(3))
def test_cross_fitted_references_of_small_contexts_are_higher_and_nearer_to_the_truth(seed):
    data = small_contexts(30, 20, 8, seed)
    flattering = cpo.RobustLinearRegression(reference="in-sample").fit(*data).reference_risks_
    honest = cpo.RobustLinearRegression(reference="cross-fit").fit(*data).reference_risks_
    assert (honest > flattering).all()
    assert np.mean(np.abs(honest - 0.5)) < np.mean(np.abs(flattering - 0.5))
    assert abs(np.mean(honest) - 0.5) < 0.5 * abs(np.mean(flattering) - 0.5)


@every_estimator
def test_cross_fitted_references_of_large_contexts_are_nearly_those_in_sample(case):
    honest, exact = fitted(case, reference="cross-fit").reference_risks_, fitted(case).reference_risks_
    assert not np.array_equal(honest, exact)
    np.testing.assert_allclose(honest, exact, rtol=0.2, atol=0.05)
