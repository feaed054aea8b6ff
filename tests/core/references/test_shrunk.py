"""Shrunken gains and the references made of them, against brute force on the equations and loops over rows."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from counterpoise.core.problem import LinearProblem
from counterpoise.core.references import ContextRows, CrossFit
from counterpoise.core.references import cross_fit as module
from counterpoise.core.references.left_out import LeftOut
from counterpoise.core.references.shrunk import between, reference_bracket, shrunk_references, shrunken
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Logistic, Pinball, Squared
from tests.problems import LOSSES, make, minimise, oracle_of

PROPERTY = settings(max_examples=100, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
SEEDS = st.integers(0, 2**32 - 1)

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


# --- empirical Bayes ----------------------------------------------------------------------------------------


def squares(variance, gains, errors):
    """Return the weighted squares of Paule and Mandel's equation, and the weighted mean."""
    weight = 1.0 / (errors**2 + variance)
    common = float(weight @ gains / weight.sum())
    return float(weight @ (gains - common) ** 2), common


def by_brute_force(gains, errors):
    """Return the variance between contexts by a root finder in the variance itself."""

    def equation(variance):
        return squares(variance, gains, errors)[0] - (len(gains) - 1)

    if equation(0.0) <= 0.0:
        return 0.0
    return brentq(equation, 0.0, 10.0 * np.ptp(gains) ** 2, xtol=1e-15, rtol=1e-13)


@PROPERTY
@given(SEEDS, st.integers(2, 30), st.sampled_from([0.0, 0.1, 1.0, 5.0]), st.sampled_from([0.0, 1.0, 3.0]))
def test_spread_between_contexts_solves_the_equation_of_paule_and_mandel(seed, n_contexts, spread, uneven):
    rng = np.random.default_rng(seed)
    errors = 10.0 ** rng.uniform(-uneven, 0.0, n_contexts)
    gains = 0.3 + spread * rng.normal(size=n_contexts) + errors * rng.normal(size=n_contexts)
    expected = by_brute_force(gains, errors)
    tau, common = between(gains, errors)
    assert tau**2 == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert common == pytest.approx(squares(expected, gains, errors)[1], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("first", "second"), [(1.0, 0.0), (0.2, 0.1)])
def test_two_contexts_have_a_closed_form(first, second):
    gains, errors = np.array([first, second]), np.array([0.3, 0.2])
    expected = max(0.0, 0.5 * (first - second) ** 2 - 0.5 * 0.13)
    assert between(gains, errors)[0] ** 2 == pytest.approx(expected)


def test_without_a_spread_all_gains_are_the_common_one():
    gains, errors = np.array([0.1, 0.2, 0.15, np.nan]), np.array([1.0, 2.0, 0.5, np.nan])
    weight = 1.0 / errors[:3] ** 2
    np.testing.assert_allclose(shrunken(gains, errors), np.full(4, weight @ gains[:3] / weight.sum()))


def test_with_a_spread_far_beyond_the_errors_gains_stay_as_they_are():
    gains, errors = np.array([1.0, 5.0, -3.0, 8.0]), np.array([1e-5, 2e-5, 1e-6, 3e-5])
    np.testing.assert_allclose(shrunken(gains, errors), gains, rtol=1e-9)


def test_gains_move_towards_the_common_one_by_the_share_of_noise():
    rng = np.random.default_rng(0)
    errors = rng.uniform(0.1, 2.0, 12)
    gains = rng.normal(size=12) + errors * rng.normal(size=12)
    variance = by_brute_force(gains, errors)
    common = squares(variance, gains, errors)[1]
    expected = common + variance / (variance + errors**2) * (gains - common)
    np.testing.assert_allclose(shrunken(gains, errors), expected, rtol=1e-7)


EXACT = {
    "all exact": ([1.0, 2.0, 4.0], [0.0, 0.0, 0.0], [1.0, 2.0, 4.0]),
    "all exact and the same": ([2.0, 2.0], [0.0, 0.0], [2.0, 2.0]),
    "one exact, and no spread": ([1.0, 1.1, 0.9], [0.0, 1.0, 1.0], [1.0, 1.0, 1.0]),
    "one": ([0.7], [0.2], [0.7]),
    "one exact": ([0.7], [0.0], [0.7]),
    "none that is known": ([np.nan, np.nan], [np.nan, np.nan], [0.0, 0.0]),
    "one that is known": ([np.nan, 0.4], [np.nan, 0.1], [0.4, 0.4]),
}


