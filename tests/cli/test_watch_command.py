"""``counterpoise watch``: one line and an exit code, a state that is never half written, and no row counted twice."""

import json
import os
import signal
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import counterpoise as cpo
from counterpoise import files
from counterpoise.cli import app
from counterpoise.cli.watch import beside, kept
from counterpoise.tables.tabular.saved import FILES
from counterpoise.tables.tabular.table_model import TableModel
from counterpoise.watch.watch import Watch
from tests.tables.tabular.examples import patients, save
from tests.tables.tabular.test_evaluating import saved_model

pytestmark = [
    pytest.mark.usefixtures("few_draws"),
    pytest.mark.filterwarnings("ignore::counterpoise.exceptions.SmallContextWarning"),
    # Of forks, from Python 3.12 on; children here do little, and end at once.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
forks = pytest.mark.skipif(sys.platform != "linux", reason="forks")


@pytest.fixture(scope="module")
def saved():
    return saved_model()


@pytest.fixture
def model(saved, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    saved.write(folder)
    return folder


def called(*arguments):
    result = CliRunner().invoke(app, ["watch", *map(str, arguments)], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def contexts(folder, name="new.csv", n=150, seed=1, **more):
    """Write rows in the mix of the fit, without targets."""
    return save({"hospital": patients(n, seed)["hospital"], **more}, folder / name)


def state_of(model):
    return cpo.Watch.load(beside(model), model)


def test_all_is_well(model, tmp_path):
    code, printed, said = called(model, contexts(tmp_path))
    assert code == 0
    assert printed.count("\n") == 1
    assert printed.startswith("All is well: 150 rows in 1 update")
    assert said == ""
    assert (tmp_path / "model.watch.json").exists()
    # The folder of the model is as fit wrote it.
    assert {one.name for one in model.iterdir()} <= set(FILES)


def test_rows_add_up_from_day_to_day(model, tmp_path):
    for k in range(3):
        code, printed, _ = called(model, contexts(tmp_path, f"{k}.csv", seed=k))
        assert code == 0
    assert "450 rows in 3 updates" in printed


def test_days_of_one_file_are_updates(model, tmp_path):
    days = [f"2024-01-{1 + k // 10:02d}" for k in range(150)]
    code, printed, _ = called(model, contexts(tmp_path, day=days), "--time", "day")
    assert code == 0
    assert "150 rows in 15 updates" in printed
    assert [str(one) for one in state_of(model).history["time"]] == sorted(set(days))


def test_a_mix_that_left_the_set_is_an_alarm(model, tmp_path):
    file = save({"hospital": ["east"] * 140 + ["north"] * 10}, tmp_path / "new.csv")
    code, printed, _ = called(model, file, "--quiet")
    assert code == 3
    assert printed.count("\n") == 1
    assert printed.startswith("ALARM: the mix has left the set")
    # Until it is begun anew, it stays one.
    assert called(model, contexts(tmp_path, "next.csv"))[0] == 3
    code, printed, _ = called(model, contexts(tmp_path, "after.csv", seed=4), "--restart")
    assert code == 0
    assert "150 rows in 1 update" in printed


def test_a_context_never_seen_is_an_alarm_unless_some_are_tolerated(model, tmp_path):
    rows = np.r_[patients(150, 1)["hospital"], ["west"]]
    file = save({"hospital": rows}, tmp_path / "new.csv")
    assert called(model, file, "--unseen-share", "0.05", "--state", tmp_path / "other.json")[0] == 0
    code, printed, _ = called(model, file)
    assert code == 3
    assert "contexts never seen (west)" in printed


def test_a_risk_that_grew_is_an_alarm(model, tmp_path):
    later = patients(400, seed=5)
    later["ill"] = np.where(later["ill"] == "yes", "no", "yes")
    file = save(later, tmp_path / "new.csv")
    code, printed, _ = called(model, file)
    assert code == 3
    assert "a risk has grown" in printed
    # Without what came, there is nothing to see.
    del later["ill"]
    file = save(later, tmp_path / "early.csv")
    assert called(model, file, "--state", tmp_path / "other.json")[0] == 0
    assert not state_of_risks(tmp_path / "other.json")


def state_of_risks(path):
    return cpo.Watch.load(path).risks["n"].any()


def test_everything_as_json(model, tmp_path):
    file = save({"hospital": ["east"] * 150}, tmp_path / "new.csv")
    code, printed, _ = called(model, file, "--json")
    found = json.loads(printed)
    assert code == 3
    assert found["alarm"] is True
    assert found["words"].startswith("ALARM: ")
    assert found["rows"] == 150


def test_a_page_is_written_day_by_day(model, tmp_path):
    page = tmp_path / "pages" / "watch.html"
    for k in range(2):
        assert called(model, contexts(tmp_path, f"{k}.csv", seed=k), "--out", page)[0] == 0
        html = page.read_text(encoding="utf-8")
        assert f"{150 * (k + 1)} rows in {k + 1} update" in html
        assert f"{k}.csv" in html
    mine = tmp_path / "mine.html"
    mine.write_text("<html>mine</html>")
    code, _, said = called(model, contexts(tmp_path, "3.csv", seed=3), "--out", mine)
    assert code == 2
    assert "exists already" in said
    assert mine.read_text() == "<html>mine</html>"
    assert state_of(model).n_rows == 300
    assert called(model, contexts(tmp_path, "3.csv", seed=3), "--out", mine, "--force")[0] == 0
    assert "ends in .txt" in called(model, contexts(tmp_path), "--out", tmp_path / "watch.txt")[2]


# --- no row is counted twice, and none is lost -----------------------------------------------------------------------


def test_the_same_file_is_not_counted_again(model, tmp_path):
    file = contexts(tmp_path)
    called(model, file)
    code, printed, said = called(model, file)
    assert code == 0
    assert "150 rows in 1 update" in printed
    assert "was counted before, and is not counted again" in said
    # Other rows under the same name are, and so are the same rows under another.
    contexts(tmp_path, seed=7)
    assert "300 rows" in called(model, file)[1]
    assert "450 rows" in called(model, contexts(tmp_path, "other.csv", seed=7))[1]


def test_a_batch_has_the_name_that_it_is_given(model, tmp_path):
    called(model, contexts(tmp_path, "a.csv"), "--batch", "monday")
    assert "150 rows" in called(model, contexts(tmp_path, "b.csv", seed=3), "--batch", "monday")[1]
    assert "300 rows" in called(model, contexts(tmp_path, "b.csv", seed=3), "--batch", "tuesday")[1]


def test_clocks_that_run_backwards_are_said(model, tmp_path):
    called(model, contexts(tmp_path, "a.csv", day=["2024-01-09"] * 150), "--time", "day")
    code, printed, said = called(model, contexts(tmp_path, "b.csv", seed=3, day=["2024-01-02"] * 150), "--time", "day")
    assert code == 0
    assert "300 rows in 2 updates" in printed
    assert "2024-01-02 is before the last update, of 2024-01-09" in said


def test_a_day_on_which_nothing_came_is_counted(model, tmp_path):
    file = tmp_path / "new.csv"
    file.write_text("hospital,day\n")
    for k in range(2):
        code, printed, said = called(model, file, "--time", "day")
        assert code == 0
        assert f"0 rows in {k + 1} update" in printed
        assert said == ""


@forks
def test_processes_at_once_lose_no_rows(model, tmp_path):
    given = [contexts(tmp_path, f"{k}.csv", n=60 + k, seed=k) for k in range(4)]
    children = []
    for file in given:
        child = os.fork()
        if child == 0:
            # Nothing of the tests runs in a child.
            code = 1
            try:
                code = called(model, file)[0]
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in children] == [0] * 4
    watch = state_of(model)
    assert (watch.n_rows, watch.n_updates) == (60 + 61 + 62 + 63, 4)


def killed(action):
    """Return the signal that ended a child in which something was done."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


@forks
@pytest.mark.parametrize("moment", ["among the rows", "half written", "before the move", "after the move"])
def test_a_kill_leaves_the_state_old_or_new(model, tmp_path, monkeypatch, moment):
    called(model, contexts(tmp_path, "first.csv"))
    before = beside(model).read_bytes()
    write, replace, update = (files.Path.write_text, files.Path.replace, Watch.update)

    def half(path, text, *more, **options):
        write(path, text[: len(text) // 2], *more, **options)
        die()

    def moved(path, place):
        replace(path, place)
        die()

    def updated(watch, *rows, **named):
        update(watch, *rows, **named)
        die()

    changes = {
        "among the rows": (Watch, "update", updated),
        "half written": (files.Path, "write_text", half),
        "before the move": (files.Path, "replace", die),
        "after the move": (files.Path, "replace", moved),
    }
    file = contexts(tmp_path, "second.csv", seed=2)
    with monkeypatch.context() as patch:
        patch.setattr(*changes[moment])
        assert killed(lambda: called(model, file)) == signal.SIGKILL
    is_new = moment == "after the move"
    assert (beside(model).read_bytes() == before) != is_new
    assert state_of(model).n_rows == (300 if is_new else 150)
    # Run again, it does what is left to do.
    assert "300 rows in 2 updates" in called(model, file)[1]


def test_a_watch_is_begun_anew_only_where_that_is_asked(saved, tmp_path):
    path, own = tmp_path / "deep" / "watch.json", TableModel(saved)
    for restart, expected in ((False, 60), (False, 120), (True, 60), (False, 120)):
        with kept(path, own, restart) as watch:
            watch.update(patients(60)["hospital"])
        assert watch.n_rows == expected
    # Nothing is forgotten by a restart that fails.
    with pytest.raises(KeyError), kept(path, own, True):
        raise KeyError
    assert cpo.Watch.load(path).n_rows == 120


def test_an_interruption_leaves_the_state_as_it_was(model, tmp_path, monkeypatch):
    called(model, contexts(tmp_path, "first.csv"))
    before = beside(model).read_bytes()

    def interrupted(watch, *rows, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(Watch, "update", interrupted)
    code, printed, said = called(model, contexts(tmp_path, "second.csv", seed=2))
    assert (code, printed) == (130, "")
    assert "Nothing is left half written." in said
    assert beside(model).read_bytes() == before


# --- what cannot be --------------------------------------------------------------------------------------------------


def test_a_model_that_was_fitted_again_is_refused_by_name(model, tmp_path):
    called(model, contexts(tmp_path))
    saved_model(columns=patients(seed=8)).write(model)
    code, printed, said = called(model, contexts(tmp_path, "next.csv"))
    assert (code, printed) == (2, "")
    assert "model.watch.json" in said
    assert "it was fitted again" in said
    assert cpo.Watch.load(beside(model)).n_rows == 150
    assert called(model, contexts(tmp_path, "next.csv"), "--restart")[0] == 0


def test_a_fit_with_force_leads_to_that_refusal(tmp_path):
    table, out = save(patients(), tmp_path / "table.csv"), tmp_path / "model"
    fit = ["fit", table, "--target", "ill", "--context", "hospital", "--drop", "days", "--drop", "cost", "--out", out]
    fit += ["--folds", "2", "--reference", "in-sample", "--method", "robust", "--force"]
    for radius, code in (("0.1", 0), ("0.4", 2)):
        result = CliRunner().invoke(app, [*map(str, fit), "--radius", radius], catch_exceptions=False)
        assert result.exit_code == 0
        assert called(out, contexts(tmp_path, f"{radius}.csv"))[0] == code


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1}', '{"format": 99}', "\x00\x01"])
def test_a_damaged_state_is_refused_and_kept(model, tmp_path, content):
    place = beside(model)
    place.write_text(content)
    code, printed, said = called(model, contexts(tmp_path))
    assert (code, printed) == (2, "")
    assert "model.watch.json" in said
    assert place.read_text() == content
    assert called(model, contexts(tmp_path), "--restart")[0] == 0


def test_other_settings_than_it_was_begun_with_are_refused(model, tmp_path):
    called(model, contexts(tmp_path, "a.csv"), "--confidence", "0.9")
    code, _, said = called(model, contexts(tmp_path, "b.csv", seed=3), "--confidence", "0.99")
    assert code == 2
    assert "was begun with confidence=0.9" in said
    # What is not said is as it was.
    assert called(model, contexts(tmp_path, "b.csv", seed=3))[0] == 0
    assert state_of(model).confidence == 0.9


def test_a_run_length_is_taken(model, tmp_path):
    assert called(model, contexts(tmp_path), "--run-length", "500")[0] == 0
    assert state_of(model).run_length == 500


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--context", "hospitl"], "no column 'hospitl' (--context). Did you mean 'hospital'?"),
        (["--time", "dya"], "no column 'dya' (--time). Did you mean 'day'?"),
        (["--target", "il"], "no column 'il' (--target)"),
        (["--group", "nobody"], "no column 'nobody' (--group)"),
        (["--context", "hospital", "--context", "day"], "--context names 2"),
        (["--confidence", "1.5"], "confidence = 1.5"),
        (["--run-length", "0"], "run_length = 0"),
        (["--unseen-share", "-1"], "unseen_share = -1"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(model, tmp_path, more, words):
    code, printed, said = called(model, contexts(tmp_path, day=[1] * 150), *more)
    assert (code, printed) == (2, "")
    assert words in said
    assert not beside(model).exists()


def test_a_table_without_the_contexts_is_refused(model, tmp_path):
    code, _, said = called(model, save({"ward": ["a"] * 9}, tmp_path / "new.csv"))
    assert code == 2
    assert "no column 'hospital' (--context)" in said


def test_the_exit_code_is_documented():
    result = CliRunner().invoke(app, ["watch", "--help"], env={"COLUMNS": "120"})
    assert "3 alarm" in result.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="folders are made read-only otherwise")
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root writes everywhere")
def test_a_place_that_cannot_be_written_is_refused(model, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert called(model, contexts(tmp_path), "--state", locked / "watch.json")[0] == 2
