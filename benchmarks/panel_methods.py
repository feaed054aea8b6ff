"""The methods of the panel: each learns from the past of a table and predicts its later rows.

A method is a function of a :class:`Cut` that returns a prediction per later row: a mean, or for classification a
probability per class. Those in ``UNKNOWN`` do not look at the contexts of later rows, those in ``KNOWN`` do. To add
one, write such a function and enter it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from panel_tables import PanelTable
from real_tables import prepared

import counterpoise as cpo

Array = NDArray[np.float64]

ESTIMATORS = {
    "regression": cpo.RobustLinearRegression,
    "classification": cpo.RobustLogisticRegression,
    "count": cpo.RobustPoissonRegressor,
}


@dataclass(frozen=True)
class Cut:
    """A table before and after a time; what is learnt, preprocessing included, is learnt from the past.

    Attributes
    ----------
    table : PanelTable
    past, later : DataFrame
        Rows, in the order of time.
    """

    table: PanelTable
    past: pd.DataFrame
    later: pd.DataFrame

    @classmethod
    def at(cls, table: PanelTable, rows: pd.DataFrame, time: Any) -> Cut:
        """Cut a table at a time."""
        before = rows[table.time] < time
        return cls(table, rows[before], rows[~before])

    @cached_property
    def features(self) -> tuple[Array, Array]:
        """Features of the past and of later rows: medians for missing numbers, unit scale, a column per level."""
        prepare = self.pipeline(None)[:-1].fit(self.past)
        return prepare.transform(self.past), prepare.transform(self.later)

    def pipeline(self, model: Any) -> Any:
        """Return the preprocessing with a model after it."""
        return prepared(self.table.numbers.split(), self.table.categories.split(), model)

    @cached_property
    def y(self) -> NDArray[Any]:
        """Targets of the past."""
        return self._column(self.past, self.table.target)

    @cached_property
    def y_later(self) -> NDArray[Any]:
        """Targets of later rows."""
        return self._column(self.later, self.table.target)

    @cached_property
    def classes(self) -> NDArray[Any]:
        """Classes of past and later rows, in order."""
        return np.unique(np.concatenate([self.y, self.y_later]))

    @cached_property
    def contexts(self) -> NDArray[Any]:
        """Contexts of the past."""
        return self.past[self.table.context].to_numpy(object)

    @cached_property
    def contexts_later(self) -> NDArray[Any]:
        """Contexts of later rows."""
        return self.later[self.table.context].to_numpy(object)

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """Which later rows have a context that the past has."""
        return np.isin(self.contexts_later, np.unique(self.contexts))

    @cached_property
    def kept(self) -> str:
        """The method that ``compare`` keeps on the past, by the names of this module.

        It is asked for its default of four cuts, or for as many as the times of the past allow.
        """
        times = self.past[self.table.time].to_numpy()
        comparison = cpo.compare(
            self.past[self.table.features],
            self.y,
            self.contexts,
            estimator=self.pipeline(self.estimator()),
            time=times,
            cuts=min(4, len(np.unique(times)) - 1),
        )
        return {"erm": "plain", "inverse-frequency": "inverse frequency"}.get(comparison.chosen, comparison.chosen)

    def estimator(self, **params: Any) -> Any:
        """Return the library's estimator for the task, at its defaults but for the parameters given."""
        return ESTIMATORS[self.table.task](**params)

    def prediction(self, model: Any, X: Array) -> Array:
        """Return means, or probabilities of all classes, of which a model may know some only."""
        if self.table.task != "classification":
            return model.predict(X)
        probabilities = np.zeros((len(X), len(self.classes)))
        probabilities[:, np.searchsorted(self.classes, model.classes_)] = model.predict_proba(X)
        return probabilities

    def _column(self, rows: pd.DataFrame, name: str) -> NDArray[Any]:
        return rows[name].to_numpy(object if self.table.task == "classification" else float)


Method = Callable[[Cut], Array]


def _with_contexts(cut: Cut, weight: Array | None = None, **params: Any) -> Array:
    """Fit the estimator of the task to the past with its contexts, and predict later rows without them."""
    X, X_later = cut.features
    model = cut.estimator(**params).fit(X, cut.y, contexts=cut.contexts, sample_weight=weight)
    return cut.prediction(model, X_later)


def constant(cut: Cut) -> Array:
    """Predict the mean of the past, or the shares of its classes."""
    if cut.table.task == "classification":
        shares = (cut.y[:, None] == cut.classes).mean(axis=0)
        return np.tile(shares, (len(cut.later), 1))
    return np.full(len(cut.later), cut.y.mean())


def plain(cut: Cut) -> Array:
    """Minimise the mean loss of the past."""
    return _with_contexts(cut, radius=0.0)


def inverse_frequency(cut: Cut) -> Array:
    """Minimise the mean loss with equal weights of contexts."""
    _, place, counts = np.unique(cut.contexts, return_inverse=True, return_counts=True)
    return _with_contexts(cut, len(place) / (len(counts) * counts[place]), radius=0.0)


def robust(cut: Cut) -> Array:
    """Fit the estimator at its defaults."""
    return _with_contexts(cut)


def minimax_regret(cut: Cut) -> Array:
    """Minimise the largest excess risk of any context."""
    return _with_contexts(cut, radius=math.inf)


def kept(cut: Cut) -> Array:
    """Fit the method that ``compare`` keeps on the past."""
    return UNKNOWN[cut.kept](cut)


def context_as_feature(cut: Cut) -> Array:
    """Give each context of the past an intercept of its own; rows of other contexts get the plain prediction."""
    X, X_later = cut.features
    labels = np.unique(cut.contexts)
    wider, wider_later = (
        np.column_stack([features, contexts[:, None] == labels])
        for features, contexts in ((X, cut.contexts), (X_later, cut.contexts_later))
    )
    model = cut.estimator(radius=0.0).fit(wider, cut.y, contexts=cut.contexts)
    found = plain(cut)
    found[cut.seen] = cut.prediction(model, wider_later[cut.seen])
    return found


def own_models(cut: Cut) -> Array:
    """Fit a model to each context alone.

    Contexts with fewer than two rows per coefficient, with a single class, or not in the past get the plain one.
    """
    X, X_later = cut.features
    found = plain(cut)
    for label in np.unique(cut.contexts_later[cut.seen]):
        own, there = cut.contexts == label, cut.contexts_later == label
        if own.sum() < 2 * (X.shape[1] + 1) or (cut.table.task == "classification" and len(np.unique(cut.y[own])) < 2):
            continue
        model = cut.estimator(radius=0.0).fit(X[own], cut.y[own], contexts=cut.contexts[own])
        found[there] = cut.prediction(model, X_later[there])
    return found


UNKNOWN: dict[str, Method] = {
    "constant": constant,
    "plain": plain,
    "inverse frequency": inverse_frequency,
    "robust": robust,
    "minimax regret": minimax_regret,
    "kept": kept,
}
"""Methods for contexts that are unknown when predicting."""

KNOWN: dict[str, Method] = {"context as a feature": context_as_feature, "own models": own_models}
"""Methods for contexts that are known when predicting."""
