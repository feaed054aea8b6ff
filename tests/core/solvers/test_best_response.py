"""The game with a learner that answers exactly: its value is the certified optimum."""

import functools
import math

import numpy as np
import pytest

from counterpoise.core.fit import fit_problem
from counterpoise.core.objective import ReferenceRisks
from counterpoise.core.problem import LinearProblem
from counterpoise.core.solvers.best_response import best_response
from counterpoise.losses import Logistic, Multinomial, Poisson, Squared
from counterpoise.sets import KLBall
from tests.problems import make

LOSSES = [Logistic(), Squared(), Poisson(), Multinomial(3)]
RADII = [0.01, 0.1, 1.0, math.inf]

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
every_radius = pytest.mark.parametrize("radius", RADII)


@functools.cache
def posed(loss, n_contexts=4, seed=3):
    X, y, codes = make(loss, n_contexts, 2, seed, (40, 80))
    problem = LinearProblem.from_data(X, y, codes, loss, alpha=1e-3)
    return problem, problem.references("in-sample", 1e-8)


def exact_learner(problem):
    """Return the answer of a learner that minimises its weighted risk, and a list of the weights it was asked for."""
    asked, nothing = [], ReferenceRisks.exactly(np.zeros(problem.oracle.n_contexts))

    def answer(p):
        asked.append(p)
        return fit_problem(problem, KLBall(p, 0.0), nothing, tol=1e-10).solution.risks

    return answer, asked


def play(problem, references, radius, **options):
    ball = KLBall(problem.counts / problem.counts.sum(), radius)
    answer, asked = exact_learner(problem)
    game = best_response(answer, ball, references, ball.p_hat, **({"tol": 1e-3, "max_iter": 30} | options))
    return game, ball, asked


@functools.cache
def played(loss, radius, seed=3):
    problem, references = posed(loss, seed=seed)
    certified = fit_problem(problem, KLBall(problem.counts / problem.counts.sum(), radius), references, tol=1e-9)
    return *play(problem, references.upper, radius), certified.solution


@every_loss
@every_radius
def test_value_of_the_game_is_the_certified_optimum(loss, radius):
    game, ball, _, certified = played(loss, radius)
    slack = 1e-8 * certified.certificate.scale
    assert game.lower.max() <= certified.value + slack
    assert game.upper[game.best] >= certified.certificate.lower - slack
    # A round ends it within the tolerance of the worst-case risk.
    assert game.converged
    reached = 1e-3 * ball.worst_case(np.abs(game.risks)).value
    assert game.upper[game.best] - game.lower.max() <= reached + slack


@every_loss
@every_radius
def test_every_round_brackets_the_optimum_with_members_of_the_set(loss, radius):
    game, ball, asked, certified = played(loss, radius)
    slack = 1e-8 * certified.certificate.scale
    assert len(asked) == len(game.lower) == len(game.upper)
    for p, lower, upper in zip(asked, game.lower, game.upper, strict=True):
        assert ball.contains(p)
        assert lower <= certified.value + slack
        assert upper >= certified.value - slack


@every_loss
def test_the_first_round_is_the_empirical_distribution_and_no_context_is_lost(loss):
    for radius in RADII:
        _, ball, asked, _ = played(loss, radius)
        np.testing.assert_array_equal(asked[0], ball.p_hat)
        for p in asked:
            assert p.sum() == pytest.approx(1.0, abs=1e-12)
            assert (p >= 0.9e-3 * ball.p_hat).all()


@every_loss
def test_the_best_round_is_the_one_with_the_least_worst_case(loss):
    game, ball, asked, _ = played(loss, 0.1)
    assert game.best == game.upper.argmin()
    np.testing.assert_array_equal(game.p, asked[game.best])
    references = posed(loss)[1].upper
    assert ball.worst_case(game.risks - references).value == pytest.approx(game.upper[game.best], rel=1e-12)
    assert game.p @ (game.risks - references) == pytest.approx(game.lower[game.best], rel=1e-12)


def test_a_point_needs_one_round():
    problem, references = posed(Logistic())
    game, ball, asked = play(problem, references.upper, 0.0)
    assert len(asked) == 1
    assert game.converged
    np.testing.assert_array_equal(game.p, ball.p_hat)
    assert game.lower[0] == pytest.approx(game.upper[0])


def test_rounds_that_run_out_are_told():
    problem, references = posed(Squared())
    game, _, asked = play(problem, references.upper, 1.0, tol=0.0, max_iter=2)
    assert len(asked) == 2
    assert not game.converged


