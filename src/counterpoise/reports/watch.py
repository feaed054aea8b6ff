"""A watch as a page: whether a model is still used as it was made for, what changed, since when, and what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import objects, plain, shown
from counterpoise.reports.pages.document import page, table, versions
from counterpoise.reports.pages.lines import Line, Mark, line_chart
from counterpoise.reports.pages.panels import Panel, panel_chart
from counterpoise.reports.pages.rows import DotRow, dot_chart
from counterpoise.reports.pages.scales import number
from counterpoise.reports.pages.time_axis import time_axis
from counterpoise.reports.pages.words import Html
from counterpoise.reports.shares import allowed_words
from counterpoise.table import Table

Array = NDArray[np.float64]

_PANELS = 12
"""Contexts whose shares are drawn."""

_HEAD = 1 << 16
"""Bytes of a page among which its style is."""

_POINTS = 40
"""Stretches of time in which they are."""

_LOWEST, _HIGHEST = 0.01, 1e6
"""Between these e-values are drawn as what they are: below there is no reason at all to think of a change, above none
to doubt it."""

_MOST_RISKS = 20
"""Contexts whose risks are drawn."""

_NOW, _THEN, _BAND = "#00539b", "#555555", "#8a8a8a"

QUESTIONS = {
    "mix": "Has the mix left the set?",
    "unseen": "Are there contexts that the fit did not have?",
    "risk": "Has a context's risk grown beyond what the fit promised?",
}
"""What is asked, in words."""

_LINES = {"mix": "mix", "unseen": "new contexts", "risk": "risk"}
_COLOURS = {"mix": "#0072b2", "unseen": "#b5548c", "risk": "#d55e00"}


class Advised(Protocol):
    """What to do."""

    @property
    def sentence(self) -> str:
        """In words."""


class Watch(Protocol):
    """What a page shows of a :class:`counterpoise.Watch`; its attributes are described there."""

    # Declared, not imported: a watch knows models of tables, which know reports.
    @property
    def alarm(self) -> bool: ...
    @property
    def words(self) -> str: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def advice(self) -> Advised: ...
    @property
    def confidence(self) -> float: ...
    @property
    def run_length(self) -> float | None: ...
    @property
    def threshold(self) -> float: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def n_updates(self) -> int: ...
    @property
    def questions(self) -> Table: ...
    @property
    def shares(self) -> Table: ...
    @property
    def risks(self) -> Table: ...
    @property
    def unseen(self) -> Table: ...
    @property
    def unseen_share(self) -> float: ...
    @property
    def unseen_interval(self) -> tuple[float, float]: ...
    @property
    def history(self) -> Table: ...
    @property
    def history_by_context(self) -> Table: ...


def written(watch: Watch, title: str = "", settings: Mapping[str, Any] | None = None) -> str:
    """Return what a watch has seen as one page of HTML that needs nothing else.

    Parameters
    ----------
    watch : counterpoise.Watch
    settings : mapping, optional
        What is watched and by which rows, listed at the end.
    """
    share = watch.shares
    order = _worst_first(share)
    begin, end = ([plain(one) for one in watch.history[name].tolist()] for name in ("time", "until"))
    positions, ends = time_axis(begin)[0], time_axis(end)[0]
    marks = time_axis([*begin, *end[-1:]])[1]
    risks = watch.risks
    judged = [row for row in risks.rows() if row["n"] > 0]
    advice = watch.advice.sentence
    return page(
        "reports/watch.html",
        title or "A model on watch",
        {**_settings(watch), **(settings or {}), **versions("numpy", "scipy")},
        watch=watch,
        advice="" if advice in watch.words else advice,
        questions=_questions(watch),
        panels=_panels(watch, order[:_PANELS], positions, marks),
        n_left=max(share.n_rows - _PANELS, 0),
        shares=_shares(share, order),
        evidence=_evidence(watch, positions, ends, marks),
        proof=any(row["question"] == "unseen" and math.isinf(row["threshold"]) for row in watch.questions.rows()),
        risk_chart=_risk_chart(judged) if judged else "",
        risks=_risks(risks) if judged else "",
        unseen_low=_percent(watch.unseen_interval[0]),
        unseen_high=_percent(watch.unseen_interval[1]),
        unseen_now=_percent(watch.unseen_share),
        unseen=_unseen(watch) if watch.unseen.n_rows else "",
        history=_history(watch),
        level=f"{100.0 * watch.confidence:g}%",
    )


def is_page(path: Path) -> bool:
    """Whether a file is a page that :func:`written` made, which a later one may replace."""
    try:
        with path.open("rb") as file:
            return b"/* counterpoise watch */" in file.read(_HEAD)
    except OSError:
        return False


def _settings(watch: Watch) -> dict[str, Any]:
    return {
        "rows": f"{watch.n_rows:,} in {watch.n_updates:,} update{'s' * (watch.n_updates != 1)}",
        "confidence": f"{watch.confidence:g}",
        **({} if watch.run_length is None else {"run length": number(float(watch.run_length))}),
    }


def _questions(watch: Watch) -> Html:
    rows = list(watch.questions.rows())
    cells = {
        "question": objects([QUESTIONS.get(row["question"], row["question"]) for row in rows]),
        "answer": objects([_answer(row, watch) for row in rows]),
        "since": objects(["" if row["since"] is None else _time(row["since"]) for row in rows]),
        "e_value": objects([_e_text(row["e_value"]) for row in rows]),
        "largest": objects([_e_text(row["largest"]) for row in rows]),
        "threshold": objects([_threshold(row) for row in rows]),
        "p_value": objects([_p_text(row["p_value"]) for row in rows]),
    }
    headings = {
        "since": "since about",
        "e_value": "e-value now",
        "largest": "largest so far",
        "threshold": "alarm at",
        "p_value": "p-value",
    }
    note = "An e-value is how many times likelier what came is under some change than it can be without one. " + (
        "p-values hold however often one looks."
        if watch.run_length is None
        else f"False alarms are at least {number(float(watch.run_length))} updates apart, on average."
    )
    return table(Table(cells, note), left=["question", "answer", "since"], headings=headings, caption="What is watched")


def _answer(row: Mapping[str, Any], watch: Watch) -> str:
    if row["alarm"]:
        return "yes"
    if row["question"] == "risk" and not np.isfinite(np.asarray(watch.risks["promised"], dtype=np.float64)).any():
        return "not asked: nothing is promised"
    if row["question"] == "risk" and not np.asarray(watch.risks["n"]).any():
        return "not known: no targets came"
    return "no sign of it"


def _threshold(row: Mapping[str, Any]) -> str:
    # One row that must not be there is proof.
    return number(row["threshold"]) if math.isfinite(row["threshold"]) else "one row" * (row["question"] == "unseen")


def _time(label: Any) -> str:
    return shown(label) if isinstance(label, (str, int, float)) else str(label)


def _e_text(value: float) -> str:
    return "< 0.01" if 0.0 <= value < _LOWEST else number(value)


def _p_text(value: Any) -> str:
    value = _float(value)
    return "" if math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _worst_first(share: Table) -> NDArray[np.intp]:
    """Return contexts in the order of how far their shares are outside the set, for what is common at that share."""
    now, low, high, then = (np.asarray(share[name], dtype=np.float64) for name in ("now", "low", "high", "then"))
    # Those of no band, such as contexts that the set does not have, come last.
    outside = np.maximum(np.nan_to_num(now - high, nan=-1.0), np.nan_to_num(low - now, nan=-1.0))
    nearest = np.clip(np.where(now > then, high, low), 1e-4, 1.0 - 1e-4)
    return np.argsort(-outside / np.sqrt(nearest * (1.0 - nearest)), kind="stable")


def _panels(watch: Watch, order: NDArray[np.intp], positions: Array, marks: list[tuple[float, str]]) -> Html:
    share = watch.shares
    middle, over_time = _over_time(watch)
    x = positions[middle]
    rows = list(share.rows())
    panels = [
        Panel(
            shown(rows[k]["context"]),
            x,
            100.0 * over_time[k],
            100.0 * _float(rows[k]["low"]),
            100.0 * _float(rows[k]["high"]),
            100.0 * _float(rows[k]["then"]),
            _NOW,
        )
        for k in order
    ]
    told = "; ".join(
        f"{shown(rows[k]['context'])}: {_share(rows[k]['now'])} of what came, {rows[k]['then']:.1%} in the fit, the "
        f"set allows {rows[k]['low']:.1%} to {rows[k]['high']:.1%}"
        for k in order
    )
    return panel_chart(panels, title="Share of each context over time, %", x_ticks=marks, alt=told)


def _share(value: Any) -> str:
    return "nothing" if math.isnan(_float(value)) else f"{value:.1%}"


def _over_time(watch: Watch) -> tuple[NDArray[np.intp], Array]:
    """Return the share of each context in stretches of time, and the period in the middle of each stretch.

    Neighbouring periods are taken together where they are many: shares of single days would hide the band.
    """
    long, places = watch.history_by_context, {_key(one): k for k, one in enumerate(watch.shares["context"].tolist())}
    n_periods = watch.history.n_rows
    rows = np.zeros((len(places), n_periods))
    period, last, before = -1, None, set[Any]()
    # Periods follow one another, and a context is in each of them once at most.
    for row in long.rows():
        key, time = _key(row["context"]), row["time"]
        if period < 0 or time != last or key in before:
            period, last, before = period + 1, time, set()
        before.add(key)
        if key in places and period < n_periods:
            rows[places[key], period] = row["rows"]
    starts = np.unique(np.linspace(0, n_periods, min(n_periods, _POINTS) + 1).astype(np.intp))[:-1]
    together = np.add.reduceat(rows, starts, axis=1) if len(starts) else rows
    all_rows = np.asarray(watch.history["rows"], dtype=np.float64)
    total = np.add.reduceat(all_rows, starts) if len(starts) else all_rows
    with np.errstate(divide="ignore", invalid="ignore"):
        return (starts + np.append(starts[1:], n_periods) - 1) // 2, together / total


def _key(label: Any) -> Any:
    label = plain(label)
    return tuple(label) if isinstance(label, list) else label


def _float(value: Any) -> float:
    return math.nan if value is None else float(value)


def _shares(share: Table, order: NDArray[np.intp]) -> Html:
    own = Table({name: column[order] for name, column in share.items()})
    known = ~np.isnan(np.asarray(own["low"], dtype=np.float64))
    allowed = objects(["none"] * own.n_rows)
    if known.any():
        allowed[known] = allowed_words(Table({name: own[name][known] for name in ("low", "high")}))
    cells = {
        "context": objects([shown(one) for one in own["context"]]),
        "then": own["then"],
        "plausible": allowed,
        "now": own["now"],
        "sequence": _intervals(own, "{:.1%}".format),
        "place": objects([_place(row) for row in own.rows()]),
    }
    headings = {"then": "in the fit", "plausible": "set allows", "sequence": "range now", "place": "judgement"}
    return table(
        Table(cells),
        left=["context", "place"],
        formats=dict.fromkeys(("then", "now"), "{:.1%}".format),
        headings=headings,
        caption="The share of each context",
    )


def _place(row: Mapping[str, Any]) -> str:
    if row["lower"] > row["high"]:
        return "above the set"
    return "below the set" if row["upper"] < row["low"] else ""


def _intervals(rows: Table, text: Any) -> NDArray[Any]:
    ends = zip(rows["lower"].tolist(), rows["upper"].tolist(), strict=True)
    return objects(
        ["" if math.isnan(low) or math.isnan(high) else f"{text(low)} to\u00a0{text(high)}" for low, high in ends]
    )


def _evidence(watch: Watch, positions: Array, ends: Array, marks: list[tuple[float, str]]) -> Html:
    """Return the e-value of each question over time, on a scale of powers of ten on which all have one threshold.

    Periods begin at ``positions``, and e-values are those at their ``ends``.
    """
    history, threshold = watch.history, float(watch.threshold)
    rows = [row for row in watch.questions.rows() if math.isfinite(row["threshold"])]
    lines = {}
    for row in rows:
        values = np.asarray(history[row["question"]], dtype=np.float64) * (threshold / row["threshold"])
        lines[row["question"]] = np.log10(np.clip(values, _LOWEST, max(_HIGHEST, 10.0 * threshold)))
    level = math.log10(threshold)
    top = max([level, *(float(np.nanmax(values)) for values in lines.values() if len(values))])
    across = [positions.min(), ends.max()] if len(positions) else [0.0, 1.0]
    if across[0] == across[1]:
        across = [across[0] - 0.5, across[1] + 0.5]
    drawn = [Line(_LINES[name], ends, values, colour=_COLOURS[name]) for name, values in lines.items()]
    drawn.append(Line("alarm", across, [level, level], colour="#a00000", dashed=True))
    told = "; ".join(
        f"{_LINES[name]}: {number(10.0 ** values[-1])} at the end, {number(10.0 ** values.max())} at most"
        for name, values in lines.items()
        if len(values)
    )
    return line_chart(
        drawn,
        title="How strongly rows speak for a change",
        x_label="",
        y_label="e-value, where all questions have one threshold",
        marks=_since(watch, positions),
        x_ticks=marks,
        y_ticks=_powers(math.log10(_LOWEST), top),
        alt=f"An alarm is raised at {number(threshold)}. {told}.",
    )


def _since(watch: Watch, positions: Array) -> list[Mark]:
    """Return when changes seem to have begun."""
    times = [plain(one) for one in watch.history["time"].tolist()]
    found = []
    for row in watch.questions.rows():
        if row["alarm"] and row["since"] in times:
            at = float(positions[times.index(row["since"])])
            found.append(Mark(at, f"{_LINES[row['question']]} since", _COLOURS[row["question"]]))
    return found


def _powers(low: float, high: float) -> list[tuple[float, str]]:
    """Return powers of ten that reach from one exponent to another, few enough to be read."""
    first, last = math.floor(low), max(math.ceil(high - 1e-9), math.floor(low) + 1)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if (last - first) / step <= 6)
    last = first + -(-(last - first) // step) * step
    return [
        (float(k), number(10.0**k) if -3 <= k <= 5 else f"10{str(k).translate(_RAISED)}")
        for k in range(first, last + 1, step)
    ]


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _risk_chart(judged: list[dict[str, Any]]) -> Html:
    """Return risks in units of what was promised, so that contexts which differ in size can be compared."""
    worst = sorted((row for row in judged if _float(row["promised"]) > 0.0), key=lambda row: -_beyond(row))
    names = {"promised": "promised", "bound": "allowed for", "now": "now", "lower": "now at least"}
    colours = {"promised": _THEN, "allowed for": _BAND, "now": _NOW, "now at least": "#d55e00"}
    rows = [
        DotRow(row["context"], {words: _float(row[name]) / row["promised"] for name, words in names.items()})
        for row in worst[:_MOST_RISKS]
    ]
    return dot_chart(
        rows,
        colours=colours,
        title="The risk of each context, in units of what was promised",
        x_label="times what was promised",
        alt="; ".join(f"{shown(row.name)}: {number(row.values['now'])} times what was promised" for row in rows),
    )


def _beyond(row: Mapping[str, Any]) -> float:
    """Return how far a context's risk is beyond what is allowed for, relative to that."""
    now, bound = _float(row["lower"]), _float(row["bound"])
    return (now - bound) / abs(bound) if math.isfinite(now) and math.isfinite(bound) and bound else -math.inf


