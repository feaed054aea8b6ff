"""Tables that users name: read as they are, or refused with the file, the column and the row."""

import csv
import datetime
import decimal
import gzip
import hashlib
import io
import math
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from counterpoise.exceptions import CounterpoiseError, InvalidInputError, StrayCellWarning
from counterpoise.tables.reading import DataFile, cells, memory, open_table, read_table

SALES = "date,weather,units,unit_cost\n2024-01-01,sun,3,1.5\n2024-01-02,rain,4,2\n2024-01-03,sun,5,0.25\n"
ROLES = {"units": "--demand", "weather": "--context", "unit_cost": "--cost"}
one_file = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def write(tmp_path):
    def written(content, name="sales.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def refusal(path, columns=None):
    with pytest.raises(InvalidInputError) as caught:
        read_table(path, columns)
    return one_line(caught)


def one_line(caught):
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


def number_refusal(path, name="units", role="--demand", **options):
    with pytest.raises(InvalidInputError) as caught:
        read_table(path, {name: role}).numbers(name, role, **options)
    return one_line(caught)


def units(*cells, delimiter=","):
    return "".join(f"{a}{delimiter}{b}\n" for a, b in [("id", "units"), *enumerate(cells)])


# --- reading ---------------------------------------------------------------------------------------------------------


def test_a_csv_is_read(write):
    file = read_table(write(SALES), ROLES)
    assert file.names == ("date", "weather", "units", "unit_cost")
    assert file.n_rows == 3
    assert file.raw.column_names == ["weather", "units", "unit_cost"]
    assert file.numbers("units", "--demand").tolist() == [3, 4, 5]
    assert file.numbers("units").dtype == np.float64
    assert file.numbers("units").flags.writeable
    assert file.numbers("unit_cost").tolist() == [1.5, 2, 0.25]
    assert file.labels("weather").tolist() == ["sun", "rain", "sun"]
    assert file.labels("weather").dtype == object
    assert file.row_name(0) == "row 2"
    assert file.fingerprint == hashlib.sha256(SALES.encode()).hexdigest()[:16]


def test_a_column_may_have_two_roles(write):
    file = read_table(write(SALES), {"units": "--context"})
    assert file.numbers("units", "--demand").tolist() == [3, 4, 5]
    assert file.labels("units", "--context").tolist() == ["3", "4", "5"]


def test_labels_of_a_csv_are_as_they_are_written(write):
    path = write('id,units\n007,1\n1,2\n1.0,3\n 1 ,4\nNA,5\n"a,b",6\n')
    assert read_table(path, {"id": "--product"}).labels("id").tolist() == ["007", "1", "1.0", "1", "NA", "a,b"]
    assert read_table(path).labels("id").tolist()[0] == "007"


def test_a_whole_csv_has_types_that_fit_all_of_a_column(write):
    text = (
        "i,f,b,d,t,s,e,m\n1,1,true,2024-01-01,2024-01-01 10:00:00,x,,1\nNA,2.5,False,2024-02-29,,2,,x\n3,nan,,,,NA,,\n"
    )
    table = read_table(write(text)).table
    assert [str(one) for one in table.schema.types] == [
        *("int64", "double", "bool", "date32[day]", "timestamp[us]", "large_string", "null", "large_string")
    ]
    assert table["i"].to_pylist() == [1, None, 3]
    assert table["s"].to_pylist() == ["x", "2", "NA"]
    assert table["m"].to_pylist() == ["1", "x", None]
    assert read_table(write(text)).column("b").to_pylist() == [True, False, None]


@pytest.mark.parametrize("delimiter", [";", "\t", "|", ","])
@pytest.mark.parametrize("name", ["sales.csv", "sales.tsv", "sales.txt", "sales.dat", "sales"])
def test_the_delimiter_is_found(write, delimiter, name):
    file = read_table(write(SALES.replace(",", delimiter), name), ROLES)
    assert file.numbers("unit_cost").tolist() == [1.5, 2, 0.25]


def test_delimiters_in_quotes_and_in_cells_do_not_count(write):
    file = read_table(write('"price, net";"a,b";units\n1,5;x;3\n2,25;y;4\n'))
    assert file.names == ("price, net", "a,b", "units")
    assert file.numbers("price, net").tolist() == [1.5, 2.25]


def test_decimal_commas_are_read_where_commas_do_not_part_cells(write):
    path = write(units("12,5", "1,200", "-3", ",5", "", delimiter=";"))
    assert read_table(path).numbers("units", allow_missing=True)[:4].tolist() == [12.5, 1.2, -3, 0.5]
    assert read_table(path).column("units").to_pylist() == [12.5, 1.2, -3, 0.5, None]


@pytest.mark.parametrize("cells", [("1,200", "900"), ("12,5", "12.5"), ("1.200,50", "3"), ("1,200,300", "1,5")])
def test_commas_that_may_mean_two_things_are_refused(write, cells):
    assert "must be numbers; row 2 holds" in number_refusal(write(units(*cells, delimiter=";")))


ENCODED = "Stück,wetter\n1,schön\n2,naß\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_encodings_line_ends_and_compression(write, encoding, end, ending):
    content = ENCODED.replace("\n", end).encode(encoding)
    file = read_table(write(gzip.compress(content) if ending == "csv.gz" else content, f"sales.{ending}"))
    assert file.names == ("Stück", "wetter")
    assert file.labels("wetter").tolist() == ["schön", "naß"]
    assert file.numbers("Stück").tolist() == [1, 2]


def test_no_byte_is_too_strange_for_a_text_file(write):
    assert read_table(write(b"a,b\n1,\x81\xff\n")).labels("b").tolist() == ["\x81ÿ"]


def test_a_foreign_byte_late_in_a_large_file_is_read(write):
    content = b"a,b\n" + b"1,plain text of some length\n" * 200_000 + b"2,sch\xf6n\n"
    assert read_table(write(content), {"b": "--context"}).labels("b")[-1] == "schön"


def test_quoted_line_breaks_count_as_one_row(write):
    path = write('"na\nme",units\n"two\r\nlines",1\n"b ""x""",oops\n')
    file = read_table(path)
    assert file.labels("na\nme").tolist() == ["two\r\nlines", 'b "x"']
    assert "row 3 holds 'oops'" in number_refusal(path)


def test_empty_lines_are_left_out_and_rows_keep_their_numbers(write):
    path = write("\n\nid,units\n\n0,1\n \n,\n1,x\n\n\n")
    file = read_table(path)
    assert file.labels("id").tolist() == ["0", "1"]
    assert [file.row_name(k) for k in range(2)] == ["row 5", "row 8"]
    assert "row 8 holds 'x'" in number_refusal(path)


def test_a_file_with_many_empty_lines_first_is_not_without_rows(write):
    assert read_table(write("a,b\n" + "\n" * 50 + "1,2\n")).row_name(0) == "row 52"


def test_an_empty_cell_is_not_an_empty_row(write):
    assert "is empty in row 3" in number_refusal(write("id,units,z\n0,1,\n1,,\n"))


def test_header_names_are_matched_without_blanks_around_them_and_exactly_first(write):
    file = read_table(write("id, units ,units\n1,2,3\n"), {"units": "--demand", " id": "--product"})
    assert file.numbers("units").tolist() == [3]
    assert file.raw.column_names == ["id", "units"]
    assert read_table(write("id, units \n1,2\n"), {"units": "--demand"}).numbers("units").tolist() == [2]


def test_columns_of_the_same_name_are_refused_only_if_asked_for(write):
    path = write("units,x,x\n1,2,3\n")
    assert read_table(path, {"units": "--demand"}).numbers("units").tolist() == [1]
    assert refusal(path, {"x": "--cost"}) == "sales.csv has 2 columns 'x' (--cost). Rename all but one of them."
    assert "2 columns 'x'" in refusal(path)


def test_columns_without_a_name_are_named_by_their_place(write):
    file = read_table(write(",units, \n1,2,3\n"))
    assert file.names == ("column 1", "units", "column 3")
    assert file.numbers("column 3").tolist() == [3]


def test_importing_and_failing_early_do_not_load_arrow():
    code = "import sys, counterpoise.tables.reading; print('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


# --- typed files -----------------------------------------------------------------------------------------------------


def write_stream(table, path):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def write_file(table, path):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


TYPED = {
    "parquet": lambda table, path: pq.write_table(table, path, row_group_size=2),
    "arrow": write_file,
    "stream": write_stream,
    "feather": lambda table, path: pyarrow.feather.write_feather(table, str(path), compression="lz4"),
}


@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.parametrize("name", ["sales.parquet", "sales.feather", "sales.csv", "sales"])
def test_typed_files_are_known_by_their_bytes(tmp_path, kind, name):
    table = pa.table({"units": [1, 2, 3], "skip": ["x"] * 3, "store": [7, 8, 7]})
    TYPED[kind](table, tmp_path / name)
    file = read_table(tmp_path / name, {"units": "--demand", "store": "--context"})
    assert file.names == ("units", "skip", "store")
    assert file.raw.column_names == ["units", "store"]
    assert file.numbers("units").tolist() == [1, 2, 3]
    assert file.labels("store").tolist() == [7, 8, 7]
    assert all(type(label) is int for label in file.labels("store"))
    assert file.row_name(0) == "row 1"
    assert read_table(tmp_path / name).table.equals(table)


TYPES = {
    "int8": pa.array([1, 2, None], pa.int8()),
    "uint64": pa.array([1, 2, None], pa.uint64()),
    "float32": pa.array([1, 2, None], pa.float32()),
    "nan": pa.array([1, 2, math.nan], pa.float64()),
    "decimal": pa.array([decimal.Decimal("1.00"), decimal.Decimal("2.00"), None], pa.decimal128(10, 2)),
    "string": pa.array(["1", " 2 ", None]),
    "blank": pa.array(["1", "2.0", " "]),
    "large_string": pa.array(["1", "2e0", "n/a"], pa.large_string()),
    "string_view": pa.array(["1", "+2", ""], pa.string_view()),
    "dictionary": pa.array(["1", "2", None]).dictionary_encode(),
    "dictionary of numbers": pa.array([1.0, 2.0, None]).dictionary_encode(),
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_numbers_of_every_type(tmp_path, name, kind):
    TYPED[kind](pa.table({"units": TYPES[name]}), tmp_path / "sales")
    file = read_table(tmp_path / "sales", {"units": "--demand"})
    np.testing.assert_array_equal(file.numbers("units", allow_missing=True), [1, 2, np.nan])
    with pytest.raises(InvalidInputError, match=r"column 'units' of sales \(--demand\) .* in row 3\."):
        file.numbers("units", "--demand")


NOT_NUMBERS = {
    "true and false": pa.array([True, False]),
    "dates": pa.array([datetime.date(2024, 1, 1), None]),
    "dates ": pa.array([datetime.datetime(2024, 1, 1), None], pa.timestamp("ns")),
    "times": pa.array([datetime.timedelta(1), None]),
    "list": pa.array([[1], [2]]),
    "binary": pa.array([b"1", b"2"]),
}


@pytest.mark.parametrize("word", NOT_NUMBERS)
def test_other_types_are_not_numbers(tmp_path, word):
    pq.write_table(pa.table({"units": NOT_NUMBERS[word]}), tmp_path / "sales.parquet")
    assert f"(--demand) must be numbers, but it holds {word.strip()}" in number_refusal(tmp_path / "sales.parquet")


LABELS = {
    "string": ["a", " b "],
    "int": [1, 2],
    "float": [1.0, 2.5],
    "bool": [True, False],
    "date": [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)],
    "datetime": [datetime.datetime(2024, 1, 1, 2), datetime.datetime(2024, 1, 2)],
    "decimal": [decimal.Decimal("1.5"), decimal.Decimal("2.5")],
    "bytes": [b"a", b"b"],
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_typed_files_keep_their_type(tmp_path, kind):
    values = LABELS[kind]
    pq.write_table(pa.table({"store": pa.array(values)}), tmp_path / "sales.parquet")
    found = read_table(tmp_path / "sales.parquet").labels("store").tolist()
    assert found == values
    assert [type(one) for one in found] == [type(one) for one in values]


def test_labels_that_are_not_single_values_are_refused(tmp_path):
    pq.write_table(pa.table({"store": [[1], [2]]}), tmp_path / "sales.parquet")
    with pytest.raises(InvalidInputError, match="must hold words or numbers, but it holds list"):
        read_table(tmp_path / "sales.parquet").labels("store")


@pytest.mark.skipif(not hasattr(pa, "json_"), reason="pyarrow knows no such type yet")
def test_extension_types_are_seen_through(tmp_path):
    stores = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "2"]))
    TYPED["arrow"](pa.table({"store": stores}), tmp_path / "sales.arrow")
    assert read_table(tmp_path / "sales.arrow").labels("store").tolist() == ["1", "2"]


