"""Any learner that takes weights: what it is given, what it is judged by, and what comes out."""

import functools
import math
import pickle
from typing import ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
import skops.io
from lightgbm import LGBMClassifier
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier, is_regressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from xgboost import XGBClassifier

import counterpoise as cpo
from counterpoise.core.fit import fit_problem
from counterpoise.core.objective import ReferenceRisks
from counterpoise.core.problem import LinearProblem
from counterpoise.core.references import folds_within
from counterpoise.estimators.learners import row_losses, splits_by
from counterpoise.exceptions import EmptyContextError, InvalidInputError, NotCertifiedWarning, OneContextWarning
from counterpoise.losses import Logistic, Multinomial, Squared
from counterpoise.metrics import reference_risks
from counterpoise.sets import KLBall
from tests.problems import make

# Few rounds are enough for most of what is asked here.
pytestmark = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.NotCertifiedWarning")

X, Y, CODES = make(Logistic(), 3, 2, 4, (40, 60))
Y = Y.astype(int)
Z = make(Squared(), 3, 2, 4, (40, 60))[1]
NAMES = np.array(["east", "north", "west"])
LABELS = NAMES[CODES]
P_HAT = np.bincount(CODES) / len(Y)
TREE = DecisionTreeClassifier(max_depth=3, random_state=0)

CLASSIFIERS = {
    "hist boosting": HistGradientBoostingClassifier(max_iter=2, max_leaf_nodes=3, max_bins=16, random_state=0),
    "forest": RandomForestClassifier(5, max_depth=3, random_state=0),
    "svc": SVC(),
    "pipeline": make_pipeline(StandardScaler(), RandomForestClassifier(5, max_depth=3, random_state=0)),
    "nested": make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), SVC()))),
    "xgboost": XGBClassifier(n_estimators=5, max_depth=2, n_jobs=1),
    "lightgbm": LGBMClassifier(n_estimators=5, num_leaves=4, min_child_samples=5, n_jobs=1, verbose=-1),
}
REGRESSORS = {
    "hist boosting regressor": HistGradientBoostingRegressor(max_iter=2, max_leaf_nodes=3, max_bins=16, random_state=0),
    "forest regressor": RandomForestRegressor(5, max_depth=3, random_state=0),
    "ridge": Ridge(),
}
LEARNERS = CLASSIFIERS | REGRESSORS
every_learner = pytest.mark.parametrize("name", LEARNERS)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def robust(learner, **options):
    # The game itself, whatever comes of it; the guard has tests of its own below.
    return cpo.ContextRobust(learner, **({"cv": 3, "max_iter": 3, "guard": False, "headroom": None} | options))


def target_of(name):
    return Y if name in CLASSIFIERS else Z


@functools.cache
def fitted(name, **options):
    return robust(LEARNERS[name], **options).fit(X, target_of(name), contexts=LABELS)


def answers(model, rows=X):
    return model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)


def weigh(learner, y, weight):
    """Fit a learner with weights on its last step, whatever it is made of; without, where all are one."""
    if np.allclose(weight, 1.0, rtol=1e-12, atol=0.0):
        return clone(learner).fit(X, y)
    prefix, last = "", learner
    while hasattr(last, "steps"):
        name, last = last.steps[-1]
        prefix += f"{name}__"
    return clone(learner).fit(X, y, **{f"{prefix}sample_weight": weight})


def held_out_risks(learner, y, loss, cv=3):
    """Return the mean loss per context of rows held out, of a learner fitted without tilting."""
    folds, rows = folds_within(CODES, np.unique(y, return_inverse=True)[1], cv), np.empty(len(y))
    for fold in range(cv):
        held = folds == fold
        rows[held] = loss(clone(learner).fit(X[~held], y[~held]), X[held], y[held])
    return np.bincount(CODES, rows) / np.bincount(CODES)


class Recorder(ClassifierMixin, BaseEstimator):
    """A tree that keeps what it was fitted with."""

    fits: ClassVar = []

    def fit(self, X, y, sample_weight=None):
        self.fits.append((np.asarray(X), np.asarray(y), sample_weight))
        self.tree_ = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y, sample_weight)
        self.classes_ = self.tree_.classes_
        return self

    def predict(self, X):
        return self.tree_.predict(X)

    def predict_proba(self, X):
        return self.tree_.predict_proba(X)


# --- what comes out -----------------------------------------------------------------------------------------


@every_learner
def test_the_model_is_the_learner_fitted_under_the_weights_it_reports(name):
    model, y = fitted(name), target_of(name)
    tilt = (model.context_weights_ / P_HAT)[CODES]
    expected = weigh(LEARNERS[name], y, tilt / tilt.mean())
    np.testing.assert_allclose(answers(model), answers(expected), atol=1e-9)


