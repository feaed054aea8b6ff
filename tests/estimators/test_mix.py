"""``mix=``: any set of mixes takes the place of confidence and radius, wherever a set is used."""

import copy
import json
import pickle
from functools import partial

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import Chi2Ball, KLBall, ShareBounds, ShareLimits, TotalVariationBall
from counterpoise.tables.tabular.card import Part
from counterpoise.tables.tabular.saved import SavedMethod

pytestmark = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")

RNG = np.random.default_rng(5)
CODES = RNG.permutation(np.repeat([0, 1, 2, 3], (180, 90, 60, 44)))
SHARES = np.bincount(CODES) / len(CODES)
X = RNG.normal(size=(len(CODES), 3))
Z = np.einsum("nd,nd->n", X, RNG.normal(size=(4, 3))[CODES]) + X[:, 0]
NUMBER = Z + RNG.normal(size=len(CODES))
CLASS = (Z + RNG.logistic(size=len(CODES)) > 0).astype(int)
COUNT = RNG.poisson(np.exp(0.3 * Z))
MODELS = {
    "logistic": (cpo.RobustLogisticRegression, CLASS),
    "linear": (cpo.RobustLinearRegression, NUMBER),
    "huber": (cpo.RobustHuberRegressor, NUMBER),
    "quantile": (cpo.RobustQuantileRegressor, NUMBER),
    # Counts differ between contexts by little more than noise, so that rows would be held out by default.
    "poisson": (partial(cpo.RobustPoissonRegressor, reference="in-sample"), COUNT),
}
RADII = [1e-3, 0.2, 2.0, np.inf]

every_model = pytest.mark.parametrize("name", MODELS)


def fitted(name, mix, **options):
    kind, y = MODELS[name]
    return kind(mix=mix, alpha=1e-2, **options).fit(X, y, contexts=CODES)


@every_model
@pytest.mark.parametrize("radius", RADII)
def test_every_linear_model_is_certified_for_a_chi_square_ball(name, radius):
    ball = Chi2Ball(SHARES, radius)
    model = fitted(name, ball)
    assert model.certificate_.relative_gap <= 1e-6
    assert model.certificate_.scope == "global"
    assert ball.contains(model.context_weights_)
    assert model.radius_ == radius
    worst = ball.worst_case(model.excess_risks_).value
    # References are bracketed too, so what is attained may lie a little below the bound that holds wherever they are.
    assert worst <= model.certificate_.upper + 1e-12
    assert worst >= model.certificate_.lower - 1e-9


