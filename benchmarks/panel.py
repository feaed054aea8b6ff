"""Run the panel of real tables: learn from the past, judge on all later rows, for contexts unknown and known.

Usage: python benchmarks/panel.py [--only NAME ...] [--closed] [--out results.csv] [--jobs 2]

Without options, this runs the open half of ``panel_tables.py``. The closed half is refused without ``--closed``, since
it is to be run once. Numbers are RMSE for a regression, log loss and error rate for a classification, mean Poisson
deviance and RMSE for counts; the first of them decides. Every cell has the mean over all later rows, and the worst
context. A context is judged if the past has it too, and it has at least 10 later rows; the worst one is that of the
same contexts for every method. Rows of contexts that are new after the cut count in the mean only.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import NDArray
from panel_methods import KNOWN, UNKNOWN, Cut, Method
from panel_tables import TABLES, PanelTable, rows_of
from scipy import special

Array = NDArray[np.float64]

ENOUGH = 10
"""Later rows from which on a context is judged alone."""

MATTERS = 0.02
"""A relative change that counts, for the better or the worse."""


@dataclass(frozen=True)
class Measure:
    """What predictions are judged by.

    Attributes
    ----------
    name : str
    losses : callable
        Of a cut and predictions, a loss per later row.
    root : bool
        Whether the root of the mean loss is read.
    """

    name: str
    losses: Callable[[Cut, Array], Array]
    root: bool = False

    def of(self, losses: Array) -> float:
        """Return the measure on some rows."""
        return float(np.sqrt(losses.mean()) if self.root else losses.mean())


def squared_errors(cut: Cut, predicted: Array) -> Array:
    """Return squared errors of means."""
    return (cut.y_later - predicted) ** 2


def log_losses(cut: Cut, predicted: Array) -> Array:
    """Return log losses; no probability counts as less than half of one over the rows of the past."""
    given = predicted[np.arange(len(predicted)), np.searchsorted(cut.classes, cut.y_later)]
    return -np.log(np.maximum(given, 0.5 / len(cut.past)))


def errors(cut: Cut, predicted: Array) -> Array:
    """Return one where the likeliest class is wrong."""
    return (cut.classes[predicted.argmax(axis=1)] != cut.y_later).astype(float)


def deviances(cut: Cut, predicted: Array) -> Array:
    """Return Poisson deviances of means."""
    return 2.0 * (special.xlogy(cut.y_later, cut.y_later / predicted) - cut.y_later + predicted)


RMSE = Measure("RMSE", squared_errors, root=True)
MEASURES = {
    "regression": (RMSE,),
    "classification": (Measure("log loss", log_losses), Measure("error rate", errors)),
    "count": (Measure("Poisson deviance", deviances), RMSE),
}
"""By the task; the first decides."""


def predictions(cut: Cut, method: Method) -> tuple[Array | None, str]:
    """Return what a method predicts of later rows, if anything, and what was said on the way."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            predicted, failure = method(cut), []
        except Exception as error:
            # That a method fails on a table is a finding of the panel, and no reason to stop it.
            predicted, failure = None, [f"failed, {type(error).__name__}: {error}"]
    return predicted, "; ".join([*failure, *sorted({warning.category.__name__ for warning in caught})])


def judged(cut: Cut, measure: Measure, predicted: Array | None) -> dict[str, Any]:
    """Return the measure over all later rows, and in the worst context that is judged."""
    if predicted is None:
        return {"mean": np.nan, "worst": np.nan, "worst_context": ""}
    with np.errstate(all="ignore"):
        losses = measure.losses(cut, predicted)
    # A mean that has overflowed, or is no number, loses without bound.
    losses = np.where(np.isnan(losses), np.inf, losses)
    labels, counts = np.unique(cut.contexts_later[cut.seen], return_counts=True)
    by_context = {label: measure.of(losses[cut.contexts_later == label]) for label in labels[counts >= ENOUGH]}
    worst = max(by_context, key=by_context.__getitem__, default="")
    return {"mean": measure.of(losses), "worst": by_context.get(worst, np.nan), "worst_context": worst}


