"""What the tests of linear share."""

import functools

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import (
    HuberRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
)

import counterpoise as cpo
from counterpoise.losses import Huber, Logistic, Multinomial, Pinball, Poisson, Squared
from tests.problems import make, weighted_risk

CASES = {
    "binary": (cpo.RobustLogisticRegression, Logistic()),
    "multinomial": (cpo.RobustLogisticRegression, Multinomial(3)),
    "linear": (cpo.RobustLinearRegression, Squared()),
    "huber": (cpo.RobustHuberRegressor, Huber(1.35)),
    "poisson": (cpo.RobustPoissonRegressor, Poisson()),
    "quantile": (cpo.RobustQuantileRegressor, Pinball(0.5)),
}
CLASSIFIERS = ["binary", "multinomial"]
PLAIN = {
    "binary": LogisticRegression,
    "multinomial": LogisticRegression,
    "linear": LinearRegression,
    "huber": HuberRegressor,
    "poisson": PoissonRegressor,
    "quantile": QuantileRegressor,
}
PER_CONTEXT = (
    "contexts_",
    "context_counts_",
    "context_weights_",
    "context_risks_",
    "reference_risks_",
    "excess_risks_",
    "adjustments_",
)

every_estimator = pytest.mark.parametrize("case", CASES)
every_classifier = pytest.mark.parametrize("case", CLASSIFIERS)
a_classifier_and_a_regressor = pytest.mark.parametrize("case", ["binary", "linear"])


@functools.cache
def rows_of(case):
    """Return data with three contexts, none too small for its parameters."""
    X, y, codes = make(CASES[case][1], 3, 2, 4, (90, 110) if case == "multinomial" else (45, 60))
    for part in (X, y, codes):
        part.flags.writeable = False
    return X, y, codes


def estimator(case, **options):
    return CASES[case][0](**options)


@functools.cache
def fitted(case, **options):
    return estimator(case, **options).fit(*rows_of(case))


def theta_of(model):
    """Return coefficients and intercepts in one vector."""
    return np.column_stack([np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)]).ravel()


def risks_of(case, theta, alpha):
    """Return the risk of each context, written out."""
    X, y, codes = rows_of(case)
    risks = []
    for c in range(codes.max() + 1):
        rows = codes == c
        weight = np.full(rows.sum(), 1.0 / rows.sum())
        risks.append(weighted_risk(CASES[case][1], X[rows], y[rows], weight, theta, alpha))
    return np.array(risks)


def ball_of(model):
    return cpo.KLBall(model.context_counts_ / model.context_counts_.sum(), model.radius_)


def assert_same_model(one, other, **tolerance):
    np.testing.assert_allclose(theta_of(one), theta_of(other), **({"rtol": 1e-9, "atol": 1e-9} | tolerance))


def small_contexts(n_contexts, rows, n_features, seed, spread=0.1):
    """Return contexts that hardly differ, each with few rows, with least risk 1/2 (of squares of unit noise)."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(n_contexts), rows)
    X = rng.normal(size=(len(codes), n_features))
    coef = rng.normal(size=n_features) + spread * rng.normal(size=(n_contexts, n_features))
    return X, np.einsum("nd,nd->n", X, coef[codes]) + rng.normal(size=len(codes)), codes


NAMES = np.array(["east", "north", "west"])


DAYS = np.array(["2024-01-01", "2024-02-01", "2024-03-01"], dtype="M8[D]")


KINDS = {
    "strings": lambda codes: NAMES[codes],
    "list of strings": lambda codes: NAMES[codes].tolist(),
    "object strings": lambda codes: NAMES[codes].astype(object),
    "large integers": lambda codes: codes * 10**6 - 7,
    "list of integers": lambda codes: codes.tolist(),
    "floats": lambda codes: codes + 0.5,
    "small integers": lambda codes: codes.astype(np.uint8),
    "pandas categorical": lambda codes: pd.Categorical(NAMES[codes]),
    "pandas categorical series": lambda codes: pd.Series(pd.Categorical(NAMES[codes]), index=codes),
    "pandas string series": lambda codes: pd.Series(NAMES[codes], dtype="string"),
    "pandas nullable integers": lambda codes: pd.Series(codes, dtype="Int64"),
    "pandas index": lambda codes: pd.Index(NAMES[codes]),
    "polars strings": lambda codes: pl.Series(NAMES[codes]),
    "polars categorical": lambda codes: pl.Series(NAMES[codes], dtype=pl.Categorical),
    "list of dates": lambda codes: DAYS[codes].tolist(),
    "days": lambda codes: DAYS[codes],
    "nanoseconds": lambda codes: DAYS.astype("M8[ns]")[codes],
    "pandas dates": lambda codes: pd.Series(DAYS.astype("M8[ns]")[codes]),
    "polars dates": lambda codes: pl.Series(DAYS[codes]),
    "one pandas column": lambda codes: pd.DataFrame({"region": NAMES[codes]}),
    "one polars column": lambda codes: pl.DataFrame({"region": NAMES[codes]}),
    "tuples": lambda codes: [(NAMES[c], c) for c in codes.tolist()],
    "two pandas columns": lambda codes: pd.DataFrame({"region": NAMES[codes], "urban": codes == 1}),
    "two polars columns": lambda codes: pl.DataFrame({"region": NAMES[codes], "year": 2000 + codes}),
}


COLUMNS = ["age", "dose"]
