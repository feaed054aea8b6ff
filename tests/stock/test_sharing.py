"""A shared capacity against conic programs and against every split of whole units."""

import math

import numpy as np
import pytest

from counterpoise import plan_stock
from counterpoise.stock import planning
from tests.referees.stock import best_split, shared_optimum
from tests.stock.test_planning import PRODUCTS, RULES, market, referee, values


def planned(*rules, **arguments):
    """Return a plan by some of the rules: to share a capacity by all of them takes its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "RULES", rules)
        return plan_stock(**arguments)


def radii_of(plan, rule="robust"):
    ends = {"erm": 0.0, "minimax-regret": math.inf}
    return [ends.get(rule, one.radius) for one in plan.plans]


def in_plan(plan, data, **terms):
    return [referee(data, one.product, **terms) for one in plan.plans]


def attained(plan, products, rule="robust"):
    """Return the sum of worst-case excess costs of a plan, from the raw rows."""
    radii = radii_of(plan, rule)
    orders = [values(plan, "choices", one.product, rule=rule)["order"] for one in plan.plans]
    return sum(sales.worst_excess(order, radius) for sales, order, radius in zip(products, orders, radii, strict=True))


def wanted(data, **terms):
    """Return what the products would order together if there were room."""
    return float(planned("robust", **data, **terms).levels["order"].sum())


TERMS = {
    "types": {},
    "average": {"radius": 0.0},
    "any mix": {"radius": math.inf},
    "salvage and shortage": {"salvage": 0.4, "shortage": 4.0},
    "max_stock": {"max_stock": 12.0, "radius": 0.3},
}


@pytest.mark.parametrize(("kind", "part"), list(zip(TERMS, [0.15, 0.8, 0.95, 0.5, 0.7], strict=True)))
def test_no_orders_that_fit_have_a_smaller_sum_of_worst_cases(kind, part):
    data, terms = market(31, n_products=2), TERMS[kind]
    capacity = part * wanted(data, **terms)
    plan = planned("robust", **data, capacity=capacity, **terms)
    products = in_plan(plan, data, **terms)
    optimum, _ = shared_optimum(products, radii_of(plan), capacity)
    assert plan.levels["order"].sum() <= capacity * (1.0 + 1e-12)
    assert plan.levels["order"].min() >= 0.0
    assert attained(plan, products) == pytest.approx(optimum, rel=1e-6)
    proofs = [one.orders["robust"].certificate for one in plan.plans]
    assert sum(proof.upper for proof in proofs) == pytest.approx(attained(plan, products), rel=1e-8)
    assert sum(proof.lower for proof in proofs) <= optimum * (1.0 + 1e-7)
    assert sum(proof.gap for proof in proofs) <= 1e-6 * (1.0 + optimum)


@pytest.mark.parametrize("seed", range(40, 43))
def test_random_markets_are_shared_as_a_conic_solver_shares_them(seed):
    rng = np.random.default_rng(seed)
    data = market(seed, n_products=2 + seed % 2, n_contexts=2 + seed % 3)
    if seed % 2:
        # One margin for all rows: at the charge that equals it, any order is as good as none.
        data |= {"cost": 4.0, "price": 9.0}
    terms = {"shortage": float(rng.uniform(0.0, 3.0)), "radius": float(rng.uniform(0.001, 1.0))}
    capacity = float(rng.uniform(0.05, 0.9)) * wanted(data, **terms)
    plan = planned("robust", "erm", "minimax-regret", **data, capacity=capacity, **terms)
    products = in_plan(plan, data, **terms)
    for rule in ("robust", "erm", "minimax-regret"):
        optimum, _ = shared_optimum(products, radii_of(plan, rule), capacity)
        orders = plan.choices.where(rule=rule)["order"]
        assert orders.sum() <= capacity * (1.0 + 1e-12)
        assert orders.min() >= 0.0
        assert attained(plan, products, rule) == pytest.approx(optimum, rel=1e-6, abs=1e-7), rule


@pytest.mark.parametrize(("seed", "part"), [(50, 0.6), (51, 0.2)])
def test_whole_units_are_shared_as_well_as_by_trying_all_splits(seed, part):
    data = market(seed, n_products=2 + seed % 2, whole=True)
    terms = {"integer": True, "shortage": 0.5}
    capacity = math.floor(part * wanted(data, **terms))
    plan = planned("robust", "erm", **data, capacity=capacity, **terms)
    products = in_plan(plan, data, **terms)
    for rule in ("robust", "erm"):
        orders = plan.choices.where(rule=rule)["order"]
        assert orders.tolist() == np.round(orders).tolist()
        assert orders.sum() <= capacity
        optimum = best_split(products, radii_of(plan, rule), capacity)
        assert attained(plan, products, rule) == pytest.approx(optimum, rel=1e-8, abs=1e-8), rule
        proofs = [one.orders[rule].certificate for one in plan.plans]
        assert sum(proof.lower for proof in proofs) <= optimum + 1e-7


def test_every_capacity_of_two_small_products_is_shared_best():
    rng = np.random.default_rng(60)
    data = {
        "demand": rng.integers(0, 7, 40).astype(float),
        "cost": 2.0,
        "price": 5.0,
        "contexts": np.tile(["dry", "wet"], 20),
        "products": np.repeat(["bread", "rolls"], 20),
    }
    for capacity in (1, 5):
        plan = planned("robust", **data, capacity=capacity, integer=True, radius=0.1)
        products = in_plan(plan, data, integer=True)
        assert plan.levels["order"].sum() <= capacity
        assert attained(plan, products) == pytest.approx(best_split(products, [0.1, 0.1], capacity), abs=1e-8)


@pytest.mark.parametrize("capacity", [20.99])
def test_a_fraction_of_a_unit_of_capacity_is_no_room_for_a_unit(capacity):
    data = market(61, n_products=2, whole=True)
    fraction = planned("robust", **data, capacity=capacity, integer=True)
    whole = planned("robust", **data, capacity=math.floor(capacity), integer=True)
    products = in_plan(whole, data, integer=True)
    assert fraction.levels["order"].tolist() == np.round(fraction.levels["order"]).tolist()
    assert fraction.levels["order"].sum() <= capacity
    assert attained(fraction, products) == pytest.approx(attained(whole, products), abs=1e-8)


@pytest.mark.parametrize("terms", [{}, {"integer": True}], ids=str)
def test_more_capacity_than_is_wanted_changes_nothing(terms):
    data = market(62, n_products=2)
    free = plan_stock(**data, **terms)
    most = max(free.choices.where(rule=rule)["order"].sum() for rule in RULES)
    for capacity in (most + 1e-6, 10 * most, math.inf):
        plan = plan_stock(**data, **terms, capacity=capacity)
        for rule in RULES:
            assert plan.choices.where(rule=rule)["order"].tolist() == free.choices.where(rule=rule)["order"].tolist()
        assert [one.charge for one in plan.plans] == [0.0] * 2
        assert not any("capacity" in note for note in plan.notes)


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("margin", ["of each row", "one for all"])
def test_no_capacity_is_no_order(integer, margin):
    data = market(63, n_products=2, rows=(4, 14)) | ({"cost": 4.0, "price": 9.0} if margin == "one for all" else {})
    plan = planned("robust", "erm", **data, capacity=0, integer=integer)
    assert plan.choices["order"].tolist() == [0.0] * plan.choices.n_rows
    products = in_plan(plan, data, integer=integer)
    for one, sales in zip(plan.plans, products, strict=True):
        assert one.orders["robust"].certificate.upper == pytest.approx(sales.worst_excess(0.0, one.radius), rel=1e-8)
    assert sum(one.orders["robust"].certificate.gap for one in plan.plans) <= 1e-6


@pytest.mark.parametrize("capacity", [1e-9, 3.0])
def test_a_little_capacity_with_one_margin_for_all(capacity):
    # Up to the least demand every unit is sold whatever the mix, so all of them are worth the same.
    data = market(64, n_products=2) | {"cost": 4.0, "price": 9.0}
    plan = planned("robust", **data, capacity=capacity)
    assert plan.levels["order"].min() >= 0.0
    assert plan.levels["order"].sum() == pytest.approx(capacity)
    products = in_plan(plan, data)
    assert attained(plan, products) == pytest.approx(shared_optimum(products, radii_of(plan), capacity)[0], rel=1e-6)


def test_the_charge_is_what_one_more_unit_saves():
    data = market(65, n_products=2)
    capacity = 0.6 * wanted(data)
    plan = planned("robust", **data, capacity=capacity)
    sums = [shared_optimum(in_plan(plan, data), radii_of(plan), capacity + step)[0] for step in (-0.01, 0.0, 0.01)]
    charge = plan.plans[0].charge
    assert {one.charge for one in plan.plans} == {charge}
    assert (sums[1] - sums[2]) / 0.01 - 1e-5 <= charge <= (sums[0] - sums[1]) / 0.01 + 1e-5


def test_a_full_capacity_is_said():
    data = market(66, n_products=2)
    plan = planned("robust", **data, capacity=0.5 * wanted(data), currency="EUR", period="day")
    assert any("capacity" in note and "EUR per day" in note for note in plan.notes)


def test_a_capacity_of_one_product_is_a_limit_whose_references_do_not_feel_it():
    data = market(67, n_products=1)
    sales = referee(data)
    plan = planned("robust", **data, capacity=0.7 * wanted(data))
    assert plan.plans[0].order == pytest.approx(0.7 * wanted(data), rel=1e-9)
    for row in plan.reasons.rows():
        assert row["best_profit"] == pytest.approx(sales.best_profits[sales.labels.index(row["context"])])


def test_the_path_of_a_product_is_that_of_the_product_alone():
    data = market(68, n_products=2)
    within, alone = plan_stock(**data, capacity=5), plan_stock(**data)
    for one, other in zip(within.plans, alone.plans, strict=True):
        np.testing.assert_allclose(one.path(5)["order"], other.path(5)["order"])


@pytest.mark.parametrize("capacity", [0, 2])
def test_no_rule_orders_more_whole_units_than_fit_where_all_are_worth_the_same(capacity):
    demand = [17, 18, 21, 16, 16, 21, 14, 17, 20, 10, 16, 20, 18, 9, 17, 11, 13, 10, 15, 14, 16, 20]
    plan = plan_stock(demand, cost=4.0, price=9.0, contexts=["dry"] * 22, capacity=capacity, integer=True)
    assert plan.choices["order"].max() <= capacity


def test_the_tables_within_a_capacity_follow_from_the_rows():
    data = market(69, n_products=2)
    plan = planned("robust", "erm", **data, capacity=0.5 * wanted(data))
    for product in PRODUCTS[:2]:
        sales = referee(data, product)
        for rule in ("robust", "erm"):
            row = values(plan, "choices", product, rule=rule)
            assert row["average_profit"] == pytest.approx(sales.profit(row["order"]), abs=1e-9)
            assert row["worst_excess"] == pytest.approx(sales.excess(row["order"]).max(), abs=1e-9)
        rows = list(plan.reasons.where(product=product).rows())
        expected = sales.worst_excess(plan[product].order, plan[product].radius)
        assert sum(row["weight"] * row["excess"] for row in rows) == pytest.approx(expected, rel=1e-6)
