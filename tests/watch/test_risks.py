"""Evidence that a mean loss has grown, and confidence sequences of mean losses."""

import numpy as np
import pytest

from counterpoise.watch.bets import Stakes
from counterpoise.watch.risks import Losses, RiskBets, sequence

SPREAD = Stakes("spread")


def bets(promised, errors=None, n=np.inf):
    promised = np.asarray(promised, dtype=float)
    errors = np.zeros(len(promised)) if errors is None else np.asarray(errors, dtype=float)
    return RiskBets(promised, errors, np.full(len(promised), n), 0.01)


def fed(risk, draws, updates=100):
    state = risk.begin
    for update in range(updates):
        codes, values = draws(update)
        state = risk.after(state, Losses.of(codes, values, None), SPREAD, update)
    return state


def test_no_loss_with_the_promised_mean_can_be_expected_to_win():
    # Two values with mean 1, which is promised: exact.
    risk = bets([1.0])
    expected = 0.0
    for chance, loss in ((0.8, 0.25), (0.2, 4.0)):
        state = risk.after(risk.begin, Losses.of(np.array([0]), np.array([loss]), None), SPREAD, 0)
        expected += chance * risk.evidence(state, SPREAD.left(0))[0]
    assert expected == pytest.approx(1.0)


def test_a_grown_risk_is_found_in_its_context():
    rng = np.random.default_rng(0)

    def draws(update):
        codes = rng.integers(0, 3, 60)
        return codes, rng.exponential(np.where((codes == 2) & (update >= 50), 1.6, 1.0))

    risk = bets([1.0, 1.0, 1.0])
    state = fed(risk, draws)
    found = risk.evidence(state, SPREAD.left(99))
    assert found[2] > 1e4
    assert found[:2].max() < 20.0


def test_a_promise_that_is_an_estimate_allows_for_its_error():
    risk = bets([1.0, 1.0], errors=[0.1, np.nan], n=100.0)
    bounds = risk.bounds(risk.begin)
    assert 1.2 < bounds[0] < 1.4
    assert np.isnan(bounds[1])
    rng = np.random.default_rng(0)
    state = risk.begin.plus(Losses.of(np.ones(200, dtype=int), rng.exponential(size=200), None))
    # The losses that came are spread as those of the promise were: by 1, of which there were 100.
    assert risk.bounds(state)[1] == pytest.approx(bounds[0], abs=0.08)


def test_a_first_update_tells_its_own_spread():
    rng = np.random.default_rng(0)
    risk = bets([1.0], errors=[np.nan], n=400.0)
    state = fed(risk, lambda _: (np.zeros(2000, dtype=int), rng.exponential(2.0, 2000)), updates=1)
    assert state.n[0] == 2000
    assert risk.evidence(state, SPREAD.left(0))[0] > 1e6


def test_rows_of_a_group_are_one_bet_and_means_are_those_of_rows():
    losses = Losses.of(np.array([0, 0, 1, 0]), np.array([1.0, 3.0, 5.0, 7.0]), np.array([0, 0, 0, 1]))
    assert losses.codes.tolist() == [0, 0, 1]
    assert sorted(zip(losses.values.tolist(), losses.sizes.tolist(), strict=True)) == [
        (2.0, 1.0),
        (5.0, 1.0),
        (7.0, 0.5),
    ]
    np.testing.assert_allclose(losses.sums(2) / losses.sums(2, 0), [11.0 / 3.0, 5.0])


@pytest.mark.parametrize("kind", ["exponential", "errors", "lognormal"])
def test_confidence_sequences_hold_at_all_times(kind):
    rng, runs = np.random.default_rng(0), 300
    draw = {
        "exponential": lambda n: rng.exponential(1.0, n),
        "errors": lambda n: (rng.random(n) < 0.2) / 0.2,
        "lognormal": lambda n: rng.lognormal(-0.5, 1.0, n),
    }[kind]
    # A context for each run.
    state = bets(np.ones(runs)).begin
    codes = np.repeat(np.arange(runs), 10)
    missed = np.zeros((2, runs), dtype=bool)
    for _ in range(60):
        state = state.plus(Losses.of(codes, draw(len(codes)), None))
        lower, upper = sequence(state, 0.1)
        missed |= [lower > 1.0, upper < 1.0]
    lost = missed.sum(axis=1)
    # Five percent each; the upper end holds as losses become many.
    assert lost[0] / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    assert lost[1] / runs <= 0.10
