"""A model from a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterpoise.cli import _options as options
from counterpoise.cli._base import NOT_BY_HALVES, Speaker, app, spoken, tell, tell_json
from counterpoise.cli._cluster import Cluster, on_cluster


@app.command()
@options.grouped
@spoken(NOT_BY_HALVES)
def fit(
    file: options.File,
    columns: options.Columns,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write the model, its report and its metrics to.")],
    model: options.FittedModel,
    method: Annotated[
        str,
        typer.Option(
            metavar="best|robust|erm|inverse-frequency|minimax-risk|minimax-regret",
            help="Method whose model is kept; best lets later or held-out rows decide, and keeps erm when in doubt.",
        ),
    ] = "best",
    folds: options.Folds = 5,
    cuts: options.Cuts = 4,
    gap: options.Gap = None,
    thorough: options.Thorough = False,
    jobs: options.Jobs = 1,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Maximum memory to use, such as 2GB; a table that needs more is read in chunks.",
            show_default="free memory",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="File from which an interrupted fit in chunks resumes; removed at the end."),
    ] = None,
    cluster: Cluster = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
    *,
    speaker: Speaker,
) -> None:
    """Fit a model that serves every context, and write it with a report to pass on.

    Predict who is ill when the mix of hospitals may change:

    `counterpoise fit patients.csv --target disease --context hospital --out model/`

    The 90% quantile of demand. Rows of one day share its weather, so there are fewer draws of the weather than rows:

    `counterpoise fit sales.parquet --target units --task quantile --quantile 0.9 --context weather --group day
    -o model/`

    Pool kinds of weather that occurred on fewer than 30 days:

    `counterpoise fit hours.csv --target hires --context weather --group day --pool-below 30 -o model/`

    Fit to past sales, judge on later months, and keep the method that does best there:

    `counterpoise fit sales.csv --target units --context store --time day --gap 7d -o model/`

    Prices with relative errors; a postcode is a category, and the date becomes month, weekday and trend:

    `counterpoise fit homes.csv --target price --log-target --category postcode --date sold --context city -o model/`

    A folder of files that together do not fit into memory:

    `counterpoise fit visits/ --target ill --context clinic --memory 4GB --out model/`

    Then `counterpoise predict model/ new.csv -o predicted.csv`, which needs no contexts.
    """
    from counterpoise.tables.tabular.model_folder import ModelFolder, Validation

    report = ModelFolder(
        folder=out,
        progress=speaker,
        force=force,
        n_jobs=options.checked_jobs(jobs, cluster),
        memory=options.checked_memory(memory),
        checkpoint=checkpoint,
        method=method,
        validation=Validation(folds=folds, cuts=cuts, gap=options.checked_gap(gap), thorough=thorough),
        workers=on_cluster(cluster),
    ).write(file, columns.asked(model, columns.target))
    if as_json:
        tell_json({**report.metrics, "folder": str(out)})
    else:
        tell(report.headline)
        if report.comparison.agreement:
            tell(report.comparison.agreement)
        tell(report.advice)
        tell(f"The model is in {out}; open {out / 'report.html'}")
