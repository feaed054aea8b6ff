"""Changes in natural units: their intervals cover what is true, and their sizes claim no more than these say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from counterpoise.inference.excess import HeldOut
from counterpoise.inference.intervals import Interval
from counterpoise.judging.measures import MEASURES, Predicted
from counterpoise.judging.tabulated import changes_of, size_of
from counterpoise.judging.trials import Outcome

ACCURACY, RMSE, DEVIANCE = (MEASURES[task][0] for task in ("classification", "regression", "count"))


@pytest.mark.parametrize(
    ("change", "size"),
    [
        ((0.05, 0.01, 0.09), "better"),
        ((-0.05, -0.09, -0.01), "worse"),
        ((0.005, 0.001, 0.009), "slightly better"),
        ((-0.005, -0.009, -0.001), "slightly worse"),
        ((0.001, -0.008, 0.009), "no practical difference"),
        ((0.001, -0.02, 0.02), "cannot be told apart"),
        ((0.0, math.nan, math.nan), "cannot be told apart"),
    ],
)
def test_sizes_follow_from_the_interval_and_from_what_matters(change, size):
    assert size_of(Interval(*change), 0.01, higher_is_better=True) == size
    mirrored = Interval(-change[0], -change[2], -change[1])
    assert size_of(mirrored, 0.01, higher_is_better=False) == size


def _numbers(rng, codes, groups):
    """Two predictors whose root mean squared errors are known: residuals in common, and some of their own."""
    common = 0.6 * rng.standard_normal(groups.max() + 1)[groups] + 0.8 * rng.standard_normal(len(codes))
    own = np.array([0.5, 1.0, 2.0])[codes]
    y = rng.normal(10.0, 3.0, len(codes))
    plain = Predicted(y + 2.0 * common + rng.standard_normal(len(codes)))
    other = Predicted(y + 2.0 * common + own * rng.standard_normal(len(codes)))
    truth = [math.sqrt(4.0 + one**2) - math.sqrt(5.0) for one in (0.5, 1.0, 2.0)]
    return y, plain, other, truth


def _classes(rng, codes, groups):
    chance = np.array([0.7, 0.8, 0.9])[codes]
    y = np.zeros(len(codes), dtype=int)
    named = [(rng.random(len(codes)) > right).astype(int) for right in (chance, np.full(len(codes), 0.8))]
    plain, other = (Predicted(np.eye(2)[one], np.array([0, 1])) for one in named)
    return y, plain, other, [0.1, 0.0, -0.1]


@pytest.mark.parametrize(("drawn", "measure"), [(_numbers, RMSE), (_classes, ACCURACY)], ids=["RMSE", "accuracy"])
def test_intervals_of_changes_cover_all_contexts_together(drawn, measure):
    rng = np.random.default_rng(4)
    codes = np.repeat([0, 1, 2], [40, 100, 300])
    groups = np.arange(len(codes)) // 4
    covered, n_runs = 0, 200
    for _ in range(n_runs):
        y, plain, other, truth = drawn(rng, codes, groups)
        held_out = HeldOut.of(len(codes), codes, groups if drawn is _numbers else None)
        nothing = np.zeros(len(codes))
        found = changes_of(held_out, y, {"erm": Outcome(nothing, plain), "robust": Outcome(nothing, other)}, measure)
        each = found.where(method="robust")
        covered += all((each["change_low"][1:] <= truth) & (truth <= each["change_high"][1:]))
    # 95% of 200, less two and a half standard errors of that.
    assert covered / n_runs >= 0.91


def test_contexts_without_a_difference_are_seldom_called_better_or_worse():
    rng = np.random.default_rng(6)
    codes = np.repeat(np.arange(8), 60)
    claimed, n_runs = 0, 150
    for _ in range(n_runs):
        y = rng.normal(size=len(codes))
        both = [Predicted(y + rng.standard_t(5, len(codes))) for _ in range(2)]
        outcomes = {name: Outcome(y * 0.0, one) for name, one in zip(("erm", "robust"), both, strict=True)}
        sizes = changes_of(HeldOut.of(len(codes), codes), y, outcomes, RMSE)["size"][1:].tolist()
        claimed += any(size.endswith(("better", "worse")) for size in sizes)
    assert claimed / n_runs <= 0.09


def test_the_change_of_all_rows_is_that_of_the_measure():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 300)
    y = rng.poisson(4.0, 300).astype(float)
    both = {name: Outcome(y * 0.0, Predicted(rng.gamma(4.0, 1.0, 300))) for name in ("erm", "robust")}
    found = next(changes_of(HeldOut.of(300, codes), y, both, DEVIANCE).rows())
    assert found["context"] == "all"
    assert found["n"] == 300
    assert found["change_low"] <= found["change"] <= found["change_high"]
    assert found["after"] == pytest.approx(found["before"] + found["change"])
