"""A folder with a model of a table, its report and its metrics: what ``counterpoise fit`` writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from counterpoise.contexts import plain, shown
from counterpoise.core.robustness import METHODS
from counterpoise.estimators.learners import innermost
from counterpoise.exceptions import InvalidInputError
from counterpoise.files import check_output_folder, whole_folder
from counterpoise.judging.at_fit import watch_losses
from counterpoise.judging.comparison import CANDIDATES, Comparison
from counterpoise.judging.measures import Judged, task_of
from counterpoise.judging.trials import BASELINES
from counterpoise.log_targets import LogTarget
from counterpoise.reports.methods import MODELS
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


MOST_ROWS = 100_000
"""Rows on which methods are compared unless all of them are asked for; fewer where there are many features."""

MOST_NUMBERS = 5e6
"""Rows times features on which they are."""

FEWEST_ROWS = 1_000
"""Rows on which they are however many features there are."""


@dataclass(frozen=True, kw_only=True)
class Validation:
    """How methods are compared.

    Attributes
    ----------
    folds : int
        Of the cross-validation; 0 where later rows alone judge.
    cuts : int
        Points in time after which rows are later ones.
    gap : number or timedelta, optional
        Rows this close before a cut are not fitted to.
    thorough : bool
        Whether all rows judge, and not a sample of them where they are many.
    """

    folds: int = 5
    cuts: int = 4
    gap: Any = None
    thorough: bool = False

    def check(self, time: str | None) -> None:
        """Refuse what holds no rows out."""
        if self.folds == 0 and time is None:
            raise InvalidInputError("--folds is 0, which is for later rows alone: name their column with --time.")
        if self.gap is not None and time is None:
            raise InvalidInputError("--gap is between past and later rows: name their column with --time.")

    def most_rows(self, rows: Any) -> int:
        """Return how many rows are compared."""
        size = int(min(max(MOST_NUMBERS / max(rows.num_columns, 1), FEWEST_ROWS), MOST_ROWS))
        return rows.num_rows if self.thorough else size

    def of(self, times: NDArray[Any] | None) -> dict[str, Any]:
        """Return what a comparison is told."""
        return {"cv": self.folds or None, "time": times, "cuts": self.cuts, "gap": self.gap}


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
    method : {"best", "robust", "erm", "inverse-frequency", "minimax-risk", "minimax-regret"}
        Whose model is kept; the best is what the comparison would keep, on later rows where there are any.
    validation : Validation
    n_jobs : int
        Processes of the comparison with the baselines.
    workers : context manager
        Around that comparison.
    """

    folder: Path
    progress: Progress
    force: bool = False
    memory: float | None = None
    checkpoint: Path | None = None
    method: str = BEST
    validation: Validation = field(default_factory=Validation)
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
        if self.method not in (BEST, *BASELINES):
            raise InvalidInputError(f"--method is {self.method!r:.60}; choose best, {', '.join(BASELINES)}.")
        self.validation.check(asked.time)
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
        for method in (*CANDIDATES, report.kept):
            if method not in models:
                models[method] = fit(method).model
        logs = None
        if fitted.target.log:
            logs = {name: LogTarget.of(fitted.task, one, fitted.X, fitted.y) for name, one in models.items()}
        saved = SavedModel.of(
            models,
            fitted.columns,
            asked.target,
            fitted.task,
            method=report.kept,
            pooled=None if fitted.pool is None else fitted.pool.described,
            held_out_risks=_held_out_risks(report.comparison, models),
            held_out=_promises(report.comparison, models, fitted),
            logs=logs,
            context=asked.context,
        )

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
            with problem.suited(), self.progress.step(_fitting(method)):
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
            with self.progress.step(_fitting(method)):
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
        settings["method"] = self.method
        if asked.time is not None:
            gap = "" if self.validation.gap is None else f", a gap of {self.validation.gap}"
            settings["time"] = f"{asked.time}, {self.validation.cuts} cuts{gap}"
        if fitted.n_fitted is not None:
            settings["read"] = f"in chunks; {fitted.n_passes} passes over the rows on disk to fit the model"
        X, y, contexts, groups, times = fitted.sample(self.validation.most_rows(fitted.X))
        n_rows = fitted.n_fitted
        if len(y) < len(fitted.y):
            n_rows = len(fitted.y)
            note = (
                f"methods are compared on {len(y):,} of {n_rows:,} rows, drawn at random; the model is of all of them. "
                "--thorough compares on all"
            )
            self.progress.note(note)
            fitted = replace(fitted, remarks=(*fitted.remarks, note))
        options = {
            "n_jobs": self.n_jobs,
            "risk": RISKS[fitted.task],
            "n_rows": n_rows,
            "keeps": self.method,
            "groups": groups,
            "context_known": fitted.why_known or False,
            "log_target": fitted.target.log,
            **self.validation.of(times),
        }
        words = f"comparing with the baselines, on {'held-out rows' if times is None else 'held-out and on later rows'}"
        with self.workers, fitted.suited(), self.progress.step(words) as done:
            report = Report(
                fitted.model,
                X,
                y,
                contexts,
                title=f"{asked.target} by {context}",
                settings=settings,
                notes=(*fitted.remarks, *fitted.warned),
                progress=done,
                **options,
            )
            comparison, warned = recording(lambda: report.comparison)
        self.progress.note(*warned, comparison.decisive.headroom.verdict, *fitted.ties, *comparison.too_good)
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
    mix = Mix(shares=dict.fromkeys(labels, 1.0 / len(labels)), radius=0.0) if METHODS[method].balanced else None
    # References are of use to whoever reads the model, whatever it was fitted by.
    switches: dict[str, Any] = {"draws": None, "adjust": None, "mix": mix}
    switches |= {"criterion": "risk"} if method == "minimax-risk" else {}
    switches |= {"confidence": 1.0} if METHODS[method].confidence == 1.0 else {"radius": 0.0}
    return clone(model).set_params(**{f"model__{name}": value for name, value in switches.items()})


