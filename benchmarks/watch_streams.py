"""Simulated years of rows for the study of watches: sets of mixes, mixes within and beyond them, groups, losses."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

import counterpoise as cpo

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

GROUP = 10
"""Rows of a group."""

NEW = "a new context"
"""The label of rows of a context that the fit did not have."""


def seeded(*names: Any) -> np.random.Generator:
    """Return draws that belong to these names, whatever else is run."""
    return np.random.default_rng(zlib.crc32(repr(names).encode()))


def shares(n_contexts: int) -> Array:
    """Return the shares of the fit, of which the last one is small."""
    known = {2: [0.8, 0.2], 5: [0.4, 0.28, 0.2, 0.1, 0.02]}
    found = np.array(known.get(n_contexts, 1.0 / np.arange(1, n_contexts + 1)))
    return found / found.sum()


def rows_a_day(n_contexts: int) -> int:
    """Return how many rows come on a day."""
    return 20 if n_contexts <= 5 else 100


# --- sets and their members ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sized:
    """A KL ball around the shares of the fit, sized from so many draws; no draws: the shares alone."""

    n_contexts: int
    draws: int = 400
    method: str = "calibrated"

    @cached_property
    def ball(self) -> cpo.KLBall:
        """The set."""
        p_hat = shares(self.n_contexts)
        if not self.draws:
            return cpo.KLBall(p_hat, 0.0)
        return cpo.KLBall(p_hat, cpo.confidence_radius(p_hat * self.draws, 0.99, self.method))  # type: ignore[arg-type]

    def rim(self, goal: Array) -> Array:
        """Return the last member on the way from the centre to another mix."""
        ball = self.ball
        p_hat, step = ball.p_hat, goal - ball.p_hat
        if ball.radius == 0.0 or not step.any():
            return p_hat
        # A goal without some context is infinitely far away; stop just before it.
        longest = float(np.min(np.where(step < 0.0, -p_hat / np.minimum(step, -1e-300), np.inf))) * (1.0 - 1e-9)
        beyond = lambda t: ball.divergence(p_hat + t * step) - ball.radius  # noqa: E731
        if beyond(longest) <= 0.0:
            return p_hat + longest * step
        return np.asarray(p_hat + optimize.brentq(beyond, 0.0, longest, xtol=1e-14) * step)

    def towards(self, context: int) -> Array:
        """Return the rim in the direction of one context."""
        return self.rim(np.eye(self.n_contexts)[context])

    def away(self, context: int) -> Array:
        """Return the rim with less of one context and the others in proportion."""
        others = shares(self.n_contexts) * (np.arange(self.n_contexts) != context)
        return self.rim(others / others.sum())

    def random(self, rng: np.random.Generator) -> Array:
        """Return a random point of the rim."""
        return self.rim(rng.dirichlet(np.ones(self.n_contexts)))

    @property
    def corners(self) -> dict[str, Array]:
        """The points of the rim that tests are calibrated at."""
        rng = seeded("corners", self.n_contexts)
        return {
            "towards the rare context": self.towards(-1 % self.n_contexts),
            "towards the common context": self.towards(0),
            "away from the rare context": self.away(-1 % self.n_contexts),
            "away from the common context": self.away(0),
            "at random": self.random(rng),
        }


@dataclass(frozen=True)
class Bounded:
    """Shares of the fit, each known to within a third."""

    n_contexts: int

    @cached_property
    def ball(self) -> cpo.ShareBounds:
        """The set."""
        p_hat = shares(self.n_contexts)
        return cpo.ShareBounds(p_hat * 2 / 3, np.minimum(p_hat * 4 / 3, 1.0))

    def vertex(self, rng: np.random.Generator) -> Array:
        """Return a vertex: contexts in random order take their largest share while any is left."""
        p_hat = shares(self.n_contexts)
        found, left = p_hat * 2 / 3, 1.0 / 3.0
        for c in rng.permutation(self.n_contexts):
            taken = min(p_hat[c] * 2 / 3, left)
            found[c] += taken
            left -= taken
        return found


# --- rows ------------------------------------------------------------------------------------------------------


class Day(NamedTuple):
    """The rows of a day: codes of contexts (-1: new), losses and groups or None."""

    codes: Codes
    losses: Array | None
    groups: Codes | None


@dataclass(frozen=True)
class Losses:
    """Losses with known means by context: ``drawn(rng, n)`` has mean 1, or is a coin of the mean."""

    drawn: Callable[[np.random.Generator, int], Array] | None
    least: float = 0.05
    most: float = 0.3

    def means(self, n_contexts: int) -> Array:
        """Return the risks that are promised."""
        return np.linspace(self.least, self.most, n_contexts)

    def of(self, means: Array, groups: Codes | None, rng: np.random.Generator) -> Array:
        """Draw losses of these means; those of a group have a factor in common, or are the same coin."""
        n = len(means)
        if self.drawn is None:
            own = rng.random(n)
            return np.asarray((own if groups is None else own[groups]) < means, dtype=np.float64)
        own = self.drawn(rng, n)
        return means * (own if groups is None else own * self.drawn(rng, n)[groups])


def lognormal(sigma: float) -> Callable[[np.random.Generator, int], Array]:
    """Return draws with mean 1 and a heavy right tail."""
    return lambda rng, n: np.exp(sigma * rng.standard_normal(n) - 0.5 * sigma**2)


LOSSES = {
    "0-1 losses": Losses(None),
    "exponential losses": Losses(lambda rng, n: rng.exponential(size=n)),
    "lognormal losses": Losses(lognormal(1.0)),
    "heavy-tailed losses": Losses(lognormal(2.0)),
}


@dataclass(frozen=True)
class Stream:
    """A year of rows.

    Parameters
    ----------
    mix : callable
        The mix of a day, from the number of the day.
    rows : int
        Rows a day.
    groups : {"", "shared", "related", "unequal"}
        Whether all rows of a group are of one context, or related with an intraclass correlation of .5; "unequal":
        groups of one context that have 1 to 40 rows.
    losses : Losses, optional
    raised : callable, optional
        Factors of the risks of contexts on a day.
    unseen : callable, optional
        The share of rows of a new context on a day.
    """

    mix: Callable[[int], Array]
    rows: int
    groups: str = ""
    losses: Losses | None = None
    raised: Callable[[int], Array] | None = None
    unseen: Callable[[int], float] | None = None

    def days(self, rng: np.random.Generator, n_days: int) -> Iterator[Day]:
        """Draw day after day."""
        for day in range(n_days):
            yield self._day(day, rng)

    def _day(self, day: int, rng: np.random.Generator) -> Day:
        mix, groups = self.mix(day), None
        if self.groups == "unequal":
            sizes = np.minimum(rng.geometric(1.0 / GROUP, size=max(1, self.rows // GROUP)), 4 * GROUP)
            groups = np.repeat(np.arange(len(sizes)), sizes)
        elif self.groups:
            groups = np.arange(self.rows) // GROUP
        if groups is None:
            codes = rng.choice(len(mix), self.rows, p=mix)
        elif self.groups == "related":
            # Dirichlet draws of concentration 1 make an intraclass correlation of one half.
            own = rng.dirichlet(np.maximum(mix, 1e-12), size=groups[-1] + 1)
            codes = (rng.random(len(groups))[:, None] > own.cumsum(axis=1)[groups]).sum(axis=1).clip(max=len(mix) - 1)
        else:
            codes = rng.choice(len(mix), groups[-1] + 1, p=mix)[groups]
        losses = None
        if self.losses is not None:
            means = self.losses.means(len(mix))
            factors = np.ones(len(mix)) if self.raised is None else self.raised(day)
            losses = self.losses.of((means * factors)[codes], groups, rng)
        if self.unseen is not None:
            codes = np.where(rng.random(len(codes)) < self.unseen(day), -1, codes)
        return Day(codes, losses, groups)
