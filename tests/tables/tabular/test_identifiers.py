"""Whole numbers that name rows are left out where that is plain, and pointed out where it is likely."""

import numpy as np
import pytest

from tests.tables.tabular.examples import patients, posed

N = 150
RNG = np.random.default_rng(8)


def doubts(problem, name):
    return [note for note in problem.notes if note.startswith(f"{name} ")]


LEFT_OUT = {
    "row": np.arange(1, N + 1),
    "anything": np.sort(RNG.choice(int(1.4 * N), N, replace=False)),
    "patient_id": RNG.permutation(N),
    "sampleId": np.sort(RNG.choice(10**6, N, replace=False)),
    "case no": RNG.permutation(np.arange(1000, 1000 + N)),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_running_numbers_are_left_out_with_gaps_or_by_name_in_any_order(name):
    problem = posed({**patients(), name: LEFT_OUT[name]})
    assert problem.columns.left_out[name] == "a running number"


POINTED_OUT = {
    "patient_id": RNG.choice(10**7, N, replace=False),
    "customerKey": RNG.integers(0, 60, N) + 1000,
    "serial": RNG.choice(10**7, N, replace=False),
    "ranking": RNG.permutation(N),
    "clock": np.sort(RNG.choice(10**6, N, replace=False)),
    "float_id": RNG.choice(10**7, N, replace=False).astype(float),
}


@pytest.mark.parametrize("name", POINTED_OUT)
def test_likely_identifiers_are_kept_and_pointed_out(name):
    problem = posed({**patients(), name: POINTED_OUT[name]})
    assert name in problem.columns.numbers
    (said,) = doubts(problem, name)
    assert said.endswith(f"leave it out: --drop {name}")


HONEST = {
    "age": RNG.integers(20, 90, N),
    "salary": RNG.integers(20_000, 90_000, N),
    "paid": RNG.integers(0, 9, N),
    "valid": RNG.integers(0, 2, N),
    "turkey": RNG.integers(0, 1000, N),
    "steps": RNG.normal(size=N),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_numbers_are_not_pointed_out(name):
    problem = posed({**patients(), name: HONEST[name]})
    assert name in problem.columns.numbers
    assert doubts(problem, name) == []


def test_a_running_number_by_name_is_a_feature_where_it_is_asked_for():
    columns = {**patients(), "patient_id": LEFT_OUT["patient_id"]}
    assert "patient_id" in posed(columns, only=["age", "patient_id"]).columns.numbers
