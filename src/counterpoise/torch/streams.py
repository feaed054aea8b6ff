"""A stream of samples from several sources, in shares that may change while it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, get_worker_info

from counterpoise.contexts import shown
from counterpoise.exceptions import InvalidInputError
from counterpoise.torch.mixture import MixtureController
from counterpoise.torch.source_numbers import names_of, source_shares
from counterpoise.torch.source_readers import Reader, check_source, reader_of

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio's fraction, of 2**64: its multiples are spread more evenly than those of any other number."""

_MOST_CHANGES, _MOST_BYTES = 1 << 16, 1 << 25
"""Changes of the shares that a stream keeps, and the memory for them: half of what containers share by default."""

_MOST_WORKERS = 1023

_AT_ONCE = 1024
"""Samples of a reader whose sources are worked out together."""


class MixtureStream(IterableDataset[Any]):
    """Samples from several sources without an end, in shares that follow a controller.

    The source of each place is decided by a sequence that spreads evenly over [0, 1], not by chance: any stretch of
    samples holds every source in its share up to a few samples, so that batches differ less than random ones do. It is
    a function of the seed, the place, and the shares that are in force there, nothing else. All processes and workers
    therefore agree on it without a word, two processes train on what one would, and a run that is resumed sees the
    samples it would have seen.

    Shares count samples. Where they are to count tokens, as those of :class:`MixtureController` do, pack text into
    samples of equal length, as is usual.

    Every pass begins at :attr:`start`, with the same samples again: to go on in a loop of one's own, set it to the
    samples trained on so far, of all processes.

    A source with numbered samples (``len`` and ``[k]``) is shuffled anew in each epoch. Any other is read in its own
    order, by every process and worker, each keeping its own part, and begun again at its end; if it has
    ``set_epoch``, that is called first, with 0 when the stream is read from its beginning.

    Parameters
    ----------
    sources : mapping from source to dataset
        Map-style or iterable datasets, or lists.
    shares : mapping from source to share, sequence in the order of ``sources``, or MixtureController
        In force from the first sample on. A source that a mapping leaves out has a share of 0. Of a controller these
        are the shares that it has now: what it learns later is heard of by :meth:`follow`.
    seed : int
    shuffle : bool
        Whether sources with numbered samples are shuffled.
    batch_size : int
        That of the loader, where it has workers: each then reads whole batches, so that by the same shares batches are
        the same with any number of workers, and a run can be resumed to the sample.
    rank, world_size : int
        Of this process, where several share every batch. Leave them where a library divides batches itself, as
        ``accelerate`` and so the ``Trainer`` of ``transformers`` do.
    """

    def __init__(
        self,
        sources: Mapping[Any, Any],
        shares: Any,
        *,
        seed: int = 0,
        shuffle: bool = True,
        batch_size: int = 1,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if not (isinstance(sources, Mapping) and sources):
            raise InvalidInputError(f"sources are {type(sources).__name__}; pass a mapping from each to its samples.")
        for name, source in sources.items():
            check_source(source, name)
        names_of(sources)
        if not (isinstance(rank, int | np.integer) and isinstance(world_size, int | np.integer)):
            raise InvalidInputError(f"rank = {rank!r} and world_size = {world_size!r}; pass whole numbers.")
        if not 0 <= rank < world_size:
            raise InvalidInputError(f"rank {rank} of {world_size} processes; ranks count from 0.")
        if not (isinstance(batch_size, int | np.integer) and batch_size >= 1):
            raise InvalidInputError(f"batch_size = {batch_size!r}; pass that of the loader, a whole number.")
        if not (isinstance(seed, int | np.integer) and seed >= 0):
            raise InvalidInputError(f"seed = {seed!r}; pass a whole number, 0 or more.")
        self.sources, self.seed, self.shuffle = dict(sources), int(seed), shuffle
        self.batch_size, self.rank, self.world_size = int(batch_size), int(rank), int(world_size)
        rows = min(_MOST_CHANGES, max(_MOST_BYTES // (8 * (1 + len(sources))), 1024))
        self._changes = torch.zeros(rows, 1 + len(sources), dtype=torch.float64)
        self._counters = torch.zeros(3, dtype=torch.int64)
        self._reached = torch.zeros(1 + _MOST_WORKERS, dtype=torch.int64)
        self._share_memory()
        self.follow(shares, after=0)

    def __repr__(self) -> str:
        now = self._changes[self.n_changes - 1, 1:].tolist()
        shares = ", ".join(f"{name} {share:.3f}" for name, share in zip(self._names, now, strict=True))
        return f"MixtureStream({shares}; next sample {self.start:,})"

    def _share_memory(self) -> None:
        """Have workers hear of shares that change while they read."""
        for one in (self._changes, self._counters, self._reached):
            one.share_memory_()  # type: ignore[no-untyped-call]

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._share_memory()

    @property
    def _names(self) -> list[str]:
        return [shown(name) for name in self.sources]

    @property
    def n_changes(self) -> int:
        """Changes of the shares that are known, the first included."""
        return int(self._counters[0])

    @property
    def most_changes(self) -> int:
        """Changes of the shares that a stream of so many sources can keep."""
        return len(self._changes)

    @property
    def version(self) -> int:
        """A number that is another one whenever shares have changed."""
        return int(self._counters[2])

    @property
    def planned(self) -> int:
        """The place of the last change of the shares."""
        return int(self._changes[self.n_changes - 1, 0])

    @property
    def start(self) -> int:
        """The place of the first sample that is read next, over all processes."""
        return int(self._counters[1])

    @start.setter
    def start(self, place: int) -> None:
        if not (isinstance(place, int | np.integer) and place >= 0):
            raise InvalidInputError(f"start = {place!r:.60}; pass a number of samples, 0 or more.")
        self._counters[1] = int(place)
        # Nobody reads on from where it was.
        self._reached.zero_()
        self._reached[0] = int(place)

    # --- shares ----------------------------------------------------------------------------------------------------

    def follow(self, shares: Any, *, after: int | None = None) -> None:
        """Draw by other shares.

        Parameters
        ----------
        shares : mapping from source to share, sequence in the order of the sources, or MixtureController
        after : int, optional
            The place at which these begin: how many samples of the stream, of all processes and counted from its
            beginning, are drawn by earlier ones. The same on all processes, and beyond what workers may have read
            ahead. By default those that were drawn when this is called, where there are neither workers nor other
            processes.
        """
        is_controller = isinstance(shares, MixtureController)
        given = shares.shares if is_controller else shares
        if is_controller and len(given) < len(self.sources):
            lacking = next(name for name in self._names if name not in map(shown, given))
            raise InvalidInputError(f"the controller does not know {lacking}, a source of the stream. Leave it out.")
        found = source_shares(given, "shares", self._names, missing=0.0)
        if after is None and (self.world_size > 1 or bool(self._reached[1:].any())):
            raise InvalidInputError(
                "workers or other processes read the stream too. Pass after=, the number of samples of all processes "
                "that are still drawn by the old shares."
            )
        if not (after is None or (isinstance(after, int | np.integer) and after >= 0)):
            raise InvalidInputError(f"after = {after!r:.60}; pass a number of samples, 0 or more.")
        reached = int(self._reached.max())
        place = reached if after is None else int(after)
        if place < reached:
            raise InvalidInputError(
                f"shares cannot change after {place:,} samples: {reached:,} are drawn already. Pass a larger number, "
                "which allows for what workers read ahead."
            )
        planned = self._changes[: self.n_changes, 0].numpy()
        row = int(np.searchsorted(planned, place))
        if row < len(planned) and bool(self._reached[1:].any()):
            raise InvalidInputError(
                f"shares change after {int(planned[row]):,} samples already, and workers may have read so far. Pass a "
                "larger number."
            )
        if row == len(self._changes):
            raise InvalidInputError(f"shares have changed {row:,} times. Change them less often.")
        self._changes[row, 0] = place
        self._changes[row, 1:] = torch.as_tensor(found.copy())
        # Changes that were planned for later are overtaken.
        self._counters[0] = row + 1
        self._counters[2] += 1
        if is_controller:
            shares.followed()

    def drawn(self, first: int, last: int) -> NDArray[np.intp]:
        """Return the source of each place from the first to before the last, by the shares that are known now."""
        n_changes = self.n_changes
        changes = self._changes[:n_changes].numpy()
        codes = np.empty(last - first, dtype=np.intp)
        for row in range(int(np.searchsorted(changes[:, 0], first, side="right")) - 1, n_changes):
            low = max(first, int(changes[row, 0]))
            high = min(last, int(changes[row + 1, 0])) if row + 1 < n_changes else last
            if low < high:
                codes[low - first : high - first] = self._spread(low, high, changes[row, 1:])
        return codes

    def _spread(self, first: int, last: int, shares: Array) -> NDArray[np.intp]:
        offset = np.random.default_rng(self.seed).integers(1 << 63, dtype=np.uint64)
        with np.errstate(over="ignore"):
            multiples = np.arange(first, last, dtype=np.uint64) * _GOLDEN + offset
        even = (multiples >> np.uint64(11)).astype(np.float64) * 2.0**-53
        ends = np.cumsum(shares)
        # The last source that has a share takes what rounding leaves.
        ends[np.flatnonzero(shares)[-1] :] = 1.0
        return np.searchsorted(ends, even, side="right")

    # --- samples -----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        part, parts = (0, 1) if worker is None else (worker.id, worker.num_workers)
        readers = [
            reader_of(source, name, [self.seed, code] if self.shuffle else None)
            for code, (name, source) in enumerate(self.sources.items())
        ]
        counters, reached = self._counters.numpy(), self._reached.numpy()
        slot = 0 if worker is None else 1 + part
        # A loader gives its first batch to the first worker, wherever it begins.
        start = place = self.start
        taken = self._counts(place)
        at_once = _AT_ONCE * self.world_size * parts
        while True:
            version = counters[2]
            codes = self.drawn(place, place + at_once)
            numbers = taken[codes] + _earlier(codes)
            since = np.arange(place - start, place - start + at_once)
            own = since % self.world_size == self.rank
            own &= since // (self.world_size * self.batch_size) % parts == part
            done = at_once
            found = np.flatnonzero(own)
            mine = codes[found]
            samples = _samples(readers, mine, numbers[found])
            for k, code, sample in zip(found.tolist(), mine.tolist(), samples.tolist(), strict=True):
                # The place is taken before others are asked whether shares have changed for it.
                reached[slot] = place + k + 1
                yield readers[code].take(sample)
                if counters[2] != version:
                    done = k + 1
                    break
            taken += np.bincount(codes[:done], minlength=len(taken))
            place += done

    def _counts(self, place: int) -> Counts:
        """Return how many samples of each source are before a place."""
        counts = np.zeros(len(self.sources), dtype=np.int64)
        for first in range(0, place, 1 << 20):
            counts += np.bincount(self.drawn(first, min(first + (1 << 20), place)), minlength=len(counts))
        return counts

    # --- state -------------------------------------------------------------------------------------------------------

    def state_dict(self, consumed: int) -> dict[str, Any]:
        """Return all that is needed to go on after so many samples, of all processes together.

        How many were consumed is for the training loop to say: workers are ahead of it.
        """
        if not (isinstance(consumed, int | np.integer) and consumed >= 0):
            raise InvalidInputError(f"consumed = {consumed!r:.60}; pass a number of samples, 0 or more.")
        return {
            "sources": self._names,
            "seed": self.seed,
            "start": int(consumed),
            "changes": self._changes[: self.n_changes].tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was taken, when next read."""
        if not isinstance(state, Mapping):
            raise InvalidInputError(f"the state is {state!r:.60}; pass what state_dict returned.")
        for what, own in (("sources", self._names), ("seed", self.seed)):
            if state.get(what) != own:
                raise InvalidInputError(
                    f"the state is of a stream with {what} {state.get(what)!r:.80}, and this one has {own!r:.80}: it "
                    "would read other samples. Make it with the same ones, in the same order."
                )
        try:
            start = int(state["start"])
            changes = np.array(state["changes"], dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"this is no state of a stream: {error!r:.80}.") from error
        if changes.ndim != 2 or changes.shape[1] != 1 + len(self.sources) or len(changes) > len(self._changes):
            raise InvalidInputError("the state has shares of another number of sources. Is the file whole?")
        places, shares = changes[:, 0], changes[:, 1:]
        are_shares = (shares >= 0.0).all() and np.allclose(shares.sum(axis=1), 1.0)
        if not (start >= 0 and places[0] == 0.0 and (np.diff(places) >= 0.0).all() and are_shares):
            raise InvalidInputError("the state has shares that do not sum to 1, or places out of order.")
        self._changes[: len(changes)] = torch.as_tensor(changes)
        self._counters[0] = len(changes)
        self._counters[2] += 1
        self.start = start


def _samples(readers: Sequence[Reader], codes: NDArray[np.intp], numbers: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return which sample of its source each one is, of those with these numbers since the beginning."""
    found = np.empty_like(numbers)
    for code in np.unique(codes):
        of_source = codes == code
        found[of_source] = readers[code].order(numbers[of_source])
    return found


def _earlier(codes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return for each code how often it occurs before."""
    counts = np.bincount(codes)
    earlier = np.empty_like(codes)
    earlier[np.argsort(codes, kind="stable")] = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    return earlier
