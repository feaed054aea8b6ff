"""What every loss promises. A new loss is tested by being exported, once it has an entry in the registry."""

import importlib
import inspect
import math
import pkgutil
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise import losses
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import (
    Hinged,
    Hinges,
    Huber,
    Logistic,
    Loss,
    Multinomial,
    Newsvendor,
    Pinball,
    Poisson,
    Squared,
)

PROPERTY = settings(max_examples=50, deadline=None, derandomize=True)


@dataclass(frozen=True)
class Entry:
    """Instances of a loss, targets it accepts and targets it refuses."""

    instances: list[Loss]
    targets: Any
    refused: list = field(default_factory=list)
    largest_prediction: float = 50.0


REALS = [-1e3, -2.5, -1.0, 0.0, 1e-3, 0.5, 1.0, 7.0, 1e4]
PURCHASES = [[5.0, 3.0], [2.0, 0.0], [0.5, 20.0], [12.0, 4.0], [0.0, 1.0], [-1.0, 2.0]]
SLOPES = [
    [-2.0, 3.0, 1.0, 4.0],
    [0.0, 5.0, -2.0, 0.0],
    [1.0, 1.0, 0.0, -3.0],
    [-4.0, -1.0, 7.0, 2.5],
    [2.0, 6.0, 0.0, 1.0],
]

REGISTRY = {
    Huber: Entry([Huber(), Huber(0.1), Huber(20.0)], REALS),
    Logistic: Entry([Logistic()], [0.0, 1.0], refused=[-1.0, 2.0, 0.5]),
    Multinomial: Entry([Multinomial(2), Multinomial(3), Multinomial(6)], [0.0, 1.0], refused=[-1.0, 0.5, 6.0]),
    Hinges: Entry([Hinges()], SLOPES, refused=[[1.0, 0.0, 0.0, 0.0]]),
    Newsvendor: Entry([Newsvendor(10.0), Newsvendor(0.3)], PURCHASES, refused=[[5.0, -1.0], [5.0, -1e-9]]),
    Pinball: Entry([Pinball(), Pinball(0.1), Pinball(0.99)], REALS),
    Poisson: Entry([Poisson()], [0.0, 0.3, 1.0, 7.0, 250.0], refused=[-1.0, -1e-9], largest_prediction=8.0),
    Squared: Entry([Squared()], REALS),
}
"""Every concrete loss, with parameters."""


def exported_losses():
    """Return the concrete losses that ``counterpoise.losses`` offers."""
    found = [getattr(losses, name) for name in losses.__all__]
    return [c for c in found if inspect.isclass(c) and issubclass(c, Loss) and not inspect.isabstract(c)]


def descendants(parent):
    return {d for child in parent.__subclasses__() for d in {child, *descendants(child)}}


EXPORTED = exported_losses()
CASES = [(loss, entry) for entry in REGISTRY.values() for loss in entry.instances]


def over(cases):
    return pytest.mark.parametrize(("loss", "entry"), cases, ids=[repr(loss) for loss, _ in cases])


every_loss = over(CASES)
every_self_concordant = over([case for case in CASES if case[0].third_order is not None])
every_hinged = over([case for case in CASES if isinstance(case[0], Hinged)])


@st.composite
def rows(draw, loss, entry, n_predictions=1):
    """Draw one admissible target and predictions for it, each as a batch of one row."""
    target = np.array([draw(st.sampled_from(entry.targets))])
    limit = entry.largest_prediction
    number = st.floats(-limit, limit, allow_subnormal=False)
    if loss.n_outputs > 1:
        number = st.lists(number, min_size=loss.n_outputs, max_size=loss.n_outputs)
    elif loss.target_columns == 1:
        # The target itself is where residual losses have their kink.
        number = number | st.just(float(np.clip(target[0], -limit, limit)))
    return target, *(np.array([draw(number)]) for _ in range(n_predictions))


def size_of(*terms):
    """The tolerance unit of a comparison: one, or the largest number in it."""
    return 1.0 + max(float(np.abs(t).max()) for t in terms)


