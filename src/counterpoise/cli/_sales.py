"""Past sales from a file."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoise.exceptions import InvalidInputError

if TYPE_CHECKING:
    from counterpoise.sets import Mix
    from counterpoise.stock.plans import StockPlan
    from counterpoise.tables.known_mix import KnownMix
    from counterpoise.tables.pooling import Pool
    from counterpoise.tables.reading import DataFile

_LOOKED_AT = 1e5
"""Bytes of a file that are looked at to find dates, about."""

_FEWEST = 20
"""Rows from which orders are judged on some that are held out."""


def read_sales(
    file: Path,
    demand: str,
    cost: str,
    price: str,
    context: list[str],
    product: list[str] | None,
    group: str | None = None,
    time: str | None = None,
) -> tuple[DataFile, dict[str, Any]]:
    """Read the columns of a file that ``plan_stock`` needs, and return them by its names for them."""
    from counterpoise.tables.reading import read_table
    from counterpoise.tables.tabular.labels import read_labels

    roles = {demand: "--demand", **dict.fromkeys(context, "--context")}
    roles |= {name: role for name, role in ((cost, "--cost"), (price, "--price")) if _number(name) is None}
    roles |= dict.fromkeys(product or (), "--product")
    roles |= {name: role for name, role in ((group, "--group"), (time, "--time")) if name is not None}
    data = read_table(file, roles)
    return data, {
        "demand": data.numbers(demand, "--demand", least=0.0),
        "cost": _amounts(data, cost, "--cost"),
        "price": _amounts(data, price, "--price"),
        "contexts": read_labels(data, context, "--context"),
        "products": read_labels(data, product, "--product") if product else None,
        **_belonging(data, group, time),
    }


def _belonging(data: DataFile, group: str | None, time: str | None) -> dict[str, Any]:
    """Return when rows were, and which belong together, by labels that sort in the order of time where it is known."""
    from counterpoise.contexts import encode
    from counterpoise.tables.tabular.seen_draws import check_moments, natural

    if time is None:
        return {"groups": None if group is None else natural(data.labels(group, "--group")), "time": None}
    times = data.labels(time, "--time")
    check_moments(times, f"column {time!r} of {data.path.name} (--time)")
    moments = natural(times)
    if group is None:
        return {"groups": moments, "time": moments}
    groups = encode(data.labels(group, "--group"), role="group").codes
    # Numbered by the first time of each.
    _, first = np.unique(groups[np.argsort(moments, kind="stable")], return_index=True)
    return {"groups": np.argsort(np.argsort(first))[groups], "time": moments}


@dataclass(frozen=True)
class Sized:
    """What the size of the set follows from: draws that are given, a number or ``"rows"``, or else groups and times."""

    draws: Any
    group: str | None
    time: str | None
    columns: tuple[str, ...]
    known_mix: KnownMix | None = None

    @property
    def context(self) -> str:
        """What contexts are of, in words."""
        return " x ".join(self.columns)

    @property
    def switch(self) -> Any:
        """The draws as ``plan_stock`` takes them."""
        if self.known_mix is not None and self.known_mix.census is not None:
            # Another table that was counted sizes the set itself.
            return None
        if self.draws is not None:
            return None if self.draws == "rows" else self.draws
        return None if self.group is None and self.time is None else "groups"

    def note(self, plan: StockPlan, sales: dict[str, Any]) -> list[str]:
        """Say what the rows of the products are worth, where that was found from groups."""
        from counterpoise.tables.tabular.draw_search import rounded

        found = [one.robustness.counted for one in plan.plans if one.robustness.counted is not None]
        if not found:
            return []
        n_groups = len(set(sales["groups"].tolist()))
        where = (
            f"at {n_groups:,} times ({self.time})" if self.group is None else f"in {n_groups:,} groups of {self.group}"
        )
        low, high = rounded(min(found)), rounded(max(found))
        worth = f"about {low}" if low == high else f"{low} to {high}"
        each = "; those of each product" if len(found) > 1 else ""
        return [
            f"{len(sales['demand']):,} rows {where}{each} are worth {worth} draws of {self.context}, and the set of "
            "mixes is sized accordingly"
        ]

    def doubts(self, plan: StockPlan, sales: dict[str, Any]) -> tuple[str, ...]:
        """Say that rows may be fewer draws than they are, where one product was sold and nothing is known of groups."""
        from counterpoise.contexts import encode
        from counterpoise.tables.tabular.draw_search import doubts_of_order
        from counterpoise.tables.tabular.seen_draws import RowOrder

        robustness = plan.plans[0].robustness
        counted = self.known_mix is not None and self.known_mix.census is not None
        if counted or self.draws is not None or len(plan.plans) > 1 or not isinstance(robustness.radius, str):
            return ()
        contexts, order = encode(sales["contexts"]), RowOrder()
        order.look(contexts.codes)
        places = np.arange(len(contexts.labels))
        level = robustness.confidence
        return doubts_of_order(order, places, contexts.counts, self.context, level, robustness.radius)


def sized_plan(
    sales: dict[str, Any], sized: Sized, pool: Pool | None = None, *, validate: bool = False, **terms: Any
) -> StockPlan:
    """Plan stock, with a note on what sizes the set.

    Parameters
    ----------
    validate : bool
        Whether to judge orders on periods held out: later ones where times are known.
    """
    from counterpoise.stock.planning import plan_stock

    mix, known = _known_mix(sales, sized, pool, terms)
    # A few rows show nothing once some of them are held out.
    judged = validate and (sales["time"] is not None or len(sales["demand"]) >= _FEWEST)
    time = sales["time"] if validate else None
    given = {**sales, "time": time, "draws": sized.switch, "mix": mix, **terms}
    try:
        plan = plan_stock(**given, validate=judged)
    except InvalidInputError:
        if time is not None or not judged:
            raise
        # Held-out periods were not asked for: where they are what cannot be had, there is a plan without them.
        plan = plan_stock(**given, validate=False)
    notes = sized.note(plan, sales) if sized.switch == "groups" else sized.doubts(plan, sales)
    return replace(plan, notes=(*notes, *known, *plan.notes))


def _known_mix(
    sales: dict[str, Any], sized: Sized, pool: Pool | None, terms: dict[str, Any]
) -> tuple[Mix | None, tuple[str, ...]]:
    """Return what is known about the mix by the contexts in the sales, and say what it is."""
    from counterpoise.contexts import encode
    from counterpoise.core.robustness import Robustness

    if sized.known_mix is None:
        return None, ()
    contexts, known = encode(sales["contexts"]), sized.known_mix
    if sales["products"] is not None:
        # Each has a set of its own, whose size is found later: here only names and sums are checked.
        mix, _ = known.over(contexts.labels, contexts.counts, sized.columns, pool, confidence=1.0)
        return mix, (f"every product has a set of mixes of its own, {known.stated}",)
    robustness = Robustness(terms["confidence"], terms["radius"], sized.switch)
    return known.over(
        contexts.labels,
        contexts.counts,
        sized.columns,
        pool,
        confidence=terms["confidence"],
        radius=terms["radius"],
        draws=robustness.sized(contexts.codes, sales["groups"]).counted,
    )


def date_column(file: Path, used: Collection[str | None]) -> str | None:
    """Return a column of dates that no option names, by the first rows of a file."""
    from counterpoise.tables.reading import open_table
    from counterpoise.tables.reading.on_disk import with_file
    from counterpoise.times import as_times

    table = open_table(file)
    places = range(len(table.names) - len(table.members[0].keys))
    found = with_file(
        table.members[0].path, table.kinds[0], lambda one: next(iter(one.pieces(list(places), _LOOKED_AT)), None)
    )
    if found is None:
        return None
    for name, column in zip(table.names, found[0].columns, strict=False):
        cells = [cell for cell in column.slice(0, 100).to_pylist() if cell not in (None, "")]
        if name not in used and cells and as_times(np.array(cells, dtype=object)) is not None:
            return name
    return None


def _amounts(data: DataFile, given: str, role: str) -> Any:
    """Return a number that was given, or the column of that name."""
    value = _number(given)
    return data.numbers(given, role) if value is None else value


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
