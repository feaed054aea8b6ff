r"""Linear models with a hinged loss, as an interior-point method wants them: row by row in the dual.

The saddle problem :math:`\min_\theta \max_p \sum_c p_c R_c(\theta)` becomes, with one dual variable
:math:`v_i = p_c u_i` per row (:math:`u_i` a slope between the loss's left and right ones),

.. math:: \max_{p, v} \; \sum_c \sum_{i \in c} w_i \Bigl(p_c\,\text{height}_i
    + v_i (x_i^\top\theta - \text{hinge}_i) - \text{softness}\,\frac{v_i^2}{2 p_c}\Bigr),
    \qquad \text{left}_i\, p_c \le v_i \le \text{right}_i\, p_c,

which is concave in (p, v). The multipliers ``above`` and ``below`` of the two inequalities are how far a prediction
lies beyond the stretch where the slope turns. Each row is held by three springs, towards the right slope, the left one
and, where the loss is soft, its own; rows are eliminated one by one, and what is left has the size of theta and of the
contexts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterpoise.linalg import longest_step, positive_solver
from counterpoise.losses import Hinged
from counterpoise.oracle._base import Array, Bounds, OnlyKinks
from counterpoise.oracle.linear import LinearOracle, LinearPoint, Mixture
from counterpoise.oracle.linear_bounds import dual_bounds

_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class PolyhedralOracle:
    """A linear oracle with a hinged loss; its points carry the dual variables of their rows."""

    linear: LinearOracle

    @property
    def n_contexts(self) -> int:
        """Contexts, that is risks."""
        return self.linear.n_contexts

    @property
    def n_parameters(self) -> int:
        """Length of theta."""
        return self.linear.n_parameters

    @property
    def bounds(self) -> Bounds | None:
        """Bounds on theta."""
        return self.linear.bounds

    @property
    def lowest_risks(self) -> Array:
        """As of the linear oracle."""
        return self.linear.lowest_risks

    @property
    def typical_risk(self) -> float:
        """As of the linear oracle."""
        return self.linear.typical_risk

    @property
    def is_rigorous(self) -> bool:
        """The dual is a theorem."""
        return True

    @property
    def forms_hessian(self) -> bool:
        """A square matrix is formed whatever its size."""
        return True

    offers = frozenset({"row_duals"})

    @cached_property
    def pieces(self) -> tuple[Array, Array, Array, Array]:
        """Hinge, height, left and right slope of each row."""
        assert isinstance(self.linear.loss, Hinged)
        return self.linear.loss.pieces(self.linear.target)

    @property
    def softness(self) -> float:
        """The softness of the loss."""
        assert isinstance(self.linear.loss, Hinged)
        return self.linear.loss.softness

    def rows(self, per_context: Array) -> Array:
        """Repeat a number per context for each of its rows."""
        return np.repeat(per_context, np.diff(self.linear.starts))

    def start(self) -> Array:
        """Return the least-squares fit to the hinges, or one constant prediction if that is better."""
        linear, hinge = self.linear, self.pieces[0]
        weight = linear.weights(np.full(self.n_contexts, 1.0 / self.n_contexts))
        gram = LinearPoint(linear, linear.start()).gram(weight)
        gram[np.diag_indices_from(gram)] += linear.alpha * linear.penalised
        fit = positive_solver(gram)(linear.transpose_product((weight * hinge)[:, None]))
        return min((fit, linear.start()), key=lambda theta: float(linear.at(theta).risks.mean()))

    def at(self, theta: Array) -> PolyhedralPoint:
        """Return a point whose dual variables are well inside their bounds."""
        return self.with_margin(theta, None)

    def with_margin(self, theta: Array, margin: float | None) -> PolyhedralPoint:
        """Return the same with a margin that is known; else it is the mean distance of predictions to their hinges."""
        hinge, _, left, right = self.pieces
        beyond = self.linear.product(theta)[:, 0] - hinge
        if margin is None:
            margin = float(np.mean(np.abs(beyond))) or 1.0
        middle = 0.5 * (left + right) * self.rows(np.full(self.n_contexts, 1.0 / self.n_contexts))
        above, below = np.maximum(beyond, 0.0) + margin, np.maximum(-beyond, 0.0) + margin
        return PolyhedralPoint(self, theta, middle, above, below)


@dataclass(frozen=True, eq=False)
class RowStep:
    """A direction in the rows' variables."""

    v: Array
    above: Array
    below: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class PolyhedralPoint(OnlyKinks):
    """Theta with the dual variables of every row."""

    oracle: PolyhedralOracle
    theta: Array
    v: Array
    above: Array
    below: Array

    @cached_property
    def sharp(self) -> LinearPoint:
        """The point as the linear oracle sees it."""
        return self.oracle.linear.at(self.theta)

    @property
    def risks(self) -> Array:
        """The risk of each context."""
        return self.sharp.risks

    @property
    def jacobian(self) -> Array:
        """Subgradients of the risks."""
        return self.sharp.jacobian

    def balanced(self, p: Array) -> PolyhedralPoint:
        """Return the point with every dual variable in the middle of its interval for ``p``."""
        _, _, left, right = self.oracle.pieces
        return PolyhedralPoint(
            self.oracle, self.theta, 0.5 * (left + right) * self.oracle.rows(p), self.above, self.below
        )

    def linearise(self, p: Array, p_hat: Array) -> PolyhedralLinearisation:
        """Return the first-order model an interior-point step is made of."""
        return PolyhedralLinearisation(self, p, p_hat)

    def lower_bound(self, p: Array, gradient: Array, curvature: Array | None) -> float:
        """Bound the minimum of ``sum_c p_c risk_c`` from below by a feasible point of the dual."""
        everywhere = Mixture(self.sharp, np.ones(self.oracle.n_contexts))
        return float(dual_bounds(everywhere, self.v, *self.readiness(p))[0])

    def readiness(self, p: Array) -> tuple[Array, Array]:
        """Return how readily each row's slope moves, and its share in ``p``."""
        _, _, left, right = self.oracle.pieces
        share = self.oracle.rows(p)
        high, low = np.maximum(right * share - self.v, 0.0), np.maximum(self.v - left * share, 0.0)
        # The springs in series, written so that a row at either end does not move.
        bend = high * low / (self.above * low + self.below * high + self.oracle.softness * high * low / share + _TINY)
        return bend, share


