"""How near shares come to the best mix where that is known: sources whose losses follow scaling laws.

Usage: python benchmarks/mixture_laws.py [--worlds 48] [--first 48] [--sharpness 30 100 inf] [--toy]

In a world, the loss of a source falls with the tokens seen so far, by a power law of its own; tokens of other sources
count in part. Which fixed mix has the least excess in the worst source can then be computed. Rules hear noisy losses,
and may be told references that are wrong. Excess counts from what a source would reach if all tokens were its own.

Printed is by how much each rule's worst excess at the end is above that of the best fixed mix, in nats; the mean excess
by tokens; and in what part of the worlds a rule has more worst excess than proportional shares. Both are means over
worlds, which are the same for every rule. The default sharpness was chosen by the first 48 worlds, so tables are of
later ones. Where the model forgets, with a half-life of a quarter of the run, shares that change late may do better
than the best fixed mix.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from mixture_rules import Controlled, DynamicLoading, Rule
from mixture_tables import table
from numpy.typing import NDArray
from scipy import optimize

from counterpoise.exceptions import CounterpoiseWarning
from counterpoise.torch import MixtureController

Array = NDArray[np.float64]

_BEGIN = 1e-3
"""Tokens of the run, as a share, that a model knows of every source at the start: its loss is finite."""


@dataclass(frozen=True)
class Setting:
    """What worlds are drawn by, and what rules hear.

    Attributes
    ----------
    n_sources, rounds : int
    transfer : float
        What a token of another source counts at most.
    noise : float
        Of held-out losses, in nats.
    wrong : float
        Of references, in nats.
    high : float
        How far the references of the smaller half of the sources are too high, in nats, as those of proxies that have
        learnt from little text.
    half_life : float
        Of what the model has seen, as a share of the run.
    """

    n_sources: int = 8
    rounds: int = 40
    transfer: float = 0.25
    noise: float = 0.01
    wrong: float = 0.0
    high: float = 0.0
    half_life: float = np.inf


SETTINGS = {
    "as usual": Setting(),
    "3 sources": Setting(n_sources=3),
    "22 sources": Setting(n_sources=22),
    "no transfer": Setting(transfer=0.0),
    "much transfer": Setting(transfer=0.6),
    "10 rounds": Setting(rounds=10),
    "200 rounds": Setting(rounds=200),
    "noise .05": Setting(noise=0.05),
    "references wrong by .1": Setting(wrong=0.1),
    "references wrong by .3": Setting(wrong=0.3),
    "small ones .5 too high": Setting(high=0.5),
    "small ones 1 too high": Setting(high=1.0),
    "the model forgets": Setting(half_life=0.25),
}


@dataclass(frozen=True)
class World:
    """Sources with laws: the loss is ``floor + scale * seen ** -exponent`` of the tokens seen, with transfer."""

    tokens: Array
    floor: Array
    scale: Array
    exponent: Array
    transfer: Array = field(repr=False)

    @classmethod
    def drawn(cls, setting: Setting, rng: np.random.Generator) -> World:
        """Return a world with sources of very different size."""
        n = setting.n_sources
        tokens = np.exp(rng.normal(0.0, 1.3, n))
        transfer = setting.transfer * rng.uniform(size=(n, n))
        np.fill_diagonal(transfer, 1.0)
        laws = rng.uniform(1.5, 3.0, n), rng.uniform(0.3, 1.5, n), rng.uniform(0.15, 0.5, n)
        return cls(tokens / tokens.sum(), *laws, transfer)

    def losses(self, seen: Array) -> Array:
        """Return the loss of every source after so many tokens of each, as shares of the run."""
        return self.floor + self.scale * (_BEGIN + self.transfer @ seen) ** -self.exponent

    @property
    def references(self) -> Array:
        """What each source would reach if all tokens were its own."""
        return self.floor + self.scale * (_BEGIN + 1.0) ** -self.exponent

    def best(self) -> float:
        """Return the least worst excess that a fixed mix has."""

        def lacking(worst: float) -> float:
            # No excess is above this where enough is seen of every source, which is linear in the mix.
            enough = ((worst + self.references - self.floor) / self.scale) ** (-1.0 / self.exponent)
            found = optimize.linprog(np.ones_like(enough), -self.transfer, _BEGIN - enough)
            return float(found.fun) - 1.0

        return float(optimize.brentq(lacking, 0.0, (self.losses(np.zeros_like(self.tokens)) - self.references).max()))

    def excess(self, rule: Rule, setting: Setting, rng: np.random.Generator) -> Array:
        """Return the excess of every source after a run by a rule."""
        kept = 0.5 ** (1.0 / (setting.half_life * setting.rounds))
        # As many tokens in all as without forgetting, so that what is best does not depend on it.
        part = 1.0 / sum(kept**k for k in range(setting.rounds))
        seen = np.zeros_like(self.tokens)
        for step in range(1, setting.rounds + 1):
            seen = kept * seen + part * rule.shares
            rule.round(self.losses(seen) + setting.noise * rng.normal(size=len(seen)), step)
        return self.losses(seen) - self.references


def _ours(**options: float) -> Callable[[World, Array], Rule]:
    def made(world: World, references: Array) -> Rule:
        tokens = dict(enumerate(world.tokens.tolist()))
        return Controlled(MixtureController(tokens, reference_losses=references, **options))

    return made


Made = Callable[[World, Array], Rule]
"""A world and references in, a rule out."""


def rules(sharpness: Sequence[float]) -> dict[str, Made]:
    """Return the rules that are compared, ours by default and with other sharpness."""
    return {
        "proportional": lambda world, references: Rule(world.tokens),
        "uniform": lambda world, references: Rule(np.ones_like(world.tokens)),
        "dynamic loading": lambda world, references: DynamicLoading(world.tokens, references),
        "ours": _ours(),
        "ours, step .3": _ours(step_size=0.3),
        **{f"ours, sharpness {one:g}": _ours(sharpness=one) for one in sharpness},
    }


def study(setting: Setting, made: dict[str, Made], worlds: Sequence[int]) -> tuple[Array, dict[str, Array]]:
    """Return the worst excess of the best mix in each world, and what each rule's is above it, and its mean excess."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
    best = []
    for seed in worlds:
        world = World.drawn(setting, np.random.default_rng([seed, 0]))
        best.append(world.best())
        errors = setting.wrong * np.random.default_rng([seed, 1]).normal(size=setting.n_sources)
        errors += setting.high * (world.tokens < np.median(world.tokens))
        for name, rule in made.items():
            excess = world.excess(rule(world, world.references + errors), setting, np.random.default_rng([seed, 2]))
            found[name].append((excess.max() - best[-1], float(world.tokens @ excess)))
    return np.array(best), {name: np.array(pairs) for name, pairs in found.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=48, help="worlds in each setting")
    parser.add_argument("--first", type=int, default=48, help="the number of the first world")
    parser.add_argument("--sharpness", type=float, nargs="+", default=[30.0, 100.0, np.inf])
    parser.add_argument("--toy", action="store_true", help="two worlds with few sources and rounds")
    asked = parser.parse_args(arguments)
    worst: dict[str, list[str]] = {}
    means: dict[str, list[str]] = {}
    harmed: dict[str, list[str]] = {}
    made = rules(asked.sharpness)
    worlds = range(asked.first, asked.first + (2 if asked.toy else asked.worlds))
    for name, setting in SETTINGS.items():
        if asked.toy:
            setting = replace(setting, n_sources=3, rounds=min(setting.rounds, 20))
        with warnings.catch_warnings():
            # References that are wrong on purpose are doubted.
            warnings.simplefilter("ignore", CounterpoiseWarning)
            best, found = study(setting, made, worlds)
        cells = {rule: pairs.mean(0) for rule, pairs in found.items()}
        worst[name] = [f"{best.mean():.2f}", *(f"{above:.3f}" for above, _ in cells.values())]
        means[name] = [f"{mean:.3f}" for _, mean in cells.values()]
        plain = found["proportional"][:, 0]
        harmed[name] = [f"{(pairs[:, 0] > plain).mean():.0%}" for pairs in found.values()]
    table("worst excess above the best mix", ["best mix: excess", *made], worst)
    table("mean excess by tokens", made, means)
    table("worlds with more worst excess than by proportional shares", made, harmed)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
