"""Judging where contexts overlap: a row counts in each of its contexts, and is one unit."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from counterpoise.metrics import by_context, excess_bounds, excess_difference, reference_risks

NAMES = ["everyone", "over 80", "diabetic"]
RNG = np.random.default_rng(0)
MEMBER = RNG.random((200, 3)) < [1.0, 0.4, 0.3]
X = RNG.standard_normal((200, 2))
Y = (X[:, 0] * np.where(MEMBER[:, 1], -1.0, 1.0) + X[:, 1] + RNG.logistic(size=200) > 0).astype(int)
CONTEXTS = cpo.Memberships(MEMBER, NAMES)
ROWS, CODES = np.nonzero(MEMBER)
LABELS = np.array([f"{c} {NAMES[c]}" for c in CODES])
"""In the order of the columns."""
OURS, THEIRS, OTHERS = RNG.exponential(size=(3, 200))
WEIGHT = RNG.integers(0, 3, 200).astype(float)


def same(found, usual, *ignored):
    """Compare all but the labels, up to Monte Carlo errors that the order of rows does not change."""
    for name in found:
        if name not in ("context", *ignored):
            np.testing.assert_array_equal(found[name].shape, usual[name].shape)
            if found[name].dtype.kind in "fi":
                np.testing.assert_allclose(found[name], usual[name], rtol=1e-6, atol=1e-9)


def test_bounds_are_those_of_repeated_rows_with_a_row_as_one_unit():
    found = excess_bounds(OURS, THEIRS, CONTEXTS, sample_weight=WEIGHT)
    usual = excess_bounds(OURS[ROWS], THEIRS[ROWS], LABELS, groups=ROWS, sample_weight=WEIGHT[ROWS])
    same(found.by_context, usual.by_context)
    assert (found.lower, found.upper) == pytest.approx((usual.lower, usual.upper), rel=1e-6)
    assert found.by_context["context"].tolist() == NAMES


def test_groups_of_rows_are_units_in_all_contexts():
    groups = np.arange(200) // 4
    found = excess_bounds(OURS, THEIRS, CONTEXTS, groups=groups)
    usual = excess_bounds(OURS[ROWS], THEIRS[ROWS], LABELS, groups=groups[ROWS])
    same(found.by_context, usual.by_context)


def test_differences_are_those_of_repeated_rows():
    found = excess_difference(OURS, OTHERS, THEIRS, CONTEXTS)
    usual = excess_difference(OURS[ROWS], OTHERS[ROWS], THEIRS[ROWS], LABELS, groups=ROWS)
    assert (found.lower, found.upper) == pytest.approx((usual.lower, usual.upper), rel=1e-6)


def test_a_context_given_twice_widens_no_interval():
    """Both columns err alike, so there is one comparison and not two."""
    once = excess_bounds(OURS, THEIRS, np.zeros(200))
    twice = excess_bounds(OURS, THEIRS, cpo.Memberships(np.ones((200, 2))))
    width = once.upper - once.lower
    assert (twice.lower, twice.upper) == pytest.approx((once.lower, once.upper), abs=0.05 * width)


@pytest.mark.parametrize(
    ("mix", "refused"),
    [
        ({"diabetic": (0.1, 0.3)}, True),
        (cpo.Mix(bounds={"diabetic": (0.1, 0.3)}, ball=None), False),
        (cpo.KLBall([0.5, 0.3, 0.2], 0.1), False),
    ],
)
def test_plausible_mixes_are_stated_not_sized_by_counts(mix, refused):
    if refused:
        with pytest.raises(InvalidInputError, match="contexts overlap"):
            excess_bounds(OURS, THEIRS, CONTEXTS, mix=mix)
    else:
        found = excess_bounds(OURS, THEIRS, CONTEXTS, mix=mix)
        assert found.mix_estimate <= found.estimate


def test_a_model_is_judged_in_each_context_of_a_row():
    model = LogisticRegression().fit(X, Y)
    table = by_context(model, X, Y, CONTEXTS)
    losses = -np.log(model.predict_proba(X)[np.arange(200), Y])
    assert table["context"].tolist() == NAMES
    np.testing.assert_allclose(table["risk"], [losses[MEMBER[:, c]].mean() for c in range(3)])
    np.testing.assert_array_equal(table["n"], MEMBER.sum(axis=0))


def test_scores_for_selection_look_at_each_context_of_a_row():
    model = LogisticRegression().fit(X, Y)
    risks = by_context(model, X, Y, CONTEXTS, loss="zero_one")["risk"]
    assert cpo.metrics.WorstContextScorer("zero_one")(model, X, Y, contexts=CONTEXTS) == pytest.approx(-risks.max())
    nominal = cpo.metrics.NominalScorer(loss="zero_one")(model, X, Y, contexts=CONTEXTS)
    assert nominal == pytest.approx(-np.average(risks, weights=MEMBER.sum(axis=0)))


def test_references_are_those_of_repeated_rows_held_out_together():
    splits = list(KFold(4).split(X))
    repeated = [tuple(np.flatnonzero(np.isin(ROWS, part)) for part in split) for split in splits]
    found = reference_risks(LogisticRegression(C=1e6), X, Y, CONTEXTS, cv=splits)
    usual = reference_risks(LogisticRegression(C=1e6), X[ROWS], Y[ROWS], LABELS, cv=repeated)
    assert list(found) == NAMES
    np.testing.assert_allclose(list(found.values()), list(usual.values()), rtol=1e-3)


def test_methods_are_compared():
    methods = ("robust", "erm", "inverse-frequency")
    model = make_pipeline(StandardScaler(), cpo.RobustLogisticRegression(radius=0.3, reference="cross-fit"))
    found = cpo.compare(X, Y, CONTEXTS, estimator=model, methods=methods, sample_weight=WEIGHT, cv=3)
    assert tuple(found.summary["method"]) == methods
    table = found.by_context
    np.testing.assert_array_equal(table["n"][:3], MEMBER[WEIGHT > 0].sum(axis=0))
    np.testing.assert_array_equal(table["units"][:3], MEMBER[WEIGHT > 0].sum(axis=0))
    assert np.isfinite(found.summary["mix_excess"]).all()
    assert found.mixes.p_hat == pytest.approx((WEIGHT @ MEMBER) / (WEIGHT @ MEMBER).sum())


def test_a_comparison_refuses_a_radius_that_follows_from_counts():
    with pytest.raises(InvalidInputError, match="contexts overlap"):
        cpo.compare(X, Y, CONTEXTS)


def test_held_out_losses_of_a_comparison_are_of_models_that_have_not_seen_the_row():
    """Rows that are pairs of a pattern and its label, never two alike: nothing can be known of one held out."""
    rng = np.random.default_rng(1)
    noise = rng.integers(0, 2, 200)
    model = cpo.RobustLogisticRegression(radius=0.1, alpha=1e-2, reference="cross-fit")
    member = np.column_stack([np.ones(200, dtype=bool), np.arange(200) < 150])
    found = cpo.compare(
        rng.standard_normal((200, 60)), noise, cpo.Memberships(member), estimator=model, methods=("robust", "erm"), cv=3
    )
    assert (found.by_context["risk"] > np.log(2)).all()


def test_a_path_goes_by_radii():
    model = cpo.RobustLogisticRegression(reference="cross-fit")
    path = cpo.confidence_path(model, X, Y, CONTEXTS, radii=[0.0, 0.1, np.inf])
    assert np.isnan(path["confidence"]).all()
    each = cpo.RobustLogisticRegression(reference="cross-fit", radius=0.1).fit(X, Y, contexts=CONTEXTS)
    assert path["objective"][1] == pytest.approx(each.certificate_.upper, abs=1e-6)
    with pytest.raises(InvalidInputError, match=r"contexts overlap.*Pass radii"):
        cpo.confidence_path(model, X, Y, CONTEXTS, [0.5, 0.9])


def test_rows_in_several_contexts_are_counted_once_and_have_a_report():
    model = cpo.RobustLogisticRegression(radius=0.1, reference="cross-fit")
    report = cpo.Report(model, X, Y, CONTEXTS, cv=2)
    found = report.comparison
    assert "over all 200 rows" in found.headline
    assert found.measures["n"][0] == 200
    assert "over all 200 rows" in report.html
