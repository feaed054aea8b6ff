"""The tables of the study of mixtures, from its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise import KLBall

Array = NDArray[np.float64]

MISLED = ", wrong reference"
"""What names of methods end in that were told of one source that less can be reached than is true."""

_BASIS = "ours, 4 epochs"
"""The method that others are compared with seed by seed."""

_RADIUS = 0.3
_N_MIXES = 1000


def random_mixes(tokens: Array, radius: float) -> Array:
    """Return mixes drawn evenly from all, or from those within a radius of the shares of the tokens."""
    rng, p_hat = np.random.default_rng(0), tokens / tokens.sum()
    drawn = rng.dirichlet(np.ones(len(tokens)), _N_MIXES)
    if np.isinf(radius):
        return drawn
    ball = KLBall(p_hat, radius)
    # Towards a random mix, to a random point of the way that is in the set.
    ways = []
    for mix in drawn:
        low, high = 0.0, 1.0
        for _ in range(30):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if ball.contains(p_hat + middle * (mix - p_hat)) else (low, middle)
        ways.append(p_hat + rng.uniform() ** (1.0 / (len(p_hat) - 1)) * low * (mix - p_hat))
    return np.array(ways)


def measures(tokens: Array, least: Array) -> dict[str, Callable[[Array], float]]:
    """Return what a run is judged by, each a function of its losses by source.

    Parameters
    ----------
    least : ndarray of shape (n_sources,)
        What can be reached in each source.
    """
    p_hat = tokens / tokens.sum()
    every, near = random_mixes(tokens, np.inf), random_mixes(tokens, _RADIUS)
    return {
        "worst source": lambda losses: float((losses - least).max()),
        "worst mix within .3 bits": lambda losses: float(KLBall(p_hat, _RADIUS).worst_case(losses - least).value),
        "mean by tokens": lambda losses: float(p_hat @ (losses - least)),
        "mean of sources": lambda losses: float((losses - least).mean()),
        "95% of all mixes": lambda losses: float(np.quantile(every @ (losses - least), 0.95)),
        "95% of mixes within .3 bits": lambda losses: float(np.quantile(near @ (losses - least), 0.95)),
    }


def sizes_of(results: dict[str, Any]) -> list[str]:
    """Return the sizes of models that there are results of."""
    return [size for size in ("tiny", "small", "large") if size in results]


def by_method(results: dict[str, Any], size: str) -> dict[str, dict[int, Array]]:
    """Return judged losses of every method, by source, for each seed."""
    found: dict[str, dict[int, Array]] = {}
    for run in results["runs"]:
        if run["size"] == size and not run["method"].endswith("proxy"):
            found.setdefault(run["method"], {})[run["seed"]] = np.array(run["judged"])
    return found


def _ranges(seeds: Sequence[Array]) -> list[str]:
    """Return medians over seeds of several values, and where they lie."""
    return [f"{np.median(values):.3f} ({min(values):.3f} to {max(values):.3f})" for values in np.transpose(seeds)]


def table(head: str, columns: Iterable[str], rows: dict[str, list[str]]) -> None:
    """Print a table as Markdown."""
    names = list(columns)
    print(f"\n| {head} | {' | '.join(names)} |\n|---|" + "---:|" * len(names))
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")


def printed(results: dict[str, Any]) -> None:
    """Print every table as Markdown."""
    sources = results["sources"]
    for size in sizes_of(results):
        about = results[size]
        tokens = np.array(about["text"])
        least = np.array(about["references"]["judged"])
        methods = by_method(results, size)
        judges = measures(tokens, least)
        judged = {
            name: {seed: np.array([judge(one) for judge in judges.values()]) for seed, one in losses.items()}
            for name, losses in methods.items()
        }
        print(f"\n### {about['parameters'] / 1e6:.3g} million parameters, {about['tokens'] / 1e6:.1f} million tokens")
        table("method", judges, {name: _ranges(list(found.values())) for name, found in judged.items()})
        basis = judged.pop(_BASIS, {})
        less = {
            name: _ranges([found[seed] - basis[seed] for seed in found if seed in basis])
            for name, found in judged.items()
            if found.keys() & basis.keys()
        }
        table(f"less {_BASIS}, seed by seed", judges, less)
        excess = {
            name: [f"{one:+.3f}" for one in np.median(list(losses.values()), 0) - least]
            for name, losses in methods.items()
        }
        table("excess", sources, {"what can be reached": [f"{one:.3f}" for one in least]} | excess)
        mixes: dict[str, list[Any]] = {}
        for run in results["runs"]:
            if run["size"] == size:
                mixes.setdefault(run["method"], []).append(np.mean(run["mixes"], 0))
        shares = {name: [f"{100 * one:.1f}" for one in np.mean(several, 0)] for name, several in mixes.items()}
        table("mean share, %", sources, shares)
