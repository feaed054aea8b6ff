"""Methods for networks side by side: the same samples, the same start, and one rule by which all are chosen.

Every method trains one network for each weight decay. After every half of an epoch it is judged on the same held-out
samples, and what is kept of it, over rounds and decays, is the network whose worst context is the least bad there: by
its error where there are classes, by its excess risk otherwise. With the decay and the epochs that were kept, it is
then trained once more on all samples, the held-out ones included; where weights followed held-out risks, with their
mean.
"""

from __future__ import annotations

import argparse
import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor, nn

from counterpoise.exceptions import LearntByHeartWarning
from counterpoise.experiments._base import Array, Row
from counterpoise.experiments.results import Results
from counterpoise.sets import KLBall
from counterpoise.torch import (
    ContextLoss,
    ERMLoss,
    FixedWeights,
    GroupDROLoss,
    HeldOutWeights,
    InverseFrequencyLoss,
    RobustHead,
    RobustLoss,
    features,
    fit,
    head_references,
    per_sample,
)
from counterpoise.torch.refit import last_epoch_decay
from counterpoise.torch.training import shrunk_references

Losses = dict[str, Callable[[Array, Array], ContextLoss]]

LOSSES: Losses = {
    "erm": lambda counts, least: ERMLoss(counts),
    "inverse-frequency": lambda counts, least: InverseFrequencyLoss(counts),
    "inverse-frequency-sampling": lambda counts, least: InverseFrequencyLoss(counts, sampling="balanced"),
    "group-dro": lambda counts, least: GroupDROLoss(counts),
    "group-dro-adjusted": lambda counts, least: GroupDROLoss(counts, adjustment=2.0),
    "robust-loss": lambda counts, least: RobustLoss(counts, reference_risks=least, radius=1.0),
    "held-out": lambda counts, least: HeldOutWeights(counts, reference_risks=least),
    "held-out-0.3": lambda counts, least: HeldOutWeights(counts, reference_risks=least, radius=0.3),
}
"""Every loss, from the counts and the least risks of contexts; numbers are radii in bits; without, every mix."""

HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "dfr": ("erm", {"weights": "inverse-frequency"}),
    "held-out-head": ("held-out", {"confidence": 1.0}),
}
"""Heads on the held-out samples, with the method whose network they are put on; it has not seen these."""

METHODS = (*LOSSES, *HEADS)

DECAYS = (1e-3, 1e-2)
"""Weight decays, among which every method chooses."""


