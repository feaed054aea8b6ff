"""The positions of the slider: radii, and the confidence that each method of sizing the set gives to them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from counterpoise.core.robustness import Robustness
from counterpoise.exceptions import CoverageWarning, EmptySetError, InvalidInputError
from counterpoise.reports.pages.scales import number
from counterpoise.sets import (
    ContextSet,
    KLBall,
    Mix,
    RadiusMethod,
    ball_of,
    confidence_radius,
    implied_confidence,
    radius_ladder,
    radius_of,
    share_intervals,
)

Array = NDArray[np.float64]

METHODS: tuple[RadiusMethod, ...] = get_args(RadiusMethod)

STOPS = (0.5, 0.9, 0.95, 0.99, 0.999)
"""Confidences that have a position of their own, by every method."""

_HALVINGS = 12
"""Of the radii between which the smallest set is looked for."""


@dataclass(frozen=True, eq=False)
class Levels:
    """Sets in ascending order, from the mix of the data (empirical risk minimisation) to every mix that is possible.

    Attributes
    ----------
    radii : ndarray of shape (n_levels,)
        In the unit of the ball; 0 for the mix of the data, which comes first.
    mixes : tuple of ContextSet
        The sets. The first holds the mix of the data alone. The others have the radii; where the set is around another
        mix, or bounds of shares exclude the mix of the data, the smallest of them that there is comes second.
    confidences : mapping from method to ndarray of shape (n_levels,)
        The largest confidence for which the method needs no larger radius; NaN where that is not known.
    stops : mapping from method to mapping from confidence to index
        Where the radius is the method's own for one of the confidences in ``STOPS``; without those whose sets are too
        small to meet what is known about the mix.
    chosen : int
        The level that was asked for.
    method : {"types", "agrawal", "calibrated", "chi2", "anytime"}
        The one that was asked for, or ``"types"`` where the radius itself was.
    cautions : mapping from method to str
        What speaks against a method on these data.
    apart : bool
        Whether the mix of the data is not in the smallest of the other sets alone, and so is a level of its own.
    """

    radii: Array
    mixes: tuple[ContextSet, ...]
    confidences: Mapping[RadiusMethod, Array]
    stops: Mapping[RadiusMethod, Mapping[float, int]]
    chosen: int
    method: RadiusMethod
    cautions: Mapping[RadiusMethod, str]
    apart: bool = False

    @classmethod
    def of(cls, counts: Array, robustness: Robustness, n_levels: int, labels: Iterable[Any] | None = None) -> Levels:
        """Return the levels for some counts; the model's own choice is among them.

        Parameters
        ----------
        labels : labels of shape (n_contexts,), optional
            By which a mix names contexts; 0, 1, ... by default.
        """
        if not (isinstance(n_levels, (int, np.integer)) and not isinstance(n_levels, bool) and n_levels >= 2):
            raise InvalidInputError(f"levels = {n_levels!r}; a slider has two or more.")
        if len(counts) < 2:
            raise InvalidInputError("all rows are of one context, so there is nothing to explore.")
        known = _Known(counts, robustness, tuple(range(len(counts)) if labels is None else labels))
        exact, cautions = _exact(known.radius_at)
        with warnings.catch_warnings():
            # Said on the page, where the method is chosen.
            warnings.simplefilter("ignore", CoverageWarning)
            whole = robustness.mixes(counts, known.labels)
        chosen = radius_of(whole)
        stops = (bits for own in exact.values() for bits in own.values())
        sets = known.sets(whole, np.unique([*radius_ladder(n_levels), *stops, chosen]))
        radii = np.array(list(sets))
        data = KLBall(counts / counts.sum(), 0.0)
        first = sets[radii[0]]
        # Around the mix of the data, and without bounds that exclude it, the smallest set is that mix alone.
        apart = not (first.is_point and np.allclose(first.p_hat, data.p_hat, rtol=0.0, atol=1e-12))
        ahead = [0.0] if apart else []
        return cls(
            radii=np.array([*ahead, *radii]),
            mixes=(data, *(list(sets.values())[0 if apart else 1 :])),
            confidences={
                method: np.array([*ahead, *(known.confidence(radius, method) for radius in radii)])
                for method in METHODS
            },
            stops={
                method: {
                    level: int(np.searchsorted(radii, bits)) + len(ahead)
                    for level, bits in own.items()
                    if bits >= radii[0] or not apart
                }
                for method, own in exact.items()
            },
            chosen=int(np.searchsorted(radii, chosen)) + len(ahead),
            method=robustness.radius if isinstance(robustness.radius, str) else "types",
            cautions=cautions,
            apart=apart,
        )

    @property
    def measure(self) -> str:
        """What follows a radius, in words."""
        ball = ball_of(self.mixes[-1])
        return "" if ball is None else ball.measure

    @property
    def source(self) -> str:
        """What the sets are around."""
        ball = ball_of(self.mixes[-1])
        return "the data" if ball is None else ball.around

    @property
    def largest(self) -> str:
        """What the largest set holds."""
        return "every mix" if self.mixes[-1].is_simplex else "every mix within the bounds"

    def words(self, method: RadiusMethod) -> list[str]:
        """Return each level in words: the confidence it has by a method."""
        by = f" by {method}"
        return self._described(
            method, "erm", self.largest, "{}" + by, lambda k, level: self._between(method, k, level, by)
        )

    def leads(self, method: RadiusMethod) -> list[str]:
        """Return how a sentence about each level begins."""
        ends = "With the mix of the data (erm)", f"With {self.largest} possible"
        return self._described(
            method,
            *ends,
            "At {}",
            lambda k, level: f"At {number(self.radii[k])}{self.measure} ({self._between(method, k, level)})",
        )

    def _described(
        self, method: RadiusMethod, erm: str, every: str, stop: str, other: Callable[[int, float], str]
    ) -> list[str]:
        """Return words for each level: for both ends, for the stops of a method, and for what lies between them."""
        said = {k: other(k, level) for k, level in enumerate(self.confidences[method].tolist())}
        said |= {k: stop.format(f"{100 * level:g}%") for level, k in self.stops[method].items()}
        said |= {k: every for k, radius in enumerate(self.radii) if radius == math.inf}
        return [erm, *list(said.values())[1:]]

    def _between(self, method: RadiusMethod, k: int, confidence: float, by: str = "") -> str:
        """Return the confidence of a level that is none of the stops."""
        if not math.isnan(confidence):
            return _between(confidence, by)
        below = [level for level, place in self.stops[method].items() if place < k]
        above = [level for level, place in self.stops[method].items() if place > k]
        if not below and not above:
            return "of no known confidence"
        if not below:
            return f"below {100 * min(above):g}%"
        return f"above {100 * max(below):g}%" + (f", below {100 * min(above):g}%" if above else "") + by

    def intervals(self) -> Array:
        """Return the least and the largest share of each context in each set: shape (n_levels, n_contexts, 2)."""
        return np.array([share_intervals(mixes) for mixes in self.mixes])


@dataclass(frozen=True, eq=False)
class _Known:
    """What the sets of all levels have in common: the mix they are around, and bounds of shares."""

    counts: Array
    robustness: Robustness
    labels: tuple[Any, ...]

    def __post_init__(self) -> None:
        if isinstance(self.robustness.mix, ContextSet):
            raise InvalidInputError("the model was given its set (mix=); the slider is for sets that follow from data.")
        if self.mix is not None and (self.mix.ball is None or self.mix.parents):
            raise InvalidInputError(
                "the slider moves the radius of a set with one ball. Choose one, such as ball='kl', and no parents."
            )

    @property
    def mix(self) -> Mix | None:
        """What was said about the mix, if anything."""
        mix = self.robustness.mix
        return Mix.of(mix) if isinstance(mix, (Mix, Mapping)) else None

    def radius_at(self, confidence: float, method: RadiusMethod) -> float | None:
        """Return the radius that a method gives for a confidence; None where the shares say nothing of their size."""
        sized: dict[str, Any] = {"confidence": confidence, "radius": method}
        if self.mix is None:
            return confidence_radius(self.counts, confidence, method, draws=self.robustness.counted)
        if self.mix.shares is not None:
            return None
        plain = replace(self.mix, bounds=None, limits=None, radius=None)
        return radius_of(plain.over(self.labels, self.counts, **sized, draws=self.robustness.counted))

    def confidence(self, radius: float, method: RadiusMethod) -> float:
        """Return the confidence for which a method gives a radius; NaN where that is not known."""
        if self.mix is not None and (self.mix.ball != "kl" or self.mix.shares is not None):
            return math.nan
        if self.mix is not None and self.mix.counts is not None:
            counts = np.array([self.mix.counts.get(label, 0.0) for label in self.labels])
            return implied_confidence(radius, counts, method)
        return implied_confidence(radius, self.counts, method, draws=self.robustness.counted)

    def sets(self, whole: ContextSet, radii: Array) -> dict[float, ContextSet]:
        """Return the sets of ascending radii; without those too small to meet what is known, but with the smallest."""
        found: list[tuple[float, ContextSet]] = []
        for radius in radii.tolist()[::-1]:
            try:
                found.append((radius, whole.resized(radius)))  # type: ignore[attr-defined]
            except EmptySetError:
                # A smaller ball around the same centre is no nearer to the bounds.
                found.append(_smallest(whole, radius, found[-1][0]))
                break
        return dict(found[::-1])


def _smallest(whole: Any, empty: float, filled: float) -> tuple[float, ContextSet]:
    """Return the smallest radius between two at which a set has members, a little rounded up, and that set."""
    if math.isinf(filled):
        filled = max(1.0, 2.0 * empty)
        while _resized(whole, filled) is None:
            filled *= 2.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (empty + filled)
        empty, filled = (empty, middle) if _resized(whole, middle) is not None else (middle, filled)
    return filled, whole.resized(filled)


def _resized(whole: Any, radius: float) -> ContextSet | None:
    try:
        found: ContextSet = whole.resized(radius)
    except EmptySetError:
        return None
    return found


def _exact(
    radius_at: Callable[[float, RadiusMethod], float | None],
) -> tuple[dict[RadiusMethod, dict[float, float]], dict[RadiusMethod, str]]:
    """Return the radius of every confidence by every method, and what speaks against methods."""
    radii: dict[RadiusMethod, dict[float, float]] = {}
    cautions: dict[RadiusMethod, str] = {}
    for method in METHODS:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CoverageWarning)
            found = {level: radius_at(level, method) for level in STOPS}
        radii[method] = {level: bits for level, bits in found.items() if bits is not None}
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
