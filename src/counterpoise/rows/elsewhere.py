"""Contexts side by side where rows are elsewhere: all of them share a pass, and those that are done rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from counterpoise.losses import Loss
from counterpoise.rows._base import Array, Mask, Slopes
from counterpoise.rows.layouts import Coefficients


@dataclass(eq=False)
class AllContexts:
    """Some contexts of rows whose every look is at all contexts; see :class:`counterpoise.rows.Part`."""

    rows: Any
    active: Mask
    _resting: Array | None = field(default=None, repr=False)

    at_hand = False

    @property
    def knows_predictions(self) -> bool:
        """Whether predictions stay known where rows have been looked at."""
        return self.rows.knows_predictions

    @property
    def rounding(self) -> float:
        """Share of a sum by which two looks at the same place may differ."""
        return self.rows.rounding

    @property
    def loss(self) -> Loss:
        """The loss."""
        return self.rows.loss

    @property
    def coefficients(self) -> Coefficients:
        """The shape of theta."""
        return self.rows.coefficients

    @cached_property
    def reach(self) -> Array:
        """The largest absolute feature behind each parameter."""
        return self.coefficients.for_each_output(self.rows.reach)

    @property
    def lowest(self) -> Array:
        """Each context's mean lowest loss."""
        return self.rows.lowest[self.active]

    def at(self, theta: Array) -> SomeSums:
        """Return sums at one theta for each context; the others stay where they were last."""
        if self._resting is None:
            self._resting = np.zeros((len(self.active), theta.shape[1]))
        self._resting = self._resting.copy()
        self._resting[self.active] = theta
        return SomeSums(self, self.rows.at(self._resting), theta)

    def subset(self, keep: Mask) -> AllContexts:
        """Return some of the contexts."""
        active = self.active.copy()
        active[self.active] = keep
        return AllContexts(self.rows, active, self._resting)


@dataclass(frozen=True, eq=False)
class SomeSums:
    """The sums of some contexts, of which all are known."""

    part: AllContexts
    all: Any
    theta: Array

    @property
    def values(self) -> Array:
        return self.all.values[self.part.active]

    @property
    def gradients(self) -> Array:
        return self.all.gradients[self.part.active]

    @property
    def sizes(self) -> Array:
        return self.all.sizes[self.part.active]

    @property
    def hessians(self) -> Any:
        return self.all.hessians[self.part.active]

    @property
    def rough_hessians(self) -> Any:
        return self.all.rough_hessians[self.part.active]

    @property
    def moments(self) -> Any:
        return self.all.moments[self.part.active]

    def is_here(self, other: SomeSums) -> bool:
        """Tell whether these are sums of the same look."""
        return self.all is other.all

    def moved_each(self, other: SomeSums) -> Array:
        return self.all.moved_each(other.all)[self.part.active]

    majorants = None

    def truncated(self, cut: float) -> SomeSums:
        """Return the sums of a loss that lies below."""
        return SomeSums(self.part, self.all.truncated(cut), self.theta)

    def slopes(self, weights: None) -> SomeSlopes:
        """Return the slopes of a soft hinged loss."""
        return SomeSlopes(self.part.active, self.all.slopes(weights))

    def subset(self, keep: Mask) -> SomeSums:
        """Return the sums of some of them."""
        return SomeSums(self.part.subset(keep), self.all, self.theta[keep])


@dataclass(frozen=True, eq=False)
class SomeSlopes:
    """The slopes of some contexts; those of the others stay where they are."""

    active: Mask
    all: Slopes

    @property
    def pull(self) -> Array:
        return self.all.pull[self.active]

    @property
    def size(self) -> Array:
        return self.all.size[self.active]

    @property
    def value(self) -> Array:
        return self.all.value[self.active]

    @property
    def gram(self) -> Any:
        return self.all.gram[self.active]

    def moved(self, move: Array) -> SomeSlopes:
        """Return slopes moved."""
        whole = np.zeros((len(self.active), move.shape[1]))
        whole[self.active] = move
        return SomeSlopes(self.active, self.all.moved(whole))
