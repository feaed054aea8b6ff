"""A first pass over a table that does not fit into memory: what its columns are, and what is to be predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import encode
from counterpoise.exceptions import InvalidInputError
from counterpoise.pooling import Pool, choose_pool
from counterpoise.reading import cells
from counterpoise.tabular.columns import LARGEST, Columns, chosen, kind_of, sane
from counterpoise.tabular.fitting import Roles, check_contexts
from counterpoise.tabular.labels import named
from counterpoise.tabular.seen import SeenColumn, SeenNumbers
from counterpoise.tabular.seen_groups import SeenGroups
from counterpoise.tabular.task import Task, check_task, checked_kind, judged

if TYPE_CHECKING:
    from counterpoise.reading import DataFile, TableOnDisk

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

_MOST_VALUES = 100_000
"""Different values of a target that are counted; more are more than anyone wants to know."""
_WORD = 150
"""Bytes that a word takes which is counted, about."""
_PAIR = 48
"""Bytes that a context and a group take while they are sorted, about."""


@dataclass(frozen=True)
class Budget:
    """What may be in memory at a time, in bytes; what the modules themselves take is not counted.

    Attributes
    ----------
    total : float
    """

    total: float

    @property
    def chunk(self) -> float:
        """Of rows as they are read; working on them takes a few times that."""
        return self.total / 48

    @property
    def block(self) -> float:
        """Of rows as they are fitted."""
        return min(self.total / 16, 64e6)

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

    def report_rows(self, width: int) -> int:
        """Rows that can be compared in memory, where a row is so many numbers."""
        # Folds, copies and curvatures take several times what the rows do; and all of it should take minutes at most.
        most = min(self.total / 120, 5e6)
        return int(np.clip(most / max(width, 1), 1_000, 100_000))


class SeenTarget:
    """What is known of the target so far."""

    def __init__(self, name: str, task: str) -> None:
        check_task(task)
        self.name, self.task = name, task
        self._holds = ""
        self._values: Array = np.empty(0)
        self._words: set[str] = set()
        self._is_full = False
        self._error: InvalidInputError | None = None

    def look(self, data: DataFile) -> NDArray[np.bool_]:
        """See some rows, and return which of them have a target."""
        column = cells.plain_types(data.column(self.name, "--target"))
        self._holds = checked_kind(data.path, self.name, column)
        if self._holds == "numbers":
            return self._look_at_numbers(data, column)
        if self.task not in ("auto", "classification"):
            values = target_numbers(data, self.name, self.task)
            self._add(values[~np.isnan(values)])
            return ~np.isnan(values)
        texts = data.texts(self.name, "--target")
        if not self._is_full:
            self._words.update(texts.unique().drop_null().to_pylist())
            self._is_full = len(self._words) > _MOST_VALUES
        return np.asarray(texts.is_valid().to_numpy())

    def _look_at_numbers(self, data: DataFile, column: Any) -> NDArray[np.bool_]:
        values, missing = cells.numbers(column, comma=False)
        known = values[~missing]
        self._add(known)
        least = 0.0 if self.task == "count" else -LARGEST
        if self._error is None and len(known) and not (known.min() >= least and known.max() <= LARGEST):
            # Whether it matters is known only when the task is.
            try:
                target_numbers(data, self.name, self.task)
            except InvalidInputError as error:
                self._error = error
        return ~missing

    def _add(self, values: Array) -> None:
        if not self._is_full:
            self._values = np.union1d(self._values, values)
            self._is_full = len(self._values) > _MOST_VALUES

    def judged(self, path: Any) -> tuple[Task, str]:
        """Return the task, and why."""
        distinct = max(len(self._words), len(self._values))
        more = "more than " if self._is_full else ""
        task, why = judged(path, self.name, self._holds, min(distinct, _MOST_VALUES), self.task, more)
        if self._error is not None and task != "classification":
            raise self._error
        return task, why  # type: ignore[return-value]

    @property
    def classes(self) -> NDArray[Any]:
        """The classes, in order."""
        import pyarrow as pa

        words = self._words
        if self._holds == "numbers":
            column = pa.chunked_array([pa.array(self._values)])
            words = set(cells.texts(column, column).to_pylist())
        return np.unique(np.array(sorted(words)))


def target_numbers(data: DataFile, name: str, task: str) -> Array:
    """Return the target of every row as a number, NaN where there is none."""
    least = 0.0 if task == "count" else None
    return sane(data, name, data.numbers(name, "--target", least=least, allow_missing=True))


class SeenContexts:
    """The contexts so far, in the order in which they appeared.

    Parameters
    ----------
    names : sequence of str
        The columns that are crossed.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._parts: list[dict[Any, int]] = [{} for _ in names]
        self._crossed: dict[tuple[int, ...], int] = {}
        self._counts = np.zeros(0, dtype=np.int64)

    def look(self, data: DataFile) -> list[Codes]:
        """Return the codes of the contexts of some rows, and those of their parts where there are several."""
        parts = [self._coded(data, k) for k in range(len(self.names))]
        if len(parts) == 1:
            return parts
        stacked, codes = np.unique(np.column_stack(parts), axis=0, return_inverse=True)
        keys = [tuple(row) for row in stacked.tolist()]
        own = np.array([self._crossed.setdefault(key, len(self._crossed)) for key in keys], dtype=np.intp)
        return [own[codes.reshape(-1)], *parts]

    def _coded(self, data: DataFile, k: int) -> Codes:
        values, codes = data.coded_labels(self.names[k], "--context")
        seen = self._parts[k]
        own = [seen.setdefault(value, len(seen)) for value in values[:-1]]
        return np.array(own, dtype=np.intp)[codes]

    def count(self, codes: Codes) -> None:
        """Count rows that have a target."""
        self._counts = np.bincount(codes, minlength=max(len(self._counts), 1)) + np.pad(
            self._counts, (0, max(0, int(codes.max(initial=-1)) + 1 - len(self._counts)))
        )

    @property
    def labels(self) -> NDArray[Any]:
        """The label of every code."""
        words: list[list[Any]] = []
        for name, part in zip(self.names, self._parts, strict=True):
            known = named(name, list(part))
            words.append([known.get(value, value) for value in part])
        labels = words[0]
        if len(self.names) > 1:
            labels = [tuple(word[k] for word, k in zip(words, key, strict=True)) for key in self._crossed]
        found = np.empty(len(labels), dtype=object)
        found[:] = labels
        return found

    def settled(self) -> SettledContexts:
        """Return what the contexts are, once all rows were seen."""
        labels = self.labels
        counts = np.pad(self._counts, (0, len(labels) - len(self._counts)))
        used = np.flatnonzero(counts)
        check_contexts(self.names, len(used))
        contexts = encode(labels[used])
        places = np.full(len(labels), -1, dtype=np.intp)
        places[used] = contexts.codes
        ordered = np.zeros(len(used), dtype=np.int64)
        ordered[contexts.codes] = counts[used]
        return SettledContexts(contexts.labels, ordered, places)


