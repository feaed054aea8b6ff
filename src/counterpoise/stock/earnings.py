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
        Of periods after those that orders were found from.
    money : Money
    notes : tuple of str
        Rows that could not be judged, and why.
    plain_on_later_rows : float
        What the plain order earned on the rows that ``later`` is of, when it was found from shuffled periods; NaN where
        there are none.
    """

    shuffled: Earnings
    later: Earnings | None
    money: Money
    notes: tuple[str, ...] = ()
    plain_on_later_rows: float = math.nan

    @property
    def final(self) -> Earnings:
        """What counts: later periods where there are any."""
        return self.shuffled if self.later is None else self.later

    @property
    def where(self) -> str:
        """What was judged, in words."""
        return "on shuffled periods held out" if self.later is None else "in later periods"

    @property
    def _small(self) -> float:
        """A difference per period that makes none in practice."""
        return _SMALL * abs(float(self.final.of("erm")["profit"]))

    @property
    def headlines(self) -> list[str]:
        """What robustness costs and buys, and whether shuffled and later periods agree."""
        return [words for words in (self.profit, self.worst, self.best, self.agreement) if words]

    @property
    def profit(self) -> str:
        """What is earned on average, and what robustness costs of that."""
        ours, plain = self.final.of("robust"), self.final.of("erm")
        gain = interval_in(ours, "gain")
        if gain == _NOTHING:
            difference = "the orders earn the same"
        elif _within(gain, self._small):
            difference = f"{self._signed(gain)}, no practical difference (less than 1%)"
        elif gain.upper < 0:
            difference = f"robustness costs {self._interval(gain, -1.0)}"
        elif gain.lower > 0:
            difference = f"robustness earns {self._interval(gain)} more"
        else:
            difference = f"{self._signed(gain)}, so that the two cannot be told apart"
        return (
            f"{_capital(self.where)} the robust order earns {self._amount(ours['profit'])} per {self.money.period} and "
            f"the plain order {self._amount(plain['profit'])}: {difference}."
        )

    @property
    def worst(self) -> str:
        """What the worst context and the worst plausible mix earn, and what robustness buys there."""
        ours, plain = self.final.of("robust"), self.final.of("erm")
        low, other = (
            f"{self._amount(row['lowest_profit'])} ({shown(row['lowest_in']):.60}, {row['lowest_rows']:,} rows)"
            for row in (ours, plain)
        )
        return (
            f"Where least is earned, the robust order earns {low} and the plain order {other}. {self._bought()}".strip()
        )

    @property
    def best(self) -> str:
        """Name another single order that clearly earns more than the plain one; empty where there is none."""
        others = [row for row in self.final.methods.rows() if row["method"] not in ("robust", "erm", "per-context")]
        row = max(others, key=lambda row: row["profit"])
        gain = interval_in(row, "gain")
        if not gain.lower > self._small or gain.estimate <= self.final.of("robust")["gain"]:
            return ""
        more = f"{self._interval(gain)} more than the plain order"
        return f"Of the single orders, that of {row['method']} earns most: {more}."

    def _bought(self) -> str:
        """Say what robustness buys in the worst plausible mix."""
        ours, plain = self.final.of("robust"), self.final.of("erm")
        change = interval_in(ours, "mix_missed_change")
        if math.isnan(change.estimate):
            return ""
        first, second = self._amount(ours["mix_missed"]), self._amount(plain["mix_missed"])
        if plain["mix_missed"] <= self._small and change.lower > -self._small:
            return (
                "In the worst plausible mix one order per circumstance would hardly earn more than the plain order "
                f"({self._signed_amount(plain['mix_missed'])}): there is little to be robust against."
            )
        missed = "In the worst plausible mix, against one order per circumstance,"
        if change == _NOTHING:
            return f"{missed} both miss {second}."
        missed = f"{missed} the robust order misses {first} and the plain order {second}"
        if _within(change, self._small):
            return f"{missed}, no practical difference (less than 1% of the profit)."
        if change.upper < 0:
            return f"{missed}: robustness buys {self._interval(change, -1.0)}."
        if change.lower > 0:
            return f"{missed}: robustness buys nothing, and misses {self._interval(change)} more."
        return f"{missed}, which cannot be told apart ({self._signed(change)})."

    @property
    def agreement(self) -> str:
        """Whether what shuffled periods show carried over to later ones."""
        return "" if self.later is None else " ".join(self._agreements(self.later))

    def _agreements(self, later: Earnings) -> Iterator[str]:
        now, then = later.of("robust"), self.shuffled.of("robust")
        found = {
            "what is missed in the worst plausible mix": [interval_in(row, "mix_missed_change") for row in (then, now)],
            "profit": [interval_in(row, "gain") for row in (then, now)],
        }
        said: dict[str, list[str]] = {}
        for what, (before, after) in found.items():
            if math.isnan(after.estimate) or math.isnan(before.estimate):
                continue
            if _within(before, self._small) and _within(after, self._small):
                continue
            better = 1 if what == "profit" else -1
            signs = better * _sign(before), better * _sign(after)
            apart = before.lower > after.upper or after.lower > before.upper
            words = _DISAGREE.get(signs, _OTHER_SIZE if apart and signs != (0, 0) else "")
            if words:
                said.setdefault(words, []).append(
                    f"{what} by {self._signed(before)} shuffled and {self._signed(after)} later"
                )
        for words, changes in said.items():
            yield f"{words}: robustness changes {', and '.join(changes)}."
        if not said:
            yield "Shuffled and later periods agree on what robustness costs and buys."
        was, is_now = self.plain_on_later_rows, later.of("erm")["profit"]
        if is_now < was - _MOVED * abs(was):
            yield (
                f"Found from earlier periods only, the plain order earns {self._amount(is_now)}; found from periods on "
                f"both sides, on the same rows, {self._amount(was)}: demand moves, or the past is too short to show it."
            )

    def recommendation(self, circumstance: str = "circumstance", known: str | None = None) -> str:
        """Say what held-out periods speak for; empty where they do not decide.

        Parameters
        ----------
        circumstance, known
            See :meth:`advice`.
        """
        ours = self.final.of("robust")
        informed, gain = interval_in(self.final.of("per-context"), "gain"), interval_in(ours, "gain")
        change = interval_in(ours, "mix_missed_change")
        if known is not None and informed.lower > self._small:
            if "known when" in known:
                return f"Order by {circumstance}, rather than one amount for all."
            return f"If {circumstance} is known when ordering, order by it, rather than one amount for all."
        if change.upper < 0 and not _within(change, self._small):
            price = f" at a price of {self._amount(-gain.estimate)} per {self.money.period}" if gain.upper < 0 else ""
            return f"Robustness does what it is for{price}: order by it if the mix may change."
        if gain.upper < 0 and not _within(gain, self._small):
            return f"{_capital(self.where)} robustness costs profit and buys nothing: the plain order does better."
        return ""

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
            return f"If {circumstance} is known when ordering: {words}."
        # A column keeps its name at the start of a sentence.
        reason = known if known.startswith(circumstance) else _capital(known)
        return f"{reason}. {_capital(words)}."

    def _informed(self, circumstance: str) -> str:
        row = self.final.of("per-context")
        gain = interval_in(row, "gain")
        earned = (
            f"one order per {circumstance} earns {self._amount(row['profit'])} per {self.money.period} {self.where}"
        )
        if gain.lower > 0:
            return f"{earned}, {self._interval(gain)} more than the plain order"
        if gain.upper < 0:
            return f"{earned}, {self._interval(gain, -1.0)} less than the plain order"
        return f"{earned}, which cannot be told apart from the plain order's profit ({self._signed(gain)})"

    def number(self, amount: float) -> str:
        """Return an amount with as many decimals as the profit of the plain order calls for."""
        size = abs(self.final.of("erm")["profit"])
        decimals = 2 if size >= 1 or size == 0 else min(2 - math.floor(math.log10(size)), 12)
        # Minus nothing is nothing.
        return "–" if math.isnan(amount) else f"{round(amount, decimals) + 0.0:,.{decimals}f}"

    def interval_words(self, interval: Interval) -> str:
        """Return a signed change with its interval, without the currency."""
        ends = "" if math.isnan(interval.lower) else f" [{self.number(interval.lower)}, {self.number(interval.upper)}]"
        return f"{'+' if interval.estimate > 0 else ''}{self.number(interval.estimate)}{ends}"

    def _amount(self, amount: float) -> str:
        return f"{self.number(amount)} {self.money.currency}".rstrip()

    def _signed_amount(self, amount: float) -> str:
        return f"{'+' if amount > 0 else ''}{self._amount(amount)}"

    def _interval(self, interval: Interval, sign: float = 1.0) -> str:
        words = self._amount(sign * interval.estimate)
        if math.isnan(interval.lower):
            return words
        low, high = sorted((sign * interval.lower, sign * interval.upper))
        return f"{words} [{self.number(low)}, {self.number(high)}]"

    def _signed(self, interval: Interval) -> str:
        return f"{'+' if interval.estimate > 0 else ''}{self._interval(interval)}"


_NOTHING = (0.0, 0.0, 0.0)

_DISAGREE = {
    (1, 0): "Gains seen on shuffled periods did not carry over to later ones",
    (1, -1): "Gains seen on shuffled periods turned into losses in later ones",
    (0, 1): "Later periods show a gain that shuffled ones do not",
    (-1, 1): "Later periods show a gain where shuffled ones show a loss",
    (0, -1): "Later periods show a loss that shuffled ones do not",
    (-1, 0): "The loss seen on shuffled periods is not seen in later ones",
}
"""What became of a gain (1) or a loss (-1) of robustness: by its sign on shuffled and on later periods."""

_OTHER_SIZE = "Shuffled and later periods agree on the direction but not on the size"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _within(interval: Interval, size: float) -> bool:
    """Whether an interval lies within a size of zero; one without ends does not."""
    return max(abs(interval.lower), abs(interval.upper)) <= size


def _sign(interval: Interval) -> int:
    """Return which side of zero an interval lies on, 0 where it holds zero."""
    return 1 if interval.lower > 0 else -1 if interval.upper < 0 else 0
