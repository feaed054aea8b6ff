"""Fits on a cluster of local processes: memory, passes, workers, a killed worker, growth with rows.

Every fit's certificate is checked. Ratios are between fits in this run.

Usage: python benchmarks/cluster.py [--only memory passes workers killed growth] [--scale 1.0]
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import counterpoise as cpo
from counterpoise.dask import cluster as engine

FEATURES, CONTEXTS = 30, 20
MODELS = {
    "RobustLogisticRegression": "logistic",
    "RobustLinearRegression": "squared",
    "RobustPoissonRegressor": "poisson",
    "RobustHuberRegressor": "squared",
    "RobustQuantileRegressor": "squared",
}


def piece(kind: str, number: int, rows: int) -> np.ndarray:
    """Return some rows: features, target and context."""
    rng = np.random.default_rng(number)
    X, contexts = rng.standard_normal((rows, FEATURES)), rng.integers(0, CONTEXTS, rows)
    coefficients = 0.3 * np.random.default_rng(7).standard_normal((CONTEXTS, FEATURES))
    z = np.einsum("nd,nd->n", X, coefficients[contexts])
    if kind == "logistic":
        y = (rng.random(rows) < 1.0 / (1.0 + np.exp(-z))).astype(float)
    elif kind == "poisson":
        y = rng.poisson(np.exp(0.3 * z)).astype(float)
    else:
        y = z + rng.standard_normal(rows)
    return np.column_stack([X, y, contexts])


def table(kind: str, n: int, rows_each: int) -> Any:
    """Return a dask array whose chunks are made where they are needed."""
    pieces = [dask.delayed(piece)(kind, k, rows_each) for k in range(n // rows_each)]
    return da.concatenate([da.from_delayed(one, (rows_each, FEATURES + 2), float) for one in pieces])


def fitted(model: Any, rows: Any) -> tuple[Any, float, int]:
    """Return a fitted model, the seconds it took, and the passes over the data."""
    made: list[Any] = []
    before = engine.ClusterBlocks.__init__

    def noted(self: Any, *args: Any) -> None:
        before(self, *args)
        made.append(self)

    engine.ClusterBlocks.__init__ = noted  # type: ignore[method-assign]
    start = time.perf_counter()
    try:
        model.fit(rows[:, :FEATURES], rows[:, FEATURES], contexts=rows[:, FEATURES + 1].astype(int))
    finally:
        engine.ClusterBlocks.__init__ = before  # type: ignore[method-assign]
    seconds = time.perf_counter() - start
    certificate = model.certificate_
    assert certificate.relative_gap <= 1e-6, certificate
    # Beside the passes that are counted, labels are agreed upon in one, and rows grouped in another.
    return model, seconds, made[0].n_passes + 2


@contextmanager
def workers(n: int, memory: str | int = 0) -> Iterator[Client]:
    """Start worker processes of one thread each."""
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None, "memory_limit": memory}
    with LocalCluster(n_workers=n, **options) as cluster, Client(cluster) as client:
        client.run(lambda: __import__("counterpoise.dask.linear"))
        yield client


def peak(client: Client) -> float:
    """Return the most memory a worker has held, in MB."""
    return max(client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss).values()) / 1e3


def memory(scale: float) -> None:
    """Fit a dataset four times as large as the only worker's limit."""
    limit = 600e6 * max(scale, 0.5)
    n = int(4 * limit / (8 * FEATURES)) // 32_000 * 32_000
    with workers(1, int(limit)) as client:
        baseline = peak(client)
        model, seconds, passes = fitted(cpo.RobustLogisticRegression(), table("logistic", n, 32_000))
        print(f"limit {limit / 1e6:.0f} MB, features {n * FEATURES * 8 / 1e6:.0f} MB: peak {peak(client):.0f} MB")
        print(f"  (imports alone {baseline:.0f} MB), {seconds:.0f} s, {passes} passes, {model.certificate_}")


def passes(scale: float) -> None:
    """Count passes over the data to a gap of 1e-6."""
    n = int(200_000 * scale)
    with workers(2):
        for name, kind in MODELS.items():
            _, seconds, count = fitted(getattr(cpo, name)(), table(kind, n, n // 8))
            print(f"{name:<26}{count:>5} passes{seconds:>8.1f} s")


def workers_against_one(scale: float, repeats: int = 3) -> None:
    """Compare two workers with one, fits taking turns."""
    n = int(2_000_000 * scale)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repeats):
        for count in seconds:
            with workers(count):
                seconds[count].append(fitted(cpo.RobustLogisticRegression(), table("logistic", n, n // 16))[1])
    one, two = (statistics.median(seconds[count]) for count in (1, 2))
    print(f"n = {n:,}: 1 worker {one:.1f} s, 2 workers {two:.1f} s: {one / two:.2f} times as fast")


def killed(scale: float) -> None:
    """Kill a worker in the middle of a fit, and compare."""
    n = int(1_000_000 * scale)
    with workers(2) as client:
        rows = table("logistic", n, n // 16)
        undisturbed, seconds, _ = fitted(cpo.RobustLogisticRegression(), rows)
        victim = next(iter(client.run(os.getpid).values()))
        threading.Timer(0.5 * seconds, os.kill, (victim, signal.SIGKILL)).start()
        disturbed, longer, _ = fitted(cpo.RobustLogisticRegression(), rows)
        off = np.abs(disturbed.coef_ - undisturbed.coef_).max()
        print(f"killed after half of {seconds:.1f} s: {longer:.1f} s, largest difference of coefficients {off:.1e}")
        assert off <= 1e-10


def growth(scale: float) -> None:
    """Fit more and more rows."""
    with workers(2):
        times = []
        for n in (100_000, 1_000_000, int(10_000_000 * scale)):
            _, seconds, count = fitted(cpo.RobustLogisticRegression(), table("logistic", n, max(n // 64, 25_000)))
            times.append((n, seconds))
            print(f"n = {n:>10,}: {seconds:7.1f} s, {count} passes, {1e6 * seconds / n:6.2f} s per million rows")
        (n_0, t_0), (n_1, t_1) = times[1:]
        print(f"exponent from {n_0:,} to {n_1:,}: {np.log(t_1 / t_0) / np.log(n_1 / n_0):.2f}")


STUDIES: dict[str, Callable[[float], None]] = {
    "memory": memory,
    "passes": passes,
    "workers": workers_against_one,
    "killed": killed,
    "growth": growth,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the studies that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of rows")
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    for name in asked.only:
        print(f"\n{name}: {STUDIES[name].__doc__}")
        STUDIES[name](asked.scale)


if __name__ == "__main__":
    main()
