"""Figures for papers and notebooks: a table in, axes out. Nothing is computed here, and nothing is shown.

They need matplotlib (extra ``plot``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterpoise.contexts import shown
from counterpoise.exceptions import InvalidInputError
from counterpoise.reports.methods import COLOURS, WORDS
from counterpoise.sets import RADIUS_TICKS, along_radii

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from counterpoise.stock.plans import ProductPlan

Columns = Mapping[str, NDArray[Any]]

__all__ = ["plot_comparison", "plot_contexts", "plot_levels", "plot_path", "plot_stock", "plot_weights"]


def plot_path(path: Columns, ax: Axes | None = None) -> Axes:
    """Draw nominal risk and worst excess risk along a confidence path.

    Parameters
    ----------
    path : ConfidencePath
        Or any table with ``radius``, ``nominal_risk``, ``worst_excess`` and ``objective``.
    """
    path = _columns(path, "radius", "nominal_risk", "worst_excess", "objective")
    ax = _axes(ax)
    x = _along(ax, path)
    ax.plot(x, path["worst_excess"], color=COLOURS["minimax-risk"], label="largest excess risk")
    ax.plot(x, path["objective"], color=COLOURS["robust"], ls="--", label="worst case over the set")
    ax.plot(x, path["nominal_risk"] - path["nominal_risk"][0], color=COLOURS["erm"], label="rise of mean risk")
    ax.set_ylabel("risk")
    ax.legend()
    return ax


def plot_weights(path: Columns, ax: Axes | None = None) -> Axes:
    """Draw the least favourable mix along a confidence path: a line for every ``weight[c]``."""
    path = _columns(path, "radius")
    names = [name for name in path if name.startswith("weight[")]
    if not names:
        raise InvalidInputError(f"there is no column weight[...] to draw; the columns are {', '.join(path):.200}.")
    ax = _axes(ax)
    x = _along(ax, path)
    for name in names:
        ax.plot(x, path[name], label=_words(name[len("weight[") : -1]))
    ax.set(ylabel="weight", ylim=(0.0, None))
    ax.legend(title="context", fontsize="small", ncols=1 + len(names) // 12)
    return ax


def plot_contexts(table: Columns, ax: Axes | None = None, value: str = "excess") -> Axes:
    """Draw one number of every context, with its interval.

    Parameters
    ----------
    table : Table
        With ``context``, ``value``, and its ends ``_low`` and ``_high``: of :func:`counterpoise.metrics.by_context`, or
        one method's rows of ``Comparison.by_context``.
    """
    table = _columns(table, "context", value)
    ax = _axes(ax)
    names = [_words(label) for label in table["context"].tolist()]
    ax.barh(range(len(names)), table[value], xerr=_whiskers(table, value), color=COLOURS["robust"], ecolor="#555555")
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel(f"{value} risk" if value in ("excess", "reference") else value)
    return ax


def plot_comparison(summary: Columns, ax: Axes | None = None) -> Axes:
    """Draw every method by its mean risk and its excess risk in the worst plausible mix, with intervals.

    Parameters
    ----------
    summary : Table
        The ``summary`` of a :class:`counterpoise.judging.comparison.Comparison`.
    """
    summary = _columns(summary, "method", "nominal_risk_change", "mix_excess")
    ax = _axes(ax)
    across, up = (_whiskers(summary, name) for name in ("nominal_risk_change", "mix_excess"))
    for k, method in enumerate(summary["method"].tolist()):
        ax.errorbar(
            summary["nominal_risk_change"][k],
            summary["mix_excess"][k],
            xerr=None if across is None else across[:, [k]],
            yerr=None if up is None else up[:, [k]],
            fmt="o",
            color=COLOURS.get(method, "#555555"),
            label=WORDS.get(method) or _words(method),
        )
    ax.set(xlabel="rise of mean risk against erm", ylabel="excess risk in the worst plausible mix")
    ax.legend()
    return ax


def plot_stock(plan: ProductPlan, ax: Axes | None = None) -> Axes:
    """Draw what each level costs in each context above the best level there, with the orders of the rules.

    Parameters
    ----------
    plan : ProductPlan
        One product of :func:`counterpoise.plan_stock`: ``plan["bread"]``, or ``plan.plans[0]``.
    """
    ax = _axes(ax)
    curves = plan.curves()
    for c, label in enumerate(plan.contexts.tolist()):
        ax.plot(curves.levels, curves.excess[:, c], label=_words(label))
    _mark_orders(ax, curves.orders, middle=float(np.mean(curves.levels[[0, -1]])))
    # The upper quarter is for the names of the rules.
    ax.set(xlabel="units ordered", ylabel="excess cost", ylim=(0.0, float(curves.excess.max()) / 0.75 or None))
    ax.legend(fontsize="small")
    return ax


def plot_levels(path: Columns, ax: Axes | None = None) -> Axes:
    """Draw the order as the set of mixes grows.

    Parameters
    ----------
    path : Table
        Of ``ProductPlan.path``, or any table with ``radius`` and ``order``.
    """
    path = _columns(path, "radius", "order")
    ax = _axes(ax)
    ax.plot(_along(ax, path), path["order"], color=COLOURS["robust"])
    ax.set_ylabel("units ordered")
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'counterpoise[plot]'") from error
    return pyplot.subplots(layout="constrained")[1]


def _mark_orders(ax: Axes, orders: Mapping[str, float], middle: float) -> None:
    """Draw a line at each rule's order, and its name beside it: a row for each, since rules may order alike."""
    # From the outer ends inwards, so that names rarely cross the lines of others.
    rules = sorted(orders, key=lambda rule: -abs(orders[rule] - middle))
    for row, rule in enumerate(rules):
        left_of_line = orders[rule] > middle
        ax.axvline(orders[rule], color=COLOURS[rule], ls=":")
        ax.annotate(
            WORDS[rule],
            (orders[rule], 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-0.5 if left_of_line else 0.5, -0.6 - 1.4 * row),
            textcoords="offset fontsize",
            ha="right" if left_of_line else "left",
            va="top",
            color=COLOURS[rule],
            fontsize="small",
            bbox={"facecolor": ax.get_facecolor(), "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
        )


def _along(ax: Axes, path: Columns) -> NDArray[np.float64]:
    """Label the axis of radii, and return where each is drawn."""
    positions, words = zip(*RADIUS_TICKS, strict=True)
    ax.set_xticks(positions, words)
    ax.set_xlabel("radius of the set (bits)")
    return along_radii(path["radius"])


def _columns(table: Any, *needed: str) -> Columns:
    """Return the columns of a table, or of a data frame of any library, as arrays."""
    names = list(table) if isinstance(table, Mapping) else list(getattr(table, "columns", ()))
    missing = [name for name in needed if name not in names]
    if missing:
        raise InvalidInputError(f"the table has no column {missing[0]!r}; its columns are {', '.join(names):.200}.")
    return {name: np.asarray(table[name]) for name in names}


def _words(label: Any) -> str:
    """Return a label that matplotlib takes as it is: no mathematics, and none that it would leave out."""
    text = shown(label)[:40].replace("$", r"\$")
    return f"\u200b{text}" if text.startswith("_") else text


def _whiskers(table: Columns, name: str) -> NDArray[np.float64] | None:
    """Return how far an interval reaches to both sides; None where there is none."""
    if f"{name}_low" not in table or np.isnan(np.asarray(table[f"{name}_low"], dtype=np.float64)).all():
        return None
    value = np.asarray(table[name], dtype=np.float64)
    ends = np.stack([value - table[f"{name}_low"], table[f"{name}_high"] - value])
    # A point estimate may lie outside a bootstrap interval.
    return np.maximum(np.nan_to_num(ends), 0.0)
