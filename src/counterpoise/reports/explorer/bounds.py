"""Bounds of one share that a reader may move: a grid for every context, solved beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterpoise.sets import ContextSet, ShareBounds

Array = NDArray[np.float64]

MOST_CONTEXTS = 6
"""Contexts up to which bounds can be moved: each has a grid of sets to be solved."""

_STEPS = 4
"""Places of a bound, the open one among them."""

_MARGIN = 0.1
"""How far from the ends of what is allowed both bounds may meet, as a share of it."""


@dataclass(frozen=True, eq=False)
class ShareGrid:
    """The bounds of one share, and what the set is with them.

    Attributes
    ----------
    context : int
    lows, highs : ndarray
        Ascending. The first low and the last high are what the set allows anyway.
    chains : tuple of tuples of ContextSet
        For every low, the sets of ascending highs; without the set that has neither bound.
    """

    context: int
    lows: Array
    highs: Array
    chains: tuple[tuple[ContextSet, ...], ...]

    @classmethod
    def of(cls, mixes: ContextSet, context: int, seen: float, allowed: Array) -> ShareGrid | None:
        """Return the grid of a context; None where its share is fixed.

        Parameters
        ----------
        seen : float
            Its share in the data, at which both bounds meet where the set allows it.
        allowed : ndarray of shape (2,)
            The interval of its share in the set.
        """
        low, high = allowed.tolist()
        if high - low < 1e-3:
            return None
        room = _MARGIN * (high - low)
        middle = min(max(seen, low + room), high - room)
        # Round numbers are what a reader would ask for.
        lows = np.array([low, *np.round(np.linspace(low, middle, _STEPS)[1:], 3)])
        highs = np.array([*np.round(np.linspace(middle, high, _STEPS)[:-1], 3), high])
        # What the set allows anyway is no bound, and would only be in the way of rounding.
        least, most = [0.0, *lows[1:].tolist()], [*highs[:-1].tolist(), 1.0]
        chains = tuple(
            tuple(_bounded(mixes, context, one, other) for other in most if (one, other) != (0.0, 1.0)) for one in least
        )
        return cls(context, lows, highs, chains)

    def places(self, start: int, chosen: int) -> list[list[int]]:
        """Return where the solution of every low and high is, if those of the chains begin at a place."""
        n = len(self.highs)
        flat = [*range(start, start + n - 1), chosen, *range(start + n - 1, start + n * len(self.lows) - 1)]
        return [flat[k * n : (k + 1) * n] for k in range(len(self.lows))]


def _bounded(mixes: ContextSet, context: int, low: float, high: float) -> ContextSet:
    n = len(mixes.p_hat)
    least, most = np.zeros(n), np.ones(n)
    least[context], most[context] = low, high
    return mixes & ShareBounds(least, most)


def share_grids(mixes: ContextSet, seen: Array, allowed: Array) -> Sequence[ShareGrid]:
    """Return a grid for every context whose share can move, where contexts are few enough."""
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
