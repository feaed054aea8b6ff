"""Orders on periods held out: recomputed by hand, and against worlds whose truth is known."""

import numpy as np
import pytest
from scipy.stats import norm

from counterpoise import plan_stock
from counterpoise.exceptions import InvalidInputError
from counterpoise.inference.windows import expanding_windows
from counterpoise.stock.backtest import JUDGED

COST, PRICE, SALVAGE = 2.0, 5.0, 0.5
TERMS = {"cost": COST, "price": PRICE, "salvage": SALVAGE, "currency": "EUR", "period": "day"}


def world(seed=0, n=300, drift=0.0, means=(40.0, 25.0, 30.0)):
    """Return demand by weather on consecutive days, which may fall or rise with time."""
    rng = np.random.default_rng(seed)
    weather = rng.choice(["dry", "hot", "wet"], n, p=[0.6, 0.3, 0.1])
    mean = np.select([weather == "dry", weather == "hot"], means[:2], means[2])
    demand = np.maximum(mean * (1.0 + drift * np.arange(n) / n) + 4.0 * rng.standard_normal(n), 0.0)
    return demand, weather, np.datetime64("2023-01-01") + np.arange(n)


def earned(order, demand):
    sold = np.minimum(order, demand)
    return PRICE * sold + SALVAGE * (order - sold) - COST * order


def judged(demand, weather, days, **changes):
    return plan_stock(demand, contexts=weather, time=days, **TERMS | {"cuts": 2} | changes).backtest


def test_later_profits_are_those_of_orders_found_before():
    demand, weather, days = world()
    later = judged(demand, weather, days, cuts=3, gap=5).later
    profits = {rule: [] for rule in JUDGED}
    for train, test in expanding_windows(days, 3, 5):
        plan = plan_stock(demand[train], contexts=weather[train], **TERMS)
        orders = {row["rule"]: row["order"] for row in plan.choices.rows()} | {"mean-demand": demand[train].mean()}
        for rule, order in orders.items():
            profits[rule].append(earned(order, demand[test]))
        own = {row["context"]: row["best_order"] for row in plan.reasons.rows()}
        profits["per-context"].append(earned(np.array([own[label] for label in weather[test]]), demand[test]))
    tested = np.concatenate([test for _, test in expanding_windows(days, 3, 5)])
    for rule, found in profits.items():
        assert later.of(rule)["profit"] == pytest.approx(np.concatenate(found).mean()), rule
        assert later.of(rule)["gain"] == pytest.approx(np.concatenate(found).mean() - later.of("erm")["profit"]), rule
        assert later.blocks[rule] == pytest.approx([block.mean() for block in found])
        by = {label: np.concatenate(found)[weather[tested] == label] for label in later.contexts["context"]}
        assert later.contexts[rule] == pytest.approx([rows.mean() for rows in by.values()])
        lowest = min(by, key=lambda label: by[label].mean())
        assert (later.of(rule)["lowest_in"], later.of(rule)["lowest_rows"]) == (lowest, len(by[lowest]))
        assert later.of(rule)["lowest_profit"] == pytest.approx(by[lowest].mean())


def test_shuffled_periods_are_all_rows_and_later_ones_those_after_the_first_cut():
    backtest = judged(*world(), cuts=3)
    assert backtest.shuffled.n_rows == backtest.shuffled.contexts["rows"].sum() == 300
    assert backtest.later.n_rows == backtest.later.contexts["rows"].sum() == 225


def test_the_order_of_rows_does_not_matter():
    demand, weather, days = world()
    order = np.random.default_rng(1).permutation(len(demand))
    one, other = (judged(demand[at], weather[at], days[at]).later.methods for at in (np.arange(300), order))
    for name in ("profit", "gain", "gain_low", "lowest_profit"):
        assert one[name] == pytest.approx(other[name], abs=1e-9)


def test_products_earn_together_what_they_earn_apart():
    demand, weather, days = world()
    both = {"demand": np.tile(demand, 2) * np.repeat([1.0, 2.0], 300), "contexts": np.tile(weather, 2)}
    plan = plan_stock(**both, products=np.repeat(["a", "b"], 300), time=np.tile(days, 2), cuts=2, **TERMS)
    together, alone = plan.backtest.later, judged(demand, weather, days).later
    for rule in JUDGED:
        # Twice the demand earns twice as much.
        assert together.of(rule)["profit"] == pytest.approx(3.0 * alone.of(rule)["profit"]), rule
        assert together.of(rule)["gain_low"] == pytest.approx(3.0 * alone.of(rule)["gain_low"], rel=0.05, abs=1e-9)
    assert together.products["erm"][1] == pytest.approx(2.0 * together.products["erm"][0])
    assert together.n_units == alone.n_units


def test_a_capacity_that_is_never_reached_changes_nothing_and_a_small_one_holds():
    demand, weather, days = world(n=120)
    data = {"demand": np.tile(demand, 2), "contexts": np.tile(weather, 2), "products": np.repeat(["a", "b"], 120)}
    data |= {"time": np.tile(days, 2), "cuts": 1, **TERMS}
    free, roomy, tight = (plan_stock(**data, capacity=room).backtest.later for room in (None, 1e6, 20.0))
    assert roomy.methods["profit"] == pytest.approx(free.methods["profit"])
    # Twenty units, all of which are sold.
    assert tight.methods["profit"].max() <= 20.0 * (PRICE - COST) + 1e-9
    assert tight.of("per-context")["profit"] >= tight.of("erm")["profit"] - 1e-9


