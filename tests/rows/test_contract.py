"""The contract of rows: every home agrees with a plain loop in high precision, for every loss."""

from functools import cache

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import sparse

from counterpoise.contexts import Contexts
from counterpoise.rows import Block, BlockRows, BlocksInMemory, MemoryRows
from counterpoise.rows.on_disk import BlocksOnDisk
from counterpoise.rows.recorded import Recorded
from tests.losses.test_values import PARAMETERS
from tests.problems import LOSSES, make
from tests.referees import losses as referee


def memory(X, target, codes, weight, loss, fit_intercept, folder):
    contexts = Contexts(np.arange(codes.max() + 1), codes.astype(np.intp))
    return MemoryRows.of(X, target, contexts, loss, weight, fit_intercept)


def sparse_memory(X, *others):
    return memory(sparse.csr_array(X), *others)


def cut(X, target, codes, weight, loss, fit_intercept):
    """Deal rows out to three blocks."""
    totals = np.bincount(codes, weight)
    owner = np.random.default_rng(0).integers(0, 3, len(codes))
    for k in range(3):
        mine = owner == k
        rows = (X[mine], target[mine], codes[mine].astype(np.intp), weight[mine])
        yield Block.of(*rows, totals, loss, fit_intercept)


def as_home(blocks, X, codes, loss, fit_intercept):
    return BlockRows(blocks, loss, int(codes.max()) + 1, X.shape[1], fit_intercept)


def blocks(X, target, codes, weight, loss, fit_intercept, folder):
    held = BlocksInMemory(list(cut(X, target, codes, weight, loss, fit_intercept)))
    return as_home(held, X, codes, loss, fit_intercept)


def disk(X, target, codes, weight, loss, fit_intercept, folder):
    held = BlocksOnDisk(folder)
    held.extend(cut(X, target, codes, weight, loss, fit_intercept))
    return as_home(held, X, codes, loss, fit_intercept)


def recorded(X, target, codes, weight, loss, fit_intercept, folder):
    home = disk(X, target, codes, weight, loss, fit_intercept, folder)
    return as_home(Recorded(home.blocks, folder / "kept", b"rows"), X, codes, loss, fit_intercept)


def workers(X, target, codes, weight, loss, fit_intercept, folder):
    from counterpoise.dask.cluster import ClusterBlocks

    held = list(cut(X, target, codes, weight, loss, fit_intercept))
    client = HereAtOnce()
    cluster = ClusterBlocks(client, [Done(block) for block in held], [block.contexts for block in held], 1.0)
    return as_home(cluster, X, codes, loss, fit_intercept)


class Done:
    """A future whose result is there."""

    status = "finished"

    def __init__(self, value):
        self.value = value

    def result(self, timeout=None):
        return self.value


class HereAtOnce:
    """A client that computes what it is handed, here and at once."""

    def submit(self, function, *args, key, pure):
        def arrived(value):
            if isinstance(value, list):
                return [arrived(one) for one in value]
            return value.value if isinstance(value, Done) else value

        return Done(function(*map(arrived, args)))


def device(X, target, codes, weight, loss, fit_intercept, folder):
    torch = pytest.importorskip("torch")
    from counterpoise.rows.device import TorchRows

    shares = weight / np.bincount(codes, weight)[codes]
    return TorchRows.of(torch.tensor(X), target, shares, codes, int(codes.max()) + 1, loss, fit_intercept)


HOMES = {
    "memory": memory,
    "sparse": sparse_memory,
    "blocks": blocks,
    "disk": disk,
    "recorded": recorded,
    "workers": workers,
    "device": device,
}


