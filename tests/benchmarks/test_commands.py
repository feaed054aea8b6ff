"""The study of what commands take: its tables are what it says, and it runs."""

import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import typer

from counterpoise.cli import app

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "commands.py"


@pytest.fixture(scope="module")
def study():
    return SimpleNamespace(**runpy.run_path(str(SCRIPT), run_name="commands"))


def test_the_table_has_all_rows_in_the_order_of_time(study, tmp_path):
    study.write_table(tmp_path / "table.csv", 400)
    rows = pd.read_csv(tmp_path / "table.csv")
    assert len(rows) == 400
    assert rows["day"].is_monotonic_increasing
    assert set(rows["ill"]) == {"yes", "no"}


def test_every_command_but_the_paper_is_measured(study, tmp_path):
    known = set(typer.main.get_command(app).commands) - {"reproduce"}
    assert {command.split(" ")[0] for command in study.COMMANDS} == known
    for command in study.COMMANDS:
        name, *typed = study.arguments(command, tmp_path / "table.csv", tmp_path)
        typer.main.get_command(app).commands[name].make_context(name, typed)


def test_a_small_run_prints_a_table():
    asked = [sys.executable, str(SCRIPT), "--rows", "200", "--commands", "stock"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| command | 200 rows |" in done.stdout
    assert "| `stock` | " in done.stdout
    assert "exit" not in done.stdout
