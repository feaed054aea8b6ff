r"""How far a convex function can still fall: rigorous bounds from what is known at one point.

Each function bounds :math:`F(\theta) - \inf F` from above, for a stack of functions at once: gradients of shape (B, d),
curvatures of shape (B, d, d). Infinity says that nothing is known.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from counterpoise.linalg import pseudo_inverse

Array = NDArray[np.float64]


_ROUNDING = 1e-13
"""Share of the terms that were summed into a gradient below which what is left of them is rounding."""


def self_concordant(gradient: Array, size: Array, curvature: Array, reach: Array, third_order: float) -> Array:
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
    gradient, size : ndarray of shape (B, d)
        The gradients, and the size of the terms that were summed into them.
    curvature : ndarray of shape (B, d, d)
        The Hessians, or anything below them.
    reach : ndarray of shape (d,)
        :math:`\max_i |x_{ij}|`; it gives :math:`\max_i \|x_i\|^2_{H^{-1}} \le` ``reach @ abs(inverse) @ reach``.
    third_order : float
        :math:`m`.
    """
    # Next to a vanishing curvature the numbers overflow, and infinity is what they mean.
    with np.errstate(over="ignore", invalid="ignore"):
        decrement, stretch = _decrement_and_stretch(gradient, size, curvature, reach)
        slope = third_order * stretch
        q = decrement * slope
        # q + (1-q) log(1-q) = q^2/2 + q^3/6 + ... cancels for small q; there the remainder is below q^4/6.
        series = decrement**2 * (0.5 + q / 6.0 + q**2 / 6.0)
        inside = np.clip(q, 1e-3, 1.0 - 1e-16)
        exact = (inside + (1.0 - inside) * np.log1p(-inside)) / np.where(slope > 0, slope, 1.0) ** 2
    return np.where(np.isnan(q), np.inf, np.where(q < 1e-3, series, np.where(q < 1.0, exact, np.inf)))


def _decrement_and_stretch(gradient: Array, size: Array, curvature: Array, reach: Array) -> tuple[Array, Array]:
    """Return the Newton decrement, and how far a unit step can move a prediction; NaN where neither means anything.

    A gradient that points where there is no curvature at all promises a decrease without end. Up to rounding it does
    not, where the function has a minimum.
    """
    inverse = pseudo_inverse(curvature)
    step = np.einsum("bij,bj->bi", inverse, gradient)
    step = step + np.einsum("bij,bj->bi", inverse, gradient - np.einsum("bij,bj->bi", curvature, step))
    left = np.abs(gradient - np.einsum("bij,bj->bi", curvature, step))
    known = (left <= _ROUNDING * size).all(axis=1) & np.isfinite(step).all(axis=1)
    decrement2 = np.einsum("bi,bi->b", gradient, step)
    stretch2 = np.einsum("i,bij,j->b", reach, np.abs(inverse), reach)
    decrement, stretch = (np.sqrt(np.maximum(x, 0.0)) for x in (decrement2, stretch2))
    return np.where(known, decrement, np.nan), np.where(known, stretch, np.nan)
