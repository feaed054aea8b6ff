"""Rows in blocks as a home: facts and sums, one pass for each look; a pass brings what will be asked for next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from counterpoise.losses import Loss
from counterpoise.rows._base import Array, Codes
from counterpoise.rows.blocks import SHARED, Answer, Block, Blocks, of_all, of_contexts, of_problems
from counterpoise.rows.elsewhere import AllContexts
from counterpoise.rows.layouts import Coefficients
from counterpoise.rows.slopes import RowSlopes

_FUSED_ENTRIES = 1 << 25
"""Entries of a stack of Hessians up to which it is brought along with the gradients (256 MB)."""

MOST_ENTRIES = 1 << 24
"""Numbers in the features of rows that may be collected (128 MB)."""

_PARTS = 4096
"""Parts that a range is cut into when a median is looked for."""

_REMEMBERED = 4
"""Looks that are kept, for points that are visited again."""


@dataclass(frozen=True, eq=False)
class _FactsAnswer(Answer):
    sizes: Array = of_contexts()
    reach: Array = of_all(np.minimum)
    means: Array = of_contexts()
    lowest: Array = of_contexts()
    first_hinge: Array = of_all(np.minimum)
    last_hinge: Array = of_all(np.minimum)


@dataclass(frozen=True)
class _Facts:
    """Rows and mean target of each context, the largest feature of each column (negative), and the ends of hinges."""

    answers: ClassVar = _FactsAnswer

    def about(self, contexts: Codes) -> Self:
        return self

    def __call__(self, block: Block, state: Any) -> _FactsAnswer:
        rows = block.rows
        weighted = rows.weight.reshape((-1,) + (1,) * (rows.target.ndim - 1)) * rows.target
        ends: tuple[Any, Any] = (None, None)
        if rows.loss.is_hinged:
            hinge = rows.loss.pieces(rows.target)[0]
            ends = (np.asarray(hinge.min()), np.asarray(-hinge.max()))
        means = rows.whole.layout.total(weighted)
        sizes = rows.sizes.astype(np.float64)
        return _FactsAnswer(block.contexts, SHARED, sizes, -rows.reach, means, rows.lowest, *ends)


@dataclass(frozen=True, eq=False)
class _MedianAnswer(Answer):
    weight: Array = of_all()
    least: Array = of_all(np.minimum)
    most: Array = of_all(np.minimum)


@dataclass(frozen=True)
class _Median:
    """How much weight the hinges have in each part of a range, and between which numbers they lie there."""

    low: float
    high: float

    answers: ClassVar = _MedianAnswer

    def about(self, contexts: Codes) -> Self:
        return self

    def __call__(self, block: Block, state: Any) -> _MedianAnswer:
        hinge = block.rows.loss.pieces(block.rows.target)[0]
        inside = (hinge >= self.low) & (hinge <= self.high)
        values, weight = hinge[inside], block.rows.weight[inside]
        # Halves of the difference, which may be larger than any float.
        place = (0.5 * values - 0.5 * self.low) / (0.5 * self.high - 0.5 * self.low)
        part = np.minimum((place * _PARTS).astype(np.intp), _PARTS - 1)
        least, most = np.full(_PARTS, np.inf), np.full(_PARTS, np.inf)
        np.minimum.at(least, part, values)
        np.minimum.at(most, part, -values)
        counted = np.bincount(part, weight, _PARTS).astype(np.float64)
        return _MedianAnswer(block.contexts, SHARED, counted, least, most)


@dataclass(frozen=True, eq=False)
class _OneAnswer(Answer):
    number: Array = of_all()
    of_each: Array = of_contexts()


@dataclass(frozen=True)
class _Above:
    """How far a constant prediction is above the lowest risks."""

    constant: float

    answers: ClassVar = _OneAnswer

    def about(self, contexts: Codes) -> Self:
        return self

    def __call__(self, block: Block, state: Any) -> _OneAnswer:
        above = block.rows.above_lowest(self.constant) * block.rows.n_contexts
        return _OneAnswer(block.contexts, SHARED, number=np.array(above))


@dataclass(frozen=True)
class _Drift:
    """How fast the risks of a hinged loss change in the end along a direction."""

    direction: Array

    answers: ClassVar = _OneAnswer

    def about(self, contexts: Codes) -> Self:
        return self

    def __call__(self, block: Block, state: Any) -> _OneAnswer:
        return _OneAnswer(block.contexts, SHARED, of_each=block.rows.drift(self.direction))


@dataclass(frozen=True, eq=False)
class SumsAnswer(Answer):
    """What rows add up to at a theta, or at one for each context."""

    values: Array = of_contexts()
    gradients: Array = of_contexts()
    sizes: Array = of_contexts()
    hessian: Array = of_all()
    hessians: Array = of_contexts()
    moments: Array = of_contexts()


@dataclass(frozen=True)
class _SumsQuestion:
    """Sums at one theta or at one for each context, and a mixture's Hessian, or the Hessians of all contexts.

    ``above`` asks for a matrix above the Hessian instead; ``moments`` for the mean product of row gradients.
    """

    theta: Array
    cut: float = 0.0
    sums: bool = True
    weights: Array | None = None
    hessians: bool = False
    above: bool = False
    moments: bool = False

    answers: ClassVar = SumsAnswer

    def about(self, contexts: Codes) -> Self:
        own = self if self.weights is None else replace(self, weights=self.weights[contexts])
        return replace(own, theta=self.theta[contexts]) if self.theta.ndim == 2 else own

    def __call__(self, block: Block, state: Any) -> SumsAnswer:
        if self.theta.ndim == 1:
            return self._at_one(block)
        n, size = self.theta.shape
        out = {"values": np.zeros(n), "gradients": np.zeros((n, size)), "sizes": np.zeros(n)} if self.sums else {}
        for name in ("hessians", "moments"):
            if getattr(self, name):
                out[name] = np.zeros((n, size, size))
        for part, owner in block.tiles():
            found = part.at(self.theta[owner]).truncated(self.cut)
            for name, whole in out.items():
                # A context may own several tiles.
                np.add.at(whole, owner, getattr(found, name))
        return SumsAnswer(block.contexts, SHARED, **out)

    def _at_one(self, block: Block) -> SumsAnswer:
        found = block.rows.at(self.theta).truncated(self.cut)
        sums = {name: getattr(found, name) for name in ("values", "gradients", "sizes")} if self.sums else {}
        if self.weights is not None:
            sums["hessian"] = found.majorant(self.weights) if self.above else found.hessian(self.weights)
        for name in ("hessians", "moments"):
            if getattr(self, name):
                sums[name] = getattr(found, name)
        return SumsAnswer(block.contexts, SHARED, **sums)


@dataclass(frozen=True, eq=False)
class SlopesAnswer(Answer):
    """What slopes add up to, by problem."""

    pull: Array = of_problems()
    size: Array = of_problems()
    value: Array = of_problems()
    gram: Array = of_problems()

    @classmethod
    def after(
        cls, contexts: Codes, slopes: RowSlopes, moves: tuple[Array, ...], problems: Codes = SHARED
    ) -> SlopesAnswer:
        """Return what slopes add up to after some moves; at first also how readily they move."""
        for move in moves:
            slopes = slopes.moved(move)
        gram: Any = None if moves else slopes.gram
        return cls(contexts, problems, slopes.pull, slopes.size, slopes.value, gram)


@dataclass(frozen=True)
class _SmoothSlopes:
    """The slopes of a soft hinged loss: at one theta for a mixture of contexts, or at one for each of them."""

    theta: Array
    weights: Array | None
    moves: tuple[Array, ...] = ()

    answers: ClassVar = SlopesAnswer

    def about(self, contexts: Codes) -> Self:
        if self.weights is not None:
            return replace(self, weights=self.weights[contexts])
        return replace(self, theta=self.theta[contexts], moves=tuple(move[contexts] for move in self.moves))

    def __call__(self, block: Block, state: Any) -> SlopesAnswer:
        problems = block.contexts if self.weights is None else SHARED
        return SlopesAnswer.after(block.contexts, block.rows.at(self.theta).slopes(self.weights), self.moves, problems)


@dataclass(frozen=True, eq=False)
class BlockSlopes:
    """Slopes of rows in blocks: moves are made again in every pass, so that nothing is kept."""

    blocks: Blocks
    question: Any
    states: Any = None

    @cached_property
    def _answer(self) -> SlopesAnswer:
        return self.blocks.ask(self.question, self.states)

    @property
    def pull(self) -> Array:
        return self._answer.pull

    @property
    def size(self) -> Array:
        return self._answer.size

    @property
    def value(self) -> Array:
        return self._answer.value

    @property
    def gram(self) -> Array:
        """How readily rows move, known before the first move."""
        return self._answer.gram

    def moved(self, move: Array) -> BlockSlopes:
        return replace(self, question=replace(self.question, moves=(*self.question.moves, move)))


@dataclass(frozen=True, eq=False)
class BlockRows:
    """Rows in blocks.

    Attributes
    ----------
    blocks : Blocks
    loss : Loss
    n_contexts, n_features : int
    fit_intercept : bool
    most_entries : int
        Numbers in the features of rows that may be collected from all blocks.
    """

    blocks: Blocks
    loss: Loss
    n_contexts: int
    n_features: int
    fit_intercept: bool = True
    most_entries: int = MOST_ENTRIES
    _known: dict[Any, BlockSums] = field(default_factory=dict, repr=False)
    _heights: dict[float, float] = field(default_factory=dict, repr=False)

    at_hand = False
    knows_predictions = False
    computes_here = True
    rounding = 1e-13

    @property
    def coefficients(self) -> Coefficients:
        """The shape of theta."""
        return Coefficients(self.loss.n_outputs, self.n_features, self.fit_intercept)

    def forms_hessian(self, alpha: float) -> bool:
        """A square matrix is formed whatever its size."""
        return True

    @cached_property
    def _facts(self) -> _FactsAnswer:
        return self.blocks.ask(_Facts())

    @property
    def reach(self) -> Array:
        """The largest absolute value of each column."""
        return -self._facts.reach

    @property
    def sizes(self) -> Array:
        """Rows of each context."""
        return self._facts.sizes

    @property
    def lowest(self) -> Array:
        """Each context's mean lowest loss."""
        return self._facts.lowest

    @cached_property
    def typical(self) -> float:
        """A constant prediction that makes sense, every context with the same weight."""
        if self.loss.is_hinged:
            return self._median_hinge()
        return self.loss.typical(self._facts.means, np.ones(self.n_contexts))

    def _median_hinge(self) -> float:
        """Return the median hinge, found by narrowing the range it lies in."""
        below, low, high = 0.0, float(self._facts.first_hinge), -float(self._facts.last_hinge)
        while low < high:
            answer = self.blocks.ask(_Median(low, high))
            total = below + np.cumsum(answer.weight)
            k = min(int(np.searchsorted(total, (0.5 - 1e-12) * self.n_contexts)), len(total) - 1)
            below = float(total[k - 1]) if k else below
            low, high = float(answer.least[k]), -float(answer.most[k])
        return low

    def above_lowest(self, constant: float) -> float:
        """Return how far the mean loss of a constant prediction is above the lowest, on average over contexts."""
        if constant not in self._heights:
            self._heights[constant] = float(self.blocks.ask(_Above(constant)).number) / self.n_contexts
        return self._heights[constant]

    def drift(self, direction: Array) -> Array:
        """Return how fast each risk of a hinged loss changes in the end along a direction."""
        return self.blocks.ask(_Drift(direction)).of_each

    def finish(self) -> None:
        """Forget what was kept in case the work is cut short: it is done."""
        self.blocks.finish()

    def at(self, theta: Array, expecting: Array | None = None) -> BlockSums:
        """Return sums at one theta, or at one for each context; places that were visited lately are remembered."""
        if _key(theta) not in self._known:
            self._keep(BlockSums(self.blocks, self.loss, theta, 0.0, expecting))
        return self._known[_key(theta)]

    def remember(self, theta: Array, answer: SumsAnswer) -> None:
        """Keep sums that a pass for something else has brought along."""
        sums = BlockSums(self.blocks, self.loss, theta)
        vars(sums)["_answer"] = SumsAnswer(
            answer.contexts, answer.problems, values=answer.values, gradients=answer.gradients, sizes=answer.sizes
        )
        self._keep(sums)

    def _keep(self, sums: BlockSums) -> None:
        self._known.pop(_key(sums.theta), None)
        while len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[_key(sums.theta)] = sums

    def parts(self) -> list[tuple[Codes, Callable[[], AllContexts]]]:
        """Return all contexts as one part: they share the passes."""
        return [(np.arange(self.n_contexts), lambda: AllContexts(self, np.ones(self.n_contexts, dtype=bool)))]


