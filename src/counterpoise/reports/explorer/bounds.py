"""Bounds of one share that a reader may move: some places for every context, solved beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterpoise.sets import ContextSet, ShareBounds

Array = NDArray[np.float64]

MOST_CONTEXTS = 6
"""Contexts up to which bounds can be moved: each has sets of its own to be solved."""

_LEAST = 5e-3
"""Width of an interval below which there is nothing to move."""

_STEPS = 5
"""Places of a bound beside the open one."""

_MARGIN = 0.1
"""How far from the ends of what is allowed a bound may come, as a share of it."""


@dataclass(frozen=True, eq=False)
class ShareGrid:
    """The bounds of one share, of which one is moved at a time, and the sets that have them.

    Attributes
    ----------
    context : int
    lows, highs : ndarray
        Ascending. The first low and the last high are what the set allows anyway.
    chains : tuple of two tuples of ContextSet
        The sets of all other lows, descending, and of all other highs, ascending: in each, sets grow.
    """

    context: int
    lows: Array
    highs: Array
    chains: tuple[tuple[ContextSet, ...], tuple[ContextSet, ...]]

    @classmethod
    def of(cls, mixes: ContextSet, context: int, seen: float, allowed: Array) -> ShareGrid | None:
        """Return the bounds of a context; None where its share is fixed.

        Parameters
        ----------
        seen : float
            Its share in the data, up to which both bounds go where the set allows it.
        allowed : ndarray of shape (2,)
            The interval of its share in the set.
        """
        low, high = allowed.tolist()
        if high - low < _LEAST:
            return None
        room = _MARGIN * (high - low)
        middle = min(max(seen, low + room), high - room)
        # Round numbers are what a reader would ask for.
        lows = np.unique(np.round(np.linspace(low, middle, _STEPS + 1)[1:], 3))
        highs = np.unique(np.round(np.linspace(middle, high, _STEPS + 1)[:-1], 3))
        lows, highs = lows[lows > low], highs[highs < high]
        chains = (
            tuple(_bounded(mixes, context, one, 1.0) for one in lows[::-1]),
            tuple(_bounded(mixes, context, 0.0, one) for one in highs),
        )
        return cls(context, np.array([low, *lows]), np.array([*highs, high]), chains)

    def places(self, start: int, chosen: int) -> tuple[list[int], list[int]]:
        """Return where the solution of every low and of every high is, if those of the chains begin at a place."""
        middle, end = start + len(self.chains[0]), start + sum(map(len, self.chains))
        return [chosen, *range(middle - 1, start - 1, -1)], [*range(middle, end), chosen]


def _bounded(mixes: ContextSet, context: int, low: float, high: float) -> ContextSet:
    n = len(mixes.p_hat)
    least, most = np.zeros(n), np.ones(n)
    least[context], most[context] = low, high
    return mixes & ShareBounds(least, most)


def share_grids(mixes: ContextSet, seen: Array, allowed: Array) -> Sequence[ShareGrid]:
    """Return the bounds of every context whose share can move, where contexts are few enough."""
    if len(seen) > MOST_CONTEXTS or mixes.is_point or len(mixes.p_hat) != len(seen):
        return ()
    grids = (ShareGrid.of(mixes, c, float(seen[c]), allowed[c]) for c in range(len(seen)))
    return [grid for grid in grids if grid is not None]


def why_none(n_contexts: int, context: str) -> str:
    """Say why no bounds can be moved."""
    if n_contexts > MOST_CONTEXTS:
        return (
            f"With {n_contexts:,} {context}s, bounds of shares cannot be moved here: every one would have to be solved "
            f"beforehand, which is done for up to {MOST_CONTEXTS}. State them when the page is made: --share "
            f"{context}=0.1..0.3."
        )
    return f"As fitted, the share of every {context} is fixed, so there are no bounds to move."
