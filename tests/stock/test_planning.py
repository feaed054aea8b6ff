"""Plans against levels found product by product, every number of the tables against the raw rows, and bad input."""

import enum
import json
import math
import warnings
from datetime import date
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from counterpoise import RobustNewsvendor, plan_stock
from counterpoise.exceptions import CounterpoiseWarning, InvalidInputError
from tests.referees.stock import Sales

RULES = ["robust", "erm", "inverse-frequency", "minimax-risk", "minimax-regret"]
PRODUCTS = ["bread", "rolls", "cake"]


def market(seed, n_products=3, n_contexts=3, rows=(3, 8), whole=False):
    """Return rows of several products in contexts of different size, mixed, with costs and prices of their own."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(*rows, (n_products, n_contexts))
    sizes[:, 0] *= 3
    cells = np.repeat(np.arange(n_products * n_contexts), sizes.ravel())
    product, context = np.divmod(rng.permutation(cells), n_contexts)
    demand = np.abs(
        rng.uniform(5.0, 40.0, (n_products, n_contexts))[product, context] + 4.0 * rng.normal(size=len(cells))
    )
    cost = rng.uniform(0.5, 8.0, (n_products, n_contexts))[product, context] * rng.uniform(0.8, 1.2, len(cells))
    return {
        "demand": np.round(demand) if whole else demand,
        "cost": cost,
        "price": rng.uniform(9.0, 14.0, len(cells)),
        "contexts": np.array(["dry", "wet", "storm", "snow"])[context],
        "products": np.array(PRODUCTS)[product],
    }


def referee(data, product=None, **terms):
    """Return one product's rows as the referee wants them."""
    own = np.ones(len(data["demand"]), bool) if product is None else np.asarray(data["products"]) == product
    columns = {name: np.broadcast_to(data[name], own.shape)[own] for name in ("demand", "cost", "price", "contexts")}
    names = {"salvage": "salvage", "shortage": "shortage", "max_stock": "most", "integer": "whole"}
    return Sales(**columns, **{names[name]: value for name, value in terms.items() if name in names})


def values(plan, table, product, **where):
    """Return a row of a table."""
    (row,) = getattr(plan, table).where(product=product, **where).rows()
    return row


def judged(sales, rule, radius, level):
    """Return what a rule makes least, at a level."""
    equal = np.full(len(sales.labels), 1.0 / len(sales.labels))
    return {
        "robust": lambda: sales.worst_excess(level, radius),
        "erm": lambda: sales.worst_excess(level, 0.0),
        "inverse-frequency": lambda: sales.worst_excess(level, 0.0, equal),
        "minimax-risk": lambda: float((-sales.profits(level)).max()),
        "minimax-regret": lambda: sales.worst_excess(level, math.inf),
    }[rule]()


TERMS = {
    "plain": {},
    "salvage and shortage": {"salvage": 0.4, "shortage": 3.0},
    "max_stock": {"max_stock": 13.5},
    "salvage above cost": {"salvage": 5.0, "max_stock": 50.0},
    "integer": {"integer": True},
    "integer max_stock": {"integer": True, "max_stock": 15.7, "shortage": 1.0},
    "agrawal": {"radius": "agrawal", "confidence": 0.9},
    "chi2": {"radius": "chi2"},
    "bits": {"radius": 0.3},
    "zero": {"radius": 0.0},
    "all": {"radius": math.inf},
    "sure": {"confidence": 1.0},
    "draws": {"draws": 17},
    "risk": {"criterion": "risk"},
    "cross-fit": {"reference": "cross-fit"},
}


# Orders


