"""How much to stock next month, decided on the past and paid for in the future: robust ordering beside its baselines.

Usage: python benchmarks/stock_backtest.py [--quick] FOLDER [bakery|bike ...]

FOLDER holds ``bakery_demand`` and ``bike_sharing_hourly``, each with a csv file of that name. A level is set on the
days of a window before a cut, kept for the 28 days after it, and paid for with the demand of those days; then the cut
moves on by 28 days, thirteen times, which is a year (``--quick``: the last three). A unit sells at 1. Bounds of shares,
where a method has any, are the lowest and highest share of any 28 days in the year before the cut.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

import counterpoise as cpo

PRICE = 1.0
PERIOD = pd.Timedelta(days=28)

METHODS: dict[str, dict[str, Any]] = {
    "robust": {"radius": "types"},
    "robust, agrawal": {"radius": "agrawal"},
    "robust, by groups": {"radius": "types", "draws": "groups"},
    "robust, bounds": {},
    "erm": {"radius": 0.0, "criterion": "risk"},
    "inverse-frequency": {"radius": 0.0, "criterion": "risk"},
    "minimax-risk": {"radius": math.inf, "criterion": "risk"},
    "minimax-regret": {"radius": math.inf},
}
OURS, PLAIN, INFORMED, BOUNDED = "robust", "erm", "context known", "robust, bounds"
YEAR = 13 * PERIOD


@dataclass(frozen=True)
class Study:
    """A table of demand, and the orders that are placed on it.

    Attributes
    ----------
    rows : DataFrame
        ``day``, ``demand``, ``context`` and ``surcharge`` (on the unit cost), and ``problem``, the rows that share one
        level.
    costs : tuple of float
        Of a unit; one backtest for each.
    unit : str
        What profit is told per.
    rows_per_unit : int
    window : int
        Days to train on: long enough to see every context, short enough to keep up with trend and season.
    salvage : float
    """

    rows: pd.DataFrame
    costs: tuple[float, ...]
    unit: str
    rows_per_unit: int
    window: int
    salvage: float

    def level(self, train: pd.DataFrame, method: str, year: pd.DataFrame | None = None) -> cpo.RobustNewsvendor:
        """Order for one problem by one method; bounds are those of the year before."""
        switches, weight = METHODS[method], None
        if method == BOUNDED:
            switches = {"mix": cpo.Mix(bounds=bounds(train if year is None else year, train["context"]), ball=None)}
        elif isinstance(switches["radius"], str) and "draws" not in switches:
            # Rows of a day are one look at the mix, be they the hours of a day's weather or the stores of a chain.
            switches = switches | {"draws": train["day"].nunique()}
        if method == "inverse-frequency":
            weight = 1.0 / train.groupby("context")["context"].transform("size")
        model = cpo.RobustNewsvendor(PRICE, salvage=self.salvage, confidence=0.99, **switches)
        asked = {"groups": train["day"].to_numpy()} if switches.get("draws") == "groups" else {}
        return model.fit(train["cost"], train["demand"], contexts=train["context"], sample_weight=weight, **asked)

    def profit(self, rows: pd.DataFrame, level: Any) -> NDArray[np.float64]:
        """Return what a level, or one for each row, earns on each row."""
        sold = np.minimum(level, rows["demand"])
        return np.asarray(PRICE * sold + self.salvage * (level - sold) - rows["cost"] * level)


def bounds(year: pd.DataFrame, contexts: pd.Series) -> dict[Any, tuple[float, float]]:
    """Return the lowest and highest share of each of these contexts in any 28 days of a year."""
    known = year[year["context"].isin(contexts)]
    period = (known["day"].max() - known["day"]) // PERIOD
    shares = pd.crosstab(period, known["context"], normalize="index")
    return dict(zip(shares.columns, zip(shares.min(), shares.max(), strict=True), strict=True))


@dataclass(frozen=True)
class Outcome:
    """Realised profits of every row that was served.

    Attributes
    ----------
    profits : mapping from method to ndarray of shape (n_rows,)
    hindsight : ndarray of shape (n_rows,)
        Of the best fixed level that the context could have had in the period.
    contexts, periods : ndarray of shape (n_rows,)
        Rows of a period belong together.
    rows_per_unit : int
    """

    profits: dict[str, NDArray[np.float64]]
    hindsight: NDArray[np.float64]
    contexts: NDArray[Any]
    periods: NDArray[np.intp]
    rows_per_unit: int

    def mean(self, method: str) -> float:
        """Return the mean profit."""
        return self.rows_per_unit * float(self.profits[method].mean())

    def least(self, method: str) -> float:
        """Return the mean profit in the context where it is smallest."""
        by_context = pd.Series(self.profits[method]).groupby(self.contexts).mean()
        return self.rows_per_unit * float(by_context.min())

    def excess(self, method: str) -> Any:
        """Return bounds of the profit missed against hindsight, in the context where most is missed."""
        cost, least = (-self.rows_per_unit * rows for rows in (self.profits[method], self.hindsight))
        return cpo.metrics.excess_bounds(cost, least, self.contexts, groups=self.periods)

    def change(self, method: str, other: str) -> Any:
        """Return bounds of the difference between the worst excesses of two methods."""
        cost, others, least = (
            -self.rows_per_unit * rows for rows in (self.profits[method], self.profits[other], self.hindsight)
        )
        return cpo.metrics.excess_difference(cost, others, least, self.contexts, groups=self.periods)

    def gain(self, method: str, other: str) -> tuple[float, float, float]:
        """Return the difference of mean profits, with Student's interval over the periods."""
        rows = self.rows_per_unit * (self.profits[method] - self.profits[other])
        sums = pd.DataFrame({"total": rows, "n": 1.0}).groupby(self.periods).sum()
        mean = sums["total"].sum() / sums["n"].sum()
        n = len(sums)
        error = np.sqrt(np.square(sums["total"] - mean * sums["n"]).sum() * n / (n - 1)) / sums["n"].sum()
        half = float(stats.t.ppf(0.975, n - 1) * error)
        return float(mean), float(mean - half), float(mean + half)


