"""Training of many small language models at once, each on a mix of sources that its rule decides."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from mixture_models import Descent, Ensemble, Shape, Texts
from mixture_rules import Rule
from numpy.typing import NDArray
from torch import Tensor

from counterpoise.torch import MixtureStream

Array = NDArray[np.float64]


@dataclass
class Run:
    """One model in training, and what came of it.

    Attributes
    ----------
    method : str
    seed : int
        Of its parameters and of the order of its samples.
    rule : Rule
    watched : list of ndarray of shape (n_sources,)
        Held-out losses of every round.
    mixes : list of ndarray of shape (n_sources,)
        Mixes of every round.
    judged : ndarray of shape (n_sources,)
        Losses on the held-out text that no rule has seen: at the end, or of the best model where that is kept.
    best : dict, optional
        The parameters of the round with the least watched loss of the run's only source.
    """

    method: str
    seed: int
    rule: Rule
    watched: list[Array] = field(default_factory=list)
    mixes: list[Array] = field(default_factory=list)
    judged: Array = field(default_factory=lambda: np.zeros(0))
    best: dict[str, Tensor] | None = None

    @property
    def source(self) -> int:
        """The only source of a run that has one."""
        return int(np.argmax(self.rule.shares))


@dataclass(frozen=True)
class Plan:
    """How models are trained.

    Attributes
    ----------
    steps, batch, every : int
        Steps, samples of a step, and steps between two rounds.
    rate : float
        The learning rate.
    together : int
        Models that are multiplied at once.
    watched, judged : int
        Held-out windows of each source, at most, that rules watch and that judge them.
    thinned : int
        One part in so many of the text is trained on.
    """

    shape: Shape
    steps: int
    batch: int = 32
    every: int = 50
    rate: float = 1e-3
    together: int = 4
    watched: int = 32
    judged: int = 192
    thinned: int = 1
    device: str = "cpu"

    @property
    def tokens(self) -> int:
        """Tokens that a model is trained on."""
        return self.steps * self.batch * self.shape.length


class Trained:
    """Models that are trained in step.

    Parameters
    ----------
    plan : Plan
    runs : sequence of Run
    texts, watched, judged : Texts
    references : Ensemble, optional
        Models that are asked for the losses of the same tokens: one for each run.
    start : Ensemble, optional
        Models to begin with.
    keeps_best : bool
        Whether models, each of one source, are judged as they were when they predicted it best.
    """

    def __init__(
        self,
        plan: Plan,
        runs: Sequence[Run],
        texts: tuple[Texts, Texts, Texts],
        references: Ensemble | None = None,
        start: Ensemble | None = None,
        keeps_best: bool = False,
    ) -> None:
        self.plan, self.runs, self.keeps_best = plan, list(runs), keeps_best
        self.texts, watched, judged = texts
        self.watched, self.judged = watched.first(plan.watched), judged.first(plan.judged)
        self.ensemble = start or Ensemble(plan.shape, [run.seed for run in runs]).to(plan.device)
        self.descent = Descent(self.ensemble, plan.steps, plan.rate)
        self.streams = [MixtureStream(self.texts.samples, run.rule.shares, seed=run.seed) for run in runs]
        self._readers = [iter(stream) for stream in self.streams]
        self._losses, self._known = _compiled(self.ensemble), None if references is None else _compiled(references)

    def step(self) -> None:
        """Train every model on a batch of its own."""
        places = [[next(reader) for _ in range(self.plan.batch)] for reader in self._readers]
        windows, sources = self.texts.at(torch.as_tensor(places).to(self.plan.device, non_blocking=True))
        losses = self._losses(windows)
        with torch.no_grad():
            known = None if self._known is None else self._known(windows)
        weights = torch.ones_like(sources, dtype=losses.dtype)
        for k, run in enumerate(self.runs):
            # Weights follow the losses of the batch that they are for, as published.
            run.rule.batch(losses[k].detach(), sources[k], None if known is None else known[k])
            if run.rule.weights is not None:
                weights[k] = run.rule.weights[sources[k]]
        (losses.mean(2) * weights).mean(1).sum().backward()
        self.descent.step()

    def round(self, step: int) -> None:
        """Judge every model on the held-out text that rules watch, and let shares move."""
        found = self.held_out(self.watched)
        for k, (run, stream) in enumerate(zip(self.runs, self.streams, strict=True)):
            run.watched.append(found[k])
            if self.keeps_best and found[k][run.source] == min(one[run.source] for one in run.watched):
                run.best = self.ensemble.one(k)
            run.mixes.append(run.rule.mix)
            before = run.rule.shares
            run.rule.round(found[k], step)
            if run.rule.shares is not before:
                stream.follow(run.rule.shares)

    @torch.no_grad()
    def held_out(self, windows: dict[str, Tensor]) -> Array:
        """Return the mean loss of every model on every source."""
        means = []
        for several in windows.values():
            sums = 0.0
            # As many windows as a batch has, so that what is compiled for it serves.
            for some in several.split(self.plan.batch):
                sums = sums + self._losses(some.repeat(len(self.runs), 1, 1)).double().mean(2).sum(1)
            means.append(sums / len(several))
        return torch.stack(means, 1).cpu().numpy()

    def end(self) -> None:
        """Judge every model on text that no rule has seen."""
        if self.keeps_best:
            self.ensemble = Ensemble.joined(self.plan.shape, [run.best or {} for run in self.runs])
            self._losses = _compiled(self.ensemble)
        for run, found in zip(self.runs, self.held_out(self.judged), strict=True):
            run.judged = found


def _compiled(ensemble: Ensemble) -> Callable[[Tensor], Tensor]:
    """Return the losses of models, compiled where that pays."""
    return torch.compile(ensemble.losses) if ensemble.gains.is_cuda else ensemble.losses


def train(groups: Sequence[Trained], name: str) -> None:
    """Train groups of models to the end."""
    plan, begin = groups[0].plan, time.perf_counter()
    for step in range(1, plan.steps + 1):
        for group in groups:
            group.step()
            if step % plan.every == 0:
                group.round(step)
        if step % max(plan.steps // 8, 1) == 0:
            taken = time.perf_counter() - begin
            n_models = sum(len(group.runs) for group in groups)
            print(f"{name}: step {step} of {plan.steps}, {n_models} models, {taken:.0f} s", flush=True)
    for group in groups:
        group.end()
