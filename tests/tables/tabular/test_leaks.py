"""A feature that alone predicts the target nearly perfectly is found, and honest strong ones are left alone."""

import numpy as np
import pytest

from counterpoise.tables.tabular.leaks import NEARLY, find_gap_leak, find_leak
from tests.tables.tabular.examples import patients, posed

N = 400


def number(seed=0, n=N):
    return np.random.default_rng(seed).normal(size=n)


def classes(k, seed=0, n=N):
    return np.random.default_rng(seed).integers(0, k, n).astype(float)


FORMS_OF_A_NUMBER = {
    "a copy": lambda y, rng: y,
    "a copy with noise": lambda y, rng: y + 0.05 * rng.normal(size=len(y)),
    "another unit": lambda y, rng: 32.0 - 1.8 * y,
    "a monotone transformation": lambda y, rng: np.exp(4.0 * y),
    "a falling one": lambda y, rng: -(y**3),
}


@pytest.mark.parametrize("form", FORMS_OF_A_NUMBER)
@pytest.mark.parametrize("heavy", [False, True])
def test_a_number_in_another_form_is_found(form, heavy):
    y = np.exp(1.5 * number()) if heavy else number()
    # A target with a heavy tail must not overflow; its logarithm carries the same order.
    x = FORMS_OF_A_NUMBER[form](np.log(y) if heavy else y, np.random.default_rng(1))
    leak = find_leak(x, y)
    assert leak is not None
    assert leak.value >= NEARLY
    assert leak.n_rows == N


def test_a_number_that_is_coded_otherwise_is_found():
    y = np.round(2.0 * number())
    codes = np.random.default_rng(3).permutation(100)[(y - y.min()).astype(int)]
    assert find_leak(codes.astype(float), y) is not None
    assert find_leak(codes.astype(np.intp), y) is not None


FORMS_OF_A_CLASS = {
    "a copy": lambda y, rng: y,
    "other codes": lambda y, rng: np.array([5.0, 1.0, 3.0])[y.astype(int)],
    "categories": lambda y, rng: np.array([2, 0, 1])[y.astype(int)],
    "finer categories": lambda y, rng: 4 * y.astype(int) + rng.integers(0, 4, len(y)),
    "bands of a number": lambda y, rng: np.array([5.0, 1.0, 3.0])[y.astype(int)] + 0.2 * rng.normal(size=len(y)),
}


@pytest.mark.parametrize("form", FORMS_OF_A_CLASS)
@pytest.mark.parametrize("k", [2, 3])
def test_classes_in_another_form_are_found(form, k):
    y = classes(k)
    leak = find_leak(FORMS_OF_A_CLASS[form](y, np.random.default_rng(1)), y, k)
    assert leak is not None
    assert leak.figure == "AUC"


@pytest.mark.parametrize("n", [50, 400, 5000])
@pytest.mark.parametrize("r2", [0.9, 0.95])
def test_an_honest_number_is_left_alone(n, r2):
    for seed in range(20):
        y, e = number(seed, n), number(seed + 1000, n)
        x = np.sqrt(r2) * y + np.sqrt(1.0 - r2) * e
        assert find_leak(x, y) is None
        assert find_leak(np.exp(x), y) is None


@pytest.mark.parametrize(("n", "share"), [(60, 0.3), (400, 0.05), (400, 0.5), (5000, 0.01)])
def test_an_honest_score_is_left_alone(n, share):
    # Two normal distributions this far apart have an AUC of .9.
    for seed in range(20):
        y = (np.random.default_rng(seed).random(n) < share).astype(float)
        assert find_leak(1.812 * y + number(seed + 1000, n), y, 2) is None


def test_categories_of_few_rows_each_predict_nothing():
    rng = np.random.default_rng(0)
    y = number()
    for n_values in (N // 10, N // 2, N):
        codes = rng.integers(0, n_values, N)
        assert find_leak(codes, y) is None
        assert find_leak(codes, (y > 0).astype(float), 2) is None
        assert find_leak(np.arange(N), y) is None


def test_a_single_outlier_makes_no_leak():
    x, y = number(1), number(2)
    x[0] = y[0] = 1e6
    assert find_leak(x, y) is None


def test_only_rows_with_a_value_count_and_there_must_be_enough():
    y = number()
    x = np.where(np.arange(N) < 100, y, np.nan)
    assert find_leak(x, y).n_rows == 100
    assert find_leak(np.where(np.arange(N) < 49, y, np.nan), y) is None


def test_a_value_that_is_there_only_for_one_class_is_found():
    y = classes(2)
    assert find_gap_leak(y == 1.0, y, 2) is not None
    assert find_gap_leak(np.random.default_rng(5).random(N) < 0.5, y, 2) is None


def test_constant_features_and_huge_numbers_do_no_harm():
    y = number()
    assert find_leak(np.full(N, 3.0), y) is None
    assert find_leak(1e40 * y, 1e45 * y) is not None


# --- in a table ------------------------------------------------------------------------------------------------------


def warnings_in(problem):
    return [note for note in problem.notes if note.startswith("warning: ")]


def test_a_table_without_leaks_warns_of_none():
    for target in ("ill", "cost"):
        assert warnings_in(posed(patients(), target)) == []


def test_a_leak_is_named_with_its_figure_and_what_to_do():
    columns = patients()
    columns["bill"] = (columns["cost"] * 1.19).round(2)
    (said,) = warnings_in(posed(columns, "cost"))
    assert said.startswith("warning: bill alone predicts cost nearly perfectly (")
    assert "on 150 rows" in said
    assert said.endswith("leave it out: --drop bill")
    columns["treated"] = np.where(columns["ill"] == "yes", "t", "u")
    (said,) = warnings_in(posed(columns, "ill", drop=["bill"]))
    assert "treated alone predicts ill nearly perfectly (AUC 1 on 150 rows)" in said
    assert warnings_in(posed(columns, "ill", drop=["bill", "treated"])) == []


def test_a_column_that_is_filled_for_one_class_only_is_named():
    columns = patients()
    doses = np.random.default_rng(0).normal(size=150)
    columns["dose"] = [dose if ill == "yes" else None for dose, ill in zip(doses, columns["ill"], strict=True)]
    (said,) = warnings_in(posed(columns))
    assert said.startswith("warning: whether dose is empty alone predicts ill")
