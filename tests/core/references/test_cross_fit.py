"""References from held-out rows, against folds checked by counting and fits made one by one."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge

from counterpoise.core.references import CrossFit, reference_risks
from counterpoise.core.references.cross_fit import N_FOLDS, folds_within
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Logistic, Pinball, Squared
from tests.problems import LOSSES, SMOOTH, make, minimise, oracle_of, weighted_risk

PROPERTY = settings(max_examples=50, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
SEEDS = st.integers(0, 2**32 - 1)
TOL = 1e-10

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
every_smooth_loss = pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
with_scikit_learn = pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=lambda loss: loss.name)


# --- folds --------------------------------------------------------------------------------------------------


def dealt(seed, n_contexts, n_classes, n_folds):
    """Return contexts in any order, targets of a few values, and the folds they are dealt to."""
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(n_contexts), rng.integers(1, 30, n_contexts)))
    target = rng.integers(0, n_classes, len(codes)).astype(np.float64)
    return codes, target, folds_within(codes, target, n_folds)


def spread(*keys, folds, n_folds):
    """Return by how much the rows of one key that folds hold differ, at most."""
    _, group = np.unique(np.column_stack(keys), axis=0, return_inverse=True)
    table = np.bincount(group.ravel() * n_folds + folds, minlength=(group.max() + 1) * n_folds).reshape(-1, n_folds)
    return int((table.max(axis=1) - table.min(axis=1)).max())


@PROPERTY
@given(SEEDS, st.integers(1, 12), st.integers(1, 4), st.integers(2, 7))
def test_folds_share_every_context_and_every_class_evenly(seed, n_contexts, n_classes, n_folds):
    codes, target, folds = dealt(seed, n_contexts, n_classes, n_folds)
    assert folds.shape == codes.shape
    assert folds.min() >= 0
    assert folds.max() < n_folds
    assert spread(codes, folds=folds, n_folds=n_folds) <= 1
    assert spread(codes, target, folds=folds, n_folds=n_folds) <= 1


@PROPERTY
@given(SEEDS, st.integers(1, 12), st.integers(1, 4))
def test_folds_are_not_drawn(seed, n_contexts, n_classes):
    codes, target, folds = dealt(seed, n_contexts, n_classes, 5)
    np.testing.assert_array_equal(folds_within(codes, target, 5), folds)


@PROPERTY
@given(SEEDS, st.integers(1, 8))
def test_folds_follow_the_rows_where_targets_differ(seed, n_contexts):
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(n_contexts), 13))
    target, order = rng.permutation(len(codes)).astype(np.float64), rng.permutation(len(codes))
    folds = folds_within(codes, target, 5)
    np.testing.assert_array_equal(folds_within(codes[order], target[order], 5), folds[order])


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_folds_are_of_one_size_however_small_the_contexts(rows):
    codes = np.repeat(np.arange(40), rows)
    sizes = np.bincount(folds_within(codes, np.zeros(len(codes)), 5), minlength=5)
    assert sizes.max() - sizes.min() <= 1


def test_folds_span_the_targets_of_a_context():
    codes, target = np.zeros(100, dtype=int), np.random.default_rng(0).permutation(100).astype(np.float64)
    folds = folds_within(codes, target, 5)
    for fold in range(5):
        np.testing.assert_allclose(np.diff(np.sort(target[folds == fold])), 5.0)


# --- the risks, by brute force ------------------------------------------------------------------------------


def theta_by_scikit_learn(loss, X, y, weight, alpha):
    """Return what minimises ``sum_i weight_i loss_i + alpha / 2 |coef|^2``, for weights that sum to one."""
    if loss.name == "squared":
        model = Ridge(alpha=alpha, tol=1e-14).fit(X, y, weight)
    else:
        model = LogisticRegression(C=1.0 / alpha, solver="newton-cg", tol=1e-12, max_iter=10_000).fit(X, y, weight)
    return np.append(model.coef_, model.intercept_)


def theta_by_hand(loss, X, y, weight, alpha):
    return minimise(loss, X, y, weight, alpha)[1]


def brute_force(loss, X, y, codes, alpha, theta_of, weight=None):
    """Return the cross-fitted risks, context by context and fold by fold."""
    weight = np.ones(len(y)) if weight is None else weight
    folds = folds_within(codes, y, N_FOLDS)
    n_contexts = codes.max() + 1
    totals = np.bincount(codes, weight)
    own, pooled = np.zeros(n_contexts), np.zeros(n_contexts)
    for fold in range(N_FOLDS):
        train = folds != fold
        # Contexts weigh as in the data, and not by how many rows the fold has left them.
        left = np.bincount(codes[train], weight[train], n_contexts)
        shares = np.where(left > 0, totals, 0.0) / totals[left > 0].sum()
        mix = weight[train] / left[codes[train]]
        of_all = theta_of(loss, X[train], y[train], mix * shares[codes[train]], alpha)
        for c in range(n_contexts):
            held, rest = ~train & (codes == c), train & (codes == c)
            if not held.any():
                continue
            share, inside = weight[held].sum() / totals[c], weight[held] / weight[held].sum()
            pooled[c] += share * weighted_risk(loss, X[held], y[held], inside, of_all, alpha)
            if rest.any():
                theta = theta_of(loss, X[rest], y[rest], weight[rest] / weight[rest].sum(), alpha)
                own[c] += share * weighted_risk(loss, X[held], y[held], inside, theta, alpha)
            else:
                own[c] = np.inf
    return np.stack([own, pooled])


def held_out(loss, X, y, codes, alpha, weight=None, tol=TOL):
    oracle = oracle_of(loss, X, y, codes, alpha=alpha, sample_weight=weight)
    found = CrossFit(oracle, np.bincount(codes, weight).astype(np.float64), tol)
    return np.stack([found.rows.means(found.own_losses), found.rows.means(found.pooled_losses)])


def cross_fitted(loss, X, y, codes, alpha, weight=None, tol=TOL):
    oracle = oracle_of(loss, X, y, codes, alpha=alpha, sample_weight=weight)
    found = CrossFit(oracle, np.bincount(codes, weight).astype(np.float64), tol)
    found.check("reference='cross-fit'", "'in-sample'")
    return found.references


@pytest.mark.parametrize("alpha", [1e-2, 0.3])
@pytest.mark.parametrize("seed", range(3))
@with_scikit_learn
def test_risks_are_those_of_scikit_learn_on_held_out_rows(loss, seed, alpha):
    X, y, codes = make(loss, 4, 3, seed, (40, 80))
    expected = brute_force(loss, X, y, codes, alpha, theta_by_scikit_learn)
    np.testing.assert_allclose(held_out(loss, X, y, codes, alpha), expected, rtol=1e-5)


@pytest.mark.parametrize("seed", range(2))
@with_scikit_learn
def test_weighted_risks_are_those_of_scikit_learn_on_held_out_rows(loss, seed):
    X, y, codes = make(loss, 4, 2, seed, (40, 80))
    weight = np.random.default_rng(seed).random(len(y)) + 0.2
    expected = brute_force(loss, X, y, codes, 0.05, theta_by_scikit_learn, weight)
    np.testing.assert_allclose(held_out(loss, X, y, codes, 0.05, weight), expected, rtol=1e-5)
    assert not np.allclose(expected, brute_force(loss, X, y, codes, 0.05, theta_by_scikit_learn), rtol=1e-3)


@every_smooth_loss
def test_risks_of_every_smooth_loss_are_those_of_held_out_rows(loss):
    X, y, codes = make(loss, 3, 2, 5, (30, 40))
    expected = brute_force(loss, X, y, codes, 0.05, theta_by_hand)
    np.testing.assert_allclose(held_out(loss, X, y, codes, 0.05), expected, rtol=1e-5, atol=1e-7)


@with_scikit_learn
def test_context_of_one_row_is_measured_by_the_model_of_all_others(loss):
    X, y, codes = make(loss, 6, 2, 1, (30, 40))
    # Contexts 1 to 5 lose all rows but one or two, of which no context keeps any when they are held out together.
    rank = np.zeros(len(codes), dtype=int)
    for c in range(6):
        rank[codes == c] = np.arange((codes == c).sum())
    keep = (codes == 0) | (rank < np.array([0, 1, 1, 2, 1, 2])[codes])
    X, y, codes = X[keep], y[keep], codes[keep]
    if loss.name == "logistic":
        # A model of one row alone has one class, which scikit-learn does not fit.
        expected = brute_force(loss, X, y, codes, 0.05, theta_by_hand)
    else:
        expected = brute_force(loss, X, y, codes, 0.05, theta_by_scikit_learn)
    np.testing.assert_allclose(held_out(loss, X, y, codes, 0.05), expected, rtol=1e-5, atol=1e-8)


def test_every_context_may_be_one_row():
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(23, 2)), np.arange(23)
    y = X @ [1.0, -1.0] + rng.normal(size=23)
    expected = brute_force(Squared(), X, y, codes, 0.1, theta_by_scikit_learn)
    np.testing.assert_allclose(held_out(Squared(), X, y, codes, 0.1), expected, rtol=1e-6)


@with_scikit_learn
def test_one_context_is_plain_cross_validation(loss):
    X, y, codes = make(loss, 1, 2, 3, (30, 30))
    expected = brute_force(loss, X, y, codes, 0.05, theta_by_scikit_learn)
    np.testing.assert_allclose(held_out(loss, X, y, codes, 0.05), expected, rtol=1e-6)


# --- what is made of them -----------------------------------------------------------------------------------


@every_loss
def test_reference_is_halfway_between_in_sample_and_held_out_or_the_risk_of_one_model_for_all(loss):
    X, y, codes = make(loss, 5, 2, 4, (8, 60))
    own, pooled = held_out(loss, X, y, codes, 1e-2, tol=1e-8)
    in_sample = reference_risks(oracle_of(loss, X, y, codes, alpha=1e-2), 1e-8).upper
    expected = np.minimum(0.5 * (in_sample + own), pooled)
    np.testing.assert_allclose(cross_fitted(loss, X, y, codes, 1e-2, tol=1e-8), expected, rtol=1e-6)


@pytest.mark.parametrize(("rows", "spread"), [(20, 0.1), (60, 0.1), (60, 1.0), (200, 1.0)])
def test_reference_is_nearer_to_the_truth_than_in_sample(rows, spread):
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(30), rows)
    X = rng.normal(size=(len(codes), 8))
    coef = rng.normal(size=8) + spread * rng.normal(size=(30, 8))
    y = np.einsum("nd,nd->n", X, coef[codes]) + rng.normal(size=len(codes))
    in_sample = reference_risks(oracle_of(Squared(), X, y, codes, alpha=1e-4), 1e-8).upper
    truth = 0.5
    bias = np.mean(cross_fitted(Squared(), X, y, codes, 1e-4)) - truth
    assert abs(bias) < 0.3 * abs(np.mean(in_sample) - truth)


def test_one_row_cannot_be_held_out():
    with pytest.raises(InvalidInputError, match=r"cross-fit.*one row.*in-sample"):
        cross_fitted(Squared(), np.ones((1, 1)), np.ones(1), np.zeros(1, dtype=int), 0.1)


# --- properties ---------------------------------------------------------------------------------------------


@every_loss
def test_scale_of_the_weights_does_not_matter(loss):
    X, y, codes = make(loss, 3, 2, 2, (20, 30))
    weight = np.random.default_rng(0).random(len(codes)) + 0.2
    one, other = (cross_fitted(loss, X, y, codes, 0.05, factor * weight) for factor in (1.0, 7.0))
    np.testing.assert_allclose(one, other, rtol=1e-4 if isinstance(loss, Pinball) else 1e-6, atol=1e-5)


@every_loss
def test_order_of_contexts_among_rows_does_not_matter(loss):
    X, y, codes = make(loss, 4, 2, 2, (20, 30))
    order = np.argsort(codes, kind="stable")
    np.testing.assert_array_equal(
        cross_fitted(loss, X, y, codes, 0.05, tol=1e-6),
        cross_fitted(loss, X[order], y[order], codes[order], 0.05, tol=1e-6),
    )


@every_smooth_loss
def test_sparse_rows_give_the_same_risks(loss):
    X, y, codes = make(loss, 3, 3, 9, (20, 40))
    X = np.where(np.abs(X) < 0.6, 0.0, X)
    dense, thin = (cross_fitted(loss, rows, y, codes, 1e-2) for rows in (X, sparse.csr_array(X)))
    np.testing.assert_allclose(thin, dense, rtol=1e-6, atol=1e-8)


@with_scikit_learn
def test_contexts_that_are_one_are_measured_as_one(loss):
    # The same rows, dealt to contexts at random: what all share serves each as well as anything of its own.
    X, y, _ = make(loss, 1, 3, 0, (160, 160))
    codes = np.random.default_rng(0).integers(0, 40, len(y))
    many = cross_fitted(loss, X, y, codes, 1e-2)
    one = cross_fitted(loss, X, y, np.zeros(len(y), dtype=int), 1e-2)[0]
    assert np.bincount(codes) @ many / len(y) == pytest.approx(one, rel=0.15)
    in_sample = reference_risks(oracle_of(loss, X, y, codes, alpha=1e-2), 1e-8).upper
    assert abs(np.bincount(codes) @ many / len(y) - one) < abs(np.bincount(codes) @ in_sample / len(y) - one)


@every_loss
def test_risks_of_small_contexts_are_above_those_in_sample(loss):
    X, y, codes = make(loss, 6, 3, 7, (12, 20))
    in_sample = reference_risks(oracle_of(loss, X, y, codes, alpha=1e-2), 1e-8).upper
    assert (cross_fitted(loss, X, y, codes, 1e-2, tol=1e-8) > in_sample).all()
