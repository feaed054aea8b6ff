"""The least risk of each context that linear heads on frozen features have, on rows these have not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterpoise.exceptions import InvalidInputError
from counterpoise.torch.ridge_heads import (
    HeadTarget,
    Task,
    checked_alphas,
    checked_features,
    dealt_folds,
    held_out_losses,
    left_out,
    ridge_heads,
    scales,
)
from counterpoise.validation import on_host

Array = NDArray[np.float64]

_MANY = 100
"""Rows of a context from which heads without one fold may decide about another that they have seen."""


@dataclass(frozen=True, eq=False)
class References:
    """Estimates of the least risk that a network can have in each context.

    Attributes
    ----------
    risks : ndarray of shape (n_contexts,)
        On rows that were not fitted; NaN for contexts without rows.
    standard_errors : ndarray of shape (n_contexts,)
        Of these means over rows.
    losses : ndarray of shape (n_samples,)
        What the risks are means of; empty where they were read from a file.
    """

    risks: Array
    standard_errors: Array
    losses: Array = field(default_factory=lambda: np.zeros(0), repr=False)

    @classmethod
    def of(cls, losses: Array, codes: NDArray[np.intp], n_contexts: int) -> References:
        """Return the mean loss of each context, with its standard error."""
        # Here, not above: those who take a loss for a loop of their own need not wait for what references import.
        from counterpoise.core.references.rows import ContextRows

        rows = ContextRows(codes, np.ones(len(codes)), n_contexts)
        with np.errstate(invalid="ignore", divide="ignore"):
            risks, errors = rows.means(losses), rows.standard_errors(losses)
        absent = rows.counts == 0.0
        return cls(np.where(absent, np.nan, risks), np.where(absent, np.nan, errors), losses)


def head_references(
    features: Any,
    targets: Any,
    contexts: Any,
    n_contexts: int | None = None,
    *,
    own_losses: Any = None,
    folds: int = 5,
    seed: int = 0,
    alphas: Sequence[float] | None = None,
    task: Task | None = None,
) -> References:
    """Estimate the least risk of each context by linear heads on frozen features, on rows these have not seen.

    Heads are fitted without a fold of the rows and judged on it: one for all contexts, and for each context one of its
    own, which a ridge shrinks towards the one for all. How strong the ridges are, and which head is taken, is decided
    for every fold by the rows of the context in the *other* folds, so that the least of several noisy estimates is not
    reported as if it were one; a head of the context's own is taken only where it is better there by more than the
    standard error of the paired difference. The risk that is returned is thus about what this procedure reaches on rows
    it has not seen: it lies above the least possible risk by what fitting so few rows costs.

    No head that is judged on a fold has been fitted to it. The decisions about that fold are not as strict, to save
    refits. In contexts of fewer than 100 rows, the heads of a context's own that decide about a fold have not been
    fitted to it. In larger ones they have: each is judged on another fold, but its training rows include the fold that
    is decided about. The same holds for the head for all contexts and its ridge in contexts of any size, and for the
    outputs towards which a context's own heads are shrunk. Features are standardised with the mean and standard
    deviation of all rows; targets play no part in that.

    Parameters
    ----------
    features : array or Tensor of shape (n_samples, n_features)
        What goes into the last layer, of rows that the network was not trained on; see
        :func:`counterpoise.torch.features`. Tensors on a GPU are fitted there.
    targets : array or Tensor of shape (n_samples,)
        Classes (whole numbers) or numbers (floats).
    contexts : integers of shape (n_samples,)
        From 0 on.
    n_contexts : int, optional
        By default the largest context and one.
    own_losses : array or Tensor of shape (n_samples,), optional
        Losses of the network itself on these rows, as another head for all contexts.
    folds : int
    seed : int
        Rows of a context are dealt to folds at random.
    alphas : sequence of float, optional
        Ridges to try, on standardised features.
    task : {"classification", "regression"}, optional
        By default what the type of the targets says.
    """
    Z = checked_features(features)
    mean, scale = scales(Z)
    X = (Z - mean) * scale
    target = HeadTarget.of(targets, task, X)
    codes = _checked_codes(contexts, len(X), n_contexts)
    n_contexts = int(codes.max()) + 1 if n_contexts is None else n_contexts
    strengths = checked_alphas(alphas)
    if len(X) < 2:
        raise InvalidInputError("references hold rows out, and there is one row.")
    network = None if own_losses is None else np.asarray(on_host(own_losses), dtype=np.float64)
    if network is not None and network.shape != (len(X),):
        raise InvalidInputError(f"own_losses have shape {network.shape} for {len(X)} rows.")
    dealt = dealt_folds(codes, folds, seed)
    pooled, shared = _pooled_heads(X, target, codes, dealt, strengths)
    own = _own_heads(X, target, codes, dealt, strengths, shared)
    return References.of(_chosen(codes, dealt, pooled, own, network), codes, n_contexts)


def _checked_codes(contexts: Any, n_rows: int, n_contexts: int | None) -> NDArray[np.intp]:
    codes = np.asarray(on_host(contexts))
    if codes.shape != (n_rows,) or not np.issubdtype(codes.dtype, np.integer):
        raise InvalidInputError(
            f"contexts are {codes.dtype} of shape {codes.shape}; pass a whole number for each of {n_rows} rows."
        )
    if codes.min() < 0 or (n_contexts is not None and codes.max() >= n_contexts):
        most = "" if n_contexts is None else f" to {n_contexts - 1}"
        raise InvalidInputError(f"contexts run from {codes.min()} to {codes.max()}; they are numbered from 0{most}.")
    return codes.astype(np.intp)


def _pooled_heads(
    X: Tensor, target: HeadTarget, codes: NDArray[np.intp], folds: NDArray[np.intp], alphas: tuple[float, ...]
) -> tuple[Array, Tensor]:
    """Return losses of rows under the head for all contexts that has not seen them, and all rows' outputs by fold.

    The ridge of the head without a fold is the one with the least loss on the other folds.
    """
    n_folds = int(folds.max()) + 1
    shares = np.bincount(codes).astype(np.float64)
    outputs = ridge_heads(X, target, left_out(folds, n_folds, codes, shares), alphas).outputs
    losses = held_out_losses(outputs, target, folds)
    sums = np.zeros((n_folds, len(alphas)))
    np.add.at(sums, folds, losses)
    best = (sums.sum(axis=0) - sums).argmin(axis=1)
    every = torch.arange(n_folds, device=X.device)
    return losses[np.arange(len(X)), best[folds]], outputs[:, every, torch.as_tensor(best, device=X.device)]


def _own_heads(
    X: Tensor,
    target: HeadTarget,
    codes: NDArray[np.intp],
    folds: NDArray[np.intp],
    alphas: tuple[float, ...],
    shared: Tensor,
) -> Array:
    """Return losses of rows under heads of their context, of shape (n_samples, n_folds, n_alphas).

    The heads have seen neither the fold of the row nor, in small contexts, the fold in whose place the loss is: what
    decides about a fold must not depend on it.
    """
    n_folds = shared.shape[1]
    losses = np.empty((len(X), n_folds, len(alphas)))
    for c in np.unique(codes):
        mine = np.flatnonzero(codes == c)
        rows, own = torch.as_tensor(mine, device=X.device), folds[mine]
        part, offset = target.subset(rows), shared[rows]
        if len(mine) >= _MANY:
            weight = left_out(own, n_folds, np.zeros_like(mine), np.ones(1))
            outputs = ridge_heads(X[rows], part, weight, alphas, offset).outputs
            losses[mine] = held_out_losses(outputs, part, own)[:, None]
            continue
        # One weighting for each fold that is judged and each that is left out beside it.
        judged, beside = np.divmod(np.arange(n_folds**2), n_folds)
        kept = (own[:, None] != judged) & (own[:, None] != beside)
        weight = kept / np.maximum(kept.sum(axis=0), 1.0)
        outputs = ridge_heads(X[rows], part, weight, alphas, offset.repeat_interleave(n_folds, 1)).outputs
        for fold in range(n_folds):
            losses[mine, fold] = held_out_losses(outputs[:, fold::n_folds], part, own)
    return losses


def _chosen(
    codes: NDArray[np.intp], folds: NDArray[np.intp], pooled: Array, own: Array, network: Array | None
) -> Array:
    """Return the loss of every row under the head that its context's rows in the other folds are in favour of."""
    found = np.empty(len(codes))
    for c in np.unique(codes):
        for fold in np.unique(folds[codes == c]):
            judged = (codes == c) & (folds == fold)
            others = (codes == c) & (folds != fold)
            base = pooled
            # A context of one row has no others, and no network of its own either.
            deciding = others if others.any() else folds != fold
            if network is not None and network[deciding].mean() < pooled[deciding].mean():
                base = network
            found[judged] = base[judged]
            if not others.any():
                continue
            gains = base[others][:, None] - own[others, fold]
            best = int(gains.mean(axis=0).argmax())
            if stands_out(gains[:, best]):
                found[judged] = own[judged, fold, best]
    return found


def stands_out(gains: Array) -> bool:
    """Tell whether a mean is above zero by more than its standard error."""
    n = len(gains)
    return n > 1 and bool(gains.mean() > gains.std(ddof=1) / np.sqrt(n))
