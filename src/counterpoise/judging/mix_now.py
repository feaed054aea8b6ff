"""Whether the mix of contexts that is seen now lies in the set that a model was made for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import objects, shown
from counterpoise.judging.at_fit import AtFit
from counterpoise.sets import ContextSet, KLBall, ball_of, confidence_radius, radius_of, share_intervals
from counterpoise.table import Table, jsonable, written

Array = NDArray[np.float64]

UNSEEN = "unseen contexts"
"""How the row of a table is called that is about all contexts which the fit did not have."""

_NAMED = 3


@dataclass(frozen=True, eq=False)
class MixNow:
    """The mix of contexts among some rows, beside the set of plausible mixes.

    Attributes
    ----------
    shares : Table
        A row per context of the fit, and one for unseen contexts where there are any: ``then``, its share of the rows
        of the fit; ``low`` and ``high``, its least and largest share in the set; ``now``, its share of these rows, of
        which there are ``n``.
    inside : bool or None
        Whether the mix lies in the set; None where the model was made for no set of mixes.
    divergence, radius : float
        How far the mix, unseen contexts apart, is from the centre of the set, and how far its members are; NaN where
        the set is no ball.
    unit : str
        What the two are measured in.
    by_chance : bool
        Whether rows drawn from a mix inside the set might well look as these do.
    absent : tuple of labels
        Contexts of the fit without rows.
    unseen_share : float
    """

    shares: Table
    inside: bool | None
    divergence: float
    radius: float
    unit: str
    by_chance: bool
    absent: tuple[Any, ...]
    unseen_share: float

    @classmethod
    def of(cls, fit: AtFit, counts: Array, others: Mapping[Any, float], confidence: float) -> MixNow:
        """Compare.

        Parameters
        ----------
        counts : ndarray of shape (n_contexts,)
            Rows of each context of the fit, or their weights scaled to as many.
        others : mapping from label to float
            Those of contexts that the fit did not have.
        """
        total = float(counts.sum()) + sum(others.values())
        allowed = {label: others.get(label, 0.0) for label in fit.others}
        unseen = sum(n for label, n in others.items() if label not in allowed)
        bounds = np.full((len(counts), 2), np.nan)
        if fit.mixes is not None:
            bounds = share_intervals(fit.mixes)[: len(counts)]
        extra = [UNSEEN] if others else []
        shares = Table(
            {
                "context": objects([*fit.labels.tolist(), *extra]),
                "then": np.append(fit.shares, np.zeros(len(extra))),
                "low": np.append(bounds[:, 0], np.full(len(extra), np.nan)),
                "high": np.append(bounds[:, 1], np.full(len(extra), np.nan)),
                "now": np.append(counts, [sum(others.values())] * len(extra)) / total,
            }
        )
        absent = tuple(fit.labels[counts == 0].tolist())
        known = np.append(counts, list(allowed.values()))
        inside, divergence, by_chance = None, math.nan, False
        if fit.mixes is not None and known.sum() > 0:
            now = known / known.sum()
            inside, ball = fit.mixes.contains(now), ball_of(fit.mixes)
            divergence = math.nan if ball is None else ball.divergence(now)
            by_chance = not inside and _by_chance(fit.mixes, known, confidence)
        elif fit.mixes is not None:
            inside = False
        unit = "" if fit.mixes is None else getattr(ball_of(fit.mixes), "measure", "")
        radius = math.nan if fit.mixes is None else radius_of(fit.mixes)
        if inside is not None:
            inside = inside and unseen == 0
        return cls(shares, inside, divergence, radius, unit, by_chance, absent, unseen / total)

    @property
    def words(self) -> str:
        """Where the mix lies, in a sentence; none where there is no set."""
        if self.inside is None:
            return ""
        made_for = "the set of mixes that the model was made for"
        if self.inside:
            far = "" if math.isnan(self.divergence) else f" ({self._distance})"
            return f"The mix of contexts lies in {made_for}{far}."
        if self.unseen_share == 1.0:
            return f"The mix of contexts lies outside {made_for}: none of these contexts was in the fit."
        reasons = []
        if self.unseen_share > 0.0:
            reasons.append(f"{_percent(self.unseen_share)} of rows are of contexts that the fit did not have")
        if self.absent and math.isinf(self.divergence):
            named = ", ".join(f"{shown(label):.40}" for label in self.absent[:_NAMED])
            more = f" and {len(self.absent) - _NAMED} more" if len(self.absent) > _NAMED else ""
            reasons.append(f"there are no rows of {named}{more}")
        elif self.divergence > self.radius:
            apart = "without these, it is " if reasons else "it is "
            reasons.append(f"{apart}{self._distance}")
        because = f": {', and '.join(reasons)}" if reasons else ""
        chance = ""
        if self.by_chance and self.unseen_share == 0.0:
            chance = " So few rows may look like this by chance, though."
        return f"The mix of contexts lies outside {made_for}{because}.{chance}"

    @property
    def _distance(self) -> str:
        if math.isinf(self.radius):
            return "it holds every mix"
        far, reach = (f"{written(one, digits=2)}{self.unit}" for one in (self.divergence, self.radius))
        return f"{far} from its centre, where the set reaches {reach}"

    @property
    def json(self) -> dict[str, Any]:
        """The same as what JSON can hold, but for the shares."""
        return {
            "inside": self.inside,
            "divergence": "inf" if math.isinf(self.divergence) else jsonable(self.divergence),
            "radius": "inf" if math.isinf(self.radius) else jsonable(self.radius),
            "unit": self.unit.strip(),
            "may_be_chance": self.by_chance,
            "absent": [shown(label) for label in self.absent],
            "unseen_share": self.unseen_share,
            "verdict": self.words,
        }


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f}%" if share >= 0.001 else "less than 0.1%"


def _by_chance(mixes: ContextSet, counts: Array, confidence: float) -> bool:
    """Tell whether a member of the set would give rows like these: its divergence from their mix is within chance.

    Members between the centre of the set and the mix of the rows are tried.
    """
    now = counts / counts.sum()
    n = counts.sum()
    if n < 1.0:
        return True
    around = KLBall(now, confidence_radius(np.round(counts), confidence, "calibrated"))
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        if mixes.contains((1.0 - middle) * mixes.p_hat + middle * now):
            low = middle
        else:
            high = middle
    return around.contains((1.0 - low) * mixes.p_hat + low * now)
