"""Linear models whose rows are on a device: the same answers and certificates as in memory, and no torch elsewhere."""

import copy
import itertools
import math
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse

torch = pytest.importorskip("torch")

import counterpoise as cpo  # noqa: E402
from counterpoise.contexts import encode  # noqa: E402
from counterpoise.core.fit import fit_problem  # noqa: E402
from counterpoise.core.oracle import LinearOracle  # noqa: E402
from counterpoise.core.oracle.bounds import self_concordant  # noqa: E402
from counterpoise.core.problem import LinearProblem  # noqa: E402
from counterpoise.exceptions import InvalidInputError  # noqa: E402
from counterpoise.linalg import ArrayStack  # noqa: E402
from counterpoise.losses import Logistic, Multinomial, Poisson, Squared  # noqa: E402
from counterpoise.rows import device as rows  # noqa: E402
from counterpoise.rows.device_losses import in_tensors  # noqa: E402
from counterpoise.rows.device_stack import Rounding, TorchStack  # noqa: E402
from counterpoise.sets import KLBall  # noqa: E402
from counterpoise.torch import GroupDROLoss, RobustLoss  # noqa: E402
from tests.problems import make  # noqa: E402

# Small contexts are the point here, not a mistake.
pytestmark = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: torch.cuda.is_available() is False")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
MODELS = {
    "logistic": (cpo.RobustLogisticRegression, Logistic()),
    "multinomial": (cpo.RobustLogisticRegression, Multinomial(3)),
    "linear": (cpo.RobustLinearRegression, Squared()),
    "poisson": (cpo.RobustPoissonRegressor, Poisson()),
}
RADII = [0.0, "types", math.inf]

each_device = pytest.mark.parametrize("device", DEVICES)
each_model = pytest.mark.parametrize("model", MODELS)


def problem(model, n_contexts=4, n_features=3, seed=0, **options):
    kind, loss = MODELS[model]
    return kind, *make(loss, n_contexts, n_features, seed, **options)


def assert_same(model, reference):
    """The same model, risks and proven bounds.

    Bounds agree to 1e-9; a gap of 1e-10 leaves coefficients the square root of it to differ by, and they use a little.
    """
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=5e-8, rtol=5e-8)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, atol=5e-8, rtol=5e-8)
    np.testing.assert_allclose(model.reference_risks_, reference.reference_risks_, atol=1e-9, rtol=1e-9)
    for name in ("context_risks_", "excess_risks_"):
        np.testing.assert_allclose(getattr(model, name), getattr(reference, name), atol=1e-7, rtol=1e-7)
    np.testing.assert_allclose(model.context_weights_, reference.context_weights_, atol=1e-7)
    assert model.radius_ == reference.radius_
    assert model.contexts_.tolist() == reference.contexts_.tolist()
    assert model.context_counts_.tolist() == pytest.approx(reference.context_counts_.tolist())
    assert model.certificate_.upper == pytest.approx(reference.certificate_.upper, abs=1e-9)
    assert model.certificate_.lower == pytest.approx(reference.certificate_.lower, abs=1e-9)
    assert model.n_features_in_ == reference.n_features_in_


def fits(kind, X, y, contexts, device, given=None, **options):
    """Return the model fitted on a device, and in memory."""
    settings = {"tol": 1e-10, "reference": "in-sample"} | options
    weight = settings.pop("sample_weight", None)
    there = X if given is None else given
    on_device = kind(device=device, **settings).fit(there, y, contexts=contexts, sample_weight=weight)
    return on_device, kind(**settings).fit(X, y, contexts=contexts, sample_weight=weight)


# --- the same answers ----------------------------------------------------------------------------------------


@each_device
@pytest.mark.parametrize("alpha", [0.0, 1e-2])
@pytest.mark.parametrize("criterion", ["risk", "excess"])
@pytest.mark.parametrize("radius", RADII)
@each_model
def test_same_as_in_memory(model, radius, criterion, alpha, device):
    kind, X, y, contexts = problem(model)
    assert_same(*fits(kind, X, y, contexts, device, radius=radius, criterion=criterion, alpha=alpha))


@each_device
@pytest.mark.parametrize("radius", RADII)
@each_model
def test_same_without_intercept(model, radius, device):
    kind, X, y, contexts = problem(model, seed=1)
    assert_same(*fits(kind, X, y, contexts, device, radius=radius, fit_intercept=False))


