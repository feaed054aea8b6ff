"""A model of a table in memory: what it says, and the fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import encode
from counterpoise.exceptions import CounterpoiseWarning
from counterpoise.judging.known_contexts import why_known
from counterpoise.sets import RadiusMethod, confidence_radius
from counterpoise.tables.reading import DataFile, read_table
from counterpoise.tables.tabular.columns import Asked
from counterpoise.tables.tabular.seen_draws import check_moments, natural
from counterpoise.tables.tabular.small_contexts import SmallContexts
from counterpoise.tables.tabular.survey import Budget, Findings, Rows, Survey
from counterpoise.tables.tabular.task import pipeline
from counterpoise.threads import suited

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

T = TypeVar("T")

_SEED = 0


class Progress(Protocol):
    """Who hears what is going on."""

    def step(self, words: str) -> AbstractContextManager[Callable[[float], None]]:
        """Hear what is being done, while it is, and by what is returned which fraction of it is."""

    def note(self, *notes: str) -> None:
        """Hear what the user may want to know."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledRows(Findings):
    """What a table says, and rows of it.

    Attributes
    ----------
    X : pyarrow.Table
    y, contexts : ndarray of shape (n_rows,)
    groups : ndarray of shape (n_rows,) or None
        Rows that belong together.
    times : ndarray of shape (n_rows,) or None
        When they were: dates or numbers.
    """

    X: Any
    y: NDArray[Any]
    contexts: NDArray[Any]
    groups: NDArray[Any] | None
    times: NDArray[Any] | None = None

    def suited(self) -> AbstractContextManager[None]:
        """Use as many threads as serve rows of this size."""
        return suited(self.X.num_rows * self.X.num_columns)

    @property
    def why_known(self) -> str | None:
        """Why the context is probably known when predicting, by all rows; None where nothing speaks for that."""
        return why_known(self.coding.labels, self.coding.counts, " x ".join(self.asked.context))

    @property
    def ties(self) -> list[str]:
        """Say that rows of one time count apart, where there are such rows and no groups were named."""
        if self.times is None or self.groups is not None or len(np.unique(self.times)) > 0.9 * len(self.times):
            return []
        name = self.asked.time
        return [f"rows of one {name} count as independent in intervals; --group {name} counts them as one"]

    def sample(self, most: int) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]:
        """Return X, y, contexts, groups and times of at most so many rows, drawn at random, always the same ones."""
        columns = (self.y, self.contexts, self.groups, self.times)
        if len(self.y) <= most:
            return self.X, *columns
        rows = np.sort(np.random.default_rng(_SEED).choice(len(self.y), most, replace=False))
        return self.X.take(rows), *(None if column is None else column[rows] for column in columns)


def labelled(found: Findings, rows: Rows) -> dict[str, Any]:
    """Return the attributes of :class:`LabelledRows`: classes and contexts of rows by their names."""
    y, contexts = found.target.named(rows.target), found.coding.named(rows.contexts)
    times = None if rows.times is None else _moments(rows.times, found)
    return {
        **found.facts(Findings),
        "X": rows.X,
        "y": y,
        "contexts": contexts,
        "groups": rows.groups,
        "times": times,
    }


def _moments(times: NDArray[Any], found: Findings) -> NDArray[Any]:
    """Return when rows were, as dates or numbers."""
    distinct = encode(times, role="time")
    check_moments(distinct.labels, f"column {found.asked.time!r} (--time)")
    return natural(distinct.labels)[distinct.codes]


@dataclass(frozen=True, eq=False, kw_only=True)
class Fitted(LabelledRows):
    """A model of a table, and rows by which it can be judged.

    Attributes
    ----------
    model : Pipeline
    warned : tuple of str
        What the fit warned about.
    n_fitted : int or None
        How many rows the model was fitted to, where the rows here are a sample of them.
    n_passes : int
        How often rows on disk were gone through to fit the model.
    """

    model: Pipeline
    warned: tuple[str, ...]
    n_fitted: int | None = None
    n_passes: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem(LabelledRows):
    """What a table in memory says, with the rows that have a target, ready to be fitted.

    Attributes
    ----------
    data : DataFile
        Without the rows of contexts that are not used.
    kept : ndarray of bool of shape (n_rows,)
        Rows that have a target.
    model : Pipeline
        Not fitted.
    """

    data: DataFile
    kept: NDArray[np.bool_]
    model: Pipeline

    def sized_by_all(self) -> Pipeline:
        """Return the model for a sample of the rows: with a set of the size that all of them give it."""
        from sklearn.base import clone

        own = self.model.named_steps["model"]
        radius: Any = own.radius
        if not isinstance(radius, str) or own.mix is not None:
            return self.model
        bits = confidence_radius(self.coding.counts, own.confidence, cast(RadiusMethod, radius), draws=own.draws)
        return clone(self.model).set_params(model__radius=bits, model__draws=None)

    def fitted(self) -> tuple[Pipeline, tuple[str, ...]]:
        """Return a fitted copy of the model, and what the fit warned about."""
        from sklearn.base import clone

        return recording(lambda: clone(self.model).fit(self.X, self.y, model__contexts=self.contexts))

    def fit(self) -> Fitted:
        """Return a fitted copy of the model with what it was made from."""
        model, warned = self.fitted()
        return Fitted(**self.facts(LabelledRows), model=model, warned=warned)


def pose(data: DataFile, target: str, context: Sequence[str], **options: Any) -> Problem:
    """Find features, target, contexts and a model for them in a table.

    Parameters
    ----------
    target, context, **options
        See :class:`counterpoise.tables.tabular.columns.Asked`; switches of the model are given one by one.
    """
    return problem_of(data, Asked.of(target, context, **options).found_in(data.path, data.names))


def problem_of(data: DataFile, asked: Asked) -> Problem:
    """Do the same; what is asked names the columns as the table does."""
    small = None if asked.min_rows is None else SmallContexts.among([data], asked)
    found = Survey(data.path, data.names, asked, Budget(), small).look([data])
    data = found.used(data)
    rows, kept = found.rows(data)
    model = pipeline(found.columns, found.task, **found.switches)
    return Problem(**labelled(found, rows), data=data, kept=kept, model=model)


def read_problem(file: Path, asked: Asked, progress: Progress) -> Problem:
    """Read a table, and tell what was found in it."""
    with progress.step("reading"):
        data = read_table(file)
        problem = problem_of(data, asked.found_in(data.path, data.names))
    progress.note(*problem.notes)
    return problem


def recording(fit: Callable[[], T]) -> tuple[T, tuple[str, ...]]:
    """Return what a fit returns, and what it warned about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CounterpoiseWarning)
        fitted = fit()
    said = [str(warning.message) for warning in caught if issubclass(warning.category, CounterpoiseWarning)]
    return fitted, tuple(dict.fromkeys(said))
