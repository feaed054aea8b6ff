"""Evidence that contexts never seen before make up more of the rows than they may."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterpoise.watch.bets import Stakes, Wealth

Array = NDArray[np.float64]

_ODDS = np.array([1.3, 2.0, 4.0, 16.0])
"""How many times the odds that they may have they are supposed to have."""


@dataclass(frozen=True)
class UnseenBets:
    """The bets that new contexts have more than a share of the rows; where they may have none, one row is proof.

    Parameters
    ----------
    share : float
        What they may have.
    """

    share: float

    @property
    def n_bets(self) -> int:
        """None where one row is proof."""
        return len(_ODDS) if self.share > 0.0 else 0

    @property
    def begin(self) -> Wealth:
        """Before the first update."""
        return Wealth.none(self.n_bets)

    def after(self, wealth: Wealth, unseen: float, draws: float, stakes: Stakes, update: int) -> Wealth:
        """Return the wealth after an update with so many draws, and so many of them of new contexts."""
        if self.n_bets == 0:
            return wealth
        odds = self.share / (1.0 - self.share) * _ODDS
        own, other = np.log(odds / (1.0 + odds) / self.share), -np.log1p(odds) - math.log1p(-self.share)
        return wealth.after(unseen * own + (draws - unseen) * other, stakes, update)

    def evidence(self, wealth: Wealth, rows: int, left: float) -> float:
        """Return the e-value after so many rows of new contexts."""
        if self.n_bets == 0:
            return math.inf if rows else 1.0
        return wealth.evidence(np.full(self.n_bets, 1.0 / self.n_bets), left)
