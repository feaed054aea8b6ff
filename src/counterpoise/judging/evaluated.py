"""What later rows say about a fitted model, in tables and in words."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from counterpoise.contexts import plain, shown
from counterpoise.inference.excess import HeldOut
from counterpoise.inference.intervals import interval_in
from counterpoise.judging.decomposition import Drift
from counterpoise.judging.measures import (
    ALL,
    PRACTICAL_POINTS,
    PRACTICAL_SHARE,
    Judged,
    Measure,
    Task,
    measures_of,
)
from counterpoise.judging.mix_now import MixNow
from counterpoise.table import Table, jsonable, plain_rows, written

_FEW = 20
"""Rows below which a context is not named as the worst, unless all are as small."""

_NAMED = 5


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """How well a fitted model predicts rows that it was not fitted to, and what has changed since the fit.

    Attributes
    ----------
    method : str
        The model that is judged; others are beside it.
    task : {"classification", "regression", "count", "quantile", "huber"}
    n_rows : int
        That were judged.
    measures : Table
        In natural units, a row per ``method`` and ``context``, one of which is "all" and one, where there are any,
        "unseen contexts", those which the fit did not have: ``n`` rows, and a column per measure.
    leading : Table
        The first of these measures: ``value`` with ends ``low`` and ``high``; those of the contexts of a method hold
        together, so that whichever is named is covered.
    changes : Table or None
        Of this measure against the plain model, "erm", where that was judged too: ``before`` with the plain model,
        ``after``, their ``change`` with ends ``change_low`` and ``change_high``, and its ``size`` in words.
    unseen : Table
        Contexts that the fit did not have, each with its ``n`` rows, their ``share`` and the leading measure.
    mix : MixNow or None
        Shares then and now, and whether the mix lies in the set that the model was made for; None without contexts.
    risks : Table or None
        The risk of each context ``then`` and ``now``, with the standard error ``error`` of the latter, the least
        possible risk known from the fit, ``least``, and the ``excess`` of now over that.
    mix_excess : float
        The largest excess in any plausible mix; NaN where least risks or the set are not known.
    drift : Drift or None
        The change of risk since the fit, split into mix, risks within contexts, and new contexts.
    calibration : Table
        What was ``predicted`` and ``observed`` on average in each context, and their difference ``gap`` with ends
        ``low`` and ``high`` that hold together: the mean of a number; the share of the second of two classes, else how
        often the class named was right; of a quantile, how often targets were at or below it.
    notes : tuple of str
        What else the reader should know.
    confidence : float
    pictured : pair of Judged and HeldOut
        Rows for pictures, all or a sample of them.
    """

    method: str
    task: Task
    n_rows: int
    measures: Table
    leading: Table
    changes: Table | None
    unseen: Table
    mix: MixNow | None
    risks: Table | None
    mix_excess: float
    drift: Drift | None
    calibration: Table
    notes: tuple[str, ...]
    confidence: float
    pictured: tuple[Judged, HeldOut]

    @property
    def measure(self) -> Measure:
        """The measure that leads."""
        return measures_of(self.task, self.pictured[0].predicted)[0]

    @property
    def methods(self) -> list[str]:
        """All that were judged, the model first."""
        return list(dict.fromkeys(self.measures["method"].tolist()))

    @property
    def worst(self) -> dict[str, Any] | None:
        """The row of ``leading`` with the context in which the model does worst, if there are several."""
        rows = [row for row in self.leading.where(method=self.method).rows() if row["context"] != ALL]
        large = [row for row in rows if row["n"] >= _FEW and not math.isnan(row["value"])]
        known = large or [row for row in rows if not math.isnan(row["value"])]
        if len(rows) < 2 or not known:
            return None
        return (min if self.measure.higher_is_better else max)(known, key=lambda row: row["value"])

    @property
    def _of_large(self) -> str:
        """Which contexts are looked at for the worst, where these are not all."""
        own = list(self.leading.where(method=self.method).rows())[1:]
        large = [row["n"] >= _FEW for row in own]
        return f", of contexts with {_FEW} rows or more," if any(large) and not all(large) else ""

    @cached_property
    def verdict(self) -> str:
        """What these rows say, in a few sentences."""
        return " ".join(self.sentences)

    @property
    def sentences(self) -> list[str]:
        """The parts of the verdict."""
        words = [self.headline, self.beside, self.best, self.off, self._unseen_words]
        if self.mix is not None:
            words.append(self.mix.words)
        if self.drift is not None:
            words.append(self.drift.words)
        return [one for one in words if one]

    @property
    def headline(self) -> str:
        """How well the model does over all rows, and where it does worst."""
        measure = self.measure
        every = next(row for row in self.leading.rows() if row["context"] == ALL and row["method"] == self.method)
        words = (
            f"On {_rows(self.n_rows)} {measure.name} of {model_in_words(self.method)} is {_with_ends(measure, every)}"
        )
        worst = self.worst
        if worst is not None:
            side = "lowest" if measure.higher_is_better else "highest"
            words += (
                f"; it is {side}{self._of_large} in {_in_words(worst['context'])}: {_with_ends(measure, worst)} "
                f"({_rows(worst['n'])})"
            )
        return f"{words}."

    @property
    def beside(self) -> str:
        """What the model changes against the plain one, or what the robust one would."""
        if self.changes is None or not self.changes.n_rows:
            return ""
        method = self.method if self.method != "erm" else "robust"
        rows = {row["context"]: row for row in self.changes.where(method=method).rows()}
        if not rows:
            return ""
        measure, worst = self.measure, self.worst
        whose = "Against the plain model" if method == self.method else "The robust model in its place"
        said = [f"{_changed(measure, rows[ALL])} over all rows"]
        if worst is not None and worst["context"] in rows:
            said.append(f"{_changed(measure, rows[worst['context']])} in {_in_words(worst['context'])}")
        return f"{whose}: {'; '.join(said)}."

    @property
    def best(self) -> str:
        """Which of several models does best over all rows, where that is neither the model nor spoken of already."""
        every = {row["method"]: row["value"] for row in self.leading.rows() if row["context"] == ALL}
        chosen = (max if self.measure.higher_is_better else min)(every, key=lambda name: every[name])
        spoken_of = {self.method, "erm", "robust" if self.method == "erm" else ""}
        if chosen in spoken_of or every[chosen] == every[self.method]:
            return ""
        value, judged = self.measure.text(every[chosen]), ""
        if self.changes is not None:
            size = next(row["size"] for row in self.changes.where(method=chosen).rows() if row["context"] == ALL)
            judged = f" (against the plain model: {size})"
        best = f"has the best {self.measure.name} of the models judged"
        return f"Over all rows {model_in_words(chosen)} {best}: {value}{judged}."

    @property
    def off(self) -> str:
        """How far predictions are off on average over all rows; nothing where that is chance, or does not matter."""
        row = next(self.calibration.rows())
        beyond_chance = row["low"] > 0.0 or row["high"] < 0.0
        classes, side = self.pictured[0].predicted.classes, "low" if row["gap"] > 0.0 else "high"
        if classes is not None or self.task == "quantile":
            if not beyond_chance or abs(row["gap"]) < PRACTICAL_POINTS or self.pictured[0].predicted.certain:
                return ""
            predicted, observed = (f"{100.0 * row[name]:.1f}%" for name in ("predicted", "observed"))
            if classes is None:
                return f"{observed} of targets are at or below the predicted {predicted} quantile."
            if len(classes) != 2:
                sure = "sure" if side == "high" else "unsure"
                right = f"which is right in {observed} of rows"
                return f"The model is too {sure}: {predicted} on average for the class it names, {right}."
            event = f"{shown(plain(classes[1])):.40}"
            return (
                f"Probabilities of {event} are too {side}: {predicted} on average, and it came in {observed} of rows."
            )
        size = next(row for row in self.leading.rows() if row["context"] == ALL and row["method"] == self.method)
        if not beyond_chance or abs(row["gap"]) < PRACTICAL_SHARE * size["value"]:
            return ""
        by, mean = written(abs(row["gap"]), digits=3), written(row["observed"], digits=3)
        return f"Predictions are too {side} by {by} on average, where the mean of what came is {mean}."

    @property
    def _unseen_words(self) -> str:
        n = self.unseen.n_rows
        if not n:
            return ""
        named = ", ".join(f"{shown(one):.40}" for one in self.unseen["context"][:_NAMED])
        more = f" and {n - _NAMED} more" if n > _NAMED else ""
        share = float(self.unseen["share"].sum())
        return (
            f"{100.0 * share:.1f}% of rows ({int(self.unseen['n'].sum()):,}) are of {n} context{'s' * (n > 1)} that "
            f"the fit did not have: {named}{more}."
        )

    @property
    def json(self) -> dict[str, Any]:
        """All of it as what JSON can hold."""
        drift = self.drift
        return {
            "verdict": self.verdict,
            "method": self.method,
            "task": self.task,
            "rows": self.n_rows,
            "measure": self.measure.name,
            "confidence": self.confidence,
            "measures": plain_rows(self.measures),
            "leading": plain_rows(self.leading),
            "changes": None if self.changes is None else plain_rows(self.changes),
            "unseen": plain_rows(self.unseen),
            "shares": None if self.mix is None else plain_rows(self.mix.shares),
            "mix": None if self.mix is None else self.mix.json,
            "risks": None if self.risks is None else plain_rows(self.risks),
            "mix_excess": jsonable(self.mix_excess),
            "drift": drift
            and {"verdict": drift.words, "new_share": drift.new_share, "methods": plain_rows(drift.table)},
            "calibration": plain_rows(self.calibration),
            "notes": list(self.notes),
        }

    @property
    def in_units(self) -> Table:
        """The measures as text, each in its unit."""
        known = {one.name: one for one in measures_of(self.task, self.pictured[0].predicted)}
        return Table(
            {
                name: np.array([known[name].text(value) for value in column.tolist()], dtype=object)
                if name in known
                else column
                for name, column in self.measures.items()
            }
        )

    def __repr__(self) -> str:
        parts = [*self.sentences, *(f"note: {one}" for one in self.notes), "", str(self.in_units)]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.verdict)}</p>{self.in_units._repr_html_()}"


def model_in_words(method: str) -> str:
    """Return what the model of a method is called in a sentence."""
    if method == "inverse-frequency":
        return "the model with inverse-frequency weights"
    return "the model" if method == "model" else f"the {'plain' if method == 'erm' else method} model"


def _in_words(context: Any) -> str:
    return f"{shown(context):.60}"


def _rows(n: int) -> str:
    return f"{n:,} row{'' if n == 1 else 's'}"


def _with_ends(measure: Measure, row: Mapping[str, Any]) -> str:
    ends = "" if math.isnan(row["low"]) else f" [{measure.text(row['low'])}, {measure.text(row['high'])}]"
    return f"{measure.text(row['value'])}{ends}"


def _changed(measure: Measure, row: Mapping[str, Any]) -> str:
    points = " points" if measure.unit == "%" else ""
    change = measure.change_text(interval_in(dict(row), "change"), row["before"])
    return f"{measure.name} {change}{points} ({row['size']})"
