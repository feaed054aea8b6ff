"""What is known about the future mix, in the words of a user: contexts by their labels."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoise.contexts import nearest, plain, shown
from counterpoise.exceptions import EmptyContextError, EmptySetError, InvalidInputError
from counterpoise.sets._base import Ball, ContextSet
from counterpoise.sets.chi2 import Chi2Ball
from counterpoise.sets.covering import BallKind, covering_radius
from counterpoise.sets.intersection import Intersection
from counterpoise.sets.kl import KLBall
from counterpoise.sets.radius import RadiusMethod
from counterpoise.sets.shares import Marginal, ShareBounds, ShareLimits
from counterpoise.sets.total_variation import TotalVariationBall

Array = NDArray[np.float64]

_BALLS: dict[str, type[Ball]] = {"kl": KLBall, "chi2": Chi2Ball, "tv": TotalVariationBall}

_ROUNDING = 1e-6
"""How far from one stated shares may add up: they are often written with a few digits."""


@dataclass(frozen=True, eq=False)
class Unseen:
    """Contexts that the data lack and whose risk the caller knows.

    Attributes
    ----------
    labels : tuple
    risks : ndarray of shape (n_unseen,)
        What they add to the score: an excess risk, or a risk where that is the criterion.
    """

    labels: tuple[Any, ...]
    risks: Array

    @classmethod
    def none(cls) -> Unseen:
        """Return no contexts."""
        return cls((), np.zeros(0))


@dataclass(frozen=True)
class Mix:
    """The plausible mixes of contexts, by label.

    It becomes a set once the contexts of the data are known. ``mix=`` takes it wherever it takes a set, and a plain
    mapping there is short for ``Mix(bounds=mapping)``.

    Parameters
    ----------
    bounds : mapping from context to (low, high), optional
        What is known about single shares: the lowest and the highest, either None where it is open; or one number where
        the share is known.
    counts : mapping from context to count, optional
        Another sample, such as a census of the population to be served. It is the centre of the set, and its size
        gives the radius, by the ``confidence`` and ``radius`` of the estimator. Contexts it does not name have count 0.
    shares : mapping from context to share, optional
        The centre itself, with ``radius``. They sum to one; contexts not named have share 0.
    radius : float, optional
        The size of the ball, in its own unit. By default that of the estimator.
    ball : {"kl", "chi2", "tv"} or None, default="kl"
        The ball around the centre: :class:`counterpoise.KLBall` (radius in bits), :class:`counterpoise.Chi2Ball` or
        :class:`counterpoise.TotalVariationBall`. None: every mix within bounds and limits.
    limits : sequence of (mapping from context to coefficient, number), optional
        Half-spaces: the sum of coefficient times share is at most the number. ``({"north": 1, "south": 1}, 0.5)``
        keeps north and south together to a half.
    parents : mapping from context to parent, or True, optional
        Contexts that are nested, as stores in regions. The shares of regions are estimated from all rows of a region,
        so they are known better than those of stores: the set is one on regions and one on stores, each at half of the
        error rate. True takes the first entry of labels that are tuples. Bounds and limits may then name parents.
    unseen_risks : mapping from context to risk, optional
        Of contexts without rows, which nothing can be learnt about: the excess risk they are to be counted with (the
        risk, where ``criterion="risk"``). Those of contexts that have rows are not used.
    source : str
        What ``counts`` or ``shares`` are from, in words for reports: ``"the census of 2024"``.

    Examples
    --------
    >>> import counterpoise as cpo
    >>> mix = cpo.Mix(bounds={"winter": (0.1, 0.3)}, ball=None)
    >>> plausible = mix.over(["summer", "winter"], [60, 40])
    >>> [round(end, 3) for end in plausible.interval(1)]
    [0.1, 0.3]
    """

    bounds: Mapping[Any, Any] | None = None
    counts: Mapping[Any, float] | None = None
    shares: Mapping[Any, float] | None = None
    radius: float | None = None
    ball: BallKind | None = "kl"
    limits: Sequence[tuple[Mapping[Any, float], float]] | None = None
    parents: Mapping[Any, Any] | bool | None = None
    unseen_risks: Mapping[Any, float] | None = None
    source: str = ""

    def __post_init__(self) -> None:
        """Check what can be checked without data, and keep mappings by plain labels."""
        keep = {
            "bounds": _read(self.bounds, "bounds", _interval),
            "counts": _read(self.counts, "counts", _count),
            "shares": _read(self.shares, "shares", _share),
            "unseen_risks": _read(self.unseen_risks, "unseen_risks", _finite),
            "limits": None if self.limits is None else tuple(_limit(one) for one in _listed(self.limits)),
        }
        if self.parents is not None and not isinstance(self.parents, bool):
            keep["parents"] = _read(self.parents, "parents", lambda label, parent: plain(parent))
        for name, value in keep.items():
            object.__setattr__(self, name, value)
        if self.ball is not None and self.ball not in _BALLS:
            raise InvalidInputError(f"ball is {self.ball!r:.60}; choose 'kl', 'chi2' or 'tv', or None for no ball.")
        if self.radius is not None and not (_is_number(self.radius) and float(self.radius) >= 0.0):
            raise InvalidInputError(f"mix: radius is {self.radius!r:.60}; pass a number, 0 or more, or None.")
        if self.counts is not None and self.shares is not None:
            raise InvalidInputError("mix: pass counts or shares, not both: either is the centre of the set.")
        if self.ball is None:
            for name in ("counts", "shares", "radius"):
                if getattr(self, name) is not None:
                    raise InvalidInputError(
                        f"mix: {name} is given and ball is None, so there is nothing to centre or size. Choose a ball, "
                        "such as ball='kl', or leave it out."
                    )
        self._check_sums()

    def _check_sums(self) -> None:
        """Refuse counts of nothing, and shares that are not a distribution."""
        if self.counts is not None and not sum(self.counts.values()) > 0.0:
            raise InvalidInputError("mix: counts are all zero, so they say nothing about the mix. Pass a sample.")
        if self.shares is not None and not math.isclose(sum(self.shares.values()), 1.0, abs_tol=_ROUNDING):
            named = ", ".join(f"{_name(label)} {share:g}" for label, share in list(self.shares.items())[:8])
            raise InvalidInputError(
                f"mix: shares sum to {sum(self.shares.values()):.6g}, not 1 ({named}). Pass a share for every context, "
                "or counts= if they are counts."
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return what is kept in a file: pairs, since not every format has mappings from labels that are tuples."""
        pairs = {name: list(value.items()) for name, value in vars(self).items() if isinstance(value, dict)}
        limits = None if self.limits is None else [(list(one.items()), number) for one, number in self.limits]
        return {**vars(self), **pairs, "limits": limits}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take up what was kept."""
        for name, value in state.items():
            object.__setattr__(self, name, dict(value) if isinstance(value, list) and name != "limits" else value)
        if self.limits is not None:
            object.__setattr__(self, "limits", tuple((dict(one), number) for one, number in self.limits))

    @classmethod
    def of(cls, mix: Mix | Mapping[Any, Any]) -> Mix:
        """Return a mix, or the one that a plain mapping of bounds is short for."""
        return mix if isinstance(mix, Mix) else cls(bounds=mix)

    @property
    def follows_data(self) -> bool:
        """Whether there is a ball whose size follows from the data's own counts and draws."""
        return self.ball is not None and self.counts is None and self.shares is None and self.radius is None

    def unseen(self, labels: Iterable[Hashable]) -> Unseen:
        """Return the contexts that the data lack and whose risk is given; they follow those of the data in the set.

        Parameters
        ----------
        labels : labels of shape (n_contexts,)
            The contexts of the data.
        """
        seen = {plain(label) for label in labels}
        left = {label: risk for label, risk in (self.unseen_risks or {}).items() if label not in seen}
        return Unseen(tuple(left), np.array(list(left.values()), dtype=np.float64))

    def without(self, labels: Iterable[Hashable]) -> Mix:
        """Return what is known about the mix where some contexts have no share: rows of a fold may lack them.

        Bounds and counts of these are dropped, and stated shares of the others add up to one again.
        """
        gone = {plain(label) for label in labels}

        def kept(given: Mapping[Any, Any] | None) -> dict[Any, Any] | None:
            return None if given is None else {label: value for label, value in given.items() if label not in gone}

        shares, limits = kept(self.shares), [(kept(one) or {}, number) for one, number in self.limits or ()]
        if shares and sum(shares.values()) > 0.0:
            shares = {label: share / sum(shares.values()) for label, share in shares.items()}
        # Of nothing but contexts that are gone, a limit holds by itself, or cannot be kept whoever is there.
        stated = [(one, number) for one, number in limits if one]
        return replace(self, bounds=kept(self.bounds), counts=kept(self.counts), shares=shares, limits=stated or None)

    def over(
        self,
        labels: Iterable[Hashable],
        counts: ArrayLike,
        *,
        confidence: float = 0.99,
        radius: RadiusMethod | float = "types",
        draws: float | None = None,
    ) -> ContextSet:
        """Return the set over the contexts of some data, followed by those that are :meth:`unseen`.

        Parameters
        ----------
        labels : labels of shape (n_contexts,)
        counts : array-like of shape (n_contexts,)
            Rows of each context.
        confidence, radius, draws
            Those of the estimator: how large a ball is that has no radius of its own. ``draws`` are those of the data,
            and of no use with ``counts`` of another sample.
        """
        seen = [plain(label) for label in labels]
        rows = np.append(np.asarray(counts, dtype=np.float64), np.zeros(len(self.unseen(seen).labels)))
        names = _Names((*seen, *self.unseen(seen).labels), len(seen), self.parents)
        self._refuse_strangers(names)
        size = _Size(confidence, radius if self.radius is None else self.radius, draws if self.counts is None else None)
        balls = [] if self.ball is None else self._balls(names, rows, size)
        try:
            parts = (*balls, *self._bounded(names, balls), *self._limited(names))
            if not parts:
                return ShareBounds(np.zeros(len(rows)), np.ones(len(rows)), labels=names.words)
            return parts[0] if len(parts) == 1 else Intersection(parts)
        except EmptySetError as error:
            raise EmptySetError(f"mix: {str(error).removeprefix('mix: ')}") from error

    def _refuse_strangers(self, names: _Names) -> None:
        """Name labels that are not among the contexts."""
        for what in ("counts", "shares"):
            given = getattr(self, what) or {}
            strange = [label for label, value in given.items() if value > 0.0 and label not in names.index]
            if strange:
                raise EmptyContextError(names.without_rows(strange, what))
        for label in (*(self.bounds or {}), *(label for one, _ in self.limits or () for label in one)):
            names.positions(label)

    def _centre(self, names: _Names, rows: Array) -> Array:
        """Return the counts, or shares, that the ball is around."""
        given = self.counts if self.counts is not None else self.shares
        return rows if given is None else np.array([float(given.get(label, 0.0)) for label in names.labels])

    def _balls(self, names: _Names, rows: Array, size: _Size) -> list[ContextSet]:
        """Return the ball, and for nested contexts the one on their parents."""
        assert self.ball is not None
        centre, ball = self._centre(names, rows), _BALLS[self.ball]
        if isinstance(size.radius, str) and self.shares is not None:
            raise InvalidInputError(
                "mix: shares say nothing of how well they are known. Pass radius= with them, or counts= instead."
            )
        # A radius that is stated holds for parents too: lumped together, no two mixes are further apart.
        parents = names.parents if isinstance(size.radius, str) else None
        if parents is not None:
            # Each covers with half of the error rate, so that both do with the confidence asked for.
            size = replace(size, confidence=0.5 * (1.0 + size.confidence))
        around = "the data" if self.counts is None and self.shares is None else self.source or "the given mix"
        own = ball(centre / centre.sum(), size.of(self.ball, centre), labels=names.words, around=around)
        if parents is None:
            return [own]
        above = np.bincount(parents, centre, len(names.above)).astype(np.float64)
        words = tuple(shown(label) for label in names.above)
        return [
            own,
            Marginal(ball(above / above.sum(), size.of(self.ball, above), labels=words, around=around), parents),
        ]

    def _bounded(self, names: _Names, balls: Sequence[ContextSet]) -> list[ContextSet]:
        """Return the bounds as sets: on contexts, and on parents."""
        sides = {
            False: (np.zeros(len(names.labels)), np.ones(len(names.labels))),
            True: (np.zeros(len(names.above)), np.ones(len(names.above))),
        }
        for label, (low, high) in (self.bounds or {}).items():
            above = label not in names.index
            k = names.above_index[label] if above else names.index[label]
            sides[above][0][k], sides[above][1][k] = low, high
        found: list[ContextSet] = []
        for above, (low, high) in sides.items():
            if not (low.any() or (high < 1.0).any()):
                continue
            labels = names.above if above else names.labels
            _check_room(labels, low, high)
            bounds = ShareBounds(low, high, labels=tuple(shown(label) for label in labels))
            self._check_reach(labels, low, high, above, balls)
            found.append(Marginal(bounds, names.parents) if above else bounds)
        return found

    def _check_reach(
        self, labels: Sequence[Any], low: Array, high: Array, above: bool, balls: Sequence[ContextSet]
    ) -> None:
        """Name a bound that no member of the ball meets."""
        if not balls or (above and not isinstance(balls[-1], Marginal)):
            return
        ball: Any = balls[-1].mixes if above and isinstance(balls[-1], Marginal) else balls[0]
        for k in np.flatnonzero((low > 0.0) | (high < 1.0)).tolist():
            least, most = ball.interval(k)
            if low[k] > most + _ROUNDING or high[k] < least - _ROUNDING:
                source = "data" if self.counts is None and self.shares is None else "mix"
                raise EmptySetError(
                    f"mix: the share of {_name(labels[k])} is asked to be {_span(low[k], high[k])}; it is "
                    f"{ball.p_hat[k]:.3g} in the {source}, and the set around that allows {_span(least, most)}. Widen "
                    "the bounds, raise confidence or the radius, or go by bounds alone: Mix(bounds=..., ball=None)."
                )

    def _limited(self, names: _Names) -> list[ContextSet]:
        """Return the half-spaces as a set."""
        if not self.limits:
            return []
        matrix = np.zeros((len(self.limits), len(names.labels)))
        for row, (coefficients, _) in zip(matrix, self.limits, strict=True):
            for label, value in coefficients.items():
                row[names.positions(label)] += value
        numbers = np.array([number for _, number in self.limits], dtype=np.float64)
        return [ShareLimits(matrix, numbers, labels=names.words)]


