"""Contexts that overlap: the same problem as that of rows repeated once for each context, with a row still one row."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold

import counterpoise as cpo
from counterpoise.estimators.boosting_rounds import Rows, Split
from counterpoise.exceptions import InvalidInputError
from tests.referees import robust

NAMES = ["everyone", "over 80", "diabetic"]
STATED = {
    "minimax risk": {"confidence": 1, "criterion": "risk"},
    "minimax regret": {"confidence": 1},
    "ball": {"radius": 0.1},
    "ball of risk": {"radius": 0.3, "criterion": "risk"},
    "plain": {"radius": 0},
}


def drawn(seed, n=120, everyone=True):
    """Return features, classes, numbers and memberships."""
    rng = np.random.default_rng(seed)
    member = rng.random((n, 3)) < [0.5, 0.35, 0.3]
    member[:, 0] |= everyone | ~member.any(axis=1)
    X = rng.standard_normal((n, 2))
    z = X[:, 0] * np.where(member[:, 1], -1.0, 1.0) + X[:, 1] * (1 + member[:, 2])
    return X, (z + rng.logistic(size=n) > 0).astype(int), z + rng.standard_normal(n), member


X, CLASSES, NUMBERS, MEMBER = drawn(0)
CONTEXTS = cpo.Memberships(MEMBER, NAMES)
ROWS, CODES = np.nonzero(MEMBER)
LABELS = np.array(NAMES)[CODES]

pytestmark = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("switches", STATED)
@pytest.mark.parametrize(
    ("estimator", "loss"), [(cpo.RobustLogisticRegression, "logistic"), (cpo.RobustLinearRegression, "squared")]
)
def test_the_optimum_is_that_of_the_membership_matrix(estimator, loss, switches, seed):
    given = STATED[switches]
    features, classes, numbers, member = drawn(seed, 60, everyone=seed % 2 == 0)
    y = classes if loss == "logistic" else numbers
    model = estimator(reference="in-sample", alpha=0.01, **given)
    model.fit(features, y, contexts=cpo.Memberships(member))
    bits = np.inf if "confidence" in given else given["radius"]
    answer = robust.solve(loss, features, y, member, bits, given.get("criterion", "excess"), 0.01, True)
    assert model.certificate_.relative_gap <= 1e-6
    assert model.certificate_.lower - 1e-7 <= answer.value <= model.certificate_.upper + 1e-7
    np.testing.assert_allclose(model.context_counts_, member.sum(axis=0))
    if "criterion" not in given:
        np.testing.assert_allclose(model.reference_risks_, answer.reference_risks, atol=1e-6)


@pytest.mark.parametrize("form", ["dense", "sparse", "frame"])
@pytest.mark.parametrize(
    "estimator",
    [
        cpo.RobustLogisticRegression,
        cpo.RobustLinearRegression,
        cpo.RobustHuberRegressor,
        cpo.RobustQuantileRegressor,
        cpo.RobustPoissonRegressor,
    ],
)
def test_linear_models_are_those_of_repeated_rows(estimator, form):
    features = {"dense": X, "sparse": sparse.csr_array(X), "frame": pd.DataFrame(X, columns=["a", "b"])}[form]
    y = {"RobustLogisticRegression": CLASSES, "RobustPoissonRegressor": np.round(np.exp(NUMBERS / 4))}
    target = y.get(estimator.__name__, NUMBERS)
    weight = np.random.default_rng(1).integers(0, 3, len(X)).astype(float)
    model = estimator(reference="in-sample", radius=0.2)
    model.fit(features, target, contexts=CONTEXTS, sample_weight=weight)
    again = estimator(reference="in-sample", radius=0.2)
    again.fit(sparse.csr_array(X)[ROWS] if form == "sparse" else X[ROWS], target[ROWS], LABELS, weight[ROWS])
    order = [again.contexts_.tolist().index(name) for name in NAMES]
    assert model.contexts_.tolist() == NAMES
    np.testing.assert_allclose(model.coef_, again.coef_, atol=1e-5)
    np.testing.assert_allclose(model.context_risks_, again.context_risks_[order], atol=1e-5)
    np.testing.assert_allclose(model.context_counts_, again.context_counts_[order])
    assert np.isnan(model.draws_)
    assert model.predict(features).shape == (len(X),)


def test_orders_are_those_of_repeated_rows():
    demand, costs = np.round(np.exp(2 + NUMBERS / 4)), 2.0 + MEMBER[:, 2]
    level = cpo.RobustNewsvendor(5.0, confidence=1).fit(costs, demand, contexts=CONTEXTS)
    again = cpo.RobustNewsvendor(5.0, confidence=1).fit(costs[ROWS], demand[ROWS], contexts=LABELS)
    assert level.stock_level_ == again.stock_level_
    switches = {"price": 5.0, "max_stock": 20.0, "radius": 0.2, "reference": "in-sample"}
    rule = cpo.RobustNewsvendorRegressor(**switches).fit(X, demand, contexts=CONTEXTS, costs=costs)
    again = cpo.RobustNewsvendorRegressor(**switches).fit(X[ROWS], demand[ROWS], contexts=LABELS, costs=costs[ROWS])
    assert rule.certificate_.upper == pytest.approx(again.certificate_.upper, rel=1e-6)
    held = rule.pose(X=X, y=demand, contexts=CONTEXTS, sample_weight=None, costs=costs).cross_fit(1e-6)
    assert {len(np.unique(held.folds[held.oracle.rows.together == row])) for row in range(len(X))} == {1}


@pytest.mark.parametrize("reference", ["cross-fit", "shrunk"])
def test_a_row_is_held_out_of_all_of_its_contexts_at_once(reference):
    """A column given twice is one context twice: its own model has not seen the row either."""
    twice = cpo.Memberships(np.column_stack([MEMBER, MEMBER[:, 1]]))
    model = cpo.RobustLogisticRegression(reference=reference, radius=0.1, adjust="standard-error")
    held = model.pose(X=X, y=CLASSES, contexts=twice, sample_weight=None).cross_fit(1e-6)
    assert {len(np.unique(held.folds[held.oracle.rows.together == row])) for row in range(len(X))} == {1}
    found = model.fit(X, CLASSES, contexts=twice)
    assert found.reference_risks_[1] == pytest.approx(found.reference_risks_[3], rel=1e-6)
    assert found.adjustments_[1] == pytest.approx(found.adjustments_[3], rel=1e-6)
    np.testing.assert_allclose(held.rows.counts, twice.matrix.sum(axis=0))


@pytest.mark.parametrize("switches", [{"confidence": 1}, {"radius": 0.2}, {"radius": 0.2, "criterion": "risk"}])
def test_any_learner_is_that_of_repeated_rows(switches):
    weight = np.random.default_rng(2).integers(0, 3, len(X)).astype(float)
    splits = list(KFold(4).split(X))
    repeated = [tuple(np.flatnonzero(np.isin(ROWS, part)) for part in split) for split in splits]
    model = cpo.ContextRobust(LinearRegression(), cv=splits, **switches)
    model.fit(X, NUMBERS, contexts=CONTEXTS, sample_weight=weight)
    again = cpo.ContextRobust(LinearRegression(), cv=repeated, **switches)
    again.fit(X[ROWS], NUMBERS[ROWS], contexts=LABELS, sample_weight=weight[ROWS], groups=ROWS)
    order = [again.contexts_.tolist().index(name) for name in NAMES]
    np.testing.assert_allclose(model.context_weights_, again.context_weights_[order], atol=1e-8)
    np.testing.assert_allclose(model.context_risks_, again.context_risks_[order], rtol=1e-8)
    np.testing.assert_allclose(model.reference_risks_, again.reference_risks_[order], rtol=1e-8)
    np.testing.assert_allclose(model.estimator_.coef_, again.estimator_.coef_, rtol=1e-6)


@pytest.mark.parametrize("reference", ["in-sample", "cross-fit", "shrunk"])
def test_any_learner_takes_every_kind_of_reference(reference):
    model = cpo.ContextRobust(LinearRegression(), reference=reference, radius=0.2, adjust="standard-error")
    model.fit(X, NUMBERS, contexts=CONTEXTS)
    assert np.isfinite(model.reference_risks_).all()
    assert np.isfinite(model.adjustments_).all()


def test_any_learner_weighs_a_row_by_the_sum_over_its_contexts():
    class Recorder(LinearRegression):
        def fit(self, X, y, sample_weight=None):
            self.seen_ = np.copy(sample_weight)
            return super().fit(X, y, sample_weight)

    model = cpo.ContextRobust(Recorder(), radius=0.2).fit(X, NUMBERS, contexts=CONTEXTS)
    weight = MEMBER @ (model.context_weights_ / MEMBER.sum(axis=0))
    np.testing.assert_allclose(model.estimator_.seen_, len(X) * weight / weight.sum())


def test_boosting_takes_them():
    pytest.importorskip("xgboost")
    model = cpo.RobustXGBClassifier(radius=0.2, n_estimators=5).fit(X, CLASSES, contexts=CONTEXTS)
    assert model.contexts_.tolist() == NAMES
    assert model.context_counts_.tolist() == MEMBER.sum(axis=0).tolist()
    assert np.isfinite(model.excess_risks_).all()


@pytest.mark.parametrize("seed", range(5))
def test_boosting_holds_rows_out_of_all_of_their_contexts_and_some_of_each(seed):
    rng = np.random.default_rng(seed)
    member = rng.random((40, 6)) < [1.0, 0.6, 0.3, 0.1, 0.05, 0.05]
    member[seed, :] = True
    rows, codes = np.nonzero(member)
    order = rng.permutation(len(rows))
    rows, codes = rows[order], codes[order]
    data = Rows(np.column_stack([rows, codes]), rng.random(40)[rows], np.ones(len(rows)), codes)
    split = Split.of(data, 0.2, rows)
    assert not set(split.train.X[:, 0]) & set(split.held.X[:, 0])
    assert set(split.held.codes) == set(range(6))
    assert split.n_contexts == 6


@pytest.mark.parametrize("radius", ["types", "agrawal", "calibrated", "chi2", "anytime"])
@pytest.mark.parametrize("mix", [None, {"diabetic": (0.1, 0.9)}, cpo.Mix(counts=dict.fromkeys(NAMES, 10))])
def test_radii_that_follow_from_counts_are_refused(radius, mix):
    for model in (
        cpo.RobustLogisticRegression(radius=radius, mix=mix),
        cpo.ContextRobust(LinearRegression(), radius=radius, mix=mix),
    ):
        words = f"{type(model).__name__}: radius is '{radius}', and contexts overlap.*confidence=1.*mix="
        with pytest.raises(InvalidInputError, match=words):
            model.fit(X, CLASSES, contexts=CONTEXTS)


@pytest.mark.parametrize(
    "switches",
    [
        {"confidence": 1, "draws": "groups"},
        {"mix": cpo.Mix(bounds={"diabetic": (0.1, 0.3)}, ball=None)},
        {"mix": cpo.Mix(shares={"diabetic": 0.5, "everyone": 0.5}, radius=0.1)},
        {"mix": cpo.Mix(ball="tv", radius=0.1)},
        {"mix": {"diabetic": (0.1, 0.3)}, "radius": 2.0},
        {"mix": cpo.Chi2Ball([0.2, 0.3, 0.5], 0.5)},
    ],
)
def test_mixes_that_are_stated_are_taken(switches):
    model = cpo.RobustLogisticRegression(reference="in-sample", **switches).fit(X, CLASSES, contexts=CONTEXTS)
    assert model.certificate_.relative_gap <= 1e-6
    assert np.isnan(model.draws_)


def test_a_plain_fit_counts_a_row_as_often_as_it_has_contexts():
    model = cpo.RobustLinearRegression(radius=0, alpha=0, reference="in-sample").fit(X, NUMBERS, contexts=CONTEXTS)
    plain = LinearRegression().fit(X, NUMBERS, MEMBER.sum(axis=1))
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-8)
    np.testing.assert_allclose(model.context_weights_, MEMBER.sum(axis=0) / MEMBER.sum())


def test_memberships_that_do_not_overlap_may_be_sized_by_their_counts():
    labels = np.array(NAMES)[CODES[np.unique(ROWS, return_index=True)[1]]]
    labels[::2] = "diabetic"
    split = cpo.Memberships(pd.get_dummies(pd.Series(labels)))
    model = cpo.RobustLogisticRegression(reference="in-sample").fit(X, CLASSES, contexts=split)
    usual = cpo.RobustLogisticRegression(reference="in-sample").fit(X, CLASSES, contexts=labels)
    np.testing.assert_array_equal(model.coef_, usual.coef_)
    assert model.radius_ == usual.radius_


def test_a_frame_in_another_order_is_refused():
    frame = pd.DataFrame(X, columns=["a", "b"])
    shuffled = pd.DataFrame(MEMBER, columns=NAMES).iloc[::-1]
    with pytest.raises(InvalidInputError, match="same index as X in another order"):
        cpo.RobustLogisticRegression(radius=0.1).fit(frame, CLASSES, contexts=cpo.Memberships(shuffled))


def test_a_search_deals_memberships_to_its_folds():
    search = GridSearchCV(
        cpo.RobustLogisticRegression(radius=0.1, reference="in-sample"),
        {"alpha": [1e-3, 1e2]},
        scoring=cpo.metrics.WorstContextScorer(),
        cv=3,
    )
    with config_context(enable_metadata_routing=True):
        search.fit(X, CLASSES, contexts=CONTEXTS)
    assert search.best_params_ == {"alpha": 1e-3}


def test_rows_on_workers_are_refused():
    array = pytest.importorskip("dask.array")
    words = "overlapping contexts .* are for rows in memory.*on workers"
    with pytest.raises(InvalidInputError, match=words):
        cpo.RobustLogisticRegression(radius=0.1).fit(array.from_array(X), array.from_array(CLASSES), contexts=CONTEXTS)
    with pytest.raises(InvalidInputError, match=words):
        cpo.RobustNewsvendor(5.0, radius=0.1).fit(1.0, array.from_array(np.abs(NUMBERS)), contexts=CONTEXTS)
    with pytest.raises(InvalidInputError, match="on workers"):
        cpo.Memberships(array.from_array(MEMBER))


def test_rows_on_a_device_are_refused():
    pytest.importorskip("torch")
    with pytest.raises(InvalidInputError, match=r"contexts overlap .*rows in memory"):
        cpo.RobustLogisticRegression(radius=0.1, device="cpu").fit(X, CLASSES, contexts=CONTEXTS)
