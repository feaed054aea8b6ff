"""Very many small contexts: solved together they are what they are alone, in any order, and all of them proven."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import counterpoise as cpo
from counterpoise import linalg
from counterpoise.core.oracle import bounds
from counterpoise.core.oracle.linear import EachContext
from counterpoise.core.references import reference_risks, specialists
from counterpoise.core.references.specialists import fit_specialists
from counterpoise.losses import Logistic, Multinomial, Newsvendor, Pinball, Squared
from tests.problems import LOSSES, SMOOTH, each_of, make, minimise, oracle_of

PROPERTY = settings(max_examples=2, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
MANY = 260
"""Contexts enough to be solved entry by entry instead of matrix by matrix."""

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
every_smooth_loss = pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
seeds = st.integers(0, 2**32 - 1)


def scale_of(oracle):
    """Return what the accuracy of references is relative to."""
    floor = np.where(np.isfinite(oracle.lowest_risks), oracle.lowest_risks, 0.0)
    return max(np.mean(np.abs(oracle.at(oracle.start()).risks - floor)), 1e-3 * oracle.typical_risk)


# --- together and alone -------------------------------------------------------------------------------------


@every_loss
@PROPERTY
@given(seeds, st.sampled_from([1e-4, 1e-1]), st.sampled_from([(1, 6), (4, 12)]))
def test_together_equals_one_by_one(loss, seed, alpha, rows):
    oracle = oracle_of(loss, *make(loss, MANY, 8, seed, rows), alpha=alpha)
    together = fit_specialists(oracle, 1e-10)
    room = 1e-9 * scale_of(oracle)
    for c in range(0, MANY, 30):
        single = fit_specialists(oracle.context(c), 1e-10)
        assert together.risks.upper[c] == pytest.approx(single.risks.upper[0], rel=1e-9, abs=room)
        assert together.risks.lower[c] <= single.risks.upper[0] + room
    np.testing.assert_allclose(
        each_of(oracle, np.arange(oracle.n_contexts), together.theta, padded=False).value,
        together.risks.upper,
        rtol=1e-9,
        atol=room,
    )


@every_smooth_loss
@pytest.mark.parametrize("rows", [(1, 6), (4, 12), (20, 40)])
def test_without_proofs_models_are_as_good(loss, rows):
    oracle = oracle_of(loss, *make(loss, 40, 8, 3, rows), alpha=1e-2)
    proven, foreseen = (fit_specialists(oracle, 1e-10, proven=proven) for proven in (True, False))
    room = 1e-9 * scale_of(oracle)
    np.testing.assert_allclose(foreseen.risks.upper, proven.risks.upper, rtol=1e-9, atol=room)
    assert (proven.risks.lower <= foreseen.risks.upper + room).all()


@every_loss
@PROPERTY
@given(seeds)
def test_order_of_contexts_does_not_matter(loss, seed):
    X, y, codes = make(loss, MANY, 6, seed, (1, 9))
    order = np.random.default_rng(seed).permutation(MANY)
    one = reference_risks(oracle_of(loss, X, y, codes, alpha=1e-3), 1e-10)
    other = reference_risks(oracle_of(loss, X, y, order[codes], alpha=1e-3), 1e-10)
    np.testing.assert_allclose(other.upper[order], one.upper, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(other.lower[order], one.lower, rtol=1e-8, atol=1e-8)


@every_loss
@pytest.mark.parametrize("rows", [(1, 1), (2, 5), (16, 19)], ids=str)
def test_every_tiny_context_is_proven(loss, rows):
    oracle = oracle_of(loss, *make(loss, 100, 20, 1, rows), alpha=1e-4)
    references = reference_risks(oracle, 1e-8)
    width = references.upper - references.lower
    assert (width >= 0).all()
    assert width.max() <= 1e-8 * scale_of(oracle) * (1.0 + 1e-9)


@pytest.mark.parametrize("alpha", [1e-6, 1e-3])
def test_tiny_separable_contexts_are_held_by_the_ridge(alpha):
    rng = np.random.default_rng(2)
    codes = np.repeat(np.arange(MANY), 5)
    X = rng.standard_normal((len(codes), 10))
    y = (X[:, 0] > 0).astype(np.float64)
    y[codes < 20] = 1.0
    oracle = oracle_of(Logistic(), X, y, codes, alpha=alpha)
    references = reference_risks(oracle, 1e-10)
    assert (references.upper - references.lower).max() <= 1e-10 * scale_of(oracle)
    # One class alone: the intercept meets it without a cost.
    assert references.upper[:20].max() <= 1e-9
    for c in range(20, MANY, 56):
        own = codes == c
        expected, _ = minimise(Logistic(), X[own], y[own], np.full(5, 0.2), alpha, True)
        assert references.upper[c] == pytest.approx(expected, rel=1e-7, abs=1e-9)
        assert references.lower[c] <= expected + 1e-9


def test_rows_that_repeat_do_not_matter():
    X, y, codes = make(Squared(), 40, 12, 3, (2, 4))
    once = reference_risks(oracle_of(Squared(), X, y, codes, alpha=1e-3), 1e-10)
    twice = reference_risks(
        oracle_of(Squared(), *(np.repeat(rows, 2, axis=0) for rows in (X, y, codes)), alpha=1e-3), 1e-10
    )
    np.testing.assert_allclose(twice.upper, once.upper, rtol=1e-9, atol=1e-12)


def test_contexts_that_all_fit_perfectly_are_solved_to_their_own_scale():
    X, y, codes = make(Squared(), 50, 12, 4, (2, 5))
    oracle = oracle_of(Squared(), X, y, codes, alpha=1e-6)
    references = reference_risks(oracle, 1e-8)
    assert references.upper.mean() < 1e-2 * scale_of(oracle)
    assert (references.upper - references.lower).max() <= 1e-8 * references.upper.mean()


# --- fewer rows than features -------------------------------------------------------------------------------


@every_loss
@PROPERTY
@given(seeds, st.booleans(), st.integers(1, 5))
def test_condensed_contexts_are_the_same_problems(loss, seed, intercept, n_rows):
    X, y, codes = make(loss, 6, 7, seed, (n_rows, n_rows))
    keep = np.concatenate([np.flatnonzero(codes == c)[:n_rows] for c in range(6)])
    oracle = oracle_of(loss, X[keep], y[keep], codes[keep], alpha=0.1, fit_intercept=intercept)
    batch = each_of(oracle, np.arange(6), oracle.start())
    part, basis = batch.part.condensed()
    theta = np.random.default_rng(seed).normal(size=(6, part.coefficients.n_parameters))
    small, whole = EachContext(part, 0.1, theta), batch.at(specialists.expanded(theta, part.coefficients, basis))
    assert small.theta.shape[1] < whole.theta.shape[1]
    np.testing.assert_allclose(whole.sums.predictions, small.sums.predictions, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(whole.value, small.value, rtol=1e-9)
    # The gradient lies among the rows as well, so no length of it is lost.
    np.testing.assert_allclose(
        np.linalg.norm(whole.gradient, axis=1), np.linalg.norm(small.gradient, axis=1), rtol=1e-8, atol=1e-9
    )
    assert (np.abs(part.layout.X).max(axis=(0, 1)) <= small.reach[: part.coefficients.n_features]).all()


def test_nothing_is_condensed_without_a_ridge_or_with_rows_enough(monkeypatch):
    held = oracle_of(Squared(), *make(Squared(), 3, 4, 0, (4, 9)), alpha=1.0)
    assert held.rows.padded(np.arange(3)).condensed() is None
    monkeypatch.setattr(specialists, "_condensed", None)
    free = oracle_of(Squared(), *make(Squared(), 20, 4, 0, (2, 3)))
    assert fit_specialists(free, 1e-8).theta.shape == (20, 5)


# --- batches and stacks -------------------------------------------------------------------------------------


@PROPERTY
@given(seeds)
def test_batches_hold_every_context_once_and_little_padding(seed):
    sizes = np.random.default_rng(seed).integers(1, 200, 500)
    codes = np.repeat(np.arange(500), sizes)
    oracle = oracle_of(Squared(), np.ones((len(codes), 2)), np.zeros(len(codes)), codes)
    blocks = list(oracle.rows.alike())
    np.testing.assert_array_equal(np.sort(np.concatenate(blocks)), np.arange(500))
    for block in blocks:
        assert sizes[block].max() <= 1.25 * sizes[block].min()


@PROPERTY
@given(seeds, st.sampled_from([1, 2, 11, 32]))
def test_stack_of_many_is_solved_like_a_few(seed, d):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(MANY, d, d + 2))
    roots[: MANY // 4, :, d // 2 :] = 0.0
    scale = 10.0 ** rng.uniform(-8.0, 8.0, (MANY, d))
    matrices = roots @ roots.transpose(0, 2, 1) * scale[:, :, None] * scale[:, None, :]
    matrices[7] = 0.0
    rhs = np.einsum("bij,bj->bi", matrices, rng.normal(size=(MANY, d)) / scale)
    many = linalg.solve_stack(matrices, rhs)
    few = np.concatenate([linalg.solve_stack(matrices[k : k + 50], rhs[k : k + 50]) for k in range(0, MANY, 50)])
    assert np.isfinite(many).all()
    assert (np.einsum("bd,bd->b", many, rhs) >= 0).all()
    # Those of full rank; the others have many solutions.
    full = slice(MANY // 4, None)
    np.testing.assert_allclose((many * scale)[full], (few * scale)[full], rtol=1e-6, atol=1e-6)
    size = np.einsum("bij,bj->bi", np.abs(matrices), np.abs(many)) + np.abs(rhs)
    assert (np.abs(np.einsum("bij,bj->bi", matrices, many) - rhs) <= 1e-5 * size).all()


@pytest.mark.parametrize("loss", [Squared(), Multinomial(3)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("rows", [(1, 4), (100, 120)], ids=str)
def test_risk_of_each_context_under_its_own_parameters(loss, rows):
    oracle = oracle_of(loss, *make(loss, 8, 3, 0, rows), alpha=0.1)
    theta = np.random.default_rng(0).normal(size=(8, oracle.n_parameters))
    risks = each_of(oracle, np.arange(8), theta, padded=False).value
    for c in range(8):
        assert risks[c] == pytest.approx(oracle.at(theta[c]).risks[c], rel=1e-12)


@every_smooth_loss
@PROPERTY
@given(seeds, st.sampled_from([1e-4, 1e-1, 10.0]))
def test_bound_left_out_would_have_said_nothing(loss, seed, alpha):
    oracle = oracle_of(loss, *make(loss, 5, 3, seed), alpha=alpha)
    for size in (0.0, 0.3, 3.0):
        theta = size * np.random.default_rng(seed).normal(size=(5, oracle.n_parameters))
        batch = each_of(oracle, np.arange(5), theta)
        if not bounds._ridge_may_help(batch, batch.gradient, batch.value - batch.lowest):
            assert (bounds._by_ridge(batch) <= batch.lowest + 1e-9 * np.abs(batch.value)).all()


# --- whole fits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [cpo.RobustLogisticRegression, cpo.RobustLinearRegression], ids=lambda m: m.__name__)
@pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")
def test_fit_with_a_thousand_contexts_is_certified(model):
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(1000), 6)
    X = rng.standard_normal((len(codes), 10))
    z = X @ rng.standard_normal(10) + rng.logistic(size=len(codes))
    y = (z > 0).astype(int) if model is cpo.RobustLogisticRegression else z
    fitted = model(alpha=1e-3, radius="agrawal").fit(X, y, contexts=codes)
    assert fitted.certificate_.relative_gap <= 1e-6


@pytest.mark.parametrize("loss", [Newsvendor(10.0), Pinball(0.5)], ids=lambda loss: loss.name)
def test_hinges_that_are_all_met_are_proven(loss):
    for seed in range(3):
        oracle = oracle_of(loss, *make(loss, 40, 8, seed, (2, 5)), alpha=1e-4)
        references = reference_risks(oracle, 1e-8)
        assert (references.upper - references.lower).max() <= 1e-8 * scale_of(oracle) * (1.0 + 1e-9)
