"""Evidence against a set: at most 1 on average for every member, and large for others."""

import itertools

import numpy as np
import pytest
from scipy import special

import counterpoise as cpo
from counterpoise.watch.mixes import MixBets

CENTRE = np.array([0.5, 0.3, 0.2])
SETS = {
    "kl": cpo.KLBall(CENTRE, 0.02),
    "chi2": cpo.Chi2Ball(CENTRE, 0.02),
    "tv": cpo.TotalVariationBall(CENTRE, 0.05),
    "bounds": cpo.ShareBounds([0.4, 0.2, 0.1], [0.6, 0.4, 0.3]),
    "limits": cpo.ShareLimits([[-1.0, 0.0, 1.0]], [0.0]),
    "both": cpo.KLBall(CENTRE, 0.05) & cpo.ShareBounds([0.0, 0.0, 0.0], [1.0, 1.0, 0.22]),
    "point": cpo.KLBall(CENTRE, 0.0),
    "simplex": cpo.KLBall(CENTRE, np.inf),
}


def updates(n: int) -> list[np.ndarray]:
    """All counts of n draws."""
    return [np.array([a, b, n - a - b], dtype=float) for a in range(n + 1) for b in range(n + 1 - a)]


def probability(counts: np.ndarray, p: np.ndarray) -> float:
    log = special.gammaln(counts.sum() + 1) - special.gammaln(counts + 1).sum() + special.xlogy(counts, p).sum()
    return float(np.exp(log))


@pytest.mark.parametrize("name", SETS)
def test_no_member_can_be_expected_to_win(name):
    # Exact: over all counts of two updates, with another member in each, chosen against the bets.
    mixes = SETS[name]
    bets = MixBets(mixes)
    directions = [np.array(one, dtype=float) for one in itertools.product([-1, 0, 1], repeat=3) if any(one)]
    members = [mixes.worst_case(one).distribution for one in directions]
    first = {tuple(x): bets.after(bets.begin, x, 0) for x in updates(4)}
    for p in members:
        expected = sum(probability(np.array(x), p) * bets.evidence(state, 0) for x, state in first.items())
        assert expected <= 1.0 + 1e-9
    # A start from which bets are made: the mix of late is outside.
    drawn = np.array([0.0, 2.0, 40.0])
    state = bets.after(bets.begin, drawn, 0)
    before = state.following.evidence(bets.weights, 0.0)
    after = [(x, bets.after(state, x, 1).following.evidence(bets.weights, 0.0)) for x in updates(4)]
    for p in members:
        assert sum(probability(x, p) * one for x, one in after) <= before * (1 + 1e-9)


@pytest.mark.parametrize("name", [name for name in SETS if name != "simplex"])
def test_a_mix_outside_is_found(name):
    bets, rng = MixBets(SETS[name]), np.random.default_rng(0)
    state = bets.begin
    for update in range(80):
        p = CENTRE if update < 50 else [0.2, 0.3, 0.5]
        state = bets.after(state, rng.multinomial(40, p).astype(float), update)
        if update == 49:
            assert bets.evidence(state, update) < 20.0
    assert bets.evidence(state, 79) > 1000.0
    # A row of the context that came up speaks for the change, one of the context that went down against it.
    ratios = bets.ratios(state)
    assert ratios[2] > 0.0 > ratios[0]


def test_every_mix_may_come_where_every_mix_was_allowed():
    bets = MixBets(SETS["simplex"])
    state = bets.begin
    for update in range(30):
        state = bets.after(state, np.array([0.0, 0.0, 50.0]), update)
        assert bets.evidence(state, update) <= 1.0 + 1e-12


def test_one_large_update_is_enough():
    bets = MixBets(SETS["kl"])
    assert bets.evidence(bets.after(bets.begin, np.array([100.0, 300.0, 600.0]), 0), 0) > 1e6


def test_an_update_without_draws_changes_nothing():
    bets = MixBets(SETS["kl"])
    state = bets.after(bets.begin, np.array([10.0, 30.0, 60.0]), 0)
    idle = bets.after(state, np.zeros(3), 1)
    np.testing.assert_array_equal(idle.memories, state.memories)
    assert bets.evidence(idle, 1) == pytest.approx(bets.evidence(state, 0), rel=0.2)


def test_rows_that_share_a_draw_win_nothing_on_average():
    # Hoelder's inequality: ten rows of one draw count as a tenth each, and together as one draw.
    bets = MixBets(SETS["point"])
    state = bets.after(bets.begin, np.array([5.0, 10.0, 60.0]), 0)
    before = state.following.evidence(bets.weights, 0.0)
    one_group = [bets.after(state, np.eye(3)[k], 1).following.evidence(bets.weights, 0.0) for k in range(3)]
    assert np.dot(CENTRE, one_group) <= before * (1 + 1e-9)
    halves = sum(
        CENTRE[k]
        * (0.5 * (k == j) + 0.5 * CENTRE[j])
        * bets.after(state, 0.5 * (np.eye(3)[k] + np.eye(3)[j]), 1).following.evidence(bets.weights, 0.0)
        for k in range(3)
        for j in range(3)
    )
    assert halves <= before * (1 + 1e-9)
