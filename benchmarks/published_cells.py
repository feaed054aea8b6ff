"""Robust learners beside plain ones of the same family: the same splits, the same grid, chosen by the same rule.

A cell is a table and a setting of a family. In every split each setting is fitted with every value of its family's
grid; the one whose worst group has the least log loss on validation rows is judged on test rows. Excess is the test
risk of a group above the lower of two: that of a plain model of all rows, and that of a plain model of the group's own
rows, both of the same family and chosen alike.
"""

from __future__ import annotations

import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from published_tables import Array, Table
from scipy.special import expit
from scipy.stats import t as student
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.preprocessing import StandardScaler

import counterpoise as cpo
from counterpoise.judging.comparison import CANDIDATES

Rows = NDArray[np.intp]
Unit = dict[str, Any]
"""What one setting reached in one split: plain data, as JSON keeps it."""

PLAIN, OWN, WEIGHTS, COMPARE = "plain", "own models", "inverse frequency", "best by compare"
COMPARED = {COMPARE: "default", f"minimax regret, {COMPARE}": "minimax regret"}
"""Choices by held-out rows, and the robust setting that is compared in each."""
EARLY = "early stopping alone"

REGRET = {"confidence": 1.0}
RISK = {"confidence": 1.0, "criterion": "risk"}
GAME = {"cv": 3, "max_iter": 5}
"""How :class:`counterpoise.ContextRobust` plays here: shorter than by default, for it is fitted hundreds of times."""

PATIENCE = 10


def _xgboost(depth: int) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(max_depth=depth, n_estimators=100, learning_rate=0.1, n_jobs=1)


def _lightgbm(leaves: int) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(num_leaves=leaves, n_estimators=100, learning_rate=0.1, n_jobs=1, verbose=-1)


def _histogram(leaves: int) -> Any:
    return HistGradientBoostingClassifier(max_leaf_nodes=leaves, max_iter=50, early_stopping=False, random_state=0)


def _forest(leaf: int) -> Any:
    return RandomForestClassifier(50, min_samples_leaf=leaf, random_state=0)


def _logistic(alpha: float, **options: Any) -> Any:
    return cpo.RobustLogisticRegression(alpha=alpha, **options)


@dataclass(frozen=True)
class Family:
    """A learner and its robust form.

    Attributes
    ----------
    grid : tuple
        Values of the parameter that regularises it.
    plain : callable
        Returns the plain learner for a value of the grid.
    robust : callable
        Returns the robust one for a value of the grid, with further parameters by name.
    settings : mapping from str to dict
        Parameters of the robust learner.
    controls : tuple of str
        Settings that are not robust learners: weights, or a choice by held-out rows.
    """

    grid: tuple[Any, ...]
    plain: Callable[[Any], Any]
    robust: Callable[..., Any]
    settings: Mapping[str, dict[str, Any]]
    controls: tuple[str, ...] = ()
    scaled: bool = False

    @property
    def judged(self) -> tuple[str, ...]:
        """The settings that are compared with the plain learner."""
        return (*self.settings, *self.controls)


BOOSTED = {
    "default": {},
    "minimax risk": RISK,
    "minimax regret": REGRET,
    EARLY: {"radius": 0.0, "patience": PATIENCE},
}

FAMILIES: dict[str, Family] = {
    "logistic": Family(
        (1e-4, 1e-3, 1e-2),
        lambda alpha: _logistic(alpha, radius=0.0),
        _logistic,
        {
            "default": {},
            "calibrated radius": {"radius": "calibrated"},
            "minimax risk": RISK,
            "minimax regret": REGRET,
            "minimax regret, in-sample": {**REGRET, "reference": "in-sample"},
        },
        (WEIGHTS, *COMPARED),
        scaled=True,
    ),
    "XGBoost": Family(
        (3, 6),
        _xgboost,
        lambda depth, **options: cpo.RobustXGBClassifier(params={"max_depth": depth}, n_jobs=1, **options),
        BOOSTED,
        (WEIGHTS,),
    ),
    "LightGBM": Family(
        (7, 31),
        _lightgbm,
        lambda leaves, **options: cpo.RobustLGBMClassifier(params={"num_leaves": leaves}, n_jobs=1, **options),
        BOOSTED,
        (WEIGHTS,),
    ),
    "histogram boosting": Family(
        (7, 31),
        _histogram,
        lambda leaves, **options: cpo.ContextRobust(_histogram(leaves), **GAME, **options),
        {"default": {}, "minimax risk": RISK, "minimax regret": REGRET},
    ),
    "random forest": Family(
        (2, 10),
        _forest,
        lambda leaf, **options: cpo.ContextRobust(_forest(leaf), **GAME, **options),
        {"default": {}, "minimax regret": REGRET},
    ),
}
"""23 settings: 8 of the logistic family, 5 of each booster, 3 and 2 of what :class:`ContextRobust` wraps."""


