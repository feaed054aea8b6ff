"""Sets with bounds, a census or another distance on the page, and bounds of a share that can be moved."""

import numpy as np
import pytest
from sklearn.base import clone

from counterpoise import Mix, RobustLinearRegression, ShareBounds
from counterpoise.reports.explorer import Explorer, stock_sweep, sweep
from counterpoise.reports.explorer.bounds import MOST_CONTEXTS
from tests.reports.explorer.examples import data_in, noisy_lines, plan

LINES = noisy_lines(3)


def explored(mix, **switches):
    return sweep(RobustLinearRegression(mix=mix, **switches), *LINES, levels=4, cv=None)


@pytest.fixture(scope="module")
def page():
    return explored(Mix(bounds={2: (0.2, 0.4)}))


def test_moved_bounds_are_fits_with_these_bounds(page):
    data = data_in(Explorer(page).html)
    assert [one["context"] for one in data["bounds"]] == [0, 1, 2]
    base = page.levels.mixes[page.levels.chosen]
    for one in data["bounds"]:
        c = one["context"]
        assert one["low_places"][0] == one["high_places"][-1] == data["chosen"]
        for k, (value, place) in enumerate(zip(one["lows"], one["low_places"], strict=True)):
            assert data["low"][place][c] == pytest.approx(value, abs=1e-6)
            if k == 2:
                low = np.zeros(3)
                low[c] = value
                model = RobustLinearRegression(mix=base & ShareBounds(low, np.ones(3))).fit(
                    *LINES[:2], contexts=LINES[2]
                )
                own = data["criteria"]["excess"]
                assert own["objective"][place] == pytest.approx(model.certificate_.upper, rel=1e-4)
        for value, place in zip(one["highs"], one["high_places"], strict=True):
            assert data["high"][place][c] == pytest.approx(value, abs=1e-6)


def test_every_place_is_certified_and_within_its_set(page):
    for own in page.by_criterion.values():
        assert len(own.weights) == len(page.intervals)
        assert (own.weights >= page.intervals[:, :, 0] - 1e-6).all()
        assert (own.weights <= page.intervals[:, :, 1] + 1e-6).all()
        assert (own.gaps <= 1e-3 * np.abs(own.nominal)).all()


def test_bounds_hold_at_every_level_but_that_of_the_data(page):
    assert (page.intervals[1:, 2, 0] >= 0.2 - 1e-9).all()
    assert (page.intervals[1:, 2, 1] <= 0.4 + 1e-9).all()
    assert page.levels.largest == "every mix within the bounds"
    assert page.levels.words("types")[-1] == "every mix within the bounds"


def test_where_bounds_exclude_the_data_the_smallest_set_comes_after_it():
    found = explored({2: (0.5, 0.6)}, confidence=1.0)
    levels = found.levels
    assert levels.apart
    np.testing.assert_allclose(found.intervals[0, :, 0], found.shares)
    # The nearest mix to equal shares with a half for one of them is a quarter for the others.
    nearest = -np.mean(np.log2(3.0 * np.array([0.25, 0.25, 0.5])))
    assert nearest <= levels.radii[1] <= 1.01 * nearest
    assert (np.diff(levels.radii[1:]) > 0).all()
    assert all(place > 0 for own in levels.stops.values() for place in own.values())
    plain = RobustLinearRegression(radius=0.0).fit(*LINES[:2], contexts=LINES[2])
    np.testing.assert_allclose(found.by_criterion["risk"].risks[0], plain.context_risks_, rtol=1e-5)


@pytest.mark.parametrize("ball", ["kl", "chi2", "tv"])
def test_a_census_of_any_distance_has_a_page(ball):
    found = explored(Mix(counts={0: 10, 1: 20, 2: 70}, ball=ball, source="census.csv"))
    assert found.levels.source == "census.csv"
    np.testing.assert_allclose(found.intervals[0, :, 1], found.shares)
    np.testing.assert_allclose(found.intervals[1, :, 1], [0.1, 0.2, 0.7])
    html = Explorer(found).html
    assert data_in(html)["source"] == "census.csv"
    assert "word: the certificate is about optimisation over the set" in html
    assert all(words for words in found.levels.words("types"))


@pytest.mark.usefixtures("few_levels")
def test_orders_with_bounds():
    made = plan(mix={"rain": (0.2, 0.4)})
    found = stock_sweep(made.plans[0], made.money, levels=4)
    assert found.decision.orders["excess"][found.levels.chosen] == made.plans[0].order
    assert len(found.decision.orders["excess"]) == len(found.intervals)
    assert {grid.context for grid in found.grids} == {0, 1, 2, 3}


def test_many_contexts_are_not_bounded_and_the_page_says_why():
    X, y, c = noisy_lines(MOST_CONTEXTS + 1)
    found = sweep(RobustLinearRegression(), X, y, c, levels=2, cv=None)
    assert not found.grids
    assert len(found.intervals) == len(found.levels.radii)
    assert f"With {MOST_CONTEXTS + 1} contexts, bounds of shares cannot be moved here" in Explorer(found).html


def test_a_set_without_a_radius_is_refused():
    with pytest.raises(ValueError, match="one ball"):
        explored(Mix(bounds={2: (0.2, 0.4)}, ball=None))


def test_the_model_is_left_alone():
    model = RobustLinearRegression(mix={2: (0.2, 0.4)})
    before = clone(model).get_params()
    sweep(model, *LINES, levels=2, cv=None)
    assert model.get_params() == before
