r"""How far a convex function can still fall: rigorous bounds from what is known at one point.

Each function bounds :math:`F(\theta) - \inf F` from above.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from counterpoise.linalg import pseudo_inverse

Array = NDArray[np.float64]


def self_concordant(gradient: Array, curvature: Array, reach: Array, third_order: float) -> float:
    r"""Bound for :math:`F(\theta) = \sum_i w_i \ell_i(x_i^\top \theta) + \text{quadratic}`, :math:`|\ell'''| \le m\,\ell''`.

    Along any step of length :math:`r` in the norm of the Hessian the loss curves at least like
    :math:`(e^{-Sr} + Sr - 1)/S^2`, where :math:`S = m \max_i \|x_i\|_{H^{-1}}`; minimising over :math:`r` against the
    slope :math:`-\delta r`, :math:`\delta` the Newton decrement, leaves
    :math:`(q + (1 - q) \log(1 - q)) / S^2` with :math:`q = \delta S < 1`. As :math:`S \to 0` it is
    :math:`\delta^2 / 2`.

    Parameters
    ----------
    gradient : ndarray of shape (d,)
    curvature : ndarray of shape (d, d)
        The Hessian, or anything below it.
    reach : ndarray of shape (d,)
        :math:`\max_i |x_{ij}|`; it gives :math:`\max_i \|x_i\|^2_{H^{-1}} \le` ``reach @ abs(inverse) @ reach``.
    third_order : float
        :math:`m`.
    """
    inverse = pseudo_inverse(curvature)
    decrement2 = max(float(gradient @ inverse @ gradient), 0.0)
    if third_order == 0.0:
        return 0.5 * decrement2
    slope = third_order * math.sqrt(max(float(reach @ np.abs(inverse) @ reach), 0.0))
    return self_concordant_decrease(math.sqrt(decrement2), slope)


def self_concordant_decrease(decrement: float, slope: float) -> float:
    """Evaluate ``(q + (1 - q) log(1 - q)) / slope^2`` at ``q = decrement * slope``; infinite where q >= 1."""
    q = decrement * slope
    if q >= 1.0:
        return math.inf
    if q < 1e-3:
        # q + (1-q) log(1-q) = q^2/2 + q^3/6 + ... cancels; the remainder is below q^4/6 here.
        return decrement * decrement * (0.5 + q / 6.0 + q * q / 6.0)
    return (q + (1.0 - q) * math.log1p(-q)) / (slope * slope)


def piecewise_quadratic(
    gradient: Array, curvature: Array, reach: Array, margin: float
) -> float:
    """Bound where ``curvature`` stays valid as long as no row's prediction moves by more than ``margin``.

    Inside that region the function lies above a quadratic; if the quadratic's minimum and its return to the start lie
    inside too, convexity carries the bound to everywhere.
    """
    inverse = pseudo_inverse(curvature)
    decrement = math.sqrt(max(float(gradient @ inverse @ gradient), 0.0))
    # A step of length r moves a prediction by at most r * stretch.
    stretch = math.sqrt(max(float(reach @ np.abs(inverse) @ reach), 0.0))
    return 0.5 * decrement**2 if 2.0 * decrement * stretch <= margin else math.inf