@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
@pytest.mark.parametrize("kind", ["scalar cost", "cost per row"])
def test_each_order_is_that_of_the_product_alone(terms, kind):
    data = market(1, n_products=2) | {"price": 12.0}
    if kind == "scalar cost":
        data["cost"] = 5.0 if terms.get("salvage", 0.0) < 5.0 else 5.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CounterpoiseWarning)
        plan = plan_stock(**data, **terms)
        assert [one.product for one in plan.plans] == PRODUCTS[:2]
        for product in PRODUCTS[:2]:
            own = data["products"] == product
            alone = RobustNewsvendor(12.0, **terms).fit(
                np.broadcast_to(data["cost"], own.shape)[own], data["demand"][own], data["contexts"][own]
            )
            assert plan[product].order == pytest.approx(alone.stock_level_, abs=1e-9)
            assert plan[product].radius == pytest.approx(alone.radius_)
            assert values(plan, "levels", product)["order"] == plan[product].order
            assert values(plan, "choices", product, rule="robust")["order"] == plan[product].order
            weights = dict(zip(alone.contexts_, alone.context_weights_, strict=True))
            for row in plan.reasons.where(product=product).rows():
                assert row["weight"] == pytest.approx(weights[row["context"]], abs=1e-7)


def test_one_price_per_row_is_the_same_as_one_price():
    data = market(2) | {"price": 12.0}
    every = data | {"price": np.full(len(data["demand"]), 12.0), "cost": pd.Series(data["cost"])}
    for name in ("levels", "choices", "reasons"):
        one, each = getattr(plan_stock(**data), name), getattr(plan_stock(**every), name)
        for column in one:
            if one[column].dtype.kind == "f":
                assert one[column] == pytest.approx(each[column])
            else:
                assert one[column].tolist() == each[column].tolist()


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"salvage": 0.4, "shortage": 3.0},
        {"max_stock": 11.0},
        {"integer": True},
        {"salvage": 7.0, "max_stock": 45.0},
        {"integer": True, "max_stock": 17.3, "salvage": 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [3, 4])
def test_no_level_is_better_under_any_rule(seed, terms):
    # Prices differ between rows, and half of the cases sell whole units.
    data = market(seed, n_products=2, whole=seed % 2 == 0)
    plan = plan_stock(**data, **terms)
    for product in PRODUCTS[:2]:
        sales = referee(data, product, **terms)
        for rule in RULES:
            order = values(plan, "choices", product, rule=rule)["order"]
            assert 0.0 <= order <= sales.most
            if sales.whole:
                assert order == int(order)
            cost = partial(judged, sales, rule, plan[product].radius)
            assert cost(order) == pytest.approx(sales.least(cost)[0], rel=1e-9, abs=1e-8), (product, rule)


@pytest.mark.parametrize("radius", [1e-6, 0.02, 0.4, 5.0])
def test_prices_of_their_own_against_a_fine_grid(radius):
    data = market(5, n_products=1)
    plan = plan_stock(**data, radius=radius)
    sales = referee(data)
    levels = np.union1d(np.linspace(0.0, sales.demand.max(), 700), sales.demand)
    grid = [sales.worst_excess(level, radius) for level in levels]
    attained = sales.worst_excess(plan.plans[0].order, radius)
    assert attained <= min(grid) + 1e-9
    assert abs(plan.plans[0].order - levels[int(np.argmin(grid))]) <= 2 * sales.demand.max() / 700


def test_the_certificate_holds_the_optimum():
    data = market(6)
    plan = plan_stock(**data, shortage=1.0)
    for product in PRODUCTS:
        sales, one = referee(data, product, shortage=1.0), plan[product]
        least, _ = sales.robust(one.radius)
        proof = one.orders["robust"].certificate
        assert proof.lower - 1e-9 <= least <= proof.upper + 1e-9
        assert proof.gap <= 1e-8


def test_no_products_is_one_product_without_a_name():
    data = market(7, n_products=1)
    named, unnamed = plan_stock(**data), plan_stock(**{k: v for k, v in data.items() if k != "products"})
    assert unnamed.plans[0].product is None
    assert unnamed.plans[0].order == named["bread"].order
    assert "product" not in unnamed.levels
    assert unnamed.reasons["excess"] == pytest.approx(named.reasons["excess"])


