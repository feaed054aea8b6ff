"""A model of a table that does not fit into memory: the same columns, the same pipeline, the same coefficients."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import Contexts
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.problem import LinearProblem, check_alpha
from counterpoise.estimators._base import check_switches, speaking_as
from counterpoise.estimators.linear import RowReader
from counterpoise.exceptions import CounterpoiseError, InvalidInputError
from counterpoise.rows import Block, BlockRows, Blocks
from counterpoise.rows.on_disk import BlocksOnDisk
from counterpoise.tables.reading.memory import in_words
from counterpoise.tables.tabular.columns import Asked, Columns
from counterpoise.tables.tabular.encoding import fit_numbers, stand_in
from counterpoise.tables.tabular.fitting import Fitted, labelled, recording
from counterpoise.tables.tabular.medians import Medians
from counterpoise.tables.tabular.small_contexts import SmallContexts
from counterpoise.tables.tabular.survey import Budget, Findings, Rows, Survey
from counterpoise.tables.tabular.task import check_task, pipeline

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from counterpoise.tables.reading import DataFile, TableOnDisk

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

_SEED = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class LargeProblem(Findings):
    """What a table says, ready to be fitted; see :class:`counterpoise.tables.tabular.fitting.Problem`.

    Attributes
    ----------
    table : TableOnDisk
    survey : Survey
    model : Pipeline
        Not fitted.
    """

    table: TableOnDisk
    survey: Survey
    model: Pipeline

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
        if self.target.classes is not None:
            own.classes_ = self.target.classes
        medians = self._fit_encoder(encode)
        width = len(encode.get_feature_names_out())
        own.n_features_in_ = width
        loss = RowReader(own).loss()
        blocks = BlocksOnDisk()
        try:
            with _room(8.0 * self.n_kept * (width + 2)):
                sample = self._write(encode, width, loss, blocks, medians)
            self._look_for(medians)
            self._set_numbers(encode, medians)
            labels, counts = self.coding.labels, self.coding.counts
            most = self.survey.budget.collected
            rows = BlockRows(record(blocks), loss, len(labels), width, own.fit_intercept, most)
            contexts = Contexts.counted(labels, counts.astype(np.intp))
            problem = LinearProblem(LinearOracle(rows, own.alpha), contexts, counts.astype(np.float64))
            _, warned = recording(lambda: own.fit_problem(problem))
            n_passes = blocks.n_passes
        finally:
            blocks.close()
        return Fitted(**labelled(self, sample), model=model, warned=warned, n_fitted=self.n_kept, n_passes=n_passes)

    # --- preprocessing -----------------------------------------------------------------------------------------------

    def _fit_encoder(self, encode: Any) -> Medians:
        """Fit the preprocessing; medians that fill no gap may be found later."""
        shares = dict(zip(self.survey.numbers, 1.0 - self.survey.moments.n / self.n_kept, strict=True))
        gaps = {name: float(shares[name]) for name in self.columns.numbers}
        encode.fit(stand_in(gaps, self.survey.categories(self.columns.categories)))
        medians = self.survey.medians.of(self.columns.numbers)
        if any(gaps.values()):
            self._look_for(medians)
        self._set_numbers(encode, medians)
        return medians

    def _look_for(self, medians: Medians) -> None:
        budget = self.survey.budget
        while not medians.are_known:
            for data in self._chunks([*self.columns.sources_of(self.columns.numbers), self.target.name]):
                kept = self.target.read(data)[1]
                medians.look(_matrix(self.columns.of(data, self.columns.numbers))[kept])
            medians.end_round(budget.middle)

    def _chunks(self, columns: Sequence[str], most: int | None = None) -> Iterator[DataFile]:
        """Yield pieces of the table without the contexts that are not used."""
        own = columns if self.small is None else [*columns, *self.asked.context]
        for piece in self.table.chunks(self.survey.budget.chunk, own, most):
            data = self.used(piece)
            if data.n_rows:
                yield data

    def _set_numbers(self, encode: Any, medians: Medians) -> None:
        if self.columns.numbers:
            own = encode.named_transformers_["numbers"]
            at = [self.survey.numbers.index(name) for name in self.columns.numbers]
            fit_numbers(own, self.survey.moments, at, medians.values)

    # --- rows --------------------------------------------------------------------------------------------------------

    def _write(self, encode: Any, width: int, loss: Any, blocks: BlocksOnDisk, medians: Medians) -> Rows:
        """Write all rows as blocks, and return a uniform sample of them, always the same one."""
        budget = self.survey.budget
        looks = not medians.are_known
        most = min(self.n_kept, budget.report_rows(width))
        drawn = np.sort(np.random.default_rng(_SEED).choice(self.n_kept, most, replace=False))
        sampled: list[Rows] = []
        totals = self.coding.counts.astype(np.float64)

        def encoded() -> Iterator[tuple[Array, Array, Codes]]:
            n = 0
            own = [*self.columns.sources, *self.asked.roles]
            for data in self._chunks(own, max(1, int(budget.chunk // (8 * width)))):
                rows, _ = self.rows(data)
                if not len(rows.target):
                    continue
                first, last = np.searchsorted(drawn, [n, n + len(rows.target)])
                sampled.append(rows.take(drawn[first:last] - n))
                n += len(rows.target)
                if looks:
                    medians.look(_matrix(rows.X.select(self.columns.numbers)))
                yield encode.transform(rows.X), loss.checked_target(rows.target), rows.contexts
            if n != self.n_kept:
                raise CounterpoiseError(f"{self.table.path} was changed while it was read. Run it again.")

        for X, target, codes in _of_size(encoded(), max(1, int(budget.block // (8 * width)))):
            blocks.append(Block.of(X, target, codes, np.ones(len(target)), totals, loss, True))
        if looks:
            medians.end_round(budget.middle)
        return Rows.joined(sampled)


@contextmanager
def _room(n_bytes: float) -> Iterator[None]:
    """Say how much room on a disk is needed, before it is used and where there is not enough."""
    taken = f"the rows take {in_words(n_bytes)} in {tempfile.gettempdir()} while they are fitted"
    remedy = "Make room there, or name another folder: TMPDIR=/large/disk counterpoise fit ..."
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < n_bytes:
        raise CounterpoiseError(f"{taken}, where {in_words(free)} are free. {remedy}")
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise CounterpoiseError(f"{taken}, which is full. {remedy}") from error


def _of_size(pieces: Iterable[tuple[Any, ...]], n_rows: int) -> Iterator[tuple[Any, ...]]:
    """Join pieces of rows until they are so many."""
    waiting: list[tuple[Any, ...]] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(len(one[0]) for one in waiting) >= n_rows:
            yield tuple(map(np.concatenate, zip(*waiting, strict=True)))
            waiting = []
    if waiting:
        yield tuple(map(np.concatenate, zip(*waiting, strict=True)))


def _matrix(X: Any) -> Array:
    """Return columns of numbers side by side."""
    columns = [column.to_numpy() for column in X.columns]
    return np.column_stack(columns) if columns else np.empty((X.num_rows, 0))


def pose_large(table: TableOnDisk, target: str, context: Sequence[str], budget: float, **options: Any) -> LargeProblem:
    """Find features, target, contexts and a model for them, as :func:`counterpoise.tables.tabular.fitting.pose` does.

    Parameters
    ----------
    budget : float
        Bytes of memory that may be used.
    """
    return large_problem_of(table, Asked.of(target, context, **options).found_in(table.path, table.names), budget)


def large_problem_of(table: TableOnDisk, asked: Asked, budget: float) -> LargeProblem:
    """Do the same; what is asked names the columns as the table does."""
    switches = asked.model_switches
    _refuse_whole(switches)
    check_task(asked.task)
    of_numbers = "regression" if asked.task in ("auto", "classification") else asked.task
    own = pipeline(Columns((), ()), of_numbers, **switches).named_steps["model"]  # type: ignore[arg-type]
    with speaking_as(own):
        check_switches(own)
        check_alpha(own.alpha)
    limits = Budget(budget)
    small = None
    if asked.min_rows is not None:
        small = SmallContexts.among(table.chunks(limits.chunk, sorted(asked.roles)), asked, limits.pairs)
    survey = Survey(table.path, table.wanted, asked, limits, small)
    found = survey.look(table.chunks(limits.chunk))
    model = pipeline(found.columns, found.task, **found.switches)
    return LargeProblem(**found.facts(Findings), table=table, survey=survey, model=model)


def _refuse_whole(switches: Mapping[str, Any]) -> None:
    """Refuse what needs all rows in memory."""
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
