"""Multiples and worst mixes found together, against a nested search and against bisection."""

import numpy as np
import pytest
from scipy import optimize

import counterpoise as cpo
from counterpoise.inference.joint_roots import JointRoots
from counterpoise.inference.worst_mix import WorstMix


def _drawn(n_contexts, seed, n_draws=60):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(n_contexts, 2.0))
    centre = 0.3 * rng.standard_normal((n_contexts, 2))
    scale = rng.uniform(0.2, 1.0, (n_contexts, 2))
    return shares, centre, scale * rng.standard_t(4, (n_draws, n_contexts, 2)), scale, rng.standard_normal(n_draws)


def _root(worst, centre, error, scale, goal):
    return optimize.brentq(lambda k: worst.value((centre + error - k * scale)[None])[0] - goal, -100, 100)


@pytest.mark.parametrize("radius", [1e-3, 0.05, 0.7, 4.0, 9.0])
@pytest.mark.parametrize("n_contexts", [3, 17, 400])
@pytest.mark.parametrize("unjudged", [False, True])
def test_all_multiples_are_roots(n_contexts, radius, unjudged):
    shares, centre, errors, scale, shifts = _drawn(n_contexts, 1)
    known = np.ones((n_contexts, 2), dtype=bool)
    known[1, 0] = False
    known[2] = not unjudged
    worst = WorstMix(cpo.KLBall(shares, radius), known)
    joint = JointRoots.of(worst.mixes, worst.judged)
    goal = worst.value(centre[None])[0]
    at = np.flatnonzero(worst.judged)
    own = np.where(known, centre, -np.inf)[at]
    own_scale = np.broadcast_to(np.where(known, scale, 0.0)[at], (len(errors), len(at), 2))
    found = joint.solve(own, errors[:, at], own_scale, goal + 0.1 * shifts)[1]
    assert found.mean() > 0.9
    kappa = worst.excesses(centre, errors, scale, 0.1 * shifts)
    for k in range(0, 60, 13):
        root = _root(worst, centre, errors[k], scale, goal + 0.1 * shifts[k])
        assert kappa[k] == pytest.approx(root, abs=2e-3 * (1.0 + abs(root)))


def test_a_shift_of_the_goal_is_one_of_all_errors():
    shares, centre, errors, scale, shifts = _drawn(30, 2)
    for mixes in (cpo.KLBall(shares, 0.3), cpo.Chi2Ball(shares, 0.3), None):
        worst = WorstMix(mixes, np.ones((30, 2), dtype=bool))
        shifted = worst.excesses(centre, errors, scale, shifts)
        np.testing.assert_allclose(
            shifted, worst.excesses(centre, errors - shifts[:, None, None], scale), rtol=2e-3, atol=2e-3
        )


def test_a_scale_for_each_draw_is_that_of_the_draw():
    shares, centre, errors, scale, _ = _drawn(12, 3)
    scales = scale * np.random.default_rng(0).uniform(0.5, 2.0, (len(errors), 1, 1))
    worst = WorstMix(cpo.KLBall(shares, 0.3), np.ones((12, 2), dtype=bool))
    together = worst.excesses(centre, errors, scales)
    alone = [worst.excesses(centre, errors[k : k + 1], scales[k])[0] for k in range(len(errors))]
    np.testing.assert_allclose(together, alone, rtol=2e-3, atol=2e-3)


def test_scores_that_cannot_move_hold_the_worst_case_at_their_own():
    """Each context ties with a competitor that has no error: the worst case is there once all errors are taken off."""
    shares, _, errors, scale, _ = _drawn(40, 4)
    errors[:, :, 1], scale[:, 1] = 0.0, 0.0
    worst = WorstMix(cpo.KLBall(shares, 0.5), np.ones((40, 2), dtype=bool))
    kappa = worst.excesses(np.zeros((40, 2)), errors, scale)
    largest = (errors[:, :, 0] / scale[:, 0]).max(axis=1)
    assert np.median(np.abs(kappa - largest)) < 1e-3
    assert (kappa <= largest + 1e-9).all()


@pytest.mark.parametrize(
    "mixes", [cpo.KLBall([0.5, 0.5], 1e-9), cpo.KLBall([0.5, 0.5], 0.0), cpo.Chi2Ball([0.5, 0.5], 0.1)]
)
def test_extreme_radii_and_other_sets_are_left_to_the_nested_search(mixes):
    assert JointRoots.of(mixes, np.ones(2, dtype=bool)) is None
    worst = WorstMix(mixes, np.ones((2, 1), dtype=bool))
    errors, scale = np.array([[[0.4], [0.1]], [[-0.2], [0.3]]]), np.array([[1.0], [0.5]])
    goal = worst.value(np.zeros((1, 2, 1)))[0]
    expected = [_root(worst, np.zeros((2, 1)), error, scale, goal) for error in errors]
    np.testing.assert_allclose(worst.excesses(np.zeros((2, 1)), errors, scale), expected, atol=2e-3)
