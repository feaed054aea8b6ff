"""A model from a folder, judged on a table of any size: rows are read and predicted some at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
from counterpoise.judging.units import MANY_ROWS
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

_FIRST = 100_000
"""Rows that there is room for at first."""


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
        check_contexts(saved, context)
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


def check_contexts(saved: SavedModel, context: Sequence[str]) -> None:
    """Refuse another number of columns than the contexts of the fit were made of."""
    if context and len(context) != len(saved.context):
        raise InvalidInputError(
            f"contexts were made of {len(saved.context)} column{'s' * (len(saved.context) != 1)} in the fit "
            f"({', '.join(saved.context)}), and --context names {len(context)}. Name as many, in that order."
        )


def evaluate_table(
    saved: SavedModel, table: TableOnDisk, columns: JudgedColumns, progress: Progress, confidence: float = 0.95
) -> Evaluation:
    """Judge a model on a table; see :func:`counterpoise.evaluate`.

    Only predictions, targets and the codes of contexts and groups are in memory for all rows.
    """
    import pyarrow as pa

    model = TableModel(saved)
    methods = [saved.method, *(name for name in saved.methods if name != saved.method)]
    sources = [find_column(table.path, table.names, name) for name in saved.columns.sources]
    needed = list(dict.fromkeys([*sources, *columns.all]))
    kept = _Kept(saved, methods)
    contexts, groups = SeenLabels(columns.context, "--context", saved.context[: len(columns.context)]), None
    if columns.group is not None:
        groups = SeenLabels((columns.group,), "--group")
    unknown, n_read = Counter[str](), 0
    with progress.step("predicting") as done:
        read = 0
        for piece in predicted(saved, table.only(needed), methods, needed):
            target, there = target_of(saved, piece.data, columns.target)
            kept.add(target, piece.predictions, there)
            kept.add_labels(
                contexts.look(piece.data)[0][there] if columns.context else None,
                None if groups is None else groups.look(piece.data)[0][there],
            )
            unknown.update(piece.unknown)
            n_read += piece.data.n_rows
            read += piece.data.raw.nbytes
            done(min(read / max(table.size, 1), 1.0))
    # What reading took is of use to what follows.
    pa.default_memory_pool().release_unused()
    if not kept.n_rows:
        raise InvalidInputError(
            f"column {columns.target!r} of {table.path.name} (--target) is empty in every row, so there is nothing to "
            "judge by."
        )
    named = encode(model.as_fitted(contexts.labels)) if columns.context else None
    rows = kept.rows(named, float(model.quantile or 0.5), n_read)
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


class _Column:
    """Numbers of which more and more arrive; they are in memory once."""

    def __init__(self, shape: tuple[int, ...], kind: Any) -> None:
        self._whole: NDArray[Any] = np.empty((0, *shape), dtype=kind)
        self.n_rows = 0

    def add(self, columns: Sequence[NDArray[Any]]) -> None:
        """Add rows, given column by column."""
        n = self.n_rows + len(columns[0])
        if n > len(self._whole):
            # By little: large arrays grow without being copied, but what is not used yet takes memory too.
            self._whole.resize((max(n, 9 * len(self._whole) // 8, _FIRST), *self._whole.shape[1:]), refcheck=False)
        part = self._whole[self.n_rows : n]
        for k, column in enumerate(columns):
            part[..., k] = column
        self.n_rows = n

    def shorten(self) -> None:
        """Keep numbers in half the room."""
        whole = np.empty(self._whole.shape, dtype=np.float32)
        whole[: self.n_rows] = self._whole[: self.n_rows]
        self._whole = whole

    @property
    def whole(self) -> NDArray[Any]:
        """All of them."""
        return self._whole[: self.n_rows]


class _Kept:
    """What is kept of all rows."""

    def __init__(self, saved: SavedModel, methods: Sequence[str]) -> None:
        self._saved = saved
        width = 1 if saved.classes is None else len(saved.classes)
        self._target = _Column((1,), np.float64 if saved.classes is None else np.int16)
        self._contexts, self._groups = _Column((1,), np.int32), _Column((1,), np.int32)
        self._values = {name: _Column((width,), np.float64) for name in methods}

    @property
    def n_rows(self) -> int:
        """Rows with a target."""
        return self._target.n_rows

    def add(self, target: NDArray[Any], values: Mapping[str, Mapping[str, NDArray[Any]]], there: NDArray[Any]) -> None:
        """Add rows of which some have a target."""
        classes = self._saved.classes
        names = ["prediction"] if classes is None else [f"probability[{one}]" for one in classes]
        exact = self.n_rows <= EXACT_ROWS
        self._target.add([target[there]])
        for method, own in values.items():
            self._values[method].add([own[name][there] for name in names])
        if exact and self.n_rows > EXACT_ROWS:
            for column in self._values.values():
                column.shorten()

    def add_labels(self, contexts: NDArray[np.intp] | None, groups: NDArray[np.intp] | None) -> None:
        """Add the codes of the same rows."""
        for column, codes in ((self._contexts, contexts), (self._groups, groups)):
            if codes is not None:
                column.add([codes])

    @property
    def _group_codes(self) -> NDArray[np.intp] | None:
        if not self._groups.n_rows:
            return None
        codes = self._groups.whole[:, 0]
        # Products of few may be too large for short integers; of many, no products are taken as they are.
        return codes.astype(np.intp) if len(codes) <= MANY_ROWS else codes

    def rows(self, contexts: Contexts | None, quantile: float, n_read: int) -> Rows:
        """Return all rows.

        Parameters
        ----------
        contexts : Contexts or None
            Of codes.
        """
        classes = None if self._saved.classes is None else np.array(self._saved.classes)
        found = {
            name: Predicted(own.whole[:, 0] if classes is None else own.whole, classes, quantile=quantile)
            for name, own in self._values.items()
        }
        if contexts is not None:
            place = contexts.codes.astype(np.int32)
            contexts = Contexts(contexts.labels, place[self._contexts.whole[:, 0]])
        return Rows(
            found,
            self._target.whole[:, 0],
            contexts,
            self._group_codes,
            # All alike, and one number in memory.
            np.broadcast_to(np.ones(1), (self.n_rows,)),
            n_without_target=n_read - self.n_rows,
        )
