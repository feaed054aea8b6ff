"""Bounds of excess risk: reductions to textbook intervals, brute force, and simulations with a known truth."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats

import counterpoise as cpo
from counterpoise.exceptions import InvalidInputError
from counterpoise.inference.excess import HeldOut
from counterpoise.inference.intervals import drawn_excess, upper_end
from counterpoise.inference.worst_mix import WorstMix
from counterpoise.metrics import excess_bounds, excess_difference

FIELDS = ("estimate", "lower", "upper", "mix_estimate", "mix_lower", "mix_upper")


def numbers(result):
    return np.array([getattr(result, name) for name in FIELDS])


def rows(means, sizes, seed=0, n_competitors=1, noise=1.0):
    """Return losses, competitors and labels; the true excess of each context is its mean."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(len(means)), sizes)
    common = rng.exponential(size=len(codes))
    paired = noise * rng.standard_normal((len(codes), n_competitors))
    return common, common[:, None] - np.asarray(means)[codes][:, None] - paired, codes


def symmetric(n):
    """Return numbers whose skewness is exactly zero."""
    half = np.random.default_rng(0).standard_normal(n // 2)
    return np.concatenate([half, -half])


# --- reductions -----------------------------------------------------------------------------------------------------


def test_one_context_and_one_competitor_are_students_interval():
    difference = 0.3 + symmetric(40)
    found = excess_bounds(difference, np.zeros(40), np.zeros(40))
    low, high = stats.t.interval(0.95, 39, difference.mean(), stats.sem(difference))
    assert found.estimate == pytest.approx(0.3, abs=0.02)
    assert found.upper == pytest.approx(high)
    # The lower end is drawn, at a level raised by its own error.
    assert found.lower == pytest.approx(low, abs=0.1 * (high - low))
    assert found.mix_upper == found.upper


def test_a_set_of_one_mix_is_the_mean():
    losses, competitors, codes = rows([0.1, 0.5, -0.2], [100, 60, 40])
    shares = np.bincount(codes) / 200
    found = excess_bounds(losses, competitors, codes, mix=cpo.KLBall(shares, 0.0))
    difference = losses - competitors[:, 0]
    mean = difference.mean()
    error = np.sqrt(sum(s**2 * stats.sem(difference[codes == c]) ** 2 for c, s in enumerate(shares)))
    assert found.mix_estimate == pytest.approx(mean, abs=0.1 * error)
    assert found.mix_upper == pytest.approx(mean + 1.96 * error, abs=0.15 * error)
    assert found.mix_lower == pytest.approx(mean - 1.96 * error, abs=0.3 * error)


def test_every_mix_is_the_worst_context():
    losses, competitors, codes = rows([0.1, 0.5, -0.2], [100, 60, 40])
    plain = excess_bounds(losses, competitors, codes)
    wide = excess_bounds(losses, competitors, codes, mix=cpo.KLBall([0.5, 0.3, 0.2], np.inf))
    np.testing.assert_array_equal(numbers(plain), numbers(wide))
    assert plain.estimate == plain.mix_estimate


def test_wider_sets_have_higher_ends():
    losses, competitors, codes = rows([0.1, 0.9, -0.5], [100, 60, 40])
    ends = [
        excess_bounds(losses, competitors, codes, mix=cpo.KLBall([0.5, 0.3, 0.2], radius))
        for radius in (0.0, 0.05, 0.5, 5.0)
    ]
    for name in ("mix_estimate", "mix_lower", "mix_upper"):
        assert (np.diff([getattr(end, name) for end in ends]) > 0).all(), name


def test_rows_repeated_in_a_group_change_nothing():
    losses, competitors, codes = rows([0.1, 0.5, -0.2], [50, 40, 30], n_competitors=2)
    four = np.repeat(np.arange(120), 4)
    mix = cpo.KLBall([0.4, 0.3, 0.3], 0.1)
    once = excess_bounds(losses, competitors, codes, mix=mix)
    again = excess_bounds(losses[four], competitors[four], codes[four], groups=four, mix=mix)
    np.testing.assert_allclose(numbers(again), numbers(once), rtol=1e-9)
    heavy = excess_bounds(losses, competitors, codes, sample_weight=np.full(120, 4.0), mix=mix)
    np.testing.assert_allclose(numbers(heavy), numbers(once), rtol=1e-9)


def test_labels_and_frames_of_any_kind():
    losses, competitors, codes = rows([0.1, 0.5, -0.2], [50, 40, 30], n_competitors=2)
    plain = excess_bounds(losses, competitors, codes)
    names = np.array(["a", "b", "c"])[codes]
    for given in (
        {"own": competitors[:, 0], "pooled": competitors[:, 1]},
        pd.DataFrame(competitors, columns=["own", "pooled"]),
        pl.DataFrame(competitors, schema=["own", "pooled"]),
    ):
        found = excess_bounds(pd.Series(losses), given, pl.Series(names))
        np.testing.assert_array_equal(numbers(found), numbers(plain))
        assert set(found.by_context["competitor"].tolist()) <= {"own", "pooled"}
        assert found.by_context["context"].tolist() == ["a", "b", "c"]


def test_the_order_of_rows_does_not_matter():
    losses, competitors, codes = rows([0.1, 0.5, -0.2], [50, 40, 30])
    order = np.random.default_rng(3).permutation(120)
    np.testing.assert_allclose(
        numbers(excess_bounds(losses[order], competitors[order], codes[order])),
        numbers(excess_bounds(losses, competitors, codes)),
        rtol=1e-6,
    )


# --- brute force ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_upper_end_is_the_largest_of_all_mixes(seed):
    losses, competitors, codes = rows(np.random.default_rng(seed).normal(0, 0.2, 3), [60, 30, 20], seed)
    held_out = HeldOut.of(len(losses), codes)
    excess = drawn_excess(held_out.pairs(losses[:, None] - competitors))[0]
    ball = cpo.KLBall([0.5, 0.3, 0.2], 0.3)
    drawn = np.random.default_rng(0).dirichlet([2.5, 1.5, 1.0], 20_000)
    inside = drawn[(ball.p_hat * np.log2(ball.p_hat / drawn)).sum(axis=1) <= 0.3]
    scenario = inside[:, :, None]
    brute = inside @ excess.mean[:, 0] + excess.multiplier(scenario, 0.975) * excess.spread(scenario)
    found = upper_end(excess, WorstMix(ball, excess.known), 0.975)
    spread = excess.spread(scenario).max()
    assert found >= brute.max() - 0.02 * spread
    assert found <= brute.max() + 0.1 * spread


# --- contexts of which nothing is known -------------------------------------------------------------------------------


def test_contexts_of_one_row_or_one_group_are_named_and_left_out():
    losses, competitors, codes = rows([0.1, 0.5, 3.0, 2.0], [50, 40, 1, 10])
    groups = np.where(codes == 3, 1000, np.arange(101))
    mix = cpo.KLBall([0.5, 0.4, 0.01, 0.09], 0.1)
    found = excess_bounds(losses, competitors, codes, groups=groups, mix=mix)
    assert found.unjudged == (2, 3)
    assert "not judged: 2, 3" in repr(found)
    assert f'p-value of "one model is enough": {found.p_value:.3g}\n' in repr(found)
    other = excess_difference(losses, competitors[:, 0], competitors, codes, groups=groups, mix=mix)
    said = f"difference of the worst excess\nworst context: {other.estimate:.4g}, 95% [{other.lower:.4g}, "
    assert repr(other).startswith(said)
    assert repr(other).endswith("not judged: 2, 3")
    assert np.isnan(found.by_context["low"]).tolist() == [False, False, True, True]
    assert np.isfinite(found.by_context["excess"]).all()
    kept = codes < 2
    alone = excess_bounds(losses[kept], competitors[kept], codes[kept])
    np.testing.assert_allclose(numbers(found)[:3], numbers(alone)[:3], atol=0.05)
    assert found.mix_upper < found.upper
    difference = excess_difference(losses, losses + 0.1, competitors, codes, groups=groups, mix=mix)
    assert difference.unjudged == (2, 3)
    assert difference.mix_upper < 0


def test_shares_that_are_rounded_to_one_or_above_are_those_of_a_single_unit():
    losses, competitors, codes = rows([0.1, 0.5, 2.0], [40, 40, 20])
    groups = np.where(codes == 2, 1000, np.arange(100))
    above = 0
    for seed in range(20):
        weight = np.random.default_rng(seed).uniform(size=100)
        above += np.sum(weight[codes == 2] / weight[codes == 2].sum()) > 1.0
        found = excess_bounds(losses, competitors, codes, groups=groups, sample_weight=weight)
        assert found.unjudged == (2,)
    assert above
    weight[-1] = 1e18
    heavy = excess_bounds(losses, competitors, codes, sample_weight=weight)
    assert heavy.unjudged == (2,)
    assert np.isfinite(numbers(heavy)).all()


def test_where_nothing_can_be_judged_nothing_is_said():
    found = excess_bounds([1.0, 2.0], [0.5, 1.0], ["a", "b"])
    assert np.isnan(numbers(found)).all()
    assert np.isnan(found.p_value)
    assert np.isnan(numbers(excess_difference([1.0, 2.0], [1.5, 1.0], [0.5, 1.0], ["a", "b"]))).all()


def test_a_context_without_a_competitor_is_not_judged():
    losses, competitors, codes = rows([0.1, 0.5], [50, 40], n_competitors=2)
    competitors[codes == 1, 0] = np.inf
    assert excess_bounds(losses, competitors, codes).unjudged == ()
    competitors[codes == 1] = np.inf
    assert excess_bounds(losses, competitors, codes).unjudged == (1,)


def test_losses_without_errors_are_not_taken_for_certain():
    wrong = np.zeros(60)
    wrong[[1, 2, 3, 31]] = 1.0
    found = excess_bounds(wrong, np.zeros(60), np.repeat(["a", "b", "c"], 20))
    bands = found.by_context
    assert (bands["high"] > bands["excess"]).all()
    assert bands["high"][2] > 0


def test_classifiers_that_never_disagreed_may_yet_differ():
    errors = np.zeros(60)
    errors[::20] = 1.0
    sites = np.repeat(["a", "b"], 30)
    found = excess_bounds(errors, errors, sites)
    # Four events of thirty rows, as in the rule of three.
    assert found.upper == pytest.approx(1.96 * 2 / 30, rel=0.1)
    assert found.lower < 0
    without = excess_bounds(np.zeros(60), np.zeros(60), sites)
    assert without.upper == pytest.approx(found.upper)
    numbers_ = np.random.default_rng(0).exponential(size=60)
    same = excess_bounds(numbers_, numbers_, sites)
    assert (same.lower, same.upper) == (0.0, 0.0)


def test_a_tiny_context_does_not_widen_what_is_said_of_others():
    losses, competitors, codes = rows([0.5, 0.0], [400, 400])
    alone = excess_bounds(losses, competitors, codes)
    beside = excess_bounds(np.r_[losses, 1.0, 1.5], np.r_[competitors[:, 0], 1.2, 1.4], np.r_[codes, 2, 2])
    assert beside.lower == pytest.approx(alone.lower, abs=0.4 * (alone.estimate - alone.lower))
    assert beside.p_value < 0.01
    width = alone.by_context["high"][0] - alone.by_context["low"][0]
    assert beside.by_context["high"][0] - beside.by_context["low"][0] < 1.3 * width


def test_rows_without_weight_count_as_dropped():
    losses, competitors, codes = rows([0.1, 0.5, -0.2], [50, 40, 30], n_competitors=2)
    weight = np.ones(120)
    weight[::3] = 0.0
    kept = weight > 0
    mix = cpo.KLBall([0.4, 0.3, 0.3], 0.1)
    some = excess_bounds(losses, competitors, codes, sample_weight=weight, mix=mix)
    fewer = excess_bounds(losses[kept], competitors[kept], codes[kept], mix=mix)
    np.testing.assert_array_equal(numbers(some), numbers(fewer))
    assert some.by_context["n"].tolist() == fewer.by_context["n"].tolist()
    weight[codes == 2] = 0.0
    weight[-1] = 1.0
    assert excess_bounds(losses, competitors, codes, sample_weight=weight).unjudged == (2,)


# --- truth ----------------------------------------------------------------------------------------------------------


def simulated(means, size, n_runs=300, mix=None, **options):
    found = [excess_bounds(*rows(means, size, seed, **options), mix=mix) for seed in range(n_runs)]
    return np.array([numbers(one) for one in found]), found


@pytest.mark.parametrize("means", [np.full(8, 0.2), np.r_[1.0, np.zeros(7)], np.zeros(8)], ids=["ties", "peak", "none"])
def test_intervals_cover_the_worst_context_and_the_worst_mix(means):
    mix = cpo.KLBall(np.full(8, 1 / 8), 0.2)
    ends, _ = simulated(means, 40, n_runs=120, mix=mix)
    for truth, (estimate, lower, upper) in ((means.max(), ends.T[:3]), (mix.worst_case(means).value, ends.T[3:])):
        assert np.mean(lower > truth) <= 0.06
        assert np.mean(upper < truth) <= 0.06
        assert abs(np.mean(estimate) - truth) < 0.08


def test_the_estimate_in_ties_has_less_than_a_third_of_the_bias_of_the_raw_maximum():
    ends, found = simulated(np.full(30, 0.1), 50, n_runs=100)
    raw = np.mean([one.by_context["excess"].max() for one in found]) - 0.1
    assert raw > 0.25
    assert abs(np.mean(ends[:, 0]) - 0.1) < raw / 3


def test_bands_hold_for_all_contexts_together():
    means = np.linspace(-0.5, 0.5, 6)
    _, found = simulated(means, [20, 30, 40, 50, 60, 70], n_runs=200)
    missed = [((one.by_context["low"] > means) | (one.by_context["high"] < means)).any() for one in found]
    assert np.mean(missed) <= 0.09


def test_p_values_are_small_by_chance_no_more_often_than_they_say_and_small_where_a_context_is_worse():
    _, null = simulated(np.zeros(8), 40, n_runs=200)
    p = np.array([one.p_value for one in null])
    assert np.mean(p <= 0.05) <= 0.09
    assert np.mean(p <= 0.05) >= 0.01
    _, planted = simulated(np.r_[0.8, np.zeros(7)], 40, n_runs=50)
    assert np.mean([one.p_value <= 0.05 for one in planted]) > 0.9


def test_dependent_rows_are_covered_when_their_groups_are_told():
    misses = np.zeros(2)
    for seed in range(120):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(60), 10)
        # Contexts change inside a group, which errs as a whole.
        codes = rng.integers(0, 3, 600)
        difference = 0.1 + np.repeat(rng.standard_normal(60), 10) + 0.3 * rng.standard_normal(600)
        for k, told in enumerate((None, groups)):
            found = excess_bounds(difference, np.zeros(600), codes, groups=told)
            misses[k] += found.lower > 0.1 or found.upper < 0.1
    assert misses[0] / 120 > 0.15
    assert misses[1] / 120 < 0.1


