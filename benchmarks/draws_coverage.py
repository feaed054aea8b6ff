"""How often does a confidence set hold the true mix when rows come in groups, and groups resemble their neighbours?

Usage: python benchmarks/draws_coverage.py [--runs 2000] [--toy]

A day has a weather, and about twenty rows. The weather of the day before stays with some probability, and is drawn anew
otherwise; days may differ in size, and some of their rows may have a weather of their own. The true mix is known.
Each run draws a table, estimates how many draws of the weather its rows are worth (what ``draws="groups"`` does), sizes
the set by them, and looks whether the true mix is in it.

The first tables are about the settings that the estimate was made with; the last one is about others, which were not
looked at before: persistence that differs by context, a rare context, sizes with a long tail, spells of fixed length,
days whose shares scatter, weather that alternates, and mixes that persist for weeks under the noise of days.

Prints tables in markdown: coverage at .9 and at .99, by how the radius follows. Days counted as draws, and rows counted
as draws, are beside it for the limit of chi-squared.
"""

from __future__ import annotations

import argparse
import math
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

import counterpoise as cpo
from counterpoise.contexts import Contexts
from counterpoise.exceptions import CoverageWarning
from counterpoise.sets import RadiusMethod, draws_in_groups

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

LEVELS = (0.9, 0.99)
METHODS = tuple(name for name in ("agrawal", "calibrated") if name in get_args(RadiusMethod))
GROUPS = (20, 50, 200, 1000)


def zipf(n_contexts: int) -> tuple[float, ...]:
    """Return shares that fall like 1, 1/2, 1/3."""
    shares = 1.0 / np.arange(1, n_contexts + 1)
    return tuple(shares / shares.sum())


