"""Where predictions of a number are too high or too low: residuals by context, in the unit of the target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import objects, plain, shown
from counterpoise.inference.excess import HeldOut
from counterpoise.judging.measures import ALL, Judged
from counterpoise.judging.verdict import where
from counterpoise.reports.methods import COLOURS
from counterpoise.reports.pages.document import table
from counterpoise.reports.pages.rows import Box, box_chart
from counterpoise.reports.pages.scales import fixed, number
from counterpoise.reports.pages.words import Html
from counterpoise.table import Table

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Ends of whiskers, quartiles and the median."""

_NAMES = ("low_5", "quartile_1", "median", "quartile_3", "high_95")


@dataclass(frozen=True, eq=False)
class Residuals:
    """Target minus prediction on held-out rows.

    Attributes
    ----------
    quantile : float, optional
        What is predicted, where it is a quantile: then predictions are meant to lie above so many targets.
    validation, model : str
        What the rows and the model are called.
    summary : Table
        A row for all contexts, named "all", and a row for each, furthest from zero first: ``context``, ``n``, ``mean``
        with ends ``mean_low`` and ``mean_high`` that hold for all contexts together, and the quantiles ``low_5``,
        ``quartile_1``, ``median``, ``quartile_3`` and ``high_95``.
    """

    summary: Table
    validation: str = "held-out rows"
    quantile: float | None = None
    model: str = "the robust model"

    @classmethod
    def of(
        cls,
        rows: Judged,
        held_out: HeldOut,
        validation: str = "held-out rows",
        quantile: float | None = None,
        model: str = "the robust model",
    ) -> Residuals:
        """Judge held-out predictions of a number.

        Parameters
        ----------
        rows : Judged
        held_out : HeldOut
            Their contexts and groups.
        validation, model : str
            What these rows and the model are called.
        quantile : float, optional
            What is predicted, where it is a quantile.
        """
        residual = rows.residual
        means = held_out.means(residual)
        order = np.argsort(-np.abs(means["mean"]), kind="stable")
        every = held_out.mean(residual)
        parts = [residual] + [residual[held_out.contexts.codes == k] for k in order]
        spread = np.array([np.quantile(part, QUANTILES) for part in parts])
        ends = {"mean": every.estimate, "mean_low": every.lower, "mean_high": every.upper}
        summary = {
            "context": objects([ALL, *(plain(one) for one in means["context"][order])]),
            "n": np.array([len(part) for part in parts]),
            **{name: np.append(first, means[name.removeprefix("mean_")][order]) for name, first in ends.items()},
            **dict(zip(_NAMES, spread.T, strict=True)),
        }
        return cls(Table(summary), validation, quantile, model)

    def level(self, context: Any) -> str:
        """Say how far the predictions of a context are off on average; nothing where that may be chance."""
        row = next(row for row in list(self.summary.rows())[1:] if row["context"] == plain(context))
        if self.quantile is not None or not (row["mean_low"] > 0 or row["mean_high"] < 0):
            return ""
        side = "low" if row["mean"] > 0 else "high"
        return f"Predictions there are too {side} by {self._text(abs(row['mean']))} on average."

    @property
    def meaning(self) -> str:
        """What a residual says, in words."""
        if self.quantile is None:
            return "above zero, predictions are too low"
        return f"{self.quantile:.4g} of rows are meant to be below zero"

    @property
    def chart(self) -> Html:
        """The picture: a box for all rows, and one for each context."""
        rows = list(self.summary.rows())
        return box_chart(
            [
                Box(
                    "all rows" if row["context"] == ALL else row["context"],
                    tuple(row[name] for name in _NAMES),
                    *(row[name] for name in ("mean", "mean_low", "mean_high")),
                )
                for row in rows
            ],
            colour=COLOURS["robust"],
            title=f"What came minus what {self.model} predicted",
            x_label=f"target minus prediction, {where(self.validation)}",
            alt="; ".join(f"{shown(row['context'])}: mean {number(row['mean'])}" for row in rows[:30]),
        )

    @property
    def html(self) -> Html:
        """The same as a table."""
        rows = self.summary
        cells: dict[str, NDArray[Any]] = {
            "context": rows["context"],
            "rows": rows["n"],
            "mean": self._between("mean", "mean_low", "mean_high"),
            "median": objects([self._text(value) for value in rows["median"]]),
            "middle half": self._range("quartile_1", "quartile_3"),
            "nine of ten": self._range("low_5", "high_95"),
        }
        return table(
            Table(cells),
            left=["context"],
            formats={"context": shown},
            caption=f"Target minus prediction {where(self.validation)}; {self.meaning}",
        )

    def _text(self, value: float) -> str:
        """Return a residual, as finely as is worth it beside how far most of them are spread."""
        spread = float(self.summary["high_95"][0] - self.summary["low_5"][0])
        decimals = max(0, 2 - math.floor(math.log10(spread))) if 0.0 < spread < math.inf else 3
        return number(value) if abs(value) >= 1e6 else fixed(value, decimals)

    def _between(self, *names: str) -> NDArray[Any]:
        cells = [
            self._text(value) + ("" if math.isnan(low) else f" [{self._text(low)}, {self._text(high)}]")
            for value, low, high in zip(*(self.summary[name] for name in names), strict=True)
        ]
        return objects(cells)

    def _range(self, low: str, high: str) -> NDArray[Any]:
        ends = zip(self.summary[low], self.summary[high], strict=True)
        return objects([f"{self._text(a)} to {self._text(b)}" for a, b in ends])
