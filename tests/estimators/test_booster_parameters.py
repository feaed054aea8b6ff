"""Parameters in the words of the libraries: passed on, refused where misspelt, and constraints by name."""

import numpy as np
import pandas as pd
import pytest

import counterpoise as cpo
from counterpoise.estimators.booster_parameters import with_positions
from counterpoise.exceptions import InvalidInputError

xgb = pytest.importorskip("xgboost")
lgb = pytest.importorskip("lightgbm")

XGB, LGBM = cpo.RobustXGBRegressor, cpo.RobustLGBMRegressor
both = pytest.mark.parametrize("kind", [XGB, LGBM])


def data(n=300):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n), np.arange(n) % 3


def quick(kind, **options):
    """Return a fast estimator whose weights move."""
    small = {"n_estimators": 6, "learning_rate": 0.3, "n_jobs": 1, "radius": 0.3, "guard": False, "headroom": None}
    return kind(**(small | {"cv": None} | options))


@pytest.mark.parametrize(
    ("kind", "params", "message"),
    [
        (XGB, {"max_dept": 3}, "'max_dept' = 3, which XGBoost does not use. Did you mean 'max_depth'"),
        (XGB, {"verbosity": 0, "min_child_weigth": 2}, "Did you mean 'min_child_weight'"),
        (XGB, {"rate_drop": 0.1}, "'rate_drop' = 0.1, which XGBoost does not use"),
        (XGB, {"qwertz": 1}, "Check its spelling, or drop it"),
        (XGB, {"max_depth": "deep"}, "XGBoost refuses params: .*max_depth"),
        (LGBM, {"num_leavs": 8}, "'num_leavs' = 8, which LightGBM does not use. Did you mean 'num_leaves'"),
        (LGBM, {"max_dept": 3}, "Did you mean 'max_depth'"),
    ],
)
def test_misspelt_parameters_are_refused_with_the_nearest_name(kind, params, message):
    with pytest.raises(InvalidInputError, match=message) as error:
        quick(kind, params=params).fit(*data())
    assert str(error.value).startswith(kind.__name__)


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        (XGB, {"reg_alpha": 0.1, "gamma": 0.1, "max_leaves": 4, "grow_policy": "lossguide", "verbosity": 0}),
        (XGB, {"booster": "dart", "rate_drop": 0.1, "eval_metric": "mae", "tree_method": "hist"}),
        (LGBM, {"reg_alpha": 0.1, "min_child_samples": 5, "subsample": 0.5, "subsample_freq": 1, "max_bin": 31}),
        (LGBM, {"boosting": "dart", "drop_rate": 0.1, "feature_fraction": 0.9, "metric": "l1"}),
    ],
)
def test_parameters_by_any_of_their_names_are_passed_on(kind, params):
    X, y, contexts = data()
    model = quick(kind, params=params, guard=True).fit(X, y, contexts)
    assert not np.array_equal(model.predict(X), quick(kind, guard=True).fit(X, y, contexts).predict(X))


@both
@pytest.mark.parametrize("by", ["position", "name", "list"])
def test_monotone_constraints_hold(kind, by):
    X, y, contexts = data()
    constraint = {"position": {1: 1}, "name": {"b": 1}, "list": [0, 1, 0]}[by]
    frame = pd.DataFrame(X, columns=list("abc"))
    given = frame if by == "name" else X
    model = quick(kind, params={"monotone_constraints": constraint}).fit(given, y, contexts)
    free = quick(kind).fit(given, y, contexts)

    def along(model):
        moved = np.repeat(X[:1], 50, axis=0)
        moved[:, 1] = np.linspace(-3, 3, 50)
        return np.diff(model.predict(pd.DataFrame(moved, columns=list("abc")) if by == "name" else moved))

    assert (along(model) >= -1e-6).all()
    assert (along(free) < -1e-3).any()


