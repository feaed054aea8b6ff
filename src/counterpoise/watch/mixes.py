r"""Evidence that the mix of contexts is outside a set.

Three kinds of bets, each valid for every mix in the set :math:`P`, also for one that moves about in it:

- **One share.** Context c seems to have the share :math:`s`, above the largest in the set, :math:`h_c`, or below the
  least. Among all members the one with :math:`p_c = h_c` is the hardest to tell from that, so

  .. math:: (s / h_c)^{x_c} \, ((1 - s) / (1 - h_c))^{n - x_c}

  has an expectation of at most 1 under every member.
- **The whole mix.** :math:`q` is what the mix seems to be, :math:`p^*` the member nearest to it, its reverse
  information projection: :math:`\prod_c (q_c / p^*_c)^{x_c}` has an expectation of at most 1 under every member
  (Grünwald, de Heide and Koolen 2024), and grows by :math:`D(q \| P)` with each draw of :math:`q`. This finds changes
  of many shares at once.
- **One update.** The probability of its counts under a Dirichlet mixture of mixes, over the largest that any member
  gives them. This needs no past, for a single large update; it takes the mix to be the same within an update.

What shares seem to be is told by decaying counts of the updates before, with a short and a long memory, from the centre
of the set on. While that lies in the set nothing is staked, so a late change is found as well as an early one.

Counts may be fractions: where at most m rows share one draw, each counts as 1/m of it. By Hölder's inequality the
expectations are still at most 1, however rows of a group depend on one another; and shares are those of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from counterpoise.sets import ContextSet, share_intervals
from counterpoise.sets.evidence import log_mixture
from counterpoise.tables.tabular.card import Part, numbers_json
from counterpoise.watch.bets import Stakes, Wealth

Array = NDArray[np.float64]

_ONE_SHARE, _WHOLE_MIX, _ONE_UPDATE = 0.6, 0.25, 0.15
"""How much is staked on each kind of bet."""

_SHARE_MEMORIES, _SHARE_PRIOR = (200.0, 2000.0), 30.0
"""Draws after which shares have forgotten all but 1/e, and draws from the centre that they begin with."""

_MIX_MEMORIES, _MIX_PRIOR = (50.0, 500.0), 20.0
"""The same of whole mixes, for each context."""

_RESERVE = 0.001
"""Part of what the mix seems to be that is the centre of the set, for contexts that have not come for long."""

_CONCENTRATIONS = (10.0, 100.0, 1000.0)
"""Of the Dirichlet distributions around the centre of the set that a single update is compared with."""


@dataclass(frozen=True, eq=False)
class MixState:
    """What is known after some updates.

    Attributes
    ----------
    following : Wealth
        Of the bets that follow what came of late.
    one_update : Wealth
        Of the bet on every update by itself.
    memories : ndarray of shape (n_memories, n_contexts)
        Decaying counts.
    """

    following: Wealth
    one_update: Wealth
    memories: Array

    @property
    def as_json(self) -> dict[str, Any]:
        """The same as what JSON can hold."""
        return {
            "following": self.following.as_json,
            "one_update": self.one_update.as_json,
            "memories": [numbers_json([float(f"{n:.9g}") for n in one.tolist()]) for one in self.memories],
        }


@dataclass(frozen=True, eq=False)
class MixBets:
    """The bets against a set.

    Parameters
    ----------
    mixes : ContextSet
    ever : bool
        Whether the evidence is to hold for all time; else it begins anew with every update.
    """

    mixes: ContextSet
    ever: bool = True

    @property
    def centre(self) -> Array:
        """A member, from which memories start."""
        return self.mixes.p_hat

    @cached_property
    def _intervals(self) -> Array:
        """The least and the largest share in the set; one that may be anything on a side cannot be beyond it."""
        ends = share_intervals(self.mixes)
        return np.where((ends > 0.0) & (ends < 1.0), ends, np.nan)

    @cached_property
    def _lengths(self) -> Array:
        """Of the memories: those of shares, then those of whole mixes."""
        return np.array([*_SHARE_MEMORIES, *(len(self.centre) * one for one in _MIX_MEMORIES)])

    @cached_property
    def weights(self) -> Array:
        """The stake of each bet that follows: a context's share, above and below, for each memory; and whole mixes."""
        n_shares, n_mixes = 2 * len(self.centre) * len(_SHARE_MEMORIES), len(_MIX_MEMORIES)
        return np.repeat([_ONE_SHARE / n_shares, _WHOLE_MIX / n_mixes], [n_shares, n_mixes])

    @property
    def _stakes(self) -> tuple[Stakes, Stakes]:
        return (Stakes("once"), Stakes("spread")) if self.ever else (Stakes("every"), Stakes("every"))

    @cached_property
    def _priors(self) -> Array:
        """Parameters of the Dirichlet distributions, a row each: Jeffreys', and some around the centre."""
        n = len(self.centre)
        near = 0.99 * self.centre + 0.01 / n
        return np.stack([np.full(n, 0.5), *(concentration * near for concentration in _CONCENTRATIONS)])

    @property
    def begin(self) -> MixState:
        """Before the first update."""
        prior = np.repeat([_SHARE_PRIOR, _MIX_PRIOR * len(self.centre)], [len(_SHARE_MEMORIES), len(_MIX_MEMORIES)])
        return MixState(Wealth.none(len(self.weights)), Wealth.none(1), np.outer(prior, self.centre))

    def after(self, state: MixState, counts: Array, update: int) -> MixState:
        """Return the state after an update.

        Parameters
        ----------
        counts : ndarray of shape (n_contexts,)
            Draws of each context.
        update : int
            Which one it is, from 0.
        """
        once, spread = self._stakes
        n = float(counts.sum())
        if n == 0.0:
            idle = state.following.after(np.zeros(len(self.weights)), once, update)
            return replace(state, following=idle, one_update=state.one_update.after(np.zeros(1), spread, update))
        seeming = self._seeming(state)
        shares, mixes = seeming[: len(_SHARE_MEMORIES)], seeming[len(_SHARE_MEMORIES) :]
        nearest = self.mixes.likeliest(np.vstack([mixes, counts]))
        with np.errstate(divide="ignore", invalid="ignore"):
            # Counts that no member allows have no gap: both ends are infinite.
            gaps = np.nan_to_num(nearest.upper - nearest.log_likelihood, nan=0.0)
            # A context that the mix of late has no share of must not come, or the stake is lost.
            ratios = np.where(mixes > 0.0, mixes / nearest.distribution[:-1], 0.0)
        # What a projection may lack to be exact is taken off, for each draw.
        whole = special.xlogy(counts, ratios).sum(axis=1) - n * gaps[:-1]
        mixture = special.logsumexp([log_mixture(counts, prior) for prior in self._priors]) - math.log(
            len(self._priors)
        )
        following = np.append(self._share_factors(shares, counts, n), whole)
        kept = np.exp(-n / self._lengths)[:, None]
        return MixState(
            state.following.after(following, once, update),
            state.one_update.after(np.array([float(mixture - nearest.upper[-1])]), spread, update),
            kept * state.memories + counts,
        )

    def _seeming(self, state: MixState) -> Array:
        """Return what the mix seems to be, by each memory: never without what the centre of the set has."""
        found = state.memories / state.memories.sum(axis=1, keepdims=True)
        return (1.0 - _RESERVE) * found + _RESERVE * self.centre

    def _share_factors(self, shares: Array, counts: Array, n: float) -> Array:
        """Return what an update makes of the bets on shares: nothing where they seem to be inside."""
        factors = []
        with np.errstate(divide="ignore", invalid="ignore"):
            for edge, outside in zip(self._intervals.T, (np.less, np.greater), strict=True):
                found = special.xlogy(counts, shares / edge) + special.xlogy(n - counts, (1.0 - shares) / (1.0 - edge))
                factors.append(np.where(outside(shares, edge), found, 0.0))
        return np.stack(factors, axis=-1).ravel()

    def evidence(self, state: MixState, update: int) -> float:
        """Return the e-value after an update."""
        left = self._stakes[1].left(update)
        following = state.following.evidence(self.weights, 0.0)
        return following + _ONE_UPDATE * state.one_update.evidence(np.ones(1), left)

    def ratios(self, state: MixState) -> Array:
        """Return log-likelihood ratios of a row of each context: the mix of late against the member nearest to it."""
        q = self._seeming(state)[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log(q) - np.log(self.mixes.likeliest(q).distribution)
        return np.nan_to_num(found, posinf=50.0, neginf=-50.0)

    def read(self, part: Part) -> MixState:
        """Return a state that was written."""
        rows, n = part["memories"].list, len(self.centre)
        if len(rows) != len(self._lengths):
            part["memories"].refuse(f"{len(self._lengths)} lists")
        return MixState(
            Wealth.read(part["following"], len(self.weights)),
            Wealth.read(part["one_update"], 1),
            np.array([one.numbers(n, finite=True, least=0.0) for one in rows]),
        )
