"""``--group``, ``--time`` and ``--draws`` in every command that has a set of mixes."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import counterpoise as cpo
from counterpoise.cli import app
from counterpoise.exceptions import InvalidInputError
from counterpoise.judging import comparison
from counterpoise.tables.tabular import model_folder
from tests.tables.tabular.test_draw_search import COLUMNS, ORDERED

pytestmark = pytest.mark.usefixtures("few_draws")

SAID = f"are worth about {ORDERED:.2g} draws of weather"


def called(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("hours") / "hours.csv"
    frame = pd.DataFrame(COLUMNS)
    frame["units"] = np.abs(frame["hires"]).round(3)
    frame.to_csv(path, index=False)
    return path


def compared(file, monkeypatch, *more):
    """Return the draws of the model that is compared, and what is said before it is."""
    models = []

    def stopped(*data, estimator, **options):
        models.append(estimator)
        raise InvalidInputError("seen enough")

    monkeypatch.setattr(comparison, "compare", stopped)
    _, _, said = called("compare", file, "--target", "hires", "--context", "weather", *more)
    return models[0][-1].draws, said


def bits(draws):
    return cpo.confidence_radius([1, 1, 1], 0.99, "agrawal", draws=draws)


def test_compare_sizes_its_set(file, monkeypatch):
    for named in (("--group", "day"), ("--time", "date")):
        draws, said = compared(file, monkeypatch, *named)
        assert draws == pytest.approx(ORDERED, rel=1e-3)
        assert SAID in said
    draws, said = compared(file, monkeypatch, "--group", "day", "--draws", "rows")
    assert draws is None
    assert "draws" not in said
    assert compared(file, monkeypatch, "--group", "day", "--draws", 9)[0] == 9.0


@pytest.mark.parametrize("memory", ["1GB", "100kB"])
def test_fit_sizes_its_set_in_memory_and_in_chunks(file, tmp_path, monkeypatch, memory):
    models = []

    def stopped(model, *data, notes, **options):
        models.append((model[-1], notes))
        raise InvalidInputError("seen enough")

    monkeypatch.setattr(model_folder, "Report", stopped)
    asked = ("--target", "hires", "--context", "weather", "--only", "warm", "--group", "day", "--radius", "agrawal")
    _, _, said = called("fit", file, *asked, "--memory", memory, "-o", tmp_path / "model")
    ((model, notes),) = models
    assert ("in chunks" in said) == (memory == "100kB")
    assert SAID in said
    assert any(SAID in note for note in notes)
    assert model.draws_ == pytest.approx(ORDERED, rel=1e-3)
    assert model.radius_ == pytest.approx(bits(ORDERED), rel=1e-3)


def test_stock_sizes_its_set(file, tmp_path):
    terms = ("--demand", "units", "--cost", 1, "--price", 4, "--context", "weather", "--radius", "agrawal", "--json")
    for k, named in enumerate((("--group", "day"), ("--time", "date"), ("--group", "day", "--time", "date"))):
        code, printed, said = called("stock", file, *terms, *named, "-o", tmp_path / f"{k}.html")
        assert code == 0, said
        plan = json.loads(printed)
        assert plan["certificates"][0]["radius_bits"] == pytest.approx(bits(ORDERED), rel=1e-3)
        assert SAID in plan["notes"][0]
    _, printed, _ = called("stock", file, *terms, "-o", tmp_path / "rows.html")
    assert "neighbouring rows share it" in json.loads(printed)["notes"][0]
    _, printed, _ = called("stock", file, *terms, "--group", "day", "--draws", "rows", "-o", tmp_path / "all.html")
    assert json.loads(printed)["notes"] == []


def test_explore_sizes_its_set(file, tmp_path, few_levels):
    model = ("--target", "hires", "--only", "warm", "--reference", "in-sample")
    stock = ("--demand", "units", "--cost", 1, "--price", 4)
    for k, about in enumerate((model, stock)):
        out = tmp_path / f"{k}.html"
        code, _, said = called("explore", file, *about, "--context", "weather", "--group", "day", "-o", out)
        assert code == 0, said
        assert SAID in said


@pytest.mark.parametrize("command", ["compare", "fit", "explore"])
def test_a_strange_time_is_one_line(file, tmp_path, command):
    out = () if command == "compare" else ("-o", tmp_path / "out")
    arguments = ("--target", "hires", "--context", "weather", "--time", "weather2", *out)
    code, _, said = called(command, file, *arguments)
    assert code == 2
    assert "no column 'weather2' (--time). Did you mean 'weather'?" in said
