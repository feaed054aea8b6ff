"""Later rows with what models predict of them, and how they are judged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts, objects, plain, shown
from counterpoise.exceptions import InvalidInputError
from counterpoise.inference.excess import HeldOut
from counterpoise.inference.intervals import Interval
from counterpoise.judging.at_fit import AtFit, fit_losses
from counterpoise.judging.decomposition import Drift, Means, decomposed
from counterpoise.judging.evaluated import Evaluation, model_in_words
from counterpoise.judging.measures import ALL, Judged, Measure, Predicted, Task, measured, measures_of, totals_of
from counterpoise.judging.mix_now import UNSEEN, MixNow
from counterpoise.judging.tabulated import changes_between
from counterpoise.judging.units import Units
from counterpoise.table import Table

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

_PICTURED = 100_000
"""Rows that pictures are made from."""

_SEED = 0


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows with a target, and what models predict of them.

    Attributes
    ----------
    predicted : mapping from method to Predicted
        The classes of all are the same.
    target : ndarray of shape (n_rows,)
        Classes as codes, -1 for those that the model does not know.
    contexts : Contexts or None
    groups : ndarray of int of shape (n_rows,) or None
    weight : ndarray of shape (n_rows,)
    n_without_target : int
        Rows that are left out.
    """

    predicted: Mapping[str, Predicted]
    target: NDArray[Any]
    contexts: Contexts | None
    groups: Indices | None
    weight: Array
    n_without_target: int = 0

    def judged(self, method: str) -> Judged:
        """Return targets beside the predictions of a method."""
        return Judged(self.target, self.predicted[method])


def evaluation_of(
    rows: Rows,
    method: str,
    task: Task,
    fit: AtFit | None,
    losses: Mapping[str, Array | None],
    confidence: float = 0.95,
    notes: Sequence[str] = (),
    delta: float = 1.35,
) -> Evaluation:
    """Judge predictions.

    Parameters
    ----------
    method : str
        The model that is asked about.
    fit : AtFit or None
        What it knows of its fit.
    losses : mapping from method to ndarray of shape (n_rows,), or None
        Of the kind that risks of the fit are the means of, for methods whose risks are known; None where they follow
        from predictions.
    delta : float
        For these, where the task is huber.
    """
    labels, codes, seen, others = _coded(rows, fit)
    contexts = Contexts(labels, codes)
    held_out = HeldOut(contexts, rows.groups, rows.weight, confidence=confidence)
    units = Units.of(held_out)
    own = rows.predicted[method]
    measures = measures_of(task, own)
    judged = {name: rows.judged(name) for name in rows.predicted}
    several = rows.contexts is not None
    tables = {
        name: _trimmed(_measured(one, codes, labels, rows.weight, measures), several) for name, one in judged.items()
    }
    lead = measures[0]
    assert lead.per_row is not None
    lost = {name: units.of_rows(one, lead.per_row) for name, one in judged.items()}
    changes = None
    if "erm" in lost and len(lost) > 1:
        before = measured(judged["erm"], codes, labels, rows.weight, (lead,))
        changes = _trimmed(changes_between(units.held_out, lost, before, lead), several)
    mix = risks = drift = None
    mix_excess = math.nan
    if fit is not None and several:
        totals = totals_of(codes, len(labels), rows.weight) * (len(codes) / rows.weight.sum())
        counts = np.zeros(len(fit.labels))
        counts[seen] = totals[: len(seen)]
        mix = MixNow.of(fit, counts, others, confidence)
        found = {}
        for name in losses:
            values = losses[name]
            if name in fit.risks:
                found[name] = (
                    units.of_rows(judged[name], lambda some: fit_losses(task, some, delta))
                    if values is None
                    else _unit_means(units, values)
                )
        risks, mix_excess, drift = _since(fit, units, seen, totals, found, method)
    return Evaluation(
        method,
        task,
        len(codes),
        _stacked(tables),
        _leading(units, lost, tables, lead, several),
        changes,
        _unseen(rows, fit, judged[method], lead, others),
        mix,
        risks,
        mix_excess,
        drift,
        _trimmed(_calibration(units, judged[method], task, tables[method]["n"] if several else None), several),
        (*notes, *_notes(rows, own)),
        confidence,
        _pictured(judged[method], held_out),
    )


def _coded(rows: Rows, fit: AtFit | None) -> tuple[NDArray[Any], Indices, Indices, dict[Any, float]]:
    """Return labels and codes of contexts, which of the fit's they are, and the weight of those it did not have.

    Those of the fit come first, in its order; all others are one, the last.
    """
    given = rows.contexts
    if given is None:
        return objects([ALL]), np.zeros(len(rows.target), dtype=np.intp), np.empty(0, dtype=np.intp), {}
    present = np.flatnonzero(totals_of(given.codes, len(given.labels)))
    if fit is None:
        place = np.zeros(len(given.labels), dtype=np.intp)
        place[present] = np.arange(len(present))
        return objects(given.labels[present].tolist()), place[given.codes], np.empty(0, dtype=np.intp), {}
    known = {label: k for k, label in enumerate(fit.labels.tolist())}
    at = np.array([known.get(plain(label), -1) for label in given.labels], dtype=np.intp)
    seen = np.unique(at[present][at[present] >= 0])
    strange = present[at[present] < 0]
    place = np.full(len(given.labels), len(seen), dtype=given.codes.dtype)
    place[at >= 0] = np.searchsorted(seen, at[at >= 0])
    totals = totals_of(given.codes, len(given.labels), rows.weight) * (len(given.codes) / rows.weight.sum())
    labels = [*fit.labels[seen].tolist(), *([UNSEEN] if len(strange) else [])]
    return objects(labels), place[given.codes], seen, {plain(given.labels[k]): float(totals[k]) for k in strange}


