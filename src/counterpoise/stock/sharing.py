"""Several products in one room: what a place in it is worth, and who gets the places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from counterpoise.core.objective import Certificate
from counterpoise.core.solvers import Solution

Array = NDArray[np.float64]

Solve = Callable[[float], Solution]
"""The best order of one product when every unit is charged a price on top of its cost."""

Cost = Callable[[float], Solution]
"""A given order of one product, without that price."""


@dataclass(frozen=True, eq=False)
class Shares:
    """How a capacity is shared.

    Attributes
    ----------
    solutions : tuple of Solution
        One per product. Their gaps add up to the gap of the whole.
    charge : float
        What one more unit of capacity would save; 0 where there is room for everything.
    """

    solutions: tuple[Solution, ...]
    charge: float


def share(
    products: Sequence[tuple[Solve, Cost]], capacity: float, highest: float, integer: bool = False, tol: float = 1e-10
) -> Shares:
    """Share a capacity among products so that the sum of their worst-case costs is least.

    The sum is convex and the products meet only in the capacity, so a charge per unit decides: the one at which
    everything just fits. There, orders between those of a slightly higher and a slightly lower charge are equally good,
    and the room is filled with them.

    Parameters
    ----------
    products : sequence of pairs
        The best order at a charge, and the outcome of an order.
    highest : float
        A charge above which nothing is worth ordering.
    tol : float
        How closely the charge is found, relative to the highest.
    """
    free = [solve(0.0) for solve, _ in products]
    if _orders(free).sum() <= capacity:
        return Shares(tuple(free), 0.0)
    # A little above, so that nothing is merely as good as ordering nothing.
    highest = 1.001 * highest + 1e-300
    low, high = 0.0, highest
    loose, tight = free, [solve(high) for solve, _ in products]
    while high - low > tol * highest:
        middle = 0.5 * (low + high)
        found = [solve(middle) for solve, _ in products]
        if _orders(found).sum() > capacity:
            low, loose = middle, found
        else:
            high, tight = middle, found
    orders = _filled(_orders(tight), _orders(loose), capacity, integer)
    placed = [
        _certified(cost(float(order)), best, high)
        for order, best, (_, cost) in zip(orders, tight, products, strict=True)
    ]
    return Shares(tuple(placed), high)


def _orders(solutions: Sequence[Solution]) -> Array:
    return np.array([solution.theta[0] for solution in solutions])


def _filled(tight: Array, loose: Array, capacity: float, integer: bool) -> Array:
    """Return orders between two that together use the capacity."""
    room, wish = capacity - tight.sum(), loose - tight
    if wish.sum() <= 0:
        return tight
    orders = tight + wish * min(room / wish.sum(), 1.0)
    if not integer:
        return orders
    whole = np.floor(orders + 1e-9)
    # The units that rounding down left over go to those that came closest to one more.
    spare = int(np.floor(capacity - whole.sum() + 1e-9))
    can = np.flatnonzero(whole < np.maximum(tight, loose))
    ranked = can[np.argsort(whole[can] - orders[can], kind="stable")]
    whole[ranked[:spare]] += 1.0
    return whole


def _certified(placed: Solution, best: Solution, charge: float) -> Solution:
    """Return an order with the proof that the best one at the charge gives of it."""
    upper = placed.certificate.upper
    lower = best.certificate.lower - charge * float(placed.theta[0])
    return replace(placed, certificate=Certificate(min(lower, upper), upper, scale=placed.certificate.scale))
