"""A model of a file: read, sorted, fitted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import encode
from counterpoise.exceptions import CounterpoiseWarning, InvalidInputError
from counterpoise.pooling import choose_pool, find_pool
from counterpoise.reading.data_file import find_column
from counterpoise.tabular.columns import Columns, sort_columns
from counterpoise.tabular.labels import read_labels
from counterpoise.tabular.task import Target, Task, pipeline, read_target

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from counterpoise.pooling import Pool
    from counterpoise.reading import DataFile

T = TypeVar("T")

_FEW = 10
"""Rows below which a context is called small without being asked."""
_LIMIT = 30
"""The limit that is proposed then."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model of a table, and rows by which it can be judged.

    Attributes
    ----------
    model : Pipeline
    columns : Columns
    task : Task
    X : pyarrow.Table
    y, contexts : ndarray of shape (n_kept,)
    groups : ndarray of shape (n_kept,) or None
    n_rows : int
        Rows of the table.
    notes, warned : tuple of str
        What was inferred or left out; what the fit warned about.
    n_fitted : int or None
        How many rows the model was fitted to, where X is a sample of them.
    n_passes : int
        How often rows on disk were gone through to fit the model.
    pool : Pool or None
        Contexts that were pooled, where that was asked for.
    """

    model: Pipeline
    columns: Columns
    task: Task
    X: Any
    y: NDArray[Any]
    contexts: NDArray[Any]
    groups: NDArray[Any] | None
    n_rows: int
    notes: tuple[str, ...]
    warned: tuple[str, ...]
    n_fitted: int | None = None
    n_passes: int = 0
    pool: Pool | None = None


@dataclass(frozen=True, eq=False)
class Problem:
    """What a file says, ready to be fitted.

    Attributes
    ----------
    data : DataFile
    columns : Columns
    target : Target
    X : pyarrow.Table
    y, contexts : ndarray of shape (n_kept,)
    groups : ndarray of shape (n_kept,) or None
        Rows that belong together.
    model : Pipeline
        Not fitted.
    notes : tuple of str
        What was inferred or left out.
    pool : Pool or None
        Contexts that were pooled, where that was asked for.
    """

    data: DataFile
    columns: Columns
    target: Target
    X: Any
    contexts: NDArray[Any]
    groups: NDArray[Any] | None
    model: Pipeline
    notes: tuple[str, ...]
    pool: Pool | None = None

    @property
    def y(self) -> NDArray[Any]:
        """The target."""
        return self.target.values

    def fitted(self) -> tuple[Pipeline, tuple[str, ...]]:
        """Return a fitted copy of the model, and what the fit warned about."""
        from sklearn.base import clone

        return recording(lambda: clone(self.model).fit(self.X, self.y, model__contexts=self.contexts))

    def fit(self) -> Fitted:
        """Return a fitted copy of the model with what it was made from."""
        model, warned = self.fitted()
        found = (self.X, self.y, self.contexts, self.groups)
        said = (self.notes, warned)
        return Fitted(model, self.columns, self.target.task, *found, self.data.n_rows, *said, pool=self.pool)


def pose(
    data: DataFile,
    target: str,
    context: Sequence[str],
    *,
    task: str = "auto",
    drop: Sequence[str] = (),
    only: Sequence[str] = (),
    group: str | None = None,
    pool_below: int | None = None,
    **switches: Any,
) -> Problem:
    """Find features, target, contexts and a model for them in a file.

    Parameters
    ----------
    target : str
        The column to be predicted.
    context : sequence of str
        The columns whose combinations are the contexts; they are no features.
    task : {"auto", "classification", "regression", "count", "quantile", "huber"}
    drop, only : sequences of str
        Columns that are no features; columns that are all the features.
    group : str, optional
        The column that says which rows belong together.
    pool_below : int, optional
        Contexts with fewer rows, or groups where there are any, are pooled; see :func:`counterpoise.pool_rare`.
    **switches
        Of the model: confidence, radius, draws, criterion, alpha, reference, quantile, delta.
    """
    roles = Roles.of(data.path, data.names, target, context, drop, only, group)
    target, context, only = roles.target, roles.context, roles.only
    found = read_target(data, target, task)
    labels = read_labels(data, context, "--context")[found.kept]
    parts = [read_labels(data, [one], "--context")[found.kept] for one in context]
    groups = None if roles.group is None else data.labels(roles.group, "--group")[found.kept]
    contexts = encode(labels)
    check_contexts(context, len(contexts.labels))
    pool = None if pool_below is None else find_pool(labels, pool_below, groups=groups)
    pooled = labels if pool is None else pool.relabel(labels)
    # Neither the contexts as they are nor as they were may come back as a feature.
    columns = sort_columns(data, found.kept, [labels, *parts, *([pooled] if pool else [])], roles.apart, only)
    X = columns.of(data)
    if not found.kept.all():
        X = X.filter(found.kept)
    model = pipeline(columns, found.task, **switches)
    lost = int(np.count_nonzero(~found.kept))
    notes = inference(target, found.task, found.why, lost, data.n_rows, columns)
    notes += rare_notes(pool, contexts.labels, contexts.counts)
    return Problem(data, columns, found, X, pooled, groups, model, notes, pool)


@dataclass(frozen=True)
class Roles:
    """What the columns of a table are for, by their names in the table.

    Attributes
    ----------
    target : str
    context, drop, only : tuple of str
    group : str or None
    """

    target: str
    context: tuple[str, ...]
    drop: tuple[str, ...]
    only: tuple[str, ...]
    group: str | None

    @classmethod
    def of(
        cls,
        path: Path,
        names: Sequence[str],
        target: str,
        context: Sequence[str],
        drop: Sequence[str],
        only: Sequence[str],
        group: str | None,
    ) -> Roles:
        """Find the columns that the user means, and refuse those that are meant twice."""

        # As the file writes them, which may be with blanks around: what is not recognised is not kept apart.
        def found(given: Sequence[str], role: str) -> tuple[str, ...]:
            return tuple(find_column(path, names, one, role) for one in given)

        own = found([] if group is None else [group], "--group")
        roles = cls(
            found([target], "--target")[0],
            found(context, "--context"),
            found(drop, "--drop"),
            found(only, "--only"),
            own[0] if own else None,
        )
        if roles.target in roles.context:
            raise InvalidInputError(f"column {roles.target!r} is both --target and --context. Name different columns.")
        for one in roles.only:
            if one in roles.apart:
                raise InvalidInputError(f"column {one!r} (--only) is the target, a context or dropped, and no feature.")
        return roles

    def needed(self, names: Sequence[str]) -> list[str]:
        """Return the columns of a table that have to be read."""
        own = {self.target, *self.context, *([] if self.group is None else [self.group])}
        return [name for name in names if name in own or (name in self.only if self.only else name not in self.drop)]

    @property
    def apart(self) -> set[str]:
        """Columns that are no features."""
        return {self.target, *self.context, *self.drop} | ({self.group} if self.group is not None else set())


def check_contexts(context: Sequence[str], n_contexts: int) -> None:
    """Refuse a single context."""
    if n_contexts < 2:
        raise InvalidInputError(
            f"{' x '.join(context)} (--context) is the same in every row, so there is one context and nothing to be "
            "robust against. Name another column."
        )


def inference(name: str, task: str, why: str, lost: int, n_rows: int, columns: Columns) -> tuple[str, ...]:
    """Return what was inferred about a table, in words."""
    notes = [f"{task} of {name} ({why})"]
    if lost:
        notes.append(f"{lost:,} of {n_rows:,} rows have no {name} and are left out")
    notes += [f"column {name} is left out: it is {reason}" for name, reason in columns.left_out.items()]
    return tuple(notes)


def rare_notes(pool: Pool | None, labels: NDArray[Any], counts: NDArray[np.integer[Any]]) -> tuple[str, ...]:
    """Say what was pooled, or that there are contexts of very few rows."""
    if pool is not None:
        return (pool.note,)
    n = int(np.count_nonzero(counts < _FEW))
    if n == 0:
        return ()
    said = f"{n:,} context{' has' if n == 1 else 's have'} fewer than {_FEW} rows"
    try:
        helps = choose_pool(labels, counts, lambda pooled: int(counts[pooled].sum()), _LIMIT).members
    except InvalidInputError:
        helps = {}
    remedy = f"--pool-below {_LIMIT} pools {'it with another' if n == 1 else 'them'}" if helps else ""
    return (f"{said}; {remedy or 'little can be said about so few'}",)


def recording(fit: Callable[[], T]) -> tuple[T, tuple[str, ...]]:
    """Return what a fit returns, and what it warned about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CounterpoiseWarning)
        fitted = fit()
    said = [str(warning.message) for warning in caught if issubclass(warning.category, CounterpoiseWarning)]
    return fitted, tuple(dict.fromkeys(said))