@every_learner
def test_what_is_told_of_contexts_fits_together(name):
    model = fitted(name)
    ball = KLBall(P_HAT, model.radius_)
    assert model.contexts_.tolist() == NAMES.tolist()
    assert model.context_counts_.tolist() == np.bincount(CODES).tolist()
    assert model.context_weights_.sum() == pytest.approx(1.0)
    assert ball.contains(model.context_weights_)
    np.testing.assert_allclose(model.excess_risks_, model.context_risks_ - model.reference_risks_)
    assert model.radius_ == cpo.confidence_radius(np.bincount(CODES), 0.99)
    certificate = model.certificate_
    assert certificate.scope == "local"
    assert certificate.lower <= certificate.upper
    assert certificate.upper == pytest.approx(ball.worst_case(model.excess_risks_).value)
    assert model.history_.shape == (model.n_iter_, 2)
    assert certificate.upper == pytest.approx(model.history_[:, 1].min())


@every_learner
def test_radius_zero_is_the_plain_fit(name):
    y = target_of(name)
    model = robust(LEARNERS[name], radius=0.0).fit(X, y, contexts=LABELS)
    np.testing.assert_allclose(model.context_weights_, P_HAT)
    assert model.n_iter_ == 1
    np.testing.assert_array_equal(answers(model), answers(clone(LEARNERS[name]).fit(X, y)))


@every_learner
def test_two_fits_are_identical(name):
    again = robust(LEARNERS[name]).fit(X, target_of(name), contexts=LABELS)
    np.testing.assert_array_equal(answers(again), answers(fitted(name)))
    np.testing.assert_array_equal(again.context_weights_, fitted(name).context_weights_)
    np.testing.assert_array_equal(again.history_, fitted(name).history_)


@pytest.mark.usefixtures("routing")
@every_learner
def test_metadata_routing_changes_nothing(name):
    again = robust(LEARNERS[name]).fit(X, target_of(name), contexts=LABELS)
    np.testing.assert_array_equal(answers(again), answers(fitted(name)))


@every_learner
def test_it_is_of_the_learners_kind_and_does_what_the_learner_can(name):
    model, learner = fitted(name), LEARNERS[name]
    for one in (model, robust(learner)):
        assert is_classifier(one) == is_classifier(learner) == (name in CLASSIFIERS)
        assert is_regressor(one) == (name in REGRESSORS)
        for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
            assert hasattr(one, method) == hasattr(learner, method)
    assert model.score(X, target_of(name)) == pytest.approx(model.estimator_.score(X, target_of(name)))
    np.testing.assert_array_equal(model.predict(X), model.predict(X))
    assert model.n_features_in_ == 2
    if name in CLASSIFIERS:
        assert model.classes_.tolist() == [0, 1]


@every_learner
def test_pickle_and_clone(name):
    model = fitted(name)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(answers(copy), answers(model))
    assert copy.get_params()["criterion"] == "excess"
    fresh = clone(model)
    assert not hasattr(fresh, "estimator_")
    assert repr(fresh) == repr(robust(LEARNERS[name]))
    with pytest.raises(NotFittedError):
        fresh.predict(X)


def test_learners_kept_with_skops():
    model = fitted("forest")
    data = skops.io.dumps(model)
    copy = skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))
    np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))


def test_parameters_reach_through_to_the_learner():
    model = robust(make_pipeline(StandardScaler(), clone(TREE)), criterion="risk")
    name = "estimator__decisiontreeclassifier__max_depth"
    assert model.get_params()[name] == 3
    assert model.get_params()["criterion"] == "risk"
    model.set_params(**{name: 1, "criterion": "excess", "radius": 0.2})
    model.fit(X, Y, contexts=LABELS)
    assert model.estimator_[-1].get_depth() == 1
    assert model.radius_ == 0.2
    # A parameter is never touched by fit.
    assert not hasattr(model.estimator[-1], "tree_")


# --- what the learner is given ------------------------------------------------------------------------------


def test_weights_have_a_mean_of_one_and_are_never_zero():
    Recorder.fits.clear()
    model = robust(Recorder(), radius=np.inf, max_iter=8).fit(X, Y, contexts=LABELS)
    weights = [weight for _, _, weight in Recorder.fits if weight is not None]
    assert len(weights) >= 2 * 3 + 1
    for weight in weights:
        assert weight.mean() == pytest.approx(1.0, abs=1e-14)
        assert weight.min() > 0.0
    # The plain learner in three folds and contexts' own models take none, not even equal ones.
    assert all(np.ptp(weight) > 0.0 for weight in weights)
    assert len(Recorder.fits) - len(weights) >= 3 + 3
    # The last is to all rows: the one model there is.
    assert len(Recorder.fits[-1][0]) == len(X)
    assert isinstance(model.estimator_, Recorder)


