"""Robust learning beside its baselines, on data held out, context by context."""

from __future__ import annotations

import html
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import indexable
from sklearn.utils.multiclass import type_of_target

from counterpoise.contexts import shown
from counterpoise.core.robustness import Criterion, Mixes, Robustness
from counterpoise.estimators.learners import (
    RowLoss,
    Split,
    innermost,
    least_probability,
    splits_of_rows,
    step_name,
    with_counted_draws,
)
from counterpoise.estimators.linear import RobustLinearModel, RobustLinearRegression, RobustLogisticRegression
from counterpoise.exceptions import CounterpoiseWarning, InvalidInputError
from counterpoise.inference.choice import Choice, choice_of
from counterpoise.inference.compared import NOTHING, Compared
from counterpoise.inference.excess import ExcessDifference, HeldOut
from counterpoise.inference.headroom import Headroom, negligible
from counterpoise.inference.intervals import NO_CHANGE, interval_in
from counterpoise.inference.windows import expanding_windows, moments_of
from counterpoise.judging.decomposition import Drift
from counterpoise.judging.known_contexts import why_known
from counterpoise.judging.later import agreement, drift_of, later_rows
from counterpoise.judging.measures import Measure, measures_of, task_of
from counterpoise.judging.tabulated import blocks_of, brackets_of, cells_of, changes_of, measures_by_method, summary_of
from counterpoise.judging.trials import AS_FEATURE, BASELINES, PER_CONTEXT, Field, Judge, Outcome
from counterpoise.judging.verdict import SHUFFLED, best_baseline, headline, known_in_words, not_judged, verdict, where
from counterpoise.sets import ContextSet
from counterpoise.table import Table, written
from counterpoise.validation import check_aligned, unwrapped

Array = NDArray[np.float64]

CANDIDATES = ("erm", "inverse-frequency", "robust")
"""The methods of which one is kept, the simplest first."""

_NEARLY_PERFECT = {"R2": 0.99, "D2": 0.99, "AUC": 0.995}
"""Measures from which on predictions are too good to be true, most often."""

COMPETITORS = ("own", "pooled")
"""What excess risk is measured against in every context: its own model, and the plain one for all."""

