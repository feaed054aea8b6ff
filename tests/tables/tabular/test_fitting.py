"""From a file to a fit: what is said on the way, what is refused, and that nothing else ever happens."""

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from counterpoise.exceptions import CounterpoiseError, InvalidInputError
from counterpoise.tables.reading import DataFile, read_table
from counterpoise.tables.tabular.fitting import pose
from counterpoise.tables.tabular.saved import SavedModel
from tests.reports.pages.hostile import NAMES
from tests.tables.tabular.examples import in_memory, patients, posed, posed_file, save

N = 150


def test_what_was_inferred_and_left_out_is_noted_in_order():
    columns = {**patients(), "row": np.arange(N), "none": pa.nulls(N)}
    columns["ill"] = [None if k == 5 else word for k, word in enumerate(columns["ill"].tolist())]
    assert posed(columns).notes == (
        "classification of ill (ill holds words)",
        "1 of 150 rows have no ill and are left out",
        "column row is left out: it is a running number",
        "column none is left out: it is empty",
    )


def test_numbers_as_contexts_carry_the_name_of_their_column(tmp_path):
    columns = patients()
    columns["store"] = [{"north": 4, "south": 11, "east": 7}[name] for name in columns.pop("hospital")]
    for end in ("csv", "parquet"):
        problem = posed_file(save(columns, tmp_path / f"patients.{end}"), context=["store"])
        assert set(problem.contexts.tolist()) == {"store 4", "store 7", "store 11"}


def test_several_columns_are_crossed():
    columns = {**patients(), "ward": np.arange(N) % 2}
    problem = posed(columns, context=["hospital", "ward"])
    assert set(problem.contexts.tolist()) == {(h, f"ward {k}") for h in ("north", "south", "east") for k in (0, 1)}
    assert set(problem.columns.features) == {"age", "weight", "blood"}


def test_the_fit_is_a_copy_and_its_warnings_are_returned():
    problem = posed({name: column[:40] for name, column in patients().items()}, reference="in-sample")
    model, warned = problem.fitted()
    assert model is not problem.model
    assert not hasattr(problem.model[-1], "coef_")
    assert len(warned) == len(set(warned))
    assert problem.fitted()[0].predict_proba(problem.X).tolist() == model.predict_proba(problem.X).tolist()


def test_groups_are_those_of_the_rows_that_stay():
    columns = {**patients(), "family": [f"f{k // 3}" for k in range(N)]}
    columns["ill"] = [None if k < 4 else word for k, word in enumerate(columns["ill"].tolist())]
    problem = posed(columns, group="family")
    assert problem.groups.tolist() == columns["family"][4:]
    assert "family" not in problem.columns.features


def hospitals(**sizes):
    """Return patients of hospitals of given sizes."""
    names = [name for name, size in sizes.items() for _ in range(size)]
    return {**{name: column[: len(names)] for name, column in patients(len(names)).items()}, "hospital": names}


def test_rare_contexts_are_pooled_and_noted():
    problem = posed(hospitals(north=80, south=60, east=7, west=3), pool_below=10)
    note = "2 contexts have fewer than 10 rows and are pooled as east + west (10 rows): east 7, west 3"
    assert problem.notes == ("classification of ill (ill holds words)", note)
    assert set(problem.contexts.tolist()) == {"north", "south", "east + west"}
    fitted = problem.fit()
    assert fitted.notes == problem.notes
    assert fitted.pool is problem.pool
    assert fitted.model[-1].contexts_.tolist() == ["east + west", "north", "south"]


def test_groups_are_counted_where_there_are_any():
    columns = {**hospitals(north=80, south=60, east=10), "day": [k // 5 for k in range(N)]}
    assert posed(columns, pool_below=4, group="day").pool.members == {"south": 12, "east": 2}
    assert posed(columns, pool_below=4, drop=["day"]).pool.members == {}


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (
            {"north": 80, "south": 60, "east": 9, "west": 1},
            "2 contexts have fewer than 10 rows; --pool-below 30 pools them",
        ),
        ({"a": 80, "b": 60, "c": 9}, "1 context has fewer than 10 rows; --pool-below 30 pools it with another"),
        ({"a": 80, "c": 9}, "1 context has fewer than 10 rows; little can be said about so few"),
        ({"a": 9, "b": 9, "c": 12}, "2 contexts have fewer than 10 rows; little can be said about so few"),
        ({"a": 80, "b": 10, "c": 10}, None),
    ],
)
def test_contexts_of_very_few_rows_are_noted(sizes, said):
    assert posed(hospitals(**sizes)).notes[1:] == ((said,) if said else ())


