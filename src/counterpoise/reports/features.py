"""The columns that a linear model sees, in the units of the table they come from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline

from counterpoise.reports.pages.scales import number

Array = NDArray[np.float64]

_MOST_LOOKED_UP = 2000


@dataclass(frozen=True)
class Feature:
    """A column of a linear model.

    Attributes
    ----------
    name : str
        In words; a category is named after its column.
    spread : float
        Standard deviation of the column as the model sees it.
    slope : float
        By how much it grows for one unit of the table's column, or from no to yes.
    step : float
        A round number of units of the table's column, about a standard deviation; 1 for a category.
    is_number : bool
        Whether the column is a number of the table, perhaps scaled.
    """

    name: str
    spread: float
    slope: float = 1.0
    step: float = 1.0
    is_number: bool = False

    @property
    def per_step(self) -> str:
        """The step in words."""
        return f" per {number(self.step)}" if self.is_number else ""


def features_of(fitted: Any, X: Any, columns: Any) -> list[Feature] | None:
    """Return the features of a linear model; None where preprocessing does not tell its columns.

    A column counts as a number of the table where it follows from it along a straight line, whatever scaled it.

    Parameters
    ----------
    fitted : estimator
        The model, or a pipeline that ends in it.
    X : table
        What the pipeline was given.
    columns : array, sparse matrix or table
        What the model at its end sees of it.
    """
    given, names_given = _table(X)
    seen, _ = _table(columns)
    if seen is None:
        return None
    names = _names(fitted, seen.shape[1], names_given)
    places = {name: k for k, name in enumerate(names_given)}
    looked_up = given is not None and len(names) <= _MOST_LOOKED_UP
    found = []
    for j, (name, spread) in enumerate(zip(names, spread_of(columns).tolist(), strict=True)):
        # Transformers of columns put their own name before that of the column.
        source = places.get(name, places.get(name.rpartition("__")[2], -1))
        slope = _line(_column(given, source), _column(seen, j)) if looked_up and source >= 0 else None
        if slope is None:
            found.append(Feature(_worded(name, names_given), spread, _jump(_column(seen, j))))
            continue
        unit = spread / abs(slope)
        step = 10.0 ** round(math.log10(unit)) if unit > 0 and math.isfinite(unit) else 1.0
        found.append(Feature(names_given[source], spread, slope, step, is_number=True))
    return found


def _table(X: Any) -> tuple[Any, list[str]]:
    """Return a table as something with columns by number, and the names of its columns."""
    if sparse.issparse(X):
        return X.tocsc(), [f"x{k}" for k in range(X.shape[1])]
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return frame, [str(name) for name in frame.columns]
    array = np.asarray(X)
    return (array, [f"x{k}" for k in range(array.shape[1])]) if array.ndim == 2 else (None, [])


def _column(table: Any, k: int) -> Array | None:
    """Return a column as numbers; None where it holds anything else."""
    if isinstance(table, nw.DataFrame):
        values = table[:, k].to_numpy()
    elif sparse.issparse(table):
        values = table[:, [k]].toarray()[:, 0]
    else:
        values = table[:, k]
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None


def spread_of(columns: Any) -> Array:
    """Return the standard deviation of every column of an array, a sparse matrix or a table."""
    table, _ = _table(columns)
    if sparse.issparse(table):
        mean = np.asarray(table.mean(axis=0)).ravel()
        return np.sqrt(np.maximum(np.asarray(table.multiply(table).mean(axis=0)).ravel() - mean**2, 0.0))
    values = table.to_numpy() if isinstance(table, nw.DataFrame) else table
    return np.asarray(np.std(np.asarray(values, dtype=np.float64), axis=0))


def _names(fitted: Any, width: int, given: list[str]) -> list[str]:
    """Return the names of what a linear model sees, those of the table where preprocessing has none."""
    names: list[str] = given
    if isinstance(fitted, Pipeline) and len(fitted.steps) > 1:
        try:
            names = [str(one) for one in fitted[:-1].get_feature_names_out()]
        except (AttributeError, ValueError, NotImplementedError):
            names = given
    return names if len(names) == width else [f"x{k}" for k in range(width)]


def _line(x: Array | None, z: Array | None) -> float | None:
    """Return the slope by which one column follows from another; None where it does not."""
    if x is None or z is None:
        return None
    both = np.isfinite(x) & np.isfinite(z)
    if both.sum() < 3:
        return None
    x, z = x[both] - x[both].mean(), z[both] - z[both].mean()
    square = float(x @ x)
    if not square > 0:
        return None
    slope = float(x @ z) / square
    # Missing numbers that were filled in are no part of it; rounding is.
    return slope if slope != 0 and np.abs(z - slope * x).max() <= 1e-6 * np.abs(z).max() else None


def _jump(z: Array | None) -> float:
    """Return how far apart the two values of a column are; 1 where it has more."""
    low, high = (0.0, 1.0) if z is None else (float(z.min()), float(z.max()))
    return high - low if z is not None and low < high and np.all((z == low) | (z == high)) else 1.0


def _worded(name: str, given: list[str]) -> str:
    """Return the name of a column that preprocessing made, in words."""
    name = name.rpartition("__")[2] or name
    if name.startswith("missingindicator_") and name.removeprefix("missingindicator_") in given:
        return f"{name.removeprefix('missingindicator_')} missing"
    own = max((one for one in given if name.startswith(f"{one}_")), key=len, default="")
    return f"{own}: {name.removeprefix(f'{own}_')}" if own else name
