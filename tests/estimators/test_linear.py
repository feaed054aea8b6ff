"""The linear estimators: reductions to scikit-learn, what a fit says of itself, inputs of every kind, and refusals."""

import datetime
import functools
import inspect
import io
import math
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import skops.io
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import (
    HuberRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
)
from sklearn.metrics import accuracy_score, mean_pinball_loss, r2_score

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError, NotCertifiedWarning, OneContextWarning, SmallContextWarning
from counterpoise.losses import Huber, Logistic, Multinomial, Pinball, Poisson, Squared
from counterpoise.rows.memory import BATCH_ENTRIES
from tests.problems import make, minimise, scattered, weighted_risk

CASES = {
    "binary": (cpo.RobustLogisticRegression, Logistic()),
    "multinomial": (cpo.RobustLogisticRegression, Multinomial(3)),
    "linear": (cpo.RobustLinearRegression, Squared()),
    "huber": (cpo.RobustHuberRegressor, Huber(1.35)),
    "poisson": (cpo.RobustPoissonRegressor, Poisson()),
    "quantile": (cpo.RobustQuantileRegressor, Pinball(0.5)),
}
CLASSIFIERS = ["binary", "multinomial"]
PLAIN = {
    "binary": LogisticRegression,
    "multinomial": LogisticRegression,
    "linear": LinearRegression,
    "huber": HuberRegressor,
    "poisson": PoissonRegressor,
    "quantile": QuantileRegressor,
}
PER_CONTEXT = (
    "contexts_",
    "context_counts_",
    "context_weights_",
    "context_risks_",
    "reference_risks_",
    "excess_risks_",
    "adjustments_",
)

every_estimator = pytest.mark.parametrize("case", CASES)
every_classifier = pytest.mark.parametrize("case", CLASSIFIERS)
a_classifier_and_a_regressor = pytest.mark.parametrize("case", ["binary", "linear"])


@functools.cache
def rows_of(case):
    """Return data with three contexts, none too small for its parameters."""
    X, y, codes = make(CASES[case][1], 3, 2, 4, (90, 110) if case == "multinomial" else (45, 60))
    for part in (X, y, codes):
        part.flags.writeable = False
    return X, y, codes


def estimator(case, **options):
    return CASES[case][0](**options)


@functools.cache
def fitted(case, **options):
    return estimator(case, **options).fit(*rows_of(case))


def theta_of(model):
    """Return coefficients and intercepts in one vector."""
    return np.column_stack([np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)]).ravel()


def risks_of(case, theta, alpha):
    """Return the risk of each context, written out."""
    X, y, codes = rows_of(case)
    risks = []
    for c in range(codes.max() + 1):
        rows = codes == c
        weight = np.full(rows.sum(), 1.0 / rows.sum())
        risks.append(weighted_risk(CASES[case][1], X[rows], y[rows], weight, theta, alpha))
    return np.array(risks)


def ball_of(model):
    return cpo.KLBall(model.context_counts_ / model.context_counts_.sum(), model.radius_)


def assert_same_model(one, other, **tolerance):
    np.testing.assert_allclose(theta_of(one), theta_of(other), **({"rtol": 1e-9, "atol": 1e-9} | tolerance))


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


# --- contexts of every kind ---------------------------------------------------------------------------------

NAMES = np.array(["east", "north", "west"])
DAYS = np.array(["2024-01-01", "2024-02-01", "2024-03-01"], dtype="M8[D]")
KINDS = {
    "strings": lambda codes: NAMES[codes],
    "list of strings": lambda codes: NAMES[codes].tolist(),
    "object strings": lambda codes: NAMES[codes].astype(object),
    "large integers": lambda codes: codes * 10**6 - 7,
    "list of integers": lambda codes: codes.tolist(),
    "floats": lambda codes: codes + 0.5,
    "small integers": lambda codes: codes.astype(np.uint8),
    "pandas categorical": lambda codes: pd.Categorical(NAMES[codes]),
    "pandas categorical series": lambda codes: pd.Series(pd.Categorical(NAMES[codes]), index=codes),
    "pandas string series": lambda codes: pd.Series(NAMES[codes], dtype="string"),
    "pandas nullable integers": lambda codes: pd.Series(codes, dtype="Int64"),
    "pandas index": lambda codes: pd.Index(NAMES[codes]),
    "polars strings": lambda codes: pl.Series(NAMES[codes]),
    "polars categorical": lambda codes: pl.Series(NAMES[codes], dtype=pl.Categorical),
    "list of dates": lambda codes: DAYS[codes].tolist(),
    "days": lambda codes: DAYS[codes],
    "nanoseconds": lambda codes: DAYS.astype("M8[ns]")[codes],
    "pandas dates": lambda codes: pd.Series(DAYS.astype("M8[ns]")[codes]),
    "polars dates": lambda codes: pl.Series(DAYS[codes]),
    "one pandas column": lambda codes: pd.DataFrame({"region": NAMES[codes]}),
    "one polars column": lambda codes: pl.DataFrame({"region": NAMES[codes]}),
    "tuples": lambda codes: [(NAMES[c], c) for c in codes.tolist()],
    "two pandas columns": lambda codes: pd.DataFrame({"region": NAMES[codes], "urban": codes == 1}),
    "two polars columns": lambda codes: pl.DataFrame({"region": NAMES[codes], "year": 2000 + codes}),
}


