"""Figures: a table in, the same axes out, and nothing else."""

import subprocess
import sys
from functools import cache

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")

from matplotlib import pyplot

from counterpoise import RobustLogisticRegression, compare, confidence_path, plan_stock
from counterpoise.exceptions import InvalidInputError
from counterpoise.reports import plots as figures
from counterpoise.reports.methods import COLOURS
from counterpoise.reports.plots import (
    plot_comparison,
    plot_contexts,
    plot_levels,
    plot_path,
    plot_stock,
    plot_weights,
)
from counterpoise.table import Table


def rows(names=("north", "south", "east")):
    rng = np.random.default_rng(0)
    c = rng.choice(3, 200, p=[0.6, 0.25, 0.15])
    X = rng.normal(size=(200, 2))
    return X, X[:, 0] * (1.0 - c) + X[:, 1] + rng.normal(size=200) > 0, np.array(names)[c]


@cache
def path(names=("north", "south", "east")):
    X, y, c = rows(names)
    return confidence_path(RobustLogisticRegression(), X, y, contexts=c, levels=6)


@cache
def comparison():
    return compare(*rows(), cv=3)


@cache
def product(names=("sun", "rain")):
    demand = np.random.default_rng(1).poisson(20.0, 60).astype(float)
    return plan_stock(demand, cost=1.0, price=3.0, contexts=[names[k % 2] for k in range(60)]).plans[0]


TABLES = {
    plot_path: path,
    plot_weights: path,
    plot_contexts: lambda: comparison().by_context.where(method="robust"),
    plot_comparison: lambda: comparison().summary,
    plot_levels: lambda: product().path(),
}
ALL = {**TABLES, plot_stock: product}


@pytest.fixture(autouse=True)
def closed(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("shown")

    monkeypatch.setattr(pyplot, "show", refuse)
    yield
    pyplot.close("all")


def drawn(ax):
    ax.figure.canvas.draw()
    return ax


@pytest.mark.parametrize("plot", ALL, ids=lambda plot: plot.__name__)
def test_it_draws_on_the_axes_it_is_given_and_nowhere_else(plot):
    figure, (left, right) = pyplot.subplots(1, 2)
    assert plot(ALL[plot](), right) is right
    assert drawn(right).has_data()
    assert not left.has_data()
    assert left.get_xlabel() == ""
    assert pyplot.get_fignums() == [figure.number]
    assert right.get_xlabel()
    assert right.get_ylabel() or plot is plot_contexts


@pytest.mark.parametrize("plot", ALL, ids=lambda plot: plot.__name__)
def test_without_axes_it_makes_some(plot):
    ax = plot(ALL[plot]())
    assert drawn(ax).has_data()
    assert pyplot.get_fignums() == [ax.figure.number]


@pytest.mark.parametrize("plot", ALL, ids=lambda plot: plot.__name__)
def test_the_table_is_not_changed(plot):
    table = ALL[plot]()
    before = {name: np.copy(table[name]) for name in table} if plot in TABLES else None
    plot(table)
    for name, column in (before or {}).items():
        assert table[name].tolist() == column.tolist()


def lines(ax):
    """Return what was drawn, as numbers."""
    boxes = [[*patch.get_bbox().bounds] for patch in ax.patches]
    return [line.get_xydata().tolist() for line in ax.lines] + boxes


FRAMES = {
    "pandas": lambda table: table.to_pandas(),
    "pandas with an index": lambda table: table.to_pandas().set_axis(range(50, 50 + table.n_rows)),
    "a dictionary": dict,
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("plot", TABLES, ids=lambda plot: plot.__name__)
def test_a_frame_is_drawn_like_the_table(plot, kind):
    table = TABLES[plot]()
    assert lines(drawn(plot(FRAMES[kind](table)))) == lines(plot(table))


@pytest.mark.parametrize("plot", TABLES, ids=lambda plot: plot.__name__)
@pytest.mark.parametrize("pandas", [False, True])
def test_a_column_that_is_missing_is_named(plot, pandas):
    table = Table.of(something=np.arange(3))
    with pytest.raises(InvalidInputError, match=r"column.*columns are something"):
        plot(table.to_pandas() if pandas else table)


def test_a_refused_table_leaves_no_figure_behind():
    with pytest.raises(InvalidInputError):
        plot_path({"something": np.arange(3)})
    assert pyplot.get_fignums() == []


def test_the_lines_are_the_columns():
    ax = plot_path(path())
    worst, objective, mean = ax.lines
    assert worst.get_ydata().tolist() == path()["worst_excess"].tolist()
    assert objective.get_ydata().tolist() == path()["objective"].tolist()
    assert mean.get_ydata()[0] == 0.0
    assert (worst.get_xdata()[0], worst.get_xdata()[-1]) == (0.0, 1.0)
    assert objective.get_color() == COLOURS["robust"]
    weights = plot_weights(path())
    assert [line.get_label() for line in weights.lines] == ["east", "north", "south"]


def test_bars_have_the_length_of_the_value_and_whiskers_of_the_interval():
    table = TABLES[plot_contexts]()
    for value in ("excess", "risk"):
        ax = plot_contexts(table, value=value)
        assert [patch.get_width() for patch in ax.patches] == table[value].tolist()
        assert [label.get_text() for label in ax.get_yticklabels()] == table["context"].tolist()
    ax = plot_contexts({"context": np.array(["a", "b"]), "excess": np.array([1.0, 2.0])})
    assert len(ax.patches) == 2


def test_every_method_keeps_its_colour():
    ax = plot_comparison(comparison().summary)
    assert [container[0].get_color() for container in ax.containers] == [
        COLOURS[name] for name in comparison().summary["method"].tolist()
    ]


@cache
def three_weathers():
    rng = np.random.default_rng(5)
    weather = rng.choice(["fair", "rain", "storm"], size=90, p=[0.75, 0.17, 0.08])
    usual = np.select([weather == "fair", weather == "rain"], [60.0, 38.0], 15.0)
    return plan_stock(usual + 6.0 * rng.random(90), cost=7.0, price=12.0, contexts=weather, radius="agrawal").plans[0]


@cache
def one_demand():
    return plan_stock(np.full(40, 20.0), cost=1.0, price=3.0, contexts=["sun", "rain"] * 20).plans[0]


@pytest.mark.parametrize("plan", [product, three_weathers, one_demand], ids=lambda plan: plan.__name__)
@pytest.mark.parametrize("size", [(6.4, 4.8), (5.0, 4.0)])
@pytest.mark.parametrize("points", [8.0, 10.0])
def test_names_of_rules_are_legible_whatever_they_order(plan, size, points):
    with pyplot.rc_context({"font.size": points}):
        ax = drawn(plot_stock(plan(), pyplot.subplots(figsize=size, layout="constrained")[1]))
        boxes = [text.get_window_extent() for text in ax.texts]
    inside = ax.get_window_extent()
    assert len(boxes) == 5
    for k, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:k])
        assert not box.overlaps(ax.get_legend().get_window_extent())
        assert inside.x0 < box.x0 < box.x1 < inside.x1
        # Not on the frame, but two points off it.
        assert inside.y0 < box.y0 < box.y1 < inside.y1 - 2.0 * ax.figure.dpi / 72.0


