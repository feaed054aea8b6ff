"""How much to stock, when cost and demand depend on circumstances whose mix is uncertain."""

from __future__ import annotations

from typing import Any, Self, Unpack

from sklearn.utils.validation import check_is_fitted

from counterpoise.core.problem import Reference
from counterpoise.estimators._base import (
    Array,
    MixParameters,
    RobustEstimator,
    check_switches,
    contexts_or_one,
    refuse_measurements,
    speaking_as,
    with_parameters_of,
)
from counterpoise.estimators.homes import refuse_overlap
from counterpoise.stock.problem import StockProblem, Terms


class RobustNewsvendor(RobustEstimator):
    """The stock level whose worst-case excess cost over plausible mixes of contexts is smallest.

    A unit is bought at ``cost`` and sold at ``price`` while there is demand. What is left over brings ``salvage``, and
    each unit of demand that is not met costs ``shortage`` on top of the sale it loses. The answer is exact: risks are
    piecewise linear in the level, and the best one is found at or between their kinks.

    Parameters
    ----------
    price : float
        Per unit sold.
    salvage, shortage : float, default=0.0
        Per unit left over, and per unit of demand not met.
    max_stock : float, optional
        The most that can be stocked.
    integer : bool, default=False
        Order whole units only. The best level of each context is then a whole number too, and ``context_weights_`` is
        the least favourable mix at the level.
    confidence, radius, draws, criterion, mix, reference
        As in :class:`counterpoise.RobustLogisticRegression`.

    Attributes
    ----------
    stock_level_ : float
    context_levels_ : ndarray of shape (n_contexts,)
        The best level for each context alone.
    contexts_, context_counts_, context_weights_, context_risks_, reference_risks_, excess_risks_, radius_, draws_,
    certificate_
        As in the linear models; a risk is a mean cost, that is minus a mean profit.
    """

    @with_parameters_of(RobustEstimator)
    def __init__(
        self,
        price: float,
        *,
        salvage: float = 0.0,
        shortage: float = 0.0,
        max_stock: float | None = None,
        integer: bool = False,
        reference: Reference = "in-sample",
        **shared: Unpack[MixParameters],
    ) -> None:
        super().__init__(**shared)
        self.price = price
        self.salvage = salvage
        self.shortage = shortage
        self.max_stock = max_stock
        self.integer = integer
        self.reference = reference

    def fit(
        self, costs: Any, demand: Any, contexts: Any = None, sample_weight: Any = None, *, groups: Any = None
    ) -> Self:
        """Find the level.

        Parameters
        ----------
        costs : float or array of shape (n_samples,)
            Per unit bought.
        demand : array of shape (n_samples,)
            A dask array or series stays on its workers (extra ``dask``).
        contexts : labels of shape (n_samples,), a table of several columns, which are crossed, or Memberships
        sample_weight : array of shape (n_samples,), optional
        groups : labels of shape (n_samples,), optional
            Rows that belong together, such as those of one day; for ``draws="groups"``, and of no effect without it.
        """
        with speaking_as(self):
            check_switches(self)
            stock = self._stock(costs, demand, contexts, sample_weight)
            robustness = self.sized(demand, contexts, groups, sample_weight)
            solution = stock.solve(robustness, speaker=type(self).__name__)
            mixes = robustness.mixes_of(stock.problem.contexts, stock.problem.counts)
        stock.problem.finish()
        self.stock_level_ = float(solution.theta[0])
        self.context_levels_ = stock.context_levels
        self.certificate_ = solution.certificate
        self._keep_contexts(
            stock.problem.contexts,
            stock.problem.counts,
            mixes,
            draws=robustness.n_draws(stock.problem.counts),
            weights=solution.p_worst,
            risks=solution.risks,
            references=stock.references.upper,
        )
        return self

    @property
    def _terms(self) -> Terms:
        return Terms(self.price, self.salvage, self.shortage, self.max_stock, self.integer)

    def _stock(self, costs: Any, demand: Any, contexts: Any, sample_weight: Any) -> StockProblem:
        """Return what every level costs."""
        if any(hasattr(value, "__dask_graph__") for value in (costs, demand, contexts, sample_weight)):
            if contexts is None:
                contexts_or_one(self, None, 0, stacklevel=4)
            refuse_overlap(contexts)
            columns = {"demand": demand, "costs": costs, "contexts": contexts, "sample_weight": sample_weight}
            from counterpoise.dask.stock import pose

            stock: StockProblem = pose(self._terms, columns, self.reference)
            refuse_measurements(stock.problem.contexts.labels, int(stock.problem.contexts.counts.sum()))
            return stock
        rows = len(demand) if hasattr(demand, "__len__") else 0
        labels = contexts_or_one(self, contexts, rows, stacklevel=4)
        return StockProblem.from_data(
            costs, demand, labels, self._terms, sample_weight=sample_weight, reference=self.reference
        )

    def row_losses(self, costs: Any, demand: Any) -> Array:
        """Return what the level costs in each of some rows: minus the profit."""
        check_is_fitted(self)
        with speaking_as(self):
            return self._terms.losses(costs, demand, self.stock_level_)
