"""How much memory and time a fit takes whose table does not fit: ``python benchmarks/out_of_core.py --help``.

A parquet dataset is made in a temporary folder and fitted by ``counterpoise fit --memory`` in a process of its own,
whose peak of resident memory is compared with the budget; what the modules take by themselves is measured and taken
off. The coefficients are compared with those of a fit in memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_IMPORTS = """
import sklearn.compose, sklearn.impute, sklearn.pipeline, pyarrow.parquet, rich.console
import counterpoise.cli, counterpoise.reports.report, counterpoise.tables.tabular.large
"""
_MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, file=sys.stderr)
sys.exit(done.returncode)
"""
SHARES = (0.4, 0.25, 0.15, 0.1, 0.06, 0.04)


def write(folder: Path, n_rows: int, n_features: int, n_files: int, seed: int) -> None:
    """Write a dataset in which the effect of a feature depends on the site."""
    rng = np.random.default_rng(seed)
    slopes = rng.standard_normal(n_features) / np.sqrt(n_features)
    for k, n in enumerate(len(part) for part in np.array_split(np.empty(n_rows), n_files)):
        site = rng.choice(len(SHARES), n, p=SHARES)
        X = rng.standard_normal((n, n_features))
        scores = X @ slopes + X[:, 0] * (1.0 - 0.4 * site)
        columns = {f"x{j}": X[:, j] for j in range(n_features)}
        columns["x1"] = np.where(rng.random(n) < 0.05, np.nan, columns["x1"])
        columns["site"] = np.array([f"site {c}" for c in range(len(SHARES))])[site]
        columns["ill"] = np.where(scores + rng.logistic(size=n) > 0.0, "yes", "no")
        columns["cost"] = scores + rng.standard_normal(n)
        pq.write_table(pa.table(columns), folder / f"part-{k:03}.parquet", use_dictionary=["site", "ill"])


def measured(*command: str) -> tuple[float, float]:
    """Return the peak of memory of a process in bytes, and its seconds."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _MEASURED, *command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return float(done.stderr.splitlines()[-1]), time.perf_counter() - start


def in_memory(folder: Path, target: str, other: str) -> object:
    """Return the model of the dataset, fitted in memory."""
    from counterpoise.tables.reading import open_table
    from counterpoise.tables.tabular.fitting import pose

    table = open_table(folder)
    data = table.only([name for name in table.names if name != other]).read()
    return pose(data, target, ["site"], drop=[other], alpha=1e-3, reference="in-sample").fitted()[0][-1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Make a dataset, fit it and print what that took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.2, help="of floats in the dataset")
    parser.add_argument("--features", type=int, default=40)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--memory", type=float, help="budget in gigabytes; a quarter of the dataset when not given")
    parser.add_argument("--task", choices=("regression", "classification"), default="regression")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-check", action="store_true", help="do not fit in memory as well")
    options = parser.parse_args(arguments)
    n_rows = int(options.gigabytes * 1e9 / 8 / options.features)
    budget = 1e9 * (options.memory or options.gigabytes / 4)
    target, other = ("cost", "ill") if options.task == "regression" else ("ill", "cost")
    with tempfile.TemporaryDirectory(prefix="counterpoise-benchmark-") as name:
        folder, out = Path(name) / "rows", Path(name) / "model"
        folder.mkdir()
        write(folder, n_rows, options.features, options.files, options.seed)
        base, _ = measured(sys.executable, "-c", _IMPORTS)
        words = [str(folder), "--target", target, "--drop", other, "--context", "site", "--memory", str(int(budget))]
        # The radius of the estimators, with one of which it is compared.
        words += ["--radius", "types"]
        # All modules at first, as in the process they are compared with: some are large, and needed only in the end.
        run = f"{_IMPORTS}import sys; sys.argv[0] = 'counterpoise'; counterpoise.cli.main()"
        peak, seconds = measured(sys.executable, "-c", run, "fit", *words, "--out", str(out), "--quiet")
        settings = json.loads((out / "metrics.json").read_text())["settings"]
        print(
            f"{n_rows:,} rows of {options.features} features, {options.gigabytes:g} GB in {options.files} files",
            flush=True,
        )
        print(f"modules alone: {base / 1e6:.0f} MB; peak: {peak / 1e6:.0f} MB")
        print(f"above the modules: {(peak - base) / 1e6:.0f} MB, {(peak - base) / budget:.0%} of {budget / 1e6:.0f} MB")
        print(f"{seconds:.0f} s with the report; read {settings['read']}")
        if not options.no_check:
            from counterpoise import load

            start = time.perf_counter()
            whole, pieces = in_memory(folder, target, other), load(out)
            gap = float(np.abs(np.asarray(whole.coef_) - np.asarray(pieces.coef_)).max())
            print(f"in memory, without a report: {time.perf_counter() - start:.0f} s; coefficients differ by {gap:.1e}")


if __name__ == "__main__":
    main()
