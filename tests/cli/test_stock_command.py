"""The command for stock: the same numbers as the library, whatever the file, and one line for every mistake."""

import contextlib
import gzip
import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterpoise import cli, plan_stock
from tests.reports.pages.hostile import NAMES as HOSTILE


def called(*arguments):
    """Run the command as the shell would; return its exit code and what it wrote on both streams."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["counterpoise", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return code, out.getvalue(), err.getvalue()


def sales(n=60):
    """Return a table of two products in two kinds of weather, one dear when wet."""
    rng = np.random.default_rng(0)
    weather = rng.choice(["dry", "wet"], n, p=[0.7, 0.3])
    return {
        "units": np.maximum(np.round(np.where(weather == "dry", 30.0, 12.0) + 5.0 * rng.normal(size=n)), 0.0),
        "unit_cost": np.round(rng.uniform(1.0, 4.0, n), 2),
        "price": np.round(rng.uniform(6.0, 9.0, n), 2),
        "weather": weather,
        "store": np.tile([1, 2], n // 2),
        "sku": np.repeat(["bread", "rolls"], n // 2),
    }


def write_csv(path, table, delimiter=",", decimal="."):
    def cell(value):
        return str(value).replace(".", decimal) if isinstance(value, float) else str(value)

    rows = zip(*(np.asarray(column).tolist() for column in table.values()), strict=True)
    lines = [delimiter.join(table), *(delimiter.join(map(cell, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of its own to work in, with the table in it."""
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "sales.csv", sales())
    return tmp_path


PLAIN = ("--demand", "units", "--cost", "unit_cost", "--price", "price", "--context", "weather")


def same_numbers(printed, plan):
    """Whether JSON holds the tables of a plan, digit by digit."""
    for name in ("levels", "reasons", "choices"):
        expected = list(getattr(plan, name).rows())
        assert len(printed[name]) == len(expected)
        for got, row in zip(printed[name], expected, strict=True):
            assert list(got) == list(row)
            for column, value in row.items():
                assert got[column] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), column


def library_plan(**changes):
    table = sales()
    arguments = {
        "demand": table["units"],
        "cost": table["unit_cost"],
        "price": table["price"],
        "contexts": table["weather"],
        # The default of the command; the library's is the paper's.
        "radius": "calibrated",
    }
    return plan_stock(**arguments | changes)


# What it does


def test_a_plan_is_printed_and_a_report_is_written(folder):
    code, out, err = called("stock", "sales.csv", *PLAIN, "--integer", "--currency", "EUR", "--period", "day")
    assert code == 0
    plan = library_plan(integer=True, currency="EUR", period="day")
    assert out.startswith(plan.summary)
    assert err == "The report is in stock-report.html.\n"
    assert "Traceback" not in out + err
    for row in plan.choices.rows():
        assert f"{row['order']:.0f}" in out
        assert f"{row['average_profit']:.2f}" in out
    assert (folder / "stock-report.html").read_text(encoding="utf-8").startswith("<!")
    assert sorted(path.name for path in folder.iterdir()) == ["sales.csv", "stock-report.html"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "semicolons", "gzip"])
def test_files_of_every_kind_hold_the_same_plan(folder, kind):
    table = sales()
    if kind == "csv":
        path = folder / "sales.csv"
    elif kind == "gzip":
        path = folder / "sales.csv.gz"
        path.write_bytes(gzip.compress((folder / "sales.csv").read_bytes()))
    elif kind == "parquet":
        path = folder / "sales.parquet"
        pq.write_table(pa.table(table), path)
    elif kind == "feather":
        path = folder / "sales.arrow"
        with pa.ipc.new_file(path, pa.table(table).schema) as sink:
            sink.write_table(pa.table(table))
    else:
        path = write_csv(folder / "euro.csv", table, ";", ",")
    code, out, err = called("stock", path, *PLAIN, "--json")
    assert code == 0, err
    same_numbers(json.loads(out), library_plan())


