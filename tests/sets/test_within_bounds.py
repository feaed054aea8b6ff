"""Worst cases and intervals of balls whose shares are bounded."""

import numpy as np
import pytest

from counterpoise import Chi2Ball, KLBall, ShareBounds, TotalVariationBall
from counterpoise.sets import share_intervals

BALLS = [KLBall, Chi2Ball, TotalVariationBall]


def bounded(ball, seed):
    """Return a ball with bounds around one of its members."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    p = rng.dirichlet(3.0 * np.ones(n))
    whole = ball(p, rng.choice([0.01, 0.05, 0.2]))
    inside = 0.5 * (p + whole.worst_case(rng.normal(size=n)).distribution)
    low = np.where(rng.random(n) < 0.5, inside * rng.uniform(0.6, 1.0, n), 0.0)
    high = np.where(rng.random(n) < 0.5, np.minimum(1.0, inside * rng.uniform(1.001, 1.4, n)), 1.0)
    return whole & ShareBounds(low, high), rng


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("seed", range(4))
def test_many_worst_cases_at_once_are_those_one_by_one(ball, seed):
    mixes, rng = bounded(ball, seed)
    scores = rng.normal(size=(20, len(mixes.p_hat)))
    scores[::5] = np.round(scores[::5])
    together = mixes.worst_case(scores)
    assert together.value == pytest.approx([mixes.worst_case(row).value for row in scores], abs=1e-12)
    assert all(mixes.contains(p) for p in together.distribution)


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("seed", range(4))
def test_intervals_end_at_worst_cases_of_one_share(ball, seed):
    mixes, _ = bounded(ball, seed)
    units = np.eye(len(mixes.p_hat))
    ends = [[worst(mixes, -unit) @ unit, worst(mixes, unit) @ unit] for unit in units]
    np.testing.assert_allclose(share_intervals(mixes), ends, atol=1e-9)
    np.testing.assert_allclose([mixes.interval(c) for c in range(len(units))], ends, atol=1e-9)


def worst(mixes, scores):
    return mixes.worst_case(scores).distribution


def test_intervals_of_a_ball_are_its_own():
    ball = KLBall([0.2, 0.2, 0.6], 0.1)
    np.testing.assert_array_equal(share_intervals(ball), [ball.interval(c) for c in range(3)])
