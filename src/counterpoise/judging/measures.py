"""How well a model predicts, in units that its users know: accuracy, AUC, RMSE in the target's unit, deviance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy
from sklearn.base import is_classifier

from counterpoise.contexts import objects, places_among
from counterpoise.estimators.learners import innermost
from counterpoise.exceptions import InvalidInputError
from counterpoise.table import Table, written
from counterpoise.validation import unwrapped

Array = NDArray[np.float64]
Task = Literal["classification", "regression", "count", "quantile", "huber"]

ALL = "all"
"""How the row of a table is called that is about all contexts."""

_LEAST = 1e-15
"""The smallest probability of which a logarithm is taken, and the smallest mean count."""

SLICE = 250_000
"""Rows whose losses are in memory at once."""

PRACTICAL_POINTS = 0.01
"""A difference of shares, such as accuracies, below which nobody acts."""

PRACTICAL_SHARE = 0.02
"""Of the plain model's value, for every other measure."""


def task_of(model: Any) -> Task:
    """Return what a model predicts: a class; a number by its mean, as a count, by a quantile, or with outliers."""
    own = innermost(model)
    told = getattr(own, "task", None)
    if isinstance(told, str) and told in get_args(Task):
        return told  # type: ignore[return-value]
    if is_classifier(model):
        return "classification"
    kind, loss = type(own).__name__, getattr(own, "loss", None)
    if kind == "RobustPoissonRegressor" or loss == "poisson":
        return "count"
    if kind == "RobustQuantileRegressor" or loss == "quantile":
        return "quantile"
    return "huber" if kind == "RobustHuberRegressor" else "regression"


@dataclass(frozen=True, eq=False)
class Predicted:
    """What a model predicts of some rows.

    Attributes
    ----------
    values : ndarray of shape (n_rows,) or (n_rows, n_classes)
        Numbers, or the probability of each class; of a classifier without probabilities one for the class it names.
    classes : ndarray of shape (n_classes,), optional
    certain : bool
        Whether a classifier has no probabilities.
    quantile : float
        The level of a model of quantiles.
    are_losses : bool
        Whether a model tells no more than the loss of each row, and these are they.
    """

    values: Array
    classes: NDArray[Any] | None = None
    certain: bool = False
    quantile: float = 0.5
    are_losses: bool = False

    @classmethod
    def of(cls, model: Any, X: Any) -> Predicted:
        """Ask a fitted model."""
        if not is_classifier(model):
            values = np.asarray(model.predict(X), dtype=np.float64)
            values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
            if values.ndim != 1:
                raise InvalidInputError(
                    f"{type(innermost(model)).__name__}.predict returned shape {values.shape}; one number per row is "
                    "needed."
                )
            return cls(values, quantile=float(getattr(innermost(model), "quantile", None) or 0.5))
        classes = np.asarray(model.classes_)
        if hasattr(model, "predict_proba"):
            return cls(np.asarray(model.predict_proba(X), dtype=np.float64), classes)
        named = np.asarray(model.predict(X))
        return cls((named[:, None] == classes[None, :]).astype(np.float64), classes, certain=True)

    @classmethod
    def joined(cls, parts: Sequence[tuple[NDArray[np.intp], Predicted]], n_rows: int) -> Predicted:
        """Return predictions of several models for rows of one table: the mean where a row has several.

        Parameters
        ----------
        parts : sequence of (rows, Predicted)
            Models may know different classes: what one has not seen has no probability.
        """
        first = parts[0][1]
        classes = None
        if first.classes is not None:
            classes = np.unique(np.concatenate([one.classes for _, one in parts if one.classes is not None]))
        shape = (n_rows,) if classes is None else (n_rows, len(classes))
        # Column by column: rows of a few numbers are slow to pick.
        total, times = np.zeros(shape, order="F"), np.zeros(n_rows)
        for rows, one in parts:
            if classes is None or one.classes is None:
                total[rows] += one.values
            else:
                for k, values in zip(np.searchsorted(classes, one.classes), one.values.T, strict=True):
                    total[rows, k] += values
            times[rows] += 1.0
        with np.errstate(invalid="ignore"):
            values = total / (times if classes is None else times[:, None])
        return replace(first, values=values, classes=classes)

    def rows(self, at: NDArray[Any] | slice) -> Predicted:
        """Return those of some rows."""
        return replace(self, values=self.values[at])

    def codes(self, y: Any) -> NDArray[np.intp]:
        """Return the place of every target among the classes; -1 for those that the model does not know."""
        return places_among(np.asarray(self.classes), np.asarray(unwrapped(y)))


