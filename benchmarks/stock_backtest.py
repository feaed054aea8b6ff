"""How much to stock next month, decided on the past and paid for in the future: robust ordering beside its baselines.

Usage: python benchmarks/stock_backtest.py [--quick] FOLDER [bakery|bike ...]

FOLDER holds ``bakery_demand`` and ``bike_sharing_hourly``, each with a csv file of that name. A level is set on the
days of a window before a cut, kept for the 28 days after it, and paid for with the demand of those days; then the cut
moves on by 28 days, thirteen times, which is a year (``--quick``: the last three). A unit sells at 1.
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

import counterpoise as cpo

PRICE = 1.0
PERIOD = pd.Timedelta(days=28)
RESAMPLES = 2000

METHODS: dict[str, dict[str, Any]] = {
    "robust": {"radius": "types"},
    "robust, agrawal": {"radius": "agrawal"},
    "erm": {"radius": 0.0, "score": "risk"},
    "inverse-frequency": {"radius": 0.0, "score": "risk"},
    "minimax-risk": {"radius": math.inf, "score": "risk"},
    "minimax-regret": {"radius": math.inf},
}
OURS, PLAIN, INFORMED = "robust", "erm", "context known"


@dataclass(frozen=True)
class Study:
    """A table of demand, and the orders that are placed on it.

    Attributes
    ----------
    rows : DataFrame
        ``day``, ``demand``, ``context`` and ``surcharge`` (on the unit cost); ``problem``, the rows that share one
        level; and ``owner``, who looks at all contexts and minds the worst.
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

    def level(self, train: pd.DataFrame, method: str) -> cpo.RobustNewsvendor:
        """Order for one problem by one method."""
        switches, weight = METHODS[method], None
        if isinstance(switches["radius"], str):
            # Rows of a day are one look at the mix, be they the hours of a day's weather or the stores of a chain.
            switches = switches | {"draws": train["day"].nunique()}
        if method == "inverse-frequency":
            weight = 1.0 / train.groupby("context")["context"].transform("size")
        model = cpo.RobustNewsvendor(PRICE, salvage=self.salvage, confidence=0.99, **switches)
        return model.fit(train["cost"], train["demand"], contexts=train["context"], sample_weight=weight)

    def profit(self, rows: pd.DataFrame, level: Any) -> NDArray[np.float64]:
        """Return what a level, or one for each row, earns on each row."""
        sold = np.minimum(level, rows["demand"])
        return np.asarray(PRICE * sold + self.salvage * (level - sold) - rows["cost"] * level)


