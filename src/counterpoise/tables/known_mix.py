"""What a command is told about the mix of contexts: bounds of shares, counts in another table, the kind of set."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from counterpoise.contexts import plain, shown
from counterpoise.exceptions import EmptySetError, InvalidInputError
from counterpoise.sets import BallKind, ContextSet, Mix, radius_of
from counterpoise.tables.pooling import Pool
from counterpoise.tables.reading import open_table
from counterpoise.tables.tabular.labels import SeenLabels

COUNT_COLUMNS = ("count", "counts", "n")
"""Names of a column that says how often the context of a row was counted."""

_EXAMPLES = "winter=0.1..0.3, winter=0.1.., winter=..0.3 or winter=0.2"
_LISTED = 6
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Census:
    """Counts of contexts in another table.

    Attributes
    ----------
    name, fingerprint : str
        Of the file.
    n_rows : int
    column : str or None
        The column of counts; None where rows were counted.
    counts : tuple of (label, count)
        Labels as that table alone would have them.
    """

    name: str
    fingerprint: str
    n_rows: int
    column: str | None
    counts: tuple[tuple[Any, float], ...]

    @classmethod
    def read(cls, path: Path, context: Sequence[str]) -> Census:
        """Count the contexts of a file.

        Parameters
        ----------
        context : sequence of str
            The columns that are crossed, as in the table of the command.
        """
        named = [one for one in open_table(path).names if one.strip().lower() in COUNT_COLUMNS and one not in context]
        if len(named) > 1:
            raise InvalidInputError(
                f"{path.name} (--mix-from) has columns {' and '.join(map(repr, named))}, and either may hold the "
                "counts. Leave one of them out."
            )
        data = open_table(path, dict.fromkeys([*context, *named], "--mix-from")).read()
        if data.n_rows == 0:
            raise InvalidInputError(f"{path.name} (--mix-from) has no rows, so it says nothing about the mix.")
        seen = SeenLabels(context, "--mix-from")
        codes = seen.look(data)[0]
        weights = data.numbers(named[0], "--mix-from", least=0.0) if named else None
        counts = np.bincount(codes, weights).astype(np.float64)
        if named and not counts.sum() > 1.0 + _ROUNDING:
            raise InvalidInputError(
                f"column {named[0]!r} of {path.name} (--mix-from) adds up to {counts.sum():.6g}. It must hold counts, "
                "whose number tells how well the mix is known; shares belong into --share."
            )
        pairs = tuple(zip([plain(one) for one in seen.labels], counts.tolist(), strict=True))
        return cls(path.name, data.fingerprint, data.n_rows, named[0] if named else None, pairs)

    @property
    def total(self) -> float:
        """All that was counted."""
        return sum(count for _, count in self.counts)

    @property
    def described(self) -> str:
        """What was counted, for lists of what a result was made from."""
        counted = "rows are counted" if self.column is None else f"{self.total:,.0f} counted in column {self.column}"
        return f"{self.name} ({self.n_rows:,} rows, {counted}, fingerprint {self.fingerprint})"


@dataclass(frozen=True)
class KnownMix:
    """What was said about the mix, before the contexts are known.

    Attributes
    ----------
    shares : tuple of (name, low, high)
        The bounds of shares, contexts by name.
    census : Census or None
    ball : {"kl", "chi2", "tv"}
    """

    shares: tuple[tuple[str, float, float], ...] = ()
    census: Census | None = None
    ball: BallKind = "kl"

    @classmethod
    def of(
        cls, shares: Sequence[str] | None, census: Path | None, ball: str, context: Sequence[str], draws: Any = None
    ) -> KnownMix | None:
        """Read what options say; None where they say nothing.

        Parameters
        ----------
        shares : sequence of str
            Such as ``winter=0.1..0.3``.
        census : Path, optional
            A table with the columns ``context``.
        ball : str
        draws : optional
            What was said about draws: with a census they would be those of another table.
        """
        if ball not in get_args(BallKind):
            raise InvalidInputError(f"--set is {ball!r:.60}; choose kl, chi2 or tv.")
        bounds = tuple(_bounds(one) for one in shares or ())
        if census is not None and draws is not None:
            raise InvalidInputError(
                "--draws says how many draws of a context the rows of this table are worth, but with --mix-from the "
                "other table sizes the set. Leave one of them out."
            )
        if not bounds and census is None and ball == "kl":
            return None
        return cls(bounds, None if census is None else Census.read(census, context), ball)  # type: ignore[arg-type]

    @property
    def stated(self) -> str:
        """What was said, in words that go on "a set of mixes ..."."""
        around = "around its shares in the data" if self.census is None else f"around the shares in {self.census.name}"
        bounds = [f"{name} {_span(low, high)}" for name, low, high in self.shares]
        return f"{around} ({self.ball})" + (f", with a share of {_some(bounds)}" if bounds else "")

    def over(
        self,
        labels: Iterable[Hashable],
        counts: ArrayLike,
        context: Sequence[str],
        pool: Pool | None = None,
        unused: Iterable[Hashable] = (),
        **sized: Any,
    ) -> tuple[Mix, tuple[str, ...]]:
        """Return what is known by the labels of the data, and a sentence or two that say what it is.

        Parameters
        ----------
        labels : labels of shape (n_contexts,)
        counts : array-like of shape (n_contexts,)
            Rows of each.
        context : sequence of str
            The columns that contexts come from.
        pool : Pool, optional
            Contexts that were pooled.
        unused : labels, optional
            Contexts of the data that are not used; what another table counts of them does not count.
        **sized
            Confidence, radius and draws, as in :meth:`counterpoise.Mix.over`.
        """
        known = [plain(label) for label in labels]
        names = _Names(known, context, pool)
        rows = np.asarray(counts, dtype=np.float64)
        bounds: dict[Any, tuple[float, float]] = {}
        for word, low, high in self.shares:
            label = names.label(word, "--share")
            if label in bounds:
                raise InvalidInputError(f"--share names {shown(label)!r:.60} twice. State its bounds once: low..high.")
            bounds[label] = (low, high)
        without = _Names([plain(label) for label in unused], context, None)
        counted = None if self.census is None else self._counted(self.census, names, without, known, rows, bounds)
        source = "" if self.census is None else self.census.name
        mix = Mix(bounds=bounds or None, counts=counted, ball=self.ball, source=source)
        mixes = _checked(mix, known, rows, sized)
        return mix, self._notes(mixes, known, counted)

    def _counted(
        self,
        census: Census,
        names: _Names,
        without: _Names,
        known: Sequence[Any],
        rows: Any,
        bounds: Mapping[Any, Any],
    ) -> dict[Any, float]:
        """Return the counts of the census by the labels of the data."""
        counted: dict[Any, float] = {}
        strange = []
        for word, count in census.counts:
            label = names.find(word)
            if label is not None:
                counted[label] = counted.get(label, 0.0) + count
            elif count > 0.0 and without.find(word) is None:
                strange.append(shown(word))
        if strange:
            one = len(strange) == 1
            raise InvalidInputError(
                f"{census.name} (--mix-from) counts {_some(strange)}, of which the data have no rows, so nothing can "
                f"be learnt about {'it' if one else 'them'}.{names.nearest(strange[0])} Spell contexts as the data do "
                f"({_some([shown(label) for label in known])}), or leave {'it' if one else 'them'} out of the counts."
            )
        absent = [k for k, label in enumerate(known) if label not in counted and label not in bounds]
        if absent:
            listed = _some([f"{shown(known[k])} ({rows[k]:,.0f} rows in the data)" for k in absent])
            raise InvalidInputError(
                f"{census.name} (--mix-from) does not count {listed}. Spell contexts as the data do; if there are "
                f"none there, say so: --share {shown(known[absent[0]])!r}=0, or what it may be at most, =..0.05."
            )
        return counted

    def _notes(self, mixes: ContextSet, known: Sequence[Any], counted: Mapping[Any, float] | None) -> tuple[str, ...]:
        """Say what the set is, and what a census leaves open."""
        notes = [
            f"the set of mixes holds every mix {mixes.where}" if not mixes.is_simplex else "every mix is plausible"
        ]
        if self.census is not None and counted is not None:
            how = (
                f"{self.census.n_rows:,} rows, each counted as a draw"
                if self.census.column is None
                else f"{self.census.total:,.0f} draws by its column {self.census.column}"
            )
            if not math.isinf(radius_of(mixes)):
                notes[0] += f"; {self.census.name} is worth {how}"
            for k, label in enumerate(known):
                if not counted.get(label):
                    high = mixes.interval(k)[1]
                    most = f"the set allows it up to {high:.2%}" if high > 1e-9 else "it is 0 in every mix of the set"
                    notes.append(f"{shown(label):.60} is not counted in {self.census.name}; {most}")
        return tuple(notes)


def _checked(mix: Mix, labels: Sequence[Any], rows: Any, sized: Mapping[str, Any]) -> ContextSet:
    """Return the set, or say in the words of the command why there is none."""
    bounds = mix.bounds or {}
    said = "the data" if mix.counts is None else mix.source
    try:
        _fits(bounds, labels)
        around = replace(mix, bounds=None).over(labels, rows, **sized)
        for k, label in enumerate(labels):
            low, high = bounds.get(label, (0.0, 1.0))
            least, most = around.interval(k) if label in bounds else (0.0, 1.0)
            if low > most + _ROUNDING or high < least - _ROUNDING:
                raise InvalidInputError(
                    f"--share asks for {shown(label)!r:.60} to be {_span(low, high)}, but the set that follows from "
                    f"{said} allows {_span(least, most)} (it is {around.p_hat[k]:.3g} there). Widen the bounds, raise "
                    "--confidence, or go by bounds alone: --confidence 1."
                )
        return mix.over(labels, rows, **sized)
    except EmptySetError as error:
        raise InvalidInputError(
            f"--share: {str(error).removeprefix('mix: ')} --confidence 1 goes by the bounds alone."
        ) from error


def _fits(bounds: Mapping[Any, tuple[float, float]], labels: Sequence[Any]) -> None:
    """Refuse lowest shares that sum past one, and highest ones that do not reach it."""
    lows = {label: low for label, (low, _) in bounds.items() if low > 0.0}
    if sum(lows.values()) > 1.0 + _ROUNDING:
        listed = _some([f"{shown(label)} {low:g}" for label, low in lows.items()])
        raise InvalidInputError(f"--share: the lowest shares sum to {sum(lows.values()):.6g}, past 1 ({listed}).")
    highs = [bounds.get(label, (0.0, 1.0))[1] for label in labels]
    if sum(highs) < 1.0 - _ROUNDING:
        listed = _some([f"{shown(label)} {high:g}" for label, high in zip(labels, highs, strict=True)])
        raise InvalidInputError(f"--share: the highest shares sum to {sum(highs):.6g}, below 1 ({listed}).")


class _Names:
    """The contexts of some data by the names that people give them."""

    def __init__(self, labels: Sequence[Any], context: Sequence[str], pool: Pool | None) -> None:
        self.context = tuple(context)
        self.words = [shown(label) for label in labels]
        self._own = self._tiers({label: label for label in labels})
        self._pooled = self._tiers({} if pool is None else {plain(one): pool.label for one in pool.members})

    def _tiers(self, labels: Mapping[Any, Any]) -> list[tuple[Callable[[Any], str], dict[str, Any]]]:
        """Return labels by name, from exact names to lenient ones; a name that fits several fits none."""
        tiers: list[tuple[Callable[[Any], str], dict[str, Any]]] = []
        for spelt in (shown, self._bare, self._loose):
            found: dict[str, set[Any]] = {}
            for name, label in labels.items():
                found.setdefault(spelt(name), set()).add(label)
            tiers.append((spelt, {key: next(iter(own)) for key, own in found.items() if len(own) == 1}))
        return tiers

    def find(self, name: Any) -> Any:
        """Return the label of a context, or of the pool that it is in; None where there is none, or several."""
        for spelt, labels in (*self._own, *self._pooled):
            if spelt(name) in labels:
                return labels[spelt(name)]
        return None

    def label(self, name: str, role: str) -> Any:
        """Return the label of a context, or suggest the one that was meant."""
        for spelt, labels in self._own:
            if spelt(name) in labels:
                return labels[spelt(name)]
        pool = self.find(name)
        if pool is not None:
            raise InvalidInputError(
                f"{role}: {name!r:.60} was pooled into {shown(pool)!r:.100}. Bound that one, or lower --pool-below."
            )
        raise InvalidInputError(
            f"{role}: there is no context {name!r:.60} (there are {_some(self.words)}).{self.nearest(name)}"
        )

    def nearest(self, name: Any) -> str:
        """Ask for the nearest name, if any is near."""
        by_word = {self._loose(word): word for word in self.words}
        close = difflib.get_close_matches(self._loose(name), list(by_word), n=1)
        return f" Did you mean {by_word[close[0]]!r:.60}?" if close else ""

    def _bare(self, name: Any) -> str:
        """Return a name without those of columns before numbers: 4 for store 4."""
        parts = [str(part) for part in name] if isinstance(name, tuple) else str(name).split(" x ")
        if len(parts) != len(self.context):
            return shown(name)
        return " x ".join(part.removeprefix(f"{one} ") for part, one in zip(parts, self.context, strict=True))

    def _loose(self, name: Any) -> str:
        """Return a name in small letters, its blanks and numbers written alike, and without those of columns."""
        parts = [" ".join(part.lower().split()) for part in shown(name).split(" x ")]
        if len(parts) == len(self.context):
            parts = [part.removeprefix(f"{one.lower()} ") for part, one in zip(parts, self.context, strict=True)]
        return " x ".join(map(_number, parts))


def _number(text: str) -> str:
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text


def _bounds(given: str) -> tuple[str, float, float]:
    """Return the name of a context, and its lowest and highest share."""
    name, sign, limits = given.rpartition("=")
    found = re.fullmatch(r"\s*(?:(\S*?)\s*\.\.\s*(\S*)|(\S+))\s*", limits)
    if not (sign and name.strip() and found) or limits.strip() == "..":
        raise InvalidInputError(f"--share is {given!r:.80}; write a context and its share, such as {_EXAMPLES}.")
    low, high = (found[3], found[3]) if found[3] is not None else (found[1] or "0", found[2] or "1")
    ends = _end(low, given), _end(high, given)
    if ends[0] > ends[1]:
        raise InvalidInputError(f"--share {given!r:.80}: the low end is above the high end. Swap them.")
    return (name.strip(), *ends)


def _end(text: str, given: str) -> float:
    """Return one end of an interval of shares."""
    percent = text.endswith("%")
    try:
        value = float(text.removesuffix("%")) / (100.0 if percent else 1.0)
    except ValueError:
        raise InvalidInputError(
            f"--share {given!r:.80}: {text!r:.30} is no number. Write a share such as {_EXAMPLES}."
        ) from None
    if not 0.0 <= value <= 1.0:
        hint = f" Write {value:g}% as {value / 100.0:g}." if 1.0 < value <= 100.0 else ""
        raise InvalidInputError(
            f"--share {given!r:.80}: a share lies between 0 and 1, and {text!r:.30} does not.{hint}"
        )
    return value


def _span(low: float, high: float) -> str:
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def _some(words: Sequence[str]) -> str:
    listed = ", ".join(f"{word:.60}" for word in words[:_LISTED])
    return f"{listed} and {len(words) - _LISTED} more" if len(words) > _LISTED else listed
