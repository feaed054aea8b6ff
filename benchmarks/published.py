"""Studies on tables and problems that others have published: what robustness wins there, what it costs, where it loses.

Usage: python benchmarks/published.py --data FOLDER [--parts a,b,c,d,e] [--splits 20] [--jobs N] [--page PAGE]
       python benchmarks/published.py --toy

- a: Adult, COMPAS, German credit, Communities and Crime: 23 settings of five learners against the plain learner
- b: group-robust preference optimisation with log-linear policies, against a proven optimum
- c: minimax excess risk by stochastic mirror descent, against a proven optimum
- d: maximin effects and aggregation over simulated sources
- e: a planted shift, with the learners of part a

Results are kept line by line in build/published and not computed again; --fresh forgets them, --seconds stops early.
The sections of a page between its markers are written anew from what is kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from published_cells import (
    COMPARED,
    FAMILIES,
    PLANTED,
    WEIGHTS,
    Family,
    Problem,
    judged,
    planted_problem,
    planted_settings,
    wanted,
)
from published_iterations import PREFERENCES, groups_of, study_excess, study_preferences, synthetic_groups
from published_page import cells_sections, planted_sections, race_section, sources_section, written
from published_sources import LEARNERS, study_sources
from published_tables import SIX_GROUPS, TABLES, Table, read

import counterpoise as cpo

Key = tuple[Any, ...]
Result = Any


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    data: Path | None
    splits: int
    toy: bool
    tables: tuple[str, ...] = tuple(TABLES)


def toy_table(seed: int) -> Table:
    """Return a small table of two groups."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((240, 3))
    groups = np.where(np.arange(240) % 4 == 0, "few", "many")
    y = (X[:, 0] * np.where(groups == "few", -1.0, 1.0) + rng.standard_normal(240) > 0).astype(np.intp)
    return Table("toy", X, y, groups, ("a", "b", "c"))


def problem_of(name: str, options: Options) -> Problem:
    """Return a table of part a, or a planted shift of part e, by name."""
    if name == "toy":
        return Problem(toy_table)
    if name in PLANTED:
        return PLANTED[name]
    if name in TABLES and options.data is not None:
        data = options.data
        return Problem(lambda seed: read(name, data))
    share, n = name.split("% of ")
    return planted_problem(float(share) / 100.0, int(n.replace(",", "")))


def judged_by_key(key: Key, options: Options) -> Result:
    """Fit one setting of parts a and e."""
    name, family, setting, split = key
    return judged(problem_of(name, options), family, setting, split)


QUICK = ("logistic", "XGBoost")
"""Learners of a toy run."""


def quick_settings(family: Family) -> tuple[str, ...]:
    """Return the settings of a toy run: all but the one that cross-validates."""
    return tuple(name for name in family.judged if name not in COMPARED)


def a_keys(options: Options) -> Iterable[Key]:
    """Return table, family, setting and split of part a."""
    if options.toy:
        return wanted(["toy"], QUICK, 2, quick_settings)
    return wanted(options.tables, FAMILIES, options.splits)


