"""``cpo.load``: a table in Python is given what the command gives the same table in a file, to the last bit."""

import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import is_classifier, is_regressor
from sklearn.utils.validation import check_is_fitted
from typer.testing import CliRunner

import counterpoise as cpo
from counterpoise.cli import app
from counterpoise.exceptions import InvalidInputError
from counterpoise.log_targets import LogTarget
from counterpoise.tables.tabular.model_folder import as_method
from counterpoise.tables.tabular.saved import SavedModel
from tests.tables.tabular.examples import patients, posed
from tests.tables.tabular.test_task import TASKS

N = 40


def fitted_columns(seed=0):
    """Return a table with gaps, words that are numbers, and true and false."""
    rng, columns = np.random.default_rng(seed), patients(seed=seed)
    n = len(columns["age"])
    columns["blood"] = [None if one < 0.15 else word for one, word in zip(rng.random(n), columns["blood"], strict=True)]
    columns["age"] = [None if one < 0.1 else age for one, age in zip(rng.random(n), columns["age"], strict=True)]
    columns["zone"] = [str(k) for k in rng.choice([1, 2, 30], n)]
    columns["smoker"] = rng.choice([True, False], n)
    return columns


def written(folder, task="classification", columns=None, **options):
    """Write the models of two methods, and return what they were written from."""
    target, switches, _ = TASKS[task]
    problem = posed(columns or fitted_columns(), target, task=task, **switches, **options)
    plain = as_method(problem.model, "erm", problem.contexts)
    models = {
        "robust": problem.fitted()[0],
        "erm": plain.fit(problem.X, problem.y, model__contexts=problem.contexts),
    }
    SavedModel.of(models, problem.columns, target, task).write(folder)
    return models


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    written(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return cpo.load(folder)


def by_command(folder, file, out):
    done = CliRunner().invoke(app, ["predict", str(folder), str(file), "--out", str(out), "--force"])
    assert done.exit_code == 0, done.stderr
    return pq.read_table(out)


def assert_given(model, X, expected):
    """Assert that a table is given what the command wrote."""
    assert model.predict(X).tolist() == expected["prediction"].to_pylist()
    probabilities = [expected[f"probability[{name}]"].to_numpy() for name in model.classes_]
    np.testing.assert_array_equal(model.predict_proba(X), np.column_stack(probabilities))


def cycle(*values):
    return (list(values) * N)[:N]


BASE = {
    "age": np.linspace(40.0, 80.0, N).round(2),
    "weight": np.linspace(90.0, 60.0, N).round(3),
    "blood": cycle("A", "B", "0"),
    "zone": cycle("1", "2", "30"),
    "smoker": cycle(True, False),
}

PANDAS = {
    "nothing missing": {},
    "None": {"blood": cycle("A", None), "age": cycle(50.5, None)},
    "NaN": {"blood": pd.Series(cycle("A", np.nan), dtype=object), "age": cycle(50.5, np.nan)},
    "NA": {"blood": pd.array(cycle("A", pd.NA), dtype="string"), "age": pd.array(cycle(50, pd.NA), dtype="Int64")},
    "NA among objects": {
        "blood": pd.Series(cycle("B", pd.NA), dtype=object),
        "age": pd.Series(cycle(1.5, pd.NA), dtype=object),
    },
    "NaT among objects": {"blood": pd.Series(cycle("B", pd.NaT), dtype=object)},
    "every one of them": {"blood": pd.Series(cycle("B", None, np.nan, pd.NA, pd.NaT, "A"), dtype=object)},
    "nothing at all": {"blood": [None] * N, "age": np.full(N, np.nan)},
    "words for what is missing": {"blood": cycle("A", "nan", "null", " ", "NA"), "age": cycle("50", "NA", "", "n/a")},
    "numbers that are text": {"age": cycle("50.25", " 61 ", "7e1"), "weight": cycle("80", "90.5")},
    "categories": {"blood": pd.Categorical(cycle("A", "B", None)), "zone": pd.Categorical(cycle(1, 2, 30))},
    "codes that are numbers": {"zone": cycle(1, 2, 30)},
    "codes that are floats": {"zone": cycle(1.0, 2.0, 30.0, np.nan)},
    "codes with zeros before them": {"zone": cycle("01", "002", "30")},
    "codes that are half words": {"zone": cycle("1", "2.0", "x")},
    "words beside numbers": {"zone": pd.Series(cycle(1, "2", 30.0, None), dtype=object)},
    "truth as text": {"smoker": cycle("true", "False", "TRUE")},
    "truth with gaps": {"smoker": pd.array(cycle(True, None, False), dtype="boolean")},
    "truth as numbers": {"smoker": cycle(1, 0)},
    "unknown words": {"blood": cycle("AB", "A", "C"), "zone": cycle("99", "1")},
    "blanks around": {"blood": cycle(" A", "B ", "\t0")},
    "quotes and commas": {"blood": cycle('A"', "A,B", "line\nbreak", "A")},
    "decimals": {"age": cycle(decimal.Decimal("50.25"), None)},
    "dates elsewhere": {"when": pd.to_datetime(cycle("2024-01-01", None))},
    "lists elsewhere": {"list": pd.Series([[1]] * N)},
}


@pytest.mark.parametrize("case", PANDAS)
def test_pandas_is_given_what_the_command_gives(folder, model, tmp_path, case):
    frame = pd.DataFrame({**BASE, **PANDAS[case]})
    frame.to_csv(tmp_path / "new.csv", index=False)
    expected = by_command(folder, tmp_path / "new.csv", tmp_path / "out.parquet")
    shuffled = frame.set_index(np.arange(N)[::-1] % 7)[frame.columns[::-1]]
    for X in (frame, shuffled):
        assert_given(model, X, expected)
    if case not in ("words beside numbers", "lists elsewhere", "words for what is missing"):
        frame.to_parquet(tmp_path / "new.parquet")
        assert_given(model, frame, by_command(folder, tmp_path / "new.parquet", tmp_path / "out.parquet"))


POLARS = {
    "nothing missing": {},
    "null": {"blood": cycle("A", None), "age": cycle(50.5, None)},
    "NaN": {"age": cycle(50.5, float("nan"), None), "zone": pl.Series(cycle(1.0, float("nan"), 2.0, None))},
    "nothing at all": {"blood": pl.Series([None] * N), "age": pl.Series([None] * N, dtype=pl.Float64)},
    "categories": {
        "blood": pl.Series(cycle("A", "B", None), dtype=pl.Categorical),
        "zone": pl.Series(cycle("1", "2"), dtype=pl.Enum(["1", "2"])),
    },
    "codes that are numbers": {"zone": cycle(1, 2, None)},
    "truth with gaps": {"smoker": cycle(True, None, False)},
    "numbers that are text": {"age": cycle("50.25", " 61 ", None)},
    "decimals": {"age": pl.Series(cycle("50.25", "3.5"), dtype=pl.String).cast(pl.Decimal(10, 2))},
    "small integers": {"age": pl.Series(cycle(50, 60, None), dtype=pl.Int8)},
    "dates elsewhere": {"when": cycle(datetime.date(2024, 1, 1), None)},
}


@pytest.mark.parametrize("case", POLARS)
def test_polars_and_arrow_are_given_what_the_command_gives(folder, model, tmp_path, case):
    frame = pl.DataFrame({**BASE, **POLARS[case]})
    frame.write_csv(tmp_path / "new.csv")
    frame.write_parquet(tmp_path / "new.parquet")
    for file in ("new.csv", "new.parquet"):
        expected = by_command(folder, tmp_path / file, tmp_path / "out.parquet")
        for X in (frame, frame.to_arrow(), dict(frame.to_dict()), frame.to_arrow().combine_chunks().to_batches()[0]):
            assert_given(model, X, expected)


def test_columns_of_numpy_and_lists_are_a_table(folder, model, tmp_path):
    pd.DataFrame(BASE).to_csv(tmp_path / "new.csv", index=False)
    expected = by_command(folder, tmp_path / "new.csv", tmp_path / "out.parquet")
    assert_given(model, BASE, expected)
    assert_given(model, {name: np.array(column, dtype=object) for name, column in BASE.items()}, expected)
    assert_given(model, {f" {name} ": list(column) for name, column in BASE.items()}, expected)


WHEN = pd.Series(pd.date_range("2023-11-03 05:30", periods=N, freq="37h"))

DATES = {
    "times": WHEN,
    "times with gaps": WHEN.where(np.arange(N) % 5 > 0),
    "days": WHEN.dt.normalize(),
    "text": WHEN.dt.strftime("%Y-%m-%d %H:%M"),
    "text with the day first": WHEN.dt.strftime("%d.%m.%Y %H:%M"),
    "dates of Python": WHEN.dt.date,
}


@pytest.fixture(scope="module")
def dated(tmp_path_factory):
    """Return the folder of a model of dates, of a code that is a category, and of a logarithm."""
    columns = {**fitted_columns(), "when": pd.date_range("2022-01-01", periods=150, freq="53h").to_pydatetime()}
    columns["zone"] = list(map(int, columns["zone"]))
    folder = tmp_path_factory.mktemp("dated")
    problem = posed(columns, "cost", task="regression", date=["when"], category=["zone"], log_target=True)
    log = LogTarget(1.25)
    SavedModel.of({"robust": problem.fitted()[0]}, problem.columns, "cost", "regression", logs={"robust": log}).write(
        folder
    )
    return folder


@pytest.mark.parametrize("case", DATES)
def test_dates_are_given_what_the_command_gives(dated, tmp_path, case):
    model = cpo.load(dated)
    assert {"when: month", "when: weekday", "when: trend"} <= {*model.columns.features}
    assert "when" in model.feature_names_in_
    frame = pd.DataFrame({**BASE, "when": DATES[case], "zone": cycle("01", "2", "30.0")})
    frame.to_csv(tmp_path / "new.csv", index=False)
    expected = by_command(dated, tmp_path / "new.csv", tmp_path / "out.parquet")["prediction"].to_numpy()
    assert (expected > 0.0).all()
    for X in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        np.testing.assert_array_equal(model.predict(X), expected)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_and_every_method_predicts(tmp_path, task):
    models = written(tmp_path, task)
    model, data = cpo.load(str(tmp_path)), pd.DataFrame(fitted_columns(seed=3))
    X = posed(fitted_columns(seed=3), TASKS[task][0], task=task).X
    assert (model.method, list(model.baselines)) == ("robust", ["robust", "erm"])
    assert model.baselines["robust"] is model
    for name, pipeline in models.items():
        own = model.baselines[name]
        assert (own.method, own.task, own.target) == (name, task, TASKS[task][0])
        np.testing.assert_array_equal(own.coef_, pipeline[-1].coef_)
        np.testing.assert_array_equal(own.intercept_, pipeline[-1].intercept_)
        if task == "classification":
            np.testing.assert_allclose(own.predict_proba(data), pipeline.predict_proba(X), atol=1e-12)
            assert own.classes_.tolist() == pipeline.classes_.tolist()
        else:
            np.testing.assert_allclose(own.predict(data), pipeline.predict(X), rtol=1e-12, atol=1e-12)
            assert not hasattr(own, "predict_proba")
            assert not hasattr(own, "classes_")


def test_what_the_fit_found_is_there(tmp_path):
    fitted = written(tmp_path, "quantile")["robust"][-1]
    model = cpo.load(tmp_path)
    for name in ("contexts_", "context_counts_", "context_weights_", "context_risks_", "reference_risks_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(fitted, name))
    np.testing.assert_array_equal(model.excess_risks_, fitted.excess_risks_)
    assert (model.radius_, model.draws_, model.certificate_) == (fitted.radius_, fitted.draws_, fitted.certificate_)
    assert (model.quantile, model.mix, model.held_out_risks_) == (fitted.quantile, None, None)
    assert len(model.feature_names_) == len(model.coef_) == fitted.n_features_in_
    assert model.feature_names_in_.tolist() == ["age", "weight", "blood", "zone", "smoker"]
    assert repr(model) == "TableModel('cost', task='quantile', method='robust')"


def test_influence_of_contexts_is_there(tmp_path):
    fitted = written(tmp_path, "regression")["robust"][-1]
    np.testing.assert_array_equal(cpo.load(tmp_path).context_influence_, fitted.context_influence_)
    assert fitted.context_influence_ is not None
    # Quantiles have kinks in place of curvature.
    assert written(tmp_path, "quantile")["robust"][-1].context_influence_ is None
    assert cpo.load(tmp_path).context_influence_ is None


def test_scikit_learn_takes_it_for_fitted(model, tmp_path):
    check_is_fitted(model)
    assert is_classifier(model)
    written(tmp_path, "regression")
    assert is_regressor(cpo.load(tmp_path))
    with pytest.raises(InvalidInputError, match="is not fitted again"):
        model.fit(pd.DataFrame(BASE), [])


REFUSED = {
    "a missing column": (lambda: pd.DataFrame(BASE).drop(columns="age"), "X has no column 'age'. Its columns are"),
    "a name nearly right": (lambda: pl.DataFrame(BASE).rename({"age": "Age"}), "Did you mean 'Age'"),
    "a column twice": (lambda: pd.DataFrame(BASE)[[*BASE, "age"]], "columns 'age'"),
    "a word for a number": (
        lambda: pd.DataFrame({**BASE, "age": ["50"] * 3 + ["old"] * (N - 3)}),
        f"column 'age' of X must be numbers; row 3 holds 'old' (and {N - 4} more such cells)",
    ),
    "infinity": (lambda: pd.DataFrame({**BASE, "age": np.inf}), "must be finite numbers; row 0 holds inf"),
    "truth for a number": (lambda: pl.DataFrame({**BASE, "age": True}), "must be numbers, but it holds true and false"),
    "a date for a number": (
        lambda: pd.DataFrame({**BASE, "age": pd.Timestamp("2024-01-01")}),
        "must be numbers, but it holds dates",
    ),
    "a number beyond all": (lambda: pd.DataFrame({**BASE, "age": 1e60}), "beyond what can be computed with"),
    "lists for words": (lambda: pl.DataFrame({**BASE, "blood": [[1]] * N}), "must hold words or numbers"),
    "no rows": (lambda: pd.DataFrame(BASE)[:0], "X has a header but no rows"),
    "no columns": (lambda: pd.DataFrame(), "X has no column 'age'"),
    "an array": (lambda: np.zeros((3, 5)), "X is a ndarray; pass a table with named columns"),
    "text": (lambda: "new.csv", "X is a str; pass a table with named columns"),
    "nothing": (lambda: None, "pass a table with named columns"),
    "a lazy frame": (lambda: pl.DataFrame(BASE).lazy(), "X is lazy; collect it first"),
    "columns that differ in length": (lambda: {**BASE, "age": [1.0]}, "differ in length (1, 40 rows)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_predicted_is_refused_in_words(model, case):
    make, message = REFUSED[case]
    with pytest.raises(InvalidInputError) as caught:
        model.predict(make())
    assert message in str(caught.value)


def test_what_is_not_there_is_told(tmp_path):
    with pytest.raises(InvalidInputError, match="there is no folder"):
        cpo.load(tmp_path / "no")
    with pytest.raises(InvalidInputError, match="holds no model"):
        cpo.load(str(tmp_path))


def test_a_table_of_arrow_with_names_that_are_no_text_is_known_by_them():
    frame = pd.DataFrame({0: [1.0, 2.0], 1: ["a", "b"]})
    from counterpoise.tables.tabular.frames import frame_data

    assert frame_data(frame, ("0", "1")).texts("1").to_pylist() == ["a", "b"]
    assert frame_data(pa.table({"0": [1.0]}), ("0",)).numbers("0").tolist() == [1.0]
