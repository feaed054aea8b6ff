"""Risks that the caller computes: any decision problem, through plain functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from counterpoise.exceptions import InvalidInputError
from counterpoise.oracle._base import Array, Bounds

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

    @cached_property
    def typical_risk(self) -> float:
        """The mean absolute risk where the caller starts."""
        return float(np.mean(np.abs(self.at(self.first).risks)))

    @property
    def is_rigorous(self) -> bool:
        """Whether the bound may be called global.

        The caller says the risks are convex, or gave Hessians of which none that was seen speaks against it.
        """
        if self.convex is not None:
            return self.convex
        return self.hessian_of is not None and not self._seen.get("indefinite", False)

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
        )

    def note_indefinite(self) -> None:
        """Remember that a Hessian with a negative eigenvalue was seen."""
        self._seen["indefinite"] = True

    def checked(self, values: Any, shape: tuple[int, ...], name: str, theta: Array) -> Array:
        """Return what a caller's function gave as floats of the right shape."""
        try:
            array = np.asarray(values, dtype=np.float64)
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
class CallablePoint:
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
        values, vectors = np.linalg.eigh(matrix)
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
        twice what a parabola promises, which holds where the curvature does not fall by more than half on the way.
        """
        value = float(p @ self.risks)
        best = self._secant_bound(p) if self.oracle.n_parameters == 1 else self._tangent_bound(value, gradient)
        if self.oracle.convex and self.oracle.hessian_of is None:
            return best
        if curvature is None:
            curvature = self.hessian(p)
        remaining = float(gradient @ np.linalg.pinv(curvature, rcond=1e-12, hermitian=True) @ gradient)
        return max(best, value - max(remaining, 0.0))

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
        # Narrow secants lose to rounding, wide ones to curvature; the best of many is still a bound.
        widths = {scale * 10.0**k for scale in (1.0, abs(x)) for k in range(-12, 0) if scale > 0}

        def value(t: float) -> float:
            return float(p @ self.oracle.at(np.array([t])).risks)

        return max(_secants(value, x, width, low, high) for width in widths)

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


def _secants(function: Callable[[float], float], x: float, width: float, low: float, high: float) -> float:
    """Bound a convex function on [low, high] from below by three secants around ``x``.

    A convex function lies above a secant's line everywhere outside the secant's own ends.
    """
    a, b = max(x - width, low), min(x + width, high)
    left, right = max(a - width, low), min(b + width, high)
    if not a < b:
        return -np.inf
    at_left, at_a, at_b, at_right = (function(t) for t in (left, a, b, right))
    inner = (at_b - at_a) / (b - a)
    # What rounding of the values can do to a slope: a sign that it could have turned proves nothing.
    doubt = 8.0 * _EPS * max(abs(at_left), abs(at_a), abs(at_b), abs(at_right)) / width
    bounds = []
    outer_left = (at_a - at_left) / (a - left) if left < a else None
    outer_right = (at_right - at_b) / (right - b) if b < right else None
    if outer_left is not None:
        bounds += [at_a, at_a - inner * (a - left)]
        if left > low:
            bounds.append(at_left if outer_left <= -doubt else at_left - (outer_left + doubt) * (left - low))
    if outer_right is not None:
        bounds += [at_b, at_b + inner * (right - b)]
        if right < high:
            bounds.append(at_right if outer_right >= doubt else at_right + (outer_right - doubt) * (high - right))
    # Between a and b both outer lines lie below; their maximum is least at an end or where they cross.
    lines = [(at_a, a, outer_left), (at_b, b, outer_right)]
    known = [(v, t, s) for v, t, s in lines if s is not None]
    ends = [max((v + s * (t - u) for v, u, s in known), default=-np.inf) for t in (a, b)]
    if len(known) == 2 and known[0][2] != known[1][2]:
        (v, t, s), (w, u, r) = known
        cross = (w - v + s * t - r * u) / (s - r)
        if a < cross < b:
            ends.append(v + s * (cross - t))
    return float(min(bounds + ends))
