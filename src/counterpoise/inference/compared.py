"""Models compared on the same rows held out: the means of all differences of their losses, found at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterpoise.inference.excess import ExcessBounds, ExcessDifference, HeldOut, event_size
from counterpoise.inference.intervals import Excess, Interval, drawn_excess
from counterpoise.inference.paired import PairedMeans

Array = NDArray[np.float64]

NOTHING = ""
"""The name of a competitor that loses nothing: what is above it is the risk itself."""


@dataclass(frozen=True, eq=False)
class Compared:
    """What each model loses above others, in every context.

    Attributes
    ----------
    held_out : HeldOut
        The rows, and what is asked of them.
    losses : mapping from name to ndarray of shape (n_rows,)
    means : PairedMeans
        Of all differences that were asked for.
    place : dict from pairs of names to int
        Their columns: the model, and what is taken off.
    """

    held_out: HeldOut
    losses: Mapping[str, Array]
    means: PairedMeans
    place: Mapping[tuple[str, str], int]

    @classmethod
    def of(cls, held_out: HeldOut, losses: Mapping[str, Array], pairs: Iterable[tuple[str, str]]) -> Compared:
        """Find the mean of what each first model of a pair loses above the second, in every context."""
        place = {pair: k for k, pair in enumerate(dict.fromkeys(pairs))}
        at = {name: k for k, name in enumerate(losses)}
        events = {name: event_size(losses[name]) for name in {one for one, _ in place}}
        means = held_out.pairs_between(
            list(losses.values()),
            [(at[one], at.get(other)) for one, other in place],
            # A model is not off itself.
            np.array([0.0 if one == other else events[one] for one, other in place]),
        )
        return cls(held_out, losses, means, place)

    def among(self, chosen: NDArray[np.bool_]) -> tuple[Compared, NDArray[np.intp]]:
        """Return the same of chosen rows, and which rows these are.

        A context of which none is chosen keeps its rows, without losses: it cannot be judged. One of a single unit
        cannot be in any case, and stays as it is.
        """
        codes = self.held_out.contexts.codes
        chosen = chosen | (self.means.n_units == 1)[codes]
        lacks = np.bincount(codes[chosen], minlength=len(self.means.n_units)) == 0
        rows = np.flatnonzero(chosen | lacks[codes])
        if chosen.all():
            return self, rows
        losses = {name: np.where(chosen, one, np.nan)[rows] for name, one in self.losses.items()}
        return Compared.of(self.held_out.where(rows), losses, self.place), rows

    def pairs(self, *columns: tuple[str, str]) -> PairedMeans:
        """Return the means of some of the differences."""
        return self.means.columns([self.place[pair] for pair in columns])

    def excess(self, models: Sequence[str], competitors: Sequence[str]) -> list[Excess]:
        """Return the excess of several models over the same competitors, and how they err together."""
        pairs = self.pairs(*((one, other) for one in models for other in competitors))
        return drawn_excess(pairs, len(models))

    def bounds(self, model: str, competitors: Sequence[str], names: Sequence[str]) -> ExcessBounds:
        """Bound the excess of a model over competitors; see :func:`counterpoise.metrics.excess_bounds`."""
        return self.held_out.bounds_of(self.excess([model], competitors)[0], names)

    def difference(self, model: str, other: str, competitors: Sequence[str]) -> ExcessDifference:
        """Bound the difference of two worst cases; see :func:`counterpoise.metrics.excess_difference`."""
        return self.held_out.difference_of(*self.excess([model, other], competitors))

    def mean(self, model: str, other: str = NOTHING) -> Interval:
        """Return by how much the losses of a model are above those of another, in the mix of the rows."""
        found = self.held_out.mean_of(self.pairs((model, other))) if model != other else None
        if found is not None:
            return found
        taken_off = self.losses[other] if other != NOTHING else 0.0
        return self.held_out.mean(self.losses[model], taken_off, may_be_errors=True)
