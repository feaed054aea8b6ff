"""Batches that draw contexts in a known way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from torch.utils.data import Sampler

from counterpoise.contexts import encode
from counterpoise.exceptions import InvalidInputError


class ContextBatchSampler(Sampler[list[int]]):
    """Batches of row numbers, for the ``batch_sampler`` of a ``DataLoader``.

    With ``"proportional"`` every batch is a random part of the data, and an epoch passes once over all rows. With
    ``"balanced"`` every row of a batch is of any context with the same probability, drawn with replacement, so that
    rare contexts occur in most batches; tell the loss, ``sampling="balanced"``.

    Parameters
    ----------
    contexts : labels of shape (n_samples,)
    batch_size : int
    mode : {"proportional", "balanced"}
    drop_last : bool
        Whether a last batch that is not full is left out.
    seed : int
        Each epoch is drawn from the seed and its number, so that a run can be repeated or resumed; see
        :meth:`set_epoch`.
    rank, world_size : int
        Of this process, where several share every batch; ``batch_size`` is that of one.
    """

    def __init__(
        self,
        contexts: Any,
        batch_size: int,
        *,
        mode: Literal["proportional", "balanced"] = "proportional",
        drop_last: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if mode not in ("proportional", "balanced"):
            raise InvalidInputError(f"mode is {mode!r}; choose 'proportional' or 'balanced'.")
        if not (isinstance(batch_size, (int, np.integer)) and not isinstance(batch_size, bool) and batch_size >= 1):
            raise InvalidInputError(f"batch_size = {batch_size!r}; pass a whole number, 1 or more.")
        if not 0 <= rank < world_size:
            raise InvalidInputError(f"rank {rank} of {world_size} processes; ranks count from 0.")
        self.contexts = encode(contexts)
        self.batch_size, self.mode, self.drop_last, self.seed = batch_size, mode, drop_last, seed
        self.rank, self.world_size = rank, world_size
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next pass draws; each pass goes on to the next by itself."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches in an epoch."""
        whole = self.batch_size * self.world_size
        full, left = divmod(len(self.contexts.codes), whole)
        # A last batch in which some process would have no row is left out.
        return full + (not self.drop_last and left >= self.world_size)

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng([self.seed, self.epoch])
        self.epoch += 1
        rows = len(self.contexts.codes)
        if self.mode == "proportional":
            order = rng.permutation(rows)
        else:
            grouped = np.argsort(self.contexts.codes, kind="stable")
            context = rng.integers(len(self.contexts.labels), size=rows)
            place = (rng.random(rows) * self.contexts.counts[context]).astype(np.intp)
            order = grouped[self.contexts.starts[context] + place]
        whole = self.batch_size * self.world_size
        for first in range(0, len(self) * whole, whole):
            # All processes draw the same order, and each takes every so many-th row of a batch.
            yield order[first : first + whole][self.rank :: self.world_size].tolist()
