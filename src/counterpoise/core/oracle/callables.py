"""Risks that the caller computes: any decision problem, through plain functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from counterpoise.core.oracle._base import Array, BasePoint, Bounds
from counterpoise.exceptions import InvalidInputError
from counterpoise.linalg import spectrum

_EPS = float(np.finfo(np.float64).eps)

_STEP = _EPS ** (1.0 / 3.0)
"""Relative step of a central difference, where truncation and rounding balance."""


@dataclass(frozen=True, eq=False)
class CallableOracle:
    """Risks, and optionally their derivatives, from functions of theta.

    Parameters
    ----------
    risks_of : callable
        theta -> (n_contexts,).
    jacobian_of : callable, optional
        theta -> (n_contexts, n_parameters); central differences otherwise.
    hessian_of : callable, optional
        theta -> (n_contexts, n_parameters, n_parameters); differences of the Jacobian otherwise.
    """

    risks_of: Callable[[Array], Any]
    first: Array
    n_contexts: int
    jacobian_of: Callable[[Array], Any] | None = None
    hessian_of: Callable[[Array], Any] | None = None
    bounds: Bounds | None = None
    convex: bool | None = None
    _seen: dict[str, bool] = field(default_factory=dict)

    @property
    def n_parameters(self) -> int:
        """Length of theta."""
        return len(self.first)

    @property
    def lowest_risks(self) -> Array:
        """Nothing is known of the caller's risks."""
        return np.full(self.n_contexts, -np.inf)

    @cached_property
    def typical_risk(self) -> float:
        """The mean absolute risk where the caller starts."""
        return float(np.mean(np.abs(self.at(self.first).risks)))

    @property
    def is_rigorous(self) -> bool:
        """Whether the bound may be called global.

        The caller says the risks are convex and they can be bounded from below, or gave Hessians of which none that was
        seen speaks against it.
        """
        if self.convex is not None:
            return self.convex and self.is_bounded_below
        return self.hessian_of is not None and not self._seen.get("indefinite", False)

    @property
    def is_bounded_below(self) -> bool:
        """Whether anything is proved of convex risks from below.

        Without Hessians that takes secants of one parameter, or tangents inside bounds: a tangent falls without end.
        """
        closed = self.bounds is not None and bool(np.isfinite(self.bounds).all())
        return self.n_parameters == 1 or self.hessian_of is not None or closed

    offers = frozenset({"hessian", "hessian_product"})

    @property
    def forms_hessian(self) -> bool:
        """A square matrix is formed whatever its size."""
        return True

    def start(self) -> Array:
        """Return the caller's first theta."""
        return self.first

    def at(self, theta: Array) -> CallablePoint:
        """Return what is known at ``theta``."""
        return CallablePoint(self, np.asarray(theta, dtype=np.float64))

    def context(self, c: int) -> CallableOracle:
        """Return the problem of one context alone."""
        jacobian, hessian = self.jacobian_of, self.hessian_of
        return CallableOracle(
            lambda theta: np.asarray(self.risks_of(theta))[[c]],
            self.first,
            1,
            None if jacobian is None else lambda theta: np.asarray(jacobian(theta))[[c]],
            None if hessian is None else lambda theta: np.asarray(hessian(theta))[[c]],
            self.bounds,
            self.convex,
            # What one context shows of its Hessians holds for the whole.
            self._seen,
        )

    def note_indefinite(self) -> None:
        """Remember that a Hessian with a negative eigenvalue was seen."""
        self._seen["indefinite"] = True

    def checked(self, values: Any, shape: tuple[int, ...], name: str, theta: Array) -> Array:
        """Return what a caller's function gave as floats of the right shape."""
        try:
            if np.iscomplexobj(values):
                raise TypeError("complex numbers have no order")
            # A copy: the function may write its next answer into the same array.
            array = np.array(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"{name}(theta) must return numbers, got {values!r:.60}.") from error
        if array.shape != shape:
            raise InvalidInputError(f"{name}(theta) returned shape {array.shape}; expected {shape}.")
        if np.isnan(array).any():
            where = int(np.argwhere(np.isnan(array))[0][0])
            raise InvalidInputError(
                f"{name}(theta) is NaN for context {where} at theta = {theta}. Bound theta to where it is defined."
            )
        return array