def test_a_name_with_a_dot_is_one_column(tmp_path):
    table = pa.table({"unit": [1], "unit.cost": [2], "nested": [{"a": 1}]})
    pq.write_table(table, tmp_path / "sales.parquet")
    assert read_table(tmp_path / "sales.parquet", {"unit": ""}).raw.column_names == ["unit"]
    assert read_table(tmp_path / "sales.parquet", {"unit.cost": ""}).numbers("unit.cost").tolist() == [2]
    assert read_table(tmp_path / "sales.parquet").names == ("unit", "unit.cost", "nested")


# --- cells that are in the way ---------------------------------------------------------------------------------------


def test_numbers_may_be_written_in_many_ways(write):
    path = write(units("12.5", '" 3 "', "1e3", "+4", "-.5", "5.", "1E-2", "007"))
    assert read_table(path).numbers("units").tolist() == [12.5, 3, 1000, 4, -0.5, 5, 0.01, 7]


def test_cells_that_are_not_numbers_are_named_and_counted(write):
    text = number_refusal(write(units(*range(16), "n/a?", "x", "y", 3, "z")))
    assert text == (
        "column 'units' of sales.csv (--demand) must be numbers; row 18 holds 'n/a?' (and 3 more such cells). "
        "Correct these cells, or remove their rows."
    )


