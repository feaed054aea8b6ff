"""Means of held-out losses by context, and how they err together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from counterpoise.inference.units import Units

Array = NDArray[np.float64]

_FEW_EVENTS = 5
"""Units off the most common value below which a context's own variance says little: a 0-1 loss with few errors."""

_PSEUDO_EVENTS = 4
"""Events that such a context is given beside its own, about the square of 1.96, as in Wilson's interval."""

_COMMON_UNITS = 100
"""Units of a context at which half of its skewness is its own."""

_MOST_SKEWED = 0.35
"""Skewness of a mean up to which the transformation for it is sensible."""

_MANY_DEGREES = 200
"""Degrees of freedom from which Student's distribution is taken for the normal one."""

_PIECE = 1 << 15
"""Errors whose tails are lengthened at once, so that what that takes stays in the cache."""

_ROUNDING = 1e-12
"""Of the largest value of a column: units that differ by less agree."""

_DENSE = 1500
"""Means up to which their covariance is factored; beyond, errors are drawn by a multiplier for each group."""


@dataclass(frozen=True, eq=False)
class PairedMeans:
    r"""Means of several columns of losses in each context, paired row by row, with their joint sampling error.

    The unit of sampling is a row, or all rows of a group. Standard errors allow for the pull of heavy units (HC2); for
    rows of equal weight they are the textbook ones.

    Attributes
    ----------
    mean : ndarray of shape (n_contexts, n_columns)
        NaN where a column has no value in a context.
    size : ndarray of shape (n_columns,)
        The unit of each column in ``covariance`` and ``shared``, a power of two.
    covariance : ndarray of shape (n_contexts, n_columns, n_columns)
        Of the means of each context.
    skewness : ndarray of shape (n_contexts, n_columns)
        Of each mean: that of its units over the root of their number.
    degrees : ndarray of shape (n_contexts,)
        Degrees of freedom of the variances, fewer than units where these weigh unequally.
    n_units : ndarray of shape (n_contexts,)
    shared : SharedGroups, optional
        Where some group has rows in several contexts, whose means then err together.
    """

    mean: Array
    size: Array
    covariance: Array
    skewness: Array
    degrees: Array
    n_units: NDArray[np.intp]
    shared: SharedGroups | None = None

    @classmethod
    def of(
        cls,
        values: Array,
        codes: NDArray[np.intp],
        n_contexts: int,
        weight: Array,
        groups: NDArray[np.intp] | None = None,
        event: float | Array = 0.0,
    ) -> PairedMeans:
        """Return the means of rows.

        Parameters
        ----------
        values : ndarray of shape (n_samples, n_columns)
            A column that is not finite in some row of a context has no value there.
        codes : ndarray of shape (n_samples,)
            The context of each row.
        groups : ndarray of shape (n_samples,), optional
            Rows with one code belong together; by default each is a unit of its own.
        event : float or ndarray of shape (n_columns,)
            How far off its value a unit might be in a column in which all units of every context agree.
        """
        pairs = [(k, None) for k in range(values.shape[1])]
        return cls.between(values.T, pairs, codes, n_contexts, weight, groups, event)

    @classmethod
    def between(
        cls,
        losses: Sequence[Array] | Array,
        pairs: Sequence[tuple[int, int | None]],
        codes: NDArray[np.intp],
        n_contexts: int,
        weight: Array,
        groups: NDArray[np.intp] | None = None,
        event: float | Array = 0.0,
    ) -> PairedMeans:
        """Return the means of differences of losses; see :meth:`of`.

        Parameters
        ----------
        losses : sequence of ndarray of shape (n_samples,)
        pairs : sequence of pairs of int
            The columns: which of the losses, and which are taken off; None for nothing.
        """
        units = Units.of(losses, pairs, codes, n_contexts, weight, groups)
        heaviest, event = np.zeros(n_contexts), np.broadcast_to(event / units.size, len(pairs))
        np.maximum.at(heaviest, units.home, units.share)
        # Next to a unit whose share is rounded to 1 no other counts.
        n_units = np.where(heaviest < 1.0, units.counts, np.minimum(units.counts, 1))
        covariance, third = units.moments()
        with np.errstate(divide="ignore", invalid="ignore"):
            squares, fourth = (np.bincount(units.home, units.share**k, n_contexts) for k in (2, 4))
            degrees = np.maximum(squares**2 / fourth * (1.0 - 1.0 / n_units), 1.0)
        skewness = _skewness(third, covariance, n_units)
        extra, shared = _unseen_variance(units, event), None
        if units.group is not None:
            shared = SharedGroups(units.influence(0, len(units.home)).T, units.home, units.group, units.share, extra)
        mean = np.where(units.known, units.mean * units.size[:, None], np.nan).T
        return cls(mean, units.size, covariance + extra, skewness, degrees, n_units, shared)

    def columns(self, which: Sequence[int]) -> PairedMeans:
        """Return some of the columns, in this order; one may occur several times."""
        at = np.asarray(which, dtype=np.intp)
        return PairedMeans(
            self.mean[:, at],
            self.size[at],
            self.covariance[:, at[:, None], at],
            self.skewness[:, at],
            self.degrees,
            self.n_units,
            None if self.shared is None else self.shared.columns(at),
        )

    @cached_property
    def factor(self) -> sparse.csr_array:
        """A sparse array of shape (n_factors, n_contexts * n_columns): :math:`F' F` is the covariance of the means."""
        found = _block_factor(self.covariance) if self.shared is None else self.shared.factor
        return found.multiply(np.tile(self.size, len(self.mean))[None]).tocsr()

    @property
    def shares(self) -> sparse.csr_array | None:
        """Of each group in each context, where some group has rows in several contexts."""
        return None if self.shared is None else self.shared.shares(len(self.mean))

    @cached_property
    def error(self) -> Array:
        """The standard error of each mean."""
        return np.sqrt(np.asarray(self.factor.multiply(self.factor).sum(axis=0))).reshape(self.mean.shape)

    def covered(self, scenario: Array) -> Array:
        """Return combinations of the means, whose errors' covariances are their inner products.

        Parameters
        ----------
        scenario : ndarray of shape (n_scenarios, n_contexts, n_columns)
        """
        return np.asarray((self.factor @ scenario.reshape(len(scenario), -1).T).T)

    def drawn(self, n_draws: int, rng: np.random.Generator) -> Array:
        """Draw errors of all means, as long in the tails as their few and skewed units make them.

        Returns
        -------
        ndarray of shape (n_draws, n_contexts, n_columns)
        """
        half = rng.standard_normal((-(-n_draws // 2), self.factor.shape[0])) @ self.factor
        # Each draw with its mirror image: what is linear in the errors then has no Monte Carlo error in its median.
        errors = np.stack([half, -half], axis=1).reshape(-1, *self.mean.shape)
        unit = np.divide(1.0, self.error, out=np.zeros_like(self.error), where=self.error > 0)
        step = max(1, _PIECE // self.mean.size)
        for start in range(0, len(errors), step):
            some = errors[start : start + step]
            some[:] = self.error * lengthened(some * unit, self.skewness)
        few = self.degrees < _MANY_DEGREES
        degrees = self.degrees[few]
        if self.shared is None:
            squares = rng.chisquare(degrees, (len(half), few.sum())) / degrees
        else:
            # Groups that contexts share make their variances err together (Wilson and Hilferty's approximation).
            spread = np.sqrt(2.0 / (9.0 * degrees))
            squares = np.maximum(1.0 - spread**2 + spread * rng.standard_normal((len(half), 1)), 0.05) ** 3
        root = np.sqrt(squares)
        if few.all():
            for pair in (errors[0::2], errors[1::2]):
                pair /= root[..., None]
        else:
            errors[:, few] /= np.repeat(root, 2, axis=0)[..., None]
        return errors

    def equivalent_degrees(self, mixes: Array) -> Array | None:
        """Return degrees of freedom of means in mixes, of shape (n_mixes, n_contexts), where contexts share groups."""
        if self.shared is None:
            return None
        weight = np.square((self.shares @ np.abs(mixes).T).T)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.maximum(weight.sum(axis=1) ** 2 / np.square(weight).sum(axis=1) - 1.0, 1.0)


def lengthened(score: Array, skewness: Array) -> Array:
    r"""Return a normal error of a studentised mean, further out where skewness makes its tail longer.

    Hall's transformation, :math:`t + \gamma t^2 / 3 + \gamma^2 t^3 / 27 + \gamma / 6 = z`, solved for t, where
    :math:`\gamma` is the skewness of the mean. A tail that it would shorten is left as it is, since the skewness of few
    rows is itself uncertain.
    """
    skewness = np.clip(skewness, -_MOST_SKEWED, _MOST_SKEWED)
    # The difference of a cube root and one, as a quotient in which a small skewness does not cancel.
    aside = score - skewness / 6.0
    root = np.cbrt(1.0 + skewness * aside)
    moved = 3.0 * aside / (root * (root + 1.0) + 1.0)
    return np.where((np.abs(moved) > np.abs(score)) & (moved * score > 0), moved, score)


def _skewness(third: Array, covariance: Array, n_units: NDArray[np.intp]) -> Array:
    """Return the skewness of means, drawn towards a common one where a context has few units to show its own."""
    spread = np.sqrt(np.einsum("cdd->cd", covariance))
    with np.errstate(divide="ignore", invalid="ignore"):
        third = third / spread**3
        third *= (np.sqrt(n_units * (n_units - 1.0)) / (n_units - 2.0))[:, None]
    root = np.sqrt(np.maximum(n_units, 1.0))[:, None]
    own = np.where(np.isfinite(third), third, 0.0) * root
    common = np.average(own, axis=0, weights=np.maximum(n_units, 1))
    trust = (n_units / (n_units + _COMMON_UNITS))[:, None]
    return (trust * own + (1.0 - trust) * common) / root


def _unseen_variance(units: Units, event: Array) -> Array:
    """Return the variance to add where nearly all units of a context are tied, from events in all contexts.

    Three rows without an error do not prove that there are none. An event is a unit off the value that most units of
    its context share; what events are worth is taken from all contexts, how many there might be from the context.
    """
    n_units, home, n_columns = units.counts, units.home, len(units.pairs)
    extra = np.zeros((len(n_units), n_columns, n_columns))
    some = [k for k in range(n_columns) if _may_be_tied(units, k)]
    if not some:
        return extra
    moved, tied = (np.empty((n, len(some)), kind) for n, kind in ((len(home), float), (len(n_units), bool)))
    for at, k in enumerate(some):
        moved[:, at] = 0.0
        if units.largest[k] > 0.0:
            values = units.values(k)
            off = values - _shared_value(units, k)[home]
            moved[:, at] = np.where(np.abs(off) <= _ROUNDING * np.abs(values).max(initial=0.0), 0.0, off)
        tied[:, at] = _are_tied(np.bincount(home, moved[:, at] != 0.0, len(n_units)), n_units)
    # Only contexts that are tied show what an event is there; elsewhere every unit is off the median.
    shown = np.where(tied[home], moved, 0.0)
    number = np.count_nonzero(shown, axis=0)
    root = np.sqrt(np.maximum(number, 1))
    size = (shown / root).T @ (shown / root) + np.diag(np.where(number == 0, np.square(event[some]), 0.0))
    both = tied[:, :, None] & tied[:, None, :]
    added = np.where(both, size, 0.0) * (_PSEUDO_EVENTS / np.square(np.maximum(n_units, 1.0)))[:, None, None]
    extra[:, np.array(some)[:, None], some] = added
    return extra


def _are_tied(events: NDArray[Any], n_units: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Tell in which contexts so few units are off the value of the others that their variance says little."""
    return (events < _FEW_EVENTS) & (n_units - events >= np.maximum(2.0, 0.5 * n_units))


def _may_be_tied(units: Units, k: int) -> bool:
    """Tell whether a column may be tied in some context, by the first units of each: most columns are nowhere near."""
    first, there = units.first
    value = _shared_value(units, k)
    off = np.abs(units.values(k, first) - value[:, None]) > _ROUNDING * units.largest[k]
    events, seen = np.count_nonzero(off & there, axis=1), np.count_nonzero(there, axis=1)
    return bool(((events < _FEW_EVENTS) & ((seen < units.counts) | _are_tied(events, units.counts))).any())


def _shared_value(units: Units, k: int) -> Array:
    """Return the value that nearly all units of each context share, where they do.

    It is then that of most units, whichever are looked at; few enough are all looked at.
    """
    first, there = units.first
    n = np.clip(units.counts, 1, first.shape[1])
    some = np.sort(np.where(there, units.values(k, first), np.inf), axis=1)
    return np.where(units.counts > 0, some[np.arange(len(n)), n - 1 - n // 2], 0.0)


def _root(covariance: Array) -> Array:
    """Return a factor of covariances: the symmetric root of correlations, which does not jump with rounding."""
    spread = np.sqrt(np.einsum("...dd->...d", covariance))
    with np.errstate(divide="ignore"):
        unit = np.where(spread > 0.0, 1.0 / spread, 0.0)
    values, vectors = np.linalg.eigh(covariance * unit[..., :, None] * unit[..., None, :])
    root = (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return root * spread[..., None, :]


def _block_factor(blocks: Array) -> sparse.csr_array:
    """Return a factor of a covariance that has a block for each context."""
    roots = _root(blocks)
    n_contexts, width = blocks.shape[:2]
    columns = np.broadcast_to(np.arange(n_contexts * width).reshape(n_contexts, 1, width), roots.shape)
    starts = np.arange(0, roots.size + 1, width)
    return sparse.csr_array((roots.ravel(), columns.ravel(), starts), shape=(n_contexts * width,) * 2)


@dataclass(frozen=True, eq=False)
class SharedGroups:
    """How much groups with rows in several contexts move each mean.

    Attributes
    ----------
    influence : ndarray of shape (n_units, n_columns)
        Of the part of a group that is in one context.
    home, group : ndarray of shape (n_units,)
        That context, and the group.
    share : ndarray of shape (n_units,)
        Of the weight of its context.
    extra : ndarray of shape (n_contexts, n_columns, n_columns)
        Covariance that no group has a part in.
    """

    influence: Array
    home: NDArray[np.intp]
    group: NDArray[np.intp]
    share: Array
    extra: Array

    def columns(self, at: NDArray[np.intp]) -> SharedGroups:
        """Return some of the columns."""
        return replace(self, influence=self.influence[:, at], extra=self.extra[:, at[:, None], at])

    def shares(self, n_contexts: int) -> sparse.csr_array:
        """Return the share of each group in each context."""
        shape = (int(self.group.max()) + 1, n_contexts)
        return sparse.csr_array((self.share, (self.group, self.home)), shape=shape)

    @property
    def factor(self) -> sparse.csr_array:
        """A factor of the covariance."""
        width, n_contexts = self.influence.shape[1], len(self.extra)
        columns = self.home[:, None] * width + np.arange(width)
        rows = np.broadcast_to(self.group[:, None], columns.shape)
        shape = (int(self.group.max()) + 1, n_contexts * width)
        factor = sparse.csr_array((self.influence.ravel(), (rows.ravel(), columns.ravel())), shape=shape)
        if self.extra.any():
            factor = sparse.csr_array(sparse.vstack([factor, _block_factor(self.extra)]))
        if factor.shape[0] <= factor.shape[1] or factor.shape[1] > _DENSE:
            return factor
        return sparse.csr_array(_root((factor.T @ factor).toarray()))
