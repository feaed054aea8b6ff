"""Rows on a GPU, or anywhere else that torch computes: only sums come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise ImportError("rows on a device need torch. Run: pip install 'counterpoise[torch]'") from error

from counterpoise.exceptions import InvalidInputError
from counterpoise.linalg import is_definite
from counterpoise.losses import Loss
from counterpoise.rows._base import Array, Codes
from counterpoise.rows.blocks import Block, BlocksInMemory
from counterpoise.rows.device_folds import TorchFolds
from counterpoise.rows.device_losses import TensorMath, Truncated, in_tensors
from counterpoise.rows.device_stack import Rounding, TorchStack, host
from counterpoise.rows.elsewhere import AllContexts
from counterpoise.rows.layouts import Coefficients
from counterpoise.rows.memory import MemoryRows
from counterpoise.rows.slopes import RowSlopes

_BLOCK_BYTES = 1 << 30
"""Memory of what is made of the rows at once."""

_KEPT_BYTES = 1 << 31
"""Memory of the Hessians of all contexts up to which they are kept where they were asked for."""

_LONGEST_TILE = 4096
_SHORTEST_TILE = 8

_SPREAD = 1024
"""Tiles that keep a device busy."""

_WIDENED_BYTES, _WIDENED_BYTES_ON_GPU = 1 << 22, 1 << 25
"""Memory of rows in double precision that are made of those in single precision at once: less than a cache holds."""

_QUICK = 1 << 22
"""Entries of X in single precision from which Gram matrices are products in single precision."""

_ALIGNED = 8
"""Columns are filled up to a multiple of this, for tensor cores."""

_REMEMBERED = 4
"""Places, shared by all contexts, whose sums are remembered."""


@dataclass(frozen=True, eq=False)
class TorchTiles:
    """Features in tiles of one group of rows each, with a column of ones for the intercept; sums are in memory.

    Products with a tile are one small matrix product, and many of those are one launch. Tiles are filled up with rows
    of zeros, columns up to a width that suits the device. See :class:`counterpoise.rows.layouts.Layout`, of which this
    is one whose rows are tensors.

    Attributes
    ----------
    X : Tensor of shape (n_tiles, tile, columns)
    coefficients : Coefficients
    owner : Tensor of shape (n_tiles,)
        The group of each tile, ascending.
    n_groups : int
    is_quick : bool
        Whether X is in single precision and its Gram matrices may be products in single precision, where a bound of
        what is lost will do. All other products, and all sums over tiles, are in double precision.
    """

    X: Tensor
    coefficients: Coefficients
    owner: Tensor
    n_groups: int
    is_quick: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Tiles, and rows of each."""
        return int(self.X.shape[0]), int(self.X.shape[1])

    @property
    def _n_rows(self) -> int:
        return int(self.X.shape[0] * self.X.shape[1])

    @cached_property
    def pooled(self) -> TorchTiles:
        """The same rows as one group."""
        one = replace(self, owner=torch.zeros_like(self.owner), n_groups=1)
        vars(one)["reach"] = self.reach
        return one

    @cached_property
    def reach(self) -> Array:
        """The largest absolute entry of each column."""
        least, most = torch.aminmax(self.X.flatten(0, 1), dim=0)
        return host(torch.maximum(most, -least))

    @cached_property
    def _per_group(self) -> int:
        """Tiles of every group where all have as many, else 0."""
        tiles = torch.bincount(self.owner, minlength=self.n_groups)
        least, most = int(tiles.min()), int(tiles.max())
        return most if least == most else 0

    def pieces(self) -> Iterator[slice]:
        """Yield tiles in pieces of which a copy and Gram matrices fit the memory set aside."""
        return self._slices(_BLOCK_BYTES // (8 * self.X.shape[2] * max(self.shape[1], self.X.shape[2])))

    def _widened(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield tiles, and their features in double precision."""
        n, tile, columns = self.X.shape
        some = (_WIDENED_BYTES_ON_GPU if self.X.is_cuda else _WIDENED_BYTES) // (8 * tile * columns)
        for tiles in self._slices(n if self.X.dtype == torch.float64 else some):
            yield tiles, self.X[tiles].double()

    def _slices(self, step: int) -> Iterator[slice]:
        n, step = len(self.X), max(step, 1)
        return (slice(first, min(first + step, n)) for first in range(0, n, step))

    # --- from groups to rows, and back -------------------------------------------------------------------------------

    def there(self, values: NDArray[Any]) -> Tensor:
        """Return an array as a tensor beside the rows."""
        return torch.tensor(values, device=self.X.device)

    def each(self, values: NDArray[Any]) -> Tensor:
        """Repeat each group's values for its rows: (B, ...) -> (n, ...)."""
        found = self.there(values)[self.owner]
        return found[:, None].expand(-1, self.shape[1], *found.shape[1:]).reshape(-1, *found.shape[1:])

    def summed(self, tiles: Tensor) -> Tensor:
        """Sum what tiles have in double precision within each group: (n_tiles, ...) -> (B, ...)."""
        if self.n_groups == 1:
            return tiles.sum(0, keepdim=True)
        if self._per_group:
            return tiles.reshape(self.n_groups, self._per_group, *tiles.shape[1:]).sum(1)
        return self._zeros(*tiles.shape[1:]).index_add_(0, self.owner, tiles)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(self.n_groups, *shape, dtype=torch.float64, device=self.X.device)

    def total(self, rows: Tensor) -> Array:
        """Sum rows within each group: (n, ...) -> (B, ...)."""
        return host(self.summed(rows.reshape(*self.shape, *rows.shape[1:]).sum(1)))

    def least(self, rows: Tensor) -> Array:
        """Return the smallest entry of each group: (n,) -> (B,)."""
        tiles = rows.reshape(self.shape).amin(1)
        out = torch.full((self.n_groups,), torch.inf, dtype=tiles.dtype, device=tiles.device)
        return host(out.scatter_reduce_(0, self.owner, tiles, "amin"))

    # --- products ----------------------------------------------------------------------------------------------------

    def product(self, theta: Array) -> Tensor:
        """Return every row's ``[x 1] theta_b``: (B, P), or (1, P) for all groups -> (n, n_outputs)."""
        shape = self.coefficients
        matrix = np.zeros((len(theta), shape.n_outputs, self.X.shape[2]))
        matrix[:, :, : shape.width] = theta.reshape(len(theta), shape.n_outputs, shape.width)
        if len(theta) == 1 and not matrix[:, :, : shape.n_features].any():
            # Constant predictions need no look at the rows.
            return self.there(matrix[0, :, shape.n_features : shape.width].sum(axis=1)).repeat(self._n_rows, 1)
        across = self.there(matrix).transpose(1, 2)
        if len(theta) == 1:
            return torch.cat([X.flatten(0, 1) @ across[0] for _, X in self._widened()])
        return torch.cat([torch.bmm(X, across[self.owner[tiles]]) for tiles, X in self._widened()]).flatten(0, 1)

    def gather(self, rows: Tensor) -> Array:
        """Return every group's ``sum_i rows_i (x) [x_i 1]``: (n, n_outputs) -> (B, P)."""
        across = rows.reshape(*self.shape, -1).transpose(1, 2)
        sums = torch.cat([torch.bmm(across[tiles], X) for tiles, X in self._widened()])
        found = self.summed(sums)[:, :, : self.coefficients.width]
        return host(found.reshape(self.n_groups, -1))

    def graded_gram(self, weight: Tensor) -> TorchStack:
        """Return the same of weights that span many orders of magnitude, for one output."""
        return self.gram(weight)

    def gram(self, curvature: Tensor, is_rough: bool = False) -> TorchStack:
        """Return every group's ``sum_i curvature_i (x) [x_i 1] [x_i 1]'``: (n,), or (n, K, K) -> (B, P, P).

        Rough ones of quick rows are products of rounded features; the stack knows how well.
        """
        shape, columns = self.coefficients, self.X.shape[2]
        is_rough, outputs = is_rough and self.is_quick, shape.n_outputs
        bend = curvature.reshape(*self.shape, outputs, outputs)
        out = self._zeros(outputs, columns, outputs, columns)
        for tiles in self.pieces():
            X = self.X[tiles] if is_rough else self.X[tiles].double()
            for k in range(outputs):
                for m in range(k + 1):
                    with _single_precision(self.X.is_cuda):
                        block = X.transpose(1, 2) @ (X * bend[tiles, :, k, m, None].to(X.dtype))
                    self._add(out[:, k, :, m, :], tiles, block.double())
        for k in range(outputs):
            for m in range(k):
                out[:, m, :, k, :] = out[:, k, :, m, :].transpose(1, 2)
        width = shape.width
        found = out[:, :, :width, :, :width].reshape(self.n_groups, outputs * width, outputs * width)
        if not is_rough:
            return TorchStack(found)
        sizes = float(self.reach.max()), float(curvature.max())
        rounding = Rounding.of_products(*self.shape, *sizes, is_truncated=self.X.is_cuda)
        return TorchStack(0.5 * (found + found.transpose(1, 2)), rounding)

    def _add(self, out: Tensor, tiles: slice, block: Tensor) -> None:
        if self.n_groups == 1:
            out += block.sum(0)
        elif len(block) == len(self.X) and self._per_group:
            out += self.summed(block)
        else:
            out.index_add_(0, self.owner[tiles], block)


@dataclass(frozen=True, eq=False)
class TorchRows:
    """Rows as tensors; sums are taken in double precision, whatever X is stored in.

    Attributes
    ----------
    tiles : TorchTiles
        The features, those of one context after the other.
    target : Tensor of shape (n,) or (n, target_columns)
        Of the rows of all tiles, in double precision, as is
    weight : Tensor of shape (n,)
        that adds up to one in each context.
    n_rows : int
        Rows that were passed; others fill up tiles, and have no weight.
    together : ndarray of shape (n_rows,), optional
        Which rows, context by context, are held out together; each by itself when not given.
    """

    tiles: TorchTiles
    target: Tensor
    weight: Tensor
    loss: Loss
    n_rows: int
    together: NDArray[np.intp] | None = None
    _known: dict[bytes, TorchSums] = field(default_factory=dict, repr=False)

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
        is_quick: bool | None = None,
        together: NDArray[np.intp] | None = None,
    ) -> TorchRows:
        """Lay rows out in tiles; ``codes`` are the contexts of rows, in any order.

        ``is_quick`` asks for Gram matrices of products in single precision, of an X that is; by default where there
        are many. A bound is known of what that loses. Predictions, risks and gradients are always products in double
        precision.
        """
        if in_tensors(loss) is None:
            raise InvalidInputError(
                f"the {loss.name} loss is not fitted on a device; choose a loss of this library, or pass numpy arrays."
            )
        target, weight = (torch.as_tensor(rows, dtype=torch.float64, device=X.device) for rows in (target, weight))
        counts = np.bincount(codes, minlength=n_contexts)
        shape = Coefficients(loss.n_outputs, int(X.shape[1]), fit_intercept)
        tile = _tile_length(counts, shape.width)
        tiles = -(-counts // tile)
        starts, first = np.cumsum(counts) - counts, (np.cumsum(tiles) - tiles) * tile
        order = np.arange(len(codes))
        if (codes[1:] < codes[:-1]).any():
            order = np.argsort(codes, kind="stable")
        owner, place = (
            np.repeat(np.arange(n_contexts), tiles),
            np.repeat(first - starts, counts) + np.arange(len(codes)),
        )
        # The first row of its context fills a tile up, without a weight.
        source = np.repeat(order[np.minimum(starts, len(codes) - 1)][owner], tile)
        source[place] = order
        is_real = np.zeros(len(source), dtype=bool)
        is_real[place] = True
        index = torch.as_tensor(source, device=X.device)
        columns = -(-max(shape.width, 1) // _ALIGNED) * _ALIGNED
        laid = X.new_zeros(len(source), columns)
        step = max(1, _BLOCK_BYTES // (8 * columns))
        for begin in range(0, len(source), step):
            laid[begin : begin + step, : shape.n_features] = X[index[begin : begin + step]]
        if fit_intercept:
            laid[:, shape.n_features] = 1.0
        many = X.numel() >= _QUICK if is_quick is None else is_quick
        # Rounded Hessians serve the bounds of smooth losses, and how far off they are is known for one output.
        quick = bool(many) and X.dtype == torch.float32 and not loss.is_hinged and loss.n_outputs == 1
        there = torch.as_tensor(owner, device=X.device)
        held = TorchTiles(laid.reshape(-1, tile, columns), shape, there, n_contexts, quick)
        weight = weight[index] * torch.as_tensor(is_real, device=X.device)
        kept = None if together is None else together[order]
        return cls(held, target[index], weight, loss, len(codes), kept)

    at_hand = False
    knows_predictions = True
    computes_here = False
    rounding = 1e-13

    @property
    def n_contexts(self) -> int:
        """Contexts."""
        return self.tiles.n_groups

    @property
    def coefficients(self) -> Coefficients:
        """The shape of theta."""
        return self.tiles.coefficients

    def forms_hessian(self, alpha: float) -> bool:
        """A square matrix is formed whatever its size."""
        return True

    @cached_property
    def pointwise(self) -> Any:
        """The loss, in tensors."""
        return in_tensors(self.loss)

    @cached_property
    def reach(self) -> Array:
        """The largest absolute value of each column."""
        return self.tiles.reach[: self.coefficients.n_features]

    @cached_property
    def typical(self) -> float:
        """A constant prediction that makes sense."""
        if self.loss.is_hinged:
            hinge: Any = self.loss.pieces(self.target)[0]  # type: ignore[arg-type]
            return _weighted_median(hinge, self.weight)
        means = self.tiles.total(self.weight * self.target)
        return self.loss.typical(means, np.ones(len(means)))

    @cached_property
    def lowest(self) -> Array:
        """Each context's mean lowest loss."""
        floor = self.pointwise.lowest(self.target)
        return self.tiles.total(self.weight * torch.where(self.weight > 0.0, floor, 0.0))

    def above_lowest(self, constant: float) -> float:
        """Return how far the mean loss of a constant prediction is above the lowest, on average over contexts."""
        z = torch.full(
            (len(self.weight), self.loss.n_outputs), constant, dtype=torch.float64, device=self.target.device
        )
        value, lowest = self.pointwise.value(self.target, z), self.pointwise.lowest(self.target)
        known = torch.isfinite(lowest)
        above = torch.where(known, value - lowest, value.abs())
        # A perfect constant leaves nothing above the floor; rounding is then relative to the floor itself.
        size = torch.maximum(value.abs(), torch.where(known, lowest.abs(), 0.0))
        return float((self.weight * (above + 1e-3 * size)).sum()) / self.n_contexts

    @cached_property
    def whole(self) -> TorchPart:
        """All contexts side by side."""
        return TorchPart(self.tiles, self.target, self.weight, self.loss)

    @cached_property
    def blocks(self) -> BlocksInMemory:
        """The rows as one block, for questions that keep a state of every row."""
        return BlocksInMemory([Block(np.arange(self.n_contexts), self, self.whole)])  # type: ignore[arg-type]

    def drift(self, direction: Array) -> Array:
        """Return how fast each risk of a hinged loss changes in the end along a direction."""
        _, _, left, right = self.loss.pieces(self.target)  # type: ignore[arg-type]
        move = self.tiles.product(direction[None])[:, 0]
        return self.tiles.total(self.weight * torch.where(move > 0, right, left) * move)  # type: ignore[call-overload]

    def at(self, theta: Array, expecting: Array | None = None) -> TorchSums:
        """Return sums at one theta, or at one for each context; those at one are remembered for a while."""
        theta = np.asarray(theta, dtype=np.float64)
        if theta.ndim == 2 and (theta == theta[0]).all():
            theta = theta[0]
        if theta.ndim == 2:
            return TorchSums(self, theta)
        key = theta.tobytes()
        if key not in self._known:
            while len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[key] = TorchSums(self, theta)
        return self._known[key]

    def finish(self) -> None:
        """Forget what was remembered."""
        self._known.clear()

    def parts(self) -> list[tuple[Codes, Callable[[], AllContexts]]]:
        """Return all contexts as one part: they share the passes."""
        return [(np.arange(self.n_contexts), lambda: AllContexts(self, np.ones(self.n_contexts, dtype=bool)))]

    # --- some of the rows --------------------------------------------------------------------------------------------

    @cached_property
    def real(self) -> Tensor:
        """The places of rows that were passed, context by context."""
        return torch.nonzero(self.weight)[:, 0]

    @cached_property
    def codes(self) -> Tensor:
        """Their contexts."""
        return self.tiles.owner[self.real // self.tiles.shape[1]]

    @cached_property
    def ledger(self) -> MemoryRows:
        """What is known of them beside their features, in memory."""
        sizes = torch.bincount(self.codes, minlength=self.n_contexts).cpu().numpy()
        target, weight = host(self.target[self.real]), host(self.weight[self.real])
        starts = np.concatenate([[0], np.cumsum(sizes)])
        X = np.zeros((len(weight), 0))
        return MemoryRows(X, target, weight, starts, self.loss, self.coefficients.fit_intercept, self.together)

    def folded(self, n_folds: int, folds: NDArray[np.intp] | None = None) -> TorchFolds:
        """Return the rows dealt to folds: these, or along their targets."""
        return TorchFolds.dealt(self, n_folds) if folds is None else TorchFolds.given(self, folds, n_folds)

    def reweighted(self, weight: Tensor) -> TorchRows:
        """Return the rows with other weights, which add up to one in each context."""
        return replace(self, weight=weight, _known={})

    def as_one(self, shares: Array) -> TorchRows:
        """Return all rows as one context, in which each has a share."""
        weight = self.weight * self.tiles.each(shares / shares.sum())
        return replace(self, tiles=self.tiles.pooled, weight=weight, _known={})

    def thinned(self, every: int) -> TorchRows:
        """Return one row in so many of each tile."""
        tiles = replace(self.tiles, X=self.tiles.X[:, ::every].contiguous())

        def some(rows: Tensor) -> Tensor:
            return rows.reshape(*self.tiles.shape, *rows.shape[1:])[:, ::every].reshape(-1, *rows.shape[1:])

        weight = some(self.weight)
        weight = weight / tiles.each(tiles.total(weight))
        return TorchRows(tiles, some(self.target), weight, self.loss, int((weight > 0.0).sum()))


@dataclass(frozen=True, eq=False)
class TorchPart:
    """Contexts side by side, for hinged losses: a :class:`counterpoise.rows.memory.MemoryPart` with tensors as rows."""

    layout: TorchTiles
    target: Tensor
    weight: Tensor
    loss: Loss

    xp: ClassVar[Any] = TensorMath

    @property
    def pooled(self) -> TorchTiles:
        """The same rows as one group."""
        return self.layout.pooled

    def losses(self, predictions: Tensor) -> Tensor:
        """Return the loss of each row."""
        found: Tensor = in_tensors(self.loss).value(self.target, predictions[:, None])
        return found


@dataclass(frozen=True, eq=False)
class TorchSums:
    """Sums over rows on a device; predictions are kept there, and every sum is computed when first asked for."""

    rows: TorchRows
    theta: Array
    cut: float = 0.0

    @property
    def _loss(self) -> Any:
        """The loss, or what is left of it without what is nearly lost."""
        return Truncated(self.rows.pointwise, self.cut) if self.cut > 0.0 else self.rows.pointwise

    @cached_property
    def predictions(self) -> Tensor:
        """Predictions of the rows of all tiles, always (n, n_outputs)."""
        return self.rows.tiles.product(np.atleast_2d(self.theta))

    @cached_property
    def values(self) -> Array:
        """Mean losses of contexts."""
        return self.rows.tiles.total(self.rows.weight * self._loss.value(self.rows.target, self.predictions))

    @cached_property
    def gradients(self) -> Array:
        """Their gradients."""
        slopes = self._loss.gradient(self.rows.target, self.predictions)
        return self.rows.tiles.gather(self.rows.weight[:, None] * slopes)

    @cached_property
    def sizes(self) -> Array:
        """Mean absolute slopes."""
        slopes = self._loss.gradient(self.rows.target, self.predictions)
        return self.rows.tiles.total(self.rows.weight * slopes.abs().amax(1))

    @cached_property
    def _bend(self) -> Tensor:
        """The weighted curvature of every row: (n, n_outputs, n_outputs)."""
        bend: Tensor = self._loss.curvature(self.rows.target, self.predictions)
        return bend * self.rows.weight[:, None, None]

    def hessian(self, weights: Array) -> Array:
        """Return the Hessian of a mixture of contexts at one theta; of quick rows a matrix that is not above it."""
        tiles = self.rows.tiles
        if 8 * tiles.n_groups * self.theta.size**2 <= _KEPT_BYTES:
            if not tiles.is_quick:
                return self.hessians.mixed(weights)
            rough, below = self.rough_hessians.mixed(weights), self.rough_hessians.below().mixed(weights)
            # Steps and bounds by less than half of a Hessian would be poor ones.
            return below if is_definite(below - 0.5 * rough) else self.hessians.mixed(weights)
        each = tiles.each(np.asarray(weights, dtype=np.float64))
        return np.asarray(tiles.pooled.gram(self._bend * each[:, None, None]))[0]

    @cached_property
    def hessians(self) -> TorchStack:
        """The Hessian of every context's mean loss."""
        return self.rows.tiles.gram(self._bend)

    @cached_property
    def rough_hessians(self) -> TorchStack:
        """The same, of products as quick as the rows allow; the stack knows how far off it may be."""
        return self.rows.tiles.gram(self._bend, is_rough=True) if self.rows.tiles.is_quick else self.hessians

    @property
    def moments(self) -> TorchStack:
        """The mean product of every context's row gradients."""
        slopes = self._loss.gradient(self.rows.target, self.predictions)
        squares = slopes[:, :, None] * slopes[:, None, :] * self.rows.weight[:, None, None]
        return self.rows.tiles.gram(squares)

    def majorant(self, weights: Array) -> None:
        """Nothing is known that lies above everywhere."""

    def truncated(self, cut: float) -> TorchSums:
        """Return the sums of a loss that lies below."""
        rest = TorchSums(self.rows, self.theta, cut)
        vars(rest)["predictions"] = self.predictions
        return rest

    def moved_each(self, other: TorchSums) -> Array:
        """Return how far the predictions of any row of a context are from those elsewhere; of several, their range."""
        change = self.predictions - other.predictions
        far = change.abs()[:, 0] if change.shape[1] == 1 else change.amax(1) - change.amin(1)
        return -self.rows.tiles.least(-far)

    def moved(self, other: TorchSums) -> float:
        """Return the same of any row at all."""
        return float(self.moved_each(other).max())

    def slopes(self, weights: Array | None) -> RowSlopes:
        """Return the slopes of a hinged loss, of a mixture of contexts or of every context."""
        part, tiles, weight = self.rows.whole, self.rows.tiles, self.rows.weight
        layout: Any = tiles if weights is None else tiles.pooled
        mixed: Any = weight if weights is None else weight * tiles.each(weights)
        bend, v = (
            self._loss.curvature(self.rows.target, self.predictions),
            self._loss.gradient(self.rows.target, self.predictions),
        )
        rows: Any = (mixed, self.predictions[:, 0], v[:, 0], bend[:, 0, 0], torch.ones_like(weight))
        return RowSlopes.inside(part, layout, *rows)


def _weighted_median(values: Tensor, weight: Tensor) -> float:
    """As :func:`counterpoise.losses._base.weighted_median`."""
    ordered, order = torch.sort(values)
    total = torch.cumsum(weight[order], 0)
    place = int(torch.searchsorted(total, (0.5 - 1e-12) * total[-1]))
    return float(ordered[min(place, len(ordered) - 1)])


def _tile_length(counts: NDArray[np.intp], width: int) -> int:
    """Return how long tiles are: so long that they are few, so short that filling them up costs little."""
    n = int(counts.sum())
    longest = int(np.clip(n // _SPREAD, _SHORTEST_TILE, _LONGEST_TILE))
    choices = np.unique(8 * np.ceil(np.geomspace(_SHORTEST_TILE, longest, 64) / 8.0).astype(np.intp))
    # A tile's Gram matrix is as many rows to write and to add up as it has columns.
    costs = [int((-(-counts // tile)).sum()) * (int(tile) + width) for tile in choices]
    return int(choices[int(np.argmin(costs))])


@contextmanager
def _single_precision(is_cuda: bool) -> Iterator[None]:
    """Let products in single precision truncate their factors to TF32 on a GPU, and round them to no less elsewhere."""
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if is_cuda else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    backends: Any = torch.backends
    matmul = backends.cuda.matmul if is_cuda else backends.mkldnn.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32" if is_cuda else "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision = before


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