def test_the_order_of_rows_does_not_matter():
    data = market(8)
    mixed = np.random.default_rng(0).permutation(len(data["demand"]))
    one, other = plan_stock(**data), plan_stock(**{name: column[mixed] for name, column in data.items()})
    for name in ("levels", "choices", "reasons"):
        first, second = getattr(one, name), getattr(other, name)
        for column in first:
            if first[column].dtype.kind == "f":
                assert first[column] == pytest.approx(second[column], rel=1e-9, abs=1e-9), column
            elif not column.endswith("_in"):  # Minimax orders make two contexts equally bad; either may be named.
                assert first[column].tolist() == second[column].tolist(), column
    assert one.notes == other.notes


def test_contexts_are_crossed():
    data = market(9, n_products=1, rows=(12, 20))
    season = np.where(np.arange(len(data["demand"])) % 2 == 0, "spring", "autumn")
    joined = plan_stock(**data | {"contexts": np.char.add(np.char.add(data["contexts"], "/"), season)})
    for table in (
        pd.DataFrame({"weather": data["contexts"], "season": season}),
        pl.DataFrame({"weather": data["contexts"], "season": season}),
        np.column_stack([data["contexts"], season]),
    ):
        crossed = plan_stock(**data | {"contexts": table})
        assert crossed.plans[0].order == pytest.approx(joined.plans[0].order)
        rows = {row["context"]: row["excess"] for row in joined.reasons.rows()}
        assert {"/".join(row["context"]): row["excess"] for row in crossed.reasons.rows()} == pytest.approx(rows)


class Shelf(enum.Enum):
    TOP = 1
    LOW = 2


@pytest.mark.parametrize(
    "labels",
    [
        [1, 2],
        [0.5, -1.5],
        [True, False],
        ["", "a"],
        [("a", 1), ("b", 2)],
        [Shelf.TOP, Shelf.LOW],
        [date(2024, 1, 1), date(2025, 1, 1)],
        [frozenset({1}), frozenset({2})],
        ["7", 7],
        [b"x", b"y"],
    ],
    ids=str,
)
def test_products_are_of_any_hashable_kind(labels):
    data = market(10, n_products=2)
    plain = plan_stock(**data)
    kinds = [labels[PRODUCTS.index(name)] for name in data["products"]]
    plan = plan_stock(**data | {"products": kinds})
    for name, label in zip(PRODUCTS, labels, strict=False):
        assert plan[label].order == plain[name].order
        assert plan.levels.where(product=label)["order"].tolist() == [plain[name].order]
    assert isinstance(repr(plan), str)
    assert isinstance(plan._repr_html_(), str)


@pytest.mark.parametrize("frame", [list, pd.Series, pl.Series, pd.Categorical])
def test_products_and_contexts_come_in_columns_of_any_library(frame):
    data = market(11)
    plan = plan_stock(
        **data | {"products": frame(data["products"].tolist()), "contexts": frame(data["contexts"].tolist())}
    )
    assert plan.levels["order"] == pytest.approx(plan_stock(**data).levels["order"])


def test_an_unknown_product_is_a_key_error_that_names_those_there_are():
    plan = plan_stock(**market(12))
    with pytest.raises((KeyError, InvalidInputError), match="bread"):
        plan["bred"]


# Tables


