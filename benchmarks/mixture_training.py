"""Training of many small language models at once, each on a mix of sources that its rule decides."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
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
    compiled : bool
        Whether models are compiled, which takes a minute and, without a GPU, a compiler of C++.
    jobs : int
        Groups that are trained at the same time, each by a process.
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
    compiled: bool = False
    jobs: int = 1
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
        self._losses = self._callable(self.ensemble)
        self._known = None if references is None else self._callable(references)

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
            self._losses = self._callable(self.ensemble)
        for run, found in zip(self.runs, self.held_out(self.judged), strict=True):
            run.judged = found

    def train(self) -> tuple[list[Run], dict[str, Tensor]]:
        """Train every model to the end, judge it, and return what came of it."""
        for step in range(1, self.plan.steps + 1):
            self.step()
            if step % self.plan.every == 0:
                self.round(step)
        self.end()
        return self.runs, self.ensemble.state_dict()

    def _callable(self, ensemble: Ensemble) -> Callable[[Tensor], Tensor]:
        return torch.compile(ensemble.losses) if self.plan.compiled else ensemble.losses


def train(groups: Sequence[Trained], name: str) -> None:
    """Train groups of models to the end."""
    begin = time.perf_counter()
    for done, (group, (runs, parameters)) in enumerate(zip(groups, _each(groups), strict=True), start=1):
        group.runs = runs
        group.ensemble.load_state_dict(parameters)
        print(f"{name}: {done} of {len(groups)} groups, {time.perf_counter() - begin:.0f} s", flush=True)


def _each(groups: Sequence[Trained]) -> Iterator[tuple[list[Run], dict[str, Tensor]]]:
    jobs = groups[0].plan.jobs
    if jobs == 1:
        yield from map(Trained.train, groups)
        return
    # The first one alone: processes inherit what it has compiled, which threads would not run side by side.
    yield groups[0].train()
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, context, initializer=_inherit, initargs=(groups,)) as pool:
        yield from pool.map(_train, range(1, len(groups)))


_inherited: Sequence[Trained] = ()


def _inherit(groups: Sequence[Trained]) -> None:
    global _inherited
    _inherited = groups


def _train(k: int) -> tuple[list[Run], dict[str, Tensor]]:
    return _inherited[k].train()
