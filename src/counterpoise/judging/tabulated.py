"""The tables of a comparison, from the losses and predictions of rows held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts, objects
from counterpoise.estimators.learners import Split
from counterpoise.inference.compared import Compared
from counterpoise.inference.excess import ExcessBounds, ExcessDifference, HeldOut
from counterpoise.inference.intervals import ENDS, Interval
from counterpoise.judging.measures import ALL, Judged, Measure, measured
from counterpoise.judging.trials import Outcome
from counterpoise.table import Table

Array = NDArray[np.float64]


def summary_of(
    compared: Compared,
    methods: Sequence[str],
    excess: Mapping[str, ExcessBounds],
    risk: Mapping[str, ExcessBounds],
    change: Mapping[str, ExcessDifference],
) -> Table:
    """Return a row per method; see :class:`counterpoise.judging.comparison.Comparison`."""
    intervals = {
        "mix_excess": [one.mix for one in excess.values()],
        "mix_excess_change": [one.mix for one in change.values()],
        "worst_excess": [one.worst for one in excess.values()],
        "worst_excess_change": [one.worst for one in change.values()],
        "nominal_risk": [compared.mean(name) for name in methods],
        "nominal_risk_change": [compared.mean(name, "erm") for name in methods],
        "worst_risk": [one.worst for one in risk.values()],
    }
    columns = {
        f"{name}{end}": column
        for name, found in intervals.items()
        for end, column in zip(ENDS, np.array(found).T, strict=True)
    }
    return Table(
        {
            "method": np.array(methods),
            **columns,
            "p_value": np.array([one.p_value for one in excess.values()]),
            "worst_context": compared.held_out.contexts.labels[[_largest(one.by_context) for one in excess.values()]],
        }
    )


def _largest(by_context: Table) -> int:
    """Return the context with the largest excess, of those that can be judged where there are any."""
    judged = np.isfinite(by_context["low"])
    excess = np.nan_to_num(by_context["excess"], nan=-np.inf)
    return int(np.argmax(np.where(judged, excess, -np.inf) if judged.any() else excess))


def cells_of(method: str, excess: Table, risk: Table) -> dict[str, NDArray[Any]]:
    """Return a row per context of one method; its excess may be of fewer rows than its risk."""
    bounds = dict(zip(ENDS, ("excess", "low", "high"), strict=True))
    return {
        "method": np.repeat(method, excess.n_rows),
        **{name: risk[name] for name in ("context", "n", "units")},
        **{f"risk{end}": risk[name] for end, name in bounds.items()},
        **{f"excess{end}": excess[name] for end, name in bounds.items()},
        "competitor": excess["competitor"],
    }


def brackets_of(held_out: HeldOut, own: Array, erm: Array, fitted: Array, tolerated: float) -> Table:
    """Return what is known of the least possible risk of each context, from both sides.

    A context is too small to judge where the two sides, with their noise, are further apart than is tolerated: the
    largest excess of the plain model, or what is negligible.
    """
    with np.errstate(invalid="ignore"):
        pairs = held_out.pairs_between([own, erm, fitted], [(0, None), (1, None), (2, None), (0, 2), (1, 2)])
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


def measures_by_method(
    held_out: HeldOut, y: NDArray[Any], outcomes: Mapping[str, Outcome], measures: tuple[Measure, ...]
) -> Table:
    """Return every measure of every method, over all rows and in each context."""
    contexts = held_out.contexts
    tables = [
        _once(
            measured(Judged.of(y, one.predicted), contexts.codes, contexts.labels, held_out.weight, measures), contexts
        )
        for one in outcomes.values()
    ]
    methods = np.repeat(list(outcomes), tables[0].n_rows)
    return Table({"method": methods, **{name: np.concatenate([one[name] for one in tables]) for name in tables[0]}})


def _once(table: Table, contexts: Contexts) -> Table:
    """Return measures in which all rows are counted once, however many contexts they are in."""
    if contexts.rows is not None:
        table["n"][0] = len(np.unique(contexts.rows))
    return table


SIZES = ("better", "worse", "slightly better", "slightly worse", "no practical difference", "cannot be told apart")
"""What a change can be: beyond chance or not, and large enough to matter or not."""


def size_of(change: Interval, practical: float, higher_is_better: bool) -> str:
    """Say what a change is: claimed only where its interval excludes zero, and weighed by what matters in practice."""
    value, low, high = change if higher_is_better else (-change.estimate, -change.upper, -change.lower)
    if np.isnan(low) or np.isnan(high):
        return "cannot be told apart"
    if low > 0.0 or high < 0.0:
        slightly = "slightly " if abs(value) < practical else ""
        return f"{slightly}{'better' if low > 0.0 else 'worse'}"
    return "no practical difference" if max(-low, high) <= practical else "cannot be told apart"


def changes_of(held_out: HeldOut, y: NDArray[Any], outcomes: Mapping[str, Outcome], measure: Measure) -> Table:
    """Return what every method changes against the plain one, in the leading measure, over all rows and by context.

    Returns
    -------
    Table
        A row per method and context, and one for "all": ``n`` rows, ``before`` with the plain model, ``after``, and
        their ``change`` with an interval; those of the contexts of a method hold together, so that whichever is named
        is covered. ``size`` is one of :data:`SIZES`.
    """
    assert measure.per_row is not None
    rows = {name: Judged.of(y, one.predicted) for name, one in outcomes.items()}
    contexts, weight = held_out.contexts, held_out.weight
    before = _once(measured(rows["erm"], contexts.codes, contexts.labels, weight, (measure,)), contexts)
    return changes_between(held_out, {name: measure.per_row(one) for name, one in rows.items()}, before, measure)


def changes_between(held_out: HeldOut, losses: Mapping[str, Array], before: Table, measure: Measure) -> Table:
    """Return the same from the losses of rows, or from their means over units of sampling.

    Parameters
    ----------
    held_out : HeldOut
        The rows, or units.
    losses : mapping from method to ndarray of shape (n_rows,)
    before : Table
        The measure of the plain model over all rows and in each context, and how many ``n`` rows these are.
    """
    value, n_rows, contexts = before[measure.name], before["n"], held_out.contexts
    single = HeldOut(contexts, held_out.groups, held_out.weight, confidence=held_out.confidence)
    others = [name for name in losses if name != "erm"]
    compared = Compared.of(single, losses, [(name, "erm") for name in others])
    rows: list[dict[str, Any]] = []
    for name in others:
        together = single.means_of(compared.pairs((name, "erm")))
        found = [
            compared.mean(name, "erm"),
            *(Interval(row["mean"], row["low"], row["high"]) for row in together.rows()),
        ]
        for k, one in enumerate(found):
            change = Interval(*sorted_ends(measure, value[k], one))
            rows.append(
                {
                    "method": name,
                    "context": ALL if k == 0 else contexts.labels[k - 1],
                    "n": int(n_rows[k]),
                    "before": value[k],
                    "after": value[k] + change.estimate,
                    **dict(zip(("change", "change_low", "change_high"), change, strict=True)),
                    "size": size_of(change, measure.practical(value[k]), bool(measure.higher_is_better)),
                }
            )
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0] if name != "context"}
    return Table({"method": columns.pop("method"), "context": objects([row["context"] for row in rows]), **columns})


def sorted_ends(measure: Measure, before: float, mean_change: Interval) -> tuple[float, float, float]:
    """Return the change of a measure, lower end first, from the change of the mean of its losses."""
    # Zero without a sign.
    value, *ends = (measure.change(before, one) + 0.0 for one in mean_change)
    return value, min(ends), max(ends)


def blocks_of(
    held_out: HeldOut,
    y: NDArray[Any],
    outcomes: Mapping[str, Outcome],
    measure: Measure,
    windows: Sequence[Split],
    rows: NDArray[np.intp],
    moments: NDArray[Any],
) -> Table:
    """Return the leading measure of every method in each block of later rows.

    Parameters
    ----------
    windows : sequence of pairs of index arrays
        The past and the later rows of every cut.
    rows : ndarray of int
        Which rows ``y`` and the outcomes are of.
    moments : ndarray
        When all rows were.
    """
    place = np.empty(len(moments), dtype=np.intp)
    place[rows] = np.arange(len(rows))
    judged = {name: Judged.of(y, one.predicted) for name, one in outcomes.items()}
    found = [place[later] for _, later in windows]
    return Table(
        {
            "first": np.array([moments[later].min() for _, later in windows]),
            "last": np.array([moments[later].max() for _, later in windows]),
            "rows_before": np.array([len(seen) for seen, _ in windows]),
            "rows": np.array([len(later) for _, later in windows]),
            **{
                name: np.array([measure.of(one.rows(at), held_out.weight[at]) for at in found])
                for name, one in judged.items()
            },
        }
    )
