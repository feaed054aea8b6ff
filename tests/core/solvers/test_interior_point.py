"""The interior point on sets of every geometry: several inequalities at once, contexts left out, bounds on theta."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import optimize

from counterpoise.contexts import encode
from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.oracle.callables import CallableOracle
from counterpoise.core.references import reference_risks
from counterpoise.core.solvers import GoldenSection, InteriorPoint, ModelNewton, NewtonCG, TruncatedNewton
from counterpoise.losses import Logistic, Squared
from counterpoise.sets import Ball, Chi2Ball, Constraints, ContextSet, KLBall, WorstCase
from tests.problems import make


@dataclass(frozen=True, eq=False)
class Limited(ContextSet):
    """Members of a ball that give the last context no more than its limit: one curved inequality and one flat."""

    ball: Ball
    limit: float

    @property
    def p_hat(self):
        return self.ball.p_hat

    is_point = is_simplex = False

    @property
    def centre(self):
        return self.ball.centre

    def worst_case(self, scores):
        # Weak duality in the price of the limit, whose best value is attained where the worst case meets it.
        last = np.eye(len(scores))[-1]

        def priced(price):
            return self.ball.worst_case(scores - price * last)

        best, price = priced(0.0), 0.0
        if best.distribution[-1] > self.limit:
            above = 10.0 * float(np.ptp(scores)) + 1.0
            price = optimize.brentq(lambda t: priced(t).distribution[-1] - self.limit, 0.0, above, xtol=1e-15)
            best = priced(price)
        p = best.distribution
        return WorstCase(p, float(p @ scores), best.nu, np.array([best.multiplier, price]), self.p_hat)

    def contains(self, p):
        return self.ball.contains(p) and p[-1] <= self.limit + 1e-9

    def interval(self, context):
        raise NotImplementedError

    def constraints(self, p):
        ball, last = self.ball.constraints(p), np.eye(len(p))[-1]
        flat = np.vstack([ball.regular, last]), np.vstack([ball.curvature, 0 * last]), np.vstack([ball.poles, 0 * last])
        return Constraints(p, np.append(ball.values, p[-1] - self.limit), *flat)

    def project(self, p):
        p = self.ball.project(p)
        share = min(1.0, (self.limit - self.p_hat[-1]) / max(p[-1] - self.p_hat[-1], 1e-300))
        return share * p + (1.0 - share) * self.p_hat if p[-1] > self.limit else p


def posed(loss, mixes, n_contexts=4, seed=3):
    X, y, codes = make(loss, n_contexts, 3, seed=seed)
    oracle = LinearOracle.from_rows(X, y, encode(codes), loss, alpha=1e-2, fit_intercept=True)
    return RobustObjective(oracle, mixes(np.bincount(codes) / len(codes)), reference_risks(oracle, 1e-10))


@pytest.mark.parametrize("solver", [InteriorPoint, NewtonCG, TruncatedNewton, ModelNewton])
@pytest.mark.parametrize("ball", [KLBall, Chi2Ball])
@pytest.mark.parametrize("room", [0.01, 0.05, 0.5])
def test_an_intersection_of_two_inequalities_is_certified(solver, ball, room):
    objective = posed(Logistic(), lambda p_hat: Limited(ball(p_hat, 0.5), p_hat[-1] + room))
    solution = solver(tol=1e-7).solve(objective)
    assert solution.success
    assert objective.mixes.contains(solution.p_worst)
    # Between the ball, which it is a part of, and its centre.
    whole = InteriorPoint(tol=1e-9).solve(replace(objective, mixes=objective.mixes.ball))
    centre = InteriorPoint(tol=1e-9).solve(replace(objective, mixes=objective.mixes.centre))
    slack = 1e-7 * solution.certificate.scale
    assert centre.value - slack <= solution.value <= whole.value + slack
    if room == 0.5:
        assert solution.value == pytest.approx(whole.value, abs=slack)


@pytest.mark.parametrize("solver", [InteriorPoint, NewtonCG, TruncatedNewton, ModelNewton])
@pytest.mark.parametrize("radius", [1e-3, 0.1, 1.0, 50.0])
@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=lambda loss: loss.name)
def test_a_context_that_no_member_holds_might_as_well_not_be_there(loss, radius, solver):
    X, y, codes = make(loss, 5, 3, seed=15)
    shares = np.bincount(codes) * (np.arange(5) != 2)
    values = []
    for kept in (codes >= 0, codes != 2):
        oracle = LinearOracle.from_rows(X[kept], y[kept], encode(codes[kept]), loss, alpha=1e-2, fit_intercept=True)
        p_hat = (shares / shares.sum())[np.unique(codes[kept])]
        # However bad it would be.
        references = reference_risks(oracle, 1e-10).less(np.where(p_hat > 0.0, 0.0, 50.0))
        objective = RobustObjective(oracle, Chi2Ball(p_hat, radius), references)
        solution = solver(tol=1e-7).solve(objective)
        assert solution.success
        values.append(solution.value)
    assert values[0] == pytest.approx(values[1], abs=1e-7 * solution.certificate.scale)


@pytest.mark.parametrize("ball", [KLBall, Chi2Ball])
@pytest.mark.parametrize("radius", [1e-12, 1e-9, 1e-6])
def test_the_tiniest_ball_is_nearly_its_centre(ball, radius):
    objective = posed(Squared(), lambda p_hat: ball(p_hat, radius))
    solution = InteriorPoint(tol=1e-8).solve(objective)
    erm = InteriorPoint(tol=1e-9).solve(replace(objective, mixes=objective.mixes.centre))
    assert solution.success
    assert -1e-8 <= (solution.value - erm.value) / solution.certificate.scale <= 10.0 * np.sqrt(radius)


@pytest.mark.parametrize("radius", [0.05, 0.5, 10.0, np.inf])
@pytest.mark.parametrize("ball", [KLBall, Chi2Ball])
def test_a_bound_on_theta_that_binds_is_priced(ball, radius):
    def risks(theta):
        return np.array([(theta[0] - 1.0) ** 2, (theta[0] + 2.0) ** 2])

    bounds = (np.array([0.5]), np.array([3.0]))
    oracle = CallableOracle(risks, np.array([1.0]), 2, bounds=bounds, convex=True)
    objective = RobustObjective(oracle, ball(np.array([0.4, 0.6]), radius), ReferenceRisks.exactly(np.zeros(2)))
    solution, search = (solver(tol=1e-7).solve(objective) for solver in (InteriorPoint, GoldenSection))
    assert solution.success
    assert solution.theta[0] == pytest.approx(0.5, abs=1e-5)
    assert solution.value == pytest.approx(search.value, rel=1e-6)


def test_a_larger_set_is_never_better():
    values = [
        InteriorPoint(tol=1e-9).solve(posed(Logistic(), lambda p_hat, r=radius: Chi2Ball(p_hat, r))).value
        for radius in (0.0, 1e-4, 1e-2, 0.3, 3.0, np.inf)
    ]
    assert values == sorted(values)
