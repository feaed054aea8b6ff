"""The path of solutions: each level against a fit of its own, and every bound against one of high accuracy."""

import functools
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import counterpoise as cpo
from counterpoise.core import drawn_path, parabolas
from counterpoise.core import path as path_module
from counterpoise.core.fit import fit_problem
from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.path import solve_path
from counterpoise.core.problem import LinearProblem
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Huber, Logistic, Multinomial, Pinball, Poisson, Squared
from counterpoise.sets import KLBall, confidence_radius
from tests.problems import make

TOL = 1e-6
RADII = np.array([0.0, 1e-4, 0.005, 0.05, 0.2, 0.6, 2.0, 8.0, math.inf])
SMOOTH = [Logistic(), Multinomial(3), Squared(), Poisson()]
KINKED = [Huber(0.8), Pinball(0.3)]

KINDS = {
    "dense": lambda X, y: (X, None),
    "sparse": lambda X, y: (sparse.csr_array(np.where(np.abs(X) < 0.5, 0.0, X)), None),
    "weighted": lambda X, y: (X, 0.25 + np.arange(len(y)) % 4),
}

every_loss = pytest.mark.parametrize("loss", SMOOTH + KINKED, ids=lambda loss: loss.name)
CASES = [(loss, "dense") for loss in SMOOTH + KINKED]
CASES += [(Poisson(), "sparse"), (Huber(0.8), "sparse"), (Multinomial(3), "sparse")]
CASES += [(Logistic(), "weighted"), (Squared(), "weighted"), (Pinball(0.3), "weighted")]
every_case = pytest.mark.parametrize(("loss", "kind"), CASES, ids=lambda part: getattr(part, "name", part))


@functools.cache
def posed(loss, kind, seed=3, criterion="excess"):
    X, y, codes = make(loss, 4, 2, seed, (30, 60))
    X, weight = KINDS[kind](X, y)
    problem = LinearProblem.from_data(X, y, codes, loss, alpha=1e-3, sample_weight=weight)
    zero = np.zeros(4)
    # The same numbers in both, so that what is compared is the solving alone.
    risks = problem.references("in-sample", 1e-8).upper if criterion == "excess" else zero
    return problem, ReferenceRisks.exactly(risks), problem.counts / problem.counts.sum()


@functools.cache
def solved(loss, kind, seed=3, criterion="excess"):
    """Return for each level its radius, the solution on the path, and one of high accuracy."""
    problem, references, centre = posed(loss, kind, seed, criterion)
    path = list(solve_path(problem, references, KLBall(centre, 0.0), RADII, TOL))
    exact = [fit_problem(problem, KLBall(centre, r), references, tol=1e-9).solution for r in RADII]
    return list(zip(RADII, path, exact, strict=True))


# --- every level --------------------------------------------------------------------------------------------


@every_case
def test_bounds_hold_against_a_fit_of_high_accuracy(loss, kind):
    for _, level, exact in solved(loss, kind):
        rounding = 1e-11 * exact.certificate.scale
        assert level.certificate.lower <= exact.certificate.upper + rounding
        assert level.certificate.upper >= exact.certificate.lower - rounding
        assert level.certificate.scope == "global"


@every_case
def test_every_level_is_as_good_as_a_fit_of_its_own(loss, kind):
    for _, level, exact in solved(loss, kind):
        asked = TOL if loss in SMOOTH else 1e-3
        # Losses with kinks have levels that are drawn between others.
        assert level.success or loss not in SMOOTH
        assert level.certificate.relative_gap <= asked
        assert abs(level.value - exact.value) <= asked * exact.certificate.scale


