"""Orders of every product by every rule, from past sales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts, shown
from counterpoise.core.problem import Reference
from counterpoise.core.robustness import Robustness
from counterpoise.core.solvers import Solution
from counterpoise.exceptions import InvalidInputError
from counterpoise.stock.plans import ProductPlan
from counterpoise.stock.problem import StockProblem, Terms, as_limit
from counterpoise.stock.sharing import share

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

RULES = ("robust", "erm", "inverse-frequency", "minimax-risk", "minimax-regret")
"""The rules a plan compares; the first is the one it recommends."""


@dataclass(frozen=True, eq=False)
class PastSales:
    """Selling periods of products.

    Attributes
    ----------
    sales : ndarray of shape (n_samples, 3)
        Unit cost, demand and price.
    contexts : Contexts
    products : Contexts, optional
        Which product each row is of.
    groups : ndarray of shape (n_samples,), optional
        Rows that belong together.
    """

    sales: Array
    contexts: Contexts
    products: Contexts | None = None
    groups: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.sales)

    def where(self, rows: Rows) -> PastSales:
        """Return some of the rows."""
        return PastSales(
            self.sales[rows],
            self.contexts.where(rows),
            None if self.products is None else self.products.where(rows),
            None if self.groups is None else self.groups[rows],
        )

    @property
    def by_product(self) -> Iterator[tuple[Any, Rows]]:
        """Every product that has rows, with these."""
        if self.products is None:
            yield None, np.arange(len(self))
            return
        order = np.argsort(self.products.codes, kind="stable")
        for k, label in enumerate(self.products.labels):
            rows = order[self.products.starts[k] : self.products.starts[k + 1]]
            if len(rows):
                yield label, rows


@dataclass(frozen=True, eq=False)
class Ordering:
    """How orders follow from past sales.

    Attributes
    ----------
    terms : Terms
        Without the price, which is that of the sales.
    robustness : Robustness
        For each product on its own.
    reference : Reference
    min_rows : int
        Contexts with fewer rows of a product are refused.
    capacity : float, optional
        The most of all products together.
    """

    terms: Terms
    robustness: Robustness
    reference: Reference = "in-sample"
    min_rows: int = 1
    capacity: float | None = None

    def plans(self, past: PastSales, rules: Sequence[str] = RULES) -> list[ProductPlan]:
        """Return a plan for each product, with the orders of some rules."""
        plans = []
        for product, rows in past.by_product:
            try:
                plans.append(self._unordered(product, past.where(rows)))
            except InvalidInputError as error:
                if product is None:
                    raise
                raise InvalidInputError(f"product {shown(product):.60}: {error}") from error
        return self._ordered(plans, past.sales, rules)

    def _unordered(self, product: Any, past: PastSales) -> ProductPlan:
        """Prepare one product."""
        own = past.sales
        robustness = self.robustness.sized(past.contexts.codes, past.groups)
        present, local = np.unique(past.contexts.codes, return_inverse=True)
        labels, counts = past.contexts.labels[present], np.bincount(local)
        few = np.flatnonzero(counts < self.min_rows)
        if few.size:
            listed = ", ".join(f"{shown(labels[c]):.40} ({counts[c]})" for c in few[:5])
            more = f" and {few.size - 5} more" if few.size > 5 else ""
            raise InvalidInputError(
                f"contexts with fewer than {self.min_rows} rows: {listed}{more}. One row says little about a "
                "circumstance. Merge them with others, leave them out, or lower min_rows (--min-rows)."
            )
        stock = StockProblem.from_data(
            own[:, 0], own[:, 1], labels[local], replace(self.terms, price=own[:, 2]), reference=self.reference
        )
        # What is known about the mix must be about the contexts of this product.
        robustness.mixes(stock.problem.counts, stock.problem.contexts.labels)
        mean_cost, mean_demand, mean_price = (np.bincount(local, column) / counts for column in own.T)
        return ProductPlan(product, labels, stock, robustness, mean_cost, mean_price, mean_demand)

    def _ordered(self, plans: list[ProductPlan], sales: Array, rules: Sequence[str]) -> list[ProductPlan]:
        """Return the plans with the orders of every rule, within the capacity."""
        if self.capacity is None:
            return [replace(plan, orders={rule: plan.solve(rule) for rule in rules}) for plan in plans]
        room = as_limit(self.capacity)
        if not room >= 0:
            raise InvalidInputError(f"capacity is {self.capacity!r}; pass a number of units, 0 or more, or None.")
        dearest = float((sales[:, 2] + self.terms.shortage - sales[:, 0]).max())
        orders: list[dict[str, Solution]] = [{} for _ in plans]
        charge = 0.0
        for rule in rules:
            products = [(partial(plan.solve, rule), partial(plan.placed, rule)) for plan in plans]
            # The rules that are only compared with need not be exact to the last digit.
            shares = share(products, room, dearest, self.terms.integer, 1e-10 if rule == "robust" else 1e-6)
            charge = shares.charge if rule == "robust" else charge
            for found, solution in zip(orders, shares.solutions, strict=True):
                found[rule] = solution
        return [replace(plan, orders=found, charge=charge) for plan, found in zip(plans, orders, strict=True)]
