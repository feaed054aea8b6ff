"""What the README, the pages and the examples say is what happens."""

import ast
import io
import json
import re
import runpy
import shlex
import shutil
from contextlib import redirect_stdout
from functools import cache
from itertools import dropwhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import counterpoise as cpo
from counterpoise import losses, sets
from counterpoise.cli import app
from counterpoise.core import solvers
from tests.draws import fewer_draws

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
PAGES = sorted(
    page for page in (ROOT / "docs").rglob("*.md") if not {"gallery", "generated"} & set(page.relative_to(ROOT).parts)
)

DIRECTIVES = {"{toctree}", "{image}", "{literalinclude}", "{eval-rst}"}
"""Fences that Sphinx reads; what they name is checked when the pages are built, and in part below."""

NOT_TYPED = {
    "minimise over theta": "a formula",
    "note: visits takes about": "what the command says",
    "note: 17,379 rows in 731 groups": "what the command says",
    "warning: tax alone predicts price": "what the command says",
    "Error: --share asks for": "what the command says",
    "self.loss = RobustLoss(": "lines of a class that the reader has",
    "LogCosh: Entry(": "lines of tests that the reader adds to",
    "def _log_cosh(y, z):": "lines of a referee that the reader adds to",
    "YourSolver(": "a class that the reader has",
    "MAILTO=": "lines of a crontab",
    "from airflow": "lines of a file that Airflow runs",
    "- name: Watch": "a step of a workflow",
}
"""How indented blocks begin that are neither typed nor run, and why."""


class Block(NamedTuple):
    """A block of code: ``kind`` is what stands behind the fence; of indented blocks it is empty."""

    kind: str
    text: str


def blocks(page):
    """Return the blocks of a page in their order, whatever their fence."""
    found, lines = [], iter(page.read_text(encoding="utf-8").splitlines())
    before = ""
    for line in lines:
        fence = re.match(r" {0,3}(`{3,}|~{3,})(.*)", line)
        if fence:
            inside = []
            for one in lines:
                if one.strip().startswith(fence[1]) and not one.strip().strip(fence[1][0]):
                    break
                inside.append(one)
            else:
                raise AssertionError(f"{page.name}: a block is never closed: {line}")
            found.append(Block(fence[2].strip(), "\n".join(inside) + "\n"))
        elif line.startswith("    ") and line.strip():
            if before.startswith("    "):
                found[-1] = Block("", found[-1].text + line[4:] + "\n")
            elif not before.strip():
                found.append(Block("", line[4:] + "\n"))
            # Otherwise it goes on with an item of a list.
        before = line
    return found


def run_blocks(page):
    """Run the code of a page, block after block, and return the names it defines.

    What stands in a block of text right after it is what it prints.
    """
    names: dict[str, object] = {}
    printed = ""
    for block in blocks(page):
        if block.kind == "python":
            out = io.StringIO()
            with redirect_stdout(out):
                exec(compile(block.text, page.name, "exec"), names)
            printed = out.getvalue()
            print(printed, end="")
        elif block.kind == "text":
            assert printed == block.text, f"{page.name} shows\n{block.text}and prints\n{printed}"
    return names


def named(page):
    return str(page.relative_to(ROOT / "docs")) if page != README else "README.md"


# The tutorial is run where what it says of its comparison is looked at.
every_page = pytest.mark.parametrize("page", [page for page in PAGES if page != TUTORIAL], ids=named)
everything = pytest.mark.parametrize("page", [README, *PAGES], ids=named)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Let pages that write files do so where nobody minds."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@every_page
# An example has few rows; and Lightning asks torch something in a way that this will drop.
@pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning")
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
def test_the_pages_run(page, elsewhere):
    run_blocks(page)


WITH_CODE = {
    "choosing.md",
    "cluster.md",
    "command.md",
    "deep.md",
    "estimators.md",
    "evaluate.md",
    "later.md",
    "extending/experiment.md",
    "extending/loss.md",
    "extending/rows.md",
    "extending/set.md",
    "extending/solver.md",
    "index.md",
    "mixtures.md",
    "stock.md",
    "tutorial.md",
    "published.md",
    "watch.md",
}


def test_there_is_code_to_run():
    counted = {named(page): sum(block.kind == "python" for block in blocks(page)) for page in PAGES}
    assert {name for name, n in counted.items() if n} == WITH_CODE
    # Code behind a fence that is spelt in another way would not be found above, but is here.
    imports = re.compile(r"^(import \w|from [\w.]+ import )", re.MULTILINE)
    assert {named(page) for page in PAGES if imports.search(_text(page))} <= WITH_CODE