def test_weights_are_common_to_a_context_and_times_the_users_own():
    Recorder.fits.clear()
    own = 1.0 + np.arange(len(Y)) % 3
    robust(Recorder()).fit(X, Y, contexts=LABELS, sample_weight=own)
    weight = Recorder.fits[-1][2]
    assert weight.sum() == pytest.approx(own.sum())
    tilt = np.bincount(CODES, weight / own) / np.bincount(CODES)
    np.testing.assert_allclose(weight, own * tilt[CODES])


def test_contexts_are_never_a_feature():
    Recorder.fits.clear()
    robust(Recorder()).fit(X, Y, contexts=LABELS)
    assert {rows.shape[1] for rows, _, _ in Recorder.fits} == {2}


def test_rows_are_judged_by_a_learner_that_was_not_shown_them():
    # Each fit of a fold and the rows it lacks make up the whole; specialists see one context only.
    Recorder.fits.clear()
    robust(Recorder(), cv=3, max_iter=1, reference=dict.fromkeys(NAMES, 0.1)).fit(X, Y, contexts=LABELS)
    sizes = [len(rows) for rows, _, _ in Recorder.fits]
    assert sizes[-1] == len(X)
    assert len(sizes) == 4
    assert sum(len(X) - size for size in sizes[:3]) == len(X)


# --- what it is judged by -----------------------------------------------------------------------------------


def log_losses(model, rows, y):
    p = model.predict_proba(rows)
    return -np.log(np.maximum(p[np.arange(len(p)), y], 0.5 / len(Y)))


@pytest.mark.parametrize(
    ("learner", "target", "loss", "by_hand"),
    [
        (TREE, Y, None, log_losses),
        (SVC(), Y, None, lambda m, rows, y: m.predict(rows) != y),
        (Ridge(), Z, None, lambda m, rows, y: 0.5 * (m.predict(rows) - y) ** 2),
        (TREE, Y, "zero_one", lambda m, rows, y: m.predict(rows) != y),
        (Ridge(), Z, "absolute_error", lambda m, rows, y: np.abs(m.predict(rows) - y)),
        (Ridge(), Z, lambda y, z: np.abs(y - z) ** 3, lambda m, rows, y: np.abs(m.predict(rows) - y) ** 3),
    ],
    ids=["log loss", "error", "squares", "zero_one", "absolute_error", "callable"],
)
def test_risks_are_mean_losses_of_rows_held_out(learner, target, loss, by_hand):
    model = robust(learner, loss=loss, max_iter=1).fit(X, target, contexts=LABELS)
    np.testing.assert_allclose(model.context_risks_, held_out_risks(learner, target, by_hand))


def test_a_learner_that_memorises_is_not_fooled():
    # In sample it makes no error anywhere, so nothing would seem worth weighing.
    memoriser = DecisionTreeClassifier(random_state=0)
    model = robust(memoriser, loss="zero_one", criterion="risk", max_iter=5).fit(X, Y, contexts=LABELS)
    assert (model.predict(X) == Y).all()
    assert (model.context_risks_ > 0.1).all()
    plain = held_out_risks(memoriser, Y, lambda m, rows, y: m.predict(rows) != y)
    np.testing.assert_allclose(model.history_[0, 0], P_HAT @ plain)
    np.testing.assert_allclose(model.history_[0, 1], KLBall(P_HAT, model.radius_).worst_case(plain).value)


def test_in_sample_references_of_a_memoriser_are_zero_and_held_out_ones_are_not():
    memoriser = DecisionTreeClassifier(random_state=0)
    seen, held = (
        robust(memoriser, loss="zero_one", reference=kind, max_iter=1).fit(X, Y, contexts=LABELS).reference_risks_
        for kind in ("in-sample", "cross-fit")
    )
    np.testing.assert_array_equal(seen, 0.0)
    assert (held > 0.1).all()


def same_folds(y):
    """Return the splits that three folds are, as a user would give them: own models are then judged in all of them."""
    return splits_by(folds_within(CODES, np.unique(y, return_inverse=True)[1], 3))


@pytest.mark.parametrize("name", ["forest", "svc", "ridge", "xgboost"])
def test_references_are_those_of_the_metrics(name):
    found = list(reference_risks(LEARNERS[name], X, target_of(name), LABELS, cv=3).values())
    model = robust(LEARNERS[name], cv=same_folds(target_of(name)), max_iter=1).fit(X, target_of(name), contexts=LABELS)
    np.testing.assert_allclose(model.reference_risks_, found)
    # With a number of folds, a context whose own model looks worse is taken to have none.
    model = fitted(name, max_iter=1)
    given_up = ~np.isclose(model.reference_risks_, found)
    np.testing.assert_allclose(model.reference_risks_[given_up], model.context_risks_[given_up])


