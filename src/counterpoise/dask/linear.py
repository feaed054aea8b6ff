"""Linear models of dask collections: the same problem and certificate, the rows on the workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.core.oracle import LinearOracle
from counterpoise.core.problem import LinearProblem, check_alpha
from counterpoise.dask.gathering import all_classes, gather, summarise
from counterpoise.dask.partitions import take_apart, taken
from counterpoise.estimators.homes import one_class
from counterpoise.exceptions import InvalidInputError
from counterpoise.rows import BlockRows, MemoryRows

Array = NDArray[np.float64]

_MOST_PARAMETERS = 2500
"""Parameters up to which a square matrix per context is worth sending."""


def pose(reader: Any, columns: Mapping[str, Any]) -> LinearProblem:
    """Return the problem that dask collections pose.

    Parameters
    ----------
    reader : counterpoise.estimators.homes.Reader
        How rows are checked.
    columns : mapping
        X, y, contexts, sample_weight and what else the estimator's fit takes.
    """
    check_alpha(reader.alpha)
    parts = take_apart("X", columns)
    like = _like(columns["X"], taken(columns, columns["X"]))
    there = reader.travelling(tuple(getattr(like, "columns", ())))
    summaries, client = summarise(parts, there)
    if all(summary is None for summary in summaries):
        raise InvalidInputError("there are no rows: every partition is empty.")
    classes = all_classes(summaries) if reader.classifies else None
    if classes is not None and len(classes) < 2:
        raise InvalidInputError(one_class(classes.tolist()[0]))
    reader.learn(like, classes)
    loss = reader.loss()
    found = gather(parts, there, summaries, client, classes, loss, reader.fit_intercept)
    solved = _solved_loss(reader, loss)
    rows = BlockRows(found.blocks, solved, len(found.contexts.labels), found.n_features, reader.fit_intercept)
    problem = LinearProblem.checked(LinearOracle(rows, reader.alpha), found.contexts, found.counts)
    n_parameters = problem.oracle.n_parameters
    if n_parameters > _MOST_PARAMETERS:
        raise InvalidInputError(
            f"the model has {n_parameters:,} parameters; on dask collections {_MOST_PARAMETERS:,} are the most. "
            "Choose fewer features, or fit in memory."
        )
    return problem


def _solved_loss(reader: Any, loss: Any) -> Any:
    """Return the loss of rows in the form that is solved."""
    none = np.zeros((0, loss.target_columns)) if loss.target_columns > 1 else np.zeros(0)
    return reader.placed(MemoryRows(np.zeros((0, 1)), none, np.zeros(0), np.zeros(1, dtype=np.intp), loss)).loss


def _like(X: Any, without: list[str]) -> Any:
    """Return a row of zeros with the width and the names of X."""
    names = [name for name in getattr(X, "columns", []) if name not in without]
    if not names:
        return np.zeros((1, int(X.shape[1]) if getattr(X, "ndim", 2) == 2 else 0))
    import pandas as pd

    return pd.DataFrame(np.zeros((1, len(names))), columns=names)