@each_device
@each_model
def test_same_with_sample_weights(model, device):
    kind, X, y, contexts = problem(model)
    weight = np.random.default_rng(0).uniform(0.2, 3.0, len(y))
    assert_same(*fits(kind, X, y, contexts, device, sample_weight=weight))
    both = [
        kind(device=device, tol=1e-10, radius=0.1).fit(X, y, contexts=contexts, sample_weight=w)
        for w in (None, np.ones(len(y)))
    ]
    assert_same(*both)


@each_device
def test_same_with_adjustments(device):
    kind, X, y, contexts = problem("logistic")
    assert_same(*fits(kind, X, y, contexts, device, adjust=0.5))
    with pytest.raises(InvalidInputError, match="adjust is 'standard-error'; where rows are not in memory"):
        kind(device=device, adjust="standard-error").fit(X, y, contexts=contexts)


def test_rows_of_no_weight_are_left_to_the_caller():
    kind, X, y, contexts = problem("linear")
    with pytest.raises(InvalidInputError, match="Drop the rows of no weight"):
        kind(device="cpu").fit(X, y, contexts=contexts, sample_weight=np.r_[0.0, np.ones(len(y) - 1)])


@each_device
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("as_tensor", [True, False], ids=["tensor", "numpy"])
@each_model
def test_same_for_every_kind_of_array(model, as_tensor, dtype, device):
    kind, X, y, contexts = problem(model)
    X = X.astype(dtype)
    given = torch.tensor(X, device=device) if as_tensor else X
    found, expected = fits(kind, X.astype(np.float64), y, contexts, device, given=given)
    assert_same(found, expected)
    assert found.coef_.dtype == np.float64


@each_device
def test_targets_contexts_and_weights_may_be_tensors(device):
    kind, X, y, contexts = problem("logistic")
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    here = {"sample_weight": torch.tensor(weight), "contexts": torch.tensor(contexts, device=device)}
    found = kind(device=device, tol=1e-10).fit(torch.tensor(X), torch.tensor(y, device=device), **here)
    assert_same(found, kind(tol=1e-10).fit(X, y, contexts=contexts, sample_weight=weight))


def test_contexts_may_be_tensors_in_memory_too():
    kind, X, y, contexts = problem("logistic")
    found = kind().fit(X, y, contexts=torch.tensor(contexts))
    assert found.contexts_.tolist() == [0, 1, 2, 3]


@needs_gpu
@each_model
def test_tensors_on_a_gpu_are_fitted_there_without_being_asked(model):
    kind, X, y, contexts = problem(model)
    found = kind(tol=1e-10).fit(torch.tensor(X).cuda(), torch.tensor(y).cuda(), contexts=contexts)
    assert_same(found, kind(tol=1e-10).fit(X, y, contexts=contexts))


@each_device
@each_model
def test_same_with_contexts_of_one_row(model, device):
    kind, X, y, contexts = problem(model)
    contexts = contexts.copy()
    contexts[:2] = [7, 9]
    found, expected = fits(kind, X, y, contexts, device, alpha=0.1, tol=1e-8)
    np.testing.assert_allclose(found.reference_risks_, expected.reference_risks_, atol=1e-8)
    assert found.certificate_.relative_gap <= 1e-8
    assert found.certificate_.upper == pytest.approx(expected.certificate_.upper, abs=1e-7)


@each_device
@each_model
def test_same_with_many_contexts(model, device):
    kind, X, y, contexts = problem(model, n_contexts=500, n_features=2, rows=(2, 12))
    order = np.random.default_rng(0).permutation(len(y))
    X, y, contexts = X[order], y[order], contexts[order]
    found, expected = fits(kind, X, y, contexts, device, alpha=0.1, tol=1e-6)
    assert found.certificate_.relative_gap <= 1e-6
    assert found.certificate_.upper == pytest.approx(expected.certificate_.upper, rel=1e-5)
    np.testing.assert_allclose(found.reference_risks_, expected.reference_risks_, atol=1e-6)


@each_device
@pytest.mark.parametrize("alpha", [0.0, 1e-2])
def test_certified_where_a_context_lacks_a_class(alpha, device):
    # Its own best model sends that class's intercept to minus infinity: the least risk is not attained.
    kind, X, y, contexts = problem("multinomial")
    y = np.where((contexts == 2) & (y == 0), 1.0, y)
    found, expected = fits(kind, X, y, contexts, device, alpha=alpha, tol=1e-6)
    assert expected.certificate_.relative_gap <= 1e-6
    assert found.certificate_.relative_gap <= 1e-6
    np.testing.assert_allclose(found.reference_risks_, expected.reference_risks_, atol=1e-6)