def test_references_judged_alike_where_a_learner_gives_no_probability_at_all():
    memoriser = DecisionTreeClassifier(random_state=0)
    model = robust(memoriser, cv=same_folds(Y), max_iter=1).fit(X, Y, contexts=LABELS)
    found = reference_risks(memoriser, X, Y, LABELS, cv=3)
    np.testing.assert_allclose(model.reference_risks_, list(found.values()))


def test_references_can_be_given_and_risk_can_be_scored():
    given = {"east": 0.3, "north": 0.2, "west": 0.1}
    model = robust(TREE, reference=given).fit(X, Y, contexts=LABELS)
    np.testing.assert_array_equal(model.reference_risks_, [0.3, 0.2, 0.1])
    risk = robust(TREE, criterion="risk").fit(X, Y, contexts=LABELS)
    expected = KLBall(P_HAT, risk.radius_).worst_case(risk.context_risks_).value
    assert risk.certificate_.upper == pytest.approx(expected)


def test_a_gap_below_a_reference_that_is_too_high_is_still_measured_by_something():
    stump = DecisionTreeClassifier(max_depth=1, random_state=0)
    model = robust(stump, reference=dict.fromkeys(NAMES, 5.0)).fit(X, Y, contexts=LABELS)
    assert model.certificate_.upper < 0.0
    assert model.certificate_.relative_gap < 1e3


@pytest.mark.parametrize("labels", [[3, 7, 9], [9, 3, 7], [0.5, -1.0, 2.0], [False, True], ["b", "c", "a"]], ids=str)
def test_the_log_loss_is_that_of_the_labels_column_whatever_the_labels(labels):
    class Fixed:
        classes_ = np.array(labels)

        def predict_proba(self, X):
            return np.tile(np.arange(1.0, len(labels) + 1) / 10.0, (len(X), 1))

    never_seen = {"b": "z", False: 5}.get(labels[0], 8)
    target = np.array([*labels, never_seen])
    expected = -np.log([*np.arange(1.0, len(labels) + 1) / 10.0, 0.01])
    np.testing.assert_allclose(row_losses(Fixed(), np.zeros((len(target), 1)), target, "log_loss", 0.01), expected)


class LearnsLate(ClassifierMixin, BaseEstimator):
    """Says the contrary of what it learned as long as all rows weigh the same."""

    def fit(self, X, y, sample_weight=None):
        self.tree_ = clone(TREE).fit(X, y, sample_weight)
        self.classes_, self.late_ = self.tree_.classes_, sample_weight is not None
        return self

    def predict_proba(self, X):
        found = self.tree_.predict_proba(X)
        return found if self.late_ else found[:, ::-1]

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def test_a_lower_value_that_a_later_answer_undercuts_is_no_proof_of_optimality():
    # A learner that does not minimise: the first round's lower value is above the last round's upper one.
    model = robust(LearnsLate(), radius=2.0, max_iter=2, criterion="risk").fit(X, Y, contexts=LABELS)
    assert model.history_[:, 0].max() > model.history_[:, 1].min()
    assert model.certificate_.gap > 0.0


def test_a_learner_that_minimises_its_risk_comes_near_the_certified_optimum():
    # Far more rows than parameters: what is held out is like what is seen.
    features, y, codes = make(Squared(), 3, 1, 0, (2000, 2500))
    problem = LinearProblem.from_data(features, y, codes, Squared(), alpha=0.0)
    p_hat = problem.counts / problem.counts.sum()
    nothing = ReferenceRisks.exactly(np.zeros(3))
    optimum = fit_problem(problem, KLBall(p_hat, 0.3), nothing).solution.value
    model = cpo.ContextRobust(Ridge(alpha=1e-6), radius=0.3, criterion="risk", tol=1e-4)
    model.fit(features, y, contexts=codes)
    assert model.certificate_.upper == pytest.approx(optimum, rel=5e-3)


def test_row_losses_are_those_of_its_kind():
    np.testing.assert_allclose(fitted("svc").row_losses(X, Y), fitted("svc").predict(X) != Y)
    np.testing.assert_allclose(fitted("ridge").row_losses(X, Z), 0.5 * (fitted("ridge").predict(X) - Z) ** 2)
    p = fitted("forest").predict_proba(X)[np.arange(len(Y)), Y]
    np.testing.assert_allclose(fitted("forest").row_losses(X, Y)[p > 0.01], -np.log(p[p > 0.01]))


