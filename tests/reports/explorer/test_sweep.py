import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, PolynomialFeatures, StandardScaler

from counterpoise import (
    KLBall,
    RobustLinearRegression,
    RobustLogisticRegression,
    RobustNewsvendor,
    RobustPoissonRegressor,
    confidence_path,
    confidence_radius,
)
from counterpoise.exceptions import InvalidInputError
from counterpoise.reports.explorer import stock_sweep, sweep
from counterpoise.reports.explorer.decision import MOST_ROWS
from counterpoise.reports.explorer.levels import METHODS, STOPS
from counterpoise.sets import implied_confidence
from tests.reports.explorer.examples import boundary, few_steps, noisy_lines, plan, stock, two_classes


@pytest.fixture(autouse=True, scope="module")
def bounds_of_few_steps():
    with few_steps():
        yield


@pytest.mark.parametrize("criterion", ["excess", "risk"])
def test_numbers_are_those_of_confidence_path(criterion):
    found = boundary()
    model = make_pipeline(StandardScaler(), RobustLogisticRegression(radius="agrawal", criterion=criterion))
    path = confidence_path(model, *two_classes(), radii=found.levels.radii.tolist())
    own, n = found.by_criterion[criterion], len(found.levels.radii)
    np.testing.assert_array_equal(found.contexts, path.contexts)
    np.testing.assert_array_equal(found.levels.radii, path["radius"])
    np.testing.assert_array_equal(own.weights[:n], path.context_weights)
    np.testing.assert_array_equal(own.risks[:n], path.risks)
    np.testing.assert_array_equal(own.excess[:n], path.excess_risks)
    np.testing.assert_array_equal(own.nominal[:n], path["nominal_risk"])
    np.testing.assert_array_equal(own.worst[:n], path[f"worst_{criterion}"])
    np.testing.assert_array_equal(own.objective[:n], path["objective"])
    np.testing.assert_array_equal(own.gaps[:n], path["gap"])
    np.testing.assert_array_equal(own.values[np.arange(len(own.worst)), own.worst_contexts], own.worst)


def test_ladder_reaches_from_the_mix_of_the_data_to_every_mix_with_exact_stops():
    found = boundary()
    levels = found.levels
    assert levels.radii[0] == 0.0
    assert math.isinf(levels.radii[-1])
    assert (np.diff(levels.radii) > 0).all()
    for method in METHODS:
        for confidence in STOPS:
            k = levels.stops[method][confidence]
            assert levels.radii[k] == confidence_radius(found.counts, confidence, method)
            assert levels.words(method)[k] == f"{100 * confidence:g}% by {method}"
            assert levels.leads(method)[k] == f"At {100 * confidence:g}%"
        assert levels.confidences[method].tolist() == [
            implied_confidence(radius, found.counts, method) for radius in levels.radii
        ]
        assert levels.words(method)[0] == "erm"
        assert levels.words(method)[-1] == "every mix"
    assert levels.radii[levels.chosen] == confidence_radius(found.counts, 0.99, "agrawal")
    assert "below 50%" in levels.words("types")
    assert "above 99.9%" in levels.words("chi2")


def test_chosen_radius_in_bits_is_a_level():
    X, y, c = noisy_lines(3)
    found = sweep(RobustLinearRegression(radius=0.1234, criterion="risk"), X, y, c, levels=3, cv=None)
    assert found.levels.radii[found.levels.chosen] == 0.1234
    assert (found.levels.method, found.criterion) == ("types", "risk")
    sure = sweep(RobustLinearRegression(confidence=1.0), X, y, c, levels=3, cv=None)
    assert sure.levels.chosen == len(sure.levels.radii) - 1


def test_intervals_are_those_of_the_ball():
    found = boundary()
    for k, radius in enumerate(found.levels.radii):
        ball = KLBall(found.shares, radius)
        np.testing.assert_allclose(found.intervals[k], [ball.interval(c) for c in range(3)], atol=1e-15)
    inside = found.by_criterion["excess"].weights
    assert (inside >= found.intervals[:, :, 0] - 1e-9).all()
    assert (inside <= found.intervals[:, :, 1] + 1e-9).all()


@pytest.mark.parametrize("criterion", ["excess", "risk"])
def test_orders_are_those_of_robust_newsvendor(criterion):
    found, rng = stock(), np.random.default_rng(1)
    c = rng.choice(4, 200, p=[0.5, 0.3, 0.15, 0.05])
    demand = rng.normal(np.array([40.0, 55.0, 25.0, 90.0])[c], 6.0).clip(0.0)
    own = found.by_criterion[criterion]
    for k, radius in enumerate(found.levels.radii):
        fit = RobustNewsvendor(10.0, radius=float(radius), criterion=criterion)
        fit.fit(4.0, demand, contexts=np.array(["sun", "cloud", "rain", "fair"])[c])
        assert found.decision.orders[criterion][k] == fit.stock_level_
        np.testing.assert_array_equal(own.risks[k], fit.context_risks_)
        np.testing.assert_array_equal(own.excess[k], fit.excess_risks_)
        np.testing.assert_array_equal(own.weights[k], fit.context_weights_)
        np.testing.assert_allclose(own.objective[k], fit.certificate_.upper, rtol=1e-14)