@pytest.mark.parametrize("case", EXACT)
def test_exact_gains_and_few_contexts(case):
    gains, errors, expected = (np.array(values) for values in EXACT[case])
    np.testing.assert_allclose(shrunken(gains, errors), expected, rtol=1e-6)


def test_two_exact_gains_among_noisy_ones_keep_their_difference():
    gains, errors = np.array([0.0, 1.0, 0.4, 0.6]), np.array([0.0, 0.0, 3.0, 3.0])
    np.testing.assert_allclose(shrunken(gains, errors)[:2], [0.0, 1.0])


@pytest.mark.parametrize(
    ("gains", "errors"),
    [
        ([-0.00038269, 0.0], [7.4e-24, 2.7e-24]),
        ([0.0, 5.6e-17, 0.0], [0.0, 0.0, 0.0]),
        ([-2.4e-07, -1.2e-07], [0.0, 0.0]),
        ([1e-310, 0.0], [0.0, 1e-320]),
        ([1e200, 0.0, -1e200], [0.0, 1e-200, 0.0]),
    ],
)
def test_errors_that_are_next_to_nothing_leave_gains_alone(gains, errors):
    np.testing.assert_allclose(shrunken(np.array(gains), np.array(errors)), gains, rtol=1e-6, atol=1e-300)


@pytest.mark.parametrize("size", [1e-150, 1e-3, 1e150])
def test_scale_of_the_gains_does_not_matter(size):
    rng = np.random.default_rng(4)
    gains, errors = rng.normal(size=8), rng.uniform(0.1, 1.0, 8)
    np.testing.assert_allclose(shrunken(size * gains, size * errors) / size, shrunken(gains, errors), rtol=1e-9)


def test_a_context_that_knows_nothing_decides_nothing():
    gains, errors = np.array([0.5, 0.1, -0.2, -1e200]), np.array([0.1, 0.1, 0.1, 1e200])
    # It counts as one more square that is met, so the spread is a little smaller than without it.
    found = shrunken(gains, errors)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:3], shrunken(gains[:3], errors[:3]), atol=0.02)


# --- references ---------------------------------------------------------------------------------------------


def cross_fit(loss, X, y, codes, weight=None, alpha=1e-2, tol=1e-9):
    oracle = oracle_of(loss, X, y, codes, alpha=alpha, sample_weight=weight)
    return CrossFit(oracle, np.bincount(codes, weight).astype(np.float64), tol)


def small_and_large(loss, seed=0):
    X, y, codes = make(loss, 6, 2, seed, (8, 30))
    # The last context is one row.
    keep = (codes < 5) | (np.cumsum(codes == 5) == 1)
    return X[keep], y[keep], codes[keep]


@every_loss
@pytest.mark.parametrize("weighted", [False, True])
def test_references_are_pooled_risks_less_shrunken_gains(loss, weighted):
    X, y, codes = small_and_large(loss)
    weight = np.random.default_rng(1).integers(1, 4, len(codes)).astype(np.float64) if weighted else np.ones(len(codes))
    found = cross_fit(loss, X, y, codes, weight)
    order = np.argsort(codes, kind="stable")
    codes, weight = codes[order], weight[order]
    pooled, gains, squared, freedom = np.zeros(6), np.full(6, np.nan), np.zeros(6), np.zeros(6)
    for c in range(6):
        own, share = codes == c, weight[codes == c] / weight[codes == c].sum()
        pooled[c] = share @ found.pooled_losses[own]
        if not np.isinf(found.own_losses[own]).any():
            held = share @ found.own_losses[own]
            gains[c] = pooled[c] - 0.5 * (held + share @ found.in_sample_losses[own])
            difference = found.pooled_losses[own] - found.own_losses[own]
            squared[c] = weight[own] @ (difference - share @ difference) ** 2
            freedom[c] = weight[own].sum() - 1.0
    variance = (squared + squared.sum() / freedom.sum()) / (freedom + 1.0)
    errors = np.sqrt(variance / np.bincount(codes, weight))
    known = np.isfinite(gains)
    assert known.tolist() == [True] * 5 + [False]
    tau = by_brute_force(gains[known], errors[known])
    common = squares(tau, gains[known], errors[known])[1]
    moved = np.where(known, common + tau / (tau + errors**2) * (gains - common), common)
    np.testing.assert_allclose(found.shrunk, pooled - np.maximum(moved, 0.0), rtol=1e-6)


