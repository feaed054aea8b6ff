"""Predicted probabilities beside what came, context by context."""

import numpy as np
import pytest

from counterpoise.inference.excess import HeldOut
from counterpoise.judging.measures import Judged, Predicted
from counterpoise.reports.calibration import DRAWN, Calibration


def two_classes(shift=0.0, n=900, seed=0):
    """Return rows whose probabilities are right in one context, and too low by a shift in the other."""
    rng = np.random.default_rng(seed)
    c = np.repeat(["right", "off"], n // 2)
    p = rng.uniform(0.1, 0.7, n)
    y = np.where(rng.random(n) < p + shift * (c == "off"), "ill", "well")
    predicted = Predicted(np.column_stack([p, 1.0 - p]), np.array(["ill", "well"]))
    return Judged.of(y, predicted), HeldOut.of(n, c), p, y, c


def row_of(table, **values):
    return next(table.where(**values).rows())


def test_summary_is_the_mean_probability_beside_the_share_of_rows():
    rows, held_out, p, y, c = two_classes(0.2)
    found = Calibration.of(rows, held_out)
    assert found.event == "well"
    for name, part in (("all", c == c), ("right", c == "right"), ("off", c == "off")):
        row = row_of(found.summary, context=name)
        assert row["n"] == part.sum()
        assert row["predicted"] == pytest.approx((1 - p)[part].mean())
        assert row["observed"] == pytest.approx((y == "well")[part].mean())
        assert row["gap"] == pytest.approx(row["observed"] - row["predicted"])
        assert row["low"] < row["gap"] < row["high"]


def test_intervals_tell_a_context_that_is_off_from_one_that_is_not():
    missed, found_off = 0, 0
    for seed in range(40):
        rows, held_out, *_ = two_classes(0.2, seed=seed)
        summary = Calibration.of(rows, held_out).summary
        right, off = (row_of(summary, context=name) for name in ("right", "off"))
        missed += not right["low"] <= 0.0 <= right["high"]
        found_off += off["high"] < 0.0
    assert missed <= 5
    assert found_off >= 38


def test_bins_hold_every_row_once_and_ascend():
    rows, held_out, *_ = two_classes()
    found = Calibration.of(rows, held_out)
    assert len(found.curves) == 3
    for curve, n in zip(found.curves, found.summary["n"], strict=True):
        assert curve["n"].sum() == n
        assert np.all(np.diff(curve["predicted"]) > 0)
        assert np.all((curve["observed"] >= 0) & (curve["observed"] <= 1))


def test_rows_of_one_probability_are_one_bin():
    n = 200
    y = np.arange(n) % 4 == 0
    rows = Judged.of(y, Predicted(np.tile([0.75, 0.25], (n, 1)), np.array([False, True])))
    found = Calibration.of(rows, HeldOut.of(n, np.arange(n) % 2))
    assert [curve.n_rows for curve in found.curves] == [1, 1, 1]
    assert found.curves[0]["observed"].tolist() == [0.25]
    assert "<svg" in found.chart


def test_many_classes_are_judged_by_the_most_probable():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 300)
    y = np.array([rng.choice(3, p=one) for one in p])
    found = Calibration.of(Judged.of(y, Predicted(p, np.arange(3))), HeldOut.of(300, np.arange(300) % 2))
    row = row_of(found.summary, context="all")
    assert found.event == "the most probable class"
    assert row["predicted"] == pytest.approx(p.max(axis=1).mean())
    assert row["observed"] == pytest.approx(np.mean(p.argmax(axis=1) == y))


def test_a_picture_of_many_contexts_has_a_few_lines_and_the_table_has_all():
    n = 40 * 60
    rng = np.random.default_rng(0)
    c = np.repeat([f"site {k}" for k in range(40)], 60)
    c[:30] = "all"
    p = rng.uniform(size=n)
    y = rng.random(n) < p
    found = Calibration.of(
        Judged.of(y, Predicted(np.column_stack([1 - p, p]), np.array([False, True]))), HeldOut.of(n, c)
    )
    assert found.drawn[0] == 0
    assert len(found.drawn) == 1 + DRAWN
    assert found.html.count("<tr") == 1 + 1 + 41
    # Too few rows for a line of their own.
    small = found.summary["n"].tolist().index(30)
    assert found.curves[small].n_rows == 0
    assert small not in found.drawn
