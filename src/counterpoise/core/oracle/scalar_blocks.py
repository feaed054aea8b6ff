"""One parameter and a piecewise linear loss, rows in blocks: ranges are narrowed pass by pass until no kink is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from counterpoise.core.oracle._base import Array, BasePoint, Bounds
from counterpoise.core.oracle.linear import LinearOracle
from counterpoise.core.oracle.scalar import UNBOUNDED, ScalarOracle
from counterpoise.rows import Answer, Block, Blocks, Codes
from counterpoise.rows.blocks import SHARED, of_all, of_contexts

_ENTRIES = 1 << 18
"""Numbers per pass that are brought back for every context together, where ranges are cut into parts."""


@dataclass(frozen=True, eq=False)
class _KinksAnswer(Answer):
    """Jumps of slopes at kinks, and the first and the last kink (negative), of contexts or their parts."""

    below: Array = of_contexts()
    jumps: Array = of_contexts()
    first: Array = of_contexts(np.minimum)
    last: Array = of_contexts(np.minimum)


@dataclass(frozen=True, eq=False)
class _RisksAnswer(Answer):
    """Risks and one-sided slopes at some thetas, and the kinks strictly between these."""

    risks: Array = of_contexts()
    left: Array = of_contexts()
    right: Array = of_contexts()
    first: Array = of_all(np.minimum)
    last: Array = of_all(np.minimum)


def _kinks(block: Block) -> ScalarOracle:
    return ScalarOracle.of_rows(block.rows, UNBOUNDED, 0.0)


def _parts(n_contexts: int) -> int:
    return int(np.clip(_ENTRIES // n_contexts, 4, 256))


@dataclass(frozen=True)
class _Ends:
    """Each context's slope before its first kink, all its jumps, and its first and last kink."""

    answers: ClassVar = _KinksAnswer

    def about(self, contexts: Codes) -> _Ends:
        return self

    def __call__(self, block: Block, state: Any) -> _KinksAnswer:
        rows = _kinks(block)
        first, last = np.full(rows.n_contexts, np.inf), np.full(rows.n_contexts, np.inf)
        np.minimum.at(first, rows.codes, rows.kinks)
        np.minimum.at(last, rows.codes, -rows.kinks)
        jumps = np.bincount(rows.codes, rows.jump, rows.n_contexts).astype(np.float64)
        return _KinksAnswer(block.contexts, SHARED, rows.below, jumps, first, last)


@dataclass(frozen=True)
class _OwnParts:
    """The jumps in each part of every context's own range, and the kinks between which they lie."""

    low: Array
    high: Array
    n_parts: int

    answers: ClassVar = _KinksAnswer

    def about(self, contexts: Codes) -> _OwnParts:
        return _OwnParts(self.low[contexts], self.high[contexts], self.n_parts)

    def __call__(self, block: Block, state: Any) -> _KinksAnswer:
        rows = _kinks(block)
        low, high = self.low[rows.codes], self.high[rows.codes]
        inside = (rows.kinks >= low) & (rows.kinks <= high)
        low, high, kinks = low[inside], high[inside], rows.kinks[inside]
        # Halves, since a difference may be larger than any float.
        width = np.where(high > low, 0.5 * high - 0.5 * low, 1.0)
        part = np.minimum(((0.5 * kinks - 0.5 * low) / width * self.n_parts).astype(np.intp), self.n_parts - 1)
        place = rows.codes[inside] * self.n_parts + part
        shape = (rows.n_contexts, self.n_parts)
        first, last = np.full(shape, np.inf), np.full(shape, np.inf)
        np.minimum.at(first.ravel(), place, kinks)
        np.minimum.at(last.ravel(), place, -kinks)
        jumps = np.bincount(place, rows.jump[inside], first.size).astype(np.float64).reshape(shape)
        return _KinksAnswer(block.contexts, SHARED, jumps=jumps, first=first, last=last)


@dataclass(frozen=True)
class _OwnRisks:
    """The risk of each context at a theta of its own."""

    theta: Array

    answers: ClassVar = _RisksAnswer

    def about(self, contexts: Codes) -> _OwnRisks:
        return _OwnRisks(self.theta[contexts])

    def __call__(self, block: Block, state: Any) -> Answer:
        return _RisksAnswer(block.contexts, SHARED, _kinks(block).own_risks(self.theta))


