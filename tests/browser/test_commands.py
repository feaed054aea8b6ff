"""Pages that commands write of tables whose every name and word wants to be code."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from counterpoise.cli import app
from counterpoise.experiments import page
from counterpoise.experiments.reproduce import Settings, Silent, reproduce
from counterpoise.table import Table
from tests.browser.looks import at_width, cut_off, on_paper

WORDS = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 1</script>",
    "\"><img src=x onerror='window.hacked = 1'>",
    "' onmouseover='window.hacked = 1",
    "javascript:window.hacked = 1",
    "</style></title><svg onload=window.hacked=1>",
    "<a href='javascript:window.hacked = 1'>click</a>",
    "${window.hacked = 1}` + (window.hacked = 1) + `",
]
TARGET, CONTEXT, FEATURE, WORD = (f"{name} {word}" for name, word in zip("tcfw", WORDS, strict=False))
PAGES = {"model/report": 0, "evaluation": 0, "watch": 0, "explorer": 1, "orders": 1, "stock": 0, "reproduction": 0}
"""And how many programs are ours."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory, few_draws):
    folder, rng = tmp_path_factory.mktemp("pages"), np.random.default_rng(0)
    n = 40 * len(WORDS)
    contexts = np.repeat(WORDS, 40)
    age = rng.normal(size=n)
    columns = {
        TARGET: np.where(age + rng.normal(size=n) > 0.0, WORDS[0], WORDS[1]),
        CONTEXT: contexts,
        FEATURE: age,
        WORD: rng.choice(WORDS, n),
        "units": rng.poisson(9.0, n),
    }
    file = folder / "<img src=x onerror=hacked>.parquet"
    pq.write_table(pa.table({name: column.tolist() for name, column in columns.items()}), file)
    model = ("--target", TARGET, "--context", CONTEXT, "--drop", "units", "--reference", "in-sample")
    sales = ("--demand", "units", "--cost", "2", "--price", "5", "--context", CONTEXT)
    money = ("--currency", WORDS[2], "--period", WORDS[4])
    for command, *more in (
        ("fit", *model, "--folds", "2", "--radius", "0.1", "--out", folder / "model"),
        ("explore", *model, "--out", folder / "explorer.html"),
        ("explore", *sales, *money, "--out", folder / "orders.html"),
        ("stock", *sales, *money, "--product", WORD, "--min-rows", "1", "--out", folder / "stock.html"),
    ):
        result = CliRunner().invoke(app, [command, str(file), *map(str, more)], catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
    judged = ["evaluate", str(folder / "model"), str(file), "--out", str(folder / "evaluation.html")]
    assert CliRunner().invoke(app, judged, catch_exceptions=False).exit_code == 0
    watched = ["watch", str(folder / "model"), str(file), "--out", str(folder / "watch.html")]
    assert CliRunner().invoke(app, watched, catch_exceptions=False).exit_code == 0
    table = Table.of("numbers", number=WORDS, paper=list(range(len(WORDS))))
    # Without pictures, which would lie beside it.
    html = page.written([], table, table, dict.fromkeys(WORDS, WORDS[0]), WORDS)
    (folder / "reproduction.html").write_text(html, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", PAGES)
def test_no_word_of_a_table_becomes_code(opened, name):
    browser = opened(name)
    # Whatever reacts to a pointer gets one.
    browser.execute_script(
        "for (const one of document.querySelectorAll('*'))"
        " for (const kind of ['mouseover', 'focus', 'load', 'error']) one.dispatchEvent(new Event(kind))"
    )
    found = browser.execute_script(
        "return [typeof window.hacked, document.scripts.length, document.images.length,"
        " [...document.querySelectorAll('*')].flatMap((e) => [...e.attributes])"
        ".filter((a) => a.name.startsWith('on') || /^\\s*javascript:/i.test(a.value)"
        " && ['href', 'src', 'action', 'xlink:href'].includes(a.name)).length]"
    )
    assert found == ["undefined", PAGES[name], 0, 0]
    assert "window.hacked = 1" in browser.page_source


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [400, 1200])
def test_no_table_is_cut_off(opened, browser, name, width):
    at_width(browser, width)
    assert cut_off(opened(name)) == []


@pytest.mark.parametrize("name", PAGES)
def test_no_table_is_cut_off_on_paper(opened, browser, name):
    with on_paper(browser):
        assert cut_off(opened(name)) == []


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory):
    out = tmp_path_factory.mktemp("paper")
    reproduce(Settings(out, ("1a", "4b"), runs=2, jobs=1), Silent())
    return out


class TestReproduction:
    """What the command writes into a folder: a page, and the pictures beside it."""

    @pytest.fixture
    def pages(self, reproduction):
        return reproduction

    def test_pictures_and_styles_are_shown(self, opened):
        browser = opened("index")
        shown = browser.execute_script(
            "return [...document.images].map((one) => [one.getAttribute('src'), one.complete && one.naturalWidth > 0])"
        )
        assert shown == [["1a.svg", True], ["4b.svg", True]]
        grid = browser.execute_script("return getComputedStyle(document.querySelector('.panels')).display")
        assert grid == "grid"

    def test_a_program_in_the_page_would_not_run(self, browser, reproduction):
        html = (reproduction / "index.html").read_text(encoding="utf-8")
        hostile = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'><img src='http://[::1]/x'>"
        changed = reproduction / "changed.html"
        changed.write_text(html.replace("<body>", f"<body>{hostile}"), encoding="utf-8")
        browser.get(changed.as_uri())
        assert browser.execute_script("return [typeof window.hacked, document.scripts.length]") == ["undefined", 1]
        refused = [entry["message"] for entry in browser.get_log("browser")]
        assert sum("Content Security Policy" in one for one in refused) == 3
        changed.unlink()
