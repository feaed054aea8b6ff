"""``Mix``: what is known about the mix by label becomes the set it says, and mistakes are named in one line."""

import copy
import pickle

import numpy as np
import pytest

import counterpoise as cpo
from counterpoise.exceptions import EmptyContextError, EmptySetError, InvalidInputError
from counterpoise.sets import Chi2Ball, KLBall, Marginal, Mix, ShareBounds, ShareLimits, TotalVariationBall, radius_of

SEASONS = ("autumn", "spring", "summer", "winter")
ROWS = np.array([30.0, 20.0, 40.0, 10.0])
SHARES = ROWS / ROWS.sum()
BALLS = {"kl": KLBall, "chi2": Chi2Ball, "tv": TotalVariationBall}
DIRECTIONS = np.random.default_rng(0).normal(size=(40, 4))


def over(mix, **options):
    return Mix.of(mix).over(SEASONS, ROWS, **options)


def same(one, other, directions=DIRECTIONS):
    """Assert that two sets have the same support function in many directions."""
    np.testing.assert_allclose(one.worst_case(directions).value, other.worst_case(directions).value, atol=1e-8)


def test_bounds_are_within_the_confidence_set_of_the_data():
    mix = over({"winter": (0.05, 0.12), "summer": (None, 0.5), "spring": (0.1, None)})
    ball = KLBall(SHARES, cpo.confidence_radius(ROWS))
    same(mix, ball & ShareBounds([0.0, 0.1, 0.0, 0.05], [1.0, 1.0, 0.5, 0.12]))
    assert radius_of(mix) == ball.radius
    assert mix.interval(3) == pytest.approx((0.05, 0.12))


def test_a_number_is_a_share_that_is_known():
    assert over({"winter": 0.1, "summer": 0.3}).interval(3) == pytest.approx((0.1, 0.1))
    everything = over(Mix(bounds=dict(zip(SEASONS, SHARES, strict=True)), ball=None))
    assert everything.is_point
    np.testing.assert_allclose(everything.p_hat, SHARES)


def test_nothing_known_is_the_confidence_set():
    options = {"confidence": 0.9, "radius": "agrawal", "draws": 25.0}
    same(over(Mix(), **options), KLBall(SHARES, cpo.confidence_radius(ROWS, 0.9, "agrawal", draws=25.0)))
    assert over(Mix(ball=None)).is_simplex
    assert over(Mix(), confidence=1.0).is_simplex


@pytest.mark.parametrize("ball", BALLS)
def test_a_stated_centre_and_size(ball):
    shares = dict(zip(SEASONS, (0.4, 0.3, 0.2, 0.1), strict=True))
    same(over(Mix(shares=shares, radius=0.1, ball=ball)), BALLS[ball](np.array([0.4, 0.3, 0.2, 0.1]), 0.1))
    same(over(Mix(radius=0.2, ball=ball)), BALLS[ball](SHARES, 0.2))
    # The size of the estimator, where the mix has none.
    same(over(Mix(shares=shares, ball=ball), radius=0.05), BALLS[ball](np.array([0.4, 0.3, 0.2, 0.1]), 0.05))


def test_another_sample_is_centre_and_size():
    census = {"winter": 50, "summer": 30, "spring": 20}
    counts = np.array([0.0, 20.0, 30.0, 50.0])
    mix = over(Mix(counts=census), confidence=0.95, radius="agrawal", draws=7.0)
    same(mix, KLBall(counts / 100.0, cpo.confidence_radius(counts, 0.95, "agrawal")))
    # A context that was declared and not counted may still have some of the mass.
    assert 0.0 < mix.interval(0)[1] < 0.2