# --- differences ----------------------------------------------------------------------------------------------------


def two_methods(first, second, size, seed, noise=0.5):
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(len(first)), size)
    common = rng.standard_normal(len(codes))
    losses, others = (
        np.asarray(means)[codes] + common + noise * rng.standard_normal(len(codes)) for means in (first, second)
    )
    return losses, others, np.zeros(len(codes)), codes


def test_the_same_losses_do_not_differ():
    losses, competitors, codes = rows([0.1, 0.5, -0.2], [50, 40, 30], n_competitors=2)
    found = excess_difference(losses, losses, competitors, codes, mix=cpo.KLBall([0.4, 0.3, 0.3], 0.1))
    assert (numbers(found) == 0.0).all()


def test_a_constant_shift_is_found_exactly():
    losses, competitors, codes = rows([0.1, 0.5, -0.2], [50, 40, 30], n_competitors=2)
    found = excess_difference(losses - 0.25, losses, competitors, codes, mix=cpo.KLBall([0.4, 0.3, 0.3], 0.1))
    np.testing.assert_allclose(numbers(found), -0.25, atol=1e-6)


def test_exchanging_the_methods_turns_the_interval_around():
    losses, others, competitors, codes = two_methods([0.1, 0.4, 0.2], [0.3, 0.0, 0.2], 80, 0)
    mix = cpo.KLBall(np.full(3, 1 / 3), 0.1)
    one = excess_difference(losses, others, competitors, codes, mix=mix)
    other = excess_difference(others, losses, competitors, codes, mix=mix)
    length = one.upper - one.lower
    np.testing.assert_allclose([one.lower, one.upper], [-other.upper, -other.lower], atol=0.1 * length)
    length = one.mix_upper - one.mix_lower
    np.testing.assert_allclose([one.mix_lower, one.mix_upper], [-other.mix_upper, -other.mix_lower], atol=0.1 * length)


