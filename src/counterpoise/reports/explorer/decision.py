"""The decision itself, where it can be drawn: a boundary, a line, a curve, an order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from counterpoise.contexts import Contexts
from counterpoise.core.robustness import Criterion
from counterpoise.estimators.learners import innermost
from counterpoise.estimators.linear import RobustPoissonRegressor
from counterpoise.stock.plans import ProductPlan
from counterpoise.validation import unwrapped

Array = NDArray[np.float64]
Link = Literal["identity", "log", "logit"]

MOST_ROWS = 400
"""Rows that are drawn."""

_CHECKED = 8
_POINTS = 121


@dataclass(frozen=True, eq=False)
class AffineDecision:
    """A decision that is affine in one or two features, in their own units, over some rows of the data.

    Attributes
    ----------
    features : tuple of str
    target : str
    classes : tuple
        Two labels, or none where the target is a number.
    link : {"identity", "log", "logit"}
        What of the prediction is affine.
    slopes : mapping from criterion to ndarray of shape (n_levels, n_features)
    intercepts : mapping from criterion to ndarray of shape (n_levels,)
    points : ndarray of shape (n_shown, n_features)
    values : ndarray of shape (n_shown,)
        The target, or the index of its class.
    codes : ndarray of shape (n_shown,)
        The index of each row's context.
    n_rows : int
        Of the data.
    """

    features: tuple[str, ...]
    target: str
    classes: tuple[Any, ...]
    link: Link
    slopes: Mapping[Criterion, Array]
    intercepts: Mapping[Criterion, Array]
    points: Array
    values: Array
    codes: NDArray[np.intp]
    n_rows: int

    @classmethod
    def of(cls, models: Mapping[Criterion, Sequence[Any]], X: Any, y: Any, contexts: Contexts) -> AffineDecision | None:
        """Read the decision off fitted models; None where it cannot be drawn."""
        features, rows = _features(X)
        if rows is None or not 1 <= len(features) <= 2:
            return None
        final = innermost(next(iter(models.values()))[0])
        classes = tuple(final.classes_.tolist()) if is_classifier(final) else ()
        target = _target(y, classes)
        if target is None or (len(classes) != 2 if classes else len(features) > 1):
            return None
        link: Link = "logit" if classes else "log" if isinstance(final, RobustPoissonRegressor) else "identity"
        finite = np.flatnonzero(np.isfinite(rows).all(axis=1))
        found = {criterion: _recovered(X, rows[finite], fitted, link) for criterion, fitted in models.items()}
        if not all(found.values()):
            return None
        kept = finite[_every(contexts.codes[finite])]
        return cls(
            features=features,
            target=str(getattr(y, "name", None) or "y"),
            classes=classes,
            link=link,
            slopes={criterion: one[0] for criterion, one in found.items() if one},
            intercepts={criterion: one[1] for criterion, one in found.items() if one},
            points=rows[kept],
            values=target[kept],
            codes=contexts.codes[kept],
            n_rows=len(rows),
        )


def _features(X: Any) -> tuple[tuple[str, ...], Array | None]:
    """Return the names of features, and X as numbers; None where it holds something else."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        columns = [frame[name] for name in frame.columns]
        if not columns or not all(one.dtype.is_numeric() or one.dtype == nw.Boolean for one in columns):
            return (), None
        rows = np.column_stack([np.asarray(one.to_numpy(), dtype=np.float64) for one in columns])
        return tuple(map(str, frame.columns)), rows
    raw = np.asarray(X)
    if raw.ndim != 2 or raw.dtype.kind not in "biuf":
        return (), None
    return tuple(f"x{k + 1}" for k in range(raw.shape[1])), raw.astype(np.float64)


def _target(y: Any, classes: tuple[Any, ...]) -> Array | None:
    """Return the target as numbers: of a class, its index."""
    values = np.asarray(unwrapped(y))
    if values.ndim != 1:
        return None
    if not classes:
        return values.astype(np.float64)
    position = {label: float(k) for k, label in enumerate(classes)}
    return np.array([position[label] for label in values.tolist()])


def _every(codes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return rows at even steps once they are grouped by context, so that each has its share of them."""
    order = np.argsort(codes, kind="stable")
    if len(order) <= MOST_ROWS:
        return np.sort(order)
    steps = ((np.arange(MOST_ROWS) + 0.5) * len(order) / MOST_ROWS).astype(np.intp)
    return np.sort(order[steps])


def _recovered(X: Any, rows: Array, models: Sequence[Any], link: Link) -> tuple[Array, Array] | None:
    """Return slopes and intercepts in the units of X; None where the models are not affine in it."""
    # Around the middle of the data and not around 0, from which data may be so far that differences cancel.
    middle, spread = np.median(rows, axis=0), rows.std(axis=0)
    steps = np.where(spread > 0.0, spread, 1.0)
    checked = rows[np.random.default_rng(0).choice(len(rows), min(_CHECKED, len(rows)), replace=False)]
    probes = _like(X, np.vstack([middle, middle + np.diag(steps), checked]))
    slopes, intercepts = [], []
    for model in models:
        try:
            answers = _linear(model, probes, link)
        except (ValueError, TypeError):
            # An encoder that knows only the values it saw refuses those in between.
            return None
        slope = (answers[1 : 1 + len(steps)] - answers[0]) / steps
        expected = answers[0] + (checked - middle) @ slope
        size = 1.0 + np.abs(answers).max()
        if not np.allclose(expected, answers[1 + len(steps) :], rtol=0.0, atol=1e-8 * size):
            return None
        slopes.append(slope)
        intercepts.append(answers[0] - slope @ middle)
    return np.array(slopes), np.array(intercepts)


def _like(X: Any, rows: Array) -> Any:
    """Return rows in the kind of table that X is."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return rows
    columns = {name: rows[:, k] for k, name in enumerate(frame.columns)}
    return nw.from_dict(columns, backend=frame.implementation).to_native()


def _linear(model: Any, rows: Any, link: Link) -> Array:
    """Return what of the predictions is affine in the features that reach the model."""
    if link == "logit":
        return np.asarray(model.decision_function(rows))
    predicted = np.asarray(model.predict(rows))
    with np.errstate(divide="ignore"):
        return np.log(predicted) if link == "log" else predicted


@dataclass(frozen=True, eq=False)
class StockDecision:
    """An order, and what every order costs in every context above the best one there.

    Attributes
    ----------
    orders : mapping from criterion to ndarray of shape (n_levels,)
    grid : ndarray of shape (n_points,)
    curves : ndarray of shape (n_points, n_contexts)
        Excess cost of the orders in ``grid``.
    """

    orders: Mapping[Criterion, Array]
    grid: Array
    curves: Array

    @classmethod
    def of(cls, plan: ProductPlan, orders: Mapping[Criterion, Array]) -> StockDecision:
        """Compute the curves."""
        best = plan.stock.context_levels
        grid = np.linspace(0.0, 1.12 * max(*best, *(own.max() for own in orders.values()), 1e-9), _POINTS)
        # The kinks that matter most are on the curves.
        grid = np.unique([*grid, *best]) if len(best) <= _POINTS else grid
        return cls(orders, grid, np.array([plan.excess(float(order)) for order in grid]))
