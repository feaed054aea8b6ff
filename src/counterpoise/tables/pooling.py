"""Pool rare contexts: a handful of rows says next to nothing about the risk of a context."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts, encode, plain, shown, tidy
from counterpoise.exceptions import InvalidInputError

_JOINED = 3
"""Names that are joined into a label; of more contexts than these, only the number is told."""
_LISTED = 12
"""Contexts that a note or an error names."""


@dataclass(frozen=True)
class Pool:
    """Which contexts are pooled.

    Attributes
    ----------
    label : str, or tuple of one str where contexts are crossed; None where nothing is pooled
        Of the pooled context.
    members : mapping from label to int
        The contexts that are pooled, as they were labelled, with the rows (groups) of each, largest first. Empty where
        nothing is pooled.
    size : int
        Rows (groups) of the pooled context. A group with rows in several members counts once.
    unit : {"rows", "groups"}
        What is counted.
    note : str
        What was pooled or why nothing was, in one line.
    """

    label: Any
    members: Mapping[Any, int]
    size: int
    unit: str
    note: str

    @property
    def described(self) -> dict[str, Any]:
        """The pool as what JSON can hold."""
        return {
            "label": None if self.label is None else shown(self.label),
            self.unit: self.size,
            "members": [{"context": shown(label), self.unit: n} for label, n in self.members.items()],
        }

    def relabel(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Return labels, of contexts or of rows, with those of the members replaced.

        If anything is pooled, all labels become text, which can be sorted.
        """
        if not self.members:
            return labels
        return tidy([self.label if plain(one) in self.members else _as_text(one) for one in labels])


def pool_rare(contexts: Any, below: int = 30, *, name: str | None = None, groups: Any = None) -> NDArray[Any]:
    """Return labels among which all rare contexts are one.

    Contexts with fewer than ``below`` rows are pooled. If the pool is itself too small, the smallest other one joins
    it, unless no other would remain. Pooling twice changes nothing. :func:`find_pool` takes the same
    arguments and tells which contexts are pooled.

    Parameters
    ----------
    contexts : labels of shape (n_samples,), or a table of several columns, which are crossed
        Whatever ``fit`` takes for contexts.
    below : int
        The least rows, or groups, of a context that is not rare.
    name : str, optional
        The label of the pooled context. By default up to three names joined, as in ``"hail + storm"``, else the number
        of contexts, as in ``"other (17 contexts)"``.
    groups : labels of shape (n_samples,), optional
        Rows that belong together, such as the hours of a day. Groups are then counted, not rows.

    Returns
    -------
    labels : ndarray of shape (n_samples,)
        The given labels where nothing is rare. Otherwise text for all contexts; where contexts are crossed, tuples of
        text, that of the pooled context with one part.

    Examples
    --------
    >>> import counterpoise as cpo
    >>> weather = ["clear"] * 90 + ["mist"] * 40 + ["storm"] * 3 + ["hail"] * 35
    >>> sorted(set(cpo.pool_rare(weather).tolist()))
    ['clear', 'hail + storm', 'mist']
    """
    found, pool = _found(contexts, below, name, groups)
    return np.asarray(pool.relabel(found.labels)[found.codes])


def find_pool(contexts: Any, below: int = 30, *, name: str | None = None, groups: Any = None) -> Pool:
    """Return which contexts :func:`counterpoise.pool_rare` pools, with their counts; it takes the same arguments.

    Examples
    --------
    >>> from counterpoise.tables.pooling import find_pool
    >>> find_pool(["clear"] * 90 + ["mist"] * 40 + ["storm"] * 3 + ["hail"] * 35).members
    {'hail': 35, 'storm': 3}
    """
    return _found(contexts, below, name, groups)[1]


def _found(contexts: Any, below: int, name: str | None, groups: Any) -> tuple[Contexts, Pool]:
    found = encode(contexts)
    if groups is None:
        return found, choose_pool(found.labels, found.counts, below, name=name)
    own = encode(groups, len(found.codes), role="group").codes
    # One pair for every context and group that meet.
    codes, own = np.divmod(np.unique(found.codes * (own.max() + 1) + own), own.max() + 1)
    counts = np.bincount(codes, minlength=len(found.labels))

    def together(pooled: NDArray[np.bool_]) -> int:
        return len(np.unique(own[pooled[codes]]))

    return found, choose_pool(found.labels, counts, below, name=name, groups_together=together)