@dataclass(frozen=True)
class Outcome:
    """Realised profits in sums over the rows of (period, owner, context)."""

    profits: dict[str, NDArray[np.float64]]
    hindsight: NDArray[np.float64]
    units: NDArray[np.float64]
    contexts: NDArray[Any]

    def statistics(self, method: str, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return mean profit, and profit and excess cost in the worst context, for periods weighted in each way."""
        earned, best, units = (
            np.tensordot(weights, sums, axes=1) for sums in (self.profits[method], self.hindsight, self.units)
        )
        mean = earned.sum(axis=(1, 2)) / units.sum(axis=(1, 2))
        with np.errstate(invalid="ignore"):
            worst = np.nanmin(earned / units, axis=2).mean(axis=1)
            excess = np.nanmax((best - earned) / units, axis=2).mean(axis=1)
        return np.stack([mean, worst, excess])

    def worst_context(self, method: str) -> str:
        """Name the context with the largest excess cost, over all owners."""
        lost, units = ((self.hindsight - self.profits[method]).sum(axis=(0, 1)), self.units.sum(axis=(0, 1)))
        return str(self.contexts[np.argmax(lost / units)])


def backtest(study: Study, cost: float, n_cuts: int) -> Outcome:
    """Order and sell, period after period."""
    rows = study.rows.assign(cost=cost + study.rows["surcharge"])
    end = rows["day"].max() + pd.Timedelta(days=1)
    tested = []
    for period in range(n_cuts):
        cut = end - (n_cuts - period) * PERIOD
        past = rows[rows["day"].between(cut - pd.Timedelta(days=study.window), cut, inclusive="left")]
        future = rows[rows["day"].between(cut, cut + PERIOD, inclusive="left")]
        served = dict(iter(future.groupby("problem")))
        for problem, train in past.groupby("problem"):
            if problem not in served:
                continue
            test = served[problem]
            models = {method: study.level(train, method) for method in METHODS}
            earned = {method: study.profit(test, model.stock_level_) for method, model in models.items()}
            own = dict(zip(models[PLAIN].contexts_, models[PLAIN].context_levels_, strict=True))
            known = test["context"].map(own).fillna(models[PLAIN].stock_level_)
            tested.append(test.assign(period=period, **earned, **{INFORMED: study.profit(test, known)}))
    return _summed(study, pd.concat(tested))


def _summed(study: Study, tested: pd.DataFrame) -> Outcome:
    """Add up the rows, beside those of the best fixed level that each context could have had in the period."""
    tested["units"] = 1.0 / study.rows_per_unit
    tested["hindsight"] = 0.0
    for _, rows in tested.groupby(["period", "problem"]):
        best = study.level(rows, PLAIN)
        level = rows["context"].map(dict(zip(best.contexts_, best.context_levels_, strict=True)))
        tested.loc[rows.index, "hindsight"] = study.profit(rows, level)
    keys = ["period", "owner", "context"]
    columns = [*METHODS, INFORMED, "hindsight", "units"]
    sums = tested.groupby(keys)[columns].sum()
    sums = sums.reindex(pd.MultiIndex.from_product(sums.index.levels, names=keys), fill_value=0.0)
    cubes = {name: sums[name].to_numpy().reshape(sums.index.levshape) for name in columns}
    hindsight, units = cubes.pop("hindsight"), cubes.pop("units")
    return Outcome(cubes, hindsight, units, sums.index.levels[2].to_numpy())


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
    chain = rows.assign(problem=product, owner="chain", context=store)
    alone = rows.assign(problem=store, owner=store)
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
            "owner": "system",
        }
    )
    return {"bike, by weather": Study(rows, (0.2, 0.4, 0.6), unit="hour", rows_per_unit=1, window=84, salvage=0.0)}


TABLES: dict[str, Callable[[Path], dict[str, Study]]] = {"bakery": bakery, "bike": bike}


def report(outcome: Outcome, unit: str) -> list[str]:
    """Return a table of all methods, with their difference to plain averaging, and who did better than robust."""
    n_periods = len(outcome.units)
    rng = np.random.default_rng(0)
    # The first row is what happened; the others are years made of the same periods.
    weights = np.vstack([np.ones(n_periods), rng.multinomial(n_periods, np.full(n_periods, 1 / n_periods), RESAMPLES)])
    values = {method: outcome.statistics(method, weights) for method in [*METHODS, INFORMED]}
    lines = [
        f"| method | profit per {unit} | against erm | in the worst context | against erm "
        "| worst excess | in | against erm |",
        "|---|---|---|---|---|---|---|---|",
    ]
    better: list[list[str]] = [[], [], []]
    for method, value in values.items():
        low, high = np.quantile((value - values[PLAIN])[:, 1:], [0.025, 0.975], axis=1)
        change = value[:, 0] - values[PLAIN][:, 0]
        cells = [f"{value[i, 0]:.2f} | {change[i]:+.2f} [{low[i]:+.2f}, {high[i]:+.2f}]" for i in range(3)]
        figure, _, rest = cells[2].partition(" | ")
        lines.append(f"| {method} | {cells[0]} | {cells[1]} | {figure} | {outcome.worst_context(method)} | {rest} |")
        gain = (value - values[OURS])[:, 1:] * np.array([[1.0], [1.0], [-1.0]])
        for names, ahead in zip(better, np.quantile(gain, 0.025, axis=1) > 0.0, strict=True):
            names += [method] if ahead else []
    for what, names in zip(["mean profit", "profit in the worst context", "worst excess"], better, strict=True):
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
