"""Held-out rounds of a mixture of sources in somebody else's training loop."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from counterpoise.contexts import shown
from counterpoise.exceptions import CounterpoiseWarning, InvalidInputError
from counterpoise.torch.mixture import MixtureController
from counterpoise.torch.source_numbers import whole_number
from counterpoise.torch.source_readers import is_numbered
from counterpoise.torch.streams import MixtureStream
from counterpoise.torch.text import BatchLoss, check_held_out, next_token_loss, source_losses

_ABOVE = 1.05
"""How far training may exceed the budget before that is said."""

_LONGER = 1.1
"""How much longer than others samples may be before that is said."""


class MixtureRounds:
    """What a callback does with a controller, the stream that follows it, and held-out text.

    Parameters
    ----------
    controller : MixtureController
    stream : MixtureStream
    held_out : mapping from source to batches
        A source that is left out counts as the others on average.
    every : int
        Training steps between two rounds; with Lightning, batches.
    batch_loss : callable
        A model and a batch in, the sum of the losses of its tokens and their number out.

    Attributes
    ----------
    steps, consumed : int
        Training steps so far, and the samples of all processes that they were made of.
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
        self.every = whole_number(every, "every")
        for what, one, kind in (("controller", controller, MixtureController), ("stream", stream, MixtureStream)):
            if not isinstance(one, kind):
                raise InvalidInputError(f"{what} is {one!r:.60}; pass a {kind.__name__}.")
        check_held_out(held_out)
        # A mix that was read from a file names sources in words.
        known, streamed, judged = ({*map(shown, one)} for one in (controller.sources, stream.sources, held_out))
        for what, names in (("the stream", known ^ streamed), ("held_out", judged - known)):
            if names:
                others = ", ".join(sorted(names))
                raise InvalidInputError(f"{what} and the controller have different sources: {others:.80}.")
        controller.check_references(np.array([shown(name) in judged for name in controller.sources]))
        self.controller, self.stream, self.held_out = controller, stream, held_out
        self.batch_loss = batch_loss
        self.steps, self.consumed = 0, stream.start
        self._state: tuple[Any, dict[str, Any]] = (None, {})
        self._is_resumed = False

    def begin(self, skipped: int = 0) -> None:
        """Have the stream, when it is read next, go on after what was trained on.

        Parameters
        ----------
        skipped : int
            Samples that the training itself reads past.
        """
        if self._is_resumed and skipped > self.consumed:
            raise InvalidInputError(
                f"training has seen {self.consumed:,} samples, and would skip {skipped:,}: batches are larger now. "
                "Pass ignore_data_skip=True, or go on with batches of the old size."
            )
        self.stream.start = max(self.consumed - skipped, 0)
        # Samples that were trained on before there was a stream count, too.
        self.consumed = self.stream.start + skipped

    def check(self, loader: Any, rank: int, world_size: int) -> None:
        """Raise unless the stream is divided as the training reads it.

        Parameters
        ----------
        loader : DataLoader
        rank, world_size : int
            Of this process, among those between which the stream has to divide samples itself.
        """
        stream = self.stream
        read: Any = getattr(loader, "dataset", None)
        if stream.world_size != world_size:
            raise InvalidInputError(
                f"the stream has world_size={stream.world_size}, and {world_size} is right here: pass rank and "
                "world_size to it with Lightning, and neither with transformers, which divides batches itself."
            )
        if stream.rank != rank:
            raise InvalidInputError(
                f"the stream has rank={stream.rank} in the process of rank {rank}, so that another one trains on the "
                "same samples. Pass each process its own rank."
            )
        if read is not stream and getattr(read, "dataset", None) is not stream:
            raise InvalidInputError(
                "training reads other data than the stream of the callback. Pass it the stream, by one loader."
            )
        if not isinstance(loader.batch_size, int):
            raise InvalidInputError("the loader has no batch_size. Pass it one, and samples of the stream.")
        in_a_row = loader.batch_size
        if read is not stream:
            # accelerate reads the batches of all processes, and keeps those of its own.
            in_a_row = read.batch_size * (1 if read.split_batches else read.num_processes)
        if loader.num_workers and stream.batch_size != in_a_row:
            raise InvalidInputError(
                f"the loader has workers. Make the stream with batch_size={in_a_row}, so that they read whole batches."
            )

    def foresee(self, remaining: float, n_samples: int) -> None:
        """Warn of what will not go as it seems to be meant, and raise where training would end with an error.

        Parameters
        ----------
        remaining : float
            Steps to come, as :meth:`step` counts them; ``inf`` where training has no end.
        n_samples : int
            Of a step, of all processes.
        """
        controller, lengths = self.controller, _sample_lengths(self.stream)
        if len(lengths) > 1 and max(lengths) > _LONGER * min(lengths):
            _warn(
                f"samples have {min(lengths):,} to {max(lengths):,} tokens, and shares count samples: sources of long "
                "ones get more of the tokens than they are meant to. Pack text into samples of one length."
            )
        if controller.n_updates and not self._is_resumed:
            _warn(
                f"this training begins with what the controller has learnt in {controller.n_updates:,} updates before. "
                "If that is not meant, make a new controller, stream and callback."
            )
        if math.isinf(remaining):
            _warn("training has no last step, as the stream has no end. Pass max_steps, unless something else ends it.")
            return
        rounds = (self.steps + remaining) // self.every - self.steps // self.every
        if (changes := self.stream.n_changes + rounds) > (most := self.stream.most_changes):
            raise InvalidInputError(
                f"every = {self.every:,} steps, shares would change {changes:,.0f} times, and a stream of "
                f"{len(self.stream.sources):,} sources keeps {most:,}. Make rounds less often."
            )
        if not controller.n_updates and (steps := self.steps + remaining) <= self.every:
            _warn(
                f"training ends after {steps:,.0f} steps, before shares move: every = {self.every:,}. Lower it to have "
                "twenty rounds or more."
            )
        if controller.budget is None or len(lengths) != 1:
            return
        (length,) = lengths
        if (read := (self.consumed + remaining * n_samples) * length) > _ABOVE * controller.budget:
            _warn(
                f"training reads {read:,.4g} tokens, {n_samples:,} samples of {length:,} in a step, and the controller "
                f"has a budget of {controller.budget:,.4g}: a source may be read more than {controller.max_epochs:g} "
                "times. Pass the controller the tokens of the whole training."
            )

    def step(self, n_samples: int) -> bool:
        """Count a training step of so many samples, of all processes, and tell whether a round is due."""
        self.steps += 1
        self.consumed += n_samples
        return self.steps % self.every == 0

    def take(self, model: nn.Module, ahead: int) -> dict[str, float]:
        """Judge the model by source, move the shares, and return what a log should show.

        Parameters
        ----------
        ahead : int
            Samples, of all processes, that may be drawn already beyond those trained on: the new shares begin after
            them, so that which samples follow does not depend on how fast they are read.
        """
        losses, tokens = source_losses(model, self.held_out, batch_loss=self.batch_loss)
        self.controller.update(losses, tokens, at=float(self.steps))
        # A checkpoint of a loader with more workers has planned a change further ahead.
        place = max(self.consumed + ahead, self.stream.planned + 1)
        self.stream.follow(self.controller, after=place)
        found = dict(zip(self.controller.shares, self.controller.losses.tolist(), strict=True))
        return {
            **{f"held_out_loss/{shown(name)}": loss for name, loss in found.items() if not math.isnan(loss)},
            **{f"share/{shown(name)}": share for name, share in self.controller.shares.items()},
            "worst_excess": self.controller.worst_excess,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return all that a checkpoint needs; between rounds it costs nothing."""
        now = (self.controller.n_updates, self.controller.references.tobytes(), self.stream.version)
        before, state = self._state
        if before != now:
            state = {"controller": self.controller.state_dict(), "stream": self.stream.state_dict(0)}
            self._state = now, state
        return {"steps": self.steps, **state, "stream": {**state["stream"], "start": self.consumed}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, or raise and change nothing."""
        if lacking := {"controller", "stream", "steps"} - state.keys():
            raise InvalidInputError(f"this is no state of a mixture callback: {min(lacking)} is missing.")
        before = self.stream.state_dict(self.stream.start)
        self.stream.load_state_dict(state["stream"])
        try:
            self.controller.load_state_dict(state["controller"])
        except InvalidInputError:
            self.stream.load_state_dict(before)
            raise
        self.steps, self.consumed, self._is_resumed = int(state["steps"]), self.stream.start, True
        if self.controller.probabilities.tolist() != state["controller"]["probabilities"]:
            # Another budget or mix does not allow the shares that the stream would go on with.
            self.stream.follow(self.controller, after=self.consumed)


def _warn(words: str) -> None:
    # Above it are the callback and the trainer's own calls.
    warnings.warn(words, CounterpoiseWarning, stacklevel=4)


def _sample_lengths(stream: MixtureStream) -> set[int]:
    """Return how many tokens samples have: one or two of every source whose samples are numbered and hold tokens."""
    lengths = set()
    # What sources draw here must not move what training draws.
    with torch.random.fork_rng([]):
        for source in filter(is_numbered, stream.sources.values()):
            # The last one may be what is left of a text.
            for k in {0, len(source) // 2}:
                sample: Any = source[k]
                words: Any = sample.get("input_ids") if isinstance(sample, Mapping) else sample
                is_row = isinstance(words, Tensor | np.ndarray) and words.ndim == 1
                if is_row or (isinstance(words, list | tuple) and all(isinstance(word, int) for word in words)):
                    lengths.add(len(words))
    return lengths


def batches_ahead(loader: Any) -> int:
    """Return how many batches a loader may have drawn beyond the one that is being trained on."""
    workers = int(getattr(loader, "num_workers", 0) or 0)
    # One is fetched beforehand to know which is the last; workers take turns by whole batches.
    return 2 + workers * (1 + int(getattr(loader, "prefetch_factor", None) or 2)) * (workers > 0)
