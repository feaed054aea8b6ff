"""Which home of rows takes what a user passes: on workers, on a device, in memory, or one that was registered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from sklearn import get_config

from counterpoise.contexts import encode
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.problem import LinearProblem
from counterpoise.exceptions import InvalidInputError
from counterpoise.losses import Loss
from counterpoise.memberships import Memberships
from counterpoise.rows import MemoryRows
from counterpoise.validation import check_aligned, checked_row_weights, on_host

Columns = Mapping[str, Any]
"""What the ``fit`` of an estimator takes of every row, by name: X, y, contexts, sample_weight, and perhaps more."""


class Reader(Protocol):
    """How an estimator reads rows: all of them, or the part that is somewhere; it may travel there."""

    @property
    def alpha(self) -> float:
        """The ridge."""

    @property
    def fit_intercept(self) -> bool:
        """Whether there is an intercept."""

    @property
    def device(self) -> str | None:
        """Where rows are to be held, if that was said."""

    @property
    def classifies(self) -> bool:
        """Whether targets are classes."""

    @property
    def meaning(self) -> str:
        """All that answers of rows depend on beside the rows themselves."""

    def travelling(self, names: tuple[Any, ...]) -> Reader:
        """Return a reader for parts of the rows, with features of these names, whose checks leave no trace here."""

    def rows(self, columns: Columns) -> tuple[Any, Any]:
        """Return features and targets of all rows or a part of them, checked."""

    def encoded(self, columns: Columns) -> tuple[Any, Any]:
        """Return features, and targets in the domain of the loss, of all rows."""

    def target(self, y: Any, classes: Any) -> Any:
        """Return targets of a part of the rows in the domain of the loss."""

    def learn(self, like: Any, classes: Any) -> None:
        """Learn width and names of the features from a row like them, and the classes of all rows."""

    def contexts(self, contexts: Any, n_rows: int) -> Any:
        """Return contexts, or one for all rows and a warning that says so."""

    def loss(self) -> Loss:
        """Return the loss, once classes are known."""

    def placed(self, rows: MemoryRows) -> MemoryRows:
        """Return rows in the form that is solved."""


class Home(Protocol):
    """A place where rows may be."""

    def accepts(self, columns: Columns, device: str | None) -> bool:
        """Tell whether these columns live here."""

    def pose(self, columns: Columns, reader: Reader) -> LinearProblem:
        """Return the problem that the columns pose."""


class Workers:
    """Dask collections, which stay where they are."""

    def accepts(self, columns: Columns, device: str | None) -> bool:
        """Tell whether any column is a dask collection."""
        return any(hasattr(value, "__dask_graph__") for value in columns.values())

    def pose(self, columns: Columns, reader: Reader) -> LinearProblem:
        """Group rows where they are."""
        from counterpoise.dask.linear import pose

        if reader.device is not None:
            raise InvalidInputError(
                f"device is {reader.device!r}, which is for rows in memory; dask collections have none."
            )
        if columns["contexts"] is None:
            reader.contexts(None, 0)
        refuse_overlap(columns["contexts"])
        return pose(reader, columns)


class Device:
    """Tensors on a device, or rows that are sent to one."""

    def accepts(self, columns: Columns, device: str | None) -> bool:
        """Tell whether a device was named, or X is on one."""
        return device is not None or bool(getattr(columns["X"], "is_cuda", False))

    def pose(self, columns: Columns, reader: Reader) -> LinearProblem:
        """Check the target here, and X on the device."""
        from counterpoise.rows.device import TorchRows, sent

        X = columns["X"]
        here = {**columns, "y": on_host(columns["y"])}
        if hasattr(X, "is_cuda"):
            # The target is checked beside a column of zeros.
            _, target = reader.encoded({**here, "X": np.zeros((len(X), 1))})
            reader.learn(np.zeros((1, int(X.shape[1]) if X.ndim == 2 else 0)), None)
        else:
            X, target = reader.encoded(here)
            if hasattr(X, "tocsr"):
                raise InvalidInputError("sparse X is not fitted on a device. Pass a dense one, or no device.")
        features = sent(X, reader.device)
        encoded = encode(reader.contexts(columns["contexts"], len(X)), len(features))
        weight = checked_row_weights(columns["sample_weight"], encoded)
        if not (weight > 0).all():
            raise InvalidInputError("on a device, sample_weight must be positive. Drop the rows of no weight.")
        n = len(encoded.labels)
        counts = np.bincount(encoded.codes, weight, n).astype(np.float64)
        shares, codes, loss, together = weight / counts[encoded.codes], encoded.codes, reader.loss(), None
        if loss.target_columns > 1:
            # Rows are placed beside their numbers, and then those of the numbers are taken.
            numbers = np.arange(len(features), dtype=np.float64)[:, None]
            placed = reader.placed(MemoryRows.of(numbers, target, encoded, loss, weight, reader.fit_intercept))
            features = features[placed.X[:, 0].astype(np.intp)]
            target, shares, codes, loss = placed.target, placed.weight, placed.owner, placed.loss
            together = placed.together
        rows = TorchRows.of(features, target, shares, codes, n, loss, reader.fit_intercept, together=together)
        return LinearProblem.checked(LinearOracle(rows, reader.alpha), encoded, counts)


class Memory:
    """Arrays, sparse matrices and dataframes."""

    def accepts(self, columns: Columns, device: str | None) -> bool:
        """Accept whatever nobody else takes."""
        return True

    def pose(self, columns: Columns, reader: Reader) -> LinearProblem:
        """Check and group the rows."""
        X, target = reader.encoded(columns)
        check_aligned(columns["X"], columns["contexts"])
        problem = LinearProblem.from_data(
            X,
            target,
            reader.contexts(columns["contexts"], X.shape[0]),
            reader.loss(),
            alpha=reader.alpha,
            fit_intercept=reader.fit_intercept,
            sample_weight=columns["sample_weight"],
            known_finite=not get_config()["assume_finite"],
        )
        return replace(problem, oracle=replace(problem.oracle, rows=reader.placed(problem.oracle.rows)))


def one_class(only: Any) -> str:
    """Return the words for targets of one class: what they lack, and how preferences, which are such, are posed."""
    return (
        f"y holds one class, {only!r}; a classifier needs two or more. If each row is a difference with an arbitrary "
        "sign (chosen less rejected, as in preference data), flip half of them, x to -x and y to the other class, and "
        "set fit_intercept=False: the loss of every row stays what it is."
    )


def refuse_overlap(contexts: Any) -> None:
    """Refuse memberships of rows on workers."""
    if isinstance(contexts, Memberships):
        raise InvalidInputError(
            "overlapping contexts (Memberships) are for rows in memory, and these are on workers. Compute them "
            "first, or pass one label per row."
        )


_HOMES: list[Home] = [Workers(), Device(), Memory()]


def register(home: Home) -> None:
    """Let a home be asked before all others, whether it accepts what a user passes."""
    _HOMES.insert(0, home)


def home_of(columns: Columns, device: str | None) -> Home:
    """Return the home of these columns."""
    return next(home for home in _HOMES if home.accepts(columns, device))
