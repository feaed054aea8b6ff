"""Boosting whose context weights move with every round: what the libraries see, and what comes of it."""

import pickle
import sys
from io import BytesIO

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
import skops.io
from scipy.special import expit, softmax
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.metadata_routing import get_routing_for_object

from counterpoise.estimators.boosters import LightGBMRun, Recipe, XGBoostRun
from counterpoise.estimators.boosting import (
    RobustLGBMClassifier,
    RobustLGBMRegressor,
    RobustXGBClassifier,
    RobustXGBRegressor,
)
from counterpoise.estimators.boosting_losses import LogLoss, NumberLoss
from counterpoise.estimators.boosting_rounds import Rows, Split, next_weights
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import KLBall

xgb = pytest.importorskip("xgboost")
lgb = pytest.importorskip("lightgbm")

SMALL_TREES = {XGBoostRun: {"max_depth": 3}, LightGBMRun: {"num_leaves": 8}}
CLASSES = [RobustXGBClassifier, RobustXGBRegressor, RobustLGBMClassifier, RobustLGBMRegressor]
CLASSIFIERS = [RobustXGBClassifier, RobustLGBMClassifier]

every_class = pytest.mark.parametrize("kind", CLASSES)
every_classifier = pytest.mark.parametrize("kind", CLASSIFIERS)
both_libraries = pytest.mark.parametrize("library", [XGBoostRun, LightGBMRun])


def simulate(sizes, seed, classes):
    """Return ``(X, y, codes, f)``: waves and a saddle; in the last context the wave has the opposite sign."""
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(4), sizes))
    X = rng.normal(size=(len(codes), 5))
    X[:, 3] += np.array([0.0, 0.5, -0.5, 1.5])[codes]
    sign = np.array([1.0, 1.0, 1.0, -1.0])[codes]
    f = 1.5 * sign * np.sin(1.5 * X[:, 0]) + X[:, 1] * X[:, 2] + np.array([0.0, 0.5, -0.5, 0.0])[codes]
    if classes:
        return X, (rng.uniform(size=len(f)) < expit(2.0 * f)).astype(int), codes, 2.0 * f
    return X, f + np.array([0.5, 1.0, 0.5, 0.5])[codes] * rng.normal(size=len(f)), codes, f


def loss_of(n_classes):
    return LogLoss(n_classes) if n_classes else NumberLoss.named("squared_error")


def is_classifier(kind):
    return kind in CLASSIFIERS


def data_for(kind, sizes=(200, 100, 80, 40), seed=0):
    return simulate(sizes, seed, is_classifier(kind))


def small(kind, **options):
    """Return a fast estimator of the robust booster, whether the plain one would be kept or not."""
    defaults = {"n_estimators": 12, "learning_rate": 0.3, "n_jobs": 1, "params": SMALL_TREES[kind._library]}
    defaults |= {"guard": False, "headroom": None, "cv": None}
    return kind(**(defaults | options))


def outputs(model, X):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


def excess_by_context(predictions, f, codes):
    """Return the excess over the true model: a divergence for probabilities, a squared distance for numbers."""
    if predictions.ndim == 1:
        rows = np.square(predictions - f)
    else:
        true, p = expit(f), np.clip(predictions[:, 1].astype(float), 1e-4, 1 - 1e-4)
        rows = true * np.log(true / p) + (1 - true) * np.log((1 - true) / (1 - p))
    return np.bincount(codes, rows) / np.bincount(codes)


def plain_booster(model, X, y, n_rounds):
    """Return what the library itself makes of the rows, by its own training loop."""
    y = np.asarray(y, dtype=float)
    if isinstance(model, (RobustXGBClassifier, RobustXGBRegressor)):
        objective = "binary:logistic" if hasattr(model, "classes_") else "reg:squarederror"
        params = {"objective": objective, "learning_rate": model.learning_rate, "nthread": 1, "seed": 0}
        return xgb.train(params | model.params, xgb.DMatrix(X, y), n_rounds)
    objective = "binary" if hasattr(model, "classes_") else "regression"
    params = {"objective": objective, "learning_rate": model.learning_rate, "num_threads": 1, "seed": 0}
    extra = {"deterministic": True, "verbosity": -1}
    return lgb.train(params | extra | model.params, lgb.Dataset(X, y), n_rounds)


