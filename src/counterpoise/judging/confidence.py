"""What robustness costs and what it buys, level by level."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from counterpoise.contexts import shown
from counterpoise.core.fit import LinearFit
from counterpoise.core.objective import Certificate
from counterpoise.core.path import solve_chains, solve_path
from counterpoise.core.solvers import Solution
from counterpoise.estimators.boosting import RobustBooster
from counterpoise.estimators.learners import with_counted_draws
from counterpoise.estimators.linear import RobustLinearModel
from counterpoise.exceptions import EmptySetError, InvalidInputError
from counterpoise.memberships import Memberships
from counterpoise.sets import (
    Ball,
    ContextSet,
    Intersection,
    KLBall,
    Mix,
    RadiusMethod,
    confidence_radius,
    implied_confidence,
    radius_ladder,
    radius_of,
)
from counterpoise.table import Table
from counterpoise.threads import suited

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ConfidencePath(Table):
    """A table with a row per level of confidence, from the smallest set to the largest.

    Columns are ``confidence``, ``radius`` (in bits), ``nominal_risk`` (the mean over the data), ``worst_risk`` and
    ``worst_excess`` (the largest of any context), ``objective`` (the worst case over the set), ``gap`` (proven), and
    ``excess[c]`` and ``weight[c]`` of every context ``c``. Risks are those of the fit: in sample, with the ridge.

    Attributes
    ----------
    contexts : ndarray of shape (n_contexts,)
    risks, excess_risks, context_weights : ndarray of shape (n_levels, n_contexts)
    models : tuple
        The fitted estimator of each level.
    beside : tuple of tuples
        The fitted estimators of further sets, see ``beside`` of :func:`confidence_path`.
    """

    contexts: NDArray[Any] = ()  # type: ignore[assignment]
    risks: Array = ()  # type: ignore[assignment]
    excess_risks: Array = ()  # type: ignore[assignment]
    context_weights: Array = ()  # type: ignore[assignment]
    models: tuple[Any, ...] = ()
    beside: tuple[tuple[Any, ...], ...] = ()


def confidence_path(
    model: Any,
    X: Any,
    y: Any,
    contexts: Any = None,
    confidences: Sequence[float] | None = None,
    *,
    radii: Sequence[float] | None = None,
    levels: int = 50,
    sample_weight: Any = None,
    groups: Any = None,
    beside: Sequence[Sequence[ContextSet]] = (),
    **columns: Any,
) -> ConfidencePath:
    """Fit a model at many levels of confidence.

    Without ``confidences`` or ``radii`` the levels reach from empirical risk minimisation (radius 0) to minimax
    regret (the whole simplex), in steps along which the solution moves evenly. The confidence beside each is the one
    for which the model's method of sizing the set gives that radius: mostly 0 or nearly 1, so plot against the radius.

    Parameters
    ----------
    model : estimator
        A robust linear model, or a pipeline that ends in one; or any estimator with a parameter ``radius`` and the
        attributes of :class:`counterpoise.ContextRobust`, which is fitted anew at every level.
    contexts : labels of shape (n_samples,), a table of several columns, which are crossed, or Memberships
    confidences, radii : sequences of numbers, optional
        The levels, as confidences or as radii in bits.
    levels : int
        How many, where neither is given.
    groups : labels of shape (n_samples,), optional
        Rows that belong together, for a model with ``draws="groups"``.
    beside : sequence of sequences of ContextSet
        Further sets to solve with the same least risks, over the contexts in the order of their labels. In a sequence
        each contains the one before.
    **columns
        What else the model's ``fit`` takes of every row, such as ``costs=``.

    Returns
    -------
    ConfidencePath
    """
    if contexts is not None:
        model = with_counted_draws(model, X, contexts, groups, sample_weight)
    if isinstance(model, Pipeline) and len(model.steps) > 1:
        before, (name, final) = clone(model[:-1]), model.steps[-1]
        X = before.fit_transform(X, y)
        path = confidence_path(
            final,
            X,
            y,
            contexts,
            confidences,
            radii=radii,
            levels=levels,
            sample_weight=sample_weight,
            beside=beside,
            **columns,
        )

        def whole(models: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(clone(model).set_params(steps=[*before.steps, (name, one)]) for one in models)

        return replace(path, models=whole(path.models), beside=tuple(map(whole, path.beside)))
    model = model.steps[0][1] if isinstance(model, Pipeline) else model
    if not hasattr(model, "get_params") or "radius" not in model.get_params():
        raise InvalidInputError(
            f"confidence_path needs a robust model such as RobustLogisticRegression(), got {model!r:.60}."
        )
    if contexts is None:
        raise InvalidInputError(
            "confidence_path needs contexts=, one label per row: with one context there is no path."
        )
    overlap = isinstance(contexts, Memberships) and contexts.overlap
    sized = _Levels(model, confidences, radii, levels, overlap)
    if isinstance(model, RobustLinearModel):
        return _linear_path(clone(model), sized, X, y, contexts, sample_weight, beside, **columns)
    return _refitted_path(model, sized, X, y, contexts, sample_weight, beside, **columns)


@dataclass(frozen=True)
class _Levels:
    """Which levels were asked for."""

    model: Any
    confidences: Sequence[float] | None
    radii: Sequence[float] | None
    n_levels: int
    overlap: bool = False

    @property
    def mix(self) -> Any:
        """The set that the model was given, if any."""
        return self.model.get_params().get("mix")

    @property
    def by_label(self) -> Mix | None:
        """What the model was told about the mix by label, if anything."""
        return Mix.of(self.mix) if isinstance(self.mix, (Mix, Mapping)) else None

    def at(self, radius: float, counts: Array, labels: NDArray[Any]) -> ContextSet:
        """Return the set of a level."""
        if self.mix is None:
            return KLBall(counts / counts.sum(), radius)
        whole, known = self.mix, self.by_label
        if known is not None:
            return (known if known.ball is None else replace(known, radius=radius)).over(labels, counts)
        if not hasattr(whole, "resized") or math.isnan(radius_of(whole)):
            raise InvalidInputError(
                f"mix is a {type(self.mix).__name__}, which has no radius, so there is no path. Pass a ball such as "
                "Chi2Ball(p_hat, radius), or None."
            )
        found: ContextSet = whole.resized(radius)
        return found

    def switches(self, radius: float, mixes: ContextSet) -> dict[str, Any]:
        """Return the parameters of a model with that set, of this radius."""
        if self.mix is None:
            return {"radius": radius}
        return {"mix": mixes if self.by_label is None else replace(self.by_label, radius=radius)}

    def sets(self, counts: Array, labels: NDArray[Any]) -> list[tuple[float, ContextSet]]:
        """Return radii, ascending and distinct, with their sets; without those too small to meet what is known."""
        found: list[tuple[float, ContextSet]] = []
        for radius in self.bits(counts, labels).tolist()[::-1]:
            try:
                found.append((radius, self.at(radius, counts, labels)))
            except EmptySetError:
                # A smaller ball around the same centre is no nearer to the bounds.
                if not found or self.radii is not None or self.confidences is not None:
                    raise
                break
        return found[::-1]

    @property
    def method(self) -> RadiusMethod:
        return self.model.radius if isinstance(self.model.radius, str) else "types"  # type: ignore[return-value]

    def bits(self, counts: Array, labels: NDArray[Any]) -> Array:
        """Return the radii, ascending and distinct."""
        known = self.by_label
        if known is not None and known.ball is None:
            raise InvalidInputError(
                "mix has no ball (ball=None), so there is no radius and no path. Choose one, such as ball='kl'."
            )
        if self.confidences is not None and self.radii is not None:
            raise InvalidInputError("pass confidences or radii, not both.")
        if self.confidences is not None and self.overlap:
            raise InvalidInputError(
                "contexts overlap, so no radius follows from their counts and a confidence. Pass radii, or neither."
            )
        if self.confidences is not None:
            levels = np.atleast_1d(np.asarray(self.confidences)).tolist()
            asked = [self._sized(one, counts, labels) for one in levels]
        elif self.radii is not None:
            try:
                asked = np.atleast_1d(np.asarray(self.radii, dtype=np.float64)).tolist()
            except (TypeError, ValueError) as error:
                raise InvalidInputError(f"radii are numbers of bits, got {self.radii!r:.60}.") from error
        else:
            if not (isinstance(self.n_levels, (int, np.integer)) and self.n_levels >= 2):
                raise InvalidInputError(f"levels = {self.n_levels!r}; a path has two or more.")
            asked = radius_ladder(self.n_levels).tolist()
        if not asked or not all(one >= 0.0 for one in asked):
            raise InvalidInputError(f"levels are radii of 0 bits or more, got {asked!r:.60}.")
        return np.unique(np.asarray(asked, dtype=np.float64))

    def _sized(self, confidence: float, counts: Array, labels: NDArray[Any]) -> float:
        """Return the radius that the model's method of sizing the set gives for a confidence."""
        if self.by_label is None:
            return confidence_radius(counts, confidence, self.method, draws=self.model.draws)
        known = replace(self.by_label, radius=None, bounds=None, limits=None)
        sized = {"confidence": confidence, "radius": self.method, "draws": self.model.draws}
        return radius_of(known.over(labels, counts, **sized))

    def confidence(self, radius: float, counts: Array) -> float:
        """Return the confidence of a level, NaN where it does not follow from the data."""
        known = self.by_label
        of_data = known is not None and (known.ball, known.counts, known.shares) == ("kl", None, None)
        if self.overlap or (self.mix is not None and not of_data):
            return math.nan
        return implied_confidence(radius, counts, self.method, draws=self.model.draws)


