"""Two contexts whose regrets are equal at the optimum: the kink where gradient methods fail."""

import numpy as np
import pytest

from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle.callables import CallableOracle
from counterpoise.core.solvers import GradientDescent, InteriorPoint, Newton, TwoTimeScale
from counterpoise.sets import KLBall

CENTRES = np.array([[0.0, 0.0], [4.0, 2.0]])
CURVATURES = np.array([np.diag([1.0, 3.0]), np.diag([2.0, 0.5])])


def quadratics(theta):
    away = theta - CENTRES
    return 0.5 * np.einsum("ci,cij,cj->c", away, CURVATURES, away)


@pytest.fixture
def problem():
    oracle = CallableOracle(
        quadratics,
        np.zeros(2),
        2,
        lambda theta: np.einsum("cij,cj->ci", CURVATURES, theta - CENTRES),
        lambda theta: CURVATURES,
    )
    return RobustObjective(oracle, KLBall([0.7, 0.3], 1.0), ReferenceRisks.exactly(np.zeros(2)))


def test_the_optimum_is_on_the_kink_and_is_certified(problem):
    solution = InteriorPoint(tol=1e-9).solve(problem)
    assert solution.success
    assert solution.scores[0] == pytest.approx(solution.scores[1], rel=1e-8)
    # On the kink the saddle point's distribution is strictly inside the set: it balances the gradients.
    assert problem.mixes.divergence(solution.p_worst) < 0.9
    gradient = solution.p_worst @ problem.oracle.at(solution.theta).jacobian
    assert np.abs(gradient).max() < 1e-6


def test_fixed_steps_never_certify_the_kink_while_the_solver_does(problem):
    erm = Newton(tol=1e-12).solve(RobustObjective(problem.oracle, KLBall([0.7, 0.3], 0.0), problem.references)).theta
    exact = InteriorPoint(tol=1e-9).solve(problem)
    for step_size in (0.1, 0.01):
        plain = GradientDescent(step_size=step_size, max_iter=4_000).solve(problem, erm)
        assert not plain.success
        assert plain.certificate.relative_gap > 1e-3
        assert plain.certificate.upper > exact.certificate.upper


def test_a_smaller_step_only_shrinks_the_oscillation(problem):
    exact = InteriorPoint(tol=1e-10).solve(problem).value
    excess = [
        GradientDescent(step_size=step, max_iter=int(50 / step)).solve(problem, np.zeros(2)).value - exact
        for step in (0.1, 0.01)
    ]
    assert excess[0] > excess[1] > 1e-7


def test_two_time_scales_settle_on_the_kink(problem):
    solution = TwoTimeScale(step_size=0.01, p_step_size=0.02, tol=1e-5, max_iter=20_000).solve(problem, np.zeros(2))
    exact = InteriorPoint(tol=1e-9).solve(problem)
    assert solution.value == pytest.approx(exact.value, rel=1e-4)


@pytest.mark.parametrize("radius", [0.05, 0.5, 1.0, 8.0, 30.0, np.inf])
def test_the_certificate_brackets_a_fine_grid(problem, radius):
    ball = KLBall([0.7, 0.3], radius)
    solution = InteriorPoint(tol=1e-9).solve(RobustObjective(problem.oracle, ball, problem.references))
    axis = np.linspace(-0.002, 0.002, 41)
    around = solution.theta + np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    values = ball.worst_case(np.array([quadratics(theta) for theta in around])).value
    assert solution.success
    assert values.min() >= solution.certificate.lower - 1e-12
    assert values.min() >= solution.certificate.upper - 1e-6
