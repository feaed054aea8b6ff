"""Maximin effects: the worst explained variance over several sources, with the same learner for every method.

The reward of a prediction f in a source is ``E Y^2 - E (Y - f)^2``. Meinshausen and Buehlmann (2015), and Wang,
Buehlmann and Guo (DRoL) for any learner, maximise the least reward over mixes of the sources: the answer is the mean
of the sources' own models under weights ``q`` that minimise ``q @ Gamma @ q``, with Gamma the mean products of their
predictions. Here the same is minimax regret whose references are the risks of the prediction 0. Sources are simulated:
five features, functions that share a linear part and differ in another, linear or not. Features have one distribution
in all sources, so no density ratios are needed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression

import counterpoise as cpo

Array = NDArray[np.float64]
Row = dict[str, Any]
Predict = Callable[[Array], Array]

N_FEATURES = 5
N_TEST = 20_000

LEARNERS: dict[str, Any] = {
    "linear": LinearRegression(),
    "histogram boosting": HistGradientBoostingRegressor(max_iter=50, early_stopping=False, random_state=0),
    "random forest": RandomForestRegressor(50, min_samples_leaf=10, random_state=0),
}


@dataclass(frozen=True, eq=False)
class Sources:
    """Conditional means that differ from source to source.

    Attributes
    ----------
    common : ndarray of shape (n_features,)
    own : ndarray of shape (n_sources, n_features)
        Linear parts.
    bent : ndarray of shape (n_sources, 3)
        Coefficients of a square, a product and a sine.
    """

    common: Array
    own: Array
    bent: Array

    @classmethod
    def drawn(cls, n_sources: int, seed: int) -> Sources:
        """Draw the functions; every second source is linear."""
        rng = np.random.default_rng([seed, n_sources])
        bent = rng.standard_normal((n_sources, 3)) * (np.arange(n_sources) % 2)[:, None]
        return cls(0.7 * rng.standard_normal(N_FEATURES), 0.7 * rng.standard_normal((n_sources, N_FEATURES)), bent)

    @property
    def n_sources(self) -> int:
        return len(self.own)

    def means(self, X: Array, source: int) -> Array:
        """Return the mean of Y given X in a source."""
        a, b, c = self.bent[source]
        bent = a * (X[:, 0] ** 2 - 1.0) + b * X[:, 1] * X[:, 2] + c * np.sin(2.0 * X[:, 3])
        return X @ (self.common + self.own[source]) + bent

    def rows(self, n: int, seed: int) -> tuple[Array, Array, NDArray[np.intp]]:
        """Return features, targets and sources of n rows of each source."""
        rng = np.random.default_rng([seed, 1])
        codes = np.repeat(np.arange(self.n_sources), n)
        X = rng.standard_normal((len(codes), N_FEATURES))
        y = np.concatenate([self.means(X[codes == k], k) for k in range(self.n_sources)])
        return X, y + rng.standard_normal(len(y)), codes

    def worst_reward(self, predict: Predict, seed: int) -> float:
        """Return the least reward of any source in the population, without the noise of targets."""
        X = np.random.default_rng([seed, 2]).standard_normal((N_TEST, N_FEATURES))
        f = predict(X)
        means = (self.means(X, k) for k in range(self.n_sources))
        return min(float(np.mean(mean**2 - (mean - f) ** 2)) for mean in means)


def simplex_minimum(gamma: Array) -> Array:
    """Return the weights that minimise ``q @ gamma @ q``."""
    m = len(gamma)
    # Noise of a corrected estimate may leave a matrix that is not positive semidefinite.
    values, vectors = np.linalg.eigh(0.5 * (gamma + gamma.T))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    gamma = root @ root.T
    scale = max(float(np.trace(gamma)) / m, 1e-300)
    found = minimize(
        lambda q: q @ gamma @ q / scale,
        np.full(m, 1.0 / m),
        jac=lambda q: 2.0 * gamma @ q / scale,
        bounds=[(0.0, 1.0)] * m,
        constraints={"type": "eq", "fun": lambda q: q.sum() - 1.0, "jac": lambda q: np.ones(m)},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    q = np.maximum(found.x, 0.0)
    return q / q.sum()


def _models(learner: Any, X: Array, y: Array, codes: NDArray[np.intp]) -> list[Any]:
    return [clone(learner).fit(X[codes == k], y[codes == k]) for k in range(codes.max() + 1)]


def _weighted(models: list[Any], q: Array) -> Predict:
    return lambda X: np.asarray(sum(weight * model.predict(X) for weight, model in zip(q, models, strict=True)))


def maximin(learner: Any, X: Array, y: Array, codes: NDArray[np.intp]) -> Predict:
    """Aggregate the sources' own models by the maximin weights."""
    models = _models(learner, X, y, codes)
    f = np.array([model.predict(X) for model in models])
    return _weighted(models, simplex_minimum(f @ f.T / len(X)))


def corrected_maximin(learner: Any, X: Array, y: Array, codes: NDArray[np.intp]) -> Predict:
    """Aggregate by weights from products whose bias is corrected: residuals of one half under models of the other."""
    half = np.random.default_rng(0).permutation(len(y)) % 2
    m = int(codes.max()) + 1
    gamma = np.zeros((m, m))
    for part in (0, 1):
        models = _models(learner, X[half == part], y[half == part], codes[half == part])
        held = half != part
        f, of_rows = np.array([model.predict(X[held]) for model in models]), codes[held]
        residual = y[held] - f[of_rows, np.arange(held.sum())]
        # Mean of f_l times the residual of f_k, over rows of source k.
        bias = np.array([[(f[j] * residual)[of_rows == k].mean() for j in range(m)] for k in range(m)])
        gamma += 0.5 * (f @ f.T / held.sum() + bias + bias.T)
    return _weighted(_models(learner, X, y, codes), simplex_minimum(gamma))


def pooled(learner: Any, X: Array, y: Array, codes: NDArray[np.intp]) -> Predict:
    """Fit one plain model to all rows."""
    return clone(learner).fit(X, y).predict


def robust(learner: Any, X: Array, y: Array, codes: NDArray[np.intp]) -> Predict:
    """Fit one model that is robust over all mixes, measured against the prediction 0."""
    null = {k: 0.5 * float(np.mean(y[codes == k] ** 2)) for k in range(int(codes.max()) + 1)}
    options: dict[str, Any] = {"confidence": 1.0, "reference": null}
    if isinstance(learner, LinearRegression):
        model: Any = cpo.RobustLinearRegression(alpha=0.0, **options)
    else:
        model = cpo.ContextRobust(learner, cv=3, max_iter=10, **options)
    return model.fit(X, y, contexts=codes).predict


METHODS: dict[str, Callable[..., Predict]] = {
    "plain": pooled,
    "maximin aggregation": maximin,
    "maximin, bias corrected": corrected_maximin,
    "robust": robust,
}


def study_sources(learner: str, n_sources: int, seed: int, n: int = 2000) -> Row:
    """Part d: fit every method to one draw of sources, and return the worst rewards."""
    sources = Sources.drawn(n_sources, seed)
    X, y, codes = sources.rows(n, seed)
    row: Row = {"learner": learner, "sources": n_sources, "seed": seed}
    for name, method in METHODS.items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cpo.exceptions.CounterpoiseWarning)
            predict = method(LEARNERS[learner], X, y, codes)
        seconds = time.perf_counter() - start
        row[name] = {"reward": sources.worst_reward(predict, seed), "seconds": seconds}
    return row
