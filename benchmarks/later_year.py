"""Fit on one year, judge on the next: sets sized by rows or by days, bounds from the year before, and plain fitting.

Usage: python benchmarks/later_year.py FOLDER [table ...]
       python benchmarks/later_year.py --toy

FOLDER holds ``bike_sharing_hourly`` and ``bakery_demand``, each with a csv file of that name. Nothing is shuffled:
models, preprocessing and bounds come from the first year alone (but for the census, which is given the later mix).
Bounds are the lowest and highest share that a context had in any month, or quarter, of the first year.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from real_tables import prepared

import counterpoise as cpo
from counterpoise.inference.excess import HeldOut

Array = NDArray[np.float64]

PLAIN, CENSUS = "plain", "census (oracle)"

TOGETHER = "W"
"""Rows of a week count as one in intervals: days of one week resemble each other, in what is lost as in weather."""


@dataclass(frozen=True)
class Years:
    """A table whose rows have a day.

    Attributes
    ----------
    rows : DataFrame
        ``day``, ``context`` and ``target``, and the features.
    numbers, categories : list of str
        Features.
    first : int
        The year to fit on; the one after it is judged.
    """

    rows: pd.DataFrame
    numbers: list[str]
    categories: list[str]
    first: int

    def of(self, year: int) -> pd.DataFrame:
        """Return the rows of a year."""
        return self.rows[self.rows["day"].dt.year == year].reset_index(drop=True)

    @cached_property
    def past(self) -> pd.DataFrame:
        return self.of(self.first)

    @cached_property
    def later(self) -> pd.DataFrame:
        return self.of(self.first + 1)

    @cached_property
    def features(self) -> tuple[Array, Array]:
        """The features of both years, prepared as the first one has it."""
        prepare = prepared(self.numbers, self.categories, None)[:-1].fit(self.past)
        return prepare.transform(self.past), prepare.transform(self.later)


def shares(rows: pd.DataFrame, period: str, labels: Any) -> pd.DataFrame:
    """Return the share of each context in each month ("M") or quarter ("Q"), among the contexts named."""
    known = rows[rows["context"].isin(labels)]
    return pd.crosstab(known["day"].dt.to_period(period), known["context"], normalize="index").reindex(
        columns=labels, fill_value=0.0
    )


def bounds(past: pd.DataFrame, period: str) -> dict[Any, tuple[float, float]]:
    """Return the lowest and highest share of each context in any month or quarter of a year."""
    seen = shares(past, period, np.unique(past["context"]))
    return dict(zip(seen.columns, zip(seen.min(), seen.max(), strict=True), strict=True))


def methods(years: Years) -> dict[str, dict[str, Any]]:
    """Return the parameters of every method."""
    past, later = years.past, years.later
    known = later["context"][later["context"].isin(past["context"])]
    within = partial(bounds, past)
    return {
        PLAIN: {"radius": 0.0},
        "set, rows as draws": {},
        "set, days as draws": {"draws": past["day"].nunique()},
        "set, by groups": {"draws": "groups"},
        "set, by groups, agrawal": {"draws": "groups", "radius": "agrawal"},
        "bounds of months": {"mix": cpo.Mix(bounds=within("M"), ball=None)},
        "bounds of quarters": {"mix": cpo.Mix(bounds=within("Q"), ball=None)},
        "set, by groups, and bounds of quarters": {"draws": "groups", "mix": cpo.Mix(bounds=within("Q"))},
        CENSUS: {"mix": cpo.Mix(counts=known.value_counts().to_dict())},
        "minimax regret": {"radius": math.inf},
    }


@dataclass(frozen=True)
class Fitted:
    """A model of the first year.

    Attributes
    ----------
    means : ndarray of shape (n_later,)
        What it expects of each row of the later year.
    mixes : ContextSet
    labels : ndarray of shape (n_contexts,)
    radius : float
    worst : label
        The context that it serves worst in the first year.
    """

    means: Array
    mixes: Any
    labels: NDArray[Any]
    radius: float
    worst: Any

    def rarest(self, counts: pd.Series) -> tuple[Any, float, float]:
        """Return the context that is rarest in the first year, and the least and the most of it in the set."""
        label = counts.idxmin()
        return label, *self.mixes.interval(int(np.flatnonzero(self.labels == label)[0]))


def fitted(years: Years, params: dict[str, Any]) -> Fitted:
    """Fit a model on the first year."""
    past, (X, X_later) = years.past, years.features
    contexts, days = past["context"].to_numpy(), past["day"].to_numpy()
    model = cpo.RobustPoissonRegressor(**params)
    model.fit(X, past["target"], contexts=contexts, groups=days if params.get("draws") == "groups" else None)
    mixes = model.sized(X, contexts, days).mixes(model.context_counts_.astype(float), model.contexts_)
    worst = model.contexts_[model.excess_risks_.argmax()]
    return Fitted(model.predict(X_later), mixes, model.contexts_, float(model.radius_), worst)


def own_means(years: Years) -> Array:
    """Return what models of single contexts, of the first year, expect of the later rows; NaN where there is none."""
    X, X_later = years.features
    means = np.full(len(X_later), np.nan)
    for label in np.unique(years.past["context"]):
        here, there = (np.flatnonzero(rows["context"] == label) for rows in (years.past, years.later))
        if len(there):
            model = cpo.RobustPoissonRegressor(radius=0.0)
            one = np.zeros(len(here), dtype=int)
            means[there] = model.fit(X[here], years.past["target"].iloc[here], contexts=one).predict(X_later[there])
    return means


@dataclass(frozen=True)
class Judged:
    """Losses on the later year, in nats.

    Attributes
    ----------
    losses : mapping from method to ndarray of shape (n_later,)
    own : ndarray of shape (n_later,)
        Of the context's own model; NaN in contexts that the first year lacks.
    contexts, weeks : ndarray of shape (n_later,)
    months : DataFrame of shape (n_months, n_contexts)
        The mixes of single months, of the contexts that the first year has.
    """

    losses: dict[str, Array]
    own: Array
    contexts: NDArray[Any]
    weeks: NDArray[Any]
    months: pd.DataFrame

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """Rows of contexts that the first year has."""
        return np.isfinite(self.own)

    def premium(self, method: str, context: Any = None) -> Any:
        """Return the mean loss above that of the plain model, over the later year as it came or over one context."""
        here = np.ones(len(self.weeks), dtype=bool) if context is None else self.contexts == context
        rows = HeldOut.of(here.sum(), np.zeros(here.sum(), dtype=int), self.weeks[here])
        return rows.mean((self.losses[method] - self.losses[PLAIN])[here])

    def excess(self, method: str) -> tuple[Any, Any, Any]:
        """Return the worst excess of any context, where it is, and the change of the worst against plain."""
        here = self.known
        others = np.column_stack([self.own, self.losses[PLAIN]])[here]
        asked = {"contexts": self.contexts[here], "groups": self.weeks[here]}
        worst = cpo.metrics.excess_bounds(self.losses[method][here], others, **asked)
        change = cpo.metrics.excess_difference(self.losses[method][here], self.losses[PLAIN][here], others, **asked)
        return worst, worst.by_context["context"][int(np.nanargmax(worst.by_context["excess"]))], change

    def month(self, method: str) -> tuple[Any, Any]:
        """Return the worst excess in the mix of any month, and its change against plain.

        Only the mix is that of a month; what a context loses is its mean over the year, so that a hard month does not
        pass for an unusual mix.
        """
        row, month, weight = self._mixed
        asked = {"contexts": month, "groups": self.weeks[row], "sample_weight": weight}
        ours, plain = self.losses[method][row], self.losses[PLAIN][row]
        worst = cpo.metrics.excess_bounds(ours, self.least[row], **asked)
        return worst, cpo.metrics.excess_difference(ours, plain, self.least[row], **asked)

    @cached_property
    def least(self) -> Array:
        """Losses of the better competitor of each context."""
        plain = self.losses[PLAIN]
        means = pd.DataFrame({"own": self.own, "plain": plain}).groupby(self.contexts).mean()
        better = means["own"] < means["plain"]
        return np.where(better.reindex(self.contexts).to_numpy(), self.own, plain)

    @cached_property
    def _mixed(self) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
        """Every known row once for each month, with weights that make the mix of the month."""
        rows = np.flatnonzero(self.known)
        counts = pd.Series(self.contexts[rows]).value_counts()
        weights = (self.months / counts.reindex(self.months.columns)).to_numpy()
        column = self.months.columns.get_indexer(self.contexts[rows])
        n_months = len(self.months)
        return np.tile(rows, n_months), np.repeat(np.arange(n_months), len(rows)), weights[:, column].ravel()


def judged(years: Years, models: dict[str, Fitted], level: float) -> Judged:
    """Return the losses of models whose expectations are all multiplied by a level."""
    target = years.later["target"].to_numpy(float)

    def losses(means: Array) -> Array:
        return level * means - target * np.log(level * means)

    return Judged(
        {name: losses(model.means) for name, model in models.items()},
        losses(own_means(years)),
        years.later["context"].to_numpy(),
        years.later["day"].dt.to_period(TOGETHER).astype(str).to_numpy(),
        shares(years.later, "M", models[PLAIN].labels),
    )


def report(years: Years) -> Iterator[str]:
    """Return the lines of the tables of one study."""
    models = {name: fitted(years, params) for name, params in methods(years).items()}
    counts = years.past["context"].value_counts()
    labels = models[PLAIN].labels
    lost = sorted(set(years.later["context"]) - set(labels))
    later = years.later["context"].value_counts().reindex(labels, fill_value=0).to_numpy(float)
    months = shares(years.later, "M", labels).to_numpy()
    rarest = counts.idxmin()
    yield (
        f"{len(years.past):,} rows of {years.first}, {len(years.later):,} of {years.first + 1}; {len(labels)} contexts"
        f"{', not in the first year: ' + ', '.join(map(str, lost)) if lost else ''}. Rarest: {rarest}, "
        f"{counts[rarest] / counts.sum():.4f}, later {later[labels == rarest][0] / later.sum():.4f} (months "
        f"{months[:, labels == rarest].min():.4f} to {months[:, labels == rarest].max():.4f})"
    )
    yield from (
        "",
        "| set | radius, bits | share of the rarest | later year inside | its months inside |",
        "|---|---|---|---|---|",
    )
    for name, model in models.items():
        _, low, high = model.rarest(counts)
        inside = [bool(model.mixes.contains(mix)) for mix in (later / later.sum(), *months)]
        yield (
            f"| {name} | {model.radius:.4f} | {low:.4f} to {high:.4f} | {'yes' if inside[0] else 'no'} "
            f"| {sum(inside[1:])} of {len(months)} |"
        )
    growth = years.later["target"].sum() / models[PLAIN].means.sum()
    for words, level in (("as fitted", 1.0), (f"the level known, {growth:.3f} times that of the plain model", growth)):
        yield from ("", f"Predictions {words}:", "")
        yield (
            f"| method | premium | in {models[PLAIN].worst}, against plain | worst excess | in | against plain "
            "| worst month's mix | against plain |"
        )
        yield "|---|---|---|---|---|---|---|---|"
        result = judged(years, models, level)
        for name in models:
            worst, where, change = result.excess(name)
            month, moved = result.month(name)
            yield (
                f"| {name} | {_interval(result.premium(name), '+')} "
                f"| {_interval(result.premium(name, models[PLAIN].worst), '+')} | {_interval(worst.worst)} | {where} "
                f"| {_interval(change.worst, '+')} | {_interval(month.worst)} | {_interval(moved.worst, '+')} |"
            )


def _interval(value: Any, sign: str = "") -> str:
    return f"{value.estimate:{sign}.3g} [{value.lower:{sign}.3g}, {value.upper:{sign}.3g}]"


def bike(folder: Path) -> Years:
    """Bicycles hired in an hour, by weather."""
    rows = pd.read_csv(folder / "bike_sharing_hourly" / "bike_sharing_hourly.csv")
    rows["day"] = pd.to_datetime(rows["dteday"], format="%d/%m/%Y")
    rows["context"] = rows["weather"].replace("heavy_rain_snow", "light_rain_snow")
    rows["target"] = rows["cnt"].astype(float)
    return Years(rows, ["temp", "hum", "windspeed"], ["hr", "workingday", "season"], 2011)


def bakery(folder: Path, first: int) -> Years:
    """Units sold in a day, by store; a day without any sale in a store was a closed one."""
    rows = pd.read_csv(folder / "bakery_demand" / "bakery_demand.csv", parse_dates=["date"])
    rows = rows[rows.groupby(["store", "date"])["demand"].transform("sum") > 0]
    rows = rows.rename(columns={"date": "day", "store": "context", "demand": "target"})
    numbers = ["rain", "temperature", "is_schoolholiday", "is_holiday", "is_holiday_next2days"]
    numbers += ["promotion_currentweek", "promotion_lastweek"]
    return Years(rows, numbers, ["weekday", "month", "product"], first)


def toy() -> Years:
    """Two made-up years of three rows a day, in which rain becomes more frequent."""
    rng = np.random.default_rng(0)
    days = pd.date_range("2021-01-01", "2022-12-31")
    rain = rng.uniform(size=len(days)) < np.where(days.year == 2021, 0.1, 0.2)
    rows = pd.DataFrame({"day": days.repeat(3), "context": np.where(rain, "rain", "dry").repeat(3)})
    rows["x"], rows["kind"] = rng.standard_normal(len(rows)), rng.choice(["a", "b"], len(rows))
    slope = np.where(rows["context"] == "rain", -0.4, 0.4)
    rows["target"] = rng.poisson(np.exp(1.0 + slope * rows["x"])).astype(float)
    return Years(rows, ["x"], ["kind"], 2021)


TABLES: dict[str, Callable[[Path], Years]] = {
    "bike": bike,
    "bakery-2016": partial(bakery, first=2016),
    "bakery-2017": partial(bakery, first=2017),
}


def main(arguments: list[str]) -> int:
    """Print the tables of every study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("tables", nargs="*", metavar="|".join(TABLES))
    parser.add_argument("--toy", action="store_true", help="two made-up years instead")
    options = parser.parse_args(arguments)
    studies: dict[str, Callable[[Path], Years]] = {name: TABLES[name] for name in options.tables if name in TABLES}
    if options.toy:
        studies = {"toy": lambda folder: toy()}
    elif options.folder is None or not options.folder.is_dir() or len(studies) < len(options.tables):
        parser.error(f"FOLDER must be a folder that holds the tables, and tables some of {', '.join(TABLES)}")
    for name, read in (studies or TABLES).items():
        start = time.perf_counter()
        lines = list(report(read(options.folder)))
        print(f"\n{name} ({time.perf_counter() - start:.0f} s): " + "\n".join(lines), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