# --- discovery ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EXPORTED, ids=lambda kind: kind.__name__)
def test_every_exported_loss_is_in_the_registry(kind):
    assert kind in REGISTRY, (
        f"{kind.__name__} is exported by counterpoise.losses but has no entry in REGISTRY of {__file__}: "
        "add instances, targets it accepts and targets it refuses, and a formula to test_values.py."
    )


def test_every_concrete_loss_is_exported():
    for module in pkgutil.iter_modules(losses.__path__, "counterpoise.losses."):
        importlib.import_module(module.name)
    concrete = {c for c in descendants(Loss) if not inspect.isabstract(c) and c.__module__.startswith("counterpoise.")}
    assert concrete == set(EXPORTED)


def test_names_are_unique_and_documented():
    names = [kind.name for kind in EXPORTED]
    assert len(set(names)) == len(names)
    assert all(kind.domain and kind.__doc__ for kind in EXPORTED)


# --- properties of the function -----------------------------------------------------------------------------


@every_loss
@PROPERTY
@given(data=st.data())
def test_shapes_are_rows_and_outputs(loss, entry, data):
    n_rows = data.draw(st.integers(0, 5))
    targets = np.array([data.draw(st.sampled_from(entry.targets)) for _ in range(n_rows)])
    targets = targets.reshape((n_rows, *np.array(entry.targets).shape[1:]))
    predictions = np.zeros((n_rows, loss.n_outputs) if loss.n_outputs > 1 else n_rows)
    outputs = (loss.n_outputs,) if loss.n_outputs > 1 else ()
    assert loss.value(targets, predictions).shape == (n_rows,)
    assert loss.gradient(targets, predictions).shape == (n_rows, *outputs)
    assert loss.curvature(targets, predictions).shape == (n_rows, *outputs, *outputs)
    assert loss.lowest(targets).shape == (n_rows,)


@every_loss
@PROPERTY
@given(data=st.data())
def test_rows_do_not_see_each_other(loss, entry, data):
    target, one, other = data.draw(rows(loss, entry, 2))
    both, stacked = np.concatenate([target, target]), np.concatenate([one, other])
    for method in (loss.value, loss.gradient, loss.curvature):
        expected = np.concatenate([method(target, one), method(target, other)])
        np.testing.assert_allclose(method(both, stacked), expected, rtol=1e-14, atol=0)


@every_loss
@PROPERTY
@given(data=st.data(), share=st.floats(0, 1))
def test_loss_is_convex(loss, entry, data, share):
    target, one, other = data.draw(rows(loss, entry, 2))
    chord = (1 - share) * loss.value(target, one) + share * loss.value(target, other)
    between = loss.value(target, (1 - share) * one + share * other)
    assert (between <= chord + 1e-12 * size_of(chord, target) * size_of(one, other)).all()


@every_loss
@PROPERTY
@given(data=st.data())
def test_gradient_supports_the_loss_everywhere(loss, entry, data):
    # At a kink as well: there it is a subgradient.
    target, here, there = data.draw(rows(loss, entry, 2))
    line = loss.value(target, here) + (loss.gradient(target, here) * (there - here)).sum(
        axis=tuple(range(1, here.ndim))
    )
    value = loss.value(target, there)
    assert (value >= line - 1e-12 * size_of(line, value, target) * size_of(here, there)).all()


@every_loss
@PROPERTY
@given(data=st.data())
def test_curvature_is_positive_semidefinite(loss, entry, data):
    target, here = data.draw(rows(loss, entry))
    curvature = loss.curvature(target, here)
    if loss.n_outputs == 1:
        assert (curvature >= 0).all()
        return
    np.testing.assert_array_equal(curvature, np.swapaxes(curvature, 1, 2))
    assert (np.linalg.eigvalsh(curvature) >= -1e-15).all()


@every_loss
@PROPERTY
@given(data=st.data())
def test_lowest_is_a_lower_bound(loss, entry, data):
    target, here = data.draw(rows(loss, entry))
    lowest = loss.lowest(target)
    assert (loss.value(target, here) >= lowest - 1e-13 * size_of(target, here, np.nan_to_num(lowest, neginf=0))).all()


