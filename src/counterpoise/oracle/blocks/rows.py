"""Smooth risks of rows in blocks: one pass brings risks, gradients and the Hessian that will be asked for next."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from counterpoise.linalg import solve_stack
from counterpoise.losses import Hinged, Loss
from counterpoise.oracle._base import Array
from counterpoise.oracle.batch import Batch
from counterpoise.oracle.blocks._base import Answer, Block, Blocks, Codes
from counterpoise.oracle.blocks.slopes import BlockSlopes, SmoothSlopes
from counterpoise.oracle.linear import LinearPoint
from counterpoise.oracle.summed import Sums

_FUSED_ENTRIES = 1 << 25
"""Entries of a stack of Hessians up to which it is brought along with the gradients (256 MB)."""

_PARTS = 4096
"""Parts that a range is cut into when a median is looked for."""

_REMEMBERED = 4
"""Passes whose answers are kept, for points that are visited again."""


@dataclass(frozen=True)
class _Facts:
    """The largest feature of each column, the mean target of each context, and the range of the hinges if any."""

    def about(self, contexts: Codes) -> Self:
        return self

    def __call__(self, block: Block, state: Any) -> Answer:
        oracle = block.oracle
        weighted = oracle.row_weight.reshape((-1,) + (1,) * (oracle.target.ndim - 1)) * oracle.target
        least = [-oracle.reach[: oracle.n_features]]
        if isinstance(oracle.loss, Hinged):
            hinge = oracle.loss.pieces(oracle.target)[0]
            least += [hinge.min(), -hinge.max()]
        return Answer(block.contexts, of_each=(block.sums_of_each(weighted),), least=tuple(map(np.asarray, least)))


@dataclass(frozen=True)
class _Hinges:
    """How much weight the hinges have in each part of a range, and between which numbers they lie there."""

    low: float
    high: float

    def about(self, contexts: Codes) -> Self:
        return self

    def __call__(self, block: Block, state: Any) -> Answer:
        oracle = block.oracle
        assert isinstance(oracle.loss, Hinged)
        hinge = oracle.loss.pieces(oracle.target)[0]
        inside = (hinge >= self.low) & (hinge <= self.high)
        values, weight = hinge[inside], oracle.row_weight[inside]
        # Halves of the difference, which may be larger than any float.
        place = (0.5 * values - 0.5 * self.low) / (0.5 * self.high - 0.5 * self.low)
        part = np.minimum((place * _PARTS).astype(np.intp), _PARTS - 1)
        least, most = np.full(_PARTS, np.inf), np.full(_PARTS, np.inf)
        np.minimum.at(least, part, values)
        np.minimum.at(most, part, -values)
        return Answer(block.contexts, (np.bincount(part, weight, _PARTS).astype(np.float64),), least=(least, most))


@dataclass(frozen=True)
class _Floors:
    """The lowest risks, and how far a constant prediction is above them."""

    constant: float

    def about(self, contexts: Codes) -> Self:
        return self

    def __call__(self, block: Block, state: Any) -> Answer:
        oracle = block.oracle
        above = np.array(oracle.above_lowest(self.constant))
        return Answer(block.contexts, (above,), (oracle.lowest_risks,))


@dataclass(frozen=True)
class _Drift:
    """How fast the risks of a hinged loss change in the end along a direction."""

    direction: Array

    def about(self, contexts: Codes) -> Self:
        return self

    def __call__(self, block: Block, state: Any) -> Answer:
        return Answer(block.contexts, of_each=(block.oracle.drift(self.direction),))


@dataclass(frozen=True)
class _AtOne:
    """Sums at one theta; with ``weights`` the Hessian of the mixture too."""

    theta: Array
    weights: Array | None
    cut: float

    def about(self, contexts: Codes) -> _AtOne:
        return self if self.weights is None else replace(self, weights=self.weights[contexts])

    def __call__(self, block: Block, state: Any) -> Answer:
        oracle = block.oracle
        point = oracle.at(self.theta)
        value, slopes, bend = _pointwise(oracle.loss, oracle.target, point.predictions, self.cut, self.weights is None)
        weight = oracle.row_weight
        slopes = slopes.reshape(len(weight), -1)
        of_each = (
            block.sums_of_each(weight * value),
            oracle.context_products(weight[:, None] * slopes),
            block.sums_of_each(weight * np.abs(slopes).max(axis=1)),
        )
        if bend is None or self.weights is None:
            return Answer(block.contexts, of_each=of_each)
        return Answer(block.contexts, (_mixture_gram(point, bend, self.weights),), of_each)


@dataclass(frozen=True)
class _Bend:
    """The weighted Gram matrix of the curvature, or of one that lies above it everywhere."""

    theta: Array
    weights: Array
    cut: float
    above: bool = False

    def about(self, contexts: Codes) -> _Bend:
        return replace(self, weights=self.weights[contexts])

    def __call__(self, block: Block, state: Any) -> Answer:
        oracle = block.oracle
        point = oracle.at(self.theta)
        if self.above:
            bend = oracle.loss.majorant(oracle.target, point.predictions)
            assert bend is not None
        elif self.cut > 0.0:
            bend = oracle.loss.truncated(oracle.target, point.predictions, self.cut)[2]
        else:
            bend = oracle.loss.curvature(oracle.target, point.predictions)
        return Answer(block.contexts, (_mixture_gram(point, bend, self.weights),))


@dataclass(frozen=True)
class _AtEach:
    """Sums with a theta of its own for every context; or the Hessians, or both."""

    theta: Array
    cut: float
    sums: bool = True
    hessians: bool = False

    def about(self, contexts: Codes) -> _AtEach:
        return replace(self, theta=self.theta[contexts])

    def __call__(self, block: Block, state: Any) -> Answer:
        n, size = self.theta.shape
        out = [np.zeros(n), np.zeros((n, size)), np.zeros(n)] if self.sums else []
        if self.hessians:
            out.append(np.zeros((n, size, size)))
        for batch, owner in block.tiles.batches(self.theta):
            for whole, part in zip(out, self._parts(batch), strict=True):
                # A context may own several tiles.
                np.add.at(whole, owner, part)
        return Answer(block.contexts, of_each=tuple(out))

    def _parts(self, batch: Batch) -> list[Array]:
        value, slopes, bend = _pointwise(batch.loss, batch.target, batch.predictions, self.cut, not self.hessians)
        weight, parts = batch.weight, []
        if self.sums:
            slopes = slopes.reshape(len(weight), -1)
            parts += [batch.total(weight * value), batch.transpose_product(weight[:, None] * slopes)]
            parts += [batch.total(weight * np.abs(slopes).max(axis=1))]
        if bend is not None:
            parts += [batch.gram(bend * weight.reshape((-1,) + (1,) * (bend.ndim - 1)))]
        return parts


def _pointwise(
    loss: Loss, target: Array, predictions: Array, cut: float, without_bend: bool
) -> tuple[Array, Array, Array | None]:
    """Return value, slope and curvature of every row, of the loss or of what is left of it beyond a cut."""
    if cut > 0.0:
        value, slopes, bend = loss.truncated(target, predictions, cut)
        return value, slopes, None if without_bend else bend
    bent = None if without_bend else loss.curvature(target, predictions)
    return loss.value(target, predictions), loss.gradient(target, predictions), bent


def _mixture_gram(point: LinearPoint, bend: Array, weights: Array) -> Array:
    return point.gram(bend * point.oracle.weights(weights).reshape((-1,) + (1,) * (bend.ndim - 1)))


@dataclass(frozen=True, eq=False)
class BlockRows:
    """Rows in blocks, as :class:`counterpoise.oracle.summed.SummedOracle` wants them.

    Attributes
    ----------
    blocks : Blocks
    loss : Loss
    n_contexts, n_features : int
    fit_intercept : bool
    """

    blocks: Blocks
    loss: Loss
    n_contexts: int
    n_features: int
    fit_intercept: bool = True
    _known: dict[Any, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def _facts(self) -> Answer:
        return self.blocks.ask(_Facts())

    @property
    def reach(self) -> Array:
        """The largest absolute value of each column."""
        return -self._facts.least[0]

    @property
    def typical(self) -> float:
        """A constant prediction that makes sense, every context with the same weight."""
        if isinstance(self.loss, Hinged):
            return self._median_hinge()
        means = self._facts.of_each[0]
        return self.loss.typical(means, np.ones(len(means)))

    def _median_hinge(self) -> float:
        """Return the median hinge, found by narrowing the range it lies in."""
        below, low, high = 0.0, float(self._facts.least[1]), -float(self._facts.least[2])
        while low < high:
            answer = self.blocks.ask(_Hinges(low, high))
            total = below + np.cumsum(answer.sums[0])
            k = int(np.searchsorted(total, (0.5 - 1e-12) * self.n_contexts))
            k = min(k, len(total) - 1)
            below = float(total[k - 1]) if k else below
            low, high = float(answer.least[0][k]), -float(answer.least[1][k])
        return low

    def floors(self, constant: float) -> tuple[Array, float]:
        """Return each context's mean lowest loss, and how far the loss of a constant prediction is above it."""
        answer = self.blocks.ask(_Floors(constant))
        return answer.of_each[0], float(answer.sums[0]) / self.n_contexts

    def sums(self, theta: Array, cut: float = 0.0, expecting: Array | None = None) -> Sums:
        """Return sums at one theta, or at one for each context."""
        key = ("sums", cut, theta.tobytes())
        if key in self._known:
            return self._known[key]
        if theta.ndim == 2:
            fused = theta.size * theta.shape[1] <= _FUSED_ENTRIES
            answer = self.blocks.ask(_AtEach(theta, cut, hessians=fused))
            if fused:
                self._remember(("hessians", cut, theta.tobytes()), answer.of_each[3])
        else:
            answer = self.blocks.ask(_AtOne(theta, expecting, cut))
            if expecting is not None:
                self._remember(("hessian", cut, theta.tobytes(), expecting.tobytes()), answer.sums[0])
        values, gradients, pulls = answer.of_each[:3]
        return self._remember(key, Sums(values, gradients, pulls))

    def hessian(self, theta: Array, weights: Array, cut: float = 0.0) -> Array:
        """Return the Hessian of ``sum_c weights_c risk_c`` at one theta."""
        key = ("hessian", cut, theta.tobytes(), weights.tobytes())
        if key not in self._known:
            self._remember(key, self.blocks.ask(_Bend(theta, weights, cut)).sums[0])
        return np.array(self._known[key])

    def hessians(self, theta: Array, cut: float = 0.0) -> Array:
        """Return the Hessian of every context's risk at a theta of its own."""
        key = ("hessians", cut, theta.tobytes())
        if key not in self._known:
            return self.blocks.ask(_AtEach(theta, cut, sums=False, hessians=True)).of_each[0]
        # Large, and not asked for again.
        return self._known.pop(key)

    def majorant(self, theta: Array, weights: Array) -> Array | None:
        """Return a matrix that lies above the Hessian of ``sum_c weights_c risk_c`` wherever theta is."""
        if self.loss.majorant(np.zeros(0), np.zeros(0)) is None:
            return None
        return self.blocks.ask(_Bend(theta, weights, 0.0, above=True)).sums[0]

    def slopes(self, theta: Array, weights: Array) -> tuple[BlockSlopes, Array]:
        """Return the slopes of a mixture at one theta, and the Gram matrix of how readily they move."""
        slopes = BlockSlopes(self.blocks, SmoothSlopes(theta, weights))
        return slopes, slopes.gram

    def drift(self, direction: Array) -> Array:
        """Return how fast each risk changes in the end along a direction."""
        return self.blocks.ask(_Drift(direction)).of_each[0]

    def solve(self, matrices: Array, rhs: Array) -> Array:
        """Solve many small systems."""
        return solve_stack(matrices, rhs)

    def _remember(self, key: Any, value: Any) -> Any:
        """Keep an answer in place of the oldest of its kind."""
        kind = [one for one in self._known if one[0] == key[0]]
        if len(kind) >= (1 if key[0] == "hessians" else _REMEMBERED):
            del self._known[kind[0]]
        self._known[key] = value
        return value
