import functools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import optimize

from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import KLBall
from tests.referees.worst_case import divergence_bits
from tests.referees.worst_case import worst_case as exact_worst_case

PROPERTY = settings(max_examples=80, deadline=None, derandomize=True)

RADII = [0.0, 1e-12, 1e-10, 1e-9, 1e-6, 1e-3, 0.05, 0.3, 1.0, 3.0, 10.0, 50.0, math.inf]
CENTRES = ["uniform", "dirichlet", "uneven", "counts with zeros"]
CASES_PER_CELL = 24


# --- problems -----------------------------------------------------------------------------------------------


def centre(kind, n_contexts, rng):
    if kind == "uniform":
        return np.full(n_contexts, 1.0 / n_contexts)
    if kind == "dirichlet":
        return rng.dirichlet(np.ones(n_contexts))
    if kind == "uneven":
        masses = 10.0 ** rng.uniform(-12, 0, n_contexts)
        return masses / masses.sum()
    counts = rng.multinomial(3 * n_contexts, rng.dirichlet(np.full(n_contexts, 0.5)))
    return counts / counts.sum()


def score_vector(kind, n_contexts, rng):
    scale = 10.0 ** rng.uniform(-12, 12)
    return [
        lambda: scale * rng.normal(size=n_contexts),
        lambda: scale * rng.integers(0, 3, n_contexts),
        lambda: scale * rng.exponential(size=n_contexts),
        lambda: scale * (1 + 1e-8 * rng.normal(size=n_contexts)),
        lambda: 10.0 ** rng.uniform(-12, 12, n_contexts),
        lambda: scale * np.exp(5 * rng.normal(size=n_contexts)),
    ][kind]()


@functools.cache
def solved(radius, kind):
    """Random problems of one cell of the grid: ball, scores, our answer, exact value, exact distribution."""
    rng = np.random.default_rng([RADII.index(radius), CENTRES.index(kind)])
    answers = []
    for k in range(CASES_PER_CELL):
        n_contexts = int(rng.choice([1, 2, 3, 5, 10, 25, 60]))
        ball = KLBall(centre(kind, n_contexts, rng), radius)
        scores = score_vector(k % 6, n_contexts, rng)
        answers.append((ball, scores, ball.worst_case(scores), *exact_worst_case(ball.p_hat, radius, scores)))
    return answers


@st.composite
def balls(draw, min_contexts=1, max_contexts=8, radii=None):
    """Balls around counts that may be zero and may differ by nine orders of magnitude."""
    size = draw(st.integers(min_contexts, max_contexts))
    count = st.integers(0, 20) | st.integers(0, 9).map(lambda e: 10**e)
    counts = np.array(draw(st.lists(count, min_size=size, max_size=size)), dtype=float)
    assume(counts.sum() > 0)
    radius = draw(st.floats(1e-6, 20) | st.sampled_from(RADII) if radii is None else radii)
    return KLBall(counts / counts.sum(), radius)


def scores_for(ball, limit=1e3):
    # Differences of 1e-200 are for the examples below: no measured score has them.
    number = st.floats(-limit, limit).map(lambda x: x if abs(x) > 1e-60 else 0.0) | st.integers(-2, 2).map(float)
    return st.lists(number, min_size=ball.p_hat.size, max_size=ball.p_hat.size).map(np.array)


def vertices_and_points(ball):
    """Distributions anywhere in the simplex, with zeros."""
    mass = st.just(0.0) | st.floats(1e-6, 1.0)
    masses = st.lists(mass, min_size=ball.p_hat.size, max_size=ball.p_hat.size).map(np.array)
    return masses.filter(lambda m: m.sum() > 0).map(lambda m: m / m.sum())


@st.composite
def problems(draw, **options):
    ball = draw(balls(**options))
    return ball, draw(scores_for(ball))


