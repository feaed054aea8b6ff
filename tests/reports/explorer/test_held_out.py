"""Levels on held-out rows: those of models fitted without them, judged as a comparison judges methods."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from counterpoise import Mix, RobustLinearRegression, RobustLogisticRegression, compare
from counterpoise.reports.explorer import Explorer, sweep
from counterpoise.reports.explorer.held_out import HeldOutLevels
from tests.reports.explorer.examples import boundary, data_in, noisy_lines, two_classes

pytestmark = pytest.mark.usefixtures("few_draws")


def test_the_ends_and_the_level_as_fitted_are_those_of_a_comparison():
    # Sets that followed from a confidence would be larger in the folds of a comparison.
    switches = {"radius": 0.02, "reference": "pooled", "tol": 1e-8}
    model = make_pipeline(StandardScaler(), RobustLogisticRegression(**switches))
    found = sweep(model, *two_classes(), levels=2, cv=3)
    summary = compare(*two_classes(), estimator=model, cv=3).summary
    own, levels = found.held_out["excess"], found.levels
    for method, k in (("erm", 0), ("robust", levels.chosen), ("minimax-regret", len(levels.radii) - 1)):
        row = next(row for row in summary.rows() if row["method"] == method)
        for name, found_here in (("nominal_risk", own.mean), ("worst_excess", own.worst), ("mix_excess", own.mix)):
            expected = [row[name], row[f"{name}_low"], row[f"{name}_high"]]
            np.testing.assert_allclose(found_here[k], expected, rtol=1e-3, atol=1e-4)


def test_intervals_hold_their_estimates_and_the_plain_model_has_no_price():
    for own in boundary().held_out.values():
        for part in (own.mix, own.worst, own.mean, own.price):
            assert part.shape == (len(boundary().levels.radii), 3)
            assert (part[:, 1] <= part[:, 0]).all()
            assert (part[:, 0] <= part[:, 2]).all()
        np.testing.assert_array_equal(own.price[0], 0.0)
        # No mix is worse than its worst context.
        assert (own.mix[:, 0] <= own.worst[:, 0] + 1e-12).all()


def levels_of(mean, worst):
    def with_ends(values):
        return np.column_stack([values] * 3)

    nothing = with_ends(np.zeros(len(mean)))
    return HeldOutLevels(nothing, with_ends(worst), with_ends(mean), nothing, np.arange(len(mean)))


def test_beyond_the_knee_the_worst_context_gains_less_than_the_average_pays():
    mean, worst = np.array([1.0, 1.01, 1.05, 1.2]), np.array([0.5, 0.3, 0.28, 0.27])
    assert levels_of(mean, worst).knee == 1
    # Where nothing is gained, the knee is the plain model; of models that are the same, the smallest set.
    assert levels_of(mean, np.full(4, 0.5)).knee == 0
    assert levels_of(np.ones(4), np.array([0.5, 0.2, 0.2, 0.2])).knee == 1
    assert levels_of(mean, np.full(4, np.nan)).knee is None
    for own in boundary().held_out.values():
        both = own.mean[:, 0] + own.worst[:, 0]
        assert both[own.knee] == pytest.approx(both.min(), rel=1e-5)


def test_many_contexts_are_judged_at_some_levels_and_the_page_says_so():
    X, y, c = noisy_lines(150, rows=6)
    found = sweep(RobustLinearRegression(reference="pooled"), X, y, c, levels=8, cv=2)
    own = found.held_out["excess"]
    assert {0, found.levels.chosen, len(found.levels.radii) - 1} <= set(own.judged.tolist())
    assert len(own.judged) < len(found.levels.radii)
    one, other = own.judged[:2]
    between = np.linspace(own.mean[one], own.mean[other], other - one + 1)
    np.testing.assert_allclose(own.mean[one : other + 1], between)
    assert f"{len(own.judged)} of the levels are judged" in " ".join(Explorer(found).html.split())


@pytest.mark.parametrize("mix", [{2: (0.5, 0.6)}, Mix(counts={0: 10, 1: 20, 2: 70})], ids=["bounds", "census"])
def test_what_is_known_about_the_mix_holds_in_every_fold(mix):
    X, y, c = noisy_lines(3)
    found = sweep(RobustLinearRegression(mix=mix, confidence=1.0), X, y, c, levels=2, cv=2)
    own = found.held_out["excess"]
    assert found.levels.apart
    assert np.isfinite(own.worst).all()
    assert own.price[0].tolist() == [0.0, 0.0, 0.0]


def test_where_a_fold_lacks_a_context_that_has_bounds_nothing_is_held_out():
    X, y, c = noisy_lines(3, rows=30)
    kept = (c < 2) | (np.arange(len(c)) == 60)
    found = sweep(
        RobustLinearRegression(mix={2: (0.0, 0.5)}, reference="pooled"), X[kept], y[kept], c[kept], levels=2, cv=2
    )
    assert found.held_out is None
    assert data_in(Explorer(found).html)["held_out"] is None


def test_numbers_in_the_page_are_the_librarys():
    data = data_in(Explorer(boundary()).html)
    for criterion, own in boundary().held_out.items():
        read = data["held_out"][criterion]
        for name in ("mix", "worst", "mean", "price"):
            assert read[name] == getattr(own, name).tolist()
        assert read["knee"] == own.knee


def test_a_page_without_them_names_what_its_numbers_are_of():
    X, y, c = noisy_lines(3)
    page = Explorer(sweep(RobustLinearRegression(), X, y, c, levels=2, cv=None)).html
    assert data_in(page)["held_out"] is None
    assert "held-out" not in page.split("<script>")[0].split("</style>")[1]
    assert "Numbers are those of the data that the model was made from" in " ".join(page.split())
