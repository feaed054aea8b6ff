"""The chi-square ball against a conic solver, its closed form, and what is known of it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import Chi2Ball, KLBall
from tests.referees import chi2

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def problems(draw, largest=20.0):
    """Return a ball and scores of which some may tie."""
    n = draw(st.integers(2, 8))
    shares = np.array(draw(st.lists(st.floats(0.01, 1.0), min_size=n, max_size=n)))
    scores = np.array(draw(st.lists(st.floats(-10.0, 10.0), min_size=n, max_size=n))).round(1)
    return Chi2Ball(shares / shares.sum(), draw(st.floats(1e-6, largest))), scores


def draws():
    """Return balls of many shapes with scores: uneven shares, unseen contexts, ties, an offset, all sizes."""
    rng = np.random.default_rng(7)
    for _ in range(60):
        n = int(rng.integers(2, 40))
        p_hat = rng.random(n) ** rng.choice([1.0, 4.0])
        if n > 3 and rng.random() < 0.3:
            p_hat[rng.integers(n)] = 0.0
        scores = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4) + rng.choice([0.0, 100.0])
        scores = scores.round() if rng.random() < 0.3 and np.ptp(scores.round()) > 0 else scores
        yield p_hat / p_hat.sum(), float(10.0 ** rng.uniform(-3.0, 1.5)), scores


@pytest.mark.parametrize(("p_hat", "radius", "scores"), list(draws()))
def test_the_worst_case_agrees_with_a_conic_solver(p_hat, radius, scores):
    ball = Chi2Ball(p_hat, radius)
    worst = ball.worst_case(scores)
    value, _ = chi2.worst_case(p_hat, radius, scores)
    assert worst.value == pytest.approx(value, abs=1e-9 * np.ptp(scores))
    assert ball.contains(worst.distribution)


@PROPERTY
@given(problems(largest=0.01))
def test_a_small_ball_adds_standard_deviations_to_the_mean(problem):
    ball, scores = problem
    mean = ball.p_hat @ scores
    deviation = math.sqrt(ball.p_hat @ (scores - mean) ** 2)
    worst = ball.worst_case(scores)
    bound = mean + math.sqrt(ball.radius) * deviation
    assert worst.value <= bound + 1e-12
    if worst.distribution.all():
        assert worst.value == pytest.approx(bound, abs=1e-12)


@PROPERTY
@given(problems())
def test_a_batch_is_its_rows(problem):
    ball, scores = problem
    rows = np.array([scores, -scores, np.roll(scores, 1)])
    batch = ball.worst_case(rows)
    for k, row in enumerate(rows):
        alone = ball.worst_case(row)
        np.testing.assert_allclose(batch.distribution[k], alone.distribution, atol=1e-12)
        assert batch.value[k] == pytest.approx(alone.value, abs=1e-12)
        assert batch.nu[k] == pytest.approx(alone.nu, rel=1e-9, abs=1e-9)
        assert batch.multiplier[k] == pytest.approx(alone.multiplier, rel=1e-9, abs=1e-9)


@PROPERTY
@given(problems(), st.integers(-200, 200), st.sampled_from([0.0, 1e3]))
def test_size_and_offset_of_the_scores_do_not_matter(problem, exponent, offset):
    ball, scores = problem
    scaled = np.ldexp(scores + offset, exponent)
    np.testing.assert_allclose(
        ball.worst_case(scaled).distribution, ball.worst_case(scores).distribution, atol=1e-12 * max(1.0, offset)
    )


@PROPERTY
@given(problems())
def test_sensitivity_is_the_derivative_of_the_least_favourable_distribution(problem):
    ball, scores = problem
    worst = ball.worst_case(scores)
    found = ball.sensitivity(worst, scores)
    if found is None:
        assert worst.multiplier == 0.0 or (worst.distribution > 0).sum() == 1
        return
    matrix = np.asarray(found)
    scale = 0.5 / worst.multiplier
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12 * scale)
    np.testing.assert_allclose(matrix.sum(axis=1), 0.0, atol=1e-9 * scale)
    assert np.linalg.eigvalsh(matrix)[0] >= -1e-9 * scale
    step = 1e-6
    for k, direction in enumerate(step * np.eye(len(scores))):
        ends = [ball.worst_case(scores + sign * direction) for sign in (1.0, -1.0)]
        kept = {tuple(end.distribution > 0) for end in (*ends, worst)}
        if len(kept) == 1:
            slope = (ends[0].distribution - ends[1].distribution) / (2 * step)
            np.testing.assert_allclose(slope, matrix[k], rtol=1e-3, atol=1e-4 * scale)


def test_an_unseen_context_has_no_probability_unless_the_radius_is_infinite():
    scores = np.array([1.0, 2.0, 9.0])
    for radius in (0.1, 3.0, 1e6):
        ball = Chi2Ball([0.6, 0.4, 0.0], radius)
        np.testing.assert_array_equal(ball.worst_case(scores).distribution[2], 0.0)
        assert ball.interval(2) == (0.0, 0.0)
        assert not ball.contains([0.5, 0.4, 0.1])
        assert ball.project(np.array([0.5, 0.4, 0.1]))[2] == 0.0
        assert not ball.is_simplex
        rest = Chi2Ball([0.6, 0.4], radius).worst_case(scores[:2])
        assert ball.worst_case(scores).value == pytest.approx(rest.value, abs=1e-12)
    assert Chi2Ball([0.6, 0.4, 0.0], np.inf).worst_case(scores).distribution.tolist() == [0.0, 0.0, 1.0]


def test_it_is_the_simplex_from_the_distance_of_its_furthest_vertex_on():
    assert not Chi2Ball([0.75, 0.25], 2.99).is_simplex
    ball = Chi2Ball([0.75, 0.25], 3.0)
    assert ball.is_simplex
    assert ball.constraints(np.array([0.5, 0.5])).values.size == 0
    assert ball.worst_case([0.0, 1.0]).distribution.tolist() == [0.0, 1.0]
    assert ball.interval(1) == (0.0, 1.0)


@pytest.mark.parametrize("p_hat", [[1.0], [1.0, 0.0]])
def test_one_seen_context_is_a_point(p_hat):
    assert Chi2Ball(p_hat, 5.0).is_point


@pytest.mark.parametrize("radius", [1e-9, 1e-6, 1e-4])
def test_a_small_ball_is_a_small_kl_ball(radius):
    p_hat, scores = np.array([0.5, 0.3, 0.2]), np.array([0.3, -1.0, 0.4])
    rise = Chi2Ball(p_hat, radius).worst_case(scores).value - p_hat @ scores
    similar = KLBall(p_hat, radius / (2 * math.log(2))).worst_case(scores).value - p_hat @ scores
    assert rise == pytest.approx(similar, rel=3 * math.sqrt(radius))


def test_an_interval_is_a_share_and_its_standard_error():
    low, high = Chi2Ball([0.5, 0.3, 0.2], 0.01).interval(1)
    reach = math.sqrt(0.01 * 0.3 * 0.7)
    assert (low, high) == pytest.approx((0.3 - reach, 0.3 + reach), abs=1e-12)


@pytest.mark.parametrize(
    ("radius", "message"),
    [
        (-1.0, r"radius = -1.0; it is a number, 0 or more"),
        ("much", "radius must be a number, got 'much'"),
        (np.nan, "nan"),
    ],
)
def test_a_bad_radius_is_named(radius, message):
    with pytest.raises(InvalidInputError, match=message):
        cpo.Chi2Ball([0.5, 0.5], radius)


def test_scores_that_are_not_finite_are_named():
    with pytest.raises(InvalidInputError, match="the score of context 1 is nan"):
        Chi2Ball([0.5, 0.5], 0.1).worst_case([0.0, np.nan])
