"""What the columns of a table are for, and which of them are features."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.reading.data_file import find_column

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
    left_out : mapping from column to reason
    """

    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def features(self) -> tuple[str, ...]:
        """All that is used."""
        return (*self.numbers, *self.categories)

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of a table that the features are made of."""
        return self.features

    def of(self, data: DataFile, only: Collection[str] | None = None) -> Any:
        """Return the features of a file as a ``pyarrow.Table``: floats and text, with what is missing left missing.

        Parameters
        ----------
        only : collection of str, optional
            Fewer of them.
        """
        import pyarrow as pa

        own = self.features if only is None else [name for name in self.features if name in only]
        return pa.table(
            {
                name: pa.array(sane(data, name, data.numbers(name, allow_missing=True)))
                if name in self.numbers
                else data.texts(name)
                for name in own
            }
        )


def sane(data: DataFile, name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return numbers whose squares and sums are numbers too, or name the one that is too large."""
    large = np.flatnonzero(np.abs(values) > LARGEST)
    if large.size:
        raise InvalidInputError(
            f"column {name!r} of {data.path.name} holds {values[large[0]]:g} in {data.row_name(int(large[0]))}, which "
            "is beyond what can be computed with. Rescale the column, or drop it."
        )
    return values


def chosen(path: Path, kinds: Mapping[str, tuple[str, str]], only: Collection[str]) -> Columns:
    """Return the features of a file, or say why there are none."""
    unusable = {name: reason for name, (kind, reason) in kinds.items() if not kind}
    for name in only:
        if name in unusable:
            raise InvalidInputError(f"column {name!r} cannot be a feature: it is {unusable[name]}.")
    numbers, categories = (
        tuple(name for name, (one, _) in kinds.items() if one == kind) for kind in ("number", "category")
    )
    columns = Columns(numbers, categories, unusable)
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
    switches: Mapping[str, Any] = field(default_factory=dict)
    known_mix: KnownMix | None = None

    @classmethod
    def of(cls, target: str, context: Sequence[str], **options: Any) -> Asked:
        """Return what is asked for by these attributes, and by switches of the model."""
        own = {one.name: options.pop(one.name) for one in fields(cls) if one.name in options}
        asked = cls(target, tuple(context), switches=options, **own)
        return replace(asked, drop=tuple(asked.drop), only=tuple(asked.only))

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
        )
        if asked.target in asked.context:
            raise InvalidInputError(f"column {asked.target!r} is both --target and --context. Name different columns.")
        for role, one in (("--group", asked.group), ("--time", asked.time)):
            if one == asked.target:
                raise InvalidInputError(f"column {one!r} is both --target and {role}. Name different columns.")
        for one in asked.only:
            if one in asked.apart:
                raise InvalidInputError(f"column {one!r} (--only) is the target, a context or dropped, and no feature.")
        return asked

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
        """Return the columns of a table that may be features."""
        return [name for name in names if name not in self.apart and (not self.only or name in self.only)]

    def needed(self, names: Sequence[str]) -> list[str]:
        """Return the columns of a table that have to be read."""
        candidates = self.candidates(names)
        return [name for name in names if name in self.roles or name in candidates]
