"""Means of held-out losses by context, and how they err together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

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
    factor : sparse array of shape (n_factors, n_contexts * n_columns)
        :math:`F' F` is the covariance of the means.
    skewness : ndarray of shape (n_contexts, n_columns)
        Of each mean: that of its units over the root of their number.
    degrees : ndarray of shape (n_contexts,)
        Degrees of freedom of the variances, fewer than units where these weigh unequally.
    n_units : ndarray of shape (n_contexts,)
    shares : sparse array of shape (n_groups, n_contexts), optional
        Of each group in each context, where some group has rows in several contexts.
    """

    mean: Array
    factor: sparse.csr_array
    skewness: Array
    degrees: Array
    n_units: NDArray[np.intp]
    shares: sparse.csr_array | None = None

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
        known = np.ones((n_contexts, values.shape[1]), dtype=bool)
        if not np.isfinite(values).all():
            known = _sums(~np.isfinite(values), codes, n_contexts) == 0
            values = np.where(known[codes], values, 0.0)
        # In units in which squares and cubes are floats; a power of two, which rounds nothing.
        size = 2.0 ** max(int(np.frexp(np.abs(values).max(initial=0.0))[1]), -900)
        values, event = values / size, event / size
        # Weights count relative to each other, and as they stand their products may overflow.
        weight = weight / weight.max()
        total = np.bincount(codes, weight, n_contexts)
        mean = _sums(weight[:, None] * values, codes, n_contexts) / total[:, None]
        # A unit's influence: by how much it moves the mean.
        moved, share, home, first = weight[:, None] * (values - mean[codes]), weight, codes, np.arange(len(codes))
        if groups is not None:
            # A group counts as one unit in each of its contexts.
            _, first, unit = np.unique(groups * n_contexts + codes, return_index=True, return_inverse=True)
            home, share = codes[first], np.bincount(unit, weight).astype(np.float64)
            moved = _sums(moved, unit, len(first))
        share, moved = share / total[home], moved / total[home][:, None]
        n_units = np.bincount(home, minlength=n_contexts)
        with np.errstate(divide="ignore", invalid="ignore"):
            influence = moved / np.sqrt(1.0 - share)[:, None]
            equivalent = np.bincount(home, share**2, n_contexts) ** 2 / np.bincount(home, share**4, n_contexts)
        influence[n_units[home] == 1] = 0.0
        blocks = _gram(influence, home, n_contexts)
        extra = _unseen_variance(moved / share[:, None] + mean[home], home, n_units, event)
        shares = None
        if groups is None or len(first) == len(np.unique(groups)):
            factor = _block_factor(blocks + extra)
        else:
            across = np.unique(groups, return_inverse=True)[1][first]
            factor = _group_factor(influence, home, across, extra)
            shares = sparse.csr_array((share, (across, home)), shape=(int(across.max()) + 1, n_contexts))
        return cls(
            np.where(known, mean * size, np.nan),
            factor * size,
            _skewness(influence, blocks, home, n_units),
            np.maximum(equivalent * (1.0 - 1.0 / n_units), 1.0),
            n_units,
            shares,
        )

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
        normal = np.stack([half, -half], axis=1).reshape(-1, *self.mean.shape)
        with np.errstate(invalid="ignore", divide="ignore"):
            score = np.where(self.error > 0, normal / self.error, 0.0)
        errors = self.error * lengthened(score, self.skewness)
        few = self.degrees < _MANY_DEGREES
        degrees = self.degrees[few]
        if self.shares is None:
            squares = rng.chisquare(degrees, (len(half), few.sum())) / degrees
        else:
            # Groups that contexts share make their variances err together (Wilson and Hilferty's approximation).
            spread = np.sqrt(2.0 / (9.0 * degrees))
            squares = np.maximum(1.0 - spread**2 + spread * rng.standard_normal((len(half), 1)), 0.05) ** 3
        errors[:, few] /= np.sqrt(np.repeat(squares, 2, axis=0))[..., None]
        return errors

    def equivalent_degrees(self, mixes: Array) -> Array | None:
        """Return degrees of freedom of means in mixes, of shape (n_mixes, n_contexts), where contexts share groups."""
        if self.shares is None:
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
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = 3.0 / skewness * (np.cbrt(1.0 + skewness * (score - skewness / 6.0)) - 1.0)
    return np.where((np.abs(moved) > np.abs(score)) & (moved * score > 0), moved, score)