@everything
def test_every_block_is_run_or_left_out_on_purpose(page):
    kinds = {block.kind.partition(" ")[0] for block in blocks(page)}
    assert kinds <= {"", "python", "text", *DIRECTIVES}, f"{page.name}: nobody runs a block of {kinds}"
    for block in blocks(page):
        if block.kind == "":
            assert typed(block) or block.text.startswith(tuple(NOT_TYPED)), f"{page.name}: {block.text}"


@pytest.mark.parametrize("broken", ["1 / 0", "print(2)", "import counterpoise as cpo; cpo.nothing"])
def test_a_page_that_is_wrong_is_noticed(broken, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"```python\nprint(1)\n```\n\n```text\n1\n```\n\n```python\n{broken}\n```\n\n```text\n1\n```\n")
    with pytest.raises((ZeroDivisionError, AssertionError, AttributeError)):
        run_blocks(page)
    page.write_text(page.read_text().replace(broken, "print(1)"))
    run_blocks(page)


# --- what is typed -------------------------------------------------------------------------------------------


def typed(block):
    """Return the words of each line of a block, if all of them are commands."""
    try:
        lines = [shlex.split(line, comments=True) for line in block.text.splitlines()]
    except ValueError:
        return []
    # Variables may be set before a command.
    lines = [list(dropwhile(lambda word: re.match("[A-Z_]+=", word), words)) for words in lines]
    return lines if all(words and words[0] in ("counterpoise", "make", "python") for words in lines) else []


def typed_lines(page, command):
    lines = [words for block in blocks(page) if block.kind == "" for words in typed(block)]
    return [words[1:] for words in lines if words[0] == command]


def spoken(page):
    """Return what stands between backticks in the text of a page, and the blocks that are typed."""
    text = re.sub(r"^ *```.*?^ *```", "", _text(page), flags=re.M | re.S)
    indented = [block.text for block in blocks(page) if block.kind == ""]
    return [*re.findall(r"`([^`\n]+)`", text), *indented]


@cache
def tables():
    """Return the files of which the pages speak, as text by name."""
    rng = np.random.default_rng(0)
    n = 240
    place = rng.choice(["north", "south", "west"], n, p=[0.6, 0.25, 0.15])
    age, pressure = rng.normal(50, 10, n), rng.normal(120, 15, n)
    ill = np.where(age / 10 + np.where(place == "north", 1, -1) * pressure / 15 + rng.normal(size=n) > 5, "yes", "no")
    units = rng.poisson(np.select([place == "north", place == "south"], [60, 35], 20))
    patients = zip(place, age.round(1), pressure.round(1), ill, strict=True)
    rows = [",".join(map(str, row)) for row in patients]
    sales = [",".join(map(str, row)) for row in zip(place, units, rng.integers(4, 7, n), strict=True)]
    days = np.datetime64("2024-01-01") + np.arange(n) // 2
    hours = [",".join(map(str, row)) for row in zip(days, place, pressure.round(1), units, strict=True)]
    homes = zip(place, days, rng.integers(10, 15, n), age.round(1), np.exp(age / 50.0).round(3), strict=True)
    return {
        "cars.csv": cars(),
        "hours.csv": "\n".join(["day,weather,wind,hires", *hours]),
        "homes.csv": "\n".join(["city,sold,postcode,metres,price", *(",".join(map(str, row)) for row in homes)]),
        "patients.csv": "\n".join(["hospital,age,pressure,disease", *rows]),
        "visits/1.csv": "\n".join(["clinic,age,pressure,ill", *rows[:120]]),
        "visits/2.csv": "\n".join(["clinic,age,pressure,ill", *rows[120:]]),
        "census.csv": "hospital,count\nnorth,500\nsouth,300\nwest,200",
        "new.csv": "\n".join(["age,pressure", *(row.split(",", 1)[1].rpartition(",")[0] for row in rows[:20])]),
        "later.csv": "\n".join(["hospital,age,pressure,disease", *rows[100:180], "island,50,120,yes"]),
        "sales.csv": "\n".join(["weather,units,unit_cost", *sales]),
    }


def cars():
    """Return the table of the demonstration as its script writes it."""
    with TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        runpy.run_path(str(ROOT / "examples" / "cars.py"))["main"](Path(folder) / "cars.csv")
        return (Path(folder) / "cars.csv").read_text(encoding="utf-8").strip()


