"""Estimators and sets: what an estimator asks of its set, any set of mixes can answer."""

import numpy as np
import pytest

from counterpoise import RobustNewsvendor
from counterpoise.core.fit import Robustness
from counterpoise.estimators.boosting_rounds import Rows, Split, play
from counterpoise.sets import Constraints, ContextSet, KLBall, WorstCase, radius_of


class Contaminated(ContextSet):
    """Mixes of which a share is arbitrary: ``(1 - share) p_hat + share q`` for any distribution ``q``."""

    def __init__(self, p_hat, share):
        self.p_hat, self.share = np.asarray(p_hat), share

    @property
    def is_point(self):
        return self.share == 0.0

    @property
    def is_simplex(self):
        return self.share == 1.0

    def worst_case(self, scores):
        p = (1.0 - self.share) * self.p_hat
        p[np.argmax(scores)] += self.share
        return WorstCase(p, float(p @ scores), np.nan, np.nan, self.p_hat)

    def contains(self, p):
        return bool((p >= (1.0 - self.share) * self.p_hat - 1e-9).all())

    def interval(self, context):
        low = (1.0 - self.share) * self.p_hat[context]
        return low, low + self.share

    @property
    def centre(self):
        return Contaminated(self.p_hat, 0.0)

    def constraints(self, p):
        return Constraints.none(p)

    def project(self, p):
        p = np.maximum(p, (1.0 - self.share) * self.p_hat)
        return p / p.sum()


def test_radius_of_a_ball_is_its_own_and_of_other_sets_nan():
    p_hat = np.array([0.5, 0.3, 0.2])
    assert radius_of(KLBall(p_hat, 0.3)) == 0.3
    assert np.isnan(radius_of(Contaminated(p_hat, 0.3)))


@pytest.mark.parametrize("share", [0.0, 0.2, 0.7])
@pytest.mark.parametrize("integer", [False, True])
def test_stock_level_is_best_for_a_set_that_is_no_ball(monkeypatch, share, integer):
    rng = np.random.default_rng(3)
    contexts = rng.permutation(np.repeat([0, 1, 2], (40, 15, 8)))
    costs, demand = rng.uniform(1.0, 8.0, 3)[contexts], rng.gamma(4.0, np.array([2.0, 5.0, 9.0])[contexts])
    monkeypatch.setattr(
        Robustness, "mixes", lambda self, counts, labels=None: Contaminated(counts / counts.sum(), share)
    )
    model = RobustNewsvendor(10.0, integer=integer).fit(costs, demand, contexts)

    def risks(level):
        losses = level * costs - 10.0 * np.minimum(level, demand)
        return np.bincount(contexts, losses) / np.bincount(contexts)

    mixes = Contaminated(np.bincount(contexts) / len(contexts), share)
    levels = np.arange(60.0) if integer else np.unique([*np.linspace(0.0, 60.0, 2001), *demand])
    best = min(mixes.worst_case(risks(level) - model.reference_risks_).value for level in levels)
    found = mixes.worst_case(risks(model.stock_level_) - model.reference_risks_).value
    assert found <= best + 1e-9
    assert model.certificate_.upper == pytest.approx(found)
    assert np.isnan(model.radius_)
    assert mixes.contains(model.context_weights_)


class Constant:
    """A booster whose predictions never change."""

    def __init__(self, predictions):
        self.predictions, self.weights = predictions, []

    def advance(self, weight=None):
        self.weights.append(weight)

    def held_predictions(self):
        return self.predictions


def test_weights_of_boosting_move_to_the_worst_mix_of_any_set():
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], (60, 30, 30))
    y = np.where(codes == 2, 5.0, 0.0) + 0.1 * rng.normal(size=120)
    split = Split.of(Rows(np.zeros((120, 1)), y, np.ones(120), codes), 0.2)
    mixes = Contaminated(np.array([0.5, 0.25, 0.25]), 0.4)
    run = Constant(np.zeros(len(split.held.y)))
    played = play(run, split, mixes, np.zeros(3), mixes.p_hat, learning_rate=0.3, n_rounds=60)
    worst = mixes.worst_case(played.risks[-1])
    np.testing.assert_allclose(played.weights[-1], worst.distribution, atol=1e-3)
    np.testing.assert_allclose(played.values, worst.value)
    totals = [weight.sum() for weight in run.weights]
    np.testing.assert_allclose(totals, len(split.train.y))
