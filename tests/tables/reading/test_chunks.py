"""Tables that are read piece by piece: the same cells of the same types as when they are read at once, and folders."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from counterpoise.exceptions import InvalidInputError
from counterpoise.tables.reading import open_table, read_table
from counterpoise.tables.reading.cells import TypeSearch, spelling

few = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
CELLS = [
    "",
    " ",
    "1",
    "-2",
    "3.5",
    "1e3",
    "1,5",
    "1,200",
    "12,5",
    "true",
    "False",
    "NA",
    "none",
    "2020-01-02",
    "x",
    "007",
]


def joined(table, most=1e9, **options):
    chunks = list(table.chunks(most, **options))
    return pa.concat_tables([one.table for one in chunks]), chunks


def same(table, **options):
    """Check that pieces make up the whole, and return how many there were."""
    whole = table.read().table
    pieces, chunks = joined(table, **options)
    assert pieces.schema.names == whole.schema.names
    for name in whole.column_names:
        assert pieces[name].to_pylist() == whole[name].to_pylist() or _both_nan(pieces[name], whole[name])
    return len(chunks)


def _both_nan(one, two):
    return np.array_equal(one.to_numpy(), two.to_numpy(), equal_nan=True)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "x": pa.array(rng.normal(size=300)),
            "k": pa.array(rng.integers(0, 9, 300)),
            "word": pa.array(rng.choice(["a", "b", None], 300).tolist()).dictionary_encode(),
            "flag": pa.array(rng.choice([True, False], 300)),
        }
    )


def write(table, path, kind):
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=90)
    elif kind == "csv":
        table.to_pandas().to_csv(path, index=False)
    elif kind == "gz":
        path.write_bytes(gzip.compress(table.to_pandas().to_csv(index=False).encode()))
    elif kind == "feather":
        pyarrow.feather.write_feather(table, path, chunksize=70)
    else:
        opened = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as file, opened(file, table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("kind", ["parquet", "arrow", "ipc", "feather", "csv", "gz"])
def test_pieces_make_up_the_table(tmp_path, table, kind):
    path = write(table, tmp_path / f"t.{kind}", kind)
    assert same(open_table(path), most=1500) > 3
    assert same(open_table(path), rows=7) >= 300 // 7
    chunk = next(open_table(path, {"k": "--target"}).chunks(1e9))
    assert chunk.raw.column_names == ["k"]
    assert chunk.names == ("x", "k", "word", "flag")


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv"])
def test_a_row_is_named_by_its_place_in_its_file(tmp_path, table, kind):
    folder = tmp_path / "parts"
    folder.mkdir()
    for k in range(3):
        write(table, folder / f"part-{k}.{kind}", kind)
    first = 2 if kind == "csv" else 1
    whole = open_table(folder)
    assert whole.read().row_name(300 + 12) == f"row {12 + first} of part-1.{kind}"
    places = [f"{one.path.name} {one.row_name(k)}" for one in whole.chunks(1500) for k in range(one.n_rows)]
    assert places == [f"part-{j}.{kind} row {k + first}" for j in range(3) for k in range(300)]
    assert same(whole, rows=100) >= 9


def test_empty_rows_are_left_out_and_counted(tmp_path):
    text = "a,b\n1,2\n\n3,4\n   \n,\n5,6\n"
    (tmp_path / "t.csv").write_text(text)
    chunks = list(open_table(tmp_path / "t.csv").chunks(1e9, rows=1))
    assert [one.row_name(0) for one in chunks] == ["row 2", "row 4", "row 7"]
    assert [one.numbers("a")[0] for one in chunks] == [1, 3, 5]


@few
@given(st.lists(st.sampled_from(CELLS), min_size=2, max_size=12), st.integers(0, 12), st.booleans())
def test_a_type_found_in_pieces_is_that_of_the_whole(cells, cut, comma):
    text = pa.chunked_array([pa.array(cells, pa.large_string())])
    search = TypeSearch(comma)
    for piece in (text[:cut], text[cut:]):
        search.look(piece)
    whole, found = spelling(text, comma).read(text), search.found
    pieces = [found.read(piece) for piece in (text[:cut], text[cut:])]
    assert found.type == whole.type
    assert [cell for piece in pieces for cell in piece.to_pylist()] == whole.to_pylist()


@few
@given(
    st.lists(st.tuples(st.sampled_from(CELLS), st.sampled_from(CELLS)), min_size=1, max_size=20), st.sampled_from(";|")
)
def test_cells_are_the_same_however_a_csv_is_cut(tmp_path, rows, delimiter):
    lines = [f"{k}{delimiter}{a}{delimiter}{b}" for k, (a, b) in enumerate(rows)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join([f"id{delimiter}a{delimiter}b", *lines]) + "\n")
    same(open_table(path), rows=1)
    whole = read_table(path)
    for name in ("a", "b"):
        try:
            expected = whole.numbers(name, allow_missing=True)
        except InvalidInputError:
            continue
        pieces = [one.numbers(name, allow_missing=True) for one in open_table(path).chunks(1e9, rows=1)]
        np.testing.assert_array_equal(np.concatenate(pieces), expected)


def test_a_late_cell_decides_the_type_of_all(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b\n" + "1,200;7\n" * 50 + "12,5;x\n")
    chunks = list(open_table(path).chunks(1e9, rows=10))
    assert chunks[0].numbers("a").tolist() == [1.2] * 10
    assert chunks[0].table["b"].to_pylist() == ["7"] * 10


def test_a_byte_of_another_encoding_at_the_end_is_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + (b"1," + b"x" * 200 + b"\n") * 6_000 + "2,é\n".encode("cp1252"))
    table = open_table(path)
    assert [one.table["b"][-1].as_py() for one in table.chunks(1e9)][-1] == "é"


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_is_one_table(tmp_path):
    for k, rows in enumerate(("1,x\n", "2.5,y\n", "NA,z\n")):
        (tmp_path / f"{k}.csv").write_text(f"a,b\n{rows}")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".hidden.csv").write_text("z\n1\n")
    (tmp_path / "README.md").write_text("not a table")
    data = read_table(tmp_path)
    assert data.table.to_pydict() == {"a": [1.0, 2.5, None], "b": ["x", "y", "z"]}
    assert same(open_table(tmp_path)) == 3
    assert data.fingerprint == open_table(tmp_path).fingerprint
    assert read_table(tmp_path, {"b": "--context"}).raw.column_names == ["b"]


def test_folders_tell_columns(tmp_path):
    for year, site in ((2023, "a b"), (2024, "c")):
        folder = tmp_path / f"year={year}" / f"site={site.replace(' ', '%20')}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": [1.0, 2.0]}), folder / "part.parquet")
    data = read_table(tmp_path)
    assert data.table.to_pydict() == {
        "x": [1, 2, 1, 2],
        "year": [2023] * 2 + [2024] * 2,
        "site": ["a b"] * 2 + ["c"] * 2,
    }
    assert same(open_table(tmp_path)) == 2
    assert read_table(tmp_path, {"site": "--context"}).labels("site").tolist() == ["a b", "a b", "c", "c"]


def test_types_of_files_are_made_one(tmp_path):
    pq.write_table(pa.table({"x": [1, 2], "w": pa.array(["a", "b"]).dictionary_encode()}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"x": [1.5, None], "w": pa.array(["c", None])}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"x": pa.nulls(1), "w": pa.array(["d"], pa.large_string())}), tmp_path / "2.parquet")
    assert read_table(tmp_path).table.to_pydict() == {"x": [1, 2, 1.5, None, None], "w": ["a", "b", "c", None, "d"]}
    assert same(open_table(tmp_path)) == 3


UNLIKE = {
    "a column is missing": ("a,b\n1,2\n", "a\n1\n", r"1\.csv has no column 'b', but 0\.csv has"),
    "a column is new": ("a\n1\n", "a,c\n1,2\n", r"1\.csv has a column 'c', but 0\.csv has not"),
    "another order": ("a,b\n1,2\n", "b,a\n1,2\n", r"1\.csv has its columns in another order than 0\.csv"),
    "another delimiter": ("a,b\n1,2\n", "a;b\n1;2\n", r"1\.csv are parted by ';', but those of 0\.csv by ','"),
    "uneven rows": ("a,b\n1,2\n", "a,b\n1,2\n1,2,3\n", r"row 3 of 1\.csv has 3 cells"),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_files_that_do_not_belong_together_are_named(tmp_path, case):
    first, second, message = UNLIKE[case]
    (tmp_path / "0.csv").write_text(first)
    (tmp_path / "1.csv").write_text(second)
    with pytest.raises(InvalidInputError, match=message):
        read_table(tmp_path)
    with pytest.raises(InvalidInputError, match=message):
        list(open_table(tmp_path).chunks(1e9))


def test_types_that_do_not_belong_together_are_named(tmp_path):
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"x": ["a"]}), tmp_path / "1.parquet")
    with pytest.raises(InvalidInputError, match=r"column 'x' is large_string in .*1\.parquet, but int64 in 0\.parquet"):
        read_table(tmp_path)


def test_files_of_several_kinds_are_refused(tmp_path):
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "0.parquet")
    (tmp_path / "1.csv").write_text("x\n1\n")
    with pytest.raises(InvalidInputError, match="holds both text and typed files"):
        read_table(tmp_path)


def test_a_folder_without_rows_is_refused(tmp_path):
    for k in range(2):
        (tmp_path / f"{k}.csv").write_text("a,b\n")
    with pytest.raises(InvalidInputError, match="has a header but no rows"):
        read_table(tmp_path)
    with pytest.raises(InvalidInputError, match="has a header but no rows"):
        list(open_table(tmp_path).chunks(1e9))


def test_a_cell_that_is_wrong_is_found_in_its_file(tmp_path):
    for k, cell in enumerate(("1", "2", "abc")):
        (tmp_path / f"{k}.csv").write_text(f"a,b\n5,{cell}\n6,{cell}\n")
    message = r"column 'b' of .* must be numbers; row 2 of 2\.csv holds 'abc' \(and 1 more such cell\)"
    with pytest.raises(InvalidInputError, match=message):
        read_table(tmp_path).numbers("b")
    *_, last = open_table(tmp_path).chunks(1e9)
    with pytest.raises(InvalidInputError, match=r"column 'b' of 2\.csv .* row 2 holds 'abc' \(and at least 1 more"):
        last.numbers("b")
