"""Contexts that need not be guessed: calendars, columns known in advance, and mixes that somebody chose."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc

# Written out: those of the calendar module follow the locale.
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)


def _short(names: Sequence[str]) -> frozenset[str]:
    return frozenset(name[:3] for name in names)


_SEASONS = ("spring", "summer", "autumn", "fall", "winter")
_NAMES = (
    frozenset(_WEEKDAYS) | _short(_WEEKDAYS) | {"tues", "thur", "thurs"},
    frozenset(_MONTHS) | _short(_MONTHS) | {"sept"},
    frozenset({"q1", "q2", "q3", "q4"}),
    frozenset(_SEASONS),
    frozenset({"weekday", "weekend"}),
)
"""The vocabularies of calendars, in lower case."""

_NUMBERED = (
    ({"weekday", "dayofweek", "dow", "wday"}, ((0, 6), (1, 7))),
    ({"month", "mnth"}, ((1, 12),)),
    ({"quarter", "qtr"}, ((1, 4),)),
    ({"season"}, ((1, 4), (0, 3))),
    ({"hour", "hr", "hourofday"}, ((0, 23),)),
)
"""What a column's name says, and the whole numbers that are then a calendar."""

_BALANCED_P = 0.001
_BALANCED_CONTEXTS = 3
_BALANCED_ROWS = 20


def why_known(
    labels: ArrayLike | Sequence[Any],
    counts: ArrayLike,
    name: str = "",
    columns: Collection[str] = (),
    *,
    when: str = "predicting",
) -> str | None:
    """Say why the context is probably known in advance, or its mix chosen; None where nothing speaks for that.

    Parameters
    ----------
    labels : sequence of labels
        The different contexts; tuples where several columns are crossed.
    counts : array of shape (n_contexts,)
        Their rows.
    name : str
        Of the column of contexts; ``"a x b"`` where columns are crossed.
    columns : collection of str
        Columns that are known when predicting.
    when : str
        What the context is known in time for: predicting, ordering.

    Returns
    -------
    str or None
        A clause, without a full stop. Calendars are recognised by their names (weekdays, months, quarters, seasons),
        and by whole numbers where the column's name says what these are. A mix looks chosen where the counts of at
        least 3 contexts, of 20 rows or more each, are closer to equal than all but 1 in 1000 random draws would be.
    """
    parts = _parts(labels)
    names = name.split(" x ") if len(parts) > 1 else [name]
    names = names if len(names) == len(parts) else [""] * len(parts)
    subject = name or "the context"
    if all(_calendar(part, of) for part, of in zip(parts, names, strict=True)):
        return f"{subject} is a calendar: it is known when {when}"
    if all(of in columns for of in names):
        verb = "is" if len(names) == 1 else "are"
        return f"{subject} {verb} among the columns that are known when {when}"
    if _balanced(np.asarray(counts, dtype=np.float64)):
        return "every context has nearly the same number of rows: the mix looks chosen, not drawn"
    return None


def in_calendar_order(labels: Iterable[Any]) -> list[Any]:
    """Return labels in the order of the week, the year or the seasons where they are such names, else as they are."""
    given = list(labels)
    words = [_word(label) for label in given]
    for names, vocabulary in ((_WEEKDAYS, _NAMES[0]), (_MONTHS, _NAMES[1]), (_SEASONS, _NAMES[3])):
        if vocabulary.issuperset(words):
            place = {name[:3]: k for k, name in enumerate(names)}
            order = sorted(range(len(given)), key=lambda k: place[words[k][:3]])
            return [given[k] for k in order]
    return given


def _word(label: Any) -> str:
    return str(label).strip().lower().rstrip(".")


def _parts(labels: Any) -> list[list[Any]]:
    """Return the labels of each column that was crossed."""
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if values and all(isinstance(label, tuple) and len(label) == len(values[0]) for label in values):
        return [list(dict.fromkeys(part)) for part in zip(*values, strict=True)]
    return [values]


def _calendar(labels: list[Any], name: str) -> bool:
    """Whether labels are weekdays, months, quarters, seasons or hours."""
    words = {_word(label) for label in labels}
    if len(words) < 2:
        return False
    if any(words <= vocabulary for vocabulary in _NAMES):
        return True
    if not all(re.fullmatch(r"\d{1,2}(\.0)?", word) for word in words):
        return False
    numbers = [int(float(word)) for word in words]
    said = _tokens(name)
    return any(
        said & names and any(low <= min(numbers) and max(numbers) <= high for low, high in ranges)
        for names, ranges in _NUMBERED
    )


def _tokens(name: str) -> set[str]:
    """Return the words of a column's name, and all of them as one."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    words = re.findall(r"[a-z]+", apart.lower())
    return {*words, "".join(words)}


def _balanced(counts: Any) -> bool:
    """Whether counts are closer to equal than draws would be."""
    if len(counts) < _BALANCED_CONTEXTS or counts.min() < _BALANCED_ROWS:
        return False
    expected = counts.mean()
    statistic = np.square(counts - expected).sum() / expected
    # The chi-square distribution, whose own function takes a second to import.
    return bool(gammainc(0.5 * (len(counts) - 1), 0.5 * statistic) < _BALANCED_P)
