"""What of a sweep goes into the page: the library's own numbers, and where axes begin and end."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.explorer.decision import AffineDecision, StockDecision
from counterpoise.explorer.levels import METHODS
from counterpoise.explorer.sweep import Scored, Sweep
from counterpoise.pages.scales import extent, labels, ticks
from counterpoise.pages.svg import CYCLE, SIZE
from counterpoise.pages.words import clean, fitted, isolated, width_of

Array = NDArray[np.float64]

MOST_EMBEDDED = 200
MOST_DRAWN = 40
"""Contexts in the page, and those of them that are drawn; all others count in the numbers about the whole."""

_NAME = 80
_COLOURED = 7
_MARGIN = 0.05
_NAMES = 440.0


def embedded(sweep: Sweep) -> dict[str, Any]:
    """Return what the page's script reads, as plain values; infinite and missing numbers are None."""
    ranked = np.argsort(-_importance(sweep), kind="stable")
    kept = np.sort(ranked[:MOST_EMBEDDED])
    place = {int(c): k for k, c in enumerate(kept)}
    levels, decision = sweep.levels, sweep.decision
    drawn = sorted(place[int(c)] for c in ranked[:MOST_DRAWN])
    return {
        "words": {name: clean(words) for name, words in vars(sweep.words).items()},
        "names": [clean(sweep.contexts[c], _NAME) or "(no name)" for c in kept],
        "counts": _plain(sweep.counts[kept]),
        "shares": _plain(sweep.shares[kept]),
        "colours": _colours(ranked, kept),
        "drawn": drawn,
        "others": len(sweep.contexts) - len(drawn),
        "radii": _plain(levels.radii),
        "labels": {method: levels.words(method) for method in METHODS},
        "leads": {method: levels.leads(method) for method in METHODS},
        "stops": {method: [[level, k] for level, k in levels.stops[method].items()] for method in METHODS},
        "cautions": dict(levels.cautions),
        "chosen": levels.chosen,
        "method": levels.method,
        "criterion": sweep.criterion,
        "low": _plain(sweep.intervals[:, kept, 0]),
        "high": _plain(sweep.intervals[:, kept, 1]),
        "criteria": {criterion: _scored(sweep, one, kept, place) for criterion, one in sweep.by_criterion.items()},
        "decision": _affine(decision, place)
        if isinstance(decision, AffineDecision)
        else _stock(decision, kept[drawn])
        if isinstance(decision, StockDecision)
        else None,
    }


def as_script(data: dict[str, Any]) -> str:
    """Return data as a line of JavaScript that defines ``DATA``, whatever the labels hold.

    All but ASCII is escaped, so no character ends a line, and so is what might end the script or begin markup.
    """
    written = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return f"const DATA = JSON.parse({json.dumps(written)});\n"


def _plain(values: Any) -> Any:
    """Return numbers as JSON has them: nested lists, with None for what is not finite."""
    if isinstance(values, list):
        return [_plain(value) for value in values]
    if isinstance(values, np.ndarray):
        return _plain(values.tolist())
    return values if math.isfinite(values) else None


def _importance(sweep: Sweep) -> Array:
    """Return how much each context matters: its largest weight, and one more where it is ever the worst."""
    weights = np.max([one.weights.max(axis=0) for one in sweep.by_criterion.values()], axis=0)
    ever_worst = np.zeros(len(weights))
    for one in sweep.by_criterion.values():
        ever_worst[one.worst_contexts] = 1.0
    return np.asarray(weights + ever_worst)


def _colours(ranked: NDArray[np.intp], kept: NDArray[np.intp]) -> list[str | None]:
    """Return a colour for each context, as long as colours can be told apart; None for the others."""
    few = len(ranked) <= len(CYCLE)
    chosen = sorted(ranked.tolist()) if few else sorted(ranked[:_COLOURED].tolist())
    colours = dict(zip(chosen, CYCLE, strict=False))
    return [colours.get(int(c)) for c in kept]


def _scored(sweep: Sweep, one: Scored, kept: NDArray[np.intp], place: dict[int, int]) -> dict[str, Any]:
    low, high = extent([0.0, *one.values[:, kept].ravel().tolist()])
    words = sweep.words
    unit = f" ({words.unit})" if words.unit else ""
    what = "excess" if one.criterion == "excess" else words.risk
    return {
        "weights": _plain(one.weights[:, kept]),
        "values": _plain(one.values[:, kept]),
        "nominal": _plain(one.nominal),
        "prices": _plain(one.prices),
        "paid": one.paid.tolist(),
        "worst": _plain(one.worst),
        "worst_in": [place[int(c)] for c in one.worst_contexts],
        "objective": _plain(one.objective),
        "gaps": _plain(one.gaps),
        "what": what,
        "bars": [low, high],
        "axes": {
            "x": _axis(np.where(one.paid, one.prices, 0.0), f"price of robustness, on average{unit}"),
            "y": _axis(one.worst, f"largest {what} of any {words.context}{unit}"),
        },
    }


def _axis(values: Any, name: str) -> dict[str, Any]:
    """Return the ends of an axis for some values, round ticks between them, their labels and how wide these are."""
    low, high = extent(np.ravel(values).tolist())
    room = _MARGIN * (high - low)
    low, high = low - room, high + room
    places = [place for place in ticks(low, high, most=7) if low <= place <= high]
    words = labels(places)
    width = max(width_of(word, SIZE) for word in words)
    return {
        "name": isolated(fitted(clean(name), _NAMES, SIZE)),
        "ends": [low, high],
        "ticks": places,
        "labels": words,
        "width": round(width, 1),
    }


def _affine(decision: AffineDecision, place: dict[int, int]) -> dict[str, Any]:
    shared = {
        "features": [clean(name, 40) for name in decision.features],
        "target": clean(decision.target, 40),
        "classes": [clean(name, 40) for name in decision.classes],
        "link": decision.link,
        "slopes": {criterion: _plain(values) for criterion, values in decision.slopes.items()},
        "intercepts": {criterion: _plain(values) for criterion, values in decision.intercepts.items()},
        "points": _plain(decision.points),
        "values": _plain(decision.values),
        "codes": [place.get(int(c)) for c in decision.codes],
        "n_rows": decision.n_rows,
    }
    if len(decision.features) == 2:
        axes = [_axis(column, name) for column, name in zip(decision.points.T, decision.features, strict=True)]
        return {"kind": "boundary", **shared, "axes": {"x": axes[0], "y": axes[1]}}
    vertical = (
        _axis([0.0, 1.0], f"probability of {clean(decision.classes[1], 40)}")
        if decision.classes
        else _axis(decision.values, decision.target)
    )
    return {"kind": "curve", **shared, "axes": {"x": _axis(decision.points, decision.features[0]), "y": vertical}}


def _stock(decision: StockDecision, drawn: NDArray[np.intp]) -> dict[str, Any]:
    return {
        "kind": "stock",
        "orders": {criterion: _plain(orders) for criterion, orders in decision.orders.items()},
        "grid": _plain(decision.grid),
        "curves": _plain(decision.curves[:, drawn].T),
        "best": _plain(decision.best[drawn]),
        "axes": {
            "x": _axis(decision.grid, "units ordered"),
            "y": _axis(decision.curves[:, drawn], "excess cost"),
        },
    }
