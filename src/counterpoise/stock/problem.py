"""One product's costs and demand: what each level costs in each context, and the levels that are best."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts
from counterpoise.core.objective import ReferenceRisks, RobustObjective
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.oracle.scalar import ScalarOracle
from counterpoise.core.oracle.scalar_blocks import BlockScalarOracle, scalar_form
from counterpoise.core.problem import LinearProblem, Reference
from counterpoise.core.robustness import Robustness
from counterpoise.core.solvers import ScalarSearch, Solution
from counterpoise.core.solvers._base import not_certified
from counterpoise.core.solvers.scalar import narrowed
from counterpoise.core.solvers.whole_units import best_whole
from counterpoise.exceptions import InvalidInputError, NotCertifiedWarning
from counterpoise.losses import Hinges, Newsvendor
from counterpoise.rows import BlockRows, Blocks
from counterpoise.validation import refuse_masked, unwrapped

Array = NDArray[np.float64]

_TOL = 1e-12
"""Gap of a level, relative to its cost: what rounding leaves of an exact answer."""

_FORTUNE = 1e200
"""Amounts from here on are refused: sums of them, and their squares, need not be floats."""


def as_limit(units: Any) -> float:
    """Return a largest number of units: inf for None and beyond the range of floats, NaN unless it is 0 or more."""
    if units is None:
        return math.inf
    number = isinstance(units, (int, float, np.number)) and not isinstance(units, bool)
    if not (number and units >= 0):
        return math.nan
    return float(units) if units < 1e300 else math.inf


@dataclass(frozen=True)
class Terms:
    """What units are sold for, and how many may be ordered.

    Parameters
    ----------
    price : float or ndarray of shape (n_samples,)
        Per unit sold.
    salvage, shortage : float
        Per unit left over, and per unit of demand not met.
    max_stock : float, optional
        The most that can be ordered.
    integer : bool
        Whether only whole units can be ordered.
    """

    price: Any
    salvage: float = 0.0
    shortage: float = 0.0
    max_stock: float | None = None
    integer: bool = False

    @property
    def highest(self) -> float:
        """The most that can be ordered; infinite where there is no limit."""
        if not isinstance(self.integer, (bool, np.bool_)):
            raise InvalidInputError(f"integer is {self.integer!r:.60}; pass True or False.")
        limit = as_limit(self.max_stock)
        if not limit > 0:
            raise InvalidInputError(f"max_stock is {self.max_stock!r}; pass a positive number of units, or None.")
        if self.integer and limit < 1:
            raise InvalidInputError(f"max_stock is {self.max_stock!r}, so that not one whole unit can be ordered.")
        return float(np.floor(limit)) if self.integer else limit

    def sales(self, costs: Any, demand: Any) -> Array:
        """Return checked rows of unit cost, demand and price.

        Parameters
        ----------
        costs : float or array of shape (n_samples,)
        demand : array of shape (n_samples,)
        """
        if np.ndim(self.price) == 0:
            Newsvendor(self.price, self.salvage, self.shortage)
        cost, units, price = _columns(costs, demand, self.price)
        if len(price) == 0:
            raise InvalidInputError("there are no rows: demand is empty.")
        # Prices are checked by the lowest.
        Newsvendor(float(price.min()), self.salvage, self.shortage).checked_target(np.column_stack([cost, units]))
        _refuse_fortunes(cost, units, price, self.salvage, self.shortage, self.highest)
        return np.column_stack([cost, units, price])

    def pieces(self, sales: Array) -> Array:
        """Return the loss of each row as (left slope, right slope, height, hinge)."""
        cost, units, price = sales.T
        return np.column_stack([cost - price - self.shortage, cost - self.salvage, (cost - price) * units, units])

    def losses(self, costs: Any, demand: Any, orders: Array | float) -> Array:
        """Return what orders cost in each of some rows: minus the profit; see :meth:`sales`."""
        return Hinges().value(self.pieces(self.sales(costs, demand)), np.asarray(orders))


def _refuse_fortunes(cost: Array, units: Array, price: Array, salvage: float, shortage: float, high: float) -> None:
    """Name a row in which what is paid or earned is too large for a float."""
    most = np.maximum(units, high) if math.isfinite(high) else units
    with np.errstate(over="ignore"):
        worth = (np.abs(cost) + price + abs(salvage) + shortage) * most
    if not (worth < _FORTUNE).all():
        row = int(np.flatnonzero(~(worth < _FORTUNE))[0])
        raise InvalidInputError(
            f"row {row}: a cost of {cost[row]:g} and a demand of {units[row]:g} make amounts that are too large to add "
            "up. Write money and units in larger ones."
        )


def _columns(costs: Any, demand: Any, prices: Any) -> tuple[Array, ...]:
    """Return costs, demand and prices, one each per row."""
    given = {"costs": costs, "demand": demand, "price": prices}
    refuse_masked(**given)
    try:
        numbers = {name: np.asarray(unwrapped(values), dtype=np.float64) for name, values in given.items()}
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"costs, demand and price must be numbers ({error!s:.80}).") from error
    shape = numbers["demand"].shape
    if len(shape) != 1:
        raise InvalidInputError(f"demand has shape {shape}; pass one number per row.")
    for name, values in numbers.items():
        if values.ndim > 0 and values.shape != shape:
            raise InvalidInputError(
                f"{name} of shape {values.shape} for {shape[0]} rows of demand. Pass one number, or one per row."
            )
        numbers[name] = np.broadcast_to(values, shape)
        if not np.isfinite(numbers[name]).all():
            row = int(np.flatnonzero(~np.isfinite(numbers[name]))[0])
            raise InvalidInputError(
                f"{name}: {numbers[name][row]} in row {row}; drop or correct rows that are not finite."
            )
    return tuple(numbers.values())


@dataclass(frozen=True, eq=False)
class StockProblem:
    """The cost of every level in every context, exactly: piecewise linear, with a kink at each demand.

    Attributes
    ----------
    problem : LinearProblem
        With rows in memory, or in blocks that are passed through.
    oracle : ScalarOracle or BlockScalarOracle
        The same with the level as its only parameter.
    references : ReferenceRisks
        The least cost of each context.
    context_levels : ndarray of shape (n_contexts,)
        The level that has it on these rows.
    integer : bool
    """

    problem: LinearProblem
    oracle: ScalarOracle | BlockScalarOracle
    references: ReferenceRisks
    context_levels: Array
    integer: bool = False

    @classmethod
    def from_data(
        cls,
        costs: Any,
        demand: Any,
        contexts: Any,
        terms: Terms,
        *,
        sample_weight: Any = None,
        reference: Reference = "in-sample",
    ) -> StockProblem:
        """Check, group and sort rows in memory."""
        high = terms.highest
        sales = terms.sales(costs, demand)
        problem = LinearProblem.from_data(
            np.empty((len(sales), 0)),
            terms.pieces(sales),
            contexts,
            Hinges(),
            alpha=0.0,
            sample_weight=sample_weight,
            bounds=(0.0, high),  # type: ignore[arg-type]
        )
        return cls._posed(problem, terms, reference)

    @classmethod
    def from_blocks(
        cls, blocks: Blocks, contexts: Contexts, counts: Array, terms: Terms, reference: Reference = "in-sample"
    ) -> StockProblem:
        """Pose the problem for rows in blocks, which hold ``Terms.pieces`` of their sales."""
        bounds = (np.zeros(1), np.array([terms.highest]))
        linear = LinearOracle(BlockRows(blocks, Hinges(), len(counts), 0), 0.0, bounds)
        return cls._posed(LinearProblem(linear, contexts, counts), terms, reference)

    @classmethod
    def _posed(cls, problem: LinearProblem, terms: Terms, reference: Reference) -> StockProblem:
        """Find the best level of each context alone."""
        oracle = scalar_form(problem.oracle)
        least, levels = oracle.context_minima()
        _refuse_bottomless(problem.contexts, levels, terms)
        if terms.integer:
            least, levels = _whole_minima(oracle, levels)
        in_sample = isinstance(reference, str) and reference == "in-sample"
        references = ReferenceRisks.exactly(least) if in_sample else problem.references(reference, _TOL)
        return cls(problem, oracle, references, levels, terms.integer)

    def risks(self, level: float) -> Array:
        """Return the mean cost of a level in each context."""
        return self.oracle.at(np.array([level])).risks

    def objective(self, robustness: Robustness, charge: float = 0.0) -> RobustObjective:
        """Return the worst-case cost over a set of mixes.

        Parameters
        ----------
        charge : float
            Per unit ordered, on top of its cost; the least cost of each context does not change with it. For rows in
            memory.
        """
        oracle: Any = self.oracle
        if charge:
            oracle = replace(oracle, below=oracle.below + charge)
        contexts = self.problem.contexts
        mixes, unseen = robustness.mixes_of(contexts, self.problem.counts), robustness.unseen(contexts.labels)
        return RobustObjective.of(oracle, mixes, robustness.scored(self.references), unseen.risks)

    def solve(self, robustness: Robustness, charge: float = 0.0, speaker: str = "stock") -> Solution:
        """Return the best level for a set of mixes, with its proof; see :meth:`objective`."""
        objective = searched = self.objective(robustness, charge)
        if isinstance(self.oracle, BlockScalarOracle):
            searched = narrowed(objective)
        solution = ScalarSearch(tol=_TOL).solve(searched)
        if self.integer:
            return best_whole(objective, solution)
        # Where every context can be served perfectly the scale is tiny, and a gap may be the last digit of the costs.
        rounding = 4.0 * np.finfo(np.float64).eps * float(np.abs(solution.risks).max())
        if not solution.success and solution.certificate.gap > rounding:
            words = not_certified(solution.status, solution.certificate, _TOL)
            warnings.warn(f"{speaker}: {words}", NotCertifiedWarning, stacklevel=3)
        return solution


def _refuse_bottomless(contexts: Contexts, levels: Array, terms: Terms) -> None:
    """Name a context in which it pays to order without limit."""
    without = np.flatnonzero(~np.isfinite(levels))
    if without.size:
        c = int(without[0])
        raise InvalidInputError(
            f"in {contexts.describe(c)} a unit left over brings salvage = {terms.salvage:g}, no less than it "
            "costs on average, so the cost has no minimum: the more is ordered, the better. Set max_stock, or check "
            "salvage and costs."
        )


def _whole_minima(oracle: ScalarOracle | BlockScalarOracle, levels: Array) -> tuple[Array, Array]:
    """Return each context's least cost at a whole level, and that level: next to the best of all levels."""
    c = np.arange(oracle.n_contexts)
    sides = np.stack([np.floor(levels), np.minimum(np.ceil(levels), np.floor(oracle.bounds[1][0]))])
    costs = np.stack([oracle.own_risks(side) for side in sides])
    best = costs.argmin(axis=0)
    return costs[best, c], sides[best, c]
