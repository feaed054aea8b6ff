"""What trees minimise: the same in both libraries, in our risks, and under weights that change between rounds."""

import numpy as np
import pytest

import counterpoise as cpo
from counterpoise.estimators.boosters import LightGBMRun, Recipe, XGBoostRun
from counterpoise.estimators.boosting_losses import LogLoss, NumberLoss
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Pinball, Poisson

xgb = pytest.importorskip("xgboost")
lgb = pytest.importorskip("lightgbm")

LOSSES = {
    "squared_error": NumberLoss.named("squared_error"),
    "poisson": NumberLoss.named("poisson"),
    "quantile": NumberLoss.named("quantile", 0.8),
    "binary": LogLoss(2),
    "three classes": LogLoss(3),
}
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
both_libraries = pytest.mark.parametrize("library", [XGBoostRun, LightGBMRun])
both_regressors = pytest.mark.parametrize("kind", ["RobustXGBRegressor", "RobustLGBMRegressor"])


def rows(loss, n=400, seed=0):
    """Return features of few values, so that no library bins them by weight, and targets that suit the loss."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 12, size=(n, 3)).astype(float)
    f = 0.1 * X[:, 0] - 0.2 * (X[:, 1] > 5)
    if loss.n_classes:
        return X, np.searchsorted(np.linspace(0.2, 0.8, loss.n_classes - 1), f + 0.3 * rng.normal(size=n)).astype(float)
    return X, rng.poisson(np.exp(f)).astype(float) + 0.25 * rng.integers(0, 3, n) * (loss.loss.name != "poisson")


@every_loss
def test_constant_has_the_least_mean_loss(loss):
    _, y = rows(loss)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y))

    def mean(prediction):
        given = np.broadcast_to(prediction, (len(y), *np.shape(prediction)))
        return np.average(loss.rows(y, given, 1e-9), weights=weight)

    best = loss.constant(y, weight)
    for other in (best * 1.05, best * 0.95) if best.ndim == 0 else (np.roll(best, 1), best**1.2 / (best**1.2).sum()):
        assert mean(best) <= mean(other)
    assert (loss.rows(y, np.broadcast_to(best, (len(y), *best.shape)), 1e-9) >= loss.lowest(y)).all()


def test_losses_of_numbers_are_those_of_the_linear_models():
    y, predicted = np.array([0.0, 1.0, 3.0]), np.array([0.5, 2.0, 2.5])
    np.testing.assert_allclose(LOSSES["poisson"].rows(y, predicted), Poisson().value(y, np.log(predicted)))
    np.testing.assert_allclose(LOSSES["quantile"].rows(y, predicted), Pinball(0.8).value(y, predicted))
    # Minimal in the mean of a Poisson count and the quantile, so that a plain fit aims at what it is judged by.
    assert np.isfinite(LOSSES["poisson"].rows(y, np.zeros(3))).all()


@both_libraries
@every_loss
def test_weights_of_later_rounds_count_as_in_a_run_that_the_library_continues(library, loss):
    X, y = rows(loss)
    first, second = np.random.default_rng(2).uniform(0.2, 3.0, (2, len(y))).astype(np.float32)
    start = {"base_score": 0.4} if library is XGBoostRun else {"boost_from_average": False, "min_data_in_leaf": 5}
    recipe = Recipe(loss, 0.3, {"max_depth": 3, **start}, 1, 0)
    run = library(recipe, X, y, first.astype(float), X)
    for weight in (first, first, second, second):
        run.advance(weight.astype(float))
    if library is XGBoostRun:
        params = {**loss.xgboost, "learning_rate": 0.3, "max_depth": 3, "nthread": 1, **start}
        begun = xgb.train(params, xgb.DMatrix(X, y, weight=first), 2)
        continued = xgb.train(params, xgb.DMatrix(X, y, weight=second), 2, xgb_model=begun)
        expected = continued.predict(xgb.DMatrix(X))
    else:
        params = {**loss.lightgbm, "learning_rate": 0.3, "max_depth": 3, "num_threads": 1, "verbosity": -1, **start}
        begun = lgb.train(params, lgb.Dataset(X, y, weight=first, free_raw_data=False), 2)
        again = lgb.Dataset(X, y, weight=second, free_raw_data=False)
        expected = lgb.train(params, again, 2, init_model=begun).predict(X)
    found = run.held_predictions()
    found = found[:, 1] if loss.n_classes == 2 else found
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@both_libraries
@every_loss
def test_predictions_of_the_first_rounds_are_those_that_were_seen_then(library, loss):
    X, y = rows(loss, 200)
    run = library(Recipe(loss, 0.3, {"max_depth": 3}, 1, 0), X, y, np.ones(len(y)), X[:50])
    seen = []
    for _ in range(4):
        run.advance()
        seen.append(run.held_predictions())
    np.testing.assert_allclose(run.held_predictions_of([2]), seen[1], rtol=1e-5, atol=1e-6)


@both_regressors
@pytest.mark.parametrize("loss", ["poisson", "quantile"])
def test_plain_fit_under_a_loss_is_the_library_s_own(kind, loss):
    X, y = rows(LOSSES[loss])
    contexts = np.arange(len(y)) % 3
    options = {"n_estimators": 25, "learning_rate": 0.2, "n_jobs": 1, "params": {"max_depth": 2}, "cv": 2}
    model = getattr(cpo, kind)(loss=loss, quantile=0.8, radius=0.0, **options).fit(X, y, contexts)
    given = LOSSES[loss]
    np.testing.assert_allclose(model.row_losses(X, y), given.rows(y, model.predict(X)))
    if "XGB" in kind:
        params = {**given.xgboost, "learning_rate": 0.2, "nthread": 1, "seed": 0, "max_depth": 2}
        expected = xgb.train(params, xgb.DMatrix(X, y), 25).inplace_predict(X)
    else:
        params = {**given.lightgbm, "learning_rate": 0.2, "num_threads": 1, "seed": 0, "max_depth": 2}
        expected = lgb.train(params | {"deterministic": True, "verbosity": -1}, lgb.Dataset(X, y), 25).predict(X)
    np.testing.assert_array_equal(model.predict(X), expected)
    if loss == "quantile":
        assert np.mean(y <= model.predict(X)) == pytest.approx(0.8, abs=0.05)
    else:
        assert (model.predict(X) > 0).all()
    robust = getattr(cpo, kind)(loss=loss, quantile=0.8, radius=0.3, guard=False, headroom=None, **options)
    assert np.isfinite(robust.fit(X, y, contexts).excess_risks_).all()


@both_regressors
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "huber"}, "loss is 'huber'; choose one of 'squared_error', 'poisson', 'quantile'"),
        ({"loss": "quantile", "quantile": 1.5}, "strictly between 0 and 1"),
        ({"loss": "poisson"}, "y is -1 in row 0; loss='poisson' takes numbers that are not negative"),
    ],
    ids=["name", "level", "target"],
)
def test_what_a_loss_cannot_use_is_named(kind, options, message):
    with pytest.raises(InvalidInputError, match=message):
        getattr(cpo, kind)(**options).fit(np.zeros((6, 1)), np.arange(6) - 1.0, [0, 1] * 3)
