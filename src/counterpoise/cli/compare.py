"""Robust learning beside its baselines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoise.cli import _options as options
from counterpoise.cli._base import NOT_BY_HALVES, Speaker, app, as_text, spoken, tell, tell_json
from counterpoise.cli._cluster import Cluster, on_cluster

if TYPE_CHECKING:
    from counterpoise.judging.comparison import Comparison


@app.command()
@options.grouped
@spoken(NOT_BY_HALVES)
def compare(
    file: options.File,
    columns: options.Columns,
    model: options.JudgedModel,
    folds: options.Folds = 5,
    cuts: options.Cuts = 4,
    gap: options.Gap = None,
    thorough: options.Thorough = False,
    jobs: options.Jobs = 1,
    cluster: Cluster = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write the result as JSON.", show_default="no file")
    ] = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
    *,
    speaker: Speaker,
) -> None:
    """Compare the robust model with its baselines on held-out rows, context by context, before choosing one.

    `counterpoise compare patients.csv --target disease --context hospital`

    Also fit to the past and judge on later months:

    `counterpoise compare sales.csv --target units --context store --time day`

    Leave out hospitals with fewer than 20 patients, and use the month and weekday of admission as features:

    `counterpoise compare patients.csv --target disease --context hospital --min-rows 20 --date admitted=month,weekday`

    Keep the rows of a patient in one fold:

    `counterpoise compare visits.csv --target ill --context clinic --group patient -o comparison.json`
    """
    from counterpoise.files import check_output, whole
    from counterpoise.judging.comparison import compare as compared
    from counterpoise.table import plain_rows
    from counterpoise.tables.tabular.encoding import coded
    from counterpoise.tables.tabular.fitting import read_problem
    from counterpoise.tables.tabular.model_folder import Validation

    if out is not None:
        check_output(out, force)
    n_jobs = options.checked_jobs(jobs, cluster)
    validation = Validation(folds=folds, cuts=cuts, gap=options.checked_gap(gap), thorough=thorough)
    problem = read_problem(file, columns.asked(model, columns.target), speaker)
    validation.check(problem.asked.time)
    X, y, contexts, groups, times = problem.sample(validation.most_rows(problem.X))
    if len(y) < len(problem.y):
        speaker.note(
            f"methods are compared on {len(y):,} of {len(problem.y):,} rows, drawn at random; --thorough takes all"
        )
    with on_cluster(cluster), problem.suited(), speaker.step("comparing") as done:
        comparison = speaker.warnings_of(
            lambda: compared(
                coded(X, problem.columns.categories),
                y,
                contexts,
                estimator=problem.model if len(y) == len(problem.y) else problem.sized_by_all(),
                groups=groups,
                context_known=problem.why_known or False,
                log_target=problem.target.log,
                n_jobs=n_jobs,
                progress=done,
                **validation.of(times),
            )
        )
    speaker.note(*problem.ties, *comparison.too_good)
    if as_json or out is not None:
        result = {
            "verdict": comparison.verdict,
            "kept": comparison.chosen,
            "measures": plain_rows(comparison.measures),
            "changes": plain_rows(comparison.changes),
            **({} if comparison.forward is None else _later(comparison)),
            "methods": plain_rows(comparison.summary),
            "contexts": plain_rows(comparison.by_context),
            "brackets": plain_rows(comparison.brackets),
            **_mixes(comparison),
            "counts": plain_rows(problem.contexts_counted),
            "features": {"numbers": list(problem.columns.numbers), "categories": list(problem.columns.categories)},
            "notes": list(problem.notes),
        }
    if as_json:
        tell_json(result)
    else:
        tell(str(comparison))
        tell(f"\n{problem.described}")
    if out is not None:
        check_output(out, force)
        whole(out, lambda path: path.write_text(f"{as_text(result)}\n", encoding="utf-8"))
        if not as_json:
            tell(f"The result is in {out}.")


def _later(comparison: Comparison) -> dict[str, Any]:
    """Return what later rows say, and what changed."""
    from counterpoise.table import plain_rows

    forward, drift = comparison.forward, comparison.drift
    assert forward is not None
    assert forward.blocks is not None
    changed = {} if drift is None else {"verdict": drift.words, "new_share": drift.new_share}
    return {
        "agreement": comparison.agreement,
        "later": {
            "rows": forward.validation,
            "measures": plain_rows(forward.measures),
            "changes": plain_rows(forward.changes),
            "methods": plain_rows(forward.summary),
            "contexts": plain_rows(forward.by_context),
            "blocks": plain_rows(forward.blocks),
        },
        "drift": changed | ({} if drift is None else {"methods": plain_rows(drift.table)}),
    }


def _mixes(comparison: Comparison) -> dict[str, Any]:
    """Return what the set of plausible mixes is, and every share in the data, in the set and in its worst mix."""
    import numpy as np

    from counterpoise.inference.worst_mix import WorstMix
    from counterpoise.sets import KLBall, ball_of, radius_of, share_intervals
    from counterpoise.table import Table, jsonable, plain_rows

    mixes, rows = comparison.mixes, comparison.by_context.where(method="robust")
    excess = rows["excess"]
    known = np.isfinite(excess)
    worst = np.full(len(excess), np.nan)
    if known.any():
        worst = WorstMix(mixes, known[:, None]).solve(excess[None, :, None])[1][0, :, 0]
    radius = jsonable(radius_of(mixes))
    # Contexts without judged rows follow the others.
    allowed = share_intervals(mixes)[: len(excess)]
    shares = Table.of(
        context=rows["context"],
        share=rows["n"] / rows["n"].sum(),
        low=allowed[:, 0],
        high=allowed[:, 1],
        worst=worst,
    )
    return {
        "radius_bits": radius if isinstance(ball_of(mixes), KLBall) else None,
        "mixes": {
            "holds": "every mix" if mixes.is_simplex else f"every mix {mixes.where}",
            "radius": radius,
            "shares": plain_rows(shares),
        },
    }
