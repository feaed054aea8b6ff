"""From partitions to blocks: labels are agreed upon first, then rows are grouped where they are."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from counterpoise.contexts import Agreement, Contexts, encode
from counterpoise.dask.cluster import ClusterBlocks, result, sent
from counterpoise.dask.partitions import Partitions, holds_rows, n_rows
from counterpoise.dask.settings import current
from counterpoise.exceptions import CounterpoiseError, InvalidInputError
from counterpoise.losses import Loss
from counterpoise.rows import Block, Blocks, Codes, MemoryRows
from counterpoise.rows.on_disk import BlocksOnDisk
from counterpoise.rows.recorded import Recorded
from counterpoise.validation import check_aligned, checked_features, checked_row_weights, refuse_weightless

Array = NDArray[np.float64]


class Reader(Protocol):
    """How rows of a partition are read and checked; it travels to the workers."""

    @property
    def classifies(self) -> bool:
        """Whether targets are classes."""

    @property
    def meaning(self) -> str:
        """All that answers of rows depend on beside the rows themselves."""

    def rows(self, columns: dict[str, Any]) -> tuple[Any, NDArray[Any]]:
        """Return features and targets, checked."""

    def target(self, y: NDArray[Any], classes: NDArray[Any] | None) -> Array:
        """Return targets in the domain of the loss."""

    def placed(self, rows: MemoryRows) -> MemoryRows:
        """Return rows in the form that is solved."""


@dataclass(frozen=True, eq=False)
class CheckedRows:
    """The rows of a partition.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (n_rows, n_features)
    y : ndarray of shape (n_rows,)
        Classes as they are; other targets in the domain of the loss.
    contexts : Contexts
        With labels in the order in which they first appear.
    crossed : int
        Columns of the table that labels were crossed from, 1 where they were not.
    weight : ndarray of shape (n_rows,)
    """

    X: Any
    y: NDArray[Any]
    contexts: Contexts
    crossed: int
    weight: Array

    @property
    def digest(self) -> bytes:
        """A hash of all that the partition holds."""
        said = hashlib.blake2b()
        features = (self.X.data, self.X.indices, self.X.indptr) if sparse.issparse(self.X) else (self.X,)
        for array in (*features, self.y, self.weight, self.contexts.labels, self.contexts.codes):
            said.update(repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes())
        return said.digest()


@dataclass(frozen=True, eq=False)
class Summary:
    """What must be known of a partition before rows can be grouped.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        In the order in which they first appear.
    crossed : int
        Columns of the table that labels were crossed from, 1 where they were not.
    counts, totals : ndarray of shape (n,)
        Rows that have weight, and the sum of their weights, of each label.
    classes : ndarray or None
        Of a classifier's targets.
    n_features : int
    digest : bytes
        Of all that the partition holds; empty where it is not asked for.
    """

    labels: NDArray[Any]
    crossed: int
    counts: NDArray[np.intp]
    totals: Array
    classes: NDArray[Any] | None
    n_features: int
    digest: bytes


@dataclass(frozen=True, eq=False)
class Gathered:
    """Rows in blocks, and what is known of them.

    Attributes
    ----------
    blocks : Blocks
    contexts : Contexts
    counts : ndarray of shape (n_contexts,)
        Rows, or the sum of their weights.
    classes : ndarray or None
    n_features : int
    """

    blocks: Blocks
    contexts: Contexts
    counts: Array
    classes: NDArray[Any] | None
    n_features: int


def summarise(parts: Partitions, reader: Reader) -> tuple[list[Summary | None], Any]:
    """Look at every partition once; also return the client that did it, None where there is none."""
    client = _client()
    wants_digest = current().checkpoint is not None
    # Read and checked once, and kept on the workers; without any, rows are not kept in memory but read again.
    tasks = [_task(_read, k, parts.part(k), reader) for k in range(parts.n)]
    parts.checked[:] = tasks if client is None else sent(client, tasks)
    summaries = [_task(_summary, rows, reader.classifies, wants_digest) for rows in parts.checked]
    if client is None:
        return [_named(k, lambda: task.compute(scheduler="sync")) for k, task in enumerate(summaries)], None  # noqa: B023
    futures = sent(client, summaries)
    return [_named(k, lambda: result(client, future, current().patience)) for k, future in enumerate(futures)], client  # noqa: B023


def _named(k: int, compute: Callable[[], Any]) -> Any:
    """Return what a partition computes to, or say which one it was that did not."""
    try:
        return compute()
    except CounterpoiseError:
        raise
    except Exception as error:
        raise InvalidInputError(f"partition {k} cannot be computed: {type(error).__name__}: {error!s:.500}") from error


def gather(
    parts: Partitions,
    reader: Reader,
    summaries: Sequence[Summary | None],
    client: Any,
    classes: NDArray[Any] | None,
    loss: Loss,
    fit_intercept: bool,
) -> Gathered:
    """Group the rows of every partition by context."""
    kept = [(k, summary) for k, summary in enumerate(summaries) if summary is not None]
    if not kept:
        raise InvalidInputError("there are no rows: every partition is empty.")
    _check_widths(kept)
    contexts, own = agree([summary for _, summary in kept])
    totals = np.zeros(len(contexts.labels))
    for codes, (_, summary) in zip(own, kept, strict=True):
        totals[codes] += summary.totals
    refuse_weightless(contexts, totals)
    # A partition whose rows have no weight is no block.
    filled = [(k, codes, codes[summary.totals > 0]) for codes, (k, summary) in zip(own, kept, strict=True)]
    filled = [entry for entry in filled if entry[2].size]
    tasks = [
        _task(_block, parts.checked[k], reader, codes, totals[codes], classes, loss, fit_intercept)
        for k, codes, _ in filled
    ]
    blocks: Blocks
    if client is None:
        blocks = BlocksOnDisk()
        for task in tasks:
            blocks.append(task.compute(scheduler="sync"))
    else:
        blocks = ClusterBlocks(
            client, sent(client, tasks), [np.sort(present) for *_, present in filled], current().patience
        )
    path = current().checkpoint
    if path is not None:
        fingerprint = reader.meaning.encode() + b"".join(summary.digest for _, summary in kept)
        blocks = Recorded(blocks, path, fingerprint)
    return Gathered(blocks, contexts, totals, classes, kept[0][1].n_features)


def agree(summaries: Sequence[Summary]) -> tuple[Contexts, list[Codes]]:
    """Return all contexts, and which of them the labels of each partition are."""
    agreement = Agreement(min(summary.crossed for summary in summaries))
    given = [agreement.codes(summary.labels) for summary in summaries]
    every = agreement.contexts()
    own = [every.codes[codes] for codes in given]
    counts = np.zeros(len(every.labels), dtype=np.intp)
    for codes, summary in zip(own, summaries, strict=True):
        counts[codes] += summary.counts
    return Contexts.counted(every.labels, counts), own


def all_classes(summaries: Sequence[Summary | None]) -> NDArray[Any]:
    """Return the classes of all partitions."""
    agreement = Agreement()
    for summary in summaries:
        if summary is not None and summary.classes is not None:
            agreement.codes(summary.classes)
    return np.unique(agreement.labels)


def _check_widths(kept: Sequence[tuple[int, Summary]]) -> None:
    first, width = kept[0][0], kept[0][1].n_features
    for k, summary in kept:
        if summary.n_features != width:
            raise InvalidInputError(
                f"partition {k} of X has {summary.n_features} columns, and partition {first} has {width}. Give all "
                "partitions the same columns."
            )


def _client() -> Any:
    """Return the client in force, if any."""
    chosen = current().client
    if chosen is None:
        try:
            from distributed import default_client
        except ImportError:
            return None
        try:
            chosen = default_client()
        except ValueError:
            return None
    if getattr(chosen, "asynchronous", False):
        raise CounterpoiseError("the dask client is asynchronous. Make one with Client(...), and fit with that.")
    return chosen


def _task(function: Any, *args: Any) -> Any:
    from dask import delayed

    return delayed(function, pure=False)(*args)


def _read(k: int, part: dict[str, Any], reader: Reader) -> CheckedRows | None:
    """Read a partition, or name it with what is wrong; None where it is empty."""
    lengths = {name: n_rows(value) for name, value in part.items() if holds_rows(value)}
    if not any(lengths.values()):
        return None
    part = dict(part)
    contexts, sample_weight = part.pop("contexts"), part.pop("sample_weight")
    try:
        if not all(lengths.values()):
            said = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise InvalidInputError(f"its columns differ in length ({said}). Take them from one collection.")
        check_aligned(part.get("X"), contexts)
        with warnings.catch_warnings():
            # Many classes for so few rows: there are more rows elsewhere.
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            X, y = reader.rows(part)
        n = X.shape[0]
        labels = np.zeros(n, dtype=np.intp) if contexts is None else contexts
        encoded = _as_they_appear(encode(labels, n))
        # That a context has no weight in one partition is no mistake.
        weight = checked_row_weights(sample_weight, encoded, may_be_empty=True)
        y = y if reader.classifies else reader.target(y, None)
    except InvalidInputError as error:
        raise InvalidInputError(f"partition {k}: {error}") from None
    except ValueError as error:
        raise InvalidInputError(f"partition {k}: {_precise(part.get('X'), error)}") from None
    return CheckedRows(X, y, encoded, _n_columns(contexts), weight)


def _as_they_appear(contexts: Contexts) -> Contexts:
    """Return contexts with their labels in the order of the rows, which decides where labels cannot be compared."""
    _, first = np.unique(contexts.codes, return_index=True)
    order = np.argsort(first)
    return Contexts(contexts.labels[order], np.argsort(order)[contexts.codes])


def _n_columns(contexts: Any) -> int:
    shape: tuple[int, ...] = getattr(contexts, "shape", ())
    return int(shape[1]) if len(shape) == 2 else 1


def _precise(X: Any, error: ValueError) -> str:
    """Return what is wrong with the features, with row and column where that can be told."""
    if X is not None:
        try:
            checked_features(X)
        except InvalidInputError as found:
            return str(found)
    return str(error)


def _summary(rows: CheckedRows | None, classifies: bool, wants_digest: bool) -> Summary | None:
    if rows is None:
        return None
    contexts, weight = rows.contexts, rows.weight
    n = len(contexts.labels)
    return Summary(
        contexts.labels,
        rows.crossed,
        counts=np.bincount(contexts.codes[weight > 0], minlength=n),
        totals=np.bincount(contexts.codes, weight, n).astype(np.float64),
        classes=np.unique(rows.y) if classifies else None,
        n_features=int(rows.X.shape[1]),
        digest=rows.digest if wants_digest else b"",
    )


def _block(
    rows: CheckedRows,
    reader: Reader,
    codes: Codes,
    totals: Array,
    classes: NDArray[Any] | None,
    loss: Loss,
    fit_intercept: bool,
) -> Block:
    """Group the rows of a partition; ``codes`` and ``totals`` are those of its own labels, in their order."""
    X, weight = rows.X, rows.weight
    target = rows.y if classes is None else reader.target(rows.y, classes)
    weighed = weight > 0
    if not weighed.all():
        X, target, weight = X[weighed], target[weighed], weight[weighed]
    among = codes[rows.contexts.codes[weighed]]
    whole = np.ones(int(codes.max()) + 1)
    whole[codes] = totals
    block = Block.of(X, target, among, weight, whole, loss, fit_intercept)
    return Block(block.contexts, reader.placed(block.rows))
