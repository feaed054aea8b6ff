"""Units of sampling: rows, groups of them, or batches of very many, by whose means the same can be said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts
from counterpoise.inference.excess import HeldOut
from counterpoise.judging.measures import Judged

Array = NDArray[np.float64]

MANY_ROWS = 300_000
"""Rows above which those of a context are dealt into batches."""

BATCHES = 1_000
"""Of each context: enough that the error of its mean is known to two percent or so."""

_SLICE = 250_000
"""Rows whose losses are in memory at once."""

_SEED = 0


@dataclass(frozen=True, eq=False)
class Units:
    """Rows, gathered into units where they are very many.

    The mean of a context is the same over its rows and over its units. Where rows belong to groups, a unit is a group
    in a context, and its error is the same too; else rows are dealt into batches at random, and the spread of the means
    of batches tells the error of the whole.

    Attributes
    ----------
    rows : HeldOut
        Of rows.
    held_out : HeldOut
        Of units.
    unit : ndarray of int of shape (n_rows,) or None
        The unit of each row; None where each is its own.
    """

    rows: HeldOut
    held_out: HeldOut
    unit: NDArray[np.intp] | None = None

    @classmethod
    def of(cls, rows: HeldOut, most: int = MANY_ROWS, batches: int = BATCHES) -> Units:
        """Return the units of rows.

        Parameters
        ----------
        most : int
            Rows up to which each is a unit, whether it belongs to a group or not.
        """
        contexts = rows.contexts
        if len(contexts.codes) <= most:
            return cls(rows, rows)
        within: NDArray[Any] = (
            np.random.default_rng(_SEED).integers(0, batches, len(contexts.codes), dtype=np.int32)
            if rows.groups is None
            else rows.groups
        )
        # Counted instead of sorted where that takes less room.
        width = int(within.max()) + 1
        cell = contexts.codes.astype(np.intp, copy=False) * width + within
        if width * len(contexts.labels) <= len(cell):
            there = np.flatnonzero(np.bincount(cell, minlength=width * len(contexts.labels)))
            place = np.zeros(width * len(contexts.labels), dtype=np.int32)
            place[there] = np.arange(len(there))
            unit = place[cell]
        else:
            there, unit = np.unique(cell, return_inverse=True)
        own = Contexts(contexts.labels, there // width)
        weight = np.bincount(unit, rows.weight, len(there)).astype(np.float64)
        groups = None if rows.groups is None else np.unique(there % width, return_inverse=True)[1]
        return cls(rows, replace(rows, contexts=own, groups=groups, weight=weight), unit)

    def of_rows(self, judged: Judged, loss: Callable[[Judged], Array]) -> Array:
        """Return the loss of each row, or its mean over each unit."""
        if self.unit is None:
            return loss(judged)
        size = len(self.held_out.weight)
        total = np.zeros(size)
        for start in range(0, len(self.unit), _SLICE):
            at = slice(start, start + _SLICE)
            lost = np.asarray(self.rows.weight[at]) * loss(judged.rows(at))
            total += np.bincount(self.unit[at], lost, size)
        return total / self.held_out.weight
