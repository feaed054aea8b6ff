"""``counterpoise fit`` and ``predict``: what is written is what Python gives, and nothing is written by halves."""

import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import counterpoise as cpo
from counterpoise.cli import app
from counterpoise.reports import report as report_module
from counterpoise.tables.tabular import saved as saved_module
from counterpoise.tables.tabular.saved import FILES
from tests.reports.pages.hostile import NAMES
from tests.tables.tabular.examples import OTHERS, patients, posed_file, save

pytestmark = pytest.mark.usefixtures("few_draws")

QUICK = ("--folds", "2", "--reference", "in-sample", "--radius", "0.1")


def called(*arguments):
    """Return the exit code, what was printed and what was said; a crash is a crash."""
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def fit(file, out, *more, target="ill", context="hospital"):
    drop = [word for name in OTHERS.get(target, ()) for word in ("--drop", name)]
    return called("fit", file, "--target", target, "--context", context, "--out", out, *drop, *QUICK, *more)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return save(patients(), tmp_path_factory.mktemp("data") / "patients.csv")


@pytest.fixture(scope="module")
def model(file, tmp_path_factory):
    out = tmp_path_factory.mktemp("fitted") / "model"
    code, printed, said = fit(file, out, "--method", "robust")
    assert code == 0
    assert printed.splitlines()[0] == json.loads((out / "metrics.json").read_text())["headline"]
    assert "The robust model is kept, as asked; held-out rows speak for the plain" in printed.splitlines()[1]
    assert printed.splitlines()[2] == f"The model is in {out}; open {out / 'report.html'}"
    assert said.splitlines()[0] == "note: classification of ill (ill holds words)"
    return out


# --- whose model is kept ---------------------------------------------------------------------------------------------


def fitted_model(out):
    return cpo.load(out)


@pytest.mark.parametrize("method", ["best", "erm", "inverse-frequency"])
def test_the_model_of_a_method_is_kept(file, model, tmp_path, method):
    out = tmp_path / "model"
    code, printed, _ = fit(file, out, "--method", method)
    assert code == 0
    metrics = json.loads((out / "metrics.json").read_text())
    kept = "erm" if method == "best" else method
    assert metrics["kept"] == kept
    assert [row["candidate"] for row in metrics["candidates"]] == ["erm", "inverse-frequency", "robust"]
    said = {
        "best": "The plain model is kept: ",
        "erm": "The plain model is kept, as asked: ",
        "inverse-frequency": "is kept, as asked; held-out rows speak for the plain model",
    }
    assert said[method] in printed
    own, robust = fitted_model(out), fitted_model(model)
    assert (own.method, robust.method) == (kept, "robust")
    assert set(own.baselines) == {"robust", "erm", "inverse-frequency"}
    np.testing.assert_array_equal(own.baselines["robust"].coef_, robust.coef_)
    weights = (
        np.full(3, 1 / 3) if kept == "inverse-frequency" else robust.context_counts_ / robust.context_counts_.sum()
    )
    np.testing.assert_allclose(own.context_weights_, weights)
    assert not np.allclose(own.coef_, robust.coef_)
    assert " is kept" in (out / "report.html").read_text()


def test_a_planted_shift_keeps_the_robust_model(tmp_path):
    rng = np.random.default_rng(0)
    ward, x, z = (rng.random(900) < 0.15).astype(int), rng.standard_normal(900), rng.standard_normal(900)
    columns = {
        "x": x,
        "z": z,
        "ward": np.array(["old", "new"])[ward],
        "y": np.where(ward, z, x) + 0.3 * rng.random(900),
    }
    out = tmp_path / "model"
    code, printed, _ = fit(save(columns, tmp_path / "wards.csv"), out, "--radius", "0.5", target="y", context="ward")
    assert code == 0
    assert json.loads((out / "metrics.json").read_text())["kept"] != "erm"
    assert " is kept: " in printed
    assert "The plain model" not in printed


def test_an_unknown_method_is_refused(file, tmp_path):
    code, _, said = fit(file, tmp_path / "model", "--method", "bayes")
    assert code == 2
    assert "--method is 'bayes'; choose best, robust, erm, inverse-frequency, minimax-risk" in said
    assert not (tmp_path / "model").exists()


# --- rare contexts ---------------------------------------------------------------------------------------------------

NOTE = "2 contexts have fewer than 30 rows and are pooled as east + west (31 rows): east 27, west 4"


