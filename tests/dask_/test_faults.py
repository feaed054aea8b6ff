"""Clusters that fail while they fit: nothing is lost, or it is said so, and nothing hangs."""

import os
import signal
import time

import pytest

pytest.importorskip("dask")
pytest.importorskip("dask.dataframe")
pytest.importorskip("distributed")

from counterpoise.dask import settings
from counterpoise.dask.cluster import ClusterBlocks
from counterpoise.exceptions import CounterpoiseError
from tests.dask_.conftest import running
from tests.dask_.parts import PATIENCE, assert_same_fit, collections, model, within

pytestmark = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize(("name", "fatal"), [("logistic", 5), ("newsvendor", 10)])
def test_a_worker_that_is_killed_takes_nothing_with_it(name, fatal, monkeypatch):
    real, passes = ClusterBlocks._submitted, []
    # With given references the fit is short, and the rows of orders soon have states.
    options = {"reference": [0.0, 0.1]}
    X, columns = collections(name)
    like = model(name, **options).fit(X.compute(), **{key: value.compute() for key, value in columns.items()})
    with running() as client:

        def killing(self, question, states):
            passes.append(states is not None)
            if len(passes) == fatal:
                pids = client.run(os.getpid)
                os.kill(sorted(pids.values())[0], signal.SIGKILL)
            return real(self, question, states)

        monkeypatch.setattr(ClusterBlocks, "_submitted", killing)
        found = within(PATIENCE, lambda: model(name, **options).fit(X, **columns))
    assert len(passes) > fatal
    assert any(passes[:fatal]) == (name == "newsvendor")
    assert_same_fit(found, like)


def test_without_workers_a_fit_ends_when_patience_does():
    with running(n_workers=1) as client:
        X, columns = collections("squared")
        client.cluster.scale(0)
        deadline = time.monotonic() + PATIENCE
        while client.nthreads():
            assert time.monotonic() < deadline
            time.sleep(0.05)

        def fit():
            with settings(patience=0.5):
                return model("squared").fit(X, **columns)

        with pytest.raises(CounterpoiseError, match=r"no worker for 0\.5 seconds"):
            within(PATIENCE, fit)


def test_a_scheduler_that_closes_ends_the_fit(monkeypatch):
    real, n = ClusterBlocks._submitted, [0]
    with running(n_workers=1) as client:
        X, columns = collections("pinball")

        def closing(self, question, states):
            n[0] += 1
            if n[0] == 5:
                client.cluster.close()
            return real(self, question, states)

        monkeypatch.setattr(ClusterBlocks, "_submitted", closing)

        def fit():
            with settings(client=client, patience=5.0):
                return model("pinball").fit(X, **columns)

        with pytest.raises(CounterpoiseError, match="connection to the cluster's scheduler is lost"):
            within(PATIENCE, fit)
        # A client that is gone is said so before anything is done.
        with pytest.raises(CounterpoiseError, match="connection to the cluster's scheduler is lost"):
            within(PATIENCE, fit)
