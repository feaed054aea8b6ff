"""Categories of data frames, split by as categories; text named with what to do about it."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError, UnseenCategoryWarning

xgb = pytest.importorskip("xgboost")
lgb = pytest.importorskip("lightgbm")

CITIES = np.array(["amiens", "brest", "cannes", "dijon", "evry", "foix"])
both = pytest.mark.parametrize("kind", [cpo.RobustXGBRegressor, cpo.RobustLGBMRegressor])
both_frames = pytest.mark.parametrize("frames", ["pandas", "polars", "enum"])


def data(n=360):
    """Return a number that depends on which of six cities a row is from, in no order of theirs."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, n)
    x = rng.normal(size=n)
    y = np.array([0.0, 3.0, 0.0, 3.0, 0.0, 3.0])[codes] + x + 0.1 * rng.normal(size=n)
    return codes, x, y, np.arange(n) % 3


def framed(frames, cities, x):
    """Return the same table as a frame with a column of categories."""
    if frames == "pandas":
        return pd.DataFrame({"city": pd.Categorical(cities, categories=CITIES), "x": x})
    kind = pl.Categorical if frames == "polars" else pl.Enum(CITIES.tolist())
    return pl.DataFrame({"city": list(cities), "x": x}, schema_overrides={"city": pl.String}).with_columns(
        pl.col("city").cast(kind)
    )


def stump(kind, **options):
    """Return boosters of one split per tree, which tell even from odd cities only if these are categories."""
    params = {"max_depth": 1} | ({"max_cat_to_onehot": 1} if "XGB" in kind.__name__ else {"min_data_per_group": 1})
    params |= {} if "XGB" in kind.__name__ else {"cat_smooth": 1.0, "max_cat_to_onehot": 1}
    switches = {"guard": False, "headroom": None, "cv": 2}
    return kind(n_estimators=20, learning_rate=0.3, n_jobs=1, radius=0.1, params=params, **switches, **options)


@both
@both_frames
def test_categories_are_split_as_categories(kind, frames):
    codes, x, y, contexts = data()
    model = stump(kind).fit(framed(frames, CITIES[codes], x), y, contexts)
    assert sorted(model.categories_["city"]) == CITIES.tolist()
    assert model.feature_names_in_.tolist() == ["city", "x"]
    at_zero = model.predict(framed(frames, CITIES, np.zeros(6)))
    np.testing.assert_allclose(at_zero, [0, 3, 0, 3, 0, 3], atol=0.5)
    # The order of codes says nothing about cities: as numbers they would take several splits.
    numbers = stump(kind).fit(np.column_stack([codes, x]), y, contexts)
    assert np.abs(numbers.predict(np.column_stack([np.arange(6), np.zeros(6)])) - [0, 3, 0, 3, 0, 3]).max() > 1.0


@both
def test_plain_fit_with_categories_is_the_library_s_own(kind):
    codes, x, y, contexts = data()
    frame = framed("pandas", CITIES[codes], x)
    model = kind(radius=0.0, n_estimators=8, n_jobs=1).fit(frame, y, contexts)
    if "XGB" in kind.__name__:
        params = {"learning_rate": 0.1, "nthread": 1, "seed": 0}
        booster = xgb.train(params, xgb.DMatrix(frame, y, enable_categorical=True), 8)
        expected = booster.predict(xgb.DMatrix(frame, enable_categorical=True))
    else:
        params = {"num_threads": 1, "deterministic": True, "verbosity": -1, "seed": 0}
        expected = lgb.train(params, lgb.Dataset(frame, y), 8).predict(frame)
    np.testing.assert_allclose(model.predict(frame), expected, rtol=1e-6)


@both
@both_frames
def test_a_category_is_known_by_its_label_however_it_arrives(kind, frames):
    codes, x, y, contexts = data()
    model = stump(kind).fit(framed(frames, CITIES[codes], x), y, contexts)
    expected = model.predict(framed(frames, CITIES, np.zeros(6)))
    some = [5, 1]
    np.testing.assert_array_equal(model.predict(framed(frames, CITIES[some], np.zeros(2))), expected[some])
    as_text = pd.DataFrame({"city": CITIES[some].tolist(), "x": np.zeros(2)})
    np.testing.assert_array_equal(model.predict(as_text), expected[some])


