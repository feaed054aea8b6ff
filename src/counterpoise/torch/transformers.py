"""A mixture of sources that follows held-out losses, in training by transformers (extra ``transformers``)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from counterpoise.exceptions import CounterpoiseWarning
from counterpoise.torch.mixture import MixtureController
from counterpoise.torch.mixture_rounds import MixtureRounds, batches_ahead
from counterpoise.torch.streams import MixtureStream
from counterpoise.torch.text import BatchLoss, next_token_loss

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "counterpoise.torch.transformers needs transformers. Run: pip install 'counterpoise[transformers]'"
    ) from error

__all__ = ["MixtureCallback"]

_KEY = "counterpoise.mixture"


class MixtureCallback(TrainerCallback):  # type: ignore[misc]
    """Moves the shares of a :class:`~counterpoise.torch.MixtureController` while a ``Trainer`` trains.

    Every so many steps the model is judged on the held-out text of each source, the controller moves, and the stream
    that is the ``train_dataset`` follows from a known sample on. What checkpoints need is in ``trainer_state.json``: a
    run that is resumed trains on the samples, and comes to the shares, that it would have without the break, be it with
    or without ``ignore_data_skip``, if its loader has as many workers. References are those of the checkpoint.

    Leave ``rank`` and ``world_size`` of the stream as they are: the ``Trainer`` divides batches between processes.
    Where its loader has workers, give the stream its ``batch_size``. The stream has no end, so the ``Trainer`` needs
    ``max_steps``.

    Parameters
    ----------
    controller : MixtureController
    stream : MixtureStream
    held_out : mapping from source to batches
        Batches are tensors of token numbers, or mappings with ``input_ids``, as the data collator makes them. A source
        that is left out counts as the others on average.
    every : int
        Training steps between two rounds.
    batch_loss : callable
        A model and a batch in, the sum of the losses of its tokens and their number out.
    log : callable, optional
        Takes the held-out losses and shares of a round, such as ``trainer.log``, by which every other callback hears of
        them: make the ``Trainer`` first, and pass it this callback by ``add_callback``. By default they are rows of
        ``trainer.state.log_history``.
    """

    def __init__(
        self,
        controller: MixtureController,
        stream: MixtureStream,
        held_out: Mapping[Any, Iterable[Any]],
        *,
        every: int = 100,
        batch_loss: BatchLoss = next_token_loss,
        log: Callable[[dict[str, float]], Any] | None = None,
    ) -> None:
        self.rounds = MixtureRounds(controller, stream, held_out, every=every, batch_loss=batch_loss)
        self.log = log

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go on from the checkpoint, where there is one."""
        loader, skipped = kwargs["train_dataloader"], 0
        self.rounds.check(loader, 0, 1)
        if state.global_step:
            if _KEY in state.stateful_callbacks:
                self.rounds.load_state_dict(state.stateful_callbacks[_KEY])
            else:
                warnings.warn(
                    f"the training up to step {state.global_step:,} had no callback of a mixture: shares begin anew.",
                    CounterpoiseWarning,
                    stacklevel=2,
                )
            # The Trainer reads past what was trained on by itself, unless it is told not to.
            skipped = 0 if args.ignore_data_skip else state.global_step * _samples(args, loader)
        self.rounds.begin(skipped)
        self.rounds.foresee(state.max_steps - state.global_step, _samples(args, loader))
        # An iterator draws a seed; from the generator of dropout, a run that goes on would draw one number more.
        loader.base_dataloader.generator = torch.Generator().manual_seed(args.seed + state.global_step)
        state.stateful_callbacks[_KEY] = self.rounds.state_dict()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Make a round where one is due."""
        loader = kwargs["train_dataloader"]
        n_samples = _samples(args, loader)
        if self.rounds.step(n_samples):
            ahead = batches_ahead(loader) * n_samples
            found = self.rounds.take(kwargs["model"], ahead)
            if self.log is None:
                state.log_history.append({"epoch": state.epoch, "step": state.global_step, **found})
            else:
                # Trainer.log takes what was due for what it was called with.
                is_due = control.should_log
                self.log(found)
                control.should_log = is_due
        state.stateful_callbacks[_KEY] = self.rounds.state_dict()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let another training go on in the stream."""
        self.rounds.begin()


def _samples(args: Any, loader: Any) -> int:
    """Return the samples that a step trains on, in all processes together."""
    processes = 1 if getattr(loader, "split_batches", False) else args.world_size
    return int(args.gradient_accumulation_steps * loader.batch_size * processes)
