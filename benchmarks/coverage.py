"""Whether what is said of data not seen is true as often as it says: coverage, false claims, power, with a known truth.

Usage: python benchmarks/coverage.py [--toy] [--jobs N] [--peers PYTHON] [bounds|differences|power|compare ...]

Rows are drawn from populations whose excess risks are known, and judged by ``excess_bounds``, ``excess_difference`` and
``compare``; beside them stand the percentile bootstrap of a largest excess and, with ``--peers`` (a Python that has
fairlearn), the bootstrap of fairlearn's ``MetricFrame``. Tables are printed as they go into the documentation.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy import stats

import counterpoise as cpo

Array = NDArray[np.float64]

RADIUS = 0.2
"""Bits, of the set of plausible mixes."""

MIXED = 8
"""Contexts up to which differences of worst mixes are tried."""

TOP = 0.2
"""The largest true excess; rows have a standard deviation of 1."""


def seeded(*names: Any) -> np.random.Generator:
    """Return draws that belong to these names, whatever else is run."""
    return np.random.default_rng(zlib.crc32(repr(names).encode()))


@dataclass(frozen=True)
class Sample:
    """Held-out differences between a model and a competitor."""

    excess: Array
    codes: NDArray[np.intp]
    groups: NDArray[np.intp] | None = None

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows in each context."""
        return np.bincount(self.codes)


def plain_sizes(n_contexts: int, size: int, _: np.random.Generator) -> NDArray[np.intp]:
    """Return as many rows for every context."""
    return np.full(n_contexts, size)