@pytest.mark.parametrize("kind", KINDS)
@a_classifier_and_a_regressor
def test_kind_of_the_contexts_does_not_matter(case, kind):
    X, y, codes = rows_of(case)
    model = estimator(case).fit(X, y, contexts=KINDS[kind](codes))
    assert_same_model(model, fitted(case))
    np.testing.assert_array_equal(model.context_counts_, np.bincount(codes))


@a_classifier_and_a_regressor
@pytest.mark.parametrize("kind", [np.asarray, list, pd.Series, pl.Series], ids=["array", "list", "pandas", "polars"])
def test_contexts_may_be_true_or_false(case, kind):
    X, y, codes = rows_of(case)
    model = estimator(case).fit(X, y, contexts=kind(codes == 1))
    assert_same_model(model, estimator(case).fit(X, y, contexts=(codes == 1).astype(int)))
    assert model.contexts_.tolist() == [False, True]


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
@a_classifier_and_a_regressor
def test_columns_of_a_table_are_crossed(case, frame):
    X, y, codes = rows_of(case)
    half = (np.arange(len(y)) % 2).astype(int)
    model = estimator(case).fit(X, y, contexts=frame({"region": NAMES[codes], "half": half}))
    assert model.contexts_.tolist() == [(name, k) for name in NAMES.tolist() for k in (0, 1)]
    assert_same_model(model, estimator(case).fit(X, y, contexts=2 * codes + half))


@every_estimator
def test_order_of_rows_does_not_matter(case):
    X, y, codes = rows_of(case)
    order = np.random.default_rng(0).permutation(len(y))
    model = estimator(case, alpha=0.05, tol=1e-11)
    shuffled = clone(model).fit(X[order], y[order], codes[order])
    assert_same_model(shuffled, clone(model).fit(X, y, codes), atol=1e-6 if case != "quantile" else 1e-4)


@every_estimator
@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.OneContextWarning")
def test_no_contexts_is_plain_empirical_risk_minimisation(case):
    X, y, codes = rows_of(case)
    options = {"alpha": 0.02, "tol": 1e-10}
    alone = estimator(case, **options).fit(X, y)
    assert_same_model(alone, estimator(case, radius=0, **options).fit(X, y, codes), atol=1e-4)
    np.testing.assert_allclose(alone.excess_risks_, 0.0, atol=1e-6)


# --- features of every kind ---------------------------------------------------------------------------------

COLUMNS = ["age", "dose"]
TABLES = {
    "lists": np.ndarray.tolist,
    "Fortran order": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=0)[::2],
    "pandas": lambda X: pd.DataFrame(X, columns=COLUMNS),
    "pandas with another index": lambda X: pd.DataFrame(X, columns=COLUMNS, index=np.arange(len(X))[::-1]),
    "polars": lambda X: pl.DataFrame(X, schema=COLUMNS),
    "csr matrix": sparse.csr_matrix,
    "csr array": sparse.csr_array,
    "csc matrix": sparse.csc_matrix,
    "csc array": sparse.csc_array,
    "coo array": sparse.coo_array,
}


@pytest.mark.parametrize("table", TABLES)
@every_estimator
def test_kind_of_the_features_does_not_matter(case, table):
    X, y, codes = rows_of(case)
    other = TABLES[table](X)
    model = estimator(case).fit(other, y, codes)
    assert_same_model(model, fitted(case), atol=1e-7)
    np.testing.assert_allclose(model.predict(other), fitted(case).predict(X), atol=1e-6)
    assert hasattr(model, "feature_names_in_") == (table.partition(" ")[0] in ("pandas", "polars"))


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@every_estimator
def test_single_precision_changes_little(case, container):
    X, y, codes = rows_of(case)
    single = container(X.astype(np.float32))
    model = estimator(case).fit(single, y, codes)
    assert_same_model(model, fitted(case), rtol=1e-3, atol=1e-3)
    assert model.coef_.dtype == np.float64
    assert model.predict(single).dtype == fitted(case).predict(X).dtype


