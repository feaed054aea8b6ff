"""What fitting noise gains, against simulations in which it is known, and what is concluded from it."""

from itertools import product

import numpy as np
import pytest
from scipy.special import expit

import counterpoise as cpo
from counterpoise.core.references import measure_optimism, most_optimism
from counterpoise.core.references.optimism import MATTERS, MOSTLY, Optimism
from counterpoise.core.references.specialists import fit_specialists, sketched
from counterpoise.exceptions import SmallContextWarning
from counterpoise.losses import Logistic, Pinball, Poisson, Squared
from counterpoise.sets import KLBall
from tests.problems import oracle_of

SIZES, P = np.array([600, 300, 150]), 6


def drawn(loss, rng, spread=0.0):
    """Return contexts that share their coefficients, but for a spread; targets as the loss wants them."""
    codes = np.repeat(np.arange(3), SIZES)
    X = rng.normal(size=(len(codes), P - 1))
    coef = np.full(P - 1, 0.4) + spread * rng.normal(size=(3, P - 1))
    z = np.sum(X * coef[codes], axis=1) + 0.3
    if loss.name == "logistic":
        return X, (rng.random(len(z)) < expit(z)).astype(float), codes, z
    if loss.name == "poisson":
        return X, rng.poisson(np.exp(z)).astype(float), codes, z
    noise = rng.laplace(size=len(z)) if loss.name == "pinball" else 2.0 * rng.normal(size=len(z))
    return X, z + noise, codes, z


def measured(loss, X, y, codes, alpha=1e-8, weight=None, **options):
    oracle = oracle_of(loss, X, y, codes, alpha=alpha, sample_weight=weight, **options)
    own = fit_specialists(oracle, 1e-8)
    return measure_optimism(oracle, own, np.bincount(codes, weight).astype(np.float64)), own


@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Squared(), Pinball(0.5)], ids=lambda loss: loss.name)
def test_noise_is_what_minima_lie_below_the_truth_by(loss):
    rng, gains, noise = np.random.default_rng(0), [], []
    for _ in range(60):
        X, y, codes, z = drawn(loss, rng)
        found, own = measured(loss, X, y, codes)
        truth = np.bincount(codes, loss.value(y, z)) / SIZES
        gains.append(truth - own.risks.upper)
        noise.append(found.noise)
    # Of 60 draws the mean gain is known to about a twentieth; the formula is the first order of it.
    np.testing.assert_allclose(np.mean(noise, axis=0), np.mean(gains, axis=0), rtol=0.2)
    if loss.name in ("logistic", "poisson"):
        np.testing.assert_allclose(np.mean(noise, axis=0), P / (2.0 * SIZES), rtol=0.05)


def test_excess_is_that_of_the_plain_model():
    X, y, codes, _ = drawn(Logistic(), np.random.default_rng(1), spread=0.5)
    found, own = measured(Logistic(), X, y, codes, alpha=1e-3)
    oracle = oracle_of(Logistic(), X, y, codes, alpha=1e-3)
    one = oracle_of(Logistic(), X, y, np.zeros(len(y), dtype=int), alpha=1e-3)
    plain = fit_specialists(one, 1e-10).theta[0]
    np.testing.assert_allclose(found.excess, oracle.at(plain).risks - own.risks.upper, rtol=0.05, atol=1e-4)
    known = measure_optimism(oracle, own, SIZES.astype(float), plain)
    np.testing.assert_allclose(known.excess, oracle.at(plain).risks - own.risks.upper, rtol=1e-3, atol=1e-6)


def test_whole_weights_are_repeated_rows():
    X, y, codes, _ = drawn(Squared(), np.random.default_rng(2))
    weight = np.random.default_rng(3).integers(1, 4, len(y))
    one, _ = measured(Squared(), X, y, codes, weight=weight.astype(float))
    many, _ = measured(Squared(), np.repeat(X, weight, axis=0), np.repeat(y, weight), np.repeat(codes, weight))
    np.testing.assert_allclose(one.noise, many.noise, rtol=1e-9)
    np.testing.assert_allclose(one.excess, many.excess, rtol=1e-6)


