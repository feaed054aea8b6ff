"""Coefficients in the units of the table, who pulls at them, and what a badly served context would have otherwise."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from counterpoise import (
    ContextRobust,
    RobustLinearRegression,
    RobustLogisticRegression,
    RobustPoissonRegressor,
)
from counterpoise.reports.effects import LISTED, Effects
from counterpoise.reports.features import features_of

pytestmark = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")


def people(n=1200, seed=0):
    """Return a table in which age does twice as much in one region, and shoe size nothing anywhere."""
    rng = np.random.default_rng(seed)
    region = rng.choice(["north", "south"], n, p=[0.2, 0.8])
    table = pd.DataFrame(
        {
            "age": rng.normal(50.0, 12.0, n),
            "shoe": rng.normal(40.0, 2.0, n),
            "job": rng.choice(["clerk", "smith"], n),
        }
    )
    slope = np.where(region == "north", 0.06, 0.03)
    pay = slope * (table["age"] - 50.0) + 1.5 * (table["job"] == "smith") + rng.normal(0.0, 0.5, n)
    return table, pay.to_numpy(), region


def pipeline(model):
    encode = ColumnTransformer(
        [("numbers", StandardScaler(), ["age", "shoe"]), ("words", OneHotEncoder(drop="first"), ["job"])]
    )
    return make_pipeline(encode, model)


def looked_into(model=None, seed=0, **options):
    X, y, c = people(seed=seed)
    fitted = pipeline(model or RobustLinearRegression(radius=0.1)).fit(X, y, robustlinearregression__contexts=c)
    return fitted, Effects.of(fitted, X, y, c, **options)


def row_of(table, **values):
    return next(table.where(**values).rows())


# --- units -----------------------------------------------------------------------------------------------------------


def test_coefficients_are_per_standard_deviation_and_per_round_step_of_the_table():
    fitted, found = looked_into()
    scaler = fitted[0].named_transformers_["numbers"]
    age = row_of(found.rows, feature="age")
    assert age["step"] == " per 10"
    assert age["robust"] == pytest.approx(fitted[-1].coef_[0], rel=1e-6)
    assert age["robust_step"] == pytest.approx(10.0 * fitted[-1].coef_[0] / scaler.scale_[0], rel=1e-6)
    job = row_of(found.rows, feature="job: smith")
    assert job["step"] == ""
    assert job["robust_step"] == pytest.approx(fitted[-1].coef_[2], rel=1e-6)


def test_predictions_change_by_what_the_table_of_effects_says():
    fitted, found = looked_into()
    X, *_ = people()
    older = X.assign(age=X["age"] + 10.0)
    np.testing.assert_allclose(
        fitted.predict(older) - fitted.predict(X), row_of(found.rows, feature="age")["robust_step"], rtol=1e-6
    )


def test_largest_first_and_the_plain_model_beside():
    _, found = looked_into()
    sizes = np.maximum(np.abs(found.rows["robust"]), np.abs(found.rows["erm"]))
    assert np.all(np.diff(sizes) <= 0)
    X, y, c = people()
    erm = pipeline(RobustLinearRegression(radius=0)).fit(X, y, robustlinearregression__contexts=c)
    assert row_of(found.rows, feature="age")["erm"] == pytest.approx(erm[-1].coef_[0], abs=1e-4)


def test_missing_numbers_do_not_hide_the_scale_of_a_column():
    x = np.array([[10.0], [20.0], [np.nan], [40.0], [30.0]])
    z = np.nan_to_num(x, nan=25.0) / 7.0 - 1.0
    (feature,) = features_of(LinearRegression(), x, z)
    assert feature.slope == pytest.approx(1.0 / 7.0)
    assert feature.is_number


@pytest.mark.parametrize("kind", [np.asarray, pl.DataFrame, pd.DataFrame, sparse.csr_matrix, np.ndarray.tolist])
def test_any_table_is_looked_into(kind):
    rng = np.random.default_rng(0)
    X, c = rng.normal(size=(200, 2)), rng.choice(["a", "b"], 200)
    y = X[:, 0] + rng.normal(size=200)
    model = RobustLinearRegression().fit(kind(X), y, contexts=c)
    found = Effects.of(model, kind(X), y, c)
    assert found.rows["robust"].tolist() == pytest.approx((model.coef_ * X.std(axis=0)).tolist(), rel=1e-6)


def test_many_features_are_cut_and_counted():
    rng = np.random.default_rng(0)
    X, c = rng.normal(size=(300, 40)), rng.choice(["a", "b"], 300)
    y = rng.normal(size=300)
    found = Effects.of(RobustLinearRegression().fit(X, y, contexts=c), X, y, c)
    assert found.rows.n_rows == LISTED
    assert f"and {40 - LISTED} smaller ones" in found.html


def test_classes_and_counts_say_what_is_added_to():
    X, y, c = people()
    Z = X[["age", "shoe"]].to_numpy() / [10.0, 2.0]
    three = np.digitize(y, [0.0, 1.0])
    many = Effects.of(RobustLogisticRegression().fit(Z, three, contexts=c), Z, three, c, badly_served="north")
    assert set(many.rows["output"].tolist()) == {"0", "1", "2"}
    assert many.rows.n_rows == 6
    two = Effects.of(RobustLogisticRegression().fit(Z, y > 0, contexts=c), Z, y > 0, c)
    assert two.meaning == "log-odds of True"
    count = np.random.default_rng(0).poisson(np.exp(0.2 * Z[:, 0] - 1.0))
    rate = Effects.of(RobustPoissonRegressor().fit(Z, count, contexts=c), Z, count, c)
    assert rate.meaning == "logarithm of the expected count"
    for one in (many, two, rate):
        assert "<table" in one.html
        assert "<svg" in one.chart


def test_a_model_that_is_not_linear_has_no_effects():
    X, y, c = people()
    Z = X[["age", "shoe"]].to_numpy()
    assert Effects.of(ContextRobust(LinearRegression(), cv=3).fit(Z, y, contexts=c), Z, y, c) is None


# --- who pulls -------------------------------------------------------------------------------------------------------


def test_contexts_pull_towards_their_own_effect():
    _, found = looked_into()
    age = row_of(found.rows, feature="age")
    assert age["up"] == "north"
    assert age["down"] == "south"


def test_who_does_not_differ_seldom_pulls():
    pulls = [row_of(looked_into(seed=seed)[1].rows, feature="shoe") for seed in range(20)]
    assert sum(bool(row["up"] or row["down"]) for row in pulls) <= 4


# --- why a context is badly served -----------------------------------------------------------------------------------


def test_the_wish_of_a_context_is_its_own_effect():
    _, found = looked_into(badly_served="north")
    first = found.wishes[0]
    assert first.feature.name == "age"
    assert first.own == pytest.approx(0.6, abs=0.1)
    assert first.model == pytest.approx(row_of(found.rows, feature="age")["robust_step"])
    assert found.n == np.sum(people()[2] == "north")
    assert found.why.startswith("Its own model finds a larger effect of age (0.")
    assert " per 10)" in found.why
    assert "shoe" not in found.why


def test_nothing_is_wished_where_contexts_do_not_differ():
    wished = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, c = rng.normal(size=(300, 5)), rng.choice(["a", "b"], 300, p=[0.3, 0.7])
        y = X[:, 0] + rng.normal(size=300)
        found = Effects.of(RobustLinearRegression().fit(X, y, contexts=c), X, y, c, badly_served="a")
        wished += bool(found.wishes)
    assert wished <= 3


def test_a_feature_that_does_not_vary_in_a_context_is_not_its_wish():
    rng = np.random.default_rng(0)
    X, c = rng.normal(size=(600, 2)), np.repeat(["a", "b"], 300)
    X[c == "a", 1] = 0.0
    y = X @ [1.0, 1.0] + rng.normal(0.0, 0.1, 600)
    found = Effects.of(RobustLinearRegression().fit(X, y, contexts=c), X, y, c, badly_served="a")
    assert "x1" not in [wish.feature.name for wish in found.wishes]


def test_a_context_without_a_model_of_its_own_is_told_by_its_slopes():
    rng = np.random.default_rng(0)
    X, c = rng.normal(size=(600, 2)), np.repeat(["a", "b"], [60, 540])
    y = (X[:, 0] + rng.normal(size=600) > 0) & (c == "b")
    found = Effects.of(RobustLogisticRegression().fit(X, y, contexts=c), X, y, c, badly_served="a")
    assert not found.has_own_model
    assert found.wishes == ()
    assert "no model of its own" in found.why


def test_rows_of_one_group_do_not_make_a_wish_sure():
    X, y, c = people()
    fitted = pipeline(RobustLinearRegression()).fit(X, y, robustlinearregression__contexts=c)
    found = Effects.of(fitted, X, y, c, badly_served="north", groups=np.where(c == "north", 0, np.arange(len(c))))
    assert found.wishes == ()