OPTIONS = {
    "a price and a cost for all": (("--cost", "2.5", "--price", "8"), {"cost": 2.5, "price": 8.0}),
    "terms": (("--salvage", "0.5", "--shortage", "1.5"), {"salvage": 0.5, "shortage": 1.5}),
    "limits": (("--max-stock", "20", "--integer"), {"max_stock": 20.0, "integer": True}),
    "capacity": (("--capacity", "18"), {"capacity": 18.0}),
    "set": (("--confidence", "0.9", "--radius", "agrawal", "--draws", "12"), None),
    "bits": (("--radius", "0.25"), {"radius": 0.25}),
    "every mix": (("--radius", "inf"), {"radius": math.inf}),
    "rows": (("--min-rows", "1"), {"min_rows": 1}),
    "money": (("--currency", "kr", "--period", "week"), {"currency": "kr", "period": "week"}),
}


@pytest.mark.parametrize("options", OPTIONS)
def test_every_option_reaches_the_library(folder, options):
    words, changes = OPTIONS[options]
    changes = changes or {"confidence": 0.9, "radius": "agrawal", "draws": 12}
    asked = [word for word in PLAIN if word]
    for k in range(0, len(words), 2):
        if words[k] in asked:
            asked[asked.index(words[k]) + 1] = words[k + 1]
    extra = [] if set(words) & {"--cost"} else list(words)
    code, out, err = called("stock", "sales.csv", *asked, *extra, "--json")
    assert code == 0, err
    printed, plan = json.loads(out), library_plan(**changes)
    same_numbers(printed, plan)
    assert printed["notes"] == list(plan.notes)
    assert printed["money"] == {"currency": plan.money.currency, "period": plan.money.period}


def test_contexts_are_crossed_and_products_planned_each(folder):
    code, out, err = called("stock", "sales.csv", *PLAIN, "--context", "store", "--product", "sku", "--json")
    assert code == 0, err
    table = sales()
    crossed = np.char.add(np.char.add(table["weather"], " x store "), table["store"].astype(str))
    plan = library_plan(contexts=crossed, products=table["sku"])
    printed = json.loads(out)
    assert [row["product"] for row in printed["levels"]] == ["bread", "rolls"]
    assert [row["order"] for row in printed["levels"]] == pytest.approx(plan.levels["order"])
    got = {
        (row["product"], " x ".join(row["context"]) if isinstance(row["context"], list) else row["context"]): row
        for row in printed["reasons"]
    }
    for row in plan.reasons.rows():
        assert got[row["product"], row["context"]]["excess"] == pytest.approx(row["excess"])


def test_json_is_alone_on_standard_output(folder):
    code, out, err = called("stock", "sales.csv", *PLAIN, "--json", "--out", "a.html")
    assert code == 0
    parsed = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert parsed["certificates"][0]["lower"] <= parsed["certificates"][0]["upper"]
    assert "a.html" in err


def test_a_report_that_exists_is_kept_unless_forced(folder):
    (folder / "stock-report.html").write_text("precious")
    code, out, err = called("stock", "sales.csv", *PLAIN)
    assert (code, out) == (2, "")
    assert "--force" in err
    assert (folder / "stock-report.html").read_text() == "precious"
    assert called("stock", "sales.csv", *PLAIN, "--force")[0] == 0
    assert (folder / "stock-report.html").read_text(encoding="utf-8").startswith("<!")


def test_a_new_folder_is_made_for_the_report(folder):
    assert called("stock", "sales.csv", *PLAIN, "-o", "new/deep/report.html")[0] == 0
    assert (folder / "new" / "deep" / "report.html").is_file()


def test_a_context_that_sells_at_a_loss_is_noted(folder):
    table = sales()
    table["unit_cost"] = np.where(table["weather"] == "wet", 20.0, 2.0)
    write_csv(folder / "loss.csv", table)
    code, out, err = called("stock", "loss.csv", *PLAIN)
    assert code == 0
    assert "wet" in out
    assert "margin" in out + err


# Mistakes


def with_cell(column, value, row=4):
    table = {name: np.asarray(cells).astype(object) for name, cells in sales().items()}
    table[column][row] = value
    return table


def one_row_context():
    return with_cell("weather", "hail")


