"""A model from a folder on later rows: the command, Python and a glance say the same, at once or in pieces."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import counterpoise as cpo
from counterpoise.cli import app
from counterpoise.exceptions import InvalidInputError
from counterpoise.judging import units
from counterpoise.judging.mix_now import UNSEEN
from counterpoise.tables.reading import open_table
from counterpoise.tables.tabular import evaluating, streaming
from counterpoise.tables.tabular.evaluating import JudgedColumns, evaluate_table
from counterpoise.tables.tabular.saved import SavedModel, load
from counterpoise.tables.tabular.table_model import TableModel
from tests.tables.tabular.examples import FORMATS, patients, posed, save
from tests.tables.tabular.test_task import TASKS

pytestmark = [
    pytest.mark.usefixtures("few_draws"),
    pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning"),
]


class Silent:
    """Hears nothing."""

    def step(self, words):
        return cpo.cli._base.Speaker(quiet=True).step(words)

    def note(self, *notes):
        pass


def saved_model(task="classification", columns=None, context=("hospital",), **options):
    target, switches, _ = TASKS[task]
    columns = patients() if columns is None else columns
    switches = {**switches, "reference": "in-sample", **options}
    problem = posed(columns, target, context, task=task, **switches)
    robust, plain = problem.fitted()[0], posed(columns, target, context, task=task, **switches, radius=0.0).fitted()[0]
    n = len(robust.named_steps["model"].contexts_)
    risks = dict.fromkeys(("robust", "erm"), np.full(n, 0.5))
    pooled = None if problem.pool is None else problem.pool.described
    models = {"robust": robust, "erm": plain}
    return SavedModel.of(
        models, problem.columns, target, task, pooled=pooled, held_out_risks=risks, context=problem.asked.context
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    saved_model().write(place)
    return place


def called(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def later(n=200, seed=9):
    """Return rows of which some have no target, an unknown class or a new hospital."""
    columns = patients(n, seed)
    columns["ill"] = [None if k % 20 == 0 else "perhaps" if k == 7 else one for k, one in enumerate(columns["ill"])]
    columns["hospital"] = np.where(np.arange(n) % 10 == 3, "west", columns["hospital"])
    return columns


def same(one, other):
    for name in ("verdict", "measures", "leading", "changes", "unseen", "shares", "risks", "drift", "calibration"):
        assert one[name] == other[name], name


def approximately(one, other):
    assert list(one) == list(other)
    for name, column in one.items():
        if column.dtype.kind == "f":
            np.testing.assert_allclose(column, other[name], rtol=2e-5, atol=1e-6)
        else:
            assert column.tolist() == other[name].tolist()


@pytest.mark.parametrize("end", FORMATS)
def test_the_command_says_what_python_says(folder, tmp_path, end):
    columns = later()
    file = save(columns, tmp_path / f"later.{end}")
    code, printed, _ = called("evaluate", folder, file, "--json", "--quiet")
    assert code == 0
    found = cpo.evaluate(cpo.load(folder), pd.DataFrame(columns), columns["ill"], columns["hospital"])
    same(json.loads(printed), json.loads(json.dumps(found.json)))
    assert found.unseen["context"].tolist() == ["west"]
    assert found.methods == ["robust", "erm"]
    assert found.notes == (
        "10 of 200 rows have no target and are left out",
        "1 of 190 rows have a class that the model does not know; they count as wrong",
    )


@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_judged(task, tmp_path):
    saved = saved_model(task)
    columns = patients(90, seed=4)
    file = save(columns, tmp_path / "later.csv")
    table = open_table(file)
    found = evaluate_table(saved, table, JudgedColumns.of(saved, table), Silent())
    model = TableModel(saved)
    python = cpo.evaluate(model, columns, columns[saved.target], columns["hospital"])
    same(found.json, python.json)
    assert found.task == task
    glance = glanced(saved, table)
    assert f"{found.measure.name} {found.measure.text(found.leading['value'][0])} over 90 rows" in glance


def glanced(saved, table):
    rows = streaming.PredictedTable(saved, table, typed=False)
    for _ in rows.pieces():
        pass
    return rows.glance.words


def test_piece_by_piece_is_the_same(folder, tmp_path, monkeypatch):
    saved, file = load(folder), save(later(900), tmp_path / "later.csv")
    table = open_table(file)
    whole, note = evaluate_table(saved, table, JudgedColumns.of(saved, table), Silent()), glanced(saved, table)
    monkeypatch.setattr(streaming, "AT_ONCE", 0.0)
    monkeypatch.setattr(streaming, "CHUNK", 3000.0)
    same(evaluate_table(saved, table, JudgedColumns.of(saved, table), Silent()).json, whole.json)
    assert glanced(saved, table) == note


def test_very_many_rows_are_judged_alike_in_less_precision(folder, tmp_path, monkeypatch):
    saved, file = load(folder), save(later(900), tmp_path / "later.csv")
    table = open_table(file)
    whole = evaluate_table(saved, table, JudgedColumns.of(saved, table), Silent())
    monkeypatch.setattr(evaluating, "EXACT_ROWS", 100)
    monkeypatch.setattr(units, "SLICE", 70)
    found = evaluate_table(saved, table, JudgedColumns.of(saved, table), Silent())
    approximately(found.measures, whole.measures)
    approximately(found.leading, whole.leading)


def test_contexts_are_named_and_pooled_as_in_the_fit(tmp_path):
    columns = patients(300, seed=1)
    columns["ward"] = np.r_[np.repeat([1, 2, 3], 90), np.repeat([4, 5, 6], 10)]
    saved = saved_model(columns=columns, context=("ward",), pool_below=20, drop=("hospital",))
    new = {**patients(60, seed=2), "ward": np.tile([1, 4, 5, 9], 15)}
    table = open_table(save(new, tmp_path / "later.csv"))
    found = evaluate_table(saved, table, JudgedColumns.of(saved, table), Silent())
    pool = saved.pooled["label"]
    assert found.leading.where(method="robust")["context"].tolist() == ["all", "ward 1", pool, UNSEEN]
    assert found.leading["n"][:4].tolist() == [60, 15, 30, 15]
    assert [str(one) for one in found.unseen["context"]] == ["ward 9"]
    python = cpo.evaluate(TableModel(saved), pl.DataFrame(new), new["ill"], new["ward"])
    assert python.leading["n"].tolist() == found.leading["n"].tolist()
    assert pool in python.leading["context"].tolist()


def test_crossed_contexts_are_found_again(tmp_path):
    columns = {**patients(300, seed=1), "ward": np.arange(300) % 2}
    saved = saved_model(columns=columns, context=("hospital", "ward"))
    table = open_table(save(columns, tmp_path / "later.parquet"))
    found = evaluate_table(saved, table, JudgedColumns.of(saved, table), Silent())
    assert found.unseen.n_rows == 0
    np.testing.assert_allclose(found.mix.shares["now"], found.mix.shares["then"])
    renamed = {
        ("site" if name == "hospital" else "room" if name == "ward" else name): one for name, one in columns.items()
    }
    other = open_table(save(renamed, tmp_path / "renamed.csv"))
    again = evaluate_table(saved, other, JudgedColumns.of(saved, other, context=["site", "room"]), Silent())
    assert again.unseen.n_rows == 0
    assert glanced(saved, table).startswith("the file has ill and hospital and ward: accuracy")


def test_numbers_are_classes_as_in_a_file(tmp_path):
    columns = patients()
    columns["ill"] = (columns["ill"] == "yes").astype(int)
    saved = saved_model(columns=columns)
    found = cpo.evaluate(TableModel(saved), columns, columns["ill"].astype(float), columns["hospital"])
    assert found.notes == ()
    assert found.measures["accuracy"][0] > 0.5


def test_without_contexts_all_rows_are_judged_together_and_it_is_said(folder, tmp_path):
    columns = later()
    del columns["hospital"]
    code, printed, said = called("evaluate", folder, save(columns, tmp_path / "later.csv"))
    assert code == 0
    assert "note: the file has no column hospital, so that all rows are judged together" in said
    assert printed.startswith("On 190 rows accuracy of the robust model is ")


def test_columns_of_other_names_are_named(folder, tmp_path):
    columns = later()
    renamed = {{"ill": "outcome", "hospital": "site"}.get(name, name): one for name, one in columns.items()}
    one = called("evaluate", folder, save(columns, tmp_path / "later.csv"), "--json", "-q")[1]
    given = ("--target", "outcome", "--context", "site", "--json", "-q")
    other = called("evaluate", folder, save(renamed, tmp_path / "renamed.csv"), *given)[1]
    assert one == other


def test_pages_and_numbers_are_written_once(folder, tmp_path):
    file = save(later(), tmp_path / "later.csv")
    for name in ("evaluation.html", "evaluation.json"):
        out = tmp_path / name
        code, printed, _ = called("evaluate", folder, file, "-o", out)
        assert code == 0
        assert str(out) in printed
        assert called("evaluate", folder, file, "-o", out)[0] == 2
        assert called("evaluate", folder, file, "-o", out, "--force")[0] == 0
    assert json.loads((tmp_path / "evaluation.json").read_text())["rows"] == 190
    assert "<script" not in (tmp_path / "evaluation.html").read_text()


def test_rows_that_belong_together_make_intervals_wider(folder, tmp_path):
    # Every row ten times over, as one group.
    columns = {name: np.repeat(column, 10) for name, column in patients(60, seed=3).items()}
    columns["patient"] = np.repeat(np.arange(60), 10)
    saved, table = load(folder), open_table(save(columns, tmp_path / "later.csv"))
    plain = evaluate_table(saved, table, JudgedColumns.of(saved, table), Silent()).leading
    grouped = evaluate_table(saved, table, JudgedColumns.of(saved, table, group="patient"), Silent()).leading
    assert grouped["value"][0] == plain["value"][0]
    assert grouped["high"][0] - grouped["low"][0] > 2.5 * (plain["high"][0] - plain["low"][0])


WRONG = {
    "no target": (["--target", "nothing"], "no column 'nothing' (--target)"),
    "no context": (["--context", "nothing"], "no column 'nothing' (--context)"),
    "two contexts": (["--context", "hospital", "--context", "blood"], "Name as many"),
    "no group": (["--group", "nothing"], "no column 'nothing' (--group)"),
    "another ending": (["-o", "evaluation.pdf"], ".html or .json"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_judged_is_a_matter_of_usage(case, folder, tmp_path):
    given, why = WRONG[case]
    code, _, said = called("evaluate", folder, save(later(), tmp_path / "later.csv"), *given)
    assert code == 2
    assert why in said


def test_a_file_without_targets_is_refused(folder, tmp_path):
    columns = later()
    columns["ill"] = [None] * 200
    code, _, said = called("evaluate", folder, save(columns, tmp_path / "later.csv"))
    assert code == 2
    assert "nothing to judge by" in said
    assert called("evaluate", tmp_path / "nowhere", tmp_path / "later.csv")[0] == 2


# --- what predict says -----------------------------------------------------------------------------------------------


def noted(folder, columns, tmp_path):
    code, _, said = called("predict", folder, save(columns, tmp_path / "new.csv"), "-o", tmp_path / "p.csv", "--force")
    assert code == 0
    return [line for line in said.splitlines() if "evaluate" in line]


def test_predict_says_what_evaluate_would_begin_with(folder, tmp_path):
    columns = later()
    (note,) = noted(folder, columns, tmp_path)
    found = cpo.evaluate(cpo.load(folder), columns, columns["ill"], columns["hospital"])
    value, worst = found.leading["value"][0], found.worst
    assert f"accuracy {100 * value:.1f}% over 190 rows" in note
    assert f"lowest {100 * worst['value']:.1f}%" in note
    assert f"({worst['n']} rows)" in note


@pytest.mark.parametrize("lacks", ["ill", "hospital", "targets", "a context"])
def test_predict_says_nothing_where_there_is_nothing_to_say(folder, tmp_path, lacks):
    columns = later()
    if lacks in columns:
        del columns[lacks]
    elif lacks == "targets":
        columns["ill"] = [None] * 200
    else:
        columns["hospital"] = [None, *columns["hospital"][1:]]
    assert noted(folder, columns, tmp_path) == []


def test_predict_says_that_all_contexts_are_new(folder, tmp_path):
    (note,) = noted(folder, {**later(), "hospital": np.full(200, "moon")}, tmp_path)
    assert "all of contexts that the fit did not have" in note


def test_as_many_columns_are_named_as_there_were(tmp_path):
    saved = saved_model()
    table = open_table(save(later(), tmp_path / "later.csv"))
    with pytest.raises(InvalidInputError, match="Name as many"):
        JudgedColumns.of(saved, table, context=["hospital", "blood"])


def test_a_glance_imports_nothing_that_judges(folder, tmp_path):
    file = save(later(), tmp_path / "later.csv")
    words = ["predict", str(folder), str(file), "--out", str(tmp_path / "out.csv")]
    code = f"""
import sys
sys.argv = ["counterpoise", *{words!r}]
from counterpoise.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(sorted({{name.partition(".")[0] for name in sys.modules}} & {{"sklearn", "scipy", "narwhals", "jinja2"}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "accuracy" in done.stderr
    assert done.stdout.splitlines()[1:] == ["[]"]
