"""Tables with everything in them that real ones have by accident."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from scipy import sparse

NASTY = [0.0, -0.0, 1.0, -1.0, 5e-324, 1e-310, 1e-300, 1e-17, 1e-8, 0.1, 3.0, 1e8, 1e16, 1e154, 1e300, 1.7e308, -1e300]
NOT_FINITE = [float("nan"), float("inf"), -float("inf")]

number = st.one_of(
    st.floats(-10, 10, width=32), st.sampled_from(NASTY), st.floats(allow_nan=False, allow_infinity=False)
)
any_number = st.one_of(number, number, number, st.sampled_from(NOT_FINITE))


def often(good, odd, times=40):
    """Return a strategy that is odd once in so many times."""
    return st.integers(0, times).flatmap(lambda k: odd if k == times else good)


radii = st.one_of(
    st.sampled_from([0.0, 1e-300, 1e-12, 1e-6, 1e-3, 0.05, 0.5, 2.0, 30.0, 1e3, 1e300, float("inf")]),
    st.floats(0, 5),
)
switch_radius = st.one_of(radii, radii, st.sampled_from(["types", "agrawal", "calibrated", "chi2", "anytime"]))
wrong_radius = st.sampled_from([-1.0, float("nan"), "x", None, True, [1.0], 10**400, np.float32(0.5), "0.5"])
confidences = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 0.99, 1 - 1e-16, 1.0, 5e-324]))
wrong_confidence = st.sampled_from([-0.1, 1.1, float("nan"), "x", None, 10**400, np.array([0.5])])

FEATURES = [
    "plain",
    "plain",
    "constant column",
    "duplicate column",
    "zeros",
    "far from zero",
    "uneven scales",
    "huge",
    "tiny",
    "subnormal",
    "one huge value",
    "small integers",
    "separable",
    *["plain"] * 20,
    "not finite",
]
FORMS = [
    *["plain"] * 40,
    "float16",
    "float32",
    "integers",
    "read-only",
    "strided",
    "fortran",
    "object",
    "masked",
    "frame",
    "sparse",
    "list",
    "text",
    "complex",
    "one-dimensional",
]
CONTEXTS = [*["random"] * 40, "one", "one row each", "identical", "strings", "crossed", "missing", "short", "none"]
WEIGHTS = [
    *["none"] * 40,
    "random",
    "random",
    "with zeros",
    "huge",
    "tiny",
    "uneven",
    "context of zeros",
    "negative",
    "nan",
]


@dataclass
class Table:
    """Rows as they are passed, and as they are meant."""

    X: Any
    y: Any
    contexts: Any
    weight: Any
    values: np.ndarray
    codes: np.ndarray
    row_weight: np.ndarray
    recipe: dict


recipes = st.fixed_dictionaries(
    {
        "n": st.integers(1, 30),
        "d": st.integers(1, 4),
        "n_contexts": st.integers(1, 5),
        "seed": st.integers(0, 2**32 - 1),
        "features": st.sampled_from(FEATURES),
        "form": st.sampled_from(FORMS),
        "contexts": st.sampled_from(CONTEXTS),
        "weights": st.sampled_from(WEIGHTS),
        "target": st.sampled_from([*[0, 1, 2] * 6, 3, 4, 5, 6, 7]),
    }
)


def table(recipe, kind):
    """Return the table of a recipe, with a target for a kind of loss."""
    rng = np.random.default_rng(recipe["seed"])
    n, d, many = recipe["n"], recipe["d"], recipe["n_contexts"]
    codes = np.arange(n) if recipe["contexts"] == "one row each" else rng.integers(0, many, n)
    if recipe["contexts"] in ("one", "none"):
        codes = np.zeros(n, dtype=int)
    codes = np.unique(codes, return_inverse=True)[1]
    X = _features(recipe["features"], rng.standard_normal((n, d)), rng)
    y = _target(recipe["target"], kind, X, codes, rng)
    if recipe["contexts"] == "identical" and n >= 2:
        half = n // 2
        X, y, codes = np.vstack([X[:half]] * 2), np.concatenate([y[:half]] * 2), np.repeat([0, 1], half)
        n = len(X)
    weight, given = _weights(recipe["weights"], codes, rng)
    values, X = _form(recipe["form"], X)
    return Table(X, y, _contexts(recipe["contexts"], codes), given, values, codes, weight, recipe)


def _features(kind, X, rng):
    n, d = X.shape
    if kind == "constant column":
        X[:, 0] = 3.0
    elif kind == "duplicate column":
        X[:, -1] = X[:, 0]
    elif kind == "zeros":
        X[:] = 0.0
    elif kind == "far from zero":
        X += 10.0 ** rng.integers(3, 9)
    elif kind == "uneven scales":
        X *= 10.0 ** rng.integers(-12, 13, d)
    elif kind == "huge":
        X *= 10.0 ** rng.integers(100, 301)
    elif kind == "tiny":
        X *= 10.0 ** -rng.integers(100, 301)
    elif kind == "subnormal":
        X *= 1e-310
    elif kind == "one huge value":
        X[rng.integers(n), rng.integers(d)] = 1e300
    elif kind == "small integers":
        X = np.round(X)
    elif kind == "not finite":
        X[rng.integers(n), rng.integers(d)] = rng.choice(NOT_FINITE)
    return X


def _target(choice, kind, X, codes, rng):
    n = len(X)
    with np.errstate(all="ignore"):
        line = np.nan_to_num(X[:, 0] / (np.abs(X[:, 0]).max() or 1.0), nan=0.0, posinf=1.0, neginf=-1.0)
    if kind == "logistic":
        options = [
            lambda: rng.integers(0, 2, n),
            lambda: rng.integers(0, 3, n),
            lambda: (line > 0).astype(int),
            lambda: np.where(codes == 0, 1, rng.integers(0, 2, n)),
            lambda: np.array(["no", "yes", "maybe"])[rng.integers(0, 3, n)],
            lambda: np.zeros(n, dtype=int),
            lambda: rng.integers(0, 2, n).astype(bool),
            lambda: rng.standard_normal(n),
        ]
    elif kind in ("poisson", "newsvendor"):
        options = [
            lambda: rng.poisson(3.0, n),
            lambda: rng.poisson(3.0, n).astype(float),
            lambda: np.zeros(n),
            lambda: rng.exponential(1.0, n) * 1e-300,
            lambda: rng.exponential(1.0, n) * 1e8,
            lambda: np.full(n, 7.0),
            lambda: rng.standard_normal(n),
            lambda: rng.exponential(1.0, n) * 10.0 ** rng.integers(9, 301),
        ]
    else:
        options = [
            lambda: line + rng.standard_normal(n),
            lambda: line,
            lambda: np.full(n, 4.2),
            lambda: rng.standard_normal(n) * 10.0 ** rng.integers(9, 301),
            lambda: rng.standard_normal(n) * 10.0 ** -rng.integers(9, 301),
            lambda: 1e9 + rng.standard_normal(n),
            lambda: rng.integers(-2, 3, n),
            lambda: np.where(rng.random(n) < 0.1, rng.choice([np.nan, np.inf, 1e300], n), line),
        ]
    return options[choice]()


def _weights(kind, codes, rng):
    n = len(codes)
    if kind == "none":
        return np.ones(n), None
    weight = rng.uniform(0.1, 2.0, n)
    if kind == "with zeros":
        weight[rng.random(n) < 0.3] = 0.0
    elif kind == "huge":
        with np.errstate(over="ignore"):
            weight *= 10.0 ** rng.integers(100, 309)
    elif kind == "tiny":
        weight *= 10.0 ** -rng.integers(100, 309)
    elif kind == "uneven":
        weight = 10.0 ** rng.uniform(-12, 12, n)
    elif kind == "context of zeros":
        weight[codes == 0] = 0.0
    elif kind == "negative":
        weight[0] = -1.0
    elif kind == "nan":
        weight[0] = np.nan
    return weight, weight


def _contexts(kind, codes):
    if kind == "none":
        return None
    if kind == "strings":
        return np.array([f"context {c}" for c in codes])
    if kind == "crossed":
        return np.column_stack([codes // 2, codes % 2])
    if kind == "missing":
        return np.array([None, *codes[1:].tolist()], dtype=object)
    if kind == "short":
        return codes[:-1]
    return codes


def _form(form, X):
    with np.errstate(all="ignore"):
        if form == "float16":
            X = X.astype(np.float16)
            return X.astype(float), X
        if form == "float32":
            X = X.astype(np.float32)
            return X.astype(float), X
        if form == "integers":
            X = np.nan_to_num(np.clip(X, -1e6, 1e6), nan=0.0).astype(np.int64)
            return X.astype(float), X
    if form == "read-only":
        given = X.copy()
        given.flags.writeable = False
        return X, given
    if form == "strided":
        wide = np.full((2 * X.shape[0], 3 * X.shape[1]), np.nan)
        wide[::2, ::3] = X
        return X, wide[::2, ::3]
    if form == "fortran":
        return X, np.asfortranarray(X)
    if form == "object":
        return X, X.astype(object)
    if form == "masked":
        return X, np.ma.masked_array(X, mask=np.zeros(X.shape, dtype=bool))
    if form == "frame":
        return X, pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
    if form == "sparse":
        return X, sparse.csr_array(X)
    if form == "list":
        return X, X.tolist()
    if form == "text":
        given = X.astype(object)
        given[0, 0] = "many"
        return X, given
    if form == "complex":
        return X, X + 1j
    return (X, X[:, 0]) if form == "one-dimensional" else (X, X)
