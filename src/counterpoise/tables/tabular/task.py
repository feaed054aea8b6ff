"""What is to be predicted, and by which model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.reading import cells
from counterpoise.tables.tabular.columns import MOST_CATEGORIES, sane

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from counterpoise.tables.reading import DataFile
    from counterpoise.tables.tabular.columns import Columns

Array = NDArray[np.float64]

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
    """What is to be predicted.

    Attributes
    ----------
    name : str
        The column.
    task : Task
    why : str
        How the task was found.
    classes : ndarray or None
        In order.
    """

    name: str
    task: Task
    why: str
    classes: NDArray[Any] | None

    def read(self, data: DataFile) -> tuple[Array, NDArray[np.bool_]]:
        """Return the targets of rows that have one, classes as codes, and which rows these are."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.classes is None:
            values = _numbers(data, self.name, self.task)
            kept = ~np.isnan(values)
            return values[kept], kept
        classes = pa.array(self.classes.tolist(), pa.large_string())
        codes = pc.index_in(data.texts(self.name, "--target"), value_set=classes)
        kept = np.asarray(codes.is_valid().to_numpy())
        return codes.drop_null().to_numpy().astype(np.float64), kept

    def named(self, values: Array) -> NDArray[Any]:
        """Return targets with classes by their names."""
        return values if self.classes is None else self.classes[values.astype(np.intp)]


class TargetSearch:
    """Infers the task from a target, of which it may see some rows at a time.

    Parameters
    ----------
    name : str
        The column.
    task : str
        The task, or auto.
    most : float
        Different values that are counted.
    """

    def __init__(self, name: str, task: str, most: float) -> None:
        check_task(task)
        self._name, self._task, self._most = name, task, most
        self._holds = ""
        self._values: NDArray[Any] = np.empty(0)
        self._error: InvalidInputError | None = None

    def look(self, data: DataFile) -> NDArray[np.bool_]:
        """See some rows, and return which of them have a target."""
        column = cells.plain_types(data.column(self._name, "--target"))
        self._holds = cells.kind(column)
        if self._holds not in ("text", "numbers", "true and false"):
            raise InvalidInputError(f"{self._said(data.path)} holds {self._holds}; a target is a class or a number.")
        if self._holds != "numbers" and self._task in ("auto", "classification"):
            texts = data.texts(self._name, "--target")
            self._add(texts.unique().drop_null().to_numpy(zero_copy_only=False))
            return np.asarray(texts.is_valid().to_numpy())
        try:
            values = _numbers(data, self._name, self._task)
        except InvalidInputError as error:
            if self._holds != "numbers":
                raise
            # Whether it matters is known only when the task is.
            self._error = self._error or error
            values, _ = cells.numbers(column, comma=False)
        kept = ~np.isnan(values)
        self._add(values[kept])
        return kept

    def _add(self, values: NDArray[Any]) -> None:
        if len(self._values) <= self._most:
            self._values = np.union1d(self._values, values) if len(self._values) else np.unique(values)

    def _said(self, path: Path) -> str:
        return f"column {self._name!r} of {path.name} (--target)"

    def found(self, path: Path) -> Target:
        """Return what is to be predicted, once all rows were seen."""
        import pyarrow as pa

        distinct, more = len(self._values), ""
        if distinct > self._most:
            distinct, more = int(self._most), "more than "
        if distinct == 0:
            raise InvalidInputError(f"{self._said(path)} is empty in every row.")
        if distinct < 2:
            raise InvalidInputError(f"{self._said(path)} is the same in every row.")
        task, why = self._task, "as asked"
        if task == "auto":
            task, why = self._inferred(distinct, more)
        if task != "classification":
            if self._error is not None:
                raise self._error
            return Target(self._name, task, why, None)  # type: ignore[arg-type]
        if distinct > MOST_CLASSES:
            raise InvalidInputError(
                f"{self._said(path)} has {more}{distinct:,} classes; {MOST_CLASSES} are the most. Name another target, "
                "or merge classes."
            )
        column = pa.chunked_array([pa.array(self._values)])
        words = cells.texts(column, column).to_pylist() if self._holds == "numbers" else self._values.tolist()
        return Target(self._name, "classification", why, np.unique(np.array(words)))

    def _inferred(self, distinct: int, more: str) -> tuple[str, str]:
        """Return the task that suits a target, and why."""
        name, holds = self._name, self._holds
        if holds != "numbers":
            return "classification", f"{name} holds {'words' if holds == 'text' else holds}"
        if distinct == 2:
            return "classification", f"{name} holds two values"
        few = "; --task classification would take them for classes" if distinct <= 10 else ""
        return "regression", f"{name} holds {more}{distinct:,} different numbers{few}"


def _numbers(data: DataFile, name: str, task: str) -> Array:
    """Return the target of every row as a number, NaN where there is none."""
    least = 0.0 if task == "count" else None
    return sane(data, name, data.numbers(name, "--target", least=least, allow_missing=True))


def check_task(task: str) -> None:
    """Refuse a task that there is not."""
    if task != "auto" and task not in get_args(Task):
        raise InvalidInputError(f"--task is {task!r}; choose auto, {', '.join(get_args(Task))}.")


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
