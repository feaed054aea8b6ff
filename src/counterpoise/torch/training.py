"""A training loop for those who have none: any of the losses, early stopping by the worst context, checkpoints."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from counterpoise.exceptions import InvalidInputError, LearntByHeartWarning
from counterpoise.sets import ContextSet
from counterpoise.table import Table
from counterpoise.torch.averaging import RunningAverage
from counterpoise.torch.evaluation import Batches, RowLoss, per_sample, row_losses
from counterpoise.torch.features import head_rows
from counterpoise.torch.guard import Guard, Plain
from counterpoise.torch.head_references import head_references
from counterpoise.torch.held_out import HeldOutWeights
from counterpoise.torch.loop import Progress, TrainingRun
from counterpoise.torch.losses import ContextLoss, RobustLoss
from counterpoise.torch.sampling import split_off


@dataclass(frozen=True, eq=False)
class History:
    """What happened in training.

    Attributes
    ----------
    epochs : Table
        A row per epoch of the training with the loss that was given: ``epoch``, ``objective`` (the mean of the scalar),
        and on the held-out batches, where there are any, ``mean_risk``, ``worst_risk``, ``worst_excess`` and
        ``worst_context`` at its end.
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
    rounds : Table
        A row per look at the held-out batches: ``epoch`` (3.25 is a quarter of the fourth), the columns of ``epochs``,
        ``score`` (the worst case by which the best round is chosen), and ``training_excess``, the running training risk
        of the worst context less its reference: far below ``worst_excess``, the network learns by heart.
    weights, training_risks, held_out_risks : ndarray of shape (n_rounds, n_contexts)
        The weights of contexts up to each round, their running training risks, and their held-out risks.
    reference_risks : ndarray of shape (n_contexts,) or None
        What excess risk was counted from.
    """

    epochs: Table
    best_epoch: int
    stopped_early: bool
    risks: NDArray[np.float64]
    chosen: str | None = None
    candidates: Table | None = None
    rounds: Table = field(default_factory=lambda: Table({}))
    weights: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    training_risks: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    held_out_risks: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    reference_risks: NDArray[np.float64] | None = None


def fit(
    model: nn.Module,
    loss: ContextLoss,
    batches: Batches,
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int,
    held_out: Batches | float | None = None,
    every: float | None = None,
    judge: ContextSet | None = None,
    average: float | None = None,
    reference_risks: Sequence[float] | None = None,
    scheduler: Any = None,
    row_loss: RowLoss = per_sample,
    patience: int | None = None,
    checkpoint: str | Path | None = None,
    device: str | torch.device | None = None,
    progress: Callable[[dict[str, float]], None] | None = None,
    guard: bool = True,
) -> History:
    """Train a model, and leave it with the parameters of the best round.

    A round is a look at the held-out batches, a few times an epoch. The best one has the least worst case of excess
    risk. With :class:`~counterpoise.torch.HeldOutWeights`, rounds also move the weights of contexts.

    With held-out batches, a second network is trained by the plain mean of the losses, from the same start and on the
    same batches, and the robust one is kept only where it is better in the worst plausible mix of the held-out rows by
    more than its standard error. That costs one more training, and memory for a second set of parameters and of the
    optimiser's state; ``guard=False`` saves both.

    Parameters
    ----------
    loss : ContextLoss
        :class:`counterpoise.torch.HeldOutWeights` for networks that can learn their samples by heart; or
        :class:`~counterpoise.torch.RobustLoss`, :class:`~counterpoise.torch.ERMLoss` and so on.
    batches : iterable of (inputs, targets, contexts)
        A ``DataLoader``, passed over once per epoch.
    held_out : the same, or a share, optional
        Batches by which rounds are judged; or the share of every context's samples that is split off for it, from a
        ``DataLoader`` over a dataset of (input, target, context). A quarter is split off by default for
        :class:`~counterpoise.torch.HeldOutWeights`; with any other loss the last epoch is kept without them.
    every : float, optional
        Epochs between two rounds: .25 by default for :class:`~counterpoise.torch.HeldOutWeights`, otherwise 1.
    judge : ContextSet, optional
        The mixes whose worst case decides which round is the best: by default those of
        :class:`~counterpoise.torch.HeldOutWeights`, and every mix for other losses, that is the largest excess risk of
        any context, or the largest risk where no reference risks are known.
    average : float, optional
        Judge and keep a running average of the parameters, of which a step leaves this much: .99, for example.
    reference_risks : sequence of float, optional
        What excess risks are counted from; by default those of the loss, if it has any. Where
        :class:`~counterpoise.torch.HeldOutWeights` has none and there is a guard, they are estimated by
        :func:`~counterpoise.torch.head_references` from the plain network, which is then trained first.
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
    by_held_out = isinstance(loss, HeldOutWeights)
    if held_out is None and by_held_out:
        held_out = 0.25
    if isinstance(held_out, Real):
        batches, held_out = split_off(batches, float(held_out))
    if patience is not None and held_out is None:
        raise InvalidInputError("patience needs held_out batches to judge epochs by.")
    if every is None:
        every = 0.25 if by_held_out else 1.0
    if not (isinstance(every, Real) and 0.0 < every <= 1.0):
        raise InvalidInputError(f"every = {every!r}; pass a part of an epoch, above 0 and at most 1.")
    place = torch.device(device) if device is not None else next(model.parameters()).device
    model.to(place)
    loss.to(place)
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
        references=_references(loss, reference_risks),
        patience=patience,
        every=float(every),
        judge=loss.mixes if judge is None and by_held_out else judge,
        average=None if average is None else RunningAverage(model, average),
    )
    guarded = Guard.before(run, held_out, path) if guard and held_out is not None and not loss.is_plain else None
    state = run.resumed(path) if path is not None and path.exists() else Progress()
    plain = None
    if isinstance(loss, HeldOutWeights):
        if reference_risks is not None:
            loss.set_references(reference_risks)
        if loss.lacks_references and guarded is not None and row_loss is per_sample:
            plain, state = guarded.before_the_other(state)
            if plain is not None:
                loss.set_references(_plain_references(run, plain, guarded.held_out))
        run = replace(run, references=_references(loss, None))
        guarded = None if guarded is None else replace(guarded, asked=run)
    run.train(state, path, progress)
    _warn_if_learnt_by_heart(loss, state)
    choice, kept = (None, state) if guarded is None else guarded.choose(state, plain)
    return History(
        _table(state.rows),
        kept.kept_epoch,
        state.stopped,
        kept.risks(loss.n_contexts),
        None if choice is None else choice.chosen,
        None if choice is None else replace(choice.candidates, note=choice.words),
        _table(state.rounds),
        *(np.array(rows).reshape(-1, loss.n_contexts) for rows in _by_context(state)),
        reference_risks=run.references,
    )


