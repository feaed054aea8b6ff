"""Every level on rows that its model was not fitted to: what the curve of the fits promises, and what comes of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing, indexable

from counterpoise.core.robustness import Criterion
from counterpoise.estimators.learners import (
    fold_of_rows,
    innermost,
    least_probability,
    row_losses,
    specialist_losses,
    splits_by,
    step_name,
)
from counterpoise.inference.excess import HeldOut
from counterpoise.judging.comparison import COMPETITORS
from counterpoise.judging.confidence import confidence_path
from counterpoise.judging.trials import variant
from counterpoise.reports.explorer.levels import Levels
from counterpoise.validation import unwrapped

Array = NDArray[np.float64]

CONFIDENCE = 0.95
"""Level of the intervals."""

_CELLS = 600
"""Levels times contexts that are judged; the work grows with both."""

_LEAST = 5
"""Levels that are judged in any case."""


@dataclass(frozen=True, eq=False)
class HeldOutLevels:
    """What every level comes to on held-out rows, each as an estimate with the ends of its interval.

    Attributes
    ----------
    mix, worst : ndarray of shape (n_levels, 3)
        In the worst plausible mix, and in the worst context: the excess risk above the better of the context's own
        model and the plain one, or the risk where that is the criterion. Plausible is what the set as fitted holds, at
        every level, so that levels can be compared. Corrected for being the largest of noisy numbers.
    mean, price : ndarray of shape (n_levels, 3)
        The mean risk, and how much higher it is than that of the plain model.
    judged : ndarray
        The levels that were judged, in ascending order; numbers between them are interpolated.
    """

    mix: Array
    worst: Array
    mean: Array
    price: Array
    judged: NDArray[np.intp]

    @classmethod
    def of(cls, rows: HeldOut, losses: Array, judged: NDArray[np.intp], own: Array | None = None) -> HeldOutLevels:
        """Judge the losses of each level, of which the first is the plain model.

        Parameters
        ----------
        losses : ndarray of shape (n_levels, n_samples)
        judged : ndarray
            Which levels to judge, the first and the last among them.
        own : ndarray of shape (n_samples,), optional
            Losses of each context's own model, for excess risk.
        """
        names, pooled = ([""], None) if own is None else (list(COMPETITORS), COMPETITORS.index("pooled"))
        competitors = np.zeros((losses.shape[1], 1)) if own is None else np.column_stack([own, losses[0]])
        bounds = [rows.excess_bounds(losses[k], competitors, names, None if k else pooled) for k in judged]
        columns = {
            "mix": [one.mix for one in bounds],
            "worst": [one.worst for one in bounds],
            "mean": [rows.mean(losses[k]) for k in judged],
            "price": [rows.mean(losses[k] - losses[0]) for k in judged],
        }
        every = np.arange(len(losses))
        between = {
            name: np.column_stack([np.interp(every, judged, part) for part in np.array(column).T])
            for name, column in columns.items()
        }
        return cls(**between, judged=judged)

    @property
    def knee(self) -> int | None:
        """The level with the least sum of mean risk and worst context, the first of those that tie.

        Beyond it the worst context gains less than the average pays. None where contexts are too small to be judged.
        """
        both = self.mean[:, 0] + self.worst[:, 0]
        if np.isnan(both).all():
            return None
        # Levels that differ by rounding are one and the same model.
        return int(np.flatnonzero(both <= np.nanmin(both) + 1e-6 * np.nanmax(np.abs(both)))[0])


def held_out_levels(
    model: Any,
    X: Any,
    y: Any,
    contexts: Any,
    ladder: Levels,
    *,
    criteria: Sequence[Criterion],
    cv: Any,
    sample_weight: Any = None,
    groups: Any = None,
) -> Mapping[Criterion, HeldOutLevels] | None:
    """Follow the levels once in every fold, and judge them on the rows left out.

    Parameters
    ----------
    model : estimator
        A robust linear model, or a pipeline that ends in one, with its draws counted.
    ladder : Levels
        With sets of the same radii around the shares of each fold.
    cv : int or splitter
        As in :func:`counterpoise.compare`.

    Returns
    -------
    mapping from criterion to HeldOutLevels, or None
        None where something was said about the mix, and a fold lacks one of the contexts.
    """
    X, target = indexable(X, np.asarray(unwrapped(y)))
    rows = HeldOut.of(len(target), contexts, groups, sample_weight, confidence=CONFIDENCE)
    folds = fold_of_rows(model, X, target, *rows.of_rows[:2], cv, rows.of_rows[2])
    rows, X, target, folds = rows.weighted(X, target, folds)
    mix = ladder.mixes[ladder.chosen]
    rows = replace(rows, mix=mix, n_unseen=mix.p_hat.size - len(rows.contexts.labels))
    if _lacks_contexts(model, rows, folds):
        return None
    judge: dict[str, Any] = {"loss": None, "floor": least_probability(len(target))}
    with warnings.catch_warnings():
        # Said by the fits to all rows, which are the ones on the page.
        warnings.simplefilter("ignore")
        alone, codes = variant(model, "erm", [0]), rows.contexts.codes
        own = specialist_losses(alone, X, target, rows.weight, codes, splits_by(folds), **judge)
        found: dict[Criterion, HeldOutLevels] = {}
        for criterion in criteria:
            scored = clone(model).set_params(**{f"{step_name(model)}criterion": criterion})
            losses = _losses(scored, X, target, rows, folds, ladder, **judge)
            judged = _judged(len(losses), ladder.chosen, len(rows.contexts.labels))
            found[criterion] = HeldOutLevels.of(rows, losses, judged, own if criterion == "excess" else None)
    return found


def _judged(n_levels: int, chosen: int, n_contexts: int) -> NDArray[np.intp]:
    """Return the levels to judge: both ends, the one that was asked for, and as many between them as time allows."""
    many = min(n_levels, max(_LEAST, _CELLS // n_contexts))
    return np.unique([*np.linspace(0, n_levels - 1, many).round().astype(np.intp), chosen])


def _lacks_contexts(model: Any, rows: HeldOut, folds: NDArray[np.intp]) -> bool:
    """Tell whether something was said about the mix of contexts, and some fold does not hold all of them."""
    n_contexts = len(rows.contexts.labels)
    return _stated(model) and any(
        len(np.unique(rows.contexts.codes[seen])) < n_contexts for seen, _ in splits_by(folds)
    )


def _stated(model: Any) -> bool:
    """Tell whether anything was said about the mix."""
    return innermost(model).get_params().get("mix") is not None


def _losses(
    model: Any, X: Any, y: NDArray[Any], rows: HeldOut, folds: NDArray[np.intp], ladder: Levels, **judge: Any
) -> Array:
    """Return the loss of each row at each level, under models that were fitted without its fold."""
    losses = np.empty((len(ladder.radii), len(y)))
    labels = rows.contexts.labels[rows.contexts.codes]
    # What is known about the mix may leave no room around the shares of a fold, so its sets are those of all rows.
    levels: dict[str, Any] = {"radii": ladder.radii.tolist()}
    if _stated(model):
        first = ladder.mixes[:1]
        levels = {"radii": [math.inf], "beside": [first, ladder.mixes[1:]] if ladder.apart else [ladder.mixes]}
    for seen, held in splits_by(folds):
        metadata: dict[str, Any] = {"contexts": labels[seen], "sample_weight": rows.weight[seen]}
        path = confidence_path(model, _safe_indexing(X, seen), y[seen], **metadata, **levels)
        after = _safe_indexing(X, held)
        models = [one for chain in path.beside for one in chain] if "beside" in levels else path.models
        for k, one in enumerate(models):
            losses[k, held] = row_losses(one, after, y[held], **judge)
    return losses
