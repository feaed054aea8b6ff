"""A fit to collections that was cut short goes on with the same file, in another process too."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dask")
pytest.importorskip("dask.dataframe")

import counterpoise as cpo
from counterpoise.dask import settings
from counterpoise.exceptions import CounterpoiseError, InvalidInputError
from counterpoise.rows.on_disk import BlocksOnDisk
from tests.dask_.parts import assert_same_fit, chunked, model, rows

pytestmark = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")

SIZES = [20, 0, 20]


class CutShortError(Exception):
    pass


def collections(name, seed=0):
    X, columns = rows(name, 2, 2, seed, (20, 30))
    return chunked(X[:40], SIZES), {key: chunked(value[:40], SIZES) for key, value in columns.items()}


@pytest.fixture
def passes(monkeypatch):
    """Count passes over the rows, and raise from one where a limit is set."""
    counted = {"n": 0, "limit": None}
    real = BlocksOnDisk._pass

    def counting(self, question, states, read):
        if counted["limit"] is not None and counted["n"] >= counted["limit"]:
            raise CutShortError
        counted["n"] += 1
        return real(self, question, states, read)

    monkeypatch.setattr(BlocksOnDisk, "_pass", counting)
    return counted


def cut_short(estimator, path, passes, limit, name, **other):
    X, columns = collections(name)
    passes.update(n=0, limit=limit)
    with settings(checkpoint=path), pytest.raises(CutShortError):
        estimator.fit(X, **columns | other)
    passes.update(n=0, limit=None)


@pytest.mark.parametrize("name", ["logistic", "squared", "pinball", "newsvendor"])
def test_an_exception_costs_no_pass_that_was_done(name, tmp_path, passes):
    X, columns = collections(name)
    like = model(name).fit(X, **columns)
    whole, half = passes["n"], passes["n"] // 2
    path = tmp_path / "model.checkpoint"
    cut_short(model(name), path, passes, half, name)
    assert path.exists()
    with settings(checkpoint=path):
        found = model(name).fit(X, **columns)
    # States of rows are made anew, which takes the passes that made them.
    assert passes["n"] < whole if name == "newsvendor" else passes["n"] == whole - half
    np.testing.assert_array_equal(found.coef_, like.coef_)
    assert_same_fit(found, like, tol=1e-15)
    assert not path.exists()


def test_a_stock_level_goes_on_too(tmp_path, passes):
    _, columns = collections("newsvendor")
    given = (columns["costs"], columns["y"])
    like = cpo.RobustNewsvendor(price=10.0).fit(*given, contexts=columns["contexts"])
    whole = passes["n"]
    path = tmp_path / "level.checkpoint"
    passes.update(n=0, limit=whole - 2)
    with settings(checkpoint=path), pytest.raises(CutShortError):
        cpo.RobustNewsvendor(price=10.0).fit(*given, contexts=columns["contexts"])
    passes.update(n=0, limit=None)
    with settings(checkpoint=path):
        found = cpo.RobustNewsvendor(price=10.0).fit(*given, contexts=columns["contexts"])
    assert passes["n"] == 2
    assert_same_fit(found, like, tol=1e-15)
    assert not path.exists()


@pytest.mark.parametrize(
    "other",
    [
        lambda: cpo.RobustQuantileRegressor(quantile=0.9, alpha=1e-2),
        lambda: cpo.RobustHuberRegressor(alpha=1e-2),
        lambda: model("pinball", fit_intercept=False),
    ],
    ids=["another quantile", "another loss", "no intercept"],
)
def test_the_checkpoint_of_another_model_is_not_believed(other, tmp_path, passes):
    path = tmp_path / "kept"
    cut_short(model("pinball"), path, passes, 8, "pinball")
    X, columns = collections("pinball")
    with settings(checkpoint=path), pytest.raises(InvalidInputError, match="checkpoint of another model"):
        other().fit(X, **columns)
    assert path.exists()


def test_the_terms_of_orders_are_part_of_the_model(tmp_path, passes):
    path = tmp_path / "kept"
    cut_short(model("newsvendor"), path, passes, 8, "newsvendor")
    X, columns = collections("newsvendor")
    with settings(checkpoint=path), pytest.raises(InvalidInputError, match="checkpoint of another model"):
        model("newsvendor", max_stock=11.0).fit(X, **columns)


def test_what_is_decided_away_from_the_rows_may_change(tmp_path, passes):
    path = tmp_path / "kept"
    cut_short(model("squared"), path, passes, 4, "squared")
    X, columns = collections("squared")
    with settings(checkpoint=path):
        found = model("squared", confidence=0.5, alpha=0.5).fit(X, **columns)
    assert_same_fit(found, model("squared", confidence=0.5, alpha=0.5).fit(X, **columns), tol=1e-15)


@pytest.mark.parametrize("change", ["a feature", "a target", "a context", "weights", "partitions"])
def test_the_checkpoint_of_other_rows_is_not_believed(change, tmp_path, passes):
    path = tmp_path / "kept"
    cut_short(model("squared"), path, passes, 4, "squared")
    X, columns = (collections("squared")[0].compute(), rows("squared", 2, 2, 0, (20, 30))[1])
    columns = {key: value[:40].copy() for key, value in columns.items()}
    sizes = [19, 0, 21] if change == "partitions" else SIZES
    if change == "a feature":
        X[3, 1] += 1e-9
    elif change == "a target":
        columns["y"][0] += 1.0
    elif change == "a context":
        columns["contexts"][0] = 1 - columns["contexts"][0]
    elif change == "weights":
        columns["sample_weight"] = np.arange(40) + 1.0
    with settings(checkpoint=path), pytest.raises(InvalidInputError, match="other data"):
        model("squared").fit(chunked(X, sizes), **{key: chunked(value, sizes) for key, value in columns.items()})


def test_a_file_that_is_none_and_a_place_that_is_none_are_named(tmp_path):
    X, columns = collections("squared")
    (tmp_path / "notes.txt").write_text("not a checkpoint")
    with settings(checkpoint=tmp_path / "notes.txt"), pytest.raises(InvalidInputError, match="is no checkpoint"):
        model("squared").fit(X, **columns)
    with settings(checkpoint=str(tmp_path / "no" / "kept")), pytest.raises(CounterpoiseError, match="cannot be used"):
        model("squared").fit(X, **columns)
    # Settings are over with the block.
    model("squared").fit(X, **columns)


SCRIPT = """
import os, signal, sys
from counterpoise.dask import settings
from counterpoise.rows.on_disk import BlocksOnDisk
from tests.dask_.test_checkpoint import collections, model

real, n = BlocksOnDisk._pass, [0]

def counting(self, question, states, read):
    n[0] += 1
    if n[0] > int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, question, states, read)

BlocksOnDisk._pass = counting
X, columns = collections(sys.argv[1])
with settings(checkpoint=sys.argv[2]):
    model(sys.argv[1]).fit(X, **columns)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_process_that_was_killed_is_followed_by_another(tmp_path, passes):
    path = tmp_path / "kept"
    code = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, "newsvendor", str(path), "30"],
        cwd=Path(__file__).parents[2],
        # What it could not tidy up lies in a folder that is.
        env=os.environ | {"TMPDIR": str(tmp_path)},
        timeout=120,
        check=False,
    ).returncode
    assert code == -signal.SIGKILL
    assert tempfile.gettempdir() != str(tmp_path)
    X, columns = collections("newsvendor")
    like = model("newsvendor").fit(X, **columns)
    whole = passes["n"]
    passes["n"] = 0
    with settings(checkpoint=path):
        found = model("newsvendor").fit(X, **columns)
    assert passes["n"] < whole
    assert_same_fit(found, like, tol=1e-15)
    assert not path.exists()