def e_keys(options: Options) -> Iterable[Key]:
    """Return the same of part e."""
    if options.toy:
        return wanted(["20% of 200"], QUICK, 2, lambda family: (WEIGHTS, "minimax regret"))
    return wanted(PLANTED, FAMILIES, max(2, options.splits // 2), planted_settings)


def n_rounds(options: Options) -> int:
    """Return the rounds of every iteration."""
    return 100 if options.toy else 20_000


def b_result(key: Key, options: Options) -> Result:
    """Solve one problem of part b."""
    return study_preferences(key[0], n_rounds(options))


def c_result(key: Key, options: Options) -> Result:
    """Solve one problem of part c."""
    if key[0] == "synthetic":
        return study_excess(key[0], synthetic_groups(n=200 if options.toy else 2000), n_rounds(options))
    assert options.data is not None
    return study_excess(key[0], groups_of(SIX_GROUPS(options.data)), n_rounds(options))


def d_keys(options: Options) -> Iterable[Key]:
    """Return learner, number of sources and draw."""
    if options.toy:
        return [("linear", 3, seed) for seed in range(2)]
    draws = max(2, options.splits // 2)
    return [(learner, n, seed) for seed in range(draws) for learner in LEARNERS for n in (3, 6, 10)]


@dataclass(frozen=True)
class Part:
    """A study: what there is to do, how one item is done, and what the page says of it.

    Attributes
    ----------
    sections : callable
        Takes the results, returns sections of the page by name.
    timed : bool
        Whether seconds are what it is about: then nothing else runs beside an item.
    """

    keys: Callable[[Options], Iterable[Key]]
    result: Callable[[Key, Options], Result]
    sections: Callable[[list[Result]], dict[str, str]]
    timed: bool = False


def _together(results: list[list[Any]]) -> list[Any]:
    return [row for rows in results for row in rows]


PARTS = {
    "a": Part(a_keys, judged_by_key, cells_sections),
    "b": Part(
        lambda options: [(name,) for name in PREFERENCES][: 1 if options.toy else None],
        b_result,
        lambda results: {"preferences": race_section(_together(results))},
        timed=True,
    ),
    "c": Part(
        lambda options: [("synthetic",), ("Adult, six groups",)][: 1 if options.toy else None],
        c_result,
        lambda results: {"excess": race_section(_together(results))},
        timed=True,
    ),
    "d": Part(
        d_keys,
        lambda key, options: study_sources(*key, n=200 if options.toy else 2000),
        lambda results: {"sources": sources_section(results)},
    ),
    "e": Part(e_keys, judged_by_key, planted_sections),
}


@dataclass(frozen=True)
class Kept:
    """Results of a part in a file, a line each: a run that was stopped goes on where it was."""

    path: Path

    def read(self) -> dict[Key, Result]:
        """Return results by key; a line that was cut off is left out."""
        found: dict[Key, Result] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                try:
                    one = json.loads(line)
                except json.JSONDecodeError:
                    continue
                found[tuple(one["key"])] = one["result"]
        return found

    def add(self, key: Key, result: Result) -> None:
        """Append a result."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({"key": key, "result": result}) + "\n")


def _done(letter: str, key: Key, options: Options) -> tuple[Key, Result]:
    return key, PARTS[letter].result(key, options)


def run(letter: str, options: Options, kept: Kept, jobs: int, deadline: float) -> None:
    """Compute what a part lacks, until a time."""
    part, known = PARTS[letter], kept.read()
    missing = [key for key in part.keys(options) if key not in known]

    def in_time() -> Iterator[Key]:
        for key in missing:
            if time.monotonic() > deadline:
                return
            yield key

    done = 0
    pool = Parallel(1 if part.timed else jobs, return_as="generator_unordered", pre_dispatch="n_jobs")
    for key, result in pool(delayed(_done)(letter, key, options) for key in in_time()):
        kept.add(key, result)
        done += 1
        if sys.stderr.isatty() and done % 10 == 0:
            sys.stderr.write(f"\r{letter}: {done} of {len(missing)}")
    print(f"part {letter}: {done} of {len(missing)} computed, {len(known)} known", file=sys.stderr, flush=True)


def sections_of(letter: str, options: Options, kept: Kept) -> dict[str, str]:
    """Return the sections of a part, from what is kept of what was asked for."""
    known = kept.read()
    results = [known[key] for key in PARTS[letter].keys(options) if key in known]
    return PARTS[letter].sections(results) if results else {}


def versions() -> str:
    """Return what the figures were made with."""
    made_with = (cpo, *(import_module(name) for name in ("numpy", "scipy", "sklearn", "xgboost", "lightgbm")))
    return ", ".join(f"{module.__name__} {module.__version__}" for module in made_with)


def main(arguments: list[str]) -> int:
    """Run the parts asked for, print their sections, and write them into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the four tables")
    parser.add_argument("--parts", default=",".join(PARTS), help="which, such as a,c")
    parser.add_argument("--tables", default=",".join(TABLES), help="of part a")
    parser.add_argument("--splits", type=int, default=20, help="splits of each table; half as many draws in d and e")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin nothing after so many seconds")
    parser.add_argument("--fresh", action="store_true", help="forget what is kept")
    parser.add_argument("--out", type=Path, default=Path("build/published"))
    parser.add_argument("--page", type=Path, help="page whose sections are written anew")
    parser.add_argument("--render", action="store_true", help="compute nothing; write what is kept")
    parser.add_argument("--toy", action="store_true", help="minutes become seconds, to see that it runs")
    asked = parser.parse_args(arguments)
    letters = asked.parts.split(",")
    if not set(letters) <= set(PARTS):
        parser.error(f"--parts is {asked.parts!r}; choose from {','.join(PARTS)}")
    if asked.data is None and not asked.toy and set(letters) & {"a", "c"}:
        parser.error("parts a and c need --data, the folder of the tables")
    tables = tuple(asked.tables.split(","))
    if not set(tables) <= set(TABLES):
        parser.error(f"--tables is {asked.tables!r}; choose from {','.join(TABLES)}, read from --data")
    options = Options(asked.data, asked.splits, asked.toy, tables)
    deadline = time.monotonic() + asked.seconds
    sections = {"versions": f"Made with {versions()}."}
    for letter in letters:
        kept = Kept(asked.out / f"{letter}.jsonl")
        if asked.fresh:
            kept.path.unlink(missing_ok=True)
        if not asked.render:
            run(letter, options, kept, asked.jobs, deadline)
        sections |= sections_of(letter, options, kept)
    for name, text in sections.items():
        print(f"\n## {name}\n\n{text}")
    if asked.page is not None:
        asked.page.write_text(written(asked.page.read_text(), sections))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
