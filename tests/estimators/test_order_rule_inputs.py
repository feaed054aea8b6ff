"""Order rules: held-out references, degenerate data, scikit-learn's tools, refusals."""

import inspect
import math
import pickle
from typing import get_type_hints

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from counterpoise import RobustNewsvendorRegressor, confidence_path
from counterpoise.core.references.cross_fit import folds_within
from counterpoise.estimators._base import LinearParameters
from counterpoise.estimators.linear import RobustLinearModel
from counterpoise.exceptions import EmptyContextError, InvalidInputError, OneContextWarning
from tests.estimators.order_rules import (
    PLAIN,
    PRICE,
    assert_optimal,
    assert_same_rule,
    convex_cost,
    fitted,
    order_cost,
    rule,
    shares_of,
    shop,
    size_of,
    solved,
)

# --- references on rows held out ------------------------------------------------------------------------------


def test_held_out_references_are_those_of_all_rows_where_every_row_wants_the_most():
    X, demand, contexts, _ = shop(54)
    paid = np.random.default_rng(0).uniform(0.5, 1.5, len(demand))
    terms = PLAIN | {"salvage": 2.0, "max_stock": 60.0}
    model = fitted((X, demand, contexts, paid), **terms, reference="cross-fit", radius=0.1)
    full = order_cost(60.0, demand, paid, **terms)
    means = np.bincount(contexts, full) / np.bincount(contexts)
    assert model.reference_risks_ == pytest.approx(means, rel=1e-4)
    assert model.predict(X) == pytest.approx(np.full(len(X), 60.0), rel=1e-4)


@pytest.mark.parametrize("dearest", [8.0, 20.0], ids=["all at a gain", "some at a loss"])
def test_held_out_references_hold_out_whole_rows(dearest):
    data = shop(57, n_contexts=2, n_features=1)
    data = (*data[:3], np.random.default_rng(2).uniform(1.0, dearest, len(data[1])))
    X, demand, contexts, paid = data
    model = fitted(data, reference="cross-fit", radius=0.1, alpha=0.05)
    folds = folds_within(contexts, demand, 5)

    def trained(rows, weight):
        coef, intercept = cp.Variable(1), cp.Variable()
        losses = convex_cost(X[rows] @ coef + intercept, demand[rows], paid[rows], **PLAIN)
        solved(weight @ losses / weight.sum() + 0.025 * cp.sum_squares(coef))
        return coef.value, intercept.value

    def risk(rows, coef, intercept):
        losses = convex_cost(X[rows] @ coef + intercept, demand[rows], paid[rows], **PLAIN)
        return losses.sum() + len(losses) * 0.025 * float(coef @ coef)

    own, pooled, least = np.zeros(2), np.zeros(2), np.zeros(2)
    for c in range(2):
        mine = contexts == c
        least[c] = risk(mine, *trained(mine, np.ones(mine.sum()))) / mine.sum()
        for fold in range(5):
            train, test = folds != fold, mine & (folds == fold)
            own[c] += risk(test, *trained(train & mine, np.ones((train & mine).sum()))) / mine.sum()
            shares = shares_of(contexts)[contexts] / np.bincount(contexts[train])[contexts]
            pooled[c] += risk(test, *trained(train, shares[train])) / mine.sum()
    assert model.reference_risks_ == pytest.approx(np.minimum(0.5 * (least + own), pooled), rel=1e-3, abs=1e-3)


# --- degenerate data and scales --------------------------------------------------------------------------------


