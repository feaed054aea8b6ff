"""Past sales from a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterpoise.tables.reading import DataFile


def read_sales(
    file: Path, demand: str, cost: str, price: str, context: list[str], product: list[str] | None
) -> tuple[DataFile, dict[str, Any]]:
    """Read the columns of a file that ``plan_stock`` needs, and return them by its names for them."""
    from counterpoise.tables.reading import read_table
    from counterpoise.tables.tabular.labels import read_labels

    roles = {demand: "--demand", **dict.fromkeys(context, "--context")}
    roles |= {name: role for name, role in ((cost, "--cost"), (price, "--price")) if _number(name) is None}
    roles |= dict.fromkeys(product or (), "--product")
    data = read_table(file, roles)
    return data, {
        "demand": data.numbers(demand, "--demand", least=0.0),
        "cost": _amounts(data, cost, "--cost"),
        "price": _amounts(data, price, "--price"),
        "contexts": read_labels(data, context, "--context"),
        "products": read_labels(data, product, "--product") if product else None,
    }


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
