"""The panels of the paper's figures, and some beyond: a table in, axes out. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoise.experiments.results import Results
from counterpoise.reports.methods import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = {
    "robust": "robust",
    "erm": "ERM",
    "minimax-risk": "minimax risk\n(exact)",
    "minimax-regret": "minimax\nregret",
    "inverse-frequency": "inverse\nfrequency",
    "group-dro": "online\ngroup DRO",
    "robust-agrawal": "robust,\nAgrawal radius",
    "robust-chi2": "robust,\n$\\chi^2$ radius",
}

CONTEXTS = [
    "#1f77b4",
    "#e377c2",
    "#2ca02c",
    "#ff7f0e",
    "#9467bd",
    "#17becf",
    "#bcbd22",
    "#8c564b",
    "#777777",
    "#d62728",
]

_MIXES = {"p'": ("#0891b2", "$p' = (0.9, 0.1)$"), "p''": ("#c026d3", "$p'' = (0.2, 0.8)$")}
_LEVELS = {"90%": (":", "white", "#5b8db8"), "99%": ("--", "cyan", "#a9c4dc"), "100%": ("-", "black", "#e8eef4")}
"""The style and the colour of a confidence level as a line, and its shade as an area."""

_RADII = {
    "types": ("#0b6e4f", "o", "method of types (paper)"),
    "agrawal": ("#4c9f70", "s", "Agrawal"),
    "chi2": ("#93c47d", "^", "$\\chi^2$ limit"),
    "exact": ("k", "_", "99% quantile, simulated"),
}


@dataclass(frozen=True)
class Panel:
    """One picture: what it needs from the table, how it is drawn, and what is written below it."""

    name: str
    experiments: tuple[str, ...]
    draw: Callable[[Results, Axes], Axes]
    caption: str


PANELS: dict[str, Panel] = {}


def panel(*experiments: str) -> Callable[[Callable[[Results, Axes], Axes]], Callable[[Results, Axes], Axes]]:
    """Enter a function into ``PANELS``: it is called ``panel_`` and the name, and its docstring is the caption."""

    def entered(draw: Callable[[Results, Axes], Axes]) -> Callable[[Results, Axes], Axes]:
        name = draw.__name__.removeprefix("panel_")
        PANELS[name] = Panel(name, experiments, draw, " ".join((draw.__doc__ or "").split()))
        return draw

    return entered


def _legend(ax: Axes, **style: Any) -> Axes:
    """Put the legend where there is room."""
    # Said, although it is the default: else a machine that is busy has matplotlib warn that the search is slow.
    ax.legend(loc="best", **style)
    return ax


def _sales(results: Results, ax: Axes, experiment: str, markers: str, size: int, words: str) -> Axes:
    """Draw costs and demands, with a marker for each context."""
    for c, marker in enumerate(markers, 1):
        cost, demand = (results.series(experiment, f"context-{c}", metric) for metric in ("cost", "demand"))
        label = words.format(c=c, n=len(cost))
        ax.scatter(cost, demand, size, CONTEXTS[c - 1], marker=marker, alpha=0.8, label=label)
    ax.set(xlabel="cost per unit, $x$ (money)", ylabel="demand, $y$ (units)")
    return ax


@panel("illustration")
def panel_1a(results: Results, ax: Axes) -> Axes:
    """Two contexts of one market: the cost of a unit is alike, demand is not. 90 samples of the first, 10 of the
    second.
    """
    return _legend(_sales(results, ax, "illustration", "o^", 18, "context {c} ($n_{c}$ = {n})"))


def _curve(results: Results, ax: Axes, method: str, metric: str, *, dotted: bool, **style: Any) -> None:
    """Draw something over the stock levels; dotted, its best level."""
    read = partial(results.series, "illustration")
    ax.plot(read("curves", "level"), read(method, metric), **style)
    if dotted:
        ax.axvline(read(method, "best-level")[0], color=style["color"], lw=1, ls=":")
    ax.set(xlabel="stock level, $\\theta$ (units)")


@panel("illustration")
def panel_1b(results: Results, ax: Axes) -> Axes:
    """What a stock level loses in expectation, in each context; dotted, the best level of each."""
    for c in (1, 2):
        best = results.series("illustration", f"context-{c}", "best-level")[0]
        words = f"context {c}, best level {best:.1f}"
        _curve(results, ax, f"context-{c}", "risk", dotted=True, color=CONTEXTS[c - 1], label=words)
    ax.set(ylabel="risk, $R_c(\\theta)$ (money)")
    return _legend(ax)


def _under_mixes(results: Results, ax: Axes, metric: str, label: str) -> Axes:
    for c in (1, 2):
        style: dict[str, Any] = {"color": CONTEXTS[c - 1], "ls": "--", "lw": 1, "label": f"context {c}"}
        _curve(results, ax, f"context-{c}", metric, dotted=False, **style)
    for name, (colour, words) in _MIXES.items():
        _curve(results, ax, name, metric, dotted=True, color=colour, label=words)
    ax.set(ylabel=label)
    return _legend(ax)


@panel("illustration")
def panel_2a(results: Results, ax: Axes) -> Axes:
    """Risk under two mixes of the contexts: the best level (dotted) follows the mix."""
    return _under_mixes(results, ax, "risk", "risk, $R(\\theta; p)$ (money)")


@panel("illustration")
def panel_2b(results: Results, ax: Axes) -> Axes:
    """The same in excess of what is best in each context: each context's curve now touches zero."""
    return _under_mixes(results, ax, "excess", "excess risk, $\\Delta(\\theta; p)$ (money)")


