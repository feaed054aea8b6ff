"""Models of the logarithm of a target, and the way back to its unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LogTarget:
    r"""The way back from predicted logarithms to the unit of the target.

    A mean does not pass through the exponential: :math:`e^{E[\log y]}` is below :math:`E[y]`. Duan's smearing factor
    makes up for it without assuming a distribution: the mean of :math:`e^{\text{residual}}` over the rows of the fit
    [1]_. A quantile passes unchanged, so its factor is 1; so is that of the Huber loss, whose predictions are central
    values.

    Attributes
    ----------
    factor : float
        What exponentials are multiplied by.

    References
    ----------
    .. [1] N. Duan (1983). Smearing estimate: a nonparametric retransformation method. JASA 78, 605-610.
    """

    factor: float = 1.0

    @classmethod
    def of(cls, task: str, model: Any, X: Any, y: Array) -> LogTarget:
        """Return the way back from what a fitted model predicts of the logarithms ``y``."""
        if task != "regression":
            return cls()
        return cls(float(np.mean(np.exp(y - model.predict(X)))))

    def back(self, predicted: Array) -> Array:
        """Return predictions in the unit of the target."""
        return np.exp(predicted) * self.factor
