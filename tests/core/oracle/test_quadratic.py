"""Parabolas: what they claim is what their formula says, and their bound is their minimum."""

import numpy as np
import pytest

from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle.quadratic import QuadraticOracle
from counterpoise.core.solvers import InteriorPoint, Newton
from counterpoise.sets import KLBall
from tests.problems import random_distribution

SHARED = pytest.mark.parametrize("shared", [False, True], ids=["a Hessian each", "one Hessian"])


def parabolas(seed, n_contexts=4, size=3, shared=False):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(1 if shared else n_contexts, size, size))
    return QuadraticOracle(
        centre=rng.normal(size=size),
        values=rng.normal(size=n_contexts),
        gradients=rng.normal(size=(n_contexts, size)),
        hessians=roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(size),
        typical_risk=1.0,
    )


def written_out(oracle, theta):
    """Return each risk by its formula, context by context."""
    u = theta - oracle.centre
    hessians = np.broadcast_to(oracle.hessians, (oracle.n_contexts, len(u), len(u)))
    return np.array(
        [r + g @ u + 0.5 * u @ h @ u for r, g, h in zip(oracle.values, oracle.gradients, hessians, strict=True)]
    )


def differences(function, theta, size=1e-4):
    steps = size * np.eye(len(theta))
    return np.stack([(function(theta + step) - function(theta - step)) / (2 * size) for step in steps], axis=-1)


@SHARED
@pytest.mark.parametrize("seed", range(3))
def test_values_and_derivatives_are_those_of_the_formula(seed, shared):
    oracle = parabolas(seed, shared=shared)
    rng = np.random.default_rng(seed)
    theta, p = rng.normal(size=3), random_distribution(4, rng)
    point = oracle.at(theta)
    np.testing.assert_allclose(point.risks, written_out(oracle, theta), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(point.jacobian, differences(lambda t: written_out(oracle, t), theta), atol=1e-8)
    np.testing.assert_allclose(point.hessian(p), differences(lambda t: p @ oracle.at(t).jacobian, theta), atol=1e-8)


@SHARED
def test_the_hessian_in_all_its_forms(shared):
    oracle, rng = parabolas(5, shared=shared), np.random.default_rng(5)
    # Any weights, not only those that sum to one.
    p, v = 3.0 * random_distribution(4, rng), rng.normal(size=3)
    point = oracle.at(rng.normal(size=3))
    hessian = point.hessian(p)
    np.testing.assert_allclose(point.majorant(p), hessian)
    np.testing.assert_allclose(point.hessian_product(p)(v), hessian @ v)
    np.testing.assert_allclose(point.hessian_diagonal(p), np.diag(hessian))


@SHARED
@pytest.mark.parametrize("given", [False, True], ids=["curvature found", "curvature given"])
def test_bound_is_the_minimum_from_any_point(shared, given):
    oracle = parabolas(7, shared=shared)
    rng = np.random.default_rng(7)
    p = random_distribution(4, rng)
    at_centre = oracle.at(oracle.centre)
    lowest = oracle.at(oracle.centre - np.linalg.solve(at_centre.hessian(p), p @ at_centre.jacobian))
    least = float(p @ lowest.risks)
    for theta in rng.normal(scale=10.0, size=(5, 3)):
        point = oracle.at(theta)
        curvature = point.hessian(p) if given else None
        assert point.lower_bound(p, p @ point.jacobian, curvature) == pytest.approx(least, rel=1e-9, abs=1e-9)
        assert p @ point.risks >= least


def test_less_curvature_gives_a_lower_bound():
    oracle = parabolas(8)
    p = np.full(4, 0.25)
    point = oracle.at(np.ones(3))
    full = point.lower_bound(p, p @ point.jacobian, None)
    assert point.lower_bound(p, p @ point.jacobian, 0.5 * point.hessian(p)) < full


def test_it_starts_at_the_common_point_where_values_and_gradients_are_those_given():
    oracle = parabolas(9)
    point = oracle.at(oracle.start())
    np.testing.assert_array_equal(point.risks, oracle.values)
    np.testing.assert_array_equal(point.jacobian, oracle.gradients)
    assert (oracle.n_contexts, oracle.n_parameters) == oracle.gradients.shape
    assert oracle.lowest_risks.tolist() == [-np.inf] * 4


@SHARED
@pytest.mark.parametrize("radius", [0.0, 0.05, 1.0, np.inf])
def test_the_robust_problem_of_parabolas_is_certified_at_its_saddle_point(radius, shared):
    oracle = parabolas(11, shared=shared)
    ball = KLBall(np.array([0.4, 0.3, 0.2, 0.1]), radius)
    solver = Newton(tol=1e-8) if radius == 0.0 else InteriorPoint(tol=1e-8, warm=True)
    objective = RobustObjective(oracle, ball, ReferenceRisks.exactly(np.zeros(4)))
    solution = solver.solve(objective)
    assert solution.success
    assert solution.certificate.scope == "global"
    rng = np.random.default_rng(11)
    for theta in solution.theta + rng.normal(scale=0.3, size=(200, 3)):
        assert ball.worst_case(written_out(oracle, theta)).value >= solution.certificate.lower
    assert ball.worst_case(written_out(oracle, solution.theta)).value == pytest.approx(solution.value, abs=1e-9)
