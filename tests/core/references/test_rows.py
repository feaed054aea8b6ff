"""Means and standard errors of contexts, against loops and repeated rows."""

import numpy as np
import pytest

from counterpoise.core.references import ContextRows


def drawn(seed, n_contexts=5, rows=(2, 9)):
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(n_contexts), rng.integers(*rows, n_contexts)))
    return codes, rng.normal(size=len(codes)) + codes, rng.integers(1, 4, len(codes)).astype(np.float64)


def by_hand(codes, values):
    """Return the standard errors of rows that count once, by numpy's own formula."""
    return np.array([np.std(values[codes == c], ddof=1) / np.sqrt((codes == c).sum()) for c in range(codes.max() + 1)])


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_count_once_have_the_textbook_standard_error(seed):
    codes, values, _ = drawn(seed)
    rows = ContextRows(codes, np.ones(len(codes)), 5)
    np.testing.assert_allclose(rows.standard_errors(values), by_hand(codes, values), rtol=1e-12)
    np.testing.assert_allclose(rows.means(values), [values[codes == c].mean() for c in range(5)], rtol=1e-12)


@pytest.mark.parametrize("prior", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_whole_weight_is_the_same_as_repeating_the_row(seed, prior):
    codes, values, weight = drawn(seed)
    times = weight.astype(int)
    repeated = ContextRows(np.repeat(codes, times), np.ones(times.sum()), 5)
    weighted = ContextRows(codes, weight, 5)
    many = np.repeat(values, times)
    np.testing.assert_allclose(weighted.means(values), repeated.means(many), rtol=1e-12)
    np.testing.assert_allclose(
        weighted.standard_errors(values, prior), repeated.standard_errors(many, prior), rtol=1e-12
    )


def test_one_row_gets_the_deviation_within_the_other_contexts():
    codes = np.array([0, 0, 0, 1, 1, 2, 3])
    values = np.array([1.0, 2.0, 6.0, 0.0, 5.0, 9.0, -4.0])
    weight = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0])
    # Squared deviations 14 and 12.5, with 2 and 1 degrees of freedom.
    deviation = np.sqrt((14.0 + 12.5) / 3.0)
    expected = [np.sqrt(7.0 / 3.0), np.sqrt(12.5 / 2.0), deviation, deviation / 2.0]
    np.testing.assert_allclose(ContextRows(codes, weight, 4).standard_errors(values), expected)


def test_where_every_context_is_one_row_the_deviation_is_that_of_all():
    values = np.array([3.0, 1.0, -2.0, 7.0])
    rows = ContextRows(np.arange(4), np.ones(4), 4)
    np.testing.assert_allclose(rows.standard_errors(values), np.full(4, np.std(values, ddof=1)))
    assert ContextRows(np.zeros(1, dtype=int), np.ones(1), 1).standard_errors(values[:1]).tolist() == [0.0]


def test_prior_rows_let_no_context_be_certain_by_chance():
    codes = np.repeat([0, 1, 2], [2, 30, 30])
    values = np.random.default_rng(0).normal(size=62)
    values[:2] = 0.3
    rows = ContextRows(codes, np.ones(62), 3)
    plain, moderate = rows.standard_errors(values), rows.standard_errors(values, prior=1.0)
    assert plain[0] == 0.0
    pooled = np.sqrt(np.sum(np.square(plain[1:]) * 30 * 29) / 59)
    assert moderate[0] == pytest.approx(pooled / 2.0)
    np.testing.assert_allclose(moderate[1:], plain[1:], rtol=0.02)


def test_what_is_not_finite_stays_in_its_context():
    codes, values, weight = drawn(1)
    spoiled = np.where(codes == 2, np.inf, values)
    rows, others = ContextRows(codes, weight, 5), np.arange(5) != 2
    assert rows.means(spoiled)[2] == np.inf
    assert np.isnan(rows.standard_errors(spoiled)[2])
    np.testing.assert_allclose(rows.means(spoiled)[others], rows.means(values)[others])
    np.testing.assert_allclose(rows.standard_errors(spoiled)[others], rows.standard_errors(values)[others])


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_size_of_the_values_does_not_matter(scale):
    codes, values, weight = drawn(2)
    rows = ContextRows(codes, weight, 5)
    np.testing.assert_allclose(rows.standard_errors(scale * values) / scale, rows.standard_errors(values), rtol=1e-12)


def test_weights_that_sum_to_one_row_have_a_standard_error_all_the_same():
    codes, values, _ = drawn(3)
    share = 1.0 / np.bincount(codes)[codes]
    found = ContextRows(codes, share, 5).standard_errors(values)
    deviation = np.array([np.std(values[codes == c]) for c in range(5)])
    np.testing.assert_allclose(found, np.sqrt(2.0) * deviation)
