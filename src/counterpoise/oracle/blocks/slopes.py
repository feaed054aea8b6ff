"""Bounds of hinged losses from the slopes of rows in blocks: moves are made again in every pass, so nothing is kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np

from counterpoise.oracle._base import Array
from counterpoise.oracle.blocks._base import Answer, Block, Blocks, Codes, Question
from counterpoise.oracle.linear import Mixture
from counterpoise.oracle.linear_bounds import RowSlopes


class SlopesQuestion(Question, Protocol):
    """Where the slopes of rows are after some moves; without any, also how readily rows move."""

    moves: tuple[Array, ...]


@dataclass(frozen=True)
class SmoothSlopes:
    """The slopes of a soft hinged loss at one theta, for a mixture of contexts."""

    theta: Array
    weights: Array
    moves: tuple[Array, ...] = ()

    def about(self, contexts: Codes) -> Self:
        return replace(self, weights=self.weights[contexts])

    def __call__(self, block: Block, state: Any) -> Answer:
        oracle = block.oracle
        point = oracle.at(self.theta)
        bend = oracle.loss.curvature(oracle.target, point.predictions)
        slopes = RowSlopes.inside(Mixture(point, self.weights), point.slopes[:, 0], bend, np.ones(len(bend)))
        return mixture_answer(block, slopes, self.moves)


def mixture_answer(block: Block, slopes: RowSlopes, moves: tuple[Array, ...]) -> Answer:
    """Return what the slopes of a mixture add up to after some moves."""
    for move in moves:
        slopes = slopes.moved(move)
    sums = (slopes.pull, slopes.size, slopes.value)
    return Answer(block.contexts, sums if moves else (*sums, slopes.gram))


@dataclass(frozen=True, eq=False)
class BlockSlopes:
    """Slopes of a mixture of contexts, or of every context, as far as they were moved."""

    blocks: Blocks
    question: Any
    states: Any = None
    each: bool = False

    @cached_property
    def _sums(self) -> tuple[Array, ...]:
        answer = self.blocks.ask(self.question, self.states)
        return answer.of_each if self.each else answer.sums

    @property
    def pull(self) -> Array:
        return self._sums[0]

    @property
    def size(self) -> Array:
        return self._sums[1]

    @property
    def value(self) -> Array:
        return self._sums[2]

    @property
    def gram(self) -> Array:
        """How readily rows move; known before the first move."""
        return self._sums[3].copy()

    def moved(self, move: Array) -> BlockSlopes:
        return replace(self, question=replace(self.question, moves=(*self.question.moves, move)))
