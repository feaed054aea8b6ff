"""Stock levels from dask collections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.core.problem import Reference
from counterpoise.dask.gathering import gather, summarise
from counterpoise.dask.partitions import take_apart
from counterpoise.losses import Hinges
from counterpoise.rows import MemoryRows
from counterpoise.stock.problem import StockProblem, Terms

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SalesReader:
    """Partitions of costs and demand."""

    terms: Terms

    @property
    def classifies(self) -> bool:
        """Demand is a number."""
        return False

    @property
    def meaning(self) -> str:
        """Return what units are bought and sold for."""
        return repr(self.terms)

    def rows(self, columns: dict[str, Any]) -> tuple[Any, NDArray[Any]]:
        """Return no features, and what each row costs."""
        sales = self.terms.sales(columns["costs"], columns["demand"])
        return np.empty((len(sales), 0)), self.terms.pieces(sales)

    def target(self, y: NDArray[Any], classes: NDArray[Any] | None) -> Array:
        """Return what each row costs, checked."""
        return Hinges().checked_target(y)

    def placed(self, rows: MemoryRows) -> MemoryRows:
        """Return rows as they are."""
        return rows


def pose(terms: Terms, columns: dict[str, Any], reference: Reference) -> StockProblem:
    """Return what every level costs, by demand, costs, contexts and sample_weight."""
    reader = SalesReader(terms)
    parts = take_apart("demand", columns)
    summaries, client = summarise(parts, reader)
    found = gather(parts, reader, summaries, client, None, Hinges(), fit_intercept=True)
    return StockProblem.from_blocks(found.blocks, found.contexts, found.counts, terms, reference)
