"""Which mix of text sources to train a language model on: our controller beside published methods.

Usage: python benchmarks/mixtures.py TEXTS --out FOLDER [--toy] (TEXTS is what benchmarks/mixture_texts.py made)

Transformers of 11 and 52 million parameters are trained on eight sources, some large and some with very few tokens, all
with the same number of tokens. What can be reached in a source is the lower of two: a model of its own with as many
tokens, and a copy of a model of all sources that is trained on by this source alone; both stop where held-out text is
predicted best. Excess is what another model loses to that, on held-out text that no method has looked at. Methods of
one seed begin with the same parameters. Small models come first: they give the references that rules watch, and the
mixes that two-phase methods export to large ones. On one H200, small models with four seeds and 2,000 steps take 9
minutes, large ones with three seeds and 1,000 steps too; without a GPU only ``--toy`` ends.

Printed are, for each method, medians and ranges over seeds of the worst source's excess, of the mean, and of the loss
under random mixes. ``results.json`` keeps all losses and mixes; ``python benchmarks/mixture_figures.py`` draws from it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import mixture_texts
import numpy as np
import torch
from mixture_models import Ensemble, Shape, Texts
from mixture_rules import Controlled, DoReMi, DynamicLoading, GroupDRO, Rule
from mixture_tables import printed
from mixture_training import Plan, Run, Trained, train
from numpy.typing import NDArray
from torch import Tensor

from counterpoise.torch import MixtureController

Array = NDArray[np.float64]

PROXY, SPARE = "DoReMi, proxy", "spare"
"""A run whose mix alone matters, and one that fills a group up."""

Made = Callable[[], Rule]


@dataclass(frozen=True)
class Size:
    """How models of one size are trained, and with how many seeds."""

    plan: Plan
    seeds: tuple[int, ...]


SIZES = {
    "small": Size(Plan(Shape(320, 8), steps=2000, rate=1.5e-3), (1, 2, 3, 4)),
    "large": Size(Plan(Shape(640, 10), steps=1000, rate=1e-3), (1, 2, 3)),
}


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
        self.tokens = np.array([float(len(parts["train"])) for parts in texts.values()])
        self.texts = tuple(
            Texts({name: parts[part] for name, parts in texts.items()}, plan.shape.length, plan.device)
            for part in ("train", "watched", "judged")
        )

    # --- methods -----------------------------------------------------------------------------------------------------

    def fixed(self) -> dict[str, Made]:
        """Return mixes that follow from the sizes of sources alone."""
        return {
            "proportional": lambda: Rule(self.tokens),
            "tempered .7": lambda: Rule(self.tokens**0.7),
            "tempered .3": lambda: Rule(self.tokens**0.3),
            "uniform": lambda: Rule(np.ones_like(self.tokens)),
        }

    def online(self, references: Array) -> dict[str, Made]:
        """Return rules that move shares, or weights, while a model is trained."""
        device, count = self.plan.device, len(self.tokens)
        tokens = dict(zip(self.sources, self.tokens.tolist(), strict=True))
        caps = {"budget": float(self.plan.tokens), "max_epochs": 4.0}
        ours: dict[str, dict[str, Any]] = {
            "ours, 4 epochs": caps,
            "ours, 0.3 bits": {"radius": 0.3},
            "ours, sharpness 10": {**caps, "sharpness": 10.0},
            "ours, sharpness inf": {**caps, "sharpness": np.inf},
            "ours, 0.3 bits, sharpness inf": {"radius": 0.3, "sharpness": np.inf},
        }
        return {
            "dynamic loading": lambda: DynamicLoading(self.tokens / self.tokens.sum(), references),
            "group DRO": lambda: GroupDRO(count, device),
            **{
                name: partial(lambda given: Controlled(MixtureController(tokens, **given)), options)
                for name, options in ((name, {**one, "reference_losses": references}) for name, one in ours.items())
            },
        }

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
        return self._grouped([Run(name, seed, rule()) for seed in self.seeds for name, rule in made.items()])

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


def exported(groups: Sequence[Trained], method: str) -> Array:
    """Return the mean over seeds of the mixes that a method gives to another training."""
    mixes = [run.rule.exported for group in groups for run in group.runs if run.method == method]
    return np.mean(mixes, axis=0)


def kept(groups: Sequence[Trained], size: str) -> list[dict[str, Any]]:
    """Return what the file of results says of every run."""
    return [
        {
            "size": size,
            "method": run.method,
            "seed": run.seed,
            "judged": run.judged.tolist(),
            "mixes": np.round(run.mixes, 5).tolist(),
            "watched": np.round(run.watched, 4).tolist(),
        }
        for group in groups
        for run in group.runs
        if run.method != SPARE
    ]


def small(study: Study) -> dict[str, Any]:
    """Train small models in stages: own and fixed mixes, own once more, rules that learn, what these export."""
    own, fixed = study.own(), study.several(study.fixed())
    train([*own, *fixed], "own models and fixed mixes")
    about = _with_references(study, own, fixed)
    proxies, online = study.doremi(fixed), study.several(study.online(np.array(about["references"]["watched"])))
    train([proxies, *online], "rules that learn")
    mixes = {"DoReMi": exported([proxies], PROXY)}
    mixes |= {f"{name}, exported": exported(online, name) for name in ("ours, 4 epochs",)}
    again = study.several({name: partial(Rule, mix) for name, mix in mixes.items()})
    train(again, "exported mixes")
    about["exported"] = {name: mix.tolist() for name, mix in mixes.items()}
    return about | {"runs": kept([*fixed, proxies, *online, *again], "small")}


def large(study: Study, found: dict[str, Any]) -> dict[str, Any]:
    """Train large models by everything that small ones have found."""
    online = study.online(np.array(found["references"]["watched"]))
    mixes = {name: partial(Rule, np.array(mix)) for name, mix in found["exported"].items()}
    # A large model of a source with less text than that learns it by heart before it has learnt to read.
    own, groups = study.own(study.plan.tokens / 8), study.several({**study.fixed(), **online, **mixes})
    train([*own, *groups], "large models")
    return _with_references(study, own, groups) | {"runs": kept(groups, "large")}


def _with_references(study: Study, own: Sequence[Trained], groups: Sequence[Trained]) -> dict[str, Any]:
    tuned = study.tuned(model_of(groups, "tempered .7", study.seeds[0]))
    train(tuned, "copies for one source")
    found = least_losses(own, study.sources), least_losses(tuned, study.sources)
    return {"own": found[0], "tuned": found[1], "references": references_of(*found)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, print the tables, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, help="the folder that mixture_texts.py wrote")
    parser.add_argument("--out", type=Path, default=Path("bench/mixtures"), help="where results.json goes")
    parser.add_argument("--sizes", nargs="*", choices=["small", "large"], default=["small", "large"])
    parser.add_argument("--small", type=Path, help="results.json of small models, instead of training them")
    parser.add_argument("--seeds", type=int, nargs="+", help="by default four for small models, three for large ones")
    parser.add_argument("--steps", type=int, help="by default 2,000 for small models, 1,000 for large ones")
    parser.add_argument("--toy", action="store_true", help="tiny models and texts, which mean nothing")
    asked = parser.parse_args(arguments)
    texts = mixture_texts.make(asked.texts, toy=True) if asked.toy else mixture_texts.read(asked.texts)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    results: dict[str, Any] = {"sources": list(texts), "runs": []}
    results["tokens"] = [len(parts["train"]) for parts in texts.values()]
    if asked.small:
        results = json.loads(asked.small.read_text(encoding="utf-8"))
    begin = time.perf_counter()
    for size, usual in SIZES.items():
        if size not in asked.sizes:
            continue
        plan, seeds = (
            replace(usual.plan, steps=asked.steps or usual.plan.steps, device=device),
            asked.seeds or usual.seeds,
        )
        if asked.toy:
            plan = replace(plan, shape=Shape(64, 1, plan.shape.vocabulary, 32), steps=6, batch=4, every=2)
            seeds = seeds[:1]
        study = Study(texts, plan, seeds)
        found = small(study) if size == "small" else large(study, results["small"])
        results["runs"] += found.pop("runs")
        results[size] = found | {"parameters": plan.shape.n_parameters, "tokens": plan.tokens, "every": plan.every}
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "results.json").write_text(json.dumps(results), encoding="utf-8")
    printed(results)
    print(f"{time.perf_counter() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
