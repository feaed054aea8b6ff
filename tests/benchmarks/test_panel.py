"""The panel of real tables: its definitions are well-formed."""

import hashlib
import sys
from pathlib import Path

import pytest


@pytest.fixture
def panel_tables(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import panel_tables

    yield panel_tables
    sys.modules.pop("panel_tables")


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
    pd = pytest.importorskip("pandas")
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
