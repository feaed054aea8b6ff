"""What every set promises. A new set is tested by an entry here; the page on adding one brings the second."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import xlogy

from counterpoise import sets
from counterpoise.sets import ContextSet
from tests.test_documentation import ROOT, run_blocks

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True)


def bounded(p_hat, width):
    return sets.ShareBounds(np.maximum(p_hat - width, 0.0), np.minimum(p_hat + width, 1.0))


def limited(p_hat, room):
    return sets.ShareLimits(np.tril(np.ones((p_hat.size, p_hat.size))), np.cumsum(p_hat) + room)


def halved(p_hat, radius):
    parents = np.minimum(np.arange(p_hat.size), 1)
    return sets.Marginal(sets.KLBall(np.bincount(parents, p_hat), radius), parents)


def within_bounds(p_hat, radius):
    return sets.KLBall(p_hat, radius) & sets.ShareBounds(0.5 * p_hat, np.minimum(1.2 * p_hat + 0.1, 1.0))


def everything(p_hat, radius):
    return limited(p_hat, 0.02) & within_bounds(p_hat, radius) & sets.TotalVariationBall(p_hat, 0.2)


MAKERS = {
    "TotalVariationBall": (sets.TotalVariationBall, [0.0, 1e-6, 0.05, 0.3, 0.7, 1.0]),
    "ShareBounds": (bounded, [0.0, 1e-6, 0.05, 0.3, 0.7, 1.0]),
    "ShareLimits": (limited, [1e-6, 0.05, 0.3, 1.0]),
    "Marginal": (halved, [1e-6, 0.05, 0.7, np.inf]),
    "Intersection": (within_bounds, [0.0, 1e-6, 0.05, 0.7, np.inf]),
    "everything": (everything, [0.0, 1e-3, 0.05, 0.7]),
    "KLBall": (sets.KLBall, [0.0, 1e-6, 0.05, 0.7, 8.0, np.inf]),
    "Chi2Ball": (sets.Chi2Ball, [0.0, 1e-6, 0.05, 0.7, 8.0, np.inf]),
    "Capped": (run_blocks(ROOT / "docs" / "extending" / "set.md")["Capped"], [1.0, 1.0 + 1e-6, 1.3, 2.0, 50.0, 1e6]),
}
"""How each set is made from a centre and a size, with sizes from the centre alone to every distribution."""


@st.composite
def members_of_the_family(draw):
    kind = draw(st.sampled_from(sorted(MAKERS)))
    make, sizes = MAKERS[kind]
    shares = np.array(draw(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6)))
    return make(shares / shares.sum(), draw(st.sampled_from(sizes)))


def vector(draw, like, low, high):
    return np.array(draw(st.lists(st.floats(low, high), min_size=like.size, max_size=like.size)))


@st.composite
def problems(draw):
    """Return a set, two score vectors and a distribution that may lie outside."""
    contexts = draw(members_of_the_family())
    one, two = (vector(draw, contexts.p_hat, -10.0, 10.0).round(3) for _ in range(2))
    weights = vector(draw, contexts.p_hat, 0.001, 1.0)
    return contexts, one, two, weights / weights.sum()


def test_every_set_that_is_exported_has_an_entry():
    exported = [getattr(sets, name) for name in sets.__all__]
    named = {one.__name__ for one in exported if inspect.isclass(one) and issubclass(one, ContextSet)}
    assert {name for name in named if not inspect.isabstract(getattr(sets, name))} <= set(MAKERS)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_set_has_every_member_of_the_protocol(kind):
    make, sizes = MAKERS[kind]
    made = make(np.array([0.6, 0.4]), sizes[2])
    for name in (one for one in vars(ContextSet) if not one.startswith("_")):
        assert hasattr(made, name), name


@PROPERTY
@given(problems())
def test_the_worst_case_is_a_member_and_its_value_its_expected_score(problem):
    contexts, scores, *_ = problem
    worst = contexts.worst_case(scores)
    assert worst.distribution.min() >= 0.0
    assert worst.distribution.sum() == pytest.approx(1.0, abs=1e-12)
    assert contexts.contains(worst.distribution)
    assert worst.value == pytest.approx(worst.distribution @ scores, abs=1e-10)
    assert isinstance(worst.value, float)


@PROPERTY
@given(problems())
def test_no_member_does_better(problem):
    contexts, scores, _, p = problem
    value = contexts.worst_case(scores).value
    assert value >= contexts.p_hat @ scores - 1e-9
    assert value >= contexts.project(p) @ scores - 1e-7
    assert value <= scores.max() + 1e-9


@PROPERTY
@given(problems(), st.floats(0.0, 1.0), st.floats(0.0, 100.0), st.floats(-100.0, 100.0))
def test_the_value_is_convex_monotone_and_follows_scale_and_shift(problem, share, scale, shift):
    contexts, one, two, _ = problem

    def value(scores):
        return contexts.worst_case(scores).value

    assert value(share * one + (1 - share) * two) <= share * value(one) + (1 - share) * value(two) + 1e-7
    assert value(np.maximum(one, two)) >= max(value(one), value(two)) - 1e-7
    assert value(scale * one + shift) == pytest.approx(scale * value(one) + shift, abs=1e-6)


@st.composite
def likelihoods(draw):
    """Return a set, counts of any size, some of them 0, and a distribution that may lie outside."""
    contexts = draw(members_of_the_family())
    counts = vector(draw, contexts.p_hat, 0.0, 10.0).round(draw(st.sampled_from([0, 3]))) * draw(
        st.sampled_from([1e-9, 1.0, 1e9])
    )
    weights = vector(draw, contexts.p_hat, 0.001, 1.0)
    return contexts, counts, weights / weights.sum()


@PROPERTY
@given(likelihoods())
def test_the_likeliest_member_is_one_and_no_member_exceeds_its_bound(problem):
    contexts, counts, p = problem
    found, n = contexts.likeliest(counts), counts.sum()
    assert contexts.contains(found.distribution)
    assert found.distribution.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.log_likelihood == pytest.approx(xlogy(counts, found.distribution).sum(), rel=1e-12, abs=1e-300)
    assert found.log_likelihood <= found.upper <= found.log_likelihood + 1e-8 * n
    for member in (contexts.project(p), contexts.p_hat):
        assert xlogy(counts, member).sum() <= found.upper + 1e-12 * n
    # What makes the ratio of shares to the member evidence against the set.
    slopes = np.divide(counts, found.distribution, out=np.zeros_like(counts), where=counts > 0.0)
    if n > 0.0 and slopes.max() < 1e6 * n:
        assert contexts.worst_case(slopes / n).value <= 1.0 + (found.upper - found.log_likelihood) / n + 1e-9
    if n == 0.0:
        np.testing.assert_array_equal(found.distribution, contexts.p_hat)
        assert found.log_likelihood == found.upper == 0.0
    elif contexts.is_simplex:
        np.testing.assert_allclose(found.distribution, counts / n, atol=1e-12)


@PROPERTY
@given(likelihoods())
def test_the_likeliest_member_depends_on_shares_alone_and_a_batch_is_its_rows(problem):
    contexts, counts, _ = problem
    batch = contexts.likeliest(np.stack([counts, 3.0 * counts, counts[::-1], 0.0 * counts]))
    assert batch.distribution.shape == (4, counts.size)
    for k, one in enumerate((counts, 3.0 * counts, counts[::-1], 0.0 * counts)):
        found, n = contexts.likeliest(one), one.sum()
        assert isinstance(found.log_likelihood, float)
        assert isinstance(found.upper, float)
        assert batch.log_likelihood[k] == pytest.approx(found.log_likelihood, abs=1e-9 * n)
        assert batch.upper[k] == pytest.approx(found.upper, abs=1e-9 * n)
    assert batch.log_likelihood[1] == pytest.approx(3.0 * batch.log_likelihood[0], abs=1e-9 * counts.sum())


@PROPERTY
@given(problems())
def test_pulling_inside_gives_a_member_and_leaves_members_alone(problem):
    contexts, _, _, p = problem
    member = contexts.project(p)
    assert contexts.contains(member)
    assert member.sum() == pytest.approx(1.0, abs=1e-12)
    assert contexts.contains(contexts.p_hat)
    np.testing.assert_allclose(contexts.project(member), member, atol=1e-9)
    if contexts.contains(p):
        np.testing.assert_allclose(member, p, atol=1e-7)


@PROPERTY
@given(problems(), st.data())
def test_an_interval_is_what_the_worst_cases_of_one_context_reach(problem, data):
    contexts = problem[0]
    k = data.draw(st.integers(0, contexts.p_hat.size - 1))
    unit = np.eye(contexts.p_hat.size)[k]
    low, high = contexts.interval(k)
    assert 0.0 <= low <= high <= 1.0
    assert high == pytest.approx(contexts.worst_case(unit).value, abs=1e-9)
    assert low == pytest.approx(-contexts.worst_case(-unit).value, abs=1e-9)


@PROPERTY
@given(problems())
def test_the_constraints_bound_the_set_where_there_are_any(problem):
    contexts, _, _, p = problem
    x, geometry, centre = contexts.lift(p), contexts.geometry, contexts.lift(contexts.p_hat)
    here, rooms = contexts.constraints(x), geometry.rooms(x)
    if contexts.is_point:
        assert here.values.size == 0
        return
    np.testing.assert_allclose(geometry.equalities @ centre, geometry.totals, atol=1e-12)
    assert (contexts.constraints(centre).values < 0.0).all()
    assert (geometry.rooms(centre) > 0.0).all()
    # A value within rounding of zero may be read either way.
    if min(np.abs(here.values).min(initial=1.0), np.abs(rooms).min(initial=1.0)) > 1e-8:
        equal = np.abs(geometry.equalities @ x - geometry.totals).max() < 1e-8
        inside = bool((here.values < 0.0).all() and (rooms > 0.0).all() and equal)
        # Auxiliary coordinates keep a little from their limits, so a mix next to the rim may be lifted beyond it.
        assert inside <= contexts.contains(p)
        assert inside or geometry.size > len(p) or not contexts.contains(p)
    inwards = centre - x
    moved = contexts.constraints(x + 1e-7 * inwards)
    np.testing.assert_allclose((moved.values - here.values) / 1e-7, here.gradients @ inwards, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(geometry.rooms(x + inwards), rooms + geometry.rates(inwards), atol=1e-12)
    np.testing.assert_allclose(geometry.forces(rooms) @ inwards, rooms @ geometry.rates(inwards), atol=1e-10)


@PROPERTY
@given(problems())
def test_the_gradients_of_the_constraints_have_the_curvature_and_the_poles_they_state(problem):
    contexts, _, _, p = problem
    x = contexts.lift(p)
    here = contexts.constraints(x)
    step = 1e-6 * x
    up, down = contexts.constraints(x + step), contexts.constraints(x - step)
    diagonal = here.curvature + here.poles / x**2
    np.testing.assert_allclose((up.gradients - down.gradients) / (2 * step), diagonal, rtol=1e-5, atol=1e-5)
    assert (here.poles >= 0.0).all()
    assert (diagonal >= 0.0).all()


@PROPERTY
@given(problems())
def test_a_solver_starts_inside(problem):
    contexts, scores, _, _ = problem
    inside = contexts.interior(scores).distribution
    assert inside.sum() == pytest.approx(1.0, abs=1e-12)
    assert inside.min() > 0.0
    x = contexts.lift(inside)
    assert (contexts.constraints(x).values < 0.0).all()
    assert (contexts.geometry.rooms(x) > 0.0).all()
    assert inside @ scores >= contexts.p_hat @ scores - 1e-9


@PROPERTY
@given(problems())
def test_the_centre_is_the_empirical_distribution_alone(problem):
    contexts, scores, _, _ = problem
    centre = contexts.centre
    assert centre.is_point
    np.testing.assert_allclose(centre.p_hat, contexts.p_hat, rtol=1e-15)
    np.testing.assert_allclose(centre.worst_case(scores).distribution, contexts.p_hat, atol=1e-15)


@PROPERTY
@given(problems())
def test_the_dual_variables_meet_the_conditions_of_optimality(problem):
    contexts, scores, _, _ = problem
    worst = contexts.worst_case(scores)
    price = np.atleast_1d(worst.multiplier)
    if (
        contexts.is_simplex
        or not contexts.geometry.is_plain
        or not (np.isfinite(price).all() and np.isfinite(worst.nu))
    ):
        return
    here, p = contexts.constraints(worst.distribution), worst.distribution
    if here.values.size == 0:
        return
    # Multiplied by p, which the poles are the reason for: 0 where p is positive, and nowhere a reason to raise p.
    lacking = (scores - worst.nu - price @ here.regular) * p + price @ here.poles
    scale = max(np.ptp(scores), np.abs(price @ here.poles).max(), 1e-9)
    np.testing.assert_allclose(lacking, 0.0, atol=1e-7 * scale)
    assert (scores - worst.nu - price @ here.regular <= 1e-7 * scale).all()
    assert (price >= 0.0).all()
    assert np.abs(price * here.values).max() <= 1e-7 * scale


@PROPERTY
@given(problems())
def test_the_extreme_sets_are_what_they_say(problem):
    contexts, scores, _, p = problem
    if contexts.is_point:
        np.testing.assert_allclose(contexts.worst_case(scores).distribution, contexts.p_hat, atol=1e-12)
    if contexts.is_simplex:
        assert contexts.worst_case(scores).value == pytest.approx(scores.max(), abs=1e-9)
        assert contexts.contains(p)


@PROPERTY
@given(problems())
def test_nothing_that_is_passed_is_changed(problem):
    contexts, scores, _, p = problem
    before = scores.copy(), p.copy(), contexts.p_hat.copy()
    contexts.worst_case(scores)
    contexts.project(p)
    contexts.contains(p)
    for now, then in zip((scores, p, contexts.p_hat), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize(
    "other",
    [
        sets.KLBall([0.5, 0.3, 0.2], 0.1),
        sets.TotalVariationBall([0.5, 0.3, 0.2], 0.2),
        sets.ShareLimits([[0, 1, 1]], [0.6]),
        sets.KLBall([0.2, 0.3, 0.5], 0.2) & sets.Chi2Ball([0.5, 0.3, 0.2], 0.5),
    ],
    ids=["KLBall", "TotalVariationBall", "ShareLimits", "two balls"],
)
def test_a_set_that_its_geometry_bounds_intersects_as_bounds_do(other):
    p_hat, scores = np.array([0.5, 0.3, 0.2]), np.random.default_rng(0).standard_normal((20, 3))
    capped = MAKERS["Capped"][0](p_hat, 1.4) & other
    bounded = sets.ShareBounds(0.0 * p_hat, 1.4 * p_hat) & other
    np.testing.assert_allclose(capped.worst_case(scores).value, bounded.worst_case(scores).value, atol=1e-9)
