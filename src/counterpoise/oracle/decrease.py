r"""How far a convex function can still fall: rigorous bounds from what is known at one point.

Each function bounds :math:`F(\theta) - \inf F` from above, for a stack of functions at once: gradients of shape (B, d),
curvatures of shape (B, d, d). Infinity says that nothing is known.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from counterpoise.linalg import pseudo_inverse

Array = NDArray[np.float64]


def self_concordant(gradient: Array, curvature: Array, reach: Array, third_order: float) -> Array:
    r"""Bound for a generalised self-concordant function.

    It is :math:`F(\theta) = \sum_i w_i \ell_i(x_i^\top \theta)` plus a quadratic, with
    :math:`|\ell'''| \le m\,\ell''`.

    Along any step of length :math:`r` in the norm of the Hessian the function curves at least like
    :math:`(e^{-Sr} + Sr - 1)/S^2`, where :math:`S = m \max_i \|x_i\|_{H^{-1}}`; minimising over :math:`r` against the
    slope :math:`-\delta r`, :math:`\delta` the Newton decrement, leaves
    :math:`(q + (1 - q) \log(1 - q)) / S^2` with :math:`q = \delta S < 1`. As :math:`S \to 0` it is
    :math:`\delta^2 / 2`.

    Parameters
    ----------
    gradient : ndarray of shape (B, d)
    curvature : ndarray of shape (B, d, d)
        The Hessians, or anything below them.
    reach : ndarray of shape (d,)
        :math:`\max_i |x_{ij}|`; it gives :math:`\max_i \|x_i\|^2_{H^{-1}} \le` ``reach @ abs(inverse) @ reach``.
    third_order : float
        :math:`m`.
    """
    decrement, stretch = _decrement_and_stretch(gradient, curvature, reach)
    slope = third_order * stretch
    q = decrement * slope
    # q + (1-q) log(1-q) = q^2/2 + q^3/6 + ... cancels for small q; there the remainder is below q^4/6.
    series = decrement**2 * (0.5 + q / 6.0 + q**2 / 6.0)
    inside = np.clip(q, 1e-3, 1.0 - 1e-16)
    exact = (inside + (1.0 - inside) * np.log1p(-inside)) / np.where(slope > 0, slope, 1.0) ** 2
    return np.where(q < 1e-3, series, np.where(q < 1.0, exact, np.inf))


def piecewise_quadratic(gradient: Array, curvature: Array, reach: Array, margin: float) -> Array:
    """Bound where ``curvature`` stays valid as long as no row's prediction moves by more than ``margin``.

    Inside that region the function lies above a quadratic; where the quadratic's return to the starting value lies
    inside too, convexity carries the bound to everywhere.
    """
    decrement, stretch = _decrement_and_stretch(gradient, curvature, reach)
    return np.where(2.0 * decrement * stretch <= margin, 0.5 * decrement**2, np.inf)


def _decrement_and_stretch(gradient: Array, curvature: Array, reach: Array) -> tuple[Array, Array]:
    """Return the Newton decrement, and how far a unit step can move a prediction."""
    inverse = pseudo_inverse(curvature)
    decrement2 = np.einsum("bi,bij,bj->b", gradient, inverse, gradient)
    stretch2 = np.einsum("i,bij,j->b", reach, np.abs(inverse), reach)
    return np.sqrt(np.maximum(decrement2, 0.0)), np.sqrt(np.maximum(stretch2, 0.0))
