"""What sizes the set of mixes of a table: groups or times that were named, or else a word of warning."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import CoverageWarning, InvalidInputError
from counterpoise.sets import Draws, RadiusMethod, confidence_radius
from counterpoise.tables.reading import cells
from counterpoise.tables.tabular.seen_draws import RowOrder, SeenGroupCounts, are_moments, check_moments

if TYPE_CHECKING:
    from counterpoise.tables.reading import DataFile
    from counterpoise.tables.tabular.columns import Asked
    from counterpoise.tables.tabular.seen import SeenColumn

Codes = NDArray[np.intp]

_MOST_DATES = 3
"""Columns of dates that are looked at where nobody said which one matters."""
_WORTH_SAYING = 1.5
"""How many times too small a set must be."""


@dataclass(frozen=True)
class Sizing:
    """What the size of a set follows from.

    Attributes
    ----------
    draws : float or None
        None where every row is a draw.
    notes : tuple of str
    """

    draws: float | None = None
    notes: tuple[str, ...] = ()


class DrawSearch:
    """Finds how many draws the rows are worth, of which it may see some at a time.

    Parameters
    ----------
    asked : Asked
        With columns as the table names them.
    most : float
        Groups in contexts that are counted.
    """

    def __init__(self, asked: Asked, most: float = math.inf) -> None:
        self._asked, self._most = asked, most
        given = asked.switches
        self._sizes = given.get("draws") is None and given.get("mix") is None and isinstance(self._method, str)
        self._sizes = self._sizes and given.get("confidence", 0.99) != 1.0
        # Another table that was counted sizes the set itself.
        self._sizes = self._sizes and (asked.known_mix is None or asked.known_mix.census is None)
        self._named = asked.group is not None or asked.time is not None
        self._groups = SeenGroupCounts(most)
        self._dates: dict[str, SeenGroupCounts] | None = None
        self._order = RowOrder()
        self._file = ""

    @property
    def _method(self) -> Any:
        return self._asked.switches.get("radius", "types")

    def look(self, data: DataFile, kept: NDArray[np.bool_], contexts: Codes, columns: Mapping[str, SeenColumn]) -> None:
        """See some rows.

        Parameters
        ----------
        kept : ndarray of bool
            Rows that have a target.
        contexts : ndarray of shape (n_kept,)
            The codes of the contexts of these.
        columns : mapping
            What is known of the columns that may be features.
        """
        # Empty cells are refused in any case.
        times = None if self._asked.time is None else data.coded_labels(self._asked.time, "--time")
        if not self._sizes:
            return
        self._file = data.path.name
        if not self._named:
            self._order.look(contexts)
            self._look_at_dates(data, kept, contexts, columns)
        elif self._asked.group is None:
            assert times is not None
            self._groups.look(contexts, times[0], times[1][kept])
        else:
            values, groups = data.coded_labels(self._asked.group, "--group")
            self._groups.look(contexts, values, groups[kept], None if times is None else (times[0], times[1][kept]))

    def _look_at_dates(
        self, data: DataFile, kept: NDArray[np.bool_], contexts: Codes, columns: Mapping[str, SeenColumn]
    ) -> None:
        if self._dates is None:
            found = [name for name, column in columns.items() if column.holds_dates]
            self._dates = {name: SeenGroupCounts(self._most) for name in found[:_MOST_DATES]}
        for name, seen in self._dates.items():
            try:
                values, groups, missing = cells.coded_labels(cells.plain_types(data.raw[name]), strip=True)
            except InvalidInputError:
                # Nobody named the column, so nobody needs to know what is wrong with it.
                continue
            there = kept & ~missing
            seen.look(contexts[there[kept]], values, groups[there])

    def found(self, places: Codes, counts: NDArray[Any]) -> Sizing:
        """Return what sizes the set.

        Parameters
        ----------
        places : ndarray of int
            The context that every code stands for.
        counts : ndarray of shape (n_contexts,)
            Rows of each.
        """
        if not self._sizes or len(counts) < 2:
            return Sizing()
        return self._from_groups(places) if self._named else self._doubts(places, counts)

    def _from_groups(self, places: Codes) -> Sizing:
        asked = self._asked
        name = asked.time if asked.group is None else asked.group
        if asked.time is not None:
            check_moments(self._groups.moments, f"column {asked.time!r} of {self._file} (--time)")
        draws = self._groups.draws(places, True if asked.time is not None else None)
        if draws is None:
            return Sizing(
                None,
                (
                    f"the groups of {name} are too many to count in this memory, so every row counts as a draw of "
                    f"{self._context}; say how many draws they are worth: --draws N",
                ),
            )
        return Sizing(float(f"{draws.effective:.4g}"), (worth(draws, asked.group, asked.time, self._context),))

    @property
    def _context(self) -> str:
        return " x ".join(self._asked.context)

    def _doubts(self, places: Codes, counts: NDArray[Any]) -> Sizing:
        """Say that rows may be fewer draws than they are, and by how much the set is too small then."""
        dates = {name: seen for name, seen in (self._dates or {}).items() if are_moments(seen.moments)}
        by_date = {name: seen.draws(places, True) for name, seen in dates.items()}
        known = {name: draws for name, draws in by_date.items() if draws is not None}
        if known:
            name, draws = min(known.items(), key=lambda item: item[1].effective)
            larger = self._larger(draws, counts)
            if larger >= _WORTH_SAYING:
                return Sizing(
                    None,
                    (
                        f"every row counts as a draw of {self._context}, and the set may be too small: in the order of "
                        f"{name} the {draws.rows:,.0f} rows are worth about {rounded(draws.effective)}, for which it "
                        f"would be {larger:.2g} times as large; pass --time {name}, or --draws rows if rows are "
                        "independent",
                    ),
                )
        return Sizing(None, doubts_of_order(self._order, places, counts, self._context, self._level, self._method))

    @property
    def _level(self) -> float:
        return float(self._asked.switches.get("confidence", 0.99))

    def _larger(self, draws: Draws, counts: NDArray[Any]) -> float:
        return times_as_large(draws, counts, self._level, self._method)


def doubts_of_order(
    order: RowOrder, places: Codes, counts: NDArray[Any], context: str, confidence: float, method: RadiusMethod
) -> tuple[str, ...]:
    """Say that neighbouring rows share their context too often for draws of their own, if they do.

    Parameters
    ----------
    places : ndarray of int
        The context that every code stands for.
    counts : ndarray of shape (n_contexts,)
        Rows of each.
    confidence, method
        Of the radius.
    """
    runs = order.draws(places)
    if runs is None:
        return ()
    longer, draws = runs
    larger = times_as_large(draws, counts, confidence, method)
    if larger < _WORTH_SAYING:
        return ()
    return (
        f"every row counts as a draw of {context}, and the set may be too small: neighbouring rows share it "
        f"{longer:.2g} times as long as by chance, as if they were about {rounded(draws.effective)} draws, for which "
        f"it would be {larger:.2g} times as large; name the rows that belong together (--group) or their time "
        "(--time), or pass --draws rows if rows are independent",
    )


def times_as_large(draws: Draws, counts: NDArray[Any], confidence: float, method: RadiusMethod) -> float:
    """Return how many times as large the radius is for the draws as for the rows."""
    with warnings.catch_warnings():
        # That there are few draws for a method is said where the method is used.
        warnings.simplefilter("ignore", CoverageWarning)
        sizes = [confidence_radius(counts, confidence, method, draws=n) for n in (draws.effective, draws.rows)]
    return sizes[0] / sizes[1] if 0.0 < sizes[1] < math.inf else 1.0


def worth(draws: Draws, group: str | None, time: str | None, context: str) -> str:
    """Say in a sentence what rows are worth, and how well that is known."""
    where = f"at {draws.groups:,} times ({time})" if group is None else f"in {draws.groups:,} groups of {group}"
    of = f"{draws.rows:,.0f} rows {where}"
    if draws.effective > 0.99 * draws.rows:
        return f"{of} are worth as many draws of {context} as there are rows"
    about = rounded(draws.effective)
    known = ""
    if 0.0 < draws.error < math.inf:
        known = f" (the estimate is {rounded(draws.estimate)} with a standard error of {100 * draws.error:.0f}%)"
    return f"{of} are worth about {about} draws of {context}, and the set of mixes is sized accordingly{known}"


def rounded(number: float) -> str:
    """Return a number of draws with as many digits as mean anything."""
    return f"{float(f'{number:.3g}'):,.0f}" if number >= 10.0 else f"{number:.2g}"
