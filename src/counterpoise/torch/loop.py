"""One training: passes over the batches, the best epoch, early stopping, and checkpoints to go on from."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from counterpoise.exceptions import InvalidInputError
from counterpoise.files import whole
from counterpoise.sets import ContextSet
from counterpoise.torch.averaging import RunningAverage
from counterpoise.torch.evaluation import Batches, HeldOutRisks, RowLoss
from counterpoise.torch.held_out import HeldOutWeights, scores_of
from counterpoise.torch.losses import ContextLoss
from counterpoise.torch.rounds import DivergedError, is_due


@dataclass
class Progress:
    """Where training is: all that a checkpoint holds beside model, loss, optimiser and scheduler."""

    epoch: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = -1
    best_score: float = math.inf
    best_mean: float = math.inf
    best_round: int = -1
    best_model: dict[str, Any] | None = None
    best_risks: list[float] = field(default_factory=list)
    stopped: bool = False
    n_batches: int = 0
    rounds: list[dict[str, float]] = field(default_factory=list)
    weights: list[list[float]] = field(default_factory=list)
    training_risks: list[list[float]] = field(default_factory=list)
    held_out_risks: list[list[float]] = field(default_factory=list)
    in_the_mean: bool = False
    plan: list[float] = field(default_factory=list)

    @property
    def kept_epoch(self) -> int:
        """The best epoch; the last one where none was judged."""
        return self.best_epoch if self.best_model is not None else self.epoch - 1

    def risks(self, n_contexts: int) -> NDArray[np.float64]:
        """Return the held-out risks of the best epoch."""
        return np.array(self.best_risks or [math.nan] * n_contexts)


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """What is trained, with which loss, on which batches, and how it is judged; see :func:`fit`.

    Attributes
    ----------
    every : float or int
        Epochs, or batches, between two rounds, that is looks at the held-out batches. Every epoch ends with one.
    judge : ContextSet or None
        The mixes whose worst case decides which round is the best; None is every mix.
    average : RunningAverage or None
        What is judged and kept instead of the parameters themselves.
    judged_by : callable, optional
        The loss whose worst case decides about rounds, counted from zero; None is that of training, and excess risk.
    """

    model: nn.Module
    loss: ContextLoss
    batches: Batches
    optimizer: torch.optim.Optimizer
    scheduler: Any
    row_loss: RowLoss
    device: torch.device
    epochs: int
    held_out: Batches | None
    references: NDArray[np.float64] | None
    patience: int | None
    every: float = 1.0
    judge: ContextSet | None = None
    average: RunningAverage | None = None
    judged_by: RowLoss | None = None

    def train(
        self, state: Progress, path: Path | None = None, progress: Callable[[dict[str, float]], None] | None = None
    ) -> None:
        """Go on from ``state`` to the last epoch, and leave the model with the parameters of the best one."""
        while state.epoch < self.epochs and not state.stopped:
            set_epoch(self.batches, state.epoch)
            row: dict[str, float] = {"epoch": state.epoch, "objective": self._one_epoch(state)}
            score = row["objective"]
            if self.held_out is not None:
                row |= {name: state.rounds[-1][name] for name in _JUDGED}
                score = state.rounds[-1]["score"]
            if self.scheduler is not None:
                judging = isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
                self.scheduler.step(score) if judging else self.scheduler.step()
            state.rows.append(row)
            state.epoch += 1
            state.stopped = self.patience is not None and state.epoch - 1 - state.best_epoch >= self.patience
            if path is not None:
                self.save(path, state)
            if progress is not None:
                progress(row)
        if state.best_model is not None:
            self.model.load_state_dict(state.best_model)
        elif self.average is not None:
            self.model.load_state_dict(self.average.values)

    def _one_epoch(self, state: Progress) -> float:
        """Pass once over the batches, with rounds on the way, and return the mean of the scalar."""
        total, n_batches = torch.zeros((), device=self.device), 0
        per_epoch, judged_at = self._per_epoch(state), 0
        for batch in self.batches:
            if n_batches == judged_at:
                self.model.train()
                self.loss.train()
            inputs, targets, contexts = (part.to(self.device, non_blocking=True) for part in batch)
            self.optimizer.zero_grad(set_to_none=True)
            value = self.loss(self.row_loss(self.model(inputs), targets), contexts)
            value.backward()
            self.optimizer.step()
            if self.average is not None:
                self.average.update()
            total += value.detach()
            n_batches += 1
            before = state.epoch * per_epoch if isinstance(self.every, int) else 0
            if self.held_out is not None and per_epoch and is_due(self.every, before + n_batches, per_epoch):
                self._check_finite(total, n_batches)
                self._round(state, n_batches / per_epoch)
                judged_at = n_batches
        if n_batches == 0:
            raise InvalidInputError(
                "there are no batches. A generator is empty after one epoch: pass a DataLoader or a list."
            )
        mean = self._check_finite(total, n_batches)
        if self.held_out is not None and judged_at < n_batches:
            self._round(state, 1.0)
        state.n_batches = n_batches
        return mean

    def _check_finite(self, total: Tensor, n_batches: int) -> float:
        mean = float(total) / n_batches
        if not math.isfinite(mean):
            raise DivergedError(f"the loss is {mean} in this epoch: training diverged. Lower the learning rate.")
        return mean

    def _per_epoch(self, state: Progress) -> int:
        """Return the batches of an epoch; 0 where that is not known yet."""
        try:
            return len(self.batches)  # type: ignore[arg-type]
        except TypeError:
            return state.n_batches

    def _round(self, state: Progress, within: float) -> None:
        """Judge the network on the held-out batches, remember it if it is the best so far, and move the weights."""
        loss = self.loss
        with nullcontext() if self.average is None else self.average.in_place():
            looked, by = self._look()
            judged = _judged(looked, self.references)
            score = self._score(by)
            # A loss of zeros and ones has many ties.
            rank = score, judged["mean_risk"]
            if rank < (state.best_score, state.best_mean) or state.best_model is None:
                state.best_score, state.best_mean = rank
                state.best_round, state.best_epoch = len(state.rounds), state.epoch
                state.best_risks = looked.risks.tolist()
                state.best_model = copy.deepcopy(self.model.state_dict())
        training = loss.context_risks.cpu().numpy()
        worst = int(judged["worst_context"])
        reference = 0.0 if self.references is None else self.references[worst]
        row = {"epoch": state.epoch + within, **judged, "score": score}
        row |= {"error": float(looked.errors[worst]), "rows": float(looked.counts[worst])}
        row["training_excess"] = float(training[worst] - reference)
        state.rounds.append(row)
        state.weights.append(loss.context_weights.detach().cpu().tolist())
        state.training_risks.append(training.tolist())
        state.held_out_risks.append(looked.risks.tolist())
        if isinstance(loss, HeldOutWeights):
            loss.update_risks(looked.risks, looked.counts)

    def _look(self) -> tuple[HeldOutRisks, HeldOutRisks]:
        """Return the held-out risks, and those by which rounds are judged."""
        assert self.held_out is not None
        losses = [self.row_loss] if self.judged_by is None else [self.row_loss, self.judged_by]
        found = HeldOutRisks.of(self.model, self.held_out, self.loss.n_contexts, losses, self.device, shared=True)
        return found[0], found[-1]

    @property
    def judged_from(self) -> NDArray[np.float64] | None:
        """The reference risks of what rounds are judged by; None is zero."""
        return self.references if self.judged_by is None else None

    def _score(self, looked: HeldOutRisks) -> float:
        """Return the worst case by which rounds are judged."""
        _check_risks(looked)
        excess = looked.risks if self.judged_from is None else looked.risks - self.judged_from
        if self.judge is None:
            return float(np.nanmax(excess))
        scores = scores_of(excess, looked.counts, self.loss.unseen_risks)
        return float(self.judge.worst_case(scores[: self.judge.p_hat.size]).value)

    @property
    def parts(self) -> dict[str, Any]:
        """All that has a state."""
        found = {"model": self.model, "loss": self.loss, "optimizer": self.optimizer}
        if self.scheduler is not None:
            found["scheduler"] = self.scheduler
        if self.average is not None:
            found["average"] = self.average
        return {**found, "beside": self.beside} if self.beside.parameters else found

    @property
    def beside(self) -> Beside:
        """What the optimiser trains beside the model."""
        return Beside.of(self.model, self.optimizer)

    def packed(self, state: Progress) -> dict[str, Any]:
        """Return all that is needed to go on from here; tensors are not copied."""
        kept = {name: part.state_dict() for name, part in self.parts.items()}
        return kept | {"training": vars(state), "chance": self.chance()}

    def unpack(self, kept: dict[str, Any], but: str = "") -> Progress:
        """Go back to where ``packed`` was called, except for the part of this name."""
        for name, part in self.parts.items():
            if name != but:
                part.load_state_dict(kept[name])
        self.set_chance(kept["chance"])
        return Progress(**kept["training"])

    def save(self, path: Path, state: Progress) -> None:
        """Write a checkpoint."""
        kept = self.packed(state)
        whole(path, lambda file: torch.save(kept, file))

    def resumed(self, path: Path, but: str = "") -> Progress:
        """Read a checkpoint; tensors and plain values only, never code."""
        try:
            return self.unpack(torch.load(path, map_location=self.device, weights_only=True), but)
        except Exception as error:
            # Whatever another kind of file makes torch raise, the user's next step is the same.
            raise InvalidInputError(
                f"{path} is no checkpoint of this model and loss ({error!s:.200}). Name another file, or delete it."
            ) from error

    def chance(self) -> dict[str, Tensor]:
        """Return the states of all generators that are known to draw."""
        return {name: generator.get_state() for name, generator in self._generators().items()}

    def set_chance(self, states: dict[str, Tensor]) -> None:
        """Take generators back to these states."""
        for name, generator in self._generators().items():
            if name in states:
                generator.set_state(states[name].cpu())

    def _generators(self) -> dict[str, torch.Generator]:
        found = {"cpu": torch.default_generator}
        if self.device.type == "cuda":
            number = torch.cuda.current_device() if self.device.index is None else self.device.index
            found["cuda"] = torch.cuda.default_generators[number]
        drawing = {"batches": self.batches} | _samplers(self.batches)
        own = {name: getattr(source, "generator", None) for name, source in drawing.items()}
        return found | {name: one for name, one in own.items() if isinstance(one, torch.Generator)}


@dataclass(frozen=True, eq=False)
class Start:
    """Where a training begins, so that it can begin there after another one has used the same model and optimiser.

    The same model, optimiser and scheduler are taken back to where they were. Copies would need a model that can be
    copied, and would miss what points at the original: a scheduler counts the steps of its optimiser by a wrapper that
    copying drops, and processes that share batches know one model only.

    Attributes
    ----------
    kept : dict or None
        All states; None where ``path`` holds them.
    path : Path, optional
        The checkpoint of this training. It is written before any training begins, so that what is resumed begins where
        it would have.
    chance : dict or None
        States of generators, where the training begins now: with several processes, each has its own.
    """

    kept: dict[str, Any] | None
    path: Path | None
    chance: dict[str, Tensor] | None = None

    @classmethod
    def of(cls, run: TrainingRun, state: Progress, checkpoint: Path | None, name: str) -> Start:
        """Remember where a training begins; with a checkpoint of the first one, in a file of this name beside it."""
        if checkpoint is None:
            return cls(copy.deepcopy(run.packed(state)), None)
        path = checkpoint.with_name(f"{checkpoint.stem}.{name}{checkpoint.suffix}")
        # A file without that of the first training is left over from a run whose checkpoint was deleted.
        if checkpoint.exists() and path.exists():
            return cls(None, path)
        run.save(path, state)
        return cls(None, path, run.chance())

    @property
    def begins_now(self) -> bool:
        """Whether no earlier run wrote this start."""
        return self.path is None or self.chance is not None

    def begin(self, run: TrainingRun, but: str = "") -> Progress:
        """Take everything, except for the part of this name, back to where the training began or was interrupted."""
        if self.path is None:
            assert self.kept is not None
            return run.unpack(self.kept, but)
        state = run.resumed(self.path, but)
        if self.chance is not None and state.epoch == 0:
            run.set_chance(self.chance)
        return state


@dataclass(frozen=True, eq=False)
class Beside:
    """Parameters that the optimiser trains beside those of the model, such as a temperature of the row loss."""

    parameters: list[Tensor]

    @classmethod
    def of(cls, model: nn.Module, optimizer: torch.optim.Optimizer) -> Beside:
        """Find them."""
        own = {id(parameter) for parameter in model.parameters()}
        trained = (parameter for group in optimizer.param_groups for parameter in group["params"])
        return cls([parameter for parameter in trained if id(parameter) not in own])

    def state_dict(self) -> dict[str, Tensor]:
        """Return their values by number."""
        return {str(k): parameter.detach() for k, parameter in enumerate(self.parameters)}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Set their values."""
        for k, parameter in enumerate(self.parameters):
            parameter.copy_(state[str(k)])


