"""A model from a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoise.cli import _options as options
from counterpoise.cli._base import NOT_BY_HALVES, Speaker, app, spoken, tell, tell_json
from counterpoise.cli._cluster import Cluster, on_cluster
from counterpoise.threads import suited

if TYPE_CHECKING:
    from counterpoise.reading import TableOnDisk
    from counterpoise.rows import Blocks
    from counterpoise.tabular.fitting import Fitted


@app.command()
@spoken(NOT_BY_HALVES)
def fit(
    file: options.File,
    target: options.Target,
    context: options.Context,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the model, its report and its metrics.")],
    task: options.TaskName = "auto",
    drop: options.Drop = None,
    only: options.Only = None,
    group: options.Group = None,
    pool_below: options.PoolBelow = None,
    confidence: options.Confidence = 0.99,
    radius: options.Radius = "types",
    draws: options.Draws = None,
    criterion: options.Criterion = "excess",
    score: options.Score = None,
    alpha: options.Alpha = 1e-3,
    reference: options.MaybeReferenceName = None,
    adjust: options.Adjust = "none",
    quantile: options.Quantile = 0.5,
    delta: options.Delta = 1.35,
    folds: options.Folds = 5,
    jobs: options.Jobs = 1,
    memory: options.Memory = None,
    checkpoint: options.Checkpoint = None,
    cluster: Cluster = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Fit a model that serves every context, and write it with a report that can be sent on.

    Who is ill, when the mix of hospitals may change:

    `counterpoise fit patients.csv --target disease --context hospital --out model/`

    Demand by its 90% quantile; 400 rows on 20 days are 20 draws of the weather:

    `counterpoise fit sales.parquet --target units --task quantile --quantile 0.9 --context weather --draws 20
    -o model/`

    Weather that was seen on fewer than 30 days, pooled:

    `counterpoise fit hours.csv --target hires --context weather --group day --pool-below 30 -o model/`

    A folder of files that together are more than fits into memory:

    `counterpoise fit visits/ --target ill --context clinic --memory 4GB --out model/`

    Then: `counterpoise predict model/ new.csv -o predicted.csv`, for which no context is needed.
    """
    from counterpoise.files import check_output_folder, whole_folder
    from counterpoise.reading import open_table
    from counterpoise.report import Report
    from counterpoise.rows.recorded import check_checkpoint
    from counterpoise.tabular.fitting import Roles
    from counterpoise.tabular.saved import FILES, SavedModel
    from counterpoise.tabular.task import RISKS

    speaker = Speaker(quiet, verbose)
    least = reference or "cross-fit"
    switches = options.model_switches(task, confidence, radius, draws, criterion, alpha, least, quantile, delta, adjust)
    n_jobs = options.checked_jobs(jobs) if cluster is None else -1
    limit = options.checked_pool_below(pool_below)
    allowed = None if memory is None else options.checked_memory(memory)
    check_output_folder(out, FILES, force)
    if checkpoint is not None:
        check_checkpoint(checkpoint)
    table = open_table(file)
    if drop or only:
        roles = Roles.of(table.path, table.names, target, context, drop or (), only or (), group)
        table = table.only(roles.needed(table.names))
    budget = _budget_of_chunks(table, allowed, speaker)
    if budget is not None and reference is None:
        switches["reference"] = "in-sample"
    asked: dict[str, Any] = {"task": task, "drop": drop or (), "only": only or (), "group": group, "pool_below": limit}
    asked |= switches
    fitted = _fitted(table, budget, target, context, asked, checkpoint, speaker)
    settings = {
        "file": f"{table.path.name} ({fitted.n_rows:,} rows, fingerprint {table.fingerprint})",
        "target": f"{target} ({fitted.task})",
        "context": " x ".join(context),
        "features": f"{len(fitted.columns.features)}: {', '.join(fitted.columns.features)}",
    }
    if fitted.pool is not None:
        settings["pooled"] = fitted.pool.note
    if fitted.n_fitted is not None:
        settings["read"] = f"in chunks; {fitted.n_passes} passes over the rows on disk to fit the model"
    notes = (*fitted.notes[1:], *fitted.warned)
    report = Report(
        fitted.model,
        fitted.X,
        fitted.y,
        fitted.contexts,
        title=f"{target} by {' x '.join(context)}",
        settings=settings,
        notes=notes,
        cv=folds,
        groups=fitted.groups,
        n_jobs=n_jobs,
        risk=RISKS[fitted.task],
        n_rows=fitted.n_fitted,
    )
    size = fitted.X.num_rows * fitted.X.num_columns
    with on_cluster(cluster), suited(size), speaker.step("comparing with the baselines, on held-out rows"):
        speaker.warnings_of(lambda: report.comparison)
    with suited(size), speaker.step("following the path of confidence"):
        speaker.warnings_of(lambda: report.path)
    pooled = None if fitted.pool is None else fitted.pool.described
    saved = SavedModel(fitted.model, fitted.columns, target, fitted.task, pooled)

    def write(folder: Path) -> None:
        saved.write(folder)
        (folder / "report.html").write_text(report.html, encoding="utf-8")
        metrics = json.dumps(report.metrics, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / "metrics.json").write_text(metrics, encoding="utf-8")

    with speaker.step("writing"):
        whole_folder(out, write, lambda: check_output_folder(out, FILES, force))
    speaker.note(
        f"risk is the mean {RISKS[fitted.task]} on held-out rows; excess risk is what a context loses because one "
        "model serves all"
    )
    if as_json:
        tell_json({**report.metrics, "folder": str(out)})
    else:
        tell(report.verdict)
        tell(f"The model is in {out}; open {out / 'report.html'}")


