"""Each number in the paper's text, beside ours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoise.experiments.results import Results
from counterpoise.tables import Table


@dataclass(frozen=True)
class Printed:
    """A number as it is printed, and where ours comes from."""

    where: str
    what: str
    printed: float
    experiment: str
    method: str
    metric: str
    tolerance: float
    """How far ours may be, relative to the printed number: it was rounded, or read off a figure."""


def _stock(method: str, label: str, worst: float, nominal: float) -> list[Printed]:
    return [
        Printed("stock control", f"worst-case excess risk, {label}", worst, "stock-control", method, "worst", 0.08),
        Printed("stock control", f"nominal excess risk, {label}", nominal, "stock-control", method, "nominal", 0.08),
    ]


def _errors(where: str, experiment: str, printed: tuple[float, ...], tolerance: float) -> list[Printed]:
    return [
        Printed(
            where, f"least error of context {c + 1}, %", value, experiment, f"context-{c + 1}", "least-error", tolerance
        )
        for c, value in enumerate(printed)
    ]


PRINTED: tuple[Printed, ...] = (
    Printed("two contexts", "level at which excess risks agree", 25.0, "illustration", "100%", "robust-level", 0.03),
    *_stock("robust", "robust", 60.0, 28.0),
    *_stock("erm", "ERM", 105.0, 23.0),
    *_stock("minimax-risk", "minimax", 80.0, 25.0),
    *_errors("classification", "classification", (6.86, 7.42, 6.70), 0.08),
    *_errors("coloured MNIST", "coloured-mnist", (5.03, 14.74, 24.0, 31.90, 34.31), 0.08),
)


def number_table(results: Results, seed: int = 0) -> Table:
    """Set the printed numbers beside our medians, with the spread over runs and a verdict."""
    rng = np.random.default_rng(seed)
    lines = []
    for one in PRINTED:
        values = results.series(one.experiment, one.method, one.metric)
        if values.size == 0:
            lines.append((one, np.nan, np.nan, np.nan, 0, "not computed"))
            continue
        ours = float(np.median(values))
        low = high = ours
        if values.size > 1:
            medians = np.median(rng.choice(values, size=(2000, values.size)), axis=1)
            low, high = (float(end) for end in np.quantile(medians, [0.025, 0.975]))
        # What is printed may have been rounded or estimated by them; what is ours, drawn by chance.
        room = one.tolerance * abs(one.printed)
        agrees = low - room <= one.printed <= high + room
        lines.append((one, ours, low, high, values.size, "agrees" if agrees else "differs"))
    return Table.of(
        "ours: the median over runs, with a 95% bootstrap interval of it",
        where=[one.where for one, *_ in lines],
        number=[one.what for one, *_ in lines],
        paper=[one.printed for one, *_ in lines],
        ours=[ours for _, ours, *_ in lines],
        low=[low for _, _, low, *_ in lines],
        high=[high for _, _, _, high, *_ in lines],
        runs=[n for *_, n, _ in lines],
        verdict=[verdict for *_, verdict in lines],
    )


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, or of ours beside it: one method's value lies below another's."""

    where: str
    words: str
    experiment: str
    metric: str
    lower: str
    higher: str


CLAIMS: tuple[Claim, ...] = (
    Claim("stock control", "robust below ERM in the worst case", "stock-control", "worst", "robust", "erm"),
    Claim(
        "stock control", "robust below minimax in the worst case", "stock-control", "worst", "robust", "minimax-risk"
    ),
    Claim("stock control", "at some expense in the nominal case", "stock-control", "nominal", "erm", "robust"),
    Claim("classification", "robust below ERM in the worst case", "classification", "worst", "robust", "erm"),
    Claim(
        "classification",
        "robust below minimax in the worst case, by online group DRO as in the paper",
        "classification",
        "worst",
        "robust",
        "group-dro",
    ),
    Claim(
        "classification",
        "robust below minimax in the worst case, solved exactly (ours)",
        "classification",
        "worst",
        "robust",
        "minimax-risk",
    ),
    Claim("classification", "at some expense in the nominal case", "classification", "nominal", "erm", "robust"),
    Claim("coloured MNIST", "robust below ERM in the worst case", "coloured-mnist", "worst", "robust", "erm"),
    Claim("coloured MNIST", "at some expense in the nominal case", "coloured-mnist", "nominal", "erm", "robust"),
)


def claim_table(results: Results) -> Table:
    """Count the runs in which each claim holds, and compare medians."""
    lines = []
    for claim in CLAIMS:
        low, high = (results.series(claim.experiment, one, claim.metric) for one in (claim.lower, claim.higher))
        if low.size == 0 or low.size != high.size:
            lines.append((claim, 0, 0, np.nan, "not computed"))
            continue
        runs = int((low < high).sum())
        gap = float(np.median(high - low))
        # More often than a fair coin would have it, at two standard deviations.
        clear = abs(2 * runs - low.size) >= 2.0 * np.sqrt(low.size)
        verdict = ("holds" if runs > low.size / 2 else "does not hold") if clear else "undecided"
        lines.append((claim, runs, low.size, gap, verdict))
    return Table.of(
        "runs: in which the claim holds; difference: its median",
        where=[claim.where for claim, *_ in lines],
        claim=[claim.words for claim, *_ in lines],
        runs=[f"{runs} of {total}" for _, runs, total, *_ in lines],
        difference=[gap for *_, gap, _ in lines],
        verdict=[verdict for *_, verdict in lines],
    )
