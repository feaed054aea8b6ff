"""New rows of a table for the watch of a model: their contexts, and their losses where targets are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Agreement, objects
from counterpoise.exceptions import InvalidInputError, NoRowsError
from counterpoise.judging.at_fit import watch_losses
from counterpoise.judging.measures import Judged, Predicted, task_of
from counterpoise.tables.reading.data_file import find_column
from counterpoise.tables.tabular.evaluating import check_contexts
from counterpoise.tables.tabular.labels import SeenLabels
from counterpoise.tables.tabular.seen_draws import check_moments, natural
from counterpoise.tables.tabular.streaming import pieces, predicted, target_of
from counterpoise.tables.tabular.table_model import TableModel

if TYPE_CHECKING:
    from counterpoise.tables.reading import DataFile, TableOnDisk
    from counterpoise.tables.tabular.fitting import Progress
    from counterpoise.tables.tabular.saved import SavedModel

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

_SPAN = np.timedelta64(2, "D")
"""Times finer than days that span more than this are taken day by day."""


@dataclass(frozen=True)
class WatchedColumns:
    """What the columns of a table are for by which a model is watched, as the table names them.

    Attributes
    ----------
    context : tuple of str
    target : str or None
        None where it is not known yet how rows turned out.
    group : str or None
        Rows that belong together.
    time : str or None
    """

    context: tuple[str, ...]
    target: str | None = None
    group: str | None = None
    time: str | None = None

    @classmethod
    def of(
        cls,
        saved: SavedModel,
        table: TableOnDisk,
        *,
        target: str | None = None,
        context: Sequence[str] = (),
        group: str | None = None,
        time: str | None = None,
    ) -> WatchedColumns:
        """Find columns that are named, or those of the fit.

        A table without the target of the fit has none, unless another column is named.
        """
        check_contexts(saved, context)
        if not saved.context:
            raise InvalidInputError("the model does not know the columns of its contexts. Fit it again.")
        there = {name.strip() for name in table.names}

        def found(role: str, name: str | None) -> str | None:
            return None if name is None else find_column(table.path, table.names, name, role)

        own = saved.target if target is None and saved.target.strip() in there else target
        return cls(
            tuple(find_column(table.path, table.names, name, "--context") for name in context or saved.context),
            found("--target", own),
            found("--group", group),
            found("--time", time),
        )

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.context, *(one for one in (self.target, self.group, self.time) if one is not None))


@dataclass(frozen=True, eq=False)
class NewRows:
    """What a watch is told of a table.

    Attributes
    ----------
    labels : ndarray
        Of contexts, as the fit called them.
    contexts : ndarray of shape (n_rows,)
        Their codes.
    losses : ndarray of shape (n_rows,) or None
    group_labels, groups : ndarray or None
    times : ndarray or None
        Dates, times or numbers, in order.
    moments : ndarray of shape (n_rows,) or None
        Which of them each row has.
    notes : tuple of str
    """

    labels: NDArray[Any]
    contexts: Codes
    losses: Array | None
    group_labels: NDArray[Any] | None
    groups: Codes | None
    times: NDArray[Any] | None
    moments: Codes | None
    notes: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """Rows, with a target or without."""
        return len(self.contexts)

    @property
    def update(self) -> dict[str, Any]:
        """What :meth:`counterpoise.Watch.update` is told: contexts and times row by row, losses and groups if known."""
        groups = None if self.groups is None or self.group_labels is None else self.group_labels[self.groups]
        times = None if self.times is None or self.moments is None or not self.n_rows else self.times[self.moments]
        return {"contexts": self.labels[self.contexts], "losses": self.losses, "groups": groups, "time": times}


def new_rows(saved: SavedModel, table: TableOnDisk, columns: WatchedColumns, progress: Progress) -> NewRows:
    """Read what a watch is told of a table, some rows at a time.

    Where the target is known, rows are predicted; else nothing but contexts, groups and times is read. Of all rows only
    codes and losses are in memory.
    """
    model = TableModel(saved)
    contexts = SeenLabels(columns.context, "--context", saved.context[: len(columns.context)])
    groups, times = Agreement(), Agreement()
    codes: dict[str, list[NDArray[Any]]] = {"contexts": [], "losses": [], "groups": [], "times": []}
    unknown, n_missing = Counter[str](), 0
    with progress.step("reading the rows" if columns.target is None else "predicting") as done:
        read = 0
        for data, losses, own in _pieces(saved, model, table, columns):
            codes["contexts"].append(contexts.look(data)[0].astype(np.int32))
            for name, column, seen in (("groups", columns.group, groups), ("times", columns.time, times)):
                if column is not None:
                    values, places = data.coded_labels(column, f"--{name[:-1]}")
                    codes[name].append(seen.codes(objects(values[:-1]))[places].astype(np.int32))
            if losses is not None:
                codes["losses"].append(losses)
                n_missing += int(np.isnan(losses).sum())
            unknown.update(own)
            read += data.raw.nbytes
            done(min(read / max(table.size, 1), 1.0))

    def joined(name: str, kind: Any) -> NDArray[Any]:
        return np.concatenate([np.empty(0, dtype=kind), *codes[name]])

    n_rows = sum(map(len, codes["contexts"]))
    notes = [f"{n:,} of {n_rows:,} rows have a {name} that the model has not seen" for name, n in unknown.items()]
    if n_missing:
        notes.append(f"{n_missing:,} of {n_rows:,} rows have no {columns.target} yet, and count for the mix alone")
    distinct, moments = None, None
    if columns.time is not None:
        if n_rows:
            check_moments(times.labels, f"column {columns.time!r} of {table.path.name} (--time)")
        distinct, place = _in_order(times.labels if n_rows else objects([]))
        moments = place[joined("times", np.int32)]
    return NewRows(
        model.as_fitted(contexts.labels) if n_rows else objects([]),
        joined("contexts", np.int32),
        None if columns.target is None else joined("losses", np.float64),
        None if columns.group is None else groups.labels if n_rows else objects([]),
        None if columns.group is None else joined("groups", np.int32),
        distinct,
        moments,
        tuple(notes),
    )


def _pieces(
    saved: SavedModel, model: TableModel, table: TableOnDisk, columns: WatchedColumns
) -> Iterator[tuple[DataFile, Array | None, dict[str, int]]]:
    """Yield some rows at a time, their losses, and which categories the model has not seen in how many of them."""
    try:
        if columns.target is None:
            needed = list(dict.fromkeys(columns.all))
            for data in pieces(table.only(needed), needed):
                yield data, None, {}
            return
        sources = [find_column(table.path, table.names, name) for name in saved.columns.sources]
        needed = list(dict.fromkeys([*sources, *columns.all]))
        for piece in predicted(saved, table.only(needed), typed=needed):
            yield (
                piece.data,
                _losses(saved, model, piece.data, columns.target, piece.predictions[saved.method]),
                dict(piece.unknown),
            )
    except NoRowsError:
        # A day on which nothing came is a day all the same.
        return


def _losses(saved: SavedModel, model: TableModel, data: DataFile, target: str, found: Any) -> Array:
    """Return the loss of each row; NaN where it has no target."""
    values, there = target_of(saved, data, target)
    classes = None if saved.classes is None else np.array(saved.classes)
    if classes is None:
        own = Predicted(found["prediction"], quantile=float(model.quantile or 0.5))
    else:
        own = Predicted(np.column_stack([found[f"probability[{name}]"] for name in saved.classes or ()]), classes)
    losses = np.full(data.n_rows, np.nan)
    if there.any():
        delta = float(model.parameters.get("delta") or 1.35)
        losses[there] = watch_losses(task_of(model), Judged(values[there], own.rows(there)), delta)
    return losses


def _in_order(labels: NDArray[Any]) -> tuple[NDArray[Any], Codes]:
    """Return the times among labels in order, and the place of each label among them.

    Times finer than days that span more than two days are taken day by day.
    """
    moments = natural(labels)
    if moments.dtype.kind == "M" and len(moments):
        days = moments.astype("M8[D]")
        if (days == moments).all() or moments.max() - moments.min() > _SPAN:
            moments = days
    elif moments.dtype.kind == "f" and (moments == np.floor(moments)).all() and (np.abs(moments) < 2.0**53).all():
        moments = moments.astype(np.int64)
    times, place = np.unique(moments, return_inverse=True)
    return times, place.reshape(-1)