ADVICE = {
    "$12.50": "Write the bare number: 12.50.",
    "12.5 €": "Write the bare number: 12.5.",
    "EUR 3": "Write the bare number: 3.",
    "15%": "Write the bare number: 15.",
    "1,200": "Write 1200 without separators, or 1.200 if that is meant.",
    "$1,200,300": "Write 1200300 without separators",
    "12,5": "Write it with a decimal point: 12.5.",
    "2024-01-31": "That is a date; name a column of numbers.",
    "31.1.2024": "That is a date",
    "1_000": "Correct these cells",
    "0x10": "Correct these cells",
    "true": "Correct these cells",
}


@pytest.mark.parametrize("cell", ADVICE)
def test_advice_says_what_to_write(write, cell):
    text = number_refusal(write(units(3, f'"{cell}"')))
    assert f"row 3 holds {cell!r}. {ADVICE[cell]}" in text


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999"])
@pytest.mark.parametrize("other", ["3", "12 x"])
def test_infinity_is_refused(write, cell, other):
    assert f"must be finite numbers; row 2 holds {cell!r}" in number_refusal(write(units(cell, other)))


def test_infinity_in_a_typed_file_is_refused(tmp_path):
    pq.write_table(pa.table({"units": [1.0, math.inf]}), tmp_path / "sales.parquet")
    assert "must be finite numbers; row 2 holds inf" in number_refusal(tmp_path / "sales.parquet", allow_missing=True)


