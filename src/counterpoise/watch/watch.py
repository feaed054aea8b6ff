"""Watch a model in use: has anything changed that it was not made for?"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import special

from counterpoise.contexts import encode, objects, plain, shown
from counterpoise.exceptions import InvalidInputError
from counterpoise.files import alone, whole
from counterpoise.sets import ContextSet, share_intervals
from counterpoise.sets.evidence import log_mixture
from counterpoise.table import Table, jsonable, plain_rows, written
from counterpoise.tables.tabular.card import CardError, Part, digest, number_json, numbers_json, parsed, plain_json
from counterpoise.times import as_times
from counterpoise.watch.advice import Advice, Seen, advised
from counterpoise.watch.bets import Stakes, Wealth
from counterpoise.watch.mixes import MixBets, MixState
from counterpoise.watch.periods import Period, Periods
from counterpoise.watch.promise import Promise, checked_losses
from counterpoise.watch.risks import Losses, RiskBets, RiskState, largest_units
from counterpoise.watch.strangers import UnseenBets
from counterpoise.watch.written_sets import read_set, set_json

Array = NDArray[np.float64]

QUESTIONS = ("mix", "unseen", "risk")
"""What is asked: has the mix left the set, are there contexts never seen, has a risk grown."""

_FORMAT = 1
_MOST_BATCHES = 1000
_MOST_NAMES = 100
_MOST_INFLUENCES = 40
"""Contexts up to which the state keeps the influence of each on each."""
_LARGEST_E_VALUE = 1e307
"""From here on rounding may turn evidence into an infinite one."""


@dataclass(frozen=True)
class _Budgets:
    """Which part of the error probability each question may use, and the band around the promised risks."""

    mix: float
    unseen: float
    risk: float
    band: float

    @classmethod
    def of(cls, tolerates: bool, promises: bool) -> Self:
        # One row of a context that must not be there is proof: that question needs no budget.
        unseen = 0.1 if tolerates else 0.0
        rest = 1.0 - unseen
        return cls(0.6 * rest, unseen, 0.25 * rest, 0.15 * rest) if promises else cls(rest, unseen, 0.0, 0.0)

    @property
    def all(self) -> Array:
        """Of the three questions."""
        return np.array([self.mix, self.unseen, self.risk])


@dataclass(frozen=True, eq=False)
class _Alarm:
    """When an alarm was raised, and since when the change seems to be there, as updates."""

    at: int
    since: int


@dataclass(frozen=True, eq=False)
class _State:
    """All that is known of what came; every update makes a new one, so that none is ever half done."""

    rows: Array
    draws: Array
    unseen_rows: int
    unseen_draws: float
    unseen: Mapping[Any, int]
    mix: MixState
    unseen_wealth: Wealth
    risk: RiskState
    e_values: Array
    largest: Array
    alarms: Mapping[str, _Alarm]
    periods: Periods
    updates: int = 0
    batches: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of one update."""

    time: Any
    codes: NDArray[np.intp]
    labels: NDArray[Any]
    places: NDArray[np.intp]
    losses: Array | None
    groups: NDArray[np.intp] | None
    largest: Array
    """Rows of the largest group, over all of the call; then the same within each context."""

    @property
    def known(self) -> NDArray[np.bool_]:
        return self.places[self.codes] >= 0 if len(self.codes) else np.zeros(0, dtype=bool)

    def where(self, chosen: NDArray[np.bool_], time: Any) -> _Rows:
        """Return some of the rows."""
        return replace(
            self,
            time=time,
            codes=self.codes[chosen],
            losses=None if self.losses is None else self.losses[chosen],
            groups=None if self.groups is None else self.groups[chosen],
        )