_OWN = "own model"
_AGAINST = (_OWN, "erm")
"""The same, by the names under which losses are kept."""


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
        intervals that hold for all contexts together, and the best ``competitor``. Excess is that of rows which
        are judged by models fitted to rows of the same context; NaN in a context without any, which is left out of all
        worst cases and of what is said about excess.
    brackets : Table
        A row per context: what is known of its least possible risk. ``in_sample``, that of the context's own model on
        the rows it was fitted to, is too low; ``held_out``, the lowest that a competitor reached, is too high.
        ``differ`` tells where they differ by more than noise, ``too_small`` where the two are so far apart that the
        excess there cannot be judged.
    references : dict
        The lowest risk of each context that a competitor reached on held-out rows.
    confidence : float
        Level of the intervals.
    mixes : ContextSet
        The plausible ones.
    model : str
        What was fitted, in words.
    remarks : str
        The verdict without the headline, and without its last sentence, which is about what to keep.
    choice : Choice
        Which of ``erm``, ``inverse-frequency`` and ``robust`` to keep: the simplest, unless another is better in the
        worst plausible mix by more than its error; by risk instead of excess risk where that is the estimator's
        criterion.
    headroom : Headroom
        What contexts could gain by models of their own.
    measures : Table
        A row per method and context, and one for "all": accuracy, AUC, RMSE and the like, in natural units.
    measure : Measure
        The one that leads: accuracy, RMSE, deviance, pinball loss or mean absolute error, by the task.
    changes : Table
        A row per method and context, and one for "all": the leading measure ``before``, with the plain model, and
        ``after``, its ``change`` with an interval that holds for all contexts together, and in words what ``size`` that
        is: better, worse, slightly better or worse, no practical difference, or cannot be told apart.
    headline : str
        What the context that is served worst gains, and all rows pay, in that measure.
    outcomes : dict
        The loss and the prediction of every row judged, by method.
    y : ndarray
        The targets of the rows judged.
    held_out : HeldOut
        The rows judged.
    rows : ndarray of int
        Which they are, of those that have weight.
    validation : str
        How rows were held out, in words.
    forward : Comparison or None
        The same methods fitted to the past and judged on what came later, where times were given. It then decides
        which method is chosen.
    agreement : str
        Whether what shuffled rows show carries over to later rows.
    drift : Drift or None
        What the change of risk from past to later rows is made of.
    blocks : Table or None
        Of later rows: a row per cut with the times of the ``first`` and the ``last`` row after it, how many ``rows``
        these are, how many methods were fitted to (``rows_before``), and the leading measure of every method.
    criterion : {"excess", "risk"}
        What the estimator makes small in the worst mix.
    known_contexts : Table or None
        What can be had where the context is known when predicting: as ``changes``, for a model per context and for the
        context as a feature.
    """

    summary: Table
    by_context: Table
    brackets: Table
    references: dict[Any, float]
    confidence: float
    mixes: ContextSet
    choice: Choice
    headroom: Headroom
    measures: Table
    measure: Measure
    changes: Table
    headline: str
    outcomes: dict[str, Outcome]
    y: NDArray[Any]
    held_out: HeldOut
    rows: NDArray[np.intp]
    validation: str = SHUFFLED
    forward: Comparison | None = None
    agreement: str = ""
    drift: Drift | None = None
    blocks: Table | None = None
    known_contexts: Table | None = None
    criterion: Criterion = "excess"
    model: str = ""
    remarks: str = ""

    @property
    def decisive(self) -> Comparison:
        """The comparison on later rows where there is one, else this one."""
        return self if self.forward is None else self.forward

    @property
    def chosen(self) -> str:
        """The method to keep."""
        return self.decisive.choice.chosen

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict in parts: the headline, what later rows say, what changed, the rest, and what to keep."""
        last = self.decisive
        said = (self.headline, self.agreement, "" if self.drift is None else self.drift.words, last.remarks, last.kept)
        return tuple(one for one in said if one)

    @property
    def verdict(self) -> str:
        """What to make of it, in words."""
        return " ".join(self.sentences)

    @property
    def kept(self) -> str:
        """What to keep, and why."""
        return f"To be kept: {self.choice.chosen}, since {self.why_kept({})}."

    def why_kept(self, names: Mapping[str, str]) -> str:
        """Return why a method is kept, as a clause, with other names for methods.

        Numbers are left to the tables, where they have intervals.
        """
        simplest, *others = self.choice.candidates.rows()
        if not others or any(math.isnan(row["change"]) or row["change"] == row["error"] == 0.0 for row in others):
            return self.choice.because(names, self.where)
        score = f"{'excess risk' if self.criterion == 'excess' else 'risk'} in the worst plausible mix"
        if self.choice.chosen == simplest["candidate"]:
            tried = " nor ".join(names.get(row["candidate"], row["candidate"]) for row in others)
            found = f"{'neither ' if len(others) > 1 else 'not even '}{tried} lowers the {score}"
            return f"{self.where} {found} by more than the standard error of the difference"
        row = next(row for row in others if row["candidate"] == self.choice.chosen)
        ours = next(one for one in self.summary.rows() if one["method"] == self.choice.chosen)
        proven = ours["mix_excess_change_high"] < 0.0
        # To choose, a standard error is enough; a claim takes an interval.
        doubt = "" if proven else ": enough to choose it, not enough to prove a gain"
        against = names.get(row["against"], row["against"])
        found = f"its {score} is below that of {against} by more than the standard error of the difference"
        return f"{self.where} {found}{doubt}"

    @property
    def where(self) -> str:
        """Where methods were judged, in words: on held-out rows, in later months."""
        return where(self.validation)

    @property
    def too_good(self) -> list[str]:
        """Say that the plain model predicts nearly perfectly, where it does: a feature may give the target away."""
        own = self.decisive.measures.where(method="erm")
        nearly = [name for name in _NEARLY_PERFECT if name in own and own[name][0] >= _NEARLY_PERFECT[name]]
        if not nearly:
            return []
        found = f"{nearly[0]} {own[nearly[0]][0]:.4g} {self.decisive.where}"
        return [f"warning: the plain model predicts nearly perfectly ({found}): look for a feature that gives it away"]

    @property
    def level(self) -> str:
        """The level of the intervals in words."""
        return f"{100 * self.confidence:g}%"

    @property
    def overview(self) -> Table:
        """The summary with intervals in words, short enough to read."""

        def with_interval(name: str) -> NDArray[Any]:
            intervals = (interval_in(row, name) for row in self.summary.rows())
            return np.array([_short(*interval) for interval in intervals])

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
            f"excess risk of {self.model} {self.where}; {self.level} intervals; {plausible}",
        )

    @property
    def natural(self) -> Table:
        """The leading measure of every method in natural units, over all rows and in the contexts it serves worst."""
        measure, methods = self.measure, list(self.outcomes)
        every = [self.measures.where(method=name)[measure.name][0] for name in methods]
        worst = [self._worst(name) for name in methods]
        return Table(
            {
                "method": np.array(methods),
                f"{measure.name}, all rows": np.array([measure.text(value) for value in every]),
                "lowest" if measure.higher_is_better else "highest": np.array([measure.text(row[1]) for row in worst]),
                "in": np.array([f"{shown(row[0])} ({row[2]:,} {'row' if row[2] == 1 else 'rows'})" for row in worst]),
            },
            f"{measure.words}, {self.where}",
        )

    def _worst(self, method: str) -> tuple[Any, float, int]:
        """Return the context in which the leading measure of a method is worst, with its value and its rows."""
        own = self.measures.where(method=method)
        value = own[self.measure.name][1:]
        worst = np.nanargmin(value) if self.measure.higher_is_better else np.nanargmax(value)
        return own["context"][1 + worst], float(value[worst]), int(own["n"][1 + worst])

    def __repr__(self) -> str:
        tables = [table for one in self._validations for table in (one.natural, one.overview)]
        return "\n\n".join(["\n".join(self.sentences), *map(repr, tables)])

    def _repr_html_(self) -> str:
        tables = [table for one in self._validations for table in (one.natural, one.overview)]
        return f"<p>{html.escape(self.verdict)}</p>{''.join(table._repr_html_() for table in tables)}"

    @property
    def _validations(self) -> list[Comparison]:
        return [self] if self.forward is None else [self.forward, self]