@pytest.mark.parametrize("cell", ["", " ", "NA", "n/a", "NaN", "null", "None", "#N/A"])
@pytest.mark.parametrize("other", ["3", "+3"])
def test_missing_numbers_are_refused_or_nan(write, cell, other):
    path = write(units(1, cell, other, cell))
    state = f"holds {cell!r}, which stands for nothing," if cell.strip() else "is empty"
    assert number_refusal(path) == (
        f"column 'units' of sales.csv (--demand) {state} in row 3 (and in 1 more). "
        "Fill these cells, or remove the rows."
    )
    np.testing.assert_array_equal(read_table(path).numbers("units", allow_missing=True), [1, np.nan, 3, np.nan])


def test_a_column_of_nothing_is_said_to_be_empty(write, tmp_path):
    assert "is empty in every row" in number_refusal(write("id,units\n1,\n2,NA\n"))
    pq.write_table(pa.table({"units": pa.nulls(3)}), tmp_path / "sales.parquet")
    assert "is empty in every row" in number_refusal(tmp_path / "sales.parquet")
    with pytest.raises(InvalidInputError, match="is empty in every row"):
        read_table(tmp_path / "sales.parquet").labels("units")


def test_numbers_below_the_least_are_refused(write):
    path = write(units(0, 2, -3, 4, -5.5))
    assert number_refusal(path, least=0) == (
        "column 'units' of sales.csv (--demand) has -3 in row 4 (and 1 more such cell); demand cannot be negative."
    )
    assert "unit cost must be 1 or more" in number_refusal(path, role="--unit-cost", least=1)
    assert read_table(path).numbers("units", least=-5.5).min() == -5.5


@pytest.mark.parametrize("cell", ["", " ", "NaN", "null", "#N/A"])
def test_a_missing_label_is_refused_with_its_row(write, cell):
    path = write(f"weather,units\nsun,1\n{cell},2\n")
    with pytest.raises(
        InvalidInputError, match=r"column 'weather' of sales.csv \(--context\) .* in row 3\. .*'unknown'"
    ):
        read_table(path, {"weather": "--context"}).labels("weather", "--context")


@pytest.mark.parametrize("values", [["a", None], ["a", ""], ["a", "nan"], [1.0, math.nan], [1, None]])
def test_a_missing_label_of_a_typed_file_is_refused_with_its_row(tmp_path, values):
    pq.write_table(pa.table({"store": values}), tmp_path / "sales.parquet")
    with pytest.raises(InvalidInputError, match=r"in row 2\."):
        read_table(tmp_path / "sales.parquet").labels("store")


