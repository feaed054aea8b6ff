"""The member under which counts are likeliest: closed forms against the central path and a referee, and hard counts."""

import numpy as np
import pytest
from scipy.special import xlogy

import counterpoise as cpo
from counterpoise import sets
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets.likeliest import along_central_path, scaled_between
from tests.referees.random_sets import KINDS, random_part, random_set, random_shares

THIRDS = np.array([0.5, 0.3, 0.2])


def random_counts(rng, n):
    """Return counts with zeros, fractions and sizes from a billionth to a billion."""
    kind = rng.integers(4)
    if kind < 2:
        return rng.gamma(rng.choice([0.3, 1.0, 10.0]), size=n) + 1e-6
    counts = rng.poisson(rng.choice([0.7, 5.0, 100.0]), size=n).astype(float)
    counts[rng.integers(n)] += 1.0
    return counts * (rng.choice([1e-9, 1e9]) if kind == 3 else 1.0)


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("seed", range(48))
def test_no_member_that_a_referee_finds_is_likelier(seed):
    pytest.importorskip("cvxpy")
    from tests.referees.mixes import largest_log_likelihood

    rng = np.random.default_rng([23, seed])
    n_contexts = (2, 3, 5, 10)[seed % 4]
    mixes, _ = random_set(rng, n_contexts)
    counts = random_counts(rng, n_contexts)
    shares, found = counts / counts.sum(), mixes.likeliest(counts)
    value, upper = found.log_likelihood / counts.sum(), found.upper / counts.sum()
    assert mixes.contains(found.distribution)
    assert value <= upper <= value + 1e-9
    referee = largest_log_likelihood(mixes, shares)
    if referee is None:
        pytest.skip("the referee gave up")
    # What the referee finds may lie outside by rounding, which a steep likelihood makes more of.
    inside = mixes.project(referee)
    assert xlogy(shares, inside).sum() <= upper + 1e-12
    if np.abs(inside - referee).max() < 1e-12:
        assert xlogy(shares, inside).sum() == pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize("kind", ["kl", "tv", "bounds", "marginal", "kl bounds"])
def test_closed_forms_agree_with_the_central_path(kind):
    rng = np.random.default_rng(5)
    for n_contexts in (2, 3, 7, 30):
        inside = random_shares(rng, n_contexts) * (1.0 - 1e-6) + 1e-6 / n_contexts
        parents = np.minimum(np.arange(n_contexts), 2 if n_contexts > 2 else 1)
        parts = [random_part(rng, one, inside, parents) for one in kind.split()]
        mixes = parts[0] if len(parts) == 1 else parts[0] & parts[1]
        counts = np.array([random_counts(rng, n_contexts) for _ in range(8)])
        if mixes.is_point:
            continue
        found, n = mixes.likeliest(counts), counts.sum(axis=1)
        p, value, upper = along_central_path(getattr(mixes, "whole", mixes), counts / n[:, None])
        np.testing.assert_allclose(found.log_likelihood / n, value, atol=1e-9)
        assert (found.log_likelihood / n <= upper + 1e-12).all()
        assert (value <= found.upper / n + 1e-12).all()
        counted = np.where(counts > 0.0, found.distribution - p, 0.0)
        np.testing.assert_allclose(counted, 0.0, atol=1e-6)


@pytest.mark.parametrize("radius", [1e-300, 1e-20, 1e-9, 1e-3, 0.3, 3.0, 30.0, 300.0, 1e5])
def test_in_a_kl_ball_it_is_a_mixture_on_the_rim(radius):
    rng = np.random.default_rng(3)
    for p_hat in (THIRDS, np.array([0.7, 0.3, 0.0]), np.array([1e-12, 0.5, 0.5 - 1e-12])):
        ball = sets.KLBall(p_hat, radius)
        counts = np.vstack([rng.poisson(2.0, (20, 3)), np.eye(3), 1e9 * np.eye(3)])
        counts = counts[counts.sum(axis=1) > 0]
        found, n = ball.likeliest(counts), counts.sum(axis=1)
        assert (found.upper - found.log_likelihood <= 1e-13 * n * np.maximum(1.0, np.abs(found.upper / n))).all()
        for p, one in zip(found.distribution, counts / n[:, None], strict=True):
            if np.array_equal(p, one):
                assert ball.divergence(one) <= radius
                continue
            # On the segment between shares and centre, as far from the centre as the radius allows.
            along = (p - p_hat) @ (one - p_hat) / ((one - p_hat) @ (one - p_hat))
            np.testing.assert_allclose(p, p_hat + along * (one - p_hat), atol=1e-15)
            # Where a float is too small for the rim, the smallest stands for it.
            if p[p_hat > 0.0].min() > 1e-290:
                assert ball.divergence(p) == pytest.approx(radius, rel=1e-9, abs=1e-15)


def test_at_the_radius_of_the_counts_their_shares_are_the_answer():
    counts = np.array([7.0, 2.0, 4.0])
    for make in (sets.KLBall, sets.Chi2Ball, sets.TotalVariationBall):
        radius = make(THIRDS, 1.0).divergence(counts / 13.0)
        found = make(THIRDS, radius).likeliest(counts)
        np.testing.assert_allclose(found.distribution, counts / 13.0, atol=1e-9)
        inner = make(THIRDS, 0.99 * radius)
        assert not inner.contains(counts / 13.0)
        assert inner.likeliest(counts).upper < found.log_likelihood


