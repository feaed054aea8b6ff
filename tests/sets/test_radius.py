import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import stats

from counterpoise.exceptions import CoverageWarning, InvalidInputError
from counterpoise.sets import confidence_radius

PROPERTY = settings(max_examples=80, deadline=None, derandomize=True)

BY_NUMBER = ["types", "agrawal", "calibrated", "chi2"]
"""Methods that go by the numbers of contexts and of draws alone."""

METHODS = [*BY_NUMBER, "anytime"]
CONFIDENCES = st.floats(0, 1, exclude_max=True) | st.sampled_from([0.0, 5e-324, 0.5, 0.9, 0.99, 1 - 1e-9, 1 - 2**-53])

STOCK_COUNTS = [280, 14, 14, 14, 13, 13, 13, 13, 13, 13]
"""The ten contexts of the stock task, 400 samples, the first with probability .7."""


@st.composite
def counts(draw, max_contexts=60):
    """Enough draws per context for the chi-squared limit to be used without a warning."""
    size = draw(st.integers(1, max_contexts))
    return np.array(draw(st.lists(st.integers(0, 2000), min_size=size, max_size=size))) + 10_000 * np.eye(1, size)[0]


# --- properties ---------------------------------------------------------------------------------------------


@PROPERTY
@given(counts(), CONFIDENCES)
def test_types_is_the_formula_of_the_paper(n_c, confidence):
    with mp.workdps(50):
        n = mpf(float(n_c.sum()))
        expected = (len(n_c) * mp.log(n + 1, 2) - mp.log(1 - mpf(confidence), 2)) / n
    assert confidence_radius(n_c, confidence) == pytest.approx(float(expected), rel=1e-14, abs=0)


@PROPERTY
@given(counts(), CONFIDENCES)
def test_agrawal_solves_its_equation_on_the_right_branch(n_c, confidence):
    radius = confidence_radius(n_c, confidence, "agrawal")
    k = len(n_c) - 1
    if k == 0:
        assert radius == 0.0
        return
    with mp.workdps(60):
        surprise = -mp.log(1 - mpf(confidence))
        # x = k (1 + z) with z - log(1 + z) = surprise / k, solved by the lower branch of Lambert's function.
        x = -k * mp.lambertw(-mp.exp(-1 - surprise / k), -1).real
        assert abs(x - k - k * mp.log(x / k) - surprise) < 1e-25 * (1 + surprise)
        expected = x / (mpf(float(n_c.sum())) * mp.ln(2))
    assert radius == pytest.approx(float(expected), rel=1e-13, abs=0)


@PROPERTY
@given(counts(), st.just(0.0) | st.floats(0.01, 1 - 1e-9))
def test_chi2_is_half_the_quantile_per_draw(n_c, confidence):
    expected = stats.chi2.ppf(confidence, len(n_c) - 1) / (2 * n_c.sum() * math.log(2)) if len(n_c) > 1 else 0.0
    # Down to a confidence of .01, 1 - confidence keeps enough digits of it; further down nobody asks.
    assert confidence_radius(n_c, confidence, "chi2") == pytest.approx(expected, rel=1e-9, abs=0)


@pytest.mark.parametrize("method", METHODS)
@PROPERTY
@given(counts(), CONFIDENCES, CONFIDENCES)
def test_radius_grows_with_the_confidence(method, n_c, one, other):
    low, high = sorted((one, other))
    assert 0 <= confidence_radius(n_c, low, method) <= confidence_radius(n_c, high, method) < math.inf


@pytest.mark.parametrize("method", BY_NUMBER)
@PROPERTY
@given(counts(), CONFIDENCES)
def test_only_the_number_of_contexts_and_of_draws_matters(method, n_c, confidence):
    expected = confidence_radius(n_c, confidence, method)
    assert confidence_radius(np.roll(n_c, 1), confidence, method) == pytest.approx(expected, rel=1e-14, abs=0)
    spread = np.full(len(n_c), n_c.sum() / len(n_c))
    assert confidence_radius(spread, confidence, method) == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize("method", BY_NUMBER)
@PROPERTY
@given(counts(), CONFIDENCES, st.floats(2000, 1e9))
def test_draws_replace_the_number_of_samples(method, n_c, confidence, draws):
    as_counts = np.append(np.zeros(len(n_c) - 1), draws)
    assert confidence_radius(n_c, confidence, method, draws=draws) == confidence_radius(as_counts, confidence, method)


@pytest.mark.parametrize("method", METHODS)
@PROPERTY
@given(counts(), CONFIDENCES)
def test_radius_vanishes_as_data_accumulate(method, n_c, confidence):
    # n times the radius is at most (C log2(n + 1) + 53 bits) for types, and constant for the others.
    bound = (len(n_c) * math.log2(1e15) + 53) / 1e14
    assert confidence_radius(n_c, confidence, method, draws=1e14) <= max(bound, len(n_c) * 1e-11)


