"""A model from a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from counterpoise.cli import _options as options
from counterpoise.cli._base import Speaker, app, calm, spoken, tell


@app.command()
@spoken("Nothing was written.")
def fit(
    file: options.File,
    target: options.Target,
    context: options.Context,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the model, its report and its metrics.")],
    task: options.TaskName = "auto",
    drop: options.Drop = None,
    only: options.Only = None,
    group: options.Group = None,
    confidence: options.Confidence = 0.99,
    radius: options.Radius = "types",
    draws: options.Draws = None,
    score: options.Score = "excess",
    alpha: options.Alpha = 1e-3,
    reference: options.ReferenceName = "cross-fit",
    quantile: options.Quantile = 0.5,
    delta: options.Delta = 1.35,
    folds: options.Folds = 5,
    jobs: options.Jobs = 1,
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

    Then: `counterpoise predict model/ new.csv -o predicted.csv`, for which no context is needed.
    """
    from counterpoise.files import check_output_folder, whole_folder
    from counterpoise.reading import read_table
    from counterpoise.report import Report
    from counterpoise.tabular.fitting import pose
    from counterpoise.tabular.saved import FILES, SavedModel
    from counterpoise.tabular.task import RISKS

    speaker = Speaker(quiet, verbose)
    switches = options.model_switches(task, confidence, radius, draws, score, alpha, reference, quantile, delta)
    check_output_folder(out, FILES, force)
    with speaker.step("reading"):
        data = read_table(file)
        problem = pose(data, target, context, task=task, drop=drop or (), only=only or (), group=group, **switches)
    speaker.notes(problem.notes)
    size = problem.X.num_rows * problem.X.num_columns
    with calm(size), speaker.step("fitting"):
        model, warned = problem.fitted()
    speaker.notes(warned)
    report = Report(
        model,
        problem.X,
        problem.y,
        problem.contexts,
        title=f"{target} by {' x '.join(context)}",
        settings={
            "file": f"{file.name} ({data.n_rows:,} rows, fingerprint {data.fingerprint})",
            "target": f"{target} ({problem.target.task})",
            "context": " x ".join(context),
            "features": f"{len(problem.columns.features)}: {', '.join(problem.columns.features)}",
        },
        notes=(*problem.notes[1:], *warned),
        cv=folds,
        groups=problem.groups,
        n_jobs=options.checked_jobs(jobs),
        risk=RISKS[problem.target.task],
    )
    with calm(size), speaker.step("comparing with the baselines, on held-out rows"):
        speaker.warnings_of(lambda: report.comparison)
    with calm(size), speaker.step("following the path of confidence"):
        speaker.warnings_of(lambda: report.path)
    saved = SavedModel(model, problem.columns, target, problem.target.task)

    def write(folder: Path) -> None:
        saved.write(folder)
        (folder / "report.html").write_text(report.html, encoding="utf-8")
        metrics = json.dumps(report.metrics, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / "metrics.json").write_text(metrics, encoding="utf-8")

    with speaker.step("writing"):
        whole_folder(out, write)
    speaker.note(
        f"risk is the mean {RISKS[problem.target.task]} on held-out rows; excess risk is what a context loses because "
        "one model serves all"
    )
    if as_json:
        typer.echo(json.dumps({**report.metrics, "folder": str(out)}, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        tell(report.verdict)
        tell(f"The model is in {out}; open {out / 'report.html'}")
