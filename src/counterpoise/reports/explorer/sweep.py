"""A model, or an order of stock, at every level of confidence: all that the page shows, computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from counterpoise.contexts import encode
from counterpoise.core.robustness import Criterion
from counterpoise.estimators.learners import innermost, step_name, with_counted_draws
from counterpoise.estimators.linear import (
    RobustHuberRegressor,
    RobustLinearModel,
    RobustLinearRegression,
    RobustLogisticRegression,
    RobustPoissonRegressor,
    RobustQuantileRegressor,
)
from counterpoise.exceptions import InvalidInputError
from counterpoise.judging.confidence import ConfidencePath, confidence_path
from counterpoise.reports.explorer.bounds import ShareGrid, share_grids
from counterpoise.reports.explorer.decision import AffineDecision, StockDecision
from counterpoise.reports.explorer.held_out import HeldOutLevels, held_out_levels
from counterpoise.reports.explorer.levels import Levels
from counterpoise.reports.shares import Shares
from counterpoise.sets import share_intervals
from counterpoise.stock.plans import Money, ProductPlan
from counterpoise.validation import checked_row_weights

Array = NDArray[np.float64]

CRITERIA: tuple[Criterion, ...] = ("excess", "risk")


@dataclass(frozen=True, eq=False)
class Scored:
    """What comes of every level when a criterion is made small.

    Attributes
    ----------
    weights, risks, excess : ndarray of shape (n_levels, n_contexts)
        The least favourable mix of each set, and the risk and the excess risk of each context.
    nominal : ndarray of shape (n_levels,)
        Mean risk over the data.
    objective : ndarray of shape (n_levels,)
        The largest mean score of any mix in the set.
    gaps : ndarray of shape (n_levels,)
        How far from optimal, at most.
    """

    criterion: Criterion
    weights: Array
    risks: Array
    excess: Array
    nominal: Array
    objective: Array
    gaps: Array

    @property
    def values(self) -> Array:
        """What is scored, of each context at each level."""
        return self.excess if self.criterion == "excess" else self.risks

    @property
    def worst(self) -> Array:
        """The largest score of any context, at each level."""
        return np.asarray(self.values.max(axis=1))

    @property
    def worst_contexts(self) -> NDArray[np.intp]:
        """The index of the context with the largest score, at each level."""
        return np.asarray(self.values.argmax(axis=1))

    @property
    def prices(self) -> Array:
        """What robustness costs on average: mean risk above that of empirical risk minimisation."""
        return self.nominal - self.nominal[0]

    @property
    def paid(self) -> NDArray[np.bool_]:
        """Whether that price is more than what is proven, and more than rounding."""
        return np.asarray(self.prices > self.gaps[0] + self.gaps + 1e-12 * np.abs(self.nominal).max())


@dataclass(frozen=True)
class Words:
    """What things are called: a model has risks, an order has costs."""

    context: str = "context"
    subject: str = "the model"
    risk: str = "training risk"
    excess: str = "training excess"
    best: str = "its best"
    unit: str = ""
    measure: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """Every level, under both criteria.

    Attributes
    ----------
    contexts : ndarray of shape (n_contexts,)
    counts, shares : ndarray of shape (n_contexts,)
    levels : Levels
        The sets of the first solutions.
    grids : sequence of ShareGrid
        Bounds of shares, which the other solutions are for.
    intervals : ndarray of shape (n_solutions, n_contexts, 2)
        The least and the largest share of each context in each set.
    by_criterion : mapping from criterion to Scored
    criterion : {"excess", "risk"}
        The one that was asked for.
    decision : AffineDecision, StockDecision or None
        What can be drawn of the decision itself.
    words : Words
    allowed : Shares
        Of the set that was asked for.
    held_out : mapping from criterion to HeldOutLevels, or None
        What the levels come to on rows that their models were not fitted to, where that was asked for.
    """

    contexts: NDArray[Any]
    counts: Array
    levels: Levels
    intervals: Array
    by_criterion: Mapping[Criterion, Scored]
    criterion: Criterion
    decision: AffineDecision | StockDecision | None = None
    words: Words = field(default_factory=Words)
    grids: Sequence[ShareGrid] = ()
    allowed: Shares | None = None
    held_out: Mapping[Criterion, HeldOutLevels] | None = None

    @property
    def shares(self) -> Array:
        """The share of each context in the data."""
        return self.counts / self.counts.sum()


def sweep(
    model: Any,
    X: Any,
    y: Any,
    contexts: Any,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    levels: int = 25,
    cv: Any = 3,
) -> Sweep:
    """Fit a model at every level, under both criteria.

    Parameters
    ----------
    model : estimator
        A robust linear model, or a pipeline that ends in one. It is not changed.
    X, y, contexts, sample_weight, groups
        As in ``fit``.
    levels : int
        How many steps from empirical risk minimisation to every mix, beside those at round confidences.
    cv : int, splitter or None
        Folds in which all levels are solved once more, to judge them on the rows left out; None leaves that out.
    """
    final = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not isinstance(final, RobustLinearModel):
        raise InvalidInputError(
            "the explorer needs a robust linear model such as RobustLogisticRegression(), or a pipeline that ends in "
            f"one, got {final!r:.60}."
        )
    model = with_counted_draws(model, X, contexts, groups, sample_weight)
    final = innermost(model)
    encoded = encode(contexts)
    counts = np.bincount(encoded.codes, checked_row_weights(sample_weight, encoded)).astype(np.float64)
    robustness = final.robustness
    ladder = Levels.of(counts, robustness, levels, encoded.labels)
    intervals, grids = _bounded(ladder, counts)
    shares = counts / counts.sum()
    paths: dict[Criterion, ConfidencePath] = {
        criterion: confidence_path(
            clone(model).set_params(**{f"{step_name(model)}criterion": criterion}),
            X,
            y,
            contexts,
            radii=ladder.radii[1 if ladder.apart else 0 :].tolist(),
            sample_weight=sample_weight,
            beside=[*([ladder.mixes[:1]] * ladder.apart), *(chain for grid in grids for chain in grid.chains)],
        )
        for criterion in CRITERIA
    }
    judged: dict[str, Any] = {"criteria": CRITERIA, "sample_weight": sample_weight, "groups": groups}
    models = {criterion: _in_order(path, ladder) for criterion, path in paths.items()}
    return Sweep(
        contexts=encoded.labels,
        counts=counts,
        levels=ladder,
        intervals=intervals,
        by_criterion={criterion: _of_models(criterion, own, shares) for criterion, own in models.items()},
        criterion=robustness.criterion,
        decision=AffineDecision.of(models, X, y, encoded),
        words=Words(measure=next((words for kind, words in _MEASURES.items() if isinstance(final, kind)), "")),
        grids=grids,
        allowed=Shares(encoded.labels, counts, robustness, np.zeros(len(counts))),
        held_out=None if cv is None else held_out_levels(model, X, y, contexts, ladder, cv=cv, **judged),
    )


_MEASURES = {
    RobustLogisticRegression: "the mean cross-entropy, in nats",
    RobustLinearRegression: "half the mean squared error",
    RobustPoissonRegressor: "the mean Poisson loss",
    RobustHuberRegressor: "the mean Huber loss",
    RobustQuantileRegressor: "the mean pinball loss",
}


def _bounded(ladder: Levels, counts: Array) -> tuple[Array, Sequence[ShareGrid]]:
    """Return the grids of bounds around the level that was asked for, and the intervals of all sets, theirs last."""
    intervals = ladder.intervals()
    grids = share_grids(ladder.mixes[ladder.chosen], counts / counts.sum(), intervals[ladder.chosen])
    further = [share_intervals(mixes) for grid in grids for chain in grid.chains for mixes in chain]
    return np.array([*intervals, *further]), grids


def _in_order(path: ConfidencePath, ladder: Levels) -> tuple[Any, ...]:
    """Return the models of all levels, that for the mix of the data first, and then those with bounds of a share."""
    first, bounded = (path.beside[0], path.beside[1:]) if ladder.apart else ((), path.beside)
    return (*first, *path.models, *(model for chain in bounded for model in chain))


def _of_models(criterion: Criterion, models: Sequence[Any], shares: Array) -> Scored:
    own = [innermost(model) for model in models]
    risks = np.array([model.context_risks_ for model in own])
    return Scored(
        criterion=criterion,
        weights=np.array([model.context_weights_ for model in own]),
        risks=risks,
        excess=np.array([model.excess_risks_ for model in own]),
        nominal=risks @ shares,
        objective=np.array([model.certificate_.upper for model in own]),
        gaps=np.array([model.certificate_.gap for model in own]),
    )


def stock_sweep(plan: ProductPlan, money: Money, *, levels: int = 25) -> Sweep:
    """Return the order of one product at every level, under both criteria.

    Where products share a capacity, the room is charged for at the price that the plan found; at the level of the plan
    the order is the plan's.

    Parameters
    ----------
    plan : ProductPlan
    money : Money
        How amounts are written: ``money`` of the plan of all products.
    levels : int
        As in :func:`sweep`.
    """
    ladder = Levels.of(plan.counts, plan.robustness, levels, plan.contexts)
    intervals, grids = _bounded(ladder, plan.counts)
    scored, orders = {}, {}
    for criterion in CRITERIA:
        scored[criterion], orders[criterion] = _orders(plan, ladder, grids, criterion)
    return Sweep(
        contexts=plan.contexts,
        counts=plan.counts,
        levels=ladder,
        intervals=intervals,
        by_criterion=scored,
        criterion=plan.robustness.criterion,
        decision=StockDecision.of(plan, orders),
        words=Words("circumstance", "the order", "mean cost", "excess cost", "its best order", money.unit),
        grids=grids,
        allowed=Shares(plan.contexts, plan.counts, plan.robustness, np.zeros(len(plan.counts))),
    )


def _orders(
    plan: ProductPlan, ladder: Levels, grids: Sequence[ShareGrid], criterion: Criterion
) -> tuple[Scored, Array]:
    """Return what comes of the orders under one criterion, and the orders."""
    solutions = []
    sets = [*ladder.mixes, *(mixes for grid in grids for chain in grid.chains for mixes in chain)]
    for k, mixes in enumerate(sets):
        placed = plan.orders.get("robust") if (k, criterion) == (ladder.chosen, plan.robustness.criterion) else None
        sized = replace(plan.robustness, mix=mixes, criterion=criterion)
        solutions.append(placed or plan.stock.solve(sized, plan.charge))
    orders = np.array([float(solution.theta[0]) for solution in solutions])
    # Not those of the solutions, which hold the charge for room as well.
    risks = np.array([plan.stock.risks(order) for order in orders])
    excess = risks - plan.stock.references.upper
    values = excess if criterion == "excess" else risks
    return (
        Scored(
            criterion=criterion,
            weights=np.array([solution.p_worst for solution in solutions]),
            risks=risks,
            excess=excess,
            nominal=risks @ plan.shares,
            objective=np.array([mixes.worst_case(row).value for mixes, row in zip(sets, values, strict=True)]),
            gaps=np.array([solution.certificate.gap for solution in solutions]),
        ),
        orders,
    )