@pytest.mark.parametrize("ball", ["chi2", "tv"])
def test_other_balls_grow_with_confidence_and_shrink_with_draws(ball):
    census = Mix(counts=dict(zip(SEASONS, 100 * ROWS, strict=True)), ball=ball)
    few = Mix(counts=dict(zip(SEASONS, 2 * ROWS, strict=True)), ball=ball)
    sizes = [
        radius_of(over(few, confidence=0.99, radius="agrawal")),
        radius_of(over(few, confidence=0.9, radius="agrawal")),
        radius_of(over(census, confidence=0.9, radius="agrawal")),
    ]
    assert sizes[0] > sizes[1] > sizes[2] > 0.0


def test_limits_are_half_spaces():
    mix = over(Mix(limits=[({"autumn": 1, "winter": 1}, 0.3), ({"summer": -1}, -0.2)], radius=0.5))
    same(mix, KLBall(SHARES, 0.5) & ShareLimits([[1, 0, 0, 1], [0, 0, -1, 0]], [0.3, -0.2]))
    same(over(Mix(limits=[({"autumn": 2.0}, 0.5)], ball=None)), ShareLimits([[2, 0, 0, 0]], [0.5]))


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ([1, 2, 3, 4], {np.int64(2): (0.1, 0.2)}),
        (np.array([1, 2, 3, 4]), {2: (0.1, 0.2)}),
        (np.array(["a", "b", "c", "d"]), {np.str_("b"): (0.1, 0.2)}),
        ([("x", 1), ("x", 2), ("y", 1), ("y", 2)], {("x", 2): (0.1, 0.2)}),
        ([True, False, "c", 3.5], {np.False_: (0.1, 0.2)}),
    ],
)
def test_labels_are_those_of_the_estimators(labels, named):
    assert Mix(bounds=named).over(labels, ROWS).interval(1) == pytest.approx((0.1, 0.2))


def test_a_series_will_do():
    pandas = pytest.importorskip("pandas")
    counts = pandas.Series(["winter"] * 30 + ["summer"] * 10).value_counts()
    same(over(Mix(counts=counts, radius=0.1)), over(Mix(counts={"winter": 30, "summer": 10}, radius=0.1)))


# --- nested contexts ----------------------------------------------------------------------------------------

STORES = ("a1", "a2", "a3", "b1", "b2", "c1")
REGIONS = {"a1": "A", "a2": "A", "a3": "A", "b1": "B", "b2": "B", "c1": "C"}
PARENTS = np.array([0, 0, 0, 1, 1, 2])
SALES = np.array([40.0, 30.0, 10.0, 60.0, 20.0, 40.0])


def test_nested_contexts_have_a_set_on_regions_and_one_on_stores():
    mix = Mix(parents=REGIONS).over(STORES, SALES, confidence=0.9, radius="agrawal")
    above = np.bincount(PARENTS, SALES)
    stores = KLBall(SALES / SALES.sum(), cpo.confidence_radius(SALES, 0.95, "agrawal"))
    regions = KLBall(above / above.sum(), cpo.confidence_radius(above, 0.95, "agrawal"))
    same(mix, stores & Marginal(regions, PARENTS), np.random.default_rng(1).normal(size=(30, 6)))
    # Regions are known better than by the plain set of the stores.
    plain = KLBall(SALES / SALES.sum(), cpo.confidence_radius(SALES, 0.9, "agrawal"))
    region = (PARENTS == 0).astype(float)
    assert mix.worst_case(region).value < plain.worst_case(region).value


def test_nested_sets_cover_as_often_as_asked():
    rng = np.random.default_rng(3)
    truth = rng.dirichlet(np.ones(6))
    covered = 0
    for _ in range(20):
        counts = rng.multinomial(150, truth).astype(float)
        covered += Mix(parents=REGIONS).over(STORES, counts, confidence=0.8, radius="agrawal").contains(truth)
    assert covered >= 16