# --- data ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pandas", "polars", "sparse", "coo", "lists"])
def test_data_of_any_kind(kind):
    index = np.random.default_rng(0).permutation(len(Y))
    rows, y, contexts = {
        "pandas": (pd.DataFrame(X, columns=["a", "b"], index=index), pd.Series(Y, index), pd.Series(LABELS, index)),
        "polars": (pl.DataFrame(X, schema=["a", "b"]), pl.Series(Y), pl.Series(LABELS)),
        "sparse": (sparse.csr_matrix(X), Y, LABELS),
        "coo": (sparse.coo_array(X), Y, LABELS),
        "lists": (X.tolist(), Y.tolist(), LABELS.tolist()),
    }[kind]
    model = robust(LEARNERS["forest"]).fit(rows, y, contexts=contexts)
    np.testing.assert_array_equal(model.predict_proba(rows), fitted("forest").predict_proba(X))
    if kind in ("pandas", "polars"):
        assert model.feature_names_in_.tolist() == ["a", "b"]
    else:
        assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("classes", [["no", "yes"], [False, True], [-5, 7]], ids=str)
def test_labels_of_any_kind(classes):
    y = np.array(classes)[Y]
    model = robust(LEARNERS["forest"]).fit(X, y, contexts=LABELS)
    assert model.classes_.tolist() == classes
    np.testing.assert_array_equal(model.predict_proba(X), fitted("forest").predict_proba(X))
    assert set(model.predict(X)) <= set(y)


def test_several_classes_with_one_that_is_rare():
    features, y, codes = make(Multinomial(4), 3, 2, 1, (40, 50))
    y = np.array(["a", "b", "c", "d"])[y.astype(int)]
    y[np.flatnonzero((codes == 2) & (y == "b"))[1:]] = "a"
    model = robust(RandomForestClassifier(5, max_depth=3, random_state=0)).fit(features, y, contexts=codes)
    assert model.predict_proba(features).shape == (len(y), 4)
    assert np.isfinite(model.context_risks_).all()


def test_crossed_contexts():
    crossed = pd.DataFrame({"place": LABELS, "half": np.arange(len(Y)) % 2})
    model = robust(TREE).fit(X, Y, contexts=crossed)
    assert model.contexts_.tolist() == [(place, half) for place in NAMES for half in (0, 1)]


@pytest.mark.parametrize("learner", [TREE, SVC(), XGBClassifier(n_estimators=3, n_jobs=1), LogisticRegression()])
@pytest.mark.parametrize("kind", ["one row", "fewer rows than folds", "one class", "many of one row"])
@pytest.mark.parametrize("reference", ["cross-fit", "in-sample"])
def test_small_contexts_work(learner, kind, reference):
    labels, y = LABELS.astype(object), Y.copy()
    chosen = np.flatnonzero(LABELS == "west")[: {"one row": 1, "one class": 12}.get(kind, 3)]
    labels[chosen] = "tiny" if kind != "many of one row" else ["t1", "t2", "t3"]
    if kind == "one class":
        y[chosen] = 1
    model = robust(learner, cv=5, reference=reference).fit(X, y, contexts=labels)
    assert np.isfinite(model.context_risks_).all()
    assert np.isfinite(model.reference_risks_).all()
    assert (model.context_weights_ > 0).all()


def test_more_folds_than_rows():
    few = np.concatenate([np.flatnonzero(Y)[:4], np.flatnonzero(1 - Y)[:4]])
    model = robust(TREE, cv=50).fit(X[few], Y[few], contexts=np.arange(8) % 2)
    assert model.context_counts_.tolist() == [4, 4]


def test_a_splitter_of_the_users_own():
    cv = KFold(4, shuffle=True, random_state=1)
    model = robust(TREE, cv=cv, loss="zero_one", max_iter=1).fit(X, Y, contexts=LABELS)
    errors = np.empty(len(Y))
    for train, test in cv.split(X):
        errors[test] = clone(TREE).fit(X[train], Y[train]).predict(X[test]) != Y[test]
    np.testing.assert_allclose(model.context_risks_, np.bincount(CODES, errors) / np.bincount(CODES))


def test_weights_count_like_samples():
    own = 1.0 + np.arange(len(Y)) % 3
    model = robust(TREE).fit(X, Y, contexts=LABELS, sample_weight=own)
    np.testing.assert_allclose(model.context_counts_, np.bincount(CODES, own))
    assert model.radius_ == pytest.approx(cpo.confidence_radius(np.bincount(CODES, own)))
    ones = robust(TREE).fit(X, Y, contexts=LABELS, sample_weight=np.ones(len(Y)))
    np.testing.assert_array_equal(ones.context_weights_, robust(TREE).fit(X, Y, contexts=LABELS).context_weights_)


