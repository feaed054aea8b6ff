"""Stock control: true risks against brute force, and the medians that reproduce the paper's figure."""

from typing import ClassVar

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from counterpoise import RobustNewsvendor
from counterpoise.experiments._base import SWITCHES, balanced, generator
from counterpoise.experiments.stock_control import StockControl, ten_contexts

RUNS = 60
MEDIANS = {"robust": (62.3, 28.5), "erm": (107.0, 22.8), "minimax-risk": (84.0, 24.4)}


class Three(StockControl):
    """The methods of the paper."""

    methods: ClassVar[tuple[str, ...]] = tuple(MEDIANS)


@pytest.fixture(scope="module")
def table():
    rows = [row for k in range(RUNS) for row in Three().run(k, seed=0)]
    return {
        (method, metric): np.array([row.value for row in rows if (row.method, row.metric) == (method, metric)])
        for method in MEDIANS
        for metric in ("worst", "nominal", "level")
    }


@pytest.mark.parametrize("method", MEDIANS)
@pytest.mark.parametrize("metric", ["worst", "nominal"])
def test_medians_are_those_of_a_thousand_runs_within_monte_carlo_error(table, method, metric):
    values, expected = table[method, metric], MEDIANS[method][metric == "nominal"]
    resampled = np.random.default_rng(0).choice(values, (2000, RUNS))
    error = np.median(resampled, axis=1).std()
    # Printed with one digit after the point.
    assert abs(np.median(values) - expected) < 3.0 * error + 0.05
    assert error < 0.05 * expected


def test_robust_is_ahead_in_the_worst_case_and_pays_on_average(table):
    assert np.all(table["robust", "worst"] < table["erm", "worst"])
    assert np.median(table["robust", "worst"]) < np.median(table["minimax-risk", "worst"])
    assert np.all(table["robust", "nominal"] > table["erm", "nominal"])


def test_the_capacity_never_binds(table):
    assert max(table[method, "level"].max() for method in MEDIANS) < 0.9 * ten_contexts().max_stock


def simulated(context, n, rng):
    """Draw from the paper's description, apart from the code under test."""
    share = context / 9.0
    mean_cost = 6.0 * share + 1.0
    cost = rng.lognormal(np.log(mean_cost) - 0.25**2 / 2, 0.25, n)
    return cost, rng.normal((6.9 * share + 0.1) * cost + 15.0 * share + 15.0, 2.0)


@pytest.mark.parametrize("context", [0, 4, 9])
def test_risks_are_the_mean_of_a_million_draws(context):
    cost, demand = simulated(context, 1_000_000, np.random.default_rng(context))
    for level in (12.0, 21.0, 45.0):
        losses = level * cost - 10.0 * np.minimum(level, demand)
        error = losses.std() / 1000.0
        assert abs(ten_contexts().risks(level)[context] - losses.mean()) < 3.0 * error


@pytest.mark.parametrize("context", [0, 9])
def test_draws_have_the_stated_moments(context):
    n = 200_000
    cost, demand = ten_contexts().draw(np.full(n, context), np.random.default_rng(1))
    own_cost, own_demand = simulated(context, n, np.random.default_rng(2))
    for drawn, own in ((cost, own_cost), (demand, own_demand)):
        assert abs(drawn.mean() - own.mean()) < 5.0 * own.std() / np.sqrt(n)
        assert drawn.std() == pytest.approx(own.std(), rel=0.02)
    assert cost.mean() == pytest.approx(6.0 * context / 9.0 + 1.0, rel=5e-3)
    market = ten_contexts()
    left = demand - market.slope[context] * cost - market.base[context]
    assert left.var() == pytest.approx(4.0, rel=0.02)
    assert abs(np.corrcoef(left, cost)[0, 1]) < 0.01


def test_no_level_beats_the_best_of_a_context():
    market = ten_contexts()
    for c in range(10):
        found = minimize_scalar(
            lambda level, c=c: market.risks(level)[c], bounds=(0, 100), method="bounded", options={"xatol": 1e-9}
        )
        assert market.least_risks[c] == pytest.approx(found.fun, abs=1e-9)
        assert market.best_levels[c] == pytest.approx(found.x, abs=1e-4)
    assert min(market.excess(level).min() for level in np.linspace(0.0, 100.0, 101)) >= 0.0


def test_judging_takes_the_worst_context_and_the_true_mix():
    study = StockControl()
    judged = study.evaluate(25.0)
    excess = study.market.risks(25.0) - study.market.least_risks
    assert judged["worst"] == excess.max()
    assert judged["nominal"] == pytest.approx(0.7 * excess[0] + 0.3 / 9.0 * excess[1:].sum())
    assert judged["level"] == 25.0


def test_contexts_come_in_the_stated_mix():
    study = StockControl(n_samples=100_000)
    shares = np.bincount(study.sample(np.random.default_rng(0)).contexts, minlength=10) / 100_000
    assert shares[0] == pytest.approx(0.7, abs=0.005)
    assert shares[1:] == pytest.approx(np.full(9, 0.3 / 9.0), abs=0.003)


def test_inverse_frequency_weighs_every_context_alike():
    study = StockControl()
    data = study.sample(generator(0, study.name, 3))
    weight = balanced(data.contexts)
    totals = np.bincount(data.contexts, weight)
    assert totals == pytest.approx(np.full(10, 40.0))
    level = study.fit("inverse-frequency", data, generator(0, "unused"))

    def mean_of_means(one):
        losses = one * data.cost - 10.0 * np.minimum(one, data.demand)
        return np.mean([losses[data.contexts == c].mean() for c in range(10)])

    assert mean_of_means(level) == pytest.approx(min(mean_of_means(one) for one in data.demand), abs=1e-9)


@pytest.mark.parametrize("method", SWITCHES)
def test_every_method_decides_within_the_range_of_the_best_levels(method):
    study = StockControl()
    data = study.sample(generator(0, study.name, 1))
    level = study.fit(method, data, generator(0, "unused"))
    assert study.market.best_levels.min() - 1.0 < level < study.market.best_levels.max()


def test_the_weights_of_the_least_favourable_mix_exceed_one_in_every_run():
    # The paper says they are at most 1.
    study = StockControl()
    for k in range(5):
        data = study.sample(generator(0, study.name, k))
        model = RobustNewsvendor(10.0, max_stock=100.0).fit(data.cost, data.demand, data.contexts)
        p_hat = np.bincount(data.contexts) / 400.0
        w = model.context_weights_ / p_hat - 1.0
        assert w.max() > 1.0
        assert np.all((w > -1.0) & (w < 1.0 / p_hat - 1.0))


def test_the_picture_is_the_data_of_the_first_run():
    study = StockControl()
    data = study.sample(generator(5, study.name, 0))
    rows = study.picture(5)
    assert len(rows) == 800
    drawn = [row.value for row in rows if (row.method, row.metric) == ("context-2", "demand")]
    assert drawn == data.demand[data.contexts == 1].tolist()


def test_facts_are_the_best_levels():
    facts = StockControl().facts()
    assert [row.value for row in facts] == pytest.approx(ten_contexts().best_levels)
    assert {row.metric for row in facts} == {"best-level"}
