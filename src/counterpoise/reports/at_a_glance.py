"""What a reader who decides looks at first: every context in natural units, and which model to keep."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import objects, plain, shown
from counterpoise.judging.comparison import Comparison
from counterpoise.judging.measures import ALL, Measure, measures_of, task_of
from counterpoise.judging.verdict import SHUFFLED, best_baseline, not_judged
from counterpoise.reports.methods import COLOURS, WORDS
from counterpoise.reports.pages.document import table
from counterpoise.reports.pages.rows import DotRow, dot_chart
from counterpoise.reports.pages.scales import EN_DASH, MINUS, fixed
from counterpoise.reports.pages.words import Html
from counterpoise.reports.shares import Shares
from counterpoise.table import Table

_CHANGES = ("before", "change", "change_low", "change_high", "size")

_STAY = "\u00a0"
"""A space at which no line is broken."""

FIRST = 8
"""Contexts in the first table; all are in the one that follows."""


@dataclass(frozen=True, eq=False)
class Glance:
    """A comparison in natural units.

    Attributes
    ----------
    comparison : Comparison
    shares : Shares
        Of contexts, in the data and in the set of plausible mixes.
    kept : str
        The method whose model is kept.
    measures : tuple of Measure
        Those of the task, the first of which leads.
    """

    comparison: Comparison
    shares: Shares
    kept: str
    measures: tuple[Measure, ...]

    @classmethod
    def of(cls, comparison: Comparison, shares: Shares, kept: str, model: Any) -> Glance:
        """Look at the comparison of a model."""
        found = measures_of(task_of(model), comparison.decisive.outcomes["erm"].predicted)
        return cls(comparison, shares, kept, found)

    @property
    def judged(self) -> Comparison:
        """The comparison that decides: on later rows where there are times."""
        return self.comparison.decisive

    @property
    def methods(self) -> list[str]:
        """The methods side by side: robust, plain, the best of the others, and the one that is kept."""
        best = best_baseline(self.judged.summary)
        return list(dict.fromkeys(name for name in ("robust", "erm", best, self.kept) if name is not None))

    @property
    def rows(self) -> Table:
        """A row for all contexts, named "all", and a row for each, the one served worst by the robust model first.

        Columns are ``context``, ``n``, ``share`` with ``low`` and ``high`` in the set, the leading measure of each of
        :attr:`methods`, and what robust changes against erm: ``before``, ``change``, ``change_low``, ``change_high``
        and ``size``.
        """
        judged, name = self.judged, self.judged.measure.name
        ours = judged.measures.where(method="robust")
        worst = ours[name][1:] if judged.measure.higher_is_better else -ours[name][1:]
        order = np.concatenate([[0], 1 + np.argsort(np.nan_to_num(worst, nan=np.inf), kind="stable")]).astype(np.intp)
        allowed = {plain(row["context"]): row for row in self.shares.rows.rows()}
        own: list[dict[str, Any]] = [allowed.get(plain(one), {}) for one in ours["context"][order].tolist()]
        own[0] = {}
        changes = judged.changes.where(method="robust")
        return Table(
            {
                "context": ours["context"][order],
                "n": ours["n"][order],
                **{one: np.array([row.get(one, math.nan) for row in own]) for one in ("share", "low", "high")},
                **{method: judged.measures.where(method=method)[name][order] for method in self.methods},
                **{one: changes[one][order] for one in _CHANGES},
            }
        )

    @property
    def html(self) -> Html:
        """The first table: the contexts that are served worst."""
        rows, measure = self.rows, self.judged.measure
        most = 1 + FIRST
        points = ", points" if measure.unit == "%" else ""
        cells: dict[str, NDArray[Any]] = {
            "context": objects(["all", *map(shown, rows["context"][1:most])]),
            "rows": rows["n"][:most],
            "share (plausible)": _shares(rows)[:most],
            **{WORDS[name]: self._texts(rows[name])[:most] for name in self.methods},
            f"change{points}": self._changes(rows)[:most],
            "judgement": rows["size"][:most],
        }
        if self.comparison.forward is not None:
            both = zip(*(self._shuffled(name, rows["context"]) for name in ("robust", "erm")), strict=True)
            cells["shuffled: robust (erm)"] = objects([f"{one}{_STAY}({other})" for one, other in both])[:most]
        left_out = rows.n_rows - most
        more = f"and {left_out} more {'context' if left_out == 1 else 'contexts'} below" if left_out > 0 else ""
        served = (
            "The context that loses most is furthest above what its own model or the plain one reaches there; a "
            f"{'low' if measure.higher_is_better else 'high'} {measure.name} alone may mean that it is hard for every "
            "model. In brackets is what the set of plausible mixes allows a share to be."
        )
        return table(
            Table(cells, f"{more}. {served}" if more else served),
            left=["context"],
            caption=f"{measure.name[:1].upper()}{measure.name[1:]} {self.judged.where}: {measure.words}; "
            f"change from erm to robust with {self.judged.level} intervals",
        )

    def _shuffled(self, method: str, contexts: NDArray[Any]) -> NDArray[Any]:
        """Return the leading measure of a method on shuffled rows, context by context."""
        own = self.comparison.measures.where(method=method)
        value = {plain(row["context"]): row[self.judged.measure.name] for row in list(own.rows())[1:]}
        every = own[self.judged.measure.name][0]
        found = [every, *(value.get(plain(one), math.nan) for one in contexts[1:].tolist())]
        return self._texts(np.array(found))

    def _texts(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of the leading measure, all with as many decimals."""
        measure = self.judged.measure
        if measure.unit == "%":
            return _texts(measure, values)
        decimals = measure.decimals(self.judged.measures.where(method="erm")[measure.name][0])
        return objects([EN_DASH if math.isnan(one) else fixed(one, decimals) for one in values.tolist()])

    def _changes(self, rows: Table) -> NDArray[Any]:
        """Return changes of the leading measure with their intervals."""
        # All as finely as over all rows, so that they can be compared.
        ends = zip(rows["change"], rows["change_low"], rows["change_high"], strict=True)
        cells = [self.judged.measure.change_text(change, rows["before"][0]) for change in ends]
        return objects([cell.replace("-", MINUS).replace(", ", f",{_STAY}") for cell in cells])

    @property
    def every_measure(self) -> Html:
        """The second table: every measure in every context, robust beside erm."""
        ours, erm = (self.judged.measures.where(method=name) for name in ("robust", "erm"))
        cells: dict[str, NDArray[Any]] = {
            "context": objects(["all", *map(shown, ours["context"][1:])]),
            "rows": ours["n"],
        }
        for one in self.measures:
            # All numbers in the unit of the target as finely as the one that leads.
            write = self._texts if one.unit == self.judged.measure.unit == "target" else partial(_texts, one)
            both = zip(write(ours[one.name]), write(erm[one.name]), strict=True)
            cells[one.name] = objects([f"{robust} ({plain_})" for robust, plain_ in both])
        told = "; ".join(f"{one.name}: {one.words}" for one in self.measures)
        return table(
            Table(cells, told),
            left=["context"],
            caption=f"Every measure {self.judged.where}, robust and in brackets erm",
        )

    @property
    def every_method(self) -> Html:
        """A row per method, over all rows and in the context it serves worst."""
        natural = self.judged.natural
        return table(natural, left=["method", "in"], caption=f"Every method {self.judged.where}")

    @property
    def chart(self) -> Html:
        """The leading measure in every context, method beside method."""
        rows, measure = list(self.rows.rows()), self.judged.measure
        scale = 100.0 if measure.unit == "%" else 1.0
        units = {"%": ", %", "target": ", in the unit of the target"}
        unit = units.get(measure.unit, "")
        return dot_chart(
            [
                DotRow("all rows" if k == 0 else row["context"], {WORDS[one]: scale * row[one] for one in self.methods})
                for k, row in enumerate(rows)
            ],
            colours={WORDS[name]: COLOURS[name] for name in self.methods},
            title=f"{measure.name[:1].upper()}{measure.name[1:]} in each context",
            x_label=f"{measure.name}{unit}, {self.judged.where}",
            alt="; ".join(
                f"{shown(row['context'])}: " + ", ".join(f"{one} {measure.text(row[one])}" for one in self.methods)
                for row in rows[:30]
            ),
        )

    @property
    def known(self) -> str:
        """What can be had where the context is known when predicting, in words; empty where it is not."""
        found, measure = self.judged.known_contexts, self.judged.measure
        if found is None:
            return ""
        every = [row for row in found.rows() if row["context"] == ALL]
        offers = [
            f"{'the' if row['method'].startswith('context') else 'a'} {row['method']} has {measure.text(row['after'])} "
            f"({row['size']})"
            for row in every
        ]
        return (
            f"Where the context is known when predicting: beside {measure.name} {measure.text(every[0]['before'])} of "
            f"the plain model, {' and '.join(offers)}."
        )

    @property
    def known_table(self) -> Html | str:
        """The same as a table, context by context."""
        rows, measure = self.judged.known_contexts, self.judged.measure
        if rows is None:
            return ""
        points = ", points" if measure.unit == "%" else ""
        cells: dict[str, NDArray[Any]] = {
            "method": rows["method"],
            "context": objects([shown(one) for one in rows["context"]]),
            "rows": rows["n"],
            "erm": self._texts(rows["before"]),
            "instead": self._texts(rows["after"]),
            f"change{points}": self._changes(rows),
            "judgement": rows["size"],
        }
        caption = f"{measure.name[:1].upper()}{measure.name[1:]} {self.judged.where}"
        return table(Table(cells), left=["method", "context", "judgement"], caption=caption)

    @property
    def blocks(self) -> Html | str:
        """The leading measure of every method in each block of later rows, one cut after the other."""
        found, measure = self.judged.blocks, self.judged.measure
        if found is None:
            return ""
        named = {name: self._texts(found[name]) for name in self.judged.outcomes}
        times = {"from": found["first"], "to": found["last"]}
        cells = {
            **{name: objects([_moment(one) for one in times[name].tolist()]) for name in times},
            "rows before": found["rows_before"],
            "rows": found["rows"],
            **named,
        }
        caption = (
            f"{measure.name[:1].upper()}{measure.name[1:]} block by block: fitted to what came before, judged on it"
        )
        return table(Table(cells), left=["from", "to"], caption=caption)

    @property
    def carries_over(self) -> str:
        """Whether the gain holds later, as far as anything is known of that."""
        if self.comparison.forward is not None:
            return self.comparison.agreement
        if self.judged.validation != SHUFFLED:
            return f"All methods were fitted to the past and judged {self.judged.where}."
        return (
            "Rows were held out at random: whether this holds later is not known. Name the times of rows (--time, "
            "time=) to find out."
        )

    @property
    def too_small(self) -> str:
        """The contexts that cannot be judged, in words; empty where there are none."""
        names = [
            f"{shown(row['context'])} ({row['n']:,} {'row' if row['n'] == 1 else 'rows'})"
            for row in self.judged.brackets.rows()
            if row["too_small"]
        ]
        if not names:
            return ""
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"Too small to tell how much better they could be served: {', '.join(names[:3])}{more}."

    @property
    def not_judged(self) -> str:
        """The contexts that models had no rows of, in words; empty where there are none."""
        return not_judged(self.judged.brackets)


def _moment(value: Any) -> str:
    """Return a time in words: a date where it is midnight."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).removesuffix(" 00:00:00")


def _texts(measure: Measure, values: NDArray[Any]) -> NDArray[Any]:
    return objects([measure.text(float(value)).replace("-", MINUS) for value in values])


def _shares(rows: Table) -> NDArray[Any]:
    """Return shares in the data, with what the set allows; nothing for all rows together."""
    cells = [
        "" if math.isnan(share) else f"{share:.1%} ({100 * low:.1f}{_STAY}to{_STAY}{100 * high:.1f})"
        for share, low, high in zip(rows["share"], rows["low"], rows["high"], strict=True)
    ]
    return objects(cells)