@dataclass(frozen=True)
class _Size:
    """How large a ball is to be."""

    confidence: float
    radius: RadiusMethod | float
    draws: float | None

    def of(self, ball: BallKind, counts: Array) -> float:
        """Return the radius of a ball around these counts."""
        if not isinstance(self.radius, str):
            return float(self.radius)
        return covering_radius(ball, counts, self.confidence, self.radius, draws=self.draws)


class _Names:
    """The contexts of a set by name: those of the data, then those without rows; with their parents."""

    def __init__(self, labels: tuple[Any, ...], n_seen: int, parents: Mapping[Any, Any] | bool | None) -> None:
        self.labels, self.n_seen = labels, n_seen
        self.index = {label: k for k, label in enumerate(labels)}
        self.words = tuple(shown(label) for label in labels)
        above = self._parents_of(parents) if parents else None
        self.above: tuple[Any, ...] = () if above is None else tuple(dict.fromkeys(above))
        self.above_index = {label: k for k, label in enumerate(self.above)}
        self.parents: Any = None if above is None else np.array([self.above_index[one] for one in above], dtype=np.intp)

    def _parents_of(self, parents: Mapping[Any, Any] | bool) -> list[Any]:
        """Return the parent of each context."""
        if isinstance(parents, bool):
            flat = [label for label in self.labels if not (isinstance(label, tuple) and len(label) > 1)]
            if flat:
                raise InvalidInputError(
                    f"mix: parents=True takes the first entry of labels that are tuples, and {_name(flat[0])} is none. "
                    "Pass two columns as contexts, or map each context to its parent."
                )
            return [plain(label[0]) for label in self.labels]
        missing = [label for label in self.labels if label not in parents]
        if missing:
            raise InvalidInputError(
                f"mix: parents has no entry for {_name(missing[0])} ({len(missing)} of {len(self.labels)} are "
                "missing). Map every context to its parent."
            )
        return [parents[label] for label in self.labels]

    def positions(self, label: Any) -> NDArray[np.intp]:
        """Return where a context is, or the contexts of a parent."""
        if label in self.index:
            if label in self.above_index and self.above_index:
                children = np.flatnonzero(self.parents == self.above_index[label])
                if not np.array_equal(children, [self.index[label]]):
                    raise InvalidInputError(
                        f"mix: {_name(label)} is the name of a context and of a parent. Give one of them another name."
                    )
            return np.array([self.index[label]], dtype=np.intp)
        if label in self.above_index:
            return np.flatnonzero(self.parents == self.above_index[label])
        raise InvalidInputError(f"mix: {_unknown(label, (*self.labels[: self.n_seen], *self.above))}")

    def without_rows(self, strange: Sequence[Any], what: str) -> str:
        """Say that some contexts have no rows, and what to do."""
        listed = ", ".join(_name(label) for label in strange[:5])
        more = f" and {len(strange) - 5} more" if len(strange) > 5 else ""
        near = nearest(strange[0], self.labels[: self.n_seen])
        which = f"context {listed} has" if len(strange) == 1 else f"contexts {listed}{more} have"
        return (
            f"mix: {which} no training samples but a part in {what} (the data have "
            f"{_some(self.labels[: self.n_seen])}).{near} Drop {'it' if len(strange) == 1 else 'them'} from the mix, "
            f"or pass the risk with unseen_risks={{{strange[0]!r}: ...}}."
        )