def plain_loop(X, target, codes, weight, loss, fit_intercept, theta):
    """Return values, gradients, sizes, Hessians and moments in fifty digits, row by row; a theta for each context."""
    n_contexts, outputs = codes.max() + 1, loss.n_outputs
    parameters = PARAMETERS[type(loss)](loss)
    total = [mpf(0)] * n_contexts
    for c, w in zip(codes, weight, strict=True):
        total[c] += mpf(float(w))
    width = X.shape[1] + fit_intercept
    values, sizes = [mpf(0)] * n_contexts, [mpf(0)] * n_contexts
    gradients = np.full((n_contexts, outputs * width), mpf(0), dtype=object)
    hessians = np.full((n_contexts, outputs * width, outputs * width), mpf(0), dtype=object)
    moments = hessians.copy()
    for x, t, c, w in zip(X, target, codes, weight, strict=True):
        row = [mpf(float(one)) for one in x] + [mpf(1)] * fit_intercept
        matrix = [[mpf(float(one)) for one in own] for own in theta[c].reshape(outputs, width)]
        z = [mp.fdot(own, row) for own in matrix]
        z = z[0] if outputs == 1 else z
        share = mpf(float(w)) / total[c]
        slopes = np.atleast_1d(np.array(referee.gradient(loss.name, t, z, **parameters), dtype=object))
        bend = np.array(referee.curvature(loss.name, t, z, **parameters), dtype=object).reshape(outputs, outputs)
        values[c] += share * referee.value(loss.name, t, z, **parameters)
        sizes[c] += share * max(abs(one) for one in slopes)
        gradient = np.kron(slopes, np.array(row, dtype=object))
        gradients[c] += share * gradient
        moments[c] += share * np.outer(gradient, gradient)
        hessians[c] += share * np.kron(bend, np.outer(row, row))
    return tuple(np.array(found, dtype=float) for found in (values, gradients, sizes, hessians, moments))


def close(found, expected):
    size = max(float(np.abs(expected).max()), 1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * size)


@cache
def looped(loss, fit_intercept):
    """Return some rows, parameters of all contexts, and what the loop finds at those of the first, and at each."""
    X, y, codes = make(loss, 3, 2, 5, (3, 9))
    target, rng = loss.checked_target(y), np.random.default_rng(1)
    weight = rng.random(len(codes)) + 0.1
    own = rng.normal(size=(3, loss.n_outputs * (2 + fit_intercept)))
    given = X, target, codes, weight
    with mp.workdps(50):
        at_one = plain_loop(*given, loss, fit_intercept, np.tile(own[0], (3, 1)))
        at_each = plain_loop(*given, loss, fit_intercept, own)
    for one in (*given, own, *at_one, *at_each):
        one.flags.writeable = False
    return given, own, at_one, at_each


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "none"])
def test_sums_are_those_of_a_plain_loop(home, loss, fit_intercept, tmp_path):
    given, own, at_one, at_each = looped(loss, fit_intercept)
    X, target, codes, weight = (one.copy() for one in given)
    rows = HOMES[home](X, target, codes, weight, loss, fit_intercept, tmp_path)
    shape, p = rows.coefficients, np.array([0.2, 0.5, 0.3])
    assert shape.n_parameters == own.shape[1]
    assert (rows.n_contexts, shape.n_features, shape.fit_intercept) == (3, 2, fit_intercept)
    close(rows.reach, np.abs(X).max(axis=0))
    for sums, (values, gradients, sizes, hessians, moments) in ((rows.at(own[0]), at_one), (rows.at(own), at_each)):
        close(sums.values, values)
        close(sums.gradients, gradients)
        close(sums.sizes, sizes)
        close(sums.hessians, hessians)
        close(sums.moments, moments)
    close(rows.at(own[0], expecting=p).hessian(p), np.tensordot(p, at_one[3], 1))
    close(rows.at(own[0]).hessian(3.0 * p), np.tensordot(3.0 * p, at_one[3], 1))
    lowest = rows.lowest
    assert (lowest <= rows.at(own).values + 1e-12 * np.abs(lowest)).all()
    # A constant is no better than the least that rows allow, and one that makes sense is found wherever rows are.
    here = memory(X, target, codes, weight, loss, fit_intercept, tmp_path)
    close(lowest, here.lowest)
    close(rows.typical, here.typical)
    close(rows.above_lowest(here.typical), here.above_lowest(here.typical))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("home", HOMES)
def test_what_is_cut_off_lies_below(home, loss, tmp_path):
    X, y, codes = make(loss, 3, 2, 7, (4, 8))
    target, weight = loss.checked_target(y), np.ones(len(codes))
    rows = HOMES[home](X, target, codes, weight, loss, True, tmp_path)
    here = memory(X, target, codes, weight, loss, True, tmp_path)
    theta = np.random.default_rng(0).normal(size=rows.coefficients.n_parameters)
    for cut_off in (1e-3, 0.3):
        less, same = rows.at(theta).truncated(cut_off), here.at(theta).truncated(cut_off)
        assert (less.values <= rows.at(theta).values + 1e-15).all()
        close(less.values, same.values)
        close(less.gradients, same.gradients)
        close(less.hessians, same.hessians)
