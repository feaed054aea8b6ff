"""What contexts reach with models of their own, on rows held out: judged a fold at a time, until enough is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from counterpoise.contexts import Contexts
from counterpoise.core.references import ContextRows
from counterpoise.estimators.learners import Array, Indices, Split
from counterpoise.inference.excess import HeldOut
from counterpoise.inference.headroom import Headroom, negligible

_GIVEN_UP = 0.75
"""Level at which a context's own model has to be worse than the plain one to be given up: it is no reference then, and
one that turns out better after all hardly ever does so by more than its error."""

_PRECISE = 0.3
"""Share of a negligible risk: a difference with a smaller standard error need not be known better."""

_LEAST_UNITS = 30
"""Units whose spread tells how precise their mean is."""


@dataclass(frozen=True, eq=False)
class OwnModels:
    """Losses of contexts' own models beside those of the plain one.

    Attributes
    ----------
    held_out : HeldOut
        All rows.
    plain : ndarray of shape (n_samples,)
        Losses of the plain model.
    losses : ndarray of shape (n_samples,)
        Those of the model of the row's context: infinite where it has none, NaN where it was not judged.
    given_up : ndarray of shape (n_contexts,)
        Contexts some rows of which were not judged because their own model is probably worse than the plain one.
    """

    held_out: HeldOut
    plain: Array
    losses: Array
    given_up: NDArray[np.bool_]

    @cached_property
    def _judged(self) -> Indices:
        return np.flatnonzero(~np.isnan(self.losses))

    @property
    def _rows(self) -> ContextRows:
        """The rows that were judged."""
        contexts, weight = self.held_out.contexts, self.held_out.weight
        return ContextRows(contexts.codes[self._judged], weight[self._judged], len(contexts.labels))

    @property
    def _above_plain(self) -> Array:
        return (self.losses - self.plain)[self._judged]

    def references(self, plain: Array) -> Array:
        """Return the lower risk of both models in each context; the plain one's where a context has no other.

        Parameters
        ----------
        plain : ndarray of shape (n_contexts,)
            Risks of the plain model on all rows.
        """
        return plain + np.minimum(self._rows.means(self._above_plain), 0.0)

    def standard_errors(self) -> Array:
        """Return those of the plain model's risk above the own one's, by all rows of a context; NaN if it has none."""
        with np.errstate(invalid="ignore"):
            errors = self._rows.standard_errors(self._above_plain)
        return np.asarray(errors * np.sqrt(self._rows.counts / self.held_out.totals))

    def headroom(self) -> Headroom:
        """Return what contexts could gain, by the rows that were judged."""
        # Over every mix: whether there is anything to gain is asked of each context, and plausible mixes take longer.
        some, own = replace(self.held_out.where(self._judged), mix=None), self.losses[self._judged]
        bounds = some.excess_bounds(self.plain[self._judged], own[:, None], ["own"])
        return Headroom(bounds, negligible(self.held_out, self.plain))

    def competitor(self) -> tuple[Indices, Array]:
        """Return the rows on which other models are compared with the own ones, and the losses of these.

        A context whose own model was given up has all its rows there, and no such competitor.
        """
        losses = np.where(self.given_up[self.held_out.contexts.codes], np.inf, self.losses)
        rows = np.flatnonzero(~np.isnan(losses))
        return rows, losses[rows]


def judged_by_turns(
    held_out: HeldOut, plain: Array, splits: Iterable[Split], judge: Callable[[Split], Array]
) -> OwnModels:
    """Judge contexts' own models a fold at a time, each until enough is known of it.

    That is where it is probably worse than the plain model, so that it is no reference, or where the difference is
    known so well that its error does not matter. Folds have to be alike: dealt, not chosen.

    Parameters
    ----------
    judge : callable
        Maps the rows to fit to and the rows to judge, of several contexts, to losses of all rows.
    """
    codes, n_contexts = held_out.contexts.codes, len(held_out.contexts.labels)
    precise = _PRECISE * negligible(held_out, plain)
    losses = np.full(len(codes), np.nan)
    given_up, pending = np.zeros(n_contexts, dtype=bool), np.ones(n_contexts, dtype=bool)
    for seen, held in splits:
        judged = np.flatnonzero(pending[codes] & ~np.isnan(losses))
        if len(judged):
            there = np.unique(codes[judged])
            worse, known = _told(held_out.where(judged), losses[judged], plain[judged], precise)
            given_up[there] |= worse
            pending[there] &= ~(worse | known)
        split = seen[pending[codes[seen]]], held[pending[codes[held]]]
        if len(split[1]):
            losses[split[1]] = judge(split)[split[1]]
    return OwnModels(held_out, plain, losses, given_up)


def _told(held_out: HeldOut, own: Array, plain: Array, precise: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which contexts' own models are probably worse, or are none, and of which the difference is known."""
    present, codes = np.unique(held_out.contexts.codes, return_inverse=True)
    contexts = Contexts(held_out.contexts.labels[present], codes, held_out.contexts.rows)
    means = replace(held_out, contexts=contexts).differences(plain, own)
    gain, error = means.mean[:, 0], means.error[:, 0]
    worse = ~(gain >= -stdtrit(means.degrees, _GIVEN_UP) * error)
    return worse & (means.n_units > 1), (error <= precise) & (means.n_units >= _LEAST_UNITS)