@pytest.mark.parametrize(
    "mixes",
    [
        sets.Chi2Ball([0.6, 0.4, 0.0], 0.1),
        sets.ShareBounds([0.2, 0.1, 0.0], [0.8, 0.7, 0.0]),
        sets.ShareLimits([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], [0.0, 0.6]),
        sets.KLBall([0.6, 0.4, 0.0], 0.0),
        sets.Marginal(sets.Chi2Ball([1.0, 0.0, 0.0], 0.1), [0, 0, 1]),
        sets.KLBall([0.6, 0.4, 0.0], 0.2) & sets.ShareLimits([[0.0, 0.0, 1.0]], [0.0]),
        sets.Chi2Ball([0.6, 0.4, 0.0], 0.1) & sets.ShareBounds([0.2, 0.1, 0.0], [0.5, 0.7, 0.5]),
    ],
    ids=lambda one: one.where[:50],
)
def test_counts_that_no_member_allows_are_impossible_and_others_are_not(mixes):
    found = mixes.likeliest([[3.0, 1.0, 1.0], [3.0, 1.0, 0.0]])
    assert found.log_likelihood[0] == found.upper[0] == -np.inf
    assert found.upper[1] - found.log_likelihood[1] <= 1e-10
    assert np.isfinite(found.log_likelihood[1])
    assert all(mixes.contains(p) for p in found.distribution)


def test_contexts_that_were_never_seen_take_what_the_set_allows():
    p_hat, counts = np.array([0.5, 0.5, 0.0]), np.array([1.0, 1.0, 8.0])
    ball = sets.KLBall(p_hat, 0.2)
    found = ball.likeliest(counts)
    assert found.distribution[2] == pytest.approx(ball.interval(2)[1], rel=1e-12)
    bounded = ball & sets.ShareBounds([0.0, 0.0, 0.0], [1.0, 1.0, 0.05])
    assert bounded.likeliest(counts).distribution[2] == pytest.approx(0.05, rel=1e-9)
    limited = ball & sets.ShareLimits([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], [0.05, 0.48])
    np.testing.assert_allclose(limited.likeliest(counts).distribution, [0.475, 0.475, 0.05], atol=1e-9)


def test_nested_parents_divide_within_as_the_counts_do():
    parents = np.array([0, 0, 1, 1, 2])
    regions = sets.KLBall([0.5, 0.3, 0.2], 0.01) & sets.ShareBounds([0.4, 0.0, 0.0], [1.0, 0.4, 1.0])
    found = sets.Marginal(regions, parents).likeliest([1.0, 3.0, 0.0, 0.0, 6.0])
    above = regions.likeliest([4.0, 0.0, 6.0])
    np.testing.assert_allclose(found.distribution[:2], above.distribution[0] * np.array([0.25, 0.75]), atol=1e-12)
    np.testing.assert_allclose(found.distribution[2:4], 0.5 * above.distribution[1], atol=1e-12)
    # A parent that no context belongs to has no share.
    lonely = sets.Marginal(sets.ShareBounds([0.1, 0.0, 0.0], [0.6, 0.7, 0.4]), np.array([0, 0, 1]))
    np.testing.assert_allclose(lonely.likeliest([8.0, 0.0, 1.0]).distribution.sum(), 1.0)
    assert lonely.likeliest([8.0, 1.0, 1.0]).distribution[2] == pytest.approx(0.4, abs=1e-9)


def test_scaled_shares_meet_bounds_and_total_and_keep_their_ratios_where_they_are_free():
    rng = np.random.default_rng(1)
    for _ in range(50):
        n = int(rng.integers(2, 12))
        low = rng.uniform(0.0, 1.0 / n, n)
        high = low + rng.uniform(0.0, 2.0, n)
        total = rng.uniform(low.sum(), high.sum())
        shares = rng.dirichlet(np.full(n, 0.3), 5) * (rng.uniform(size=(5, n)) < 0.8)
        p = scaled_between(shares, low, high, total)
        np.testing.assert_allclose(p.sum(axis=1), total, rtol=1e-12)
        assert (p >= low - 1e-14).all()
        assert (p <= high + 1e-14).all()
        for row, one in zip(p, shares, strict=True):
            free = (one > 0.0) & (row > low + 1e-12) & (row < high - 1e-12)
            assert not free.any() or np.ptp(row[free] / one[free]) <= 1e-9 * (row[free] / one[free]).max()


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([1.0, 2.0], "3 contexts"),
        ([1.0, -2.0, 1.0], "context 1 is -2.0"),
        ([[1.0, 1.0, np.nan]], "context 2 is nan"),
        (["a", "b", "c"], "must be numbers"),
        ([1e308, 1e308, 1e308], "more than a float can hold"),
    ],
)
def test_wrong_counts_are_named(counts, said):
    with pytest.raises(InvalidInputError, match=said):
        cpo.KLBall(THIRDS, 0.1).likeliest(counts)


def test_no_rows_are_no_answers():
    found = cpo.KLBall(THIRDS, 0.1).likeliest(np.zeros((0, 3)))
    assert found.distribution.shape == (0, 3)
    assert found.log_likelihood.shape == found.upper.shape == (0,)


def test_every_kind_of_set_is_among_the_random_ones():
    assert set(KINDS) == {"kl", "chi2", "tv", "bounds", "limits", "marginal"}
