"""The panels of the paper's figures, and some beyond: a table in, axes out. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoise.experiments.results import Results
from counterpoise.methods import COLOURS

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
_LEVELS = {"90%": ":", "99%": "--", "100%": "-"}


@dataclass(frozen=True)
class Panel:
    """One picture: what it needs from the table, how it is drawn, and what is written below it."""

    name: str
    experiments: tuple[str, ...]
    draw: Callable[[Results, Axes], Axes]
    caption: str


def panel_1a(results: Results, ax: Axes) -> Axes:
    """Costs and demands in two contexts."""
    for c, marker in ((1, "o"), (2, "^")):
        name = f"context-{c}"
        cost, demand = (results.series("illustration", name, metric) for metric in ("cost", "demand"))
        words = f"context {c} ($n_{c}$ = {len(cost)})"
        ax.scatter(cost, demand, 18, CONTEXTS[c - 1], marker=marker, alpha=0.8, label=words)
    ax.set(xlabel="cost per unit, $x$ (money)", ylabel="demand, $y$ (units)")
    ax.legend()
    return ax


def panel_1b(results: Results, ax: Axes) -> Axes:
    """Risk curves of two contexts, with their minima."""
    level = results.series("illustration", "curves", "level")
    for c in (1, 2):
        name, colour = f"context-{c}", CONTEXTS[c - 1]
        best = results.series("illustration", name, "best-level")[0]
        words = f"context {c}, best level {best:.1f}"
        ax.plot(level, results.series("illustration", name, "risk"), color=colour, label=words)
        ax.axvline(best, color=colour, lw=1, ls=":")
    ax.set(xlabel="stock level, $\\theta$ (units)", ylabel="risk, $R_c(\\theta)$ (money)")
    ax.legend()
    return ax


def _under_mixes(results: Results, ax: Axes, metric: str, label: str) -> Axes:
    level = results.series("illustration", "curves", "level")
    for c in (1, 2):
        values = results.series("illustration", f"context-{c}", metric)
        ax.plot(level, values, color=CONTEXTS[c - 1], ls="--", lw=1, label=f"context {c}")
    for name, (colour, words) in _MIXES.items():
        ax.plot(level, results.series("illustration", name, metric), color=colour, label=words)
        ax.axvline(results.series("illustration", name, "best-level")[0], color=colour, lw=1, ls=":")
    ax.set(xlabel="stock level, $\\theta$ (units)", ylabel=label)
    ax.legend()
    return ax


def panel_2a(results: Results, ax: Axes) -> Axes:
    """Risk under two mixes."""
    return _under_mixes(results, ax, "risk", "risk, $R(\\theta; p)$ (money)")


def panel_2b(results: Results, ax: Axes) -> Axes:
    """Excess risk under two mixes."""
    return _under_mixes(results, ax, "excess", "excess risk, $\\Delta(\\theta; p)$ (money)")


def panel_3a(results: Results, ax: Axes) -> Axes:
    """Confidence sets as data come in."""
    n = results.series("illustration", "intervals", "n")
    for name, shade in (("100%", "#e8eef4"), ("99%", "#a9c4dc"), ("90%", "#5b8db8")):
        low, high = (results.series("illustration", name, end) for end in ("low", "high"))
        ax.fill_between(n, low, high, color=shade, label=name)
    ax.axhline(0.95, color="k", ls="--", lw=1, label="true $p_1$")
    ax.set(xscale="log", xlabel="samples, $n$", ylabel="share of context 1, $p_1$", ylim=(0, 1), xlim=(n[0], n[-1]))
    ax.legend(loc="lower right")
    return ax


def panel_3b(results: Results, ax: Axes) -> Axes:
    """Excess risk over levels and shares, with least favourable shares and decisions."""
    level, share = (results.series("illustration", "contours", metric) for metric in ("level", "share"))
    excess = results.series("illustration", "contours", "excess").reshape(len(share), len(level))
    drawn = ax.contourf(level, share, excess, levels=np.linspace(0.0, excess.max(), 25), cmap="viridis")
    ax.figure.colorbar(drawn, ax=ax, label="excess risk (money)", format="%.0f")
    colours = {"90%": "white", "99%": "cyan", "100%": "black"}
    for name, style in _LEVELS.items():
        worst = results.series("illustration", name, "least-favourable-share")
        ax.plot(level, worst, color=colours[name], ls=style, label=f"least favourable, {name}")
        theta = results.series("illustration", name, "robust-level")[0]
        words = "robust decisions" if name == "90%" else None
        there = results.series("illustration", name, "robust-share")[0]
        ax.plot(theta, there, "o", color=COLOURS["robust"], mec="white", ms=8, label=words, ls="none")
    for method, marker in (("erm", "s"), ("minimax-risk", "*")):
        theta = results.series("illustration", method, "level")[0]
        words = LABELS[method].replace("\n(exact)", "")
        ax.plot(theta, 0.95, marker, color=COLOURS[method], ms=13, mec="white", label=words, ls="none")
    ax.set(xlabel="stock level, $\\theta$ (units)", ylabel="share of context 1, $p_1$", ylim=(0, 1.02))
    ax.legend(loc="lower center", ncol=2, fontsize=7, facecolor="#cccccc")
    return ax


def panel_4a(results: Results, ax: Axes) -> Axes:
    """Costs and demands in ten contexts."""
    for c in range(10):
        cost, demand = (
            results.series("stock-control-data", f"context-{c + 1}", metric) for metric in ("cost", "demand")
        )
        ax.scatter(cost, demand, 12, CONTEXTS[c], label=f"{c + 1} ({len(cost)})", alpha=0.8)
    ax.set(xlabel="cost per unit, $x$ (money)", ylabel="demand, $y$ (units)")
    ax.legend(title="context (samples)", ncol=2, fontsize=7)
    return ax


def _boxes(results: Results, ax: Axes, experiment: str, label: str) -> Axes:
    """Draw a box per method, worst case on the left and nominal on the right."""
    methods = results.methods(experiment, "worst")
    width = len(methods) + 1
    for side, metric in enumerate(("worst", "nominal")):
        for k, method in enumerate(methods):
            boxes = ax.boxplot(
                results.series(experiment, method, metric),
                positions=[side * width + k],
                widths=0.7,
                patch_artist=True,
                flierprops={"ms": 3},
                medianprops={"color": "black"},
            )
            boxes["boxes"][0].set_facecolor(COLOURS[method])
            if side == 0:
                boxes["boxes"][0].set_label(LABELS[method].replace("\n", " "))
    middle = (len(methods) - 1) / 2
    ax.set_xticks([middle, width + middle], ["worst case", "nominal"])
    ax.axvline(width - 1, color="#bbbbbb", lw=1)
    ax.set(ylabel=label)
    # A few runs far off would leave no room for the boxes; how many is said.
    values = [results.series(experiment, method, metric) for method in methods for metric in ("worst", "nominal")]
    top = 1.1 * max(float(np.quantile(one, 0.75) + 1.5 * np.ptp(np.quantile(one, [0.25, 0.75]))) for one in values)
    beyond = sum(int((one > top).sum()) for one in values)
    ax.set_ylim(0.0, top)
    if beyond:
        ax.set_title(f"{beyond} values above", fontsize=9, loc="center")
    n = len(results.series(experiment, methods[0], "worst"))
    ax.set_title(f"{n} runs", fontsize=9, loc="right")
    ax.legend(fontsize=7, ncol=2)
    return ax


def panel_4b(results: Results, ax: Axes) -> Axes:
    """Excess risk of every method, stock control."""
    return _boxes(results, ax, "stock-control", "excess risk (money)")


def panel_5a(results: Results, ax: Axes) -> Axes:
    """Two classes in three contexts, and lines between them."""
    for c in range(3):
        x1, x2, label = (
            results.series("classification-data", f"context-{c + 1}", metric) for metric in ("x1", "x2", "label")
        )
        for y, marker in ((0, "o"), (1, "^")):
            chosen = label == y
            words = f"context {c + 1}" if y == 0 else None
            ax.scatter(x1[chosen], x2[chosen], 9, CONTEXTS[c], marker=marker, alpha=0.45, linewidths=0, label=words)
    x2 = np.array(ax.get_ylim())
    for method in ("robust", "erm", "minimax-risk", "group-dro"):
        line = results.series("classification-data", method, "line")
        if line.size:
            words = LABELS[method].replace("\n", " ")
            ax.plot(-(line[1] * x2 + line[2]) / line[0], x2, color=COLOURS[method], lw=2, label=words)
    ax.set(xlabel="$x_1$", ylabel="$x_2$", xlim=(-6.5, 6.5), ylim=tuple(x2))
    ax.legend(fontsize=7, ncol=2, title="circles: $y$ = 0, triangles: $y$ = 1", title_fontsize=7)
    return ax


def panel_5b(results: Results, ax: Axes) -> Axes:
    """Excess error of every method, classification."""
    return _boxes(results, ax, "classification", "excess error (percentage points)")


def panel_6a(results: Results, ax: Axes) -> Axes:
    """Coloured digits, a row for each context."""
    contexts = 5
    per_context = len({row.method for row in results.rows if row.experiment == "coloured-mnist-data"}) // contexts
    canvas = np.ones((contexts * 30, per_context * 30, 3))
    for c in range(contexts):
        for k in range(per_context):
            name = f"context-{c + 1}-image-{k + 1}"
            ink = results.series("coloured-mnist-data", name, "pixel").reshape(28, 28) / 255.0
            red = results.series("coloured-mnist-data", name, "red")[0] > 0
            tile = np.ones((28, 28, 3)) - ink[:, :, None] * np.array([0.15, 0.85, 0.85] if red else [0.85, 0.35, 0.75])
            canvas[c * 30 + 1 : c * 30 + 29, k * 30 + 1 : k * 30 + 29] = tile
    ax.imshow(canvas, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([c * 30 + 15 for c in range(contexts)], [str(c + 1) for c in range(contexts)])
    ax.set_ylabel("context")
    return ax


def panel_6b(results: Results, ax: Axes) -> Axes:
    """Excess error of every method, coloured MNIST."""
    return _boxes(results, ax, "coloured-mnist", "excess error (percentage points)")


def panel_coverage(results: Results, ax: Axes) -> Axes:
    """Radius of each method against the smallest that would do."""
    names = ["stock-control", "classification", "coloured-mnist"]
    styles = {"types": ("#0b6e4f", "o"), "agrawal": ("#4c9f70", "s"), "chi2": ("#93c47d", "^"), "exact": ("k", "_")}
    for k, (method, (colour, marker)) in enumerate(styles.items()):
        radii = [results.series(f"coverage-{name}", method, "radius@0.99")[0] for name in names]
        ax.plot(np.arange(3) + 0.12 * (k - 1.5), radii, marker, color=colour, ms=9, label=_RADII[method])
        if method == "exact":
            continue
        for position, (name, radius) in enumerate(zip(names, radii, strict=True)):
            covered = results.series(f"coverage-{name}", method, "coverage@0.99")[0]
            place = (position + 0.12 * (k - 1.5), radius)
            ax.annotate(f"{100 * covered:.2f}%", place, (0, 7), textcoords="offset points", ha="center", fontsize=7)
    ax.set_xticks(range(3), ["stock control\n(10 contexts)", "classification\n(3)", "coloured MNIST\n(5)"])
    ax.set(ylabel="radius for 99% confidence (bits)", yscale="log", xlim=(-0.5, 2.5))
    ax.set_ylim(top=2.0 * ax.get_ylim()[1])
    ax.legend(fontsize=8)
    return ax


_RADII = {
    "types": "method of types (paper)",
    "agrawal": "Agrawal",
    "chi2": "$\\chi^2$ limit",
    "exact": "99% quantile, simulated",
}


def panel_convergence(results: Results, ax: Axes) -> Axes:
    """How far two solvers are from the optimum."""
    for method, label in (("algorithm-1", "Algorithm 1, step 0.05"), ("interior-point", "interior point")):
        steps, left = (
            results.runs("convergence", method, "suboptimality"),
            results.series("convergence", method, "suboptimality"),
        )
        ax.plot(steps + 1, left, "o-", ms=3, color=COLOURS[method], label=label)
    ax.set(xscale="log", yscale="log", xlabel="iteration + 1", ylabel="worst-case excess above the optimum (nats)")
    ax.legend()
    return ax


PANELS: dict[str, Panel] = {
    panel.name: panel
    for panel in (
        Panel(
            "1a",
            ("illustration",),
            panel_1a,
            "Two contexts of one market: the cost of a unit is alike, demand is not. 90 samples of the first, 10 of "
            "the second.",
        ),
        Panel(
            "1b",
            ("illustration",),
            panel_1b,
            "What a stock level loses in expectation, in each context; dotted, the best level of each.",
        ),
        Panel(
            "2a",
            ("illustration",),
            panel_2a,
            "Risk under two mixes of the contexts: the best level (dotted) follows the mix.",
        ),
        Panel(
            "2b",
            ("illustration",),
            panel_2b,
            "The same in excess of what is best in each context: each context's curve now touches zero.",
        ),
        Panel(
            "3a",
            ("illustration",),
            panel_3a,
            "What the data say about the share of the first context, at three levels of confidence, as they come in. "
            "At 100% the set is every mix.",
        ),
        Panel(
            "3b",
            ("illustration",),
            panel_3b,
            "Excess risk of a level under a mix, with 19 samples of the first context and 1 of the second. Lines: the "
            "least favourable mix for each level; dots: the robust decisions. ERM (square) and minimax risk (star) all "
            "but ignore the second context.",
        ),
        Panel(
            "4a",
            ("stock-control-data",),
            panel_4a,
            "Ten contexts, the first of which supplies seven tenths of 400 samples.",
        ),
        Panel(
            "4b",
            ("stock-control",),
            panel_4b,
            "Excess risk of the level each method chooses, by the true risks: in the worst context, in the true mix.",
        ),
        Panel(
            "5a",
            ("classification-data",),
            panel_5a,
            "Two classes in three contexts, and the lines that methods draw between them. The second feature helps "
            "within a context and misleads between them.",
        ),
        Panel(
            "5b",
            ("classification",),
            panel_5b,
            "Excess error, by exact error rates. Against the noisy iterate of online group DRO the robust method is "
            "ahead in the worst case; against exact minimax risk it is not.",
        ),
        Panel(
            "6a",
            ("coloured-mnist-data",),
            panel_6a,
            "Digits in colours. In the first context red nearly always means low (0 to 4), in the last nothing.",
        ),
        Panel(
            "6b",
            ("coloured-mnist",),
            panel_6b,
            "Excess error on test images in both colours. Minimax risk throws the colour away and is far off.",
        ),
        Panel(
            "coverage",
            ("coverage-stock-control", "coverage-classification", "coverage-coloured-mnist"),
            panel_coverage,
            "How large the set is for 99% confidence, and how often it covers the true mix (figures beside the marks). "
            "The method of types is safe by a wide margin.",
        ),
        Panel(
            "convergence",
            ("convergence",),
            panel_convergence,
            "One draw of the classification task: the paper's gradient descent, at its step size, and the certified "
            "solver.",
        ),
    )
}


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
