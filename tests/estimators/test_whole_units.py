"""Stock levels in whole units against every whole level there is."""

import math
import pickle

import numpy as np
import pytest
from sklearn.base import clone

from counterpoise import RobustNewsvendor
from counterpoise.exceptions import InvalidInputError, OneContextWarning
from tests.estimators.test_newsvendor import worst_mean

TERMS = {
    "plain": {},
    "low price": {"price": 4.0},
    "salvage": {"salvage": 0.3},
    "shortage": {"shortage": 6.0},
    "all of them": {"price": 7.0, "salvage": 0.4, "shortage": 2.0, "max_stock": 11.0},
    "capacity of seven and a half": {"max_stock": 7.5},
    "gains from what is left": {"salvage": 3.0, "max_stock": 30.25},
}


def sales(seed, n_contexts=3, whole=True):
    """Return costs (some above the price), demands and contexts, the first context four times larger."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 15, n_contexts)
    sizes[0] *= 4
    contexts = rng.permutation(np.repeat(np.arange(n_contexts), sizes))
    cost = rng.uniform(0.5, 12.0, n_contexts)[contexts] * rng.uniform(0.8, 1.2, len(contexts))
    demand = rng.gamma(2.0, rng.uniform(0.5, 9.0, n_contexts)[contexts])
    return cost, np.floor(demand) if whole else demand, contexts


def table_of_risks(data, weight=None, price=10.0, salvage=0.0, shortage=0.0, max_stock=math.inf):
    """Return the mean cost of every whole level (rows) in every context (columns), sale by sale."""
    cost, demand, contexts = data
    weight = np.ones(len(cost)) if weight is None else weight
    # Without a capacity nothing is gained above the largest demand.
    most = math.floor(max_stock if math.isfinite(max_stock) else demand.max() + 3)
    table = np.empty((most + 1, contexts.max() + 1))
    for level in range(most + 1):
        sold = np.minimum(level, demand)
        spent = cost * level - price * sold - salvage * (level - sold) + shortage * (demand - sold)
        for c in range(table.shape[1]):
            own = contexts == c
            table[level, c] = weight[own] @ spent[own] / weight[own].sum()
    return table


def worst_of_each_level(table, shares, radius, criterion):
    """Return the worst-case score of every whole level."""
    references = table.min(axis=0) if criterion == "excess" else np.zeros(table.shape[1])
    return np.array([worst_mean(risks - references, shares, radius) for risks in table])


def shares_of(contexts, weight=None):
    totals = np.bincount(contexts, weights=weight)
    return totals / totals.sum()


def assert_is_the_best_whole_level(model, data, radius, criterion, weight=None, **terms):
    table = table_of_risks(data, weight, **terms)
    worst = worst_of_each_level(table, shares_of(data[2], weight), radius, criterion)
    size = 1.0 + np.abs(table).max()
    level = int(model.stock_level_)
    assert model.stock_level_ == level
    assert 0 <= level < len(table)
    assert worst[level] <= worst.min() + 1e-9 * size
    assert model.context_risks_ == pytest.approx(table[level], abs=1e-10 * size)
    assert model.reference_risks_ == pytest.approx(table.min(axis=0), abs=1e-10 * size)
    assert model.excess_risks_ == pytest.approx(table[level] - table.min(axis=0), abs=1e-10 * size)
    for c, best in enumerate(model.context_levels_):
        assert best == int(best)
        assert table[int(best), c] == pytest.approx(table[:, c].min(), abs=1e-10 * size)
    proof = model.certificate_
    assert proof.lower <= worst.min() + 1e-9 * size
    assert proof.upper == pytest.approx(worst.min(), abs=1e-9 * size)
    assert proof.scope == "global"
    assert proof.gap <= 1e-9 * size


@pytest.mark.parametrize("criterion", ["risk", "excess"])
@pytest.mark.parametrize("radius", [0.0, 0.1, math.inf])
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("whole", [True, False], ids=["whole demand", "fractional demand"])
@pytest.mark.parametrize("seed", range(3))
def test_no_whole_level_has_a_smaller_worst_case(seed, whole, terms, radius, criterion):
    terms = TERMS[terms]
    data = sales(seed, 2 + seed, whole)
    model = RobustNewsvendor(**({"price": 10.0} | terms), integer=True, radius=radius, criterion=criterion).fit(*data)
    assert_is_the_best_whole_level(model, data, radius, criterion, **terms)


@pytest.mark.parametrize("seed", range(100, 120))
def test_no_whole_level_is_better_at_the_radius_of_the_types(seed):
    data = sales(seed, 1 + seed % 6, whole=bool(seed % 2))
    model = RobustNewsvendor(10.0, integer=True).fit(*data)
    assert_is_the_best_whole_level(model, data, model.radius_, "excess")


@pytest.mark.parametrize("radius", [0.0, 0.1, math.inf])
def test_weights_count(radius):
    data = sales(30, whole=False)
    weight = np.random.default_rng(0).uniform(0.1, 5.0, len(data[0]))
    model = RobustNewsvendor(10.0, integer=True, radius=radius).fit(*data, sample_weight=weight)
    assert_is_the_best_whole_level(model, data, radius, "excess", weight)


@pytest.mark.parametrize("radius", [0.0, 0.1, 3.0, math.inf])
def test_one_context_gets_its_best_whole_level(radius):
    cost, demand, _ = sales(40, whole=False)
    data = cost, demand, np.zeros(len(cost), dtype=int)
    model = RobustNewsvendor(10.0, integer=True, radius=radius).fit(*data)
    assert_is_the_best_whole_level(model, data, radius, "excess")
    assert model.stock_level_ == model.context_levels_[0]
    with pytest.warns(OneContextWarning):
        alone = RobustNewsvendor(10.0, integer=True, radius=radius).fit(cost, demand)
    assert alone.stock_level_ == model.stock_level_


@pytest.mark.parametrize("seed", range(5))
def test_whole_levels_are_no_better_than_any_and_next_to_the_best_of_all(seed):
    data = sales(50 + seed, whole=False)
    free = RobustNewsvendor(10.0, radius=0.3, criterion="risk").fit(*data)
    whole = RobustNewsvendor(10.0, radius=0.3, criterion="risk", integer=True).fit(*data)
    assert whole.certificate_.upper >= free.certificate_.lower - 1e-9
    # Worst-case risk is convex, so the best whole level is beside the best of all, where that is one level.
    assert abs(whole.stock_level_ - free.stock_level_) < 1.0 + 1e-9


def test_known_references_are_used():
    data = sales(3)
    table = table_of_risks(data)
    references = table.min(axis=0) - [50.0, 0.0, 0.0]
    model = RobustNewsvendor(10.0, integer=True, radius=math.inf, reference=dict(enumerate(references))).fit(*data)
    assert (table[int(model.stock_level_)] - references).max() == pytest.approx((table - references).max(axis=1).min())


@pytest.mark.parametrize(("capacity", "most"), [(1, 1), (1.9, 1), (7.5, 7), (7, 7), (8.0, 8)])
def test_a_capacity_is_rounded_down(capacity, most):
    _, demand, contexts = sales(7)
    model = RobustNewsvendor(10.0, integer=True, max_stock=capacity).fit(0.01, demand + 50.0, contexts)
    assert model.stock_level_ == most
    assert model.context_levels_ == pytest.approx(np.full(3, most))


@pytest.mark.parametrize("capacity", [0.2, 0.999, 0.0, -1.0])
def test_a_capacity_of_less_than_one_unit_is_refused(capacity):
    with pytest.raises(InvalidInputError, match=r"RobustNewsvendor: .*max_stock"):
        RobustNewsvendor(10.0, integer=True, max_stock=capacity).fit(*sales(0))


def test_goods_that_earn_more_left_over_than_they_cost_need_a_capacity():
    _, demand, contexts = sales(9)
    with pytest.raises(InvalidInputError, match="no minimum"):
        RobustNewsvendor(10.0, salvage=2.0, integer=True).fit(1.0, demand, contexts)
    model = RobustNewsvendor(10.0, salvage=2.0, integer=True, max_stock=70.7).fit(1.0, demand, contexts)
    assert model.stock_level_ == 70.0


@pytest.mark.parametrize("radius", [0.0, 0.1, math.inf])
def test_a_cost_above_the_price_means_no_stock(radius):
    _, demand, contexts = sales(3)
    model = RobustNewsvendor(10.0, integer=True, radius=radius).fit(11.0, demand, contexts)
    assert model.stock_level_ == 0.0
    assert model.context_levels_ == pytest.approx(np.zeros(3))


@pytest.mark.parametrize(
    "demand",
    [np.zeros(9), np.full(9, 4.0), np.full(9, 4.5), np.full(9, 0.3), np.r_[np.zeros(8), 20.0], np.r_[np.zeros(8), 0.5]],
    ids=["none", "four", "four and a half", "a third of one", "one large", "one half"],
)
@pytest.mark.parametrize("radius", [0.0, 0.1, math.inf])
@pytest.mark.parametrize("rows", [9, 3], ids=["three rows each", "one row each"])
def test_degenerate_demand_is_met_as_well_as_whole_units_can(demand, radius, rows):
    data = np.array([2.0, 5.0, 9.0] * 3)[:rows], demand[-rows:], np.array([0, 1, 2] * 3)[:rows]
    model = RobustNewsvendor(10.0, integer=True, radius=radius).fit(*data)
    assert_is_the_best_whole_level(model, data, radius, "excess")


@pytest.mark.parametrize("money", [1e-4, 1e7])
@pytest.mark.parametrize("radius", [0.0, 0.1, math.inf])
@pytest.mark.parametrize("seed", range(3))
def test_the_unit_of_money_does_not_matter(seed, radius, money):
    cost, demand, contexts = sales(60 + seed, whole=False)
    plain = RobustNewsvendor(10.0, integer=True, radius=radius).fit(cost, demand, contexts)
    model = RobustNewsvendor(10.0 * money, integer=True, radius=radius).fit(cost * money, demand, contexts)
    assert model.stock_level_ == plain.stock_level_
    assert model.context_levels_ == pytest.approx(plain.context_levels_)
    assert model.certificate_.upper == pytest.approx(money * plain.certificate_.upper)


@pytest.mark.parametrize("radius", [0.0, 0.1, math.inf])
def test_large_numbers_of_units_are_whole_too(radius):
    cost, demand, contexts = sales(70, whole=False)
    model = RobustNewsvendor(10.0, integer=True, radius=radius).fit(cost, 1e7 * demand, contexts)
    free = RobustNewsvendor(10.0, radius=radius).fit(cost, 1e7 * demand, contexts)
    assert model.stock_level_ == int(model.stock_level_)
    # A unit costs at most price + cost in any context, at the level and at the reference.
    assert abs(model.certificate_.upper - free.certificate_.upper) <= 50.0
    assert model.certificate_.gap <= 1e-9 * np.abs(model.context_risks_).max()


def test_the_weights_of_contexts_attain_the_worst_case_at_the_level():
    data = sales(80, n_contexts=5)
    model = RobustNewsvendor(10.0, integer=True, radius=0.2).fit(*data)
    shares = shares_of(data[2])
    assert model.context_weights_.sum() == pytest.approx(1.0)
    assert shares @ np.log2(shares / model.context_weights_) <= 0.2 * (1 + 1e-9)
    assert model.context_weights_ @ model.excess_risks_ == pytest.approx(model.certificate_.upper, rel=1e-7)


def test_a_whole_weight_is_a_repeated_row():
    data = sales(81)
    weight = np.random.default_rng(1).integers(1, 4, len(data[0]))
    weighed = RobustNewsvendor(10.0, integer=True).fit(*data, sample_weight=weight)
    repeated = RobustNewsvendor(10.0, integer=True).fit(*(np.repeat(column, weight) for column in data))
    assert weighed.stock_level_ == repeated.stock_level_
    assert weighed.context_risks_ == pytest.approx(repeated.context_risks_)
    assert weighed.certificate_.upper == pytest.approx(repeated.certificate_.upper)


def test_whole_units_survive_clone_and_pickle():
    data = sales(82)
    model = RobustNewsvendor(10.0, integer=True).fit(*data)
    assert model.get_params()["integer"] is True
    assert clone(model).fit(*data).stock_level_ == model.stock_level_
    assert pickle.loads(pickle.dumps(model)).stock_level_ == model.stock_level_


@pytest.mark.parametrize("integer", ["yes", 1.5, None])
def test_a_switch_that_is_neither_on_nor_off_is_refused(integer):
    with pytest.raises(InvalidInputError, match=r"RobustNewsvendor: .*integer"):
        RobustNewsvendor(10.0, integer=integer).fit(*sales(0))
