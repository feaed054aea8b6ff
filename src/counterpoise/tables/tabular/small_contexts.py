"""Contexts with too few rows to be used at all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.tables.pooling import choose_small
from counterpoise.tables.tabular.labels import SeenLabels
from counterpoise.tables.tabular.seen_groups import SeenGroups
from counterpoise.tables.tabular.task import TargetSearch

if TYPE_CHECKING:
    from counterpoise.tables.reading import DataFile
    from counterpoise.tables.tabular.columns import Asked


@dataclass(frozen=True, eq=False)
class SmallContexts:
    """The contexts of a table whose rows are left out.

    Attributes
    ----------
    seen : SeenLabels
    small : ndarray of bool of shape (n_labels,)
        Which of the labels they are.
    note : str
        Which they are, in one line.
    """

    seen: SeenLabels
    small: NDArray[np.bool_]
    note: str

    @classmethod
    def among(cls, pieces: Iterable[DataFile], asked: Asked, most: float = math.inf) -> SmallContexts:
        """Count the contexts of a table: their rows that have a target, or the groups of these.

        Parameters
        ----------
        asked : Asked
            With columns as the table names them.
        most : float
            Groups in contexts that are counted.
        """
        least = asked.min_rows or 0
        target, seen = TargetSearch(asked.target, asked.task, 0.0), SeenLabels(asked.context, "--context")
        groups = None if asked.group is None else SeenGroups(least, most)
        for data in pieces:
            kept = target.look(data)
            codes = seen.look(data)[0][kept]
            seen.count(codes)
            if groups is not None and asked.group is not None:
                values, own = data.coded_labels(asked.group, "--group")
                groups.look(codes, values, own[kept])
        used = np.flatnonzero(seen.counts)
        unit, counts = "rows", seen.counts
        if groups is not None:
            unit, counts = "groups", groups.counts(len(seen.counts))
        small = np.ones(len(seen.counts), dtype=bool)
        small[used], note = choose_small(seen.labels[used], counts[used], least, seen.counts[used], unit)
        return cls(seen, small, note)

    @property
    def labels(self) -> NDArray[Any]:
        """The labels of the contexts that are left out."""
        return self.seen.labels[self.small]

    def without(self, data: DataFile) -> DataFile:
        """Return the rows of the other contexts."""
        keep = ~self.small[self.seen.look(data)[0]]
        return data if keep.all() else data.where(keep)
