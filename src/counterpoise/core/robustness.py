"""What is made small, and over which mixes: the switches that name every method of the family."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts, encode, shown
from counterpoise.core.objective import ReferenceRisks
from counterpoise.exceptions import InvalidInputError, RenamedParameterError
from counterpoise.sets import ContextSet, KLBall, Mix, RadiusMethod, confidence_radius, draws_in_groups
from counterpoise.sets.mix import Unseen
from counterpoise.sets.radius import RADIUS_METHODS

Array = NDArray[np.float64]

Criterion = Literal["excess", "risk"]

Mixes = Mix | Mapping[Any, Any] | ContextSet
"""What is known about the mix: by label, as bounds by label, or as a set over the contexts in the order of labels."""

DrawCount = float | Literal["groups"] | None
"""A number of independent draws, how to find it, or nothing where every row is one."""


NO_GROUPS = (
    "draws is 'groups', but there are no groups. Pass groups=, one label per row that says which rows belong together, "
    "such as their day; or draws= as a number."
)


class Criterial:
    """Something with a parameter ``criterion``, which was called ``score`` once."""

    def __new__(cls, *args: Any, **params: Any) -> Self:
        """Name the parameter's new name to whoever passes the old one."""
        refuse_score(params)
        return super().__new__(cls)


def refuse_score(params: Mapping[str, Any]) -> None:
    """Raise where a parameter has its old name."""
    if "score" in params:
        raise RenamedParameterError(
            "score= is now called criterion=, since score is the name of a method in scikit-learn. "
            f"Pass criterion={params['score']!r}."
        )


