"""What orders would have earned on periods that they were not found from: shuffled ones, and later ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts, objects
from counterpoise.core.robustness import METHODS
from counterpoise.exceptions import CounterpoiseError, InvalidInputError
from counterpoise.inference.differences import difference_interval
from counterpoise.inference.excess import HeldOut
from counterpoise.inference.intervals import UNKNOWN, Excess, Interval, worst_estimate
from counterpoise.inference.windows import expanding_windows
from counterpoise.losses import Hinges
from counterpoise.stock.earnings import Earnings, StockBacktest
from counterpoise.stock.ordering import RULES, Ordering, PastSales
from counterpoise.stock.plans import Money, ProductPlan
from counterpoise.table import Table

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Window = tuple[Rows, Rows]

MEAN_DEMAND, PER_CONTEXT = "mean-demand", "per-context"
"""The naive order, and one order for each context, for whoever knows it when ordering."""

JUDGED = ("robust", "erm", PER_CONTEXT, MEAN_DEMAND, *RULES[2:])
"""Whose profits are compared, in the order in which they are listed."""

_SEED = 0
"""Periods are dealt to the same folds every time."""


def backtest(
    ordering: Ordering, past: PastSales, money: Money, *, time: Any = None, cuts: int = 4, gap: Any = None
) -> StockBacktest:
    """Judge orders on periods held out.

    Orders are found from some periods by every rule, and paid for with the demand of others: of shuffled ones, as many
    folds as there are cuts and one, and of later ones, by :func:`counterpoise.inference.windows.expanding_windows`.

    Parameters
    ----------
    past : PastSales
        Rows of one group, of one time where there are none, count as one in intervals.
    time : array of shape (n_samples,), optional
        When rows were; without it there are no later periods.
    """
    # Contexts may be rare in a part of the rows.
    ordering = replace(ordering, min_rows=1)
    units = np.arange(len(past)) if past.groups is None and time is None else _units(past, time)
    notes: list[str] = []
    later = None
    if time is not None:
        later = _Paid.of(ordering, past, expanding_windows(time, cuts, gap), notes)
    shuffled = _Paid.of(ordering, past, _folds(units, int(cuts) + 1), notes)
    if not shuffled.judged.any() or (later is not None and not later.judged.any()):
        reasons = " ".join(dict.fromkeys(notes))
        raise InvalidInputError(f"no orders could be judged on periods held out. {reasons}".rstrip())
    if later is None:
        return StockBacktest(_earnings(shuffled, ordering, past, units), None, money, tuple(dict.fromkeys(notes)))
    return StockBacktest(
        _earnings(shuffled, ordering, past, units),
        _earnings(later, ordering, past, units, time),
        money,
        tuple(dict.fromkeys(notes)),
        shuffled.total("erm", past, later.judged & shuffled.judged),
    )


def _units(past: PastSales, time: Any) -> Rows:
    """Return which rows count as one in intervals: those of a group, or else of a time."""
    labels = np.asarray(time) if past.groups is None else past.groups
    place: dict[Any, int] = {}
    return np.array([place.setdefault(label, len(place)) for label in labels.tolist()], dtype=np.intp)


def _folds(units: Rows, n_folds: int) -> list[Window]:
    """Deal units to folds at random."""
    n_units = int(units.max()) + 1
    if n_units < 2:
        raise InvalidInputError("all rows belong together, so none can be held out. Pass finer groups or times.")
    n_folds = min(n_folds, n_units)
    fold = np.random.default_rng(_SEED).permutation(np.arange(n_units) % n_folds)[units]
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(n_folds)]


@dataclass(frozen=True, eq=False)
class _Paid:
    """Profits of rows held out.

    Attributes
    ----------
    profits : mapping from method to ndarray of shape (n_samples,)
        NaN where a row was not judged.
    windows : list of (train, test)
    """

    profits: dict[str, Array]
    windows: list[Window]

    @property
    def judged(self) -> NDArray[np.bool_]:
        """The rows that have profits."""
        return np.isfinite(self.profits["erm"])

    def total(self, method: str, past: PastSales, judged: NDArray[np.bool_]) -> float:
        """Return what a method earned per period on some rows, of all products together."""
        rows = np.flatnonzero(judged)
        return float((_scale(past.where(rows)) * self.profits[method][rows]).mean()) if len(rows) else math.nan

    @classmethod
    def of(cls, ordering: Ordering, past: PastSales, windows: list[Window], notes: list[str]) -> _Paid:
        """Order and sell, window after window."""
        profits = {method: np.full(len(past), np.nan) for method in JUDGED}
        kept = []
        for train, test in windows:
            draws = ordering.robustness.draws
            shrunk = draws * len(train) / len(past) if isinstance(draws, (int, float)) else draws
            own = replace(ordering, robustness=replace(ordering.robustness, draws=shrunk))
            try:
                orders = dict(_orders(own, past.where(train), past.where(test)))
            except CounterpoiseError as error:
                notes.append(f"{len(test):,} rows were not judged, since no orders follow from those before: {error}")
                continue
            kept.append((train, test))
            pieces = ordering.terms.pieces(past.sales[test])
            new = int(np.isnan(orders["erm"]).sum())
            if new:
                notes.append(f"{new:,} rows were not judged, of products that were not sold before them.")
            for method, levels in orders.items():
                profits[method][test] = -Hinges().value(pieces, levels)
        return cls(profits, kept)


def _orders(ordering: Ordering, train: PastSales, test: PastSales) -> Iterator[tuple[str, Array]]:
    """Yield, for every method, what is ordered for each row; NaN for products that were not sold before."""
    plans = ordering.plans(train)
    for rule in RULES:
        yield rule, _per_row(plans, test, [float(plan.orders[rule].theta[0]) for plan in plans])
    yield MEAN_DEMAND, _per_row(plans, test, _naive(ordering, plans))
    yield PER_CONTEXT, _informed(ordering, plans, train, test)


def _per_row(plans: Sequence[ProductPlan], test: PastSales, orders: Sequence[float]) -> Array:
    """Return the order of each row's product."""
    if test.products is None:
        return np.full(len(test), orders[0])
    of = {plan.product: order for plan, order in zip(plans, orders, strict=True)}
    return np.array([of.get(label, np.nan) for label in test.products.labels.tolist()])[test.products.codes]


