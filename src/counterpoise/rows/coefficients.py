"""Theta as the coefficients of a linear model: a row an output, the intercept last, and all of it raveled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Coefficients:
    """The shape of a linear model.

    Attributes
    ----------
    n_outputs : int
        Predictions per row.
    n_features : int
    fit_intercept : bool
        Whether every output has an intercept; it is not penalised.
    """

    n_outputs: int
    n_features: int
    fit_intercept: bool

    @property
    def width(self) -> int:
        """Columns of the coefficient matrix, the intercept counted."""
        return self.n_features + self.fit_intercept

    @property
    def n_parameters(self) -> int:
        """Length of theta."""
        return self.n_outputs * self.width

    @cached_property
    def penalised(self) -> Array:
        """1 for the coefficients, 0 for the intercepts, in the order of theta."""
        return self.for_each_output(np.ones(self.n_features), 0.0)

    def for_each_output(self, columns: Array, intercept: float = 1.0) -> Array:
        """Return what is known of each column of X, and of the intercept, in the order of theta."""
        return np.tile(np.append(columns, intercept) if self.fit_intercept else columns, self.n_outputs)

    def predicting(self, value: float) -> Array:
        """Return the theta that predicts a constant, or 0 without an intercept."""
        return self.for_each_output(np.zeros(self.n_features), value)
