"""A training loop for those who have none: any of the losses, early stopping by the worst context, checkpoints."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from counterpoise.exceptions import CounterpoiseError, InvalidInputError
from counterpoise.files import whole
from counterpoise.table import Table
from counterpoise.torch.losses import ContextLoss, context_sums

RowLoss = Callable[[Tensor, Tensor], Tensor]
Batches = Iterable[tuple[Tensor, Tensor, Tensor]]


def per_sample(prediction: Tensor, target: Tensor) -> Tensor:
    """Return the loss of every sample: cross-entropy for classes, half the squared error for numbers."""
    if target.is_floating_point():
        squares = 0.5 * (prediction.reshape(target.shape) - target).square()
        return squares if squares.ndim == 1 else squares.flatten(1).mean(1)
    return nn.functional.cross_entropy(prediction, target, reduction="none")


@dataclass(frozen=True, eq=False)
class History:
    """What happened in training.

    Attributes
    ----------
    epochs : Table
        A row per epoch: ``epoch``, ``objective`` (the mean of the scalar), and on the held-out batches, where there are
        any, ``mean_risk``, ``worst_risk``, ``worst_excess`` and ``worst_context``.
    best_epoch : int
        The one whose parameters the model has now.
    stopped_early : bool
    risks : ndarray of shape (n_contexts,)
        Held-out risks of that epoch; NaN for contexts without held-out samples.
    """

    epochs: Table
    best_epoch: int
    stopped_early: bool
    risks: NDArray[np.float64]


@dataclass
class _State:
    """Where training is: all that a checkpoint holds beside model, loss, optimiser and scheduler."""

    epoch: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = -1
    best_score: float = math.inf
    best_model: dict[str, Any] | None = None
    best_risks: list[float] = field(default_factory=list)
    stopped: bool = False


def fit(
    model: nn.Module,
    loss: ContextLoss,
    batches: Batches,
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int,
    held_out: Batches | None = None,
    reference_risks: Sequence[float] | None = None,
    scheduler: Any = None,
    row_loss: RowLoss = per_sample,
    patience: int | None = None,
    checkpoint: str | Path | None = None,
    device: str | torch.device | None = None,
    progress: Callable[[dict[str, float]], None] | None = None,
) -> History:
    """Train a model, and leave it with the parameters of the best epoch.

    Parameters
    ----------
    loss : ContextLoss
        Such as :class:`counterpoise.torch.RobustLoss`, :class:`~counterpoise.torch.ERMLoss`.
    batches : iterable of (inputs, targets, contexts)
        A ``DataLoader``, passed over once per epoch.
    held_out : the same, optional
        Batches by which epochs are judged: by the largest excess risk of any context, or by the largest risk where no
        reference risks are known. Without them the last epoch is kept.
    reference_risks : sequence of float, optional
        What excess risks are counted from; by default those of the loss, if it has any.
    scheduler : optional
        Stepped after every epoch.
    row_loss : callable
        Predictions and targets in, one loss per sample out.
    patience : int, optional
        Stop when so many epochs in a row have not been better.
    checkpoint : path, optional
        Written after every epoch; a run that finds it goes on from there.
    progress : callable, optional
        Called with each epoch's numbers.
    """
    if not (isinstance(epochs, int) and epochs >= 1):
        raise InvalidInputError(f"epochs = {epochs!r}; pass a whole number, 1 or more.")
    if patience is not None and held_out is None:
        raise InvalidInputError("patience needs held_out batches to judge epochs by.")
    place = torch.device(device) if device is not None else next(model.parameters()).device
    model.to(place)
    loss.to(place)
    references = _references(loss, reference_risks)
    path = None if checkpoint is None else Path(checkpoint)
    state = _State()
    parts = {"model": model, "loss": loss, "optimizer": optimizer} | ({"scheduler": scheduler} if scheduler else {})
    if path is not None and path.exists():
        state = _resumed(path, parts, batches, place)
    while state.epoch < epochs and not state.stopped:
        _set_epoch(batches, state.epoch)
        objective = _one_epoch(model, loss, batches, optimizer, row_loss, place)
        row: dict[str, float] = {"epoch": state.epoch, "objective": objective}
        score = objective
        if held_out is not None:
            risks, counts = context_risks(model, held_out, loss.n_contexts, row_loss, place)
            row |= _judged(risks, counts, references)
            score = row["worst_risk" if references is None else "worst_excess"]
            if score < state.best_score or state.best_model is None:
                state.best_score, state.best_epoch, state.best_risks = score, state.epoch, risks.tolist()
                state.best_model = copy.deepcopy(model.state_dict())
        if scheduler is not None:
            judging = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
            scheduler.step(score) if judging else scheduler.step()
        state.rows.append(row)
        state.epoch += 1
        state.stopped = patience is not None and state.epoch - 1 - state.best_epoch >= patience
        if path is not None:
            _save(path, parts, batches, state)
        if progress is not None:
            progress(row)
    if state.best_model is not None:
        model.load_state_dict(state.best_model)
    best = state.best_epoch if state.best_model is not None else state.epoch - 1
    names = dict.fromkeys(name for row in state.rows for name in row)
    table = Table({name: np.array([row.get(name, math.nan) for row in state.rows]) for name in names})
    return History(table, best, state.stopped, np.array(state.best_risks or [math.nan] * loss.n_contexts))


def _references(loss: ContextLoss, given: Sequence[float] | None) -> NDArray[np.float64] | None:
    if given is not None:
        array = np.asarray(given, dtype=np.float64)
        if array.shape != (loss.n_contexts,):
            raise InvalidInputError(f"reference_risks have shape {array.shape} for {loss.n_contexts} contexts.")
        return array
    own = getattr(loss, "references", None)
    return None if own is None or not bool(own.any()) else own.cpu().numpy()


def _one_epoch(
    model: nn.Module,
    loss: ContextLoss,
    batches: Batches,
    optimizer: torch.optim.Optimizer,
    row_loss: RowLoss,
    device: torch.device,
) -> float:
    """Pass once over the batches, and return the mean of the scalar."""
    model.train()
    loss.train()
    total, n_batches = torch.zeros((), device=device), 0
    for inputs, targets, contexts in batches:
        inputs, targets, contexts = (one.to(device, non_blocking=True) for one in (inputs, targets, contexts))
        optimizer.zero_grad(set_to_none=True)
        value = loss(row_loss(model(inputs), targets), contexts)
        value.backward()
        optimizer.step()
        total += value.detach()
        n_batches += 1
    if n_batches == 0:
        raise InvalidInputError(
            "there are no batches. A generator is empty after one epoch: pass a DataLoader or a list."
        )
    mean = float(total) / n_batches
    if not math.isfinite(mean):
        raise CounterpoiseError(f"the loss is {mean} in this epoch: training diverged. Lower the learning rate.")
    return mean


@torch.no_grad()
def context_risks(
    model: nn.Module,
    batches: Batches,
    n_contexts: int,
    row_loss: RowLoss = per_sample,
    device: str | torch.device | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean loss and the number of samples in each context; NaN where there are none."""
    place = torch.device(device) if device is not None else next(model.parameters()).device
    was_training = model.training
    model.eval()
    both = torch.zeros(2, n_contexts, dtype=torch.float64, device=place)
    for batch in batches:
        inputs, targets, contexts = (part.to(place) for part in batch)
        both += context_sums(row_loss(model(inputs), targets), contexts, n_contexts)
    model.train(was_training)
    sums, counts = both.cpu().numpy()
    with np.errstate(invalid="ignore"):
        return sums / np.where(counts > 0, counts, np.nan), counts


