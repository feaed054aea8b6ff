"""How the least favourable distribution moves with the scores, and the confidence that a radius stands for."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import KLBall, confidence_radius, implied_confidence

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True)
METHODS = ["types", "agrawal", "calibrated", "chi2", "anytime"]


@st.composite
def smooth_problems(draw):
    """No context is rare and no two scores nearly agree, so that differences of a finite size tell a derivative."""
    size = draw(st.integers(2, 8))
    counts = np.array(draw(st.lists(st.integers(5, 50), min_size=size, max_size=size)), dtype=float)
    ranks = np.array(draw(st.permutations(range(size))), dtype=float)
    jitter = np.array(draw(st.lists(st.floats(-0.3, 0.3), min_size=size, max_size=size)))
    scale = 10.0 ** draw(st.integers(-3, 3))
    return KLBall(counts / counts.sum(), draw(st.floats(1e-3, 3.0))), scale * (ranks + jitter)


def sensitivity(ball, scores):
    found = ball.sensitivity(ball.worst_case(scores), scores)
    return None if found is None else np.asarray(found)


def central_differences(function, scores, size):
    """Return the Jacobian of a function of the scores."""
    steps = size * np.eye(len(scores))
    return np.stack([(function(scores + step) - function(scores - step)) / (2 * size) for step in steps], axis=-1)


# --- sensitivity --------------------------------------------------------------------------------------------


@PROPERTY
@given(smooth_problems())
def test_sensitivity_is_the_derivative_of_the_least_favourable_distribution(problem):
    ball, scores = problem
    spread = np.ptp(scores)
    moves = central_differences(lambda s: ball.worst_case(s).distribution, scores, 1e-5 * spread)
    np.testing.assert_allclose(sensitivity(ball, scores) * spread, moves * spread, rtol=1e-4, atol=1e-5)


@PROPERTY
@given(smooth_problems())
def test_sensitivity_is_the_hessian_of_the_worst_case_value(problem):
    ball, scores = problem
    size, spread = 1e-3 * np.ptp(scores), np.ptp(scores)
    matrix = sensitivity(ball, scores)
    rng = np.random.default_rng(len(scores))
    for _ in range(3):
        v = rng.normal(size=len(scores))
        low, middle, high = (ball.worst_case(scores + t * size * v).value for t in (-1, 0, 1))
        expected = (low - 2 * middle + high) / size**2
        assert v @ matrix @ v * spread == pytest.approx(expected * spread, rel=1e-2, abs=1e-3)


@PROPERTY
@given(smooth_problems())
def test_sensitivity_is_symmetric_and_positive_and_blind_to_a_common_shift(problem):
    ball, scores = problem
    matrix, worst = sensitivity(ball, scores), ball.worst_case(scores)
    # What its entries are differences of; with two contexts nothing remains of them.
    size = float((worst.distribution / (worst.nu - scores)).max())
    np.testing.assert_array_equal(matrix, matrix.T)
    assert np.linalg.eigvalsh(matrix).min() >= -1e-10 * size
    np.testing.assert_allclose(matrix.sum(axis=1), 0.0, atol=1e-9 * size)
    # Scaling the scores leaves the distribution: the value is homogeneous.
    np.testing.assert_allclose(matrix @ scores, 0.0, atol=1e-8 * size * np.abs(scores).max())


@pytest.mark.parametrize("radius", [1e-8, 1e-6, 1e-4])
def test_sensitivity_of_a_small_ball_is_that_of_a_mean_plus_its_deviation(radius):
    # To first order the value is mean + sqrt(2 eps Var), whose Hessian is known.
    p, scores = np.array([0.5, 0.3, 0.2]), np.array([0.0, 1.0, 3.0])
    centred = scores - p @ scores
    deviation = math.sqrt(p @ centred**2)
    gradient = p * centred / deviation
    hessian = (np.diag(p) - np.outer(p, p) - np.outer(gradient, gradient)) / deviation
    root = math.sqrt(2.0 * radius * math.log(2.0))
    np.testing.assert_allclose(sensitivity(KLBall(p, radius), scores), root * hessian, atol=10 * root**2, rtol=0.0)


@pytest.mark.parametrize("ball", [KLBall([0.5, 0.3, 0.2], 0.0), KLBall([1.0], 0.5), KLBall([1.0], math.inf)])
def test_a_set_of_one_member_does_not_move(ball):
    size = ball.p_hat.size
    np.testing.assert_array_equal(sensitivity(ball, np.arange(1.0, size + 1.0)), np.zeros((size, size)))


@pytest.mark.parametrize(
    ("ball", "scores"),
    [
        (KLBall([0.5, 0.3, 0.2], math.inf), [0.0, 1.0, 2.0]),
        (KLBall([0.5, 0.3, 0.2], 0.1), [1.0, 1.0, 1.0]),
        (KLBall([0.5, 0.3, 0.2], 0.1), [0.0, 0.0, 0.0]),
        (KLBall([0.5, 0.5, 0.0], 0.1), [0.0, 1.0, 5.0]),
    ],
    ids=["simplex", "scores agree", "scores are zero", "unseen context"],
)
def test_no_sensitivity_where_there_is_none(ball, scores):
    assert sensitivity(ball, np.array(scores)) is None


@pytest.mark.parametrize("radius", [1e-12, 1e-3, 1.0, 30.0, 300.0])
@pytest.mark.parametrize("scores", [[0.0, 1e-300, 1.0], [1.0, 1.0 + 1e-12, 1.0], [0.0, 0.0, 1e-290], [1e200, 0.0, 1.0]])
def test_sensitivity_is_finite_or_none(radius, scores):
    matrix = sensitivity(KLBall([0.5, 0.3, 0.2], radius), np.array(scores))
    assert matrix is None or np.isfinite(matrix).all()


# --- implied confidence -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("counts", [[600, 400], [3000, 100, 900, 12, 500], [200] * 60], ids=["2", "5", "60"])
@pytest.mark.parametrize("confidence", [0.0, 1e-6, 0.3, 0.5, 0.9, 0.99, 1 - 1e-9, 1.0])
def test_implied_confidence_inverts_the_radius(method, counts, confidence):
    radius = confidence_radius(counts, confidence, method)
    # Around the radius of confidence 0, Agrawal's equation is flat: a radius knows the confidence to its root.
    accuracy = 1e-7 if method == "agrawal" else 1e-10
    implied = implied_confidence(radius, counts, method)
    if method == "calibrated" and confidence < 0.3:
        # Low levels share a radius, which affords the largest of them.
        assert implied >= confidence
        assert confidence_radius(counts, implied, method) == pytest.approx(radius, rel=1e-9)
    else:
        assert implied == pytest.approx(confidence, abs=accuracy)


@PROPERTY
@given(st.sampled_from(METHODS), st.floats(0.0, 1.0), st.integers(2, 30), st.integers(1000, 100_000))
def test_implied_confidence_is_a_level_and_the_largest_that_fits(method, bits, n_contexts, n):
    counts = np.full(n_contexts, n)
    level = implied_confidence(bits, counts, method)
    assert 0.0 <= level <= 1.0
    if 0.0 < level < 1.0:
        assert confidence_radius(counts, level, method) <= bits * (1 + 1e-6)
        assert confidence_radius(counts, level + 0.01 * (1.0 - level), method) >= bits * (1 - 1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_implied_confidence_at_the_ends(method):
    assert implied_confidence(math.inf, [50, 50], method) == 1.0
    assert implied_confidence(0.0, [50, 50], method) == 0.0


@pytest.mark.parametrize("method", METHODS)
def test_implied_confidence_counts_draws_like_the_radius_does(method):
    counts, draws = [4000, 3000, 3000], 250
    radius = confidence_radius(counts, 0.9, method, draws=draws)
    assert implied_confidence(radius, counts, method, draws=draws) == pytest.approx(0.9, abs=1e-9)
    assert implied_confidence(radius, counts, method) > 0.9


@pytest.mark.parametrize("method", ["agrawal", "calibrated", "chi2"])
@pytest.mark.parametrize("radius", [0.0, 0.1])
def test_one_context_is_known_for_certain(method, radius):
    # Its radius is 0 at every confidence below 1, so any radius affords every confidence.
    assert confidence_radius([10], 0.999, method) == 0.0
    assert implied_confidence(radius, [10], method) == 1.0


def test_implied_confidence_names_an_unknown_method():
    with pytest.raises(InvalidInputError, match="'types', 'agrawal', 'calibrated', 'chi2' or 'anytime'"):
        implied_confidence(0.1, [5, 5], "bernstein")
