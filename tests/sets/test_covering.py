import math
import warnings

import numpy as np
import pytest
from scipy import stats

from counterpoise.exceptions import CoverageWarning, InvalidInputError
from counterpoise.sets import Chi2Ball, KLBall, confidence_radius, covering_radius

METHODS = ["types", "agrawal", "calibrated", "chi2", "anytime"]
COUNTS = [900, 400, 200, 120, 80]


@pytest.mark.parametrize("method", METHODS)
def test_a_kl_ball_has_the_confidence_radius(method):
    expected = confidence_radius(COUNTS, 0.9, method, draws=700)
    assert covering_radius("kl", COUNTS, 0.9, method, draws=700) == expected


@pytest.mark.parametrize("method", METHODS)
def test_a_chi_square_ball_agrees_with_the_kl_ball_in_the_limit(method):
    counts = 10**8 * np.array(COUNTS)
    p_hat = counts / counts.sum()
    for context in range(len(counts)):
        kl = np.array(KLBall(p_hat, covering_radius("kl", counts, 0.95, method)).interval(context))
        chi2 = np.array(Chi2Ball(p_hat, covering_radius("chi2", counts, 0.95, method)).interval(context))
        assert chi2 - p_hat[context] == pytest.approx(kl - p_hat[context], rel=1e-3)


@pytest.mark.parametrize(("method", "counts"), [("calibrated", [400, 49]), ("agrawal", [400, 14]), ("types", [400, 0])])
def test_a_chi_square_ball_warns_of_rare_contexts(method, counts):
    with pytest.warns(CoverageWarning, match="the rarest stands for .* draws"):
        covering_radius("chi2", counts, 0.9, method)
    with pytest.warns(CoverageWarning, match="stands for 9 draws"):
        covering_radius("chi2", [90, 90], 0.9, method, draws=18)


@pytest.mark.parametrize("method", METHODS)
def test_a_chi_square_ball_does_not_warn_of_contexts_with_draws_enough(method):
    assert covering_radius("chi2", [400, 50], 0.9, method) > 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("n_contexts", "n"), [(2, 10), (2, 200), (5, 20), (5, 1000), (30, 60), (200, 5000)])
def test_total_variation_is_covered(method, n_contexts, n):
    rng = np.random.default_rng([n_contexts, n])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        radius = covering_radius("tv", np.ones(n_contexts), 0.9, method, draws=n)
    for p in (np.full(n_contexts, 1.0 / n_contexts), rng.dirichlet(np.ones(n_contexts))):
        distance = 0.5 * np.abs(rng.multinomial(n, p, size=3000) / n - p).sum(axis=1)
        assert (distance <= radius).mean() > 0.9 - 3.5 * math.sqrt(0.9 * 0.1 / 3000)


@pytest.mark.parametrize("n_contexts", [2, 3, 10, 40, 1000])
def test_the_calibrated_total_variation_is_smaller_than_the_bound(n_contexts):
    counts = np.full(n_contexts, 1000)
    ratio = covering_radius("tv", counts, 0.95, "calibrated") / covering_radius("tv", counts, 0.95, "agrawal")
    assert 0.6 < ratio < 0.95


def test_the_bound_on_total_variation_is_its_formula():
    expected = 0.5 * math.sqrt(4 / 1700) + math.sqrt(math.log(20) / 3400)
    assert covering_radius("tv", COUNTS, 0.95) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 12, 100, 3000])
def test_no_binomial_count_deviates_more_than_the_calibrated_bound_assumes(n):
    # Its mean part, with the confidence 0 and Pinsker's inequality out of the way, is the ratio times half the root.
    p = np.unique(np.r_[np.geomspace(1e-6, 0.5, 4000), np.linspace(1e-4, 1 - 1e-6, 2000)])
    above = np.minimum(np.floor(n * p) + 1, n)
    deviation = 2 * above * (1 - p) * stats.binom.pmf(above, n, p)
    ratio = (deviation / np.sqrt(n * p * (1 - p))).max()
    assert ratio <= math.sqrt(2) * (1 - 0.5 / n) ** (n - 0.5) + 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_ends_of_total_variation(method):
    assert covering_radius("tv", [3, 4, 500], 1.0, method) == 1.0
    assert covering_radius("tv", [30], 0.9, method) == 0.0


def test_total_variation_is_at_most_one():
    assert covering_radius("tv", [1, 1, 1], 0.99) == 1.0


def test_an_infinite_chi_square_ball_warns_of_nothing():
    assert covering_radius("chi2", [3, 0], 1.0) == math.inf


def test_an_unknown_ball_is_refused():
    with pytest.raises(InvalidInputError, match="choose 'kl', 'chi2' or 'tv'"):
        covering_radius("wasserstein", [3, 4])
