"""The slopes of hinged losses, row by row: a dual point that bounds a minimum from below once it balances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from counterpoise.rows._base import Array
from counterpoise.rows.layouts import Layout


@dataclass(frozen=True, eq=False)
class RowSlopes:
    """The slopes of rows at hand.

    Attributes
    ----------
    part : MemoryPart
        The rows: their targets and their loss.
    layout : Layout
        The problems they belong to.
    weight, predictions : ndarray of shape (n,)
    v : ndarray of shape (n,)
        A slope for each row, times ``share``.
    bend : ndarray of shape (n,)
        How readily each slope moves.
    share : ndarray of shape (n,)
        Factor of the loss's slopes and height: the probability of the row's context, where that is not in its weight.
    """

    part: Any
    layout: Layout
    weight: Array
    predictions: Array
    v: Array
    bend: Array
    share: Array

    @classmethod
    def inside(cls, part: Any, layout: Layout, *rows: Array) -> RowSlopes:
        """Return slopes cut off where they leave their interval."""
        slopes = cls(part, layout, *rows)
        return replace(slopes, v=part.xp.clip(slopes.v, *slopes._ends))

    @cached_property
    def _ends(self) -> tuple[Array, Array]:
        _, _, left, right = self.part.loss.pieces(self.part.target)
        return left * self.share, right * self.share

    @property
    def gram(self) -> Array:
        """How readily each problem's rows move."""
        return self.layout.graded_gram(self.weight * self.bend)

    @cached_property
    def pull(self) -> Array:
        return self.layout.gather((self.weight * self.v)[:, None])

    @cached_property
    def size(self) -> Array:
        return self.layout.total(self.part.xp.abs(self.weight * self.v))

    @property
    def value(self) -> Array:
        loss = self.part.loss
        hinge, height, _, _ = loss.pieces(self.part.target)
        # A context of no probability has no slope either; 0 / 0 is 0.
        bowl = 0.5 * loss.softness * self.v**2 / self.part.xp.maximum(self.share, np.finfo(np.float64).tiny)
        return self.layout.total(self.weight * (self.share * height + self.v * (self.predictions - hinge) - bowl))

    def moved(self, move: Array) -> RowSlopes:
        """Return slopes moved against ``x_i'move_b``, each as readily as its row bends, and kept inside."""
        moved = self.v - self.bend * self.layout.product(move)[:, 0]
        return replace(self, v=self.part.xp.clip(moved, *self._ends))