def plain_outputs(booster, X):
    values = booster.inplace_predict(X) if isinstance(booster, xgb.Booster) else booster.predict(X)
    objective = booster.save_config() if isinstance(booster, xgb.Booster) else booster.model_to_string()
    return np.column_stack([1 - values, values]) if "binary" in objective else values


# --- scikit-learn -------------------------------------------------------------------------------------------

# Splits that tie, of which data this small are full, are broken by rounding: few rounds, or a weight of 2 is not two
# rows to the last digit. LightGBM counts rows, not weights, in its leaves and bins.
CHECKED = [
    RobustXGBClassifier(n_estimators=5, learning_rate=0.1, n_jobs=1, params={"max_depth": 3}),
    RobustXGBRegressor(n_estimators=5, learning_rate=0.2, n_jobs=1, params={"max_depth": 3}),
    RobustLGBMClassifier(
        n_estimators=5, learning_rate=0.2, n_jobs=1, params={"min_data_in_leaf": 1, "min_data_in_bin": 1}
    ),
    RobustLGBMRegressor(
        n_estimators=5, learning_rate=0.2, n_jobs=1, params={"min_data_in_leaf": 1, "min_data_in_bin": 1}
    ),
]


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.OneContextWarning")
@parametrize_with_checks(CHECKED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@every_class
def test_contexts_are_requested_by_the_class_and_handed_on_by_a_pipeline(kind):
    assert get_routing_for_object(kind()).fit.requests == {"contexts": True, "groups": True, "sample_weight": None}
    X, y, codes, _ = data_for(kind)
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), small(kind)).fit(X, y, contexts=codes)
    by_hand = small(kind).fit(StandardScaler().fit_transform(X), y, codes)
    np.testing.assert_array_equal(outputs(pipeline, X), outputs(by_hand, StandardScaler().fit_transform(X)))


# --- what the libraries see ---------------------------------------------------------------------------------


def gradients(margins, y, weight, n_classes, factor):
    """Return first and second derivatives of the weighted loss, computed by hand."""
    if n_classes == 0:
        return (margins - y) * weight, weight.copy()
    if n_classes == 2:
        p = expit(margins)
        return (p - y) * weight, p * (1 - p) * weight
    p = softmax(margins, axis=1)
    return (p - np.eye(n_classes)[y.astype(int)]) * weight[:, None], factor * p * (1 - p) * weight[:, None]


def boosted_by_hand(library, recipe, X, y, weights):
    """Boost with gradients of our own, so that the weights of every round are certain to count; return margins."""
    if library is XGBoostRun:
        objective = {0: "reg:squarederror", 2: "binary:logistic", 3: "multi:softprob"}[recipe.loss.n_classes]
        extra = {"nthread": 1, "learning_rate": recipe.learning_rate, "objective": objective}
        extra |= {"num_class": 3} if recipe.loss.n_classes == 3 else {}
        data = xgb.DMatrix(X, y, weight=weights[0])
        booster = xgb.Booster(extra | recipe.params, [data])
        for n, weight in enumerate(weights):
            grad, hess = gradients(booster.predict(data, output_margin=True), y, weight, recipe.loss.n_classes, 2.0)
            booster.boost(data, n, grad=grad, hess=hess)
        return booster.predict(data, output_margin=True)
    extra = {"num_threads": 1, "verbosity": -1, "learning_rate": recipe.learning_rate, "objective": "none"}
    extra["num_class"] = recipe.loss.n_classes if recipe.loss.n_classes > 2 else 1
    booster = lgb.Booster(extra | recipe.params, lgb.Dataset(X, y))
    factor = recipe.loss.n_classes / max(recipe.loss.n_classes - 1, 1)
    for weight in weights:

        def objective(margins, _, weight=weight):
            return gradients(margins, y, weight.astype(np.float32), recipe.loss.n_classes, factor)

        booster.update(fobj=objective)
    return booster.predict(X, raw_score=True)