@both
def test_interaction_constraints_may_name_columns(kind):
    X, y, contexts = data()
    groups = {"names": [["a"], ["b"], ["c"]], "positions": [[0], [1], [2]]}
    frame = pd.DataFrame(X, columns=list("abc"))
    named = quick(kind, params={"interaction_constraints": groups["names"]}).fit(frame, y, contexts)
    placed = quick(kind, params={"interaction_constraints": groups["positions"]}).fit(X, y, contexts)
    np.testing.assert_array_equal(named.predict(frame), placed.predict(X))
    # Without interactions, the effect of one column is the same whatever the others are.
    low, high = X[:20].copy(), X[:20].copy()
    low[:, 1], high[:, 1] = -1.0, 1.0
    assert np.ptp(placed.predict(high) - placed.predict(low)) < 1e-5
    assert np.ptp(quick(kind).fit(X, y, contexts).predict(high) - quick(kind).fit(X, y, contexts).predict(low)) > 1e-2


def test_constraints_of_columns_that_are_not_there_are_refused():
    with pytest.raises(InvalidInputError, match=r"column 'd' that X does not have. The columns are a, b"):
        with_positions({"monotone_constraints": {"d": 1}}, ["a", "b"], 2)
    with pytest.raises(InvalidInputError, match="length 3 for 2 columns"):
        with_positions({"monotone_constraints": [1, 0, 0]}, None, 2)
    assert with_positions({"max_depth": 3}, None, 2) == {"max_depth": 3}


def test_schedules_of_learning_rates_are_those_of_the_libraries():
    X, y, contexts = data()
    rates = [0.5, 0.4, 0.3, 0.2, 0.1, 0.05]
    ours = quick(XGB, radius=0.0, callbacks=[xgb.callback.LearningRateScheduler(rates)]).fit(X, y, contexts)
    params = {"learning_rate": 0.3, "nthread": 1, "seed": 0}
    theirs = xgb.train(params, xgb.DMatrix(X, y), 6, callbacks=[xgb.callback.LearningRateScheduler(rates)])
    np.testing.assert_array_equal(ours.predict(X), theirs.inplace_predict(X))
    ours = quick(LGBM, radius=0.0, callbacks=[lgb.reset_parameter(learning_rate=rates)]).fit(X, y, contexts)
    params = {"num_threads": 1, "deterministic": True, "verbosity": -1, "seed": 0}
    theirs = lgb.train(params, lgb.Dataset(X, y), 6, callbacks=[lgb.reset_parameter(learning_rate=rates)])
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    # Also where weights move: after the rates change, the objective still sees the weights.
    still = quick(LGBM, callbacks=[lgb.reset_parameter(learning_rate=[0.3] * 6)]).fit(X, y, contexts)
    np.testing.assert_array_equal(still.predict(X), quick(LGBM).fit(X, y, contexts).predict(X))


@pytest.mark.parametrize(
    ("kind", "callback", "message"),
    [
        (XGB, lambda: xgb.callback.EarlyStopping(rounds=3), "Pass patience= instead"),
        (LGBM, lambda: lgb.early_stopping(3, verbose=False), "Pass patience= instead"),
        (XGB, lambda: print, "instances of xgboost.callback.TrainingCallback"),
        (LGBM, lambda: 3, "functions of a CallbackEnv"),
    ],
)
def test_callbacks_that_cannot_be_used_are_refused(kind, callback, message):
    with pytest.raises(InvalidInputError, match=message):
        quick(kind, callbacks=[callback()]).fit(*data())


def test_a_callback_that_stops_a_run_is_named():
    class Stop(xgb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            return epoch == 2

    def stop(env):
        if env.iteration == 2:
            raise lgb.callback.EarlyStopException(2, [])

    for kind, callback in ((XGB, Stop()), (LGBM, stop)):
        with pytest.raises(InvalidInputError, match=r"asks to stop in round 3.*patience"):
            quick(kind, callbacks=[callback]).fit(*data())