@st.composite
def moderate_problems(draw):
    """No context is rare, no two scores nearly equal, the radius neither tiny nor huge: all is smooth."""
    size = draw(st.integers(2, 8))
    counts = np.array(draw(st.lists(st.integers(5, 50), min_size=size, max_size=size)), dtype=float)
    ranks = np.array(draw(st.permutations(range(size))), dtype=float)
    jitter = np.array(draw(st.lists(st.floats(-0.3, 0.3), min_size=size, max_size=size)))
    scale = 10.0 ** draw(st.integers(-3, 3))
    return KLBall(counts / counts.sum(), draw(st.floats(0.02, 3.0))), scale * (ranks + jitter)


def size_of(scores):
    """The tolerance unit of a value: it moves by at most as much as any score does."""
    # The floor is for scores that are all zero, or so small that their products are not normal numbers.
    return float(np.abs(scores).max()) + 1e-290


def assert_is_distribution(p):
    assert (p >= 0).all()
    assert abs(math.fsum(p) - 1.0) <= 1e-14


# --- the worst case: properties -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CENTRES)
@pytest.mark.parametrize("radius", RADII)
def test_value_agrees_with_the_high_precision_referee(radius, kind):
    for ball, scores, worst, value, p in solved(radius, kind):
        # Adding up p_c s_c in doubles rounds relative to the terms. Where they cancel by more than a factor of
        # 100 the value has lost those digits to its own definition, and the terms are the measure instead.
        terms = float(sum(q * abs(s) for q, s in zip(p, scores, strict=True)))
        assert abs(worst.value - value) <= 1e-12 * max(abs(value), 0.01 * terms), (ball, scores)


@pytest.mark.parametrize("kind", CENTRES)
@pytest.mark.parametrize("radius", RADII)
def test_worst_distribution_is_a_member_and_a_distribution(radius, kind):
    for ball, _, worst, _, _ in solved(radius, kind):
        assert_is_distribution(worst.distribution)
        assert ball.contains(worst.distribution)


@pytest.mark.parametrize("kind", CENTRES)
@pytest.mark.parametrize("radius", [r for r in RADII if 0 < r < math.inf])
def test_worst_distribution_spends_the_whole_radius(radius, kind):
    n_active = 0
    for ball, _, worst, _, p in solved(radius, kind):
        # Equal scores leave the constraint slack; probabilities below the smallest float cannot spend theirs.
        seen = [q for q, share in zip(p, ball.p_hat, strict=True) if share > 0]
        if divergence_bits(ball.p_hat, p) < radius * (1 - 1e-9) or min(seen) < 1e-300:
            continue
        n_active += 1
        # A tiny radius is resolved as far as the rounding of p itself permits.
        assert abs(divergence_bits(ball.p_hat, worst.distribution) - radius) <= 1e-12 * radius + 4e-15
    assert n_active > 3


@PROPERTY
@given(problems())
def test_value_lies_between_the_empirical_mean_and_the_maximum(problem):
    ball, scores = problem
    value = ball.worst_case(scores).value
    slack = 1e-13 * size_of(scores)
    assert ball.p_hat @ scores - slack <= value <= scores.max() + slack


@PROPERTY
@given(problems(), st.floats(1e-6, 1e6), st.floats(-1e4, 1e4))
def test_value_follows_scale_and_shift_of_the_scores(problem, scale, shift):
    ball, scores = problem
    expected = scale * ball.worst_case(scores).value + shift
    moved = ball.worst_case(scale * scores + shift).value
    assert abs(moved - expected) <= 1e-13 * (scale * size_of(scores) + abs(shift))


@PROPERTY
@given(problems(), st.integers(-40, 40))
def test_scaling_by_a_power_of_two_changes_no_digit_of_the_distribution(problem, exponent):
    ball, scores = problem
    expected, scaled = ball.worst_case(scores), ball.worst_case(np.ldexp(scores, exponent))
    np.testing.assert_array_equal(scaled.distribution, expected.distribution)
    assert scaled.value == pytest.approx(np.ldexp(expected.value, exponent), rel=1e-15, abs=1e-300)


