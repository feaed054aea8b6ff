"""``counterpoise compare`` and ``explore``, and what all commands have in common."""

import json
import re

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from counterpoise import compare, confidence_radius
from counterpoise.cli import app
from counterpoise.judging import trials
from tests.reports.explorer.examples import data_in
from tests.tables.tabular.examples import patients, posed_file, save

pytestmark = pytest.mark.usefixtures("few_draws")

QUICK = ("--folds", "2", "--reference", "in-sample", "--radius", "0.1")
ILL = ("--target", "ill", "--context", "hospital", "--drop", "days", "--drop", "cost")


def called(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


small_contexts = pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    columns = {**patients(), "family": [f"family {k // 3}" for k in range(150)]}
    return save(columns, tmp_path_factory.mktemp("data") / "patients.csv")


# --- all commands ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "watch", "compare", "explore", "stock"])
def test_help_shows_an_example(command):
    helped = CliRunner().invoke(app, [command, "--help"], env={"NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"})
    assert helped.exit_code == 0
    assert re.search(rf"counterpoise {command} \w+", helped.stdout)
    assert helped.stderr == ""


def test_the_help_lists_the_commands_in_the_order_of_use():
    helped = CliRunner().invoke(app, ["--help"], env={"NO_COLOR": "1", "COLUMNS": "120"})
    names = ("fit", "predict", "evaluate", "watch", "compare", "explore", "stock")
    places = [helped.stdout.index(f" {name} ") for name in names]
    assert helped.exit_code == 0
    assert places == sorted(places)


def test_a_command_that_does_not_exist_is_usage():
    assert called("fitt")[0] == 2


# --- compare ---------------------------------------------------------------------------------------------------------


def test_compare_takes_adjustments_and_shrunken_references(file):
    asked = ("--folds", "2", "--radius", "0.1", "--reference", "shrunk", "--adjust", "0.5", "--json")
    code, printed, _ = called("compare", file, *ILL, "--drop", "family", *asked)
    assert code == 0
    plain = called("compare", file, *ILL, "--drop", "family", *asked[:6], "--json")[1]
    assert json.loads(printed)["methods"] != json.loads(plain)["methods"]
    assert called("compare", file, *ILL, "--adjust", "much")[0] == 2


@small_contexts
def test_compare_prints_the_comparison(file):
    code, printed, said = called("compare", file, *ILL, "--drop", "family", *QUICK)
    assert code == 0
    problem = posed_file(file, drop=["family"], reference="in-sample", radius=0.1, alpha=1e-3)
    plain = compare(problem.X, problem.y, problem.contexts, estimator=problem.model, cv=2)
    assert printed == f"{plain}\n\n{problem.described}\n"
    assert "north" in problem.described
    assert said.startswith("note: classification of ill (ill holds words)\n")


def test_compare_as_json(file):
    code, printed, said = called("compare", file, *ILL, "--drop", "family", *QUICK, "--json", "--quiet")
    assert (code, said) == (0, "")
    result = json.loads(printed)
    natural = {"kept", "measures", "changes", "counts", "features"}
    assert set(result) == {"verdict", "methods", "contexts", "brackets", "mixes", "radius_bits", "notes"} | natural
    assert len(result["brackets"]) == 3
    assert result["notes"] == ["classification of ill (ill holds words)"]
    assert [row["method"] for row in result["methods"]][:2] == ["robust", "erm"]
    assert len(result["contexts"]) == 5 * 3


@small_contexts
def test_the_set_of_the_command_is_calibrated(file):
    asked = ("compare", file, *ILL, "--drop", "family", "--folds", "2", "--reference", "in-sample", "--json", "--quiet")
    bits = {radius: json.loads(called(*asked, *radius)[1])["radius_bits"] for radius in ((), ("--radius", "types"))}
    counts = np.unique(patients()["hospital"], return_counts=True)[1]
    assert bits[()] == pytest.approx(confidence_radius(counts, 0.99, "calibrated"))
    assert bits["--radius", "types"] == pytest.approx(confidence_radius(counts, 0.99))


@small_contexts
def test_compare_keeps_groups_together(file):
    code, printed, said = called("compare", file, *ILL, "--group", "family", *QUICK, "--json")
    assert code == 0, said
    problem = posed_file(file, group="family", reference="in-sample", radius=0.1, alpha=1e-3)
    assert "family" not in problem.columns.features
    plain = compare(problem.X, problem.y, problem.contexts, estimator=problem.model, cv=2, groups=problem.groups)
    assert json.loads(printed)["verdict"] == plain.verdict
    other = json.loads(called("compare", file, *ILL, "--drop", "family", *QUICK, "--json", "-q")[1])
    assert other["verdict"] != plain.verdict


@small_contexts
def test_compare_pools_rare_contexts(tmp_path):
    columns = patients()
    columns["hospital"] = np.repeat(["north", "south", "east", "west"], [80, 50, 11, 9])
    path = save(columns, tmp_path / "p.csv")
    note = "2 contexts have fewer than 20 rows and are pooled as east + west (20 rows): east 11, west 9"
    code, printed, said = called("compare", path, *ILL, *QUICK, "--pool-below", "20", "--json")
    assert code == 0, said
    assert f"note: {note}\n" in said
    result = json.loads(printed)
    assert note in result["notes"]
    assert {row["context"] for row in result["contexts"]} == {"north", "south", "east + west"}
    assert (
        "note: 1 context has fewer than 10 rows; --pool-below 30 pools it" in called("compare", path, *ILL, *QUICK)[2]
    )


def test_a_group_of_all_rows_is_refused(tmp_path):
    path = save({**patients(), "one": ["same"] * 150}, tmp_path / "p.csv")
    code, _, said = called("compare", path, *ILL, "--group", "one", *QUICK)
    assert code == 2
    assert "all rows are one group" in said


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--target", "cost", "--task", "count"), None),
        (("--target", "cost", "--task", "quantile", "--quantile", "0.8"), None),
        (("--target", "cost", "--task", "huber", "--delta", "2"), None),
        (("--target", "hospital"), "both --target and --context"),
        (("--target", "age", "--task", "classification"), "classes; 100 are the most"),
        (("--target", "cost", "--context", "blod"), "Did you mean 'blood'"),
        (("--target", "cost", "--jobs", "0"), "jobs"),
    ],
)
def test_compare_of_every_task(file, more, message):
    code, printed, said = called("compare", file, "--context", "hospital", "--drop", "family", *QUICK, *more)
    assert code == (2 if message else 0), said
    assert (message or "note: ") in said
    assert (printed == "") == bool(message)


