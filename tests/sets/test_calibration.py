import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from counterpoise.sets import confidence_radius, implied_confidence
from counterpoise.sets.calibration import calibration_table

PROPERTY = settings(max_examples=80, deadline=None, derandomize=True)

LEVELS = [0.5, 0.8, 0.9, 0.95, 0.99, 0.999]

CONTEXTS = st.integers(2, 40) | st.integers(2, 3000)
DRAWS = st.floats(0.3, 60) | st.floats(0.3, 1e9)
CONFIDENCES = st.floats(0, 1, exclude_max=True) | st.sampled_from([0.0, 0.01, 0.9, 0.95, 0.99, 0.999999, 1 - 1e-9])


def nats(n_contexts, n, confidence, method="calibrated"):
    """n times the radius, in nats."""
    return confidence_radius(np.full(n_contexts, 1.0), confidence, method, draws=n) * n * math.log(2)


# --- against enumeration ------------------------------------------------------------------------------------


def least_coverage_of_two(n, level):
    """The least probability, over all mixes of two contexts, that n D is at most a level: exact.

    A count x is within the level for an interval of p. Between the ends of these intervals the counts within it stay
    the same, and are consecutive; their probability rises and then falls in p, so that it is least at an end.
    """
    x = np.arange(n + 1.0)

    def statistic(p):
        p = np.clip(p, 1e-15, 1 - 1e-15)
        return special.xlogy(x, x / (n * p)) + special.xlogy(n - x, (n - x) / (n * (1 - p)))

    def end(outside):
        inside = np.clip(x / n, 1e-15, 1 - 1e-15)
        outside = np.full(n + 1, outside)
        for _ in range(200):
            middle = 0.5 * (inside + outside)
            within = statistic(middle) <= level
            inside, outside = np.where(within, middle, inside), np.where(within, outside, middle)
        return inside

    low, high = end(0.0), end(1.0)
    ends = np.r_[low[low > 1e-12], high[high < 1 - 1e-12]][:, None]
    # At an end itself and on either side of it; on each side one more count is out.
    chance = stats.binom.pmf(x, n, ends)
    below = (chance * ((low < ends - 1e-13) & (high >= ends - 1e-13))).sum(axis=1)
    above = (chance * ((low <= ends + 1e-13) & (high > ends + 1e-13))).sum(axis=1)
    return min(below.min(), above.min())


@pytest.mark.parametrize("confidence", LEVELS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 9, 11, 14, 20, 37, 61, 90, 240, 1001])
def test_two_contexts_are_covered_at_every_mix(n, confidence):
    assert least_coverage_of_two(n, nats(2, n, confidence)) >= confidence - 1e-9


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("n", [20, 61, 240, 1001])
def test_no_radius_much_smaller_covers_two_contexts(n, confidence):
    assert least_coverage_of_two(n, 0.93 * nats(2, n, confidence)) < confidence


def all_counts(n_contexts, n):
    bars = np.array(list(itertools.combinations(range(n + n_contexts - 1), n_contexts - 1)))
    ends = np.full((len(bars), 1), n + n_contexts - 1)
    return np.diff(np.hstack([np.full_like(ends, -1), bars, ends]), axis=1) - 1.0


def least_coverage(n_contexts, n, level, mixes):
    x = all_counts(n_contexts, n)
    log_likelihood = np.log(mixes) @ x.T
    chance = np.exp(log_likelihood + special.gammaln(n + 1) - special.gammaln(x + 1).sum(axis=1))
    return (chance * (special.xlogy(x, x / n).sum(axis=1) - log_likelihood <= level + 1e-12)).sum(axis=1)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize(
    ("n_contexts", "n"), [(3, 3), (3, 7), (3, 14), (3, 29), (4, 5), (4, 13), (5, 7), (6, 6), (9, 4)]
)
def test_few_draws_are_covered_at_every_mix_found_by_search(n_contexts, n, confidence):
    rng = np.random.default_rng([n_contexts, n])
    level = nats(n_contexts, n, confidence)
    concentration = 10.0 ** rng.uniform(-0.5, 1.5, 400)
    mixes = [rng.dirichlet(np.full(n_contexts, one)) + 1e-9 for one in concentration]
    mixes += [(10.0 ** rng.uniform(-1.5, 0.5, 3))[rng.integers(3, size=n_contexts)] for _ in range(400)]
    mixes = np.array(mixes)
    for spread in (0.1, 0.03, 0.01):
        mixes /= mixes.sum(axis=1, keepdims=True)
        found = least_coverage(n_contexts, n, level, mixes)
        assert found.min() >= confidence - 1e-9
        # Again around those that were covered least.
        worst = mixes[np.argsort(found)[:20]]
        mixes = np.concatenate([worst * np.exp(spread * rng.standard_normal(worst.shape)) for _ in range(20)])


