"""What contexts cost at a fixed number of rows: whole fits with 10 to 100,000 contexts, medians of interleaved runs.

Every fit is checked: its certificate must be within the tolerance. Usage: python benchmarks/many_contexts.py --help
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Sequence

import numpy as np

import counterpoise as cpo
from rows import targets

MODELS = {
    "logistic": cpo.RobustLogisticRegression,
    "squared": cpo.RobustLinearRegression,
    "poisson": cpo.RobustPoissonRegressor,
    "huber": cpo.RobustHuberRegressor,
    "quantile": cpo.RobustQuantileRegressor,
}


def data(name: str, n: int, d: int, n_contexts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of contexts of about equal size, whose coefficients scatter around shared ones."""
    rng = np.random.default_rng(0)
    contexts = np.concatenate([np.arange(n_contexts), rng.integers(n_contexts, size=n - n_contexts)])
    X = rng.standard_normal((n, d))
    own = 0.3 * rng.standard_normal(d) + 0.2 * rng.standard_normal((n_contexts, d))
    z = np.einsum("nd,nd->n", X, own[contexts])
    return X, targets(name, z, rng), contexts


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="logistic")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--contexts", type=int, nargs="+", default=[10, 100, 1_000, 10_000, 100_000])
    parser.add_argument("--alpha", type=float, default=1e-4)
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--radius", default="types", help="types, agrawal, chi2, or bits")
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the time of a fit for every number of contexts, and its ratio to the first; return how many failed."""
    warnings.simplefilter("ignore")
    options = parsed(arguments)
    radius = options.radius if options.radius.isalpha() else float(options.radius)
    model = MODELS[options.model](alpha=options.alpha, tol=options.tol, radius=radius)
    times: dict[int, list[float]] = {n_contexts: [] for n_contexts in options.contexts}
    gaps = dict.fromkeys(options.contexts, 0.0)
    for _ in range(options.repeats):
        for n_contexts in options.contexts:
            X, y, contexts = data(options.model, options.rows, options.features, n_contexts)
            start = time.perf_counter()
            model.fit(X, y, contexts=contexts)
            times[n_contexts].append(time.perf_counter() - start)
            gaps[n_contexts] = max(gaps[n_contexts], model.certificate_.relative_gap)
    first = statistics.median(times[options.contexts[0]])
    print(f"{options.model}, {options.rows:,} rows, {options.features} features, alpha {options.alpha:g}")
    print(f"{'contexts':>9}{'rows each':>11}{'fit (s)':>10}{'ratio':>8}{'us per row':>12}{'largest gap':>13}")
    for n_contexts in options.contexts:
        fit = statistics.median(times[n_contexts])
        each, micro = options.rows / n_contexts, 1e6 * fit / options.rows
        verdict = "" if gaps[n_contexts] <= options.tol else "  NOT CERTIFIED"
        print(
            f"{n_contexts:>9,}{each:>11,.0f}{fit:>10.2f}{fit / first:>8.2f}{micro:>12.2f}"
            f"{gaps[n_contexts]:>13.1e}{verdict}"
        )
    print(f"peak memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    return sum(gap > options.tol for gap in gaps.values())


if __name__ == "__main__":
    sys.exit(min(main(), 1))
