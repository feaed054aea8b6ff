"""``draws="groups"``: every estimator sizes its set by what the rows of groups are worth."""

import math

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError

pytestmark = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")

RNG = np.random.default_rng(0)
DAY = np.repeat(np.arange(60), 6)
WEATHER = np.repeat(RNG.choice(["rain", "snow", "sun"], 60, p=[0.4, 0.2, 0.4]), 6)
X = RNG.standard_normal((360, 2))
Y = X[:, 0] + (WEATHER == "snow") * X[:, 1] + RNG.standard_normal(360)
LEAST = {"rain": 0.5, "snow": 0.5, "sun": 0.5}
DRAWS = cpo.effective_draws(WEATHER, DAY, ordered=None)


def boosted(**options):
    pytest.importorskip("lightgbm")
    return cpo.RobustLGBMRegressor(n_estimators=5, n_jobs=1, **options)


def stocked(**options):
    return cpo.RobustNewsvendor(price=5.0, **options)


def ordering(**options):
    return cpo.RobustNewsvendorRegressor(price=5.0, cost=1.0, **options)


def any_learner(**options):
    return cpo.ContextRobust(LogisticRegression(), cv=2, max_iter=3, tol=1.0, **options)


DATA = {
    cpo.RobustLinearRegression: (X, Y),
    cpo.RobustLogisticRegression: (X, (Y > 0).astype(int)),
    any_learner: (X, (Y > 0).astype(int)),
    boosted: (X, Y),
    stocked: (np.ones(360), np.abs(Y)),
    ordering: (X, np.abs(Y)),
}
every_kind = pytest.mark.parametrize("kind", DATA, ids=lambda kind: kind.__name__)


def fitted(kind, labels=None, **options):
    labels = {"groups": DAY} if labels is None else labels
    return kind(radius="agrawal", **options).fit(*DATA[kind], contexts=WEATHER, **labels)


def outcome(model):
    return model.stock_level_ if hasattr(model, "stock_level_") else model.predict(X)


@every_kind
def test_groups_are_the_same_as_their_number_of_draws(kind):
    model = fitted(kind, draws="groups")
    by_number = fitted(kind, {}, draws=DRAWS)
    assert model.draws_ == by_number.draws_ == DRAWS
    assert model.radius_ == by_number.radius_ == cpo.confidence_radius([1, 1, 1], 0.99, "agrawal", draws=DRAWS)
    np.testing.assert_array_equal(outcome(model), outcome(by_number))
    assert model.draws == "groups"


@every_kind
def test_groups_change_nothing_unless_they_are_asked_for(kind):
    without, beside = fitted(kind, {}), fitted(kind)
    assert without.draws_ == beside.draws_ == 360
    np.testing.assert_array_equal(outcome(without), outcome(beside))


@every_kind
def test_without_groups_it_is_said_what_to_pass(kind):
    with pytest.raises(InvalidInputError, match=r"draws is 'groups', but there are no groups\. Pass groups="):
        fitted(kind, {}, draws="groups")


@every_kind
@pytest.mark.parametrize(
    ("groups", "words"), [(DAY[:-1], "359 group labels for 360 rows"), ([None] * 360, "the group of row 0 is None")]
)
def test_bad_groups_are_named(kind, groups, words):
    with pytest.raises(InvalidInputError, match=words):
        fitted(kind, {"groups": groups}, draws="groups")


def test_a_set_of_a_given_size_needs_no_groups():
    model = cpo.RobustLinearRegression(radius=0.1, draws="groups").fit(X, Y, contexts=WEATHER)
    assert model.radius_ == 0.1
    assert math.isnan(model.draws_)


def test_a_word_that_is_none_is_refused():
    with pytest.raises(InvalidInputError, match="draws is 'days'; pass a positive number"):
        cpo.RobustLinearRegression(draws="days").fit(X, Y, contexts=WEATHER)


def test_whole_weights_are_repeated_rows():
    weight = RNG.integers(1, 4, 360)
    model = cpo.RobustLinearRegression(draws="groups")
    weighted = model.fit(X, Y, contexts=WEATHER, groups=DAY, sample_weight=weight).draws_
    repeated = np.repeat(np.arange(360), weight)
    again = model.fit(X[repeated], Y[repeated], contexts=WEATHER[repeated], groups=DAY[repeated]).draws_
    assert weighted == pytest.approx(again, rel=1e-12)
    rescaled = model.fit(X, Y, contexts=WEATHER, groups=DAY, sample_weight=weight / 1e6).draws_
    assert weighted == pytest.approx(rescaled, rel=1e-9)


def test_groups_are_routed_like_contexts():
    labels = {"contexts": WEATHER, "groups": DAY}
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(StandardScaler(), cpo.RobustLinearRegression(draws="groups", reference=LEAST))
        assert model.fit(X, Y, **labels)[-1].draws_ == DRAWS
        found = cross_validate(model, X, Y, params=labels, cv=GroupKFold(3), return_estimator=True, error_score="raise")
        assert all(one[-1].draws_ < DRAWS for one in found["estimator"])
        search = GridSearchCV(model, {"robustlinearregression__alpha": [1e-4, 1.0]}, cv=GroupKFold(2))
        assert search.fit(X, Y, **labels).best_estimator_[-1].draws_ == DRAWS


def test_what_looks_at_a_model_counts_its_draws_too():
    model = make_pipeline(
        StandardScaler(), cpo.RobustLinearRegression(radius="agrawal", draws="groups", reference=LEAST)
    )
    bits = cpo.confidence_radius([1, 1, 1], 0.99, "agrawal", draws=DRAWS)
    methods = ("robust", "erm")
    found = cpo.compare(X, Y, WEATHER, estimator=model, methods=methods, groups=DAY, cv=2)
    assert found.mixes.radius == bits
    path = cpo.confidence_path(model, X, Y, WEATHER, [0.99], groups=DAY)
    assert path["radius"].tolist() == [bits]
    assert path["confidence"][0] == pytest.approx(0.99)
    report = cpo.Report(model, X, Y, WEATHER, groups=DAY, levels=3)
    assert report.fitted[-1].draws_ == DRAWS
    assert [one[-1].draws for one in report.path.models] == [DRAWS] * 3
    with pytest.raises(InvalidInputError, match="Pass groups="):
        cpo.compare(X, Y, WEATHER, estimator=model)


def test_each_product_has_draws_of_its_own():
    product = np.where(np.arange(360) % 6 < 4, "bread", "cake")
    plan = cpo.plan_stock(
        np.abs(Y), cost=1.0, price=4.0, contexts=WEATHER, products=product, groups=DAY, draws="groups", radius="agrawal"
    )
    for one in plan.plans:
        own = product == one.product
        assert one.robustness.draws == cpo.effective_draws(WEATHER[own], DAY[own], ordered=None)


def test_rows_on_workers_are_refused():
    arrays = pytest.importorskip("dask.array")
    chunked = [arrays.from_array(values, chunks=120) for values in (X, Y, WEATHER)]
    with pytest.raises(InvalidInputError, match=r"needs contexts and groups in memory.*effective_draws"):
        cpo.RobustLinearRegression(draws="groups").fit(*chunked[:2], contexts=chunked[2], groups=DAY)