@pytest.fixture(scope="module")
def rare(tmp_path_factory):
    columns = patients(180)
    columns["hospital"] = np.repeat(["north", "south", "east", "west"], [89, 60, 27, 4])
    columns["day"] = np.arange(180) // 3
    return save(columns, tmp_path_factory.mktemp("rare") / "patients.csv")


def test_rare_contexts_are_pooled_and_told_everywhere(rare, tmp_path):
    out = tmp_path / "model"
    code, _, said = fit(rare, out, "--pool-below", "30", "--drop", "day")
    assert code == 0, said
    assert f"note: {NOTE}\n" in said
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["settings"]["pooled"] == NOTE
    assert {row["context"] for row in metrics["contexts"]} == {"north", "south", "east + west"}
    assert NOTE in (out / "report.html").read_text(encoding="utf-8")
    assert json.loads((out / "model.json").read_text())["pooled"] == {
        "label": "east + west",
        "rows": 31,
        "members": [{"context": "east", "rows": 27}, {"context": "west", "rows": 4}],
    }
    saved = cpo.load(out)
    assert saved.contexts_.tolist() == ["east + west", "north", "south"]
    assert saved.pooled["label"] == "east + west"
    assert called("predict", out, rare, "-o", tmp_path / "new.csv")[0] == 0


def test_with_a_group_groups_are_counted(rare, tmp_path):
    code, _, said = fit(rare, tmp_path / "model", "--pool-below", "10", "--group", "day")
    assert code == 0, said
    assert "1 context has fewer than 10 groups and is pooled with the smallest other one as east + west" in said
    assert json.loads((tmp_path / "model" / "model.json").read_text())["pooled"]["groups"] == 11


def test_crossed_contexts_and_numbers_are_pooled(rare, tmp_path):
    table = pd.read_csv(rare)
    table["ward"] = np.arange(180) % 2 + 1
    table.to_csv(tmp_path / "p.csv", index=False)
    out = tmp_path / "model"
    code, _, said = fit(tmp_path / "p.csv", out, "--context", "ward", "--pool-below", "20", "--drop", "day")
    assert code == 0, said
    assert "pooled as other (4 contexts) (31 rows): east x ward 2 14, east x ward 1 13, west x ward 1 2" in said
    assert cpo.load(out).contexts_.tolist()[-1] == ("south", "ward 2")
    assert ("other (4 contexts)",) in cpo.load(out).contexts_.tolist()
    report = json.loads((out / "metrics.json").read_text())
    assert "other (4 contexts)" in {row["context"] for row in report["contexts"]}


def test_contexts_of_very_few_rows_are_noted_where_nothing_was_asked(rare, tmp_path):
    code, _, said = fit(rare, tmp_path / "model", "--drop", "day")
    assert code == 0, said
    note = "1 context has fewer than 10 rows; --pool-below 30 pools it with another"
    assert f"note: {note}\n" in said
    assert json.loads((tmp_path / "model" / "model.json").read_text())["pooled"] is None
    assert "fewer than 10 rows" not in fit(rare, tmp_path / "pooled", "--pool-below", "30", "--drop", "day")[2]


@pytest.mark.parametrize("command", ["fit", "compare", "explore"])
@pytest.mark.parametrize("limit", ["0", "-3", "thirty", "2.5", "", "nan", "9" * 5000])
def test_limits_that_are_no_counts_are_one_line(rare, tmp_path, command, limit):
    where = () if command == "compare" else ("--out", tmp_path / "out")
    code, printed, said = called(
        command, rare, "--target", "ill", "--context", "hospital", f"--pool-below={limit}", *where
    )
    assert (code, printed) == (2, "")
    assert re.fullmatch(r"Error: --pool-below is '.{0,59}'?; pass a whole number, 1 or more, such as 30\.\n", said)
    assert list(tmp_path.iterdir()) == []


def test_pooling_everything_is_refused_with_the_counts(rare, tmp_path):
    code, printed, said = fit(rare, tmp_path / "model", "--pool-below", "500")
    assert (code, printed) == (2, "")
    assert said.endswith(
        "Error: pooling contexts with fewer than 500 rows would leave a single context (counts: east 27, north 89, "
        "south 60, west 4). Choose a limit of at most 89.\n"
    )
    assert list(tmp_path.iterdir()) == []


# --- fit -------------------------------------------------------------------------------------------------------------


