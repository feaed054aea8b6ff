"""Shapes of the problems that whole fits are timed on, and their rows: the same ones on every machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

_BLOCK = 1 << 16
"""Rows drawn at once, so that making them needs little memory besides them."""


@dataclass(frozen=True)
class Shape:
    """A logistic problem.

    Attributes
    ----------
    name : str
    n, d, contexts : int
        Rows, features and contexts.
    signal : float
        Standard deviation of the log odds: 0.2 is nearly noise, 1.5 moderate, 7 nearly separable.
    spread : float
        Size of what is a context's own in its coefficients, relative to what all share: 0.1 is near, 1 far.
    skew : float
        The k-th largest context has a share of rows proportional to ``k ** -skew``; 0 for contexts of equal size.
    correlation : float
        Correlation of any two features.
    raw : bool
        Whether features have means and scales of their own, as columns of a table do.
    """

    name: str
    n: int
    d: int
    contexts: int
    signal: float = 1.5
    spread: float = 0.5
    skew: float = 0.0
    correlation: float = 0.0
    raw: bool = False

    def __str__(self) -> str:
        return f"{self.name}: n={self.n:,}, d={self.d}, C={self.contexts:,}"

    def toy(self) -> Shape:
        """Return a shape of the same kind that takes no time."""
        return replace(self, n=max(600, self.n // 2000), d=min(self.d, 5), contexts=min(self.contexts, 6))

    def sizes(self) -> np.ndarray:
        """Return the rows of each context, at least two."""
        shares = np.arange(1.0, self.contexts + 1.0) ** -self.skew
        sizes = np.maximum(np.floor(self.n * shares / shares.sum()).astype(int), 2)
        sizes[0] += self.n - sizes.sum()
        return sizes

    def rows(self, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return features, labels and contexts, in no order."""
        rng = np.random.default_rng([seed, self.n, self.d, self.contexts])
        contexts = rng.permutation(np.repeat(np.arange(self.contexts), self.sizes()))
        common = rng.standard_normal(self.d)
        own = common + self.spread * rng.standard_normal((self.contexts, self.d))
        constant = self.spread * rng.standard_normal(self.contexts)
        scale, mean = np.ones(self.d), np.zeros(self.d)
        if self.raw:
            scale = 10.0 ** rng.uniform(-0.5, 0.5, self.d)
            mean = 2.0 * scale * rng.standard_normal(self.d)
        X, z = np.empty((self.n, self.d)), np.empty(self.n)
        for first in range(0, self.n, _BLOCK):
            block = slice(first, min(first + _BLOCK, self.n))
            part = rng.standard_normal((block.stop - first, self.d))
            if self.correlation:
                shared = rng.standard_normal((len(part), 1))
                part = np.sqrt(1.0 - self.correlation) * part + np.sqrt(self.correlation) * shared
            z[block] = np.einsum("nd,nd->n", part, own[contexts[block]]) + constant[contexts[block]]
            X[block] = part * scale + mean
        z *= self.signal / z.std()
        return X, (rng.random(self.n) < 1.0 / (1.0 + np.exp(-z))).astype(int), contexts


FAMILY = (
    Shape("small", 20_000, 100, 8),
    Shape("table", 50_000, 20, 10, correlation=0.3, raw=True),
    Shape("separable", 200_000, 20, 50, signal=7.0),
    Shape("separable-far", 500_000, 50, 100, signal=7.0, spread=1.0),
    Shape("near", 500_000, 50, 100, spread=0.1),
    Shape("unequal", 2_000_000, 10, 2_000, skew=1.0),
    Shape("wide-far", 100_000, 200, 5, spread=1.0, skew=2.0, correlation=0.3),
    Shape("noise", 300_000, 30, 20, signal=0.2),
)
"""The shapes of which a whole fit is timed."""