@dataclass(frozen=True, eq=False)
class Judged:
    """Targets beside what was predicted of them; classes as codes."""

    target: NDArray[Any]
    predicted: Predicted

    @classmethod
    def of(cls, y: Any, predicted: Predicted) -> Judged:
        """Pair targets with predictions."""
        if predicted.classes is not None:
            return cls(predicted.codes(y), predicted)
        if predicted.are_losses:
            return cls(np.zeros(len(predicted.values)), predicted)
        return cls(np.asarray(unwrapped(y), dtype=np.float64), predicted)

    def rows(self, at: NDArray[Any] | slice) -> Judged:
        """Return some rows."""
        return Judged(self.target[at], self.predicted.rows(at))

    @cached_property
    def residual(self) -> Array:
        """Target minus prediction; of two classes, whether it was the second minus its probability."""
        if self.predicted.classes is None:
            return np.asarray(self.target - self.predicted.values)
        if len(self.predicted.classes) == 2:
            return np.asarray((self.target == 1) - self.predicted.values[:, 1])
        # Of more: whether the class named was the right one, minus how sure the model was.
        return np.asarray(1.0 - self.wrong - self.predicted.values.max(axis=1))

    @cached_property
    def wrong(self) -> Array:
        """One where another class than the right one is named."""
        p = self.predicted.values
        # Of two, the first where they tie, as of more; and much faster than a search along each row.
        named = p[:, 1] > p[:, 0] if p.shape[1] == 2 else p.argmax(axis=1)
        return np.asarray(named != self.target, dtype=np.float64)

    @cached_property
    def of_target(self) -> Array:
        """The probability of the class that came; none for one that the model does not know."""
        mine = self.predicted.values[np.arange(len(self.target)), self.target]
        return np.where(self.target >= 0, mine, 0.0)


def _log_loss(rows: Judged) -> Array:
    return -np.log(np.maximum(rows.of_target, _LEAST))


def _brier(rows: Judged) -> Array:
    p = rows.predicted.values
    # Halved, so that two classes give the square of one residual.
    return np.asarray(0.5 * (np.square(p) @ np.ones(p.shape[1]) - 2.0 * rows.of_target + 1.0))


def _deviance(rows: Judged) -> Array:
    mean = np.maximum(rows.predicted.values, _LEAST)
    return np.asarray(2.0 * (xlogy(rows.target, rows.target / mean) - rows.target + mean))


def _pinball(rows: Judged) -> Array:
    return np.maximum(rows.predicted.quantile * rows.residual, (rows.predicted.quantile - 1.0) * rows.residual)


def _area(score: Array, positive: NDArray[np.bool_], weight: Array) -> float:
    """Return the chance that a positive row has the higher score of two, ties counting half.

    The same as scikit-learn's ``roc_auc_score``, in a small part of the memory.
    """
    own, above = score[~positive], score[positive]
    alike = weight.min() == weight.max()
    if alike:
        # As many are lower as come before in order, and nothing has to be summed; each search begins near the last.
        own.sort()
        above.sort()
        return sum(_lower(own, some).sum() for some in _sliced(above)) / (2.0 * len(above) * len(own))
    order, places = np.argsort(own), np.argsort(above)
    own, above, heavy = own[order], above[places], weight[positive][places]
    below = np.concatenate([[0.0], np.cumsum(weight[~positive][order])])
    pairs = zip(_sliced(above), _sliced(heavy), strict=True)
    total = sum(float(light @ _lower(own, some, below)) for some, light in pairs)
    return total / (2.0 * float(heavy.sum()) * float(below[-1]))


def _sliced(values: Array) -> Iterator[Array]:
    return (values[start : start + SLICE] for start in range(0, len(values), SLICE))


def _lower(ordered: Array, values: Array, total: Array | None = None) -> Array:
    """Return twice how many are lower than each value, or their weight; equal ones count half."""
    left = np.searchsorted(ordered, values)
    right = left.copy()
    tied = np.flatnonzero(ordered[np.minimum(left, len(ordered) - 1)] == values)
    right[tied] = np.searchsorted(ordered, values[tied], "right")
    return np.asarray(left + right if total is None else total[left] + total[right], dtype=np.float64)


def mean_loss(loss: Callable[[Judged], Array], rows: Judged, weight: Array) -> float:
    """Return the mean of a loss, of very many rows slice by slice."""
    if len(rows.target) <= SLICE:
        return float(np.average(loss(rows), weights=weight))
    slices = [slice(start, start + SLICE) for start in range(0, len(rows.target), SLICE)]
    return sum(float(weight[at] @ loss(rows.rows(at))) for at in slices) / float(weight.sum())