def _linear_path(
    model: RobustLinearModel,
    levels: _Levels,
    X: Any,
    y: Any,
    contexts: Any,
    sample_weight: Any,
    beside: Sequence[Sequence[ContextSet]],
    **columns: Any,
) -> ConfidencePath:
    problem = model.pose(X=X, y=y, contexts=contexts, sample_weight=sample_weight, **columns)
    if not problem.oracle.rows.knows_predictions:
        return _refitted_path(model, levels, X, y, contexts, sample_weight, beside, **columns)
    found = levels.sets(problem.counts, problem.contexts.labels)
    scoring = model.scoring(problem, found[-1][1])
    like = clone(model)
    for name in ("classes_", "n_features_in_", "feature_names_in_"):
        if hasattr(model, name):
            setattr(like, name, getattr(model, name))

    def kept(mixes: ContextSet, solution: Solution, **switches: Any) -> Any:
        one = copy(like)
        vars(one).update(switches)
        return one.keep(LinearFit.of(problem, mixes, scoring.scored, solution), scoring)

    with suited(problem.size):
        radii, largest = np.array([radius for radius, _ in found]), cast("Ball | Intersection", found[-1][1])
        solutions = solve_path(problem, scoring.scored, largest, radii, model.tol)
        fitted = [
            kept(mixes, solution, **levels.switches(radius, mixes))
            for (radius, mixes), solution in zip(found, solutions, strict=True)
        ]
        chains = solve_chains(problem, scoring.scored, beside, model.tol)
        further = tuple(
            tuple(kept(mixes, solution, mix=mixes) for mixes, solution in zip(chain, solutions, strict=True))
            for chain, solutions in zip(beside, chains, strict=True)
        )
    return replace(_path(fitted, levels, problem.counts), beside=further)