@every_case
def test_what_is_told_of_a_level_is_so(loss, kind):
    problem, references, centre = posed(loss, kind)
    for radius, level, _ in solved(loss, kind):
        ball = KLBall(centre, radius)
        point = problem.oracle.at(level.theta)
        np.testing.assert_allclose(level.risks, point.risks, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(level.scores, point.risks - references.upper, atol=1e-12)
        worst = ball.worst_case(level.scores).value
        assert level.value == pytest.approx(worst, rel=1e-9, abs=1e-12)
        assert level.certificate.upper == pytest.approx(worst, rel=1e-9, abs=1e-12)
        assert ball.contains(level.p_worst)


@every_loss
def test_the_distribution_of_a_level_proves_its_lower_bound(loss):
    problem, references, _ = posed(loss, "dense")
    nothing = ReferenceRisks.exactly(np.zeros(4))
    for _, level, _ in solved(loss, "dense"):
        least = fit_problem(problem, KLBall(level.p_worst, 0.0), nothing, tol=1e-9).solution.certificate.upper
        dual = least - level.p_worst @ references.upper
        allowed = TOL if loss in SMOOTH else 1e-3
        assert dual >= level.value - 2 * allowed * level.certificate.scale


@every_case
def test_objective_never_falls_along_the_path(loss, kind):
    levels = [level for _, level, _ in solved(loss, kind)]
    for one, other in pairwise(levels):
        assert other.certificate.upper >= one.certificate.lower
        slack = TOL if loss in SMOOTH else 1e-3
        assert other.value >= one.value - slack * one.certificate.scale


@every_loss
def test_the_path_begins_with_empirical_risk_and_ends_with_minimax_regret(loss):
    _, _, centre = posed(loss, "dense")
    (_, first, _), (_, last, _) = solved(loss, "dense")[0], solved(loss, "dense")[-1]
    np.testing.assert_allclose(first.p_worst, centre)
    assert first.value == pytest.approx(centre @ first.scores, abs=1e-12)
    assert last.value == pytest.approx(last.scores.max(), rel=1e-9)


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Pinball(0.3)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("seed", range(2))
def test_bounds_of_the_path_of_risk_hold_too(loss, seed):
    for _, level, exact in solved(loss, "dense", seed, "risk"):
        asked = TOL if loss in SMOOTH else 1e-3
        assert level.certificate.lower <= exact.certificate.upper + 1e-11 * exact.certificate.scale
        assert abs(level.value - exact.value) <= asked * exact.certificate.scale


@pytest.mark.parametrize("loss", KINKED, ids=lambda loss: loss.name)
@pytest.mark.parametrize("seed", [0, 1, 3])
def test_levels_that_are_drawn_between_others_are_truly_bounded(loss, seed):
    drawn = [(level, exact) for _, level, exact in solved(loss, "dense", seed) if level.n_iter == 0]
    assert drawn
    for level, exact in drawn:
        assert level.certificate.lower <= exact.certificate.upper + 1e-11 * exact.certificate.scale
        assert level.value >= exact.certificate.lower - 1e-11 * exact.certificate.scale
        assert level.certificate.relative_gap <= 1e-3


def test_nothing_changes_once_the_regrets_are_equal():
    # Two contexts: on the kink from some radius on, where both regrets agree.
    X, y, codes = make(Squared(), 2, 2, 0, (40, 60))
    problem = LinearProblem.from_data(X, y, codes, Squared(), alpha=1e-3)
    references = problem.references("in-sample", 1e-8)
    ball = KLBall(problem.counts / problem.counts.sum(), 0.0)
    levels = list(solve_path(problem, references, ball, RADII, TOL))
    np.testing.assert_allclose(levels[-1].scores, levels[-1].scores.mean(), rtol=1e-3)
    for level in levels[-3:]:
        np.testing.assert_allclose(level.theta, levels[-1].theta, atol=1e-3)
        assert level.value == pytest.approx(levels[-1].value, rel=1e-4)


def test_a_problem_too_large_to_keep_its_hessians_is_solved_all_the_same(monkeypatch):
    monkeypatch.setattr(parabolas, "MOST_ENTRIES", 0)
    problem, references, centre = posed(Logistic(), "dense")
    for level, (_, _, exact) in zip(
        solve_path(problem, references, KLBall(centre, 0.0), RADII, TOL), solved(Logistic(), "dense"), strict=True
    ):
        assert level.certificate.lower <= exact.certificate.upper + 1e-11
        assert level.certificate.relative_gap <= 1e-3


@pytest.mark.parametrize("radii", [[0.2], [math.inf], [0.0], [0.5, math.inf], [3e-7, 40.0]], ids=str)
@pytest.mark.parametrize("loss", [Logistic(), Pinball(0.3)], ids=lambda loss: loss.name)
def test_a_path_may_begin_and_end_anywhere(loss, radii):
    problem, references, centre = posed(loss, "dense")
    levels = list(solve_path(problem, references, KLBall(centre, 0.0), np.array(radii), TOL))
    for radius, level in zip(radii, levels, strict=True):
        exact = fit_problem(problem, KLBall(centre, radius), references, tol=1e-9).solution
        assert abs(level.value - exact.value) <= TOL * exact.certificate.scale


@pytest.mark.parametrize(
    "model",
    [
        cpo.RobustLinearRegression(alpha=0.0, reference="in-sample"),
        cpo.RobustHuberRegressor(alpha=0.0, reference="in-sample"),
        cpo.RobustQuantileRegressor(alpha=0.0, reference="in-sample"),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
@pytest.mark.parametrize("seed", [2, 11])
def test_a_constant_column_beside_the_intercept_changes_nothing(model, seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(600, 2))
    codes = rng.integers(0, 8, 600)
    y = features[:, 0] + rng.normal(size=600)
    plain, constant = (
        cpo.confidence_path(model, one, y, codes, radii=[0.0, 0.1])
        for one in (features, np.column_stack([features, np.ones(600)]))
    )
    np.testing.assert_allclose(constant["objective"], plain["objective"], atol=1e-5)


# --- the table ----------------------------------------------------------------------------------------------

X, Y, CODES = make(Logistic(), 3, 2, 4, (90, 110))
Y = Y.astype(int)
LABELS = np.array(["east", "north", "west"])[CODES]
MODEL = cpo.RobustLogisticRegression()


@functools.cache
def whole_path():
    return cpo.confidence_path(MODEL, X, Y, LABELS, levels=12)


def test_the_path_reaches_from_zero_to_infinity():
    path = whole_path()
    assert path.n_rows == len(path.models) == 12
    assert (path["radius"][0], path["radius"][-1]) == (0.0, math.inf)
    assert (path["confidence"][0], path["confidence"][-1]) == (0.0, 1.0)
    assert (np.diff(path["radius"]) > 0).all()
    assert (np.diff(path["confidence"]) >= 0).all()
    assert (np.diff(path["objective"]) >= -1e-6).all()
    # What robustness costs and what it buys.
    assert (np.diff(path["nominal_risk"]) >= -1e-5).all()
    assert path["worst_excess"].argmin() == 11


def test_columns_are_those_of_the_models():
    path = whole_path()
    shares = np.bincount(CODES) / len(Y)
    assert path.contexts.tolist() == ["east", "north", "west"]
    for k, model in enumerate(path.models):
        assert path["radius"][k] == model.radius_ == model.radius
        assert path["gap"][k] == model.certificate_.gap
        assert path["objective"][k] == model.certificate_.upper
        assert path["nominal_risk"][k] == pytest.approx(shares @ model.context_risks_)
        assert path["worst_risk"][k] == model.context_risks_.max()
        assert path["worst_excess"][k] == model.excess_risks_.max()
        for c, name in enumerate(path.contexts):
            assert path[f"excess[{name}]"][k] == path.excess_risks[k, c] == model.excess_risks_[c]
            assert path[f"weight[{name}]"][k] == path.context_weights[k, c] == model.context_weights_[c]


@pytest.mark.parametrize(
    ("estimator", "loss"),
    [
        (cpo.RobustLogisticRegression(alpha=1e-2), Multinomial(3)),
        (cpo.RobustLinearRegression(criterion="risk"), Squared()),
        (cpo.RobustPoissonRegressor(), Poisson()),
        (cpo.RobustHuberRegressor(), Squared()),
        (cpo.RobustQuantileRegressor(quantile=0.3), Squared()),
    ],
    ids=lambda part: type(part).__name__,
)
def test_every_model_of_the_path_is_the_model_fitted_at_that_radius(estimator, loss):
    features, y, codes = make(loss, 3, 2, 1, (110, 130))
    path = cpo.confidence_path(estimator, features, y, codes, radii=[0.0, 0.02, 0.2, math.inf])
    for model in path.models:
        alone = type(model)(**model.get_params()).fit(features, y, contexts=codes)
        scale = alone.certificate_.scale
        assert model.certificate_.upper == pytest.approx(alone.certificate_.upper, abs=1e-3 * scale)
        assert model.certificate_.lower <= alone.certificate_.upper + 1e-11 * scale
        answer = "predict_proba" if hasattr(model, "predict_proba") else "predict"
        np.testing.assert_allclose(getattr(model, answer)(features), getattr(alone, answer)(features), atol=0.1)
        np.testing.assert_allclose(model.reference_risks_, alone.reference_risks_, rtol=1e-6)
        assert model.coef_.shape == alone.coef_.shape
        assert vars(model).keys() == vars(alone).keys()


@pytest.mark.parametrize("method", ["types", "agrawal", "calibrated", "chi2", "anytime"])
def test_levels_can_be_confidences(method):
    model = cpo.RobustLogisticRegression(radius=method, draws=200)
    asked = [0.99, 0.5, 0.9, 1.0]
    path = cpo.confidence_path(model, X, Y, LABELS, asked)
    np.testing.assert_allclose(path["confidence"], sorted(asked), atol=1e-9)
    expected = [confidence_radius(np.bincount(CODES), one, method, draws=200) for one in sorted(asked)]
    np.testing.assert_allclose(path["radius"], expected)


def test_levels_can_be_radii_in_any_order_and_repeated():
    assert cpo.confidence_path(MODEL, X, Y, LABELS, radii=[1, 0.1, 0.1])["radius"].tolist() == [0.1, 1.0]


def test_the_model_itself_is_not_touched():
    model = cpo.RobustLogisticRegression(radius="chi2")
    before = vars(model).copy()
    cpo.confidence_path(model, X, Y, LABELS, radii=[0.0, 0.1])
    assert vars(model) == before


def test_frames_weights_and_crossed_contexts():
    frame = pd.DataFrame(X, columns=["a", "b"], index=np.arange(len(Y))[::-1])
    crossed = pd.DataFrame({"place": LABELS, "half": np.arange(len(Y)) % 2}, index=frame.index)
    weight = 1 + np.arange(len(Y)) % 2
    path = cpo.confidence_path(MODEL, frame, Y, crossed, radii=[0.0, 0.1], sample_weight=weight)
    repeated = (np.repeat(part, weight, axis=0) for part in (X, Y, crossed.to_numpy(dtype=object)))
    again = cpo.confidence_path(MODEL, *repeated, radii=[0.0, 0.1])
    assert path.models[0].feature_names_in_.tolist() == ["a", "b"]
    assert path.contexts.tolist() == again.contexts.tolist()
    np.testing.assert_allclose(path["objective"], again["objective"], atol=1e-6)
    path.models[1].predict_proba(frame)


def test_sparse_features_give_the_same_path():
    thin = np.where(np.abs(X) < 0.5, 0.0, X)
    dense, scarce = (cpo.confidence_path(MODEL, one, Y, LABELS, levels=5) for one in (thin, sparse.csr_array(thin)))
    np.testing.assert_allclose(scarce["objective"], dense["objective"], atol=2e-6)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_pipeline_is_followed_behind_its_transformers(depth):
    model = MODEL
    for _ in range(depth):
        model = make_pipeline(StandardScaler(), model)
    path = cpo.confidence_path(model, 10.0 * X + 3.0, Y, LABELS, radii=[0.0, 0.1])
    plain = cpo.confidence_path(MODEL, StandardScaler().fit_transform(X), Y, LABELS, radii=[0.0, 0.1])
    np.testing.assert_allclose(path["objective"], plain["objective"], atol=1e-6)


def test_a_pipeline_of_one_step():
    path = cpo.confidence_path(make_pipeline(MODEL), X, Y, LABELS, radii=[0.0, 0.1])
    plain = cpo.confidence_path(MODEL, X, Y, LABELS, radii=[0.0, 0.1])
    np.testing.assert_allclose(path["objective"], plain["objective"])


@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.NotCertifiedWarning")
def test_any_learner_is_fitted_anew_at_every_level():
    forest = RandomForestClassifier(5, max_depth=3, random_state=0)
    model = cpo.ContextRobust(forest, cv=3, max_iter=3)
    path = cpo.confidence_path(model, X, Y, LABELS, radii=[0.0, 0.2])
    for fitted in path.models:
        alone = cpo.ContextRobust(forest, cv=3, max_iter=3, radius=fitted.radius_).fit(X, Y, contexts=LABELS)
        np.testing.assert_array_equal(fitted.predict_proba(X), alone.predict_proba(X))
    np.testing.assert_allclose(path.context_weights[0], np.bincount(CODES) / len(Y), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": LogisticRegression()}, "robust model"),
        ({"model": None}, "robust model"),
        ({"contexts": None}, "contexts"),
        ({"contexts": LABELS[:-1]}, "one label per row"),
        ({"confidences": [0.5], "radii": [0.1]}, "not both"),
        ({"confidences": [1.5]}, "confidence"),
        ({"confidences": []}, "radii"),
        ({"radii": [-0.1]}, "0 bits or more"),
        ({"radii": [math.nan]}, "0 bits or more"),
        ({"levels": 1}, "levels"),
        ({"levels": 2.5}, "levels"),
        ({"model": cpo.RobustLogisticRegression(criterion="loss")}, "criterion"),
        ({"sample_weight": [1.0]}, "sample_weight"),
    ],
    ids=str,
)
def test_bad_input_is_named(options, words):
    arguments = {"model": MODEL, "X": X, "y": Y, "contexts": LABELS} | options
    with pytest.raises(InvalidInputError, match=words):
        cpo.confidence_path(**arguments)


def test_a_bound_above_a_value_that_is_attained_is_not_kept():
    problem, references, centre = posed(Logistic(), "dense")
    follower = parabolas.Follower(problem, references, TOL)
    objective = RobustObjective(problem.oracle, KLBall(centre, 0.1), references)
    point = problem.oracle.at(problem.oracle.start())
    value = objective.upper_bound(point)
    assert follower._certified(objective, point, centre, 1, bound=value + 1.0) is None
    assert follower.lower == -math.inf
    follower._certified(objective, point, centre, 1, bound=value - 1.0)
    assert follower.lower == value - 1.0


def test_levels_of_many_parameters_are_proven_on_the_way(monkeypatch):
    """Steps that promise less than the tolerance are still taken where nothing is proven without them."""
    rng, radii = np.random.default_rng(0), np.concatenate([[0.0], np.geomspace(1e-3, 4.0, 14)])
    X, codes = rng.standard_normal((3000, 16)), rng.integers(0, 6, 3000)
    scores = X @ rng.standard_normal((16, 4)) * 0.3 + (0.4 * X[:, :1] * (codes[:, None] < 3)) * [1.0, -1.0, 0.0, 0.0]
    y = np.argmax(scores + rng.gumbel(size=(3000, 4)), axis=1).astype(float)
    problem = LinearProblem.from_data(X, y, codes, Multinomial(4))
    references = problem.references("in-sample", TOL)
    left = []
    monkeypatch.setattr(
        path_module, "fit_problem", lambda *args, **options: left.append(args) or fit_problem(*args, **options)
    )
    path = list(solve_path(problem, references, KLBall(problem.counts / 3000, 0.0), radii, TOL))
    assert all(one.certificate.relative_gap <= TOL for one in path)
    assert not left


# --- few of many rows ---------------------------------------------------------------------------------------


@functools.cache
def many_rows(quantile, n_unseen=0):
    loss = Pinball(quantile)
    X, y, codes = make(loss, 3, 2, 1, (500, 800))
    problem = LinearProblem.from_data(X, y, codes, loss, alpha=1e-3)
    problem = replace(problem, unseen=np.full(n_unseen, 0.05))
    references = ReferenceRisks.exactly(problem.references("in-sample", 1e-8).upper)
    return problem, references, np.append(problem.counts / problem.counts.sum(), np.zeros(n_unseen))


@pytest.mark.parametrize("quantile", [0.2, 0.5])
@pytest.mark.parametrize("n_unseen", [0, 1])
def test_few_rows_stand_for_all_along_a_path(quantile, n_unseen, monkeypatch):
    problem, references, centre = many_rows(quantile, n_unseen)
    fits = []
    monkeypatch.setattr(
        drawn_path, "fit_problem", lambda *args, **kwargs: fits.append(args) or fit_problem(*args, **kwargs)
    )
    radii = np.concatenate([[0.0], np.geomspace(1e-3, 4.0, 18), [math.inf]])
    levels = list(solve_path(problem, references, KLBall(centre, 0.0), radii, TOL))
    # Levels that are solved with all rows are those that nothing is known of.
    assert len(fits) <= 5
    for radius, level in list(zip(radii, levels, strict=True))[::3]:
        exact = fit_problem(problem, KLBall(centre, radius), references, tol=1e-9).solution
        rounding = 1e-11 * exact.certificate.scale
        assert exact.success
        assert level.certificate.lower <= exact.certificate.upper + rounding
        assert level.certificate.upper >= exact.certificate.lower - rounding
        assert level.certificate.relative_gap <= 1e-3
        assert level.value == pytest.approx(KLBall(centre, radius).worst_case(level.scores).value, abs=1e-12)
        assert KLBall(centre, radius).contains(level.p_worst)
