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
_WITH_LOG = ("regression", "quantile", "huber")
"""Tasks for which the logarithm of the target can be modelled."""

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
    log : bool
        Whether the logarithm of the target is modelled; see :class:`LogTarget` for the way back.
    """

    name: str
    task: Task
    why: str
    classes: NDArray[Any] | None
    log: bool = False

    def read(self, data: DataFile) -> tuple[Array, NDArray[np.bool_]]:
        """Return the targets of rows that have one, as they are modelled, and which rows these are.

        Classes are codes, and numbers are logarithms where these are modelled.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.classes is None:
            values = _numbers(data, self.name, self.task)
            kept = ~np.isnan(values)
            return (np.log(_positive(data, self.name, values)[kept]) if self.log else values[kept]), kept
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
    log : bool
        Whether the logarithm of the target is modelled.
    """

    def __init__(self, name: str, task: str, most: float, log: bool = False) -> None:
        check_task(task)
        if log and task not in ("auto", *_WITH_LOG):
            raise InvalidInputError(
                f"--log-target is for --task {', '.join(_WITH_LOG)}, not {task}"
                f"{', whose model predicts a logarithm already' if task == 'count' else ''}. Leave one of them out."
            )
        self._name, self._task, self._most, self._log = name, task, most, log
        self._holds = ""
        self._values: NDArray[Any] = np.empty(0)
        self._error: InvalidInputError | None = None

    def look(self, data: DataFile) -> NDArray[np.bool_]:
        """See some rows, and return which of them have a target."""
        name = data.name(self._name, "--target")
        # Classes are as they are written: 07 beside a stray cell is not 7.
        column = cells.plain_types(data.column(name) if self._task == "classification" else data.feature(name))
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
        if self._log:
            _positive(data, self._name, values)
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
        if self._log and self._holds != "numbers":
            raise InvalidInputError(f"{self._said(path)} holds {self._holds}; --log-target needs numbers above 0.")
        if task == "auto" and self._log:
            task, why = "regression", "as --log-target asks"
        elif task == "auto":
            task, why = self._inferred(distinct, more)
        if task != "classification":
            if self._error is not None:
                raise self._error
            if self._log:
                why += f"; risks are of its logarithm, predictions and errors of {self._name} itself"
            return Target(self._name, task, why, None, self._log)  # type: ignore[arg-type]
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


def _positive(data: DataFile, name: str, values: Array) -> Array:
    """Return numbers that have a logarithm, or name the first that has none."""
    low = np.flatnonzero(values <= 0.0)
    if low.size:
        more = f" (and {low.size - 1:,} more such cell{'s' if low.size > 2 else ''})" if low.size > 1 else ""
        raise InvalidInputError(
            f"column {name!r} of {data.path.name} (--target) has {values[low[0]]:.12g} in "
            f"{data.row_name(int(low[0]))}{more}; --log-target needs numbers above 0. Leave it out, or remove the rows."
        )
    return values


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