@dataclass(frozen=True)
class _Grid:
    """Risks and one-sided slopes of all contexts at some thetas, and the kinks strictly between these."""

    thetas: Array

    answers: ClassVar = _RisksAnswer

    def about(self, contexts: Codes) -> _Grid:
        return self

    def __call__(self, block: Block, state: Any) -> Answer:
        rows, thetas = _kinks(block), self.thetas
        n = len(thetas)
        # Kinks before a theta move its slope to the left, kinks at it only the one to the right.
        after = np.searchsorted(thetas, rows.kinks, "right")
        before = np.searchsorted(thetas, rows.kinks, "left")
        left = rows.below[:, None] + _through(rows, after, rows.jump, n)
        right = rows.below[:, None] + _through(rows, before, rows.jump, n)
        # From the first theta, so that what is subtracted is small once the range is.
        moved = _through(rows, before, rows.jump * (rows.kinks - thetas[0]), n)
        jumps = _through(rows, before, rows.jump, n)
        risks = rows.constant[:, None] + rows.below[:, None] * thetas + jumps * (thetas - thetas[0]) - moved
        inside = (before == after) & (before > 0) & (before < n)
        gap = before[inside] - 1
        first, last = np.full(n - 1, np.inf), np.full(n - 1, np.inf)
        np.minimum.at(first, gap, rows.kinks[inside])
        np.minimum.at(last, gap, -rows.kinks[inside])
        return _RisksAnswer(block.contexts, SHARED, risks, left, right, first, last)


def _through(rows: ScalarOracle, place: Codes, values: Array, n: int) -> Array:
    """Add values up, for each context, through each of ``n`` thetas: a row counts from its place on."""
    sums = np.bincount(rows.codes * (n + 1) + place, values, rows.n_contexts * (n + 1)).astype(np.float64)
    return np.cumsum(sums.reshape(rows.n_contexts, n + 1), axis=1)[:, :n]