def _unknown(label: Any, labels: Sequence[Any]) -> str:
    """Say that there is no such context."""
    return f"there is no context {_name(label)} (there are {_some(labels)}).{nearest(label, labels)}"


def _some(labels: Sequence[Any], most: int = 6) -> str:
    listed = ", ".join(_name(label) for label in labels[:most])
    return f"{listed} and {len(labels) - most} more" if len(labels) > most else listed


def _name(label: Any) -> str:
    """Return a label as it would be written in code, so that 1 and '1' differ."""
    return f"{label!r:.60}"


def _span(low: float, high: float) -> str:
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def _check_room(labels: Sequence[Any], low: Array, high: Array) -> None:
    """Refuse lows that sum past one, and highs that do not reach it."""
    if low.sum() > 1.0 + _ROUNDING:
        listed = ", ".join(f"{_name(labels[k])} {low[k]:g}" for k in np.flatnonzero(low)[:8])
        raise InvalidInputError(f"mix: the lowest shares sum to {low.sum():.6g}, past one ({listed}). Lower some.")
    if high.sum() < 1.0 - _ROUNDING:
        listed = ", ".join(f"{_name(label)} {value:g}" for label, value in zip(labels[:8], high[:8], strict=True))
        raise InvalidInputError(
            f"mix: the highest shares sum to {high.sum():.6g}, below one ({listed}), so no mix meets them. Raise some."
        )


