"""A mixture of sources that follows held-out losses, in training by transformers (extra ``transformers``)."""

from __future__ import annotations

from typing import Any

import torch

from counterpoise.torch.mixture_rounds import MixtureRounds, batches_ahead

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
    or without ``ignore_data_skip``.

    Leave ``rank`` and ``world_size`` of the stream as they are: the ``Trainer`` divides batches between processes.
    Where its loader has workers, give the stream its ``batch_size``. The stream has no end, so the ``Trainer`` needs
    ``max_steps``.

    Parameters
    ----------
    controller, stream, held_out, every, batch_loss
        See :class:`counterpoise.torch.mixture_rounds.MixtureRounds`. Held-out batches are mappings with ``input_ids``,
        as the data collator makes them.
    """

    def __init__(self, controller: Any, stream: Any, held_out: Any, **options: Any) -> None:
        self.rounds = MixtureRounds(controller, stream, held_out, **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go on from the checkpoint, where there is one."""
        loader, skipped = kwargs["train_dataloader"], 0
        self.rounds.check(loader, 1)
        if state.global_step:
            if _KEY in state.stateful_callbacks:
                self.rounds.load_state_dict(state.stateful_callbacks[_KEY])
            # The Trainer reads past what was trained on by itself, unless it is told not to.
            skipped = 0 if args.ignore_data_skip else state.global_step * _samples(args, loader)
        self.rounds.begin(skipped)
        # An iterator draws a seed; from the generator of dropout, a run that goes on would draw one number more.
        loader.base_dataloader.generator = torch.Generator().manual_seed(args.seed + state.global_step)
        state.stateful_callbacks[_KEY] = self.rounds.state_dict()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Make a round where one is due."""
        loader = kwargs["train_dataloader"]
        n_samples = _samples(args, loader)
        if self.rounds.step(n_samples):
            ahead = batches_ahead(loader) * n_samples
            state.log_history.append({"step": state.global_step, **self.rounds.take(kwargs["model"], ahead)})
        state.stateful_callbacks[_KEY] = self.rounds.state_dict()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let another training go on in the stream."""
        self.rounds.begin()


def _samples(args: Any, loader: Any) -> int:
    """Return the samples that a step trains on, in all processes together."""
    processes = 1 if getattr(loader, "split_batches", False) else args.world_size
    return int(args.gradient_accumulation_steps * loader.batch_size * processes)
