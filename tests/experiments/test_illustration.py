"""The two-context example: its levels, curves, intervals and contours, against a fine search."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from counterpoise.experiments.illustration import LEVELS, Illustration
from counterpoise.experiments.results import Results

LEVEL = np.linspace(10.0, 40.0, 301)


@pytest.fixture(scope="module")
def results():
    return Results(tuple(Illustration().rows(seed=0)))


@pytest.fixture(scope="module")
def market():
    return Illustration().market


def series(results, method, metric):
    return results.series("illustration", method, metric)


def binary_radius(confidence, n=20, n_contexts=2):
    return (n_contexts * np.log2(n + 1) - np.log2(1.0 - confidence)) / n if confidence < 1 else np.inf


def divergence(p_hat, p):
    return p_hat * np.log2(p_hat / p) + (1.0 - p_hat) * np.log2((1.0 - p_hat) / (1.0 - p))


@pytest.mark.parametrize(
    ("method", "metric", "level"),
    [
        ("context-1", "best-level", 20.0),
        ("context-2", "best-level", 30.0),
        ("minimax-risk", "level", 20.0),
        ("erm", "level", 20.2),
        ("90%", "robust-level", 23.1),
        ("99%", "robust-level", 25.0),
        ("100%", "robust-level", 25.0),
    ],
)
def test_levels_are_those_of_the_text(results, method, metric, level):
    assert series(results, method, metric) == pytest.approx([level], abs=0.05)


def test_levels_minimise_what_they_claim_to(results, market):
    def least(objective):
        found = minimize_scalar(objective, bounds=(15.0, 35.0), method="bounded", options={"xatol": 1e-9})
        return found.fun

    share = np.array([0.95, 0.05])
    assert market.risks(series(results, "erm", "level")[0]) @ share == pytest.approx(
        least(lambda level: market.risks(level) @ share), abs=1e-6
    )
    assert market.risks(series(results, "minimax-risk", "level")[0]).max() == pytest.approx(
        least(lambda level: market.risks(level).max()), abs=1e-5
    )
    for name, confidence in LEVELS.items():
        grid = np.linspace(1e-6, 1.0 - 1e-6, 20_001)
        inside = grid[divergence(0.95, grid) <= binary_radius(confidence)]
        ends = np.array([inside[0], inside[-1]]) if confidence < 1 else np.array([0.0, 1.0])

        def worst(level, ends=ends):
            excess = market.excess(level)
            return np.max(ends * excess[0] + (1.0 - ends) * excess[1])

        # The mix is binary, so the worst is at an end of its interval.
        assert worst(series(results, name, "robust-level")[0]) == pytest.approx(least(worst), abs=5e-3)


def test_minimax_regret_is_where_the_excess_risks_agree(results, market):
    excess = market.excess(series(results, "100%", "robust-level")[0])
    assert excess[0] == pytest.approx(excess[1], rel=1e-5)


@pytest.mark.parametrize("context", [0, 1])
def test_risks_are_the_mean_of_a_million_draws(market, context):
    rng = np.random.default_rng(context)
    cost = 5.0 * np.exp(0.25 * rng.standard_normal(1_000_000))
    demand = rng.normal(cost + (15.0, 25.0)[context], 2.0)
    for level in (18.0, 25.0):
        losses = level * cost - 10.0 * np.minimum(level, demand)
        assert abs(market.risks(level)[context] - losses.mean()) < 3.0 * losses.std() / 1000.0


def test_curves_are_risks_over_the_levels_and_mixes_of_them(results, market):
    risks = np.array([market.risks(level) for level in LEVEL])
    assert series(results, "curves", "level") == pytest.approx(LEVEL)
    for c in (0, 1):
        assert series(results, f"context-{c + 1}", "risk") == pytest.approx(risks[:, c])
        excess = series(results, f"context-{c + 1}", "excess")
        assert excess.min() == pytest.approx(0.0, abs=0.01)
        assert excess.min() >= 0.0
        assert LEVEL[excess.argmin()] == pytest.approx(market.best_levels[c], abs=0.1)
    for name, p in (("p'", [0.9, 0.1]), ("p''", [0.2, 0.8])):
        assert series(results, name, "risk") == pytest.approx(risks @ p)
        best = series(results, name, "best-level")[0]
        assert best == pytest.approx(LEVEL[series(results, name, "excess").argmin()], abs=0.1)


def test_intervals_nest_shrink_and_reach_the_radius_at_their_ends(results):
    n = series(results, "intervals", "n")
    low = {name: series(results, name, "low") for name in LEVELS}
    high = {name: series(results, name, "high") for name in LEVELS}
    assert np.all((low["100%"] == 0.0) & (high["100%"] == 1.0))
    assert np.all((low["99%"] <= low["90%"]) & (high["90%"] <= high["99%"]))
    width = high["99%"] - low["99%"]
    assert width[-1] < 0.1 < 0.5 < width[0]
    assert np.all((low["99%"] < 0.95) & (high["99%"] > 0.95))
    # Solve for the share at the lower end: its divergence is the radius.
    for k in (20, 40, len(n) - 1):
        radius = binary_radius(0.9, n[k])
        shares = np.arange(n[k] + 1) / n[k]
        candidates = shares[(shares > 0) & (shares < 1)]
        gaps = np.abs(divergence(candidates, low["90%"][k]) - radius)
        p_hat = candidates[gaps.argmin()]
        assert gaps.min() < 1e-6
        assert divergence(p_hat, high["90%"][k]) == pytest.approx(radius, rel=1e-6)


def test_contours_are_the_excess_of_a_level_under_a_mix(results, market):
    level, share = series(results, "contours", "level"), series(results, "contours", "share")
    grid = series(results, "contours", "excess").reshape(len(share), len(level))
    for i, j in ((0, 0), (50, 80), (100, 160), (95, 30)):
        excess = market.excess(level[j])
        assert grid[i, j] == pytest.approx(share[i] * excess[0] + (1.0 - share[i]) * excess[1])


@pytest.mark.parametrize("name", LEVELS)
def test_least_favourable_shares_are_at_the_end_of_the_set_that_hurts(results, market, name):
    level, worst = series(results, "contours", "level"), series(results, name, "least-favourable-share")
    excess = np.array([market.excess(one) for one in level])
    first_hurts = excess[:, 0] > excess[:, 1]
    assert np.all(worst[first_hurts] > 0.95)
    assert np.all(worst[~first_hurts] < 0.95)
    if name == "100%":
        assert set(worst) <= {0.0, 1.0}
    else:
        assert divergence(0.95, worst) == pytest.approx(np.full(len(worst), binary_radius(LEVELS[name])), rel=1e-6)


def test_the_data_are_ninety_and_ten_and_follow_the_seed(results):
    assert len(series(results, "context-1", "cost")) == 90
    assert len(series(results, "context-2", "demand")) == 10
    again, other = (Results(tuple(Illustration()._data(seed))) for seed in (0, 1))
    assert np.array_equal(series(again, "context-1", "cost"), series(results, "context-1", "cost"))
    assert not np.array_equal(series(other, "context-1", "cost"), series(results, "context-1", "cost"))
    above = series(results, "context-1", "demand") - series(results, "context-1", "cost")
    assert above.mean() == pytest.approx(15.0, abs=4 * 2 / np.sqrt(90))
