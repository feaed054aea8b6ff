"""A page with a slider."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoise.cli import _options as options
from counterpoise.cli._base import NOT_BY_HALVES, Speaker, app, spoken, tell
from counterpoise.cli._sales import Sized, read_sales, sized_plan
from counterpoise.exceptions import InvalidInputError

if TYPE_CHECKING:
    from counterpoise.reports.explorer import Sweep
    from counterpoise.tables.pooling import Pool
    from counterpoise.tables.reading import DataFile
    from counterpoise.tables.tabular.columns import Asked


@app.command()
@options.grouped
@spoken(NOT_BY_HALVES)
def explore(
    file: options.File,
    *,
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    demand: Annotated[str | None, typer.Option(help="For stock: column of the demand, in units.")] = None,
    cost: Annotated[str | None, typer.Option(help="For stock: what a unit costs, a column or a number.")] = None,
    price: Annotated[str | None, typer.Option(help="For stock: what a unit sells for, a number or a column.")] = None,
    salvage: Annotated[float, typer.Option(help="For stock: value of a unit left over.")] = 0.0,
    shortage: Annotated[float, typer.Option(help="For stock: cost of a unit of unmet demand.")] = 0.0,
    integer: Annotated[bool, typer.Option("--integer", help="For stock: order whole units only.")] = False,
    currency: Annotated[str, typer.Option(help="For stock: currency of the amounts, such as EUR.")] = "",
    period: Annotated[str, typer.Option(help="For stock: what a row stands for, such as day.")] = "row",
    folds: Annotated[int, typer.Option(help="Folds used to judge every level on held-out rows; 0 skips this.")] = 3,
    columns: options.FeatureColumns,
    model: options.Model,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write the page to.")] = Path("explorer.html"),
    thorough: options.Thorough = False,
    force: options.Force = False,
    speaker: Speaker,
) -> None:
    """Write a page with a slider for the confidence level that shows what robustness costs.

    A model at every level; with one or two features, the page also shows the predictions:

    `counterpoise explore patients.csv --target disease --context hospital --only age --only pressure`

    An order for stock:

    `counterpoise explore sales.csv --demand units --cost unit_cost --price 12 --context weather`
    """
    from counterpoise.files import check_output
    from counterpoise.reports.explorer import Explorer

    limit = options.checked_pool_below(columns.pool_below)
    check_output(out, force)
    if (target is None) == (demand is None):
        raise InvalidInputError("name what the page is about: --target for a model, or --demand for stock.")
    by = " x ".join(columns.context)
    if target is not None:
        swept, data, pool = _model_sweep(file, columns.asked(model, target), folds or None, thorough, speaker)
        title = f"{target} by {by}"
    else:
        if cost is None or price is None:
            raise InvalidInputError("stock needs --cost and --price, columns or numbers.")
        columns.refuse_features()
        assert demand is not None
        with speaker.step("reading"):
            data, sales = read_sales(file, demand, cost, price, columns.context, None, columns.group, columns.time)
        terms: dict[str, Any] = {"salvage": salvage, "shortage": shortage, "integer": integer}
        terms |= {"currency": currency, "period": period, "confidence": model.confidence}
        terms |= {"radius": options.checked_radius(model.radius)}
        known = model.known_mix(columns.context)
        draws = options.checked_draws(model.draws)
        sized = Sized(draws, columns.group, columns.time, tuple(columns.context), known)
        swept, pool = _stock_sweep(sales, sized, terms, limit, speaker)
        title = f"How much to order, by {by}"
    settings: dict[str, Any] = {
        "file": f"{file.name} ({data.n_rows:,} rows, fingerprint {data.fingerprint})",
        "contexts": by,
    }
    if pool is not None:
        settings["pooled"] = pool.note
    with speaker.step("writing"):
        Explorer(swept, title, settings).save(out, force)
    tell(f"The page is in {out}; open it in a browser, or mail it.")


def _model_sweep(
    file: Path, asked: Asked, cv: int | None, thorough: bool, speaker: Speaker
) -> tuple[Sweep, DataFile, Pool | None]:
    """Solve a model of a table at every level."""
    from counterpoise.reports.explorer import sweep
    from counterpoise.tables.tabular.fitting import read_problem
    from counterpoise.tables.tabular.model_folder import Validation

    problem = read_problem(file, asked, speaker)
    X, y, contexts, _, _ = problem.sample(Validation(thorough=thorough).most_rows(problem.X))
    model = problem.model if len(y) == len(problem.y) else problem.sized_by_all()
    if len(y) < len(problem.y):
        speaker.note(f"the page is of {len(y):,} of {len(problem.y):,} rows, drawn at random; --thorough takes all")
    with problem.suited(), speaker.step("solving at every level"):
        swept = speaker.warnings_of(lambda: sweep(model, X, y, contexts, cv=cv))
    return swept, problem.data, problem.pool


def _stock_sweep(
    sales: dict[str, Any], sized: Sized, terms: dict[str, Any], pool_below: int | None, speaker: Speaker
) -> tuple[Sweep, Pool | None]:
    """Choose an order at every level."""
    from counterpoise.reports.explorer import stock_sweep
    from counterpoise.tables.pooling import find_pool

    pool = None if pool_below is None else find_pool(sales["contexts"], pool_below)
    if pool is not None:
        sales = {**sales, "contexts": pool.relabel(sales["contexts"])}
        speaker.note(pool.note)
    with speaker.step("solving at every level"):
        plan = sized_plan(sales, sized, pool, **terms)
        swept = stock_sweep(plan.plans[0], plan.money)
    speaker.note(*plan.notes)
    return swept, pool