@pytest.mark.parametrize(
    "terms", [{}, {"salvage": 0.4, "shortage": 2.0, "max_stock": 14.0}, {"integer": True}], ids=str
)
def test_every_number_of_the_tables_follows_from_the_rows(terms):
    data = market(13)
    plan = plan_stock(**data, **terms)
    for product in PRODUCTS:
        sales = referee(data, product, **terms)
        name = dict(enumerate(sales.labels))
        for rule in RULES:
            row = values(plan, "choices", product, rule=rule)
            profits, excess = sales.profits(row["order"]), sales.excess(row["order"])
            assert row["average_profit"] == pytest.approx(sales.profit(row["order"]), abs=1e-9)
            assert row["worst_profit"] == pytest.approx(profits.min(), abs=1e-9)
            assert row["average_excess"] == pytest.approx(sales.shares @ excess, abs=1e-9)
            assert row["worst_excess"] == pytest.approx(excess.max(), abs=1e-9)
            assert profits[sales.labels.index(row["worst_profit_in"])] == pytest.approx(profits.min(), abs=1e-9)
            assert excess[sales.labels.index(row["worst_excess_in"])] == pytest.approx(excess.max(), abs=1e-9)
        assert values(plan, "levels", product).items() <= values(plan, "choices", product, rule="robust").items()
        rows = list(plan.reasons.where(product=product).rows())
        assert sorted(row["context"] for row in rows) == sorted(name.values())
        order = plan[product].order
        for row in rows:
            c, own = sales.labels.index(row["context"]), sales.own(row["context"])
            assert row["rows"] == own.sum()
            assert row["share"] == pytest.approx(own.mean())
            assert row["profit"] == pytest.approx(sales.profit(order, row["context"]), abs=1e-9)
            assert row["best_profit"] == pytest.approx(sales.best_profits[c], abs=1e-9)
            assert row["excess"] == pytest.approx(sales.excess(order)[c], abs=1e-9)
            assert sales.profit(row["best_order"], row["context"]) == pytest.approx(sales.best_profits[c], abs=1e-9)
            assert row["mean_demand"] == pytest.approx(sales.demand[own].mean())
            assert row["mean_cost"] == pytest.approx(sales.cost[own].mean())
        lost = [row["excess"] for row in rows]
        assert lost == sorted(lost, reverse=True)
        weights = np.array([row["weight"] for row in rows])
        shares = np.array([row["share"] for row in rows])
        assert weights.sum() == pytest.approx(1.0)
        assert shares @ np.log2(shares / weights) <= plan[product].radius * (1.0 + 1e-9)
        assert weights @ lost == pytest.approx(sales.worst_excess(order, plan[product].radius), rel=1e-6)


def test_means_are_in_the_order_of_contexts():
    data = market(14, n_products=1)
    one, sales = plan_stock(**data).plans[0], referee(data)
    for c, label in enumerate(one.contexts):
        own = sales.own(label)
        assert one.mean_demand[c] == pytest.approx(sales.demand[own].mean())
        assert one.mean_cost[c] == pytest.approx(sales.cost[own].mean())
        assert one.mean_price[c] == pytest.approx(sales.price[own].mean())
        assert one.counts[c] == own.sum()
        assert one.shares[c] == pytest.approx(own.mean())


# The path


@pytest.mark.parametrize("terms", [{}, {"integer": True}, {"radius": "agrawal", "draws": 9}], ids=str)
def test_the_path_leads_from_erm_to_minimax_regret_through_the_order(terms):
    data = market(15, n_products=1)
    plan = plan_stock(**data, **terms)
    for product in PRODUCTS[:1]:
        path, one = plan[product].path(), plan[product]
        sales = referee(data, product, **terms)
        assert list(path) == ["radius", "confidence", "order", "average_excess", "worst_excess"]
        assert path["radius"][0] == 0.0
        assert path["radius"][-1] == math.inf
        assert (np.diff(path["radius"]) > 0).all()
        assert (np.diff(path["confidence"]) >= 0).all()
        assert path["order"][0] == pytest.approx(values(plan, "choices", product, rule="erm")["order"])
        assert path["order"][-1] == pytest.approx(values(plan, "choices", product, rule="minimax-regret")["order"])
        here = np.flatnonzero(np.isclose(path["radius"], one.radius, rtol=1e-12))
        assert len(here) == 1
        assert path["order"][here[0]] == pytest.approx(one.order)
        for row in list(path.rows())[::8]:
            least, _ = sales.robust(row["radius"])
            assert sales.worst_excess(row["order"], row["radius"]) == pytest.approx(least, rel=1e-7, abs=1e-8)
            assert row["average_excess"] == pytest.approx(sales.shares @ sales.excess(row["order"]), abs=1e-9)
            assert row["worst_excess"] == pytest.approx(sales.excess(row["order"]).max(), abs=1e-9)


