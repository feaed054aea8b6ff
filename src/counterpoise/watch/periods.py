"""What came when: periods that grow longer as there are more of them, so that a history never grows beyond bounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import objects
from counterpoise.table import Table
from counterpoise.tables.tabular.card import Part, number_json, numbers_json, plain_json

Array = NDArray[np.float64]

_ENTRIES = 4000
"""Numbers by context that are kept, in at most 400 periods."""

_FEWEST = 12


@dataclass(frozen=True, eq=False)
class Period:
    """Some updates, one after another.

    Attributes
    ----------
    time, until : label
        Of the first and the last update.
    first, updates : int
        The first update, and how many they are.
    rows, losses, sums : ndarray of shape (n_contexts,)
        Rows of each context, how many of them came with a loss, and the sum of these.
    unseen : int
        Rows of contexts never seen before.
    e_values : ndarray of shape (3,)
        Of mix, unseen and risk after the last update.
    """

    time: Any
    until: Any
    first: int
    updates: int
    rows: Array
    losses: Array
    sums: Array
    unseen: int
    e_values: Array

    def __add__(self, later: Period) -> Period:
        """Return both as one."""
        return Period(
            self.time,
            later.until,
            self.first,
            self.updates + later.updates,
            self.rows + later.rows,
            self.losses + later.losses,
            self.sums + later.sums,
            self.unseen + later.unseen,
            later.e_values,
        )

    @property
    def n_rows(self) -> int:
        """Of known and unseen contexts."""
        return int(self.rows.sum()) + self.unseen

    @property
    def as_json(self) -> list[Any]:
        """The same as what JSON can hold, in the order of the attributes."""
        return [
            plain_json(self.time),
            plain_json(self.until),
            self.first,
            self.updates,
            self.rows.astype(int).tolist(),
            self.losses.astype(int).tolist() if self.losses.any() else None,
            [number_json(float(f"{one:.6g}")) for one in self.sums.tolist()] if self.losses.any() else None,
            self.unseen,
            numbers_json([float(f"{one:.6g}") for one in self.e_values.tolist()]),
        ]

    @classmethod
    def read(cls, part: Part, n_contexts: int) -> Self:
        """Return a period that was written."""
        parts = part.list
        if len(parts) != len(fields(cls)):
            part.refuse(f"a list of {len(fields(cls))} parts")
        rows, losses, sums = (
            np.zeros(n_contexts) if one.is_null else one.numbers(n_contexts, finite=True, least=0.0)
            for one in parts[4:7]
        )
        first, updates, unseen = (parts[k].count for k in (2, 3, 7))
        e_values = parts[8].numbers(3, least=0.0)
        return cls(parts[0].python, parts[1].python, first, updates, rows, losses, sums, unseen, e_values)


@dataclass(frozen=True, eq=False)
class Periods:
    """All periods so far."""

    all: tuple[Period, ...] = ()

    def plus(self, period: Period) -> Periods:
        """Append an update; where periods become too many, each is merged with its neighbour.

        All are of the same length then, but for the last, which takes updates until it is as long as the others: were
        each update a period of its own, those of long ago would soon be years.
        """
        size = max((one.updates for one in self.all), default=1)
        found = (*self.all, period)
        if self.all and self.all[-1].updates < size:
            found = (*self.all[:-1], self.all[-1] + period)
        if len(found) > min(400, max(_FEWEST, _ENTRIES // max(len(period.rows), 1))):
            odd = found[len(found) // 2 * 2 :]
            found = (*(a + b for a, b in zip(found[::2], found[1::2], strict=False)), *odd)
        return Periods(found)

    def at(self, update: int) -> Any:
        """Return when an update was: the time of its period, or its number where there are no times."""
        for period in reversed(self.all):
            if period.first <= update:
                return update if period.time is None else period.time
        return update

    def begun(self, scores: Iterable[float]) -> int:
        """Return the update at which a change seems to have come: from there on, scores add up to most.

        Parameters
        ----------
        scores : floats, one for each period
            What speaks for the change; negative where it speaks against it.
        """
        back = np.cumsum(np.array(list(scores))[::-1])
        return self.all[len(self.all) - 1 - int(np.argmax(back))].first

    @property
    def table(self) -> Table:
        """A row for each period."""
        every = self.all
        e_values = np.array([one.e_values for one in every]).reshape(-1, 3)
        return Table(
            {
                "time": objects([one.first if one.time is None else one.time for one in every]),
                "until": objects([one.first + one.updates - 1 if one.until is None else one.until for one in every]),
                "updates": np.array([one.updates for one in every], dtype=np.intp),
                "rows": np.array([one.n_rows for one in every], dtype=np.intp),
                "unseen_rows": np.array([one.unseen for one in every], dtype=np.intp),
                "mix": e_values[:, 0],
                "unseen": e_values[:, 1],
                "risk": e_values[:, 2],
            }
        )

    def by_context(self, contexts: NDArray[Any]) -> Table:
        """Return rows, shares and mean losses of each context in each period, in long form."""
        n = len(contexts)
        rows = np.array([one.rows for one in self.all]).reshape(-1, n)
        losses = np.array([one.losses for one in self.all]).reshape(-1, n)
        sums = np.array([one.sums for one in self.all]).reshape(-1, n)
        totals = np.array([[one.n_rows] for one in self.all]).reshape(-1, 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares, risks = rows / totals, np.where(losses > 0, sums / losses, np.nan)
        times = self.table["time"]
        return Table(
            {
                "time": np.repeat(times, n),
                "context": np.tile(contexts, len(self.all)),
                "rows": rows.ravel().astype(np.intp),
                "share": shares.ravel(),
                "risk": risks.ravel(),
            }
        )
