"""A page with a slider."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoise.cli import _options as options
from counterpoise.cli._base import NOT_BY_HALVES, Speaker, app, spoken, tell
from counterpoise.cli._sales import read_sales
from counterpoise.exceptions import InvalidInputError
from counterpoise.threads import suited

if TYPE_CHECKING:
    from counterpoise.explorer import Sweep


@app.command()
@spoken(NOT_BY_HALVES)
def explore(
    file: options.File,
    context: options.Context,
    target: Annotated[str | None, typer.Option(help="Column to be predicted.")] = None,
    demand: Annotated[str | None, typer.Option(help="For stock: column of the units asked for.")] = None,
    cost: Annotated[str | None, typer.Option(help="For stock: what a unit costs, a column or a number.")] = None,
    price: Annotated[str | None, typer.Option(help="For stock: what a unit sells for, a number or a column.")] = None,
    salvage: Annotated[float, typer.Option(help="For stock: what a unit left over brings.")] = 0.0,
    shortage: Annotated[float, typer.Option(help="For stock: what a unit of demand not met costs.")] = 0.0,
    integer: Annotated[bool, typer.Option("--integer", help="For stock: order whole units only.")] = False,
    currency: Annotated[str, typer.Option(help="For stock: what amounts are in, such as EUR.")] = "",
    period: Annotated[str, typer.Option(help="For stock: what a row is, such as day.")] = "row",
    task: options.TaskName = "auto",
    drop: options.Drop = None,
    only: options.Only = None,
    pool_below: options.PoolBelow = None,
    confidence: options.Confidence = 0.99,
    radius: options.Radius = "types",
    draws: options.Draws = None,
    alpha: options.Alpha = 1e-3,
    reference: options.ReferenceName = "cross-fit",
    quantile: options.Quantile = 0.5,
    delta: options.Delta = 1.35,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the page goes.")] = Path("explorer.html"),
    force: options.Force = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Write a page with a slider for confidence, on which one can see what robustness costs.

    A model of a table, at every level; with one or two features the page shows the decision itself:

    `counterpoise explore patients.csv --target disease --context hospital --only age --only pressure`

    An order for stock:

    `counterpoise explore sales.csv --demand units --cost unit_cost --price 12 --context weather`
    """
    from counterpoise.explorer import Explorer, stock_sweep, sweep
    from counterpoise.files import check_output

    speaker = Speaker(quiet, verbose)
    limit = options.checked_pool_below(pool_below)
    check_output(out, force)
    if (target is None) == (demand is None):
        raise InvalidInputError("name what the page is about: --target for a model, or --demand for stock.")
    if demand is not None:
        if cost is None or price is None:
            raise InvalidInputError("stock needs --cost and --price, columns or numbers.")
        from counterpoise.pooling import find_pool
        from counterpoise.stock.planning import plan_stock

        with speaker.step("reading"):
            data, sales = read_sales(file, demand, cost, price, context, None)
            pool = None if limit is None else find_pool(sales["contexts"], limit)
            if pool is not None:
                sales["contexts"] = pool.relabel(sales["contexts"])
                speaker.note(pool.note)
        terms: dict[str, Any] = {"salvage": salvage, "shortage": shortage, "integer": integer}
        terms |= {"currency": currency, "period": period}
        with speaker.step("solving at every level"):
            sized: dict[str, Any] = {"confidence": confidence, "radius": options.checked_radius(radius), "draws": draws}
            plan = plan_stock(**sales, **terms, **sized)
            swept = stock_sweep(plan.plans[0], plan.money)
        speaker.notes(plan.notes)
        title = f"How much to order, by {' x '.join(context)}"
    else:
        from counterpoise.reading import read_table
        from counterpoise.tabular.fitting import pose

        assert target is not None
        switches = options.model_switches(task, confidence, radius, draws, "excess", alpha, reference, quantile, delta)
        with speaker.step("reading"):
            data = read_table(file)
            roles: dict[str, Any] = {"task": task, "drop": drop or (), "only": only or ()}
            problem = pose(data, target, context, pool_below=limit, **roles, **switches)
        pool = problem.pool
        speaker.notes(problem.notes)

        def solved() -> Sweep:
            return sweep(problem.model, problem.X, problem.y, problem.contexts)

        with suited(problem.X.num_rows * problem.X.num_columns), speaker.step("solving at every level"):
            swept = speaker.warnings_of(solved)
        title = f"{target} by {' x '.join(context)}"
    settings: dict[str, Any] = {
        "file": f"{file.name} ({data.n_rows:,} rows, fingerprint {data.fingerprint})",
        "contexts": " x ".join(context),
    }
    if pool is not None:
        settings["pooled"] = pool.note
    with speaker.step("writing"):
        Explorer(swept, title, settings).save(out, force)
    tell(f"The page is in {out}; open it in a browser, or mail it.")