@dataclass(frozen=True, eq=False)
class SettledContexts:
    """The contexts of a table.

    Attributes
    ----------
    labels, counts : ndarray of shape (n_contexts,)
        In order, and the rows of each.
    places : ndarray of int
        For every code the place of its context in ``labels``; -1 where it has no rows.
    """

    labels: NDArray[Any]
    counts: NDArray[np.int64]
    places: Codes

    def pooled(self, below: int, groups: SeenGroups | None) -> tuple[SettledContexts, Pool]:
        """Pool rare contexts, as :func:`counterpoise.pool_rare` does."""
        pool = self._pool(below, groups)
        left = encode(pool.relabel(self.labels))
        counts = np.zeros(len(left.labels), dtype=np.int64)
        np.add.at(counts, left.codes, self.counts)
        # The last place is that of codes without rows.
        return SettledContexts(left.labels, counts, np.append(left.codes, -1)[self.places]), pool

    def _pool(self, below: int, groups: SeenGroups | None) -> Pool:
        if groups is None:
            return choose_pool(self.labels, self.counts, lambda pooled: int(self.counts[pooled].sum()), below)
        counts = np.zeros(len(self.labels), dtype=np.int64)
        used = np.flatnonzero(self.places >= 0)
        counts[self.places[used]] = groups.counts(len(self.places))[used]

        def together(pooled: NDArray[np.bool_]) -> int:
            return groups.together(np.append(pooled, False)[self.places])

        return choose_pool(self.labels, counts, together, below, unit="groups")