@pytest.mark.parametrize("method", ["types", "agrawal", "calibrated", "chi2", "anytime"])
def test_confidence_and_radius_are_inverse_to_each_other(method):
    one = plan_stock(**market(16, n_products=1, rows=(10, 14)), radius=method, confidence=0.93).plans[0]
    assert one.radius_at(0.93) == pytest.approx(one.radius)
    assert one.confidence_of(one.radius) == pytest.approx(0.93, abs=1e-6)
    assert one.radius_at(1.0) == math.inf
    assert one.confidence_of(math.inf) == 1.0
    here = np.isclose(one.path()["radius"], one.radius)
    assert one.path()["confidence"][here] == pytest.approx([0.93], abs=1e-6)


@pytest.mark.parametrize("radius", [0.0, math.inf])
def test_a_path_from_either_end_holds_that_end_once(radius):
    path = plan_stock(**market(17), radius=radius).plans[0].path()
    assert (path["radius"] == radius).sum() == 1


# Words


def test_notes_explain_a_context_that_sells_at_a_loss():
    data = market(18)
    data["cost"] = np.where((data["contexts"] == "storm") & (data["products"] == "cake"), 30.0, data["cost"])
    plan = plan_stock(**data)
    (note,) = [note for note in plan.notes if "storm" in note]
    assert "cake" in note
    assert not any("bread" in note or "rolls" in note for note in plan.notes)
    assert values(plan, "reasons", "cake", context="storm")["best_order"] == 0.0


def test_a_plan_is_said_in_words_with_its_currency_and_period():
    data = market(19, n_products=1)
    plan = plan_stock(**data, integer=True, currency="EUR", period="day")
    assert f"Order {plan.plans[0].order:.0f}" in plan.summary
    assert "EUR per day" in plan.summary
    worst = values(plan, "choices", "bread", rule="robust")
    assert worst["worst_excess_in"] in plan.verdict(plan.plans[0])
    assert f"{worst['worst_excess']:.2f}" in plan.verdict(plan.plans[0])


@pytest.mark.parametrize(
    "labels", [[1, 2, 3], [1.5, 2.5, 3.0], ["a", "b", "c"], [("a", 1), ("a", 2), ("b", 1)]], ids=str
)
def test_rows_of_tables_are_plain_values(labels):
    data = market(21)
    kinds = dict(zip(["dry", "wet", "storm"], labels, strict=True))
    names = dict(zip(PRODUCTS, labels, strict=True))
    plan = plan_stock(
        **data | {"contexts": [kinds[c] for c in data["contexts"]], "products": [names[p] for p in data["products"]]}
    )
    for table in (plan.levels, plan.choices, plan.reasons):
        for row in table.rows():
            assert {type(value) for value in row.values()} <= {str, int, float, tuple}
            assert json.loads(json.dumps(row))


# Bad input


def good():
    return market(20) | {"price": 12.0}


def changed(name, value, rows=slice(0, 1)):
    data = good()
    column = np.array(np.broadcast_to(data[name], len(data["demand"])))
    column[rows] = value
    return {name: column}