@pytest.mark.parametrize("left", [1, 3])
def test_rows_without_weight_are_no_failure(left):
    weight = np.ones(len(Y))
    weight[np.flatnonzero(LABELS == "west")[left:]] = 0.0
    model = robust(TREE).fit(X, Y, contexts=LABELS, sample_weight=weight)
    assert np.isfinite(model.context_risks_).all()
    assert model.context_counts_[2] == left


def test_without_contexts_it_warns_and_is_the_plain_fit():
    with pytest.warns(OneContextWarning, match=r"ContextRobust.*contexts"):
        model = robust(TREE).fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(X), clone(TREE).fit(X, Y).predict_proba(X))


# --- inside scikit-learn ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("within", [False, True], ids=["bare", "pipeline"])
def test_grid_search_over_the_learners_parameters_by_routing(within):
    model, name = robust(TREE), "estimator__max_depth"
    if within:
        model, name = make_pipeline(StandardScaler(), model), f"contextrobust__{name}"
    cv = KFold(2, shuffle=True, random_state=0)
    search = GridSearchCV(model, {name: [1, 3]}, cv=cv).fit(X, Y, contexts=LABELS)
    best = search.best_estimator_[-1] if within else search.best_estimator_
    assert best.contexts_.tolist() == NAMES.tolist()
    assert best.estimator_.get_depth() <= search.best_params_[name]
    train, test = next(cv.split(X))
    alone = robust(clone(TREE).set_params(max_depth=1)).fit(X[train], Y[train], contexts=LABELS[train])
    assert search.cv_results_["split0_test_score"][0] == pytest.approx(alone.score(X[test], Y[test]))


def test_cross_validation_without_routing():
    scores = cross_val_score(robust(TREE), X, Y, cv=3, params={"contexts": LABELS})
    assert (scores > 0.4).all()


@pytest.mark.usefixtures("routing")
def test_a_learner_with_requests_of_its_own_is_fitted_all_the_same():
    asking = clone(TREE).set_fit_request(sample_weight=True)
    model = robust(make_pipeline(StandardScaler(), asking)).fit(X, Y, contexts=LABELS)
    expected = robust(make_pipeline(StandardScaler(), TREE)).fit(X, Y, contexts=LABELS)
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))


def test_a_robust_linear_model_can_be_the_learner():
    model = robust(cpo.RobustLogisticRegression(radius=0.0)).fit(X, Y, contexts=LABELS)
    plain = robust(LogisticRegression(C=np.inf)).fit(X, Y, contexts=LABELS)
    np.testing.assert_allclose(model.context_risks_, plain.context_risks_, rtol=0.02)


def test_rounds_are_shown(capsys):
    model = robust(TREE, verbose=1).fit(X, Y, contexts=LABELS)
    shown = capsys.readouterr().err.strip().split("\n")
    assert len(shown) == model.n_iter_
    assert all("ContextRobust" in line and "gap" in line for line in shown)


# --- refusals -----------------------------------------------------------------------------------------------

BAD_PARAMETERS = [
    ("radius", "huge"),
    ("radius", -1.0),
    ("radius", np.nan),
    ("radius", None),
    ("confidence", 1.5),
    ("confidence", "high"),
    ("draws", 0),
    ("criterion", "loss"),
    ("reference", "best"),
    ("reference", {"east": 0.1}),
    ("reference", [0.1]),
    ("loss", "hinge"),
    ("loss", lambda y, z: 0.0),
    ("cv", 1),
    ("tol", -1e-3),
    ("max_iter", 0),
    ("max_iter", 2.5),
]


@pytest.mark.parametrize(
    ("name", "value"), BAD_PARAMETERS, ids=[f"{name}={value!r:.12}" for name, value in BAD_PARAMETERS]
)
def test_a_bad_parameter_is_named_with_a_remedy(name, value):
    with pytest.raises(ValueError, match=rf"^ContextRobust: (?s:.*)\b{name}\b.*[.;] .+\.$"):
        robust(TREE).set_params(**{name: value}).fit(X, Y, contexts=LABELS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"contexts": LABELS[:-1]}, "context labels"),
        ({"contexts": np.where(CODES == 0, np.nan, CODES)}, "context of row"),
        ({"contexts": "east"}, "contexts"),
        ({"sample_weight": np.ones(3)}, "sample_weight"),
        ({"sample_weight": -np.ones(len(Y))}, "sample_weight"),
        ({"sample_weight": np.full(len(Y), np.nan)}, "sample_weight"),
        ({"y": None}, "y"),
    ],
    ids=["too few contexts", "nan contexts", "one string", "too few weights", "negative", "nan weights", "no target"],
)
def test_bad_data_are_named(options, words):
    arguments = {"X": X, "y": Y, "contexts": LABELS} | options
    with pytest.raises(ValueError, match=rf"^ContextRobust: .*{words}"):
        robust(TREE).fit(**arguments)


