"""What orders earned on periods held out, in tables and in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterpoise.contexts import shown
from counterpoise.inference.intervals import Interval, interval_in
from counterpoise.table import Table

if TYPE_CHECKING:
    from counterpoise.stock.plans import Money

_SMALL = 0.01
"""Share of the plain order's profit below which a difference makes none in practice."""

_MOVED = 0.05
"""Share of the profit by which shuffled and later periods must differ to be said to."""


@dataclass(frozen=True, eq=False)
class Earnings:
    """What every method earned per period on rows held out.

    Attributes
    ----------
    methods : Table
        A row per method: ``profit`` per period; ``gain`` over the plain order (``erm``) with ``gain_low`` and
        ``gain_high``; ``lowest_profit`` of any context, ``lowest_in`` which and of how many rows (``lowest_rows``);
        ``mix_profit``, in the worst plausible mix; ``missed``, the most that is missed in any context against one order
        per context, with ``missed_in`` and ``missed_rows``; ``mix_missed``, in the worst plausible mix;
        ``mix_missed_change``, by how much that is more than the plain order misses, with ``_low`` and ``_high``: of
        the robust order, others have none.
        Worst mixes are corrected for being the worst of noisy numbers. With several products, profits are those of all
        products together.
    contexts : Table
        A row per context: ``rows``, and the profit of each method.
    products : Table, optional
        A row per product: ``rows``, and the profit of each method.
    blocks : Table, optional
        A row per block of later periods: ``first`` and ``last`` time, ``rows``, rows ``trained_on``, and the profit of
        each method.
    n_rows, n_units : int
        Rows that were judged, and how many independent units they count as.
    """

    methods: Table
    contexts: Table
    products: Table | None
    blocks: Table | None
    n_rows: int
    n_units: int

    def of(self, method: str) -> dict[str, Any]:
        """Return the row of a method."""
        return next(row for row in self.methods.rows() if row["method"] == method)