def _auc(rows: Judged, weight: Array) -> float:
    known: Any = rows.target >= 0
    # Nothing is copied where all are.
    known = slice(None) if known.all() else known
    target, p, weight = rows.target[known], rows.predicted.values[known], weight[known]
    present = np.flatnonzero(np.bincount(target))
    if len(present) < 2:
        return math.nan
    if p.shape[1] == 2:
        return _area(p[:, 1], target == 1, weight)
    # One against the rest, by how frequent each is.
    each = [_area(p[:, k], target == k, weight) for k in present]
    return float(np.average(each, weights=[weight[target == k].sum() for k in present]))


def _explained(lost: Callable[[Judged], Array], at_best: Callable[[Array, Array], float]) -> Callable[..., float]:
    """Return the share of what a constant would lose that the model does not."""

    def share(rows: Judged, weight: Array) -> float:
        best = at_best(rows.target, weight)

        def of_constant(some: Judged) -> Array:
            return lost(Judged(some.target, Predicted(np.full(len(some.target), best))))

        whole = mean_loss(of_constant, rows, weight)
        return 1.0 - mean_loss(lost, rows, weight) / whole if whole > 0 else math.nan

    return share


def _mean(target: Array, weight: Array) -> float:
    return float(np.average(target, weights=weight))


@dataclass(frozen=True)
class Measure:
    """A number by which predictions are judged.

    Attributes
    ----------
    name, words : str
        Short, as the column of a table; and what it is.
    unit : {"", "%", "target"}
        Shares are shown in percent, others as they are or in the unit of the target.
    higher_is_better : bool or None
        None where zero is best.
    per_row : callable, optional
        The loss of each row whose mean the measure is; of accuracy the share of errors, which is taken from one.
    root : bool
        Whether it is the root of that mean.
    whole : callable, optional
        For what is no mean over rows.
    """

    name: str
    words: str
    unit: Literal["", "%", "target"] = ""
    higher_is_better: bool | None = False
    per_row: Callable[[Judged], Array] | None = None
    root: bool = False
    whole: Callable[[Judged, Array], float] | None = None

    def of(self, rows: Judged, weight: Array) -> float:
        """Return the measure of some rows; NaN where it has no value."""
        if len(rows.target) == 0 or not weight.sum() > 0:
            return math.nan
        if self.whole is not None:
            return self.whole(rows, weight)
        assert self.per_row is not None
        return self.from_mean(mean_loss(self.per_row, rows, weight))

    def from_mean(self, mean: float) -> float:
        """Return the measure, where the mean of its losses is this."""
        if self.higher_is_better:
            return 1.0 - mean
        return math.sqrt(max(mean, 0.0)) if self.root else mean

    def change(self, before: float, mean_change: float) -> float:
        """Return by how much the measure changes, where the mean of its losses changes from that of ``before``."""
        if self.higher_is_better:
            return -mean_change
        return math.sqrt(max(before**2 + mean_change, 0.0)) - before if self.root else mean_change

    def practical(self, before: float) -> float:
        """Return the change that matters in practice."""
        return PRACTICAL_POINTS if self.unit == "%" else PRACTICAL_SHARE * abs(before)

    def text(self, value: float, sign: str = "") -> str:
        """Return a value in words; of a signed share, in percentage points."""
        if math.isnan(value):
            return "–"
        if self.unit == "%":
            return f"{100.0 * value:{sign}.1f}{'' if sign else '%'}"
        return written(value, sign, digits=3)

    def decimals(self, before: float) -> int:
        """Return the decimals of a value worth reading, those of its first three digits; of a share in percent, one."""
        if self.unit == "%":
            return 1
        size = abs(before)
        return max(0, 2 - math.floor(math.log10(size))) if 0.0 < size < math.inf else 3

    def change_text(self, change: Sequence[float], before: float) -> str:
        """Return a change, and the ends of its interval where it has one, as finely as what changes is read.

        Parameters
        ----------
        change : sequence of estimate, lower and upper end
            Of a share, they are written in percentage points.
        before : float
            What changes.
        """
        scale, decimals = (100.0, 1) if self.unit == "%" else (1.0, self.decimals(before) + 1)
        nearest = min((abs(scale * one) for one in change if one != 0.0 and not math.isnan(one)), default=1.0)
        if change[1] > 0.0 or change[2] < 0.0:
            # Rounded to zero, an end would seem to include it.
            decimals = max(decimals, min(-math.floor(math.log10(nearest)), decimals + 3))
        # Zero without a sign of its own.
        value, low, high = (f"{round(scale * one, decimals) + 0.0:+,.{decimals}f}" for one in change)
        return value if math.isnan(change[1]) else f"{value} [{low}, {high}]"


