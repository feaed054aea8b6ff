"""What a table says: a pass over its rows finds features, task and contexts; a table in memory passes in one piece."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import encode, objects, plain
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import Mix
from counterpoise.table import Table
from counterpoise.tables.pooling import Pool, choose_pool
from counterpoise.tables.reading import DataFile, cells
from counterpoise.tables.tabular.columns import Asked, Columns, chosen, codes, sane
from counterpoise.tables.tabular.dates import LEAST_HOURS, PARTS
from counterpoise.tables.tabular.draw_search import DrawSearch
from counterpoise.tables.tabular.encoding import told_apart
from counterpoise.tables.tabular.labels import SeenLabels, alike
from counterpoise.tables.tabular.medians import Medians
from counterpoise.tables.tabular.row_sample import RowSample
from counterpoise.tables.tabular.seen import Moments, SeenColumn, short
from counterpoise.tables.tabular.seen_groups import SeenGroups
from counterpoise.tables.tabular.small_contexts import SmallContexts
from counterpoise.tables.tabular.suspicions import Suspicions
from counterpoise.tables.tabular.task import Target, TargetSearch, Task

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
_LISTED = 20
"""Contexts that are listed, at most; of more, half as many of the largest and of the smallest."""
_SUSPECTED = 20_000
"""Rows by which single features are judged, at most."""


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
    def collected(self) -> int:
        """Numbers in rows that may be collected from all blocks; there are a few copies of them."""
        return int(min(self.total / 128, 1 << 24))

    @property
    def words(self) -> float:
        """Of the words that are counted."""
        return self.total / 32

    @property
    def pairs(self) -> float:
        """Of a context and a group, how many are counted."""
        return max(10_000, self.words / _PAIR)

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

    def suspected_rows(self, width: int) -> int:
        """Rows by which single features are judged, where a row is so many cells."""
        return int(np.clip(min(self.sampled, 128e6) / (32 * max(width, 1)), 2_000, _SUSPECTED))

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
        counts = self.groups(groups)

        def together(pooled: NDArray[np.bool_]) -> int:
            return groups.together(np.append(pooled, False)[self.places])

        return choose_pool(self.labels, counts, below, groups_together=together)

    def groups(self, groups: SeenGroups, pool: Pool | None = None) -> NDArray[np.int64]:
        """Return the number of groups of each context; a group in several members of a pool counts once."""
        counts = np.zeros(len(self.labels), dtype=np.int64)
        used = np.flatnonzero(self.places >= 0)
        counts[self.places[used]] = groups.counts(len(self.places))[used]
        if pool is not None and pool.members:
            at = next(k for k, label in enumerate(self.labels.tolist()) if plain(label) == pool.label)
            counts[at] = groups.together(self.places == at)
        return counts

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
    small : SmallContexts or None
        Contexts whose rows are not used, where that was asked for.
    groups_of : ndarray of int of shape (n_contexts,) or None
        The groups of each context, where there are groups.
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
    small: SmallContexts | None = None
    groups_of: NDArray[np.int64] | None = None

    @property
    def contexts_counted(self) -> Table:
        """The contexts that are used, with their rows, their shares and, where there are any, their groups."""
        counts = self.coding.counts
        columns = {"context": objects(self.coding.labels.tolist()), "rows": counts, "share": counts / counts.sum()}
        return Table(columns if self.groups_of is None else {**columns, "groups": self.groups_of})

    @property
    def described(self) -> str:
        """The contexts with their counts, the smallest and the largest where there are many; and the features."""
        counted = self.contexts_counted
        order = np.argsort(-self.coding.counts, kind="stable")
        n, title = len(order), f"{len(order):,} contexts"
        if n > _LISTED:
            order = np.r_[order[: _LISTED // 2], order[-(_LISTED // 2) :]]
            title += f", of which these are the {_LISTED // 2} largest and the {_LISTED // 2} smallest"
        columns = {name: column[order] for name, column in counted.items()}
        columns["share"] = objects([f"{100.0 * share:.1f}%" for share in columns["share"].tolist()])
        features = []
        for kinds, kind, names in (
            ("numbers", "number", self.columns.numbers),
            ("categories", "category", self.columns.categories),
        ):
            if names:
                features.append(f"{len(names):,} {kind if len(names) == 1 else kinds} ({', '.join(names)})")
        return f"{title}:\n{Table(columns)}\n\nFeatures: {'; '.join(features)}"

    def used(self, data: DataFile) -> DataFile:
        """Return a piece of the table without the rows of contexts that are not used."""
        return data if self.small is None else self.small.without(data)

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
        """Return the rows of a piece of the table that have a target, and which these are.

        Contexts that are not used must be gone from it, see :meth:`used`.
        """
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
    small : SmallContexts, optional
        Contexts whose rows are not used.

    Attributes
    ----------
    moments, medians
        Of the columns in ``numbers``.
    """

    def __init__(
        self, path: Path, names: Sequence[str], asked: Asked, budget: Budget, small: SmallContexts | None = None
    ) -> None:
        self.path, self.asked, self.budget, self.small = path, asked, budget, small
        self.n_rows = self.n_kept = self.n_unused = 0
        self.numbers: list[str] = []
        self.moments, self.medians = Moments(0), Medians((), 0.0)
        self._groups: SeenGroups | None = None
        if asked.group is not None:
            self._groups = SeenGroups(asked.pool_below or 1, budget.pairs)
        self._draws = DrawSearch(asked, budget.pairs)
        self._target = TargetSearch(asked.target, asked.task, budget.target_values, asked.log_target)
        self._contexts = SeenLabels(asked.context, "--context")
        candidates = asked.candidates(names)
        most_words = max(1_000, budget.words / _WORD / max(len(candidates), 1))
        n_codings = 1 if len(asked.context) == 1 else 1 + len(asked.context)
        self.columns = {name: SeenColumn(most_words, n_codings, name in asked.category) for name in candidates}
        self._dates = asked.date
        # What is made of dates is seen like any column; the dates themselves tell how rows follow each other.
        made = [name for one in self._dates for name in one.names.values()]
        self.columns |= {name: SeenColumn(most_words, n_codings) for name in made}
        self._dated = {one.column: SeenColumn(most_words, 0) for one in self._dates}
        self._sample = RowSample(budget.suspected_rows(len(self.columns) + 1))
        self._errors: dict[str, InvalidInputError] = {}

    def look(self, pieces: Iterable[DataFile]) -> Findings:
        """See all rows, and return what they say."""
        for piece in pieces:
            data = piece if self.small is None else self.small.without(piece)
            self.n_unused += piece.n_rows - data.n_rows
            if data.n_rows:
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
        made = self._made_of_dates(data)
        own = {name: made[name] if name in made else self._plain(data, name) for name in self.columns}
        for name, column in self.columns.items():
            column.look(own[name], kept, codes)
        for name, column in self._dated.items():
            column.look(cells.plain_types(data.table[name]), kept, [])
        self._draws.look(data, kept, codes[0], {**self.columns, **self._dated})
        if self.budget.total < math.inf:
            self._look_at_numbers(data, kept, made)
        self._draw(data, kept, own)
        self.n_rows += data.n_rows
        self.n_kept += int(np.count_nonzero(kept))

    def _made_of_dates(self, data: DataFile) -> dict[str, Any]:
        """Return the features that are made of dates."""
        self._dates = tuple(one.settled(data) for one in self._dates)
        made: dict[str, Any] = {}
        for one in self._dates:
            made |= one.features(data)
        return made

    def _plain(self, data: DataFile, name: str) -> Any:
        """Return a column as it is seen: as text where it is a category by choice."""
        return short(codes(data, name) if self.columns[name].coded else data.feature(name))

    def _draw(self, data: DataFile, kept: NDArray[np.bool_], own: Mapping[str, Any]) -> None:
        """Draw rows by which single features are judged."""
        import pyarrow as pa

        usable = {name: column for name, column in own.items() if self.columns[name].is_usable}
        rows = pa.table({**usable, self.asked.target: short(cells.plain_types(data.table[self.asked.target]))})
        self._sample.look(rows if kept.all() else rows.filter(kept))

    def _look_at_numbers(self, data: DataFile, kept: NDArray[np.bool_], made: Mapping[str, Any]) -> None:
        if self.n_rows == 0:
            self.numbers = [name for name, column in self.columns.items() if column.is_number]
            self.moments = Moments(len(self.numbers))
            self.medians = Medians(self.numbers, self.budget.sampled)
        matrix = np.full((int(np.count_nonzero(kept)), len(self.numbers)), np.nan)
        for k, name in enumerate(self.numbers):
            if name in self._errors:
                continue
            if name in made:
                matrix[:, k] = made[name].to_numpy()[kept]
                continue
            try:
                matrix[:, k] = sane(data, name, data.numbers(name, allow_missing=True, allow_strays=True))[kept]
            except InvalidInputError as error:
                # Whether it matters is known only when it is known whether the column is a feature.
                self._errors[name] = error
        self.moments.look(matrix)
        self.medians.look(matrix)

    def _findings(self) -> Findings:
        asked, target, coding = self.asked, self._target.found(self.path), ContextCoding.of(self._contexts)
        pool, remarks = None, coding.small
        twins = alike(coding.labels, coding.counts)
        if asked.pool_below is not None:
            coding, pool = coding.pooled(asked.pool_below, self._groups)
            remarks = [pool.note]
            # Neither the contexts as they are nor as they were may come back as a feature.
            for column in self.columns.values():
                column.pooled = coding.places
        suspicions = Suspicions(self._sampled, target, self.columns)
        columns = chosen(self.path, self._kinds(suspicions), asked, self._dates)
        for name in columns.numbers:
            if name in self._errors:
                raise self._errors[name]
        sizing = self._draws.found(coding.places, coding.counts)
        mix, known = self._known_mix(coding, pool, sizing.draws)
        lost = self.n_rows - self.n_kept
        left_out = [] if self.small is None else [self.small.note]
        left_out += [f"{lost:,} of {self.n_rows:,} rows have no {target.name} and are left out"] * bool(lost)
        left_out += [
            f"column {name} is left out: it is {reason}{self._offer(name)}" for name, reason in columns.left_out.items()
        ]
        doubts = (*self._said_of_dates(columns), *suspicions.notes(columns), *self._beyond_limit(columns), *twins)
        return Findings(
            asked=asked,
            columns=columns,
            target=target,
            coding=coding,
            pool=pool,
            inferred=f"{target.task} of {target.name} ({target.why})",
            remarks=(
                *left_out,
                *doubts,
                *remarks,
                *sizing.notes,
                *self._offers(sizing.notes),
                *known,
                *self._uncounted(columns),
            ),
            n_rows=self.n_rows + self.n_unused,
            n_kept=self.n_kept,
            draws=sizing.draws,
            mix=mix,
            small=self.small,
            groups_of=None if self._groups is None else coding.groups(self._groups, pool),
        )

    def _offers(self, said: Sequence[str]) -> list[str]:
        """Offer to judge on later rows where there are dates and nobody asked for it."""
        dates = [name for name, column in {**self.columns, **self._dated}.items() if column.holds_dates]
        if self.asked.time is not None or not dates or any("--time" in note for note in said):
            return []
        return [f"column {dates[0]} holds dates: --time {dates[0]} judges the methods on later rows as well"]

    @property
    def _sampled(self) -> DataFile | None:
        """The rows by which single features are judged."""
        rows = self._sample.rows
        # Needed once, and not to be in memory while the rows are fitted.
        self._sample = RowSample(0)
        return None if rows is None else DataFile(self.path, tuple(rows.column_names), rows)

    def _kinds(self, suspicions: Suspicions) -> dict[str, tuple[str, str]]:
        """Return what each column is as a feature, or why it is none."""
        kinds = {name: column.kind for name, column in self.columns.items()}
        for name, (kind, _) in kinds.items():
            if kind == "number" and name not in self.asked.only and suspicions.counts_rows(name):
                kinds[name] = "", "a running number"
        for one in self._dates:
            # Not worth a word where nobody asked for the hour in particular.
            if one.parts == PARTS and self.columns[one.names["hour"]].distinct < LEAST_HOURS:
                del kinds[one.names["hour"]]
        return kinds

    def _offer(self, name: str) -> str:
        """Say what can be made of a column that is left out."""
        return f": --date {name}" if self.columns[name].holds_dates else ""

    def _said_of_dates(self, columns: Columns) -> list[str]:
        notes = []
        for one in columns.dates:
            shown = ", ".join(part for part in one.parts if part != "trend")
            said = f"{shown} as categories" * bool(shown)
            if "trend" in one.parts:
                rest = ",".join(part for part in one.parts if part != "trend") or "month"
                said += f"{' and ' * bool(shown)}a straight line over the years, which goes on beyond the last date "
                said += f"(--date {one.column}={rest} does without)"
            notes.append(f"features made of {one.column}: {said}")
        return notes

    def _beyond_limit(self, columns: Columns) -> list[str]:
        """Say which categories are not told apart."""
        notes = []
        for name, counts in self.categories(columns.categories).items():
            apart = told_apart(counts)
            if apart is None:
                continue
            shared = len(counts) - len(apart)
            rows = sum(count for word, count in counts.items() if word not in apart)
            about = "" if self.columns[name].words.are_all else "at least "
            notes.append(
                f"column {name} has {about}{len(counts):,} categories: the {len(apart)} most frequent are told apart, "
                f"and the other {shared:,} ({rows:,} rows) share one"
            )
        return notes

    def _known_mix(
        self, coding: ContextCoding, pool: Pool | None, draws: float | None
    ) -> tuple[Mix | None, tuple[str, ...]]:
        """Return what is known about the mix by the contexts that were found, and say what it is."""
        asked, switches = self.asked, self.asked.model_switches
        if asked.known_mix is None:
            return None, ()
        sized: dict[str, Any] = {name: switches[name] for name in ("confidence", "radius") if name in switches}
        sized["draws"] = switches.get("draws") if draws is None else draws
        unused = () if self.small is None else self.small.labels
        return asked.known_mix.over(coding.labels, coding.counts, asked.context, pool, unused, **sized)

    def _uncounted(self, columns: Columns) -> list[str]:
        """Say what was not counted to the last."""
        n = 0 if self._groups is None or self.asked.pool_below is None else self._groups.n_forgotten
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
