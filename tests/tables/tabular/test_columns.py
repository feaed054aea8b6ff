"""Which columns are features: by what they hold, whatever the file is, and never what would give the answer away."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from counterpoise.exceptions import InvalidInputError, StrayCellWarning
from tests.tables.tabular.examples import FORMATS, patients, posed, posed_file, save

N = 150
DATE = "a date or time; make features of it first, such as the month"


def cycle(*values):
    return (list(values) * N)[:N]


def wrapped(kind, values, storage):
    return pa.ExtensionArray.from_storage(kind, pa.array(values, storage))


TYPED = {
    "floats": (pa.array(np.linspace(0.0, 1.0, N)), "number"),
    "half floats": (pa.array(np.linspace(0.0, 1.0, N).astype(np.float16)), "number"),
    "floats with NaN": (pa.array(cycle(1.0, 2.5, np.nan)), "number"),
    "small integers": (pa.array(cycle(3, 1, 2), pa.int8()), "number"),
    "large integers": (pa.array(cycle(2**63 + 1, 2**63), pa.uint64()), "number"),
    "decimals": (pa.array(cycle(Decimal("1.5"), None, Decimal("2.25"))), "number"),
    "booleans": (pa.array(cycle(True, False, None)), "category"),
    "words": (pa.array(cycle("a", "b", None)), "category"),
    "large words": (pa.array(cycle("a", "b"), pa.large_string()), "category"),
    "views of words": (pa.array(cycle("a", "b"), pa.string_view()), "category"),
    "dictionary of words": (pa.array(cycle("a", "b", None)).dictionary_encode(), "category"),
    "dictionary of integers": (pa.array(cycle(4, 9, 2)).dictionary_encode(), "number"),
    "dictionary of booleans": (pa.array(cycle(True, False)).dictionary_encode(), "category"),
    "a few names": (pa.array([f"{k % 60}" for k in range(N)]), "category"),
    "nothing": (pa.nulls(N), "empty"),
    "no floats": (pa.array([None] * N, pa.float64()), "empty"),
    "one number": (pa.array([7.0] * N), "the same in every row"),
    "one word": (pa.array(["a"] * N), "the same in every row"),
    "up": (pa.array(range(5, 5 + N)), "a running number"),
    "down": (pa.array(range(2 * N, 0, -2), pa.uint64()), "a running number"),
    "names": (pa.array([f"patient {k}" for k in range(N)]), "different in most rows, like a name"),
    "documents": (pa.array(cycle("a" * 2000, "b" * 2000)), "text of more than 1,000 bytes"),
    "dates": (pa.array(range(N), pa.date32()), DATE),
    "times of day": (pa.array(range(N), pa.time64("us")), DATE),
    "instants": (pa.array(range(N), pa.timestamp("ns", "UTC")), DATE),
    "durations": (pa.array(range(N), pa.duration("s")), DATE),
    "dictionary of dates": (pa.array(cycle(1, 2), pa.date32()).dictionary_encode(), DATE),
    "written dates": (pa.array([f"{k % 28 + 1:02}/02/2011" for k in range(N)]), DATE),
    "lists": (pa.array(cycle([1], [1, 2])), "of type list"),
    "structs": (pa.array(cycle({"a": 1}, {"a": 2})), "of type struct"),
    "maps": (pa.array(cycle([("a", 1)], []), pa.map_(pa.string(), pa.int64())), "of type map"),
    "bytes": (pa.array(cycle(b"\xff", b"b")), "of type binary"),
    "many bytes": (pa.array(cycle(b"\xff", b"b"), pa.large_binary()), "of type large_binary"),
    "views of bytes": (pa.array(cycle(b"\xff", b"b"), pa.binary_view()), "of type binary_view"),
    "pairs of bytes": (pa.array(cycle(b"\xff1", b"b2"), pa.binary(2)), "of type fixed_size_binary"),
    "uuids": (wrapped(pa.uuid(), [np.random.default_rng(k).bytes(16) for k in range(N)], pa.binary(16)), ""),
    "small booleans": (wrapped(pa.bool8(), cycle(0, 1), pa.int8()), "number"),
}


def kind_of(columns, name):
    if name in columns.numbers:
        return "number"
    return "category" if name in columns.categories else columns.left_out[name]


@pytest.mark.parametrize("case", TYPED)
def test_the_type_says_what_a_column_is(case):
    column, expected = TYPED[case]
    problem = posed({**patients(), "new": column})
    assert kind_of(problem.columns, "new").startswith(expected)
    model, _ = problem.fitted()
    assert np.isfinite(model.predict_proba(problem.X)).all()


WRITTEN = {
    "numbers": (cycle("1.5", "-2e3", "7"), "number"),
    "numbers with marks": (cycle("1.5", "NA", "", "n/a"), "number"),
    "whole numbers": (cycle("1", "2", "10"), "number"),
    "true and false": (cycle("true", "False"), "category"),
    "words": (cycle("low", "high", "NA"), "category"),
    "hexadecimal codes": (cycle("0x1A", "0x2b"), "category"),
    "codes with a letter": (cycle("1e", "2", "x"), "category"),
    "American dates": ([f"02/{k % 28 + 1:02}/2011" for k in range(N)], DATE),
    "German dates": ([f"{k % 28 + 1}.2.2011" for k in range(N)], DATE),
    "ISO dates": ([f"2011-02-{k % 28 + 1:02}" for k in range(N)], DATE),
    "times of a date": ([f"2011-02-{k % 28 + 1:02} 10:30:00" for k in range(N)], DATE),
    "dates with gaps": (cycle("01/02/2011", "", "03/02/2011"), DATE),
    "row numbers": ([str(k) for k in range(N)], "a running number"),
    "free text": ([f"He said: '{k}', \"twice\"." for k in range(N)], "different in most rows, like a name"),
    "nothing": ([""] * N, "empty"),
    "one word": (["same"] * N, "the same in every row"),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_text_is_read_for_what_it_is_written_as(tmp_path, case):
    column, expected = WRITTEN[case]
    problem = posed_file(save({**patients(), "new": column}, tmp_path / "patients.csv"))
    assert kind_of(problem.columns, "new").startswith(expected)


MONEY = {
    "dollars": ("${:.2f}", ","),
    "euros behind": ("{:.2f} €", ";"),
    "thousands": ("{:,.0f}", ","),
    "thousands and cents": ("{:,.2f}", ";"),
    "dollars of thousands": ("${:,.2f}", ","),
}


@pytest.mark.parametrize("cell", ["", "?"])
@pytest.mark.parametrize("case", MONEY)
def test_money_and_thousands_are_numbers(tmp_path, case, cell):
    form, delimiter = MONEY[case]
    amounts = [37.0 * (k * k % 601) for k in range(600)]
    written = [form.format(one) for one in amounts]
    written[99], amounts[99] = cell, np.nan
    path = tmp_path / "patients.csv"
    pd.DataFrame({**patients(600), "pay": written}).to_csv(path, index=False, sep=delimiter)
    said = r"'\?' in row 101, which counts as missing" if cell else "which is read as"
    with pytest.warns(StrayCellWarning, match=said):
        problem = posed_file(path)
    np.testing.assert_array_equal(problem.X["pay"].to_numpy(), amounts)


def test_what_may_be_thousands_or_decimals_is_no_number(tmp_path):
    path = tmp_path / "patients.csv"
    pays = [f"{1 + k % 9},{k % 5}00" for k in range(N)]
    pd.DataFrame({**patients(), "pay": pays}).to_csv(path, index=False, sep=";")
    assert "pay" in posed_file(path).columns.categories


def test_a_stray_cell_leaves_decimal_commas_numbers(tmp_path):
    columns = patients(600)
    ages = [str(age).replace(".", ",") for age in columns["age"].tolist()]
    ages[10] = "?"
    pd.DataFrame({**columns, "age": ages}).to_csv(tmp_path / "patients.csv", index=False, sep=";")
    with pytest.warns(StrayCellWarning, match=r"'\?' in row 12"):
        problem = posed_file(tmp_path / "patients.csv")
    expected = np.where(np.arange(600) == 10, np.nan, columns["age"])
    np.testing.assert_array_equal(problem.X["age"].to_numpy(), expected)


def test_every_format_gives_the_same_features(tmp_path):
    columns = patients()
    columns |= {
        "score": pd.array(cycle(1, 2, None, 5), dtype="Int64"),
        "grade": cycle("low", None, "high"),
        "empty": [None] * N,
        "day": [datetime.date(2020, 1, 1) + datetime.timedelta(k) for k in range(N)],
        "clinic": np.char.upper(columns["hospital"]),
        "row": np.arange(N),
    }
    problems = [posed_file(save(columns, tmp_path / f"patients.{end}")) for end in FORMATS]
    for problem in problems:
        assert problem.columns == problems[1].columns
        assert problem.X.to_pandas().equals(problems[1].X.to_pandas())
        assert problem.y.tolist() == problems[1].y.tolist()
    assert set(problems[1].columns.left_out) == {"empty", "day", "clinic", "row"}


def test_a_boolean_is_the_same_category_in_every_format(tmp_path):
    columns = {**patients(), "smoker": cycle(True, False)}
    problems = [posed_file(save(columns, tmp_path / f"patients.{end}")) for end in FORMATS]
    assert len({tuple(problem.X["smoker"].to_pylist()) for problem in problems}) == 1


# --- what must not be a feature --------------------------------------------------------------------------------------


def test_target_context_group_and_what_is_dropped_are_no_features():
    columns = {**patients(), "family": cycle("f", "g", "h", "i")}
    problem = posed(columns, group="family", drop=["weight"])
    assert problem.columns.features == ("age", "blood")
    assert problem.X.column_names == ["age", "blood"]
    assert problem.columns.left_out == {}


@pytest.mark.parametrize("header", [", ", " ,", "\t, "])
def test_blanks_around_names_do_not_make_features_of_target_and_context(tmp_path, header):
    columns = patients()
    lines = save({name: columns[name] for name in ("age", "weight", "ill", "hospital", "blood")}, tmp_path / "p.csv")
    first, rest = lines.read_text().split("\n", 1)
    lines.write_text(first.replace(",", header) + "\n" + rest)
    problem = posed_file(lines, drop=["weight"], group="blood")
    assert [name.strip() for name in problem.columns.features] == ["age"]


def test_a_column_that_renames_the_context_is_left_out():
    columns = patients()
    codes = {"north": 7, "south": 8, "east": 9}
    columns["code"] = [codes[name] for name in columns["hospital"]]
    columns["upper"] = np.char.upper(columns["hospital"])
    columns["known"] = [None if name == "east" else name for name in columns["hospital"]]
    problem = posed(columns)
    assert problem.columns.left_out == dict.fromkeys(["code", "upper", "known"], "another name of the context")


def test_a_column_that_is_coarser_or_finer_than_the_context_stays():
    columns = patients()
    columns["region"] = np.where(columns["hospital"] == "north", "up", "down")
    columns["ward"] = [f"{name} {k % 2}" for k, name in enumerate(columns["hospital"])]
    assert {"region", "ward"} <= set(posed(columns).columns.categories)


def test_a_column_that_renames_a_part_of_crossed_contexts_is_left_out():
    columns = {**patients(), "season": cycle("summer", "winter")}
    columns["code"] = [{"north": 7, "south": 8, "east": 9}[name] for name in columns["hospital"]]
    problem = posed(columns, context=("hospital", "season"))
    assert "code" not in problem.columns.features


def test_other_labels_of_the_contexts_change_no_prediction():
    columns = patients()
    renamed = {"north": "zebra", "south": "<b>x</b>", "east": "aardvark"}
    other = {**columns, "hospital": [renamed[name] for name in columns["hospital"]]}
    first, second = posed(columns), posed(other)
    predicted = [problem.fitted()[0].predict_proba(first.X) for problem in (first, second)]
    np.testing.assert_allclose(*predicted, atol=1e-6)


def test_rows_in_another_order_give_the_same_columns():
    columns = patients()
    order = np.random.default_rng(3).permutation(N)
    shuffled = {name: np.asarray(column)[order] for name, column in columns.items()}
    assert posed(shuffled).columns == posed(columns).columns


# --- what the user names ---------------------------------------------------------------------------------------------


def test_only_the_named_columns_are_features():
    assert posed(patients(), only=["blood", "age"]).columns.features == ("age", "blood")


@pytest.mark.parametrize("option", ["drop", "only"])
def test_a_column_that_is_not_there_cannot_be_dropped_or_chosen(option):
    with pytest.raises(InvalidInputError, match=r"no column 'agee'.*Did you mean 'age'"):
        posed(patients(), **{option: ["agee", "weight"]})


@pytest.mark.parametrize("name", ["ill", "hospital", "weight"])
def test_a_feature_cannot_be_something_else_as_well(name):
    with pytest.raises(InvalidInputError, match=name):
        posed(patients(), only=["age", name], drop=["weight"])


def test_a_column_of_no_use_is_refused_where_it_is_asked_for():
    with pytest.raises(InvalidInputError, match="column 'day' cannot be a feature: it is a date or time"):
        posed({**patients(), "day": pa.array(range(N), pa.date32())}, only=["day"])


def test_without_any_feature_it_is_said_why():
    columns = {name: patients()[name] for name in ("hospital", "ill")}
    with pytest.raises(InvalidInputError, match=r"has no column that can be a feature\.$"):
        posed(columns)
    with pytest.raises(InvalidInputError, match=r"feature \(day: a date or time.*; row: a running number\)"):
        posed({**columns, "day": pa.array(range(N), pa.date32()), "row": range(N)})
