"""References that a small context cannot flatter: risks of rows the model has not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.oracle._base import Array
from counterpoise.oracle.linear import LinearOracle
from counterpoise.references.rows import ContextRows
from counterpoise.references.shrunk import reference_bracket, shrunk_references
from counterpoise.references.specialists import Specialists, fit_specialists

N_FOLDS = 5


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
    """

    oracle: LinearOracle
    counts: Array
    tol: float
    n_folds: int = N_FOLDS

    @cached_property
    def _units(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The first row of what is held out together, and the unit of each row."""
        rows = np.arange(len(self.oracle.target))
        if self.oracle.together is None:
            return rows, rows
        _, firsts, units = np.unique(self.oracle.together, return_index=True, return_inverse=True)
        return firsts, units

    @cached_property
    def folds(self) -> NDArray[np.intp]:
        """The fold in which each row is held out."""
        target = self.oracle.target if self.oracle.target.ndim == 1 else self.oracle.target[:, -1]
        firsts, units = self._units
        return folds_within(self.oracle.owner[firsts], target[firsts], self.n_folds)[units]

    def check(self, asked: str, instead: str) -> None:
        """Raise where there is one row, which cannot be held out.

        Parameters
        ----------
        asked, instead : str
            What rows were to be held out for, and what else can be asked.
        """
        if len(self._units[0]) < 2:
            raise InvalidInputError(f"{asked} holds rows out, and there is one row. Use {instead}.")

    @cached_property
    def rows(self) -> ContextRows:
        """The rows, those that are held out together as one with the sum of their weights."""
        firsts, units = self._units
        weight = np.bincount(units, self.oracle.weights(self.counts)).astype(np.float64)
        return ContextRows(self.oracle.owner[firsts], weight, self.oracle.n_contexts)

    def _merged(self, losses: Array) -> Array:
        """Return the mean loss of rows that are held out together."""
        firsts, units = self._units
        if len(firsts) == len(units):
            return losses
        return ContextRows(units, self.oracle.row_weight, len(firsts)).means(losses)

    @cached_property
    def pooled_losses(self) -> Array:
        """The loss of each row held out under one model for all contexts."""

        def pooled(train: LinearOracle, present: NDArray[np.intp], tested: NDArray[np.intp]) -> Array:
            return np.tile(fit_specialists(_as_one(train, self.counts[present]), self.tol).theta, (len(tested), 1))

        return self._merged(self._held_out(pooled))

    @cached_property
    def own_losses(self) -> Array:
        """The loss of each row held out under a model of its context, infinite where no rows remain for one."""

        def own(train: LinearOracle, present: NDArray[np.intp], tested: NDArray[np.intp]) -> Array:
            theta = np.full((len(tested), train.n_parameters), np.nan)
            trained = np.isin(tested, present)
            theta[trained] = fit_specialists(train, self.tol).theta[np.searchsorted(present, tested[trained])]
            return theta

        return self._merged(self._held_out(own))

    def _held_out(self, fitted: Callable[[LinearOracle, NDArray[np.intp], NDArray[np.intp]], Array]) -> Array:
        """Return the loss of each row under parameters that were fitted without its fold; infinite where these are NaN.

        Parameters
        ----------
        fitted : callable
            Maps the rows that remain, the contexts they have, and those that are judged, to parameters for the latter.
        """
        losses = np.empty(len(self.oracle.target))
        for fold in np.unique(self.folds):
            held = self.folds == fold
            test, tested = self.oracle.rows(held)
            theta = fitted(*self.oracle.rows(~held), tested)
            missing: NDArray[np.bool_] = np.isnan(theta).any(axis=1)  # type: ignore[assignment]
            theta = np.where(missing[:, None], 0.0, theta)
            rows = test.losses_of_each(theta) + test.ridges_of_each(theta)[test.owner]
            losses[held] = np.where(missing[test.owner], np.inf, rows)
        return losses

    @cached_property
    def _specialists(self) -> Specialists:
        return fit_specialists(self.oracle, self.tol)

    @cached_property
    def in_sample_losses(self) -> Array:
        """The loss of each row under the model of its context that has seen it."""
        oracle, theta = self.oracle, self._specialists.theta
        return self._merged(oracle.losses_of_each(theta) + oracle.ridges_of_each(theta)[oracle.owner])

    @property
    def own_risks(self) -> Array:
        """What a context's own model reaches, infinite where there is none.

        Its risk is too low on the rows it was fitted to, and too high on rows held out, by about as much: half the
        number of parameters over the number of rows, in a likelihood. So their mean is the estimate.
        """
        return 0.5 * (self._specialists.risks.upper + self.rows.means(self.own_losses))

    @property
    def references(self) -> Array:
        """The estimate for a context's own model, or the held-out risk of the pooled one where that is lower."""
        return np.minimum(self.own_risks, self.rows.means(self.pooled_losses))

    @property
    def shrunk(self) -> Array:
        """References with shrunken gains; see :mod:`counterpoise.references.shrunk`."""
        return shrunk_references(self.rows, self.own_losses, self.pooled_losses, self.own_risks)

    @property
    def bracket(self) -> Array:
        """An interval of the least possible risk; see :func:`counterpoise.references.shrunk.reference_bracket`."""
        return reference_bracket(self.rows, self.in_sample_losses, self.own_losses, self.pooled_losses)

    @property
    def standard_errors(self) -> Array:
        """Of the pooled model's held-out risk in each context."""
        return self.rows.standard_errors(self.pooled_losses)


def cross_fitted_risks(oracle: LinearOracle, counts: Array, tol: float, n_folds: int = N_FOLDS) -> Array:
    """Estimate the least risk of each context with the help of rows held out; see :attr:`CrossFit.references`.

    Parameters
    ----------
    counts : ndarray of shape (n_contexts,)
        The weight of each context in the data.
    tol : float
    """
    found = CrossFit(oracle, counts, tol, n_folds)
    found.check("reference='cross-fit'", "'in-sample'")
    return found.references


def held_out_risks(oracle: LinearOracle, counts: Array, tol: float, n_folds: int = N_FOLDS) -> tuple[Array, Array]:
    """Return the risk of each context on rows held out: of a model of its own, and of one for all contexts.

    The first is infinite where the rows that remain are none.
    """
    found = CrossFit(oracle, counts, tol, n_folds)
    return found.rows.means(found.own_losses), found.rows.means(found.pooled_losses)


def _as_one(oracle: LinearOracle, counts: Array) -> LinearOracle:
    """Return all rows as one context, in the proportions of the data."""
    weight = oracle.weights(counts / counts.sum())
    return replace(oracle, row_weight=weight, starts=np.array([0, len(weight)]))
