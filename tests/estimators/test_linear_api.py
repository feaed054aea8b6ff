"""The linear estimators as scikit-learn estimators: predictions, parameters, copies, nothing left behind."""

import io
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from tests.estimators.linear_models import (
    CLASSIFIERS,
    COLUMNS,
    KINDS,
    NAMES,
    PLAIN,
    estimator,
    every_classifier,
    every_estimator,
    fitted,
    rows_of,
    theta_of,
)

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