@dataclass(frozen=True, eq=False)
class BlockScalarOracle:
    """Risks of a scalar, from rows in blocks; a point is a pass.

    Attributes
    ----------
    blocks : Blocks
        Of linear oracles that suit :class:`counterpoise.core.oracle.scalar.ScalarOracle`.
    n_contexts : int
    bounds : pair of ndarray
    lowest_risks : ndarray of shape (n_contexts,)
    typical_risk : float
    """

    blocks: Blocks
    n_contexts: int
    bounds: Bounds
    lowest_risks: Array
    typical_risk: float

    n_parameters = 1
    is_rigorous = True
    forms_hessian = True
    offers: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def of(cls, oracle: LinearOracle) -> BlockScalarOracle:
        """Return the risks of a linear oracle that suits, of rows in blocks."""
        bounds = oracle.bounds or UNBOUNDED
        return cls(oracle.rows.blocks, oracle.n_contexts, bounds, oracle.lowest_risks, oracle.typical_risk)

    @cached_property
    def _ends(self) -> _KinksAnswer:
        return self.blocks.ask(_Ends())

    def at(self, theta: Array) -> BlockScalarPoint:
        """Return the risks at ``theta``."""
        return BlockScalarPoint(theta, self.own_risks(np.full(self.n_contexts, float(theta[0]))))

    def start(self) -> Array:
        """Return zero, or the bound nearest to it."""
        return np.clip(np.zeros(1), *self.bounds)

    def own_risks(self, theta: Array) -> Array:
        """Return the risk of each context at a theta of its own."""
        return self.blocks.ask(_OwnRisks(theta)).risks

    def context_minima(self) -> tuple[Array, Array]:
        """Return each context's least risk and the theta that attains it; infinite where there is none."""
        below, jumps, first, last = self._ends.below, self._ends.jumps, self._ends.first, self._ends.last
        noise = 4e-15 * (np.abs(below) + jumps + float(jumps.sum()))
        low, high, slope = first.copy(), -last, below.copy()
        n_parts = _parts(self.n_contexts)
        while (low < high).any():
            answer = self.blocks.ask(_OwnParts(low, high, n_parts))
            after = slope[:, None] + np.cumsum(answer.jumps, axis=1)
            rises = (after >= -noise[:, None]) & np.isfinite(answer.first)
            # Where none does, the last part that holds a kink ends the range; there is no minimum beyond it.
            held = np.isfinite(answer.first)
            chosen = np.where(rises.any(axis=1), rises.argmax(axis=1), n_parts - 1 - held[:, ::-1].argmax(axis=1))
            c = np.arange(self.n_contexts)
            slope = np.where(chosen > 0, after[c, chosen - 1], slope)
            low, high = answer.first[c, chosen], -answer.last[c, chosen]
        # Rising from the start: as low as it may go. Falling at the end: as high. Flat: the first kink is as good.
        theta = np.where(below + jumps < -noise, np.inf, low)
        theta = np.where(np.abs(below) <= noise, first, theta)
        theta = np.where(below > noise, -np.inf, theta)
        theta = np.clip(theta, self.bounds[0][0], self.bounds[1][0])
        finite = np.isfinite(theta)
        return np.where(finite, self.own_risks(np.where(finite, theta, 0.0)), -np.inf), theta

    def around(self, falls: Callable[[Array, Array, Array], int]) -> ScalarOracle:
        """Return the problem on the range between two neighbouring kinks that holds the minimum.

        Parameters
        ----------
        falls : callable
            Told the risks, the slopes to the left and the slopes to the right at a theta, it says where the minimum
            is: 1 beyond, -1 before, 0 here.
        """
        first, last = self._ends.first, self._ends.last
        low, high = float(self.bounds[0][0]), float(self.bounds[1][0])
        low = low if np.isfinite(low) else float(first.min())
        high = high if np.isfinite(high) else max(float(-last.min()), low)
        thetas = np.unique(np.linspace(low, high, _parts(self.n_contexts)))
        while True:
            answer = self.blocks.ask(_Grid(thetas))
            risks, left, right = answer.risks, answer.left, answer.right
            a, b = _search(lambda k: falls(risks[:, k], left[:, k], right[:, k]), len(thetas))  # noqa: B023
            if a == b or not np.isfinite(answer.first[a]):
                return self._reduced(thetas[[a, b]], *(part[:, [a, b]] for part in (risks, left, right)))
            inside = np.linspace(answer.first[a], -answer.last[a], _parts(self.n_contexts))
            # Rounding must not lose the ends, nor put what is between them beyond.
            inside = np.clip(inside, answer.first[a], -answer.last[a])
            inside[[0, -1]] = answer.first[a], -answer.last[a]
            thetas = np.unique(np.concatenate([thetas[[a, b]], inside]))

    def _reduced(self, ends: Array, risks: Array, left: Array, right: Array) -> ScalarOracle:
        c = np.arange(self.n_contexts)
        below = left[:, 0]
        same = ends[0] == ends[1]
        return ScalarOracle(
            kinks=np.repeat(ends[:1] if same else ends, self.n_contexts),
            below=below,
            jump=(right - left)[:, 0] if same else (right - left).T.ravel(),
            constant=risks[:, 0] - below * ends[0],
            codes=c if same else np.tile(c, 2),
            n_contexts=self.n_contexts,
            bounds=(ends[:1], ends[1:]),
            lowest_risks=self.lowest_risks,
            typical_risk=self.typical_risk,
        )


def _search(falls: Callable[[int], int], n: int) -> tuple[int, int]:
    """Return the two neighbours that hold the minimum, or twice the place where it is."""
    low, high = -1, n
    while high - low > 1:
        middle = (low + high) // 2
        side = falls(middle)
        if side == 0:
            return middle, middle
        low, high = (middle, high) if side > 0 else (low, middle)
    if low < 0 or high >= n:
        end = 0 if low < 0 else n - 1
        return end, end
    return low, high


@dataclass(frozen=True, eq=False)
class BlockScalarPoint(BasePoint):
    """The risks of one theta."""

    theta: Array
    risks: Array


def scalar_form(oracle: LinearOracle) -> ScalarOracle | BlockScalarOracle:
    """Return the risks of a linear oracle that suits, wherever its rows are."""
    return ScalarOracle.of(oracle) if oracle.rows.at_hand else BlockScalarOracle.of(oracle)
