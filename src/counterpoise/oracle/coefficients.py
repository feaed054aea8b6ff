"""Theta as the coefficients of a linear model: a row an output, the intercept last, and all of it raveled."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from counterpoise.losses import Loss
from counterpoise.oracle._base import Array


class Coefficients:
    """What the loss, the features and the intercept say of theta."""

    if TYPE_CHECKING:

        @property
        def loss(self) -> Loss:
            """Of which there are as many rows as it has outputs."""

        @property
        def fit_intercept(self) -> bool:
            """Whether there is a column of intercepts."""

        @property
        def n_features(self) -> int:
            """Columns of X."""

    @property
    def width(self) -> int:
        """Columns of the coefficient matrix, the intercept counted."""
        return self.n_features + self.fit_intercept

    @property
    def n_parameters(self) -> int:
        """Length of theta."""
        return self.loss.n_outputs * self.width

    @cached_property
    def penalised(self) -> Array:
        """1 for the coefficients, 0 for the intercepts."""
        mask = np.ones((self.loss.n_outputs, self.width))
        if self.fit_intercept:
            mask[:, -1] = 0.0
        return mask.ravel()

    def for_each_output(self, columns: Array) -> Array:
        """Return what is known of each column of X, and 1 for the intercept, in the order of theta."""
        return np.tile(np.append(columns, 1.0) if self.fit_intercept else columns, self.loss.n_outputs)

    def predicting(self, value: float) -> Array:
        """Return the theta that predicts a constant, or 0 without an intercept."""
        theta = np.zeros((self.loss.n_outputs, self.width))
        if self.fit_intercept:
            theta[:, -1] = value
        return theta.ravel()