_ACCURACY = Measure("accuracy", "share of rows whose class was named", "%", True, lambda rows: rows.wrong)
_AUC = Measure("AUC", "chance that a row of the class has the higher probability of two", "", True, whole=_auc)
_LOG_LOSS = Measure("log loss", "mean of minus the logarithm of the probability of what came", "", False, _log_loss)
_BRIER = Measure("Brier score", "mean squared error of the probabilities", "", False, _brier)
_CALIBRATION = Measure(
    "calibration",
    "observed share minus mean probability: of the second of two classes, else of the class named",
    "%",
    None,
    lambda rows: rows.residual,
)
_RMSE = Measure(
    "RMSE", "root of the mean squared error", "target", False, lambda rows: np.square(rows.residual), root=True
)
_MAE = Measure("MAE", "mean absolute error", "target", False, lambda rows: np.abs(rows.residual))
_BIAS = Measure("bias", "mean of target minus prediction", "target", None, lambda rows: rows.residual)
_R2 = Measure(
    "R2",
    "share of the variance within the rows judged that is explained",
    "",
    True,
    whole=_explained(lambda rows: np.square(rows.residual), _mean),
)
_DEVIANCE = Measure("deviance", "mean Poisson deviance: zero for perfect predictions", "", False, _deviance)
_D2 = Measure("D2", "share of the deviance that is explained", "", True, whole=_explained(_deviance, _mean))
_PINBALL = Measure("pinball loss", "mean pinball loss of the quantile", "target", False, _pinball)
_BELOW = Measure(
    "below",
    "share of targets at or below the prediction",
    "%",
    None,
    lambda rows: (rows.residual <= 0).astype(np.float64),
)
_RISK = Measure("risk", "mean loss", "", False, lambda rows: rows.predicted.values)

MEASURES: dict[Task, tuple[Measure, ...]] = {
    "classification": (_ACCURACY, _AUC, _LOG_LOSS, _BRIER, _CALIBRATION),
    "regression": (_RMSE, _MAE, _R2, _BIAS),
    "count": (_DEVIANCE, _D2, _RMSE, _MAE, _BIAS),
    "quantile": (_PINBALL, _BELOW, _MAE),
    "huber": (_MAE, _RMSE, _R2, _BIAS),
}
"""What is said of the predictions of each task; the first is the one in headlines."""


def measures_of(task: Task, predicted: Predicted | None = None) -> tuple[Measure, ...]:
    """Return the measures of a task, of which the first leads; of a classifier without probabilities the accuracy."""
    if predicted is not None and predicted.are_losses:
        return (_RISK,)
    return MEASURES[task][:1] if predicted is not None and predicted.certain else MEASURES[task]


def measured(
    rows: Judged,
    codes: NDArray[np.intp],
    labels: NDArray[Any],
    weight: Array,
    measures: Sequence[Measure],
) -> Table:
    """Return every measure over all rows, and in each context.

    Parameters
    ----------
    rows : Judged
    codes : ndarray of shape (n_rows,)
        The context of each row.
    labels : ndarray of shape (n_contexts,)

    Returns
    -------
    Table
        A row for all of them, named "all", and a row per context: ``context``, ``n`` rows, a column per measure.
    """
    # One context after the other, in a copy of its own: judged rows remember what their measures have in common.
    found = [[one.of(replace(rows), weight) for one in measures]]
    for part in _parts(codes, len(labels)):
        own, heavy = rows.rows(part), weight[part]
        found.append([one.of(own, heavy) for one in measures])
    counts = totals_of(codes, len(labels)).astype(np.intp)
    return Table(
        {
            "context": objects([ALL, *labels.tolist()]),
            "n": np.append(len(codes), counts),
            **{one.name: np.array([values[k] for values in found]) for k, one in enumerate(measures)},
        }
    )


def totals_of(codes: NDArray[np.intp], n_contexts: int, weight: Array | None = None) -> Array:
    """Return the rows of each context, or their weight; of very many rows slice by slice."""
    total = np.zeros(n_contexts)
    for start in range(0, len(codes), SLICE):
        at = slice(start, start + SLICE)
        total += np.bincount(codes[at], None if weight is None else weight[at], n_contexts)
    return total


def _parts(codes: NDArray[np.intp], n_contexts: int) -> Iterator[NDArray[np.intp]]:
    """Yield the rows of each context."""
    # Short integers are sorted by counting.
    order = np.argsort(codes.astype(np.uint16) if n_contexts <= 1 << 16 else codes, kind="stable")
    yield from np.split(order, np.cumsum(np.bincount(codes, minlength=n_contexts))[:-1])