def test_many_contexts_that_differ_far_beyond_noise_keep_the_cross_fitted_value():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(8), 400)
    X = rng.normal(size=(len(codes), 2))
    y = np.einsum("nd,nd->n", X, rng.normal(0.0, 5.0, (8, 2))[codes]) + 0.01 * rng.normal(size=len(codes))
    found = cross_fit(Squared(), X, y, codes, alpha=1e-6)
    # The smallest gain is shrunk most; what is left of it is seen relative to the gains.
    assert np.abs(found.shrunk - found.own_risks).max() < 0.03 * np.ptp(found.rows.means(found.pooled_losses))


def test_contexts_that_are_alike_are_measured_by_the_pooled_model():
    rng = np.random.default_rng(3)
    codes = np.repeat(np.arange(30), 20)
    X = rng.normal(size=(600, 5))
    y = X @ np.ones(5) + rng.normal(size=600)
    found = cross_fit(Squared(), X, y, codes, alpha=1e-8)
    truth = np.bincount(codes, 0.5 * (y - X @ np.ones(5)) ** 2) / 20
    # The noise of the rows is in both; what remains is how far the reference is from what the best model reaches there.
    shrunk, plain = (np.mean(np.abs(risks - truth)) for risks in (found.shrunk, found.references))
    assert shrunk < 0.5 * plain


def test_contexts_of_one_row_each_are_measured_by_the_pooled_model():
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(23, 2)), np.arange(23)
    found = cross_fit(Squared(), X, X @ [1.0, -1.0] + rng.normal(size=23), codes)
    np.testing.assert_array_equal(found.shrunk, found.pooled_losses)
    assert np.isfinite(found.bracket).all()


def test_contexts_with_one_class_have_references():
    X, y, codes = make(Logistic(), 4, 2, 3, (20, 30))
    y[codes == 3] = 1.0
    found = cross_fit(Logistic(), X, y, codes)
    assert np.isfinite(found.shrunk).all()
    assert (found.shrunk <= found.rows.means(found.pooled_losses)).all()


@every_loss
def test_bracket_holds_the_noise_of_either_end(loss):
    X, y, codes = small_and_large(loss, 2)
    found = cross_fit(loss, X, y, codes)
    codes = np.sort(codes, kind="stable")
    for c in range(5):
        own = codes == c

        def end(losses, sign, own=own):
            return losses[own].mean() + sign * norm.ppf(0.975) * np.std(losses[own], ddof=1) / np.sqrt(own.sum())

        low = end(found.in_sample_losses, -1.0)
        best = min((found.own_losses, found.pooled_losses), key=lambda losses, own=own: losses[own].mean())
        np.testing.assert_allclose(found.bracket[c], [low, end(best, 1.0)], rtol=1e-6, atol=1e-9)
    assert (found.bracket[:, 0] <= found.shrunk + 1e-9).all()


def test_bracket_is_open_below_where_a_context_has_no_model():
    rows = ContextRows(np.repeat([0, 1], 4), np.ones(8), 2)
    losses = np.arange(8.0)
    nothing = np.where(rows.codes == 1, np.inf, losses)
    bracket = reference_bracket(rows, nothing, nothing, losses)
    assert bracket[1, 0] == -np.inf
    assert np.isfinite(bracket[0]).all()
    assert np.isfinite(bracket[1, 1])
    shrunk = shrunk_references(rows, nothing, losses, rows.means(nothing))
    assert np.isfinite(shrunk).all()


# --- one pass, rows held out together -----------------------------------------------------------------------


def test_every_model_is_fitted_once_whatever_is_asked(monkeypatch):
    calls = []
    fit_specialists = module.fit_specialists

    def counted(*args, **more):
        calls.append(1)
        return fit_specialists(*args, **more)

    monkeypatch.setattr(module, "fit_specialists", counted)
    X, y, codes = make(Pinball(0.5), 3, 2, 0)
    problem = LinearProblem.from_data(X, y, codes, Pinball(0.5))
    problem.adjustments("standard-error", 1e-6)
    # Five pooled models; then the contexts' own without each fold side by side, and those of all rows.
    assert len(calls) == 5
    problem.references("cross-fit", 1e-6)
    assert len(calls) == 7
    problem.references("shrunk", 1e-6)
    problem.reference_bracket(1e-6)
    problem.adjustments("standard-error", 1e-6)
    assert len(calls) == 7