def test_a_ridge_leaves_fewer_parameters():
    X, y, codes, _ = drawn(Logistic(), np.random.default_rng(4))
    free, _ = measured(Logistic(), X, y, codes)
    held, _ = measured(Logistic(), X, y, codes, alpha=1.0)
    assert (held.noise < 0.6 * free.noise).all()


def test_more_spread_counts_than_a_likelihood_expects_more_noise():
    rng = np.random.default_rng(5)
    X, _, codes, z = drawn(Poisson(), rng)
    calm, wild = (rng.poisson(np.exp(z) * scale) for scale in (1.0, rng.gamma(0.2, 5.0, len(z))))
    one, other = (measured(Poisson(), X, y.astype(float), codes)[0] for y in (calm, wild))
    assert (other.noise > 2.0 * one.noise).all()


def test_a_context_that_is_fitted_perfectly_is_not_taken_at_its_word():
    rng = np.random.default_rng(6)
    codes = np.repeat([0, 1], [500, 7])
    X = rng.normal(size=(507, 5))
    y = (rng.random(507) < expit(X[:, 0])).astype(float)
    found, own = measured(Logistic(), X, y, codes, alpha=1e-4)
    assert own.risks.upper[1] < 0.05
    assert found.noise[1] > 0.3 * found.excess[1]


def test_conclusions():
    """Noise prevails where it is most of the excess, and the set makes enough of it."""
    centre, small = np.array([0.6, 0.3, 0.1]), np.array([0.001, 0.002, 0.01])
    every = KLBall(centre, np.inf)
    assert Optimism(2.0 * small, small, 0.3).prevails(every)
    assert not Optimism(4.0 * small, small, 0.3).prevails(every)
    assert MOSTLY < 0.5
    # Near one mix nothing is made of differences, nor of noise that is the same everywhere.
    assert not Optimism(2.0 * small, small, 0.3).prevails(KLBall(centre, 1e-9))
    assert not Optimism(np.full(3, 0.01), np.full(3, 0.01), 0.3).prevails(every)
    # Nor where contexts gain nothing by models of their own.
    assert not Optimism(0.0 * small, small, 0.3).prevails(every)
    assert not Optimism(2.0 * small, small, 1.1 * (0.01 - float(centre @ small)) / MATTERS).prevails(every)
    assert Optimism(2.0 * small, small, 0.9 * (0.01 - float(centre @ small)) / MATTERS).prevails(every)


@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Squared()], ids=lambda loss: loss.name)
def test_a_first_look_misses_nothing_and_spares_clear_cases(loss):
    every, told = KLBall(SIZES / SIZES.sum(), np.inf), []
    for seed, spread in product(range(10), (0.0, 0.1, 0.2)):
        X, y, codes, _ = drawn(loss, np.random.default_rng(seed), spread)
        found, own = measured(loss, X, y, codes, alpha=1e-3)
        oracle, counts = oracle_of(loss, X, y, codes, alpha=1e-3), SIZES.astype(float)
        most = most_optimism(sketched(oracle, counts), own, counts)
        told.append((found.prevails(every), most.prevails(every)))
    assert all(first or not full for full, first in told)
    assert any(full for full, _ in told)
    X, y, codes, _ = drawn(loss, np.random.default_rng(0), 0.7)
    oracle = oracle_of(loss, X, y, codes, alpha=1e-3)
    most = most_optimism(sketched(oracle, SIZES.astype(float)), fit_specialists(oracle, 1e-8), 20.0 * SIZES)
    assert not most.prevails(every)


@pytest.mark.parametrize("n_single", [1, 2])
def test_contexts_of_one_row_are_all_noise(n_single):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 3))
    y = (X[:, 0] + rng.logistic(size=1000) > 0).astype(int)
    codes = np.r_[np.arange(1000 - n_single) % 3, 3 + np.arange(n_single)]
    model = cpo.RobustLogisticRegression(confidence=1.0)
    with pytest.warns(SmallContextWarning, match="optimism"):
        model.fit(X, y, contexts=codes)
    assert model.reference_ == "cross-fit"
