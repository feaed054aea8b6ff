"""How much to order, as a linear rule of what is known beforehand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Self, Unpack

import numpy as np

from counterpoise.estimators._base import Array, LinearParameters, speaking_as, with_parameters_of
from counterpoise.estimators.linear import RobustRegressor
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Hinges, Newsvendor
from counterpoise.rows import MemoryRows
from counterpoise.stock.problem import Terms


class RobustNewsvendorRegressor(RobustRegressor):
    """A linear rule for how much to order, for an uncertain mix of contexts.

    A unit is bought at ``costs`` and sold at ``price`` while there is demand; see :class:`RobustNewsvendor`. The order
    is linear in X (weekday, temperature, promotion), and never negative nor above ``max_stock``: what the line says
    beyond these ends is cut off.

    The risk of a context is its mean cost, that is minus its mean profit. While fitting, a row in which nothing is
    gained beyond an end counts with the order that is placed, and any other row as if its line went on: that is convex,
    and never less than what the order costs.

    Parameters
    ----------
    price : float
        Per unit sold.
    cost : float, optional
        Per unit bought, where ``fit`` gets no ``costs``.
    salvage, shortage : float, default=0.0
        Per unit left over, and per unit of demand not met.
    max_stock : float, optional
        The most that can be ordered.
    integer : bool, default=False
        Round orders to whole units.

    ``reference`` is ``"in-sample"`` by default.
    """

    __metadata_request__fit: ClassVar = {"contexts": True, "costs": True, "groups": True}

    @with_parameters_of(RobustRegressor, reference="in-sample")
    def __init__(
        self,
        price: float,
        *,
        cost: float | None = None,
        salvage: float = 0.0,
        shortage: float = 0.0,
        max_stock: float | None = None,
        integer: bool = False,
        **shared: Unpack[LinearParameters],
    ) -> None:
        # Without features it is the robust stock level, whose references are in sample.
        shared.setdefault("reference", "in-sample")
        super().__init__(**shared)
        self.price = price
        self.cost = cost
        self.salvage = salvage
        self.shortage = shortage
        self.max_stock = max_stock
        self.integer = integer

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        contexts: Any = None,
        sample_weight: Any = None,
        costs: Any = None,
        *,
        groups: Any = None,
    ) -> Self:
        """Find the rule.

        Parameters
        ----------
        X : array, sparse matrix or dataframe of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Demand, 0 or more.
        contexts : labels of shape (n_samples,), a table of several columns, which are crossed, or Memberships
        sample_weight : array of shape (n_samples,), optional
        costs : float or array of shape (n_samples,), optional
            Per unit bought; ``cost`` where it is not given.
        groups : labels of shape (n_samples,), optional
            Rows that belong together, such as those of one day; for ``draws="groups"``, and of no effect without it.
        """
        problem = self.pose(X=X, y=y, contexts=contexts, sample_weight=sample_weight, costs=costs)
        with speaking_as(self):
            robustness = self.sized(X, contexts, groups, sample_weight)
        return self.fit_problem(problem, robustness)

    def predict(self, X: Any) -> Array:
        """Return the order of each row."""
        order = np.clip(self._linear(X), 0.0, self._terms.highest)
        return np.floor(order + 0.5) if self.integer else order

    def row_losses(self, X: Any, y: Any, costs: Any = None) -> Array:
        """Return what the order of each row costs: minus its profit."""
        order = self.predict(X)
        with speaking_as(self):
            return self._terms.losses(self._paid(costs), y, order)

    @property
    def _terms(self) -> Terms:
        return Terms(self.price, self.salvage, self.shortage, self.max_stock, self.integer)

    def _paid(self, costs: Any) -> Any:
        if costs is None and self.cost is None:
            raise InvalidInputError("what does a unit cost? Pass costs= to fit, one number or one per row.")
        return self.cost if costs is None else costs

    def _validated(self, X: Any, y: Any, costs: Any = None, **columns: Any) -> tuple[Any, Any]:
        paid = self._paid(costs)
        X, demand = super()._validated(X, y)
        return X, self._terms.sales(paid, demand)[:, :2]

    def _loss(self) -> Newsvendor:
        return Newsvendor(self.price, self.salvage, self.shortage)

    def _placed(self, rows: MemoryRows) -> MemoryRows:
        return placed(rows, self._loss(), self._terms.highest)


def placed(given: MemoryRows, loss: Newsvendor, high: float) -> MemoryRows:
    """Return the rows of orders as they are placed, between 0 and the most that is possible.

    Where a loss rises from 0 on, nothing is gained by a line below 0; where it still falls at the most that can be
    ordered, nothing is gained by one above. Such a loss is flat beyond that end, and convex. Elsewhere flatness would
    not be convex, and the line goes on. A row with two kinks becomes two rows of half the weight.
    """
    cost, endless = given.target[:, 0], given.target[:, 0] < loss.salvage
    if math.isinf(high) and endless.any():
        row = int(np.flatnonzero(endless)[0])
        raise InvalidInputError(
            f"a unit that costs {cost[row]:g} brings {loss.salvage:g} if left over, so the more is ordered, the "
            "better. Set max_stock, or check salvage and costs."
        )
    first, second = _hinges(given.target, loss, high)
    double = second[:, 1] > second[:, 0]
    times = 1 + double
    rows = np.repeat(np.arange(len(cost)), times)
    is_second = np.append(False, rows[1:] == rows[:-1])
    target = np.where(is_second[:, None], second[rows], first[rows])
    target[:, :3] *= times[rows, None]
    together = rows if given.together is None else given.together[rows]
    return replace(
        given,
        X=given.X[rows] if double.any() else given.X,
        target=target,
        weight=(given.weight / times)[rows],
        starts=np.concatenate([[0], np.cumsum(times)])[given.starts],
        loss=Hinges(),
        together=together if double.any() else given.together,
    )


def _hinges(target: Array, loss: Newsvendor, high: float) -> tuple[Array, Array]:
    """Return the loss of each row as the sum of two hinges, each with a lowest point; the second may be nothing.

    From left to right the slopes are: flat or the first, the first, the last from the demand on, the last or flat.
    """
    demand, _, left, right = loss.pieces(target)
    inside = (demand > 0) & (demand < high)
    first, last = np.where(demand > 0, left, right), np.where(demand < high, right, left)
    # A row that is constant between the ends may rise beyond one of them.
    before = np.where((first == 0) & (last == 0) & (demand <= 0), left, np.minimum(first, 0.0))
    after = np.where((first == 0) & (last == 0) & (demand > 0), right, np.maximum(last, 0.0))
    rising, falling = before < first, last < after
    zero, most = np.zeros(len(demand)), np.minimum(demand, high)
    limit = np.full(len(demand), high if math.isfinite(high) else 0.0)
    at_zero, at_most, at_limit = (loss.value(target, order) for order in (zero, most, limit))
    # Where there is another hinge it holds the height, and this one is 0 at its own.
    bend = np.column_stack(
        [
            np.where(falling, left - right, np.where(rising, 0.0, left)),
            np.where(falling, 0.0, np.where(rising, right - left, right)),
            np.where(rising | falling, 0.0, at_most),
            most,
        ]
    )
    low_end = np.column_stack([before, first, at_zero, zero])
    high_end = np.column_stack([last, after, at_limit, limit])
    end = np.where(rising[:, None], low_end, np.where(falling[:, None], high_end, 0.0))
    return np.where(inside[:, None], bend, end), np.where(inside[:, None], end, 0.0)
