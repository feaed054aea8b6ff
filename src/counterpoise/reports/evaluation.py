"""An evaluation as a page: how well a fitted model does on later rows, context by context, and what has changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import objects, shown
from counterpoise.inference.intervals import interval_in
from counterpoise.judging.evaluated import Evaluation, model_in_words
from counterpoise.judging.measures import measures_of
from counterpoise.reports.calibration import Calibration
from counterpoise.reports.methods import COLOURS
from counterpoise.reports.pages.document import page, table, versions
from counterpoise.reports.pages.rows import DotRow, dot_chart
from counterpoise.reports.pages.scales import MINUS, number
from counterpoise.reports.pages.words import Html
from counterpoise.reports.residuals import Residuals
from counterpoise.reports.shares import allowed_words
from counterpoise.table import Table

THESE = "these rows"
"""What the rows are called that judge."""


def written(evaluation: Evaluation, title: str = "", settings: Mapping[str, Any] | None = None) -> str:
    """Return an evaluation as one page of HTML that needs nothing else.

    Parameters
    ----------
    evaluation : Evaluation
        What :func:`counterpoise.evaluate` returns.
    settings : mapping, optional
        What was judged, and on which rows, listed at the end.
    """
    judged, held_out = evaluation.pictured
    several = evaluation.leading.where(method=evaluation.method).n_rows > 1
    certain, classes = judged.predicted.certain, judged.predicted.classes
    model = model_in_words(evaluation.method)
    numbers = classes is None and evaluation.task != "quantile"
    return page(
        "reports/evaluation.html",
        title or "A model on later rows",
        {**(settings or {}), **versions("numpy", "scipy", "scikit-learn", "pyarrow")},
        evaluation=evaluation,
        sentences=[one for one in evaluation.sentences[1:] if one],
        several=several,
        drawn=evaluation.leading.where(method=evaluation.method).n_rows > 2,
        first=_first(evaluation),
        chart=_chart(evaluation) if several else "",
        own_measures=_every_measure(evaluation, [evaluation.method]),
        every_measure=_every_measure(evaluation, evaluation.methods) if len(evaluation.methods) > 1 else "",
        unseen=_unseen(evaluation) if evaluation.unseen.n_rows else "",
        mix=_mix(evaluation) if evaluation.mix is not None else "",
        mix_chart=_mix_chart(evaluation) if evaluation.mix is not None else "",
        calibration=None if certain or classes is None else Calibration.of(judged, held_out, THESE),
        residuals=Residuals.of(judged, held_out, THESE, model=model) if numbers else None,
        level=f"{100.0 * evaluation.confidence:g}%",
        drift=_drift(evaluation) if evaluation.drift is not None else "",
        risks=_risks(evaluation) if evaluation.risks is not None and evaluation.drift is not None else "",
    )


def _context(label: Any, k: int) -> str:
    return "all" if k == 0 else shown(label)


def _first(evaluation: Evaluation) -> Html:
    """Return the first table: the leading measure of every model, and what the model changes against the plain one."""
    measure, methods = evaluation.measure, evaluation.methods
    ours = evaluation.leading.where(method=evaluation.method)
    order = _order(evaluation, ours)
    cells: dict[str, NDArray[Any]] = {
        "context": objects([_context(ours["context"][k], k) for k in order]),
        "rows": ours["n"][order],
    }
    for method in methods:
        own = evaluation.leading.where(method=method)
        texts = [measure.text(own["value"][k]) for k in order]
        if method == evaluation.method:
            ends = zip(own["low"][order], own["high"][order], strict=True)
            texts = [
                text if math.isnan(low) else f"{text} [{measure.text(low)},\u00a0{measure.text(high)}]"
                for text, (low, high) in zip(texts, ends, strict=True)
            ]
        cells[method] = objects(texts)
    against = evaluation.method if evaluation.method != "erm" else "robust"
    if evaluation.changes is not None and against in evaluation.changes["method"]:
        changes = evaluation.changes.where(method=against)
        rows = list(changes.rows())
        points = ", points" if measure.unit == "%" else ""
        cells[f"change{points}"] = objects(
            [
                measure.change_text(interval_in(rows[k], "change"), rows[0]["before"])
                .replace("-", MINUS)
                .replace(", ", ",\u00a0")
                for k in order
            ]
        )
        cells["judgement"] = changes["size"][order]
    slight = "one point" if measure.unit == "%" else "2% of what the plain model has"
    rule = (
        "A change is called better or worse where its interval excludes zero, and slight where it is less than "
        f"{slight}, which is also what makes no practical difference."
    )
    changed = f"; change from erm to {against}" if "judgement" in cells else ""
    return table(
        Table(cells, rule if "judgement" in cells else ""),
        left=["context", "judgement"],
        caption=f"{measure.name[:1].upper()}{measure.name[1:]} on {THESE}: {measure.words}{changed}; brackets are "
        f"{100.0 * evaluation.confidence:g}% intervals that hold for all contexts together",
    )


def _order(evaluation: Evaluation, ours: Table) -> NDArray[np.intp]:
    """Return all rows together first, then contexts, the one in which the model does worst first."""
    values = ours["value"][1:] if evaluation.measure.higher_is_better else -ours["value"][1:]
    return np.concatenate([[0], 1 + np.argsort(np.nan_to_num(values, nan=np.inf), kind="stable")]).astype(np.intp)


def _chart(evaluation: Evaluation) -> Html:
    measure, methods = evaluation.measure, evaluation.methods
    ours = evaluation.leading.where(method=evaluation.method)
    values = {method: evaluation.leading.where(method=method)["value"] for method in methods}
    scale = 100.0 if measure.unit == "%" else 1.0
    unit = ", %" if measure.unit == "%" else ", in the unit of the target" if measure.unit == "target" else ""
    rows = [
        DotRow("all rows" if k == 0 else ours["context"][k], {method: scale * own[k] for method, own in values.items()})
        for k in _order(evaluation, ours)
    ]
    return dot_chart(
        rows,
        colours={name: COLOURS[name] for name in methods if name in COLOURS},
        title=f"{measure.name[:1].upper()}{measure.name[1:]} in each context",
        x_label=f"{measure.name}{unit}",
        alt="; ".join(
            f"{shown(row.name)}: " + ", ".join(f"{name} {number(value)}" for name, value in row.values.items())
            for row in rows[:30]
        ),
    )


def _every_measure(evaluation: Evaluation, methods: list[str]) -> Html:
    """Return every measure of some models in every context."""
    rows = evaluation.measures
    rows = rows if len(methods) > 1 else rows.where(method=methods[0])
    per_method = rows.n_rows // len(methods)
    measures = measures_of(evaluation.task, evaluation.pictured[0].predicted)
    cells: dict[str, NDArray[Any]] = {
        "context": objects([_context(one, k % per_method) for k, one in enumerate(rows["context"].tolist())]),
        **({"model": rows["method"]} if len(methods) > 1 else {}),
        "rows": rows["n"],
        **{one.name: objects([one.text(float(value)) for value in rows[one.name]]) for one in measures},
    }
    told = "; ".join(f"{one.name}: {one.words}" for one in measures)
    whose = "every model" if len(methods) > 1 else model_in_words(methods[0])
    caption = f"Every measure of {whose} on {THESE}"
    return table(Table(cells, told if len(methods) == 1 else ""), left=["context", "model"], caption=caption)


def _unseen(evaluation: Evaluation) -> Html:
    rows, measure = evaluation.unseen, evaluation.measure
    cells = {
        "context": objects([shown(one) for one in rows["context"]]),
        "rows": rows["n"],
        "share": rows["share"],
        measure.name: objects([measure.text(value) for value in rows[measure.name].tolist()]),
    }
    return table(Table(cells), left=["context"], formats={"share": "{:.1%}".format}, caption="One by one")


def _mix(evaluation: Evaluation) -> Html:
    assert evaluation.mix is not None
    rows = evaluation.mix.shares
    bounds = {} if evaluation.mix.inside is None else {"plausible": _allowed(rows)}
    cells = {
        "context": objects([shown(one) for one in rows["context"]]),
        "then": rows["then"],
        **bounds,
        "now": rows["now"],
    }
    shares = dict.fromkeys(("then", "now"), "{:.1%}".format)
    headings = {"then": "in the fit"}
    return table(Table(cells), left=["context"], formats=shares, headings=headings, caption="The share of each context")


def _allowed(rows: Table) -> NDArray[Any]:
    known = ~np.isnan(rows["low"])
    words = objects(["none"] * rows.n_rows)
    words[known] = allowed_words(Table({name: rows[name][known] for name in ("low", "high")}))
    return words


def _mix_chart(evaluation: Evaluation) -> Html:
    assert evaluation.mix is not None
    names = {"then": "in the fit", "now": "now", "low": "least plausible", "high": "most plausible"}
    colours = {"in the fit": "#555555", "now": "#00539b", "least plausible": "#8a8a8a", "most plausible": "#8a8a8a"}
    rows = list(evaluation.mix.shares.rows())
    return dot_chart(
        [
            DotRow(
                row["context"], {words: 100.0 * row[name] for name, words in names.items() if row[name] == row[name]}
            )
            for row in rows
        ],
        colours=colours,
        title="The share of each context then and now",
        x_label="share of rows, %",
        alt="; ".join(f"{shown(row['context'])}: {row['then']:.1%} then, {row['now']:.1%} now" for row in rows[:30]),
    )


def _drift(evaluation: Evaluation) -> Html:
    assert evaluation.drift is not None
    headings = {"within": "within contexts", "within_error": "its standard error", "new": "new contexts"}
    return table(evaluation.drift.table, left=["method"], headings=headings, caption="The change of the mean risk")


def _risks(evaluation: Evaluation) -> Html:
    assert evaluation.risks is not None
    rows = evaluation.risks
    cells = {name: objects([shown(one) for one in own]) if name == "context" else own for name, own in rows.items()}
    worst = evaluation.mix_excess
    note = "" if math.isnan(worst) else f"In the worst plausible mix the excess now is {number(worst)}."
    headings = {"error": "standard error now", "least": "least, by the fit", "excess": "excess now"}
    return table(Table(cells, note), left=["context"], headings=headings, caption="The risk of each context")
