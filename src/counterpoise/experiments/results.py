"""The one table every figure is drawn from, and the runs it is made of."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

import counterpoise
from counterpoise.experiments._base import Array, Experiment, Row
from counterpoise.files import whole


@dataclass(frozen=True, eq=False)
class Results:
    """A tidy table: experiment, method, metric, run, value."""

    rows: tuple[Row, ...]

    @cached_property
    def _grouped(self) -> dict[tuple[str, str, str], tuple[Array, Array]]:
        """Runs and values of every metric."""
        grouped: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
        for row in self.rows:
            grouped.setdefault(row[:3], []).append(row[3:])
        return {key: (*np.array(sorted(pairs), dtype=np.float64).T.copy(),) for key, pairs in grouped.items()}

    def series(self, experiment: str, method: str, metric: str) -> Array:
        """Return the values of one metric, in the order of the runs; empty where there are none."""
        return self._grouped.get((experiment, method, metric), (np.empty(0), np.empty(0)))[1]

    def runs(self, experiment: str, method: str, metric: str) -> Array:
        """Return the numbers of the runs of one metric."""
        return self._grouped.get((experiment, method, metric), (np.empty(0), np.empty(0)))[0]

    def methods(self, experiment: str, metric: str) -> list[str]:
        """Return the methods that have a metric, in the order they were computed."""
        return [method for name, method, one in self._grouped if (name, one) == (experiment, metric)]

    def merged(self, other: Results) -> Results:
        """Return both tables; where they speak of the same experiment the other one counts."""
        renewed = {row.experiment for row in other.rows}
        return Results((*(row for row in self.rows if row.experiment not in renewed), *other.rows))

    def save(self, folder: Path) -> list[Path]:
        """Write ``results.csv`` and ``results.parquet``, each whole or not at all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        paths = [folder / "results.csv", folder / "results.parquet"]
        columns = {name: [getattr(row, name) for row in self.rows] for name in Row._fields}
        columns["value"] = [float(value) for value in columns["value"]]

        def write_csv(path: Path) -> None:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(Row._fields)
                writer.writerows((*row[:4], repr(float(row.value))) for row in self.rows)

        whole(paths[0], write_csv)
        whole(paths[1], lambda path: pq.write_table(pa.table(columns), path))
        return paths

    @classmethod
    def load(cls, folder: Path) -> Results:
        """Read ``results.csv``; empty where there is none."""
        path = folder / "results.csv"
        if not path.exists():
            return cls(())
        with path.open(newline="", encoding="utf-8") as file:
            rows = [
                Row(row["experiment"], row["method"], row["metric"], int(row["run"]), float(row["value"]))
                for row in csv.DictReader(file)
            ]
        return cls(tuple(rows))


def collect(
    experiment: Experiment,
    n_runs: int,
    seed: int,
    folder: Path,
    n_jobs: int | None = None,
    advance: Callable[[int], object] = lambda done: None,
) -> list[Row]:
    """Do the runs of an experiment that have not been done, and return all.

    Parameters
    ----------
    folder : path
        Where each run is kept as soon as it is finished; a command that is interrupted goes on from there.
    advance : callable
        Called with the number of runs that are finished, each time some are.
    """
    kept = folder / f"{experiment.name}-{_key(experiment, seed)}"
    paths = [kept / f"{k:05d}.json" for k in range(n_runs)]
    rows = {k: _read(path) for k, path in enumerate(paths) if path.exists()}
    advance(len(rows))
    # The truth is worked out once, not in every process.
    facts = experiment.facts()
    jobs = [delayed(_one)(experiment, k, seed) for k in range(n_runs) if k not in rows]
    for k, found in Parallel(n_jobs=n_jobs, return_as="generator_unordered")(jobs):
        whole(paths[k], partial(Path.write_text, data=json.dumps(found), encoding="utf-8"))
        rows[k] = found
        advance(len(rows))
    return [*facts, *(row for k in range(n_runs) for row in rows[k])]


def _one(experiment: Experiment, number: int, seed: int) -> tuple[int, list[Row]]:
    return number, experiment.run(number, seed)


def _read(path: Path) -> list[Row]:
    rows: Iterable[list[str | int | float]] = json.loads(path.read_text(encoding="utf-8"))
    return [Row(*row) for row in rows]  # type: ignore[arg-type]


def _key(experiment: Experiment, seed: int) -> str:
    """Return what tells runs of different settings apart."""
    words = f"{experiment!r} {experiment.methods} seed={seed} {counterpoise.__version__}"
    return hashlib.sha256(words.encode()).hexdigest()[:10]