@each_device
@pytest.mark.parametrize("alpha", [0.0, 1e-4])
@pytest.mark.parametrize("model", ["logistic", "poisson"])
def test_certified_where_a_flag_decides_in_one_context(model, alpha, device):
    # Without a ridge that context's best coefficient is infinite, and its least risk is not the lowest there is.
    rng = np.random.default_rng(0)
    contexts, flag, x = np.arange(300) % 3, rng.integers(0, 2, 300), rng.normal(size=300)
    z = x + flag - 0.5
    noisy = (z + rng.logistic(size=300) > 0) if model == "logistic" else rng.poisson(np.exp(0.3 * z))
    y = np.where((contexts == 1) & (flag == 1), 0.0, noisy)
    found, expected = fits(MODELS[model][0], np.column_stack([flag, x]), y, contexts, device, alpha=alpha, tol=1e-6)
    assert expected.certificate_.relative_gap <= 1e-6
    assert found.certificate_.relative_gap <= 1e-6


@each_device
@each_model
def test_certified_where_a_context_has_one_kind_of_target(model, device):
    kind, X, y, contexts = problem(model)
    y = np.where(contexts == 3, 0.0, y)
    found, expected = fits(kind, X, y, contexts, device, alpha=1e-2, tol=1e-6)
    assert found.certificate_.relative_gap <= 1e-6
    assert found.certificate_.upper == pytest.approx(expected.certificate_.upper, abs=1e-5)


@each_device
@pytest.mark.parametrize("block", [1, 300, 3000])
@each_model
def test_same_where_contexts_are_split_over_blocks(model, block, device, monkeypatch):
    kind, X, y, contexts = problem(model, rows=(3, 60))
    monkeypatch.setattr(rows, "_BLOCK_BYTES", block)
    assert_same(*fits(kind, X, y, contexts, device, alpha=1e-2, tol=1e-9))


@each_device
@each_model
def test_columns_of_very_different_size(model, device):
    kind, X, y, contexts = problem(model)
    X = X * np.array([1e-3, 1.0, 1e2])
    found, expected = fits(kind, X, y, contexts, device, alpha=0.0, tol=1e-8)
    assert found.certificate_.relative_gap <= 1e-8
    assert found.certificate_.upper == pytest.approx(expected.certificate_.upper, abs=1e-8)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), atol=1e-3)


@each_device
def test_known_references(device):
    kind, X, y, contexts = problem("linear")
    known = {c: 0.1 * c for c in range(4)}
    assert_same(*fits(kind, X, y, contexts, device, reference=known))


@each_device
@each_model
def test_predictions_take_tensors(model, device):
    kind, X, y, contexts = problem(model)
    found = kind(device=device).fit(X, y, contexts=contexts)
    there = torch.tensor(X, device=device)
    np.testing.assert_array_equal(found.predict(there), found.predict(X))
    there.requires_grad_(True)
    np.testing.assert_array_equal(found.predict(there), found.predict(X))
    if hasattr(found, "predict_proba"):
        np.testing.assert_array_equal(found.predict_proba(there), found.predict_proba(X))


@each_device
@each_model
def test_scores_and_row_losses_take_tensors(model, device):
    kind, X, y, contexts = problem(model)
    found = kind(device=device).fit(X, y, contexts=contexts)
    there = torch.tensor(X, device=device), torch.tensor(y, device=device)
    assert found.score(*there) == pytest.approx(found.score(X, y))
    np.testing.assert_allclose(found.row_losses(*there), found.row_losses(X, y))


@each_device
def test_data_frames_keep_their_names(device):
    pd = pytest.importorskip("pandas")
    kind, X, y, contexts = problem("linear")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    found = kind(device=device).fit(frame, y, contexts=contexts)
    np.testing.assert_allclose(found.predict(frame), kind().fit(frame, y, contexts=contexts).predict(frame), atol=1e-4)
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]


@each_device
def test_whole_numbers_and_flags_are_features(device):
    kind, X, y, contexts = problem("linear")
    expected = kind(tol=1e-10).fit((X > 0).astype(float), y, contexts=contexts)
    for given in (X > 0, (X > 0).astype(np.int8), (X > 0).astype(np.int64), torch.tensor(X > 0)):
        assert_same(kind(device=device, tol=1e-10).fit(given, y, contexts=contexts), expected)


# --- kinked losses -------------------------------------------------------------------------------------------

KINKED = {
    "quantile": lambda **options: cpo.RobustQuantileRegressor(quantile=0.3, **options),
    "huber": lambda **options: cpo.RobustHuberRegressor(**options),
    "order rule": lambda **options: cpo.RobustNewsvendorRegressor(10.0, cost=3.0, max_stock=3.0, **options),
}
each_kinked = pytest.mark.parametrize("model", KINKED)


