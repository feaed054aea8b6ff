"""Context labels: encode them, count them, group rows by them."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from counterpoise.exceptions import EmptyContextError, InvalidInputError
from counterpoise.memberships import Memberships


@dataclass(frozen=True, eq=False)
class Contexts:
    """The contexts of some rows.

    Attributes
    ----------
    labels : ndarray of shape (n_contexts,)
        Sorted where they can be compared, else by first appearance.
    codes : ndarray of shape (n_samples,)
        The index in ``labels`` of each row's context.
    rows : ndarray of shape (n_memberships,), optional
        Where contexts overlap, ``codes`` has an entry for each membership, and this is the row that it is of: whatever
        there is one of per row has to be repeated by it.
    """

    labels: NDArray[Any]
    codes: NDArray[np.intp]
    rows: NDArray[np.intp] | None = None

    @classmethod
    def counted(cls, labels: NDArray[Any], counts: NDArray[np.intp]) -> Contexts:
        """Return contexts of rows that are elsewhere: how many of each there are is known, but not which."""
        contexts = cls(labels, np.empty(0, dtype=np.intp))
        vars(contexts)["counts"] = counts
        return contexts

    @cached_property
    def counts(self) -> NDArray[np.intp]:
        """Rows per context."""
        return np.bincount(self.codes, minlength=len(self.labels))

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """Where each context begins once rows are grouped, and where the last one ends."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @property
    def overlap(self) -> bool:
        """Whether a row may be in several contexts."""
        return self.rows is not None

    @property
    def n_rows(self) -> int:
        """Rows, each counted once however many contexts it is in."""
        return len(self.codes) if self.rows is None else int(self.rows.max(initial=-1)) + 1

    def where(self, chosen: NDArray[Any]) -> Contexts:
        """Return the contexts of some rows, or of some memberships where contexts overlap."""
        return Contexts(self.labels, self.codes[chosen], None if self.rows is None else self.rows[chosen])

    def of_rows(self, kept: NDArray[np.bool_]) -> Contexts:
        """Return the contexts of some rows, which are numbered anew."""
        if self.rows is None:
            return self.where(kept)
        left = self.where(kept[self.rows])
        return replace(left, rows=(np.cumsum(kept) - 1)[left.rows])

    def repeated(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of rows once for each of their contexts."""
        return values if self.rows is None else values[self.rows]

    def units(self, groups: NDArray[np.intp] | None) -> NDArray[np.intp] | None:
        """Return which entries belong together: those of a group; where contexts overlap, those of a row at least.

        Parameters
        ----------
        groups : ndarray of shape (n_samples,), optional
            The group of each row.
        """
        return groups if self.rows is None else self.rows if groups is None else groups[self.rows]

    def summed(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the sum over the contexts of each row, of values that have an entry for each of these."""
        return values if self.rows is None else np.bincount(self.rows, values)

    @property
    def firsts(self) -> NDArray[np.intp]:
        """One entry of ``codes`` for each row, in the order of rows: that of its smallest context."""
        return np.arange(len(self.codes)) if self.rows is None else one_each(self.rows, self.counts[self.codes])[0]

    def given(self, chosen: NDArray[np.intp]) -> tuple[NDArray[np.intp], Any]:
        """Return one of the chosen entries for each row, and the contexts of these rows in the form of a user."""
        if self.rows is None:
            return chosen, self.labels[self.codes[chosen]]
        entries, row = one_each(self.rows[chosen], self.codes[chosen])
        present, codes = np.unique(self.codes[chosen], return_inverse=True)
        matrix = sparse.csc_array((np.ones(len(row), dtype=bool), (row, codes)), shape=(len(entries), len(present)))
        return chosen[entries], Memberships(matrix, self.labels[present].tolist())

    def grouping_order(self) -> NDArray[np.intp] | None:
        """Return the stable order that groups rows by context; None where they are grouped already."""
        if np.all(self.codes[1:] >= self.codes[:-1]):
            return None
        # Short integers are sorted by counting.
        short = self.codes.astype(np.uint16) if len(self.labels) <= 1 << 16 else self.codes
        return np.argsort(short, kind="stable")

    def balanced(self, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return row weights of the same sum under which every context counts alike."""
        totals = np.bincount(self.codes, weight, len(self.labels))
        # Contexts without rows have no part in it.
        each = weight.sum() / np.count_nonzero(totals)
        return np.asarray(weight * (each / totals[self.codes]))

    def describe(self, c: int) -> str:
        """Return a context's label for a message."""
        return f"context {shown(self.labels[c]):.60}"


def one_each(units: NDArray[np.intp], size: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the entry of least size of each unit, in the order of units, and for each entry which of these it is of.

    Parameters
    ----------
    units : ndarray of shape (n_entries,)
        Numbers that are the same for entries which belong together.
    size : ndarray of shape (n_entries,)
    """
    order = np.lexsort((size, units))
    _, first, unit = np.unique(units[order], return_index=True, return_inverse=True)
    of_entry = np.empty(len(units), dtype=np.intp)
    of_entry[order] = unit
    return order[first], of_entry


def shown(label: Any) -> str:
    """Return a label in words; the parts of a crossed one side by side."""
    return " x ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def nearest(label: Any, labels: Iterable[Any]) -> str:
    """Ask whether the label with the nearest name was meant, if any is near."""
    by_words = {shown(one).lower(): one for one in labels}
    close = difflib.get_close_matches(shown(label).lower(), list(by_words), n=1)
    return f" Did you mean {by_words[close[0]]!r:.60}?" if close else ""


def encode(
    labels: Any,
    n_rows: int | None = None,
    declared: Iterable[Hashable] | None = None,
    role: str = "context",
    *,
    may_overlap: bool = False,
) -> Contexts:
    """Turn labels into codes.

    Parameters
    ----------
    labels : array-like, Series or list of shape (n_samples,), a table of several columns, or Memberships
        Any hashable labels; None and NaN are refused. Columns are crossed: every combination that occurs is a context,
        labelled by the tuple of its parts.
    n_rows : int, optional
        How many there should be.
    declared : iterable of labels, optional
        The contexts that exist. One without rows is refused: nothing is known about its risk.
    role : str
        What the labels are of, for messages.
    may_overlap : bool
        Whether the caller repeats rows that are in several contexts; see ``Contexts.rows``.
    """
    if isinstance(labels, Memberships):
        contexts = _of_memberships(labels, n_rows, role, may_overlap)
        return contexts if declared is None else _align(contexts, list(declared))
    columns = _columns(labels, role)
    for values in columns:
        if values.ndim != 1:
            raise InvalidInputError(f"{role}s must be one label per row, got shape {values.shape}.")
        if n_rows is not None and len(values) != n_rows:
            raise InvalidInputError(f"got {len(values)} {role} labels for {n_rows} rows. Pass one label per row.")
        if len(values) == 0:
            raise InvalidInputError(f"there are no rows: {role}s are empty.")
        missing = _missing(values)
        if missing.any():
            row = int(np.flatnonzero(missing)[0])
            raise InvalidInputError(
                f"the {role} of row {row} is {plain(values[row])!r} ({int(missing.sum())} of {len(values)} are "
                "missing). Drop those rows, or give them a label of their own such as 'unknown'."
            )
    parts = [Contexts(*_unique(values, role)) for values in columns]
    contexts = parts[0] if len(parts) == 1 else _crossed(parts)
    return contexts if declared is None else _align(contexts, list(declared))


def _of_memberships(memberships: Memberships, n_rows: int | None, role: str, may_overlap: bool) -> Contexts:
    """Return the contexts of memberships, those of one context after the other."""
    if n_rows is not None and len(memberships) != n_rows:
        raise InvalidInputError(
            f"got memberships of {len(memberships)} rows for {n_rows} rows. Pass the memberships of each row."
        )
    labels, matrix = tidy([plain(label) for label in memberships.labels]), memberships.matrix
    codes = np.repeat(np.arange(len(labels)), np.diff(matrix.indptr))
    rows = matrix.indices.astype(np.intp)
    if memberships.overlap and may_overlap:
        return Contexts(labels, codes, rows)
    if memberships.overlap:
        raise InvalidInputError(
            f"{role}s overlap (they are Memberships), and here every row needs one label. Overlapping contexts are for "
            "rows in memory: the estimators, compare, Report, confidence_path and counterpoise.metrics."
        )
    # One context for each row: labels in another form.
    return Contexts(labels, codes[np.argsort(rows)])


def _crossed(parts: list[Contexts]) -> Contexts:
    """Return the combinations of several columns that occur."""
    labels: list[tuple[Any, ...]] = [(plain(label),) for label in parts[0].labels]
    codes = parts[0].codes
    for part in parts[1:]:
        # Renumbered at every column, so that the product of two sizes is all that has to fit an integer.
        pairs, codes = np.unique(codes * len(part.labels) + part.codes, return_inverse=True)
        first, second = np.divmod(pairs, len(part.labels))
        labels = [(*labels[a], plain(part.labels[b])) for a, b in zip(first, second, strict=True)]
    return Contexts(objects(labels), codes.astype(np.intp, copy=False))


class Agreement:
    """Labels that are met in pieces (partitions, chunks), each with a code that it keeps, and in the end an order.

    Parameters
    ----------
    n_columns : int
        Columns of a table that labels are crossed from; those of several are tuples.
    """

    def __init__(self, n_columns: int = 1) -> None:
        self._n_columns = n_columns
        self._codes: dict[Any, int] = {}
        self._new: list[NDArray[Any]] = []

    def codes(self, labels: NDArray[Any]) -> NDArray[np.intp]:
        """Return the codes of the labels of a piece, in the order of their first appearance in any."""
        n_known = len(self._codes)
        found = (self._codes.setdefault(plain(label), len(self._codes)) for label in labels)
        codes = np.fromiter(found, dtype=np.intp, count=len(labels))
        self._new.append(labels[codes >= n_known])
        return codes

    @property
    def labels(self) -> NDArray[Any]:
        """The label of every code, all of one type where those of all pieces are of one kind, else as they are."""
        kinds = {labels.dtype.kind for labels in self._new}
        # A column of whole numbers becomes one of floats where a piece of it has gaps.
        if kinds in ({"i", "f"}, {"u", "f"}) or (len(kinds) == 1 and kinds != {"O"}):
            return np.concatenate(self._new)
        return objects([plain(label) for labels in self._new for label in labels])

    def contexts(self) -> Contexts:
        """Return the contexts that these labels are, in order; the row of a code is its label."""
        labels = self.labels
        if self._n_columns == 1:
            return encode(labels)
        # As the table they come from, whose columns are put in order one by one.
        table = np.empty((len(labels), self._n_columns), dtype=object)
        for k, label in enumerate(labels):
            table[k, :] = label
        return encode(table)


def _align(contexts: Contexts, declared: Sequence[Hashable]) -> Contexts:
    """Reorder contexts as they were declared."""
    position: dict[Any, int] = {}
    for k, label in enumerate(declared):
        try:
            if position.setdefault(plain(label), k) != k:
                raise InvalidInputError(f"context {label!s:.60} is declared twice.")
        except TypeError as error:
            raise InvalidInputError(
                f"a declared context cannot be hashed ({error}). Use strings or numbers."
            ) from error
    for label in contexts.labels:
        if plain(label) not in position:
            raise InvalidInputError(f"context {label!s:.60} is in the data but was not declared. Declare it as well.")
    order = np.array([position[plain(label)] for label in contexts.labels], dtype=np.intp)
    labels = tidy([plain(label) for label in declared])
    aligned = replace(contexts, labels=labels, codes=order[contexts.codes])
    if (aligned.counts == 0).any():
        empty = int(np.flatnonzero(aligned.counts == 0)[0])
        listed = ", ".join(f"{shown(label):.30} {n}" for label, n in zip(labels[:8], aligned.counts[:8], strict=True))
        raise EmptyContextError(
            f"context {labels[empty]!s:.60} has no training samples (counts: {listed}). Drop it, or pass its risk: "
            "counterpoise.minimize takes a count of 0 with a risk of your own."
        )
    return aligned


def _columns(labels: Any, role: str) -> list[NDArray[Any]]:
    """Return the columns of a table, or the only one."""
    if hasattr(labels, "detach") and hasattr(labels, "cpu"):
        # The elements of a tensor are tensors, each equal to none but itself.
        labels = labels.detach().cpu().numpy()
    native = nw.from_native(labels, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(native, nw.DataFrame):
        if not native.columns:
            raise InvalidInputError(f"{role}s are a table without columns. Pass at least one column.")
        return [_to_array(column.to_native(), role) for column in native.iter_columns()]
    if isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.shape[1] > 0:
        return [_to_array(column, role) for column in labels.T]
    return [_to_array(labels, role)]


def _to_array(labels: Any, role: str) -> NDArray[Any]:
    native = nw.from_native(labels, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(native, nw.Series):
        return np.asarray(native.to_numpy())
    if isinstance(labels, np.ndarray):
        if isinstance(labels, np.ma.MaskedArray):
            return objects([None if hidden else label for label, hidden in zip(*_flat_mask(labels), strict=True)])
        return labels if labels.dtype.kind != "T" else objects(list(labels))
    sparse = hasattr(labels, "tocsr")
    if sparse or isinstance(labels, (str, bytes, Set, Mapping)) or not isinstance(labels, Iterable):
        raise InvalidInputError(f"{role}s must be one label per row, got {labels!r:.60}.")
    # Not through numpy, which would turn [1, "a", None] into text and merge large integers beside a float.
    return objects(list(labels))


def _flat_mask(labels: np.ma.MaskedArray[Any, Any]) -> tuple[list[Any], list[bool]]:
    return list(labels.data), list(np.ma.getmaskarray(labels))


def objects(values: Sequence[Any]) -> NDArray[Any]:
    """Return a one-dimensional array that holds the values as they are."""
    array = np.empty(len(values), dtype=object)
    for k, value in enumerate(values):
        array[k] = value
    return array


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype.kind in "fc":
        return np.isnan(values)
    if values.dtype.kind in "mM":
        return np.isnat(values)
    if values.dtype.kind == "O":
        # NaN, NaT and pandas' NA are all unequal to themselves or refuse a truth value.
        return np.fromiter((_is_missing(v) for v in values), dtype=bool, count=len(values))
    return np.zeros(len(values), dtype=bool)


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return True


def sorted_codes(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the distinct values in order, and where among them each value is."""
    if values.dtype.kind in "iu" and values.size:
        low, high = int(values.min()), int(values.max())
        if high - low < 4 * values.size and high < 1 << 63:
            # Close together, as most whole numbers that name something: counted, not sorted.
            above = values.astype(np.intp) - low
            present = np.flatnonzero(np.bincount(above))
            place = np.empty(high - low + 1, dtype=np.intp)
            place[present] = np.arange(len(present))
            return (present + low).astype(values.dtype), place[above]
    unique, codes = np.unique(values, return_inverse=True)
    return unique, codes.astype(np.intp, copy=False)


def places_among(labels: NDArray[Any], values: NDArray[Any]) -> NDArray[np.intp]:
    """Return where each value is among different labels; -1 where it is not."""
    if labels.dtype.kind in "biuf" and values.dtype.kind in "biuf" and labels.size:
        order = np.argsort(labels)
        found = order[np.minimum(np.searchsorted(labels, values, sorter=order), len(labels) - 1)]
        return np.where(labels[found] == values, found, -1)
    place = {label: k for k, label in enumerate(labels.tolist())}
    return np.fromiter(map(place.get, values.tolist(), repeat(-1)), dtype=np.intp, count=len(values))


def _unique(values: NDArray[Any], role: str = "context") -> tuple[NDArray[Any], NDArray[np.intp]]:
    if values.dtype.kind != "O":
        return sorted_codes(values)
    seen: dict[Any, int] = {}
    try:
        codes = np.fromiter((seen.setdefault(plain(v), len(seen)) for v in values), dtype=np.intp, count=len(values))
    except TypeError as error:
        raise InvalidInputError(f"a {role} label cannot be hashed ({error}). Use strings or numbers.") from error
    labels = list(seen)
    try:
        order = sorted(range(len(labels)), key=labels.__getitem__)
    except TypeError:
        order = list(range(len(labels)))
    rank = np.empty(len(labels), dtype=np.intp)
    rank[order] = np.arange(len(labels))
    return tidy([labels[k] for k in order]), rank[codes]


def tidy(labels: list[Any]) -> NDArray[Any]:
    """Return labels of one plain type as an array of that type, others as objects."""
    if all(type(label) is str for label in labels):
        return np.array(labels)
    if all(type(label) is int and abs(label) < 2**63 for label in labels):
        return np.array(labels, dtype=np.int64)
    return objects(labels)


def plain(value: Any) -> Any:
    """Return a label as a plain Python value, equal for all spellings of it: what mappings are looked up by."""
    if isinstance(value, np.datetime64):
        # A nanosecond's item() would be a bare integer; microseconds give a datetime, which other date types equal.
        plain = value.item()
        return value.astype("M8[us]").item() if isinstance(plain, int) else plain
    return value.item() if isinstance(value, np.generic) else value
