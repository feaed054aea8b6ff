"""Two contexts of a market: the running example of the paper, behind Figures 1 to 3."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from counterpoise.experiments._base import Array, Row, generator, series
from counterpoise.experiments.stock_control import Market
from counterpoise.minimization import minimize
from counterpoise.sets import KLBall, confidence_radius
from counterpoise.solvers import Solution

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
        return Market(
            price=10.0,
            mean_log_cost=np.log([5.0, 5.0]),
            slope=np.ones(2),
            base=np.array([15.0, 25.0]),
        )

    def rows(self, seed: int) -> list[Row]:
        """Return everything the six panels are drawn from."""
        return [*self._data(seed), *self._curves(), *self._intervals(seed), *self._decisions(), *self._contours()]

    def _row(self, method: str, metric: str, values: Iterable[float]) -> list[Row]:
        return series(self.name, method, metric, values)

    def _data(self, seed: int) -> list[Row]:
        contexts = np.repeat([0, 1], [90, 10])
        cost, demand = self.market.draw(contexts, generator(seed, self.name, "data"))
        return [
            row
            for c in (0, 1)
            for metric, values in (("cost", cost), ("demand", demand))
            for row in self._row(f"context-{c + 1}", metric, values[contexts == c])
        ]

    def _curves(self) -> list[Row]:
        level = np.linspace(10.0, 40.0, 301)
        risks = np.array([self.market.risks(one) for one in level])
        excess = risks - self.market.least_risks
        mixes = {"p'": np.array([0.9, 0.1]), "p''": np.array([0.2, 0.8])}
        rows = self._row("curves", "level", level)
        for c in (0, 1):
            rows += self._row(f"context-{c + 1}", "risk", risks[:, c])
            rows += self._row(f"context-{c + 1}", "excess", excess[:, c])
            rows += self._row(f"context-{c + 1}", "best-level", [self.market.best_levels[c]])
        for name, p in mixes.items():
            rows += self._row(name, "risk", risks @ p)
            rows += self._row(name, "excess", excess @ p)
            rows += self._row(name, "best-level", self._decide(counts=100.0 * p, radius=0.0).theta)
        return rows

    def _intervals(self, seed: int) -> list[Row]:
        """Return the interval of the first context's share as data come in, by the library's own intervals."""
        drawn = generator(seed, self.name, "intervals").random(2000) < 0.95
        sizes = np.unique(np.round(np.geomspace(5, 2000, 60)).astype(int))
        rows = self._row("intervals", "n", sizes)
        for name, confidence in LEVELS.items():
            ends = []
            for n in sizes:
                counts = np.array([drawn[:n].sum(), n - drawn[:n].sum()], dtype=float)
                ends.append(KLBall(counts / n, confidence_radius(counts, confidence)).interval(0))
            rows += self._row(name, "low", [low for low, _ in ends])
            rows += self._row(name, "high", [high for _, high in ends])
        return rows

    def _decide(self, counts: Array, **switches: float) -> Solution:
        """Return what the library chooses for the true risks and given counts."""
        references = None if switches.pop("criterion", 1.0) else np.zeros(2)
        return minimize(
            lambda level: self.market.risks(float(level[0])),
            20.0,
            counts=counts,
            bounds=[(0.0, self.market.max_stock)],
            convex=True,
            reference_risks=self.market.least_risks if references is None else references,
            **switches,  # type: ignore[arg-type]
        )

    def _decisions(self) -> list[Row]:
        """Return the levels at 20 samples, 19 of them of the first context."""
        counts = np.array([19.0, 1.0])
        rows = []
        for name, confidence in LEVELS.items():
            solution = self._decide(counts, confidence=confidence)
            rows += self._row(name, "robust-level", solution.theta)
            # On a jump of the least favourable share, the one under which the level is best.
            rows += self._row(name, "robust-share", solution.p_worst[:1])
        rows += self._row("erm", "level", self._decide(counts, radius=0.0).theta)
        return rows + self._row("minimax-risk", "level", self._decide(counts, radius=math.inf, criterion=0.0).theta)

    def _contours(self) -> list[Row]:
        """Return the excess risk over levels and shares, and the least favourable share of every level."""
        level, share = np.linspace(17.0, 33.0, 161), np.linspace(0.0, 1.0, 101)
        excess = np.array([self.market.excess(one) for one in level])
        grid = share[:, None] * excess[:, 0] + (1.0 - share[:, None]) * excess[:, 1]
        rows = self._row("contours", "level", level) + self._row("contours", "share", share)
        rows += self._row("contours", "excess", grid.ravel())
        for name, confidence in LEVELS.items():
            radius = confidence_radius([19, 1], confidence)
            worst = KLBall(np.array([0.95, 0.05]), radius).worst_case(excess).distribution
            rows += self._row(name, "least-favourable-share", worst[:, 0])
        return rows
