"""Online group DRO: its sampled steps, its answer, and where its full steps lead."""

import numpy as np
import pytest
from scipy import sparse

from counterpoise.core.fit import fit_linear
from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle.callables import CallableOracle
from counterpoise.core.solvers import GroupDRO, InteriorPoint
from counterpoise.core.solvers._base import Status
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Logistic, Multinomial, Newsvendor, Squared
from counterpoise.sets import KLBall
from tests.problems import make, oracle_of

LOSSES = [Logistic(), Multinomial(3), Squared(), Newsvendor(10.0)]


def minimax(oracle, p_hat=None):
    n = oracle.n_contexts
    ball = KLBall(np.full(n, 1.0 / n) if p_hat is None else p_hat, np.inf)
    return RobustObjective(oracle, ball, ReferenceRisks.exactly(np.zeros(n)))


def logistic(seed=2, alpha=0.05, n_contexts=3):
    X, y, codes = make(Logistic(), n_contexts, 3, seed=seed)
    return oracle_of(Logistic(), X, y, codes, alpha=alpha)


class Recorder:
    """A generator that picks the rows it is told to, and remembers their probabilities."""

    def __init__(self, pick):
        self.pick, self.p = pick, None

    def choice(self, rows, p):
        self.p = p
        return rows[self.pick]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("shape", ["dense", "sparse", "weighted", "without intercept"])
def test_the_mean_over_rows_is_the_risk_and_its_gradient(loss, shape):
    X, y, codes = make(loss, 3, 2, seed=4, rows=(6, 12))
    options = {"alpha": 0.3, "fit_intercept": shape != "without intercept"}
    if shape == "weighted":
        options["sample_weight"] = np.random.default_rng(0).uniform(0.2, 3.0, len(codes))
    oracle = oracle_of(loss, sparse.csr_array(X) if shape == "sparse" else X, y, codes, **options)
    theta = np.random.default_rng(1).normal(size=oracle.n_parameters)
    point = oracle.at(theta)
    for c in range(3):
        mean_value, mean_gradient = 0.0, np.zeros_like(theta)
        for k in range(oracle.rows.sizes[c]):
            rng = Recorder(k)
            value, gradient = oracle.random_row(c, theta, rng)
            mean_value += rng.p[k] * value
            mean_gradient += rng.p[k] * gradient
        assert mean_value == pytest.approx(point.risks[c], rel=1e-12)
        assert mean_gradient == pytest.approx(point.jacobian[c], rel=1e-10, abs=1e-12)


def test_drawn_rows_are_unbiased_to_monte_carlo_error():
    X, y, codes = make(Logistic(), 3, 2, seed=6)
    weight = np.random.default_rng(0).uniform(0.2, 3.0, len(codes))
    oracle = oracle_of(Logistic(), X, y, codes, alpha=0.1, sample_weight=weight)
    theta, rng = np.array([0.4, -0.8, 0.3]), np.random.default_rng(5)
    drawn = [oracle.random_row(1, theta, rng) for _ in range(8000)]
    rows = np.column_stack([[value for value, _ in drawn], [gradient for _, gradient in drawn]])
    expected = np.append(oracle.at(theta).risks[1], oracle.at(theta).jacobian[1])
    error = rows.std(axis=0) / np.sqrt(len(rows))
    assert np.all(np.abs(rows.mean(axis=0) - expected) < 4.0 * error)
    assert np.all(error > 0)


def test_a_row_is_drawn_from_its_own_context_alone():
    X, y, codes = make(Squared(), 3, 2, seed=7)
    oracle = oracle_of(Squared(), X, y, codes)
    theta, rng = np.zeros(3), np.random.default_rng(0)
    possible = {round(value, 9) for value in 0.5 * y[codes == 2] ** 2}
    assert {round(oracle.random_row(2, theta, rng)[0], 9) for _ in range(300)} <= possible


def test_the_same_seed_gives_the_same_iterates_and_another_seed_others():
    def solve(seed):
        solver = GroupDRO(tol=0.0, max_iter=400, rng=np.random.default_rng(seed))
        return solver.solve(minimax(logistic())).theta

    assert np.array_equal(solve(3), solve(3))
    assert not np.allclose(solve(3), solve(4), atol=1e-6)


