"""What weight on one context does to the risk of another: derivatives of true refits, and a parabola for far ones."""

import pickle

import numpy as np
import pytest
import skops.io
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge

import counterpoise as cpo
from counterpoise.core.influence import MOST_CONTEXTS
from counterpoise.losses import Logistic, Squared
from tests.estimators.linear_models import CASES, rows_of
from tests.problems import make

pytestmark = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")

ALPHA = 0.01
SMOOTH = [case for case in CASES if case != "quantile"]
every_smooth_case = pytest.mark.parametrize("case", SMOOTH)


def fitted(case, **options):
    X, y, c = rows_of(case)
    return CASES[case][0](**{"alpha": ALPHA, "tol": 1e-10} | options).fit(X, y, contexts=c)


def refitted(case, mix, **options):
    """Return the best model for a mix."""
    shares = cpo.Mix(shares=dict(enumerate((mix / mix.sum()).tolist())), radius=0.0)
    return fitted(case, mix=shares, tol=1e-12, **options)


def moved(theta, model):
    """Return a model with other coefficients."""
    other = pickle.loads(pickle.dumps(model))
    matrix = theta.reshape(-1, model.n_features_in_ + 1)
    other.coef_, other.intercept_ = matrix[:, :-1].reshape(np.shape(model.coef_)), matrix[:, -1]
    return other


def gradients(theta, model, case):
    """Return the gradients of the contexts' risks, ridge included, of shape (n_contexts, n_parameters)."""
    found = moved(theta, model).context_gradients(*rows_of(case))
    coef = found.coef.reshape(3, found.intercept.shape[1], -1)
    return np.concatenate([coef, found.intercept[..., None]], axis=2).reshape(3, -1)


@every_smooth_case
def test_it_is_gradients_over_curvature(case):
    model = fitted(case)
    theta = np.column_stack([np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)]).ravel()
    G, p, step = gradients(theta, model, case), model.context_weights_, 1e-5
    steps = step * np.eye(theta.size)
    H = np.array([p @ (gradients(theta + d, model, case) - gradients(theta - d, model, case)) for d in steps])
    # A shift of all intercepts of classes alike has no curvature, and no gradient either.
    expected = G @ np.linalg.pinv(H / (2 * step), rcond=1e-6) @ G.T
    np.testing.assert_allclose(model.context_influence_, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


@every_smooth_case
def test_it_is_symmetric_and_nothing_is_gained_where_the_model_is_optimal(case):
    model = fitted(case)
    K = model.context_influence_
    assert K.shape == (3, 3)
    np.testing.assert_array_equal(K, K.T)
    assert np.linalg.eigvalsh(K).min() >= -1e-12 * np.trace(K)
    assert np.abs(K @ model.context_weights_).max() < 1e-4 * np.abs(K).max()


@every_smooth_case
def test_weight_moved_to_a_context_lowers_risks_by_its_column(case):
    model, small = fitted(case), 1e-3
    for e in range(3):
        ends = []
        for size in (small, -small):
            weights = model.context_weights_ + size * np.eye(3)[e]
            ends.append(refitted(case, weights).context_risks_)
        # Rows of the Huber loss that cross a hinge on the way change its curvature.
        rtol = 0.05 if case == "huber" else 0.005
        column = model.context_influence_[:, e]
        falls = (ends[1] - ends[0]) / (2 * small)
        np.testing.assert_allclose(falls, column, atol=rtol * np.abs(model.context_influence_).max())


@every_smooth_case
def test_a_refit_for_a_mix_nearby_gains_what_the_parabola_says(case):
    model = fitted(case)
    p, K, rng = model.context_weights_, model.context_influence_, np.random.default_rng(0)
    for _ in range(4):
        q = 0.97 * p + 0.03 * rng.dirichlet([0.5] * 3)
        gained = q @ (model.context_risks_ - refitted(case, q).context_risks_)
        assert 0.5 * q @ K @ q == pytest.approx(gained, rel=0.03)


def mixed(codes, q):
    """Return the weight of each row under a mix of contexts."""
    return (q / np.bincount(codes))[codes]


def least_squares(X, y, weight):
    found = Ridge(alpha=ALPHA, solver="cholesky").fit(X, y, sample_weight=weight)
    return 0.5 * (found.predict(X) - y) ** 2, found.coef_


def cross_entropy(X, y, weight):
    found = LogisticRegression(C=1.0 / ALPHA, tol=1e-10, max_iter=1000).fit(X, y, sample_weight=weight)
    return -found.predict_log_proba(X)[np.arange(len(y)), y.astype(int)], found.coef_


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["linear", "binary"])
def test_gain_of_a_refit_by_scikit_learn(kind, seed):
    refit, loss = (least_squares, Squared()) if kind == "linear" else (cross_entropy, Logistic())
    X, y, codes = make(loss, 4, 3, seed, (60, 120))
    model = CASES[kind][0](alpha=ALPHA, tol=1e-10, radius=0.2).fit(X, y, contexts=codes)
    rng = np.random.default_rng(seed)

    def ratio(share):
        q = (1.0 - share) * model.context_weights_ + share * rng.dirichlet([0.5] * 4)
        losses, coef = refit(X, y, mixed(codes, q))
        risks = np.array([losses[codes == c].mean() for c in range(4)]) + 0.5 * ALPHA * np.sum(coef**2)
        return (0.5 * q @ model.context_influence_ @ q) / (q @ (model.context_risks_ - risks))

    assert [ratio(0.03) for _ in range(3)] == pytest.approx([1.0] * 3, abs=0.05)
    # Any mix at all: the right size, not the right digits.
    far = [ratio(1.0) for _ in range(3)]
    assert min(far) > 0.3
    assert max(far) < 3.0