@PROPERTY
@given(problems(), st.floats(0, 10))
def test_value_grows_with_the_radius(problem, more):
    ball, scores = problem
    larger = KLBall(ball.p_hat, ball.radius + more)
    assert ball.worst_case(scores).value <= larger.worst_case(scores).value + 1e-13 * size_of(scores)


@PROPERTY
@given(problems(), st.randoms(use_true_random=False))
def test_order_of_contexts_does_not_matter(problem, random):
    ball, scores = problem
    order = random.sample(range(scores.size), scores.size)
    expected = ball.worst_case(scores)
    permuted = KLBall(ball.p_hat[order], ball.radius).worst_case(scores[order])
    assert abs(permuted.value - expected.value) <= 1e-13 * size_of(scores)
    np.testing.assert_allclose(permuted.distribution, expected.distribution[order], rtol=0, atol=1e-9)


@PROPERTY
@given(problems(), st.floats(0, 1), st.data())
def test_splitting_a_context_leaves_the_value(problem, share, data):
    ball, scores = problem
    k = data.draw(st.integers(0, scores.size - 1))
    p_hat = np.append(ball.p_hat, (1 - share) * ball.p_hat[k])
    p_hat[k] *= share
    split = KLBall(p_hat, ball.radius).worst_case(np.append(scores, scores[k]))
    whole = ball.worst_case(scores)
    assert abs(split.value - whole.value) <= 1e-13 * size_of(scores)
    if ball.p_hat[k] > 0 and np.count_nonzero(scores == scores[k]) == 1 and 0 < share < 1:
        # Both halves rise and fall alike, so they keep their shares of what the whole context gets.
        assert split.distribution[k] + split.distribution[-1] == pytest.approx(whole.distribution[k], abs=1e-9)


@PROPERTY
@given(problems(), st.data())
def test_value_supports_the_expected_score_of_every_member(problem, data):
    ball, scores = problem
    other = data.draw(scores_for(ball))
    member = ball.worst_case(other).distribution
    assert member @ scores <= ball.worst_case(scores).value + 1e-13 * size_of(scores)


@PROPERTY
@given(moderate_problems())
def test_gradient_of_the_value_is_the_worst_distribution(problem):
    ball, scores = problem
    step = 1e-5 * scores.std()
    moves = step * np.eye(scores.size)
    slopes = (ball.worst_case(scores + moves).value - ball.worst_case(scores - moves).value) / (2 * step)
    np.testing.assert_allclose(slopes, ball.worst_case(scores).distribution, rtol=0, atol=1e-7)


@PROPERTY
@given(moderate_problems())
def test_dual_variables_reproduce_the_distribution_and_the_value(problem):
    ball, scores = problem
    worst = ball.worst_case(scores)
    # The identities subtract the scores from nu, which needs a nu that is not within rounding of the largest.
    assume(worst.nu - scores.max() > 1e-6 * np.ptp(scores))
    np.testing.assert_allclose(worst.multiplier * ball.p_hat / (worst.nu - scores), worst.distribution, rtol=1e-8)
    assert worst.nu - worst.multiplier == pytest.approx(worst.value, abs=1e-12 * (size_of(scores) + abs(worst.nu)))
    geometric = math.exp(ball.p_hat @ np.log(worst.nu - scores))
    assert 2.0**-ball.radius * geometric == pytest.approx(worst.multiplier, rel=1e-8, abs=0)


@PROPERTY
@given(problems(radii=st.floats(1e-3, 20)), st.floats(1e-6, 1e3))
def test_dual_function_bounds_the_value_from_above(problem, above):
    ball, scores = problem
    nu = scores.max() + above
    bound = nu - 2.0**-ball.radius * math.exp(ball.p_hat @ np.log(nu - scores))
    assert ball.worst_case(scores).value <= bound + 1e-12 * (size_of(scores) + above)


