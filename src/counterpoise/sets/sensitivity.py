"""How the least favourable distribution follows the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sensitivity:
    r"""The derivative :math:`\partial p^* / \partial s`, a diagonal and a few directions: it is never formed.

    .. math:: \operatorname{diag}(d) + \tfrac12 (L R^\top + R L^\top)

    Attributes
    ----------
    diagonal : ndarray of shape (n_contexts,)
    left, right : ndarray of shape (n_contexts, n_directions)
    """

    diagonal: Array
    left: Array
    right: Array

    @classmethod
    def none(cls, n_contexts: int) -> Sensitivity:
        """Return that of a set of one distribution."""
        return cls(np.zeros(n_contexts), np.zeros((n_contexts, 0)), np.zeros((n_contexts, 0)))

    def form(self, jacobian: Array) -> Array:
        """Return ``J' M J`` for scores whose gradients are the rows of ``J``: (n_contexts, P) -> (P, P)."""
        cross = (jacobian.T @ self.left) @ (self.right.T @ jacobian)
        return np.asarray((jacobian.T * self.diagonal) @ jacobian + 0.5 * (cross + cross.T))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        cross = self.left @ self.right.T
        return np.asarray(np.diag(self.diagonal) + 0.5 * (cross + cross.T), dtype)
