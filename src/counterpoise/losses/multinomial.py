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
        others = self._against_target(target, prediction)
        top = np.maximum(_largest(others), 0.0)
        others -= top[:, None]
        # Where the target leads (top = 0) this is log1p of the others, exact however small they are.
        return top + np.log1p(_sum(np.exp(others, out=others)) + np.expm1(-top))

    def gradient(self, target: Array, prediction: Array) -> Array:
        """Return the probabilities minus the indicator of the target."""
        others = self._against_target(target, prediction)
        top = np.maximum(_largest(others), 0.0)
        others -= top[:, None]
        slopes = np.exp(others, out=others)
        slopes /= (_sum(slopes) + np.exp(-top))[:, None]
        slopes[np.arange(len(target)), target.astype(np.intp)] = -_sum(slopes)
        return slopes

    def value_and_gradient(self, target: Array, prediction: Array) -> tuple[Array, Array]:
        """Return both with one exponential of each class."""
        others = self._against_target(target, prediction)
        top = np.maximum(_largest(others), 0.0)
        others -= top[:, None]
        slopes = np.exp(others, out=others)
        total = _sum(slopes)
        value = top + np.log1p(total + np.expm1(-top))
        slopes /= (total + np.exp(-top))[:, None]
        slopes[np.arange(len(target)), target.astype(np.intp)] = -_sum(slopes)
        return value, slopes

    def curvature(self, target: Array, prediction: Array) -> Array:
        """Return ``diag(q) - q q'`` of the probabilities ``q``."""
        q = _probabilities(prediction)
        blocks = -q[:, :, None] * q[:, None, :]
        diagonal = np.arange(self.n_classes)
        # Rows sum to zero; taking the diagonal from the others keeps that exact where one probability is near 1.
        blocks[:, diagonal, diagonal] = q * (q @ (1.0 - np.eye(self.n_classes)))
        return blocks

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

    def _against_target(self, target: Array, prediction: Array) -> Array:
        """Return ``z_k - z_y``, with minus infinity at the target itself."""
        rows, classes = np.arange(len(target)), target.astype(np.intp)
        others = prediction - prediction[rows, classes][:, None]
        others[rows, classes] = -np.inf
        return others


_FEW_CLASSES = 12
"""Classes up to which a pass over each of them is faster than numpy's reduction of so short an axis."""


def _largest(values: Array) -> Array:
    """Return the largest value of each row."""
    if values.shape[1] > _FEW_CLASSES:
        return np.asarray(values.max(axis=1))
    largest = values[:, 0].copy()
    for column in values.T[1:]:
        np.maximum(largest, column, out=largest)
    return largest


def _sum(values: Array) -> Array:
    """Return the sum of each row."""
    return np.asarray(values @ np.ones(values.shape[1]))


def _probabilities(prediction: Array) -> Array:
    """Return the probability of each class."""
    q = prediction - _largest(prediction)[:, None]
    np.exp(q, out=q)
    q /= _sum(q)[:, None]
    return q