def test_what_knowing_the_context_is_worth_is_found_within_its_error():
    # Normal demand: the best order of a context, and what any order earns there, are known.
    fractile = (PRICE - COST) / (PRICE - SALVAGE)
    means, shares = np.array([40.0, 25.0, 30.0]), np.array([0.6, 0.3, 0.1])

    def expected(order):
        z = (order - means) / 4.0
        left_over = 4.0 * (norm.pdf(z) + z * norm.cdf(z))
        return (PRICE - COST) * order - (PRICE - SALVAGE) * left_over

    grid = np.linspace(20.0, 50.0, 3001)
    plain = max(shares @ expected(order) for order in grid)
    truth = shares @ expected(means + 4.0 * norm.ppf(fractile)) - plain
    gains = [judged(*world(seed, n=1500), cuts=1).later.of("per-context") for seed in range(5)]
    error = np.array([row["gain_high"] - row["gain_low"] for row in gains]) / (2 * 1.96)
    z = (np.array([row["gain"] for row in gains]) - truth) / error
    assert np.abs(z).max() < 3.5
    assert abs(z.sum()) / np.sqrt(5) < 3.0


def test_demand_that_moves_makes_orders_stale():
    demand, weather, days = world(n=600, drift=-0.7)
    backtest = judged(demand, weather, days)
    assert backtest.later.of("erm")["profit"] < 0.95 * backtest.plain_on_later_rows
    assert "demand moves, or the past is too short" in backtest.agreement
    assert "agree" in judged(*world(n=600)).agreement


def test_gains_that_do_not_carry_over_are_said():
    # Wet days were few and quiet, then many and busy: from the past one guards against the wrong thing.
    demand, weather, days = world(n=600, means=(40.0, 40.0, 40.0))
    weather = np.where(np.arange(600) % np.where(np.arange(600) < 300, 30, 5) == 0, "wet", "dry")
    wet = weather == "wet"
    demand[wet] += np.where(np.arange(600) < 300, -30.0, 30.0)[wet]
    backtest = judged(demand, weather, days, cuts=1, radius=1.0)
    signs = [np.sign(one.of("robust")["mix_missed_change"]) for one in (backtest.shuffled, backtest.later)]
    assert signs == [-1, 1]
    assert "turned into losses" in backtest.agreement


def test_the_same_order_is_no_difference():
    demand, _, days = world()
    backtest = judged(demand, np.repeat("dry", 300), days)
    assert backtest.later.of("robust")["gain"] == 0.0
    assert "the orders earn the same" in backtest.profit
    assert backtest.recommendation() == ""


def test_what_is_known_when_ordering_is_recommended():
    backtest = judged(*world())
    assert backtest.recommendation("weather", "weather is known when ordering").startswith("Order by weather")
    assert backtest.advice("weather").startswith("If weather is known when ordering: one order per weather earns ")
    assert "EUR per day in later periods" in backtest.advice("weather")


def test_new_contexts_are_served_by_the_plain_order_and_new_products_left_out():
    demand, weather, days = world()
    weather = weather.astype(object)
    weather[250:] = "storm"
    later = judged(demand, weather, days, cuts=1).later
    (storm,) = later.contexts.where(context="storm").rows()
    assert storm["rows"] == 50
    assert storm["per-context"] == storm["erm"]
    product = np.where(np.arange(300) < 250, "old", "new")
    backtest = judged(demand, weather, days, products=product, cuts=1)
    assert "50 rows were not judged" in " ".join(backtest.notes)
    later = backtest.later
    assert later.products["product"].tolist() == ["old"]
    assert later.n_rows == 100


def test_without_time_only_shuffled_periods_are_judged():
    demand, weather, _ = world()
    assert plan_stock(demand, contexts=weather, **TERMS).backtest is None
    backtest = plan_stock(demand, contexts=weather, validate=True, **TERMS).backtest
    assert backtest.later is None
    assert backtest.final.n_rows == 300
    assert backtest.agreement == ""


def test_rows_of_a_group_count_as_one():
    demand, weather, days = world()
    apart = plan_stock(demand, contexts=weather, validate=True, **TERMS).backtest.final
    doubled = {"demand": np.repeat(demand, 2), "contexts": np.repeat(weather, 2), "groups": np.repeat(days, 2)}
    grouped = plan_stock(**doubled, validate=True, **TERMS).backtest.final
    assert (apart.n_units, grouped.n_units, grouped.n_rows) == (300, 300, 600)
    width = [one.of("per-context")["gain_high"] - one.of("per-context")["gain_low"] for one in (apart, grouped)]
    assert width[1] == pytest.approx(width[0], rel=0.1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"time": np.zeros(300)}, "the same time"),
        ({"cuts": 400}, "too few for 400 cuts"),
        ({"gap": 1000}, "leaves no rows"),
        ({"time": np.arange(10)}, "10 time labels for 300 rows"),
    ],
)
def test_times_that_cannot_be_cut_are_refused(changes, words):
    demand, weather, days = world()
    with pytest.raises(InvalidInputError, match=words):
        plan_stock(demand, contexts=weather, **TERMS | {"time": days} | changes)