def results(table: PanelTable, place: int) -> list[dict[str, Any]]:
    """Return a row per method and measure, of a table at one of its cuts."""
    start, at = time.perf_counter(), table.cuts[place]
    cut = Cut.at(table, rows_of(table), at)
    of_cut = {"half": "closed" if table.closed else "open", "table": table.name, "task": table.task, "cut": str(at)}
    of_cut |= {"past": len(cut.past), "later": len(cut.later)}
    of_cut |= {"contexts": len(np.unique(cut.contexts)), "rows_of_new_contexts": int((~cut.seen).sum())}
    found = []
    for name, method in (UNKNOWN | KNOWN).items():
        predicted, said = predictions(cut, method)
        for measure in MEASURES[table.task]:
            own = {"method": name, "measure": measure.name, **judged(cut, measure, predicted), "said": said}
            found.append(of_cut | own)
    of_all = {"choice": vars(cut).get("kept", ""), "seconds": time.perf_counter() - start}
    return [row | of_all for row in found]


def line(rows: list[dict[str, Any]]) -> str:
    """Say what a cut was, and what methods said that has to be heeded."""
    one = rows[-1]
    said = {row["method"]: row["said"] for row in rows if row["said"]}
    return (
        f"{one['table']}, cut at {one['cut']}: {one['past']:,} rows before and {one['later']:,} later, "
        f"{one['contexts']} contexts, {one['rows_of_new_contexts']:,} later rows of new ones; "
        f"kept: {one['choice'] or 'none'}; {one['seconds']:.0f} s"
        + "".join(f"\n    {method}: {words}" for method, words in said.items())
    )


def table_of(found: pd.DataFrame, methods: Sequence[str]) -> Iterator[str]:
    """Yield a Markdown table: a row per table, cut and measure, the mean and the worst context of every method."""
    yield f"| table | cut | measure | {' | '.join(methods)} |"
    yield "|---" * (3 + len(methods)) + "|"
    for key, rows in found.groupby(["table", "cut", "measure"], sort=False):
        cells = []
        for row in rows.set_index("method").loc[list(methods)].itertuples():
            kept = f" ({row.choice})" if row.Index == "kept" and row.choice else ""
            cells.append(f"{row.mean:.4g} / {row.worst:.4g}{kept}")
        yield f"| {' | '.join([*key, *cells])} |"


def summary(found: pd.DataFrame, methods: Sequence[str]) -> Iterator[str]:
    """Yield a Markdown table: how often the mean and the worst context of a method are better or worse than plain."""
    decides = found["measure"] == found["task"].map(lambda task: MEASURES[task][0].name)
    values = found[decides].set_index(["table", "cut", "method"])[["mean", "worst"]].unstack("method")
    yield "| method | cuts | mean better | worse | median change | worst context better | worse | median change |"
    yield "|---|---|---|---|---|---|---|---|"
    for method in methods:
        cells = []
        for kind in ("mean", "worst"):
            change = (values[kind][method] / values[kind]["plain"] - 1.0).dropna()
            cells += [str((change < -MATTERS).sum()), str((change > MATTERS).sum()), f"{change.median():+.1%}"]
        yield f"| {method} | {values['mean'][method].notna().sum()} | {' | '.join(cells)} |"


def chosen(names: Sequence[str], closed: bool) -> list[PanelTable]:
    """Return the tables to be run: those named, or a whole half."""
    strange = set(names) - {table.name for table in TABLES}
    if strange:
        raise SystemExit(f"no tables of the panel: {', '.join(sorted(strange))}. See benchmarks/panel_tables.py.")
    refused = [table.name for table in TABLES if table.name in names and table.closed and not closed]
    if refused:
        raise SystemExit(f"{', '.join(refused)}: in the closed half, which is run once. Pass --closed if this is it.")
    return [table for table in TABLES if (table.name in names if names else table.closed == closed)]


def main(arguments: list[str]) -> int:
    """Run one half, or some tables, and print what came."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these tables")
    parser.add_argument("--closed", action="store_true", help="the closed half instead of the open one")
    parser.add_argument("--out", type=Path, help="a csv file for all results")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    tables = chosen(options.only, options.closed)
    cuts = [(table, place) for table in tables for place in range(len(table.cuts))]
    rows = []
    for one in Parallel(n_jobs=options.jobs, return_as="generator")(delayed(results)(*cut) for cut in cuts):
        print(line(one), flush=True)
        rows += one
    found = pd.DataFrame(rows)
    if options.out:
        found.to_csv(options.out, index=False)
    for half in ("open", "closed"):
        own = found[found["half"] == half]
        for title, methods in (("unknown", list(UNKNOWN)), ("known", ["plain", *KNOWN])) if len(own) else ():
            print(f"\nThe {half} half, contexts {title} when predicting: mean / worst context\n")
            print("\n".join(table_of(own, methods)))
    print(f"\nOf {len(cuts)} cuts, those at which a method is better or worse than plain by over {MATTERS:.0%}\n")
    print("\n".join(summary(found, [*UNKNOWN, *KNOWN])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
