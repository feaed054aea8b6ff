"""How much to stock, when cost and demand depend on circumstances whose mix is uncertain."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from counterpoise.estimators._base import Array, check_switches, contexts_or_one, speaking_as
from counterpoise.exceptions import InvalidInputError
from counterpoise.fit import Robustness, Score, fit_problem
from counterpoise.losses import Newsvendor
from counterpoise.problem import LinearProblem, Reference
from counterpoise.references import fit_specialists
from counterpoise.sets import RadiusMethod
from counterpoise.validation import unwrapped


class RobustNewsvendor(BaseEstimator):  # type: ignore[misc]
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
    confidence, radius, draws, score, reference
        As in :class:`counterpoise.RobustLogisticRegression`.

    Attributes
    ----------
    stock_level_ : float
    context_levels_ : ndarray of shape (n_contexts,)
        The best level for each context alone.
    contexts_, context_counts_, context_weights_, context_risks_, reference_risks_, excess_risks_, radius_, certificate_
        As in the linear models; a risk is a mean cost, that is minus a mean profit.
    """

    __metadata_request__fit: ClassVar = {"contexts": True}

    def __init__(
        self,
        price: float,
        *,
        salvage: float = 0.0,
        shortage: float = 0.0,
        max_stock: float | None = None,
        confidence: float = 0.99,
        radius: RadiusMethod | float = "types",
        draws: float | None = None,
        score: Score = "excess",
        reference: Reference = "in-sample",
    ) -> None:
        self.price = price
        self.salvage = salvage
        self.shortage = shortage
        self.max_stock = max_stock
        self.confidence = confidence
        self.radius = radius
        self.draws = draws
        self.score = score
        self.reference = reference

    def fit(self, costs: Any, demand: Any, contexts: Any = None, sample_weight: Any = None) -> Self:
        """Find the level.

        Parameters
        ----------
        costs : float or array of shape (n_samples,)
            Per unit bought.
        demand : array of shape (n_samples,)
        contexts : labels of shape (n_samples,), or a table of several columns, which are crossed
        sample_weight : array of shape (n_samples,), optional
        """
        with speaking_as(self):
            check_switches(self)
            loss = Newsvendor(self.price, self.salvage, self.shortage)
            target = _cost_and_demand(costs, demand)
            problem = LinearProblem.from_data(
                np.empty((len(target), 0)),
                target,
                contexts_or_one(self, contexts, len(target)),
                loss,
                alpha=0.0,
                sample_weight=sample_weight,
                bounds=(0.0, self._capacity()),  # type: ignore[arg-type]
            )
            robustness = Robustness(self.confidence, self.radius, self.draws, self.score)
            ball = robustness.ball(problem.counts)
            references = problem.references(self.reference, 0.0)
            fit = fit_problem(problem, ball, robustness.scored(references), tol=1e-12, speaker=type(self).__name__)
        whole = np.array_equal(fit.counts, fit.contexts.counts)
        self.stock_level_ = float(fit.solution.theta[0])
        self.context_levels_ = fit_specialists(problem.oracle, 0.0).theta[:, 0]
        self.contexts_: NDArray[Any] = fit.contexts.labels
        self.context_counts_: NDArray[Any] = fit.contexts.counts if whole else fit.counts
        self.context_weights_ = fit.solution.p_worst
        self.context_risks_ = fit.solution.risks
        self.reference_risks_ = references.upper
        self.excess_risks_ = fit.solution.risks - references.upper
        self.radius_ = ball.radius
        self.certificate_ = fit.solution.certificate
        return self

    def _capacity(self) -> float:
        if self.max_stock is None:
            return math.inf
        number = isinstance(self.max_stock, (int, float, np.number)) and not isinstance(self.max_stock, bool)
        if not (number and self.max_stock > 0):
            raise InvalidInputError(f"max_stock is {self.max_stock!r}; pass a positive number of units, or None.")
        return float(self.max_stock)


def _cost_and_demand(costs: Any, demand: Any) -> Array:
    """Return rows of unit cost and demand."""
    try:
        units = np.asarray(unwrapped(demand), dtype=np.float64)
        paid = np.asarray(unwrapped(costs), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"costs and demand must be numbers ({error}).") from error
    if units.ndim != 1:
        raise InvalidInputError(f"demand has shape {units.shape}; pass one number per row.")
    if paid.ndim == 0:
        paid = np.full(len(units), float(paid))
    if paid.shape != units.shape:
        raise InvalidInputError(f"costs have shape {paid.shape} for {len(units)} rows of demand. Pass one per row.")
    return np.column_stack([paid, units])
