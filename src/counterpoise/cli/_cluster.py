"""Work that joblib hands out, handed to the workers of a cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from counterpoise.exceptions import CounterpoiseError, InvalidInputError

Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", help="Address of a dask scheduler whose workers share the work, such as tcp://10.0.0.1:8786."
    ),
]

_PATIENCE = 60.0
"""Seconds to wait for a worker while there is none."""


@contextmanager
def on_cluster(address: str | None) -> Iterator[None]:
    """Let joblib work on a cluster, where one is named."""
    if address is None:
        yield
        return
    try:
        from dask.distributed import Client
        from distributed.client import FutureCancelledError
    except ImportError:
        raise InvalidInputError(
            "--cluster needs dask, which is not installed. Install it with: pip install 'counterpoise[dask]'"
        ) from None
    from concurrent.futures import CancelledError

    from joblib import parallel_config

    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise CounterpoiseError(f"no dask scheduler answers at {address} ({error!s:.120}). Check --cluster.") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise CounterpoiseError(_no_workers(address)) from None
        watch = _Watch(client)
        try:
            with parallel_config("dask"):
                yield
        except (CancelledError, FutureCancelledError, RuntimeError, OSError) as error:
            if watch.gave_up:
                raise CounterpoiseError(_no_workers(address)) from error
            raise
        finally:
            watch.end()


def _no_workers(address: str) -> str:
    return f"the cluster at {address} has had no worker for {_PATIENCE:g} seconds. Start workers, and try again."


class _Watch:
    """Closes a client whose cluster has lost all workers, so that nobody waits for ever."""

    def __init__(self, client: Any) -> None:
        self.gave_up = False
        self._over = threading.Event()
        self._client = client
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        seen = time.monotonic()
        while not self._over.wait(1.0):
            try:
                alive = bool(self._client.nthreads())
            except Exception:
                # The scheduler does not answer either.
                alive = False
            if alive:
                seen = time.monotonic()
            elif time.monotonic() - seen > _PATIENCE:
                self.gave_up = True
                self._client.close()
                return