def _measured(
    judged: Judged, codes: Indices, labels: NDArray[Any], weight: Array, measures: Sequence[Measure]
) -> Table:
    """Return every measure; those of probabilities are missing where a model has none."""
    own = measures[:1] if judged.predicted.certain else measures
    found = measured(judged, codes, labels, weight, own)
    return Table({**found, **{one.name: np.full(found.n_rows, np.nan) for one in measures[len(own) :]}})


def _trimmed(table: Table, several: bool) -> Table:
    """Return a table without the only context, where there are none."""
    if several:
        return table
    keep = np.zeros(table.n_rows, dtype=bool)
    # The row over all contexts comes first, that of the only context second.
    keep[::2] = True
    return Table({name: column[keep] for name, column in table.items()}, table.note)


def _stacked(tables: Mapping[str, Table]) -> Table:
    """Return the tables of methods as one."""
    first = next(iter(tables.values()))
    methods = np.repeat(list(tables), first.n_rows)
    columns = {name: np.concatenate([one[name] for one in tables.values()]) for name in first}
    return Table({"method": methods, **columns})


def _unit_means(units: Units, values: Array) -> Array:
    as_losses = Judged(np.zeros(len(values)), Predicted(values, are_losses=True))
    return units.of_rows(as_losses, lambda some: some.predicted.values)


def _means(units: Units, values: Array) -> list[Interval]:
    """Return the mean over all rows and in each context, the latter with ends that hold together."""
    single = units.held_out
    by_context = single.means(values).rows()
    return [
        single.mean(values, may_be_errors=True),
        *(Interval(row["mean"], row["low"], row["high"]) for row in by_context),
    ]


def _leading(
    units: Units, lost: Mapping[str, Array], tables: Mapping[str, Table], measure: Measure, several: bool
) -> Table:
    """Return the leading measure of every method with intervals."""
    found = {}
    for name, losses in lost.items():
        ends = []
        for one in _means(units, losses):
            low, high = sorted(_bounded(measure, measure.from_mean(end)) for end in one[1:])
            ends.append((measure.from_mean(one.estimate), low, high))
        value, low, high = np.array(ends).T
        own = tables[name]
        columns = {"value": value, "low": low, "high": high}
        if not several:
            columns = {key: column[:1] for key, column in columns.items()}
        found[name] = Table({"context": own["context"], "n": own["n"], **columns})
    return _stacked(found)


def _bounded(measure: Measure, value: float) -> float:
    """Return the end of an interval, within what the measure can be."""
    if measure.unit == "%":
        return min(max(value, 0.0), 1.0) if not math.isnan(value) else value
    return max(value, 0.0) if not math.isnan(value) else value


def _unseen(rows: Rows, fit: AtFit | None, judged: Judged, measure: Measure, others: Mapping[Any, float]) -> Table:
    """Return a row per context that the fit did not have."""
    if rows.contexts is None or fit is None or not others:
        empty = np.empty(0)
        return Table({"context": objects([]), "n": empty.astype(np.intp), "share": empty, measure.name: empty})
    given = rows.contexts
    mine = np.array([plain(label) in others for label in given.labels])
    at = np.flatnonzero(mine[given.codes])
    labels = np.flatnonzero(mine & (np.bincount(given.codes[at], minlength=len(given.labels)) > 0))
    place = np.zeros(len(given.labels), dtype=np.intp)
    place[labels] = np.arange(len(labels))
    codes, names, weight = place[given.codes[at]], objects(given.labels[labels].tolist()), rows.weight[at]
    found = measured(judged.rows(at), codes, names, weight, (measure,))
    total = np.bincount(codes, weight, len(labels))
    return Table(
        {
            "context": found["context"][1:],
            "n": found["n"][1:],
            "share": total / rows.weight.sum(),
            measure.name: found[measure.name][1:],
        }
    )


