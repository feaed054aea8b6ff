"""Robust learning beside its baselines."""

from __future__ import annotations

from counterpoise.cli import _options as options
from counterpoise.cli._base import Speaker, app, spoken, tell, tell_json
from counterpoise.cli._cluster import Cluster, on_cluster


@app.command()
@options.grouped
@spoken("Nothing was written.")
def compare(
    file: options.File,
    columns: options.Columns,
    model: options.JudgedModel,
    folds: options.Folds = 5,
    jobs: options.Jobs = 1,
    cluster: Cluster = None,
    as_json: options.AsJson = False,
    *,
    speaker: Speaker,
) -> None:
    """Cross-validate the robust model and its baselines, context by context, before choosing one.

    `counterpoise compare patients.csv --target disease --context hospital`

    Rows of one patient stay in one fold:

    `counterpoise compare visits.csv --target ill --context clinic --group patient --json`
    """
    from counterpoise.judging.comparison import compare as compared
    from counterpoise.sets import radius_of
    from counterpoise.table import jsonable, plain_rows
    from counterpoise.tables.tabular.fitting import read_problem

    n_jobs = options.checked_jobs(jobs, cluster)
    problem = read_problem(file, columns.asked(model, columns.target), speaker)
    with on_cluster(cluster), problem.suited(), speaker.step("comparing"):
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
            "radius_bits": jsonable(radius_of(comparison.mixes)),
            "notes": list(problem.notes),
        }
        tell_json(result)
    else:
        tell(str(comparison))