@every_self_concordant
@PROPERTY
@given(data=st.data(), length=st.floats(0, 3))
def test_curvature_changes_no_faster_than_the_third_order_constant_allows(loss, entry, data, length):
    # |loss'''| <= m loss'' per unit of range of the direction, integrated: over a distance t the curvature
    # changes by a factor of at most exp(m t). Unlike a difference quotient this has no truncation error.
    target, here, direction = data.draw(rows(loss, entry, 2))
    if loss.n_outputs == 1:
        direction, distance = np.ones(1), 1.0
    else:
        distance = float(np.ptp(direction))
    length = length / max(1.0, loss.third_order * distance)

    def bend(prediction):
        curvature = loss.curvature(target, prediction)
        return float(curvature[0]) if loss.n_outputs == 1 else float(direction[0] @ curvature[0] @ direction[0])

    grows = math.exp(loss.third_order * distance * length)
    before, after = bend(here), bend(here + length * direction)
    slack = 1e-12 * grows * max(before, after) + 1e-15 * size_of(direction) ** 2 * (loss.n_outputs > 1)
    assert after <= grows * before + slack
    assert before <= grows * after + slack


@every_loss
@PROPERTY
@given(data=st.data())
def test_parabola_of_the_majorant_lies_above_the_loss(loss, entry, data):
    target, here, there = data.draw(rows(loss, entry, 2))
    bend = loss.majorant(target, here)
    if bend is None:
        # Such a loss grows faster than any parabola, or turns at once.
        assert isinstance(loss, Poisson) or loss.softness == 0
        return
    step = there - here
    bent = bend[0] * step[0] ** 2 if loss.n_outputs == 1 else step[0] @ bend[0] @ step[0]
    slope = loss.gradient(target, here)
    parabola = loss.value(target, here)[0] + (slope[0] * step[0]).sum() + 0.5 * bent
    assert loss.value(target, there)[0] <= parabola + 1e-12 * size_of(parabola, target) * size_of(here, there)


@every_loss
@PROPERTY
@given(data=st.data(), cut=st.floats(1e-12, 1e-2))
def test_truncated_loss_lies_below_by_about_the_cut(loss, entry, data, cut):
    target, here, there = data.draw(rows(loss, entry, 2))
    value, slope, bend = loss.truncated(target, here, cut)
    lost = loss.value(target, here) - value
    # Dropping classes of probability below the cut loses at most their sum, up to a term of second order.
    allowed = cut if loss.n_outputs == 1 else 2 * loss.n_outputs * cut
    assert (lost >= -1e-13 * size_of(value)).all()
    assert (lost <= allowed + 1e-13 * size_of(value)).all()
    assert slope.shape == here.shape
    assert bend.shape == loss.curvature(target, here).shape
    # What is left is convex and below, so its tangent is below the whole loss everywhere.
    tangent = value[0] + (slope[0] * (there - here)[0]).sum()
    assert loss.value(target, there)[0] >= tangent - 1e-12 * size_of(tangent, target) * size_of(here, there)


@every_loss
def test_typical_prediction_is_a_finite_number_with_a_finite_loss(loss, entry):
    targets = np.array(entry.targets)
    typical = loss.typical(targets, np.ones(len(targets)))
    assert isinstance(typical, float)
    assert math.isfinite(typical)
    constant = np.full((len(targets), loss.n_outputs) if loss.n_outputs > 1 else len(targets), typical)
    assert np.isfinite(loss.value(targets, constant)).all()


@every_loss
def test_losses_are_frozen_and_compare_by_their_parameters(loss, entry):
    assert loss == type(loss)(**vars(loss))
    assert hash(loss) == hash(type(loss)(**vars(loss)))
    with pytest.raises(AttributeError):
        loss.name = "another"


# --- hinged losses ------------------------------------------------------------------------------------------


@every_hinged
@PROPERTY
@given(data=st.data())
def test_pieces_describe_the_loss(loss, entry, data):
    target, here = data.draw(rows(loss, entry))
    hinge, height, left, right = (float(piece[0]) for piece in loss.pieces(target))
    assert left <= right
    # By its definition the loss is the highest of the lines with slopes in between, each lowered by its own softness.
    slopes = np.linspace(left, right, 2001)
    lines = height + slopes * (here[0] - hinge) - 0.5 * loss.softness * slopes**2
    spacing = (right - left) / 2000
    value, rounding = loss.value(target, here)[0], 1e-12 * size_of(lines, target, here)
    assert lines.max() - rounding <= value <= lines.max() + 0.5 * loss.softness * spacing**2 + rounding