@dataclass(frozen=True)
class Setting:
    """Days with a weather.

    Parameters
    ----------
    name : str
    shares : tuple of float
        The true mix.
    n_days : int
    stays : float or tuple of float
        Probability that the weather of the day before stays, of each context.
    sizes : {"equal", "unequal", "long tail"}
        Rows of a day: 20; 1 to 40; a Pareto distribution with infinite variance, cut at 2,000.
    mixed : float
        Share of a day's rows whose weather is drawn anew from the mix.
    spell : int
        Days for which a weather lasts in any case.
    scatter : float
        Where it is positive, a day's rows are drawn from shares that scatter around those of its weather, the more, the
        smaller it is.
    chains : int
        A day's mix is the mean of so many weathers that come and go on their own: it wanders.
    """

    name: str
    shares: tuple[float, ...]
    n_days: int
    stays: float | tuple[float, ...] = 0.0
    sizes: str = "equal"
    mixed: float = 0.0
    spell: int = 1
    scatter: float = 0.0
    chains: int = 1

    def weather(self, rng: np.random.Generator) -> Codes:
        """Return the weather of each day."""
        p, n = np.array(self.shares), -(-self.n_days // self.spell) + 1
        stays = np.broadcast_to(self.stays, len(p))
        # Drawn anew so that the mix is stationary, whatever stays for how long.
        anew = p * (1.0 - stays) / float(p @ (1.0 - stays))
        weather, drawn, uniform = rng.choice(len(p), n, p=p), rng.choice(len(p), n, p=anew), rng.random(n)
        for day in range(1, n):
            last = weather[day - 1]
            weather[day] = last if uniform[day] < stays[last] else drawn[day]
        start = int(rng.integers(self.spell))
        return np.repeat(weather, self.spell)[start : start + self.n_days]

    def rows(self, rng: np.random.Generator) -> Codes:
        """Return the number of rows of each day."""
        if self.sizes == "unequal":
            return rng.integers(1, 41, self.n_days)
        if self.sizes == "long tail":
            return np.minimum(np.ceil(5.0 * rng.random(self.n_days) ** (-1 / 1.5)), 2000).astype(np.intp)
        return np.full(self.n_days, 20)

    def drawn(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the rows of each day in each context."""
        p, days = np.array(self.shares), np.arange(self.n_days)
        own = np.zeros((self.n_days, len(p)))
        for _ in range(self.chains):
            own[days, self.weather(rng)] += 1.0 / self.chains
        rows = self.rows(rng)
        centre = (1.0 - self.mixed) * own + self.mixed * p
        if self.scatter:
            centre = np.maximum(rng.gamma(self.scatter * centre + 1e-9), 1e-300)
            centre /= centre.sum(axis=1, keepdims=True)
        return rng.multinomial(rows, centre)


SCENES: dict[str, dict[str, Any]] = {
    "independent days": {},
    "weather stays .5": {"stays": 0.5},
    "stays .6": {"stays": 0.6},
    "stays .6, unequal days": {"stays": 0.6, "sizes": "unequal"},
    "stays .6, mixed days": {"stays": 0.6, "mixed": 0.5},
    "stays .7": {"stays": 0.7},
    "stays .8": {"stays": 0.8},
    "stays .9": {"stays": 0.9},
}
CONTEXTS = (3, 20)

OTHERS = (
    Setting("stays .6 in one context of five", (0.4, 0.15, 0.15, 0.15, 0.15), 300, (0.6, 0.0, 0.0, 0.0, 0.0)),
    Setting("stays .6 to 0, by context", (0.1,) * 10, 60, tuple(np.linspace(0.6, 0.0, 10)), "unequal"),
    Setting("two contexts, one of 10%", (0.9, 0.1), 200, 0.6),
    Setting("two contexts, one of 5%", (0.95, 0.05), 100, 0.6),
    Setting("independent, long tail of sizes", zipf(5), 200, sizes="long tail"),
    Setting("stays .5, long tail, mixed", zipf(10), 200, 0.5, "long tail", 0.7),
    Setting("spells of three days", zipf(4), 120, spell=3),
    Setting("shares of days scatter, stays .5", zipf(6), 100, 0.5, mixed=0.3, scatter=4.0),
    Setting("hardly any weather of the day", zipf(5), 50, 0.6, mixed=0.8),
    Setting("seven contexts, stays .55", (1 / 7,) * 7, 75, 0.55),
    Setting("weather of 30 days, most rows drawn anew", zipf(4), 365, 1 - 1 / 30, mixed=0.8),
    Setting("weather of 60 days, most rows drawn anew", zipf(4), 730, 1 - 1 / 60, mixed=0.8),
    Setting("the same, days of unequal size", zipf(4), 730, 1 - 1 / 60, "unequal", 0.8),
    Setting("mix wanders over 20 days", zipf(5), 365, 1 - 1 / 20, chains=6),
    Setting("mix wanders over 40 days", zipf(5), 730, 1 - 1 / 40, chains=6),
    Setting("mix wanders over 60 days, ten contexts", zipf(10), 730, 1 - 1 / 60, "unequal", chains=6),
    Setting("mix wanders over 40 days, few rows", (0.7, 0.3), 1000, 1 - 1 / 40, mixed=0.5, chains=6),
)


@dataclass(frozen=True)
class Coverage:
    """Of many runs of a setting.

    Attributes
    ----------
    draws : float
        The median of those that were estimated.
    by_method : dict
        From method to coverage at each level.
    """

    draws: float
    by_method: dict[str, tuple[float, ...]]

    def cell(self, method: str) -> str:
        """Return the coverages at both levels."""
        return " / ".join(f"{one:.3f}".lstrip("0") if one < 1 else "1" for one in self.by_method[method])


@cache
def nats(n_contexts: int, level: float, method: str, draws: float) -> float:
    """Return a radius; a method may take a moment to find it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        bits = cpo.confidence_radius(np.ones(n_contexts), level, method, draws=draws)  # type: ignore[arg-type]
    return bits * math.log(2.0)


def divergence(shares: Array, truth: Array) -> float:
    """Return the divergence of the truth from shares, in nats."""
    seen = shares > 0
    return float((shares[seen] * np.log(shares[seen] / truth[seen])).sum())


def covered(setting: Setting, n_runs: int) -> Coverage:
    """Run a setting; its draws follow from its name and size."""
    truth, days = np.array(setting.shares), np.arange(setting.n_days).astype("M8[D]")
    held: dict[str, list[list[bool]]] = {name: [] for name in (*METHODS, "days", "rows")}
    found = []
    for run in range(n_runs):
        rng = np.random.default_rng([run, setting.n_days, len(truth), zlib.crc32(setting.name.encode())])
        counts = setting.drawn(rng)
        at, contexts = np.nonzero(counts)
        draws = draws_in_groups(contexts, Contexts(days, at), counts[at, contexts])
        found.append(draws.effective)
        distance = divergence(counts.sum(axis=0) / counts.sum(), truth)
        # Rounded down, for a radius that is found once.
        used = {name: ("chi2", draws.rows if name == "rows" else float(setting.n_days)) for name in ("days", "rows")}
        used |= {name: (name, _rounded_down(draws.effective)) for name in METHODS}
        for name, (method, n) in used.items():
            held[name].append([distance <= nats(len(truth), level, method, n) for level in LEVELS])
    means = {name: tuple(np.mean(one, axis=0).tolist()) for name, one in held.items()}
    return Coverage(float(np.median(found)), means)


def _rounded_down(number: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(number)) - 2)
    return math.floor(number / unit + 1e-9) * unit


def by_size(method: str, rows: dict[tuple[str, int], list[Coverage]], sizes: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a table with a column for each number of days."""
    yield f"| {method} | contexts | " + " | ".join(f"{n:,} days" for n in sizes) + " |"
    yield "|---|---|" + "---|" * len(sizes)
    for (name, n_contexts), cells in rows.items():
        yield f"| {name} | {n_contexts} | " + " | ".join(one.cell(method) for one in cells) + " |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all settings, and print what was covered."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--toy", action="store_true", help="a few runs of a few settings")
    given = parser.parse_args(arguments)
    sizes, scenes, others = (GROUPS, SCENES, OTHERS)
    n_runs = given.runs
    if given.toy:
        sizes, others, n_runs = (20, 50), (OTHERS[0], OTHERS[7]), 5
        scenes = {name: SCENES[name] for name in ("independent days", "stays .6, mixed days")}
    asked = [
        Setting(name, zipf(n_contexts), n, **options)
        for name, options in scenes.items()
        for n_contexts in CONTEXTS
        for n in sizes
    ]
    together = Parallel(given.jobs, backend="multiprocessing")
    everything = together(delayed(covered)(setting, n_runs) for setting in (*asked, *others))
    rows: dict[tuple[str, int], list[Coverage]] = {}
    for setting, found in zip(asked, everything, strict=False):
        rows.setdefault((setting.name, len(setting.shares)), []).append(found)
    for method in (*METHODS, "days", "rows"):
        print("\n".join(by_size(method, rows, sizes)), end="\n\n")
    columns = (*METHODS, "days")
    print("| setting | days | draws | " + " | ".join(columns) + " |")
    print("|---|---|---|" + "---|" * len(columns))
    for setting, found in zip(others, everything[len(asked) :], strict=True):
        cells = " | ".join(found.cell(name) for name in columns)
        print(f"| {setting.name} | {setting.n_days} | {found.draws:.0f} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
