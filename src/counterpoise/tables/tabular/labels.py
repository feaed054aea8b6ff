"""Labels of rows from one or several columns of a table."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Agreement, objects, plain

if TYPE_CHECKING:
    from counterpoise.tables.reading import DataFile

Codes = NDArray[np.intp]

_TWINS, _SPELLINGS = 3, 5
"""Labels that are named with how they are written, and ways to write one."""


def read_labels(data: DataFile, names: Sequence[str], role: str) -> NDArray[Any]:
    """Return the label of every row; those of several columns are crossed into tuples."""
    seen = SeenLabels(names, role)
    codes = seen.look(data)[0]
    return seen.labels[codes]


class SeenLabels:
    """The labels so far, each with the code that it got when it appeared.

    Parameters
    ----------
    names : sequence of str
        The columns that are crossed.
    role : str
        The option that names them, for messages.
    called : sequence of str, optional
        By what their numbers are called, where that is not their names.
    """

    def __init__(self, names: Sequence[str], role: str, called: Sequence[str] | None = None) -> None:
        self.names, self._role = tuple(names), role
        self._called = self.names if called is None else tuple(called)
        self._parts = [Agreement() for _ in names]
        self._crossed = Agreement()
        self._counts = np.zeros(0, dtype=np.int64)

    def look(self, data: DataFile) -> list[Codes]:
        """Return the codes of the labels of some rows, and those of their parts where there are several."""
        parts = []
        for name, part in zip(self.names, self._parts, strict=True):
            values, codes = data.coded_labels(name, self._role)
            parts.append(part.codes(objects(values[:-1]))[codes])
        if len(parts) == 1:
            return parts
        keys, codes = np.unique(np.column_stack(parts), axis=0, return_inverse=True)
        return [self._crossed.codes(objects([tuple(key) for key in keys.tolist()]))[codes.reshape(-1)], *parts]

    def count(self, codes: Codes) -> None:
        """Count rows that have a target."""
        n = max(len(self._counts), int(codes.max(initial=-1)) + 1)
        self._counts = np.bincount(codes, minlength=n) + np.pad(self._counts, (0, n - len(self._counts)))

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows that were counted, of every code."""
        return np.pad(self._counts, (0, len(self.labels) - len(self._counts)))

    @property
    def labels(self) -> NDArray[Any]:
        """The label of every code.

        A number says little by itself in a report, so it is written with the name of its column: store 4.
        """
        words = []
        for name, part in zip(self._called, self._parts, strict=True):
            values = part.labels.tolist()
            words.append([f"{name} {value}" for value in values] if all(map(_is_number, values)) else values)
        if len(words) == 1:
            return objects(words[0])
        return objects([tuple(word[k] for word, k in zip(words, key, strict=True)) for key in self._crossed.labels])


def alike(labels: NDArray[Any], counts: NDArray[Any]) -> list[str]:
    """Say which labels differ only in blanks or in small and capital letters, if any do.

    Parameters
    ----------
    labels, counts : ndarray of shape (n_labels,)
        And the rows of each.
    """
    spelt: dict[Any, list[int]] = {}
    for k, label in enumerate(labels.tolist()):
        spelt.setdefault(_bare(label), []).append(k)
    twins = [sorted(own, key=lambda k: -counts[k]) for own in spelt.values() if len(own) > 1]
    if not twins:
        return []
    said = [", ".join(f"{_quoted(labels[k])} {int(counts[k]):,}" for k in own[:_SPELLINGS]) for own in twins[:_TWINS]]
    more = f"; and {len(twins) - _TWINS:,} more" if len(twins) > _TWINS else ""
    return [
        "contexts that differ only in blanks or capitals are kept apart (with their rows: "
        f"{'; '.join(said)}{more}); where they are the same, write them alike"
    ]


def _bare(label: Any) -> Any:
    if isinstance(label, tuple):
        return tuple(map(_bare, label))
    return " ".join(unicodedata.normalize("NFKC", label).casefold().split()) if isinstance(label, str) else label


def _quoted(label: Any) -> str:
    # With quotes, between which blanks can be seen.
    return " x ".join(map(_quoted, label)) if isinstance(label, tuple) else f"{plain(label)!r:.60}"


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)
