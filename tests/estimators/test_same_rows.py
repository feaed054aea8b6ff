"""Models that share rows are those of separate fits."""

import numpy as np
import pytest
from sklearn.base import clone

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
    assert set(found) == set(np.unique(C))
    for label, one in found.items():
        own = label == C
        fitted = fit_weighted(variant(model, "erm", [0]), X[own], y[own], WEIGHT[own])
        np.testing.assert_allclose(one.row_losses(X[own], y[own]), fitted.row_losses(X[own], y[own]), atol=2e-3)


def test_a_context_without_some_class_takes_a_fit_of_its_own():
    y = np.where((C == "b") & (CLASSES == "z"), "x", CLASSES)
    model = cpo.RobustLogisticRegression()
    assert set(same_rows(model, y).alone(model)) == {"a", "c"}


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
