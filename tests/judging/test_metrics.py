"""Risk by context against a computation by hand, and scorers inside scikit-learn's own tools."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy import stats
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import counterpoise as cpo
from counterpoise.core.references import folds_within
from counterpoise.exceptions import EmptyContextError, InvalidInputError
from counterpoise.losses import Logistic, Multinomial, Poisson, Squared
from counterpoise.metrics import (
    NominalScorer,
    WorstContextScorer,
    WorstExcessScorer,
    by_context,
    reference_risks,
)
from tests.problems import make

X, Y, CODES = make(Logistic(), 3, 2, 4, (60, 80))
Y = Y.astype(int)
NAMES = np.array(["east", "north", "west"])
LABELS = NAMES[CODES]
FOLDS = KFold(3, shuffle=True, random_state=0)
PLAIN = LogisticRegression().fit(X, Y)
ROBUST = cpo.RobustLogisticRegression().fit(X, Y, contexts=LABELS)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def log_losses(model, rows, target):
    p = model.predict_proba(rows)
    return -np.log(p[np.arange(len(p)), np.searchsorted(model.classes_, target)])


def means(rows, labels=LABELS):
    return np.array([rows[labels == name].mean() for name in np.unique(labels)])


# --- by context ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [PLAIN, ROBUST, make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)],
    ids=["plain", "robust", "pipeline"],
)
def test_risks_are_mean_log_losses_with_intervals_that_hold_together(model):
    table = by_context(model, X, Y, LABELS, confidence=0.9)
    rows = log_losses(model, X, Y)
    assert table["context"].tolist() == NAMES.tolist()
    for k, name in enumerate(NAMES):
        own = rows[name == LABELS]
        assert table["n"][k] == len(own)
        assert table["risk"][k] == pytest.approx(own.mean(), rel=1e-9)
        # Between one context at a time and Bonferroni's correction, but for what skewness adds.
        widths = [stats.t.ppf(level, len(own) - 1) * stats.sem(own) for level in (0.95, 1.0 - 0.05 / 3)]
        assert 0.99 * widths[0] <= own.mean() - table["risk_low"][k] <= 1.4 * widths[1]
        assert 0.99 * widths[0] <= table["risk_high"][k] - own.mean() <= 1.4 * widths[1]


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("zero_one", lambda y, z: y != z),
        ("squared_error", lambda y, z: (y - z) ** 2),
        ("absolute_error", lambda y, z: np.abs(y - z)),
        (lambda y, z: 3.0 * (y > z), lambda y, z: 3.0 * (y > z)),
    ],
    ids=["zero_one", "squared_error", "absolute_error", "callable"],
)
def test_a_loss_can_be_chosen(loss, expected):
    table = by_context(PLAIN, X, Y, LABELS, loss=loss)
    np.testing.assert_allclose(table["risk"], means(expected(Y, PLAIN.predict(X)).astype(float)))


@pytest.mark.parametrize(
    ("estimator", "loss"),
    [
        (cpo.RobustLogisticRegression(), Multinomial(3)),
        (cpo.RobustLinearRegression(), Squared()),
        (cpo.RobustHuberRegressor(delta=0.7), Squared()),
        (cpo.RobustQuantileRegressor(quantile=0.3), Squared()),
        (cpo.RobustPoissonRegressor(), Poisson()),
    ],
    ids=lambda part: type(part).__name__,
)
@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
def test_a_robust_model_is_judged_by_the_loss_it_was_fitted_by(estimator, loss):
    features, y, codes = make(loss, 3, 2, 1, (40, 60))
    model = clone(estimator).set_params(alpha=0.0).fit(features, y, contexts=codes)
    table = by_context(model, features, y, codes)
    np.testing.assert_allclose(table["risk"], model.context_risks_, rtol=1e-6)
    np.testing.assert_allclose(table["reference"], model.reference_risks_)
    np.testing.assert_allclose(table["excess"], model.excess_risks_, atol=1e-6)
    # Seen through a pipeline and a search it is the same loss.
    pipeline = make_pipeline("passthrough", model)
    np.testing.assert_allclose(by_context(pipeline, features, y, codes)["risk"], table["risk"])


def test_a_classifier_without_probabilities_is_judged_by_its_errors():
    model = LinearSVC().fit(X, Y)
    np.testing.assert_allclose(by_context(model, X, Y, LABELS)["risk"], means((model.predict(X) != Y).astype(float)))


def test_a_class_the_model_never_saw_costs_much_but_is_no_failure():
    table = by_context(PLAIN, X, np.where(LABELS == "west", 7, Y), LABELS)
    assert np.isfinite(table["risk"]).all()
    assert table["risk"][2] > 5.0


def test_references_come_from_the_model_unless_given():
    own = by_context(ROBUST, X, Y, LABELS)
    np.testing.assert_array_equal(own["reference"], ROBUST.reference_risks_)
    given = by_context(ROBUST, X, Y, LABELS, reference={"east": 0.1, "west": 0.3})
    np.testing.assert_array_equal(given["reference"], [0.1, np.nan, 0.3])
    np.testing.assert_allclose(given["excess"], given["risk"] - given["reference"])
    np.testing.assert_allclose(
        given["excess_high"] - given["excess_low"], (own["risk_high"] - own["risk_low"]) * [1, np.nan, 1]
    )
    assert np.isnan(by_context(PLAIN, X, Y, LABELS)["excess"]).all()


def test_contexts_the_model_has_not_seen_are_marked_and_named():
    renamed = np.where(LABELS == "west", "moon", LABELS)
    table = by_context(ROBUST, X, Y, renamed)
    assert dict(zip(table["context"].tolist(), table["seen"].tolist(), strict=True)) == {
        "east": True,
        "moon": False,
        "north": True,
    }
    assert "moon" in table.note
    assert np.isnan(table.where(context="moon")["reference"]).all()
    assert by_context(ROBUST, X, Y, LABELS).note == ""
    # Of a model that knows nothing of contexts, nothing is said.
    assert by_context(PLAIN, X, Y, renamed)["seen"].all()


def test_whole_weights_repeat_rows_in_the_risks():
    weight = 1 + np.arange(len(Y)) % 3
    weighted = by_context(PLAIN, X, Y, LABELS, sample_weight=weight)
    repeated = by_context(PLAIN, np.repeat(X, weight, 0), np.repeat(Y, weight), np.repeat(LABELS, weight))
    np.testing.assert_allclose(weighted["risk"], repeated["risk"])


def test_constant_weights_change_nothing():
    plain, weighted = (by_context(PLAIN, X, Y, LABELS, sample_weight=w) for w in (None, np.full(len(Y), 2.5)))
    for name in ("risk", "risk_low", "risk_high"):
        np.testing.assert_allclose(weighted[name], plain[name])


def test_a_row_without_weight_is_as_good_as_none():
    weight = np.ones(len(Y))
    weight[::2] = 0.0
    weighted = by_context(PLAIN, X, Y, LABELS, sample_weight=weight)
    dropped = by_context(PLAIN, X[1::2], Y[1::2], LABELS[1::2])
    np.testing.assert_allclose(weighted["risk"], dropped["risk"])


def test_a_single_row_has_a_risk_and_no_interval():
    labels = LABELS.astype(object)
    labels[5] = "alone"
    row = by_context(PLAIN, X, Y, labels).where(context="alone")
    assert row["risk"][0] == pytest.approx(log_losses(PLAIN, X, Y)[5])
    assert np.isnan(row["risk_low"][0])


@pytest.mark.parametrize("kind", ["pandas", "polars", "list", "crossed"])
def test_contexts_of_any_kind(kind):
    half = np.arange(len(Y)) % 2
    contexts = {
        "pandas": pd.Series(LABELS, index=np.arange(len(Y))[::-1]),
        "polars": pl.Series(LABELS),
        "list": LABELS.tolist(),
        "crossed": pd.DataFrame({"place": LABELS, "half": half}),
    }[kind]
    table = by_context(PLAIN, X, pd.Series(Y), contexts)
    if kind == "crossed":
        assert ("north", 1) in table["context"].tolist()
        assert table.n_rows == 6
        expected = log_losses(PLAIN, X, Y)[(LABELS == "north") & (half == 1)].mean()
        assert table.where(context=("north", 1))["risk"][0] == pytest.approx(expected)
    else:
        np.testing.assert_allclose(table["risk"], means(log_losses(PLAIN, X, Y)))


def test_intervals_cover_the_means_of_all_contexts_together():
    codes = np.repeat(np.arange(10), 12)
    model = DummyRegressor(strategy="constant", constant=0.0).fit(np.zeros((1, 1)), [0.0])
    covered = 0
    for seed in range(200):
        y = np.random.default_rng(seed).normal(1.0, 2.0, len(codes))
        table = by_context(model, np.zeros((len(y), 1)), y, codes, loss=lambda target, _: target, confidence=0.9)
        covered += bool(((table["risk_low"] <= 1.0) & (table["risk_high"] >= 1.0)).all())
    assert 0.86 <= covered / 200 <= 0.97


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": 0.0}, "confidence"),
        ({"loss": "hinge"}, "'hinge'.*log_loss"),
        ({"loss": lambda y, z: 1.0}, "one number per row"),
        ({"loss": lambda y, z: np.full(len(y), np.nan)}, "row 0 is nan"),
        ({"contexts": LABELS[:-1]}, "one label per row"),
        ({"sample_weight": np.ones(3)}, "sample_weight"),
    ],
    ids=["confidence 1", "confidence 0", "loss", "loss of one number", "loss nan", "contexts", "weights"],
)
def test_bad_input_is_named(options, words):
    with pytest.raises(InvalidInputError, match=words):
        by_context(PLAIN, X, Y, **({"contexts": LABELS} | options))


def test_a_context_without_weight_is_refused():
    with pytest.raises(EmptyContextError, match="west"):
        by_context(PLAIN, X, Y, LABELS, sample_weight=(LABELS != "west").astype(float))


# --- reference risks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [3, 5])
def test_reference_is_the_lower_of_a_model_of_its_own_and_one_for_all(cv):
    found = reference_risks(LogisticRegression(), X, Y, LABELS, cv=cv)
    folds = folds_within(CODES, Y, cv)
    own, pooled = np.empty(len(Y)), np.empty(len(Y))
    for fold in range(cv):
        held = folds == fold
        pooled[held] = log_losses(LogisticRegression().fit(X[~held], Y[~held]), X[held], Y[held])
        for code in range(3):
            mine = code == CODES
            model = LogisticRegression().fit(X[mine & ~held], Y[mine & ~held])
            own[mine & held] = log_losses(model, X[mine & held], Y[mine & held])
    expected = np.minimum(means(own), means(pooled))
    assert list(found) == NAMES.tolist()
    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-9)


def test_reference_risks_are_taken_by_estimators_tables_and_scorers():
    found = reference_risks(cpo.RobustLogisticRegression(), X, Y, LABELS)
    model = cpo.RobustLogisticRegression(reference=found).fit(X, Y, contexts=LABELS)
    np.testing.assert_allclose(model.reference_risks_, list(found.values()))
    excess = by_context(model, X, Y, LABELS, reference=found)["excess"]
    assert WorstExcessScorer(found)(model, X, Y, LABELS) == pytest.approx(-excess.max())


@pytest.mark.parametrize(
    "estimator",
    [
        cpo.RobustLogisticRegression(),
        make_pipeline(StandardScaler(), cpo.RobustLogisticRegression()),
        LogisticRegression(),
    ],
    ids=["robust", "pipeline", "plain"],
)
def test_a_class_that_one_context_has_a_single_row_of_is_no_failure(estimator):
    features, y, codes = make(Multinomial(3), 3, 2, 0, (40, 50))
    rare = np.flatnonzero((codes == 2) & (y == 1))
    y[rare[1:]] = 0
    found = reference_risks(estimator, features, y, codes)
    assert np.isfinite(list(found.values())).all()


@pytest.mark.parametrize("kind", ["one row", "one class"])
def test_references_of_contexts_too_small_for_a_model_are_those_of_the_model_for_all(kind):
    labels, y = LABELS.astype(object), Y.copy()
    chosen = np.flatnonzero(LABELS == "west")[: 1 if kind == "one row" else 12]
    labels[chosen], y[chosen] = "tiny", 1
    found = reference_risks(LogisticRegression(), X, y, labels)
    assert 0.0 < found["tiny"] < 5.0


# --- scorers ------------------------------------------------------------------------------------------------

REFERENCE = {"east": 0.2, "north": 0.4, "west": 0.1}
SCORERS = {
    "worst": (WorstContextScorer(), lambda risks, counts: -risks.max()),
    "nominal": (NominalScorer(), lambda risks, counts: -(counts @ risks) / counts.sum()),
    "mix": (NominalScorer({"east": 1, "north": 1, "west": 2}), lambda risks, counts: -(risks @ [0.25, 0.25, 0.5])),
    "excess": (WorstExcessScorer(REFERENCE), lambda risks, counts: -(risks - [0.2, 0.4, 0.1]).max()),
}
every_scorer = pytest.mark.parametrize("name", SCORERS)


@every_scorer
def test_scorer_is_minus_what_it_says(name):
    scorer, expected = SCORERS[name]
    risks, counts = means(log_losses(PLAIN, X, Y)), np.bincount(CODES)
    assert scorer(PLAIN, X, Y, contexts=LABELS) == pytest.approx(expected(risks, counts))
    assert scorer.score(PLAIN, X, Y, contexts=LABELS) == scorer(PLAIN, X, Y, LABELS)


@pytest.mark.usefixtures("routing")
@every_scorer
def test_cross_validation_hands_each_fold_its_contexts(name):
    scorer, expected = SCORERS[name]
    scores = cross_validate(LogisticRegression(), X, Y, cv=FOLDS, scoring=scorer, params={"contexts": LABELS})
    for (train, test), score in zip(FOLDS.split(X), scores["test_score"], strict=True):
        rows = log_losses(LogisticRegression().fit(X[train], Y[train]), X[test], Y[test])
        by_hand = expected(means(rows, LABELS[test]), np.bincount(CODES[test]))
        assert score == pytest.approx(by_hand)


@pytest.mark.usefixtures("routing")
@every_scorer
def test_search_selects_by_context(name):
    scorer, alphas = SCORERS[name][0], [1e-3, 10.0]
    search = GridSearchCV(cpo.RobustLogisticRegression(), {"alpha": alphas}, cv=FOLDS, scoring=scorer)
    search.fit(X, Y, contexts=LABELS)
    by_hand = np.empty((2, 3))
    for k, alpha in enumerate(alphas):
        for j, (train, test) in enumerate(FOLDS.split(X)):
            model = cpo.RobustLogisticRegression(alpha=alpha).fit(X[train], Y[train], contexts=LABELS[train])
            by_hand[k, j] = scorer(model, X[test], Y[test], LABELS[test])
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], by_hand.mean(axis=1), rtol=1e-6)
    assert search.best_params_ == {"alpha": alphas[by_hand.mean(axis=1).argmax()]}
    assert by_context(search, X, Y, LABELS)["seen"].all()


@pytest.mark.usefixtures("routing")
def test_several_scorers_at_once():
    scoring = {name: scorer for name, (scorer, _) in SCORERS.items()} | {"accuracy": "accuracy"}
    model = make_pipeline(StandardScaler(), cpo.RobustLogisticRegression())
    results = cross_validate(model, X, Y, cv=FOLDS, scoring=scoring, params={"contexts": LABELS})
    search = GridSearchCV(
        model, {"robustlogisticregression__radius": [0.0, 0.1]}, cv=FOLDS, scoring=scoring, refit="worst"
    )
    search.fit(X, Y, contexts=LABELS)
    for name in scoring:
        assert np.isfinite(results[f"test_{name}"]).all()
        assert np.isfinite(search.cv_results_[f"mean_test_{name}"]).all()
    assert (results["test_worst"] <= results["test_nominal"]).all()


@pytest.mark.usefixtures("routing")
def test_a_search_that_is_given_no_contexts_says_how():
    with pytest.raises(InvalidInputError, match="contexts"):
        GridSearchCV(LogisticRegression(), {}, cv=FOLDS, scoring=WorstContextScorer(), error_score="raise").fit(X, Y)


@pytest.mark.parametrize("scorer", [scorer for scorer, _ in SCORERS.values()], ids=SCORERS)
def test_without_routing_the_remedy_is_named(scorer):
    with pytest.raises(InvalidInputError, match="enable_metadata_routing"):
        scorer(PLAIN, X, Y)
    with pytest.raises(InvalidInputError, match="enable_metadata_routing"):
        cross_validate(LogisticRegression(), X, Y, cv=FOLDS, scoring=scorer, error_score="raise")


@pytest.mark.usefixtures("routing")
def test_contexts_that_nobody_requests_are_refused_by_scikit_learn():
    with pytest.raises((TypeError, UnsetMetadataPassedError), match="contexts"):
        cross_validate(LogisticRegression(), X, Y, cv=FOLDS, scoring="accuracy", params={"contexts": LABELS})


@pytest.mark.parametrize("scorer", [scorer for scorer, _ in SCORERS.values()], ids=SCORERS)
def test_scorers_are_cloned_and_shown_with_their_parameters(scorer):
    copy = clone(scorer)
    assert copy.get_params() == scorer.get_params()
    assert type(scorer).__name__ in repr(scorer)
    assert copy(PLAIN, X, Y, LABELS) == scorer(PLAIN, X, Y, LABELS)


@pytest.mark.parametrize("scorer", [WorstExcessScorer({"east": 0.1})])
def test_a_context_that_the_mapping_lacks_is_named(scorer):
    with pytest.raises(InvalidInputError, match="north"):
        scorer(PLAIN, X, Y, LABELS)


def test_scorers_look_at_the_contexts_present_only():
    here = LABELS != "west"
    risks = means(log_losses(PLAIN, X[here], Y[here]), LABELS[here])
    assert WorstContextScorer()(PLAIN, X[here], Y[here], LABELS[here]) == pytest.approx(-risks.max())
    mixed = NominalScorer({"east": 3, "north": 1, "west": 100})(PLAIN, X[here], Y[here], LABELS[here])
    assert mixed == pytest.approx(-risks @ [0.75, 0.25])


def test_a_scorer_takes_another_loss():
    model = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, Y)
    errors = means((model.predict(X) != Y).astype(float))
    assert WorstContextScorer("zero_one")(model, X, Y, LABELS) == pytest.approx(-errors.max())
    y = X[:, 0] + CODES
    regression = LinearRegression().fit(X, y)
    squares = means((regression.predict(X) - y) ** 2)
    assert WorstContextScorer()(regression, X, y, LABELS) == pytest.approx(-0.5 * squares.max())
    assert WorstContextScorer("squared_error")(regression, X, y, LABELS) == pytest.approx(-squares.max())


def test_contexts_that_a_mix_does_not_name_have_no_share():
    risks = means(log_losses(PLAIN, X, Y), LABELS)
    assert NominalScorer({"east": 1.0})(PLAIN, X, Y, LABELS) == pytest.approx(-risks[0])
    with pytest.raises(InvalidInputError, match="NominalScorer: mix"):
        NominalScorer({"Osten": 1.0})(PLAIN, X, Y, LABELS)


def test_references_that_name_no_context_are_refused():
    with pytest.raises(InvalidInputError, match=r"names none of the contexts: it has East.*east"):
        by_context(PLAIN, X, Y, LABELS, reference={"East": 0.1})


@pytest.mark.parametrize("judge", [by_context, reference_risks])
def test_an_index_in_another_order_is_refused(judge):
    frame, labels = pd.DataFrame(X), pd.Series(LABELS)
    shuffled = labels.sample(frac=1.0, random_state=0)
    with pytest.raises(InvalidInputError, match=r"contexts has the same index as X in another order.*loc"):
        judge(PLAIN, frame, Y, shuffled)
