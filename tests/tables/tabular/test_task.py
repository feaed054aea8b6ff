"""What a target is taken for, in which words, and what is refused."""

import numpy as np
import pyarrow as pa
import pytest

import counterpoise
from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.tabular.task import RISKS, pipeline
from tests.tables.tabular.examples import FORMATS, OTHERS, patients, posed, posed_file, save

N = 150


def cycle(*values):
    return (list(values) * N)[:N]


INFERRED = {
    "words": (cycle("a", "b", "c"), "classification", "new holds words"),
    "two numbers": (cycle(1, 2), "classification", "new holds two values"),
    "two numbers with gaps": (cycle(1, 2, None), "classification", "new holds two values"),
    "whole numbers": (
        cycle(1, 2, 3),
        "regression",
        "new holds 3 different numbers; --task classification would take them for classes",
    ),
    "many numbers": (np.arange(N) * 0.5, "regression", "new holds 150 different numbers"),
}


@pytest.mark.parametrize("end", FORMATS)
@pytest.mark.parametrize("case", INFERRED)
def test_the_task_is_inferred_and_said(tmp_path, case, end):
    column, task, why = INFERRED[case]
    problem = posed_file(save({**patients(), "new": column}, tmp_path / f"patients.{end}"), "new")
    assert (problem.target.task, problem.target.why) == (task, why)
    assert problem.notes[0] == f"{task} of new ({why})"


def test_booleans_are_not_called_words():
    problem = posed({**patients(), "new": cycle(True, False)}, "new")
    assert problem.target.task == "classification"
    assert "words" not in problem.target.why


def test_a_cell_that_is_not_a_number_is_no_third_value(tmp_path):
    columns = {**patients(), "new": pa.array(cycle(0.0, 1.0, np.nan))}
    problem = posed(columns, "new")
    assert problem.target.task == "classification"
    assert len(problem.y) == N - N // 3


CLASSES = {
    "words": cycle("yes", "no"),
    "integers": cycle(0, 1),
    "floats": cycle(0.0, 1.0),
    "booleans": cycle(True, False),
}


@pytest.mark.parametrize("case", CLASSES)
def test_classes_have_the_same_names_in_every_format(tmp_path, case):
    columns = {**patients(), "new": CLASSES[case]}
    problems = [posed_file(save(columns, tmp_path / f"patients.{end}"), "new") for end in FORMATS]
    assert len({tuple(np.unique(problem.y).tolist()) for problem in problems}) == 1


def test_one_number_written_in_two_ways_is_one_class(tmp_path):
    problem = posed_file(save({**patients(), "new": cycle("0", "1", "1.0")}, tmp_path / "patients.csv"), "new")
    assert problem.target.why == "new holds two values"
    assert len(np.unique(problem.y)) == 2


@pytest.mark.parametrize("end", FORMATS)
@pytest.mark.parametrize("target", OTHERS)
def test_rows_without_a_target_are_left_out_and_counted(tmp_path, target, end):
    columns = patients()
    columns[target] = [None if k in (0, 70, 149) else value for k, value in enumerate(columns[target].tolist())]
    problem = posed_file(save(columns, tmp_path / f"patients.{end}"), target)
    assert problem.notes[1] == f"3 of 150 rows have no {target} and are left out"
    kept = np.delete(np.arange(N), [0, 70, 149])
    assert problem.kept.tolist() == [k in kept for k in range(N)]
    np.testing.assert_array_equal(problem.X["age"].to_numpy(), columns["age"][kept])
    assert problem.contexts.tolist() == columns["hospital"][kept].tolist()
    assert len(problem.y) == 147


TASKS = {
    "classification": ("ill", {}, "RobustLogisticRegression"),
    "regression": ("cost", {}, "RobustLinearRegression"),
    "count": ("days", {}, "RobustPoissonRegressor"),
    "quantile": ("cost", {"quantile": 0.9}, "RobustQuantileRegressor"),
    "huber": ("cost", {"delta": 2.0}, "RobustHuberRegressor"),
}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_its_model(task):
    target, switches, name = TASKS[task]
    problem = posed(patients(), target, task=task, radius=0.1, **switches)
    model, _ = problem.fitted()
    assert type(model[-1]) is getattr(counterpoise, name)
    assert model[-1].get_params().items() >= {"radius": 0.1, **switches}.items()
    assert np.isfinite(model[-1].certificate_.upper)
    assert problem.target.why == "as asked"
    assert RISKS[task]


def test_the_quantile_is_above_that_share_of_rows():
    for quantile in (0.1, 0.9):
        problem = posed(patients(), "cost", task="quantile", quantile=quantile, radius=0.0)
        below = problem.y <= problem.fitted()[0].predict(problem.X)
        assert below.mean() == pytest.approx(quantile, abs=0.05)


