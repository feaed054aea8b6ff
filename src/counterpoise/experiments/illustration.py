"""Two contexts of a market: the running example of the paper, behind Figures 1 to 3."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from counterpoise.core.minimization import minimize
from counterpoise.core.solvers import Solution
from counterpoise.experiments._base import Array, Row, by_context, generator, series
from counterpoise.experiments.stock_control import Market
from counterpoise.sets import KLBall, confidence_radius

LEVELS = {"90%": 0.9, "99%": 0.99, "100%": 1.0}
"""The confidence levels that are shown."""


@dataclass(frozen=True)
class Illustration:
    """Cheap and dear weather: cost is alike, demand is not.

    The paper does not state its parameters; these meet every sentence of its text.
    """

    name: ClassVar[str] = "illustration"

    @cached_property
    def market(self) -> Market:
        """Costs of median 5 in both contexts; demand 15 or 25 above the cost."""
        return Market(price=10.0, mean_log_cost=np.log([5.0, 5.0]), slope=np.ones(2), base=np.array([15.0, 25.0]))

    def rows(self, seed: int) -> list[Row]:
        """Return everything the six panels are drawn from."""
        return [*self._data(seed), *self._curves(), *self._intervals(seed), *self._decisions(), *self._contours()]

    def _data(self, seed: int) -> list[Row]:
        contexts = np.repeat([0, 1], [90, 10])
        cost, demand = self.market.draw(contexts, generator(seed, self.name, "data"))
        return by_context(self.name, contexts, cost=cost, demand=demand)

    def _curves(self) -> list[Row]:
        level = np.linspace(10.0, 40.0, 301)
        risks = np.array([self.market.risks(one) for one in level])
        excess = risks - self.market.least_risks
        rows = series(self.name, "curves", level=level)
        for c, best in enumerate(self.market.best_levels):
            rows += series(self.name, f"context-{c + 1}", risk=risks[:, c], excess=excess[:, c], best_level=[best])
        for name, p in {"p'": np.array([0.9, 0.1]), "p''": np.array([0.2, 0.8])}.items():
            best = self._decide(100.0 * p, radius=0.0).theta
            rows += series(self.name, name, risk=risks @ p, excess=excess @ p, best_level=best)
        return rows

    def _intervals(self, seed: int) -> list[Row]:
        """Return the interval of the first context's share as data come in, by the library's own intervals."""
        drawn = generator(seed, self.name, "intervals").random(2000) < 0.95
        sizes = np.unique(np.round(np.geomspace(5, 2000, 60)).astype(int))
        rows = series(self.name, "intervals", n=sizes)
        for name, confidence in LEVELS.items():
            ends = []
            for n in sizes:
                counts = np.array([drawn[:n].sum(), n - drawn[:n].sum()], dtype=float)
                ends.append(KLBall(counts / n, confidence_radius(counts, confidence)).interval(0))
            low, high = zip(*ends, strict=True)
            rows += series(self.name, name, low=low, high=high)
        return rows

    def _decide(self, counts: Array, references: Array | None = None, **robustness: Any) -> Solution:
        """Return what the library chooses for the true risks and given counts."""
        return minimize(
            lambda level: self.market.risks(float(level[0])),
            20.0,
            counts=counts,
            bounds=[(0.0, self.market.max_stock)],
            convex=True,
            reference_risks=self.market.least_risks if references is None else references,
            **robustness,
        )

    def _decisions(self) -> list[Row]:
        """Return the levels at 20 samples, 19 of them of the first context."""
        counts = np.array([19.0, 1.0])
        rows = []
        for name, confidence in LEVELS.items():
            solution = self._decide(counts, confidence=confidence)
            # On a jump of the least favourable share, the one under which the level is best.
            rows += series(self.name, name, robust_level=solution.theta, robust_share=solution.p_worst[:1])
        rows += series(self.name, "erm", level=self._decide(counts, radius=0.0).theta)
        minimax_risk = self._decide(counts, np.zeros(2), radius=math.inf)
        return rows + series(self.name, "minimax-risk", level=minimax_risk.theta)

    def _contours(self) -> list[Row]:
        """Return the excess risk over levels and shares, and the least favourable share of every level."""
        level, share = np.linspace(17.0, 33.0, 161), np.linspace(0.0, 1.0, 101)
        excess = np.array([self.market.excess(one) for one in level])
        grid = share[:, None] * excess[:, 0] + (1.0 - share[:, None]) * excess[:, 1]
        rows = series(self.name, "contours", level=level, share=share, excess=grid.ravel())
        for name, confidence in LEVELS.items():
            radius = confidence_radius([19, 1], confidence)
            worst = KLBall(np.array([0.95, 0.05]), radius).worst_case(excess).distribution
            rows += series(self.name, name, least_favourable_share=worst[:, 0])
        return rows
