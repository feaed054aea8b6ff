"""What a table says: a pass over its rows finds features, task and contexts; a table in memory passes in one piece."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import encode, objects
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import Mix
from counterpoise.tables.pooling import Pool, choose_pool
from counterpoise.tables.reading import cells
from counterpoise.tables.tabular.columns import Asked, Columns, chosen, sane
from counterpoise.tables.tabular.draw_search import DrawSearch
from counterpoise.tables.tabular.labels import SeenLabels
from counterpoise.tables.tabular.medians import Medians
from counterpoise.tables.tabular.seen import Moments, SeenColumn
from counterpoise.tables.tabular.seen_groups import SeenGroups
from counterpoise.tables.tabular.task import Target, TargetSearch, Task

if TYPE_CHECKING:
    from counterpoise.tables.reading import DataFile

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

_MOST_VALUES = 100_000
"""Different values of a target that are counted; more are more than anyone wants to know."""
_WORD = 150
"""Bytes that a word takes which is counted, about."""
_PAIR = 48
"""Bytes that a context and a group take while they are sorted, about."""
_FEW = 10
"""Rows below which a context is called small without being asked."""
_LIMIT = 30
"""The limit that is proposed then."""


@dataclass(frozen=True)
class Budget:
    """What may be in memory at a time, in bytes; what the modules themselves take is not counted.

    Attributes
    ----------
    total : float
        Infinite where all rows are in memory anyway.
    """

    total: float = math.inf

    @property
    def chunk(self) -> float:
        """Of rows as they are read; working on them takes a few times that."""
        return self.total / 48

    @property
    def block(self) -> float:
        """Of rows as they are fitted."""
        return min(self.total / 32, 64e6)

    @property
    def words(self) -> float:
        """Of the words that are counted."""
        return self.total / 32

    @property
    def sampled(self) -> float:
        """Of a sample of numbers."""
        return self.total / 32

    @property
    def middle(self) -> float:
        """Of numbers among which medians are."""
        return self.total / 16

    @property
    def target_values(self) -> float:
        """Different values of a target, whatever they take."""
        return _MOST_VALUES if self.total < math.inf else math.inf

    def report_rows(self, width: int) -> int:
        """Rows that can be compared in memory, where a row is so many numbers."""
        # Folds, copies and curvatures take several times what the rows do; and all of it should take minutes at most.
        most = min(self.total / 120, 5e6)
        return int(np.clip(most / max(width, 1), 1_000, 100_000))


@dataclass(frozen=True, eq=False)
class ContextCoding:
    """The contexts of a table.

    Attributes
    ----------
    seen : SeenLabels
    labels, counts : ndarray of shape (n_contexts,)
        In order, and the rows of each.
    places : ndarray of int
        For every code the place of its context in ``labels``; -1 where it has no rows.
    """

    seen: SeenLabels
    labels: NDArray[Any]
    counts: NDArray[np.int64]
    places: Codes

    @classmethod
    def of(cls, seen: SeenLabels) -> ContextCoding:
        """Return what the contexts are, once all rows were seen."""
        labels, counts = seen.labels, seen.counts
        used = np.flatnonzero(counts)
        if len(used) < 2:
            raise InvalidInputError(
                f"{' x '.join(seen.names)} (--context) is the same in every row, so there is one context and nothing "
                "to be robust against. Name another column."
            )
        contexts = encode(labels[used])
        places = np.full(len(labels), -1, dtype=np.intp)
        places[used] = contexts.codes
        return cls(seen, contexts.labels, counts[used][np.argsort(contexts.codes)], places)

    def codes(self, data: DataFile) -> Codes:
        """Return the place in ``labels`` of the context of every row."""
        return self.places[self.seen.look(data)[0]]

    def named(self, codes: Codes) -> NDArray[Any]:
        """Return the labels of rows."""
        return objects(self.labels.tolist())[codes]

    def pooled(self, below: int, groups: SeenGroups | None) -> tuple[ContextCoding, Pool]:
        """Pool rare contexts, as :func:`counterpoise.pool_rare` does."""
        pool = self.pool(below, groups)
        left = encode(pool.relabel(self.labels))
        counts = np.bincount(left.codes, self.counts).astype(np.int64)
        # The last place is that of codes without rows.
        return replace(self, labels=left.labels, counts=counts, places=np.append(left.codes, -1)[self.places]), pool

    def pool(self, below: int, groups: SeenGroups | None = None) -> Pool:
        """Choose which contexts to pool."""
        if groups is None:
            return choose_pool(self.labels, self.counts, below)
        counts = np.zeros(len(self.labels), dtype=np.int64)
        used = np.flatnonzero(self.places >= 0)
        counts[self.places[used]] = groups.counts(len(self.places))[used]

        def together(pooled: NDArray[np.bool_]) -> int:
            return groups.together(np.append(pooled, False)[self.places])

        return choose_pool(self.labels, counts, below, groups_together=together)

    @property
    def small(self) -> list[str]:
        """Say that there are contexts of very few rows, if there are."""
        n = int(np.count_nonzero(self.counts < _FEW))
        if n == 0:
            return []
        try:
            helps = self.pool(_LIMIT).members
        except InvalidInputError:
            helps = {}
        pools = f"--pool-below {_LIMIT} pools {'it with another' if n == 1 else 'them'}"
        remedy = pools if helps else "little can be said about so few"
        return [f"{n:,} context{' has' if n == 1 else 's have'} fewer than {_FEW} rows; {remedy}"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that have a target.

    Attributes
    ----------
    X : pyarrow.Table
    target : ndarray of float of shape (n_rows,)
        Classes as codes.
    contexts : ndarray of int of shape (n_rows,)
    groups, times : ndarray of shape (n_rows,) or None
    """

    X: Any
    target: Array
    contexts: Codes
    groups: NDArray[Any] | None
    times: NDArray[Any] | None = None

    def take(self, rows: Codes) -> Rows:
        """Return some of them, which do not keep the others in memory."""
        groups, times = (None if column is None else column[rows] for column in (self.groups, self.times))
        return Rows(self.X.take(rows), self.target[rows], self.contexts[rows], groups, times)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Return several as one."""
        import pyarrow as pa

        groups = [part.groups for part in parts if part.groups is not None]
        times = [part.times for part in parts if part.times is not None]
        return cls(
            pa.concat_tables([part.X for part in parts]).combine_chunks(),
            np.concatenate([part.target for part in parts]),
            np.concatenate([part.contexts for part in parts]),
            np.concatenate(groups) if groups else None,
            np.concatenate(times) if times else None,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """What a table says.

    Attributes
    ----------
    asked : Asked
        With columns as the table names them.
    columns : Columns
    target : Target
    coding : ContextCoding
    pool : Pool or None
        Contexts that were pooled, where that was asked for.
    inferred : str
        Which task it is, and why.
    remarks : tuple of str
        What else was inferred or left out.
    n_rows, n_kept : int
        Rows of the table; those that have a target.
    draws : float or None
        Draws that rows are worth by their groups or times; None where that was not asked for.
    mix : Mix or None
        What is known about the mix.
    """

    asked: Asked
    columns: Columns
    target: Target
    coding: ContextCoding
    pool: Pool | None
    inferred: str
    remarks: tuple[str, ...]
    n_rows: int
    n_kept: int
    draws: float | None = None
    mix: Mix | None = None

    @property
    def switches(self) -> dict[str, Any]:
        """Of the model, with the draws and the mix that were found."""
        found = {"draws": self.draws, "mix": self.mix}
        return self.asked.model_switches | {name: value for name, value in found.items() if value is not None}

    def facts(self, kind: type[Findings]) -> dict[str, Any]:
        """Return the attributes that a kind of findings has, for another kind that has more."""
        return {one.name: getattr(self, one.name) for one in fields(kind)}

    @property
    def task(self) -> Task:
        """What kind of target it is."""
        return self.target.task

    @property
    def notes(self) -> tuple[str, ...]:
        """All that was inferred or left out."""
        return (self.inferred, *self.remarks)

    def rows(self, data: DataFile) -> tuple[Rows, NDArray[np.bool_]]:
        """Return the rows of a piece of the table that have a target, and which these are."""
        target, kept = self.target.read(data)
        X = self.columns.of(data)
        groups = None if self.asked.group is None else data.labels(self.asked.group, "--group")[kept]
        times = None if self.asked.time is None else data.labels(self.asked.time, "--time")[kept]
        return Rows(X if kept.all() else X.filter(kept), target, self.coding.codes(data)[kept], groups, times), kept


class Survey:
    """A first pass over all rows.

    Parameters
    ----------
    path : Path
    names : sequence of str
        The columns that are read.
    asked : Asked
        With columns as the table names them.
    budget : Budget
        Where it is limited, more is found out: what the preprocessing needs to know of numbers.

    Attributes
    ----------
    moments, medians
        Of the columns in ``numbers``.
    """

    def __init__(self, path: Path, names: Sequence[str], asked: Asked, budget: Budget) -> None:
        self.path, self.asked, self.budget = path, asked, budget
        self.n_rows = self.n_kept = 0
        self.numbers: list[str] = []
        self.moments, self.medians = Moments(0), Medians((), 0.0)
        self._groups: SeenGroups | None = None
        if asked.pool_below is not None and asked.group is not None:
            self._groups = SeenGroups(asked.pool_below, max(10_000, budget.words / _PAIR))
        self._draws = DrawSearch(asked, max(10_000, budget.words / _PAIR))
        self._target = TargetSearch(asked.target, asked.task, budget.target_values)
        self._contexts = SeenLabels(asked.context, "--context")
        candidates = asked.candidates(names)
        most_words = max(1_000, budget.words / _WORD / max(len(candidates), 1))
        n_codings = 1 if len(asked.context) == 1 else 1 + len(asked.context)
        self.columns = {name: SeenColumn(most_words, n_codings) for name in candidates}
        self._errors: dict[str, InvalidInputError] = {}

    def look(self, pieces: Iterable[DataFile]) -> Findings:
        """See all rows, and return what they say."""
        for data in pieces:
            self._look(data)
        self.medians.end_round(self.budget.middle)
        return self._findings()

    def _look(self, data: DataFile) -> None:
        kept = self._target.look(data)
        codes = [own[kept] for own in self._contexts.look(data)]
        self._contexts.count(codes[0])
        if self.asked.group is not None:
            # Checked here in any case.
            values, groups = data.coded_labels(self.asked.group, "--group")
            if self._groups is not None:
                self._groups.look(codes[0], values, groups[kept])
        for name, column in self.columns.items():
            column.look(cells.plain_types(data.table[name]), kept, codes)
        self._draws.look(data, kept, codes[0], self.columns)
        if self.budget.total < math.inf:
            self._look_at_numbers(data, kept)
        self.n_rows += data.n_rows
        self.n_kept += int(np.count_nonzero(kept))

    def _look_at_numbers(self, data: DataFile, kept: NDArray[np.bool_]) -> None:
        if self.n_rows == 0:
            self.numbers = [name for name, column in self.columns.items() if column.is_number]
            self.moments = Moments(len(self.numbers))
            self.medians = Medians(self.numbers, self.budget.sampled)
        matrix = np.full((int(np.count_nonzero(kept)), len(self.numbers)), np.nan)
        for k, name in enumerate(self.numbers):
            if name in self._errors:
                continue
            try:
                matrix[:, k] = sane(data, name, data.numbers(name, allow_missing=True))[kept]
            except InvalidInputError as error:
                # Whether it matters is known only when it is known whether the column is a feature.
                self._errors[name] = error
        self.moments.look(matrix)
        self.medians.look(matrix)

    def _findings(self) -> Findings:
        asked, target, coding = self.asked, self._target.found(self.path), ContextCoding.of(self._contexts)
        pool, remarks = None, coding.small
        if asked.pool_below is not None:
            coding, pool = coding.pooled(asked.pool_below, self._groups)
            remarks = [pool.note]
            # Neither the contexts as they are nor as they were may come back as a feature.
            for column in self.columns.values():
                column.pooled = coding.places
        columns = chosen(self.path, {name: column.kind for name, column in self.columns.items()}, asked.only)
        for name in columns.numbers:
            if name in self._errors:
                raise self._errors[name]
        sizing = self._draws.found(coding.places, coding.counts)
        mix, known = self._known_mix(coding, pool, sizing.draws)
        lost = self.n_rows - self.n_kept
        left_out = [f"{lost:,} of {self.n_rows:,} rows have no {target.name} and are left out"] * bool(lost)
        left_out += [f"column {name} is left out: it is {reason}" for name, reason in columns.left_out.items()]
        return Findings(
            asked=asked,
            columns=columns,
            target=target,
            coding=coding,
            pool=pool,
            inferred=f"{target.task} of {target.name} ({target.why})",
            remarks=(
                *left_out,
                *remarks,
                *sizing.notes,
                *self._offers(sizing.notes),
                *known,
                *self._uncounted(columns),
            ),
            n_rows=self.n_rows,
            n_kept=self.n_kept,
            draws=sizing.draws,
            mix=mix,
        )

    def _offers(self, said: Sequence[str]) -> list[str]:
        """Offer to judge on later rows where there are dates and nobody asked for it."""
        dates = [name for name, column in self.columns.items() if column.holds_dates]
        if self.asked.time is not None or not dates or any("--time" in note for note in said):
            return []
        return [f"column {dates[0]} holds dates: --time {dates[0]} judges the methods on later rows as well"]

    def _known_mix(
        self, coding: ContextCoding, pool: Pool | None, draws: float | None
    ) -> tuple[Mix | None, tuple[str, ...]]:
        """Return what is known about the mix by the contexts that were found, and say what it is."""
        asked, switches = self.asked, self.asked.model_switches
        if asked.known_mix is None:
            return None, ()
        sized: dict[str, Any] = {name: switches[name] for name in ("confidence", "radius") if name in switches}
        sized["draws"] = switches.get("draws") if draws is None else draws
        return asked.known_mix.over(coding.labels, coding.counts, asked.context, pool, **sized)

    def _uncounted(self, columns: Columns) -> list[str]:
        """Say what was not counted to the last."""
        n = 0 if self._groups is None else self._groups.n_forgotten
        many = f"{n:,} contexts have too many groups to count in this memory; the numbers given are the least they have"
        return [many] * bool(n) + [
            f"column {name} holds about {self.columns[name].words.distinct:,} different words; only the most frequent "
            "were counted"
            for name in columns.categories
            if not self.columns[name].words.are_all
        ]

    def categories(self, names: Sequence[str]) -> dict[str, dict[str | None, int]]:
        """Return how often each category of some columns occurs."""
        seen = {name: self.columns[name] for name in names}
        return {name: column.words.texts(column.type, column.n_missing) for name, column in seen.items()}