def backtest(study: Study, cost: float, n_cuts: int) -> Outcome:
    """Order and sell, period after period."""
    rows = study.rows.assign(cost=cost + study.rows["surcharge"])
    end = rows["day"].max() + pd.Timedelta(days=1)
    tested = []
    for period in range(n_cuts):
        cut = end - (n_cuts - period) * PERIOD
        past = rows[rows["day"].between(cut - pd.Timedelta(days=study.window), cut, inclusive="left")]
        future = rows[rows["day"].between(cut, cut + PERIOD, inclusive="left")]
        before = rows[rows["day"].between(cut - YEAR, cut, inclusive="left")]
        served, years = (dict(iter(part.groupby("problem"))) for part in (future, before))
        for problem, train in past.groupby("problem"):
            if problem not in served:
                continue
            test = served[problem]
            models = {method: study.level(train, method, years[problem]) for method in METHODS}
            earned = {method: study.profit(test, model.stock_level_) for method, model in models.items()}
            own = dict(zip(models[PLAIN].contexts_, models[PLAIN].context_levels_, strict=True))
            known = test["context"].map(own).fillna(models[PLAIN].stock_level_)
            tested.append(test.assign(period=period, **earned, **{INFORMED: study.profit(test, known)}))
    return _paid(study, pd.concat(tested, ignore_index=True))


def _paid(study: Study, tested: pd.DataFrame) -> Outcome:
    """Set the rows beside those of the best fixed level that each context could have had in the period."""
    tested["hindsight"] = 0.0
    for _, rows in tested.groupby(["period", "problem"]):
        best = study.level(rows, PLAIN)
        level = rows["context"].map(dict(zip(best.contexts_, best.context_levels_, strict=True)))
        tested.loc[rows.index, "hindsight"] = study.profit(rows, level)
    profits = {name: tested[name].to_numpy() for name in [*METHODS, INFORMED]}
    contexts, periods = tested["context"].to_numpy(), tested["period"].to_numpy()
    return Outcome(profits, tested["hindsight"].to_numpy(), contexts, periods, study.rows_per_unit)