def degenerate():
    X, demand, contexts, paid = shop(60, n_features=1, rows=(20, 30))
    few = np.arange(3)
    return {
        "the same demand": (X, np.full_like(demand, 7.0), contexts, paid),
        "no demand": (X, np.zeros_like(demand), contexts, paid),
        "no demand at a loss": (X, np.zeros_like(demand), contexts, paid + 10.0),
        "one row each": (X[few], demand[few], few, paid[few]),
        "one row each, one feature value": (np.ones((3, 1)), demand[few], few, paid[few]),
        "every row twice": tuple(np.concatenate([part, part]) for part in (X, demand, contexts, paid)),
        "one row many times": tuple(np.repeat(part[few], 20, axis=0) for part in (X, demand, np.arange(30), paid)),
        "a feature twice": (np.column_stack([X, X]), demand, contexts, paid),
        "a feature without values": (np.column_stack([X, np.zeros(len(X))]), demand, contexts, paid),
        "costs at the price": (X, demand, contexts, np.full_like(paid, PRICE)),
        "no costs": (X, demand, contexts, np.zeros_like(paid)),
        "one large demand": (X, np.where(np.arange(len(demand)) == 5, 1e4, demand), contexts, paid),
    }


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
@pytest.mark.parametrize("radius", [0.0, 0.1, math.inf])
@pytest.mark.parametrize("kind", degenerate())
def test_degenerate_data_are_solved_and_proven(kind, radius):
    data = degenerate()[kind]
    model = fitted(data, radius=radius)
    assert model.certificate_.relative_gap <= model.tol
    assert_optimal(model, data, **PLAIN)


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
@pytest.mark.parametrize("kind", degenerate())
def test_degenerate_data_are_solved_and_proven_with_a_capacity(kind):
    data, terms = degenerate()[kind], PLAIN | {"max_stock": 7.0, "salvage": 0.4, "shortage": 1.0}
    data = (*data[:3], np.maximum(data[3], 0.1))
    assert_optimal(fitted(data, radius=0.1, **terms), data, **terms)


@pytest.mark.parametrize("radius", [0.0, 0.1, math.inf])
@pytest.mark.parametrize("units", [1e-4, 1.0, 1e7])
@pytest.mark.parametrize("money", [1e-4, 1.0, 1e7])
def test_neither_the_unit_of_money_nor_that_of_goods_matters(money, units, radius):
    X, demand, contexts, paid = shop(61, costs=(0.6, 13.0))
    plain = rule(radius=radius, max_stock=15.0).fit(X, demand, contexts, costs=paid)
    # The ridge scales so that the problem is the same: coefficients grow with units, risks with money and units.
    model = rule(price=PRICE * money, radius=radius, max_stock=15.0 * units, alpha=plain.alpha * money / units)
    model.fit(X, units * demand, contexts, costs=money * paid)
    assert model.certificate_.relative_gap <= model.tol
    size = size_of((X, demand, contexts, paid), PLAIN)
    assert model.certificate_.upper / (money * units) == pytest.approx(plain.certificate_.upper, abs=3e-6 * size)
    assert model.reference_risks_ / (money * units) == pytest.approx(plain.reference_risks_, abs=3e-6 * size)


@pytest.mark.parametrize("units", [1e-4, 1e7])
@pytest.mark.parametrize("money", [1e-4, 1e7])
def test_default_ridge_is_proven_at_every_scale(money, units):
    X, demand, contexts, paid = shop(62, costs=(0.6, 13.0))
    model = rule(price=PRICE * money).fit(X, units * demand, contexts, costs=money * paid)
    assert model.certificate_.relative_gap <= model.tol
    assert model.certificate_.lower <= model.certificate_.upper


@pytest.mark.parametrize("scale", [1e-4, 1e5])
def test_the_scale_of_features_does_not_matter_without_a_ridge(scale):
    X, demand, contexts, paid = shop(63, costs=(0.6, 13.0))
    plain = rule(radius=0.1, alpha=0.0).fit(X, demand, contexts, costs=paid)
    scaled = rule(radius=0.1, alpha=0.0).fit(X * [scale, 1.0], demand, contexts, costs=paid)
    size = size_of((X, demand, contexts, paid), PLAIN)
    assert scaled.certificate_.upper == pytest.approx(plain.certificate_.upper, abs=2e-6 * size)


# --- scikit-learn's tools -----------------------------------------------------------------------------------


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
@pytest.mark.usefixtures("routing")
def test_grid_search_hands_contexts_and_costs_to_every_fold():
    X, demand, contexts, paid = shop(70, rows=(70, 80))
    cut = KFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(rule(radius=0.1), {"alpha": [1e-3, 50.0]}, cv=cut)
    search.fit(X, demand, contexts=contexts, costs=paid)
    assert set(search.cv_results_["param_alpha"]) == {1e-3, 50.0}
    by_hand = rule(radius=0.1, **search.best_params_).fit(X, demand, contexts, costs=paid)
    assert_same_rule(search.best_estimator_, by_hand)
    for alpha, scored in zip(search.cv_results_["param_alpha"], search.cv_results_["mean_test_score"], strict=True):
        scores = []
        for train, test in cut.split(X):
            model = rule(radius=0.1, alpha=alpha).fit(X[train], demand[train], contexts[train], costs=paid[train])
            scores.append(model.score(X[test], demand[test]))
        assert scored == pytest.approx(np.mean(scores), rel=1e-6)