@pytest.mark.parametrize(
    "y", [Y[:-1], np.where(Y == 1, np.nan, 0.0), np.column_stack([Y, Y])], ids=["short", "nan", "two columns"]
)
def test_a_bad_target_is_a_value_error(y):
    with pytest.raises(ValueError, match=r"samples|NaN|1d"):
        robust(TREE).fit(X, y, contexts=LABELS)


def test_a_context_without_any_weight_is_refused():
    with pytest.raises(EmptyContextError, match=r"ContextRobust.*west"):
        robust(TREE).fit(X, Y, contexts=LABELS, sample_weight=(LABELS != "west").astype(float))


def test_a_splitter_that_leaves_rows_out_is_refused():
    with pytest.raises(ValueError, match=r"ContextRobust.*cv leaves row \d+"):
        robust(TREE, cv=[(np.arange(100), np.arange(100, 150))]).fit(X, Y, contexts=LABELS)


@pytest.mark.parametrize(
    "learner",
    [
        KNeighborsClassifier(),
        make_pipeline(StandardScaler(), KNeighborsClassifier()),
        make_pipeline(StandardScaler(), make_pipeline(KNeighborsClassifier())),
    ],
    ids=["bare", "pipeline", "nested"],
)
def test_a_learner_without_weights_is_refused(learner):
    with pytest.raises(ValueError, match=r"ContextRobust: KNeighborsClassifier.*sample_weight"):
        robust(learner).fit(X, Y, contexts=LABELS)


def test_a_learner_that_refuses_the_data_is_heard():
    with pytest.raises(ValueError, match="NaN"):
        robust(LogisticRegression()).fit(np.where(X > 1.0, np.nan, X), Y, contexts=LABELS)


def test_rounds_that_run_out_are_said_with_the_gap_and_a_remedy():
    with pytest.warns(NotCertifiedWarning, match=r"ContextRobust: the rounds ran out .*gap .*max_iter"):
        robust(TREE, radius=math.inf, max_iter=1).fit(X, Y, contexts=LABELS)


@pytest.mark.parametrize("estimator", [None, "svc", SVC], ids=["none", "name", "class"])
def test_what_is_no_estimator_is_refused(estimator):
    with pytest.raises(ValueError, match=r"ContextRobust: estimator is .*pass"):
        cpo.ContextRobust(estimator).fit(X, Y, contexts=LABELS)


def test_log_loss_needs_probabilities():
    with pytest.raises(ValueError, match=r"ContextRobust: loss is 'log_loss', but SVC .*zero_one"):
        cpo.ContextRobust(SVC(), loss="log_loss").fit(X, Y, contexts=LABELS)


@pytest.mark.parametrize("learner", [Ridge(), SVC()])
def test_a_learner_may_predict_a_column_and_nothing_wider(learner):
    class Wide(type(learner)):
        width = 1

        def predict(self, X):
            return np.repeat(super().predict(X)[:, None], self.width, axis=1)

    rng = np.random.default_rng(0)
    X, contexts = rng.standard_normal((60, 2)), np.arange(60) % 3
    y = X[:, 0] + contexts if is_regressor(learner) else (X[:, 0] > 0).astype(int)
    plain = cpo.ContextRobust(learner, radius=0.0).fit(X, y, contexts=contexts)
    column = cpo.ContextRobust(Wide(), radius=0.0).fit(X, y, contexts=contexts)
    assert (column.context_risks_ == plain.context_risks_).all()
    Wide.width = 2
    with pytest.raises(InvalidInputError, match="returned shape"):
        cpo.ContextRobust(Wide(), radius=0.0).fit(X, y, contexts=contexts)


# --- the guard ----------------------------------------------------------------------------------------------


def planted(n=1200, seed=0):
    """Return rows of which a tenth follow another rule."""
    rng = np.random.default_rng(seed)
    features, codes = rng.standard_normal((n, 3)), (rng.random(n) < 0.1).astype(int)
    other = codes == 1
    y = np.where(other, features[:, 1], features[:, 0]) + 0.3 * rng.standard_normal(n)
    return features, y, codes