def bakery(folder: Path) -> dict[str, Study]:
    """Three products in 35 stores, or the main one in each; a day without any sale in a store was a closed one."""
    table = pd.read_csv(folder / "bakery_demand" / "bakery_demand.csv", parse_dates=["date"])
    table = table[table.groupby(["store", "date"])["demand"].transform("sum") > 0].reset_index(drop=True)
    rows = pd.DataFrame({"day": table["date"], "demand": table["demand"], "surcharge": 0.0})
    store, product = table["store"].astype(str), table["product"].astype(str)
    # The column of weekdays is one day behind the dates: by the dates, closed days are Sundays and holidays.
    weekday = table["date"].dt.day_name().str[:3]
    # Stores that close on Sundays open on one or two of them in a year, too few to be a context.
    opened = table["date"].groupby([store, weekday]).transform("nunique")
    regular = opened > 0.5 * opened.groupby(store).transform("max")
    main = product == "101"
    costs, common = (0.3, 0.5, 0.7), {"unit": "store-day", "window": 182, "salvage": 0.1}
    chain = rows.assign(problem=product, context=store)
    alone = rows.assign(problem=store)
    weekdays = alone.assign(context=weekday)[main & regular]
    rain = alone.assign(context=np.where(table["rain"] > 0, "rain", "dry"))[main]
    return {
        "bakery, one level for all stores": Study(chain, costs, rows_per_unit=3, **common),
        "bakery, a level per store, by weekday": Study(weekdays, costs, rows_per_unit=1, **common),
        "bakery, a level per store, by rain": Study(rain, costs[1:2], rows_per_unit=1, **common),
    }


def bike(folder: Path) -> dict[str, Study]:
    """Bicycles made ready for the hours of a part of the day, by weather; each costs .2 more in rain or snow."""
    table = pd.read_csv(folder / "bike_sharing_hourly" / "bike_sharing_hourly.csv")
    weather = table["weather"].replace("heavy_rain_snow", "light_rain_snow")
    part = pd.cut(table["hr"], [-1, 6, 9, 15, 19, 23], labels=["night", "morning", "midday", "evening", "late"])
    rows = pd.DataFrame(
        {
            "day": pd.to_datetime(table["dteday"], format="%d/%m/%Y"),
            "demand": table["cnt"].astype(float),
            "surcharge": np.where(weather == "light_rain_snow", 0.2, 0.0),
            "context": weather,
            "problem": part.astype(str) + np.where(table["workingday"] == 1, ", working day", ", day off"),
        }
    )
    return {"bike, by weather": Study(rows, (0.2, 0.4, 0.6), unit="hour", rows_per_unit=1, window=84, salvage=0.0)}


TABLES: dict[str, Callable[[Path], dict[str, Study]]] = {"bakery": bakery, "bike": bike}


def report(outcome: Outcome, unit: str) -> list[str]:
    """Return a table of all methods, with their difference to plain averaging, and who did better than robust."""
    lines = [
        f"| method | profit per {unit} | against erm | in the worst context | worst excess | in | against erm |",
        "|---|---|---|---|---|---|---|",
    ]
    ahead: dict[str, list[str]] = {"mean profit": [], "worst excess": []}
    for method in [*METHODS, INFORMED]:
        excess, change, gain = outcome.excess(method), outcome.change(method, PLAIN), outcome.gain(method, PLAIN)
        where = excess.by_context["context"][np.nanargmax(excess.by_context["excess"])]
        lines.append(
            f"| {method} | {outcome.mean(method):.2f} | {gain[0]:+.2f} [{gain[1]:+.2f}, {gain[2]:+.2f}] "
            f"| {outcome.least(method):.2f} | {excess.estimate:.2f} [{excess.lower:.2f}, {excess.upper:.2f}] | {where} "
            f"| {change.estimate:+.2f} [{change.lower:+.2f}, {change.upper:+.2f}] |"
        )
        if method != OURS:
            ahead["mean profit"] += [method] if outcome.gain(method, OURS)[1] > 0 else []
            ahead["worst excess"] += [method] if outcome.change(method, OURS).upper < 0 else []
    for what, names in ahead.items():
        lines.append(f"better than {OURS} in {what}, beyond noise: {'; '.join(names) or 'none'}")
    return lines


def main(arguments: list[str]) -> int:
    """Print a table for every study and cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tables", nargs="*", metavar="bakery|bike")
    parser.add_argument("--quick", action="store_true", help="three cuts instead of thirteen")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir() or not set(options.tables) <= set(TABLES):
        parser.error(f"FOLDER must be a folder that holds the tables, and tables some of {', '.join(TABLES)}")
    for name in options.tables or TABLES:
        for title, study in TABLES[name](options.folder).items():
            for cost in study.costs:
                start = time.perf_counter()
                lines = report(backtest(study, cost, 3 if options.quick else 13), study.unit)
                print(
                    f"\n{title}, cost {cost} ({time.perf_counter() - start:.0f} s)\n\n" + "\n".join(lines), flush=True
                )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
