"""The mixture of likelihoods, and the radius that holds at every number of draws at once."""

import math

import numpy as np
import pytest
from scipy import integrate, special, stats

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import (
    Chi2Ball,
    KLBall,
    TotalVariationBall,
    confidence_radius,
    covering_radius,
    implied_confidence,
)
from counterpoise.sets.evidence import log_mixture


def test_a_sequence_has_the_probability_of_its_counts_divided_among_their_orders():
    x, a = np.array([3, 1, 4]), np.array([0.5, 2.0, 1.5])
    orders = special.gammaln(x.sum() + 1) - special.gammaln(x + 1).sum()
    assert log_mixture(x, a) == pytest.approx(stats.dirichlet_multinomial(a, x.sum()).logpmf(x) - orders, rel=1e-12)


def test_it_is_the_mean_likelihood_of_the_prior():
    found = integrate.quad(lambda q: q**2.5 * (1 - q) ** 4 * stats.beta(0.5, 0.5).pdf(q), 0.0, 1.0)[0]
    assert math.exp(log_mixture([2.5, 4.0])) == pytest.approx(found, rel=1e-7)


def test_each_draw_multiplies_it_by_its_predicted_probability():
    rng, counts, total = np.random.default_rng(0), np.zeros(4), 0.0
    for context in rng.integers(4, size=50):
        total += math.log((counts[context] + 0.5) / (counts.sum() + 2.0))
        counts[context] += 1
    assert log_mixture(counts) == pytest.approx(total, rel=1e-12)
    assert log_mixture(np.zeros(4)) == 0.0


def test_a_batch_is_its_rows_and_one_number_stands_for_all_contexts():
    counts = np.random.default_rng(1).poisson(5.0, (2, 3, 4))
    found = log_mixture(counts, 0.5)
    assert found.shape == (2, 3)
    assert found[1, 2] == pytest.approx(log_mixture(counts[1, 2], np.full(4, 0.5)), rel=1e-15)


def test_it_agrees_with_many_digits_where_counts_are_large():
    mpmath = pytest.importorskip("mpmath")
    x = [123456789, 1, 0, 987654]
    with mpmath.workdps(40):
        half = mpmath.mpf("0.5")
        exact = mpmath.loggamma(2) - mpmath.loggamma(2 + sum(x))
        exact += sum(mpmath.loggamma(one + half) - mpmath.loggamma(half) for one in x)
    assert log_mixture(x) == pytest.approx(float(exact), abs=1e-15 * 20 * sum(x))


@pytest.mark.parametrize(
    ("counts", "prior", "said"),
    [
        ([1.0, -1.0], 0.5, "negative"),
        ([1.0, 2.0], 0.0, "positive"),
        ([1.0, 2.0], [0.5, 0.5, 0.5], "each of 2 contexts"),
        (3.0, 0.5, "one number per context"),
        (["a"], 0.5, "must be numbers"),
    ],
)
def test_what_is_wrong_is_named(counts, prior, said):
    with pytest.raises(InvalidInputError, match=said):
        log_mixture(counts, prior)


@pytest.mark.parametrize("p", [[0.9, 0.1], [0.7, 0.25, 0.05], [0.97, 0.02, 0.01]], ids=str)
def test_the_true_mix_is_seldom_ever_lost_though_one_looks_after_every_draw(p):
    n_streams, n_draws, p = 400, 2000, np.array(p)
    rng = np.random.default_rng(len(p))
    drawn = rng.choice(len(p), (n_streams, n_draws), p=p)
    counts = np.cumsum(drawn[..., None] == np.arange(len(p)), axis=1).astype(float)
    n = np.arange(1, n_draws + 1)
    with np.errstate(divide="ignore"):
        divergence = special.xlogy(counts, counts / n[:, None] / p).sum(axis=2) / n
    anytime = (math.log(20.0) + special.xlogy(counts, counts / n[:, None]).sum(axis=2) - log_mixture(counts)) / n
    for stream, k in ((0, 0), (3, 17), (7, n_draws - 1)):
        radius = confidence_radius(counts[stream, k], 0.95, "anytime")
        assert radius * math.log(2.0) == pytest.approx(anytime[stream, k], rel=1e-10)
    lost = (divergence > anytime).any(axis=1).mean()
    assert lost <= 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / n_streams)
    # A radius for one number of draws, looked at after each, loses it more often.
    fixed = np.array([stats.chi2(len(p) - 1).ppf(0.95) / 2.0]) / n
    assert (divergence > fixed).any(axis=1).mean() > 0.25