# --- homes of rows -------------------------------------------------------------------------------------------


@every_smooth_case
def test_sparse_rows_say_the_same(case):
    X, y, c = rows_of(case)
    thin = CASES[case][0](alpha=ALPHA, tol=1e-10).fit(sparse.csr_matrix(X), y, contexts=c)
    np.testing.assert_allclose(thin.context_influence_, fitted(case).context_influence_, rtol=1e-3, atol=1e-6)


@every_smooth_case
def test_rows_on_workers_say_the_same(case):
    da = pytest.importorskip("dask.array")
    X, y, c = rows_of(case)
    there = (da.from_array(one, chunks=(60, *one.shape[1:])) for one in (X, y, c))
    options = {"reference": "in-sample", "tol": 1e-10, "alpha": ALPHA}
    found = CASES[case][0](**options).fit(*there)
    np.testing.assert_allclose(
        found.context_influence_, fitted(case, **options).context_influence_, rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize("case", [case for case in SMOOTH if case != "huber"])
def test_rows_on_a_device_say_the_same(case):
    pytest.importorskip("torch")
    options = {"reference": "in-sample", "tol": 1e-10, "alpha": ALPHA}
    # Tensors share memory with arrays, and warn of those that must not be written to.
    found = CASES[case][0](device="cpu", **options).fit(*(one.copy() for one in rows_of(case))).context_influence_
    np.testing.assert_allclose(found, fitted(case, **options).context_influence_, rtol=1e-3, atol=1e-6)


def test_columns_far_from_zero_change_nothing():
    X, y, c = rows_of("linear")
    far = cpo.RobustLinearRegression(alpha=ALPHA, tol=1e-10).fit(X + 1e5, y, contexts=c)
    np.testing.assert_allclose(far.context_influence_, fitted("linear").context_influence_, rtol=1e-3, atol=1e-6)


# --- where there is none -------------------------------------------------------------------------------------


def test_risks_that_bend_only_at_kinks_have_none():
    assert fitted("quantile").context_influence_ is None
    assert fitted("quantile", fit_intercept=False).context_influence_ is None
    X, y, c = rows_of("linear")
    orders = cpo.RobustNewsvendorRegressor(price=10.0, cost=4.0, alpha=ALPHA).fit(X, np.abs(y), contexts=c)
    assert orders.context_influence_ is None


@pytest.mark.parametrize("case", ["linear", "binary", "multinomial"])
def test_columns_that_repeat_need_a_ridge(case):
    X, y, c = rows_of(case)
    twice = np.column_stack([X, X])
    assert CASES[case][0](alpha=0.0).fit(X, y, contexts=c).context_influence_ is not None
    assert CASES[case][0](alpha=0.0).fit(twice, y, contexts=c).context_influence_ is None
    assert CASES[case][0](alpha=ALPHA).fit(twice, y, contexts=c).context_influence_ is not None


@pytest.mark.parametrize("beyond", [0, 1])
def test_too_many_contexts_have_none(beyond):
    rng, n = np.random.default_rng(0), MOST_CONTEXTS + beyond
    X, c = rng.normal(size=(4 * n, 1)), np.repeat(np.arange(n), 4)
    model = cpo.RobustLinearRegression(reference="in-sample").fit(X, rng.normal(size=4 * n), contexts=c)
    assert (model.context_influence_ is None) == bool(beyond)


def test_levels_of_a_path_have_none():
    X, y, c = rows_of("linear")
    path = cpo.confidence_path(cpo.RobustLinearRegression(), X, y, contexts=c, confidences=[0.5, 0.9])
    assert all(model.context_influence_ is None for model in path.models)


def test_one_context_gains_nothing():
    X, y, _ = rows_of("linear")
    model = cpo.RobustLinearRegression(tol=1e-10).fit(X, y, contexts=np.zeros(len(y)))
    np.testing.assert_allclose(model.context_influence_, [[0.0]], atol=1e-6)


def test_contexts_without_rows_have_no_part_in_it():
    X, y, c = rows_of("linear")
    mix = cpo.Mix(counts={0: 40, 1: 30, 2: 20, 9: 30}, unseen_risks={9: 0.4})
    model = cpo.RobustLinearRegression(alpha=ALPHA, tol=1e-10, mix=mix).fit(X, y, contexts=c)
    p = model.context_weights_ / model.context_weights_.sum()
    assert 0.05 < model.unseen_weights_[0] < 0.95
    same = refitted("linear", p)
    np.testing.assert_allclose(model.context_influence_, same.context_influence_, rtol=1e-2)


# --- copies --------------------------------------------------------------------------------------------------


def test_copies_keep_it():
    model = fitted("binary")
    data = skops.io.dumps(model)
    for same in (
        pickle.loads(pickle.dumps(model)),
        skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data)),
        clone(model).fit(*rows_of("binary")),
    ):
        np.testing.assert_array_equal(same.context_influence_, model.context_influence_)
    assert not hasattr(clone(model), "context_influence_")
    assert "context_influence_ :" in type(model).__doc__