def _held_out_risks(comparison: Comparison, models: Mapping[str, Pipeline]) -> dict[str, NDArray[Any]]:
    """Return the risk of every context under each model on rows held out, NaN where none was."""
    risks = {}
    for method, model in models.items():
        own = comparison.decisive.by_context.where(method=method)
        known = dict(zip(map(plain, own["context"].tolist()), own["risk"].tolist(), strict=True))
        labels = innermost(model).contexts_.tolist()
        risks[method] = np.array([known.get(plain(label), np.nan) for label in labels])
    return risks


def _promises(
    comparison: Comparison, models: Mapping[str, Pipeline], fitted: Fitted
) -> dict[str, dict[str, NDArray[Any]]]:
    """Return how sure the risks on rows held out are, and the same in the loss by which a model is watched.

    NaN where a context has no two units.
    """
    judged, promises = comparison.decisive, {}
    place = {plain(label): k for k, label in enumerate(judged.held_out.contexts.labels.tolist())}
    for method, model in models.items():
        own, outcome = innermost(model), judged.outcomes[method]
        columns = {"held_out": outcome.losses}
        if fitted.task == "count" or fitted.target.log:
            rows = Judged.of(judged.y, outcome.predicted)
            columns["promised"] = watch_losses(task_of(own), rows, float(getattr(own, "delta", 1.35)))
        means = judged.held_out.pairs(np.column_stack(list(columns.values())))
        error = np.where(means.n_units[:, None] > 1, means.error, np.nan)
        # A context that the comparison does not have comes last.
        at = [place.get(plain(label), -1) for label in own.contexts_.tolist()]
        mean, error = (np.vstack([one, np.full(len(columns), np.nan)])[at] for one in (means.mean, error))
        promises[method] = {"held_out_errors": error[:, 0]}
        if "promised" in columns:
            promises[method] |= {"promised_risks": mean[:, 1], "promised_errors": error[:, 1]}
    return promises


def _fitting(method: str) -> str:
    """Return what is being done, in words."""
    return "fitting" if method == "robust" else f"fitting {MODELS[method]}"


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