N = len(market(20)["demand"])
BAD = {
    "negative demand": (changed("demand", -1.0), "demand.*not negative|negative"),
    "demand is NaN": (changed("demand", math.nan), "demand.*row 0|row 0.*demand"),
    "demand is infinite": (changed("demand", math.inf), "demand.*row 0|row 0.*demand"),
    "demand is text": ({"demand": ["many"] * N}, "numbers"),
    "demand is a number": ({"demand": 5.0}, "one number per row|demand"),
    "demand is a table": ({"demand": np.ones((N, 2))}, "one number per row|demand"),
    "demand is None": ({"demand": None}, "demand"),
    "cost is NaN": (changed("cost", math.nan), "cost.*row 0|row 0.*cost"),
    "cost is text": ({"cost": "dear"}, "cost"),
    "cost is None": ({"cost": None}, "cost"),
    "price is NaN": (changed("price", math.nan), "price.*row 0|row 0.*price"),
    "price is text": ({"price": "dear"}, "price"),
    "price is None": ({"price": None}, "price"),
    "price is negative": ({"price": -3.0}, "price"),
    "price below every cost": ({"price": 0.01}, "price"),
    "prices below every cost": ({"price": np.full(N, 0.01)}, "price"),
    "too few costs": ({"cost": np.ones(N - 1)}, "one per row"),
    "too few prices": ({"price": np.full(N - 1, 9.0)}, "one per row"),
    "too few contexts": ({"contexts": ["a"] * (N - 1)}, f"{N - 1}"),
    "too few products": ({"products": ["a"] * (N - 1)}, f"{N - 1}"),
    "contexts are None": ({"contexts": None}, "context"),
    "a context is None": ({"contexts": [None, *market(20)["contexts"][1:]]}, "row 0"),
    "a product is None": ({"products": [None, *market(20)["products"][1:]]}, "row 0"),
    "a product is NaN": ({"products": [math.nan, *market(20)["products"][1:]]}, "row 0"),
    "products are lists": ({"products": [["a"]] * N}, "product"),
    "no rows": ({name: [] for name in ("demand", "cost", "price", "contexts", "products")}, "rows|empty"),
    "salvage above cost without a limit": ({"salvage": 11.5}, "max_stock"),
    "salvage is NaN": ({"salvage": math.nan}, "salvage"),
    "salvage is text": ({"salvage": "some"}, "salvage"),
    "shortage is infinite": ({"shortage": math.inf}, "shortage"),
    "shortage is None": ({"shortage": None}, "shortage"),
    "max_stock is 0": ({"max_stock": 0.0}, "max_stock"),
    "max_stock is negative": ({"max_stock": -1.0}, "max_stock"),
    "max_stock is NaN": ({"max_stock": math.nan}, "max_stock"),
    "max_stock is text": ({"max_stock": "10"}, "max_stock"),
    "capacity is negative": ({"capacity": -1.0}, "capacity"),
    "capacity is NaN": ({"capacity": math.nan}, "capacity"),
    "capacity is text": ({"capacity": "10"}, "capacity"),
    "capacity is a truth": ({"capacity": True}, "capacity"),
    "min_rows is 0": ({"min_rows": 0}, "min_rows"),
    "min_rows is negative": ({"min_rows": -2}, "min_rows"),
    "min_rows is a fraction": ({"min_rows": 1.5}, "min_rows"),
    "min_rows is NaN": ({"min_rows": math.nan}, "min_rows"),
    "min_rows is text": ({"min_rows": "2"}, "min_rows"),
    "min_rows is a truth": ({"min_rows": True}, "min_rows"),
    "min_rows is None": ({"min_rows": None}, "min_rows"),
    "confidence is 2": ({"confidence": 2.0}, "confidence"),
    "confidence is negative": ({"confidence": -0.1}, "confidence"),
    "confidence is NaN": ({"confidence": math.nan}, "confidence"),
    "confidence is text": ({"confidence": "high"}, "confidence"),
    "confidence is a truth": ({"confidence": True}, "confidence"),
    "radius is a word": ({"radius": "wide"}, "radius"),
    "radius is negative": ({"radius": -0.1}, "radius"),
    "radius is NaN": ({"radius": math.nan}, "radius"),
    "radius is a truth": ({"radius": True}, "radius"),
    "radius is None": ({"radius": None}, "radius"),
    "draws is 0": ({"draws": 0}, "draws"),
    "draws is negative": ({"draws": -5}, "draws"),
    "draws is NaN": ({"draws": math.nan}, "draws"),
    "draws is text": ({"draws": "ten"}, "draws"),
    "draws is a truth": ({"draws": True}, "draws"),
    "criterion is a word": ({"criterion": "regret"}, "criterion"),
    "reference is a word": ({"reference": "known"}, "reference"),
    "integer is text": ({"integer": "no"}, "integer"),
    "max_stock leaves no whole unit": ({"integer": True, "max_stock": 0.5}, "max_stock"),
}