class Watch:
    """Watches whether a model is still used where it was made for.

    The set of mixes that a model was made for is the null hypothesis: an alarm says that something has changed which
    the model was not made for, and not merely that something has changed. Three questions are asked of every update,
    each with its own part of the error probability:

    - **mix**: has the mix of contexts left the set?
    - **unseen**: are there contexts that the model never saw?
    - **risk**: has the mean loss of a context grown beyond what was promised? This needs losses, and a promise.

    The evidence is an e-process: one may look after every update, for ever, and the probability of any false alarm at
    all stays below ``1 - confidence``. That holds for a mix that moves about within the set from update to update, too.

    Parameters
    ----------
    model : fitted estimator, path of a model folder, model of :func:`counterpoise.load`, or set of mixes
        Of a model made for a single mix (``radius=0``), the set is that of the mixes its rows leave plausible.
    confidence : float, default=0.95
        One less the probability that there is ever a false alarm.
    contexts : labels of shape (n_contexts,), optional
        What the contexts of a set are called; by default its own labels, or numbers from 0.
    unseen_share : float, default=0
        Up to which share of rows contexts never seen before are no alarm. At 0, the first such row is one.
    run_length : float, optional
        Promise something else: false alarms come, but at least so many updates apart on average, and a change is found
        after a delay that does not depend on how long there was none. Then ``confidence`` is that of
        intervals alone, and there is no ``p_value``.
    promised : mapping from context to float, optional
        How large mean losses may be. By default it is what the model measured: on rows held out where it did, else on
        its own rows, corrected for that; with a band for being an estimate.
    held_out : tuple (contexts, losses) or (contexts, losses, groups), optional
        Losses on rows held out, to take the promise from: the best choice for a linear model in memory.

    Attributes
    ----------
    contexts : ndarray of shape (n_contexts,)
    mixes : ContextSet
        The null hypothesis.
    alarm : bool
        Whether there ever was one.
    e_value : float
        The evidence now: the largest over the questions of e-value times budget. There is an alarm once it reaches
        ``threshold``, which is ``1 / (1 - confidence)``, or ``run_length``.
    p_value : float
        Anytime-valid: one over the largest evidence so far.
    since : label or int or None
        When the change seems to have come, with an alarm: the ``time`` of an update, or its number.
    questions, shares, unseen, risks, history, history_by_context : Table
    advice : Advice
        What to do.
    words : str
        All in one line.

    Examples
    --------
    >>> import counterpoise as cpo
    >>> watch = cpo.Watch(cpo.KLBall([0.5, 0.5], 0.05), contexts=["north", "south"])
    >>> for day in range(30):
    ...     watch = watch.update(["north"] * 9 + ["south"], time=day)
    >>> watch.alarm, watch.since
    (True, 0)
    """

    def __init__(
        self,
        model: Any,
        *,
        confidence: float = 0.95,
        contexts: Any = None,
        unseen_share: float = 0.0,
        run_length: float | None = None,
        promised: Mapping[Any, float] | None = None,
        held_out: Any = None,
    ) -> None:
        settings = _Settings(confidence, unseen_share, run_length)
        self._begin(settings, Promise.of(model, contexts, promised, held_out))

    def _begin(self, settings: _Settings, promise: Promise) -> None:
        self._settings, self._promise = settings, promise
        ever = settings.run_length is None
        self._stakes = Stakes("spread" if ever else "every")
        promises = bool(np.isfinite(promise.risks).any())
        self._budgets = _Budgets.of(settings.unseen_share > 0.0, promises)
        self._mix = MixBets(promise.mixes, ever)
        self._risk = RiskBets(promise.risks, promise.errors, promise.n, self._doubt)
        self._unseen = UnseenBets(settings.unseen_share)
        n = len(promise.contexts)
        self._state = _State(
            np.zeros(n),
            np.zeros(n),
            0,
            0.0,
            {},
            self._mix.begin,
            self._unseen.begin,
            self._risk.begin,
            np.array([1.0, 1.0, 1.0 if promises else 0.0]),
            np.array([1.0, 1.0, 1.0 if promises else 0.0]),
            {},
            Periods(),
        )

    # --- what comes --------------------------------------------------------------------------------------------------

    def update(
        self, contexts: Any, losses: Any = None, groups: Any = None, time: Any = None, batch: Any = None
    ) -> Self:
        """Take account of new rows, any number of them.

        Parameters
        ----------
        contexts : labels of shape (n_rows,)
            Several columns where contexts are crossed, as in the fit.
        losses : array-like of shape (n_rows,), optional
            Of the model on these rows, in the unit of the promise: for a robust linear model, the loss it was fitted
            by (half the squared error, the log loss); NaN where a target has not come yet. They are not negative.
        groups : labels of shape (n_rows,), optional
            Rows that belong together, such as those of one day. A row counts as one over the rows of the largest group,
            so that no group is more than one draw, and shares and mean losses are those of rows. A group must come in
            one call. Without groups, every row counts as what a row of the fit was worth (``draws``).
        time : label or labels of shape (n_rows,), optional
            When: a date, a time, a number, a text. With one for each row there is an update for each time, in order.
        batch : hashable, optional
            What these rows are called. Rows of a name that came before are not counted again; the last 1,000 names
            are remembered.

        Returns
        -------
        self
        """
        state = replace(self._state, notes=())
        name = None if batch is None else _short(batch)
        if name is not None and name in state.batches:
            self._state = replace(state, notes=(f"batch {batch!r:.60} was counted before, and is not counted again",))
            return self
        for rows in self._split(contexts, losses, groups, time):
            state = self._after(state, rows)
        if name is not None:
            state = replace(state, batches=(*state.batches, name)[-_MOST_BATCHES:])
        self._state = state
        return self

    def _split(self, contexts: Any, losses: Any, groups: Any, time: Any) -> Iterator[_Rows]:
        """Yield the rows, time by time where there are several."""
        n_rows = _length(contexts)
        values = None if losses is None else checked_losses(losses)
        for what, given in (("losses", values), ("groups", groups), ("time", time if _is_column(time) else None)):
            if given is not None and _length(given) != n_rows:
                raise InvalidInputError(
                    f"{what} has {_length(given)} rows, contexts has {n_rows}. Pass one for each row."
                )
        if n_rows == 0:
            empty = np.empty(0, dtype=np.intp)
            when = None if _is_column(time) else _label(time)
            yield _Rows(when, empty, np.empty(0, dtype=object), empty, None, None, np.ones(len(self.contexts) + 1))
            return
        found = encode(contexts)
        together = None if groups is None else encode(groups, n_rows, role="groups").codes
        places = self._promise.positions(found.labels)
        rows = _Rows(
            None, found.codes, found.labels, places, values, together, self._largest(places[found.codes], together)
        )
        if not _is_column(time):
            yield replace(rows, time=_label(time))
            return
        when = encode(time, n_rows, role="time")
        order: NDArray[Any] | None = as_times(when.labels)
        if order is None:
            # Text that is no date comes in the order in which it is given.
            order = when.labels if when.labels.dtype.kind in "iuf" else np.unique(when.codes, return_index=True)[1]
        for k in np.argsort(order, kind="stable"):
            yield rows.where(when.codes == k, _label(when.labels[k]))

    def _largest(self, places: NDArray[np.intp], groups: NDArray[np.intp] | None) -> Array:
        """Return the rows of the largest group, and of the largest within each context."""
        n = len(self.contexts)
        if groups is None:
            return np.ones(n + 1)
        known = places >= 0
        return np.append(np.bincount(groups).max(), largest_units(places[known], groups[known], n))

    def _after(self, state: _State, rows: _Rows) -> _State:
        """Return the state after one update."""
        n, update = len(self.contexts), state.updates
        places, known = rows.places[rows.codes], rows.known
        worth = np.full(len(places), self._promise.worth)
        if rows.groups is not None:
            worth = np.minimum(worth, 1.0 / rows.largest[0])
        counts, draws = _summed(places[known], n), _summed(places[known], n, worth[known])
        unseen_draws = float(worth[~known].sum())
        mix = self._mix.after(state.mix, draws, update)
        wealth = self._unseen.after(state.unseen_wealth, unseen_draws, float(worth.sum()), self._stakes, update)
        losses, kept = None, known
        if rows.losses is not None:
            kept = known & ~np.isnan(rows.losses)
            together = None if rows.groups is None else rows.groups[kept]
            losses = Losses.of(places[kept], rows.losses[kept], together, rows.largest[1:], self._promise.worth)
        risk = self._risk.after(state.risk, losses, self._stakes, update)
        unseen = _named(state.unseen, rows)
        strangers = state.unseen_rows + int(np.count_nonzero(~known))
        e_values = self._evidence(mix, wealth, strangers, risk, update)
        time, notes = self._clocked(state, rows.time)
        with_loss = sums = np.zeros(n)
        if rows.losses is not None:
            with_loss, sums = _summed(places[kept], n), _summed(places[kept], n, rows.losses[kept])
        period = Period(time, time, update, 1, counts, with_loss, sums, int(np.count_nonzero(~known)), e_values)
        new = replace(
            state,
            rows=state.rows + counts,
            draws=state.draws + draws,
            unseen_rows=strangers,
            unseen_draws=state.unseen_draws + unseen_draws,
            unseen=unseen,
            mix=mix,
            unseen_wealth=wealth,
            risk=risk,
            e_values=e_values,
            largest=np.fmax(state.largest, e_values),
            periods=state.periods.plus(period),
            updates=update + 1,
            notes=tuple(dict.fromkeys((*state.notes, *notes))),
        )
        return replace(new, alarms=self._alarms(new))

    def _evidence(self, mix: MixState, wealth: Wealth, strangers: int, risk: RiskState, update: int) -> Array:
        """Return the e-values of all questions after an update."""
        left = self._stakes.left(update)
        e_risk = float(self._risk.evidence(risk, left).max(initial=0.0)) / max(self._risk.n_asked, 1)
        return np.array([self._mix.evidence(mix, update), self._unseen.evidence(wealth, strangers, left), e_risk])

    def _alarms(self, state: _State) -> dict[str, _Alarm]:
        """Return the alarms so far, with those that this update raises."""
        alarms, last = dict(state.alarms), state.updates - 1
        for question, weighted in zip(QUESTIONS, self._weighted(state.e_values), strict=True):
            if question not in alarms and weighted >= self.threshold:
                alarms[question] = _Alarm(last, state.periods.begun(self._scores(question, state)))
        return alarms

    def _scores(self, question: str, state: _State) -> list[float]:
        """Return what each period says for an alarm."""
        periods = state.periods.all
        if question == "mix":
            ratios = self._mix.ratios(state.mix)
            return [float(one.rows @ ratios) for one in periods]
        if question == "unseen":
            return [one.unseen - self._settings.unseen_share * one.n_rows for one in periods]
        worst = int(np.argmax(self._risk.evidence(state.risk, 0.0)))
        bound = self._risk.bounds(state.risk)[worst]
        return [float(one.sums[worst] - bound * one.losses[worst]) for one in periods]

    def _clocked(self, state: _State, time: Any) -> tuple[Any, tuple[str, ...]]:
        """Return the time of an update, not before that of the last one, and what there is to say about it."""
        last = next((one.until for one in reversed(state.periods.all) if one.until is not None), None)
        if last is None or time is None or not _is_before(time, last):
            return time, ()
        return last, (f"{shown(time)} is before the last update, of {shown(last)}: its rows count as of {shown(last)}",)

    # --- what is known -----------------------------------------------------------------------------------------------

    @property
    def contexts(self) -> NDArray[Any]:
        """The labels of the fit."""
        return self._promise.contexts

    @property
    def mixes(self) -> ContextSet:
        """The set that the model was made for."""
        return self._promise.mixes

    @property
    def confidence(self) -> float:
        """One less the probability that there is ever a false alarm."""
        return self._settings.confidence

    @property
    def run_length(self) -> float | None:
        """Updates between false alarms, on average, at least; None where there is at most a small chance of any."""
        return self._settings.run_length

    @property
    def threshold(self) -> float:
        """Where the evidence raises an alarm."""
        run_length = self._settings.run_length
        return 1.0 / (1.0 - self.confidence) if run_length is None else run_length

    @property
    def n_rows(self) -> int:
        """All rows so far."""
        return int(self._state.rows.sum()) + self._state.unseen_rows

    @property
    def n_updates(self) -> int:
        """All updates so far."""
        return self._state.updates

    @property
    def alarm(self) -> bool:
        """Whether there ever was one."""
        return bool(self._state.alarms)

    @property
    def e_value(self) -> float:
        """The evidence now."""
        return float(self._weighted(self._state.e_values).max())

    @property
    def p_value(self) -> float:
        """Anytime-valid: it may be looked at after every update."""
        largest = float(self._weighted(self._state.largest).max())
        if self.run_length is not None:
            return math.nan
        # Bets of three questions, and the band around the promise, may each be wrong.
        return 0.0 if math.isinf(largest) else min(1.0, float(self._budgets.all.sum()) / largest + self._doubt)

    @property
    def _doubt(self) -> float:
        """The error probability of the band around the promise."""
        return (1.0 - self.confidence) * self._budgets.band

    def _weighted(self, e_values: Array) -> Array:
        """Return e-values times budgets; what is proof stays proof."""
        return np.where(np.isinf(e_values), e_values, self._budgets.all * np.where(np.isinf(e_values), 0.0, e_values))

    @property
    def since(self) -> Any:
        """When the change seems to have come; None without an alarm."""
        alarms = self._state.alarms
        return self._state.periods.at(min(one.since for one in alarms.values())) if alarms else None

    @property
    def alarm_time(self) -> Any:
        """When the first alarm was raised; None without one."""
        alarms = self._state.alarms
        return self._state.periods.at(min(one.at for one in alarms.values())) if alarms else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What else there is to say, of the model and of the last update."""
        return (*self._promise.notes, *self._state.notes)

    @property
    def questions(self) -> Table:
        """A row for each question: its part of the error probability, the e-value, and where that is an alarm."""
        state, budgets = self._state, self._budgets.all
        alarms = [state.alarms.get(question) for question in QUESTIONS]
        with np.errstate(divide="ignore"):
            thresholds = np.where(budgets > 0.0, self.threshold / budgets, np.inf)
            p_values = np.minimum(1.0, 1.0 / state.largest + [0.0, 0.0, self._doubt])
        return Table(
            {
                "question": objects(list(QUESTIONS)),
                "budget": budgets * (1.0 - self.confidence),
                "e_value": state.e_values,
                "largest": state.largest,
                "threshold": thresholds,
                "p_value": p_values if self.run_length is None else np.full(3, np.nan),
                "alarm": np.array([one is not None for one in alarms]),
                "since": objects([None if one is None else state.periods.at(one.since) for one in alarms]),
            }
        )

    @property
    def shares(self) -> Table:
        """A row for each context: its share at the fit, the least and largest in the set, and its share since.

        ``lower`` and ``upper`` are a confidence sequence: for all contexts together they hold the shares at every
        moment, with the confidence asked for, as long as the mix does not change.
        """
        n, draws = len(self.contexts), self._state.draws
        total = float(draws.sum())
        intervals = share_intervals(self.mixes)
        ends = np.tile([0.0, 1.0], (n, 1))
        shares = np.full(n, np.nan)
        if total > 0.0:
            shares = draws / total
            ends = _share_intervals(draws, total, (1.0 - self.confidence) / n)
        return Table(
            {
                "context": self.contexts,
                "then": self._promise.shares,
                "low": intervals[:, 0],
                "high": intervals[:, 1],
                "rows": self._state.rows.astype(np.intp),
                "now": shares,
                "lower": ends[:, 0],
                "upper": ends[:, 1],
            }
        )

    @property
    def unseen(self) -> Table:
        """Contexts that the model never saw, the most frequent first; at most 100 are named."""
        found = sorted(self._state.unseen.items(), key=lambda one: -one[1])
        rows = np.array([n for _, n in found], dtype=np.intp)
        return Table(
            {"context": objects([label for label, _ in found]), "rows": rows, "share": rows / max(self.n_rows, 1)}
        )

    @property
    def unseen_share(self) -> float:
        """Their share of all rows."""
        return self._state.unseen_rows / max(self.n_rows, 1)

    @property
    def unseen_interval(self) -> tuple[float, float]:
        """A confidence sequence of that share."""
        total = float(self._state.draws.sum()) + self._state.unseen_draws
        if total == 0.0:
            return 0.0, 1.0
        low, high = _share_intervals(np.array([self._state.unseen_draws]), total, 1.0 - self.confidence)[0]
        return float(low), float(high)

    @property
    def risks(self) -> Table:
        """A row for each context: what was promised and how large that may be, and the mean loss since.

        ``lower`` and ``upper`` are a confidence sequence for all contexts together. The lower end is an empirical
        Bernstein bound; the upper one holds as losses become many.
        """
        left = self._stakes.left(max(self._state.updates - 1, 0)) if self._state.updates else 1.0
        return self._risk.table(self._state.risk, self.contexts, 1.0 - self.confidence, left)

    @property
    def history(self) -> Table:
        """A row for each update, or for several where there are many: when, rows, and the e-values after it."""
        return self._state.periods.table

    @property
    def history_by_context(self) -> Table:
        """The same periods in long form: rows, share and mean loss of each context."""
        return self._state.periods.by_context(self.contexts)

    @property
    def advice(self) -> Advice:
        """What to do."""
        state = self._state
        first = min((one.since for one in state.alarms.values()), default=0)
        chosen = [one for one in state.periods.all if one.first + one.updates > first]
        rows = np.sum([one.rows for one in chosen], axis=0) if chosen else state.rows
        worth = float(state.draws.sum()) / max(float(state.rows.sum()), 1.0)
        unseen, total = sum(one.unseen for one in chosen), sum(one.n_rows for one in chosen)
        risks = self.risks
        worst = int(np.argmax(risks["e_value"]))
        seen = Seen(
            worth * rows,
            "mix" in state.alarms,
            "unseen" in state.alarms,
            "risk" in state.alarms,
            unseen / max(total, 1),
            self.contexts[worst],
            float(risks["promised"][worst]),
            float(sum(one.sums[worst] for one in chosen) / max(sum(one.losses[worst] for one in chosen), 1.0)),
        )
        return advised(self._promise, seen, self.confidence)

    @property
    def words(self) -> str:
        """All in one line."""
        seen = f"{self.n_rows:,} rows in {self.n_updates:,} update{'s' if self.n_updates != 1 else ''}"
        if not self.alarm:
            least = f"p-value {written(self.p_value, digits=2)}" if self.run_length is None else "no alarm"
            evidence = f"{written(self.e_value, digits=2)} of {written(self.threshold)}"
            return f"All is well: {seen}, evidence {evidence} ({least})."
        asked = {
            "mix": "the mix has left the set",
            "unseen": f"contexts never seen ({self._named_unseen})",
            "risk": "a risk has grown",
        }
        what = "; ".join(asked[question] for question in QUESTIONS if question in self._state.alarms)
        since = shown(self.since) if isinstance(self.since, (str, int, float)) else str(self.since)
        return f"ALARM: {what}, since {since} ({seen}). {self.advice.sentence}"

    @property
    def _named_unseen(self) -> str:
        names = [f"{shown(label):.30}" for label in self.unseen["context"][:3].tolist()]
        more = len(self._state.unseen) - len(names)
        return ", ".join(names) + (f" and {more} more" if more > 0 else "")

    @property
    def json(self) -> dict[str, Any]:
        """Everything, as what JSON can hold."""
        return {
            "alarm": self.alarm,
            "e_value": number_json(self.e_value),
            "threshold": self.threshold,
            "p_value": jsonable(self.p_value),
            "since": None if self.since is None else jsonable(self.since),
            "alarm_time": None if self.since is None else jsonable(self.alarm_time),
            "words": self.words,
            "confidence": self.confidence,
            "run_length": self.run_length,
            "rows": self.n_rows,
            "updates": self.n_updates,
            "unseen_share": self.unseen_share,
            "questions": plain_rows(self.questions),
            "shares": plain_rows(self.shares),
            "unseen": plain_rows(self.unseen),
            "risks": plain_rows(self.risks),
            "advice": self.advice.json,
            "history": plain_rows(self.history),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        return f"<Watch of {self._promise.name}: {self.words}>"

    # --- state -------------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything into a file: all of it, or nothing."""
        said = self._as_json
        said["sha256"] = digest(said)
        text = json.dumps(said, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        whole(Path(path), lambda part: part.write_text(text, encoding="utf-8"))

    @classmethod
    def load(cls, path: str | PathLike[str], model: Any = None) -> Self:
        """Go on from a file.

        Parameters
        ----------
        model : optional
            What is watched. It is checked that the file is about it: a model that was fitted again meanwhile is
            refused, since evidence against the old one says nothing about it.
        """
        path = Path(path)
        with _told(path):
            part = _card(path)
            if model is None:
                return cls._read(part, path, None)
            labels = [one.python for one in part["promise"]["contexts"].list]
            return cls._read(part, path, Promise.of(model, labels if isinstance(model, ContextSet) else None))

    @classmethod
    @contextmanager
    def open(cls, path: str | PathLike[str], model: Any, **settings: Any) -> Iterator[Self]:
        """Go on from a file, or begin where there is none, and write it at the end.

        No other process changes the file meanwhile. Where the body raises, the file stays as it was.

        Parameters
        ----------
        model
            What is watched.
        **settings
            Of :class:`Watch`; those of an existing file must be the same.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(path.parent, patience=60.0, insist=True):
            fresh = cls(model, **settings)
            watch = fresh
            if path.exists():
                with _told(path):
                    watch = cls._read(_card(path), path, fresh._promise)
            watch._check_settings(fresh, settings, path)
            yield watch
            watch.save(path)

    def _check_settings(self, asked: Watch, given: Mapping[str, Any], path: Path) -> None:
        """Refuse to go on under other settings than those it was begun with."""
        own, new = self._settings, asked._settings
        differ = any(getattr(own, name) != getattr(new, name) for name in vars(own) if name in given)
        if {"promised", "held_out"} & {name for name, one in given.items() if one is not None}:
            differ = differ or not np.array_equal(self._promise.risks, asked._promise.risks, equal_nan=True)
        if differ:
            raise InvalidInputError(
                f"{path} was begun with {own.words} and other promises or settings than are given now ({new.words}). "
                "Leave them as they were, or begin anew in another file."
            )

    def _check_whole(self) -> None:
        """Refuse parts that contradict each other: files of earlier versions have no checksum."""
        state, promise, n = self._state, self._promise, len(self.contexts)
        begun, e_values = 0, state.e_values
        for one in state.periods.all:
            begun = begun + one.updates if one.first == begun else -1
        counts = np.array([[*one.rows, one.unseen] for one in state.periods.all]).reshape(-1, n + 1).sum(axis=0)
        if state.updates:
            e_values = self._evidence(state.mix, state.unseen_wealth, state.unseen_rows, state.risk, state.updates - 1)
        written_, again = (np.minimum(one, _LARGEST_E_VALUE) for one in (state.e_values, e_values))
        alarms = [one for one, e in zip(QUESTIONS, self._weighted(state.largest), strict=True) if e >= self.threshold]
        if not (
            len(set(self.contexts.tolist())) == n == len(self.mixes.p_hat)
            and 0.0 < promise.worth <= 1.0
            and (promise.influence is None or len(promise.influence) == n)
            and begun == state.updates
            and np.array_equal(counts, [*state.rows, state.unseen_rows])
            and (state.draws <= state.rows).all()
            and (state.risk.draws <= state.risk.n).all()
            and (state.risk.n <= state.rows).all()
            and 0.0 <= state.unseen_draws <= state.unseen_rows
            # Wealth is rounded where it is written.
            and np.allclose(written_, again, rtol=1e-4, atol=1e-300)
            and (state.largest >= state.e_values).all()
            and sorted(state.alarms) == sorted(alarms)
            and all(one.since <= one.at < state.updates for one in state.alarms.values())
        ):
            raise CardError("its numbers contradict each other")

    @property
    def _as_json(self) -> dict[str, Any]:
        from counterpoise import __version__

        promise, state = self._promise, self._state
        for label in (*promise.contexts.tolist(), *state.unseen):
            if Part(plain_json(label)).python != label:
                raise InvalidInputError(
                    f"context {label!r:.60} is a {type(label).__name__}, which a file cannot hold. Name contexts by "
                    "text, numbers or dates."
                )
        influence = None
        if promise.influence is not None and len(self.contexts) <= _MOST_INFLUENCES:
            influence = [[number_json(float(f"{one:.6g}")) for one in row] for row in promise.influence.tolist()]
        return {
            "format": _FORMAT,
            "counterpoise": __version__,
            "fingerprint": promise.fingerprint,
            "settings": vars(self._settings),
            "promise": {
                "name": promise.name,
                "contexts": [plain_json(label) for label in promise.contexts.tolist()],
                "mixes": set_json(promise.mixes),
                "worth": promise.worth,
                **{name: numbers_json(getattr(promise, name)) for name in ("shares", "risks", "errors", "n")},
                "excess": None if promise.excess is None else numbers_json(promise.excess),
                "influence": influence,
                "notes": list(promise.notes),
                "renames": promise.renames,
            },
            "rows": numbers_json(state.rows),
            "draws": numbers_json(state.draws),
            "unseen_rows": state.unseen_rows,
            "unseen_draws": state.unseen_draws,
            "unseen": [[plain_json(label), n] for label, n in state.unseen.items()],
            "mix": state.mix.as_json,
            "unseen_wealth": state.unseen_wealth.as_json,
            "risk": state.risk.as_json,
            "e_values": numbers_json(state.e_values),
            "largest": numbers_json(state.largest),
            "alarms": {question: [one.at, one.since] for question, one in state.alarms.items()},
            "periods": [one.as_json for one in state.periods.all],
            "updates": state.updates,
            "batches": list(state.batches),
        }

    @classmethod
    def _read(cls, part: Part, path: Path, now: Promise | None) -> Self:
        if part["format"].finite != _FORMAT:
            raise CardError(f"format is {part['format'].value}, and this version reads {_FORMAT}")
        settings = part["settings"]
        length = settings["run_length"]
        watch = cls.__new__(cls)
        promise = _read_promise(part["promise"], part["fingerprint"].text)
        if now is not None:
            if now.fingerprint != promise.fingerprint:
                raise InvalidInputError(
                    f"{path} is about {promise.name} (fingerprint {promise.fingerprint}), and this is {now.name} "
                    f"({now.fingerprint}): it was fitted again, or is another one. Evidence against the one says "
                    "nothing about the other: begin anew, in another file or after moving this one away."
                )
            # Risks may have been stated, or measured on rows held out.
            promise = now.with_risks(promise.risks, promise.errors, promise.n)
        watch._begin(
            _Settings(
                settings["confidence"].finite,
                settings["unseen_share"].finite,
                None if length.is_null else length.finite,
            ),
            promise,
        )
        n = len(promise.contexts)
        alarms = {one: _Alarm(*(number.count for number in value.list)) for one, value in part["alarms"].items.items()}
        watch._state = _State(
            part["rows"].numbers(n, finite=True, least=0.0),
            part["draws"].numbers(n, finite=True, least=0.0),
            part["unseen_rows"].count,
            part["unseen_draws"].finite,
            {label.python: rows.count for label, rows in (one.list for one in part["unseen"].list)},
            watch._mix.read(part["mix"]),
            Wealth.read(part["unseen_wealth"], watch._unseen.n_bets),
            watch._risk.read(part["risk"]),
            part["e_values"].numbers(3, least=0.0),
            part["largest"].numbers(3, least=0.0),
            alarms,
            Periods(tuple(Period.read(one, n) for one in part["periods"].list)),
            part["updates"].count,
            part["batches"].texts,
        )
        watch._check_whole()
        return watch


@dataclass(frozen=True)
class _Settings:
    confidence: float = 0.95
    unseen_share: float = 0.0
    run_length: float | None = field(default=None)

    def __post_init__(self) -> None:
        try:
            for name in ("confidence", "unseen_share"):
                object.__setattr__(self, name, float(getattr(self, name)))
            if self.run_length is not None:
                object.__setattr__(self, "run_length", float(self.run_length))
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"confidence, unseen_share and run_length must be numbers: {error}.") from error
        if not 0.0 < self.confidence < 1.0:
            raise InvalidInputError(f"confidence = {self.confidence:g}; it must lie between 0 and 1, e.g. 0.95.")
        if not 0.0 <= self.unseen_share < 1.0:
            raise InvalidInputError(
                f"unseen_share = {self.unseen_share:g}; it is a share of rows, 0 or more and below 1."
            )
        if self.run_length is not None and not 1.0 < self.run_length < math.inf:
            raise InvalidInputError(
                f"run_length = {self.run_length:g}; pass how many updates shall lie between false alarms, e.g. 1000."
            )

    @property
    def words(self) -> str:
        """All settings."""
        length = "" if self.run_length is None else f", run_length={self.run_length:g}"
        return f"confidence={self.confidence:g}, unseen_share={self.unseen_share:g}{length}"


def _card(path: Path) -> Part:
    """Return what a file says, as it was written."""
    card = parsed(path.read_text(encoding="utf-8"))
    # Files of earlier versions have none.
    said = card.pop("sha256", None)
    if said is not None and said != digest(card):
        raise CardError("it was changed after it was written")
    return Part(card)


def _read_promise(part: Part, fingerprint: str) -> Promise:
    contexts = objects([one.python for one in part["contexts"].list])
    n = len(contexts)
    excess, influence = part["excess"], part["influence"]
    return Promise(
        contexts,
        read_set(part["mixes"]),
        part["shares"].numbers(n, finite=True),
        part["worth"].finite,
        part["risks"].numbers(n),
        part["errors"].numbers(n),
        part["n"].numbers(n),
        None if excess.is_null else excess.numbers(n),
        None if influence.is_null else np.array([row.numbers(n, finite=True) for row in influence.list]),
        fingerprint,
        part["name"].text,
        tuple(one.text for one in part["notes"].list),
        bool(part["renames"].value),
    )


def _share_intervals(own: Array, total: float, doubt: float) -> Array:
    """Return the shares that the mixture of Jeffreys does not rule out, lowest and highest: a confidence sequence.

    Parameters
    ----------
    own : ndarray of shape (n_contexts,)
        Draws of each context, out of ``total``.
    """
    counts = np.stack([own, total - own], axis=-1)
    shares = counts[:, 0] / total
    nats = special.xlogy(counts, counts / total).sum(axis=-1) - log_mixture(counts, 0.5) - math.log(doubt)

    def allowed(p: Array) -> NDArray[np.bool_]:
        return np.asarray(special.kl_div(counts, total * np.stack([p, 1.0 - p], axis=-1)).sum(axis=-1) <= nats)

    # On either side of the share itself, which is never ruled out, the divergence grows.
    ends = []
    for far in (np.zeros_like(shares), np.ones_like(shares)):
        near, out = shares, np.where(allowed(far), np.nan, far)
        for _ in range(60):
            middle = 0.5 * (near + out)
            inside = allowed(np.nan_to_num(middle))
            near, out = np.where(inside, middle, near), np.where(inside, out, middle)
        ends.append(np.where(np.isnan(out), far, out))
    return np.stack(ends, axis=-1)


def _named(known: Mapping[Any, int], rows: _Rows) -> Mapping[Any, int]:
    """Return contexts never seen with their rows; of new ones, as many as are named."""
    strange = np.flatnonzero(rows.places < 0)
    if not len(strange):
        return known
    counts = np.bincount(rows.codes, minlength=len(rows.labels))
    found = dict(known)
    for k in strange:
        label = plain(rows.labels[k])
        if counts[k] and (label in found or len(found) < _MOST_NAMES):
            found[label] = found.get(label, 0) + int(counts[k])
    return found


def _summed(places: NDArray[np.intp], n: int, weights: Array | None = None) -> Array:
    return np.bincount(places, weights, n).astype(np.float64)


def _short(batch: Any) -> str:
    return hashlib.sha256(repr(plain(batch)).encode()).hexdigest()[:16]


def _length(values: Any) -> int:
    try:
        return int(values.shape[0]) if getattr(values, "shape", None) else len(values)
    except TypeError as error:
        raise InvalidInputError(f"{values!r:.60} is no column. Pass one label for each row.") from error


def _is_column(time: Any) -> bool:
    return not isinstance(time, (str, bytes, tuple)) and hasattr(time, "__len__")


def _label(time: Any) -> Any:
    """Return a time as plain Python; what is no time is none."""
    if isinstance(time, np.datetime64):
        time = time.astype("M8[us]").item() if np.datetime_data(time)[0] in ("ns", "ps") else time.item()
    # Not a time, and not a number, are not equal to themselves.
    return None if time is None or time != time else plain(time)


def _is_before(time: Any, last: Any) -> bool:
    times = as_times(objects([time, last]))
    if times is not None:
        return bool(times[0] < times[1])
    # Other texts may count in any way.
    return all(isinstance(one, (int, float)) for one in (time, last)) and bool(time < last)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Say what is wrong with a file."""
    try:
        yield
    except FileNotFoundError:
        raise InvalidInputError(f"there is no {path}. Make a counterpoise.Watch and save it.") from None
    except InvalidInputError:
        raise
    except (ValueError, OSError, RecursionError, TypeError) as error:
        raise InvalidInputError(
            f"{path} is no state of a watch, or is damaged: {error}. Restore it, or begin anew after moving it away."
        ) from error