@dataclass(frozen=True)
class Problem:
    """A table, and how it is split.

    Attributes
    ----------
    make : callable
        Returns the table for the number of the split; one that is drawn may differ from split to split.
    shares : tuple of float
        Parts to train on and to choose by; the rest is for judging.
    """

    make: Callable[[int], Table]
    shares: tuple[float, float] = (0.6, 0.2)


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to train on, to choose by and to judge on."""

    train: Rows
    validation: Rows
    test: Rows


def split_of(table: Table, seed: int, shares: tuple[float, float]) -> Split:
    """Return a random split in which each group and class has its share of every part."""
    rng = np.random.default_rng([seed, zlib.crc32(table.name.encode())])
    parts: tuple[list[Rows], ...] = ([], [], [])
    for group in np.unique(table.groups):
        for value in np.unique(table.y):
            rows = rng.permutation(np.flatnonzero((table.groups == group) & (table.y == value)))
            cuts = np.round(np.cumsum(shares) * len(rows)).astype(int)
            for part, some in zip(parts, np.split(rows, cuts), strict=True):
                part.append(some)
    return Split(*(np.sort(np.concatenate(part)) for part in parts))


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model, and what a guard kept."""

    model: Any
    chosen: str | None = None


def fitted(family: Family, setting: str, value: Any, X: Array, y: Rows, groups: NDArray[Any]) -> Fitted:
    """Fit one setting with one value of the grid."""
    if setting == PLAIN:
        return Fitted(_fit_plain(family, value, X, y))
    if setting == WEIGHTS:
        _, codes, counts = np.unique(groups, return_inverse=True, return_counts=True)
        return Fitted(_fit_plain(family, value, X, y, len(y) / (len(counts) * counts[codes])))
    if setting in COMPARED:
        robust = family.robust(value, **family.settings[COMPARED[setting]])
        chosen = cpo.compare(X, y, groups, estimator=robust, methods=CANDIDATES, n_jobs=1).chosen
        named = {"robust": COMPARED[setting], "erm": PLAIN, "inverse-frequency": WEIGHTS}
        return Fitted(fitted(family, named[chosen], value, X, y, groups).model, chosen)
    model = family.robust(value, **family.settings[setting]).fit(X, y, contexts=groups)
    chosen = getattr(model, "chosen_", None)
    return Fitted(model, None if chosen is None else str(chosen))


def _fit_plain(family: Family, value: Any, X: Array, y: Rows, weight: Array | None = None) -> Any:
    model = family.plain(value)
    # A forest draws other rows where it is given weights, equal ones too, than where it is given none.
    kwargs: dict[str, Any] = {} if weight is None else {"sample_weight": weight}
    if isinstance(model, cpo.RobustLogisticRegression):
        kwargs["contexts"] = np.zeros(len(y), dtype=int)
    return model.fit(X, y, **kwargs)


def _losses(model: Any, X: Array, y: Rows, floor: float) -> tuple[Array, NDArray[np.bool_]]:
    """Return the log loss of each row, and whether its class was predicted."""
    p = np.clip(model.predict_proba(X)[:, 1], floor, 1.0 - floor)
    return -np.log(np.where(y == 1, p, 1.0 - p)), (p > 0.5) == (y == 1)


def _by_group(values: Array, groups: NDArray[Any], labels: Iterable[Any]) -> Array:
    return np.array([values[groups == label].mean() for label in labels])