def test_surprises_in_late_rows_are_found(write):
    n = 300_000
    path = write("id,weather,units,code\n" + "".join(f"{k},sun,{k % 7},{k % 9}\n" for k in range(n)) + "x,,n/a?,A1\n")
    file = read_table(path, {"units": "--demand", "weather": "--context", "code": "--product"})
    assert f"row {n + 2} holds 'n/a?'." in number_refusal(path)
    with pytest.raises(InvalidInputError, match=f"is empty in row {n + 2}"):
        file.labels("weather")
    assert file.labels("code")[-1] == "A1"
    assert set(file.labels("code")[:-1]) == set("012345678")
    whole = read_table(path).table
    assert [str(one) for one in whole.schema.types] == ["large_string"] * 4
    assert str(whole.slice(0, n)["units"].cast("int64").type) == "int64"


# --- columns that are not there --------------------------------------------------------------------------------------


def test_a_missing_column_is_met_with_the_nearest(write):
    text = (
        "sales.csv has no column 'wheather' (--context). Did you mean 'weather'? "
        "Its columns are: date, weather, units, unit_cost."
    )
    assert refusal(write(SALES), {"wheather": "--context"}) == text
    with pytest.raises(InvalidInputError, match="Did you mean 'unit_cost'"):
        read_table(write(SALES)).numbers("Unit Cost", "--cost")
    assert "Give --drop once for each column." in refusal(write(SALES), {"weather, unit_cost": "--drop"})
    assert "Did you mean" not in refusal(write(SALES), {"qqq": "--context"})


def test_many_columns_are_not_all_listed(write):
    text = refusal(write(",".join(f"c{k}" for k in range(60)) + "\n" + ",".join("1" * 60) + "\n"), {"zz": "--demand"})
    assert text.endswith("c18, c19 and 40 more.")


@pytest.mark.parametrize("kind", TYPED)
def test_a_missing_column_of_a_typed_file(tmp_path, kind):
    TYPED[kind](pa.table({"units": [1]}), tmp_path / "sales")
    assert "no column 'unit' (--demand). Did you mean 'units'?" in refusal(tmp_path / "sales", {"unit": "--demand"})


# --- files that cannot be read ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "found"), [("1", 1), ("1,2,3", 3), ('1,"2,3",4', 3)])
def test_uneven_rows_are_named(write, row, found):
    text = refusal(write(f'id,units\n"a\nb",1\n\n{row}\n2,2\n'))
    assert text == (
        f"row 4 of sales.csv has {found} cells, but the header has 2: {row!r}. "
        "Correct the row; cells that contain commas need quotes around them."
    )


def test_an_uneven_row_late_in_a_large_file_is_named(write):
    n = 300_000
    path = write("id,units\n" + "12345678901234567890,1\n" * n + "1,2,\xe9\n" + "1,1\n" * 1000)
    assert f"row {n + 2} of sales.csv has 3 cells" in refusal(path, {"id": ""})


def test_an_uneven_row_in_another_encoding_is_named(write):
    assert "row 3 of sales.csv has 3 cells" in refusal(write(b"id,units\n1,2\n1,sch\xf6n,3\n"))


def test_a_title_above_the_header_is_noticed(write):
    assert refusal(write("Sales of 2024\nid,units\n1,2\n")).endswith("The first row must name the columns.")


@pytest.mark.parametrize("n", [3, 1_000_000])
@pytest.mark.parametrize("first", ['"1,2', '1,"2'])
def test_a_quote_that_is_never_closed_is_not_the_rest_of_the_file(write, first, n):
    text = refusal(write(f"id,units\n1,2\n{first}\n" + "3,4\n" * n), {"id": ""})
    assert "never closed" in text or "row 3 of sales.csv has 1 cells" in text


def test_a_last_cell_may_have_lines(write):
    assert read_table(write('id,note\n1,"a\nb"\n')).labels("note").tolist() == ["a\nb"]


NO_TABLES = {
    "nothing": (b"", "sales.csv is empty: it has neither a header nor rows."),
    "blank lines": (b"\n\n \n", "sales.csv is empty: it has neither a header nor rows."),
    "a byte order mark": (b"\xef\xbb\xbf", "sales.csv is empty"),
    "compressed nothing": (gzip.compress(b""), "sales.csv is empty"),
    "header": (b"id,units", "sales.csv has a header but no rows."),
    "header and line": (b"id,units\n\n", "sales.csv has a header but no rows."),
    "header and lines": (b"id,units\n" + b"\n" * 100, "sales.csv has a header but no rows."),
    "header and empty row": (b"id,units\n,\n", "sales.csv has a header but no rows."),
    "an image": (b"\x89PNG\r\n\0\0\0,", "sales.csv is not a table: it holds binary data"),
    "a workbook": (b"PK\x03\x04....", "sales.csv is an Excel workbook or a zip file. Save the table as csv"),
    "an old workbook": (b"\xd0\xcf\x11\xe0....", "sales.csv is an old Excel workbook"),
    "old feather": (b"FEA1....", "sales.csv is a feather file of the first version"),
    "parquet's first bytes": (b"PAR1....", "sales.csv is damaged, cut short or no table"),
    "arrow's first bytes": (b"ARROW1..", "sales.csv is damaged, cut short or no table"),
    "a stream's first bytes": (b"\xff\xff\xff\xff....", "sales.csv is damaged, cut short or no table"),
    "gzip's first bytes": (b"\x1f\x8b....", "sales.csv is damaged, cut short or no table"),
    "truncated gzip": (gzip.compress(SALES.encode() * 9)[:-20], "sales.csv is damaged, cut short or no table"),
    "half a letter": ("a,b\n1,2\n".encode("utf-16")[:-1], "sales.csv is damaged, cut short or no table"),
    "one long word": (b"x" * 200_000, "sales.csv is not a table: it does not begin with the names of columns"),
}


