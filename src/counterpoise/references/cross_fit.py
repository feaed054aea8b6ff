"""References that a small context cannot flatter: risks of rows the model has not seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

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
    """Estimate the least risk of each context from rows held out.

    Two models are tried on the held-out rows of a context, one trained on its other rows and one on the other rows of
    all contexts. The least risk is at most that of either, so the lower of the two is the estimate: in a small context
    a model of its own is held back by the few rows it was trained on.

    Parameters
    ----------
    counts : ndarray of shape (n_contexts,)
        The weight of each context in the data.
    tol : float
    """
    codes = np.repeat(np.arange(oracle.n_contexts), np.diff(oracle.starts))
    target = oracle.target if oracle.target.ndim == 1 else oracle.target[:, -1]
    folds = folds_within(codes, target, n_folds)
    totals = np.zeros((2, oracle.n_contexts))
    for fold in range(n_folds):
        held = folds == fold
        if not held.any() or held.all():
            continue
        train, present = oracle.rows(~held)
        test, tested = oracle.rows(held)
        share = np.add.reduceat(oracle.row_weight[held], test.starts[:-1])
        pooled = np.tile(fit_specialists(_as_one(train, counts[present]), tol).theta, (test.n_contexts, 1))
        own = pooled.copy()
        # A context without rows to train on has no model of its own, here and below.
        missing = ~np.isin(tested, present)
        own[~missing] = fit_specialists(train, tol).theta[np.searchsorted(present, tested[~missing])]
        for k, theta in enumerate((own, pooled)):
            totals[k, tested] += share * test.risks_of_each(theta)
    # Where one row is all there is, no fold holds out part of the context; its model is the one of all others.
    return np.asarray(totals.min(axis=0))


def _as_one(oracle: LinearOracle, counts: Array) -> LinearOracle:
    """Return all rows as one context, in the proportions of the data."""
    weight = oracle.weights(counts / counts.sum())
    return replace(oracle, row_weight=weight, starts=np.array([0, len(weight)]))