@dataclass(frozen=True, eq=False)
class Task:
    """Samples, a network, and a judge.

    Attributes
    ----------
    name : str
    samples, held_out : tuple of Tensor
        Inputs, targets and contexts.
    network : callable
        Returns a network as it is before training, the same for every call.
    judged : callable
        A network in, one row of metrics out: ``worst-error`` and so on. The references are passed too.
    n_contexts : int
    judged_by : callable, optional
        The loss by which rounds are chosen: see :func:`counterpoise.torch.fit`.
    """

    name: str
    samples: tuple[Tensor, Tensor, Tensor]
    held_out: tuple[Tensor, Tensor, Tensor]
    network: Callable[[], nn.Module]
    judged: Callable[[nn.Module, Array], dict[str, float]]
    n_contexts: int
    judged_by: Callable[[Tensor, Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Budget:
    """How long every network is trained, and how.

    Attributes
    ----------
    epochs : int
    decays : tuple of float
    average : float or None
        Of the running average of parameters, for every method.
    batch_size : int
    learning_rate : float
    device : str
    """

    epochs: int = 30
    decays: tuple[float, ...] = DECAYS
    average: float | None = None
    batch_size: int = 128
    learning_rate: float = 1e-3
    device: str = "cpu"


SPLIT = "{}, held-out samples not learnt"
"""The name of a task for the results before the last training."""


@dataclass(frozen=True, eq=False)
class _Kept:
    """A network that was chosen.

    Attributes
    ----------
    score : tuple of float
        Its held-out worst case, and its mean risk, which decides ties.
    decay, epochs, weights
        With which it was trained; the weights of contexts are the mean up to the round that was kept.
    """

    model: nn.Module
    score: tuple[float, float]
    decay: float
    epochs: float
    weights: Array


def run(task: Task, seed: int, budget: Budget, methods: Sequence[str] = METHODS) -> list[Row]:
    """Train every method; return its metrics on test data, and the decay and the score by which it was chosen."""
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(METHODS)}.")
    counts = np.bincount(task.samples[2].numpy(), minlength=task.n_contexts).astype(np.float64)
    least = references(task, seed, budget, counts)
    rows = [Row(task.name, "references", f"risk-{c + 1}", seed, float(risk)) for c, risk in enumerate(least)]

    def note(where: str, method: str, found: dict[str, float]) -> None:
        rows.extend(Row(where, method, metric, seed, value) for metric, value in found.items())

    needed = [*methods, *(HEADS[name][0] for name in methods if name in HEADS)]
    trained: dict[str, _Kept] = {}
    for name in (name for name in LOSSES if name in needed):
        trained[name] = kept = _chosen(task, seed, budget, partial(LOSSES[name], counts, least), least)
        if name in methods:
            chosen = {"score": kept.score[0], "decay": kept.decay, "epochs": kept.epochs}
            chosen |= {f"weight-{c + 1}": float(weight) for c, weight in enumerate(kept.weights)}
            note(SPLIT.format(task.name), name, {**task.judged(kept.model, least), **chosen})
            note(task.name, name, task.judged(_refitted(task, seed, budget, kept, LOSSES[name], least), least))
    for name in (name for name in HEADS if name in methods):
        network, options = HEADS[name]
        model = copy.deepcopy(trained[network].model)
        RobustHead(guard=False, seed=seed, **options).fit(model, [_sent(task.held_out, budget.device)]).put_back(model)
        found = task.judged(model, least)
        note(SPLIT.format(task.name), name, found)
        note(task.name, name, found)
    return rows


def references(task: Task, seed: int, budget: Budget, counts: Array) -> Array:
    """Return what heads on the features of the plain network reach in each context, on the held-out samples."""
    held_out = [_sent(task.held_out, budget.device)]
    plain = _chosen(task, seed, budget, lambda: ERMLoss(counts), None)
    inputs, targets, contexts = held_out[0]
    plain.model.eval()
    with torch.no_grad():
        own = per_sample(plain.model(inputs), targets)
    found = head_references(features(plain.model, inputs), targets, contexts, task.n_contexts, own_losses=own)
    return shrunk_references(found, np.bincount(contexts.cpu().numpy(), minlength=task.n_contexts))


def _chosen(task: Task, seed: int, budget: Budget, loss: Callable[[], ContextLoss], least: Array | None) -> _Kept:
    """Train with every decay and keep the best network: by the worst context, or without references by the mean."""
    best: _Kept | None = None
    for decay in budget.decays:
        model, asked = task.network().to(budget.device), loss()
        shares = asked.p_hat.numpy()
        with warnings.catch_warnings():
            # That weights by training risks mean little here is what is measured.
            warnings.simplefilter("ignore", LearntByHeartWarning)
            history = fit(
                model,
                asked,
                DeviceBatches.of(task.samples, budget, seed, is_balanced=asked.sampling == "balanced"),
                torch.optim.Adam(model.parameters(), budget.learning_rate, weight_decay=decay),
                epochs=budget.epochs,
                held_out=[_sent(task.held_out, budget.device)],
                every=0.5,
                judge=KLBall(shares, 0.0 if least is None else math.inf),
                judged_by=None if least is None else task.judged_by,
                average=budget.average,
                reference_risks=None if least is None else least.tolist(),
                device=budget.device,
                guard=False,
            )
        k = history.best_round
        score = float(history.rounds["score"][k]), float(history.rounds["mean_risk"][k])
        if best is None or score < best.score:
            mean = history.weights[: k + 1].mean(axis=0)
            best = _Kept(model, score, decay, float(history.rounds["epoch"][k]), mean)
    assert best is not None
    return best


def _refitted(
    task: Task, seed: int, budget: Budget, kept: _Kept, loss: Callable[[Array, Array], ContextLoss], least: Array
) -> nn.Module:
    """Train on all samples as the network that was kept was trained."""
    everything = tuple(torch.cat(parts) for parts in zip(task.samples, task.held_out, strict=True))
    samples = cast(tuple[Tensor, Tensor, Tensor], everything)
    counts = np.bincount(samples[2].numpy(), minlength=task.n_contexts).astype(np.float64)
    asked = loss(counts, least)
    if isinstance(asked, HeldOutWeights):
        asked = FixedWeights(counts, kept.weights)
    model = task.network().to(budget.device)
    batches = DeviceBatches.of(samples, budget, seed, is_balanced=asked.sampling == "balanced")
    fit(
        model,
        asked,
        batches,
        torch.optim.Adam(model.parameters(), budget.learning_rate, weight_decay=kept.decay),
        epochs=max(1, round(kept.epochs)),
        average=last_epoch_decay(batches) if budget.average is None else budget.average,
        device=budget.device,
    )
    return model


@dataclass(eq=False)
class DeviceBatches:
    """Batches of samples that lie on the device already: every sample once, or contexts drawn alike."""

    parts: tuple[Tensor, Tensor, Tensor]
    size: int
    is_balanced: bool
    generator: torch.Generator

    @classmethod
    def of(cls, samples: tuple[Tensor, Tensor, Tensor], budget: Budget, seed: int, is_balanced: bool) -> DeviceBatches:
        """Send samples to the device."""
        generator = torch.Generator().manual_seed(seed)
        return cls(_sent(samples, budget.device), budget.batch_size, is_balanced, generator)

    def __len__(self) -> int:
        return -(-len(self.parts[0]) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        contexts = self.parts[2].cpu()
        if self.is_balanced:
            weights = 1.0 / torch.bincount(contexts).double()[contexts]
            order = torch.multinomial(weights, len(contexts), replacement=True, generator=self.generator)
        else:
            order = torch.randperm(len(contexts), generator=self.generator)
        for chosen in torch.split(order.to(self.parts[0].device), self.size):
            inputs, targets, codes = self.parts
            yield inputs[chosen], targets[chosen], codes[chosen]


def _sent(samples: tuple[Tensor, Tensor, Tensor], device: str) -> tuple[Tensor, Tensor, Tensor]:
    inputs, targets, contexts = samples
    return inputs.to(device), targets.to(device), contexts.to(device)


def add_options(parser: argparse.ArgumentParser, epochs: int) -> None:
    """Add what every study of networks can be told."""
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--decays", type=float, nargs="+", default=list(DECAYS))
    parser.add_argument("--average", type=float, help="judge and keep a running average of the parameters, such as .99")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each of which trains all methods of a seed")


def run_seeds(task: Callable[[int], Task], options: argparse.Namespace) -> Results:
    """Run all seeds that were asked for."""
    budget = Budget(options.epochs, tuple(options.decays), options.average, device=options.device)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    found = Parallel(n_jobs=options.jobs)(delayed(_run_seed)(task, seed, budget, options.methods) for seed in seeds)
    return Results(tuple(row for rows in found for row in rows))


def _run_seed(task: Callable[[int], Task], seed: int, budget: Budget, methods: Sequence[str]) -> list[Row]:
    torch.set_num_threads(1)
    return run(task(seed), seed, budget, methods)


def as_table(results: Results, name: str, methods: Sequence[str], metrics: dict[str, str]) -> str:
    """Return a table in Markdown: medians over seeds, with the range in brackets.

    Parameters
    ----------
    metrics : mapping from metric to heading
    """
    lines = [f"| method | {' | '.join(metrics.values())} |", "|---" * (1 + len(metrics)) + "|"]
    for method in methods:
        found = [results.series(name, method, metric) for metric in metrics]
        cells = [f"{np.median(values):.2f} [{values.min():.2f}, {values.max():.2f}]" for values in found]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)