def _read(given: Any, what: str, read: Any) -> dict[Any, Any] | None:
    """Return a mapping, or a series with labels as its index, by plain labels."""
    if given is None:
        return None
    items = given if isinstance(given, Mapping) else given.to_dict() if hasattr(given, "to_dict") else None
    if not isinstance(items, Mapping):
        raise InvalidInputError(f"mix: {what} is {given!r:.60}; pass a mapping from context.")
    return {plain(label): read(label, value) for label, value in items.items()}


def _is_number(value: Any) -> bool:
    """Tell whether a value is a number, and no flag nor NaN."""
    return isinstance(value, (Real, np.number)) and not isinstance(value, (bool, np.bool_)) and value == value


def _finite(label: Any, value: Any) -> float:
    if not (_is_number(value) and math.isfinite(value)):
        raise InvalidInputError(f"mix: unseen_risks of {_name(plain(label))} is {value!r:.60}; pass a finite number.")
    return float(value)


def _count(label: Any, value: Any) -> float:
    if not (_is_number(value) and 0.0 <= value < math.inf):
        raise InvalidInputError(
            f"mix: counts of {_name(plain(label))} is {value!r:.60}; a count is a finite number, 0 or more."
        )
    return float(value)


def _share(label: Any, value: Any) -> float:
    if not (_is_number(value) and 0.0 <= value <= 1.0):
        raise InvalidInputError(
            f"mix: shares of {_name(plain(label))} is {value!r:.60}; a share lies between 0 and 1. Pass counts= for "
            "counts."
        )
    return float(value)