def assert_alike(found, expected, accuracy):
    """The same proven bounds, references and risks, up to what the gap leaves open."""
    assert found.certificate_.relative_gap <= 1e-6
    assert found.certificate_.upper == pytest.approx(expected.certificate_.upper, abs=accuracy)
    for name in ("reference_risks_", "context_risks_"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=accuracy)


@each_device
@pytest.mark.parametrize("alpha", [0.0, 1e-2])
@pytest.mark.parametrize("radius", RADII)
@each_kinked
def test_kinked_losses_as_in_memory(model, radius, alpha, device):
    _, X, y, contexts = problem("linear", rows=(20, 60))
    settings = {"radius": radius, "alpha": alpha, "reference": "in-sample"}
    found, expected = (
        KINKED[model](device=at, **settings).fit(X, np.abs(y), contexts=contexts) for at in (device, None)
    )
    assert_alike(found, expected, 1e-9)


@each_device
@each_kinked
def test_kinked_losses_of_features_in_single_precision(model, device):
    _, X, y, contexts = problem("linear", rows=(20, 60))
    X = torch.tensor(X, dtype=torch.float32, device=device)
    found = KINKED[model](device=device, reference="in-sample").fit(X, np.abs(y), contexts=contexts)
    again = KINKED[model](reference="in-sample").fit(X.double().cpu().numpy(), np.abs(y), contexts=contexts)
    assert_alike(found, again, 1e-9)


# --- held-out rows, paths ------------------------------------------------------------------------------------


@each_device
@pytest.mark.parametrize("reference", ["cross-fit", "shrunk"])
@each_model
def test_held_out_references_as_in_memory(model, reference, device):
    kind, X, y, contexts = problem(model, rows=(30, 90))
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    settings = {"alpha": 1e-2, "reference": reference, "sample_weight": weight}
    found, expected = fits(kind, X, y, contexts, device, tol=1e-8, **settings)
    # In memory, too, risks of held-out rows are as accurate as the fits to the others.
    np.testing.assert_allclose(found.reference_risks_, expected.reference_risks_, atol=1e-6)
    assert found.reference_ == reference
    assert found.certificate_.relative_gap <= 1e-8


@each_device
@pytest.mark.parametrize("model", ["quantile", "order rule"])
def test_held_out_references_of_kinked_losses(model, device):
    # An order within limits is a row of two kinks, which are held out together.
    _, X, y, contexts = problem("linear", rows=(60, 90))
    settings = {"alpha": 1e-2, "reference": "cross-fit"}
    found, expected = (
        KINKED[model](device=at, **settings).fit(X, np.abs(y), contexts=contexts) for at in (device, None)
    )
    np.testing.assert_allclose(found.reference_risks_, expected.reference_risks_, atol=1e-4)


@each_device
def test_a_context_that_cannot_be_held_out_has_the_pooled_reference(device):
    kind, X, y, contexts = problem("linear")
    contexts = np.r_[9, contexts[1:]]
    found, expected = fits(kind, X, y, contexts, device, reference="cross-fit", alpha=1e-2)
    np.testing.assert_allclose(found.reference_risks_, expected.reference_risks_, atol=1e-6)


@each_device
@pytest.mark.parametrize("model", ["logistic", "linear", "multinomial"])
def test_a_path_is_followed_with_hardly_more_than_a_look_at_each_level(model, device, monkeypatch):
    kind, X, y, contexts = problem(model, rows=(80, 90))
    looks = []
    product = rows.TorchTiles.product
    monkeypatch.setattr(rows.TorchTiles, "product", lambda tiles, theta: (looks.append(1), product(tiles, theta))[1])
    settings = {"reference": "in-sample", "alpha": 1e-2}
    found, expected = (
        cpo.confidence_path(kind(device=at, **settings), X, y, contexts=contexts) for at in (device, None)
    )
    np.testing.assert_allclose(found.columns["objective"], expected.columns["objective"], atol=2e-6)
    assert all(one.certificate_.relative_gap <= 1e-6 for one in found.models)
    assert len(looks) <= 3 * len(found.models)


# --- products in single precision ----------------------------------------------------------------------------