@panel("illustration")
def panel_3a(results: Results, ax: Axes) -> Axes:
    """What the data say about the share of the first context, at three levels of confidence, as they come in. At 100%
    the set is every mix.
    """
    read = partial(results.series, "illustration")
    n = read("intervals", "n")
    for name, (*_, shade) in reversed(_LEVELS.items()):
        ax.fill_between(n, read(name, "low"), read(name, "high"), color=shade, label=name)
    ax.axhline(0.95, color="k", ls="--", lw=1, label="true $p_1$")
    ax.set(xscale="log", xlabel="samples, $n$", ylabel="share of context 1, $p_1$", ylim=(0, 1), xlim=(n[0], n[-1]))
    ax.legend(loc="lower right")
    return ax


@panel("illustration")
def panel_3b(results: Results, ax: Axes) -> Axes:
    """Excess risk of a level under a mix, with 19 samples of the first context and 1 of the second. Lines: the least
    favourable mix for each level; dots: the robust decisions. ERM (square) and minimax risk (star) all but ignore the
    second context.
    """
    read = partial(results.series, "illustration")
    level, share = read("contours", "level"), read("contours", "share")
    excess = read("contours", "excess").reshape(len(share), len(level))
    drawn = ax.contourf(level, share, excess, levels=np.linspace(0.0, excess.max(), 25), cmap="viridis")
    ax.figure.colorbar(drawn, ax=ax, label="excess risk (money)", format="%.0f")
    mark = partial(ax.plot, mec="white", ls="none")
    for name, (style, colour, _) in _LEVELS.items():
        worst = read(name, "least-favourable-share")
        ax.plot(level, worst, color=colour, ls=style, label=f"least favourable, {name}")
        words = "robust decisions" if name == "90%" else None
        robust = read(name, "robust-level")[0], read(name, "robust-share")[0]
        mark(*robust, "o", color=COLOURS["robust"], ms=8, label=words)
    for method, marker in (("erm", "s"), ("minimax-risk", "*")):
        words = LABELS[method].replace("\n(exact)", "")
        mark(read(method, "level")[0], 0.95, marker, color=COLOURS[method], ms=13, label=words)
    ax.set(xlabel="stock level, $\\theta$ (units)", ylabel="share of context 1, $p_1$", ylim=(0, 1.02))
    ax.legend(loc="lower center", ncol=2, fontsize=7, facecolor="#cccccc")
    return ax


@panel("stock-control-data")
def panel_4a(results: Results, ax: Axes) -> Axes:
    """Ten contexts, the first of which supplies seven tenths of 400 samples."""
    _sales(results, ax, "stock-control-data", 10 * "o", 12, "{c} ({n})")
    return _legend(ax, title="context (samples)", ncol=2, fontsize=7)


def _boxes(results: Results, ax: Axes, experiment: str, label: str) -> Axes:
    """Draw a box per method, worst case on the left and nominal on the right."""
    methods = results.methods(experiment, "worst")
    width, middle = len(methods) + 1, (len(methods) - 1) / 2
    values = []
    style: dict[str, Any] = {"patch_artist": True, "flierprops": {"ms": 3}, "medianprops": {"color": "black"}}
    for side, metric in enumerate(("worst", "nominal")):
        values += [results.series(experiment, method, metric) for method in methods]
        positions = side * width + np.arange(len(methods))
        boxes = ax.boxplot(values[-len(methods) :], positions=positions, widths=0.7, **style)["boxes"]
        for method, box in zip(methods, boxes, strict=True):
            box.set_facecolor(COLOURS[method])
            if side == 0:
                box.set_label(LABELS[method].replace("\n", " "))
    ax.set_xticks([middle, width + middle], ["worst case", "nominal"])
    ax.axvline(width - 1, color="#bbbbbb", lw=1)
    ax.set(ylabel=label)
    # A few runs far off would leave no room for the boxes; how many is said.
    ends = [np.quantile(one, [0.25, 0.75]) for one in values]
    top = 1.1 * max(float(high + 1.5 * (high - low)) for low, high in ends)
    beyond = sum(int((one > top).sum()) for one in values)
    ax.set_ylim(0.0, top)
    if beyond:
        ax.set_title(f"{beyond} values above", fontsize=9, loc="center")
    ax.set_title(f"{len(values[0])} runs", fontsize=9, loc="right")
    return _legend(ax, fontsize=7, ncol=2)


@panel("stock-control")
def panel_4b(results: Results, ax: Axes) -> Axes:
    """Excess risk of the level each method chooses, by the true risks: in the worst context, in the true mix."""
    return _boxes(results, ax, "stock-control", "excess risk (money)")