def set_epoch(batches: Batches, epoch: int) -> None:
    """Tell a sampler which epoch it is, so that a run that goes on draws what it would have drawn."""
    for sampler in _samplers(batches).values():
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)


def _samplers(batches: Batches) -> dict[str, Any]:
    found = {name: getattr(batches, name, None) for name in ("batch_sampler", "sampler")}
    return {name: sampler for name, sampler in found.items() if sampler is not None}


_JUDGED = ("mean_risk", "worst_risk", "worst_excess", "worst_context")


def _judged(looked: HeldOutRisks, references: NDArray[np.float64] | None) -> dict[str, float]:
    risks, counts = looked.risks, looked.counts
    if not (counts > 0).any():
        raise InvalidInputError("there are no held-out batches. Pass a DataLoader or a list, not a generator.")
    excess = risks if references is None else risks - references
    seen = counts > 0
    _check_risks(looked)
    return {
        "mean_risk": float(risks[seen] @ counts[seen] / counts.sum()),
        "worst_risk": float(np.nanmax(risks)),
        "worst_excess": float(np.nanmax(excess)),
        "worst_context": float(np.nanargmax(excess)),
    }


def _check_risks(looked: HeldOutRisks) -> None:
    lost = np.flatnonzero((looked.counts > 0) & ~np.isfinite(looked.risks))
    if lost.size:
        raise DivergedError(f"the held-out risk of context {lost[0]} is {looked.risks[lost[0]]}: training diverged.")