@dataclass(frozen=True)
class Robustness(Criterial):
    """What is scored, and how large the set is: two switches that name every method of the family.

    Parameters
    ----------
    confidence : float
        Level of the confidence set; 1 is the whole simplex.
    radius : {"types", "agrawal", "calibrated", "chi2", "anytime"} or float
        How the radius follows from the confidence, or the radius itself in bits.
    draws : float or "groups", optional
        Independent draws of a context in the data, where rows are not; ``"groups"`` has to be replaced by a number, see
        :meth:`sized`. Of no use with a radius in bits.
    criterion : {"excess", "risk"}
    balanced : bool
        Centre the set on equal shares instead of on the empirical ones.
    mix : Mix, mapping or ContextSet, optional
        What is known about the mix, by label; a mapping is one of bounds. Or the set itself, over the contexts in the
        order of their labels; then nothing above but the criterion matters.
    """

    confidence: float = 0.99
    radius: RadiusMethod | float = "types"
    draws: DrawCount = None
    criterion: Criterion = "excess"
    balanced: bool = False
    mix: Mixes | None = None

    @property
    def switches(self) -> dict[str, Any]:
        """The same in the words of an estimator: its radius and its criterion."""
        return {"radius": math.inf if self.confidence == 1.0 else self.radius, "criterion": self.criterion}

    def scored(self, references: ReferenceRisks) -> ReferenceRisks:
        """Return what is taken off each risk: the references, or nothing where the criterion is the risk itself."""
        return references if self.criterion == "excess" else ReferenceRisks.exactly(np.zeros_like(references.upper))

    @property
    def counts_draws(self) -> bool:
        """Whether the size of the set follows from the number of draws."""
        sized = self.mix is None or (self._by_label is not None and self._by_label.follows_data)
        return sized and isinstance(self.radius, str)

    def stated(self) -> Self:
        """Return the same for contexts that overlap, where no size follows from counts: it has to be stated."""
        known = self._by_label
        given = isinstance(self.mix, ContextSet) if known is None else known.ball is None or known.radius is not None
        if given or not isinstance(self.radius, str):
            return replace(self, draws=None)
        if self.confidence == 1.0:
            return replace(self, radius=math.inf, draws=None)
        raise InvalidInputError(
            f"radius is {self.radius!r}, and contexts overlap: a row may be in several, so their counts are not draws "
            "of one context each, and no radius follows from them. State what mixes to prepare for: radius= in bits, "
            "confidence=1 for every mix, or mix=, such as Mix(bounds=..., ball=None) or "
            "Mix(shares=..., radius=0.1)."
        )

    @property
    def has_divergence_of_data(self) -> bool:
        """Whether the set has a ball of the divergence around the shares in the data, whatever its size."""
        known = self._by_label
        return self.mix is None or (
            known is not None and (known.ball, known.counts, known.shares) == ("kl", None, None)
        )

    @property
    def counted(self) -> float | None:
        """The draws as a number; None where rows are."""
        if self.draws == "groups":
            raise InvalidInputError(NO_GROUPS)
        return self.draws

    def n_draws(self, counts: Array) -> float:
        """Return the draws that the size of the set follows from; NaN where it was given."""
        if not self.counts_draws or self.draws == "groups":
            return math.nan
        return float(counts.sum()) if self.draws is None else float(self.draws)

    def sized(self, contexts: NDArray[np.intp], groups: Any, weight: Array | None = None) -> Self:
        """Return the same with a number of draws, where they are to be found from groups of rows.

        Parameters
        ----------
        contexts : ndarray of int of shape (n_samples,)
            Codes.
        groups : labels of shape (n_samples,), or a table of several columns, which are crossed
        weight : ndarray of shape (n_samples,), optional
        """
        if self.draws != "groups":
            return self
        if not self.counts_draws:
            return replace(self, draws=None)
        if groups is None:
            raise InvalidInputError(NO_GROUPS)
        own = encode(groups, len(contexts), role="group")
        # Weights may be in any unit; there are no more draws than rows that have one.
        counts = None if weight is None else weight * (np.count_nonzero(weight) / weight.sum())
        return replace(self, draws=draws_in_groups(contexts, own, counts).effective)

    @property
    def _by_label(self) -> Mix | None:
        """What is known about the mix by label, if anything."""
        known = isinstance(self.mix, (Mix, Mapping))
        return Mix.of(self.mix) if known else None  # type: ignore[arg-type]

    def unseen(self, labels: Iterable[Any]) -> Unseen:
        """Return the contexts without rows that the set holds after those of these labels, with their scores."""
        return Unseen.none() if self._by_label is None else self._by_label.unseen(labels)

    def mixes_of(self, contexts: Contexts, counts: Array) -> ContextSet:
        """Return the set of context distributions for these contexts, unless they overlap and its size is not stated.

        Parameters
        ----------
        counts : ndarray of shape (n_contexts,)
            Rows, or the sum of their weights, in each context.
        """
        return (self.stated() if contexts.overlap else self).mixes(counts, contexts.labels)

    def mixes(self, counts: Array, labels: Iterable[Any] | None = None) -> ContextSet:
        """Return the set of context distributions for these counts.

        Parameters
        ----------
        counts : ndarray of shape (n_contexts,)
        labels : labels of shape (n_contexts,), optional
            By which a mix names contexts; 0, 1, ... by default.
        """
        if self._by_label is not None:
            return self._by_label.over(
                range(len(counts)) if labels is None else labels,
                counts,
                confidence=self.confidence,
                radius=self.radius,
                draws=self.counted,
            )
        if isinstance(self.mix, ContextSet):
            if self.mix.p_hat.size != len(counts):
                raise InvalidInputError(
                    f"mix is a set over {self.mix.p_hat.size} contexts; the data have {len(counts)}. Pass one with a "
                    "probability for each context, in the order of their labels."
                )
            named = self.mix.labels
            words = None if labels is None else list(map(shown, labels))
            if named is not None and words is not None and list(map(shown, named)) != words:
                raise InvalidInputError(
                    f"mix is a set over {', '.join(map(shown, named)):.80}, in this order; the data have "
                    f"{', '.join(words):.80}. Make it in the order of the data, or state what is known by label: a "
                    "mapping to bounds, or a Mix."
                )
            return self.mix
        if isinstance(self.radius, str):
            bits = confidence_radius(counts, self.confidence, self.radius, draws=self.counted)
        else:
            bits = self.radius
        shares = np.full(len(counts), 1.0 / len(counts)) if self.balanced else counts / counts.sum()
        return KLBall(shares, bits)