def test_tuples_name_their_parents_and_bounds_may_name_regions():
    labels = [(REGIONS[store], store) for store in STORES]
    mix = Mix(bounds={"A": (0.45, 0.5), ("B", "b1"): (0.2, None)}, parents=True, radius=0.2).over(labels, SALES)
    by_hand = KLBall(SALES / SALES.sum(), 0.2) & ShareLimits(
        [[1, 1, 1, 0, 0, 0], [-1, -1, -1, 0, 0, 0], [0, 0, 0, -1, 0, 0]], [0.5, -0.45, -0.2]
    )
    same(mix, by_hand, np.random.default_rng(1).normal(size=(30, 6)))
    limited = Mix(limits=[({"A": 1, "C": 1}, 0.6)], parents=REGIONS, radius=0.2).over(STORES, SALES)
    same(
        limited,
        KLBall(SALES / SALES.sum(), 0.2) & ShareLimits([[1, 1, 1, 0, 0, 1]], [0.6]),
        np.random.default_rng(1).normal(size=(30, 6)),
    )


# --- contexts without rows ----------------------------------------------------------------------------------


def test_contexts_without_rows_follow_those_of_the_data():
    mix = Mix(
        counts={"winter": 50, "summer": 30, "monsoon": 20}, radius=0.1, unseen_risks={"monsoon": 0.5, "winter": 9}
    )
    assert mix.unseen(SEASONS).labels == ("monsoon",)
    np.testing.assert_array_equal(mix.unseen(SEASONS).risks, [0.5])
    same(over(mix), KLBall([0.0, 0.0, 0.3, 0.5, 0.2], 0.1), np.random.default_rng(1).normal(size=(30, 5)))
    # Declared and not counted.
    declared = over(Mix(unseen_risks={"monsoon": 0.5}, radius=0.1))
    np.testing.assert_allclose(declared.p_hat, [*SHARES, 0.0])
    assert declared.interval(4)[1] > 0.01


@pytest.mark.parametrize("what", ["counts", "shares"])
def test_contexts_without_rows_are_named_and_refused(what):
    given = {"winter": 0.5, "sumer": 0.5} if what == "shares" else {"winter": 5, "sumer": 5, "nothing": 0}
    with pytest.raises(EmptyContextError, match=r"'sumer' has no training samples.*Did you mean 'summer'") as caught:
        over(Mix(**{what: given}, radius=0.1))
    assert "Drop it from the mix, or pass the risk with unseen_risks={'sumer': ...}." in str(caught.value)


def test_contexts_that_are_gone_are_no_longer_named():
    mix = Mix(
        bounds={"winter": (0.1, 0.3), "summer": (0.2, None)},
        shares={"winter": 0.5, "summer": 0.25, "spring": 0.25},
        limits=[({"winter": 1, "summer": 1}, 0.8), ({"winter": 1}, 0.4)],
        radius=0.1,
    )
    left = mix.without(["winter"])
    assert left.bounds == {"summer": (0.2, 1.0)}
    assert left.shares == {"summer": 0.5, "spring": 0.5}
    assert left.limits == (({"summer": 1.0}, 0.8),)
    assert len(left.over(["spring", "summer"], [10, 20]).p_hat) == 2
    assert mix.without([]) == mix


# --- mistakes -----------------------------------------------------------------------------------------------

