"""Robust learning beside its baselines."""

from __future__ import annotations

from typing import Any

from counterpoise.cli import _options as options
from counterpoise.cli._base import Speaker, app, spoken, tell, tell_json
from counterpoise.cli._cluster import Cluster, on_cluster
from counterpoise.threads import suited


@app.command()
@spoken("Nothing was written.")
def compare(
    file: options.File,
    target: options.Target,
    context: options.Context,
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
    reference: options.ReferenceName = "cross-fit",
    adjust: options.Adjust = "none",
    quantile: options.Quantile = 0.5,
    delta: options.Delta = 1.35,
    folds: options.Folds = 5,
    jobs: options.Jobs = 1,
    cluster: Cluster = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Cross-validate the robust model and its baselines, context by context, before choosing one.

    `counterpoise compare patients.csv --target disease --context hospital`

    Rows of one patient stay in one fold:

    `counterpoise compare visits.csv --target ill --context clinic --group patient --json`
    """
    from counterpoise.comparison import compare as compared
    from counterpoise.reading import read_table
    from counterpoise.tables import jsonable, plain_rows
    from counterpoise.tabular.fitting import pose

    speaker = Speaker(quiet, verbose)
    switches = options.model_switches(
        task, confidence, radius, draws, criterion, alpha, reference, quantile, delta, adjust
    )
    limit = options.checked_pool_below(pool_below)
    with speaker.step("reading"):
        data = read_table(file)
        roles: dict[str, Any] = {"task": task, "drop": drop or (), "only": only or (), "group": group}
        problem = pose(data, target, context, pool_below=limit, **roles, **switches)
    speaker.notes(problem.notes)
    n_jobs = options.checked_jobs(jobs) if cluster is None else -1
    with on_cluster(cluster), suited(problem.X.num_rows * problem.X.num_columns), speaker.step("comparing"):
        comparison = speaker.warnings_of(
            lambda: compared(
                problem.X,
                problem.y,
                problem.contexts,
                estimator=problem.model,
                cv=folds,
                groups=problem.groups,
                n_jobs=n_jobs,
            )
        )
    if as_json:
        result = {
            "verdict": comparison.verdict,
            "methods": plain_rows(comparison.summary),
            "contexts": plain_rows(comparison.by_context),
            "brackets": plain_rows(comparison.brackets),
            "radius_bits": jsonable(comparison.radius),
            "notes": list(problem.notes),
        }
        tell_json(result)
    else:
        tell(str(comparison))
