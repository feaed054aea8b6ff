"""What a comparison means, in words that claim no more than its intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import shown
from counterpoise.inference.excess import ExcessDifference
from counterpoise.inference.headroom import to_gain
from counterpoise.inference.intervals import Interval, interval_in
from counterpoise.table import Table, written

Array = NDArray[np.float64]

_NAMED = 3


def change_in_words(low: float, high: float) -> str:
    """Return the verb for a difference: a change is claimed only where its interval excludes zero."""
    return "lowers" if high < 0 else "raises" if low > 0 else "does not clearly change"


def verdict(
    summary: Table, brackets: Table, inverse_frequency: ExcessDifference | None, small: float, confidence: float
) -> list[str]:
    """Say which method does best in the worst plausible mix, what that costs, and whether there is anything to gain.

    Parameters
    ----------
    summary, brackets : Table
        Of a comparison.
    inverse_frequency : ExcessDifference, optional
        Robust against inverse-frequency weights.
    small : float
        An excess that does not matter.
    """
    rows = {row["method"]: row for row in summary.rows()}
    robust, erm = rows["robust"], rows["erm"]
    if np.isnan(robust["mix_excess"]):
        return [
            "Robust does not clearly change anything that can be judged: every context is a single row or a single "
            "group, and nobody knows what another would have been.",
            f"On average its risk is {written(robust['nominal_risk'])} against {written(erm['nominal_risk'])}.",
        ]
    verb = change_in_words(robust["mix_excess_change_low"], robust["mix_excess_change_high"])
    mixed, worst, mean = (
        [written(row[name]) for row in (robust, erm)] for name in ("mix_excess", "worst_excess", "nominal_risk")
    )
    where = [shown(row["worst_context"]) for row in (robust, erm)]
    mix_change, worst_change, mean_change = (
        _signed(interval_in(robust, f"{name}_change")) for name in ("mix_excess", "worst_excess", "nominal_risk")
    )
    words = [
        f"Robust {verb} the excess risk in the worst plausible mix: {mixed[0]} against {mixed[1]} for plain empirical "
        f"risk minimisation, a difference of {mix_change}.",
        f"In the worst single context it is {worst[0]} ({where[0]}) against {worst[1]} ({where[1]}), a difference of "
        f"{worst_change}.",
        f"On average its risk is {mean[0]} against {mean[1]}, a difference of {mean_change}.",
        to_gain(erm["p_value"], erm["worst_excess_high"], small, confidence, bool(brackets["too_small"].any())),
    ]
    if inverse_frequency is not None:
        words.append(_plain_weights(rows["inverse-frequency"]["mix_excess"], inverse_frequency))
    best = min(rows, key=lambda name: (np.nan_to_num(rows[name]["mix_excess"], nan=np.inf), name != "robust"))
    words.append(f"Lowest estimate in the worst mix: {best} ({written(rows[best]['mix_excess'])}).")
    small_ones = [row for row in brackets.rows() if row["too_small"]]
    if small_ones:
        words.append(f"Too small to judge: {_listed(small_ones)}.")
    return words


def _plain_weights(value: float, difference: ExcessDifference) -> str:
    """Say how inverse-frequency weights compare; the difference is that of robust to them."""
    _, low, high = difference.mix
    against = f"{written(value)}" + (f"; robust is {_signed(difference.mix)} from it" if low == low else "")
    if low > 0:
        return f"Plain inverse-frequency weights do better in the worst mix ({against})."
    if high < 0:
        return f"Inverse-frequency weights do not do as well in the worst mix ({against})."
    return (
        "Plain inverse-frequency weights are as good in the worst mix as far as these rows tell, which cannot tell the "
        f"two apart ({against})."
    )


def _signed(interval: Interval) -> str:
    """Return a difference, with its ends where there are any."""
    value, low, high = (written(one, "+") for one in interval)
    return f"{value} [{low}, {high}]" if not np.isnan(interval.lower) else value


def _listed(rows: list[dict[str, Any]]) -> str:
    named = [f"{shown(row['context']):.40} ({row['n']} {'row' if row['n'] == 1 else 'rows'})" for row in rows[:_NAMED]]
    left = len(rows) - _NAMED
    more = f" and {left} more {'context' if left == 1 else 'contexts'}" if left > 0 else ""
    return f"{', '.join(named)}{more}"