@each_device
@pytest.mark.parametrize("model", ["logistic", "linear", "poisson", "multinomial"])
def test_quick_products_prove_what_double_precision_does(model, device):
    _, loss = MODELS[model]
    X, y, contexts = make(loss, 4, 3, 0, (200, 300))
    X, counts = torch.tensor(X, dtype=torch.float32, device=device), np.bincount(contexts)
    fitted = []
    for quick in (True, False):
        held = rows.TorchRows.of(X, y, 1.0 / counts[contexts], contexts, 4, loss, is_quick=quick)
        posed = LinearProblem(LinearOracle(held, 1e-3), encode(contexts), counts.astype(float))
        references = posed.references("in-sample", 1e-6)
        ball = KLBall(counts / counts.sum(), 0.1)
        fitted.append((references, fit_problem(posed, ball, references, tol=1e-6).solution))
    (references, solution), (others, exact) = fitted
    scale = exact.certificate.scale
    assert solution.success
    np.testing.assert_allclose(references.upper, others.upper, atol=1e-7 * scale)
    # What is claimed of the optimum holds in double precision; references shift it by what is not known of them.
    shift = min(np.abs(references.upper - others.upper).max() + 1e-12 * scale, 1e-7 * scale)
    assert solution.certificate.lower <= exact.certificate.upper + shift
    assert solution.certificate.upper >= exact.certificate.lower - shift


def ill_conditioned(case, n=6000, n_features=5):
    """Rows of two classes in four contexts, of which predictions in single precision tell too little."""
    rng = np.random.default_rng(0)
    X, contexts = rng.normal(size=(n, n_features)), rng.integers(0, 4, n)
    z = X @ rng.normal(size=n_features) / np.sqrt(n_features) + 0.5 * (contexts - 1.5) * X[:, 1]
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-z))).astype(int)
    if case == "offset":
        X[:, 0] += 1e4
    elif case == "large":
        X[:, 0] = 1.7e6 + 300.0 * X[:, 0]
    else:
        X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    return X.astype(np.float32), y, contexts


ILL_CONDITIONED = {"offset": 1e-8, "large": 1e-8, "collinear": 1e-10}
SUMS = 1e-13
"""Rounding of sums in double precision, of which certificates are not told."""


@each_device
@pytest.mark.parametrize("case", ILL_CONDITIONED)
def test_certificates_of_rows_in_single_precision_hold_in_double_precision(case, device, monkeypatch):
    monkeypatch.setattr(rows, "_QUICK", 0)
    X, y, contexts = ill_conditioned(case)
    settings = {"alpha": ILL_CONDITIONED[case], "criterion": "risk"}
    found = cpo.RobustLogisticRegression(device=device, **settings).fit(X, y, contexts=contexts)
    expected = cpo.RobustLogisticRegression(tol=1e-10, **settings).fit(X.astype(float), y, contexts=contexts)
    claimed, optimum = found.certificate_, expected.certificate_
    assert claimed.relative_gap <= 1e-6
    assert claimed.lower <= optimum.upper + SUMS
    assert claimed.upper >= optimum.lower - SUMS
    # What is claimed is attained.
    own = found.row_losses(X.astype(float), y)
    risks = np.bincount(contexts, own) / np.bincount(contexts) + 0.5 * settings["alpha"] * np.sum(found.coef_**2)
    np.testing.assert_allclose(found.context_risks_, risks, rtol=0.0, atol=1e-12)


@each_device
@pytest.mark.parametrize("case", ILL_CONDITIONED)
def test_references_of_rows_in_single_precision_hold_in_double_precision(case, device):
    X, y, contexts = ill_conditioned(case)
    counts, alpha = np.bincount(contexts), ILL_CONDITIONED[case]
    there = torch.tensor(X, device=device)
    held = rows.TorchRows.of(there, y, 1.0 / counts[contexts], contexts, 4, Logistic(), is_quick=True)
    found = LinearProblem(LinearOracle(held, alpha), encode(contexts), counts.astype(float))
    expected = LinearProblem.from_data(X.astype(float), y.astype(float), contexts, Logistic(), alpha=alpha)
    claimed, least = found.references("in-sample", 1e-6), expected.references("in-sample", 1e-10)
    assert (claimed.upper - claimed.lower <= 1e-6).all()
    assert (claimed.lower <= least.upper + SUMS).all()
    assert (claimed.upper >= least.lower - SUMS).all()


def truncated(values):
    """Cut numbers in single precision to ten bits, as TF32 does."""
    return (np.asarray(values, dtype=np.float32).view(np.int32) & np.int32(-(2**13))).view(np.float32)


def scaled_spectrum(matrix, exact):
    scale = 1.0 / np.sqrt(np.diag(exact))
    return np.linalg.eigvalsh(matrix * np.outer(scale, scale))


