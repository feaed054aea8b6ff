"""Adjusted scores and shrunken references, in every estimator that has them, against fits shifted by hand."""

import math
import pickle

import numpy as np
import pytest
import skops.io
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier

import counterpoise as cpo
from counterpoise.core.references import folds_within
from counterpoise.core.references.shrunk import shrunken
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Huber, Logistic, Multinomial, Newsvendor, Pinball, Poisson, Squared
from tests.problems import make

# Small contexts are the point here, not a mistake.
pytestmark = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")

MODELS = {
    "binary": (cpo.RobustLogisticRegression, Logistic(), {}),
    "multinomial": (cpo.RobustLogisticRegression, Multinomial(3), {}),
    "linear": (cpo.RobustLinearRegression, Squared(), {}),
    "huber": (cpo.RobustHuberRegressor, Huber(1.35), {}),
    "poisson": (cpo.RobustPoissonRegressor, Poisson(), {}),
    "quantile": (cpo.RobustQuantileRegressor, Pinball(0.5), {}),
    "orders": (cpo.RobustNewsvendorRegressor, Newsvendor(10.0), {"price": 10.0, "cost": 4.0}),
}
every_model = pytest.mark.parametrize("name", MODELS)
every_score = pytest.mark.parametrize("criterion", ["excess", "risk"])


def rows_of(name, seed=3, n_contexts=4, size=(10, 30)):
    X, y, codes = make(MODELS[name][1], n_contexts, 2, seed, size)
    return X, (y[:, 1] if name == "orders" else y), codes


def model_of(name, **options):
    kind, _, own = MODELS[name]
    return kind(**own, **({"radius": 0.3, "alpha": 1e-2, "tol": 1e-8, "reference": "in-sample"} | options))


def assert_same_model(one, other, atol=1e-4):
    np.testing.assert_allclose(one.coef_, other.coef_, atol=atol)
    np.testing.assert_allclose(one.context_risks_, other.context_risks_, atol=atol)


# --- adjust -------------------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("adjust", [0.7, "standard-error"])
@every_score
def test_adjusting_is_the_same_as_shifting_the_references_by_hand(name, adjust, criterion):
    X, y, codes = rows_of(name)
    model = model_of(name, adjust=adjust, criterion=criterion).fit(X, y, contexts=codes)
    taken = model.reference_risks_ if criterion == "excess" else 0.0
    shifted = dict(enumerate(taken - model.adjustments_))
    by_hand = model_of(name, reference=shifted).fit(X, y, contexts=codes)
    assert_same_model(model, by_hand)
    assert (model.adjustments_ > 0).all()
    assert model.certificate_.upper == pytest.approx(by_hand.certificate_.upper, rel=1e-6)
    assert model.certificate_.relative_gap <= 1e-8
    np.testing.assert_array_equal(model.excess_risks_, model.context_risks_ - model.reference_risks_)
    plain = model_of(name, criterion=criterion).fit(X, y, contexts=codes)
    np.testing.assert_array_equal(plain.adjustments_, np.zeros(4))
    np.testing.assert_allclose(plain.reference_risks_, model.reference_risks_, rtol=1e-9)
    assert not np.allclose(plain.context_weights_, model.context_weights_, atol=1e-4)


@pytest.mark.parametrize("adjust", [0.7, "standard-error"])
def test_certificate_is_of_the_adjusted_objective(adjust):
    X, y, codes = rows_of("binary")
    model = model_of("binary", adjust=adjust).fit(X, y, contexts=codes)
    shares = np.bincount(codes) / len(codes)
    worst = cpo.KLBall(shares, 0.3).worst_case(model.excess_risks_ + model.adjustments_)
    assert model.certificate_.upper == pytest.approx(float(worst.value), abs=1e-7)
    assert model.certificate_.scope == "global"


def test_a_number_is_divided_by_the_root_of_the_size():
    X, y, codes = rows_of("linear")
    model = model_of("linear", adjust=2).fit(X, y, contexts=codes)
    np.testing.assert_allclose(model.adjustments_, 2.0 / np.sqrt(np.bincount(codes)))


@every_model
def test_a_number_changes_nothing_where_contexts_are_of_one_size(name):
    X, y, codes = rows_of(name, size=(20, 40))
    keep = np.concatenate([np.flatnonzero(codes == c)[:20] for c in range(4)])
    data = (X[keep], y[keep], codes[keep])
    assert_same_model(model_of(name, adjust=3.0).fit(*data), model_of(name).fit(*data))


