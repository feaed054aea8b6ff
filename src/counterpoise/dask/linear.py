"""Linear models of dask collections: the same problem and certificate, the rows on the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.dask.gathering import all_classes, gather, summarise
from counterpoise.dask.partitions import take_apart, taken
from counterpoise.exceptions import InvalidInputError
from counterpoise.oracle import LinearOracle
from counterpoise.problem import LinearProblem, check_alpha
from counterpoise.rows import BlockRows, MemoryRows

Array = NDArray[np.float64]

_DECIDED_HERE = frozenset(
    (
        "alpha",
        "confidence",
        "radius",
        "draws",
        "criterion",
        "reference",
        "adjust",
        "tol",
        "max_iter",
        "verbose",
        "device",
    )
)
"""Parameters of estimators that what rows answer does not depend on."""

_MOST_PARAMETERS = 2500
"""Parameters up to which a square matrix per context is worth sending."""


@dataclass(frozen=True, eq=False)
class ModelReader:
    """Partitions as an estimator reads them."""

    estimator: Any
    classifies: bool
    names: tuple[Any, ...]

    @property
    def meaning(self) -> str:
        """Return the model, with the parameters that change what rows answer."""
        parameters = self.estimator.get_params(deep=False)
        kept = {name: value for name, value in sorted(parameters.items()) if name not in _DECIDED_HERE}
        return f"{type(self.estimator).__name__} {kept!r}"

    def rows(self, columns: dict[str, Any]) -> tuple[Any, NDArray[Any]]:
        """Return features and targets, checked."""
        found = tuple(getattr(columns["X"], "columns", self.names))
        if found != self.names:
            strange = [name for name in found if name not in self.names]
            missing = [name for name in self.names if name not in found]
            said = "; ".join(
                f"{word} {', '.join(map(str, names[:5]))}"
                for word, names in (("not expected:", strange), ("missing:", missing))
                if names
            )
            raise InvalidInputError(f"its columns are not those of X ({said or 'they are in another order'}).")
        return self.estimator._validated(**columns)

    def target(self, y: NDArray[Any], classes: NDArray[Any] | None) -> Array:
        """Return targets in the domain of the loss."""
        if classes is None:
            return self.estimator._loss().checked_target(y)
        return np.searchsorted(classes, y).astype(np.float64)

    def posed(self, rows: MemoryRows) -> MemoryRows:
        """Return rows in the form that is solved."""
        return self.estimator._posed(rows)


def pose(estimator: Any, columns: dict[str, Any]) -> tuple[LinearProblem, NDArray[Any] | None, Any]:
    """Return the problem that dask collections pose, the classes of a classifier, and a row of zeros like X.

    Parameters
    ----------
    estimator : RobustLinearModel
        Not fitted; it says how rows are checked.
    columns : dict
        X, y, contexts, sample_weight and what else the estimator's fit takes.
    """
    check_alpha(estimator.alpha)
    classifies = hasattr(estimator, "decision_function")
    parts = take_apart("X", columns)
    like = _like(columns["X"], taken(columns, columns["X"]))
    reader = ModelReader(estimator, classifies, tuple(getattr(like, "columns", ())))
    summaries, client = summarise(parts, reader)
    if all(summary is None for summary in summaries):
        raise InvalidInputError("there are no rows: every partition is empty.")
    classes = all_classes(summaries) if classifies else None
    if classes is not None:
        estimator.classes_ = classes
        if len(classes) < 2:
            raise InvalidInputError(f"y holds one class, {classes.tolist()[0]!r}; a classifier needs two or more.")
    loss = estimator._loss()
    found = gather(parts, reader, summaries, client, classes, loss, estimator.fit_intercept)
    solved = _solved_loss(estimator, loss)
    rows = BlockRows(found.blocks, solved, len(found.contexts.labels), found.n_features, estimator.fit_intercept)
    oracle = LinearOracle(rows, estimator.alpha)
    if oracle.n_parameters == 0:
        raise InvalidInputError("there is nothing to fit: X has no columns and fit_intercept is False.")
    if oracle.n_parameters > _MOST_PARAMETERS:
        raise InvalidInputError(
            f"the model has {oracle.n_parameters:,} parameters; on dask collections {_MOST_PARAMETERS:,} are the most. "
            "Choose fewer features, or fit in memory."
        )
    return LinearProblem(oracle, found.contexts, found.counts), classes, like


def _solved_loss(estimator: Any, loss: Any) -> Any:
    """Return the loss of rows in the form that is solved."""
    none = np.zeros((0, loss.target_columns)) if loss.target_columns > 1 else np.zeros(0)
    empty = MemoryRows(np.zeros((0, 1)), none, np.zeros(0), np.zeros(1, dtype=np.intp), loss)
    return estimator._posed(empty).loss


def _like(X: Any, without: list[str]) -> Any:
    """Return a row of zeros with the width and the names of X."""
    names = [name for name in getattr(X, "columns", []) if name not in without]
    if not names:
        return np.zeros((1, int(X.shape[1]) if getattr(X, "ndim", 2) == 2 else 0))
    import pandas as pd

    return pd.DataFrame(np.zeros((1, len(names))), columns=names)