def _table(rows: list[dict[str, float]]) -> Table:
    names = dict.fromkeys(name for row in rows for name in row)
    return Table({name: np.array([row.get(name, math.nan) for row in rows]) for name in names})


def _by_context(state: Progress) -> tuple[list[list[float]], ...]:
    return state.weights, state.training_risks, state.held_out_risks


def _plain_references(run: TrainingRun, plain: Plain, batches: Batches) -> NDArray[np.float64]:
    """Return what heads on the features of the plain network reach in each context, on the held-out rows.

    Contexts without held-out rows have the mean of the others, so that their excess is the mean of the others' too.
    """
    # Batches may come in another order each time.
    kept = list(batches)
    own = copy.deepcopy(run.model.state_dict())
    losses, _ = row_losses(run.model, {"erm": plain.parameters.put_in_place}, kept, run.row_loss, run.device)
    rows = head_rows(run.model, kept, device=run.device)
    run.model.load_state_dict(own)
    n_contexts = run.loss.n_contexts
    found = head_references(rows.features, rows.targets, rows.contexts, n_contexts, own_losses=losses["erm"]).risks
    return np.where(np.isnan(found), np.nanmean(found), found)


_ENOUGH = 30
"""Held-out rows of a context from which its risk is taken for more than chance."""


def _warn_if_learnt_by_heart(loss: ContextLoss, state: Progress) -> None:
    """Say so where weights followed training risks that say little about held-out ones."""
    if not isinstance(loss, RobustLoss) or loss.is_plain or not state.rounds:
        return
    held_out, training = state.rounds[-1]["worst_excess"], state.rounds[-1]["training_excess"]
    c, what = int(state.rounds[-1]["worst_context"]), "excess" if loss.references.any() else "risk"
    if training < 0.5 * held_out and state.held_out_counts[c] >= _ENOUGH:
        warnings.warn(
            f"in context {c} the training {what} is {training:.3g}, on held-out rows {held_out:.3g}: the network "
            "learns its samples by heart, and RobustLoss, whose weights follow training risks, turns away from "
            "the contexts that need weight. Use counterpoise.torch.HeldOutWeights.",
            LearntByHeartWarning,
            stacklevel=3,
        )


def _references(loss: ContextLoss, given: Sequence[float] | None) -> NDArray[np.float64] | None:
    if given is not None:
        array = np.asarray(given, dtype=np.float64)
        if array.shape != (loss.n_contexts,):
            raise InvalidInputError(f"reference_risks have shape {array.shape} for {loss.n_contexts} contexts.")
        return array
    own = getattr(loss, "references", None)
    return None if own is None or not bool(own.any()) else own.cpu().numpy()
