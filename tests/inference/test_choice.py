"""Which model is kept: the simplest, unless another is better by more than its error."""

import numpy as np
import pytest

from counterpoise.inference.choice import choose
from counterpoise.inference.excess import HeldOut
from counterpoise.sets import KLBall


def held_out(codes, radius=np.inf, **options):
    p_hat = np.bincount(codes) / len(codes)
    return HeldOut.of(len(codes), codes, mix=KLBall(p_hat, radius), **options)


def kept(codes, losses, own=None, radius=np.inf, **options):
    others = {} if own is None else {"own": own}
    return choose(held_out(codes, radius, **options), losses, {**others, **losses})


def test_a_clear_gain_is_kept_and_a_clear_loss_is_not():
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1], [900, 100])
    plain = rng.exponential(size=1000) + 0.5 * (codes == 1)
    noise = 0.1 * rng.standard_normal(1000)
    better, worse = plain - 0.4 * (codes == 1) + 0.05 * (codes == 0) + noise, plain + 0.2 * (codes == 0) + noise
    assert kept(codes, {"erm": plain, "robust": better}).chosen == "robust"
    assert kept(codes, {"erm": plain, "robust": worse}).chosen == "erm"
    # Whether the gain is in a plausible mix decides.
    assert kept(codes, {"erm": plain, "robust": better}, radius=0.0).chosen == "erm"


def test_the_same_losses_leave_the_simplest():
    codes, losses = np.arange(60) % 3, np.random.default_rng(1).random(60)
    choice = kept(codes, {"erm": losses, "robust": losses.copy()})
    assert choice.chosen == "erm"
    assert choice.candidates["change"].tolist() == [0.0, 0.0]
    assert "no other model" in choice.words


@pytest.mark.parametrize("radius", [0.3, np.inf])
def test_a_candidate_that_is_another_once_more_changes_nothing(radius):
    rng = np.random.default_rng(8)
    codes = np.repeat([0, 1], [900, 100])
    plain = rng.exponential(size=1000) + 0.5 * (codes == 1)
    better = plain - 0.4 * (codes == 1) + 0.05 * (codes == 0) + 0.1 * rng.standard_normal(1000)
    two = kept(codes, {"erm": plain, "robust": better}, radius=radius)
    three = kept(codes, {"erm": plain, "same": plain.copy(), "robust": better}, radius=radius)
    assert three.chosen == two.chosen == "robust"
    for column in ("worst_case", "change", "error"):
        first, same, last = three.candidates[column]
        np.testing.assert_array_equal([first, last], two.candidates[column])
        assert same == (first if column == "worst_case" else 0.0)
    assert three.candidates["against"].tolist() == ["", "erm", "erm"]


def test_a_gain_below_its_error_is_not_kept():
    rng = np.random.default_rng(2)
    codes = np.arange(400) % 4
    plain = rng.exponential(size=400)
    switched = 0
    for seed in range(40):
        noise = 0.3 * np.random.default_rng(seed).standard_normal(400)
        switched += kept(codes, {"erm": plain, "robust": plain + noise}).chosen == "robust"
    # Nothing but noise: a one-sided test of one standard error would switch in a sixth of the runs.
    assert switched <= 4


def test_what_a_candidate_reaches_counts_as_possible():
    # No context's own model is better than the plain one, and yet weights serve the second context much better.
    rng = np.random.default_rng(3)
    codes = np.repeat([0, 1], [500, 60])
    plain = 1.0 + 0.1 * rng.standard_normal(560)
    robust = plain - 0.3 * (codes == 1) + 0.02 * (codes == 0) + 0.05 * rng.standard_normal(560)
    assert kept(codes, {"erm": plain, "robust": robust}, own=plain + 0.5).chosen == "robust"


def test_candidates_take_turns():
    rng = np.random.default_rng(4)
    codes = np.repeat([0, 1], [300, 300])
    plain = 1.0 + 0.1 * rng.standard_normal(600)
    gains = {"erm": 0.0, "inverse-frequency": 0.3, "robust": 0.28}
    losses = {name: plain - gain * (codes == 1) + 0.01 * rng.standard_normal(600) for name, gain in gains.items()}
    choice = kept(codes, losses)
    assert choice.chosen == "inverse-frequency"
    assert choice.candidates["against"].tolist() == ["", "erm", "inverse-frequency"]
    assert choice.candidates["worst_case"][0] == pytest.approx(0.3, abs=0.02)


def test_where_nothing_can_be_judged_the_simplest_is_kept():
    codes = np.arange(3)
    choice = kept(codes, {"erm": np.ones(3), "robust": np.zeros(3)})
    assert choice.chosen == "erm"
    assert np.isnan(choice.candidates["change"][1])


def test_rows_of_one_group_count_as_one():
    rng = np.random.default_rng(5)
    codes, days = np.repeat([0, 1], 200), np.repeat(np.arange(20), 20)
    plain = rng.exponential(size=400)
    # What the other model gains on a day it gains in all its rows, and there are but ten days of the second context.
    swing = np.repeat(np.tile([-1.2, 0.8], 10), 20) * (codes == 1)
    losses = {"erm": plain, "robust": plain + swing}
    alone, together = kept(codes, losses), kept(codes, losses, groups=days)
    assert together.candidates["error"][1] > 3 * alone.candidates["error"][1]
    assert (alone.chosen, together.chosen) == ("robust", "erm")


def test_a_known_reference_shifts_scores():
    rng = np.random.default_rng(6)
    codes = np.repeat([0, 1], 300)
    erm, robust = (1.0 + 0.01 * rng.standard_normal(600) for _ in range(2))
    robust = robust - 0.2 * (codes == 1) + 0.1 * (codes == 0)
    losses = {"erm": erm, "robust": robust}
    for least, chosen in (([0.9, 0.5], "robust"), ([0.5, 0.9], "erm")):
        reference = {"reference": np.array(least)[codes]}
        assert choose(held_out(codes), losses, reference).chosen == chosen