@pytest.mark.usefixtures("routing")
def test_pipeline_routes_contexts_and_costs():
    X, demand, contexts, paid = shop(71)
    pipeline = make_pipeline(StandardScaler(), rule()).fit(X, demand, contexts=contexts, costs=paid)
    by_hand = rule().fit(StandardScaler().fit_transform(X), demand, contexts, costs=paid)
    assert_same_rule(pipeline[-1], by_hand)


def test_pipeline_takes_costs_for_its_last_step():
    X, demand, contexts, paid = shop(71)
    name = "robustnewsvendorregressor"
    pipeline = make_pipeline(StandardScaler(), rule())
    pipeline.fit(X, demand, **{f"{name}__contexts": contexts, f"{name}__costs": paid})
    by_hand = rule().fit(StandardScaler().fit_transform(X), demand, contexts, costs=paid)
    assert_same_rule(pipeline[-1], by_hand)


def test_it_is_an_estimator_that_leaves_its_parameters_alone():
    data = shop(72)
    model = rule(shortage=1.0, max_stock=12.0, integer=True)
    before = dict(model.get_params())
    assert model.fit(*data[:3], costs=data[3]) is model
    assert model.get_params() == before
    again = clone(model)
    assert again.get_params() == before
    assert not hasattr(again, "coef_")
    assert_same_rule(again.fit(*data[:3], costs=data[3]), model)
    kept = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(kept.predict(data[0]), model.predict(data[0]))
    assert kept.certificate_.upper == model.certificate_.upper


def test_tables_of_features_keep_their_names():
    X, demand, contexts, paid = shop(73)
    frame = pd.DataFrame(X, columns=["weekday", "heat"])
    model = rule().fit(frame, pd.Series(demand), pd.Series(contexts), costs=pd.Series(paid))
    assert list(model.feature_names_in_) == ["weekday", "heat"]
    assert_same_rule(model, fitted((X, demand, contexts, paid)))
    np.testing.assert_allclose(model.predict(frame), np.clip(X @ model.coef_ + model.intercept_, 0.0, None))


def test_a_path_of_confidences_is_fitted():
    X, demand, contexts, _ = shop(74)
    path = confidence_path(RobustNewsvendorRegressor(10, cost=4), X, demand, contexts=contexts, levels=6)
    radii = [model.radius_ for model in path.models]
    assert radii == sorted(radii)
    assert radii[0] == 0.0
    assert math.isinf(radii[-1])
    for model in path.models:
        alone = RobustNewsvendorRegressor(10, cost=4, radius=model.radius_).fit(X, demand, contexts)
        # A path is proven as well as it is drawn, between bounds that hold the optimum.
        assert model.certificate_.relative_gap <= 1e-3
        assert model.certificate_.lower <= alone.certificate_.upper
        assert alone.certificate_.lower <= model.certificate_.upper
    worst = [model.excess_risks_.max() for model in path.models]
    assert worst[-1] <= worst[0] + 1e-6


def test_a_path_at_given_radii_is_that_of_single_fits():
    X, demand, contexts, _ = shop(75)
    data = X, demand, contexts, np.full(len(demand), 11.0) - 8.0 * (contexts > 0)
    path = confidence_path(rule(cost=4.0, max_stock=14.0), X, demand, contexts=contexts, radii=[0.0, 0.2, math.inf])
    for model in path.models:
        assert_optimal(model, (*data[:3], np.full(len(demand), 4.0)), **(PLAIN | {"max_stock": 14.0}))


