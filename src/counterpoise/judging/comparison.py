"""Robust learning beside its baselines, on data held out, context by context."""

from __future__ import annotations

import html
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.multiclass import type_of_target

from counterpoise.contexts import plain
from counterpoise.core.robustness import METHODS, Criterion, Mixes, Robustness
from counterpoise.estimators.learners import (
    RowLoss,
    fit_routed,
    fold_of_rows,
    innermost,
    least_probability,
    row_losses,
    specialist_losses,
    step_name,
    with_counted_draws,
)
from counterpoise.estimators.linear import RobustLinearModel, RobustLinearRegression, RobustLogisticRegression
from counterpoise.exceptions import InvalidInputError
from counterpoise.inference.choice import Choice, choose
from counterpoise.inference.excess import ExcessBounds, ExcessDifference, HeldOut
from counterpoise.inference.headroom import Headroom, negligible
from counterpoise.inference.intervals import ENDS, NOTHING, interval_in
from counterpoise.judging.verdict import verdict
from counterpoise.sets import ContextSet, Mix
from counterpoise.table import Table
from counterpoise.validation import check_aligned, unwrapped

Array = NDArray[np.float64]

BASELINES: Mapping[str, Mapping[str, Any]] = {
    "robust": {},
    **{name: METHODS[name].switches for name in ("erm", "inverse-frequency", "minimax-risk", "minimax-regret")},
}
"""What each method changes in the estimator; inverse-frequency also weighs every context alike."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """How methods did on held-out rows.

    The excess risk of a context is the risk above that of its competitors: a model trained on the context alone, and
    the plain one, trained on all. These do not change with the methods compared.

    Attributes
    ----------
    summary : Table
        A row per method: ``mix_excess``, the largest excess risk in any mix that the estimator's own set holds
        plausible, which is what it minimises; ``worst_excess``, the largest of any context, and ``worst_context``;
        ``nominal_risk``, the mean in the mix of the data; ``worst_risk``, the largest of any context. Columns that end
        in ``_change`` are differences to ``erm``, those in ``_low`` and ``_high`` ends of intervals. Worst cases are
        corrected for being the largest of noisy numbers. ``p_value`` is that of the hypothesis that no competitor is
        better in any context; see :func:`counterpoise.metrics.excess_bounds`.
    by_context : Table
        A row per method and context: rows ``n``, independent ``units`` among them, ``risk`` and ``excess`` with
        intervals that hold for all contexts together, and the best ``competitor``.
    brackets : Table
        A row per context: what is known of its least possible risk. ``in_sample``, that of the context's own model on
        the rows it was fitted to, is too low; ``held_out``, the lowest that a competitor reached, is too high.
        ``differ`` tells where they differ by more than noise, ``too_small`` where the two are so far apart that the
        excess there cannot be judged.
    references : dict
        The lowest risk of each context that a competitor reached on held-out rows.
    verdict : str
        What to make of it, in words.
    confidence : float
        Level of the intervals.
    mixes : ContextSet
        The plausible ones.
    model : str
        What was fitted, in words.
    remarks : str
        The verdict without its first sentence and its last, which is about what to keep.
    choice : Choice
        Which of ``erm``, ``inverse-frequency`` and ``robust`` to keep: the simplest, unless another is better in the
        worst plausible mix by more than its error; by risk instead of excess risk where that is the estimator's
        criterion.
    headroom : Headroom
        What contexts could gain by models of their own.
    """

    summary: Table
    by_context: Table
    brackets: Table
    references: dict[Any, float]
    verdict: str
    confidence: float
    mixes: ContextSet
    choice: Choice
    headroom: Headroom
    model: str = ""
    remarks: str = ""

    @property
    def chosen(self) -> str:
        """The method to keep."""
        return self.choice.chosen

    @property
    def level(self) -> str:
        """The level of the intervals in words."""
        return f"{100 * self.confidence:g}%"

    @property
    def overview(self) -> Table:
        """The summary with intervals in words, short enough to read."""

        def with_interval(name: str) -> NDArray[Any]:
            intervals = (interval_in(row, name) for row in self.summary.rows())
            return np.array([f"{value:.3g} [{low:.2g}, {high:.2g}]" for value, low, high in intervals])

        plausible = "every mix is plausible" if self.mixes.is_simplex else f"plausible is every mix {self.mixes.where}"
        return Table(
            {
                "method": self.summary["method"],
                "worst mix": with_interval("mix_excess"),
                "against erm": with_interval("mix_excess_change"),
                "worst context": with_interval("worst_excess"),
                "in": self.summary["worst_context"],
                "mean risk": self.summary["nominal_risk"],
                "its change": with_interval("nominal_risk_change"),
            },
            f"excess risk of {self.model} on held-out rows; {self.level} intervals; {plausible}",
        )

    def __repr__(self) -> str:
        return f"{self.verdict}\n\n{self.overview}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.verdict)}</p>{self.overview._repr_html_()}"


def compare(
    X: Any,
    y: Any,
    contexts: Any = None,
    *,
    estimator: Any = None,
    mix: Mixes | None = None,
    methods: Sequence[str] = tuple(BASELINES),
    cv: Any = 5,
    groups: Any = None,
    loss: RowLoss | None = None,
    sample_weight: Any = None,
    confidence: float = 0.95,
    n_jobs: int | None = None,
) -> Comparison:
    """Cross-validate a robust model and its baselines, and say which does best in the worst plausible mix.

    Parameters
    ----------
    contexts : labels of shape (n_samples,), a table of several columns, which are crossed, or Memberships
    estimator : estimator, optional
        A robust estimator, or a pipeline that ends in one; all preprocessing in it is fitted inside the folds. By
        default scaled features and a robust logistic or linear regression, by the kind of y.
    mix : mapping, Mix or ContextSet, optional
        What is known about the mix of contexts, such as ``{"winter": (0.1, 0.3)}``: the parameter of the estimator, set
        here for it and for the worst plausible mix that all methods are judged by. Contexts without rows have a part
        in the fits, and are not judged.
    methods : sequence of names
        Of ``"robust"`` (the estimator as it is, without a guard of its own), ``"erm"``, ``"inverse-frequency"``,
        ``"minimax-risk"`` and ``"minimax-regret"``.
    cv : int or splitter
        A number deals the rows of every context to that many folds, along the targets.
    groups : labels of shape (n_samples,), optional
        Rows that belong together (one patient, one day): they are kept in one fold, and count as one in intervals. An
        estimator with ``draws="groups"`` sizes its set by them.
    loss : {"log_loss", "zero_one", "half_squared_error", "squared_error", "absolute_error"} or callable, optional
        By default the one the models are fitted by.
    confidence : float
        Level of the intervals, which are about models fitted to as many rows as a fold leaves.

    Returns
    -------
    Comparison
    """
    if contexts is None:
        raise InvalidInputError("compare needs contexts=, one label per row.")
    strange = [name for name in methods if name not in BASELINES]
    if strange or "robust" not in methods or "erm" not in methods:
        raise InvalidInputError(
            f"methods are {list(methods)!r:.80}; choose from {', '.join(BASELINES)}, 'robust' and 'erm' among them."
        )
    check_aligned(X, contexts)
    X, target = indexable(X, np.asarray(unwrapped(y)))
    held_out = HeldOut.of(len(target), contexts, groups, sample_weight, confidence=confidence)
    base = default_estimator(target) if estimator is None else estimator
    last = innermost(base)
    if isinstance(base, type) or not hasattr(last, "get_params") or "radius" not in last.get_params():
        raise InvalidInputError(
            f"compare needs a robust estimator, got {base!r:.60}. Wrap others: ContextRobust(estimator)."
        )
    if mix is not None:
        base = clone(base).set_params(**{f"{step_name(base)}mix": mix})
    base = with_counted_draws(base, X, contexts, groups, sample_weight)
    last = innermost(base)
    codes, weight, together = held_out.of_rows
    folds = fold_of_rows(base, X, target, codes, weight, cv, together)
    held_out, X, target, folds = held_out.weighted(X, target, folds)
    judge: dict[str, Any] = {"loss": loss, "floor": least_probability(len(target)), "n_jobs": n_jobs}
    with _each_warning_once():
        rows = _held_out_losses(base, methods, X, target, held_out, folds, **judge)
        alone = (variant(base, "erm", [0]), X, target, held_out.weight, held_out.contexts.codes)
        own = specialist_losses(*alone, folds, **judge)
        # For a learner that memorises, its own rows say nothing.
        minimises = isinstance(last, RobustLinearModel)
        fitted = specialist_losses(*alone, None, **judge) if minimises else np.full(len(target), np.nan)
        plausible = _plausible(last, held_out)
    model = type(last).__name__ if estimator is not None else f"{type(last).__name__}, chosen by the kind of y"
    # The Poisson loss of a perfect prediction differs from row to row by far more than models do.
    lowest = last.lowest_losses(target) if minimises and loss is None else np.zeros(len(target))
    small = negligible(held_out, rows["erm"] - lowest)
    return _judged(held_out, rows, own, fitted, plausible, model, small, last.get_params()["criterion"])


def _plausible(last: Any, held_out: HeldOut) -> ContextSet:
    """Return the set of mixes for which an estimator is made."""
    given = last.get_params(deep=False)
    switches = {name: given[name] for name in ("confidence", "radius", "draws", "mix") if name in given}
    return Robustness(**switches).mixes_of(held_out.contexts, held_out.totals)


@contextmanager
def _each_warning_once() -> Iterator[None]:
    """Pass on one warning of each kind: the same fit is made many times."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in {record.category: record for record in reversed(caught)}.values():
        warnings.warn(warning.message, stacklevel=4)


