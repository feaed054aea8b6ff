"""Any scikit-learn learner: fit it with weights, and judge it row by row on data it has not seen."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, check_consistent_length

from counterpoise.contexts import Contexts, places_among
from counterpoise.core.references import folds_within
from counterpoise.estimators._base import speaking_as
from counterpoise.exceptions import InvalidInputError, OneContextWarning
from counterpoise.validation import LARGEST_LOSS, unwrapped

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
LossName = Literal["log_loss", "zero_one", "half_squared_error", "squared_error", "absolute_error"]
Split = tuple[Indices, Indices]
"""Rows that a model is fitted to, and rows that it is judged on."""

RowLoss = LossName | Callable[[Any, Any], Any]
"""A loss by name, or a function of the targets and the predictions that returns one number per row."""


def _residual(target: NDArray[Any], predicted: NDArray[Any]) -> Array:
    return np.asarray(predicted.astype(np.float64) - target)


_OF_PREDICTIONS: dict[LossName, Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]] = {
    "zero_one": lambda target, predicted: predicted != target,
    "half_squared_error": lambda target, predicted: 0.5 * np.square(_residual(target, predicted)),
    "squared_error": lambda target, predicted: np.square(_residual(target, predicted)),
    "absolute_error": lambda target, predicted: np.abs(_residual(target, predicted)),
}


def fit_weighted(learner: Any, X: Any, y: Any, weight: Array, tilt: Array | float = 1.0) -> Any:
    """Return a fitted clone of a learner.

    The tilt changes the weights of rows against each other, never their sum: some learners (XGBoost) have
    regularisation that depends on it. Rows of weight one keep a mean of one, and a fit in which all have it is one
    without weights: some learners (scikit-learn's histogram boosting) take many times as long with any.
    """
    weights = tilted(weight, tilt)
    without = (weights == 1.0).all() and not _needs_weights(innermost(learner))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OneContextWarning)
        return fit_routed(learner, X, y, **({} if without else {"sample_weight": weights}))


def _needs_weights(learner: Any) -> bool:
    """Tell whether a learner cannot be fitted without weights."""
    asked = inspect.signature(learner.fit).parameters.get("sample_weight")
    return asked is not None and asked.default is inspect.Parameter.empty


def tilted(weight: Array, tilt: Array | float) -> Array:
    """Return row weights times a tilt, with an unchanged sum."""
    product = weight * tilt
    return np.asarray(product * (weight.sum() / product.sum()))


def fit_routed(learner: Any, X: Any, y: Any, **metadata: Any) -> Any:
    """Return a fitted clone of a learner, with metadata given straight to the step that decides."""
    fitted = clone(learner)
    prefix = step_name(fitted)
    # Independent of the user's configuration of routing.
    with config_context(enable_metadata_routing=False):
        fitted.fit(X, y, **{prefix + name: value for name, value in metadata.items()})
    return fitted


def with_counted_draws(learner: Any, X: Any, contexts: Any, groups: Any, sample_weight: Any = None) -> Any:
    """Return a robust learner whose draws are a number, where they are to be found from groups of rows."""
    own = innermost(learner)
    if not (hasattr(own, "sized") and own.draws == "groups"):
        return learner
    with speaking_as(own):
        draws = own.sized(X, contexts, groups, sample_weight).draws
    return clone(learner).set_params(**{f"{step_name(learner)}draws": draws})


def step_name(learner: Any) -> str:
    """Return what goes before a parameter of the step that decides: nothing, or the names of pipeline steps."""
    if isinstance(learner, Pipeline):
        name, last = learner.steps[-1]
        return f"{name}__{step_name(last)}"
    return ""


def check_takes_weights(learner: Any) -> None:
    """Refuse a learner whose ``fit`` takes no weights."""
    if isinstance(learner, type) or not (hasattr(learner, "fit") and hasattr(learner, "get_params")):
        raise InvalidInputError(
            f"estimator is {learner!r:.60}; pass a scikit-learn classifier or regressor, such as "
            "HistGradientBoostingClassifier()."
        )
    last = innermost(learner)
    parameters = inspect.signature(last.fit).parameters
    if "sample_weight" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    raise InvalidInputError(
        f"{type(last).__name__}.fit takes no sample_weight, by which contexts are weighed. Choose one that does."
    )


def row_losses(learner: Any, X: Any, y: Any, loss: RowLoss | None = None, floor: float | None = None) -> Array:
    """Return the loss of each row under a fitted learner.

    Parameters
    ----------
    loss : {"log_loss", "zero_one", "half_squared_error", "squared_error", "absolute_error"} or callable, optional
        A callable gets the targets and ``learner.predict(X)``. By default the loss the learner was fitted by, where it
        tells (the robust linear models do); else the log loss of a classifier with probabilities, the error of one
        without, half the squared error of a regressor, as in :class:`counterpoise.RobustLinearRegression`.
    floor : float, optional
        Probabilities below it count as this much in the log loss: none is known to be lower from so many rows. By
        default half of one over the number of rows judged.
    """
    if loss is None:
        check_consistent_length(X, y)
        own = _own_losses(learner, X, y)
        if own is not None:
            return _finite_losses(own)
        loss = default_loss(learner)
    target = np.asarray(unwrapped(y))
    check_consistent_length(X, target)
    if callable(loss):
        rows = np.asarray(loss(target, learner.predict(X)), dtype=np.float64)
        if rows.shape != (len(target),):
            raise InvalidInputError(
                f"loss returned shape {rows.shape} for {len(target)} rows. Return one number per row, not their mean."
            )
    elif loss == "log_loss":
        if not hasattr(learner, "predict_proba"):
            raise InvalidInputError(
                f"loss is 'log_loss', but {type(innermost(learner)).__name__} gives no probabilities. Use 'zero_one'."
            )
        rows = _log_losses(learner.classes_, learner.predict_proba(X), target, floor)
    elif isinstance(loss, str) and loss in _OF_PREDICTIONS:
        with np.errstate(over="ignore", invalid="ignore"):
            rows = _OF_PREDICTIONS[loss](target, _predictions(learner, X, target)).astype(np.float64)
    else:
        raise InvalidInputError(
            f"loss is {loss!r}; choose 'log_loss', 'zero_one', 'half_squared_error', 'squared_error' or "
            "'absolute_error', or pass a function of targets and predictions."
        )
    return _finite_losses(rows)


def _finite_losses(rows: Array) -> Array:
    """Return losses, or name the first that is too large to be added up."""
    if not (np.abs(rows) < LARGEST_LOSS).all():
        row = int(np.flatnonzero(~(np.abs(rows) < LARGEST_LOSS))[0])
        raise InvalidInputError(f"the loss of row {row} is {rows[row]}. Check the learner's predictions there.")
    return rows


def _predictions(learner: Any, X: Any, target: NDArray[Any]) -> NDArray[Any]:
    """Return one prediction per row; some learners give a column of them."""
    found = np.asarray(learner.predict(X))
    found = found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found
    if found.shape != (len(target),):
        raise InvalidInputError(
            f"{type(innermost(learner)).__name__}.predict returned shape {found.shape} for {len(target)} rows."
        )
    return found


def default_loss(learner: Any) -> LossName:
    """Return the loss by which a learner is judged unless one is chosen."""
    if not is_classifier(learner):
        return "half_squared_error"
    return "log_loss" if hasattr(learner, "predict_proba") else "zero_one"


def innermost(learner: Any) -> Any:
    """Return the estimator that decides inside pipelines and searches."""
    while True:
        if isinstance(learner, Pipeline):
            learner = learner.steps[-1][1]
        elif hasattr(learner, "best_estimator_"):
            learner = learner.best_estimator_
        else:
            return learner


def _own_losses(learner: Any, X: Any, y: Any) -> Array | None:
    """Return the losses of a learner that knows its own, seen through pipelines and searches."""
    if hasattr(learner, "row_losses"):
        return np.asarray(learner.row_losses(X, y))
    if not hasattr(innermost(learner), "row_losses"):
        return None
    if isinstance(learner, Pipeline):
        return _own_losses(learner.steps[-1][1], learner[:-1].transform(X) if len(learner.steps) > 1 else X, y)
    return _own_losses(learner.best_estimator_, X, y)


def _log_losses(classes: Any, probabilities: Any, target: NDArray[Any], floor: float | None) -> Array:
    p = np.asarray(probabilities, dtype=np.float64)
    lowest = least_probability(len(target)) if floor is None else floor
    # A class the learner never saw has no probability.
    codes = places_among(np.asarray(classes), target)
    mine = np.where(codes >= 0, p[np.arange(len(p)), codes], 0.0)
    return -np.log(np.clip(mine, lowest, 1.0))


def fold_of_rows(
    learner: Any,
    X: Any,
    y: NDArray[Any],
    codes: Indices,
    weight: Array,
    cv: Any,
    groups: Indices | None = None,
) -> Indices:
    """Return the fold in which each row that has weight is held out.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,)
        The context of each row.
    cv : int or splitter
        A number deals the rows of every context to that many folds, along the targets.
    groups : ndarray of shape (n_samples,), optional
        Rows that are kept in one fold.
    """
    folds = np.full(len(y), -1, dtype=np.intp)
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        # A row without weight counts as dropped, so it must not change where others are dealt to.
        kept = np.flatnonzero(weight > 0)
        if cv < 2:
            raise InvalidInputError(f"cv = {cv}; rows are held out by two folds or more.")
        if len(kept) < 2:
            raise InvalidInputError(f"there is {len(kept)} sample; holding rows out takes at least 2.")
        # The first row of a group stands for it.
        first, group = (np.arange(len(kept)),) * 2 if groups is None else np.unique(groups[kept], True, True)[1:]
        if len(first) < 2:
            raise InvalidInputError("all rows are one group; holding rows out takes at least 2.")
        rank = np.unique(y[kept][first], return_inverse=True)[1]
        folds[kept] = folds_within(codes[kept][first], rank, min(int(cv), len(first)))[group]
        return folds
    for k, (_, held) in enumerate(check_cv(cv, y, classifier=is_classifier(learner)).split(X, y, groups)):
        folds[held] = k
    missed = np.flatnonzero((folds < 0) & (weight > 0))
    if missed.size:
        raise InvalidInputError(
            f"cv leaves row {missed[0]} in no test fold. Use a splitter that holds out every row once, such as KFold."
        )
    return folds


def splits_of_rows(
    learner: Any, X: Any, y: NDArray[Any], codes: Indices, weight: Array, cv: Any, groups: Indices | None = None
) -> list[Split]:
    """Return the rows that models are fitted to, and those they are judged on; a splitter need not test every row.

    Parameters
    ----------
    codes, weight, cv, groups
        As in :func:`fold_of_rows`.
    """
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        return splits_by(fold_of_rows(learner, X, y, codes, weight, cv, groups))
    heavy = weight > 0
    found = check_cv(cv, y, classifier=is_classifier(learner)).split(X, y, groups)
    splits = [
        (seen[heavy[seen]], held[heavy[held]]) for seen, held in ((np.asarray(a), np.asarray(b)) for a, b in found)
    ]
    splits = [(seen, held) for seen, held in splits if len(held)]
    if not splits or not all(len(seen) for seen, _ in splits):
        raise InvalidInputError(f"cv = {cv!r:.80} leaves no rows to fit or to judge. Use a splitter that does both.")
    shared = next((np.intersect1d(*split) for split in splits if np.intersect1d(*split).size), np.empty(0))
    if shared.size:
        raise InvalidInputError(f"cv judges row {shared[0]} by a model that was fitted to it. Keep the two apart.")
    return splits


def splits_by(folds: Indices) -> list[Split]:
    """Return the splits in which each fold is held out in turn; rows of fold -1 are in none."""
    there = folds >= 0
    return [(np.flatnonzero(there & (folds != k)), np.flatnonzero(folds == k)) for k in np.unique(folds[there])]


def out_of_fold_losses(learner: Any, X: Any, y: Any, weight: Array, tilt: Array, folds: Indices, **judge: Any) -> Array:
    """Return the loss of each row under the learner that was not shown its fold.

    Parameters
    ----------
    judge : dict
        ``loss`` and ``floor`` of :func:`row_losses`, and ``n_jobs``.
    """

    def fit(rows: Indices) -> Any:
        return fit_weighted(learner, rows_of(X, rows), rows_of(y, rows), weight[rows], tilt[rows])

    splits = ((np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in np.unique(folds))
    return _losses_of_splits(fit, X, y, splits, **judge)


def specialist_losses(
    learner: Any,
    X: Any,
    y: Any,
    weight: Array,
    codes: Indices,
    splits: Sequence[Split] | None,
    **judge: Any,
) -> Array:
    """Return the loss of each row under a learner trained on its context alone.

    Infinite where there is none: too few rows, one class only, or a learner that refuses what is left.

    Parameters
    ----------
    splits : sequence of pairs of index arrays, or None
        With splits the rows judged are held out; without, the learner has seen them.
    judge : dict
        As in :func:`out_of_fold_losses`.
    """

    def fit(rows: Indices) -> Any:
        return specialist(learner, X, y, weight, rows)

    return _losses_of_splits(fit, X, y, within_contexts(codes, splits), **judge)


def specialist(learner: Any, X: Any, y: Any, weight: Array, rows: Indices) -> Any:
    """Return a learner fitted to a context's rows alone; None where these are too few, or of one class."""
    target = np.asarray(unwrapped(y))[rows]
    if len(rows) == 0 or (is_classifier(learner) and len(np.unique(target)) < 2):
        return None
    try:
        return fit_weighted(learner, rows_of(X, rows), target, weight[rows])
    except ValueError:
        # The learner is fitted to all rows elsewhere, where a refusal is an error; here the context is too small.
        return None