@every_hinged
@PROPERTY
@given(data=st.data())
def test_slopes_stay_between_the_outer_ones_and_reach_them(loss, entry, data):
    target, here = data.draw(rows(loss, entry))
    hinge, _, left, right = loss.pieces(target)
    slope = loss.gradient(target, here)
    assert (slope >= left).all()
    assert (slope <= right).all()
    far = 1.0 + loss.softness * (np.abs(left) + np.abs(right)) + 1e-9 * np.abs(hinge)
    np.testing.assert_array_equal(loss.gradient(target, hinge - far), left)
    np.testing.assert_array_equal(loss.gradient(target, hinge + far), right)
    np.testing.assert_array_equal(loss.curvature(target, hinge + far), 0.0)


@every_hinged
def test_kink_has_the_right_slope_and_no_curvature(loss, entry):
    targets = np.array(entry.targets)
    hinge, height, left, right = loss.pieces(targets)
    if loss.softness > 0:
        np.testing.assert_array_equal(loss.curvature(targets, hinge), 1.0 / loss.softness)
        return
    np.testing.assert_array_equal(loss.value(targets, hinge), height)
    np.testing.assert_array_equal(loss.gradient(targets, hinge), right)
    np.testing.assert_array_equal(loss.gradient(targets, np.nextafter(hinge, -np.inf)), left)
    np.testing.assert_array_equal(loss.curvature(targets, hinge), 0.0)


# --- targets ------------------------------------------------------------------------------------------------


@every_loss
def test_admissible_targets_are_returned_as_floats(loss, entry):
    checked = loss.checked_target(entry.targets)
    assert checked.dtype == np.float64
    np.testing.assert_array_equal(checked, entry.targets)
    assert not loss.outside(checked).any()


@every_loss
def test_targets_outside_the_domain_are_refused_and_the_row_is_named(loss, entry):
    for bad in entry.refused:
        targets = [entry.targets[0], entry.targets[1], bad, bad]
        with pytest.raises(InvalidInputError, match="target in row 2") as caught:
            loss.checked_target(targets)
        assert loss.name in str(caught.value)
        assert loss.domain in str(caught.value)


@every_loss
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_targets_that_are_not_finite_are_refused_and_the_row_is_named(loss, entry, bad):
    targets = np.array([entry.targets[0]] * 3, dtype=float)
    targets[1:] = bad
    with pytest.raises(InvalidInputError, match=r"target in row 1 is .*(nan|inf)"):
        loss.checked_target(targets)


@every_loss
def test_targets_of_the_wrong_shape_are_refused(loss, entry):
    targets = np.array(entry.targets)
    for wrong in (
        targets[0] if targets.ndim == 1 else targets[:, 0],
        targets[..., None],
        targets[None, None],
    ):
        with pytest.raises(InvalidInputError, match="have shape"):
            loss.checked_target(wrong)


@every_loss
@pytest.mark.parametrize("targets", [["yes", "no"], [None, "no"], [object()], [[1.0], [2.0, 3.0]]])
def test_targets_that_are_no_numbers_are_refused(loss, entry, targets):
    with pytest.raises(InvalidInputError, match="needs numbers"):
        loss.checked_target(targets)


# --- parameters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *[(lambda d=d: Huber(d), "delta") for d in (0.0, -1.0, math.nan, math.inf)],
        *[(lambda q=q: Pinball(q), "quantile") for q in (0.0, 1.0, -0.1, 1.1, math.nan)],
        *[(lambda r=r: Newsvendor(r), "price") for r in (0.0, -1.0, math.nan, math.inf)],
        *[(lambda k=k: Multinomial(k), "n_classes") for k in (0, -1, 2.5)],
    ],
)
def test_parameters_that_make_no_loss_are_refused(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()
