r"""The calibrated radius: the largest quantile, over all mixes, of the divergence of the counts from their mix.

With :math:`n` draws of :math:`C` contexts, :math:`n\,D(\hat p \,\|\, p)` has its largest quantiles at mixes in which
all contexts but one expect the same few draws: about 1.5 where there are many contexts, 2 to 10 where there are few or
the confidence is high. A table inside the package, made by ``benchmarks/calibrated_table.py``, holds these quantiles.
What is added, 1% up to 50 contexts and 0.4% beyond, is for mixes outside that family; between its entries the table was
raised until interpolation lay above every value computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

TABLE = Path(__file__).with_name("calibration.npz")

SMALLEST_QUANTILE = 0.1
"""Nats; what is kept in the table is by how much the logarithm of a quantile exceeds that of this one."""


@dataclass(frozen=True, eq=False)
class CalibrationTable:
    """Quantiles of ``n D(p_hat || p)``, in nats, that no mix exceeds.

    Attributes
    ----------
    log_contexts, log_draws : ndarray
        Logarithms of the number of contexts less one and of the number of draws. The last entry of ``log_draws`` stands
        for any larger number.
    scores : ndarray
        Normal scores of the confidences.
    log_quantiles : ndarray of shape (n_contexts, n_draws, n_confidences)
    """

    log_contexts: Array
    log_draws: Array
    scores: Array
    log_quantiles: Array

    def by_confidence(self, n_contexts: int, draws: float) -> Array | None:
        """Return the logarithms of the quantiles at ``scores``; None for more contexts than the table has."""
        at = math.log(n_contexts - 1)
        if at > self.log_contexts[-1]:
            return None
        among = _between(self.log_contexts, self.log_quantiles, at)
        return _between(self.log_draws, among, math.log(draws))


@cache
def calibration_table() -> CalibrationTable:
    """Read the table."""
    with np.load(TABLE, allow_pickle=False) as kept:
        draws = np.log(kept["draws"])
        return CalibrationTable(
            log_contexts=np.log(kept["contexts"] - 1.0),
            log_draws=np.append(draws, 2.0 * draws[-1] - draws[-2]),
            scores=special.ndtri(kept["confidences"]),
            log_quantiles=math.log(SMALLEST_QUANTILE) + float(kept["unit"]) * kept["table"],
        )


def calibrated_quantile(n_contexts: int, draws: float, confidence: float) -> float:
    """Return a bound on the quantile of ``n D(p_hat || p)``, in nats, at every mix; infinite beyond the table.

    It grows with the contexts and the confidence, and less than in proportion to the draws. A confidence below the
    smallest in the table is taken for that one.
    """
    table = calibration_table()
    rows = table.by_confidence(n_contexts, draws)
    score = _score(confidence)
    if rows is None or score > table.scores[-1]:
        return math.inf
    return math.exp(float(_between(table.scores, rows, score)))


def calibrated_confidence(n_contexts: int, draws: float, nats: float) -> float:
    """Return the largest confidence whose quantile in the table is at most ``nats``; 0 where there is none."""
    table = calibration_table()
    rows = table.by_confidence(n_contexts, draws)
    if rows is None or nats <= 0.0:
        return 0.0
    # The radius of a level affords that level, whatever rounding made of it.
    at = math.log(nats) + 1e-12
    if at < rows[0]:
        return 0.0
    low = int(np.searchsorted(rows, at, side="right")) - 1
    if low >= len(rows) - 1:
        return float(special.ndtr(table.scores[-1]))
    part = (at - rows[low]) / (rows[low + 1] - rows[low])
    return float(special.ndtr(table.scores[low] + part * (table.scores[low + 1] - table.scores[low])))


def _score(confidence: float) -> float:
    # From whichever tail is the smaller.
    return float(special.ndtri(confidence) if confidence < 0.5 else -special.ndtri(1.0 - confidence))


def _between(nodes: Array, values: Array, at: float) -> Array:
    """Interpolate along the first axis; outside the nodes the nearest entry is taken."""
    low = int(np.clip(np.searchsorted(nodes, at, side="right") - 1, 0, len(nodes) - 2))
    part = float(np.clip((at - nodes[low]) / (nodes[low + 1] - nodes[low]), 0.0, 1.0))
    below, above = values[low], values[low + 1]
    # Written so that rounding cannot make it fall along the way.
    return np.where(part < 1.0, below + part * (above - below), above)
