"""The linear rule for orders against conic programs, its reductions, and what it does with its inputs."""

import contextlib
import inspect
import math
import pickle
import warnings
from typing import get_type_hints

import cvxpy as cp
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from counterpoise import RobustNewsvendor, RobustNewsvendorRegressor, RobustQuantileRegressor, confidence_path
from counterpoise.core.references.cross_fit import folds_within
from counterpoise.estimators._base import LinearParameters
from counterpoise.estimators.linear import RobustLinearModel
from counterpoise.exceptions import EmptyContextError, InvalidInputError, OneContextWarning
from tests.estimators.test_newsvendor import worst_mean

PRICE = 10.0
PLAIN = {"price": PRICE, "salvage": 0.0, "shortage": 0.0, "max_stock": None}


def shop(seed, n_contexts=3, n_features=2, costs=(0.5, 9.0), rows=(30, 50)):
    """Return features, demands, contexts and costs; demand follows the features, differently in each context."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(*rows, n_contexts)
    sizes[0] *= 2
    contexts = rng.permutation(np.repeat(np.arange(n_contexts), sizes))
    X = rng.normal(size=(len(contexts), n_features))
    slopes = rng.normal(scale=3.0, size=(n_contexts, n_features))
    demand = rng.uniform(4.0, 20.0, n_contexts)[contexts] + np.sum(X * slopes[contexts], axis=1)
    demand = np.abs(demand + rng.gamma(2.0, 2.0, len(contexts)))
    paid = rng.uniform(*costs, n_contexts)[contexts] * rng.uniform(0.8, 1.25, len(contexts))
    return X, demand, contexts, paid


def order_cost(order, demand, paid, price, salvage, shortage, max_stock=None):
    """Return what an order costs: bought, less sold, less sold off, and what is missing."""
    sold = np.minimum(order, demand)
    return paid * order - price * sold - salvage * (order - sold) + shortage * (demand - sold)


def convex_cost(z, demand, paid, price, salvage, shortage, max_stock=None):
    """Return the cost of each row's order as a convex function of its line ``z``, in CVXPY or in numbers.

    It is the least convex function that is the cost of every order that can be placed, and nowhere less than that of
    ``clip(z, 0, max_stock)``: flat beyond an end past which the cost would fall, and straight on past the other.
    """
    positive, multiply = (cp.pos, cp.multiply) if isinstance(z, cp.Expression) else (lambda x: x * (x > 0), np.multiply)
    most = math.inf if max_stock is None else max_stock
    before, after = paid - price - shortage, paid - salvage
    first, last = np.where(demand > 0, before, after), np.where(demand < most, after, before)
    bend = (demand > 0) * (demand < most) * (after - before)
    return (
        shortage * demand
        + multiply(np.minimum(first, 0.0), z)
        + multiply(np.maximum(first, 0.0), positive(z))
        + multiply(bend, positive(z - demand))
        + (multiply(np.maximum(-last, 0.0), positive(z - most)) if math.isfinite(most) else 0.0)
    )


def shares_of(contexts, weight=None):
    totals = np.bincount(contexts, weights=weight)
    return totals / totals.sum()


def solved(objective, constraints=()):
    program = cp.Problem(cp.Minimize(objective), list(constraints))
    for tolerance in (1e-10, 1e-9, 1e-8):
        with warnings.catch_warnings(), contextlib.suppress(cp.SolverError):
            warnings.simplefilter("ignore")
            program.solve(
                solver=cp.CLARABEL, tol_gap_abs=tolerance, tol_gap_rel=tolerance, tol_feas=tolerance, max_iter=500
            )
        if program.status == cp.OPTIMAL:
            return float(program.value)
    raise ArithmeticError(f"Clarabel: {program.status}")


def size_of(data, terms):
    """Return the size of the costs, below which two values are the same."""
    demand = data[1] if data[1].any() else 1.0
    return float(np.mean(demand * (terms["price"] + terms["shortage"] + np.abs(data[3]))))


def conic_optimum(data, radius, alpha, criterion="excess", fit_intercept=True, weight=None, **terms):
    """Return the least worst-case score of a linear rule and each context's least risk, by exponential cones."""
    X, demand, contexts, paid = data
    # In a unit of money in which costs are near one, or the cones are too long for the solver.
    unit = size_of(data, terms)
    paid, alpha = paid / unit, alpha / unit
    terms = terms | {name: terms[name] / unit for name in ("price", "salvage", "shortage")}
    weight = np.ones(len(demand)) if weight is None else weight
    coef, intercept = cp.Variable(X.shape[1]), cp.Variable() if fit_intercept else 0.0
    rows = convex_cost(X @ coef + intercept, demand, paid, **terms)
    ridge = 0.5 * alpha * cp.sum_squares(coef)
    own = [contexts == c for c in range(contexts.max() + 1)]
    risks = [weight[rows_c] @ rows[rows_c] / weight[rows_c].sum() for rows_c in own]
    least = np.array([solved(risk + ridge) for risk in risks])
    scores = [risk - (best if criterion == "excess" else 0.0) for risk, best in zip(risks, least, strict=True)]
    shares = shares_of(contexts, weight)
    if radius == 0.0 or len(scores) == 1:
        return unit * solved(shares @ cp.hstack(scores) + ridge), unit * least
    if math.isinf(radius):
        return unit * solved(cp.max(cp.hstack(scores)) + ridge), unit * least
    lam, shift, slack = cp.Variable(nonneg=True), cp.Variable(), cp.Variable(len(scores))
    spread = shares @ cp.rel_entr(lam * np.ones(len(scores)), slack + lam)
    bound = [slack[c] <= shift - one for c, one in enumerate(scores)]
    return unit * solved(shift + lam * radius * math.log(2.0) + spread + ridge, bound), unit * least