@both_libraries
@pytest.mark.parametrize("n_classes", [0, 2, 3], ids=["number", "binary", "multiclass"])
def test_every_round_is_fitted_under_its_own_weights(library, n_classes):
    rng = np.random.default_rng(n_classes)
    X = rng.normal(size=(600, 4))
    y = X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=600)
    y = y if n_classes == 0 else np.searchsorted(np.linspace(-0.4, 0.4, n_classes - 1), y).astype(float)
    weights = rng.uniform(0.2, 3.0, (6, 600))
    start = {"base_score": 0.5 if n_classes else 0.0} if library is XGBoostRun else {"boost_from_average": False}
    recipe = Recipe(loss_of(n_classes), 0.3, SMALL_TREES[library] | start, 1, 0)

    def margins(weights):
        run = library(recipe, X, y, weights[0])
        for weight in weights:
            run.advance(weight)
        booster = run.finish()
        if library is XGBoostRun:
            return booster.predict(xgb.DMatrix(X), output_margin=True)
        return booster.predict(X, raw_score=True)

    by_hand = boosted_by_hand(library, recipe, X, y, weights)
    np.testing.assert_allclose(margins(weights), by_hand, rtol=0, atol=1e-4)
    # Weights that stay as they are at the start give something else altogether.
    assert np.abs(margins(weights[[0] * 6]) - by_hand).max() > 0.1


@both_libraries
@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("dart", [False, True], ids=["trees", "dart"])
def test_predictions_for_held_out_rows_are_those_of_the_finished_booster(library, n_classes, dart):
    rng = np.random.default_rng(1)
    X, held = rng.normal(size=(200, 3)), rng.normal(size=(50, 3))
    y = X[:, 0] if n_classes == 0 else rng.integers(0, n_classes, 200).astype(float)
    names = {XGBoostRun: {"booster": "dart", "rate_drop": 0.5}, LightGBMRun: {"boosting": "dart", "drop_rate": 0.5}}
    recipe = Recipe(loss_of(n_classes), 0.3, names[library] if dart else {}, 1, 0)
    run = library(recipe, X, y, np.ones(200), held)
    for _ in range(6):
        run.advance(rng.uniform(0.5, 2.0, 200))
        seen = run.held_predictions()
    np.testing.assert_allclose(library.predict(run.finish(), held, recipe), seen, rtol=1e-5, atol=1e-6)


@every_class
def test_final_booster_replays_the_weights_of_every_round_on_all_rows(kind):
    X, y, codes, _ = data_for(kind)
    model = small(kind, radius=0.5).fit(X, y, codes)
    assert len(model.context_weights_path_) == model.best_iteration_
    tilts = model.context_weights_path_ / (np.bincount(codes) / len(codes))
    assert np.abs(tilts - 1.0).max() > 0.2
    recipe = Recipe(loss_of(2 if is_classifier(kind) else 0), 0.3, model.params, 1, 0)
    run = kind._library(recipe, X, y.astype(float), np.ones(len(y)))
    for tilt in tilts:
        weight = tilt[codes]
        run.advance(weight / weight.mean())
    np.testing.assert_array_equal(kind._library.predict(run.finish(), X, recipe), outputs(model, X))


# --- reductions ---------------------------------------------------------------------------------------------


@every_class
@pytest.mark.parametrize("sampled", [False, True], ids=["all rows", "drawn rows"])
def test_zero_radius_is_the_plain_booster(kind, sampled):
    X, y, codes, _ = data_for(kind)
    draw = {XGBoostRun: {"subsample": 0.5}, LightGBMRun: {"bagging_fraction": 0.5, "bagging_freq": 1}}
    params = SMALL_TREES[kind._library] | (draw[kind._library] if sampled else {})
    model = small(kind, radius=0.0, params=params).fit(X, y, codes)
    assert model.best_iteration_ == model.n_estimators
    np.testing.assert_array_equal(outputs(model, X), plain_outputs(plain_booster(model, X, y, 12), X))
    np.testing.assert_allclose(model.context_weights_, np.bincount(codes) / len(codes))