def test_order_at_the_level_of_a_plan_is_the_plans_own():
    rng = np.random.default_rng(3)
    c, product = rng.choice(2, 300), rng.choice(2, 300)
    from counterpoise import plan_stock

    made = plan_stock(
        rng.uniform(10.0, 30.0, 300) + 15.0 * c * product,
        cost=4.0, price=10.0, contexts=c, products=product, capacity=30.0, integer=True,
    )  # fmt: skip
    for one in made.plans:
        found = stock_sweep(one, made.money, levels=3)
        own = found.by_criterion["excess"]
        assert found.decision.orders["excess"][found.levels.chosen] == one.order
        np.testing.assert_array_equal(own.excess[found.levels.chosen], one.excess(one.order))


def test_curves_of_stock_pass_through_the_best_orders():
    found = stock()
    one = plan().plans[0]
    for c, best in enumerate(one.stock.context_levels):
        assert found.decision.curves[found.decision.grid == best, c].tolist() == [0.0]


def as_kind(X, kind):
    tables = {
        "numpy": lambda: X.to_numpy(),
        "pandas": lambda: X,
        "polars": lambda: pl.DataFrame({name: X[name].to_numpy() for name in X}),
        "pyarrow": lambda: pa.table({name: X[name].to_numpy() for name in X}),
    }
    return tables[kind]()


@pytest.mark.parametrize("kind", ["numpy", "pandas", "polars", "pyarrow"])
def test_boundary_is_recovered_in_the_units_of_the_data(kind):
    X, y, c = two_classes()
    model = make_pipeline(StandardScaler(), RobustLogisticRegression(radius="agrawal"))
    given = as_kind(X, kind)
    decision = sweep(model, given, y, c, levels=3, cv=None).decision
    assert decision.features == (("x1", "x2") if kind == "numpy" else ("age", "creatinine"))
    assert decision.classes == ("ill", "well")
    fitted = make_pipeline(StandardScaler(), RobustLogisticRegression(radius=0.0))
    fitted.fit(given, y, robustlogisticregression__contexts=c)
    rows = X.to_numpy()
    answers = rows @ decision.slopes["excess"][0] + decision.intercepts["excess"][0]
    np.testing.assert_allclose(answers, fitted.decision_function(given), atol=1e-5)


def test_bare_model_has_its_coefficients():
    X, y, c = noisy_lines(3)
    found = sweep(RobustLinearRegression(), X, y, c, levels=3, cv=None)
    path = confidence_path(RobustLinearRegression(), X, y, c, radii=found.levels.radii.tolist())
    slopes, intercepts = ([getattr(model, name) for model in path.models] for name in ("coef_", "intercept_"))
    np.testing.assert_allclose(found.decision.slopes["excess"][: len(slopes)], slopes, rtol=1e-10)
    np.testing.assert_allclose(found.decision.intercepts["excess"][: len(slopes)], intercepts, rtol=1e-10)


def test_far_from_the_origin_nothing_cancels():
    X, y, c = noisy_lines(3)
    model = make_pipeline(StandardScaler(), RobustLinearRegression())
    near, far = (sweep(model, X + shift, y, c, levels=2, cv=None).decision for shift in (0.0, 1e7))
    np.testing.assert_allclose(far.slopes["excess"], near.slopes["excess"], rtol=1e-6)


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
def test_counts_have_a_log_link():
    X, _, c = noisy_lines(2)
    y = np.random.default_rng(0).poisson(np.exp(0.2 * X[:, 0]))
    decision = sweep(RobustPoissonRegressor(), X, y, c, levels=2, cv=None).decision
    assert decision.link == "log"


def three_features():
    X, y, c = noisy_lines(2, n_features=3)
    return RobustLinearRegression(), X, y, c


def not_affine():
    X, y, c = noisy_lines(2)
    return make_pipeline(PolynomialFeatures(3), StandardScaler(), RobustLinearRegression()), X, y, c


def binned():
    X, y, c = noisy_lines(2)
    bins = KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf")
    return make_pipeline(bins, RobustLinearRegression()), X, y, c


def three_classes():
    X, _, c = noisy_lines(2)
    return RobustLogisticRegression(), X, np.digitize(X[:, 0], [3.0, 6.0]), c


def two_features_and_a_number():
    X, y, c = noisy_lines(2, n_features=2)
    return RobustLinearRegression(), X, y, c


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
@pytest.mark.parametrize("case", [three_features, not_affine, binned, three_classes, two_features_and_a_number])
def test_what_cannot_be_drawn_is_left_out(case):
    assert sweep(*case(), levels=2, cv=None).decision is None


def test_rows_are_drawn_in_proportion_and_the_same_every_time():
    X, y, c = two_classes(5000)
    first, again = (sweep(RobustLogisticRegression(), X, y, c, levels=2, cv=None).decision for _ in range(2))
    assert len(first.values) == MOST_ROWS
    assert first.n_rows == 5000
    shown = np.bincount(first.codes) / MOST_ROWS
    np.testing.assert_allclose(shown, np.unique(c, return_counts=True)[1] / 5000, atol=1.5 / MOST_ROWS)
    np.testing.assert_array_equal(first.points, again.points)
    rows = {tuple(row) for row in X.to_numpy()}
    assert all(tuple(point) in rows for point in first.points)


