"""Rows on a GPU, or anywhere else that torch computes: only sums come back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterpoise.exceptions import InvalidInputError
from counterpoise.linalg import solve_stack
from counterpoise.losses import Logistic, Loss, Multinomial, Poisson, Squared
from counterpoise.oracle.summed import Sums

Array = NDArray[np.float64]

_BLOCK_BYTES = 1 << 30
"""Memory of what is made of the rows at once."""

_LARGEST_TILE = 256


@dataclass(frozen=True, eq=False)
class TorchRows:
    """Rows as tensors, in tiles of one context each; sums are taken in double precision, whatever X is stored in.

    Products with a tile are one small matrix product, and many of those are one launch. Tiles are filled up with rows
    of no weight.

    Attributes
    ----------
    X : Tensor of shape (n_tiles, tile, n_features)
    target, weight : Tensor of shape (n_tiles, tile)
        In double precision; weights add up to one in each context.
    owner : Tensor of shape (n_tiles,)
        The context of each tile.
    """

    X: Tensor
    target: Tensor
    weight: Tensor
    owner: Tensor
    n_contexts: int
    loss: Loss
    fit_intercept: bool = True

    @classmethod
    def of(
        cls,
        X: Tensor,
        target: Tensor,
        weight: Tensor,
        codes: NDArray[np.intp],
        n_contexts: int,
        loss: Loss,
        fit_intercept: bool = True,
    ) -> TorchRows:
        """Lay rows out in tiles; ``codes`` are the contexts of rows, in any order."""
        if type(loss) not in _POINTWISE:
            raise InvalidInputError(
                f"the {loss.name} loss is not fitted on a device; choose a logistic, linear or Poisson model, or pass "
                "numpy arrays."
            )
        counts = np.bincount(codes, minlength=n_contexts)
        # Small contexts get small tiles, so that filling up costs little.
        tile = int(np.clip(2 ** int(np.log2(max(counts.mean() / 4.0, 1.0))), 8, _LARGEST_TILE))
        tiles = -(-counts // tile)
        order = np.argsort(codes, kind="stable")
        starts, first = np.cumsum(counts) - counts, (np.cumsum(tiles) - tiles) * tile
        place = np.repeat(first - starts, counts) + np.arange(len(codes))
        source = np.zeros(int(tiles.sum()) * tile, dtype=np.intp)
        source[place] = order
        filled = np.zeros(len(source), dtype=bool)
        filled[place] = True
        index = torch.as_tensor(source, device=X.device)
        real = torch.as_tensor(filled, device=X.device)
        laid = X[index] * real[:, None]
        shape = (-1, tile)
        return cls(
            laid.reshape(-1, tile, X.shape[1]),
            (target[index] * real).reshape(shape),
            (weight[index] * real).reshape(shape),
            torch.as_tensor(np.repeat(np.arange(n_contexts), tiles), device=X.device),
            n_contexts,
            loss,
            fit_intercept,
        )

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return int(self.X.shape[2])

    @property
    def width(self) -> int:
        """Columns of the coefficient matrix, the intercept counted."""
        return self.n_features + self.fit_intercept

    @property
    def _pointwise(self) -> Any:
        return _POINTWISE[type(self.loss)]

    def _cut(self, cut: float) -> Any:
        """Return the loss, or what is left of it without what is nearly lost."""
        return _Truncated(self._pointwise, cut) if cut > 0.0 else self._pointwise

    @cached_property
    def reach(self) -> Array:
        """The largest absolute value of each column."""
        return _host(torch.maximum(self.X.amax(dim=(0, 1)), -self.X.amin(dim=(0, 1))))

    @property
    def typical(self) -> float:
        """A constant prediction that makes sense."""
        means = _host(self._total((self.weight * self.target).sum(1)))
        return self.loss.typical(means, np.ones(len(means)))

    def floors(self, constant: float) -> tuple[Array, float]:
        """Return each context's mean lowest loss, and how far the loss of a constant prediction is above it."""
        target = self.target.reshape(-1)
        z = torch.full((len(target), self.loss.n_outputs), constant, dtype=torch.float64, device=target.device)
        value, lowest = self._pointwise.value(target, z), self._pointwise.lowest(target)
        above = value - lowest + 1e-3 * torch.maximum(value.abs(), lowest.abs())
        typical = float((self.weight.reshape(-1) * above).sum()) / self.n_contexts
        return _host(self._total((self.weight * lowest.reshape(self.weight.shape)).sum(1))), typical

    def sums(self, theta: Array, cut: float = 0.0, expecting: Array | None = None) -> Sums:
        """Return sums at one theta, or at one for each context."""
        at, loss = self._on_device(theta), self._cut(cut)
        values, pulls = self._zeros(), self._zeros()
        gradients = self._zeros(self.loss.n_outputs, self.width)
        for tiles in self._blocks(2):
            X, weight, owner = self.X[tiles].double(), self.weight[tiles], self.owner[tiles]
            target, z = self.target[tiles].reshape(-1), self._predictions(X, at, owner)
            slopes = loss.gradient(target, z)
            values.index_add_(0, owner, (weight * loss.value(target, z).reshape(weight.shape)).sum(1))
            pulls.index_add_(0, owner, (weight * slopes.abs().amax(1).reshape(weight.shape)).sum(1))
            pulling = weight[:, None, :] * slopes.reshape(*weight.shape, -1).transpose(1, 2)
            gradients[:, :, : self.n_features].index_add_(0, owner, pulling @ X)
            if self.fit_intercept:
                gradients[:, :, -1].index_add_(0, owner, pulling.sum(2))
        return Sums(_host(values), _host(gradients).reshape(self.n_contexts, -1), _host(pulls))

    def hessian(self, theta: Array, weights: Array, cut: float = 0.0) -> Array:
        """Return the Hessian of ``sum_c weights_c risk_c`` at one theta."""
        at = self._on_device(theta)
        per_context = torch.tensor(weights, dtype=torch.float64, device=self.X.device)
        outputs, width = self.loss.n_outputs, self.width
        out = torch.zeros(outputs, width, outputs, width, dtype=torch.float64, device=self.X.device)
        for tiles in self._blocks(3):
            X, owner = self.X[tiles].double(), self.owner[tiles]
            bend = self._bend(X, at, tiles, cut) * per_context[owner].repeat_interleave(X.shape[1])[:, None, None]
            rows = self._bordered(X).reshape(-1, width)
            for k, m in self._pairs():
                block = rows.T @ (rows * bend[:, k, m, None])
                out[k, :, m, :] += block
                if m < k:
                    out[m, :, k, :] += block
        return _host(out).reshape(outputs * width, outputs * width)

    def hessians(self, theta: Array, cut: float = 0.0) -> Array:
        """Return the Hessian of every context's risk at a theta of its own."""
        at = self._on_device(theta)
        outputs, width = self.loss.n_outputs, self.width
        out = self._zeros(outputs, width, outputs, width)
        # What comes out of a tile may be larger than the tile.
        for tiles in self._blocks(3 + width // self.X.shape[1]):
            X = self.X[tiles].double()
            bend, rows = self._bend(X, at, tiles, cut), self._bordered(X)
            for k, m in self._pairs():
                block = rows.transpose(1, 2) @ (rows * bend[:, k, m].reshape(*rows.shape[:2], 1))
                out[:, k, :, m, :].index_add_(0, self.owner[tiles], block)
                if m < k:
                    out[:, m, :, k, :].index_add_(0, self.owner[tiles], block)
        return _host(out).reshape(self.n_contexts, outputs * width, outputs * width)

    def majorant(self, theta: Array, weights: Array) -> None:
        """Nothing is known that lies above everywhere."""

    def solve(self, matrices: Array, rhs: Array) -> Array:
        """Solve the systems by Cholesky on the device, and those that are too nearly singular on the host."""
        stack, right = (torch.as_tensor(values, device=self.X.device) for values in (matrices, rhs))
        diagonal = torch.diagonal(stack, dim1=1, dim2=2)
        scale = torch.where(diagonal > 0, diagonal, 1.0).rsqrt()
        scaled = stack * scale[:, :, None] * scale[:, None, :]
        torch.diagonal(scaled, dim1=1, dim2=2).add_(1e-15)
        factors, failed = torch.linalg.cholesky_ex(scaled)
        found = _host(scale * torch.cholesky_solve((scale * right)[:, :, None], factors)[:, :, 0])
        doubtful = (failed.cpu().numpy() > 0) | ~np.isfinite(found).all(axis=1)
        if doubtful.any():
            found[doubtful] = solve_stack(matrices[doubtful], rhs[doubtful])
        return found

    def _bend(self, X: Tensor, theta: Tensor, tiles: slice, cut: float) -> Tensor:
        """Return the weighted curvature of every row of some tiles: (n, n_outputs, n_outputs)."""
        z = self._predictions(X, theta, self.owner[tiles])
        bend: Tensor = self._cut(cut).curvature(self.target[tiles].reshape(-1), z)
        return bend * self.weight[tiles].reshape(-1, 1, 1)

    def _pairs(self) -> Iterator[tuple[int, int]]:
        return ((k, m) for k in range(self.loss.n_outputs) for m in range(k + 1))

    def _blocks(self, copies: int) -> Iterator[slice]:
        """Yield tiles in pieces of which a few copies in double precision fit the memory set aside."""
        step = max(1, _BLOCK_BYTES // (8 * self.width * self.X.shape[1] * copies))
        for first in range(0, len(self.X), step):
            yield slice(first, min(first + step, len(self.X)))

    def _bordered(self, X: Tensor) -> Tensor:
        return torch.cat([X, X.new_ones(*X.shape[:2], 1)], dim=2) if self.fit_intercept else X

    def _on_device(self, theta: Array) -> Tensor:
        matrix = np.asarray(theta, dtype=np.float64).reshape(*theta.shape[:-1], self.loss.n_outputs, self.width)
        return torch.tensor(matrix, device=self.X.device)

    def _predictions(self, X: Tensor, theta: Tensor, owner: Tensor) -> Tensor:
        """Return predictions of the rows of some tiles, always (n, n_outputs)."""
        d = self.n_features
        own = theta if theta.ndim == 2 else theta[owner]
        z = X @ own[..., :d].transpose(-1, -2)
        if self.fit_intercept:
            z = z + own[..., d].reshape(-1, 1, self.loss.n_outputs)
        return z.reshape(-1, self.loss.n_outputs)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(self.n_contexts, *shape, dtype=torch.float64, device=self.X.device)

    def _total(self, tiles: Tensor) -> Tensor:
        return self._zeros().index_add_(0, self.owner, tiles)


class _Logistic:
    """As :class:`counterpoise.losses.Logistic`."""

    @staticmethod
    def value(target: Tensor, z: Tensor) -> Tensor:
        return torch.nn.functional.softplus((1.0 - 2.0 * target) * z[:, 0], threshold=1e9)

    @staticmethod
    def gradient(target: Tensor, z: Tensor) -> Tensor:
        sign = 1.0 - 2.0 * target
        return (sign * torch.sigmoid(sign * z[:, 0]))[:, None]

    @staticmethod
    def curvature(target: Tensor, z: Tensor) -> Tensor:
        return (torch.sigmoid(z) * torch.sigmoid(-z))[:, :, None]

    @staticmethod
    def lowest(target: Tensor) -> Tensor:
        return torch.zeros_like(target)


class _Squared:
    """As :class:`counterpoise.losses.Squared`."""

    @staticmethod
    def value(target: Tensor, z: Tensor) -> Tensor:
        return 0.5 * (z[:, 0] - target) ** 2

    @staticmethod
    def gradient(target: Tensor, z: Tensor) -> Tensor:
        return z - target[:, None]

    @staticmethod
    def curvature(target: Tensor, z: Tensor) -> Tensor:
        return torch.ones_like(z)[:, :, None]

    lowest = _Logistic.lowest


class _Poisson:
    """As :class:`counterpoise.losses.Poisson`."""

    @staticmethod
    def value(target: Tensor, z: Tensor) -> Tensor:
        return torch.exp(z[:, 0]) - target * z[:, 0]

    @staticmethod
    def gradient(target: Tensor, z: Tensor) -> Tensor:
        return torch.exp(z) - target[:, None]

    @staticmethod
    def curvature(target: Tensor, z: Tensor) -> Tensor:
        return torch.exp(z)[:, :, None]

    @staticmethod
    def lowest(target: Tensor) -> Tensor:
        return target - torch.special.xlogy(target, target)


class _Multinomial:
    """As :class:`counterpoise.losses.Multinomial`."""

    @staticmethod
    def value(target: Tensor, z: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(z, target.long(), reduction="none")

    @staticmethod
    def gradient(target: Tensor, z: Tensor) -> Tensor:
        slopes = torch.softmax(z, dim=1)
        rows = torch.arange(len(target), device=z.device)
        slopes[rows, target.long()] -= 1.0
        return slopes

    @staticmethod
    def curvature(target: Tensor, z: Tensor) -> Tensor:
        q = torch.softmax(z, dim=1)
        return torch.diag_embed(q) - q[:, :, None] * q[:, None, :]

    lowest = _Logistic.lowest


class _Truncated:
    """As ``truncated`` of the losses: rows, or classes, in which less than a cut can be lost count as lost."""

    def __init__(self, loss: Any, cut: float) -> None:
        self.loss, self.cut = loss, cut

    def _kept(self, target: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return which rows are kept, and predictions without the classes that are not."""
        if self.loss is not _Multinomial:
            return self.loss.value(target, z) - self.loss.lowest(target) > self.cut, z
        kept = torch.softmax(z, dim=1) > self.cut
        kept[torch.arange(len(target), device=z.device), target.long()] = True
        return torch.ones_like(target, dtype=torch.bool), torch.where(kept, z, -torch.inf)

    def value(self, target: Tensor, z: Tensor) -> Tensor:
        kept, z = self._kept(target, z)
        return torch.where(kept, self.loss.value(target, z), self.loss.lowest(target))

    def gradient(self, target: Tensor, z: Tensor) -> Tensor:
        kept, z = self._kept(target, z)
        return torch.where(kept[:, None], self.loss.gradient(target, z), 0.0)

    def curvature(self, target: Tensor, z: Tensor) -> Tensor:
        kept, z = self._kept(target, z)
        return torch.where(kept[:, None, None], self.loss.curvature(target, z), 0.0)


_POINTWISE: dict[type[Loss], Any] = {
    Logistic: _Logistic,
    Squared: _Squared,
    Poisson: _Poisson,
    Multinomial: _Multinomial,
}


def _host(values: Tensor) -> Array:
    return values.detach().to("cpu", torch.float64).numpy()
