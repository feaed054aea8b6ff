"""Multinomial logistic loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from counterpoise.exceptions import InvalidInputError
from counterpoise.losses._base import Array, Loss


@dataclass(frozen=True)
class Multinomial(Loss):
    r"""Minus the log-likelihood of a class under the softmax link, one output per class.

    .. math:: \ell(y, z) = \log \sum_k e^{z_k} - z_y, \qquad y \in \{0, \dots, K-1\}

    Parameters
    ----------
    n_classes : int
    """

    n_classes: int

    name: ClassVar[str] = "multinomial"
    domain: ClassVar[str] = "class indices 0, 1, ..., n_classes - 1"

    def __post_init__(self) -> None:
        whole = isinstance(self.n_classes, (int, np.integer)) and not isinstance(self.n_classes, bool)
        if not whole or self.n_classes < 2:
            raise InvalidInputError(f"n_classes = {self.n_classes!r}; pass a whole number, 2 or more.")

    @property
    def n_outputs(self) -> int:
        """One per class."""
        return self.n_classes

    @property
    def third_order(self) -> float:
        """The third cumulant of a direction is at most its variance times its range over the classes."""
        return 1.0

    def outside(self, target: Array) -> NDArray[np.bool_]:
        """Mark targets that are not a class index."""
        return (target < 0) | (target >= self.n_classes) | (target != np.floor(target))

    def value(self, target: Array, prediction: Array) -> Array:
        """Return the loss of each row."""
        others, top = self._against_target(target, prediction)
        # Where the target leads (top = 0) this is log1p of the others, exact however small they are.
        return top + np.log1p(_sum(np.exp(others, out=others)) + np.expm1(-top))

    def gradient(self, target: Array, prediction: Array) -> Array:
        """Return the probabilities minus the indicator of the target."""
        others, top = self._against_target(target, prediction)
        slopes = np.exp(others, out=others)
        return self._slopes(target, slopes, _sum(slopes) + np.exp(-top))

    def value_and_gradient(self, target: Array, prediction: Array) -> tuple[Array, Array]:
        """Return both with one exponential of each class."""
        others, top = self._against_target(target, prediction)
        slopes = np.exp(others, out=others)
        total = _sum(slopes)
        value = top + np.log1p(total + np.expm1(-top))
        return value, self._slopes(target, slopes, total + np.exp(-top))

    def curvature(self, target: Array, prediction: Array) -> Array:
        """Return ``diag(q) - q q'`` of the probabilities ``q``."""
        q, variances = self.probabilities_and_variances(prediction)
        blocks = -q[:, :, None] * q[:, None, :]
        diagonal = np.arange(self.n_classes)
        blocks[:, diagonal, diagonal] = variances
        return blocks

    def probabilities_and_variances(self, prediction: Array) -> tuple[Array, Array]:
        """Return the probabilities ``q``, and the diagonal ``q (1 - q)`` of the curvature; off it there is ``-q q'``.

        Rows of the curvature sum to zero; taking the diagonal from the others keeps that exact where one probability is
        near 1.
        """
        q = _probabilities(prediction)
        return q, q * (q @ (1.0 - np.eye(self.n_classes)))

    def majorant(self, target: Array, prediction: Array) -> Array:
        """Return half the centring matrix, which bounds the covariance of a class indicator."""
        bound = 0.5 * (np.eye(self.n_classes) - 1.0 / self.n_classes)
        return np.broadcast_to(bound, (len(target), self.n_classes, self.n_classes))

    def truncated(self, target: Array, prediction: Array, cut: float) -> tuple[Array, Array, Array]:
        """Drop, row by row, the classes less probable than ``cut``: a sum of exponentials falls when terms leave it."""
        kept = _probabilities(prediction) > cut
        kept[np.arange(len(target)), target.astype(np.intp)] = True
        remaining = np.where(kept, prediction, -np.inf)
        # Minus infinity leaves the sums; the class of the target is always kept, so no row is empty.
        return (
            self.value(target, remaining),
            self.gradient(target, remaining),
            self.curvature(target, remaining),
        )

    def _against_target(self, target: Array, prediction: Array) -> tuple[Array, Array]:
        """Return ``z_k - z_y - top``, minus infinity at the target itself, and ``top``, the largest or 0 at the least.

        Numbers of one class lie side by side, whatever they did before: there are more rows than classes.
        """
        rows, classes = np.arange(len(target)), target.astype(np.intp)
        others = np.subtract(prediction.T, prediction[rows, classes], order="C")
        others[classes, rows] = -np.inf
        top = np.maximum(others.max(axis=0), 0.0)
        others -= top
        return others.T, top

    def _slopes(self, target: Array, exponentials: Array, total: Array) -> Array:
        """Return probabilities minus the indicator of the target, in the place of exponentials of the other classes."""
        slopes = np.divide(exponentials, total[:, None], out=exponentials)
        slopes[np.arange(len(target)), target.astype(np.intp)] = -_sum(slopes)
        return slopes


def _sum(values: Array) -> Array:
    """Return the sum of each row."""
    return np.asarray(values @ np.ones(values.shape[1]))


def _probabilities(prediction: Array) -> Array:
    """Return the probability of each class."""
    q = np.array(prediction.T, order="C").T
    q -= q.max(axis=1)[:, None]
    np.exp(q, out=q)
    q /= _sum(q)[:, None]
    return q
