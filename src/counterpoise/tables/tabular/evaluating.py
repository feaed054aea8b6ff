"""A model from a folder, judged on a table of any size: rows are read and predicted some at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts, encode
from counterpoise.exceptions import InvalidInputError
from counterpoise.judging.at_fit import AtFit
from counterpoise.judging.evaluated import Evaluation
from counterpoise.judging.evaluated_rows import Rows, evaluation_of
from counterpoise.judging.measures import Predicted, task_of
from counterpoise.tables.reading.data_file import find_column
from counterpoise.tables.tabular.labels import SeenLabels
from counterpoise.tables.tabular.streaming import predicted, target_of
from counterpoise.tables.tabular.table_model import TableModel

if TYPE_CHECKING:
    from counterpoise.tables.reading import TableOnDisk
    from counterpoise.tables.tabular.fitting import Progress
    from counterpoise.tables.tabular.saved import SavedModel

EXACT_ROWS = 1_000_000
"""Rows up to which predictions are kept in double precision."""


@dataclass(frozen=True)
class JudgedColumns:
    """What the columns of a table are for that a model is judged by, as the table names them.

    Attributes
    ----------
    target : str
    context : tuple of str
        Empty where all rows are judged together.
    group : str or None
        Rows that belong together.
    """

    target: str
    context: tuple[str, ...]
    group: str | None = None

    @classmethod
    def of(
        cls,
        saved: SavedModel,
        table: TableOnDisk,
        target: str | None = None,
        context: Sequence[str] = (),
        group: str | None = None,
    ) -> JudgedColumns:
        """Find columns that are named, or those of the fit."""
        if context and len(context) != len(saved.context):
            raise InvalidInputError(
                f"contexts were made of {len(saved.context)} column{'s' * (len(saved.context) != 1)} in the fit "
                f"({', '.join(saved.context)}), and --context names {len(context)}. Name as many, in that order."
            )
        there = {name.strip() for name in table.names}
        own = context or (saved.context if all(name.strip() in there for name in saved.context) else ())

        def found(role: str, name: str) -> str:
            return find_column(table.path, table.names, name, role)

        return cls(
            found("--target", saved.target if target is None else target),
            tuple(found("--context", name) for name in own),
            None if group is None else found("--group", group),
        )

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return (self.target, *self.context, *([] if self.group is None else [self.group]))


def evaluate_table(
    saved: SavedModel, table: TableOnDisk, columns: JudgedColumns, progress: Progress, confidence: float = 0.95
) -> Evaluation:
    """Judge a model on a table; see :func:`counterpoise.evaluate`.

    Only predictions, targets and the codes of contexts and groups are in memory for all rows.
    """
    model = TableModel(saved)
    methods = [saved.method, *(name for name in saved.methods if name != saved.method)]
    sources = [find_column(table.path, table.names, name) for name in saved.columns.sources]
    needed = list(dict.fromkeys([*sources, *columns.all]))
    kept = _Kept(methods)
    contexts, groups = SeenLabels(columns.context, "--context", saved.context[: len(columns.context)]), None
    if columns.group is not None:
        groups = SeenLabels((columns.group,), "--group")
    unknown, n_read = Counter[str](), 0
    with progress.step("predicting") as done:
        read = 0
        for piece in predicted(saved, table.only(needed), methods, needed):
            target, there = target_of(saved, piece.data, columns.target)
            if columns.context:
                kept.contexts.append(_short(contexts.look(piece.data)[0][there]))
            if groups is not None:
                kept.groups.append(groups.look(piece.data)[0][there])
            kept.add(target[there], {name: _values(saved, own, there) for name, own in piece.predictions.items()})
            unknown.update(piece.unknown)
            n_read += piece.data.n_rows
            read += piece.data.raw.nbytes
            done(min(read / max(table.size, 1), 1.0))
    if not kept.n_rows:
        raise InvalidInputError(
            f"column {columns.target!r} of {table.path.name} (--target) is empty in every row, so there is nothing to "
            "judge by."
        )
    found = None
    if columns.context:
        named = encode(model.as_fitted(contexts.labels))
        found = Contexts(named.labels, _short(named.codes)[np.concatenate(kept.contexts)])
    rows = Rows(
        kept.predicted(saved, model),
        np.concatenate(kept.targets),
        found,
        np.concatenate(kept.groups) if kept.groups else None,
        np.ones(kept.n_rows),
        n_without_target=n_read - kept.n_rows,
    )
    notes = [f"{n:,} of {n_read:,} rows have a {name} that the model has not seen" for name, n in unknown.items()]
    if not columns.context and saved.context:
        notes.append(
            f"the file has no column {' x '.join(saved.context)}, so that all rows are judged together; name the "
            "contexts with --context"
        )
    fit = AtFit.of(model.baselines, saved.method)
    delta = float(model.parameters.get("delta") or 1.35)
    with progress.step("judging"):
        return evaluation_of(rows, saved.method, task_of(model), fit, dict.fromkeys(methods), confidence, notes, delta)


def _short(codes: NDArray[np.intp]) -> NDArray[Any]:
    """Return codes in half the room."""
    return codes.astype(np.int32)


def _values(saved: SavedModel, own: Any, there: NDArray[np.bool_]) -> list[NDArray[Any]]:
    """Return the numbers of a prediction, one column for each class."""
    if saved.classes is None:
        return [own["prediction"][there]]
    return [own[f"probability[{name}]"][there] for name in saved.classes]


class _Kept:
    """What is kept of all rows."""

    def __init__(self, methods: Sequence[str]) -> None:
        self.n_rows = 0
        self.targets: list[NDArray[Any]] = []
        self.contexts: list[NDArray[Any]] = []
        self.groups: list[NDArray[np.intp]] = []
        self._values: dict[str, list[list[NDArray[Any]]]] = {name: [] for name in methods}
        self._type: Any = np.float64

    def add(self, target: NDArray[Any], values: dict[str, list[NDArray[Any]]]) -> None:
        self.n_rows += len(target)
        self.targets.append(target)
        if self.n_rows > EXACT_ROWS and self._type is np.float64:
            self._type = np.float32
            for pieces in self._values.values():
                pieces[:] = [[column.astype(np.float32) for column in piece] for piece in pieces]
        for name, own in values.items():
            self._values[name].append([column.astype(self._type) for column in own])

    def predicted(self, saved: SavedModel, model: TableModel) -> dict[str, Predicted]:
        """Return predictions, and forget the pieces of them one by one."""
        found: dict[str, Predicted] = {}
        width = 1 if saved.classes is None else len(saved.classes)
        for name in list(self._values):
            pieces = self._values.pop(name)[::-1]
            whole = np.empty((self.n_rows, width), dtype=self._type)
            start = 0
            while pieces:
                piece = pieces.pop()
                for k, column in enumerate(piece):
                    whole[start : start + len(column), k] = column
                start += len(piece[0])
            if saved.classes is None:
                found[name] = Predicted(whole[:, 0], quantile=float(model.quantile or 0.5))
            else:
                found[name] = Predicted(whole, np.array(saved.classes))
        return found
