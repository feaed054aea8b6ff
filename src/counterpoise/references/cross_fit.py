"""References that a small context cannot flatter: risks of rows the model has not seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.oracle._base import Array
from counterpoise.oracle.linear import LinearOracle
from counterpoise.references.specialists import fit_specialists

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


def cross_fitted_risks(oracle: LinearOracle, counts: Array, tol: float, n_folds: int = N_FOLDS) -> Array:
    """Estimate the least risk of each context with the help of rows held out.

    The risk of a context's own model is too low on the rows it was fitted to, and too high on rows held out, by about
    as much: half the number of parameters over the number of rows, in a likelihood. So their mean is the estimate;
    unless one model for all contexts does better on the held-out rows, as it does in contexts with few.

    Parameters
    ----------
    counts : ndarray of shape (n_contexts,)
        The weight of each context in the data.
    tol : float
    """
    if len(oracle.target) < 2:
        raise InvalidInputError("reference='cross-fit' holds rows out, and there is one row. Use 'in-sample'.")
    own, pooled = held_out_risks(oracle, counts, tol, n_folds)
    return np.minimum(0.5 * (fit_specialists(oracle, tol).risks.upper + own), pooled)


def held_out_risks(oracle: LinearOracle, counts: Array, tol: float, n_folds: int = N_FOLDS) -> tuple[Array, Array]:
    """Return the risk of each context on rows held out: of a model of its own, and of one for all contexts.

    The first is infinite where the rows that remain are none.
    """
    codes = np.repeat(np.arange(oracle.n_contexts), np.diff(oracle.starts))
    target = oracle.target if oracle.target.ndim == 1 else oracle.target[:, -1]
    together = np.arange(len(codes)) if oracle.together is None else oracle.together
    firsts, units = np.unique(together, return_index=True)[1], np.unique(together, return_inverse=True)[1]
    folds = folds_within(codes[firsts], target[firsts], n_folds)[units]
    own, pooled = np.zeros(oracle.n_contexts), np.zeros(oracle.n_contexts)
    for fold in np.unique(folds):
        held = folds == fold
        train, present = oracle.rows(~held)
        test, tested = oracle.rows(held)
        share = np.add.reduceat(oracle.row_weight[held], test.starts[:-1])
        for_all = np.tile(fit_specialists(_as_one(train, counts[present]), tol).theta, (test.n_contexts, 1))
        pooled[tested] += share * test.risks_of_each(for_all)
        theta = for_all.copy()
        trained = np.isin(tested, present)
        theta[trained] = fit_specialists(train, tol).theta[np.searchsorted(present, tested[trained])]
        own[tested] += np.where(trained, share * test.risks_of_each(theta), np.inf)
    return own, pooled


def _as_one(oracle: LinearOracle, counts: Array) -> LinearOracle:
    """Return all rows as one context, in the proportions of the data."""
    weight = oracle.weights(counts / counts.sum())
    return replace(oracle, row_weight=weight, starts=np.array([0, len(weight)]))
