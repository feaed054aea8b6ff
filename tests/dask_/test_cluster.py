"""Rows on workers: the same fits, and the same words where something is wrong."""

import gc
import time
from uuid import uuid4

import numpy as np
import pytest

pytest.importorskip("dask")
pytest.importorskip("dask.dataframe")
pytest.importorskip("distributed")

import counterpoise as cpo
from counterpoise.dask import settings
from counterpoise.dask.cluster import ClusterBlocks
from counterpoise.exceptions import InvalidInputError
from tests.dask_.parts import PATIENCE, SIZES, assert_same_fit, chunked, collections, framed, model, within

pytestmark = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")


def in_memory(name):
    X, columns = collections(name)
    return X.compute(), {key: value.compute() for key, value in columns.items()}


@pytest.mark.parametrize("name", ["logistic", "squared", "pinball"])
def test_fits_on_workers_are_those_in_memory(client, name):
    X, columns = in_memory(name)
    options = {}
    if name == "logistic":
        options["reference"] = model(name).fit(X, **columns).reference_risks_
    like = model(name, **options).fit(X, **columns)
    X, columns = collections(name)
    assert_same_fit(model(name, **options).fit(X, **columns), like)


def test_stock_levels_on_workers_are_those_in_memory(client):
    _, columns = in_memory("newsvendor")
    like = cpo.RobustNewsvendor(price=10.0).fit(columns["costs"], columns["y"], contexts=columns["contexts"])
    _, columns = collections("newsvendor")
    found = cpo.RobustNewsvendor(price=10.0).fit(columns["costs"], columns["y"], contexts=columns["contexts"])
    assert_same_fit(found, like)


def test_more_partitions_than_are_added_up_at_once(client):
    # Nine and more partitions: answers are combined in a tree of two levels.
    X, columns = collections("squared", sizes=[4] * 10)
    found = model("squared").fit(X, **columns)
    assert_same_fit(found, model("squared").fit(X.compute(), **{k: v.compute() for k, v in columns.items()}))


def test_a_partition_is_read_once(client, tmp_path):
    X, columns = collections("squared")

    def read(block):
        (tmp_path / uuid4().hex).touch()
        return block

    model("squared").fit(X.map_blocks(read, dtype=float, meta=np.zeros((0, X.shape[1]))), **columns)
    assert len(list(tmp_path.iterdir())) == X.numblocks[0]


def test_frames_with_named_columns_and_large_stacks_come_back(client):
    import pandas as pd

    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 30))
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(30)])
    frame["y"], frame["where"] = X[:, 0] > rng.normal(size=600), np.array(["n", "s"])[np.arange(600) % 2]
    features = frame.drop(columns=["y", "where"])
    like = model("logistic").fit(features, frame["y"], contexts=frame["where"])
    found = model("logistic").fit(framed(frame, [200, 300, 100]), "y", contexts="where")
    assert_same_fit(found, like, tol=1e-6, coef_tol=1e-5)


def test_nothing_stays_on_the_workers(client):
    X, columns = collections("pinball")
    found = model("pinball", reference=[0.0, 0.1]).fit(X, **columns)
    assert found.certificate_.gap >= 0.0
    del X, columns
    gc.collect()
    deadline = time.monotonic() + PATIENCE
    # The client forgets them in a thread of its own.
    while client.futures or client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_fits_may_be_told_which_client(client):
    X, columns = collections("squared")
    like = model("squared").fit(X, **columns)
    with settings(client=client):
        assert_same_fit(model("squared").fit(X, **columns), like, tol=1e-15)


@pytest.mark.parametrize("error", [OSError("the disk is gone"), TimeoutError("the store is slow")], ids=repr)
def test_a_partition_that_cannot_be_read_is_named_and_nothing_hangs(client, error):
    X, columns = collections("squared")

    def read(block, block_info):
        if block_info[0]["chunk-location"][0] == 2:
            raise error
        return block

    broken = X.map_blocks(read, dtype=float, meta=np.zeros((0, 2)))
    with pytest.raises(InvalidInputError, match=f"partition 2 cannot be computed: .*{error}"):
        within(PATIENCE, lambda: model("squared").fit(broken, **columns))


def test_a_poisoned_partition_is_named_by_the_workers(client):
    X, columns = collections("poisson")
    columns["y"] = chunked(np.where(np.arange(40) == 30, -1.0, columns["y"].compute()), SIZES)
    with pytest.raises(InvalidInputError, match="partition 3: "):
        model("poisson").fit(X, **columns)


def test_a_checkpoint_serves_another_client(client, tmp_path, monkeypatch):
    X, columns = collections("newsvendor")
    like = model("newsvendor", reference=[0.0, 0.1]).fit(X.compute(), **{k: v.compute() for k, v in columns.items()})
    real, n = ClusterBlocks._submitted, [0]

    def counting(self, question, states):
        n[0] += 1
        if n[0] > 12:
            raise KeyboardInterrupt
        return real(self, question, states)

    path = tmp_path / "kept"
    with monkeypatch.context() as patch:
        patch.setattr(ClusterBlocks, "_submitted", counting)
        with settings(checkpoint=path), pytest.raises(KeyboardInterrupt):
            model("newsvendor", reference=[0.0, 0.1]).fit(X, **columns)
    with settings(checkpoint=path):
        found = model("newsvendor", reference=[0.0, 0.1]).fit(X, **columns)
    assert_same_fit(found, like)
    assert not path.exists()