@every_class
def test_rows_without_weight_are_as_good_as_absent(kind):
    X, y, codes, _ = data_for(kind)
    weight = np.where(np.arange(len(y)) % 3 == 0, 0.0, 1.5)
    kept = weight > 0
    one = small(kind, radius=0.5).fit(X, y, codes, weight)
    other = small(kind, radius=0.5).fit(X[kept], y[kept], codes[kept], weight[kept])
    np.testing.assert_array_equal(outputs(one, X), outputs(other, X))


@every_class
def test_same_seed_gives_the_same_model_and_predicting_draws_nothing(kind):
    X, y, codes, _ = data_for(kind)
    draw = {XGBoostRun: {"subsample": 0.5}, LightGBMRun: {"bagging_fraction": 0.5, "bagging_freq": 1}}[kind._library]
    one, same, other = (small(kind, radius=0.5, params=draw, random_state=s).fit(X, y, codes) for s in (0, 0, 1))
    np.testing.assert_array_equal(outputs(one, X), outputs(same, X))
    assert not np.array_equal(outputs(one, X), outputs(other, X))
    generator = np.random.RandomState(3)
    model = small(kind, random_state=generator).fit(X, y, codes)
    before = generator.get_state()[1].copy()
    outputs(model, X)
    np.testing.assert_array_equal(generator.get_state()[1], before)


# --- robustness ---------------------------------------------------------------------------------------------


@every_class
@pytest.mark.parametrize("radius", [0.5, np.inf])
def test_worst_context_of_fresh_data_is_better_served_than_by_the_plain_booster(kind, radius):
    X, y, codes, _ = data_for(kind, (2000, 1000, 600, 200))
    fresh, _, fresh_codes, truth = data_for(kind, (2000,) * 4, seed=1)
    options = {"n_jobs": 1, "params": SMALL_TREES[kind._library], "guard": False}
    model = kind(radius=radius, **options).fit(X, y, codes)
    robust = excess_by_context(outputs(model, fresh), truth, fresh_codes)
    ball = KLBall(np.bincount(codes) / len(codes), radius)
    # Also against as many rounds, lest the number of rounds be the reason.
    for n_rounds in (100, model.best_iteration_):
        plain = plain_outputs(plain_booster(model, X, y, n_rounds), fresh)
        plain = excess_by_context(plain, truth, fresh_codes)
        assert plain.argmax() == 3
        assert robust.max() < 0.7 * plain.max()
        assert ball.worst_case(robust).value < 0.85 * ball.worst_case(plain).value


@every_class
@pytest.mark.parametrize("radius", [0.1, 1.0, np.inf])
def test_weights_of_every_round_are_in_the_set_and_no_context_is_dropped(kind, radius):
    X, y, codes, _ = data_for(kind)
    model = small(kind, radius=radius).fit(X, y, codes)
    ball = KLBall(np.bincount(codes) / len(codes), radius)
    assert all(ball.contains(p) for p in model.context_weights_path_)
    assert (model.context_weights_path_ >= 0.9e-3 * ball.p_hat).all()
    np.testing.assert_array_equal(model.context_weights_, model.context_weights_path_[-1])


@every_class
def test_best_round_has_the_least_worst_case_on_held_out_rows(kind):
    X, y, codes, _ = data_for(kind)
    model = small(kind, radius=0.5, n_estimators=40).fit(X, y, codes)
    assert len(model.history_) == model.n_iter_ == 40
    assert model.best_iteration_ == model.history_.argmin() + 1
    ball = KLBall(np.bincount(codes) / len(codes), 0.5)
    assert ball.worst_case(model.excess_risks_).value == pytest.approx(model.history_.min())
    np.testing.assert_array_equal(model.excess_risks_, model.context_risks_ - model.reference_risks_)


@every_class
def test_patience_ends_the_search(kind):
    X, y, codes, _ = data_for(kind)
    model = small(kind, radius=0.5, n_estimators=400, patience=5).fit(X, y, codes)
    assert model.n_iter_ == model.best_iteration_ + 5 < 400


