r"""Evidence that the risk of a context has grown beyond what was promised.

Losses are not negative, and may be as large as they like. While their mean is at most :math:`U`, a bet with the share
:math:`\lambda` of the wealth, which multiplies it by :math:`1 + \lambda (\ell / U - 1)`, does not win on average and
never loses all. Rows that belong together, at most m, are one bet with the factor
:math:`1 + \lambda \sum (\ell / U - 1) / m`, whose expectation is at most 1 however they depend on one another.

What was promised is an estimate itself. The bound :math:`U` is above it by a one-sided band that holds for all contexts
together, for which part of the error budget is set aside. The losses that arrive tell its width too: while nothing has
changed they are spread as the old ones were, which may have been few, or came without a standard error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from counterpoise.table import Table
from counterpoise.tables.tabular.card import Part, numbers_json
from counterpoise.watch.bets import Stakes, Wealth

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

_SHARES = np.array([0.03, 0.1, 0.3, 0.7])
"""Of the wealth that is bet."""

_ENOUGH = 10
"""Losses from which their spread is taken, where it was not promised."""

_MANY = 50
"""Losses from which a normal approximation is good enough for an upper end."""

_PILOT = 100
"""Losses of one update that are used up for their spread, where none came before."""


@dataclass(frozen=True, eq=False)
class Losses:
    """The losses of an update, one for each unit of rows that belong together, ordered by context.

    Attributes
    ----------
    codes : ndarray of shape (n_units,)
        Contexts.
    values : ndarray of shape (n_units,)
        Means over the rows of a unit.
    sizes : ndarray of shape (n_units,)
        What each counts: its rows, over those of the largest unit of its context.
    worth : float
        How many independent draws a unit of full size counts as, at most 1.
    """

    codes: Indices
    values: Array
    sizes: Array
    worth: float = 1.0

    @classmethod
    def of(
        cls, codes: Indices, values: Array, units: Indices | None, largest: Array | None = None, worth: float = 1.0
    ) -> Self:
        """Take the means over rows that belong together.

        Parameters
        ----------
        units : ndarray of shape (n_rows,), optional
            Which rows belong together; those of other contexts never do.
        largest : ndarray of shape (n_contexts,), optional
            Rows of the largest unit of each context, where there are more rows than these.
        worth : float
            How many draws a row counts as.
        """
        sizes = np.ones(len(codes))
        if units is not None and len(codes):
            cells, inverse, counts = np.unique(
                np.stack([codes, units]), axis=1, return_inverse=True, return_counts=True
            )
            n_contexts = int(codes.max()) + 1
            most = largest_units(codes, units, n_contexts) if largest is None else largest
            codes, values = cells[0], np.bincount(inverse.ravel(), values) / counts
            sizes, worth = counts / most[codes], min(1.0, worth * float(most[codes].mean()))
        order = np.argsort(codes, kind="stable")
        return cls(codes[order], values[order], sizes[order], worth)

    def sums(self, n_contexts: int, power: int = 1) -> Array:
        """Return the sums of a power of the losses, context by context."""
        return np.bincount(self.codes, self.sizes * self.values**power, n_contexts).astype(np.float64)

    def split(self, waiting: NDArray[np.bool_], seed: int) -> tuple[Self, ...]:
        """Return some of the losses of contexts that wait for a first look at their spread, and all others.

        They are drawn at random, since rows may be sorted by anything.
        """
        first = np.zeros(len(self.codes), dtype=bool)
        random = np.random.default_rng(seed)
        for c in np.flatnonzero(waiting):
            here = np.flatnonzero(self.codes == c)
            first[random.permutation(here)[: min(_PILOT, math.ceil(len(here) / 2))]] = True
        return tuple(
            replace(self, codes=self.codes[one], values=self.values[one], sizes=self.sizes[one])
            for one in (first, ~first)
        )


def largest_units(codes: Indices, units: Indices, n_contexts: int) -> Array:
    """Return how many rows of one context belong together at most, for each context; at least 1."""
    largest = np.ones(n_contexts)
    if len(codes):
        cells, counts = np.unique(np.stack([codes, units]), axis=1, return_counts=True)
        np.maximum.at(largest, cells[0], counts.astype(np.float64))
    return largest


@dataclass(frozen=True, eq=False)
class RiskState:
    """What is known after some updates.

    Attributes
    ----------
    n, sums, squares : ndarray of shape (n_contexts,)
        How many losses, their sums and their sums of squares.
    draws : ndarray of shape (n_contexts,)
        What they are worth.
    wealth : Wealth
        Of the bets.
    """

    n: Array
    sums: Array
    squares: Array
    draws: Array
    wealth: Wealth

    def plus(self, losses: Losses) -> Self:
        """Count losses."""
        n_contexts = len(self.n)
        n = losses.sums(n_contexts, 0)
        return replace(
            self,
            n=self.n + n,
            draws=self.draws + losses.worth * n,
            sums=self.sums + losses.sums(n_contexts),
            squares=self.squares + losses.sums(n_contexts, 2),
        )

    @property
    def means(self) -> Array:
        """Of the losses; NaN where there are none."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.sums / self.n

    @property
    def spreads(self) -> Array:
        """Standard deviations; NaN where there are fewer than two losses."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sqrt(np.maximum(self.squares - self.n * self.means**2, 0.0) / (self.n - 1.0))

    @property
    def as_json(self) -> dict[str, Any]:
        """The same as what JSON can hold."""
        sums = {name: numbers_json(getattr(self, name)) for name in ("n", "sums", "squares", "draws")}
        return {**sums, "logs": self.wealth.as_json}


@dataclass(frozen=True, eq=False)
class RiskBets:
    """The bets against a promise.

    Parameters
    ----------
    promised : ndarray of shape (n_contexts,)
        Mean losses; NaN where nothing is promised.
    errors : ndarray of shape (n_contexts,)
        Their standard errors; NaN where they are not known.
    n : ndarray of shape (n_contexts,)
        Draws that each rests on; infinite where it is no estimate.
    doubt : float
        The error budget of the bound.
    """

    promised: Array
    errors: Array
    n: Array
    doubt: float

    @property
    def begin(self) -> RiskState:
        """Before the first update."""
        n_contexts = len(self.promised)
        nothing = np.zeros(n_contexts)
        return RiskState(nothing, nothing, nothing, nothing, Wealth.none(n_contexts * len(_SHARES)))

    @property
    def weights(self) -> Array:
        """The stake of each bet on a context."""
        return np.full(len(_SHARES), 1.0 / len(_SHARES))

    @property
    def n_asked(self) -> int:
        """Contexts about which something is promised."""
        return int(np.count_nonzero(np.isfinite(self.promised)))

    def bounds(self, state: RiskState) -> Array:
        """Return how large each risk may be if the promise holds; NaN where that cannot be told yet."""
        # A context whose losses are all alike so far says nothing of their spread.
        there = (state.n >= _ENOUGH) & (state.spreads > 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            # Of a few skewed losses the spread is often too small, and then the mean is, too. That of the losses which
            # have come since is not tied to it.
            errors = np.fmax(self.errors, np.where(there, state.spreads / np.sqrt(self.n), np.nan))
            degrees = np.fmax(np.where(np.isnan(self.errors), 1.0, self.n - 1.0), np.where(there, state.n - 1.0, 1.0))
            band = stats.t.isf(self.doubt / max(self.n_asked, 1), np.clip(degrees, 1.0, 1e9)) * errors
        found = np.where(np.isinf(self.n), self.promised, self.promised + band)
        return np.where(found > 0.0, found, np.nan)

    def after(self, state: RiskState, losses: Losses | None, stakes: Stakes, update: int) -> RiskState:
        """Return the state after an update, with losses or without."""
        n_contexts = len(self.promised)
        factors = np.zeros((n_contexts, len(_SHARES)))
        if losses is not None:
            waiting = np.isnan(self.bounds(state)) & np.isfinite(self.promised)
            first, rest = losses.split(waiting, update)
            state = state.plus(first)
            bounds = self.bounds(state)
            with np.errstate(invalid="ignore"):
                gains = np.log1p(_SHARES * (rest.sizes * (rest.values / bounds[rest.codes] - 1.0))[:, None])
            for k in range(len(_SHARES)):
                factors[:, k] = np.bincount(rest.codes, np.nan_to_num(gains[:, k], posinf=np.inf), n_contexts)
            factors *= losses.worth
            state = state.plus(rest)
        return replace(state, wealth=state.wealth.after(factors.ravel(), stakes, update))

    def evidence(self, state: RiskState, left: float) -> Array:
        """Return the e-value of each context."""
        with np.errstate(over="ignore"):
            wealth = np.exp(state.wealth.logs).reshape(len(self.promised), -1) @ self.weights
        return np.where(np.isfinite(self.promised), wealth + left, 0.0)

    def table(self, state: RiskState, contexts: NDArray[Any], doubt: float, left: float) -> Table:
        """Return promises, bounds, means with a confidence sequence, and e-values."""
        lower, upper = sequence(state, doubt / max(len(self.promised), 1))
        return Table(
            {
                "context": contexts,
                "n": state.n,
                "promised": self.promised,
                "bound": self.bounds(state),
                "now": state.means,
                "lower": lower,
                "upper": upper,
                "e_value": self.evidence(state, left),
            }
        )

    def read(self, part: Part) -> RiskState:
        """Return a state that was written."""
        n_contexts = len(self.promised)
        n, sums, squares, draws = (
            part[name].numbers(n_contexts, finite=True, least=0.0) for name in ("n", "sums", "squares", "draws")
        )
        return RiskState(n, sums, squares, draws, Wealth.read(part["logs"], n_contexts * len(_SHARES)))


def sequence(state: RiskState, doubt: float) -> tuple[Array, Array]:
    r"""Return a confidence sequence of the mean losses: at every moment it holds them, with probability 1 - doubt.

    The lower end is an empirical Bernstein bound: with :math:`\psi(\lambda) = -\log(1-\lambda)-\lambda`,
    :math:`\exp(\lambda \sum (\ell/m - 1) - \psi(\lambda) \sum (\ell/m - 1)^2)` is an e-process for every mean up to
    :math:`m` of losses that are not negative (Fan, Grama and Liu 2015; Howard and others 2021), and needs their sums
    only. Without a largest possible loss there is no upper end of the kind: this one is the normal mixture, which
    holds as losses become many (Waudby-Smith and others 2024).
    """
    n, means, spreads = state.n, state.means, state.spreads
    draws = np.maximum(state.draws, 1e-300)
    worth = (draws / np.maximum(n, 1e-300))[:, None]
    grid = np.geomspace(0.003, 0.9, 12)
    psi = -np.log1p(-grid) - grid
    level = math.log(2.0 / doubt)

    def evidence(m: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            first = state.sums / m - n
            second = state.squares / m**2 - 2.0 * state.sums / m + n
            return np.asarray(np.logaddexp.reduce(worth * (np.outer(first, grid) - np.outer(second, psi)), axis=1))

    low, high = means * 1e-6, means.copy()
    for _ in range(60):
        middle = 0.5 * (low + high)
        beyond = evidence(middle) - math.log(len(grid)) >= level
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    rho = 1.0 / _MANY
    # A context without losses has no end.
    with np.errstate(invalid="ignore", divide="ignore"):
        width = np.sqrt(2.0 * (draws * rho + 1.0) / (draws**2 * rho) * np.log(2.0 * np.sqrt(draws * rho + 1.0) / doubt))
        upper = np.where(n >= _MANY, means + spreads * width, np.inf)
    return np.where(n > 0, np.where(low > means * 2e-6, low, 0.0), 0.0), np.where(n > 0, upper, np.inf)