@pytest.mark.parametrize("case", NO_TABLES)
def test_files_that_are_no_tables(write, case):
    content, message = NO_TABLES[case]
    assert refusal(write(content)).startswith(message)


@pytest.mark.parametrize("kind", TYPED)
def test_truncated_and_empty_typed_files(tmp_path, kind):
    path = tmp_path / "sales.parquet"
    TYPED[kind](pa.table({"units": np.random.default_rng(0).normal(size=1000)}), path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert "sales.parquet is damaged, cut short or no table" in refusal(path)
    TYPED[kind](pa.table({"units": pa.array([], pa.int64())}), path)
    assert refusal(path) == "sales.parquet has a header but no rows."


@pytest.mark.parametrize("kind", TYPED)
def test_a_column_name_that_is_not_utf_8_is_named(tmp_path, kind):
    path = tmp_path / "sales.arrow"
    TYPED[kind](pa.table({"caf?": [1.0, 2.0]}), path)
    path.write_bytes(path.read_bytes().replace(b"caf?", b"caf\xe9"))
    assert refusal(path).startswith(r"sales.arrow has a column whose name is not UTF-8: b'caf\xe9'. Rename the column")


def test_a_text_file_called_parquet_is_refused(write):
    assert refusal(write(SALES, "sales.parquet")) == "sales.parquet is not a parquet file. If it is text, call it .csv."


def test_files_that_are_not_there(write, tmp_path):
    path = write(SALES)
    assert refusal(tmp_path / "slaes.csv") == f"there is no file {tmp_path / 'slaes.csv'}. Did you mean sales.csv?"
    assert "is not a folder" in refusal(tmp_path / "no" / "sales.csv")
    assert "is not a folder" in refusal(path / "sales.csv")
    (tmp_path / "empty").mkdir()
    assert "is a folder without tables" in refusal(tmp_path / "empty")
    assert "there is no file" in refusal(tmp_path / "qqqqqq")
    with pytest.raises(InvalidInputError, match="cannot be read: File name too long"):
        read_table(tmp_path / ("x" * 5000))


def test_a_long_cell_is_a_cell(write):
    text = "x" * 500_000
    assert read_table(write(f"id,note\n1,{text}\n")).labels("note").tolist() == [text]
    assert read_table(write(f"id,note\n1,{text}\n" + "2,y\n" * 200_000)).n_rows == 200_001


@pytest.mark.skipif(sys.platform != "linux", reason="asks for /dev")
def test_a_device_is_no_file():
    assert "is not a file on disk" in refusal("/dev/null")


def test_a_file_that_may_not_be_read(write, monkeypatch):
    path = write(SALES)

    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    assert "sales.csv cannot be read: Permission denied. Name another file." in refusal(path)


def test_a_failing_disk_is_not_the_users_mistake(write, monkeypatch):
    def fail(*args, **options):
        raise OSError(5, "Input/output error")

    path = write(SALES)
    monkeypatch.setattr("pyarrow.input_stream", fail)
    with pytest.raises(CounterpoiseError, match="could not be read: Input/output error") as caught:
        read_table(path)
    assert not isinstance(caught.value, InvalidInputError)


# --- memory ----------------------------------------------------------------------------------------------------------


def test_the_budget_is_half_of_what_is_free():
    assert 0 < memory.memory_budget() <= memory._free_in_machine() / 2


def test_the_budget_of_a_container(tmp_path):
    for name, text in {"max": "1000\n", "current": "600\n", "stat": "anon 1\ninactive_file 50\n"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert memory._room(tmp_path, "memory.max", "memory.current") == 450
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._room(tmp_path, "memory.max", "memory.current") == math.inf
    assert memory._room(tmp_path / "no", "memory.max", "memory.current") == math.inf


@pytest.fixture
def budget(monkeypatch):
    def allowed(size):
        monkeypatch.setattr(memory, "memory_budget", lambda: size)

    return allowed


@pytest.mark.parametrize("kind", ["csv", *TYPED])
def test_only_the_columns_that_are_read_must_fit(tmp_path, budget, kind):
    table = pa.table({"units": range(1000), "note": [f"{k}" * 200 for k in range(1000)]})
    path = tmp_path / "sales"
    TYPED.get(kind, lambda table, path: table.to_pandas().to_csv(path, index=False))(table, path)
    budget(100_000)
    assert read_table(path, {"units": "--demand"}).n_rows == 1000
    for columns in (None, {"note": "--context"}):
        text = refusal(path, columns)
        assert "of sales take about" in text
        assert "100 kB can be used (half of what is free). Name fewer columns" in text


def _viewed(word, n):
    """Return views that are all of the same bytes."""
    views = np.zeros((n, 4), dtype=np.int32)
    views[:, 0], views[:, 1] = len(word), int.from_bytes(word[:4], "little")
    return pa.Array.from_buffers(pa.string_view(), n, [None, pa.py_buffer(views.tobytes()), pa.py_buffer(word)])


def _repeated(word, n):
    return pa.DictionaryArray.from_arrays(np.zeros(n, dtype=np.int32), pa.array([word.decode()]))


UNPACKED = {
    "dictionary in parquet": (pq.write_table, _repeated),
    "dictionary in arrow": (pyarrow.feather.write_feather, _repeated),
    "text in parquet": (pq.write_table, lambda word, n: pa.array([word.decode()] * n)),
    "bytes in parquet": (pq.write_table, lambda word, n: pa.array([word] * n)),
    "views in arrow": (pyarrow.feather.write_feather, _viewed),
}


@pytest.mark.parametrize("case", UNPACKED)
def test_a_word_counts_as_often_as_it_occurs(tmp_path, budget, case):
    written, column = UNPACKED[case]
    path = tmp_path / "sales"
    written(pa.table({"units": range(1000), "note": column(b"x" * 9000, 1000)}), path)
    assert path.stat().st_size < 40_000
    assert open_table(path).size > 9_000_000
    pieces = [one.raw.num_rows for one in open_table(path).chunks(100_000)]
    assert sum(pieces) == 1000
    assert max(pieces) <= 11
    budget(1_000_000)
    assert "of sales take about 9.0" in refusal(path)


@pytest.mark.parametrize("case", UNPACKED)
def test_a_word_longer_than_a_row_of_a_csv_may_be_is_refused(tmp_path, case):
    written, column = UNPACKED[case]
    path = tmp_path / "sales"
    written(pa.table({"units": [1, 2], "note": column(b"x" * 5_000_000, 2)}), path)
    text = refusal(path)
    assert text.startswith("column 'note' of sales holds a text of 5 MB in row 1; 4.19 MB is the most that a cell may")
    assert read_table(path, {"units": "--demand"}).n_rows == 2


def test_words_in_lists_stay_in_memory_once(tmp_path):
    path = tmp_path / "sales.parquet"
    pq.write_table(pa.table({"units": range(1000), "tags": [["x" * 1000] * 5] * 1000}), path)
    raw = read_table(path).raw
    assert raw.nbytes < 100_000
    assert raw["tags"][0].as_py() == ["x" * 1000] * 5


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
def test_words_are_the_same_in_every_encoding(tmp_path, encoding):
    path, words = tmp_path / "sales.parquet", [f"word {k}" for k in range(1000)]
    pq.write_table(pa.table({"note": words}), path, use_dictionary=False, column_encoding={"note": encoding})
    assert read_table(path).labels("note").tolist() == words
    assert open_table(path).size == sum(map(len, words)) + 8000


def test_a_compressed_file_takes_what_it_unpacks_to(write, budget):
    text = "id,units\n" + "1,2\n" * 500_000
    plain, packed = write(text), write(gzip.compress(text.encode()), "sales.csv.gz")
    assert packed.stat().st_size < len(text) / 500
    assert open_table(packed).size == open_table(plain).size > len(text)
    budget(1_000_000)
    assert refusal(packed).startswith("all columns of sales.csv.gz take about 10 MB of memory, and 1 MB can be used")


def test_a_csv_is_counted_as_it_grows(write, budget):
    path = write("id,units\n" + "1,2\n" * 3_000_000)
    budget(6_000_000)
    text = refusal(path, {"units": "--demand"})
    assert text.startswith("the first ")
    assert int(text.split()[2]) < 3_000_000


# --- round trips -----------------------------------------------------------------------------------------------------

finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
labels = words.filter(lambda text: text.strip() and text.strip().lower() not in ("nan", "null", "#n/a", "<na>"))
rows = st.lists(st.tuples(finite, labels, st.integers(-(2**53), 2**53)), min_size=1, max_size=12)


def same(file: DataFile, rows):
    assert file.numbers("x").tolist() == [row[0] for row in rows]
    assert file.labels("word").tolist() == [row[1] for row in rows]
    assert file.numbers("n").tolist() == [row[2] for row in rows]


@one_file
@given(
    rows=rows,
    delimiter=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n"]),
    encoding=st.sampled_from(["utf-8", "utf-16"]),
)
def test_csv_round_trip(tmp_path, rows, delimiter, end, encoding):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end)
    writer.writerows([("x", "word", "n"), *((repr(x), word, n) for x, word, n in rows)])
    (tmp_path / "table.csv").write_bytes(text.getvalue().encode(encoding))
    same(read_table(tmp_path / "table.csv"), [(x, word.strip(), n) for x, word, n in rows])


def frame(rows):
    return {"x": [row[0] for row in rows], "word": [row[1] for row in rows], "n": [row[2] for row in rows]}


WRITERS = {
    "pandas csv": lambda data, path: pd.DataFrame(data).to_csv(path),
    "pandas parquet": lambda data, path: pd.DataFrame(data).to_parquet(path),
    "pandas categories": lambda data, path: pd.DataFrame(data).astype({"word": "category"}).to_parquet(path),
    "pandas feather": lambda data, path: pd.DataFrame(data).to_feather(path),
    "polars csv": lambda data, path: pl.DataFrame(data).write_csv(path),
    "polars parquet": lambda data, path: pl.DataFrame(data).write_parquet(path),
    "polars ipc": lambda data, path: pl.DataFrame(data).write_ipc(path),
    "polars stream": lambda data, path: pl.DataFrame(data).write_ipc_stream(path),
    "polars categories": lambda data, path: pl.DataFrame(data).cast({"word": pl.Categorical}).write_ipc(path),
}


@pytest.mark.parametrize("writer", WRITERS)
@one_file
@given(rows=rows)
def test_round_trip_of_dataframes(tmp_path, writer, rows):
    WRITERS[writer](frame(rows), tmp_path / "table")
    text = "csv" in writer
    expected = [(x, word.strip() if text else word, n) for x, word, n in rows]
    same(read_table(tmp_path / "table", {"x": "", "word": "", "n": ""}), expected)
    same(read_table(tmp_path / "table"), expected)


@pytest.mark.parametrize("cell", ["?", "abc", "inf", "$12.50", '"1,234"', "-"])
def test_one_stray_cell_leaves_a_column_one_of_numbers(tmp_path, cell):
    rng = np.random.default_rng(0)
    values = [f"{one:.1f}" for one in rng.standard_normal(600)]
    values[10] = cell
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["x,y", *(f"{one},1" for one in values)]), encoding="utf-8")
    data = read_table(path)
    assert cells.kind(data.feature("x")) == "numbers"
    assert data.feature("x").null_count == 1
    # As it is written, for whoever passes the column on.
    assert cells.kind(data.table["x"]) == "text"
    with pytest.warns(StrayCellWarning, match=r"'x' of table.csv has .* in row 12, .*\(599 of 600 cells are numbers\)"):
        numbers = data.numbers("x", allow_missing=True, allow_strays=True)
    assert np.isnan(numbers).tolist() == [k == 10 for k in range(600)]
    with pytest.raises(InvalidInputError, match="row 12 holds"):
        data.numbers("x", allow_missing=True)


def test_words_beside_few_numbers_are_codes(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["x,y", *(f"{one},1" for one in ["0"] * 97 + ["a", "b", "c"])]), encoding="utf-8")
    assert cells.kind(read_table(path).feature("x")) == "text"


def test_stray_cells_may_lie_together(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["x", *map(str, range(1000)), *["?"] * 30]), encoding="utf-8")
    for most in (1e9, 100.0):
        with pytest.warns(StrayCellWarning):
            found = [one.numbers("x", allow_missing=True, allow_strays=True) for one in open_table(path).chunks(most)]
        assert np.isnan(np.concatenate(found)).sum() == 30


@pytest.mark.parametrize("words", [["a"] * 40, [f"V{k}" for k in range(12)]], ids=["too many", "codes"])
def test_codes_beside_numbers_are_no_stray_cells(tmp_path, words):
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["x,y", *(f"{one},1" for one in [*map(str, range(400)), *words])]), encoding="utf-8")
    assert cells.kind(read_table(path).feature("x")) == "text"
