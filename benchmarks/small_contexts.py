"""Many small contexts beside one that is truly badly served: which references, and which adjustment?

Usage: python benchmarks/small_contexts.py [--seeds 100] [--bad-rows 300] [--toy]

Two large contexts and twenty small ones share their coefficients, so one model could serve all of them perfectly; one
context of moderate size has coefficients of its own. Small contexts have more noise, and by chance each seems to need a
model of its own. Features are Gaussian, hence the risk of a model in the population is known: in closed form for least
squares, by quadrature for logistic regression. Excess is that above the best possible model of each context.

Prints a table in markdown: mean and standard error over seeds of the largest excess of any context and of the mean
excess in the mix of the data, and in how many seeds the largest excess is below that of empirical risk minimisation.
"""

from __future__ import annotations

import argparse
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

import counterpoise as cpo
from counterpoise.exceptions import SmallContextWarning

Array = NDArray[np.float64]

PLAIN = np.array([1.0, -0.5, 0.5, 0.0, 0.0])
BAD = np.array([-0.5, -0.5, 0.5, 1.0, 0.0])
QUADRATURE = np.polynomial.hermite_e.hermegauss(60)

SETS: dict[str, dict[str, Any]] = {"confidence=1": {"confidence": 1.0}, 'radius="agrawal"': {"radius": "agrawal"}}
REFERENCES = ("in-sample", "cross-fit", "shrunk")
ADJUSTMENTS = (None, "standard-error", 1.0)


@dataclass(frozen=True)
class World:
    """Contexts with known coefficients.

    Parameters
    ----------
    bad_rows : int
        Rows of the context that differs.
    large : tuple of int
        Rows of the contexts that are large.
    n_small : int
    """

    bad_rows: int = 300
    large: tuple[int, ...] = (2000, 1000)
    n_small: int = 20

    def drawn(self, kind: str, seed: int) -> Sample:
        """Return rows of every context; each kind of model has draws of its own."""
        rng = np.random.default_rng([seed, zlib.crc32(kind.encode())])
        sizes = np.array([*self.large, self.bad_rows, *rng.integers(20, 31, self.n_small)])
        codes = np.repeat(np.arange(len(sizes)), sizes)
        bad, small = len(self.large), codes > len(self.large)
        coef = np.tile(PLAIN, (len(sizes), 1))
        coef[bad] = BAD
        X = rng.standard_normal((len(codes), len(PLAIN)))
        z = np.einsum("nd,nd->n", X, coef[codes])
        if kind == "linear":
            y = z + np.where(small, 2.0, 1.0) * rng.standard_normal(len(z))
        else:
            y = (rng.random(len(z)) < expit(z)).astype(np.float64)
        return Sample(kind, X, y, codes, coef)


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows, and the truth about them."""

    kind: str
    X: Array
    y: Array
    codes: NDArray[np.intp]
    coef: Array

    def excess(self, model: Any) -> Array:
        """Return the excess risk of a model in every context, in the population."""
        w, intercept = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
        if self.kind == "linear":
            return 0.5 * (np.sum((w - self.coef) ** 2, axis=1) + intercept**2)
        distinct, which = np.unique(self.coef, axis=0, return_inverse=True)
        return np.array([_divergence(w, intercept, one) for one in distinct])[which.ravel()]


def _divergence(w: Array, intercept: float, truth: Array) -> float:
    """Return the mean divergence of a logistic model's probabilities from the true ones, in nats."""
    (u, weight_u), (v, weight_v) = QUADRATURE, QUADRATURE
    size = float(np.linalg.norm(truth))
    along = float(w @ truth) / size
    across = float(np.sqrt(max(w @ w - along**2, 0.0)))
    true, found = (size * u)[:, None], along * u[:, None] + across * v + intercept
    p = expit(true)
    rows = p * (log_expit(true) - log_expit(found)) + (1.0 - p) * (log_expit(-true) - log_expit(-found))
    return float(weight_u @ rows @ weight_v / (2.0 * np.pi))


@dataclass
class Column:
    """What one method reached, seed by seed."""

    worst: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)


def methods() -> Iterator[tuple[tuple[str, str, str], dict[str, Any]]]:
    """Yield the name of every method, in three parts, and its parameters."""
    yield ("ERM", "", ""), {"radius": 0.0}
    yield ("inverse frequency", "", ""), {"radius": 0.0}
    for (name, size), reference, adjust in product(SETS.items(), REFERENCES, ADJUSTMENTS):
        yield (name, reference, str(adjust)), {**size, "reference": reference, "adjust": adjust}


def study(world: World, kind: str, n_seeds: int) -> dict[tuple[str, str, str], Column]:
    """Fit every method to every seed's sample."""
    found: dict[tuple[str, str, str], Column] = {name: Column() for name, _ in methods()}
    estimator = cpo.RobustLinearRegression if kind == "linear" else cpo.RobustLogisticRegression
    for seed in range(n_seeds):
        sample = world.drawn(kind, seed)
        counts = np.bincount(sample.codes)
        for name, options in methods():
            weight = 1.0 / counts[sample.codes] if name[0] == "inverse frequency" else None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SmallContextWarning)
                model = estimator(**options).fit(sample.X, sample.y, contexts=sample.codes, sample_weight=weight)
            excess = sample.excess(model)
            found[name].worst.append(float(excess.max()))
            found[name].mean.append(float(counts @ excess / counts.sum()))
    return found


def table(found: dict[str, dict[tuple[str, str, str], Column]]) -> str:
    """Return the results in markdown, a row per method."""
    kinds = list(found)
    head = ["set", "reference", "adjust"]
    head += [f"{kind}: {what}" for kind in kinds for what in ("worst excess", "mean excess", "beats ERM")]
    lines = [head, ["---"] * len(head)]
    for name, _ in methods():
        cells = list(name)
        for kind in kinds:
            column, erm = found[kind][name], found[kind]["ERM", "", ""]
            wins = int(np.sum(np.array(column.worst) < np.array(erm.worst)))
            cells += [_with_error(column.worst), _with_error(column.mean)]
            cells += ["" if column is erm else f"{100 * wins / len(erm.worst):.0f}%"]
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _with_error(values: list[float]) -> str:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.4f} ± {error:.4f}"


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--bad-rows", type=int, default=300)
    parser.add_argument("--toy", action="store_true", help="two seeds of a few contexts, to see that it runs")
    asked = parser.parse_args()
    world, n_seeds = World(asked.bad_rows), asked.seeds
    if asked.toy:
        world, n_seeds = World(60, (200,), 3), 2
    print(table({kind: study(world, kind, n_seeds) for kind in ("linear", "logistic")}))


if __name__ == "__main__":
    main()
