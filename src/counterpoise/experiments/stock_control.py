"""Stock control with ten contexts, one of which supplies most of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from counterpoise.estimators.newsvendor import RobustNewsvendor
from counterpoise.experiments._base import Array, ExcessStudy, Row, by_context, fitted, generator

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(80)


@dataclass(frozen=True)
class Market:
    """Unit cost ``x``, log-normal, and demand ``y`` around ``slope x + base``, in several contexts.

    Risks are exact up to quadrature over the cost: given the cost, demand is normal and its part is in closed form.
    """

    price: float
    mean_log_cost: Array
    slope: Array
    base: Array
    log_spread: float = 0.25
    demand_spread: float = 2.0
    max_stock: float = 100.0

    @cached_property
    def _cost(self) -> Array:
        """Nodes of the cost, of shape (n_contexts, n_nodes)."""
        return np.exp(self.mean_log_cost[:, None] + self.log_spread * _NODES)

    @cached_property
    def _mean_demand(self) -> Array:
        return self.slope[:, None] * self._cost + self.base[:, None]

    @cached_property
    def _share(self) -> Array:
        return _WEIGHTS / _WEIGHTS.sum()

    def risks(self, level: float) -> Array:
        """Return the expected loss of a level in each context."""
        u = (level - self._mean_demand) / self.demand_spread
        density = np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi)
        sold = level * ndtr(-u) + self._mean_demand * ndtr(u) - self.demand_spread * density
        return np.asarray((level * self._cost - self.price * sold) @ self._share)

    @cached_property
    def best_levels(self) -> Array:
        """The level of least risk in each context."""
        return np.array([self._best(c) for c in range(len(self.slope))])

    def _best(self, c: int) -> float:
        mean_cost = float(self._cost[c] @ self._share)

        def slope(level: float) -> float:
            out_of_stock = ndtr((self._mean_demand[c] - level) / self.demand_spread) @ self._share
            return mean_cost - self.price * float(out_of_stock)

        return float(brentq(slope, 0.0, self.max_stock, xtol=1e-12)) if slope(0.0) < 0 else 0.0

    @cached_property
    def least_risks(self) -> Array:
        """The least risk of each context."""
        return np.array([self.risks(level)[c] for c, level in enumerate(self.best_levels)])

    def excess(self, level: float) -> Array:
        """Return the excess risk of a level in each context."""
        return self.risks(level) - self.least_risks

    def draw(self, contexts: NDArray[np.intp], rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a cost and a demand for each row."""
        cost = np.exp(self.mean_log_cost[contexts] + self.log_spread * rng.standard_normal(len(contexts)))
        mean = self.slope[contexts] * cost + self.base[contexts]
        return cost, mean + self.demand_spread * rng.standard_normal(len(contexts))


class Sales(NamedTuple):
    """Past costs and demands, with their contexts."""

    cost: Array
    demand: Array
    contexts: NDArray[np.intp]


def ten_contexts() -> Market:
    """Return the market of the paper's experiment, in the reading that reproduces its figure.

    The stated mean of the log-normal cost is its mean, not that of its logarithm; 4 is the variance of demand.
    """
    position = np.arange(10) / 9.0
    return Market(
        price=10.0,
        mean_log_cost=np.log(6.0 * position + 1.0) - 0.5 * 0.25**2,
        slope=6.9 * position + 0.1,
        base=15.0 * position + 15.0,
    )


@dataclass(frozen=True)
class StockControl(ExcessStudy):
    """One level for ten contexts, from 400 samples; risks are true expectations, in units of money."""

    name: ClassVar[str] = "stock-control"
    mix: ClassVar[Array] = np.array([0.7] + [0.3 / 9.0] * 9)
    n_samples: int = 400

    @cached_property
    def market(self) -> Market:
        """Where costs and demand come from."""
        return ten_contexts()

    def sample(self, rng: np.random.Generator) -> Sales:
        """Draw contexts, costs and demands."""
        contexts = rng.choice(len(self.mix), size=self.n_samples, p=self.mix)
        return Sales(*self.market.draw(contexts, rng), contexts)

    def fit(self, method: str, data: Sales, rng: np.random.Generator) -> float:
        """Return a level."""
        limits = {"price": self.market.price, "max_stock": self.market.max_stock}
        return fitted(RobustNewsvendor, method, data.cost, data.demand, data.contexts, **limits).stock_level_

    def excess(self, decision: float) -> Array:
        """Return the excess risk in each context."""
        return self.market.excess(decision)

    def evaluate(self, decision: float) -> Mapping[str, float]:
        """Return the worst and the nominal excess risk, and the level itself."""
        return {**super().evaluate(decision), "level": decision}

    def picture(self, seed: int) -> list[Row]:
        """Return costs and demands by context."""
        data = self.sample(generator(seed, self.name, 0))
        return by_context(f"{self.name}-data", data.contexts, cost=data.cost, demand=data.demand)

    def facts(self) -> list[Row]:
        """Return the best level of each context."""
        return by_context(self.name, np.arange(len(self.mix)), best_level=self.market.best_levels)
