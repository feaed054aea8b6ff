"""Which references are used: by default, when asked for, and what is said about it."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from sklearn.base import clone

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError, SmallContextWarning

SIZES = {"a": 2000, "b": 400, "c": 60}
MODELS = {
    "logistic": cpo.RobustLogisticRegression,
    "linear": cpo.RobustLinearRegression,
    "poisson": cpo.RobustPoissonRegressor,
    "huber": cpo.RobustHuberRegressor,
    "quantile": cpo.RobustQuantileRegressor,
}
every_model = pytest.mark.parametrize("name", MODELS)


def rows(name, differ, seed=0, sizes=SIZES):
    """Return contexts with the same coefficients, or with very different ones."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(list(sizes), list(sizes.values()))
    codes = np.unique(labels, return_inverse=True)[1]
    X = rng.normal(size=(len(labels), 10))
    coef = 0.3 * rng.normal(size=10) + differ * rng.normal(size=(len(sizes), 10))
    z = np.sum(X * coef[codes], axis=1)
    if name == "logistic":
        y = (rng.random(len(z)) < expit(z)).astype(int)
    else:
        y = rng.poisson(np.exp(np.clip(z, -3, 3))).astype(float) if name == "poisson" else z + rng.normal(size=len(z))
    return X, y, labels


