"""Orders with their reasons, in tables and in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import objects, shown
from counterpoise.core.robustness import METHODS, Robustness
from counterpoise.core.solvers import Solution
from counterpoise.core.solvers._base import solution_at
from counterpoise.exceptions import EmptySetError
from counterpoise.sets import ContextSet, RadiusMethod, implied_confidence, radius_ladder, radius_of, share_intervals
from counterpoise.stock.earnings import StockBacktest
from counterpoise.stock.problem import StockProblem
from counterpoise.table import Table

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Money:
    """How amounts are written: in which currency, and per what."""

    currency: str = ""
    period: str = "row"

    def __call__(self, amount: float) -> str:
        """Return an amount in words, with its currency."""
        return f"{self.number(amount)} {self.currency}".rstrip()

    @staticmethod
    def number(amount: float) -> str:
        """Return an amount in words: to the hundredth, or finer where it is small."""
        if not math.isfinite(amount):
            return "–"
        size = abs(amount)
        decimals = 2 if size >= 0.1 or size < 5e-13 else min(-math.floor(math.log10(size)) + 1, 12)
        # Minus nothing is nothing.
        return f"{round(amount, decimals) + 0.0:,.{decimals}f}"

    @property
    def unit(self) -> str:
        """What amounts are in."""
        return f"{self.currency or 'the currency of the price'} per {self.period}"


@dataclass(frozen=True, eq=False)
class Curves:
    """What levels cost above the best of each context.

    Attributes
    ----------
    levels : ndarray of shape (n_levels,)
    excess : ndarray of shape (n_levels, n_contexts)
    orders : mapping from rule to order
    """

    levels: Array
    excess: Array
    orders: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class ProductPlan:
    """The order of one product, and what it is made of.

    Attributes
    ----------
    product : label, or None where there is one product without a name
    contexts : ndarray of shape (n_contexts,)
    stock : StockProblem
    robustness : Robustness
    orders : mapping from rule to Solution
    charge : float
        What the room for one more unit would save, where products share a capacity.
    mean_cost, mean_price, mean_demand : ndarray of shape (n_contexts,)
    """

    product: Any
    contexts: NDArray[Any]
    stock: StockProblem
    robustness: Robustness
    mean_cost: Array
    mean_price: Array
    mean_demand: Array
    orders: Mapping[str, Solution] = field(default_factory=dict)
    charge: float = 0.0

    @property
    def order(self) -> float:
        """The order that is recommended."""
        return float(self.orders["robust"].theta[0])

    @property
    def counts(self) -> Array:
        """Rows in each context."""
        return self.stock.problem.counts

    @property
    def shares(self) -> Array:
        """The share of each context in the data."""
        return self.counts / self.counts.sum()

    def excess(self, level: float) -> Array:
        """Return what a level costs above the best of each context."""
        return self.stock.risks(level) - self.stock.references.upper

    def solve(self, rule: str, charge: float = 0.0) -> Solution:
        """Return the best order under a rule."""
        return self.stock.solve(self._switches(rule), charge)

    def placed(self, rule: str, level: float) -> Solution:
        """Return the outcome of an order, judged by a rule."""
        return solution_at(self.stock.objective(self._switches(rule)), np.array([level]))

    def _switches(self, rule: str) -> Robustness:
        return self.robustness if rule == "robust" else METHODS[rule]

    @property
    def choices(self) -> Iterator[dict[str, Any]]:
        """What every rule orders, and what comes of it."""
        for rule, solution in self.orders.items():
            level = float(solution.theta[0])
            excess, profit = self.excess(level), 0.0 - self.stock.risks(level)
            worst, poorest = int(excess.argmax()), int(profit.argmin())
            yield {
                "product": self.product,
                "rule": rule,
                "order": level,
                "average_profit": float(self.shares @ profit),
                "worst_profit": float(profit[poorest]),
                "worst_profit_in": self.contexts[poorest],
                "average_excess": float(self.shares @ excess),
                "worst_excess": float(excess[worst]),
                "worst_excess_in": self.contexts[worst],
            }

    @property
    def reasons(self) -> Iterator[dict[str, Any]]:
        """What there is to say about every context; those that lose most come first."""
        excess, weights = self.excess(self.order), self.orders["robust"].p_worst
        allowed = share_intervals(self.mixes)
        for c in np.argsort(-excess, kind="stable"):
            yield {
                "product": self.product,
                "context": self.contexts[c],
                "rows": float(self.counts[c]),
                "share": float(self.shares[c]),
                "share_low": float(allowed[c, 0]),
                "share_high": float(allowed[c, 1]),
                "weight": float(weights[c]),
                "best_order": float(self.stock.context_levels[c]),
                "excess": float(excess[c]),
                "profit": float(-self.stock.references.upper[c] - excess[c]),
                "best_profit": float(-self.stock.references.upper[c]),
                "mean_demand": float(self.mean_demand[c]),
                "mean_cost": float(self.mean_cost[c]),
            }

    def curves(self, points: int = 121) -> Curves:
        """Return what levels from 0 to a little above every order of interest cost in each context."""
        orders = {rule: float(solution.theta[0]) for rule, solution in self.orders.items()}
        top = 1.12 * max(*self.stock.context_levels, *orders.values(), 1e-9)
        levels = np.unique(np.concatenate([np.linspace(0.0, top, points), list(orders.values())]))
        return Curves(levels, np.array([self.excess(float(level)) for level in levels]), orders)

    def path(self, levels: int = 25) -> Table:
        """Return the order as the set grows, from empirical risk minimisation to minimax regret (or risk, if scored).

        It is that of the product by itself, without a capacity that it shares with others.

        Columns are ``radius`` (in bits), ``confidence`` (for which the method gives that radius), ``order``,
        ``average_excess`` and ``worst_excess``.
        """
        radii = np.unique(np.append(radius_ladder(levels), self.radius))
        found: dict[float, float] = {}
        for radius in radii.tolist():
            # A ball that is too small to meet what is known about the mix has no order.
            with suppress(EmptySetError):
                found[radius] = float(self.stock.solve(replace(self.robustness, radius=radius)).theta[0])
        radii, orders = np.array(list(found)), list(found.values())
        excess = np.array([self.excess(order) for order in orders])
        return Table.of(
            radius=radii,
            confidence=np.array([self.confidence_of(float(radius)) for radius in radii]),
            order=orders,
            average_excess=excess @ self.shares,
            worst_excess=excess.max(axis=1),
        )

    def confidence_of(self, radius: float) -> float:
        """Return the confidence for which the method of sizing the set gives a radius; NaN where that is not known."""
        if not self.robustness.has_divergence_of_data:
            return math.nan
        return implied_confidence(radius, self.counts, self._method, draws=self.robustness.counted)

    def radius_at(self, confidence: float) -> float:
        """Return the radius that the method of sizing the set gives for a confidence."""
        return radius_of(
            replace(self.robustness, confidence=confidence, radius=self._method).mixes(self.counts, self.contexts)
        )

    @property
    def _method(self) -> RadiusMethod:
        radius = self.robustness.radius
        return radius if isinstance(radius, str) else "types"

    @cached_property
    def mixes(self) -> ContextSet:
        """The set of plausible mixes."""
        return self.robustness.mixes(self.counts, self.contexts)

    @property
    def radius(self) -> float:
        """Of the set, in bits; NaN for a set that has none."""
        return radius_of(self.mixes)


@dataclass(frozen=True, eq=False, repr=False)
class StockPlan:
    """Orders, with their reasons.

    Attributes
    ----------
    plans : tuple of ProductPlan
    money : Money
    notes : tuple of str
        What the reader should know about the data.
    capacity : float, optional
    backtest : StockBacktest, optional
        What the orders of every rule would have earned on periods held out.
    """

    plans: tuple[ProductPlan, ...]
    money: Money
    notes: tuple[str, ...] = ()
    capacity: float | None = None
    backtest: StockBacktest | None = None

    def __getitem__(self, product: Any) -> ProductPlan:
        for plan in self.plans:
            if plan.product == product:
                return plan
        names = ", ".join(shown(plan.product) for plan in self.plans[:20])
        raise KeyError(f"there is no product {product!r}; the products are {names:.500}")

    def only(self, plan: ProductPlan) -> StockPlan:
        """Return the plan of one product, whose tables need not name it."""
        return replace(self, plans=(replace(plan, product=None),), notes=())

    @cached_property
    def levels(self) -> Table:
        """A row per product: its order and what is expected of it."""
        chosen = self.choices.where(rule="robust")
        return Table({name: column for name, column in chosen.items() if name != "rule"})

    @cached_property
    def choices(self) -> Table:
        """A row per product and rule: what it orders, and what comes of that in the average and the worst context."""
        return self._table([row for plan in self.plans for row in plan.choices])

    @cached_property
    def reasons(self) -> Table:
        """A row per product and context: the best order there, the weight, the excess cost of the recommended order."""
        return self._table([row for plan in self.plans for row in plan.reasons])

    def _table(self, rows: list[dict[str, Any]]) -> Table:
        names = [
            name for name in rows[0] if name != "product" or len(self.plans) > 1 or self.plans[0].product is not None
        ]
        return Table({name: _column([row[name] for row in rows]) for name in names})

    @property
    def summary(self) -> str:
        """The recommendation for all products in a sentence or two."""
        if len(self.plans) == 1:
            return self.verdict(self.plans[0])
        totals = {rule: self.choices.where(rule=rule) for rule in ("robust", "erm")}
        order, profit, worst = (
            {rule: float(rows[name].sum()) for rule, rows in totals.items()}
            for name in ("order", "average_profit", "worst_excess")
        )
        return (
            f"Order {units(order['robust'])} in all, of {len(self.plans)} products (the plain rule: "
            f"{units(order['erm'])}). On these rows that earns {self.money(profit['robust'])} per {self.money.period} "
            f"instead of {self.money(profit['erm'])}; what each product misses in its worst circumstance adds up to "
            f"{self.money(worst['robust'])} instead of {self.money(worst['erm'])}."
        )

    def verdict(self, plan: ProductPlan) -> str:
        """Return the recommendation for one product in a sentence or two."""
        rows = {row["rule"]: row for row in plan.choices}
        ours, plain = rows["robust"], rows["erm"]
        of = "" if plan.product is None else f" of {shown(plan.product):.80}"
        first = f"Order {units(ours['order'])}{of}. On these rows that earns"
        earned = f"{self.money(ours['average_profit'])} per {self.money.period}"
        if len(plan.contexts) == 1:
            return f"{first} {earned}. All rows are of one context, so there is nothing to be robust against."
        least = f"{self.money(ours['worst_excess'])} per {self.money.period}"
        if abs(ours["order"] - plain["order"]) <= 1e-9 * max(abs(plain["order"]), 1.0):
            return (
                f"{first} {earned}, and it is what the plain rule orders too. In the worst circumstance ({_in(ours)}) "
                f"it misses {least} against the best order there."
            )
        given = ours["average_excess"] - plain["average_excess"]
        more = f"{self.money(given)} less" if given > 0 else f"{self.money(-given)} more"
        return (
            f"{first} {earned}, {more} than the plain order ({units(plain['order'])}). In the worst circumstance "
            f"({_in(ours)}) it misses {least} against the best order there; the plain order misses "
            f"{self.money(plain['worst_excess'])} ({_in(plain)})."
        )

    def __repr__(self) -> str:
        return "\n".join([self.summary, "", repr(self.choices), *self.notes])

    def _repr_html_(self) -> str:
        return self.choices._repr_html_()


def units(order: float) -> str:
    """Return an order in words: as many decimals as matter."""
    rounded = round(order, 2) if abs(order) < 1000 else round(order, 1)
    return f"{rounded:,.2f}".rstrip("0").rstrip(".")


def _in(choice: dict[str, Any]) -> str:
    return f"{shown(choice['worst_excess_in']):.80}"


def _column(values: list[Any]) -> NDArray[Any]:
    """Return values as an array: of numbers, or else of the objects they are."""
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return np.array(values)
    return objects(values)