@both
def test_unseen_and_missing_categories_count_as_missing_and_the_former_are_named(kind):
    codes, x, y, contexts = data()
    model = stump(kind).fit(framed("pandas", CITIES[codes], x), y, contexts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        missing = model.predict(pd.DataFrame({"city": pd.Categorical([None], categories=CITIES), "x": [0.0]}))
    with pytest.warns(UnseenCategoryWarning, match="column 'city' holds 'zurich', which is none of the 6 categories"):
        unseen = model.predict(pd.DataFrame({"city": pd.Categorical(["zurich"]), "x": [0.0]}))
    np.testing.assert_array_equal(unseen, missing)


@pytest.mark.parametrize("kind", [cpo.RobustXGBClassifier, cpo.RobustLGBMClassifier])
def test_classes_and_whole_numbers_as_categories(kind):
    codes, x, y, contexts = data()
    frame = pd.DataFrame({"city": pd.Categorical(codes), "x": x})
    labels = np.array(["low", "mid", "high"])[np.searchsorted([0.5, 2.5], y)]
    model = kind(n_estimators=10, n_jobs=1, guard=False, headroom=None, cv=2).fit(frame, labels, contexts)
    assert model.categories_ == {"city": [0, 1, 2, 3, 4, 5]}
    assert model.score(frame, labels) > 0.8


@both
@pytest.mark.parametrize(
    ("X", "message"),
    [
        (pd.DataFrame({"x": [0.0] * 6, "city": list("abcabc")}), "column 'city' of X holds text.*'category'"),
        (pl.DataFrame({"x": [0.0] * 6, "city": list("abcabc")}), "column 'city' of X holds text.*polars.Categorical"),
        (np.array([[0.0, "a"]] * 6, dtype=object), "column 1 of X holds text"),
        (np.array([["0", "a"]] * 6), "column 0 of X holds text"),
        (
            pd.DataFrame({"day": pd.date_range("2020", periods=6)}),
            "column 'day' of X holds dates.*Turn it into numbers",
        ),
    ],
    ids=["pandas", "polars", "objects", "text", "dates"],
)
def test_text_is_named_with_its_column_and_remedy(kind, X, message):
    with pytest.raises(InvalidInputError, match=message) as error:
        kind().fit(X, np.arange(6.0), [0, 1] * 3)
    assert str(error.value).startswith(kind.__name__)


@both
def test_columns_that_changed_their_kind_are_refused(kind):
    codes, x, y, contexts = data()
    model = stump(kind).fit(framed("pandas", CITIES[codes], x), y, contexts)
    with pytest.raises(InvalidInputError, match="X is no data frame, but the fit saw categories in column 'city'"):
        model.predict(np.column_stack([codes, x]))
    numbers = stump(kind).fit(pd.DataFrame({"city": codes, "x": x}), y, contexts)
    with pytest.raises(InvalidInputError, match="column 'city' of X holds categories, not numbers"):
        numbers.predict(framed("pandas", CITIES[codes], x))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(framed("pandas", CITIES[codes], x).rename(columns={"x": "z"}))


@both
def test_categories_are_compared_also_where_a_fold_lacks_one(kind):
    codes, x, y, contexts = data(240)
    cities = CITIES[codes]
    # A category of one row, which the fit of one fold has not seen; and a row without any.
    cities[7] = "geneva"
    frame = pd.DataFrame({"city": pd.Categorical(cities), "x": x})
    frame.loc[11, "city"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnseenCategoryWarning)
        comparison = cpo.compare(frame, y, contexts, estimator=stump(kind), cv=3)
    assert np.isfinite(comparison.by_context["risk"].astype(float)).all()
    # The plain model tells even from odd cities; half the variance is what the mean alone leaves.
    risks = comparison.by_context.where(method="erm")["risk"]
    assert (risks < 0.25 * np.var(y)).all()