def test_a_difference_agrees_with_the_intervals_of_both():
    # A competitor that is far off in one small context must not decide what is said of the others.
    for seed in range(8):
        rng = np.random.default_rng(seed)
        codes = np.repeat(np.arange(8), [60, 50, 40, 30, 25, 20, 10, 5])
        common = rng.exponential(size=240)
        pooled, model = common + 0.02 * rng.standard_normal(240), common + 0.05 * rng.standard_normal(240)
        own = common + np.where(codes == 7, rng.exponential(20.0, 240), 0.3 * rng.exponential(size=240))
        competitors, mix = np.column_stack([own, pooled]), cpo.KLBall(np.bincount(codes) / 240, 0.3)
        change = excess_difference(model, pooled, competitors, codes, mix=mix)
        first, second = (excess_bounds(losses, competitors, codes, mix=mix) for losses in (model, pooled))
        # Both estimates are within .02 or so of each other, whatever the competitor does.
        assert abs(change.mix_estimate) < 0.05
        assert change.mix_lower < change.mix_estimate < change.mix_upper
        assert change.mix_lower <= first.mix_upper - second.mix_lower
        assert change.mix_upper >= first.mix_lower - second.mix_upper


TIES, PEAK = np.full(8, 0.2), np.r_[0.2, np.full(7, -0.6)]


