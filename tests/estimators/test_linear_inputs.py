"""Contexts and features of every kind in the linear estimators, what is warned of and what is refused."""

import inspect
import math
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError, NotCertifiedWarning, OneContextWarning, SmallContextWarning
from counterpoise.rows.memory import BATCH_ENTRIES
from tests.estimators.linear_models import (
    CASES,
    CLASSIFIERS,
    COLUMNS,
    KINDS,
    NAMES,
    a_classifier_and_a_regressor,
    assert_same_model,
    estimator,
    every_estimator,
    fitted,
    rows_of,
    small_contexts,
    theta_of,
)
from tests.problems import scattered

# --- contexts of every kind ---------------------------------------------------------------------------------


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
    "small context": (SmallContextWarning, {}, lambda codes: np.arange(len(codes)) // 5),
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


def test_preferences_are_told_to_flip_half_of_the_rows():
    X, y, codes = rows_of("binary")
    with pytest.raises(InvalidInputError, match=r"flip half of them.* fit_intercept=False"):
        cpo.RobustLogisticRegression(fit_intercept=False).fit(X, np.ones(len(y)), codes)
    signs = [np.where(np.random.default_rng(seed).random(len(y)) < 0.5, 1, -1) for seed in range(2)]
    switches = {"fit_intercept": False, "reference": "in-sample", "alpha": 0.1}
    first, second = (cpo.RobustLogisticRegression(**switches).fit(sign[:, None] * X, sign, codes) for sign in signs)
    np.testing.assert_allclose(first.coef_, second.coef_, atol=1e-6)
    np.testing.assert_allclose(first.context_risks_, second.context_risks_, atol=1e-6)


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
