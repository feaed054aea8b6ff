"""A training loop for those who have none: any of the losses, early stopping by the worst context, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from counterpoise.exceptions import InvalidInputError
from counterpoise.table import Table
from counterpoise.torch.evaluation import Batches, RowLoss, per_sample
from counterpoise.torch.guard import Guard
from counterpoise.torch.loop import Progress, TrainingRun
from counterpoise.torch.losses import ContextLoss


@dataclass(frozen=True, eq=False)
class History:
    """What happened in training.

    Attributes
    ----------
    epochs : Table
        A row per epoch of the training with the loss that was given: ``epoch``, ``objective`` (the mean of the scalar),
        and on the held-out batches, where there are any, ``mean_risk``, ``worst_risk``, ``worst_excess`` and
        ``worst_context``.
    best_epoch : int
        The one whose parameters the model has now: an epoch of the plain training where that was kept.
    stopped_early : bool
        Whether the training with the loss that was given ended before its last epoch.
    risks : ndarray of shape (n_contexts,)
        Held-out risks of the model as it is now; NaN for contexts without held-out samples.
    chosen : str or None
        What the guard kept: ``"erm"``, or the name of the loss such as ``"robust"``. None without a guard.
    candidates : Table or None
        The held-out comparison behind the choice, see :class:`counterpoise.inference.choice.Choice`; its note says it
        in a sentence.
    """

    epochs: Table
    best_epoch: int
    stopped_early: bool
    risks: NDArray[np.float64]
    chosen: str | None = None
    candidates: Table | None = None


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
    guard: bool = True,
) -> History:
    """Train a model, and leave it with the parameters of the best epoch.

    With held-out batches, a second network is trained by the plain mean of the losses, from the same start and on the
    same batches, and the robust one is kept only where it is better in the worst plausible mix of the held-out rows by
    more than its standard error. That costs one more training, and memory for a second set of parameters and of the
    optimiser's state; ``guard=False`` saves both.

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
        Written after every epoch; a run that finds it goes on from there. The plain training of the guard has a file of
        its own beside it: ``run.plain.pt`` for ``run.pt``.
    progress : callable, optional
        Called with each epoch's numbers, those of the plain training excepted.
    guard : bool
        Whether a plain network is trained too, and the better of the two kept. It needs ``held_out`` batches, and does
        nothing for :class:`~counterpoise.torch.ERMLoss` or a set of a single mix. Candidates are compared in the worst
        mix of the loss's own set, or of all mixes where it has none. The plain training resets model, optimiser,
        scheduler and the generators of ``batches`` to where they were; afterwards all but the model are as the training
        with ``loss`` left them.
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
    run = TrainingRun(
        model,
        loss,
        batches,
        optimizer,
        scheduler=scheduler,
        row_loss=row_loss,
        device=place,
        epochs=epochs,
        held_out=held_out,
        references=references,
        patience=patience,
    )
    guarded = Guard.before(run, held_out, path) if guard and held_out is not None and not loss.is_plain else None
    state = run.resumed(path) if path is not None and path.exists() else Progress()
    run.train(state, path, progress)
    choice, kept = (None, state) if guarded is None else guarded.choose(state)
    names = dict.fromkeys(name for row in state.rows for name in row)
    return History(
        Table({name: np.array([row.get(name, math.nan) for row in state.rows]) for name in names}),
        kept.kept_epoch,
        state.stopped,
        kept.risks(loss.n_contexts),
        None if choice is None else choice.chosen,
        None if choice is None else replace(choice.candidates, note=choice.words),
    )


def _references(loss: ContextLoss, given: Sequence[float] | None) -> NDArray[np.float64] | None:
    if given is not None:
        array = np.asarray(given, dtype=np.float64)
        if array.shape != (loss.n_contexts,):
            raise InvalidInputError(f"reference_risks have shape {array.shape} for {loss.n_contexts} contexts.")
        return array
    own = getattr(loss, "references", None)
    return None if own is None or not bool(own.any()) else own.cpu().numpy()
