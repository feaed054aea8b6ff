"""Models that share rows are those of separate fits."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier

import counterpoise as cpo
from counterpoise.core.robustness import METHODS
from counterpoise.estimators.learners import fit_weighted
from counterpoise.estimators.same_rows import SameRows
from counterpoise.judging.trials import BASELINES, variant

RNG = np.random.default_rng(11)
N = 400
C = np.array(["a", "b", "c"])[np.minimum(RNG.integers(0, 5, N), 2)]
X = RNG.normal(size=(N, 3)) + 2e4 * np.array([0.0, 0.0, 1.0])
LINE = X[:, 0] * np.where(C == "a", 1.0, -0.5) + 0.3 * X[:, 1]
WEIGHT = RNG.uniform(0.5, 2.0, N)
TARGETS = {
    cpo.RobustLogisticRegression: (RNG.logistic(size=N) < LINE).astype(int),
    cpo.RobustLinearRegression: LINE + RNG.normal(size=N),
    cpo.RobustPoissonRegressor: RNG.poisson(np.exp(0.3 * LINE)),
    cpo.RobustHuberRegressor: LINE + RNG.standard_t(3, size=N),
    cpo.RobustQuantileRegressor: LINE + RNG.normal(size=N),
}
CLASSES = np.array(["x", "y", "z"])[np.argmax(np.stack([LINE, 0 * LINE, X[:, 1]], 1) + RNG.gumbel(size=(N, 3)), 1)]


def same_rows(model, y):
    return SameRows.of(variant(model, "erm", np.unique(C)), X=X, y=y, contexts=C, sample_weight=WEIGHT)


def separate(model, method, y):
    own = variant(model, method, np.unique(C))
    totals = {c: WEIGHT[c == C].sum() for c in np.unique(C)}
    equal = WEIGHT * [WEIGHT.sum() / 3 / totals[c] for c in C]
    return clone(own).fit(X, y, contexts=C, sample_weight=equal if METHODS[method].balanced else WEIGHT)


@pytest.mark.parametrize("kind", [*TARGETS, "multinomial"], ids=lambda kind: getattr(kind, "__name__", kind))
@pytest.mark.parametrize("reference", ["in-sample", "cross-fit"])
@pytest.mark.filterwarnings("ignore:.*mostly optimism")
def test_models_of_the_same_rows_are_those_of_separate_fits(kind, reference):
    y = CLASSES if kind == "multinomial" else TARGETS[kind]
    kind = cpo.RobustLogisticRegression if kind == "multinomial" else kind
    model = kind(reference=reference, radius=0.05, tol=1e-8)
    same = same_rows(model, y)
    for method in BASELINES:
        shared = same.fitted(variant(model, method, np.unique(C)), balanced=METHODS[method].balanced)
        alone = separate(model, method, y)
        assert shared.certificate_.relative_gap <= 1e-8
        np.testing.assert_allclose(shared.reference_risks_, alone.reference_risks_, rtol=1e-6)
        np.testing.assert_allclose(shared.certificate_.upper, alone.certificate_.upper, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(shared.context_risks_, alone.context_risks_, rtol=2e-4)
        np.testing.assert_allclose(shared.row_losses(X, y).mean(), alone.row_losses(X, y).mean(), rtol=2e-4)
        np.testing.assert_array_equal(shared.predict(X[:2]).shape, alone.predict(X[:2]).shape)


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.__name__)
def test_the_model_of_a_context_alone_is_that_of_a_fit_to_its_rows(kind):
    y, model = TARGETS[kind], kind(tol=1e-8)
    found = same_rows(model, y).alone(variant(model, "erm", [0]))
    assert set(found.place) == set(np.unique(C))
    for label, place in found.place.items():
        own = label == C
        fitted = fit_weighted(variant(model, "erm", [0]), X[own], y[own], WEIGHT[own])
        losses = found.one(place).row_losses(X[own], y[own])
        np.testing.assert_allclose(losses, fitted.row_losses(X[own], y[own]), atol=2e-3)


def test_a_context_without_some_class_takes_a_fit_of_its_own():
    y = np.where((C == "b") & (CLASSES == "z"), "x", CLASSES)
    model = cpo.RobustLogisticRegression()
    found = same_rows(model, y).alone(model)
    assert set(found.place) == {"a", "c"}
    np.testing.assert_array_equal(found.places(["c", "b"]) >= 0, [True, False])


@pytest.mark.parametrize("kind", [*TARGETS, "multinomial"], ids=lambda kind: getattr(kind, "__name__", kind))
@pytest.mark.parametrize("given", [np.asarray, sparse.csr_array])
def test_models_side_by_side_predict_what_each_predicts(kind, given):
    y = CLASSES if kind == "multinomial" else TARGETS[kind]
    found = same_rows((cpo.RobustLogisticRegression if kind == "multinomial" else kind)(), y)
    found = found.alone(found.like)
    place = found.places(C)
    model, features = found.together(given(X), place)
    for k in np.unique(place):
        one = found.one(k)
        at = place == k
        np.testing.assert_allclose(model.row_losses(features, y)[at], one.row_losses(X[at], y[at]), atol=1e-9)
        if is_classifier(model):
            np.testing.assert_array_equal(model.predict(features)[at], one.predict(X[at]))
        else:
            np.testing.assert_allclose(model.predict(features)[at], one.predict(X[at]), atol=1e-9)


def test_a_model_with_a_fit_of_its_own_shares_nothing():
    class Own(cpo.RobustLinearRegression):
        def fit(self, X, y, contexts=None, sample_weight=None, *, groups=None):
            return super().fit(X, y, contexts, sample_weight, groups=groups)

    assert SameRows.serves(cpo.RobustLinearRegression())
    assert not SameRows.serves(Own())
    assert not SameRows.serves(cpo.RobustNewsvendorRegressor(price=2.0))


def test_weights_of_contexts_leave_references_as_they_are():
    """What depends on the rows of each context alone is found once; what depends on their weights is not shared."""
    same = same_rows(cpo.RobustLinearRegression(), TARGETS[cpo.RobustLinearRegression])
    problem, other = same.problem, same.problem.alike(np.zeros(0), np.ones(3))
    assert other.specialists(1e-6) is problem.specialists(1e-6)
    assert problem.alike(np.zeros(0)).cross_fit(1e-6) is problem.cross_fit(1e-6)
    assert other.cross_fit(1e-6) is not problem.cross_fit(1e-6)


@pytest.mark.filterwarnings("ignore:.*mostly optimism")
def test_methods_of_many_rows_begin_where_others_ended_and_are_those_of_separate_fits():
    rng = np.random.default_rng(2)
    contexts = rng.choice(6, size=30_000, p=[0.4, 0.3, 0.15, 0.1, 0.03, 0.02])
    features = rng.normal(size=(30_000, 8))
    line = np.einsum("nd,nd->n", features, 1.0 + rng.normal(size=(6, 8))[contexts])
    y = (rng.logistic(size=30_000) < line).astype(int)
    model, labels, weight = cpo.RobustLogisticRegression(), np.arange(6), np.ones(30_000)
    same = SameRows.of(variant(model, "erm", labels), X=features, y=y, contexts=contexts, sample_weight=weight)
    equal = 5000.0 / np.bincount(contexts)[contexts]
    for method in BASELINES:
        own, balanced = variant(model, method, labels), METHODS[method].balanced
        shared = same.fitted(own, balanced=balanced)
        alone = clone(own).fit(features, y, contexts=contexts, sample_weight=equal if balanced else weight)
        assert shared.certificate_.relative_gap <= (1e-8 if METHODS[method].switches.get("radius") == 0.0 else 1e-6)
        np.testing.assert_allclose(shared.certificate_.upper, alone.certificate_.upper, rtol=2e-6)
        np.testing.assert_allclose(shared.context_risks_, alone.context_risks_, rtol=2e-3)
    assert same.problem.expansion is not None
    assert len(same.problem.answers) == len(BASELINES)
