"""From sales to orders, product by product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts, encode, shown
from counterpoise.core.problem import Reference
from counterpoise.core.robustness import Criterion, DrawCount, Mixes, Robustness, check_parameters
from counterpoise.core.solvers import Solution
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import RadiusMethod
from counterpoise.stock.plans import Money, ProductPlan, StockPlan, units
from counterpoise.stock.problem import StockProblem, Terms, as_limit
from counterpoise.stock.sharing import share

Array = NDArray[np.float64]

RULES = ("robust", "erm", "inverse-frequency", "minimax-risk", "minimax-regret")
"""The rules a plan compares; the first is the one it recommends."""


def plan_stock(
    demand: Any,
    *,
    cost: Any,
    price: Any,
    contexts: Any,
    products: Any = None,
    salvage: float = 0.0,
    shortage: float = 0.0,
    max_stock: float | None = None,
    capacity: float | None = None,
    integer: bool = False,
    confidence: float = 0.99,
    radius: RadiusMethod | float = "types",
    draws: DrawCount = None,
    criterion: Criterion = "excess",
    mix: Mixes | None = None,
    groups: Any = None,
    reference: Reference = "in-sample",
    min_rows: int = 2,
    currency: str = "",
    period: str = "row",
) -> StockPlan:
    """Say how much of each product to order, why, and what other rules would cost.

    Parameters
    ----------
    demand : array of shape (n_samples,)
        A row is one selling period of one product.
    cost, price : float or array of shape (n_samples,)
        Per unit bought and sold.
    contexts : labels of shape (n_samples,), or a table of several columns, which are crossed
        The circumstances (weather, store, season) whose mix is uncertain.
    products : labels of shape (n_samples,), optional
        Each gets an order of its own.
    salvage, shortage : float
        Per unit left over, and per unit of demand not met.
    max_stock : float, optional
        The most of one product.
    capacity : float, optional
        The most of all products together. It is shared so that the sum of the worst-case costs is least.
    integer : bool
        Order whole units only.
    confidence, radius, draws, criterion, mix, reference
        As in :class:`counterpoise.RobustNewsvendor`; for each product on its own.
    groups : labels of shape (n_samples,), optional
        Rows that belong together, such as those of one day; for ``draws="groups"``, which counts the draws of each
        product on its own.
    min_rows : int
        Refuse a context with fewer rows of a product: one day says little about all such days.
    currency, period : str
        How amounts are written: what they are in, and what a row is (a day, a week).

    Returns
    -------
    StockPlan
    """
    given: dict[str, Any] = {
        "confidence": confidence,
        "radius": radius,
        "draws": draws,
        "criterion": criterion,
        "mix": mix,
    }
    given["reference"] = reference
    check_parameters(given)
    if not (isinstance(min_rows, (int, np.integer)) and not isinstance(min_rows, bool) and min_rows >= 1):
        raise InvalidInputError(f"min_rows (--min-rows) is {min_rows!r:.60}; pass a whole number, 1 or more.")
    terms = Terms(price, salvage, shortage, max_stock, integer)
    robustness = Robustness(confidence, radius, draws, criterion, mix=mix)
    sales = terms.sales(cost, demand)
    encoded = encode(contexts, len(sales))
    together = None if groups is None or draws != "groups" else encode(groups, len(sales), role="group")
    grouped = [(None, slice(None))] if products is None else list(_groups(products, len(sales)))
    if (sales[:, 0] >= sales[:, 2] + shortage).all():
        raise InvalidInputError(
            f"the price ({_span(sales[:, 2])}{f' plus shortage {shortage:g}' if shortage else ''}) is not above any "
            f"cost ({_span(sales[:, 0])}), so every unit loses money and nothing should be ordered. Check the price "
            "and the costs."
        )
    plans = []
    for product, rows in grouped:
        try:
            codes = encoded.codes[rows]
            own = robustness.sized(codes, None if together is None else together.labels[together.codes[rows]])
            plans.append(_plan(product, rows, sales, encoded, terms, own, reference, min_rows))
        except InvalidInputError as error:
            raise error if product is None else InvalidInputError(f"product {shown(product):.60}: {error}") from error
    plans = _ordered(plans, sales, terms, capacity)
    money = Money(currency, period)
    notes = [note for plan in plans for note in _notes(plan, terms, money)]
    if plans[0].charge > 0:
        saved = f"room for one more unit would save {money(plans[0].charge)} per {period}"
        notes.insert(0, f"The capacity of {units(float(capacity or 0))} is full; {saved}.")
    return StockPlan(tuple(plans), money, tuple(notes), capacity)


def _groups(products: Any, n_rows: int) -> Iterator[tuple[Any, NDArray[np.intp]]]:
    """Yield every product with its rows."""
    encoded = encode(products, n_rows, role="product")
    order = np.argsort(encoded.codes, kind="stable")
    for k, label in enumerate(encoded.labels):
        yield label, order[encoded.starts[k] : encoded.starts[k + 1]]


def _plan(
    product: Any,
    rows: Any,
    sales: Array,
    contexts: Contexts,
    terms: Terms,
    robustness: Robustness,
    reference: Reference,
    min_rows: int,
) -> ProductPlan:
    """Prepare one product."""
    own, codes = sales[rows], contexts.codes[rows]
    present, local = np.unique(codes, return_inverse=True)
    labels, counts = contexts.labels[present], np.bincount(local)
    few = np.flatnonzero(counts < min_rows)
    if few.size:
        listed = ", ".join(f"{shown(labels[c]):.40} ({counts[c]})" for c in few[:5])
        more = f" and {few.size - 5} more" if few.size > 5 else ""
        raise InvalidInputError(
            f"contexts with fewer than {min_rows} rows: {listed}{more}. One row says little about a circumstance. "
            "Merge them with others, leave them out, or lower min_rows (--min-rows)."
        )
    stock = StockProblem.from_data(
        own[:, 0], own[:, 1], labels[local], replace(terms, price=own[:, 2]), reference=reference
    )
    # What is known about the mix must be about the contexts of this product.
    robustness.mixes(stock.problem.counts, stock.problem.contexts.labels)
    mean_cost, mean_demand, mean_price = (np.bincount(local, column) / counts for column in own.T)
    return ProductPlan(product, labels, stock, robustness, mean_cost, mean_price, mean_demand)


def _ordered(plans: list[ProductPlan], sales: Array, terms: Terms, capacity: float | None) -> list[ProductPlan]:
    """Return the plans with the orders of every rule, within the capacity."""
    if capacity is None:
        return [replace(plan, orders={rule: plan.solve(rule) for rule in RULES}) for plan in plans]
    room = as_limit(capacity)
    if not room >= 0:
        raise InvalidInputError(f"capacity is {capacity!r}; pass a number of units, 0 or more, or None.")
    dearest = float((sales[:, 2] + terms.shortage - sales[:, 0]).max())
    orders: list[dict[str, Solution]] = [{} for _ in plans]
    charge = 0.0
    for rule in RULES:
        products = [(partial(plan.solve, rule), partial(plan.placed, rule)) for plan in plans]
        # The rules that are only compared with need not be exact to the last digit.
        shares = share(products, room, dearest, terms.integer, 1e-10 if rule == "robust" else 1e-6)
        charge = shares.charge if rule == "robust" else charge
        for found, solution in zip(orders, shares.solutions, strict=True):
            found[rule] = solution
    return [replace(plan, orders=found, charge=charge) for plan, found in zip(plans, orders, strict=True)]


def _notes(plan: ProductPlan, terms: Terms, money: Money) -> Iterator[str]:
    """Yield what a reader should know about one product's data."""
    about = "" if plan.product is None else f"{shown(plan.product):.60}: "
    for c in np.flatnonzero(plan.mean_cost >= plan.mean_price + terms.shortage):
        yield (
            f"{about}in {shown(plan.contexts[c]):.60} a unit costs {money(plan.mean_cost[c])} on average and sells for "
            f"{money(plan.mean_price[c])}: the margin is negative, the best order there is "
            f"{units(plan.stock.context_levels[c])}, and whatever is ordered for the other circumstances loses money "
            "in this one."
        )
    high = terms.highest
    if plan.order >= high:
        yield f"{about}the order is at its limit of {units(high)}; more would pay."


def _span(values: Array) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
