"""What the columns of a table are for, and which of them are features."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.reading import cells
from counterpoise.tables.reading.data_file import find_column
from counterpoise.tables.tabular.dates import PARTS, DateColumn

if TYPE_CHECKING:
    from counterpoise.tables.known_mix import KnownMix
    from counterpoise.tables.reading import DataFile

MOST_CATEGORIES = 50
"""Categories of a column that are told apart; rarer ones share one."""

LARGEST = 1e50


@dataclass(frozen=True)
class Columns:
    """The features of a table.

    Attributes
    ----------
    numbers, categories : tuple of str
        What is made of dates is among them, by names such as ``when: month``.
    left_out : mapping from column to reason
    dates : tuple of DateColumn
        Columns of dates from which features are made.
    coded : tuple of str
        Categories that are asked for as such, whatever they hold: a number is the same category however it is written.
    """

    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    dates: tuple[DateColumn, ...] = ()
    coded: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """All that is used."""
        return (*self.numbers, *self.categories)

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of a table that the features are made of."""
        return self.sources_of(self.features)

    def sources_of(self, features: Collection[str]) -> tuple[str, ...]:
        """Return the columns of a table that some features are made of."""
        made = {name: one.column for one in self.dates for name in one.names.values()}
        return tuple(dict.fromkeys(made.get(name, name) for name in features))

    def of(self, data: DataFile, only: Collection[str] | None = None) -> Any:
        """Return the features of a file as a ``pyarrow.Table``: floats and text, with what is missing left missing.

        Parameters
        ----------
        only : collection of str, optional
            Fewer of them.
        """
        import pyarrow as pa

        own = self.features if only is None else [name for name in self.features if name in only]
        made: dict[str, Any] = {}
        for date in self.dates:
            made |= date.features(data, own)

        def column(name: str) -> Any:
            if name in made:
                return made[name]
            if name in self.numbers:
                return pa.array(sane(data, name, data.numbers(name, allow_missing=True, allow_strays=True)))
            return codes(data, name) if name in self.coded else data.texts(name)

        return pa.table({name: column(name) for name in own})


def codes(data: DataFile, name: str) -> Any:
    """Return a column as text in which a number is written one way: 7 for 07 and for 7.0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = data.texts(name)
    values, missing = cells.numbers(texts, comma=False)
    if missing.all() or np.isnan(values).all():
        return texts
    numbers = pa.chunked_array([pa.array(values, from_pandas=True)])
    return pc.coalesce(cells.texts(numbers, numbers), texts)


def sane(data: DataFile, name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return numbers whose squares and sums are numbers too, or name the one that is too large."""
    large = np.flatnonzero(np.abs(values) > LARGEST)
    if large.size:
        raise InvalidInputError(
            f"column {name!r} of {data.path.name} holds {values[large[0]]:g} in {data.row_name(int(large[0]))}, which "
            "is beyond what can be computed with. Rescale the column, or drop it."
        )
    return values


def chosen(path: Path, kinds: Mapping[str, tuple[str, str]], asked: Asked, dates: Sequence[DateColumn] = ()) -> Columns:
    """Return the features of a file, or say why there are none.

    Parameters
    ----------
    kinds : mapping from feature to what it is and, where it is nothing, why
    dates : sequence of DateColumn
        From which some of them are made.
    """
    unusable = {name: reason for name, (kind, reason) in kinds.items() if not kind}
    for name in (*asked.only, *asked.category):
        if name in unusable:
            raise InvalidInputError(f"column {name!r} cannot be a feature: it is {unusable[name]}.")
    numbers, categories = (
        tuple(name for name, (one, _) in kinds.items() if one == kind) for kind in ("number", "category")
    )
    used = {*numbers, *categories}
    kept = [replace(one, parts=tuple(part for part, name in one.names.items() if name in used)) for one in dates]
    coded = tuple(name for name in categories if name in asked.category)
    columns = Columns(numbers, categories, unusable, tuple(one for one in kept if one.parts), coded)
    if not columns.features:
        said = "; ".join(f"{name}: {reason}" for name, reason in list(unusable.items())[:10])
        raise InvalidInputError(f"{path.name} has no column that can be a feature{f' ({said})' if said else ''}.")
    return columns