MISTAKES = {
    "no such column": (None, ("--demand", "unit"), 2, ["unit", "units", "--demand", "weather"]),
    "no such context": (None, ("--context", "wether"), 2, ["wether", "weather", "--context"]),
    "no such cost": (None, ("--cost", "unitcost"), 2, ["unitcost", "unit_cost", "--cost"]),
    "no such price": (None, ("--price", "prize"), 2, ["prize", "price", "--price"]),
    "no such product": (None, ("--product", "skus"), 2, ["skus", "sku", "--product"]),
    "price of nonsense": (None, ("--price", "12,5 EUR"), 2, ["12,5 EUR", "--price"]),
    "price is nan": (None, ("--price", "nan"), 2, ["nan", "--price"]),
    "negative price": (None, ("--price", "-4"), 2, ["price"]),
    "negative demand": (with_cell("units", -3.0), (), 2, ["units", "-3", "row 6"]),
    "a word for a number": (with_cell("units", "many"), (), 2, ["units", "many", "row 6"]),
    "a word for a cost": (with_cell("unit_cost", "n/k"), (), 2, ["unit_cost", "n/k", "row 6"]),
    "an empty cell": (with_cell("units", ""), (), 2, ["units", "row 6"]),
    "an empty context": (with_cell("weather", ""), (), 2, ["weather", "row 6"]),
    "infinite demand": (with_cell("units", "inf"), (), 2, ["units", "inf", "row 6"]),
    "one row": (one_row_context(), (), 2, ["hail", "min", "rows"]),
    "price below every cost": (None, ("--price", "0.5"), 2, ["price", "0.5"]),
    "salvage without a limit": (None, ("--salvage", "5"), 2, ["salvage", "max", "stock"]),
    "confidence of 2": (None, ("--confidence", "2"), 2, ["confidence", "2"]),
    "confidence of nan": (None, ("--confidence", "nan"), 2, ["confidence", "nan"]),
    "radius of nonsense": (
        None,
        ("--radius", "wide"),
        2,
        ["radius", "wide", "calibrated, agrawal, types, chi2 or anytime"],
    ),
    "negative radius": (None, ("--radius", "-1"), 2, ["radius", "-1"]),
    "radius of nan": (None, ("--radius", "nan"), 2, ["radius", "nan"]),
    "no draws": (None, ("--draws", "0"), 2, ["draws"]),
    "negative capacity": (None, ("--capacity", "-1"), 2, ["capacity", "-1"]),
    "no stock": (None, ("--max-stock", "0"), 2, ["max", "stock"]),
    "min rows of 0": (None, ("--min-rows", "0"), 2, ["min", "rows"]),
    "a word for rows": (None, ("--min-rows", "few"), 2, ["--min-rows"]),
    "no such option": (None, ("--salvge", "1"), 2, ["--salvge"]),
}


def replaced(options):
    """Return the plain options with some of them replaced by others."""
    names = set(options[::2])
    kept = [PLAIN[k : k + 2] for k in range(0, len(PLAIN), 2) if PLAIN[k] not in names]
    return [word for pair in kept for word in pair] + list(options)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(folder, mistake):
    table, options, expected, words = MISTAKES[mistake]
    if table is not None:
        write_csv(folder / "sales.csv", table)
    code, out, err = called("stock", "sales.csv", *replaced(options), "--json")
    assert code == expected, err
    assert out == ""
    assert "Traceback" not in err
    for word in words:
        assert word in err
    # The parser of options has a way of its own to say what is wrong.
    assert err.count("\n") == 1 or err.startswith("Usage")
    assert sorted(path.name for path in folder.iterdir()) == ["sales.csv"]


def test_the_columns_that_exist_are_listed(folder):
    _, _, err = called("stock", "sales.csv", *replaced(("--demand", "quantity")))
    for name in sales():
        assert name in err


def test_a_missing_option_is_named(folder):
    code, out, err = called("stock", "sales.csv", *PLAIN[:-2])
    assert (code, out) == (2, "")
    assert "--context" in err


