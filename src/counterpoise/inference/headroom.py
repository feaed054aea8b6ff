"""Whether there is anything to gain: can any context be served better than by one model for all?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterpoise.inference.excess import ExcessBounds, HeldOut
from counterpoise.table import Table, written

Array = NDArray[np.float64]

StopRule = Literal["bound", "test"] | None
"""When a search for something better ends before it begins; see :meth:`Headroom.stops`."""

_NEGLIGIBLE = 0.05
"""Of the mean absolute deviation of what the plain model loses above a perfect prediction: less matters to nobody."""


def negligible(held_out: HeldOut, losses: Array) -> float:
    """Return the excess risk below which a difference does not matter: a twentieth of the losses' mean deviation.

    Losses are above those of a perfect prediction, so that targets that differ do not pass for models that do.
    """
    mean = np.average(losses, weights=held_out.weight)
    return float(_NEGLIGIBLE * np.average(np.abs(losses - mean), weights=held_out.weight))


@dataclass(frozen=True, eq=False, repr=False)
class Headroom:
    """How much better any context could be served than by one plain model for all.

    Attributes
    ----------
    bounds : ExcessBounds
        Of the plain model against a model of each context's own, on held-out rows.
    negligible : float
        An excess risk that matters to nobody.
    """

    bounds: ExcessBounds
    negligible: float

    @property
    def p_value(self) -> float:
        """Of the hypothesis that no context's own model is better than the plain one."""
        return self.bounds.p_value

    @property
    def something(self) -> bool:
        """Whether some context's own model is better, beyond chance."""
        return bool(self.bounds.p_value < 1.0 - self.bounds.confidence)

    @property
    def nothing(self) -> bool:
        """Whether whatever there may be to gain is negligible."""
        return not self.something and bool(self.bounds.upper <= self.negligible)

    @property
    def estimate(self) -> float:
        """The largest excess of the plain model in any context, corrected for being the largest."""
        return self.bounds.estimate

    @property
    def lower(self) -> float:
        """The lower end of its interval."""
        return self.bounds.lower

    @property
    def upper(self) -> float:
        """The upper end."""
        return self.bounds.upper

    @property
    def by_context(self) -> Table:
        """A row per context; see :class:`counterpoise.metrics.ExcessBounds`."""
        return self.bounds.by_context

    @property
    def verdict(self) -> str:
        """What to make of it, in a sentence."""
        n, n_unjudged = len(self.by_context["context"]), len(self.bounds.unjudged)
        return to_gain(self.p_value, self.upper, self.negligible, self.bounds.confidence, n, n - n_unjudged)

    def __repr__(self) -> str:
        return f"{self.verdict}\n\n{self.by_context}"

    def stops(self, rule: StopRule) -> bool:
        """Return whether a search for something better ends here.

        Parameters
        ----------
        rule : {"bound", "test"} or None
            Where what can be gained is negligible; or unless something to gain was found; or never.
        """
        return self.nothing if rule == "bound" else rule == "test" and not self.something


def headroom_of(held_out: HeldOut, plain: Array, own: Array, lowest: Any = 0.0) -> Headroom:
    """Return what a model of each context's own gains over the plain one, from their losses on rows held out.

    Parameters
    ----------
    lowest : ndarray of shape (n_samples,), or 0
        Losses of a perfect prediction.
    """
    bounds = held_out.excess_bounds(plain, own[:, None], ["own"])
    return Headroom(bounds, negligible(held_out, plain - lowest))


def to_gain(p_value: float, upper: float, small: float, confidence: float, n_contexts: int, n_judged: int) -> str:
    """Say whether any context can be served better than by the plain model."""
    if np.isnan(p_value):
        return (
            "The data cannot tell whether any context's own model is better than the plain one: on held-out rows each "
            "context is a single row or a single group, or has no model of its own. Merge contexts, or take more rows."
        )
    if p_value < 1.0 - confidence:
        return f"Some context's own model is better than the plain one (p = {p_value:.2g}): there is something to gain."
    if upper <= small:
        if n_judged == 1 < n_contexts:
            return "Only one context can be judged: whether one model is enough for all cannot be told."
        which = " that can be judged" if n_judged < n_contexts else ""
        if upper <= 0.0:
            return f"One model is enough for all contexts{which}: none is served better by a model of its own."
        return (
            f"One model is enough for all contexts{which}: none is served worse than by a model of its own by more "
            f"than {written(upper, digits=2)}, which is negligible. There is nothing to gain here."
        )
    return (
        f"The data cannot tell whether any context's own model is better than the plain one (p = {p_value:.2g}; by "
        f"{written(upper, digits=2)} at most)."
    )