@every_model
def test_whole_weights_are_repeated_rows(name):
    X, y, codes = rows_of(name)
    times = np.random.default_rng(0).integers(1, 4, len(y))
    weighted = model_of(name, adjust=0.7).fit(X, y, contexts=codes, sample_weight=times)
    many = (np.repeat(part, times, axis=0) for part in (X, y, codes))
    repeated = model_of(name, adjust=0.7).fit(*many)
    np.testing.assert_allclose(weighted.adjustments_, repeated.adjustments_)
    assert_same_model(weighted, repeated)


def held_out_by_hand(X, y, codes, weight, alpha):
    """Return the losses of a pooled ridge regression on rows held out, with its ridge, fold by fold."""
    folds, losses = folds_within(codes, y, 5), np.empty(len(y))
    counts = np.bincount(codes, weight)
    for fold in range(5):
        held = folds == fold
        # Contexts weigh as in the data, and not by how many rows the fold has left them.
        left = np.bincount(codes[~held], weight[~held], len(counts))
        mix = weight[~held] / left[codes[~held]] * counts[codes[~held]]
        plain = Ridge(alpha=alpha * mix.sum(), tol=1e-14).fit(X[~held], y[~held], mix)
        losses[held] = 0.5 * (y[held] - plain.predict(X[held])) ** 2 + 0.5 * alpha * float(plain.coef_ @ plain.coef_)
    return losses


@pytest.mark.parametrize("weighted", [False, True])
def test_standard_errors_are_those_of_held_out_rows_counted_by_hand(weighted):
    X, y, codes = rows_of("linear")
    weight = np.random.default_rng(1).integers(1, 4, len(y)).astype(float) if weighted else np.ones(len(y))
    losses = held_out_by_hand(X, y, codes, weight, 1e-2)
    expected = []
    for c in range(4):
        own, n = losses[codes == c], weight[codes == c].sum()
        mean = weight[codes == c] @ own / n
        expected.append(math.sqrt(weight[codes == c] @ (own - mean) ** 2 / (n - 1) / n))
    model = model_of("linear", adjust="standard-error").fit(X, y, contexts=codes, sample_weight=weight)
    np.testing.assert_allclose(model.adjustments_, expected, rtol=1e-5)


@every_model
@pytest.mark.parametrize("reference", ["cross-fit", "shrunk"])
def test_contexts_of_one_row_have_adjustments_and_references(name, reference):
    X, y, codes = rows_of(name)
    codes[np.flatnonzero(codes == 3)[1:]] = 2
    model = model_of(name, adjust="standard-error", reference=reference).fit(X, y, contexts=codes)
    assert model.context_counts_[3] == 1
    assert (model.adjustments_ > 0).all()
    assert model.adjustments_[3] > np.max(model.adjustments_[:3])
    assert np.isfinite(model.reference_risks_).all()


def test_one_row_gets_the_standard_deviation_within_the_others():
    X, y, codes = rows_of("linear")
    codes[np.flatnonzero(codes == 3)[1:]] = 2
    losses = held_out_by_hand(X, y, codes, np.ones(len(y)), 1e-2)
    within = sum(np.sum((losses[codes == c] - losses[codes == c].mean()) ** 2) for c in range(3))
    model = model_of("linear", adjust="standard-error").fit(X, y, contexts=codes)
    assert model.adjustments_[3] == pytest.approx(math.sqrt(within / (len(y) - 1 - 3)), rel=1e-5)


@every_model
@pytest.mark.parametrize("adjust", [0.7, "standard-error"])
def test_one_mix_is_not_changed(name, adjust, monkeypatch):
    X, y, codes = rows_of(name)
    plain = model_of(name, radius=0.0).fit(X, y, contexts=codes)
    monkeypatch.setattr("counterpoise.core.references.cross_fit.fit_specialists", None)
    model = model_of(name, radius=0.0, adjust=adjust).fit(X, y, contexts=codes)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-9)
    assert (model.adjustments_ > 0).all() if adjust == 0.7 else not model.adjustments_.any()


@pytest.mark.parametrize("options", [{"adjust": 0.7}, {"adjust": "standard-error", "reference": "shrunk"}])
def test_the_path_follows_the_adjustment(options):
    X, y, codes = rows_of("binary")
    path = cpo.confidence_path(model_of("binary", **options), X, y, codes, radii=[0.0, 0.1, 0.4, 50.0])
    for radius, one in zip([0.0, 0.1, 0.4, 50.0], path.models, strict=True):
        alone = model_of("binary", radius=radius, **options).fit(X, y, contexts=codes)
        np.testing.assert_allclose(one.coef_, alone.coef_, atol=1e-3)
        if radius:
            np.testing.assert_allclose(one.adjustments_, alone.adjustments_)
        np.testing.assert_allclose(one.reference_risks_, alone.reference_risks_)
        assert (one.reference_bracket_ is None) == ("reference" not in options)


