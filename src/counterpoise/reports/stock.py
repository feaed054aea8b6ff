"""A plan as a page: orders, reasons, and pictures of what other orders would cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import objects, shown
from counterpoise.exceptions import EmptySetError
from counterpoise.inference.intervals import interval_in
from counterpoise.judging.known_contexts import in_calendar_order
from counterpoise.reports.methods import COLOURS, WORDS
from counterpoise.reports.pages.document import page, table, versions
from counterpoise.reports.pages.lines import NAMED, Line, Mark, line_chart, lines_of
from counterpoise.reports.pages.words import Html
from counterpoise.reports.shares import Shares, allowed_words
from counterpoise.sets import RADIUS_TICKS, along_radii
from counterpoise.stock.earnings import StockBacktest
from counterpoise.stock.plans import ProductPlan, StockPlan, units
from counterpoise.table import Table

Array = NDArray[np.float64]

CHARTED = 12
"""Products that are drawn; the tables hold all."""

_NOTES = 20
_HEADINGS = 70
"""Letters of all names of contexts that fit beside each other."""

_ACROSS = 12
"""Contexts that fit side by side."""

_MARKED = ("robust", "erm", "minimax-risk")


def written(
    plan: StockPlan,
    settings: Mapping[str, Any] | None = None,
    *,
    circumstance: str = "circumstance",
    known: str | None = None,
) -> str:
    """Return a plan as one page of HTML that needs nothing else.

    Parameters
    ----------
    settings : mapping, optional
        What the plan was made from and with, listed at the end.
    circumstance : str
        What contexts are of, such as weekday.
    known : str, optional
        Why the context is known when ordering, or looks chosen, as a clause.
    """
    several = len(plan.plans) > 1
    shown_plans = sorted(plan.plans, key=lambda one: -_at_stake(one))[:CHARTED] if several else list(plan.plans)
    held = None if plan.backtest is None else _held_out(plan, plan.backtest, circumstance, known)
    single = not several and not (held and held["recommendation"])
    proofs = [one.orders["robust"].certificate for one in plan.plans]
    return page(
        "reports/stock.html",
        f"Order {units(plan.plans[0].order)}" if single else "How much to order",
        {**(settings or {}), **versions("numpy")},
        subtitle="A plan for an uncertain mix of circumstances",
        plan=plan,
        held=held,
        money=plan.money,
        proven={end: sum(getattr(proof, end) for proof in proofs) for end in ("upper", "lower")},
        most_notes=_NOTES,
        orders=table(plan.levels, **_styled(plan, LEVELS)) if several else "",
        products=[_product(plan, one) for one in shown_plans],
    )


def _held_out(plan: StockPlan, judged: StockBacktest, circumstance: str, known: str | None) -> dict[str, Any]:
    """Return what the page shows of periods held out."""
    final = judged.final
    products = final.products if len(plan.plans) > 1 else None
    parts = {"contexts": final.contexts, "blocks": final.blocks, "products": products}
    return {
        "sentences": [words for words in (judged.profit, judged.worst, judged.best) if words],
        "recommendation": judged.recommendation(circumstance, known),
        "agreement": judged.agreement,
        "advice": judged.advice(circumstance, known),
        "circumstance": circumstance,
        "informed": "" if known is None else _informed_orders(plan, circumstance),
        "notes": judged.notes,
        "later": judged.later is not None,
        "judged": f"{final.n_rows:,} rows at {final.n_units:,} times" if judged.later else f"{final.n_rows:,} rows",
        "methods": table(earnings_table(judged), caption=f"Profit in {plan.money.unit}", left=["method"]),
        "worst": table(worst_table(judged), caption=f"Where it is worst, in {plan.money.unit}", left=["method"]),
        **{name: "" if part is None else _profits(plan, part) for name, part in parts.items()},
    }


def _informed_orders(plan: StockPlan, circumstance: str) -> Html | str:
    """Return the best order of each context; side by side where there are several products and names are short."""
    contexts = in_calendar_order(dict.fromkeys(label for one in plan.plans for label in one.contexts.tolist()))
    if plan.capacity is not None:
        return ""
    own = [dict(zip(one.contexts.tolist(), one.stock.context_levels, strict=True)) for one in plan.plans]
    columns: dict[str, NDArray[Any]]
    if len(plan.plans) == 1:
        columns = {"context": objects(contexts), "order": np.array([own[0][label] for label in contexts])}
    elif len(contexts) <= _ACROSS and sum(len(shown(label)) for label in contexts) <= _HEADINGS:
        columns = {"product": objects([one.product for one in plan.plans])}
        columns |= {shown(label): np.array([found.get(label, np.nan) for found in own]) for label in contexts}
    else:
        pairs = [
            (one.product, label, found[label]) for one, found in zip(plan.plans, own, strict=True) for label in found
        ]
        columns = {
            "product": objects([product for product, _, _ in pairs]),
            "context": objects([label for _, label, _ in pairs]),
            "order": np.array([order for _, _, order in pairs]),
        }
    words = [name for name, column in columns.items() if column.dtype.kind == "O"]
    formats = {name: shown if name in words else units for name in columns}
    return table(Table(columns), formats=formats, left=words, headings={"context": circumstance})


def _profits(plan: StockPlan, profits: Table) -> Html:
    """Return profits of the methods by context, product or block."""
    names = {"context": shown, "product": shown, "first": _moment, "last": _moment}
    counts = ("rows", "trained_on")
    formats = {name: names.get(name, units if name in counts else plan.money.number) for name in profits}
    return table(
        profits,
        formats=formats,
        headings={"context": "circumstance", "first": "from", "last": "to", "trained_on": "rows before"},
        caption=f"Profit in {plan.money.unit}",
        left=list(names),
    )


def _moment(value: Any) -> str:
    """Return a time in words: a date where it is midnight."""
    return str(value).removesuffix(" 00:00:00").removesuffix("T00:00:00.000000")


def earnings_table(judged: StockBacktest) -> Table:
    """Return what every method earned, on later and on shuffled periods, in words."""
    return _by_kind(
        judged,
        {
            "profit": lambda row: judged.number(row["profit"]),
            "against erm": lambda row: (
                "–" if row["method"] == "erm" else judged.interval_words(interval_in(row, "gain"))
            ),
        },
    )


def worst_table(judged: StockBacktest) -> Table:
    """Return what every method earned and missed where that is worst, in words."""
    return _by_kind(
        judged,
        {
            "lowest profit": lambda row: (
                f"{judged.number(row['lowest_profit'])} ({shown(row['lowest_in']):.40}, {row['lowest_rows']:,} rows)"
            ),
            "in the worst mix": lambda row: judged.number(row["mix_profit"]),
            "missed in the worst mix": lambda row: judged.number(row["mix_missed"]),
        },
    )


def _by_kind(judged: StockBacktest, columns: Mapping[str, Callable[[Mapping[str, Any]], str]]) -> Table:
    """Return columns for later and for shuffled periods, side by side."""
    kinds = {"later": judged.later, "shuffled": judged.shuffled}
    kept = {kind: one for kind, one in kinds.items() if one is not None}
    cells: dict[str, list[str]] = {"method": judged.final.methods["method"].tolist()}
    for heading, words in columns.items():
        for kind, one in kept.items():
            cells[heading if len(kept) == 1 else f"{heading}, {kind}"] = [words(row) for row in one.methods.rows()]
    return Table({name: np.array(column, dtype=object) for name, column in cells.items()})


def _at_stake(plan: ProductPlan) -> float:
    """Return what the worst circumstance of a product loses under the order for the average."""
    return float(plan.excess(float(plan.orders["erm"].theta[0])).max())


def _product(plan: StockPlan, one: ProductPlan) -> dict[str, Any]:
    """Return what the page shows of one product."""
    own, charged = plan.only(one), one.charge > 0
    return {
        "name": f"{shown(one.product):.100}",
        "verdict": plan.verdict(one),
        "shares": shares_of(one),
        "proof": one.orders["robust"].certificate,
        "charged": charged,
        "reasons": table(_with_allowed(own.reasons), **_styled(plan, REASONS)),
        "choices": table(own.choices, **_styled(plan, CHOICES)),
        "curves": risk_curves(plan, one),
        "path": "" if charged else level_path(plan, one),
    }


def shares_of(one: ProductPlan) -> Shares:
    """Return the shares of circumstances in the set of a product."""
    return Shares(one.contexts, one.counts, one.robustness, one.orders["robust"].p_worst[: len(one.counts)])


def _with_allowed(reasons: Table) -> Table:
    """Return reasons with the interval of a share in words."""
    columns: dict[str, Any] = {}
    for name, column in reasons.items():
        if name == "share_low":
            columns["allowed"] = allowed_words(Table.of(low=column, high=reasons["share_high"]))
        elif name != "share_high":
            columns[name] = column
    return Table(columns, reasons.note)


def risk_curves(plan: StockPlan, one: ProductPlan) -> Html:
    """Draw what each level costs in each context above the best level there."""
    curves = one.curves()
    orders = curves.orders
    weights = one.orders["robust"].p_worst
    suffering = np.argsort(-one.excess(one.order), kind="stable")[:2]
    weighty = np.argsort(-weights, kind="stable")[:NAMED]
    prominent = {*suffering, *weighty[: NAMED - len(set(suffering) - set(weighty))]}
    marks = [Mark(orders[rule], f"{WORDS[rule]} {units(orders[rule])}", COLOURS[rule]) for rule in _MARKED]
    return line_chart(
        lines_of(one.contexts.tolist(), curves.levels, curves.excess, prominent),
        title="Excess cost of every level, circumstance by circumstance",
        x_label="units ordered",
        y_label=f"excess cost ({plan.money.unit})",
        marks=marks,
        alt=(
            "One line per circumstance, each falling to 0 at its own best order and rising beyond. The robust order "
            f"is {units(orders['robust'])}, the order for the average {units(orders['erm'])}, that of minimax risk "
            f"{units(orders['minimax-risk'])}."
        ),
    )


def level_path(plan: StockPlan, one: ProductPlan) -> Html:
    """Draw the order as the confidence set grows."""
    path, shares = one.path(), shares_of(one)
    marks = []
    for level in (0.5, 0.9999):
        # A set of little confidence may be too small to meet what is known about the mix.
        with suppress(EmptySetError):
            marks.append(Mark(float(along_radii(one.radius_at(level))), f"{100 * level:g}%", "#555555", dashed=True))
    asked = f"{100 * one.robustness.confidence:g}%" if isinstance(one.robustness.radius, str) else "chosen"
    chosen = Mark(float(along_radii(one.radius)), f"{asked}: {units(one.order)}", COLOURS["robust"])
    return line_chart(
        [Line("order", along_radii(path["radius"]), path["order"], COLOURS["robust"])],
        title="The order as confidence grows",
        x_label=f"size of the set of plausible mixes ({shares.unit})",
        y_label="units ordered",
        marks=[*marks, chosen],
        x_ticks=RADIUS_TICKS,
        alt=(
            f"The order moves from {units(float(path['order'][0]))}, where {shares.ends[0]}, to "
            f"{units(float(path['order'][-1]))}, where {shares.ends[1]}."
        ),
    )


LEVELS = {
    "product": ("product", "name"),
    "order": ("order", "units"),
    "average_profit": ("average profit", "money"),
    "worst_profit": ("lowest profit", "money"),
    "worst_profit_in": ("lowest profit in", "name"),
    "average_excess": ("average excess cost", "money"),
    "worst_excess": ("largest excess cost", "money"),
    "worst_excess_in": ("largest excess in", "name"),
}
CHOICES = {"rule": ("rule", "rule"), **LEVELS}
REASONS = {
    "context": ("circumstance", "name"),
    "rows": ("rows", "units"),
    "share": ("share", "share"),
    "allowed": ("allowed", "interval"),
    "weight": ("weight", "share"),
    "best_order": ("best order", "units"),
    "excess": ("excess cost", "money"),
    "profit": ("profit", "money"),
    "best_profit": ("best profit", "money"),
    "mean_demand": ("mean demand", "units"),
    "mean_cost": ("mean unit cost", "money"),
}
"""Columns in words, and what kind of thing they hold."""


def formats(plan: StockPlan) -> dict[str, Callable[[Any], str]]:
    """Return how each kind of thing is written."""
    return {
        "name": shown,
        "rule": lambda rule: WORDS[rule],
        "units": units,
        "money": plan.money.number,
        "share": lambda share: f"{share:.1%}",
        "interval": str,
    }


def _styled(plan: StockPlan, columns: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    written = formats(plan)
    return {
        "headings": {name: heading for name, (heading, _) in columns.items()},
        "caption": f"Amounts in {plan.money.unit}",
        "formats": {name: written[kind] for name, (_, kind) in columns.items()},
        "left": [name for name, (_, kind) in columns.items() if kind in ("name", "rule")],
    }


def plain_table(plan: StockPlan, rows: Table, columns: Mapping[str, tuple[str, str]], most: int = 12) -> Table:
    """Return a table in words, for a terminal."""
    rows = _with_allowed(rows)
    written, kept = formats(plan), {name: columns[name] for name in columns if name in rows}
    cells = {name: [written[kind](value) for value in rows[name].tolist()[:most]] for name, (_, kind) in kept.items()}
    for name in [name for name in cells if name.endswith("_in")]:
        # A number and where it is found read as one.
        number = name.removesuffix("_in")
        cells[number] = [f"{a} ({b:.40})" for a, b in zip(cells[number], cells.pop(name), strict=True)]
    return Table(
        {kept[name][0]: _aligned(words, *kept[name]) for name, words in cells.items()},
        f"and {rows.n_rows - most} more, in the report" if rows.n_rows > most else "",
    )


def aligned(words: Table) -> Table:
    """Return a table of words with all but its first column at the right, for a terminal."""
    first = next(iter(words))
    return Table(
        {name: column if name == first else _aligned(column.tolist(), name, "") for name, column in words.items()}
    )


def _aligned(words: list[str], heading: str, kind: str) -> NDArray[Any]:
    width = 0 if kind in ("name", "rule") else max(map(len, [heading, *words]))
    return np.array([f"{word:>{width}}" if width else f"{word:.60}" for word in words], dtype=object)
