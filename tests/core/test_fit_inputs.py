"""Inputs of every kind in whole fits, and what is refused."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from counterpoise.core.fit import Robustness, fit_linear
from counterpoise.exceptions import EmptyContextError, InvalidInputError
from counterpoise.losses import Logistic, Multinomial, Newsvendor, Poisson
from tests.core.fits import (
    every_loss,
    identified,
    theta_of,
)
from tests.problems import make

# --- inputs of every kind -----------------------------------------------------------------------------------


def containers(X, y, labels):
    """Return the same data in other containers."""
    frame = {f"x{k}": column for k, column in enumerate(X.T)}
    frozen = [np.array(part) for part in (X, y, labels)]
    for part in frozen:
        part.flags.writeable = False
    return {
        "lists": (X.tolist(), y.tolist(), labels.tolist()),
        "tuples": (tuple(map(tuple, X)), tuple(y), tuple(labels)),
        "pandas": (pd.DataFrame(frame), pd.Series(y), pd.Series(labels)),
        "pandas with another index": (
            pd.DataFrame(frame, index=np.arange(len(y))[::-1]),
            pd.Series(y, index=np.arange(len(y)) + 5),
            pd.Series(labels),
        ),
        "categorical labels": (X, y, pd.Series(labels, dtype="category")),
        "nullable": (pd.DataFrame(frame).convert_dtypes(), pd.Series(y, dtype="Float64"), labels),
        "polars": (pl.DataFrame(frame), pl.Series(y), pl.Series(labels)),
        "Fortran order": (np.asfortranarray(X), y, labels),
        "strided": (np.repeat(X, 2, axis=0)[::2], np.repeat(y, 2)[::2], np.repeat(labels, 2)[::2]),
        "read-only": tuple(frozen),
        "sparse": (sparse.csr_array(X), y, labels),
        "sparse columns": (sparse.csc_matrix(X), y, labels),
        "sparse triplets": (sparse.coo_array(X), y, labels),
        "long floats": (X.astype(np.longdouble), y.astype(np.longdouble), labels),
        "objects": (X.astype(object), y.astype(object), labels.astype(object)),
    }


@pytest.mark.parametrize("kind", containers(np.ones((1, 1)), np.ones(1), np.array(["a"])))
def test_containers_do_not_matter(kind):
    X, y, codes = make(Logistic(), 3, 2, 0)
    labels = np.array(["a", "b", "c"])[codes]
    expected = fit_linear(X, y, labels, Logistic())
    fit = fit_linear(*containers(X, y, labels)[kind], Logistic())
    np.testing.assert_allclose(identified(fit), identified(expected), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(fit.counts, expected.counts)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.uint8, bool])
def test_numbers_of_every_kind_are_taken_at_their_value(dtype):
    X, y, codes = make(Logistic(), 3, 2, 0)
    X = np.abs(np.round(2.0 * X)).astype(dtype)
    expected = fit_linear(X.astype(np.float64), y, codes, Logistic())
    fit = fit_linear(X, y.astype(dtype), codes, Logistic())
    np.testing.assert_array_equal(theta_of(fit), theta_of(expected))
    assert fit.coef.dtype == np.float64


def test_sparse_single_precision_is_taken_at_its_value():
    X, y, codes = make(Logistic(), 3, 2, 0)
    X = X.astype(np.float32)
    expected = fit_linear(X.astype(np.float64), y, codes, Logistic())
    fit = fit_linear(sparse.csr_array(X), y, codes, Logistic())
    np.testing.assert_allclose(identified(fit), identified(expected), atol=1e-9)


def test_targets_of_several_columns_may_be_a_frame():
    X, y, codes = make(Newsvendor(10.0), 3, 2, 0)
    expected = fit_linear(X, y, codes, Newsvendor(10.0))
    for frame in (pd.DataFrame, pl.DataFrame):
        fit = fit_linear(X, frame({"cost": y[:, 0], "demand": y[:, 1]}), codes, Newsvendor(10.0))
        np.testing.assert_array_equal(theta_of(fit), theta_of(expected))


def test_weights_may_be_a_series_or_a_list():
    X, y, codes = make(Logistic(), 3, 2, 0)
    weight = np.arange(1, len(y) + 1)
    expected = fit_linear(X, y, codes, Logistic(), sample_weight=weight)
    for container in (list, pd.Series, pl.Series):
        fit = fit_linear(X, y, codes, Logistic(), sample_weight=container(weight))
        np.testing.assert_array_equal(theta_of(fit), theta_of(expected))


def test_inputs_are_left_as_they_were():
    X, y, codes = make(Logistic(), 3, 2, 0)
    weight = np.ones(len(y))
    weight[0] = 0.0
    before = [part.copy() for part in (X, y, codes, weight)]
    fit_linear(X, y, codes, Logistic(), sample_weight=weight)
    for part, copy in zip((X, y, codes, weight), before, strict=True):
        np.testing.assert_array_equal(part, copy)


@pytest.mark.parametrize("alpha", [0.0, 1e-4])
@every_loss
def test_one_row_is_enough(loss, alpha):
    features, y, codes = make(loss, 1, 2, 0, (1, 1))
    fit = fit_linear(features[:1], y[:1], codes[:1], loss, alpha=alpha)
    assert fit.solution.certificate.upper <= 1e-6
    assert fit.solution.risks[0] == pytest.approx(loss.lowest(y[:1])[0], abs=1e-4)


@every_loss
def test_one_row_a_context_is_enough(loss):
    features, y, codes = make(loss, 4, 2, 0, (1, 1))
    first = [int(np.flatnonzero(codes == c)[0]) for c in range(4)]
    fit = fit_linear(features[first], y[first], codes[first], loss, alpha=1e-2)
    assert fit.solution.success
    np.testing.assert_array_equal(fit.counts, 1.0)


@every_loss
def test_intercept_alone_can_be_fitted(loss):
    _, y, codes = make(loss, 3, 1, 0)
    fit = fit_linear(np.empty((len(codes), 0)), y, codes, loss)
    assert fit.coef.shape == (loss.n_outputs, 0)
    assert fit.solution.success


# --- refusals -----------------------------------------------------------------------------------------------


X, Y, CODES = make(Logistic(), 3, 2, 0)
LABELS = np.array(["north", "south", "west"])[CODES]
N = len(Y)


def changed(array, where, value):
    """Return a copy with one entry replaced."""
    copy = np.array(array, dtype=object if isinstance(value, str) else None)
    copy[where] = value
    return copy


def frame_with(column):
    return pd.DataFrame({"age": X[:, 0], "town": column})


REFUSED = {
    "NaN in X": ({"X": changed(X, (3, 1), np.nan)}, r"X is nan in row 3, column 1\. Impute or drop"),
    "infinity in X": ({"X": changed(X, (5, 0), -np.inf)}, r"X is -inf in row 5, column 0\. Impute or drop"),
    "NaN in sparse X": ({"X": sparse.csr_array(changed(X, (3, 1), np.nan))}, r"X is nan in row 3, column 1\. Impute"),
    "NaN in a frame": ({"X": pd.DataFrame(changed(X, (3, 1), np.nan))}, r"X is nan in row 3, column 1\. Impute"),
    "missing in a nullable frame": (
        {"X": frame_with(pd.array([None, *[1] * (N - 1)], dtype="Int64"))},
        r"X is nan in row 0, column 1\. Impute",
    ),
    "X of one dimension": ({"X": X[:, 0]}, r"two dimensions, got shape \(\d+,\)\. Use X\.reshape\(-1, 1\)"),
    "X of three dimensions": ({"X": X[:, :, None]}, "two dimensions"),
    "sparse X of one dimension": ({"X": sparse.coo_array(X[:, 0])}, "two dimensions"),
    "ragged X": ({"X": [[1.0, 2.0], *[[3.0]] * (N - 1)]}, "X"),
    "no X": ({"X": None}, "X"),
    "complex X": ({"X": X + 1j}, "complex numbers; pass real"),
    "sparse complex X": ({"X": sparse.csr_array(X + 1j)}, "complex numbers; pass real"),
    "text in an array": ({"X": changed(X, (0, 1), "red")}, r"X must be numbers \(column 1.*red.*OneHotEncoder"),
    "text in a pandas frame": (
        {"X": frame_with(["rome"] * N)},
        r"X must be numbers \(column town.*rome.*OneHotEncoder",
    ),
    "text in a polars frame": (
        {"X": pl.DataFrame({"age": X[:, 0], "town": ["rome"] * N})},
        r"X must be numbers \(column town.*rome.*OneHotEncoder",
    ),
    "categories in a pandas frame": ({"X": frame_with(pd.Categorical(["rome"] * N))}, r"numbers \(column town.*rome"),
    "no rows": ({"X": X[:0], "y": Y[:0], "contexts": LABELS[:0]}, "X has no rows"),
    "nothing to fit": ({"X": X[:, :0], "fit_intercept": False}, "nothing to fit"),
    "NaN in y": ({"y": changed(Y, 4, np.nan)}, "target in row 4 is nan; drop or impute"),
    "infinity in y": ({"y": changed(Y, 4, np.inf)}, "target in row 4 is inf; drop or impute"),
    "text in y": ({"y": ["yes"] * N}, "logistic loss needs numbers as targets"),
    "short y": ({"y": Y[:-1]}, rf"X has {N} rows and y has {N - 1}\. Pass one target per row"),
    "y of two columns": ({"y": np.column_stack([Y, Y])}, rf"shape \(n,\) .*got \({N}, 2\)"),
    "y outside the domain": ({"y": changed(Y, 2, 7.0)}, r"target in row 2 is 7\.0; the logistic loss needs 0 or 1"),
    "short contexts": ({"contexts": LABELS[:-1]}, rf"got {N - 1} context labels for {N} rows\. Pass one label per row"),
    "None among the contexts": ({"contexts": [None, *LABELS[1:]]}, "context of row 0 is None.*'unknown'"),
    "NaN among the contexts": ({"contexts": changed(CODES.astype(float), 1, np.nan)}, "context of row 1.*'unknown'"),
    "undeclared context": ({"declared": ["north", "south"]}, "context west is in the data but was not declared"),
    "short weights": ({"sample_weight": np.ones(3)}, rf"sample_weight has shape \(3,\) for {N} rows\. Pass one weight"),
    "weights of two columns": ({"sample_weight": np.ones((N, 1))}, "sample_weight has shape"),
    "negative weight": ({"sample_weight": changed(np.ones(N), 6, -1.0)}, r"sample_weight in row 6 is -1\.0"),
    "NaN weight": ({"sample_weight": changed(np.ones(N), 6, np.nan)}, "sample_weight in row 6 is nan"),
    "text as weights": ({"sample_weight": ["a"] * N}, "sample_weight must be numbers"),
    "negative alpha": ({"alpha": -0.1}, r"alpha = -0\.1; the ridge is a finite number, 0 or more"),
    "NaN alpha": ({"alpha": math.nan}, "alpha = nan; the ridge is"),
    "infinite alpha": ({"alpha": math.inf}, "alpha = inf; the ridge is"),
    "text as alpha": ({"alpha": "strong"}, "alpha"),
    "unknown method": ({"robustness": "brave"}, "no method 'brave'; choose one of robust, erm"),
    "unknown criterion": (
        {"robustness": Robustness(criterion="pain")},
        "criterion is 'pain'; choose 'excess' or 'risk'",
    ),
    "unknown radius": (
        {"robustness": Robustness(radius="wide")},
        "'wide'; choose 'types', 'agrawal', 'calibrated', 'chi2' or 'anytime'",
    ),
    "negative radius": ({"robustness": Robustness(radius=-1.0)}, r"radius = -1\.0"),
    "NaN radius": ({"robustness": Robustness(radius=math.nan)}, "radius = nan"),
    "confidence above 1": ({"robustness": Robustness(confidence=1.5)}, r"confidence = 1\.5; it must lie in \[0, 1\]"),
    "too few references": (
        {"reference": np.zeros(2)},
        r"reference is .*of shape \(2,\).* map each of 3 contexts",
    ),
    "NaN reference": ({"reference": [0.0, math.nan, 0.0]}, "reference of context south .*finite"),
    "text as references": ({"reference": ["low"] * 3}, "reference .*numbers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_by_name_and_with_a_remedy(case):
    arguments, message = REFUSED[case]
    arguments = {"X": X, "y": Y, "contexts": LABELS, "loss": Logistic()} | arguments
    with pytest.raises(InvalidInputError, match=message):
        fit_linear(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"declared": ["north", "south", "west", "east"]},
            r"context east has no training samples \(counts: .*east 0\)",
        ),
        (
            {"sample_weight": (CODES != 1).astype(float)},
            "all sample weights of context south are zero.*Drop the context",
        ),
    ],
    ids=["declared and never seen", "without weight"],
)
def test_context_without_data_is_refused_as_empty(arguments, message):
    with pytest.raises(EmptyContextError, match=message):
        fit_linear(X, Y, LABELS, Logistic(), **arguments)


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (Logistic(), 0.5),
        (Logistic(), -1.0),
        (Multinomial(3), 3.0),
        (Multinomial(3), 0.5),
        (Multinomial(3), -1.0),
        (Poisson(), -0.1),
        (Newsvendor(10.0), [2.0, -1.0]),
    ],
)
def test_target_outside_the_domain_is_refused_with_its_row(loss, target):
    features, y, codes = make(loss, 2, 2, 0)
    y[5] = target
    with pytest.raises(InvalidInputError, match=rf"target in row 5 is .*the {loss.name} loss needs .*Recode"):
        fit_linear(features, y, codes, loss)


def test_dates_are_no_features():
    days = np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]")[np.arange(N) % 2]
    with pytest.raises(InvalidInputError, match="X must be numbers"):
        fit_linear(days[:, None], Y, LABELS, Logistic())


@every_loss
@pytest.mark.parametrize("far", [2e3, 1e5, 1e8])
def test_features_far_from_zero_are_as_those_around_it(loss, far):
    X, y, codes = make(loss, 3, 3, seed=5)
    # What the shift would round off is rounded off before.
    X = (X + far) - far
    offsets = np.array([far, 0.0, -far])
    near, away = (fit_linear(rows, y, codes, loss, alpha=1e-3) for rows in (X, X + offsets))
    assert away.solution.success
    assert away.solution.value == pytest.approx(near.solution.value, abs=1e-6 * near.solution.certificate.scale)
    there = (X + offsets) @ away.coef.T + away.intercept
    np.testing.assert_allclose(there, X @ near.coef.T + near.intercept, atol=1e-3 * (1.0 + np.abs(there).max()))