def _risks(rows: Table) -> Html:
    kept = np.asarray(rows["n"]) > 0
    own = Table({name: column[kept] for name, column in rows.items()})
    order = np.argsort([-_beyond(row) for row in own.rows()], kind="stable")
    own = Table({name: column[order] for name, column in own.items()})
    cells = {
        "context": objects([shown(one) for one in own["context"]]),
        "n": own["n"],
        "promised": own["promised"],
        "bound": own["bound"],
        "now": own["now"],
        "sequence": _intervals(own, number),
        "place": objects(["grown" if _float(row["lower"]) > _float(row["bound"]) else "" for row in own.rows()]),
    }
    headings = {
        "n": "rows or groups",
        "bound": "allowed for",
        "sequence": "range now",
        "place": "judgement",
    }
    return table(
        Table(cells, "" if kept.all() else f"{int((~kept).sum()):,} contexts have no row with a target yet."),
        left=["context", "place"],
        formats=dict.fromkeys(("promised", "bound", "now"), number),
        headings=headings,
        caption="The risk of each context",
    )


def _percent(share: float) -> str:
    return f"{100.0 * share:.2f}%"


def _unseen(watch: Watch) -> Html:
    rows = watch.unseen
    cells = {
        "context": objects([shown(one) for one in rows["context"]]),
        "rows": rows["rows"],
        "share": rows["share"],
    }
    return table(Table(cells), left=["context"], formats={"share": "{:.2%}".format}, caption="One by one")


def _history(watch: Watch) -> Html:
    rows = watch.history
    asked = [row["question"] for row in watch.questions.rows() if math.isfinite(row["threshold"])]
    cells = {
        "time": objects([_period(row) for row in rows.rows()]),
        "updates": rows["updates"],
        "rows": rows["rows"],
        "unseen_rows": rows["unseen_rows"],
        **{name: objects([_e_text(_float(value)) for value in rows[name].tolist()]) for name in asked},
    }
    headings = {"unseen_rows": "of new contexts", **{name: f"e-value, {_LINES[name]}" for name in asked}}
    return table(Table(cells), left=["time"], headings=headings, caption="Periods", most=1000)


def _period(row: Mapping[str, Any]) -> str:
    first, last = (_time(row[name]) for name in ("time", "until"))
    return first if first == last else f"{first} to {last}"