@pytest.mark.parametrize(("change", "words"), BAD.values(), ids=BAD)
def test_what_cannot_be_meant_is_refused_by_name(change, words):
    with pytest.raises(InvalidInputError, match=words) as refused:
        plan_stock(**good() | change)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_context_with_one_row_is_refused_unless_that_is_asked_for():
    data = good()
    data["contexts"] = np.where(np.arange(N) == np.flatnonzero(data["products"] == "cake")[0], "hail", data["contexts"])
    with pytest.raises(InvalidInputError, match=r"cake.*hail|hail.*cake") as refused:
        plan_stock(**data)
    assert "min_rows" in str(refused.value)
    plan = plan_stock(**data, min_rows=1)
    assert values(plan, "reasons", "cake", context="hail")["rows"] == 1


def test_a_context_needs_as_many_rows_as_are_asked_for():
    data = good()
    least = min(
        np.unique([f"{p} {c}" for p, c in zip(data["products"], data["contexts"], strict=True)], return_counts=True)[1]
    )
    plan_stock(**data, min_rows=int(least))
    plan_stock(**data, min_rows=np.int64(least))
    with pytest.raises(InvalidInputError, match="min_rows"):
        plan_stock(**data, min_rows=int(least) + 1)


def test_a_product_that_sells_at_a_loss_everywhere_is_not_ordered_and_that_is_said():
    data = good()
    data["price"] = np.where(data["products"] == "cake", 0.01, 12.0)
    plan = plan_stock(**data)
    assert plan["cake"].order == 0.0
    assert any("cake" in note for note in plan.notes)


def test_salvage_above_the_cost_of_one_context_names_it():
    data = good()
    data["cost"] = np.where((data["products"] == "cake") & (data["contexts"] == "wet"), 0.1, 5.0)
    with pytest.raises(InvalidInputError, match=r"cake.*wet|wet.*cake") as refused:
        plan_stock(**data, salvage=0.2)
    assert "max_stock" in str(refused.value)
    assert plan_stock(**data, salvage=0.2, max_stock=50.0)["cake"].order <= 50.0


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 40),
    st.floats(),
    st.sampled_from(["", "types", "agrawal", "calibrated", "chi2", "excess", "risk", "in-sample", "12", "a"]),
    st.lists(st.one_of(st.floats(), st.integers(0, 3), st.text(max_size=2), st.none()), max_size=6),
    hnp.arrays(st.sampled_from([float, int, bool, object]), hnp.array_shapes(max_dims=2, max_side=6)),
    st.tuples(st.integers()),
    st.dictionaries(st.text(max_size=1), st.integers(), max_size=2),
    st.just(object()),
    st.just(10**400),
    st.just(1 + 2j),
    st.just(np.datetime64("NaT")),
)
NAMES = [
    *("demand", "cost", "price", "contexts", "products", "salvage", "shortage", "max_stock", "capacity", "integer"),
    *("confidence", "radius", "draws", "criterion", "reference", "min_rows"),
]


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(NAMES), ODD, min_size=1, max_size=2))
def test_odd_values_give_a_plan_or_one_kind_of_error(odd):
    arguments = {
        "demand": [3.0, 4.0, 5.0, 6.0, 2.0, 1.0],
        "cost": [1.0, 2.0, 1.0, 1.5, 1.0, 1.0],
        "price": 3.0,
        "contexts": ["a", "b", "a", "b", "a", "b"],
    } | odd
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", CounterpoiseWarning)
        try:
            plan = plan_stock(**arguments)
        except InvalidInputError:
            return
        assert np.isfinite(plan.levels["order"]).all()
        assert plan.summary
        plan.plans[0].path(3)
