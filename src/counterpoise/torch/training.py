"""A training loop for those who have none: any of the losses, early stopping by the worst context, checkpoints."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed, nn

from counterpoise.exceptions import CounterpoiseWarning, InvalidInputError, LearntByHeartWarning
from counterpoise.sets import ContextSet
from counterpoise.table import Table
from counterpoise.torch.averaging import RunningAverage
from counterpoise.torch.evaluation import Batches, RowLoss, per_sample
from counterpoise.torch.features import has_features, head_rows
from counterpoise.torch.guard import Guard, Plain
from counterpoise.torch.head_references import References, head_references
from counterpoise.torch.held_out import HeldOutWeights
from counterpoise.torch.loop import Progress, TrainingRun
from counterpoise.torch.losses import ContextLoss, RobustLoss, are_several
from counterpoise.torch.refit import Refit
from counterpoise.torch.rounds import check_every
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
    best_epoch, best_round : int
        The ones whose parameters were kept: of the plain training where that was. Rounds count from 0 on; -1 where
        nothing was held out.
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
        ``score`` (the worst case by which the best round is chosen); and of the worst context ``rows``, ``error`` (the
        standard error of its risk) and ``training_excess``, its running training risk less its reference: far below
        ``worst_excess``, the network learns by heart. The least of many scores is lower than what fresh rows show.
    weights, training_risks, held_out_risks : ndarray of shape (n_rounds, n_contexts)
        The weights of contexts up to each round, their running training risks, and their held-out risks.
    reference_risks : ndarray of shape (n_contexts,) or None
        What excess risk was counted from.
    refit_epochs : int or None
        Epochs of the last training, on all samples; None where there was none. Everything above is of the trainings
        before it: no samples are left that could judge this one.
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
    refit_epochs: int | None = None
    best_round: int = -1


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
    judged_by: RowLoss | None = None,
    average: float | None = None,
    reference_risks: Sequence[float] | None = None,
    scheduler: Any = None,
    row_loss: RowLoss = per_sample,
    patience: int | None = None,
    checkpoint: str | Path | None = None,
    device: str | torch.device | None = None,
    progress: Callable[[dict[str, float]], None] | None = None,
    guard: bool = True,
    refit: Batches | bool | None = None,
) -> History:
    """Train a model, and leave it with the parameters of the best round, or of a last training on all samples.

    A round is a look at the held-out batches, a few times an epoch. The best one has the least worst case of excess
    risk. With :class:`~counterpoise.torch.HeldOutWeights`, rounds also move the weights of contexts.

    With held-out batches, a second network is trained by the plain mean of the losses, from the same start and on the
    same batches, and the robust one is kept only where it is better in the worst plausible mix of the held-out rows by
    more than its standard error. That costs one more training, and memory for a second set of parameters and of the
    optimiser's state; ``guard=False`` saves both.

    Where ``fit`` has split held-out samples off, the model is then trained once more, from the same start and on all
    samples, for as many whole epochs as the best round took, and left with a running average of the parameters over the
    last epoch. Samples that were held out are thus not lost to the model. Weights that followed held-out risks are
    fixed at their mean up to the best round; any other loss begins anew. ``refit=False`` saves that training.

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
    every : float or int, optional
        Between two rounds: a float is a part of an epoch, .25 by default for
        :class:`~counterpoise.torch.HeldOutWeights` and 1.0 otherwise, an int a number of batches. Every epoch ends with
        a round.
    judge : ContextSet, optional
        The mixes whose worst case decides which round is the best: by default those of
        :class:`~counterpoise.torch.HeldOutWeights`, and every mix for other losses, that is the largest excess risk of
        any context, or the largest risk where no reference risks are known.
    judged_by : callable, optional
        Another loss than ``row_loss``, whose worst case decides which round is the best, and whether the plain network
        is; predictions and targets in, one loss per sample out. With :func:`~counterpoise.torch.zero_one` these are the
        errors of the worst context, which do not mind how confident a network is. It is counted from zero.
    average : float, optional
        Judge and keep a running average of the parameters, of which a step leaves this much: .99, for example.
    reference_risks : sequence of float, optional
        What excess risks are counted from; by default those of the loss, if it has any. Where
        :class:`~counterpoise.torch.HeldOutWeights` has none and there is a guard, they are estimated by
        :func:`~counterpoise.torch.head_references` from the plain network, which is then trained first.
    scheduler : optional
        Stepped after every epoch; by the held-out score where it asks for one, and in the last training by the
        objective.
    row_loss : callable
        Predictions and targets in, one loss per sample out.
    patience : int, optional
        Stop when so many epochs in a row have not been better.
    checkpoint : path, optional
        Written after every epoch; a run that finds it goes on from there. The plain training of the guard has a file of
        its own beside it: ``run.plain.pt`` for ``run.pt``.
    progress : callable, optional
        Called with each epoch's numbers, those of the plain and the last training excepted.
    guard : bool
        Whether a plain network is trained too, and the better of the two kept. It needs ``held_out`` batches, and does
        nothing for :class:`~counterpoise.torch.ERMLoss`, fixed weights or a set of a single mix. Candidates are
        compared in the worst mix of the loss's own set, or of all mixes where it has none. The plain training resets
        model, optimiser, scheduler and the generators of ``batches`` to where they were; afterwards all but the model
        are as the training with ``loss`` left them, until the last training.
    refit : bool or batches, optional
        Whether the model is trained once more on all samples: by default where a share of ``batches`` was held out.
        Where ``held_out`` batches were given, pass those of all samples. Optimiser and scheduler are then left as this
        training leaves them. It needs memory for a running average and a copy of the parameters, and with a checkpoint
        files of its own: ``run.start.pt`` and ``run.refit.pt``.
    """
    if not (isinstance(epochs, int) and epochs >= 1):
        raise InvalidInputError(f"epochs = {epochs!r}; pass a whole number, 1 or more.")
    by_held_out = isinstance(loss, HeldOutWeights)
    if held_out is None and by_held_out:
        held_out = 0.25
    judges: Batches | None
    everything = _everything(refit, batches, held_out)
    shares = None
    if isinstance(held_out, Real):
        split = split_off(batches, float(held_out))
        batches, judges, shares = split.others, split.held_out, split.all_shares
        if loss.sampling == "proportional" and len(split.shares) == loss.n_contexts:
            loss.sampled.copy_(torch.as_tensor(split.shares))
    else:
        judges = cast(Batches | None, held_out)
    if patience is not None and judges is None:
        raise InvalidInputError("patience needs held_out batches to judge epochs by.")
    often = check_every((0.25 if by_held_out else 1.0) if every is None else every)
    if isinstance(often, float) and often > 1.0:
        raise InvalidInputError(f"every = {every!r} epochs; every epoch ends with a round: pass a part of an epoch.")
    if judge is not None and judge.p_hat.size not in (loss.n_contexts, loss.n_contexts + len(loss.unseen_risks)):
        raise InvalidInputError(f"judge has {judge.p_hat.size} contexts, and the loss {loss.n_contexts}.")
    if isinstance(loss, HeldOutWeights) and loss.criterion == "risk" and reference_risks is not None:
        raise InvalidInputError("reference_risks are given, and the loss's criterion is 'risk', which has none.")
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
        held_out=judges,
        references=_references(loss, reference_risks),
        patience=patience,
        every=often,
        judge=loss.mixes if judge is None and by_held_out else judge,
        average=None if average is None else RunningAverage(model, average),
        judged_by=judged_by,
    )
    guarded, plain_first = None, False
    if guard and judges is not None and not loss.is_plain:
        lacking = isinstance(loss, HeldOutWeights) and loss.lacks_references and reference_risks is None
        plain_first = lacking and _has_heads(run)
        guarded = Guard.before(run, judges, path, in_the_mean=plain_first)
    again = None if everything is None else Refit.before(run, everything, shares, path)
    state = run.resumed(path) if path is not None and path.exists() else Progress()
    plain = None
    if isinstance(loss, HeldOutWeights):
        if reference_risks is not None:
            loss.set_references(reference_risks)
        if plain_first and loss.lacks_references and guarded is not None:
            plain, state = guarded.before_the_other(state)
            if plain is not None:
                loss.set_references(_plain_references(run, plain, guarded.held_out))
        run = replace(run, references=_references(loss, None))
        guarded = None if guarded is None else replace(guarded, asked=run)
    run.train(state, path, progress)
    _warn_if_learnt_by_heart(loss, state)
    choice, kept = (None, state) if guarded is None else guarded.choose(state, plain)
    refit_epochs = None if again is None else again.train(kept, is_plain=kept is not state)
    weights, training_risks, held_out_risks = _by_context(state, loss.n_contexts)
    return History(
        _table(state.rows),
        kept.kept_epoch,
        state.stopped,
        kept.risks(loss.n_contexts),
        None if choice is None else choice.chosen,
        None if choice is None else replace(choice.candidates, note=choice.words),
        _table(state.rounds),
        weights,
        training_risks,
        held_out_risks,
        run.references,
        refit_epochs,
        kept.best_round,
    )


def _everything(refit: Batches | bool | None, batches: Batches, held_out: Batches | float | None) -> Batches | None:
    """Return the batches of all samples that the model is to be trained on in the end; None if it is not."""
    was_split = isinstance(held_out, Real)
    if refit is True and not was_split:
        raise InvalidInputError(
            "refit = True, but fit has split nothing off. Pass a share as held_out; or held-out batches, and the "
            "batches of all samples as refit."
        )
    if refit is None or isinstance(refit, bool):
        return batches if was_split and refit is not False else None
    if held_out is None:
        raise InvalidInputError("refit needs held_out batches, which say how long to train. Pass these too.")
    if not isinstance(refit, Iterable) or isinstance(refit, Iterator):
        raise InvalidInputError(f"refit is {type(refit).__name__}; pass a DataLoader or a list of batches, or a bool.")
    return refit


def _table(rows: list[dict[str, float]]) -> Table:
    names = dict.fromkeys(name for row in rows for name in row)
    return Table({name: np.array([row.get(name, math.nan) for row in rows]) for name in names})


def _by_context(state: Progress, n_contexts: int) -> list[NDArray[np.float64]]:
    of_rounds = state.weights, state.training_risks, state.held_out_risks
    return [np.array(rows, dtype=np.float64).reshape(-1, n_contexts) for rows in of_rounds]


def _has_heads(run: TrainingRun) -> bool:
    """Tell whether heads can be put on the network's features, with the loss that it is trained by; say so if not."""
    assert run.held_out is not None
    # A look at the batches may draw, and training must not notice.
    chance = run.chance()
    inputs, targets, _ = (part.to(run.device) for part in next(iter(run.held_out)))
    run.set_chance(chance)
    was_training = run.model.training
    run.model.eval()
    with torch.no_grad():
        predictions = run.model(inputs)
        own = run.row_loss(predictions, targets)
        try:
            same = torch.allclose(own.double(), per_sample(predictions, targets).double(), rtol=1e-4, atol=1e-6)
        except (RuntimeError, IndexError, ValueError):
            same = False
    run.model.train(was_training)
    if same and has_features(run.model, inputs):
        return True
    no_loss = "the row loss is neither cross-entropy nor half the squared error"
    why = "the network does not end with a linear layer" if same else no_loss
    warnings.warn(
        f"references cannot be estimated, since {why}: the worst case is that of risk, not of excess risk. Pass "
        "reference_risks, or say so by HeldOutWeights(criterion='risk').",
        CounterpoiseWarning,
        stacklevel=3,
    )
    return False


