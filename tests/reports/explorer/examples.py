"""Small problems for the explorer, and a reader of the data inside its page."""

import json
import re
from contextlib import contextmanager
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from counterpoise import RobustLinearRegression, RobustLogisticRegression, plan_stock
from counterpoise.reports.explorer import stock_sweep, sweep
from tests.reports.pages.hostile import NAMES

LABELS = [name for name in NAMES if isinstance(name, str)]
PLACES = np.array(["north", "south", "east"])


def two_classes(n=500, seed=0):
    rng = np.random.default_rng(seed)
    c = rng.choice(3, n, p=[0.15, 0.7, 0.15])
    X = rng.normal(size=(n, 2)) * [12.0, 0.3] + [50.0, 1.5]
    z = (X[:, 0] - 50.0) / 8.0 * (1.0 - 0.8 * c) + (X[:, 1] - 1.5) * 4.0
    y = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-z)), "well", "ill")
    return pd.DataFrame({"age": X[:, 0], "creatinine": X[:, 1]}), y, PLACES[c]


@contextmanager
def few_steps():
    """Few places of every bound that can be moved, for what is not about these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("counterpoise.reports.explorer.bounds._STEPS", 2)
        yield


@cache
def boundary():
    model = make_pipeline(StandardScaler(), RobustLogisticRegression(radius="agrawal"))
    with few_steps():
        return sweep(model, *two_classes(), levels=9)


def noisy_lines(n_contexts, rows=60, n_features=1):
    rng = np.random.default_rng(n_contexts)
    c = np.repeat(np.arange(n_contexts), rows)
    X = rng.uniform(0.0, 10.0, (len(c), n_features))
    return X, 5.0 + X[:, 0] * (1.0 + 0.3 * c / n_contexts) + rng.normal(size=len(c)), c


@cache
def hostile():
    X, y, c = noisy_lines(len(LABELS))
    X = pd.DataFrame({LABELS[0]: X[:, 0]})
    return sweep(RobustLinearRegression(), X, pd.Series(y, name=LABELS[1]), [LABELS[k] for k in c], levels=4, cv=None)


def plan(**options):
    rng = np.random.default_rng(1)
    c = rng.choice(4, 200, p=[0.5, 0.3, 0.15, 0.05])
    demand = rng.normal(np.array([40.0, 55.0, 25.0, 90.0])[c], 6.0).clip(0.0)
    names = np.array(["sun", "cloud", "rain", "fair"])[c]
    return plan_stock(demand, cost=4.0, price=10.0, contexts=names, currency="EUR", period="day", **options)


@cache
def stock():
    made = plan()
    with few_steps():
        return stock_sweep(made.plans[0], made.money, levels=9)


def data_in(page):
    """Return what the page's script will read."""
    literal = re.search(r"const DATA = JSON\.parse\((\".*\")\);\n", page)[1]
    return json.loads(json.loads(literal))