@dataclass(frozen=True, eq=False)
class PolyhedralLinearisation:
    """The rows eliminated at one point: what they contribute to the system in theta and p."""

    point: PolyhedralPoint
    p: Array
    p_hat: Array

    @cached_property
    def _high(self) -> Array:
        """Distance of v to its upper end."""
        return np.maximum(self.point.oracle.pieces[3] * self.point.oracle.rows(self.p) - self.point.v, self._hair)

    @cached_property
    def _low(self) -> Array:
        """Distance of v to its lower end."""
        return np.maximum(self.point.v - self.point.oracle.pieces[2] * self.point.oracle.rows(self.p), self._hair)

    @cached_property
    def _hair(self) -> Array:
        """What v keeps from its ends where rounding puts it on one, so that the springs stay finite."""
        _, _, left, right = self.point.oracle.pieces
        return 1e-150 * (right - left)

    @cached_property
    def _slope(self) -> Array:
        """The slope of each row, ``v`` without its probability."""
        return self.point.v / self.point.oracle.rows(self.p)

    @cached_property
    def _off(self) -> Array:
        """How far each row is from stationary in its slope."""
        point = self.point
        beyond = point.oracle.linear.product(point.theta)[:, 0] - point.oracle.pieces[0]
        return beyond - point.oracle.softness * self._slope - point.above + point.below

    @cached_property
    def _up(self) -> Array:
        """The spring towards the right slope."""
        return self.point.above / self._high

    @cached_property
    def _down(self) -> Array:
        """The spring towards the left slope."""
        return self.point.below / self._low

    @cached_property
    def _own(self) -> Array:
        """The spring towards the present slope, of a soft loss."""
        return self.point.oracle.softness / self.point.oracle.rows(self.p)

    @cached_property
    def _bend(self) -> Array:
        return 1.0 / (self._up + self._down + self._own)

    @cached_property
    def _tilt(self) -> Array:
        """How v follows p: the mean of the slopes, weighted by their springs."""
        _, _, left, right = self.point.oracle.pieces
        return (self._up * right + self._down * left + self._own * self._slope) * self._bend

    @cached_property
    def _ridge(self) -> Array:
        return self.point.oracle.linear.alpha * self.point.sharp.coefficients

    def _per_context(self, rows: Array) -> Array:
        linear = self.point.oracle.linear
        return np.add.reduceat(linear.row_weight * rows, linear.starts[:-1])

    @cached_property
    def risks(self) -> Array:
        """The risks as the dual variables see them."""
        _, height, left, right = self.point.oracle.pieces
        ridge = 0.5 * float(self._ridge @ self.point.sharp.coefficients)
        bowl = 0.5 * self.point.oracle.softness * self._slope**2
        return self._per_context(height + right * self.point.above - left * self.point.below + bowl) + ridge

    @cached_property
    def gradient(self) -> Array:
        """The residual of stationarity in theta."""
        linear = self.point.oracle.linear
        rows = (linear.row_weight * self.point.v)[:, None]
        return linear.transpose_product(rows) + self.p.sum() * self._ridge

    @cached_property
    def jacobian(self) -> Array:
        """How the risks respond to theta."""
        linear = self.point.oracle.linear
        return linear.context_products((linear.row_weight * self._tilt)[:, None]) + self._ridge

    @cached_property
    def curvature(self) -> Array:
        """The Hessian the rows leave behind."""
        linear = self.point.oracle.linear
        gram = self.point.sharp.gram(linear.row_weight * self._bend)
        gram[np.diag_indices_from(gram)] += self.p.sum() * linear.alpha * linear.penalised
        return gram

    @cached_property
    def stiffness(self) -> Array:
        """What the rows add to the resistance of p."""
        _, _, left, right = self.point.oracle.pieces
        spread = self._up * (right - self._tilt) ** 2 + self._down * (left - self._tilt) ** 2
        return self._per_context(spread + self._own * (self._slope - self._tilt) ** 2)

    def _targets(self, mu: float, affine: RowStep | None) -> tuple[Array, Array]:
        """Return how far the two products of each row are from their target."""
        target = mu * self.point.oracle.rows(self.p_hat)
        up, down = target - self._high * self.point.above, target - self._low * self.point.below
        if affine is None:
            return up, down
        return up - affine.high * affine.above, down - affine.low * affine.below

    def shifts(self, mu: float, affine: RowStep | None) -> tuple[Array, Array]:
        """Return what the rows' own residuals add to stationarity in theta and in p."""
        return self.response(*self._targets(mu, affine), self._off)

    def response(self, up: Array, down: Array, off: Array | float) -> tuple[Array, Array]:
        """Return what residuals of the rows' conditions, products and slope, add to those of theta and p."""
        linear = self.point.oracle.linear
        _, _, left, right = self.point.oracle.pieces
        off = off - up / self._high + down / self._low
        theta = linear.transpose_product((linear.row_weight * self._bend * off)[:, None])
        p = self._per_context(right * up / self._high - left * down / self._low + self._tilt * off)
        return theta, p

    @property
    def own_shifts(self) -> tuple[Array, Array, Array, Array]:
        """The shifts of theta and p without a target, and what a target of 1 adds to them."""
        share = self.point.oracle.rows(self.p_hat)
        return (*self.shifts(0.0, None), *self.response(share, share, 0.0))

    def correction(self, affine: RowStep) -> tuple[Array, Array]:
        """Return what the second order of an affine step adds to the shifts."""
        return self.response(-affine.high * affine.above, -affine.low * affine.below, 0.0)

    def expand(self, theta: Array, p: Array, mu: float, affine: RowStep | None) -> RowStep:
        """Return the rows' part of a direction."""
        oracle = self.point.oracle
        _, _, left, right = oracle.pieces
        up, down = self._targets(mu, affine)
        off = self._off - up / self._high + down / self._low
        d_p = oracle.rows(p)
        v = self._bend * (oracle.linear.product(theta)[:, 0] + off) + self._tilt * d_p
        high, low = right * d_p - v, v - left * d_p
        above = (up - self.point.above * high) / self._high
        below = (down - self.point.below * low) / self._low
        return RowStep(v, above, below, low, high)

    def longest(self, step: RowStep) -> float:
        """Return the longest step that keeps every variable positive."""
        pairs = (
            (self.point.above, step.above),
            (self.point.below, step.below),
            (self._low, step.low),
            (self._high, step.high),
        )
        return min(longest_step(value, change) for value, change in pairs)

    def moved(self, theta: Array, length: float, step: RowStep) -> PolyhedralPoint:
        """Return the point a step away."""
        point = self.point
        return PolyhedralPoint(
            point.oracle,
            theta,
            point.v + length * step.v,
            point.above + length * step.above,
            point.below + length * step.below,
        )

    def complementarity(self, length: float = 0.0, step: RowStep | None = None) -> float | None:
        """Return the mean product of a variable and its price, here or a step away."""
        if step is None:
            return self._mean_product
        first, second = self.products(step)
        return self._mean_product + length * (first + length * second)

    @cached_property
    def _mean_product(self) -> float:
        return 0.5 * float(self._per_context(self._high * self.point.above + self._low * self.point.below).sum())

    def products(self, step: RowStep) -> tuple[float, float]:
        """Return what a step adds to the mean product: times its length, and times the length squared."""
        above, below = self.point.above, self.point.below
        first = self._high * step.above + step.high * above + self._low * step.below + step.low * below
        second = step.high * step.above + step.low * step.below
        return 0.5 * float(self._per_context(first).sum()), 0.5 * float(self._per_context(second).sum())

    def residual(self, mu: float) -> float:
        """Return the squared residual of the rows' own conditions."""
        up, down = self._targets(mu, None)
        share = self.point.oracle.rows(self.p_hat)
        return float(self._per_context((up**2 + down**2) / share + share * self._off**2).sum())

    @property
    def residuals(self) -> tuple[float, float, float]:
        """The same as a polynomial of the target, which rounds more."""
        share = self.point.oracle.rows(self.p_hat)
        up, down = self._high * self.point.above, self._low * self.point.below
        parts = ((up**2 + down**2) / share + share * self._off**2, -2.0 * (up + down), 2.0 * share)
        return tuple(float(self._per_context(part).sum()) for part in parts)  # type: ignore[return-value]

    def lagging(self) -> float:
        """Return the smallest product of a row over its target at ``mu = 1``."""
        share = self.point.oracle.rows(self.p_hat)
        return float(min(np.min(self._high * self.point.above / share), np.min(self._low * self.point.below / share)))
