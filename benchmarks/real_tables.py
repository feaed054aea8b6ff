"""Four real tables with contexts, cross-validated: robust learning beside its baselines.

Usage: python benchmarks/real_tables.py [--by-groups] FOLDER [table ...]

FOLDER holds ``heart_disease_4hospitals``, ``bike_sharing_hourly``, ``bakery_demand`` and ``wine_quality``, each with a
csv file of that name. All preprocessing is fitted inside the folds; rows that belong together stay in one fold. With
--by-groups, sets are sized by the draws that these groups are worth, instead of by their number.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import counterpoise as cpo
from counterpoise.judging.comparison import Comparison


@dataclass(frozen=True)
class Study:
    """One table, ready to be compared on."""

    X: pd.DataFrame
    y: np.ndarray
    contexts: np.ndarray
    model: Any
    groups: np.ndarray | None = None


def prepared(numbers: list[str], categories: list[str], model: Any) -> Any:
    """Return a pipeline that imputes, scales and encodes before the model."""
    return make_pipeline(
        make_column_transformer(
            (
                make_pipeline(
                    SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True), StandardScaler()
                ),
                numbers,
            ),
            (
                make_pipeline(
                    SimpleImputer(strategy="most_frequent"),
                    OneHotEncoder(drop="first", handle_unknown="ignore", sparse_output=False),
                ),
                categories,
            ),
        ),
        model,
    )


def heart(folder: Path) -> Study:
    """Disease present or not, in four hospitals; a cholesterol of 0 means that it was not measured."""
    table = pd.read_csv(folder / "heart_disease_4hospitals" / "heart_disease_4hospitals.csv")
    table["chol"] = table["chol"].replace(0.0, np.nan)
    table["trestbps"] = table["trestbps"].replace(0.0, np.nan)
    numbers = ["age", "trestbps", "chol", "thalach", "oldpeak"]
    # ca, thal and slope are missing for most patients outside Cleveland.
    categories = ["sex", "cp", "fbs", "restecg", "exang"]
    model = prepared(numbers, categories, cpo.RobustLogisticRegression(alpha=1e-2, reference="cross-fit"))
    return Study(table[numbers + categories], (table["num"] > 0).to_numpy(int), table["hospital"].to_numpy(), model)


def wine(folder: Path) -> Study:
    """The grade of a wine, for two colours; duplicates stay in one fold."""
    table = pd.read_csv(folder / "wine_quality" / "wine_quality.csv")
    numbers = [name for name in table.columns if name not in ("colour", "quality")]
    groups = table.groupby(list(table.columns), sort=False).ngroup().to_numpy()
    model = prepared(numbers, [], cpo.RobustLinearRegression(draws=groups.max() + 1))
    return Study(table[numbers], table["quality"].to_numpy(float), table["colour"].to_numpy(), model, groups)


def bike(folder: Path) -> Study:
    """Bicycles hired in an hour, by weather; the hours of a day stay in one fold."""
    table = pd.read_csv(folder / "bike_sharing_hourly" / "bike_sharing_hourly.csv")
    weather = table["weather"].replace("heavy_rain_snow", "light_rain_snow").to_numpy()
    numbers, categories = ["temp", "hum", "windspeed", "yr"], ["hr", "workingday", "season"]
    days = table["dteday"].to_numpy()
    model = prepared(numbers, categories, cpo.RobustPoissonRegressor(draws=len(np.unique(days))))
    return Study(table[numbers + categories], table["cnt"].to_numpy(float), weather, model, days)


def bakery(folder: Path) -> Study:
    """Units sold in a day, by store; the sales of a day stay in one fold."""
    table = pd.read_csv(folder / "bakery_demand" / "bakery_demand.csv")
    numbers = ["rain", "temperature", "is_schoolholiday", "is_holiday", "is_holiday_next2days"]
    numbers += ["promotion_currentweek", "promotion_lastweek"]
    categories = ["weekday", "month", "product"]
    days = table["date"].to_numpy()
    model = prepared(numbers, categories, cpo.RobustPoissonRegressor(draws=len(np.unique(days))))
    return Study(table[numbers + categories], table["demand"].to_numpy(float), table["store"].to_numpy(), model, days)


STUDIES: dict[str, Callable[[Path], Study]] = {"heart": heart, "wine": wine, "bike": bike, "bakery": bakery}


def by_groups(study: Study) -> Study:
    """Return the same study with a set that is sized by the draws that groups are worth, if there are any."""
    if study.groups is None:
        return study
    model = clone(study.model)
    (model[-1] if isinstance(model, Pipeline) else model).set_params(draws="groups")
    return replace(study, model=model)


def run(study: Study) -> Comparison:
    """Compare all methods on a table."""
    return cpo.compare(study.X, study.y, study.contexts, estimator=study.model, groups=study.groups)


def main(arguments: list[str]) -> int:
    """Print a table for every study, and a summary that goes into the documentation."""
    sized = by_groups if "--by-groups" in arguments else lambda study: study
    arguments = [argument for argument in arguments if argument != "--by-groups"]
    if not arguments or not Path(arguments[0]).is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    lines = [
        "| table | method | worst plausible mix | against erm | worst context | in | against erm | mean risk "
        "| against erm |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    claims = {"lowers": 0, "raises": 0}
    for name in arguments[1:] or STUDIES:
        study = sized(STUDIES[name](Path(arguments[0])))
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cpo.exceptions.CoverageWarning)
            result = run(study)
        rows = {row["method"]: row for row in result.summary.rows()}
        claims["lowers"] += rows["robust"]["mix_excess_change_high"] < 0
        claims["raises"] += rows["robust"]["mix_excess_change_low"] > 0
        print(f"\n{name} ({len(study.y):,} rows, {time.perf_counter() - start:.1f} s): {result.verdict}", flush=True)
        for row in rows.values():
            cells = [
                _interval(row, "mix_excess"),
                _interval(row, "mix_excess_change", "+"),
                _interval(row, "worst_excess"),
                row["worst_context"],
                _interval(row, "worst_excess_change", "+"),
                f"{row['nominal_risk']:.4g}",
                _interval(row, "nominal_risk_change", "+"),
            ]
            lines.append(f"| {name} | {row['method']} | {' | '.join(map(str, cells))} |")
    print("\n" + "\n".join(lines))
    print(
        f"\nrobust lowers the excess in the worst plausible mix on {claims['lowers']} tables, raises {claims['raises']}"
    )
    return 0


def _interval(row: dict[str, Any], name: str, sign: str = "") -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return f"{value:{sign}.3g} [{low:{sign}.3g}, {high:{sign}.3g}]"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