@every_class
def test_risks_are_not_those_of_rows_the_trees_have_seen(kind):
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(300, 4)), np.arange(300) % 2
    y = rng.integers(0, 2, 300) if is_classifier(kind) else rng.normal(size=300)
    deep = {XGBoostRun: {"max_depth": 8}, LightGBMRun: {"min_data_in_leaf": 2}}[kind._library]
    model = small(kind, radius=0.0, n_estimators=40, params=deep).fit(X, y, codes)
    held_out = small(kind, radius=0.1, reference="pooled", n_estimators=40, params=deep).fit(X, y, codes)
    assert model.row_losses(X, y).mean() < 0.2 * held_out.reference_risks_.min()
    assert model.row_losses(X, y).mean() < 0.2 * held_out.context_risks_.min()


def test_score_risk_counts_no_references():
    X, y, codes, _ = data_for(RobustXGBRegressor)
    model = small(RobustXGBRegressor, radius=0.5, criterion="risk").fit(X, y, codes)
    ball = KLBall(np.bincount(codes) / len(codes), 0.5)
    assert ball.worst_case(model.context_risks_).value == pytest.approx(model.history_.min())
    assert (model.reference_risks_ > 0).all()
    known = small(RobustXGBRegressor, radius=0.5, reference=dict.fromkeys(range(4), 0.0)).fit(X, y, codes)
    np.testing.assert_array_equal(known.predict(X), model.predict(X))


# --- the pieces of the game ---------------------------------------------------------------------------------


def test_weights_move_by_little_and_arrive():
    p_hat = np.array([0.7, 0.2, 0.1])
    worst = np.array([0.0, 0.0, 1.0])
    p = p_hat
    for _ in range(300):
        before, p = p, next_weights(p, worst, 0.1)
        assert p.sum() == pytest.approx(1.0)
        assert 0.5 * np.abs(p - before).sum() <= 0.03 + 1e-12
    np.testing.assert_allclose(p, worst, atol=2e-3)
    np.testing.assert_allclose(next_weights(p_hat, p_hat, 0.1), p_hat)


@pytest.mark.parametrize(("fraction", "share"), [(0.5, 1 / 2), (0.33, 1 / 3), (0.2, 1 / 5)])
def test_every_context_has_rows_on_both_sides(fraction, share):
    rng = np.random.default_rng(0)
    sizes = np.array([2, 3, 4, 5, 9, 200])
    codes = rng.permutation(np.repeat(np.arange(6), sizes))
    rows = Rows(np.zeros((len(codes), 1)), rng.normal(size=len(codes)), np.ones(len(codes)), codes)
    split = Split.of(rows, fraction)
    held = np.bincount(split.held.codes, minlength=6)
    assert (held >= 1).all()
    assert (held < sizes).all()
    assert (np.abs(held - share * sizes) <= 1.0).all()


@every_class
def test_contexts_of_one_row_or_one_class_are_judged_by_the_booster_of_all(kind):
    X, y, codes, _ = data_for(kind)
    labels = codes.astype(object)
    labels[0] = "alone"
    labels[np.flatnonzero(y == y.max())[:5]] = "alike"
    model = small(kind, confidence=1.0).fit(X, y, labels.astype(str))
    assert np.isfinite(model.reference_risks_).all()
    assert np.isfinite(model.history_).all()
    assert model.excess_risks_.shape == (6,)


@every_class
def test_context_too_small_for_a_draw_of_rows_is_no_error(kind):
    X, y, codes, _ = data_for(kind, (200, 100, 80, 2))
    draw = {XGBoostRun: {"subsample": 0.3}, LightGBMRun: {"bagging_fraction": 0.3, "bagging_freq": 1}}[kind._library]
    assert np.isfinite(small(kind, params=draw).fit(X, y, codes).reference_risks_).all()


# --- use ----------------------------------------------------------------------------------------------------


def reloaded_by_joblib(model):
    file = BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


def reloaded_by_skops(model):
    data = skops.io.dumps(model)
    return skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))


@every_class
@pytest.mark.parametrize(
    "reloaded",
    [lambda model: pickle.loads(pickle.dumps(model)), reloaded_by_joblib, reloaded_by_skops],
    ids=["pickle", "joblib", "skops"],
)
def test_model_kept_on_disk_predicts_the_same(kind, reloaded):
    X, y, codes, _ = data_for(kind)
    model = small(kind).fit(X, y, codes)
    np.testing.assert_array_equal(outputs(reloaded(model), X), outputs(model, X))