def test_compare_is_verbose_and_interrupted(file, monkeypatch):
    code, _, said = called("compare", file, *ILL, *QUICK, "-v")
    assert code == 0
    assert re.search(r"^comparing: \d+\.\d\d s$", said, re.MULTILINE)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(trials.Field, "fitted", interrupted)
    assert called("compare", file, *ILL, *QUICK)[0] == 130


# --- explore ---------------------------------------------------------------------------------------------------------

EXPLORED = (*ILL, "--reference", "in-sample", "--only", "age", "--only", "weight")
SALES = ("--demand", "units", "--cost", "2", "--price", "5", "--context", "weather")


@pytest.fixture(scope="module")
def sales(tmp_path_factory):
    rng = np.random.default_rng(0)
    weather = rng.choice(["sun", "rain"], 80)
    columns = {"units": rng.poisson(np.where(weather == "sun", 40, 20)), "weather": weather}
    return save(columns, tmp_path_factory.mktemp("sales") / "sales.csv")


def test_explore_writes_a_page_of_a_model(file, tmp_path):
    out = tmp_path / "page.html"
    code, printed, said = called("explore", file, *EXPLORED, "-o", out, "-v")
    assert code == 0, said
    assert printed == f"The page is in {out}; open it in a browser, or mail it.\n"
    assert "solving at every level: " in said
    html = out.read_text(encoding="utf-8")
    assert data_in(html)
    assert "ill by hospital" in html
    assert "patients.csv (150 rows, fingerprint " in html
    assert list(tmp_path.iterdir()) == [out]


def test_explore_writes_a_page_of_stock(sales, tmp_path):
    out = tmp_path / "page.html"
    code, _, said = called("explore", sales, *SALES, "--currency", "EUR", "--integer", "-q", "-o", out)
    assert (code, said) == (0, "")
    html = out.read_text(encoding="utf-8")
    assert "How much to order, by weather" in html
    assert data_in(html)


def test_explore_pools_rare_contexts(tmp_path, few_levels):
    columns = {**patients(), "units": np.arange(150) % 17}
    columns["hospital"] = np.repeat(["north", "south", "east", "west"], [80, 50, 11, 9])
    path = save(columns, tmp_path / "p.csv")
    note = "2 contexts have fewer than 20 rows and are pooled as east + west (20 rows): east 11, west 9"
    stock = ("--demand", "units", "--cost", "2", "--price", "5", "--context", "hospital")
    for what in ((*EXPLORED, "--radius", "0.1"), stock):
        code, _, said = called("explore", path, *what, "--pool-below", "20", "-o", tmp_path / "page.html", "--force")
        assert code == 0, said
        assert f"note: {note}\n" in said
        assert note in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--context", "weather"), "--target for a model, or --demand for stock"),
        ((*SALES, "--target", "units"), "--target for a model, or --demand for stock"),
        (("--context", "weather", "--demand", "units", "--price", "3"), "stock needs --cost and --price"),
        (("--context", "weathr", *SALES[:-2]), "Did you mean 'weather'"),
        (("--context", "weather", "--target", "units"), "no column that can be a feature"),
    ],
)
def test_explore_is_told_what_about(sales, tmp_path, arguments, message):
    code, printed, said = called("explore", sales, *arguments, "-o", tmp_path / "page.html")
    assert (code, printed) == (2, "")
    assert message in said
    assert list(tmp_path.iterdir()) == []


def test_explore_guards_what_exists(sales, tmp_path):
    out = tmp_path / "page.html"
    out.write_text("mine")
    code, _, said = called("explore", sales, *SALES, "-o", out)
    assert code == 2
    assert "exists already" in said
    assert out.read_text() == "mine"
    assert called("explore", sales, *SALES, "-o", out, "--force")[0] == 0
    assert out.read_text(encoding="utf-8") != "mine"


def test_explore_interrupted_writes_nothing(sales, tmp_path, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("counterpoise.reports.pages.document.whole", interrupted)
    code, _, said = called("explore", sales, *SALES, "-o", tmp_path / "page.html")
    assert code == 130
    assert "Nothing is left half written" in said
    assert list(tmp_path.iterdir()) == []


def test_every_command_takes_o_for_where_its_result_goes():
    for name, command in get_command(app).commands.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--out", "-o"} <= options, name


@small_contexts
def test_compare_writes_what_it_prints_as_json(file, tmp_path):
    asked = ("compare", file, *ILL, "--drop", "family", *QUICK, "-o", tmp_path / "new" / "comparison.json")
    code, printed, said = called(*asked, "--json")
    assert code == 0, said
    assert json.loads((tmp_path / "new" / "comparison.json").read_text(encoding="utf-8")) == json.loads(printed)
    code, printed, said = called(*asked)
    assert (code, printed) == (2, "")
    assert "--force" in said
