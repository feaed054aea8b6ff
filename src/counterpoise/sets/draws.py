"""How many independent draws of a context rows are worth that come in groups: days, patients, shops."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, special

from counterpoise.contexts import Contexts, encode
from counterpoise.exceptions import InvalidInputError
from counterpoise.times import as_times

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

_LEVEL = 0.999
"""Sets of a confidence up to this one are to cover: at it, the uncertainty of the estimate is counted in."""
_PSEUDO_DRAWS = 2.0
"""Contexts that expect no more draws than this count half: from few draws their variance is estimated too low."""
_UPPER = 1.6449
"""Standard errors that are added to an autocorrelation: the upper limit of a one-sided 95% interval."""
_BIAS = 0.05
"""Share of the long-run variance that may be lost by averaging over low frequencies."""
_MOST_COSINES = 64
_LARGEST_CORRELATION = 0.97
_CLEARLY = 2.5
"""Standard errors above which an autocorrelation is taken for one."""
_LONGEST_LAG = 32
"""Groups: the mix of two halves of a season is no longer alike."""
_TELLING = 12
"""Times the lag that there are groups, at the least: from fewer, chance correlations look like persistence."""
_WIDE = 2000
"""Contexts beyond which the evenness of the covariance is not looked at, and taken for that of independent draws."""


@dataclass(frozen=True)
class Draws:
    """How many independent draws of a context some rows are worth.

    Attributes
    ----------
    effective : float
        The number to size a set by: the estimate, moved towards fewer draws as far as it is uncertain.
    estimate : float
        The estimate itself.
    error : float
        Its standard error, relative to it.
    rows : float
        Rows, or the sum of their weights.
    groups : int
    ordered : bool
        Whether it follows from the order of the groups too: they resemble their neighbours.
    """

    effective: float
    estimate: float
    error: float
    rows: float
    groups: int
    ordered: bool


def effective_draws(contexts: Any, groups: Any, ordered: bool | None = False) -> float:
    r"""Return how many independent draws of a context the rows are worth.

    Rows of one day share its weather, and days in a row resemble each other: neither rows nor days are what a
    confidence set should count. With :math:`x_g` the counts of the contexts in group g, :math:`m_g` their sum, N all
    rows and p their shares, the design effect of Rao and Scott (1981) is

    .. math:: \frac{\operatorname{tr} V}{N (C - 1)}, \qquad V = \sum_g u_g u_g^\top, \quad
        u_g = (x_g - m_g p) / \sqrt p,

    and rows are worth :math:`N` over it. Groups in the order of time add what neighbours have in common: V is then the
    long-run variance, the mean of squared cosine transforms of the lowest frequencies (Lazarus, Lewis, Stock and
    Watson, 2018), their number such that what persists is hardly averaged away.

    The number that is returned leans towards fewer draws by as much as the estimate is uncertain: the limit of a
    confidence set is an F quantile then, instead of a chi-squared one, and draws are fewer by the ratio of the two at a
    confidence of 0.999. With many groups nothing is left of it.

    Parameters
    ----------
    contexts, groups : labels of shape (n_samples,)
        Any hashable labels; a table of several columns is crossed.
    ordered : bool or None
        Whether groups follow each other in time, in the order of their labels (text that holds dates is put in the
        order of the dates). The smaller of the two numbers, with and without order, is returned then. None does as
        ``draws="groups"`` of an estimator does: labels are taken to be in the order of time where they have an order,
        unless that order sorts the groups by context as well, as numbers of patients do that were given hospital by
        hospital. Dates are in the order of time in any case.

    Returns
    -------
    float
        From 1 to the number of rows. Where every row is a group of its own, and ``ordered`` is False, it is the number
        of rows; where groups are equally large and each has one context, the number of groups.

    Examples
    --------
    >>> import counterpoise as cpo
    >>> weather = ["rain"] * 20 + ["sun"] * 20 + ["sun"] * 20 + ["rain"] * 20
    >>> day = [k // 20 for k in range(80)]
    >>> cpo.effective_draws(weather, day)
    4.0
    """
    if ordered not in (True, False, None):
        raise InvalidInputError(f"ordered is {ordered!r:.60}; pass True, False, or None to let the labels decide.")
    encoded = encode(contexts)
    own = encode(groups, len(encoded.codes), role="group")
    return draws_in_groups(encoded.codes, own, ordered=ordered).effective


def draws_in_groups(
    contexts: Codes, groups: Contexts, counts: ArrayLike | None = None, *, ordered: bool | None = None
) -> Draws:
    """Return what rows are worth whose groups have labels, which may say in which order they are.

    Parameters
    ----------
    contexts : ndarray of int of shape (n,)
        Codes of contexts.
    groups : Contexts
        The groups, with codes of shape (n,).
    counts : array of shape (n,), optional
        How many rows each entry stands for, or their weight; 1 by default.
    ordered : bool or None
        See :func:`effective_draws`.
    """
    times = None if ordered is False else as_times(groups.labels)
    codes = groups.codes
    if times is not None:
        rank = np.empty(len(times), dtype=np.intp)
        rank[np.argsort(times, kind="stable")] = np.arange(len(times))
        codes = rank[codes]
    table = _GroupTable.of(codes, contexts, counts)
    if ordered is None:
        ordered = times is not None or not (_has_no_order(groups.labels) or table.sorted_by_context)
    return table.draws(ordered)


def count_draws(groups: Codes, contexts: Codes, counts: ArrayLike | None = None, *, ordered: bool = False) -> Draws:
    """Return what rows are worth, by the codes of their groups and contexts.

    Parameters
    ----------
    groups, contexts : ndarray of int of shape (n,)
        Codes; those of groups in the order of time where they are ordered. Pairs may occur more than once, so that
        tables of counts of several pieces can be put one after the other.
    counts : array of shape (n,), optional
        How many rows each entry stands for, or their weight; 1 by default.
    ordered : bool
    """
    return _GroupTable.of(groups, contexts, counts).draws(ordered)


def _has_no_order(labels: NDArray[Any]) -> bool:
    """Tell labels that are as they came, because they cannot be compared."""
    if labels.dtype.kind != "O":
        return False
    try:
        return any(b < a for a, b in pairwise(labels))
    except TypeError:
        return True


@dataclass(frozen=True, eq=False)
class _GroupTable:
    """Rows of groups in contexts; groups and contexts without rows are left out.

    Attributes
    ----------
    x : sparse matrix of shape (n_groups, n_contexts)
    """

    x: Any

    @classmethod
    def of(cls, groups: Codes, contexts: Codes, counts: ArrayLike | None) -> _GroupTable:
        values = np.ones(len(groups)) if counts is None else np.asarray(counts, dtype=np.float64)
        seen = values > 0
        if not seen.any():
            raise InvalidInputError("there are no rows: groups are empty.")
        # The largest of them is 1: draws do not depend on the scale of weights, whose squares may be beyond a float.
        scaled = values[seen] / values[seen].max()
        x = sparse.coo_array((scaled, (np.asarray(groups)[seen], np.asarray(contexts)[seen]))).tocsr()
        x.sum_duplicates()
        x = x[np.flatnonzero(x.sum(axis=1) > 0)][:, np.flatnonzero(x.sum(axis=0) > 0)]
        table = cls(x)
        vars(table)["rows"] = float(values[seen].sum())
        return table

    @cached_property
    def rows(self) -> float:
        """Rows, or their weight."""
        return float(self.x.sum())

    @cached_property
    def sizes(self) -> Array:
        """Rows of each group, in units of the largest entry, as all that follows."""
        return np.asarray(self.x.sum(axis=1), dtype=np.float64)

    @cached_property
    def total(self) -> float:
        return float(self.sizes.sum())

    @cached_property
    def p(self) -> Array:
        """Share of each context."""
        return np.asarray(self.x.sum(axis=0), dtype=np.float64) / self.total

    @property
    def sorted_by_context(self) -> bool:
        """Whether groups of one context, the most frequent of each group, follow each other without a break."""
        largest = np.asarray(self.x.argmax(axis=1)).ravel()
        n_runs = 1 + np.count_nonzero(largest[1:] != largest[:-1])
        return 1 < n_runs == len(np.unique(largest))

    def draws(self, ordered: bool) -> Draws:
        """Return how many draws the rows are worth."""
        n_groups, n_contexts = self.x.shape
        if n_groups == 1 or n_contexts == 1:
            # One group is one draw. Of one context nothing varies that could tell rows of a group from each other.
            return Draws(float(n_groups), float(n_groups), math.nan, self.rows, n_groups, ordered)
        alone = self._draws(*self._independent())
        if not ordered:
            return alone
        together = self._draws(*self._long_run(), ordered=True)
        return min(alone, together, key=lambda draws: draws.effective)

    def _draws(self, estimate: float, evenness: float, freedom: float, *, ordered: bool = False) -> Draws:
        """Return draws from an estimate less 1 that has so many degrees of freedom."""
        lean = max(1.0, _f_quantile(evenness, freedom) / _f_quantile(evenness, math.inf))
        error = math.sqrt(2.0 / freedom)
        # With n draws, p (1 - p) is estimated too small by a factor of 1 - 1 / n.
        least, most = (min(1.0 + one, self.rows) for one in (estimate / lean, estimate))
        return Draws(least, most, error, self.rows, self.x.shape[0], ordered)

    # --- what deviates: v = x - sizes p', which is never formed ------------------------------------------------------

    @cached_property
    def n_equal(self) -> float:
        """Groups, or as many of equal size as vary like them."""
        return self.total**2 / float(self.sizes @ self.sizes)

    def weights(self, draws: float, share: float = 1.0) -> Array:
        """Return what squared deviations of each context are multiplied by: 1 / p, less for contexts of few draws.

        Parameters
        ----------
        draws : float
        share : float
            How many of the groups are independent of each other. Rows that differ within a group make for more draws,
            but it takes groups to estimate a variance.
        """
        known = min(draws, share * self.n_equal)
        return 1.0 / (self.p + _PSEUDO_DRAWS / max(known, 1.0))

    def _ratio(self, weights: Array, variance: float) -> float:
        """Return the variance that independent rows would have, over the one that was found, times the rows."""
        alone = self.total**2 * float(weights @ (self.p * (1.0 - self.p)))
        return alone / variance if variance > 1e-12 * alone / self.total else math.inf

    def _squares(self, weights: Array) -> Array:
        """Return the weighted sum of squared deviations of each group."""
        own = self.x.multiply(self.x) @ weights
        squares = own - 2.0 * self.sizes * (self.x @ (weights * self.p)) + self.sizes**2 * (weights @ self.p**2)
        return np.maximum(squares, 0.0)

    def _covariance(self) -> Array:
        """Return the sum of outer products of deviations."""
        products = (self.x.T @ self.x).toarray()
        mixed = np.outer(self.x.T @ self.sizes, self.p)
        return products - mixed - mixed.T + (self.sizes @ self.sizes) * np.outer(self.p, self.p)

    def _most_even(self, weights: Array) -> float:
        """Return the degrees of freedom that the weighted deviations of independent rows have."""
        own = weights * self.p
        squares = own @ own - 2.0 * (own**2) @ self.p + (own @ self.p) ** 2
        return float((own @ (1.0 - self.p)) ** 2 / squares)

    def _evenness(self, trace: float, squares: float, weights: Array) -> float:
        """Return the degrees of freedom of a quadratic form (Satterthwaite), from the traces of V and of V^2."""
        most = self._most_even(weights)
        return most if trace**2 >= most * squares else max(1.0, trace**2 / squares)

    # --- groups that are independent of each other -------------------------------------------------------------------

    def _independent(self) -> tuple[float, float, float]:
        """Return the draws less 1, the evenness of the covariance, and degrees of freedom."""
        m, total = self.sizes, self.total
        moment = float(m @ m)
        # What a group pulls the shares towards itself by, is missing from its deviation.
        kept = 1.0 - 2.0 * float(m**2 @ m) / (total * moment) + moment / total**2
        crude = self._ratio(1.0 / self.p, float(self._squares(1.0 / self.p).sum()) / kept)
        weights = self.weights(1.0 + crude)
        squares = self._squares(weights)
        variance = float(squares.sum())
        estimate = self._ratio(weights, variance / kept)
        evenness = self._most_even(weights)
        if math.isinf(estimate):
            return estimate, evenness, math.inf
        if self.x.shape[1] <= _WIDE:
            scaled = self._covariance() * np.sqrt(np.outer(weights, weights))
            pairs = (float((scaled**2).sum()) - float(squares @ squares)) / (1.0 - float(m**2 @ m**2) / moment**2)
            evenness = self._evenness(variance, pairs, weights)
        return estimate, evenness, self._freedom(weights, squares, evenness)

    def _freedom(self, weights: Array, squares: Array, evenness: float) -> float:
        """Return degrees of freedom from the influence of each group on the logarithm of the design effect."""
        n_groups = len(squares)
        variance, alone = float(squares.sum()), float(weights @ (self.p * (1.0 - self.p)))
        slope = -weights * (1.0 - 2.0 * self.p) / (self.total * alone)
        leverage = self.x.T @ self.sizes - self.p * float(self.sizes @ self.sizes)
        slope -= 2.0 * weights * leverage / (self.total * variance)
        influence = squares / variance + self.x @ slope - self.sizes * float(slope @ self.p)
        spread = float(((influence - influence.mean()) ** 2).sum()) * n_groups / (n_groups - 1)
        if np.any(np.diff(self.x.indptr) > 1):
            # Of deviations that are normal it would be this; few groups may happen to be alike.
            spread = max(spread, 2.0 / ((n_groups - 1) * evenness))
        # Equally large groups of one context each have the variance of independent draws, and nothing is estimated.
        return 2.0 / spread if spread > 1e-12 else math.inf

    # --- groups in the order of time ---------------------------------------------------------------------------------

    def _long_run(self) -> tuple[float, float, float]:
        """Return the draws less 1, the evenness of the covariance, and degrees of freedom."""
        correlation = self._correlation()
        n_cosines = self._n_cosines(correlation)
        transforms, gains = np.empty((n_cosines, self.x.shape[1])), np.empty(n_cosines)
        across = self.x.T.tocsr()
        place = (np.arange(len(self.sizes)) + 0.5) * (math.pi / len(self.sizes))
        for k in range(n_cosines):
            wave = math.sqrt(2.0) * np.cos((k + 1) * place)
            mean = float(wave @ self.sizes) / self.total
            transforms[k] = across @ wave - self.p * (mean * self.total)
            gains[k] = _autoregressive(self.sizes * (wave - mean), correlation)
        # What the transforms lose at the ends and by their width, if it were an autoregression that persists.
        lost = _autoregressive(self.sizes, correlation) / float(gains.mean())
        crude = self._ratio(1.0 / self.p, lost * float(((transforms**2) @ (1.0 / self.p)).mean()))
        alone = self._ratio(1.0 / self.p, float(self._squares(1.0 / self.p).sum()))
        weights = self.weights(1.0 + crude, min(crude / alone, 1.0) if math.isfinite(crude) else 1.0)
        gram = (transforms * weights) @ transforms.T
        own = np.diag(gram)
        variance = float(own.mean())
        estimate = self._ratio(weights, lost * variance)
        pairs = (float((gram**2).sum()) - float(own @ own)) / max(n_cosines * (n_cosines - 1), 1)
        evenness = self._evenness(variance, pairs, weights) if n_cosines > 1 else 1.0
        return estimate, evenness, n_cosines * evenness

    def _correlation(self) -> float:
        """Return an upper limit of the correlation of neighbours, sizes and the noise within groups taken out."""
        weights = self.weights(1.0 + self._ratio(1.0 / self.p, float(self._squares(1.0 / self.p).sum())))
        variance = float(self._squares(weights).sum()) / float(self.sizes @ self.sizes)
        if variance <= 0.0:
            return 0.0
        found = self._lagged(1, weights) / variance
        # The first term is the bias of Marriott and Pope (1954).
        found += (1.0 + 3.0 * max(found, 0.0)) / self.n_equal
        known = self.n_equal * self._most_even(weights)
        found += _UPPER * math.sqrt(max(1.0 - found**2, 0.05) / known)
        # Noise within groups lowers the correlation at every lag alike; the ratio of two lags does not show it.
        error = 1.0 / math.sqrt(known)
        longest = min(_LONGEST_LAG, len(self.sizes) // _TELLING)
        lags = [2**k for k in range(longest.bit_length())]
        at = {lag: self._lagged(lag, weights) / variance for lag in (*lags, 2 * lags[-1])} if lags else {}
        for lag in lags:
            # What persists does so at all shorter distances.
            if not (at[lag] > _CLEARLY * error and at[2 * lag] > 0.0):
                break
            found = max(found, ((at[2 * lag] + error) / at[lag]) ** (1.0 / lag))
        return min(max(found, 0.0), _LARGEST_CORRELATION)

    def _lagged(self, lag: int, weights: Array) -> float:
        """Return the mean product of the deviations of groups so far apart, in units of the product of their sizes."""
        m, after, before = self.sizes, self.x[lag:], self.x[:-lag]
        own = weights * self.p
        both = float((after.multiply(before) @ weights).sum())
        both -= float(m[:-lag] @ (after @ own)) + float(m[lag:] @ (before @ own))
        return both / float(m[lag:] @ m[:-lag]) + float(own @ self.p)

    def _n_cosines(self, correlation: float) -> int:
        """Return how many low frequencies to average over: as many as lose little to such a correlation."""
        n_groups = len(self.sizes)
        most = min(n_groups - 1, max(3, int(n_groups ** (2 / 3))), _MOST_COSINES)
        if correlation <= 0.0:
            return most
        width = math.sqrt(3.0 * _BIAS / correlation) * (1.0 - correlation) / math.pi
        return min(most, max(3, int(width * n_groups)))


def _autoregressive(values: Array, correlation: float) -> float:
    """Return the quadratic form of the matrix ``correlation ** |s - t|``."""
    from scipy.signal import lfilter

    past = lfilter([1.0], [1.0, -correlation], values)[:-1]
    return float(values @ values) + 2.0 * correlation * float(values[1:] @ past)


def _f_quantile(over: float, under: float) -> float:
    """Return a quantile of the F distribution, whose second degrees of freedom may be infinite."""
    if under > 1e8:
        return 2.0 * float(special.gammaincinv(0.5 * over, _LEVEL)) / over
    return float(special.fdtri(over, under, _LEVEL))
