"""Matrices of many contexts on a device: they are factored there, and only vectors come back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoise.linalg import Stack, pseudo_inverse, solve_stack
from counterpoise.rows._base import Array, Mask

_DOUBTFUL = 1e9
"""Size of an entry of an inverse, scaled to a unit diagonal, past which it is rounding."""


def host(values: Tensor) -> Array:
    """Return a tensor as an array of floats in memory."""
    return values.detach().to("cpu", torch.float64).numpy()


@dataclass(frozen=True)
class Rounding:
    r"""How far Gram matrices :math:`\sum_i c_i x_i x_i^\top` of rounded products may be from the exact ones.

    Features rounded to a relative :math:`u` move a form :math:`v^\top H v` by at most
    :math:`2 u \sqrt{P\, v^\top H v\; v^\top D v} + u^2 P\, v^\top D v`, with :math:`D` the diagonal of :math:`H`
    (Cauchy's inequality, twice); sums rounded to a relative :math:`s` move every entry by at most
    :math:`s \sqrt{D_{jj} D_{kk}}`, a form by :math:`s P\, v^\top D v`. So for any :math:`t > 0`

    .. math:: (1 + t) H \succeq \tilde H - \bigl((1 + 1/t)\, u^2 P + s P\bigr) D .

    Attributes
    ----------
    features, sums : float
        :math:`u` and :math:`s`.
    """

    features: float = 0.0
    sums: float = 0.0

    def bound(self, size: int) -> tuple[float, float]:
        """Return by what to divide a matrix, and how much of its diagonal to take off first, to lie below."""
        u = self.features * size**0.5
        # The best t depends on how nearly singular the matrix is; this one suits a least eigenvalue of about 1/16.
        t = 4.0 * u
        off = (u * u + 0.25 * u) + self.sums * size
        # The diagonal itself is known to that accuracy.
        return 1.0 + t, off / (1.0 - 2.0 * self.features - self.sums)


@dataclass(frozen=True, eq=False)
class TorchStack:
    """Positive semi-definite matrices on a device; see :class:`counterpoise.linalg.Stack`.

    Attributes
    ----------
    matrices : Tensor of shape (B, d, d)
        In double precision.
    rounding : Rounding, optional
        Of the products they were summed from, where these were not in double precision.
    """

    matrices: Tensor
    rounding: Rounding | None = None

    def __len__(self) -> int:
        return len(self.matrices)

    def __getitem__(self, keep: Mask) -> TorchStack:
        if keep.all():
            return self
        return replace(self, matrices=self.matrices[torch.as_tensor(keep, device=self.matrices.device)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(host(self.matrices), dtype)

    def _there(self, values: Array) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self.matrices.device)

    def plus_diagonal(self, diagonal: Array) -> TorchStack:
        return replace(self, matrices=self.matrices + torch.diag_embed(self._there(diagonal)))

    def scaled(self, factors: Array) -> TorchStack:
        return replace(self, matrices=self.matrices * self._there(factors)[:, None, None])

    def below(self) -> TorchStack:
        if self.rounding is None:
            return self
        divide, off = self.rounding.bound(self.matrices.shape[1])
        lowered = self.matrices - off * torch.diag_embed(torch.diagonal(self.matrices, dim1=1, dim2=2))
        return TorchStack(lowered / divide)

    def product(self, vectors: Array) -> Array:
        if vectors.ndim == 1:
            return host(self.matrices @ self._there(vectors))
        return host(torch.bmm(self.matrices, self._there(vectors)[:, :, None])[:, :, 0])

    @cached_property
    def _scale(self) -> Tensor:
        """Factors that scale the matrices to a unit diagonal."""
        diagonal = torch.diagonal(self.matrices, dim1=1, dim2=2)
        return torch.where(diagonal > torch.finfo(torch.float64).tiny, diagonal, 1.0).rsqrt()

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor]:
        """Cholesky factors of the scaled matrices, and which ones have none."""
        scaled = self.matrices * self._scale[:, :, None] * self._scale[:, None, :]
        torch.diagonal(scaled, dim1=1, dim2=2).add_(1e-15)
        factors, failed = torch.linalg.cholesky_ex(scaled)
        return factors, failed > 0

    def solve(self, rhs: Array) -> Array:
        """Solve the systems by Cholesky on the device, and those that are too nearly singular in memory."""
        factors, failed = self._factors
        right = self._there(rhs)
        found = self._scale * torch.cholesky_solve((self._scale * right)[:, :, None], factors)[:, :, 0]
        # What goes uphill is blown up by rounding.
        doubtful = failed | ~torch.isfinite(found).all(1) | ((found * right).sum(1) < 0.0)
        solution, again = host(found), doubtful.cpu().numpy()
        if again.any():
            solution[again] = solve_stack(np.asarray(self[again]), rhs[again])
        return solution

    def inverse(self) -> TorchStack:
        """Invert by Cholesky on the device; the spectrum of those that are nearly singular is found in memory."""
        factors, failed = self._factors
        identity = torch.eye(factors.shape[1], dtype=factors.dtype, device=factors.device)
        inverse = torch.cholesky_solve(identity.expand_as(factors), factors)
        doubtful = (failed | ~(inverse.abs().amax((1, 2)) < _DOUBTFUL)).cpu().numpy()
        inverse = inverse * self._scale[:, :, None] * self._scale[:, None, :]
        if doubtful.any():
            where = torch.as_tensor(doubtful, device=inverse.device)
            inverse[where] = self._there(pseudo_inverse(np.asarray(self[doubtful])))
        return TorchStack(inverse)

    def mixed(self, weights: Array) -> Array:
        flat = self.matrices.reshape(len(self.matrices), -1)
        return host((self._there(weights) @ flat).reshape(self.matrices.shape[1:]))

    def diagonals(self) -> Array:
        return host(torch.diagonal(self.matrices, dim1=1, dim2=2))

    def absolute_forms(self, vector: Array) -> Array:
        along = self._there(vector)
        return host(self.matrices.abs() @ along @ along)

    def followed_by_zeros(self, n: int) -> TorchStack:
        zeros = self.matrices.new_zeros(n, *self.matrices.shape[1:])
        return replace(self, matrices=torch.cat([self.matrices, zeros]))

    def traces(self, other: Stack) -> Array:
        assert isinstance(other, TorchStack)
        return host((self.matrices * other.matrices.transpose(1, 2)).sum((1, 2)))
