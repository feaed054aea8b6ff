r"""Evidence against a hypothesis, as the wealth of bets that cannot be expected to win while it is true.

A bet on an update multiplies what is staked by a factor whose expectation is at most 1 under the hypothesis, whatever
came before. What begins with a stake of 1 then stays an e-process: by Ville's inequality it ever reaches :math:`1 /
\alpha` with probability at most :math:`\alpha`, however often one looks.

A change may come late, when a bet from the first day on has long lost its stake. There are two remedies. A bet that
follows what came of late stakes nothing while that looks as the hypothesis says: its factor is 1. And where a bet has
to be made on every update, part of the stake is held back for each: with weights :math:`w_k` that sum to at most 1 the
wealth is :math:`\sum_k w_k \prod_{s \ge k} f_s`, plus what is not staked yet. That needs no memory of the past:
:math:`S_t = (S_{t-1} + w_t) f_t`.

Where evidence may begin anew with every update, :math:`S_t = \max(S_{t-1}, 1) f_t` is an e-detector (Shin, Ramdas and
Rinaldo 2023): the mean number of updates until it, or a mixture of several, reaches :math:`A` is at least :math:`A`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from counterpoise.tables.tabular.card import Part, numbers_json

Array = NDArray[np.float64]

_FIRST = 0.6
"""What is staked on a change before the first update: often a model is not made for where it is used from the start."""


@dataclass(frozen=True)
class Stakes:
    """How much is staked from which update on.

    Parameters
    ----------
    kind : {"once", "spread", "every"}
        All on the first update; spread over all updates to come; or at least 1 on every update, so that it is known how
        long the first false alarm takes on average.
    """

    kind: Literal["once", "spread", "every"]

    def on(self, logs: Array, update: int) -> Array:
        """Return the logarithms of wealth that is staked on an update, from those before it; updates count from 0."""
        if self.kind == "every":
            return np.maximum(logs, 0.0)
        if self.kind == "once":
            return logs if update else np.zeros_like(logs)
        new = _FIRST if update == 0 else self.left(update - 1) - self.left(update)
        return np.logaddexp(logs, math.log(new))

    def left(self, update: int) -> float:
        """Return what is not staked yet after an update: it falls so slowly that late changes are no worse off."""
        return (1.0 - _FIRST) * math.log(3.0) / math.log(update + 3.0) if self.kind == "spread" else 0.0


@dataclass(frozen=True, eq=False)
class Wealth:
    """What several bets made of their stakes.

    Attributes
    ----------
    logs : ndarray of shape (n_bets,)
        Logarithms.
    """

    logs: Array

    @classmethod
    def none(cls, n_bets: int) -> Self:
        """Return the wealth before the first update."""
        return cls(np.full(n_bets, -np.inf))

    def after(self, log_factors: Array, stakes: Stakes, update: int) -> Self:
        """Return the wealth after an update.

        Parameters
        ----------
        log_factors : ndarray of shape (n_bets,)
        update : int
            Which one it is, from 0.
        """
        with np.errstate(invalid="ignore"):
            logs = stakes.on(self.logs, update) + log_factors
        # What the hypothesis rules out was proof, and stays it; a stake that is lost, nothing wins back.
        return type(self)(np.where(np.isposinf(self.logs), np.inf, np.where(np.isnan(logs), -np.inf, logs)))

    def evidence(self, weights: Array, left: float) -> float:
        """Return the e-value of a mixture of the bets, with what is not staked yet."""
        with np.errstate(over="ignore"):
            return float(weights @ np.exp(self.logs)) + left if len(weights) else 1.0

    @property
    def as_json(self) -> list[Any]:
        """The same as what JSON can hold, with as many digits as matter: rounded down, which never adds evidence."""
        return numbers_json(np.floor(self.logs * 1e6) / 1e6)

    @classmethod
    def read(cls, part: Part, n_bets: int) -> Self:
        """Return the wealth that was written."""
        return cls(part.numbers(n_bets, least=-math.inf))
