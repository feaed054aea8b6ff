"""Matrices of many contexts on a device: they are factored there, and only vectors come back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
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

    Features rounded to a relative :math:`u`, on the left and on the right each in its own way, move a form
    :math:`v^\top H v` by at most :math:`2 u \sqrt{P\, v^\top H v\; v^\top D v} + u^2 P\, v^\top D v`, with :math:`D`
    the diagonal of :math:`H` (Cauchy's inequality, twice); sums rounded to a relative :math:`s` move every entry by at
    most :math:`s (1 + u)^2 \sqrt{D_{jj} D_{kk}}`, a form by :math:`s (1 + u)^2 P\, v^\top D v`; and what is too small
    for single precision moves every entry by at most :math:`a`, a form by :math:`a P\, v^\top v`. So for any
    :math:`t > 0`

    .. math:: (1 + t) H \succeq \tilde H - \bigl((1 + 1/t)\, u^2 P + s (1 + u)^2 P\bigr) D - a P I .

    Attributes
    ----------
    features, sums, entries : float
        :math:`u`, :math:`s` and :math:`a`.
    """

    features: float = 0.0
    sums: float = 0.0
    entries: float = 0.0

    @classmethod
    def of_products(cls, n_tiles: int, tile: int, largest: float, steepest: float, is_truncated: bool) -> Rounding:
        """Return what is known of products in single precision that are summed in double precision over tiles.

        Parameters
        ----------
        n_tiles, tile : int
            Tiles, and rows of each.
        largest : float
            The largest absolute feature
        steepest : float
            and the largest factor :math:`c_i`.
        is_truncated : bool
            Whether factors are cut to the ten bits of TF32 before they are multiplied.
        """
        # The right factor is c_i x_i, of which c_i and then the product are rounded to the nearest.
        features = (2.0**-10 if is_truncated else 0.0) + 2.0**-22
        # Each addition may be truncated, on tensor cores. Numbers below 2^-126 may be taken for zeros.
        lost = 2.0**-124 * max(1.0, largest) ** 2 * max(1.0, steepest)
        return cls(features, (tile + 1) * 2.0**-23, n_tiles * tile * lost)

    def lowered(self, matrices: Tensor) -> Tensor:
        """Return matrices that do not lie above the exact ones: (B, P, P) -> (B, P, P)."""
        size = matrices.shape[1]
        u, s = self.features * size**0.5, self.sums * (1.0 + self.features) ** 2
        # The best t depends on how nearly singular the matrix is; this one suits a least eigenvalue of about 1/16.
        t = 4.0 * u
        share = (u * u + 0.25 * u) + s * size
        # The diagonal itself is known to that accuracy.
        diagonal = (torch.diagonal(matrices, dim1=1, dim2=2) + self.entries) / (1.0 - 2.0 * self.features - s)
        return (matrices - torch.diag_embed(share * diagonal + self.entries * size)) / (1.0 + t)


@dataclass(frozen=True, eq=False)
class TorchStack:
    """Positive semi-definite matrices on a device; see :class:`counterpoise.linalg.Stack`.

    Attributes
    ----------
    matrices : Tensor of shape (B, d, d)
        In double precision.
    rounding : Rounding, optional
        Of the products they were summed from, where these were not in double precision.
    is_lowered : bool
        Whether they were lowered by what rounding may have added, which may leave some that are not positive definite.
    """

    matrices: Tensor
    rounding: Rounding | None = None
    is_lowered: bool = False

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
        return TorchStack(self.rounding.lowered(self.matrices), is_lowered=True)

    def are_accurate(self) -> bool:
        if self.rounding is None:
            return True
        certain = TorchStack(self.rounding.lowered(self.matrices) - 0.5 * self.matrices)
        factors, failed = certain._factors
        return not bool(failed.any()) and bool(torch.isfinite(factors).all())

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
            # A lowered matrix that is not positive definite says nothing of the one that it lies below.
            inverse[where] = torch.nan if self.is_lowered else self._there(pseudo_inverse(np.asarray(self[doubtful])))
        return TorchStack(inverse)

    def mixed(self, weights: Array) -> Array:
        flat = self.matrices.reshape(len(self.matrices), -1)
        return host((self._there(weights) @ flat).reshape(self.matrices.shape[1:]))

    def diagonals(self) -> Array:
        return host(torch.diagonal(self.matrices, dim1=1, dim2=2))

    def absolute_forms(self, vector: Array, n_outputs: int = 1) -> Array:
        if n_outputs == 1:
            along = self._there(vector)
            return host(self.matrices.abs() @ along @ along)
        width = len(vector) // n_outputs
        one, blocks = self._there(vector[:width]), self.matrices.reshape(-1, n_outputs, width, n_outputs, width)
        largest = self.matrices.new_zeros(len(self.matrices))
        for k, m in combinations(range(n_outputs), 2):
            apart = blocks[:, k, :, k] + blocks[:, m, :, m] - blocks[:, k, :, m] - blocks[:, m, :, k]
            largest = torch.maximum(largest, apart.abs() @ one @ one)
        return host(largest)

    def followed_by_zeros(self, n: int) -> TorchStack:
        zeros = self.matrices.new_zeros(n, *self.matrices.shape[1:])
        return replace(self, matrices=torch.cat([self.matrices, zeros]))

    def traces(self, other: Stack) -> Array:
        assert isinstance(other, TorchStack)
        return host((self.matrices * other.matrices.transpose(1, 2)).sum((1, 2)))