@dataclass(frozen=True, eq=False)
class CallablePoint(BasePoint):
    """The caller's risks at one theta."""

    oracle: CallableOracle
    theta: Array

    @cached_property
    def risks(self) -> Array:
        """The risk of each context."""
        oracle = self.oracle
        return oracle.checked(oracle.risks_of(self.theta.copy()), (oracle.n_contexts,), "risks", self.theta)

    @cached_property
    def jacobian(self) -> Array:
        """The gradients of the risks."""
        oracle = self.oracle
        if oracle.jacobian_of is None:
            return self._differences(lambda theta: oracle.at(theta).risks)
        shape = (oracle.n_contexts, oracle.n_parameters)
        return oracle.checked(oracle.jacobian_of(self.theta.copy()), shape, "jac", self.theta)

    def hessian(self, p: Array) -> Array:
        """Return the Hessian of ``sum_c p_c risk_c``, made positive where it is not."""
        oracle, n = self.oracle, self.oracle.n_parameters
        if oracle.hessian_of is None:
            matrix = self._differences(lambda theta: p @ oracle.at(theta).jacobian)
        else:
            shape = (oracle.n_contexts, n, n)
            stack = oracle.checked(oracle.hessian_of(self.theta.copy()), shape, "hess", self.theta)
            matrix = np.einsum("c,cij->ij", p, stack)
        matrix = 0.5 * (matrix + matrix.T)
        values, vectors = spectrum(matrix)
        if values[0] >= 0.0:
            return np.asarray(matrix)
        noise = 1e-6 if oracle.hessian_of is None else 1e-10
        if values[0] < -noise * max(float(np.abs(values).max()), 1e-300):
            oracle.note_indefinite()
        # Along negative curvature the step goes downhill instead of to the saddle.
        return np.asarray((vectors * np.maximum(np.abs(values), 1e-8 * np.abs(values).max())) @ vectors.T)

    def majorant(self, p: Array) -> None:
        """Nothing is known beyond the point."""

    def hessian_product(self, p: Array) -> Callable[[Array], Array]:
        """Return the map ``v -> hessian(p) @ v``."""
        return self.hessian(p).__matmul__

    def hessian_diagonal(self, p: Array) -> Array:
        """Return the diagonal of ``hessian(p)``."""
        return np.diagonal(self.hessian(p)).copy()

    def lower_bound(self, p: Array, gradient: Array, curvature: Array | None) -> float:
        """Bound the minimum of ``sum_c p_c risk_c`` from below.

        Tangents inside finite bounds, and secants for one parameter, are theorems about convex risks. Otherwise it is
        twice what a parabola promises, which holds where the curvature does not fall by more than half on the way; that
        is looked at twice as far on, and nothing is claimed where it does.
        """
        if self.oracle.n_parameters == 1:
            return self._secant_bound(p)
        value = float(p @ self.risks)
        best = self._tangent_bound(value, gradient)
        if self.oracle.hessian_of is None and self.oracle.is_rigorous:
            return best
        if curvature is None:
            curvature = self.hessian(p)
        step = np.linalg.pinv(curvature, rcond=1e-12, hermitian=True) @ gradient
        # A slope where there is no curvature promises a decrease without end.
        if float(np.abs(gradient - curvature @ step).max()) > 1e-6 * float(np.abs(gradient).max()):
            return best
        remaining = max(float(gradient @ step), 0.0)
        if remaining > 1e-14 * abs(value) and not self._keeps_curving(p, curvature, step):
            return best
        return max(best, value - remaining)

    def _keeps_curving(self, p: Array, curvature: Array, step: Array) -> bool:
        """Tell whether twice the way to the parabola's minimum at least half of the curvature is still there."""
        theta = self.theta - 2.0 * step
        if self.oracle.bounds is not None:
            theta = np.clip(theta, *self.oracle.bounds)
        there = self.oracle.at(theta).hessian(p)
        size = max(float(np.abs(curvature).max()), 1e-300)
        return bool(np.linalg.eigvalsh(there - 0.5 * curvature)[0] >= -1e-6 * size)

    def _tangent_bound(self, value: float, gradient: Array) -> float:
        """Return the tangent's least value inside the bounds."""
        low, high = self.oracle.bounds or (np.full_like(gradient, -np.inf), np.full_like(gradient, np.inf))
        slope = gradient != 0
        reach = np.where(gradient > 0, self.theta - low, high - self.theta)[slope]
        return value - float(np.abs(gradient[slope]) @ reach) if np.isfinite(reach).all() else -np.inf

    def _secant_bound(self, p: Array) -> float:
        """Return what secants around the point prove of a convex function of one parameter, kinks or not."""
        low, high = (float(b[0]) for b in self.oracle.bounds) if self.oracle.bounds else (-np.inf, np.inf)
        x = float(self.theta[0])
        scale = max(abs(x), 1.0)
        widths = {s * 10.0**k for s in (scale, abs(x)) if s > 0 for k in range(-12, 4)}
        points = sorted({min(max(x + w, low), high) for w in (0.0, *widths, *(-w for w in widths))})
        around = [self.oracle.at(np.array([t])) for t in points]
        if self.oracle.convex is None and self.oracle.hessian_of is not None:
            for point in around:
                point.look_at_curvature(p)
        return _secants(points, [float(p @ point.risks) for point in around], low, high)

    def look_at_curvature(self, p: Array) -> None:
        """Note where the only parameter's second derivative speaks against convexity, or cannot be told."""
        oracle = self.oracle
        assert oracle.hessian_of is not None
        if np.isfinite(self.risks).all():
            shape = (oracle.n_contexts, 1, 1)
            parts = p * oracle.checked(oracle.hessian_of(self.theta.copy()), shape, "hess", self.theta)[:, 0, 0]
            if not parts.sum() >= -1e-10 * np.abs(parts).max():
                oracle.note_indefinite()

    def _differences(self, function: Callable[[Array], Array]) -> Array:
        """Return the derivative of a function along each parameter, by central differences inside the bounds."""
        columns = []
        low, high = self.oracle.bounds or (-np.inf, np.inf)
        steps = _STEP * np.maximum(1.0, np.abs(self.theta))
        for j, step in enumerate(steps):
            ends = np.tile(self.theta, (2, 1))
            ends[0, j] -= step
            ends[1, j] += step
            ends = np.clip(ends, low, high)
            columns.append((function(ends[1]) - function(ends[0])) / (ends[1, j] - ends[0, j]))
        return np.stack(columns, axis=-1)