def test_no_contexts_is_plain_risk_minimisation_and_is_said():
    X, demand, _, paid = shop(76)
    with pytest.warns(OneContextWarning, match="no contexts"):
        model = rule().fit(X, demand, costs=paid)
    assert_same_rule(
        model.set_params(), rule(radius=model.radius_).fit(X, demand, np.zeros(len(paid), int), costs=paid)
    )


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"price": -1.0}, "price"),
        ({"price": "10"}, "price"),
        ({"price": math.nan}, "price"),
        ({"price": None}, "price"),
        ({"salvage": 11.0}, "salvage"),
        ({"salvage": "some"}, "salvage"),
        ({"shortage": math.inf}, "shortage"),
        ({"max_stock": 0.0}, "max_stock"),
        ({"max_stock": math.nan}, "max_stock"),
        ({"max_stock": "many"}, "max_stock"),
        ({"max_stock": 0.5, "integer": True}, "max_stock"),
        ({"integer": "yes"}, "integer"),
        ({"alpha": -1.0}, "alpha"),
        ({"radius": -0.1}, "radius"),
        ({"criterion": "regret"}, "criterion"),
        ({"cost": "dear"}, "cost"),
        ({"cost": math.nan}, "finite"),
    ],
)
def test_parameters_that_cannot_be_meant_are_refused_by_name(parameters, words):
    with pytest.raises(InvalidInputError, match=f"RobustNewsvendorRegressor: .*{words}"):
        rule(**({"cost": 4.0} | parameters)).fit(*shop(0)[:3])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X, y, c, costs: (X, y, c, None), "Pass costs="),
        (lambda X, y, c, costs: (X, y, c, costs[:-1]), "costs of shape"),
        (lambda X, y, c, costs: (X, y, c, [4.0]), "costs of shape"),
        (lambda X, y, c, costs: (X, y, c, costs[:, None]), "costs of shape"),
        (lambda X, y, c, costs: (X, y, c, "dear"), "numbers"),
        (lambda X, y, c, costs: (X, y, c, ["dear"] * len(y)), "numbers"),
        (lambda X, y, c, costs: (X, y, c, np.where(costs > 4, math.nan, costs)), "finite"),
        (lambda X, y, c, costs: (X, y, c, math.inf), "finite"),
        (lambda X, y, c, costs: (X, -y, c, costs), "negative"),
        (lambda X, y, c, costs: (X, y, c[:-1], costs), "context"),
        (lambda X, y, c, costs: (X.astype(str).astype(object) + "x", y, c, costs), "numbers"),
    ],
)
def test_data_that_cannot_be_used_are_refused(change, words):
    X, demand, contexts, costs = change(*shop(0))
    with pytest.raises(InvalidInputError, match=f"(?s)RobustNewsvendorRegressor: .*{words}"):
        rule().fit(X, demand, contexts, costs=costs)


@pytest.mark.parametrize(
    "change",
    [
        lambda X, y: (X[:-1], y),
        lambda X, y: (X, y[:, None] * [1.0, 1.0]),
        lambda X, y: (X, ["many"] * len(y)),
        lambda X, y: (X, np.where(y > 5, math.nan, y)),
        lambda X, y: (np.where(X > 1, math.inf, X), y),
        lambda X, y: (X[:0], y[:0]),
    ],
)
def test_features_and_demand_that_do_not_fit_are_refused(change):
    X, demand, contexts, _ = shop(0)
    X, demand = change(X, demand)
    with pytest.raises(ValueError, match=r"\w"):
        rule(cost=4.0).fit(X, demand, contexts[: len(demand)])


def test_a_context_without_weight_is_refused():
    X, demand, contexts, paid = shop(0)
    with pytest.raises(EmptyContextError, match="context 1"):
        rule().fit(X, demand, contexts, sample_weight=(contexts != 1) * 1.0, costs=paid)


def test_parameters_of_linear_models_are_named_as_explicitly_as_in_them():
    base, own = (inspect.signature(model).parameters for model in (RobustLinearModel, RobustNewsvendorRegressor))
    assert set(get_type_hints(LinearParameters)) == set(base)
    assert {name: own[name].default for name in base} == {
        **{name: one.default for name, one in base.items()},
        "reference": "in-sample",
    }
    assert all(one.kind is not one.VAR_KEYWORD for one in own.values())
    assert [name for name, one in own.items() if one.kind is one.POSITIONAL_OR_KEYWORD] == ["price"]
    with pytest.raises(TypeError, match="alhpa"):
        RobustNewsvendorRegressor(10.0, alhpa=1.0)
