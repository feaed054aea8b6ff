"""A fitted model on later rows: how well it predicts in each context, and what has changed since the fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from counterpoise.contexts import Contexts, encode
from counterpoise.estimators.learners import innermost, row_losses
from counterpoise.exceptions import InvalidInputError
from counterpoise.judging.at_fit import AtFit, fit_losses
from counterpoise.judging.evaluated import Evaluation
from counterpoise.judging.evaluated_rows import Rows, evaluation_of
from counterpoise.judging.measures import Judged, Predicted, task_of
from counterpoise.validation import checked_row_weights, unwrapped

Array = NDArray[np.float64]

_LARGEST = 1e50
"""Of targets and predictions: squares and sums of larger ones might not be floats."""


def evaluate(
    model: Any,
    X: Any,
    y: Any,
    contexts: Any = None,
    *,
    groups: Any = None,
    sample_weight: Any = None,
    baselines: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
) -> Evaluation:
    """Judge a fitted model on rows that it was not fitted to, context by context.

    The model is judged as it is, and never fitted again. What a robust model knows of its fit (contexts, mix, risks) is
    compared with these rows; of other models the predictions alone are judged.

    Parameters
    ----------
    model : fitted estimator
        A robust one, a pipeline that ends in one, what :func:`counterpoise.load` returns, or any classifier or
        regressor.
    X : the rows, as the model takes them
    y : array of shape (n_samples,)
        What came. Rows without it (None, NaN) are left out. A class that the model does not know counts as wrong.
    contexts : labels of shape (n_samples,), or a table of several columns, which are crossed; optional
        As in the fit. Without them all rows are judged together. Those of a loaded model are named as its file named
        them, and pooled as it pooled them.
    groups : labels of shape (n_samples,), optional
        Rows that belong together (one patient, one day) count as one in every interval.
    sample_weight : array of shape (n_samples,), optional
    baselines : mapping from name to fitted estimator, optional
        Judged beside the model. The plain one should be called ``"erm"``, for changes are against that. A loaded model
        brings its own.
    confidence : float
        Of intervals.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> import numpy as np
    >>> import counterpoise as cpo
    >>> rng = np.random.default_rng(0)
    >>> X, ward = rng.standard_normal((400, 2)), rng.choice(["a", "b"], 400)
    >>> y = X[:, 0] + (ward == "b") * X[:, 1] + rng.standard_normal(400)
    >>> model = cpo.RobustLinearRegression().fit(X[:200], y[:200], contexts=ward[:200])
    >>> later = cpo.evaluate(model, X[200:], y[200:], ward[200:])
    >>> later.measures["context"].tolist(), later.mix.inside
    (['all', 'a', 'b'], True)
    """
    name = _name(model)
    models = _models(name, model, baselines)
    predicted = {one: _predicted(own, X) for one, own in models.items()}
    n_rows = len(predicted[name].values)
    short = next((one for one, own in predicted.items() if len(own.values) != n_rows), None)
    if short is not None:
        raise InvalidInputError(
            f"{short} predicts {len(predicted[short].values)} rows where {name} predicts {n_rows}. Pass models of the "
            "same rows."
        )
    strange = next((one for one, own in predicted.items() if not _same_classes(own, predicted[name])), None)
    if strange is not None:
        raise InvalidInputError(f"{strange} predicts other classes than {name}. Pass models of the same classes.")
    target, missing = _target(model, predicted[name], y, n_rows)
    named = _as_fitted(model, contexts, n_rows)
    weight = checked_row_weights(sample_weight, Contexts(np.zeros(1), np.zeros(n_rows, dtype=np.intp)))
    # They count relative to each other, and as they stand their sums may overflow.
    weight = weight / weight.max()
    grouped = None if groups is None else encode(groups, n_rows, role="group").codes
    kept = ~missing & (weight > 0.0)
    if not kept.any():
        raise InvalidInputError(f"none of the {n_rows} rows has a target and a weight. Pass what came as y.")
    every = bool(kept.all())
    rows = Rows(
        {one: own if every else own.rows(kept) for one, own in predicted.items()},
        target if every else target[kept],
        named if named is None or every else named.where(kept),
        grouped if grouped is None or every else grouped[kept],
        weight if every else weight[kept],
        n_without_target=int(np.count_nonzero(missing)),
    )
    losses = {
        one: _row_losses(own, X, y, kept, rows.judged(one))
        for one, own in models.items()
        if hasattr(innermost(own), "context_risks_")
    }
    return evaluation_of(rows, name, task_of(model), AtFit.of(models, name), losses, confidence)


def _name(model: Any) -> str:
    """Return what a model is called: the method whose model it is, where it tells."""
    method = getattr(model, "method", None)
    return method if isinstance(method, str) and hasattr(model, "baselines") else "model"


def _models(name: str, model: Any, baselines: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the models that are judged, the one that is asked about first."""
    if baselines is not None and not isinstance(baselines, Mapping):
        raise InvalidInputError(f"baselines is {baselines!r:.60}; pass a mapping such as {{'erm': model}}.")
    own = getattr(model, "baselines", None)
    given = {**(own if isinstance(own, Mapping) else {}), **(baselines or {})}
    models = {name: model, **{str(one): other for one, other in given.items() if other is not model}}
    for one, other in models.items():
        if type(innermost(other)).__name__ in ("RobustNewsvendor", "RobustNewsvendorRegressor"):
            raise InvalidInputError(
                "a stock level is judged by its profit, not by its error. Use counterpoise.plan_stock, or the command "
                "counterpoise stock."
            )
        if isinstance(other, type) or not hasattr(other, "predict"):
            raise InvalidInputError(f"{one} is {other!r:.60}; pass a fitted classifier or regressor.")
        if hasattr(other, "get_params"):
            check_is_fitted(other)
    return models


