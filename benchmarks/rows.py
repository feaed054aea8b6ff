"""Rows that benchmarks share; numpy alone is needed."""

from __future__ import annotations

import numpy as np


def logistic_rows(n: int, d: int, n_contexts: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels and contexts: contexts of different sizes, each with coefficients of its own."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(n_contexts, 2.0))
    # Every context occurs.
    contexts = np.concatenate([np.arange(n_contexts), rng.choice(n_contexts, size=n - n_contexts, p=shares)])
    X = rng.standard_normal((n, d))
    common, own = rng.standard_normal(d), 0.5 * rng.standard_normal((n_contexts, d))
    z = (X @ common + np.einsum("nd,nd->n", X, own[contexts])) / np.sqrt(d)
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * z))).astype(int), contexts


def targets(kind: str, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return labels or counts whose log odds or half log means are z, or numbers around it."""
    if kind == "logistic":
        return (rng.random(len(z)) < 1.0 / (1.0 + np.exp(-z))).astype(int)
    if kind == "poisson":
        return rng.poisson(np.exp(0.5 * z))
    return z + rng.standard_normal(len(z))
