"""Means by context and their errors, against loops, the jackknife by hand and Student's t."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from counterpoise.inference.paired import PairedMeans, lengthened

RNG = np.random.default_rng(0)
CODES = np.repeat([0, 1, 2], [12, 30, 7])
VALUES = RNG.standard_normal((49, 2)) + np.array([0.0, 1.0])


def covariance(pairs):
    return (pairs.factor.T @ pairs.factor).toarray()


def test_rows_of_equal_weight_have_the_textbook_standard_error():
    pairs = PairedMeans.of(VALUES, CODES, 3, np.ones(49))
    for c in range(3):
        own = VALUES[c == CODES]
        np.testing.assert_allclose(pairs.mean[c], own.mean(axis=0))
        np.testing.assert_allclose(pairs.error[c], stats.sem(own, axis=0))
        block = covariance(pairs)[2 * c : 2 * c + 2, 2 * c : 2 * c + 2]
        np.testing.assert_allclose(block, np.cov(own.T) / len(own))
    np.testing.assert_allclose(pairs.degrees, [11, 29, 6])
    assert (covariance(pairs)[:2, 2:] == 0).all()


def test_groups_and_weights_have_the_variance_of_sums_over_groups():
    rng = np.random.default_rng(7)
    groups, weight = rng.integers(0, 15, 49), rng.uniform(0.5, 2.0, 49)
    pairs = PairedMeans.of(VALUES, CODES, 3, weight, groups)
    total = np.zeros((6, 6))
    for g in range(15):
        moved = np.zeros((3, 2))
        for c in range(3):
            own, here = c == CODES, (c == CODES) & (groups == g)
            share = weight[here].sum() / weight[own].sum()
            mean = np.average(VALUES[own], axis=0, weights=weight[own])
            moved[c] = weight[here] @ (VALUES[here] - mean) / weight[own].sum() / np.sqrt(1.0 - share)
        total += np.outer(moved.ravel(), moved.ravel())
    sizes = [len(np.unique(groups[c == CODES])) for c in range(3)]
    np.testing.assert_allclose(covariance(pairs), total, atol=1e-12)
    assert pairs.n_units.tolist() == sizes
    # Some group has rows in several contexts, so their means err together.
    assert np.abs(covariance(pairs)[:2, 2:]).max() > 0


def test_rows_repeated_inside_a_group_add_nothing():
    once = PairedMeans.of(VALUES, CODES, 3, np.ones(49))
    five = np.repeat(np.arange(49), 5)
    again = PairedMeans.of(VALUES[five], CODES[five], 3, np.ones(245), five)
    np.testing.assert_allclose(again.error, once.error)
    np.testing.assert_allclose(again.skewness, once.skewness)
    np.testing.assert_array_equal(again.degrees, once.degrees)


def test_unequal_weights_leave_fewer_degrees_of_freedom():
    weight = np.where(np.arange(49) % 6 == 0, 20.0, 1.0)
    pairs = PairedMeans.of(VALUES, CODES, 3, weight)
    assert (pairs.degrees < [11, 29, 6]).all()
    assert (pairs.degrees >= 1).all()


def test_a_column_without_values_in_a_context_is_unknown_there_alone():
    values = VALUES.copy()
    values[3, 1] = np.inf
    pairs = PairedMeans.of(values, CODES, 3, np.ones(49))
    assert np.isnan(pairs.mean).tolist() == [[False, True], [False, False], [False, False]]
    np.testing.assert_allclose(pairs.mean[1:], PairedMeans.of(VALUES, CODES, 3, np.ones(49)).mean[1:])


def test_columns_that_agree_have_no_error_of_their_difference():
    pairs = PairedMeans.of(np.column_stack([VALUES[:, 0], np.zeros(49)]), CODES, 3, np.ones(49))
    assert (pairs.error[:, 1] == 0.0).all()
    assert (pairs.drawn(50, np.random.default_rng(0))[:, :, 1] == 0.0).all()


def test_no_event_seen_is_not_taken_for_certainty():
    # Errors of one in ten: three of five contexts of 12 rows happen to have none.
    errors = np.zeros((60, 1))
    errors[[0, 1, 15]] = 1.0
    pairs = PairedMeans.of(errors, np.repeat(np.arange(5), 12), 5, np.ones(60))
    assert (pairs.error > 0).all()
    assert (pairs.error[2:, 0] < pairs.error[0, 0]).all()


def test_variances_of_other_contexts_are_not_borrowed_where_rows_show_their_own():
    scale = np.where(CODES == 1, 1e6, 1.0)[:, None]
    pairs = PairedMeans.of(VALUES * scale, CODES, 3, np.ones(49))
    np.testing.assert_allclose(pairs.error[0], stats.sem(VALUES[CODES == 0], axis=0))


@pytest.mark.parametrize("size", [2, 3, 5, 6])
def test_few_rows_that_differ_are_not_taken_for_tied(size):
    codes = np.repeat([0, 1], [size, 30])
    rows = np.random.default_rng(size).standard_normal((size + 30, 1))
    small, large = (
        PairedMeans.of(np.where(codes[:, None] == 1, k * rows, rows), codes, 2, np.ones(size + 30)) for k in (1, 100)
    )
    assert small.error[0, 0] == large.error[0, 0] == pytest.approx(stats.sem(rows[:size, 0]))


def test_an_event_that_was_never_seen_has_the_size_it_is_told():
    values, codes = np.zeros((40, 1)), np.repeat([0, 1], 20)
    assert (PairedMeans.of(values, codes, 2, np.ones(40)).error == 0.0).all()
    np.testing.assert_allclose(PairedMeans.of(values, codes, 2, np.ones(40), event=1.0).error, 2 / 20)


def test_contexts_that_share_groups_do_not_add_their_degrees_of_freedom():
    groups = np.tile(np.arange(6), 20)
    codes = np.repeat(np.arange(4), 30)
    values = np.random.default_rng(5).standard_normal((120, 1))
    pairs = PairedMeans.of(values, codes, 4, np.ones(120), groups)
    pairs = replace(pairs, skewness=0.0 * pairs.skewness)
    assert pairs.equivalent_degrees(np.full((1, 4), 0.25)) == pytest.approx(5.0)
    apart = PairedMeans.of(values, codes, 4, np.ones(120), groups + 6 * codes)
    assert apart.equivalent_degrees(np.full((1, 4), 0.25)) is None
    drawn = pairs.drawn(4000, np.random.default_rng(0))[:, :, 0] / pairs.error[:, 0]
    assert np.quantile(drawn[:, 0], 0.975) == pytest.approx(stats.t.ppf(0.975, pairs.degrees[0]), rel=0.1)


def test_draws_have_the_covariance_and_the_tails_of_few_units():
    groups = np.random.default_rng(6).integers(0, 15, 49)
    for pairs in (PairedMeans.of(VALUES, CODES, 3, np.ones(49)), PairedMeans.of(VALUES, CODES, 3, np.ones(49), groups)):
        symmetric = replace(pairs, skewness=0.0 * pairs.skewness)
        drawn = symmetric.drawn(40_000, np.random.default_rng(1))
        for c in range(3):
            score = drawn[:, c, 0] / pairs.error[c, 0]
            for level in (0.9, 0.975):
                assert np.quantile(score, level) == pytest.approx(stats.t.ppf(level, pairs.degrees[c]), rel=0.05)
        within = np.corrcoef(drawn[:, 1].T)[0, 1]
        block = covariance(pairs)[2:4, 2:4]
        assert within == pytest.approx(block[0, 1] / np.sqrt(block[0, 0] * block[1, 1]), abs=0.03)


@pytest.mark.parametrize("skewness", [-0.3, -0.05, 0.05, 0.3])
def test_lengthened_tails_solve_halls_equation_and_are_never_shorter(skewness):
    score = np.linspace(-4, 4, 81)
    found = lengthened(score, np.array(skewness))
    moved = found != score
    back = found + skewness * found**2 / 3 + skewness**2 * found**3 / 27 + skewness / 6
    np.testing.assert_allclose(back[moved], score[moved], atol=1e-9)
    assert (np.abs(found) >= np.abs(score)).all()
    assert (np.sign(found[moved]) == -np.sign(skewness)).all()


@pytest.mark.parametrize("skewness", [1e-18, 1e-16, -3e-16, 1e-12])
def test_a_skewness_of_rounding_lengthens_no_tail(skewness):
    score = np.linspace(-4, 4, 81)
    np.testing.assert_allclose(lengthened(score, np.array(skewness)), score, rtol=1e-11, atol=1e-15)


def test_upper_ends_of_skewed_means_miss_less_often_than_students():
    rng, n, misses = np.random.default_rng(0), 30, np.zeros(2)
    for _ in range(2000):
        rows = rng.exponential(size=(n, 1))
        pairs = PairedMeans.of(rows, np.zeros(n, dtype=int), 1, np.ones(n))
        multiple = -lengthened(np.array(-1.96), pairs.skewness[0, 0]) * stats.t.ppf(0.975, n - 1) / 1.96
        ends = pairs.mean[0, 0] + np.array([stats.t.ppf(0.975, n - 1), multiple]) * pairs.error[0, 0]
        misses += ends < 1.0
    assert misses[0] / 2000 > 0.06
    assert misses[1] / 2000 < 0.04


@pytest.mark.parametrize("n", [9, 10, 11, 40])
def test_ties_are_found_wherever_the_few_events_stand(n):
    """Errors of two contexts: rows of any order have the same error, with as many events as ties may have."""
    errors = np.zeros((2 * n, 1))
    errors[[0, 1, 2, 3, n]] = 1.0
    codes, rng = np.repeat([0, 1], n), np.random.default_rng(n)
    orders = [np.arange(2 * n), np.arange(2 * n)[::-1], rng.permutation(2 * n)]
    found = [PairedMeans.of(errors[order], codes[order], 2, np.ones(2 * n)).error for order in orders]
    # An event is worth one, and four are added to those there are.
    variance = np.array([4 * (n - 4), n - 1]) / (n**2 * (n - 1)) + 4 / n**2
    for one in found:
        np.testing.assert_allclose(one[:, 0], np.sqrt(variance))
