"""Which mix of text sources to train a language model on: our controller beside published methods.

Usage: python benchmarks/mixtures.py TEXTS --out FOLDER [--sizes tiny] (TEXTS is what benchmarks/mixture_texts.py made)

Transformers of 11 and 52 million parameters are trained on eight sources, some large and some with very few tokens, all
with the same number of tokens. What can be reached in a source is the lower of two: a model of its own with as many
tokens, and a copy of a model of all sources that is trained on by this source alone; both stop where held-out text is
predicted best. Excess is what another model loses to that, on held-out text that no method has looked at. Methods of
one seed begin with the same parameters. Small models come first: they give the references that rules watch, and the
mixes that two-phase methods export to large ones. On one H200, small and large models take 8 minutes each. Tiny models
of 1.3 million parameters, on an eighth of the text, take two hours on two cores and stand by themselves.

``results.json`` keeps all losses and mixes, and is written after every stage. A run begun with ``--known results.json``
adds to it: other seeds of a size count from the references that are there, so a study can be made in several parts.
Runs of a method and seed that are there already are replaced.

Printed are, for each method, medians and ranges over seeds of the worst source's excess, of the mean, and of the loss
under random mixes. ``python benchmarks/mixture_figures.py`` draws from the results.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mixture_texts
import numpy as np
import torch
from mixture_models import Ensemble, Shape, Texts
from mixture_results import SPARE, Results
from mixture_rules import Controlled, DoReMi, DynamicLoading, GroupDRO, Rule
from mixture_tables import MISLED, printed
from mixture_training import Plan, Run, Trained, train
from numpy.typing import NDArray
from torch import Tensor

from counterpoise.exceptions import InvalidInputError
from counterpoise.torch import MixtureController

Array = NDArray[np.float64]

Made = Callable[[int], Rule]
"""A seed in, a rule out."""

PROXY = "DoReMi, proxy"
"""The method of runs whose mix alone matters."""

SEEDS = (1, 2, 3)

_TINY = Plan(Shape(128, 4, length=128), 800, 16, every=40, rate=2e-3, together=1, watched=32, judged=384, thinned=8)

SIZES = {
    "tiny": replace(_TINY, compiled=True, jobs=os.cpu_count() or 1),
    "small": Plan(Shape(320, 8), 2000, rate=1.5e-3, compiled=True),
    "large": Plan(Shape(640, 10), 1000, rate=1e-3, compiled=True),
}

COSTLY = ("tempered .3", "ours, from equal shares", "ours, sharpness 100")
"""Methods that large models are not trained by."""


class Study:
    """Sources, and the methods that are compared on them.

    Parameters
    ----------
    texts : mapping from source to mapping from part to tokens
    plan : Plan
    seeds : sequence of int
    """

    def __init__(self, texts: dict[str, dict[str, np.ndarray]], plan: Plan, seeds: Sequence[int]) -> None:
        self.plan, self.seeds = plan, seeds
        self.sources = tuple(texts)
        every = {part: {name: parts[part] for name, parts in texts.items()} for part in ("train", "watched", "judged")}
        # Documents come in a random order, so the first ones are a sample.
        every["train"] = {name: tokens[: len(tokens) // plan.thinned] for name, tokens in every["train"].items()}
        self.tokens = np.array([float(len(tokens)) for tokens in every["train"].values()])
        self.texts = tuple(Texts(part, plan.shape.length, plan.device) for part in every.values())

    @property
    def about(self) -> dict[str, Any]:
        """What all runs of a size have in common."""
        plan = self.plan
        return {
            "parameters": plan.shape.n_parameters,
            "tokens": plan.tokens,
            "every": plan.every,
            "text": self.tokens.tolist(),
        }

    # --- methods -----------------------------------------------------------------------------------------------------

    def fixed(self) -> dict[str, Made]:
        """Return mixes that follow from the sizes of sources alone."""
        return {
            "proportional": lambda _: Rule(self.tokens),
            "tempered .7": lambda _: Rule(self.tokens**0.7),
            "tempered .3": lambda _: Rule(self.tokens**0.3),
            "uniform": lambda _: Rule(np.ones_like(self.tokens)),
        }

    def online(self, references: Array) -> dict[str, Made]:
        """Return rules that move shares, or weights, while a model is trained."""
        device, count = self.plan.device, len(self.tokens)
        tokens = dict(zip(self.sources, self.tokens.tolist(), strict=True))
        caps = {"budget": float(self.plan.tokens), "max_epochs": 4.0}
        ours: dict[str, dict[str, Any]] = {
            "ours, 4 epochs": caps,
            "ours, from equal shares": {**caps, "initial_shares": np.full(count, 1.0 / count)},
            "ours, sharpness 30": {**caps, "sharpness": 30.0},
            "ours, sharpness 100": {**caps, "sharpness": 100.0},
            "ours, sharpness inf": {**caps, "sharpness": np.inf},
            "ours, 0.3 bits, sharpness inf": {"radius": 0.3, "sharpness": np.inf},
            "ours, 0.1 bits, sharpness inf": {"radius": 0.1, "sharpness": np.inf},
        }
        return {
            "dynamic loading": lambda _: DynamicLoading(self.tokens / self.tokens.sum(), references),
            "group DRO": lambda _: GroupDRO(count, device),
            **{
                name: partial(lambda given, _: Controlled(MixtureController(tokens, **given)), options)
                for name, options in ((name, {**one, "reference_losses": references}) for name, one in ours.items())
            },
        }

    def misled(self, references: Array) -> dict[str, Made]:
        """Return rules that are told of one source, the one in the middle, that half a nat less can be reached."""
        lower = references - 0.5 * (np.arange(len(references)) == len(references) // 2)
        rules = self.online(lower)
        return {f"{name}{MISLED}": rules[name] for name in ("dynamic loading", "ours, 4 epochs", "ours, sharpness inf")}

    # --- stages ------------------------------------------------------------------------------------------------------

    def own(self, least_tokens: float = 0.0) -> list[Trained]:
        """Return a model of its own for each source that has so many tokens, judged at every round."""
        runs = [
            Run(name, 0, Rule(one))
            for name, one, tokens in zip(self.sources, np.eye(len(self.sources)), self.tokens, strict=True)
            if tokens >= least_tokens
        ]
        return self._grouped(runs, keeps_best=True)

    def tuned(self, trained: dict[str, Tensor]) -> list[Trained]:
        """Return a copy of a model for each source, to be trained on by that source alone."""
        plan = replace(
            self.plan, steps=self.plan.steps // 5, every=max(self.plan.steps // 100, 1), rate=self.plan.rate / 3
        )
        runs = [Run(name, 0, Rule(one)) for name, one in zip(self.sources, np.eye(len(self.sources)), strict=True)]
        size = plan.together
        return [
            Trained(
                plan,
                runs[k : k + size],
                self.texts,
                start=Ensemble.joined(plan.shape, [trained] * len(runs[k : k + size])),
                keeps_best=True,
            )
            for k in range(0, len(runs), size)
        ]

    def several(self, made: dict[str, Made]) -> list[Trained]:
        """Return models by these rules, for each seed, in groups that are multiplied at once."""
        return self._grouped([Run(name, seed, rule(seed)) for seed in self.seeds for name, rule in made.items()])

    def _grouped(self, runs: list[Run], keeps_best: bool = False) -> list[Trained]:
        size = self.plan.together
        # Groups of one size are compiled once.
        runs = [*runs, *(Run(SPARE, 0, Rule(self.tokens)) for _ in range(-len(runs) % size))]
        return [
            Trained(self.plan, runs[k : k + size], self.texts, keeps_best=keeps_best) for k in range(0, len(runs), size)
        ]

    def doremi(self, fixed: Sequence[Trained]) -> Trained:
        """Return DoReMi's proxies, each with the model of its seed by proportional shares as the reference."""
        runs = [Run(PROXY, seed, DoReMi(len(self.tokens), self.plan.device)) for seed in self.seeds]
        runs += [Run(SPARE, runs[0].seed, Rule(self.tokens)) for _ in range(-len(runs) % self.plan.together)]
        known = [model_of(fixed, "proportional", run.seed) for run in runs]
        return Trained(self.plan, runs, self.texts, references=Ensemble.joined(self.plan.shape, known))


