"""How samples of one source of text are read: by their number, or in an order of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torch.utils.data._utils import worker as workers

from counterpoise.contexts import shown
from counterpoise.exceptions import InvalidInputError

_LARGEST_TABLE = 1 << 20
"""Samples of a source whose order is kept as a table: every process and worker has one."""

_ROUNDS = 6
"""Of the network that shuffles a source without a table."""


class Reader(Protocol):
    """What reads the samples of a source, over as many epochs as are asked for."""

    def order(self, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return which samples are the ones with these numbers since the beginning."""

    def take(self, k: int) -> Any:
        """Return a sample that :meth:`order` named; numbers rise where samples have an order of their own."""


def reader_of(source: Any, name: Any, seed: Sequence[int] | None) -> Reader:
    """Return a reader of a source that begins at its first sample.

    Parameters
    ----------
    source : dataset or list
    name : hashable
        Of the source, for errors.
    seed : sequence of int, optional
        Of the order of numbered samples; by default that is their own.
    """
    return _Numbered(source, seed) if is_numbered(source) else _InOrder(source, name)


def check_source(source: Any, name: Any) -> None:
    """Raise unless samples of a source can be read again and again."""
    if isinstance(source, str | bytes | Mapping) or not (is_numbered(source) or hasattr(source, "__iter__")):
        raise InvalidInputError(
            f"source {shown(name)} is {source!r:.60}; pass a map-style or iterable dataset, or a list."
        )
    if isinstance(source, DataLoader):
        raise InvalidInputError(f"source {shown(name)} is a DataLoader, whose samples are batches. Pass its dataset.")
    if isinstance(source, Iterator) and not isinstance(source, IterableDataset):
        kind = type(source).__name__
        raise InvalidInputError(
            f"source {shown(name)} is a {kind}, which can be read only once. Pass a dataset or a list."
        )
    if is_numbered(source) and not len(source):
        raise InvalidInputError(f"source {shown(name)} has no samples. Leave it out.")


def is_numbered(source: Any) -> bool:
    """Return whether samples can be had by their number."""
    # Iterable datasets have inherited a __getitem__ that raises.
    return hasattr(source, "__getitem__") and hasattr(source, "__len__") and not isinstance(source, IterableDataset)


def shuffled_without_table(places: NDArray[np.intp], size: int, seed: Sequence[int]) -> NDArray[np.intp]:
    """Return the samples at some places of a random order of so many, without a table of all.

    A Feistel network permutes all numbers of an even number of bits. A number beyond the last sample is permuted again
    until it is not, which leaves a permutation of the samples.
    """
    half = max((size - 1).bit_length() + 1, 2) // 2
    mask, bits = np.uint64((1 << half) - 1), np.uint64(half)
    keys = np.random.default_rng(list(seed)).integers(1 << 64, size=_ROUNDS, dtype=np.uint64)
    found = places.astype(np.uint64)
    beyond = np.arange(len(found))
    while len(beyond):
        left, right = found[beyond] >> bits, found[beyond] & mask
        for key in keys:
            left, right = right, left ^ (_mixed(right + key) & mask)
        found[beyond] = left << bits | right
        beyond = beyond[found[beyond] >= size]
    return found.astype(np.intp)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return words in each bit of which every bit of the given ones has a say (the last steps of SplitMix64)."""
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return words ^ words >> np.uint64(31)


@contextmanager
def _alone() -> Iterator[None]:
    """Hide from a source that a worker reads it: one that divided itself would be divided twice."""
    info, workers._worker_info = workers._worker_info, None
    try:
        yield
    finally:
        workers._worker_info = info


def _set_apart(source: Any, done: set[int]) -> None:
    """Give a source its own epoch in this worker: Hugging Face keeps it in memory that all workers share."""
    done.add(id(source))
    for name, value in list(getattr(source, "__dict__", {}).items()):
        if isinstance(value, torch.Tensor) and value.numel() == 1 and value.is_shared():  # type: ignore[no-untyped-call]
            setattr(source, name, value.clone())
        elif hasattr(value, "set_epoch") and id(value) not in done:
            _set_apart(value, done)


class _Numbered:
    """Samples by their number, shuffled anew in each epoch."""

    def __init__(self, source: Any, seed: Sequence[int] | None) -> None:
        self._source, self._seed, self._size = source, seed, len(source)
        self._epoch, self._table = -1, np.zeros(0, dtype=np.intp)

    def order(self, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return which samples are the ones with these numbers since the beginning."""
        epochs, places = np.divmod(numbers, self._size)
        if self._seed is None:
            return places
        for epoch in np.unique(epochs):
            of_epoch = epochs == epoch
            places[of_epoch] = self._shuffled(places[of_epoch], int(epoch), [*self._seed, int(epoch)])
        return places

    def _shuffled(self, places: NDArray[np.intp], epoch: int, seed: list[int]) -> NDArray[np.intp]:
        if self._size > _LARGEST_TABLE:
            return shuffled_without_table(places, self._size, seed)
        if epoch != self._epoch:
            self._epoch, self._table = epoch, np.random.default_rng(seed).permutation(self._size)
        return self._table[places]

    def take(self, k: int) -> Any:
        return self._source[k]


class _InOrder:
    """Samples of what can only be read in its own order."""

    def __init__(self, source: Any, name: Any) -> None:
        self._source, self._name, self._next, self._epoch = source, name, 0, 0
        if hasattr(source, "set_epoch"):
            if get_worker_info() is not None:
                _set_apart(source, set())
            source.set_epoch(0)
        with _alone():
            self._samples: Iterator[Any] = iter(source)

    def order(self, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the numbers: there is no other order."""
        return numbers

    def take(self, k: int) -> Any:
        # Samples before it are those of other processes.
        with _alone():
            while True:
                sample = self._read()
                self._next += 1
                if self._next > k:
                    return sample

    def _read(self) -> Any:
        try:
            return next(self._samples)
        except StopIteration:
            self._epoch += 1
            if hasattr(self._source, "set_epoch"):
                self._source.set_epoch(self._epoch)
            self._samples = iter(self._source)
        try:
            return next(self._samples)
        except StopIteration:
            raise InvalidInputError(
                f"source {shown(self._name)} has no samples, or cannot be read again after its end. Pass a dataset or "
                "a list, not a generator."
            ) from None