def default_estimator(y: NDArray[Any]) -> Any:
    """Return scaled features and a robust linear model for this kind of target."""
    # Numbers too large for a whole one are none.
    with np.errstate(over="ignore", invalid="ignore"):
        kind = type_of_target(y)
    # Two numbers are classes; more are, as whole numbers, unless there are more than anyone would name.
    n_values = len(np.unique(y))
    number = n_values > 2 and (y.dtype.kind == "f" or (y.dtype.kind in "iu" and n_values > 20))
    if kind in ("binary", "multiclass") and not number:
        return make_pipeline(StandardScaler(), RobustLogisticRegression(reference="cross-fit"))
    if kind in ("continuous", "multiclass"):
        return make_pipeline(StandardScaler(), RobustLinearRegression(reference="cross-fit"))
    raise InvalidInputError(f"y is {kind}; compare handles one class or one number per row.")


def _held_out_losses(
    base: Any,
    methods: Sequence[str],
    X: Any,
    y: NDArray[Any],
    held_out: HeldOut,
    folds: NDArray[np.intp],
    *,
    n_jobs: int | None,
    **judge: Any,
) -> dict[str, Array]:
    """Return the loss of each row under each method, fitted without its fold; preprocessing is fitted once a fold."""
    contexts, weight = held_out.contexts, held_out.weight
    models = {name: variant(base, name, contexts.labels, contexts.overlap) for name in methods}
    by_weight = [name for name in methods if METHODS[name].balanced and not contexts.overlap]
    weights = {name: contexts.balanced(weight) if name in by_weight else weight for name in methods}
    prepares = isinstance(base, Pipeline) and len(base.steps) > 1

    def one(fold: int) -> list[Array]:
        entries, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        seen, labels = contexts.given(entries)
        present = contexts.labels[np.unique(contexts.codes[entries])]
        before, after = _safe_indexing(X, seen), _safe_indexing(X, held)
        if prepares:
            with config_context(enable_metadata_routing=False):
                steps = clone(base[:-1])
                before, after = steps.fit_transform(before, y[seen]), steps.transform(after)
        losses = []
        for name, model in models.items():
            last = _informed(model.steps[-1][1] if prepares else model, contexts.labels, present)
            metadata = {"contexts": labels, "sample_weight": weights[name][seen]}
            losses.append(row_losses(fit_routed(last, before, y[seen], **metadata), after, y[held], **judge))
        return losses

    rows = {name: np.empty(len(y)) for name in methods}
    present = np.unique(folds)
    for fold, found in zip(present, Parallel(n_jobs=n_jobs)(delayed(one)(fold) for fold in present), strict=True):
        for name, losses in zip(methods, found, strict=True):
            rows[name][folds == fold] = losses
    return rows


