"""What a context is compared with: every kind of reference on four public tables, judged on rows held out.

Usage: python benchmarks/references.py FOLDER [--splits 10] | --toy

FOLDER holds ``adult.data``, ``adult.test``, ``compas.csv`` and ``german.data``, compressed or not, and
``heart_disease_4hospitals.csv``, in it or below; a table that is not there is left out. Logistic regression with
alpha = 1e-3 on scaled features, fitted to 70% of the rows of each context. The excess of a context is what the risk of
a model is above that of the better of two others on the remaining rows: the context's own model, and the plain one.

Prints a table in markdown: mean and standard error over splits of the largest excess of any context, as it is and
corrected for being a maximum of noisy numbers, of the difference from the plain model, and the median time of a fit.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from published_tables import TABLES, Table
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import counterpoise as cpo
from counterpoise.exceptions import CounterpoiseWarning

Array = NDArray[np.float64]

ALPHA = 1e-3
SETS: dict[str, dict[str, Any]] = {"confidence=1": {"confidence": 1.0}, "default": {}}
REFERENCES = ("in-sample", "cross-fit", "shrunk", "null", "pooled", "auto")
PLAIN = ("plain", "")


def heart(folder: Path) -> Table:
    """Disease present or not, by hospital; what was not measured is the median, with an indicator."""
    path = next(iter(sorted(folder.rglob("heart_disease_4hospitals.csv"))), None)
    if path is None:
        raise FileNotFoundError(f"no heart_disease_4hospitals.csv in {folder} or below it")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    # ca, thal and slope are missing for most patients outside Cleveland; a cholesterol or pressure of 0 is missing too.
    names = ["age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak"]
    values = np.array([[float(row[name] or "nan") for name in names] for row in rows])
    for name in ("trestbps", "chol"):
        column = values[:, names.index(name)]
        column[column == 0.0] = np.nan
    missing = np.isnan(values)
    filled = np.where(missing, np.nanmedian(values, axis=0), values)
    pain = np.array([[float(row["cp"] == f"{kind}.0") for kind in (1, 2, 3)] for row in rows])
    X = np.hstack([filled, pain, missing[:, missing.any(axis=0)]])
    y = np.array([row["num"] not in ("0", "0.0") for row in rows]).astype(np.intp)
    return Table("heart", X, y, np.array([row["hospital"] for row in rows]), tuple(names))


def tables(folder: Path) -> Iterator[Table]:
    """Yield the tables that the folder, or one below it, holds."""
    published = next(iter(sorted(folder.rglob("german.data*"))), folder / "german.data").parent
    finders = [partial(TABLES[name], published) for name in ("adult", "compas", "german")]
    for find in [*finders, partial(heart, folder)]:
        try:
            yield find()
        except FileNotFoundError as error:
            print(f"left out: {error}")


def toy() -> Iterator[Table]:
    """Yield two small tables: contexts that do not differ, and one of them that does."""
    for name, turn in (("alike", 0.0), ("one differs", 2.0)):
        rng = np.random.default_rng(0)
        group = np.repeat(np.arange(4), [400, 200, 60, 40])
        X = rng.normal(size=(len(group), 6))
        coef = np.tile([1.0, -1.0, 0.5, 0.0, 0.0, 0.0], (4, 1))
        coef[1, 0] -= turn
        y = (rng.random(len(group)) < 1.0 / (1.0 + np.exp(-np.sum(X * coef[group], axis=1)))).astype(np.intp)
        yield Table(name, X, y, np.array(["a", "b", "c", "d"])[group], tuple("uvwxyz"))


@dataclass
class Column:
    """What one method reached, split by split."""

    worst: list[float] = field(default_factory=list)
    corrected: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    used: list[str] = field(default_factory=list)


def split(groups: NDArray[Any], seed: int, share: float = 0.7) -> NDArray[np.bool_]:
    """Return which rows are fitted to: a share of every context, drawn."""
    rng, train = np.random.default_rng(seed), np.zeros(len(groups), dtype=bool)
    for label in np.unique(groups):
        rows = rng.permutation(np.flatnonzero(groups == label))
        train[rows[: round(share * len(rows))]] = True
    return train


def own_losses(X: Array, y: Array, groups: NDArray[Any], train: NDArray[np.bool_]) -> Array:
    """Return the loss of each held-out row under the model of its context; infinite where it has one class."""
    losses = np.full(len(y), np.inf)
    for label in np.unique(groups):
        fit, held = train & (groups == label), ~train & (groups == label)
        if len(np.unique(y[fit])) < 2:
            continue
        own = LogisticRegression(C=1.0 / (ALPHA * fit.sum()), max_iter=5000).fit(X[fit], y[fit])
        z = own.decision_function(X[held])
        losses[held] = np.logaddexp(0.0, z) - y[held] * z
    return losses[~train]


def study(table: Table, n_splits: int) -> dict[tuple[str, str], Column]:
    """Fit every method to every split."""
    methods: dict[tuple[str, str], dict[str, Any]] = {PLAIN: {"radius": 0.0}}
    for name, size in SETS.items():
        methods |= {(name, reference): {**size, "reference": reference} for reference in REFERENCES}
    found = {name: Column() for name in methods}
    for seed in range(n_splits):
        train = split(table.groups, seed)
        X = StandardScaler().fit(table.X[train]).transform(table.X)
        own = own_losses(X, table.y, table.groups, train)
        held, group = table.y[~train], table.groups[~train]
        competitors = {"own": own}
        for name, options in methods.items():
            model = cpo.RobustLogisticRegression(alpha=ALPHA, **options)
            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CounterpoiseWarning)
                model.fit(X[train], table.y[train], contexts=table.groups[train])
            seconds = time.perf_counter() - began
            losses = model.row_losses(X[~train], held)
            # The plain model comes first, and is a competitor of all.
            competitors.setdefault("plain", losses)
            bounds = cpo.metrics.excess_bounds(losses, competitors, group)
            column = found[name]
            column.worst.append(float(np.max(bounds.by_context["excess"])))
            column.corrected.append(bounds.estimate)
            column.seconds.append(seconds)
            column.used.append(model.reference_)
    return found


def lines(name: str, found: dict[tuple[str, str], Column]) -> Iterator[list[str]]:
    """Yield a row of the table for every method."""
    plain = np.array(found[PLAIN].worst)
    for (size, reference), column in found.items():
        used = sum(one == "cross-fit" for one in column.used)
        note = f" (cross-fit in {used} of {len(column.used)})" if reference == "auto" else ""
        difference = "" if (size, reference) == PLAIN else _with_error(np.array(column.worst) - plain, "+")
        cells = [name, size, reference + note, _with_error(column.worst), _with_error(column.corrected), difference]
        yield [*cells, f"{np.median(column.seconds):.3g}"]


def _with_error(values: Any, sign: str = "") -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):{sign}.4f} ± {error:.4f}"


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--toy", action="store_true", help="two splits of made-up tables, to see that it runs")
    asked = parser.parse_args()
    if asked.folder is None and not asked.toy:
        parser.error("pass the folder that holds the tables, or --toy")
    head = ["table", "set", "reference", "worst excess", "corrected", "less the plain model's", "seconds"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for table in toy() if asked.toy else tables(asked.folder):
        for cells in lines(table.name, study(table, 2 if asked.toy else asked.splits)):
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
