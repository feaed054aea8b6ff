"""Four public tables with groups on which robust methods have been judged: Adult, COMPAS, German credit, Communities.

Groups and classes are those of Gardner, Popovic and Schmidt, *Subgroup Robustness Grows On Trees* (NeurIPS 2022), with
two differences. The columns that define a group are no features here: the group is not known when predicting. COMPAS
asks for recidivism within two years, for which everybody was observed equally long. Files may be compressed by gzip;
``adult.data``, ``adult.test``, ``communities.data`` and ``compas.csv`` begin with the names of their columns.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import OneHotEncoder

Array = NDArray[np.float64]
Column = NDArray[Any]

UNKNOWN = "?"


@dataclass(frozen=True, eq=False)
class Table:
    """Rows with two classes, each of one group.

    Attributes
    ----------
    name : str
    X : ndarray of shape (n, n_features)
        Numbers as they are, categories as indicators.
    y : ndarray of shape (n,)
        0 or 1.
    groups : ndarray of shape (n,)
        Labels, such as "white, female".
    features : tuple of str
    """

    name: str
    X: Array
    y: NDArray[np.intp]
    groups: Column
    features: tuple[str, ...]


def _rows(folder: Path, name: str, delimiter: str = ",") -> list[list[str]]:
    """Return the cells of a file, compressed or not, line by line."""
    packed = folder / f"{name}.gz"
    plain = folder / name
    if not packed.exists() and not plain.exists():
        raise FileNotFoundError(f"no {name} or {packed.name} in {folder}; pass the folder that holds the tables")
    with gzip.open(packed, "rt", newline="") if packed.exists() else plain.open(newline="") as file:
        return [[cell.strip() for cell in row] for row in csv.reader(file, delimiter=delimiter) if row]


def _columns(names: Sequence[str], rows: list[list[str]]) -> dict[str, Column]:
    """Return the columns by name; of two columns of one name the first."""
    cells = np.array(rows, dtype=str)
    return {name: cells[:, names.index(name)] for name in names}


def _table(
    name: str,
    columns: dict[str, Column],
    y: NDArray[np.bool_],
    groups: Column,
    numbers: Sequence[str],
    categories: Sequence[str] = (),
) -> Table:
    """Return numbers and the indicators of categories side by side."""
    parts = [np.column_stack([columns[c].astype(np.float64) for c in numbers])]
    features = list(numbers)
    if categories:
        encoder = OneHotEncoder(drop="if_binary", sparse_output=False)
        parts.append(encoder.fit_transform(np.column_stack([columns[c] for c in categories])))
        features += encoder.get_feature_names_out(list(categories)).tolist()
    return Table(name, np.hstack(parts), y.astype(np.intp), groups, tuple(features))


def _crossed(*labels: Column) -> Column:
    """Return the labels of intersections, such as "white, female"."""
    return np.array([", ".join(parts) for parts in zip(*labels, strict=True)])


def adult(folder: Path, n_races: int = 2) -> Table:
    """Income above 50,000 dollars, by race and sex; ``n_races=3`` tells black from other races."""
    first, second = _rows(folder, "adult.data"), _rows(folder, "adult.test")
    columns = _columns(first[0], first[1:] + second[1:])
    white = columns["race"] == "White"
    race = np.where(white, "white", "non-white")
    if n_races == 3:
        race = np.where(white, "white", np.where(columns["race"] == "Black", "black", "other"))
    rich = np.char.startswith(columns["classification"], ">50K")
    numbers = ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
    categories = ["workclass", "marital-status", "occupation", "relationship", "native-country"]
    return _table("adult", columns, rich, _crossed(race, np.char.lower(columns["sex"])), numbers, categories)


def compas(folder: Path) -> Table:
    """Arrested again within two years, by race and sex."""
    head, *rows = _rows(folder, "compas.csv")
    columns = _columns(head, rows)
    columns["screened in 2013"] = np.char.startswith(columns["compas_screening_date"], "2013").astype(np.float64)
    race = np.where(columns["race"] == "Caucasian", "white", "non-white")
    numbers = ["age", "priors_count", "juv_fel_count", "juv_misd_count", "juv_other_count", "screened in 2013"]
    again = columns["two_year_recid"] == "1"
    return _table("compas", columns, again, _crossed(race, np.char.lower(columns["sex"])), numbers, ["c_charge_degree"])


GERMAN = ["status", "duration", "history", "purpose", "amount", "savings", "employment", "rate", "personal", "debtors"]
GERMAN += ["residence", "property", "age", "plans", "housing", "credits", "job", "people", "telephone", "foreign"]
GERMAN += ["class"]


def german(folder: Path) -> Table:
    """A good credit risk, by age (above the median or not) and sex."""
    rows = [row for row in _rows(folder, "german.data", delimiter=" ") if len(row) == len(GERMAN)]
    columns = _columns(GERMAN, rows)
    age = columns["age"].astype(np.float64)
    sex = np.where(np.isin(columns["personal"], ["A92", "A95"]), "female", "male")
    columns["single"] = np.isin(columns["personal"], ["A93", "A95"]).astype(np.float64)
    numbers = ["duration", "amount", "rate", "residence", "credits", "people", "single"]
    categories = [name for name in GERMAN if name not in (*numbers, "age", "personal", "class")]
    groups = _crossed(np.where(age > np.median(age), "older", "younger"), sex)
    return _table("german", columns, columns["class"] == "1", groups, numbers, categories)


def communities(folder: Path, threshold: float = 0.08) -> Table:
    """Among the 70% of places with the most violent crime, by median income and the share of white people."""
    head, *rows = _rows(folder, "communities.data")
    # State, county, community, its name and a fold come first and are not named in the head.
    columns = _columns(head, [row[-len(head) :] for row in rows])
    income = columns["medIncome"].astype(np.float64)
    richer = np.where(income > np.median(income), "richer", "poorer")
    white = np.where(columns["racePctWhite"].astype(np.float64) >= 0.85, "85% white or more", "less than 85% white")
    crime = columns["ViolentCrimesPerPop"].astype(np.float64) >= threshold
    of_groups = {"racepctblack", "racePctWhite", "racePctAsian", "racePctHisp", "medIncome"}
    of_groups |= {f"{race}PerCap" for race in ("white", "black", "indian", "Asian", "Other", "Hisp")}
    numbers = [
        name
        for name in head
        if name not in of_groups and name != "ViolentCrimesPerPop" and not (columns[name] == UNKNOWN).any()
    ]
    return _table("communities", columns, crime, _crossed(richer, white), numbers)


TABLES: dict[str, Callable[[Path], Table]] = {
    "adult": adult,
    "compas": compas,
    "german": german,
    "communities": communities,
}

SIX_GROUPS = partial(adult, n_races=3)
"""Adult with six groups."""


@lru_cache(maxsize=8)
def read(name: str, folder: Path) -> Table:
    """Return a table by its name, read once."""
    return TABLES[name](folder)
