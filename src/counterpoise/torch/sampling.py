"""Batches that draw contexts in a known way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from counterpoise.contexts import Contexts, encode
from counterpoise.exceptions import InvalidInputError


@dataclass(frozen=True, eq=False)
class Split:
    """Samples of a loader in two.

    Attributes
    ----------
    others, held_out : DataLoader
    shares, all_shares : ndarray of shape (n_contexts,)
        Of the contexts among the others, and among all.
    """

    others: DataLoader[Any]
    held_out: DataLoader[Any]
    shares: NDArray[np.float64]
    all_shares: NDArray[np.float64]


def split_off(batches: Any, share: float, seed: int = 0) -> Split:
    """Split a share of every context's samples off a loader.

    Parameters
    ----------
    batches : DataLoader
        Over a dataset of (input, target, context), which shuffles or does not, or with :class:`ContextBatchSampler`.
    share : float
        Between 0 and 1.
    """
    if not 0.0 < share < 1.0:
        raise InvalidInputError(f"held_out = {share!r}; pass batches, or a share between 0 and 1.")
    advice = "Split the data yourself, and pass the held-out batches as held_out."
    if not isinstance(batches, DataLoader) or isinstance(batches.dataset, IterableDataset):
        raise InvalidInputError(
            f"held-out samples cannot be split off {type(batches).__name__} batches, only off a DataLoader over a "
            f"dataset with numbered samples. {advice}"
        )
    sampler: Any = batches.batch_sampler
    dataset: Any = batches.dataset
    known = isinstance(sampler, ContextBatchSampler)
    if not known and not (type(sampler) is BatchSampler and _is_plain(batches.sampler, len(dataset))):
        raise InvalidInputError(f"held-out samples cannot be split off a loader with a sampler of its own. {advice}")
    contexts = sampler.contexts if known else encode(_contexts(dataset))
    judges = held_out_rows(contexts, share, seed)
    data = [Subset(dataset, np.flatnonzero(rows).tolist()) for rows in (~judges, judges)]
    options: dict[str, Any] = {name: getattr(batches, name) for name in _KEPT}
    plain = {**options, "batch_size": sampler.batch_size}
    if known:
        own = {name: getattr(sampler, name) for name in ("mode", "drop_last", "seed", "rank", "world_size")}
        again = ContextBatchSampler(contexts.codes[~judges], sampler.batch_size, **own)
        others = DataLoader(data[0], batch_sampler=again, generator=batches.generator, **options)
    else:
        # The sampler is made by the loader, with the generator that both draw from.
        generator = getattr(batches.sampler, "generator", None) or batches.generator
        shuffled = isinstance(batches.sampler, RandomSampler)
        others = DataLoader(data[0], shuffle=shuffled, drop_last=bool(batches.drop_last), generator=generator, **plain)
    counts = np.bincount(contexts.codes[~judges], minlength=len(contexts.labels))
    return Split(others, DataLoader(data[1], **plain), counts / counts.sum(), contexts.counts / contexts.counts.sum())


_KEPT = (
    *("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context"),
    *("prefetch_factor", "persistent_workers"),
)
"""Settings of a loader that its parts have too."""


def _is_plain(sampler: Any, n_samples: int) -> bool:
    """Tell whether a sampler passes once over all samples, shuffled or not."""
    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples == n_samples
    return type(sampler) is SequentialSampler


def _contexts(dataset: Any) -> NDArray[np.intp]:
    """Return the contexts of a dataset's samples, which may have to be looked at one by one for it."""
    try:
        if isinstance(dataset, TensorDataset):
            return dataset.tensors[2].cpu().numpy()
        return np.array([int(dataset[k][2]) for k in range(len(dataset))])
    except (IndexError, TypeError, ValueError, KeyError) as error:
        raise InvalidInputError(
            f"held-out samples are split off by context, and the dataset's samples are not (input, target, context): "
            f"{error!s:.100}. Pass the held-out batches as held_out."
        ) from error


def held_out_rows(contexts: Contexts, share: float, seed: int) -> NDArray[np.bool_]:
    """Mark some rows of every context, at least one and not all; none of a context with one."""
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.random(len(contexts.codes)), contexts.codes))
    rank = np.arange(len(order)) - np.repeat(contexts.starts[:-1], contexts.counts)
    taken = np.clip(np.round(share * contexts.counts), np.minimum(1, contexts.counts - 1), contexts.counts - 1)
    marked = np.empty(len(order), dtype=bool)
    marked[order] = rank < np.repeat(taken, contexts.counts)
    return marked


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
