"""Fits whose certificates are verified by the tests' own evaluation, which shares nothing with the library."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from timing import Result, proven

# The evaluation is the tests', which are no package of the environment.
sys.path.append(str(Path(__file__).parents[1]))
from tests.referees.certificates import Judged, check_certificate


@dataclass
class Fits:
    """Models fitted to the same rows.

    Attributes
    ----------
    kind : str
        The loss, as the evaluation calls it.
    X, y, contexts : arrays
        What the models are fitted to.
    parameters : dict
        Of the loss.
    """

    kind: str
    X: Any
    y: np.ndarray
    contexts: np.ndarray
    parameters: dict[str, float] = field(default_factory=dict)
    models: dict[bytes, Any] = field(default_factory=dict)

    def keep(self, model: Any) -> Any:
        """Remember a model, once if it is fitted twice with the same result."""
        self.models[np.append(model.coef_, model.certificate_.lower).tobytes()] = model
        return model

    def verified(self, work: str) -> Result:
        """Return a line about the largest gap, which is missed if a gap or the evaluation of a certificate is bad."""
        gap = max(model.certificate_.relative_gap for model in self.models.values())
        complaints = {complaint for model in self.models.values() if (complaint := self.complaint(model))}
        return proven(work, gap, min(model.tol for model in self.models.values()), "; ".join(sorted(complaints)))

    def complaint(self, model: Any) -> str:
        """Return what is wrong with a certificate, in words; nothing if it holds."""
        certified = model.certificate_.relative_gap <= model.tol
        try:
            check_certificate(self._rows, model, certified, seed=0, others=self._rivals(model))
        except AssertionError as error:
            return str(error)
        return ""

    @cached_property
    def _rows(self) -> Judged:
        codes = np.unique(self.contexts, return_inverse=True)[1]
        y = np.unique(self.y, return_inverse=True)[1] if self.kind in ("logistic", "multinomial") else self.y
        return Judged(self.kind, self.X, y, codes, np.ones(len(y)), self.parameters)

    def _rivals(self, model: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return where scikit-learn comes to: in the least favourable mix, the largest and the smallest context."""
        if self.kind != "logistic" or sparse.issparse(self.X):
            return []
        codes, counts = self._rows.codes, np.bincount(self._rows.codes)
        alone = [(np.arange(len(counts)) == c).astype(float) for c in (np.argmax(counts), np.argmin(counts))]
        found = []
        for mix in (model.context_weights_, *alone):
            rows = np.flatnonzero(mix[codes] > 0.0)
            if np.unique(self.y[rows]).size < 2:
                continue
            weight = (mix / counts)[codes[rows]]
            plain = LogisticRegression(solver="newton-cholesky", tol=1e-8, C=1.0 / model.alpha, max_iter=200)
            plain.fit(self.X[rows], self.y[rows], sample_weight=weight)
            found.append((plain.coef_, plain.intercept_))
        return found