def model_of(groups: Sequence[Trained], method: str, seed: int) -> dict[str, Tensor]:
    """Return the parameters that a method found."""
    return next(
        group.ensemble.one(k)
        for group in groups
        for k, run in enumerate(group.runs)
        if (run.method, run.seed) == (method, seed)
    )


def least_losses(groups: Sequence[Trained], sources: Sequence[str]) -> dict[str, list[float]]:
    """Return what models of one source reach: watched and judged losses at the round of least watched loss."""
    found: dict[str, list[float]] = {}
    for group in groups:
        for run in group.runs:
            if run.method in sources:
                k = run.source
                found[run.method] = [float(min(one[k] for one in run.watched)), float(run.judged[k])]
    return found


def references_of(own: dict[str, list[float]], tuned: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return the lower of both, by source, for watched and for judged text."""
    pairs = [min(own.get(name, tuned[name]), tuned[name]) for name in tuned]
    return {"watched": [pair[0] for pair in pairs], "judged": [pair[1] for pair in pairs]}


def exported(results: Results, size: str) -> dict[str, Made]:
    """Return the mixes that two methods give to another training of the same seed."""
    methods = {"DoReMi": PROXY, "ours, 4 epochs, exported": "ours, 4 epochs"}
    return {
        name: partial(lambda first, seed: Rule(results.exported(size, first, seed)), method)
        for name, method in methods.items()
    }


def proxies(study: Study, size: str, results: Results) -> None:
    """Train models that give references and mixes: own and fixed ones, rules that learn, what these export."""
    own, fixed = [] if size in results.content else study.own(), study.several(study.fixed())
    train([*own, *fixed], "own models and fixed mixes")
    results.add(fixed, size)
    add_references(study, size, own, fixed, results)
    references = np.array(results.content[size]["references"]["watched"])
    online = [study.doremi(fixed), *study.several({**study.online(references), **study.misled(references)})]
    train(online, "rules that learn")
    results.add(online, size)
    again = study.several(exported(results, size))
    train(again, "exported mixes")
    results.add(again, size)


def large(study: Study, results: Results) -> None:
    """Train large models by everything that small ones have found."""
    made = {**study.fixed(), **study.online(np.array(results.content["small"]["references"]["watched"]))}
    made = {name: rule for name, rule in made.items() if name not in COSTLY} | exported(results, "small")
    # A large model of a source with less text than that learns it by heart before it has learnt to read.
    own, groups = [] if "large" in results.content else study.own(study.plan.tokens / 8), study.several(made)
    train([*own, *groups], "large models")
    results.add(groups, "large")
    add_references(study, "large", own, groups, results)


def add_references(
    study: Study, size: str, own: Sequence[Trained], groups: Sequence[Trained], results: Results
) -> None:
    """Find what can be reached in each source, unless an earlier part of the study has."""
    if size in results.content:
        return
    tuned = study.tuned(model_of(groups, "tempered .7", study.seeds[0]))
    train(tuned, "copies for one source")
    found = least_losses(own, study.sources), least_losses(tuned, study.sources)
    results.content[size] = {
        "own": found[0],
        "tuned": found[1],
        "references": references_of(*found),
        **study.about,
    }
    results.save()


def planned(
    size: str, texts: dict[str, dict[str, np.ndarray]], seeds: Sequence[int], device: str, is_toy: bool
) -> Study:
    """Return the study of models of a size."""
    # Processes that are forked cannot share a GPU.
    plan = replace(SIZES[size], device=device, jobs=SIZES[size].jobs if device == "cpu" else 1)
    if is_toy:
        shape = Shape(64, 1, 512, 32, torch.float32)
        held = {"watched": 4, "judged": 8, "thinned": 1, "compiled": False, "jobs": min(plan.jobs, 2)}
        plan = replace(plan, shape=shape, steps=6, batch=4, every=2, **held)
    return Study(texts, plan, seeds[:1] if is_toy else seeds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, print the tables, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, help="the folder that mixture_texts.py wrote")
    parser.add_argument("--out", type=Path, default=Path("bench/mixtures"), help="where results.json goes")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), help="default: small and large; tiny without a GPU")
    parser.add_argument("--known", type=Path, help="results.json to add to")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--toy", action="store_true", help="tiny models and texts, which mean nothing")
    asked = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        # A process that is forked after threads have run would wait for them for ever.
        torch.set_num_threads(1)
    sizes = asked.sizes or (["tiny"] if device == "cpu" and not asked.toy else ["small", "large"])
    texts = mixture_texts.make(asked.texts, toy=True) if asked.toy else mixture_texts.read(asked.texts)
    tokens = {name: len(parts["train"]) for name, parts in texts.items()}
    try:
        results = Results(asked.out / "results.json", tokens, asked.known)
        if "large" in sizes and "small" not in sizes:
            for made in exported(results, "small").values():
                for seed in asked.seeds:
                    made(seed)
        studies = {size: planned(size, texts, asked.seeds, device, asked.toy) for size in SIZES if size in sizes}
        for size, study in studies.items():
            results.check(size, study.about)
    except InvalidInputError as error:
        parser.error(str(error))
    begin = time.perf_counter()
    for size, study in studies.items():
        if size == "large":
            large(study, results)
        else:
            proxies(study, size, results)
    printed(results.content)
    print(f"{time.perf_counter() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