def test_the_last_iterate_is_returned_not_the_best():
    problem = minimax(logistic())
    rng = np.random.default_rng(8)
    solver = GroupDRO(tol=0.0, max_iter=1500, rng=rng)
    state = solver.start(problem, problem.oracle.start())
    for _ in range(1500):
        state = solver.step(problem, state)
    solution = GroupDRO(tol=0.0, max_iter=1500, rng=np.random.default_rng(8)).solve(problem)
    assert np.array_equal(solution.theta, state.point.theta)
    assert solution.value == pytest.approx(problem.oracle.at(solution.theta).risks.max())
    assert solution.status is Status.FINISHED
    assert solution.n_iter == 1500


def test_a_last_iterate_worse_than_an_earlier_one_is_returned_all_the_same():
    problem = minimax(logistic())
    best = InteriorPoint(tol=1e-10).solve(problem)
    solver = GroupDRO(tol=0.0, max_iter=60, step_size=2.0, rng=np.random.default_rng(0))
    left = solver.solve(problem, theta=best.theta)
    assert left.value > best.value + 1e-3


def test_a_sampled_step_moves_the_drawn_context_only_and_then_theta_under_the_new_weight():
    problem = minimax(logistic())
    seed = 11
    solver = GroupDRO(step_size=0.3, p_step_size=0.7, rng=np.random.default_rng(seed))
    first = solver.start(problem, problem.oracle.start())
    second = solver.step(problem, first)
    replay = np.random.default_rng(seed)
    c = int(replay.integers(3))
    value, gradient = problem.oracle.random_row(c, first.point.theta, replay)
    p = np.full(3, 1.0 / 3.0)
    p[c] *= np.exp(0.7 * value)
    p /= p.sum()
    assert second.p == pytest.approx(p)
    assert second.point.theta == pytest.approx(first.point.theta - 0.3 * p[c] * gradient)


@pytest.mark.parametrize("seed", [2, 3])
def test_full_steps_converge_to_the_exact_minimax_risk(seed):
    problem = minimax(logistic(seed))
    exact = InteriorPoint(tol=1e-10).solve(problem).value
    solution = GroupDRO(tol=0.0, step_size=0.2, p_step_size=0.05, max_iter=15_000).solve(problem)
    assert solution.value >= exact - 1e-9
    assert solution.value == pytest.approx(exact, rel=1e-4)
    assert solution.certificate.lower <= exact + 1e-9


def test_the_average_of_sampled_iterates_comes_near_the_minimax_risk():
    problem = minimax(logistic())
    exact = InteriorPoint(tol=1e-10).solve(problem).value
    solver = GroupDRO(
        tol=0.0, step_size=0.1, p_step_size=0.01, max_iter=12_000, average=True, rng=np.random.default_rng(0)
    )
    solution = solver.solve(problem)
    assert exact - 1e-9 <= solution.value <= 1.05 * exact


def test_the_sampled_method_runs_through_the_public_fit():
    X, y, codes = make(Logistic(), 3, 3, seed=2)
    exact = fit_linear(X, y, codes, Logistic(), robustness="minimax-risk", alpha=0.05)
    solver = GroupDRO(tol=0.0, max_iter=4000, rng=np.random.default_rng(1))
    noisy = fit_linear(X, y, codes, Logistic(), robustness="minimax-risk", alpha=0.05, solver=solver)
    assert exact.solution.value < noisy.solution.value < 2.0 * exact.solution.value
    assert noisy.solution.certificate.lower <= exact.solution.value + 1e-6


def test_it_refuses_a_set_smaller_than_the_simplex():
    oracle = logistic()
    problem = RobustObjective(oracle, KLBall(np.full(3, 1 / 3), 0.5), ReferenceRisks.exactly(np.zeros(3)))
    with pytest.raises(InvalidInputError, match="whole simplex"):
        GroupDRO(rng=np.random.default_rng(0)).solve(problem)


def test_it_refuses_to_sample_where_there_are_no_rows():
    oracle = CallableOracle(lambda t: np.array([(t[0] - 1) ** 2, (t[0] - 3) ** 2]), np.zeros(1), 2, convex=True)
    with pytest.raises(InvalidInputError, match="rows"):
        GroupDRO(rng=np.random.default_rng(0)).solve(minimax(oracle))
