"""Wealth that grows only where the hypothesis is false, and stakes for changes that come late."""

import numpy as np
import pytest

from counterpoise.watch.bets import Stakes, Wealth


def test_stakes_that_are_spread_never_exceed_one_and_never_run_out():
    stakes, logs, left = Stakes("spread"), np.full(1, -np.inf), []
    for update in range(2000):
        logs = stakes.on(logs, update)
        left.append(stakes.left(update))
        assert np.exp(logs[0]) + left[-1] == pytest.approx(1.0)
    assert left[-1] > 0.05


def test_all_at_once_is_the_plain_product():
    factors = np.random.default_rng(0).normal(size=(20, 3))
    wealth = Wealth.none(3)
    for update, one in enumerate(factors):
        wealth = wealth.after(one, Stakes("once"), update)
    np.testing.assert_allclose(wealth.logs, factors.sum(axis=0))


def test_a_lost_stake_is_not_won_back_and_proof_is_not_lost():
    wealth = Wealth.none(2).after(np.array([-np.inf, np.inf]), Stakes("once"), 0)
    wealth = wealth.after(np.array([np.inf, -np.inf]), Stakes("once"), 1)
    assert wealth.logs.tolist() == [-np.inf, np.inf]


def test_spread_stakes_are_the_sum_over_starting_updates():
    stakes, factors = Stakes("spread"), np.random.default_rng(1).normal(size=30)
    wealth = Wealth.none(1)
    for update, one in enumerate(factors):
        wealth = wealth.after(np.array([one]), stakes, update)
    staked = [np.exp(stakes.on(np.array([-np.inf]), update)[0]) for update in range(30)]
    products = [np.exp(factors[k:].sum()) for k in range(30)]
    assert wealth.evidence(np.ones(1), stakes.left(29)) == pytest.approx(np.dot(staked, products) + stakes.left(29))


def test_evidence_that_begins_anew_is_the_largest_product():
    factors = np.random.default_rng(2).normal(size=40)
    wealth = Wealth.none(1)
    for update, one in enumerate(factors):
        wealth = wealth.after(np.array([one]), Stakes("every"), update)
        largest = max(factors[k : update + 1].sum() for k in range(update + 1))
        assert wealth.logs[0] == pytest.approx(largest)