def test_names_of_rules_are_beside_their_lines():
    ax = drawn(plot_stock(three_weathers()))
    orders = three_weathers().curves().orders
    assert {text.get_color() for text in ax.texts} == {COLOURS[rule] for rule in orders}
    for text in ax.texts:
        rule = next(rule for rule in orders if COLOURS[rule] == text.get_color())
        line = ax.transData.transform((orders[rule], 0.0))[0]
        box = text.get_window_extent()
        assert min(abs(box.x0 - line), abs(box.x1 - line)) < 10.0


STRANGE = {
    "mathematics": "$\\frac$",
    "money": "5$ to 6$",
    "an underscore": "_other",
    "two lines": "a\nb",
    "markup": "<b>x</b>",
    "long": "x" * 500,
}


@pytest.mark.parametrize("case", STRANGE)
@pytest.mark.parametrize("plot", [plot_weights, plot_contexts, plot_stock], ids=lambda plot: plot.__name__)
def test_names_are_shown_as_they_are(plot, case):
    name = STRANGE[case]
    if plot is plot_weights:
        ax = plot(path((name, "south", "east")))
    elif plot is plot_stock:
        ax = plot(product((name, "rain")))
    else:
        ax = plot({"context": np.array([name, "south"]), "excess": np.array([1.0, 2.0])})
    drawn(ax)
    legend = ax.get_legend()
    texts = ax.get_yticklabels() if plot is plot_contexts else legend.get_texts()
    words = [text.get_text() for text in texts]
    assert len(words) == {plot_weights: 3, plot_contexts: 2, plot_stock: 2}[plot]
    assert any(word.lstrip("\u200b").replace("\\$", "$").startswith(name[:20]) for word in words)
    # Not the letters of a formula: what has dollars in it is not typeset.
    assert all(not text.get_parse_math() or "$" not in text.get_text().replace("\\$", "") for text in texts)


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"matplotlib.*pip install 'counterpoise\[plot\]'"):
        plot_path(path())


def test_importing_the_figures_needs_no_matplotlib():
    code = "import sys, counterpoise.reports.plots; assert not [m for m in sys.modules if m.startswith('matplotlib')]"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_everything_that_is_public_is_tested():
    assert {plot.__name__ for plot in ALL} == set(figures.__all__)
