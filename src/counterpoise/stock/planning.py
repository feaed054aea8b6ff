"""From sales to orders, product by product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import encode, shown
from counterpoise.core.problem import Reference
from counterpoise.core.robustness import Criterion, DrawCount, Mixes, Robustness, check_parameters
from counterpoise.exceptions import InvalidInputError
from counterpoise.sets import RadiusMethod
from counterpoise.stock.ordering import RULES, Ordering, PastSales
from counterpoise.stock.plans import Money, ProductPlan, StockPlan, units
from counterpoise.stock.problem import Terms

Array = NDArray[np.float64]


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
    time: Any = None,
    cuts: int = 4,
    gap: Any = None,
    validate: bool | None = None,
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
        product on its own. Where orders are judged, rows that belong together count as one in intervals; by default
        those of one time.
    min_rows : int
        Refuse a context with fewer rows of a product: one day says little about all such days.
    currency, period : str
        How amounts are written: what they are in, and what a row is (a day, a week).
    time : array of shape (n_samples,), optional
        When each row was: dates, or numbers. With it, the orders of every rule are also found from the periods before a
        cut and judged by what they earn in the block of periods after it.
    cuts : int
        How many blocks of later periods are judged.
    gap : number or timedelta, optional
        Periods this close before a block are not used for its orders; a number counts days where times are dates.
    validate : bool, optional
        Whether orders are judged on periods held out; by default where ``time`` is given. Without it, on shuffled
        periods only.

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
    judged = time is not None if validate is None else bool(validate)
    terms = Terms(price, salvage, shortage, max_stock, integer)
    sales = terms.sales(cost, demand)
    past = PastSales(
        sales,
        encode(contexts, len(sales)),
        None if products is None else encode(products, len(sales), role="product"),
        _labels(groups, len(sales)) if draws == "groups" or judged else None,
    )
    if (sales[:, 0] >= sales[:, 2] + shortage).all():
        raise InvalidInputError(
            f"the price ({_span(sales[:, 2])}{f' plus shortage {shortage:g}' if shortage else ''}) is not above any "
            f"cost ({_span(sales[:, 0])}), so every unit loses money and nothing should be ordered. Check the price "
            "and the costs."
        )
    robustness = Robustness(confidence, radius, draws, criterion, mix=mix)
    ordering = Ordering(replace(terms, price=0.0), robustness, reference, int(min_rows), capacity)
    plans = ordering.plans(past, RULES)
    money = Money(currency, period)
    notes = [note for plan in plans for note in _notes(plan, terms, money)]
    if plans[0].charge > 0:
        saved = f"room for one more unit would save {money(plans[0].charge)} per {period}"
        notes.insert(0, f"The capacity of {units(float(capacity or 0))} is full; {saved}.")
    plan = StockPlan(tuple(plans), money, tuple(notes), capacity)
    if not judged:
        return plan
    from counterpoise.stock.backtest import backtest

    times = _labels(time, len(sales), "time")
    return replace(plan, backtest=backtest(ordering, past, money, time=times, cuts=cuts, gap=gap))


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


def _labels(given: Any, n_rows: int, role: str = "group") -> NDArray[Any] | None:
    """Return the label of each row's group or time."""
    if given is None:
        return None
    encoded = encode(given, n_rows, role=role)
    return np.asarray(encoded.labels[encoded.codes])


def _span(values: Array) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
