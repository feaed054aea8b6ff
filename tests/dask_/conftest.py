"""A cluster of processes on this machine, for the tests that need one."""

import contextlib
import logging

import pytest


@contextlib.contextmanager
def running(n_workers=2):
    """Start a cluster with a client; both are closed whatever happens."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            # Any port that is free: there may be other clusters on this machine.
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    """Two workers of one thread each."""
    with running() as client:
        yield client
