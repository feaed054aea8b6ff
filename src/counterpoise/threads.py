"""Work shared among threads: as many as the BLAS would use, each with a BLAS of one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from counterpoise.signals import undisturbed

Item = TypeVar("Item")
Result = TypeVar("Result")

WORTHWHILE = 1 << 21
"""Entries of a table from which sharing the work costs less than it saves (16 MB)."""

_SHARED = 5_000_000
"""Entries from which products with a table gain by several threads (40 MB)."""


@cache
def _controller() -> ThreadpoolController:
    # It is called back from C, where Ctrl-C would be swallowed.
    with undisturbed():
        return ThreadpoolController().select(user_api="blas")


class _Limit:
    """The one limit that all who ask for it share: the first sets it, the last takes it off."""

    def __init__(self) -> None:
        self.lock, self.users, self.held = Lock(), 0, None

    held: Any

    def enter(self) -> None:
        with self.lock:
            # Setting a limit costs about as much as solving a small system; where there is one thread already, skip it.
            if self.users == 0 and n_threads() > 1:
                self.held = _controller().limit(limits=1)
                self.held.__enter__()
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0 and self.held is not None:
                held, self.held = self.held, None
                held.__exit__(None, None, None)


_LIMIT = _Limit()


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep the BLAS to one thread: starting several for each of many small matrices costs far more than they save."""
    _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave()


def suited(entries: int) -> AbstractContextManager[None]:
    """Keep the BLAS to one thread where a table of so many entries gives several nothing to share."""
    return one_thread() if entries < _SHARED else nullcontext()


def n_threads() -> int:
    """Return how many threads the BLAS may use, which is what the user allows."""
    return max((library.num_threads for library in _controller().lib_controllers), default=1)


def spread(call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return what a call makes of every item, in their order; threads take them in turn."""
    items = list(items)
    threads = min(n_threads(), len(items))
    if threads <= 1:
        return [call(item) for item in items]
    # What the caller has set for numpy (np.errstate) holds in the threads as well.
    contexts = [copy_context() for _ in items]
    with one_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda item, context: context.run(call, item), items, contexts))


def parts(n: int, entries: int) -> Sequence[slice]:
    """Cut so many rows, that hold so many entries, into as many slices as there are threads worth their start."""
    pieces = n_threads() if entries >= WORTHWHILE else 1
    ends = [n * k // pieces for k in range(pieces + 1)]
    return [slice(first, last) for first, last in pairwise(ends)]
