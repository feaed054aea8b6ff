"""The worst mix of scores by context and competitor, against brute force."""

import numpy as np
import pytest
from scipy import optimize

import counterpoise as cpo
from counterpoise.inference.worst_mix import WorstMix

SHARES = np.array([0.5, 0.3, 0.15, 0.05])
BALL = cpo.KLBall(SHARES, 0.2)
KNOWN = np.ones((4, 2), dtype=bool)
SETS = {"every mix": None, "simplex": cpo.KLBall(SHARES, np.inf), "ball": BALL, "point": cpo.KLBall(SHARES, 0.0)}


@pytest.mark.parametrize("mixes", SETS)
def test_value_is_that_of_the_best_competitor_in_the_worst_mix(mixes):
    scores = np.random.default_rng(1).standard_normal((20, 4, 2))
    worst = WorstMix(SETS[mixes], KNOWN)
    value, scenario = worst.solve(scores)
    largest = scores.max(axis=2)
    expected = largest.max(axis=1) if worst.everything else SETS[mixes].worst_case(largest).value
    np.testing.assert_allclose(value, expected)
    np.testing.assert_allclose(np.einsum("bck,bck->b", scenario, scores), value)
    np.testing.assert_allclose(scenario.sum(axis=(1, 2)), 1.0)


def test_contexts_that_are_not_judged_leave_the_mixes_of_the_others():
    known = KNOWN.copy()
    known[2] = False
    scores = np.random.default_rng(1).standard_normal((5, 4, 2))
    value = WorstMix(BALL, known).value(scores)
    drawn = np.random.default_rng(0).dirichlet(20 * SHARES, 200_000)
    inside = drawn[(SHARES * np.log2(SHARES / drawn)).sum(axis=1) <= 0.2]
    others = [0, 1, 3]
    conditional = inside[:, others] / inside[:, others].sum(axis=1, keepdims=True)
    brute = (conditional @ scores.max(axis=2)[:, others].T).max(axis=0)
    assert (value >= brute - 1e-9).all()
    np.testing.assert_allclose(value, brute, atol=0.05)


def test_a_competitor_without_scores_is_passed_over():
    known = KNOWN.copy()
    known[:, 0] = False
    scores = np.random.default_rng(1).standard_normal((3, 4, 2))
    np.testing.assert_allclose(WorstMix(BALL, known).value(scores), BALL.worst_case(scores[:, :, 1]).value)


@pytest.mark.parametrize("mixes", SETS)
def test_excesses_are_roots(mixes):
    worst = WorstMix(SETS[mixes], KNOWN)
    centre, scale = np.random.default_rng(1).standard_normal((4, 2)), np.random.default_rng(2).uniform(0.2, 1.0, (4, 2))
    errors = np.random.default_rng(1).standard_normal((30, 4, 2))
    found = worst.excesses(centre, errors, scale)
    goal = worst.value(centre[None])[0]
    for kappa, error in zip(found, errors, strict=True):
        root = optimize.brentq(lambda k, e=error: worst.value((centre + e - k * scale)[None])[0] - goal, -50, 50)
        assert kappa == pytest.approx(root, abs=2e-3 * (1 + abs(root)))


def test_scores_without_error_ask_for_nothing():
    worst = WorstMix(BALL, KNOWN)
    assert (worst.excesses(np.ones((4, 2)), np.zeros((3, 4, 2)), np.zeros((4, 2))) == 0.0).all()
