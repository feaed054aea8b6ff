"""The same rows in memory and in partitions, and what must be the same of two fits."""

import threading
from itertools import pairwise

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from scipy import sparse

import counterpoise as cpo
from counterpoise.losses import Huber, Logistic, Multinomial, Newsvendor, Pinball, Poisson, Squared
from tests.problems import make

MODELS = {
    "logistic": (Logistic(), cpo.RobustLogisticRegression),
    "multinomial": (Multinomial(3), cpo.RobustLogisticRegression),
    "squared": (Squared(), cpo.RobustLinearRegression),
    "huber": (Huber(0.8), cpo.RobustHuberRegressor),
    "poisson": (Poisson(), cpo.RobustPoissonRegressor),
    "pinball": (Pinball(0.3), cpo.RobustQuantileRegressor),
    "newsvendor": (Newsvendor(10.0), cpo.RobustNewsvendorRegressor),
}
SIZES = [3, 0, 17, 20]
PATIENCE = 120.0
"""Seconds after which a test is taken to hang."""
CURVED = ("logistic", "multinomial", "poisson")
"""Models whose references are solved by other steps where rows are elsewhere."""


def rows(name, n_contexts=3, n_features=2, seed=0, size=(8, 14)):
    """Return ``(X, columns)``: all that fit takes beside X by name."""
    X, y, codes = make(MODELS[name][0], n_contexts, n_features, seed, size)
    if name == "newsvendor":
        return X, {"y": y[:, 1], "costs": y[:, 0], "contexts": codes}
    return X, {"y": y.astype(int) if name in ("logistic", "multinomial") else y, "contexts": codes}


def model(name, **options):
    fixed = {"newsvendor": {"price": 10.0}, "pinball": {"quantile": 0.3}}.get(name, {})
    # Rows in memory could be held out, where those on workers cannot.
    return MODELS[name][1](**({"alpha": 1e-2, "reference": "in-sample"} | fixed | options))


def pieces(values, sizes):
    """Cut rows into pieces of these sizes."""
    ends = np.cumsum([0, *sizes])
    taken = values.iloc if hasattr(values, "iloc") else values
    return [taken[first:last] for first, last in pairwise(ends.tolist())]


def chunked(values, sizes):
    """Return a dask array whose chunks have these sizes; sparse rows stay sparse."""
    if sparse.issparse(values):
        chunks = [
            da.from_delayed(dask.delayed(part), part.shape, dtype=part.dtype, meta=sparse.csr_array((0, 0)))
            for part in pieces(values, sizes)
        ]
        return da.concatenate(chunks)
    values = np.asarray(values)
    return da.from_array(values, chunks=(tuple(sizes), *((width,) for width in values.shape[1:])))


def framed(values, sizes):
    """Return a dask dataframe or series whose partitions have these sizes, types as they are."""
    values = values if hasattr(values, "iloc") else pd.Series(values)
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(lambda part: part, pieces(values, sizes), meta=values.iloc[:0])


def sizes_of(n, n_parts, seed=0):
    """Return the sizes of partitions that begin anywhere; some may be empty."""
    cuts = np.sort(np.random.default_rng(seed).integers(0, n + 1, n_parts - 1))
    return np.diff([0, *cuts.tolist(), n]).tolist()


def assert_same_fit(found, expected, tol=1e-10, coef_tol=None):
    """Compare all that a fit leaves behind, relative to its scale."""
    coef_tol = tol if coef_tol is None else coef_tol
    scale = float(np.abs(expected.context_risks_).max())
    for name in ("contexts_", "context_counts_", "classes_", "feature_names_in_"):
        if hasattr(expected, name):
            one, other = getattr(found, name), getattr(expected, name)
            assert one.dtype == other.dtype, name
            if one.dtype.kind == "f":
                np.testing.assert_allclose(one, other, rtol=1e-12, err_msg=name)
            else:
                assert one.tolist() == other.tolist(), name
                assert list(map(type, one.tolist())) == list(map(type, other.tolist())), name
        else:
            assert not hasattr(found, name), name
    assert getattr(found, "n_features_in_", None) == getattr(expected, "n_features_in_", None)
    for name in ("context_risks_", "reference_risks_", "excess_risks_"):
        one, other = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(one, other, rtol=0, atol=tol * scale, err_msg=name)
    for end in ("lower", "upper"):
        assert abs(getattr(found.certificate_, end) - getattr(expected.certificate_, end)) <= tol * scale, end
    np.testing.assert_allclose(found.context_weights_, expected.context_weights_, rtol=0, atol=coef_tol)
    assert found.radius_ == expected.radius_ or abs(found.radius_ / expected.radius_ - 1.0) < 1e-12
    for name in ("coef_", "intercept_", "stock_level_"):
        if hasattr(expected, name):
            one, other = np.asarray(getattr(found, name)), np.asarray(getattr(expected, name))
            assert one.shape == other.shape, name
            assert one.dtype == other.dtype, name
            size = max(float(np.abs(expected.coef_).max()) if hasattr(expected, "coef_") else 0.0, 1e-3)
            size = max(size, float(np.abs(other).max()))
            np.testing.assert_allclose(one, other, rtol=0, atol=coef_tol * size, err_msg=name)


def collections(name, sizes=SIZES, seed=0):
    """Return what fit takes as dask arrays, a few dozen rows of two contexts."""
    X, columns = rows(name, 2, 2, seed, (20, 30))
    n = sum(sizes)
    return chunked(X[:n], sizes), {key: chunked(value[:n], sizes) for key, value in columns.items()}


def within(seconds, function):
    """Return what a function returns or raises, unless it hangs."""
    box = {}

    def call():
        try:
            box["value"] = function()
        except BaseException as error:
            box["error"] = error

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it hangs"
    if "error" in box:
        raise box["error"]
    return box["value"]