def said(model, data, **passed):
    """Return a fitted model, and what it said about references."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(data[0], data[1], contexts=data[2], **passed)
    return model, [str(one.message) for one in caught if one.category is SmallContextWarning]


# --- auto ---------------------------------------------------------------------------------------------------


@every_model
def test_noise_is_noticed_and_rows_are_held_out(name):
    data = rows(name, 0.0)
    model, words = said(MODELS[name](confidence=1.0), data)
    assert model.reference_ == "cross-fit"
    assert len(words) == 1
    assert "c (60)" in words[0]
    assert "reference='cross-fit' is used" in words[0]
    asked, none = said(MODELS[name](confidence=1.0, reference="cross-fit"), data)
    assert not none
    np.testing.assert_allclose(model.reference_risks_, asked.reference_risks_, rtol=1e-6)
    np.testing.assert_allclose(model.coef_, asked.coef_, atol=1e-4)


@every_model
def test_real_differences_keep_in_sample_references(name):
    data = rows(name, 0.5, sizes={"a": 2000, "b": 1500, "c": 900})
    for confidence in (0.99, 1.0):
        model, words = said(MODELS[name](confidence=confidence), data)
        assert (model.reference_, words) == ("in-sample", [])


@every_model
def test_in_sample_references_are_obeyed_with_the_same_comparison(name):
    data = rows(name, 0.0)
    _, switched = said(MODELS[name](confidence=1.0), data)
    model, words = said(MODELS[name](confidence=1.0, reference="in-sample"), data)
    assert model.reference_ == "in-sample"
    assert len(words) == 1
    assert words[0].split(". ")[1] == switched[0].split(". ")[1]
    assert "Use reference='cross-fit', raise alpha, or pool" in words[0]


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ({"criterion": "risk", "confidence": 1.0}, "in-sample"),
        ({"radius": 0.0}, "in-sample"),
        ({"radius": 1e-9}, "in-sample"),
        ({"reference": {"a": 0.1, "b": 0.1, "c": 0.1}, "confidence": 1.0}, "given"),
        ({"reference": np.zeros(3), "confidence": 1.0}, "given"),
        ({"reference": "shrunk", "confidence": 1.0}, "shrunk"),
        ({"reference": "null", "confidence": 1.0}, "null"),
        ({"reference": "pooled", "confidence": 1.0}, "pooled"),
    ],
    ids=["risk", "one mix", "hardly more than one", "mapping", "array", "shrunk", "null", "pooled"],
)
def test_where_noise_does_not_matter_nothing_is_said(options, used):
    model, words = said(cpo.RobustLinearRegression(**options), rows("linear", 0.0))
    assert (model.reference_, words) == (used, [])


@pytest.mark.parametrize("options", [{"criterion": "risk"}, {"radius": 0.0}, {"reference": [0.1, 0.1, 0.1]}], ids=str)
def test_where_references_do_not_matter_nothing_is_compared(options, monkeypatch):
    monkeypatch.setattr("counterpoise.core.problem.measure_optimism", None)
    cpo.RobustLinearRegression(**options).fit(*rows("linear", 0.0))


def test_one_context_has_nothing_to_compare(monkeypatch):
    monkeypatch.setattr("counterpoise.core.problem.measure_optimism", None)
    X, y, _ = rows("linear", 0.0)
    assert cpo.RobustLinearRegression().fit(X, y, contexts=np.zeros(len(y))).reference_ == "in-sample"


def test_the_same_data_give_the_same_answer():
    data = rows("logistic", 0.0)
    one, other = (said(cpo.RobustLogisticRegression(confidence=1.0), data) for _ in range(2))
    assert one[1] == other[1]
    np.testing.assert_array_equal(one[0].coef_, other[0].coef_)
    assert clone(one[0]).reference == "auto"


def test_noise_is_noticed_about_as_often_as_it_is_all_there_is():
    """Of 20 tables without differences all are noticed; of 20 with clear ones none."""
    used = {}
    for differ in (0.0, 0.5):
        models = [
            said(cpo.RobustLinearRegression(confidence=1.0), rows("linear", differ, seed))[0] for seed in range(20)
        ]
        used[differ] = [model.reference_ for model in models]
    assert used[0.0].count("cross-fit") == 20
    assert used[0.5].count("in-sample") == 20


def test_worst_excess_in_the_population_is_lower_where_there_is_only_noise():
    worst = {"auto": [], "in-sample": []}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        coef = rng.normal(size=20)
        labels = np.repeat(["a", "b", "c"], [3000, 300, 60])
        X = rng.normal(size=(len(labels), 20))
        y = X @ coef + rng.normal(size=len(labels))
        for reference, found in worst.items():
            model, _ = said(cpo.RobustLinearRegression(confidence=1.0, reference=reference), (X, y, labels))
            # Contexts are alike, so that the excess is the same in each.
            found.append(0.5 * (np.sum((model.coef_ - coef) ** 2) + model.intercept_**2))
    assert np.mean(worst["auto"]) < 0.5 * np.mean(worst["in-sample"])


def test_a_path_has_the_references_of_its_largest_set():
    X, y, labels = rows("linear", 0.0)
    with pytest.warns(SmallContextWarning):
        path = cpo.confidence_path(cpo.RobustLinearRegression(), X, y, labels, radii=[0.0, 0.1, 30.0])
    assert [one.reference_ for one in path.models] == ["cross-fit"] * 3


@pytest.mark.parametrize("name", ["logistic", "linear", "quantile"])
def test_rows_elsewhere_are_not_held_out_and_it_is_said(name):
    da = pytest.importorskip("dask.array")
    pytest.importorskip("distributed")
    from distributed import Client

    X, y, labels = rows(name, 0.0, sizes={"a": 400, "b": 100, "c": 40})
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0"):
        chunked = tuple(da.from_array(one, chunks=(200, *one.shape[1:])) for one in (X, y, labels))
        model, words = said(MODELS[name](confidence=1.0), chunked)
    here, like = said(MODELS[name](confidence=1.0, reference="in-sample"), (X, y, labels))
    assert model.reference_ == here.reference_ == "in-sample"
    assert words == [one.replace("Use reference='cross-fit', raise", "Raise") for one in like]


# --- null and pooled ----------------------------------------------------------------------------------------


CONSTANTS = {
    "logistic": lambda y: logit(y.mean()),
    "linear": np.mean,
    "poisson": lambda y: np.log(y.mean()),
    "quantile": np.median,
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_null_is_the_best_constant_for_all(name):
    X, y, labels = rows(name, 0.3)
    model = MODELS[name](reference="null", confidence=1.0).fit(X, y, contexts=labels)
    losses = model._loss().value(y.astype(float), np.full(len(y), CONSTANTS[name](y)))
    expected = pd.Series(losses).groupby(labels).mean().to_numpy()
    # Between two rows every median is as good for all, and not for each context.
    np.testing.assert_allclose(model.reference_risks_, expected, rtol=1e-4 if name == "quantile" else 1e-6)
    assert model.context_counts_ @ model.reference_risks_ == pytest.approx(losses.sum(), rel=1e-9)
    np.testing.assert_array_equal(model.excess_risks_, model.context_risks_ - model.reference_risks_)
    assert model.certificate_.gap <= 1e-5


def test_null_without_an_intercept_is_zero():
    X, y, labels = rows("linear", 0.3)
    model = cpo.RobustLinearRegression(reference="null", fit_intercept=False).fit(X, y, contexts=labels)
    np.testing.assert_allclose(model.reference_risks_, pd.Series(0.5 * y**2).groupby(labels).mean(), rtol=1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "none"])
def test_null_and_every_mix_are_maximin_effects(fit_intercept):
    """The problem of Meinshausen and Buehlmann, posed to CVXPY: the most variance explained in every context."""
    cp = pytest.importorskip("cvxpy")
    X, y, labels = rows("linear", 0.5, sizes={"a": 300, "b": 200, "c": 100})
    X = X[:, :4]
    names = np.unique(labels)
    null = 0.5 * (y - y.mean() * fit_intercept) ** 2
    coef, intercept = cp.Variable(4), cp.Variable()
    explained = [
        null[labels == c].mean()
        - 0.5 * cp.sum_squares(y[labels == c] - X[labels == c] @ coef - intercept * fit_intercept) / np.sum(labels == c)
        for c in names
    ]
    problem = cp.Problem(cp.Maximize(cp.min(cp.hstack(explained))))
    problem.solve()
    model = cpo.RobustLinearRegression(reference="null", confidence=1.0, alpha=0.0, fit_intercept=fit_intercept)
    model.fit(X, y, contexts=labels)
    assert -model.certificate_.upper == pytest.approx(problem.value, abs=1e-6)
    np.testing.assert_allclose(model.coef_, coef.value, atol=1e-4)
    assert -model.certificate_.lower >= problem.value - 1e-6
    assert problem.value > 0.0


@every_model
@pytest.mark.parametrize("confidence", [0.99, 1.0])
def test_pooled_references_and_the_mix_of_the_data_are_the_plain_model(name, confidence):
    """Its excess is 0 in that mix and no model's is less: nothing is better than the plain model in every mix."""
    X, y, labels = rows(name, 0.5, sizes={"a": 300, "b": 200, "c": 100})
    plain = MODELS[name](radius=0.0, tol=1e-10).fit(X, y, contexts=labels)
    model = MODELS[name](reference="pooled", confidence=confidence).fit(X, y, contexts=labels)
    np.testing.assert_allclose(model.reference_risks_, plain.context_risks_, rtol=1e-5, atol=1e-7)
    assert model.certificate_.upper == pytest.approx(0.0, abs=1e-5)
    assert model.certificate_.lower <= 1e-12
    np.testing.assert_allclose(model.context_risks_, plain.context_risks_, rtol=1e-3, atol=1e-4)


