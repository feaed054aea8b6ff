"""What a path of 50 levels costs, in fits of the same model: medians of interleaved runs.

Usage: python benchmarks/confidence_path.py [repeats]
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence

import numpy as np

import counterpoise as cpo
from rows import targets

SIZES = [(10_000, 20, 10), (100_000, 30, 50), (500_000, 50, 100)]
MODELS = {
    "logistic": cpo.RobustLogisticRegression(radius="agrawal"),
    "squared": cpo.RobustLinearRegression(radius="agrawal"),
    "poisson": cpo.RobustPoissonRegressor(radius="agrawal"),
    "huber": cpo.RobustHuberRegressor(radius="agrawal"),
    "quantile": cpo.RobustQuantileRegressor(radius="agrawal"),
}
KINKED = ("huber", "quantile")


def data(name: str, n: int, d: int, n_contexts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of contexts of different sizes, each with coefficients of its own."""
    rng = np.random.default_rng(0)
    contexts = rng.choice(n_contexts, size=n, p=rng.dirichlet(np.full(n_contexts, 2.0)))
    X = rng.standard_normal((n, d))
    z = np.einsum("nd,nd->n", X, 0.3 * rng.standard_normal((n_contexts, d))[contexts])
    return X, targets(name, z, rng), contexts


def timed(call: Callable[[], object]) -> float:
    """Return the seconds a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main(repeats: int, sizes: Sequence[tuple[int, int, int]] = SIZES) -> None:
    """Print a ratio for every model and size."""
    warnings.simplefilter("ignore")
    print(f"{'model':<10}{'n':>9}{'d':>5}{'C':>5}{'fit (s)':>10}{'path (s)':>10}{'ratio':>8}{'largest gap':>13}")
    for n, d, n_contexts in sizes:
        for name, model in MODELS.items():
            if name in KINKED and n > 100_000:
                continue
            X, y, contexts = data(name, n, d, n_contexts)
            fits, paths, gap = [], [], 0.0
            for _ in range(repeats):
                fits.append(timed(lambda: model.fit(X, y, contexts=contexts)))  # noqa: B023
                start = time.perf_counter()
                path = cpo.confidence_path(model, X, y, contexts=contexts, levels=50)
                paths.append(time.perf_counter() - start)
                gap = max(gap, *(one.certificate_.relative_gap for one in path.models))
            fit, whole = statistics.median(fits), statistics.median(paths)
            print(
                f"{name:<10}{n:>9,}{d:>5}{n_contexts:>5}{fit:>10.3f}{whole:>10.3f}{whole / fit:>8.2f}{gap:>13.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