def choose_pool(
    labels: NDArray[Any],
    counts: NDArray[np.integer[Any]],
    below: int,
    *,
    name: str | None = None,
    groups_together: Callable[[NDArray[np.bool_]], int] | None = None,
) -> Pool:
    """Choose the contexts to pool from their counts alone; see :func:`counterpoise.pool_rare`.

    Parameters
    ----------
    labels, counts : ndarray of shape (n_contexts,)
    below : int
    name : str, optional
    groups_together : callable, optional
        Where groups are counted, not rows: takes a mask of contexts and returns how many groups they have together,
        fewer than the sum where they share some.
    """
    below, unit = _checked_limit(below), "rows" if groups_together is None else "groups"

    def together(pooled: NDArray[np.bool_]) -> int:
        return int(counts[pooled].sum()) if groups_together is None else groups_together(pooled)

    pooled = counts < below
    if pooled.all():
        raise InvalidInputError(
            f"pooling contexts with fewer than {_counted(below, unit)} would leave a single context (counts: "
            f"{_listed(labels, counts)}). Choose a limit of at most {int(counts.max()):,}."
        )
    size, joins = together(pooled), False
    # Of the others each is large enough by itself, so that one is all that can be missing.
    if pooled.any() and size < below and np.count_nonzero(~pooled) > 1:
        others = np.flatnonzero(~pooled)
        pooled[others[np.argmin(counts[others])]] = True
        size, joins = together(pooled), True
    if np.count_nonzero(pooled) < 2:
        return Pool(None, {}, 0, unit, _left_alone(labels, counts, pooled, below, unit))
    members = np.flatnonzero(pooled)
    members = members[np.argsort(-counts[members], kind="stable")]
    label = _checked_label(labels, members, labels[~pooled], name)
    n_rare = len(members) - joins
    note = (
        f"{n_rare:,} context{' has' if n_rare == 1 else 's have'} fewer than {_counted(below, unit)} and "
        f"{'is' if n_rare == 1 else 'are'} pooled{' with the smallest other one' if joins else ''} as "
        f"{shown(label):.200} ({_counted(size, unit)}): {_listed(labels[members], counts[members])}"
    )
    if size < below:
        note += ". That is still few, but only one other context remains"
    counted = {plain(labels[c]): int(counts[c]) for c in members}
    return Pool(label, counted, size, unit, note)


def choose_small(
    labels: NDArray[Any], counts: NDArray[np.integer[Any]], least: int, rows: NDArray[np.integer[Any]], unit: str
) -> tuple[NDArray[np.bool_], str]:
    """Choose the contexts that have too few rows, or groups, to be used at all, and say which they are.

    Parameters
    ----------
    labels, counts : ndarray of shape (n_contexts,)
        Rows or groups of each.
    least : int
    rows : ndarray of shape (n_contexts,)
        Rows of each.
    unit : {"rows", "groups"}
        What is counted.
    """
    small = counts < least
    if np.count_nonzero(~small) < 2:
        order = np.argsort(-counts, kind="stable")
        most = f" Choose a limit of at most {int(counts[order[1]]):,}." if len(order) > 1 else ""
        raise InvalidInputError(
            f"--min-rows {least} leaves {'a single context' if (~small).any() else 'no context'} (counts: "
            f"{_listed(labels[order], counts[order])}).{most}"
        )
    n = int(np.count_nonzero(small))
    if n == 0:
        return small, f"no context has fewer than {_counted(least, unit)}, so none is left out"
    order = np.flatnonzero(small)
    order = order[np.argsort(-counts[order], kind="stable")]
    lost = int(rows[small].sum())
    return small, (
        f"{n:,} context{' has' if n == 1 else 's have'} fewer than {_counted(least, unit)} and "
        f"{'is' if n == 1 else 'are'} left out with {'its' if n == 1 else 'their'} {_counted(lost, 'rows')}: "
        f"{_listed(labels[order], counts[order])}"
    )


def _left_alone(
    labels: NDArray[Any], counts: NDArray[np.integer[Any]], rare: NDArray[np.bool_], below: int, unit: str
) -> str:
    """Say why nothing is pooled."""
    if not rare.any():
        return f"no context has fewer than {_counted(below, unit)}, so none is pooled"
    c = int(np.flatnonzero(rare)[0])
    return (
        f"{shown(labels[c]):.60} has {_counted(int(counts[c]), unit)}, fewer than {below:,}, but is not pooled: that "
        "would leave a single context"
    )


def _checked_limit(below: Any) -> int:
    try:
        limit = operator.index(below)
    except TypeError:
        limit = 0
    if limit < 1 or isinstance(below, bool):
        raise InvalidInputError(f"below is {below!r:.60}; pass a whole number, 1 or more.")
    return limit


def _checked_label(labels: NDArray[Any], members: NDArray[np.intp], others: NDArray[Any], name: str | None) -> Any:
    """Return the label of the pooled context, which no other context may have."""
    if name is not None and not (isinstance(name, str) and name):
        raise InvalidInputError(f"name is {name!r:.60}; pass the label of the pooled context as text.")
    crossed = all(isinstance(label, tuple) for label in labels)
    taken = [_as_text(label) for label in others]
    if len(set(taken)) < len(taken):
        twice = next(label for label, n in Counter(taken).items() if n > 1)
        raise InvalidInputError(
            f"beside a pooled context labels are text, and two contexts would be called {shown(twice):.60}. Rename one."
        )
    words = name
    if words is None:
        words = f"other ({len(members)} contexts)"
        if len(members) <= _JOINED:
            words = " + ".join(shown(labels[c]) for c in members)
    label = (words,) if crossed else words
    while label in taken:
        if name is not None:
            raise InvalidInputError(
                f"name is {name!r:.60}, but a context that is not pooled is called that. Pass another."
            )
        words += " (pooled)"
        label = (words,) if crossed else words
    return label


def _as_text(label: Any) -> Any:
    """Return a label as text, part by part where it is a tuple."""
    return tuple(str(plain(part)) for part in label) if isinstance(label, tuple) else str(plain(label))


def _counted(n: int, unit: str) -> str:
    return f"{n:,} {unit[:-1] if n == 1 else unit}"


def _listed(labels: Sequence[Any] | NDArray[Any], counts: NDArray[np.integer[Any]]) -> str:
    listed = ", ".join(
        f"{shown(label):.60} {n:,}" for label, n in zip(labels[:_LISTED], counts[:_LISTED].tolist(), strict=True)
    )
    return listed + (f" and {len(labels) - _LISTED:,} more" if len(labels) > _LISTED else "")