FILES = {
    "missing": (lambda path: None, ["sale.csv", "sales.csv"]),
    "folder": (lambda path: path.mkdir(), ["folder"]),
    "empty": (lambda path: path.write_text(""), ["empty"]),
    "blank": (lambda path: path.write_text("\n\n  \n"), ["sale.csv"]),
    "only names": (lambda path: path.write_text("units,unit_cost,price,weather\n"), ["row"]),
    "not a table": (lambda path: path.write_bytes(os.urandom(2000)), ["sale.csv"]),
    "broken parquet": (lambda path: path.write_bytes(b"PAR1" + b"x" * 100), ["sale.csv"]),
    "uneven": (lambda path: path.write_text("units,unit_cost,price,weather\n1,2,3,a\n1,2,3\n"), ["row 3", "3"]),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_cannot_be_read_is_one_line(folder, kind):
    make, words = FILES[kind]
    make(folder / "sale.csv")
    code, out, err = called("stock", "sale.csv", *PLAIN)
    assert code in (1, 2)
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    for word in words:
        assert word in err
    assert not (folder / "stock-report.html").exists()


@pytest.mark.parametrize("place", ["sales.csv/report.html", "/proc/nowhere/report.html", "."])
def test_a_place_that_cannot_be_written_is_one_line_before_any_work(folder, place, monkeypatch):
    monkeypatch.setattr("counterpoise.stock.planning.plan_stock", lambda *_, **__: pytest.fail("worked"))
    code, out, err = called("stock", "sales.csv", *PLAIN, "--out", place)
    assert code in (1, 2)
    assert out == ""
    assert err.count("\n") == 1
    assert place.rstrip("./") in err
    assert [path.name for path in folder.iterdir()] == ["sales.csv"]


def test_a_disk_that_is_full_is_one_line_and_leaves_no_part(folder, monkeypatch):
    def full(path, text, **_):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    code, out, err = called("stock", "sales.csv", *PLAIN)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "No space left" in err
    assert [path.name for path in folder.iterdir()] == ["sales.csv"]


@pytest.mark.parametrize("moment", ["writing", "planning", "reading"])
def test_an_interruption_leaves_no_file(folder, monkeypatch, moment):
    def stopped(*arguments, **_):
        if moment == "writing":
            with open(arguments[0], "w", encoding="utf-8") as file:
                file.write(arguments[1][:100])
        raise KeyboardInterrupt

    if moment == "writing":
        monkeypatch.setattr(Path, "write_text", stopped)
    else:
        name = {"planning": "stock.planning.plan_stock", "reading": "tables.reading.read_table"}[moment]
        monkeypatch.setattr(f"counterpoise.{name}", stopped)
    code, out, err = called("stock", "sales.csv", *PLAIN)
    assert (code, out) == (130, "")
    assert "Interrupted" in err
    assert [path.name for path in folder.iterdir()] == ["sales.csv"]


def test_an_interruption_while_an_older_report_is_replaced_keeps_the_older_one(folder, monkeypatch):
    (folder / "stock-report.html").write_bytes(b"precious")
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    assert called("stock", "sales.csv", *PLAIN, "--force")[0] == 130
    assert (folder / "stock-report.html").read_bytes() == b"precious"


def test_the_shell_sees_streams_and_codes(folder):
    command = [sys.executable, "-c", "from counterpoise.cli import main; main()", "stock"]
    good = subprocess.run([*command, "sales.csv", *PLAIN, "--json"], capture_output=True, check=False)
    assert good.returncode == 0
    assert json.loads(good.stdout)
    bad = subprocess.run([*command, "nothing.csv", *PLAIN], capture_output=True, check=False)
    assert bad.returncode == 2
    assert bad.stdout == b""
    assert bad.stderr.count(b"\n") == 1


# Names that have broken pages before


def test_hostile_names_come_through_files_and_columns(folder):
    names = [name for name in HOSTILE if isinstance(name, str) and name.strip() and "\0" not in name]
    names = [name for name in names if not any("\ud800" <= letter <= "\udfff" for letter in name)][:5]
    rng = np.random.default_rng(1)
    column = '<img src=x onerror="alert(1)">'
    table = pa.table(
        {
            column: rng.integers(5, 30, 4 * len(names)).astype(float),
            "</td><script>": np.repeat(names, 4).tolist(),
            "]]>&amp;": np.tile(names[:2], 2 * len(names)).tolist(),
        }
    )
    pq.write_table(table, "hostile.parquet")
    code, out, err = called(
        *("stock", "hostile.parquet", "--demand", column, "--cost", "2", "--price", "5", "--context", "]]>&amp;"),
        *("--product", "</td><script>", "--json", "--currency", "<b>", "--period", "<i>"),
    )
    assert code == 0, err
    assert [row["product"] for row in json.loads(out)["levels"]] == sorted(names)
    page = (folder / "stock-report.html").read_text(encoding="utf-8")
    for unescaped in ("<script", "<img", "<b>alert", "onerror='", "<b> per", "<i>"):
        assert unescaped not in page


def test_names_do_not_steer_the_terminal(folder):
    names = np.tile(["plain", "red \x1b[31m bell \a"], 20).tolist()
    pq.write_table(pa.table({"units": np.arange(40.0), "weather": names}), "hostile.parquet")
    code, out, err = called(
        *("stock", "hostile.parquet", "--demand", "units", "--cost", "2", "--price", "5", "--context", "weather")
    )
    assert code == 0
    assert "red" in out
    assert "\x1b" not in out + err
    assert "\a" not in out + err


# Periods held out


def weekly(n=140):
    """Return daily sales of a shop that is busy at the weekend."""
    days = np.datetime64("2024-01-01") + np.arange(n)
    weekday = np.array(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])[np.arange(n) % 7]
    busy = np.isin(weekday, ["Sat", "Sun"])
    units = np.round(np.where(busy, 60.0, 20.0) + 3.0 * np.random.default_rng(2).normal(size=n))
    return {"units": units, "weekday": weekday, "day": days.astype(str), "part": weekday}