def test_the_callback_hears_of_every_round():
    problem, references = posed(Squared())
    heard = []
    game, _, _ = play(problem, references.upper, 0.5, callback=lambda *told: heard.append(told))
    assert heard == list(zip(range(len(game.lower)), game.lower, game.upper, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_more_contexts_and_wald(seed):
    problem, _ = posed(Logistic(), 12, seed)
    nothing = ReferenceRisks.exactly(np.zeros(12))
    game, ball, _ = play(problem, nothing.upper, 0.3)
    certified = fit_problem(problem, ball, nothing, tol=1e-9).solution
    assert game.lower.max() <= certified.value + 1e-8
    assert game.upper[game.best] <= certified.value + 2e-3 * ball.worst_case(game.risks).value


def test_a_learner_that_cannot_change_ends_the_game():
    ball = KLBall([0.5, 0.3, 0.2], 0.4)
    risks = np.array([0.1, 0.5, 0.9])
    game = best_response(lambda _: risks, ball, np.zeros(3), ball.p_hat, tol=1e-6, max_iter=100)
    assert game.converged
    assert game.upper[game.best] == pytest.approx(ball.worst_case(risks).value)
    # Its own weights are least favourable in the end: nothing is left between the players but the least share.
    assert len(game.lower) < 100


def test_the_least_share_of_an_easy_context_is_allowed_for_in_the_others():
    """It is taken from the others where they balance, not in proportion."""
    ball = KLBall([0.6, 0.2, 0.2], math.inf)
    bend = np.array([[1.0, -8.0, 4.0], [-8.0, 70.0, -30.0], [4.0, -30.0, 20.0]])
    balanced = np.array([0.6e-3, 0.4, 0.5994])

    def answer(p):
        return np.array([0.1, 0.2, 0.2]) - bend @ (p - balanced)

    game = best_response(answer, ball, np.zeros(3), ball.p_hat, tol=1e-3, max_iter=30)
    assert game.upper[-1] - game.lower[-1] <= 1e-3 * 0.2001
    np.testing.assert_allclose(game.p, balanced, atol=1e-5)


def test_rounding_is_no_progress():
    ball = KLBall([0.5, 0.3, 0.2], math.inf)
    gaps = iter(0.1 * (1.0 - 1e-12 * np.arange(100)))

    def answer(p):
        return np.array([next(gaps) / (1.0 - p[0]), 0.0, 0.0])

    game = best_response(answer, ball, np.zeros(3), ball.p_hat, tol=1e-6, max_iter=100)
    assert game.converged
    assert len(game.lower) < 10


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_learner_ends_the_game_without_a_failure(seed):
    rng = np.random.default_rng(seed)
    ball = KLBall(rng.dirichlet(np.ones(6)), 0.5)
    game = best_response(lambda _: rng.exponential(size=6), ball, np.zeros(6), ball.p_hat, tol=1e-6, max_iter=40)
    assert np.isfinite(game.upper).all()
    assert game.upper[game.best] == game.upper.min()
    assert ball.contains(game.p)


@every_loss
def test_a_sketch_that_is_exact_leaves_two_rounds(loss):
    problem, references = posed(loss)
    ball = KLBall(problem.counts / problem.counts.sum(), 1.0)
    (answer, asked), (sketch, drafted) = exact_learner(problem), exact_learner(problem)
    game = best_response(answer, ball, references.upper, ball.p_hat, tol=1e-3, max_iter=30, sketch=sketch)
    assert game.converged
    assert len(asked) == len(game.upper) == 2
    np.testing.assert_array_equal(asked[0], ball.p_hat)
    assert any(np.array_equal(asked[1], p) for p in drafted)


@every_loss
def test_a_sketch_that_is_wrong_changes_no_bound(loss):
    problem, references = posed(loss)
    certified = fit_problem(problem, KLBall(problem.counts / problem.counts.sum(), 1.0), references, tol=1e-9)
    answer, _ = exact_learner(problem)
    wrong = lambda p: answer(p)[::-1] + p  # noqa: E731
    game, ball, asked = play(problem, references.upper, 1.0, sketch=wrong)
    slack = 1e-8 * certified.solution.certificate.scale
    assert len(asked) == len(game.upper)
    assert (game.lower <= certified.solution.value + slack).all()
    assert game.converged
    assert game.upper.min() <= certified.solution.value + 2e-3 * ball.worst_case(np.abs(game.risks)).value


def test_noise_ends_a_game_at_a_share_of_it_or_of_the_first_gap():
    problem, references = posed(Logistic())
    whole, _, _ = play(problem, references.upper, math.inf, tol=1e-6)
    gaps = whole.upper - whole.lower
    for noise, enough in ((1e-9, 0.05 * gaps[0]), (0.8 * gaps[0], 0.2 * gaps[0]), (1.001 * gaps[0], gaps[0])):
        game, _, _ = play(problem, references.upper, math.inf, tol=1e-6, noise=noise)
        assert game.converged
        reached = game.upper - game.lower
        assert reached[-1] <= enough
        assert (reached[:-1] > enough).all()
        # Until then it is the same game.
        np.testing.assert_array_equal(game.upper, whole.upper[: len(game.upper)])
        assert len(game.upper) < len(whole.upper)


def test_a_sketch_is_not_asked_where_no_round_is_left_or_needed():
    problem, references = posed(Logistic())
    for options in ({"max_iter": 1}, {"noise": 1e3}):
        (answer, asked), (sketch, drafted) = exact_learner(problem), exact_learner(problem)
        ball = KLBall(problem.counts / problem.counts.sum(), 1.0)
        options = {"tol": 1e-3, "max_iter": 30, "sketch": sketch} | options
        best_response(answer, ball, references.upper, ball.p_hat, **options)
        assert len(asked) == 1
        assert not drafted


def test_what_a_sketch_gains_within_the_noise_is_not_confirmed():
    problem, references = posed(Logistic())
    ball = KLBall(problem.counts / problem.counts.sum(), 1.0)
    options = {"tol": 1e-6, "max_iter": 30}
    sketch, _ = exact_learner(problem)
    draft = best_response(sketch, ball, references.upper, ball.p_hat, **options)
    gain, gap = draft.upper[0] - draft.upper.min(), draft.upper[0] - draft.lower[0]
    assert 0.0 < 1.01 * gain < gap
    for noise, rounds in ((0.5 * gain, 2), (1.01 * gain, 1)):
        answer, asked = exact_learner(problem)
        game = best_response(answer, ball, references.upper, ball.p_hat, noise=noise, sketch=sketch, **options)
        assert game.converged
        assert len(asked) == len(game.upper) == rounds