@PROPERTY
@given(balls(radii=st.floats(0.01, 5)), st.data())
def test_unseen_context_takes_what_the_dual_leaves_it(ball, data):
    scores = data.draw(scores_for(ball))
    worst = ball.worst_case(scores)
    unseen = ball.p_hat == 0
    assert (scores[unseen] <= worst.nu + 1e-12 * size_of(scores)).all()
    entered = unseen & (worst.distribution > 0)
    assert (scores[entered] == worst.nu).all()


@PROPERTY
@given(balls(), st.integers(1, 6), st.data())
def test_batch_equals_row_by_row(ball, n_rows, data):
    batch = np.array([data.draw(scores_for(ball)) for _ in range(n_rows)])
    together = ball.worst_case(batch)
    assert together.distribution.shape == batch.shape
    assert together.value.shape == together.nu.shape == together.multiplier.shape == (n_rows,)
    for k, scores in enumerate(batch):
        alone = ball.worst_case(scores)
        assert together.value[k] == pytest.approx(alone.value, abs=1e-13 * size_of(scores))
        np.testing.assert_allclose(together.distribution[k], alone.distribution, rtol=0, atol=1e-9)
        np.testing.assert_allclose(together.weights[k], alone.weights, rtol=1e-6, atol=1e-6)


@PROPERTY
@given(balls(radii=st.floats(0, 60)), st.floats(-1e300, 1e300))
def test_equal_scores_keep_the_empirical_distribution(ball, score):
    worst = ball.worst_case(np.full(ball.p_hat.size, score))
    assert worst.value == pytest.approx(score, rel=1e-14, abs=1e-300)
    np.testing.assert_array_equal(worst.distribution, ball.p_hat)


@PROPERTY
@given(problems(radii=st.just(0.0)))
def test_zero_radius_is_the_empirical_distribution(problem):
    ball, scores = problem
    worst = ball.worst_case(scores)
    np.testing.assert_array_equal(worst.distribution, ball.p_hat)
    assert worst.value == pytest.approx(ball.p_hat @ scores, abs=1e-15 * size_of(scores))
    np.testing.assert_array_equal(worst.weights, 0.0)


@PROPERTY
@given(problems(radii=st.just(math.inf), min_contexts=2))
def test_infinite_radius_is_the_maximum(problem):
    ball, scores = problem
    worst = ball.worst_case(scores)
    assert worst.value == pytest.approx(scores.max(), abs=1e-15 * size_of(scores))
    assert (worst.distribution[scores < scores.max()] == 0).all()


# --- the worst case: examples -------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", RADII)
def test_one_context_leaves_no_choice(radius):
    worst = KLBall([1.0], radius).worst_case([3.5])
    assert worst.value == 3.5
    np.testing.assert_array_equal(worst.distribution, [1.0])


@pytest.mark.parametrize(
    ("p_hat", "radius", "scores"),
    [
        ([5e-9, 0.5, 0.5 - 5e-9], 0.3, [1.4, 0.3, 0.4]),
        ([0.09090908, 0.0000001, 0.90909082], 0.5, [-1.1, 0.3, 0.0]),
        ([0.1, 1e-9, 0.9 - 1e-9], 0.1, [-0.5, 0.4, -0.6]),
        ([1e-12, 1e-6, 1 - 1e-6 - 1e-12], 1.0, [2.0, 1.0, 0.0]),
        ([1e-6, 0.5, 0.499999], 1.55, [1e-8, -1.0, 0.0]),
        ([1e-7, 0.5, 0.4999999], 3.0, [1e-10, -1.0, 0.0]),
        (np.array([1e6, 1.0, 1e7]) / 11_000_001, 2.0, [-2.0, 2.0, -1000.0]),
        (np.array([1e8, 10.0, 1e7]) / 110_000_010, 2.0, [-1000.0, 2.0, -2.0]),
    ],
)
def test_rare_context_with_the_largest_score_does_not_derail_the_search(p_hat, radius, scores):
    # The divergence has a plateau: the rare context matters only once nu is very close to its score.
    ball = KLBall(p_hat, radius)
    worst = ball.worst_case(scores)
    assert worst.value == pytest.approx(float(exact_worst_case(ball.p_hat, radius, scores)[0]), rel=1e-12, abs=0)
    assert ball.contains(worst.distribution)
    assert ball.divergence(worst.distribution) == pytest.approx(radius, abs=1e-9)