# --- against simulation -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_contexts", "n", "expected"),
    [(8, 500, 2.5), (30, 10_000, 2.0), (150, 400, 1.7), (150, 90, 0.6), (700, 10**7, 1.5)],
)
def test_rare_contexts_are_covered_and_not_by_far(n_contexts, n, expected):
    rng = np.random.default_rng([n_contexts, n])
    p = np.append(np.full(n_contexts - 1, expected), n - expected * (n_contexts - 1)) / n
    x = rng.multinomial(n, p, size=4000).astype(float)
    statistic = special.xlogy(x, x / (n * p)).sum(axis=1)
    for confidence in (0.8, 0.9, 0.95):
        error = math.sqrt(confidence * (1 - confidence) / len(x))
        assert confidence - 3.5 * error < (statistic <= nats(n_contexts, n, confidence)).mean() < confidence + 0.05


# --- properties ---------------------------------------------------------------------------------------------


@PROPERTY
@given(CONTEXTS, DRAWS, CONFIDENCES)
def test_it_is_never_above_a_proven_bound(n_contexts, n, confidence):
    calibrated = nats(n_contexts, n, confidence)
    assert 0 < calibrated <= nats(n_contexts, n, confidence, "agrawal") * (1 + 1e-12)
    whole = math.ceil(n)
    types = special.gammaln(whole + n_contexts) - special.gammaln(n_contexts) - special.gammaln(whole + 1)
    assert calibrated <= (types - math.log1p(-confidence)) * (1 + 1e-9) + 1e-9


@PROPERTY
@given(CONTEXTS, CONTEXTS, DRAWS, DRAWS, CONFIDENCES, CONFIDENCES)
def test_it_is_monotone(c_one, c_two, n_one, n_two, one, two):
    contexts, draws, levels = sorted((c_one, c_two)), sorted((n_one, n_two)), sorted((one, two))

    def radius(c, n, level):
        return confidence_radius(np.ones(c), level, "calibrated", draws=n)

    middle = radius(contexts[0], draws[0], levels[0])
    assert middle <= radius(contexts[1], draws[0], levels[0]) * (1 + 1e-12)
    assert middle <= radius(contexts[0], draws[0], levels[1]) * (1 + 1e-12)
    assert middle >= radius(contexts[0], draws[1], levels[0]) * (1 - 1e-12)


@PROPERTY
@given(CONTEXTS, DRAWS, CONFIDENCES)
def test_implied_confidence_is_the_largest_that_the_radius_affords(n_contexts, n, confidence):
    counts = np.ones(n_contexts)
    radius = confidence_radius(counts, confidence, "calibrated", draws=n)
    implied = implied_confidence(radius * (1 + 1e-12), counts, "calibrated", draws=n)
    assert implied >= confidence - 1e-9
    if implied < 1:
        assert confidence_radius(counts, implied, "calibrated", draws=n) <= radius * (1 + 1e-6)


@pytest.mark.parametrize("n_contexts", [2, 7, 1000, 10**5])
def test_beyond_the_table_the_radius_falls_in_proportion_to_the_draws(n_contexts):
    assert nats(n_contexts, 1e12, 0.95) == pytest.approx(nats(n_contexts, 1e15, 0.95), rel=1e-12)
    assert nats(n_contexts, 1e300, 0.95) == pytest.approx(nats(n_contexts, 1e15, 0.95), rel=1e-12)


def test_beyond_the_last_number_of_contexts_and_at_extreme_confidence_it_is_agrawals():
    for n_contexts, confidence in [(100_001, 0.95), (10, 1 - 1e-9)]:
        agrawal = nats(n_contexts, 1e9, confidence, "agrawal")
        assert nats(n_contexts, 1e9, confidence) == pytest.approx(agrawal, rel=1e-12)


@pytest.mark.parametrize("confidence", [0.0, 0.5, 0.999, 1 - 1e-9])
def test_one_context_needs_no_radius(confidence):
    assert confidence_radius([17], confidence, "calibrated") == 0.0


@pytest.mark.parametrize(("n_contexts", "n"), [(3, 30), (10, 400), (50, 1000), (1000, 10**6)])
def test_it_lies_between_the_limit_and_agrawal(n_contexts, n):
    for confidence in (0.9, 0.95, 0.99):
        limit = special.gammaincinv(0.5 * (n_contexts - 1), confidence)
        assert limit < nats(n_contexts, n, confidence) < 0.7 * nats(n_contexts, n, confidence, "agrawal")


def test_the_table_is_monotone():
    table = calibration_table()
    values = table.log_quantiles
    assert (np.diff(values, axis=0) >= 0).all()
    assert (np.diff(values, axis=2) >= 0).all()
    per_draw = values - table.log_draws[None, :, None]
    assert (np.diff(per_draw, axis=1) <= 1e-9).all()


def test_the_table_is_read_only_when_it_is_needed():
    code = (
        "import counterpoise as cpo; from counterpoise.sets.calibration import calibration_table as table;"
        "cpo.confidence_radius([5, 5], .9); assert table.cache_info().currsize == 0;"
        "cpo.confidence_radius([5, 5], .9, 'calibrated'); assert table.cache_info().currsize == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
