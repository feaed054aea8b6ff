"""A folder with a model of a table, its report and its metrics: what ``counterpoise fit`` writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from counterpoise.contexts import plain, shown
from counterpoise.estimators.learners import innermost
from counterpoise.exceptions import InvalidInputError
from counterpoise.files import check_output_folder, whole_folder
from counterpoise.judging.comparison import CANDIDATES
from counterpoise.reports.report import BEST, Report
from counterpoise.rows.recorded import Recorded, check_checkpoint
from counterpoise.sets import Mix
from counterpoise.tables.reading import TableOnDisk, memory, open_table
from counterpoise.tables.tabular.columns import Asked
from counterpoise.tables.tabular.fitting import Fitted, Progress, problem_of, recording
from counterpoise.tables.tabular.large import large_problem_of
from counterpoise.tables.tabular.saved import REPLACEABLE, SavedModel
from counterpoise.tables.tabular.task import RISKS

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from counterpoise.rows import Blocks


FITTING = {
    "robust": "fitting",
    "erm": "fitting the plain model, which is kept",
    "inverse-frequency": "fitting the model with equal weights of contexts, which is kept",
}
"""What is being done, in words."""


@dataclass(frozen=True, kw_only=True)
class ModelFolder:
    """How a model of a table is made, judged and written.

    Parameters
    ----------
    folder : Path
    force : bool
        Whether a folder of a model may be replaced.
    progress : Progress
    memory : float, optional
        The most bytes to use; else what is free. A table that needs more is read in chunks.
    checkpoint : Path, optional
        A file from which a fit in chunks goes on that was cut short.
    method : {"best", "robust", "erm", "inverse-frequency"}
        Whose model is kept; the best is what the comparison on held-out rows would keep.
    folds, n_jobs : int
        Of the comparison with the baselines.
    workers : context manager
        Around that comparison.
    """

    folder: Path
    progress: Progress
    force: bool = False
    memory: float | None = None
    checkpoint: Path | None = None
    method: str = "best"
    folds: int = 5
    n_jobs: int = 1
    workers: AbstractContextManager[Any] = field(default_factory=nullcontext)

    def write(self, file: Path, asked: Asked) -> Report:
        """Fit a model to a table, compare it with the baselines, and write all of it.

        Parameters
        ----------
        file : Path
            A file or a folder.
        asked : Asked
            Without a reference among its switches, least risks are cross-fitted, or in sample where rows do not fit
            into memory.
        """
        if self.method not in (BEST, *CANDIDATES):
            raise InvalidInputError(f"--method is {self.method!r:.60}; choose best, {', '.join(CANDIDATES)}.")
        check_output_folder(self.folder, REPLACEABLE, self.force)
        if self.checkpoint is not None:
            check_checkpoint(self.checkpoint)
        table = open_table(file)
        found = asked.found_in(table.path, table.names)
        table = table.only(found.needed(table.names)) if found.drop or found.only else table
        fit = self._posed(table, found)
        fitted = fit("robust")
        report = self._judged(fitted, table, asked)
        models = {"robust": fitted.model}
        for method in ("erm", report.kept):
            if method not in models:
                models[method] = fit(method).model
        pooled = None if fitted.pool is None else fitted.pool.described
        saved = SavedModel.of(models, fitted.columns, asked.target, fitted.task, method=report.kept, pooled=pooled)

        def write(folder: Path) -> None:
            saved.write(folder)
            (folder / "report.html").write_text(report.html, encoding="utf-8")
            metrics = json.dumps(report.metrics, indent=1, ensure_ascii=False, allow_nan=False)
            (folder / "metrics.json").write_text(metrics, encoding="utf-8")

        with self.progress.step("writing"):
            whole_folder(self.folder, write, lambda: check_output_folder(self.folder, REPLACEABLE, self.force))
        self.progress.note(
            f"risk is the mean {RISKS[fitted.task]} on held-out rows; excess risk is what a context loses because one "
            "model serves all"
        )
        return report

    def _posed(self, table: TableOnDisk, asked: Asked) -> Callable[[str], Fitted]:
        """Read a table, and return what fits the model of a method to it, in memory or in chunks."""
        free = 2.0 * memory.memory_budget() if self.memory is None else self.memory
        size = memory.needed(table.size)
        if size > free:
            self.progress.note(
                f"{table.path.name} takes about {memory.in_words(size)} of memory to fit and {memory.in_words(free)} "
                "may be used: it is read in chunks"
            )
            # Half of what is free may be used in any case.
            return self._posed_in_chunks(table, asked, free / 2.0 if self.memory is None else free)
        if self.checkpoint is not None:
            self.progress.note("the table fits into memory, so there is nothing to keep in a checkpoint")
        with self.progress.step("reading"):
            problem = problem_of(table.read(), _with_reference(asked, "cross-fit"))
        self.progress.note(*problem.notes)

        def fit(method: str) -> Fitted:
            own = replace(problem, model=as_method(problem.model, method, problem.contexts))
            with problem.suited(), self.progress.step(FITTING[method]):
                fitted = own.fit()
            self.progress.note(*fitted.warned)
            return fitted

        return fit

    def _posed_in_chunks(self, table: TableOnDisk, asked: Asked, budget: float) -> Callable[[str], Fitted]:
        asked = _with_reference(asked, "in-sample")
        with self.progress.step("looking through all rows"):
            problem = large_problem_of(table, asked, budget)
        self.progress.note(*problem.notes)

        def fit(method: str) -> Fitted:
            own = replace(problem, model=as_method(problem.model, method, problem.coding.labels))
            with self.progress.step(FITTING[method]):
                fitted = own.fit(self._recorded(table, asked, method))
            if method != "robust":
                return fitted
            notes = [
                f"the model is of all {problem.n_kept:,} rows, read in chunks; baselines and the path of confidence "
                f"are of {len(fitted.y):,} of them, drawn at random"
            ]
            if problem.asked.switches.get("criterion", "excess") == "excess":
                notes.append("the least risk of each context is in sample: held-out rows would have to be in memory")
            notes += _unseen(fitted)
            self.progress.note(*fitted.warned, *notes)
            return replace(fitted, remarks=(*fitted.remarks, *notes))

        return fit

    def _recorded(self, table: TableOnDisk, asked: Asked, method: str) -> Callable[[Blocks], Blocks]:
        """Return what keeps the answer of every pass, for a fit that is cut short and begun again."""
        # A baseline takes few passes, and its answers are not those of the fit before.
        path = self.checkpoint if method == "robust" else None
        fingerprint = repr((table.fingerprint, asked)).encode()
        return lambda blocks: blocks if path is None else Recorded(blocks, path, fingerprint)

    def _judged(self, fitted: Fitted, table: TableOnDisk, asked: Asked) -> Report:
        """Compare a model with the baselines, and follow the path of confidence."""
        context = " x ".join(asked.context)
        settings = {
            "file": f"{table.path.name} ({fitted.n_rows:,} rows, fingerprint {table.fingerprint})",
            "target": f"{asked.target} ({fitted.task})",
            "context": context,
            "features": f"{len(fitted.columns.features)}: {', '.join(fitted.columns.features)}",
        }
        if asked.known_mix is not None and asked.known_mix.census is not None:
            settings["mix from"] = asked.known_mix.census.described
        if fitted.pool is not None:
            settings["pooled"] = fitted.pool.note
        if fitted.n_fitted is not None:
            settings["read"] = f"in chunks; {fitted.n_passes} passes over the rows on disk to fit the model"
        report = Report(
            fitted.model,
            fitted.X,
            fitted.y,
            fitted.contexts,
            title=f"{asked.target} by {context}",
            settings=settings,
            notes=(*fitted.remarks, *fitted.warned),
            cv=self.folds,
            groups=fitted.groups,
            n_jobs=self.n_jobs,
            risk=RISKS[fitted.task],
            n_rows=fitted.n_fitted,
            keeps=self.method,
        )
        with self.workers, fitted.suited(), self.progress.step("comparing with the baselines, on held-out rows"):
            comparison, warned = recording(lambda: report.comparison)
        self.progress.note(*warned, comparison.headroom.verdict)
        with fitted.suited(), self.progress.step("following the path of confidence"):
            _, warned = recording(lambda: report.path)
        self.progress.note(*warned)
        return report


def as_method(model: Pipeline, method: str, contexts: Any) -> Pipeline:
    """Return the pipeline of a robust model with its switches set for a method.

    Parameters
    ----------
    contexts : ndarray
        Labels, of rows or of contexts.
    """
    if method == "robust":
        return model
    labels = [plain(label) for label in np.unique(contexts)]
    # A set of one mix: that of the data, or the one in which all contexts have the same share.
    mix = Mix(shares=dict.fromkeys(labels, 1.0 / len(labels)), radius=0.0) if method == "inverse-frequency" else None
    switches = {"radius": 0.0, "draws": None, "adjust": None, "mix": mix}
    return clone(model).set_params(**{f"model__{name}": value for name, value in switches.items()})


def _with_reference(asked: Asked, reference: str) -> Asked:
    """Return what is asked with a reference, where none was chosen."""
    return replace(asked, switches={**asked.switches, "reference": asked.switches.get("reference") or reference})


def _unseen(fitted: Fitted) -> list[str]:
    """Say which contexts have no row in a sample."""
    seen = {plain(label) for label in fitted.contexts.tolist()}
    labels = innermost(fitted.model).contexts_.tolist()
    unseen = [shown(label) for label in labels if plain(label) not in seen]
    if not unseen:
        return []
    more = f" and {len(unseen) - 3} more" if len(unseen) > 3 else ""
    return [
        f"no row of {', '.join(f'{one:.40}' for one in unseen[:3])}{more} was drawn; the model knows them all the same"
    ]