def test_the_folder_holds_model_card_report_and_metrics(model, file):
    assert sorted(path.name for path in model.iterdir()) == sorted(FILES)
    assert [path.name for path in model.parent.iterdir()] == ["model"]
    html = (model / "report.html").read_text(encoding="utf-8")
    metrics = json.loads((model / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["verdict"] in html
    assert metrics["settings"]["file"].startswith("patients.csv (150 rows, fingerprint ")
    assert metrics["settings"]["features"] == "3: age, weight, blood"
    assert "ill by hospital" in html


def test_json_is_alone_on_stdout_and_equal_to_the_metrics(file, tmp_path):
    code, printed, said = fit(file, tmp_path / "model", "--json")
    assert code == 0
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text(encoding="utf-8"))
    assert json.loads(printed) == {**metrics, "folder": str(tmp_path / "model")}
    assert all(line.startswith("note: ") for line in said.splitlines())


def test_quiet_says_nothing_and_verbose_says_how_long(file, tmp_path):
    code, printed, said = fit(file, tmp_path / "quiet", "--quiet", "--verbose")
    assert (code, said) == (0, "")
    assert len(printed.splitlines()) == 3
    code, _, said = fit(file, tmp_path / "verbose", "-v")
    assert code == 0
    for step in ("reading", "fitting", "comparing with the baselines, on held-out rows", "writing"):
        assert re.search(rf"^{step}: \d+\.\d\d s$", said, re.MULTILINE)


def test_a_folder_that_exists_is_untouched_without_force(model, file):
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    code, printed, said = fit(file, model)
    assert (code, printed) == (2, "")
    assert said.startswith(f"Error: {model} holds a model already. Pass --force")
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before


def test_force_replaces_a_model_but_nothing_else(file, tmp_path):
    out = tmp_path / "model"
    out.mkdir()
    for name in (*FILES, "model.skops"):
        (out / name).write_text("old")
    assert fit(file, out, "--force")[0] == 0
    assert "old" not in {path.read_text(errors="replace") for path in out.iterdir()}
    (out / "thesis.tex").write_text("years of work")
    code, _, said = fit(file, out, "--force")
    assert code == 2
    assert "thesis.tex" in said
    assert (out / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(
    ("module", "name"), [(report_module, "compare"), (report_module, "confidence_path"), (saved_module, "digest")]
)
def test_an_interruption_writes_nothing(file, tmp_path, monkeypatch, module, name, there):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    out = tmp_path / "model"
    if there:
        out.mkdir()
        (out / "model.json").write_text("old")
    monkeypatch.setattr(module, name, interrupted)
    code, printed, said = fit(file, out, "--force")
    assert (code, printed) == (130, "")
    assert said.endswith("Interrupted. Nothing is left half written.\n")
    assert list(tmp_path.iterdir()) == [out] * there
    assert not there or [path.read_text() for path in out.iterdir()] == ["old"]


def test_a_full_disk_is_a_failure_and_leaves_nothing(file, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saved_module, "digest", full)
    code, _, said = fit(file, tmp_path / "model")
    assert code == 1
    assert "No space left on device" in said
    assert list(tmp_path.iterdir()) == []


def test_semicolons_and_decimal_commas(tmp_path):
    pd.DataFrame(patients()).to_csv(tmp_path / "p.csv", sep=";", decimal=",", index=False, encoding="utf-16")
    code, _, said = fit(tmp_path / "p.csv", tmp_path / "model")
    assert code == 0, said
    assert json.loads((tmp_path / "model" / "model.json").read_text())["columns"]["numbers"] == ["age", "weight"]


@pytest.mark.parametrize("header", [", ", "; "])
def test_a_header_with_blanks_does_not_give_the_target_away(tmp_path, header):
    frame = pd.DataFrame(patients()).drop(columns=["days", "cost"]).astype({"ill": "category"})
    frame["ill"] = frame["ill"].cat.codes
    text = frame.to_csv(index=False, sep=header[0])
    first, rest = text.split("\n", 1)
    (tmp_path / "p.csv").write_text(first.replace(header[0], header) + "\n" + rest)
    arguments = ("fit", tmp_path / "p.csv", "--target", "ill", "--context", "hospital", "-o", tmp_path / "model")
    assert called(*arguments, *QUICK)[0] == 0
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text())
    assert "ill" not in metrics["settings"]["features"]
    assert min(row["risk"] for row in metrics["contexts"]) > 0.1


BROKEN = {
    "an uneven row": ("age,ill,hospital\n1,2,3\n4,5\n", "row 3 of p.csv has 2 cells, but the header has 3"),
    "no rows": ("age,ill,hospital\n", "p.csv has a header but no rows"),
    "nothing": ("", "p.csv is empty"),
    "an open quote": ('age,ill,hospital\n1,2,"3\n' + "4,5,6\n" * 9, "quotation mark that is opened and never closed"),
    "two columns of a name": ("age,ill,ill,hospital\n1,2,3,4\n", "p.csv has 2 columns 'ill'"),
    "no such target": ("age,illl,hospital\n1,2,3\n", "no column 'ill' (--target). Did you mean 'illl'?"),
    "no such context": ("age,ill,hopsital\n1,2,3\n4,1,5\n", "no column 'hospital' (--context). Did you mean"),
    "a hole in the context": ("age,ill,hospital\n1,2,a\n2,1,\n", "(--context) is empty in row 3"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_table_is_the_users_to_mend(tmp_path, case):
    text, message = BROKEN[case]
    (tmp_path / "p.csv").write_text(text)
    arguments = ("fit", tmp_path / "p.csv", "--target", "ill", "--context", "hospital", "-o", tmp_path / "model")
    code, printed, said = called(*arguments)
    assert (code, printed) == (2, "")
    assert message in said
    assert said.startswith("Error: ")
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


WRONG = {
    "confidence": ("2", "confidence is 2.0"),
    "radius": ("wide", "radius is 'wide'"),
    "draws": ("0", "--draws is '0'; pass a positive number, such as 20, or rows"),
    "criterion": ("both", "criterion is 'both'"),
    "alpha": ("-1", "alpha = -1.0"),
    "reference": ("mine", "--reference is 'mine'; choose cross-fit, shrunk, in-sample, auto, null or pooled"),
    "adjust": ("0", "--adjust is '0'; choose none or standard-error, or pass a positive number"),
    "folds": ("1", "two folds or more"),
    "jobs": ("0", "jobs"),
    "task": ("guess", "--task is 'guess'"),
    "group": ("family", "no column 'family' (--group)"),
    "drop": ("family", "family"),
    "only": ("family", "family"),
}


@pytest.mark.parametrize("option", WRONG)
def test_a_switch_that_cannot_be_is_refused(file, tmp_path, option):
    value, message = WRONG[option]
    code, printed, said = fit(file, tmp_path / "model", f"--{option}", value)
    assert (code, printed) == (2, "")
    assert message in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("adjust", "kept"), [("none", None), ("standard-error", "standard-error"), ("0.5", "0.5")])
def test_small_contexts_may_be_adjusted_for(file, tmp_path, adjust, kept):
    code, _, _ = fit(file, tmp_path / "model", "--adjust", adjust, "--reference", "shrunk")
    assert code == 0
    settings = json.loads((tmp_path / "model" / "metrics.json").read_text())["settings"]
    assert settings.get("adjust") == kept
    assert settings["reference"] == "shrunk"


def test_switches_that_typer_refuses_are_usage(file, tmp_path):
    assert fit(file, tmp_path / "model", "--folds", "many")[0] == 2
    assert called("fit", file, "--target", "ill")[0] == 2
    assert called("fit")[0] == 2


def test_the_current_folder_is_no_crash(tmp_path, monkeypatch):
    path = save(patients(), tmp_path / "patients.csv")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert fit(path, ".")[0] in (0, 2)


def test_hostile_names_pass_through_every_file(tmp_path):
    names = [name for name in NAMES if isinstance(name, str) and name.strip() and "\ud800" not in name]
    columns = patients()
    where = dict(zip(("north", "south", "east"), names[5:8], strict=True))
    renamed = {names[0]: columns["age"], names[1]: columns["blood"], names[2]: columns["ill"]}
    renamed[names[3]] = [where[name] for name in columns["hospital"]]
    path = save(renamed, tmp_path / "p.parquet")
    code, printed, _ = fit(path, tmp_path / "model", "--json", target=names[2], context=names[3])
    assert code == 0
    assert json.loads(printed)["contexts"]
    html = (tmp_path / "model" / "report.html").read_text(encoding="utf-8")
    assert "<script" not in html
    assert "<img" not in html
    assert called("predict", tmp_path / "model", path, "-o", tmp_path / "out.csv")[0] == 0


# --- predict ---------------------------------------------------------------------------------------------------------


def predicted(model, columns, folder, end="csv", out="out.csv"):
    path = save(columns, folder / f"new.{end}")
    code, printed, said = called("predict", model, path, "-o", folder / out)
    assert code == 0, said
    assert printed == f"{len(columns['age'])} predictions of ill are in {folder / out}\n"
    table = pd.read_csv(folder / out) if out.endswith("csv") else pq.read_table(folder / out).to_pandas()
    return table, said


def beside_the_glance(said):
    """Return what is said beside how well the model does, which comes last where a file has target and contexts."""
    rest, _, glance = said.rpartition("note: ")
    words = r"the file has ill and hospital: accuracy [\d.]+% over \d+ rows, lowest [\d.]+% in \w+ \(\d+ rows\)"
    words += "(, of contexts with 20 rows or more)?; "
    assert re.fullmatch(words + "counterpoise evaluate says more\n", glance), said
    return rest


@pytest.mark.parametrize("end", ["csv", "parquet", "arrow"])
@pytest.mark.parametrize("out", ["out.csv", "out.parquet"])
def test_predictions_are_those_of_the_same_pipeline_in_python(model, file, tmp_path, end, out):
    new = patients(60, seed=5)
    table, said = predicted(model, new, tmp_path, end, out)
    assert beside_the_glance(said) == ""
    switches = {"reference": "in-sample", "radius": 0.1, "alpha": 1e-3}
    pipeline, _ = posed_file(file, **switches).fitted()
    X = posed_file(save(new, tmp_path / "python.csv")).X
    np.testing.assert_allclose(table["probability[yes]"], pipeline.predict_proba(X)[:, 1], atol=1e-12)
    assert table["prediction"].tolist() == pipeline.predict(X).tolist()
    assert list(table)[: len(new)] == list(new)
    for name, column in new.items():
        assert pd.Series(table[name]).astype(str).tolist() == pd.Series(column).astype(str).tolist()


def test_types_survive_in_parquet(model, tmp_path):
    """A number of a csv is a number in the parquet file beside its prediction."""
    predicted(model, patients(60), tmp_path, "csv", "out.parquet")
    schema = pq.read_schema(tmp_path / "out.parquet")
    assert pa.types.is_floating(schema.field("age").type)


def test_what_was_not_seen_is_said(model, tmp_path):
    new = patients(60, seed=5)
    new["blood"] = ["AB" if k < 3 else word for k, word in enumerate(new["blood"].tolist())]
    new["age"] = [None if k < 9 else value for k, value in enumerate(new["age"].tolist())]
    table, said = predicted(model, new, tmp_path)
    assert beside_the_glance(said) == "note: 3 of 60 rows have a blood that the model has not seen\n"
    assert table["probability[yes]"].notna().all()


def test_other_order_and_other_columns_change_nothing(model, tmp_path):
    new = patients(60, seed=5)
    table, _ = predicted(model, new, tmp_path)
    other = {"extra": range(60), **{name: new[name] for name in ("blood", "weight", "age")}, "ill": [None] * 60}
    again, _ = predicted(model, other, tmp_path, out="again.csv")
    assert again["probability[yes]"].tolist() == table["probability[yes]"].tolist()
    assert list(again)[:5] == ["extra", "blood", "weight", "age", "ill"]


def test_a_column_called_prediction_keeps_its_name(model, tmp_path):
    new = {**patients(60, seed=5), "prediction": ["mine"] * 60, "prediction_": ["too"] * 60}
    table, _ = predicted(model, new, tmp_path)
    assert set(table["prediction"]) == {"mine"}
    assert set(table["prediction_"]) == {"too"}
    assert set(table["prediction__"]) <= {"yes", "no"}


def test_a_boolean_is_known_in_every_format(tmp_path):
    columns = {**patients(), "smoker": [True, False, False] * 50}
    for fitted in ("csv", "parquet"):
        assert fit(save(columns, tmp_path / f"p.{fitted}"), tmp_path / fitted)[0] == 0
        for end in ("csv", "parquet"):
            _, said = predicted(tmp_path / fitted, columns, tmp_path, end, f"{fitted}-{end}.csv")
            assert beside_the_glance(said) == ""


NEW = {
    "a missing column": ("weight,blood\n1,A\n", "new.csv has no column 'age'"),
    "a word for a number": (
        "age,weight,blood\n1,2,A\n50,heavy,B\n",
        "column 'weight' of new.csv must be numbers; row 3",
    ),
    "a date for a number": ("age,weight,blood\n1,2020-01-01,A\n", "That is a date"),
    "infinity": ("age,weight,blood\n1,inf,A\n", "must be finite numbers; row 2 holds 'inf'"),
    "no rows": ("age,weight,blood\n", "new.csv has a header but no rows"),
    "an uneven row": ("age,weight,blood\n1,2\n", "row 2 of new.csv has 2 cells"),
}


@pytest.mark.parametrize("case", NEW)
def test_new_rows_that_cannot_be_predicted_are_named(model, tmp_path, case):
    text, message = NEW[case]
    (tmp_path / "new.csv").write_text(text)
    code, printed, said = called("predict", model, tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert (code, printed) == (2, "")
    assert message in said
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_no_rows_in_a_typed_file(model, tmp_path):
    path = save({"age": pa.array([], pa.float64())}, tmp_path / "new.parquet")
    code, _, said = called("predict", model, path, "-o", tmp_path / "out.csv")
    assert code == 2
    assert "has a header but no rows" in said


@pytest.mark.parametrize("kind", ["lists", "bytes", "structs"])
def test_a_column_that_no_csv_can_hold_is_the_users_to_drop(model, tmp_path, kind):
    odd = {"lists": [[1]] * 60, "bytes": [b"\xff\x00"] * 60, "structs": [{"a": 1}] * 60}[kind]
    path = save({**patients(60), "odd": odd}, tmp_path / "new.parquet")
    code, _, said = called("predict", model, path, "-o", tmp_path / "out.csv")
    assert code == 2
    assert "odd" in said
    assert not (tmp_path / "out.csv").exists()
    assert called("predict", model, path, "-o", tmp_path / "out.parquet")[0] == 0


def test_outputs_of_predict_are_guarded(model, file, tmp_path):
    out = tmp_path / "out.csv"
    out.write_text("mine")
    code, _, said = called("predict", model, file, "-o", out)
    assert code == 2
    assert "exists already" in said
    assert out.read_text() == "mine"
    assert called("predict", model, file, "-o", out, "--force", "-q")[::2] == (0, "")
    for wrong in ("out.xlsx", "out"):
        code, _, said = called("predict", model, file, "-o", tmp_path / wrong)
        assert code == 2
        assert "name a file ending in .csv or .parquet" in said
    assert called("predict", tmp_path / "no", file, "-o", tmp_path / "new.csv")[0] == 2
    assert called("predict", file, file, "-o", tmp_path / "new.csv")[0] == 2


def test_an_interrupted_prediction_writes_nothing(model, file, tmp_path, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(saved_module.SavedModel, "unknown_of", interrupted)
    code, _, said = called("predict", model, file, "-o", tmp_path / "out.csv")
    assert code == 130
    assert "Nothing is left half written" in said
    assert list(tmp_path.iterdir()) == []


def test_a_stray_cell_counts_as_missing_and_is_named(tmp_path):
    rng = np.random.default_rng(0)
    cells = rng.standard_normal(300).round(1).astype(str).astype(object)
    frame = pd.DataFrame({"x": cells, "site": rng.choice(["a", "b"], 300)})
    frame["y"] = 2.0 * frame["x"].astype(float) + rng.standard_normal(300)
    clean, dirty = tmp_path / "clean.csv", tmp_path / "dirty.csv"
    frame.to_csv(clean, index=False)
    frame.loc[7, "x"] = "?"
    frame.to_csv(dirty, index=False)
    said = "column 'x' of dirty.csv has '?' in row 9, which counts as missing (299 of 300 cells are numbers)"
    for arguments in (
        ("fit", dirty, "--target", "y", "--context", "site", "--out", tmp_path / "model"),
        ("predict", tmp_path / "model", dirty, "--out", tmp_path / "predicted.csv"),
    ):
        code, _, notes = called(*arguments)
        assert code == 0
        assert notes.count(said) == 1
    assert saved_module.load(tmp_path / "model").columns.numbers == ("x",)
    frame = frame.astype({"y": object})
    frame.loc[7, "y"] = "abc"
    frame.to_csv(dirty, index=False)
    code, _, error = called("fit", dirty, "--target", "y", "--context", "site", "--out", tmp_path / "other")
    assert code == 2
    assert "row 9 holds 'abc'" in error
