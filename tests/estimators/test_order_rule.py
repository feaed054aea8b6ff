"""Order rules: no other is better, reductions to known problems, and what orders cost."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from counterpoise import RobustNewsvendor, RobustNewsvendorRegressor, RobustQuantileRegressor
from counterpoise.exceptions import InvalidInputError
from tests.estimators.order_rules import (
    PLAIN,
    PRICE,
    TERMS,
    assert_optimal,
    assert_same_rule,
    fitted,
    order_cost,
    rule,
    shop,
    size_of,
)

# --- no rule is better ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("radius", [0.0, 0.1, math.inf])
@pytest.mark.parametrize("seed", range(2))
def test_no_rule_has_a_smaller_worst_case_excess(seed, radius, terms):
    # A context or more sells at a loss, with or without shortage.
    data = shop(seed, costs=(0.6, 18.0))
    terms = PLAIN | TERMS[terms]
    model = RobustNewsvendorRegressor(**terms, radius=radius, alpha=(0.1, 1e-3)[seed]).fit(*data[:3], costs=data[3])
    assert_optimal(model, data, **terms)


@pytest.mark.parametrize("seed", range(10, 18))
def test_no_rule_is_better_in_problems_of_every_kind(seed):
    rng = np.random.default_rng(seed)
    data = shop(seed, 1 + seed % 5, 1 + seed % 3, costs=(0.6, (6.0, 14.0)[seed % 2]), rows=(40, 60))
    terms = PLAIN | {"shortage": 3.0 * (seed % 2), "max_stock": (None, 12.5, 3.0)[seed % 3]}
    weight = rng.uniform(0.2, 4.0, len(data[1]))
    model = RobustNewsvendorRegressor(
        **terms,
        radius=(0.02, 0.5, 4.0)[seed % 3],
        criterion=("excess", "risk")[seed // 2 % 2],
        alpha=(0.0, 1e-4, 1.0)[seed // 3 % 3],
        fit_intercept=bool(seed % 3) or seed % 4 == 0,
    ).fit(*data[:3], sample_weight=weight, costs=data[3])
    assert_optimal(model, data, weight, **terms)


# --- rows at the ends ---------------------------------------------------------------------------------------


def test_a_row_without_demand_asks_for_no_more_than_not_to_order():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 200)
    demand, contexts = np.maximum(10.0 * x, 0.0), np.arange(200) % 2
    model = rule(cost=1.0, radius=0.0, alpha=0.0).fit(x[:, None], demand, contexts)
    # Every order that is placed can be the demand, so nothing is lost.
    assert model.row_losses(x[:, None], demand).mean() == pytest.approx(-9.0 * demand.mean(), rel=1e-5)


@pytest.mark.parametrize("radius", [0.0, 0.1, math.inf])
@pytest.mark.parametrize("seed", range(2))
def test_no_rule_is_better_where_much_demand_is_none(seed, radius):
    X, demand, contexts, paid = shop(90 + seed, costs=(0.6, 12.0))
    data = X, np.maximum(demand - np.median(demand), 0.0), contexts, paid
    terms = PLAIN | {"shortage": 3.0 * seed}
    assert_optimal(fitted(data, **terms, radius=radius, alpha=0.01), data, **terms)


@pytest.mark.parametrize("capacity", [4.0, 12.0])
def test_no_rule_is_better_where_much_demand_is_the_capacity(capacity):
    X, demand, contexts, paid = shop(94, costs=(0.6, 9.0))
    data = X, np.minimum(demand, capacity), contexts, paid
    terms = PLAIN | {"max_stock": capacity}
    assert_optimal(fitted(data, **terms, radius=0.1, alpha=0.01), data, **terms)


def test_a_dear_row_with_more_demand_than_can_be_met_goes_straight_on():
    # The cheap row pulls the line up to the capacity, and the dear one down at (cost - price), not at cost.
    X = np.array([[1.0], [2.0]] * 10)
    demand, paid = np.array([5.0, 50.0] * 10), np.array([4.0, 11.0] * 10)
    model = rule(max_stock=6.0, radius=0.0, alpha=0.0, fit_intercept=False).fit(X, demand, np.zeros(20), costs=paid)
    # At 5 per unit of x the first row is met; the second pays the loss of one per unit on a line at 10.
    assert model.context_risks_[0] == pytest.approx(0.5 * (-6.0 * 5.0 + 1.0 * 10.0), rel=1e-5)


def test_no_rule_is_better_in_whole_units_than_at_the_capacity_in_whole_units():
    data = shop(95)
    model = fitted(data, radius=0.1, max_stock=7.5, integer=True, alpha=0.01)
    assert_optimal(model, data, **(PLAIN | {"max_stock": 7.0}))


# --- reductions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cost", "seed"), [(1.07, 0), (3.33, 1), (5.03, 2), (9.17, 3)])
@pytest.mark.parametrize("alpha", [0.0, 1e-4])
def test_zero_radius_without_features_is_the_critical_quantile(cost, seed, alpha):
    rng = np.random.default_rng(seed)
    demand, contexts = rng.gamma(4.0, 5.0, 101), rng.integers(0, 3, 101)
    model = rule(cost=cost, radius=0.0, alpha=alpha, tol=1e-9).fit(np.zeros((101, 1)), demand, contexts)
    expected = np.quantile(demand, 1.0 - cost / PRICE, method="inverted_cdf")
    assert model.predict(np.zeros((1, 1)))[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("radius", [0.0, 0.1, math.inf])
@pytest.mark.parametrize("terms", TERMS)
def test_without_features_it_is_the_robust_stock_level(terms, radius):
    _, demand, contexts, paid = shop(30, costs=(0.6, 14.0))
    terms = PLAIN | TERMS[terms]
    model = rule(**terms, radius=radius).fit(np.zeros((len(paid), 1)), demand, contexts, costs=paid)
    level = RobustNewsvendor(**terms, radius=radius).fit(paid, demand, contexts)
    size = size_of((None, demand, contexts, paid), terms)
    assert model.reference_risks_ == pytest.approx(level.reference_risks_, abs=1e-6 * size)
    assert model.certificate_.upper == pytest.approx(level.certificate_.upper, abs=1e-6 * size)
    assert model.certificate_.lower <= level.certificate_.upper + 1e-9 * size


@pytest.mark.parametrize("radius", [0.0, 0.1, math.inf])
@pytest.mark.parametrize(("cost", "salvage"), [(3.0, 0.0), (6.0, 2.0)])
def test_one_cost_for_all_is_quantile_regression(cost, salvage, radius):
    X, demand, contexts, _ = shop(31)
    unit = PRICE - salvage
    ours = rule(cost=cost, salvage=salvage, radius=radius, alpha=0.02 * unit).fit(X, demand, contexts)
    quantile = RobustQuantileRegressor(quantile=(PRICE - cost) / unit, radius=radius, alpha=0.02)
    theirs = quantile.fit(X, demand, contexts)
    assert ours.certificate_.upper == pytest.approx(unit * theirs.certificate_.upper, rel=1e-5, abs=1e-5)
    assert ours.excess_risks_ == pytest.approx(unit * theirs.excess_risks_, rel=0.01, abs=0.01)
    assert ours.coef_ == pytest.approx(theirs.coef_, abs=0.02)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=0.01)
    means = np.array([demand[contexts == c].mean() for c in range(3)])
    expected = unit * theirs.reference_risks_ - (PRICE - cost) * means
    assert ours.reference_risks_ == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("radius", ["types", 0.0, 0.1, math.inf])
@pytest.mark.parametrize("terms", ["plain", "salvage and capacity"])
def test_a_whole_weight_is_a_repeated_row(terms, radius):
    data = shop(32, costs=(0.6, 14.0))
    weight = np.random.default_rng(1).integers(1, 4, len(data[1]))
    weighed = fitted(data, weight, radius=radius, alpha=0.01, tol=1e-9, **TERMS[terms])
    repeated = fitted(
        [np.repeat(part, weight, axis=0) for part in data], radius=radius, alpha=0.01, tol=1e-9, **TERMS[terms]
    )
    assert weighed.radius_ == pytest.approx(repeated.radius_)
    assert weighed.context_counts_ == pytest.approx(repeated.context_counts_)
    assert weighed.reference_risks_ == pytest.approx(repeated.reference_risks_, rel=1e-6)
    assert_same_rule(weighed, repeated, tol=1e-4)


def test_a_row_without_weight_does_not_count():
    data = shop(33, costs=(0.6, 14.0), rows=(45, 60))
    keep = np.random.default_rng(2).random(len(data[1])) < 0.8
    weighed = fitted(data, keep * 1.0, radius=0.1, tol=1e-9)
    without = fitted([part[keep] for part in data], radius=0.1, tol=1e-9)
    assert weighed.certificate_.upper == pytest.approx(without.certificate_.upper, rel=1e-6)
    assert weighed.reference_risks_ == pytest.approx(without.reference_risks_, rel=1e-6)


@pytest.mark.parametrize("radius", [0.0, 0.1, math.inf])
def test_names_and_order_of_contexts_and_rows_do_not_matter(radius):
    data = shop(34, costs=(0.6, 14.0))
    plain = fitted(data, radius=radius, alpha=0.01, tol=1e-9)
    rows = np.random.default_rng(3).permutation(len(data[1]))
    words = np.array(["south", "north", "east"])
    X, demand, contexts, paid = (part[rows] for part in data)
    model = fitted((X, demand, words[contexts], paid), radius=radius, alpha=0.01, tol=1e-9)
    order = [list(words).index(label) for label in model.contexts_]
    assert_same_rule(plain, model, tol=1e-4)
    assert model.context_risks_ == pytest.approx(plain.context_risks_[order], rel=1e-3, abs=1e-3)
    assert model.reference_risks_ == pytest.approx(plain.reference_risks_[order], rel=1e-6, abs=1e-6)
    np.testing.assert_array_equal(model.context_counts_, plain.context_counts_[order])


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix])
@pytest.mark.parametrize("terms", ["plain", "salvage and capacity"])
def test_sparse_features_are_dense_features(kind, terms):
    X, demand, contexts, paid = shop(35, costs=(0.6, 14.0))
    X = X * (np.abs(X) > 0.7)
    dense = fitted((X, demand, contexts, paid), radius=0.1, alpha=0.01, tol=1e-9, **TERMS[terms])
    thin = fitted((kind(X), demand, contexts, paid), radius=0.1, alpha=0.01, tol=1e-9, **TERMS[terms])
    assert_same_rule(dense, thin, tol=1e-4)
    np.testing.assert_allclose(thin.predict(kind(X)), dense.predict(X), atol=1e-3)
    np.testing.assert_allclose(thin.row_losses(kind(X), demand, paid), thin.row_losses(X, demand, paid))


@pytest.mark.parametrize("costs", [4.0, 4, np.float32(4.0), np.array(4.0), "array", "list", "pandas", "polars"])
def test_one_cost_stands_for_all_rows(costs):
    X, demand, contexts, _ = shop(36)
    each = np.full(len(demand), 4.0)
    kinds = {
        "array": each,
        "list": each.tolist(),
        "pandas": pd.Series(each, index=each.cumsum()),
        "polars": pl.Series(each),
    }
    costs = kinds[costs] if isinstance(costs, str) else costs
    by_parameter = rule(cost=4.0, radius=0.1).fit(X, demand, contexts)
    assert_same_rule(by_parameter, rule(radius=0.1).fit(X, demand, contexts, costs=costs), tol=0.0)
    # What fit is given comes first.
    assert_same_rule(by_parameter, rule(cost=9.0, radius=0.1).fit(X, demand, contexts, costs=costs), tol=0.0)


# --- what the rule orders, and what that costs ----------------------------------------------------------------


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("seed", range(3))
def test_orders_lie_within_their_ends_and_cost_no_more_than_was_said(seed, terms):
    data = shop(40 + seed, n_features=3, costs=(0.6, 16.0), rows=(40, 60))
    X, demand, contexts, paid = data
    # Some rows far out, so that lines leave the ends.
    X[::7] *= 5.0
    terms = PLAIN | TERMS[terms]
    model = fitted(data, **terms)
    order = model.predict(X)
    assert order.min() >= 0.0
    assert order.max() <= (terms["max_stock"] or math.inf)
    np.testing.assert_allclose(order, np.clip(X @ model.coef_ + model.intercept_, 0.0, terms["max_stock"]))
    realised = order_cost(order, demand, paid, **terms)
    np.testing.assert_allclose(model.row_losses(X, demand, paid), realised, atol=1e-9)
    ridge = 0.5 * model.alpha * float(model.coef_ @ model.coef_)
    means = np.bincount(contexts, realised) / np.bincount(contexts)
    assert (means <= model.context_risks_ - ridge + 1e-9).all()


@pytest.mark.parametrize("capacity", [None, 7.5, 1.0])
def test_orders_in_whole_units_are_the_nearest_within_the_capacity(capacity):
    data = shop(50)
    model = fitted(data, max_stock=capacity, integer=True)
    order = model.predict(data[0])
    np.testing.assert_array_equal(order, np.round(order))
    most = math.inf if capacity is None else math.floor(capacity)
    assert order.min() >= 0.0
    assert order.max() <= most
    line = np.clip(data[0] @ model.coef_ + model.intercept_, 0.0, most)
    assert np.abs(order - line).max() <= 0.5
    np.testing.assert_allclose(
        model.row_losses(data[0], data[1], data[3]), order_cost(order, data[1], data[3], PRICE, 0.0, 0.0)
    )


def test_losses_of_rows_take_the_cost_of_the_model_or_their_own():
    X, demand, contexts, paid = shop(51)
    model = rule(cost=4.0).fit(X, demand, contexts)
    order = model.predict(X)
    np.testing.assert_allclose(model.row_losses(X, demand), order_cost(order, demand, 4.0, PRICE, 0.0, 0.0))
    np.testing.assert_allclose(model.row_losses(X, demand, paid), order_cost(order, demand, paid, PRICE, 0.0, 0.0))
    dear = rule().fit(X, demand, contexts, costs=paid)
    with pytest.raises(InvalidInputError, match=r"RobustNewsvendorRegressor: .*costs"):
        dear.row_losses(X, demand)
    with pytest.raises(InvalidInputError, match="costs"):
        dear.row_losses(X, demand, paid[:-1])
    with pytest.raises(NotFittedError):
        rule(cost=1.0).row_losses(X, demand)


@pytest.mark.parametrize("criterion", ["excess", "risk"])
@pytest.mark.parametrize("radius", ["types", 0.0, 0.1, math.inf])
@pytest.mark.parametrize("terms", [{}, {"max_stock": 5.0}, {"shortage": 1.0, "salvage": 2.0}, {"shortage": 1.0}])
def test_goods_that_sell_at_a_loss_are_not_ordered(terms, radius, criterion):
    X, demand, contexts, paid = shop(52, costs=(14.0, 30.0))
    model = fitted((X, demand, contexts, paid), radius=radius, criterion=criterion, **terms)
    assert model.predict(X) == pytest.approx(np.zeros(len(X)), abs=1e-6)
    assert model.excess_risks_ == pytest.approx(np.zeros(3), abs=1e-5)
    assert model.certificate_.gap <= 1e-5


@pytest.mark.parametrize("criterion", ["excess", "risk"])
@pytest.mark.parametrize("radius", ["types", 0.0, 0.1, math.inf])
@pytest.mark.parametrize("terms", [{}, {"shortage": 6.0}, {"salvage": 3.0}], ids=["plain", "shortage", "salvage"])
@pytest.mark.parametrize("seed", range(3))
def test_goods_that_always_run_out_are_ordered_to_the_capacity(seed, terms, radius, criterion):
    X, demand, contexts, paid = shop(seed, costs=(0.6, 6.0))
    terms = PLAIN | {"max_stock": 1.0} | terms
    data = X, demand + 2.0, contexts, paid
    model = fitted(data, radius=radius, criterion=criterion, **terms)
    assert model.predict(X) == pytest.approx(np.full(len(X), 1.0), rel=1e-5)
    assert model.excess_risks_ == pytest.approx(np.zeros(3), abs=1e-4)
    assert model.certificate_.gap <= 1e-6 * size_of(data, terms)


@pytest.mark.parametrize("criterion", ["excess", "risk"])
@pytest.mark.parametrize("radius", ["types", 0.0, 0.1, math.inf])
@pytest.mark.parametrize("seed", range(3))
def test_goods_that_gain_when_left_over_are_ordered_to_the_capacity(seed, radius, criterion):
    X, demand, contexts, _ = shop(57 + seed)
    paid = np.random.default_rng(seed).uniform(0.5, 2.5, len(demand))
    terms = PLAIN | {"max_stock": 60.0, "salvage": 3.0}
    data = X, demand, contexts, paid
    model = fitted(data, radius=radius, criterion=criterion, **terms)
    assert model.predict(X) == pytest.approx(np.full(len(X), 60.0), rel=1e-5)
    assert model.certificate_.gap <= 1e-6 * size_of(data, terms)


def test_goods_that_earn_more_left_over_than_they_cost_need_a_capacity():
    X, demand, contexts, _ = shop(53)
    with pytest.raises(InvalidInputError, match=r"RobustNewsvendorRegressor: .*max_stock"):
        rule(salvage=2.0, cost=1.0).fit(X, demand, contexts)
    costs = np.where(np.arange(len(demand)) == 17, 1.0, 5.0)
    with pytest.raises(InvalidInputError, match=r"costs 1 .*max_stock"):
        rule(salvage=2.0).fit(X, demand, contexts, costs=costs)
    model = rule(salvage=2.0, cost=1.0, max_stock=70.0).fit(X, demand, contexts)
    assert model.predict(X) == pytest.approx(np.full(len(X), 70.0), rel=1e-6)