def convexified_risks(model, data, weight=None, **terms):
    """Return each context's mean convex cost with the ridge, at the coefficients of a model."""
    X, demand, contexts, paid = data
    weight = np.ones(len(demand)) if weight is None else weight
    rows = convex_cost(X @ model.coef_ + model.intercept_, demand, paid, **terms)
    means = np.bincount(contexts, weight * rows) / np.bincount(contexts, weight)
    return means + 0.5 * model.alpha * float(model.coef_ @ model.coef_)


def assert_optimal(model, data, weight=None, **terms):
    """Check a fit, coefficients first, against the conic program; to 1e-6 of the size of the costs."""
    value, least = conic_optimum(
        data, model.radius_, model.alpha, model.get_params()["criterion"], model.fit_intercept, weight, **terms
    )
    size = size_of(data, terms)
    risks = convexified_risks(model, data, weight, **terms)
    taken_off = least if model.get_params()["criterion"] == "excess" else np.zeros(len(least))
    attained = worst_mean(risks - taken_off, shares_of(data[2], weight), model.radius_)
    assert model.context_risks_ == pytest.approx(risks, abs=1e-9 * size)
    assert model.reference_risks_ == pytest.approx(least, abs=1e-6 * size)
    assert attained == pytest.approx(value, rel=1e-6, abs=1e-6 * size)
    assert model.certificate_.upper == pytest.approx(value, rel=1e-6, abs=1e-6 * size)
    assert model.certificate_.lower <= value + 1e-7 * size
    assert model.certificate_.scope == "global"
    assert model.certificate_.relative_gap <= model.tol


TERMS = {
    "plain": {},
    "shortage": {"shortage": 6.0},
    "salvage": {"salvage": 0.4},
    "capacity": {"max_stock": 11.0},
    "salvage and capacity": {"salvage": 4.0, "max_stock": 14.0},
    "all of them": {"salvage": 3.0, "shortage": 2.0, "max_stock": 9.0},
}


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


def rule(**parameters):
    return RobustNewsvendorRegressor(**({"price": PRICE} | parameters))


def fitted(data, weight=None, **parameters):
    return rule(**parameters).fit(*data[:3], sample_weight=weight, costs=data[3])


def assert_same_rule(one, other, tol=1e-9):
    """Check that two fits are one."""
    scale = 1.0 + float(np.abs(one.coef_).max())
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=0, atol=tol * scale)
    np.testing.assert_allclose(one.intercept_, other.intercept_, rtol=tol, atol=tol * scale)
    assert one.radius_ == pytest.approx(other.radius_)
    assert one.certificate_.upper == pytest.approx(other.certificate_.upper, abs=tol * (1 + one.certificate_.scale))


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
    assert {name: own[name].default for name in base} == {name: one.default for name, one in base.items()}
    assert all(one.kind is not one.VAR_KEYWORD for one in own.values())
    assert [name for name, one in own.items() if one.kind is one.POSITIONAL_OR_KEYWORD] == ["price"]
    with pytest.raises(TypeError, match="alhpa"):
        RobustNewsvendorRegressor(10.0, alhpa=1.0)