def write_tables(folder):
    for name, text in tables().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Return a folder in which the first fit of the pages was typed."""
    folder = tmp_path_factory.mktemp("fitted")
    write_tables(folder)
    fit = next(words for _, words in COMMANDS if words[0] == "fit")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        fewer_draws(patch.setattr)
        assert CliRunner().invoke(app, fit, catch_exceptions=False).exit_code == 0
    return folder


COMMANDS = [(page, words) for page in (README, *PAGES) for words in typed_lines(page, "counterpoise")]


@pytest.mark.parametrize(
    ("page", "words"), COMMANDS, ids=[f"{named(p)} {w[0]} {k}" for k, (p, w) in enumerate(COMMANDS)]
)
@pytest.mark.usefixtures("few_levels")
def test_commands_do_what_they_are_typed_for(page, words, elsewhere, monkeypatch, request):
    fewer_draws(monkeypatch.setattr)
    if words[0] == "reproduce":
        # It takes minutes, and has tests of its own; here it only has to be understood.
        typer.main.get_command(app).commands["reproduce"].make_context("reproduce", words[1:])
        return
    write_tables(elsewhere)
    if words[0] in ("predict", "evaluate", "watch"):
        shutil.copytree(request.getfixturevalue("fitted"), elsewhere, dirs_exist_ok=True)
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    # Rows of a hospital that the fit did not have are an alarm, which is what a watch is for.
    assert result.exit_code in ((0, 3) if words[0] == "watch" else (0,)), result.output


def test_there_are_commands_of_every_kind():
    assert {words[0] for _, words in COMMANDS} == {
        "fit",
        "predict",
        "evaluate",
        "watch",
        "compare",
        "explore",
        "stock",
        "reproduce",
    }


@cache
def options():
    commands = typer.main.get_command(app).commands.values()
    return {"--help", "--version"} | {name for one in commands for option in one.params for name in option.opts}


@everything
def test_options_that_are_named_exist(page):
    said = [words for words in spoken(page) if not words.startswith(("python ", "pip "))]
    found = {one for words in said for one in re.findall(r"(?<![\w-])--[a-z][a-z-]+", words)}
    assert found <= options()


@everything
def test_targets_that_are_named_exist(page):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    assert {one for words in spoken(page) for one in re.findall(r"(?:^|\s)make ([a-z-]+)", words)} <= targets


@everything
def test_files_that_are_named_exist(page):
    for words in spoken(page):
        for name in re.findall(r"(?:[\w.-]+/)+[\w-]+\.(?:py|md|toml|txt)\b", words):
            places = (ROOT, ROOT / "src" / "counterpoise", page.parent)
            made = "your_" in name or name.startswith(("fuzz/", "bench/"))
            assert made or any((place / name).exists() for place in places), f"{page.name} speaks of {name}"


# --- links ---------------------------------------------------------------------------------------------------


def _text(page):
    return page.read_text(encoding="utf-8")


def anchors(page):
    """Return what the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", _text(page), flags=re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@everything
def test_links_between_pages_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", _text(page)):
        goal = page.parent / target if target else page
        assert goal.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(goal), f"{page.name} links to {target}#{anchor}"


def test_files_that_pages_include_are_there():
    for page in PAGES:
        for name in re.findall(r"```{literalinclude} (\S+)", _text(page)):
            assert (page.parent / name).is_file(), f"{page.name} includes {name}"


@pytest.mark.parametrize("kind", ["loss", "set", "rows", "solver", "experiment"])
def test_pages_on_extending_show_a_real_file(kind):
    assert "{literalinclude} ../../src/counterpoise/" in _text(ROOT / "docs" / "extending" / f"{kind}.md")


def exported(module):
    """Return ``__all__`` of a module that may need an extra, without importing it."""
    tree = ast.parse((ROOT / "src" / "counterpoise" / module).read_text(encoding="utf-8"))
    return next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )


def test_the_reference_names_everything_public():
    page = _text(ROOT / "docs" / "api" / "index.md")
    listed = set(re.findall(r"^   ([\w.]+)$", page, re.MULTILINE))
    assert {*cpo.__all__, *losses.__all__, *solvers.__all__} - {"__version__"} <= listed
    last = {name.rpartition(".")[2] for name in listed}
    others = [
        exported(f"{name}.py")
        for name in ("torch/__init__", "dask/__init__", "reports/explorer/__init__", "reports/plots")
    ]
    # Types and numbers that are public for the sake of other modules have no page.
    assert {name for names in others for name in names} | {*sets.__all__} - {
        "RADIUS_TICKS",
        "RadiusMethod",
        "BallKind",
    } <= last


