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

_CELLS = 4
"""Rows of each possible unit from which units are counted."""

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
        groups, rng = rows.groups, np.random.default_rng(_SEED)
        width = batches if groups is None else int(groups.max()) + 1

        def within(at: slice, n: int) -> NDArray[Any]:
            return rng.integers(0, batches, n) if groups is None else groups[at]

        there, unit = _numbered(contexts.codes, len(contexts.labels), width, within)
        own = Contexts(contexts.labels, there // width)
        weight = totals_of(unit, len(there), rows.weight)
        across = None if groups is None else np.unique(there % width, return_inverse=True)[1]
        return cls(rows, replace(rows, contexts=own, groups=across, weight=weight), unit)

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


def _numbered(
    codes: NDArray[np.intp], n_contexts: int, width: int, within: Callable[[slice, int], NDArray[Any]]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Number the pairs of a context and a part of it that occur, and return them and the number of each row.

    Parameters
    ----------
    width : int
        Parts of a context.
    within : callable
        Which part rows are of, from the slice that they are and how many.

    Returns
    -------
    there : ndarray of shape (n_units,)
        The context of each unit times ``width``, plus the part.
    unit : ndarray of shape (n_rows,)
    """
    size = n_contexts * width
    unit: NDArray[Any] = np.empty(len(codes), dtype=np.int32 if size < 1 << 31 else np.intp)
    slices = [slice(start, start + SLICE) for start in range(0, len(codes), SLICE)]
    for at in slices:
        some = codes[at].astype(np.intp, copy=False)
        unit[at] = some * width + within(at, len(some))
    if size > len(codes) / _CELLS:
        there, unit = np.unique(unit, return_inverse=True)
        return there.astype(np.intp, copy=False), unit
    # Counted instead of sorted, which takes less room.
    there = np.flatnonzero(totals_of(unit, size))
    place = np.zeros(size, dtype=np.int32)
    place[there] = np.arange(len(there))
    for at in slices:
        unit[at] = place[unit[at]]
    return there, unit