@every_model
def test_a_point_and_the_simplex_are_the_same_whatever_the_ball(name):
    for radius in (0.0, np.inf):
        ours, theirs = (fitted(name, kind(SHARES, radius)) for kind in (Chi2Ball, KLBall))
        np.testing.assert_allclose(ours.certificate_.upper, theirs.certificate_.upper, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(fitted(name, KLBall(SHARES, 0.1)).coef_, fitted(name, None, radius=0.1).coef_, atol=1e-9)


@every_model
def test_a_path_goes_along_the_radius_of_the_ball(name):
    kind, y = MODELS[name]
    model = kind(mix=Chi2Ball(SHARES, 0.3), alpha=1e-2)
    path = cpo.confidence_path(model, X, y, contexts=CODES, radii=[0.0, 0.05, 0.4, 2.0])
    assert np.isnan(path["confidence"]).all()
    assert (np.diff(path["objective"]) >= -1e-9).all()
    for radius, one in zip(path["radius"], path.models, strict=True):
        assert isinstance(one.mix, Chi2Ball)
        alone = fitted(name, Chi2Ball(SHARES, radius))
        assert one.certificate_.upper == pytest.approx(alone.certificate_.upper, rel=1e-2, abs=1e-5)
        assert one.certificate_.lower <= alone.certificate_.upper + 1e-12
        assert alone.certificate_.lower <= one.certificate_.upper + 1e-12


@pytest.mark.parametrize("name", ["logistic", "quantile"])
def test_rows_on_workers_take_the_same_set(name):
    da = pytest.importorskip("dask.array")
    kind, y = MODELS[name]
    model = kind(mix=Chi2Ball(SHARES, 0.2), alpha=1e-2)
    rows = (da.from_array(one, chunks=(100, *one.shape[1:])) for one in (X, y))
    there = model.fit(*rows, contexts=da.from_array(CODES, 100))
    np.testing.assert_allclose(there.coef_, fitted(name, Chi2Ball(SHARES, 0.2)).coef_, rtol=1e-5, atol=1e-6)
    assert there.certificate_.relative_gap <= 1e-6


@pytest.mark.parametrize("radius", RADII)
def test_a_stock_level_is_the_best_on_a_fine_grid(radius):
    demand = RNG.poisson(5.0 + 4.0 * CODES).astype(float)
    ball = Chi2Ball(SHARES, radius)
    model = cpo.RobustNewsvendor(10.0, mix=ball).fit(3.0, demand, contexts=CODES)
    levels = np.linspace(0.0, demand.max(), 4001)
    costs = 3.0 * levels[:, None] - 10.0 * np.minimum(levels[:, None], demand)
    excess = np.stack([costs[:, c == CODES].mean(axis=1) for c in range(4)], axis=1) - model.reference_risks_
    best = np.min(ball.worst_case(excess).value)
    assert model.certificate_.upper <= best + 1e-9
    assert best <= model.certificate_.upper + 0.05
    plan = cpo.plan_stock(demand, cost=3.0, price=10.0, contexts=CODES, mix=ball)
    assert plan.plans[0].order == pytest.approx(model.stock_level_)


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.NotCertifiedWarning")
def test_any_learner_and_comparisons_take_it():
    from sklearn.tree import DecisionTreeClassifier

    ball = Chi2Ball(SHARES, 0.3)
    learner = cpo.ContextRobust(DecisionTreeClassifier(max_depth=3, random_state=0), mix=ball, max_iter=4)
    weights = learner.fit(X, CLASS, contexts=CODES).context_weights_
    assert weights.sum() == pytest.approx(1.0)
    model = cpo.RobustLogisticRegression(mix=ball, reference="cross-fit")
    comparison = cpo.compare(X, CLASS, contexts=CODES, estimator=model)
    assert isinstance(comparison.mixes, Chi2Ball)
    assert "chi-square" in str(comparison)


def test_what_is_no_set_or_of_another_size_is_refused():
    with pytest.raises(InvalidInputError, match="mix is 'wide'; pass bounds by label"):
        fitted("linear", "wide")
    with pytest.raises(InvalidInputError, match="a set over 2 contexts; the data have 4"):
        fitted("linear", Chi2Ball([0.5, 0.5], 0.1))


# --- by label -----------------------------------------------------------------------------------------------

NAMES = np.array(["autumn", "spring", "summer", "winter"])
LABELS = NAMES[CODES]
COUNTS = np.bincount(CODES).astype(float)
KNOWN = {"winter": (0.15, 0.3), "summer": (None, 0.3), "autumn": (0.2, None)}
BOUNDS = ShareBounds([0.2, 0.0, 0.0, 0.15], [1.0, 1.0, 0.3, 0.3])
LIMITS = ShareLimits([[1.0, 1.0, 0.0, 0.0]], [0.7])
SETS = {
    "total variation": TotalVariationBall(SHARES, 0.25),
    "bounds": BOUNDS,
    "ball and bounds": KLBall(SHARES, 0.3) & BOUNDS,
    "ball, bounds and limits": KLBall(SHARES, 0.3) & BOUNDS & LIMITS,
    "chi-square and limits": Chi2Ball(SHARES, 0.6) & LIMITS,
    "around another mix": KLBall([0.1, 0.2, 0.3, 0.4], 0.1),
}
every_set = pytest.mark.parametrize("mixes", SETS)


def within(weights, bounds=KNOWN):
    shares = dict(zip(NAMES, weights, strict=True))
    for label, (low, high) in bounds.items():
        assert (low or 0.0) - 1e-9 <= shares[label] <= (1.0 if high is None else high) + 1e-9


@every_model
@every_set
def test_every_linear_model_is_certified_for_every_set(name, mixes):
    model = fitted(name, SETS[mixes])
    assert model.certificate_.relative_gap <= 1e-6
    assert SETS[mixes].contains(model.context_weights_)
    worst = SETS[mixes].worst_case(model.excess_risks_).value
    assert model.certificate_.lower - 1e-9 <= worst <= model.certificate_.upper + 1e-12


@every_model
def test_bounds_by_label_are_the_set_written_by_hand(name):
    kind, y = MODELS[name]
    model = kind(mix=KNOWN, alpha=1e-2, confidence=0.9, radius="agrawal").fit(X, y, contexts=LABELS)
    radius = cpo.confidence_radius(COUNTS, 0.9, "agrawal")
    by_hand = fitted(name, KLBall(SHARES, radius) & BOUNDS)
    within(model.context_weights_)
    assert model.radius_ == radius
    np.testing.assert_allclose(model.coef_, by_hand.coef_, atol=1e-9)
    assert model.certificate_.relative_gap <= 1e-6
    assert model.unseen_contexts_.size == model.unseen_weights_.size == 0


def test_bounds_make_no_worse_and_the_point_is_weighted_least_squares():
    free, bounded = (
        cpo.RobustLinearRegression(mix=mix, radius=0.3, alpha=0.0).fit(X, NUMBER, contexts=LABELS)
        for mix in (None, KNOWN)
    )
    assert bounded.certificate_.upper <= free.certificate_.upper + 1e-9
    known = dict(zip(NAMES, (0.1, 0.2, 0.3, 0.4), strict=True))
    model = cpo.RobustLinearRegression(mix=cpo.Mix(shares=known, radius=0.0), alpha=0.0)
    plain = LinearRegression().fit(X, NUMBER, sample_weight=([0.1, 0.2, 0.3, 0.4] / SHARES)[CODES])
    np.testing.assert_allclose(model.fit(X, NUMBER, contexts=LABELS).coef_, plain.coef_, atol=1e-8)


@pytest.mark.parametrize("mix", [KNOWN, cpo.Mix(counts={"winter": 300, "summer": 60, "spring": 40}), cpo.Mix(KNOWN)])
def test_a_mix_is_a_parameter_like_others(mix):
    model = cpo.RobustLinearRegression(mix=mix, radius=0.4)
    assert clone(model).get_params()["mix"] == mix
    before = model.fit(X, NUMBER, contexts=LABELS)
    for after in (pickle.loads(pickle.dumps(before)), copy.deepcopy(before)):
        np.testing.assert_array_equal(after.predict(X), before.predict(X))
        assert after.mix == mix
    np.testing.assert_array_equal(clone(model).fit(X, NUMBER, contexts=LABELS).coef_, before.coef_)


def test_a_search_over_mixes():
    grid = {"mix": [None, {"winter": (0.2, 0.4)}, cpo.Mix(radius=0.1)]}
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(cpo.RobustLinearRegression(reference="cross-fit"), grid, cv=3).fit(
            X, NUMBER, contexts=LABELS
        )
    assert search.best_params_["mix"] in grid["mix"]
    assert len(search.cv_results_["params"]) == 3


def test_nested_contexts_of_a_table():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"half": CODES // 2, "season": LABELS})
    mix = cpo.Mix(bounds={0: (0.5, 0.6), (1, "winter"): (0.15, None)}, parents=True)
    model = cpo.RobustLinearRegression(mix=mix, alpha=1e-2).fit(X, NUMBER, contexts=table)
    assert model.certificate_.relative_gap <= 1e-6
    shares = dict(zip(model.contexts_.tolist(), model.context_weights_, strict=True))
    assert 0.5 - 1e-9 <= sum(share for (half, _), share in shares.items() if half == 0) <= 0.6 + 1e-9
    assert shares[1, "winter"] >= 0.15 - 1e-9


def test_a_saved_model_keeps_its_mix():
    crossed = [(int(code) // 2, label) for code, label in zip(CODES, LABELS, strict=True)]
    nested = cpo.Mix(bounds={(1, "winter"): (0.15, None)}, parents=True, limits=[({0: 1}, 0.7)])
    for contexts, mix in ((LABELS, KNOWN), (LABELS, UNSEEN), (crossed, nested)):
        model = cpo.RobustLinearRegression(mix=mix, radius=0.4, alpha=1e-2).fit(X, NUMBER, contexts=contexts)
        kept = json.loads(json.dumps(SavedMethod.of(model).as_json(), allow_nan=False))
        back = SavedMethod.read(Part(kept), 1, model.n_features_in_, len(model.contexts_))
        # A mapping is short for bounds.
        assert back.mix == (mix if isinstance(mix, cpo.Mix) else cpo.Mix(bounds=mix))
        again = cpo.RobustLinearRegression(**{**back.parameters, "mix": back.mix}).fit(X, NUMBER, contexts=contexts)
        np.testing.assert_array_equal(again.coef_, model.coef_)


@pytest.mark.parametrize("name", ["logistic", "linear", "poisson"])
def test_rows_on_a_device_take_bounds_and_contexts_without_rows(name):
    pytest.importorskip("torch")
    kind, y = MODELS[name]
    mix = cpo.Mix(bounds=KNOWN, unseen_risks={"island": 0.4}, radius=0.3)
    here, there = (kind(mix=mix, alpha=1e-2, device=device).fit(X, y, contexts=LABELS) for device in (None, "cpu"))
    assert there.certificate_.relative_gap <= 1e-6
    np.testing.assert_allclose(there.context_weights_, here.context_weights_, atol=2e-3)
    assert there.unseen_weights_[0] > 0.0


def test_wrong_labels_are_told_by_the_estimator():
    with pytest.raises(InvalidInputError, match=r"RobustLinearRegression: mix: there is no context 'wintr'.*'winter'?"):
        cpo.RobustLinearRegression(mix={"wintr": 0.1}).fit(X, NUMBER, contexts=LABELS)
    with pytest.raises(InvalidInputError, match=r"bounds of 'winter' is \(0\.3, 0\.1\)"):
        cpo.RobustLinearRegression(mix={"winter": (0.3, 0.1)}).fit(X, NUMBER, contexts=LABELS)


@every_set
def test_stock_levels_and_order_rules_take_every_set(mixes):
    given = SETS[mixes]
    demand = RNG.poisson(5.0 + 4.0 * CODES).astype(float)
    model = cpo.RobustNewsvendor(10.0, mix=given).fit(3.0, demand, contexts=CODES)
    levels = np.linspace(0.0, demand.max(), 201)
    costs = 3.0 * levels[:, None] - 10.0 * np.minimum(levels[:, None], demand)
    excess = np.stack([costs[:, c == CODES].mean(axis=1) for c in range(4)], axis=1) - model.reference_risks_
    best = np.min(given.worst_case(excess).value)
    assert model.certificate_.upper <= best + 1e-8
    assert best <= model.certificate_.upper + 0.5
    assert given.contains(model.context_weights_)
    whole = cpo.RobustNewsvendor(10.0, mix=given, integer=True).fit(3.0, demand, contexts=CODES)
    assert abs(whole.stock_level_ - model.stock_level_) <= 1.0
    rule = cpo.RobustNewsvendorRegressor(10.0, cost=3.0, mix=given, alpha=1e-2).fit(X, demand, contexts=CODES)
    assert rule.certificate_.relative_gap <= 1e-6
    assert given.contains(rule.context_weights_)


@pytest.mark.parametrize("name", ["logistic", "quantile"])
def test_rows_on_workers_take_bounds_by_label(name):
    da = pytest.importorskip("dask.array")
    kind, y = MODELS[name]
    rows = (da.from_array(one, chunks=(100, *one.shape[1:])) for one in (X, y))
    there = kind(mix=KNOWN, alpha=1e-2, radius=0.3).fit(*rows, contexts=da.from_array(LABELS, 100))
    here = kind(mix=KNOWN, alpha=1e-2, radius=0.3).fit(X, y, contexts=LABELS)
    assert there.certificate_.relative_gap <= 1e-6
    within(there.context_weights_)
    np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-3)


# --- weights of rows are relative to the data -----------------------------------------------------------------


@pytest.mark.parametrize("radius", [0.0, 0.05])
def test_any_learner_finds_the_linear_model_for_a_set_around_another_mix(radius):
    elsewhere = cpo.Mix(shares=dict(zip(NAMES, (0.1, 0.2, 0.3, 0.4), strict=True)), radius=radius)
    reference = dict(zip(NAMES, (0.4, 0.5, 0.45, 0.42), strict=True))
    options = {"mix": elsewhere, "reference": reference}
    exact = cpo.RobustLinearRegression(alpha=0.0, **options).fit(X, NUMBER, contexts=LABELS)
    # Every row twice, once in either fold: what is held out is what was learnt from.
    once, again = np.arange(len(X)), np.arange(len(X)) + len(X)
    folds = [(once, again), (again, once)]
    learner = cpo.ContextRobust(
        LinearRegression(), cv=folds, tol=1e-7, max_iter=60, guard=False, headroom=None, **options
    )
    learner.fit(np.tile(X, (2, 1)), np.tile(NUMBER, 2), contexts=np.tile(LABELS, 2))
    assert learner.certificate_.upper == pytest.approx(exact.certificate_.upper, rel=1e-4)
    np.testing.assert_allclose(learner.context_weights_, exact.context_weights_, atol=2e-2)
    np.testing.assert_allclose(learner.estimator_.coef_, exact.coef_, atol=2e-2)


@pytest.mark.parametrize("name", ["RobustXGBRegressor", "RobustLGBMRegressor"])
def test_boosting_weighs_rows_relative_to_the_data(name):
    pytest.importorskip("xgboost" if "XGB" in name else "lightgbm")
    target = dict(zip(NAMES, (0.1, 0.2, 0.3, 0.4), strict=True))
    options = {"n_estimators": 20, "n_jobs": 1, "reference": dict.fromkeys(NAMES, 0.0)}
    booster = getattr(cpo, name)
    ours = booster(mix=cpo.Mix(shares=target, radius=0.0), **options).fit(X, NUMBER, contexts=LABELS)
    weight = (np.array([0.1, 0.2, 0.3, 0.4]) / SHARES)[CODES]
    theirs = booster(radius=0.0, **options).fit(X, NUMBER, contexts=LABELS, sample_weight=weight)
    np.testing.assert_allclose(ours.context_weights_, [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-4, atol=1e-4)
    bounded = booster(mix=KNOWN, radius=0.5, guard=False, **options).fit(X, NUMBER, contexts=LABELS)
    within(bounded.context_weights_)
    for weights in bounded.context_weights_path_:
        within(weights)


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.NotCertifiedWarning")
def test_any_learner_stays_within_bounds():
    from sklearn.tree import DecisionTreeRegressor

    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    for mix in (KNOWN, cpo.Mix(bounds=KNOWN, ball=None), cpo.Mix(bounds={"winter": (0.3, 0.3)})):
        robust = cpo.ContextRobust(tree, mix=mix, radius=0.5, max_iter=4, guard=False, headroom=None)
        model = robust.fit(X, NUMBER, contexts=LABELS)
        within(model.context_weights_, cpo.Mix.of(mix).bounds)


# --- contexts without rows ------------------------------------------------------------------------------------

UNSEEN = cpo.Mix(counts={"winter": 40, "summer": 30, "autumn": 20, "island": 10}, unseen_risks={"island": 0.4})


@every_model
@pytest.mark.parametrize("criterion", ["excess", "risk"])
def test_a_context_without_rows_takes_part_with_the_risk_that_is_given(name, criterion):
    kind, y = MODELS[name]
    model = kind(mix=UNSEEN, alpha=1e-2, criterion=criterion).fit(X, y, contexts=LABELS)
    mixes = UNSEEN.over(NAMES, COUNTS)
    assert model.certificate_.relative_gap <= 1e-6
    assert model.contexts_.tolist() == NAMES.tolist()
    assert model.unseen_contexts_.tolist() == ["island"]
    assert mixes.contains(np.append(model.context_weights_, model.unseen_weights_))
    scores = model.excess_risks_ if criterion == "excess" else model.context_risks_
    worst = mixes.worst_case(np.append(scores, 0.4)).value
    assert model.certificate_.lower - 1e-9 <= worst <= model.certificate_.upper + 1e-12


def test_what_is_unseen_enters_as_a_constant():
    # Against the same problem by functions: the fifth context's risk does not depend on theta.
    X1 = np.column_stack([X, np.ones(len(X))])
    risks = lambda theta: np.append(  # noqa: E731
        np.bincount(CODES, 0.5 * (X1 @ theta - NUMBER) ** 2) / COUNTS, 0.4
    )
    model = cpo.RobustLinearRegression(mix=UNSEEN, alpha=0.0).fit(X, NUMBER, contexts=LABELS)
    references = np.append(model.reference_risks_, 0.0)
    by_hand = cpo.minimize(risks, np.zeros(4), mix=UNSEEN.over(NAMES, COUNTS), reference_risks=references)
    assert by_hand.value == pytest.approx(model.certificate_.upper, rel=1e-5)
    np.testing.assert_allclose(by_hand.theta[:3], model.coef_, atol=1e-3)


def test_an_unseen_risk_beyond_reach_decides_alone():
    mix = cpo.Mix(unseen_risks={"island": 1e3})
    model = cpo.RobustLinearRegression(mix=mix, confidence=1.0).fit(X, NUMBER, contexts=LABELS)
    assert model.certificate_.upper == pytest.approx(1e3)
    assert model.unseen_weights_[0] == pytest.approx(1.0)


def test_unseen_contexts_on_workers_in_stock_and_in_any_learner():
    da = pytest.importorskip("dask.array")
    here = cpo.RobustQuantileRegressor(mix=UNSEEN, alpha=1e-2).fit(X, NUMBER, contexts=LABELS)
    rows = (da.from_array(one, chunks=(100, *one.shape[1:])) for one in (X, NUMBER))
    there = cpo.RobustQuantileRegressor(mix=UNSEEN, alpha=1e-2).fit(*rows, contexts=da.from_array(LABELS, 100))
    assert there.certificate_.upper == pytest.approx(here.certificate_.upper, rel=1e-5)
    assert there.unseen_weights_ == pytest.approx(here.unseen_weights_, abs=1e-3)
    demand = RNG.poisson(5.0 + 4.0 * CODES).astype(float)
    mix = cpo.Mix(counts=UNSEEN.counts, unseen_risks={"island": 3.0})
    level = cpo.RobustNewsvendor(10.0, mix=mix).fit(3.0, demand, contexts=LABELS)
    there = cpo.RobustNewsvendor(10.0, mix=mix).fit(
        3.0, da.from_array(demand, 100), contexts=da.from_array(LABELS, 100)
    )
    assert there.stock_level_ == pytest.approx(level.stock_level_)
    assert level.unseen_weights_[0] > 0.0
    plan = cpo.plan_stock(demand, cost=3.0, price=10.0, contexts=LABELS, mix=mix)
    assert plan.plans[0].order == pytest.approx(level.stock_level_)
    learner = cpo.ContextRobust(LinearRegression(), mix=UNSEEN, max_iter=3, tol=0.5).fit(X, NUMBER, contexts=LABELS)
    assert learner.context_weights_.sum() + learner.unseen_weights_.sum() == pytest.approx(1.0)
    assert learner.context_risks_.shape == (4,)


# --- elsewhere ------------------------------------------------------------------------------------------------


def test_a_comparison_a_path_and_a_report_take_it():
    model = cpo.RobustLinearRegression(alpha=1e-2, reference="cross-fit", radius=0.3)
    known = cpo.Mix(bounds=KNOWN, ball=None)
    comparison = cpo.compare(X, NUMBER, contexts=LABELS, estimator=model, mix=known, methods=("robust", "erm"), cv=2)
    np.testing.assert_allclose(comparison.mixes.interval(3), (0.15, 0.3), atol=1e-7)
    unseen = cpo.compare(X, NUMBER, contexts=LABELS, estimator=model, mix=UNSEEN, methods=("robust", "erm"), cv=2)
    assert np.isfinite(unseen.summary["mix_excess"]).all()
    path = cpo.confidence_path(clone(model).set_params(mix=KNOWN), X, NUMBER, contexts=LABELS, levels=6)
    assert path["radius"][-1] == np.inf
    assert (np.diff(path["objective"]) >= -1e-9).all()
    for one in path.models:
        within(one.context_weights_)
        alone = clone(one).fit(X, NUMBER, contexts=LABELS)
        assert alone.certificate_.upper == pytest.approx(one.certificate_.upper, rel=1e-5)
    report = cpo.Report(model, X, NUMBER, LABELS, mix=KNOWN)
    within(report.fitted.context_weights_)
    with pytest.raises(InvalidInputError, match="fitted already"):
        _ = cpo.Report(report.fitted, X, NUMBER, LABELS, mix=KNOWN).fitted


def test_folds_that_lack_a_context_are_not_told_of_it():
    labels = LABELS.astype(object).copy()
    labels[0] = "leap day"
    model = cpo.RobustLinearRegression(alpha=1e-2, reference="cross-fit")
    mix = cpo.Mix(counts={"winter": 40, "summer": 30, "autumn": 20, "leap day": 1}, bounds={"leap day": (None, 0.1)})
    options = {"estimator": model, "mix": mix, "methods": ("robust", "erm"), "cv": 2}
    comparison = cpo.compare(X, NUMBER, contexts=labels, **options)
    assert np.isfinite(comparison.summary["nominal_risk"]).all()


def test_a_path_begins_where_the_ball_meets_the_bounds():
    model = cpo.RobustLinearRegression(mix={"winter": (0.3, 0.4)}, alpha=1e-2)
    path = cpo.confidence_path(model, X, NUMBER, contexts=LABELS, levels=8)
    assert path["radius"][0] > 0.0
    assert np.isfinite(path["confidence"]).all()
    with pytest.raises(InvalidInputError, match=r"'winter' is asked to be 0\.3 to 0\.4"):
        cpo.confidence_path(model, X, NUMBER, contexts=LABELS, radii=[0.0, 0.5])
    with pytest.raises(InvalidInputError, match="ball=None"):
        cpo.confidence_path(clone(model).set_params(mix=cpo.Mix(ball=None)), X, NUMBER, contexts=LABELS)


def test_metrics_take_it():
    ours, own = NUMBER**2, NUMBER**2 - 0.2 * (LABELS == "winter")
    plain = cpo.metrics.excess_bounds(ours, own, LABELS)
    bounds = {"winter": (0.05, 0.1)}
    known = cpo.metrics.excess_bounds(ours, own, LABELS, mix=cpo.Mix(bounds, ball=None))
    by_hand = ShareBounds([0, 0, 0, 0.05], [1, 1, 1, 0.1])
    assert known.mix_estimate == cpo.metrics.excess_bounds(ours, own, LABELS, mix=by_hand).mix_estimate
    assert known.mix_estimate == pytest.approx(0.02)
    assert known.mix_estimate < plain.mix_estimate
    # The confidence set of these rows, at the level of the intervals.
    sized = cpo.metrics.excess_bounds(ours, own, LABELS, mix=cpo.Mix())
    by_hand = KLBall(SHARES, cpo.confidence_radius(COUNTS, 0.95))
    assert sized.mix_estimate == cpo.metrics.excess_bounds(ours, own, LABELS, mix=by_hand).mix_estimate
    difference = cpo.metrics.excess_difference(ours, own, own, LABELS, mix=cpo.Mix(bounds, ball=None))
    assert difference.mix_lower <= difference.mix_upper
    with pytest.raises(InvalidInputError, match="no context 'wintr'"):
        cpo.metrics.excess_bounds(ours, own, LABELS, mix={"wintr": 0.1})


def test_plans_take_bounds_for_every_product():
    demand = RNG.poisson(5.0 + 4.0 * CODES).astype(float)
    products = RNG.choice(["bread", "cake"], size=len(CODES))
    plan = cpo.plan_stock(demand, cost=3.0, price=10.0, contexts=LABELS, products=products, mix={"winter": (0.2, 0.3)})
    for one in plan.plans:
        assert 0.2 - 1e-9 <= one.orders["robust"].p_worst[3] <= 0.3 + 1e-9
        path = one.path(6)
        assert path["radius"][0] > 0.0
    few = (products == "bread") | (LABELS != "winter")
    with pytest.raises(InvalidInputError, match=r"product cake: mix: there is no context 'winter'"):
        cpo.plan_stock(
            demand[few],
            cost=3.0,
            price=10.0,
            contexts=LABELS[few],
            products=products[few],
            mix={"winter": (0.2, 0.3)},
        )


def test_losses_of_networks_take_it():
    torch = pytest.importorskip("torch")
    from counterpoise.torch import RobustLoss

    losses = torch.as_tensor(NUMBER**2)
    contexts = torch.as_tensor(CODES)
    for mix, mixes in (
        (KNOWN, KLBall(SHARES, 0.5) & BOUNDS),
        (cpo.Mix(shares=dict(zip(NAMES, (0.1, 0.2, 0.3, 0.4), strict=True))), KLBall([0.1, 0.2, 0.3, 0.4], 0.5)),
        (SETS["bounds"], BOUNDS),
    ):
        for update in ("closed-form", "ascent"):
            loss = RobustLoss(COUNTS, mix=mix, labels=NAMES, radius=0.5, update=update)
            for _ in range(1 if update == "closed-form" else 60):
                loss(losses, contexts)
            assert mixes.contains(loss.context_weights.numpy())
            if update == "closed-form":
                expected = mixes.worst_case(loss.context_risks.numpy()).distribution
                np.testing.assert_allclose(loss.context_weights.numpy(), expected, atol=1e-6)
    loss = RobustLoss(COUNTS, mix=UNSEEN, labels=NAMES)
    loss(losses, contexts)
    mixes = UNSEEN.over(NAMES, COUNTS)
    expected = mixes.worst_case(np.append(loss.context_risks.numpy(), 0.4)).distribution
    np.testing.assert_allclose(loss.context_weights.numpy(), expected[:4], atol=1e-6)
    assert "context" in repr(loss) or "radius" in repr(loss)
