"""Losses and their derivatives against high precision, and against each other."""

import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mpf
from scipy import optimize

from counterpoise.losses import Hinges, Huber, Logistic, Multinomial, Newsvendor, Pinball, Poisson, Squared
from tests.losses.test_contract import CASES, EXPORTED, every_hinged, every_loss
from tests.referees import losses as referee

TINY = np.finfo(float).tiny
"""Below the smallest normal number a result has no relative precision left."""

MARGINS = [0.0, 1e-300, 1e-17, 1e-8, 1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 17.0, 36.0, 37.0, 50.0, 300.0, 700.0]
EXTREMES = [709.0, 745.0, 800.0, 1e5]


PARAMETERS = {
    Hinges: lambda loss: {},
    Huber: lambda loss: {"delta": loss.delta},
    Logistic: lambda loss: {},
    Multinomial: lambda loss: {"n_classes": loss.n_classes},
    Newsvendor: lambda loss: {"price": loss.price},
    Pinball: lambda loss: {"quantile": loss.quantile},
    Poisson: lambda loss: {},
    Squared: lambda loss: {},
}
"""What the referee calls the parameters of each loss."""


def exact(loss, target, z):
    """Return value, first and second derivative in high precision."""
    arguments = (loss.name, target, z)
    parameters = PARAMETERS[type(loss)](loss)
    return tuple(f(*arguments, **parameters) for f in (referee.value, referee.gradient, referee.curvature))


def to_float(x):
    """Round to a double, to infinity beyond the largest one."""
    if abs(x) > mpf(np.finfo(float).max):
        return math.inf if x > 0 else -math.inf
    return float(x)


def terms(loss, target, z):
    """Return the size of what a loss adds up, where its value or slope may cancel; 0 where nothing cancels.

    Logistic and multinomial losses are differences on paper, but a good implementation subtracts nothing.
    """
    target, z = np.abs(np.atleast_1d(target)), float(np.abs(z).max())
    if isinstance(loss, (Logistic, Multinomial)):
        return 0.0, 0.0
    if isinstance(loss, Poisson):
        return target[0] * z, target[0]
    if isinstance(loss, Newsvendor):
        slope = target[0] + loss.price
        return slope * (z + target[1]), slope
    return 0.0, 0.0


def predictions(loss, target, sizes):
    """Return predictions around the kink or the origin, and with extreme margins."""
    if loss.n_outputs == 1:
        centre = float(np.atleast_1d(target)[-1]) if not isinstance(loss, (Logistic, Poisson)) else 0.0
        around = [float(centre + s * m) for m in sizes for s in (-1, 1)]
        # The referee sees the residual z - y exactly: keep predictions whose residual is a double.
        return [z for z in around if Fraction(z) - Fraction(centre) == Fraction(z - centre)]
    rng = np.random.default_rng(0)
    shapes = [np.eye(loss.n_outputs)[k] for k in range(loss.n_outputs)]
    shapes += [-shapes[0], np.ones(loss.n_outputs), *rng.uniform(-1, 1, (3, loss.n_outputs))]
    return [m * shape for m in sizes for shape in shapes]


def assert_close(got, expected, allowance, context, relative=1e-13):
    """Compare an entry, a vector or a matrix with mpf entries, relative to each entry."""
    expected = np.vectorize(to_float, otypes=[float])(np.array(expected, dtype=object))
    tolerance = relative * np.maximum(np.abs(expected), allowance) + 4 * TINY
    with np.errstate(invalid="ignore"):
        ok = (np.abs(got - expected) <= tolerance) | (got == expected)
    assert np.all(ok), (context, got, expected)


def test_every_exported_loss_has_a_high_precision_formula():
    missing = [kind.__name__ for kind in EXPORTED if kind not in PARAMETERS]
    assert not missing, f"add {missing} to tests/referees/losses.py, and to PARAMETERS of {__file__}"


@pytest.mark.parametrize("sizes", [MARGINS, EXTREMES], ids=["margins up to 700", "extreme margins"])
@every_loss
def test_values_and_derivatives_agree_with_high_precision(loss, entry, sizes):
    for target in entry.targets:
        grid = predictions(loss, target, sizes)
        repeated = np.array([target] * len(grid))
        stacked = np.array(grid)
        value, gradient = loss.value(repeated, stacked), loss.gradient(repeated, stacked)
        curvature = loss.curvature(repeated, stacked)
        for k, z in enumerate(grid):
            of_value, of_slope = terms(loss, target, z)
            expected = exact(loss, target, z)
            # Exponentials magnify the rounding of their argument, a difference of two outputs.
            relative = 1e-13 + (4 * np.finfo(float).eps * np.ptp(z) if loss.n_outputs > 1 else 0.0)
            assert_close(value[k], expected[0], of_value, (loss, target, z, "value"))
            assert_close(gradient[k], expected[1], of_slope, (loss, target, z, "gradient"), relative)
            assert_close(curvature[k], expected[2], 0.0, (loss, target, z, "curvature"), relative)


@every_loss
def test_lowest_is_the_infimum_where_it_is_finite(loss, entry):
    # Poisson reaches it at log(target), residual losses at the target or the kink, logistic ones far away.
    targets = np.array(entry.targets)
    lowest = loss.lowest(targets)
    if loss.n_outputs > 1:
        best = 1e3 * np.eye(loss.n_outputs)[targets.astype(int)]
    elif isinstance(loss, Poisson):
        best = np.log(np.maximum(targets, 1e-300))
    elif isinstance(loss, Logistic):
        best = 1e3 * (2 * targets - 1)
    else:
        best = targets if targets.ndim == 1 else targets[:, -1]
    finite = np.isfinite(lowest)
    np.testing.assert_allclose(loss.value(targets, best)[finite], lowest[finite], rtol=1e-13, atol=1e-13)