def within_contexts(codes: Indices, splits: Sequence[Split] | None) -> Iterator[Split]:
    """Yield every split within every context; without splits, rows are judged by a model that has seen them."""
    n_contexts = int(codes.max()) + 1
    if splits is None:
        yield from ((own, own) for own in by_context(codes, n_contexts))
        return
    parts = [[[rows[at] for at in by_context(codes[rows], n_contexts)] for rows in split] for split in splits]
    for c in range(n_contexts):
        yield from ((seen[c], held[c]) for seen, held in parts)


def by_context(codes: Indices, n_contexts: int) -> list[Indices]:
    """Return the rows of each context."""
    return np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes, minlength=n_contexts))[:-1])


def _losses_of_splits(
    fit: Callable[[Indices], Any],
    X: Any,
    y: Any,
    splits: Iterable[tuple[Indices, Indices]],
    *,
    loss: RowLoss | None,
    floor: float | None = None,
    n_jobs: int | None = None,
) -> Array:
    """Return the loss of each row under the model of its split; infinite where that has none.

    Parameters
    ----------
    fit : callable
        Maps the indices of rows to a model fitted to them, or to None.
    splits : iterable of pairs of index arrays
        The rows a model is fitted to, and the rows it is judged on.
    """

    def one(seen: Indices, judged: Indices) -> tuple[Indices, Any]:
        fitted = fit(seen) if len(judged) else None
        if fitted is None:
            return judged, np.inf
        return judged, row_losses(fitted, rows_of(X, judged), rows_of(y, judged), loss, floor)

    losses = np.full(len(y), np.nan)
    for judged, found in Parallel(n_jobs=n_jobs)(delayed(one)(*split) for split in splits):
        losses[judged] = found
    return losses


def rows_of(X: Any, rows: Indices) -> Any:
    """Return some rows of anything that scikit-learn can index; its checks take longer than rows of an array do."""
    return X[rows] if type(X) is np.ndarray else _safe_indexing(X, rows)


def weighted_rows(X: Any, contexts: Contexts, weight: Array, *columns: NDArray[Any]) -> tuple[Any, ...]:
    """Return the rows that have weight, with every other per-row array."""
    if (weight > 0).all():
        return X, contexts, weight, *columns
    contexts, kept = contexts.of_rows(weight > 0), np.flatnonzero(weight > 0)
    return rows_of(X, kept), contexts, weight[kept], *(column[kept] for column in columns)


def least_probability(n_rows: int) -> float:
    """Return the probability below which none is known from this many rows, for learners that say zero."""
    return 0.5 / n_rows


def mean_by_context(rows: Array, weight: Array, codes: Indices, n_contexts: int) -> Array:
    """Return the weighted mean of each context's rows; NaN where it has none."""
    # Weights count relative to each other, and as they stand their products may overflow.
    weight = weight / weight.max(initial=0.0)
    with np.errstate(invalid="ignore"):
        return np.bincount(codes, weight * rows, n_contexts) / np.bincount(codes, weight, n_contexts)