@pytest.mark.parametrize("radius", [1e-12, 1e-9, 1e-6, 0.1, 5.0])
def test_unseen_context_keeps_its_relative_precision_at_a_small_radius(radius):
    scores = [0.0, 1e-12, 1.0]
    worst = KLBall([0.5, 0.5, 0.0], radius).worst_case(scores)
    value, p = exact_worst_case([0.5, 0.5, 0.0], radius, scores)
    assert worst.distribution[2] == pytest.approx(float(p[2]), rel=1e-12, abs=0)
    assert worst.value == pytest.approx(float(value), rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("p_hat", "radius", "scores"),
    [
        ([0.899999, 0.1, 1e-6], 101.3188, [1.0, 1.0 - 1e-15, 0.0]),
        ([1e-4, 1e-7, 1 - 1e-4 - 1e-7], 0.0625, [0.0, -1.0, 5.9e-221]),
    ],
)
def test_near_tie_does_not_push_the_distribution_out_of_the_set(p_hat, radius, scores):
    # The distance of nu from the largest score underflows here, although its ratio to the near tie does not.
    ball = KLBall(p_hat, radius)
    assert ball.contains(ball.worst_case(scores).distribution)


def test_tied_unseen_contexts_share_alike():
    worst = KLBall([0.5, 0.5, 0.0, 0.0], 1.0).worst_case([0.0, 1.0, 5.0, 5.0])
    assert worst.distribution[2] == worst.distribution[3] > 0


@pytest.mark.parametrize("radius", [1e-12, 0.3, 3.0, 50.0, math.inf])
@pytest.mark.parametrize("p_hat", [[0.2, 0.3, 0.5], [0.5, 0.5, 0.0], [0.3, 0.7 - 1e-15, 1e-15]])
@pytest.mark.parametrize(
    "scores",
    [[1e308, -1e308, 0.0], [1.7e308, -1.7e308, 1.7e308], [1e308, 1e-308, 0.0], [-1e308, -1e308, 1e308]],
)
def test_largest_floats_do_not_overflow(p_hat, radius, scores):
    ball = KLBall(p_hat, radius)
    worst = ball.worst_case(scores)
    value, p = exact_worst_case(ball.p_hat, radius, scores)
    # As in the grid above: relative to the terms where the value itself cancels.
    terms = sum(q * abs(s) for q, s in zip(p, scores, strict=True))
    assert abs(worst.value - value) <= 1e-12 * max(abs(value), terms / 100)
    assert_is_distribution(worst.distribution)
    assert not math.isnan(worst.nu)
    assert not math.isnan(worst.multiplier)


@pytest.mark.parametrize("radius", [1e-12, 0.3, 3.0, 50.0])
@pytest.mark.parametrize("p_hat", [[0.2, 0.3, 0.5], [0.5, 0.5, 0.0], [0.3, 0.7 - 1e-15, 1e-15]])
@pytest.mark.parametrize("scores", [[5e-324, 0.0, 1e-323], [-5e-324, 0.0, 0.0], [3e-310, 1e-310, 2e-310]])
def test_subnormal_scores_do_not_underflow(p_hat, radius, scores):
    ball = KLBall(p_hat, radius)
    worst = ball.worst_case(scores)
    value, p = exact_worst_case(ball.p_hat, radius, scores)
    # The value is as exact as the spacing of subnormal numbers; the distribution does not suffer from it.
    assert abs(worst.value - value) <= 3 * 5e-324 + 1e-12 * abs(value)
    np.testing.assert_allclose(worst.distribution, [float(q) for q in p], rtol=0, atol=1e-9)


