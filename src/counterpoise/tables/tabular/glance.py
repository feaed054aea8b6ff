"""How well a model does on a table, in one line that costs next to nothing while its rows are predicted."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.tabular.saved import in_words_of

if TYPE_CHECKING:
    from counterpoise.tables.reading import DataFile
    from counterpoise.tables.tabular.saved import SavedModel
    from counterpoise.tables.tabular.streaming import PredictedRows

Array = NDArray[np.float64]

UNSEEN = "contexts that the fit did not have"

_FEW = 20
"""Rows below which a context is not named, unless all are as small."""

_MEASURES = {
    "classification": "accuracy",
    "regression": "RMSE",
    "count": "deviance",
    "quantile": "pinball loss",
    "huber": "MAE",
}
"""The measure that leads in an evaluation; written out here, since all else that judges takes long to import."""


class Glance:
    """The leading measure of a model over rows that have a target, and the context where it does worst.

    Parameters
    ----------
    saved : SavedModel
    names : sequence of str
        The columns of the table.
    """

    def __init__(self, saved: SavedModel, names: tuple[str, ...]) -> None:
        self._saved = saved
        by_name = {name.strip(): name for name in names}
        wanted = (saved.target, *saved.context)
        self._possible = bool(saved.context) and all(name.strip() in by_name for name in wanted)
        self.columns = tuple(by_name[name.strip()] for name in wanted) if self._possible else ()
        self._lost: defaultdict[str, float] = defaultdict(float)
        self._n: defaultdict[str, int] = defaultdict(int)

    def look(self, rows: PredictedRows) -> None:
        """See some rows; what cannot be read is for ``evaluate`` to complain about."""
        if not self._possible:
            return
        try:
            self._look(rows)
        except InvalidInputError:
            self._possible = False

    def _look(self, rows: PredictedRows) -> None:
        from counterpoise.tables.tabular.streaming import target_of

        data, saved = rows.data, self._saved
        target, there = target_of(saved, data, self.columns[0])
        if not there.any():
            return
        own = rows.predictions[saved.method]
        if saved.classes is None:
            lost = _losses(saved, target, own["prediction"])
        else:
            named = np.argmax([own[f"probability[{name}]"] for name in saved.classes], axis=0)
            lost = (named != target).astype(np.float64)
        names, codes = self._contexts(data)
        total = np.bincount(codes[there], lost[there], len(names))
        counts = np.bincount(codes[there], minlength=len(names))
        for name, value, n in zip(names, total.tolist(), counts.tolist(), strict=True):
            self._lost[name] += value
            self._n[name] += n

    def _contexts(self, data: DataFile) -> tuple[list[str], NDArray[np.intp]]:
        """Return the names of contexts, and which of them every row is of."""
        saved = self._saved
        columns = [data.coded_labels(name) for name in self.columns[1:]]
        keys, codes = np.unique(np.column_stack([own for _, own in columns]), axis=0, return_inverse=True)
        labels = [tuple(values[k] for (values, _), k in zip(columns, key, strict=True)) for key in keys.tolist()]
        places = [saved.place(label) for label in labels]
        names = [UNSEEN if one is None else in_words_of(saved.contexts[one]) for one in places]
        return names, codes.reshape(-1)

    @property
    def words(self) -> str:
        """What ``counterpoise evaluate`` would begin with; nothing where there is no target, or are no contexts."""
        n = sum(self._n.values())
        if not self._possible or not n:
            return ""
        task = self._saved.task
        # Of many contexts, only one that has rows can be the worst.
        means = {name: self._lost[name] / count for name, count in self._n.items() if count}
        large = {name: mean for name, mean in means.items() if self._n[name] >= _FEW} or means
        whole = _text(task, sum(self._lost.values()) / n)
        words = f"the file has {' and '.join(self.columns)}: {_MEASURES[task]} {whole} over {_rows(n)}"
        if list(means) == [UNSEEN]:
            words += f", all of {UNSEEN}"
        if len(means) > 1:
            worst = max(large, key=lambda name: large[name])
            side = "lowest" if task == "classification" else "highest"
            of = "" if len(large) == len(means) else f", of contexts with {_FEW} rows or more"
            words += f", {side} {_text(task, large[worst])} in {worst:.60} ({_rows(self._n[worst])}){of}"
        return f"{words}; counterpoise evaluate says more"


def _losses(saved: SavedModel, target: Array, predicted: Array) -> Array:
    residual = np.where(np.isnan(target), 0.0, target - predicted)
    if saved.task == "count":
        mean = np.maximum(predicted, 1e-15)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(target > 0, target * np.log(target / mean), 0.0)
        return np.asarray(2.0 * (logs - residual))
    if saved.task == "quantile":
        level = float(saved.methods[saved.method].parameters.get("quantile") or 0.5)
        return np.maximum(level * residual, (level - 1.0) * residual)
    return np.abs(residual) if saved.task == "huber" else np.square(residual)


def _text(task: str, mean: float) -> str:
    if task == "classification":
        return f"{100.0 * (1.0 - mean):.1f}%"
    value = math.sqrt(mean) if task == "regression" else mean
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.3g}"


def _rows(n: int) -> str:
    return f"{n:,} row{'' if n == 1 else 's'}"