@dataclass(frozen=True, eq=False)
class StockBacktest:
    """Orders judged on periods that they were not found from.

    Attributes
    ----------
    shuffled : Earnings
        Of periods dealt to folds at random.
    later : Earnings, optional
        Of periods after those that orders were found from; of the same rows.
    money : Money
    notes : tuple of str
        Rows that could not be judged, and why.
    """

    shuffled: Earnings
    later: Earnings | None
    money: Money
    notes: tuple[str, ...] = ()

    @property
    def final(self) -> Earnings:
        """What counts: later periods where there are any."""
        return self.shuffled if self.later is None else self.later

    @property
    def where(self) -> str:
        """What was judged, in words."""
        return "on shuffled periods held out" if self.later is None else "in later periods"

    @property
    def headlines(self) -> list[str]:
        """What robustness costs and buys, and whether shuffled and later periods agree."""
        return [self.profit, self.worst, *([self.agreement] if self.later is not None else [])]

    @property
    def profit(self) -> str:
        """What is earned on average, and what robustness costs of that."""
        ours, plain = self.final.of("robust"), self.final.of("erm")
        money = self.money
        where = self.where[0].upper() + self.where[1:]
        earned = (
            f"{where} the robust order earns {money(ours['profit'])} per {money.period} and the plain order "
            f"{money(plain['profit'])}"
        )
        gain = interval_in(ours, "gain")
        return f"{earned}: {self._difference(gain, plain['profit'])}."

    def _difference(self, gain: Interval, size: float) -> str:
        """Say what a gain over the plain order comes to."""
        money, span = self.money, self._span(gain)
        if gain == (0.0, 0.0, 0.0):
            return "the same orders, or as good"
        if max(abs(gain.lower), abs(gain.upper)) <= _SMALL * abs(size):
            return f"{self._signed(gain.estimate)} {span}, no practical difference (less than 1%)"
        if gain.upper < 0:
            return f"robustness costs {money(-gain.estimate)} {self._span(gain, -1.0)}"
        if gain.lower > 0:
            return f"robustness earns {money(gain.estimate)} {span} more"
        return f"{self._signed(gain.estimate)} {span}, which cannot be told apart"

    @property
    def worst(self) -> str:
        """What the worst context and the worst plausible mix earn, and what robustness buys there."""
        ours, plain = self.final.of("robust"), self.final.of("erm")
        money = self.money
        change = interval_in(ours, "mix_missed_change")
        low, other = (
            f"{money(row['lowest_profit'])} ({shown(row['lowest_in']):.60}, {row['lowest_rows']:,} rows)"
            for row in (ours, plain)
        )
        first = f"Where least is earned, the robust order earns {low} and the plain order {other}."
        if math.isnan(change.estimate):
            return first
        missed = f"{money(ours['mix_missed'])} against {money(plain['mix_missed'])}"
        size = abs(plain["mix_missed"])
        if change == (0.0, 0.0, 0.0):
            bought = f"the two miss the same ({money(plain['mix_missed'])})"
        elif change.upper < 0:
            bought = f"robustness buys {money(-change.estimate)} {self._span(change, -1.0)}: {missed} is missed"
        elif change.lower > 0:
            bought = f"robustness makes it worse by {money(change.estimate)} {self._span(change)}: {missed} is missed"
        elif size > 0 and max(abs(change.lower), abs(change.upper)) <= _SMALL * size:
            bought = f"there is no practical difference: {missed} is missed"
        else:
            bought = f"the two cannot be told apart: {missed} is missed {self._span(change)}"
        return f"{first} In the worst plausible mix, measured against one order per circumstance, {bought}."

    @property
    def agreement(self) -> str:
        """Whether gains seen on shuffled periods carried over to later ones."""
        if self.later is None:
            return ""
        return " ".join(self._agreements())

    def _agreements(self) -> Iterator[str]:
        assert self.later is not None
        ours, before = self.later.of("robust"), self.shuffled.of("robust")
        bought, seen = (interval_in(row, "mix_missed_change") for row in (ours, before))
        paid, expected = (interval_in(row, "gain") for row in (ours, before))
        told = False
        if _sign(seen) != _sign(bought) and not math.isnan(bought.estimate):
            told = True
            yield (
                f"{_DISAGREE[_sign(seen), _sign(bought)]}: shuffled, robustness changes what is missed in the worst "
                f"plausible mix by {self._signed(seen.estimate)} {self._span(seen)}, later by "
                f"{self._signed(bought.estimate)} {self._span(bought)}."
            )
        if _sign(expected) != _sign(paid):
            told = True
            yield (
                f"On average profit they disagree as well: {self._signed(expected.estimate)} {self._span(expected)} "
                f"shuffled, {self._signed(paid.estimate)} {self._span(paid)} later."
                if _sign(seen) != _sign(bought)
                else f"Shuffled and later periods disagree on the average: robustness changes profit by "
                f"{self._signed(expected.estimate)} {self._span(expected)} shuffled and "
                f"{self._signed(paid.estimate)} {self._span(paid)} later."
            )
        if not told:
            yield "Shuffled and later periods agree on what robustness costs and buys."
        then, now = self.shuffled.of("erm")["profit"], self.later.of("erm")["profit"]
        if abs(now - then) > _MOVED * abs(then):
            yield (
                f"The plain order earns {self.money(now)} when found from earlier periods only and {self.money(then)} "
                "when found from all around: demand moves, so that past orders go stale."
                if now < then
                else f"The plain order earns more when found from earlier periods only ({self.money(now)}) than from "
                f"all around ({self.money(then)})."
            )

    def advice(self, circumstance: str = "circumstance", known: str | None = None) -> str:
        """Say what one order per context would earn, for whoever knows it when ordering.

        Parameters
        ----------
        circumstance : str
            What contexts are of, such as weekday.
        known : str, optional
            Why the context is known when ordering, or looks chosen, as a clause.
        """
        words = self._informed(circumstance)
        if known is None:
            return f"If {circumstance} is known when ordering, {words}."
        return f"{known[0].upper()}{known[1:]}. {words[0].upper()}{words[1:]}."

    def _informed(self, circumstance: str) -> str:
        row, plain = self.final.of("per-context"), self.final.of("erm")
        gain, money = interval_in(row, "gain"), self.money
        earned = f"one order per {circumstance} earns {money(row['profit'])} per {money.period}"
        against = f"than the plain order's {money(plain['profit'])}"
        if gain.lower > 0:
            return f"{earned} {self.where}, {money(gain.estimate)} {self._span(gain)} more {against}"
        if gain.upper < 0:
            return f"{earned} {self.where}, {money(-gain.estimate)} {self._span(gain, -1.0)} less {against}"
        return (
            f"{earned} {self.where}, which cannot be told apart from the plain order's {money(plain['profit'])} "
            f"({self._signed(gain.estimate)} {self._span(gain)})"
        )

    def _signed(self, amount: float) -> str:
        return f"{'+' if amount > 0 else ''}{self.money(amount)}"

    def _span(self, interval: Interval, sign: float = 1.0) -> str:
        if math.isnan(interval.lower):
            return ""
        low, high = sorted((sign * interval.lower, sign * interval.upper))
        return f"[{self.money.number(low)}, {self.money.number(high)}]"


_DISAGREE = {
    (-1, 0): "Gains seen on shuffled periods did not carry over to later ones",
    (-1, 1): "Gains seen on shuffled periods turned into losses in later ones",
    (0, -1): "Later periods show a gain that shuffled ones do not",
    (1, -1): "Later periods show a gain where shuffled ones show a loss",
    (0, 1): "Later periods show a loss that shuffled ones do not",
    (1, 0): "The loss seen on shuffled periods is not seen in later ones",
}
"""What became of a change of what is missed, by its sign on shuffled and on later periods."""


def _sign(interval: Interval) -> int:
    """Return which side of zero an interval lies on, 0 where it holds zero."""
    return 1 if interval.lower > 0 else -1 if interval.upper < 0 else 0