class Survey:
    """Everything that a first pass finds out.

    Parameters
    ----------
    roles : Roles
    task : str
    budget : Budget
    pool_below : int, optional
        Contexts with fewer rows, or groups where there are any, are pooled.
    """

    def __init__(
        self, table: TableOnDisk, roles: Roles, task: str, budget: Budget, pool_below: int | None = None
    ) -> None:
        self.roles = roles
        self.n_rows = self.n_kept = 0
        self._pool_below = pool_below
        self._groups: SeenGroups | None = None
        if pool_below is not None and roles.group is not None:
            self._groups = SeenGroups(pool_below, int(max(10_000, budget.words / _PAIR)))
        self.target = SeenTarget(roles.target, task)
        self.contexts = SeenContexts(roles.context)
        features = [name for name in table.wanted if name not in roles.apart and (not roles.only or name in roles.only)]
        most_words = int(max(1_000, budget.words / _WORD / max(len(features), 1)))
        n_codings = 1 if len(roles.context) == 1 else 1 + len(roles.context)
        self.columns = {name: SeenColumn(most_words, n_codings, pool_below is not None) for name in features}
        self._errors: dict[str, InvalidInputError] = {}
        self._budget = budget
        self._numbers: SeenNumbers | None = None
        for data in table.chunks(budget.chunk):
            self._look(data)

    @property
    def numbers(self) -> SeenNumbers:
        """What is known of the columns of numbers."""
        assert self._numbers is not None
        return self._numbers

    def _look(self, data: DataFile) -> None:
        kept = self.target.look(data)
        codes = [own[kept] for own in self.contexts.look(data)]
        self.contexts.count(codes[0])
        if self.roles.group is not None:
            # Checked here in any case.
            values, groups = data.coded_labels(self.roles.group, "--group")
            if self._groups is not None:
                self._groups.look(codes[0], values, groups[kept])
        for name, column in self.columns.items():
            column.look(cells.plain_types(data.table[name]), kept, codes)
        if self._numbers is None:
            names = [name for name, column in self.columns.items() if column.is_number]
            n_sampled = int(np.clip(self._budget.sampled / (8 * max(len(names), 1)), 500, 100_000))
            self._numbers = SeenNumbers(names, n_sampled)
        self.numbers.look(self._matrix(data, kept))
        self.n_rows += data.n_rows
        self.n_kept += int(np.count_nonzero(kept))

    def _matrix(self, data: DataFile, kept: NDArray[np.bool_]) -> Array:
        matrix = np.full((int(np.count_nonzero(kept)), len(self.numbers.names)), np.nan)
        for k, name in enumerate(self.numbers.names):
            if name in self._errors:
                continue
            try:
                matrix[:, k] = sane(data, name, data.numbers(name, allow_missing=True))[kept]
            except InvalidInputError as error:
                # Whether it matters is known only when it is known whether the column is a feature.
                self._errors[name] = error
        return matrix

    def settled(self) -> tuple[SettledContexts, Pool | None]:
        """Return the contexts, those that are rare pooled where that was asked for."""
        contexts = self.contexts.settled()
        if self._pool_below is None:
            return contexts, None
        contexts, pool = contexts.pooled(self._pool_below, self._groups)
        for column in self.columns.values():
            column.pooled = contexts.places
        return contexts, pool

    def sorted(self, table: TableOnDisk) -> Columns:
        """Return which columns are features, or say what is wrong with one that is."""
        kinds = {name: kind_of(column) for name, column in self.columns.items()}
        columns = chosen(table.path, kinds, self.roles.only)
        for name in columns.numbers:
            if name in self._errors:
                raise self._errors[name]
        return columns

    def categories(self, names: Sequence[str]) -> dict[str, dict[str | None, int]]:
        """Return how often each category of some columns occurs."""
        return {
            name: self.columns[name].words.texts(self.columns[name].type, self.columns[name].n_missing)
            for name in names
        }

    @property
    def notes(self) -> list[str]:
        """What was not counted to the last."""
        n = 0 if self._groups is None else self._groups.n_forgotten
        many = f"{n:,} contexts have too many groups to count in this memory; the numbers given are the least they have"
        return [many] * bool(n) + [
            f"column {name} holds about {column.words.distinct:,} different words; only the most frequent were counted"
            for name, column in self.columns.items()
            if not column.words.are_all and kind_of(column)[0] == "category"
        ]