def _predicted(model: Any, X: Any) -> Predicted:
    found = Predicted.of(model, X)
    sane = np.abs(found.values) <= _LARGEST
    if not sane.all():
        row = int(np.argwhere(~sane)[0][0])
        value = found.values[row] if found.classes is None else found.values[row].tolist()
        raise InvalidInputError(f"the prediction of row {row} is {value}; its square must be a float. Check X there.")
    return found


def _same_classes(one: Predicted, other: Predicted) -> bool:
    if one.classes is None or other.classes is None:
        return one.classes is other.classes
    return bool(one.classes.tolist() == other.classes.tolist())


def _target(model: Any, predicted: Predicted, y: Any, n_rows: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return targets, classes as codes (-1: not known to the model), and which rows have none."""
    own = getattr(model, "class_texts", None)
    values = np.asarray(unwrapped(y)) if own is None or predicted.classes is None else own(y)
    if values.shape == (n_rows, 1):
        values = values[:, 0]
    if values.shape != (n_rows,):
        raise InvalidInputError(f"y has shape {values.shape} for {n_rows} rows. Pass one target per row.")
    if predicted.classes is not None:
        missing = np.array([_is_missing(one) for one in values.tolist()], dtype=bool)
        return predicted.codes(values), missing
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"y must be numbers, got {values[:3].tolist()!r:.60}.") from error
    missing = np.isnan(numbers)
    bad = np.flatnonzero((np.abs(numbers) > _LARGEST) | ((numbers < 0.0) & (task_of(model) == "count")))
    if bad.size:
        wanted = f"numbers up to {_LARGEST:g}{' and not negative' if task_of(model) == 'count' else ''}"
        raise InvalidInputError(f"y in row {bad[0]} is {numbers[bad[0]]}; targets are {wanted}.")
    return numbers, missing


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return True


def _as_fitted(model: Any, contexts: Any, n_rows: int) -> Contexts | None:
    """Return the contexts of rows, labelled as the fit labelled them where the model can tell."""
    if contexts is None:
        return None
    found = encode(contexts, n_rows)
    rename = getattr(model, "as_fitted", None)
    if rename is None:
        return found
    again = encode(rename(found.labels))
    return Contexts(again.labels, again.codes[found.codes])


def _row_losses(model: Any, X: Any, y: Any, kept: NDArray[np.bool_], judged: Judged) -> Array:
    """Return the losses that a model was fitted by."""
    own = innermost(model)
    if hasattr(own, "as_fitted"):
        return fit_losses(task_of(model), judged, float(own.parameters.get("delta") or 1.35))
    if kept.all():
        return row_losses(model, X, y)
    rows = np.flatnonzero(kept)
    return row_losses(model, _safe_indexing(X, rows), np.asarray(unwrapped(y))[rows])
