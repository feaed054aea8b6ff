"""What is to be predicted, and by which model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from counterpoise.reading import DataFile
    from counterpoise.tabular.columns import Columns

Task = Literal["classification", "regression", "count", "quantile", "huber"]
"""What kind of target: a class; a number by its mean, as a count, by a quantile, or with outliers."""

_MODELS = {
    "classification": "RobustLogisticRegression",
    "regression": "RobustLinearRegression",
    "count": "RobustPoissonRegressor",
    "quantile": "RobustQuantileRegressor",
    "huber": "RobustHuberRegressor",
}

RISKS = {
    "classification": "log loss (nats)",
    "regression": "half the squared error",
    "count": "Poisson loss",
    "quantile": "pinball loss",
    "huber": "Huber loss",
}
"""What a risk is the mean of."""


@dataclass(frozen=True, eq=False)
class Target:
    """The target of every row that has one.

    Attributes
    ----------
    values : ndarray of shape (n_kept,)
    kept : ndarray of bool of shape (n_rows,)
        Rows in which the target is not missing.
    task : Task
    why : str
        How the task was found.
    """

    values: NDArray[Any]
    kept: NDArray[np.bool_]
    task: Task
    why: str


def read_target(data: DataFile, name: str, task: str = "auto") -> Target:
    """Read the target, and infer the task from it where it is not given."""
    import pyarrow as pa

    if task != "auto" and task not in get_args(Task):
        raise InvalidInputError(f"--task is {task!r}; choose auto, {', '.join(get_args(Task))}.")
    column = data.column(name, "--target")
    numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)
    if column.null_count == len(column):
        raise InvalidInputError(f"column {name!r} of {data.path.name} (--target) is empty in every row.")
    distinct = len(column.unique().drop_null())
    if task == "auto":
        if not numeric:
            found, why = "classification", f"{name} holds words"
        elif distinct == 2:
            found, why = "classification", f"{name} holds two values"
        else:
            found, why = "regression", f"{name} holds {distinct:,} different numbers"
    else:
        found, why = task, "as asked"
    if distinct < 2:
        raise InvalidInputError(f"column {name!r} of {data.path.name} (--target) is the same in every row.")
    if found == "classification":
        if distinct > 100:
            raise InvalidInputError(
                f"column {name!r} of {data.path.name} (--target) has {distinct:,} classes; 100 are the most. "
                "Name another target, or merge classes."
            )
        texts = np.array(data.texts(name, "--target").to_pylist(), dtype=object)
        kept = np.array([text is not None for text in texts])
        return Target(texts[kept].astype(str), kept, "classification", why)
    values = data.numbers(name, "--target", least=0.0 if found == "count" else None, allow_missing=True)
    kept = ~np.isnan(values)
    return Target(values[kept], kept, found, why)  # type: ignore[arg-type]


def pipeline(columns: Columns, task: Task, **switches: Any) -> Pipeline:
    """Return the preprocessing and the robust model, not yet fitted.

    Numbers are imputed by their median, with a mark where that was done, and scaled; categories are one-hot, a missing
    one being a category, and one that fit has not seen being like the rare ones, or none.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    import counterpoise
    from counterpoise.tabular.columns import MOST_CATEGORIES

    imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    numbers = Pipeline([("impute", imputer), ("scale", StandardScaler())])
    categories = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_CATEGORIES, min_frequency=2, sparse_output=False
    )
    encode = ColumnTransformer(
        [("numbers", numbers, list(columns.numbers)), ("categories", categories, list(columns.categories))],
        verbose_feature_names_out=False,
    )
    model = getattr(counterpoise, _MODELS[task])
    return Pipeline([("encode", encode), ("model", model(**switches))])