def _interval(label: Any, value: Any) -> tuple[float, float]:
    """Return the lowest and the highest share of a context."""
    who = _name(plain(label))
    ends = (value, value) if _is_number(value) else value
    if isinstance(ends, (str, bytes, Mapping)) or not isinstance(ends, Iterable) or len(ends := tuple(ends)) != 2:
        raise InvalidInputError(
            f"mix: bounds of {who} is {value!r:.60}; pass (low, high), None for an open end, or one number."
        )
    low, high = (default if end is None else end for end, default in zip(ends, (0.0, 1.0), strict=True))
    for end in (low, high):
        if not (_is_number(end) and 0.0 <= end <= 1.0):
            raise InvalidInputError(
                f"mix: bounds of {who} is {value!r:.60}; shares lie between 0 and 1, and {end!r:.30} does not."
            )
    if low > high:
        raise InvalidInputError(f"mix: bounds of {who} is {value!r:.60}; the low end is above the high end. Swap them.")
    return float(low), float(high)


def _listed(limits: Any) -> tuple[Any, ...]:
    if isinstance(limits, (str, bytes, Mapping)) or not isinstance(limits, Iterable):
        raise InvalidInputError(f"mix: limits is {limits!r:.60}; pass a list of ({{context: coefficient}}, number).")
    return tuple(limits)


def _limit(one: Any) -> tuple[dict[Any, float], float]:
    """Return one half-space."""
    pair = tuple(one) if isinstance(one, Iterable) and not isinstance(one, (str, bytes, Mapping)) else ()
    if len(pair) != 2 or not isinstance(pair[0], Mapping) or not pair[0]:
        raise InvalidInputError(f"mix: a limit is {one!r:.60}; pass ({{context: coefficient}}, number).")
    coefficients = {plain(label): value for label, value in pair[0].items()}
    for value in (*coefficients.values(), pair[1]):
        if not (_is_number(value) and math.isfinite(value)):
            raise InvalidInputError(f"mix: a limit is {one!r:.80}; coefficients and the number are finite numbers.")
    return {label: float(value) for label, value in coefficients.items()}, float(pair[1])