REFERENCES = ("in-sample", "cross-fit", "shrunk")
"""Kinds of references that nearly every estimator knows."""


def check_parameters(params: Mapping[str, Any], references: Sequence[str] = REFERENCES) -> None:
    """Refuse parameters that cannot be meant, by name and before anything is done with them.

    Parameters
    ----------
    references : sequence of str
        The kinds of references to choose from.
    """
    *kinds, last = (repr(kind) for kind in references)
    rules: dict[str, tuple[bool, str]] = {
        "confidence": (_is_number(params["confidence"], 0.0, 1.0), "a level of confidence in [0, 1], such as 0.99"),
        "radius": (
            params["radius"] in get_args(RadiusMethod)
            if isinstance(params["radius"], str)
            else _is_number(params["radius"], 0.0),
            f"{RADIUS_METHODS}, or a number of bits, 0 or more",
        ),
        "draws": (
            params["draws"] is None
            or (isinstance(params["draws"], str) and params["draws"] == "groups")
            or (_is_number(params["draws"], 0.0) and 0 < params["draws"] < math.inf),
            "a positive number, how many independent draws of a context the data hold, 'groups' or None",
        ),
        "criterion": (params["criterion"] in ("excess", "risk"), "'excess' or 'risk'"),
        "reference": (
            not isinstance(params["reference"], str) or params["reference"] in references,
            f"{', '.join(kinds)} or {last}, or a mapping from context to risk",
        ),
        "adjust": (_is_adjustment(params.get("adjust")), "None, 'standard-error' or a positive number, such as 1.0"),
        "mix": (
            params.get("mix") is None or isinstance(params["mix"], (ContextSet, Mix, Mapping)),
            "bounds by label such as {'winter': (0.1, 0.3)}, a Mix, a set of mixes such as KLBall(p_hat, radius), or "
            "None",
        ),
        "tol": (_is_number(params.get("tol", 0.0), 0.0), "a number, 0 or more, such as 1e-6"),
        "max_iter": (_is_whole(params.get("max_iter", 1)), "a whole number, 1 or more"),
        "guard": (isinstance(params.get("guard", True), (bool, np.bool_)), "True or False"),
        "headroom": (params.get("headroom") in ("bound", "test", None), "'bound', 'test' or None"),
        "fit_intercept": (isinstance(params.get("fit_intercept", True), (bool, np.bool_)), "True or False"),
    }
    for name, (is_good, wanted) in rules.items():
        if not is_good:
            raise InvalidInputError(f"{name} is {params[name]!r:.60}; pass {wanted}.")


def _is_number(value: Any, low: float, high: float = math.inf) -> bool:
    number = isinstance(value, Real) and not isinstance(value, (bool, np.bool_))
    # A number that no float can hold is none that is meant; a narrow float cannot be compared with so large a one.
    value = float(value) if isinstance(value, np.floating) else value
    return number and bool(low <= value <= high) and (bool(value <= 1e300) or value == math.inf)


def _is_adjustment(value: Any) -> bool:
    if value is None or isinstance(value, str):
        return value in (None, "standard-error")
    return _is_number(value, 0.0) and 0.0 < value < math.inf


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 1)


METHODS: Mapping[str, Robustness] = {
    "robust": Robustness(),
    "erm": Robustness(radius=0.0, criterion="risk"),
    "inverse-frequency": Robustness(radius=0.0, criterion="risk", balanced=True),
    "minimax-risk": Robustness(confidence=1.0, criterion="risk"),
    "minimax-regret": Robustness(confidence=1.0, criterion="excess"),
    "likelihood-robust": Robustness(criterion="risk"),
}
"""The methods of the family by name; every one is the same problem with its switches set."""


def named(method: str) -> Robustness:
    """Return a method of the family by its name."""
    if method not in METHODS:
        raise InvalidInputError(f"there is no method {method!r}; choose one of {', '.join(METHODS)}.")
    return METHODS[method]
