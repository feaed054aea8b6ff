"""What a comparison means, in words that claim no more than its intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import shown
from counterpoise.inference.excess import ExcessDifference
from counterpoise.inference.headroom import to_gain
from counterpoise.inference.intervals import Interval, interval_in
from counterpoise.judging.measures import ALL, Measure
from counterpoise.table import Table, written

Array = NDArray[np.float64]

SHUFFLED = "held-out rows"
"""What the rows are called that a cross-validation judges."""

_NAMED = 3

_FEW = 20
"""Rows, or groups, below which a context is not named for its excess unless all are as small."""


def where(validation: str) -> str:
    """Return where something was found: on held-out rows, in later months."""
    return f"{'on' if validation.endswith('rows') else 'in'} {validation}"


def change_in_words(low: float, high: float, small: float = 0.0) -> str:
    """Return the verb for a difference: a change is claimed only where its interval excludes zero.

    Parameters
    ----------
    small : float
        A change that does not matter. None is larger where both ends are within it.
    """
    if high < 0 or low > 0:
        return "lowers" if high < 0 else "raises"
    return "makes no practical difference to" if 0.0 < small >= max(abs(low), abs(high)) else "does not clearly change"


def best_baseline(summary: Table) -> str | None:
    """Return the method, robust and plain apart, with the lowest estimate in the worst plausible mix."""
    others = {row["method"]: row["mix_excess"] for row in summary.rows() if row["method"] not in ("robust", "erm")}
    return None if not others or np.isnan(list(others.values())).any() else min(others, key=others.__getitem__)


def worst_served(by_context: Table) -> tuple[Any, bool]:
    """Return the context with the largest excess, and whether small ones were passed over, whose excess is chance.

    Parameters
    ----------
    by_context : Table
        Of the plain model; see :class:`counterpoise.metrics.ExcessBounds`.
    """
    excess = np.where(np.isfinite(by_context["low"]), by_context["excess"], np.nan)
    large = np.where(by_context["units"] >= _FEW, excess, np.nan)
    if np.isnan(large).all():
        large = excess if np.isfinite(excess).any() else by_context["excess"]
    if np.isnan(large).all():
        return by_context["context"][0], False
    return by_context["context"][np.nanargmax(large)], bool(np.nanmax(large) < np.nanmax(by_context["excess"]))


def headline(by_context: Table, changes: Table, measure: Measure, validation: str, best: str | None) -> str:
    """Say what the context that the plain model serves worst gains, and what all rows pay, in natural units.

    Parameters
    ----------
    by_context : Table
        The excess of the plain model in each context.
    changes : Table
        Of a comparison.
    measure : Measure
        The one that leads.
    validation : str
        What the rows are called that were held out.
    best : str, optional
        The best baseline, of which the same is said.
    """
    named, passed_over = worst_served(by_context)
    own = next(row for row in by_context.rows() if row["context"] == named)
    of_large = f", of contexts with {_FEW} rows or more" if passed_over else ""
    every, *each = changes.where(method="robust").rows()
    ours = {row["context"]: row for row in each}
    there = ours[named]
    words = []
    # Without an excess, no context is known to lose anything.
    loses = bool(own["excess"] > 0.0) and not np.isnan(there["before"])
    if loses:
        words.append(
            f"{shown(named):.60} ({_rows(there['n'])}) loses most by sharing one model{of_large}: {measure.name} "
            f"{measure.text(there['before'])} with the plain model, {measure.text(there['after'])} with the robust one "
            f"({_changed(there, measure)})"
        )
    extreme = _extreme(ours, measure)
    if extreme is not None and not (loses and extreme == named):
        row = ours[extreme]
        words.append(
            f"{measure.name} is {'lowest' if measure.higher_is_better else 'highest'} in {shown(extreme):.60} "
            f"({_rows(row['n'])}): {measure.text(row['before'])} and {measure.text(row['after'])}"
        )
    words.append(
        f"over all {_rows(every['n'])} it goes from {measure.text(every['before'])} to {measure.text(every['after'])} "
        f"({_changed(every, measure)})"
    )
    if not loses:
        words[0] = (
            f"with the plain and the robust model {words[0]}" if len(words) > 1 else f"{measure.name}: {words[0]}"
        )
    place = where(validation)
    sentence = f"{place[:1].upper()}{place[1:]} {'; '.join(words)}."
    if best is None:
        return sentence
    over_all, *each = changes.where(method=best).rows()
    other = next(row for row in each if row["context"] == named)
    same = [f"{measure.text(over_all['after'])} over all rows ({_changed(over_all, measure)})"]
    if loses and not np.isnan(other["after"]):
        same.insert(0, f"{measure.text(other['after'])} in {shown(named):.60} ({_changed(other, measure)})")
    return f"{sentence} The best baseline, {best}, has {' and '.join(same)}."


def _extreme(rows: Mapping[Any, dict[str, Any]], measure: Measure) -> Any:
    """Return the context in which the plain model's measure is worst, of those with enough rows where there are any."""
    known = {label: row for label, row in rows.items() if not np.isnan(row["before"])}
    large = {label: row for label, row in known.items() if row["n"] >= _FEW} or known
    if not large:
        return None
    best_first = sorted(large, key=lambda label: large[label]["before"], reverse=bool(measure.higher_is_better))
    return best_first[-1]


def _changed(row: dict[str, Any], measure: Measure) -> str:
    points = " points" if measure.unit == "%" else ""
    return f"{measure.change_text(interval_in(row, 'change'), row['before'])}{points}: {row['size']}"


