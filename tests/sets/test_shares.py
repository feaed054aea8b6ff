"""Bounds, limits, total variation, marginals and what they have in common."""

import itertools
import pickle

import numpy as np
import pytest

import counterpoise as cpo
from counterpoise.exceptions import EmptySetError, InvalidInputError
from counterpoise.sets import Intersection, Marginal
from tests.referees.random_sets import random_scores, random_set
from tests.sets import against_cvxpy

P = np.array([0.4, 0.3, 0.2, 0.1])


def test_worst_cases_and_fits_agree_with_cvxpy(capsys):
    options = ["--sets", "16", "--sizes", "5", "--rows", "300", "--repeats", "1"]
    assert against_cvxpy.main(options) == 0
    out = capsys.readouterr().out
    assert "16 sets" in out
    assert "| KL & bounds | 5 |" in out
    assert "times faster" in out


@pytest.mark.parametrize("seed", range(30))
def test_a_batch_gives_what_its_rows_give(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    mixes, _ = random_set(rng, n)
    scores = np.array([random_scores(rng, n) for _ in range(4)])
    together = mixes.worst_case(scores)
    for k in range(4):
        alone = mixes.worst_case(scores[k])
        assert together.value[k] == pytest.approx(alone.value, abs=1e-8)
        assert mixes.contains(together.distribution[k])


@pytest.mark.parametrize("level", [0.1, 0.25, 0.5, 1.0])
def test_a_cap_on_shares_is_the_conditional_value_at_risk(level):
    scores = np.array([3.0, -1.0, 5.0, 2.0])
    mix = cpo.ShareBounds(0.0 * P, P / level)
    # Rockafellar and Uryasev: the least of t + E (s - t)_+ / level, attained at one of the scores.
    expected = min(t + P @ np.maximum(scores - t, 0.0) / level for t in scores)
    assert mix.worst_case(scores).value == pytest.approx(expected, abs=1e-12)


def test_the_worst_mix_in_total_variation_moves_mass_from_the_lowest_score_to_the_highest():
    worst = cpo.TotalVariationBall(P, 0.25).worst_case([1.0, 0.0, 2.0, 5.0])
    np.testing.assert_allclose(worst.distribution, [0.4, 0.05, 0.2, 0.35])


@pytest.mark.parametrize("radius", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_total_variation_is_the_largest_difference_of_any_event(radius):
    rng = np.random.default_rng(0)
    ball = cpo.TotalVariationBall(P, radius)
    events = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    for p in rng.dirichlet(np.ones(4), 20):
        assert ball.divergence(p) == pytest.approx(np.max(events @ (p - P)))
        assert ball.contains(p) == (ball.divergence(p) <= radius + 1e-9)


def test_order_and_nesting_of_an_intersection_do_not_matter():
    ball, bounds, limit = cpo.KLBall(P, 0.1), cpo.ShareBounds(0.5 * P, 1.4 * P), cpo.ShareLimits([[1, 1, 0, 0]], [0.65])
    scores = np.array([1.0, 4.0, 2.0, 3.0])
    values = [mix.worst_case(scores).value for mix in ((ball & bounds) & limit, limit & (bounds & ball))]
    assert values[0] == pytest.approx(values[1], abs=1e-9)
    assert len(((ball & bounds) & (limit & ball)).parts) == 4


def test_bounds_that_say_nothing_change_nothing():
    ball = cpo.KLBall(P, 0.3)
    scores = np.array([1.0, 4.0, 2.0, 3.0])
    free = ball & cpo.ShareBounds(np.zeros(4), np.ones(4))
    np.testing.assert_array_equal(free.worst_case(scores).distribution, ball.worst_case(scores).distribution)
    assert cpo.ShareBounds(np.zeros(4), np.ones(4)).is_simplex
    assert not free.is_simplex


def test_bounds_may_exclude_the_centre_of_a_ball():
    mix = cpo.KLBall(P, 0.2) & cpo.ShareBounds([0.0, 0.0, 0.0, 0.2], [1.0, 1.0, 1.0, 0.25])
    assert mix.contains(mix.p_hat)
    assert not mix.contains(P)
    low, high = mix.interval(3)
    assert (low, high) == (pytest.approx(0.2), pytest.approx(0.25))


def test_one_share_that_is_fixed_stays_fixed():
    mix = cpo.KLBall(P, 0.2) & cpo.ShareBounds([0.3, 0, 0, 0], [0.3, 1, 1, 1])
    for scores in np.random.default_rng(0).normal(size=(5, 4)):
        assert mix.worst_case(scores).distribution[0] == pytest.approx(0.3, abs=1e-12)
        assert mix.project(np.full(4, 0.25))[0] == pytest.approx(0.3, abs=1e-12)


def test_sets_that_meet_in_one_mix_are_that_mix():
    for mix in (
        cpo.ShareBounds(P, P),
        cpo.KLBall(P, 0.3) & cpo.ShareBounds(P, P),
        cpo.KLBall(P, 0.0) & cpo.ShareBounds(0.5 * P, np.minimum(2 * P, 1)),
        cpo.ShareLimits(np.vstack([np.eye(4), -np.eye(4)]), np.concatenate([P, -P])),
        cpo.ShareBounds([0.5, 0.5, 0.0, 0.0], np.ones(4)),
    ):
        assert mix.is_point
        np.testing.assert_allclose(mix.worst_case([5.0, 1.0, 3.0, 2.0]).distribution, mix.p_hat)


def test_regions_are_bounded_through_their_stores():
    parents = np.array([0, 0, 1, 1])
    mix = Marginal(cpo.ShareBounds([0.5, 0.0], [0.6, 1.0]), parents)
    worst = mix.worst_case([1.0, 2.0, 0.0, 0.0])
    np.testing.assert_allclose(worst.distribution, [0.0, 0.6, 0.4, 0.0], atol=1e-9)


def test_by_the_chain_rule_a_nested_set_holds_what_is_close_between_and_within():
    rng, parents = np.random.default_rng(0), np.array([0, 0, 1, 1])
    between, within = 0.1, 0.15
    shares = np.bincount(parents, P)
    regions = cpo.KLBall(shares, between)
    nested = cpo.KLBall(P, between + within) & Marginal(regions, parents)
    held = 0
    for p in rng.dirichlet(5.0 * np.ones(4), 300):
        sums = np.bincount(parents, p)
        inside = [cpo.KLBall(P[parents == g] / shares[g], 0.0).divergence(p[parents == g] / sums[g]) for g in range(2)]
        if regions.divergence(sums) <= between and shares @ inside <= within:
            held += 1
            assert nested.contains(p)
        assert cpo.KLBall(P, 0.0).divergence(p) == pytest.approx(regions.divergence(sums) + shares @ inside)
    assert held > 20


def test_only_a_set_with_one_ball_has_another_radius():
    mix = cpo.KLBall(P, 0.2) & cpo.ShareBounds(0.5 * P, np.minimum(2 * P, 1))
    assert mix.resized(0.5).ball.radius == 0.5
    with pytest.raises(InvalidInputError, match="exactly one ball"):
        Intersection((cpo.ShareBounds(0.5 * P, np.minimum(2 * P, 1)),)).resized(0.1)


def test_sets_survive_pickling():
    mix = cpo.KLBall(P, 0.2) & cpo.ShareBounds(0.5 * P, 1.5 * P) & cpo.TotalVariationBall(P, 0.1)
    again = pickle.loads(pickle.dumps(mix))
    scores = np.array([1.0, 4.0, 2.0, 3.0])
    assert again.worst_case(scores).value == pytest.approx(mix.worst_case(scores).value, abs=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cpo.ShareBounds([0.5, 0.6], [1, 1]), "lower bounds: they sum to 1.1, more than 1"),
        (lambda: cpo.ShareBounds([0, 0], [0.5, 0.4]), "upper bounds: they sum to 0.9, less than 1"),
        (
            lambda: cpo.ShareBounds([0.1, 0], [1, 1]) & cpo.ShareBounds([0, 0], [0.05, 1]),
            "at least 0.1 and at most 0.05",
        ),
        (
            lambda: cpo.KLBall([0.5, 0.5], 0.001) & cpo.ShareBounds([0.9, 0], [1, 1]),
            "context 0 is bounded to 0.9 to 1, but every mix within 0.001 bits",
        ),
        (
            lambda: cpo.KLBall([0.5, 0.5], 0.0) & cpo.ShareBounds([0.9, 0], [1, 1]),
            "in which context 0 has 0.5",
        ),
        (
            lambda: cpo.KLBall(P, 0.01) & cpo.ShareLimits([[1, 1, 0, 0]], [0.3]),
            r"lies within 0.01 bits .* within the limits. The nearest is 0.\d+ bits away",
        ),
        (lambda: cpo.ShareLimits([[1, 0], [0, 1]], [0.4, 0.4]), r"limit 0 \(1 x context 0 <= 0.4\); limit 1"),
        (lambda: cpo.KLBall(P, 0.01) & cpo.KLBall(P[::-1], 0.01), "no mix lies within 0.01 bits"),
        (lambda: cpo.TotalVariationBall(P, 0.1) & cpo.ShareBounds([0, 0, 0, 0.5], np.ones(4)), "context 3 is bounded"),
    ],
)
def test_a_contradiction_is_named(make, words):
    with pytest.raises(EmptySetError, match=words):
        make()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cpo.ShareBounds([0.1], [0.2, 0.3]), "low has 1 contexts and high 2"),
        (lambda: cpo.ShareBounds([0.1, -0.1], [1, 1]), "low is -0.1 for context 1"),
        (lambda: cpo.ShareBounds([0.4, 0], [0.3, 1], labels=("a", "b")), "bounds of 'a' are 0.4 and 0.3"),
        (lambda: cpo.ShareBounds([np.nan, 0], [1, 1]), "low holds nan"),
        (lambda: cpo.ShareBounds("ab", [1, 1]), "low must be numbers"),
        (lambda: cpo.ShareLimits([1, 1], [1]), "one row of coefficients per limit"),
        (lambda: cpo.ShareLimits([[1, 1]], [1, 2]), "A has 1 rows and b 2"),
        (lambda: cpo.ShareLimits([[1, np.inf]], [1]), "A holds inf"),
        (lambda: Marginal(cpo.KLBall(P, 0.1), [0, 1, 4]), "parents go from 0 to 4"),
        (lambda: Marginal(cpo.KLBall(P, 0.1), [0.5, 1.0]), "whole numbers"),
        (lambda: cpo.KLBall(P, 0.1) & cpo.ShareBounds([0, 0], [1, 1]), "over 2 and 4 contexts"),
        (lambda: cpo.TotalVariationBall(P, -0.1), "a share of the mix that may move"),
        (lambda: cpo.ShareBounds([0, 0], [1, 1]).interval(2), "index from 0 to 1"),
        (
            lambda: (cpo.KLBall(P, 1) & cpo.ShareBounds(0 * P, 0 * P + 1)).worst_case([1, 2, 3, np.inf]),
            "context 3 is inf",
        ),
    ],
)
def test_what_cannot_be_meant_is_said(make, words):
    with pytest.raises(InvalidInputError, match=words):
        make()


def test_a_set_is_intersected_with_sets_only():
    with pytest.raises(TypeError):
        _ = cpo.KLBall(P, 0.1) & {"a": 0.1}