def _informed(model: Any, labels: NDArray[Any], present: Iterable[Any]) -> Any:
    """Return a model that is told of no contexts but those among its rows: a fold may lack one of a single row."""
    own = innermost(model)
    mix, there = own.get_params(deep=False).get("mix"), {plain(label) for label in present}
    lacking = [label for label in labels if plain(label) not in there]
    if not lacking or not isinstance(mix, (Mix, Mapping)):
        return model
    return clone(model).set_params(**{f"{step_name(model)}mix": Mix.of(mix).without(lacking)})


def variant(base: Any, method: str, contexts: Sequence[Any] | NDArray[Any], overlap: bool = False) -> Any:
    """Return the estimator with its switches set for a method; without contexts a fit has one, 0."""
    prefix, switches = step_name(base), dict(BASELINES[method])
    given = innermost(base).get_params()
    if switches.get("criterion") == "risk" and "reference" in given:
        # What is not scored need not be estimated.
        switches["reference"] = dict.fromkeys(map(plain, contexts), 0.0)
    if method != "robust":
        switches |= {name: None for name in ("adjust", "mix") if name in given}
    # What is compared is the method itself; which one to keep is said in the end.
    switches |= {name: value for name, value in (("guard", False), ("headroom", None)) if name in given}
    if overlap and METHODS[method].balanced:
        # A row in several contexts has no one weight by which each of them counts alike.
        switches["mix"] = Mix(shares={plain(label): 1.0 / len(contexts) for label in contexts}, radius=0.0)
    return clone(base).set_params(**{prefix + name: value for name, value in switches.items()})