def _skewness(influence: Array, blocks: Array, home: NDArray[np.intp], n_units: NDArray[np.intp]) -> Array:
    """Return the skewness of means, drawn towards a common one where a context has few units to show its own."""
    spread = np.sqrt(np.einsum("cdd->cd", blocks))
    with np.errstate(divide="ignore", invalid="ignore"):
        third = _sums(influence * influence * influence, home, len(n_units)) / spread**3
        third *= (np.sqrt(n_units * (n_units - 1.0)) / (n_units - 2.0))[:, None]
    root = np.sqrt(np.maximum(n_units, 1.0))[:, None]
    own = np.where(np.isfinite(third), third, 0.0) * root
    common = np.average(own, axis=0, weights=np.maximum(n_units, 1))
    trust = (n_units / (n_units + _COMMON_UNITS))[:, None]
    return (trust * own + (1.0 - trust) * common) / root


def _sums(values: Array, codes: NDArray[np.intp], size: int) -> Array:
    return np.stack([np.bincount(codes, column, size) for column in values.T], axis=1)


def _gram(influence: Array, home: NDArray[np.intp], n_contexts: int) -> Array:
    """Return the products of columns summed over the units of each context."""
    width = influence.shape[1]
    blocks = np.empty((n_contexts, width, width))
    for i in range(width):
        for j in range(i + 1):
            blocks[:, i, j] = blocks[:, j, i] = np.bincount(home, influence[:, i] * influence[:, j], n_contexts)
    return blocks


def _unseen_variance(units: Array, home: NDArray[np.intp], n_units: NDArray[np.intp], event: float | Array) -> Array:
    """Return the variance to add where nearly all units of a context are tied, from events in all contexts.

    Three rows without an error do not prove that there are none. An event is a unit off the value that most units of
    its context share; what events are worth is taken from all contexts, how many there might be from the context.
    """
    n_contexts, width = len(n_units), units.shape[1]
    moved = units - _shared_values(units, home, n_units)[home]
    moved[np.abs(moved) <= 1e-12 * np.abs(units).max(axis=0, initial=0.0)] = 0.0
    events = _sums(moved != 0.0, home, n_contexts)
    agree = n_units[:, None] - events
    tied = (events < _FEW_EVENTS) & (agree >= np.maximum(2.0, 0.5 * n_units[:, None]))
    if not tied.any():
        return np.zeros((n_contexts, width, width))
    # Only contexts that are tied show what an event is there; elsewhere every unit is off the median.
    shown = np.where(tied[home], moved, 0.0)
    number = np.count_nonzero(shown, axis=0)
    root = np.sqrt(np.maximum(number, 1))
    size = (shown / root).T @ (shown / root) + np.diag(np.where(number == 0, np.square(event), 0.0))
    both = tied[:, :, None] & tied[:, None, :]
    return np.where(both, size, 0.0) * (_PSEUDO_EVENTS / np.square(np.maximum(n_units, 1.0)))[:, None, None]


def _shared_values(units: Array, home: NDArray[np.intp], n_units: NDArray[np.intp]) -> Array:
    """Return the value that nearly all units of a context share, where they do, of shape (n_contexts, n_columns).

    It is then that of most units, whichever are looked at; few enough are all looked at.
    """
    looked_at = 2 * _FEW_EVENTS
    order = np.argsort(home.astype(np.uint16) if len(n_units) <= 1 << 16 else home, kind="stable")
    place = np.arange(looked_at)
    rows = np.minimum((np.cumsum(n_units) - n_units)[:, None] + place, len(order) - 1)
    some = np.where((place < n_units[:, None])[..., None], units[order[rows]], np.inf)
    n = np.clip(n_units, 1, looked_at)
    middle = np.sort(some, axis=1)[np.arange(len(n)), n - 1 - n // 2]
    return np.where(n_units[:, None] > 0, middle, 0.0)


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


def _group_factor(influence: Array, home: NDArray[np.intp], group: NDArray[np.intp], extra: Array) -> sparse.csr_array:
    """Return a factor of the covariance where some groups have rows in several contexts."""
    width, n_contexts = influence.shape[1], len(extra)
    columns = home[:, None] * width + np.arange(width)
    rows = np.broadcast_to(group[:, None], columns.shape)
    shape = (int(group.max()) + 1, n_contexts * width)
    factor = sparse.csr_array((influence.ravel(), (rows.ravel(), columns.ravel())), shape=shape)
    if extra.any():
        factor = sparse.csr_array(sparse.vstack([factor, _block_factor(extra)]))
    if factor.shape[0] <= factor.shape[1] or factor.shape[1] > _DENSE:
        return factor
    return sparse.csr_array(_root((factor.T @ factor).toarray()))
