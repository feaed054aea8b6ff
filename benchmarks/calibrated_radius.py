"""Whether the calibrated radius covers at mixes that its table was not made from, and what it saves.

Usage: python benchmarks/calibrated_radius.py [--toy] [--jobs N] [--mixes N] [--runs N] [coverage|hunt|size ...]

``coverage`` draws counts from mixes of many kinds, 2 to 1,000 contexts and 10 to 10,000,000 draws, and counts how often
the set holds the mix; where that is least it is counted again, with fresh draws. ``hunt`` searches for mixes that are
covered as rarely as possible, and counts again at what it found. ``size`` prints the radius beside the others.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy import special

import counterpoise as cpo

Array = NDArray[np.float64]

CONFIDENCES = (0.9, 0.95, 0.99)


def seeded(*names: Any) -> np.random.Generator:
    """Return draws that belong to these names, whatever else is run."""
    return np.random.default_rng(zlib.crc32(repr(names).encode()))


# --- mixes ----------------------------------------------------------------------------------------------------


def dirichlet(n_contexts: int, _: int, rng: np.random.Generator) -> Array:
    """Return a mix of any concentration."""
    return rng.dirichlet(np.full(n_contexts, 10.0 ** rng.uniform(-1.5, 2.0)))


def geometric(n_contexts: int, _: int, rng: np.random.Generator) -> Array:
    """Return shares that fall by the same factor."""
    return rng.uniform(0.3, 0.999) ** np.arange(n_contexts)


def near_uniform(n_contexts: int, _: int, rng: np.random.Generator) -> Array:
    """Return shares that are nearly equal."""
    return np.exp(rng.uniform(0.0, 0.5) * rng.standard_normal(n_contexts))


def dominated(n_contexts: int, _: int, rng: np.random.Generator) -> Array:
    """Return a mix with one context far ahead of the others, which are equal."""
    share = 1.0 - 10.0 ** rng.uniform(-3.0, -0.3)
    return np.r_[share, np.full(n_contexts - 1, (1.0 - share) / (n_contexts - 1))]


def rare(n_contexts: int, n: int, rng: np.random.Generator) -> Array:
    """Return a mix in which some contexts expect the same 1 to 10 draws and the others share the rest."""
    number = int(rng.integers(1, n_contexts))
    expected = min(rng.uniform(1.0, 10.0), 0.9 * n / number)
    rest = (n - number * expected) / (n_contexts - number)
    return np.r_[np.full(number, expected), np.full(n_contexts - number, rest)]


def all_rare(n_contexts: int, n: int, rng: np.random.Generator) -> Array:
    """Return a mix in which all contexts but one expect 1 to 10 draws, not quite the same."""
    expected = min(10.0 ** rng.uniform(0.0, 1.0), 0.95 * n / n_contexts)
    others = expected * np.exp(rng.uniform(0.0, 0.3) * rng.standard_normal(n_contexts - 1))
    return np.r_[others, max(n - others.sum(), expected)]


KINDS: dict[str, Callable[[int, int, np.random.Generator], Array]] = {
    "Dirichlet": dirichlet,
    "geometric": geometric,
    "nearly uniform": near_uniform,
    "one dominates": dominated,
    "some contexts rare": rare,
    "all but one rare": all_rare,
}


@dataclass(frozen=True)
class Case:
    """A mix and a number of draws from it."""

    kind: str
    p: Array
    n: int

    @property
    def n_contexts(self) -> int:
        """How many contexts there are."""
        return len(self.p)

    def radii(self, method: Any = "calibrated") -> Array:
        """Return the radius in nats, times the draws, for each of ``CONFIDENCES``."""
        counts = np.full(self.n_contexts, self.n / self.n_contexts)
        bits = [cpo.confidence_radius(counts, level, method) for level in CONFIDENCES]
        return np.array(bits) * self.n * math.log(2.0)

    def coverage(self, runs: int, rng: np.random.Generator) -> Array:
        """Return how often the set holds the mix, for each of ``CONFIDENCES``."""
        values = self.statistic(runs, rng)
        return np.array([(values <= radius).mean() for radius in self.radii()])

    def statistic(self, runs: int, rng: np.random.Generator) -> Array:
        """Draw ``n D(p_hat || p)``, in nats."""
        p = np.maximum(self.p, 1e-300)
        batch = max(1, 2_000_000 // self.n_contexts)
        values = []
        for start in range(0, runs, batch):
            counts = rng.multinomial(self.n, self.p, size=min(batch, runs - start)).astype(float)
            values.append(special.xlogy(counts, counts / (self.n * p)).sum(axis=1))
        return np.concatenate(values)


def made(index: int) -> Case:
    """Return one of the mixes of the study."""
    rng = seeded("mix", index)
    kind = list(KINDS)[index % len(KINDS)]
    n_contexts = round(2.0 * 500.0 ** rng.random())
    n = round(10.0 * 1e6 ** rng.random())
    p = KINDS[kind](n_contexts, n, rng)
    return Case(kind, p / p.sum(), n)


def errors(coverage: Array, runs: int) -> Array:
    """Return how many standard errors coverage lies above what was asked."""
    asked = np.array(CONFIDENCES)
    return (coverage - asked) / np.sqrt(asked * (1.0 - asked) / runs)


# --- studies --------------------------------------------------------------------------------------------------


def judged(case: Case, runs: int, again: int, name: Any) -> tuple[Case, Array, Array, int]:
    """Return coverage and its distance from what was asked; counted again, with fresh draws, where that is short."""
    found = case.coverage(runs, seeded("runs", name))
    if errors(found, runs).min() < 0.0:
        found, runs = case.coverage(again, seeded("again", name)), again
    return case, found, errors(found, runs), runs


def coverage(mixes: int, runs: int, jobs: int) -> None:
    """Print the least coverage by kind of mix."""
    done = Parallel(jobs)(delayed(judged)(made(i), runs, 10 * runs, i) for i in range(mixes))
    print(f"\n{mixes} mixes, {runs:,} draws of counts each, {10 * runs:,} where the first were short of nominal.\n")
    print("| mixes | number | least coverage at .90 | at .95 | at .99 | lowest, in standard errors from nominal |")
    print("|---|---|---|---|---|---|")
    for kind in [*KINDS, "all"]:
        own = [one for one in done if kind in (one[0].kind, "all")]
        if own:
            least = np.min([found for _, found, _, _ in own], axis=0)
            worst, _, away, counted = min(own, key=lambda one: one[2].min())
            where = f"{worst.n_contexts} contexts, {worst.n:,} draws, {counted:,} runs"
            shown = " | ".join(f"{value:.4f}" for value in least)
            print(f"| {kind} | {len(own)} | {shown} | {away.min():+.1f} ({where}) |")
    shares = {method: [] for method in ("agrawal", "chi2", "types")}
    for case, *_ in done:
        for method, found_shares in shares.items():
            found_shares.append((case.radii() / quietly(case, method))[1])
    for method, found_shares in shares.items():
        low, middle, high = np.quantile(found_shares, [0.0, 0.5, 1.0])
        print(f"\nAs a share of {method}, at .95: {middle:.2f} in the median, from {low:.2f} to {high:.2f}")


def quietly(case: Case, method: str) -> Array:
    """Return radii of a method that may warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cpo.exceptions.CoverageWarning)
        return case.radii(method)


