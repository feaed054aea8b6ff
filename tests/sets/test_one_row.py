"""One score vector goes a leaner way than a batch, and many contexts go in blocks: the answers must not differ."""

import math
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import KLBall, _one_row
from tests.referees.worst_case import divergence_bits
from tests.referees.worst_case import worst_case as exact_worst_case
from tests.sets.test_kl import centre, score_vector

PROPERTY = settings(max_examples=150, deadline=None, derandomize=True)
SEED = st.integers(0, 2**32 - 1)
RADII = st.floats(-12.0, 3.0).map(lambda e: 10.0**e) | st.floats(0.01, 5.0)
CENTRES = st.sampled_from(["uniform", "dirichlet", "uneven", "counts with zeros"])


@contextmanager
def blocks_of(block, sample):
    """Let vectors of more than ``sample`` contexts count as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_one_row, "BLOCK", block)
        patch.setattr(_one_row, "_SAMPLE", sample)
        yield


def lean(ball, scores):
    return _one_row.tilt_of_one(ball.p_hat, ball.radius * math.log(2.0), scores)


def assert_same_as_batch(ball, scores):
    alone, batch = ball.worst_case(scores), ball.worst_case(scores[None])
    terms = float(batch.distribution[0] @ np.abs(scores))
    assert abs(alone.value - batch.value[0]) <= 1e-13 * terms
    np.testing.assert_allclose(alone.distribution, batch.distribution[0], rtol=0, atol=1e-14)
    assert abs(math.fsum(alone.distribution) - 1.0) <= 1e-14
    if min(batch.distribution[0]) > 1e-8:
        # A rare context moves with the rounding of the others' shares; elsewhere every digit is determined.
        np.testing.assert_allclose(alone.distribution, batch.distribution[0], rtol=1e-11)
        assert alone.nu == pytest.approx(batch.nu[0], rel=1e-11)
        assert alone.multiplier == pytest.approx(batch.multiplier[0], rel=1e-11)


@PROPERTY
@given(SEED, CENTRES, st.integers(2, 60), st.integers(0, 5), RADII)
def test_one_row_equals_a_batch_of_one(seed, kind, n_contexts, scores_kind, radius):
    rng = np.random.default_rng(seed)
    ball = KLBall(centre(kind, n_contexts, rng), radius)
    assert_same_as_batch(ball, score_vector(scores_kind, n_contexts, rng))


@PROPERTY
@given(SEED, CENTRES, st.sampled_from([15, 16, 17, 18, 31, 32, 33, 64, 100, 257]), st.integers(0, 5), RADII)
def test_long_vector_in_blocks_equals_a_batch_of_one(seed, kind, n_contexts, scores_kind, radius):
    rng = np.random.default_rng(seed)
    ball = KLBall(centre(kind, n_contexts, rng), radius)
    with blocks_of(8, 16):
        assert_same_as_batch(ball, score_vector(scores_kind, n_contexts, rng))


@pytest.mark.parametrize("radius", [1e-10, 1e-6, 1e-5, 1e-3, 0.02, 0.05, 0.3, 3.0, 20.0])
@pytest.mark.parametrize("sample", [16, 1000])
def test_lean_way_agrees_with_the_high_precision_referee(radius, sample):
    rng = np.random.default_rng([int(1e12 * radius), sample])
    for k in range(12):
        ball = KLBall(centre(["dirichlet", "uneven"][k % 2], 40, rng), radius)
        scores = score_vector(k % 6, 40, rng)
        with blocks_of(8, sample):
            found = lean(ball, scores)
        if found is None:
            assert radius == 20.0 or k % 6 == 1
            continue
        value, p = exact_worst_case(ball.p_hat, radius, scores)
        terms = float(sum(q * abs(s) for q, s in zip(p, scores, strict=True)))
        assert abs(found[1] - value) <= 2e-14 * terms
        assert abs(divergence_bits(ball.p_hat, found[0]) - radius) <= 1e-13 * radius + 1e-15


@pytest.mark.parametrize("n_contexts", [_one_row._SAMPLE - 1, _one_row._SAMPLE, _one_row._SAMPLE + 1, 100_000])
@pytest.mark.parametrize("radius", [1e-7, 1e-3, 0.1, 5.0])
def test_many_contexts_equal_a_batch_of_one(n_contexts, radius):
    rng = np.random.default_rng(n_contexts)
    ball = KLBall(rng.dirichlet(np.full(n_contexts, 2.0)), radius)
    scores = rng.normal(size=n_contexts)
    alone, batch = ball.worst_case(scores), ball.worst_case(scores[None])
    assert alone.value == pytest.approx(batch.value[0], rel=1e-13)
    np.testing.assert_allclose(alone.distribution, batch.distribution[0], rtol=1e-11)
    assert alone.nu == pytest.approx(batch.nu[0], rel=1e-12)


@pytest.mark.parametrize("radius", [1e-3, 0.1, 5.0])
@pytest.mark.parametrize("special", ["every tenth", "all but every tenth", "one", "ties"])
def test_sample_that_misleads_costs_no_accuracy(special, radius):
    rng = np.random.default_rng(3)
    scores = rng.normal(size=160)
    # The sample takes every twentieth context, from the first.
    if special == "every tenth":
        scores[::10] += 50.0
    elif special == "all but every tenth":
        scores += 50.0 * (np.arange(160) % 10 > 0)
    elif special == "one":
        scores[:] = 0.0
        scores[7] = 1.0
    else:
        scores[:] = 1.0
        scores[7] = 0.0
    ball = KLBall(rng.dirichlet(np.full(160, 2.0)), radius)
    with blocks_of(8, 16):
        assert_same_as_batch(ball, scores)


@PROPERTY
@given(SEED, st.integers(2, 40), st.floats(-6.0, 1.0).map(lambda e: 10.0**e))
def test_ordinary_scores_take_the_lean_way(seed, n_contexts, radius):
    rng = np.random.default_rng(seed)
    ball = KLBall((2.0 + rng.dirichlet(np.ones(n_contexts))) / (2.0 * n_contexts + 1.0), radius)
    assert lean(ball, rng.normal(size=n_contexts)) is not None


@pytest.mark.parametrize(
    "scores", [[1.0, 1.0, 1.0], [1e200, 0.0, 1.0], [1e-200, 0.0, 0.0], [math.nan, 0.0, 1.0], [0.0, -math.inf, 1.0]]
)
def test_lean_way_declines_what_is_not_tame(scores):
    assert lean(KLBall([0.2, 0.3, 0.5], 0.5), np.array(scores)) is None


@pytest.mark.parametrize("radius", [1e-300, 1e-30, 1e-19, 300.0, 1e3, 1e36, 1e308])
def test_extreme_radius_equals_a_batch_of_one(radius):
    assert_same_as_batch(KLBall([0.2, 0.3, 0.5], radius), np.array([1.0, 0.5, -1.0]))


@pytest.mark.parametrize("share", [5e-324, 1e-300, 1e-190])
def test_almost_impossible_context_equals_a_batch_of_one(share):
    assert_same_as_batch(KLBall([share, 0.5, 0.5], 0.3), np.array([1.0, 0.5, -1.0]))


@pytest.mark.parametrize("gap", [1e-300, 1e-200, 1e-60, 1e-16])
def test_near_tie_equals_a_batch_of_one(gap):
    assert_same_as_batch(KLBall([0.2, 0.3, 0.5], 2.0), np.array([0.0, -gap, -1.0]))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_score_that_is_not_finite_is_refused_in_an_unseen_context(bad):
    with pytest.raises(InvalidInputError, match=f"context 1 is {bad}"):
        KLBall([0.5, 0.0, 0.5], 0.1).worst_case([0.0, bad, 1.0])


@pytest.mark.parametrize("score", [-1e308, -1.0, 0.6, 2.0, 1e100, 1e160, 1e308])
@pytest.mark.parametrize("radius", [1e-9, 0.1, 3.0])
def test_unseen_context_equals_a_batch_of_one(score, radius):
    assert_same_as_batch(KLBall([0.2, 0.0, 0.3, 0.5], radius), np.array([1.0, score, 0.5, -1.0]))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_score_that_is_not_finite_is_refused_among_many(bad):
    scores = np.zeros(_one_row._SAMPLE + 1)
    scores[-1] = bad
    with pytest.raises(InvalidInputError, match=f"context {_one_row._SAMPLE} is {bad}"):
        KLBall(np.full(scores.size, 1.0 / scores.size), 0.1).worst_case(scores)


def test_scores_in_a_column_are_solved():
    table = np.random.default_rng(0).normal(size=(50, 3))
    ball = KLBall(np.full(50, 0.02), 0.2)
    for sample in (16, 1000):
        with blocks_of(8, sample):
            assert ball.worst_case(table[:, 1]).value == pytest.approx(
                ball.worst_case(table[:, 1].copy()).value, rel=1e-14
            )
