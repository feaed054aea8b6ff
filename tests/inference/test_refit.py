"""Gain of a refit: between nothing and the excess, and what a refit of the rows really gains nearby."""

import math

import numpy as np
import pytest

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from counterpoise.inference.refit import most_gain, refit_gain
from counterpoise.losses import Logistic
from tests.problems import make

K = np.array([[1.0, -1.0], [-1.0, 1.0]])


def test_nothing_is_gained_for_the_mix_the_model_is_optimal_for():
    assert refit_gain(K, None, [0.5, 0.5]) == 0.0


def test_it_is_half_the_square_and_never_more_than_the_excess():
    assert refit_gain(K, None, [1.0, 0.0]) == 0.5
    assert refit_gain(K, [0.8, 0.1], [1.0, 0.0]) == 0.5
    assert refit_gain(K, [0.3, 0.8], [1.0, 0.0]) == 0.3
    assert refit_gain(K, [-0.3, 0.8], [1.0, 0.0]) == 0.0
    assert refit_gain(K, [0.3, math.inf], [1.0, 0.0]) == 0.3
    # Where an excess is not known, there is no limit to keep to.
    assert refit_gain(K, [math.nan, 0.0], [1.0, 0.0]) == 0.5
    assert refit_gain(K, [math.inf, 0.0], [1.0, 0.0]) == 0.5


def test_rounding_leaves_no_gain_below_zero():
    assert refit_gain([[-1e-18]], None, [1.0]) == 0.0


def test_without_influence_only_the_most_is_known():
    assert math.isnan(refit_gain(None, [0.4, 0.2], [0.5, 0.5]))
    assert most_gain([0.4, 0.2], [0.5, 0.5]) == pytest.approx(0.3)
    assert most_gain([0.4, -0.2], [0.5, 0.5]) == pytest.approx(0.2)
    assert most_gain([0.4, math.nan], [1.0, 0.0]) == 0.4
    assert most_gain([0.4, math.inf], [1.0, 0.0]) == 0.4
    assert math.isnan(most_gain([0.4, math.nan], [0.9, 0.1]))
    assert math.isnan(most_gain(None, [0.9, 0.1]))


@pytest.mark.parametrize(
    ("influence", "excess", "mix", "said"),
    [
        (K, None, [0.5, 0.6], "mix sums to 1.1"),
        (K, None, [1.5, -0.5], "not negative"),
        (K, None, [1.0], "influence has shape"),
        (K, [1.0, 2.0, 3.0], [0.5, 0.5], "excess has shape"),
        (K, "much", [0.5, 0.5], "excess must be numbers"),
        (K * math.nan, None, [0.5, 0.5], "not finite"),
    ],
)
def test_what_cannot_be_meant_is_refused(influence, excess, mix, said):
    with pytest.raises(InvalidInputError, match=said):
        refit_gain(influence, excess, mix)


@pytest.mark.parametrize("seed", range(3))
def test_a_refit_gains_no_more_than_the_most_and_about_the_estimate(seed):
    X, y, codes = make(Logistic(), 4, 2, seed, (60, 120))
    options = {"alpha": 0.01, "reference": "in-sample"}
    model = cpo.RobustLogisticRegression(tol=1e-10, radius=0.2, **options).fit(X, y, contexts=codes)
    rng = np.random.default_rng(seed)
    for share, near in ((0.05, 0.05), (1.0, 0.6)):
        mix = (1 - share) * model.context_weights_ + share * rng.dirichlet(np.ones(4))
        mix = mix / mix.sum()
        known = cpo.Mix(shares=dict(enumerate(mix.tolist())), radius=0.0)
        other = cpo.RobustLogisticRegression(tol=1e-12, mix=known, **options).fit(X, y, contexts=codes)
        gained = float(mix @ (model.context_risks_ - other.context_risks_))
        most = most_gain(model.excess_risks_, mix)
        assert 0.0 <= gained <= most + 1e-9
        estimate = refit_gain(model.context_influence_, model.excess_risks_, mix)
        assert 0.0 <= estimate <= most
        assert estimate == pytest.approx(gained, rel=near)