@pytest.mark.parametrize("is_truncated", [False, True])
@pytest.mark.parametrize("size", [1.0, 1e-15])
def test_matrices_of_rounded_products_are_known_to_lie_below(is_truncated, size):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 12)) @ np.diag(np.geomspace(1.0, 50.0, 12)) + 3.0 * rng.normal(size=(400, 1))
    X, weight = (size * X).astype(np.float32), rng.random(400) / 400.0
    left, right = X, X * weight.astype(np.float32)[:, None]
    if is_truncated:
        left, right = truncated(left), truncated(right)
    rounding = Rounding.of_products(1, 400, float(np.abs(X).max()), weight.max(), is_truncated)
    product = (left.T @ right).astype(float)
    stack = TorchStack(torch.tensor(0.5 * (product + product.T))[None], rounding)
    exact = X.astype(float).T @ (weight[:, None] * X.astype(float))
    below = np.asarray(stack.below())[0]
    assert scaled_spectrum(exact - below, exact).min() >= 0.0
    # And most of it is left.
    assert scaled_spectrum(below - 0.8 * exact, exact).min() > 0.0


def test_nothing_is_known_of_matrices_of_products_that_underflow():
    X = np.full((8, 2), 1e-22, dtype=np.float32)
    rounding = Rounding.of_products(1, 8, 1e-22, 1.0, is_truncated=False)
    stack = TorchStack(torch.tensor((X.T @ X).astype(float))[None], rounding)
    assert np.linalg.eigvalsh(np.asarray(stack.below())[0]).max() < 0.0


@each_device
def test_rounded_hessians_lie_below_those_in_double_precision(device):
    X, y, contexts = make(Logistic(), 4, 12, 0, (3000, 4000))
    X, counts = torch.tensor(X, dtype=torch.float32, device=device), np.bincount(contexts)
    held = rows.TorchRows.of(X, y, 1.0 / counts[contexts], contexts, 4, Logistic(), is_quick=True)
    sums = held.at(np.random.default_rng(0).normal(size=13))
    exact, below = np.asarray(sums.hessians), np.asarray(sums.rough_hessians.below())
    assert sums.rough_hessians.rounding is not None
    for one, lowered in zip(exact, below, strict=True):
        assert scaled_spectrum(one - lowered, one).min() >= 0.0
        assert scaled_spectrum(lowered - 0.5 * one, one).min() > 0.0


def test_a_hessian_lost_to_rounding_proves_nothing():
    v = np.array([1.0, 1.0 + 1e-9])
    matrices = torch.tensor(np.stack([np.eye(2), np.outer(v, v)]))
    gradient, reach = 1e-3 * np.stack([v, v]), np.ones(2)
    # As it is, the second would prove something: the gradient is in its range.
    assert np.isfinite(self_concordant(gradient, np.ones((2, 2)), TorchStack(matrices), reach, 1.0)).all()
    below = TorchStack(matrices, Rounding(features=1e-6)).below()
    found = self_concordant(gradient, np.ones((2, 2)), below, reach, 1.0)
    assert np.isfinite(found[0])
    assert np.isinf(found[1])


def test_hessians_of_which_rounding_leaves_less_than_half_are_not_stepped_with():
    near = np.array([[1.0, 1.0 - 1e-4], [1.0 - 1e-4, 1.0]])
    stack = TorchStack(torch.tensor(np.stack([np.eye(2), near])), Rounding(features=1e-6))
    assert stack.are_accurate()
    assert not TorchStack(stack.matrices, Rounding(features=1e-3)).are_accurate()
    assert TorchStack(stack.matrices[:1], Rounding(features=1e-3)).are_accurate()
    assert not TorchStack(torch.nan * stack.matrices, Rounding(features=1e-6)).are_accurate()
    # Products in double precision are as good as they get.
    assert TorchStack(torch.ones(1, 2, 2, dtype=torch.float64)).are_accurate()
    assert ArrayStack(np.ones((1, 2, 2))).are_accurate()


