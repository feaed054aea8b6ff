"""How much to order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoise.cli._base import NOT_BY_HALVES, app, say, spoken, tell, tell_json
from counterpoise.cli._options import (
    Confidence,
    Cuts,
    DrawsOption,
    Gap,
    Group,
    MixFrom,
    Radius,
    SetOption,
    Share,
    Time,
    checked_draws,
    checked_gap,
    checked_radius,
    known_mix,
)
from counterpoise.cli._sales import Sized, date_column, read_sales, sized_plan
from counterpoise.exceptions import InvalidInputError

if TYPE_CHECKING:
    from counterpoise.stock.plans import StockPlan

_NOTES = 10
_SHOWN = 5
"""Products whose reasons are printed; the report and ``--json`` hold more."""


@app.command()
@spoken(NOT_BY_HALVES)
def stock(
    file: Annotated[Path, typer.Argument(help="Past sales, one row per selling period: csv, parquet or arrow.")],
    demand: Annotated[str, typer.Option(help="Column of the demand, in units.")],
    cost: Annotated[str, typer.Option(help="What a unit costs: a column, or a number.")],
    price: Annotated[str, typer.Option(help="What a unit sells for: a number, or a column.")],
    context: Annotated[list[str], typer.Option(help="Column of the circumstances; repeat to cross several columns.")],
    product: Annotated[
        list[str] | None,
        typer.Option(help="Column of the products, each with its own order; repeat to cross several columns."),
    ] = None,
    salvage: Annotated[float, typer.Option(help="Value of a unit left over.")] = 0.0,
    shortage: Annotated[float, typer.Option(help="Cost of a unit of unmet demand, beside the lost sale.")] = 0.0,
    max_stock: Annotated[float | None, typer.Option(help="Largest order of one product.")] = None,
    capacity: Annotated[float | None, typer.Option(help="Largest order of all products together.")] = None,
    integer: Annotated[bool, typer.Option("--integer", help="Order whole units only.")] = False,
    confidence: Confidence = 0.99,
    radius: Radius = "calibrated",
    draws: DrawsOption = None,
    share: Share = None,
    mix_from: MixFrom = None,
    ball: SetOption = "kl",
    group: Group = None,
    time: Time = None,
    cuts: Cuts = 4,
    gap: Gap = None,
    known: Annotated[
        list[str] | None,
        typer.Option(help="Context column that is known when ordering; repeatable.", show_default="calendars"),
    ] = None,
    min_rows: Annotated[int, typer.Option(help="Refuse circumstances with fewer rows than this.")] = 2,
    currency: Annotated[str, typer.Option(help="Currency of the amounts, such as EUR.")] = "",
    period: Annotated[str, typer.Option(help="What a row stands for, such as day.")] = "row",
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write the report to.")] = Path("stock-report.html"),
    force: Annotated[bool, typer.Option("--force", help="Replace a report that exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Say how much to order when cost and demand depend on circumstances whose mix is uncertain.

    One order, whatever the weather will be; the weather is a column of the table:

    `counterpoise stock sales.csv --demand units --cost unit_cost --price 12 --context weather`

    An order for each product, in whole units, with amounts in euros per day:

    `counterpoise stock sales.parquet --demand units --cost 0.4 --price 1 --context store --product sku --integer
    --currency EUR --period day`

    What these orders would have earned in later periods:

    `counterpoise stock sales.csv --demand units --cost 0.4 --price 1 --context weekday --time date`
    """
    from counterpoise.contexts import encode
    from counterpoise.files import check_output, whole
    from counterpoise.judging.known_contexts import why_known
    from counterpoise.reports.stock import written

    check_output(out, force)
    mix = known_mix(share, mix_from, ball, context, draws)
    strange = [name for name in known or () if name not in context]
    if strange:
        raise InvalidInputError(f"--known names {strange[0]!r:.60}, which is no --context ({', '.join(context):.200}).")
    data, sales = read_sales(file, demand, cost, price, context, product, group, time)
    named = [demand, cost, price, *context, *(product or ()), group]
    dates = None if time is not None or as_json else date_column(file, named)
    plan = sized_plan(
        sales,
        Sized(checked_draws(draws), group, time, tuple(context), mix),
        validate=True,
        cuts=cuts,
        gap=checked_gap(gap),
        salvage=salvage,
        shortage=shortage,
        max_stock=max_stock,
        capacity=capacity,
        integer=integer,
        confidence=confidence,
        radius=checked_radius(radius),
        min_rows=min_rows,
        currency=currency,
        period=period,
    )
    settings = {
        "file": f"{file.name} ({data.n_rows:,} rows, fingerprint {data.fingerprint})",
        "demand, cost, price": f"{demand}, {cost}, {price}",
        "circumstances": " x ".join(context),
        "salvage, shortage": f"{salvage:g}, {shortage:g}",
        "confidence": f"{confidence:g}, radius {radius}" + (f", {draws} draws" if draws and draws != "rows" else ""),
        "limits": f"{_limit(max_stock)} of one product, {_limit(capacity)} of all"
        + (", whole units" if integer else ""),
    }
    if mix is not None and mix.census is not None:
        settings["mix from"] = mix.census.described
    if time is not None:
        settings["time"] = f"{time}, {cuts} cuts" + ("" if gap is None else f", a gap of {gap}")
    encoded = encode(sales["contexts"])
    by = " x ".join(context)
    why = why_known(encoded.labels, encoded.counts, by, known or (), when="ordering")
    page = written(plan, settings, circumstance=by, known=why)
    check_output(out, force)
    whole(out, lambda path: path.write_text(page, encoding="utf-8"))
    if as_json:
        tell_json({**_profit(plan, by, why), **_plain(plan), "settings": settings})
    else:
        _print(plan, by, why)
        if dates is not None:
            tell(f"Note: column {dates} holds dates; with --time {dates} orders are judged on later periods too.")
    say(f"The report is in {out}.")