WRONG = [0, 0.0, -1.0, math.nan, math.inf, True, "se", [1.0], 10**400]


@pytest.mark.parametrize("adjust", WRONG, ids=lambda value: f"{value!r:.10}")
def test_a_wrong_adjustment_is_refused_by_name(adjust):
    X, y, codes = rows_of("linear")
    words = r"adjust is .*; pass None, 'standard-error' or a positive number, such as 1\.0\.$"
    for model in (model_of("linear", adjust=adjust), cpo.ContextRobust(Ridge(), adjust=adjust)):
        with pytest.raises(InvalidInputError, match=f"^{type(model).__name__}: {words}"):
            model.fit(X, y, contexts=codes)


@every_model
def test_parameters_survive_cloning_and_models_survive_keeping(name):
    X, y, codes = rows_of(name)
    model = model_of(name, adjust="standard-error", reference="shrunk").fit(X, y, contexts=codes)
    assert clone(model).get_params()["adjust"] == "standard-error"
    kept = skops.io.loads(skops.io.dumps(model), trusted=skops.io.get_untrusted_types(data=skops.io.dumps(model)))
    for same in (pickle.loads(pickle.dumps(model)), kept):
        np.testing.assert_array_equal(same.adjustments_, model.adjustments_)
        np.testing.assert_array_equal(same.reference_bracket_, model.reference_bracket_)
    for word in ("adjust :", "adjustments_ :", "reference_bracket_ :", '"shrunk"'):
        assert word in type(model).__doc__


# --- shrunken references ------------------------------------------------------------------------------------


@every_model
def test_shrunken_references_come_with_a_bracket_that_the_others_do_not_have(name):
    X, y, codes = rows_of(name)
    model = model_of(name, reference="shrunk").fit(X, y, contexts=codes)
    assert model.reference_bracket_.shape == (4, 2)
    assert (model.reference_bracket_[:, 0] < model.reference_bracket_[:, 1]).all()
    for reference in ("in-sample", "cross-fit"):
        assert model_of(name, reference=reference).fit(X, y, contexts=codes).reference_bracket_ is None


def test_orders_with_two_kinks_are_one_row_each():
    X, demand, codes = rows_of("orders")
    terms = {"price": 10.0, "cost": 4.0, "max_stock": float(np.quantile(demand, 0.7)), "salvage": 1.0}
    options = {"radius": 0.3, "alpha": 0.05, "adjust": "standard-error", "reference": "shrunk"}
    model = cpo.RobustNewsvendorRegressor(**terms, **options).fit(X, demand, contexts=codes)
    assert np.isfinite(model.adjustments_).all()
    # A row that counts twice is there twice.
    twice = cpo.RobustNewsvendorRegressor(**terms, **options).fit(
        X, demand, contexts=codes, sample_weight=np.full(len(demand), 2.0)
    )
    n = np.bincount(codes)
    np.testing.assert_allclose(twice.adjustments_, model.adjustments_ * np.sqrt(0.5 * (n - 1) / (n - 0.5)), rtol=1e-3)


# --- any learner --------------------------------------------------------------------------------------------


TREE = DecisionTreeClassifier(max_depth=2, random_state=0)


def judged(learner, y, X, codes, own, cv=3):
    """Return the log losses of rows held out, of a learner fitted to all contexts or to the row's own; inf for none."""
    folds, losses = folds_within(codes, y, cv), np.full(len(y), np.inf)
    for fold in range(cv):
        for c in np.unique(codes) if own else [None]:
            rest, held = folds != fold, folds == fold
            if c is not None:
                rest, held = rest & (codes == c), held & (codes == c)
            if len(np.unique(y[rest])) < 2:
                continue
            fitted = clone(learner).fit(X[rest], y[rest])
            p = np.clip(fitted.predict_proba(X[held])[np.arange(held.sum()), y[held].astype(int)], 0.5 / len(y), 1.0)
            losses[held] = -np.log(p)
    return losses


@pytest.fixture(scope="module")
def patients():
    X, y, codes = make(Logistic(), 5, 2, 2, (12, 30))
    # One class in the fourth context, one row in the fifth.
    y[codes == 3] = 1.0
    codes[np.flatnonzero(codes == 4)[1:]] = 0
    return X, y, codes


