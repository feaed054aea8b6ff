"""What the page of a mixture controller shows of its run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import shown
from counterpoise.reports.pages.scales import fixed
from counterpoise.reports.pages.time_axis import time_axis
from counterpoise.sets import WorstCase, share_intervals
from counterpoise.table import Table

if TYPE_CHECKING:
    from counterpoise.torch.mixture import MixtureController

Array = NDArray[np.float64]

_POINTS = 150
"""Updates that are drawn, of many."""


@dataclass(frozen=True, eq=False)
class MixtureRun:
    """A controller, and what it recorded: by update in rows, by source in columns."""

    controller: MixtureController
    unit: str

    @property
    def n_updates(self) -> int:
        return self.controller.n_updates

    @cached_property
    def names(self) -> list[str]:
        return [shown(one) for one in self.controller.sources]

    @cached_property
    def order(self) -> list[int]:
        """Sources, the furthest behind first; those without held-out text last."""
        # NaN is sorted to the end.
        return [int(k) for k in np.argsort(-self.controller.excess, kind="stable")]

    def recorded(self, what: str) -> Array:
        return np.column_stack([self._history[f"{what}[{name}]"] for name in self.names])

    @cached_property
    def _history(self) -> Table:
        return self.controller.history

    @cached_property
    def at(self) -> Array:
        """When updates were; their numbers where that has no place on an axis."""
        told = np.asarray(self._history["at"], dtype=np.float64)
        # A controller that serves a second training hears of its steps from 1 on again.
        is_axis = np.isfinite(told).all() and (np.diff(told) >= 0.0).all()
        return told if is_axis else np.arange(1.0, self.n_updates + 1.0)

    @property
    def is_numbered(self) -> bool:
        """Whether nobody said when updates were."""
        return bool((self.at == np.arange(1, self.n_updates + 1)).all())

    @cached_property
    def losses(self) -> Array:
        return self.recorded("loss")

    @cached_property
    def excess(self) -> Array:
        return self.losses - self.controller.references

    @cached_property
    def shares(self) -> Array:
        """Shares before the first update, and after each."""
        return np.vstack([self.controller.first_probabilities, self.recorded("share")])

    @cached_property
    def mean(self) -> Array:
        return np.array(list(self.controller.average.values()))

    @cached_property
    def proportional(self) -> Array:
        return self.controller.tokens / self.controller.tokens.sum()

    def tempered(self, power: float) -> Array:
        # Logarithms, since powers of large numbers are kept apart by them.
        grown = np.exp(power * np.log(self.proportional / self.proportional.max()))
        return np.asarray(grown / grown.sum())

    @cached_property
    def allowed(self) -> Array:
        """The least and the largest share that may be sampled by."""
        return share_intervals(self.controller.allowed)

    @cached_property
    def caps(self) -> Array:
        """The largest shares that the budget allows; infinite without one."""
        budget = self.controller.budget
        tokens = self.controller.tokens
        return np.full(len(tokens), math.inf) if budget is None else self.controller.max_epochs * tokens / budget

    @property
    def has_references(self) -> bool:
        return bool(self.controller.references.any())

    @property
    def what(self) -> str:
        """What is compared."""
        return "excess" if self.has_references else "held-out loss"

    @cached_property
    def first(self) -> Array:
        """The first excess that is known of each source."""
        known = ~np.isnan(self.excess)
        return np.where(known.any(axis=0), self.excess[known.argmax(axis=0), np.arange(len(self.names))], math.nan)

    @cached_property
    def scores(self) -> Array:
        """The excess of the last update; of sources without held-out text, what the controller took it for."""
        # Whoever has a controller has torch.
        from counterpoise.torch.held_out import scores_of

        return scores_of(self.controller.excess, self.controller.held_out_tokens, ())

    @cached_property
    def worst(self) -> WorstCase:
        return self.controller.mixes.worst_case(self.scores)

    @cached_property
    def references_changed(self) -> bool:
        """Whether the first or the last update counted from other references than there are now."""
        told = self._history["worst_excess"]
        ends = [(k, self.excess[k]) for k in {0, self.n_updates - 1} if not np.isnan(self.excess[k]).any()]
        return any(not math.isclose(told[k], self._worst_of(one), rel_tol=1e-6, abs_tol=1e-9) for k, one in ends)

    def _worst_of(self, excess: Array) -> float:
        return math.nan if np.isnan(excess).any() else float(self.controller.mixes.worst_case(excess).value)

    def worst_at(self, update: int) -> float:
        """Return the excess in the worst mix at an update, counted from the references that there are now."""
        if update == self.n_updates - 1:
            return float(self.worst.value)
        if self.references_changed:
            return self._worst_of(self.excess[update])
        return float(self._history["worst_excess"][update])

    @cached_property
    def drawn(self) -> list[int]:
        """Updates that are drawn."""
        return np.unique(np.linspace(0, self.n_updates - 1, min(self.n_updates, _POINTS)).round().astype(int)).tolist()

    @cached_property
    def start(self) -> float:
        """When the first shares began to count: as long before the first update as the second is after it."""
        before = self.at[0] - (self.at[1] - self.at[0] if self.n_updates > 1 else self.at[0])
        return float(min(max(before, 0.0), self.at[0]))

    @cached_property
    def x_ticks(self) -> list[tuple[float, str]]:
        return time_axis([self.start, *self.at.tolist()])[1]

    @cached_property
    def _decimals(self) -> int:
        largest = float(np.nanmax(np.abs(self.losses)))
        return min(max(3 - math.floor(math.log10(largest)), 0), 9) if largest > 0.0 else 3

    def loss_text(self, value: float) -> str:
        """Return a loss, or an excess, with as many decimals as all others."""
        return fixed(value, self._decimals)