def _judged(
    risks: NDArray[np.float64], counts: NDArray[np.float64], references: NDArray[np.float64] | None
) -> dict[str, float]:
    if not (counts > 0).any():
        raise InvalidInputError("there are no held-out batches. Pass a DataLoader or a list, not a generator.")
    excess = risks if references is None else risks - references
    seen = counts > 0
    lost = np.flatnonzero(seen & ~np.isfinite(risks))
    if lost.size:
        raise CounterpoiseError(f"the held-out risk of context {lost[0]} is {risks[lost[0]]}: training diverged.")
    return {
        "mean_risk": float(risks[seen] @ counts[seen] / counts.sum()),
        "worst_risk": float(np.nanmax(risks)),
        "worst_excess": float(np.nanmax(excess)),
        "worst_context": float(np.nanargmax(excess)),
    }


def _set_epoch(batches: Batches, epoch: int) -> None:
    """Tell a sampler which epoch it is, so that a run that goes on draws what it would have drawn."""
    for name in ("batch_sampler", "sampler"):
        sampler = getattr(batches, name, None)
        if sampler is not None and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)


def _generators(batches: Batches, device: torch.device) -> dict[str, torch.Generator]:
    """Return whatever draws."""
    found = {"cpu": torch.default_generator}
    if device.type == "cuda":
        number = torch.cuda.current_device() if device.index is None else device.index
        found["cuda"] = torch.cuda.default_generators[number]
    own = getattr(batches, "generator", None)
    return {**found, "batches": own} if isinstance(own, torch.Generator) else found


def _save(path: Path, parts: dict[str, Any], batches: Batches, state: _State) -> None:
    device = next(parts["model"].parameters()).device
    kept = {name: part.state_dict() for name, part in parts.items()}
    states = {name: generator.get_state() for name, generator in _generators(batches, device).items()}
    kept |= {"training": vars(state), "chance": states}
    whole(path, lambda file: torch.save(kept, file))


def _resumed(path: Path, parts: dict[str, Any], batches: Batches, device: torch.device) -> _State:
    """Read a checkpoint; tensors and plain values only, never code."""
    try:
        kept = torch.load(path, map_location=device, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(kept[name])
        for name, generator in _generators(batches, device).items():
            if name in kept["chance"]:
                generator.set_state(kept["chance"][name].cpu())
        return _State(**kept["training"])
    except Exception as error:
        # Whatever another kind of file makes torch raise, the user's next step is the same.
        raise InvalidInputError(
            f"{path} is no checkpoint of this model and loss ({error!s:.200}). Name another file, or delete it."
        ) from error
