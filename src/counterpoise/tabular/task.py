"""What is to be predicted, and by which model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.reading.cells import kind, plain_types
from counterpoise.tabular.columns import MOST_CATEGORIES, sane

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from counterpoise.reading import DataFile
    from counterpoise.tabular.columns import Columns

Task = Literal["classification", "regression", "count", "quantile", "huber"]
"""What kind of target: a class; a number by its mean, as a count, by a quantile, or with outliers."""

MOST_CLASSES = 100

MODELS = {
    "classification": "RobustLogisticRegression",
    "regression": "RobustLinearRegression",
    "count": "RobustPoissonRegressor",
    "quantile": "RobustQuantileRegressor",
    "huber": "RobustHuberRegressor",
}
"""The estimator of each task."""

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
    check_task(task)
    column = plain_types(data.column(name, "--target"))
    holds = checked_kind(data.path, name, column)
    texts = data.texts(name, "--target")
    distinct = len(texts.unique().drop_null())
    found, why = judged(data.path, name, holds, distinct, task)
    if found == "classification":
        values = np.array(texts.to_pylist(), dtype=object)
        kept = np.array([value is not None for value in values])
        return Target(values[kept].astype(str), kept, "classification", why)
    values = sane(
        data, name, data.numbers(name, "--target", least=0.0 if found == "count" else None, allow_missing=True)
    )
    kept = ~np.isnan(values)
    return Target(values[kept], kept, found, why)  # type: ignore[arg-type]


def check_task(task: str) -> None:
    """Refuse a task that there is not."""
    if task != "auto" and task not in get_args(Task):
        raise InvalidInputError(f"--task is {task!r}; choose auto, {', '.join(get_args(Task))}.")


def checked_kind(path: Path, name: str, column: Any) -> str:
    """Return what a target holds, or refuse it."""
    holds = kind(column)
    if holds not in ("text", "numbers", "true and false"):
        raise InvalidInputError(
            f"column {name!r} of {path.name} (--target) holds {holds}; a target is a class or a number."
        )
    return holds


def judged(path: Path, name: str, holds: str, distinct: int, task: str, more: str = "") -> tuple[str, str]:
    """Return the task that suits a target, and why.

    Parameters
    ----------
    distinct : int
        How many different values it has.
    more : str
        Words before that number, such as ``more than``.
    """
    if distinct == 0:
        raise InvalidInputError(f"column {name!r} of {path.name} (--target) is empty in every row.")
    if distinct < 2:
        raise InvalidInputError(f"column {name!r} of {path.name} (--target) is the same in every row.")
    found, why = (task, "as asked") if task != "auto" else _inferred(name, holds, distinct, more)
    if found == "classification" and distinct > MOST_CLASSES:
        raise InvalidInputError(
            f"column {name!r} of {path.name} (--target) has {more}{distinct:,} classes; {MOST_CLASSES} are the most. "
            "Name another target, or merge classes."
        )
    return found, why


def _inferred(name: str, holds: str, distinct: int, more: str) -> tuple[str, str]:
    """Return the task that suits a target, and why."""
    if holds != "numbers":
        return "classification", f"{name} holds {'words' if holds == 'text' else holds}"
    if distinct == 2:
        return "classification", f"{name} holds two values"
    few = "; --task classification would take them for classes" if distinct <= 10 else ""
    return "regression", f"{name} holds {more}{distinct:,} different numbers{few}"


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

    imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    numbers = Pipeline([("impute", imputer), ("scale", StandardScaler())])
    categories = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_CATEGORIES, min_frequency=2, sparse_output=False
    )
    encode = ColumnTransformer(
        [("numbers", numbers, list(columns.numbers)), ("categories", categories, list(columns.categories))],
        verbose_feature_names_out=False,
    )
    model = getattr(counterpoise, MODELS[task])
    return Pipeline([("encode", encode), ("model", model(**switches))])
