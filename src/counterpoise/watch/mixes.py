r"""Evidence that the mix of contexts is outside a set.

Three kinds of bets, each valid for every mix in the set :math:`P`, also for one that moves about in it:

- **One share.** The share of context c is above its largest value :math:`h_c` in the set, or below its least. Among all
  members the one with :math:`p_c = h_c` is the hardest to tell from a mix with the share :math:`s > h_c`, so

  .. math:: (s / h_c)^{x_c} \, ((1 - s) / (1 - h_c))^{n - x_c}

  has an expectation of at most 1 under every member. Some values of :math:`s` are tried, for each context and side.
- **The mix of late.** :math:`q` is the mix of the last updates, :math:`p^*` the member nearest to it, its reverse
  information projection: :math:`\prod_c (q_c / p^*_c)^{x_c}` has an expectation of at most 1 under every member (Grünwald,
  de Heide and Koolen 2024), and grows by :math:`D(q \| P)` for each draw of :math:`q`. This finds changes of many
  shares at once.
- **One update.** The probability of its counts under a Dirichlet mixture of mixes, over the largest that any member
  gives them. This needs no past, for a single large update; it takes the mix to be the same within an update.

Counts may be fractions: where m rows share one draw, each counts as 1/m of it. By Hölder's inequality the
expectations are still at most 1, however rows of a group depend on one another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import special

from counterpoise.sets import ContextSet, share_intervals
from counterpoise.sets.evidence import log_mixture
from counterpoise.tables.tabular.card import Part, numbers_json
from counterpoise.watch.bets import Stakes, Wealth

Array = NDArray[np.float64]

_ODDS = (1.2, 1.6, 2.5, 6.0)
"""How many times its odds at the edge of the set a share is supposed to have."""

_MOST_BETS = 4000
"""Bets on shares; with more contexts, fewer sizes of a change are tried."""

_ONE_SHARE, _LATE, _ONE_UPDATE = 0.8, 0.1, 0.1
"""How much is staked on each kind of bet."""

_CONCENTRATIONS = (10.0, 100.0, 1000.0)
"""Of the Dirichlet distributions around the centre of the set that a single update is compared with."""

_KEPT = 50.0
"""Draws for each context after which the mix of late has forgotten all but 1/e."""

_PRIOR = 2.0
"""Draws for each context, from the centre of the set, that the mix of late begins with."""


@dataclass(frozen=True, eq=False)
class Shares:
    """Bets that a share is beyond a bound: log-likelihood ratios of rows of the context, and of others.

    Attributes
    ----------
    context : ndarray of shape (n_bets,)
        What the share is of.
    own, other : ndarray of shape (n_bets,)
    """

    context: NDArray[np.intp]
    own: Array
    other: Array

    @classmethod
    def beyond(cls, intervals: Array, sizes: tuple[float, ...] = _ODDS) -> Self:
        """Return the bets for every context and both sides.

        Parameters
        ----------
        intervals : ndarray of shape (n_contexts, 2)
            The least and the largest share in the set.
        """
        context, own, other = [], [], []
        for side, rises in ((0, False), (1, True)):
            # A share that may be anything on this side cannot be beyond it.
            inner = np.flatnonzero((intervals[:, side] > 0.0) & (intervals[:, side] < 1.0))
            edge = intervals[inner, side]
            for size in sizes:
                odds = edge / (1.0 - edge) * (size if rises else 1.0 / size)
                context.append(inner)
                own.append(np.log(odds / (1.0 + odds) / edge))
                other.append(-np.log1p(odds) - np.log1p(-edge))
        return cls(np.concatenate(context), np.concatenate(own), np.concatenate(other))

    def log_factors(self, counts: Array, n: float) -> Array:
        """Return what an update makes of each bet."""
        here = counts[self.context]
        return here * self.own + (n - here) * self.other


@dataclass(frozen=True, eq=False)
class MixState:
    """What is known after some updates: the wealth of every bet, and the mix of late as decaying counts."""

    wealth: Wealth
    late: Array

    @property
    def as_json(self) -> dict[str, Any]:
        """The same as what JSON can hold."""
        return {**self.wealth.as_json, "late": numbers_json(np.round(self.late, 6))}


@dataclass(frozen=True, eq=False)
class MixBets:
    """The bets against a set.

    Parameters
    ----------
    mixes : ContextSet
    """

    mixes: ContextSet

    @cached_property
    def shares(self) -> Shares:
        """Bets on one share."""
        fewer = max(1, min(len(_ODDS), _MOST_BETS // (2 * len(self.centre))))
        sizes = _ODDS if fewer == len(_ODDS) else _ODDS[1 : 1 + fewer]
        return Shares.beyond(share_intervals(self.mixes), sizes)

    @property
    def centre(self) -> Array:
        """A member, from which the mix of late starts."""
        return self.mixes.p_hat

    @cached_property
    def weights(self) -> Array:
        """The stake of each bet."""
        n = len(self.shares.own)
        one_share = np.full(n, _ONE_SHARE / n) if n else np.empty(0)
        return np.append(one_share, [_LATE, _ONE_UPDATE])

    @cached_property
    def _priors(self) -> Array:
        """Parameters of the Dirichlet distributions, a row each: Jeffreys', and some around the centre."""
        n = len(self.centre)
        near = 0.99 * self.centre + 0.01 / n
        return np.stack([np.full(n, 0.5), *(concentration * near for concentration in _CONCENTRATIONS)])

    @property
    def begin(self) -> MixState:
        """Before the first update."""
        return MixState(Wealth.none(len(self.weights)), _PRIOR * len(self.centre) * self.centre)

    def after(self, state: MixState, counts: Array, stakes: Stakes, update: int) -> MixState:
        """Return the state after an update.

        Parameters
        ----------
        counts : ndarray of shape (n_contexts,)
            Draws of each context.
        """
        n = float(counts.sum())
        if n == 0.0:
            return replace(state, wealth=state.wealth.after(np.zeros(len(self.weights)), stakes, update))
        q = state.late / state.late.sum()
        nearest = self.mixes.likeliest(np.stack([q, counts]))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(q > 0.0, np.log(q) - np.log(nearest.distribution[0]), -np.inf)
        # What the projection may lack to be exact is taken off, for each draw.
        late = float(special.xlogy(counts, np.exp(ratios)).sum()) - n * float(
            nearest.upper[0] - nearest.log_likelihood[0]
        )
        mixture = special.logsumexp([log_mixture(counts, prior) for prior in self._priors]) - math.log(
            len(self._priors)
        )
        one_update = float(mixture - nearest.upper[1])
        factors = np.append(self.shares.log_factors(counts, n), [late, one_update])
        kept = math.exp(-n / (_KEPT * len(counts)))
        return MixState(state.wealth.after(factors, stakes, update), kept * state.late + counts)

    def evidence(self, state: MixState, left: float) -> float:
        """Return the e-value."""
        return state.wealth.evidence(self.weights, left)

    def begun(self, state: MixState) -> int:
        """Return the update at which the strongest run of evidence began."""
        with np.errstate(divide="ignore"):
            return int(state.wealth.begun[np.argmax(state.wealth.runs + np.log(self.weights))])

    def read(self, part: Part) -> MixState:
        """Return a state that was written."""
        return MixState(Wealth.read(part, len(self.weights)), part["late"].numbers(len(self.centre), finite=True))