def _budget_of_chunks(table: TableOnDisk, allowed: float | None, speaker: Speaker) -> float | None:
    """Return how much memory may be used where a table needs more, and say so; None where it may be read as it is."""
    from counterpoise.reading.memory import in_words, memory_budget, needed

    free = 2.0 * memory_budget() if allowed is None else allowed
    size = needed(table.size)
    if size <= free:
        return None
    speaker.note(
        f"{table.path.name} takes about {in_words(size)} of memory to fit and {in_words(free)} may be used: it is read "
        "in chunks"
    )
    return memory_budget() if allowed is None else allowed


def _fitted(
    table: TableOnDisk,
    budget: float | None,
    target: str,
    context: list[str],
    asked: dict[str, Any],
    checkpoint: Path | None,
    speaker: Speaker,
) -> Fitted:
    """Fit a model, in memory or with so much of it."""
    from counterpoise.tabular.fitting import pose
    from counterpoise.tabular.large import pose_large

    if budget is None:
        if checkpoint is not None:
            speaker.note("the table fits into memory, so there is nothing to keep in a checkpoint")
        with speaker.step("reading"):
            problem = pose(table.read(), target, context, **asked)
        speaker.notes(problem.notes)
        with suited(problem.X.num_rows * problem.X.num_columns), speaker.step("fitting"):
            fitted = problem.fit()
        speaker.notes(fitted.warned)
        return fitted
    with speaker.step("looking through all rows"):
        large = pose_large(table, target, context, budget, **asked)
    speaker.notes(large.notes)
    with speaker.step("fitting"):
        fitted = large.fit() if checkpoint is None else large.fit(_recording(checkpoint, table, asked))
    notes = [
        f"the model is of all {large.survey.n_kept:,} rows, read in chunks; baselines and the path of confidence are "
        f"of {len(fitted.y):,} of them, drawn at random"
    ]
    if asked["reference"] == "in-sample" and asked["criterion"] == "excess":
        notes.append("the least risk of each context is in sample: held-out rows would have to be in memory")
    notes += _unseen(fitted)
    speaker.notes((*fitted.warned, *notes))
    return replace(fitted, notes=(*fitted.notes, *notes))


def _recording(path: Path, table: TableOnDisk, asked: dict[str, Any]) -> Callable[[Blocks], Blocks]:
    """Return what keeps the answer of every pass, for a fit that is cut short and begun again."""
    from counterpoise.rows.recorded import Recorded

    fingerprint = repr((table.fingerprint, sorted(asked.items()))).encode()
    return lambda blocks: Recorded(blocks, path, fingerprint)


def _unseen(fitted: Fitted) -> list[str]:
    """Say which contexts have no row in a sample."""
    from counterpoise.contexts import plain, shown
    from counterpoise.learners import innermost

    seen = {plain(label) for label in fitted.contexts.tolist()}
    labels = innermost(fitted.model).contexts_.tolist()
    unseen = [shown(label) for label in labels if plain(label) not in seen]
    if not unseen:
        return []
    more = f" and {len(unseen) - 3} more" if len(unseen) > 3 else ""
    return [
        f"no row of {', '.join(f'{one:.40}' for one in unseen[:3])}{more} was drawn; the model knows them all the same"
    ]