def test_the_radius_depends_on_the_counts_and_draws_scale_them():
    even, uneven = (confidence_radius(x, 0.95, "anytime") for x in ([50, 50], [99, 1]))
    assert even != pytest.approx(uneven, rel=1e-3)
    assert confidence_radius([30, 10], 0.95, "anytime", draws=20) == confidence_radius([15, 5], 0.95, "anytime")
    fractional = confidence_radius([30, 10], 0.95, "anytime", draws=7.3)
    assert fractional > confidence_radius([30, 10], 0.95, "anytime", draws=8)


@pytest.mark.parametrize("counts", [[1, 0], [30, 10, 3], [10**6, 5, 0, 12]])
def test_the_confidence_of_a_radius_is_the_one_it_was_made_for(counts):
    for confidence in (0.0, 0.3, 0.9, 0.999999):
        radius = confidence_radius(counts, confidence, "anytime", draws=40)
        assert implied_confidence(radius, counts, "anytime", draws=40) == pytest.approx(confidence, abs=1e-9)
    assert implied_confidence(0.0, counts, "anytime") == 0.0


@pytest.mark.parametrize("counts", [[60, 30, 10], [400, 3], [20, 20, 20, 20, 1]])
def test_other_balls_hold_every_mix_of_the_kl_ball(counts):
    p_hat = np.array(counts) / np.sum(counts)
    ball = KLBall(p_hat, covering_radius("kl", counts, 0.9, "anytime"))
    chi2 = Chi2Ball(p_hat, covering_radius("chi2", counts, 0.9, "anytime"))
    tv = TotalVariationBall(p_hat, covering_radius("tv", counts, 0.9, "anytime"))
    rng = np.random.default_rng(0)
    scores = np.vstack([rng.standard_normal((300, len(p_hat))), np.eye(len(p_hat)), -np.eye(len(p_hat))])
    rim = ball.worst_case(scores).distribution
    distances = np.array([chi2.divergence(p) for p in rim])
    assert (distances <= chi2.radius * (1 + 1e-9)).all()
    # It is no larger than it has to be.
    assert distances.max() == pytest.approx(chi2.radius, rel=1e-9)
    assert all(tv.contains(p) for p in rim)


def test_a_chi_square_ball_is_everything_until_each_context_was_drawn():
    assert covering_radius("chi2", [10, 5, 0], 0.9, "anytime") == math.inf
    assert covering_radius("chi2", [10], 0.9, "anytime") == covering_radius("tv", [10], 0.9, "anytime") == 0.0
    assert covering_radius("chi2", [10, 5], 1.0, "anytime") == math.inf


def test_an_estimator_takes_it():
    rng = np.random.default_rng(0)
    X, contexts = rng.normal(size=(200, 2)), rng.choice(["a", "b", "c"], 200, p=[0.6, 0.3, 0.1])
    y = X[:, 0] + (contexts == "c") * X[:, 1] + 0.1 * rng.normal(size=200)
    model = cpo.RobustLinearRegression(radius="anytime", confidence=0.95).fit(X, y, contexts=contexts)
    counts = [int((contexts == one).sum()) for one in "abc"]
    assert model.radius_ == pytest.approx(confidence_radius(counts, 0.95, "anytime"), rel=1e-12)
    bounded = cpo.RobustLinearRegression(radius="anytime", mix=cpo.Mix(ball="tv")).fit(X, y, contexts=contexts)
    assert bounded.radius_ == covering_radius("tv", counts, 0.99, "anytime")
