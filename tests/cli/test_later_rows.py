"""``--time`` lets later rows judge and decide; ``--method``, ``--thorough``, ``--gap`` and what is said meanwhile."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import counterpoise as cpo
from counterpoise.cli import _base, app
from counterpoise.tables.tabular import model_folder

pytestmark = pytest.mark.usefixtures("few_draws")

N = 320


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(2)
    site = rng.choice(["city", "coast", "hills"], N, p=[0.5, 0.3, 0.2])
    x = rng.standard_normal(N)
    return pd.DataFrame(
        {
            "day": (np.datetime64("2024-01-01") + np.arange(N)).astype(str),
            "site": site,
            "x": x.round(4),
            "units": (20 + 3 * np.where(site == "hills", -1, 1) * x + rng.standard_normal(N)).round(3),
        }
    )


@pytest.fixture(scope="module")
def file(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("sales") / "sales.csv"
    frame.to_csv(path, index=False)
    return path


def called(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


ROLES = ("--target", "units", "--context", "site")


def test_compare_shows_shuffled_and_later_rows_side_by_side(file, frame):
    code, out, _ = called("compare", file, *ROLES, "--time", "day", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["later"]["rows"] == "later months"
    assert found["agreement"] in found["verdict"]
    assert {row["method"] for row in found["later"]["methods"]} == {row["method"] for row in found["methods"]}
    assert sum(row["n"] for row in found["measures"] if row["method"] == "erm" and row["context"] == "all") == N
    later = next(row for row in found["later"]["measures"] if row["method"] == "erm" and row["context"] == "all")
    assert later["n"] == N * 4 // 5
    parts = next(row for row in found["drift"]["methods"] if row["method"] == "erm")
    assert parts["mix"] + parts["within"] + parts["new"] == pytest.approx(parts["change"])
    # The same in Python.
    model = cpo.RobustLinearRegression(alpha=1e-3, radius="calibrated", reference="cross-fit")
    draws = cpo.effective_draws(frame["site"], frame["day"], ordered=True)
    scaled = (frame[["x"]] - frame["x"].mean()) / frame["x"].std()
    same = cpo.compare(
        scaled, frame["units"], frame["site"], time=frame["day"], estimator=model.set_params(draws=draws)
    )
    measured = same.forward.measures.where(method="erm")["RMSE"][0]
    assert later["RMSE"] == pytest.approx(measured, rel=1e-3)


def test_later_rows_alone_judge_without_folds(file):
    code, out, _ = called("compare", file, *ROLES, "--time", "day", "--folds", "0", "--gap", "5d", "--json")
    assert code == 0
    found = json.loads(out)
    assert "later" not in found
    assert next(row["n"] for row in found["measures"] if row["context"] == "all") < N


@pytest.mark.parametrize("folds", ["2", "0"])
def test_contexts_that_models_had_no_rows_of_are_named(frame, tmp_path, folds):
    path, last = tmp_path / "sales.csv", N - N // 3
    labels = np.where(np.arange(N) < last, frame["site"], "new")
    labels[:20] = "gone"
    frame.assign(site=labels).to_csv(path, index=False)
    options = ("--time", "day", "--cuts", "2", "--folds", folds)
    code, out, _ = called("compare", path, *ROLES, *options, "--json")
    assert code == 0
    found = json.loads(out)
    own = next(row for row in found.get("later", found)["contexts"] if row["context"] == "new")
    assert own["excess"] is None
    assert own["risk"] > 0.0
    assert "Not judged, since models had no rows of it: new (" in found["verdict"]
    code, out, _ = called("compare", path, *ROLES, *options)
    assert code == 0
    assert "Not judged, since models had no rows of it: new (" in out


def test_the_model_is_the_one_that_later_rows_prefer_and_the_page_shows_both(file, tmp_path):
    code, out, said = called("fit", file, *ROLES, "--time", "day", "-o", tmp_path / "model")
    assert code == 0, said
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text(encoding="utf-8"))
    assert out.startswith("In later months ")
    assert metrics["agreement"] in out
    assert metrics["kept"] == cpo.load(tmp_path / "model").method
    page = (tmp_path / "model" / "report.html").read_text(encoding="utf-8")
    assert "Shuffled rows and later rows" in page
    assert "RMSE in later months" in page


@pytest.mark.parametrize("method", ["minimax-regret", "minimax-risk", "inverse-frequency", "erm"])
def test_every_method_can_be_kept_and_is_the_one_that_is_compared(file, frame, tmp_path, method):
    code, _, said = called("fit", file, *ROLES, "--drop", "day", "--method", method, "-o", tmp_path / "model", "-q")
    assert code == 0, said
    model = cpo.load(tmp_path / "model")
    assert model.method == method
    assert {"robust", "erm"} <= {model.method, *model.baselines}
    x = frame["x"].to_numpy()
    scaled = ((x - x.mean()) / x.std())[:, None]
    base = cpo.RobustLinearRegression(alpha=1e-3, radius="calibrated", reference="cross-fit")
    switches = {
        "erm": {"radius": 0.0},
        "inverse-frequency": {"mix": cpo.Mix(shares=dict.fromkeys(["city", "coast", "hills"], 1 / 3), radius=0.0)},
        "minimax-risk": {"confidence": 1.0, "criterion": "risk"},
        "minimax-regret": {"confidence": 1.0},
    }
    same = base.set_params(**switches[method]).fit(scaled, frame["units"], contexts=frame["site"])
    np.testing.assert_allclose(model.predict(frame), same.predict(scaled), atol=1e-5)


def test_large_tables_are_compared_on_a_sample_unless_all_rows_are_asked_for(file, monkeypatch):
    monkeypatch.setattr(model_folder, "MOST_ROWS", 200)
    monkeypatch.setattr(model_folder, "MOST_NUMBERS", 1.0)
    monkeypatch.setattr(model_folder, "FEWEST_ROWS", 200)
    _, out, said = called("compare", file, *ROLES, "--drop", "day", "--json")
    assert "methods are compared on 200 of 320 rows" in said
    assert next(row["n"] for row in json.loads(out)["measures"] if row["context"] == "all") == 200
    _, out, said = called("compare", file, *ROLES, "--drop", "day", "--json", "--thorough")
    assert "drawn at random" not in said
    assert next(row["n"] for row in json.loads(out)["measures"] if row["context"] == "all") == N


def test_a_model_of_all_rows_is_judged_on_a_sample(file, tmp_path, monkeypatch):
    monkeypatch.setattr(model_folder, "MOST_ROWS", 200)
    _, _, said = called("fit", file, *ROLES, "--drop", "day", "-o", tmp_path / "model")
    assert "the model is of all of them. --thorough compares on all" in said
    assert cpo.load(tmp_path / "model").context_counts_.sum() == N
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["sample"] == {"rows": 200, "of": N}


def test_a_column_of_dates_is_offered(file):
    _, _, said = called("compare", file, *ROLES)
    assert "--time day" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--folds", "0"), "name their column with --time"),
        (("--gap", "7d"), "name their column with --time"),
        (("--time", "day", "--gap", "soon"), "--gap is 'soon'"),
        (("--time", "site"), "holds 'c"),
        (("--time", "day", "--cuts", "0"), "cuts is 0"),
    ],
)
def test_what_cannot_be_judged_is_said(file, options, words):
    code, _, said = called("compare", file, *ROLES, *options)
    assert code == 2
    assert words in said


def test_progress_has_a_fraction_and_what_is_left_also_in_logs(file, monkeypatch):
    monkeypatch.setattr(_base, "_OFTEN", 0.0)
    _, _, said = called("compare", file, *ROLES, "--drop", "day")
    lines = [line for line in said.splitlines() if line.startswith("comparing: ")]
    assert lines
    assert all("% " not in line and line.endswith(" left") for line in lines)
    _, _, said = called("compare", file, *ROLES, "--drop", "day", "--quiet")
    assert said == ""


def test_the_explorer_of_a_large_table_is_of_a_sample(file, tmp_path, monkeypatch):
    monkeypatch.setattr(model_folder, "MOST_ROWS", 200)
    asked = ("explore", file, *ROLES, "--drop", "day", "--folds", "0", "-o", tmp_path / "page.html")
    code, _, said = called(*asked)
    assert code == 0
    assert "the page is of 200 of 320 rows" in said
    code, _, said = called(*asked, "--thorough", "--force")
    assert code == 0
    assert "drawn at random" not in said