@pytest.mark.parametrize("kind", [list, pd.Series, pl.Series], ids=["list", "pandas", "polars"])
@every_estimator
def test_kind_of_the_target_does_not_matter(case, kind):
    X, y, codes = rows_of(case)
    np.testing.assert_array_equal(theta_of(estimator(case).fit(X, kind(y), codes)), theta_of(fitted(case)))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
@every_estimator
def test_columns_are_remembered_and_asked_for_again(case, frame):
    X, y, codes = rows_of(case)
    model = estimator(case).fit(frame(dict(zip(COLUMNS, X.T, strict=True))), y, codes)
    assert model.feature_names_in_.tolist() == COLUMNS
    for names in (["age", "weight"], COLUMNS[::-1]):
        with pytest.raises(ValueError, match="feature names should match"):
            model.predict(frame(dict(zip(names, X.T, strict=True))))


@every_estimator
def test_other_number_of_columns_is_refused(case):
    X, _, _ = rows_of(case)
    with pytest.raises(ValueError, match=r"X has 1 features, but .* expecting 2 features"):
        fitted(case).predict(X[:, :1])


@pytest.mark.parametrize(
    ("case", "container"),
    [*((case, sparse.csr_array) for case in CASES), ("binary", sparse.csr_matrix), ("linear", sparse.csc_array)],
)
def test_large_sparse_features_are_never_filled_in(case, container, monkeypatch):
    rng = np.random.default_rng(0)
    n, d = 36_000, 60
    assert n * d > BATCH_ENTRIES
    X = container(scattered(rng, 2 * n, d, 0.01))
    codes = np.repeat([0, 1], n)
    z = np.asarray(X @ rng.normal(0.0, 1.0, d)) + 0.5 * rng.normal(size=2 * n)
    y = {"binary": z > 0, "multinomial": np.searchsorted([-0.3, 0.3], z), "poisson": rng.poisson(np.exp(z))}.get(
        case, z
    )

    def refuse_if_large(fill):
        def checked(matrix, *args, **kwargs):
            assert math.prod(matrix.shape) < n * d, "the zeros of X were filled in"
            return fill(matrix, *args, **kwargs)

        return checked

    for name in ("csr_array", "csr_matrix", "csc_array", "csc_matrix", "coo_array", "coo_matrix"):
        for method in ("toarray", "todense"):
            kind = getattr(sparse, name)
            monkeypatch.setattr(kind, method, refuse_if_large(getattr(kind, method)))
    model = estimator(case, alpha=1e-2).fit(X, y, codes)
    assert model.predict(X).shape == (2 * n,)
    if case in CLASSIFIERS:
        assert model.predict_proba(X).shape == (2 * n, len(model.classes_))


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