WEEKLY = ("--demand", "units", "--cost", "2", "--price", "5", "--currency", "EUR", "--period", "day")


def test_later_and_shuffled_periods_are_printed_in_money_and_lead_the_json(folder):
    write_csv(folder / "shop.csv", weekly())
    asked = ("stock", "shop.csv", *WEEKLY, "--context", "weekday", "--time", "day", "--cuts", "2", "--gap", "7")
    code, out, err = called(*asked)
    assert code == 0, err
    assert "In later periods the robust order earns" in out
    assert "Order by weekday" in out
    assert "weekday is a calendar: it is known when ordering. One order per weekday earns" in out
    code, out, err = called(*asked, "--json", "--force")
    assert code == 0, err
    printed = json.loads(out)
    assert next(iter(printed)) == "profit"
    profit = printed["profit"]
    assert profit["unit"] == "EUR per day"
    assert {row["method"] for row in profit["later"]["methods"]} >= {"robust", "erm", "per-context", "mean-demand"}
    assert len(profit["later"]["blocks"]) == 2
    assert profit["context_known"] == "weekday is a calendar: it is known when ordering"
    page = (folder / "stock-report.html").read_text(encoding="utf-8")
    for words in profit["headlines"]:
        assert words in page.replace("&#39;", "'").replace("&amp;", "&")


def test_a_column_of_dates_is_offered_once_orders_are_judged(folder):
    write_csv(folder / "shop.csv", weekly())
    _, out, _ = called("stock", "shop.csv", *WEEKLY, "--context", "weekday")
    assert "--time day" in out
    assert "On shuffled periods held out" in out
    _, out, _ = called("stock", "shop.csv", *WEEKLY, "--context", "weekday", "--time", "day", "--force")
    assert "--time day" not in out


def test_a_context_that_is_said_to_be_known_is_taken_for_known(folder):
    code, out, err = called("stock", "sales.csv", *PLAIN, "--known", "weather", "--json")
    assert code == 0, err
    assert "known when ordering" in json.loads(out)["profit"]["context_known"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--known", "store"), ["--known", "store", "--context"]),
        (("--time", "store", "--cuts", "2"), ["2 different times", "cuts"]),
        (("--time", "store", "--cuts", "1", "--gap", "9"), ["gap", "9"]),
        (("--time", "store", "--cuts", "0"), ["cuts"]),
    ],
)
def test_periods_that_cannot_be_held_out_are_one_line(folder, options, words):
    code, out, err = called("stock", "sales.csv", *PLAIN, *options)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert all(word in err for word in words)
