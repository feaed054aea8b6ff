"""Print the tables of the study of mixtures.

Usage: python benchmarks/mixture_tables.py RESULTS (RESULTS is the results.json of benchmarks/mixtures.py)
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from counterpoise import KLBall

Array = NDArray[np.float64]

MISLED = ", wrong reference"
"""What names of methods end in that were told of one source that less can be reached than is true."""

_BASIS = "ours, 4 epochs"
"""The method that others are compared with seed by seed."""

_RADIUS = 0.3
_N_MIXES = 1000

_STEPS = 100
"""Of a chain, after which nothing is left of where it began."""


def random_mixes(tokens: Array, radius: float) -> Array:
    """Return mixes drawn evenly from all, or from those within a radius of the shares of the tokens."""
    rng, p_hat = np.random.default_rng(0), tokens / tokens.sum()
    if np.isinf(radius):
        return rng.dirichlet(np.ones(len(tokens)), _N_MIXES)
    # Hit and run: chains side by side, each of which goes to a random point of a random line through where it is.
    mixes = np.tile(p_hat, (_N_MIXES, 1))
    for _ in range(_STEPS):
        way = rng.normal(size=mixes.shape) * np.sqrt(p_hat)
        way -= p_hat * way.sum(1, keepdims=True)
        ends = [_farthest(p_hat, radius, mixes, sign * way) * sign for sign in (-1.0, 1.0)]
        mixes = mixes + rng.uniform(*ends) * way
    return mixes


_drawn = cache(lambda shares, radius: random_mixes(np.array(shares), radius))


def _farthest(p_hat: Array, radius: float, mixes: Array, way: Array) -> Array:
    """Return how far each mix can go on its way within the radius."""
    with np.errstate(divide="ignore"):
        high = np.where(way < 0.0, -mixes / way, np.inf).min(1, keepdims=True)
    low = np.zeros_like(high)
    for _ in range(30):
        middle = 0.5 * (low + high)
        is_near = rel_entr(p_hat, mixes + middle * way).sum(1, keepdims=True) <= radius * np.log(2.0)
        low, high = np.where(is_near, middle, low), np.where(is_near, high, middle)
    return low


def measures(tokens: Array, least: Array) -> dict[str, Callable[[Array], float]]:
    """Return what a run is judged by, each a function of its losses by source.

    Parameters
    ----------
    least : ndarray of shape (n_sources,)
        What can be reached in each source.
    """
    p_hat = tokens / tokens.sum()
    every, near = (_drawn(tuple(p_hat.tolist()), radius) for radius in (np.inf, _RADIUS))
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every table again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    printed(json.loads(parser.parse_args(arguments).results.read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