def searched(n_contexts: int, n: int, level: int, trials: int, runs: int) -> tuple[Case, Array, Array, int]:
    """Look for the mix that is covered least often, and count again with fresh draws."""
    rng = seeded("hunt", n_contexts, n, level)
    best, least = None, math.inf
    spread = 1.0
    for trial in range(trials):
        if best is None or rng.random() < 0.4:
            p = KINDS[list(KINDS)[trial % len(KINDS)]](n_contexts, n, rng)
            if rng.random() < 0.5:
                # Up to three levels, one of which may be a single context.
                sizes = rng.integers(3, size=n_contexts)
                p = (10.0 ** rng.uniform(-1.5, 1.0, 3))[np.sort(sizes)]
                p[0] *= 10.0 ** (rng.random() * math.log10(max(n, 10)))
        else:
            spread = 10.0 ** rng.uniform(-3.0, 0.0)
            moved = rng.standard_normal(n_contexts) if rng.random() < 0.5 else rng.random(n_contexts) < rng.random()
            p = best.p * np.exp(spread * moved * rng.choice([-1.0, 1.0]))
        case = Case("hunted", p / p.sum(), n)
        found = case.coverage(runs, rng)[level]
        if found < least:
            best, least = case, found
    assert best is not None
    return judged(best, 20 * runs, 50 * runs, ("hunted", n_contexts, n, level))


