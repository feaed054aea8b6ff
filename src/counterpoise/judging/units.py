"""Units of sampling: rows, groups of them, or batches of very many, by whose means the same can be said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts
from counterpoise.inference.excess import HeldOut
from counterpoise.judging.measures import SLICE, Judged, totals_of

Array = NDArray[np.float64]

MANY_ROWS = 300_000
"""Rows above which those of a context are dealt into batches."""

BATCHES = 1_000
"""Of each context: enough that the error of its mean is known to two percent or so."""

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
        if rows.groups is None:
            there, unit = _dealt(contexts.codes, len(contexts.labels), batches)
            width = batches
        else:
            width = int(rows.groups.max()) + 1
            cell = contexts.codes.astype(np.intp, copy=False) * width + rows.groups
            there, unit = np.unique(cell, return_inverse=True)
        own = Contexts(contexts.labels, there // width)
        weight = totals_of(unit, len(there), rows.weight)
        groups = None if rows.groups is None else np.unique(there % width, return_inverse=True)[1]
        return cls(rows, replace(rows, contexts=own, groups=groups, weight=weight), unit)

    def of_rows(self, judged: Judged, loss: Callable[[Judged], Array]) -> Array:
        """Return the loss of each row, or its mean over each unit."""
        if self.unit is None:
            return loss(judged)
        size = len(self.held_out.weight)
        total = np.zeros(size)
        for start in range(0, len(self.unit), SLICE):
            at = slice(start, start + SLICE)
            lost = np.asarray(self.rows.weight[at]) * loss(judged.rows(at))
            total += np.bincount(self.unit[at], lost, size)
        return total / self.held_out.weight


def _dealt(codes: NDArray[np.intp], n_contexts: int, batches: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Deal the rows of each context into batches; return which context and batch units are of, and the unit of rows."""
    rng = np.random.default_rng(_SEED)
    unit: NDArray[Any] = np.empty(len(codes), dtype=np.int32 if n_contexts * batches < 1 << 31 else np.intp)
    for start in range(0, len(codes), SLICE):
        some = codes[start : start + SLICE].astype(np.intp, copy=False)
        unit[start : start + SLICE] = some * batches + rng.integers(0, batches, len(some))
    counts = totals_of(unit, n_contexts * batches) if n_contexts * batches <= 1 << 24 else None
    if counts is None:
        return np.unique(unit, return_inverse=True)
    there = np.flatnonzero(counts)
    place = np.zeros(len(counts), dtype=np.int32)
    place[there] = np.arange(len(there))
    for start in range(0, len(codes), SLICE):
        unit[start : start + SLICE] = place[unit[start : start + SLICE]]
    return there, unit