def _short(value: float, low: float, high: float) -> str:
    """Return a value with its interval."""
    return f"{written(value, digits=3)} [{written(low, digits=2)}, {written(high, digits=2)}]"


def compare(
    X: Any,
    y: Any,
    contexts: Any = None,
    *,
    estimator: Any = None,
    mix: Mixes | None = None,
    methods: Sequence[str] = tuple(BASELINES),
    cv: Any = 5,
    time: Any = None,
    cuts: int = 4,
    gap: Any = None,
    groups: Any = None,
    loss: RowLoss | None = None,
    sample_weight: Any = None,
    confidence: float = 0.95,
    context_known: bool | str | None = None,
    log_target: bool = False,
    n_jobs: int | None = None,
    progress: Callable[[float], None] | None = None,
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
    cv : int or splitter, or None
        A number deals the rows of every context to that many folds, along the targets. A splitter need not test every
        row; what is said is then about those that it tests. None, where times are given: later rows alone judge.
    time : array of shape (n_samples,), optional
        When each row was: numbers, dates, or text written as dates. Methods are then also fitted to the past and judged
        on what came later, at several cut points; which of them to keep is decided by that. The comparison on later
        rows is the attribute ``forward``.
    cuts : int
        Points in time before which methods are fitted, and after which they are judged, up to the next one.
    gap : number or timedelta, optional
        Rows this close before a cut are not fitted to, as where targets are known only later.
    groups : labels of shape (n_samples,), optional
        Rows that belong together (one patient, one day): they are kept in one fold, and count as one in intervals. An
        estimator with ``draws="groups"`` sizes its set by them. Cuts in time may go through a group, as the future
        does. Rows of one time are not taken to belong together unless their times are the groups.
    loss : {"log_loss", "zero_one", "half_squared_error", "squared_error", "absolute_error"} or callable, optional
        By default the one the models are fitted by.
    confidence : float
        Level of the intervals, which are about models fitted to as many rows as a fold leaves.
    context_known : bool or str, optional
        Whether a model per context, and the context as a feature, are judged too; by default where the contexts look
        like a calendar, a balanced design, or a column of X. A string says why the context is known.
    log_target : bool
        Whether y is the logarithm of what is to be predicted. Risks are then of the logarithm, while measures are in
        the unit of the target; means are brought back by Duan's smearing factor.
    progress : callable, optional
        Told the fraction that is done, from 0 to 1.

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
    if cv is None and time is None:
        raise InvalidInputError("cv is None and no time= is given, so no rows are held out. Pass one of them.")
    check_aligned(X, contexts)
    name, columns = getattr(contexts, "name", None), getattr(X, "columns", ())
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
    codes, weight, together = held_out.of_rows
    splits = [] if cv is None else splits_of_rows(base, X, target, codes, weight, cv, together)
    windows = [] if time is None else _with_classes(_windows(time, weight, cuts, gap), target, is_classifier(base))
    parts = _parts([*splits, *windows], len(target))
    moments = np.zeros(len(target)) if time is None else moments_of(time)
    held_out, X, target, parts, moments = held_out.weighted(X, target, parts, moments)
    every = [(np.flatnonzero(part == _FITTED), np.flatnonzero(part == _JUDGED)) for part in parts.T]
    share = len(splits) / len(every)
    with _each_warning_once():
        posed = _Posed(
            field=Field(
                base=base,
                methods=tuple(methods),
                X=X,
                y=target,
                held_out=held_out,
                judge=Judge(loss, least_probability(len(target)), n_jobs, log_target),
            ),
            model=type(last).__name__ + (", chosen by the kind of y" if estimator is None else ""),
            why_known=_why_known(context_known, held_out, name, columns),
        )
        if cv is None:
            alone = posed.judged(every, later_rows(time, cuts), progress)
            of_rows = (alone.held_out, alone.y, alone.outcomes, alone.measure)
            return replace(alone, blocks=blocks_of(*of_rows, every, alone.rows, moments))
        shuffled = posed.judged(every[: len(splits)], SHUFFLED, _part(progress, 0.0, share))
        if time is None:
            return shuffled
        forward = posed.judged(every[len(splits) :], later_rows(time, cuts), _part(progress, share, 1.0))
        of_rows = (forward.held_out, forward.y, forward.outcomes, forward.measure)
        forward = replace(forward, blocks=blocks_of(*of_rows, every[len(splits) :], forward.rows, moments))
    drift = drift_of(
        {name: (shuffled.outcomes[name].losses, forward.outcomes[name].losses) for name in ("erm", "robust")},
        (shuffled.rows, forward.rows),
        every[len(splits) :],
        held_out,
        forward.validation,
    )
    return _combined(shuffled, forward, drift)


_FITTED, _JUDGED = 1, 2


def _windows(time: Any, weight: Array, cuts: int, gap: Any) -> list[Split]:
    """Return the windows of the rows that have weight."""
    times = np.asarray(unwrapped(time))
    if len(times) != len(weight):
        raise InvalidInputError(f"got {len(times)} times for {len(weight)} rows. Pass one for each row.")
    kept = np.flatnonzero(weight > 0)
    return [(kept[seen], kept[later]) for seen, later in expanding_windows(times[kept], cuts, gap)]


def _with_classes(windows: list[Split], y: NDArray[Any], classifies: bool) -> list[Split]:
    """Return the windows that can be fitted: of one class nothing is learnt."""
    if not classifies:
        return windows
    kept = [(seen, later) for seen, later in windows if len(np.unique(y[seen])) > 1]
    if not kept:
        raise InvalidInputError(
            "before every cut all rows have one class, from which nothing is learnt. Pass fewer cuts, or no time."
        )
    if len(kept) < len(windows):
        warnings.warn(
            f"{len(windows) - len(kept)} of {len(windows)} cuts are left out: the rows before them have one class",
            CounterpoiseWarning,
            stacklevel=3,
        )
    return kept


def _parts(splits: Sequence[Split], n_rows: int) -> NDArray[np.int8]:
    """Return the part that each row has in each split, as a table that rows can be taken from."""
    parts = np.zeros((n_rows, len(splits)), dtype=np.int8)
    for k, (seen, held) in enumerate(splits):
        parts[seen, k], parts[held, k] = _FITTED, _JUDGED
    return parts


def _part(progress: Callable[[float], None] | None, start: float, end: float) -> Callable[[float], None] | None:
    """Return who hears of the progress of a part of the whole."""
    if progress is None:
        return None
    return lambda fraction: progress(start + (end - start) * fraction)


def _why_known(asked: bool | str | None, held_out: HeldOut, name: Any, columns: Any) -> str | None:
    """Return why the context is taken to be known when predicting; None where it is not."""
    if asked is False or held_out.contexts.overlap:
        return None
    if isinstance(asked, str):
        return asked
    known = why_known(held_out.contexts.labels, held_out.contexts.counts, str(name or ""), tuple(map(str, columns)))
    return known or ("as said, the context is known when predicting" if asked else None)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Posed:
    """What is compared, before it is known how rows are held out.

    Attributes
    ----------
    field : Field
        The rows, and the methods.
    model : str
        What is fitted, in words.
    why_known : str or None
        Why the context is taken to be known when predicting.
    """

    field: Field
    model: str
    why_known: str | None

    @property
    def held_out(self) -> HeldOut:
        """All rows."""
        return self.field.held_out

    @property
    def last(self) -> Any:
        """The estimator that decides."""
        return self.field.last

    def judged(self, splits: Sequence[Split], validation: str, progress: Callable[[float], None] | None) -> Comparison:
        """Fit every method as the splits say, and compare them on the rows that are held out."""
        found = self.field.tried(
            splits, self.why_known is not None, _part(progress, 0.0, 0.9), of_the_past=validation != SHUFFLED
        )
        rows = np.unique(np.concatenate([held for _, held in splits]))
        judged, plausible = self._rows_judged(rows)
        y = self.field.y[rows]
        outcomes = {name: outcome.rows(rows) for name, outcome in found.methods.items()}
        feature = None if found.as_feature is None else found.as_feature.rows(rows)
        minimises = isinstance(self.last, RobustLinearModel)
        # For a learner that memorises, its own rows say nothing; and what came later is not to be compared with models
        # that were fitted to it.
        brackets = minimises and validation == SHUFFLED
        fitted = self.field.fitted()[rows] if brackets else np.full(len(rows), np.nan)
        # The Poisson loss of a perfect prediction differs from row to row by far more than models do.
        linear = minimises and self.field.judge.loss is None
        lowest = self.last.lowest_losses(y) if linear else np.zeros(len(y))
        own, learnt = found.own.rows(rows), self._learnt(splits)[rows]
        comparison = self._tabulated(
            judged, y, outcomes, own, feature, fitted, plausible, lowest, learnt, validation, rows
        )
        if progress is not None:
            progress(1.0)
        return comparison

    def _learnt(self, splits: Sequence[Split]) -> NDArray[np.bool_]:
        """Tell which rows are judged by models that were fitted to rows of the same context."""
        codes = self.held_out.contexts.codes
        learnt = np.ones(len(codes), dtype=bool)
        for seen, held in splits:
            learnt[held] &= np.isin(codes[held], codes[seen])
        return learnt

    def _rows_judged(self, rows: NDArray[np.intp]) -> tuple[HeldOut, ContextSet]:
        """Return the rows that are judged with their contexts, and the plausible mixes, in which these come first."""
        held_out, given = self.held_out, self.last.get_params(deep=False)
        contexts = held_out.contexts
        switches = {name: given[name] for name in ("confidence", "radius", "draws", "mix") if name in given}
        there = np.zeros(len(contexts.labels), dtype=bool)
        there[contexts.codes[rows]] = True
        order = np.concatenate([np.flatnonzero(there), np.flatnonzero(~there)])
        if not there.all() and isinstance(switches.get("mix"), ContextSet):
            raise InvalidInputError(
                f"no row of context {shown(contexts.labels[order[-1]]):.60} is held out, and mix is a set without "
                "labels, so the plausible mixes of the others are unknown. Pass a Mix, or hold out all contexts."
            )
        place = np.argsort(order)
        sorted_ones = replace(contexts, labels=contexts.labels[order], codes=place[contexts.codes])
        plausible = Robustness(**switches).mixes_of(sorted_ones, held_out.totals[order])
        own = sorted_ones.where(rows)
        n_judged = int(there.sum())
        judged = replace(
            held_out,
            contexts=replace(own, labels=own.labels[:n_judged]),
            groups=None if held_out.groups is None else held_out.groups[rows],
            weight=held_out.weight[rows],
            mix=plausible,
            n_unseen=plausible.p_hat.size - n_judged,
        )
        return judged, plausible

    def _tabulated(
        self,
        held_out: HeldOut,
        y: NDArray[Any],
        outcomes: dict[str, Outcome],
        own: Outcome,
        as_feature: Outcome | None,
        fitted: Array,
        plausible: ContextSet,
        lowest: Array,
        learnt: NDArray[np.bool_],
        validation: str,
        rows: NDArray[np.intp],
    ) -> Comparison:
        """Turn losses and predictions of rows into tables and words.

        ``own`` and ``fitted`` are of each context's own model, on rows held out and on those it was fitted to;
        ``lowest`` are losses of a perfect prediction; ``learnt`` are rows whose excess risk is judged.
        """
        labels, by_excess = held_out.contexts.labels, self.last.get_params()["criterion"] == "excess"
        compared, candidates = _compared(held_out, outcomes, own.losses)
        unlimited = replace(compared, held_out=replace(held_out, mix=None, n_unseen=0))
        risk = {name: unlimited.bounds(name, [NOTHING], [""]) for name in outcomes}
        # Of a context that no model was fitted to rows of, the plain one would be its own competitor: an excess of 0.
        judged, among = compared.among(learnt)
        at = np.flatnonzero(learnt) if learnt.any() else among
        small = negligible(held_out.where(at), (outcomes["erm"].losses - lowest)[at])
        against = [_OWN, *candidates] if by_excess else [NOTHING]
        choice = choice_of(judged.held_out, dict(zip(candidates, judged.excess(candidates, against), strict=True)))
        headroom = Headroom(judged.bounds("erm", [_OWN], ["own"]), small)
        excess = {name: judged.bounds(name, _AGAINST, COMPETITORS) for name in outcomes}
        unchanged = ExcessDifference(*NO_CHANGE, *NO_CHANGE, held_out.confidence, ())
        change = {name: unchanged if name == "erm" else judged.difference(name, "erm", _AGAINST) for name in outcomes}
        summary = summary_of(compared, list(outcomes), excess, risk, change)
        cells = [cells_of(name, excess[name].by_context, risk[name].by_context) for name in outcomes]
        tolerated = float(np.nanmax([excess["erm"].estimate, small]))
        brackets = brackets_of(judged.held_out, judged.losses[_OWN], judged.losses["erm"], fitted[among], tolerated)
        measures = measures_of(task_of(self.last), outcomes["erm"].predicted)
        # From here on targets are in the unit in which they are read.
        y = np.exp(y) if self.field.judge.log_target else y
        changes = changes_of(held_out, y, outcomes, measures[0])
        best = best_baseline(summary)
        other = judged.difference("robust", best, _AGAINST) if best else None
        leading = headline(excess["erm"].by_context, changes, measures[0], validation, best)
        words = verdict(summary, brackets, best, other, small, held_out.confidence)
        known = None
        if self.why_known is not None and as_feature is not None:
            known_by = {"erm": outcomes["erm"], PER_CONTEXT: own.filled(outcomes["erm"]), AS_FEATURE: as_feature}
            known = changes_of(held_out, y, known_by, measures[0])
            words.append(known_in_words(self.why_known, known, measures[0]))
        n_rows = len(self.field.y)
        if len(rows) < n_rows and validation == SHUFFLED:
            words.append(f"Of {n_rows:,} rows {len(rows):,} are judged: the splitter tests no others.")
        if len(among) < len(rows):
            words.append(
                f"Excess risk is that of {np.count_nonzero(learnt):,} of {len(rows):,} rows: models had no rows yet of "
                "the contexts of the others."
            )
        return Comparison(
            summary=summary,
            by_context=Table(
                {name: np.concatenate([one[name] for one in cells]) for name in cells[0]}, excess["erm"].by_context.note
            ),
            brackets=brackets,
            references=dict(zip(labels.tolist(), brackets["held_out"].tolist(), strict=True)),
            confidence=held_out.confidence,
            mixes=plausible,
            choice=choice,
            headroom=headroom,
            measures=measures_by_method(held_out, y, outcomes, measures),
            measure=measures[0],
            changes=changes,
            headline=leading,
            outcomes=outcomes,
            y=y,
            held_out=held_out,
            rows=rows,
            validation=validation,
            known_contexts=known,
            criterion=self.last.get_params()["criterion"],
            model=self.model,
            remarks=" ".join(words),
        )


def _compared(held_out: HeldOut, outcomes: Mapping[str, Outcome], own: Array) -> tuple[Compared, list[str]]:
    """Compare what methods lose with what contexts' own models do, and name those of which one is kept."""
    candidates = [name for name in CANDIDATES if name in outcomes]
    pairs = [(name, other) for name in outcomes for other in (NOTHING, *_AGAINST)]
    pairs += [(name, other) for name in candidates for other in candidates]
    losses = {name: outcome.losses for name, outcome in outcomes.items()} | {_OWN: own}
    return Compared.of(held_out, losses, pairs), candidates


def _combined(shuffled: Comparison, forward: Comparison, drift: Drift | None) -> Comparison:
    """Return the comparison on shuffled rows with that on later rows, which decides, beside it."""
    agreed = agreement(
        shuffled.summary,
        forward.summary,
        forward.validation,
        shuffled.level,
        forward.headroom.negligible,
        unjudged=bool(not_judged(forward.brackets)),
    )
    return replace(shuffled, forward=forward, agreement=agreed, drift=drift, headline=forward.headline)


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