def hunt(trials: int, runs: int, jobs: int, toy: bool = False) -> None:
    """Print coverage at the mixes that were found to be covered least often."""
    sizes = [(2, 20), (2, 1000), (3, 15), (3, 50), (4, 25), (5, 12), (5, 60), (7, 33), (9, 77), (10, 30), (13, 500)]
    sizes += [(17, 20), (25, 60), (40, 300), (80, 90), (300, 150), (300, 2000)]
    cases = [(*size, level) for size in (sizes[:2] if toy else sizes) for level in range(len(CONFIDENCES))]
    done = Parallel(jobs)(delayed(searched)(c, n, level, trials, runs) for c, n, level in cases)
    print(
        "\n| contexts | draws | asked | coverage at the worst mix found | standard errors | its rarest and commonest |"
    )
    print("|---|---|---|---|---|---|")
    for (n_contexts, n, level), (case, found, away, _) in zip(cases, done, strict=True):
        expected = np.sort(case.p) * n
        ends = f"{expected[0]:.2f} to {expected[-2]:.2f}, {expected[-1]:.2f}"
        print(f"| {n_contexts} | {n} | {CONFIDENCES[level]} | {found[level]:.4f} | {away[level]:+.1f} | {ends} |")


def size() -> None:
    """Print the radius as a share of others."""
    print("\n| contexts | draws | asked | bits | of the chi-squared limit | of Agrawal's | of the method of types |")
    print("|---|---|---|---|---|---|---|")
    for n_contexts, n in [
        (2, 20),
        (3, 30),
        (5, 50),
        (5, 400),
        (10, 50),
        (10, 400),
        (20, 100),
        (100, 1000),
        (1000, 10**7),
    ]:
        case = Case("uniform", np.full(n_contexts, 1.0 / n_contexts), n)
        own = case.radii()
        others = [own / quietly(case, method) for method in ("chi2", "agrawal", "types")]
        for i, level in enumerate(CONFIDENCES):
            shares = " | ".join(f"{other[i]:.2f}" for other in others)
            print(f"| {n_contexts} | {n:,} | {level} | {own[i] / n / math.log(2.0):.3g} | {shares} |")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the studies that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="coverage|hunt|size")
    parser.add_argument("--toy", action="store_true", help="a few small mixes")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--mixes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=20_000)
    options = parser.parse_args(argv)
    studies = options.studies or ["size", "coverage", "hunt"]
    if unknown := set(studies) - {"coverage", "hunt", "size"}:
        parser.error(f"{sorted(unknown)[0]!r} is no study; choose from coverage, hunt and size")
    if "size" in studies:
        size()
    if "coverage" in studies:
        coverage(6 if options.toy else options.mixes, 100 if options.toy else options.runs, options.jobs)
    if "hunt" in studies:
        hunt(5 if options.toy else 400, 50 if options.toy else 4_000, options.jobs, options.toy)
    return 0


if __name__ == "__main__":
    sys.exit(main())