def _naive(ordering: Ordering, plans: Sequence[ProductPlan]) -> list[float]:
    """Return the mean demand of each product, within the limits."""
    orders = np.array([float(plan.shares @ plan.mean_demand) for plan in plans])
    orders = np.minimum(orders, ordering.terms.highest)
    if ordering.capacity is not None and orders.sum() > ordering.capacity:
        orders *= ordering.capacity / orders.sum()
    return (np.floor(orders) if ordering.terms.integer else orders).tolist()


def _informed(ordering: Ordering, plans: Sequence[ProductPlan], train: PastSales, test: PastSales) -> Array:
    """Return the best order for each row's product in its context; that of the plain rule where it is new."""
    levels = _per_row(plans, test, [float(plan.orders["erm"].theta[0]) for plan in plans])
    own = {
        (plan.product, label): float(level)
        for plan in plans
        for label, level in zip(plan.contexts.tolist(), plan.stock.context_levels, strict=True)
    }
    if ordering.capacity is not None:
        alone = replace(ordering, robustness=METHODS["erm"])
        for c, label in enumerate(train.contexts.labels.tolist()):
            if sum(level for (_, of), level in own.items() if of == label) > ordering.capacity:
                found = alone.plans(train.where(np.flatnonzero(train.contexts.codes == c)), ("erm",))
                own |= {(plan.product, label): float(plan.orders["erm"].theta[0]) for plan in found}
    labels = test.contexts.labels.tolist()
    for product, rows in test.by_product:
        known = np.array([own.get((product, label), np.nan) for label in labels])[test.contexts.codes[rows]]
        levels[rows] = np.where(np.isfinite(known), known, levels[rows])
    return levels


def _scale(held: PastSales) -> Array:
    """Return what rows count for, so that the means of products add up: a period is one of all products together."""
    if held.products is None:
        return np.ones(len(held))
    return np.asarray(len(held) / held.products.counts[held.products.codes])


def _earnings(paid: _Paid, ordering: Ordering, past: PastSales, units: Rows, time: Any = None) -> Earnings:
    """Sum up what was earned on the rows that were judged."""
    judged = paid.judged
    rows = np.flatnonzero(judged)
    held = past.where(rows)
    scale = _scale(held)
    profits = {method: scale * values[rows] for method, values in paid.profits.items()}
    present, local = np.unique(held.contexts.codes, return_inverse=True)
    contexts = Contexts(held.contexts.labels[present], local)
    held_out = _held_out(ordering, past, contexts, present, np.unique(units[rows], return_inverse=True)[1])
    return Earnings(
        _methods(profits, held_out),
        _by_context(profits, contexts),
        _by_product(paid.profits, held, rows),
        _blocks(paid, judged, profits, rows, time),
        len(rows),
        len(np.unique(units[rows])),
    )


def _held_out(ordering: Ordering, past: PastSales, contexts: Contexts, present: Rows, units: Rows) -> HeldOut:
    """Return the rows with the mixes that all rows leave plausible among the contexts that are judged."""
    robustness = ordering.robustness.sized(past.contexts.codes, past.groups)
    try:
        mixes = robustness.mixes(past.contexts.counts[present].astype(np.float64), contexts.labels)
        n_unseen = len(robustness.unseen(contexts.labels).labels)
    except CounterpoiseError:
        # What is known about the mix is about contexts that no judged row is of: every mix is plausible.
        mixes, n_unseen = None, 0
    return HeldOut(contexts, units, np.ones(len(contexts.codes)), mixes, n_unseen=n_unseen)


