"""References that a small context cannot flatter: risks of rows the model has not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import one_each
from counterpoise.core.oracle._base import Array
from counterpoise.core.oracle.linear import EachContext, LinearOracle, LinearPoint
from counterpoise.core.references.left_out import CLOSER, LeftOut
from counterpoise.core.references.rows import ContextRows
from counterpoise.core.references.shrunk import reference_bracket, shrunk_references
from counterpoise.core.references.specialists import Specialists, fit_specialists, sketched
from counterpoise.exceptions import InvalidInputError
from counterpoise.rows import MemoryRows

N_FOLDS = 5

_NOTHING_LEFT = 1e-6
"""Share of the typical risk below which a context's own model leaves none."""

_LARGEST = 1 << 24
"""Entries of the features of small contexts up to which their folds are left out side by side (128 MB)."""


def folds_within(codes: NDArray[np.intp], order_by: NDArray[np.generic], n_folds: int) -> NDArray[np.intp]:
    """Deal the rows of every context to folds in turn, along their targets, so that folds resemble one another.

    Nothing is drawn: the same rows in the same order give the same folds.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,)
        The context of each row.
    order_by : ndarray of shape (n_samples,)
        The target, by which rows of one context are sorted before they are dealt.
    """
    order = np.lexsort((order_by, codes))
    sizes = np.bincount(codes)
    rank = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # Each context starts with another fold, or the first would get the odd row of every small context.
    folds = np.empty(len(codes), dtype=np.intp)
    folds[order] = (rank + codes[order]) % n_folds
    return folds


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Models that have not seen a part of the rows, judged on that part: a context's own, and one for all contexts.

    Each kind is fitted once, when it is first asked for. Losses include the ridge.

    Attributes
    ----------
    oracle : LinearOracle
    counts : ndarray of shape (n_contexts,)
        The weight of each context in the data.
    tol : float
    n_folds : int
    sketch : LinearPoint, optional
        About the best parameters for all rows, where they are known.
    known : Specialists, optional
        The contexts' own models of all their rows, where they are fitted already.
    """

    oracle: LinearOracle
    counts: Array
    tol: float
    n_folds: int = N_FOLDS
    sketch: LinearPoint | None = None
    known: Specialists | None = None

    @property
    def _rows(self) -> MemoryRows:
        return self.oracle.rows

    @cached_property
    def _held_together(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """A row of what is held out together, that of its smallest context, and the unit of each row."""
        rows = np.arange(len(self._rows.target))
        if self._rows.together is None:
            return rows, rows
        return one_each(self._rows.together, self._rows.sizes[self._rows.owner])

    @cached_property
    def _units(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """A row of what counts as one in a context, and the unit of each row."""
        firsts, units = self._held_together
        if self._rows.together is None:
            return firsts, units
        # What is held out together is one in each context that it counts in.
        return one_each(self._rows.owner * len(firsts) + units, np.zeros_like(units))

    @cached_property
    def folds(self) -> NDArray[np.intp]:
        """The fold in which each row is held out."""
        target = self._rows.target if self._rows.target.ndim == 1 else self._rows.target[:, -1]
        firsts, units = self._held_together
        return folds_within(self._rows.owner[firsts], target[firsts], self.n_folds)[units]

    def check(self, asked: str, instead: str) -> None:
        """Raise where there is one row, which cannot be held out.

        Parameters
        ----------
        asked, instead : str
            What rows were to be held out for, and what else can be asked.
        """
        if len(self._held_together[0]) < 2:
            raise InvalidInputError(f"{asked} holds rows out, and there is one row. Use {instead}.")

    @cached_property
    def rows(self) -> ContextRows:
        """The rows, those that are held out together as one with the sum of their weights."""
        firsts, units = self._units
        weight = np.bincount(units, self._rows.weight * np.repeat(self.counts, self._rows.sizes)).astype(np.float64)
        return ContextRows(self._rows.owner[firsts], weight, self.oracle.n_contexts)

    def _merged(self, losses: Array) -> Array:
        """Return the mean loss of rows that are held out together."""
        firsts, units = self._units
        if len(firsts) == len(units):
            return losses
        return ContextRows(units, self._rows.weight, len(firsts)).means(losses)

    @cached_property
    def _left(self) -> NDArray[np.intp]:
        """The rows of each context that a fold leaves, of shape (n_contexts, n_folds)."""
        shape = self.oracle.n_contexts, self.n_folds
        held = np.bincount(self._rows.owner * self.n_folds + self.folds, minlength=shape[0] * shape[1])
        return self._rows.sizes[:, None] - held.reshape(shape)

    @cached_property
    def _weight_left(self) -> Array:
        """What each row counts in its context without a fold, of shape (n_samples, n_folds); sums to one, or zero."""
        kept = self._rows.weight[:, None] * (self.folds[:, None] != np.arange(self.n_folds))
        totals = np.add.reduceat(kept, self._rows.starts[:-1], axis=0)
        return kept / np.repeat(np.where(totals > 0.0, totals, 1.0), self._rows.sizes, axis=0)

    @cached_property
    def pooled_losses(self) -> Array:
        """The loss of each row held out under one model for all contexts."""

        def pooled(train: MemoryRows, present: NDArray[np.intp]) -> Array:
            one = replace(self.oracle, rows=train.as_one(self.counts[present]))
            return fit_specialists(one, self.tol).theta[0]

        sketch = sketched(self.oracle, self.counts) if self.sketch is None else self.sketch
        one = replace(self.oracle, rows=self._rows.as_one(self.counts))
        if sketch is None or not LeftOut.serves(one, self._left.sum(axis=0, keepdims=True)).all():
            return self._merged(self._held_out(pooled))
        # Contexts weigh as in the data, and not by how many rows the fold has left them.
        shares = np.where(self._left > 0, self.counts[:, None], 0.0)
        weight = self._weight_left * np.repeat(shares / shares.sum(axis=0), self._rows.sizes, axis=0)
        losses = np.empty(len(self._rows.target))
        left_out = LeftOut(one, self.folds, weight)
        for rows, found in left_out.losses(np.zeros(1, dtype=np.intp), sketch.theta[None], self.tol):
            losses[rows] = found
        return self._merged(losses)

    @cached_property
    def own_losses(self) -> Array:
        """The loss of each row held out under a model of its context, infinite where no rows remain for one."""
        near = LeftOut.serves(self.oracle, self._left)
        losses, contexts = np.empty(len(self._rows.target)), np.flatnonzero(near)
        if near.any():
            left_out = LeftOut(self.oracle, self.folds, self._weight_left)
            for rows, found in left_out.losses(contexts, self.specialists.theta[contexts], self.tol):
                losses[rows] = found
        short = ~near & self._rows.are_short
        left = self._by_compiled(losses, np.flatnonzero(short))
        others = np.sort(np.append(np.flatnonzero(~near & ~short), left))
        if others.size:
            at_once = max(1, _LARGEST // max(self._rows.X.size, 1))
            for first in range(0, self.n_folds, at_once):
                folds = np.arange(first, min(first + at_once, self.n_folds))
                among = np.isin(np.arange(len(near)), others)[self._rows.owner]
                rows = np.flatnonzero(among & np.isin(self.folds, folds))
                losses[rows] = self._side_by_side(others, folds, rows)
        return self._merged(losses)

    def _by_compiled(self, losses: Array, contexts: NDArray[np.intp]) -> NDArray[np.intp]:
        """Find losses under the fits of small contexts without each fold by compiled code; return the contexts left."""
        if not contexts.size or self.oracle.alpha == 0.0:
            return contexts
        rows, places, left = self._rows.grouped(contexts), self._rows.places(contexts), np.zeros(len(contexts), bool)
        if rows.minimiser is None:
            return contexts
        folds, begin, own = self.folds[places], self._beginnings[contexts], np.empty(len(rows.weight))
        for fold in range(self.n_folds):
            held = folds == fold
            without = replace(rows, weight=self._weight_left[places, fold])
            minimiser = without.minimiser
            assert minimiser is not None
            theta = minimiser(begin, self.oracle.alpha)
            left |= ~np.isfinite(theta).all(axis=1)
            at = EachContext(without, self.oracle.alpha, theta)
            ridge = np.where(self._left[contexts, fold] > 0, at.value - at.sums.values, np.inf)
            own[held] = without.losses(at.sums.predictions)[held] + rows.layout.each(ridge)[held]
        losses[places] = own
        return contexts[left]

    def _side_by_side(self, contexts: NDArray[np.intp], folds: NDArray[np.intp], held: NDArray[np.intp]) -> Array:
        """Return losses of rows under the fits of small contexts without their folds: every fit a context of its own.

        Parameters
        ----------
        contexts, folds : ndarray of int
        held : ndarray of int
            The rows of these contexts in these folds.
        """
        n_contexts, owner = self.oracle.n_contexts, self._rows.owner
        among = np.zeros(n_contexts, dtype=bool)
        among[contexts] = True
        among = among[owner]
        # Fold by fold, rows are in the order of contexts already.
        each = [np.flatnonzero(among & (self.folds != fold)) for fold in folds]
        rows, fold = np.concatenate(each), np.repeat(np.arange(len(folds)), [len(one) for one in each])
        counts = np.bincount(fold * n_contexts + owner[rows], minlength=len(folds) * n_contexts)
        present = np.flatnonzero(counts)
        sizes = counts[present]
        losses, tested = np.full(len(held), np.inf), (self.folds[held] - folds[0]) * n_contexts + owner[held]
        known = counts[tested] > 0
        if not known.any():
            return losses
        starts = np.concatenate([[0], np.cumsum(sizes)])
        weight = self._weight_left[rows, folds[fold]]
        train = replace(
            self._rows,
            X=self._rows.X[rows],
            target=self._rows.target[rows],
            weight=weight,
            starts=starts,
            together=None,
        )
        begin = self._beginnings[present % n_contexts]
        closer = max(CLOSER * self.tol, 1e-12)
        theta = fit_specialists(replace(self.oracle, rows=train), closer, begin, proven=False).theta
        test, found = held[known], np.searchsorted(present, tested[known])
        by_fit = np.argsort(found, kind="stable")
        test, (judged, n) = test[by_fit], np.unique(found, return_counts=True)
        part = replace(
            self._rows,
            X=self._rows.X[test],
            target=self._rows.target[test],
            weight=np.ones(len(test)),
            starts=np.concatenate([[0], np.cumsum(n)]),
            together=None,
        )
        own = part.at(theta[judged]).losses + self.oracle.ridge.value(theta)[found[by_fit]]
        losses[np.flatnonzero(known)[by_fit]] = own
        return losses

    @property
    def _beginnings(self) -> Array:
        """Where the fits of small contexts without a fold begin: at those of all their rows.

        A context of one class leads ever further, until nothing of its risk is left; begun there, a fit to fewer rows
        would go further still. It begins at a constant.
        """
        risks, floor = self.specialists.risks.upper, self.oracle.lowest_risks
        left = risks - np.where(np.isfinite(floor), floor, 0.0) > _NOTHING_LEFT * self.oracle.typical_risk
        return np.where(left[:, None] | ~np.isfinite(floor)[:, None], self.specialists.theta, self.oracle.start())

    def _held_out(self, fitted: Callable[[MemoryRows, NDArray[np.intp]], Array]) -> Array:
        """Return the loss of each row under parameters that were fitted without its fold.

        Parameters
        ----------
        fitted : callable
            Maps the rows that remain and the contexts they have to parameters.
        """
        losses = np.empty(len(self._rows.target))
        for fold in np.unique(self.folds):
            held = self.folds == fold
            theta = fitted(*self._rows.masked(~held))
            losses[held] = self._rows.masked(held)[0].at(theta).losses + self.oracle.ridge.value(theta)
        return losses

    @cached_property
    def specialists(self) -> Specialists:
        """The contexts' own models of all their rows."""
        return fit_specialists(self.oracle, self.tol, self.sketch) if self.known is None else self.known

    @cached_property
    def in_sample_losses(self) -> Array:
        """The loss of each row under the model of its context that has seen it."""
        theta = self.specialists.theta
        return self._merged(self._rows.at(theta).losses + self.oracle.ridge.value(theta)[self._rows.owner])

    @property
    def own_risks(self) -> Array:
        """What a context's own model reaches, infinite where there is none.

        Its risk is too low on the rows it was fitted to, and too high on rows held out, by about as much: half the
        number of parameters over the number of rows, in a likelihood. So their mean is the estimate.
        """
        return 0.5 * (self.specialists.risks.upper + self.own_means)

    @property
    def own_means(self) -> Array:
        """The mean loss of each context's rows held out, infinite where no rows remain for a model."""
        return self.rows.means(self.own_losses)

    @property
    def pooled_means(self) -> Array:
        """The same under one model for all contexts."""
        return self.rows.means(self.pooled_losses)

    @property
    def references(self) -> Array:
        """The estimate for a context's own model, or the held-out risk of the pooled one where that is lower."""
        return np.minimum(self.own_risks, self.pooled_means)

    @property
    def shrunk(self) -> Array:
        """References with shrunken gains; see :mod:`counterpoise.core.references.shrunk`."""
        return shrunk_references(self.rows, self.own_losses, self.pooled_losses, self.own_risks)

    @property
    def bracket(self) -> Array:
        """An interval of the least possible risk; see :func:`counterpoise.core.references.shrunk.reference_bracket`."""
        bracket = reference_bracket(self.rows, self.in_sample_losses, self.own_losses, self.pooled_losses)
        # The minimum in sample is lower than what was reached, if by no more than was proven.
        unproven = self.specialists.risks.upper - self.specialists.risks.lower
        return bracket - np.column_stack([unproven, np.zeros(len(unproven))])

    @property
    def standard_errors(self) -> Array:
        """Of the pooled model's held-out risk in each context."""
        return self.rows.standard_errors(self.pooled_losses)