@pytest.mark.parametrize(("first", "second"), [(TIES, TIES), (PEAK, TIES), (TIES, PEAK), (PEAK, PEAK[::-1])], ids=str)
def test_no_difference_is_claimed_where_there_is_none(first, second):
    claims = np.zeros(2)
    for seed in range(100):
        found = excess_difference(*two_methods(first, second, 60, seed))
        claims += [found.upper < 0, found.lower > 0]
    # At most 2.5 are expected; claims four times as frequent would be seen in 94 of 100 such tests.
    assert (claims / 100 <= 0.05).all()


def test_differences_of_the_worst_mix_are_covered_and_found():
    mix, missed, found_ = cpo.KLBall(np.full(4, 0.25), 0.1), np.zeros(2), 0
    first, second = np.array([0.2, 0.1, 0.0, 0.0]), np.array([0.0, 0.0, 0.1, 0.8])
    truth = mix.worst_case(first).value - mix.worst_case(second).value
    for seed in range(60):
        found = excess_difference(*two_methods(first, second, 60, seed), mix=mix)
        missed += [found.mix_upper < truth, found.mix_lower > truth]
        found_ += found.mix_upper < 0
    assert (missed / 60 <= 0.1).all()
    assert found_ / 60 > 0.8


# --- what is wrong with the input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"losses": [1.0, np.nan, 2.0, 3.0]}, "losses in row 1 is nan"),
        ({"losses": [[1.0], [2.0], [3.0], [4.0]]}, "one number per row"),
        ({"losses": ["a", "b", "c", "d"]}, "must be numbers"),
        ({"competitors": [1.0, 2.0]}, "for 4 rows"),
        ({"competitors": [1.0, 2.0, np.nan, 1.0]}, "inf where there is no model"),
        ({"competitors": {}}, "one loss per row and model"),
        ({"contexts": ["a", "b", "a"]}, "context labels for 4 rows"),
        ({"groups": [1, 2, 3]}, "group labels for 4 rows"),
        ({"groups": [1, None, 3, 3]}, "the group of row 1"),
        ({"confidence": 1.0}, "confidence"),
        ({"mix": [0.5, 0.5]}, "pass a set of mixes"),
        ({"mix": cpo.KLBall([0.5, 0.3, 0.2], 0.1)}, "a set over 3 contexts and the rows have 2"),
        ({"sample_weight": [1.0, -1.0, 1.0, 1.0]}, "sample_weight in row 1"),
    ],
    ids=str,
)
def test_bad_input_is_named(changed, words):
    good = {"losses": [1.0, 2.0, 3.0, 4.0], "competitors": [1.0, 1.0, 2.0, 2.0], "contexts": ["a", "a", "b", "b"]}
    with pytest.raises(InvalidInputError, match=words):
        excess_bounds(**good | changed)


def test_methods_of_different_rows_are_refused():
    with pytest.raises(InvalidInputError, match="Pass the same rows"):
        excess_difference([1.0, 2.0], [1.0], [0.0, 0.0], ["a", "a"])