def judged(problem: Problem, family_name: str, setting: str, seed: int) -> Unit:
    """Fit a setting with every value of the grid, choose on validation rows, and judge on test rows."""
    table = problem.make(seed)
    family, split, labels = FAMILIES[family_name], split_of(table, seed, problem.shares), np.unique(table.groups)
    X = table.X
    if family.scaled:
        X = StandardScaler().fit(X[split.train]).transform(X)
    # A forest says that something is impossible which its few rows have not shown.
    floor = 0.5 / len(split.train)

    def parts(rows: Rows) -> tuple[Array, Rows, NDArray[Any]]:
        return X[rows], table.y[rows], table.groups[rows]

    def best(name: str, train: Rows, validation: Rows) -> tuple[Any, Fitted]:
        """Return the value of the grid whose worst group does best on validation rows, and its model."""
        models = {value: fitted(family, name, value, *parts(train)) for value in family.grid}
        X_held, y_held, groups_held = parts(validation)
        held = np.unique(groups_held)
        worst = {
            value: _by_group(_losses(one.model, X_held, y_held, floor)[0], groups_held, held).max()
            for value, one in models.items()
        }
        value = min(worst, key=worst.__getitem__)
        return value, models[value]

    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if setting == OWN:
            risks = []
            for label in labels:
                of_group = [rows[table.groups[rows] == label] for rows in (split.train, split.validation, split.test)]
                _, own = best(PLAIN, *of_group[:2])
                risks.append(float(_losses(own.model, *parts(of_group[2])[:2], floor)[0].mean()))
            return _unit(table, family_name, setting, seed, start, risks=risks)
        value, chosen = best(setting, split.train, split.validation)
        seconds = time.perf_counter() - start
        X_test, y_test, groups_test = parts(split.test)
        losses, right = _losses(chosen.model, X_test, y_test, floor)
    return _unit(
        table,
        family_name,
        setting,
        seed,
        start,
        risks=_by_group(losses, groups_test, labels).tolist(),
        accuracies=_by_group(right, groups_test, labels).tolist(),
        accuracy=float(right.mean()),
        value=value,
        chosen=chosen.chosen,
    ) | {"seconds": seconds}


def _unit(table: Table, family: str, setting: str, seed: int, start: float, **found: Any) -> Unit:
    found["seconds"] = time.perf_counter() - start
    return {"table": table.name, "family": family, "setting": setting, "split": seed, **found}


def wanted(
    tables: Iterable[str],
    families: Iterable[str],
    n_splits: int,
    settings: Callable[[Family], Iterable[str]] = lambda family: family.judged,
) -> Iterator[tuple[str, str, str, int]]:
    """Yield table, family, setting and split of everything to fit, split by split."""
    names, learners = list(tables), list(families)
    for seed in range(n_splits):
        for name in names:
            for learner in learners:
                for setting in (PLAIN, OWN, *settings(FAMILIES[learner])):
                    yield name, learner, setting, seed


@dataclass(frozen=True)
class Difference:
    """What a setting changed against the plain learner, paired by split.

    Attributes
    ----------
    mean, t : float
        Of the differences; t is 0 where no split differs.
    significant : bool
        Whether t is beyond its 97.5% point, 2.09 for 20 splits.
    """

    mean: float
    t: float
    significant: bool

    @classmethod
    def of(cls, values: Array) -> Difference:
        """Return the mean of differences over splits, and its t statistic."""
        n, spread = len(values), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        mean = float(values.mean())
        statistic = mean / (spread / np.sqrt(n)) if spread > 0.0 else 0.0
        return cls(mean, statistic, n > 1 and abs(statistic) > student.ppf(0.975, n - 1))


@dataclass(frozen=True)
class Cell:
    """A setting on a table, against the plain learner of its family.

    Attributes
    ----------
    excess, worst_accuracy, accuracy : Difference
        Of the worst excess of any group, the accuracy of the worst group, and the accuracy of all rows.
    time : float
        Seconds of all fits, over those of the plain learner's.
    chosen : Counter
        How often a guard kept what; empty without one.
    """

    table: str
    family: str
    setting: str
    n_splits: int
    excess: Difference
    worst_accuracy: Difference
    accuracy: Difference
    time: float
    chosen: Counter[str] = field(default_factory=Counter)

    @property
    def is_control(self) -> bool:
        """Whether nothing about the setting is robust in our sense."""
        return self.setting in (WEIGHTS, EARLY)

    @property
    def is_guarded(self) -> bool:
        """Whether held-out rows decide if the plain learner is kept."""
        return self.setting in COMPARED or (self.family != "logistic" and not self.is_control)