def _refitted_path(
    model: Any,
    levels: _Levels,
    X: Any,
    y: Any,
    contexts: Any,
    sample_weight: Any,
    beside: Sequence[Sequence[ContextSet]],
    **columns: Any,
) -> ConfidencePath:
    weights = columns if sample_weight is None else {**columns, "sample_weight": sample_weight}
    plain = {"radius": 0.0, "mix": None} if levels.mix is not None else {"radius": 0.0}
    if isinstance(model, RobustBooster) and model.patience is None:
        # In a set of one distribution a booster holds no rows out, and knows no risks, unless it may stop early.
        model = clone(model).set_params(patience=model.n_estimators)
    centre = clone(model).set_params(**plain).fit(X, y, contexts=contexts, **weights)
    counts = np.asarray(centre.context_counts_, dtype=np.float64)
    fitted = [
        centre
        if radius == 0.0 and levels.mix is None
        else clone(model).set_params(**levels.switches(radius, mixes)).fit(X, y, contexts=contexts, **weights)
        for radius, mixes in levels.sets(counts, centre.contexts_)
    ]
    further = tuple(
        tuple(clone(model).set_params(mix=mixes).fit(X, y, contexts=contexts, **weights) for mixes in chain)
        for chain in beside
    )
    return replace(_path(fitted, levels, counts), beside=further)


def _proven(model: Any) -> Certificate:
    """Return what a model proves; boosters prove nothing."""
    return getattr(model, "certificate_", Certificate(math.nan, math.nan))


def _path(models: list[Any], levels: _Levels, counts: Array) -> ConfidencePath:
    shares = counts / counts.sum()
    risks, excess, weights = (
        np.array([getattr(model, name) for model in models])
        for name in ("context_risks_", "excess_risks_", "context_weights_")
    )
    labels = models[0].contexts_
    columns = {
        "confidence": np.array([levels.confidence(model.radius_, counts) for model in models]),
        "radius": np.array([model.radius_ for model in models]),
        "nominal_risk": risks @ shares,
        "worst_risk": risks.max(axis=1),
        "worst_excess": excess.max(axis=1),
        "objective": np.array([_proven(model).upper for model in models]),
        "gap": np.array([_proven(model).gap for model in models]),
    }
    names = [shown(label) for label in labels]
    if len(set(names)) < len(names):
        # 1 and "1" are different contexts.
        names = [repr(label) for label in labels.tolist()]
    columns |= {f"excess[{name}]": excess[:, c] for c, name in enumerate(names)}
    columns |= {f"weight[{name}]": weights[:, c] for c, name in enumerate(names)}
    return ConfidencePath(columns, "", labels, risks, excess, weights, tuple(models))