def game(**options):
    # The game itself, whatever comes of it.
    options |= {"guard": False, "headroom": None}
    return cpo.ContextRobust(LogisticRegression(C=2.0), cv=3, radius=0.2, max_iter=15, **options)


def test_standard_errors_of_any_learner_are_those_of_the_plain_one(patients):
    X, y, codes = patients
    model = game(adjust="standard-error").fit(X, y, contexts=codes)
    losses = judged(LogisticRegression(C=2.0), y, X, codes, own=False)
    counts = np.bincount(codes)
    squares = np.array([np.sum((losses[codes == c] - losses[codes == c].mean()) ** 2) for c in range(5)])
    within = squares.sum() / (counts - 1).sum()
    variance = np.append(squares[:4] / (counts[:4] - 1), within)
    np.testing.assert_allclose(model.adjustments_, np.sqrt(variance / counts), rtol=1e-5)
    np.testing.assert_allclose(model.excess_risks_, model.context_risks_ - model.reference_risks_)


@every_score
@pytest.mark.parametrize("adjust", [0.7, "standard-error"])
def test_adjusting_any_learner_is_the_same_as_shifting_its_references(patients, adjust, criterion):
    X, y, codes = patients
    model = game(adjust=adjust, criterion=criterion).fit(X, y, contexts=codes)
    taken = model.reference_risks_ if criterion == "excess" else 0.0
    by_hand = game(reference=dict(enumerate(taken - model.adjustments_))).fit(X, y, contexts=codes)
    np.testing.assert_allclose(model.context_weights_, by_hand.context_weights_, atol=1e-6)
    np.testing.assert_allclose(model.history_, by_hand.history_, atol=1e-9)
    assert model.certificate_.upper == pytest.approx(by_hand.certificate_.upper)
    plain = game(criterion=criterion).fit(X, y, contexts=codes)
    assert not plain.adjustments_.any()
    # The first round is the plain learner with or without: the same risks, other scores.
    assert (model.history_[0] > plain.history_[0]).all()


def test_shrunken_references_of_any_learner_by_hand(patients):
    X, y, codes = patients
    model = game(reference="shrunk").fit(X, y, contexts=codes)
    own, pooled = (judged(LogisticRegression(C=2.0), y, X, codes, own=own) for own in (True, False))
    counts = np.bincount(codes)
    means = np.bincount(codes, pooled) / counts
    known = np.array([True, True, True, False, False])
    gains, squares = np.full(5, np.nan), np.zeros(5)
    for c in np.flatnonzero(known):
        difference = (pooled - own)[codes == c]
        gains[c], squares[c] = difference.mean(), np.sum((difference - difference.mean()) ** 2)
    freedom = np.where(known, counts - 1, 0)
    variance = (squares + squares.sum() / freedom.sum()) / (freedom + 1.0)
    moved = shrunken(gains, np.where(known, np.sqrt(variance / counts), np.nan))
    assert moved[3] == moved[4]
    np.testing.assert_allclose(model.reference_risks_, means - np.maximum(moved, 0.0), rtol=1e-5)
    assert model.reference_bracket_[3, 0] == -np.inf
    assert np.isfinite(model.reference_bracket_[:3]).all()
    assert (model.reference_bracket_[:3, 0] < model.reference_bracket_[:3, 1]).all()


def test_weights_and_a_learner_of_any_kind():
    X, y, codes = make(Logistic(), 6, 2, 5, (4, 20))
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    options = {"cv": 3, "radius": 0.2, "max_iter": 20, "reference": "shrunk", "adjust": "standard-error"}
    model = cpo.ContextRobust(TREE, **options).fit(X, y, contexts=codes, sample_weight=weight)
    assert np.isfinite(model.reference_risks_).all()
    assert (model.adjustments_ >= 0).all()
    again = pickle.loads(pickle.dumps(clone(model).fit(X, y, contexts=codes, sample_weight=weight)))
    np.testing.assert_array_equal(again.adjustments_, model.adjustments_)


def test_any_learner_along_the_path(patients):
    X, y, codes = patients
    path = cpo.confidence_path(game(adjust=0.7), X, y, codes, radii=[0.0, 0.3])
    assert all((model.adjustments_ > 0).all() for model in path.models)


# --- elsewhere ----------------------------------------------------------------------------------------------


def test_boosters_have_neither():
    X, y, codes = rows_of("binary")
    with pytest.raises(InvalidInputError, match="choose 'cross-fit'"):
        cpo.RobustXGBClassifier(reference="shrunk").fit(X, y, contexts=codes)
    assert "adjust" not in cpo.RobustXGBClassifier().get_params()