def _key(theta: Array) -> tuple[Any, bytes]:
    """Return what a theta is known by; for the only context there is, one for each is not one for all."""
    return theta.shape, theta.tobytes()


@dataclass(eq=False)
class BlockSums:
    """Sums over rows in blocks, by one pass or two."""

    blocks: Blocks
    loss: Loss
    theta: Array
    cut: float = 0.0
    expecting: Array | None = None
    _hessian: dict[bytes, Array] = field(default_factory=dict, repr=False)
    _hessians: Array | None = field(default=None, repr=False)

    @cached_property
    def _answer(self) -> SumsAnswer:
        fused = self.theta.ndim == 2 and self.theta.size * self.theta.shape[1] <= _FUSED_ENTRIES
        answer = self.blocks.ask(_SumsQuestion(self.theta, self.cut, weights=self.expecting, hessians=fused))
        # Large, and asked for once.
        self._hessians = answer.hessians
        return replace(answer, hessians=None)

    @property
    def values(self) -> Array:
        return self._answer.values

    @property
    def gradients(self) -> Array:
        return self._answer.gradients

    @property
    def sizes(self) -> Array:
        return self._answer.sizes

    def hessian(self, weights: Array) -> Array:
        """Return the Hessian of a mixture of contexts at one theta; brought along with the sums if it was expected."""
        if self.expecting is not None and np.array_equal(weights, self.expecting):
            return self._answer.hessian.copy()
        key = weights.tobytes()
        if key not in self._hessian:
            question = _SumsQuestion(self.theta, self.cut, sums=False, weights=weights)
            self._hessian = {key: self.blocks.ask(question).hessian}
        return self._hessian[key].copy()

    @property
    def hessians(self) -> Array:
        """The Hessian of every context's mean loss."""
        if self._answer is not None and self._hessians is not None:
            found, self._hessians = self._hessians, None
            return found
        return self.blocks.ask(_SumsQuestion(self.theta, self.cut, sums=False, hessians=True)).hessians

    @property
    def moments(self) -> Array:
        """The mean product of every context's row gradients."""
        return self.blocks.ask(_SumsQuestion(self.theta, self.cut, sums=False, moments=True)).moments

    def majorant(self, weights: Array) -> Array | None:
        """Return a matrix that lies above the Hessian of a mixture wherever theta is; None if none."""
        if self.loss.majorant(np.zeros(0), np.zeros(0)) is None:
            return None
        return self.blocks.ask(_SumsQuestion(self.theta, sums=False, weights=weights, above=True)).hessian

    def truncated(self, cut: float) -> BlockSums:
        """Return the sums of a loss that lies below."""
        return BlockSums(self.blocks, self.loss, self.theta, cut, self.expecting)

    def slopes(self, weights: Array | None) -> BlockSlopes:
        """Return the slopes of a soft hinged loss, of a mixture of contexts or of every context."""
        return BlockSlopes(self.blocks, _SmoothSlopes(self.theta, weights))