def _methods(profits: dict[str, Array], held_out: HeldOut) -> Table:
    """Return a row per method; see :class:`Earnings`."""
    names, losses = list(profits), [-values for values in profits.values()]
    contexts = held_out.contexts
    nothing, own = np.zeros((len(losses[0]), 1)), losses[names.index(PER_CONTEXT)][:, None]
    same = [0 if name == PER_CONTEXT else None for name in names]
    poor = dict(zip(names, held_out.drawn(losses, nothing, [None] * len(names)), strict=True))
    missed = dict(zip(names, held_out.drawn(losses, own, same), strict=True))
    # The mix of the periods judged is a draw like their demand, so that contexts are not taken as given.
    together = replace(
        held_out, contexts=Contexts(objects(["all"]), np.zeros_like(contexts.codes)), mix=None, n_unseen=0
    )
    rows = []
    for name, loss in zip(names, losses, strict=True):
        lowest, most = (_worst_context(which[name].mean[:, 0]) for which in (poor, missed))
        gain = together.mean(losses[names.index("erm")] - loss)
        change = _changed(missed, name, held_out)
        rows.append(
            {
                "method": name,
                "profit": float(-loss.mean()),
                **_ends("gain", gain),
                "lowest_profit": -float(poor[name].mean[lowest, 0]),
                "lowest_in": contexts.labels[lowest],
                "lowest_rows": int(contexts.counts[lowest]),
                "mix_profit": -_worst_mix(poor[name], held_out),
                "missed": float(missed[name].mean[most, 0]),
                "missed_in": contexts.labels[most],
                "missed_rows": int(contexts.counts[most]),
                "mix_missed": _worst_mix(missed[name], held_out),
                **_ends("mix_missed_change", change),
            }
        )
    return Table({name: _column([row[name] for row in rows]) for name in rows[0]})


def _worst_context(means: Array) -> int:
    return int(np.nanargmax(means))


def _worst_mix(excess: Excess, held_out: HeldOut) -> float:
    """Return the largest mean in any plausible mix; NaN where no context has two units."""
    return worst_estimate(excess, held_out.worst_mix(excess)) if excess.judged.any() else math.nan


def _changed(missed: dict[str, Excess], name: str, held_out: HeldOut) -> Interval:
    """Return by how much more than the plain order one misses in the worst plausible mix."""
    plain = missed["erm"]
    if name == "erm" or missed[name].mean.tolist() == plain.mean.tolist():
        return Interval(0.0, 0.0, 0.0)
    # The interval of a difference of worst cases takes its time, and decides about the robust order only.
    if name != "robust" or not plain.judged.any():
        return UNKNOWN
    return difference_interval(missed[name], plain, held_out.worst_mix(plain), held_out.confidence)


def _ends(name: str, interval: Interval) -> dict[str, float]:
    # Zero without a sign.
    return {f"{name}{end}": value + 0.0 for end, value in zip(("", "_low", "_high"), interval, strict=True)}


def _by_context(profits: dict[str, Array], contexts: Contexts) -> Table:
    """Return the mean profit of each method in each context; those with the least profit of the plain order first."""
    means = {
        method: np.bincount(contexts.codes, values, len(contexts.labels)) / contexts.counts
        for method, values in profits.items()
    }
    order = np.argsort(means["erm"], kind="stable")
    columns: dict[str, NDArray[Any]] = {"context": contexts.labels[order], "rows": contexts.counts[order]}
    return Table(columns | {method: values[order] for method, values in means.items()})


def _by_product(profits: dict[str, Array], held: PastSales, rows: Rows) -> Table | None:
    """Return the mean profit of each method for each product."""
    if held.products is None:
        return None
    found = list(held.by_product)
    columns = {"product": objects([label for label, _ in found]), "rows": np.array([len(own) for _, own in found])}
    means = {method: np.array([values[rows[own]].mean() for _, own in found]) for method, values in profits.items()}
    return Table(columns | means)


def _blocks(paid: _Paid, judged: NDArray[np.bool_], profits: dict[str, Array], rows: Rows, time: Any) -> Table | None:
    """Return the mean profit of each method in each block of later rows."""
    if time is None:
        return None
    times, place = np.asarray(time), np.full(len(judged), -1)
    place[rows] = np.arange(len(rows))
    found = [(train, test[judged[test]]) for train, test in paid.windows if judged[test].any()]
    columns: dict[str, NDArray[Any]] = {
        "first": _column([min(times[test].tolist()) for _, test in found]),
        "last": _column([max(times[test].tolist()) for _, test in found]),
        "rows": np.array([len(test) for _, test in found]),
        "trained_on": np.array([len(train) for train, _ in found]),
    }
    means = {method: np.array([values[place[test]].mean() for _, test in found]) for method, values in profits.items()}
    return Table(columns | means)


def _column(values: list[Any]) -> NDArray[Any]:
    """Return values as an array: of numbers, or else of the objects they are."""
    plain = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    return np.array(values) if plain else objects(values)