@every_classifier
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_of_named_classes(kind, n_classes):
    X, _, codes, f = data_for(kind)
    y = np.array(["high", "low", "mid"])[np.searchsorted(np.linspace(-1, 1, n_classes - 1), f)]
    model = small(kind).fit(X, y, codes)
    assert model.classes_.tolist() == np.unique(y).tolist()
    assert outputs(model, X).shape == (len(y), n_classes)
    np.testing.assert_allclose(outputs(model, X).sum(axis=1), 1.0, atol=1e-6)
    assert (model.predict(X) == model.classes_[outputs(model, X).argmax(axis=1)]).all()
    assert model.score(X, y) > 0.7
    assert model.row_losses(X, y).mean() == pytest.approx(log_loss(y, outputs(model, X)), rel=1e-4)


@every_class
def test_frames_missing_values_and_labels_of_any_kind(kind):
    X, y, codes, _ = data_for(kind)
    X[::7, 0] = np.nan
    frame = pd.DataFrame(X, columns=list("abcde"))
    labels = pd.Series(np.array(["east", "north", "south", "west"])[codes])
    model = small(kind).fit(frame, pd.Series(y), labels)
    assert model.feature_names_in_.tolist() == list("abcde")
    assert model.contexts_.tolist() == ["east", "north", "south", "west"]
    np.testing.assert_array_equal(model.context_counts_, np.bincount(codes))
    np.testing.assert_array_equal(outputs(model, frame), outputs(small(kind).fit(X, y, codes), X))
    with pytest.raises(ValueError, match="infinity"):
        small(kind).fit(np.where(np.isnan(X), np.inf, X), y, codes)


@every_class
def test_progress_is_shown_on_demand(kind, capsys):
    X, y, codes, _ = data_for(kind)
    small(kind, verbose=1).fit(X, y, codes)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 12
    assert lines[0].startswith(f"{kind.__name__}: round 1, worst case ")


@every_class
def test_missing_library_is_named_with_its_remedy(kind, monkeypatch):
    X, y, codes, _ = data_for(kind)
    name = "xgboost" if kind._library is XGBoostRun else "lightgbm"
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"{name} is not installed.*pip install 'counterpoise\[boosting\]'"):
        small(kind).fit(X, y, codes)


@every_class
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"params": {"eta": 0.1}}, "Pass learning_rate= instead"),
        ({"params": {"nthread": 2}}, "Pass n_jobs= instead"),
        ({"params": {"objective": "huber"}}, "log loss"),
        ({"criterion": "regret"}, "pass 'excess' or 'risk'"),
        ({"reference": "in-sample"}, "choose 'cross-fit'"),
        ({"reference": {0: 1.0}}, "no risk for context 1"),
        ({"n_estimators": 0}, "n_estimators = 0"),
        ({"patience": 1.5}, "patience = 1.5"),
        ({"learning_rate": 0}, "learning_rate = 0"),
        ({"validation_fraction": 0.8}, "at most half"),
        ({"radius": -1.0}, "radius is -1.0"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_used_is_named(kind, options, message):
    X, y, codes, _ = data_for(kind)
    with pytest.raises(InvalidInputError, match=message) as error:
        small(kind, **options).fit(X, y, codes)
    assert str(error.value).startswith(kind.__name__)


@pytest.mark.parametrize("params", [{"boosting": "rf"}, {"device_type": "cuda"}])
def test_lightgbm_that_reads_its_weights_once_is_refused(params):
    X, y, codes, _ = data_for(RobustLGBMRegressor)
    with pytest.raises(InvalidInputError, match="reads the weights once"):
        small(RobustLGBMRegressor, params=params).fit(X, y, codes)


@every_class
def test_contexts_of_one_row_each_are_refused(kind):
    X, y, _, _ = data_for(kind)
    with pytest.raises(InvalidInputError, match="some context needs two"):
        small(kind).fit(X[:20], y[:20], np.arange(20))