@dataclass(frozen=True)
class Asked:
    """What is asked of a table: what its columns are for, and which model is to be made of them.

    Attributes
    ----------
    target : str
        The column to be predicted.
    context : tuple of str
        The columns whose combinations are the contexts; they are no features.
    task : {"auto", "classification", "regression", "count", "quantile", "huber"}
    drop, only : tuple of str
        Columns that are no features; columns that are all the features.
    group : str or None
        The column that says which rows belong together.
    time : str or None
        The column that says when a row was; it is no feature.
    pool_below : int or None
        Contexts with fewer rows, or groups where there are any, are pooled; see :func:`counterpoise.pool_rare`.
    min_rows : int or None
        Contexts with fewer rows, or groups where there are any, are not used at all.
    date : tuple of DateColumn
        Columns of dates from which features are made; text becomes one, see :meth:`DateColumn.of`.
    category : tuple of str
        Columns that are categories even where they hold numbers.
    log_target : bool
        Whether the logarithm of the target is modelled.
    switches : mapping
        Of the model: confidence, radius, draws, criterion, alpha, reference, adjust, quantile, delta. Without draws
        they follow from groups or times, where these are named; ``"rows"`` counts every row.
    known_mix : KnownMix or None
        What is known about the mix; it becomes a switch once the contexts are known.
    """

    target: str
    context: tuple[str, ...]
    task: str = "auto"
    drop: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    group: str | None = None
    time: str | None = None
    pool_below: int | None = None
    min_rows: int | None = None
    date: tuple[DateColumn, ...] = ()
    category: tuple[str, ...] = ()
    log_target: bool = False
    switches: Mapping[str, Any] = field(default_factory=dict)
    known_mix: KnownMix | None = None

    @classmethod
    def of(cls, target: str, context: Sequence[str], **options: Any) -> Asked:
        """Return what is asked for by these attributes, and by switches of the model."""
        own = {one.name: options.pop(one.name) for one in fields(cls) if one.name in options}
        for name in ("drop", "only", "category"):
            own[name] = tuple(own.get(name) or ())
        dates = own.pop("date", None) or ()
        own["date"] = tuple(DateColumn.of(one) if isinstance(one, str) else one for one in dates)
        return cls(target, tuple(context), switches=options, **own)

    def found_in(self, path: Path, names: Sequence[str]) -> Asked:
        """Return the same with columns as the file names them, and refuse those that are meant twice."""

        # As the file writes them, which may be with blanks around: what is not recognised is not kept apart.
        def found(role: str, *given: str) -> tuple[str, ...]:
            return tuple(find_column(path, names, one, role) for one in given)

        asked = replace(
            self,
            group=None if self.group is None else found("--group", self.group)[0],
            time=None if self.time is None else found("--time", self.time)[0],
            target=found("--target", self.target)[0],
            context=found("--context", *self.context),
            drop=found("--drop", *self.drop),
            only=found("--only", *self.only),
            category=found("--category", *self.category),
            date=tuple(_found_date(path, names, one) for one in self.date),
        )
        if asked.target in asked.context:
            raise InvalidInputError(f"column {asked.target!r} is both --target and --context. Name different columns.")
        for role, one in (("--group", asked.group), ("--time", asked.time)):
            if one == asked.target:
                raise InvalidInputError(f"column {one!r} is both --target and {role}. Name different columns.")
        for one in asked.only:
            if one in asked.apart - {date.column for date in asked.date}:
                raise InvalidInputError(f"column {one!r} (--only) is the target, a context or dropped, and no feature.")
        asked.refuse_contradictions(names)
        return asked

    def refuse_contradictions(self, names: Sequence[str]) -> None:
        """Refuse what cannot be meant together."""
        dates = [one.column for one in self.date]
        for role, columns, others in (
            ("--category", self.category, {"--group": (self.group,), "--time": (self.time,), "--date": dates}),
            ("--date", dates, {}),
        ):
            others = {"--target": (self.target,), "--context": self.context, "--drop": self.drop, **others}
            for one in columns:
                twice = next((other for other, own in others.items() if one in own), None)
                if twice is not None:
                    remedy = "Pass --task classification to predict classes." if twice == "--target" else "Choose one."
                    raise InvalidInputError(f"column {one!r} is both {role} and {twice}. {remedy}")
                if self.only and one not in self.only:
                    raise InvalidInputError(f"column {one!r} ({role}) is not among --only. Add --only {one}.")
                if list(columns).count(one) > 1:
                    raise InvalidInputError(f"column {one!r} is named twice by {role}. Name it once.")
        for date in self.date:
            for name in date.names.values():
                if name in names:
                    raise InvalidInputError(
                        f"column {date.column!r} (--date) would become a feature {name!r}, and there is a column of "
                        "that name. Rename it."
                    )
        if self.min_rows is not None and self.pool_below is not None and self.min_rows >= self.pool_below:
            raise InvalidInputError(
                f"--min-rows {self.min_rows} leaves out every context that --pool-below {self.pool_below} would pool. "
                "Pass one of them, or fewer --min-rows than --pool-below."
            )

    @property
    def roles(self) -> set[str]:
        """Columns that are read, and are no features."""
        return {self.target, *self.context} | {one for one in (self.group, self.time) if one is not None}

    @property
    def model_switches(self) -> dict[str, Any]:
        """The switches as a model takes them, to which counting rows is nothing special."""
        rows = {"draws": None} if self.switches.get("draws") == "rows" else {}
        return {**self.switches, **rows}

    @property
    def apart(self) -> set[str]:
        """Columns that are no features."""
        return self.roles | set(self.drop)

    def candidates(self, names: Sequence[str]) -> list[str]:
        """Return the columns of a table that may be features as they are."""
        apart = self.apart | {one.column for one in self.date}
        return [name for name in names if name not in apart and (not self.only or name in self.only)]

    def needed(self, names: Sequence[str]) -> list[str]:
        """Return the columns of a table that have to be read."""
        wanted = {*self.candidates(names), *self.roles, *(one.column for one in self.date)}
        return [name for name in names if name in wanted]


def _found_date(path: Path, names: Sequence[str], date: DateColumn) -> DateColumn:
    """Return a column of dates as the file names it."""
    head, _, parts = date.column.rpartition("=")
    if head in names and date.column not in names:
        raise InvalidInputError(
            f"--date is {date.column!r:.60}; of a date the parts are {', '.join(PARTS)}, not {parts!r:.60}."
        )
    return replace(date, column=find_column(path, names, date.column, "--date"))
