"""What held-out losses say about excess risk: bounds of the largest of many, and of differences of these."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from counterpoise.contexts import Contexts, encode, shown
from counterpoise.core.robustness import Mixes, Robustness
from counterpoise.exceptions import InvalidInputError
from counterpoise.inference.differences import difference_interval
from counterpoise.inference.intervals import (
    UNKNOWN,
    Excess,
    Interval,
    drawn_excess,
    enough,
    mean_interval,
    simultaneous,
    worst_interval,
)
from counterpoise.inference.paired import PairedMeans
from counterpoise.inference.worst_mix import WorstMix
from counterpoise.sets import Mix
from counterpoise.table import Table
from counterpoise.validation import LARGEST_LOSS, checked_row_weights, unwrapped

Array = NDArray[np.float64]

_FEW_VALUES = 10
"""Values up to which losses are taken for errors of classes and the like."""


@dataclass(frozen=True, eq=False, repr=False)
class WorstExcess:
    """What is said of the worst context, and of the worst plausible mix of contexts."""

    estimate: float
    lower: float
    upper: float
    mix_estimate: float
    mix_lower: float
    mix_upper: float
    confidence: float
    unjudged: tuple[Any, ...]

    @property
    def worst(self) -> Interval:
        """The interval of the worst context."""
        return Interval(self.estimate, self.lower, self.upper)

    @property
    def mix(self) -> Interval:
        """The interval of the worst plausible mix."""
        return Interval(self.mix_estimate, self.mix_lower, self.mix_upper)

    def __repr__(self) -> str:
        level = f"{100 * self.confidence:g}%"
        left_out = f"\nnot judged: {', '.join(map(shown, self.unjudged))}" if self.unjudged else ""
        return (
            f"worst context: {self.estimate:.4g}, {level} [{self.lower:.4g}, {self.upper:.4g}]\n"
            f"worst plausible mix: {self.mix_estimate:.4g}, {level} [{self.mix_lower:.4g}, {self.mix_upper:.4g}]"
            f"{left_out}"
        )


@dataclass(frozen=True, repr=False)
class ExcessDifference(WorstExcess):
    """The worst excess of one model minus that of another, against the same competitors.

    Attributes
    ----------
    estimate, lower, upper : float
        Of the largest excess of any context.
    mix_estimate, mix_lower, mix_upper : float
        Of the largest excess in any plausible mix.
    confidence : float
    unjudged : tuple of labels
        Contexts that are left out, see :class:`ExcessBounds`.
    """

    def __repr__(self) -> str:
        return f"difference of the worst excess\n{super().__repr__()}"


@dataclass(frozen=True, eq=False, repr=False)
class ExcessBounds(WorstExcess):
    """How much worse a model is than its competitors, on rows that it has not seen.

    The excess of a context is the model's risk above that of the best competitor there; it is negative where the model
    beats them all.

    Attributes
    ----------
    estimate, lower, upper : float
        The largest excess of any context. The estimate is corrected for being a maximum of noisy numbers.
    mix_estimate, mix_lower, mix_upper : float
        The largest excess in any plausible mix of contexts; the same as above where every mix is plausible.
    p_value : float
        Of the hypothesis that no competitor is better in any context: that one model is enough.
    by_context : Table
        A row per context: ``n`` rows, independent ``units`` among them, ``excess`` with simultaneous ``low`` and
        ``high``, and the best ``competitor``.
    confidence : float
        Of each interval, and of all rows of ``by_context`` together.
    unjudged : tuple of labels
        Contexts about which nothing can be said: of one row, of one group, or without a competitor. They are left out
        of everything above.
    """

    p_value: float
    by_context: Table

    def __repr__(self) -> str:
        return f'{super().__repr__()}\np-value of "one model is enough": {self.p_value:.3g}\n{self.by_context}'


def excess_bounds(
    losses: Any,
    competitors: Any,
    contexts: Any,
    *,
    groups: Any = None,
    mix: Mixes | None = None,
    confidence: float = 0.95,
    sample_weight: Any = None,
) -> ExcessBounds:
    """Bound how much worse a model is than named competitors, in its worst context and in the worst plausible mix.

    The largest of several estimates is too large, most of all where contexts tie, as they do at a robust optimum. These
    bounds hold there: the lower end allows for every context that might be the worst, the upper end covers whichever
    is.

    Parameters
    ----------
    losses : array of shape (n_samples,)
        Of the model, on rows held out.
    competitors : array of shape (n_samples,) or (n_samples, n_competitors), mapping or data frame
        Losses of other models on the same rows: a model of the context's own, one for all. Infinite where there is
        none.
    contexts : labels of shape (n_samples,), a table of several columns, which are crossed, or Memberships
    groups : labels of shape (n_samples,), optional
        Rows that belong together (one patient, one day) count as one. A group may span contexts.
    mix : mapping, Mix or set, optional
        The plausible mixes: bounds of shares by context such as ``{"winter": (0.1, 0.3)}``, or a
        :class:`counterpoise.Mix`, where a confidence set is that of these rows at ``confidence``; or a set such as
        :class:`counterpoise.KLBall`, over the contexts in sorted order. By default every mix is plausible. Contexts
        without rows are not judged.
    confidence : float
    sample_weight : array of shape (n_samples,), optional

    Returns
    -------
    ExcessBounds

    Examples
    --------
    >>> import numpy as np
    >>> import counterpoise as cpo
    >>> rng = np.random.default_rng(0)
    >>> ward = np.repeat(["a", "b", "c"], 200)
    >>> plain = rng.exponential(size=600)
    >>> own = plain + 0.1 * rng.standard_normal(600) - 0.2 * (ward == "c")
    >>> bounds = cpo.metrics.excess_bounds(plain, own, ward)
    >>> bool(bounds.lower < 0.2 < bounds.upper), bool(bounds.p_value < 0.01)
    (True, True)
    """
    ours = _checked(losses, "losses")
    rows = HeldOut.of(len(ours), contexts, groups, sample_weight, mix=mix, confidence=confidence)
    names, others = _competitors(competitors, len(ours))
    held_out, ours, others = rows.weighted(ours, others)
    return held_out.excess_bounds(ours, others, names)


def excess_difference(
    losses: Any,
    others: Any,
    competitors: Any,
    contexts: Any,
    *,
    groups: Any = None,
    mix: Mixes | None = None,
    confidence: float = 0.95,
    sample_weight: Any = None,
) -> ExcessDifference:
    """Bound the difference between the worst excess of one model and that of another.

    The two models need not be worst in the same context or mix, and ties of either are allowed for.

    Parameters
    ----------
    losses, others : arrays of shape (n_samples,)
        Of the two models, on the same rows held out.
    competitors, contexts, groups, mix, confidence, sample_weight
        As in :func:`excess_bounds`.

    Returns
    -------
    ExcessDifference
        Below zero where the first model is better.
    """
    ours = _checked(losses, "losses")
    rows = HeldOut.of(len(ours), contexts, groups, sample_weight, mix=mix, confidence=confidence)
    _, references = _competitors(competitors, len(ours))
    theirs = _checked(others, "others")
    if ours.shape != theirs.shape:
        raise InvalidInputError(f"losses has {len(ours)} rows and others has {len(theirs)}. Pass the same rows.")
    held_out, ours, theirs, references = rows.weighted(ours, theirs, references)
    return held_out.excess_difference(ours, theirs, references)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that were held out: their contexts, which of them belong together, their weights, and what is asked of them.

    Where contexts overlap, there is an entry for each membership, and those of one row belong together.

    Attributes
    ----------
    contexts : Contexts
    groups : ndarray of shape (n_samples,) or None
    weight : ndarray of shape (n_samples,)
    mix : mapping, Mix or set, optional
        The plausible mixes; every mix by default.
    confidence : float
        Level of intervals.
    n_unseen : int
        Contexts without rows, which follow the others in a set that is given. They are not judged.
    """

    contexts: Contexts
    groups: NDArray[np.intp] | None
    weight: Array
    mix: Mixes | None = None
    confidence: float = 0.95
    n_unseen: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.confidence < 1.0:
            raise InvalidInputError(f"confidence = {self.confidence}; the level of an interval lies between 0 and 1.")

    @classmethod
    def of(cls, n_rows: int, contexts: Any, groups: Any = None, sample_weight: Any = None, **asked: Any) -> HeldOut:
        """Check what is known of each row."""
        encoded = encode(contexts, n_rows, may_overlap=True)
        codes = None if groups is None else encode(groups, n_rows, role="group").codes
        return cls(encoded, encoded.units(codes), checked_row_weights(sample_weight, encoded), **asked)

    @property
    def totals(self) -> Array:
        """The weight of all rows of each context."""
        return np.bincount(self.contexts.codes, self.weight, len(self.contexts.labels)).astype(np.float64)

    @property
    def of_rows(self) -> tuple[NDArray[np.intp], Array, NDArray[np.intp] | None]:
        """The context of each row, the smallest where it has several, its weight, and its group."""
        firsts = self.contexts.firsts
        groups = None if self.groups is None else self.groups[firsts]
        return self.contexts.codes[firsts], self.weight[firsts], groups

    def where(self, chosen: NDArray[np.intp]) -> HeldOut:
        """Return some of the rows, or of their memberships where contexts overlap."""
        groups = None if self.groups is None else self.groups[chosen]
        return replace(self, contexts=self.contexts.where(chosen), groups=groups, weight=self.weight[chosen])

    def weighted(self, *columns: Any) -> tuple[Any, ...]:
        """Return the rows that have weight, and every other table or array of theirs.

        Where contexts overlap, the columns are repeated once for each context of a row.
        """
        kept = np.flatnonzero(self.weight > 0)
        whole = len(kept) == len(self.weight)
        if whole and not self.contexts.overlap:
            return self, *columns
        rows = self if whole else self.where(kept)
        at = kept if self.contexts.rows is None else self.contexts.rows[kept]
        return rows, *(_safe_indexing(column, at) for column in columns)

    def excess_bounds(
        self, losses: Array, competitors: Array, names: Sequence[str], same: int | None = None
    ) -> ExcessBounds:
        """See :func:`excess_bounds`; ``same`` is the competitor that is the model itself."""
        return self.bounds_of(self.drawn([losses], competitors, [same])[0], names)

    def excess_difference(
        self, losses: Array, others: Array, competitors: Array, same: int | None = None
    ) -> ExcessDifference:
        """See :func:`excess_difference`; ``same`` is the competitor that is the second model itself."""
        return self.difference_of(*self.drawn([losses, others], competitors, [None, same]))

    def bounds_of(self, excess: Excess, names: Sequence[str]) -> ExcessBounds:
        """Bound the excess of a model in the worst context and mix; ``names`` are those of the competitors."""
        single, mixed = self._worst_cases(excess, lambda worst: worst_interval(excess, worst, self.confidence))
        # No mix is worse than its worst context.
        single = single._replace(estimate=min(max(single.estimate, mixed.estimate), single.upper))
        p_value = enough(excess) if excess.judged.any() else math.nan
        by_context = self._by_context(excess, names)
        return ExcessBounds(*single, *mixed, self.confidence, self._unjudged(excess), p_value, by_context)

    def difference_of(self, one: Excess, other: Excess) -> ExcessDifference:
        """Bound the worst excess of a model minus that of another, drawn together."""
        intervals = self._worst_cases(one, lambda worst: difference_interval(one, other, worst, self.confidence))
        return ExcessDifference(*intervals[0], *intervals[1], self.confidence, self._unjudged(one))

    def drawn(self, models: Sequence[Array], competitors: Array, same: Sequence[int | None]) -> list[Excess]:
        """Return the excess of several models over the same competitors, and how they err together.

        Parameters
        ----------
        models : sequence of ndarray of shape (n_samples,)
            Their losses.
        same : sequence of int or None
            The competitor that is the model itself, of each.
        """
        n_models, n_others = len(models), competitors.shape[1]
        events = np.repeat([event_size(losses) for losses in models], n_others).reshape(n_models, n_others)
        for k, own in enumerate(same):
            if own is not None:
                events[k, own] = 0.0
        pairs = [(k, n_models + other) for k in range(n_models) for other in range(n_others)]
        return drawn_excess(self.pairs_between([*models, *competitors.T], pairs, events.ravel()), n_models)

    def _by_context(self, excess: Excess, names: Sequence[str]) -> Table:
        """Return the excess of each context over its best competitor, with ends that hold together."""
        low, high = simultaneous(excess, self.confidence)
        # Without a second unit the mean is all there is.
        mean = np.where(np.isfinite(excess.mean), excess.mean, -np.inf)
        best, value = mean.argmax(axis=1), mean.max(axis=1)
        there = np.isfinite(value)
        unjudged = self._unjudged(excess)
        return Table.of(
            f"not judged: {', '.join(map(shown, unjudged))}" if unjudged else "",
            context=self.contexts.labels,
            n=self.contexts.counts,
            units=excess.pairs.n_units,
            excess=np.where(there, value, np.nan),
            low=low,
            high=high,
            competitor=np.where(there, np.array(names)[best], ""),
        )

    def mean(self, values: Array, others: Array | float = 0.0, *, may_be_errors: bool = False) -> Interval:
        """Return the mean in the mix of the rows, which is taken as given, with an interval.

        Parameters
        ----------
        others : ndarray of shape (n_samples,), optional
            Taken off, as where losses of two models are compared.
        may_be_errors : bool
            Whether values that are few are errors of classes, of which none among some rows does not mean none at all.
        """
        difference = (values - others)[:, None]
        event = event_size(values) if may_be_errors else 0.0
        found = self.mean_of(self.pairs(difference, event))
        if found is None:
            # One unit does not show how much it might vary: all rows together do.
            codes = np.zeros_like(self.contexts.codes)
            pairs = PairedMeans.of(difference, codes, 1, self.weight, self.groups, event)
            found = mean_interval(pairs, np.ones(1), self.confidence)
        return found

    def mean_of(self, pairs: PairedMeans) -> Interval | None:
        """Return the mean of one column in the mix of the rows; None where some context has but one unit."""
        if (pairs.n_units == 1).any():
            return None
        return mean_interval(pairs, self.totals / self.weight.sum(), self.confidence)

    def means(self, values: Array, others: Array | float = 0.0) -> Table:
        """Return the mean of a number of each row in each context, with ends that hold for all contexts together.

        Columns are ``context``, ``n``, ``mean``, ``low`` and ``high``; a context of one unit has no ends. What is in
        ``others`` is taken off, as where losses of two models are compared.
        """
        return self.means_of(self.pairs((values - others)[:, None], event_size(values)))

    def means_of(self, pairs: PairedMeans) -> Table:
        """Return the means of one column in each context; see :meth:`means`."""
        found = self._by_context(drawn_excess(pairs)[0], [""])
        return Table({name: found[own] for name, own in _MEANS.items()})

    def differences(self, losses: Array, others: Array) -> PairedMeans:
        """Return by how much the risk of a model is above that of another, which some contexts may lack."""
        return self.pairs((losses - others)[:, None], event_size(losses))

    def pairs(self, values: Array, event: float | Array = 0.0) -> PairedMeans:
        """Return the means of columns of losses in each context; see :meth:`PairedMeans.of`."""
        return PairedMeans.of(values, self.contexts.codes, len(self.contexts.labels), self.weight, self.groups, event)

    def pairs_between(
        self, losses: Sequence[Array], pairs: Sequence[tuple[int, int | None]], event: float | Array = 0.0
    ) -> PairedMeans:
        """Return the means of differences of losses in each context; see :meth:`PairedMeans.between`."""
        n_contexts = len(self.contexts.labels)
        return PairedMeans.between(losses, pairs, self.contexts.codes, n_contexts, self.weight, self.groups, event)

    def _unjudged(self, excess: Excess) -> tuple[Any, ...]:
        return tuple(self.contexts.labels[~excess.judged].tolist())

    def _worst_cases(self, excess: Excess, interval: Callable[[WorstMix], Interval]) -> tuple[Interval, Interval]:
        """Return intervals over every mix, and over the plausible ones where these are fewer."""
        plausible = self.worst_mix(excess)
        if not excess.judged.any():
            return UNKNOWN, UNKNOWN
        single = interval(WorstMix(None, excess.known))
        return single, single if plausible.everything else interval(plausible)

    def worst_mix(self, excess: Excess) -> WorstMix:
        """Return the worst case over the plausible mixes."""
        mix, n_contexts = self.mix, len(self.contexts.labels)
        if isinstance(mix, (Mix, Mapping)):
            mix = Robustness(self.confidence, mix=mix).mixes_of(self.contexts, self.totals)
        elif mix is not None and not hasattr(mix, "worst_case"):
            raise InvalidInputError(f"mix is {mix!r:.60}; pass a set of mixes such as KLBall(p_hat, radius).")
        elif mix is not None and len(mix.p_hat) != n_contexts + self.n_unseen:
            raise InvalidInputError(
                f"mix is a set over {len(mix.p_hat)} contexts and the rows have {n_contexts}: "
                f"{', '.join(f'{shown(label):.30}' for label in self.contexts.labels[:5])}. Pass one share for each."
            )
        return WorstMix(mix, excess.known)