@every_hinged
def test_loss_without_a_lower_bound_says_so(loss, entry):
    targets = np.array(entry.targets)
    _, _, left, right = loss.pieces(targets)
    unbounded = np.isinf(loss.lowest(targets))
    np.testing.assert_array_equal(unbounded, (left > 0) | (right < 0))


@every_loss
def test_derivatives_agree_with_finite_differences(loss, entry):
    rng = np.random.default_rng(1)
    for target in entry.targets:
        shape = (40, loss.n_outputs) if loss.n_outputs > 1 else 40
        centre = (
            np.clip(np.atleast_1d(target)[-1], -50, 50)
            if loss.n_outputs == 1 and not isinstance(loss, Poisson)
            else 0.0
        )
        z = centre + rng.uniform(-3, 3, shape)
        repeated = np.array([target] * 40)
        step = 1e-5
        curvature = loss.curvature(repeated, z)
        # Away from a kink, or the edge of Huber's middle, where a difference would straddle it.
        smooth = np.ones(40, dtype=bool)
        if isinstance(loss, Huber):
            smooth = np.abs(np.abs(z - target) - loss.delta) > 2 * step
        elif loss.is_hinged:
            smooth = np.abs(z - loss.pieces(repeated)[0]) > 2 * step
        unit = np.eye(loss.n_outputs) if loss.n_outputs > 1 else [1.0]
        for k, direction in enumerate(unit):
            up, down = z + step * np.asarray(direction), z - step * np.asarray(direction)
            slope = (loss.value(repeated, up) - loss.value(repeated, down)) / (2 * step)
            bend = (loss.gradient(repeated, up) - loss.gradient(repeated, down)) / (2 * step)
            along = loss.gradient(repeated, z) if loss.n_outputs == 1 else loss.gradient(repeated, z)[:, k]
            expected = curvature if loss.n_outputs == 1 else curvature[:, :, k]
            # Rounding of the values, magnified by the step.
            noise = 1e-15 * (1 + np.abs(loss.value(repeated, z)).max() + np.abs(target).max()) / step
            np.testing.assert_allclose(slope[smooth], along[smooth], rtol=1e-7, atol=1e-8 + 10 * noise)
            np.testing.assert_allclose(bend[smooth], expected[smooth], rtol=1e-7, atol=1e-8 + 10 * noise)


# --- examples -----------------------------------------------------------------------------------------------


def test_logistic_of_extreme_margins_neither_overflows_nor_vanishes():
    loss = Logistic()
    z = np.array([-700.0, 700.0])
    np.testing.assert_allclose(loss.value(np.array([0.0, 1.0]), z), math.exp(-700), rtol=1e-13)
    np.testing.assert_array_equal(loss.value(np.array([1.0, 0.0]), z), 700.0)


def test_multinomial_of_two_classes_is_the_logistic_loss_of_the_difference():
    z = np.random.default_rng(0).normal(scale=20, size=(50, 2))
    y = np.arange(50) % 2.0
    two, one = Multinomial(2), Logistic()
    np.testing.assert_allclose(two.value(y, z), one.value(y, z[:, 1] - z[:, 0]), rtol=1e-13)
    np.testing.assert_allclose(two.gradient(y, z)[:, 1], one.gradient(y, z[:, 1] - z[:, 0]), rtol=1e-12)
    np.testing.assert_allclose(two.curvature(y, z)[:, 1, 1], one.curvature(y, z[:, 1] - z[:, 0]), rtol=1e-12)


def test_multinomial_ignores_a_common_shift():
    z = np.random.default_rng(0).normal(size=(20, 4))
    y = np.arange(20) % 4.0
    loss = Multinomial(4)
    np.testing.assert_allclose(loss.value(y, z + 3.0), loss.value(y, z), rtol=1e-13)
    np.testing.assert_allclose(loss.gradient(y, z).sum(axis=1), 0.0, atol=1e-15)
    np.testing.assert_allclose(loss.curvature(y, z).sum(axis=2), 0.0, atol=1e-15)


def test_poisson_overflows_to_infinity_without_a_warning():
    loss, y, z = Poisson(), np.array([3.0]), np.array([1e5])
    assert loss.value(y, z) == loss.gradient(y, z) == loss.curvature(y, z) == np.inf


def test_minimiser_of_the_pinball_loss_is_the_quantile():
    y = np.random.default_rng(0).normal(size=1001)
    loss = Pinball(0.9)
    best = optimize.minimize_scalar(lambda z: loss.value(y, np.full(1001, z)).sum(), bounds=(-3, 3), method="bounded")
    assert best.x == pytest.approx(np.quantile(y, 0.9), abs=1e-3)


def test_newsvendor_is_the_loss_of_the_paper():
    loss = Newsvendor(10.0)
    target, stock = np.array([[5.0, 20.0], [5.0, 20.0], [12.0, 3.0]]), np.array([15.0, 30.0, 3.0])
    expected = stock * target[:, 0] - 10.0 * np.minimum(stock, target[:, 1])
    np.testing.assert_allclose(loss.value(target, stock), expected, rtol=1e-15)


def test_huber_is_squared_within_delta_and_pinball_like_beyond():
    y, z = np.zeros(5), np.array([-3.0, -1.0, 0.0, 1.0, 3.0])
    np.testing.assert_array_equal(Huber(100.0).value(y, z), Squared().value(y, z))
    np.testing.assert_allclose(Huber(1e-8).value(y, z) / 1e-8, 2 * Pinball().value(y, z), atol=1e-8)


def test_cases_cover_every_registered_loss():
    assert {type(loss) for loss, _ in CASES} == set(EXPORTED)
