"""What of a sweep goes into the page: the library's own numbers, and where axes begin and end."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.reports.explorer.decision import AffineDecision, StockDecision
from counterpoise.reports.explorer.held_out import HeldOutLevels
from counterpoise.reports.explorer.levels import METHODS
from counterpoise.reports.explorer.sweep import Scored, Sweep
from counterpoise.reports.pages.scales import extent, labels, ticks
from counterpoise.reports.pages.svg import CYCLE, SIZE
from counterpoise.reports.pages.words import clean, fitted, isolated, width_of

Array = NDArray[np.float64]

MOST_EMBEDDED = 200
MOST_DRAWN = 40
"""Contexts in the page, and those of them that are drawn; all others count in the numbers about the whole."""

_NAME = 80
_COLOURED = 7
_MARGIN = 0.05
_NAMES = 440.0


def embedded(sweep: Sweep) -> dict[str, Any]:
    """Return what the page's script reads."""
    ranked = np.argsort(-_importance(sweep), kind="stable")
    kept = np.sort(ranked[:MOST_EMBEDDED])
    place = {int(c): k for k, c in enumerate(kept)}
    drawn = sorted(place[int(c)] for c in ranked[:MOST_DRAWN])
    levels, decision = sweep.levels, sweep.decision
    return {
        "words": {name: clean(words) for name, words in vars(sweep.words).items()},
        "names": [clean(sweep.contexts[c], _NAME) or "(no name)" for c in kept],
        "shares": sweep.shares[kept],
        "colours": _colours(ranked, kept),
        "drawn": drawn,
        "others": len(sweep.contexts) - len(drawn),
        "radii": levels.radii,
        "unit": levels.measure,
        "source": levels.source,
        "largest": levels.largest,
        "bounds": _bounds(sweep, place),
        "labels": {method: levels.words(method) for method in METHODS},
        "leads": {method: levels.leads(method) for method in METHODS},
        "stops": {method: list(levels.stops[method].items()) for method in METHODS},
        "cautions": levels.cautions,
        "chosen": levels.chosen,
        "method": levels.method,
        "criterion": sweep.criterion,
        "low": sweep.intervals[:, kept, 0],
        "high": sweep.intervals[:, kept, 1],
        "criteria": {criterion: _scored(sweep, one, kept, place) for criterion, one in sweep.by_criterion.items()},
        "held_out": sweep.held_out and {criterion: _held_out(one) for criterion, one in sweep.held_out.items()},
        "decision": _affine(decision, place)
        if isinstance(decision, AffineDecision)
        else decision and _stock(decision, kept[drawn]),
    }


def _bounds(sweep: Sweep, place: dict[int, int]) -> list[dict[str, Any]]:
    """Return the bounds of shares that can be moved, and where their solutions are."""
    start, found = len(sweep.levels.radii), []
    for grid in sweep.grids:
        lows, highs = grid.places(start, sweep.levels.chosen)
        values = {"lows": grid.lows, "highs": grid.highs}
        found.append({"context": place[grid.context], **values, "low_places": lows, "high_places": highs})
        start += sum(map(len, grid.chains))
    return found


def as_script(data: dict[str, Any]) -> str:
    """Return data as a line of JavaScript that defines ``DATA``, whatever the labels hold.

    All but ASCII is escaped, so no character ends a line, and so is what might end the script or begin markup. Infinite
    and missing numbers are null.
    """
    written = json.dumps(_plain(data), allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return f"const DATA = JSON.parse({json.dumps(written)});\n"


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(one) for one in (value.tolist() if isinstance(value, np.ndarray) else value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
    what = words.excess if one.criterion == "excess" else words.risk
    seen = None if sweep.held_out is None else sweep.held_out[one.criterion]
    paid, worst = np.where(one.paid, one.prices, 0.0), one.worst
    largest = f"largest {what} of any {words.context}{unit}"
    if seen is not None:
        # The same axes for both curves.
        paid, worst = np.append(paid, seen.price[:, 0]), np.append(worst, seen.worst[:, 0])
        largest = f"largest {'excess' if one.criterion == 'excess' else 'risk'} of any {words.context}"
    return {
        **{name: getattr(one, name) for name in ("nominal", "prices", "paid", "worst", "objective", "gaps")},
        "weights": one.weights[:, kept],
        "values": one.values[:, kept],
        "worst_in": [place[int(c)] for c in one.worst_contexts],
        "what": what,
        "bars": [low, high],
        "axes": {
            "x": _axis(paid, f"price of robustness, on average{unit}"),
            "y": _axis(worst, largest),
        },
    }


def _held_out(one: HeldOutLevels) -> dict[str, Any]:
    """Return what levels come to on held-out rows: an estimate and the ends of its interval each."""
    parts = {name: getattr(one, name) for name in ("mix", "worst", "mean", "price")}
    return {**parts, "judged": one.judged, "knee": one.knee}


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
    features, target = [clean(name, 40) for name in decision.features], clean(decision.target, 40)
    classes = [clean(name, 40) for name in decision.classes]
    if len(features) == 2:
        kind, heights, name = "boundary", decision.points[:, 1], decision.features[1]
    elif classes:
        kind, heights, name = "curve", np.array([0.0, 1.0]), f"probability of {classes[1]}"
    else:
        kind, heights, name = "curve", decision.values, decision.target
    return {
        **{part: getattr(decision, part) for part in ("link", "slopes", "intercepts", "points", "values")},
        "kind": kind,
        "features": features,
        "target": target,
        "classes": classes,
        "codes": [place.get(int(c)) for c in decision.codes],
        "axes": {"x": _axis(decision.points[:, 0], decision.features[0]), "y": _axis(heights, name)},
    }


def _stock(decision: StockDecision, drawn: NDArray[np.intp]) -> dict[str, Any]:
    curves = decision.curves[:, drawn]
    return {
        "kind": "stock",
        "orders": decision.orders,
        "grid": decision.grid,
        "curves": curves.T,
        "axes": {"x": _axis(decision.grid, "units ordered"), "y": _axis(curves, "excess cost")},
    }