def test_pooled_references_and_mixes_elsewhere_are_another_model():
    X, y, labels = rows("linear", 0.5, sizes={"a": 300, "b": 200, "c": 100})
    away = cpo.Mix(shares={"a": 0.1, "b": 0.1, "c": 0.8}, radius=0.05)
    model = cpo.RobustLinearRegression(reference="pooled", mix=away).fit(X, y, contexts=labels)
    assert model.certificate_.upper < -0.01


@pytest.mark.parametrize(
    ("name", "reference"),
    [("logistic", "null"), ("logistic", "pooled"), ("poisson", "null"), ("huber", "pooled"), ("quantile", "null")],
)
def test_rows_elsewhere_have_the_same_references(name, reference):
    da = pytest.importorskip("dask.array")
    pytest.importorskip("distributed")
    from distributed import Client

    X, y, labels = rows(name, 0.5, sizes={"a": 300, "b": 200, "c": 100})
    here = MODELS[name](reference=reference, confidence=1.0).fit(X, y, contexts=labels)
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0"):
        chunked = tuple(da.from_array(one, chunks=(250, *one.shape[1:])) for one in (X, y, labels))
        there = MODELS[name](reference=reference, confidence=1.0).fit(chunked[0], chunked[1], contexts=chunked[2])
    assert there.reference_ == reference
    # Between two rows every median is as good for all, and not for each context.
    np.testing.assert_allclose(there.reference_risks_, here.reference_risks_, rtol=1e-4 if name == "quantile" else 1e-6)
    one, other = (model.context_counts_ @ model.reference_risks_ for model in (here, there))
    assert one == pytest.approx(other, rel=1e-7)


def test_classes_and_several_outputs_have_a_null_model():
    rng = np.random.default_rng(0)
    X, labels, y = rng.normal(size=(300, 2)), rng.integers(0, 3, 300), rng.integers(0, 3, 300)
    model = cpo.RobustLogisticRegression(reference="null").fit(X, y, contexts=labels)
    shares = np.bincount(y) / 300.0
    expected = pd.Series(-np.log(shares[y])).groupby(labels).mean()
    np.testing.assert_allclose(model.reference_risks_, expected, rtol=1e-6)


@pytest.mark.parametrize("reference", ["auto", "null", "pooled"])
def test_estimators_without_these_references_refuse_them(reference):
    X, y, labels = rows("linear", 0.5, sizes={"a": 30, "b": 20})
    kinds = {cpo.RobustNewsvendor(2.0): "'in-sample'"}
    if reference == "auto":
        kinds[cpo.ContextRobust(cpo.RobustLinearRegression())] = "'cross-fit'"
    for model, first in kinds.items():
        model.set_params(reference=reference)
        with pytest.raises(InvalidInputError, match=f"reference is '{reference}'; pass {first}"):
            model.fit(np.abs(y) if "Newsvendor" in type(model).__name__ else X, np.abs(y), contexts=labels)
