"""Residuals by context, in the unit of the target."""

import numpy as np
import pytest

from counterpoise.inference.excess import HeldOut
from counterpoise.judging.measures import Judged, Predicted
from counterpoise.reports.residuals import QUANTILES, Residuals


def numbers(n=600, seed=0, off=3.0):
    rng = np.random.default_rng(seed)
    c = np.repeat(["right", "too low"], [n // 3, n - n // 3])
    predicted = rng.normal(100.0, 20.0, n)
    y = predicted + off * (c == "too low") + rng.normal(0.0, 5.0, n)
    return Judged.of(y, Predicted(predicted)), HeldOut.of(n, c), y - predicted, c


def test_residuals_are_what_came_minus_what_was_predicted():
    rows, held_out, residual, c = numbers()
    found = Residuals.of(rows, held_out).summary
    assert found["context"].tolist() == ["all", "too low", "right"]
    for row, part in zip(found.rows(), (c == c, c == "too low", c == "right"), strict=True):
        assert row["n"] == part.sum()
        assert row["mean"] == pytest.approx(residual[part].mean())
        own = [row[name] for name in ("low_5", "quartile_1", "median", "quartile_3", "high_95")]
        assert own == pytest.approx(np.quantile(residual[part], QUANTILES).tolist())
        assert row["mean_low"] < row["mean"] < row["mean_high"]


def test_intervals_of_means_hold_together():
    missed = 0
    for seed in range(60):
        found = Residuals.of(*numbers(150, seed)[:2]).summary
        truth = {"right": 0.0, "too low": 3.0}
        missed += any(
            not row["mean_low"] <= truth[row["context"]] <= row["mean_high"] for row in list(found.rows())[1:]
        )
    assert missed <= 8


def test_a_group_counts_as_one_unit():
    rows, held_out, *_, c = numbers()
    days = np.arange(len(c)) // 20
    tight = Residuals.of(rows, held_out).summary
    rng = np.random.default_rng(1)
    y = rows.target + rng.normal(0.0, 10.0, days.max() + 1)[days]
    wide = Residuals.of(Judged.of(y, rows.predicted), HeldOut.of(len(c), c, days)).summary
    assert np.all(wide["mean_high"] - wide["mean_low"] > tight["mean_high"] - tight["mean_low"])


def test_a_quantile_is_not_called_too_high():
    rows, held_out, residual, _ = numbers(off=-3.0)
    mean, upper = Residuals.of(rows, held_out), Residuals.of(rows, held_out, quantile=0.9)
    assert mean.level("too low") == f"Predictions there are too high by {-residual[200:].mean():.1f} on average."
    assert mean.level("right") == upper.level("too low") == ""
    assert "0.9 of rows are meant to be below zero" in upper.html


def test_picture_and_table_show_every_context():
    found = Residuals.of(*numbers()[:2])
    assert found.chart.count('class="box"') == 3
    assert found.chart.count('class="mean"') == 3
    assert found.html.count("<tr") == 4


def test_a_context_of_one_row_has_a_mean_and_no_interval():
    rows, _, _, c = numbers()
    c = np.append(c[:-1], "alone")
    found = Residuals.of(rows, HeldOut.of(len(c), c))
    alone = next(found.summary.where(context="alone").rows())
    assert np.isnan(alone["mean_low"])
    assert np.isfinite(alone["mean"])
    assert "nan" not in found.chart.lower()
    assert "nan" not in found.html.lower()
