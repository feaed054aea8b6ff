"""Every share as seen, as allowed and in the least favourable mix; and what the set of mixes rests on, in words."""

from __future__ import annotations

import math
import shlex
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import shown
from counterpoise.core.robustness import Robustness
from counterpoise.exceptions import CoverageWarning
from counterpoise.judging.at_fit import robustness_of
from counterpoise.reports.pages.document import table
from counterpoise.reports.pages.words import Html
from counterpoise.sets import Ball, ContextSet, Intersection, Mix, ball_of, radius_of, share_intervals
from counterpoise.table import Table, jsonable, plain_rows

Array = NDArray[np.float64]

_UNITS = {"KLBall": "bits", "Chi2Ball": "chi-square distance", "TotalVariationBall": "total variation"}


@dataclass(frozen=True, eq=False)
class Shares:
    """The shares of contexts in a set of mixes.

    Attributes
    ----------
    contexts : ndarray of shape (n_contexts,)
    counts : ndarray of shape (n_contexts,)
        Rows of each.
    robustness : Robustness
        What the set follows from.
    worst : ndarray of shape (n_contexts,)
        The least favourable mix.
    """

    contexts: NDArray[Any]
    counts: Array
    robustness: Robustness
    worst: Array

    @classmethod
    def of_model(cls, model: Any) -> Shares:
        """Return those of a fitted robust estimator."""
        counts = np.asarray(model.context_counts_, dtype=np.float64)
        return cls(model.contexts_, counts, robustness_of(model), np.asarray(model.context_weights_))

    @cached_property
    def mixes(self) -> ContextSet:
        """The set; contexts without rows follow the others."""
        with warnings.catch_warnings():
            # Said by the fit.
            warnings.simplefilter("ignore", CoverageWarning)
            return self.robustness.mixes(self.counts, self.contexts)

    @property
    def seen(self) -> Array:
        """The shares in the data."""
        return self.counts / self.counts.sum()

    @cached_property
    def rows(self) -> Table:
        """A row per context: its ``share`` in the data, ``low`` and ``high`` in the set, ``worst`` in its worst mix.

        Where the set is around another mix, ``centre`` is the share there.
        """
        allowed = share_intervals(self.mixes)[: len(self.counts)]
        centre = {} if self.source is None else {"centre": self._centre}
        return Table(
            {
                "context": self.contexts,
                "share": self.seen,
                **centre,
                "low": allowed[:, 0],
                "high": allowed[:, 1],
                "worst": self.worst,
            }
        )

    @property
    def _centre(self) -> Array:
        ball = ball_of(self.mixes)
        assert ball is not None
        return ball.p_hat[: len(self.counts)]

    @property
    def html(self) -> Html:
        """The same as a table of a page."""
        rows = self.rows
        shares = {name: rows[name] for name in ("share", "centre") if name in rows}
        cells = {"context": rows["context"], **shares, "allowed": allowed_words(rows), "worst": rows["worst"]}
        headings = {
            "share": "in the data",
            "centre": f"in {self.source}",
            "allowed": "allowed",
            "worst": "in the worst mix",
        }
        return table(
            Table(cells),
            left=["context"],
            headings=headings,
            formats={"context": shown, **dict.fromkeys(("share", "centre", "worst"), "{:.1%}".format)},
            caption="The share of each context",
        )

    @property
    def question(self) -> str:
        """How far the set lets one share vary, whether that is all one fears, and how to say so if it is not.

        The share is the one that gains most in the least favourable mix. Empty where every mix is in the set already,
        or where shares were bounded by whoever asked.
        """
        if self.mixes.is_simplex or self.has_bounds or isinstance(self.robustness.mix, ContextSet):
            return ""
        rows = self.rows
        most = int(np.argmax(rows["worst"] - rows["centre" if "centre" in rows else "share"]))
        label, low, high = rows["context"][most], float(rows["low"][most]), float(rows["high"][most])
        name = f"{shown(label):.60}"
        ends = f"{low:.1%}", f"{high:.1%}"
        varies = (
            f"fixes the share of {name} at {ends[0]}"
            if ends[0] == ends[1]
            else f"lets the share of {name} vary from {ends[0]} to {ends[1]}"
        )
        further = _further(high)
        bound = shlex.quote(f"{name}=..{further:g}") if isinstance(label, (str, int, float, np.generic)) else ""
        option = f" (--confidence 1 --share {bound})" if bound else ""
        return (
            f"The set {varies}; is that all you fear? If not, say what you do fear: for instance every mix with at "
            f"most {further:.0%} of it{option}."
        )

    @property
    def json(self) -> dict[str, Any]:
        """The same, and what the set is, as what JSON can hold."""
        radius = radius_of(self.mixes)
        return {
            "holds": self.where,
            "rests_on": self.promise,
            "kind": _KINDS.get(type(ball_of(self.mixes)).__name__),
            "radius": jsonable(radius),
            "unit": self.unit,
            "shares": plain_rows(self.rows),
        }

    @property
    def where(self) -> str:
        """What the set holds."""
        return "every mix" if self.mixes.is_simplex else f"every mix {self.mixes.where}"

    @property
    def unit(self) -> str:
        """What the radius is measured in."""
        return _UNITS.get(type(ball_of(self.mixes)).__name__, "bits")

    @property
    def known(self) -> Mix | None:
        """What was said about the mix by label, if anything."""
        mix = self.robustness.mix
        return Mix.of(mix) if isinstance(mix, (Mix, Mapping)) else None

    @property
    def source(self) -> str | None:
        """What the set is around, where that is not the mix of the data."""
        ball = ball_of(self.mixes)
        return None if ball is None or ball.around == "the data" else ball.around

    @property
    def has_bounds(self) -> bool:
        """Whether anything was said about single shares."""
        return self.known is not None and bool(self.known.bounds or self.known.limits)

    @property
    def ends(self) -> tuple[str, str]:
        """What the smallest and the largest set of this kind are, in words."""
        within = " within the bounds" if self.has_bounds else ""
        first = f"the mix of {self.source or 'the data'} is taken for certain"
        ball = ball_of(self.mixes)
        if within and ball is not None and not self._bounds_meet(ball.p_hat):
            first = "the set is as small as the bounds let it be"
        return first, f"any mix{within} is possible"

    def _bounds_meet(self, shares: Array) -> bool:
        """Tell whether a mix meets what was said about single shares."""
        parts = self.mixes.parts if isinstance(self.mixes, Intersection) else ()
        return all(part.contains(shares) for part in parts if not isinstance(part, Ball))

    @property
    def promise(self) -> str:
        """What of the set follows from counts, and what is taken on the user's word."""
        if isinstance(self.robustness.mix, ContextSet):
            return (
                "The set was given as it is, and is taken on the user's word: the certificate is about optimisation "
                "over it, and no coverage is claimed."
            )
        return " ".join(part for part in (self._sampled, self._stated) if part)

    @property
    def _sampled(self) -> str:
        """What follows from counts."""
        known, radius = self.known, self.robustness.radius
        own = None if known is None else known.radius
        ball = ball_of(self.mixes)
        if ball is None or ball.is_simplex:
            return (
                "" if self.has_bounds else "With every mix in the set, nothing has to be claimed about which will come."
            )
        if own is not None or not isinstance(radius, str):
            return (
                f"The size of the set was stated, {ball.radius:.3g}{ball.measure}, and no coverage is claimed for it."
            )
        level = f"{100 * self.robustness.confidence:g}%"
        draws = self.robustness.n_draws(self.counts)
        known_by = (
            f"its {self.counts.sum():,.0f} rows"
            if math.isclose(draws, self.counts.sum(), rel_tol=0.01)
            else f"the {draws:,.0f} draws that its rows count for"
        )
        if self.source is not None and known is not None and known.counts is not None:
            known_by = f"its {sum(known.counts.values()):,.0f} counts"
        covers = (
            f"Mixes that close to the shares in {self.source or 'the data'} hold, by {known_by} ({radius}), the mix "
            f"which these were drawn from with a confidence of {level}"
        )
        return covers + (", for many rows." if known is not None and known.ball == "chi2" else ".")

    @property
    def _stated(self) -> str:
        """What is taken on the user's word."""
        stated = []
        if self.source is not None:
            stated.append(f"that the mix to come is that of {self.source}")
        if self.has_bounds:
            stated.append("the bounds of shares")
        if not stated:
            return ""
        are = "are" if self.has_bounds else "is"
        words = " and ".join(stated)
        return (
            f"{words[0].upper()}{words[1:]} {are} taken on the user's word: the certificate is about optimisation over "
            "the set, and coverage is claimed only for what follows from counts."
        )


def _further(share: float) -> float:
    """Return a round share, about twice as large."""
    return min(math.ceil(20.0 * min(2.0 * share, 1.0) - 1e-9) / 20.0, 1.0)


_KINDS = {"KLBall": "kl", "Chi2Ball": "chi2", "TotalVariationBall": "tv"}


def allowed_words(rows: Table) -> NDArray[Any]:
    """Return intervals of shares in words."""
    ends = zip(rows["low"].tolist(), rows["high"].tolist(), strict=True)
    cells = [f"{low:.1%}" if f"{low:.1%}" == f"{high:.1%}" else f"{low:.1%} to {high:.1%}" for low, high in ends]
    return np.array(cells, dtype=object)
