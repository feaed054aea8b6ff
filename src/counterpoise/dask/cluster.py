"""Blocks on the workers of a cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from operator import itemgetter
from typing import Any
from uuid import uuid4

from counterpoise.exceptions import CounterpoiseError
from counterpoise.rows import Answer, Codes, Question, combined

_BRANCHES = 8
"""Answers that are combined by one task, where they are; the last one travels."""


class ClusterBlocks:
    """Blocks as futures of a client.

    Every block is the result of a task that the scheduler can run again, so nothing is lost with a worker.

    Parameters
    ----------
    client : distributed.Client
    blocks : sequence of Future
    contexts : sequence of ndarray
        The contexts of each block.
    patience : float
        Seconds to wait for a worker while there is none.
    """

    def __init__(self, client: Any, blocks: Sequence[Any], contexts: Sequence[Codes], patience: float) -> None:
        self.client, self.blocks, self.contexts, self.patience = client, list(blocks), list(contexts), patience
        self.n_passes = 0
        self._name = f"counterpoise-{uuid4().hex[:8]}"

    def ask(self, question: Question, states: Any = None) -> Answer:
        """Put a question to every block where it is."""
        return self._result(self._combined(self._submitted(question, states), "answer"))

    def advance(self, question: Question, states: Any = None) -> tuple[Any, Answer]:
        """Do the same, with blocks that change their states, which stay where they are."""
        pairs = self._submitted(question, states)
        kept = [self._task(itemgetter(0), "state", k, pair) for k, pair in enumerate(pairs)]
        answers = [self._task(itemgetter(1), "part", k, pair) for k, pair in enumerate(pairs)]
        del pairs
        return kept, self._result(self._combined(answers, "answer"))

    def finish(self) -> None:
        """Nothing was kept."""

    def _submitted(self, question: Question, states: Any) -> list[Any]:
        self.n_passes += 1
        known = [None] * len(self.blocks) if states is None else states
        return [
            self._task(question.about(contexts), "block", k, block, state)
            for k, (block, contexts, state) in enumerate(zip(self.blocks, self.contexts, known, strict=True))
        ]

    def _combined(self, answers: list[Any], name: str) -> Any:
        """Combine answers in a tree whose shape is always the same, and so is the rounding."""
        level = 0
        while len(answers) > 1:
            level += 1
            groups = [answers[k : k + _BRANCHES] for k in range(0, len(answers), _BRANCHES)]
            answers = [self._task(combined, f"{name}-{level}", k, group) for k, group in enumerate(groups)]
        return answers[0]

    def _task(self, function: Any, name: str, k: int, *args: Any) -> Any:
        key = f"{self._name}-{name}-{self.n_passes}-{k}"
        with _connected():
            return self.client.submit(function, *args, key=key, pure=False)

    def _result(self, future: Any) -> Any:
        return result(self.client, future, self.patience)


def sent(client: Any, tasks: list[Any]) -> list[Any]:
    """Hand tasks to the scheduler, and return their futures."""
    with _connected():
        return client.compute(tasks)


@contextmanager
def _connected() -> Iterator[None]:
    """Say so where there is no scheduler to hand tasks to."""
    from distributed.client import ClosedClientError
    from distributed.comm.core import CommClosedError

    try:
        yield
    except (ClosedClientError, CommClosedError) as error:
        raise CounterpoiseError(_LOST) from error


def result(client: Any, future: Any, patience: float) -> Any:
    """Return the result of a future, or say why there will be none."""
    from distributed.client import FutureCancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    alone_since: float | None = None
    while True:
        try:
            return future.result(timeout=2.0)
        except TimeoutError:
            if future.status == "error":
                # The task itself ran out of time, e.g. where it reads from a store.
                raise future.exception() from None
        except KilledWorker as error:
            raise CounterpoiseError(
                f"the cluster gave up on a partition, because the workers that held it died ({error!s:.200}). Most "
                "often a partition is too large for their memory: make partitions smaller, e.g. by repartition()."
            ) from error
        except (CommClosedError, FutureCancelledError, CancelledError) as error:
            raise CounterpoiseError(_LOST) from error
        try:
            workers = client.nthreads() if client.status == "running" else {}
        except (OSError, TimeoutError) as error:
            raise CounterpoiseError(_LOST) from error
        if workers:
            alone_since = None
            continue
        alone_since = alone_since or time.monotonic()
        if time.monotonic() - alone_since > patience:
            future.cancel()
            raise CounterpoiseError(
                f"the cluster has had no worker for {patience:g} seconds. Start workers, and fit again; with a "
                "checkpoint (counterpoise.dask.settings) the fit goes on where it ended."
            )


_LOST = (
    "the connection to the cluster's scheduler is lost. Start it again, and fit again; with a checkpoint "
    "(counterpoise.dask.settings) the fit goes on where it ended."
)
