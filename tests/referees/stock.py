"""Stock levels found slowly: costs from raw rows, every kink tried, and whole plans as one conic program."""

import math
import warnings
from dataclasses import dataclass, field
from functools import cached_property

import cvxpy as cp
import numpy as np


@dataclass(frozen=True)
class Sales:
    """The raw rows of one product, each with a cost and a price of its own."""

    demand: np.ndarray
    cost: np.ndarray
    price: np.ndarray
    contexts: np.ndarray
    salvage: float = 0.0
    shortage: float = 0.0
    most: float = math.inf
    whole: bool = False
    labels: list = field(default_factory=list)

    def __post_init__(self):
        for name in ("demand", "cost", "price"):
            column = np.broadcast_to(np.asarray(getattr(self, name), float), np.shape(self.contexts))
            object.__setattr__(self, name, column)
        object.__setattr__(self, "contexts", np.asarray(self.contexts))
        object.__setattr__(self, "labels", sorted(set(self.contexts.tolist())))

    def own(self, label):
        return self.contexts == label

    @cached_property
    def shares(self):
        return np.array([self.own(label).mean() for label in self.labels])

    def row_profits(self, level):
        left, lost = np.maximum(level - self.demand, 0.0), np.maximum(self.demand - level, 0.0)
        sold = np.minimum(level, self.demand)
        return self.price * sold + self.salvage * left - self.shortage * lost - self.cost * level

    def profit(self, level, label=None):
        """Return the mean profit of a level, in all or in one context."""
        return float(np.mean(self.row_profits(level)[slice(None) if label is None else self.own(label)]))

    @cached_property
    def _averages(self):
        return np.array([self.own(label) / self.own(label).sum() for label in self.labels])

    def profits(self, level):
        return self._averages @ self.row_profits(level)

    @cached_property
    def candidates(self):
        """The kinks, or all whole levels; without a limit none beyond the largest demand can be best."""
        top = self.most if math.isfinite(self.most) else math.ceil(self.demand.max())
        if self.whole:
            return np.arange(0.0, math.floor(top) + 1.0)
        return np.unique(np.append(np.minimum(self.demand, top), [0.0, top]))

    @cached_property
    def best_profits(self):
        """The most that each context can bring."""
        return np.max([self.profits(level) for level in self.candidates], axis=0)

    def best_levels(self):
        """Return the levels of each context that are best, among the candidates."""
        table = np.array([self.profits(level) for level in self.candidates])
        return [self.candidates[column >= column.max() - 1e-9] for column in table.T]

    def excess(self, level):
        return self.best_profits - self.profits(level)

    def least(self, judge):
        """Return the least of a convex function of the level, and where it is."""
        levels = self.candidates
        values = np.array([judge(level) for level in levels])
        k = int(values.argmin())
        if self.whole:
            return values[k], levels[k]
        found = [(values[k], levels[k])]
        # Convex: what is least lies in one of the two intervals that meet at the best kink.
        for low, high in zip(levels[max(k - 1, 0) : k + 1], levels[max(k - 1, 0) + 1 : k + 2], strict=False):
            found.append(_least_between(judge, low, high))
        return min(found)

    def worst_excess(self, level, radius, shares=None):
        return worst_mean(self.excess(level), self.shares if shares is None else shares, radius)

    def robust(self, radius, shares=None):
        """Return the least worst-case excess cost, and its level."""
        return self.least(lambda level: self.worst_excess(level, radius, shares))

    def least_risk(self):
        """Return the least of the largest cost of a context, and its level."""
        return self.least(lambda level: float((-self.profits(level)).max()))


def _least_between(convex, low, high):
    for _ in range(60):
        left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
        low, high = (low, right) if convex(left) < convex(right) else (left, high)
    return convex(0.5 * (low + high)), 0.5 * (low + high)


def worst_mean(scores, p_hat, radius):
    """Return the largest mean over the ball by its root equation, halved on a logarithmic scale."""
    if radius == 0.0 or np.ptp(scores) <= 1e-13 * (1.0 + np.abs(scores).max()):
        return float(p_hat @ scores)
    if math.isinf(radius):
        return float(scores.max())
    top, spread, nats = scores.max(), np.ptp(scores), radius * math.log(2.0)
    low, high = -60.0, 40.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = (top - scores) / spread + math.exp(middle)
        divergence = p_hat @ np.log(above) + math.log(p_hat @ (1.0 / above))
        low, high = (middle, high) if divergence > nats else (low, middle)
    p = p_hat / ((top - scores) / spread + math.exp(high))
    return float(p @ scores / p.sum())


def shared_optimum(products, radii, capacity):
    """Return the least sum of worst-case excess costs of orders that fit, as one conic program, and the orders."""
    rooms, total, orders = [], 0.0, []
    for product, radius in zip(products, radii, strict=True):
        level = cp.Variable(nonneg=True)
        orders.append(level)
        if math.isfinite(product.most):
            rooms.append(level <= product.most)
        left, lost = cp.pos(level - product.demand), cp.pos(product.demand - level)
        kept = product.price - product.salvage
        rows = cp.multiply(product.cost - product.price, level) + cp.multiply(kept, left) + product.shortage * lost
        scores = [
            cp.sum(rows[product.own(label)]) / product.own(label).sum() + best
            for label, best in zip(product.labels, product.best_profits, strict=True)
        ]
        worst = cp.Variable()
        total = total + worst
        if math.isinf(radius):
            rooms += [score <= worst for score in scores]
        elif radius == 0.0:
            rooms.append(product.shares @ cp.hstack(scores) <= worst)
        else:
            lam, shift, slack = cp.Variable(nonneg=True), cp.Variable(), cp.Variable(len(scores))
            spread = product.shares @ cp.rel_entr(lam * np.ones(len(scores)), slack + lam)
            rooms += [slack[c] <= shift - score for c, score in enumerate(scores)]
            rooms.append(shift + lam * radius * math.log(2.0) + spread <= worst)
    program = cp.Problem(cp.Minimize(total), [*rooms, sum(orders) <= capacity])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(program.value), np.array([float(level.value) for level in orders])


def best_split(products, radii, capacity):
    """Return the least sum over all whole orders that fit, each tried."""
    tables = []
    for product, radius in zip(products, radii, strict=True):
        levels = np.arange(0, min(math.floor(capacity), int(product.candidates[-1])) + 1)
        tables.append(np.array([product.worst_excess(level, radius) for level in levels]))
    sums = tables[0]
    for table in tables[1:]:
        room = len(sums) + len(table) - 1
        joined = np.full(room, math.inf)
        for k, value in enumerate(table):
            joined[k : k + len(sums)] = np.minimum(joined[k : k + len(sums)], sums + value)
        sums = joined
    return float(sums[: math.floor(capacity) + 1].min())
