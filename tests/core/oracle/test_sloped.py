"""Slopes that turn gradually bound a minimum, wherever they are taken and however far they turn."""

import numpy as np
import pytest

from counterpoise.core.oracle.sloped import SlopedOracle
from counterpoise.losses import Pinball
from tests.problems import make, minimise, mixed_weights, oracle_of, random_distribution
from tests.referees import robust

QUANTILES = [0.1, 0.5, 0.8]


def posed(quantile, seed, alpha=0.0):
    loss = Pinball(quantile)
    X, y, codes = make(loss, 3, 2, seed, (60, 90))
    return oracle_of(loss, X, y, codes, alpha=alpha), X, y, codes


def bound(oracle, stretch, theta, p):
    point = SlopedOracle(oracle.rows, oracle.alpha, stretch=stretch).at(theta)
    return point.lower_bound(p, p @ point.jacobian, None)


@pytest.mark.parametrize("quantile", QUANTILES)
@pytest.mark.parametrize("stretch", [0.0, 1e-3, 0.05, 0.5, 1e3])
def test_no_bound_is_above_the_minimum_of_a_linear_program(quantile, stretch):
    oracle, X, y, codes = posed(quantile, 2)
    rng = np.random.default_rng(1)
    for _ in range(3):
        p = random_distribution(3, rng)
        least, theta = minimise(Pinball(quantile), X, y, mixed_weights(codes, p))
        for place in (theta, theta + 0.1 * rng.normal(size=3), rng.normal(size=3)):
            assert bound(oracle, stretch, place, p) <= least + 1e-9


@pytest.mark.parametrize("quantile", QUANTILES)
def test_a_short_stretch_at_the_minimum_costs_little(quantile):
    oracle, X, y, codes = posed(quantile, 3)
    p = np.array([0.2, 0.5, 0.3])
    least, theta = minimise(Pinball(quantile), X, y, mixed_weights(codes, p))
    long, short = (least - bound(oracle, stretch, theta, p) for stretch in (0.4, 0.2))
    assert 0.0 <= short < 0.01 * least
    assert short < 0.5 * long


@pytest.mark.parametrize("quantile", QUANTILES)
def test_a_ridge_is_part_of_the_minimum_as_a_conic_solver_has_it(quantile):
    oracle, X, y, codes = posed(quantile, 4, alpha=0.3)
    referee = robust.solve("pinball", X, y, codes, 0.0, "risk", 0.3, True, quantile=quantile)
    p, rng = np.bincount(codes) / len(codes), np.random.default_rng(0)
    found = [bound(oracle, 0.2, place, p) for place in (referee.theta, referee.theta + 0.05 * rng.normal(size=3))]
    assert max(found) <= referee.value + 1e-8
    assert max(found) > 0.98 * referee.value