CANDIDATES = ("erm", "inverse-frequency", "robust")
"""The methods of which one is kept, the simplest first."""

COMPETITORS = ("own", "pooled")
"""What excess risk is measured against in every context: its own model, and the plain one for all."""


def _judged(
    held_out: HeldOut,
    rows: Mapping[str, Array],
    own: Array,
    fitted: Array,
    plausible: ContextSet,
    model: str,
    small: float,
    criterion: Criterion,
) -> Comparison:
    """Turn losses of rows into tables and words.

    ``own`` and ``fitted`` are the losses of each context's own model on rows held out, and on those it was fitted to;
    ``small`` is the excess risk that does not matter, and ``criterion`` what the estimator makes small.
    """
    labels, erm, pooled = held_out.contexts.labels, rows["erm"], COMPETITORS.index("pooled")
    competitors, nothing = np.column_stack([own, erm]), np.zeros((len(erm), 1))
    risk = {name: held_out.excess_bounds(losses, nothing, [""]) for name, losses in rows.items()}
    held_out = replace(held_out, mix=plausible, n_unseen=plausible.p_hat.size - len(labels))
    candidates = {name: rows[name] for name in CANDIDATES if name in rows}
    against = {"own": own, **candidates} if criterion == "excess" else {"risk": np.zeros(len(erm))}
    choice = choose(held_out, candidates, against)
    headroom = Headroom(held_out.excess_bounds(erm, own[:, None], ["own"]), small)
    excess = {
        name: held_out.excess_bounds(losses, competitors, COMPETITORS, pooled if name == "erm" else None)
        for name, losses in rows.items()
    }
    unchanged = ExcessDifference(*NOTHING, *NOTHING, held_out.confidence, ())
    change = {
        name: unchanged if name == "erm" else held_out.excess_difference(losses, erm, competitors, pooled)
        for name, losses in rows.items()
    }
    summary = _summary(held_out, rows, excess, risk, change)
    cells = [_cells(name, excess[name].by_context, risk[name].by_context) for name in rows]
    brackets = _brackets(held_out, own, erm, fitted, float(np.nanmax([excess["erm"].estimate, small])))
    other = None
    if "inverse-frequency" in rows:
        other = held_out.excess_difference(rows["robust"], rows["inverse-frequency"], competitors)
    words = [
        *verdict(summary, brackets, other, small, held_out.confidence),
        f"To be kept: {choice.chosen}, since {choice.reason}.",
    ]
    return Comparison(
        summary=summary,
        by_context=Table({name: np.concatenate([one[name] for one in cells]) for name in cells[0]}),
        brackets=brackets,
        references=dict(zip(labels.tolist(), brackets["held_out"].tolist(), strict=True)),
        verdict=" ".join([*words, f"To be kept: {choice.chosen}, since {choice.reason}."]),
        confidence=held_out.confidence,
        mixes=plausible,
        choice=choice,
        headroom=headroom,
        model=model,
        remarks=" ".join(words[1:]),
    )