@pytest.mark.parametrize("method", METHODS)
@PROPERTY
@given(counts())
def test_full_confidence_is_the_whole_simplex(method, n_c):
    assert confidence_radius(n_c, 1, method) == math.inf


# --- examples -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("confidence", "radius"), [(0.99, 0.233), (0.0, 0.216)])
def test_radius_of_the_stock_task_is_the_one_of_the_paper(confidence, radius):
    assert confidence_radius(STOCK_COUNTS, confidence) == pytest.approx(radius, abs=5e-4)


@pytest.mark.parametrize("confidence", [0.0, 0.5, 0.9, 0.99, 0.999999])
@pytest.mark.parametrize("n_c", [STOCK_COUNTS, [10_000, 10_000, 10_000], [400] * 100])
def test_agrawal_is_at_least_twice_as_tight_as_types(n_c, confidence):
    tight, loose = (confidence_radius(n_c, confidence, method) for method in ("agrawal", "types"))
    assert tight > 0
    assert loose / tight > 2


def test_agrawal_is_two_to_five_times_as_tight_on_the_stock_task():
    ratio = confidence_radius(STOCK_COUNTS, 0.99) / confidence_radius(STOCK_COUNTS, 0.99, "agrawal")
    assert 2 < ratio < 5


def test_chi2_is_tighter_than_agrawal():
    assert confidence_radius(STOCK_COUNTS, 0.99, "chi2") < confidence_radius(STOCK_COUNTS, 0.99, "agrawal")


def test_types_at_99_percent_is_the_default():
    assert confidence_radius(STOCK_COUNTS) == confidence_radius(STOCK_COUNTS, 0.99, "types")


def test_unseen_contexts_count():
    assert confidence_radius([50, 50, 0]) > confidence_radius([50, 50])


def test_result_is_a_plain_float():
    assert all(type(confidence_radius(STOCK_COUNTS, 0.9, method)) is float for method in METHODS)


@pytest.mark.parametrize(("n_c", "draws"), [([3] * 100, None), ([1, 1], None), ([1000] * 100, 300)])
def test_chi2_warns_when_draws_are_few(n_c, draws):
    with pytest.warns(CoverageWarning, match="method='calibrated'"):
        confidence_radius(n_c, 0.9, "chi2", draws=draws)


@pytest.mark.parametrize("method", ["types", "agrawal", "calibrated", "anytime"])
def test_bounds_for_every_n_do_not_warn(method):
    assert confidence_radius([1, 1, 0], 0.9, method) > 0


def test_full_confidence_needs_no_warning_about_coverage():
    assert confidence_radius([1, 1], 1.0, "chi2") == math.inf


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confidence", [-0.1, 1.1, -1e-300, math.nan, math.inf, 99])
def test_confidence_outside_its_range_is_refused(confidence):
    with pytest.raises(InvalidInputError, match=r"confidence = .*must lie in \[0, 1\]"):
        confidence_radius([10, 10], confidence)


@pytest.mark.parametrize("confidence", ["high", None, [0.9, 0.8], 1j])
def test_confidence_that_is_no_number_is_refused(confidence):
    with pytest.raises(InvalidInputError, match=r"confidence must be a number in \[0, 1\]"):
        confidence_radius([10, 10], confidence)


@pytest.mark.parametrize(
    ("n_c", "message"),
    [
        ([], "one number per context"),
        ([[1, 2]], "one number per context"),
        (400, "one number per context"),
        (None, "one number per context"),
        ([3, -1], r"counts\[1\] = -1"),
        ([math.nan, 3], r"counts\[0\] = nan"),
        ([3, math.inf], r"counts\[1\] = inf"),
        ([0, 0, 0], "all zero"),
        ("many", "must be numbers"),
        (["a", "b"], "must be numbers"),
        ([[1], [2, 3]], "must be numbers"),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_counts_that_are_no_counts_are_refused(method, n_c, message):
    with pytest.raises(InvalidInputError, match=message):
        confidence_radius(n_c, 0.9, method)


@pytest.mark.parametrize("draws", [0, -5, math.nan, math.inf, "few", [1, 2]])
def test_draws_that_are_no_positive_number_are_refused(draws):
    with pytest.raises(InvalidInputError, match="draws"):
        confidence_radius([10, 10], 0.9, draws=draws)


@pytest.mark.parametrize("method", ["hoeffding", "Types", None, 3, ["types"]])
def test_unknown_method_is_refused_and_the_choices_are_listed(method):
    with pytest.raises(InvalidInputError, match="choose 'types', 'agrawal', 'calibrated', 'chi2' or 'anytime'"):
        confidence_radius([10, 10], 0.9, method)
