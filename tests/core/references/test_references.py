"""The least risk of each context, against fits of that context alone by other means."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression, PoissonRegressor, QuantileRegressor, Ridge

from counterpoise.core.references import reference_risks
from counterpoise.core.references.newton import minimise as newton_minimise
from counterpoise.losses import Huber, Logistic, Multinomial, Newsvendor, Pinball, Poisson, Squared
from counterpoise.rows import memory
from tests.problems import LOSSES, SHARP, SMOOTH, each_of, make, minimise, oracle_of, referee_arguments, weighted_risk
from tests.referees import robust

PROPERTY = settings(max_examples=3, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
TOL = 1e-10

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
every_smooth_loss = pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
every_sharp_loss = pytest.mark.parametrize("loss", SHARP, ids=lambda loss: loss.name)


def scale_of(oracle, references):
    """Return what the accuracy of references is relative to: how far the risks at the start are above their floor."""
    floor = np.where(np.isfinite(oracle.lowest_risks), oracle.lowest_risks, 0.0)
    size = max(np.mean(np.abs(oracle.at(oracle.start()).risks - floor)), 1e-3 * oracle.typical_risk)
    return np.full(oracle.n_contexts, size)


def assert_narrow(references, oracle, tol):
    """Check that a reference is attained and proven to the accuracy asked for."""
    width = references.upper - references.lower
    assert (width >= 0).all()
    assert (width <= tol * scale_of(oracle, references) * (1.0 + 1e-9)).all()


def assert_brackets(references, expected, oracle, tol=TOL, slack=1e-9):
    """Check width and place of the references."""
    assert_narrow(references, oracle, tol)
    scale = scale_of(oracle, references)
    room = slack * np.maximum(np.abs(expected), scale)
    assert (references.lower <= expected + room).all()
    assert (references.upper >= expected - room).all()


def alone(loss, X, y, codes, alpha=0.0, fit_intercept=True):
    """Return each context's minimum, one at a time and by other means than the library's."""
    minima = []
    for c in range(codes.max() + 1):
        rows = codes == c
        weight = np.full(rows.sum(), 1.0 / rows.sum())
        minima.append(minimise(loss, X[rows], y[rows], weight, alpha, fit_intercept)[0])
    return np.array(minima)


# --- properties ---------------------------------------------------------------------------------------------


@every_smooth_loss
@PROPERTY
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from([1e-4, 1e-1]),
    st.booleans(),
    st.sampled_from([(1, 4), (10, 40)]),
)
def test_reference_equals_the_fit_of_its_context_alone(loss, seed, n_contexts, n_features, alpha, intercept, rows):
    X, y, codes = make(loss, n_contexts, n_features, seed, rows)
    oracle = oracle_of(loss, X, y, codes, alpha=alpha, fit_intercept=intercept)
    expected = alone(loss, X, y, codes, alpha, intercept)
    assert_brackets(reference_risks(oracle, TOL), expected, oracle)


@every_loss
@PROPERTY
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(2, 4), st.booleans())
def test_reference_without_a_ridge_equals_the_fit_of_its_context_alone(loss, seed, n_contexts, n_features, intercept):
    X, y, codes = make(loss, n_contexts, n_features, seed, (30, 60))
    oracle = oracle_of(loss, X, y, codes, fit_intercept=intercept)
    expected = alone(loss, X, y, codes, 0.0, intercept)
    assert_brackets(reference_risks(oracle, TOL), expected, oracle, slack=1e-8)


@every_loss
@PROPERTY
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-4, 1e-1]), st.sampled_from([(1, 3), (5, 80)]))
def test_references_together_equal_references_one_by_one(loss, seed, alpha, rows):
    X, y, codes = make(loss, 6, 2, seed, rows)
    oracle = oracle_of(loss, X, y, codes, alpha=alpha)
    together = reference_risks(oracle, TOL)
    for c in range(6):
        single = reference_risks(oracle.context(c), TOL)
        room = 1e-9 * scale_of(oracle, together)[c]
        assert together.upper[c] == pytest.approx(single.upper[0], rel=1e-8, abs=room)
        assert together.lower[c] == pytest.approx(single.lower[0], rel=1e-8, abs=room)


@every_loss
@PROPERTY
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-4, 1e-1]))
def test_whole_weight_is_a_repeated_row(loss, seed, alpha):
    X, y, codes = make(loss, 3, 2, seed, (5, 15))
    times = np.random.default_rng(seed).integers(1, 4, len(codes))
    weighted = oracle_of(loss, X, y, codes, alpha=alpha, sample_weight=times.astype(np.float64))
    repeated = oracle_of(loss, *(np.repeat(rows, times, axis=0) for rows in (X, y, codes)), alpha=alpha)
    one, other = (reference_risks(oracle, TOL) for oracle in (weighted, repeated))
    np.testing.assert_allclose(one.upper, other.upper, rtol=1e-9, atol=1e-9 * scale_of(weighted, one).max())


# --- other libraries ----------------------------------------------------------------------------------------


@every_loss
@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_references_equal_convex_programs(loss, alpha):
    X, y, codes = make(loss, 3, 2, 8, (30, 50))
    answer = robust.solve(
        **referee_arguments(loss),
        X=X,
        y=y,
        codes=codes,
        radius_bits=0.0,
        criterion="excess",
        alpha=alpha,
        fit_intercept=True,
    )
    oracle = oracle_of(loss, X, y, codes, alpha=alpha)
    assert_brackets(reference_risks(oracle, TOL), answer.reference_risks, oracle, slack=1e-8)


def scikit_learn(loss, n, alpha):
    """Return the estimator of one context; its penalty is relative to the sum of losses, or to their mean."""
    if loss.name in ("logistic", "multinomial"):
        return LogisticRegression(C=1.0 / (n * alpha), solver="newton-cg", tol=1e-12, max_iter=10_000)
    if loss.name == "squared":
        return Ridge(alpha=n * alpha, tol=1e-14)
    return PoissonRegressor(alpha=alpha, solver="newton-cholesky", tol=1e-12)


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3), Squared(), Poisson()], ids=lambda loss: loss.name)
def test_references_equal_scikit_learn(loss):
    alpha = 0.02
    X, y, codes = make(loss, 4, 3, 2)
    references = reference_risks(oracle_of(loss, X, y, codes, alpha=alpha), TOL)
    for c in range(4):
        rows = codes == c
        n = int(rows.sum())
        model = scikit_learn(loss, n, alpha).fit(X[rows], y[rows])
        theta = np.column_stack([np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)])
        risk = weighted_risk(loss, X[rows], y[rows], np.full(n, 1.0 / n), theta, alpha)
        assert references.upper[c] == pytest.approx(risk, rel=1e-8)


def test_pinball_references_equal_scikit_learn():
    loss = Pinball(0.3)
    X, y, codes = make(loss, 4, 3, 2)
    references = reference_risks(oracle_of(loss, X, y, codes), TOL)
    for c in range(4):
        rows = codes == c
        model = QuantileRegressor(quantile=0.3, alpha=0.0).fit(X[rows], y[rows])
        theta = np.append(model.coef_, model.intercept_)
        risk = weighted_risk(loss, X[rows], y[rows], np.full(rows.sum(), 1.0 / rows.sum()), theta)
        assert references.upper[c] == pytest.approx(risk, rel=1e-8)


# --- contexts that are hard ---------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 1e-4])
def test_separable_contexts_have_a_reference(alpha):
    X, y, codes = make(Logistic(), 4, 2, 3)
    y = np.where(codes < 2, (X[:, 0] > 0).astype(np.float64), y)
    y = np.where(codes == 3, 1.0, y)
    oracle = oracle_of(Logistic(), X, y, codes, alpha=alpha)
    assert_brackets(reference_risks(oracle, 1e-8), alone(Logistic(), X, y, codes, alpha), oracle, tol=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 1e-4])
def test_class_never_seen_in_a_context_leaves_a_reference(alpha):
    loss = Multinomial(4)
    X, y, codes = make(loss, 3, 2, 3)
    y = np.where(codes == 1, np.minimum(y, 1.0), y)
    y = np.where(codes == 2, 3.0, y)
    oracle = oracle_of(loss, X, y, codes, alpha=alpha)
    assert_brackets(reference_risks(oracle, 1e-8), alone(loss, X, y, codes, alpha), oracle, tol=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 1e-4])
def test_counts_that_are_all_zero_have_a_reference_near_zero(alpha):
    X, y, codes = make(Poisson(), 3, 2, 3)
    y = np.where(codes == 1, 0.0, y)
    oracle = oracle_of(Poisson(), X, y, codes, alpha=alpha)
    references = reference_risks(oracle, 1e-8)
    assert_brackets(references, alone(Poisson(), X, y, codes, alpha), oracle, tol=1e-8)
    assert references.upper[1] == pytest.approx(0.0, abs=1e-7)


@every_loss
@pytest.mark.parametrize("alpha", [0.0, 1e-4])
def test_context_with_fewer_rows_than_features_has_a_reference(loss, alpha):
    X, y, codes = make(loss, 4, 8, 5, (2, 5))
    oracle = oracle_of(loss, X, y, codes, alpha=alpha)
    references = reference_risks(oracle, 1e-8)
    if loss in SMOOTH:
        assert_brackets(references, alone(loss, X, y, codes, alpha), oracle, tol=1e-8, slack=1e-8)
    elif alpha == 0.0:
        assert_brackets(references, alone(loss, X, y, codes), oracle, tol=1e-8, slack=1e-7)
    else:
        assert_narrow(references, oracle, 1e-8)


@every_loss
@pytest.mark.parametrize("alpha", [0.0, 1e-4])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_context_of_one_row_has_a_reference(loss, alpha, fit_intercept):
    X, y, codes = make(loss, 3, 2, 6, (20, 30))
    keep = (codes != 1) | (np.arange(len(codes)) == np.flatnonzero(codes == 1)[0])
    X, y, codes = X[keep], y[keep], codes[keep]
    oracle = oracle_of(loss, X, y, codes, alpha=alpha, fit_intercept=fit_intercept)
    references = reference_risks(oracle, 1e-8)
    if loss in SMOOTH or alpha == 0.0:
        assert_brackets(references, alone(loss, X, y, codes, alpha, fit_intercept), oracle, tol=1e-8, slack=1e-7)
    if fit_intercept:
        # The intercept alone can meet the row.
        room = 1e-6 * scale_of(oracle, references)[1]
        assert references.upper[1] == pytest.approx(loss.lowest(y[codes == 1])[0], abs=room)


@every_loss
def test_one_context_alone_has_a_reference(loss):
    X, y, codes = make(loss, 1, 3, 1)
    oracle = oracle_of(loss, X, y, codes)
    assert_brackets(reference_risks(oracle, TOL), alone(loss, X, y, codes), oracle, slack=1e-8)


@pytest.mark.parametrize("loss", [Squared(), Huber(0.8), Poisson(), *SHARP], ids=lambda loss: loss.name)
def test_huge_targets_do_not_stop_a_reference(loss):
    X, y, codes = make(loss, 2, 2, 1)
    y = y * [1.0, 1e4] if loss.name == "newsvendor" else np.abs(y) * 1e4 + 1e5
    oracle = oracle_of(loss, X, y, codes)
    assert_brackets(reference_risks(oracle, TOL), alone(loss, X, y, codes), oracle, slack=1e-8)


def test_start_far_from_the_minimum_changes_nothing():
    for loss in SMOOTH:
        oracle = oracle_of(loss, *make(loss, 3, 2, 0), alpha=1e-3)
        theta = np.random.default_rng(0).normal(0.0, 5.0, oracle.n_parameters)
        near = reference_risks(oracle, TOL)
        far, _, _ = newton_minimise(each_of(oracle, np.arange(3), theta), TOL, scale_of(oracle, near)[0])
        np.testing.assert_allclose(far, near.upper, rtol=1e-8, err_msg=loss.name)


# --- many contexts, many features ---------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Huber(0.8), Pinball(0.3)], ids=lambda loss: loss.name)
def test_five_hundred_contexts_of_very_different_sizes(loss):
    rng = np.random.default_rng(0)
    sizes = np.maximum(1, (10.0 ** rng.uniform(0.0, 2.7, 500)).astype(int))
    sizes[0] = 3000
    X, y, codes = make(loss, 500, 2, 0, (1, 2))
    rows = np.concatenate([rng.choice(np.flatnonzero(codes == c), sizes[c]) for c in range(500)])
    X, codes = X[rows] + rng.normal(0.0, 0.3, (len(rows), 2)), codes[rows]
    y = y[rows] if loss.name == "logistic" else y[rows] + rng.normal(0.0, 0.5, len(rows))
    oracle = oracle_of(loss, X, y, codes, alpha=1e-3)
    references = reference_risks(oracle, 1e-8)
    assert_narrow(references, oracle, 1e-8)
    scale = scale_of(oracle, references).min()
    for c in range(0, 500, 20):
        single = reference_risks(oracle.context(c), 1e-8).upper[0]
        assert references.upper[c] == pytest.approx(single, rel=1e-7, abs=1e-7 * scale)


def test_memory_per_batch_changes_nothing(monkeypatch):
    oracle = oracle_of(Logistic(), *make(Logistic(), 20, 2, 0, (5, 40)), alpha=1e-3)
    whole = reference_risks(oracle, TOL)
    monkeypatch.setattr(memory, "BATCH_ENTRIES", 1)
    np.testing.assert_allclose(reference_risks(oracle, TOL).upper, whole.upper, rtol=1e-12)


@every_smooth_loss
def test_method_for_many_features_finds_the_same_references(loss, monkeypatch):
    oracle = oracle_of(loss, *make(loss, 3, 3, 0), alpha=1e-2)
    dense = reference_risks(oracle, 1e-8)
    monkeypatch.setattr(memory, "_LARGEST_HESSIAN", 0)
    without_hessian = reference_risks(oracle, 1e-8)
    np.testing.assert_allclose(without_hessian.upper, dense.upper, rtol=1e-6)
    assert (without_hessian.lower <= dense.upper + 1e-9).all()


@every_loss
def test_sparse_rows_give_the_same_references(loss):
    X, y, codes = make(loss, 4, 3, 9)
    X = np.where(np.abs(X) < 0.6, 0.0, X)
    dense, thin = (
        reference_risks(oracle_of(loss, rows, y, codes, alpha=1e-3), TOL) for rows in (X, sparse.csr_array(X))
    )
    np.testing.assert_allclose(thin.upper, dense.upper, rtol=1e-9)


# --- one parameter ------------------------------------------------------------------------------------------


@every_sharp_loss
def test_one_parameter_is_exact(loss):
    X, y, codes = make(loss, 5, 1, 4)
    X = np.abs(X) + 0.1
    oracle = oracle_of(loss, X, y, codes, fit_intercept=False)
    references = reference_risks(oracle, TOL)
    np.testing.assert_array_equal(references.lower, references.upper)
    np.testing.assert_allclose(references.upper, alone(loss, X, y, codes, fit_intercept=False), rtol=1e-9)


def test_bounds_raise_the_references_of_a_stock():
    y = np.array([[5.0, 10.0], [5.0, 20.0], [5.0, 1.0]])
    bounds = (np.array([0.0]), np.array([12.0]))
    oracle = oracle_of(Newsvendor(10.0), np.ones((3, 1)), y, [0, 1, 2], fit_intercept=False, bounds=bounds)
    np.testing.assert_allclose(reference_risks(oracle, TOL).upper, [-50.0, -60.0, -5.0])


@pytest.mark.parametrize("delta", [1e-4, 0.05, 1e3])
def test_references_are_found_however_soft_the_hinge(delta):
    # With a small delta hardly a row has curvature, and Newton steps lead nowhere.
    loss = Huber(delta)
    X, y, codes = make(loss, 3, 2, 6, (40, 60))
    oracle = oracle_of(loss, X, y, codes, alpha=1e-2)
    assert_brackets(reference_risks(oracle, TOL), alone(loss, X, y, codes, 1e-2), oracle)