def _rows(n: int) -> str:
    return f"{n:,} {'row' if n == 1 else 'rows'}"


def known_in_words(why: str, changes: Table, measure: Measure) -> str:
    """Say what can be had where the context is known when predicting."""
    every = [row for row in changes.rows() if row["context"] == ALL]
    offers = [f"a {row['method']}" if k == 0 else f"the {row['method']}" for k, row in enumerate(every)]
    found = [
        f"{offer} has {measure.name} {measure.text(row['after'])} ({_changed(row, measure)})"
        for offer, row in zip(offers, every, strict=True)
    ]
    return (
        f"{why[:1].upper()}{why[1:]}. There, over all rows and beside {measure.text(every[0]['before'])} of the plain "
        f"model, {' and '.join(found)}."
    )


def verdict(
    summary: Table,
    brackets: Table,
    best: str | None,
    difference: ExcessDifference | None,
    small: float,
    confidence: float,
) -> list[str]:
    """Say which method does best in the worst plausible mix, what that costs, and whether there is anything to gain.

    Parameters
    ----------
    summary, brackets : Table
        Of a comparison.
    best : str, optional
        The best baseline.
    difference : ExcessDifference, optional
        Robust against that baseline.
    small : float
        An excess that does not matter.
    """
    rows = {row["method"]: row for row in summary.rows()}
    robust, erm = rows["robust"], rows["erm"]
    unjudged = not_judged(brackets)
    if np.isnan(robust["mix_excess"]):
        return [
            *([unjudged] if unjudged else []),
            "Robust does not clearly change anything that can be judged: every context is a single row or a single "
            "group, or one that models had no rows of.",
            f"On average its risk is {written(robust['nominal_risk'])} against {written(erm['nominal_risk'])}.",
        ]
    verb = change_in_words(robust["mix_excess_change_low"], robust["mix_excess_change_high"], small)
    mixed, worst, mean = (
        [written(row[name]) for row in (robust, erm)] for name in ("mix_excess", "worst_excess", "nominal_risk")
    )
    counts = {row["context"]: row["n"] for row in brackets.rows()}
    places = [f"{shown(row['worst_context'])}, {_rows(counts[row['worst_context']])}" for row in (robust, erm)]
    mix_change, worst_change, mean_change = (
        _between(interval_in(robust, f"{name}_change")) for name in ("mix_excess", "worst_excess", "nominal_risk")
    )
    lacking = np.isnan(brackets["held_out"]) | brackets["too_small"]
    words = [
        *([unjudged] if unjudged else []),
        f"Robust {verb} the excess risk in the worst plausible mix: {mixed[0]} against {mixed[1]} for the plain "
        f"model{mix_change}.",
        f"In the worst single context it is {worst[0]} ({places[0]}) against {worst[1]} ({places[1]}){worst_change}.",
        f"On average its risk is {mean[0]} against {mean[1]}{mean_change}.",
        to_gain(erm["p_value"], erm["worst_excess_high"], small, confidence, len(lacking), int((~lacking).sum())),
    ]
    if best is not None and difference is not None:
        words.append(_beside(best, rows[best]["mix_excess"], robust["mix_excess"], difference))
    lowest = min(rows, key=lambda name: (np.nan_to_num(rows[name]["mix_excess"], nan=np.inf), name != "robust"))
    words.append(f"Lowest estimate in the worst mix: {lowest} ({written(rows[lowest]['mix_excess'])}).")
    small_ones = [row for row in brackets.rows() if row["too_small"]]
    if small_ones:
        words.append(f"Too small to judge: {_listed(small_ones)}.")
    return words


def not_judged(brackets: Table) -> str:
    """Name the contexts that models had no rows of, where the plain one would be its own competitor; "" without any."""
    rows = [row for row in brackets.rows() if np.isnan(row["held_out"])]
    of = "it" if len(rows) == 1 else "them"
    return f"Not judged, since models had no rows of {of}: {_listed(rows)}." if rows else ""


def _beside(best: str, value: float, of_robust: float, difference: ExcessDifference) -> str:
    """Say how the best baseline compares; the difference is that of robust to it.

    One is called better where the interval of the difference and the two estimates agree that it is.
    """
    _, low, high = difference.mix
    against = f"{written(value)}{_between(difference.mix)}"
    words = "does better than robust" if low > 0 and value < of_robust else ""
    words = "does worse than robust" if high < 0 and value > of_robust else words
    if not words:
        return f"The best baseline, {best}, cannot be told apart from robust in the worst mix ({against})."
    return f"The best baseline, {best}, {words} in the worst mix ({against})."


def _between(interval: Interval) -> str:
    """Return where a difference lies, as a clause; nothing where that is not known.

    Its estimate is left out: worst cases are corrected for being the largest of noisy numbers, and the difference of
    two corrected numbers is not the corrected difference.
    """
    low, high = (written(one, "+") for one in (interval.lower, interval.upper))
    return "" if np.isnan(interval.lower) else f"; the difference lies between {low} and {high}"


def _listed(rows: list[dict[str, Any]]) -> str:
    named = [f"{shown(row['context']):.40} ({_rows(row['n'])})" for row in rows[:_NAMED]]
    left = len(rows) - _NAMED
    more = f" and {left} more {'context' if left == 1 else 'contexts'}" if left > 0 else ""
    return f"{', '.join(named)}{more}"