def _calibration(units: Units, judged: Judged, task: Task, n: NDArray[Any] | None) -> Table:
    """Return what was predicted and observed on average, over all rows and in each context."""
    quantile = judged.predicted.quantile
    two = judged.predicted.classes is not None and len(judged.predicted.classes) == 2

    def predicted(rows: Judged) -> Array:
        values = rows.predicted.values
        if task == "quantile":
            return np.full(len(values), quantile)
        if rows.predicted.classes is None:
            return values
        return values[:, 1] if two else values.max(axis=1)

    def observed(rows: Judged) -> Array:
        if task == "quantile":
            return (rows.residual <= 0.0).astype(np.float64)
        if rows.predicted.classes is None:
            return rows.target
        return (rows.target == 1).astype(np.float64) if two else 1.0 - rows.wrong

    expected, came = (units.of_rows(judged, one) for one in (predicted, observed))
    gaps = _means(units, came - expected)
    pairs = units.held_out.pairs(np.column_stack([expected, came])).mean
    totals = units.held_out.totals
    every = totals @ pairs / totals.sum()
    counts = n if n is not None else np.array([len(judged.target)] * 2)
    return Table(
        {
            "context": objects([ALL, *units.held_out.contexts.labels.tolist()]),
            "n": counts,
            "predicted": np.append(every[0], pairs[:, 0]),
            "observed": np.append(every[1], pairs[:, 1]),
            **dict(zip(("gap", "low", "high"), np.array(gaps).T, strict=True)),
        }
    )


def _since(
    fit: AtFit, units: Units, seen: Indices, totals: Array, losses: Mapping[str, Array], method: str
) -> tuple[Table | None, float, Drift | None]:
    """Return risks then and now, the excess in the worst plausible mix, and the parts of the change of risk.

    Parameters
    ----------
    seen : ndarray of int
        Which contexts of the fit have rows; one that is new may follow.
    totals : ndarray of shape (n_contexts,)
        The weight of these contexts.
    """
    if not losses:
        return None, math.nan, None
    size = len(fit.labels) + 1
    at = np.append(seen, [len(fit.labels)])[: len(totals)]
    share = np.zeros(size)
    share[at] = totals / totals.sum()
    rows, risks, mix_excess, new_share = [], None, math.nan, 0.0
    for name, own in losses.items():
        pairs = units.held_out.pairs(own[:, None])
        risk, error = np.full(size, np.nan), np.zeros(size)
        risk[at], error[at] = pairs.mean[:, 0], pairs.error[:, 0]
        then = np.append(fit.risks[name], 0.0)
        # How far off risks of the fit are was not kept: as spread out as now, and of as many rows as there were.
        n_now = np.maximum(np.append(totals, 0.0), 1e-300)[: len(totals)]
        past = np.zeros(size)
        past[seen] = error[seen] * np.sqrt(n_now[: len(seen)] / np.maximum(fit.counts[seen], 1.0))
        before = Means(np.append(fit.shares, 0.0), then, past)
        parts, new_share = decomposed(before, Means(share, np.where(np.isnan(risk), 0.0, risk), error))
        rows.append({"method": name, **parts})
        if name == method:
            risks, mix_excess = _risks(fit, risk[:-1], error[:-1], then[:-1])
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    past_rows = "rows held out of the fit" if fit.held_out else "the rows that it was fitted to, in sample,"
    if method not in losses:
        return None, math.nan, None
    words = {"later": "these rows", "past": past_rows, "method": method, "model": model_in_words(method)}
    return risks, mix_excess, Drift(Table(columns), new_share, **words)


def _risks(fit: AtFit, now: Array, error: Array, then: Array) -> tuple[Table, float]:
    """Return the risks of contexts then and now, and the excess in the worst plausible mix."""
    least = np.full(len(now), np.nan) if fit.references is None else fit.references
    table = Table(
        {
            "context": fit.labels,
            "then": then,
            "now": now,
            "error": np.where(np.isnan(now), np.nan, error),
            "least": least,
            "excess": now - least,
        }
    )
    # A context without rows is taken to be as it was.
    excess = np.where(np.isnan(now), then, now) - least
    worst = math.nan
    if fit.mixes is not None and np.isfinite(excess).all() and not fit.others:
        worst = float(fit.mixes.worst_case(excess).value)
    return table, worst


def _notes(rows: Rows, predicted: Predicted) -> list[str]:
    """Say what was left out, and what counts as wrong."""
    notes = []
    if rows.n_without_target:
        whole = rows.n_without_target + len(rows.target)
        notes.append(f"{rows.n_without_target:,} of {whole:,} rows have no target and are left out")
    if predicted.classes is not None:
        strange = int(np.count_nonzero(rows.target < 0))
        if strange == len(rows.target):
            known = ", ".join(f"{shown(plain(one)):.30}" for one in predicted.classes[:5])
            raise InvalidInputError(
                f"no target is a class that the model knows ({known}). Pass targets as they were in the fit."
            )
        if strange:
            notes.append(
                f"{strange:,} of {len(rows.target):,} rows have a class that the model does not know; they count as "
                "wrong"
            )
    return notes


def _pictured(judged: Judged, held_out: HeldOut) -> tuple[Judged, HeldOut]:
    """Return rows for pictures."""
    n = len(judged.target)
    if n <= _PICTURED:
        return judged, held_out
    at = np.sort(np.random.default_rng(_SEED).choice(n, _PICTURED, replace=False))
    contexts = held_out.contexts
    present, codes = np.unique(contexts.codes[at], return_inverse=True)
    groups = None if held_out.groups is None else held_out.groups[at].astype(np.intp, copy=False)
    own = Contexts(contexts.labels[present], codes)
    return judged.rows(at), HeldOut(own, groups, held_out.weight[at], confidence=held_out.confidence)
