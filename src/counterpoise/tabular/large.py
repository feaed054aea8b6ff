"""A model of a table that does not fit into memory: the same columns, the same pipeline, the same coefficients."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts
from counterpoise.estimators._base import check_switches, speaking_as
from counterpoise.exceptions import CounterpoiseError, InvalidInputError
from counterpoise.oracle import LinearOracle
from counterpoise.problem import LinearProblem, check_alpha
from counterpoise.reading.memory import in_words
from counterpoise.rows import Block, BlockRows, Blocks
from counterpoise.rows.on_disk import BlocksOnDisk
from counterpoise.tabular.columns import Columns
from counterpoise.tabular.encoding import fit_numbers, stand_in
from counterpoise.tabular.fitting import Fitted, Roles, inference, rare_notes, recording
from counterpoise.tabular.medians import Medians
from counterpoise.tabular.survey import Budget, SettledContexts, Survey, target_numbers
from counterpoise.tabular.task import Task, check_task, pipeline

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from counterpoise.pooling import Pool
    from counterpoise.reading import DataFile, TableOnDisk

Array = NDArray[np.float64]

_SEED = 0


@dataclass(frozen=True, eq=False)
class LargeProblem:
    """What a table says, ready to be fitted; see :class:`counterpoise.tabular.fitting.Problem`.

    Attributes
    ----------
    table : TableOnDisk
    survey : Survey
    columns : Columns
    task : Task
    contexts : SettledContexts
    pool : Pool or None
        Contexts that were pooled.
    model : Pipeline
        Not fitted.
    notes : tuple of str
        What was inferred or left out.
    """

    table: TableOnDisk
    budget: Budget
    survey: Survey
    columns: Columns
    task: Task
    contexts: SettledContexts
    pool: Pool | None
    model: Pipeline
    notes: tuple[str, ...]

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return self.survey.n_rows

    def fit(self, record: Callable[[Blocks], Blocks] = lambda blocks: blocks) -> Fitted:
        """Fit the model to all rows; meanwhile they are on disk, in the system's folder for temporary files.

        Parameters
        ----------
        record : callable
            Wraps the blocks of rows, for example in :class:`counterpoise.rows.recorded.Recorded`.
        """
        from sklearn.base import clone

        model = clone(self.model)
        encode, own = model.named_steps["encode"], model.named_steps["model"]
        if self.task == "classification":
            own.classes_ = self.survey.target.classes
        medians = self._fit_encoder(encode)
        width = self._width(encode)
        own.n_features_in_ = width
        loss = own._loss()
        blocks = BlocksOnDisk()
        try:
            sample = _Sample(self, width)
            with self._room(width):
                self._write(encode, width, loss, blocks, sample, medians)
            self._look_for(medians)
            self._set_numbers(encode, medians)
            labels, counts = self.contexts.labels, self.contexts.counts
            rows = BlockRows(record(blocks), loss, len(labels), width, own.fit_intercept)
            contexts = Contexts.counted(labels, counts.astype(np.intp))
            problem = LinearProblem(LinearOracle(rows, own.alpha), contexts, counts.astype(np.float64))
            _, warned = recording(lambda: own.fit_problem(problem))
            n_passes = blocks.n_passes
        finally:
            blocks.close()
        found, said = (*sample.drawn(), self.n_rows), (self.notes, warned)
        return Fitted(model, self.columns, self.task, *found, *said, self.survey.n_kept, n_passes, self.pool)

    # --- preprocessing -----------------------------------------------------------------------------------------------

    def _fit_encoder(self, encode: Any) -> Medians:
        """Fit the preprocessing; medians that fill no gap may be found later."""
        numbers, names = self.survey.numbers, self.columns.numbers
        encode.fit(stand_in(numbers, names, self.survey.categories(self.columns.categories), self.survey.n_kept))
        medians = Medians(numbers, names, self.budget.middle)
        numbers.forget_sample()
        gaps = any(numbers.n[numbers.names.index(name)] < numbers.n_rows for name in names)
        if gaps:
            self._look_for(medians)
        self._set_numbers(encode, medians)
        return medians

    def _look_for(self, medians: Medians) -> None:
        while not medians.are_known:
            for data in self.table.chunks(self.budget.chunk, [*self.columns.numbers, self.survey.roles.target]):
                kept = self._target(data)[1]
                medians.look(_matrix(self.columns.of(data, self.columns.numbers), kept))
            medians.end_round()

    def _set_numbers(self, encode: Any, medians: Medians) -> None:
        if self.columns.numbers:
            own = encode.named_transformers_["numbers"]
            fit_numbers(own, self.survey.numbers, self.columns.numbers, medians.values)

    def _width(self, encode: Any) -> int:
        return len(encode.get_feature_names_out())

    # --- rows --------------------------------------------------------------------------------------------------------

    def _target(self, data: DataFile) -> tuple[Array, NDArray[np.bool_]]:
        """Return the targets of rows that have one, classes as codes, and which these are."""
        import pyarrow as pa
        import pyarrow.compute as pc

        name = self.survey.roles.target
        if self.task != "classification":
            values = target_numbers(data, name, self.task)
            kept = ~np.isnan(values)
            return values[kept], kept
        classes = pa.array(self.survey.target.classes.tolist(), pa.large_string())
        codes = pc.index_in(data.texts(name, "--target"), value_set=classes)
        kept = np.asarray(codes.is_valid().to_numpy())
        return codes.drop_null().to_numpy().astype(np.float64), kept

    def _write(
        self, encode: Any, width: int, loss: Any, blocks: BlocksOnDisk, sample: _Sample, medians: Medians
    ) -> None:
        """Write all rows as blocks, and keep a sample of them."""
        roles = self.survey.roles
        own = [*self.columns.features, roles.target, *roles.context, *([roles.group] if roles.group else [])]
        most_rows = max(1, int(self.budget.chunk // (8 * width)))
        pending = _Pending(max(1, int(self.budget.block // (8 * width))), width)
        totals, n = self.contexts.counts.astype(np.float64), 0
        looks = not medians.are_known

        def write(rows: tuple[Array, Array, NDArray[np.intp]]) -> None:
            X, target, codes = rows
            blocks.append(Block.of(X, target, codes, np.ones(len(target)), totals, loss, True))

        for data in self.table.chunks(self.budget.chunk, own, most_rows):
            target, kept = self._target(data)
            if not len(target):
                continue
            codes = self.contexts.places[self.survey.contexts.look(data)[0][kept]]
            X = self.columns.of(data)
            X = X if kept.all() else X.filter(kept)
            sample.take(X, target, codes, data, kept)
            if looks:
                medians.look(_matrix(X.select(self.columns.numbers), None))
            for rows in pending.full(encode.transform(X), loss.checked_target(target), codes):
                write(rows)
            n += len(target)
        if looks:
            medians.end_round()
        for rows in pending.rest():
            write(rows)
        if n != self.survey.n_kept:
            raise CounterpoiseError(f"{self.table.path} was changed while it was read. Run it again.")

    def _room(self, width: int) -> _Room:
        n_bytes = 8.0 * self.survey.n_kept * (width + 2)
        return _Room(n_bytes)


class _Room:
    """Says how much room on a disk is needed, before it is used and where there is not enough."""

    def __init__(self, n_bytes: float) -> None:
        self.n_bytes = n_bytes

    def __enter__(self) -> None:
        free = shutil.disk_usage(tempfile.gettempdir()).free
        if free < self.n_bytes:
            raise CounterpoiseError(self._said(f", where {in_words(free)} are free"))

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise CounterpoiseError(self._said(", which is full")) from error

    def _said(self, where: str) -> str:
        return (
            f"the rows take {in_words(self.n_bytes)} in {tempfile.gettempdir()} while they are fitted{where}. Make "
            "room there, or name another folder: TMPDIR=/large/disk counterpoise fit ..."
        )


class _Pending:
    """Rows that wait until there are enough of them for a block."""

    def __init__(self, n_rows: int, width: int) -> None:
        self._X = np.empty((n_rows, width))
        self._target = np.empty(n_rows)
        self._codes = np.empty(n_rows, dtype=np.intp)
        self._n = 0

    def full(self, X: Array, target: Array, codes: NDArray[np.intp]) -> Iterator[tuple[Array, Array, NDArray[np.intp]]]:
        """Add rows, and yield as many as make a block as soon as they do."""
        start, size = 0, len(self._target)
        while start < len(target):
            n = min(size - self._n, len(target) - start)
            here, there = slice(self._n, self._n + n), slice(start, start + n)
            self._X[here], self._target[here], self._codes[here] = X[there], target[there], codes[there]
            start, self._n = start + n, self._n + n
            if self._n == size:
                yield from self.rest()

    def rest(self) -> Iterator[tuple[Array, Array, NDArray[np.intp]]]:
        """Yield what is left."""
        if self._n:
            yield self._X[: self._n], self._target[: self._n], self._codes[: self._n]
        self._n = 0


class _Sample:
    """A uniform sample of the rows that have a target, always the same one."""

    def __init__(self, problem: LargeProblem, width: int) -> None:
        n, most = problem.survey.n_kept, problem.budget.report_rows(width)
        self._problem = problem
        self._chosen = np.sort(np.random.default_rng(_SEED).choice(n, min(n, most), replace=False))
        self._seen = 0
        self._X: list[Any] = []
        self._columns: list[tuple[Array, NDArray[np.intp]]] = []
        self._groups: list[NDArray[Any]] = []

    def take(self, X: Any, target: Array, codes: NDArray[np.intp], data: DataFile, kept: NDArray[np.bool_]) -> None:
        """Take the rows that are among those drawn."""
        first, last = np.searchsorted(self._chosen, [self._seen, self._seen + len(target)])
        rows = self._chosen[first:last] - self._seen
        self._seen += len(target)
        if not len(rows):
            return
        # Taken, so that the rest of the piece is not kept.
        self._X.append(X.take(rows))
        self._columns.append((target[rows], codes[rows]))
        group = self._problem.survey.roles.group
        if group is not None:
            self._groups.append(data.labels(group, "--group")[kept][rows])

    def drawn(self) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        """Return features, targets, contexts and groups."""
        import pyarrow as pa

        target, codes = (np.concatenate(parts) for parts in zip(*self._columns, strict=True))
        if self._problem.task == "classification":
            target = self._problem.survey.target.classes[target.astype(np.intp)]
        labels = np.empty(len(self._problem.contexts.labels), dtype=object)
        labels[:] = self._problem.contexts.labels.tolist()
        X = pa.concat_tables(self._X).combine_chunks()
        return X, target, labels[codes], np.concatenate(self._groups) if self._groups else None


def _matrix(X: Any, kept: NDArray[np.bool_] | None) -> Array:
    """Return columns of numbers side by side."""
    columns = [column.to_numpy() for column in X.columns]
    matrix = np.column_stack(columns) if columns else np.empty((X.num_rows, 0))
    return matrix if kept is None else matrix[kept]


def pose_large(
    table: TableOnDisk,
    target: str,
    context: Sequence[str],
    budget: float,
    *,
    task: str = "auto",
    drop: Sequence[str] = (),
    only: Sequence[str] = (),
    group: str | None = None,
    pool_below: int | None = None,
    **switches: Any,
) -> LargeProblem:
    """Find features, target, contexts and a model for them, as :func:`counterpoise.tabular.fitting.pose` does.

    Parameters
    ----------
    budget : float
        Bytes of memory that may be used.
    """
    if switches.get("reference") in ("cross-fit", "shrunk"):
        raise InvalidInputError(
            f"--reference {switches['reference']} needs all rows in memory, and they are read in chunks. Pass "
            "--reference in-sample, or more --memory."
        )
    if switches.get("adjust") == "standard-error":
        raise InvalidInputError(
            "--adjust standard-error needs all rows in memory, and they are read in chunks. Pass a number, such as "
            "--adjust 1, or more --memory."
        )
    roles = Roles.of(table.path, table.names, target, context, drop, only, group)
    check_task(task)
    own = pipeline(Columns((), ()), "regression" if task in ("auto", "classification") else task, **switches)  # type: ignore[arg-type]
    with speaking_as(own.named_steps["model"]):
        check_switches(own.named_steps["model"])
        check_alpha(own.named_steps["model"].alpha)
    may = Budget(budget)
    survey = Survey(table, roles, task, may, pool_below)
    found, why = survey.target.judged(table.path)
    contexts, pool = survey.settled()
    columns = survey.sorted(table)
    model = pipeline(columns, found, **switches)
    notes = inference(roles.target, found, why, survey.n_rows - survey.n_kept, survey.n_rows, columns)
    notes = (*notes, *rare_notes(pool, contexts.labels, contexts.counts), *survey.notes)
    return LargeProblem(table, may, survey, columns, found, contexts, pool, model, notes)