@panel("classification-data")
def panel_5a(results: Results, ax: Axes) -> Axes:
    """Two classes in three contexts, and the lines that methods draw between them. The second feature helps within a
    context and misleads between them.
    """
    read = partial(results.series, "classification-data")
    for c in (1, 2, 3):
        x1, x2, label = (read(f"context-{c}", metric) for metric in ("x1", "x2", "label"))
        for y, marker in enumerate("o^"):
            one, words = label == y, None if y else f"context {c}"
            ax.scatter(x1[one], x2[one], 9, CONTEXTS[c - 1], marker=marker, alpha=0.45, linewidths=0, label=words)
    x2 = np.array(ax.get_ylim())
    for method in ("robust", "erm", "minimax-risk", "group-dro"):
        line = read(method, "line")
        if line.size:
            words = LABELS[method].replace("\n", " ")
            ax.plot(-(line[1] * x2 + line[2]) / line[0], x2, color=COLOURS[method], lw=2, label=words)
    ax.set(xlabel="$x_1$", ylabel="$x_2$", xlim=(-6.5, 6.5), ylim=tuple(x2))
    return _legend(ax, fontsize=7, ncol=2, title="circles: $y$ = 0, triangles: $y$ = 1", title_fontsize=7)


@panel("classification")
def panel_5b(results: Results, ax: Axes) -> Axes:
    """Excess error, by exact error rates. Against the noisy iterate of online group DRO the robust method is ahead in
    the worst case; against exact minimax risk it is not.
    """
    return _boxes(results, ax, "classification", "excess error (percentage points)")


@panel("coloured-mnist-data")
def panel_6a(results: Results, ax: Axes) -> Axes:
    """Digits in colours. In the first context red nearly always means low (0 to 4), in the last nothing."""
    read = partial(results.series, "coloured-mnist-data")
    contexts = 5
    per_context = len(results.methods("coloured-mnist-data", "red")) // contexts
    canvas = np.ones((contexts * 30, per_context * 30, 3))
    for c, k in np.ndindex(contexts, per_context):
        name = f"context-{c + 1}-image-{k + 1}"
        ink = read(name, "pixel").reshape(28, 28) / 255.0
        taken = np.array([0.15, 0.85, 0.85] if read(name, "red")[0] > 0 else [0.85, 0.35, 0.75])
        canvas[c * 30 + 1 : c * 30 + 29, k * 30 + 1 : k * 30 + 29] -= ink[:, :, None] * taken
    ax.imshow(canvas, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([c * 30 + 15 for c in range(contexts)], [str(c + 1) for c in range(contexts)])
    ax.set_ylabel("context")
    return ax


@panel("coloured-mnist")
def panel_6b(results: Results, ax: Axes) -> Axes:
    """Excess error on test images in both colours. Minimax risk throws the colour away and is far off."""
    return _boxes(results, ax, "coloured-mnist", "excess error (percentage points)")


@panel("coverage-stock-control", "coverage-classification", "coverage-coloured-mnist")
def panel_coverage(results: Results, ax: Axes) -> Axes:
    """How large the set is for 99% confidence, and how often it covers the true mix (figures beside the marks). The
    method of types is safe by a wide margin.
    """
    names = PANELS["coverage"].experiments
    for k, (method, (colour, marker, words)) in enumerate(_RADII.items()):
        places = np.arange(3) + 0.12 * (k - 1.5)
        radii = [results.series(name, method, "radius@0.99")[0] for name in names]
        ax.plot(places, radii, marker, color=colour, ms=9, label=words)
        for name, place in zip(names, zip(places, radii, strict=True), strict=True):
            # The simulated quantile covers as often as it says.
            for covered in results.series(name, method, "coverage@0.99"):
                text = f"{100 * covered:.2f}%"
                ax.annotate(text, place, (0, 7), textcoords="offset points", ha="center", fontsize=7)
    ax.set_xticks(range(3), ["stock control\n(10 contexts)", "classification\n(3)", "coloured MNIST\n(5)"])
    ax.set(ylabel="radius for 99% confidence (bits)", yscale="log", xlim=(-0.5, 2.5))
    ax.set_ylim(top=2.0 * ax.get_ylim()[1])
    return _legend(ax, fontsize=8)


@panel("convergence")
def panel_convergence(results: Results, ax: Axes) -> Axes:
    """One draw of the classification task: the paper's gradient descent, at its step size, and the certified solver."""
    for method, label in (("algorithm-1", "Algorithm 1, step 0.05"), ("interior-point", "interior point")):
        steps, left = (read("convergence", method, "suboptimality") for read in (results.runs, results.series))
        ax.plot(steps + 1, left, "o-", ms=3, color=COLOURS[method], label=label)
    ax.set(xscale="log", yscale="log", xlabel="iteration + 1", ylabel="worst-case excess above the optimum (nats)")
    return _legend(ax)


def draw(panel: Panel, results: Results, note: str = "") -> Any:
    """Return a figure of one panel, with a note in its corner where there is something to be said of its data."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    panel.draw(results, figure.add_subplot())
    if note:
        figure.suptitle(note, fontsize=8, color="#a00000", x=0.01, ha="left", parse_math=False)
    return figure
