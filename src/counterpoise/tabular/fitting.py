"""A model of a file: read, sorted, fitted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import CounterpoiseWarning, InvalidInputError
from counterpoise.tabular.columns import Columns, sort_columns
from counterpoise.tabular.labels import read_labels
from counterpoise.tabular.task import Target, pipeline, read_target

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from counterpoise.reading import DataFile


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
    """

    data: DataFile
    columns: Columns
    target: Target
    X: Any
    contexts: NDArray[Any]
    groups: NDArray[Any] | None
    model: Pipeline
    notes: tuple[str, ...]

    @property
    def y(self) -> NDArray[Any]:
        """The target."""
        return self.target.values

    def fitted(self) -> tuple[Pipeline, tuple[str, ...]]:
        """Return a fitted copy of the model, and what the fit warned about."""
        from sklearn.base import clone

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CounterpoiseWarning)
            model = clone(self.model).fit(self.X, self.y, model__contexts=self.contexts)
        said = [str(warning.message) for warning in caught if issubclass(warning.category, CounterpoiseWarning)]
        return model, tuple(dict.fromkeys(said))


def pose(
    data: DataFile,
    target: str,
    context: Sequence[str],
    *,
    task: str = "auto",
    drop: Sequence[str] = (),
    only: Sequence[str] = (),
    group: str | None = None,
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
    **switches
        Of the model: confidence, radius, draws, score, alpha, reference, quantile, delta.
    """
    # As the file writes them, which may be with blanks around: what is not recognised is not kept apart.
    target, context = data.name(target, "--target"), [data.name(one, "--context") for one in context]
    drop, only = [data.name(one, "--drop") for one in drop], [data.name(one, "--only") for one in only]
    group = None if group is None else data.name(group, "--group")
    apart = {target, *context, *drop} | ({group} if group is not None else set())
    if target in context:
        raise InvalidInputError(f"column {target!r} is both --target and --context. Name different columns.")
    for one in only:
        if one in apart:
            raise InvalidInputError(f"column {one!r} (--only) is the target, a context or dropped, and no feature.")
    found = read_target(data, target, task)
    labels = read_labels(data, context, "--context")
    parts = [read_labels(data, [one], "--context")[found.kept] for one in context]
    grouped = None if group is None else data.labels(group, "--group")
    columns = sort_columns(data, found.kept, [labels[found.kept], *parts], apart, only)
    X = columns.of(data)
    if not found.kept.all():
        X = X.filter(found.kept)
    labels = labels[found.kept]
    if len(set(labels.tolist())) < 2:
        raise InvalidInputError(
            f"{' x '.join(context)} (--context) is the same in every row, so there is one context and nothing to be "
            "robust against. Name another column."
        )
    model = pipeline(columns, found.task, **switches)
    notes = tuple(_notes(data, target, found, columns))
    return Problem(data, columns, found, X, labels, None if grouped is None else grouped[found.kept], model, notes)


def _notes(data: DataFile, name: str, target: Target, columns: Columns) -> list[str]:
    notes = [f"{target.task} of {name} ({target.why})"]
    lost = int(np.count_nonzero(~target.kept))
    if lost:
        notes.append(f"{lost:,} of {data.n_rows:,} rows have no {name} and are left out")
    notes += [f"column {name} is left out: it is {reason}" for name, reason in columns.left_out.items()]
    return notes
