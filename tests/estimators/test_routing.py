"""Contexts travel through scikit-learn's own tools, without being asked for."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
import skops.io
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingClassifier, BaggingRegressor, VotingClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import RFE
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    HalvingGridSearchCV,
    KFold,
    StratifiedKFold,
    cross_val_predict,
    cross_validate,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.metadata_routing import get_routing_for_object

import counterpoise as cpo
from counterpoise.exceptions import OneContextWarning
from counterpoise.losses import Logistic, Squared
from tests.problems import make

ESTIMATORS = [
    cpo.RobustLogisticRegression(),
    cpo.RobustLinearRegression(),
    cpo.RobustHuberRegressor(),
    cpo.RobustPoissonRegressor(),
    cpo.RobustQuantileRegressor(),
]
X, Y, CODES = make(Logistic(), 3, 2, 4, (90, 110))
Y = Y.astype(int)
LABELS = np.array(["east", "north", "west"])[CODES]
FOLDS = KFold(3, shuffle=True, random_state=0)

every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def robust(**options):
    return cpo.RobustLogisticRegression(**options)


def assert_same_model(one, other):
    assert one.contexts_.tolist() == other.contexts_.tolist()
    np.testing.assert_array_equal(one.context_counts_, other.context_counts_)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.intercept_, other.intercept_, rtol=1e-9, atol=1e-12)


def assert_contexts_mattered(model, rows, target):
    """Check that the same fit without contexts is another one, so that equality with a fit by hand says something."""
    with pytest.warns(OneContextWarning):
        alone = clone(model).fit(rows, target)
    assert np.abs(alone.coef_ - model.coef_).max() > 1e-4


# --- by routing ---------------------------------------------------------------------------------------------


@every_estimator
def test_contexts_are_requested_by_the_class_and_weights_are_not(estimator):
    assert get_routing_for_object(estimator).fit.requests == {"contexts": True, "groups": True, "sample_weight": None}
    assert "contexts" not in get_routing_for_object(estimator).score.requests


@pytest.mark.usefixtures("routing")
@every_estimator
def test_pipeline_hands_contexts_to_every_estimator(estimator):
    y = Y + 1.0 if not isinstance(estimator, cpo.RobustLogisticRegression) else Y
    pipeline = make_pipeline(StandardScaler(), clone(estimator)).fit(X, y, contexts=LABELS)
    by_hand = clone(estimator).fit(StandardScaler().fit_transform(X), y, LABELS)
    assert_same_model(pipeline[-1], by_hand)
    np.testing.assert_allclose(pipeline.predict(X), by_hand.predict(StandardScaler().fit_transform(X)))


@pytest.mark.usefixtures("routing")
def test_pipeline_with_a_column_transformer_hands_contexts_on():
    frame = pd.DataFrame({"age": X[:, 0], "dose": X[:, 1], "colour": np.array(["red", "blue"])[np.arange(len(Y)) % 2]})
    columns = ColumnTransformer([("n", StandardScaler(), ["age", "dose"]), ("c", OneHotEncoder(), ["colour"])])
    pipeline = make_pipeline(columns, robust()).fit(frame, Y, contexts=LABELS)
    table = clone(columns).fit_transform(frame)
    assert_same_model(pipeline[-1], robust().fit(table, Y, LABELS))
    assert_contexts_mattered(pipeline[-1], table, Y)
    assert pipeline.predict(frame).shape == Y.shape


@pytest.mark.usefixtures("routing")
def test_table_of_contexts_is_handed_on():
    table = pd.DataFrame({"region": LABELS, "late": np.arange(len(Y)) % 2})
    pipeline = make_pipeline(StandardScaler(), robust()).fit(X, Y, contexts=table)
    assert_same_model(pipeline[-1], robust().fit(StandardScaler().fit_transform(X), Y, table))
    search = GridSearchCV(robust(), {"alpha": [1e-3]}, cv=FOLDS).fit(X, Y, contexts=table)
    assert search.best_estimator_.contexts_.tolist() == pipeline[-1].contexts_.tolist()


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize(
    "contexts", [LABELS, LABELS.tolist(), pd.Series(LABELS)], ids=["array", "list", "pandas series"]
)
def test_grid_search_fits_every_fold_with_its_contexts(contexts):
    grid = {"alpha": [1e-3, 1.0], "criterion": ["risk", "excess"]}
    search = GridSearchCV(robust(), grid, cv=FOLDS).fit(X, Y, contexts=contexts)
    assert_same_model(search.best_estimator_, robust(**search.best_params_).fit(X, Y, LABELS))
    assert_contexts_mattered(search.best_estimator_, X, Y)
    for k, (train, test) in enumerate(FOLDS.split(X)):
        expected = [
            robust(**params).fit(X[train], Y[train], LABELS[train]).score(X[test], Y[test])
            for params in search.cv_results_["params"]
        ]
        np.testing.assert_allclose(search.cv_results_[f"split{k}_test_score"], expected)


@pytest.mark.usefixtures("routing")
def test_grid_search_over_a_pipeline_hands_contexts_on():
    pipeline = Pipeline([("scale", StandardScaler()), ("model", robust())])
    grid = {"model__confidence": [0.5, 1.0], "model__criterion": ["risk", "excess"]}
    search = GridSearchCV(pipeline, grid, cv=FOLDS, scoring="neg_log_loss").fit(X, Y, contexts=LABELS)
    params = {name.removeprefix("model__"): value for name, value in search.best_params_.items()}
    by_hand = robust(**params).fit(StandardScaler().fit_transform(X), Y, LABELS)
    assert_same_model(search.best_estimator_[-1], by_hand)


@pytest.mark.usefixtures("routing")
def test_contexts_and_the_groups_of_a_splitter_do_not_meet():
    search = GridSearchCV(robust(), {"alpha": [1e-3, 1.0]}, cv=GroupKFold(3))
    search.fit(X, Y, contexts=np.arange(len(Y)) % 2, groups=LABELS)
    assert search.best_estimator_.contexts_.tolist() == [0, 1]


@pytest.mark.usefixtures("routing")
@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
def test_halving_grid_search_hands_contexts_on():
    search = HalvingGridSearchCV(robust(), {"alpha": [1e-3, 1e-2, 1.0]}, cv=FOLDS, random_state=0)
    search.fit(X, Y, contexts=LABELS)
    assert_same_model(search.best_estimator_, robust(**search.best_params_).fit(X, Y, LABELS))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.usefixtures("routing")
def test_cross_validation_fits_every_fold_with_its_contexts():
    results = cross_validate(robust(), X, Y, cv=FOLDS, params={"contexts": LABELS}, return_estimator=True)
    predictions = cross_val_predict(robust(), X, Y, cv=FOLDS, params={"contexts": LABELS}, method="predict_proba")
    for (train, test), model in zip(FOLDS.split(X), results["estimator"], strict=True):
        by_hand = robust().fit(X[train], Y[train], LABELS[train])
        assert_same_model(model, by_hand)
        np.testing.assert_allclose(predictions[test], by_hand.predict_proba(X[test]))


@pytest.mark.usefixtures("routing")
def test_calibration_fits_every_fold_with_its_contexts():
    folds = StratifiedKFold(3)
    calibrated = CalibratedClassifierCV(robust(), cv=folds, ensemble=True).fit(X, Y, contexts=LABELS)
    models = [part.estimator for part in calibrated.calibrated_classifiers_]
    for (train, _), model in zip(folds.split(X, Y), models, strict=True):
        assert_same_model(model, robust().fit(X[train], Y[train], LABELS[train]))
    np.testing.assert_allclose(calibrated.predict_proba(X).sum(axis=1), 1.0)


class Recorder(cpo.RobustLogisticRegression):
    """Keeps what it was fitted to."""

    def fit(self, X, y, contexts=None, sample_weight=None):
        self.seen_ = (X, y, np.asarray(contexts), sample_weight)
        return super().fit(X, y, contexts, sample_weight)


@pytest.mark.usefixtures("routing")
def test_bagging_draws_contexts_with_their_rows():
    marked = np.column_stack([X, CODES])
    bagging = BaggingClassifier(Recorder(), 4, random_state=0).fit(marked, Y, contexts=LABELS)
    for model in bagging.estimators_:
        rows, _, contexts, _ = model.seen_
        np.testing.assert_array_equal(np.array(["east", "north", "west"])[rows[:, 2].astype(int)], contexts)
        assert model.contexts_.tolist() == ["east", "north", "west"]
    assert len({model.coef_.tobytes() for model in bagging.estimators_}) == 4


@pytest.mark.usefixtures("routing")
def test_bagging_regressor_draws_contexts_with_their_rows():
    features, y, codes = make(Squared(), 3, 2, 4, (90, 110))
    bagging = BaggingRegressor(cpo.RobustLinearRegression(), 3, random_state=0).fit(features, y, contexts=codes)
    assert all(model.contexts_.tolist() == [0, 1, 2] for model in bagging.estimators_)


@pytest.mark.usefixtures("routing")
@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
def test_bagging_survives_a_context_that_is_not_drawn():
    rare = LABELS.astype(object)
    rare[3] = "rare"
    bagging = BaggingClassifier(robust(), 6, random_state=0).fit(X, Y, contexts=rare)
    drawn = ["rare" in model.contexts_ for model in bagging.estimators_]
    assert any(drawn)
    assert not all(drawn)


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize(
    "meta",
    [
        VotingClassifier([("one", robust()), ("two", robust(criterion="risk"))]),
        OneVsRestClassifier(robust()),
        RFE(robust(), n_features_to_select=2),
    ],
    ids=lambda meta: type(meta).__name__,
)
def test_other_meta_estimators_hand_contexts_on(meta):
    meta.fit(X, Y, contexts=LABELS)
    models = meta.estimators_ if hasattr(meta, "estimators_") else [meta.estimator_]
    assert all(model.contexts_.tolist() == ["east", "north", "west"] for model in models)
    assert_same_model(models[0], robust().fit(X, Y, LABELS))


@pytest.mark.usefixtures("routing")
def test_neighbours_that_know_no_contexts_are_not_handed_any():
    class Plain(TransformerMixin, BaseEstimator):
        def fit(self, X, y=None):
            return self

        def transform(self, X):
            return X

    model = make_pipeline(Plain(), robust()).fit(X, Y, contexts=LABELS)[-1]
    assert_same_model(model, robust().fit(X, Y, LABELS))
    with pytest.raises(TypeError, match="contexts"):
        make_pipeline(Plain(), LogisticRegression()).fit(X, Y, contexts=LABELS)


@pytest.mark.usefixtures("routing")
def test_weights_are_handed_on_where_they_are_requested():
    weight = 1.0 + np.arange(len(Y)) % 3
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    pipeline = make_pipeline(scaler, robust().set_fit_request(sample_weight=True))
    pipeline.fit(X, Y, contexts=LABELS, sample_weight=weight)
    assert_same_model(pipeline[-1], robust().fit(StandardScaler().fit_transform(X), Y, LABELS, weight))
    search = GridSearchCV(
        robust().set_fit_request(sample_weight=True).set_score_request(sample_weight=True), {}, cv=FOLDS
    )
    search.fit(X, Y, contexts=LABELS, sample_weight=weight)
    assert_same_model(search.best_estimator_, robust().fit(X, Y, LABELS, weight))


@pytest.mark.usefixtures("routing")
def test_weights_that_nobody_asked_for_are_refused():
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        GridSearchCV(robust(), {}, cv=FOLDS).fit(X, Y, contexts=LABELS, sample_weight=np.ones(len(Y)))


@pytest.mark.usefixtures("routing")
def test_contexts_can_be_turned_down():
    model = robust().set_fit_request(contexts=False)
    with pytest.raises(TypeError, match="contexts"):
        make_pipeline(StandardScaler(), model).fit(X, Y, contexts=LABELS)
    assert get_routing_for_object(clone(model)).fit.requests["contexts"] is False
    assert get_routing_for_object(robust()).fit.requests["contexts"] is True


# --- without routing ----------------------------------------------------------------------------------------


def test_pipeline_takes_contexts_by_the_name_of_the_step():
    pipeline = Pipeline([("scale", StandardScaler()), ("model", robust())]).fit(X, Y, model__contexts=LABELS)
    assert_same_model(pipeline[-1], robust().fit(StandardScaler().fit_transform(X), Y, LABELS))
    search = GridSearchCV(pipeline, {"model__criterion": ["risk", "excess"]}, cv=FOLDS).fit(
        X, Y, model__contexts=LABELS
    )
    assert search.best_estimator_[-1].contexts_.tolist() == ["east", "north", "west"]


def test_grid_search_without_routing_slices_contexts():
    search = GridSearchCV(robust(), {"alpha": [1e-3, 1.0]}, cv=FOLDS).fit(X, Y, contexts=LABELS)
    assert_same_model(search.best_estimator_, robust(**search.best_params_).fit(X, Y, LABELS))
    train, test = next(FOLDS.split(X))
    expected = robust(alpha=1e-3).fit(X[train], Y[train], LABELS[train]).score(X[test], Y[test])
    assert search.cv_results_["split0_test_score"][0] == pytest.approx(expected)


def test_cross_validation_without_routing_slices_contexts():
    results = cross_validate(robust(), X, Y, cv=FOLDS, params={"contexts": LABELS}, return_estimator=True)
    for (train, _), model in zip(FOLDS.split(X), results["estimator"], strict=True):
        assert_same_model(model, robust().fit(X[train], Y[train], LABELS[train]))


# --- nothing else is touched --------------------------------------------------------------------------------


def test_importing_the_package_changes_no_setting_of_scikit_learn():
    code = (
        "import sklearn; before = sklearn.get_config(); import counterpoise as cpo; cpo.RobustLogisticRegression(); "
        "cpo.RobustLinearRegression().get_metadata_routing(); assert sklearn.get_config() == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@every_estimator
def test_estimator_kept_with_skops_still_requests_contexts(estimator):
    data = skops.io.dumps(estimator)
    copy = skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))
    assert copy.get_params() == estimator.get_params()
    assert get_routing_for_object(copy).fit.requests["contexts"] is True


@pytest.mark.usefixtures("routing")
def test_pipeline_kept_with_skops_still_hands_contexts_on():
    pipeline = make_pipeline(StandardScaler(), robust(criterion="risk")).fit(X, Y, contexts=LABELS)
    data = skops.io.dumps(pipeline)
    copy = skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))
    np.testing.assert_array_equal(copy.predict_proba(X), pipeline.predict_proba(X))
    assert_same_model(copy.fit(X, Y, contexts=LABELS)[-1], pipeline[-1])