def _summary(
    held_out: HeldOut,
    rows: Mapping[str, Array],
    excess: Mapping[str, ExcessBounds],
    risk: Mapping[str, ExcessBounds],
    change: Mapping[str, ExcessDifference],
) -> Table:
    """Return a row per method; see :class:`Comparison`."""
    intervals = {
        "mix_excess": [one.mix for one in excess.values()],
        "mix_excess_change": [one.mix for one in change.values()],
        "worst_excess": [one.worst for one in excess.values()],
        "worst_excess_change": [one.worst for one in change.values()],
        "nominal_risk": [held_out.mean(losses) for losses in rows.values()],
        "nominal_risk_change": [held_out.mean(losses - rows["erm"]) for losses in rows.values()],
        "worst_risk": [one.worst for one in risk.values()],
    }
    columns = {
        f"{name}{end}": column
        for name, found in intervals.items()
        for end, column in zip(ENDS, np.array(found).T, strict=True)
    }
    return Table(
        {
            "method": np.array(list(rows)),
            **columns,
            "p_value": np.array([one.p_value for one in excess.values()]),
            "worst_context": held_out.contexts.labels[[_largest(one.by_context) for one in excess.values()]],
        }
    )


def _largest(by_context: Table) -> int:
    """Return the context with the largest excess, of those that can be judged where there are any."""
    judged = np.isfinite(by_context["low"])
    excess = by_context["excess"]
    return int(np.nanargmax(np.where(judged, excess, np.nan) if judged.any() else excess))


def _cells(method: str, excess: Table, risk: Table) -> dict[str, NDArray[Any]]:
    """Return a row per context of one method."""
    bounds = dict(zip(ENDS, ("excess", "low", "high"), strict=True))
    return {
        "method": np.repeat(method, excess.n_rows),
        **{name: excess[name] for name in ("context", "n", "units")},
        **{f"risk{end}": risk[name] for end, name in bounds.items()},
        **{f"excess{end}": excess[name] for end, name in bounds.items()},
        "competitor": excess["competitor"],
    }


def _brackets(held_out: HeldOut, own: Array, erm: Array, fitted: Array, tolerated: float) -> Table:
    """Return what is known of the least possible risk of each context, from both sides.

    A context is too small to judge where the two sides, with their noise, are further apart than is tolerated: the
    largest excess of the plain model, or what is negligible.
    """
    with np.errstate(invalid="ignore"):
        pairs = held_out.pairs(np.column_stack([own, erm, fitted, own - fitted, erm - fitted]))
    best = np.argmin(np.where(np.isnan(pairs.mean[:, :2]), np.inf, pairs.mean[:, :2]), axis=1)
    at = np.arange(len(best))
    width, error = pairs.mean[at, 3 + best], pairs.error[at, 3 + best]
    with np.errstate(invalid="ignore"):
        beyond = (width > 2.0 * error) & (pairs.n_units > 1)
        too_small = width + 2.0 * error > tolerated
    return Table.of(
        "",
        context=held_out.contexts.labels,
        n=held_out.contexts.counts,
        in_sample=pairs.mean[:, 2],
        held_out=pairs.mean[at, best],
        differ=beyond,
        too_small=too_small | (pairs.n_units == 1),
    )