_MEANS = {"context": "context", "n": "n", "mean": "excess", "low": "low", "high": "high"}


def event_size(losses: Array) -> float:
    """Return how far a loss might be off another's that it never was: nothing, but for losses of a few values.

    Errors of two classifiers that agree on thirty rows need not be those of one; numbers that do, are. Losses that are
    all alike are taken for errors, of which there were none.
    """
    # A few rows show that there are many values, where there are.
    if len(np.unique(losses[: 10 * _FEW_VALUES])) > _FEW_VALUES:
        return 0.0
    values = np.unique(losses[~np.isnan(losses)])
    return 1.0 if len(values) == 1 else float(values[-1] - values[0]) if 1 < len(values) <= _FEW_VALUES else 0.0


def _competitors(given: Any, n_rows: int) -> tuple[list[str], Array]:
    """Return the names of competitors and their losses, one column each."""
    frame = nw.from_native(given, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        given = {name: frame[name].to_numpy() for name in frame.columns}
    if isinstance(given, Mapping):
        names = [str(name) for name in given]
        columns = [_numbers(column, f"competitors[{name!r}]") for name, column in given.items()]
    else:
        values = _numbers(given, "competitors")
        columns = list(values.T) if values.ndim == 2 else [values]
        names = [f"competitor {k + 1}" for k in range(len(columns))] if len(columns) > 1 else ["competitor"]
    if not columns or any(column.shape != (n_rows,) for column in columns):
        shapes = ", ".join(str(column.shape) for column in columns[:3])
        raise InvalidInputError(
            f"competitors have shapes {shapes or 'none'} for {n_rows} rows. Pass one loss per row and model."
        )
    together = np.column_stack(columns)
    bad = np.isnan(together) | (together <= -LARGEST_LOSS) | ((together >= LARGEST_LOSS) & np.isfinite(together))
    if bad.any():
        row, k = (int(at[0]) for at in np.nonzero(bad))
        raise InvalidInputError(
            f"the loss of {names[k]} in row {row} is {together[row, k]}. Pass numbers, or inf where there is no model."
        )
    return names, together


def _checked(losses: Any, name: str) -> Array:
    values = _numbers(losses, name)
    if values.ndim != 1 or values.size == 0:
        raise InvalidInputError(f"{name} must hold one number per row, got shape {values.shape}.")
    bad = np.flatnonzero(~(np.abs(values) < LARGEST_LOSS))
    if bad.size:
        raise InvalidInputError(f"{name} in row {bad[0]} is {values[bad[0]]}; a loss is a finite number.")
    return values


def _numbers(given: Any, name: str) -> Array:
    try:
        return np.asarray(unwrapped(given), dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} must be numbers, got {given!r:.60}.") from error