MISTAKES = {
    "a label that does not exist": ({"wintr": (0.1, 0.3)}, "no context 'wintr'.*Did you mean 'winter'?"),
    "a text for a number": (Mix(bounds={"1": 0.2}), "no context '1' "),
    "low above high": (lambda: Mix(bounds={"winter": (0.3, 0.1)}), "'winter' is \\(0.3, 0.1\\); the low end is above"),
    "below zero": (lambda: Mix(bounds={"winter": (-0.1, 0.1)}), "between 0 and 1, and -0.1 does not"),
    "above one": (lambda: Mix(bounds={"winter": (0.1, 10)}), "between 0 and 1, and 10 does not"),
    "not a number": (lambda: Mix(bounds={"winter": (np.nan, 0.1)}), "between 0 and 1, and nan does not"),
    "three ends": (lambda: Mix(bounds={"winter": (0.1, 0.2, 0.3)}), "pass \\(low, high\\)"),
    "words": (lambda: Mix(bounds={"winter": "0.1..0.3"}), "pass \\(low, high\\)"),
    "no mapping": (lambda: Mix(bounds=[("winter", 0.1)]), "pass a mapping"),
    "lows past one": ({"winter": (0.6, None), "summer": (0.6, None)}, "lowest shares sum to 1.2, past one"),
    "highs below one": (dict.fromkeys(SEASONS, (None, 0.2)), "highest shares sum to 0.8, below one"),
    "negative counts": (lambda: Mix(counts={"winter": -3}), "counts of 'winter' is -3"),
    "infinite counts": (lambda: Mix(counts={"winter": np.inf}), "counts of 'winter' is inf"),
    "counts of nothing": (lambda: Mix(counts={"winter": 0}), "all zero"),
    "shares past one": (lambda: Mix(shares={"winter": 0.6, "summer": 0.6}), "shares sum to 1.2, not 1"),
    "shares that are counts": (lambda: Mix(shares={"winter": 60}), "shares of 'winter' is 60"),
    "shares without a size": (Mix(shares={"winter": 0.4, "summer": 0.6}), "Pass radius= with them, or counts="),
    "two centres": (lambda: Mix(shares={"winter": 1.0}, counts={"winter": 1}), "not both"),
    "another ball": (lambda: Mix(ball="l2"), "choose 'kl', 'chi2' or 'tv'"),
    "a size of nothing": (lambda: Mix(ball=None, radius=0.1), "nothing to centre or size"),
    "a negative size": (lambda: Mix(radius=-1.0), "0 or more"),
    "limits of a stranger": (Mix(limits=[({"monsoon": 1}, 0.5)]), "no context 'monsoon'"),
    "limits without a number": (lambda: Mix(limits=[({"winter": 1}, np.nan)]), "finite numbers"),
    "limits as a mapping": (lambda: Mix(limits={"winter": 0.5}), "pass a list of"),
    "risks without a number": (lambda: Mix(unseen_risks={"monsoon": np.inf}), "unseen_risks of 'monsoon' is inf"),
    "a missing parent": (Mix(parents={"winter": "cold"}), "parents has no entry for 'autumn' \\(3 of 4"),
    "parents of plain labels": (Mix(parents=True), "'autumn' is none"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_in_one_line(mistake):
    mix, words = MISTAKES[mistake]
    with pytest.raises(InvalidInputError, match=words) as caught:
        over(mix() if callable(mix) else mix)
    assert "\n" not in str(caught.value)


def test_bounds_that_exclude_the_data_are_told_what_there_is():
    with pytest.raises(EmptySetError) as caught:
        over({"winter": (0.8, 0.9)}, radius=0.05)
    words = str(caught.value)
    low, high = KLBall(SHARES, 0.05).interval(3)
    for part in ("'winter'", "0.8 to 0.9", "0.1 in the data", f"{low:.3g} to {high:.3g}", "ball=None", "confidence"):
        assert part in words
    # Each bound alone can be met, all together cannot.
    with pytest.raises(EmptySetError, match="mix: "):
        over({"winter": (0.2, None), "summer": (None, 0.28), "autumn": (0.35, None)}, radius=0.04)


def test_a_name_of_a_context_and_of_a_parent_is_refused():
    mix = Mix(bounds={"a1": (0.1, 0.5)}, parents=dict.fromkeys(STORES, "a1"))
    with pytest.raises(InvalidInputError, match="'a1' is the name of a context and of a parent"):
        mix.over(STORES, SALES)


def test_a_mix_is_a_value():
    mix = Mix(bounds={"winter": [0.1, 0.3]}, parents=REGIONS, limits=[({"summer": 1}, 0.5)])
    assert mix == Mix(bounds={"winter": (0.1, 0.3)}, parents=dict(REGIONS), limits=(({"summer": 1.0}, 0.5),))
    for other in (copy.deepcopy(mix), pickle.loads(pickle.dumps(mix))):
        assert other == mix
    assert cpo.Mix is Mix
