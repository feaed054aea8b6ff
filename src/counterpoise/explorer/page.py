"""The page itself: controls, pictures and tables, which the script fills with the level that is chosen."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from counterpoise.explorer.data import MOST_DRAWN, as_script, embedded
from counterpoise.explorer.decision import AffineDecision, StockDecision
from counterpoise.explorer.levels import METHODS, STOPS
from counterpoise.explorer.sweep import CRITERIA, Scored, Sweep
from counterpoise.pages.document import details, document, facts, section, sentence, table
from counterpoise.pages.scales import number
from counterpoise.pages.svg import INK, SIZE
from counterpoise.pages.words import Html, clean
from counterpoise.tables import Table

_TITLE = "How much robustness?"


def written(sweep: Sweep, title: str = "", settings: Mapping[str, Any] | None = None) -> str:
    """Return a sweep as one page of HTML that needs nothing else.

    Parameters
    ----------
    title : str
    settings : mapping, optional
        What the sweep was made from and with, listed at the end.
    """
    here = files("counterpoise.explorer")
    style, program = (here.joinpath(name).read_text(encoding="utf-8") for name in ("explorer.css", "explorer.js"))
    made = {"counterpoise": version("counterpoise"), "Python": platform.python_version(), "numpy": version("numpy")}
    blocks = [
        Html(f"<style>{style}</style>"),
        Html(
            '<p class="notice note" id="needs-script" role="note">The slider needs JavaScript, which is off or blocked '
            "here. The table below holds every level.</p>"
        ),
        _interactive(sweep),
        _all_levels(sweep),
        section("How to read this", *_explained(sweep)),
        section("Settings", facts({**(settings or {}), **made})),
    ]
    return document(
        clean(title) or _TITLE,
        *blocks,
        subtitle=f"From the mix of {sweep.words.context}s in the data to every mix",
        script=as_script(embedded(sweep)) + program,
    )


def _interactive(sweep: Sweep) -> Html:
    """Return what the script fills; it is hidden until then."""
    panels = [_decision(sweep), _trade_off(sweep), _contexts(sweep)]
    return Html(
        '<div id="explorer" hidden><p class="verdict" id="verdict" aria-live="polite"></p>'
        f'<div class="controls">{_buttons()}{_choice("method", "Size of the set by", METHODS)}'
        f"{_choice('criterion', 'Make small', CRITERIA)}</div>"
        '<p class="notice warning" id="caution" role="note" hidden></p>'
        '<div class="slider"><label for="level">How sure of the mix</label><output id="label" for="level"></output>'
        '<input type="range" id="level" min="0" max="1" step="1" value="0" autocomplete="off">'
        '<div class="ends" aria-hidden="true"><span>the mix of the data (ERM)</span><span>every mix</span></div></div>'
        f'<div class="panels">{"".join(panels)}</div></div>'
    )


def _buttons() -> str:
    levels = [("erm", "ERM"), *((str(level), f"{100 * level:g}%") for level in STOPS), ("every", "every mix")]
    made = "".join(
        f'<button type="button" data-level="{level}" aria-pressed="false">{words}</button>'
        for level, words in [*levels, ("fitted", "as fitted")]
    )
    return f'<fieldset id="jumps"><legend>Confidence</legend>{made}</fieldset>'


def _choice(name: str, legend: str, options: tuple[str, ...]) -> str:
    made = "".join(
        f'<label><input type="radio" name="{name}" value="{option}" autocomplete="off"> {option}</label>'
        for option in options
    )
    return f'<fieldset id="{name}"><legend>{legend}</legend>{made}</fieldset>'


def _picture(name: str, title: str) -> str:
    return (
        f'<svg id="{name}" viewBox="0 0 480 330" role="img" aria-labelledby="{name}-title {name}-desc" '
        f'font-family="system-ui, sans-serif" font-size="{SIZE}" fill="{INK}">'
        f'<title id="{name}-title">{title}</title><desc id="{name}-desc"></desc></svg>'
    )


def _decision(sweep: Sweep) -> str:
    decision = sweep.decision
    if decision is None:
        return ""
    note = ""
    if isinstance(decision, StockDecision):
        heading = "The order, and what every order costs above the best one"
    else:
        heading = "The decision boundary" if len(decision.features) == 2 else "The fit"
        if len(decision.values) < decision.n_rows:
            few = f"{len(decision.values)} of {decision.n_rows} rows are drawn, of every context its share."
            note = f'<p class="below">{few}</p>'
    return (
        f'<section><h2>{heading}</h2>{_picture("picture", heading)}<p class="below" id="equation"></p>'
        f'<ul class="legend" id="picture-legend"></ul>{note}</section>'
    )


def _trade_off(sweep: Sweep) -> str:
    heading = f"Average against worst {sweep.words.context}"
    unit = f'<p class="below">{sentence("Amounts in {}.", sweep.words.unit)}</p>' if sweep.words.unit else ""
    rows = {
        "nominal": sentence("{} on average", sweep.words.risk),
        "price": "price of robustness, on average",
        "worst": f"worst {sweep.words.context}",
        "objective": "worst mix in the set",
        "gap": "from the optimum, at most",
    }
    alone = ' class="full panels"' if sweep.decision is None else ""
    numbers = "".join(f'<dt>{words}</dt><dd id="{name}"></dd>' for name, words in rows.items())
    return (
        f'<section{alone}><div><h2>{heading}</h2>{_picture("path", heading)}<ul class="legend" id="path-legend"></ul>'
        f'</div><div><dl class="numbers">{numbers}</dl>{unit}</div></section>'
    )


def _contexts(sweep: Sweep) -> str:
    left_out = len(sweep.contexts) - MOST_DRAWN
    most = f"The {MOST_DRAWN} {sweep.words.context}s with the largest weights, and those that are ever the worst, are "
    note = f'<p class="below">{most}shown; the other {left_out} count in all other numbers.</p>' if left_out > 0 else ""
    return (
        '<section id="contexts" class="full"><h2>The set of plausible mixes, and what comes of it</h2>'
        '<table role="table"><caption>The bar is the interval of a share in the set, the line its share in the data, '
        "the dot its weight in the mix that is least favourable.</caption>"
        f'<thead role="rowgroup"><tr role="row"><th scope="col" role="columnheader">{sweep.words.context}</th>'
        '<th scope="col" role="columnheader" class="share">in the data</th>'
        '<th scope="col" role="columnheader" class="track">share<div id="scale" aria-hidden="true"></div></th>'
        '<th scope="col" role="columnheader" class="set">in the set</th>'
        '<th scope="col" role="columnheader" class="weight">weight</th>'
        '<th scope="col" role="columnheader" class="bar" id="what"></th>'
        '<th scope="col" role="columnheader" class="value"></th></tr></thead>'
        f'<tbody id="rows" role="rowgroup"></tbody></table>{note}</section>'
    )


def _all_levels(sweep: Sweep) -> Html:
    """Return the levels as tables: what is left of the page without a script."""
    ordered = sorted(sweep.by_criterion.values(), key=lambda one: one.criterion != sweep.criterion)
    headings = {**_HEADINGS, "worst_in": f"worst {sweep.words.context}"}
    tables = [
        table(
            _level_table(sweep, one),
            caption=_caption(sweep, one),
            headings=headings,
            formats={"radius": number},
            left=["worst_in"],
        )
        for one in ordered
    ]
    return Html(details("All levels as tables", *tables).replace("<details>", '<details id="levels" open>', 1))


_HEADINGS = {
    "radius": "radius, bits",
    "types": "by types",
    "agrawal": "by agrawal",
    "chi2": "by chi2",
    "price": "price on average",
}


def _caption(sweep: Sweep, one: Scored) -> str:
    made = "excess" if one.criterion == "excess" else sweep.words.risk
    return f"What making the worst-case {made} small costs and brings" + (
        f", in {sweep.words.unit}" if sweep.words.unit else ""
    )


def _level_table(sweep: Sweep, one: Scored) -> Table:
    levels = sweep.levels
    columns: dict[str, Any] = {"radius": levels.radii}
    for method in METHODS:
        columns[method] = [words.removesuffix(f" by {method}") for words in levels.words(method)]
    if isinstance(sweep.decision, StockDecision):
        columns["order"] = sweep.decision.orders[one.criterion]
    worst_in = [clean(sweep.contexts[c], 80) for c in one.worst_contexts]
    return Table.of(**columns, price=one.prices, worst=one.worst, worst_in=worst_in)


def _explained(sweep: Sweep) -> list[str]:
    words = sweep.words
    told = [
        f"The shares of {words.context}s in the data are one draw of a mix that may be another next time. The set "
        "holds every mix that the data cannot rule out at a level of confidence; its radius is how far, in bits, the "
        "mix may be from the data. ERM takes the mix of the data for certain; on the other end every mix is possible.",
        f"At each level {words.subject} is the one that does best in the mix of the set that is least favourable to "
        f"it. Its weights are shown: the {words.context}s that decide. The excess is what {words.subject} loses in a "
        f"{words.context} against {words.best} there; the {words.risk} is the loss itself"
        + (f", here {words.measure}." if words.measure else "."),
        "The same confidence needs a larger set by types than by agrawal, and both cover at least as often as they "
        "say; chi2 is smaller still, and right for many rows.",
        "All levels were solved beforehand. Numbers are those of the data the fit saw.",
    ]
    if isinstance(sweep.decision, StockDecision):
        told.append("A cost below zero is a profit.")
    if isinstance(sweep.decision, AffineDecision):
        told.append("The picture of the decision is in the units of the data.")
    return told
