"""Steps as rough as they may be: the certificates are as good, and the answers the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from counterpoise.core.fit import Robustness, fit_linear
from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.references import specialists
from counterpoise.core.solvers import InteriorPoint, NewtonCG, TruncatedNewton
from counterpoise.exceptions import NotCertifiedWarning
from counterpoise.losses import Hinged, Huber, Logistic, Multinomial, Poisson, Squared
from counterpoise.rows import memory
from counterpoise.rows.layouts import Grouped
from counterpoise.sets import KLBall
from tests.problems import make, oracle_of, scattered

LOSSES = [Logistic(), Squared(), Poisson(), Multinomial(3), Huber(0.8)]

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


def sparse_rows(loss, n_contexts, n_features, seed):
    """Return rows most of whose entries are zero."""
    X, y, codes = make(loss, n_contexts, n_features, seed=seed)
    kept = np.random.default_rng(seed).random(X.shape) < 0.3
    return sparse.csr_array(np.where(kept, X, 0.0)), y, codes


@pytest.fixture
def no_squares(monkeypatch):
    """Let every matrix be too large to form."""
    monkeypatch.setattr(memory, "_LARGEST_HESSIAN", 0)
    monkeypatch.setattr(memory, "_LARGEST_SPARSE_HESSIAN", 0)


class _Unwanted(NewtonCG):
    def step(self, objective, state):
        raise AssertionError("the rough steps failed")


def assert_same_optimum(one, other):
    """Assert that each certificate leaves room for the other."""
    slack = 1e-9 * other.certificate.scale
    assert one.certificate.lower <= other.certificate.upper + slack
    assert other.certificate.lower <= one.certificate.upper + slack


@every_loss
@settings(max_examples=12)
@given(
    n_contexts=st.integers(2, 8),
    n_features=st.integers(2, 40),
    alpha=st.sampled_from([1e-1, 1e-2, 1e-3]),
    radius=st.sampled_from([0.0, 1e-6, 0.05, 2.0, 30.0, np.inf]),
    criterion=st.sampled_from(["excess", "risk"]),
    as_sparse=st.booleans(),
    fit_intercept=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_it_agrees_with_the_dense_method(
    loss, n_contexts, n_features, alpha, radius, criterion, as_sparse, fit_intercept, seed
):
    X, y, codes = sparse_rows(loss, n_contexts, n_features, seed)
    rows = X if as_sparse else X.toarray()
    options = {
        "robustness": Robustness(radius=radius, criterion=criterion),
        "alpha": alpha,
        "fit_intercept": fit_intercept,
    }
    dense = fit_linear(X.toarray(), y, codes, loss, **options, tol=1e-8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_LARGEST_HESSIAN", 0)
        patch.setattr(memory, "_LARGEST_SPARSE_HESSIAN", 0)
        if not isinstance(loss, Hinged):
            # Where curvature comes and goes, exact steps may have to follow.
            patch.setattr(specialists, "NewtonCG", _Unwanted)
        product = fit_linear(rows, y, codes, loss, **options, tol=1e-6)
    assert product.solution.success
    assert product.solution.certificate.scope == "global"
    assert np.all(product.references.lower <= dense.references.upper + 1e-9)
    assert np.all(dense.references.lower <= product.references.upper + 1e-9)
    assert_same_optimum(product.solution, dense.solution)


@pytest.mark.parametrize("radius", [0.05, 1.0])
def test_a_context_without_share_is_served(no_squares, radius):
    loss = Logistic()
    X, y, codes = sparse_rows(loss, 4, 10, seed=1)
    oracle = oracle_of(loss, X, y, codes, alpha=1e-2)
    ball = KLBall(np.array([0.5, 0.3, 0.2, 0.0]), radius)
    objective = RobustObjective(oracle, ball, ReferenceRisks.exactly(np.array([0.1, 0.1, 0.1, 0.0])))
    rough, exact = (solver(tol=1e-7).solve(objective) for solver in (TruncatedNewton, InteriorPoint))
    assert rough.success
    assert_same_optimum(rough, exact)


def test_exact_steps_follow_where_rough_ones_fail(no_squares, monkeypatch):
    monkeypatch.setattr(TruncatedNewton, "step", lambda self, objective, state: NewtonCG.escape(self, objective, state))
    X, y, codes = sparse_rows(Logistic(), 3, 8, seed=0)
    fit = fit_linear(X, y, codes, Logistic(), robustness=Robustness(radius=0.1), alpha=1e-2)
    assert fit.solution.success
    assert np.max(fit.references.upper - fit.references.lower) < 1e-6


def test_without_a_ridge_steps_are_exact(no_squares, monkeypatch):
    monkeypatch.setattr(specialists, "TruncatedNewton", _Unwanted)
    X, y, codes = make(Logistic(), 3, 4, seed=0)
    robustness = Robustness(radius=0.1, criterion="risk")
    with pytest.warns(NotCertifiedWarning):
        product = fit_linear(X, y, codes, Logistic(), robustness=robustness, alpha=0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_LARGEST_HESSIAN", 100)
        dense = fit_linear(X, y, codes, Logistic(), robustness=robustness, alpha=0.0)
    assert product.solution.value == pytest.approx(dense.solution.value, rel=1e-6)


def test_it_needs_few_products(no_squares, monkeypatch):
    rng = np.random.default_rng(0)
    X = scattered(rng, 2000, 500, 0.02)
    codes = rng.integers(0, 5, 2000)
    y = (rng.random(2000) < 1.0 / (1.0 + np.exp(-3.0 * (X @ rng.standard_normal(500))))).astype(float)
    oracle = oracle_of(Logistic(), X, y, codes, alpha=1e-3)
    objective = RobustObjective(oracle, KLBall(np.full(5, 0.2), 0.05), ReferenceRisks.exactly(np.zeros(5)))
    counts = []
    product = Grouped.product
    for solver in (TruncatedNewton(tol=1e-6), NewtonCG(tol=1e-6)):
        counts.append(0)

        def counted(self, theta):
            counts[-1] += 1
            return product(self, theta)

        monkeypatch.setattr(Grouped, "product", counted)
        assert solver.solve(objective).success
    assert 4 * counts[0] < counts[1]