@pytest.mark.parametrize("radius", [1e-6, 0.1, 3.0, 50.0])
def test_a_million_contexts_are_solved(radius):
    n_contexts = 1_000_000
    rng = np.random.default_rng(7)
    ball = KLBall(rng.dirichlet(np.ones(n_contexts)), radius)
    scores = rng.normal(size=n_contexts)
    worst = ball.worst_case(scores)
    assert ball.p_hat @ scores < worst.value < scores.max()
    assert_is_distribution(worst.distribution)
    used = math.fsum(ball.p_hat * np.log2(ball.p_hat / worst.distribution))
    assert used == pytest.approx(radius, abs=1e-9 * min(1.0, radius) + 1e-14)


def test_large_batch_in_slices_equals_row_by_row(monkeypatch):
    monkeypatch.setattr("counterpoise.sets._base._BATCH_ENTRIES", 7)
    ball = KLBall([0.2, 0.3, 0.5], 0.4)
    batch = np.random.default_rng(0).normal(size=(9, 3))
    np.testing.assert_allclose(ball.worst_case(batch).value, [ball.worst_case(s).value for s in batch], rtol=1e-13)


def test_empty_batch_gives_an_empty_answer():
    worst = KLBall([0.2, 0.3, 0.5], 0.4).worst_case(np.zeros((0, 3)))
    assert worst.distribution.shape == (0, 3)
    assert worst.value.shape == (0,)


@pytest.mark.parametrize("scores", [[1, 2, 4], (1, 2, 4), np.array([1, 2, 4], dtype=np.int8), np.float32([1, 2, 4])])
def test_anything_numeric_serves_as_scores(scores):
    ball = KLBall([0.2, 0.3, 0.5], 0.4)
    assert ball.worst_case(scores).value == ball.worst_case(np.array([1.0, 2.0, 4.0])).value


def test_single_answer_consists_of_floats():
    worst = KLBall([1, 0], 1).worst_case([0, 1])
    assert type(worst.value) is type(worst.nu) is type(worst.multiplier) is float