def test_outliers_move_the_huber_model_less():
    columns = patients()
    wrong = {**columns, "cost": np.where(np.arange(N) % 15 == 0, 9000.0, columns["cost"])}
    moved = {}
    for task in ("regression", "huber"):
        before, after = (posed(one, "cost", task=task, radius=0.0).fitted()[0] for one in (columns, wrong))
        X = posed(columns, "cost").X
        moved[task] = np.abs(before.predict(X) - after.predict(X)).max()
    assert moved["huber"] < moved["regression"] / 20


REFUSED = {
    "a task unknown": ("cost", "clustering", "--task is 'clustering'; choose auto, classification, regression"),
    "words as numbers": ("ill", "regression", r"column 'ill' of .* \(--target\) must be numbers; row 1 holds"),
    "words as counts": ("ill", "count", r"\(--target\) must be numbers"),
    "negative counts": (
        "below",
        "count",
        r"'below' of patients.parquet \(--target\) has -1 in row 3; target cannot be negative",
    ),
    "one value": ("one", "auto", r"'one' of patients.parquet \(--target\) is the same in every row"),
    "no value": ("none", "auto", r"'none' of patients.parquet \(--target\) is empty in every row"),
    "blank cells": ("blank", "auto", r"'blank' of patients.parquet \(--target\) is"),
    "one word and a mark": ("marked", "auto", "is the same in every row|holds one class"),
    "too many classes": ("name", "auto", r"'name' of .* \(--target\) has 150 classes; 100 are the most"),
    "numbers as classes": ("cost", "classification", "classes; 100 are the most"),
    "lists": ("list", "auto", r"'list' of patients.parquet \(--target\)"),
    "structs": ("struct", "auto", r"'struct' of patients.parquet \(--target\)"),
    "dates": ("date", "regression", r"'date' of patients.parquet \(--target\) holds dates"),
    "infinity": ("infinite", "auto", r"'infinite' of patients.parquet \(--target\) must be finite numbers; row 1"),
    "the context": ("hospital", "auto", "column 'hospital' is both --target and --context"),
    "a name nearly right": ("costs", "auto", r"no column 'costs' \(--target\). Did you mean 'cost'"),
}

ODD = {
    "below": [2, 1, -1, *range(N - 3)],
    "one": [3] * N,
    "none": pa.nulls(N),
    "blank": cycle("", " "),
    "marked": cycle("yes", "nan"),
    "name": [f"patient {k}" for k in range(N)],
    "list": cycle([1], [2]),
    "struct": cycle({"a": 1}, {"a": 2}),
    "date": pa.array(range(N), pa.date32()),
    "infinite": cycle(np.inf, 1.0, 2.0),
}


@pytest.mark.parametrize("case", REFUSED)
def test_targets_that_are_refused(case):
    target, task, message = REFUSED[case]
    with pytest.raises(InvalidInputError, match=message):
        posed({**patients(), **{name: ODD[name] for name in ODD if name == target}}, target, task=task).fitted()


def test_the_target_is_no_context_by_another_spelling(tmp_path):
    path = save(patients(), tmp_path / "patients.csv")
    path.write_text(path.read_text().replace("ill", " ill", 1))
    with pytest.raises(InvalidInputError, match="both --target and --context"):
        posed_file(path, "ill", [" ill"])


def test_the_preprocessing_marks_what_is_missing_and_knows_what_is_rare():
    columns = patients()
    columns["age"] = [None if k % 10 == 0 else value for k, value in enumerate(columns["age"].tolist())]
    columns["blood"] = ["AB" if k == 3 else None if k % 7 == 0 else "A" if k % 2 else "B" for k in range(N)]
    problem = posed(columns, only=["age", "blood"])
    encode = pipeline(problem.columns, "classification")[0].fit(problem.X)
    assert encode.get_feature_names_out().tolist() == [
        "age",
        "missingindicator_age",
        "blood_A",
        "blood_B",
        "blood_None",
        "blood_infrequent_sklearn",
    ]
    # A rare category and one that was never seen are alike.
    rare, new = (pa.table({"age": [60.0], "blood": [name]}) for name in ("AB", "unheard of"))
    np.testing.assert_array_equal(encode.transform(rare), encode.transform(new))
    known = [value for value in columns["age"] if value is not None]
    imputed = encode.transform(pa.table({"age": [np.nan, np.median(known)], "blood": ["A", "A"]}))
    assert imputed[0, 0] == pytest.approx(imputed[1, 0])
    assert imputed[0, 1] != imputed[1, 1]


def test_classes_beside_a_stray_cell_stay_as_they_are_written(tmp_path):
    columns = patients(600)
    columns["stage"] = [f"{k % 13:02}" for k in range(600)]
    columns["stage"][10] = "XX"
    path = save(columns, tmp_path / "patients.csv")
    problem = posed_file(path, "stage", task="classification", drop=["ill", "days", "cost"])
    assert problem.y.tolist() == columns["stage"]