@each_device
@pytest.mark.parametrize("case", ILL_CONDITIONED)
def test_rows_in_single_precision_are_fitted_in_about_as_many_looks(case, device, monkeypatch):
    X, y, contexts = ill_conditioned(case, 20_000, 12)
    model = cpo.RobustLogisticRegression(device=device, alpha=ILL_CONDITIONED[case], reference="in-sample")
    product, looks = rows.TorchTiles.product, []
    monkeypatch.setattr(rows.TorchTiles, "product", lambda tiles, theta: (looks.append(1), product(tiles, theta))[1])
    counts = []
    for entries in (0, 1 << 60):
        monkeypatch.setattr(rows, "_QUICK", entries)
        assert model.fit(X, y, contexts=contexts).certificate_.relative_gap <= 1e-6
        counts.append(len(looks))
        looks.clear()
    assert counts[0] <= 2 * counts[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logistic_losses_of_sure_predictions_are_finite(dtype):
    z, target = torch.tensor([[-800.0], [800.0], [-800.0], [800.0]], dtype=dtype), torch.tensor([0.0, 0.0, 1.0, 1.0])
    loss = in_tensors(Logistic())
    assert loss.value(target.to(dtype), z).tolist() == [0.0, 800.0, 800.0, 0.0]
    assert loss.gradient(target.to(dtype), z)[:, 0].tolist() == pytest.approx([0.0, 1.0, -1.0, 0.0])


def test_a_stack_on_a_device_is_one_in_memory():
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(5, 4, 3))
    matrices = np.einsum("bij,bik->bjk", factors, factors)
    # One without an inverse is solved with as in memory.
    matrices[2, :, 1] = matrices[2, 1, :] = 0.0
    here, there = ArrayStack(matrices), TorchStack(torch.tensor(matrices))
    vectors, keep = rng.normal(size=(5, 3)), np.array([True, False, True, True, False])
    vectors[2, 1] = 0.0
    for found, expected in (
        (there.solve(vectors), here.solve(vectors)),
        (there.product(vectors), here.product(vectors)),
        (there.product(vectors[0]), here.product(vectors[0])),
        (there.mixed(vectors[:, 0]), here.mixed(vectors[:, 0])),
        (there.diagonals(), here.diagonals()),
        (there.absolute_forms(vectors[0]), here.absolute_forms(vectors[0])),
        (there.traces(there), here.traces(here)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    for found, expected in (
        (there[keep], here[keep]),
        (there.inverse(), here.inverse()),
        (there.plus_diagonal(vectors[0]), here.plus_diagonal(vectors[0])),
        (there.scaled(vectors[:, 0]), here.scaled(vectors[:, 0])),
        (there.followed_by_zeros(2), here.followed_by_zeros(2)),
        (there.below(), here.below()),
    ):
        assert len(found) == len(expected)
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-9, atol=1e-12)


# --- what is refused -----------------------------------------------------------------------------------------


def test_a_loss_that_has_no_tensors_is_named():
    @dataclass(frozen=True)
    class Cubic(Squared):
        name = "cubic"

    with pytest.raises(InvalidInputError, match="the cubic loss is not fitted on a device; choose"):
        rows.TorchRows.of(torch.ones(2, 1), np.ones(2), np.ones(2), np.arange(2), 2, Cubic())


def test_newsvendors_have_no_device():
    with pytest.raises(TypeError, match="device"):
        cpo.RobustNewsvendor(10.0, device="cpu")


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("as_tensor", [True, False], ids=["tensor", "numpy"])
def test_values_that_are_not_finite_are_refused(bad, as_tensor):
    kind, X, y, contexts = problem("linear")
    X[3, 1] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        kind(device="cpu").fit(torch.tensor(X) if as_tensor else X, y, contexts=contexts)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        kind(device="cpu").fit(np.nan_to_num(X), np.where(np.arange(len(y)) == 2, bad, y), contexts=contexts)


@pytest.mark.parametrize("device", ["gpu", "cpu:x", 3.5])
def test_unknown_devices_are_refused(device):
    kind, X, y, contexts = problem("linear")
    with pytest.raises(InvalidInputError, match="device"):
        kind(device=device).fit(X, y, contexts=contexts)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_named():
    kind, X, y, contexts = problem("linear")
    with pytest.raises(InvalidInputError, match="'cuda' cannot be used"):
        kind(device="cuda").fit(X, y, contexts=contexts)


@pytest.mark.parametrize("alpha", [-1.0, math.nan, math.inf, "small"])
def test_the_ridge_is_checked_as_in_memory(alpha):
    kind, X, y, contexts = problem("logistic")
    for device in (None, "cpu"):
        with pytest.raises(InvalidInputError, match="alpha"):
            kind(device=device, alpha=alpha).fit(X, y, contexts=contexts)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"X": np.ones((4, 2)).tolist()[0]}, "shape|two dimensions|2D"),
        ({"y": np.ones(3)}, "samples|rows"),
        ({"contexts": [0, 1, 0]}, "3 context labels for 4 rows"),
        ({"contexts": [0, 1, 0, None]}, "missing"),
        ({"sample_weight": [1.0, 2.0]}, "sample_weight"),
        ({"sample_weight": [1.0, 2.0, 3.0, -1.0]}, "sample_weight"),
        ({"X": np.array([["a", "b"]] * 4)}, "X must be numbers"),
        ({"X": sparse.csr_array(np.eye(4, 2))}, "sparse"),
    ],
    ids=[
        "one dimension",
        "short y",
        "short contexts",
        "no label",
        "short weights",
        "negative weight",
        "text",
        "sparse",
    ],
)
def test_bad_data_is_named(change, words):
    given = {"X": np.arange(8.0).reshape(4, 2), "y": np.arange(4.0), "contexts": [0, 0, 1, 1]} | change
    with pytest.raises(ValueError, match=words):
        cpo.RobustLinearRegression(device="cpu").fit(**given)