def test_a_planted_shift_keeps_the_robust_learner():
    features, y, codes = planted()
    model = cpo.ContextRobust(Ridge(), confidence=1.0, cv=3).fit(features, y, contexts=codes)
    assert model.chosen_ == "robust"
    assert model.headroom_.something
    erm, robust = model.candidates_.rows()
    assert robust["change"] + robust["error"] < 0.0
    assert robust["worst_case"] < 0.7 * erm["worst_case"]
    assert model.context_weights_[1] > 0.3
    unguarded = cpo.ContextRobust(Ridge(), confidence=1.0, cv=3, guard=False, headroom=None)
    assert unguarded.fit(features, y, contexts=codes).excess_risks_.max() == pytest.approx(
        model.excess_risks_.max(), rel=0.1
    )


@pytest.mark.parametrize("options", [{}, {"criterion": "risk"}, {"reference": "shrunk"}, {"reference": "in-sample"}])
def test_where_there_is_nothing_to_win_the_plain_learner_is_returned(options):
    rng = np.random.default_rng(3)
    features, codes = rng.standard_normal((400, 3)), np.arange(400) % 4
    y = features[:, 0] + rng.standard_normal(400)
    learner = DecisionTreeRegressor(max_depth=3, random_state=0)
    model = cpo.ContextRobust(learner, confidence=1.0, cv=3, **options).fit(features, y, contexts=codes)
    assert model.chosen_ == "erm"
    np.testing.assert_array_equal(model.predict(features), learner.fit(features, y).predict(features))
    np.testing.assert_allclose(model.context_weights_, 0.25)
    assert model.certificate_.lower <= model.certificate_.upper


def test_nothing_to_gain_ends_the_search():
    rng = np.random.default_rng(4)
    features, codes = rng.standard_normal((900, 2)), np.arange(900) % 3
    y = features[:, 0] + 0.5 * rng.standard_normal(900)
    fits = []

    class Counted(Ridge):
        def fit(self, X, y, sample_weight=None):
            fits.append(len(y))
            return super().fit(X, y, sample_weight)

    model = cpo.ContextRobust(Counted(), confidence=1.0, cv=3).fit(features, y, contexts=codes)
    assert model.headroom_.nothing
    assert model.chosen_ == "erm"
    # Three folds of all rows, the answer, and as many folds of each context as it takes to know: three at most.
    assert sorted(fits)[-4:] == [600, 600, 600, 900]
    assert 3 <= sum(n == 200 for n in fits) == len(fits) - 4 <= 9
    assert model.candidates_["candidate"].tolist() == ["erm"]


@pytest.mark.parametrize(("name", "value"), [("guard", "yes"), ("headroom", "maybe"), ("headroom", True)])
def test_switches_of_the_guard_are_checked(name, value):
    with pytest.raises(InvalidInputError, match=name):
        cpo.ContextRobust(Ridge(), **{name: value}).fit(X, Z, contexts=LABELS)


@pytest.mark.parametrize(
    ("learner", "y", "risk"),
    [
        (Ridge(), Z, 0.5 * np.var(Z)),
        (TREE, Y, -np.mean(np.log(np.where(Y == 1, Y.mean(), 1 - Y.mean())))),
        (SVC(), Y, min(Y.mean(), 1 - Y.mean())),
    ],
    ids=["numbers", "classes", "errors"],
)
def test_references_of_a_constant_and_of_the_plain_learner(learner, y, risk):
    null = robust(learner, reference="null").fit(X, y, contexts=LABELS)
    pooled = robust(learner, reference="pooled").fit(X, y, contexts=LABELS)
    plain = robust(learner, radius=0.0, reference="pooled").fit(X, y, contexts=LABELS)
    np.testing.assert_allclose(pooled.reference_risks_, plain.context_risks_)
    np.testing.assert_allclose(plain.excess_risks_, 0.0, atol=1e-12)
    assert P_HAT @ null.reference_risks_ == pytest.approx(risk, rel=0.05)
    assert null.headroom_ is None


class Weighed(LogisticRegression):
    """A learner that cannot be fitted without weights."""

    def fit(self, X, y, sample_weight):
        return super().fit(X, y, sample_weight)


def test_a_learner_that_asks_for_weights_is_given_them():
    rng = np.random.default_rng(0)
    X, contexts = rng.standard_normal((120, 2)), np.arange(120) % 2
    y = (X[:, 0] + rng.standard_normal(120) > 0).astype(int)
    with_weights = cpo.ContextRobust(Weighed(), radius=0.2).fit(X, y, contexts=contexts)
    without = cpo.ContextRobust(LogisticRegression(), radius=0.2).fit(X, y, contexts=contexts)
    np.testing.assert_allclose(with_weights.predict_proba(X), without.predict_proba(X), rtol=1e-6)