def unequal_sizes(n_contexts: int, size: int, _: np.random.Generator) -> NDArray[np.intp]:
    """Return a third of the rows for the worst context, and between this and five times as many for the others."""
    return np.r_[size // 3 + 1, np.rint(size * np.geomspace(0.5, 5.0, n_contexts - 1))].astype(np.intp)


def normal(rng: np.random.Generator, n: int) -> Array:
    """Return errors of standard deviation 1."""
    return rng.standard_normal(n)


def exponential(rng: np.random.Generator, n: int) -> Array:
    """Return errors that are skewed to the right."""
    return rng.exponential(size=n) - 1.0


def left(rng: np.random.Generator, n: int) -> Array:
    """Return errors that are skewed to the left."""
    return 1.0 - rng.exponential(size=n)


def student(rng: np.random.Generator, n: int) -> Array:
    """Return errors with the tails of Student's t with 3 degrees of freedom."""
    return rng.standard_t(3, size=n) / np.sqrt(3.0)


def errors_of_classes(rng: np.random.Generator, n: int) -> Array:
    """Return errors of a difference of 0-1 losses, most of which agree."""
    return np.asarray(rng.choice([-1.0, 0.0, 1.0], size=n, p=[0.08, 0.84, 0.08]))


@dataclass(frozen=True)
class Situation:
    """True excesses, numbers of rows and errors."""

    excess: Callable[[int], Array]
    error: Callable[[np.random.Generator, int], Array] = normal
    sizes: Callable[[int, int, np.random.Generator], NDArray[np.intp]] = plain_sizes
    group: int = 0

    def drawn(self, n_contexts: int, size: int, rng: np.random.Generator) -> Sample:
        """Draw a sample; with groups, half of the variance is common to a group, which spans contexts."""
        codes = np.repeat(np.arange(n_contexts), self.sizes(n_contexts, size, rng))
        error = self.error(rng, len(codes))
        if not self.group:
            return Sample(self.excess(n_contexts)[codes] + error, codes)
        groups = rng.permutation(len(codes)) // self.group
        common = rng.standard_normal(groups.max() + 1)[groups]
        return Sample(self.excess(n_contexts)[codes] + np.sqrt(0.5) * (error + common), codes, groups)


def ties(n_contexts: int) -> Array:
    """All contexts alike."""
    return np.full(n_contexts, TOP)


def peak(n_contexts: int, gap: float = 0.6) -> Array:
    """One context above the others."""
    return np.r_[TOP, np.full(n_contexts - 1, TOP - gap)]


def nothing(n_contexts: int) -> Array:
    """No excess anywhere."""
    return np.zeros(n_contexts)


SITUATIONS = {
    "ties": Situation(ties),
    "one peak": Situation(peak),
    "no excess": Situation(nothing),
    "unequal sizes, ties": Situation(ties, sizes=unequal_sizes),
    "unequal sizes, peak": Situation(peak, sizes=unequal_sizes),
    "t(3), ties": Situation(ties, student),
    "t(3), peak": Situation(peak, student),
    "exponential, peak": Situation(peak, exponential),
    "left-skewed, ties": Situation(ties, left),
    "0-1 losses, ties": Situation(ties, errors_of_classes),
    "groups of 5, ties": Situation(ties, group=5),
    "groups of 5, peak": Situation(peak, group=5),
}


def mixes(sizes: NDArray[np.intp]) -> cpo.KLBall:
    """Return the plausible mixes of a sample."""
    return cpo.KLBall(sizes / sizes.sum(), RADIUS)


def bounds_of(name: str, n_contexts: int, size: int, run: int) -> list[float]:
    """Return misses, lengths and biases of one run: worst context, worst mix, then the length of an oracle."""
    situation = SITUATIONS[name]
    sample = situation.drawn(n_contexts, size, seeded(name, n_contexts, size, run))
    truth, mix = situation.excess(n_contexts), mixes(sample.sizes)
    found = cpo.metrics.excess_bounds(
        sample.excess, np.zeros(len(sample.excess)), sample.codes, groups=sample.groups, mix=mix
    )
    worst, plausible = float(truth.max()), float(mix.worst_case(truth).value)
    # An oracle knows which context is worst, and needs an interval for that one only.
    own = sample.excess[sample.codes == int(truth.argmax())]
    inflation = 1.0 if sample.groups is None else _inflation(sample, int(truth.argmax()))
    oracle = 2.0 * stats.t.ppf(0.975, len(own) - 1) * stats.sem(own) * inflation
    raw = max(sample.excess[sample.codes == c].mean() for c in range(n_contexts))
    return [
        found.lower > worst,
        found.upper < worst,
        found.mix_lower > plausible,
        found.mix_upper < plausible,
        found.upper - found.lower,
        oracle,
        found.mix_upper - found.mix_lower,
        found.estimate - worst,
        raw - worst,
    ]


def _inflation(sample: Sample, context: int) -> float:
    """Return how much longer the groups of a context make its interval."""
    assert sample.groups is not None
    own = sample.codes == context
    rows = sample.excess[own] - sample.excess[own].mean()
    sums = np.bincount(np.unique(sample.groups[own], return_inverse=True)[1], rows)
    return float(np.sqrt(np.square(sums).sum() / np.square(rows).sum()))


def bootstrap_of(name: str, n_contexts: int, size: int, run: int, n_resamples: int = 300) -> list[float]:
    """Return whether a percentile bootstrap of the largest mean misses the truth, below and above."""
    situation = SITUATIONS[name]
    rng = seeded(name, n_contexts, size, run)
    sample = situation.drawn(n_contexts, size, rng)
    largest = np.full(n_resamples, -np.inf)
    for c in range(n_contexts):
        own = sample.excess[sample.codes == c]
        drawn = rng.integers(0, len(own), (n_resamples, len(own)))
        largest = np.maximum(largest, own[drawn].mean(axis=1))
    low, high = np.quantile(largest, [0.025, 0.975])
    worst = float(situation.excess(n_contexts).max())
    return [low > worst, high < worst]


def bounds(options: argparse.Namespace) -> None:
    """Print coverage of the worst context and of the worst mix."""
    sizes, counts = ((30,), (3,)) if options.toy else ((30, 100, 1000), (3, 8, 30, 100))
    names = ["ties", "one peak"] if options.toy else list(SITUATIONS)
    print(
        "\n| rows are | contexts | rows each | worst context: coverage | too high, too low | length / oracle "
        "| worst mix: coverage | too high, too low | bias in estimate / raw maximum |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    for name, n_contexts, size in product(names, counts, sizes):
        plain = name in ("ties", "one peak")
        if (size == 100 and (n_contexts == 100 or not plain)) or (size * n_contexts == 100_000 and not plain):
            continue
        n_runs = options.runs(n_contexts)
        found = np.array(spread(options, bounds_of, [(name, n_contexts, size, run) for run in range(n_runs)]))
        above, below, mix_above, mix_below, length, oracle, _, bias, raw = found.mean(axis=0)
        print(
            f"| {name} | {n_contexts} | {size} | {1 - above - below:.3f} | {above:.3f}, {below:.3f} "
            f"| {length / oracle:.2f} | {1 - mix_above - mix_below:.3f} | {mix_above:.3f}, {mix_below:.3f} "
            f"| {bias:+.3f} / {raw:+.3f} |",
            flush=True,
        )
    print(
        "\n| rows are | contexts | rows each | percentile bootstrap: coverage | above, below |\n|---|---|---|---|---|"
    )
    for name, n_contexts in product(["ties", "one peak"], counts):
        runs = range(options.runs(n_contexts) // 2)
        above, below = np.mean(spread(options, bootstrap_of, [(name, n_contexts, 100, run) for run in runs]), axis=0)
        print(f"| {name} | {n_contexts} | 100 | {1 - above - below:.3f} | {above:.3f}, {below:.3f} |", flush=True)
    if options.peers is not None:
        fairlearn(options, counts)


def fairlearn(options: argparse.Namespace, counts: tuple[int, ...]) -> None:
    """Print the coverage of fairlearn's bootstrap of a group maximum."""
    print("\n| rows are | contexts | rows each | MetricFrame.group_max_ci: coverage | too high, too low |")
    print("|---|---|---|---|---|")
    for name, n_contexts in product(["ties", "one peak"], counts):
        if n_contexts > 30:
            continue
        means = SITUATIONS[name].excess(n_contexts).tolist()
        asked = [str(options.peers), str(Path(__file__).with_name("coverage_peer.py")), repr(means), "100"]
        above, below = map(float, subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split())
        print(f"| {name} | {n_contexts} | 100 | {1 - above - below:.3f} | {above:.3f}, {below:.3f} |", flush=True)


PAIRS: dict[str, Callable[[int], tuple[Array, Array]]] = {
    "ties, ties": lambda n: (ties(n), ties(n)),
    "ties, peak": lambda n: (ties(n), peak(n)),
    "peak, ties": lambda n: (peak(n), ties(n)),
    "peak, another peak": lambda n: (peak(n), peak(n)[::-1]),
}


def two_methods(first: Array, second: Array, size: int, rng: np.random.Generator) -> tuple[Array, Array, NDArray[Any]]:
    """Return the losses of two methods, three quarters of whose variance is common, and contexts."""
    codes = np.repeat(np.arange(len(first)), size)
    common = np.sqrt(0.75) * rng.standard_normal(len(codes))
    losses, others = (means[codes] + common + 0.5 * rng.standard_normal(len(codes)) for means in (first, second))
    return losses, others, codes


def difference_of(name: str, n_contexts: int, size: int, run: int) -> list[float]:
    """Return false claims of one run, for the worst context and the worst mix, and those of a bootstrap."""
    first, second = PAIRS[name](n_contexts)
    rng = seeded(name, n_contexts, size, run)
    losses, others, codes = two_methods(first, second, size, rng)
    # Differences of worst mixes take a second or so with many contexts: they are tried with few.
    mix = mixes(np.bincount(codes)) if n_contexts <= MIXED else cpo.KLBall(first * 0.0 + 1.0 / n_contexts, np.inf)
    found = cpo.metrics.excess_difference(losses, others, np.zeros(len(codes)), codes, mix=mix)
    truth = float(mix.worst_case(first).value - mix.worst_case(second).value)
    resampled = np.full((2, 300), -np.inf)
    for c in range(n_contexts):
        drawn = rng.integers(0, size, (300, size))
        for k, rows in enumerate((losses, others)):
            resampled[k] = np.maximum(resampled[k], rows[codes == c][drawn].mean(axis=1))
    low, high = np.quantile(resampled[0] - resampled[1], [0.025, 0.975])
    return [found.upper < 0, found.lower > 0, found.mix_upper < truth, found.mix_lower > truth, high < 0, low > 0]


def shifted_of(n_contexts: int, size: int, errors: float, run: int) -> list[float]:
    """Return whether a true difference of so many paired standard errors is found, where one context peaks."""
    step = errors * np.sqrt(0.5 / size)
    first, second = peak(n_contexts, 0.4), peak(n_contexts, 0.4) + np.eye(n_contexts)[0] * step
    losses, others, codes = two_methods(first, second, size, seeded("shift", n_contexts, size, errors, run))
    mix = mixes(np.bincount(codes)) if n_contexts <= MIXED else None
    found = cpo.metrics.excess_difference(losses, others, np.zeros(len(codes)), codes, mix=mix)
    return [found.upper < 0, found.mix_upper < 0]


def differences(options: argparse.Namespace) -> None:
    """Print how often a difference is claimed that is not there, and how often one that is there is found."""
    counts, sizes = ((3,), (50,)) if options.toy else ((3, 8, 30, 100), (100,))
    print(
        "\n| true excesses of the two | contexts | rows each | false lowers, raises | bootstrap: false lowers, raises "
        "| worst mix: truth above, below |\n|---|---|---|---|---|---|"
    )
    for name, n_contexts, size in product(PAIRS, counts, sizes):
        runs = range(options.runs(n_contexts) // 2)
        found = np.mean(spread(options, difference_of, [(name, n_contexts, size, run) for run in runs]), axis=0)
        lowers, raises, above, below, wrong_lowers, wrong_raises = found
        print(
            f"| {name} | {n_contexts} | {size} | {lowers:.3f}, {raises:.3f} | {wrong_lowers:.3f}, {wrong_raises:.3f} "
            f"| {f'{above:.3f}, {below:.3f}' if n_contexts <= MIXED else '-'} |",
            flush=True,
        )
    print("\n| contexts | rows each | difference in standard errors | found, worst context | found, worst mix |")
    print("|---|---|---|---|---|")
    for n_contexts, errors in product(counts, (2, 3, 5) if options.toy else (2, 3, 4, 5)):
        runs = range(options.runs(n_contexts) // 4)
        found = np.mean(spread(options, shifted_of, [(n_contexts, 200, errors, run) for run in runs]), axis=0)
        mixed = f"{found[1]:.2f}" if n_contexts <= MIXED else "-"
        print(f"| {n_contexts} | 200 | {errors} | {found[0]:.2f} | {mixed} |", flush=True)


def planted_of(n_contexts: int, size: int, errors: float, run: int) -> list[float]:
    """Return whether one context that is worse by so many standard errors is found, and by Bonferroni's test."""
    codes = np.repeat(np.arange(n_contexts), size)
    rng = seeded("planted", n_contexts, size, errors, run)
    # The others are better than their competitors by one standard error: one model suits them.
    means = np.r_[errors, -np.ones(n_contexts - 1)] / np.sqrt(size) if errors else np.zeros(n_contexts)
    excess = means[codes] + rng.standard_normal(len(codes))
    found = cpo.metrics.excess_bounds(excess, np.zeros(len(codes)), codes)
    scores = excess.reshape(n_contexts, size)
    p = stats.ttest_1samp(scores, 0.0, axis=1, alternative="greater").pvalue
    return [found.p_value <= 0.05, found.lower > 0, p.min() <= 0.05 / n_contexts]


def power(options: argparse.Namespace) -> None:
    """Print how often a context that is truly worse is found."""
    print(
        "\n| contexts | rows each | worse by standard errors | p <= .05 | lower end above 0 | Bonferroni |\n"
        "|---|---|---|---|---|---|"
    )
    for n_contexts, errors in product((3,) if options.toy else (3, 8, 30, 100), (0, 2, 3, 4, 5)):
        runs = range(options.runs(n_contexts))
        found = np.mean(spread(options, planted_of, [(n_contexts, 100, errors, run) for run in runs]), axis=0)
        print(f"| {n_contexts} | 100 | {errors} | {found[0]:.2f} | {found[1]:.2f} | {found[2]:.2f} |", flush=True)


WORLDS = {
    "one model for all": (np.zeros(4), (200, 100, 60, 40)),
    "a rare context differs": (np.array([0.0, 0.0, 0.0, 2.5]), (500, 250, 150, 100)),
    "all differ": (np.array([-0.5, 0.0, 0.5, 1.0]), (150, 150, 150, 150)),
}


class Keeping(cpo.RobustLinearRegression):
    """A linear regression that remembers its fits, so that their population risks can be computed."""

    fits: list[Any] = []  # noqa: RUF012

    def fit(self, X: Any, y: Any, contexts: Any = None, sample_weight: Any = None) -> Any:
        """Fit, and keep the fit."""
        super().fit(X, y, contexts, sample_weight)
        Keeping.fits.append(self)
        return self


def compared_of(name: str, run: int) -> list[float]:
    """Return misses of one comparison, of what it says of the models of its folds."""
    slopes, sizes = WORLDS[name]
    rng = seeded(name, run)
    codes = np.repeat(np.arange(4), sizes)
    X = rng.standard_normal((len(codes), 3))
    y = X[:, 0] + slopes[codes] * X[:, 1] + rng.standard_normal(len(codes))
    Keeping.fits.clear()
    methods = ["robust", "erm"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = cpo.compare(X, y, codes, estimator=Keeping(reference="cross-fit", radius=0.1), methods=methods)
    fits = list(Keeping.fits)
    folds = _folds(codes, y)
    shares = np.array([np.bincount(codes[folds == k], minlength=4) / np.bincount(codes) for k in range(5)])

    def risks(model: Any) -> Array:
        # Half the squared error of a linear model, with features that are independent and standard normal.
        off = np.array([[1.0, slope, 0.0] for slope in slopes]) - model.coef_
        return 0.5 * (1.0 + model.intercept_**2 + np.square(off).sum(axis=1))

    # Folds come one after the other, each with both methods and then a model of every context's own.
    risk = {
        method: sum(shares[fold] * risks(fits[6 * fold + k]) for fold in range(5)) for k, method in enumerate(methods)
    }
    own = np.array([sum(shares[fold][c] * risks(fits[6 * fold + 2 + c])[c] for fold in range(5)) for c in range(4)])
    excess = {method: risk[method] - np.minimum(own, risk["erm"]) for method in methods}
    mix = cpo.KLBall(np.bincount(codes) / len(codes), 0.1)
    found: list[float] = []
    rows = {row["method"]: row for row in result.summary.rows()}
    plausible = {method: float(mix.worst_case(excess[method]).value) for method in methods}
    for method in methods:
        row = rows[method]
        for end, truth in (("mix_excess", plausible[method]), ("worst_excess", float(excess[method].max()))):
            found += [not row[f"{end}_low"] - 1e-9 <= truth <= row[f"{end}_high"] + 1e-9]
    change = plausible["robust"] - plausible["erm"]
    row = rows["robust"]
    found += [not row["mix_excess_change_low"] <= change <= row["mix_excess_change_high"]]
    found += [row["mix_excess_change_high"] < 0 <= change, row["mix_excess_change_low"] > 0 >= change]
    found += [row["mix_excess_change_high"] < 0, row["mix_excess_change_low"] > 0]
    return found


def _folds(codes: NDArray[np.intp], y: Array) -> NDArray[np.intp]:
    from counterpoise.core.references import folds_within

    return folds_within(codes, y, 5)


def compare(options: argparse.Namespace) -> None:
    """Print how often the intervals of a whole comparison hold."""
    print(
        "\n| world | coverage: robust in the worst mix, in the worst context | of ERM | of their difference in the mix "
        "| false lowers, raises | lowers, raises |\n|---|---|---|---|---|---|"
    )
    for name in list(WORLDS)[:1] if options.toy else WORLDS:
        runs = range(2 if options.toy else 150)
        missed = np.mean(spread(options, compared_of, [(name, run) for run in runs]), axis=0)
        hit = 1.0 - missed
        print(
            f"| {name} | {hit[0]:.3f}, {hit[1]:.3f} | {hit[2]:.3f}, {hit[3]:.3f} | {hit[4]:.3f} "
            f"| {missed[5]:.3f}, {missed[6]:.3f} | {missed[7]:.2f}, {missed[8]:.2f} |",
            flush=True,
        )


def spread(options: argparse.Namespace, run: Callable[..., Any], jobs: list[tuple[Any, ...]]) -> list[Any]:
    """Run jobs on as many processes as asked for, many to a task."""
    batches = [jobs[k :: max(1, 4 * options.jobs)] for k in range(max(1, 4 * options.jobs))]

    def all_of(batch: list[tuple[Any, ...]]) -> list[Any]:
        return [run(*job) for job in batch]

    parts = Parallel(n_jobs=options.jobs)(delayed(all_of)(batch) for batch in batches)
    return list(_joined(parts))


def _joined(parts: list[list[Any]]) -> Iterator[Any]:
    for part in parts:
        yield from part


STUDIES = {"bounds": bounds, "differences": differences, "power": power, "compare": compare}


def main(arguments: list[str]) -> int:
    """Print the tables of the studies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="|".join(STUDIES))
    parser.add_argument("--toy", action="store_true", help="a few runs of a few cells, to see that all works")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--peers", type=Path, help="a Python that has fairlearn")
    options = parser.parse_args(arguments)
    if not set(options.studies) <= set(STUDIES):
        parser.error(f"studies are {', '.join(STUDIES)}")
    per_run = {3: 1000, 8: 800, 30: 300, 100: 200}
    options.runs = lambda n_contexts: 8 if options.toy else per_run[n_contexts]
    for name in options.studies or STUDIES:
        start = time.perf_counter()
        print(f"\n## {name}")
        STUDIES[name](options)
        print(f"\n({name}: {time.perf_counter() - start:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
