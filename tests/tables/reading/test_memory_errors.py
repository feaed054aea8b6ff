"""Where memory runs out, that is what is said, and not that a column is wrong."""

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from counterpoise.cli import app
from counterpoise.tables.reading import cells, read_table


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("origin,x,y\n" + "".join(f"{'ab'[k % 2]},{k},{k % 3}\n" for k in range(30)), encoding="utf-8")
    return path


def _exhausted(*args, **kwargs):
    raise pa.lib.ArrowMemoryError("malloc of size 4096 failed")


@pytest.mark.parametrize(
    ("broken", "read"),
    [
        ("coded_labels", lambda data: data.labels("origin")),
        ("texts", lambda data: data.texts("origin")),
        ("numbers", lambda data: data.numbers("x")),
    ],
)
def test_no_column_is_blamed_for_memory(table, monkeypatch, broken, read):
    data = read_table(table)
    monkeypatch.setattr(cells, broken, _exhausted)
    with pytest.raises(MemoryError):
        read(data)


def test_the_command_names_it(table, monkeypatch):
    monkeypatch.setattr(cells, "coded_labels", _exhausted)
    result = CliRunner().invoke(app, ["compare", str(table), "--target", "y", "--context", "origin"])
    assert result.exit_code == 1
    assert "not enough memory" in result.output
    assert "--memory" in result.output