def _plain_references(run: TrainingRun, plain: Plain, batches: Batches) -> NDArray[np.float64]:
    """Return what heads on the features of the plain network reach in each context, on the held-out rows."""
    own, beside = copy.deepcopy(run.model.state_dict()), copy.deepcopy(run.beside.state_dict())
    plain.parameters.put_in_place()
    rows = head_rows(run.model, batches, device=run.device)
    losses = per_sample(rows.outputs, rows.targets)
    run.model.load_state_dict(own)
    run.beside.load_state_dict(beside)
    found = head_references(rows.features, rows.targets, rows.contexts, run.loss.n_contexts, own_losses=losses)
    counts = torch.bincount(rows.contexts, minlength=run.loss.n_contexts).cpu().numpy()
    risks = torch.as_tensor(shrunk_references(found, counts), device=run.device)
    if are_several():
        # Each has its own held-out rows, and all must weigh contexts alike.
        distributed.broadcast(risks, 0)
    return risks.cpu().numpy()


_ENOUGH = 30
"""Held-out rows of a context from which the standard error of its risk can be taken at its word."""


def shrunk_references(found: References, counts: NDArray[Any]) -> NDArray[np.float64]:
    """Return references in which small contexts are not taken to be hard because little is known about them.

    A head that few rows are fitted to reaches too little, so what is held out says too high a reference for a small
    context: its excess vanishes, and its weight with it. In proportion to what it lacks to a hundred held-out rows, a
    context is taken to be no harder than the others on average; one without any rows, wholly. And every reference is
    lowered by its standard error, which is about what it is too high by on average: see :func:`head_references`.
    """
    seen, risks = counts > 0, found.risks
    mean = risks[seen] @ counts[seen] / counts.sum()
    known = np.minimum(counts / 100.0, 1.0)
    risks = np.where(seen, risks, mean)
    # A single row has no standard error.
    errors = np.where(np.isfinite(found.standard_errors), found.standard_errors, 0.0)
    return np.asarray(known * risks + (1.0 - known) * np.minimum(risks, mean) - errors)


def _warn_if_learnt_by_heart(loss: ContextLoss, state: Progress) -> None:
    """Say so where weights followed training risks that say little about held-out ones."""
    if not isinstance(loss, RobustLoss) or loss.is_plain or not state.rounds:
        return
    last = state.rounds[-1]
    held_out, training, error = last["worst_excess"], last["training_excess"], last["error"]
    c, what = int(last["worst_context"]), "excess" if loss.references.any() else "risk"
    is_large = held_out > 0.0 and last["rows"] >= _ENOUGH
    if is_large and training < min(0.5 * held_out, held_out - 2.0 * error):
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