def test_inputs_are_neither_changed_nor_shared():
    p_hat, scores = np.array([0.25, 0.75]), np.array([1.0, 2.0])
    ball = KLBall(p_hat, 1.0)
    ball.worst_case(scores)
    p_hat[0] = 0.5
    np.testing.assert_array_equal(ball.p_hat, [0.25, 0.75])
    np.testing.assert_array_equal(scores, [1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        ball.p_hat[0] = 1.0


# --- intervals of one context -------------------------------------------------------------------------------


@PROPERTY
@given(balls(min_contexts=2), st.data())
def test_interval_is_the_worst_case_of_a_unit_vector(ball, data):
    k = data.draw(st.integers(0, ball.p_hat.size - 1))
    unit = np.eye(ball.p_hat.size)[k]
    lower, upper = ball.interval(k)
    assert upper == pytest.approx(ball.worst_case(unit).value, abs=1e-13)
    assert lower == pytest.approx(-ball.worst_case(-unit).value, abs=1e-13)
    assert 0 <= lower <= ball.p_hat[k] + 1e-15
    assert ball.p_hat[k] - 1e-15 <= upper <= 1


@PROPERTY
@given(st.integers(1, 99), st.floats(1e-4, 8))
def test_interval_of_two_contexts_ends_where_the_divergence_is_the_radius(percent, radius):
    share = percent / 100
    lower, upper = KLBall([share, 1 - share], radius).interval(0)

    def excess(log_odds):
        # In log-odds both ends are resolved however close to 0 and 1 they lie.
        log_q, log_rest = -math.log1p(math.exp(-log_odds)), -math.log1p(math.exp(log_odds))
        nats = share * (math.log(share) - log_q) + (1 - share) * (math.log1p(-share) - log_rest)
        return nats / math.log(2) - radius

    middle = math.log(share / (1 - share))
    reach = 2 + 1.5 * radius / min(share, 1 - share)
    assume(reach + abs(middle) < 700)
    ends = [optimize.brentq(excess, *sorted((middle, middle + s * reach)), xtol=1e-14) for s in (-1, 1)]
    assert lower == pytest.approx(1 / (1 + math.exp(-ends[0])), rel=1e-6, abs=1e-12)
    assert 1 - upper == pytest.approx(1 / (1 + math.exp(ends[1])), rel=1e-6, abs=1e-12)


@PROPERTY
@given(balls(min_contexts=2, radii=st.floats(0, 30) | st.sampled_from([1e-12, 1e-9])))
def test_unseen_context_may_take_up_to_one_minus_two_to_the_minus_radius(ball):
    unseen = KLBall(np.append(ball.p_hat, 0.0), ball.radius)
    lower, upper = unseen.interval(ball.p_hat.size)
    assert lower == 0.0
    assert upper == pytest.approx(-math.expm1(-ball.radius * math.log(2)), rel=1e-12, abs=1e-300)


@PROPERTY
@given(balls(min_contexts=2, radii=st.just(math.inf)))
def test_infinite_radius_allows_every_probability(ball):
    for k in range(ball.p_hat.size):
        assert ball.interval(k) == (0.0, 1.0)


def test_interval_agrees_with_brute_force_on_a_fine_grid():
    share, radius = 0.3, 0.25
    q = np.linspace(0, 1, 1_000_001)[1:-1]
    inside = q[share * np.log2(share / q) + (1 - share) * np.log2((1 - share) / (1 - q)) <= radius]
    lower, upper = KLBall([share, 1 - share], radius).interval(0)
    assert lower == pytest.approx(inside[0], abs=1e-6)
    assert upper == pytest.approx(inside[-1], abs=1e-6)


def test_interval_of_zero_radius_is_a_point_and_of_one_context_is_one():
    assert KLBall([0.25, 0.75], 0.0).interval(0) == (0.25, 0.25)
    assert KLBall([1.0], 2.0).interval(0) == (1.0, 1.0)


@pytest.mark.parametrize("context", [3, -4, "a", 1.5, None, True])
def test_interval_of_a_context_that_does_not_exist_is_refused(context):
    with pytest.raises(InvalidInputError, match="index from 0 to 2"):
        KLBall([0.2, 0.3, 0.5], 1.0).interval(context)


# --- membership, and the set as a solver sees it ------------------------------------------------------------


@PROPERTY
@given(balls(min_contexts=2, radii=st.floats(0.01, 10)), st.data())
def test_membership_ends_at_the_radius(ball, data):
    far = data.draw(vertices_and_points(ball))

    def point(t):
        return (1 - t) * ball.p_hat + t * far

    def excess(t):
        return min(float(divergence_bits(ball.p_hat, point(t))), 1e3) - ball.radius

    if excess(1.0) <= 1e-6:
        assume(excess(1.0) < -1e-6)
        assert ball.contains(far)
        return
    edge = optimize.brentq(excess, 0.0, 1.0, xtol=1e-15)
    inside, outside = point(edge * (1 - 1e-6)), point(min(1.0, edge * (1 + 1e-6) + 1e-12))
    assume(excess(edge * (1 + 1e-6) + 1e-12) > 2e-9)
    assert ball.contains(inside)
    assert not ball.contains(outside)


@PROPERTY
@given(balls(), st.data())
def test_every_ball_contains_its_centre_and_its_worst_cases(ball, data):
    assert ball.contains(ball.p_hat)
    assert ball.contains(ball.worst_case(data.draw(scores_for(ball))).distribution)


@PROPERTY
@given(balls(min_contexts=2), st.data())
def test_pulling_inside_gives_a_member_and_leaves_members_alone(ball, data):
    pulled = ball.project(data.draw(vertices_and_points(ball)))
    assert_is_distribution(pulled)
    assert ball.contains(pulled)
    np.testing.assert_allclose(ball.project(pulled), pulled, rtol=0, atol=1e-6)


@PROPERTY
@given(moderate_problems())
def test_constraint_has_the_gradient_it_states(problem):
    ball, scores = problem
    p = 0.5 * ball.p_hat + 0.5 * np.exp(scores / np.ptp(scores)) / np.exp(scores / np.ptp(scores)).sum()
    here = ball.constraints(p)
    value = math.log(2) * float(divergence_bits(ball.p_hat, p) - ball.radius)
    assert here.values[0] == pytest.approx(value, abs=1e-12)
    moves = 1e-6 * np.diag(p)
    around = [(ball.constraints(p + m), ball.constraints(p - m)) for m in moves]
    slopes = [(up.values[0] - down.values[0]) / 2e-6 for up, down in around]
    np.testing.assert_allclose(slopes, here.gradients[0] * p, rtol=0, atol=1e-7)


def test_simplex_has_no_constraint_beyond_its_own():
    ball = KLBall([0.5, 0.5], math.inf)
    assert ball.is_simplex
    assert not ball.is_point
    assert ball.constraints(np.array([0.5, 0.5])).values.size == 0


@pytest.mark.parametrize(("p_hat", "radius"), [([0.5, 0.5], 0.0), ([1.0], 1.0)])
def test_zero_radius_or_one_context_is_a_point(p_hat, radius):
    assert KLBall(p_hat, radius).is_point


def test_starving_a_seen_context_leaves_every_finite_ball():
    assert not KLBall([0.5, 0.5], 1000.0).contains([1.0, 0.0])
    assert KLBall([0.5, 0.5], math.inf).contains([1.0, 0.0])
    assert KLBall([1.0, 0.0], 0.0).contains([1.0, 0.0])


def test_smallest_probability_has_a_finite_divergence():
    # The smallest float is 2^-1074: its half of the mass costs 1073 / 2 bits, the other half gains 1 / 2.
    ball = KLBall([0.5, 0.5], 1000.0)
    assert ball.divergence([1.0, 5e-324]) == pytest.approx(536.0)
    assert ball.contains([1.0, 5e-324])


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p_hat", "message"),
    [
        ([], "at least one context"),
        ([[0.5, 0.5]], "one-dimensional"),
        (0.5, "one-dimensional"),
        (None, "p_hat"),
        (["a", "b"], "must be numbers"),
        ([0.5, 0.6], "sums to 1.1, not 1"),
        ([3, 7], "sums to 10, not 1. Divide each by the sum"),
        ([1.5, -0.5], r"p_hat\[1\] = -0.5"),
        ([0.5, math.nan], r"p_hat\[1\] = nan"),
        ([0.5, math.inf], r"p_hat\[1\] = inf"),
    ],
)
def test_centre_that_is_no_distribution_is_refused(p_hat, message):
    with pytest.raises(InvalidInputError, match=message):
        KLBall(p_hat, 1.0)


@pytest.mark.parametrize("radius", [-1, -1e-300, math.nan, "wide", None, [1, 2]])
def test_radius_that_is_no_number_of_bits_is_refused(radius):
    with pytest.raises(InvalidInputError, match="bits"):
        KLBall([0.5, 0.5], radius)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([1, 2], r"shape \(2,\); the set has 3 contexts"),
        (5.0, "the set has 3 contexts"),
        (np.zeros((1, 1, 3)), "the set has 3 contexts"),
        (["a", "b", "c"], "must be numbers"),
        ([1, 2, math.nan], "context 2 is nan"),
        ([[1, 2, 3], [1, -math.inf, 3]], "context 1 is -inf"),
        ([1, None, 3], "context 1 is nan"),
    ],
)
def test_scores_that_do_not_fit_are_refused(scores, message):
    with pytest.raises(InvalidInputError, match=message):
        KLBall([0.2, 0.3, 0.5], 1.0).worst_case(scores)


@pytest.mark.parametrize(
    ("p", "message"),
    [
        ([0.5, 0.5], "p has 2 contexts; the set has 3"),
        ([0.5, 0.5, 0.5], "p sums to"),
        ([1, 1, -1], r"p\[2\] = -1"),
    ],
)
def test_membership_of_what_is_no_distribution_is_refused(p, message):
    with pytest.raises(InvalidInputError, match=message):
        KLBall([0.2, 0.3, 0.5], 1.0).contains(p)
