"""The mix of later rows beside the set that a model was made for."""

import math

import numpy as np
import pytest

from counterpoise.contexts import objects
from counterpoise.judging.at_fit import AtFit
from counterpoise.judging.mix_now import MixNow
from counterpoise.sets import KLBall, ShareBounds

COUNTS = np.array([60.0, 30.0, 10.0])


def at_fit(mixes=None, others=()):
    return AtFit(objects(["a", "b", "c"]), COUNTS, mixes, others, None, {}, held_out=True)


def now(counts, others=None, radius=0.1, fit=None):
    ball = KLBall(COUNTS / COUNTS.sum(), radius)
    return MixNow.of(fit or at_fit(ball), np.array(counts, dtype=float), others or {}, 0.95)


@pytest.mark.parametrize("radius", [0.01, 0.1, 1.0, math.inf])
def test_a_mix_is_inside_where_the_set_contains_it(radius):
    counts = np.array([400.0, 400.0, 200.0])
    found = now(counts, radius=radius)
    ball = KLBall(COUNTS / COUNTS.sum(), radius)
    assert found.inside == ball.contains(counts / counts.sum())
    assert found.divergence == pytest.approx(ball.divergence(counts / counts.sum()))
    assert f"lies {'in' if found.inside else 'outside'} the set" in found.words


def test_an_absent_context_is_named():
    found = now([500, 500, 0])
    assert not found.inside
    assert math.isinf(found.divergence)
    assert found.absent == ("c",)
    assert "there are no rows of c" in found.words
    assert found.json["divergence"] == "inf"


def test_few_rows_may_look_so_by_chance_and_many_may_not():
    assert now([5, 5, 0]).by_chance
    assert "by chance" in now([5, 5, 0]).words
    assert not now([500, 500, 0]).by_chance
    assert not now([0, 0, 5000]).by_chance


def test_new_contexts_are_outside_unless_the_set_has_them():
    assert not now([60, 30, 10], {"d": 5.0}).inside
    ball = KLBall([0.5, 0.3, 0.1, 0.1], 0.1)
    assert now([50, 30, 10], {"d": 10.0}, fit=at_fit(ball, ("d",))).inside
    assert not now([50, 30, 10], {"e": 10.0}, fit=at_fit(ball, ("d",))).inside


def test_a_set_of_bounds_has_no_distance():
    bounds = ShareBounds([0.1, 0.1, 0.1], [0.8, 0.8, 0.8])
    found = now([40, 40, 20], fit=at_fit(bounds))
    assert found.inside
    assert math.isnan(found.divergence)
    assert found.words.endswith("the model was made for.")
    assert not now([90, 5, 5], fit=at_fit(bounds)).inside


def test_without_a_set_there_are_shares_and_no_verdict():
    found = now([1, 1, 1], fit=at_fit(None))
    assert found.inside is None
    assert found.words == ""
    np.testing.assert_allclose(found.shares["now"], 1 / 3)
