"""A plan as a page: orders, reasons, and pictures of what other orders would cost."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import shown
from counterpoise.methods import COLOURS, WORDS
from counterpoise.pages.charts import Line, Mark, line_chart
from counterpoise.pages.document import Html, details, document, facts, figure, notice, section, table, verdict
from counterpoise.sets import RADIUS_TICKS, along_radii
from counterpoise.stock.plans import ProductPlan, StockPlan, units
from counterpoise.tables import Table

Array = NDArray[np.float64]

CHARTED = 12
"""Products that are drawn; the tables hold all."""

_NAMED = 8
_NOTES = 20
_MARKED = ("robust", "erm", "minimax-risk")
_MARKS = {"robust": "robust", "erm": "average", "minimax-risk": "worst case"}


def written(plan: StockPlan, settings: Mapping[str, Any] | None = None) -> str:
    """Return a plan as one page of HTML that needs nothing else.

    Parameters
    ----------
    settings : mapping, optional
        What the plan was made from and with, listed at the end.
    """
    several = len(plan.plans) > 1
    shown_plans = sorted(plan.plans, key=lambda one: -_at_stake(one))[:CHARTED] if several else list(plan.plans)
    blocks: list[str] = [verdict(plan.summary), *map(notice, plan.notes[:_NOTES])]
    if len(plan.notes) > _NOTES:
        blocks.append(notice(f"And {len(plan.notes) - _NOTES} more notes of this kind."))
    if several:
        blocks.append(section("Orders", table(plan.levels, **_styled(plan, LEVELS))))
        if len(shown_plans) < len(plan.plans):
            blocks.append(f"Below are the {CHARTED} products with the most at stake; the table above holds all.")
    for one in shown_plans:
        blocks += _product(plan, one, several)
    blocks.append(section("How to read this", *_explained(plan)))
    made = {"counterpoise": version("counterpoise"), "Python": platform.python_version(), "numpy": version("numpy")}
    blocks.append(section("Settings", facts({**(settings or {}), **made})))
    title = "How much to order" if several else f"Order {units(plan.plans[0].order)}"
    return document(title, *blocks, subtitle="A plan for an uncertain mix of circumstances")


def _at_stake(plan: ProductPlan) -> float:
    """Return what the worst circumstance of a product loses under the order for the average."""
    return float(plan.excess(float(plan.orders["erm"].theta[0])).max())


def _product(plan: StockPlan, one: ProductPlan, several: bool) -> list[str]:
    """Return the blocks about one product."""
    own = plan.only(one)
    pictures = [figure(risk_curves(plan, one), _RISK_CAPTION)]
    if one.charge == 0:
        pictures.append(figure(level_path(plan, one), _PATH_CAPTION))
    why = [table(own.reasons, **_styled(plan, REASONS)), _certified(plan, one)]
    choices = [table(own.choices, **_styled(plan, CHOICES))]
    if not several:
        return [
            section("Why this order", *why),
            section("What other rules would order", *choices),
            section("What each level costs", *pictures),
        ]
    name = shown(one.product)
    tables = details("Why, and what other rules would order", *why, *choices)
    return [section(f"{name:.100}", plan.verdict(one), *pictures, tables)]


def _certified(plan: StockPlan, one: ProductPlan) -> str:
    certificate = one.orders["robust"].certificate
    if one.charge > 0:
        proofs = [other.orders["robust"].certificate for other in plan.plans]
        upper, lower = sum(proof.upper for proof in proofs), sum(proof.lower for proof in proofs)
        return (
            f"The worst-case excess costs of all products add up to {plan.money(upper)} per {plan.money.period}, and "
            f"no division of the capacity has less than {plan.money(lower)}: that is proven."
        )
    return (
        f"The worst-case excess cost over the set of plausible mixes is {plan.money(certificate.upper)} per "
        f"{plan.money.period}, and no order has less than {plan.money(certificate.lower)}: that is proven. The set "
        f"holds every mix within {one.radius:.4g} bits of the shares in the data."
    )


def risk_curves(plan: StockPlan, one: ProductPlan) -> Html:
    """Draw what each level costs in each context above the best level there."""
    curves = one.curves()
    orders = curves.orders
    weights = one.orders["robust"].p_worst
    suffering = np.argsort(-one.excess(one.order), kind="stable")[:2]
    weighty = np.argsort(-weights, kind="stable")[:_NAMED]
    prominent = set(suffering.tolist()) | set(weighty[: _NAMED - len(set(suffering) - set(weighty))].tolist())
    many = len(one.contexts) > _NAMED + 2
    lines = [
        Line(label, curves.levels.tolist(), curves.excess[:, c].tolist(), faint=many and c not in prominent)
        for c, label in enumerate(one.contexts.tolist())
    ]
    marks = [Mark(orders[rule], f"{_MARKS[rule]} {units(orders[rule])}", COLOURS[rule]) for rule in _MARKED]
    return line_chart(
        lines,
        title="Excess cost of every level, circumstance by circumstance",
        x_label="units ordered",
        y_label=f"excess cost ({plan.money.unit})",
        marks=marks,
        alt=(
            "One line per circumstance, each falling to 0 at its own best order and rising beyond. The robust order "
            f"is {units(orders['robust'])}, the order for the average {units(orders['erm'])}, the order for the worst "
            f"case {units(orders['minimax-risk'])}."
        ),
    )


def level_path(plan: StockPlan, one: ProductPlan) -> Html:
    """Draw the order as the confidence set grows."""
    path = one.path()
    marks = [
        Mark(float(along_radii(one.radius_at(level))), f"{100 * level:g}%", "#555555", dashed=True)
        for level in (0.5, 0.9999)
    ]
    asked = f"{100 * one.robustness.confidence:g}%" if isinstance(one.robustness.radius, str) else "chosen"
    chosen = Mark(float(along_radii(one.radius)), f"{asked}: {units(one.order)}", COLOURS["robust"])
    return line_chart(
        [Line("order", along_radii(path["radius"]).tolist(), path["order"].tolist(), COLOURS["robust"])],
        title="The order as confidence grows",
        x_label="size of the set of plausible mixes (bits)",
        y_label="units ordered",
        marks=[*marks, chosen],
        x_ticks=RADIUS_TICKS,
        alt=(
            f"The order moves from {units(float(path['order'][0]))}, for the shares in the data alone, to "
            f"{units(float(path['order'][-1]))}, for every mix."
        ),
    )


_RISK_CAPTION = (
    "Each line is a circumstance: what a level costs there, above the best level for it. The average rule minds the "
    "circumstances in proportion to the data; the robust one minds the mixes that the data cannot rule out."
)
_PATH_CAPTION = (
    "On the left the data's own mix is taken for certain, on the right any mix is possible. In between lies the set "
    "that statistics give for a level of confidence; the marks show the levels."
)

LEVELS = {
    "product": ("product", "name"),
    "order": ("order", "units"),
    "average_profit": ("average profit", "money"),
    "worst_profit": ("lowest profit", "money"),
    "worst_profit_in": ("in", "name"),
    "average_excess": ("average excess cost", "money"),
    "worst_excess": ("largest excess cost", "money"),
    "worst_excess_in": ("in", "name"),
}
CHOICES = {"rule": ("rule", "rule"), **LEVELS}
REASONS = {
    "context": ("circumstance", "name"),
    "rows": ("rows", "units"),
    "share": ("share", "share"),
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
    }


def _styled(plan: StockPlan, columns: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    written = formats(plan)
    return {
        "headings": {name: heading for name, (heading, _) in columns.items()},
        "caption": f"Amounts in {plan.money.unit}",
        "formats": {name: written[kind] for name, (_, kind) in columns.items()},
        "left": [name for name, (_, kind) in columns.items() if kind in ("name", "rule")],
    }


def _explained(plan: StockPlan) -> list[str]:
    return [
        f"Amounts are in {plan.money.unit}. Excess cost is what an order loses in a circumstance against the best "
        "order for that circumstance alone: the price of not knowing which will come. The share is how often a "
        "circumstance was seen; the weight is how much it counts in the mix, among all plausible ones, that is least "
        "favourable to this order.",
        "The order is the one whose excess cost in the least favourable mix is smallest. It is exact: costs are "
        "piecewise linear in the order, and the best one is found at or between their kinks.",
        "Average is the order that is best for the shares in the data (empirical risk minimisation), equal weights the "
        "one that is best if every circumstance counts alike, worst case the one whose least profit is largest "
        "(minimax risk), least regret the one whose largest excess cost is least (minimax regret).",
    ]


def plain_table(plan: StockPlan, rows: Table, columns: Mapping[str, tuple[str, str]], most: int = 12) -> Table:
    """Return a table in words, for a terminal."""
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


def _aligned(words: list[str], heading: str, kind: str) -> NDArray[Any]:
    width = 0 if kind in ("name", "rule") else max(map(len, [heading, *words]))
    return np.array([f"{word:>{width}}" if width else f"{word:.60}" for word in words], dtype=object)
