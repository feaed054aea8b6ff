"""Draw the study of mixtures: shares over time for every method, and worst excess against mean excess.

Usage: python benchmarks/mixture_figures.py RESULTS FOLDER (RESULTS is the results.json of benchmarks/mixtures.py)
"""

from __future__ import annotations

import argparse
import io
import json
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from mixture_tables import MISLED, by_method, measures, sizes_of

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000")
"""Okabe and Ito's, which colour-blind readers can tell apart."""

_ACROSS = 4

_NEAR = 1.1
"""Worst excess of methods that are shown by themselves, as a multiple of the least."""


def shares(results: dict[str, Any], size: str) -> Figure:
    """Return a panel for each method with the share of every source over time, the mean over seeds."""
    runs: dict[str, list[Any]] = {}
    for run in results["runs"]:
        if run["size"] == size:
            runs.setdefault(run["method"], []).append(run["mixes"])
    down = -(-len(runs) // _ACROSS)
    figure = Figure(figsize=(8.4, 1.8 * down + 0.6), layout="constrained")
    panels = figure.subplots(down, _ACROSS, sharex=True, sharey=True, squeeze=False).ravel()
    about = results[size]
    for axes, (name, several) in zip(panels, runs.items(), strict=False):
        mixes = np.mean(several, 0)
        millions = np.arange(len(mixes)) / len(mixes) * about["tokens"] / 1e6
        for k, source in enumerate(results["sources"]):
            axes.plot(millions, mixes[:, k], color=_COLOURS[k % len(_COLOURS)], linewidth=1.3, label=source)
        axes.set_title(textwrap.fill(name, 24), fontsize=8.5)
        axes.tick_params(labelsize=7.5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(0, 1)
    for axes in panels[len(runs) :]:
        axes.set_visible(False)
    for axes in panels[max(len(runs) - _ACROSS, 0) : len(runs)]:
        axes.tick_params(labelbottom=True)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=8, fontsize=8, frameon=False
    )
    figure.supylabel("share", fontsize=9)
    figure.supxlabel("millions of tokens trained on", fontsize=9)
    return figure


def front(results: dict[str, Any], sizes: Sequence[str]) -> Figure:
    """Return a panel for each size with worst excess against mean excess: a point for each seed, and the median.

    A single size has a second panel, of the best methods, which lie side by side.
    """
    views = [(size, False) for size in sizes] + [(size, True) for size in sizes if len(sizes) == 1]
    figure = Figure(figsize=(4.2 * len(views), 4.9), layout="constrained")
    known: dict[str, tuple[str, str]] = {}
    for axes, (size, is_near) in zip(figure.subplots(1, len(views), squeeze=False)[0], views, strict=True):
        judges = measures(np.array(results[size]["text"]), np.array(results[size]["references"]["judged"]))
        points = {
            name: np.array(
                [[judges[axis](one) for one in losses.values()] for axis in ("mean by tokens", "worst source")]
            )
            for name, losses in by_method(results, size).items()
            if not name.endswith(MISLED)
        }
        for name, (x, y) in points.items():
            colour, marker = known.setdefault(name, _look(name, list(known.values())))
            axes.plot(x, y, marker, color=colour, markersize=3, alpha=0.4)
            axes.plot(np.median(x), np.median(y), marker, color=colour, markersize=7, label=name)
        axes.set_title(
            f"{results[size]['parameters'] / 1e6:.2g} million parameters{', the best' * is_near}", fontsize=9
        )
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        if is_near:
            least = min(np.median(y) for _, y in points.values())
            _zoom(axes, [both for both in points.values() if np.median(both[1]) < _NEAR * least])
            continue
        far = points.pop("group DRO", np.zeros((2, 1)))
        # It would leave the others a corner.
        if (np.median(far, 1) > np.max(np.concatenate([*points.values()], 1), 1)).all():
            _zoom(axes, [*points.values()])
            where = "group DRO: beyond, at {:.2f} and {:.2f}".format(*np.median(far, 1))
            axes.annotate(where, (0.98, 0.03), xycoords="axes fraction", ha="right", va="bottom", fontsize=7.5)
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4, fontsize=7.5, frameon=False)
    figure.supxlabel("mean excess by tokens (nats)", fontsize=9)
    figure.supylabel("excess of the worst source (nats)", fontsize=9)
    return figure


def _zoom(axes: Axes, points: Sequence[np.ndarray]) -> None:
    """Show these points, with an edge around them."""
    low, high = (change(np.concatenate(points, 1), 1) for change in (np.min, np.max))
    edge = 0.06 * (high - low)
    axes.set(xlim=(low[0] - edge[0], high[0] + edge[0]), ylim=(low[1] - edge[1], high[1] + edge[1]))


def _look(name: str, taken: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return a colour for the kind of method, and a marker that no other of the kind has."""
    colour = _COLOURS[0] if name.startswith("ours") else _COLOURS[1] if name in _LEARN else _COLOURS[6]
    return next((colour, marker) for marker in "osD^vP*Xph<>" if (colour, marker) not in taken)


def _compact(svg: str) -> str:
    """Return a drawing with hundredths of a point, and one line for each path."""
    return re.sub(r" \n([LMz])", r" \1", re.sub(r"(\d\.\d\d)\d+", r"\1", svg))


_LEARN = ("DoReMi", "dynamic loading", "group DRO")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write one file of shares for each size, and the front."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args(arguments)
    results = json.loads(asked.results.read_text(encoding="utf-8"))
    sizes = sizes_of(results)
    asked.folder.mkdir(parents=True, exist_ok=True)
    figures = {f"mixture-shares-{size}": shares(results, size) for size in sizes}
    figures["mixture-front"] = front(results, sizes)
    # Without it, every drawing names its clip paths anew.
    with mpl.rc_context({"svg.hashsalt": "counterpoise", "svg.fonttype": "none"}):
        for name, figure in figures.items():
            drawn = io.StringIO()
            figure.savefig(drawn, format="svg", metadata={"Date": None})
            (asked.folder / f"{name}.svg").write_text(_compact(drawn.getvalue()), encoding="utf-8")
            print(f"wrote {asked.folder / name}.svg")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