@dataclass(frozen=True)
class PlainCell:
    """What the plain learner reached on a table: means over splits."""

    table: str
    family: str
    accuracy: float
    worst_accuracy: float
    excess: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Study:
    """Every unit that was fitted, looked up by what it is."""

    units: Mapping[tuple[str, str, str, int], Unit]

    @classmethod
    def of(cls, units: Iterable[Unit]) -> Study:
        """Index units by table, family, setting and split."""
        return cls({(one["table"], one["family"], one["setting"], one["split"]): one for one in units})

    def excess(self, unit: Unit) -> float:
        """Return the worst excess of any group on test rows.

        The least risk of a group is the lower of its own and the plain model's, each averaged over all splits. Taken
        split by split, the plain model's would err as the plain model does, and every other model would look worse
        than it by the largest of some noisy differences.
        """
        least = self.least(unit["table"], unit["family"])
        return float((np.array(unit["risks"]) - least).max())

    def least(self, table: str, family: str) -> Array:
        """Return the least risk of each group that is known, over all splits."""
        splits = [one["split"] for one in self.runs(table, family, PLAIN)]
        return np.min(
            [np.mean([self.units[table, family, name, k]["risks"] for k in splits], axis=0) for name in (PLAIN, OWN)],
            axis=0,
        )

    def runs(self, table: str, family: str, setting: str) -> list[Unit]:
        """Return the splits of a cell that can be compared."""
        found = [one for key, one in self.units.items() if key[:3] == (table, family, setting)]
        needed = lambda one: all((table, family, name, one["split"]) in self.units for name in (PLAIN, OWN))  # noqa: E731
        return sorted(filter(needed, found), key=lambda one: one["split"])

    def tables(self) -> list[str]:
        """Return the names of tables, in the order in which they came."""
        return list(dict.fromkeys(key[0] for key in self.units))

    def cells(self) -> Iterator[Cell]:
        """Yield every setting on every table."""
        for name in self.tables():
            for family_name, family in FAMILIES.items():
                for setting in (*family.settings, *family.controls):
                    runs = self.runs(name, family_name, setting)
                    if len(runs) > 1:
                        yield self._cell(runs)

    def _cell(self, runs: list[Unit]) -> Cell:
        name, family, setting = (runs[0][key] for key in ("table", "family", "setting"))
        plain = [self.units[name, family, PLAIN, one["split"]] for one in runs]

        def change(value: Callable[[Unit], float]) -> Difference:
            return Difference.of(np.array([value(a) - value(b) for a, b in zip(runs, plain, strict=True)]))

        return Cell(
            name,
            family,
            setting,
            len(runs),
            change(self.excess),
            change(lambda one: min(one["accuracies"])),
            change(lambda one: one["accuracy"]),
            sum(one["seconds"] for one in runs) / sum(one["seconds"] for one in plain),
            Counter(one["chosen"] for one in runs if one.get("chosen")),
        )

    def plain(self) -> Iterator[PlainCell]:
        """Yield what the plain learners reached."""
        for name in self.tables():
            for family in FAMILIES:
                runs = self.runs(name, family, PLAIN)
                if runs:
                    yield PlainCell(
                        name,
                        family,
                        float(np.mean([one["accuracy"] for one in runs])),
                        float(np.mean([min(one["accuracies"]) for one in runs])),
                        float(np.mean([self.excess(one) for one in runs])),
                        float(np.mean([one["seconds"] for one in runs])),
                    )


def planted(share: float, n_train: int, seed: int) -> Table:
    """Return a table with something to win: the sign of one effect is reversed in a rare group.

    The label follows two features in both groups alike, and a third one in opposite directions. A model that follows
    the majority is confidently wrong in the minority; one that leaves the third feature out serves both.
    """
    rng = np.random.default_rng([seed, int(1000 * share), n_train])
    n = n_train + n_train // 2 + N_TEST
    rare = rng.random(n) < share
    X = rng.standard_normal((n, 6))
    logit = 1.5 * X[:, 0] - X[:, 1] + np.where(rare, -2.0, 2.0) * X[:, 2]
    y = (rng.random(n) < expit(logit)).astype(np.intp)
    groups = np.where(rare, "minority", "majority")
    return Table(f"{share:.0%} of {n_train:,}", X, y, groups, tuple(f"x{j}" for j in range(X.shape[1])))


N_TEST = 20_000
"""Test rows of a planted shift: nearly the population."""

SIZES = ((0.05, 2000), (0.1, 2000), (0.2, 2000), (0.05, 10_000))
"""Shares of the minority, and rows to train on."""


def planted_problem(share: float, n_train: int) -> Problem:
    """Return a planted shift that is drawn anew for every split."""
    n = n_train + n_train // 2 + N_TEST
    return Problem(partial(planted, share, n_train), (n_train / n, n_train / 2 / n))


PLANTED = {f"{share:.0%} of {n:,}": planted_problem(share, n) for share, n in SIZES}


def planted_settings(family: Family) -> tuple[str, ...]:
    """Return the settings that are shown on a planted shift."""
    return tuple(name for name in family.judged if name in ("default", "minimax regret", WEIGHTS, *COMPARED))