def _secants(points: list[float], values: list[float], low: float, high: float) -> float:
    """Bound a convex function on [low, high] from below by its values at some points.

    Between two neighbours it lies above the lines through the two points before them and the two after; beyond the
    last ones above the line through those. A slope is given the doubt that rounding of the values casts on it.
    """
    t, f = np.array(points), np.array(values)
    # A function that is infinite somewhere is worth knowing only where it is not.
    t, f = t[np.isfinite(f)], f[np.isfinite(f)]
    if len(t) < 3:
        return -np.inf
    slopes = np.diff(f) / np.diff(t)
    doubts = 4.0 * _EPS * np.maximum(np.abs(f[1:]), np.abs(f[:-1])) / np.diff(t)
    bounds = [float(f.min())]
    for k in range(len(t) - 1):
        lines = []
        if k > 0:
            lines.append((t[k], f[k], slopes[k - 1] - doubts[k - 1]))
        if k + 2 < len(t):
            lines.append((t[k + 1], f[k + 1], slopes[k + 1] + doubts[k + 1]))
        corners = [t[k], t[k + 1]]
        if len(lines) == 2 and lines[0][2] != lines[1][2]:
            (a, v, m), (b, w, n) = lines
            corners.append(float(np.clip((w - v + m * a - n * b) / (m - n), t[k], t[k + 1])))
        bounds.append(float(min(max(v + m * (x - a) for a, v, m in lines) for x in corners)))
    if t[0] > low:
        rise = slopes[0] + doubts[0]
        bounds.append(float(f[0] - rise * (t[0] - low)) if rise > 0 else float(f[0]))
    if t[-1] < high:
        fall = slopes[-1] - doubts[-1]
        bounds.append(float(f[-1] + fall * (high - t[-1])) if fall < 0 else float(f[-1]))
    return min(bounds)