def test_every_smooth_model_is_fitted_once_whatever_is_asked(monkeypatch):
    calls, losses = [], LeftOut.losses
    monkeypatch.setattr(LeftOut, "losses", lambda *args: (calls.append(1), losses(*args))[1])
    X, y, codes = make(Squared(), 3, 2, 0, (200, 300))
    problem = LinearProblem.from_data(X, y, codes, Squared())
    problem.adjustments("standard-error", 1e-6)
    # Pooled models without each fold; then the contexts' own.
    assert len(calls) == 1
    problem.references("cross-fit", 1e-6)
    assert len(calls) == 2
    problem.references("shrunk", 1e-6)
    problem.reference_bracket(1e-6)
    problem.adjustments("standard-error", 1e-6)
    assert len(calls) == 2


def test_rows_held_out_together_are_summed_first():
    X, y, codes = make(Squared(), 3, 2, 1, (10, 20))
    order = np.argsort(codes, kind="stable")
    X, y, codes = X[order], y[order], codes[order]
    whole = cross_fit(Squared(), X, y, codes, np.full(len(y), 2.0))
    halves = oracle_of(Squared(), np.repeat(X, 2, axis=0), np.repeat(y, 2), np.repeat(codes, 2), alpha=1e-2)
    halves = replace(halves, rows=replace(halves.rows, together=np.repeat(np.arange(len(y)), 2)))
    found = CrossFit(halves, 2.0 * np.bincount(codes), 1e-9)
    np.testing.assert_allclose(found.rows.weight, whole.rows.weight)
    for name in ("own_losses", "pooled_losses", "in_sample_losses", "shrunk", "bracket", "standard_errors"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-6, atol=1e-9)


def test_a_context_that_is_held_out_as_one_has_no_standard_error_of_its_own():
    X, y, codes = make(Squared(), 2, 1, 1, (10, 12))
    order = np.argsort(codes, kind="stable")
    oracle = oracle_of(Squared(), X[order], y[order], codes[order], alpha=1e-2)
    counts = np.bincount(codes).astype(np.float64)
    together = np.where(codes[order] == 1, 10_000, np.arange(len(codes)))
    found = CrossFit(replace(oracle, rows=replace(oracle.rows, together=together)), counts, 1e-9)
    first = found.pooled_losses[: int(counts[0])]
    errors = np.std(first, ddof=1) / np.sqrt(counts)
    np.testing.assert_allclose(found.standard_errors, errors)
    # Without a model of its own it gets the common gain, here that of the other context.
    gain = found.rows.means(found.pooled_losses)[0] - found.own_risks[0]
    np.testing.assert_allclose(found.shrunk, found.rows.means(found.pooled_losses) - max(0.0, gain), rtol=1e-9)


def test_losses_of_rows_are_those_of_models_fitted_by_hand():
    X, y, codes = make(Logistic(), 2, 2, 6, (15, 25))
    order = np.argsort(codes, kind="stable")
    X, y, codes = X[order], y[order], codes[order]
    found = cross_fit(Logistic(), X, y, codes, alpha=0.05, tol=1e-10)
    for fold in range(5):
        held = found.folds == fold
        for c in range(2):
            rest, rows = ~held & (codes == c), held & (codes == c)
            theta = minimise(Logistic(), X[rest], y[rest], np.full(rest.sum(), 1.0 / rest.sum()), 0.05)[1]
            z = X[rows] @ theta[:2] + theta[2]
            losses = np.logaddexp(0.0, z) - y[rows] * z + 0.025 * float(theta[:2] @ theta[:2])
            np.testing.assert_allclose(found.own_losses[rows], losses, rtol=1e-4)


@pytest.mark.parametrize("reference", ["cross-fit", "shrunk"])
def test_one_row_cannot_be_held_out(reference):
    problem = LinearProblem.from_data(np.ones((1, 1)), np.ones(1), ["a"], Squared())
    with pytest.raises(InvalidInputError, match=f"reference='{reference}' holds rows out.*one row.*'in-sample'"):
        problem.references(reference, 1e-6)
    with pytest.raises(InvalidInputError, match=r"adjust='standard-error' holds rows out.*one row.*None"):
        problem.adjustments("standard-error", 1e-6)