def test_whole_weights_are_repeated_rows():
    X, y, c = noisy_lines(3, rows=40)
    weight = np.where(c == 1, 2, 1)
    weighted = sweep(RobustLinearRegression(), X, y, c, sample_weight=weight, levels=3, cv=None)
    repeated = sweep(RobustLinearRegression(), *(np.repeat(a, weight, axis=0) for a in (X, y, c)), levels=3, cv=None)
    np.testing.assert_array_equal(weighted.counts, repeated.counts)
    np.testing.assert_allclose(weighted.levels.radii, repeated.levels.radii)
    np.testing.assert_allclose(weighted.by_criterion["risk"].risks, repeated.by_criterion["risk"].risks, atol=1e-6)


def test_few_rows_for_chi2_are_said_on_the_page_and_not_warned_about():
    X, y, c = noisy_lines(12, rows=4, n_features=1)
    found = sweep(RobustLinearRegression(reference=np.zeros(12)), X, y, c, levels=2, cv=None)
    assert list(found.levels.cautions) == ["chi2"]
    assert boundary().levels.cautions == {}


def test_draws_size_the_set():
    X, y, c = noisy_lines(3)
    found = sweep(RobustLinearRegression(draws=20.0), X, y, c, levels=2, cv=None)
    radius = found.levels.radii[found.levels.stops["types"][0.9]]
    assert radius == confidence_radius(found.counts, 0.9, "types", draws=20.0)


@pytest.mark.parametrize("final", [LogisticRegression(), None])
def test_other_models_are_refused(final):
    with pytest.raises(InvalidInputError, match="needs a robust linear model"):
        sweep(final, *two_classes())


def test_one_context_and_one_level_are_refused():
    X, y, c = noisy_lines(2)
    with pytest.raises(InvalidInputError, match="nothing to explore"):
        sweep(RobustLinearRegression(), X, y, np.zeros(len(c)))
    with pytest.raises(InvalidInputError, match="two or more"):
        sweep(RobustLinearRegression(), X, y, c, levels=1, cv=None)


def test_the_model_is_left_as_it_was():
    X, y, c = noisy_lines(2)
    model = RobustLinearRegression(criterion="risk")
    sweep(model, X, pd.Series(y), c, levels=2, cv=None)
    assert not hasattr(model, "coef_")
    assert model.get_params()["criterion"] == "risk"


def test_price_is_never_below_nothing_beyond_the_gap():
    for found in (boundary(), stock()):
        for own in found.by_criterion.values():
            assert (own.prices >= -(own.gaps[0] + own.gaps)).all()
    last = len(boundary().levels.radii) - 1
    assert boundary().by_criterion["excess"].worst[last] < boundary().by_criterion["excess"].worst[0]


def test_contexts_that_agree_cost_nothing():
    X, y, _ = noisy_lines(1, rows=100)
    both = [np.concatenate([a, a]) for a in (X, y)]
    found = sweep(RobustLinearRegression(), *both, np.repeat(["a", "b"], 100), levels=4, cv=None)
    assert not any(own.paid.any() for own in found.by_criterion.values())
    assert boundary().by_criterion["excess"].paid[-1]
    assert not boundary().by_criterion["excess"].paid[0]


@pytest.mark.parametrize("wrap", [list, pd.Series, pl.Series, pa.array, pd.Categorical])
def test_targets_and_crossed_contexts_of_any_kind(wrap, monkeypatch):
    # Bounds that can be moved, for which most models are fitted, have tests of their own.
    monkeypatch.setattr("counterpoise.reports.explorer.bounds.MOST_CONTEXTS", 0)
    X, y, c = two_classes(600)
    crossed = pd.DataFrame({"place": c, "half": np.arange(600) % 2})
    found = sweep(RobustLogisticRegression(), X, wrap(y.tolist()), crossed, levels=2, cv=None)
    assert len(found.contexts) == 6
    assert set(found.decision.values) == {0.0, 1.0}


def test_text_among_the_features_is_not_drawn():
    from sklearn.compose import make_column_transformer
    from sklearn.preprocessing import OneHotEncoder

    X, y, c = two_classes(300)
    X = X.assign(creatinine=np.where(X["creatinine"] > 1.5, "high", "low"))
    encode = make_column_transformer((OneHotEncoder(), ["creatinine"]), remainder=StandardScaler())
    assert sweep(make_pipeline(encode, RobustLogisticRegression()), X, y, c, levels=2, cv=None).decision is None


def test_categories_coded_as_numbers_are_not_drawn():
    from sklearn.preprocessing import OneHotEncoder

    X, y, c = noisy_lines(2, rows=120)
    model = make_pipeline(OneHotEncoder(), RobustLinearRegression())
    assert sweep(model, np.floor(X), y, c, levels=2, cv=None).decision is None
