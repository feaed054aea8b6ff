"""The panel of real tables: its definitions are well-formed, and a made-up table goes through its judge."""

import dataclasses
import hashlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

STUDY = ("panel", "panel_methods", "panel_tables", "real_tables")


@pytest.fixture
def panel_tables(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import panel_tables

    yield panel_tables
    for name in STUDY:
        sys.modules.pop(name, None)


def toy(task):
    """Return 60 rows at each of 8 times, in which one context of three has its own slope; a fourth comes late."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"t": np.arange(8).repeat(60), "x": rng.standard_normal(480)})
    rows["kind"] = rng.choice(["a", "b"], 480)
    rows["c"] = rng.choice(["east", "north", "south"], 480, p=[0.6, 0.3, 0.1])
    rows.loc[(rows["t"] == 7) & (rng.uniform(size=480) < 0.3), "c"] = "new"
    score = np.where(rows["c"] == "north", -0.8, 0.8) * rows["x"]
    rows["y"] = score + 0.3 * rng.standard_normal(480)
    if task == "count":
        rows["y"] = rng.poisson(np.exp(score))
    if task == "classification":
        rows["y"] = np.where(rows["y"] > 0, "yes", "no")
    return rows


@pytest.fixture
def panel(panel_tables, monkeypatch):
    """The runner, with a made-up table for each task, open ones, and a closed one."""
    import panel

    names = [f"made/table-{number}" for number in range(20)]
    one = panel_tables.PanelTable("", "", "regression", "y", "c", "t", (4, 6), "x", "kind")
    made = [dataclasses.replace(one, name=name) for name in names]
    tasks = ("regression", "classification", "count")
    tables = [
        dataclasses.replace(table, task=task)
        for table, task in zip((table for table in made if not table.closed), tasks, strict=False)
    ]
    raw = {table.name: toy(table.task) for table in tables}
    monkeypatch.setattr(panel, "TABLES", (*tables, next(table for table in made if table.closed)))
    monkeypatch.setattr(panel_tables, "raw_table", raw.__getitem__)
    return panel


def test_names_are_those_of_a_package_and_an_item(panel_tables):
    names = [table.name for table in panel_tables.TABLES]
    assert names == sorted(set(names))
    assert all(name.count("/") == 1 for name in names)


def test_a_hash_of_the_name_splits_the_panel(panel_tables):
    closed = [table for table in panel_tables.TABLES if table.closed]
    assert len(panel_tables.TABLES) >= 24
    assert min(len(closed), len(panel_tables.TABLES) - len(closed)) >= 10
    assert all(hashlib.sha256(table.name.encode()).digest()[-1] % 2 == table.closed for table in panel_tables.TABLES)


def test_cuts_increase_and_columns_have_one_part(panel_tables):
    for table in panel_tables.TABLES:
        first, second = table.cuts
        assert first < second
        columns = [*table.features, table.target, table.context, table.time]
        assert len(columns) == len(set(columns))
        assert table.features
        assert set(table.logs.split()) <= {*table.numbers.split(), table.target}
        assert table.task in ("regression", "classification", "count")
        assert table.task == "regression" or table.target not in table.logs.split()
        assert table.why.endswith(".")


def test_rows_come_in_order_without_those_that_lack_context_or_time(panel_tables):
    table = panel_tables.PanelTable("made/up", "", "count", "y", "c", "t", (1, 2), "x", "kind", logs="x")
    raw = pd.DataFrame(
        {
            "y": [1, 2, 3, 4],
            "c": [7, 8, None, 7],
            "t": [2, 1, 1, None],
            "x": [1.0, 1.0, 1.0, 1.0],
            "kind": list("ab") * 2,
        }
    )
    raw["kind"] = [None, "b", "a", "b"]
    rows = panel_tables.rows_of(table, raw)
    assert rows["y"].tolist() == [2, 1]
    assert rows["kind"].tolist() == ["b", "missing"]
    assert rows["x"].tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="made/up: x is not always positive"):
        panel_tables.rows_of(table, raw.assign(x=0.0))


def test_a_constant_is_the_mean_of_the_past(panel):
    rows = toy("regression")
    past, later = rows[rows["t"] < 4], rows[rows["t"] >= 4]
    found = next(row for row in panel.results(panel.TABLES[0], 0) if row["method"] == "constant")
    missed = (later["y"] - past["y"].mean()) ** 2
    assert found["mean"] == pytest.approx(np.sqrt(missed.mean()), rel=1e-12)
    by_context = np.sqrt(missed.groupby(later["c"]).mean()).drop("new")
    assert found["worst"] == pytest.approx(by_context.max(), rel=1e-12)
    assert found["worst_context"] == by_context.idxmax()
    assert found["rows_of_new_contexts"] == (later["c"] == "new").sum() > panel.ENOUGH


def test_shares_of_classes_have_the_entropy_of_the_past(panel):
    rows = toy("classification")
    past, later = (part["y"].eq("yes").mean() for part in (rows[rows["t"] < 6], rows[rows["t"] >= 6]))
    loss, error = (row["mean"] for row in panel.results(panel.TABLES[1], 1) if row["method"] == "constant")
    assert loss == pytest.approx(-later * np.log(past) - (1 - later) * np.log(1 - past), rel=1e-12)
    assert error == pytest.approx(1 - later if past > 0.5 else later)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_own_models_learn_what_differs_and_leave_new_contexts_alone(panel, place):
    table = panel.TABLES[place]
    cut = panel.Cut.at(table, panel.rows_of(table), 4)
    plain, own = (method(cut) for method in (panel.UNKNOWN["plain"], panel.KNOWN["own models"]))
    measure = panel.MEASURES[table.task][0]
    assert measure.of(measure.losses(cut, own)) < 0.95 * measure.of(measure.losses(cut, plain))
    assert (cut.contexts_later[~cut.seen] == "new").all()
    np.testing.assert_array_equal(own[~cut.seen], plain[~cut.seen])


def test_what_is_learnt_does_not_depend_on_later_rows(panel):
    table = panel.TABLES[0]
    rows = panel.rows_of(table)
    changed = rows.assign(y=rows["y"].where(rows["t"] < 6, 100.0))
    for method in (panel.UNKNOWN | panel.KNOWN).values():
        one, other = (method(panel.Cut.at(table, given, 6)) for given in (rows, changed))
        np.testing.assert_array_equal(one, other)


def test_the_open_half_gives_a_line_per_cut_and_a_row_per_method(panel, capsys, tmp_path):
    assert panel.main(["--out", str(tmp_path / "results.csv")]) == 0
    out = capsys.readouterr().out
    methods = [*panel.UNKNOWN, *panel.KNOWN]
    assert out.count(", cut at ") == 6
    assert out.count("contexts known when predicting") == 1
    assert all(f"\n| {method} | 6 | " in out for method in methods)
    assert "\n| plain | 6 | 0 | 0 | +0.0% | 0 | 0 | +0.0% |" in out
    assert "failed" not in out
    found = pd.read_csv(tmp_path / "results.csv")
    assert len(found) == 10 * len(methods)
    assert set(found["choice"]) <= set(panel.UNKNOWN)


def test_a_method_that_fails_is_named_and_stops_nothing(panel, capsys, monkeypatch):
    monkeypatch.setitem(panel.UNKNOWN, "minimax regret", lambda cut: 1 / 0)
    assert panel.main(["--only", panel.TABLES[0].name]) == 0
    out = capsys.readouterr().out
    assert "minimax regret: failed, ZeroDivisionError" in out
    assert "\n| minimax regret | 0 | " in out


def test_closed_tables_are_refused_unless_asked_for(panel):
    closed = panel.TABLES[-1].name
    with pytest.raises(SystemExit, match=f"{closed}: in the closed half"):
        panel.main(["--only", closed])
    assert [table.name for table in panel.chosen([closed], True)] == [closed]
    assert closed not in [table.name for table in panel.chosen([], False)]
    assert [table.name for table in panel.chosen([], True)] == [closed]


def test_tables_that_do_not_exist_are_refused(panel):
    with pytest.raises(SystemExit, match="no tables of the panel: made/up"):
        panel.main(["--only", "made/up"])
