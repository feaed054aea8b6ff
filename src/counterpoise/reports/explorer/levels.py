"""The positions of the slider: radii, and the confidence that each method of sizing the set gives to them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from counterpoise.core.robustness import Robustness
from counterpoise.exceptions import CoverageWarning, InvalidInputError
from counterpoise.reports.pages.scales import number
from counterpoise.sets import KLBall, RadiusMethod, confidence_radius, implied_confidence, radius_ladder, radius_of

Array = NDArray[np.float64]

METHODS: tuple[RadiusMethod, ...] = get_args(RadiusMethod)

STOPS = (0.5, 0.9, 0.95, 0.99, 0.999)
"""Confidences that have a position of their own, by every method."""


@dataclass(frozen=True, eq=False)
class Levels:
    """Radii in ascending order, from 0 (empirical risk minimisation) to infinity (every mix).

    Attributes
    ----------
    radii : ndarray of shape (n_levels,)
        In bits.
    confidences : mapping from method to ndarray of shape (n_levels,)
        The largest confidence for which the method needs no larger radius.
    stops : mapping from method to mapping from confidence to index
        Where the radius is the method's own for one of the confidences in ``STOPS``.
    chosen : int
        The level that was asked for.
    method : {"types", "agrawal", "calibrated", "chi2"}
        The one that was asked for, or ``"types"`` where the radius itself was.
    cautions : mapping from method to str
        What speaks against a method on these data.
    """

    radii: Array
    confidences: Mapping[RadiusMethod, Array]
    stops: Mapping[RadiusMethod, Mapping[float, int]]
    chosen: int
    method: RadiusMethod
    cautions: Mapping[RadiusMethod, str]

    @classmethod
    def of(cls, counts: Array, robustness: Robustness, n_levels: int) -> Levels:
        """Return the levels for some counts; the model's own choice is among them."""
        if not (isinstance(n_levels, (int, np.integer)) and not isinstance(n_levels, bool) and n_levels >= 2):
            raise InvalidInputError(f"levels = {n_levels!r}; a slider has two or more.")
        if len(counts) < 2:
            raise InvalidInputError("all rows are of one context, so there is nothing to explore.")
        if robustness.mix is not None:
            raise InvalidInputError("the model was given its set (mix=); the slider is for sets that follow from data.")
        exact, cautions = _exact(counts, robustness.counted)
        with warnings.catch_warnings():
            # Said on the page, where the method is chosen.
            warnings.simplefilter("ignore", CoverageWarning)
            chosen = radius_of(robustness.mixes(counts))
        radii = np.unique(
            [*radius_ladder(n_levels), *(bits for own in exact.values() for bits in own.values()), chosen]
        )
        return cls(
            radii=radii,
            confidences={
                method: np.array([implied_confidence(r, counts, method, draws=robustness.counted) for r in radii])
                for method in METHODS
            },
            stops={
                method: {level: int(np.searchsorted(radii, bits)) for level, bits in own.items()}
                for method, own in exact.items()
            },
            chosen=int(np.searchsorted(radii, chosen)),
            method=robustness.radius if isinstance(robustness.radius, str) else "types",
            cautions=cautions,
        )

    def words(self, method: RadiusMethod) -> list[str]:
        """Return each level in words: the confidence it has by a method."""
        by = f" by {method}"
        return self._described(method, "ERM", "every mix", "{}" + by, lambda _, level: _between(level, by))

    def leads(self, method: RadiusMethod) -> list[str]:
        """Return how a sentence about each level begins."""
        ends = "With the mix of the data (ERM)", "With every mix possible"
        return self._described(
            method, *ends, "At {}", lambda bits, level: f"At {number(bits)} bits ({_between(level)})"
        )

    def _described(
        self, method: RadiusMethod, erm: str, every: str, stop: str, other: Callable[[float, float], str]
    ) -> list[str]:
        """Return words for each level: for both ends, for the stops of a method, and for what lies between them."""
        levels = zip(self.radii.tolist(), self.confidences[method].tolist(), strict=True)
        said = {k: other(radius, level) for k, (radius, level) in enumerate(levels)}
        said |= {k: stop.format(f"{100 * level:g}%") for level, k in self.stops[method].items()}
        said |= {k: erm if radius == 0.0 else every for k, radius in enumerate(self.radii) if radius in (0.0, math.inf)}
        return list(said.values())

    def intervals(self, shares: Array) -> Array:
        """Return the least and the largest share of each context in each set: shape (n_levels, n_contexts, 2)."""
        # A context's interval depends on its own share alone, so contexts of equal share are solved once.
        _, first, again = np.unique(shares, return_index=True, return_inverse=True)
        return np.array([[KLBall(shares, radius).interval(int(c)) for c in first] for radius in self.radii])[:, again]


def _exact(
    counts: Array, draws: float | None
) -> tuple[dict[RadiusMethod, dict[float, float]], dict[RadiusMethod, str]]:
    """Return the radius of every confidence by every method, and what speaks against methods."""
    radii: dict[RadiusMethod, dict[float, float]] = {}
    cautions: dict[RadiusMethod, str] = {}
    for method in METHODS:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CoverageWarning)
            radii[method] = {level: confidence_radius(counts, level, method, draws=draws) for level in STOPS}
        if any(issubclass(one.category, CoverageWarning) for one in caught):
            cautions[method] = (
                f"{method} holds for many rows per context, and these are few: the set covers less often than it says. "
                "Prefer calibrated."
            )
    return radii, cautions


def _between(confidence: float, by: str = "") -> str:
    """Return a confidence that is none of the stops."""
    if confidence < STOPS[0]:
        return f"below {100 * STOPS[0]:g}%"
    return f"above {100 * STOPS[-1]:g}%" if confidence > STOPS[-1] else f"{100 * confidence:.1f}%{by}"