# --- what is said ---------------------------------------------------------------------------------------------


def test_the_readme_runs(capsys, elsewhere):
    names = run_blocks(README)
    assert 22.5 < names["solution"].theta[0] < 23.5
    assert names["tighter"] < names["radius"] / 2
    assert "Certificate(lower=" in capsys.readouterr().out


def test_the_tutorial_runs_and_says_what_the_comparison_does(elsewhere):
    comparison = run_blocks(TUTORIAL)["comparison"]
    summary = comparison.summary
    assert "The best baseline, inverse-frequency, cannot be told apart from robust" in comparison.verdict
    rows = {row["method"]: row for row in summary.rows()}
    worst = {name: round(row["worst_excess"], 2) for name, row in rows.items()}
    assert (worst["inverse-frequency"], worst["robust"], worst["erm"]) == (0.11, 0.18, 0.33)
    mixed = {name: round(row["mix_excess"], 2) for name, row in rows.items()}
    assert (mixed["robust"], mixed["erm"]) == (0.1, 0.12)
    assert rows["robust"]["mix_excess_change_high"] < 0
    price = dict(zip(summary["method"].tolist(), summary["nominal_risk_change"], strict=True))
    assert price["inverse-frequency"] > 2.0 * price["robust"] > 0.0


@pytest.mark.parametrize(
    ("n_contexts", "draws", "times"),
    [
        (2, 20, 1.4),
        (10, 400, 3.0),
        (100, 1e6, 10.5),
        (10, 100, 2.4),
        (10, 20_000, 4.8),
        (2, 1000, 2.4),
        (200, 1000, 5.7),
    ],
)
def test_how_much_smaller_the_sharper_radius_is(n_contexts, draws, times):
    counts = np.ones(n_contexts)
    types, agrawal = (cpo.confidence_radius(counts, 0.99, method, draws=draws) for method in ("types", "agrawal"))
    assert types / agrawal == pytest.approx(times, abs=0.05)


def test_the_quickstart_runs(capsys):
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert "minimax regret" in out
    assert "Proof:" in out


# --- the demonstration ---------------------------------------------------------------------------------------


def demonstration():
    """Return the words of the command that ``make demo`` ends with."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    line = re.search(r"^\t\$\(BIN\)/counterpoise (fit demo/.*)$", makefile, re.M)
    return shlex.split(line[1])


def test_the_demonstration_is_what_the_tutorial_types():
    words = [w for w in demonstration() if w != "--force"]
    words = [{"demo/cars.csv": "cars.csv", "demo/model": "model/"}.get(word, word) for word in words]
    assert words in typed_lines(TUTORIAL, "counterpoise")


def test_the_demonstration_gains_on_later_rows(elsewhere, monkeypatch):
    fewer_draws(monkeypatch.setattr)
    write_tables(elsewhere)
    words = ["cars.csv" if word == "demo/cars.csv" else word for word in demonstration()[1:]]
    words = words[: words.index("--out")]
    found = json.loads(CliRunner().invoke(app, ["compare", *words, "--json", "-q"], catch_exceptions=False).stdout)
    assert found["kept"] == "inverse-frequency"
    assert found["agreement"].startswith("A gain shows in later rows")
    errors = {(row["method"], row["context"]): row["RMSE"] for row in found["later"]["measures"]}
    table = re.findall(
        r"^\| (Europe|Japan|USA|all) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", _text(TUTORIAL), re.M
    )
    assert len(table) == 4
    for origin, _, *said in table:
        shown = [f"{errors[method, origin]:.2f}" for method in ("erm", "inverse-frequency", "robust")]
        assert shown == said
        assert errors["robust", origin] < errors["erm", origin]


def test_the_picture_shows_a_gain_everywhere(elsewhere):
    script = runpy.run_path(str(ROOT / "examples" / "cars_picture.py"))
    figure = script["drawn"](range(1975, 1978))
    assert len(figure.axes) == 3
    for axes in figure.axes:
        plain, robust = (line.get_ydata() for line in axes.lines)
        assert (robust < plain).all()
    assert (ROOT / "docs" / "_static" / "cars.svg").stat().st_size < 100_000
