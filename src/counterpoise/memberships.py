"""Contexts that overlap: which rows count in which, as a matrix."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse

from counterpoise.exceptions import EmptyContextError, InvalidInputError


@dataclass(frozen=True, eq=False, repr=False)
class Memberships:
    r"""Contexts that overlap: a row may count in several, as a patient does in "diabetic" and in "over 80".

    Given as ``contexts=`` in place of labels. The risk of a context is the mean over its members, so a row counts in
    full in each of its contexts: the problem is that of rows repeated once for each. A row is still one row where rows
    are held out, and one unit in intervals.

    The mix is one of contexts, not of rows, and its centre is the shares of memberships :math:`n_c / \sum_k n_k`. At
    radius 0 a row therefore counts as often as it has contexts. How far the mix may move does not follow from counts,
    since rows do not draw one context each: state a ``radius`` in bits or a ``mix``, or take every mix with
    ``confidence=1``.

    Parameters
    ----------
    matrix : array, sparse matrix or data frame of shape (n_samples, n_contexts)
        0 or 1, or False or True. Every row needs a context, and every context a row.
    labels : sequence of shape (n_contexts,), optional
        By default the column names of a data frame, else 0, 1, ... Contexts keep the order of the columns.

    Attributes
    ----------
    matrix : csc_array of bool of shape (n_samples, n_contexts)
    labels : tuple

    Examples
    --------
    >>> import numpy as np
    >>> import counterpoise as cpo
    >>> rng = np.random.default_rng(0)
    >>> X, old, diabetic = rng.standard_normal((300, 2)), rng.random(300) < 0.3, rng.random(300) < 0.2
    >>> y = (X[:, 0] * np.where(old, -1, 1) + X[:, 1] * (1 + diabetic) + rng.logistic(size=300) > 0).astype(int)
    >>> groups = {"everyone": np.ones(300, dtype=bool), "over 80": old, "diabetic": diabetic}
    >>> contexts = cpo.Memberships(np.column_stack(list(groups.values())), list(groups))
    >>> model = cpo.RobustLogisticRegression(confidence=1, reference="in-sample").fit(X, y, contexts=contexts)
    >>> model.contexts_.tolist(), model.context_counts_.tolist()
    (['everyone', 'over 80', 'diabetic'], [300, 89, 65])
    """

    matrix: Any
    labels: Sequence[Hashable] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Check the matrix, and keep it by columns."""
        frame = nw.from_native(self.matrix, eager_only=True, pass_through=True)
        names = list(frame.columns) if isinstance(frame, nw.DataFrame) else None
        columns = _binary(self.matrix, frame, names)
        given = names if self.labels is None else self.labels
        labels = tuple(range(columns.shape[1])) if given is None else _checked_labels(given, columns.shape[1])
        _refuse_outsiders(columns, labels)
        # By which rows in another order than those of X are noticed; a list has a method of that name.
        index = getattr(self.matrix, "index", None)
        object.__setattr__(self, "index", None if callable(index) else index)
        object.__setattr__(self, "matrix", columns)
        object.__setattr__(self, "labels", labels)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and contexts."""
        return int(self.matrix.shape[0]), len(self.labels)

    @property
    def overlap(self) -> bool:
        """Whether some row is in several contexts; if none is, these are labels in another form."""
        return bool(self.matrix.nnz > self.matrix.shape[0])

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def __getitem__(self, rows: Any) -> Memberships:
        """Return the memberships of some rows, as scikit-learn asks arrays for them; contexts without any are gone."""
        rows = rows[0] if isinstance(rows, tuple) else rows
        some = sparse.csc_array(self.matrix.tocsr()[np.arange(len(self))[rows]])
        present = np.flatnonzero(np.diff(some.indptr))
        return Memberships(some[:, present], [self.labels[c] for c in present.tolist()])

    def __repr__(self) -> str:
        counts = zip(self.labels, np.diff(self.matrix.indptr).tolist(), strict=True)
        listed = ", ".join(f"{label!s:.30} {count}" for label, count in counts)
        return f"Memberships of {len(self)} rows ({listed:.200})"


def _binary(given: Any, frame: Any, names: list[str] | None) -> sparse.csc_array:
    """Return a matrix of truth values by columns, or name what is neither 0 nor 1."""
    if hasattr(given, "__dask_graph__"):
        raise InvalidInputError(
            "memberships are on workers; overlapping contexts are for rows in memory. Compute them."
        )
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise InvalidInputError("memberships are a masked array with masked cells. Fill them with 0 or 1.")
    if sparse.issparse(given):
        values, dense = np.asarray(given.data), None
    else:
        host = given.detach().cpu().numpy() if hasattr(given, "detach") and hasattr(given, "cpu") else given
        dense = frame.to_numpy() if names is not None else np.asarray(host)
        values = dense
    shape = given.shape if dense is None else dense.shape
    if len(shape) != 2 or 0 in shape:
        raise InvalidInputError(
            f"memberships have shape {tuple(shape)}; pass a table with a row for each row of the data and a column "
            "of 0 and 1 for each context."
        )
    try:
        # Text would be equal to neither, missing values raise or are unequal too.
        wrong = ~((values == 0) | (values == 1))
        wrong = np.asarray(wrong, dtype=bool) | (values.dtype.kind not in "biufO")
    except (TypeError, ValueError):
        wrong = np.ones(values.shape, dtype=bool)
    if wrong.any():
        at = tuple(int(k) for k in np.argwhere(wrong)[0])
        where = "" if dense is None else f" in row {at[0]}, column {names[at[1]] if names else at[1]}"
        raise InvalidInputError(f"a membership is {values[at]!r:.60}{where}; each is 0 or 1, or False or True.")
    matrix = sparse.csc_array(given if dense is None else (dense == 1))
    matrix = matrix.astype(bool)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def _checked_labels(given: Iterable[Any], n_contexts: int) -> tuple[Hashable, ...]:
    """Return one label per column, no two the same."""
    labels = tuple(label.item() if isinstance(label, np.generic) else label for label in given)
    if isinstance(given, str) or len(labels) != n_contexts:
        raise InvalidInputError(f"got {len(labels)} labels for {n_contexts} columns of memberships. Pass one for each.")
    try:
        twice = [label for k, label in enumerate(labels) if label in set(labels[:k])]
    except TypeError as error:
        raise InvalidInputError(f"a context label cannot be hashed ({error}). Use strings or numbers.") from error
    if twice:
        raise InvalidInputError(f"two columns of memberships are labelled {twice[0]!s:.60}. Give each its own label.")
    return labels


def _refuse_outsiders(matrix: sparse.csc_array, labels: Sequence[Hashable]) -> None:
    """Name contexts without rows, and count rows without a context."""
    empty = np.flatnonzero(np.diff(matrix.indptr) == 0)
    if empty.size:
        raise EmptyContextError(
            f"no row belongs to context {labels[empty[0]]!s:.60} ({empty.size} of {len(labels)} columns of memberships "
            "are empty), so its risk is unknown. Drop the column."
        )
    outside = np.flatnonzero(np.bincount(matrix.indices, minlength=matrix.shape[0]) == 0)
    if outside.size:
        raise InvalidInputError(
            f"{outside.size} of {matrix.shape[0]} rows belong to no context (the first is row {outside[0]}). Add a "
            "column for them, such as 'everyone' (1 in every row) or 'others' (1 in these), or drop the rows."
        )