def test_nothing_to_fit_is_refused():
    _, X, y, contexts = problem("linear")
    with pytest.raises(ValueError, match=r"nothing to fit|0 feature"):
        cpo.RobustLinearRegression(device="cpu", fit_intercept=False).fit(X[:, :0], y, contexts=contexts)


def test_parameters_are_not_touched():
    kind, X, y, contexts = problem("linear")
    model = kind(device="cpu")
    before = copy.deepcopy(model.get_params())
    given, kept = torch.tensor(X), torch.tensor(X)
    assert model.fit(given, y, contexts=contexts) is model
    assert model.get_params() == before
    assert torch.equal(given, kept)


# --- losses on a GPU -----------------------------------------------------------------------------------------


@needs_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize(
    "options",
    [{"radius": 0.3}, {"radius": 0.3, "update": "ascent"}, {"radius": math.inf}, {"step_size": 0.1}],
    ids=str,
)
def test_losses_on_a_gpu_never_wait_and_agree(options):
    kind = RobustLoss if "radius" in options else GroupDROLoss
    here, there = kind([60, 30, 10], **options), kind([60, 30, 10], **options).cuda()
    generator = torch.Generator().manual_seed(0)
    batches = [(torch.rand(32, generator=generator), torch.randint(3, (32,), generator=generator)) for _ in range(5)]
    moved = [(losses.cuda().requires_grad_(True), contexts.cuda()) for losses, contexts in batches]
    there(*moved[0])
    here(*batches[0])
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for losses, contexts in moved:
            there(losses, contexts).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for losses, contexts in batches:
        value = here(losses, contexts)
    assert torch.isfinite(value)
    torch.testing.assert_close(there.context_weights.cpu(), here.context_weights, rtol=1e-9, atol=1e-10)
    assert all(buffer.is_cuda and buffer.dtype == torch.float64 for buffer in there.buffers())


@needs_gpu
@pytest.mark.parametrize("update", ["closed-form", "ascent"])
def test_half_precision_training_on_a_gpu(update):
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(8, 3).cuda(), RobustLoss([60, 30, 10], radius=0.3, update=update).cuda()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
    for _ in range(10):
        x, y = torch.randn(64, 8, device="cuda"), torch.randint(3, (64,), device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            rows_ = torch.nn.functional.cross_entropy(model(x), y, reduction="none")
            value = loss(rows_, torch.randint(3, (64,), device="cuda"))
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert torch.isfinite(model.weight).all()
    assert torch.isfinite(loss.context_weights).all()


# --- and no torch anywhere else ------------------------------------------------------------------------------

NEEDS_TORCH = (
    "counterpoise.torch",
    "counterpoise.rows.device",
    "counterpoise.experiments.coloured_mnist_cnn",
    "counterpoise.experiments.networks",
    "counterpoise.experiments.table_network",
)


def test_only_the_torch_package_imports_torch():
    code = f"""
import importlib, pkgutil, sys, warnings
warnings.simplefilter("ignore")
import counterpoise
for module in pkgutil.walk_packages(counterpoise.__path__, "counterpoise."):
    if not module.name.startswith({NEEDS_TORCH!r}):
        importlib.import_module(module.name)
        assert "torch" not in sys.modules, module.name
import numpy as np
rng = np.random.default_rng(0)
X, c = rng.normal(size=(200, 2)), np.arange(200) % 2
counterpoise.RobustLinearRegression().fit(X, X[:, 0] + rng.normal(size=200), contexts=c).predict(X)
print("torch" in sys.modules)
"""
    # walk_packages imports packages itself: torch's own is stopped at the door.
    code = code.replace("import counterpoise\n", "import counterpoise\nsys.modules['counterpoise.torch'] = None\n", 1)
    code = code.replace('"counterpoise."):', '"counterpoise.", onerror=lambda name: None):', 1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    assert done.stdout.strip() == "False"


def test_every_pair_of_settings_is_certified():
    # A sweep that meets what the single tests may not.
    for (model, radius), seed in itertools.product([("logistic", 0.05), ("poisson", 1.0)], range(3)):
        kind, X, y, contexts = problem(model, n_contexts=6, n_features=4, seed=10 + seed)
        found = kind(device="cpu", radius=radius).fit(X, y, contexts=contexts)
        assert found.certificate_.relative_gap <= 1e-6