def small_contexts(n_contexts, rows, n_features, seed, spread=0.1):
    """Return contexts that hardly differ, each with few rows, with least risk 1/2 (of squares of unit noise)."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(n_contexts), rows)
    X = rng.normal(size=(len(codes), n_features))
    coef = rng.normal(size=n_features) + spread * rng.normal(size=(n_contexts, n_features))
    return X, np.einsum("nd,nd->n", X, coef[codes]) + rng.normal(size=len(codes)), codes


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
@pytest.mark.parametrize("seed", range(3))
def test_cross_fitted_references_of_small_contexts_are_higher_and_nearer_to_the_truth(seed):
    data = small_contexts(30, 20, 8, seed)
    flattering = cpo.RobustLinearRegression().fit(*data).reference_risks_
    honest = cpo.RobustLinearRegression(reference="cross-fit").fit(*data).reference_risks_
    assert (honest > flattering).all()
    assert np.mean(np.abs(honest - 0.5)) < np.mean(np.abs(flattering - 0.5))
    assert abs(np.mean(honest) - 0.5) < 0.5 * abs(np.mean(flattering) - 0.5)


@every_estimator
def test_cross_fitted_references_of_large_contexts_are_nearly_those_in_sample(case):
    honest, exact = fitted(case, reference="cross-fit").reference_risks_, fitted(case).reference_risks_
    assert not np.array_equal(honest, exact)
    np.testing.assert_allclose(honest, exact, rtol=0.2, atol=0.05)


# --- warnings -----------------------------------------------------------------------------------------------


def test_small_contexts_are_warned_of_by_name():
    X, y, codes = small_contexts(3, 20, 8, 0)
    with pytest.warns(SmallContextWarning, match=r"RobustLinearRegression: .*east \(20\).*cross-fit"):
        estimator("linear").fit(X, y, NAMES[codes])


@pytest.mark.parametrize(
    "options",
    [
        {"reference": "cross-fit"},
        {"reference": {"east": 0.5, "north": 0.5, "west": 0.5}},
        {"criterion": "risk"},
        {"radius": 0},
    ],
    ids=["cross-fitted", "known references", "risk", "zero radius"],
)
def test_small_contexts_are_of_no_concern_without_references_in_sample(options):
    X, y, codes = small_contexts(3, 20, 8, 0)
    estimator("linear", **options).fit(X, y, NAMES[codes])


def test_one_small_context_is_of_no_concern():
    X, y, codes = small_contexts(1, 20, 8, 0)
    estimator("linear").fit(X, y, codes)


@every_estimator
def test_no_contexts_are_warned_of(case):
    X, y, _ = rows_of(case)
    with pytest.warns(OneContextWarning, match=rf"{CASES[case][0].__name__}.*Pass contexts="):
        estimator(case).fit(X, y)


@every_estimator
def test_fit_stopped_early_is_warned_of(case):
    X, y, codes = rows_of(case)
    with pytest.warns(NotCertifiedWarning, match=r"max_iter.*Gap"):
        model = estimator(case, max_iter=1, tol=1e-13).fit(X, y, codes)
    assert model.certificate_.gap > 0


WARNED = {
    "one context": (OneContextWarning, {}, lambda codes: None),
    "small context": (SmallContextWarning, {}, lambda codes: np.where(np.arange(len(codes)) < 5, 9, codes)),
    "not certified": (NotCertifiedWarning, {"max_iter": 1, "tol": 1e-13}, lambda codes: codes),
}


@pytest.mark.parametrize("warned", WARNED)
@a_classifier_and_a_regressor
def test_warning_points_at_the_line_that_called_fit(case, warned):
    X, y, codes = rows_of(case)
    category, options, contexts = WARNED[warned]
    model, labels = estimator(case, **options), contexts(codes)
    line = inspect.currentframe().f_lineno + 2
    with pytest.warns(category) as caught:
        model.fit(X, y, labels)
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]


# --- predictions --------------------------------------------------------------------------------------------


@every_classifier
def test_probabilities_are_probabilities_and_predictions_the_largest(case):
    X, _, _ = rows_of(case)
    model = fitted(case)
    for rows in (X, 1e3 * X):
        proba = model.predict_proba(rows)
        np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
        assert (proba >= 0).all()
        np.testing.assert_array_equal(model.predict(rows), model.classes_[proba.argmax(axis=1)])
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(model.predict_proba(X)), rtol=1e-10)
    assert np.isfinite(model.predict_log_proba(1e3 * X)).all()
    scores, log_proba = model.decision_function(X), model.predict_log_proba(X)
    differences = scores if case == "binary" else scores[:, 1:] - scores[:, :1]
    np.testing.assert_allclose(np.squeeze(log_proba[:, 1:] - log_proba[:, :1]), differences, atol=1e-9)


@pytest.mark.parametrize(
    ("case", "names"),
    [
        ("binary", ["yes", "no"]),
        ("binary", [True, False]),
        ("binary", [3, -1]),
        ("multinomial", ["no", "yes", "maybe"]),
        ("multinomial", [3, -1, 7]),
    ],
    ids=str,
)
def test_names_of_the_classes_do_not_matter(case, names):
    X, y, codes = rows_of(case)
    named = np.array(names)[y.astype(int)]
    model = estimator(case).fit(X, named, codes)
    assert model.classes_.tolist() == sorted(names)
    expected = fitted(case).predict_proba(X)
    where = [model.classes_.tolist().index(name) for name in names]
    np.testing.assert_allclose(model.predict_proba(X)[:, where], expected, atol=1e-4)
    assert set(model.predict(X).tolist()) <= set(names)
    assert model.score(X, named) == pytest.approx(fitted(case).score(X, y), abs=0.01)


@every_estimator
def test_score_is_accuracy_or_explained_variance(case):
    X, y, codes = rows_of(case)
    measure = accuracy_score if case in CLASSIFIERS else r2_score
    weight = 1.0 + codes
    model = fitted(case)
    assert model.score(X, y) == pytest.approx(measure(y, model.predict(X)))
    assert model.score(X, y, sample_weight=weight) == pytest.approx(measure(y, model.predict(X), sample_weight=weight))


@every_estimator
def test_predicting_before_fitting_is_refused(case):
    X, _, _ = rows_of(case)
    with pytest.raises(NotFittedError):
        estimator(case).predict(X)


@every_estimator
def test_plain_model_of_an_unfitted_one_is_refused(case):
    with pytest.raises(NotFittedError):
        estimator(case).to_sklearn()


@pytest.mark.parametrize("fit_intercept", [True, False])
@every_estimator
def test_plain_model_gives_the_same_answers(case, fit_intercept):
    X, y, codes = rows_of(case)
    frame = pd.DataFrame(X, columns=COLUMNS)
    model = estimator(case, fit_intercept=fit_intercept).fit(frame, y, codes)
    plain = model.to_sklearn()
    assert type(plain) is PLAIN[case]
    for copy in (plain, pickle.loads(pickle.dumps(plain))):
        np.testing.assert_allclose(copy.predict(frame), model.predict(frame), rtol=1e-12)
        assert copy.feature_names_in_.tolist() == COLUMNS
        assert copy.n_features_in_ == 2
        assert np.isfinite(copy.score(frame, y))
        with pytest.raises(ValueError, match="feature names"):
            copy.predict(frame[COLUMNS[::-1]])
        if case in CLASSIFIERS:
            np.testing.assert_allclose(copy.predict_proba(frame), model.predict_proba(frame), rtol=1e-9, atol=1e-14)
            np.testing.assert_allclose(copy.decision_function(frame), model.decision_function(frame))
    clone(plain).fit(frame, y)


@every_estimator
def test_plain_model_shares_nothing_with_the_robust_one(case):
    model = clone(fitted(case)).fit(*rows_of(case))
    model.to_sklearn().coef_[:] = 0.0
    np.testing.assert_array_equal(model.coef_, fitted(case).coef_)


# --- kept on disk -------------------------------------------------------------------------------------------


def through_joblib(model):
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


def through_skops(model):
    data = skops.io.dumps(model)
    untrusted = skops.io.get_untrusted_types(data=data)
    assert all(name.startswith(("counterpoise.", "datetime.")) for name in untrusted)
    return skops.io.loads(data, trusted=untrusted)


KEPT = {"pickle": lambda model: pickle.loads(pickle.dumps(model)), "joblib": through_joblib, "skops": through_skops}


def assert_same_attributes(one, other):
    assert vars(one).keys() == vars(other).keys()
    for name, value in vars(one).items():
        kept = vars(other)[name]
        assert type(kept) is type(value), name
        if isinstance(value, np.ndarray):
            assert kept.dtype == value.dtype, name
            assert kept.tolist() == value.tolist(), name
        else:
            assert kept == value, name


@pytest.mark.parametrize("keep", KEPT)
@every_estimator
def test_model_kept_on_disk_is_the_same(case, keep):
    X, y, codes = rows_of(case)
    frame = pd.DataFrame(X, columns=COLUMNS)
    model = estimator(case, criterion="risk", confidence=0.9).fit(frame, y, NAMES[codes])
    copy = KEPT[keep](model)
    assert_same_attributes(model, copy)
    np.testing.assert_array_equal(copy.predict(frame), model.predict(frame))
    assert copy.get_params() == model.get_params()
    assert copy.score(frame, y) == model.score(frame, y)
    np.testing.assert_array_equal(theta_of(copy.fit(frame, y, NAMES[codes])), theta_of(model))


@pytest.mark.parametrize("kind", ["list of dates", "nanoseconds", "tuples", "two pandas columns", "two polars columns"])
@pytest.mark.parametrize("keep", KEPT)
def test_contexts_kept_on_disk_are_the_same(keep, kind):
    X, y, codes = rows_of("linear")
    model = estimator("linear").fit(X, y, KINDS[kind](codes))
    assert_same_attributes(model, KEPT[keep](model))


@pytest.mark.parametrize("keep", KEPT)
def test_references_kept_on_disk_are_the_same(keep):
    X, y, codes = rows_of("linear")
    model = estimator("linear", reference={"east": 0.1, "north": 0.2, "west": 0.3}).fit(X, y, NAMES[codes])
    assert KEPT[keep](model).reference == model.reference


# --- parameters ---------------------------------------------------------------------------------------------


@every_estimator
def test_parameters_are_stored_as_given(case):
    given = {
        "confidence": 0.9,
        "radius": "chi2",
        "draws": 7.0,
        "criterion": "risk",
        "alpha": 0.3,
        "fit_intercept": False,
        "reference": {"a": 1.0},
        "adjust": 0.5,
        "tol": 1e-3,
        "max_iter": 7,
        "verbose": 1,
        "device": "cpu",
    }
    given |= {"huber": {"delta": 2.0}, "quantile": {"quantile": 0.2}}.get(case, {})
    for model in (estimator(case, **given), estimator(case).set_params(**given)):
        assert model.get_params() == given | {"mix": None}
        assert clone(model).get_params() == given | {"mix": None}
        shown = repr(model)
        assert all(f"{name}=" in shown for name in given)


@every_estimator
def test_criterion_is_a_parameter_and_score_a_method(case):
    X, y, codes = rows_of(case)
    model = estimator(case)
    assert model.get_params()["criterion"] == "excess"
    assert "criterion" not in repr(model)
    assert model.set_params(criterion="risk") is model
    assert model.get_params()["criterion"] == "risk"
    assert "criterion='risk'" in repr(model)
    assert clone(model).get_params()["criterion"] == "risk"
    assert "risk" in model._repr_html_()
    assert isinstance(model.fit(X, y, codes).score(X, y), float)
    assert model.get_params()["criterion"] == "risk"
    np.testing.assert_array_equal(theta_of(model), theta_of(fitted(case, criterion="risk")))
    assert not np.array_equal(theta_of(model), theta_of(fitted(case)))
    with pytest.raises(InvalidInputError, match=r"score= is now called criterion=.*Pass criterion='risk'"):
        type(model)(score="risk")


@every_estimator
def test_html_shows_a_fitted_and_an_unfitted_model(case):
    for model in (estimator(case), fitted(case)):
        assert type(model).__name__ in model._repr_html_()


def test_unknown_parameter_is_refused():
    with pytest.raises(ValueError, match="Invalid parameter 'betas'"):
        cpo.RobustLinearRegression().set_params(betas=1)
    with pytest.raises(TypeError, match="betas"):
        cpo.RobustLinearRegression(betas=1)


# --- a fit has no memory and no side effects ----------------------------------------------------------------


@every_estimator
def test_two_fits_are_the_same_to_the_last_bit(case):
    X, y, codes = rows_of(case)
    for options in ({}, {"reference": "cross-fit"}):
        one, other = (estimator(case, **options).fit(X, y, codes) for _ in range(2))
        np.testing.assert_array_equal(theta_of(one), theta_of(other))
        np.testing.assert_array_equal(one.context_weights_, other.context_weights_)
        assert one.certificate_ == other.certificate_


@every_estimator
def test_fit_returns_itself_and_changes_no_parameter(case):
    X, y, codes = rows_of(case)
    reference = {0: 0.1, 1: 0.2, 2: 0.3}
    model = estimator(case, reference=reference)
    before = dict(model.get_params())
    assert model.fit(X, y, codes) is model
    assert all(model.get_params()[name] is value for name, value in before.items())
    assert reference == {0: 0.1, 1: 0.2, 2: 0.3}


@every_estimator
def test_fit_and_predict_leave_their_inputs_alone(case):
    X, y, codes = (np.array(part) for part in rows_of(case))
    weight = 1.0 + codes % 2
    weight[:5] = 0.0
    thin = sparse.csr_array(X)
    # Columns within a row out of order, which some routines put in order in place.
    thin.indices[:2], thin.data[:2] = thin.indices[:2][::-1].copy(), thin.data[:2][::-1].copy()
    thin.has_sorted_indices = False
    frame, labels = pd.DataFrame(X), pd.Series(NAMES[codes])
    indices, data = thin.indices.copy(), thin.data.copy()
    for table in (X, thin, frame):
        estimator(case).fit(table, y, labels, sample_weight=weight).predict(table)
    for now, before in zip((X, y, codes), rows_of(case), strict=True):
        np.testing.assert_array_equal(now, before)
    np.testing.assert_array_equal(thin.indices, indices)
    np.testing.assert_array_equal(thin.data, data)
    assert frame.equals(pd.DataFrame(X))
    assert labels.equals(pd.Series(NAMES[codes]))
    assert weight.sum() == (1.0 + codes % 2)[5:].sum()


@every_estimator
def test_second_fit_forgets_the_first(case):
    X, y, codes = rows_of(case)
    wide = pd.DataFrame(X[:, :1], columns=COLUMNS[:1])
    model = estimator(case).fit(wide, y, NAMES[codes], sample_weight=np.full(len(y), 2.0)).fit(X, y, codes)
    assert_same_attributes(model, fitted(case))


@every_classifier
def test_second_fit_forgets_the_classes_of_the_first(case):
    X, y, codes = rows_of("multinomial" if case == "binary" else "binary")
    model = cpo.RobustLogisticRegression().fit(X, np.array(["a", "b", "c"])[y.astype(int)], codes)
    assert_same_attributes(model.fit(*rows_of(case)), fitted(case))


# --- what is shown meanwhile --------------------------------------------------------------------------------


@every_estimator
def test_verbose_fit_shows_iteration_objective_and_gap(case, capsys):
    X, y, codes = rows_of(case)
    model = estimator(case, verbose=1).fit(X, y, codes)
    output, error = capsys.readouterr()
    assert output == ""
    lines = error.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith(f"{type(model).__name__}: iteration ") for line in lines)
    assert all("objective" in line and "gap" in line for line in lines)
    assert f"{model.certificate_.upper:.6g}" in lines[-1]


@every_estimator
def test_silent_fit_shows_nothing(case, capsys):
    estimator(case).fit(*rows_of(case))
    assert capsys.readouterr() == ("", "")


# --- refusals -----------------------------------------------------------------------------------------------

REFUSED_PARAMETERS = {
    "negative alpha": ({"alpha": -1}, "alpha .*-1.* 0 or more"),
    "text as alpha": ({"alpha": "a"}, "alpha .*a.* number"),
    "no alpha": ({"alpha": None}, "alpha .*None.* number"),
    "confidence above 1": ({"confidence": 2}, r"confidence .*2.* \[0, 1\]"),
    "negative confidence": ({"confidence": -0.1}, r"confidence .*-0\.1.* \[0, 1\]"),
    "text as confidence": ({"confidence": "high"}, r"confidence .*high.*\[0, 1\]"),
    "unknown radius": ({"radius": "foo"}, "radius .*'foo'.*pass .*types"),
    "negative radius": ({"radius": -1}, "radius .*-1.* 0 or more"),
    "radius that is no number": ({"radius": math.nan}, "radius .*nan.* 0 or more"),
    "no radius": ({"radius": None}, "radius .*None.*number of bits"),
    "negative draws": ({"draws": -1}, "draws .*-1.* positive"),
    "unknown criterion": ({"criterion": "foo"}, "criterion .*'foo'.*pass .*risk"),
    "unknown reference": ({"reference": "foo"}, "reference .*'foo'.*pass .*cross-fit"),
    "reference that is no number": ({"reference": {0: 0.0, 1: math.nan, 2: 0.0}}, "reference.* finite"),
    "negative tol": ({"tol": -1}, "tol .*-1.* 0 or more"),
    "text as tol": ({"tol": "a"}, "tol .*a.* number"),
    "negative max_iter": ({"max_iter": -1}, "max_iter .*-1.* 1 or more"),
    "broken max_iter": ({"max_iter": 2.5}, r"max_iter .*2\.5.* whole"),
    "text as max_iter": ({"max_iter": "a"}, "max_iter .*a.* whole"),
    "text as fit_intercept": ({"fit_intercept": "yes"}, "fit_intercept .*yes.*True"),
}


@pytest.mark.parametrize("refused", REFUSED_PARAMETERS)
@a_classifier_and_a_regressor
def test_bad_parameter_is_refused_by_name_and_with_a_remedy(case, refused):
    options, message = REFUSED_PARAMETERS[refused]
    with pytest.raises(InvalidInputError, match=f"^{CASES[case][0].__name__}: .*{message}"):
        estimator(case, **options).fit(*rows_of(case))


@pytest.mark.parametrize(
    ("case", "options", "message"),
    [
        ("quantile", {"quantile": 1.5}, r"quantile = 1\.5.* between 0 and 1"),
        ("quantile", {"quantile": 0}, "quantile = 0.* between 0 and 1"),
        ("quantile", {"quantile": "median"}, "quantile .*median.* between 0 and 1"),
        ("huber", {"delta": 0}, "delta = 0.* positive"),
        ("huber", {"delta": -1.0}, "delta = -1.* positive"),
        ("huber", {"delta": "a"}, "delta .*a.* positive"),
    ],
    ids=str,
)
def test_bad_parameter_of_a_loss_is_refused_by_name_and_with_a_remedy(case, options, message):
    with pytest.raises(InvalidInputError, match=f"^{CASES[case][0].__name__}: .*{message}"):
        estimator(case, **options).fit(*rows_of(case))


def changed(values, row, value):
    copy = np.array(values, dtype=object if value is None else np.float64)
    copy[row] = value
    return copy


REFUSED_DATA = {
    "short contexts": (lambda X, y, c: (X, y, c[:-1]), r"\d+ context labels for \d+ rows.*one label per row"),
    "NaN among the contexts": (lambda X, y, c: (X, y, changed(c, 3, np.nan)), "context of row 3.*'unknown'"),
    "None among the contexts": (lambda X, y, c: (X, y, changed(c, 3, None)), "context of row 3 is None.*'unknown'"),
    "one label": (lambda X, y, c: (X, y, "north"), "contexts .*one label per row"),
    "negative weight": (lambda X, y, c: (X, y, c, changed(0 * c + 1, 3, -1.0)), "sample_weight in row 3 .*0 or more"),
    "NaN weight": (lambda X, y, c: (X, y, c, changed(0 * c + 1, 3, np.nan)), "sample_weight in row 3 .*finite"),
    "short weights": (lambda X, y, c: (X, y, c, np.ones(4)), "sample_weight .*one weight per row"),
    "context without weight": (lambda X, y, c: (X, y, c, (c != 1) * 1.0), "weights of context 1 .*Drop"),
}


@pytest.mark.parametrize("refused", REFUSED_DATA)
@every_estimator
def test_bad_data_are_refused_by_name_and_with_a_remedy(case, refused):
    change, message = REFUSED_DATA[refused]
    with pytest.raises(InvalidInputError, match=f"^{CASES[case][0].__name__}: .*{message}"):
        estimator(case).fit(*change(*rows_of(case)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@every_estimator
def test_features_that_are_not_finite_are_refused(case, value):
    X, y, codes = rows_of(case)
    wrong = X.copy()
    wrong[3, 1] = value
    for table in (wrong, sparse.csr_array(wrong)):
        with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
            estimator(case).fit(table, y, codes)
        with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
            fitted(case).predict(table)


@pytest.mark.parametrize("label", [0.0, "yes"])
def test_one_class_is_refused(label):
    X, y, codes = rows_of("binary")
    with pytest.raises(InvalidInputError, match=r"^RobustLogisticRegression: y .*one class.* two or more"):
        cpo.RobustLogisticRegression().fit(X, np.full(len(y), label), codes)


def test_numbers_are_no_classes():
    X, y, codes = rows_of("linear")
    with pytest.raises(ValueError, match="Unknown label type"):
        cpo.RobustLogisticRegression().fit(X, y, codes)


def test_negative_count_is_refused():
    X, y, codes = rows_of("poisson")
    with pytest.raises(InvalidInputError, match=r"^RobustPoissonRegressor: target in row 3 is -1\.0.*not negative"):
        cpo.RobustPoissonRegressor().fit(X, changed(y, 3, -1.0), codes)


@every_estimator
def test_failed_fit_warns_of_nothing_else(case):
    X, y, codes = rows_of(case)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidInputError):
            estimator(case, alpha=-1).fit(X, y, codes)


def test_a_number_that_is_not_finite_is_refused_even_where_scikit_learn_does_not_look():
    X = np.random.default_rng(0).standard_normal((40, 2))
    X[3, 1] = np.nan
    with config_context(assume_finite=True), pytest.raises(ValueError, match="X is nan in row 3, column 1"):
        cpo.RobustLinearRegression().fit(X, X[:, 0], contexts=np.arange(40) % 2)


@pytest.mark.parametrize("far", [[1e308, 1e308], [1e308, -1e308], [-1e308, -1e308]])
@pytest.mark.parametrize("name", ["RobustLinearRegression", "RobustLogisticRegression", "RobustPoissonRegressor"])
def test_a_prediction_is_finite_or_refused_by_row(name, far):
    rng = np.random.default_rng(0)
    X, contexts = rng.standard_normal((60, 2)), np.arange(60) % 2
    score = X @ [3.0, 3.0]
    y = score > 0 if "Logistic" in name else np.exp(0.1 * score).round() if "Poisson" in name else score
    model = getattr(cpo, name)(radius=0.1, alpha=1e-2, reference="cross-fit").fit(X, y, contexts=contexts)
    model.coef_ = np.full_like(model.coef_, 3.0)
    with pytest.raises(InvalidInputError, match="row 1"):
        model.predict([[0.0, 0.0], far])
