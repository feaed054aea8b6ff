"""Held-out losses for a mix of contexts or sources, in training by Lightning (extra ``lightning``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

import torch
from torch import nn

from counterpoise.exceptions import InvalidInputError
from counterpoise.torch.evaluation import RowLoss, per_sample
from counterpoise.torch.losses import ContextLoss
from counterpoise.torch.mixture import MixtureController
from counterpoise.torch.mixture_rounds import MixtureRounds, batches_ahead
from counterpoise.torch.rounds import LearnsFromHeldOut, Rounds, check_every, check_loss
from counterpoise.torch.streams import MixtureStream
from counterpoise.torch.text import BatchLoss, next_token_loss

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ImportError as error:
        raise ImportError(
            "counterpoise.torch.lightning needs Lightning. Run: pip install 'counterpoise[lightning]'"
        ) from error

__all__ = ["HeldOutCallback", "MixtureCallback"]


class HeldOutCallback(Callback):  # type: ignore[misc]
    """Gives held-out losses to a :class:`~counterpoise.torch.HeldOutWeights`, as often as asked.

    Any other loss of this package needs no callback: call it in ``training_step``. This one is called there as well,
    and moves its mix in the rounds that the callback makes. In each round the module predicts the held-out rows, in
    evaluation mode and without gradients, and ``worst_excess`` is logged, for ``ModelCheckpoint``, ``EarlyStopping``
    and loggers to use.

    With several processes each of them may have all held-out rows or a part of its own: losses are reduced over all, so
    that all have the same mix. The best round is judged by them too.

    Parameters
    ----------
    loss : str or ContextLoss
        The attribute of the LightningModule that is the loss, or the loss itself. As an attribute its state is part of
        every checkpoint; otherwise the callback's state holds it.
    held_out : iterable of (inputs, targets, contexts)
        A ``DataLoader``, or a list of batches, of rows that are not trained on.
    row_loss : callable
        Predictions and targets in, one loss per sample out.
    every : float or int
        A float is a share of an epoch (0.25: four rounds in each), an int a number of training batches.
    restore_best : bool
        Whether training ends with the parameters of the round with the least worst case, of which a copy is kept in
        memory. Not for strategies that split parameters between devices.

    Attributes
    ----------
    rounds : Rounds
        How many there were, and the best of them.
    """

    def __init__(
        self,
        loss: str | ContextLoss,
        held_out: Iterable[Any],
        *,
        row_loss: RowLoss = per_sample,
        every: float = 0.25,
        restore_best: bool = True,
    ) -> None:
        self.loss, self.held_out, self.row_loss, self.restore_best = loss, held_out, row_loss, restore_best
        self.rounds = Rounds(check_every(every))
        self._loss_state: dict[str, Any] | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Find the loss, and take it to the device of the module."""
        loss = self._found(pl_module)
        if isinstance(loss, nn.Module) and not _is_part(loss, pl_module):
            loss.to(pl_module.device)
            if self._loss_state is not None:
                loss.load_state_dict(self._loss_state)
                self._loss_state = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        """Make a round where one is due."""
        if self.rounds.is_due(trainer.num_training_batches):
            self._round(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Put the parameters of the best round back."""
        if self.restore_best:
            self.rounds.restore(pl_module)

    def _round(self, trainer: Any, pl_module: Any) -> None:
        loss = self._found(pl_module)
        modes = {part: part.training for part in pl_module.modules()}
        pl_module.eval()
        losses, codes = [], []
        with torch.no_grad(), trainer.precision_plugin.forward_context():
            for batch in self.held_out:
                inputs, targets, contexts = trainer.strategy.batch_to_device(batch)
                losses.append(self.row_loss(pl_module(inputs), targets))
                codes.append(contexts)
        for part, was_training in modes.items():
            part.training = was_training
        if self.rounds.take(loss, losses, codes) and self.restore_best:
            self.rounds.remember(pl_module, beside=loss if isinstance(loss, nn.Module) else None)
        pl_module.log("worst_excess", float(loss.worst_excess), on_step=True, on_epoch=False, batch_size=1)

    def _found(self, pl_module: Any) -> LearnsFromHeldOut:
        if not isinstance(self.loss, str):
            return check_loss(self.loss, "loss")
        try:
            found = attrgetter(self.loss)(pl_module)
        except AttributeError as error:
            raise InvalidInputError(
                f"{type(pl_module).__name__} has no attribute {self.loss!r}. Name the attribute that is its loss, or "
                "pass the loss itself."
            ) from error
        return check_loss(found, f"{type(pl_module).__name__}.{self.loss}")

    def state_dict(self) -> dict[str, Any]:
        """Return all that a checkpoint needs to go on from it."""
        state = self.rounds.state_dict()
        if isinstance(self.loss, nn.Module):
            state["loss"] = self.loss.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        rest = dict(state_dict)
        # Where the loss is a part of the module, that has loaded it already.
        self._loss_state = rest.pop("loss", None)
        self.rounds.load_state_dict(rest)


class MixtureCallback(Callback):  # type: ignore[misc]
    """Moves the shares of a :class:`~counterpoise.torch.MixtureController` while Lightning trains.

    The training loader reads a :class:`~counterpoise.torch.MixtureStream` with the ``rank`` and ``world_size`` of the
    process, and with its ``batch_size`` where it has workers. Every so many batches the module is judged on the
    held-out text of each source, the controller moves, and the stream follows from a known sample on. Controller and
    stream are part of every checkpoint: a run that is resumed goes on with the samples that it would have had, and with
    the shares, if the module draws no random numbers (Lightning does not keep their state). References are those of the
    checkpoint.

    Parameters
    ----------
    controller : MixtureController
    stream : MixtureStream
    held_out : mapping from source to batches
        A source that is left out counts as the others on average.
    every : int
        Batches between two rounds.
    batch_loss : callable
        The module and a batch in, the sum of the losses of its tokens and their number out. By default the module maps
        token numbers to logits.
    """

    def __init__(
        self,
        controller: MixtureController,
        stream: MixtureStream,
        held_out: Mapping[Any, Iterable[Any]],
        *,
        every: int = 100,
        batch_loss: BatchLoss = next_token_loss,
    ) -> None:
        self.rounds = MixtureRounds(controller, stream, held_out, every=every, batch_loss=batch_loss)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Raise unless the stream is divided as the trainer reads it."""
        loader = trainer.train_dataloader
        self.rounds.check(loader, trainer.global_rank, trainer.world_size)
        if not trainer.fast_dev_run:
            self.rounds.foresee(_remaining(trainer), loader.batch_size * trainer.world_size)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Go on in the stream: an epoch reads it anew."""
        self.rounds.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        """Make a round where one is due."""
        loader = trainer.train_dataloader
        n_samples = loader.batch_size * trainer.world_size
        if self.rounds.step(n_samples):
            with trainer.precision_plugin.forward_context():
                found = self.rounds.take(pl_module, batches_ahead(loader) * n_samples)
            pl_module.log_dict(found, on_step=True, on_epoch=False, batch_size=1)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Let another training go on in the stream."""
        self.rounds.begin()

    def state_dict(self) -> dict[str, Any]:
        """Return all that a checkpoint needs to go on from it."""
        return self.rounds.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.rounds.load_state_dict(state_dict)


def _remaining(trainer: Any) -> float:
    """Return the batches to come; infinite where training has no end."""
    found = math.inf
    if trainer.max_epochs not in (-1, None):
        done = trainer.fit_loop.epoch_loop.batch_progress.total.ready
        found = trainer.max_epochs and max(trainer.max_epochs * trainer.num_training_batches - done, 0)
    if trainer.max_steps != -1:
        found = min(found, (trainer.max_steps - trainer.global_step) * trainer.accumulate_grad_batches)
    return found


def _is_part(loss: nn.Module, module: nn.Module) -> bool:
    return any(part is loss for part in module.modules())