REFUSED = {
    "a pool of everything": ({"pool_below": 900}, "fewer than 900 rows would leave a single context"),
    "one context": ({"context": ["one"]}, r"one \(--context\) is the same in every row"),
    "a context with gaps": ({"context": ["gaps"]}, r"'gaps' of patients.parquet \(--context\) is empty in row 2"),
    "a group with gaps": ({"group": "gaps"}, r"'gaps' of patients.parquet \(--group\) is empty in row 2"),
    "no such context": ({"context": ["hopital"]}, r"no column 'hopital' \(--context\). Did you mean 'hospital'"),
    "no such group": ({"group": "blod"}, r"no column 'blod' \(--group\). Did you mean 'blood'"),
    "lists as contexts": ({"context": ["lists"]}, r"'lists' of .* \(--context\) must hold words or numbers"),
    "a negative ridge": ({"alpha": -1.0}, "alpha"),
    "a quantile of two": ({"target": "cost", "task": "quantile", "quantile": 2.0}, "quantile"),
    "no confidence": ({"confidence": 1.5}, "confidence"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_problems_that_are_refused(case):
    options, message = REFUSED[case]
    odd = {"one": ["x"] * N, "gaps": ["a", None, "b"] * 50, "lists": [[1], [2]] * 75}
    with pytest.raises(InvalidInputError, match=message):
        posed({**patients(), **odd}, **options).fitted()


def test_one_context_among_the_rows_that_stay_is_refused():
    columns = patients()
    columns["ill"] = np.where(columns["hospital"] == "north", columns["ill"], None)
    with pytest.raises(InvalidInputError, match="one context and nothing to be robust against"):
        posed(columns)


# --- whatever comes --------------------------------------------------------------------------------------------------

words = st.one_of(st.sampled_from([name for name in NAMES if isinstance(name, str) and len(name) < 99]), st.text())
names = words.filter(lambda name: not any("\ud800" <= letter <= "\udfff" for letter in name))
finite = st.floats(-1e30, 1e30)
CELLS = {
    "floats": (st.one_of(st.none(), finite, st.just(float("nan"))), pa.float64()),
    "plain floats": (st.one_of(st.none(), st.floats(-1e6, 1e6)), pa.float64()),
    "integers": (st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), pa.int64()),
    "few": (st.one_of(st.none(), st.integers(0, 2)), pa.int8()),
    "booleans": (st.one_of(st.none(), st.booleans()), pa.bool_()),
    "words": (st.one_of(st.none(), names), pa.string()),
    "letters": (st.one_of(st.none(), st.sampled_from("abc")), pa.string()),
    "dates": (st.integers(0, 99), pa.date32()),
    "lists": (st.lists(st.integers(0, 2), max_size=2), pa.list_(pa.int64())),
}


@st.composite
def tables(draw):
    """Return a table of up to 16 rows; its first column has no gaps, so that it may be a context."""
    n = draw(st.integers(2, 16))
    labels = draw(st.lists(names, min_size=3, max_size=7, unique=True))
    context = draw(st.lists(st.sampled_from(["a", "b", "<i>"]), min_size=n, max_size=n))
    columns = {labels[0]: pa.array(context)}
    for k, label in enumerate(labels[1:]):
        # What cannot be a target at all is for test_task.
        cells, kind = CELLS[draw(st.sampled_from([name for name in CELLS if k or name != "lists"]))]
        columns[label] = pa.array(draw(st.lists(cells, min_size=n, max_size=n)), kind)
    return pa.table(columns)


# Not made smaller: that would take minutes, and the tables are small.
TRIED = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def fitted_or_refused(data, target, context, **options):
    try:
        problem = pose(data, target, [context], **options)
        model, _ = problem.fitted()
    except CounterpoiseError:
        return
    assert context not in problem.columns.features
    assert target not in problem.columns.features
    saved = SavedModel.of({"robust": model}, problem.columns, target, problem.target.task)
    for name, values in saved.predictions(data).items():
        assert len(values) == data.n_rows
        if name != "prediction" or problem.target.task != "classification":
            assert not np.isnan(values).any()
    saved.unknown(data)


@TRIED
@given(table=tables(), task=st.sampled_from(["auto", "auto", "classification", "count", "huber", "quantile"]))
def test_any_typed_table_is_fitted_or_refused(table, task):
    first, target, *_ = table.column_names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted_or_refused(DataFile(Path("t.parquet"), tuple(table.column_names), table), target, first, task=task)


CELL = st.one_of(
    names,
    st.sampled_from(["", "NA", "nan", "1", "2", "1.0", "1e9", "0x1", "true", "False", "1,5", "inf", "2020-01-01", " "]),
    st.floats(-1e9, 1e9).map(repr),
)


@TRIED
@given(data=st.data())
def test_any_text_is_fitted_or_refused(data):
    n = data.draw(st.integers(2, 12))
    labels = data.draw(st.lists(names, min_size=3, max_size=5, unique=True))
    columns = {labels[0]: data.draw(st.lists(st.sampled_from("ab"), min_size=n, max_size=n))}
    for label in labels[1:]:
        some = data.draw(st.lists(CELL, min_size=1, max_size=4))
        columns[label] = data.draw(st.lists(st.sampled_from(some), min_size=n, max_size=n))
    table = pa.table({name: pa.array(column, pa.string()) for name, column in columns.items()})
    file = DataFile(Path("t.csv"), tuple(labels), table, 2, None, data.draw(st.sampled_from(",;")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted_or_refused(file, labels[1], labels[0])


def test_huge_and_tiny_numbers_are_fitted_or_refused():
    columns = {**patients(), "huge": np.geomspace(1e-300, 1e300, N), "tiny": np.linspace(0.0, 1e-300, N)}
    for target in ("ill", "cost"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted_or_refused(in_memory(columns), target, "hospital", drop=("cost", "ill", "days"))


@pytest.mark.parametrize("task", ["regression", "count", "huber", "quantile"])
def test_a_huge_target_is_fitted_or_refused(task):
    columns = {**patients(), "cost": np.geomspace(1.0, 1e200, N)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted_or_refused(in_memory(columns), "cost", "hospital", drop=("ill", "days"), task=task)


def test_hostile_names_of_columns_and_contexts_are_only_names(tmp_path):
    labels = [name for name in NAMES if isinstance(name, str) and name.strip() and "\ud800" not in name]
    columns = patients()
    hospitals = dict(zip(("north", "south", "east"), labels, strict=False))
    renamed = {labels[0]: columns["age"], labels[1]: columns["blood"], labels[4]: columns["ill"]}
    renamed[labels[2]] = [hospitals[name] for name in columns["hospital"]]
    problem = pose(in_memory(renamed), labels[4], [labels[2]])
    assert set(problem.columns.features) == {labels[0], labels[1]}
    saved = SavedModel.of({"robust": problem.fitted()[0]}, problem.columns, labels[4], "classification")
    saved.write(tmp_path)
    assert set(saved.predictions(in_memory(renamed))) == {"prediction", "probability[no]", "probability[yes]"}


def test_a_column_of_the_name_of_a_mark_is_another_column(tmp_path):
    columns = patients()
    columns["missingindicator_age"] = columns["weight"][::-1]
    columns["age"] = [None if k % 9 == 0 else value for k, value in enumerate(columns["age"].tolist())]
    problem = posed_file(save(columns, tmp_path / "patients.csv"))
    assert np.isfinite(problem.fitted()[0].predict_proba(problem.X)).all()
    assert read_table(tmp_path / "patients.csv").n_rows == N
