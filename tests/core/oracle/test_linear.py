"""Risks of linear models and their derivatives, against sums written out context by context."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from counterpoise.losses import Huber, Logistic, Multinomial, Poisson, Squared
from counterpoise.rows import products
from tests.problems import LOSSES, SMOOTH, design_of, each_of, make, oracle_of, random_distribution, weighted_risk

PROPERTY = settings(max_examples=8, deadline=None, derandomize=True)

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
every_smooth_loss = pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
one_and_several_outputs = pytest.mark.parametrize("loss", [Logistic(), Multinomial(4)], ids=lambda loss: loss.name)

SHAPES = st.fixed_dictionaries(
    {
        "n_contexts": st.integers(1, 5),
        "n_features": st.integers(1, 4),
        "seed": st.integers(0, 2**32 - 1),
        "rows": st.sampled_from([(1, 3), (2, 15)]),
    }
)
ALPHAS = st.sampled_from([0.0, 1e-4, 0.7])


def problem(loss, shape, alpha, fit_intercept, weighted):
    """Return an oracle, the rows it was made of, a theta and a distribution."""
    X, y, codes = make(loss, **shape)
    rng = np.random.default_rng(shape["seed"])
    weight = rng.random(len(y)) + 0.1 if weighted else None
    oracle = oracle_of(loss, X, y, codes, sample_weight=weight, alpha=alpha, fit_intercept=fit_intercept)
    theta = rng.normal(size=oracle.n_parameters)
    rows = (X, y, codes, np.ones(len(y)) if weight is None else weight)
    return oracle, rows, theta, random_distribution(oracle.n_contexts, rng)


def by_hand(oracle, rows, theta):
    """Return risks, gradients and Hessians with one mask per context and one outer product per row."""
    X, y, codes, weight = rows
    loss, outputs = oracle.loss, oracle.loss.n_outputs
    design = design_of(X, oracle.fit_intercept)
    matrix = theta.reshape(outputs, -1)
    penalised = np.ones_like(matrix)
    penalised[:, X.shape[1] :] = 0.0
    risks, gradients, hessians = [], [], []
    for c in range(codes.max() + 1):
        mask = codes == c
        share = weight[mask] / weight[mask].sum()
        z = design[mask] @ matrix.T
        z = z[:, 0] if outputs == 1 else z
        risks.append(weighted_risk(loss, X[mask], y[mask], share, theta, oracle.alpha, oracle.fit_intercept))
        slopes = loss.gradient(y[mask], z).reshape(-1, outputs)
        bend = loss.curvature(y[mask], z).reshape(-1, outputs, outputs)
        gradient = oracle.alpha * (penalised * matrix).ravel()
        hessian = np.diag(oracle.alpha * penalised.ravel())
        for w, s, b, x in zip(share, slopes, bend, design[mask], strict=True):
            gradient = gradient + w * np.kron(s, x)
            hessian = hessian + w * np.kron(b, np.outer(x, x))
        gradients.append(gradient)
        hessians.append(hessian)
    return np.array(risks), np.array(gradients), np.array(hessians)


def known_at(point, p):
    """Return everything a point tells about the sum under ``p``, as one dictionary."""
    return {
        "risks": point.risks,
        "jacobian": point.jacobian,
        "hessian": point.hessian(p),
        "diagonal": point.hessian_diagonal(p),
        "product": point.hessian_product(p)(np.arange(1.0, len(point.theta) + 1.0)),
    }


def assert_same(one, other, **tolerance):
    expected = known_at(*other)
    for name, value in known_at(*one).items():
        np.testing.assert_allclose(value, expected[name], err_msg=name, **tolerance)


# --- properties ---------------------------------------------------------------------------------------------


@every_loss
@PROPERTY
@given(SHAPES, ALPHAS, st.booleans(), st.booleans())
def test_derivatives_equal_sums_written_out(loss, shape, alpha, fit_intercept, weighted):
    oracle, rows, theta, p = problem(loss, shape, alpha, fit_intercept, weighted)
    point = oracle.at(theta)
    risks, gradients, hessians = by_hand(oracle, rows, theta)
    np.testing.assert_allclose(point.risks, risks, rtol=1e-12)
    np.testing.assert_allclose(point.jacobian, gradients, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(point.hessian(p), np.einsum("c,cij->ij", p, hessians), rtol=1e-11, atol=1e-12)
    assert point.jacobian.shape == (oracle.n_contexts, oracle.n_parameters)


@every_loss
@PROPERTY
@given(SHAPES, ALPHAS, st.booleans())
def test_jacobian_equals_finite_differences(loss, shape, alpha, fit_intercept):
    oracle, _, theta, _ = problem(loss, shape, alpha, fit_intercept, weighted=True)
    h = 1e-6
    sides = [[oracle.at(theta + sign * h * e).risks for e in np.eye(len(theta))] for sign in (1.0, -1.0)]
    differences = (np.array(sides[0]) - np.array(sides[1])).T / (2.0 * h)
    size = np.abs(oracle.at(theta).risks).max() + np.abs(differences).max()
    np.testing.assert_allclose(oracle.at(theta).jacobian, differences, rtol=1e-6, atol=1e-7 * size)


@every_smooth_loss
@PROPERTY
@given(SHAPES, ALPHAS, st.booleans())
def test_hessian_equals_finite_differences_of_the_gradient(loss, shape, alpha, fit_intercept):
    oracle, _, theta, p = problem(loss, shape, alpha, fit_intercept, weighted=True)
    h = 1e-6
    sides = [[p @ oracle.at(theta + sign * h * e).jacobian for e in np.eye(len(theta))] for sign in (1.0, -1.0)]
    differences = (np.array(sides[0]) - np.array(sides[1])) / (2.0 * h)
    size = np.abs(differences).max() + np.abs(p @ oracle.at(theta).jacobian).max()
    np.testing.assert_allclose(oracle.at(theta).hessian(p), differences, rtol=1e-5, atol=1e-7 * size)


@every_loss
@PROPERTY
@given(SHAPES, ALPHAS, st.booleans())
def test_product_and_diagonal_agree_with_the_hessian(loss, shape, alpha, fit_intercept):
    oracle, _, theta, p = problem(loss, shape, alpha, fit_intercept, weighted=True)
    point = oracle.at(theta)
    # Any weights will do, not only distributions.
    for weights in (p, 3.0 * p):
        hessian, product = point.hessian(weights), point.hessian_product(weights)
        columns = np.column_stack([product(e) for e in np.eye(len(theta))])
        np.testing.assert_allclose(columns, hessian, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(point.hessian_diagonal(weights), np.diag(hessian), rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(hessian, hessian.T, rtol=1e-13, atol=1e-13)


@every_loss
@PROPERTY
@given(SHAPES, ALPHAS, st.booleans(), st.sampled_from([0.2, 0.9]))
def test_sparse_rows_equal_dense_ones(loss, shape, alpha, fit_intercept, density):
    X, y, codes = make(loss, **shape)
    rng = np.random.default_rng(shape["seed"])
    X = np.where(rng.random(X.shape) < density, X, 0.0)
    options = {"alpha": alpha, "fit_intercept": fit_intercept}
    dense, thin = (oracle_of(loss, data, y, codes, **options) for data in (X, sparse.csr_array(X)))
    theta = rng.normal(size=dense.n_parameters)
    p = random_distribution(dense.n_contexts, rng)
    np.testing.assert_array_equal(thin.reach, dense.reach)
    assert_same((thin.at(theta), p), (dense.at(theta), p), rtol=1e-10, atol=1e-11)


@every_loss
@PROPERTY
@given(SHAPES, ALPHAS, st.booleans())
def test_whole_weight_is_a_repeated_row(loss, shape, alpha, fit_intercept):
    X, y, codes = make(loss, **shape)
    rng = np.random.default_rng(shape["seed"])
    times = rng.integers(1, 5, len(y))
    options = {"alpha": alpha, "fit_intercept": fit_intercept}
    weighted = oracle_of(loss, X, y, codes, sample_weight=times.astype(np.float64), **options)
    repeated = oracle_of(loss, *(np.repeat(rows, times, axis=0) for rows in (X, y, codes)), **options)
    theta = rng.normal(size=weighted.n_parameters)
    p = random_distribution(weighted.n_contexts, rng)
    assert_same((weighted.at(theta), p), (repeated.at(theta), p), rtol=1e-10, atol=1e-11)


@every_loss
@PROPERTY
@given(SHAPES, ALPHAS, st.booleans())
def test_order_of_rows_does_not_matter(loss, shape, alpha, fit_intercept):
    X, y, codes = make(loss, **shape)
    rng = np.random.default_rng(shape["seed"])
    order = rng.permutation(len(y))
    weight = rng.random(len(y)) + 0.1
    options = {"alpha": alpha, "fit_intercept": fit_intercept}
    one = oracle_of(loss, X, y, codes, sample_weight=weight, **options)
    other = oracle_of(loss, X[order], y[order], codes[order], sample_weight=weight[order], **options)
    theta = rng.normal(size=one.n_parameters)
    p = random_distribution(one.n_contexts, rng)
    assert_same((one.at(theta), p), (other.at(theta), p), rtol=1e-10, atol=1e-11)


@every_loss
@PROPERTY
@given(SHAPES, st.sampled_from([1e-3, 2.0]))
def test_ridge_is_on_the_coefficients_and_not_on_the_intercept(loss, shape, alpha):
    X, y, codes = make(loss, **shape)
    plain, ridge = (oracle_of(loss, X, y, codes, alpha=a) for a in (0.0, alpha))
    theta = np.random.default_rng(shape["seed"]).normal(size=plain.n_parameters)
    coef = theta.reshape(loss.n_outputs, -1).copy()
    coef[:, -1] = 0.0
    p = np.full(plain.n_contexts, 1.0 / plain.n_contexts)
    added = ridge.at(theta).risks - plain.at(theta).risks
    np.testing.assert_allclose(added, 0.5 * alpha * np.sum(coef**2), rtol=1e-9, atol=1e-12)
    pull = ridge.at(theta).jacobian - plain.at(theta).jacobian
    np.testing.assert_allclose(pull, np.tile(alpha * coef.ravel(), (len(p), 1)), atol=1e-12)
    bend = ridge.at(theta).hessian(p) - plain.at(theta).hessian(p)
    np.testing.assert_allclose(bend, np.diag(alpha * (coef.ravel() != 0)), atol=1e-12)


@every_loss
@PROPERTY
@given(SHAPES, ALPHAS, st.booleans())
def test_context_alone_has_its_own_risk(loss, shape, alpha, fit_intercept):
    oracle, _, theta, _ = problem(loss, shape, alpha, fit_intercept, weighted=True)
    point = oracle.at(theta)
    for c in range(oracle.n_contexts):
        alone = oracle.context(c).at(theta)
        np.testing.assert_allclose(alone.risks, point.risks[[c]], rtol=1e-13)
        np.testing.assert_allclose(alone.jacobian, point.jacobian[[c]], rtol=1e-12, atol=1e-13)
    some = np.arange(oracle.n_contexts)[::-1][: max(1, oracle.n_contexts - 1)]
    np.testing.assert_allclose(oracle.subset(some).at(theta).risks, point.risks[some], rtol=1e-13)


@every_loss
@PROPERTY
@given(SHAPES, ALPHAS, st.booleans())
def test_padded_batch_equals_contexts_one_by_one(loss, shape, alpha, fit_intercept):
    oracle, _, theta, _ = problem(loss, shape, alpha, fit_intercept, weighted=True)
    seen = []
    for contexts in oracle.rows.alike():
        seen += contexts.tolist()
        batch = each_of(oracle, contexts, theta + 0.1 * np.arange(len(contexts))[:, None])
        for k, c in enumerate(contexts):
            alone = oracle.context(c).at(batch.theta[k])
            np.testing.assert_allclose(batch.value[k], alone.risks[0], rtol=1e-12)
            np.testing.assert_allclose(batch.gradient[k], alone.jacobian[0], rtol=1e-11, atol=1e-12)
            np.testing.assert_allclose(batch.hessian[k], alone.hessian(np.ones(1)), rtol=1e-11, atol=1e-12)
    assert sorted(seen) == list(range(oracle.n_contexts))


@every_loss
@PROPERTY
@given(SHAPES, st.floats(-2.0, 2.0))
def test_no_theta_goes_below_the_lowest_risks(loss, shape, size):
    oracle, _, theta, _ = problem(loss, shape, 0.0, True, weighted=True)
    risks = oracle.at(10.0**size * theta).risks
    assert (oracle.lowest_risks <= risks + 1e-12 * np.abs(risks)).all()


@every_smooth_loss
@PROPERTY
@given(SHAPES, ALPHAS, st.floats(-2.0, 1.0))
def test_parabola_of_the_majorant_lies_above(loss, shape, alpha, size):
    oracle, _, theta, p = problem(loss, shape, alpha, True, weighted=True)
    point = oracle.at(theta)
    matrix = point.majorant(p)
    if loss.name == "poisson":
        assert matrix is None
        return
    move = 10.0**size * np.random.default_rng(shape["seed"] + 1).normal(size=len(theta))
    above = p @ point.risks + p @ point.jacobian @ move + 0.5 * move @ matrix @ move
    assert p @ oracle.at(theta + move).risks <= above + 1e-12 * (1.0 + abs(above))


# --- ways through the code that small problems do not take --------------------------------------------------


@one_and_several_outputs
@pytest.mark.parametrize("rows", [(3, 5), (70, 90)], ids=["few rows a context", "many rows a context"])
def test_jacobian_does_not_depend_on_how_it_is_summed(loss, rows):
    X, y, codes = make(loss, 4, 3, 0, rows)
    oracle = oracle_of(loss, X, y, codes, alpha=0.1)
    theta = np.random.default_rng(0).normal(size=oracle.n_parameters)
    _, gradients, _ = by_hand(oracle, (X, y, codes, np.ones(len(y))), theta)
    np.testing.assert_allclose(oracle.at(theta).jacobian, gradients, rtol=1e-11, atol=1e-13)


@one_and_several_outputs
def test_hessian_does_not_depend_on_the_size_of_its_blocks(loss, monkeypatch):
    oracle = oracle_of(loss, *make(loss, 3, 4, 1))
    theta, p = np.random.default_rng(0).normal(size=oracle.n_parameters), np.array([0.2, 0.5, 0.3])
    whole = oracle.at(theta).hessian(p)
    monkeypatch.setattr(products, "_BLOCK_ENTRIES", 10)
    np.testing.assert_allclose(oracle.at(theta).hessian(p), whole, rtol=1e-12, atol=1e-14)


def test_rows_without_curvature_are_skipped_and_not_lost():
    loss = Huber(0.5)
    X, y, codes = make(loss, 2, 3, 5)
    y = np.where(np.arange(len(y)) % 4 == 0, y, y + 1e3)
    oracle = oracle_of(loss, X, y, codes)
    theta, p = np.zeros(4), np.array([0.5, 0.5])
    _, _, hessians = by_hand(oracle, (X, y, codes, np.ones(len(y))), theta)
    assert np.count_nonzero(oracle.at(theta).sums.curvature) < 0.5 * len(y)
    np.testing.assert_allclose(oracle.at(theta).hessian(p), np.einsum("c,cij->ij", p, hessians), rtol=1e-12)


def test_no_features_leave_the_intercept():
    y = np.array([1.0, 3.0, 5.0, 11.0])
    oracle = oracle_of(Squared(), np.empty((4, 0)), y, [0, 0, 1, 1], alpha=5.0)
    point = oracle.at(np.array([2.0]))
    np.testing.assert_allclose(point.risks, [0.5, 22.5])
    np.testing.assert_allclose(point.jacobian, [[0.0], [-6.0]])
    np.testing.assert_allclose(point.hessian(np.array([0.5, 0.5])), [[1.0]])


def test_theta_is_the_raveled_matrix_with_the_intercept_last():
    X = np.array([[1.0, 2.0], [3.0, 4.0]])
    oracle = oracle_of(Multinomial(3), X, [0.0, 2.0], [0, 0])
    matrix = np.array([[1.0, 0.0, 10.0], [0.0, 1.0, 20.0], [1.0, 1.0, 30.0]])
    np.testing.assert_allclose(oracle.at(matrix.ravel()).sums.predictions, [[11.0, 22.0, 33.0], [13.0, 24.0, 37.0]])


def test_overflowing_risk_is_infinite_and_silent():
    oracle = oracle_of(Poisson(), np.array([[1.0], [2.0]]), [1.0, 0.0], [0, 1], fit_intercept=False)
    np.testing.assert_array_equal(oracle.at(np.array([1e3])).risks, [np.inf, np.inf])


@one_and_several_outputs
@pytest.mark.parametrize("sizes", [(1, 3), (70, 90)])
def test_sparse_rows_in_parts_and_out_of_order_are_the_same_rows(loss, sizes):
    X, y, codes = make(loss, 3, 5, seed=4, rows=sizes)
    rng = np.random.default_rng(0)
    whole = np.where(rng.random(X.shape) < 0.5, X, 0.0)
    row, column = np.nonzero(whole)
    # Every entry in two parts, the second of them larger than the whole; within a row in any order.
    order = rng.permutation(2 * len(row))
    parts = np.concatenate([-0.5 * whole[row, column], 1.5 * whole[row, column]])[order]
    place = np.tile(row, 2)[order], np.tile(column, 2)[order]
    sort = np.argsort(place[0], kind="stable")
    pointers = np.concatenate([[0], np.cumsum(np.bincount(place[0], minlength=len(y)))])
    split = sparse.csr_array((parts[sort], place[1][sort], pointers), shape=X.shape)
    dense, pieces = (oracle_of(loss, rows, y, codes, alpha=0.1) for rows in (whole, split))
    theta, p = rng.normal(size=dense.n_parameters), np.array([0.2, 0.5, 0.3])
    assert pieces.reach == pytest.approx(dense.reach)
    ours, theirs = pieces.at(theta), dense.at(theta)
    assert ours.jacobian == pytest.approx(theirs.jacobian)
    assert ours.hessian_diagonal(p) == pytest.approx(theirs.hessian_diagonal(p))
    assert pieces.context(1).at(theta).risks == pytest.approx(theirs.risks[1:2])
