"""Each number in the paper's text, beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoise.experiments.results import Results
from counterpoise.table import Table

TITLES = {
    "illustration": "two contexts",
    "stock-control": "stock control",
    "classification": "classification",
    "coloured-mnist": "coloured MNIST",
}
"""The experiments with numbers, as the paper would name them."""


@dataclass(frozen=True)
class Printed:
    """A number as it is printed, and where ours comes from."""

    what: str
    printed: float
    experiment: str
    method: str
    metric: str
    tolerance: float = 0.08
    """How far ours may be, relative to the printed number: it was rounded, or read off a figure."""


def _stock(method: str, label: str, worst: float, nominal: float) -> list[Printed]:
    return [
        Printed(f"worst-case excess risk, {label}", worst, "stock-control", method, "worst"),
        Printed(f"nominal excess risk, {label}", nominal, "stock-control", method, "nominal"),
    ]


def _errors(experiment: str, *printed: float) -> list[Printed]:
    return [
        Printed(f"least error of context {c}, %", value, experiment, f"context-{c}", "least-error")
        for c, value in enumerate(printed, 1)
    ]


PRINTED: tuple[Printed, ...] = (
    Printed("level at which excess risks agree", 25.0, "illustration", "100%", "robust-level", 0.03),
    *_stock("robust", "robust", 60.0, 28.0),
    *_stock("erm", "ERM", 105.0, 23.0),
    *_stock("minimax-risk", "minimax", 80.0, 25.0),
    *_errors("classification", 6.86, 7.42, 6.70),
    *_errors("coloured-mnist", 5.03, 14.74, 24.0, 31.90, 34.31),
)


def number_table(results: Results, seed: int = 0) -> Table:
    """Set the printed numbers beside our medians, with the spread over runs and a verdict."""
    rng = np.random.default_rng(seed)
    return _table(
        "ours: the median over runs, with a 95% bootstrap interval of it",
        [
            {"where": TITLES[one.experiment], "number": one.what, "paper": one.printed, **_beside(one, results, rng)}
            for one in PRINTED
        ],
    )


def _beside(one: Printed, results: Results, rng: np.random.Generator) -> dict[str, Any]:
    """Return our side of a line."""
    values = results.series(one.experiment, one.method, one.metric)
    if values.size == 0:
        return {"ours": np.nan, "low": np.nan, "high": np.nan, "runs": 0, "verdict": "not computed"}
    ours = low = high = float(np.median(values))
    if values.size > 1:
        medians = np.median(rng.choice(values, size=(2000, values.size)), axis=1)
        low, high = (float(end) for end in np.quantile(medians, [0.025, 0.975]))
    # What is printed may have been rounded or estimated by them; what is ours, drawn by chance.
    room = one.tolerance * abs(one.printed)
    agrees = low - room <= one.printed <= high + room
    return {"ours": ours, "low": low, "high": high, "runs": values.size, "verdict": "agrees" if agrees else "differs"}


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, or of ours beside it: one method's value lies below another's."""

    experiment: str
    words: str
    metric: str
    lower: str
    higher: str


_AHEAD, _EXPENSE = "robust below ERM in the worst case", "at some expense in the nominal case"
_MINIMAX = "robust below minimax in the worst case"

CLAIMS: tuple[Claim, ...] = (
    Claim("stock-control", _AHEAD, "worst", "robust", "erm"),
    Claim("stock-control", _MINIMAX, "worst", "robust", "minimax-risk"),
    Claim("stock-control", _EXPENSE, "nominal", "erm", "robust"),
    Claim("classification", _AHEAD, "worst", "robust", "erm"),
    Claim("classification", f"{_MINIMAX}, by online group DRO as in the paper", "worst", "robust", "group-dro"),
    Claim("classification", f"{_MINIMAX}, solved exactly (ours)", "worst", "robust", "minimax-risk"),
    Claim("classification", _EXPENSE, "nominal", "erm", "robust"),
    Claim("coloured-mnist", _AHEAD, "worst", "robust", "erm"),
    Claim("coloured-mnist", _EXPENSE, "nominal", "erm", "robust"),
)


def claim_table(results: Results) -> Table:
    """Count the runs in which each claim holds, and compare medians."""
    return _table(
        "runs: in which the claim holds; difference: its median",
        [{"where": TITLES[claim.experiment], "claim": claim.words, **_judged(claim, results)} for claim in CLAIMS],
    )


def _judged(claim: Claim, results: Results) -> dict[str, Any]:
    """Return what the runs say."""
    low, high = (results.series(claim.experiment, one, claim.metric) for one in (claim.lower, claim.higher))
    if low.size == 0 or low.size != high.size:
        return {"runs": "0 of 0", "difference": np.nan, "verdict": "not computed"}
    runs = int((low < high).sum())
    # More often than a fair coin would have it, at two standard deviations.
    clear = abs(2 * runs - low.size) >= 2.0 * np.sqrt(low.size)
    verdict = ("holds" if runs > low.size / 2 else "does not hold") if clear else "undecided"
    return {"runs": f"{runs} of {low.size}", "difference": float(np.median(high - low)), "verdict": verdict}


def _table(note: str, lines: Sequence[dict[str, Any]]) -> Table:
    return Table.of(note, **{name: [line[name] for line in lines] for name in lines[0]})
