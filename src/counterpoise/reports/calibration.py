"""Whether probabilities mean what they say: what was predicted beside what came, context by context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import objects, plain, shown
from counterpoise.inference.excess import HeldOut
from counterpoise.judging.measures import ALL, Judged
from counterpoise.judging.verdict import where
from counterpoise.reports.pages.document import table
from counterpoise.reports.pages.lines import Line, line_chart
from counterpoise.reports.pages.svg import FAINT, INK
from counterpoise.reports.pages.words import Html
from counterpoise.table import Table

Array = NDArray[np.float64]

DRAWN = 6
"""Contexts with a line of their own in the picture."""

_BIN = 25
_MOST_BINS = 10


@dataclass(frozen=True, eq=False)
class Calibration:
    """How often something came that was predicted with some probability.

    Attributes
    ----------
    event : str
        What the probability is of, in words.
    summary : Table
        A row for all contexts, named "all", and a row for each: ``context``, ``n``, mean ``predicted``, ``observed``
        share, and their difference ``gap``, with ends ``low`` and ``high`` that hold for all contexts together.
    curves : tuple of Table
        For each row of the summary, a row per bin of rows with similar probabilities: ``n``, mean ``predicted`` and
        ``observed`` share. There are none for fewer than 50 rows.
    validation : str
        What the rows are called.
    """

    event: str
    summary: Table
    curves: tuple[Table, ...]
    validation: str = "held-out rows"

    @classmethod
    def of(cls, rows: Judged, held_out: HeldOut, validation: str = "held-out rows") -> Calibration:
        """Judge held-out predictions of classes.

        Parameters
        ----------
        rows : Judged
            With probabilities: of two classes, that of the second is judged, of more, that of the most probable.
        held_out : HeldOut
            Their contexts and groups.
        validation : str
            What they are called.
        """
        classes = rows.predicted.classes
        assert classes is not None
        two = len(classes) == 2
        event = f"{shown(plain(classes[1]))}" if two else "the most probable class"
        predicted = rows.predicted.values[:, 1] if two else rows.predicted.values.max(axis=1)
        observed = np.asarray(rows.target == 1, dtype=np.float64) if two else 1.0 - rows.wrong
        labels, codes = held_out.contexts.labels, held_out.contexts.codes
        parts = [np.arange(len(codes)), *(np.flatnonzero(codes == k) for k in range(len(labels)))]
        means, every = held_out.means(observed - predicted), held_out.mean(observed - predicted)
        ends = {"gap": ("mean", every.estimate), "low": ("low", every.lower), "high": ("high", every.upper)}
        summary = {
            "context": objects([ALL, *map(plain, labels)]),
            "n": np.array([len(part) for part in parts]),
            "predicted": np.array([predicted[part].mean() for part in parts]),
            "observed": np.array([observed[part].mean() for part in parts]),
            **{name: np.append(first, means[own]) for name, (own, first) in ends.items()},
        }
        return cls(event, Table(summary), tuple(_curve(predicted[part], observed[part]) for part in parts), validation)

    @property
    def drawn(self) -> list[int]:
        """The rows of the summary in the picture: all, and the contexts furthest off for what their rows can tell."""
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.nan_to_num(np.abs(self.summary["gap"]) / (self.summary["high"] - self.summary["low"]))
        own = [k for k in range(1, len(self.curves)) if self.curves[k].n_rows]
        return [0, *sorted(own, key=lambda k: -off[k])[:DRAWN]]

    def level(self, context: Any) -> str:
        """Say how far the probabilities of a context are off on average; nothing where that may be chance."""
        row = next(row for row in list(self.summary.rows())[1:] if row["context"] == plain(context))
        if not (row["low"] > 0 or row["high"] < 0):
            return ""
        return (
            f"The mean probability of {self.event} there is {row['predicted']:.1%}, and it came in "
            f"{row['observed']:.1%} of rows."
        )

    @property
    def chart(self) -> Html:
        """The picture: one line for all rows, and one for each of a few contexts."""
        lines = [Line("as predicted", [0.0, 100.0], [0.0, 100.0], FAINT, faint=True, dashed=True)]
        for k in self.drawn:
            name, own = self.summary["context"][k], self.curves[k]
            words, colour = ("all rows", INK) if k == 0 else (shown(name), None)
            lines.append(Line(words, 100.0 * own["predicted"], 100.0 * own["observed"], colour))
        return line_chart(
            lines,
            title=f"Predicted and observed share of {self.event}",
            x_label=f"predicted probability, %, {where(self.validation)}",
            y_label="observed share, %",
            alt="; ".join(
                f"{shown(row['context'])}: predicted {row['predicted']:.1%} on average, observed {row['observed']:.1%}"
                for row in self.summary.rows()
            ),
        )

    @property
    def html(self) -> Html:
        """A table of all contexts, those whose observed share differs most from the predicted one first."""
        rows = self.summary
        order = np.concatenate([[0], 1 + np.argsort(-np.abs(rows["gap"][1:]), kind="stable")]).astype(np.intp)
        shares = {name: rows[name][order] for name in ("context", "n", "predicted", "observed")}
        gaps = [
            f"{100.0 * value:+.1f}" + ("" if np.isnan(low) else f" [{100.0 * low:+.1f}, {100.0 * high:+.1f}]")
            for value, low, high in zip(*(rows[name][order] for name in ("gap", "low", "high")), strict=True)
        ]
        return table(
            Table({**shares, "points": np.array(gaps, dtype=object)}),
            left=["context"],
            headings={"n": "rows", "points": "difference, points"},
            formats={"context": shown, "predicted": "{:.1%}".format, "observed": "{:.1%}".format},
            caption=f"Mean probability of {self.event} and how often it came, {where(self.validation)}",
        )


def _curve(predicted: Array, observed: Array) -> Table:
    """Return the mean of both in bins of about as many rows; rows of one probability stay together."""
    n_bins = min(len(predicted) // _BIN, _MOST_BINS)
    if n_bins < 2:
        return Table.of(n=[], predicted=[], observed=[])
    edges = np.unique(np.quantile(predicted, np.arange(1, n_bins) / n_bins))
    _, bins, n = np.unique(np.searchsorted(edges, predicted, side="right"), return_inverse=True, return_counts=True)
    return Table.of(n=n, predicted=np.bincount(bins, predicted) / n, observed=np.bincount(bins, observed) / n)
