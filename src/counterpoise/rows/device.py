"""Rows on a GPU, or anywhere else that torch computes: only sums come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise ImportError("rows on a device need torch. Run: pip install 'counterpoise[torch]'") from error

from counterpoise.exceptions import InvalidInputError
from counterpoise.linalg import solve_stack
from counterpoise.losses import Logistic, Loss, Multinomial, Poisson, Squared
from counterpoise.rows._base import Codes
from counterpoise.rows.elsewhere import AllContexts
from counterpoise.rows.layouts import Coefficients

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
        target: Any,
        weight: Any,
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
        target, weight = (torch.as_tensor(rows, dtype=torch.float64, device=X.device) for rows in (target, weight))
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

    at_hand = False

    @cached_property
    def coefficients(self) -> Coefficients:
        """The shape of theta."""
        return Coefficients(self.loss.n_outputs, int(self.X.shape[2]), self.fit_intercept)

    def forms_hessian(self, alpha: float) -> bool:
        """A square matrix is formed whatever its size."""
        return True

    @property
    def pointwise(self) -> Any:
        """The loss, in tensors."""
        return _POINTWISE[type(self.loss)]

    @cached_property
    def reach(self) -> Array:
        """The largest absolute value of each column."""
        return _host(torch.maximum(self.X.amax(dim=(0, 1)), -self.X.amin(dim=(0, 1))))

    @cached_property
    def typical(self) -> float:
        """A constant prediction that makes sense."""
        means = _host(self._total((self.weight * self.target).sum(1)))
        return self.loss.typical(means, np.ones(len(means)))

    @cached_property
    def lowest(self) -> Array:
        """Each context's mean lowest loss."""
        floor = self.pointwise.lowest(self.target.reshape(-1)).reshape(self.weight.shape)
        return _host(self._total((self.weight * floor).sum(1)))

    def above_lowest(self, constant: float) -> float:
        """Return how far the mean loss of a constant prediction is above the lowest, on average over contexts."""
        target = self.target.reshape(-1)
        z = torch.full((len(target), self.loss.n_outputs), constant, dtype=torch.float64, device=target.device)
        value, lowest = self.pointwise.value(target, z), self.pointwise.lowest(target)
        above = value - lowest + 1e-3 * torch.maximum(value.abs(), lowest.abs())
        return float((self.weight.reshape(-1) * above).sum()) / self.n_contexts

    def at(self, theta: Array, expecting: Array | None = None) -> TorchSums:
        """Return sums at one theta, or at one for each context."""
        return TorchSums(self, np.asarray(theta, dtype=np.float64))

    def finish(self) -> None:
        """Nothing was kept."""

    def parts(self) -> list[tuple[Codes, Callable[[], AllContexts]]]:
        """Return all contexts as one part: they share the passes."""
        return [(np.arange(self.n_contexts), lambda: AllContexts(self, np.ones(self.n_contexts, dtype=bool)))]

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

    def zeros(self, *shape: int) -> Tensor:
        """Return zeros for each context."""
        return torch.zeros(self.n_contexts, *shape, dtype=torch.float64, device=self.X.device)

    def _total(self, tiles: Tensor) -> Tensor:
        return self.zeros().index_add_(0, self.owner, tiles)

    def pieces(self, copies: int) -> Iterator[slice]:
        """Yield tiles in pieces of which a few copies in double precision fit the memory set aside."""
        step = max(1, _BLOCK_BYTES // (8 * self.coefficients.width * self.X.shape[1] * copies))
        for first in range(0, len(self.X), step):
            yield slice(first, min(first + step, len(self.X)))


@dataclass(frozen=True, eq=False)
class TorchSums:
    """Sums over rows on a device, by one pass for the gradients and one for each Hessian."""

    rows: TorchRows
    theta: Array
    cut: float = 0.0

    @property
    def _loss(self) -> Any:
        """The loss, or what is left of it without what is nearly lost."""
        return _Truncated(self.rows.pointwise, self.cut) if self.cut > 0.0 else self.rows.pointwise

    @cached_property
    def _at(self) -> Tensor:
        shape = self.rows.coefficients
        matrix = self.theta.reshape(*self.theta.shape[:-1], shape.n_outputs, shape.width)
        return torch.tensor(matrix, device=self.rows.X.device)

    @cached_property
    def _sums(self) -> tuple[Array, Array, Array]:
        rows, shape, loss = self.rows, self.rows.coefficients, self._loss
        values, sizes = rows.zeros(), rows.zeros()
        gradients = rows.zeros(shape.n_outputs, shape.width)
        for tiles in rows.pieces(2):
            X, weight, owner = rows.X[tiles].double(), rows.weight[tiles], rows.owner[tiles]
            target, z = rows.target[tiles].reshape(-1), self._predictions(X, owner)
            slopes = loss.gradient(target, z)
            values.index_add_(0, owner, (weight * loss.value(target, z).reshape(weight.shape)).sum(1))
            sizes.index_add_(0, owner, (weight * slopes.abs().amax(1).reshape(weight.shape)).sum(1))
            pulling = weight[:, None, :] * slopes.reshape(*weight.shape, -1).transpose(1, 2)
            gradients[:, :, : shape.n_features].index_add_(0, owner, pulling @ X)
            if shape.fit_intercept:
                gradients[:, :, -1].index_add_(0, owner, pulling.sum(2))
        return _host(values), _host(gradients).reshape(rows.n_contexts, -1), _host(sizes)

    @property
    def values(self) -> Array:
        return self._sums[0]

    @property
    def gradients(self) -> Array:
        return self._sums[1]

    @property
    def sizes(self) -> Array:
        return self._sums[2]

    def hessian(self, weights: Array) -> Array:
        """Return the Hessian of a mixture of contexts at one theta."""
        rows, shape = self.rows, self.rows.coefficients
        per_context = torch.tensor(weights, dtype=torch.float64, device=rows.X.device)
        outputs, width = shape.n_outputs, shape.width
        out = torch.zeros(outputs, width, outputs, width, dtype=torch.float64, device=rows.X.device)
        for tiles in rows.pieces(3):
            X, owner = rows.X[tiles].double(), rows.owner[tiles]
            bend = self._bend(X, tiles) * per_context[owner].repeat_interleave(X.shape[1])[:, None, None]
            flat = self._bordered(X).reshape(-1, width)
            for k, m in self._pairs():
                block = flat.T @ (flat * bend[:, k, m, None])
                out[k, :, m, :] += block
                if m < k:
                    out[m, :, k, :] += block
        return _host(out).reshape(outputs * width, outputs * width)

    @property
    def hessians(self) -> Array:
        """The Hessian of every context's mean loss."""
        return self._grams(self._bend)

    @property
    def moments(self) -> Array:
        """The mean product of every context's row gradients."""
        return self._grams(self._squares)

    def _grams(self, of_rows: Callable[[Tensor, slice], Tensor]) -> Array:
        """Return every context's ``sum_i A_i (x) [x_i 1] [x_i 1]'``, ``A_i`` a matrix of each row of some tiles."""
        rows, shape = self.rows, self.rows.coefficients
        outputs, width = shape.n_outputs, shape.width
        out = rows.zeros(outputs, width, outputs, width)
        # What comes out of a tile may be larger than the tile.
        for tiles in rows.pieces(3 + width // rows.X.shape[1]):
            X = rows.X[tiles].double()
            bend, bordered = of_rows(X, tiles), self._bordered(X)
            for k, m in self._pairs():
                block = bordered.transpose(1, 2) @ (bordered * bend[:, k, m].reshape(*bordered.shape[:2], 1))
                out[:, k, :, m, :].index_add_(0, rows.owner[tiles], block)
                if m < k:
                    out[:, m, :, k, :].index_add_(0, rows.owner[tiles], block)
        return _host(out).reshape(rows.n_contexts, outputs * width, outputs * width)

    def majorant(self, weights: Array) -> None:
        """Nothing is known that lies above everywhere."""

    def truncated(self, cut: float) -> TorchSums:
        """Return the sums of a loss that lies below."""
        return TorchSums(self.rows, self.theta, cut)

    def slopes(self, weights: Array | None) -> Any:
        """There are no hinged losses on a device."""
        raise NotImplementedError

    def _bend(self, X: Tensor, tiles: slice) -> Tensor:
        """Return the weighted curvature of every row of some tiles: (n, n_outputs, n_outputs)."""
        z = self._predictions(X, self.rows.owner[tiles])
        bend: Tensor = self._loss.curvature(self.rows.target[tiles].reshape(-1), z)
        return bend * self.rows.weight[tiles].reshape(-1, 1, 1)

    def _squares(self, X: Tensor, tiles: slice) -> Tensor:
        """Return the weighted products of every row's slopes: (n, n_outputs, n_outputs)."""
        z = self._predictions(X, self.rows.owner[tiles])
        slopes: Tensor = self._loss.gradient(self.rows.target[tiles].reshape(-1), z)
        return slopes[:, :, None] * slopes[:, None, :] * self.rows.weight[tiles].reshape(-1, 1, 1)

    def _pairs(self) -> Iterator[tuple[int, int]]:
        return ((k, m) for k in range(self.rows.loss.n_outputs) for m in range(k + 1))

    def _bordered(self, X: Tensor) -> Tensor:
        return torch.cat([X, X.new_ones(*X.shape[:2], 1)], dim=2) if self.rows.fit_intercept else X

    def _predictions(self, X: Tensor, owner: Tensor) -> Tensor:
        """Return predictions of the rows of some tiles, always (n, n_outputs)."""
        shape = self.rows.coefficients
        own = self._at if self._at.ndim == 2 else self._at[owner]
        z = X @ own[..., : shape.n_features].transpose(-1, -2)
        if shape.fit_intercept:
            z = z + own[..., shape.n_features].reshape(-1, 1, shape.n_outputs)
        return z.reshape(-1, shape.n_outputs)


def sent(X: Any, device: Any) -> Tensor:
    """Return features as a tensor of floats on a device, checked."""
    try:
        place = X.device if isinstance(X, Tensor) and device is None else torch.device(device)
        rows = (X.detach() if isinstance(X, Tensor) else torch.tensor(np.asarray(X))).to(place)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise InvalidInputError(f"device {device!r} cannot be used ({error!s:.200}).") from error
    if rows.ndim != 2 or rows.is_complex():
        raise InvalidInputError(
            f"X is a tensor of shape {tuple(rows.shape)} and type {rows.dtype}; pass numbers in rows."
        )
    if rows.dtype not in (torch.float32, torch.float64):
        rows = rows.float() if rows.is_floating_point() else rows.double()
    if not bool(torch.isfinite(rows).all()):
        raise InvalidInputError("X holds NaN or infinity. Impute, or drop those rows.")
    return rows


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