def _limit(value: float | None) -> str:
    return "no limit" if value is None else f"{value:g}"


def _print(plan: StockPlan, by: str, why: str | None) -> None:
    from counterpoise.reports.stock import CHOICES, LEVELS, REASONS, aligned, earnings_table, plain_table

    judged = plan.backtest
    advised = "" if judged is None else judged.recommendation(by, why)
    if advised:
        tell(f"{advised}\n")
    if len(plan.plans) > 1 or judged is not None:
        tell(f"{plan.summary}\n")
    if judged is not None:
        for words in (*judged.headlines, judged.advice(by, why), *judged.notes):
            if words:
                tell(words)
        tell(f"\nHeld out (amounts in {plan.money.unit}):\n{aligned(earnings_table(judged))}\n")
    for one in plan.plans[:_SHOWN]:
        own = plan.only(one)
        if len(plan.plans) > 1 or plan.backtest is None:
            tell(f"{plan.verdict(one)}\n")
        tell(f"Why (amounts in {plan.money.unit}):\n{plain_table(plan, own.reasons, REASONS)}\n")
        tell(f"What other rules would order:\n{plain_table(plan, own.choices, CHOICES)}\n")
    if len(plan.plans) > _SHOWN:
        tell(f"All {len(plan.plans)} products:\n{plain_table(plan, plan.levels, LEVELS, most=200)}\n")
    for note in plan.notes[:_NOTES]:
        tell(f"Note: {note}")
    if len(plan.notes) > _NOTES:
        tell(f"Note: and {len(plan.notes) - _NOTES} more, in the report and in --json.")


def _profit(plan: StockPlan, by: str, why: str | None) -> dict[str, Any]:
    """Return what orders earn per period, first on periods held out, as what JSON can hold."""
    from counterpoise.table import jsonable, plain_rows

    profit: dict[str, Any] = {"unit": plan.money.unit, "summary": plan.summary}
    if plan.backtest is not None:
        judged = plan.backtest
        profit |= {
            "recommendation": judged.recommendation(by, why),
            "headlines": judged.headlines,
            "context_known": why,
            "one_order_per_context": judged.advice(by, why),
        }
        for kind, one in (("later", judged.later), ("shuffled", judged.shuffled)):
            if one is not None:
                parts = {"contexts": one.contexts, "products": one.products, "blocks": one.blocks}
                profit[kind] = {
                    "rows": one.n_rows,
                    "units": one.n_units,
                    "methods": plain_rows(one.methods),
                    **{name: plain_rows(part) for name, part in parts.items() if part is not None},
                }
        profit["notes"] = list(judged.notes)
    totals = {rule: plan.choices.where(rule=rule)["average_profit"].sum() for rule in ("robust", "erm")}
    profit["on_these_rows"] = {rule: jsonable(float(total)) for rule, total in totals.items()}
    return {"profit": profit}


def _plain(plan: StockPlan) -> dict[str, Any]:
    """Return a plan as what JSON can hold."""
    from counterpoise.contexts import shown
    from counterpoise.reports.stock import shares_of
    from counterpoise.table import jsonable, plain_rows

    return {
        "verdicts": [plan.verdict(one) for one in plan.plans],
        "levels": plain_rows(plan.levels),
        "reasons": plain_rows(plan.reasons),
        "choices": plain_rows(plan.choices),
        "notes": list(plan.notes),
        "money": {"currency": plan.money.currency, "period": plan.money.period},
        "capacity": jsonable(plan.capacity),
        "certificates": [
            {
                "product": None if one.product is None else shown(one.product),
                "lower": jsonable(one.orders["robust"].certificate.lower),
                "upper": jsonable(one.orders["robust"].certificate.upper),
                "radius_bits": jsonable(one.radius) if shares_of(one).unit == "bits" else None,
                "mixes": {name: value for name, value in shares_of(one).json.items() if name != "shares"},
                "charge": jsonable(one.charge),
            }
            for one in plan.plans
        ],
    }
